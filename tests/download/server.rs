//! A web server for tests: one thread per connection, a set of files, and faults for each of them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// A fault of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Quirk {
    /// The connection ends after this many bytes of the body, this many times.
    Cut(usize, u32),
    /// Nothing more comes after this many bytes of the body, this many times.
    Stall(usize, u32),
    /// Ranges are ignored.
    NoRanges,
    /// An answer with this status and no file, this many times.
    Status(u16, u32),
    /// A redirect to this URL.
    Redirect(String),
    /// The content length that is announced instead of the real one.
    Claims(u64),
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub path: String,
    pub range: Option<String>,
    pub if_range: Option<String>,
    /// The host that the request line names, if the server is used as a proxy.
    pub through: Option<String>,
}

#[derive(Default)]
pub struct State {
    pub files: BTreeMap<String, Vec<u8>>,
    pub quirks: BTreeMap<String, Vec<Quirk>>,
    pub asked: Vec<Asked>,
    /// Registries require this token, and `/token` issues it to every client.
    pub token: Option<String>,
    /// Whether `/token` denies it.
    pub deny: bool,
}

/// A server, stopped when this value is dropped.
pub struct Server {
    pub address: SocketAddr,
    tls: bool,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

trait Line: Read + Write + Send {}
impl<T: Read + Write + Send> Line for T {}

impl Server {
    pub fn start() -> Self {
        Self::serve(None)
    }
    /// With TLS.
    pub fn with_tls(config: Arc<rustls::ServerConfig>) -> Self {
        Self::serve(Some(config))
    }
    fn serve(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, has_tls) = (Arc::clone(&state), tls.is_some());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                // The last connection is our own, to wake the loop.
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (shared, tls) = (Arc::clone(&shared), tls.clone());
                std::thread::spawn(move || {
                    // Clients that disconnect are expected in these tests.
                    stream.set_read_timeout(Some(Duration::from_secs(20))).ok();
                    let line: Box<dyn Line> = match tls {
                        None => Box::new(stream),
                        Some(config) => {
                            let session = rustls::ServerConnection::new(config).unwrap();
                            Box::new(rustls::StreamOwned::new(session, stream))
                        }
                    };
                    talk(line, &shared, address).ok();
                });
            }
        });
        Self { address, tls: has_tls, state, stop, thread: Some(thread) }
    }
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.address)
    }
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    pub fn put(&self, path: &str, content: impl Into<Vec<u8>>) {
        self.state().files.insert(path.to_owned(), content.into());
    }
    pub fn quirk(&self, path: &str, quirk: Quirk) {
        self.state().quirks.entry(path.to_owned()).or_default().push(quirk);
    }
    pub fn well_again(&self) {
        self.state().quirks.clear();
    }
    /// The requests since the last call.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state().asked)
    }
    /// The same for one path.
    pub fn asked_for(&self, path: &str) -> Vec<Asked> {
        self.asked().into_iter().filter(|a| a.path == path).collect()
    }
    /// The path that ends like this.
    pub fn path(&self, end: &str) -> String {
        self.state().files.keys().find(|path| path.ends_with(end)).unwrap_or_else(|| panic!("no {end}")).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        TcpStream::connect(self.address).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn talk(line: Box<dyn Line>, state: &Mutex<State>, address: SocketAddr) -> std::io::Result<()> {
    let mut line = BufReader::new(line);
    loop {
        let mut first = String::new();
        if line.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let target = first.split_whitespace().nth(1).unwrap_or("/").to_owned();
        let mut headers = BTreeMap::new();
        loop {
            let mut header = String::new();
            line.read_line(&mut header)?;
            let Some((name, value)) = header.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let (through, path) = match target.strip_prefix("http://") {
            Some(rest) => {
                let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
                (Some(host.to_owned()), format!("/{path}"))
            }
            None => (None, target),
        };
        let path = path.split('?').next().unwrap_or("/").to_owned();
        let asked = Asked {
            path: path.clone(),
            range: headers.get("range").cloned(),
            if_range: headers.get("if-range").cloned(),
            through,
        };
        let (head, body, end) =
            answer(&mut state.lock().unwrap_or_else(std::sync::PoisonError::into_inner), asked, &headers, address);
        let out = line.get_mut();
        out.write_all(head.as_bytes())?;
        out.write_all(&body)?;
        out.flush()?;
        match end {
            End::Next => {}
            End::Cut => return Ok(()),
            End::Stall => {
                // Until the client gives up.
                let mut byte = [0];
                return line.read_exact(&mut byte);
            }
        }
    }
}

enum End {
    Next,
    Cut,
    Stall,
}

fn plain(status: u16, more: &str, body: &str) -> (String, Vec<u8>, End) {
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{more}\r\n", body.len());
    (head, body.as_bytes().to_vec(), End::Next)
}

fn answer(
    state: &mut State,
    asked: Asked,
    headers: &BTreeMap<String, String>,
    at: SocketAddr,
) -> (String, Vec<u8>, End) {
    state.asked.push(asked.clone());
    let path = asked.path.as_str();
    if path == "/token" {
        return match (&state.token, state.deny) {
            (Some(token), false) => plain(200, "", &format!("{{\"token\":\"{token}\"}}")),
            _ => plain(401, "", "{\"details\":\"incorrect username or password\"}"),
        };
    }
    if let (Some(token), true) = (&state.token, path.starts_with("/v2/"))
        && headers.get("authorization") != Some(&format!("Bearer {token}"))
    {
        let ask = format!("WWW-Authenticate: Bearer realm=\"http://{at}/token\",service=\"test\"\r\n");
        return plain(401, &ask, "{\"errors\":[{\"code\":\"UNAUTHORIZED\",\"message\":\"authentication required\"}]}");
    }
    if path == "/v2/" {
        return plain(200, "", "{}");
    }
    let mut quirks = state.quirks.remove(path).unwrap_or_default();
    let result = answer_file(state, &asked, &mut quirks);
    quirks.retain(|q| !matches!(q, Quirk::Cut(_, 0) | Quirk::Stall(_, 0) | Quirk::Status(_, 0)));
    if !quirks.is_empty() {
        state.quirks.insert(path.to_owned(), quirks);
    }
    result
}

fn answer_file(state: &State, asked: &Asked, quirks: &mut [Quirk]) -> (String, Vec<u8>, End) {
    for quirk in quirks.iter_mut() {
        match quirk {
            Quirk::Status(status, times) => {
                *times -= 1;
                return plain(*status, "", "not now");
            }
            Quirk::Redirect(to) => return plain(302, &format!("Location: {to}\r\n"), ""),
            _ => {}
        }
    }
    let Some(content) = state.files.get(&asked.path) else {
        return plain(404, "", "not found");
    };
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, content);
    let tag = format!("\"{:?}\"", &digest.as_ref()[..8]).replace(' ', "");
    let ranges = !quirks.contains(&Quirk::NoRanges);
    let same = asked.if_range.as_ref().is_none_or(|t| *t == tag);
    let start = asked.range.as_ref().and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let start = start.filter(|_| ranges && same);
    if start.is_some_and(|s| s >= content.len()) {
        return plain(416, "", "");
    }
    let body = &content[start.unwrap_or(0)..];
    let mut length = body.len() as u64;
    let mut sent = body.len();
    let mut end = End::Next;
    for quirk in quirks {
        match quirk {
            Quirk::Cut(at, times) if *at < sent => {
                (*times, sent, end) = (*times - 1, *at, End::Cut);
            }
            Quirk::Stall(at, times) if *at < sent => {
                (*times, sent, end) = (*times - 1, *at, End::Stall);
            }
            Quirk::Claims(claimed) => length = *claimed,
            _ => {}
        }
    }
    let (status, range) = match start {
        Some(s) => {
            ("206 Partial Content", format!("Content-Range: bytes {s}-{}/{}\r\n", content.len() - 1, content.len()))
        }
        None => ("200 OK", String::new()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nETag: {tag}\r\n{range}\r\n");
    (head, body[..sent].to_vec(), end)
}

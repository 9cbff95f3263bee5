//! The real side: `hactl host` in a directory that stands for a host, addressed in frames as an administrator's hactl
//! does it.
//!
//! In: operations, and what people and etcd do to the directory. Out: answers. One session at a time is the run that
//! holds the lock.

use crate::fixture::{FIXTURE, OWNER, preparation};
use hactl::agent::{Root, ServeError, serve_at};
use hactl::model::target::Part;
use hactl::protocol::frame::{Frame, read_frame, write_end, write_json, write_piece};
use hactl::protocol::{Op, OpError, Reply, Request, Response};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Nothing here takes long; what has not come by then never comes.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Between two checks of a condition.
const AGAIN: Duration = Duration::from_millis(1);
/// etcd's data.
pub const DATA: &str = "/var/lib/etcd";
/// The file that a running etcd keeps locked.
const DATABASE: &str = "/var/lib/etcd/member/snap/db";

/// One session with `hactl host`.
struct Session {
    from: ReadHalf<DuplexStream>,
    to: WriteHalf<DuplexStream>,
    serving: JoinHandle<Result<(), ServeError>>,
    id: u64,
}

impl Session {
    fn new(root: &Path) -> Self {
        let (near, far) = duplex(256 << 10);
        let (stdin, stdout) = split(far);
        let serving = tokio::spawn(serve_at(Root::at(root), stdin, stdout));
        let (from, to) = split(near);
        Self { from, to, serving, id: 0 }
    }

    async fn ask(&mut self, epoch: u64, op: Op) -> Result<Reply, OpError> {
        self.id += 1;
        let request = Request { id: self.id, epoch, op: Some(op) };
        write_json(&mut self.to, &request).await.expect("the session listens");
        self.answer().await
    }

    /// The answer to the request sent last.
    async fn answer(&mut self) -> Result<Reply, OpError> {
        loop {
            let frame = timeout(TIMEOUT, read_frame(&mut self.from)).await.expect("an answer in time");
            let Some(Frame::Json(text)) = frame.expect("whole frames") else { panic!("the session ended") };
            match serde_json::from_slice(&text).expect("a response") {
                Response::Heartbeat { .. } => {}
                Response::Answer { id, outcome } => {
                    assert_eq!(id, self.id, "answers come in the order of requests");
                    return outcome;
                }
            }
        }
    }

    async fn close(self) {
        let Self { mut from, mut to, serving, .. } = self;
        to.shutdown().await.expect("the stream can be closed");
        let draining = tokio::spawn(async move { while let Ok(Some(_)) = read_frame(&mut from).await {} });
        let ended = timeout(TIMEOUT, serving).await.expect("a session ends with its stream");
        assert!(matches!(ended, Ok(Ok(()))), "{ended:?}");
        draining.abort();
    }
}

/// A directory that stands for a host, with the run that holds its lock.
pub struct Place {
    directory: TempDir,
    run: Session,
    pub epoch: u64,
    /// The file that etcd keeps locked while it runs.
    etcd: Option<File>,
}

impl Place {
    pub async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let run = Session::new(directory.path());
        let mut place = Self { directory, run, epoch: 0, etcd: None };
        let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let user = |name: &str| format!("{name}:x:{}:{}::/:/bin/false\n", me.0, me.1);
        place.write("/etc/passwd", [user(OWNER), user("etcd")].concat());
        for module in preparation().modules {
            fs::create_dir_all(place.at(&format!("/sys/module/{module}"))).expect("a module");
        }
        for key in preparation().sysctls.keys() {
            place.write(&sysctl(key), "77\n");
        }
        place.lock().await;
        place
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join(path.trim_start_matches('/'))
    }
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let at = self.at(path);
        fs::create_dir_all(at.parent().expect("not the root")).expect("folders");
        fs::write(&at, content).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    pub fn chmod(&self, path: &str, mode: u32) {
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode)).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    /// Removes a file, or a folder with its content; a missing one is fine.
    pub fn remove(&self, path: &str) {
        let at = self.at(path);
        let _ = if at.is_dir() && !at.is_symlink() { fs::remove_dir_all(at) } else { fs::remove_file(at) };
    }

    async fn lock(&mut self) {
        let reply = self.run.ask(0, Op::Lock { holder: "this run".to_owned() }).await;
        let Ok(Reply::Locked { epoch, .. }) = reply else { panic!("{reply:?}") };
        assert!(epoch > self.epoch, "epochs only grow");
        self.epoch = epoch;
    }

    /// The run ends, whatever it was doing, and the next one takes the lock.
    pub async fn next_run(&mut self) {
        let ended = std::mem::replace(&mut self.run, Session::new(self.directory.path()));
        ended.close().await;
        self.lock().await;
    }

    pub async fn ask(&mut self, op: Op) -> Result<Reply, OpError> {
        self.run.ask(self.epoch, op).await
    }

    /// The answers to another session that asks for the lock, and then for a change with this epoch.
    pub async fn late(&self, epoch: u64, op: Op) -> (Reply, Result<Reply, OpError>) {
        let mut other = Session::new(self.directory.path());
        let held = other.ask(0, Op::Lock { holder: "another".to_owned() }).await.expect("a lock is no fault");
        let answer = other.ask(epoch, op).await;
        other.close().await;
        (held, answer)
    }

    /// Offers a part: returns the offset from which content is wanted, or `None` when it is complete.
    pub async fn offer(&mut self, part: &Part) -> Result<Option<u64>, OpError> {
        let offering = async {
            loop {
                match self.ask(Op::Deliver(part.clone())).await {
                    Ok(Reply::Wanted { from }) => return Ok(Some(from)),
                    Ok(Reply::Done) => return Ok(None),
                    // The thread of a delivery that was cut off notices it a little after its session has ended.
                    Err(fault) if fault.what.contains("over another channel") => sleep(AGAIN).await,
                    other => return other.map(|reply| panic!("{reply:?}")),
                }
            }
        };
        timeout(TIMEOUT, offering).await.expect("a delivery that was cut off ends")
    }

    /// Sends all that was wanted and waits for the result.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<Reply, OpError> {
        for piece in bytes.chunks(5000) {
            write_piece(&mut self.run.to, piece).await.expect("the session listens");
        }
        write_end(&mut self.run.to).await.expect("the session listens");
        self.run.answer().await
    }

    /// Sends some bytes and closes the session once all of them, `until` in all, are on the disk.
    pub async fn cut_off(&mut self, part: &Part, bytes: &[u8], until: u64) {
        for piece in bytes.chunks(5000) {
            write_piece(&mut self.run.to, piece).await.expect("the session listens");
        }
        let partial = self.at(&part.path()).with_file_name(format!(".{}.part-{}", part.name, part.sent_size));
        let arrived = async {
            while fs::metadata(&partial).map_or(0, |m| m.len()) < until {
                sleep(AGAIN).await;
            }
        };
        timeout(TIMEOUT, arrived).await.expect("the pieces reach the disk");
        self.next_run().await;
    }

    /// Installs certificates for leaves whose keys the host makes.
    pub async fn certify(&mut self, leaves: Vec<hactl::model::target::CertSpec>) -> Result<(), OpError> {
        let Reply::Requests(requests) = self.ask(Op::MakeKeys { leaves: leaves.clone() }).await? else {
            panic!("requests were asked for");
        };
        let certs = leaves.into_iter().map(|leaf| (FIXTURE.sign(&leaf, &requests[&leaf.id]), leaf));
        self.ask(Op::InstallCerts { certs: certs.map(|(pem, leaf)| (leaf, pem)).collect() }).await.map(drop)
    }

    /// Plays etcd: its data is there or not, and is locked while it runs.
    pub fn etcd(&mut self, data: bool, runs: bool) {
        self.etcd = None;
        if data && !self.at(DATABASE).exists() {
            self.write(DATABASE, "a database");
        }
        assert_eq!(self.at(DATABASE).exists(), data, "data come and go only by acts");
        if runs && data {
            let file = File::open(self.at(DATABASE)).expect("the database");
            file.lock().expect("nobody else holds it");
            self.etcd = Some(file);
        }
    }

    /// Waits until a file that is written now gets a later change time than this: kernels count in steps of
    /// milliseconds.
    pub async fn later_than(&self, changed_ms: i64) {
        let scratch = self.directory.path().join("scratch");
        let passing = async {
            loop {
                fs::write(&scratch, "x").expect("a scratch file");
                let found = fs::metadata(&scratch).expect("just written");
                if found.ctime() * 1000 + found.ctime_nsec() / 1_000_000 > changed_ms {
                    return;
                }
                sleep(AGAIN).await;
            }
        };
        timeout(TIMEOUT, passing).await.expect("time passes");
    }
}

/// The file of a kernel setting.
pub fn sysctl(key: &str) -> String {
    format!("/proc/sys/{}", key.replace('.', "/"))
}

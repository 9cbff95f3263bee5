//! A small HTTPS server on this machine that stands for external services of a cluster: a registry with a password, an
//! issuer of tokens.
//!
//! In: paths with their answers, and the CA that signs the server's certificate. Out: a port, and the requests so far.
//! It speaks as much HTTP/1.1 as containerd and an API server need.

use base64::Engine as _;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

/// A CA of the tests.
pub struct TestCa {
    params: rcgen::CertificateParams,
    key: rcgen::KeyPair,
    /// Its certificate, PEM.
    pub cert: String,
}

impl TestCa {
    pub fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::DigitalSignature];
        let cert = params.self_signed(&key).expect("a certificate").pem();
        Self { params, key, cert }
    }
    /// Its private key, PEM.
    pub fn key(&self) -> String {
        self.key.serialize_pem()
    }
    /// A certificate for a server at this address and its key, PEM.
    pub fn pair(&self, address: IpAddr) -> (String, String) {
        let (cert, key) = self.signed(address);
        (cert.pem(), key.serialize_pem())
    }
    fn signed(&self, address: IpAddr) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::default();
        params.subject_alt_names = vec![rcgen::SanType::IpAddress(address)];
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        let issuer = rcgen::Issuer::from_params(&self.params, &self.key);
        (params.signed_by(&key, &issuer).expect("a certificate"), key)
    }
    fn server(&self, address: IpAddr) -> rustls::ServerConfig {
        let (cert, key) = self.signed(address);
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .expect("a certificate and its key")
    }
}

/// The answer at each path: its type and content.
pub type Pages = BTreeMap<String, (String, Vec<u8>)>;

/// A server, stopped when this value is dropped.
pub struct Server {
    /// Its port.
    pub port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    // Dropping it ends every task.
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    /// Serves `pages` at an address of this machine. With a `login`, a request without it is answered with 401.
    pub fn start(address: IpAddr, ca: &TestCa, pages: impl FnOnce(u16) -> Pages, login: Option<&str>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind((address, 0))).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(ca.server(address)));
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let basic = login.map(|login| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(login)));
        let shared = Arc::new((pages(port), basic, Arc::clone(&asked)));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    // A client that does not trust the certificate closes the connection.
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let mut stream = BufReader::new(stream);
                    while let Some(answer) = answer(&mut stream, &shared).await {
                        if stream.get_mut().write_all(&answer).await.is_err() || stream.get_mut().flush().await.is_err()
                        {
                            return;
                        }
                    }
                });
            }
        });
        Self { port, asked, _runtime: runtime }
    }
    /// Requests so far: method, path and status.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no task panics while it writes").clone()
    }
}

type Shared = (Pages, Option<String>, Arc<Mutex<Vec<String>>>);

/// Reads one request and makes its answer; `None` at the end of the connection.
async fn answer<S>(stream: &mut BufReader<S>, (pages, login, asked): &Shared) -> Option<Vec<u8>>
where
    S: tokio::io::AsyncRead + Unpin,
{
    let mut first = String::new();
    if stream.read_line(&mut first).await.ok()? == 0 {
        return None;
    }
    let mut words = first.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.split('?').next()?.to_owned());
    let mut shown = None;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("authorization")
        {
            shown = Some(value.trim().to_owned());
        }
    }
    let (status, kind, body) = match pages.get(&path) {
        _ if login.is_some() && shown != *login => (401, "text/plain".to_owned(), b"unauthorized".to_vec()),
        Some((kind, body)) => (200, kind.clone(), body.clone()),
        None => (404, "text/plain".to_owned(), b"not here".to_vec()),
    };
    asked.lock().expect("no task panics while it writes").push(format!("{method} {path} {status}"));
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &body);
    let digest: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let mut head = format!("HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
    head.push_str(&format!("Docker-Content-Digest: sha256:{digest}\r\n"));
    if status == 401 {
        head.push_str("WWW-Authenticate: Basic realm=\"test\"\r\n");
    }
    head.push_str("\r\n");
    let mut out = head.into_bytes();
    if method != "HEAD" {
        out.extend(body);
    }
    Some(out)
}

/// The files of a tar archive, by name.
fn untar(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut at = 0;
    while let Some(head) = archive.get(at..at + 512).filter(|head| head[0] != 0) {
        let text = |from: usize, to: usize| {
            let field = head[from..to].split(|b| *b == 0).next().unwrap_or_default();
            String::from_utf8_lossy(field).trim().to_owned()
        };
        let size = usize::from_str_radix(&text(124, 136), 8).expect("a size in octal");
        let content = archive[at + 512..at + 512 + size].to_vec();
        files.insert(text(0, 100).trim_start_matches("./").to_owned(), content);
        at += 512 + size.div_ceil(512) * 512;
    }
    files
}

/// The pages of a registry that has one image, `t/pause:1`: the pause image of the bundle.
pub fn registry_pages(archive: &[u8]) -> Pages {
    let files = untar(archive);
    let blob = |digest: &str| files[&format!("blobs/sha256/{}", digest.trim_start_matches("sha256:"))].clone();
    let index: serde_json::Value = serde_json::from_slice(&files["index.json"]).expect("an OCI layout");
    let mut entry = index["manifests"][0].clone();
    let kind = |entry: &serde_json::Value| entry["mediaType"].as_str().expect("a type").to_owned();
    let name = |entry: &serde_json::Value| entry["digest"].as_str().expect("a digest").to_owned();
    if kind(&entry).contains("index") || kind(&entry).contains("list") {
        let inner: serde_json::Value = serde_json::from_slice(&blob(&name(&entry))).expect("an index");
        entry = inner["manifests"][0].clone();
    }
    let manifest = blob(&name(&entry));
    let parsed: serde_json::Value = serde_json::from_slice(&manifest).expect("a manifest");
    let mut pages = Pages::new();
    for reference in ["1".to_owned(), name(&entry)] {
        pages.insert(format!("/v2/t/pause/manifests/{reference}"), (kind(&entry), manifest.clone()));
    }
    pages.insert("/v2/".to_owned(), ("application/json".to_owned(), b"{}".to_vec()));
    let layers = parsed["layers"].as_array().expect("layers").iter();
    for part in layers.chain([&parsed["config"]]) {
        let page = ("application/octet-stream".to_owned(), blob(&name(part)));
        pages.insert(format!("/v2/t/pause/blobs/{}", name(part)), page);
    }
    pages
}

/// Signs tokens that an API server can verify, with ES256.
pub struct TokenIssuer {
    pair: aws_lc_rs::signature::EcdsaKeyPair,
}

impl TokenIssuer {
    pub fn new() -> Self {
        let key = rcgen::KeyPair::generate().expect("a P-256 key");
        let algorithm = &aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair =
            aws_lc_rs::signature::EcdsaKeyPair::from_pkcs8(algorithm, key.serialized_der()).expect("the same key");
        Self { pair }
    }
    /// The pages that an API server reads: the issuer's discovery document and its keys.
    pub fn pages(&self, url: &str) -> Pages {
        use aws_lc_rs::signature::KeyPair as _;
        let point = self.pair.public_key().as_ref();
        let document = serde_json::json!({
            "issuer": url, "jwks_uri": format!("{url}/keys"), "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"],
        });
        let keys = serde_json::json!({"keys": [{
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "one",
            "x": encoded(&point[1..33]), "y": encoded(&point[33..65]),
        }]});
        let json = |value: serde_json::Value| ("application/json".to_owned(), value.to_string().into_bytes());
        [("/.well-known/openid-configuration".to_owned(), json(document)), ("/keys".to_owned(), json(keys))].into()
    }
    /// A token of this issuer.
    pub fn token(&self, url: &str, audience: &str, subject: &str) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
        let head = encoded(br#"{"alg":"ES256","kid":"one","typ":"JWT"}"#);
        let claims = serde_json::json!({
            "iss": url, "aud": audience, "sub": subject, "groups": ["testers"], "iat": now - 5, "exp": now + 3600,
        });
        let text = format!("{head}.{}", encoded(claims.to_string().as_bytes()));
        let random = aws_lc_rs::rand::SystemRandom::new();
        let signature = self.pair.sign(&random, text.as_bytes()).expect("a signature");
        format!("{text}.{}", encoded(signature.as_ref()))
    }
}

fn encoded(bytes: &[u8]) -> String {
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

//! The metrics of components, on loopback with real certificates and a component that answers.

use super::{Leaf, root};
use crate::agent::Root;
use crate::guard::serve_metrics;
use crate::model::healing::METRICS_READERS;
use crate::model::metrics::{CA, CERT, ETCD_BALANCER, KEY, PORT, RELAYS, SETTINGS, Settings, Source};
use crate::transport::mtls::Identity;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::ServerName;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 90, 1));

/// The files of a host at this root.
fn files(directory: &Path, identity: &Identity, sources: Vec<Source>) {
    let pem =
        |label: &str, der: &[u8]| format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der));
    let settings = Settings { address: ADDRESS, sources };
    let files = [
        (SETTINGS, settings.to_text()),
        (CA, pem("CERTIFICATE", &identity.authorities[0])),
        (CERT, pem("CERTIFICATE", &identity.chain[0])),
        (KEY, pem("PRIVATE KEY", identity.key.secret_der())),
    ];
    for (path, content) in files {
        let path = directory.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// What a client gets at a path; nothing if its certificate is refused.
async fn get(client: &Identity, path: &str) -> String {
    let connector = TlsConnector::from(Arc::new(client.client().unwrap()));
    let until = Instant::now() + Duration::from_secs(10);
    let stream = loop {
        match TcpStream::connect(SocketAddr::new(ADDRESS, PORT)).await {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let mut got = Vec::new();
    if let Ok(mut stream) = connector.connect(ServerName::from(ADDRESS), stream).await {
        let request = format!("GET {path} HTTP/1.1\r\nHost: cp1\r\nAccept: application/openmetrics-text\r\n\r\n");
        // A refusal ends the connection at any of these points.
        if stream.write_all(request.as_bytes()).await.is_ok() {
            let _ = stream.read_to_end(&mut got).await;
        }
    }
    String::from_utf8(got).unwrap()
}

#[tokio::test]
async fn a_reader_gets_what_a_component_answers_and_the_name_of_one_that_does_not() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let (directory, cluster) = (tempfile::tempdir().unwrap(), root("cluster"));
    let of = |group, address| {
        let leaf = Leaf { host: "cp1", group, address, by: &cluster, behind: vec![], trusts: &cluster, expired: false };
        leaf.identity()
    };
    files(directory.path(), &of(RELAYS, ADDRESS), vec![Source::EtcdBalancer, Source::Etcd]);
    let component = TcpListener::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), ETCD_BALANCER)).await.unwrap();
    let asked = tokio::spawn(async move {
        let (mut stream, _) = component.accept().await.unwrap();
        let mut asked = [0; 1024];
        let count = stream.read(&mut asked).await.unwrap();
        let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0\r\n\
                      Content-Length: 12\r\nConnection: close\r\n\r\nsomething 1\n";
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&asked[..count]).to_lowercase()
    });
    let serving = tokio::spawn(serve_metrics(Root::at(directory.path()), |_| ()));

    let reader = of(METRICS_READERS, IpAddr::from([127, 0, 90, 2]));
    let got = get(&reader, "/metrics/etcd-balancer").await;
    assert!(got.starts_with("HTTP/1.1 200") && got.contains("something 1\n"), "{got}");
    assert!(got.contains("content-type: application/openmetrics-text; version=1.0.0"), "{got}");
    let asked = asked.await.unwrap();
    assert!(asked.starts_with("get /metrics ") && asked.contains("accept: application/openmetrics-text"), "{asked}");

    let got = get(&reader, "/metrics/etcd").await;
    assert!(got.starts_with("HTTP/1.1 502") && got.contains("etcd of this host does not answer: "), "{got}");
    let got = get(&reader, "/metrics/containerd").await;
    assert!(got.starts_with("HTTP/1.1 404") && got.contains("/metrics/etcd-balancer\n"), "{got}");
    let relay = get(&of(RELAYS, IpAddr::from([127, 0, 90, 3])), "/metrics/etcd").await;
    assert_eq!(relay, "", "a host reads none of another");
    assert!(!serving.is_finished());
    serving.abort();
}

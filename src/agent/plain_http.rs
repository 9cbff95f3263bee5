//! Requests to HTTP servers of this host on loopback, which serve without TLS: health checks and metrics.
//!
//! In: an address and a page. Out: the page, or whether there is an answer.

use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The metrics address of etcd, for its own host only: it answers without a certificate.
pub(super) const ETCD_METRICS: &str = "127.0.0.1:2384";
/// Larger than any page of metrics, bytes: etcd's has about 200 KiB.
const LARGEST: u64 = 4 << 20;

/// The metrics of etcd on this host; `None`: it does not tell them in time.
pub(super) async fn etcd_metrics(within: Duration) -> Option<String> {
    let page = async {
        let mut text = Vec::new();
        get(ETCD_METRICS, "/metrics").await?.take(LARGEST).read_to_end(&mut text).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&text).into_owned())
    };
    timeout(within, page).await.ok()?.ok()
}

/// Requests a page; the answer can be read next.
async fn get(address: &str, page: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {page} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
    Ok(stream)
}

/// The status of the answer to a request: a frozen process accepts connections and does not answer.
///
/// # Errors
/// Why there is none, in words.
pub(super) async fn answers(address: &str, page: &str, within: Duration) -> Result<u16, String> {
    let asked = async {
        let mut said = [0; 12];
        get(address, page).await?.read_exact(&mut said).await?;
        std::io::Result::Ok(said)
    };
    match timeout(within, asked).await {
        Ok(Ok(said)) => status(&said).ok_or_else(|| format!("{address} answers something else than HTTP")),
        Ok(Err(error)) => Err(format!("{address} does not answer: {error}")),
        Err(_) => Err(format!("{address} does not answer within {} s", within.as_secs())),
    }
}

/// The status in the beginning of an answer, such as `HTTP/1.1 200`.
fn status(said: &[u8]) -> Option<u16> {
    let said = std::str::from_utf8(said).ok()?;
    said.starts_with("HTTP/").then(|| said.split(' ').nth(1)?.parse().ok())?
}

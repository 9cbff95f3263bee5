//! Requests to HTTP servers of this host on loopback, which serve without TLS: health checks and metrics.
//!
//! In: an address and a page. Out: the stream with the answer, or whether there is one.

use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The metrics address of etcd, for its own host only: it answers without a certificate.
pub(super) const ETCD_METRICS: &str = "127.0.0.1:2384";

/// Requests a page; the answer can be read next.
pub(super) async fn get(address: &str, page: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {page} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
    Ok(stream)
}

/// Whether the server answers a request, with any status: a frozen process accepts connections and does not answer.
///
/// # Errors
/// Why not, in words.
pub(super) async fn answers(address: &str, page: &str, within: Duration) -> Result<(), String> {
    let asked = async {
        let mut said = [0; 5];
        get(address, page).await?.read_exact(&mut said).await?;
        std::io::Result::Ok(said)
    };
    match timeout(within, asked).await {
        Ok(Ok(said)) if &said == b"HTTP/" => Ok(()),
        Ok(Ok(_)) => Err(format!("{address} answers something else than HTTP")),
        Ok(Err(error)) => Err(format!("{address} does not answer: {error}")),
        Err(_) => Err(format!("{address} does not answer within {} s", within.as_secs())),
    }
}

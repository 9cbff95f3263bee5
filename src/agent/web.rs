//! Requests to the API server: GET over TLS with a deadline and a limit on the answer.
//!
//! In: host, port, a TLS configuration; paths. Out: status and body, or a sentence why there is none.

use crate::model::desired::SERVES;
use rustls::ClientConfig;
use serde_json::Value;
use std::error::Error;
use std::time::Duration;
use tokio::time::timeout;

/// Largest body read, bytes.
const LARGEST: usize = 12 << 20;

/// A connection pool to one server.
#[derive(Debug, Clone)]
pub(super) struct Web {
    client: reqwest::Client,
    base: String,
}

impl Web {
    /// Sets up the pool; connects at the first request.
    pub(super) fn new(mut tls: ClientConfig, host: &str, port: u16, connect: Duration) -> Result<Self, String> {
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .connect_timeout(connect)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|e| cause(&e))?;
        let base =
            if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") };
        Ok(Self { client, base })
    }

    /// Status and body.
    pub(super) async fn get(&self, path: &str, within: Duration) -> Result<(u16, Vec<u8>), String> {
        let whole = async {
            let mut answer =
                self.client.get(format!("{}{path}", self.base)).send().await.map_err(|e| self.unreached(&e))?;
            let mut body = Vec::new();
            while let Some(piece) = answer.chunk().await.map_err(|e| self.unreached(&e))? {
                if body.len() + piece.len() > LARGEST {
                    return Err(format!("the answer to {path} is larger than {LARGEST} bytes"));
                }
                body.extend_from_slice(&piece);
            }
            Ok((answer.status().as_u16(), body))
        };
        timeout(within, whole)
            .await
            .map_err(|_| format!("no answer from {} within {} ms", self.base, within.as_millis()))?
    }

    fn unreached(&self, error: &reqwest::Error) -> String {
        format!("no answer from {}: {}", self.base, cause(error))
    }

    /// An object; `None` if it does not exist, or access is forbidden (before our own role has been applied).
    pub(super) async fn json(&self, path: &str, within: Duration) -> Result<Option<Value>, String> {
        match self.get(path, within).await? {
            (200, body) => serde_json::from_slice(&body).map(Some).map_err(|e| format!("{path} is not JSON: {e}")),
            (403 | 404, _) => Ok(None),
            (status, body) => Err(format!("{path} answered {status}: {}", first_line(&body))),
        }
    }

    /// `Ok` when `/readyz` answers 200.
    pub(super) async fn ready(&self, within: Duration) -> Result<(), String> {
        self.well("/readyz", within).await
    }

    /// `Ok` if it serves: see [`SERVES`].
    pub(super) async fn serves(&self, within: Duration) -> Result<(), String> {
        self.well(SERVES, within).await
    }

    async fn well(&self, path: &str, within: Duration) -> Result<(), String> {
        match self.get(path, within).await? {
            (200, _) => Ok(()),
            // The excluded checks are not among those that failed.
            (status, body) => Err(format!("/readyz answered {status}: {}", unready(&body))),
        }
    }
}

/// The failed checks, from the list that an unready server answers with.
fn unready(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let failed: Vec<&str> =
        text.lines().filter_map(|l| l.strip_prefix("[-]")?.split_whitespace().next()).take(5).collect();
    if failed.is_empty() { first_line(body) } else { format!("not ready: {}", failed.join(", ")) }
}

fn first_line(body: &[u8]) -> String {
    String::from_utf8_lossy(body).lines().next().unwrap_or_default().chars().take(200).collect()
}

/// The innermost cause: the outer errors repeat the URL and add nothing.
fn cause(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(next) = innermost.source() {
        innermost = next;
    }
    innermost.to_string().chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unready_server_is_reported_with_its_failed_checks() {
        let body = b"[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/x failed\nreadyz check failed";
        assert_eq!(unready(body), "not ready: etcd, poststarthook/x");
        assert_eq!(unready(b"no\nmore"), "no");
    }
}

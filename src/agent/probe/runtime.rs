//! Probes of the kubelet and of containerd.

use super::process;
use super::{ANSWER, Found, Seen};
use crate::agent::machine::root::Root;
use crate::agent::plain_http::answers;
use crate::model::fault::FaultKind;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The kubelet's health check (`healthzPort`).
pub(super) const HEALTHZ: &str = "127.0.0.1:10248";
pub(super) const KUBELET: &str = "kubelet.service";
const CONTAINERD: &str = "containerd.service";
const SOCKET: &str = "/run/containerd/containerd.sock";
/// The beginning of an HTTP/2 connection and an empty SETTINGS frame (RFC 9113, 3.4): every gRPC server answers with
/// its own SETTINGS at once, before any request.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
/// The type of a SETTINGS frame, and its place in the head of a frame.
const SETTINGS: (usize, u8) = (3, 4);

/// Whether the kubelet answers.
pub(super) async fn kubelet() -> Seen {
    Some(match answers(HEALTHZ, "/healthz", ANSWER).await {
        Ok(_) => Vec::new(),
        Err(why) => vec![unanswered(FaultKind::KubeletFrozen, KUBELET, &why)],
    })
}

/// Whether containerd answers.
pub(super) async fn containerd(root: &Root) -> Seen {
    let asked = async {
        let mut stream = UnixStream::connect(root.own(SOCKET)).await?;
        stream.write_all(HELLO).await?;
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        std::io::Result::Ok(head)
    };
    let why = match timeout(ANSWER, asked).await {
        Ok(Ok(head)) if head[SETTINGS.0] == SETTINGS.1 => return Some(Vec::new()),
        Ok(Ok(_)) => format!("{SOCKET} answers something else than gRPC"),
        Ok(Err(error)) => format!("{SOCKET} does not answer: {error}"),
        Err(_) => format!("{SOCKET} does not answer within {} s", ANSWER.as_secs()),
    };
    Some(vec![unanswered(FaultKind::RuntimeFrozen, CONTAINERD, &why)])
}

fn unanswered(kind: FaultKind, unit: &str, why: &str) -> Found {
    Found::new(kind, format!("{}, and {why}", process::of(unit).words(unit)))
}

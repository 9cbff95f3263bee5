//! The surroundings of the sshd of a test: an agent played by the shell, and a connection that can be cut.

use super::super::*;
use super::sshd::Sshd;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

/// An agent in a few lines of shell. It sends a heartbeat and answers every request with one line: the request. It
/// never answers `Seal`, it grants `Lock` with epoch 5, and records the release of the lock.
const FAKE: &str = r#"#!/bin/sh
frame() {
    printf "$(printf '\\%03o\\%03o\\%03o\\%03oJ' 0 0 $((${#1} / 256)) $((${#1} % 256)))"
    printf %s "$1"
}
[ "$1" != --version ] || exit 0
[ "$1" = host ] || exit 3
frame '{"Heartbeat":{"id":0,"on":""}}'
n=0
while :; do
    set -- $(dd bs=1 count=5 2>/dev/null | od -An -tu1)
    [ $# = 5 ] || exit 0
    asked=$(dd bs=1 count=$(($3 * 256 + $4)) 2>/dev/null)
    case $asked in
    *'"op":null'*) continue ;;
    *Unlock*) touch /var/lib/given-back ;;
    *Seal*) echo $$ > /var/lib/sealing; sleep 1000 ;;
    esac
    n=$((n + 1))
    case $asked in
    *Lock*) frame '{"Answer":{"id":'$n',"outcome":{"Ok":{"Locked":{"epoch":5}}}}}' ;;
    *) frame '{"Answer":{"id":'$n',"outcome":{"Ok":{"Lines":["'"$(printf %s "$asked" | tr -d '"')"'"]}}}}' ;;
    esac
done
"#;

impl Sshd {
    /// Access with an agent played by the shell.
    pub(super) fn access(&self) -> Access {
        let fake = self.path("fake");
        if !fake.exists() {
            fs::write(&fake, FAKE).unwrap();
        }
        let mut access = Access::with(&[(std::env::consts::ARCH.to_owned(), fake)]).unwrap();
        access.agent = None;
        access.ssh_dir = Some(self.path("dot-ssh"));
        access
    }

    /// Runs a command as root inside the namespaces of sshd, over SSH.
    pub(super) async fn run(&self, command: &str) -> String {
        use tokio::io::AsyncReadExt as _;
        let session = Session::open(&self.target("root"), &self.access(), Arc::default()).await.unwrap();
        let mut wire = session.exec(command).await.unwrap();
        let mut text = String::new();
        wire.reader.read_to_string(&mut text).await.unwrap();
        text
    }
}

/// A wire between client and sshd that can be cut.
pub(super) struct Cable {
    pub(super) address: SocketAddr,
    carrying: tokio::task::JoinHandle<()>,
}

impl Cable {
    pub(super) async fn to(port: u16) -> Self {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let carrying = tokio::spawn(async move {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
        Self { address, carrying }
    }

    pub(super) fn cut(&self) {
        self.carrying.abort();
    }
}

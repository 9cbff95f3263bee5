//! A temporary etcd, run as etcd's user: to apply the log of a copy, or to prove that a snapshot can be served.
//!
//! In: a data directory of that user that nothing else uses. Out: a process on unix sockets inside it, which no other
//! user but root can open; it ends with the value. Its data came from a member, a share or another host, so root does
//! not run it.

use crate::agent::machine::run::{PATH, as_user, run_as};
use crate::agent::machine::tree::Tree;
use crate::agent::op_error::{Explain, Outcome, failed, tail};
use crate::protocol::OpError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

const ETCD: &str = "/usr/local/bin/etcd";
pub(crate) const ETCDUTL: &str = "/usr/local/bin/etcdutl";
/// The socket that etcd makes for `unix://localhost:1`, in its working directory.
const CLIENTS: &str = "localhost:1";
const PEERS: &str = "localhost:2";
/// How long it may take to end.
const END: Duration = Duration::from_secs(60);
/// How long it may take to answer; a hash over gigabytes takes a while with a twentieth of a processor.
const ANSWER: Duration = Duration::from_secs(2400);

/// Restores a snapshot of root with etcd's own tool, which checks its digest, into an empty directory that belongs to
/// etcd from then on. That user gets access to the snapshot meanwhile: it is passed as an open file, because only
/// root can reach its path.
pub(crate) async fn restored(
    owner: (u32, u32),
    snapshot: &Path,
    into: &Tree,
    more: &[&str],
    within: Duration,
) -> Outcome<()> {
    let nofollow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = File::options().read(true).custom_flags(nofollow).open(snapshot).explain("open", snapshot)?;
    let lent = |group: u32, mode: u32| {
        fchown(&file, None, Some(group)).and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
    };
    lent(owner.1, 0o640).explain("lend", snapshot)?;
    let stdin = file.try_clone().explain("open", snapshot)?;
    let restored = restored_from(owner, stdin, into, more, within).await;
    lent(rustix::process::getegid().as_raw(), 0o600).explain("take back", snapshot)?;
    restored
}

/// The same from a file that etcd's user may read.
pub(crate) async fn restored_from(
    owner: (u32, u32),
    file: File,
    into: &Tree,
    more: &[&str],
    within: Duration,
) -> Outcome<()> {
    into.set(owner, 0o700)?;
    let argv = [&[ETCDUTL, "snapshot", "restore", "/proc/self/fd/0", "--data-dir=."], more].concat();
    let ran = run_as(owner, into, &argv, file, within).await?;
    if ran.ok() { Ok(()) } else { Err(ran.fault("etcdutl snapshot restore")) }
}

/// The process.
pub(crate) struct ScratchEtcd<'a> {
    child: Child,
    at: &'a Tree,
    log: File,
}

impl<'a> ScratchEtcd<'a> {
    /// Starts it as the owner of the directory; `name` is that of the member.
    pub(crate) fn start(at: &'a Tree, owner: (u32, u32), name: &str, more: &[&str]) -> Outcome<Self> {
        let log = at.fresh_file("etcd.log")?;
        let said = || log.try_clone().explain("open", at.shown());
        let child = as_user(Command::new(ETCD).env_clear(), owner, at)
            .arg(format!("--name={name}"))
            .args([
                "--data-dir=.",
                "--unsafe-no-fsync",
                "--listen-client-urls=unix://localhost:1",
                "--advertise-client-urls=unix://localhost:1",
                "--listen-peer-urls=unix://localhost:2",
                "--heartbeat-interval=20",
                "--election-timeout=200",
                "--quota-backend-bytes=68719476736",
                "--log-level=warn",
            ])
            .args(more)
            .env("PATH", PATH)
            .stdin(Stdio::null())
            .stdout(said()?)
            .stderr(said()?)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(format!("could not run {ETCD}: {error}")))?;
        Ok(Self { child, at, log })
    }

    /// A fault with the last lines of its output.
    pub(crate) fn fault(&self, what: impl Into<String>) -> OpError {
        let mut said = vec![0; 64 << 10];
        let length = self.log.metadata().map_or(0, |log| log.len());
        // An empty log is better than hiding the failure.
        let read = self.log.read_at(&mut said, length.saturating_sub(64 << 10)).unwrap_or(0);
        OpError { tail: tail(&String::from_utf8_lossy(&said[..read])), ..failed(what) }
    }

    /// An error once it has ended.
    pub(crate) fn runs(&mut self) -> Outcome<()> {
        match self.child.try_wait().explain("wait for", Path::new(ETCD))? {
            Some(status) => Err(self.fault(format!("etcd ended on {} ({status})", self.at.shown().display()))),
            None => Ok(()),
        }
    }

    /// Whether it answers a read that requires a quorum: its own. Alarms in the data do not prevent reading it.
    pub(crate) async fn answers(&self) -> bool {
        self.ask(CLIENTS, "/health?exclude=NOSPACE&exclude=CORRUPT", "")
            .await
            .is_ok_and(|said| said.contains("\"health\":\"true\""))
    }

    /// etcd's hash over all keys up to a revision, and the compact revision; as members request it from one another.
    pub(crate) async fn hash(&self, revision: i64) -> Outcome<(u32, i64)> {
        #[derive(serde::Deserialize)]
        struct Hash {
            hash: u32,
            #[serde(rename = "compact_revision")]
            compacted: i64,
        }
        let said = self.ask(PEERS, "/members/hashkv", &format!("{{\"revision\":{revision}}}")).await;
        let body = said.as_deref().ok().and_then(|said| said.split_once("\r\n\r\n")).map(|(_, body)| body.trim());
        match body.and_then(|body| serde_json::from_str::<Hash>(body).ok()) {
            Some(found) => Ok((found.hash, found.compacted)),
            None => {
                Err(self.fault(format!("etcd on {} did not return the hash of its keys", self.at.shown().display())))
            }
        }
    }

    /// One request on one of its sockets, and the whole answer.
    async fn ask(&self, socket: &str, path: &str, body: &str) -> io::Result<String> {
        let length = body.len();
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}");
        let ask = async {
            let (_open, path) = self.at.socket(socket)?;
            let mut to = UnixStream::connect(path).await?;
            to.write_all(request.as_bytes()).await?;
            let mut said = Vec::new();
            to.take(64 << 10).read_to_end(&mut said).await?;
            Ok(String::from_utf8_lossy(&said).into_owned())
        };
        timeout(ANSWER, ask).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    /// Terminates it, so that it closes its database in order, and waits.
    pub(crate) async fn stop(mut self) -> Outcome<()> {
        if let Some(pid) = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) {
            // It may have ended already, which shows below.
            let _ = kill_process(pid, Signal::TERM);
        }
        match timeout(END, self.child.wait()).await {
            // With its sockets closed, etcd ends with an error of its own; its database counts, not its exit code.
            Ok(status) => status.map(drop).explain("wait for", Path::new(ETCD)),
            Err(_) => Err(failed(format!("etcd did not end on {} within {END:?}", self.at.shown().display()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::{CORRUPT, NOSPACE};
    use tokio::net::UnixListener;

    /// Answers one request for the health as etcd does: with what is wrong, but for the alarms that the request
    /// excludes.
    async fn health(listener: &UnixListener, alarms: &[&str], has_leader: bool) {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(client.read_u8().await.unwrap());
        }
        let request = String::from_utf8(request).unwrap();
        let path = request.split(' ').nth(1).unwrap();
        let query = path.strip_prefix("/health?").unwrap();
        let excluded: Vec<&str> = query.split('&').filter_map(|word| word.strip_prefix("exclude=")).collect();
        let well = has_leader && alarms.iter().all(|alarm| excluded.contains(alarm));
        let status = if well { "200 OK" } else { "503 Service Unavailable" };
        let answer = format!("HTTP/1.0 {status}\r\n\r\n{{\"health\":\"{well}\",\"reason\":\"\"}}");
        client.write_all(answer.as_bytes()).await.unwrap();
    }

    #[tokio::test]
    async fn a_restored_etcd_with_an_alarm_counts_as_answering_and_one_without_a_leader_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(CLIENTS)).unwrap();
        let at = Tree::there(folder.path()).unwrap();
        let child = Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
        let etcd = ScratchEtcd { child, at: &at, log: at.fresh_file("etcd.log").unwrap() };
        let answers =
            async |alarms: &[&str], has_leader| tokio::join!(etcd.answers(), health(&listener, alarms, has_leader)).0;
        for alarms in [&[][..], &[NOSPACE], &[CORRUPT], &[NOSPACE, CORRUPT]] {
            assert!(answers(alarms, true).await, "{alarms:?}");
        }
        assert!(!answers(&[], false).await);
    }
}

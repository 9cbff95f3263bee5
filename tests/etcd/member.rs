//! A member of etcd on this machine, and etcd's tools.

use super::served::{Server, free};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// How long a member may take to answer, or to be promoted.
const ANSWERS: Duration = Duration::from_secs(60);

/// The programs of a version of etcd.
#[derive(Clone, Copy)]
pub struct Programs<'a>(pub &'a Path);

impl Programs<'_> {
    /// Restores a database with etcd's own tool as that of a member in a cluster.
    pub fn restore(self, (from, to): (&Path, &Path), name: &str, members: &[(&str, &str)], bump: i64) {
        let (_, peer) = members.iter().find(|(found, _)| *found == name).unwrap();
        let mut command = Command::new(self.0.join("etcdutl"));
        command.args(["snapshot", "restore"]).arg(from).arg(format!("--data-dir={}", to.display()));
        command.args(["--skip-hash-check", "--mark-compacted", "--initial-cluster-token=restored"]);
        command.args([format!("--name={name}"), format!("--initial-cluster={}", cluster(members))]);
        command.args([format!("--initial-advertise-peer-urls={peer}"), format!("--bump-revision={bump}")]);
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }
}

fn cluster(members: &[(&str, &str)]) -> String {
    members.iter().map(|(name, peer)| format!("{name}={peer}")).collect::<Vec<_>>().join(",")
}

/// The peer URL of a member that does not exist yet.
pub fn peer() -> String {
    format!("http://{}", free(LOCAL))
}

/// A running member.
pub struct Member<'a> {
    programs: Programs<'a>,
    at: SocketAddr,
    pub data: PathBuf,
    _server: Server,
}

impl<'a> Member<'a> {
    /// Starts one in this data directory; `state`: of the cluster, if the directory is empty.
    pub fn start(programs: Programs<'a>, data: &Path, name: &str, members: &[(&str, &str)], state: &str) -> Self {
        let (_, peer) = members.iter().find(|(found, _)| *found == name).unwrap();
        let at = free(LOCAL);
        let mut command = Command::new(programs.0.join("etcd"));
        command.arg(format!("--data-dir={}", data.display())).args(["--log-level=warn", "--unsafe-no-fsync"]);
        command.args([format!("--name={name}"), format!("--initial-cluster={}", cluster(members))]);
        command.args([format!("--listen-peer-urls={peer}"), format!("--initial-advertise-peer-urls={peer}")]);
        command.args([format!("--listen-client-urls=http://{at}"), format!("--advertise-client-urls=http://{at}")]);
        command.arg(format!("--initial-cluster-state={state}"));
        let server = Server::start(command, at, &data.with_extension("log"));
        Self { programs, at, data: data.to_owned(), _server: server }
    }
    /// Its database.
    pub fn database(&self) -> PathBuf {
        self.data.join("member/snap/db")
    }
    /// Runs etcdctl with this input; its output, or its error.
    pub fn ctl(&self, words: &[&str], input: &str) -> Result<String, String> {
        let mut command = Command::new(self.programs.0.join("etcdctl"));
        command.arg(format!("--endpoints=http://{}", self.at)).arg("--command-timeout=30s").args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let ran = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if ran.status.success() { Ok(text(&ran.stdout)) } else { Err(text(&ran.stderr)) }
    }
    /// The same for a command that must succeed and print JSON.
    pub fn json(&self, words: &[&str]) -> Value {
        let said = self.ctl(&[words, &["-w", "json"]].concat(), "").unwrap();
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{words:?}: {error}: {said}"))
    }
    /// Repeats a command until it succeeds.
    pub fn until(&self, words: &[&str]) {
        let begun = Instant::now();
        while let Err(error) = self.ctl(words, "") {
            assert!(begun.elapsed() < ANSWERS, "{words:?}: {error}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    /// All keys with their values and revisions, and the revision of the cluster.
    pub fn keys(&self) -> (Value, i64) {
        let mut all = self.json(&["get", "", "--prefix"]);
        (all["kvs"].take(), all["header"]["revision"].as_i64().unwrap())
    }
    /// Names and peer URLs of all members.
    pub fn members(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let list = self.json(&["member", "list"]);
        let members = list["members"].as_array().unwrap().iter();
        members.map(|member| (text(&member["name"]), text(&member["peerURLs"][0]))).collect()
    }
    /// The id of the only member without a vote.
    pub fn learner(&self) -> String {
        let list = self.json(&["member", "list"]);
        let learner = list["members"].as_array().unwrap().iter().find(|member| member["isLearner"] == true);
        format!("{:x}", learner.unwrap()["ID"].as_u64().unwrap())
    }
    /// Kills it, and copies its database.
    pub fn killed(self, to: &Path) -> PathBuf {
        let database = self.database();
        drop(self);
        fs::copy(database, to).unwrap();
        to.to_owned()
    }
}

//! A hundred light hosts: each is a real sshd in namespaces of its own with its own network cable, all on one bridge.
//!
//! In: how many hosts, and the faults of some. Out: addresses, keys, lines for an inventory. Everything is removed with
//! the value, and after a kill with the process: every host ends when the pipe to it closes, and its cable with it. A
//! killed run leaves only a bridge without cables, which the next run removes.

use super::group::Group;
use super::slow::Slow;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The bridge; there is one fleet at a time.
const BRIDGE: &str = "hsb0";
/// The first three numbers of the fleet's network.
const NET: &str = "10.89.100";
/// The fourth number of the first host.
const FIRST: usize = 11;
/// How long the slow host's answers are delayed.
pub const LATENCY: Duration = Duration::from_secs(2);
/// What a stalled host repeats for ever: it lives and is idle.
const BEAT: &[u8] = br#"{"Heartbeat":{"id":0,"on":""}}"#;

/// A fault of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ill {
    /// Packets to it are dropped.
    Dead,
    /// Its packets take [`LATENCY`].
    Slow,
    /// Accepts every login, and prints endless nonsense instead of running the command.
    Babbles,
    /// Plays `hactl host`: reports for ever that it lives, and answers nothing.
    Stalls,
}

impl Ill {
    pub const ALL: [Self; 4] = [Self::Dead, Self::Slow, Self::Babbles, Self::Stalls];

    fn config(ill: Option<Self>) -> &'static str {
        match ill {
            Some(Self::Babbles) => "sshd_babbles",
            Some(Self::Stalls) => "sshd_stalls",
            _ => "sshd",
        }
    }
}

struct Light {
    process: Child,
    out: Option<BufReader<ChildStdout>>,
}

/// Running light hosts.
pub struct Fleet {
    hosts: Vec<Light>,
    ills: Vec<Ill>,
    dir: tempfile::TempDir,
    slow: Option<Slow>,
    group: Option<Group>,
}

impl Fleet {
    /// Starts this many hosts; the last ones have these faults.
    pub fn start(count: usize, ills: &[Ill]) -> Self {
        let dir = tempfile::tempdir().expect("a folder can be made");
        let mut fleet = Self { hosts: Vec::new(), ills: ills.to_vec(), dir, slow: None, group: Group::make() };
        fleet.files();
        make_bridge();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bench/light-host.sh");
        for index in 0..count {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--pid", "--net", "--uts", "--fork", "--kill-child", "--mount-proc"]);
            let config = Ill::config(ill(index, count, ills));
            command.arg(&script).arg(fleet.dir.path()).args([
                &name(index),
                &address(index),
                &(index + 1).to_string(),
                config,
            ]);
            command.arg(fleet.group.as_ref().map_or(Path::new(""), Group::folder));
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut process = command.spawn().expect("unshare can be started");
            let out = process.stdout.take().map(BufReader::new);
            fleet.hosts.push(Light { process, out });
        }
        // Only once a host has its own network namespace: otherwise its cable would end in the machine's.
        let mut links = String::new();
        for (index, host) in fleet.hosts.iter_mut().enumerate() {
            let mut line = String::new();
            host.out.as_mut().expect("piped").read_line(&mut line).expect("a pipe can be read");
            assert_eq!(line, "ready\n", "light host {} ended", name(index));
            let pid = host.process.id();
            writeln!(links, "link add hsv{index} type veth peer name eth0 netns {pid}").expect("text");
            writeln!(links, "link set hsv{index} master {BRIDGE} up").expect("text");
        }
        ip_batch(&links);
        for host in &mut fleet.hosts {
            host.process.stdin.as_mut().expect("piped").write_all(b"\n").expect("a light host listens");
        }
        for index in 0..count {
            let at = format!("{}:22", address(index));
            crate::support::wait_for(&at, Duration::from_secs(60), || std::net::TcpStream::connect(&at).is_ok());
        }
        fleet.apply_faults();
        fleet
    }

    /// Writes keys and the configurations of sshd.
    fn files(&self) {
        for name in ["host_key", "id"] {
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-N", "", "-t", "ed25519", "-f"]).arg(self.path(name));
            assert!(command.status().expect("ssh-keygen runs").success());
        }
        let write = |name: &str, text: &[u8]| std::fs::write(self.path(name), text).expect("writable");
        let key = std::fs::read_to_string(self.path("host_key.pub")).expect("just made");
        write("known_hosts", format!("{NET}.*,[{NET}.*]:* {key}").as_bytes());
        let config = "HostKey /mnt/host_key\nAuthorizedKeysFile /mnt/id.pub\nPidFile none\nUsePAM no\nStrictModes no\n\
             PasswordAuthentication no\nPermitRootLogin yes\nMaxStartups 100\nUseDNS no\nSubsystem sftp internal-sftp\n";
        write("sshd", config.as_bytes());
        write("sshd_babbles", format!("{config}ForceCommand yes 'no hactl here'\n").as_bytes());
        let stalls = "ForceCommand while cat /mnt/beat; do sleep 1; done\n";
        write("sshd_stalls", format!("{config}{stalls}").as_bytes());
        let length = u32::try_from(BEAT.len()).expect("short").to_be_bytes();
        write("beat", &[&length[..], b"J", BEAT].concat());
    }

    /// Applies the faults that are not sshd's.
    fn apply_faults(&mut self) {
        if let Some(index) = self.index_of(Ill::Dead) {
            // The machine keeps the address in its neighbour table, so packets to it just never arrive.
            let at = address(index);
            ip(&["neigh", "replace", &at, "lladdr", "02:89:00:00:00:01", "dev", BRIDGE, "nud", "permanent"]);
            ip(&["link", "set", &format!("hsv{index}"), "nomaster"]);
        }
        if let Some(index) = self.index_of(Ill::Slow) {
            self.slow = Some(Slow::before(&format!("{NET}.1"), &format!("{}:22", address(index)), LATENCY));
        }
    }

    fn index_of(&self, ill: Ill) -> Option<usize> {
        let from_end = self.ills.iter().rev().position(|i| *i == ill)?;
        Some(self.hosts.len() - 1 - from_end)
    }

    /// The name of the host with this fault.
    pub fn host_with(&self, ill: Ill) -> Option<String> {
        self.index_of(ill).map(name)
    }

    /// The names of the hosts without a fault.
    pub fn well(&self) -> Vec<String> {
        (0..self.hosts.len() - self.ills.len()).map(name).collect()
    }

    /// A file of the fleet.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// All hosts as in an inventory, with the role spare: the only role that needs no systemd.
    pub fn inventory_lines(&self) -> String {
        let (id, known) = (self.path("id"), self.path("known_hosts"));
        let mut text = String::new();
        for index in 0..self.hosts.len() {
            let (name, address) = (name(index), address(index));
            let via = match &self.slow {
                Some(slow) if self.index_of(Ill::Slow) == Some(index) => {
                    format!("host: {NET}.1, port: {}, ", slow.port)
                }
                _ => String::new(),
            };
            writeln!(
                text,
                "  - name: {name}\n    address: {address}\n    ssh: {{{via}user: root, identity: {}, known_hosts: {}}}\n    \
                 roles: [spare]",
                id.display(),
                known.display()
            )
            .expect("text");
        }
        text
    }

    /// OpenSSH to each host, as hactl logs in there.
    pub fn ssh(&self) -> Vec<Command> {
        let known = format!("UserKnownHostsFile={}", self.path("known_hosts").display());
        let to = |index| {
            let mut ssh = Command::new("ssh");
            ssh.args(["-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", known.as_str(), "-i"]);
            ssh.arg(self.path("id")).arg(format!("root@{}", address(index)));
            ssh
        };
        (0..self.hosts.len()).map(to).collect()
    }

    /// The processor time that the hosts have used so far, if this machine can tell.
    pub fn used(&self) -> Option<Duration> {
        self.group.as_ref()?.used()
    }

    /// All hosts as in ansible's inventory.
    pub fn addresses(&self) -> String {
        (0..self.hosts.len()).fold(String::new(), |text, index| format!("{text}{}\n", address(index)))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for host in &mut self.hosts {
            drop(host.process.stdin.take());
        }
        for host in &mut self.hosts {
            // It ends automatically; otherwise the kill ends its namespaces.
            let deadline = std::time::Instant::now() + Duration::from_secs(5);
            while matches!(host.process.try_wait(), Ok(None)) && std::time::Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = host.process.kill();
            let _ = host.process.wait();
        }
        remove_bridge();
    }
}

fn name(index: usize) -> String {
    format!("light{:03}", index + 1)
}

fn address(index: usize) -> String {
    format!("{NET}.{}", index + FIRST)
}

fn ill(index: usize, count: usize, ills: &[Ill]) -> Option<Ill> {
    ills.get((index + ills.len()).checked_sub(count)?).copied()
}

fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().expect("ip runs").success(), "ip {}", arguments.join(" "));
}

fn ip_batch(text: &str) {
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip runs");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("ip reads");
    assert!(child.wait().expect("ip ends").success(), "ip could not make the cables");
}

/// Makes the bridge. The bridge of a killed run is removed first; that of a running one is left alone.
fn make_bridge() {
    let folder = PathBuf::from("/sys/class/net").join(BRIDGE);
    if folder.exists() {
        let alias = std::fs::read_to_string(folder.join("ifalias")).unwrap_or_default();
        let owner = alias.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        let lives = !owner.is_empty() && Path::new("/proc").join(&owner).exists();
        assert!(!lives, "process {owner} has a fleet of light hosts; wait until it has ended");
        remove_bridge();
    }
    ip(&["link", "add", BRIDGE, "type", "bridge"]);
    ip(&["link", "set", BRIDGE, "alias", &format!("light hosts of process {}", std::process::id())]);
    ip(&["addr", "add", &format!("{NET}.1/24"), "dev", BRIDGE]);
    ip(&["link", "set", BRIDGE, "up"]);
}

fn remove_bridge() {
    // It may not be there.
    let _ = Command::new("ip").args(["link", "del", BRIDGE]).stderr(Stdio::null()).status();
}

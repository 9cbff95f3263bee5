//! The peer for connecting: OpenSSH runs `true` on all hosts at once.
//!
//! In: a fleet, and the lab beside it. Out: how a run went. It is configured as fast as possible: all hosts at once, no
//! files of the user, the same key, and the key exchange and the cipher that hactl negotiates.

use super::fleet::Fleet;
use super::timed::Timed;
use hactl::lab::Scoped;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// The key exchanges of hactl, its first choice first: it takes the first that a host has, and so does OpenSSH.
const EXCHANGES: [&str; 2] = ["mlkem768x25519-sha256", "curve25519-sha256"];

/// A script that connects to all hosts.
pub struct OpenSsh {
    script: PathBuf,
    /// How many hosts it connects to.
    pub hosts: usize,
}

impl OpenSsh {
    /// Writes the script.
    pub fn new(fleet: &Fleet, lab: &Scoped) -> Self {
        let mut commands = fleet.ssh();
        commands.extend(crate::HOSTS.map(|host| lab.ssh(host).expect("the host exists")));
        let exchanges = format!("KexAlgorithms={}", exchanges().join(","));
        let mut text = "pids=\n".to_owned();
        for command in &commands {
            let own = command.get_args().map(|word| word.to_str().expect("the paths are text"));
            let words = ["ssh", "-o", "Ciphers=aes128-gcm@openssh.com", "-o", &exchanges].into_iter().chain(own);
            for word in words.chain(["true"]) {
                assert!(!word.contains('\''), "{word} cannot be quoted");
                write!(text, "'{word}' ").expect("text");
            }
            text.push_str("& pids=\"$pids $!\"\n");
        }
        text.push_str("for pid in $pids; do wait \"$pid\" || exit 1; done\n");
        let script = fleet.path("openssh.sh");
        std::fs::write(&script, text).expect("writable");
        Self { script, hosts: commands.len() }
    }

    /// Runs `true` on all hosts; every one must do it.
    pub fn run(&self) -> Timed {
        let mut command = Command::new("sh");
        command.arg(&self.script);
        Timed::run(&command).exits(0)
    }
}

/// Those of the key exchanges that this machine's OpenSSH has: it refuses the name of another one.
fn exchanges() -> Vec<&'static str> {
    let output = Command::new("ssh").args(["-Q", "kex"]).output().expect("ssh runs");
    let all = String::from_utf8_lossy(&output.stdout).into_owned();
    let has = |name: &&str| all.lines().any(|line| line == *name);
    EXCHANGES.into_iter().filter(has).collect()
}

//! The peer: ansible-core copies the same file to the same hosts and checks again.
//!
//! In: a fleet and a file. Out: how a run went. It is configured as fast as possible: all hosts at once, pipelining,
//! one persistent SSH connection per host, the same cipher, no gathering of facts, python already on every host.

use super::fleet::Fleet;
use super::timed::Timed;
use std::path::{Path, PathBuf};
use std::process::Command;

/// ansible-core, ready to copy.
pub struct Peer {
    programs: PathBuf,
}

impl Peer {
    /// Installs it where it is missing.
    pub fn new() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bench/ansible.sh");
        let output = Command::new(script).output().expect("the script runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { programs: PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()) }
    }

    /// Copies the file to all hosts, or finds it there.
    pub fn copy(&self, fleet: &Fleet, file: &Path, forks: usize) -> Timed {
        let write = |name: &str, text: String| {
            std::fs::write(fleet.path(name), text).expect("writable");
            fleet.path(name)
        };
        let config = write(
            "ansible.cfg",
            format!(
                "[defaults]\nforks = {forks}\nhost_key_checking = True\ninterpreter_python = /usr/bin/python3\n\
                 private_key_file = {id}\nremote_user = root\n[ssh_connection]\npipelining = True\n\
                 ssh_args = -o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile={known} \
                 -o Ciphers=aes128-gcm@openssh.com\ncontrol_path_dir = {control}\n",
                id = fleet.path("id").display(),
                known = fleet.path("known_hosts").display(),
                control = fleet.path("cp").display(),
            ),
        );
        let inventory = write("hosts", fleet.addresses());
        let task = format!("{{src: {}, dest: /var/lib/blob, mode: '0755'}}", file.display());
        let book = format!("- hosts: all\n  gather_facts: false\n  tasks:\n  - ansible.builtin.copy: {task}\n");
        let book = write("copy.yaml", book);
        let mut command = Command::new(self.programs.join("ansible-playbook"));
        command.arg("-i").arg(inventory).arg(book).env("ANSIBLE_CONFIG", config).env("ANSIBLE_NOCOLOR", "1");
        command.env("ANSIBLE_HOME", fleet.path("ansible")).env("LC_ALL", "C.UTF-8");
        Timed::run(&command)
    }
}

/// How many hosts reported this for the only task: `changed` or `ok`.
pub fn count(run: &Timed, word: &str) -> usize {
    let start = format!("{word}: [");
    run.lines.iter().filter(|(_, line)| line.starts_with(&start)).count()
}

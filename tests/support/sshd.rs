//! A real sshd for tests, in namespaces of its own: it ends with the test, and files below /var/lib and /run/hactl stay
//! inside.
//!
//! Shared with `tests/ways_in.rs`: a file that includes it has `SshTarget` in its scope.

use super::SshTarget;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;

/// The ordinary user's password.
pub(super) const PASSWORD: &str = "correct horse battery staple";
/// The same as /etc/shadow has it.
const HASH: &str =
    "$6$hactltest$stEdL139XXmva/SV4Bb/4byUGlfmaYFJzw2gmWCSTFWckKKTqwg9Yp9xftaAa8/eb8OnJX4xlVIahYSxmHdUY.";

/// One sshd, with one root-capable user and one ordinary one.
pub(super) struct Sshd {
    process: Option<Child>,
    pub(super) dir: tempfile::TempDir,
    pub(super) port: u16,
}

/// What differs between tests.
#[derive(Clone, Copy, Default)]
pub(super) struct Setup {
    /// Options of the file system that /var/lib is on.
    pub(super) mount: &'static str,
    /// Lines of sshd_config.
    pub(super) config: &'static str,
    /// Lines of sudoers.
    pub(super) sudoers: &'static str,
    /// Login shell of the user `ops`.
    pub(super) shell: &'static str,
    /// Whether the host presents certificates of the CA `ca`, for these names.
    pub(super) names: &'static str,
}

impl Sshd {
    pub(super) fn start(setup: Setup) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The ordinary user must reach its keys.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for (name, kind) in
            [("host_ed25519", "ed25519"), ("host_ecdsa", "ecdsa"), ("id", "ed25519"), ("stranger", "ed25519")]
        {
            keygen(&dir.path().join(name), kind);
        }
        fs::copy(dir.path().join("id.pub"), dir.path().join("authorized")).unwrap();
        let shell = if setup.shell.is_empty() { "/bin/sh" } else { setup.shell };
        for (file, line) in [
            ("passwd", format!("ops:x:4242:4242::/:{shell}")),
            ("shadow", format!("ops:{HASH}:19000:0:99999:7:::")),
            ("sudoers", setup.sudoers.to_owned()),
        ] {
            let mut text = fs::read_to_string(format!("/etc/{file}")).unwrap_or_default();
            // The user of that name on this machine is not ours.
            text = text.split_inclusive('\n').filter(|l| !l.starts_with("ops:")).collect();
            if file == "passwd" {
                // The shell settings of this machine's root are not ours either.
                text = text.split_inclusive('\n').filter(|l| !l.starts_with("root:")).collect();
                text.insert_str(0, "root:x:0:0::/:/bin/sh\n");
            }
            if file == "sudoers" {
                "root ALL=(ALL:ALL) ALL\n".clone_into(&mut text);
            }
            fs::write(dir.path().join(file), format!("{text}{line}\n")).unwrap();
            fs::set_permissions(
                dir.path().join(file),
                fs::Permissions::from_mode(if file == "passwd" { 0o644 } else { 0o440 }),
            )
            .unwrap();
        }
        let at = dir.path().display();
        let mut certificates = String::new();
        if !setup.names.is_empty() {
            keygen(&dir.path().join("ca"), "ed25519");
            sign(dir.path(), &["-h", "-n", setup.names], "host_ed25519");
            certificates = format!("HostCertificate {at}/host_ed25519-cert.pub\n");
        }
        let config = format!(
            "HostKey {at}/host_ed25519\nHostKey {at}/host_ecdsa\nAuthorizedKeysFile {at}/authorized\n\
             PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin yes\nMaxStartups 100\nLogLevel QUIET\n{certificates}{}\n",
            setup.config.replace('@', &at.to_string())
        );
        fs::write(dir.path().join("sshd_config"), config).unwrap();
        let mut sshd = Self { process: None, dir, port: 0 };
        // Another process may take a port that is free now; then sshd ends.
        for _ in 0..5 {
            sshd.port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
            if sshd.serves(setup.mount) {
                return sshd;
            }
        }
        panic!("sshd does not start");
    }

    /// Starts it on its port, and waits until it listens there; false if it ended instead.
    fn serves(&mut self, mount: &str) -> bool {
        let (at, port) = (self.dir.path().display(), self.port);
        let mount = if mount.is_empty() { "size=128m" } else { mount };
        let script = format!(
            "mount -t tmpfs -o mode=755,{mount} tmpfs /var/lib && mkdir -p /run/sshd /run/sudo /run/hactl && \
             mount -t tmpfs tmpfs /run/sudo && mount -t tmpfs -o mode=700 tmpfs /run/hactl && \
             mount --bind {at}/passwd /etc/passwd && mount --bind {at}/shadow /etc/shadow && \
             {{ [ ! -e /etc/sudoers ] || mount --bind {at}/sudoers /etc/sudoers; }} && \
             exec /usr/sbin/sshd -D -e -f {at}/sshd_config -o ListenAddress=127.0.0.1:{port}"
        );
        let mut command =
            if rustix::process::geteuid().is_root() { Command::new("unshare") } else { Command::new("sudo") };
        if !rustix::process::geteuid().is_root() {
            command.args(["-n", "unshare"]);
        }
        let process = command
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let process = self.process.insert(process);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if process.try_wait().unwrap().is_some() {
                return false;
            }
            // Its own greeting, and from a process that still runs afterwards: no other process has the port.
            if greets(port) && process.try_wait().unwrap().is_none() {
                return true;
            }
            assert!(Instant::now() < deadline, "sshd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// How to log in; the host key is on record unless the test changes the file.
    pub(super) fn target(&self, user: &str) -> SshTarget {
        let known = self.path("known_hosts");
        if !known.exists() {
            let key = fs::read_to_string(self.path("host_ed25519.pub")).unwrap();
            self.know(&key);
        }
        SshTarget {
            port: self.port,
            identity: Some(self.path("id")),
            known_hosts: vec![known],
            ..SshTarget::new("127.0.0.1", user)
        }
    }

    /// Adds a record for this host.
    pub(super) fn know(&self, key: &str) {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(self.path("known_hosts")).unwrap();
        writeln!(file, "[127.0.0.1]:{} {}", self.port, key.trim()).unwrap();
    }

    /// A file with the password of the user that nobody else may read.
    pub(super) fn password_file(&self, password: &str) -> PathBuf {
        let path = self.path("password");
        fs::write(&path, format!("{password}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // Its namespace ends with it. It may belong to root, then it ends with its parent.
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Whether an SSH server answers there.
fn greets(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut word = [0; 4];
    stream.read_exact(&mut word).is_ok() && &word == b"SSH-"
}

/// A port on which nothing listens while this is held: bound, and no more.
pub(super) fn closed_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

pub(super) fn keygen(path: &Path, kind: &str) {
    let status = Command::new("ssh-keygen").args(["-q", "-N", "", "-t", kind, "-f"]).arg(path).status().unwrap();
    assert!(status.success());
}

/// Signs `NAME.pub` in the folder with the CA `ca` there: `NAME-cert.pub`.
pub(super) fn sign(dir: &Path, how: &[&str], name: &str) {
    let mut command = Command::new("ssh-keygen");
    command.current_dir(dir).args(["-q", "-s", "ca", "-I", name]).args(how).arg(format!("{name}.pub"));
    assert!(command.status().unwrap().success());
}

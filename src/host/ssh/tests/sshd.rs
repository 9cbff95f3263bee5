//! A real sshd for tests, in name spaces of its own: it dies with the test, and what is put under /var/lib stays inside.

use super::super::*;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A host's side in a few lines of shell. It says hello and answers every request with one line: what it was asked. `Seal`
/// is never answered, `Lock` gives epoch 5.
const FAKE: &str = r#"#!/bin/sh
frame() {
    printf "$(printf '\\%03o\\%03o\\%03o\\%03oJ' 0 0 $((${#1} / 256)) $((${#1} % 256)))"
    printf %s "$1"
}
[ "$1" = host ] || exit 3
frame '{"Heartbeat":{"id":0,"on":""}}'
n=0
while :; do
    set -- $(dd bs=1 count=5 2>/dev/null | od -An -tu1)
    [ $# = 5 ] || exit 0
    asked=$(dd bs=1 count=$(($3 * 256 + $4)) 2>/dev/null)
    case $asked in
    *'"op":null'*) continue ;;
    *Seal*) echo $$ > /var/lib/sealing; sleep 1000 ;;
    esac
    n=$((n + 1))
    case $asked in
    *Lock*) frame '{"Answer":{"id":'$n',"outcome":{"Ok":{"Locked":{"epoch":5}}}}}' ;;
    *) frame '{"Answer":{"id":'$n',"outcome":{"Ok":{"Lines":["'"$(printf %s "$asked" | tr -d '"')"'"]}}}}' ;;
    esac
done
"#;

/// One sshd, with one root-capable user and one ordinary one.
pub(super) struct Sshd {
    process: Child,
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
            ("shadow", "ops:*:19000:0:99999:7:::".to_owned()),
            ("sudoers", setup.sudoers.to_owned()),
        ] {
            let mut text = fs::read_to_string(format!("/etc/{file}")).unwrap_or_default();
            if file == "sudoers" {
                text = "root ALL=(ALL:ALL) ALL\n".to_owned();
            }
            fs::write(dir.path().join(file), format!("{text}{line}\n")).unwrap();
            fs::set_permissions(
                dir.path().join(file),
                fs::Permissions::from_mode(if file == "passwd" { 0o644 } else { 0o440 }),
            )
            .unwrap();
        }
        let at = dir.path().display();
        // Free a moment ago; sshd failing to bind shows at once below.
        let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {at}/host_ed25519\nHostKey {at}/host_ecdsa\nAuthorizedKeysFile {at}/authorized\n\
             PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin yes\nMaxStartups 100\nLogLevel QUIET\n{}\n",
            setup.config
        );
        fs::write(dir.path().join("sshd_config"), config).unwrap();
        let mount = if setup.mount.is_empty() { "size=64m" } else { setup.mount };
        let script = format!(
            "mount -t tmpfs -o mode=755,{mount} tmpfs /var/lib && mkdir -p /run/sshd && \
             mount --bind {at}/passwd /etc/passwd && mount --bind {at}/shadow /etc/shadow && \
             {{ [ ! -e /etc/sudoers ] || mount --bind {at}/sudoers /etc/sudoers; }} && \
             exec /usr/sbin/sshd -D -e -f {at}/sshd_config"
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
        let mut sshd = Self { process, dir, port };
        let deadline = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(sshd.process.try_wait().unwrap().is_none(), "sshd ended");
            assert!(Instant::now() < deadline, "sshd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        sshd
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
            host: "127.0.0.1".into(),
            port: self.port,
            user: user.into(),
            identity: Some(self.path("id")),
            known_hosts: Some(known),
            fingerprint: None,
            jump: None,
        }
    }

    /// Adds a record for this host.
    pub(super) fn know(&self, key: &str) {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(self.path("known_hosts")).unwrap();
        writeln!(file, "[127.0.0.1]:{} {}", self.port, key.trim()).unwrap();
    }

    /// Access with a host's side played by the shell.
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

    /// Runs something as root inside the sshd's name spaces, over SSH.
    pub(super) async fn run(&self, command: &str) -> String {
        use tokio::io::AsyncReadExt as _;
        let session = Session::open(&self.target("root"), &self.access(), Arc::default()).await.unwrap();
        let mut wire = session.exec(command).await.unwrap();
        let mut text = String::new();
        wire.reader.read_to_string(&mut text).await.unwrap();
        text
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // Its name space ends with it. It may be root's, then it goes when its parent does.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(super) fn keygen(path: &Path, kind: &str) {
    let status = Command::new("ssh-keygen").args(["-q", "-N", "", "-t", kind, "-f"]).arg(path).status().unwrap();
    assert!(status.success());
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

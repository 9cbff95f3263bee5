//! One host: its disks, its power, and the check that it answers.

use super::cgroup;
use super::error::{LabError, Result};
use super::files;
use super::network::{Network, mtu};
use super::ssh;
use crate::process::{Run, tail};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Folders of a host outside its overlay: containerd's overlays and etcd's syncs require a real file system.
const DATA: &[&str] = &["containerd", "kubelet", "etcd", "hactl"];
/// The user `ops` of the base.
const OPS: u32 = 1000;
/// The machine's kernel modules, if it has any in files.
const MODULES: &str = "lxc.mount.entry = /lib/modules usr/lib/modules none ro,bind,create=dir 0 0";
const CONFIG: &str = include_str!("../../templates/lab/lxc.conf");

/// A host of a lab, with all that is needed to create it.
pub(crate) struct Host<'a> {
    /// The lab's name.
    pub(crate) lab: &'a str,
    /// The lab's folder.
    pub(crate) dir: &'a Path,
    /// The file system below it.
    pub(crate) base: &'a Path,
    /// The lab's network.
    pub(crate) network: Network,
    /// The host's name.
    pub(crate) name: &'a str,
    /// Its index in the lab, which determines its address.
    pub(crate) index: usize,
}

impl Host<'_> {
    /// The host's folder.
    fn home(&self) -> PathBuf {
        self.dir.join("hosts").join(self.name)
    }

    /// Its address.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.network.address(self.index)
    }

    /// The host's key, which stays the same when its disks are lost.
    pub(crate) fn key(&self) -> PathBuf {
        self.home().join("ssh_host_ed25519_key")
    }

    fn cgroup(&self) -> String {
        format!("{}/{}", self.network.cgroup(), self.name)
    }

    /// Creates the host's disks and its identity, unless they exist.
    pub(crate) fn prepare(&self) -> Result<()> {
        let home = self.home();
        files::folder(&home)?;
        ssh::key(&self.key(), &format!("root@{}", self.name))?;
        for name in DATA {
            files::folder(&home.join("data").join(name))?;
        }
        let delta = home.join("delta");
        let id = delta.join("etc/machine-id");
        if id.exists() {
            return Ok(());
        }
        let (name, address) = (self.name, self.address());
        let etc = delta.join("etc");
        files::write(&etc.join("hostname"), 0o644, &format!("{name}\n"))?;
        let hosts = format!("127.0.0.1 localhost\n{address} {name}\n::1 localhost ip6-localhost\n");
        files::write(&etc.join("hosts"), 0o644, &hosts)?;
        files::write(&etc.join("resolv.conf"), 0o644, &resolvers()?)?;
        let key = files::read(&self.key())?;
        files::write(&etc.join("ssh/ssh_host_ed25519_key"), 0o600, &key)?;
        let public = files::read(&self.key().with_extension("pub"))?;
        files::write(&etc.join("ssh/ssh_host_ed25519_key.pub"), 0o644, &public)?;
        let admin = files::read(&self.dir.join("id_ed25519.pub"))?;
        for (home, owner, mode) in [("root", 0, 0o700), ("home/ops", OPS, 0o755)] {
            let home = delta.join(home);
            let keys = home.join(".ssh/authorized_keys");
            files::write(&keys, 0o600, &admin)?;
            for (path, mode) in [(home.clone(), mode), (home.join(".ssh"), 0o700), (keys, 0o600)] {
                files::own(&path, owner)?;
                files::chmod(&path, mode)?;
            }
        }
        let uuid = files::read(Path::new("/proc/sys/kernel/random/uuid"))?;
        // Last: its existence proves that all of the above is complete.
        files::write(&id, 0o444, &uuid.replace('-', ""))
    }

    /// Whether LXC reports it as running.
    pub(crate) fn runs(&self) -> Result<bool> {
        if !self.home().join("config").exists() {
            return Ok(false);
        }
        let state = self.lxc("lxc-info", &["-s", "-H"]).output()?;
        Ok(!matches!(state.stdout.trim(), "" | "STOPPED"))
    }

    /// Waits for a start by another run that was killed: LXC does not support two at once.
    pub(crate) fn settle(&self) -> Result<()> {
        const TIMEOUT: &str = "30";
        let lock = self.home().join("starting");
        if !lock.exists() {
            return Ok(());
        }
        let lock = lock.display().to_string();
        // A start that takes longer hangs; LXC's own error is more useful then.
        Run::new("flock", &["--wait", TIMEOUT, &lock, "true"]).output()?;
        Ok(())
    }

    /// Powers it on; it answers some time later.
    pub(crate) fn start(&self) -> Result<()> {
        self.prepare()?;
        self.sweep()?;
        files::write(&self.home().join("config"), 0o644, &self.config())?;
        let log = self.home().join("lxc.log");
        files::remove(&log)?;
        let log = log.display().to_string();
        let (lock, hosts) = (self.home().join("starting").display().to_string(), self.containers());
        // The start holds the lock, not this process, which may be killed meanwhile; see `settle`.
        let words = ["--close", &lock, "lxc-start", "-P", &hosts, "-n", self.name, "-d", "-l", "WARN", "-o", &log];
        Run::new("flock", &words).ok()?;
        Ok(())
    }

    /// Cuts its power: all its processes end at once.
    pub(crate) fn kill(&self) -> Result<()> {
        self.settle()?;
        let stopped = if self.runs()? { self.lxc("lxc-stop", &["-k"]).ok().map(drop) } else { Ok(()) };
        self.sweep()?;
        if self.runs()? { Ok(stopped?) } else { Ok(()) }
    }

    pub(crate) fn set_cpu_share(&self, percent: u32) -> Result<()> {
        cgroup::set_cpu_share(&self.cgroup(), percent)
    }

    /// Ends and removes leftovers of LXC: a host whose monitor died keeps running in its cgroup, and an aborted start
    /// leaves its cable.
    fn sweep(&self) -> Result<()> {
        cgroup::clear(&self.cgroup())?;
        cgroup::clear(&format!("{}.monitor", self.cgroup()))?;
        self.network.unplug(self.index)
    }

    /// Empties its disks; the host must be off.
    pub(crate) fn empty(&self) -> Result<()> {
        for part in ["delta", "work", "data"] {
            let path = self.home().join(part);
            super::mounts::demand_none(&path)?;
            files::remove(&path)?;
        }
        Ok(())
    }

    /// Waits until a login works: sshd listens before the host admits users.
    pub(crate) fn wait(&self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            if greets(self.address()) {
                let login = Run::from(ssh::command(self.dir, self.name, self.address())).words(&["true"]);
                if login.timeout(Duration::from_secs(10)).output().is_ok_and(|output| output.status.success()) {
                    return Ok(());
                }
            }
            if !self.runs()? {
                return Err(self.no_boot("its init ended"));
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        Err(self.no_boot(&format!("no login at {} worked within {} s", self.address(), timeout.as_secs())))
    }

    fn no_boot(&self, why: &str) -> LabError {
        let log = self.home().join("lxc.log");
        let tail = tail(&std::fs::read_to_string(&log).unwrap_or_default());
        LabError::NoBoot { lab: self.lab.to_owned(), host: self.name.to_owned(), why: why.to_owned(), log, tail }
    }

    fn lxc(&self, program: &str, arguments: &[&str]) -> Run {
        Run::new(program, &["-P", &self.containers(), "-n", self.name]).words(arguments)
    }

    /// LXC's folder of containers, with a subfolder for each container's configuration.
    fn containers(&self) -> String {
        self.dir.join("hosts").display().to_string()
    }

    fn config(&self) -> String {
        let home = self.home();
        let text = |path: &Path| path.display().to_string();
        let modules = if Path::new("/lib/modules").is_dir() { MODULES } else { "" };
        files::fill(
            CONFIG,
            &[
                ("host", self.name),
                ("modules", modules),
                ("base", &text(self.base)),
                ("delta", &text(&home.join("delta"))),
                ("data", &text(&home.join("data"))),
                ("devices", if cgroup::unified() { "lxc.cgroup2.devices.allow" } else { "lxc.cgroup.devices.allow" }),
                ("cgroup", &self.cgroup()),
                ("bridge", &self.network.bridge()),
                ("veth", &self.network.veth(self.index)),
                ("mtu", &mtu().to_string()),
                ("mac", &self.network.mac(self.index)),
                ("address", &self.address().to_string()),
                ("gateway", &self.network.gateway().to_string()),
            ],
        )
    }
}

/// Whether sshd sends its greeting.
fn greets(address: Ipv4Addr) -> bool {
    const TIMEOUT: Duration = Duration::from_millis(500);
    let Ok(mut stream) = TcpStream::connect_timeout(&SocketAddr::from((address, 22)), TIMEOUT) else {
        return false;
    };
    let mut greeting = [0; 4];
    stream.set_read_timeout(Some(TIMEOUT)).is_ok() && stream.read_exact(&mut greeting).is_ok() && greeting == *b"SSH-"
}

/// The machine's name servers, as far as hosts can reach them.
fn resolvers() -> Result<String> {
    let mut found = String::new();
    // With a local stub on loopback, the second file contains the real servers of systemd-resolved.
    for path in ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"] {
        found = reachable(&files::read_if(Path::new(path))?.unwrap_or_default());
        if found.contains("nameserver") {
            break;
        }
    }
    Ok(found)
}

fn reachable(conf: &str) -> String {
    let local = |line: &&str| {
        let server = line.strip_prefix("nameserver").map(str::trim);
        !server.is_some_and(|address| address.starts_with("127.") || address == "::1")
    };
    conf.lines().filter(local).fold(String::new(), |text, line| text + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_no_placeholder_left() {
        let host = Host {
            lab: "lab",
            dir: Path::new("/labs/lab"),
            base: Path::new("/cache/base"),
            network: Network { octet: 7 },
            name: "cp2",
            index: 1,
        };
        let config = host.config();
        assert!(!config.contains("{{"), "{config}");
        for line in [
            "lxc.rootfs.path = overlay:/cache/base:/labs/lab/hosts/cp2/delta",
            "lxc.net.0.veth.pair = hlv7-12",
            "lxc.net.0.ipv4.address = 10.88.7.12/24",
            "lxc.cgroup.dir.container = hactl-lab-7/cp2",
        ] {
            assert!(config.lines().any(|found| found == line), "no line {line:?} in {config}");
        }
        for name in DATA {
            assert!(config.contains(&format!("/data/{name} var/lib/{name} ")), "{name} is not mounted");
        }
    }

    #[test]
    fn a_stub_on_loopback_is_no_name_server_for_a_host() {
        let conf = "search example\nnameserver 127.0.0.53\nnameserver 10.0.0.2\n";
        assert_eq!(reachable(conf), "search example\nnameserver 10.0.0.2\n");
    }
}

//! Surveys a host before it becomes part of a cluster: clock, firewalls, mounts, the disk below etcd, what others use.
//!
//! In: etcd's data directory, the host's address, places that hactl is going to use. Out: a [`Survey`]. Changes nothing;
//! measuring the disk writes a file that is already unlinked when it is measured.

use crate::agent::host::Host;
use crate::agent::machine::root::Root;
use crate::agent::machine::run::{blocking, run};
use crate::agent::machine::{addresses, firewall};
use crate::agent::observe::foreign;
use crate::agent::op_error::Outcome;
use crate::agent::reboot::is_reboot_due;
use crate::model::survey::Survey;
use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_secs(5);
/// The size of a record in etcd's log, see etcd's documentation on disks.
const WRITE_BYTES: usize = 2300;
/// Enough to distinguish a slow disk from a temporary delay.
const WRITES: usize = 20;
/// Fewer writes reveal a disk that is far too slow.
const AT_MOST: Duration = Duration::from_millis(600);
/// The directories of the programs of the cluster.
const RUN_FROM: [&str; 4] = ["/var/lib/hactl", "/var/lib/containerd", "/var/lib/kubelet", "/opt/cni/bin"];
/// Files that other Kubernetes installers leave behind.
const OTHERS: [(&str, &str); 9] = [
    ("k3s", "/etc/rancher/k3s"),
    ("k3s", "/var/lib/rancher/k3s"),
    ("rke2", "/etc/rancher/rke2"),
    ("k0s", "/var/lib/k0s"),
    ("microk8s", "/var/snap/microk8s"),
    ("kubeadm", "/etc/kubernetes/admin.conf"),
    ("kubeadm", "/var/lib/kubelet/kubeadm-flags.env"),
    ("kubespray", "/etc/kubernetes/kubeadm-config.yaml"),
    ("Talos", "/system/state/config.yaml"),
];

/// Surveys the host.
pub(crate) async fn survey(
    host: &Host,
    etcd_dir: Option<String>,
    address: IpAddr,
    places: Vec<String>,
) -> Outcome<Survey> {
    host.waits("the host to be surveyed");
    let root = &host.root;
    let disk = async {
        match etcd_dir {
            Some(dir) => {
                let dir = root.path(&dir)?;
                blocking(move || Ok(fsync_us(&existing(&dir)))).await
            }
            None => Ok(None),
        }
    };
    let others = Box::pin(foreign::look(root, places));
    let (clock_synchronised, manager, mtu, fsync_us, foreign) =
        tokio::join!(clock(), firewall::manager(), addresses::mtu(address), disk, others);
    let read = |path: &'static str| fs::read_to_string(root.own(path)).unwrap_or_default();
    Ok(Survey {
        clock_synchronised,
        selinux: selinux(root),
        firewalls: manager.iter().map(ToString::to_string).collect(),
        others: OTHERS
            .iter()
            .filter(|(_, path)| root.own(path).exists())
            .map(|(name, path)| format!("{name} ({path})"))
            .collect(),
        page_bytes: rustix::param::page_size() as u64,
        nameservers: nameservers(&read("/etc/resolv.conf")),
        mtu,
        fsync_us: fsync_us?,
        reboot_required: is_reboot_due(root),
        noexec: noexec(&read("/proc/self/mounts")),
        foreign: foreign?,
    })
}

/// Whether the kernel considers its clock synchronized. A host without timedatectl cannot tell.
async fn clock() -> Option<bool> {
    let ran = run(&["timedatectl", "show", "--property=NTPSynchronized", "--value"], SHORT).await.ok()?;
    match ran.out.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

fn selinux(root: &Root) -> Option<String> {
    match fs::read_to_string(root.own("/sys/fs/selinux/enforce")).ok()?.trim() {
        "1" => Some("enforcing".to_owned()),
        _ => Some("permissive".to_owned()),
    }
}

fn nameservers(text: &str) -> Vec<IpAddr> {
    let server = |line: &str| {
        let word = line.trim().strip_prefix("nameserver")?.split_whitespace().next()?;
        word.split('%').next()?.parse().ok()
    };
    text.lines().filter_map(server).collect()
}

/// The directories whose mount forbids programs; the longest mount point that is a prefix counts, and of equal ones
/// the last.
fn noexec(mounts: &str) -> Vec<String> {
    let mounts: Vec<(&Path, bool)> = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let at = Path::new(words.nth(1)?);
            Some((at, words.nth(1)?.split(',').any(|option| option == "noexec")))
        })
        .collect();
    let forbidden = |path: &&&str| {
        let of = mounts.iter().filter(|(at, _)| Path::new(path).starts_with(at));
        of.max_by_key(|(at, _)| at.components().count()).is_some_and(|(_, noexec)| *noexec)
    };
    RUN_FROM.iter().filter(forbidden).map(|path| (*path).to_owned()).collect()
}

/// The nearest existing directory.
fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|p| p.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

/// The time that nine of ten small durable writes take at most; `None` if nothing can be written.
fn fsync_us(dir: &Path) -> Option<u64> {
    let path = dir.join(format!(".hactl-fsync-{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&path).ok()?;
    // From here on it has no name, so a killed run leaves nothing.
    fs::remove_file(&path).ok()?;
    let record = [0x5a; WRITE_BYTES];
    let begun = Instant::now();
    let mut times = Vec::with_capacity(WRITES);
    while times.len() < WRITES && (times.len() < 2 || begun.elapsed() < AT_MOST) {
        let one = Instant::now();
        file.write_all(&record).and_then(|()| file.sync_data()).ok()?;
        times.push(one.elapsed());
    }
    times.sort_unstable();
    let at = (times.len() * 9).div_ceil(10).saturating_sub(1);
    times.get(at).map(|t| u64::try_from(t.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_that_counts_is_the_nearest_and_the_last() {
        let mounts = "/dev/a / ext4 rw,relatime 0 0\n/dev/b /var ext4 rw,nosuid,noexec 0 0\n/dev/c /var/lib/kubelet ext4 rw 0 0\n";
        assert_eq!(noexec(mounts), ["/var/lib/hactl", "/var/lib/containerd"]);
        assert_eq!(noexec("/dev/a / ext4 rw 0 0\n"), Vec::<String>::new());
        let twice = "/dev/a / ext4 rw 0 0\n/dev/b /opt ext4 noexec 0 0\n/dev/c /opt ext4 rw 0 0\n";
        assert_eq!(noexec(twice), Vec::<String>::new(), "the second mount covers the first");
    }

    #[test]
    fn a_small_durable_write_is_timed_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(fsync_us(dir.path()).unwrap() > 0);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(fsync_us(&dir.path().join("missing")), None);
        assert_eq!(existing(&dir.path().join("a/b")), dir.path());
    }

    #[test]
    fn name_servers_are_read() {
        let text =
            "# nameserver 1.1.1.1\nsearch x\nnameserver 127.0.0.1\n nameserver fe80::1%eth0\nnameserver 9.9.9.9 \n";
        let found = ["127.0.0.1", "fe80::1", "9.9.9.9"].map(|server| server.parse::<IpAddr>().unwrap());
        assert_eq!(nameservers(text), found);
    }
}

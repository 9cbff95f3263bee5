//! Removes the cluster from a host: units, containers, mounts, interfaces, files; data is moved aside or deleted.
//!
//! In: what belongs to hactl here. Out: a host that runs nothing of the cluster. Every part is idempotent, so that
//! another wipe finishes an interrupted one. What others put there before hactl is not deleted: a directory of
//! configuration or programs that was in use stays, and data in such a directory is moved aside.

use crate::agent::host::Host;
use crate::agent::lock;
use crate::agent::machine::files::absent;
use crate::agent::machine::run::{blocking, must, run};
use crate::agent::machine::tree::Tree;
use crate::agent::machine::{addresses, files, firewall, foreign, units, when};
use crate::agent::op_error::{Explain, Outcome, bad, failed};
use crate::model::control_plane::{API_MANIFEST, API_SERVER};
use crate::model::node::PODS_INTERFACES;
use crate::model::units::kubelet_unit;
use crate::protocol::{Leftovers, WipeAsk};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SHORT: Duration = Duration::from_secs(20);
/// How long killed containers may take to end.
const GONE: Duration = Duration::from_secs(20);
/// How long an API server may take to stop: three seconds of announcement, and its active requests (the grace period
/// of its pod is 30 seconds).
const HAND_OVER: Duration = Duration::from_secs(40);
/// Everything mounted below these belongs to pods.
const MOUNTS: [&str; 3] = ["/var/lib/kubelet/", "/run/containerd/", "/run/netns/cni-"];
/// The settings of flannel for its plugin, the Pod CIDR of the Node among them: flannel writes this when it starts.
const FLANNEL_SAYS: &str = "/run/flannel/subnet.env";
const FLANNEL: &str = "flanneld";
/// The directory of the CNI plugins for containerd.
const PLUGINS: &[u8] = b"/opt/cni/bin/";
/// The nftables tables of kube-proxy and flannel.
const KUBE_PROXYS: [(&str, &str); 2] = [("ip", "kube-proxy"), ("ip6", "kube-proxy")];
const FLANNELS: [(&str, &str); 2] = [("ip", "flannel-ipv4"), ("ip6", "flannel-ipv6")];
/// Files that flannel put on the host, or that exist for it.
const FLANNELS_FILES: [&str; 2] = ["/etc/cni/net.d/10-flannel.conflist", "/etc/tmpfiles.d/hactl.conf"];
/// Paths that no request may remove.
const NEVER: [&str; 12] = ["bin", "boot", "dev", "etc", "home", "lib", "proc", "root", "run", "sys", "usr", "var"];

/// Stops and removes everything.
pub(crate) async fn wipe(host: &Host, ask: WipeAsk) -> Outcome<()> {
    let paths = |list: &[String]| list.iter().map(|p| ours(host, p)).collect::<Outcome<Vec<_>>>();
    let (remove, data) = (paths(&ask.remove)?, paths(&ask.data)?);
    if ask.hand_over && host.root.is_host() {
        host.waits("the API server to announce that it stops");
        leave_to_kubelet(vec![host.root.own(API_MANIFEST)], &[API_SERVER.to_owned()]).await?;
    }
    units::stop(host, &ask.units).await?;
    if host.root.is_host() {
        host.waits("the containers to end");
        end_all("pods", GONE, pod_processes).await?;
        host.waits("mounts and interfaces of pods to disappear");
        unmount().await?;
        network(ask.vip).await?;
        if !ask.stays {
            host.waits("the openings of the firewall to be removed");
            firewall::open(host, &BTreeSet::new()).await?;
        }
    }
    host.waits("files to be removed");
    let keep = [host.root.own(lock::LOCK), host.root.own(lock::BUSY)];
    let stamp = when::file_timestamp(when::now_ms());
    let (delete, stays) = (ask.delete, ask.stays);
    // Files to be removed from archived data are removed first.
    let (first, remove): (Vec<_>, Vec<_>) =
        remove.into_iter().partition(|path| data.iter().any(|d| path.starts_with(d)));
    let removing = host.root.blocking(move |root| {
        let before = foreign::recorded(root)?;
        first.iter().chain(&remove).try_for_each(|path| foreign::keep_shared(root, path))?;
        // Also new content of a file that a loss of power left beside it: that may be a key.
        let clear_file = |path: &Path| clear(&files::fresh_beside(path), &keep).and_then(|()| clear(path, &keep));
        first.iter().try_for_each(|path| clear_file(path))?;
        for path in &data {
            if delete && !before.contains(path) { clear(path, &keep)? } else { aside(path, &stamp)? }
        }
        if stays {
            foreign::forget_moved(root)?;
        }
        remove.iter().try_for_each(|path| {
            if before.contains(path) {
                return foreign::remove_links(path);
            }
            clear_file(path)?;
            units::folder_with_the_last(root, path);
            Ok(())
        })
    });
    removing.await?;
    if host.root.is_host() {
        must(&["systemctl", "daemon-reload"], SHORT).await?;
    }
    if ask.stays {
        return Ok(());
    }
    // Last: a host without a cluster id belongs to no cluster, and no run would return to finish this. The record goes
    // after the id: without it, a repeated wipe would delete what others put there. One that a loss of power leaves is
    // replaced before the next first id.
    let leaving = host.root.blocking(|root| {
        files::remove(&root.own(files::STAMP))?;
        foreign::forget(root)
    });
    leaving.await
}

/// A killed API server stays in the endpoints of the Service until its lease expires, a quarter of a minute; a
/// stopped one removes itself. Its kubelet stops it once it has no manifest; without a running kubelet there is
/// nothing to wait for.
async fn leave_to_kubelet(manifests: Vec<PathBuf>, programs: &[String]) -> Outcome<()> {
    let stops_them = units::state(&kubelet_unit()).await? == "active";
    blocking(move || manifests.iter().try_for_each(|manifest| files::remove(manifest))).await?;
    let until = Instant::now() + HAND_OVER;
    while stops_them && Instant::now() < until {
        let programs = programs.to_vec();
        if blocking(move || Ok(pods_of(&programs))).await?.is_empty() {
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Stops static pods that are no longer wanted: first those beside the API server, because they are its clients, then
/// the API server, which takes time to complete its requests. The kubelet does not restart them, because they have no
/// manifest.
pub(crate) async fn end_pods(host: &Host, manifests: &[String]) -> Outcome<()> {
    let paths = manifests.iter().map(|path| host.root.path(path)).collect::<Outcome<Vec<_>>>()?;
    let (beside, last) = paths.split_at(paths.len().saturating_sub(1));
    for turn in [beside, last] {
        let turn = turn.to_vec();
        if !host.root.is_host() {
            blocking(move || turn.iter().try_for_each(|manifest| files::remove(manifest))).await?;
            continue;
        }
        let name = |path: &PathBuf| Some(path.file_stem()?.to_string_lossy().into_owned());
        let programs: Vec<String> = turn.iter().filter_map(name).collect();
        host.waits(format!("the kubelet to stop {}", programs.join(" and ")));
        leave_to_kubelet(turn, &programs).await?;
        end_all("the control plane", GONE, move || pods_of(&programs)).await?;
    }
    Ok(())
}

/// Removes what deleted pods left. Interfaces stay while running pods are attached to them, except those to be
/// removed.
pub(crate) async fn sweep(host: &Host, what: Leftovers) -> Outcome<()> {
    let (names, files): (&[_], &[&'static str]) = match what {
        Leftovers::KubeProxy => (&KUBE_PROXYS, &[]),
        Leftovers::Flannel => (&FLANNELS, &FLANNELS_FILES),
        Leftovers::Wires => return unwire(host).await,
    };
    if host.root.is_host() {
        tables(names).await?;
    }
    host.root.blocking(move |root| files.iter().try_for_each(|path| files::remove(&root.own(path)))).await
}

/// Removes flannel's interfaces and the pods attached to them. The kubelet restarts flannel, and until that has read
/// the Pod CIDR of the Node no pod gets an address. The interfaces go last: as long as one exists with its address,
/// another run starts this again.
async fn unwire(host: &Host) -> Outcome<()> {
    host.root.blocking(|root| files::remove(&root.own(FLANNEL_SAYS))).await?;
    if !host.root.is_host() {
        return Ok(());
    }
    host.waits("pods and flannel to end, which start again");
    // A CNI call that began earlier may be about to recreate the bridge.
    let until = Instant::now() + GONE;
    while Instant::now() < until && blocking(|| Ok(plugging())).await? {
        sleep(Duration::from_millis(50)).await;
    }
    let pods = end_all("pods", GONE, wired).await;
    // In any case: without flannel no pod is started here any more.
    end_all("flannel", GONE, || pods_of(&[FLANNEL.to_owned()])).await?;
    pods?;
    interfaces().await?;
    // Pods whose network was just set up run by now.
    end_all("pods", GONE, wired).await
}

/// Whether a CNI call is just setting up or tearing down the network of a pod.
fn plugging() -> bool {
    let Ok(all) = fs::read_dir("/proc") else { return false };
    // By the name of the call: the entries there are links.
    all.flatten().any(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|line| line.starts_with(PLUGINS)))
}

/// The processes of pods that have a network namespace of their own.
fn wired() -> Vec<Pid> {
    let network = |of: &str| fs::read_link(format!("/proc/{of}/ns/net")).ok();
    let hosts = network("self");
    let own = |pid: &Pid| network(&pid.as_raw_nonzero().to_string()).is_some_and(|its| Some(its) != hosts);
    pod_processes().into_iter().filter(own).collect()
}

/// A path that a wipe may remove: never a directory of the system itself.
fn ours(host: &Host, path: &str) -> Outcome<PathBuf> {
    let at = host.root.path(path)?;
    let mut parts = path[1..].split('/');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    if NEVER.contains(&first) && second.is_none()
        || matches!(path, "/var/lib" | "/var/log" | "/usr/local" | "/etc/systemd")
    {
        return Err(bad(format!("{path} does not belong to hactl and is not removed")));
    }
    Ok(at)
}

/// Kills the matching processes until there is none.
pub(crate) async fn end_all(
    whose: &str,
    timeout: Duration,
    find: impl Fn() -> Vec<Pid> + Clone + Send + 'static,
) -> Outcome<()> {
    let until = Instant::now() + timeout;
    loop {
        let find = find.clone();
        let left = blocking(move || Ok(find())).await?;
        let Some(first) = left.first() else { return Ok(()) };
        if Instant::now() > until {
            let (number, pid) = (left.len(), first.as_raw_nonzero());
            return Err(failed(format!("{number} processes of {whose} do not end, for example pid {pid}")));
        }
        for pid in left {
            // It may have ended already, which is the goal.
            let _ = kill_process(pid, Signal::KILL);
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// The processes of pods that run one of these programs.
pub(crate) fn pods_of(programs: &[String]) -> Vec<Pid> {
    let runs = |pid: &Pid| {
        let command = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        let program = command.split(|b| *b == 0).next().unwrap_or_default();
        let name = program.rsplit(|b| *b == b'/').next().unwrap_or_default();
        programs.iter().any(|wanted| wanted.as_bytes() == name)
    };
    pod_processes().into_iter().filter(runs).collect()
}

/// Every process of a pod, and their shims.
fn pod_processes() -> Vec<Pid> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    all.flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
            let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
            let cgroup = String::from_utf8_lossy(&read("cgroup")).into_owned();
            let command = read("cmdline");
            let words: Vec<&[u8]> = command.split(|b| *b == 0).collect();
            let shim = words[0].rsplit(|b| *b == b'/').next().is_some_and(|name| name.starts_with(b"containerd-shim"));
            let of_pods = cgroup.lines().any(|l| l.contains("/kubepods"));
            // Other users of containerd have namespaces of their own.
            let ours =
                of_pods || shim && words.windows(2).any(|w| w == [b"-namespace".as_slice(), b"k8s.io".as_slice()]);
            // A zombie has neither command nor cgroup that could be killed; it disappears with its parent.
            (ours && !command.is_empty()).then_some(pid)
        })
        .collect()
}

async fn unmount() -> Outcome<()> {
    for _ in 0..3 {
        let text =
            blocking(|| fs::read_to_string("/proc/self/mountinfo").explain("read", Path::new("/proc/self/mountinfo")))
                .await?;
        let mut places: Vec<String> = text
            .lines()
            .filter_map(|l| l.split(' ').nth(4))
            .map(unescape)
            .filter(|place| MOUNTS.iter().any(|m| place.starts_with(m)))
            .collect();
        if places.is_empty() {
            break;
        }
        // The innermost first.
        places.sort_by_key(|p| std::cmp::Reverse(p.len()));
        let mut argv = vec!["umount", "--lazy", "--"];
        argv.extend(places.iter().map(String::as_str));
        // Unmounting one may remove others: the next round checks again.
        run(&argv, SHORT).await?;
    }
    let left = blocking(|| {
        let Ok(entries) = fs::read_dir("/run/netns") else { return Ok(Vec::new()) };
        Ok(entries
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with("cni-"))
            .map(|e| e.path())
            .collect::<Vec<_>>())
    })
    .await?;
    blocking(move || left.iter().try_for_each(|path| absent(fs::remove_file(path)).explain("remove", path))).await
}

/// mountinfo escapes blanks and backslashes in octal.
fn unescape(place: &str) -> String {
    ["\\040 ", "\\011\t", "\\012\n", "\\134\\"]
        .iter()
        .fold(place.to_owned(), |text, pair| text.replace(&pair[..4], &pair[4..]))
}

/// Removes the VIP, the interfaces of the network plugin and the nftables tables.
async fn network(vip: Option<IpAddr>) -> Outcome<()> {
    if let Some(vip) = vip {
        for found in addresses::addresses().await?.iter().filter(|a| a.address == vip) {
            let prefixed = format!("{vip}/{}", found.prefix);
            must(&["ip", "addr", "del", &prefixed, "dev", &found.interface], SHORT).await?;
        }
    }
    interfaces().await?;
    tables(&KUBE_PROXYS).await?;
    tables(&FLANNELS).await
}

/// Removes the interfaces that flannel and its plugin made.
async fn interfaces() -> Outcome<()> {
    for interface in PODS_INTERFACES.iter().filter(|i| Path::new("/sys/class/net").join(i).exists()) {
        must(&["ip", "link", "delete", interface], SHORT).await?;
    }
    Ok(())
}

/// Removes nftables tables. On a host without nft they stay until the next boot; they have no effect.
async fn tables(names: &[(&str, &str)]) -> Outcome<()> {
    if !["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft"].iter().any(|p| Path::new(p).exists()) {
        return Ok(());
    }
    let there = must(&["nft", "list", "tables"], SHORT).await?;
    for (family, table) in names {
        if there.lines().any(|l| l.trim() == format!("table {family} {table}")) {
            must(&["nft", "delete", "table", family, table], SHORT).await?;
        }
    }
    Ok(())
}

/// Removes a file or a directory with everything below, except paths that must stay; a mount point is emptied.
fn clear(path: &Path, keep: &[PathBuf]) -> Outcome<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let Some(folder) = Tree::open(folder)? else { return Ok(()) };
    folder.clear_but(name, keep).map(drop)
}

fn mount_point(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |p: &Path| fs::metadata(p).map(|m| m.dev()).ok();
    path.parent().is_some_and(|parent| device(parent) != device(path)) || bind_mounted(path)
}

/// A bind mount from the same file system shows only in the list of mounts.
fn bind_mounted(path: &Path) -> bool {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(|l| l.split(' ').nth(4)).any(|place| Path::new(&unescape(place)) == path)
}

/// Moves a data directory aside: its entries into a directory inside if it is a mount point, else the directory
/// itself.
fn aside(path: &Path, stamp: &str) -> Outcome<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let Some(parent) = Tree::open(parent)? else { return Ok(()) };
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    if !mount_point(path) {
        return parent.move_to(name, &parent, format!("{}.wiped-{stamp}", name.to_string_lossy()));
    }
    let data = Tree::there(path)?;
    let to = data.fresh(&format!("wiped-{stamp}"))?;
    for name in data.names()? {
        let shown = name.to_string_lossy();
        if !shown.starts_with("wiped-") && shown != "lost+found" {
            data.move_to(&name, &to, &name)?;
        }
    }
    Ok(())
}

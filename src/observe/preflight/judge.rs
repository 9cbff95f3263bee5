//! The verdicts. In: observations. Out: findings. Pure.

use crate::model::certificate::BACKDATED;
use crate::model::desired::{Desired, EndpointKind, Host, KubeProxy, Role};
use crate::model::facts::{Facts, HostFacts, PortFact};
use crate::model::firewall::Firewall;
use crate::model::foreign::{COPY, DOCKER, DOCKER_SOCKET, FOLDERS};
use crate::model::metrics;
use crate::model::names::HostName;
use crate::model::ports::{KUBELETS_API, purpose};
use crate::model::survey::{Finding, Survey, Tried, Way};
use crate::model::target::{FileSet, Target};
use crate::model::units::OLDEST_SYSTEMD;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Above this skew a certificate that was just issued is not yet valid on another host, milliseconds.
const SKEW_STOPS_MS: i64 = 10_000;
/// Above this skew the logs of different hosts cannot be put in order, milliseconds.
const SKEW_WARNS_MS: i64 = 500;
/// From this difference between the clocks of this machine and of the hosts on, the times that hactl records mislead,
/// milliseconds.
const OWN_SKEW_WARNS_MS: i64 = 60_000;
/// From this difference on, nothing is changed, milliseconds. A certificate is valid from [`BACKDATED`] before the time
/// at which it is issued, by the clock of its issuer: with a larger difference it would not be valid yet elsewhere. A
/// minute less, because clocks may drift further apart.
const OWN_SKEW_STOPS_MS: i64 = BACKDATED.whole_seconds() * 1000 - 60_000;
/// etcd's documentation recommends a faster disk than this, microseconds.
const SLOW_FSYNC_US: u64 = 10_000;
/// Memory that a control plane needs before any workload runs, MiB.
const CONTROL_PLANE_MIB: u64 = 1700;
/// Disk space that must remain free after the delivery, MiB.
const SPARE_MIB: u64 = 512;
/// The first kernel that supports kube-proxy's nftables mode, according to the documentation of Kubernetes.
const NFTABLES_KERNEL: (u32, u32) = (5, 13);

/// The check that hosts reach one another on the ports that they use.
pub const PATHS: &str = "paths";

/// The input of the verdicts.
#[derive(Debug)]
pub struct Seen<'a> {
    /// The desired state.
    pub desired: &'a Desired,
    /// The target of every host.
    pub target: &'a Target,
    /// The facts of every host.
    pub facts: &'a Facts,
    /// The surveys of new hosts, and of hosts that get a service.
    pub surveys: &'a super::Surveys,
    /// The connections that were tested.
    pub tried: &'a [Tried],
    /// The registries that a Node cannot reach although it needs them for every image.
    pub away: &'a super::Away,
    /// An unknown machine that answers for the virtual address: the host that saw it, and its MAC address.
    pub stranger: Option<(HostName, String)>,
    /// How far the clocks of hosts are ahead of the clock of this machine, each by [`ahead_ms`].
    pub ahead_ms: &'a [i64],
}

/// Every finding; those that stop the run first.
pub fn judge(seen: &Seen<'_>) -> Vec<Finding> {
    let mut list = Vec::new();
    for host in &seen.desired.hosts {
        let Some(facts) = seen.facts.host(&host.name) else { continue };
        basics(seen, host, facts, &mut list);
        let survey = match seen.surveys.get(&host.name) {
            None => continue,
            Some(Ok(survey)) => survey,
            // Nothing that a survey checks is known: that is no consent.
            Some(Err(why)) => {
                let what = format!("hactl could not check which services run on it, and `up` might replace one: {why}");
                let remedy = "run the same command again; if the host did not answer in time, when its load is lower";
                list.push(stops("surveyed", &host.name, what, remedy));
                continue;
            }
        };
        services(host, survey, &mut list);
        if facts.cluster_id.is_none() {
            surveyed(seen.desired, host, facts, survey, &mut list);
        }
    }
    duplicates(seen.facts, &mut list);
    clocks(seen.facts, seen.surveys, &mut list);
    list.extend(own_clock(seen.ahead_ms));
    virtual_address(seen, &mut list);
    mtus(seen.surveys, &mut list);
    registries(seen, &mut list);
    ways(seen, &mut list);
    for finding in &mut list {
        finding.stops = finding.stops && !seen.desired.ignored_checks.contains(finding.check);
    }
    list.sort_by_key(|f| !f.stops);
    together(list)
}

/// Merges equal findings of several hosts into one.
fn together(list: Vec<Finding>) -> Vec<Finding> {
    let mut stated: Vec<Finding> = Vec::new();
    for finding in list {
        let same = |t: &&mut Finding| t.check == finding.check && t.what == finding.what && t.remedy == finding.remedy;
        match stated.iter_mut().find(same) {
            Some(before) => before.hosts.extend(finding.hosts),
            None => stated.push(finding),
        }
    }
    stated
}

fn stops(check: &'static str, host: &HostName, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { check, hosts: vec![host.clone()], stops: true, what: what.into(), remedy: remedy.into() }
}

fn warns(check: &'static str, host: &HostName, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { stops: false, ..stops(check, host, what, remedy) }
}

fn basics(seen: &Seen<'_>, host: &Host, facts: &HostFacts, list: &mut Vec<Finding>) {
    let name = &host.name;
    if !facts.addresses.iter().any(|a| a.address == host.address) {
        let has: Vec<String> = facts.addresses.iter().map(|a| a.address.to_string()).collect();
        let what = format!("has no address {}; it has {}", host.address, has.join(", "));
        list.push(stops("own-address", name, what, "put one of these into the inventory"));
    }
    if let Some(version) = facts.old_systemd {
        let what = format!("its systemd is version {version}; hactl needs {OLDEST_SYSTEMD} or later");
        let remedy = "use a newer release of its operating system, such as Debian 12, Ubuntu 22.04 or RHEL 9";
        list.push(stops("systemd", name, what, remedy));
    }
    let new = facts.cluster_id.is_none();
    // A cluster that an earlier hactl made, or without `metrics: on` before, does not have these listeners yet.
    let later = [
        (KUBELETS_API, "haproxy "),
        (metrics::ETCD_BALANCER, "haproxy "),
        (metrics::CONTAINERD, "containerd "),
        (metrics::PORT, "hactl "),
    ];
    let foreign = |port: &PortFact| later.iter().any(|(at, own)| port.port == *at && !port.by.starts_with(own));
    let taken = |port: &&PortFact| new || foreign(port);
    for port in facts.ports.iter().filter(taken) {
        let what = format!("port {} is in use by {}", port.port, port.by);
        list.push(stops("ports-free", name, what, "stop that process, or use another host"));
    }
    for mount in crate::render::mounts(seen.desired, host) {
        if !facts.files.contains_key(&mount) && !facts.programs.contains(&mount) {
            let what = format!("`extra` mounts {mount} into a control-plane pod, but this path does not exist");
            list.push(stops("extra-mounts", name, what, "create it on every control-plane host"));
        }
    }
    if let Some(target) = seen.target.hosts.get(name) {
        let missing = target.parts.iter().filter(|p| !facts.blobs.contains(&p.digest));
        let needed = missing.map(|p| p.size * 2 + p.sent_size).sum::<u64>() >> 20;
        if needed > 0 && facts.disk_free_mib < needed + SPARE_MIB {
            let what = format!("{} MiB free below /var/lib, {} needed", facts.disk_free_mib, needed + SPARE_MIB);
            list.push(stops("disk-space", name, what, "free disk space, or use a larger disk"));
        }
    }
}

/// What others use of the places that hactl is going to use. What is in use stops the run; all else is kept.
fn services(host: &Host, survey: &Survey, list: &mut Vec<Finding>) {
    const CHECK: &str = "services-free";
    let mut used: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for found in &survey.foreign {
        used.entry(found.used_by.as_deref().unwrap_or_default()).or_default().push(&found.path);
    }
    let idle = used.remove("").unwrap_or_default();
    for (by, paths) in used {
        let kept = "`up` then keeps its files under other names";
        let docker = [DOCKER, DOCKER_SOCKET].contains(&by);
        let would = if docker {
            "replace its containerd and end its containers"
        } else if by.ends_with(".service") {
            "replace it"
        } else {
            "stop it"
        };
        let paths = paths.join(", ");
        let what = format!("{by} was not set up by hactl and is in use ({paths}): `up` would {would}");
        // The socket first: it would start the service again.
        let units = if docker { format!("{DOCKER_SOCKET} {DOCKER}") } else { by.to_owned() };
        let remedy = match by {
            "haproxy.service" | "keepalived.service" => format!(
                "move it to another host, or name a balancer of your own as endpoint.external; if it is no longer \
                 needed, run `systemctl disable --now {units}` on the host: {kept}"
            ),
            _ if docker || by.ends_with(".service") => format!(
                "use another host; if it is no longer needed, run `systemctl disable --now {units}` on the host: \
                 {kept}"
            ),
            _ => "stop that process, or use another host".to_owned(),
        };
        list.push(stops(CHECK, &host.name, what, remedy));
    }
    let (folders, files): (Vec<&str>, Vec<&str>) = idle.into_iter().partition(|path| FOLDERS.contains(path));
    if !files.is_empty() {
        let what = format!("not hactl's, and no service uses it: {}", files.join(", "));
        let remedy = format!("nothing to do: `up` keeps each under a name that ends in {COPY}, and writes its own");
        list.push(warns(CHECK, &host.name, what, remedy));
    }
    if !folders.is_empty() {
        let what = format!("not empty before hactl: {}", folders.join(", "));
        let remedy = "nothing to do: `down --wipe` leaves what others put there, or moves it aside";
        list.push(warns(CHECK, &host.name, what, remedy));
    }
}

fn surveyed(desired: &Desired, host: &Host, facts: &HostFacts, survey: &Survey, list: &mut Vec<Finding>) {
    let name = &host.name;
    if survey.clock_synchronised == Some(false) {
        let what = "its clock is not synchronised; once it drifts, certificates and leases fail";
        list.push(stops("time-synchronised", name, what, "`apt-get install chrony`, or `timedatectl set-ntp true`"));
    }
    for other in &survey.others {
        let what = format!("is or was part of another Kubernetes cluster: {other}");
        list.push(stops("other-kubernetes", name, what, "remove that installation first, or use another host"));
    }
    for path in &survey.noexec {
        let what = format!("{path} is mounted noexec, but programs must run from there");
        list.push(stops("exec-allowed", name, what, "remount it with exec, also in /etc/fstab"));
    }
    if host.is_node() {
        node(desired, host, facts, survey, list);
    }
    if host.is(Role::ControlPlane) && facts.memory_mib > 0 && facts.memory_mib < CONTROL_PLANE_MIB {
        let what = format!("{} MiB of memory; a control plane needs {CONTROL_PLANE_MIB}", facts.memory_mib);
        list.push(warns("memory", name, what, "add memory; otherwise expect OOM kills under load"));
    }
    if host.is(Role::ControlPlane) && facts.cpus == 1 {
        list.push(warns("processors", name, "1 CPU; a control plane needs 2", "add a CPU"));
    }
    if let Some(us) = survey.fsync_us.filter(|us| *us > SLOW_FSYNC_US) {
        let (dir, ms) = (desired.etcd.data_dir.display(), us / 1000);
        let what =
            format!("the disk below {dir} takes {ms} ms for the fsync of a small write; etcd needs less than 10");
        let remedy = "put etcd.dataDir on a dedicated local SSD; otherwise expect leader elections under load";
        list.push(warns("etcd-disk", name, what, remedy));
    }
    if survey.page_bytes > 4096 {
        let what = format!("memory pages of {} KiB; many images only run with 4 KiB", survey.page_bytes >> 10);
        list.push(warns("page-size", name, what, "boot a kernel with 4 KiB pages"));
    }
    if survey.selinux.as_deref() == Some("enforcing") {
        let remedy =
            "install container-selinux, run `setsebool -P haproxy_connect_any 1`, check for denials: `ausearch -m avc`";
        list.push(warns("selinux", name, "SELinux is enforcing; hactl is not tested with that", remedy));
    }
    if survey.reboot_required {
        let what = "its package manager requests a reboot";
        list.push(warns("reboot-pending", name, what, "reboot it now, while it runs no workloads"));
    }
}

fn node(desired: &Desired, host: &Host, facts: &HostFacts, survey: &Survey, list: &mut Vec<Finding>) {
    let name = &host.name;
    if !facts.cgroup_v2 {
        let accepted = desired.extra.kubelet_config.get("failCgroupV1").is_some_and(|v| v == false);
        let what = "uses cgroup v1, which Kubernetes is about to drop";
        list.push(if accepted {
            warns("cgroup-v2", name, what, "boot with systemd.unified_cgroup_hierarchy=1")
        } else {
            let remedy =
                "boot with systemd.unified_cgroup_hierarchy=1, or accept it: extra.kubelet.config.failCgroupV1: false";
            stops("cgroup-v2", name, format!("{what}; the kubelet will not start"), remedy)
        });
    }
    if desired.network.kube_proxy == KubeProxy::Nftables
        && kernel(&facts.kernel).is_some_and(|found| found < NFTABLES_KERNEL)
    {
        let (major, minor) = NFTABLES_KERNEL;
        let what = format!("kernel {}; kube-proxy's nftables mode needs {major}.{minor}", facts.kernel);
        list.push(stops("kernel", name, what, "upgrade the kernel"));
    }
    if facts.systemd_resolved || desired.extra.kubelet_config.contains_key("resolvConf") {
        return;
    }
    if survey.nameservers.is_empty() {
        let what = "/etc/resolv.conf lists no name server: CoreDNS will not start, and pods resolve no names";
        let remedy = "list one there, or set extra.kubelet.config.resolvConf to a file that lists one";
        list.push(warns("name-servers", name, what, remedy));
    } else if survey.nameservers.iter().all(IpAddr::is_loopback) {
        let what =
            "/etc/resolv.conf lists only loopback name servers, which pods cannot reach: CoreDNS would query itself";
        let remedy = "set extra.kubelet.config.resolvConf to a file that lists a reachable name server";
        list.push(warns("resolver-loop", name, what, remedy));
    }
}

fn kernel(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Cloned machines, or one machine that is in the inventory twice.
fn duplicates(facts: &Facts, list: &mut Vec<Finding>) {
    let mut seen: BTreeMap<&str, &HostName> = BTreeMap::new();
    for (host, facts) in &facts.hosts {
        let Ok(facts) = facts else { continue };
        if facts.machine_id.is_empty() {
            continue;
        }
        if let Some(other) = seen.insert(&facts.machine_id, host) {
            let what = format!("{other} and {host} have the same /etc/machine-id: one machine, or clones");
            let remedy = "give each clone its own (`rm /etc/machine-id; systemd-machine-id-setup`)";
            let hosts = vec![other.clone(), host.clone()];
            list.push(Finding { hosts, ..stops("machine-id", host, what, remedy) });
        }
    }
}

/// Compares every clock with the median.
fn clocks(facts: &Facts, surveys: &super::Surveys, list: &mut Vec<Finding>) {
    let mut clocks: Vec<(i64, &HostName)> =
        facts.hosts.iter().filter_map(|(h, f)| Some((f.as_ref().ok()?.now_ms, h))).collect();
    clocks.sort_unstable();
    let any = surveys.values().any(Result::is_ok);
    let Some((median, _)) = clocks.get(clocks.len() / 2).copied().filter(|_| any) else { return };
    for (now, host) in clocks {
        let apart = now - median;
        let direction = if apart > 0 { "ahead of" } else { "behind" };
        let what = format!("its clock is {} {direction} the others'", seconds(apart));
        let remedy = "synchronise it with chrony or timesyncd (`chronyc makestep`)";
        if apart.abs() >= SKEW_WARNS_MS {
            let stop = apart.abs() >= SKEW_STOPS_MS;
            list.push(Finding { stops: stop, ..stops("clocks-agree", host, what, remedy) });
        }
    }
}

fn seconds(apart_ms: i64) -> String {
    format!("{}.{} s", apart_ms.abs() / 1000, apart_ms.abs() % 1000 / 100)
}

/// How far the clock of a host is ahead of the clock of this machine, at least, milliseconds; negative: behind. This
/// machine read its clock before and after the host read its own.
pub fn ahead_ms(host_ms: i64, (before_ms, after_ms): (i64, i64)) -> i64 {
    if host_ms > after_ms { host_ms - after_ms } else { (host_ms - before_ms).min(0) }
}

/// Compares the clock of this machine with the median of those of the hosts, which are so far ahead, milliseconds.
pub fn own_clock(ahead_ms: &[i64]) -> Option<Finding> {
    let mut sorted = ahead_ms.to_vec();
    sorted.sort_unstable();
    let (low, high) = (*sorted.get(sorted.len().checked_sub(1)? / 2)?, *sorted.get(sorted.len() / 2)?);
    // Of two in the middle, the one that agrees more with this machine may be right.
    let apart = if low > 0 { low } else { high.min(0) };
    if apart.abs() < OWN_SKEW_WARNS_MS {
        return None;
    }
    let direction = if apart > 0 { "behind" } else { "ahead of" };
    let what = format!(
        "the clock of this machine is {} {direction} the clocks of the hosts; a new certificate is valid everywhere \
         only if they differ by less than {} minutes",
        seconds(apart),
        BACKDATED.whole_minutes()
    );
    let remedy =
        "synchronise the clock of this machine (`timedatectl set-ntp true`), or those of the hosts if they are wrong";
    let stops = apart.abs() >= OWN_SKEW_STOPS_MS;
    Some(Finding { check: "clocks-agree", hosts: vec![], stops, what, remedy: remedy.to_owned() })
}

fn virtual_address(seen: &Seen<'_>, list: &mut Vec<Finding>) {
    let EndpointKind::Vip { address, .. } = &seen.desired.endpoint.kind else { return };
    for host in seen.desired.with(Role::LoadBalancer) {
        let Some(facts) = seen.facts.host(&host.name) else { continue };
        let net = |a: &crate::model::facts::InterfaceAddress| crate::model::desired::Cidr {
            base: a.address,
            prefix: a.prefix,
        };
        if !facts.addresses.is_empty() && !facts.addresses.iter().any(|a| net(a).contains(*address)) {
            let what = format!("endpoint.vip {address} is in none of its networks");
            let remedy = "choose an address of the hosts' own network, or `endpoint: {local: true}`";
            list.push(stops("vip-network", &host.name, what, remedy));
        }
    }
    if let Some((host, hardware)) = &seen.stranger {
        let what = format!(
            "endpoint.vip {address} is in use: {hardware} answers for it on {host}'s network, but no host of the \
             inventory holds it"
        );
        list.push(Finding { hosts: vec![], ..stops("vip-free", host, what, "choose a free address") });
    }
}

fn mtus(surveys: &super::Surveys, list: &mut Vec<Finding>) {
    let known: Vec<(u32, &HostName)> = surveys.iter().filter_map(|(h, s)| Some((s.as_ref().ok()?.mtu?, h))).collect();
    let (Some(least), Some(most)) = (known.iter().min(), known.iter().max()) else { return };
    if least.0 != most.0 {
        let what = format!("its interface has an MTU of {}, but that of {} has {}", least.0, most.1, most.0);
        list.push(warns("mtu", least.1, what, "set the same MTU on all interfaces of the hosts' network"));
    }
}

/// With AlwaysPullImages, a Node that cannot reach a registry starts no pods. An existing cluster may still be healed
/// while its registry is unreachable, unless the files of its API servers are to change.
fn registries(seen: &Seen<'_>, list: &mut Vec<Finding>) {
    let changes = |host: &Host| {
        let set = seen.target.hosts.get(&host.name).and_then(|target| target.sets.get(&FileSet::ControlPlane));
        let found = |path: &String| seen.facts.host(&host.name).and_then(|facts| facts.files.get(path));
        let files = set.map(|set| set.files.as_slice()).unwrap_or_default();
        seen.facts.host(&host.name).is_some()
            && files.iter().any(|file| found(&file.path).is_none_or(|found| found.digest != file.digest))
    };
    let stop = seen.desired.hosts.iter().any(changes);
    for (host, away) in seen.away {
        let new = seen.facts.host(host).is_some_and(|facts| facts.cluster_id.is_none());
        for (registry, why) in away {
            let what = format!(
                "controlPlane.security: cis pulls every image before a pod starts (AlwaysPullImages), but {registry} \
                 cannot be reached ({why})"
            );
            let remedy = "add a mirror with hactl's images under registries.mirrors, or a proxy; or use `security: \
                          baseline`";
            list.push(Finding { stops: stop || new, ..stops("registries", host, what, remedy) });
        }
    }
}

/// One finding for each host and port that other hosts cannot reach.
fn ways(seen: &Seen<'_>, list: &mut Vec<Finding>) {
    let mut closed: BTreeMap<(&HostName, Way), Vec<&Tried>> = BTreeMap::new();
    for tried in seen.tried.iter().filter(|t| t.trouble.is_some()) {
        closed.entry((&tried.to, tried.way)).or_default().push(tried);
    }
    for ((to, way), tried) in closed {
        let from: Vec<&str> = tried.iter().map(|t| t.from.as_str()).collect();
        let why = tried.iter().find_map(|t| t.trouble.as_deref()).unwrap_or_default();
        let large = why.contains("large packets");
        let what =
            format!("{way} for {} cannot be reached from {}: {why}", purpose(seen.desired, way), from.join(", "));
        let addresses: Vec<String> =
            tried.iter().filter_map(|t| Some(seen.desired.host(&t.from)?.address.to_string())).collect();
        let survey = seen.surveys.get(to).and_then(|survey| survey.as_ref().ok());
        let firewalls = survey.map(|s| s.firewalls.as_slice()).unwrap_or_default();
        let (check, remedy) = if large {
            let remedy =
                "the network between them drops packets of the interface's MTU: make the MTUs equal, or lower them";
            ("path-mtu", remedy.to_owned())
        } else if seen.desired.firewall == Firewall::Manage && !firewalls.is_empty() {
            // A step of the plan opens the port.
            continue;
        } else {
            (PATHS, rule(way, &addresses, firewalls))
        };
        list.push(stops(check, to, what, remedy));
    }
}

/// The command that opens the port in the firewall of the host.
fn rule(way: Way, from: &[String], firewalls: &[String]) -> String {
    let has = |name: &str| firewalls.iter().any(|f| f == name);
    let first = from.first().map_or("ADDRESS", String::as_str);
    let more = if from.len() > 1 { format!(" (and the same for {})", from[1..].join(", ")) } else { String::new() };
    match way {
        Way::Tcp(_) | Way::Udp(_) if has("firewalld") => {
            format!("on it: `firewall-cmd --permanent --add-port={way} && firewall-cmd --reload`")
        }
        Way::Vrrp if has("firewalld") => {
            "on it: `firewall-cmd --permanent --add-protocol=vrrp && firewall-cmd --reload`".to_owned()
        }
        Way::Tcp(port) if has("ufw") => format!("on it: `ufw allow proto tcp from {first} to any port {port}`{more}"),
        Way::Udp(port) if has("ufw") => format!("on it: `ufw allow proto udp from {first} to any port {port}`{more}"),
        Way::Vrrp if has("ufw") => format!("on it: `ufw allow proto vrrp from {first}`{more}"),
        Way::Tcp(port) => format!(
            "allow it, on the host and between them: `iptables -I INPUT -p tcp -s {first} --dport {port} -j \
             ACCEPT`{more}"
        ),
        Way::Udp(port) => format!(
            "allow it, on the host and between them: `iptables -I INPUT -p udp -s {first} --dport {port} -j \
             ACCEPT`{more}"
        ),
        Way::Vrrp => {
            format!("allow it, on the host and between them: `iptables -I INPUT -p 112 -s {first} -j ACCEPT`{more}")
        }
    }
}

#[cfg(test)]
mod tests;

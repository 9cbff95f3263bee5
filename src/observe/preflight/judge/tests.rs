//! Each verdict, from the observation to the message.

use super::*;
use crate::model::desired::sample;
use crate::model::facts::{ClusterId, InterfaceAddress, PortFact};
use crate::model::firewall::Firewall;
use crate::model::foreign::Foreign;
use crate::model::names::Digest;
use crate::model::survey::CHECKS;

fn named(host: &str) -> HostName {
    host.parse().expect("a host name")
}

struct Case {
    desired: Desired,
    facts: Facts,
    surveys: crate::observe::preflight::Surveys,
    tried: Vec<Tried>,
    away: BTreeMap<HostName, BTreeMap<String, String>>,
    stranger: Option<(HostName, String)>,
    ahead_ms: Vec<i64>,
}

/// Three healthy hosts that are not part of a cluster yet.
fn case() -> Case {
    let desired = sample(3);
    let fact = |host: &Host| HostFacts {
        machine_id: host.name.to_string(),
        kernel: "6.1.0-25-amd64".to_owned(),
        cpus: 2,
        memory_mib: 4096,
        disk_free_mib: 100_000,
        cgroup_v2: true,
        now_ms: 1_000_000,
        addresses: vec![InterfaceAddress { interface: "eth0".to_owned(), address: host.address, prefix: 24 }],
        ..HostFacts::default()
    };
    let survey = Survey {
        clock_synchronised: Some(true),
        page_bytes: 4096,
        nameservers: vec!["10.88.0.1".parse().unwrap()],
        mtu: Some(1500),
        fsync_us: Some(900),
        ..Survey::default()
    };
    Case {
        facts: Facts::of(desired.hosts.iter().map(|h| (h.name.clone(), Ok(fact(h)))).collect()),
        surveys: desired.hosts.iter().map(|h| (h.name.clone(), Ok(survey.clone()))).collect(),
        desired,
        tried: vec![],
        away: BTreeMap::new(),
        stranger: None,
        ahead_ms: vec![0, -40, 1500],
    }
}

impl Case {
    fn judge(&self) -> Vec<Finding> {
        let found = judge(&Seen {
            desired: &self.desired,
            target: &Target::default(),
            facts: &self.facts,
            surveys: &self.surveys,
            tried: &self.tried,
            away: &self.away,
            stranger: self.stranger.clone(),
            ahead_ms: &self.ahead_ms,
        });
        for finding in &found {
            assert!(CHECKS.contains(&finding.check), "{} is not listed", finding.check);
            assert!(!finding.remedy.is_empty());
        }
        found
    }
    fn fact(&mut self, host: &str) -> &mut HostFacts {
        self.facts.hosts.get_mut(&named(host)).and_then(|f| f.as_mut().ok()).expect("a host of the case")
    }
    fn survey(&mut self, host: &str) -> &mut Survey {
        self.surveys.get_mut(&named(host)).and_then(|found| found.as_mut().ok()).expect("a host of the case")
    }
    fn only(&self) -> Finding {
        let found = self.judge();
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().expect("just counted")
    }
}

#[track_caller]
fn of_lab() -> ClusterId {
    ClusterId { cluster: "lab".parse().unwrap(), ca: Digest::of(b"ca"), stages: 0, host: None, machine: None }
}

fn foreign(path: &str, used_by: Option<&str>) -> Foreign {
    Foreign { path: path.to_owned(), used_by: used_by.map(str::to_owned) }
}

fn says(finding: &Finding, check: &str, stops: bool, text: &str) {
    assert_eq!((finding.check, finding.stops), (check, stops), "{finding}");
    assert!(finding.to_string().contains(text), "{finding}");
}

#[test]
fn sound_hosts_give_no_finding() {
    assert_eq!(case().judge(), []);
}

#[test]
fn each_fault_of_a_host_is_found_under_its_name() {
    type Spoil = fn(&mut Case);
    let cases: &[(&str, bool, &str, Spoil)] = &[
        ("own-address", true, "cp2: has no address 10.88.0.12; it has 10.9.9.9", |c| {
            c.desired.endpoint.kind = EndpointKind::Local { name: None };
            c.fact("cp2").addresses[0].address = "10.9.9.9".parse().unwrap();
        }),
        ("systemd", true, "cp2: its systemd is version 245; hactl needs 248 or later; use a newer release", |c| {
            c.fact("cp2").old_systemd = Some(245);
        }),
        (
            "services-free",
            true,
            "cp2: haproxy.service was not set up by hactl and is in use (/etc/haproxy/haproxy.cfg): `up`",
            |c| {
                c.survey("cp2").foreign = vec![foreign("/etc/haproxy/haproxy.cfg", Some("haproxy.service"))];
            },
        ),
        ("services-free", true, "run `systemctl disable --now docker.socket docker.service` on the host", |c| {
            c.survey("cp2").foreign = vec![foreign("/run/containerd/containerd.sock", Some("docker.service"))];
        }),
        ("services-free", true, "run `systemctl disable --now docker.socket docker.service` on the host", |c| {
            c.survey("cp2").foreign = vec![foreign("/run/containerd/containerd.sock", Some("docker.socket"))];
        }),
        ("surveyed", true, "which services run on it, and `up` might replace one: timed out; run the same", |c| {
            c.surveys.insert(named("cp2"), Err("timed out".to_owned()));
        }),
        ("services-free", true, "(/etc/containerd/config.toml, /etc/systemd/system/containerd.service): `up`", |c| {
            let files = ["/etc/containerd/config.toml", "/etc/systemd/system/containerd.service"];
            c.survey("cp2").foreign = files.map(|path| foreign(path, Some("containerd.service"))).into();
        }),
        ("services-free", true, "stop that process", |c| {
            c.survey("cp2").foreign = vec![foreign("/run/containerd/containerd.sock", Some("containerd (pid 7)"))];
        }),
        ("services-free", false, "no service uses it: /etc/haproxy/haproxy.cfg, /usr/local/bin/runc; nothing", |c| {
            let files = ["/etc/haproxy/haproxy.cfg", "/usr/local/bin/runc"];
            c.survey("cp2").foreign = files.map(|path| foreign(path, None)).into();
        }),
        ("services-free", false, "not empty before hactl: /var/lib/containerd; nothing", |c| {
            c.survey("cp2").foreign = vec![foreign("/var/lib/containerd", None)];
        }),
        ("ports-free", true, "port 2379 is in use by nginx (pid 7)", |c| {
            c.fact("cp2").ports = vec![PortFact { port: 2379, by: "nginx (pid 7)".to_owned() }];
        }),
        ("time-synchronised", true, "timedatectl set-ntp true", |c| c.survey("cp2").clock_synchronised = Some(false)),
        ("other-kubernetes", true, "k3s (/etc/rancher/k3s)", |c| {
            c.survey("cp2").others = vec!["k3s (/etc/rancher/k3s)".to_owned()];
        }),
        ("exec-allowed", true, "/var/lib/kubelet is mounted noexec", |c| {
            c.survey("cp2").noexec = vec!["/var/lib/kubelet".to_owned()];
        }),
        ("cgroup-v2", true, "the kubelet will not start", |c| c.fact("cp2").cgroup_v2 = false),
        ("cgroup-v2", false, "about to drop", |c| {
            c.desired.extra.kubelet_config.insert("failCgroupV1".to_owned(), false.into());
            c.fact("cp2").cgroup_v2 = false;
        }),
        ("kernel", true, "nftables mode needs 5.13", |c| c.fact("cp2").kernel = "5.10.0-9".to_owned()),
        ("memory", false, "1024 MiB", |c| c.fact("cp2").memory_mib = 1024),
        ("processors", false, "1 CPU", |c| c.fact("cp2").cpus = 1),
        ("etcd-disk", false, "takes 31 ms", |c| c.survey("cp2").fsync_us = Some(31_400)),
        ("page-size", false, "64 KiB", |c| c.survey("cp2").page_bytes = 65536),
        ("selinux", false, "haproxy_connect_any", |c| c.survey("cp2").selinux = Some("enforcing".to_owned())),
        ("reboot-pending", false, "reboot it now", |c| c.survey("cp2").reboot_required = true),
        ("resolver-loop", false, "query itself", |c| c.survey("cp2").nameservers = vec!["127.0.0.1".parse().unwrap()]),
        ("name-servers", false, "lists no name server", |c| c.survey("cp2").nameservers.clear()),
        ("machine-id", true, "cp1 and cp2 have the same /etc/machine-id", |c| {
            c.fact("cp2").machine_id = "cp1".to_owned();
        }),
        ("clocks-agree", true, "12.0 s behind", |c| c.fact("cp2").now_ms -= 12_000),
        ("clocks-agree", false, "0.7 s ahead", |c| c.fact("cp2").now_ms += 700),
        ("vip-network", true, "none of its networks", |c| c.fact("cp2").addresses[0].prefix = 32),
        ("vip-free", true, "aa:bb answers for it on cp1's network", |c| {
            c.stranger = Some(("cp1".parse().unwrap(), "aa:bb".to_owned()));
        }),
        ("mtu", false, "cp2: its interface has an MTU of 1400", |c| c.survey("cp2").mtu = Some(1400)),
    ];
    for (check, stops, text, spoil) in cases {
        let mut case = case();
        spoil(&mut case);
        says(&case.only(), check, *stops, text);
    }
}

#[test]
fn the_clock_of_this_machine_stops_the_run_before_certificates_are_not_accepted_and_warns_earlier() {
    let backdated_ms = BACKDATED.whole_seconds() * 1000;
    let agree: [&[i64]; 5] = [&[], &[59_999; 3], &[-59_999], &[0, 9_000_000], &[-9_000_000, 0, 9_000_000]];
    for ahead_ms in agree {
        assert_eq!(Case { ahead_ms: ahead_ms.to_vec(), ..case() }.judge(), [], "{ahead_ms:?}");
    }
    for (ahead_ms, stops, text) in [
        (vec![61_000; 3], false, "the clock of this machine is 61.0 s behind the clocks of the hosts"),
        (vec![-61_000; 2], false, "the clock of this machine is 61.0 s ahead of the clocks of the hosts"),
        (vec![-backdated_ms; 3], true, "the clock of this machine is 300.0 s ahead"),
        (vec![backdated_ms], true, "less than 5 minutes"),
        (vec![0, 3_600_000, 3_700_000], true, "is 3600.0 s behind"),
        (vec![-3_600_000, -3_700_000], true, "is 3600.0 s ahead"),
    ] {
        let found = Case { ahead_ms, ..case() }.only();
        says(&found, "clocks-agree", stops, text);
        assert!(found.hosts.is_empty(), "it is of no host, so none is left out for it");
    }
    // On a cluster without new hosts, too: certificates are renewed there.
    let alone = Case { ahead_ms: vec![-backdated_ms], surveys: BTreeMap::new(), ..case() };
    says(&alone.only(), "clocks-agree", true, "ahead of");
}

#[test]
fn a_clock_is_wrong_only_by_what_the_time_of_an_answer_does_not_explain() {
    assert_eq!([5, 10, 15, 20, 25].map(|host_ms| ahead_ms(host_ms, (10, 20))), [-5, 0, 0, 0, 5]);
}

fn closed(from: &str, way: Way, why: &str) -> Tried {
    let trouble = Some(why.to_owned());
    Tried { from: from.parse().unwrap(), to: "cp2".parse().unwrap(), way, trouble }
}

#[test]
fn a_closed_port_is_one_finding_with_the_rule_of_the_firewall_that_is_there() {
    let mut case = case();
    case.tried = vec![closed("cp1", Way::Tcp(2380), "timed out"), closed("cp3", Way::Tcp(2380), "timed out")];
    says(&case.only(), "paths", true, "2380/tcp for etcd's peers cannot be reached from cp1, cp3: timed out");
    says(
        &case.only(),
        "paths",
        true,
        "iptables -I INPUT -p tcp -s 10.88.0.11 --dport 2380 -j ACCEPT` (and the same for 10.88.0.13)",
    );
    case.survey("cp2").firewalls = vec!["ufw".to_owned()];
    says(&case.only(), "paths", true, "ufw allow proto tcp from 10.88.0.11 to any port 2380");
    case.survey("cp2").firewalls = vec!["firewalld".to_owned()];
    says(&case.only(), "paths", true, "firewall-cmd --permanent --add-port=2380/tcp");
    case.tried = vec![closed("cp1", Way::Vrrp, "sent, but not received")];
    says(&case.only(), "paths", true, "--add-protocol=vrrp");
}

#[test]
fn a_closed_port_stops_nothing_where_hactl_is_to_open_it() {
    let mut case = case();
    case.tried = vec![closed("cp1", Way::Tcp(2380), "timed out")];
    case.desired.firewall = Firewall::Manage;
    says(&case.only(), "paths", true, "iptables -I INPUT");
    case.survey("cp2").firewalls = vec!["ufw".to_owned()];
    assert_eq!(case.judge(), [], "a step of the plan opens it");
}

#[test]
fn a_path_that_drops_large_packets_is_distinguished_from_a_closed_port() {
    let mut case = case();
    case.tried = vec![closed("cp1", Way::Tcp(2380), "connected, but large packets are dropped")];
    says(&case.only(), "path-mtu", true, "make the MTUs equal");
}

#[test]
fn on_a_host_of_the_cluster_only_the_port_that_earlier_versions_did_not_use_must_be_free() {
    let mut case = case();
    let fact = case.fact("cp2");
    fact.cluster_id = Some(of_lab());
    let port = |port, by: &str| PortFact { port, by: by.to_owned() };
    fact.ports = vec![port(2379, "etcd (pid 7)"), port(6481, "haproxy (pid 8)")];
    assert_eq!(case.judge(), []);
    case.fact("cp2").ports[1] = port(6481, "haproxy-exporter (pid 8)");
    says(&case.only(), "ports-free", true, "port 6481 is in use by haproxy-exporter (pid 8)");
}

#[test]
fn of_a_host_of_the_cluster_that_gets_a_service_only_what_others_use_is_judged() {
    let mut case = case();
    case.fact("cp2").cluster_id = Some(of_lab());
    case.survey("cp2").others = vec!["kubeadm (/etc/kubernetes/admin.conf)".to_owned()];
    assert_eq!(case.judge(), []);
    case.survey("cp2").foreign = vec![foreign("/etc/keepalived/keepalived.conf", Some("keepalived.service"))];
    says(&case.only(), "services-free", true, "keepalived.service was not set up by hactl and is in use");
}

#[test]
fn a_check_that_the_inventory_ignores_warns_and_no_longer_stops() {
    let mut case = case();
    case.survey("cp2").clock_synchronised = Some(false);
    case.desired.ignored_checks.insert("time-synchronised".to_owned());
    says(&case.only(), "time-synchronised", false, "its clock is not synchronised");
}

#[test]
fn name_servers_of_systemd_resolved_or_of_a_file_of_the_inventory_need_none_in_etc() {
    for servers in [vec![], vec!["127.0.0.53".parse().unwrap()]] {
        let mut case = case();
        case.survey("cp2").nameservers = servers;
        assert_eq!(case.judge().len(), 1);
        case.fact("cp2").systemd_resolved = true;
        assert_eq!(case.judge(), []);
        case.fact("cp2").systemd_resolved = false;
        case.desired.extra.kubelet_config.insert("resolvConf".to_owned(), "/etc/resolv.pods".into());
        assert_eq!(case.judge(), []);
    }
}

#[test]
fn a_finding_on_several_hosts_is_reported_once() {
    let mut case = case();
    for host in ["cp1", "cp2", "cp3"] {
        case.survey(host).clock_synchronised = Some(false);
    }
    says(&case.only(), "time-synchronised", true, "cp1, cp2, cp3: its clock is not synchronised");
}

#[test]
fn errors_come_before_warnings() {
    let mut case = case();
    case.fact("cp1").cpus = 1;
    case.survey("cp3").others = vec!["k0s (/var/lib/k0s)".to_owned()];
    assert_eq!(case.judge().iter().map(|f| f.check).collect::<Vec<_>>(), ["other-kubernetes", "processors"]);
}

#[test]
fn where_images_are_always_asked_for_a_node_that_reaches_no_registry_stops_the_run_unless_the_cluster_lives_so_already()
{
    let mut case = case();
    let why = BTreeMap::from([("registry.k8s.io".to_owned(), "registry.k8s.io:443: no address".to_owned())]);
    case.away = BTreeMap::from([(named("cp1"), why)]);
    says(&case.only(), "registries", true, "registry.k8s.io cannot be reached (registry.k8s.io:443: no address)");
    for fact in case.facts.hosts.values_mut().filter_map(|fact| fact.as_mut().ok()) {
        fact.cluster_id = Some(of_lab());
    }
    let found = case.judge();
    let of_it: Vec<&Finding> = found.iter().filter(|finding| finding.check == "registries").collect();
    assert!(of_it.len() == 1 && !of_it[0].stops, "its API servers pull already: {found:?}");
}

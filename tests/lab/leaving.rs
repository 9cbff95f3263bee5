//! Hosts that leave, hosts whose address changes, and disks that move to another host, while a client reads every 20
//! ms.

use super::failures::leads;
use super::shapes::{STACKED, inventory, vip};
use super::support::{ReadLoop, Reads, Writer, wait_for};
use super::trials::{nobody_failed_and_moved_at_most, unnoticed};
use super::{Scenario, World, in_one_line, with_pod};
use std::time::{Duration, UNIX_EPOCH};

/// On five hosts, three of which are a cluster.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a running control-plane host is replaced by another and is clean afterwards, and no client fails",
        cut: false,
        run: replaced,
    },
    Scenario {
        name: "three members become five, and five become three without the leader, and no client fails",
        cut: false,
        run: shrunk,
    },
    Scenario {
        name: "a dead host is replaced by a new one, a balancer and a worker join, and no client fails",
        cut: false,
        run: dead,
    },
    Scenario { name: "a host gets another address and keeps its etcd member", cut: false, run: readdressed },
    Scenario {
        name: "the disk of a removed host moves to another host, which continues as the same etcd member",
        cut: false,
        run: adopted,
    },
    Scenario { name: "prune refuses a host with a pod that would be lost, and names the pod", cut: false, run: kept },
];

/// The lab's hosts.
const ALL: [&str; 5] = ["cp1", "cp2", "cp3", "cp4", "cp5"];
const HEAL: Duration = Duration::from_secs(180);
const ETCDCTL: &str = "sudo etcdctl --endpoints https://127.0.0.1:2379 --cacert /etc/etcd/pki/ca.crt --cert /etc/etcd/pki/server.crt \
                       --key /etc/etcd/pki/server.key";

fn stacked(w: &World, hosts: &[&str]) {
    inventory(w, &vip(w), &hosts.iter().map(|host| (*host, STACKED, "")).collect::<Vec<_>>());
}

/// Makes exactly these hosts of the lab the cluster.
fn only(w: &World, hosts: &[&str]) {
    stacked(w, hosts);
    let others = ALL.into_iter().filter(|host| !hosts.contains(host));
    let prune = others.flat_map(|host| ["--prune", host]);
    w.hactl.run(&["up", "--yes"].into_iter().chain(prune).collect::<Vec<_>>()).ok();
    w.healthy(HEAL);
}

/// Clients that read every 20 ms, and one that writes.
pub struct Watched {
    reading: ReadLoop,
    writer: Writer,
    /// Bare hosts with a smaller share of CPU time.
    bare: &'static [&'static str],
}

impl Watched {
    pub fn start(w: &World, name: &str) -> Self {
        let (reading, writer) = (w.api().reads(Duration::from_millis(20)), Writer::start(&w.api(), name));
        Self { reading, writer, bare: &[] }
    }
    /// The same beside the installation of these bare hosts. Real hosts take no CPU time from one another, and all hosts
    /// of a lab share this machine, so these get a quarter of what the others get when all want some.
    fn start_beside(w: &World, name: &str, bare: &'static [&'static str]) -> Self {
        for host in bare {
            w.lab.set_cpu_share(host, 25).expect("the host runs");
        }
        Self { bare, ..Self::start(w, name) }
    }
    /// The reads, and the writer's longest pause; checks that none of its writes was lost.
    pub fn end(self) -> (Reads, Duration) {
        let reads = self.reading.end();
        let (written, pause) = self.writer.end();
        println!("        {written} writes acknowledged, none lost; the longest pause: {pause:.2?}");
        (reads, pause)
    }
    /// For installations of bare hosts, which share the processors of the others: clients may be late, but none fails.
    /// A VIP holder that cannot send adverts for most of a second loses the VIP, and requests in flight are cut off
    /// then.
    fn nobody_failed(self, w: &World) {
        for host in self.bare {
            w.lab.set_cpu_share(host, 100).expect("the host runs");
        }
        let (reads, pause) = self.end();
        // Installations of bare hosts may stall the holder of the VIP at any time.
        let longest = nobody_failed_and_moved_at_most(w, &reads, 1);
        assert!(longest.max(pause) < Duration::from_secs(5), "a client waited for {:?}", longest.max(pause));
    }
    fn nobody_noticed(self, w: &World) {
        let (reads, longest) = self.end();
        unnoticed(w, &reads);
        assert!(longest < Duration::from_secs(2), "a write waited for {longest:?}");
    }
}

fn nodes(w: &World) -> String {
    w.hactl.kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"]).ok().out.trim().to_owned()
}

/// The IDs of etcd's members, with their names.
pub fn ids(w: &World, from: &str) -> Vec<(String, String)> {
    let listed = w.on(from, &format!("{ETCDCTL} member list"));
    let field = |line: &str, at: usize| line.split(", ").nth(at).unwrap_or_default().to_owned();
    listed.lines().map(|line| (field(line, 2), field(line, 0))).collect()
}

/// Checks that nothing of the cluster is left on a host, and nothing of the host in the cluster.
fn gone(w: &World, host: &str, voters: usize) {
    let left = w.on(
        host,
        "sudo sh -c 'ls -d /etc/kubernetes /etc/etcd /etc/hactl /var/lib/hactl/stamp.json /var/lib/etcd/member 2>/dev/null; \
         systemctl is-active etcd kubelet containerd haproxy keepalived | grep -x active; pgrep -l kube; ip -o addr show | grep -w 10.88.0.100'",
    );
    assert_eq!(left, "", "{host} is clean");
    assert!(!nodes(w).split(' ').any(|node| node == host), "{}", nodes(w));
    let address = w.lab.address(host).expect("the lab has this host").to_string();
    let ends = w
        .hactl
        .kubectl(&["get", "endpointslices", "kubernetes", "-o", "jsonpath={.endpoints[*].addresses[*]}"])
        .ok()
        .out;
    assert!(!ends.split_whitespace().any(|end| end == address), "{ends}");
    let leases = w
        .hactl
        .kubectl(&[
            "get",
            "leases",
            "-n",
            "kube-system",
            "-l",
            "apiserver.kubernetes.io/identity=kube-apiserver",
            "-o",
            "name",
        ])
        .ok()
        .out;
    assert_eq!(leases.lines().count(), voters, "one identity Lease for each API server: {leases}");
    let said = in_one_line(&w.well());
    assert!(said.contains(&format!("{voters} voters")), "{said}");
}

fn replaced(w: &World) {
    only(w, &["cp1", "cp2", "cp3"]);
    stacked(w, &["cp1", "cp2", "cp4"]);
    let refused = in_one_line(&w.hactl.up().exits(3));
    assert!(
        refused.contains("two hosts would hold the endpoint's VIP") && refused.contains("up --prune cp3"),
        "{refused}"
    );
    w.hactl.run(&["plan", "--prune", "cp3", "--prune", "nobody"]).ok().says("--prune nobody: no host");
    let plan = in_one_line(&w.hactl.run(&["plan", "--prune", "cp3"]).ok());
    for step in ["drain the Node", "remove member", "stop everything and move its data aside", "delete the Node cp3"] {
        assert!(plan.contains(step), "{step}: {plan}");
    }
    let watched = Watched::start_beside(w, "w-replaced", &["cp4"]);
    let ran = w.hactl.run(&["up", "--yes", "--prune", "cp3"]).ok();
    println!("{}", ran.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    println!("        replaced in {:.1?}", ran.took);
    watched.nobody_failed(w);
    gone(w, "cp3", 3);
    assert_eq!(nodes(w), "cp1 cp2 cp4");
    w.hactl.up().ok().says("nothing to do");
}

fn shrunk(w: &World) {
    only(w, &["cp1", "cp2", "cp4"]);
    stacked(w, &["cp1", "cp2", "cp3", "cp4", "cp5"]);
    let watched = Watched::start_beside(w, "w-grown", &["cp3", "cp5"]);
    let ran = w.hactl.up().ok();
    println!("        three became five in {:.1?}", ran.took);
    watched.nobody_failed(w);
    let watched = Watched::start(w, "w-shrunk");
    let leader = ALL.into_iter().find(|host| leads(w, host)).expect("a member leads");
    let other = if leader == "cp5" { "cp3" } else { "cp5" };
    let stays: Vec<&str> = ALL.into_iter().filter(|h| ![leader, other].contains(h)).collect();
    stacked(w, &stays);
    let ran =
        w.hactl.run(&["up", "--yes", "--prune", leader, "--prune", other]).ok().says("transfer etcd's leadership");
    println!("        five became three in {:.1?}", ran.took);
    watched.nobody_noticed(w);
    for host in [leader, other] {
        gone(w, host, 3);
    }
    assert_eq!(nodes(w), stays.join(" "));
    w.hactl.up().ok().says("nothing to do");
}

fn dead(w: &World) {
    only(w, &["cp1", "cp2", "cp4"]);
    // If the VIP moved, open connections would be cut off: that is not the subject here.
    let vip_holder = format!(" {}/", w.lab.vip());
    let lost = ["cp2", "cp4"].into_iter().find(|host| !w.on(host, "ip -4 addr").contains(&vip_holder));
    let lost = lost.expect("one of them does not hold the VIP");
    let stays = if lost == "cp2" { "cp4" } else { "cp2" };
    w.lab.kill(lost).expect("the power can be cut");
    w.hactl.run(&["status"]).exits(4);
    let three = [("cp1", STACKED, ""), (stays, STACKED, ""), ("cp3", STACKED, "")];
    inventory(w, &vip(w), &[three[0], three[1], three[2], ("cp5", "load-balancer, worker", "")]);
    let refused = in_one_line(&w.hactl.up().exits(3));
    assert!(refused.contains(&format!("up --prune {lost}")), "{refused}");
    let watched = Watched::start_beside(w, "w-dead", &["cp3", "cp5"]);
    let ran = w.hactl.run(&["up", "--yes", "--prune", lost]).ok().says(&format!("{lost} did not answer"));
    println!("        a dead host replaced, a balancer and a worker added, in {:.1?}", ran.took);
    watched.nobody_failed(w);
    let mut names = ["cp1", stays, "cp3", "cp5"];
    names.sort_unstable();
    assert_eq!(nodes(w), names.join(" "));
    let mut members: Vec<String> = ids(w, "cp1").into_iter().map(|(name, _)| name).collect();
    members.sort_unstable();
    let mut voters = ["cp1", stays, "cp3"];
    voters.sort_unstable();
    assert_eq!(members, voters);
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");
    w.wipe(lost);
}

/// Moves etcd's leadership to this host: the worst case for any change of its member.
pub fn move_leadership_to(w: &World, host: &str) {
    let members = ids(w, "cp1");
    let (_, id) = members.iter().find(|(name, _)| name == host).expect("a member");
    let leader = members.iter().map(|(name, _)| name).find(|name| leads(w, name)).expect("some member leads");
    if leader != host {
        let said = w.on(leader, &format!("{ETCDCTL} move-leader {id}"));
        assert!(said.contains("Leadership transferred"), "{said}");
    }
    wait_for("it leads", Duration::from_secs(10), || leads(w, host));
}

fn readdressed(w: &World) {
    only(w, &["cp1", "cp2", "cp4"]);
    let before = ids(w, "cp1");
    // If the VIP moved, open connections would be cut off: that is not the subject here.
    let vip = format!(" {}/", w.lab.vip());
    let host = ["cp2", "cp4"].into_iter().find(|host| !w.on(host, "ip -4 addr").contains(&vip)).expect("one of them");
    let old = w.lab.address(host).expect("the lab has it");
    let network = w.lab.network();
    let new = format!("{}.77", network.rsplit_once('.').expect("an address").0);
    let said = w.on(host, &format!("sudo ip addr add {new}/24 dev eth0 && echo done"));
    assert_eq!(said.trim(), "done");
    let path = w.lab.inventory();
    let text = std::fs::read_to_string(&path).expect("readable");
    let from = format!("{{name: {host}, address: {old}, ");
    assert!(text.contains(&from), "{text}");
    std::fs::write(&path, text.replace(&from, &format!("{{name: {host}, address: {new}, ssh: {{host: {old}}}, ")))
        .expect("writable");
    move_leadership_to(w, host);
    let watched = Watched::start(w, "w-readdressed");
    let begun = watched.reading.since;
    let change = |from: &str, to: &str| {
        let (ran, text) = (w.hactl.up().ok(), format!("member https://{from}:2380 to https://{to}:2380"));
        assert!(in_one_line(&ran).contains(&format!("change the peer URL of {text}")), "{}", ran.all());
        ran
    };
    let ran = change(&old.to_string(), &new);
    println!("        another address in {:.1?}", ran.took);
    watched.nobody_noticed(w);
    assert_eq!(ids(w, "cp1"), before, "the member IDs stay the same");
    w.well().says("3 voters, quorum 2, 3 healthy");
    // Its etcd still dials from the old address, which comes first on the interface.
    let since = begun.duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let rejected =
        format!("sudo journalctl -u etcd --since @{since} -o cat -q | grep -c 'rejected connection on peer endpoint'");
    for other in ["cp1", "cp2", "cp4"].into_iter().filter(|other| *other != host) {
        assert_eq!(w.on(other, &rejected).trim(), "0", "{other} accepts {host} from either address");
    }
    let ends = w.hactl.kubectl(&["get", "node", host, "-o", "jsonpath={.status.addresses[0].address}"]).ok().out;
    assert_eq!(ends, new);
    w.hactl.up().ok().says("nothing to do");
    std::fs::write(&path, text).expect("writable");
    change(&new, &old.to_string());
    w.on(host, &format!("sudo ip addr del {new}/24 dev eth0"));
    w.healthy(HEAL);
}

fn adopted(w: &World) {
    only(w, &["cp1", "cp2", "cp4"]);
    let before = ids(w, "cp1");
    let id = |all: &[(String, String)], name: &str| all.iter().find(|(n, _)| n == name).map(|(_, id)| id.clone());
    w.on("cp4", "sudo systemctl stop kubelet etcd keepalived");
    // The data moves to another host, and the old host is powered off.
    let mut take = w.lab.ssh("cp4").expect("the host exists");
    let taken = take.arg("sudo tar -C /var/lib/etcd -cf - .").output().expect("ssh runs");
    assert!(taken.status.success() && taken.stdout.len() > 1_000_000);
    w.lab.kill("cp4").expect("the power can be cut");
    let mut put = w.lab.ssh("cp3").expect("the host exists");
    put.arg("sudo mkdir -p /var/lib/etcd && sudo tar -C /var/lib/etcd -xf - && echo done")
        .stdin(std::process::Stdio::piped());
    let mut child = put.stdout(std::process::Stdio::piped()).spawn().expect("ssh runs");
    std::io::Write::write_all(child.stdin.as_mut().expect("piped"), &taken.stdout).expect("it takes it");
    assert_eq!(String::from_utf8_lossy(&child.wait_with_output().expect("it ends").stdout).trim(), "done");

    stacked(w, &["cp1", "cp2", "cp3"]);
    w.hactl.run(&["up", "--yes"]).exits(3);
    let ran = w.hactl.run(&["up", "--yes", "--prune", "cp4"]).ok().says("change the peer URL of member");
    println!("{}", ran.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    let after = ids(w, "cp1");
    assert_eq!(id(&after, "cp3"), id(&before, "cp4"), "the previous member under another name");
    assert_eq!(nodes(w), "cp1 cp2 cp3");
    w.well().says("3 voters, quorum 2, 3 healthy");
    w.hactl.up().ok().says("nothing to do");
    w.wipe("cp4");
}

fn kept(w: &World) {
    only(w, &["cp1", "cp2", "cp3"]);
    let three = [("cp1", STACKED, ""), ("cp2", STACKED, ""), ("cp3", STACKED, "")];
    inventory(w, &vip(w), &[three[0], three[1], three[2], ("cp5", "worker", "")]);
    w.hactl.up().ok();
    w.healthy(HEAL);
    inventory(w, &vip(w), &three);
    let said = in_one_line(&w.hactl.up().ok());
    assert!(said.contains("up --prune cp5"), "{said}");
    with_pod(&w.hactl, "cp5", || {
        let said = in_one_line(&w.hactl.run(&["up", "--yes", "--prune", "cp5"]).exits(1));
        assert!(said.contains("would be lost") && said.contains("default/on-cp5"), "{said}");
        assert!(nodes(w).contains("cp5"), "it stays");
    });
    let watched = Watched::start(w, "w-kept");
    let ran = w.hactl.run(&["up", "--yes", "--prune", "cp5"]).ok();
    println!("{}", ran.all().lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    watched.nobody_noticed(w);
    gone(w, "cp5", 3);
    w.hactl.up().ok().says("nothing to do");
}

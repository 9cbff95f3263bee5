//! The examples in `inventories/`, each on bare hosts with its own names: each becomes a cluster.

use super::{Scenario, World};
use hactl::inventory::topology::topology;
use hactl::inventory::{Loaded, Source, load};
use hactl::lab::{Base, HostSpec, Scoped, Spec};
use hactl::model::desired::EndpointKind;
use std::path::Path;

/// Each example that fits a lab, and the lab's name. `full.yaml` names a bond, files and a bastion; the external
/// endpoint and Vagrant's machines have suites of their own.
pub const EXAMPLES: &[(&str, &str, Scenario)] = &[
    ("t-x-min", "minimal.yaml", example("inventories/minimal.yaml becomes a cluster", false, comes_up)),
    ("t-x-one", "single.yaml", example("inventories/single.yaml becomes a cluster", false, comes_up)),
    ("t-x-three", "three-zones.yaml", example("inventories/three-zones.yaml becomes a cluster", false, comes_up)),
    ("t-x-zones", "five-zones.yaml", example("inventories/five-zones.yaml becomes a cluster", false, comes_up)),
    ("t-x-five", "five-members.yaml", example("inventories/five-members.yaml becomes a cluster", false, comes_up)),
    ("t-x-etcd", "separate-etcd.yaml", example("inventories/separate-etcd.yaml becomes a cluster", false, comes_up)),
    (
        "t-x-lb",
        "dedicated-balancers.yaml",
        example("inventories/dedicated-balancers.yaml becomes a cluster", false, comes_up),
    ),
    (
        "t-x-local",
        "local-balancers.yaml",
        example("inventories/local-balancers.yaml becomes a cluster", false, comes_up),
    ),
    (
        "t-x-gap",
        "air-gap.yaml",
        example("inventories/air-gap.yaml becomes a cluster on hosts without a route or a mirror", false, air_gap),
    ),
];

const fn example(name: &'static str, cut: bool, run: fn(&World)) -> Scenario {
    Scenario { name, cut, run }
}

/// Bare hosts with the names of the example, and its inventory with their addresses.
pub fn world(lab: &str, file: &str) -> World {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("inventories").join(file);
    let loaded = load(&Source::Path(path)).unwrap_or_else(|error| panic!("{file}:\n{error}"));
    let mut spec = Spec::new(lab);
    let host = |host: &hactl::model::desired::Host| HostSpec {
        name: host.name.to_string(),
        kind: host.roles[0],
        base: Base::default(),
    };
    spec.hosts = loaded.desired.hosts.iter().map(host).collect();
    let w = World::of(&spec);
    std::fs::write(w.lab.inventory(), for_the_lab(&loaded, &w.lab)).expect("the inventory is writable");
    w
}

/// The example verbatim, except for addresses and what the hosts of a lab need.
fn for_the_lab(loaded: &Loaded, lab: &Scoped) -> String {
    let mut text = loaded.text.clone();
    // Through placeholders: an address of the lab may also occur in the example.
    let mut places = Vec::new();
    for (index, host) in loaded.desired.hosts.iter().enumerate() {
        let address = lab.address(host.name.as_str()).expect("the lab has this host").to_string();
        places.push((
            format!("address: {}", host.address),
            format!("address: <{index}>"),
            format!("address: {address}"),
        ));
    }
    if let EndpointKind::Vip { address, .. } = &loaded.desired.endpoint.kind {
        places.push((format!("vip: {address}"), "vip: <vip>".to_owned(), format!("vip: {}", lab.vip())));
    }
    for (before, word, _) in &places {
        assert_eq!(text.matches(before.as_str()).count(), 1, "{before} occurs once in the example");
        text = text.replace(before, word);
    }
    for (_, word, after) in &places {
        text = text.replace(word, after);
    }
    let cluster = format!("cluster: {}\n", loaded.desired.cluster);
    text = text.replace(&cluster, &format!("cluster: {}\n", lab.name()));
    text + "ssh: {user: ops, identity: ./id_ed25519, known_hosts: ./known_hosts, config: none}\n"
        + &topology().containers
}

fn comes_up(w: &World) {
    super::shapes::up_from_bare(w);
}

/// The default route leads nowhere, there is no name server, and apt knows no package: all come from the bundle.
fn air_gap(w: &World) {
    let outside = machine();
    let reach = format!("ping -c 1 -W 2 {outside} >/dev/null && echo reached");
    for host in w.lab.hosts() {
        assert!(w.on(host, &reach).contains("reached"), "{host} has a route out at first");
        let nowhere = "sudo ip route replace default via $(ip -4 -o addr show eth0 | sed 's/.*inet \\([0-9.]*\\)\\.[0-9]*\\/.*/\\1/').254 \
                       && echo 'nameserver 192.0.2.53' | sudo tee /etc/resolv.conf";
        assert!(w.on(host, nowhere).contains("192.0.2.53"), "{host} has no name server");
        assert!(!w.on(host, &reach).contains("reached"), "{host} has no route out any more");
        let forget = "sudo rm -rf /etc/apt/sources.list /etc/apt/sources.list.d && sudo apt-get clean \
                      && sudo find /var/lib/apt/lists -type f -delete";
        w.on(host, forget);
        let install = w.on(host, "sudo apt-get install --simulate haproxy >/dev/null 2>&1 || echo refused");
        assert_eq!(install.trim(), "refused", "{host} has no package");
    }
    super::shapes::up_from_bare(w);
    for host in w.lab.hosts() {
        let held = if host == "w1" { "" } else { "haproxy\nkeepalived" };
        assert_eq!(w.on(host, "apt-mark showhold").trim(), held, "{host}");
        let parts = w.on(host, "sudo sh -c 'ls -d /var/lib/hactl/parts/*/packages /var/lib/hactl/repository'");
        assert_eq!(parts.lines().count(), usize::from(!held.is_empty()), "{host} has the part that it needs: {parts}");
    }
    let ask = format!("curl -sk https://{}:6443/readyz", w.lab.vip());
    assert_eq!(w.on("w1", &ask), "ok", "the load balancers lead to an API server");
    w.hactl.run(&["down", "--wipe", "--yes"]).ok();
}

/// This machine's own address outside the lab, which hosts reach only through their default route.
fn machine() -> String {
    let route =
        std::process::Command::new("ip").args(["-4", "-o", "route", "get", "192.0.2.1"]).output().expect("ip runs");
    let text = String::from_utf8_lossy(&route.stdout).into_owned();
    let mut words = text.split_whitespace().skip_while(|word| *word != "src");
    words.nth(1).expect("the machine has an address").to_owned()
}

//! Pods and hosts that attempt what they may not do, and units that are confined to what they need.

use super::bare_hosts::variant;
use super::cis::{Level, judged};
use super::failures::holder_of;
use super::support::wait_for;
use super::{Scenario, World, in_one_line, with_pod};
use std::process::Child;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "VRRP adverts from pods and from other hosts do not move the VIP", cut: false, run: adverts },
    Scenario {
        name: "flannel's token patches only flannel's fields of its own Node, and up repairs edited annotations",
        cut: false,
        run: flannels_token,
    },
    Scenario {
        name: "confined units do their work and cannot write outside their directories",
        cut: false,
        run: confined,
    },
    Scenario {
        name: "the cis profile is refused without registries, restricts pods once it is applied, and fails no check",
        cut: false,
        run: cis,
    },
];

pub const LAST: &[Scenario] = &[Scenario { name: "down removes the packet filter", cut: false, run: filter_goes }];

const BALANCERS: [&str; 3] = ["cp1", "cp2", "cp3"];

/// Sends adverts with a priority above all others. Arguments: seconds, source address, whether it is forged, TTL, VIP,
/// router ID, target.
const ADVERTS: &str = r#"
use Socket; ($n,$s,$f,$t,$v,$id,$d)=@ARGV;
socket(S,AF_INET,SOCK_RAW,112) or die "socket: $!";
setsockopt(S,0,$f?3:2,pack("i",$f?1:$t)) or die "option: $!";
sub sum{my $t=0;$t+=$_ for unpack"n*",$_[0];$t=($t>>16)+($t&65535) while $t>>16;~$t&65535}
$p=pack"CCCCnna4",0x31,$id,254,1,20,0,inet_aton$v;
substr($p,6,2)=pack"n",sum(inet_aton($s).inet_aton($d).pack("CCn",0,112,length$p).$p);
$p=pack("CCnnnCCna4a4",0x45,0,20+length$p,0,0,$t,112,0,inet_aton($s),inet_aton($d)).$p if $f;
$e=time+$n; while(time<$e){$k++ if send S,$p,0,sockaddr_in(0,inet_aton$d);select undef,undef,undef,.1}
print "sent $k\n";
"#;

/// One sender: a host, or the network namespace of a pod on it.
struct Sender<'a> {
    on: &'a str,
    pod: bool,
    source: &'a str,
    forged: bool,
    ttl: u8,
    to: &'a str,
}

impl Sender<'_> {
    fn start(&self, w: &World, seconds: u32) -> Child {
        let address = |host: &str| w.on(host, "hostname -I | cut -d' ' -f1").trim().to_owned();
        let config = w.on("cp1", "sudo cat /etc/keepalived/keepalived.conf");
        let id = config.split_once("virtual_router_id ").and_then(|(_, rest)| rest.split_whitespace().next());
        let (vip, vrid) = (w.lab.vip(), id.expect("keepalived's configuration has it"));
        let within = if self.pod { "nsenter -n -t $(pgrep -x coredns | head -1) --" } else { "" };
        let command = format!(
            "sudo {within} perl -e '{ADVERTS}' {seconds} {} {} {} {vip} {vrid} {}",
            address(self.source),
            u8::from(self.forged),
            self.ttl,
            address(self.to)
        );
        let mut ssh = w.lab.ssh(self.on).expect("the host exists");
        ssh.arg(command).stdout(std::process::Stdio::piped()).spawn().expect("ssh can be started")
    }
}

fn sent(sender: Child) {
    let output = sender.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    let count: u32 = said.trim().strip_prefix("sent ").and_then(|n| n.parse().ok()).unwrap_or(0);
    assert!(count > 10, "it sent adverts: {said}");
}

/// How many packets a host's filter has dropped.
fn dropped(w: &World, host: &str) -> u64 {
    let chain = w.on(host, "sudo nft list chain inet hactl_vrrp input");
    let count = chain.split_once("counter packets ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    count.unwrap_or_else(|| panic!("{host} has the filter: {chain}"))
}

fn filtered(w: &World, host: &str) -> bool {
    w.on(host, "sudo nft list tables").contains("table inet hactl_vrrp")
}

/// Adverts from the worker to each balancer, with another balancer as their source.
const FORGED: [Sender<'static>; 3] = [
    Sender { on: "w1", pod: false, source: "cp2", forged: true, ttl: 64, to: "cp1" },
    Sender { on: "w1", pod: false, source: "cp3", forged: true, ttl: 64, to: "cp2" },
    Sender { on: "w1", pod: false, source: "cp1", forged: true, ttl: 64, to: "cp3" },
];

fn adverts(w: &World) {
    w.hactl.up().ok();
    w.healthy(Duration::from_secs(180));
    // Without the filter these adverts take the address away, which shows that they are effective.
    for host in BALANCERS {
        w.on(host, "sudo systemctl stop hactl-vrrp-filter");
        assert!(!filtered(w, host), "stopping it removes its table on {host}");
    }
    let (vip, first) = (format!(" {}/", w.lab.vip()), holder_of(w));
    let senders = FORGED.map(|sender| sender.start(w, 12));
    let holds = |host: &str| w.on(host, "ip -4 addr").contains(&vip);
    wait_for("the address leaves its holder", Duration::from_secs(12), || !holds(first));
    senders.into_iter().for_each(sent);
    w.hactl.run(&["plan", "-v"]).ok().says("start hactl-vrrp-filter.service");
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
    w.on("cp1", "sudo nft delete table inet hactl_vrrp");
    wait_for("a removed table is restored", Duration::from_secs(15), || filtered(w, "cp1"));

    wait_for("one host holds the address", Duration::from_secs(20), || {
        BALANCERS.iter().filter(|host| holds(host)).count() == 1
    });
    let holder = holder_of(w);
    let before = BALANCERS.map(|host| dropped(w, host));
    with_pod(&w.hactl, "w1", || {
        with_pod(&w.hactl, "cp1", || {
            let of = |on, pod, source, forged, ttl, to| Sender { on, pod, source, forged, ttl, to };
            let mut senders: Vec<Sender> = FORGED.into();
            for to in BALANCERS {
                senders.push(of("w1", false, "w1", false, 255, to));
                senders.push(of("w1", true, "w1", false, 255, to));
            }
            // These are masqueraded, so they arrive from the address of a balancer; the last one is forged as well.
            senders.push(of("cp1", true, "cp1", false, 255, "cp2"));
            senders.push(of("cp1", true, "cp1", false, 255, "cp3"));
            senders.push(of("cp1", true, "cp2", true, 255, "cp1"));
            let reads = w.api().reads(Duration::from_millis(100));
            let running: Vec<Child> = senders.iter().map(|sender| sender.start(w, 8)).collect();
            running.into_iter().for_each(sent);
            let reads = reads.end();
            let failed: Vec<_> = reads.iter().filter(|read| read.2.is_some()).collect();
            assert!(reads.len() > 40 && failed.is_empty(), "{} of {} failed: {failed:?}", failed.len(), reads.len());
        });
    });
    assert_eq!(holder_of(w), holder, "the VIP stayed");
    for (host, before) in BALANCERS.into_iter().zip(before) {
        assert!(dropped(w, host) > before, "adverts reached {host}");
    }
    w.healthy(Duration::from_secs(60));
}

/// A token of flannel's service account, bound to its pod on this host as the kubelet requests it; without a host, a
/// token that is bound to no pod.
fn token(w: &World, host: Option<&str>) -> String {
    let create = ["-n", "kube-flannel", "create", "token", "flannel"];
    let Some(host) = host else { return w.hactl.kubectl(&create).ok().out.trim().to_owned() };
    let field = format!("--field-selector=spec.nodeName={host}");
    let pod = [
        "-n",
        "kube-flannel",
        "get",
        "pods",
        &field,
        "-o",
        "jsonpath={.items[0].metadata.name} {.items[0].metadata.uid}",
    ];
    let pod = w.hactl.kubectl(&pod).ok().out;
    let (name, uid) = pod.trim().split_once(' ').expect("flannel runs there");
    let (name, uid) = (format!("--bound-object-name={name}"), format!("--bound-object-uid={uid}"));
    let all = [&create[..], &["--bound-object-kind=Pod", &name, &uid]].concat();
    w.hactl.kubectl(&all).ok().out.trim().to_owned()
}

/// The HTTP status of a patch of a Node's status.
fn patched(w: &World, token: &str, node: &str, kind: &str, body: &str) -> String {
    let at = w.lab.address("cp2").expect("the lab has this host");
    w.on(
        "w1",
        &format!(
            "curl -sk -o /dev/null -w '%{{http_code}}' -X PATCH -H 'Authorization: Bearer {token}' -H 'Content-Type: application/{kind}-patch+json' \
             -d '{body}' https://{at}:6443/api/v1/nodes/{node}/status"
        ),
    )
}

fn flannels_token(w: &World) {
    w.hactl.up().ok();
    let (own, nobody) = (token(w, Some("w1")), token(w, None));
    let flannel = |key: &str, value: &str| {
        format!(r#"{{"metadata":{{"annotations":{{"flannel.alpha.coreos.com/{key}":"{value}"}}}}}}"#)
    };
    let here = w.lab.address("w1").expect("the lab has this host").to_string();
    let unavailable =
        r#"{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False","reason":"FlannelIsUp"}]}}"#;
    for (kind, body) in [
        ("merge", flannel("backend-type", "vxlan")),
        ("merge", flannel("public-ip", &here)),
        ("strategic-merge", unavailable.to_owned()),
    ] {
        assert_eq!(patched(w, &own, "w1", kind, &body), "200", "flannel does this: {body}");
        assert_eq!(patched(w, &own, "cp1", kind, &body), "403", "to another Node: {body}");
        assert_eq!(patched(w, &nobody, "w1", kind, &body), "403", "by a token of no pod: {body}");
    }
    let gateway = w.gateway().to_string();
    for body in [
        flannel("public-ip", &gateway),
        flannel("public-ip-overwrite", &gateway),
        r#"{"metadata":{"labels":{"evil":"yes"}}}"#.to_owned(),
        r#"{"metadata":{"labels":{"kubernetes.io/os":null}}}"#.to_owned(),
        r#"{"metadata":{"annotations":{"hactl.dev/owns":"{}"}}}"#.to_owned(),
        r#"{"metadata":{"annotations":{"hactl.dev/owns":null}}}"#.to_owned(),
        r#"{"metadata":{"finalizers":["example.org/evil"]}}"#.to_owned(),
        r#"{"status":{"capacity":{"evil.com/gpu":"8"}}}"#.to_owned(),
        r#"{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}"#.to_owned(),
        r#"{"status":{"conditions":[{"type":"Ready","status":"False"}]}}"#.to_owned(),
        r#"{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":1}}}}"#.to_owned(),
    ] {
        assert_eq!(patched(w, &own, "w1", "merge", &body), "403", "{body}");
    }
    // flannel itself still does its work.
    w.hactl.kubectl(&["-n", "kube-flannel", "rollout", "restart", "daemonset/flannel"]).ok();
    w.hactl.kubectl(&["-n", "kube-flannel", "rollout", "status", "daemonset/flannel", "--timeout=150s"]).ok();
    w.healthy(Duration::from_secs(120));

    let address = format!("flannel.alpha.coreos.com/public-ip={gateway}");
    w.hactl.kubectl(&["annotate", "--overwrite", "node", "cp1", &address]).ok();
    let status = w.hactl.run(&["status"]).exits(4);
    assert!(
        in_one_line(&status).contains(&format!("routes the traffic for its pods to {gateway}")),
        "{}",
        status.all()
    );
    w.hactl.up().ok();
    let at = ["get", "node", "cp1", "-o", "jsonpath={.metadata.annotations.flannel\\.alpha\\.coreos\\.com/public-ip}"];
    assert_eq!(w.hactl.kubectl(&at).ok().out.trim(), w.lab.address("cp1").expect("the lab has this host").to_string());
    w.hactl.up().ok().says("nothing to do");
}

/// A property of a unit, as systemd shows it.
fn property(w: &World, host: &str, unit: &str, name: &str) -> String {
    w.on(host, &format!("systemctl show --property={name} --value {unit}")).trim().to_owned()
}

/// A kubelet without a serving certificate gets one.
fn approves(w: &World) {
    let current = "/var/lib/kubelet/pki/kubelet-server-current.pem";
    w.on("w1", &format!("sudo rm {current} && sudo systemctl restart kubelet"));
    let there = || w.on("w1", &format!("sudo test -e {current} && echo there")).contains("there");
    wait_for("w1's kubelet has a serving certificate", Duration::from_secs(90), there);
}

fn confined(w: &World) {
    let hactl = variant(w, "confined.yaml", |text| {
        format!("{text}snapshots: {{drill: daily}}\ncertificates: {{unattended: 90d}}\n")
    });
    hactl.up().ok();
    assert_eq!(property(w, "cp1", "hactl-approver", "DynamicUser"), "yes");
    let user = w.on("cp1", "ps -o user= -p $(systemctl show --property=MainPID --value hactl-approver)");
    assert!(!user.trim().is_empty() && user.trim() != "root", "the approver runs as {user}");
    approves(w);
    // The approver reads a new key when it is restarted.
    for host in BALANCERS {
        w.on(host, "sudo rm /etc/kubernetes/pki/approver.crt");
    }
    hactl.up().ok();
    approves(w);
    hactl.up().ok().says("nothing to do");
    for unit in
        ["etcd", "haproxy", "hactl-etcd-balancer", "hactl-approver", "kubelet", "keepalived", "hactl-vrrp-filter"]
    {
        let limit = "grep -c 'Max core file size *0 *0 ' /proc/$(systemctl show --property=MainPID --value";
        // hactl does not restart haproxy and keepalived for this: they are confined from their next start.
        w.on(
            "cp1",
            &format!("case {unit} in haproxy|hactl-etcd-balancer|keepalived) sudo systemctl restart {unit} ;; esac"),
        );
        assert_eq!(w.on("cp1", &format!("sudo {limit} {unit})/limits")).trim(), "1", "{unit} may write core dumps");
    }
    for (unit, path) in [
        ("etcd", "/etc/hactl/x"),
        ("hactl-etcd-balancer", "/etc/hactl/x"),
        ("hactl-approver", "/var/lib/hactl/x"),
        ("haproxy", "/var/lib/hactl/x"),
    ] {
        let inside = format!("sudo nsenter -m -t $(systemctl show --property=MainPID --value {unit})");
        let said = w.on("cp1", &format!("{inside} touch {path} 2>&1"));
        assert!(said.contains("Read-only file system"), "{unit} may write to {path}: {said}");
    }
    assert!(w.on("cp1", "tr '\\0' ' ' < /proc/$(pgrep -x etcd)/cmdline").contains("--data-dir=/var/lib/etcd"));
    for service in ["hactl-snapshot", "hactl-drill", "hactl-renew"] {
        w.on("cp2", &format!("sudo systemctl start {service}"));
        let (result, code) = (property(w, "cp2", service, "Result"), property(w, "cp2", service, "ExecMainStatus"));
        let said = w.on("cp2", &format!("sudo journalctl -u {service} -n 8 -o cat --no-pager"));
        assert_eq!((result.as_str(), code.as_str()), ("success", "0"), "{service}: {said}");
    }
    w.healthy(Duration::from_secs(120));
    w.hactl.up().ok();
}

fn cis(w: &World) {
    let cis = |more: &str| {
        let more = more.to_owned();
        variant(w, "cis.yaml", move |text| {
            text.replace("ignore: [time-synchronised]", &format!("ignore: [time-synchronised{more}]"))
                + "controlPlane: {security: cis}\n"
        })
    };
    let refused = cis("").up().exits(3).says("Nothing was changed");
    let said = in_one_line(&refused);
    assert!(said.contains("AlwaysPullImages") && said.contains("[registries]"), "{said}");
    // The check can be ignored explicitly. Then `up` fails later if an image must be pulled.
    let ran = cis(", registries").up();
    assert!(ran.code == 0 || ran.code == 1, "{}", ran.all());
    let pod = ["run", "raw", "--image=registry.k8s.io/pause:3.10.1"];
    cis("").kubectl(&pod).exits(1).says("violates PodSecurity \"restricted");
    for path in
        ["/etc/systemd/system/kubelet.service", "/etc/kubernetes/pki/ca.crt", "/etc/cni/net.d/10-flannel.conflist"]
    {
        assert_eq!(w.on("cp1", &format!("sudo stat -c %a {path}")).trim(), "600", "{path}");
    }
    judged(w, Level::Cis);
    w.hactl.up().ok();
    w.healthy(Duration::from_secs(180));
}

fn filter_goes(w: &World) {
    w.hactl.run(&["down", "--wipe", "--yes"]).ok();
    for host in BALANCERS {
        assert!(!filtered(w, host), "{host}");
    }
}

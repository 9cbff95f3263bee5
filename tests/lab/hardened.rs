//! Pods and other hosts that try what is not theirs to do, and units that may do no more than they need.

use super::failures::holder_of;
use super::support::wait_for;
use super::{Scenario, World, with_pod};
use std::process::Child;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "VRRP adverts of pods and of other hosts leave the endpoint's address where it is",
    cut: true,
    run: adverts,
}];

pub const LAST: &[Scenario] =
    &[Scenario { name: "down takes the packet filter along", cut: false, run: filter_goes }];

const BALANCERS: [&str; 3] = ["cp1", "cp2", "cp3"];

/// Adverts of a higher priority than any: seconds, the source that they arrive with, whether it is forged, TTL, VIP, router id, target.
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

/// One sender: from a host or from the network of a pod on it.
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

/// Adverts that name another balancer as their sender, to each of them, from the worker.
const FORGED: [Sender<'static>; 3] = [
    Sender { on: "w1", pod: false, source: "cp2", forged: true, ttl: 64, to: "cp1" },
    Sender { on: "w1", pod: false, source: "cp3", forged: true, ttl: 64, to: "cp2" },
    Sender { on: "w1", pod: false, source: "cp1", forged: true, ttl: 64, to: "cp3" },
];

fn adverts(w: &World) {
    w.hactl.up().ok();
    w.healthy(Duration::from_secs(180));
    // That these senders take the address away where nothing filters shows that they are worth filtering.
    for host in BALANCERS {
        w.on(host, "sudo systemctl stop hactl-vrrp-filter");
        assert!(!filtered(w, host), "stopped, it takes its table along on {host}");
    }
    let senders = FORGED.map(|sender| sender.start(w, 12));
    let vip = format!(" {}/", w.lab.vip());
    let holds = |host: &&str| w.on(host, "ip -4 addr").contains(&vip);
    wait_for("nobody holds the address", Duration::from_secs(10), || !BALANCERS.iter().any(holds));
    senders.into_iter().for_each(sent);
    w.hactl.run(&["plan", "-v"]).ok().says("start hactl-vrrp-filter.service");
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
    w.on("cp1", "sudo nft delete table inet hactl_vrrp");
    wait_for("a table that somebody removed is back", Duration::from_secs(15), || filtered(w, "cp1"));

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
            // Masqueraded, they come from a balancer's own address, and forged ones need not even be that.
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
    assert_eq!(holder_of(w), holder, "the address stayed");
    for (host, before) in BALANCERS.into_iter().zip(before) {
        assert!(dropped(w, host) > before, "adverts reached {host}");
    }
    w.healthy(Duration::from_secs(60));
}

fn filter_goes(w: &World) {
    w.hactl.run(&["down", "--wipe", "--yes"]).ok();
    for host in BALANCERS {
        assert!(!filtered(w, host), "{host}");
    }
}

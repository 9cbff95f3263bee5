//! Hosts in the wrong hands: root there edits what hactl's own side says of etcd. What one host says moves nobody else's member, and poisons no
//! recovery.

use super::recover::recover;
use super::support::{ETCDCTL, wait_for};
use super::{Scenario, World, in_one_line};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a worker that says who etcd's members are is named, and changes nothing",
        cut: false,
        run: worker_dictates,
    },
    Scenario {
        name: "a member that says who etcd's members are is outvoted, and changes nothing",
        cut: false,
        run: member_dictates,
    },
    Scenario {
        name: "a host puts no data away while its member serves, whoever asks for it",
        cut: false,
        run: host_refuses,
    },
    Scenario {
        name: "two etcd hosts lost their disks, and what liars say of revisions and a quorum neither forbids nor poisons the recovery",
        cut: false,
        run: poison,
    },
];

const HOSTS: [&str; 3] = ["cp1", "cp2", "cp3"];
const BOOT: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(180);

/// Stands in for sudo: runs what it is asked to, and edits each answer of `hactl host` by the lie in /etc/hostile.
const HOSTILE: &str = r#"#!/usr/bin/perl
$a="@ARGV"; exec '/usr/bin/sudo',@ARGV unless $a=~m{/hactl host$};
open($o,'-|')//die or exec '/usr/bin/sudo',@ARGV; binmode $o; binmode STDOUT; $|=1;
$r=do{local(@ARGV,$/)=('/etc/hostile');<>};
sub get{my($n,$p)=(shift,'');while(length$p<$n){read($o,$p,$n-length$p,length$p)||exit}$p}
for(;;){($n,$k)=unpack'Na',get(5);$_=get($n);eval$r if$k eq'J';print pack('Na',length,$k).$_}
"#;

/// Asks hactl's own side on a host to put its member's data away, as a run would that holds the lock.
const ASKED: &str = r#"
use IPC::Open2; $p=open2($o,$i,'sudo',(glob'/var/lib/hactl/bin/*/hactl /var/lib/hactl/bin/hactl*')[0],'host'); binmode $_ for $o,$i;
sub get{my($n,$p)=(shift,'');while(length$p<$n){read($o,$p,$n-length$p,length$p)||exit}$p}
sub ask{my($n,$e,$op)=@_;my$t=qq({"id":$n,"epoch":$e,"op":$op});print $i pack('Na',length$t,'J').$t;$i->flush;
  for(;;){my($l,$k)=unpack'Na',get(5);my$a=get($l);return $a if $a=~/"Answer"/}}
$l=ask(1,0,'{"Lock":{"holder":"somebody who was lied to"}}'); ($e)=$l=~/"epoch":(\d+)/;
print ask(2,$e,'{"MoveAside":{"url":"https://127.0.0.1:2379","data_dir":"/var/lib/etcd","ca":"/etc/etcd/pki/ca.crt","cert":"CERT","key":"KEY"}}');
"#;

/// Puts a text into a file of a host.
fn put(w: &World, host: &str, path: &str, mode: u32, text: &str) {
    let coded = STANDARD.encode(text);
    w.on(host, &format!("echo {coded} | base64 -d | sudo tee {path} >/dev/null; sudo chmod {mode:o} {path}"));
}

/// From now on a host lies.
fn lies(w: &World, host: &str, lie: &str) {
    put(w, host, "/etc/hostile", 0o644, lie);
    put(w, host, "/usr/local/bin/sudo", 0o755, HOSTILE);
}

fn tells_the_truth(w: &World, host: &str) {
    w.on(host, "/usr/bin/sudo rm -f /usr/local/bin/sudo /etc/hostile");
}

/// The cluster's id, and the members as a view lists them without the first host's.
fn truth(w: &World) -> (String, String) {
    let cluster = w.on("cp2", "sudo cat /var/lib/etcd/hactl-born").trim().to_owned();
    let list = w.on("cp2", &format!("{ETCDCTL} member list -w simple"));
    let member = |line: &str| {
        let fields: Vec<&str> = line.split(", ").collect();
        let id = u64::from_str_radix(fields.first()?, 16).ok()?;
        Some(format!("[{id},\"{}\",\"{}\",false]", fields.get(2)?, fields.get(3)?))
    };
    let members = list.lines().filter(|line| !line.contains("cp1")).filter_map(member).collect::<Vec<_>>().join(",");
    (cluster, format!("[{members}]"))
}

/// What a host says that has no member: a view of this cluster and these members.
fn view(cluster: &str, members: &str, revision: i64, linearizable: bool) -> String {
    format!(
        "s#\"view\":null,\"trouble\":(null|\"[^\"]*\")#\"view\":{{\"cluster\":\"{cluster}\",\"member\":1,\"leader\":1,\"term\":999999,\"applied\":999999,\
         \"revision\":{revision},\"db_bytes\":0,\"in_use_bytes\":0,\"quota_bytes\":0,\"version\":\"3.6.16\",\"learner\":false,\
         \"linearizable\":{linearizable},\"members\":{members},\"alarms\":[]}},\"trouble\":null# if /\"Facts\":/"
    )
}

/// What must not have changed: each member's process, and what lies in its directory.
fn untouched(w: &World) -> Vec<String> {
    let one = |host| w.on(host, "systemctl show -p MainPID --value etcd; /usr/bin/sudo ls -d /var/lib/etcd/*");
    HOSTS.map(one).to_vec()
}

fn worker_dictates(w: &World) {
    w.hactl.up().ok();
    let ((cluster, members), before) = (truth(w), untouched(w));
    for named in [cluster.as_str(), "1"] {
        lies(w, "w1", &view(named, &members, 99_999_999, true));
        let plan = w.hactl.run(&["plan", "--exit-code"]).exits(0);
        assert!(in_one_line(&plan).contains("w1 is not believed"), "{}", plan.all());
        w.hactl.up().ok().says("w1 is not believed").says("nothing to do");
        assert_eq!(untouched(w), before, "nobody is touched for what a worker says");
    }
    tells_the_truth(w, "w1");
    w.healthy(HEAL);
}

fn member_dictates(w: &World) {
    w.hactl.up().ok();
    let ((_, members), before) = (truth(w), untouched(w));
    let list = format!(
        "s#\"members\":\\[\\[.*?\\]\\],\"alarms\"#\"members\":{members},\"alarms\"#; s#\"term\":\\d+#\"term\":999999#"
    );
    lies(w, "cp3", &list);
    let plan = w.hactl.run(&["plan", "--exit-code"]).exits(0);
    assert!(in_one_line(&plan).contains("cp3 is not believed"), "{}", plan.all());
    // That one member cannot be judged stays a failure of the checks.
    w.hactl.up().says("cp3");
    assert_eq!(untouched(w), before, "nobody is touched for what one member says");
    lies(w, "cp3", &format!("{list}; s#\"cluster\":\"[0-9a-f]+\",\"member\"#\"cluster\":\"1\",\"member\"#"));
    w.hactl.run(&["plan", "--exit-code"]).exits(3).says("disputed").says("cluster 1");
    w.hactl.up().exits(3).says("cp3");
    w.hactl.run(&["recover", "--yes"]).exits(3).says("disputed");
    assert_eq!(untouched(w), before, "nobody is touched while it is disputed");
    tells_the_truth(w, "cp3");
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");
}

fn host_refuses(w: &World) {
    w.hactl.up().ok();
    let before = untouched(w);
    let asked = ASKED
        .replace("CERT", "/etc/kubernetes/pki/apiserver-etcd-client.crt")
        .replace("KEY", "/etc/kubernetes/pki/apiserver-etcd-client.key");
    put(w, "cp2", "/tmp/ask.pl", 0o644, &asked);
    let said = w.on("cp2", "timeout 60 perl /tmp/ask.pl 2>&1");
    assert!(said.contains("its etcd member serves"), "{said}");
    assert_eq!(untouched(w), before);
    w.healthy(HEAL);
}

fn poison(w: &World) {
    w.hactl.up().ok();
    let (cluster, members) = truth(w);
    let highest = "s#\"high_water\":null#\"high_water\":9223372036854775807#";
    for host in ["cp1", "cp2"] {
        w.lab.wipe(host).expect("the disks can be lost");
    }
    for host in ["cp1", "cp2"] {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    // That one who lost its member claims a quorum is refused with names: no cluster is restored beside one that may live.
    lies(w, "cp1", &view(&cluster, &members, 1000, true));
    recover(w, &["--dry-run"]).exits(3).says("disputed").says("cp1");
    lies(w, "cp1", &format!("{}; {highest}", view(&cluster, &members, i64::MAX, false)));
    lies(w, "w1", &format!("{}; {highest}", view(&cluster, &members, i64::MAX, true)));
    let told = recover(w, &["--dry-run"]).ok();
    let base = base(&in_one_line(&told));
    assert!((1_000_000_000..1_100_000_000).contains(&base), "the recovery would begin at {base}");
    assert!(in_one_line(&told).contains("cp1 is not believed"), "{}", told.all());
    let ran = recover(w, &["--yes"]).says("etcd is recovered from cp3");
    assert!(in_one_line(&ran).contains("cp1 is not believed"), "{}", ran.all());
    let kept = w.on("cp3", "sudo cat /var/lib/hactl/high-water");
    assert!(kept.trim().parse::<i64>().is_ok_and(|kept| kept < 1_100_000_000), "{kept}");
    for host in ["cp1", "w1"] {
        tells_the_truth(w, host);
    }
    w.hactl.up().ok();
    w.healthy(HEAL);
    wait_for("it takes writes", BOOT, || w.hactl.kubectl(&["create", "configmap", "after-the-lies"]).code == 0);
    w.hactl.kubectl(&["delete", "configmap", "after-the-lies"]).ok();
}

/// The revision above which a proposal says that all goes on.
fn base(told: &str) -> i64 {
    let rest = told.split_once("continues above ").expect("a proposal").1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a revision")
}

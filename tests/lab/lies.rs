//! Compromised hosts: root edits the answers of `hactl host` about etcd. The claims of one host affect no other member
//! and do not corrupt a recovery.

use super::recover::recover;
use super::support::{ETCDCTL, wait_for};
use super::{Scenario, World, in_one_line};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a worker that invents a member list is named, and nothing changes",
        cut: false,
        run: worker_dictates,
    },
    Scenario {
        name: "a member that invents a member list is outvoted, and nothing changes",
        cut: false,
        run: member_dictates,
    },
    Scenario { name: "a host refuses to archive its etcd data while its member serves", cut: false, run: host_refuses },
    Scenario {
        name: "two etcd hosts lost their disks, and false claims about revisions do not corrupt the recovery",
        cut: false,
        run: poison,
    },
];

const HOSTS: [&str; 3] = ["cp1", "cp2", "cp3"];
const BOOT: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(180);

/// Stands in for sudo: runs the command, and edits each answer of `hactl host` with the Perl code in /etc/hostile.
const HOSTILE: &str = r#"#!/usr/bin/perl
$a="@ARGV"; exec '/usr/bin/sudo',@ARGV unless $a=~m{/hactl host$};
open($o,'-|')//die or exec '/usr/bin/sudo',@ARGV; binmode $o; binmode STDOUT; $|=1;
$r=do{local(@ARGV,$/)=('/etc/hostile');<>};
sub get{my($n,$p)=(shift,'');while(length$p<$n){read($o,$p,$n-length$p,length$p)||exit}$p}
for(;;){($n,$k)=unpack'Na',get(5);$_=get($n);eval$r if$k eq'J';print pack('Na',length,$k).$_}
"#;

/// Asks `hactl host` to archive the data of its member, as a run that holds the lock would.
const ASKED: &str = r#"
use IPC::Open2; $p=open2($o,$i,'sudo',(glob'/var/lib/hactl/bin/*/hactl /var/lib/hactl/bin/hactl*')[0],'host'); binmode $_ for $o,$i;
sub get{my($n,$p)=(shift,'');while(length$p<$n){read($o,$p,$n-length$p,length$p)||exit}$p}
sub ask{my($n,$e,$op)=@_;my$t=qq({"id":$n,"epoch":$e,"op":$op});print $i pack('Na',length$t,'J').$t;$i->flush;
  for(;;){my($l,$k)=unpack'Na',get(5);my$a=get($l);return $a if $a=~/"Answer"/}}
$l=ask(1,0,'{"Lock":{"holder":"a run that was deceived"}}'); ($e)=$l=~/"epoch":(\d+)/;
print ask(2,$e,'{"ArchiveData":{"url":"https://127.0.0.1:2379","data_dir":"/var/lib/etcd","ca":"/etc/etcd/pki/ca.crt","cert":"CERT","key":"KEY"}}');
"#;

/// Writes a text into a file of a host.
fn put(w: &World, host: &str, path: &str, mode: u32, text: &str) {
    let coded = STANDARD.encode(text);
    w.on(host, &format!("echo {coded} | base64 -d | sudo tee {path} >/dev/null; sudo chmod {mode:o} {path}"));
}

/// Makes a host lie from now on.
fn lies(w: &World, host: &str, lie: &str) {
    put(w, host, "/etc/hostile", 0o644, lie);
    put(w, host, "/usr/local/bin/sudo", 0o755, HOSTILE);
}

fn stop_lying(w: &World, host: &str) {
    w.on(host, "/usr/bin/sudo rm -f /usr/local/bin/sudo /etc/hostile");
}

/// The cluster ID, and the member list as in a view, without cp1's member.
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

/// Edits the answer of a host without a member: it reports a view of this cluster with these members.
fn view(cluster: &str, members: &str, revision: i64, linearizable: bool) -> String {
    format!(
        "s#\"view\":null,\"trouble\":(null|\"[^\"]*\")#\"view\":{{\"cluster\":\"{cluster}\",\"member\":1,\"leader\":1,\"term\":999999,\"applied\":999999,\
         \"revision\":{revision},\"db_bytes\":0,\"in_use_bytes\":0,\"quota_bytes\":0,\"version\":\"3.6.16\",\"learner\":false,\
         \"linearizable\":{linearizable},\"members\":{members},\"alarms\":[]}},\"trouble\":null# if /\"Facts\":/"
    )
}

/// State that must not change: the process of each member, and the files in its data directory.
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
        assert_eq!(untouched(w), before, "no member changes because of a worker's claims");
    }
    stop_lying(w, "w1");
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
    // The checks still fail, because one member cannot be judged.
    w.hactl.up().says("cp3");
    assert_eq!(untouched(w), before, "no member changes because of one member's claims");
    lies(w, "cp3", &format!("{list}; s#\"cluster\":\"[0-9a-f]+\",\"member\"#\"cluster\":\"1\",\"member\"#"));
    w.hactl.run(&["plan", "--exit-code"]).exits(3).says("disputed").says("cluster 1");
    w.hactl.up().exits(3).says("cp3");
    w.hactl.run(&["recover", "--yes"]).exits(3).says("disputed");
    assert_eq!(untouched(w), before, "no member changes while the cluster is disputed");
    stop_lying(w, "cp3");
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
    // A host that lost its member claims a quorum. Recovery is refused and names it: no cluster is restored beside one
    // that may still run.
    lies(w, "cp1", &view(&cluster, &members, 1000, true));
    recover(w, &["--dry-run"]).exits(3).says("disputed").says("cp1");
    lies(w, "cp1", &format!("{}; {highest}", view(&cluster, &members, i64::MAX, false)));
    lies(w, "w1", &format!("{}; {highest}", view(&cluster, &members, i64::MAX, true)));
    let shown = recover(w, &["--dry-run"]).ok();
    let base = base(&in_one_line(&shown));
    assert!((1_000_000_000..1_100_000_000).contains(&base), "the recovery would begin at {base}");
    assert!(in_one_line(&shown).contains("cp1 is not believed"), "{}", shown.all());
    let ran = recover(w, &["--yes"]).says("etcd is recovered from cp3");
    assert!(in_one_line(&ran).contains("cp1 is not believed"), "{}", ran.all());
    let kept = w.on("cp3", "sudo cat /var/lib/hactl/high-water");
    assert!(kept.trim().parse::<i64>().is_ok_and(|kept| kept < 1_100_000_000), "{kept}");
    for host in ["cp1", "w1"] {
        stop_lying(w, host);
    }
    w.hactl.up().ok();
    w.healthy(HEAL);
    wait_for("it takes writes", BOOT, || w.hactl.kubectl(&["create", "configmap", "after-the-lies"]).code == 0);
    w.hactl.kubectl(&["delete", "configmap", "after-the-lies"]).ok();
}

/// The revision above which, as the proposal says, the cluster continues.
fn base(shown: &str) -> i64 {
    let rest = shown.split_once("continues above ").expect("a proposal").1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a revision")
}

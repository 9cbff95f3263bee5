//! A host that stands by for etcd: it takes over the vote of a host that is gone, under a client that writes.

use super::guard::{CLEARED, SLACK, faults, guarded, is_known, none};
use super::leaving::move_leadership_to;
use super::rejoin::{member, serves};
use super::repairs::history;
use super::shapes::{STACKED, inventory, vip};
use super::support::{ETCDCTL, Hactl, Writer, wait_for};
use super::{Scenario, World, in_one_line};
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a host that stands by takes over the vote of one that is gone, and gives it back when it is gone itself",
        cut: false,
        run: taken_over,
    },
    Scenario {
        name: "recover keeps a vote that was taken over where it is, and an up in the midst of a takeover harms nothing",
        cut: false,
        run: recovered,
    },
];

const HEALING: &str = "healing: {mode: on, after: {hostUnreachable: 30s, hostDead: 1m, notVoting: 20s}}";

/// With five members.
pub const FIVE: &[Scenario] = &[Scenario {
    name: "two of five hosts that are gone lose their votes, one more may fail, and all vote again when they return",
    cut: false,
    run: two_of_five,
}];

/// How long a host must be gone, in the inventory of this test.
const DEAD: Duration = Duration::from_secs(60);
/// From then on, to linearizable reads from the new member.
const GOAL: Duration = Duration::from_secs(60);
const BOOT: Duration = Duration::from_secs(60);

/// The names of the voters, by a member that serves.
fn voters(w: &World, by: &str) -> Vec<String> {
    let list = w.on(by, &format!("{ETCDCTL} member list"));
    let fields = list.lines().map(|line| line.split(", ").collect::<Vec<_>>());
    let voting = fields.filter(|fields| fields.len() > 5 && fields[5].trim() == "false");
    let mut names: Vec<String> = voting.map(|fields| fields[2].to_owned()).collect();
    names.sort();
    names
}

fn taken_over(w: &World) {
    let stacked = |name| (name, STACKED, "");
    let standby = ("cp4", "control-plane, load-balancer", ", standby: [etcd]");
    inventory(w, &vip(w), &[stacked("cp1"), stacked("cp2"), stacked("cp3"), standby]);
    w.hactl.run(&["inventory", "check"]).ok().says("stands by for etcd").says("3 etcd members: quorum 2");
    let hactl = guarded(w, HEALING);
    assert_eq!(voters(w, "cp2"), ["cp1", "cp2", "cp3"]);
    assert_eq!((faults(&hactl), history(&hactl)), (vec![], vec![]), "nothing is broken");

    move_leadership_to(w, "cp1");
    let writer = Writer::every(Duration::from_millis(50), &w.api(), "w-standby");
    gone(w, &hactl, ("cp1", "cp4"));
    assert_eq!(voters(w, "cp2"), ["cp2", "cp3", "cp4"]);
    let plan = in_one_line(&hactl.run(&["plan"]));
    assert!(plan.contains("cp4 votes in etcd instead of cp1"), "{plan}");
    assert!(!plan.contains("remove member") && !plan.contains("add learner"), "{plan}");

    w.lab.start("cp1", BOOT).expect("the host boots");
    wait_for("its guard reports that it does not vote", CLEARED, || is_known(&hactl, "cp1", "EtcdNotVoting"));
    wait_for("its guard says why it does not join again", SLACK, || {
        in_one_line(&hactl.run(&["guard", "explain", "cp1"]).exits(4)).contains("other hosts have all 3 votes")
    });
    assert_eq!(voters(w, "cp2"), ["cp2", "cp3", "cp4"], "it does not join as a fourth one");
    hactl.up().ok().says("cp4 votes in etcd instead of cp1");
    hactl.up().ok().says("nothing to do");
    none(&hactl);
    w.healthy(CLEARED);
    assert_eq!(
        w.on("cp1", "systemctl is-enabled etcd || true; sudo ls -d /var/lib/etcd/member || true").trim(),
        "disabled"
    );

    // It stands by now.
    gone(w, &hactl, ("cp4", "cp1"));
    assert_eq!(voters(w, "cp2"), ["cp1", "cp2", "cp3"]);
    let (written, longest) = writer.end_within(Duration::from_secs(15));
    println!("        {written} writes acknowledged, longest pause {longest:.1?}");
    returns(w, &hactl, "cp4");
    let expected = ["cp1", "cp4"].map(|host| [host, "EtcdVoteFree", "helped"].map(str::to_owned));
    assert_eq!(history(&hactl), expected, "one repair for each host that was gone");
}

fn recovered(w: &World) {
    let hactl = guarded(w, HEALING);
    assert_eq!(voters(w, "cp2"), ["cp1", "cp2", "cp3"]);
    gone(w, &hactl, ("cp1", "cp4"));
    w.hactl.kubectl(&["create", "configmap", "taken-over"]).ok();
    // What is left of etcd is on the host that took over the vote.
    for host in ["cp2", "cp3"] {
        w.on(host, "sudo systemctl stop etcd; sudo rm -rf /var/lib/etcd/member");
    }
    wait_for("the lost quorum is reported", DEAD + SLACK, || {
        hactl.run(&["guard", "status"]).all().contains("EtcdQuorumLost")
    });
    let said = in_one_line(&hactl.run(&["status"]));
    assert!(said.contains("the data of cp4 goes furthest"), "{said}");
    let since = Instant::now();
    // It says at the end that cp1 does not answer.
    let said = in_one_line(&hactl.run(&["recover", "--yes"]).exits(1));
    assert!(said.contains("3 of 3 voters, quorum 2") && said.contains("cp1"), "{said}");
    println!("        recovered after {:.1?}", since.elapsed());
    assert_eq!(voters(w, "cp2"), ["cp2", "cp3", "cp4"], "the vote stays where it is");
    w.hactl.kubectl(&["get", "configmap", "taken-over"]).ok();
    w.lab.start("cp1", BOOT).expect("the host boots");
    hactl.up().ok().says("cp4 votes in etcd instead of cp1");
    hactl.up().ok().says("nothing to do");
    none(&hactl);
    w.healthy(CLEARED);

    let writer = Writer::every(Duration::from_millis(50), &w.api(), "w-midst");
    w.lab.kill("cp4").expect("the power can be cut");
    wait_for("cp1 is about to take over the vote", DEAD + 2 * SLACK, || is_known(&hactl, "cp1", "EtcdVoteFree"));
    let ran = hactl.up();
    println!("        an up in the midst of a takeover: exit {}", ran.code);
    wait_for("cp1 votes", GOAL + SLACK, || voters(w, "cp2") == ["cp1", "cp2", "cp3"] && serves(w, "cp1"));
    let (written, longest) = writer.end_within(Duration::from_secs(15));
    println!("        {written} writes acknowledged, longest pause {longest:.1?}");
    returns(w, &hactl, "cp4");
}

/// A host that was off returns, and `up` settles who stands by.
fn returns(w: &World, hactl: &Hactl, host: &str) {
    w.lab.start(host, BOOT).expect("the host boots");
    hactl.up().ok();
    hactl.up().ok().says("nothing to do");
    none(hactl);
    w.healthy(CLEARED);
}

/// A host loses its power, and another one votes in its place in time, and not before.
fn gone(w: &World, hactl: &Hactl, (host, by): (&str, &str)) {
    w.lab.kill(host).expect("the power can be cut");
    let since = Instant::now();
    wait_for("the guards report that it is gone", DEAD, || is_known(hactl, host, "HostUnreachable"));
    assert!(!serves(w, by), "{by} does not vote yet");
    wait_for("the guard of the other one is about to act", DEAD + SLACK, || is_known(hactl, by, "EtcdVoteFree"));
    assert!(since.elapsed() >= DEAD, "after {:?}", since.elapsed());
    while !serves(w, by) || !voters(w, "cp2").contains(&by.to_owned()) {
        let why = || hactl.run(&["guard", "explain", by]).all();
        assert!(since.elapsed() < DEAD + GOAL + SLACK, "{by} does not vote: {}", why());
        std::thread::sleep(Duration::from_millis(500));
    }
    println!("        {by} votes instead of {host} {:.1?} after its loss (goal {:?})", since.elapsed(), DEAD + GOAL);
    assert!(since.elapsed() < DEAD + GOAL + SLACK / 2, "{:?}", since.elapsed());
    assert!(!member(w, by).is_empty(), "it is a member");
}

fn two_of_five(w: &World) {
    let all = ["cp1", "cp2", "cp3", "cp4", "cp5"];
    let hactl = guarded(w, HEALING);
    assert_eq!(voters(w, "cp1"), all);
    assert_eq!(history(&hactl).len(), 0, "nothing was repaired");
    let writer = Writer::every(Duration::from_millis(50), &w.api(), "w-gone");
    for host in ["cp4", "cp5"] {
        w.lab.kill(host).expect("the power can be cut");
    }
    let since = Instant::now();
    wait_for("a guard reports it", DEAD + SLACK, || is_known(&hactl, "cp1", "EtcdVotersGone"));
    assert!(since.elapsed() >= DEAD && voters(w, "cp1").len() >= 4, "after {:?}", since.elapsed());
    while voters(w, "cp1").len() > 3 {
        let why = || hactl.run(&["guard", "explain", "cp1"]).all();
        assert!(since.elapsed() < DEAD + GOAL + SLACK, "they still vote: {}", why());
        std::thread::sleep(Duration::from_millis(500));
    }
    println!("        three vote {:.1?} after the loss of two of five (goal {:?})", since.elapsed(), DEAD + GOAL);
    assert_eq!(voters(w, "cp1"), all[..3]);

    w.lab.kill("cp3").expect("the power can be cut");
    std::thread::sleep(Duration::from_secs(20));
    let (written, longest) = writer.end_within(Duration::from_secs(15));
    println!("        {written} writes acknowledged, also without a third host; longest pause {longest:.1?}");
    for host in ["cp3", "cp4", "cp5"] {
        w.lab.start(host, BOOT).expect("the host boots");
    }
    wait_for("all vote again", 2 * CLEARED, || voters(w, "cp1") == all);
    none(&hactl);
    w.healthy(CLEARED);
    let mut repairs = history(&hactl);
    repairs.retain(|[_, kind, _]| kind != "EtcdStopped");
    let expected =
        [["cp1", "EtcdVotersGone", "helped"], ["cp4", "EtcdNotVoting", "helped"], ["cp5", "EtcdNotVoting", "helped"]];
    assert_eq!(repairs, expected.map(|repair| repair.map(str::to_owned)), "and nothing else");
    hactl.up().ok().says("nothing to do");
}

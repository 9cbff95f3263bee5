//! Plans as text, made by the planner from handmade worlds.

use crate::world::*;
use hactl::model::difference::{Difference, Shown};
use hactl::model::facts::{Etcd, EtcdFact, Evidence};
use hactl::model::plan::{Action, Condition, Plan, Precondition, Step};
use hactl::model::refusal::Refusal;
use hactl::plan;
use hactl::report::{Style, Verdict, differences_json, differences_text, plan_json, plan_text};
use snapbox::{assert_data_eq, file};

const NARROW: Style = Style { colour: false, unicode: true, width: 80, verbosity: 0 };

#[test]
fn the_plan_for_three_fresh_hosts_fits_on_a_page() {
    let desired = desired(3);
    let target = target(&desired);
    let facts = facts(vec![Ok(bare()), Ok(bare()), Ok(bare())], Etcd::Uninitialized, false);
    let plan = plan::up(&desired, &target, &facts, &intent()).unwrap();
    let text = plan_text(&plan, &NARROW);
    assert!(text.lines().count() < 60, "{} lines", text.lines().count());
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    assert_data_eq!(text, file!["fresh.txt"]);
    let verbose = plan_text(&plan, &Style { verbosity: 1, ..NARROW });
    assert!(verbose.lines().count() > plan.steps.len(), "every step is listed with -v");
}

#[test]
fn a_converged_cluster_says_that_there_is_nothing_to_do() {
    let desired = desired(3);
    let target = target(&desired);
    let plan = plan::up(&desired, &target, &healthy(&desired, &target), &bootstrapped()).unwrap();
    assert_data_eq!(plan_text(&plan, &NARROW), "Nothing to do: everything is as the inventory asks for.\n");
    assert_data_eq!(plan_text(&Plan::default(), &NARROW), "Nothing to do: everything is as the inventory asks for.\n");
}

#[test]
fn a_wiped_host_is_removed_and_joins_again_with_the_quorum_shown_after_each_change() {
    let desired = desired(3);
    let target = target(&desired);
    let facts = facts(
        vec![Ok(converged(&desired, &target, 1)), Ok(bare()), Ok(converged(&desired, &target, 3))],
        Etcd::HasQuorum(members(3, &[2])),
        true,
    );
    let plan = plan::up(&desired, &target, &facts, &bootstrapped()).unwrap();
    assert_data_eq!(plan_text(&plan, &NARROW), file!["wiped.txt"]);
}

#[test]
fn a_new_etcd_setting_restarts_the_members_one_host_at_a_time() {
    let desired = desired(3);
    let mut target = target(&desired);
    let facts = healthy(&desired, &target);
    for host in target.hosts.values_mut() {
        let etcd = host.sets.get_mut(&hactl::model::target::FileSet::Etcd).unwrap();
        etcd.files[0].digest = digest(201);
    }
    let plan = plan::up(&desired, &target, &facts, &bootstrapped()).unwrap();
    assert_data_eq!(plan_text(&plan, &NARROW), file!["restart.txt"]);
}

#[test]
fn a_dead_member_of_five_is_named_and_nothing_is_guessed_about_it() {
    let desired = desired(5);
    let target = target(&desired);
    let mut hosts: Vec<_> = (1..=5).map(|n| Ok(converged(&desired, &target, n))).collect();
    hosts[3] = unreachable("no answer to SSH within 10 s");
    let facts = facts(hosts, Etcd::HasQuorum(members(5, &[4])), true);
    let plan = plan::up(&desired, &target, &facts, &bootstrapped()).unwrap();
    assert_data_eq!(plan_text(&plan, &NARROW), file!["five-one-dead.txt"]);
}

#[test]
fn an_empty_member_of_five_is_replaced_while_four_keep_quorum() {
    let desired = desired(5);
    let target = target(&desired);
    let mut hosts: Vec<_> = (1..=5).map(|n| Ok(converged(&desired, &target, n))).collect();
    let emptied = hosts[3].as_mut().unwrap();
    emptied.etcd = Some(EtcdFact::default());
    let facts = facts(hosts, Etcd::HasQuorum(members(5, &[4])), true);
    let plan = plan::up(&desired, &target, &facts, &bootstrapped()).unwrap();
    assert_data_eq!(plan_text(&plan, &NARROW), file!["five-one-empty.txt"]);
}

#[test]
fn the_refusal_without_quorum_names_the_next_command() {
    let desired = desired(3);
    let target = target(&desired);
    let evidence = vec![
        Evidence { host: name("cp1"), what: "etcd runs and knows no leader".into(), has_data: true, reachable: true },
        Evidence { host: name("cp2"), what: "no answer to SSH within 10 s".into(), has_data: false, reachable: false },
        Evidence { host: name("cp3"), what: "no answer to SSH within 10 s".into(), has_data: false, reachable: false },
    ];
    let away = || unreachable("no answer to SSH within 10 s");
    let facts = facts(vec![Ok(converged(&desired, &target, 1)), away(), away()], Etcd::NoQuorum(evidence), false);
    let refusal = plan::up(&desired, &target, &facts, &intent()).unwrap_err();
    let verdict = Verdict::from(&refusal);
    assert_eq!(verdict.exit.code(), 3);
    assert_data_eq!(verdict.text(&NARROW), file!["no-quorum.txt"]);
}

#[test]
fn a_handmade_plan_shows_its_deletions_and_its_horizon() {
    let wipe = |host: &str, delete| Step {
        action: Action::Wipe { host: name(host), delete },
        why: "you asked for it".into(),
        requires: vec![],
        provides: Condition::Wiped(name(host)),
        precondition: Precondition::None,
        rollback: vec![],
    };
    let plan = Plan {
        steps: vec![wipe("cp1", true), wipe("cp2", false)],
        after: vec![vec![], vec![]],
        forecast: vec![None, None],
        horizon: Some("the other steps are planned once etcd has a quorum".into()),
        warnings: vec!["cp3 did not answer (no route to host): nothing is planned for it".into()],
        blocked: Vec::new(),
    };
    assert_data_eq!(plan_text(&plan, &NARROW), file!["by-hand.txt"]);
    assert_data_eq!(format!("{:#}\n", plan_json(&plan)), file!["by-hand.json"]);
}

#[test]
fn a_refusal_about_unreachable_hosts_bootstraps_nothing() {
    let desired = desired(3);
    let target = target(&desired);
    let facts = facts(vec![Ok(bare()), Ok(bare()), unreachable("connection refused")], Etcd::Uninitialized, false);
    let refusal = plan::up(&desired, &target, &facts, &intent()).unwrap_err();
    assert!(matches!(refusal, Refusal::CannotTell { .. }));
    let text = Verdict::from(&refusal).text(&NARROW);
    assert!(text.contains("cp3") && text.contains("Nothing was changed."), "{text}");
}

#[test]
fn a_recovery_shows_its_source_its_loss_and_later_members_before_the_confirmation() {
    use hactl::model::recovery::{Loss, Origin, Proposal, Recovery, Source};
    let source = |host: &str, reach, revision, age_ms| Source {
        aside: None,
        host: name(host),
        bundle: None,
        away: None,
        reach,
        revision,
        age_ms,
        ahead_ms: 0,
        db_bytes: 104_857_600,
        flaws: vec![],
    };
    let recovery = Recovery {
        id: "0123456789abcdef0123456789abcdef".into(),
        source: Origin::Data(name("cp3")),
        reach: (5, 12_345),
        base: 1_000_012_000,
        members: vec![(name("cp3"), peer(3)), (name("cp4"), peer(4))],
        undo: false,
    };
    let lost = Proposal {
        recovery,
        begun: false,
        gives_up: None,
        passed_over: None,
        sources: vec![
            source("cp3", (5, 12_345), 12_000, 130_000),
            Source {
                flaws: vec!["the last record of its log was cut short, as a loss of power does".into()],
                ..source("cp4", (4, 12_300), 11_900, 900_000)
            },
        ],
        voters: 5,
        unreachable: vec!["cp1".into(), "cp2".into()],
        loss: Loss::CannotBeKnown,
        empty: vec![name("cp5")],
        beyond: vec![(name("cp4"), 1 << 59)],
        later: vec![name("cp1"), name("cp2"), name("cp5")],
    };
    let one = Proposal {
        recovery: Recovery { members: vec![(name("cp3"), peer(3))], ..lost.recovery.clone() },
        begun: true,
        unreachable: vec!["cp1".into()],
        loss: Loss::Chosen { entries: 45, revisions: 100, ms: 770_000 },
        ..lost.clone()
    };
    let file = "lab-20261122T060000000Z-cp1.hactl".to_owned();
    let bundle = Proposal {
        recovery: Recovery { source: Origin::Bundle(file.clone()), ..lost.recovery.clone() },
        sources: vec![Source { bundle: Some(file), ..source("cp1", (5, 11_000), 10_800, 4_000_000) }],
        unreachable: vec![],
        loss: Loss::Since { ms: 4_000_000, revisions: 1_250 },
        beyond: vec![],
        ..lost.clone()
    };
    let copied = Proposal {
        sources: vec![Source { away: Some("cp2:/mnt/backup".to_owned()), ..bundle.sources[0].clone() }],
        empty: vec![],
        later: vec![],
        ..bundle.clone()
    };
    let moved = "member.moved-20261122T055000.000Z".to_owned();
    let undone = Proposal {
        recovery: Recovery { source: Origin::Aside(name("cp3"), moved.clone()), ..lost.recovery.clone() },
        sources: vec![Source { aside: Some(moved), ..source("cp3", (5, 11_000), 10_800, 4_000_000) }],
        unreachable: vec![],
        loss: Loss::Undone { revisions: 1_234 },
        empty: vec![],
        later: vec![],
        ..lost.clone()
    };
    let abandons = Proposal {
        recovery: Recovery { source: Origin::Data(name("cp4")), ..lost.recovery.clone() },
        gives_up: Some(lost.recovery.clone()),
        loss: Loss::Abandoned,
        unreachable: vec![],
        empty: vec![],
        later: vec![],
        ..lost.clone()
    };
    let texts: Vec<String> = [lost, one, bundle, copied, undone, abandons]
        .iter()
        .map(|p| hactl::report::recovery::proposal_text(p, &NARROW))
        .collect();
    assert_data_eq!(texts.join("\n=====\n"), file!["proposal.txt"]);
}

#[test]
fn changes_of_files_are_shown_line_by_line_and_secrets_by_name_alone() {
    let file = |path: &str, hosts: &[&str], shown| Difference {
        path: path.to_owned(),
        hosts: hosts.iter().map(|host| name(host)).collect(),
        shown,
    };
    let before = "# Written by hactl.\nspec:\n  containers:\n    - command:\n        - kube-apiserver\n        - --event-ttl=1h\n        - --v=2\n";
    let texts = Shown::Texts { before: before.to_owned(), after: before.replace("1h", "2h\u{1b}[31m") };
    let all = [
        file("/etc/kubernetes/manifests/kube-apiserver.yaml", &["cp1", "cp2", "cp3"], texts),
        file("/etc/kubernetes/config/encryption.yaml", &["cp1"], Shown::Secret),
        file("/etc/containerd/certs.d/old/hosts.toml", &["cp2"], Shown::Removed),
    ];
    assert_data_eq!(differences_text(&all, &Style::plain()), file!["differences.txt"]);
    let json = differences_json(&all);
    assert_eq!(json[0]["change"], "text");
    assert_eq!(
        json[1],
        serde_json::json!({"path": "/etc/kubernetes/config/encryption.yaml", "hosts": ["cp1"], "change": "secret"})
    );
    assert_eq!(differences_text(&[], &Style::plain()), "");
    let long = "line\n".repeat(60);
    let texts = Shown::Texts { before: String::new(), after: long };
    let text = differences_text(&[file("/etc/long", &["cp1"], texts)], &Style::plain());
    assert!(text.ends_with("36 lines more; all of them with -v\n"), "{text}");
}

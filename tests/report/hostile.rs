//! Text from hosts that would move the cursor, reverse the text direction, hide text or imitate hactl: no reader passes
//! it on unescaped.

use crate::world::*;
use hactl::model::certificate::{Listing, OfHost};
use hactl::model::check::{Check, Outcome};
use hactl::model::event::Event;
use hactl::model::facts::{Etcd, Unreachable};
use hactl::model::fault::FaultKind;
use hactl::model::guards::Guards;
use hactl::model::refusal::Refusal;
use hactl::plan;
use hactl::report::harmless::{Harmless, unseen};
use hactl::report::reader::{BarReader, JsonReader, LineReader};
use hactl::report::{Reader, RunLog, Style, Verdict, certs, explained_json, explained_text, guards_json, guards_text};
use hactl::report::{plan_json, plan_text, status_json, status_text};
use std::io::Write;
use std::sync::Arc;

const COLOURED: Style = Style { colour: true, unicode: true, width: 80, verbosity: 2 };
/// An escape sequence, one in C1, a title, a bell, a carriage return, reversed and isolated text, zero width, a line
/// separator, a tag.
const POISON: &str =
    "go\x1b[2J\x1b[8m on\u{9b}2J\u{90}q\x1b]0;t\x07\r\u{202e}\u{2066}\u{200b}\u{feff}\u{2028}\u{e0041}\x7f?";

/// Asserts that nothing but line feeds, hactl's own styles and, in live lines, its own cursor movements is special.
fn harmless(text: &str) {
    let mut left = text.to_owned();
    for own in [
        "\x1b[0m",
        "\x1b[1m",
        "\x1b[2m",
        "\x1b[32m",
        "\x1b[33m",
        "\x1b[1;31m",
        "\x1b[?2026h\r",
        "\x1b[?2026l",
        "\x1b[K",
        "\x1b[J",
    ] {
        left = left.replace(own, "");
    }
    for rows in 1..40 {
        left = left.replace(&format!("\x1b[{rows}A"), "");
    }
    let bad: String = left.chars().filter(|c| unseen(*c) && *c != '\n').collect();
    assert!(bad.is_empty(), "{bad:?} in {left:?}");
    assert!(left.contains("go"), "the words themselves are shown: {left:?}");
}

fn poison() -> String {
    POISON.to_owned()
}

fn poisoned_plan() -> hactl::model::plan::Plan {
    let desired = desired(3);
    let target = target(&desired);
    let facts = facts((0..3).map(|_| Ok(bare())).collect(), Etcd::Uninitialized, false);
    let mut plan = plan::up(&desired, &target, &facts, &intent()).unwrap();
    plan.warnings = vec![poison()];
    plan.horizon = Some(poison());
    plan.steps.iter_mut().for_each(|step| step.why = poison());
    plan
}

fn check() -> Check {
    Check {
        name: "API server ready",
        host: Some(name("cp1")),
        outcome: Outcome::Fail,
        detail: poison(),
        hint: Some(poison()),
    }
}

fn unreachable_host() -> Unreachable {
    Unreachable { why: poison(), hint: Some(poison()) }
}

fn verdict() -> Verdict {
    let mut verdict = Verdict::of(&hactl::report::FailureKind::Other, Some(&std::io::Error::other(POISON)));
    verdict.causes.push(poison());
    verdict.hints.push(poison());
    verdict
}

fn events() -> Vec<Event> {
    let host = Some(name("cp1"));
    vec![
        Event::Phase { doing: poison() },
        Event::Note { text: poison() },
        Event::Warning { text: poison() },
        Event::Planned { plan: Box::new(poisoned_plan()) },
        Event::Started { step: 0, what: poison(), host: host.clone() },
        Event::Waiting { step: 0, on: poison() },
        Event::Moved { step: 0, done: 1, total: 2 },
        Event::Failed { step: 0, host, what: poison(), why: poison(), tail: vec![poison(), poison()] },
        Event::Checked { check: check() },
        Event::Times { stages: vec![], total_ms: 1, bytes_sent: 1, execs: 1 },
    ]
}

#[test]
fn no_reader_passes_on_terminal_sequences() {
    let (out, err, live, lines) = (Paper::default(), Paper::default(), Paper::default(), Paper::default());
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.log");
    let readers: Vec<Arc<dyn Reader>> = vec![
        Arc::new(LineReader::new(out.boxed(), err.boxed(), COLOURED)),
        Arc::new(BarReader::new(live.boxed(), Box::new(|| Some((80, 24))), COLOURED)),
        Arc::new(JsonReader::new(lines.boxed())),
        Arc::new(RunLog::open(&log).unwrap()),
    ];
    for reader in &readers {
        for event in events() {
            reader.emit(event);
        }
        reader.end(&verdict());
    }
    drop(readers);
    harmless(&out.text());
    harmless(&err.text());
    harmless(&live.text());
    for text in [lines.text(), std::fs::read_to_string(log).unwrap()] {
        harmless(&text);
        assert!(text.lines().count() > events().len());
        for line in text.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
        assert!(text.contains("\\u009b") && text.contains("\\u202e"), "programs get them escaped: {text}");
    }
}

#[test]
fn pages_and_objects_are_harmless_with_any_field_poisoned() {
    let (desired, mut facts) = crate::guards::world();
    let (cluster, frozen) = (&desired.cluster, crate::guards::fault("cp1", FaultKind::EtcdFrozen, 1));
    crate::guards::report(&mut facts, "cp1").own = vec![frozen];
    for said in facts.hosts.values_mut() {
        let mut value = serde_json::to_value(said.as_ref().unwrap()).unwrap();
        poisoned(&mut value);
        *said = Ok(serde_json::from_value(value).unwrap());
    }
    facts.hosts.insert(name("cp3"), Err(unreachable_host()));
    let guards = Guards::of(&desired, &facts.hosts).unwrap();
    assert!(guards.faults[0].evidence.contains('\x1b'), "it is poisoned");
    let (plan, check) = (poisoned_plan(), check());
    let refusal = Refusal::Locked { host: name("cp1"), holder: poison(), since: poison() };
    let rows = Listing { hosts: vec![(name("cp1"), Err(unreachable_host()))], own: OfHost::default() };
    let pages = [
        plan_text(&plan, &COLOURED),
        status_text(&desired, &facts, std::slice::from_ref(&check), &COLOURED),
        Verdict::from(&refusal).text(&COLOURED),
        verdict().text(&COLOURED),
        plan_json(&plan).to_string(),
        status_json(&desired, &facts, std::slice::from_ref(&check)).to_string(),
        certs::text(&rows, &COLOURED),
        guards_text(&guards, &COLOURED),
        guards_json(cluster, &guards).to_string(),
        explained_text(&guards, None, &COLOURED),
        explained_json(cluster, &guards, None).to_string(),
    ];
    for page in pages {
        let mut written = Vec::new();
        Harmless(&mut written).write_all(page.as_bytes()).unwrap();
        harmless(&String::from_utf8(written).unwrap());
    }
}

/// Replaces every free text with poison.
fn poisoned(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                if FREE.contains(&key.as_str()) && value.is_string() {
                    *value = POISON.into();
                } else {
                    poisoned(value);
                }
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(poisoned),
        _ => {}
    }
}

/// Fields in which hosts write free text.
const FREE: [&str; 17] = [
    "evidence",
    "kernel",
    "os",
    "architecture",
    "machine_id",
    "active",
    "trouble",
    "own_trouble",
    "endpoint_trouble",
    "version",
    "holder",
    "message",
    "reason",
    "phase",
    "by",
    "interface",
    "runtime",
];

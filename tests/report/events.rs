//! The readers, with a handmade run as input.

use crate::world::*;
use hactl::model::check::{Check, Outcome};
use hactl::model::event::{Event, Sink};
use hactl::model::facts::Etcd;
use hactl::model::plan::{Plan, Stage};
use hactl::plan;
use hactl::report::lines::Reporter;
use hactl::report::reader::{BarReader, JsonReader, LineReader};
use hactl::report::{Reader, RunLog, Style, Verdict};
use snapbox::{assert_data_eq, file};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const PLAIN: Style = Style { colour: false, unicode: true, width: 80, verbosity: 0 };

fn fresh() -> Plan {
    fresh_hosts(3)
}

fn fresh_hosts(count: u8) -> Plan {
    let desired = desired(count);
    let target = target(&desired);
    let facts = facts((0..count).map(|_| Ok(bare())).collect(), Etcd::Uninitialized, false);
    plan::up(&desired, &target, &facts, &intent()).unwrap()
}

fn started(plan: &Plan, step: usize) -> Event {
    let action = &plan.steps[step].action;
    Event::Started { step, what: action.to_string(), host: action.host().cloned() }
}

fn done(plan: &Plan, step: usize, ms: u64) -> Event {
    let action = &plan.steps[step].action;
    Event::Done { step, ms, host: action.host().cloned(), what: action.to_string() }
}

/// The whole run, ten milliseconds a step; deliveries move bytes.
fn run(plan: &Plan) -> Vec<(Duration, Event)> {
    let mut events = vec![
        (0, Event::Phase { doing: "connecting to 3 hosts".into() }),
        (300, Event::Phase { doing: "looking at 3 hosts".into() }),
        (500, Event::Planned { plan: Box::new(plan.clone()) }),
    ];
    let mut at = 1000;
    for step in 0..plan.steps.len() {
        events.push((at, started(plan, step)));
        if matches!(plan.steps[step].action, hactl::model::plan::Action::Deliver { .. }) {
            events.push((at + 5, Event::Moved { step, done: 19_000_000, total: 19_000_000 }));
        }
        at += 10;
        events.push((at, done(plan, step, 10)));
    }
    let check =
        Check { name: "etcd members healthy", host: None, outcome: Outcome::Pass, detail: "3 of 3".into(), hint: None };
    events.push((at, Event::Checked { check }));
    events.push((
        at,
        Event::Times {
            stages: vec![(Stage::Prepare, 4_100), (Stage::Deliver, 6_200), (Stage::Etcd, 1_400), (Stage::Cluster, 90)],
            total_ms: 28_400,
            bytes_sent: 636_000_000,
            execs: 3,
        },
    ));
    events.into_iter().map(|(ms, event)| (Duration::from_millis(ms), event)).collect()
}

#[test]
fn a_log_gets_a_line_per_finished_group_and_not_one_per_step() {
    let plan = fresh();
    let mut reporter = Reporter::new(PLAIN, true);
    let mut text = String::new();
    for (at, event) in run(&plan) {
        if matches!(event, Event::Planned { .. }) {
            // It has its own golden files.
            reporter.on(at, &event);
            continue;
        }
        text.push_str(&reporter.on(at, &event));
    }
    text.push_str(&reporter.flush(Duration::from_secs(9)));
    assert!(text.lines().count() < plan.steps.len() / 2, "{} lines", text.lines().count());
    assert_data_eq!(text, file!["lines.txt"]);
}

#[test]
fn many_hosts_do_not_make_the_log_longer_than_its_stages() {
    let plan = fresh_hosts(60);
    let mut reporter = Reporter::new(PLAIN, true);
    let mut text = String::new();
    for (at, event) in run(&plan) {
        let lines = reporter.on(at, &event);
        if !matches!(event, Event::Planned { .. }) {
            text.push_str(&lines);
        }
    }
    assert!(text.lines().count() < 30, "{text}");
    assert!(text.contains("deliver on 60 hosts: 900 steps"), "{text}");
}

#[test]
fn the_next_steps_can_be_pasted_into_a_shell() {
    let text = hactl::report::times::next_steps(Path::new("/home/o'b my/kubeconfig"), None, &PLAIN);
    assert!(text.contains(r"export KUBECONFIG='/home/o'\''b my/kubeconfig'"), "{text}");
    assert!(text.contains("hactl status   #"), "{text}");
    let other = hactl::report::times::next_steps(Path::new("/k"), Some(Path::new("vagrant:./my lab")), &PLAIN);
    assert!(other.contains("hactl status -i 'vagrant:./my lab'   #"), "{other}");
}

#[test]
fn with_v_every_step_has_its_line() {
    let plan = fresh();
    let mut reporter = Reporter::new(Style { verbosity: 1, ..PLAIN }, true);
    let mut lines = 0;
    for (at, event) in run(&plan) {
        let text = reporter.on(at, &event);
        if matches!(event, Event::Done { .. }) {
            assert_eq!(text.lines().count(), 1, "{text}");
            lines += 1;
        }
    }
    assert_eq!(lines, plan.steps.len());
}

fn failed(plan: &Plan, step: usize) -> Event {
    let action = &plan.steps[step].action;
    Event::Failed {
        step,
        host: action.host().cloned(),
        what: action.to_string(),
        why: "dpkg was interrupted, you must manually run 'dpkg --configure -a'".into(),
        tail: (1..=30).map(|n| format!("line {n} \u{1b}[31mof the host\u{1b}[0m")).collect(),
    }
}

#[test]
fn a_failure_is_shown_in_full_with_the_last_twenty_lines_and_the_running_steps() {
    let plan = fresh();
    let mut reporter = Reporter::new(PLAIN, true);
    reporter.on(Duration::ZERO, &Event::Planned { plan: Box::new(plan.clone()) });
    let mut text = String::new();
    for (ms, event) in
        [(100, started(&plan, 0)), (200, done(&plan, 0, 100)), (200, started(&plan, 2)), (4_200, failed(&plan, 2))]
    {
        text.push_str(&reporter.on(Duration::from_millis(ms), &event));
    }
    text.push_str(&reporter.flush(Duration::from_secs(5)));
    assert!(!text.contains("line 10 ") && text.contains("line 11 ") && text.contains("line 30 "));
    assert!(!text.contains('\u{1b}'), "colours of a host are removed");
    assert_data_eq!(text, file!["failed.txt"]);
}

#[test]
fn every_json_line_is_an_object_with_its_event_and_time_and_the_verdict_is_last() {
    let plan = fresh();
    let paper = Paper::default();
    let reader = JsonReader::new(Box::new(paper.clone()));
    for (_, event) in run(&plan) {
        reader.emit(event);
    }
    reader.emit(failed(&plan, 0));
    reader.end(&Verdict::ok("lab is up"));
    let text = paper.text();
    let objects: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(objects.iter().all(|o| o["event"].is_string() && o["at_ms"].is_u64()), "{text}");
    let kinds: Vec<&str> = objects.iter().filter_map(|o| o["event"].as_str()).collect();
    for kind in ["phase", "planned", "started", "moved", "done", "failed", "checked", "times"] {
        assert!(kinds.contains(&kind), "{kind} is missing");
    }
    let last = objects.last().unwrap();
    assert_eq!((last["event"].as_str(), last["exit"].as_u64()), (Some("verdict"), Some(0)));
    assert_eq!(objects[2]["plan"]["schema"], "hactl.plan/1");
}

#[test]
fn progress_in_json_is_a_gauge_and_not_a_flood() {
    let paper = Paper::default();
    let reader = JsonReader::new(Box::new(paper.clone()));
    for done in 0..=10_000 {
        reader.emit(Event::Moved { step: 0, done, total: 10_000 });
    }
    let text = paper.text();
    assert!(text.lines().count() < 100, "{} lines", text.lines().count());
    assert!(text.lines().last().unwrap().contains(r#""done":10000"#), "the end is always reported");
}

#[test]
fn verdicts_on_failures_go_to_standard_error_and_good_ones_do_not() {
    let (out, err) = (Paper::default(), Paper::default());
    let reader = LineReader::new(Box::new(out.clone()), Box::new(err.clone()), PLAIN);
    reader.end(&Verdict::ok("lab is up"));
    assert_eq!((out.text().as_str(), err.text().as_str()), ("✓ lab is up\n", ""));
    reader.end(&Verdict::from(&hactl::model::refusal::Refusal::Declined));
    assert_eq!((out.text().as_str(), err.text().as_str()), ("✓ lab is up\n", "\n✗ not agreed: nothing was changed\n"));
}

#[test]
fn only_its_owner_can_read_the_run_log_which_holds_every_event() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let plan = fresh();
    let log = Arc::new(RunLog::open(&path).unwrap());
    let out = Paper::default();
    let shown: Arc<dyn Reader> = Arc::new(LineReader::new(Box::new(out.clone()), Box::new(out.clone()), PLAIN));
    let events = run(&plan);
    let count = events.len();
    for (_, event) in events {
        shown.emit(event.clone());
        log.emit(event);
    }
    shown.end(&Verdict::ok("lab is up"));
    log.end(&Verdict::ok("lab is up"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), count + 1);
    assert!(out.text().ends_with("✓ lab is up\n"));
}

#[test]
fn bars_leave_only_the_lines_that_matter() {
    let plan = fresh();
    let paper = Paper::default();
    let reader = BarReader::new(Box::new(paper.clone()), Box::new(|| Some((80, 24))), PLAIN);
    for (_, event) in run(&plan) {
        reader.emit(event);
    }
    reader.end(&Verdict::ok("lab is up"));
    drop(reader);
    let screen = Screen::of(&paper.text());
    assert!(screen.iter().all(|l| l.chars().count() <= 80), "{screen:#?}");
    assert!(screen.iter().all(|l| !l.contains('⠋') && !l.contains('━')), "{screen:#?}");
    let shown = screen.join("\n");
    assert!(shown.contains("✓ etcd members healthy  3 of 3"), "{shown}");
    assert!(shown.trim_end().ends_with("✓ lab is up"), "{shown}");
}

/// A minimal terminal: lines, a cursor, and the few sequences that bars use.
struct Screen;
impl Screen {
    fn of(written: &str) -> Vec<String> {
        let (mut lines, mut row, mut column) = (vec![Vec::<char>::new()], 0usize, 0usize);
        let mut chars = written.chars();
        while let Some(c) = chars.next() {
            match c {
                '\n' => {
                    row += 1;
                    column = 0;
                    if row == lines.len() {
                        lines.push(Vec::new());
                    }
                }
                '\r' => column = 0,
                '\x1b' => {
                    assert_eq!(chars.next(), Some('['));
                    let mut number = String::new();
                    let last = loop {
                        match chars.next().unwrap() {
                            c if c.is_ascii_digit() || c == '?' || c == ';' => number.push(c),
                            c => break c,
                        }
                    };
                    match last {
                        'A' => row -= number.parse::<usize>().unwrap(),
                        'K' => lines[row].truncate(column),
                        'J' => {
                            lines.truncate(row + 1);
                            lines[row].truncate(column);
                        }
                        'h' | 'l' | 'm' => {}
                        other => panic!("unknown sequence {other}"),
                    }
                }
                c => {
                    let line = &mut lines[row];
                    line.resize(line.len().max(column + 1), ' ');
                    line[column] = c;
                    column += 1;
                }
            }
        }
        lines.into_iter().map(|l| l.into_iter().collect()).collect()
    }
}

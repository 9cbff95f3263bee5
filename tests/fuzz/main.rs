//! Input that hactl did not write: it may be refused, but nothing panics, hangs, or reaches a terminal unescaped.
//!
//! Good inputs are damaged at random, with the same dice on every run. `HACTL_FUZZ_SECONDS=600 make fuzz` runs longer
//! than the few thousand cases of a test run. The client of a hostile host is tested next to its code:
//! `src/transport/agent_session/hostile.rs`.

#![allow(clippy::print_stdout, reason = "`make fuzz` prints the number of cases")]

mod guards;
mod mutate;
#[path = "../sim/mod.rs"]
mod sim;

use hactl::model::check::Outcome;
use hactl::model::facts::{Facts, HostFacts};
use hactl::report::{self, FailureKind, Style, Verdict};
use mutate::damaged;
use serde_json::Value;
use sim::Dice;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The limit for one input: anything slower could be made to hang. It is generous because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs this many cases, or for as long as `HACTL_FUZZ_SECONDS` says. The input of a failed case is kept and reported.
fn fuzz(name: &str, cases: u64, mut case: impl FnMut(&mut Dice) -> (Vec<u8>, Box<dyn FnOnce()>)) {
    let seconds = std::env::var("HACTL_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).map(Duration::from_secs);
    let begun = Instant::now();
    let mut number = 0;
    while seconds.map_or(number < cases, |limit| begun.elapsed() < limit) {
        let (input, run) = case(&mut Dice::new(number));
        let one = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(run));
        let took = one.elapsed();
        if outcome.is_err() || took > TIMEOUT {
            let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
            let path = dir.join(format!("{name}-{number}"));
            std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&path, &input)).expect("the input can be kept");
            panic!(
                "{name}: case {number} {} after {took:.1?}; it is in {}",
                if outcome.is_err() { "fails" } else { "ends" },
                path.display()
            );
        }
        number += 1;
    }
    println!("{name}: {number} cases in {:.1?}", begun.elapsed());
}

fn examples() -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("inventories");
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).expect("examples").flatten().map(|e| e.path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "yaml"));
    files.sort();
    files.iter().map(|f| std::fs::read(f).expect("readable")).collect()
}

const KEYS: [&str; 40] = [
    "schema: 1",
    "cluster:",
    "versions:",
    "kubernetes: \"1.36.3\"",
    "endpoint:",
    "vip:",
    "external:",
    "local: true",
    "port:",
    "hosts:",
    "- name:",
    "address:",
    "roles: [control-plane, etcd]",
    "ssh:",
    "jump:",
    "identity:",
    "zone:",
    "labels:",
    "taints:",
    "network:",
    "pods: 10.0.0.0/8",
    "services:",
    "mtu:",
    "extra:",
    "kube-apiserver:",
    "args:",
    "mounts:",
    "config:",
    "registries:",
    "mirrors:",
    "manifests:",
    "preflight:",
    "ignore:",
    "proxy:",
    "noProxy:",
    "authentication:",
    "jwt:",
    "<<: *a",
    "&a",
    "!!binary",
];

#[test]
fn no_inventory_makes_the_reader_panic_and_a_refusal_can_be_printed() {
    let good = examples();
    fuzz("inventory", 4000, |dice| {
        let text = damaged(dice, &good, &KEYS);
        let input = text.clone();
        let run = move || match hactl::inventory::parse(&String::from_utf8_lossy(&text), Path::new("/nowhere")) {
            Ok(loaded) => assert!(!loaded.desired.hosts.is_empty(), "an inventory has hosts"),
            Err(error) => plain("a refusal", &failure_text(FailureKind::Inventory, Some(&error))),
        };
        (input, Box::new(run))
    });
}

/// A failure as a person reads it.
fn failure_text(kind: FailureKind, error: Option<&(dyn std::error::Error + 'static)>) -> String {
    Verdict::of(&kind, error).text(&Style::plain())
}

/// Characters that make a terminal write from right to left, so that a name reads as another.
const TURNS: [char; 9] =
    ['\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}'];

/// A terminal obeys escape sequences; only hactl itself may write them.
fn plain(what: &str, text: &str) {
    let raw = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t') || TURNS.contains(c));
    assert_eq!(raw, None, "{what} carries a control character to the terminal: {text:?}");
}

const SSH: [&str; 26] = [
    "Host ",
    "Host *",
    "Host !cp1 *",
    "Match host cp*",
    "Match all",
    "Match exec \"true\"",
    "Match user ops localuser me",
    "HostName %h.example",
    "User ",
    "Port 22",
    "Port 99999",
    "IdentityFile ~/.ssh/%r",
    "ProxyJump ",
    "ProxyJump a,b,c",
    "ProxyJump none",
    "ProxyCommand nc %h %p",
    "Include config.d/*",
    "Include ~/.ssh/config",
    "StrictHostKeyChecking no",
    "HostKeyAlias x",
    "UserKnownHostsFile /dev/null",
    "CertificateFile ~/c",
    "IdentitiesOnly yes",
    "=",
    "\"",
    "\\",
];

#[test]
fn no_ssh_configuration_makes_the_reader_panic_or_loop() {
    let good: Vec<Vec<u8>> = [
        "Host cp*\n  HostName %h.mgmt.example\n  User ops\n  Port 2222\n  IdentityFile ~/.ssh/id_ed25519\n  ProxyJump bastion\n\nHost bastion\n  HostName 192.0.2.1\n",
        "Include config.d/*\nMatch host cp1 user root\n  Port 22\nMatch final all\n  User nobody\nHost * !w1\n  ProxyJump a@b:22,c\n",
        "Host=a \"b c\" d\n\tUser = \"x y\"\n# comment\nMatch exec \"test -f x\"\n  User z\n",
    ]
    .map(|t| t.as_bytes().to_vec())
    .into();
    let inventory = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("inventories/minimal.yaml"))
        .expect("an example");
    fuzz("ssh-config", 4000, |dice| {
        let (one, two) = (damaged(dice, &good, &SSH), damaged(dice, &good, &SSH));
        let input = [&one[..], b"\n--- config.d/a\n", &two].concat();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let files: BTreeMap<PathBuf, String> = [
            (PathBuf::from("/home/me/.ssh/config"), text(&one)),
            (PathBuf::from("/home/me/.ssh/config.d/a"), text(&two)),
            (PathBuf::from("/home/me/.ssh/config.d/b"), text(&one)),
        ]
        .into();
        let inventory = inventory.clone();
        let run = move || {
            let loaded =
                hactl::inventory::parse_at_home(&inventory, Path::new("/nowhere"), Path::new("/home/me"), &files);
            if let Err(error) = loaded {
                plain("a refusal", &failure_text(FailureKind::Inventory, Some(&error)));
            }
        };
        (input, Box::new(run))
    });
}

#[test]
fn no_bytes_make_the_frame_reader_panic_or_allocate_a_claimed_length() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let frame = |kind: u8, payload: &[u8]| {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        [&length[..], &[kind], payload].concat()
    };
    let beat = br#"{"Heartbeat":{"id":1,"on":"etcd"}}"#;
    let answer = br#"{"Answer":{"id":1,"outcome":{"Ok":{"Lines":["a","b"]}}}}"#;
    let good = [
        frame(b'J', beat),
        frame(b'J', answer),
        frame(b'B', b"piece"),
        frame(b'E', b""),
        b"Welcome to cp1!\r\n".to_vec(),
    ];
    let good = [good.to_vec(), vec![good.concat()]].concat();
    let handle = runtime.handle().clone();
    fuzz("frames", 20_000, |dice| {
        let bytes = damaged(
            dice,
            &good,
            &["\0\0\0\x05J", "\u{7f}\0\0\0J", "\0\0\0\0E", "Heartbeat", "Answer", "Wanted", "null"],
        );
        let input = bytes.clone();
        let handle = handle.clone();
        let run = move || {
            handle.block_on(async {
                let mut from = &bytes[..];
                while let Ok(Some(frame)) = hactl::protocol::frame::read_frame(&mut from).await {
                    if let hactl::protocol::frame::Frame::Json(text) = frame {
                        // It may be refused: this is the purpose.
                        drop(serde_json::from_slice::<hactl::protocol::Response>(&text));
                    }
                }
            });
        };
        (input, Box::new(run))
    });
}

/// A snapshot, and the identities that decrypt it.
fn bundle(at: &Path) -> hactl::snapshot::Identities {
    use hactl::model::blob::SnapshotBlob;
    use hactl::model::names::Digest;
    use hactl::model::secret::Secret;
    use hactl::model::snapshot::{Manifest, Point, Proof, SCHEMA};
    use hactl::snapshot::{Identities, Recipients, Writer, new_identity, public_of};
    let identity = new_identity();
    let to = Recipients::parse(&public_of(&identity).expect("just made")).expect("a key");
    let content = vec![7; 70_000];
    let digest = Digest::of(&content);
    let mut writer = Writer::begin(std::fs::File::create(at).expect("a file"), &to).expect("it can be written");
    std::io::Write::write_all(&mut writer, &content).expect("it can be written");
    let state = to.text(&Secret::new("keys".to_owned())).expect("memory");
    let size = content.len() as u64;
    let snapshot = SnapshotBlob { digest, size, sent_digest: digest, sent_size: size };
    let manifest = |sealed, state| Manifest {
        schema: SCHEMA,
        cluster: "lab".parse().expect("a name"),
        authority: digest,
        host: "cp1".parse().expect("a name"),
        taken_ms: 1,
        point: Point { cluster: "abc".into(), term: 2, index: 3, revision: 4, high_water: 5 },
        etcd: "3.6.16".into(),
        hactl: "0.1.0".into(),
        snapshot,
        sealed,
        state,
        proof: Proof { keys: 1, hash: 2, restored_ms: 3 },
    };
    writer.end(&state, None, manifest).expect("it can be ended");
    Identities::parse(&identity).expect("just made")
}

#[test]
fn no_snapshot_yields_more_than_its_file_holds_or_allocates_a_claimed_length() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lab-1-cp1.hactl");
    let identities = std::sync::Arc::new(bundle(&path));
    let whole = std::fs::read(&path).expect("it was written");
    let good = [whole.clone(), whole[whole.len() - 2000..].to_vec()];
    fuzz("bundle", 600, |dice| {
        // Only the end is parsed; the rest is opaque.
        let mut bytes = if dice.below(4) == 0 { Vec::new() } else { whole[..whole.len() - 2000].to_vec() };
        let from = usize::from(!bytes.is_empty());
        bytes.extend(damaged(
            dice,
            &good[from..=from],
            &["18446744073709551615", "\"bytes\":", "-1", "\"schema\":2", "\"signature\":"],
        ));
        let (input, path, identities) = (bytes.clone(), path.clone(), identities.clone());
        let run = move || {
            std::fs::write(&path, &bytes).expect("it can be written");
            match hactl::snapshot::Bundle::open(&path) {
                Ok(bundle) => {
                    assert!(
                        bundle.claimed.manifest.sealed.bytes + bundle.claimed.manifest.state.bytes
                            <= bytes.len() as u64
                    );
                    let mut out = Vec::new();
                    // Either may be refused.
                    drop((bundle.check(), bundle.state(&identities), bundle.snapshot(&identities, &mut out)));
                    assert!(out.len() <= bytes.len(), "the encrypted content here is not compressed");
                }
                Err(error) => plain("a refusal", &error.to_string()),
            }
        };
        (input, Box::new(run))
    });
}

#[test]
fn no_host_and_no_address_lead_out_of_a_directory_or_write_to_the_terminal() {
    use hactl::model::copies::{CopiesFact, CopiesListed, CopyAddress, believed, shared};
    let name = "lab-20261122T060000000Z-cp1.hactl";
    let copy = format!(
        r#"{{"directory":"/mnt/backup","copies":[{{"by":"cp1","bundle":{{"name":"{name}","bytes":1,"taken_ms":1795327200000,"authority":"{}","point":{{"cluster":"c","term":1,"index":1,"revision":1,"high_water":1}},"etcd":"3.6.16","proof":{{"keys":1,"hash":1,"restored_ms":1}}}}}}],"others":[{{"name":"{name}","bytes":1}}],"damaged":["x"],"trouble":"y"}}"#,
        hactl::model::names::Digest::of(b"ours").hex()
    );
    assert!(serde_json::from_str::<CopiesFact>(&copy).is_ok(), "the good one is good");
    let good = [copy.into_bytes(), format!("cp1:/mnt/backup/{name}").into_bytes()];
    let cluster = "lab".parse().expect("a name");
    fuzz("copies", 4000, |dice| {
        let bytes = damaged(dice, &good, &["/../", "\\u001b[2J", ".hactl", ":/", "-1", "null", "\u{202e}"]);
        let (input, cluster) = (bytes.clone(), Clone::clone(&cluster));
        let run = move || {
            let text = String::from_utf8_lossy(&bytes);
            if let Ok(at) = text.parse::<CopyAddress>() {
                assert!(!at.directory.contains("..") && !at.name.contains('/'), "{at}");
                plain("an address", &at.to_string());
            }
            let Ok(fact) = serde_json::from_slice::<CopiesFact>(&bytes) else { return };
            let found = believed(vec![fact], &["/mnt/backup".to_owned()], &cluster, None, None);
            let listed: CopiesListed = [("cp1".parse().expect("a name"), Ok(found))].into();
            for one in shared(&listed) {
                assert!(one.address().to_string().parse::<CopyAddress>().is_ok(), "{one:?}");
            }
            plain("a list", &report::copies::table(&listed, 0));
        };
        (input, Box::new(run))
    });
}

/// Every value in a document, by pointer.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                places(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), all);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                places(value, &format!("{at}/{index}"), all);
            }
        }
        _ => {}
    }
}

/// A text from elsewhere in the document.
fn texts(facts: &Value, all: &[String], dice: &mut Dice) -> String {
    let texts: Vec<&str> = all.iter().filter_map(|at| facts.pointer(at)?.as_str()).collect();
    if texts.is_empty() { String::new() } else { (*dice.pick(&texts)).to_owned() }
}

/// Changes the document as a lying host might.
fn lie(dice: &mut Dice, facts: &mut Value) {
    let mut all = Vec::new();
    places(facts, "", &mut all);
    let (at, other) = (dice.pick(&all).clone(), dice.pick(&all).clone());
    // Mostly of the same type, because other types are refused at once.
    let replacement = match (dice.below(5), facts.pointer(&at)) {
        (0, _) => facts.pointer(&other).cloned().unwrap_or_default(),
        (_, Some(Value::String(_))) => match dice.below(5) {
            0 => Value::from("\u{1b}[2J\u{7}\u{202e}owned"),
            1 => Value::from(""),
            2 => Value::from("x".repeat(100_000)),
            _ => Value::from(texts(facts, &all, dice)),
        },
        (_, Some(Value::Number(_))) => {
            Value::from(*dice.pick(&[0_i64, 1, -1, 255, 65_536, i64::from(u32::MAX), i64::MIN, i64::MAX]))
        }
        (_, Some(Value::Bool(truth))) => Value::Bool(!truth),
        (_, Some(Value::Array(_))) => Value::Array(vec![]),
        _ => Value::Null,
    };
    if let Some(place) = facts.pointer_mut(&at) {
        match place {
            Value::Array(list) if dice.below(2) == 0 => {
                let item = list.first().cloned().unwrap_or_default();
                list.extend(std::iter::repeat_n(item, dice.below(20)));
            }
            Value::Object(map) if dice.below(2) == 0 => {
                let key = map.keys().nth(dice.below(map.len())).cloned();
                key.and_then(|key| map.remove(&key));
            }
            _ => *place = replacement,
        }
    }
}

#[test]
fn no_false_report_of_a_host_makes_the_planner_or_the_readers_panic() {
    let mut worlds = vec![sim::World::bare(3, 1), sim::World::of(sim::make::apart())];
    for built in 0..2 {
        let mut world = worlds[built].clone();
        assert_eq!(world.converge(7, 4), Ok(sim::Ended::Converged));
        worlds.push(world);
    }
    let seen: Vec<(sim::World, Facts)> = worlds
        .into_iter()
        .map(|mut world| {
            let facts = world.observe();
            (world, facts)
        })
        .collect();
    let counted = std::rc::Rc::new(std::cell::Cell::new(0_u32));
    fuzz("facts", 1500, |dice| {
        let (world, facts) = dice.pick(&seen).clone();
        let mut facts = facts;
        let mut input = String::new();
        let liars = 1 + dice.below(2);
        for _ in 0..liars {
            let names: Vec<_> = facts.hosts.keys().cloned().collect();
            let name = dice.pick(&names).clone();
            let Some(Ok(honest)) = facts.hosts.get(&name) else { continue };
            let mut value = serde_json::to_value(honest).expect("facts are JSON");
            for _ in 0..=dice.below(4) {
                lie(dice, &mut value);
            }
            let _ = writeln!(input, "{name}: {value}");
            // A document without the form of facts is refused with the host's name, like no answer.
            if let Ok(lies) = serde_json::from_value::<HostFacts>(value) {
                facts.hosts.insert(name, Ok(lies));
                counted.set(counted.get() + 1);
            }
        }
        let run = move || {
            let addons = &world.target.addons;
            let mut hosts = facts.hosts;
            for (host, answer) in &mut hosts {
                if let Ok(facts) = answer {
                    facts.judge(host);
                }
            }
            let known = hactl::observe::KnownCluster::default();
            let facts = hactl::observe::assemble(&world.desired, &known, hosts, addons);
            let planned = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent);
            match planned {
                Ok(plan) => {
                    plain("a plan", &report::plan_text(&plan, &Style::plain()));
                    drop(report::plan_json(&plan));
                }
                Err(refusal) => plain("a refusal", &failure_text(FailureKind::Refused(refusal), None)),
            }
            let unknown = hactl::observe::HashCheck::Unknown("no member was asked".to_owned());
            let checks = hactl::observe::checks(&world.desired, &facts, &unknown);
            assert!(checks.iter().any(|c| c.outcome != Outcome::Pass), "the hash alone is not known");
            plain("the status", &report::status_text(&world.desired, &facts, &checks, &Style::plain()));
            drop(report::status_json(&world.desired, &facts, &checks));
        };
        (input.into_bytes(), Box::new(run))
    });
    let understood = counted.get();
    assert!(understood > 300, "only {understood} false reports had the form of facts: the rest tested nothing");
}

//! The conformance tests of Kubernetes on three control-plane hosts and two workers: a sample as a scenario, or all of
//! them for `make conformance`.
//!
//! In: the suite and the images of its tests, as `make suite` builds them. Out: a table by SIG, and each test that did
//! not pass with its message. A test that docs/conformance.md does not list must pass.

use super::registry::{Archive, Registry};
use super::support::blocks;
use super::{Scenario, World};
use oci_client::Reference;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "a sample of the conformance tests of Kubernetes passes, with images from a mirror",
    cut: false,
    run: sample,
}];

/// The tests of the scenario, one per line.
const SAMPLE: &str = include_str!("conformance.txt");
/// Tests at a time, for a machine with two processors.
const PROCESSES: usize = 3;
/// How many tests may run again: if more fail, the machine is not why.
const AGAIN: usize = 10;
/// Five hosts on a machine with two processors.
const SETTLED: Duration = Duration::from_secs(300);
/// The registry of every image that the tests use.
const IMAGES: &str = "registry.k8s.io";

fn sample(w: &World) {
    let lines = SAMPLE.lines().filter(|line| !line.starts_with('#'));
    judge(w, "conformance-sample", &listed(), &lines.map(str::to_owned).collect());
}

/// Runs all tests, or those whose names have one of these words.
pub fn all(words: &[String]) {
    let tests = listed();
    let is_chosen = |test: &&String| words.is_empty() || words.iter().any(|word| test.contains(word.as_str()));
    let chosen: BTreeSet<String> = tests.iter().filter(is_chosen).cloned().collect();
    assert!(!chosen.is_empty(), "no name of a conformance test has one of the words {words:?}");
    judge(&World::bare("t-conformance", (3, 2)), "conformance", &tests, &chosen);
}

/// What `make` built for the tests, by the variable that names it.
fn built(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable);
    PathBuf::from(path.unwrap_or_else(|| panic!("{variable} is not set: `make conformance` sets it")))
}

/// A test as the suite lists it.
#[derive(Deserialize)]
struct Listed {
    codename: String,
}

/// The names of all conformance tests.
fn listed() -> BTreeSet<String> {
    let suite = built("E2E").join("bin/e2e.test");
    let output = Command::new(&suite).arg("--list-conformance-tests").output();
    let output = output.unwrap_or_else(|e| panic!("{}: {e}", suite.display()));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let tests: Vec<Listed> = serde_saphyr::from_str(&out).expect("a list of tests in YAML");
    tests.into_iter().map(|test| test.codename).collect()
}

/// The documentation.
fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/conformance.md");
    fs::read_to_string(path).expect("the documentation")
}

/// The tests that do not pass here, as the documentation lists them: in its `text` blocks, each continued in indented
/// lines.
fn documented(document: &str) -> BTreeSet<String> {
    let mut names: Vec<String> = Vec::new();
    for line in blocks(document, "text").iter().flat_map(|block| block.lines()) {
        match names.last_mut().filter(|_| line.starts_with(' ')) {
            Some(name) => {
                name.push(' ');
                name.push_str(line.trim());
            }
            None => names.push(line.to_owned()),
        }
    }
    names.into_iter().collect()
}

/// A cluster whose Nodes pull the images of the tests from this machine.
fn ready(w: &World) -> Registry {
    let folder = w.lab.dir().join("images-of-tests");
    fs::create_dir_all(&folder).expect("writable");
    let registry = Registry::start(&folder, w.gateway());
    let suite = built("E2E");
    let made = fs::read(suite.join("components.json")).expect("the list of what was built");
    let made: Value = serde_json::from_slice(&made).expect("JSON");
    let images = made["components"].as_array().expect("components").iter().filter(|one| one["kind"] == "image");
    let mut archives: Vec<PathBuf> = images.map(|one| suite.join(one["path"].as_str().expect("a path"))).collect();
    // Tests start these two as well, by the names that kubeadm has for them.
    archives.extend(["pause", "etcd"].map(|name| built("DIST").join(format!("images/{name}.tar"))));
    let begun = Instant::now();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(push(&registry, &archives));
    println!("        {} images were pushed in {:.1?}", archives.len(), begun.elapsed());

    let inventory = w.lab.inventory();
    let text = fs::read_to_string(&inventory).expect("the inventory is readable");
    let mirrors = format!("registries: {{mirrors: {{{IMAGES}: [\"{}\"]}}}}\n", registry.url());
    fs::write(&inventory, text + &mirrors).expect("the inventory is writable");
    w.hactl.up().ok();
    w.healthy(SETTLED);
    registry
}

/// Pushes images under all their names.
async fn push(registry: &Registry, archives: &[PathBuf]) {
    // Images share layers.
    let mut sent: BTreeMap<String, Reference> = BTreeMap::new();
    for path in archives {
        let archive = Archive::open(path);
        for (name, manifest) in archive.names() {
            let rest = name.strip_prefix(IMAGES).and_then(|rest| rest.strip_prefix('/'));
            let place = rest.and_then(|rest| rest.rsplit_once(':'));
            let (repository, tag) = place.unwrap_or_else(|| panic!("{name} is not of {IMAGES}"));
            let (client, target) = registry.client(repository, tag).await;
            for digest in archive.parts(&manifest) {
                let there = match sent.get(&digest) {
                    Some(source) if source.repository() == repository => true,
                    Some(source) => client.mount_blob(&target, source, &digest).await.is_ok(),
                    None => false,
                };
                if !there {
                    client.push_blob(&target, archive.blob(&digest), &digest).await.expect("the registry takes it");
                    sent.insert(digest, target.clone());
                }
            }
            let kind = "application/vnd.oci.image.manifest.v1+json".parse().expect("a media type");
            let pushed = client.push_manifest_raw(&target, archive.blob(&manifest), kind).await;
            pushed.expect("the registry takes it");
        }
    }
}

/// A report of ginkgo.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    spec_reports: Vec<Spec>,
}

/// A test in it, or a step of the whole suite.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
    num_attempts: u32,
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    message: String,
}

impl Spec {
    fn name(&self) -> String {
        let containers = self.container_hierarchy_texts.iter().flatten();
        let texts = containers.chain([&self.leaf_node_text]).filter(|text| !text.is_empty());
        texts.map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

/// How a test ended: a state of ginkgo such as `passed`, and why.
struct End {
    state: String,
    message: String,
}

impl End {
    fn is_well(&self) -> bool {
        matches!(self.state.as_str(), "passed" | "skipped")
    }
}

/// Runs tests through the endpoint with the administrator's kubeconfig, and returns how each ended that began, and what
/// else failed.
fn run(w: &World, folder: &Path, tests: &[&String], processes: usize) -> (BTreeMap<String, End>, Vec<String>) {
    // Without a name, ginkgo would run every test that there is.
    if tests.is_empty() {
        return (BTreeMap::new(), Vec::new());
    }
    if folder.exists() {
        fs::remove_dir_all(folder).expect("the last run's reports can be removed");
    }
    fs::create_dir_all(folder).expect("writable");
    let log = folder.join("log");
    let out = fs::File::create(&log).expect("writable");
    let (bin, state) = (built("E2E").join("bin"), w.hactl.state(w.lab.name()));
    let mut command = Command::new(bin.join("ginkgo"));
    command.args(["run", "--no-color", "--silence-skips", "--timeout=12h"]).arg(format!("--procs={processes}"));
    command.args(tests.iter().map(|test| format!("--focus=^Kubernetes e2e suite {}$", regex::escape(test))));
    command.arg(bin.join("e2e.test")).args(["--", "--provider=skeleton", "--report-complete-ginkgo"]);
    command.arg("--non-blocking-taints=node-role.kubernetes.io/control-plane");
    let kubectl = built("DIST").join("bin/kubectl");
    for (flag, path) in [("kubeconfig", &state.join("kubeconfig")), ("kubectl-path", &kubectl)] {
        command.arg(format!("--{flag}={}", path.display()));
    }
    command.arg(format!("--report-dir={}", folder.display()));
    // kubectl keeps files in the home directory, and no proxy leads to a lab.
    command.env("HOME", folder).env("NO_PROXY", "*").env_remove("no_proxy");
    command.env_remove("KUBE_TEST_REPO").env_remove("KUBE_TEST_REPO_LIST").stdin(Stdio::null());
    command.stderr(out.try_clone().expect("a second handle")).stdout(out);
    let ended = command.status().expect("ginkgo can be started");

    let report = folder.join("ginkgo/report.json");
    let text = fs::read(&report).unwrap_or_else(|e| {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let end = said.lines().rev().take(40).collect::<Vec<_>>();
        let end = end.into_iter().rev().collect::<Vec<_>>().join("\n");
        panic!("{}: {e}; ginkgo ended with {ended}, and the end of {} is\n{end}", report.display(), log.display())
    });
    let reports: Vec<Report> = serde_json::from_slice(&text).expect("a report of ginkgo");
    let (mut ends, mut steps) = (BTreeMap::new(), Vec::new());
    for spec in reports.into_iter().flat_map(|report| report.spec_reports) {
        let name = spec.name();
        let message = spec.failure.map(|failure| failure.message).unwrap_or_default();
        if spec.leaf_node_type == "It" {
            if spec.num_attempts > 0 {
                ends.insert(name, End { state: spec.state, message });
            }
        } else if spec.state != "passed" {
            steps.push(format!("{} {name}: {}\n        {}", spec.leaf_node_type, spec.state, start(&message)));
        }
    }
    if !ended.success() && steps.is_empty() && ends.values().all(End::is_well) {
        steps.push(format!("ginkgo ended with {ended} although no test failed; see {}", log.display()));
    }
    (ends, steps)
}

/// The start of a message, in one line.
fn start(message: &str) -> String {
    message.split_whitespace().take(60).collect::<Vec<_>>().join(" ")
}

/// The SIG in the name of a test.
fn sig(test: &str) -> &str {
    test.strip_prefix("[sig-").and_then(|rest| rest.split_once(']')).map_or("none", |(sig, _)| sig)
}

/// The numbers of tests in docs/conformance.md are those of the suite.
fn counts(document: &str, all: &BTreeSet<String>) {
    let mut expected = BTreeMap::from([("all", all.len())]);
    for test in all {
        *expected.entry(sig(test)).or_default() += 1;
    }
    let (_, results) = document.split_once("\n## Results\n").expect("a section of results");
    let results = results.split("\n## ").next().unwrap_or_default();
    let rows = results.lines().filter_map(|line| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        Some((cells.next()?, cells.next()?.parse::<usize>().ok()?))
    });
    let written: BTreeMap<&str, usize> = rows.collect();
    assert_eq!(written, expected, "the numbers of tests in docs/conformance.md, and in the suite");
    let serial = all.iter().filter(|test| test.contains("[Serial]")).count();
    let said = format!("{serial} of the tests are `[Serial]`");
    assert!(results.contains(&said), "docs/conformance.md does not say that {said}");
}

/// Runs some of all tests, with the reports in a folder of this name: first those that may run in parallel, then the
/// `[Serial]` ones, and then once more those that did not pass in parallel. Each must pass, or be documented.
fn judge(w: &World, name: &str, all: &BTreeSet<String>, tests: &BTreeSet<String>) {
    let document = document();
    counts(&document, all);
    let documented = documented(&document);
    let strange: Vec<&String> = documented.union(tests).filter(|test| !all.contains(*test)).collect();
    assert!(strange.is_empty(), "these are not conformance tests of this version: {strange:#?}");
    let (serial, parallel): (Vec<&String>, Vec<&String>) = tests.iter().partition(|test| test.contains("[Serial]"));

    let registry = ready(w);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let begun = Instant::now();
    let (mut ends, mut failed) = (BTreeMap::new(), Vec::new());
    for (part, tests, processes) in [("parallel", &parallel, PROCESSES), ("serial", &serial, 1)] {
        let (others, steps) = run(w, &folder.join(part), tests, processes);
        ends.extend(others);
        failed.extend(steps);
    }
    // All five hosts and the tests share the processors, so a test may have failed for want of them.
    let again = parallel.into_iter().filter(|test| ends.get(*test).is_some_and(|end: &End| !end.is_well()));
    let (others, steps) = run(w, &folder.join("again"), &again.take(AGAIN).collect::<Vec<_>>(), 1);
    for (test, end) in others {
        println!("{test}: {}, then {}\n        {}", ends[&test].state, end.state, start(&ends[&test].message));
        ends.insert(test, end);
    }
    failed.extend(steps);
    drop(registry);
    let minutes = begun.elapsed().as_secs_f32() / 60.0;
    println!("{}\nThey took {minutes:.1} min, and the reports are in {}.", table(tests, &ends), folder.display());

    let (passed, others): (Vec<&String>, Vec<&String>) =
        tests.iter().partition(|test| ends.get(*test).is_some_and(|end| end.state == "passed"));
    for test in others {
        let (state, message) =
            ends.get(test).map_or(("did not run", ""), |end| (end.state.as_str(), end.message.as_str()));
        let said = format!("{test}: {state}\n        {}", start(message));
        if documented.contains(test) { println!("{said}") } else { failed.push(said) }
    }
    for test in passed.into_iter().filter(|test| documented.contains(*test)) {
        println!("{test}: passed, although docs/conformance.md lists it");
    }
    let (count, failed) = (failed.len(), failed.join("\n"));
    assert!(count == 0, "{count} tests or steps did not pass, and docs/conformance.md does not list them:\n{failed}");
    w.healthy(SETTLED);
}

/// The table of docs/conformance.md.
fn table(tests: &BTreeSet<String>, ends: &BTreeMap<String, End>) -> String {
    let mut rows: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    let mut sum = [0; 4];
    for test in tests {
        let column = match ends.get(test).map(|end| end.state.as_str()) {
            Some("passed") => 1,
            Some("skipped") | None => 3,
            Some(_) => 2,
        };
        for row in [rows.entry(sig(test)).or_default(), &mut sum] {
            row[0] += 1;
            row[column] += 1;
        }
    }
    let line = |name: &str, row: [usize; 4]| format!("| {name} | {} |\n", row.map(|n| n.to_string()).join(" | "));
    let head = "| SIG | tests | passed | failed | did not run |\n|---|---|---|---|---|\n".to_owned();
    rows.iter().fold(head, |text, (sig, row)| text + &line(sig, *row)) + &line("all", sum)
}

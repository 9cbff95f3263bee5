//! The house rules, checked in the sources: allowed imports, the length of a file, and forbidden text.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "architecture/circles.rs"]
mod circles;

/// The floors of the house, highest first. A folder imports only from floors below its own; folders of one floor do not
/// import one another. `agent` runs on hosts: it is near the top, and only `guard`, which runs on hosts too, and `cli`
/// import it.
const FLOORS: &[&[&str]] = &[
    &["cli"],
    &["guard"],
    &["workflow", "agent"],
    &["reconcile", "controllers"],
    &["execute"],
    &["observe", "report", "lab"],
    &["render"],
    &["plan", "pki"],
    &["inventory", "statedir", "transport", "kube", "etcd", "component", "support"],
    &["snapshot", "issue"],
    &["protocol"],
    &["model", "process"],
];

/// Stricter than the floors: folders that import only these.
const ONLY: &[(&str, &[&str])] = &[
    ("agent", &["etcd", "issue", "snapshot", "protocol", "model"]),
    (
        "guard",
        &[
            "agent",
            "reconcile",
            "controllers",
            "execute",
            "observe",
            "kube",
            "transport",
            "snapshot",
            "plan",
            "protocol",
            "model",
        ],
    ),
    ("plan", &["model"]),
    ("kube", &["model"]),
    ("etcd", &["protocol", "model"]),
    ("issue", &["model"]),
    ("protocol", &["model"]),
    ("model", &[]),
];

/// Roots of the crate; they are not folders.
const ROOTS: &[&str] = &["main", "lib"];

/// The files that may print.
const MAY_PRINT: &[&str] = &["src/cli/", "src/report/", "src/main.rs"];

const LONGEST: usize = 600;

struct Source {
    path: String,
    text: String,
}

impl Source {
    /// The folder directly under `src/`, or the stem of a file there.
    fn folder(&self) -> &str {
        let inside = self.path.strip_prefix("src/").unwrap_or(&self.path);
        inside.split('/').next().and_then(|f| f.strip_suffix(".rs").or(Some(f))).unwrap_or(inside)
    }
    /// The code without its tests and without comments, each line with its number.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let module = |l: &&str| l.starts_with("mod ") && l.ends_with('{');
        let tests = |at: &usize| lines[*at] == "#[cfg(test)]" && lines.get(at + 1).is_some_and(module);
        let end = (0..lines.len()).find(tests).unwrap_or(lines.len());
        let code = lines.into_iter().take(end).enumerate().map(|(n, line)| (n + 1, line));
        code.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn sources(below: &[&str]) -> Vec<Source> {
    let root =
        PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned()));
    let mut paths = Vec::new();
    for folder in below {
        walk(&root.join(folder), &mut paths);
    }
    paths.sort();
    let read = |path: PathBuf| Source {
        text: fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())),
        path: path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().into_owned(),
    };
    paths.into_iter().map(read).collect()
}

fn floor(folder: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&folder))
}

/// Folders named by `crate::folder` anywhere on a line, in code and in `use` trees of one level.
fn imports(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for rest in line.split("crate::").skip(1) {
        if let Some(tree) = rest.strip_prefix('{') {
            let names = tree
                .split('}')
                .next()
                .unwrap_or(tree)
                .split(',')
                .map(|n| n.trim().split("::").next().unwrap_or("").to_owned());
            found.extend(names.filter(|n| !n.is_empty()));
            continue;
        }
        let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        found.push(name);
    }
    found
}

/// Whether a folder may import another one.
fn may(from: &str, to: &str) -> bool {
    if from == to || ROOTS.contains(&from) {
        return true;
    }
    if let Some((_, allowed)) = ONLY.iter().find(|(folder, _)| *folder == from) {
        return allowed.contains(&to);
    }
    match (floor(from), floor(to)) {
        (Some(from), Some(to)) => to > from,
        _ => false,
    }
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn a_folder_imports_only_from_the_folders_below_it() {
    let mut wrong = Vec::new();
    for source in sources(&["src"]) {
        for (number, line) in source.code() {
            for to in imports(line).iter().filter(|to| floor(to).is_some()) {
                if !may(source.folder(), to) {
                    wrong.push(format!("{}:{number}: {} imports {to}", source.path, source.folder()));
                }
            }
        }
    }
    assert_none("imports against the house table", &wrong);
}

/// The engine: the folders that may run without an administrator.
const ENGINE: &[&str] = &["reconcile", "execute", "observe", "plan", "render"];
/// Modules that only an administrator's machine has.
const ADMINISTRATORS: &[&str] = &[
    "crate::statedir",
    "crate::inventory",
    "crate::transport::ssh",
    "crate::transport::Access",
    "crate::transport::Machine",
];

#[test]
fn the_engine_reaches_neither_the_state_directory_nor_the_inventory_nor_ssh() {
    let mut wrong = Vec::new();
    for source in sources(&["src"]).into_iter().filter(|s| ENGINE.contains(&s.folder()) && !s.path.contains("/tests")) {
        for (number, line) in source.code() {
            let tree = line.trim_start().strip_prefix("use crate::transport::{");
            let named = tree.is_some_and(|tree| {
                tree.split([',', '}', ' ']).any(|name| matches!(name, "Access" | "Machine" | "ssh"))
            });
            if named || ADMINISTRATORS.iter().any(|path| line.contains(path)) {
                wrong.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    assert_none("modules that only an administrator's machine has", &wrong);
}

#[test]
fn every_folder_belongs_to_a_floor() {
    let folders: BTreeSet<String> = sources(&["src"]).iter().map(|s| s.folder().to_owned()).collect();
    let homeless: Vec<String> =
        folders.into_iter().filter(|f| floor(f).is_none() && !ROOTS.contains(&f.as_str())).collect();
    assert_none("folders without a floor", &homeless);
}

#[test]
fn every_module_says_why_it_exists() {
    // The module beside a `tests.rs` explains it.
    let modules = sources(&["src", "tests"]).into_iter().filter(|s| !s.path.ends_with("/tests.rs"));
    let undocumented = modules.filter(|s| !s.text.starts_with("//!")).map(|s| s.path);
    assert_none("files that do not begin with //!", &undocumented.collect::<Vec<_>>());
}

#[test]
fn no_file_is_longer_than_a_person_reads_at_once() {
    let long = sources(&["src", "tests"]).into_iter().filter(|s| s.text.lines().count() > LONGEST);
    let long: Vec<String> = long.map(|s| format!("{}: {} lines", s.path, s.text.lines().count())).collect();
    assert_none("files that are too long", &long);
}

#[test]
fn nothing_is_left_for_later() {
    let mut found = Vec::new();
    // Joined at run time, so that this file does not match.
    let words =
        [["to", "do!("], ["unimple", "mented!("], ["#[ig", "nore"], ["(being ", "written)"]].map(|w| w.concat());
    for source in sources(&["src", "tests"]) {
        for (number, line) in source.text.lines().enumerate() {
            for word in words.iter().filter(|w| line.contains(*w)) {
                found.push(format!("{}:{}: {word}", source.path, number + 1));
            }
        }
    }
    assert_none("stubs and tests that do not run", &found);
}

#[test]
fn only_readers_print() {
    let words = ["println!(", "eprintln!(", "print!(", "eprint!(", "dbg!("];
    let mut found = Vec::new();
    for source in sources(&["src"]) {
        if MAY_PRINT.iter().any(|place| source.path.starts_with(place)) {
            continue;
        }
        for (number, line) in source.code() {
            let macro_call = |word: &&&str| {
                line.match_indices(**word)
                    .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
            };
            for word in words.iter().filter(macro_call) {
                found.push(format!("{}:{number}: {word}...)", source.path));
            }
        }
    }
    assert_none("printing outside the readers", &found);
}

/// Files that write to standard output or standard error without `report/harmless.rs`, and why they may: output that
/// people do not read, output that is a whole file for other programs, and the readers, which have their own writer.
const PAST_IT: &[(&str, &str)] = &[
    ("src/cli/host.rs", "on hosts, for hactl and the journal"),
    ("src/cli/mod.rs", "a manual and completions, made from this program alone"),
    ("src/cli/bundle/carry.rs", "a bundle's bytes"),
    ("src/report/harmless.rs", "it is the filter itself"),
    ("src/report/reader.rs", "its `put` and the live lines use the filter"),
];

#[test]
fn all_printed_text_passes_through_the_harmless_filter() {
    let queries_only = ["is_terminal()", "columns(std::io::", "size(io::"];
    let mut found = Vec::new();
    for source in sources(&["src/cli", "src/report", "src/workflow"]) {
        if PAST_IT.iter().any(|(path, _)| source.path == *path) {
            continue;
        }
        for (number, line) in source.code().filter(|(_, line)| !queries_only.iter().any(|query| line.contains(query))) {
            let streams = ["io::stdout()", "io::stderr()", "StandardOutput", "print_unfiltered("];
            let outputs = streams.into_iter().chain(["println!(", "print!(", "dbg!("]);
            if outputs.into_iter().any(|output| line.contains(output)) {
                found.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    assert_none("printing past report/harmless.rs", &found);
}

#[test]
fn only_main_ends_the_process() {
    let mut found = Vec::new();
    for source in sources(&["src"]).into_iter().filter(|s| s.path != "src/main.rs") {
        for (number, line) in source.code() {
            if line.contains("process::exit") || line.contains("process::abort") {
                found.push(format!("{}:{number}", source.path));
            }
        }
    }
    assert_none("exits outside main.rs", &found);
}

#[test]
fn the_floor_table_is_interpreted_correctly() {
    assert!(may("workflow", "plan") && may("render", "plan") && may("observe", "plan") && may("execute", "observe"));
    assert!(
        !may("lab", "workflow") && !may("plan", "protocol") && !may("model", "protocol") && !may("transport", "plan")
    );
    assert!(may("agent", "etcd") && !may("agent", "transport") && !may("workflow", "agent") && may("cli", "agent"));
    assert!(!may("kube", "etcd"), "folders of one floor do not import one another");
    assert!(!may("cellar", "model"), "a folder without a floor may import nothing");
    assert_eq!(imports("use crate::{model::names::HostName, plan};"), ["model", "plan"]);
    assert_eq!(imports("    let x = crate::protocol::Op::Observe(crate::model::y());"), ["protocol", "model"]);
}

//! The language of the house: the words that were given up for the field's own are nowhere, and documents fit a page.
//!
//! In: documents, sources and templates as text. Out: a failure that names file, line and word. What is data, such as the name of a file on
//! hosts that clusters already have, is listed with its reason.

use std::fs;
use std::path::{Path, PathBuf};

/// Words and phrases that are not used in documents, nor in comments and texts of the program.
const WORDS: &[&str] = &[
    "genesis",
    "founder",
    "founders",
    "founding",
    "unborn",
    "anew",
    "of before",
    "of then",
    "lies still",
    "lie still",
    "let go of",
    "lets go of",
    "whoever",
    "whom",
    "knock",
    "knocks",
    "knocked",
    "knocking",
    "astray",
    "forsaken",
    "forsakes",
    "doorman",
    "patience",
    "gone on with",
    "goes on with",
    "go on with",
    "in the midst",
    "put right",
    "recovery bundle",
    "recovery bundles",
];

/// Names in the code that were given up for the field's terms (the table of names in docs/decisions/0203).
const NAMES: &[&str] = &[
    "Birth",
    "NeverBorn",
    "PutBack",
    "Rewire",
    "Knock",
    "Meeting",
    "LastWords",
    "Feed",
    "Silence",
    "Doorman",
    "Entrance",
    "Stamp",
    "Turning",
    "MoveAside",
    "Teller",
    "Board",
    "Diary",
    "LeafId",
    "Hands",
    "Wish",
    "told",
    "knocked",
    "last_words",
    "teller",
    "Mark",
];

/// Data: a word stays where something that already exists is called so.
const DATA: &[(&str, &str)] = &[
    ("hactl-genesis", "a file on the disks of members that clusters have"),
    ("hactl-knock", "the first bytes of a probe"),
    ("hactl-born", "a file on the disks of members that clusters have"),
    ("hactl recovery bundle 1", "the first bytes of every snapshot's file"),
    ("genesis-chosen", "an entry of the journal"),
    ("genesis-spent", "an entry of the journal"),
    ("GenesisChosen", "an entry of the journal"),
    ("GenesisSpent", "an entry of the journal"),
    ("limited-founding", "a word of verdicts for programs"),
    ("\"founding\"", "a word of `status -o json`"),
    ("\"forsaken\"", "a word of the journal"),
    ("\"turning\"", "a field of the state directory"),
];

fn root() -> PathBuf {
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned()))
}

fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            below(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Files below these places whose names end so, each with its path from the root and its text.
fn files(places: &[&str], endings: &[&str]) -> Vec<(String, String)> {
    let mut paths = Vec::new();
    for place in places {
        let at = root().join(place);
        if at.is_dir() { below(&at, &mut paths) } else { paths.push(at) }
    }
    paths.sort();
    let ends = |path: &PathBuf| endings.iter().any(|end| path.to_string_lossy().ends_with(end));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        (path.strip_prefix(root()).unwrap_or(&path).display().to_string(), text)
    };
    paths.into_iter().filter(ends).map(read).collect()
}

/// Whether a word stands in a line by itself. Capitals count only where `exact`.
fn has(line: &str, word: &str, exact: bool) -> bool {
    let (line, word) =
        if exact { (line.to_owned(), word.to_owned()) } else { (line.to_lowercase(), word.to_lowercase()) };
    let letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(&word)
        .any(|(at, _)| !letter(line[..at].chars().next_back()) && !letter(line[at + word.len()..].chars().next()))
}

/// The line without what is data.
fn without_data(line: &str) -> String {
    DATA.iter().fold(line.to_owned(), |line, (data, _)| line.replace(data, ""))
}

/// What people read of a line of Rust: a comment, or the text between quotes.
fn prose(line: &str) -> String {
    let trimmed = line.trim_start();
    if trimmed.starts_with("//") {
        return trimmed.to_owned();
    }
    line.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" ")
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}, {} times:\n  {}", found.len(), found.join("\n  "));
}

fn found(files: &[(String, String)], words: &[&str], of: impl Fn(&str) -> String, exact: bool) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files {
        for (number, line) in text.lines().enumerate() {
            let line = of(&without_data(line));
            for word in words.iter().filter(|word| has(&line, word, exact)) {
                found.push(format!("{path}:{}: {word}", number + 1));
            }
        }
    }
    found
}

#[test]
fn documents_and_templates_use_the_words_of_the_field() {
    let places = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "templates", "manifests", "inventories"];
    let files = files(
        &places,
        &[".md", ".yaml", ".yml", ".service", ".timer", ".conf", ".cfg", ".sh", ".txt", ".json", ".nft"],
    );
    // The decision about the words names them.
    let files: Vec<_> = files.into_iter().filter(|(path, _)| !path.contains("decisions/0203-")).collect();
    assert!(files.len() > 200, "{} files", files.len());
    assert_none("words that were given up", &found(&files, WORDS, str::to_owned, false));
}

#[test]
fn comments_and_messages_use_the_words_of_the_field() {
    let files = files(&["src"], &[".rs"]);
    assert!(files.len() > 300, "{} files", files.len());
    assert_none("words that were given up", &found(&files, WORDS, prose, false));
}

#[test]
fn names_in_the_code_are_the_fields() {
    let files = files(&["src", "tests"], &[".rs"]);
    let files: Vec<_> = files.into_iter().filter(|(path, _)| path != "tests/words.rs").collect();
    assert_none("names that were given up", &found(&files, NAMES, str::to_owned, true));
}

#[test]
fn no_line_of_a_document_is_wider_than_120_columns_and_readme_fits_200_lines() {
    let mut wide = Vec::new();
    for (path, text) in files(&["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs"], &[".md"]) {
        let lines = text.lines().enumerate().filter(|(_, line)| line.chars().count() > 120);
        wide.extend(lines.map(|(number, _)| format!("{path}:{}", number + 1)));
    }
    assert_none("lines that are too wide", &wide);
    let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
    assert!(readme.lines().count() <= 200, "README.md has {} lines", readme.lines().count());
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut dead = Vec::new();
    for (path, text) in files(&["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs"], &[".md"]) {
        let folder = root().join(&path).parent().expect("it is in a folder").to_owned();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { root().join(&path) } else { folder.join(file) };
            let lands = match fs::read_to_string(&file) {
                Ok(text) => anchor.is_empty() || anchors(&text).iter().any(|found| found == anchor),
                Err(_) => file.is_dir() && anchor.is_empty(),
            };
            if !lands {
                dead.push(format!("{path}: {target}"));
            }
        }
    }
    assert_none("links that lead nowhere", &dead);
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let one = |heading: &str| {
        let plain = heading
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .collect::<String>();
        plain.replace(' ', "-")
    };
    headings.map(one).collect()
}

#[test]
fn the_reader_of_words_itself_reads_as_meant() {
    assert!(has("a Genesis of etcd", "genesis", false) && !has("genesis_token", "genesis", false));
    assert!(has("of before it", "of before", false) && !has("of beforehand", "of before", false));
    assert_eq!(prose("    let a = \"one\"; // not this"), "one");
    assert_eq!(prose("    /// A comment."), "/// A comment.");
    assert_eq!(anchors("# A `code` heading, and more\n"), ["a-code-heading-and-more"]);
}

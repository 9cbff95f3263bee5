//! The text that people read first: the help of every command ends with examples that the command itself accepts.

use snapbox::{assert_data_eq, file};
use std::collections::BTreeSet;
use std::process::Command;

fn hactl(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_hactl"))
        .args(arguments)
        .env_remove("HACTL_INVENTORY")
        .env_remove("HACTL_BUNDLES")
        .env("COLUMNS", "100")
        .output()
        .expect("hactl can be started");
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The commands that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let rows = lines.take_while(|line| !line.is_empty());
    let names = rows.filter(|row| row.starts_with("  ") && !row.starts_with("   "));
    names.filter_map(|row| row.split_whitespace().next()).filter(|n| *n != "help").map(ToOwned::to_owned).collect()
}

/// Every visible command, as the words after `hactl`.
fn commands() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![Vec::new()];
    while let Some(path) = open.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let (code, help) = hactl(&words);
        assert_eq!(code, 0, "{words:?}");
        for name in listed(&help) {
            open.push(path.iter().cloned().chain([name]).collect());
        }
        found.push(path);
    }
    found
}

#[test]
fn the_first_page_of_help_matches_its_golden_file() {
    let (code, help) = hactl(&["--help"]);
    assert_eq!(code, 0);
    assert_data_eq!(help, file!["golden/help.txt"]);
}

#[test]
fn every_command_shows_examples_that_use_the_command() {
    let all = commands();
    assert!(all.len() > 20, "the walk over the commands found only {all:?}");
    for path in all {
        let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let (_, help) = hactl(&words);
        let examples = help.split_once("Examples:\n").unwrap_or_else(|| panic!("{path:?} has no examples")).1;
        let last = path.last().map_or("hactl", String::as_str);
        assert!(examples.lines().any(|l| l.contains("hactl") && l.contains(last)), "{path:?}:\n{examples}");
    }
}

#[test]
fn every_command_has_a_page_in_the_manual_and_is_completed_by_the_shell() {
    // In a manual's source, a literal dash is escaped.
    let manual = hactl(&["man"]).1.replace("\\-", "-");
    let (_, completion) = hactl(&["completions", "bash"]);
    let verbs: BTreeSet<String> = commands().into_iter().filter(|p| p.len() == 1).flatten().collect();
    for verb in verbs {
        assert!(manual.contains(&verb), "the manual does not mention {verb}");
        assert!(completion.contains(&verb), "the completion does not know {verb}");
    }
}

#[test]
fn an_unknown_command_and_an_unknown_flag_are_usage_errors_with_a_suggestion() {
    let output = Command::new(env!("CARGO_BIN_EXE_hactl")).arg("statsu").output().expect("hactl can be started");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("status"), "{output:?}");
    let output =
        Command::new(env!("CARGO_BIN_EXE_hactl")).args(["up", "--yess"]).output().expect("hactl can be started");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--yes"), "{output:?}");
}

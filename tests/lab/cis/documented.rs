//! The table of docs/security.md: what does not pass, at which level, and why. In: the document. Out: a row for each
//! check.

use super::judge::Verdict;
use std::collections::BTreeMap;

/// A level of hardening.
#[derive(Debug, Clone, Copy)]
pub enum Level {
    Default,
    Cis,
}

/// What the document says of a check.
#[derive(Debug, Clone)]
pub struct Row {
    pub by_default: Verdict,
    pub cis: Verdict,
    pub why: String,
}

impl Row {
    pub fn at(&self, level: Level) -> Verdict {
        match level {
            Level::Default => self.by_default,
            Level::Cis => self.cis,
        }
    }
}

fn verdict(word: &str) -> Verdict {
    let all = [Verdict::Pass, Verdict::Warn, Verdict::Fail];
    all.into_iter().find(|one| one.to_string() == word).unwrap_or_else(|| panic!("{word} is no verdict"))
}

/// The checks of a first cell, such as `1.1.7, 5.2.1-5.2.12`.
fn checks(cell: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in cell.split(", ") {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let split = |id: &str| {
            let (section, number) = id.rsplit_once('.').unwrap_or_else(|| panic!("{id} is no check"));
            (section.to_owned(), number.parse::<u32>().unwrap_or_else(|_| panic!("{id} is no check")))
        };
        let ((section, from), (same, to)) = (split(first), split(last));
        assert!(section == same && from <= to, "{part} is no range");
        found.extend((from..=to).map(|number| format!("{section}.{number}")));
    }
    found
}

/// The rows of the table below the heading of the benchmark.
pub fn read(document: &str) -> BTreeMap<String, Row> {
    let (_, section) = document.split_once("\n## CIS Kubernetes Benchmark\n").expect("a section about the benchmark");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut rows = BTreeMap::new();
    let is_row = |line: &&str| line.strip_prefix("| ").is_some_and(|cells| cells.starts_with(char::is_numeric));
    for line in section.lines().filter(is_row) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [ids, by_default, cis, why] = cells[..] else { panic!("four cells: {line}") };
        let row = Row { by_default: verdict(by_default), cis: verdict(cis), why: why.to_owned() };
        for id in checks(ids) {
            assert!(rows.insert(id.clone(), row.clone()).is_none(), "{id} is there twice");
        }
    }
    rows
}

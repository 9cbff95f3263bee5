//! OpenSSH's configuration, `~/.ssh/config`: its settings for a host, with their lines.
//!
//! In: files, read through [`Files`], so that tests can pass texts. Out: [`Settings`] for one host: for each key the
//! first line that applies, like `ssh`. `check/` decides about each line whether hactl supports it; this module
//! only resolves `Host`, `Match` and `Include`.

pub mod keys;
mod read;

use super::at::Place;
use super::defaults::USER;
use super::files::Files;
use crate::model::glob::{covers, list_covers};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A file of the configuration.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Its path.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// A line of one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The file's index in [`Config::origin`].
    pub file: usize,
    /// The place in the file.
    pub place: Place,
}

/// One line with a keyword.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its place.
    pub spot: Spot,
    /// The keyword in lower case.
    pub key: String,
    /// The keyword as written.
    pub written: String,
    /// The words after it.
    pub words: Vec<String>,
    /// Why the words cannot be read, if so.
    pub broken: Option<&'static str>,
    /// The lines of the files that an `Include` names.
    included: Vec<Vec<Line>>,
}

impl Line {
    /// The first word after the keyword.
    pub fn word(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }
    /// Whether the first word is this one, in any case.
    pub fn says(&self, word: &str) -> bool {
        self.word().eq_ignore_ascii_case(word)
    }
}

/// A line or a file that cannot be read, for any host.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// The line; `None`: the file itself.
    pub spot: Option<Spot>,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

/// A configuration with everything it includes.
#[derive(Debug, Clone, Default)]
pub struct Config {
    origins: Vec<Origin>,
    lines: Vec<Line>,
    /// Lines and files that cannot be read.
    pub troubles: Vec<Trouble>,
}

/// The host of a query.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Its names, as one would type them after `ssh`.
    pub names: &'a [&'a str],
    /// The user, if it is known already.
    pub user: Option<&'a str>,
    /// Our user name on this machine.
    pub local_user: &'a str,
}

/// A configuration's settings for one host.
#[derive(Debug, Default)]
pub struct Settings<'c> {
    /// By key: the first line that applies. `ProxyCommand` and `ProxyJump` share the key `proxy`.
    first: BTreeMap<&'c str, &'c Line>,
    /// Every `IdentityFile` and `CertificateFile` that applies, in order.
    lists: Vec<&'c Line>,
    /// Lines with a key that hactl uses and an unreadable value.
    pub broken: Vec<&'c Line>,
    /// Unknown keys.
    pub unknown: Vec<&'c Line>,
    /// `Match` lines that would have an effect and of which hactl cannot determine whether they apply.
    pub undecided: Vec<&'c Line>,
    /// Patterns of keys to ignore.
    ignored: Vec<&'c str>,
}

impl<'c> Settings<'c> {
    /// The line that sets a key.
    pub fn get(&self, key: &str) -> Option<&'c Line> {
        self.first.get(key).copied()
    }
    /// All lines of a key that may be written several times.
    pub fn all(&self, key: &str) -> impl Iterator<Item = &'c Line> {
        self.lists.iter().copied().filter(move |line| line.key == key)
    }
    /// Every line that sets a key.
    pub fn lines(&self) -> impl Iterator<Item = &'c Line> {
        self.first.values().copied()
    }
}

/// Whether a block applies.
#[derive(Debug, Clone, Copy)]
enum Applies<'c> {
    Yes,
    No,
    /// It depends on a program or on the network; the `Match` line.
    Undecided(&'c Line),
}

impl Config {
    /// Reads a file with all included files. Without a file, the configuration is empty.
    pub fn read(path: &Path, home: Option<&Path>, files: &dyn Files) -> Self {
        read::config(path, home, files)
    }

    /// One of its files.
    pub fn origin(&self, file: usize) -> Option<&Origin> {
        self.origins.get(file)
    }

    /// Its settings for a host.
    pub fn settings<'c>(&'c self, asked: Asked<'_>) -> Settings<'c> {
        let mut settings = Settings::default();
        apply(&self.lines, Applies::Yes, asked, &mut settings);
        settings
    }
}

fn apply<'c>(lines: &'c [Line], begin: Applies<'c>, asked: Asked<'_>, into: &mut Settings<'c>) {
    let mut now = begin;
    for line in lines {
        match line.key.as_str() {
            "host" => {
                let meant = list_covers(line.words.iter().map(String::as_str), asked.names);
                now = narrowed(begin, if meant { Applies::Yes } else { Applies::No });
            }
            "match" => now = narrowed(begin, matches(line, asked, into)),
            "include" => {
                // `Host` lines of an included file end with that file.
                for file in &line.included {
                    apply(file, now, asked, into);
                }
            }
            key => match now {
                Applies::No => {}
                Applies::Yes => take(line, into),
                Applies::Undecided(cause) => {
                    let open = into.get(slot(key)).is_none() || keys::is_list(key);
                    let matters = open && !keys::is_ignored(key) && !into.ignored.iter().any(|p| covers(p, key));
                    if matters && !into.undecided.iter().any(|known| known.spot == cause.spot) {
                        into.undecided.push(cause);
                    }
                }
            },
        }
    }
}

/// Combines a block with the block that includes its file.
fn narrowed<'c>(outer: Applies<'c>, inner: Applies<'c>) -> Applies<'c> {
    match (outer, inner) {
        (Applies::No, _) | (_, Applies::No) => Applies::No,
        (Applies::Undecided(line), _) => Applies::Undecided(line),
        (Applies::Yes, inner) => inner,
    }
}

fn slot(key: &str) -> &str {
    if matches!(key, "proxycommand" | "proxyjump") { "proxy" } else { key }
}

fn take<'c>(line: &'c Line, into: &mut Settings<'c>) {
    let key = line.key.as_str();
    if key == "ignoreunknown" {
        into.ignored.extend(line.words.iter().flat_map(|word| word.split(',')));
    }
    if keys::is_known(key) && !keys::is_ignored(key) && (line.broken.is_some() || line.words.is_empty()) {
        into.broken.push(line);
    } else if keys::is_list(key) {
        into.lists.push(line);
    } else if keys::is_known(key) {
        into.first.entry(slot(key)).or_insert(line);
    } else if !into.ignored.iter().any(|pattern| covers(pattern, key)) {
        into.unknown.push(line);
    }
}

/// Evaluates a `Match` line without running programs or queries.
fn matches<'c>(line: &'c Line, asked: Asked<'_>, so_far: &Settings<'_>) -> Applies<'c> {
    let mut verdict =
        if line.broken.is_some() || line.words.is_empty() { Applies::Undecided(line) } else { Applies::Yes };
    let mut words = line.words.iter();
    while let Some(criterion) = words.next() {
        let (negated, plain) = criterion.strip_prefix('!').map_or((false, criterion.as_str()), |rest| (true, rest));
        // `host=pattern` is valid too.
        let (plain, joined) = plain.split_once('=').map_or((plain, None), |(name, value)| (name, Some(value)));
        let lowered = plain.to_ascii_lowercase();
        let holds = match lowered.as_str() {
            "all" => true,
            "host" | "originalhost" | "user" | "localuser" => {
                let Some(patterns) = joined.or_else(|| words.next().map(String::as_str)) else {
                    return Applies::Undecided(line);
                };
                let resolved = so_far.get("hostname").map(Line::word).filter(|name| !name.contains('%'));
                let user = asked.user.or_else(|| so_far.get("user").map(Line::word)).unwrap_or(USER);
                let (resolved, user, local) = ([resolved.unwrap_or_default()], [user], [asked.local_user]);
                let names = match lowered.as_str() {
                    "host" if !resolved[0].is_empty() => &resolved[..],
                    "host" | "originalhost" => asked.names,
                    "user" => &user[..],
                    _ => &local[..],
                };
                list_covers(patterns.split(','), names)
            }
            other => {
                // `exec`, `localnetwork`, `tagged` and others have a value; `canonical` and `final` do not.
                if !matches!(other, "canonical" | "final") && joined.is_none() {
                    words.next();
                }
                verdict = Applies::Undecided(line);
                continue;
            }
        };
        if holds == negated {
            return Applies::No;
        }
    }
    verdict
}

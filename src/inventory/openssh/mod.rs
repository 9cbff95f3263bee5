//! OpenSSH's own configuration, `~/.ssh/config`: what it says about a host, with the line that says it.
//!
//! In: files, read through [`Files`] so that tests can hand in texts. Out: [`Settings`] for one host: for each key the first
//! line that applies, as `ssh` would choose it. What a line means to hactl, and whether it can be honoured, is decided in
//! `check/ways.rs`; here is only who is meant by `Host`, `Match` and `Include`.

pub mod keys;
mod read;

use super::at::Place;
use crate::model::glob::{covers, list_covers};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Where files besides the inventory come from.
pub trait Files {
    /// The text of a file.
    fn read(&self, path: &Path) -> io::Result<String>;
    /// The names in a folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
}

/// The files of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(read::LARGEST as u64 + 1).read_to_end(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(folder)?;
        Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
    }
}

/// No files at all.
#[derive(Debug, Clone, Copy)]
pub struct Nothing;

impl Files for Nothing {
    fn read(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }
    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Texts in place of files, for tests.
impl Files for BTreeMap<PathBuf, String> {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let inside = self.keys().filter_map(|path| path.strip_prefix(folder).ok()?.components().next());
        Ok(inside.map(|name| name.as_os_str().to_string_lossy().into_owned()).collect())
    }
}

/// A file of the configuration.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Where it lies.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// A line of one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// Which file, as [`Config::origin`] counts them.
    pub file: usize,
    /// Where in it.
    pub place: Place,
}

/// One line with a keyword.
#[derive(Debug, Clone)]
pub struct Line {
    /// Where it stands.
    pub spot: Spot,
    /// The keyword in small letters.
    pub key: String,
    /// The keyword as written.
    pub written: String,
    /// What follows it.
    pub words: Vec<String>,
    /// Why what follows cannot be read, when it cannot.
    pub broken: Option<&'static str>,
    /// The lines of the files that an `Include` names.
    included: Vec<Vec<Line>>,
}

impl Line {
    /// The first word after the keyword.
    pub fn word(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }
    /// Whether the first word is this one, in whatever case.
    pub fn says(&self, word: &str) -> bool {
        self.word().eq_ignore_ascii_case(word)
    }
}

/// What cannot be read, wherever it applies.
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
    /// What cannot be read.
    pub troubles: Vec<Trouble>,
}

/// Who is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The names it goes by: what one would type after `ssh`.
    pub names: &'a [&'a str],
    /// The user, when that is decided already.
    pub user: Option<&'a str>,
    /// Who we are on this machine.
    pub local_user: &'a str,
}

/// What a configuration says about one host.
#[derive(Debug, Default)]
pub struct Settings<'c> {
    /// By key: the first line that applies. `ProxyCommand` and `ProxyJump` share the key `proxy`: whichever comes first.
    first: BTreeMap<&'c str, &'c Line>,
    /// Every `IdentityFile` and `CertificateFile` that applies, in order.
    lists: Vec<&'c Line>,
    /// Lines of keys that matter, without a value that can be read.
    pub broken: Vec<&'c Line>,
    /// Keys that nobody knows.
    pub unknown: Vec<&'c Line>,
    /// `Match` lines of which hactl cannot tell whether they apply, and that would change something.
    pub undecided: Vec<&'c Line>,
    /// Patterns of keys to pass over.
    ignored: Vec<&'c str>,
}

impl<'c> Settings<'c> {
    /// The line that decides a key.
    pub fn get(&self, key: &str) -> Option<&'c Line> {
        self.first.get(key).copied()
    }
    /// All lines of a key that may be written several times.
    pub fn all(&self, key: &str) -> impl Iterator<Item = &'c Line> {
        self.lists.iter().copied().filter(move |line| line.key == key)
    }
    /// Every line that decides a key.
    pub fn lines(&self) -> impl Iterator<Item = &'c Line> {
        self.first.values().copied()
    }
}

/// Whether a block applies.
#[derive(Debug, Clone, Copy)]
enum Applies<'c> {
    Yes,
    No,
    /// Only running a program, or knowing the network, would tell; the `Match` line.
    Undecided(&'c Line),
}

impl Config {
    /// Reads a file and all it includes. No file at all is an empty configuration.
    pub fn read(path: &Path, home: Option<&Path>, files: &dyn Files) -> Self {
        read::config(path, home, files)
    }

    /// A file of it.
    pub fn origin(&self, file: usize) -> Option<&Origin> {
        self.origins.get(file)
    }

    /// What it says about a host.
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
                // Whatever `Host` lines the included file has, they end with it.
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

/// A block inside a file that is itself included by a block.
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

/// Judges a `Match` line by what can be known without running or asking anything.
fn matches<'c>(line: &'c Line, asked: Asked<'_>, so_far: &Settings<'_>) -> Applies<'c> {
    let mut verdict =
        if line.broken.is_some() || line.words.is_empty() { Applies::Undecided(line) } else { Applies::Yes };
    let mut words = line.words.iter();
    while let Some(criterion) = words.next() {
        let (negated, plain) = criterion.strip_prefix('!').map_or((false, criterion.as_str()), |rest| (true, rest));
        // `host=pattern` is written as well.
        let (plain, joined) = plain.split_once('=').map_or((plain, None), |(name, value)| (name, Some(value)));
        let lowered = plain.to_ascii_lowercase();
        let holds = match lowered.as_str() {
            "all" => true,
            "host" | "originalhost" | "user" | "localuser" => {
                let Some(patterns) = joined.or_else(|| words.next().map(String::as_str)) else {
                    return Applies::Undecided(line);
                };
                let resolved = so_far.get("hostname").map(Line::word).filter(|name| !name.contains('%'));
                let user =
                    asked.user.or_else(|| so_far.get("user").map(Line::word)).unwrap_or(super::check::hosts::USER);
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
                // `exec`, `localnetwork`, `tagged` and the like carry a value; `canonical` and `final` do not.
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

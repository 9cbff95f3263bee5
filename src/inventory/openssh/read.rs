//! Reads files of OpenSSH's configuration into lines: words, quotes, comments, and `Include`.
//!
//! In: a path and [`Files`]. Out: a [`Config`]. Bounded: nested includes by OpenSSH's own limit, also the size and
//! number of files.

use super::{Config, Line, Origin, Spot, Trouble};
use crate::inventory::at::Place;
use crate::inventory::files::{Files, LARGEST};
use crate::model::glob::covers;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Limit for nested includes, as in OpenSSH.
const DEEPEST: usize = 16;
/// Limit for files.
const MOST: usize = 256;

struct Reader<'a> {
    home: Option<&'a Path>,
    files: &'a dyn Files,
    config: Config,
}

pub fn config(path: &Path, home: Option<&Path>, files: &dyn Files) -> Config {
    let mut reader = Reader { home, files, config: Config::default() };
    match files.read(path) {
        Ok(text) => {
            let lines = reader.file(path, text, 0);
            reader.config.lines = lines;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => reader.config.troubles.push(Trouble {
            spot: None,
            what: format!("{} cannot be read: {error}", path.display()),
            remedy: "correct the path or the file's permissions, or write `ssh: {config: none}` to read no such file"
                .to_owned(),
        }),
    }
    reader.config
}

impl Reader<'_> {
    fn file(&mut self, path: &Path, text: String, depth: usize) -> Vec<Line> {
        let file = self.config.origins.len();
        self.config.origins.push(Origin { path: path.to_owned(), text: text.clone() });
        if text.len() > LARGEST {
            self.trouble(
                Spot { file, place: Place::new(1, 1) },
                format!("the file is larger than {} KiB", LARGEST >> 10),
                "check the path: this may be another file",
            );
            return Vec::new();
        }
        let mut lines = Vec::new();
        let mut offset = 0;
        for (index, raw) in text.split('\n').enumerate() {
            let written = raw.trim_end_matches('\r').trim_end();
            let indent = written.len() - written.trim_start().len();
            let place = Place {
                line: index + 1,
                column: written[..indent].chars().count() + 1,
                bytes: written.len() - indent,
                offset: offset + indent,
            };
            offset += raw.len() + 1;
            if let Some(mut line) = line(Spot { file, place }, &written[indent..]) {
                if line.key == "include" {
                    line.included = self.include(&line, depth);
                }
                lines.push(line);
            }
        }
        lines
    }

    fn trouble(&mut self, spot: Spot, what: String, remedy: &str) {
        self.config.troubles.push(Trouble { spot: Some(spot), what, remedy: remedy.to_owned() });
    }

    fn include(&mut self, line: &Line, depth: usize) -> Vec<Vec<Line>> {
        if depth == DEEPEST {
            self.trouble(
                line.spot,
                format!("files include one another more than {DEEPEST} deep"),
                "check whether one of them includes itself, and remove that include",
            );
            return Vec::new();
        }
        let mut included = Vec::new();
        for word in &line.words {
            let Some(pattern) = self.located(word) else {
                self.trouble(
                    line.spot,
                    format!("hactl cannot tell where {word} is"),
                    "write the full path: absolute, from ~/, or relative to ~/.ssh",
                );
                continue;
            };
            for path in self.found(&pattern) {
                if self.config.origins.len() >= MOST {
                    self.trouble(line.spot, format!("more than {MOST} files are included"), "include fewer");
                    return included;
                }
                match self.files.read(&path) {
                    Ok(text) => included.push(self.file(&path, text, depth + 1)),
                    // As in OpenSSH: missing files are not included.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => self.trouble(
                        line.spot,
                        format!("{} cannot be read: {error}", path.display()),
                        "correct the file, or do not include it",
                    ),
                }
            }
        }
        included
    }

    /// An absolute pattern; `None` if only a shell could resolve it.
    fn located(&self, word: &str) -> Option<PathBuf> {
        if word.contains("${") {
            return None;
        }
        match word.strip_prefix('~') {
            Some(rest) if rest.starts_with('/') => Some(self.home?.join(rest.trim_start_matches('/'))),
            Some(_) => None,
            None if word.starts_with('/') => Some(PathBuf::from(word)),
            None => Some(self.home?.join(".ssh").join(word)),
        }
    }

    /// The files that match a pattern, in the order of their names.
    fn found(&self, pattern: &Path) -> Vec<PathBuf> {
        let mut found = vec![PathBuf::new()];
        for part in pattern.components() {
            let text = part.as_os_str().to_string_lossy();
            if !matches!(part, Component::Normal(_)) || !text.contains(['*', '?']) {
                for path in &mut found {
                    path.push(part);
                }
                continue;
            }
            let mut next = Vec::new();
            for folder in &found {
                // A folder that cannot be listed has no matches, as in glob(3).
                let mut names = self.files.list(folder).unwrap_or_default();
                names.sort();
                names.dedup();
                let meant = |name: &&String| covers(&text, name) && (!name.starts_with('.') || text.starts_with('.'));
                next.extend(names.iter().filter(meant).map(|name| folder.join(name)));
            }
            found = next;
        }
        found
    }
}

/// A line with a keyword; `None` for an empty one and for a comment.
fn line(spot: Spot, text: &str) -> Option<Line> {
    if text.is_empty() || text.starts_with('#') {
        return None;
    }
    let end = text.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(text.len());
    let (keyword, rest) = text.split_at(end);
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    let written = keyword.trim_matches('"');
    let (words, broken) = match words(rest) {
        Ok(words) => (words, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    Some(Line {
        spot,
        key: written.to_ascii_lowercase(),
        written: written.to_owned(),
        words,
        broken,
        included: Vec::new(),
    })
}

/// Words as OpenSSH splits them: quotes of both kinds, a few escapes, a comment at the end.
fn words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        match chars.peek() {
            None | Some('#') => return Ok(words),
            Some(_) => {}
        }
        let mut word = String::new();
        let mut quote = None;
        loop {
            match (chars.next(), quote) {
                (None, None) => break,
                (None, Some(_)) => return Err("a quote is not closed"),
                (Some(c), Some(open)) if c == open => quote = None,
                (Some(c @ ('"' | '\'')), None) => quote = Some(c),
                (Some('\\'), _) => {
                    match chars.next_if(|c| matches!(c, '"' | '\'' | '\\') || (*c == ' ' && quote.is_none())) {
                        Some(escaped) => word.push(escaped),
                        None => word.push('\\'),
                    }
                }
                (Some(c), None) if c.is_whitespace() => break,
                (Some(c), _) => word.push(c),
            }
        }
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_split_as_openssh_splits_them() {
        for (text, expected) in [
            ("a b", &["a", "b"][..]),
            ("\"a b\" c # said", &["a b", "c"]),
            ("a#b", &["a#b"]),
            (r#"'a "b"' c\ d \\e"#, &["a \"b\"", "c d", "\\e"]),
            ("", &[]),
            ("# all of it", &[]),
        ] {
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
        assert!(words("\"open").is_err());
    }

    #[test]
    fn a_key_may_be_joined_to_its_value_and_is_known_in_any_case() {
        let spot = Spot { file: 0, place: Place::new(1, 1) };
        for text in ["HostName=a", "hostname = a", "HOSTNAME a", "HostName \"a\""] {
            let line = line(spot, text).unwrap();
            assert_eq!((line.key.as_str(), line.word()), ("hostname", "a"), "{text}");
        }
        assert!(line(spot, "# HostName a").is_none());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_fail(text in any::<String>()) {
            let files = std::collections::BTreeMap::from([(PathBuf::from("/c"), text)]);
            let config = Config::read(Path::new("/c"), Some(Path::new("/home/me")), &files);
            let asked = crate::inventory::openssh::Asked { names: &["cp1"], user: None, local_user: "me" };
            let settings = config.settings(asked);
            prop_assert!(settings.lines().all(|line| line.spot.place.line > 0));
        }
    }
}

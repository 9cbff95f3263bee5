//! The user's own manifests: files and folders of YAML and JSON become a list of Kubernetes objects.
//!
//! In: paths. Out: objects in a stable order (of the list, then by path, then of the file), or problems with the file's
//! line. The checks need no API server: each object has a kind and a name, appears once, and is not one that only a
//! kubelet or hactl creates. Lists are split into objects. Fields that a server sets (`status`, `uid` and others) are
//! removed, so that an export can be used unchanged.

use super::at::{At, Place};
use super::attached::Naming;
use super::problem::{Problem, Severity, Words, shorten};
use crate::model::attached::UserObject;
use crate::model::plan::object_in_words;
use crate::model::target::{identity, object_key};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Limit for all files together; a large set of CRDs has about 5 MiB.
const LARGEST: u64 = 16 << 20;
/// Limit for objects. Their list must fit into one ConfigMap.
pub const MOST_OBJECTS: usize = 3000;
/// Limits for files and for nested folders.
const MOST_FILES: usize = 2000;
const DEEPEST: usize = 12;
/// Limit for reported problems; a file of another kind has one in every line.
const MOST_PROBLEMS: usize = 20;

/// Objects being collected.
#[derive(Default)]
pub(super) struct Collection {
    objects: Vec<UserObject>,
    problems: Vec<Problem>,
    seen: BTreeMap<String, String>,
    bytes: u64,
    files: usize,
}

impl Collection {
    /// Reads a file, or every file below a folder. The error is about the path itself.
    pub fn add(&mut self, naming: Naming<'_>, path: &Path) -> Result<(), Words> {
        let mut files = Vec::new();
        if path.is_dir() {
            below(path, &mut files, 0)?;
            files.sort();
            if files.is_empty() {
                return Err(Words::new(
                    format!("{} contains no manifests", naming.shown(path)),
                    "files that end in .yaml, .yml or .json, in it or below it",
                    "add manifests, or remove the entry",
                ));
            }
        } else {
            files.push(path.to_owned());
        }
        for file in files {
            self.file(naming, &file)?;
        }
        Ok(())
    }

    /// The objects, and the problems of the files.
    pub fn finish(mut self) -> (Vec<UserObject>, Vec<Problem>) {
        self.problems.truncate(MOST_PROBLEMS);
        (self.objects, self.problems)
    }

    fn file(&mut self, naming: Naming<'_>, path: &Path) -> Result<(), Words> {
        let shown = naming.shown(path);
        let unreadable = |e: std::io::Error| {
            Words::new(format!("{shown} cannot be read: {e}"), "a file that you can read", "correct its permissions")
        };
        self.files += 1;
        let left = LARGEST.saturating_sub(self.bytes);
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(left + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        self.bytes += bytes.len() as u64;
        if bytes.len() as u64 > left || self.files > MOST_FILES {
            return Err(Words::new(
                format!("{shown} exceeds hactl's limit"),
                format!("at most {} MiB in {MOST_FILES} files", LARGEST >> 20),
                "check the path; use a dedicated tool for large sets of objects",
            ));
        }
        let Ok(text) = String::from_utf8(bytes) else {
            return Err(Words::new(
                format!("{shown} is not text"),
                "YAML or JSON in UTF-8",
                "remove it, or convert it",
            ));
        };
        let at = File { shown: &shown, text: &text };
        match documents(&at) {
            Ok(documents) => {
                for document in documents {
                    self.document(&at, document.place, document.value);
                }
            }
            Err(problem) => self.problems.push(problem),
        }
        Ok(())
    }

    fn document(&mut self, file: &File<'_>, place: Place, value: Value) {
        match value {
            Value::Null => {}
            Value::Object(mut map) if map.get("items").is_some_and(Value::is_array) && is_list(&map) => {
                if let Some(Value::Array(items)) = map.remove("items") {
                    for item in items {
                        self.document(file, place, item);
                    }
                }
            }
            value => match judge(value) {
                Ok(object) => self.keep(file, place, object),
                Err(words) => self.problems.push(file.problem(place, words)),
            },
        }
    }

    fn keep(&mut self, file: &File<'_>, place: Place, object: Value) {
        let key = object_key(&object);
        if let Some(other) = self.seen.get(&identity(&key)) {
            let words = Words::new(
                format!("{} is defined here and at {other}", object_in_words(&key)),
                "each object once",
                "remove one of them",
            );
            self.problems.push(file.problem(place, words));
            return;
        }
        if self.objects.len() == MOST_OBJECTS {
            let words = Words::new(
                format!("this is object number {}", MOST_OBJECTS + 1),
                format!("at most {MOST_OBJECTS} objects"),
                "use a dedicated tool for large sets of objects",
            );
            self.problems.push(file.problem(place, words));
        }
        if self.objects.len() < MOST_OBJECTS {
            self.seen.insert(identity(&key), format!("{}:{}", file.shown, place.line));
            self.objects.push(UserObject { object, file: file.shown.to_owned(), line: place.line });
        }
    }
}

/// A file being read.
struct File<'a> {
    shown: &'a str,
    text: &'a str,
}

impl File<'_> {
    /// A problem in this file. A line of a file with Secrets is not quoted.
    fn problem(&self, place: Place, words: Words) -> Problem {
        let secret = self.text.contains("Secret");
        let place = if place.line == 0 { Place::new(1, 1) } else { place };
        if secret {
            let at = (self.shown, place.line);
            return Problem::elsewhere(Severity::Error, at, words.what, words.expected, words.remedy);
        }
        Problem::new(Severity::Error, self.shown, self.text, place, words)
    }
}

/// Manifests below a folder, without hidden files and folders.
fn below(folder: &Path, found: &mut Vec<PathBuf>, depth: usize) -> Result<(), Words> {
    let shown = folder.display();
    let unreadable = |e: std::io::Error| {
        Words::new(format!("{shown} cannot be read: {e}"), "a folder that you can read", "correct its permissions")
    };
    if depth > DEEPEST || found.len() > MOST_FILES {
        return Err(Words::new(
            format!("{shown} exceeds hactl's limit"),
            format!("at most {MOST_FILES} files, {DEEPEST} folders deep"),
            "check the path",
        ));
    }
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.')) {
            continue;
        }
        if path.is_dir() {
            below(&path, found, depth + 1)?;
        } else if path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json") {
            found.push(path);
        }
    }
    Ok(())
}

/// The documents of a file, each with its first place.
#[expect(clippy::result_large_err, reason = "one problem ends the file; it is made once")]
fn documents(file: &File<'_>) -> Result<Vec<At<Value>>, Problem> {
    if file.shown.ends_with(".json") {
        let parsed: Result<Value, _> = serde_json::from_str(file.text);
        return parsed.map(|value| vec![At { value, place: Place::new(1, 1) }]).map_err(|error| {
            let words = Words::new(format!("this is not JSON: {error}"), "one JSON value", "correct this line");
            file.problem(Place::new(error.line(), error.column().max(1)), words)
        });
    }
    serde_saphyr::from_multiple_with_options::<At<Value>>(file.text, options()).map_err(|error| {
        let error = error.without_snippet();
        let place = error.location().map(Place::from).unwrap_or_default();
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or(&message).trim().to_owned();
        let words = Words::new(
            format!("this is not YAML: {message}"),
            "Kubernetes manifests, with `---` between them",
            "correct this line or the one above; `kubectl create --dry-run=client -f FILE` validates it too",
        );
        file.problem(place, words)
    })
}

/// As Kubernetes reads YAML: `yes` is true, and `0644` is octal.
fn options() -> serde_saphyr::Options {
    let largest = usize::try_from(LARGEST).unwrap_or(usize::MAX);
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 4_000_000, max_nodes: 2_000_000, max_depth: 64, max_aliases: 2_000, max_anchors: 2_000,
            max_total_scalar_bytes: largest, max_merge_keys: 2_000, max_recorded_anchor_events: 200_000,
            max_recorded_anchor_bytes: largest, flow_nesting_limit: 64, max_documents: MOST_OBJECTS,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 200_000, max_replay_stack_depth: 8 },
        strict_booleans: false,
        legacy_octal_numbers: true,
        reject_unsupported_tags: true,
        emit_comments: false,
        with_snippet: false,
    }
}

fn is_list(map: &serde_json::Map<String, Value>) -> bool {
    map.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"))
}

/// Fields of metadata that only a server sets.
const SERVERS_OWN: [&str; 7] =
    ["managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink", "deletionTimestamp"];

/// An object that can be applied.
fn judge(mut value: Value) -> Result<Value, Words> {
    let Some(map) = value.as_object_mut() else {
        return Err(Words::new(
            "this is not a Kubernetes object",
            "a mapping with apiVersion, kind and metadata",
            "remove it",
        ));
    };
    map.remove("status");
    let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    if version.starts_with("kustomize.config.k8s.io/") {
        return Err(Words::new(
            "this is a kustomize file, not an object",
            "the objects that kustomize generates",
            "run `kubectl kustomize FOLDER > objects.yaml` and list objects.yaml",
        ));
    }
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    let group_fine = version.split('/').count() <= 2 && version.split('/').all(|part| !part.is_empty() && plain(part));
    if !group_fine || kind.is_empty() || !kind.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err(Words::new(
            "this document has no apiVersion and kind",
            "a Kubernetes object, such as `apiVersion: v1` and `kind: ConfigMap`",
            "add them, or move the file elsewhere: every .yaml, .yml and .json here is applied",
        ));
    }
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    if name.is_empty() {
        let remedy = if value.pointer("/metadata/generateName").is_some() {
            "write metadata.name instead of generateName: hactl applies objects repeatedly and must find them again"
        } else {
            "add metadata.name"
        };
        return Err(Words::new(format!("this {kind} has no name"), "metadata.name", remedy));
    }
    let in_path =
        |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:".contains(&b)) && !text.contains("..");
    if !in_path(&name) || !in_path(&namespace) || name.len() > 253 {
        let what = format!("{:?} cannot name a {kind}", shorten(&format!("{namespace}/{name}")));
        return Err(Words::new(what, "letters, digits, '-', '.' and ':'", "rename it"));
    }
    if kind == "Node" && version == "v1" {
        return Err(Words::new(
            format!("the Node {name} is created by its kubelet"),
            "objects that you own",
            "use `labels` and `taints` of the host in the inventory",
        ));
    }
    if name.starts_with("hactl-") && matches!(namespace.as_str(), "kube-system") {
        let what = format!("{kind} kube-system/{name} has a name that is reserved for hactl");
        return Err(Words::new(what, "another name", "rename it: in kube-system, hactl- is reserved"));
    }
    if let Some(meta) = value.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        for field in SERVERS_OWN {
            meta.remove(field);
        }
    }
    Ok(value)
}

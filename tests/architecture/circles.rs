//! No circle of imports has more than a few files: to understand one file of a circle, one has to read all of them.
//!
//! In: the sources. Out: the files of each circle that is too large. An import counts for the file that defines the
//! item, also if a `mod.rs` re-exports it. The visibility `pub(in ...)` is no import.

use super::{Source, assert_none, sources};
use std::collections::{BTreeMap, BTreeSet};

/// The most files of a circle.
const MOST: usize = 12;

type Path = Vec<String>;
type Graph = BTreeMap<String, BTreeSet<String>>;

/// A file of the crate.
#[derive(Default)]
struct Module {
    file: String,
    /// The paths after `use`, with the names that they get; a glob import is called `*`.
    imports: Vec<(String, Path)>,
    /// Those of `pub use`.
    exports: BTreeMap<String, Path>,
    /// The paths in the rest of the code.
    paths: Vec<Path>,
}

/// The files by the paths of their modules.
struct Crate(BTreeMap<Path, Module>);

fn path(text: &str) -> Path {
    text.split("::").map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

/// The paths of a `use` tree such as `a::{b, c::{self, d as e}}`, with their names.
fn tree(before: &[String], text: &str, found: &mut Vec<(String, Path)>) {
    if let Some((head, rest)) = text.split_once('{') {
        let before = [before, &path(head)].concat();
        let inside = rest.rsplit_once('}').map_or(rest, |(inside, _)| inside);
        let (mut depth, mut start) = (0, 0);
        for (at, letter) in inside.char_indices().chain([(inside.len(), ',')]) {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    tree(&before, &inside[start..at], found);
                    start = at + 1;
                }
                _ => {}
            }
        }
        return;
    }
    let (text, name) = text.split_once(" as ").map_or((text, None), |(text, name)| (text, Some(name.trim())));
    let mut whole = [before, &path(text)].concat();
    whole.pop_if(|last| last == "self");
    if let Some(last) = whole.last().filter(|_| !text.trim().is_empty()) {
        found.push((name.unwrap_or(last).to_owned(), whole.clone()));
    }
}

fn parse(source: &Source) -> Module {
    let mut module = Module { file: source.path.clone(), ..Module::default() };
    let mut lines = source.code().map(|(_, line)| line.trim());
    while let Some(line) = lines.next() {
        let public = |head: &str| head == "pub " || (head.starts_with("pub(") && head.ends_with(") "));
        let import = line.split_once("use ").filter(|(head, _)| head.is_empty() || public(head));
        let Some((head, begun)) = import else {
            let words = line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != ':');
            module.paths.extend(words.map(path).filter(|path| path.len() > 1));
            continue;
        };
        let mut text = begun.to_owned();
        while !text.contains(';') {
            text += lines.next().unwrap_or(";");
        }
        let mut found = Vec::new();
        tree(&[], text.trim_end_matches(';'), &mut found);
        if public(head) {
            module.exports.extend(found.iter().cloned());
        }
        module.imports.extend(found);
    }
    module
}

impl Crate {
    fn of(sources: &[Source]) -> Self {
        let module = |source: &Source| {
            let name = source.path.strip_prefix("src/")?.strip_suffix(".rs")?;
            let name = name.strip_suffix("/mod").unwrap_or(name);
            let last = name.rsplit('/').next()?;
            let tests = name.contains("/tests/") || last.starts_with("tests") || last.ends_with("_tests");
            let path = if name == "lib" { Path::new() } else { path(&name.replace('/', "::")) };
            (!tests && name != "main").then(|| (path, parse(source)))
        };
        Self(sources.iter().filter_map(module).collect())
    }

    /// A path in a module, from the root of the crate; `None`: it leads out of the crate, or to an item of the module.
    fn absolute(&self, at: &[String], of: &[String]) -> Option<Path> {
        let (first, rest) = of.split_first()?;
        let child = [at, std::slice::from_ref(first)].concat();
        match first.as_str() {
            "crate" | "hactl" => Some(rest.to_vec()),
            "self" => Some([at, rest].concat()),
            "super" if rest.first().is_some_and(|next| next == "super") => self.absolute(at.split_last()?.1, rest),
            "super" => Some([at.split_last()?.1, rest].concat()),
            _ if self.0.contains_key(&child) => Some([at, of].concat()),
            _ => {
                let (_, import) = self.0[at].imports.iter().find(|(name, import)| name == first && import != of)?;
                Some([self.absolute(at, import)?.as_slice(), rest].concat())
            }
        }
    }

    /// The module that defines the item at a path, and whether the path is that of the module itself.
    fn target(&self, of: &[String], depth: usize) -> Option<(&Module, bool)> {
        let at = (0..=of.len()).rev().map(|length| &of[..length]).find(|at| self.0.contains_key(*at))?;
        let (module, rest) = (&self.0[at], &of[at.len()..]);
        let export = rest.first().and_then(|name| module.exports.get(name)).filter(|_| depth < 8);
        match export.and_then(|export| self.absolute(at, export)) {
            Some(there) => self.target(&[there.as_slice(), &rest[1..]].concat(), depth + 1),
            None => Some((module, rest.is_empty())),
        }
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        for (at, module) in &self.0 {
            let of_imports = module.imports.iter().map(|(_, import)| import);
            for of in of_imports.chain(&module.paths).filter_map(|of| self.absolute(at, of)) {
                // The import of a module counts where it is used: `files` is no dependency, `files::write` is one.
                let Some((target, false)) = self.target(&of, 0) else { continue };
                if target.file != module.file {
                    graph.entry(module.file.clone()).or_default().insert(target.file.clone());
                }
            }
        }
        graph
    }
}

/// The files that a file imports, directly or through others.
fn reached<'a>(graph: &'a Graph, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(file) = left.pop() {
        left.extend(graph.get(file).into_iter().flatten().map(String::as_str).filter(|next| seen.insert(*next)));
    }
    seen
}

/// The files of each circle, which reach one another; the largest circle first.
fn circles(graph: &Graph) -> Vec<BTreeSet<&str>> {
    let reach: BTreeMap<&str, _> = graph.keys().map(|file| (file.as_str(), reached(graph, file))).collect();
    let mut all = BTreeSet::new();
    for (from, to) in &reach {
        let back = |to: &&str| reach.get(to).is_some_and(|back| back.contains(from));
        all.insert(to.iter().copied().filter(back).collect::<BTreeSet<_>>());
    }
    let mut all: Vec<_> = all.into_iter().filter(|circle| circle.len() > 1).collect();
    all.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    all
}

#[test]
fn no_circle_of_imports_has_more_than_12_files() {
    let graph = Crate::of(&sources(&["src"])).graph();
    let mut found = Vec::new();
    for circle in circles(&graph).iter().filter(|circle| circle.len() > MOST) {
        found.push(format!("{} files:", circle.len()));
        for file in circle {
            let to: Vec<&str> = graph[*file].iter().map(String::as_str).filter(|to| circle.contains(to)).collect();
            found.push(format!("    {file} -> {}", to.join(", ")));
        }
    }
    assert_none("circles of imports with too many files", &found);
}

#[test]
fn circles_of_imports_are_found() {
    let file = |(path, text): (&str, &str)| Source { path: path.to_owned(), text: text.to_owned() };
    let top = "use super::Low;\nuse crate::{a::{mid::{self, Mid}}, far};\nfn f() { far::away() }";
    let mid = "// use super::low::Low;\nfn f() { super::top::run() }\n#[cfg(test)]\nmod tests {\nuse crate::far;\n}";
    let files = [
        ("src/lib.rs", "pub mod a;\nmod far;"),
        ("src/a/mod.rs", "pub use low::Low;\nuse top::{\n    run as start,\n};\nfn go() { start() }"),
        ("src/a/low.rs", "pub(in crate::a) struct Low;\nuse std::fs;"),
        ("src/a/top.rs", top),
        ("src/a/mid.rs", mid),
        ("src/far.rs", "pub fn away() { crate::a::go() }"),
        ("src/a/tests.rs", "use super::low::Low;\nuse crate::far::away;"),
    ];
    let graph = Crate::of(&files.map(file)).graph();
    let to = |from: &str| graph.get(from).into_iter().flatten().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(to("src/a/mod.rs"), ["src/a/low.rs", "src/a/top.rs"]);
    assert_eq!(to("src/a/top.rs"), ["src/a/low.rs", "src/a/mid.rs", "src/far.rs"], "a re-export is looked through");
    assert_eq!((to("src/a/low.rs").len(), to("src/a/mid.rs")), (0, vec!["src/a/top.rs"]));
    assert_eq!(circles(&graph), [BTreeSet::from(["src/a/mid.rs", "src/a/mod.rs", "src/a/top.rs", "src/far.rs"])]);
}

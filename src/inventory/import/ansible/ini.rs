//! Ansible's INI notation: sections, one host per line followed by its variables, ranges in names.
//!
//! In: a text. Out: [`Groups`], or the first invalid line.

use super::super::error::ImportError;
use super::super::node::{self, Node, Value};
use super::super::notes::short;
use super::groups::{Groups, Var};

/// Limit for hosts; a range can describe millions.
pub const MOST: usize = 5_000;

/// The kind of a section.
enum Section {
    Hosts(Option<String>),
    Children(String),
    Vars(String),
}

/// Reads it.
pub fn parse(file: &str, text: &str) -> Result<Groups, ImportError> {
    let mut groups = Groups::default();
    let mut section = Section::Hosts(None);
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let (number, line) = (index + 1, line.trim());
        let place = format!("{file}:{number}");
        let bad = |why: String, remedy: &str| ImportError::syntax(file, number, why, remedy);
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let (name, after) =
                rest.split_once(']').ok_or_else(|| bad("a ']' is missing".to_owned(), "write [group]"))?;
            if !after.trim().is_empty() && !after.trim().starts_with(['#', ';']) {
                return Err(bad("unexpected text after the ']'".to_owned(), "write one section or one host per line"));
            }
            let (group, kind) = name.split_once(':').unwrap_or((name, ""));
            let group = group.trim();
            if group.is_empty() {
                return Err(bad("the section has no name".to_owned(), "write [group]"));
            }
            groups.group(group, &place);
            section = match kind.trim() {
                "" | "hosts" => Section::Hosts(Some(group.to_owned())),
                "children" => Section::Children(group.to_owned()),
                "vars" => Section::Vars(group.to_owned()),
                _ => {
                    let why = format!("there is no section [{}]", short(name));
                    return Err(bad(why, "write [group], [group:children] or [group:vars]"));
                }
            };
            continue;
        }
        match &section {
            Section::Vars(group) => {
                let (key, value) = line.split_once('=').ok_or_else(|| {
                    bad("this is not a variable: a '=' is missing".to_owned(), "write name=value below [group:vars]")
                })?;
                let var = Var { node: literal(number, value.trim()), place: place.clone() };
                groups.group(group, &place).vars.insert(key.trim().to_owned(), var);
            }
            Section::Children(parent) => {
                let child = line.split(['#', ';']).next().unwrap_or_default().trim().to_owned();
                if child.is_empty() || child.contains(char::is_whitespace) {
                    return Err(bad(
                        "this is not the name of a group".to_owned(),
                        "write one group per line below [group:children]",
                    ));
                }
                groups.group(&child, &place);
                groups.group(parent, &place).children.push(child);
            }
            Section::Hosts(group) => {
                let words = words(line).map_err(|why| bad(why.to_owned(), "close the quotation mark"))?;
                let Some((pattern, variables)) = words.split_first() else { continue };
                let remedy = "write a host name, followed by name=value; the name of a YAML file ends in .yml";
                // The text after the '=' may be a password, and so may the whole line if it is not a name.
                if let Some((key, _)) = pattern.split_once('=') {
                    let named = key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
                    let what = if named { short(key) } else { "this".to_owned() };
                    return Err(bad(
                        format!("{what} is a variable, and a host is expected here"),
                        "write variables of a group below [group:vars], those of a host after its name",
                    ));
                }
                if pattern.ends_with(':') || matches!(pattern.as_str(), "-" | "{" | "}") {
                    return Err(bad(format!("{:?} is not a host", short(pattern)), remedy));
                }
                let (hosts, port) = hosts(pattern).map_err(|why| bad(why, remedy))?;
                if groups.hosts.len() + hosts.len() > MOST {
                    return Err(bad(format!("these are more than {MOST} hosts"), "shorten the range"));
                }
                let mut vars = Vec::new();
                for (index, word) in variables.iter().enumerate() {
                    // The word is not shown: it may be the rest of a password with a space in it.
                    let (key, value) = word.split_once('=').ok_or_else(|| {
                        let why = format!("word {} of the line is not name=value", index + 2);
                        bad(why, "write name=value after a host, and quote a value with spaces: name='two words'")
                    })?;
                    vars.push((key.to_owned(), Var { node: literal(number, value), place: place.clone() }));
                }
                if let Some(port) = port {
                    vars.push((
                        "ansible_port".to_owned(),
                        Var { node: Node::text(number, port), place: place.clone() },
                    ));
                }
                for host in hosts {
                    groups.host(&host, group.as_deref(), &place);
                    groups.host_vars.entry(host).or_default().extend(vars.iter().cloned());
                }
            }
        }
    }
    Ok(groups)
}

/// Words as a shell splits them; a `#` before a word ends the line.
pub fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('"') | None, '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quotation mark is not closed");
    }
    words.extend(word);
    Ok(words)
}

/// A value as Ansible reads it: a Python literal, or text.
fn literal(line: usize, text: &str) -> Node {
    let first = text.chars().next();
    if let Some(quote @ ('"' | '\'')) = first
        && let Some((inside, rest)) = text[1..].split_once(quote)
        && (rest.trim().is_empty() || rest.trim().starts_with('#'))
    {
        return Node::text(line, inside);
    }
    if text.is_empty() || matches!(text, "None" | "null") {
        return if text.is_empty() { Node::text(line, "") } else { Node::null(line) };
    }
    if matches!(first, Some('{' | '['))
        && !text.starts_with("{{")
        && !text.starts_with("{%")
        && let Ok(mut documents) = node::read(text)
        && documents.len() == 1
    {
        let mut node = documents.remove(0);
        if matches!(node.value, Value::List(_) | Value::Map(_)) {
            relocate(&mut node, line);
            return node;
        }
    }
    // After a number or a boolean, a comment ends the literal; in any other text it is part of it.
    if let Some((value, _)) = text.split_once(" #") {
        let value = value.trim();
        if value.parse::<f64>().is_ok() || matches!(value, "True" | "False") {
            return Node::text(line, value);
        }
    }
    Node::text(line, text)
}

fn relocate(node: &mut Node, line: usize) {
    node.line = line;
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| relocate(item, line)),
        Value::Map(entries) => entries.iter_mut().for_each(|(_, entry)| relocate(entry, line)),
        Value::Null | Value::Text(_) => {}
    }
}

/// The hosts of a pattern such as `web[01:10].example.com:2222`, and the port.
fn hosts(pattern: &str) -> Result<(Vec<String>, Option<String>), String> {
    let tail = pattern.rfind(']').map_or(0, |at| at + 1);
    let (head, port) = match pattern[tail..].rsplit_once(':') {
        Some((_, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            (&pattern[..pattern.len() - port.len() - 1], Some(port.to_owned()))
        }
        _ => (pattern, None),
    };
    Ok((expand(head)?, port))
}

/// All names that a pattern with ranges matches.
pub fn expand(pattern: &str) -> Result<Vec<String>, String> {
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('[') {
        let (range, behind) = after.split_once(']').ok_or("a ']' is missing")?;
        let members = members(range)?;
        if names.len().saturating_mul(members.len()) > MOST {
            return Err(format!("the range has more than {MOST} hosts"));
        }
        names =
            names.iter().flat_map(|name| members.iter().map(move |member| format!("{name}{before}{member}"))).collect();
        rest = behind;
    }
    Ok(names.into_iter().map(|name| name + rest).collect())
}

/// `01:10`, `01:10:2` and `a:f`.
fn members(range: &str) -> Result<Vec<String>, String> {
    let bad = || format!("[{}] is not a range", short(range));
    let parts: Vec<&str> = range.split(':').collect();
    let (from, to, step) = match parts.as_slice() {
        [from, to] => (*from, *to, 1),
        [from, to, step] => (*from, *to, step.parse::<usize>().map_err(|_| bad())?),
        _ => return Err(bad()),
    };
    if step == 0 {
        return Err(bad());
    }
    let from = if from.is_empty() { "0" } else { from };
    if let (Ok(first), Ok(last)) = (from.parse::<u64>(), to.parse::<u64>()) {
        let width = if from.starts_with('0') { from.len() } else { 0 };
        if last < first || (last - first) / step as u64 >= MOST as u64 {
            return Err(bad());
        }
        return Ok((first..=last).step_by(step).map(|n| format!("{n:0width$}")).collect());
    }
    let letter = |text: &str| match text.as_bytes() {
        [b] if b.is_ascii_alphabetic() => Some(*b),
        _ => None,
    };
    match (letter(from), letter(to)) {
        (Some(first), Some(last)) if first <= last => Ok((first..=last)
            .step_by(step)
            .map(|b| char::from(b).to_string())
            .filter(|s| s.chars().all(char::is_alphabetic))
            .collect()),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_with_their_zeros_and_letters_and_steps() {
        assert_eq!(expand("web[08:10].x").unwrap(), ["web08.x", "web09.x", "web10.x"]);
        assert_eq!(expand("db-[a:c]").unwrap(), ["db-a", "db-b", "db-c"]);
        assert_eq!(expand("n[1:5:2]").unwrap(), ["n1", "n3", "n5"]);
        assert_eq!(expand("r[1:2]n[a:b]").unwrap(), ["r1na", "r1nb", "r2na", "r2nb"]);
        for bad in ["n[1]", "n[5:1]", "n[1:99999999]", "n[a:1]", "n[1:2:0]", "n[1:2", "a[1:1000]b[1:1000]"] {
            assert!(expand(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_line_is_split_as_a_shell_would_and_values_are_pythons() {
        let groups =
            parse("h", "[g]\nn1:2222 a='b c' d=\"{'x': 'y'}\" # e=f\n[g:vars]\nk = \"v\" # c\np=6443 # c\nq=a # b\n")
                .unwrap();
        let vars = groups.vars("n1");
        let text = |key: &str| vars[key].node.as_text().unwrap().to_owned();
        assert_eq!(
            (text("a"), text("ansible_port"), text("k"), text("p"), text("q")),
            ("b c".into(), "2222".into(), "v".into(), "6443".into(), "a # b".into())
        );
        assert_eq!(vars["d"].node.get("x").unwrap().as_text(), Some("y"));
        assert!(!vars.contains_key("e"));
        assert_eq!(vars["a"].place, "h:2");
    }

    #[test]
    fn a_child_group_has_the_last_word_and_alike_ones_by_name() {
        let groups = parse("h", "[all:vars]\nv=all\nw=all\n[z]\nn\n[a]\nn\n[a:vars]\nu=a\nv=a\n[z:vars]\nu=z\n[p:children]\na\n[p:vars]\nv=p\nx=p\n").unwrap();
        let vars = groups.vars("n");
        let text = |key: &str| vars[key].node.as_text().unwrap().to_owned();
        assert_eq!(["u", "v", "w", "x"].map(text), ["a", "a", "all", "p"]);
    }
}

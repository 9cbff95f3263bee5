//! The values of one host's variables: plain references between them are resolved, other expressions are not evaluated.
//!
//! In: a host's variables. Out: texts, numbers and booleans with their places; expressions that only Ansible can
//! evaluate and values encrypted with ansible-vault are reported and left out. It records the used variables and their
//! values, so that all others can be reported.

use super::super::draft::Said;
use super::super::node::{Node, Value, truth};
use super::super::notes::{Notes, short};
use super::groups::{Var, Vars};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Limit for nested references.
const DEEPEST: usize = 10;
/// Limit for a value; references can multiply a text.
const LONGEST: usize = 64 * 1024;

/// The used variables, with their values by place. A name would not be sufficient, because a variable that is read from
/// one host may have another value for another host.
#[derive(Debug, Default)]
pub struct Asked(RefCell<BTreeMap<String, BTreeMap<String, Vec<Node>>>>);

impl Asked {
    fn record(&self, key: &str, found: Option<&Var>) {
        let mut keys = self.0.borrow_mut();
        let used = keys.entry(key.to_owned()).or_default();
        if let Some(var) = found {
            let nodes = used.entry(var.place.clone()).or_default();
            if !nodes.iter().any(|node| node.same(&var.node)) {
                nodes.push(var.node.clone());
            }
        }
    }
    /// Whether it was used.
    pub fn contains(&self, key: &str) -> bool {
        self.0.borrow().contains_key(key)
    }
    /// Whether it has a value.
    pub fn has(&self, key: &str) -> bool {
        self.0.borrow().get(key).is_some_and(|used| used.values().flatten().any(|node| !node.is_empty()))
    }
    /// Whether this value was used.
    pub fn used(&self, key: &str, var: &Var) -> bool {
        let keys = self.0.borrow();
        let Some(used) = keys.get(key) else { return false };
        let same = |node: &Node| node.same(&var.node);
        used.get(&var.place).is_some_and(|nodes| nodes.iter().any(same)) || used.values().flatten().any(same)
    }
}

/// The variables of one host.
pub struct Scope<'a> {
    /// Its name.
    pub host: &'a str,
    vars: Vars,
    asked: &'a Asked,
}

impl<'a> Scope<'a> {
    /// The variables of a host; `folder` is the value of `inventory_dir`.
    pub fn new(host: &'a str, mut vars: Vars, folder: Option<&std::path::Path>, asked: &'a Asked) -> Self {
        let mut builtin = |key: &str, text: String| {
            vars.insert(key.to_owned(), Var { node: Node::text(0, text), place: String::new() });
        };
        builtin("inventory_hostname", host.to_owned());
        builtin("inventory_hostname_short", host.split('.').next().unwrap_or(host).to_owned());
        if let Some(folder) = folder {
            builtin("inventory_dir", folder.display().to_string());
        }
        Self { host, vars, asked }
    }

    /// A variable as it is written.
    pub fn raw(&self, key: &str) -> Option<&Var> {
        let found = self.vars.get(key);
        self.asked.record(key, found);
        found.filter(|var| !var.node.is_null())
    }

    /// Whether a variable is set, without using its value.
    pub fn has(&self, key: &str) -> bool {
        self.vars.get(key).is_some_and(|var| !var.node.is_empty())
    }

    /// A variable with its references resolved. Values that cannot be read are reported.
    pub fn node(&self, key: &str, notes: &mut Notes) -> Option<Var> {
        let var = self.raw(key)?;
        match self.follow(&var.node, 0) {
            Ok(node) => Some(Var { node, place: var.place.clone() }),
            Err(Unknown::Vault) => {
                notes.add(
                    &var.place,
                    format!("{key} is encrypted with ansible-vault: its value is not read"),
                    "write it into the new inventory, unless it is a secret: secrets belong into separate files",
                );
                None
            }
            Err(Unknown::Expression(text)) => {
                notes.add(
                    &var.place,
                    format!("{key} is an expression that only Ansible can evaluate: {}", short(expression(&text))),
                    "write its value into the new inventory",
                );
                None
            }
        }
    }

    /// A text that is not empty.
    pub fn text(&self, key: &str, notes: &mut Notes) -> Option<Said> {
        let var = self.node(key, notes)?;
        match var.node.as_text().map(str::trim) {
            Some("") => None,
            Some(text) => Some(Said::new(text, key, var.place)),
            None => {
                notes.add(
                    &var.place,
                    format!("{key} is a list or a mapping instead of one value"),
                    "write the value into the new inventory",
                );
                None
            }
        }
    }

    /// The first of several names that is set.
    pub fn first(&self, keys: &[&str], notes: &mut Notes) -> Option<Said> {
        let mut found = None;
        for key in keys {
            let text = self.text(key, notes);
            found = found.or(text);
        }
        found
    }

    /// A port.
    pub fn port(&self, keys: &[&str], notes: &mut Notes) -> Option<Said<u16>> {
        let said = self.first(keys, notes)?;
        match said.value.parse::<u16>() {
            Ok(port @ 1..) => Some(Said::new(port, said.key, said.place)),
            _ => {
                notes.add(
                    &said.place,
                    format!("{} is not a port: {}", said.key, short(&said.value)),
                    "write a number from 1 to 65535 into the new inventory",
                );
                None
            }
        }
    }

    /// Whether it is set, and true.
    pub fn is_true(&self, key: &str, notes: &mut Notes) -> Option<bool> {
        let said = self.text(key, notes)?;
        truth(&said.value)
    }

    /// The texts of a list, or of one text with commas.
    pub fn list(&self, key: &str, notes: &mut Notes) -> Vec<Said> {
        let Some(var) = self.node(key, notes) else { return Vec::new() };
        let said = |text: &str| Said::new(text.trim(), key, &*var.place);
        if var.node.is_map() || var.node.items().iter().any(|item| item.as_text().is_none()) {
            notes.add(
                &var.place,
                format!("{key} contains values other than texts: these are left out"),
                "write them into the new inventory",
            );
        }
        match &var.node.value {
            Value::Text(text) => text.split(',').filter(|word| !word.trim().is_empty()).map(said).collect(),
            Value::List(items) => items.iter().filter_map(Node::as_text).map(said).collect(),
            Value::Null | Value::Map(_) => Vec::new(),
        }
    }

    fn follow(&self, node: &Node, depth: usize) -> Result<Node, Unknown> {
        if node.is_vaulted() {
            return Err(Unknown::Vault);
        }
        let value = match &node.value {
            Value::Null => Value::Null,
            Value::Text(text) if node.tag.as_deref().is_some_and(|tag| tag.contains("unsafe")) => {
                Value::Text(text.clone())
            }
            Value::Text(text) => return self.text_of(text, node.line, depth),
            Value::List(items) => {
                Value::List(items.iter().map(|item| self.follow(item, depth)).collect::<Result<_, _>>()?)
            }
            Value::Map(entries) => Value::Map(
                entries
                    .iter()
                    .map(|(key, item)| Ok((key.clone(), self.follow(item, depth)?)))
                    .collect::<Result<_, Unknown>>()?,
            ),
        };
        Ok(Node { line: node.line, tag: node.tag.clone(), value })
    }

    fn text_of(&self, text: &str, line: usize, depth: usize) -> Result<Node, Unknown> {
        let unknown = || Unknown::Expression(text.to_owned());
        if text.contains("{%") || text.contains("{#") {
            return Err(unknown());
        }
        if !text.contains("{{") {
            return Ok(Node::text(line, text));
        }
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, behind) = after.split_once("}}").ok_or_else(unknown)?;
            let name = name.trim();
            let var = self.vars.get(name).filter(|_| is_name(name) && depth < DEEPEST).ok_or_else(unknown)?;
            self.asked.record(name, Some(var));
            let node = self.follow(&var.node, depth + 1)?;
            // A text that is only a reference has the value of any type.
            if out.is_empty() && before.is_empty() && behind.is_empty() && rest.len() == text.len() {
                return Ok(node);
            }
            out.push_str(before);
            out.push_str(node.as_text().ok_or_else(unknown)?);
            if out.len() > LONGEST {
                return Err(unknown());
            }
            rest = behind;
        }
        out.push_str(rest);
        Ok(Node::text(line, out))
    }
}

/// The expression in a text; the text around it may be a secret.
fn expression(text: &str) -> &str {
    let begin = ["{{", "{%", "{#"].iter().filter_map(|open| text.find(open)).min().unwrap_or(0);
    let rest = &text[begin..];
    let end = ["}}", "%}", "#}"].iter().filter_map(|close| rest.find(close)).min().map_or(rest.len(), |at| at + 2);
    &rest[..end]
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Why a value cannot be read.
enum Unknown {
    /// ansible-vault has encrypted it.
    Vault,
    /// It is an expression.
    Expression(String),
}

#[cfg(test)]
mod tests {
    use super::super::ini;
    use super::*;

    fn stated(text: &str, key: &str) -> (Option<String>, usize) {
        let groups = ini::parse("h", text).unwrap();
        let asked = Asked::default();
        let mut notes = Notes::default();
        let found = Scope::new("n.x", groups.vars("n.x"), None, &asked).text(key, &mut notes).map(|said| said.value);
        (found, notes.into_list().len())
    }

    #[test]
    fn plain_references_are_followed_and_nothing_else_is_worked_out() {
        let vars = "[g]\nn.x\n[g:vars]\na={{ b }}/{{c}}\nb=1\nc={{ inventory_hostname_short }}\nd={{ b | default(2) }}\ne={{ e }}\nf={{ gone }}\n";
        assert_eq!(stated(vars, "a"), (Some("1/n".to_owned()), 0));
        for key in ["d", "e", "f"] {
            assert_eq!(stated(vars, key), (None, 1), "{key}");
        }
    }

    #[test]
    fn of_a_text_around_an_expression_nothing_is_shown() {
        assert_eq!(expression("http://robot:hunter2@{{ host | lower }}:3128"), "{{ host | lower }}");
        assert_eq!(expression("{{ open"), "{{ open");
    }

    #[test]
    fn references_that_multiply_a_text_end_somewhere() {
        let mut vars = "[g]\nn.x\n[g:vars]\nv0=0123456789012345678901234567890123456789\n".to_owned();
        for n in 1..10 {
            let before = n - 1;
            vars.push_str(&format!("v{n}={}\n", format!("{{{{ v{before} }}}}").repeat(40)));
        }
        assert_eq!(stated(&vars, "v9"), (None, 1));
    }
}

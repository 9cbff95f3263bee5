//! Ansible's YAML notation: nested groups with `hosts`, `children` and `vars`.
//!
//! In: a text. Out: [`Groups`], as from the INI notation.

use super::super::error::ImportError;
use super::super::node::{self, Node, Value};
use super::super::notes::short;
use super::groups::{Groups, Var};
use super::ini::{MOST, expand};

/// Reads it.
pub fn parse(file: &str, text: &str) -> Result<Groups, ImportError> {
    let documents = node::read(text).map_err(|bad| ImportError::not_yaml(file, &bad))?;
    let mut groups = Groups::default();
    for (name, node) in documents.iter().flat_map(Node::entries) {
        group(&mut groups, file, name, node)?;
    }
    Ok(groups)
}

fn group(groups: &mut Groups, file: &str, name: &str, node: &Node) -> Result<(), ImportError> {
    let place = |line: usize| format!("{file}:{line}");
    let bad = |line: usize, why: String, remedy: &str| ImportError::syntax(file, line, why, remedy);
    groups.group(name, &place(node.line));
    if !node.is_map() && !node.is_null() {
        return Err(bad(
            node.line,
            format!("the group {} is not a mapping", short(name)),
            "write hosts, children and vars below it",
        ));
    }
    for (key, inside) in node.entries() {
        match (key.as_str(), &inside.value) {
            (_, Value::Null) => {}
            ("hosts", Value::Map(hosts)) => {
                for (pattern, vars) in hosts {
                    if groups.hosts.len() > MOST {
                        return Err(bad(vars.line, format!("these are more than {MOST} hosts"), "shorten the ranges"));
                    }
                    for host in expand(pattern)
                        .map_err(|why| bad(vars.line, why, "write a name, or a range such as web[01:10]"))?
                    {
                        groups.host(&host, Some(name), &place(vars.line));
                        let own = groups.host_vars.entry(host).or_default();
                        own.extend(variables(file, vars));
                    }
                }
            }
            ("hosts", Value::List(hosts)) => {
                for host in hosts.iter().filter_map(|host| Some((host.as_text()?, host.line))) {
                    for name_of in
                        expand(host.0).map_err(|why| bad(host.1, why, "write a name, or a range such as web[01:10]"))?
                    {
                        groups.host(&name_of, Some(name), &place(host.1));
                    }
                }
            }
            ("hosts", Value::Text(pattern)) => groups.host(pattern, Some(name), &place(inside.line)),
            ("children", Value::Map(children)) => {
                for (child, below) in children {
                    group(groups, file, child, below)?;
                    groups.group(name, &place(node.line)).children.push(child.clone());
                }
            }
            ("children", Value::List(children)) => {
                for child in children.iter().filter_map(Node::as_text) {
                    groups.group(child, &place(inside.line));
                    groups.group(name, &place(node.line)).children.push(child.to_owned());
                }
            }
            ("vars", Value::Map(_)) => {
                let vars = variables(file, inside);
                groups.group(name, &place(node.line)).vars.extend(vars);
            }
            _ => {
                let why = format!("{} is not valid in the group {}", short(key), short(name));
                return Err(bad(inside.line, why, "write hosts, children and vars in a group, each a mapping"));
            }
        }
    }
    Ok(())
}

/// The entries of a mapping as variables.
pub fn variables(file: &str, node: &Node) -> Vec<(String, Var)> {
    let var = |(key, node): &(String, Node)| {
        (key.clone(), Var { node: node.clone(), place: format!("{file}:{}", node.line) })
    };
    node.entries().iter().map(var).collect()
}

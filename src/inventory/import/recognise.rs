//! Recognises files of other tools, because people name the wrong one.
//!
//! In: a text. Out: nothing if it may be the requested kind of file, else an error with the recognised kind and the
//! command that reads it.

use super::error::ImportError;
use super::node::{self, Node};
use super::source::Input;
use super::wishes::Tool;

/// The recognised kind of a text, and the remedy.
struct Seen {
    what: &'static str,
    remedy: &'static str,
    /// Its tool, if there is an importer for it.
    tool: Option<Tool>,
}

const K0SCTL: Seen = Seen { what: "a k0sctl configuration", remedy: "", tool: Some(Tool::K0sctl) };
const ANSIBLE: Seen = Seen { what: "an Ansible inventory", remedy: "", tool: Some(Tool::Ansible) };

const fn seen(what: &'static str, remedy: &'static str) -> Seen {
    Seen { what, remedy, tool: None }
}

const START: &str = "create an inventory: `hactl inventory init --hosts NAME=ADDRESS,... FILE`";
const DYNAMIC: &str =
    "export it with Ansible: `ansible-inventory -i FILE --list --yaml > hosts.yml`, and import hosts.yml";

/// Refuses files that are certainly of another kind.
pub fn expect(tool: Tool, input: &Input) -> Result<(), ImportError> {
    let Some(seen) = look(&input.text, tool) else { return Ok(()) };
    let wanted = match seen.tool {
        Some(other) if other == tool => return Ok(()),
        // Kubespray's inventories are Ansible's.
        Some(Tool::Ansible | Tool::Kubespray) if tool != Tool::K0sctl => return Ok(()),
        _ => tool.to_string(),
    };
    let remedy = match seen.tool {
        Some(Tool::K0sctl) => format!("hactl inventory import k0sctl {}", input.name),
        Some(_) => format!("hactl inventory import ansible {} (or kubespray)", input.name),
        None => seen.remedy.to_owned(),
    };
    Err(ImportError::other(&input.name, seen.what, wanted, remedy))
}

fn look(text: &str, tool: Tool) -> Option<Seen> {
    let text = text.trim_start_matches('\u{feff}');
    if text.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\r' | '\n' | '\u{c}')) {
        return Some(seen("not text", "check the path: this may be another file"));
    }
    let speaks = |line: &&str| !line.is_empty() && !line.starts_with(['#', ';']) && *line != "---" && *line != "...";
    let mut lines = text.lines().map(str::trim).filter(speaks);
    let Some(first) = lines.next() else { return Some(seen("empty", "name the file that lists the hosts")) };
    let terraform = ["terraform {", "resource \"", "provider \"", "variable \"", "module \""];
    let kinds = [
        (text.starts_with("#!"), "a program that generates an inventory", DYNAMIC),
        (
            text.starts_with("$ANSIBLE_VAULT"),
            "a file encrypted with ansible-vault",
            "decrypt it first: `ansible-vault decrypt --output hosts.yml FILE`",
        ),
        (
            text.contains("Vagrant.configure"),
            "a Vagrantfile",
            "import its machines: `hactl inventory import vagrant DIR`, DIR being its folder",
        ),
        (terraform.iter().any(|word| first.starts_with(word)), "a Terraform configuration", START),
    ];
    if let Some((_, what, remedy)) = kinds.into_iter().find(|(is, ..)| *is) {
        return Some(seen(what, remedy));
    }
    if first.starts_with('[') && !first.starts_with("[{") && !first.starts_with("[\"") {
        let config = ["[defaults]", "[ssh_connection]", "[privilege_escalation]", "[inventory]"];
        if config.contains(&first) {
            return Some(seen("Ansible's own configuration (ansible.cfg)", "name the inventory that it refers to"));
        }
        return Some(ANSIBLE);
    }
    let documents = node::read(text).ok()?;
    documents.iter().find_map(|document| by_shape(document, tool))
}

/// By the keys at the top.
fn by_shape(top: &Node, tool: Tool) -> Option<Seen> {
    let has = |key: &str| top.get(key).is_some();
    let word = |key: &str| top.get(key).and_then(Node::as_text).unwrap_or_default();
    if !top.items().is_empty() {
        let plays = top.items().iter().any(|item| item.get("hosts").is_some() || item.get("import_playbook").is_some());
        return Some(if plays {
            seen("an Ansible playbook", "name the inventory of its runs (`ansible-playbook -i INVENTORY`)")
        } else {
            seen("a list", "name the file that lists hosts in groups")
        });
    }
    if !top.is_map() {
        // One word may be a host of an INI inventory.
        return (tool == Tool::K0sctl).then(|| seen("not a YAML mapping", "name k0sctl's own file, often k0sctl.yaml"));
    }
    if word("apiVersion").starts_with("k0sctl.k0sproject.io/") {
        return Some(K0SCTL);
    }
    let services = top.entries_of("services");
    let composed = services.iter().any(|(_, service)| service.get("image").is_some() || service.get("build").is_some());
    let of_rke = top.items_of("nodes").iter().any(|node| node.get("role").is_some());
    let of_terraform =
        has("terraform_version") || has("resource") && has("provider") || has("values") && has("format_version");
    let kinds = [
        (
            word("apiVersion").starts_with("k0s.k0sproject.io/"),
            "k0s' own configuration, which contains no hosts",
            "name k0sctl's file, often k0sctl.yaml, which contains them",
        ),
        (word("apiVersion").contains("kubeadm.k8s.io/"), "a kubeadm configuration, which contains no hosts", START),
        (has("apiVersion") && has("kind"), "a Kubernetes object", START),
        (
            has("schema") && has("cluster") && has("hosts"),
            "already an inventory of hactl",
            "use it as it is: `hactl inventory check FILE`",
        ),
        (has("plugin") && tool != Tool::K0sctl, "the configuration of an inventory plugin", DYNAMIC),
        (has("_meta"), "Ansible's inventory as JSON", DYNAMIC),
        (composed, "a docker-compose file", START),
        (of_rke, "a configuration of RKE (cluster.yml)", START),
        (of_terraform, "Terraform's state or configuration as JSON", START),
    ];
    if let Some((_, what, remedy)) = kinds.into_iter().find(|(is, ..)| *is) {
        return Some(seen(what, remedy));
    }
    let groups = |node: &Node| {
        let keys: Vec<&str> = node.entries().iter().map(|(key, _)| key.as_str()).collect();
        !keys.is_empty() && keys.iter().all(|key| matches!(*key, "hosts" | "children" | "vars"))
    };
    if top.entries().iter().any(|(_, node)| groups(node)) {
        return Some(ANSIBLE);
    }
    if tool == Tool::K0sctl {
        return Some(seen("a YAML file of another tool", "name k0sctl's own file, often k0sctl.yaml"));
    }
    let named = |node: &Node| node.is_null() || node.is_map();
    if top.entries().iter().all(|(_, node)| !named(node)) {
        return Some(seen(
            "a file of variables",
            "name the inventory; hactl reads the group_vars beside it automatically",
        ));
    }
    None
}

//! k0sctl's configuration: hosts with roles and SSH settings, and the k0s configuration inside it.
//!
//! In: the file. Out: a [`Draft`], and notes with the path of each key that hactl does not have.

mod cluster;
mod hosts;
mod network;

use super::draft::{Draft, Said};
use super::error::ImportError;
use super::node::{self, Node};
use super::notes::{Notes, listed, short};
use super::source::Input;
use super::{names, shared};

/// Makes a draft of it.
pub fn draft(input: &Input, notes: &mut Notes) -> Result<Draft, ImportError> {
    let documents = node::read(&input.text).map_err(|bad| ImportError::not_yaml(&input.name, &bad))?;
    let word = |node: &Node, key: &str| node.get(key).and_then(Node::as_text).unwrap_or_default().to_owned();
    let ours = |node: &&Node| word(node, "apiVersion").starts_with("k0sctl.k0sproject.io/");
    let other = |seen: String, remedy: &str| ImportError::other(&input.name, seen, "one that can be imported", remedy);
    let Some(top) = documents.iter().find(ours) else {
        return Err(other("a YAML file of another tool".to_owned(), "name k0sctl's own file, often k0sctl.yaml"));
    };
    let version = word(top, "apiVersion");
    if version != "k0sctl.k0sproject.io/v1beta1" {
        let remedy = "convert it to k0sctl.k0sproject.io/v1beta1, which k0sctl has used since its first release";
        return Err(other(format!("a k0sctl configuration of the version {}", short(&version)), remedy));
    }
    if word(top, "kind") != "Cluster" {
        return Err(other(format!("a {} of k0sctl", short(&word(top, "kind"))), "name the file with `kind: Cluster`"));
    }
    let spec = top.get("spec").filter(|spec| spec.is_map());
    let Some(spec) = spec else {
        return Err(other(
            "a k0sctl configuration without a spec".to_owned(),
            "name the file that lists the hosts under spec.hosts",
        ));
    };
    let mut draft = Draft {
        made_from: format!("the k0sctl configuration {}", input.name),
        file: input.name.clone(),
        ..Draft::default()
    };
    draft.cluster = cluster_name(top, notes);
    leave(top, "", "apiVersion kind metadata spec", notes);
    leave(spec, "spec", "hosts k0s options", notes);
    if spec.get("options").is_some_and(|options| !options.is_empty()) {
        notes.add(
            "spec.options",
            "k0sctl's settings for waiting, draining and concurrency have no equivalent here",
            "nothing: hactl changes one host at a time, within quorum; --concurrency and --timeout are flags",
        );
    }
    hosts::hosts(spec, &mut draft, notes);
    let k0s = spec.get("k0s");
    if let Some(k0s) = k0s {
        leave(k0s, "spec.k0s", "version versionChannel dynamicConfig config metadata", notes);
        if let Some(version) = k0s.get("version").and_then(Node::as_text) {
            draft.kubernetes = shared::kubernetes(&Said::new(version, "spec.k0s.version", "spec.k0s.version"), notes);
        }
        if k0s.is_true("dynamicConfig") {
            notes.add(
                "spec.k0s.dynamicConfig",
                "with it, the ClusterConfig in the cluster applies, and this file may be out of date",
                "first compare it with `k0s config export` or the object in kube-system; hactl uses only its inventory",
            );
        }
    }
    let separate = documents.iter().find(|node| word(node, "kind") == "ClusterConfig");
    let inside = k0s.and_then(|k0s| k0s.get("config"));
    if [inside, separate].into_iter().flatten().all(|config| config.at(&["spec", "network"]).is_none()) {
        network::kube_router("spec.k0s.config.spec.network", notes);
    }
    for (config, path) in [(inside, "spec.k0s.config"), (separate, "ClusterConfig")] {
        if let Some(config) = config {
            cluster::cluster(config, path, &mut draft, notes);
        }
    }
    let others: Vec<String> = documents
        .iter()
        .filter(|node| !ours(node) && word(node, "kind") != "ClusterConfig" && !node.is_null())
        .map(|node| word(node, "kind"))
        .collect();
    if !others.is_empty() {
        notes.add(
            &input.name,
            format!("further documents are left out: {}", listed(&others, 10)),
            "objects of Kubernetes go into a file that you name under `manifests`",
        );
    }
    Ok(draft)
}

fn cluster_name(top: &Node, notes: &mut Notes) -> Said {
    let given = top.at(&["metadata", "name"]).and_then(Node::as_text).unwrap_or("k0s-cluster");
    let name = names::cluster(given).unwrap_or_else(|| "kubernetes".to_owned());
    if name != given {
        notes.add(
            "metadata.name",
            format!("{} cannot name a cluster of hactl: it is called {name}", short(given)),
            "choose another with --cluster NAME",
        );
    }
    if let Some(metadata) = top.get("metadata") {
        leave(metadata, "metadata", "name user", notes);
    }
    Said::new(name, "", "metadata.name")
}

/// Reports the keys of a mapping that are not converted.
pub fn leave(node: &Node, path: &str, known: &str, notes: &mut Notes) {
    for (key, inside) in node.entries() {
        if !known.split(' ').any(|known| known == key) && !inside.is_empty() {
            let path = if path.is_empty() { short(key) } else { format!("{path}.{}", short(key)) };
            notes.add(
                &path,
                format!("{} is not carried over: hactl has no key for it", short(key)),
                "check whether you need it; settings of Kubernetes go under `extra`",
            );
        }
    }
}

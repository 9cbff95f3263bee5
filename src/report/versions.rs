//! Messages about unsupported version changes: a code for programs, the reasons, and what to do instead.

use super::refused::Said;
use super::words::texts;
use crate::model::version::{MINORS, Minor, Version};

/// A minor version would be skipped.
pub(super) fn skipped(component: &str, wanted: Version, first: Option<Minor>) -> Said {
    let apart = "The API servers of a cluster may differ by at most one minor version, and each migrates the stored \
                 objects.";
    let (why, next) = match (component, first) {
        ("etcd", first) => (
            "etcd is upgraded one minor version at a time, because members of both versions run together meanwhile.",
            format!(
                "first upgrade the members to a release of {}, with a bundle that has it, then run `hactl up` again",
                first.map_or_else(|| "the minor version in between".to_owned(), |first| first.to_string())
            ),
        ),
        (_, Some(first)) => (
            apart,
            format!(
                "first set versions.kubernetes to a release of {first} and run `hactl up`; then set it to {wanted} \
                 and run it again"
            ),
        ),
        (_, None) => (
            apart,
            format!("upgrade the cluster to {} with the tool that created it; hactl upgrades from there", MINORS[0]),
        ),
    };
    ("skips-minor", texts([why]), vec![next])
}

/// Only the default asks for another minor version than the one that runs.
pub(super) fn not_named(component: &str, runs: Version, wanted: Version) -> Said {
    let why = "The default changes with releases of hactl, and the cluster would change with it. An upgrade to another \
               minor version cannot be undone.";
    if component != "etcd" && runs > wanted && !MINORS.contains(&runs.minor) {
        let next = format!("use a newer hactl: this one does not install releases of {}", runs.minor);
        return ("version-not-named", texts([why]), vec![next]);
    }
    let keep = match component {
        "etcd" => "to keep the version, write the one that the cluster runs: versions: {kubernetes: ...}".to_owned(),
        _ => format!("to keep the version, write it into the inventory: versions: {{kubernetes: \"{runs}\"}}"),
    };
    let upgrade = match (component, wanted.minor.after(runs.minor)) {
        // etcd alone does not show which version of Kubernetes is the next one.
        ("etcd", _) => None,
        (_, Some(1)) => Some(format!("to upgrade, write versions: {{kubernetes: \"{wanted}\"}} (docs/upgrades.md)")),
        (_, Some(_)) => Some(format!(
            "to upgrade, write a release of {} first: one minor version after the other (docs/upgrades.md)",
            runs.minor.next()
        )),
        (_, None) => None,
    };
    ("version-not-named", texts([why]), [keep].into_iter().chain(upgrade).collect())
}

/// Nothing shows which version the cluster ran.
pub(super) fn unknown(wanted: Version) -> Said {
    let why = "Another minor version may not be able to read the data of the cluster, and an upgrade to it cannot be \
               undone.";
    let next = [
        "write the version that the cluster ran into the inventory: versions: {kubernetes: ...}".to_owned(),
        format!("if it ran {wanted}, write that one: versions: {{kubernetes: \"{wanted}\"}}"),
    ];
    ("version-unknown", texts([why]), next.into())
}

/// The cluster is newer than the requested version.
pub(super) fn older(component: &str, runs: Version) -> Said {
    let (why, next) = match component {
        "etcd" => (
            "A member of an older minor version cannot join a cluster that uses features of the newer one.",
            format!("use a bundle with etcd {runs}, or another release of {} or of the next minor version", runs.minor),
        ),
        "containerd" => (
            "An older containerd may not be able to read the metadata that a newer one has written.",
            format!("use a bundle with containerd {runs} or newer"),
        ),
        _ => (
            "An older API server may not be able to read the objects that a newer one has written to etcd.",
            format!("set versions.kubernetes to {runs}, or to another release of {}", runs.minor),
        ),
    };
    ("older-minor", texts([why]), vec![next])
}

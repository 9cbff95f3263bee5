//! What is said of versions that no upgrade leads to: a name for scripts, the reasons, and what to do instead.

use crate::model::version::{MINORS, Minor, Version};

type Said = (&'static str, Vec<String>, Vec<String>);

/// A minor version would be skipped.
pub(super) fn skipped(component: &str, wanted: Version, first: Option<Minor>, untouched: &str) -> Said {
    let (why, next) = match (component, first) {
        ("etcd", first) => (
            "etcd is upgraded one minor version at a time: members of the two must be able to talk to one another meanwhile.",
            format!(
                "first bring the members to a release of {}, with a bundle that has it, then run `hactl up` again",
                first.map_or_else(|| "the minor version in between".to_owned(), |first| first.to_string())
            ),
        ),
        (_, Some(first)) => (
            "API servers of one cluster may be one minor version apart and no more, and each brings what is stored to its own form.",
            format!(
                "first set versions.kubernetes to a release of {first} and run `hactl up`; then set it to {wanted} and run it again"
            ),
        ),
        (_, None) => (
            "API servers of one cluster may be one minor version apart and no more, and each brings what is stored to its own form.",
            format!("bring the cluster to {} with the tool that made it; hactl goes on from there", MINORS[0]),
        ),
    };
    ("skips-minor", vec![why.to_owned(), untouched.to_owned()], vec![next])
}

/// The cluster is newer than what is asked for.
pub(super) fn older(component: &str, runs: Version, untouched: &str) -> Said {
    let (why, next) = match component {
        "etcd" => (
            "A member of an older minor version does not join a cluster that uses what the newer one knows.",
            format!("use a bundle whose etcd is {runs}, or another release of {} or of the next", runs.minor),
        ),
        "containerd" => (
            "What a newer containerd has written about its containers an older one may not be able to read.",
            format!("use a bundle whose containerd is {runs} or newer"),
        ),
        _ => (
            "What a newer API server has written to etcd an older one may not be able to read.",
            format!("set versions.kubernetes to {runs}, or to another release of {}", runs.minor),
        ),
    };
    ("older-minor", vec![why.to_owned(), untouched.to_owned()], vec![next])
}

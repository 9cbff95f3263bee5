//! What is said of versions that no upgrade leads to: a name for scripts, the reasons, and what to do instead.

use crate::model::version::{MINORS, Minor, Version};

type Said = (&'static str, Vec<String>, Vec<String>);

/// A minor version would be skipped.
pub(super) fn skipped(wanted: Version, first: Option<Minor>, untouched: &str) -> Said {
    let why = "API servers of one cluster may be one minor version apart and no more, and each brings what is stored to its own form.";
    let next = match first {
        Some(first) => format!(
            "first set versions.kubernetes to a release of {first} and run `hactl up`; then set it to {wanted} and run it again"
        ),
        None => format!("bring the cluster to {} with the tool that made it; hactl goes on from there", MINORS[0]),
    };
    ("skips-minor", vec![why.to_owned(), untouched.to_owned()], vec![next])
}

/// The cluster is newer than what is asked for.
pub(super) fn older(runs: Version, untouched: &str) -> Said {
    let why = "What a newer API server has written to etcd an older one may not be able to read.";
    let next = format!("set versions.kubernetes to {runs}, or to another release of {}", runs.minor);
    ("older-minor", vec![why.to_owned(), untouched.to_owned()], vec![next])
}

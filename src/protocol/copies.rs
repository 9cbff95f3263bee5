//! The words in which hosts are asked for copies of recovery bundles in directories, such as a mounted share.

use crate::model::names::{ClusterName, Digest};
use serde::{Deserialize, Serialize};

/// What is asked. Neither changes anything.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum CopiesAsk {
    /// Which copies there are: the newest of each host that took some, as far as they can be read.
    Find {
        /// Of this cluster.
        cluster: ClusterName,
        /// And of this authority; `None`: nobody knows it.
        authority: Option<Digest>,
        /// The file that a person asks for by its name: it is read in any case.
        named: Option<String>,
        /// Whether the names of all others are wanted as well.
        all: bool,
        /// Where, absolute.
        directories: Vec<String>,
    },
    /// A piece of one.
    Read {
        /// Where it lies, absolute.
        directory: String,
        /// Its file's name.
        name: String,
        /// From which byte.
        from: u64,
    },
}

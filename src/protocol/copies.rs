//! Requests for copies of snapshots in directories, such as a mounted share.

use crate::model::names::{ClusterName, Digest};
use serde::{Deserialize, Serialize};

/// The request. Neither changes anything.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum CopiesAsk {
    /// The existing copies: the newest of each host that took some, as far as they are readable.
    Find {
        /// Of this cluster.
        cluster: ClusterName,
        /// And of this CA; `None`: it is not known.
        authority: Option<Digest>,
        /// The file that the user asks for by its name: it is read in any case.
        named: Option<String>,
        /// Whether the names of all others are returned as well.
        all: bool,
        /// The directories, absolute.
        directories: Vec<String>,
    },
    /// A piece of a copy.
    Read {
        /// Its directory, absolute.
        directory: String,
        /// The name of its file.
        name: String,
        /// The first byte.
        from: u64,
    },
}

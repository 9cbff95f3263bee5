//! The parts of a support bundle: texts from the hosts, from the cluster and from the administrator's machine.

use super::names::UnitName;
use serde::{Deserialize, Serialize};

/// Where secrets are stored on a host: files that only their owner may read, and all such files below directories.
/// Their content is redacted from everything that leaves the host. Tokens and Secrets of pods are stored elsewhere, and
/// all of them count as secret.
pub const SECRETS: [&str; 9] = [
    "/etc/kubernetes",
    "/etc/etcd",
    "/etc/containerd",
    "/etc/keepalived",
    "/etc/hactl",
    "/etc/ssh",
    "/var/lib/kubelet/pki",
    "/var/lib/kubelet/config.yaml",
    super::drill::IDENTITY,
];

/// The request to a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatherAsk {
    /// Units whose journals are wanted.
    pub units: Vec<UnitName>,
    /// Files that are wanted, absolute paths. Files that are not world-readable are named and left out.
    pub files: Vec<String>,
    /// How far back journals go, hours.
    pub hours: u32,
}

/// A text of the archive, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Its place in the archive, relative.
    pub name: String,
    /// The text.
    pub text: String,
    /// Bytes at its beginning that were left out because it is long.
    pub left_out: u64,
    /// Number of redactions.
    pub struck: u32,
}

/// Whether a foreign name is safe as a path in the archive: relative, without `..`, without characters that are special
/// to a shell or a terminal.
pub fn is_place(name: &str) -> bool {
    let part = |p: &str| {
        !p.is_empty()
            && p.len() <= 200
            && p != "."
            && p != ".."
            && p.bytes().all(|b| b.is_ascii_alphanumeric() || b"._@:+=-".contains(&b))
    };
    name.len() <= 500 && name.split('/').all(part)
}

#[cfg(test)]
mod tests {
    use super::is_place;

    #[test]
    fn a_place_is_relative_and_plain() {
        for good in
            ["a", "units/etcd.service.log", "files/etc/kubernetes/manifests/x.yaml", "pods/kube-system_a_1/c/0.log"]
        {
            assert!(is_place(good), "{good}");
        }
        for bad in ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "a b", "a\n", "a\u{1b}[2J", "ä", "a/./b"] {
            assert!(!is_place(bad), "{bad:?}");
        }
    }
}

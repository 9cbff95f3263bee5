//! Named checks: the list that ends every `up` and that `status` shows.

use super::names::HostName;
use serde::Serialize;

/// One named check with what was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable name, such as `etcd members healthy`.
    pub name: &'static str,
    /// The host that it is about, if it is about one.
    pub host: Option<HostName>,
    /// What was found.
    pub outcome: Outcome,
    /// What was found in words; for a failure also what it means.
    pub detail: String,
    /// What to do about a failure.
    pub hint: Option<String>,
}

/// The hint of a check that a run of `up` fixes.
pub const UP: &str = "hactl up";
/// The kubelet of a host finds name servers for pods.
pub const NAME_SERVERS: &str = "name servers of pods";

/// A named check.
pub fn check(
    name: &'static str,
    host: Option<&HostName>,
    outcome: Outcome,
    detail: impl Into<String>,
    hint: Option<&str>,
) -> Check {
    Check { name, host: host.cloned(), outcome, detail: detail.into(), hint: hint.map(str::to_owned) }
}

impl Check {
    /// The same check, once it is known that `up` has nothing to do. A hint must not lead in a circle; this one leads
    /// to the logs.
    #[must_use]
    pub fn beyond_up(mut self) -> Self {
        if self.hint.as_deref() != Some(UP) {
            return self;
        }
        let on = self.host.as_ref().map_or_else(|| "the hosts".to_owned(), ToString::to_string);
        let look = match self.name {
            NAME_SERVERS => {
                format!("see that the file or /etc/resolv.conf names a server on {on}, then restart its kubelet")
            }
            name if name.starts_with("etcd") => format!("`journalctl -u etcd -n 50` on {on} says why"),
            name if name.starts_with("Node") || name.starts_with("node") => {
                format!("`journalctl -u kubelet -n 50` on {on} says why")
            }
            _ => format!("check {on}; `hactl support-bundle` collects its logs"),
        };
        self.hint = Some(format!("`hactl up` has nothing to do for it: {look}"));
        self
    }
}

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As wanted.
    Pass,
    /// Not asked for, or not applicable to this inventory.
    Skip,
    /// Works, but not as wanted.
    Warn,
    /// Does not work; the cluster still serves.
    Fail,
    /// The API or quorum is down.
    Down,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_up_has_nothing_to_do_no_hint_says_up_alone_and_others_stay() {
        let check = |name, hint: Option<&str>| Check {
            name,
            host: "cp3".parse().ok(),
            outcome: Outcome::Fail,
            detail: String::new(),
            hint: hint.map(str::to_owned),
        };
        for name in ["etcd member healthy", "Node Ready", "pods in their Node's range"] {
            let hint = check(name, Some(UP)).beyond_up().hint.unwrap_or_default();
            assert!(hint.starts_with("`hactl up` has nothing to do for it") && hint.contains("cp3"), "{hint}");
        }
        let hint = check(NAME_SERVERS, Some(UP)).beyond_up().hint.unwrap_or_default();
        assert!(hint.contains("names a server on cp3, then restart its kubelet"), "{hint}");
        for hint in [None, Some("hactl up --prune NAME")] {
            assert_eq!(check("nodes known", hint).beyond_up(), check("nodes known", hint));
        }
    }
}

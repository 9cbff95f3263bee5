//! Authorities and keys that are replaced while the cluster serves: which, and how far one is.
//!
//! Nothing that is trusted is taken away before everything that was made with it has been made anew. So there are three stages, and what is
//! in none of them is done.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What can be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rotatable {
    /// Kubernetes' own authority, and the signing intermediate with it.
    ClusterCa,
    /// etcd's authority.
    EtcdCa,
    /// The authority of the API server to aggregated API servers.
    FrontProxyCa,
    /// The controller manager's intermediate alone.
    SigningCa,
    /// The CA of kubelets' serving certificates, which API servers alone trust, and only towards kubelets.
    KubeletServingCa,
    /// The key that signs service account tokens.
    ServiceAccount,
    /// The key that Secrets are encrypted with in etcd.
    Encryption,
}

impl Rotatable {
    /// All of them, in the order they are listed.
    pub const ALL: [Self; 7] = [
        Self::ClusterCa,
        Self::EtcdCa,
        Self::FrontProxyCa,
        Self::SigningCa,
        Self::KubeletServingCa,
        Self::ServiceAccount,
        Self::Encryption,
    ];

    /// Its name, as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClusterCa => "cluster-ca",
            Self::EtcdCa => "etcd-ca",
            Self::FrontProxyCa => "front-proxy-ca",
            Self::SigningCa => "signing-ca",
            Self::KubeletServingCa => "kubelet-serving-ca",
            Self::ServiceAccount => "service-account",
            Self::Encryption => "encryption",
        }
    }

    /// What is replaced along with it, itself first: an intermediate is worth as much as the authority above it.
    pub const fn along(self) -> &'static [Self] {
        match self {
            Self::ClusterCa => &[Self::ClusterCa, Self::SigningCa],
            Self::EtcdCa => &[Self::EtcdCa],
            Self::FrontProxyCa => &[Self::FrontProxyCa],
            Self::SigningCa => &[Self::SigningCa],
            Self::KubeletServingCa => &[Self::KubeletServingCa],
            Self::ServiceAccount => &[Self::ServiceAccount],
            Self::Encryption => &[Self::Encryption],
        }
    }

    /// Whether somebody whom hactl does not see holds what was made with it: people their kubeconfigs and the certificates that they asked the
    /// API for, programs their tokens. Then the old one goes only when somebody says so.
    pub const fn outlives(self) -> bool {
        matches!(self, Self::ClusterCa | Self::SigningCa | Self::ServiceAccount)
    }
}

impl fmt::Display for Rotatable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No authority or key has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is nothing that can be rotated: {}", Rotatable::ALL.map(Rotatable::name).join(", "))]
pub struct NotRotatable {
    text: String,
}

impl FromStr for Rotatable {
    type Err = NotRotatable;
    fn from_str(text: &str) -> Result<Self, NotRotatable> {
        let found = Self::ALL.into_iter().find(|what| what.name() == text);
        found.ok_or_else(|| NotRotatable { text: text.chars().take(60).collect() })
    }
}

/// How far a rotation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The new one is trusted beside the old one, which still signs.
    Spread,
    /// The new one signs, and the old one is trusted still.
    Issued,
    /// The new one alone is trusted; not every host may have heard of that.
    Ending,
}

/// Why a rotation does not begin or end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "why")]
pub enum NoRotation {
    /// The inventory brings it along.
    Brought,
    /// Another one is under way that concerns it.
    Other {
        /// Which.
        other: Rotatable,
    },
    /// There is work for `up`.
    NotWhole {
        /// How many steps.
        steps: usize,
        /// The first of them.
        first: String,
    },
    /// None is under way that could be ended.
    NotBegun,
    /// Pods that were started before the last one trust only the authority of then, which could not vouch for a third one.
    StillVouched {
        /// When that authority ends, seconds since 1970.
        until_s: i64,
    },
    /// What was signed by the old key is still in the hands of programs that are given another one by themselves.
    TooYoung {
        /// How long still, seconds.
        left_s: i64,
    },
}

impl fmt::Display for NoRotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Brought => write!(f, "the inventory brings it along (`pki`)"),
            Self::Other { other } => write!(f, "the rotation of {other} is under way, which concerns it"),
            Self::NotWhole { steps, first } => write!(f, "`up` has work to do first ({steps} in all): {first}"),
            Self::NotBegun => write!(f, "no rotation of it is under way that could be ended"),
            Self::StillVouched { until_s } => {
                let until = super::timestamp::rfc3339(until_s.saturating_mul(1000));
                let day = until.get(..10).unwrap_or(&until);
                write!(f, "pods from before the last one may trust only the authority of then, until {day}")
            }
            Self::TooYoung { left_s } => {
                let left = super::leaf::span(*left_s);
                write!(f, "pods may hold tokens of the old key for another {left}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back_and_another_one_is_answered_with_all_of_them() {
        for what in Rotatable::ALL {
            assert_eq!(what.name().parse(), Ok(what));
            assert_eq!(what.along().first(), Some(&what));
        }
        let said = "cluster".parse::<Rotatable>().unwrap_err().to_string();
        assert!(Rotatable::ALL.iter().all(|what| said.contains(what.name())), "{said}");
    }
}

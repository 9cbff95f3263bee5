//! Rotations of CAs and keys while the cluster serves: which ones, and the stage of each.
//!
//! Trust in a CA or key is removed only after everything that it issued or encrypted was replaced. So there are three
//! stages; a CA or key in no stage is not being rotated.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A CA or key that can be rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rotatable {
    /// The cluster CA of Kubernetes, with its signing intermediate.
    ClusterCa,
    /// The etcd CA.
    EtcdCa,
    /// The front proxy CA, for calls of the API server to aggregated API servers.
    FrontProxyCa,
    /// Only the intermediate CA of the controller manager.
    SigningCa,
    /// The CA of kubelet serving certificates: only API servers trust it, and only for kubelets.
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

    /// Its name on the command line.
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

    /// Everything that is rotated with it, itself first: an intermediate CA is only as trusted as the CA above it.
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

    /// Whether it issued credentials that hactl does not know: kubeconfigs and certificates requested from the API,
    /// tokens of programs. Then the old one is removed only on request.
    pub const fn outlives(self) -> bool {
        matches!(self, Self::ClusterCa | Self::SigningCa | Self::ServiceAccount)
    }
}

impl fmt::Display for Rotatable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No CA or key has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} cannot be rotated; use one of {}", Rotatable::ALL.map(Rotatable::name).join(", "))]
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

/// The stage of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Both are trusted; the old one still signs.
    Spread,
    /// The new one signs; the old one is still trusted.
    Issued,
    /// Only the new one is trusted; not every host may have that stage yet.
    Ending,
}

/// Why a rotation cannot be started or finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "why")]
pub enum NoRotation {
    /// The inventory supplies it.
    Brought,
    /// Another rotation that includes it is in progress.
    Other {
        /// Which.
        other: Rotatable,
    },
    /// `up` has steps to run first.
    NotWhole {
        /// How many steps.
        steps: usize,
        /// The first of them.
        first: String,
    },
    /// There is no rotation in progress to finish.
    NotBegun,
    /// Pods started before the last rotation trust only the previous CA, which cannot cross-sign a third one.
    StillVouched {
        /// When the previous CA expires, seconds since 1970.
        until_s: i64,
    },
    /// Programs still hold tokens of the old key, which are renewed automatically.
    TooYoung {
        /// For how much longer, seconds.
        left_s: i64,
    },
}

impl fmt::Display for NoRotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Brought => write!(f, "the inventory supplies it (`pki`)"),
            Self::Other { other } => write!(f, "the rotation of {other}, which includes it, is in progress"),
            Self::NotWhole { steps, first } => write!(f, "`up` has {steps} step(s) to run first: {first}"),
            Self::NotBegun => write!(f, "there is no rotation of it to finish"),
            Self::StillVouched { until_s } => {
                let until = super::timestamp::rfc3339(until_s.saturating_mul(1000));
                let day = until.get(..10).unwrap_or(&until);
                write!(f, "pods started before its last rotation may trust only the previous CA until {day}")
            }
            Self::TooYoung { left_s } => {
                let left = super::leaf::duration(*left_s);
                write!(f, "pods may use tokens of the old key for another {left}")
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

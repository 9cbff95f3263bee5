//! Versions of Kubernetes, and the supported version skew.
//!
//! In: text such as `1.36.3` or `v1.36.3`. Out: three comparable numbers. A suffix after a dash or a plus is another
//! build of the same release, and is ignored.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The minor versions that this hactl installs, the oldest first. It upgrades from each to the next.
pub const MINORS: [Minor; 4] = [
    Minor { major: 1, minor: 34 },
    Minor { major: 1, minor: 35 },
    Minor { major: 1, minor: 36 },
    Minor { major: 1, minor: 37 },
];

/// How many minor versions a kubelet may be older than its API server.
pub const KUBELET_MAY_LAG: u32 = 3;

/// A minor version, such as `1.36`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Minor {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
}

impl Minor {
    /// The next minor version.
    #[must_use]
    pub fn next(self) -> Self {
        Self { minor: self.minor + 1, ..self }
    }
    /// The number of minor versions from an older one to this; `None`: the major versions differ, or this is the older
    /// one.
    pub fn after(self, older: Self) -> Option<u32> {
        (self.major == older.major).then(|| self.minor.checked_sub(older.minor)).flatten()
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// Its minor version.
    pub minor: Minor,
    /// The third number.
    pub patch: u32,
}

impl Version {
    /// Parses a version, with or without a leading `v`; `None`: it is not a version.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let plain = text.split(['-', '+']).next().unwrap_or_default();
        let numbers: Vec<u32> = plain.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [major, minor, patch] = numbers[..] else { return None };
        Some(Self { minor: Minor { major, minor }, patch })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).expect("a version")
    }

    #[test]
    fn versions_compare_by_their_numbers_and_not_by_their_text() {
        assert!(version("1.9.12") < version("1.10.2") && version("v1.36.10") > version("1.36.9"));
        assert_eq!(version("v1.36.3-7+abc").to_string(), "1.36.3");
        for other in ["", "v", "1.36", "1.36.3.4", "1.x.3", "one", "-1.2.3"] {
            assert_eq!(Version::parse(other), None, "{other}");
        }
    }

    #[test]
    fn only_an_older_version_of_the_same_major_is_some_minors_behind() {
        let after = |new: &str, old: &str| version(new).minor.after(version(old).minor);
        assert_eq!([after("1.36.0", "1.34.9"), after("1.36.0", "1.36.9")], [Some(2), Some(0)]);
        assert_eq!([after("1.35.0", "1.36.9"), after("2.0.0", "1.36.9")], [None, None]);
    }
}

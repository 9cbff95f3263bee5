//! Types for names that must not be confused: hosts, clusters, units, peer URLs and content digests.
//!
//! In: text from an inventory, a lock file or a host's reply. Out: a checked newtype, or [`BadName`] saying why not.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Why a text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}: {why}")]
pub struct BadName {
    /// The kind of name.
    pub what: &'static str,
    /// The text as given.
    pub text: String,
    /// The rule that it violates.
    pub why: &'static str,
}

/// RFC 1123 label, the rule Kubernetes applies to a Node's name parts.
fn label(what: &'static str, text: &str, longest: usize) -> Result<(), BadName> {
    let bad = |why| Err(BadName { what, text: text.chars().take(80).collect(), why });
    if text.is_empty() {
        return bad("it is empty");
    }
    if text.len() > longest {
        return bad("it is too long");
    }
    if !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return bad("only a-z, 0-9 and '-' are allowed");
    }
    if text.starts_with('-') || text.ends_with('-') {
        return bad("it must start and end with a letter or a digit");
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl FromStr for $type {
            type Err = BadName;
            fn from_str(text: &str) -> Result<Self, BadName> {
                let check: fn(&str) -> Result<(), BadName> = $check;
                check(text)?;
                Ok(Self(text.to_owned()))
            }
        }
        impl TryFrom<String> for $type {
            type Error = BadName;
            fn try_from(text: String) -> Result<Self, BadName> {
                text.parse()
            }
        }
        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A host: also its Node's and its etcd member's name. A DNS label of at most 63 characters.
    HostName, "host name", |t| label("host name", t, 63)
);
name!(
    /// A cluster: names the state directory and the kubeconfig context. A DNS label of at most 40 characters.
    ClusterName, "cluster name", |t| label("cluster name", t, 40)
);
name!(
    /// A systemd unit with its suffix, such as `etcd.service`.
    UnitName, "unit name", |t| {
        let fine = t.len() <= 100
            && t.rsplit_once('.').is_some_and(|(stem, kind)| !stem.is_empty() && matches!(kind, "service" | "timer" | "mount" | "socket"))
            && t.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'@'));
        if fine { Ok(()) } else { Err(BadName { what: "unit name", text: t.chars().take(80).collect(), why: "expected something like etcd.service" }) }
    }
);
name!(
    /// A plug-in that an operator installs: the name of a file. At most 32 of a-z, 0-9 and '-'.
    PluginName, "plug-in name", |t| {
        let fine = (1..=32).contains(&t.len())
            && t.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let why = "1 to 32 of a-z, 0-9 and '-' are allowed";
        if fine { Ok(()) } else { Err(BadName { what: "plug-in name", text: t.chars().take(80).collect(), why }) }
    }
);
name!(
    /// An etcd peer URL, `https://ADDRESS:2380`. Members are keyed by it: an unstarted member has no name yet.
    PeerUrl, "peer URL", |t| {
        if t.starts_with("https://") && t.len() <= 200 && t.bytes().all(|b| b.is_ascii_graphic()) { Ok(()) }
        else { Err(BadName { what: "peer URL", text: t.chars().take(80).collect(), why: "it must start with https://" }) }
    }
);

impl PeerUrl {
    /// The peer URL of a member that listens on `address`.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(a) => Self(format!("https://{a}:2380")),
            IpAddr::V6(a) => Self(format!("https://[{a}]:2380")),
        }
    }
}

/// The SHA-256 of a content: the name of a blob, and its check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// Wraps the 32 bytes of a finished SHA-256.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
    /// The 32 bytes.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
    /// All 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
    /// The fingerprint as shown by OpenSSL and browsers: `SHA256:` and 64 digits.
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", self.hex())
    }
    /// Parses a fingerprint: with or without `SHA256:`, with or without colons, in upper or lower case.
    ///
    /// # Errors
    /// Anything else.
    pub fn from_fingerprint(text: &str) -> Result<Self, BadName> {
        let plain = text.trim().to_ascii_lowercase();
        let plain = plain.strip_prefix("sha256:").unwrap_or(&plain).replace(':', "");
        plain.parse()
    }
    /// The first 12 digits, for people.
    pub fn short(&self) -> String {
        self.hex()[..12].to_owned()
    }
}
impl FromStr for Digest {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let bad = || BadName {
            what: "SHA-256 digest",
            text: text.chars().take(80).collect(),
            why: "expected 64 hexadecimal digits",
        };
        let hex = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        if hex.len() != 64 {
            return Err(bad());
        }
        let digit = |c: u8| match c {
            b'0'..=b'9' => Ok(c - b'0'),
            b'a'..=b'f' => Ok(c - b'a' + 10),
            _ => Err(bad()),
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(bytes))
    }
}
impl TryFrom<String> for Digest {
    type Error = BadName;
    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}
impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.hex()
    }
}
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.short())
    }
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_is_a_dns_label_and_says_why_it_is_not() {
        assert_eq!("cp1".parse::<HostName>().map(String::from), Ok("cp1".to_owned()));
        for (text, why) in [("", "empty"), ("Cp1", "a-z"), ("-a", "start"), ("a.b", "a-z"), ("a\n", "a-z")] {
            let error = text.parse::<HostName>().unwrap_err();
            assert!(error.why.contains(why), "{text:?} gave {error}");
        }
    }

    #[test]
    fn a_digest_survives_its_own_text_and_refuses_anything_else() {
        let digest = Digest::new([0xa5; 32]);
        assert_eq!(digest.hex().parse(), Ok(digest));
        assert!("A5".repeat(32).parse::<Digest>().is_err());
        assert!("a5".repeat(31).parse::<Digest>().is_err());
    }
}

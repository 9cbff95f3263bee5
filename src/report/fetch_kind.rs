//! The part of the verdict table for fetching, exporting and importing bundles.
//!
//! In: a kind. Out: its code for programs, its exit code, and hints.

use super::exit::Exit;

/// Why a bundle could not be fetched, exported or imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchKind {
    /// No sources are known for these versions.
    NoRelease,
    /// The name of a server does not resolve.
    Name,
    /// The certificate of a server is not trusted.
    Trust,
    /// The server does not answer.
    Unreachable,
    /// There is no such file or image.
    NotFound,
    /// The server requires authentication.
    Denied,
    /// The server or the network has a problem.
    Unwell,
    /// The content does not match its checksum.
    Checksum,
    /// The publisher reports another digest than at the first use.
    Moved,
    /// The server sent something unexpected.
    NotUnderstood,
    /// The disk is full.
    Full,
    /// Another process fetches into the same store.
    Busy,
    /// The file is not a bundle, or has another format.
    NotABundle,
    /// The file is truncated.
    CutShort,
    /// The file does not match its own digests.
    Tampered,
    /// The store has another bundle of the same version.
    Different,
}

impl FetchKind {
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::NoRelease => "no-release",
            Self::Name => "unknown-server",
            Self::Trust => "untrusted-server",
            Self::Unreachable => "unreachable-server",
            Self::NotFound => "not-published",
            Self::Denied => "denied",
            Self::Unwell => "transfer",
            Self::Checksum => "checksum",
            Self::Moved => "digest-moved",
            Self::NotUnderstood => "not-understood",
            Self::Full => "disk-full",
            Self::Busy => "locked",
            Self::NotABundle => "no-bundle",
            Self::CutShort => "cut-short",
            Self::Tampered => "tampered",
            Self::Different => "different-bundle",
        }
    }
    pub(super) const fn exit(self) -> Exit {
        match self {
            Self::NoRelease => Exit::Usage,
            Self::Checksum | Self::Moved | Self::Tampered | Self::Different => Exit::Refused,
            Self::Busy => Exit::Locked,
            _ => Exit::Failed,
        }
    }
    pub(super) const fn hints(self) -> &'static [&'static str] {
        const AGAIN: &str = "run the same command again: it resumes the download";
        const MIRROR: &str =
            "`--mirror HOST=URL` uses another server; with `--lock FILE`, its files must match the lock file";
        match self {
            Self::NoRelease => &["`hactl bundle build --help` shows how versions are chosen"],
            Self::Name => &["check that this machine resolves names; if only a proxy does, set HTTPS_PROXY", MIRROR],
            Self::Trust => &[
                "a proxy that intercepts TLS presents its own certificate: add its CA to this machine's trust store, \
                 or name a file with all CAs in SSL_CERT_FILE",
                MIRROR,
            ],
            Self::Unreachable => &[
                "check that this machine can reach the server; HTTPS_PROXY names a proxy, NO_PROXY the exceptions",
                MIRROR,
            ],
            Self::NotFound => &[
                "check the publisher's list of releases for this version and architecture; `--kubernetes` and `--with \
                 NAME=VERSION` choose another version",
                "a mirror may not have it: omit `--mirror` to ask the publisher",
            ],
            Self::Denied => &[
                "hactl does not authenticate: put the content on a server without authentication, and name it with \
                 `--mirror HOST=URL`",
                "a registry also answers like this when a rate limit is exceeded: wait an hour",
            ],
            Self::Unwell => &[AGAIN, MIRROR],
            Self::Checksum => &[
                "nothing of it was used; run the same command again, because it may have been damaged in transit",
                "if the result is the same, something between here and the publisher modifies files: try another \
                 network, and inform the publisher",
            ],
            Self::Moved => &[
                "first find out why: publishers do not change released files",
                "once you know that the new digest is right, remove this source from the lock file, and run the same \
                 command again",
            ],
            Self::NotUnderstood => {
                &["check the server's answer: a proxy or a login portal may have answered instead", MIRROR]
            }
            Self::Full => {
                &["free some space, or name a store on another disk with --bundles DIR; the same command then resumes \
                 the download"]
            }
            Self::Busy => &["wait for the other process to end: its lock is released when it exits"],
            Self::NotABundle => &[
                "`hactl bundle export` writes such a file; import it with a hactl that is at least as new as the one \
                 that wrote it",
            ],
            Self::CutShort => {
                &["copy the file again and run the same command: complete files are already in the store and are not \
                 imported twice"]
            }
            Self::Tampered => &[
                "the bundle was not imported; copy the file again from the machine that exported it",
                "compare the identity with the one that `hactl bundle list` shows there; `--expect` does so",
            ],
            Self::Different => {
                &["`--replace` replaces the other one: the hosts get the new files at the next `hactl up`"]
            }
        }
    }
}

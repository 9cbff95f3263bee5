//! The rows of the table of verdicts that are about fetching and carrying bundles.
//!
//! In: a kind. Out: its word for programs, its exit code, and what to do about it.

use super::exit::Exit;

/// In which way a bundle could not be fetched, exported or imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchKind {
    /// Nothing is known to fetch for these versions.
    NoRelease,
    /// A server's name is not known.
    Name,
    /// A server's certificate is not trusted.
    Trust,
    /// Nobody answers.
    Unreachable,
    /// There is no such file or image.
    NotFound,
    /// The server asks who we are.
    Denied,
    /// The server or the network is not well.
    Unwell,
    /// The content is not what its checksum says.
    Checksum,
    /// The publisher says something else than at the first use.
    Moved,
    /// What came is not what it should be.
    NotUnderstood,
    /// The disk is full.
    Full,
    /// Another process fetches into the same store.
    Busy,
    /// A file is no bundle, or of another format.
    NotABundle,
    /// A file ends too early.
    CutShort,
    /// A file is not what it says.
    Tampered,
    /// Another bundle of the same version is there.
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
        const AGAIN: &str = "run the same command again: it goes on from what is there";
        const MIRROR: &str = "`--mirror HOST=URL` asks another place; with `--lock FILE` what comes from there must be what the lock says";
        match self {
            Self::NoRelease => &["`hactl bundle build --help` shows how versions are chosen"],
            Self::Name => {
                &["see that this machine resolves names; where only a proxy does, name it in HTTPS_PROXY", MIRROR]
            }
            Self::Trust => &[
                "a proxy that looks into TLS shows a certificate of its own: add its authority to this machine's, or name a file with all of them in SSL_CERT_FILE",
                MIRROR,
            ],
            Self::Unreachable => &[
                "see that this machine may reach the server; a proxy is named in HTTPS_PROXY, exceptions in NO_PROXY",
                MIRROR,
            ],
            Self::NotFound => &[
                "is this version released, and for this architecture? The publisher's list of releases says so; `--kubernetes` and `--with NAME=VERSION` choose another",
                "a mirror may not have it: leave `--mirror` out to ask the publisher",
            ],
            Self::Denied => &[
                "hactl logs in nowhere: put the content where it is given to everybody, and name that place with `--mirror HOST=URL`",
                "a registry also says so when too much was asked of it: wait an hour",
            ],
            Self::Unwell => &[AGAIN, MIRROR],
            Self::Checksum => &[
                "nothing of it was used; run the same command again, for it may have been damaged on its way",
                "if it says so again, somebody between here and the publisher changes files: ask from another network, and tell the publisher",
            ],
            Self::Moved => &[
                "find out why before anything else: publishers do not change what they released",
                "once you know that the new one is right, take this source out of the lock file, and run the same command again",
            ],
            Self::NotUnderstood => {
                &["see what the server sends: a proxy or a portal that asks for a login answers in its stead", MIRROR]
            }
            Self::Full => &[
                "make room, or name a store on another disk with --bundles DIR; what came so far is kept, and the same command goes on from there",
            ],
            Self::Busy => &["wait for the other one to end: the lock goes with its process"],
            Self::NotABundle => &[
                "`hactl bundle export` writes such a file; the hactl that reads it must be as new as the one that wrote it",
            ],
            Self::CutShort => &[
                "copy the file again and run the same command: what was whole is in the store already and is not taken twice",
            ],
            Self::Tampered => &[
                "the bundle was not taken; copy the file again from where it was exported",
                "compare the identity with what `hactl bundle list` shows there; `--expect` does so",
            ],
            Self::Different => {
                &["`--replace` takes it in the other's place: hosts get the new bytes at the next `hactl up`"]
            }
        }
    }
}

//! Where publishers provide the content of a bundle, and which of their versions belong together.
//!
//! In: a Kubernetes version, versions that differ from the table, architectures. Out: every component that a host may
//! need, with its literal URL or image. The versions are the pins of `components/`; a test compares the two.

use crate::model::components::{Kind, Row, TABLE};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Versions for a minor version of Kubernetes.
#[derive(Debug)]
pub struct Set {
    /// The minor version, such as `1.36`.
    pub kubernetes: &'static str,
    /// Version of each release, by its name.
    pub versions: [(&'static str, &'static str); 8],
}

/// The combinations that were tested, the newest last.
pub const SETS: [Set; 4] = [
    Set { kubernetes: "1.34", versions: together("3.6.16") },
    Set { kubernetes: "1.35", versions: together("3.6.16") },
    Set { kubernetes: "1.36", versions: together("3.6.16") },
    Set { kubernetes: "1.37", versions: together("3.7.3") },
];

/// The versions for each of them; they are the same but for etcd's.
const fn together(etcd: &'static str) -> [(&'static str, &'static str); 8] {
    [
        ("etcd", etcd),
        ("containerd", "2.3.7"),
        ("runc", "1.4.3"),
        ("cni", "1.9.1"),
        // Not the pin of components/, which is older because its repository is not on the Go module proxy.
        ("cni-flannel", "1.9.1-flannel1"),
        ("flannel", "0.28.4"),
        ("coredns", "1.14.6"),
        ("pause", "3.10.1"),
    ]
}

/// The hosts of the URLs. Some redirect to other hosts.
pub const HOSTS: [&str; 4] = ["dl.k8s.io", "github.com", "registry.k8s.io", "ghcr.io"];

/// A processor architecture, by Go's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// x86_64.
    Amd64,
    /// aarch64.
    Arm64,
}

impl Arch {
    /// Go's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Arch {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "amd64" | "x86_64" => Ok(Self::Amd64),
            "arm64" | "aarch64" => Ok(Self::Arm64),
            other => Err(format!("{other} is not an architecture of bundles: amd64, arm64")),
        }
    }
}

/// A file and the checksum file that its publisher provides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Published {
    /// The file.
    pub url: String,
    /// The file with its SHA-256.
    pub checksum: String,
}

impl Published {
    fn beside(url: String, suffix: &str) -> Self {
        let checksum = format!("{url}{suffix}");
        Self { url, checksum }
    }
    /// The last segment of the path.
    pub fn file_name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or(&self.url)
    }
}

/// An image by its tag.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    /// Host of the registry.
    pub registry: &'static str,
    /// Repository.
    pub repository: &'static str,
    /// Tag.
    pub tag: String,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.registry, self.repository, self.tag)
    }
}

/// The source of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A plain file.
    File(Published),
    /// A member of a gzip-compressed tar.
    Member(Published, String),
    /// An image.
    Image(Image),
}

/// A component to download.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Its row in the component table.
    pub row: &'static Row,
    /// Version without the `v`.
    pub version: String,
    /// Architecture.
    pub arch: Arch,
    /// Source.
    pub origin: Origin,
}

impl Wanted {
    /// Its label, such as `etcd 3.6.16`.
    pub fn label(&self) -> String {
        format!("{} {}", self.row.name, self.version)
    }
    /// The source as users write it: a URL or an image reference.
    pub fn source(&self) -> String {
        match &self.origin {
            Origin::File(file) | Origin::Member(file, _) => file.url.clone(),
            Origin::Image(image) => image.to_string(),
        }
    }
    /// An image's reference.
    pub fn reference(&self) -> Option<String> {
        matches!(self.origin, Origin::Image(_)).then(|| self.source())
    }
}

/// Why there is no source for the given versions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRelease {
    /// The text is not a version.
    #[error("{text} is not a version of {what}: three numbers are required, such as 1.36.3")]
    NoVersion {
        /// The component.
        what: String,
        /// The text.
        text: String,
    },
    /// No combination for this Kubernetes version is known.
    #[error("this hactl has no component versions for Kubernetes {wanted}; it has those for {}", .known.join(", "))]
    NoSet {
        /// The required version.
        wanted: String,
        /// The known minor versions.
        known: Vec<String>,
    },
    /// A version was given for a component that has none of its own.
    #[error("no version can be chosen for {name}; it can for {}", .known.join(", "))]
    NoSuchName {
        /// The name given.
        name: String,
        /// The names with versions.
        known: Vec<String>,
    },
}

/// Three numbers, optionally a word after a dash. It becomes part of URLs.
fn checked(what: &str, text: &str) -> Result<String, NoRelease> {
    let (numbers, word) = text.split_once('-').unwrap_or((text, "x"));
    let number = |n: &str| !n.is_empty() && n.len() <= 4 && n.bytes().all(|b| b.is_ascii_digit());
    let plain = |w: &str| !w.is_empty() && w.len() <= 20 && w.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
    if numbers.split('.').count() == 3 && numbers.split('.').all(number) && plain(word) {
        return Ok(text.to_owned());
    }
    Err(NoRelease::NoVersion { what: what.to_owned(), text: text.chars().take(40).collect() })
}

/// Every published component of a bundle for this Kubernetes version, in the order of delivery, for each architecture.
/// `with` replaces versions of the table.
pub fn wanted(
    kubernetes: &str,
    with: &BTreeMap<String, String>,
    architectures: &[Arch],
) -> Result<Vec<Wanted>, NoRelease> {
    let kubernetes = checked("Kubernetes", kubernetes)?;
    let minor = kubernetes.rsplit_once('.').map_or("", |(minor, _)| minor);
    let set = SETS.iter().find(|set| set.kubernetes == minor).ok_or_else(|| NoRelease::NoSet {
        wanted: kubernetes.clone(),
        known: SETS.iter().map(|set| set.kubernetes.to_owned()).collect(),
    })?;
    let mut versions: BTreeMap<&str, String> = set.versions.iter().map(|(n, v)| (*n, (*v).to_owned())).collect();
    for (name, version) in with {
        let known = || set.versions.iter().map(|(n, _)| (*n).to_owned()).collect();
        let (name, _) = set
            .versions
            .iter()
            .find(|(n, _)| n == name)
            .ok_or_else(|| NoRelease::NoSuchName { name: name.clone(), known: known() })?;
        versions.insert(name, checked(name, version)?);
    }
    versions.insert("kubernetes", kubernetes);
    let mut all = Vec::new();
    for row in &TABLE {
        for arch in architectures {
            let version = versions.get(release_of(row)).cloned().unwrap_or_default();
            let Some(origin) = origin(row, &version, *arch) else { continue };
            all.push(Wanted { row, version, arch: *arch, origin });
        }
    }
    Ok(all)
}

/// The release that contains a component.
fn release_of(row: &Row) -> &'static str {
    match row.name {
        _ if row.kubernetes => "kubernetes",
        "etcd" | "etcdctl" | "etcdutl" => "etcd",
        "containerd" | "containerd-shim-runc-v2" | "ctr" => "containerd",
        "cni-flannel" => "cni-flannel",
        name if name.starts_with("cni-") => "cni",
        name => name,
    }
}

/// The literal source of each component; `None`: nobody publishes it as hosts get it.
fn origin(row: &Row, v: &str, arch: Arch) -> Option<Origin> {
    let github = |path: String| format!("https://github.com/{path}");
    let image = |registry, repository| Origin::Image(Image { registry, repository, tag: format!("v{v}") });
    Some(match (row.kind, row.name) {
        (Kind::Packages, _) => return None,
        (Kind::Image, "pause") => {
            Origin::Image(Image { registry: "registry.k8s.io", repository: "pause", tag: v.to_owned() })
        }
        (Kind::Image, "coredns") => image("registry.k8s.io", "coredns/coredns"),
        (Kind::Image, "flannel") => image("ghcr.io", "flannel-io/flannel"),
        (Kind::Image, name) => image("registry.k8s.io", name),
        (Kind::Program, "etcd" | "etcdctl" | "etcdutl") => {
            let folder = format!("etcd-v{v}-linux-{arch}");
            let release = github(format!("etcd-io/etcd/releases/download/v{v}"));
            let file =
                Published { url: format!("{release}/{folder}.tar.gz"), checksum: format!("{release}/SHA256SUMS") };
            Origin::Member(file, format!("{folder}/{}", row.name))
        }
        // The static build: the other one requires a recent C library, and hosts may be older.
        (Kind::Program, "containerd" | "containerd-shim-runc-v2" | "ctr") => {
            let path =
                format!("containerd/containerd/releases/download/v{v}/containerd-static-{v}-linux-{arch}.tar.gz");
            Origin::Member(Published::beside(github(path), ".sha256sum"), format!("bin/{}", row.name))
        }
        (Kind::Program, "runc") => {
            let release = github(format!("opencontainers/runc/releases/download/v{v}"));
            Origin::File(Published {
                url: format!("{release}/runc.{arch}"),
                checksum: format!("{release}/runc.sha256sum"),
            })
        }
        // The archive's name has only the version of the common plugins.
        (Kind::Program, "cni-flannel") => {
            let plain = v.split_once('-').map_or(v, |(plain, _)| plain);
            let path =
                format!("flannel-io/cni-plugin/releases/download/v{v}/cni-plugin-flannel-linux-{arch}-v{plain}.tgz");
            Origin::Member(Published::beside(github(path), ".sha256"), format!("flannel-{arch}"))
        }
        (Kind::Program, name) => {
            if let Some(plugin) = name.strip_prefix("cni-") {
                let path =
                    format!("containernetworking/plugins/releases/download/v{v}/cni-plugins-linux-{arch}-v{v}.tgz");
                return Some(Origin::Member(Published::beside(github(path), ".sha256"), plugin.to_owned()));
            }
            let url = format!("https://dl.k8s.io/release/v{v}/bin/linux/{arch}/{name}");
            Origin::File(Published::beside(url, ".sha256"))
        }
    })
}

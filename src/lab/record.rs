//! The requested lab (`Spec`) and the record of a lab (`lab.json`).

use super::error::{LabError, Result};
use super::files;
use super::network::Network;
use crate::inventory::topology::topology;
use crate::model::desired::Role;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Addresses .11 to .99: the virtual one is .100.
pub(crate) const MOST_HOSTS: usize = 89;

/// The system of a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Base {
    /// Debian 11; `hactl up` refuses it, because its systemd is too old.
    #[serde(rename = "debian-11")]
    Debian11,
    /// Debian 12.
    #[default]
    #[serde(rename = "debian-12")]
    Debian12,
    /// Debian 13.
    #[serde(rename = "debian-13")]
    Debian13,
}

impl Base {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Debian11, Self::Debian12, Self::Debian13];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Debian11 => "debian-11",
            Self::Debian12 => "debian-12",
            Self::Debian13 => "debian-13",
        }
    }

    /// Its name in Debian's archive.
    pub(crate) fn suite(self) -> &'static str {
        match self {
            Self::Debian11 => "bullseye",
            Self::Debian12 => "bookworm",
            Self::Debian13 => "trixie",
        }
    }
}

/// A host of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSpec {
    /// Its name on the network, in the inventory and as the folder of its disks.
    pub name: String,
    /// The role that it is created for; further roles depend on the other hosts.
    pub kind: Role,
    /// Its system. Labs of earlier versions have Debian 12 only, and record none.
    #[serde(default)]
    pub base: Base,
}

/// The requested lab.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The lab's and the cluster's name.
    pub name: String,
    /// The folder of all labs.
    pub root: PathBuf,
    /// The folder of the cached bases.
    pub cache: PathBuf,
    /// The hosts, in the order of their addresses.
    pub hosts: Vec<HostSpec>,
    /// The inventory's Kubernetes version.
    pub kubernetes: String,
    /// A mirror of Debian, with `/debian` and `/debian-security` below it; without one, Debian's own.
    pub mirror: Option<String>,
    /// Timeout until a host answers SSH.
    pub timeout: Duration,
}

impl Spec {
    /// Three control-plane hosts, in the usual folders.
    pub fn new(name: &str) -> Self {
        let usual = |role| topology().machines.iter().find(|kind| kind.role == role).map_or(0, |kind| kind.count);
        Self {
            name: name.to_owned(),
            root: default_root(),
            cache: default_cache(),
            hosts: machines(usual),
            kubernetes: crate::inventory::DEFAULT_KUBERNETES.to_owned(),
            mirror: None,
            timeout: Duration::from_secs(90),
        }
    }

    /// Like [`Spec::new`], with a name that is unique on this machine.
    pub fn unique(prefix: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::new(&format!("{prefix}-{}-{number}", std::process::id()))
    }

    /// Another number of hosts: cp1.., w1.., s1...
    #[must_use]
    pub fn hosts(self, control_plane: usize, workers: usize, spares: usize) -> Self {
        self.machines(|role| match role {
            Role::ControlPlane => control_plane,
            Role::Worker => workers,
            Role::Spare => spares,
            Role::Etcd | Role::LoadBalancer => 0,
        })
    }

    /// This many hosts for each role.
    #[must_use]
    pub fn machines(mut self, count: impl Fn(Role) -> usize) -> Self {
        self.hosts = machines(count);
        self
    }

    /// The systems of the hosts. A choice without a name is for every host that no other choice names.
    ///
    /// # Errors
    /// When a choice names a host that the lab does not have.
    pub fn bases(mut self, choices: &[(Option<String>, Base)]) -> Result<Self> {
        let known: Vec<String> = self.hosts.iter().map(|host| host.name.clone()).collect();
        if let Some(host) = choices.iter().filter_map(|(host, _)| host.clone()).find(|host| !known.contains(host)) {
            return Err(LabError::NoHost { lab: self.name, host, known });
        }
        let of = |name: Option<&str>| choices.iter().rfind(|(host, _)| host.as_deref() == name);
        for host in &mut self.hosts {
            if let Some((_, base)) = of(Some(host.name.as_str())).or_else(|| of(None)) {
                host.base = *base;
            }
        }
        Ok(self)
    }

    /// Validates settings that could otherwise fail halfway.
    pub(crate) fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        if self.hosts.is_empty() || self.hosts.len() > MOST_HOSTS {
            return Err(LabError::BadSize { asked: self.hosts.len(), most: MOST_HOSTS });
        }
        for (index, host) in self.hosts.iter().enumerate() {
            check_name(&host.name)?;
            if self.hosts[..index].iter().any(|other| other.name == host.name) {
                return Err(LabError::SameHost { host: host.name.clone() });
            }
        }
        [&self.root, &self.cache].into_iter().try_for_each(|path| check_path(path))
    }
}

/// This many hosts for each role, named and ordered by the topology.
fn machines(count: impl Fn(Role) -> usize) -> Vec<HostSpec> {
    topology().names(count).map(|(name, kind)| HostSpec { name, kind, base: Base::default() }).collect()
}

/// A lab's or host's name is a DNS label, and short enough to read.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let good = name.len() <= 30
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if good { Ok(()) } else { Err(LabError::BadName { name: name.to_owned() }) }
}

/// Validates a folder for LXC's configuration.
pub(crate) fn check_path(path: &Path) -> Result<()> {
    let odd = |c: char| c.is_whitespace() || matches!(c, ':' | ',' | '\\');
    if path.is_absolute() && path.to_str().is_some_and(|text| !text.contains(odd)) {
        return Ok(());
    }
    Err(LabError::BadPath { path: path.to_owned() })
}

/// `$HACTL_LAB_DIR`, else `$XDG_STATE_HOME/hactl/labs`, else `~/.local/state/hactl/labs`.
pub fn default_root() -> PathBuf {
    match std::env::var_os("HACTL_LAB_DIR") {
        Some(given) if !given.is_empty() => PathBuf::from(given),
        _ => xdg("XDG_STATE_HOME", ".local/state").join("hactl/labs"),
    }
}

/// `$XDG_CACHE_HOME/hactl/lab`, else `~/.cache/hactl/lab`.
pub fn default_cache() -> PathBuf {
    xdg("XDG_CACHE_HOME", ".cache").join("hactl/lab")
}

fn xdg(variable: &str, below_home: &str) -> PathBuf {
    match std::env::var_os(variable).map(PathBuf::from) {
        Some(given) if given.is_absolute() => given,
        _ => std::env::home_dir().unwrap_or_else(|| PathBuf::from("/root")).join(below_home),
    }
}

/// The record of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The lab's name.
    pub(crate) name: String,
    /// The third octet of its network.
    pub(crate) octet: u8,
    /// The lower file system of hosts whose system is not in `bases`: the only one that earlier versions record. It is
    /// empty for a network without hosts.
    pub(crate) base: PathBuf,
    /// The lower file system of each system.
    #[serde(default)]
    pub(crate) bases: BTreeMap<Base, PathBuf>,
    /// The inventory's Kubernetes version.
    pub(crate) kubernetes: String,
    /// Its hosts; the first has address .11.
    pub(crate) hosts: Vec<HostSpec>,
}

impl Record {
    /// Reads `lab.json` of a lab's folder; `None` if there is none.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join("lab.json");
        let Some(text) = files::read_if(&path)? else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(|source| LabError::BadRecord { path, source })
    }

    /// Writes `lab.json`.
    pub(crate) fn save(&self, dir: &Path) -> Result<()> {
        let path = dir.join("lab.json");
        let text =
            serde_json::to_string_pretty(self).map_err(|source| LabError::BadRecord { path: path.clone(), source })?;
        files::write(&path, 0o644, &text)
    }

    /// Whether it is a network without hosts.
    pub(crate) fn alone(&self) -> bool {
        self.base.as_os_str().is_empty()
    }

    /// The lower file system of a host.
    pub(crate) fn base_of(&self, host: &HostSpec) -> &Path {
        self.bases.get(&host.base).unwrap_or(&self.base)
    }

    /// The lower file systems of all hosts.
    pub(crate) fn all_bases(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.base).chain(self.bases.values())
    }

    /// All roles of a host of this kind in this lab.
    pub(crate) fn roles(&self, kind: Role) -> Vec<Role> {
        let there: Vec<Role> = self.hosts.iter().map(|host| host.kind).collect();
        topology().roles(kind, &there)
    }

    /// The lab's network.
    pub(crate) fn network(&self) -> Network {
        Network { octet: self.octet }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels() {
        for good in ["lab", "a", "a-1", "lab2"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "1a", "A", "a_b", "a-", "-a", "a/b", "..", &"a".repeat(31)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_spec_is_refused_before_anything_is_made() {
        assert!(Spec::new("lab").check().is_ok());
        assert!(matches!(Spec::new("lab").hosts(0, 0, 0).check(), Err(LabError::BadSize { .. })));
        assert!(matches!(Spec::new("lab").hosts(80, 10, 0).check(), Err(LabError::BadSize { .. })));
        for bad in ["relative", "/a b", "/a:b", "/a,b"] {
            let spec = Spec { root: bad.into(), ..Spec::new("lab") };
            assert!(matches!(spec.check(), Err(LabError::BadPath { .. })), "{bad}");
        }
    }

    #[test]
    fn hosts_are_named_by_kind() {
        let spec = Spec::new("lab").hosts(2, 1, 1);
        let names: Vec<&str> = spec.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["cp1", "cp2", "w1", "s1"]);
    }

    #[test]
    fn hosts_for_etcd_and_balancers_come_between() {
        let spec = Spec::new("lab").machines(|role| usize::from(role != Role::Spare));
        let names: Vec<&str> = spec.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["cp1", "etcd1", "lb1", "w1"]);
    }

    #[test]
    fn a_base_for_one_host_precedes_that_for_all_and_an_unknown_host_is_refused() {
        use Base::{Debian11, Debian12, Debian13};
        let bases = |choices: &[(Option<&str>, Base)]| -> Result<Vec<Base>> {
            let choices: Vec<_> = choices.iter().map(|(host, base)| (host.map(str::to_owned), *base)).collect();
            Ok(Spec::new("lab").bases(&choices)?.hosts.iter().map(|host| host.base).collect())
        };
        assert_eq!(bases(&[]).unwrap(), [Debian12; 3]);
        assert_eq!(bases(&[(Some("cp2"), Debian13)]).unwrap(), [Debian12, Debian13, Debian12]);
        assert_eq!(bases(&[(Some("cp2"), Debian13), (None, Debian11)]).unwrap(), [Debian11, Debian13, Debian11]);
        let error = bases(&[(None, Debian13), (Some("w1"), Debian11)]).unwrap_err().to_string();
        assert_eq!(error, "lab \"lab\" has no host \"w1\": it has cp1, cp2, cp3");
    }

    #[test]
    fn a_record_keeps_the_base_of_each_host_and_one_of_an_earlier_version_has_one_base() {
        let hosts = r#"[{"name": "cp1", "kind": "control-plane"}, {"name": "cp2", "kind": "control-plane"}]"#;
        let text = format!(r#"{{"name": "lab", "octet": 4, "base": "/b", "kubernetes": "1.36.3", "hosts": {hosts}}}"#);
        let mut record: Record = serde_json::from_str(&text).unwrap();
        assert!(record.hosts.iter().all(|host| host.base == Base::Debian12 && record.base_of(host) == Path::new("/b")));
        record.hosts[1].base = Base::Debian13;
        record.bases.insert(Base::Debian13, "/b13".into());
        let again: Record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        assert_eq!(again, record);
        let bases: Vec<&Path> = again.hosts.iter().map(|host| again.base_of(host)).collect();
        assert_eq!(bases, [Path::new("/b"), Path::new("/b13")]);
    }

    #[test]
    fn the_option_and_the_record_name_a_base_alike() {
        for base in Base::ALL {
            assert_eq!(serde_json::to_value(base).unwrap(), base.word());
        }
    }

    #[test]
    fn unique_specs_differ() {
        assert_ne!(Spec::unique("t").name, Spec::unique("t").name);
    }
}

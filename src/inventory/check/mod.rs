//! Rules: from raw values to the desired state, with every default filled in and every violation collected.
//!
//! In: the raw inventory. Out: [`Desired`], or all problems in one report. Each subject has a file; [`Validator`]
//! collects the findings. A refused value is replaced by a valid one, so that the rules that depend on it can still
//! be checked; if any value was refused, the result is discarded.

pub mod endpoint;
pub mod extra;
pub mod hosts;
pub mod jwt;
pub mod kubernetes;
pub mod network;
pub mod owned;
pub mod pki;
pub mod quorum;
pub mod registries;
pub mod settings;
mod snapshots;
pub mod text;
pub mod ways;

use super::at::{At, Place};
use super::openssh::Files;
use super::problem::{Problem, Report, Severity, Words};
use super::schema::Inventory;
use crate::model::desired::{Desired, Named};
use crate::model::names::ClusterName;
use std::path::{Path, PathBuf};

/// etcd's default data directory.
pub const DATA_DIR: &str = "/var/lib/etcd";

/// The kind of a file that the inventory names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Not read here.
    Elsewhere,
    /// CAs that a registry's certificate, or that of object storage, must be signed by.
    Authority {
        /// The registry or mirror, or `s3://`.
        at: String,
    },
    /// `user:password` for a registry, or the key of object storage.
    Login {
        /// The registry or mirror, or `s3://`.
        at: String,
    },
    /// Kubernetes objects, in a file or a folder of files.
    Manifests,
}

/// A file that the inventory names; `load` checks that it exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// Which key names it.
    pub key: &'static str,
    /// Absolute path.
    pub path: PathBuf,
    /// Place in the inventory.
    pub place: Place,
    /// Whether a folder is accepted too.
    pub folder_too: bool,
    /// What it contains.
    pub reading: Reading,
}

/// Collects problems.
pub struct Validator<'a> {
    /// The file as the user named it.
    pub file: &'a str,
    /// The text.
    pub source: &'a str,
    /// Directory that relative paths are relative to.
    pub base: &'a Path,
    /// The directory `~`.
    pub home: Option<PathBuf>,
    /// Source of OpenSSH's configuration.
    pub disk: &'a dyn Files,
    /// Our user name on this machine.
    pub local_user: &'a str,
    /// Refusals.
    pub problems: Vec<Problem>,
    /// Warnings.
    pub warnings: Vec<Problem>,
    /// Files that must exist.
    pub files: Vec<NamedFile>,
}

impl Validator<'_> {
    /// Records a refusal.
    pub fn refuse(
        &mut self,
        place: Place,
        what: impl Into<String>,
        expected: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let words = Words::new(what, expected, remedy);
        self.problems.push(Problem::new(Severity::Error, self.file, self.source, place, words));
    }
    /// Records a warning.
    pub fn warn(
        &mut self,
        place: Place,
        what: impl Into<String>,
        expected: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let words = Words::new(what, expected, remedy);
        self.warnings.push(Problem::new(Severity::Warning, self.file, self.source, place, words));
    }
    /// Records that a key is accepted and has no effect so far.
    pub fn no_effect(&mut self, place: Place, key: &str, instead: &str) {
        self.warn(place, format!("{key} is accepted but has no effect in this version of hactl"), "", instead);
    }
    /// A file that must exist, by its absolute path.
    pub fn path(&mut self, key: &'static str, text: &At<String>, folder_too: bool) -> Option<PathBuf> {
        self.named(key, text, folder_too, Reading::Elsewhere)
    }
    /// The same for a file whose contents are validated as well.
    pub fn file(&mut self, key: &'static str, text: &At<String>, reading: Reading) -> Option<PathBuf> {
        let folder_too = reading == Reading::Manifests;
        self.named(key, text, folder_too, reading)
    }
    fn named(&mut self, key: &'static str, text: &At<String>, folder_too: bool, reading: Reading) -> Option<PathBuf> {
        let path = self.absolute(key, text)?;
        self.files.push(NamedFile { key, path: path.clone(), place: text.place, folder_too, reading });
        Some(path)
    }
    /// A path of the inventory as an absolute one.
    pub fn absolute(&mut self, key: &'static str, text: &At<String>) -> Option<PathBuf> {
        let given = text.value.as_str();
        if given.is_empty() || given.chars().any(char::is_control) {
            self.refuse(
                text.place,
                format!("{key} is not a path"),
                "the path of a file",
                "write one, or remove the key",
            );
            return None;
        }
        let path = match given.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => match &self.home {
                Some(home) => home.join(rest.trim_start_matches('/')),
                None => {
                    self.refuse(
                        text.place,
                        "~ means the home directory, but HOME is not set",
                        "HOME in the environment",
                        "write the path without ~",
                    );
                    return None;
                }
            },
            Some(_) => {
                self.refuse(text.place, format!("{given} means another user's home"), "~/...", "write the full path");
                return None;
            }
            None => self.base.join(given.strip_prefix("./").unwrap_or(given)),
        };
        Some(path)
    }
    /// All findings in the order of the file, those of other files last.
    pub fn report(mut self) -> Report {
        for found in [&mut self.problems, &mut self.warnings] {
            found.sort_by(|a, b| {
                let elsewhere = |p: &Problem| p.file != self.file;
                elsewhere(a).cmp(&elsewhere(b)).then_with(|| a.file.cmp(&b.file)).then(a.place.cmp(&b.place))
            });
        }
        Report { problems: self.problems, warnings: self.warnings }
    }
}

/// Validates a raw inventory. The result is valid only if the validator has no problems.
pub fn desired(judge: &mut Validator<'_>, raw: &At<Inventory>) -> Desired {
    let top = raw.place;
    let raw = &raw.value;
    schema_version(judge, raw, top);
    let cluster = cluster(judge, raw, top);
    let network = network::network(judge, raw.network.as_ref());
    let hosts = hosts::hosts(judge, raw, top);
    let endpoint = endpoint::endpoint(judge, raw, top, &cluster, &hosts);
    let api_port = endpoint::api_port(judge, raw, &endpoint, &hosts);
    network::addresses_apart(judge, raw, &network, &endpoint, &hosts);
    quorum::roles(judge, raw, top, &endpoint, &hosts);
    quorum::zones(judge, &hosts);
    let versions = settings::versions(judge, raw.versions.as_ref());
    let etcd = settings::etcd(judge, raw.etcd.as_ref());
    let manifests = settings::manifests(judge, raw.manifests.as_ref());
    settings::not_built_yet(judge, raw);
    Desired {
        cluster,
        versions,
        endpoint,
        api_port,
        hosts: hosts.list.into_iter().map(|placed| placed.host).collect(),
        leaving: Vec::new(),
        network,
        control_plane: settings::control_plane(judge, raw.control_plane.as_ref()),
        etcd,
        snapshots: snapshots::snapshots(judge, raw.snapshots.as_ref(), raw.vault.as_ref()),
        upgrade: settings::upgrade(judge, raw.upgrade.as_ref()),
        unattended_days: settings::unattended(judge, raw.certificates.as_ref()),
        jwt: jwt::authenticators(judge, raw.authentication.as_ref()),
        mirrors: registries::mirrors(judge, raw.registries.as_ref()),
        named: Named {
            registry_authorities: registries::authorities(judge, raw.registries.as_ref()),
            registry_logins: registries::logins(judge, raw.registries.as_ref()),
            pki: pki::brought(judge, raw.pki.as_ref()),
        },
        proxy: settings::proxy(judge, raw.proxy.as_ref()),
        firewall: settings::firewall(judge, raw.firewall.as_ref()),
        manifests,
        extra: extra::extra(judge, raw.extra.as_ref()),
        ignored_checks: settings::ignored_checks(judge, raw.preflight.as_ref()),
    }
}

fn schema_version(judge: &mut Validator<'_>, raw: &Inventory, top: Place) {
    match &raw.schema {
        None => {
            judge.refuse(top, "schema is missing", "the version of the inventory format", "add the line `schema: 1`");
        }
        Some(schema) if schema.value != 1 => judge.refuse(
            schema.place,
            format!("this hactl does not support schema {}", schema.value),
            "schema: 1",
            "use a newer hactl, or write `schema: 1`",
        ),
        Some(_) => {}
    }
}

fn cluster(judge: &mut Validator<'_>, raw: &Inventory, top: Place) -> ClusterName {
    let stand_in = || "unnamed".parse().expect("a literal that satisfies the rule for cluster names");
    let Some(cluster) = &raw.cluster else {
        judge.refuse(top, "cluster is missing", "the cluster's name", "add a line such as `cluster: lab`");
        return stand_in();
    };
    cluster.value.parse().unwrap_or_else(|error: crate::model::names::BadName| {
        judge.refuse(
            cluster.place,
            format!("{:?} cannot name a cluster: {}", shorten(&cluster.value), error.why),
            "letters a-z, digits and '-', at most 40 of them",
            "choose another name; it also names the state directory and the kubeconfig context",
        );
        stand_in()
    })
}

/// A value in a message, shortened to fit in a line.
pub fn shorten(text: &str) -> String {
    if text.chars().count() > 60 { text.chars().take(57).chain("...".chars()).collect() } else { text.to_owned() }
}

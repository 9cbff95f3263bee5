//! What is being replaced in a vault, and what is kept of what was.
//!
//! In: the other half of each rotation under way, as values or as JSON. Out: the same, checked. Everything that is written here is written
//! whole or not at all, so that a run which is killed leaves either stage and never something in between.

use super::contents::{Authority, BadAuthority, Contents, KeyPairPem, PublicAuthority};
use super::lineage::{Former, FormerForm};
use super::{StateDir, StateDirError, files, io_error};
use crate::model::names::Digest;
use crate::model::rotation::{Rotatable, Stage};
use crate::model::secret::Secret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use zeroize::Zeroize;

/// Its file.
pub const FILE: &str = "rotations.json";
const SCHEMA: u32 = 1;

/// An authority or a key pair as text. What has no public half has none here.
pub struct KeyText {
    /// Certificate or public key, PEM.
    pub public: String,
    /// Private key, PEM, or the key itself; empty where it is not kept.
    pub private: Secret<String>,
}

impl KeyText {
    fn copy(&self) -> Self {
        Self { public: self.public.clone(), private: Secret::new(self.private.reveal().clone()) }
    }
}

/// A rotation under way.
pub struct Rotation {
    /// How far it is.
    pub stage: Stage,
    /// The one that is to come while it is only spread; then the one that was, without its private key.
    pub other: KeyText,
    /// Since when it is at this stage, seconds since 1970.
    pub since_s: i64,
    /// Since when every host is known to be there, too.
    pub everywhere_s: Option<i64>,
}

/// Rotations under way, and what is left of those that ended.
pub struct Rotations {
    /// Who the cluster is: the fingerprint of the authority that it was founded with. Hosts and bundles carry it, whatever has become of
    /// that authority.
    pub founded: Digest,
    /// The cluster's authority, signed by the one before it. API servers present it with their certificates, so that whoever learned to
    /// trust only the one before goes on trusting them.
    pub cross: Option<PublicAuthority>,
    /// The CAs that were the cluster's own before, the oldest first. What an earlier hactl replaced is not among them.
    pub former: Vec<Former>,
    /// Keys that Secrets were encrypted with before, oldest first: bundles of then need them.
    pub retired: Vec<Secret<String>>,
    /// What is under way.
    pub under_way: BTreeMap<Rotatable, Rotation>,
    /// How many stages there have been in this cluster's life. Hosts carry it: state that knows of fewer is an older copy.
    pub stages: u64,
}

impl Rotations {
    /// Nothing was ever replaced.
    pub fn never(founded: Digest) -> Self {
        Self { founded, cross: None, former: Vec::new(), retired: Vec::new(), under_way: BTreeMap::new(), stages: 0 }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PairForm {
    public: String,
    private: String,
}

impl Drop for PairForm {
    fn drop(&mut self) {
        self.private.zeroize();
    }
}

impl PairForm {
    fn of(pair: &KeyText) -> Self {
        Self { public: pair.public.clone(), private: pair.private.reveal().clone() }
    }
    fn pair(&self) -> KeyText {
        KeyText { public: self.public.clone(), private: Secret::new(self.private.clone()) }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct TurnForm {
    stage: Stage,
    other: PairForm,
    since_s: i64,
    everywhere_s: Option<i64>,
}

/// As JSON, in the vault's file and where a vault is carried.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Form {
    founded: Digest,
    cross: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    former: Vec<FormerForm>,
    retired: Vec<String>,
    #[serde(rename = "turns")]
    under_way: BTreeMap<Rotatable, TurnForm>,
    stages: u64,
}

impl Drop for Form {
    fn drop(&mut self) {
        self.retired.iter_mut().for_each(Zeroize::zeroize);
    }
}

impl Form {
    /// What there is to write; nothing where nothing was ever replaced.
    pub fn of(contents: &Contents) -> Option<Self> {
        let Rotations { founded, cross, former, retired, under_way, stages } = &contents.rotations;
        let never = cross.is_none()
            && former.is_empty()
            && retired.is_empty()
            && under_way.is_empty()
            && *stages == 0
            && *founded == contents.cluster.fingerprint();
        let turn = |turn: &Rotation| TurnForm {
            stage: turn.stage,
            other: PairForm::of(&turn.other),
            since_s: turn.since_s,
            everywhere_s: turn.everywhere_s,
        };
        (!never).then(|| Self {
            founded: *founded,
            cross: cross.as_ref().map(|cross| cross.cert_pem.clone()),
            former: former.iter().map(FormerForm::of).collect(),
            retired: retired.iter().map(|key| key.reveal().clone()).collect(),
            under_way: under_way.iter().map(|(what, under_way)| (*what, turn(under_way))).collect(),
            stages: *stages,
        })
    }

    /// The same as values.
    ///
    /// # Errors
    /// What is not an authority, or not its key.
    pub fn rotations(&self) -> Result<Rotations, BadAuthority> {
        let turn = |(what, form): (&Rotatable, &TurnForm)| {
            let other = form.other.pair();
            check(*what, form.stage, &other)?;
            Ok((*what, Rotation { stage: form.stage, other, since_s: form.since_s, everywhere_s: form.everywhere_s }))
        };
        Ok(Rotations {
            founded: self.founded,
            cross: self.cross.clone().map(PublicAuthority::new).transpose()?,
            former: self.former.iter().map(FormerForm::former).collect::<Result<_, BadAuthority>>()?,
            retired: self.retired.iter().map(|key| Secret::new(key.clone())).collect(),
            under_way: self.under_way.iter().map(turn).collect::<Result<_, BadAuthority>>()?,
            stages: self.stages,
        })
    }
}

fn check(what: Rotatable, stage: Stage, other: &KeyText) -> Result<(), BadAuthority> {
    let authority = !matches!(what, Rotatable::ServiceAccount | Rotatable::Encryption);
    match stage {
        Stage::Spread if authority => {
            Authority::new(other.public.clone(), Secret::new(other.private.reveal().clone())).map(drop)
        }
        Stage::Issued | Stage::Ending if authority => PublicAuthority::new(other.public.clone()).map(drop),
        _ => Ok(()),
    }
}

impl Contents {
    /// One of the authorities or keys that are in use, as text.
    pub fn pair(&self, what: Rotatable) -> KeyText {
        let of = |authority: &Authority| KeyText {
            public: authority.cert_pem().to_owned(),
            private: Secret::new(authority.key().reveal().clone()),
        };
        match what {
            Rotatable::ClusterCa => of(&self.cluster),
            Rotatable::EtcdCa => of(&self.etcd),
            Rotatable::FrontProxyCa => of(&self.front_proxy),
            Rotatable::SigningCa => of(&self.signing),
            Rotatable::KubeletServingCa => of(self.serving()),
            Rotatable::ServiceAccount => KeyText {
                public: self.service_account.public.clone(),
                private: Secret::new(self.service_account.private.reveal().clone()),
            },
            Rotatable::Encryption => {
                KeyText { public: String::new(), private: Secret::new(self.encryption.reveal().clone()) }
            }
        }
    }

    /// All that there are.
    pub(super) fn kept(&self) -> Vec<(Rotatable, KeyText)> {
        let there = |what: &Rotatable| *what != Rotatable::KubeletServingCa || self.kubelet_serving.is_some();
        Rotatable::ALL.into_iter().filter(there).map(|what| (what, self.pair(what))).collect()
    }

    /// Puts another one in its place.
    ///
    /// # Errors
    /// It is none.
    pub fn put(&mut self, what: Rotatable, pair: KeyText) -> Result<(), BadAuthority> {
        let KeyText { public, private } = pair;
        match what {
            Rotatable::ClusterCa => self.cluster = Authority::new(public, private)?,
            Rotatable::EtcdCa => self.etcd = Authority::new(public, private)?,
            Rotatable::FrontProxyCa => self.front_proxy = Authority::new(public, private)?,
            Rotatable::SigningCa => self.signing = Authority::new(public, private)?,
            Rotatable::KubeletServingCa => self.kubelet_serving = Some(Authority::new(public, private)?),
            Rotatable::ServiceAccount => self.service_account = KeyPairPem { private, public },
            Rotatable::Encryption => self.encryption = private,
        }
        Ok(())
    }

    /// How far a rotation is; `None` where none is under way.
    pub fn stage(&self, what: Rotatable) -> Option<Stage> {
        self.rotations.under_way.get(&what).map(|turn| turn.stage)
    }
}

/// The vault's file. `current` is there while the files of authorities and keys are written, and counts instead of them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    schema: u32,
    current: Option<BTreeMap<Rotatable, PairForm>>,
    #[serde(rename = "turning")]
    rotations: Form,
}

/// What the file says.
pub(super) struct Found {
    /// What is in use, where the files of authorities and keys may be half written.
    pub current: Option<BTreeMap<Rotatable, KeyText>>,
    /// What is under way.
    pub rotations: Rotations,
}

/// Reads the file; `None` where nothing was ever replaced.
pub(super) fn read(dir: &Path) -> Result<Option<Found>, StateDirError> {
    let path = dir.join(FILE);
    if let Err(e) = std::fs::symlink_metadata(&path) {
        return if e.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(io_error("look at", &path)(e)) };
    }
    let text = files::read_secret(&path)?;
    let damaged = |why: String| StateDirError::Corrupt { path: path.clone(), why };
    // The text is full of keys, so only where it is damaged is told.
    let bad = |error: serde_json::Error| damaged(format!("{:?} at byte {}", error.classify(), error.column()));
    let stored: Stored = serde_json::from_str(text.reveal()).map_err(bad)?;
    if stored.schema != SCHEMA {
        return Err(damaged(format!("it is of form {}, and this hactl knows {SCHEMA}", stored.schema)));
    }
    let current = stored.current.as_ref();
    Ok(Some(Found {
        current: current.map(|all| all.iter().map(|(what, form)| (*what, form.pair())).collect()),
        rotations: stored.rotations.rotations().map_err(|bad| damaged(bad.to_string()))?,
    }))
}

/// Writes the file of a vault that is made.
pub(super) fn write_new(dir: &Path, contents: &Contents) -> Result<(), StateDirError> {
    match Form::of(contents) {
        Some(rotations) => files::put(&dir.join(FILE), text(&dir.join(FILE), None, rotations)?.reveal()),
        None => Ok(()),
    }
}

fn text(
    path: &Path,
    current: Option<BTreeMap<Rotatable, PairForm>>,
    rotations: Form,
) -> Result<Secret<String>, StateDirError> {
    let stored = Stored { schema: SCHEMA, current, rotations };
    serde_json::to_string(&stored).map(Secret::new).map_err(|e| io_error("write", path)(e.into()))
}

impl StateDir {
    /// Changes what is in use and what is under way; on disk as a whole before this returns.
    ///
    /// # Errors
    /// What `change` says; files that cannot be written, and then the change counts from the first of them that was.
    pub fn change<E: From<StateDirError>>(
        &mut self,
        change: impl FnOnce(&mut Contents) -> Result<(), E>,
    ) -> Result<(), E> {
        change(&mut self.contents)?;
        Ok(self.store()?)
    }

    /// The same for this run alone: nothing is written.
    ///
    /// # Errors
    /// What `change` says.
    pub fn suppose<E>(&mut self, change: impl FnOnce(&mut Contents) -> Result<(), E>) -> Result<(), E> {
        change(&mut self.contents)
    }

    fn store(&self) -> Result<(), StateDirError> {
        let contents = self.contents();
        let path = self.dir().join(FILE);
        let all = contents.kept();
        let current = all.iter().map(|(what, pair)| (*what, PairForm::of(pair))).collect();
        let form = || {
            Form::of(contents).unwrap_or_else(|| Form {
                founded: contents.rotations.founded,
                cross: None,
                former: Vec::new(),
                retired: Vec::new(),
                under_way: BTreeMap::new(),
                stages: contents.rotations.stages,
            })
        };
        // From here on the change counts.
        self.replace(FILE, text(&path, Some(current), form())?.reveal())?;
        for (what, pair) in &all {
            let (public, private) = files::names(*what);
            if let Some(public) = public {
                self.replace(&public, &pair.public)?;
            }
            self.replace(&private, pair.private.reveal())?;
        }
        self.replace(FILE, text(&path, None, form())?.reveal())
    }
}

/// What is in use according to the file, taken out of what was read of it.
pub(super) fn take(current: &BTreeMap<Rotatable, KeyText>, what: Rotatable) -> Option<KeyText> {
    current.get(&what).map(KeyText::copy)
}

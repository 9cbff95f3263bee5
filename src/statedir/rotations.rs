//! The rotations of a state directory, and what is kept of completed ones.
//!
//! In: the other CA or key of each rotation in progress, as values or as JSON. Out: the same, checked. Every write is
//! atomic, so that an interrupted run leaves one stage or the next, never a mixture.

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

/// A CA or a key pair as text. A symmetric key has no public half.
pub struct KeyText {
    /// Certificate or public key, PEM.
    pub public: String,
    /// Private key, PEM, or the symmetric key; empty if it is not kept.
    pub private: Secret<String>,
}

impl KeyText {
    /// A copy of both halves.
    pub fn of(public: &str, private: &Secret<String>) -> Self {
        Self { public: public.to_owned(), private: Secret::new(private.reveal().clone()) }
    }
}

/// A rotation in progress.
pub struct Rotation {
    /// Its stage.
    pub stage: Stage,
    /// The next CA or key while it is only distributed; afterwards the previous one, without its private key.
    pub other: KeyText,
    /// When this stage began, seconds since 1970.
    pub since_s: i64,
    /// When every host was known to have reached it.
    pub everywhere_s: Option<i64>,
}

/// Rotations in progress, and what is left of completed ones.
pub struct Rotations {
    /// The cluster's identity: the fingerprint of the CA that it was bootstrapped with. Hosts and snapshots carry it,
    /// even after that CA was replaced.
    pub founded: Digest,
    /// The cluster CA, cross-signed by the previous one. API servers present it with their certificates, so that
    /// clients that trust only the previous CA accept them.
    pub cross: Option<PublicAuthority>,
    /// The previous cluster CAs, the oldest first. CAs that an older hactl replaced are not included.
    pub former: Vec<Former>,
    /// Previous encryption keys for Secrets, the oldest first: older snapshots need them.
    pub retired: Vec<Secret<String>>,
    /// Rotations in progress.
    pub under_way: BTreeMap<Rotatable, Rotation>,
    /// How many stages there have been in this cluster's life. Hosts store the number: a state with a lower one is an
    /// older copy.
    pub stages: u64,
}

impl Rotations {
    /// No rotation yet.
    pub fn never(founded: Digest) -> Self {
        Self { founded, cross: None, former: Vec::new(), retired: Vec::new(), under_way: BTreeMap::new(), stages: 0 }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PairForm {
    public: String,
    private: String,
}

impl Drop for PairForm {
    fn drop(&mut self) {
        self.private.zeroize();
    }
}

impl PairForm {
    pub fn of(pair: &KeyText) -> Self {
        Self { public: pair.public.clone(), private: pair.private.reveal().clone() }
    }
    pub fn pair(&self) -> KeyText {
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

/// The JSON form, in the file of the state directory and in an exported state.
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
    /// `None` if there was no rotation yet.
    pub fn of(contents: &Contents) -> Option<Self> {
        let Rotations { founded, cross, former, retired, under_way, stages } = &contents.rotations;
        let nothing = cross.is_none() && former.is_empty() && retired.is_empty() && under_way.is_empty();
        let never = nothing && *stages == 0 && *founded == contents.cluster.fingerprint();
        let turn = |Rotation { stage, other, since_s, everywhere_s }: &Rotation| {
            let (stage, other) = (*stage, PairForm::of(other));
            TurnForm { stage, other, since_s: *since_s, everywhere_s: *everywhere_s }
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

    /// The form as checked values.
    ///
    /// # Errors
    /// An invalid CA, or a key that does not match.
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
    /// A CA or key in use, as text.
    pub fn pair(&self, what: Rotatable) -> KeyText {
        let of = |authority: &Authority| KeyText::of(authority.cert_pem(), authority.key());
        match what {
            Rotatable::ClusterCa => of(&self.cluster),
            Rotatable::EtcdCa => of(&self.etcd),
            Rotatable::FrontProxyCa => of(&self.front_proxy),
            Rotatable::SigningCa => of(&self.signing),
            Rotatable::KubeletServingCa => of(self.serving()),
            Rotatable::ServiceAccount => KeyText::of(&self.service_account.public, &self.service_account.private),
            Rotatable::Encryption => KeyText::of("", &self.encryption),
        }
    }

    /// All CAs and keys in use.
    pub(super) fn kept(&self) -> Vec<(Rotatable, KeyText)> {
        let there = |what: &Rotatable| *what != Rotatable::KubeletServingCa || self.kubelet_serving.is_some();
        Rotatable::ALL.into_iter().filter(there).map(|what| (what, self.pair(what))).collect()
    }

    /// Replaces a CA or key.
    ///
    /// # Errors
    /// The new one is invalid.
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

    /// The stage of a rotation; `None` if none is in progress.
    pub fn stage(&self, what: Rotatable) -> Option<Stage> {
        self.rotations.under_way.get(&what).map(|turn| turn.stage)
    }
}

/// The file. `current` is set while the files of CAs and keys are written, and overrides them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    schema: u32,
    current: Option<BTreeMap<Rotatable, PairForm>>,
    #[serde(rename = "turning")]
    rotations: Form,
}

/// The content of the file.
pub(super) struct Found {
    /// The CAs and keys in use, if their own files may be half written.
    pub current: Option<BTreeMap<Rotatable, KeyText>>,
    /// Rotations in progress.
    pub rotations: Rotations,
}

/// Reads the file; `None` if there was no rotation yet.
pub(super) fn read(dir: &Path) -> Result<Option<Found>, StateDirError> {
    let path = dir.join(FILE);
    if let Err(e) = std::fs::symlink_metadata(&path) {
        return if e.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(io_error("read", &path)(e)) };
    }
    let text = files::read_secret(&path)?;
    let damaged = |why: String| StateDirError::Corrupt { path: path.clone(), why };
    // The text is full of keys, so errors contain only positions.
    let bad = |error: serde_json::Error| damaged(format!("{:?} at byte {}", error.classify(), error.column()));
    let stored: Stored = serde_json::from_str(text.reveal()).map_err(bad)?;
    if stored.schema != SCHEMA {
        return Err(damaged(format!("it has schema {}, but this hactl reads schema {SCHEMA}", stored.schema)));
    }
    let current = stored.current.as_ref();
    Ok(Some(Found {
        current: current.map(|all| all.iter().map(|(what, form)| (*what, form.pair())).collect()),
        rotations: stored.rotations.rotations().map_err(|bad| damaged(bad.to_string()))?,
    }))
}

/// Writes the file of a new state directory.
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
    /// Changes CAs, keys and rotations atomically; on disk before this returns.
    ///
    /// # Errors
    /// Errors of `change`; files that cannot be written: from the first one that was written, the change counts.
    pub fn change<E: From<StateDirError>>(
        &mut self,
        change: impl FnOnce(&mut Contents) -> Result<(), E>,
    ) -> Result<(), E> {
        change(&mut self.contents)?;
        Ok(self.store()?)
    }

    /// The same for this run only: nothing is written.
    ///
    /// # Errors
    /// Errors of `change`.
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

/// A CA or key in use according to the file, taken out of its parsed content.
pub(super) fn take(current: &BTreeMap<Rotatable, KeyText>, what: Rotatable) -> Option<KeyText> {
    current.get(&what).map(|pair| KeyText::of(&pair.public, &pair.private))
}

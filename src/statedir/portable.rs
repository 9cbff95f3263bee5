//! The contents of a state directory as one text, to be encrypted and exported: hosts keep it, and a lost state
//! directory is rebuilt from it.
//!
//! In: [`Contents`] and the inventory. Out: JSON, always the same for the same keys; or contents again, with the same
//! checks as for a state directory. The journal is not included, except that the cluster was bootstrapped: this text
//! exists only for such clusters.

use super::contents::{Authority, Contents, KeyPairPem};
use super::rotations::{self, KeyText, PairForm, Rotations};
use crate::model::names::ClusterName;
use crate::model::rotation::Rotatable;
use crate::model::secret::Secret;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

const SCHEMA: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    schema: u32,
    cluster: ClusterName,
    authorities: [PairForm; 4],
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kubelet_serving: Option<PairForm>,
    service_account: PairForm,
    encryption: String,
    identity: String,
    inventory: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rotations: Option<rotations::Form>,
}

impl Drop for Form {
    fn drop(&mut self) {
        self.encryption.zeroize();
        self.identity.zeroize();
    }
}

/// The contents of an exported state.
pub struct Carried {
    /// The cluster's name.
    pub cluster: ClusterName,
    /// CAs and keys.
    pub contents: Contents,
    /// The age identity that decrypts everything encrypted for the cluster.
    pub identity: Secret<String>,
    /// The inventory at the last change of the host.
    pub inventory: String,
}

/// Why a text is not an exported state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the state in it cannot be used: {0}")]
pub struct NotCarried(String);

/// The text.
pub fn carry(cluster: &ClusterName, contents: &Contents, identity: &Secret<String>, inventory: &str) -> Secret<String> {
    use Rotatable::{ClusterCa, EtcdCa, FrontProxyCa, KubeletServingCa, ServiceAccount, SigningCa};
    let pair = |what| PairForm::of(&contents.pair(what));
    let form = Form {
        schema: SCHEMA,
        cluster: cluster.clone(),
        authorities: [ClusterCa, EtcdCa, FrontProxyCa, SigningCa].map(pair),
        kubelet_serving: contents.kubelet_serving.as_ref().map(|_| pair(KubeletServingCa)),
        service_account: pair(ServiceAccount),
        encryption: contents.encryption.reveal().clone(),
        identity: identity.reveal().clone(),
        inventory: inventory.to_owned(),
        rotations: rotations::Form::of(contents),
    };
    Secret::new(serde_json::to_string(&form).expect("texts and numbers are always JSON"))
}

/// Parses the text.
///
/// # Errors
/// Text that was not created by [`carry`], or keys that do not match their certificates.
pub fn uncarry(text: &Secret<String>) -> Result<Carried, NotCarried> {
    // serde quotes no values in errors about JSON syntax, and these types have none that it would quote either.
    let bad = |error: serde_json::Error| NotCarried(format!("{:?} at byte {}", error.classify(), error.column()));
    let form: Form = serde_json::from_str(text.reveal()).map_err(bad)?;
    if form.schema != SCHEMA {
        return Err(NotCarried(format!("it has schema {}, but this hactl reads schema {SCHEMA}", form.schema)));
    }
    let joined = |form: &PairForm, name: &str| {
        let KeyText { public, private } = form.pair();
        Authority::new(public, private).map_err(|bad| NotCarried(format!("{name}: {bad}")))
    };
    let authority = |at: usize, name: &str| joined(&form.authorities[at], name);
    let serving = form.kubelet_serving.as_ref().map(|pair| joined(pair, "the CA for kubelet serving certificates"));
    let cluster = authority(0, "the cluster CA")?;
    let rotations = form.rotations.as_ref().map(rotations::Form::rotations).transpose();
    let rotations = rotations.map_err(|bad| NotCarried(format!("the rotations in progress: {bad}")))?;
    let never = Rotations::never(cluster.fingerprint());
    let KeyText { public, private } = form.service_account.pair();
    let contents = Contents {
        cluster,
        etcd: authority(1, "the etcd CA")?,
        front_proxy: authority(2, "the front proxy CA")?,
        signing: authority(3, "the signing CA")?,
        kubelet_serving: serving.transpose()?,
        service_account: KeyPairPem { private, public },
        encryption: Secret::new(form.encryption.clone()),
        rotations: rotations.unwrap_or(never),
    };
    let identity = Secret::new(form.identity.clone());
    Ok(Carried { cluster: form.cluster.clone(), contents, identity, inventory: form.inventory.clone() })
}

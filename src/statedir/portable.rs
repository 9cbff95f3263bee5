//! A vault's contents as one text, to be sealed and carried: what hosts keep of it, and what rebuilds it where it was lost.
//!
//! In: [`Contents`] and the inventory. Out: JSON, always the same for the same keys; or contents again, each checked as when a vault is
//! opened. The journal stays behind, except that there was a birth: whoever has this text had a cluster.

use super::contents::{Authority, Contents, KeyPairPem};
use super::rotations::{self, Rotations};
use crate::model::names::ClusterName;
use crate::model::secret::Secret;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

const SCHEMA: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    schema: u32,
    cluster: ClusterName,
    authorities: [KeyText; 4],
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kubelet_serving: Option<KeyText>,
    service_account: KeyText,
    encryption: String,
    identity: String,
    inventory: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rotations: Option<rotations::Form>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyText {
    public: String,
    private: String,
}

impl Drop for KeyText {
    fn drop(&mut self) {
        self.private.zeroize();
    }
}

impl Drop for Form {
    fn drop(&mut self) {
        self.encryption.zeroize();
        self.identity.zeroize();
    }
}

/// What a carried vault was.
pub struct Carried {
    /// Whose.
    pub cluster: ClusterName,
    /// Authorities and keys.
    pub contents: Contents,
    /// What opens everything that was sealed for the cluster.
    pub identity: Secret<String>,
    /// The inventory as it was when the host was last changed.
    pub inventory: String,
}

/// Why a text is no carried vault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the state in it cannot be used: {0}")]
pub struct NotCarried(String);

fn pair(authority: &Authority) -> KeyText {
    KeyText { public: authority.cert_pem().to_owned(), private: authority.key().reveal().clone() }
}

/// The text.
pub fn carry(cluster: &ClusterName, contents: &Contents, identity: &Secret<String>, inventory: &str) -> Secret<String> {
    let form = Form {
        schema: SCHEMA,
        cluster: cluster.clone(),
        authorities: [&contents.cluster, &contents.etcd, &contents.front_proxy, &contents.signing].map(pair),
        kubelet_serving: contents.kubelet_serving.as_ref().map(pair),
        service_account: KeyText {
            public: contents.service_account.public.clone(),
            private: contents.service_account.private.reveal().clone(),
        },
        encryption: contents.encryption.reveal().clone(),
        identity: identity.reveal().clone(),
        inventory: inventory.to_owned(),
        rotations: rotations::Form::of(contents),
    };
    Secret::new(serde_json::to_string(&form).expect("texts and numbers are always JSON"))
}

/// What the text says.
///
/// # Errors
/// Text that was not made by [`carry`], or keys that do not fit their certificates.
pub fn uncarry(text: &Secret<String>) -> Result<Carried, NotCarried> {
    // serde quotes no values in errors about JSON's form, and these types hold none that it would quote either.
    let bad = |error: serde_json::Error| NotCarried(format!("{:?} at byte {}", error.classify(), error.column()));
    let form: Form = serde_json::from_str(text.reveal()).map_err(bad)?;
    if form.schema != SCHEMA {
        return Err(NotCarried(format!("it is of form {}, and this hactl knows {SCHEMA}", form.schema)));
    }
    let joined = |pair: &KeyText, name: &str| {
        Authority::new(pair.public.clone(), Secret::new(pair.private.clone()))
            .map_err(|bad| NotCarried(format!("{name}: {bad}")))
    };
    let authority = |at: usize, name: &str| joined(&form.authorities[at], name);
    let serving = form.kubelet_serving.as_ref().map(|pair| joined(pair, "the CA of kubelets' serving certificates"));
    let cluster = authority(0, "the cluster's authority")?;
    let rotations = form.rotations.as_ref().map(rotations::Form::rotations).transpose();
    let rotations = rotations.map_err(|bad| NotCarried(format!("what was being replaced: {bad}")))?;
    let never = Rotations::never(cluster.fingerprint());
    let contents = Contents {
        cluster,
        etcd: authority(1, "etcd's authority")?,
        front_proxy: authority(2, "the front proxy's authority")?,
        signing: authority(3, "the signing authority")?,
        kubelet_serving: serving.transpose()?,
        service_account: KeyPairPem {
            private: Secret::new(form.service_account.private.clone()),
            public: form.service_account.public.clone(),
        },
        encryption: Secret::new(form.encryption.clone()),
        rotations: rotations.unwrap_or(never),
    };
    let identity = Secret::new(form.identity.clone());
    Ok(Carried { cluster: form.cluster.clone(), contents, identity, inventory: form.inventory.clone() })
}

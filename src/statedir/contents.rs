//! The contents of a state directory as values: CAs with their keys, and their public halves.
//!
//! In: PEM text, from files or newly created by `pki/`. Out: checked values; an [`Authority`] is always a certificate
//! with its own key. This module touches no files.

use super::StateDirError;
use super::rotations::Rotations;
use crate::model::names::{Digest, hex};
use crate::model::rotation::{Rotatable, Stage};
use crate::model::secret::{EncryptionKey, Secret};
use crate::model::target::CertSpec;
use rcgen::PublicKeyData as _;
use serde::Serialize;
use std::sync::Arc;
use x509_parser::extensions::ParsedExtension;
use x509_parser::pem::parse_x509_pem;

/// Why a PEM text is not a CA.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAuthority {
    /// The certificate cannot be read.
    #[error("it holds no readable certificate")]
    Certificate,
    /// The certificate may not sign others.
    #[error("its certificate is not a CA certificate")]
    NotAnAuthority,
    /// The certificate has no subject key identifier.
    #[error("its certificate has no subject key identifier")]
    NoKeyIdentifier,
    /// The key cannot be read.
    #[error("it holds no readable private key")]
    Key,
    /// The key belongs to another certificate.
    #[error("the private key is not the certificate's")]
    KeyMismatch,
}

/// A certificate authority with its key.
#[derive(Clone)]
pub struct Authority {
    public: PublicAuthority,
    key: Arc<Secret<String>>,
}

impl Authority {
    /// Joins a certificate and its private key, both PEM.
    pub fn new(cert_pem: String, key: Secret<String>) -> Result<Self, BadAuthority> {
        let public = PublicAuthority::new(cert_pem)?;
        let pair = rcgen::KeyPair::from_pem(key.reveal()).map_err(|_| BadAuthority::Key)?;
        if pair.subject_public_key_info() != public.public_key()? {
            return Err(BadAuthority::KeyMismatch);
        }
        Ok(Self { public, key: Arc::new(key) })
    }
    /// The certificate in PEM.
    pub fn cert_pem(&self) -> &str {
        &self.public.cert_pem
    }
    /// The private key in PEM (PKCS #8).
    pub fn key(&self) -> &Secret<String> {
        &self.key
    }
    /// Subject key identifier, hexadecimal; certificates name their CA by it.
    pub fn id(&self) -> &str {
        &self.public.id
    }
    /// SHA-256 of the certificate in DER.
    pub fn fingerprint(&self) -> Digest {
        self.public.fingerprint
    }
    /// Its public half.
    pub fn public(&self) -> &PublicAuthority {
        &self.public
    }
}

/// A CA without its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PublicAuthority {
    /// The certificate in PEM.
    pub cert_pem: String,
    /// Subject key identifier, hexadecimal; certificates name their CA by it.
    pub id: String,
    /// SHA-256 of the certificate in DER, as in a host's cluster id.
    pub fingerprint: Digest,
    /// End of validity, seconds since 1970.
    pub not_after_s: i64,
    /// Whether it is self-signed; otherwise it must be sent along with the certificates that it signs.
    pub is_root: bool,
    /// Its path length: how many CAs there may be below it, one under the other; `None`: any number.
    pub below: Option<u8>,
}

impl PublicAuthority {
    /// Reads a certificate in PEM.
    pub fn new(cert_pem: String) -> Result<Self, BadAuthority> {
        let (_, pem) = parse_x509_pem(cert_pem.as_bytes()).map_err(|_| BadAuthority::Certificate)?;
        let cert = pem.parse_x509().map_err(|_| BadAuthority::Certificate)?;
        if !cert.is_ca() {
            return Err(BadAuthority::NotAnAuthority);
        }
        let id = cert.extensions().iter().find_map(|e| match e.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(hex(id.0)),
            _ => None,
        });
        let id = id.ok_or(BadAuthority::NoKeyIdentifier)?;
        let (not_after_s, is_root) = (cert.validity().not_after.timestamp(), cert.issuer() == cert.subject());
        let fingerprint = Digest::of(&pem.contents);
        let constraints = cert.basic_constraints().ok().flatten().and_then(|found| found.value.path_len_constraint);
        let below = constraints.map(|most| u8::try_from(most).unwrap_or(u8::MAX));
        Ok(Self { cert_pem, id, fingerprint, not_after_s, is_root, below })
    }

    pub(super) fn public_key(&self) -> Result<Vec<u8>, BadAuthority> {
        let (_, pem) = parse_x509_pem(self.cert_pem.as_bytes()).map_err(|_| BadAuthority::Certificate)?;
        let cert = pem.parse_x509().map_err(|_| BadAuthority::Certificate)?;
        Ok(cert.public_key().raw.to_vec())
    }
}

/// A key pair without a certificate.
pub struct KeyPairPem {
    /// PKCS #8 PEM.
    pub private: Secret<String>,
    /// SubjectPublicKeyInfo PEM.
    pub public: String,
}

/// The contents of a state directory without its journal.
pub struct Contents {
    /// Signs the certificates of Kubernetes components.
    pub cluster: Authority,
    /// Signs certificates for etcd only.
    pub etcd: Authority,
    /// Signs the API server's client certificate for aggregated API servers.
    pub front_proxy: Authority,
    /// Signed by the cluster CA; its key is on control-plane hosts.
    pub signing: Authority,
    /// Signs kubelet serving certificates; its key is on control-plane hosts. `None` in an older state directory, where
    /// `signing` signs them.
    pub kubelet_serving: Option<Authority>,
    /// Signs service account tokens.
    pub service_account: KeyPairPem,
    /// Encrypts Secrets in etcd: 32 bytes in base64.
    pub encryption: Secret<String>,
    /// Rotations in progress, and what is kept of completed ones.
    pub rotations: Rotations,
}

impl Contents {
    /// Everything that is not secret.
    pub fn publics(&self) -> Publics {
        let both = |what: Rotatable, current: &str| {
            let Some(turn) = self.rotations.under_way.get(&what) else { return ended(current) };
            // The older one first, so that no file changes when only the signer changes.
            match turn.stage {
                Stage::Spread => ended(current) + &ended(&turn.other.public),
                Stage::Issued => ended(&turn.other.public) + &ended(current),
                Stage::Ending => ended(current),
            }
        };
        let signing = both(Rotatable::SigningCa, self.signing.cert_pem());
        let serving = self.kubelet_serving.as_ref().map_or(signing.as_str(), Authority::cert_pem);
        let other = |what: &Rotatable| {
            let turn = self.rotations.under_way.get(what)?;
            Some((*what, turn.stage, PublicAuthority::new(turn.other.public.clone()).ok()?))
        };
        Publics {
            cluster: self.cluster.public().clone(),
            etcd: self.etcd.public().clone(),
            front_proxy: self.front_proxy.public().clone(),
            signing: self.signing.public().clone(),
            kubelet_serving: self.serving().public().clone(),
            service_account_pem: self.service_account.public.clone(),
            founded: self.rotations.founded,
            trusted: Trusted {
                cluster: both(Rotatable::ClusterCa, self.cluster.cert_pem()),
                etcd: both(Rotatable::EtcdCa, self.etcd.cert_pem()),
                front_proxy: both(Rotatable::FrontProxyCa, self.front_proxy.cert_pem()),
                kubelet_serving: both(Rotatable::KubeletServingCa, serving),
                signing,
                service_account: both(Rotatable::ServiceAccount, &self.service_account.public),
            },
            others: Rotatable::ALL.iter().filter_map(other).collect(),
        }
    }
    /// The secrets that hosts get.
    pub fn material(&self) -> Material<'_> {
        let retired = &self.rotations.retired;
        let turn = self.rotations.under_way.get(&Rotatable::Encryption);
        let key = |number: usize, key| EncryptionKey { name: format!("key{}", number + 1), key };
        let mut encryption = vec![key(retired.len(), &self.encryption)];
        match turn.map(|turn| (turn.stage, &turn.other.private)) {
            Some((Stage::Spread, next)) => encryption.push(key(retired.len() + 1, next)),
            Some((Stage::Issued, _)) => {
                encryption.extend(retired.iter().enumerate().rev().map(|(number, old)| key(number, old)));
            }
            Some((Stage::Ending, _)) | None => {}
        }
        Material {
            signing_key_pem: self.signing.key(),
            kubelet_serving_key_pem: self.serving().key(),
            service_account_key_pem: &self.service_account.private,
            encryption,
        }
    }
    /// The CA that signs kubelet serving certificates.
    pub fn serving(&self) -> &Authority {
        self.kubelet_serving.as_ref().unwrap_or(&self.signing)
    }
    /// Every secret in it. All fields are destructured, so that a new field must be handled here.
    pub fn secrets(&self) -> Vec<&Secret<String>> {
        let Self { cluster, etcd, front_proxy, signing, kubelet_serving, service_account, encryption, rotations } =
            self;
        let Rotations { founded: _, cross: _, former: _, retired, under_way, stages: _ } = rotations;
        let mut all: Vec<&Secret<String>> = [cluster, etcd, front_proxy, signing].map(Authority::key).into();
        all.extend(kubelet_serving.as_ref().map(Authority::key));
        all.extend([&service_account.private, encryption]);
        all.extend(retired);
        all.extend(under_way.values().map(|turn| &turn.other.private));
        all
    }
    /// The CA with the key identifier that the certificate requires.
    pub fn issuer(&self, leaf: &CertSpec) -> Result<&Authority, StateDirError> {
        let mut all = [&self.cluster, &self.etcd, &self.front_proxy, &self.signing].into_iter();
        let missing =
            || StateDirError::NoSuchAuthority { authority: leaf.authority.clone(), leaf: leaf.id.to_string() };
        all.find(|a| a.id() == leaf.authority).ok_or_else(missing)
    }
}

/// Everything that is not secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Publics {
    /// Kubernetes' CA.
    pub cluster: PublicAuthority,
    /// etcd's CA.
    pub etcd: PublicAuthority,
    /// The front proxy CA, for aggregated API servers.
    pub front_proxy: PublicAuthority,
    /// The signing intermediate, which the controller manager uses.
    pub signing: PublicAuthority,
    /// The CA for kubelet serving certificates; `signing` if there is none yet.
    pub kubelet_serving: PublicAuthority,
    /// The public key of service account tokens.
    pub service_account_pem: String,
    /// The cluster's identity: the fingerprint of the CA that it was bootstrapped with.
    pub founded: Digest,
    /// What is trusted: both CAs or keys during a rotation.
    pub trusted: Trusted,
    /// CAs that are trusted additionally: the next and the previous ones.
    pub others: Vec<(Rotatable, Stage, PublicAuthority)>,
}

/// The trusted CAs and keys as PEM: more than one during a rotation, the older one first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trusted {
    /// Kubernetes' CA.
    pub cluster: String,
    /// etcd's CA.
    pub etcd: String,
    /// The front proxy CA, for aggregated API servers.
    pub front_proxy: String,
    /// The signing intermediate, which the controller manager uses.
    pub signing: String,
    /// The CA for kubelet serving certificates.
    pub kubelet_serving: String,
    /// Public keys that verify service account tokens.
    pub service_account: String,
}

/// The secrets that hosts get.
pub struct Material<'a> {
    /// Private key of the signing intermediate, PEM.
    pub signing_key_pem: &'a Secret<String>,
    /// Private key of the CA for kubelet serving certificates, PEM.
    pub kubelet_serving_key_pem: &'a Secret<String>,
    /// Private key for service account tokens, PEM.
    pub service_account_key_pem: &'a Secret<String>,
    /// Keys for secretbox: the first encrypts, all decrypt.
    pub encryption: Vec<EncryptionKey<'a>>,
}

/// PEM text with exactly one line break at its end, so that more can be appended.
fn ended(pem: &str) -> String {
    format!("{}\n", pem.trim_end())
}

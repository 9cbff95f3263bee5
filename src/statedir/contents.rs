//! The things a vault holds, as values: authorities with their keys, and what of them may be shown.
//!
//! In: PEM text, from the vault's files or freshly made by `pki/`. Out: checked values; an [`Authority`] whose key is
//! not its certificate's cannot be made. No file is touched here.

use super::rotations::Rotations;
use crate::model::names::Digest;
use crate::model::rotation::{Rotatable, Stage};
use crate::model::secret::Secret;
use crate::model::target::CertSpec;
use rcgen::PublicKeyData as _;
use serde::Serialize;
use x509_parser::extensions::ParsedExtension;
use x509_parser::pem::parse_x509_pem;

/// Why some PEM text is not an authority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAuthority {
    /// The certificate cannot be read.
    #[error("it holds no readable certificate")]
    Certificate,
    /// The certificate may not sign others.
    #[error("its certificate is not of an authority")]
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
pub struct Authority {
    public: PublicAuthority,
    key: Secret<String>,
}

impl Authority {
    /// Joins a certificate and its private key, both PEM.
    pub fn new(cert_pem: String, key: Secret<String>) -> Result<Self, BadAuthority> {
        let public = PublicAuthority::new(cert_pem)?;
        let pair = rcgen::KeyPair::from_pem(key.reveal()).map_err(|_| BadAuthority::Key)?;
        if pair.subject_public_key_info() != public.public_key()? {
            return Err(BadAuthority::KeyMismatch);
        }
        Ok(Self { public, key })
    }
    /// The certificate in PEM.
    pub fn cert_pem(&self) -> &str {
        &self.public.cert_pem
    }
    /// The private key in PEM (PKCS #8).
    pub fn key(&self) -> &Secret<String> {
        &self.key
    }
    /// Subject key identifier, hexadecimal: what leaves carry as their authority.
    pub fn id(&self) -> &str {
        &self.public.id
    }
    /// SHA-256 of the certificate in DER.
    pub fn fingerprint(&self) -> Digest {
        self.public.fingerprint
    }
    /// What of it may be shown.
    pub fn public(&self) -> &PublicAuthority {
        &self.public
    }
}

/// An authority without its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PublicAuthority {
    /// The certificate in PEM.
    pub cert_pem: String,
    /// Subject key identifier, hexadecimal: what leaves carry as their authority.
    pub id: String,
    /// SHA-256 of the certificate in DER, as a host's stamp carries it.
    pub fingerprint: Digest,
    /// End of validity, seconds since 1970.
    pub not_after_s: i64,
    /// Whether it signed itself; else it must be sent along with what it signs.
    pub is_root: bool,
    /// How many authorities may be below it, one under the other; `None`: any number.
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
        let id = cert
            .extensions()
            .iter()
            .find_map(|e| match e.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => Some(hex(id.0)),
                _ => None,
            })
            .ok_or(BadAuthority::NoKeyIdentifier)?;
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

/// Everything a vault holds besides its journal.
pub struct Contents {
    /// Signs what Kubernetes' parts show one another.
    pub cluster: Authority,
    /// Signs for etcd alone.
    pub etcd: Authority,
    /// Signs the API server's credential to aggregated API servers.
    pub front_proxy: Authority,
    /// Signed by the cluster authority; the one signing key that control-plane hosts hold.
    pub signing: Authority,
    /// Signs what kubelets serve with; on control-plane hosts, too. None in a state from before there was one: then `signing` does.
    pub kubelet_serving: Option<Authority>,
    /// Signs service account tokens.
    pub service_account: KeyPairPem,
    /// Encrypts Secrets in etcd: 32 bytes in base64.
    pub encryption: Secret<String>,
    /// What of these is being replaced, and what is kept of what was.
    pub rotations: Rotations,
}

impl Contents {
    /// Everything that may be known to all.
    pub fn publics(&self) -> Publics {
        let both = |what: Rotatable, current: &str| {
            let Some(turn) = self.rotations.under_way.get(&what) else { return ended(current) };
            // The older first, so that nothing is written anew where only the one that signs changes.
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
    /// The secrets that hosts need.
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
    /// Who signs what kubelets serve with.
    pub fn serving(&self) -> &Authority {
        self.kubelet_serving.as_ref().unwrap_or(&self.signing)
    }
    /// Every secret in it. It is taken apart by name, so that whoever adds a field comes by here.
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
    /// The authority whose key identifier the leaf names.
    pub fn issuer(&self, leaf: &CertSpec) -> Option<&Authority> {
        [&self.cluster, &self.etcd, &self.front_proxy, &self.signing].into_iter().find(|a| a.id() == leaf.authority)
    }
}

/// What may be known to all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Publics {
    /// Kubernetes' own authority.
    pub cluster: PublicAuthority,
    /// etcd's authority.
    pub etcd: PublicAuthority,
    /// The authority of aggregated API servers' callers.
    pub front_proxy: PublicAuthority,
    /// The controller manager's signing intermediate.
    pub signing: PublicAuthority,
    /// The CA of kubelets' serving certificates; `signing` where there is none of their own yet.
    pub kubelet_serving: PublicAuthority,
    /// The public key of what signs service account tokens.
    pub service_account_pem: String,
    /// Who the cluster is: the fingerprint of the authority that it was founded with.
    pub founded: Digest,
    /// What is trusted: while one is replaced, both.
    pub trusted: Trusted,
    /// Authorities that are trusted besides: those that come, and those that go.
    pub others: Vec<(Rotatable, Stage, PublicAuthority)>,
}

/// What is trusted, as PEM: more than one certificate or key while one is replaced, the older first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trusted {
    /// Kubernetes' own authority.
    pub cluster: String,
    /// etcd's authority.
    pub etcd: String,
    /// The authority of aggregated API servers' callers.
    pub front_proxy: String,
    /// The controller manager's signing intermediate.
    pub signing: String,
    /// The CA of kubelets' serving certificates.
    pub kubelet_serving: String,
    /// Public keys that service account tokens are checked with.
    pub service_account: String,
}

impl Publics {
    /// Cluster authority and signing intermediate together. What the controller manager signs comes without the
    /// intermediate, so whoever checks such certificates of clients must know both.
    pub fn cluster_bundle_pem(&self) -> String {
        format!("{}{}", self.trusted.cluster, self.trusted.signing)
    }
}

/// The secrets that hosts need.
pub struct Material<'a> {
    /// Private key of the signing intermediate, PEM.
    pub signing_key_pem: &'a Secret<String>,
    /// Private key of the CA of kubelets' serving certificates, PEM.
    pub kubelet_serving_key_pem: &'a Secret<String>,
    /// Private key for service account tokens, PEM.
    pub service_account_key_pem: &'a Secret<String>,
    /// Keys for secretbox: the first encrypts, all decrypt.
    pub encryption: Vec<EncryptionKey<'a>>,
}

/// A key for secretbox.
#[derive(Clone)]
pub struct EncryptionKey<'a> {
    /// What stands before everything that is encrypted with it, so that the key is found again: never that of another key.
    pub name: String,
    /// 32 bytes in base64.
    pub key: &'a Secret<String>,
}

/// PEM text with exactly one line break at its end, so that more can follow.
fn ended(pem: &str) -> String {
    format!("{}\n", pem.trim_end())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

//! The input of rendering: the desired state, the facts of one host, parts, certificates and keys, all borrowed.

use crate::model::attached::Attached;
use crate::model::desired::{Desired, Host};
use crate::model::digester::Digester;
use crate::model::facts::HostFacts;
use crate::model::names::Digest;
use crate::model::secret::{EncryptionKey, Secret};
use crate::model::target::{CertSpec, Part, Place};

use super::RenderError;

/// Public certificates and keys in PEM.
#[derive(Debug, Clone, Copy)]
pub struct Trust<'a> {
    /// The certificate of the cluster CA; both during a rotation, as everywhere here.
    pub cluster_ca: &'a str,
    /// The certificate of the etcd CA.
    pub etcd_ca: &'a str,
    /// The CA certificate for aggregated API servers.
    pub front_proxy_ca: &'a str,
    /// The trusted intermediate CAs of the controller manager.
    pub signing_ca: &'a str,
    /// Only the intermediate CA that signs for it now.
    pub signing_cert: &'a str,
    /// The trusted CAs of kubelet serving certificates.
    pub kubelet_serving_ca: &'a str,
    /// Only the CA that signs them now.
    pub kubelet_serving_cert: &'a str,
    /// The public half of the service account key.
    pub sa_public: &'a str,
    /// The key identifiers of the current signers: the cluster CA and the intermediate CA.
    pub signers: [&'a str; 2],
}

/// Secrets of control-plane hosts. No `Debug`, on purpose.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    /// Key of the signing intermediate, PEM.
    pub signing_key: &'a Secret<String>,
    /// Key of the CA of kubelets' serving certificates, PEM.
    pub kubelet_serving_key: &'a Secret<String>,
    /// Service account key, PEM.
    pub sa_key: &'a Secret<String>,
    /// Keys of encryption at rest: the first encrypts, all decrypt.
    pub encryption: &'a [EncryptionKey<'a>],
}

/// The encrypted state that hosts store.
#[derive(Debug, Clone, Copy)]
pub struct Sealed<'a> {
    /// Encrypted, as text.
    pub text: &'a str,
    /// Its recipients: age public keys.
    pub recipients: &'a [String],
    /// Fingerprint of the cluster CA.
    pub authority: Digest,
}

/// Everything that the files of one host are rendered from.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The whole desired state.
    pub desired: &'a Desired,
    /// The host.
    pub host: &'a Host,
    /// Its facts.
    pub facts: &'a HostFacts,
    /// The parts that are delivered to it.
    pub parts: &'a [Part],
    /// Its wanted certificates.
    pub leaves: &'a [CertSpec],
    /// Public certificates.
    pub trust: &'a Trust<'a>,
    /// Secrets; `None` if the host gets none.
    pub keys: Option<&'a Keys<'a>>,
    /// The encrypted state that it stores.
    pub sealed: &'a Sealed<'a>,
    /// The contents of the files that the inventory names.
    pub attached: &'a Attached,
    /// The path of hactl on the host.
    pub hactl_path: &'a str,
}

impl Trust<'_> {
    /// Changes with the trusted cluster CAs and with the current signers. It is part of files of programs that read
    /// them only at their start, so that those programs are restarted.
    pub(super) fn cluster(&self) -> String {
        short(&[self.cluster_ca, self.signing_ca, self.signers[0], self.signers[1]])
    }
    /// The same for programs that only check the serving certificates of API servers.
    pub(super) fn servers(&self) -> String {
        short(&[self.cluster_ca])
    }
    /// The same for the etcd CA.
    pub(super) fn etcd(&self) -> String {
        short(&[self.etcd_ca])
    }
}

fn short(all: &[&str]) -> String {
    let mut sum = Digester::new(());
    for text in all {
        sum.add(text.as_bytes());
        sum.add(&[0]);
    }
    sum.so_far().short()
}

impl<'a> Input<'a> {
    /// The path of a delivered program.
    pub(super) fn program(&self, name: &str) -> Result<String, RenderError> {
        self.parts
            .iter()
            .find(|part| part.name == name && part.place == Place::Program)
            .map(Part::path)
            .ok_or_else(|| self.missing("program", name))
    }
    /// The reference of an imported image.
    pub(super) fn image(&self, name: &str) -> Result<String, RenderError> {
        image(self.parts, name).ok_or_else(|| self.missing("image", name))
    }
    /// The secrets, for the file at this path.
    pub(super) fn keys(&self, path: &str) -> Result<&'a Keys<'a>, RenderError> {
        let missing = || RenderError::MissingKeys { host: self.host.name.clone(), path: path.to_owned() };
        self.keys.ok_or_else(missing)
    }
    fn missing(&self, kind: &'static str, name: &str) -> RenderError {
        RenderError::MissingPart { kind, name: name.to_owned(), host: self.host.name.to_string() }
    }
    /// Whether the host's distribution is of the Red Hat family: it decides the path of CA certificates, and whether
    /// SELinux is likely.
    pub(super) fn red_hat(&self) -> bool {
        let id = self.facts.os.split_whitespace().next().unwrap_or_default();
        matches!(id, "rhel" | "centos" | "rocky" | "almalinux" | "fedora" | "ol" | "amzn")
    }
}

/// The reference of an image among some parts.
pub(super) fn image(parts: &[Part], name: &str) -> Option<String> {
    parts.iter().find_map(|part| match &part.place {
        Place::Image { reference } if part.name == name => Some(reference.clone()),
        _ => None,
    })
}

/// The minor version of Kubernetes, such as 36; 0 if the text has none.
pub(super) fn minor(version: &str) -> u32 {
    version.split('.').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}

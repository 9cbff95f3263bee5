//! What rendering is given: the desired state, one host's facts, parts, certificates and keys, all borrowed.

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
    /// The cluster's CA certificate; both while one is replaced, as everywhere here.
    pub cluster_ca: &'a str,
    /// etcd's CA certificate.
    pub etcd_ca: &'a str,
    /// The CA certificate for aggregated API servers.
    pub front_proxy_ca: &'a str,
    /// Whoever signed for the controller manager is trusted: its intermediates.
    pub signing_ca: &'a str,
    /// The intermediate that signs for it now, alone.
    pub signing_cert: &'a str,
    /// Whoever signed what kubelets serve with.
    pub kubelet_serving_ca: &'a str,
    /// Who signs it now, alone.
    pub kubelet_serving_cert: &'a str,
    /// The public half of the service account key.
    pub sa_public: &'a str,
    /// The key identifiers of who signs now: the cluster's authority and the intermediate.
    pub signers: [&'a str; 2],
}

/// What control-plane hosts must hold in secret. No `Debug`, on purpose.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    /// Key of the signing intermediate, PEM.
    pub signing_key: &'a Secret<String>,
    /// Key of the CA of kubelets' serving certificates, PEM.
    pub kubelet_serving_key: &'a Secret<String>,
    /// Service account key, PEM.
    pub sa_key: &'a Secret<String>,
    /// Keys of the encryption at rest: the first encrypts, all decrypt.
    pub encryption: &'a [EncryptionKey<'a>],
}

/// The state as hosts keep it.
#[derive(Debug, Clone, Copy)]
pub struct Sealed<'a> {
    /// Encrypted, as text.
    pub text: &'a str,
    /// Who can open it: age public keys.
    pub recipients: &'a [String],
    /// Fingerprint of the cluster's authority.
    pub authority: Digest,
}

/// Everything that the files of one host are made from.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The whole desired state.
    pub desired: &'a Desired,
    /// The host.
    pub host: &'a Host,
    /// What it said of itself.
    pub facts: &'a HostFacts,
    /// The parts that are delivered to it.
    pub parts: &'a [Part],
    /// The leaves that it should have.
    pub leaves: &'a [CertSpec],
    /// Public certificates.
    pub trust: &'a Trust<'a>,
    /// Secrets; `None` where the host gets none.
    pub keys: Option<&'a Keys<'a>>,
    /// What it keeps of the administrator's state.
    pub sealed: &'a Sealed<'a>,
    /// What is in the files that the inventory names.
    pub attached: &'a Attached,
    /// Where hactl itself lies on the host.
    pub hactl_path: &'a str,
}

impl Trust<'_> {
    /// Changes with the authorities that are trusted as Kubernetes' own, and with who signs. In files of programs that read either only at
    /// their start, so that they are started anew.
    pub(super) fn cluster(&self) -> String {
        short(&[self.cluster_ca, self.signing_ca, self.signers[0], self.signers[1]])
    }
    /// The same for who only looks at what API servers show.
    pub(super) fn servers(&self) -> String {
        short(&[self.cluster_ca])
    }
    /// The same for etcd's authority.
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

impl Input<'_> {
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
    /// The version of a part.
    pub(super) fn missing(&self, kind: &'static str, name: &str) -> RenderError {
        RenderError::MissingPart { kind, name: name.to_owned(), host: self.host.name.to_string() }
    }
    /// Whether the host's systemd hands files over to units as credentials.
    pub(super) fn has_credentials(&self) -> bool {
        has_credentials(&self.facts.os)
    }
    /// Whether the host's distribution is of the Red Hat family: where CA certificates live, and whether SELinux is met.
    pub(super) fn red_hat(&self) -> bool {
        let id = self.facts.os.split_whitespace().next().unwrap_or_default();
        matches!(id, "rhel" | "centos" | "rocky" | "almalinux" | "fedora" | "ol" | "amzn")
    }
}

/// Whether a distribution's systemd hands files over to units as credentials: since 247. One that is not known is taken for a newer one.
fn has_credentials(os: &str) -> bool {
    let (id, version) = os.split_once(' ').unwrap_or((os, ""));
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(u32::MAX));
    let (major, minor) = (numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(u32::MAX));
    let first = match id {
        "debian" => (11, 0),
        "ubuntu" => (21, 4),
        "rhel" | "centos" | "rocky" | "almalinux" | "ol" => (9, 0),
        "opensuse-leap" | "sles" => (15, 4),
        "amzn" => (2022, 0),
        "fedora" => (34, 0),
        _ => return true,
    };
    (major, minor) >= first
}

/// The reference of an image among some parts.
pub(super) fn image(parts: &[Part], name: &str) -> Option<String> {
    parts.iter().find_map(|part| match &part.place {
        Place::Image { reference } if part.name == name => Some(reference.clone()),
        _ => None,
    })
}

/// The minor version of Kubernetes, such as 36; 0 when the text has none.
pub(super) fn minor(version: &str) -> u32 {
    version.split('.').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}

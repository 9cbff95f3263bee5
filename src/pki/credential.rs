//! Credentials for people, for programs and for hactl itself, and the kubeconfig that contains them.
//!
//! In: a CA, a name, a lifetime. Out: certificate and key, the key in a [`Secret`]. They are created in memory; only a
//! person's kubeconfig is written, by the command that creates it.

use super::PkiError;
use super::found::new_key;
use super::sign::signer;
use super::table::ADMINISTRATORS;
use crate::issue::{Order, Subject, Usage};
use crate::model::healing::METRICS_READERS;
use crate::model::names::{ClusterName, Digest};
use crate::model::secret::Secret;
use crate::statedir::Authority;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use time::{Duration, OffsetDateTime};
use zeroize::Zeroizing;

/// A client certificate with its key.
pub struct Credential {
    /// The certificate in PEM, followed by its intermediate if there is one.
    pub cert_pem: String,
    /// The private key in PEM (PKCS #8).
    pub key_pem: Secret<String>,
    /// Common name.
    pub common_name: String,
    /// Organisations, which are groups in Kubernetes.
    pub organizations: Vec<String>,
    /// Serial number, hexadecimal, for the journal.
    pub serial: String,
    /// End of validity.
    pub not_after: OffsetDateTime,
}

/// Creates a client credential.
pub fn client_credential(
    ca: &Authority,
    common_name: &str,
    organizations: &[String],
    life: Duration,
    now: OffsetDateTime,
) -> Result<Credential, PkiError> {
    let key = new_key(common_name)?;
    let order = Order {
        subject: Subject { common_name, organizations },
        sans: &[],
        usage: Usage::CertSpec { server: false, client: true },
        life,
    };
    let issued = order.sign(&key, &signer(ca), now)?;
    Ok(Credential {
        cert_pem: issued.pem,
        key_pem: Secret::new(key.serialize_pem()),
        common_name: common_name.to_owned(),
        organizations: organizations.to_owned(),
        serial: issued.serial,
        not_after: issued.not_after,
    })
}

/// hactl's own credential for one run: valid for one hour, in memory only. It must work before any RBAC object exists.
pub fn own_credential(ca: &Authority, now: OffsetDateTime) -> Result<Credential, PkiError> {
    client_credential(ca, "hactl", &["system:masters".to_owned()], Duration::hours(1), now)
}

/// A person's everyday credential: 365 days, with rights from a binding that can be deleted.
pub fn admin_credential(ca: &Authority, now: OffsetDateTime) -> Result<Credential, PkiError> {
    client_credential(ca, "admin", &[ADMINISTRATORS.to_owned()], Duration::days(365), now)
}

/// A person's credential for when RBAC itself is broken: 8 hours, with rights that cannot be revoked.
pub fn break_glass_credential(ca: &Authority, now: OffsetDateTime) -> Result<Credential, PkiError> {
    client_credential(ca, "break-glass", &["system:masters".to_owned()], Duration::hours(8), now)
}

/// The credential of a program that reads metrics: 365 days. In the API its group may read metrics if the inventory asks
/// for that, and nothing else; its name is no user's that a binding may name.
pub fn reader_credential(ca: &Authority, name: &str, now: OffsetDateTime) -> Result<Credential, PkiError> {
    let common_name = format!("{METRICS_READERS}:{name}");
    client_credential(ca, &common_name, &[METRICS_READERS.to_owned()], Duration::days(365), now)
}

/// A kubeconfig with all certificates and keys embedded.
pub fn kubeconfig(cluster: &ClusterName, server_url: &str, ca_pem: &str, credential: &Credential) -> Secret<String> {
    let user = format!("{}@{cluster}", credential.common_name);
    let key = Zeroizing::new(STANDARD.encode(credential.key_pem.reveal()));
    let text = format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: {cluster}\n\
         \x20 cluster:\n\
         \x20   server: {server}\n\
         \x20   certificate-authority-data: {ca}\n\
         users:\n\
         - name: {user}\n\
         \x20 user:\n\
         \x20   client-certificate-data: {cert}\n\
         \x20   client-key-data: {key}\n\
         contexts:\n\
         - name: {context}\n\
         \x20 context:\n\
         \x20   cluster: {cluster}\n\
         \x20   user: {user}\n\
         current-context: {context}\n",
        cluster = quoted(cluster.as_str()),
        server = quoted(server_url),
        ca = quoted(&STANDARD.encode(ca_pem)),
        user = quoted(&user),
        cert = quoted(&STANDARD.encode(&credential.cert_pem)),
        key = *Zeroizing::new(quoted(&key)),
        context = quoted(cluster.as_str()),
    );
    Secret::new(text)
}

/// A JSON string is an unambiguous YAML string: `no`, `1.30` and `a: b` stay text.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The key identifier in Kubernetes' tokens: the SHA-256 of the public key (`pkg/serviceaccount/jwt.go`). `None`: not
/// PEM.
pub fn key_id(public_pem: &str) -> Option<String> {
    let body: String = public_pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = STANDARD.decode(body.trim()).ok()?;
    Some(URL_SAFE_NO_PAD.encode(Digest::of(&der).bytes()))
}

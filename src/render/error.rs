//! Errors while the files and objects are rendered from the desired state.

use crate::model::names::HostName;

/// Why a file or an object could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The bundle lacks a part that a file names.
    #[error("the bundle has no {kind} {name}, which {host} needs; build it again with `hactl bundle build`")]
    MissingPart {
        /// `program` or `image`.
        kind: &'static str,
        /// The part's name.
        name: String,
        /// The host it is for; empty for objects of the cluster.
        host: String,
    },
    /// No interface of the host has its address.
    #[error(
        "no interface of {host} has the address {address}, so the interface of the VIP is not known; correct `address` \
         in the inventory or set `endpoint.interface`"
    )]
    NoInterface {
        /// The host.
        host: HostName,
        /// Its address in the inventory.
        address: std::net::IpAddr,
    },
    /// A host file needs keys that are not loaded.
    #[error("{path} on {host} needs the cluster's keys, but they are not loaded")]
    MissingKeys {
        /// The host.
        host: HostName,
        /// The file.
        path: String,
    },
    /// A file that the inventory names was not read.
    #[error("the file that the inventory names for {what} was not read")]
    MissingFile {
        /// The setting.
        what: String,
    },
    /// A rendered document is not valid TOML.
    #[error("{template} did not render to valid TOML: {why}")]
    NotToml {
        /// The template.
        template: String,
        /// What the parser says.
        why: String,
    },
    /// A template does not match its view.
    #[error("the template {template} cannot be rendered: {why}")]
    Template {
        /// The template.
        template: String,
        /// The error of the template engine.
        why: String,
    },
    /// A rendered document is not valid YAML.
    #[error("{template} did not render to valid YAML: {why}")]
    NotYaml {
        /// The template.
        template: String,
        /// What the parser says.
        why: String,
    },
}

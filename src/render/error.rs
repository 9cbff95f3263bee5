//! What can go wrong between the desired state and a file's text.

use crate::model::names::HostName;

/// Why a file or an object could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The bundle lacks something that a file names.
    #[error("the bundle has no {kind} {name}, which {host} needs; build it again with `hactl bundle build`")]
    MissingPart {
        /// `program` or `image`.
        kind: &'static str,
        /// The part's name.
        name: String,
        /// The host it is for; empty for objects of the cluster.
        host: String,
    },
    /// The host's address is on none of its interfaces.
    #[error(
        "{host} has no interface with the address {address}, so nobody can say where its part of the VIP should live; \
         correct `address` in the inventory or name `endpoint.interface`"
    )]
    NoInterface {
        /// The host.
        host: HostName,
        /// Its address by the inventory.
        address: std::net::IpAddr,
    },
    /// A host file needs keys that were not given.
    #[error("{host} needs the cluster's keys for {path}, and they were not opened")]
    MissingKeys {
        /// The host.
        host: HostName,
        /// The file.
        path: String,
    },
    /// The contents of a file that the inventory names were not read.
    #[error("the file that the inventory names for {what} was not read")]
    MissingFile {
        /// For what.
        what: String,
    },
    /// A rendered document is not the TOML it should be.
    #[error("{template} did not become a TOML document: {why}")]
    NotToml {
        /// The template.
        template: String,
        /// What the parser says.
        why: String,
    },
    /// A template does not fit its view.
    #[error("the template {template} cannot be filled in: {why}")]
    Template {
        /// The template.
        template: String,
        /// What the engine says.
        why: String,
    },
    /// A rendered document is not the YAML it should be.
    #[error("{template} did not become a YAML document: {why}")]
    NotYaml {
        /// The template.
        template: String,
        /// What the parser says.
        why: String,
    },
}

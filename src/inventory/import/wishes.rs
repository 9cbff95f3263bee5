//! What the user asks for: the tool of the foreign file, and the settings that such a file cannot contain.

use super::error::ImportError;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The tool of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// An Ansible inventory.
    Ansible,
    /// A Kubespray inventory: an Ansible inventory with Kubespray's variables.
    Kubespray,
    /// A k0sctl configuration.
    K0sctl,
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ansible => "an Ansible inventory",
            Self::Kubespray => "a Kubespray inventory",
            Self::K0sctl => "a k0sctl configuration",
        })
    }
}

/// Settings that the foreign file cannot contain.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// The cluster's name.
    pub cluster: Option<String>,
    /// A virtual address for the endpoint.
    pub vip: Option<String>,
    /// An external balancer.
    pub external: Option<String>,
    /// A balancer on every Node.
    pub local: bool,
    /// Roles of groups, as GROUP=ROLE[,ROLE].
    pub roles: Vec<String>,
    /// Addresses of hosts, as HOST=ADDRESS.
    pub addresses: Vec<String>,
    /// The future folder of the inventory, if the files that it names are to be checked.
    pub base: Option<PathBuf>,
}

impl Wishes {
    /// Whether a flag sets the endpoint.
    pub fn has_endpoint(&self) -> bool {
        self.vip.is_some() || self.external.is_some() || self.local
    }
}

/// `NAME=VALUE` flags.
pub fn pairs(flag: &'static str, form: &str, given: &[String]) -> Result<BTreeMap<String, String>, ImportError> {
    let mut out = BTreeMap::new();
    for text in given {
        match text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty()) {
            Some((name, value)) => out.insert(name.to_owned(), value.to_owned()),
            None => {
                return Err(ImportError::flag(flag, text, format!("it is not {form}"), format!("write {flag} {form}")));
            }
        };
    }
    Ok(out)
}

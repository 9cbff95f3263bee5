//! Records of machines: a machine that is off is still a host of the cluster, and Vagrant has no SSH settings for it.
//!
//! In and out: `hactl-machines.json` in Vagrant's own folder beside the Vagrantfile.

use super::said::Way;
use super::{VagrantError, io_error};
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::Path;

const FILE: &str = "hactl-machines.json";

/// The record of a machine that has run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    /// The address at which the others reach it.
    pub(super) address: Ipv4Addr,
    /// Length of its network prefix.
    #[serde(default = "usual")]
    pub(super) prefix: u8,
    /// Its SSH settings.
    pub(super) way: Way,
}

fn usual() -> u8 {
    24
}

impl Known {
    /// Its address in its network.
    pub(super) fn net(&self) -> Ipv4Net {
        Ipv4Net::new(self.address, self.prefix).unwrap_or(self.address.into())
    }
}

/// Machines by name.
pub(super) type Memory = BTreeMap<String, Known>;

/// The folder's records; empty if there are none.
pub(super) fn load(data: &Path) -> Result<Memory, VagrantError> {
    let path = data.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map_err(|source| VagrantError::Memory(path, source)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Memory::new()),
        Err(source) => Err(io_error("read", &path)(source)),
    }
}

/// Writes changed records through a temporary file, so that no reader sees half of them.
pub(super) fn save(data: &Path, before: &Memory, now: &Memory) -> Result<(), VagrantError> {
    if before == now {
        return Ok(());
    }
    let path = data.join(FILE);
    let new = data.join(format!("{FILE}.{}", std::process::id()));
    let text = serde_json::to_string_pretty(now).map_err(|source| VagrantError::Memory(path.clone(), source))?;
    fs::create_dir_all(data).map_err(io_error("make", data))?;
    fs::write(&new, text).map_err(io_error("write", &new))?;
    fs::rename(&new, &path).map_err(io_error("put in place", &path))
}

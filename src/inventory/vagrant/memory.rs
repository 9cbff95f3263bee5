//! What is remembered of machines, for one that is off is still a host of the cluster and Vagrant knows no way to it.
//!
//! In and out: `hactl-machines.json` in Vagrant's own folder beside the Vagrantfile.

use super::said::{Address, Way};
use super::{VagrantError, io_error};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::Path;

const FILE: &str = "hactl-machines.json";

/// What is known of a machine that ran once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    /// The address the others know it by.
    pub(super) address: Ipv4Addr,
    /// How many of its bits are the network's.
    #[serde(default = "usual")]
    pub(super) prefix: u8,
    /// The way to it.
    pub(super) way: Way,
}

fn usual() -> u8 {
    24
}

impl Known {
    /// The network it is of.
    pub(super) fn network(&self) -> (Ipv4Addr, u8) {
        Address { ip: self.address, prefix: self.prefix }.network()
    }
}

/// Machines by name.
pub(super) type Memory = BTreeMap<String, Known>;

/// What the folder has; nothing, where nothing was ever written.
pub(super) fn load(data: &Path) -> Result<Memory, VagrantError> {
    let path = data.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map_err(|source| VagrantError::Memory { path, source }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Memory::new()),
        Err(source) => Err(io_error("read", &path)(source)),
    }
}

/// Writes what has changed, by way of a neighbour, so that nobody reads half of it.
pub(super) fn save(data: &Path, before: &Memory, now: &Memory) -> Result<(), VagrantError> {
    if before == now {
        return Ok(());
    }
    let path = data.join(FILE);
    let new = data.join(format!("{FILE}.{}", std::process::id()));
    let text =
        serde_json::to_string_pretty(now).map_err(|source| VagrantError::Memory { path: path.clone(), source })?;
    fs::create_dir_all(data).map_err(io_error("make", data))?;
    fs::write(&new, text).map_err(io_error("write", &new))?;
    fs::rename(&new, &path).map_err(io_error("put in place", &path))
}

//! The hosts that were taken into the cluster, as the inventory had them: how one is reached that it does not name any more.
//!
//! In: hosts as runs take them in, and the names of those that have left. Out: who is known. It is no secret and no proof of anything: where
//! it is missing, a host that leaves has to be named again, or be switched off.

use super::{Vault, VaultError, io_error};
use crate::model::desired::Host;
use crate::model::names::HostName;
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _};

/// Its file.
const FILE: &str = "hosts.json";
const SCHEMA: u32 = 1;
/// Ten thousand hosts take less.
const LARGEST: u64 = 16 << 20;

/// A host that was taken in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// As the inventory had it last.
    pub host: Host,
    /// Whether it has left: nobody needs to be told that it is there still.
    pub left: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    schema: u32,
    hosts: Vec<Known>,
}

impl Vault {
    /// Everybody who was ever taken in.
    pub fn hosts(&self) -> Result<Vec<Known>, VaultError> {
        let path = self.dir().join(FILE);
        let file = match std::fs::File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened.map_err(io_error("open", &path))?,
        };
        let mut text = String::new();
        file.take(LARGEST).read_to_string(&mut text).map_err(io_error("read", &path))?;
        match serde_json::from_str::<Form>(&text) {
            Ok(form) if form.schema == SCHEMA => Ok(form.hosts),
            Ok(form) => Err(VaultError::Corrupt { path, why: format!("it is of schema {}", form.schema) }),
            Err(error) => Err(VaultError::Corrupt { path, why: error.to_string() }),
        }
    }

    /// Notes who has been taken in and who has left; nothing is written where that is known.
    pub fn note_hosts(&self, taken_in: &[&Host], left: &[&HostName]) -> Result<(), VaultError> {
        let before = self.hosts()?;
        let mut hosts = before.clone();
        for host in taken_in {
            let now = Known { host: (*host).clone(), left: false };
            match hosts.iter_mut().find(|known| known.host.name == host.name) {
                Some(known) => *known = now,
                None => hosts.push(now),
            }
        }
        hosts.iter_mut().filter(|known| left.contains(&&known.host.name)).for_each(|known| known.left = true);
        self.write_hosts(&before, hosts)
    }

    /// Forgets everybody: the cluster was taken down.
    pub fn forget_hosts(&self) -> Result<(), VaultError> {
        self.write_hosts(&self.hosts()?, Vec::new())
    }

    fn write_hosts(&self, before: &[Known], hosts: Vec<Known>) -> Result<(), VaultError> {
        if hosts == before {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(&Form { schema: SCHEMA, hosts });
        let text = text.map_err(|e| io_error("write", &self.dir().join(FILE))(e.into()))?;
        self.replace(FILE, &text)
    }
}

//! The hosts that were taken into the cluster, as the inventory had them: how one is reached that it does not name any more. And the ranges of
//! addresses that they live with.
//!
//! In: hosts as runs take them in, and the names of those that have left. Out: who is known. It is no secret and no proof of anything: where
//! it is missing, a host that leaves has to be named again, or be switched off.

use super::{StateDir, StateDirError, io_error};
use crate::model::desired::{Cidr, Host};
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

/// The ranges of addresses that a cluster lives with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranges {
    /// Of pods.
    pub pods: Cidr,
    /// Of Services.
    pub services: Cidr,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    schema: u32,
    hosts: Vec<Known>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ranges: Option<Ranges>,
}

impl StateDir {
    /// Everybody who was ever taken in.
    pub fn hosts(&self) -> Result<Vec<Known>, StateDirError> {
        self.form().map(|form| form.hosts)
    }

    /// The ranges of the run that founded the cluster, or of the first that saw them; `None`: nobody noted any.
    pub fn ranges(&self) -> Result<Option<Ranges>, StateDirError> {
        self.form().map(|form| form.ranges)
    }

    fn form(&self) -> Result<Form, StateDirError> {
        let path = self.dir().join(FILE);
        let file = match std::fs::File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(Form { schema: SCHEMA, hosts: Vec::new(), ranges: None });
            }
            opened => opened.map_err(io_error("open", &path))?,
        };
        let mut text = String::new();
        file.take(LARGEST).read_to_string(&mut text).map_err(io_error("read", &path))?;
        match serde_json::from_str::<Form>(&text) {
            Ok(form) if form.schema == SCHEMA => Ok(form),
            Ok(form) => Err(StateDirError::Corrupt { path, why: format!("it is of schema {}", form.schema) }),
            Err(error) => Err(StateDirError::Corrupt { path, why: error.to_string() }),
        }
    }

    /// Notes who has been taken in and who has left; nothing is written where that is known.
    pub fn note_hosts(&self, taken_in: &[&Host], left: &[&HostName]) -> Result<(), StateDirError> {
        let before = self.form()?;
        let mut form = before.clone();
        for host in taken_in {
            let now = Known { host: (*host).clone(), left: false };
            match form.hosts.iter_mut().find(|known| known.host.name == host.name) {
                Some(known) => *known = now,
                None => form.hosts.push(now),
            }
        }
        form.hosts.iter_mut().filter(|known| left.contains(&&known.host.name)).for_each(|known| known.left = true);
        self.write(&before, &form)
    }

    /// Notes the ranges that the cluster lives with, unless some are noted; `anew`: in their place, too.
    pub fn note_ranges(&self, ranges: Ranges, anew: bool) -> Result<(), StateDirError> {
        let before = self.form()?;
        let kept = before.ranges.filter(|_| !anew);
        self.write(&before, &Form { ranges: kept.or(Some(ranges)), ..before.clone() })
    }

    /// Forgets everybody, and the ranges: the cluster was taken down.
    pub fn forget_hosts(&self) -> Result<(), StateDirError> {
        self.write(&self.form()?, &Form { schema: SCHEMA, hosts: Vec::new(), ranges: None })
    }

    fn write(&self, before: &Form, form: &Form) -> Result<(), StateDirError> {
        if form == before {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(form);
        let text = text.map_err(|e| io_error("write", &self.dir().join(FILE))(e.into()))?;
        self.replace(FILE, &text)
    }
}

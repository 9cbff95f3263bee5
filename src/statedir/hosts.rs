//! The hosts that joined the cluster, as the inventory had them, so that a host can be reached after it was removed
//! from the inventory; the cluster's CIDRs, and the URL of its API.
//!
//! In: hosts that runs admit, and the names of those that were removed. Out: the known hosts. The file is neither
//! secret nor proof: without it, a host to be removed must be added to the inventory again or be switched off.

use super::{StateDir, StateDirError, io_error};
use crate::model::desired::{Cidr, Host};
use crate::model::names::HostName;
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _};

/// Its file.
const FILE: &str = "hosts.json";
const SCHEMA: u32 = 1;
/// Ten thousand hosts need less.
const LARGEST: u64 = 16 << 20;

/// A host that joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// As the inventory had it last.
    pub host: Host,
    /// Whether it was removed; if so, no run reports that it still exists.
    pub left: bool,
}

/// The CIDRs of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranges {
    /// Pod CIDR.
    pub pods: Cidr,
    /// Service CIDR.
    pub services: Cidr,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    schema: u32,
    hosts: Vec<Known>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ranges: Option<Ranges>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

/// Nothing is known.
const NOTHING: Form = Form { schema: SCHEMA, hosts: Vec::new(), ranges: None, url: None };

impl StateDir {
    /// Every host that ever joined.
    pub fn hosts(&self) -> Result<Vec<Known>, StateDirError> {
        self.form().map(|form| form.hosts)
    }

    /// The CIDRs of the bootstrap, or of the first run that recorded them; `None`: none were recorded.
    pub fn ranges(&self) -> Result<Option<Ranges>, StateDirError> {
        self.form().map(|form| form.ranges)
    }

    fn form(&self) -> Result<Form, StateDirError> {
        let path = self.dir().join(FILE);
        let file = match std::fs::File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(NOTHING);
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

    /// Records which hosts joined and which were removed; writes nothing if that is known already.
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

    /// Records the cluster's CIDRs unless some are recorded; `replace` overwrites them.
    pub fn note_ranges(&self, ranges: Ranges, replace: bool) -> Result<(), StateDirError> {
        let before = self.form()?;
        let kept = before.ranges.filter(|_| !replace);
        self.write(&before, &Form { ranges: kept.or(Some(ranges)), ..before.clone() })
    }

    /// The URL of the API for people, as the last complete run left it; `None`: none was recorded.
    pub fn url(&self) -> Result<Option<String>, StateDirError> {
        self.form().map(|form| form.url)
    }

    /// Records the URL of the API for people.
    pub fn note_url(&self, url: &str) -> Result<(), StateDirError> {
        let before = self.form()?;
        self.write(&before, &Form { url: Some(url.to_owned()), ..before.clone() })
    }

    /// Forgets all hosts, the CIDRs and the URL: the cluster was taken down.
    pub fn forget_hosts(&self) -> Result<(), StateDirError> {
        self.write(&self.form()?, &NOTHING)
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

//! The machines of a Vagrantfile as an inventory to keep and edit.
//!
//! In: the Vagrantfile's folder, and the user's flags. Out: the text that `-i vagrant:DIR` uses, validated.

use super::accept::{Imported, accepted};
use super::error::ImportError;
use super::notes::Notes;
use super::wishes::{Wishes, pairs};
use crate::inventory::vagrant;
use crate::model::desired::{NoRole, Role};
use std::collections::BTreeMap;
use std::path::Path;

/// Makes an inventory of the machines.
pub fn vagrant(dir: &Path, wishes: &Wishes) -> Result<Imported, ImportError> {
    let mut roles = BTreeMap::new();
    for (name, words) in pairs("--role", "NAME=ROLE[,ROLE]", &wishes.roles)? {
        let found: Result<Vec<Role>, _> = words.split(',').map(|word| word.trim().parse()).collect();
        let found = found.map_err(|why: NoRole| {
            let remedy = "write control-plane, etcd, load-balancer, worker or spare";
            ImportError::flag("--role", &format!("{name}={words}"), why.to_string(), remedy)
        })?;
        roles.insert(name, found);
    }
    let vip = match &wishes.vip {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            let remedy = "write a free address of the machines' network";
            ImportError::flag("--vip", text, "it is not an IPv4 address", remedy)
        })?),
    };
    let text = vagrant::inventory(dir, &vagrant::Wishes { cluster: wishes.cluster.clone(), vip, roles })?;
    let file = dir.join("Vagrantfile").display().to_string();
    accepted(text, &file, wishes, Notes::default(), &[], |_| file.clone())
}

//! The machines of a Vagrantfile as an inventory to keep and edit.
//!
//! In: the Vagrantfile's folder, and the user's flags. Out: the text that `-i vagrant:DIR` uses, validated.

use super::notes::Notes;
use super::{ImportError, Imported, Wishes, accepted, pairs};
use crate::inventory::vagrant;
use crate::model::desired::Role;
use std::collections::BTreeMap;
use std::path::Path;

/// Makes an inventory of the machines.
pub fn vagrant(dir: &Path, wishes: &Wishes) -> Result<Imported, ImportError> {
    let mut roles = BTreeMap::new();
    for (name, words) in pairs("--role", "NAME=ROLE[,ROLE]", &wishes.roles)? {
        let found: Result<Vec<Role>, _> = words.split(',').map(|word| word.trim().parse()).collect();
        let found = found.map_err(|why: crate::model::desired::NoRole| ImportError::Flag {
            flag: "--role",
            text: format!("{name}={words}"),
            why: why.to_string(),
            remedy: "write control-plane, etcd, load-balancer, worker or spare".to_owned(),
        })?;
        roles.insert(name, found);
    }
    let vip = match &wishes.vip {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| ImportError::Flag {
            flag: "--vip",
            text: text.clone(),
            why: "it is not an IPv4 address".to_owned(),
            remedy: "write a free address of the machines' network".to_owned(),
        })?),
    };
    let text = vagrant::inventory(dir, &vagrant::Wishes { cluster: wishes.cluster.clone(), vip, roles })?;
    let file = dir.join("Vagrantfile").display().to_string();
    accepted(text, &file, wishes, Notes::default(), |_| file.clone())
}

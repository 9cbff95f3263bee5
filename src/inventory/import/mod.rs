//! Converts existing inventories of other tools to one of hactl.
//!
//! In: a foreign file, with the files beside it that its tool reads, and [`Wishes`] for settings that such a file
//! cannot contain. Out: [`Imported`]: a commented inventory that passes hactl's rules, and a [`Note`] for each setting
//! that could not be converted; or an [`ImportError`]. Each tool has a module that fills in a [`Draft`]; this module
//! converts the drafts of all of them.

mod accept;
mod ansible;
pub mod draft;
mod error;
mod k0sctl;
mod kubespray;
mod names;
pub mod node;
pub mod notes;
mod recognise;
mod shared;
mod source;
mod vagrant;
mod wishes;
pub mod write;

pub use accept::Imported;
pub use error::{Broken, ImportError};
pub use notes::Note;
pub use source::{Input, read};
pub use vagrant::vagrant;
pub use wishes::{Tool, Wishes};

use super::files::Files;
use super::problem::Problem;
use crate::model::desired::Role;
use accept::accepted;
use draft::{Draft, Said, Way};
use notes::Notes;
use wishes::pairs;

/// Converts a foreign file to an inventory; other files are read from `disk`.
pub fn import(tool: Tool, input: &Input, wishes: &Wishes, disk: &dyn Files) -> Result<Imported, ImportError> {
    recognise::expect(tool, input)?;
    let mut notes = Notes::new(wishes.has_endpoint());
    let draft = match tool {
        Tool::Ansible => ansible::draft(input, wishes, disk, &mut notes)?,
        Tool::Kubespray => kubespray::draft(input, wishes, disk, &mut notes)?,
        Tool::K0sctl => k0sctl::draft(input, &mut notes)?,
    };
    finish(draft, notes, wishes)
}

/// Completes a draft with the flags, writes it and validates it: a result that violates a rule is never returned.
pub fn finish(mut draft: Draft, mut notes: Notes, wishes: &Wishes) -> Result<Imported, ImportError> {
    names::assign(&mut draft.hosts, &mut notes);
    wished(&mut draft, wishes)?;
    if !draft.hosts.iter().any(|host| host.roles.contains(&Role::ControlPlane)) {
        return Err(ImportError::NoControlPlane {
            from: draft.file,
            why: "none has that role".to_owned(),
            remedy: "add it to hosts in the file: 3, or 1 for a test cluster".to_owned(),
        });
    }
    if draft.endpoint.is_none() {
        return Err(ImportError::NoEndpoint(draft.file));
    }
    draft.complete_roles(&mut notes);
    draft.lift();
    let written = write::write(&draft);
    let place = |problem: &Problem| {
        let origin = problem.place.line.checked_sub(1).and_then(|line| written.origins.get(line));
        origin.filter(|origin| !origin.is_empty()).unwrap_or(&draft.file).clone()
    };
    accepted(written.text.clone(), &draft.file, wishes, notes, &draft.hosts, place)
}

/// The command line has precedence over the file.
fn wished(draft: &mut Draft, wishes: &Wishes) -> Result<(), ImportError> {
    if let Some(name) = &wishes.cluster {
        draft.cluster = Said::new(name.as_str(), "", "--cluster");
    }
    let by_flag = if let Some(vip) = &wishes.vip {
        Some(Way::Vip(Said::new(vip.as_str(), "", "--vip")))
    } else if let Some(external) = &wishes.external {
        Some(Way::External(Said::new(external.as_str(), "", "--external")))
    } else {
        wishes.local.then(|| Way::Local(Said::new((), "", "--local")))
    };
    if let Some(way) = by_flag {
        let port_given = matches!(&way, Way::External(to) if to.value.contains(':'));
        if port_given {
            draft.endpoint_port = None;
        }
        draft.endpoint = Some(way);
    }
    let mut addresses = pairs("--address", "HOST=ADDRESS", &wishes.addresses)?;
    for host in &mut draft.hosts {
        let by_given = addresses.remove(&host.given);
        if let Some(address) = by_given.or_else(|| addresses.remove(&host.name)) {
            host.address = Some(Said::new(address, "", "--address"));
        }
    }
    match addresses.into_iter().next() {
        None => Ok(()),
        Some((name, _)) => {
            let why = "no host of the cluster has this name";
            Err(ImportError::flag("--address", &name, why, "write the name as in the file"))
        }
    }
}

//! Renders templates and manifests to the files of each host, by set.
//!
//! In: the desired state, one host's facts, the bundle's parts, certificates and keys ([`Input`]). Out:
//! [`RenderedSet`]s, the same for the same input; [`Addon`](crate::model::target::Addon)s; and the target of a host
//! besides its files. Templates and manifests are embedded through one table each ([`table`], [`addons`]).

mod addons;
mod error;
mod former;
mod host;
mod hosting;
mod input;
mod table;
mod text;
mod views;
mod yaml;

#[cfg(test)]
mod tests;

pub use addons::{addons, owned};
pub use error::RenderError;
pub use former::{former, former_sets, former_units};
pub use host::{api_ask, clear_node, dns_ask, etcd_ask, mounts, packages, ports, preparation, proxy_variables, wipe};
pub use hosting::complete as daemon_sets;
pub use input::{Input, Keys, Sealed, Trust};
pub use table::{paths, units};
pub use text::fill as page;
pub use views::etcd::own_etcd;
pub use views::registries::places as registry_places;
pub use views::snapshots::reach as object_storage;

use crate::model::desired::Role;
use crate::model::names::{Digest, UnitName};
use crate::model::target::{FileSet, FileTarget, SetTarget};
use crate::protocol::FilePut;
use table::{FILES, What};

/// The files of a set and the unit that reads them.
#[derive(Clone)]
pub struct RenderedSet {
    /// The set.
    pub set: FileSet,
    /// Its files, in the order they are written.
    pub files: Vec<FilePut>,
    /// The unit that uses them.
    pub unit: Option<UnitName>,
    /// Whether the unit can reload new files.
    pub reload: bool,
}

impl RenderedSet {
    /// The set by digests, for the target.
    pub fn target(&self) -> SetTarget {
        SetTarget {
            files: self.files.iter().map(by_digest).collect(),
            unit: self.unit.clone(),
            reload: self.reload,
            reads: table::reads(self.set),
            folders: match self.set {
                FileSet::Registries => vec![views::registries::FOLDER.to_owned()],
                FileSet::Snapshots => vec![views::snapshots::STORAGE.to_owned()],
                _ => vec![],
            },
            own: match self.set {
                FileSet::Os => views::os::own(),
                FileSet::Renewal if self.files.is_empty() => views::renewal::own(),
                FileSet::Drills if self.files.is_empty() => views::drills::own(),
                FileSet::Guard if self.files.is_empty() => views::guard::own(),
                FileSet::Guard => views::guard::own_of_repairs(),
                FileSet::Hosting if self.files.is_empty() => views::hosting::own(),
                FileSet::NodeAgent if self.files.is_empty() => views::node_agent::own(),
                FileSet::Metrics if self.files.is_empty() => views::metrics::own(),
                _ => vec![],
            },
            told_by: vec![],
        }
    }
}

/// The file by digest, for the target.
fn by_digest(file: &FilePut) -> FileTarget {
    let FilePut { path, mode, owner, content, .. } = file;
    FileTarget { path: path.clone(), mode: *mode, owner: owner.clone(), digest: Digest::of(content.as_bytes()) }
}

/// Directories in which hactl searches for files that it wrote and that are no longer wanted.
pub fn folders() -> Vec<String> {
    vec![views::registries::FOLDER.to_owned(), views::snapshots::STORAGE.to_owned()]
}

/// All wanted files of a host, by set. Deterministic.
pub fn host_sets(input: &Input<'_>) -> Result<Vec<RenderedSet>, RenderError> {
    let mut files: Vec<(FileSet, FilePut)> = Vec::new();
    for row in FILES.iter().filter(|row| (row.on)(input.desired, input.host)) {
        let texts = match row.what {
            What::If(asked, _) if !asked(input.desired) => vec![],
            What::One(fill) | What::If(_, fill) => vec![(row.path.to_owned(), fill(input, row)?)],
            What::Each(items, fill) => {
                let one = |item: String| Ok((row.path.replace('*', &item), fill(input, row, &item)?));
                items(input.desired).into_iter().map(one).collect::<Result<_, RenderError>>()?
            }
            What::Pod(name) => {
                let before = files.iter().map(|(_, file)| (file.path.as_str(), file.content.as_str()));
                vec![(row.path.to_owned(), static_pod(input, row, name, before)?)]
            }
        };
        for (path, content) in texts {
            let check = (!row.check.is_empty()).then(|| row.check.iter().map(|word| (*word).to_owned()).collect());
            let mode = row.mode(input.desired);
            let file = FilePut { path, mode, owner: "root".to_owned(), content, check };
            files.push((row.set, file));
        }
    }
    let mut sets = by_set(files);
    let keeps = [
        // Without registry settings there is still a directory to clean, and without renewal, drills, a guard or
        // self-hosting there may be their files.
        (FileSet::Registries, input.host.is_node()),
        (FileSet::Renewal, table::keeps_state(input.desired, input.host)),
        (FileSet::Drills, input.host.may_vote()),
        (FileSet::Guard, table::guarded(input.desired, input.host)),
        (FileSet::Hosting, input.host.is(Role::ControlPlane)),
        (FileSet::NodeAgent, input.host.is_node()),
        (FileSet::Metrics, table::any(input.desired, input.host)),
    ];
    for (set, _) in keeps.into_iter().filter(|(_, has)| *has) {
        if !sets.iter().any(|s| s.set == set) {
            sets.push(RenderedSet { set, files: Vec::new(), unit: None, reload: false });
        }
    }
    Ok(sets)
}

fn by_set(files: Vec<(FileSet, FilePut)>) -> Vec<RenderedSet> {
    let mut sets: Vec<RenderedSet> = Vec::new();
    for (set, file) in files {
        match sets.iter_mut().find(|s| s.set == set) {
            Some(known) => known.files.push(file),
            None => {
                let (unit, reload) = table::unit(set).map_or((None, false), |(unit, reload)| (Some(unit), reload));
                sets.push(RenderedSet { set, files: vec![file], unit, reload });
            }
        }
    }
    sets
}

/// A manifest with a UID derived from the rest of it: a changed manifest is another pod. With a constant UID, the
/// kubelet would not restart a pod of which only the flags changed.
fn static_pod<'a>(
    input: &Input<'_>,
    row: &table::Row,
    name: &str,
    before: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Result<String, RenderError> {
    let manifest = |uid: &str| {
        let text = row.fill(&views::control_plane::static_pod(input, name, before.clone(), uid)?)?;
        let Some(extra) = input.desired.extra.args.get(name).filter(|args| !args.is_empty()) else { return Ok(text) };
        let mut pod = yaml::parse(row.template, &text)?;
        yaml::set_flags(&mut pod, extra.iter());
        yaml::write(row.template, &pod)
    };
    let rest = Digest::of(manifest("")?.as_bytes()).hex();
    manifest(&rest[..32])
}

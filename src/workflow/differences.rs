//! Compares the files on the hosts with the contents that a plan would write; secrets are removed from both.
//!
//! In: a plan, its file contents, connections. Out: one [`Difference`] per change, with all hosts on which it is the
//! same. A new file has none, nor has one that contains only secrets.

use super::{Session, State};
use crate::model::difference::{Difference, Shown};
use crate::model::drill;
use crate::model::names::HostName;
use crate::model::plan::{Action, Plan};
use crate::model::redact::{Known, Redactor};
use crate::model::target::FileSet;
use crate::protocol::{Op, Reply};
use crate::transport::Payload;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::reconcile::Round;

/// Timeout of a host that reads files.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Sets that are shown by name only: logins, keys, the encrypted state.
const SECRET: [FileSet; 3] = [FileSet::Registries, FileSet::State, FileSet::Trust];
/// Files of other sets that contain only a secret.
const KEYS: [&str; 3] = ["/etc/kubernetes/config/encryption.yaml", "/etc/kubernetes/pki/sa.key", drill::IDENTITY];

/// The differences of a plan, in the order of its steps. A host that cannot be queried shows none.
pub(super) async fn differences(session: &Session, state: &State, look: &Round, plan: &Plan) -> Vec<Difference> {
    let Ok(redactor) = redactor(state) else { return Vec::new() };
    let mut found: Vec<Difference> = Vec::new();
    for (host, paths) in written(look, plan) {
        // Files that are shown by name only are not fetched: some keys never leave their host.
        let shown = |(path, set): &&(String, FileSet)| !hidden(path, *set) && !set.is_former();
        let asked = paths.iter().filter(shown).map(|(path, _)| path.clone()).collect();
        let there = read(session, &host, asked).await;
        for (path, set) in paths {
            let before = there.get(&path);
            let hidden = hidden(&path, set);
            let files = look.files.get(&host).and_then(|sets| sets.get(&set)).map(Vec::as_slice).unwrap_or_default();
            let after = files.iter().find(|file| file.path == path).map(|file| file.content.as_str());
            let shown = match (before, after) {
                _ if set.is_former() => Shown::Removed,
                _ if hidden => Shown::Secret,
                (None, _) => continue,
                (Some(_), None) => Shown::Removed,
                (Some(before), Some(after)) => {
                    let (before, _) = redactor.strike(before);
                    let (after, _) = redactor.strike(after);
                    if before == after { Shown::Secret } else { Shown::Texts { before, after } }
                }
            };
            if hidden && !look.facts.host(&host).is_some_and(|facts| facts.files.contains_key(&path)) {
                continue;
            }
            match found.iter_mut().find(|other| other.path == path && other.shown == shown) {
                // A file may be in two sets: one that the host gives up, and one that it has.
                Some(other) if other.hosts.contains(&host) => {}
                Some(other) => other.hosts.push(host.clone()),
                None => found.push(Difference { path, hosts: vec![host.clone()], shown }),
            }
        }
    }
    found
}

fn hidden(path: &str, set: FileSet) -> bool {
    SECRET.contains(&set) || KEYS.contains(&path) || path.ends_with(".key") || path.ends_with(".key.new")
}

/// The existing files that a plan writes, by host.
fn written(look: &Round, plan: &Plan) -> BTreeMap<HostName, Vec<(String, FileSet)>> {
    let mut written: BTreeMap<HostName, Vec<(String, FileSet)>> = BTreeMap::new();
    for step in &plan.steps {
        if let Action::Configure { host, set, paths, .. } = &step.action {
            let there = |path: &&String| look.facts.host(host).is_some_and(|facts| facts.files.contains_key(*path));
            written.entry(host.clone()).or_default().extend(paths.iter().filter(there).map(|p| (p.clone(), *set)));
        }
    }
    written
}

async fn read(session: &Session, host: &HostName, paths: Vec<String>) -> BTreeMap<String, String> {
    let Some(machine) = session.machines.get(host).filter(|_| !paths.is_empty()) else { return BTreeMap::new() };
    match machine.call(Op::ReadFiles { paths }, Payload::None, TIMEOUT, &|_| {}).await {
        Ok(Reply::Texts(texts)) => texts,
        // The plan still names the files; only their differences are missing.
        Ok(_) | Err(_) => BTreeMap::new(),
    }
}

/// Removes the secrets of the state, and text that looks like a secret.
fn redactor(state: &State) -> Result<Redactor, String> {
    let mut known = Known::default();
    let material = state.contents().material();
    material.encryption.iter().for_each(|key| known.value(key.key.reveal()));
    known.value(material.signing_key_pem.reveal());
    known.value(material.kubelet_serving_key_pem.reveal());
    known.value(material.service_account_key_pem.reveal());
    Redactor::new(&known)
}

//! Manifests of static pods that a maintenance holds: they are moved to a folder that the kubelet does not read, and back.
//!
//! In: what the node agent decides. Out: each manifest in one of the two folders of one file system, also after a crash
//! or a reboot. Nothing is lost: a manifest that was written meanwhile stays, and the held one is kept beside it.

use super::Root;
use super::lock::{self, Held};
use super::machine::files::{moved, optional, private_folder, write_one};
use super::machine::root::me;
use super::op_error::{Explain as _, Outcome};
use crate::model::control_plane::MANIFESTS;
use crate::model::static_pods::FOLDER;
use std::fs;
use std::path::Path;

/// The request that is being obeyed, and those that have ended. The kubelet reads no file that begins with a dot.
const ASKED: &str = "/etc/kubernetes/held/.asked";
const ENDED: &str = "/etc/kubernetes/held/.ended";

/// So many requests that have ended are remembered.
const MOST_ENDED: usize = 100;

/// The right to move them: no run of hactl changes the host meanwhile.
#[derive(Debug)]
pub struct MovesStaticPods {
    root: Root,
    _held: Held,
}

/// The names of the manifests that the kubelet has.
///
/// # Errors
/// The folder cannot be read.
pub fn placed_static_pods(root: &Root) -> Outcome<Vec<String>> {
    names(&root.own(MANIFESTS))
}

/// The names of those that are held.
///
/// # Errors
/// The folder cannot be read.
pub fn held_static_pods(root: &Root) -> Outcome<Vec<String>> {
    names(&root.own(FOLDER))
}

/// Whether a request has been obeyed and has ended: it is not obeyed again, also if a recovery of etcd brings it back.
pub fn has_ended(root: &Root, request: &str) -> bool {
    fs::read_to_string(root.own(ENDED)).is_ok_and(|ended| ended.lines().any(|one| one == request))
}

fn names(folder: &Path) -> Outcome<Vec<String>> {
    let Some(entries) = optional(fs::read_dir(folder)).explain("list", folder)? else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.explain("list", folder)?;
        let name = entry.file_name().into_string().ok().filter(|name| !name.starts_with('.'));
        if let Some(name) = name.filter(|_| entry.file_type().is_ok_and(|kind| kind.is_file())) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

impl MovesStaticPods {
    /// Takes the lock of the host.
    ///
    /// # Errors
    /// A run of hactl changes the host.
    pub async fn take(root: &Root) -> Outcome<Self> {
        let held = lock::take_as_resident(root, "static pods of a maintenance").await?;
        Ok(Self { root: root.clone(), _held: held })
    }

    /// Notes the request that is obeyed.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note(&self, request: &str) -> Outcome<()> {
        private_folder(&self.root.own(FOLDER))?;
        write_one(self.root.own(ASKED), request.as_bytes(), 0o600, me())
    }

    /// Takes manifests away from the kubelet.
    ///
    /// # Errors
    /// One cannot be moved.
    pub fn hold(&self, names: &[String]) -> Outcome<()> {
        let (there, held) = (self.root.own(MANIFESTS), self.root.own(FOLDER));
        private_folder(&held)?;
        names.iter().try_for_each(|name| moved(&there.join(name), &held.join(name)))
    }

    /// Gives manifests back to the kubelet. One that was written meanwhile is newer, and stays.
    ///
    /// # Errors
    /// One cannot be moved.
    pub fn place(&self, names: &[String]) -> Outcome<()> {
        let (there, held) = (self.root.own(MANIFESTS), self.root.own(FOLDER));
        names.iter().try_for_each(|name| {
            let to = there.join(name);
            let to = if to.exists() { held.join(format!(".{name}.replaced")) } else { to };
            moved(&held.join(name), &to)
        })
    }

    /// Notes that the request that was obeyed has ended.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end(&self) -> Outcome<()> {
        let (asked, ended) = (self.root.own(ASKED), self.root.own(ENDED));
        let Some(request) = optional(fs::read_to_string(&asked)).explain("read", &asked)? else { return Ok(()) };
        let before = optional(fs::read_to_string(&ended)).explain("read", &ended)?.unwrap_or_default();
        let known = before.lines().rev().take(MOST_ENDED).collect::<Vec<_>>().into_iter().rev();
        let text = known.chain([request.as_str()]).fold(String::new(), |text, line| text + line + "\n");
        write_one(ended, text.as_bytes(), 0o600, me())?;
        fs::remove_file(&asked).explain("remove", &asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("etc/kubernetes/manifests/sub")).unwrap();
        for name in ["a.yaml", "b.yaml", ".c.yaml"] {
            fs::write(folder.path().join("etc/kubernetes/manifests").join(name), name).unwrap();
        }
        let root = Root::at(folder.path());
        (folder, root)
    }

    #[tokio::test]
    async fn manifests_are_held_and_come_back_as_they_were() {
        let (folder, root) = host();
        let all = placed_static_pods(&root).unwrap();
        assert_eq!(all, ["a.yaml", "b.yaml"], "the kubelet reads no others");
        let moves = MovesStaticPods::take(&root).await.unwrap();
        moves.note("u/1").unwrap();
        moves.hold(&all).unwrap();
        assert_eq!((placed_static_pods(&root).unwrap(), held_static_pods(&root).unwrap()), (vec![], all.clone()));
        assert!(!has_ended(&root, "u/1"));
        moves.place(&all).unwrap();
        moves.end().unwrap();
        assert_eq!((placed_static_pods(&root).unwrap(), held_static_pods(&root).unwrap()), (all, vec![]));
        assert!(has_ended(&root, "u/1") && !has_ended(&root, "u/2"));
        assert_eq!(fs::read_to_string(folder.path().join("etc/kubernetes/manifests/a.yaml")).unwrap(), "a.yaml");
    }

    #[tokio::test]
    async fn a_manifest_that_was_written_meanwhile_stays_and_the_held_one_is_kept() {
        let (folder, root) = host();
        let moves = MovesStaticPods::take(&root).await.unwrap();
        let one = ["a.yaml".to_owned()];
        moves.hold(&one).unwrap();
        fs::write(folder.path().join("etc/kubernetes/manifests/a.yaml"), "newer").unwrap();
        moves.place(&one).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("etc/kubernetes/manifests/a.yaml")).unwrap(), "newer");
        assert_eq!(fs::read_to_string(folder.path().join("etc/kubernetes/held/.a.yaml.replaced")).unwrap(), "a.yaml");
        assert!(held_static_pods(&root).unwrap().is_empty());
    }

    #[tokio::test]
    async fn nothing_is_moved_while_a_run_of_hactl_changes_the_host() {
        let (_folder, root) = host();
        let _run = MovesStaticPods::take(&root).await.unwrap();
        assert!(MovesStaticPods::take(&root).await.unwrap_err().what.contains("has the lock of the host"));
    }
}

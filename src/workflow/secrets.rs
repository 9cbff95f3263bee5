//! The secrets of a cluster that this machine knows: the only list by which secrets are removed from output.
//!
//! In: the state, the files that the inventory names, typed passwords. Out: a [`Known`]. A state that cannot be opened
//! is read file by file, so that a damaged state does not leak. Hosts have their own list,
//! [`crate::model::support::SECRETS`], and redact their secrets before they answer.

use super::{Session, State};
use crate::model::attached::Attached;
use crate::model::bucket::SCHEME;
use crate::model::redact::Known;
use crate::model::secret::Secret;
use crate::statedir::IDENTITY;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The sources of secrets.
struct Sources<'a> {
    /// CAs and keys, if the state can be opened.
    state: Option<&'a State>,
    /// The state directory.
    dir: &'a Path,
    /// Passwords and objects in files that the inventory names.
    attached: &'a Attached,
    /// Files with passwords for sudo.
    sudo_files: Vec<PathBuf>,
    /// The password for sudo that a person typed.
    typed: Option<&'a Secret<String>>,
}

/// All secrets that a session knows.
pub(super) fn known(session: &Session, state: Option<&State>) -> Known {
    let sudo_files = session.desired.hosts.iter().filter_map(|host| host.ssh.sudo_password.clone());
    all(&Sources {
        state,
        dir: &session.places.state,
        attached: &session.attached,
        sudo_files: sudo_files.collect(),
        typed: session.sudo_password.as_deref(),
    })
}

fn all(of: &Sources<'_>) -> Known {
    let mut known = Known::default();
    if let Some(state) = of.state {
        for secret in state.contents().secrets() {
            known.value(secret.reveal());
        }
    }
    of_files(of.dir, &mut known);
    if let Some(password) = of.typed {
        known.value(password.reveal());
    }
    for file in &of.sudo_files {
        known.value(text(file).reveal().lines().next().unwrap_or_default());
    }
    for (at, login) in &of.attached.logins {
        known.value(login.reveal());
        let plain = decoded(login.reveal());
        let (user, password) = plain.reveal().split_once(':').unwrap_or_default();
        known.value(password);
        // In object storage, the user is half of the key.
        if at == SCHEME {
            known.value(user);
        }
    }
    for object in of.attached.manifests.iter().map(|m| &m.object).filter(|o| o["kind"] == "Secret") {
        let values =
            |field: &str| object[field].as_object().into_iter().flat_map(|map| map.values()).filter_map(Value::as_str);
        for value in values("data") {
            known.value(value);
            known.value(decoded(value).reveal());
        }
        values("stringData").for_each(|value| known.value(value));
    }
    known
}

/// The secrets in the files of a state directory, each read separately.
fn of_files(dir: &Path, known: &mut Known) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let is = |name: &str| path.file_name().is_some_and(|found| found == name);
        if path.extension().is_some_and(|end| end == "key") {
            known.value(text(&path).reveal());
        } else if is(IDENTITY) || is("kubeconfig") {
            known.file(text(&path).reveal());
        } else if is(crate::statedir::ROTATIONS)
            && let Ok(stored) = serde_json::from_str(text(&path).reveal())
        {
            privates(&stored, false, known);
        }
    }
}

/// The strings below the keys `private` and `retired`.
fn privates(value: &Value, secret: bool, known: &mut Known) {
    match value {
        Value::String(text) if secret => known.value(text),
        Value::Array(all) => all.iter().for_each(|one| privates(one, secret, known)),
        Value::Object(all) => {
            let is = |name: &str| secret || matches!(name, "private" | "retired");
            all.iter().for_each(|(name, one)| privates(one, is(name), known));
        }
        _ => {}
    }
}

/// The content of a file; empty if it cannot be read, because then it cannot have been output either.
fn text(path: &Path) -> Secret<String> {
    Secret::new(fs::read_to_string(path).unwrap_or_default())
}

fn decoded(text: &str) -> Secret<String> {
    let bytes = STANDARD.decode(text).ok();
    Secret::new(bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::redact::Redactor;
    use crate::model::rotation::{Rotatable, Stage};
    use crate::pki::{self, brought::Brought};
    use crate::statedir::{KeyText, Rotation};
    use crate::support::Archive;
    use std::io::Read as _;

    /// All secrets that a cluster can have, each with a canary: state, passwords, keys of object storage.
    struct World {
        folder: tempfile::TempDir,
        attached: Attached,
        typed: Secret<String>,
        canaries: Vec<(String, String)>,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let dir = folder.path().join("state");
            let cluster = "lab".parse().expect("a name");
            let mut state = State::create(&dir, &cluster, Brought::default()).expect("there is space");
            let old = Secret::new(STANDARD.encode([7; 32]));
            let older = Secret::new(STANDARD.encode([8; 32]));
            let next = pki::found(&cluster, Brought::default(), time::OffsetDateTime::now_utc()).expect("keys");
            let mut canaries = vec![
                ("a retired key".to_owned(), old.reveal().clone()),
                ("an older one".to_owned(), older.reveal().clone()),
            ];
            let other = KeyText {
                public: next.etcd.cert_pem().to_owned(),
                private: Secret::new(next.etcd.key().reveal().clone()),
            };
            canaries.push(("the key that is to come".to_owned(), next.etcd.key().reveal().clone()));
            let turn = Rotation { stage: Stage::Spread, other, since_s: 1, everywhere_s: None };
            let rotated = state.rotate(Rotatable::EtcdCa, |_, contents, _| {
                contents.rotations.retired = vec![older, old];
                contents.rotations.under_way.insert(Rotatable::EtcdCa, turn);
                Ok(())
            });
            rotated.expect("it is written");
            let names = ["cluster-ca", "etcd-ca", "front-proxy-ca", "signing-ca", "kubelet-serving-ca"];
            for name in names.into_iter().chain(["service-account", "encryption"]) {
                let key = fs::read_to_string(dir.join(format!("{name}.key"))).expect("it was written");
                canaries.push((name.to_owned(), key.trim().to_owned()));
            }
            let identity = fs::read_to_string(dir.join(IDENTITY)).expect("it was written");
            let identity = identity.lines().find(|line| line.starts_with("AGE-SECRET-KEY-")).expect("a key");
            canaries.push(("the identity".to_owned(), identity.to_owned()));
            fs::write(dir.join("kubeconfig"), "users:\n- user:\n    client-key-data: Y2FuYXJ5LWt1YmVjb25maWc=\n")
                .expect("ours");
            canaries.push(("the kubeconfig".to_owned(), "Y2FuYXJ5LWt1YmVjb25maWc=".to_owned()));
            fs::write(folder.path().join("sudo"), "canary of sudo in a file\n").expect("ours");
            let mut attached = Attached::default();
            for (at, login) in [("r.example", "me:canary-of-a-registry"), (SCHEME, "canary-key-id:canary-of-storage")] {
                attached.logins.insert(at.to_owned(), Secret::new(STANDARD.encode(login)));
                canaries.push((format!("the login of {at}"), STANDARD.encode(login)));
            }
            for word in [
                "canary of sudo in a file",
                "canary of sudo typed",
                "canary-of-a-registry",
                "canary-key-id",
                "canary-of-storage",
            ] {
                canaries.push((word.to_owned(), word.to_owned()));
            }
            Self { folder, attached, typed: Secret::new("canary of sudo typed".to_owned()), canaries }
        }

        fn known(&self) -> Known {
            let dir = self.folder.path().join("state");
            let state = State::open(&dir, &"lab".parse().expect("a name")).ok().flatten();
            all(&Sources {
                state: state.as_ref(),
                dir: &dir,
                attached: &self.attached,
                sudo_files: vec![self.folder.path().join("sudo")],
                typed: Some(&self.typed),
            })
        }

        /// A page with each as it is, in base64, in JSON, and with its lines apart.
        fn page(&self) -> String {
            let each = self.canaries.iter().flat_map(|(_, canary)| {
                let lines = canary.lines().map(|line| format!("host x: {line}")).collect::<Vec<_>>().join("\n");
                [canary.clone(), STANDARD.encode(canary), Value::from(canary.as_str()).to_string(), lines]
            });
            each.collect::<Vec<_>>().join("\nand\n")
        }

        /// The secrets that are left in a text: any line of them that reveals enough.
        fn left(&self, text: &str) -> Vec<&str> {
            let found = self.canaries.iter().filter(|(_, canary)| {
                let mut lines = canary.lines().filter(|line| line.len() >= 8 && !line.starts_with("-----"));
                lines.any(|line| text.contains(line) || text.contains(STANDARD.encode(line).trim_end_matches('=')))
            });
            found.map(|(whose, _)| whose.as_str()).collect()
        }
    }

    #[test]
    fn a_canary_of_each_kind_is_found_in_no_page_that_leaves() {
        let world = World::new();
        assert_eq!(world.left(&world.page()).len(), world.canaries.len(), "each is there before");
        let at = world.folder.path().join("bundle.tar.zst");
        let mut archive =
            Archive::create(&at, "x", &world.known(), time::OffsetDateTime::UNIX_EPOCH).expect("there is space");
        archive.add("page.txt", &world.page(), 0).expect("there is space");
        archive.finish().expect("there is space");
        let mut text = String::new();
        let file = zstd::Decoder::new(fs::File::open(&at).expect("it is there")).expect("zstd");
        let mut tar = tar::Archive::new(file);
        let mut entry = tar.entries().expect("a tar").next().expect("one page").expect("a page");
        entry.read_to_string(&mut text).expect("text");
        assert_eq!(world.left(&text), Vec::<&str>::new(), "{text}");
    }

    #[test]
    fn secrets_of_an_unreadable_state_are_redacted_too() {
        let world = World::new();
        fs::remove_file(world.folder.path().join("state/cluster")).expect("it was written");
        let redactor = Redactor::new(&world.known()).expect("few");
        assert_eq!(world.left(&redactor.strike(&world.page()).0), Vec::<&str>::new());
    }
}

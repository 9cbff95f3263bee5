//! The root of the host's file system: `/` on a host, a temporary directory in tests.
//!
//! In: absolute paths from requests. Out: paths to open. A path that is not absolute or contains `..` is refused.

use crate::agent::machine::run::blocking;
use crate::agent::op_error::{Outcome, bad};
use crate::model::hosting;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// User and group of this process.
pub(crate) fn me() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// The directory that stands for `/`.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// The host's own file system.
    pub fn host() -> Self {
        Self(PathBuf::from("/"))
    }
    /// A directory that stands for `/`, so that file operations can be tested without being root.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }
    /// Whether this is the real file system: then processes, mounts and interfaces belong to it too.
    pub(crate) fn is_host(&self) -> bool {
        self.0 == Path::new("/")
    }
    /// A path named by a request.
    pub(crate) fn path(&self, absolute: &str) -> Outcome<PathBuf> {
        let fine = absolute.len() < 1024
            && absolute.len() > 1
            && !absolute.contains('\0')
            && Path::new(absolute)
                .components()
                .enumerate()
                .all(|(i, c)| if i == 0 { c == Component::RootDir } else { matches!(c, Component::Normal(_)) });
        if fine {
            Ok(self.0.join(&absolute[1..]))
        } else {
            Err(bad(format!("{:?} is not a plain absolute path", absolute.chars().take(200).collect::<String>())))
        }
    }
    /// A file named by a request, where it is now: the manifest of a static pod may be aside.
    pub(crate) fn present(&self, absolute: &str) -> Outcome<PathBuf> {
        let path = self.path(absolute)?;
        let aside = hosting::aside(absolute).map(|aside| self.below(&aside));
        Ok(aside.filter(|aside| !path.exists() && aside.exists()).unwrap_or(path))
    }
    /// A path known to be plain and absolute, because it is a constant of this program.
    pub(crate) fn own(&self, absolute: &'static str) -> PathBuf {
        self.below(absolute)
    }
    /// A path that this program composed.
    pub(crate) fn below(&self, absolute: &str) -> PathBuf {
        self.0.join(absolute.trim_start_matches('/'))
    }
    /// Blocking work on its files, off the event loop.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Outcome<T> + Send + 'static,
    ) -> Outcome<T> {
        let root = self.clone();
        blocking(move || work(&root)).await
    }
    /// Users by name, from the host's `/etc/passwd`: `(name, uid, gid)`.
    ///
    /// Read directly: a static binary must not load the name service libraries of the host.
    fn users(&self) -> Vec<(String, u32, u32)> {
        let text = fs::read_to_string(self.own("/etc/passwd")).unwrap_or_default();
        text.lines()
            .filter_map(|line| {
                let mut fields = line.split(':');
                let (name, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
                Some((name.to_owned(), uid.parse().ok()?, gid.parse().ok()?))
            })
            .collect()
    }
    /// User and primary group of a name; a number stands for itself.
    pub(crate) fn owner(&self, name: &str) -> Outcome<(u32, u32)> {
        if name == "root" {
            return Ok((0, 0));
        }
        if let Some((_, uid, gid)) = self.users().into_iter().find(|(n, ..)| n == name) {
            return Ok((uid, gid));
        }
        name.parse().map(|id| (id, id)).map_err(|_| bad(format!("the user {name:?} does not exist on this host")))
    }
    /// Resolves uids to names; made once for many files.
    pub(crate) fn names(&self) -> impl Fn(u32) -> String + use<> {
        let users = self.users();
        move |uid| users.iter().find(|(_, u, _)| *u == uid).map_or_else(|| uid.to_string(), |(name, ..)| name.clone())
    }
}

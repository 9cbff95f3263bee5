//! The lower file systems of the hosts: each a minimal Debian, created once and cached under a key of its inputs.

use super::error::Result;
use super::files::{self, Lock};
use super::progress::{Note, Progress};
use super::record::Base;
use crate::process::Run;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The packages, one a line: every base has them, and so has the box for Vagrant.
const PACKAGES: &str = include_str!("../../templates/lab/packages");
/// Timeout for a slow mirror.
const TIMEOUT: Duration = Duration::from_mins(20);

/// Files beside the hook that finishes the base.
const PARTS: &[(&str, &str)] = &[
    ("setup.sh", include_str!("../../templates/lab/setup.sh")),
    ("prepare.sh", include_str!("../../templates/lab/prepare.sh")),
    ("prepare.service", include_str!("../../templates/lab/prepare.service")),
    ("tmpfiles.conf", include_str!("../../templates/lab/tmpfiles.conf")),
    ("journald.conf", include_str!("../../templates/lab/journald.conf")),
    ("sshd.conf", include_str!("../../templates/lab/sshd.conf")),
];

/// Bases, and the lock that blocks `purge` until the lab that uses them is recorded.
#[derive(Default)]
pub(crate) struct Claim {
    /// The folder of each.
    pub(crate) bases: BTreeMap<Base, PathBuf>,
    _lock: Option<Lock>,
}

/// The bases from `mirror` (without one, from Debian's own), created if the cache lacks them.
pub(crate) fn ensure(
    cache: &Path,
    wanted: &BTreeSet<Base>,
    mirror: Option<&str>,
    progress: &dyn Progress,
) -> Result<Claim> {
    // A run that needs none does not wait for one that creates some.
    if wanted.is_empty() {
        return Ok(Claim::default());
    }
    let lock = Lock::take(&cache.join("lock"))?;
    let one = |base: &Base| -> Result<(Base, PathBuf)> { Ok((*base, cached(cache, *base, mirror, progress)?)) };
    Ok(Claim { bases: wanted.iter().map(one).collect::<Result<_>>()?, _lock: Some(lock) })
}

/// A base, created if the cache has none; the caller holds the cache's lock.
fn cached(cache: &Path, base: Base, mirror: Option<&str>, progress: &dyn Progress) -> Result<PathBuf> {
    let path = cache.join(format!("base-{}-{}", base.word(), key(base, mirror)));
    if path.is_dir() {
        return Ok(path);
    }
    let begun = Instant::now();
    progress.on(&Note::BaseBegun { path: path.clone() });
    // Only the holder of the lock writes here: existing files are leftovers of a killed run.
    let work = cache.join("making");
    discard(&work)?;
    let made = make(&work, base, mirror).and_then(|root| files::rename(&root, &path));
    discard(&work)?;
    made?;
    progress.on(&Note::BaseMade { path: path.clone(), took: begun.elapsed() });
    Ok(path)
}

/// Removes an incomplete base, unless there is a mount in it.
fn discard(work: &Path) -> Result<()> {
    super::mounts::demand_none(work)?;
    files::remove(work)
}

/// Creates a base in `work` and returns its path.
fn make(work: &Path, base: Base, mirror: Option<&str>) -> Result<PathBuf> {
    super::machine::demand(&["mmdebstrap", "unshare"])?;
    let root = work.join("root");
    for (name, text) in PARTS {
        files::write(&work.join(name), if *name == "setup.sh" { 0o755 } else { 0o644 }, text)?;
    }
    let include = format!("--include={}", packages().collect::<Vec<_>>().join(","));
    let hook = format!("--customize-hook={}", work.join("setup.sh").display());
    // In its own mount namespace: mmdebstrap's mounts disappear with it, even if it is killed.
    let bootstrap = ["--mode=root", "--variant=minbase", "--skip=cleanup/apt", "--aptopt=Acquire::Languages \"none\""];
    let (target, sources) = (root.display().to_string(), sources(base, mirror));
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let run = Run::new("unshare", &["--mount", "--propagation=private", "mmdebstrap"]).words(&bootstrap);
    run.words(&[&include, &hook, base.suite(), &target]).words(&sources).timeout(TIMEOUT).ok()?;
    files::chmod(&root, 0o755)?;
    Ok(root)
}

/// Lines of `sources.list`; empty without a mirror, because mmdebstrap knows Debian's own.
fn sources(base: Base, mirror: Option<&str>) -> Vec<String> {
    let suite = base.suite();
    let lines = |mirror| {
        vec![
            format!("deb {mirror}/debian {suite} main"),
            format!("deb {mirror}/debian {suite}-updates main"),
            format!("deb {mirror}/debian-security {suite}-security main"),
        ]
    };
    mirror.map(lines).unwrap_or_default()
}

/// The names of the packages.
fn packages() -> impl Iterator<Item = &'static str> {
    PACKAGES.lines().filter(|line| !line.starts_with('#'))
}

/// A key that changes with every input of the base (FNV-1a, 64 bits: it names a cache entry and protects nothing).
fn key(base: Base, mirror: Option<&str>) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |text: &str| {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    add(std::env::consts::ARCH);
    add(base.suite());
    for line in &sources(base, mirror) {
        add(line);
    }
    for package in packages() {
        add(package);
    }
    for (name, text) in PARTS {
        add(name);
        add(text);
    }
    format!("{hash:016x}")
}

/// Removes the cached bases that no lab uses; `used` is called under the lock, so that no new lab can interfere.
pub(crate) fn purge(cache: &Path, used: impl FnOnce() -> Result<Vec<PathBuf>>, progress: &dyn Progress) -> Result<()> {
    if !cache.is_dir() {
        return Ok(());
    }
    let lock = Lock::take(&cache.join("lock"))?;
    let used = used()?;
    for name in files::names(cache)? {
        let path = cache.join(&name);
        if used.contains(&path) {
            progress.on(&Note::BaseInUse { path });
        } else if name.starts_with("base-") || name == "making" {
            discard(&path)?;
            progress.on(&Note::Purged { path });
        }
    }
    lock.remove()?;
    files::prune_ours(cache);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_changes_with_the_suite_and_the_mirror_and_not_with_the_run() {
        let mirrors = [None, Some("http://a"), Some("http://b")];
        let keys = move || Base::ALL.into_iter().flat_map(move |base| mirrors.map(|mirror| key(base, mirror)));
        assert!(keys().eq(keys()));
        assert_eq!(keys().collect::<BTreeSet<_>>().len(), Base::ALL.len() * mirrors.len());
    }

    #[test]
    fn packages_are_sorted_and_leave_the_hosts_bare() {
        assert!(packages().is_sorted() && packages().all(|name| !name.contains(char::is_whitespace)));
        assert!(packages().all(|name| !matches!(name, "haproxy" | "keepalived")));
    }

    #[test]
    fn every_part_is_installed_by_the_hook() {
        let (hook, rest) = PARTS.split_first().expect("the hook comes first");
        for (name, _) in rest {
            assert!(hook.1.contains(&format!("$here/{name}")), "setup.sh does not install {name}");
        }
    }
}

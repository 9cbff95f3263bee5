//! The power of other hosts, switched by a program that an operator installs on this one. hactl neither delivers nor
//! changes it.
//!
//! In: the name of a plug-in, the host that it is for. Out: whether that host has power, or that it was switched. The
//! plug-in runs as root, so only root may be able to change it; it gets a clean environment and limited time, and what
//! it prints is cut to one line. Anything but exactly `on` or `off` is no status. Also the file by which the guard asks
//! [`HEAL_UNIT`](crate::model::healing::HEAL_UNIT) to switch the power of a host, and learns what was done.

use crate::agent::machine::files;
use crate::agent::machine::root::{Root, me};
use crate::agent::machine::run::run_clean;
use crate::agent::op_error::{Explain as _, Outcome, failed};
use crate::model::fault::evidence;
use crate::model::healing::{GuardedHost, POWER, POWER_PLUGINS};
use crate::model::names::PluginName;
use crate::model::repair::{Power, Switched};
use crate::protocol::OpError;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

/// How long each call may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Writable by the group or by others.
const SHARED: u32 = 0o022;
/// Executable by its owner.
const EXECUTABLE: u32 = 0o100;
/// The user id of root.
const ROOT: u32 = 0;

/// The plug-in of one host.
#[derive(Debug, Clone)]
pub struct PowerPlugin {
    root: Root,
    name: PluginName,
    host: String,
    address: String,
    /// Who must own it: root, but in tests, which have a root of their own.
    owner: u32,
    within: Duration,
}

impl PowerPlugin {
    /// The plug-in of a host.
    pub fn of(root: &Root, name: &PluginName, host: &GuardedHost) -> Self {
        let (host, address) = (host.name.to_string(), host.address.to_string());
        let owner = if root.is_host() { ROOT } else { me().0 };
        Self { root: root.clone(), name: name.clone(), host, address, owner, within: TIMEOUT }
    }

    /// Whether the host has power.
    ///
    /// # Errors
    /// The plug-in cannot be used, failed, or does not know.
    pub async fn is_on(&self) -> Result<bool, OpError> {
        let said = self.call("status").await?;
        match said.strip_suffix('\n').unwrap_or(&said) {
            "on" => Ok(true),
            "off" => Ok(false),
            other => {
                let what = format!("{} status printed {:?}, neither on nor off", self.name, evidence(other));
                Err(failed(what))
            }
        }
    }

    /// Switches the host on or off.
    ///
    /// # Errors
    /// The plug-in cannot be used, or failed.
    pub async fn switch(&self, on: bool) -> Result<(), OpError> {
        self.call(if on { "on" } else { "off" }).await.map(drop)
    }

    /// Runs it, and returns what it printed.
    async fn call(&self, verb: &str) -> Outcome<String> {
        let path = self.root.below(&format!("{POWER_PLUGINS}/{}", self.name));
        if let Err(why) = check(&path, self.owner) {
            return Err(failed(why));
        }
        let path = path.display().to_string();
        let ran = run_clean(&[&path, verb, &self.host], &[("HACTL_ADDRESS", &self.address)], self.within).await;
        let ran = ran.map_err(|error| failed(evidence(&error.what)))?;
        if ran.ok() {
            return Ok(ran.out);
        }
        let how = ran.code.map_or_else(|| "was killed".to_owned(), |code| format!("exited with {code}"));
        let said = evidence(&format!("{} {}", ran.err, ran.out));
        Err(failed(format!("{} {verb} {} {how}: {said}", self.name, self.host)))
    }
}

/// Whether only this owner can change what runs.
fn check(path: &Path, owner: u32) -> Result<(), String> {
    let meta = |path: &Path| {
        // A link may lead anywhere.
        fs::symlink_metadata(path).map_err(|error| format!("cannot use {}: {error}", path.display()))
    };
    let own = |path: &Path, meta: &Metadata| match () {
        () if meta.uid() != owner => Err(format!("{} is not owned by root", path.display())),
        () if meta.mode() & SHARED != 0 => Err(format!("{} is writable by others than root", path.display())),
        () => Ok(()),
    };
    let folder = path.parent().unwrap_or(path);
    let around = meta(folder)?;
    if !around.is_dir() {
        return Err(format!("{} is not a directory", folder.display()));
    }
    own(folder, &around)?;
    let found = meta(path)?;
    if !found.is_file() || found.mode() & EXECUTABLE == 0 {
        return Err(format!("{} is not an executable regular file", path.display()));
    }
    own(path, &found)
}

/// Asks the program to switch the power of a host; `None`: it shall repair the own member.
pub(super) fn ask(root: &Root, power: Option<&Power>) -> Outcome<()> {
    match power {
        Some(power) => {
            let path = root.own(POWER);
            fs::write(&path, serde_json::to_string(power).unwrap_or_default()).explain("write", &path)
        }
        None => files::remove(&root.own(POWER)),
    }
}

/// What the program was asked to do about power, and what it has done; `None`: nothing.
pub fn power_of(root: &Root) -> Option<Power> {
    serde_json::from_str(&fs::read_to_string(root.own(POWER)).ok()?).ok()
}

/// Stores what is done to the power of a host, before it is done.
///
/// # Errors
/// It cannot be stored.
pub async fn note_power(root: &Root, power: &mut Power, switched: Switched) -> Result<(), OpError> {
    power.switched = switched;
    let power = power.clone();
    root.blocking(move |root| ask(root, Some(&power))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::Role;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// A plug-in with this script, and its path.
    fn plugin(place: &TempDir, script: &str) -> (PowerPlugin, PathBuf) {
        let root = Root::at(place.path());
        let folder = root.below(POWER_PLUGINS);
        fs::create_dir_all(&folder).unwrap();
        set(&folder, 0o755);
        let path = folder.join("bmc");
        let written = place.path().join("script");
        fs::write(&written, format!("#!/bin/sh\n{script}\n")).unwrap();
        // A copy by another process: a file that this one has just written may be open in a child of another test.
        assert!(std::process::Command::new("cp").args([&written, &path]).status().unwrap().success());
        set(&path, 0o700);
        let host = GuardedHost {
            name: "cp3".parse().unwrap(),
            address: [192, 0, 2, 3].into(),
            roles: vec![Role::Etcd],
            balances: false,
            standby: false,
            zone: None,
            power: None,
        };
        let plugin = PowerPlugin::of(&root, &"bmc".parse().unwrap(), &host);
        (plugin, path)
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[tokio::test]
    async fn only_the_exact_words_are_a_status() {
        for (script, status) in [
            ("echo on", Ok(true)),
            ("echo off", Ok(false)),
            ("printf off", Ok(false)),
            ("echo On", Err("printed \"On\", neither on nor off")),
            ("echo 'on off'", Err("printed \"on off\"")),
            ("printf 'on\\n\\n'", Err("printed \"on\"")),
            ("true", Err("printed \"\"")),
            ("printf 'unknown\\033[31m\\nx'", Err("printed \"unknown [31m x\"")),
            ("head -c 9000000 /dev/zero | tr '\\0' x", Err("printed \"xxx")),
            ("echo on; echo no BMC >&2; exit 3", Err("bmc status cp3 exited with 3: no BMC on")),
            ("kill -9 $$", Err("bmc status cp3 was killed")),
        ] {
            let place = tempfile::tempdir().unwrap();
            let found = plugin(&place, script).0.is_on().await;
            match (found, status) {
                (Ok(found), Ok(status)) => assert_eq!(found, status, "{script}"),
                (Err(error), Err(words)) => {
                    assert!(error.what.contains(words) && error.what.len() < 400, "{script}: {error:?}");
                    assert_eq!(error.tail, Vec::<String>::new(), "nothing uncleaned");
                }
                (found, status) => panic!("{script}: {found:?}, not {status:?}"),
            }
        }
    }

    #[tokio::test]
    async fn it_learns_the_verb_the_host_and_its_address_and_nothing_of_the_environment() {
        let place = tempfile::tempdir().unwrap();
        let (plugin, path) = plugin(&place, "echo \"$0 $*\" >\"${0%/*}/said\"; env >>\"${0%/*}/said\"");
        for (on, verb) in [(true, "on"), (false, "off")] {
            plugin.switch(on).await.unwrap();
            let said = fs::read_to_string(path.with_file_name("said")).unwrap();
            let mut lines = said.lines();
            assert_eq!(lines.next(), Some(format!("{} {verb} cp3", path.display()).as_str()));
            let of_shell = ["PWD=", "SHLVL=", "_=", "OLDPWD="];
            let given = lines.filter(|line| !of_shell.iter().any(|name| line.starts_with(name)));
            let mut names: Vec<&str> = given.filter_map(|line| Some(line.split_once('=')?.0)).collect();
            names.sort_unstable();
            assert_eq!(names, ["HACTL_ADDRESS", "LC_ALL", "PATH"]);
            assert!(said.contains("HACTL_ADDRESS=192.0.2.3\n"));
        }
    }

    #[tokio::test]
    async fn one_that_hangs_is_killed_with_what_it_started() {
        let place = tempfile::tempdir().unwrap();
        let (plugin, path) = plugin(&place, "sleep 60 & echo $! >\"${0%/*}/pid\"; wait");
        let plugin = PowerPlugin { within: Duration::from_millis(500), ..plugin };
        let why = plugin.switch(false).await.unwrap_err().what;
        assert!(why.contains("bmc off cp3 did not end within 0.5 s"), "{why}");
        let pid = fs::read_to_string(path.with_file_name("pid")).unwrap();
        let state = || fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        let until = std::time::Instant::now() + Duration::from_secs(5);
        while !state().is_empty() && !state().contains(") Z") {
            assert!(std::time::Instant::now() < until, "{pid} outlived its parent");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn what_others_than_its_owner_could_change_does_not_run() {
        let place = tempfile::tempdir().unwrap();
        let (plugin, path) = plugin(&place, "echo ran >\"${0%/*}/ran\"; echo off");
        let folder = path.parent().unwrap().to_owned();
        let refused = async |words: &str| {
            let why = plugin.is_on().await.unwrap_err().what;
            assert!(why.contains(words), "{why}");
        };
        for (file, mode, words) in [
            (&path, 0o720, "writable by others"),
            (&path, 0o702, "writable by others"),
            (&path, 0o600, "not an executable regular file"),
            (&folder, 0o775, "writable by others"),
            (&folder, 0o757, "writable by others"),
        ] {
            let before = fs::metadata(file).unwrap().mode();
            set(file, mode);
            refused(words).await;
            set(file, before);
        }
        let stranger = PowerPlugin { owner: plugin.owner + 1, ..plugin.clone() };
        assert!(stranger.is_on().await.unwrap_err().what.contains("not owned by root"));
        let elsewhere = place.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        refused("cannot use").await;
        symlink(&elsewhere, &path).unwrap();
        refused("not an executable regular file").await;
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused("not an executable regular file").await;
        fs::remove_dir(&path).unwrap();
        assert!(!folder.join("ran").exists(), "it never ran");
        fs::rename(&elsewhere, &path).unwrap();
        assert!(!plugin.is_on().await.unwrap());
    }

    #[test]
    fn the_program_learns_whose_power_it_switches_and_its_guard_what_it_did() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::at(place.path());
        fs::create_dir_all(root.own("/run/hactl/guard")).unwrap();
        assert_eq!(power_of(&root), None);
        fs::write(root.own(POWER), "{").unwrap();
        assert_eq!(power_of(&root), None);
        fs::write(root.own(POWER), r#"{"host": "cp3", "switched": "left-on"}"#).unwrap();
        let power = Power { host: "cp3".parse().unwrap(), switched: Switched::LeftOn };
        assert_eq!(power_of(&root), Some(power));
        ask(&root, None).unwrap();
        assert_eq!(power_of(&root), None);
    }
}

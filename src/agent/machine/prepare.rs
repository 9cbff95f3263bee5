//! Users, directories, kernel modules, kernel settings, swap, and the firewall if hactl manages it.
//!
//! In: a [`Preparation`]. Out: all of it in place; each part is idempotent.

use crate::agent::host::Host;
use crate::agent::machine::files::write_one;
use crate::agent::machine::firewall;
use crate::agent::machine::root::Root;
use crate::agent::machine::run::{must, run};
use crate::agent::machine::tree::Tree;
use crate::agent::op_error::{Explain, Outcome, bad, failed};
use crate::protocol::{OpError, Preparation};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

const SHORT: Duration = Duration::from_secs(20);
const SWAP_OFF: &str = "# hactl: kubelet needs swap to be off\n";

/// Prepares the host for the files and units.
pub(crate) async fn prepare(host: &Host, preparation: Preparation) -> Outcome<()> {
    let Preparation { users, directories, modules, sysctls, swap_off, openings } = preparation;
    for user in &users {
        add_user(&host.root, user).await?;
    }
    let made =
        move |root: &Root| directories.iter().try_for_each(|(path, owner, mode)| directory(root, path, owner, *mode));
    host.root.blocking(made).await?;
    for module in &modules {
        load(&host.root, module).await?;
    }
    let setting = host.root.blocking(move |root| {
        // All possible settings are set, so that the user sees every one that is not.
        let bad: Vec<String> =
            sysctls.iter().filter_map(|(key, value)| set(root, key, value).err()).map(|f| f.what).collect();
        if bad.is_empty() { Ok(()) } else { Err(OpError { tail: bad.clone(), ..failed(bad.join("; ")) }) }
    });
    setting.await?;
    if swap_off {
        turn_swap_off(&host.root).await?;
    }
    match openings {
        Some(openings) => firewall::open(host, &openings).await,
        None => Ok(()),
    }
}

async fn add_user(root: &Root, user: &str) -> Outcome<()> {
    let plain = !user.is_empty()
        && user.len() <= 31
        && user.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b));
    if !plain || !user.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err(bad(format!("{user:?} is not a valid user name")));
    }
    if let Ok((_, gid)) = root.owner(user) {
        // If killed in between, `useradd` leaves a user without its group, and systemd starts nothing as that user.
        let groups = fs::read_to_string(root.own("/etc/group")).ok();
        return match groups.and_then(|groups| lacking_group(&groups, user, gid)) {
            Some(argv) => must(&argv.iter().map(String::as_str).collect::<Vec<_>>(), SHORT).await.map(|_| ()),
            None => Ok(()),
        };
    }
    let useradd = "useradd --system --user-group --no-create-home --home-dir / --shell /usr/sbin/nologin";
    let argv: Vec<&str> = useradd.split(' ').chain([user]).collect();
    must(&argv, SHORT).await.map(|_| ())
}

/// The command that makes the missing group of a user; with the gid that the user has for it, unless another group
/// has that.
fn lacking_group(groups: &str, user: &str, gid: u32) -> Option<Vec<String>> {
    let known: Vec<(&str, Option<u32>)> = groups
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            Some((fields.next()?, fields.nth(1).and_then(|number| number.parse().ok())))
        })
        .collect();
    if known.iter().any(|(name, _)| *name == user) {
        return None;
    }
    let mut argv = vec!["groupadd".to_owned(), "--system".to_owned()];
    if !known.iter().any(|(_, number)| *number == Some(gid)) {
        argv.extend(["--gid".to_owned(), gid.to_string()]);
    }
    argv.push(user.to_owned());
    Some(argv)
}

/// A directory with this owner and mode, made or corrected.
pub(crate) fn directory(root: &Root, path: &str, owner: &str, mode: u32) -> Outcome<()> {
    Tree::made(&root.path(path)?)?.set(root.owner(owner)?, mode)
}

async fn load(root: &Root, module: &str) -> Outcome<()> {
    let plain = !module.is_empty()
        && module.len() <= 60
        && module.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    if !plain {
        return Err(bad(format!("{module:?} is not the name of a kernel module")));
    }
    // Loaded, or built in and visible there.
    let folder = root.own("/sys/module").join(module.replace('-', "_"));
    if folder.exists() {
        return Ok(());
    }
    let ran = run(&["modprobe", "--", module], SHORT).await?;
    if ran.ok() || folder.exists() || works_without(root, module) {
        return Ok(());
    }
    Err(ran.fault(&format!("modprobe {module}")))
}

/// Whether the kernel has the function of the module although no such module can be loaded, as inside a container or
/// with a built-in one.
fn works_without(root: &Root, module: &str) -> bool {
    let proof = match module.replace('-', "_").as_str() {
        "overlay" => {
            let list = fs::read_to_string(root.own("/proc/filesystems")).unwrap_or_default();
            return list.lines().any(|l| l.split_whitespace().next_back() == Some("overlay"));
        }
        "br_netfilter" => "/proc/sys/net/bridge/bridge-nf-call-iptables",
        "nf_conntrack" => "/proc/sys/net/netfilter/nf_conntrack_max",
        _ => return built_in(root, module),
    };
    root.own(proof).exists()
}

/// Whether the list of built-in modules of the running kernel has it.
fn built_in(root: &Root, module: &str) -> bool {
    let release = rustix::system::uname();
    let list = root.own("/lib/modules").join(release.release().to_string_lossy().as_ref()).join("modules.builtin");
    let wanted = format!("{}.ko", module.replace('-', "_"));
    fs::read_to_string(list)
        .is_ok_and(|text| text.lines().filter_map(|l| l.rsplit('/').next()).any(|f| f.replace('-', "_") == wanted))
}

/// The path of a kernel setting.
pub(crate) fn sysctl_path(root: &Root, key: &str) -> Outcome<PathBuf> {
    let plain = key.len() <= 200
        && key.split('.').all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));
    if !plain {
        return Err(bad(format!("{key:?} is not the name of a kernel setting")));
    }
    root.path(&format!("/proc/sys/{}", key.replace('.', "/")))
}

/// The value of a kernel setting with normalized blanks.
pub(crate) fn sysctl(root: &Root, key: &str) -> Outcome<Option<String>> {
    let text = fs::read_to_string(sysctl_path(root, key)?).ok();
    Ok(text.map(|t| even(&t)))
}

fn even(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn set(root: &Root, key: &str, value: &str) -> Outcome<()> {
    let path = sysctl_path(root, key)?;
    if fs::read_to_string(&path).is_ok_and(|now| even(&now) == even(value)) {
        return Ok(());
    }
    // Opened without creating it: a missing setting is not made.
    let written = fs::OpenOptions::new().write(true).truncate(true).open(&path);
    match written.and_then(|mut setting| setting.write_all(value.as_bytes())) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(failed(format!("this kernel does not have the setting {key}")))
        }
        Err(error) => Err(failed(format!("the kernel rejects {key}={value}: {error}"))),
    }
}

/// Turns swap off now and at the next boot.
async fn turn_swap_off(root: &Root) -> Outcome<()> {
    if swap_in_use(root) {
        must(&["swapoff", "-a"], Duration::from_secs(55)).await?;
    }
    let commenting = root.blocking(|root| {
        let path = root.own("/etc/fstab");
        let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
        let is_swap =
            |line: &str| !line.trim_start().starts_with('#') && line.split_whitespace().nth(2) == Some("swap");
        if !text.lines().any(is_swap) {
            return Ok(());
        }
        let off = |line: &str| if is_swap(line) { format!("{SWAP_OFF}#{line}\n") } else { format!("{line}\n") };
        let after: String = text.lines().map(off).collect();
        let found = fs::metadata(&path).explain("stat", &path)?;
        write_one(path, after.as_bytes(), found.mode() & 0o7777, (found.uid(), found.gid()))
    });
    commenting.await
}

pub(crate) fn swap_in_use(root: &Root) -> bool {
    fs::read_to_string(root.own("/proc/swaps")).is_ok_and(|text| text.lines().skip(1).any(|l| !l.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_its_group_is_given_one_under_its_own_number_if_that_is_free() {
        let groups = "root:x:0:\nnogroup:x:65534:\n";
        let argv = |groups: &str, gid| lacking_group(groups, "etcd", gid).map(|argv| argv.join(" "));
        assert_eq!(argv(groups, 999).as_deref(), Some("groupadd --system --gid 999 etcd"));
        assert_eq!(argv(groups, 65534).as_deref(), Some("groupadd --system etcd"), "the gid belongs to another group");
        assert_eq!(argv("root:x:0:\netcd:x:999:\n", 999), None);
        assert_eq!(argv("etcd:x:998:", 999), None, "systemd asks for the name");
    }
}

//! Packages from the package manager of the host: installed without questions, not started, and (balancers) held.
//!
//! In: package names. Out: all of them installed, or a fault with the end of the package manager's output. A service
//! in a package must not start with its sample configuration: its unit is masked until the installation is over.

use crate::agent::host::Host;
use crate::agent::machine::run::{Ran, must, run, run_with};
use crate::agent::op_error::{Explain, Outcome, bad, failed};
use std::path::Path;
use std::time::Duration;

/// Records the packages whose installation was completed.
const DONE: &str = "/var/lib/hactl/packages";
const SHORT: Duration = Duration::from_secs(60);
/// Its newer versions do not disturb connections: it is not held.
const NOT_HELD: &str = "nftables";
/// How long to wait for the lock of the package manager, and for the download and installation.
const LONG: Duration = Duration::from_secs(580);
/// No questions; services that could be restarted are not. Offline, systemctl enables and does not start, stop or
/// reload anything. A maintainer script requests several reloads of systemd per package, each a quarter of a second
/// of processor time, and one at the end suffices. See systemd's docs/ENVIRONMENT.md.
const QUIET: [(&str, &str); 4] = [
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("NEEDRESTART_SUSPEND", "1"),
    ("APT_LISTCHANGES_FRONTEND", "none"),
    ("SYSTEMD_OFFLINE", "1"),
];

#[derive(Debug, Clone, Copy)]
enum Manager {
    Apt,
    Dnf,
    Zypper,
}

fn manager() -> Outcome<Manager> {
    let has = |name: &str| Path::new("/usr/bin").join(name).exists();
    if has("apt-get") {
        Ok(Manager::Apt)
    } else if has("dnf") {
        Ok(Manager::Dnf)
    } else if has("zypper") {
        Ok(Manager::Zypper)
    } else {
        Err(failed(
            "this host has neither apt-get nor dnf nor zypper: install the packages manually and run the same \
                    command again",
        ))
    }
}

/// Installs missing packages, and holds all of them at their version.
pub(crate) async fn install(host: &Host, packages: &[String], proxy: &[(String, String)]) -> Outcome<()> {
    let plain = |p: &String| {
        !p.is_empty()
            && p.len() <= 100
            && p.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-._".contains(&b))
            && !p.starts_with('-')
    };
    if let Some(odd) = packages.iter().find(|p| !plain(p)) {
        return Err(bad(format!("{odd:?} is not a package name")));
    }
    let manager = manager()?;
    let mut missing = Vec::new();
    for package in packages {
        if !installed(manager, package).await? {
            missing.push(package.as_str());
        }
    }
    if !missing.is_empty() {
        host.waits(format!("the package manager to install {}", missing.join(", ")));
        let services: Vec<String> = missing.iter().map(|p| format!("{p}.service")).collect();
        systemctl(&["mask", "--runtime", "--no-reload"], &services).await?;
        let env = environment(proxy)?;
        let outcome = fetch(host, manager, &missing, &env).await;
        if outcome.is_err() {
            systemctl(&["unmask", "--runtime", "--no-reload"], &services).await?;
        }
        outcome?;
        // Packages enable their service at boot; that is wanted once its configuration exists. A package without a
        // service enables none.
        for service in &services {
            run(&["systemctl", "disable", "--quiet", "--no-reload", service], SHORT).await?;
        }
    }
    // Also after a run that was interrupted between the installation and this.
    let services: Vec<String> = packages.iter().map(|p| format!("{p}.service")).collect();
    systemctl(&["unmask", "--runtime", "--no-reload"], &services).await?;
    must(&["systemctl", "daemon-reload"], SHORT).await?;
    hold(manager, packages).await?;
    // An existing program may belong to a package that was never configured; this records that everything was done.
    for package in packages {
        let done = host.root.own(DONE).join(package);
        std::fs::create_dir_all(&done).explain("create", &done)?;
    }
    Ok(())
}

/// The environment of the package manager: ours, and the proxy variables in both spellings, because programs read
/// either.
fn environment(proxy: &[(String, String)]) -> Outcome<Vec<(&str, &str)>> {
    const KNOWN: [&str; 6] = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"];
    if let Some((odd, _)) = proxy.iter().find(|(name, _)| !KNOWN.contains(&name.as_str())) {
        return Err(bad(format!("{odd:?} is not a proxy variable")));
    }
    Ok(QUIET.into_iter().chain(proxy.iter().map(|(name, value)| (name.as_str(), value.as_str()))).collect())
}

async fn systemctl(verb: &[&str], services: &[String]) -> Outcome<()> {
    let mut argv = vec!["systemctl", "--quiet"];
    argv.extend(verb);
    argv.extend(services.iter().map(String::as_str));
    must(&argv, SHORT).await.map(|_| ())
}

async fn installed(manager: Manager, package: &str) -> Outcome<bool> {
    Ok(match manager {
        Manager::Apt => {
            let ran = run(&["dpkg-query", "-W", "-f", "${db:Status-Status}", package], SHORT).await?;
            ran.ok() && ran.out == "installed"
        }
        Manager::Dnf | Manager::Zypper => run(&["rpm", "-q", "--quiet", package], SHORT).await?.ok(),
    })
}

/// An installation by apt that asks nothing and waits for other installations.
const APT_INSTALL: &str = "apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 \
                           -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold -o Dpkg::Use-Pty=0";

fn apt_install(more: &'static [&str]) -> Vec<&'static str> {
    APT_INSTALL.split(' ').chain(more.iter().copied()).collect()
}

async fn attempt(manager: Manager, missing: &[&str], env: &[(&str, &str)]) -> Outcome<Ran> {
    let head: &[&str] = match manager {
        Manager::Apt => &apt_install(&["--"]),
        Manager::Dnf => &["dnf", "install", "-y", "-q", "--setopt=install_weak_deps=False", "--"],
        Manager::Zypper => &["zypper", "--non-interactive", "--quiet", "install", "--no-recommends", "--"],
    };
    run_with(&[head, missing].concat(), env, LONG).await
}

async fn fetch(host: &Host, manager: Manager, missing: &[&str], env: &[(&str, &str)]) -> Outcome<()> {
    let first = attempt(manager, missing, env).await?;
    if first.ok() {
        return Ok(());
    }
    // Either an installation was interrupted, or the package lists are older than the mirror.
    if matches!(manager, Manager::Apt) {
        if interrupted(&first) {
            host.waits("dpkg to finish an interrupted installation");
            run_with(&["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"], env, LONG).await?;
        }
        host.waits("apt-get to update its lists");
        let ran = run_with(&["apt-get", "update", "-q", "-o", "DPkg::Lock::Timeout=300"], env, LONG).await?;
        if !ran.ok() {
            return Err(ran.fault("apt-get update"));
        }
        reinstall(host, env).await?;
        host.waits(format!("the package manager to install {}", missing.join(", ")));
    }
    let second = attempt(manager, missing, env).await?;
    if second.ok() { Ok(()) } else { Err(second.fault(&format!("installing {}", missing.join(", ")))) }
}

fn interrupted(ran: &Ran) -> bool {
    ran.err.contains("dpkg was interrupted") || ran.out.contains("dpkg was interrupted")
}

/// Unpacks the packages again whose unpacking was killed: until then dpkg configures neither that package nor any
/// that depends on it, and apt does not do it automatically.
async fn reinstall(host: &Host, env: &[(&str, &str)]) -> Outcome<()> {
    let listed = must(&["dpkg-query", "-W", "-f", "${db:Status-Eflag} ${binary:Package}\n"], SHORT).await?;
    let half = half_unpacked(&listed);
    if half.is_empty() {
        return Ok(());
    }
    host.waits(format!("apt-get to reinstall {}, which is half unpacked", half.join(", ")));
    let ran = run_with(&[apt_install(&["--reinstall", "--"]), half.clone()].concat(), env, LONG).await?;
    if ran.ok() {
        Ok(())
    } else {
        Err(ran.fault(&format!("reinstalling {}, which was half unpacked,", half.join(", "))))
    }
}

/// The packages whose error flag requires a reinstallation; dpkg-query(1) documents the flags.
fn half_unpacked(listed: &str) -> Vec<&str> {
    listed.lines().filter_map(|l| l.strip_prefix("reinstreq ")).map(str::trim).collect()
}

/// Prevents unattended upgrades from restarting the balancers.
async fn hold(manager: Manager, packages: &[String]) -> Outcome<()> {
    let names: Vec<&str> = packages.iter().map(String::as_str).filter(|name| *name != NOT_HELD).collect();
    if names.is_empty() {
        return Ok(());
    }
    match manager {
        Manager::Apt => {
            let held = run(&["apt-mark", "showhold"], SHORT).await?.out;
            if names.iter().all(|n| held.lines().any(|l| l == *n)) {
                return Ok(());
            }
            must(&[&["apt-mark", "hold"], names.as_slice()].concat(), SHORT).await.map(|_| ())
        }
        Manager::Dnf => {
            // The plugin is not available everywhere; without it the packages are installed, but not held.
            run(&[&["dnf", "-q", "versionlock", "add"], names.as_slice()].concat(), SHORT).await.map(|_| ())
        }
        Manager::Zypper => {
            must(&[&["zypper", "--non-interactive", "--quiet", "addlock"], names.as_slice()].concat(), SHORT)
                .await
                .map(|_| ())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_that_a_killed_installation_left_half_unpacked_are_found() {
        let listed = "ok adduser\nreinstreq libglib2.0-0:amd64\nok keepalived\nreinstreq haproxy\n";
        assert_eq!(half_unpacked(listed), ["libglib2.0-0:amd64", "haproxy"]);
        assert!(half_unpacked("ok adduser\n").is_empty());
    }

    #[test]
    fn nothing_but_a_proxy_reaches_the_package_managers_environment() {
        let of = |name: &str| vec![(name.to_owned(), "http://proxy.example:3128".to_owned())];
        assert!(environment(&of("http_proxy")).unwrap().contains(&("http_proxy", "http://proxy.example:3128")));
        assert!(environment(&of("LD_PRELOAD")).is_err());
    }
}

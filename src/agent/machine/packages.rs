//! Packages, installed by the package manager of the host: without questions, not started, and (balancers) held.
//!
//! In: package names, and from where they come. Out: all of them installed, or a fault with the end of the package
//! manager's output. A service in a package must not start with its sample configuration: its unit is masked until the
//! installation is over.

use crate::agent::host::Host;
use crate::agent::machine::run::{Ran, must, run, run_with};
use crate::agent::op_error::{Explain, Outcome, bad, failed};
use crate::agent::parts::repository::Repository;
use crate::model::target::INSTALLED;
use crate::protocol::{OpError, PackageSource};
use regex::Regex;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_secs(60);
/// How long it may take to verify a file; a survey waits for it.
const VERIFY: Duration = Duration::from_secs(10);
/// Its newer versions do not disturb connections: it is not held.
const NOT_HELD: &str = "nftables";
/// How long to wait for the locks of the package manager, and for the download and installation.
const LONG: Duration = Duration::from_secs(580);
/// Between two attempts while another program has such a lock.
const AGAIN: Duration = Duration::from_secs(3);
/// The lines with which apt, dpkg, dnf, rpm and zypper report that another program has a lock. If a lock file cannot be
/// opened, as on a read-only file system, waiting does not help.
static LOCKED: LazyLock<Regex> = LazyLock::new(|| {
    let lines = [
        r"E: Could not get lock .*(?:held by process|\(11: ).*",
        "dpkg: error: .* locked by another process.*",
        "Waiting for process with pid .*",
        ".*Failed to obtain rpm transaction lock.*",
        ".*can't create transaction lock on .*",
        "System management is locked by .*",
    ];
    Regex::new(&format!(r"(?m)^\s*(?:{})$", lines.join("|"))).expect("the pattern is constant; a test uses it")
});
/// The program that has the lock, as these lines name it.
static HOLDER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(?:process|pid) (\d+(?: \([^()]*\))?)").expect("the pattern is constant; a test uses it")
});
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
pub(crate) async fn install(host: &Host, packages: &[String], from: &PackageSource) -> Outcome<()> {
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
    let env = environment(from)?;
    let until = Instant::now() + LONG;
    let mut missing = Vec::new();
    for package in packages {
        if !installed(manager, package).await? {
            missing.push(package.as_str());
        }
    }
    // Removed at the end, and also if the installation fails or is interrupted.
    let repository = if missing.is_empty() { None } else { repository(host, manager, from, &missing).await? };
    let options = repository.as_ref().map(Repository::options).unwrap_or_default();
    let work = Work { host, env: &env, apt: &options, until, again: AGAIN };
    if !missing.is_empty() {
        let services: Vec<String> = missing.iter().map(|p| format!("{p}.service")).collect();
        systemctl(&["mask", "--runtime", "--no-reload"], &services).await?;
        let outcome = fetch(&work, manager, &missing).await;
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
    hold(&work, manager, packages).await?;
    // An existing program may belong to a package that was never configured; this records that everything was done.
    for package in packages {
        let done = host.root.own(INSTALLED).join(package);
        std::fs::create_dir_all(&done).explain("create", &done)?;
    }
    Ok(())
}

/// The repository from which alone packages are installed; `None`: the host's own sources are used.
async fn repository(
    host: &Host,
    manager: Manager,
    from: &PackageSource,
    missing: &[&str],
) -> Outcome<Option<Repository>> {
    match (from, manager) {
        (PackageSource::Host { .. }, _) => Ok(None),
        (PackageSource::Bundle(Some(part)), Manager::Apt) => Repository::of(host, part).await.map(Some),
        (PackageSource::Bundle(Some(part)), _) => {
            Err(bad(format!("the packages for {} are not for the package manager of this host", part.version)))
        }
        (PackageSource::Bundle(None), _) => Err(failed(format!(
            "{} is not installed completely, and no packages of the bundle were delivered to this host: run the same \
             command again, which delivers them, or install it manually",
            missing.join(", ")
        ))),
    }
}

/// The environment of the package manager: ours, and the proxy variables in both spellings, because programs read
/// either.
fn environment(from: &PackageSource) -> Outcome<Vec<(&str, &str)>> {
    const KNOWN: [&str; 6] = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"];
    let proxy = match from {
        PackageSource::Host { proxy } => proxy.as_slice(),
        PackageSource::Bundle(_) => &[],
    };
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

/// Whether a file belongs to a package and is as that package installed it. A package manager that is missing, fails or
/// is slow vouches for no file, so that the file counts as one of others.
pub(crate) async fn is_as_installed(path: &str) -> bool {
    is_vouched(path, verified(path)).await
}

/// Whether the report about a file comes in time and says that the file is unchanged.
async fn is_vouched(path: &str, report: impl Future<Output = Outcome<Option<String>>>) -> bool {
    matches!(tokio::time::timeout(VERIFY, report).await, Ok(Ok(Some(text))) if !is_changed(&text, path))
}

/// The report of the package manager about the package of a file; `None`: the file belongs to none, or the package
/// could not be verified.
async fn verified(path: &str) -> Outcome<Option<String>> {
    let ran = match manager()? {
        Manager::Apt => {
            let found = run(&["dpkg-query", "--search", path], VERIFY).await?;
            let Some((owner, _)) = found.out.split_once(": ").filter(|_| found.ok()) else { return Ok(None) };
            let ran = run(&["dpkg", "--verify", owner], VERIFY).await?;
            // It exits with 2 if it could not verify the package.
            if ran.code.is_none_or(|code| code > 1) {
                return Ok(None);
            }
            ran
        }
        Manager::Dnf | Manager::Zypper => {
            if !run(&["rpm", "--query", "--quiet", "--file", path], VERIFY).await?.ok() {
                return Ok(None);
            }
            run(&["rpm", "--verify", "--nodeps", "--noscripts", "--file", path], VERIFY).await?
        }
    };
    Ok(Some(ran.out))
}

/// Whether dpkg or rpm says that a file has another content than in its package; dpkg(1) and rpm(8) document the lines.
fn is_changed(verified: &str, path: &str) -> bool {
    let of_it = |line: &&str| line.split_whitespace().next_back() == Some(path);
    verified.lines().filter(of_it).any(|line| line.chars().nth(2) == Some('5'))
}

/// An installation by apt that asks nothing.
const APT_INSTALL: &str = "install -y -q --no-install-recommends -o Dpkg::Options::=--force-confdef \
                           -o Dpkg::Options::=--force-confold -o Dpkg::Use-Pty=0";

/// One installation, all of whose programs must end by the same time.
struct Work<'a> {
    host: &'a Host,
    env: &'a [(&'a str, &'a str)],
    /// The options with which apt-get uses a repository of its own.
    apt: &'a [String],
    until: Instant,
    again: Duration,
}

impl<'a> Work<'a> {
    /// The arguments of apt-get, the words of a verb with its options first.
    fn apt_get(&self, verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let options = self.apt.iter().map(String::as_str);
        ["apt-get"].into_iter().chain(options).chain(verb.split(' ')).chain(more.iter().copied()).collect()
    }

    /// Reads the lists of packages.
    async fn update(&self) -> Outcome<()> {
        let ran = self.run("apt-get to update its lists", &self.apt_get("update -q", &[])).await?;
        if ran.ok() { Ok(()) } else { Err(ran.fault("apt-get update")) }
    }

    /// Runs a program, and runs it again as long as another program has a lock that it needs. `on` says what for.
    async fn run(&self, on: &str, argv: &[&str]) -> Outcome<Ran> {
        loop {
            self.host.waits(on);
            let ran = run_with(argv, self.env, self.until.saturating_duration_since(Instant::now())).await;
            let holder = match &ran {
                Ok(ran) if ran.ok() => None,
                Ok(ran) => lock_holder(&format!("{}\n{}", ran.out, ran.err)),
                // It waits for the lock itself.
                Err(fault) => lock_holder(&fault.tail.join("\n")),
            };
            let Some(holder) = holder else { return ran };
            if Instant::now() + self.again >= self.until {
                let what = format!(
                    "the package manager is locked by {holder}, which did not end in time; wait until it ends, or end \
                     it, and run the same command again"
                );
                return Err(OpError { tail: ran.map_or_else(|fault| fault.tail, |ran| ran.tail()), ..failed(what) });
            }
            self.host.waits(format!("the lock of the package manager, held by {holder}"));
            tokio::time::sleep(self.again).await;
        }
    }
}

/// The program that has a lock of the package manager, in words, if the output says that this was the failure.
fn lock_holder(output: &str) -> Option<String> {
    let line = LOCKED.find(output)?.as_str();
    let named = HOLDER.captures(line).and_then(|found| found.get(1));
    Some(named.map_or_else(|| "another process".to_owned(), |process| format!("process {}", process.as_str())))
}

async fn attempt(work: &Work<'_>, manager: Manager, missing: &[&str]) -> Outcome<Ran> {
    let head: &[&str] = match manager {
        Manager::Apt => &work.apt_get(APT_INSTALL, &["--"]),
        Manager::Dnf => &["dnf", "install", "-y", "-q", "--setopt=install_weak_deps=False", "--"],
        Manager::Zypper => &["zypper", "--non-interactive", "--quiet", "install", "--no-recommends", "--"],
    };
    work.run(&format!("the package manager to install {}", missing.join(", ")), &[head, missing].concat()).await
}

async fn fetch(work: &Work<'_>, manager: Manager, missing: &[&str]) -> Outcome<()> {
    // A repository that was just unpacked has no lists yet.
    if !work.apt.is_empty() {
        work.update().await?;
    }
    let first = attempt(work, manager, missing).await?;
    if first.ok() {
        return Ok(());
    }
    // Either an installation was interrupted, or the package lists are older than the mirror.
    if matches!(manager, Manager::Apt) {
        if interrupted(&first) {
            let finish = ["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"];
            work.run("dpkg to finish an interrupted installation", &finish).await?;
        }
        work.update().await?;
        reinstall(work).await?;
    }
    let second = attempt(work, manager, missing).await?;
    if second.ok() { Ok(()) } else { Err(second.fault(&format!("installing {}", missing.join(", ")))) }
}

fn interrupted(ran: &Ran) -> bool {
    ran.err.contains("dpkg was interrupted") || ran.out.contains("dpkg was interrupted")
}

/// Unpacks the packages again whose unpacking was killed: until then dpkg configures neither that package nor any
/// that depends on it, and apt does not do it automatically.
async fn reinstall(work: &Work<'_>) -> Outcome<()> {
    let listed = must(&["dpkg-query", "-W", "-f", "${db:Status-Eflag} ${binary:Package}\n"], SHORT).await?;
    let half = half_unpacked(&listed);
    if half.is_empty() {
        return Ok(());
    }
    let on = format!("apt-get to reinstall {}, which is half unpacked", half.join(", "));
    let ran = work.run(&on, &[work.apt_get(APT_INSTALL, &["--reinstall", "--"]), half.clone()].concat()).await?;
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
async fn hold(work: &Work<'_>, manager: Manager, packages: &[String]) -> Outcome<()> {
    let names: Vec<&str> = packages.iter().map(String::as_str).filter(|name| *name != NOT_HELD).collect();
    if names.is_empty() {
        return Ok(());
    }
    let head: &[&str] = match manager {
        Manager::Apt => {
            let held = run(&["apt-mark", "showhold"], SHORT).await?.out;
            if names.iter().all(|n| held.lines().any(|l| l == *n)) {
                return Ok(());
            }
            &["apt-mark", "hold"]
        }
        Manager::Dnf => &["dnf", "-q", "versionlock", "add"],
        Manager::Zypper => &["zypper", "--non-interactive", "--quiet", "addlock"],
    };
    let argv = [head, names.as_slice()].concat();
    let ran = work.run("the package manager to hold the packages at their version", &argv).await?;
    // dnf's plugin is not available everywhere; without it the packages are installed, but not held.
    if ran.ok() || matches!(manager, Manager::Dnf) { Ok(()) } else { Err(ran.fault(&argv.join(" "))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::machine::root::Root;

    #[test]
    fn packages_that_a_killed_installation_left_half_unpacked_are_found() {
        let listed = "ok adduser\nreinstreq libglib2.0-0:amd64\nok keepalived\nreinstreq haproxy\n";
        assert_eq!(half_unpacked(listed), ["libglib2.0-0:amd64", "haproxy"]);
        assert!(half_unpacked("ok adduser\n").is_empty());
    }

    #[test]
    fn a_file_is_changed_if_its_content_is_said_to_differ() {
        let path = "/etc/haproxy/haproxy.cfg";
        for line in [format!("??5?????? c {path}"), format!("S.5....T.  c {path}\n.M.......    /usr/sbin/haproxy")] {
            assert!(is_changed(&line, path), "{line}");
        }
        for line in [format!(".M....G..  c {path}"), "??5?????? c /etc/default/haproxy".to_owned(), String::new()] {
            assert!(!is_changed(&line, path), "{line}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_that_fails_or_takes_longer_than_ten_seconds_vouches_for_no_file() {
        let path = "/etc/haproxy/haproxy.cfg";
        let vouched = async |after_s: u64, report: Outcome<Option<&'static str>>| {
            let slow = async {
                tokio::time::sleep(Duration::from_secs(after_s)).await;
                report.map(|text| text.map(str::to_owned))
            };
            is_vouched(path, slow).await
        };
        assert!(vouched(9, Ok(Some(""))).await);
        assert!(!vouched(9, Ok(Some("??5?????? c /etc/haproxy/haproxy.cfg"))).await, "it is changed");
        assert!(!vouched(11, Ok(Some(""))).await, "it is late");
        assert!(!vouched(1, Ok(None)).await && !vouched(1, Err(failed("dpkg is locked"))).await);
    }

    #[test]
    fn the_program_that_has_a_lock_is_named_and_other_failures_are_not_taken_for_locks() {
        let apt = "E: Could not get lock /var/lib/apt/lists/lock";
        let archives = "/var/cache/apt/archives/";
        for (output, holder) in [
            (format!("E: Could not get lock {archives}lock. It is held by process 83 (perl)"), "process 83 (perl)"),
            (format!("Reading...\n{apt}. It is held by process 1 (a b)\nE: Unable to lock it"), "process 1 (a b)"),
            (format!("{apt} - open (11: Resource temporarily unavailable)"), "another process"),
            ("dpkg: error: dpkg frontend lock was locked by another process with pid 8168".into(), "process 8168"),
            ("dpkg: error: dpkg status database is locked by another process\n".into(), "another process"),
            ("Waiting for process with pid 2314 to finish.".into(), "process 2314"),
            ("Transaction failed: Failed to obtain rpm transaction lock. Another one is".into(), "another process"),
            ("error: can't create transaction lock on /var/lib/rpm/.rpm.lock (Resource".into(), "another process"),
            ("System management is locked by the application with pid 5 (zypper).\nClose".into(), "process 5 (zypper)"),
        ] {
            assert_eq!(lock_holder(&output).as_deref(), Some(holder), "{output}");
        }
        for output in [
            "E: Unable to locate package keepalived",
            "E: Could not open lock file /x - open (30: Read-only file system)\nE: Unable to lock directory /x",
            "E: Could not get lock /x - open (37: No locks available)",
            "Waiting for cache lock: Could not get lock /x. It is held by process 7 (apt-get)\nE: Failed to fetch it",
        ] {
            assert_eq!(lock_holder(output), None, "{output}");
        }
    }

    /// A package manager that is locked as often as its argument says; it counts in a file.
    const LOCKED_AT_FIRST: &str = "n=$(cat \"$0\" 2>/dev/null || echo 0); echo $((n + 1)) >\"$0\"
        [ \"$n\" -ge \"$1\" ] || { echo 'E: Could not get lock /x. It is held by process 83 (perl)' >&2; exit 100; }";

    #[tokio::test]
    async fn a_lock_is_waited_for_until_the_time_of_the_installation_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::new(Root::at(folder.path()));
        let count = folder.path().join("count").display().to_string();
        let again = Duration::from_millis(200);
        let work = Work { host: &host, env: &[], apt: &[], until: Instant::now() + Duration::from_secs(60), again };
        let held = async {
            while host.waiting_on() != "the lock of the package manager, held by process 83 (perl)" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let twice = ["sh", "-c", LOCKED_AT_FIRST, &count, "2"];
        let held = tokio::time::timeout(Duration::from_secs(30), held);
        let (ran, held) = tokio::join!(work.run("the package manager", &twice), held);
        assert!(ran.unwrap().ok() && held.is_ok());
        assert_eq!(host.waiting_on(), "the package manager", "it is no longer the lock");

        let work = Work { until: Instant::now() + Duration::from_secs(20), again: Duration::from_secs(60), ..work };
        let always = ["sh", "-c", LOCKED_AT_FIRST, &count, "1000"];
        let fault = work.run("the package manager", &always).await.unwrap_err();
        assert!(fault.what.contains("is locked by process 83 (perl), which did not end in time"), "{fault:?}");
        assert_eq!(fault.tail, ["E: Could not get lock /x. It is held by process 83 (perl)"]);
    }

    #[test]
    fn nothing_but_a_proxy_reaches_the_package_managers_environment() {
        let of =
            |name: &str| PackageSource::Host { proxy: vec![(name.to_owned(), "http://proxy.example:3128".to_owned())] };
        assert!(environment(&of("http_proxy")).unwrap().contains(&("http_proxy", "http://proxy.example:3128")));
        assert!(environment(&of("LD_PRELOAD")).is_err());
    }
}

//! Diagnostics of this host for a user without access to it: journals, logs of pods, the kernel, disks, network.
//!
//! In: units and files ([`GatherAsk`]). Out: pages of text, each with its newest part if it is long, without secrets.
//! The content of key files and of mounted Secrets on this host is known and redacted before anything leaves the
//! host, and so is everything that resembles a secret ([`crate::model::redact`]). Changes nothing. Unavailable data
//! becomes a page with the reason.

use crate::agent::host::Host;
use crate::agent::machine::root::Root;
use crate::agent::machine::run::run;
use crate::agent::op_error::{Outcome, failed};
use crate::model::redact::{Known, Redactor};
use crate::model::support::{GatherAsk, Page, SECRETS, is_place};
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long one program may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Text of one page, bytes.
const PAGE: usize = 512 << 10;
/// Text of all pages, bytes: at worst twice that as JSON, which is below [`crate::protocol::LARGEST_FRAME`].
const ALL: usize = 6 << 20;
/// Lines of one journal.
const LINES: &str = "4000";
/// The newest logs of one container: the running one and its predecessor.
const LOGS: usize = 2;
/// Larger than any file with a secret.
const LARGEST_SECRET: u64 = 64 << 10;
/// The depth of the search for files with secrets.
const DEEP: usize = 12;

/// Files of the kernel.
const FILES: [(&str, &str); 12] = [
    ("os-release", "/etc/os-release"),
    ("hosts", "/etc/hosts"),
    ("resolv.conf", "/etc/resolv.conf"),
    ("kernel", "/proc/version"),
    ("command-line", "/proc/cmdline"),
    ("load", "/proc/loadavg"),
    ("memory", "/proc/meminfo"),
    ("mounts", "/proc/self/mounts"),
    ("modules", "/proc/modules"),
    ("pressure-cpu", "/proc/pressure/cpu"),
    ("pressure-memory", "/proc/pressure/memory"),
    ("pressure-io", "/proc/pressure/io"),
];
/// Output of programs, if they are installed.
const PROGRAMS: [(&str, &[&str]); 21] = [
    ("time", &["timedatectl"]),
    ("boots", &["journalctl", "--list-boots", "--no-pager", "-q"]),
    ("kernel.log", &["journalctl", "-k", "-n", "2000", "-o", "short-iso-precise", "--no-pager", "-q"]),
    ("warnings.log", &["journalctl", "-p", "warning", "-n", "2000", "-o", "short-iso-precise", "--no-pager", "-q"]),
    ("units-failed", &["systemctl", "list-units", "--failed", "--no-pager", "--plain"]),
    ("units", &["systemctl", "list-units", "--type=service,timer,mount,swap", "--all", "--no-pager", "--plain"]),
    ("processes", &["ps", "-eo", "pid,ppid,user:16,stat,rss,etime,args", "--sort=pid", "-ww"]),
    ("disks", &["df", "-hT"]),
    ("inodes", &["df", "-i"]),
    ("block-devices", &["lsblk", "-o", "NAME,TYPE,SIZE,ROTA,MOUNTPOINTS"]),
    ("addresses", &["ip", "-d", "address"]),
    ("routes", &["ip", "route", "show", "table", "all"]),
    ("neighbours", &["ip", "neighbour"]),
    ("listeners", &["ss", "-Hltnup"]),
    ("sockets", &["ss", "-s"]),
    ("nftables", &["nft", "list", "ruleset"]),
    ("iptables", &["iptables-save"]),
    ("containers", &["crictl", "ps", "-a"]),
    ("pod-sandboxes", &["crictl", "pods"]),
    ("images", &["crictl", "images"]),
    (
        "files",
        &[
            "ls",
            "-lanR",
            "/etc/kubernetes",
            "/etc/etcd",
            "/etc/haproxy",
            "/etc/keepalived",
            "/var/lib/hactl",
            "/var/lib/etcd",
        ],
    ),
];
/// The directory of the volumes of pods, tokens and Secrets among them.
const PODS: &str = "/var/lib/kubelet/pods";
const TOKENS: [&str; 2] = ["kubernetes.io~projected", "kubernetes.io~secret"];
/// Logs of containers, in kubelet's layout: `NAMESPACE_POD_UID/CONTAINER/N.log`.
const LOG_DIR: &str = "/var/log/pods";
/// The namespace of the cluster's own pods; logs of applications are not gathered.
const OURS: &str = "kube-system_";

/// Gathers everything.
pub(crate) async fn gather(host: &Host, ask: GatherAsk) -> Outcome<Vec<Page>> {
    host.waits("journals and logs to be gathered");
    let reading = host.root.blocking(move |root| {
        let redactor = Redactor::new(&known(root)).map_err(failed)?;
        Ok((redactor, texts_of_files(root, &ask.files)))
    });
    let (redactor, files) = reading.await?;
    let mut album = Album { redactor, left: ALL, pages: Vec::new() };
    // The most important pages come first: if everything is too much, the rest is omitted.
    if host.root.is_host() {
        let since = format!("-{}h", ask.hours.clamp(1, 24 * 366));
        for unit in &ask.units {
            let argv = ["journalctl", "-u", unit.as_str(), "--since", &since, "-n", LINES, "-o", "short-iso-precise"];
            let argv = [&argv[..], &["--no-pager", "-q"]].concat();
            album.add(format!("units/{unit}.log"), said(&argv).await);
            let argv = ["systemctl", "status", "--no-pager", "-l", "-n", "0", unit.as_str()];
            album.add(format!("units/{unit}.status"), said(&argv).await);
        }
    }
    let logs = host.root.blocking(|root| Ok(logs(root))).await?;
    for (name, text) in logs.into_iter().chain(files) {
        album.add(name, text);
    }
    for (name, path) in FILES {
        album.add(format!("system/{name}"), read_end(&host.root.own(path)));
    }
    if host.root.is_host() {
        for (name, argv) in PROGRAMS {
            album.add(format!("system/{name}"), said(argv).await);
        }
    }
    Ok(album.pages)
}

/// Pages so far, and the remaining space.
struct Album {
    redactor: Redactor,
    left: usize,
    pages: Vec<Page>,
}

impl Album {
    fn add(&mut self, name: String, text: String) {
        if !is_place(&name) {
            return;
        }
        // Text is redacted before it is shortened: half a secret is a secret, too.
        let (text, struck) = self.redactor.strike(&text);
        let text: String =
            text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '?' } else { c }).collect();
        let room = PAGE.min(self.left);
        let from = if text.len() <= room { 0 } else { line_from(&text, text.len() - room) };
        self.left -= text.len() - from;
        self.pages.push(Page { name, text: text[from..].to_owned(), left_out: from as u64, struck });
    }
}

/// The beginning of the first complete line at or after an offset.
fn line_from(text: &str, at: usize) -> usize {
    text.as_bytes()[at..].iter().position(|b| *b == b'\n').map_or(text.len(), |end| at + end + 1)
}

/// The output of a program, or why there is none.
async fn said(argv: &[&str]) -> String {
    match run(argv, TIMEOUT).await {
        Ok(ran) if ran.ok() => ran.out,
        Ok(ran) => format!("{}{}({} exited with {:?})\n", ran.out, ran.err, argv.join(" "), ran.code),
        Err(fault) => format!("{}\n({})\n", fault.tail.join("\n"), fault.what),
    }
}

/// The end of a file, from a complete line on.
fn read_end(path: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = fs::File::open(path)?;
        let size = file.metadata()?.len();
        let limit = 4 * PAGE as u64;
        let cut = size > limit;
        if cut {
            file.seek(SeekFrom::Start(size - limit))?;
        }
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(if cut { text[line_from(&text, 0)..].to_owned() } else { text })
    };
    read().unwrap_or_else(|error| format!("({}: {error})\n", path.display()))
}

/// The requested files, if they are world-readable.
fn texts_of_files(root: &Root, files: &[String]) -> Vec<(String, String)> {
    let one = |name: &String| {
        let path = root.path(name).ok()?;
        let text = match fs::metadata(&path) {
            Ok(found) if found.permissions().mode() & 0o004 == 0 => {
                format!(
                    "(not shown: only its owner may read it; {} bytes, mode {:o})\n",
                    found.len(),
                    found.permissions().mode() & 0o777
                )
            }
            Ok(_) => read_end(&path),
            Err(error) => format!("({error})\n"),
        };
        Some((format!("files{name}"), text))
    };
    files.iter().take(500).filter_map(one).collect()
}

/// The newest logs of each container of the cluster's own pods.
fn logs(root: &Root) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for pod in entries(&root.own(LOG_DIR)).into_iter().filter(|p| name(p).starts_with(OURS)) {
        for container in entries(&pod) {
            let mut logs: Vec<(SystemTime, PathBuf)> = entries(&container)
                .into_iter()
                .filter(|p| p.extension().is_some_and(|e| e == "log"))
                .filter_map(|p| Some((fs::metadata(&p).ok()?.modified().ok()?, p)))
                .collect();
            logs.sort();
            for (_, log) in logs.iter().rev().take(LOGS) {
                found.push((format!("pods/{}/{}/{}", name(&pod), name(&container), name(log)), read_end(log)));
            }
        }
    }
    found
}

/// The secrets on this host that must not leave it.
fn known(root: &Root) -> Known {
    let mut known = Known::default();
    for dir in SECRETS {
        walk(&root.own(dir), DEEP, &mut |path| {
            let secret = fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o044 == 0);
            if secret && let Some(text) = small(path) {
                known.file(&text);
            }
        });
    }
    for pod in entries(&root.own(PODS)) {
        for kind in TOKENS {
            walk(&pod.join("volumes").join(kind), DEEP, &mut |path| {
                // Beside a token are the CA certificate and the namespace, which are not secret.
                if !matches!(name(path).as_str(), "ca.crt" | "namespace")
                    && let Some(text) = small(path)
                {
                    known.value(&text);
                }
            });
        }
    }
    known
}

fn small(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok().filter(|m| m.is_file() && m.len() <= LARGEST_SECRET)?;
    let mut bytes = Vec::with_capacity(usize::try_from(found.len()).ok()?);
    fs::File::open(path).ok()?.take(LARGEST_SECRET).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

/// Calls for a file, or for every file below a directory; the files of a volume are links into a directory beside
/// them, which is visited as well.
fn walk(at: &Path, deep: usize, each: &mut dyn FnMut(&Path)) {
    match fs::symlink_metadata(at) {
        Ok(found) if found.is_dir() && deep > 0 => entries(at).iter().for_each(|path| walk(path, deep - 1, each)),
        Ok(found) if found.is_file() => each(at),
        _ => {}
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(dir).map(|list| list.filter_map(Result::ok).map(|e| e.path()).collect()).unwrap_or_default();
    all.sort();
    all
}

fn name(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

//! All settings beside hosts and networks: versions, etcd, proxy, manifests, and settings without effect so far.

use super::text::{choice, duration, number, url, version};
use super::validator::{Reading, Validator};
use crate::inventory::at::{At, Key};
use crate::inventory::defaults::{DATA_DIR, DEFAULT_KUBERNETES};
use crate::inventory::problem::shorten;
use crate::inventory::schema::{self, Inventory, Texts};
use crate::model::desired::{ControlPlane, EtcdSettings, MOST_QUOTA_GIB, Proxy, Security, Upgrade, Versions};
use crate::model::firewall::Firewall;
use crate::model::hosting::Hosting;
use crate::model::survey::CHECKS;
use crate::model::version::{MINORS, Version};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Versions.
pub fn versions(judge: &mut Validator<'_>, raw: Option<&At<schema::Versions>>) -> Versions {
    let unset = schema::Versions::default();
    let raw = raw.map_or(&unset, |v| &v.value);
    if let Some(text) = raw.kubernetes.as_ref() {
        installs(judge, text);
    }
    let mut get = |what: &str, text: &Key<String>| text.as_ref().and_then(|t| version(judge, what, t));
    let named = get("Kubernetes", &raw.kubernetes);
    Versions {
        is_default: named.is_none(),
        kubernetes: named.unwrap_or_else(|| DEFAULT_KUBERNETES.to_owned()),
        etcd: get("etcd", &raw.etcd),
        containerd: get("containerd", &raw.containerd),
    }
}

/// Another minor version has other flags and settings, which this hactl does not know.
fn installs(judge: &mut Validator<'_>, text: &At<String>) {
    let Some(version) = Version::parse(&text.value) else { return };
    if !MINORS.contains(&version.minor) {
        let known = MINORS.map(|minor| minor.to_string()).join(", ");
        judge.refuse(
            text.place,
            format!("this hactl does not install Kubernetes {}", version.minor),
            format!("a release of {known}"),
            format!("write \"{DEFAULT_KUBERNETES}\", or use the release of hactl that installs {}", version.minor),
        );
    }
}

/// Upgrades of Kubernetes.
pub fn upgrade(judge: &mut Validator<'_>, raw: Option<&At<schema::Upgrade>>) -> Upgrade {
    let mut wanted = Upgrade::default();
    let Some(workers) = raw.and_then(|u| u.value.workers.as_ref()).map(|w| &w.value) else { return wanted };
    let key = "upgrade.workers.maxUnavailable";
    let at_once = workers.max_unavailable.as_ref().and_then(|n| number(judge, key, n, 1, 1000));
    if let Some(at_once) = at_once.and_then(|n| u32::try_from(n).ok()) {
        wanted.max_unavailable = at_once;
    }
    let timeout = workers.drain_timeout.as_ref().and_then(|t| duration(judge, "upgrade.workers.drainTimeout", t));
    if let Some(seconds) = timeout.and_then(|s| u32::try_from(s).ok()) {
        wanted.drain_timeout_s = seconds;
    }
    wanted
}

/// How long hosts renew their own certificates.
pub fn unattended(judge: &mut Validator<'_>, raw: Option<&At<schema::Certificates>>) -> Option<u32> {
    let text = raw?.value.unattended.as_ref()?;
    let given = text.value.as_str();
    let days = given
        .strip_suffix('d')
        .map(|count| (count, 1))
        .or_else(|| given.strip_suffix('y').map(|count| (count, 365)))
        .and_then(|(count, each)| count.parse::<u32>().ok()?.checked_mul(each))
        .filter(|days| UNATTENDED.contains(days));
    if days.is_none() {
        let what = format!("certificates.unattended is not a valid duration: {}", shorten(given));
        judge.refuse(text.place, what, "a number with d or y, from 30d to 9y", "write something like 3y");
    }
    days
}

/// In days; CAs are valid for ten years.
const UNATTENDED: std::ops::RangeInclusive<u32> = 30..=9 * 365;

/// etcd.
pub fn etcd(judge: &mut Validator<'_>, raw: Option<&At<schema::Etcd>>) -> EtcdSettings {
    let raw = raw.map(|e| &e.value);
    let quota = raw.and_then(|e| e.quota_gib.as_ref());
    let quota_gib = quota
        .and_then(|n| number(judge, "etcd.quotaGiB", n, 1, MOST_QUOTA_GIB.into()))
        .and_then(|n| u32::try_from(n).ok())
        .unwrap_or(8);
    if let Some(n) = quota.filter(|_| quota_gib > 8) {
        judge.warn(
            n.place,
            format!("etcd.quotaGiB is {quota_gib}: a member that joins or recovers must fetch a database of this size"),
            "at most 8, the maximum that etcd recommends",
            "first find out which objects fill the database",
        );
    }
    let data_dir = raw.and_then(|e| e.data_dir.as_ref()).and_then(|text| data_dir(judge, text));
    EtcdSettings { data_dir: data_dir.unwrap_or_else(|| PathBuf::from(DATA_DIR)), quota_gib }
}

fn data_dir(judge: &mut Validator<'_>, text: &At<String>) -> Option<PathBuf> {
    const TAKEN: [&str; 8] = ["/etc", "/usr", "/proc", "/sys", "/dev", "/tmp", "/run", "/boot"];
    let given = text.value.as_str();
    let path = Path::new(given);
    let plain = given.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'_' | b'.'));
    let climbs = path.components().any(|part| matches!(part, Component::ParentDir));
    let deep = path.components().filter(|part| matches!(part, Component::Normal(_))).count() >= 2;
    if path.is_absolute() && plain && !climbs && deep && !TAKEN.iter().any(|t| path.starts_with(t)) {
        return Some(path.components().collect());
    }
    judge.none(
        text.place,
        format!("{:?} cannot be etcd's data directory", shorten(given)),
        "an absolute path of at least two levels, outside system directories, of letters, digits, '-', '_' and '.'",
        "use /var/lib/etcd, preferably with a disk of its own mounted there",
    )
}

/// Control plane.
pub fn control_plane(judge: &mut Validator<'_>, raw: Option<&At<schema::ControlPlane>>) -> ControlPlane {
    let raw = raw.map(|c| &c.value);
    let known = [("baseline", Security::Baseline), ("cis", Security::Cis)];
    let security = raw.and_then(|c| c.security.as_ref()).and_then(|t| choice(judge, "security level", t, &known));
    ControlPlane {
        schedulable: raw.and_then(|c| c.schedulable.as_ref()).is_some_and(|b| b.value),
        security: security.unwrap_or(Security::Baseline),
    }
}

/// Proxy.
pub fn proxy(judge: &mut Validator<'_>, raw: Option<&At<schema::Proxy>>) -> Proxy {
    let unset = schema::Proxy::default();
    let raw = raw.map_or(&unset, |p| &p.value);
    let mut get = |key: &str, text: &Key<String>| {
        let text = text.as_ref().filter(|t| !t.value.is_empty());
        text.and_then(|t| url(judge, key, &t.value, t.place)).unwrap_or_default()
    };
    let (http, https) = (get("proxy.http", &raw.http), get("proxy.https", &raw.https));
    let mut no_proxy = Vec::new();
    for text in raw.no_proxy.iter().flat_map(|list| &list.value) {
        let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'*' | b'/' | b':' | b'_');
        if !text.value.is_empty() && text.value.bytes().all(fine) {
            no_proxy.push(text.value.clone());
        } else {
            let what = format!("{:?} cannot be a proxy exception", shorten(&text.value));
            let expected = "a name, a .suffix, an address or a range";
            judge.refuse(text.place, what, expected, "one entry for each, without commas");
        }
    }
    Proxy { http, https, no_proxy }
}

/// Management of the hosts' firewalls.
pub fn firewall(judge: &mut Validator<'_>, raw: Option<&schema::Text>) -> Firewall {
    let known = [("report", Firewall::Report), ("manage", Firewall::Manage)];
    raw.and_then(|text| choice(judge, "firewall", text, &known)).unwrap_or(Firewall::Report)
}

/// How the control plane is delivered.
pub fn hosting(judge: &mut Validator<'_>, raw: &schema::Inventory) -> Hosting {
    let known = [("static", Hosting::Static), ("self", Hosting::SelfHosted)];
    let text = raw.hosting.as_ref();
    text.and_then(|text| choice(judge, "hosting", text, &known)).unwrap_or_default()
}

/// Whether the metrics of components are served to readers.
pub fn metrics(judge: &mut Validator<'_>, raw: Option<&schema::Text>) -> bool {
    raw.and_then(|text| choice(judge, "metrics", text, &[("off", false), ("on", true)])).unwrap_or_default()
}

/// Whether packages are installed from the bundle alone.
pub fn bundled_packages(judge: &mut Validator<'_>, raw: &Inventory) -> bool {
    let text = raw.load_balancer.as_ref().and_then(|balancer| balancer.value.packages.as_ref());
    let known = [("host", false), ("bundle", true)];
    text.and_then(|text| choice(judge, "source of packages", text, &known)).unwrap_or_default()
}

/// Preflight checks that only warn, by their names.
pub fn ignored_checks(judge: &mut Validator<'_>, raw: Option<&At<schema::Preflight>>) -> BTreeSet<String> {
    let given = raw.and_then(|p| p.value.ignore.as_ref()).into_iter().flat_map(|list| &list.value);
    let mut ignored = BTreeSet::new();
    for name in given {
        if CHECKS.contains(&name.value.as_str()) {
            ignored.insert(name.value.clone());
            continue;
        }
        let what = format!("there is no check {:?}", shorten(&name.value));
        let remedy = "use the name in brackets after the finding";
        judge.refuse(name.place, what, format!("one of: {}", CHECKS.join(", ")), remedy);
    }
    ignored
}

/// The user's manifests, as absolute paths.
pub fn manifests(judge: &mut Validator<'_>, raw: Option<&Texts>) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for text in raw.iter().flat_map(|list| &list.value) {
        let Some(path) = judge.file("manifests", text, Reading::Manifests) else { continue };
        if paths.contains(&path) {
            let what = format!("{} is listed twice", shorten(&text.value));
            judge.refuse(text.place, what, "each file or folder once", "remove one of them");
        } else {
            paths.push(path);
        }
    }
    paths
}

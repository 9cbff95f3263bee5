//! The disaster-recovery runbook of one cluster, as Markdown, to be read on paper when nothing else works.
//!
//! In: the desired state, the reports of the hosts, and paths on the administrator's machine. Out: text. Times are
//! absolute, because it is read later than it is printed. Reports of hosts appear in table cells only, never in a
//! command.

use super::words::{bytes, clean, millis, texts};
use crate::model::control_plane::API_SERVER;
use crate::model::desired::{Desired, EndpointKind, Host, Role, SshTarget};
use crate::model::duration::human_duration;
use crate::model::facts::{DiskFact, HostFacts};
use crate::model::hosting::Hosting;
use crate::model::names::HostName;
use crate::model::snapshot::BundleFact;
use crate::model::version::Version;
use crate::render::{RenderError, page};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use time::OffsetDateTime;
use time::macros::format_description;

const TEMPLATE: &str = include_str!("../../templates/runbook/runbook.md");

/// The facts of each host, or why it did not answer.
pub type Answers = BTreeMap<HostName, Result<HostFacts, String>>;

/// Paths on the administrator's machine, and the current time.
#[derive(Debug)]
pub struct About {
    /// The inventory.
    pub inventory: String,
    /// The state directory.
    pub state: String,
    /// Milliseconds since 1970.
    pub now_ms: i64,
}

#[derive(Serialize)]
struct View {
    cluster: String,
    kubernetes: String,
    version: &'static str,
    printed: String,
    inventory: String,
    inventory_word: String,
    state: String,
    recipients: usize,
    endpoint: String,
    vip: Option<String>,
    holder: String,
    hosts: Vec<Row>,
    members: Vec<Row>,
    member_names: String,
    planes: String,
    asking: Option<String>,
    pinned: Option<String>,
    voters: usize,
    quorum: usize,
    spare: usize,
    every: String,
    copies: Option<String>,
    bundles: Vec<Taken>,
    restores: String,
    data_dir: String,
    source: String,
    self_hosted: bool,
}

#[derive(Serialize)]
struct Row {
    name: String,
    address: String,
    roles: String,
    place: String,
    ssh: String,
    etcd: String,
    peer: String,
}

#[derive(Serialize)]
struct Taken {
    host: String,
    name: String,
    taken: String,
    revision: i64,
    keys: u64,
    restored: String,
}

/// The version of Kubernetes in the inventory; if it names none, the newest one in a manifest, or the default.
fn kubernetes(desired: &Desired, answers: &Answers) -> String {
    let manifest = |answer: &Result<HostFacts, String>| answer.as_ref().ok()?.versions.get(API_SERVER).cloned();
    let newest = answers.values().filter_map(manifest).filter_map(|version| Version::parse(&version)).max();
    let runs = newest.filter(|_| desired.versions.is_default);
    runs.map_or_else(|| desired.versions.kubernetes.clone(), |runs| runs.to_string())
}

/// The runbook.
///
/// # Errors
/// If a value does not fit into the template, such as a path with a line break.
pub fn runbook(desired: &Desired, answers: &Answers, about: &About) -> Result<String, RenderError> {
    let facts = |host: &Host| answers.get(&host.name).and_then(|answer| answer.as_ref().ok());
    let row = |host: &Host| Row {
        name: host.name.to_string(),
        address: host.address.to_string(),
        roles: host.roles.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        place: cell(&host.ssh.to_string()),
        ssh: ssh(&host.ssh),
        etcd: cell(&member(host, answers)),
        peer: host.peer_url().to_string(),
    };
    let etcd: Vec<&Host> = desired.with(Role::Etcd).collect();
    let newest: Vec<(&Host, &BundleFact)> =
        etcd.iter().filter_map(|host| Some((*host, facts(host)?.bundles.as_ref()?.bundles.first()?))).collect();
    let vip = match desired.endpoint.kind {
        EndpointKind::Vip { address, .. } => Some(address),
        EndpointKind::External(_) | EndpointKind::Local { .. } => None,
    };
    let holds = |address: IpAddr| {
        let has = |host: &&Host| facts(host).is_some_and(|f| f.addresses.iter().any(|a| a.address == address));
        desired.hosts.iter().find(has).map_or_else(|| "no host that answered".to_owned(), |host| host.name.to_string())
    };
    let reach = |host: &&Host| {
        let etcd = facts(host).and_then(|f| f.etcd.as_ref());
        let view = etcd.and_then(|e| e.view.as_ref()).map(|view| (view.term, view.applied));
        view.or_else(|| etcd?.disk.as_ref().map(DiskFact::reach)).unwrap_or_default()
    };
    let source = etcd.iter().rev().max_by_key(|host| reach(host)).map(|host| host.name.to_string());
    let quorum = etcd.len() / 2 + 1;
    let copies: Vec<String> = desired.snapshots.to.iter().map(|to| format!("`{to}`")).collect();
    let restores = newest.iter().map(|(_, b)| b.proof.restored_ms).max();
    let view = View {
        cluster: desired.cluster.to_string(),
        kubernetes: kubernetes(desired, answers),
        version: env!("CARGO_PKG_VERSION"),
        printed: utc(about.now_ms),
        inventory_word: shell(&about.inventory),
        inventory: about.inventory.clone(),
        state: about.state.clone(),
        recipients: desired.snapshots.recipients.len(),
        endpoint: desired.url_for_people(),
        holder: vip.map(holds).unwrap_or_default(),
        vip: vip.map(|address| address.to_string()),
        hosts: desired.hosts.iter().map(row).collect(),
        members: etcd.iter().map(|host| row(host)).collect(),
        member_names: names(etcd.iter().copied()),
        planes: names(desired.with(Role::ControlPlane)),
        asking: some(names(desired.hosts.iter().filter(|h| h.ssh.sudo_password.is_some()))),
        pinned: some(names(desired.hosts.iter().filter(|h| h.ssh.fingerprint.is_some() || h.ssh.host_ca.is_some()))),
        voters: etcd.len(),
        self_hosted: desired.hosting == Hosting::SelfHosted,
        quorum,
        spare: etcd.len() - quorum.min(etcd.len()),
        every: human_duration(i64::try_from(desired.snapshots.every_s).unwrap_or(i64::MAX).saturating_mul(1000)),
        copies: some(copies.join(", ")),
        restores: restores.map_or_else(|| "seconds".to_owned(), |ms| format!("its restore took {}", millis(ms))),
        bundles: newest.into_iter().map(|(host, bundle)| taken(host, bundle)).collect(),
        data_dir: shell(&desired.etcd.data_dir.display().to_string()),
        source: source.unwrap_or_default(),
    };
    page("templates/runbook/runbook.md", TEMPLATE, &view)
}

fn names<'a>(hosts: impl Iterator<Item = &'a Host>) -> String {
    hosts.map(|host| host.name.as_str()).collect::<Vec<_>>().join(" ")
}

fn some(names: String) -> Option<String> {
    (!names.is_empty()).then_some(names)
}

fn taken(host: &Host, bundle: &BundleFact) -> Taken {
    Taken {
        host: host.name.to_string(),
        name: cell(&bundle.name),
        taken: utc(bundle.taken_ms),
        revision: bundle.point.revision,
        keys: bundle.proof.keys,
        restored: millis(bundle.proof.restored_ms),
    }
}

/// The state of the member on a host.
fn member(host: &Host, answers: &Answers) -> String {
    if !host.is(Role::Etcd) {
        return "-".to_owned();
    }
    let facts = match answers.get(&host.name) {
        Some(Ok(facts)) => facts,
        Some(Err(why)) => return format!("did not answer: {}", clean(why)),
        None => return "did not answer".to_owned(),
    };
    match facts.etcd.as_ref().and_then(|etcd| etcd.view.as_ref()) {
        Some(view) if view.learner => format!("learner, etcd {}", clean(&view.version)),
        Some(view) => {
            let leads = if view.leads() { "led" } else { "follows" };
            format!("{leads}, etcd {}, {}", clean(&view.version), bytes(view.db_bytes.unsigned_abs()))
        }
        None => "did not answer as a member".to_owned(),
    }
}

/// Text that fits into one table cell.
fn cell(text: &str) -> String {
    clean(text).replace('\n', " ").replace('|', "/").replace('`', "'")
}

fn utc(ms: i64) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute] UTC");
    let at = OffsetDateTime::from_unix_timestamp(ms.div_euclid(1000));
    at.ok().and_then(|at| at.format(format).ok()).unwrap_or_else(|| "at an unknown time".to_owned())
}

/// Quotes a text as one word of a shell command.
fn shell(word: &str) -> String {
    super::words::shell(word, "-_./:@%+=,")
}

/// The start of a command that runs another command on a host as root.
fn ssh(target: &SshTarget) -> String {
    let mut words = texts(["ssh", "-p", &target.port.to_string()]);
    let mut option = |name: &str, value: &str| words.extend(texts(["-o", &shell(&format!("{name}={value}"))]));
    option("ConnectTimeout", "10");
    let files: Vec<String> = target.known_hosts.iter().map(|path| format!("\"{}\"", path.display())).collect();
    if !files.is_empty() {
        option("UserKnownHostsFile", &files.join(" "));
    }
    if let Some(alias) = &target.key_alias {
        option("HostKeyAlias", alias);
    }
    if !target.jump.is_empty() {
        let jumps: Vec<String> = target.jump.iter().map(SshTarget::place).collect();
        option("ProxyJump", &jumps.join(","));
    }
    if target.identity.is_some() || target.identities_only {
        option("IdentitiesOnly", "yes");
    }
    for identity in target.identity.iter().chain(&target.identities) {
        words.extend(texts(["-i", &shell(&identity.display().to_string())]));
    }
    words.push(shell(&format!("{}@{}", target.user, target.host)));
    if target.user != "root" {
        words.push("sudo".to_owned());
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::sample;

    fn about() -> About {
        About {
            inventory: "/home/me/my labs/hactl.yaml".to_owned(),
            state: "/home/me/.hactl/lab".to_owned(),
            now_ms: 1_795_000_000_000,
        }
    }

    /// The shell blocks of the runbook.
    fn blocks(text: &str) -> Vec<&str> {
        text.split("\n```sh").skip(1).filter_map(|rest| Some(rest.split_once('\n')?.1.split_once("\n```")?.0)).collect()
    }

    #[test]
    fn it_is_printed_whole_when_no_host_answers_and_says_so() {
        let mut answers = Answers::new();
        answers.insert("cp1".parse().expect("a name"), Err("no route | to\nhost".to_owned()));
        let text = runbook(&sample(3), &answers, &about()).expect("it can be filled in");
        assert!(text.contains("one every 15 min (`/var/lib/hactl/snapshots`)"), "{text}");
        assert!(text.contains("did not answer: no route / to host |"), "{text}");
        assert!(text.contains("No reachable host has one") && text.contains("held by no host that answered"));
        assert!(text.contains("recover --dry-run -i '/home/me/my labs/hactl.yaml'"));
        assert!(!text.contains("{{") && !text.contains("{%"));
    }

    #[test]
    fn it_names_the_version_of_a_manifest_only_if_the_inventory_names_none() {
        let mut desired = sample(3);
        let versions = [(API_SERVER.to_owned(), "1.35.4".to_owned())].into();
        let found = HostFacts { versions, ..HostFacts::default() };
        let answers = Answers::from([("cp1".parse().expect("a name"), Ok(found))]);
        for (is_default, bundle) in [(true, "k8s-1.35.4"), (false, "k8s-1.36.3")] {
            desired.versions.is_default = is_default;
            let text = runbook(&desired, &answers, &about()).expect("it can be filled in");
            assert!(text.contains(&format!("`hactl bundle export {bundle} FILE`")), "{text}");
        }
    }

    #[test]
    fn every_block_is_shell_that_a_shell_accepts() {
        let text = runbook(&sample(5), &Answers::new(), &about()).expect("it can be filled in");
        let blocks = blocks(&text);
        assert!(blocks.len() >= 8, "{}", blocks.len());
        for block in blocks {
            let checked =
                std::process::Command::new("sh").args(["-n", "-c", block]).output().expect("there is a shell");
            assert!(checked.status.success(), "{block}\n{}", String::from_utf8_lossy(&checked.stderr));
        }
    }

    #[test]
    fn each_host_is_reached_as_hactl_reaches_it() {
        let mut target = SshTarget::new("192.0.2.7", "ops");
        assert_eq!(ssh(&target), "ssh -p 22 -o ConnectTimeout=10 ops@192.0.2.7 sudo");
        target.known_hosts = vec!["/a b/known".into(), "/c".into()];
        target.jump = vec![SshTarget::new("bastion", "me")];
        target.identity = Some("/home/me/it's".into());
        let expected = r#"ssh -p 22 -o ConnectTimeout=10 -o 'UserKnownHostsFile="/a b/known" "/c"' -o ProxyJump=me@bastion:22 -o IdentitiesOnly=yes -i '/home/me/it'\''s' ops@192.0.2.7 sudo"#;
        assert_eq!(ssh(&target), expected);
    }
}

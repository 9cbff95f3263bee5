//! The status of a cluster as text: the report of each host, the resulting state, and what to do.
//!
//! In: the desired state, facts, named checks. Out: text. Works without quorum, with unreachable hosts and with expired
//! certificates.

use super::checks::{check_lines, summary};
use super::flow::Flow;
use super::group::quorum;
use super::healing;
use super::style::{Paint, Style};
use super::table::{Cell, plain, table};
use super::words::{bytes, one_line, time};
use crate::model::check::Check;
use crate::model::control_plane::PROGRAMS;
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::{ApiFact, DiskFact, Etcd, EtcdView, Evidence, Facts, Members, newest};
use crate::model::guards::Guards;
use crate::model::hosting::Hosting;
use crate::model::names::{HostName, PeerUrl};
use crate::model::node::NodeFact;
use crate::model::version::Version;
use std::time::Duration;

/// The status page, ending with the summary line.
pub fn status_text(desired: &Desired, facts: &Facts, checks: &[Check], style: &Style) -> String {
    let title = format!("Kubernetes {}  {}", kubernetes(desired, facts), desired.url_for_people());
    let mut text = format!("{}  {title}\n\n", style.paint(Paint::Bold, desired.cluster.as_str()));
    text.push_str(&hosts(desired, facts, style));
    text.push_str(&etcd(desired, facts, style));
    text.push_str(&control_plane(desired, facts, style));
    text.push_str(&nodes(facts, style));
    if let Some(guards) = Guards::of(desired, &facts.hosts) {
        text.push_str(&healing::section(&guards, style));
    }
    if !checks.is_empty() {
        text.push_str(&heading("CHECKS", style));
        text.push_str(&check_lines(checks, style));
    }
    text.push_str(&format!("\n{}\n", summary(checks, style)));
    text
}

/// The version of Kubernetes in the inventory; if it names none, the one that runs, or the default.
pub fn kubernetes(desired: &Desired, facts: &Facts) -> String {
    let runs = best(facts).filter(|_| desired.versions.is_default).and_then(|api| Version::parse(&api.version));
    runs.map_or_else(|| desired.versions.kubernetes.clone(), |runs| runs.to_string())
}

fn heading(text: &str, style: &Style) -> String {
    format!("\n{}\n", style.paint(Paint::Bold, text))
}

fn hosts(desired: &Desired, facts: &Facts, style: &Style) -> String {
    let mut rows = Vec::new();
    for host in &desired.hosts {
        let roles = host.roles.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let (os, answers) = match facts.hosts.get(&host.name) {
            Some(Ok(found)) => (one_line(&found.os), (Paint::Good, "yes".to_owned())),
            Some(Err(_)) => (String::new(), (Paint::Bad, "NO".to_owned())),
            None => (String::new(), (Paint::Dim, "not asked".to_owned())),
        };
        let (name, address) = (host.name.to_string(), host.address.to_string());
        rows.push(vec![(Paint::Bold, name), plain(address), plain(roles), plain(os), answers]);
    }
    let mut text = table(&["HOST", "ADDRESS", "ROLES", "OS", "ANSWERS"], &rows, style);
    for host in &desired.hosts {
        let Some(Err(unreachable)) = facts.hosts.get(&host.name) else { continue };
        let flow = Flow::of(&format!("{}:", host.name), Paint::Bold).unreachable(unreachable, style);
        text.push_str(&flow.lines(&format!("  {} ", style.bad()), 4, style));
    }
    text
}

/// What the member on a host reports about itself.
pub(super) fn view<'a>(
    desired: &Desired,
    facts: &'a Facts,
    peer: &PeerUrl,
) -> Option<(HostName, Option<&'a EtcdView>)> {
    let host = desired.may_vote().find(|h| &h.peer_url() == peer)?;
    let view = facts.host(&host.name).and_then(|f| f.etcd.as_ref()).and_then(|e| e.view.as_ref());
    Some((host.name.clone(), view))
}

/// The leader, as reported by a member that has a quorum behind it.
pub(super) fn leader(facts: &Facts) -> Option<u64> {
    let views = facts.hosts.values().filter_map(|f| f.as_ref().ok()).filter_map(|f| f.etcd.as_ref()?.view.as_ref());
    views.filter(|v| v.linearizable && v.leader != 0).max_by_key(|v| v.term).map(|v| v.leader)
}

fn etcd(desired: &Desired, facts: &Facts, style: &Style) -> String {
    let head = style.paint(Paint::Bold, "ETCD");
    let (title, why, evidence) = match &facts.etcd {
        Etcd::Uninitialized => {
            return format!("\n{head}\nthere is no cluster on these hosts yet: `hactl up` bootstraps it\n");
        }
        Etcd::Bootstrapping { .. } => {
            return format!("\n{head}\nthe bootstrap was begun but not completed: `hactl up` resumes it\n");
        }
        Etcd::HasQuorum(list) => {
            return format!("\n{head}  {}\n{}", quorum(list), members(desired, facts, list, style));
        }
        Etcd::NoQuorum(evidence) => ("NO QUORUM", "no writes are possible, and reads may be stale", evidence),
        Etcd::Disputed(evidence) => {
            ("DISPUTED", "some members claim a quorum, but no majority of them agrees", evidence)
        }
    };
    format!("\n{head}  {}: {why}\n{}", style.paint(Paint::Bad, title), survivors(facts, evidence, style))
}

/// The position of the data on each host, its flaws, and which host has the newest.
fn survivors(facts: &Facts, evidence: &[Evidence], style: &Style) -> String {
    let disk = |host: &HostName| facts.host(host)?.etcd.as_ref()?.disk.as_ref();
    let newest = newest(evidence.iter().filter_map(|e| facts.host(&e.host))).map(DiskFact::reach);
    let mut rows = Vec::new();
    for found in evidence {
        let answers = if found.reachable { plain("yes") } else { (Paint::Bad, "NO".to_owned()) };
        let data = match (found.reachable, found.has_data) {
            (false, _) => (Paint::Dim, "unknown".to_owned()),
            (true, true) => (Paint::Good, "there".to_owned()),
            (true, false) => (Paint::Bad, "none".to_owned()),
        };
        let mut row = vec![(Paint::Bold, found.host.to_string()), answers, data];
        if let (Some(disk), Some(host)) = (disk(&found.host), facts.host(&found.host)) {
            let age = Duration::from_millis(u64::try_from(host.now_ms.saturating_sub(disk.written_ms)).unwrap_or(0));
            let rank = if newest == Some(disk.reach()) { (Paint::Good, "newest") } else { (Paint::Warn, "OLDER") };
            let revision = disk.revision.map_or_else(|| "unreadable".to_owned(), |r| r.to_string());
            let ago = format!("{} ago", time(age));
            row.extend([disk.term.to_string(), disk.index.to_string(), revision, ago].map(plain));
            row.push((rank.0, rank.1.to_owned()));
        }
        rows.push(row);
    }
    let mut text = table(&["HOST", "ANSWERS", "DATA", "TERM", "ENTRY", "REVISION", "WRITTEN", ""], &rows, style);
    if newest.is_some() && evidence.iter().any(|e| !e.reachable) {
        text.push_str("newest: among the hosts that answer; an unreachable host may hold newer data\n");
    }
    for found in evidence.iter().filter(|e| e.reachable) {
        let etcd = facts.host(&found.host).and_then(|f| f.etcd.as_ref());
        let flaws = etcd.and_then(|e| e.disk.as_ref()).map(|d| d.flaws.as_slice()).unwrap_or_default();
        let said = etcd.and_then(|e| e.trouble.as_ref()).into_iter().chain(flaws).map(|text| one_line(text));
        let said = said.collect::<Vec<_>>().join("; ");
        if !said.is_empty() {
            let flow = Flow::of(&format!("{}:", found.host), Paint::Bold).and(&said, Paint::Plain);
            text.push_str(&flow.lines("  ", 4, style));
        }
    }
    text
}

fn members(desired: &Desired, facts: &Facts, list: &Members, style: &Style) -> String {
    let leader = leader(facts);
    let mut rows = Vec::new();
    for (peer, member) in &list.0 {
        let found = view(desired, facts, peer);
        let view = found.as_ref().and_then(|(_, v)| *v);
        let name = match (&found, member.name.as_str()) {
            (Some((host, _)), _) => host.to_string(),
            (None, "") => peer.to_string(),
            (None, name) => format!("{} (orphan)", one_line(name)),
        };
        let (paint, state) = match (member.healthy, member.learner) {
            (true, true) => (Paint::Warn, "learner"),
            (true, false) if leader == Some(member.id) => (Paint::Good, "leader"),
            (true, false) => (Paint::Good, "healthy"),
            (false, true) => (Paint::Warn, "learner, not started"),
            (false, false) => (Paint::Bad, "UNHEALTHY"),
        };
        let of = |value: fn(&EtcdView) -> String| view.map_or_else(String::new, value);
        rows.push(vec![
            (Paint::Bold, name),
            (paint, state.to_owned()),
            plain(of(|v| bytes(u64::try_from(v.db_bytes).unwrap_or(0)))),
            plain(of(|v| v.revision.to_string())),
            plain(of(|v| v.term.to_string())),
            plain(of(|v| one_line(&v.version))),
            (Paint::Bad, of(|v| v.alarms.iter().map(|a| one_line(a)).collect::<Vec<_>>().join(" "))),
        ]);
    }
    table(&["MEMBER", "STATE", "DB", "REVISION", "TERM", "VERSION", ""], &rows, style)
}

fn control_plane(desired: &Desired, facts: &Facts, style: &Style) -> String {
    let mut rows = Vec::new();
    let trouble = |trouble: Option<&String>| match trouble {
        None => (Paint::Good, "ready".to_owned()),
        Some(why) => (Paint::Bad, format!("NOT READY: {}", one_line(why))),
    };
    for host in desired.with(Role::ControlPlane) {
        let api = facts.host(&host.name).and_then(|f| f.api.as_ref());
        let state = api.map_or_else(|| (Paint::Dim, "unknown".to_owned()), |api| trouble(api.own_trouble.as_ref()));
        let otherwise = if facts.host(&host.name).is_some() { "static pods" } else { "unknown" };
        let row = vec![(Paint::Bold, host.name.to_string()), state];
        rows.push((row, delivered(desired, facts, host), otherwise));
    }
    // The state may be a long sentence: it is last, where it is cut.
    let columns = if rows.iter().any(|(_, delivered, _)| delivered.is_some()) {
        for (row, delivered, otherwise) in &mut rows {
            row.insert(1, plain(delivered.take().unwrap_or_else(|| (*otherwise).to_owned())));
        }
        &["HOST", "DELIVERED AS", "STATE"][..]
    } else {
        &["HOST", "STATE"]
    };
    let rows: Vec<Vec<Cell>> = rows.into_iter().map(|(row, ..)| row).collect();
    let mut text = heading("API SERVERS", style);
    text.push_str(&table(columns, &rows, style));
    let apis: Vec<(&HostName, &ApiFact)> =
        facts.hosts.iter().filter_map(|(n, f)| Some((n, f.as_ref().ok()?.api.as_ref()?))).collect();
    let ready: Vec<&str> = apis.iter().filter(|(_, a)| a.endpoint_trouble.is_none()).map(|(n, _)| n.as_str()).collect();
    if !apis.is_empty() {
        let lead = format!("{}  ", style.paint(Paint::Bold, "ENDPOINT"));
        let flow = if ready.len() == apis.len() {
            Flow::of("ready,", Paint::Good).and(&format!("asked from {}", ready.join(", ")), Paint::Plain)
        } else {
            let why =
                apis.iter().filter_map(|(n, a)| Some(format!("from {n}: {}", one_line(a.endpoint_trouble.as_ref()?))));
            Flow::of(if ready.is_empty() { "NOT READY" } else { "ready for some only" }, Paint::Bad)
                .and(&why.collect::<Vec<_>>().join("; "), Paint::Plain)
        };
        text.push_str(&format!("\n{}", flow.lines(&lead, 10, style)));
    }
    if let Some(api) = best(facts) {
        for lease in &api.leases {
            let age = Duration::from_millis(u64::try_from(lease.age_ms).unwrap_or(0));
            let fresh = lease.age_ms <= lease.duration_s.saturating_mul(1000);
            let (paint, word) = if fresh { (Paint::Plain, "renewed") } else { (Paint::Bad, "EXPIRED: renewed") };
            let holder = lease.holder.split('_').next().unwrap_or_default();
            let lead = format!("{}  ", style.paint(Paint::Bold, "LEASE   "));
            let flow = Flow::of(&format!("{} held by {},", one_line(&lease.name), one_line(holder)), Paint::Plain)
                .and(&format!("{word} {} ago", time(age)), paint);
            text.push_str(&flow.lines(&lead, 10, style));
        }
    }
    text
}

/// How the control plane of a host is delivered, in words; `None`: as static pods, as on every other host.
pub(super) fn delivered(desired: &Desired, facts: &Facts, host: &Host) -> Option<String> {
    let Some(fact) = &facts.host(&host.name)?.hosting else {
        return (desired.hosting == Hosting::SelfHosted).then(|| "static pods".to_owned());
    };
    let Some(revision) = fact.revision() else { return Some("static pods, held".to_owned()) };
    let left: Vec<&str> = PROGRAMS.into_iter().filter(|program| !fact.is_delegated(program)).collect();
    Some(match left.len() {
        0 => format!("DaemonSet, revision {}", one_line(revision)),
        all if all == PROGRAMS.len() => "static pods, in place of pods".to_owned(),
        _ => format!("DaemonSet, revision {}; static pods: {}", one_line(revision), left.join(", ")),
    })
}

/// The API facts for Nodes and leases: those of a host whose own API server answers.
pub(super) fn best(facts: &Facts) -> Option<&ApiFact> {
    let apis = || facts.hosts.values().filter_map(|f| f.as_ref().ok()?.api.as_ref());
    apis().find(|a| a.own_trouble.is_none() && !a.nodes.is_empty()).or_else(|| apis().find(|a| !a.nodes.is_empty()))
}

fn nodes(facts: &Facts, style: &Style) -> String {
    let Some(api) = best(facts) else { return String::new() };
    let row = |node: &NodeFact| {
        let (paint, state) = if node.ready { (Paint::Good, "ready") } else { (Paint::Bad, "NOT READY") };
        let state = match (node.maintenances.as_slice(), node.unschedulable) {
            ([], false) => (paint, state.to_owned()),
            ([], true) => (Paint::Warn, format!("{state}, cordoned")),
            (names, _) => {
                let names: Vec<&str> = names.iter().map(HostName::as_str).collect();
                (Paint::Warn, format!("{state}, in maintenance ({})", names.join(", ")))
            }
        };
        let why = if node.ready { String::new() } else { one_line(&node.message) };
        vec![(Paint::Bold, one_line(&node.name)), state, plain(one_line(&node.version)), plain(why)]
    };
    let rows: Vec<Vec<Cell>> = api.nodes.iter().map(row).collect();
    format!("\n{}", table(&["NODE", "STATE", "KUBELET", ""], &rows, style))
}

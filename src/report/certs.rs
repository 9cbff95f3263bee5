//! Certificates as text: a table for each host and one for the administrator's machine, with anomalies below.
//!
//! As JSON, in a stable format: `schema` is `hactl.certs/1`. Within one schema, fields are added, never renamed or
//! removed; unknown values are null. Timestamps are RFC 3339, and durations use the clock of the machine that has the
//! certificate.
//!
//! - `cluster`: its name
//! - `hosts[]`: `name`, `answers`, `why` and `hint` when it does not, `now`, `certificates[]`
//! - `administrator`: `now`, `certificates[]`: the CAs and the kubeconfig in the state directory
//! - `certificates[].name`: as `certs renew` takes it; `kubelet-serving`; for CAs `cluster-ca`, `etcd-ca`,
//!   `front-proxy-ca`, `signing-ca`, `unknown-ca`
//! - `certificates[].subject`, `signedBy`, `paths[]`: the subject; the name of the CA, `itself` or `unknown`; the files
//! - `certificates[].begins`, `ends`, `leftSeconds`, `serial`, `sha256`: null: the certificate is missing
//! - `certificates[].fate`, `why`: `up`, `host` or `kubelet` (renews it), `due` (at the next `up`), `stays`, `expired`,
//!   `missing`; `why` it is due or missing
//! - `certificates[].presented`: null: not queried; else `at`, `same` (null: unknown, see `why`), `older`, `ends` and
//!   `serial` of the served certificate

use super::flow::Flow;
use super::style::{Paint, Style};
use super::table::{Cell, head, lines, plain, widths};
use super::words::{count, one_line, texts};
use crate::model::certificate::{CertFact, Certificate, Fate, Listing, OfHost, Presented, Seen, Term};
use crate::model::facts::Unreachable;
use crate::model::leaf::duration;
use crate::model::names::{ClusterName, HostName};
use crate::model::rotation::{Rotatable, Stage};
use crate::model::timestamp::{date, rfc3339};
use serde_json::{Value, json};

const HEADS: [&str; 6] = ["CERTIFICATE", "FOR", "SIGNED BY", "ENDS", "LEFT", "THEN"];
/// The column that shrinks on a narrow page, and its minimum width.
const NARROWED: usize = 1;
const NARROWEST: usize = 12;

/// The rows of one machine.
type Rows = Vec<Vec<Cell>>;

/// The certificates as text.
pub fn text(listing: &Listing, style: &Style) -> String {
    let tables: Vec<Rows> = places(listing).map(|(_, of)| of.map(rows).unwrap_or_default()).collect();
    let (heads, tables, widths) = fitted(tables, style);
    let mut text = String::new();
    for ((name, of), rows) in places(listing).zip(tables) {
        text.push_str(&format!("{}\n", style.paint(Paint::Bold, &name)));
        match of {
            Ok(of) => {
                text.push_str(&head(&heads, &widths, style));
                text.push_str(&lines(&rows, &widths, style));
                text.extend(of.certificates.iter().map(|certificate| odd(certificate, style)));
            }
            Err(unreachable) => {
                let flow = Flow::of("does not answer:", Paint::Plain).unreachable(unreachable, style);
                text.push_str(&flow.lines(&format!("{} ", style.bad()), style.mark_width() + 1, style));
            }
        }
        text.push('\n');
    }
    text
}

/// Every machine with its heading.
fn places(listing: &Listing) -> impl Iterator<Item = (String, Result<&OfHost, &Unreachable>)> {
    let hosts = listing.hosts.iter().map(|(host, of)| (host.to_string(), of.as_ref()));
    hosts.chain([("on this machine".to_owned(), Ok(&listing.own))])
}

/// Heads, rows and widths; on a narrow page with a narrower column, or without it.
fn fitted(mut tables: Vec<Rows>, style: &Style) -> (Vec<&'static str>, Vec<Rows>, Vec<usize>) {
    let mut heads = HEADS.to_vec();
    let mut widths = widths(&heads, tables.iter().flatten());
    let needed = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
    let room = (widths[NARROWED] + style.width).saturating_sub(needed);
    if room >= NARROWEST {
        widths[NARROWED] = widths[NARROWED].min(room);
    } else {
        heads.remove(NARROWED);
        widths.remove(NARROWED);
        tables.iter_mut().flatten().for_each(|row| drop(row.remove(NARROWED)));
    }
    (heads, tables, widths)
}

fn left_s(found: &CertFact, now_ms: i64) -> i64 {
    found.not_after_s.saturating_sub(now_ms.div_euclid(1000))
}

fn rows(of: &OfHost) -> Rows {
    of.certificates.iter().map(|certificate| row(certificate, of.now_ms)).collect()
}

fn row(certificate: &Certificate, now_ms: i64) -> Vec<Cell> {
    let found = certificate.found.as_ref();
    let (ends, left) = match found {
        Some(found) => {
            let (paint, left) = match found.term(now_ms) {
                Term::Good => (Paint::Plain, duration(left_s(found, now_ms))),
                Term::Near => (Paint::Warn, duration(left_s(found, now_ms))),
                Term::Ended => (Paint::Bad, "ended".to_owned()),
            };
            (plain(date(found.not_after_s.saturating_mul(1000))), (paint, left))
        }
        None => (plain("-"), plain("-")),
    };
    let then = match &certificate.fate {
        Fate::ByUp => (Paint::Dim, "renewed by up".to_owned()),
        Fate::ByHost => (Paint::Dim, "renewed by the host".to_owned()),
        Fate::ByKubelet => (Paint::Dim, "renewed by the kubelet".to_owned()),
        Fate::Stays => (Paint::Dim, "stays".to_owned()),
        Fate::Due(why) => (Paint::Warn, format!("due: {}", one_line(why))),
        Fate::Expired => (Paint::Bad, "expired".to_owned()),
        Fate::Missing(_) => (Paint::Warn, "missing".to_owned()),
    };
    let signed = certificate.authority.trim_end_matches("-ca").to_owned();
    let signed = if signed == "unknown" { (Paint::Bad, signed) } else { plain(signed) };
    vec![(Paint::Bold, certificate.name.clone()), plain(one_line(&certificate.subject)), signed, ends, left, then]
}

/// The component that serves with the certificate.
fn component(name: &str) -> &'static str {
    match name {
        "apiserver" => "the API server",
        "etcd-server" | "etcd-peer" => "etcd",
        _ => "the kubelet",
    }
}

/// Anomalies that do not fit into a row.
fn odd(certificate: &Certificate, style: &Style) -> String {
    let say = |mark: String, why: &str| {
        let flow = Flow::of(&format!("{}:", certificate.name), Paint::Bold).and(why, Paint::Plain);
        flow.lines(&format!("{mark} "), style.mark_width() + 1, style)
    };
    let mut text = String::new();
    match &certificate.fate {
        Fate::Missing(why) => text.push_str(&say(style.warn(), &format!("missing: {}", one_line(why)))),
        Fate::Due(why) if certificate.found.is_none() => text.push_str(&say(style.warn(), &one_line(why))),
        _ => {}
    }
    let Some(Presented { at: (address, port), seen }) = &certificate.presented else { return text };
    let who = component(&certificate.name);
    match seen {
        Seen::Same => {}
        Seen::Other { certificate: shown, older } => {
            let which = if *older { "an older one" } else { "another one" };
            let ends = date(shown.not_after_s.saturating_mul(1000));
            let why = format!(
                "{who} presents {which} at {address}, port {port}, which expires on {ends}; it reloads its file \
                 within a minute. If it does not, restart it"
            );
            text.push_str(&say(style.warn(), &why));
        }
        Seen::Nothing(why) if style.verbosity > 0 => {
            let why = format!("the certificate that {who} presents is unknown: {}", one_line(why));
            text.push_str(&say(style.paint(Paint::Dim, "-"), &why));
        }
        Seen::Nothing(_) => {}
    }
    text
}

/// The number of certificates, and which one expires first.
pub fn summary(listing: &Listing) -> String {
    let here = listing.own.certificates.iter().map(|c| (None, listing.own.now_ms, c));
    let hosts = listing.hosts.iter().filter_map(|(host, of)| Some((host, of.as_ref().ok()?)));
    let there = hosts.flat_map(|(host, of)| of.certificates.iter().map(move |c| (Some(host), of.now_ms, c)));
    let found: Vec<(Option<&HostName>, i64, &Certificate)> =
        there.chain(here).filter(|(.., c)| c.found.is_some()).collect();
    let left = |now_ms: i64, c: &Certificate| c.found.as_ref().map_or(i64::MAX, |found| left_s(found, now_ms));
    let Some((host, now_ms, first)) = found.iter().min_by_key(|(_, now_ms, c)| left(*now_ms, c)) else {
        return "there are no certificates yet: `hactl up` issues them".to_owned();
    };
    let place = host.map_or_else(|| "this machine".to_owned(), ToString::to_string);
    let ends = match left(*now_ms, first) {
        left if left <= 0 => format!("expired {} ago", duration(left.saturating_neg())),
        left => format!("expires in {}", duration(left)),
    };
    format!("{}; the first to expire is {} on {place}: it {ends}", count(found.len(), "certificate"), first.name)
}

/// The certificates for programs.
pub fn json(cluster: &ClusterName, listing: &Listing) -> Value {
    let hosts = listing.hosts.iter().map(|(name, of)| {
        let unreachable = of.as_ref().err();
        let of = of.as_ref().ok();
        json!({
            "name": name,
            "answers": of.is_some(),
            "why": unreachable.map(|s| s.why.as_str()),
            "hint": unreachable.and_then(|s| s.hint.as_deref()),
            "now": of.map(|of| rfc3339(of.now_ms)),
            "certificates": of.map(all_json).unwrap_or_default(),
        })
    });
    json!({
        "schema": "hactl.certs/1",
        "cluster": cluster,
        "hosts": hosts.collect::<Vec<_>>(),
        "administrator": {"now": rfc3339(listing.own.now_ms), "certificates": all_json(&listing.own)},
    })
}

fn all_json(of: &OfHost) -> Vec<Value> {
    of.certificates.iter().map(|certificate| one_json(certificate, of.now_ms)).collect()
}

fn one_json(certificate: &Certificate, now_ms: i64) -> Value {
    let found = certificate.found.as_ref();
    let moment = |s: i64| rfc3339(s.saturating_mul(1000));
    let (fate, why) = match &certificate.fate {
        Fate::ByUp => ("up", None),
        Fate::ByHost => ("host", None),
        Fate::ByKubelet => ("kubelet", None),
        Fate::Due(why) => ("due", Some(why)),
        Fate::Stays => ("stays", None),
        Fate::Expired => ("expired", None),
        Fate::Missing(why) => ("missing", Some(why)),
    };
    let presented = certificate.presented.as_ref().map(|Presented { at: (address, port), seen }| {
        let (same, older, shown, why) = match seen {
            Seen::Same => (Some(true), Some(false), found, None),
            Seen::Other { certificate, older } => (Some(false), Some(*older), Some(certificate), None),
            Seen::Nothing(why) => (None, None, None, Some(why)),
        };
        json!({
            "at": std::net::SocketAddr::new(*address, *port),
            "same": same,
            "older": older,
            "ends": shown.map(|shown| moment(shown.not_after_s)),
            "serial": shown.map(|shown| shown.serial.as_str()),
            "why": why,
        })
    });
    json!({
        "name": certificate.name,
        "subject": certificate.subject,
        "signedBy": certificate.authority,
        "paths": certificate.paths,
        "begins": found.map(|found| moment(found.not_before_s)),
        "ends": found.map(|found| moment(found.not_after_s)),
        "leftSeconds": found.map(|found| left_s(found, now_ms)),
        "serial": found.map(|found| found.serial.as_str()),
        "sha256": found.map(|found| found.fingerprint),
        "fate": fate,
        "why": why,
        "presented": presented,
    })
}

/// The next stage of a rotation, shown before its plan.
pub fn rotation(what: Rotatable, stage: Option<Stage>, finish: bool) -> String {
    let end = if what.outlives() && !finish { "stays trusted until --finish" } else { "is removed" };
    let now = match stage {
        None => "would be rotated. First stage: every host gets the new one",
        Some(Stage::Spread) => "is being rotated. This stage: every host gets the new one",
        Some(Stage::Issued) => "is being rotated. This stage: switch to the new one",
        Some(Stage::Ending) => "is being rotated. This stage: remove the old one",
    };
    let then = match stage {
        None | Some(Stage::Spread) => format!(
            "Next, hactl switches to the new one and reissues everything that depends on it; the old one {end}."
        ),
        Some(Stage::Issued) => format!("Next, the old one {end}."),
        Some(Stage::Ending) => "Then the rotation is complete.".to_owned(),
    };
    format!("{what} {now}, as below.\n{then}\n\n")
}

/// How a rotation ended.
pub fn rotated(what: Rotatable, old_is_trusted: bool, rewritten: usize) -> String {
    let more = if rewritten > 0 { format!("; {} re-encrypted", count(rewritten, "Secret")) } else { String::new() };
    let old = match (what, old_is_trusted) {
        (_, true) => "; the old one is still trusted",
        // The CA above it still vouches for it to a peer that receives it in a chain.
        (Rotatable::SigningCa, false) => ", and nothing uses the old one any more",
        (_, false) => ", and the old one is gone",
    };
    format!("{what} is rotated{more}{old}")
}

/// What people have to do after a rotation.
pub fn after_rotation(what: Rotatable, old_is_trusted: bool, kubeconfig: &std::path::Path) -> Vec<String> {
    let kubeconfig = kubeconfig.display();
    match what {
        Rotatable::ServiceAccount if old_is_trusted => texts([
            "give programs outside the cluster new tokens: their current ones are valid until the old key is removed",
            &format!("after a day, when all pods have new tokens: hactl certs rotate {what} --finish"),
        ]),
        Rotatable::ClusterCa if old_is_trusted => vec![
            format!(
                "give people new kubeconfigs ({kubeconfig} is new): their current ones are valid until the old CA is \
                 removed"
            ),
            format!("when everyone has one: hactl certs rotate {what} --finish"),
        ],
        Rotatable::SigningCa if old_is_trusted => texts([
            "replace certificates that the API signed for others: the current ones are valid until the old CA is \
             removed",
            &format!("when all are replaced: hactl certs rotate {what} --finish"),
        ]),
        Rotatable::SigningCa => texts([
            "if its key may be compromised, that is not enough, because the cluster CA still vouches for it: hactl \
             certs rotate cluster-ca",
        ]),
        Rotatable::ClusterCa => {
            vec![format!("earlier kubeconfigs are rejected from now on; the administrator's is new: {kubeconfig}")]
        }
        _ => vec![],
    }
}

/// The result of `certs client`.
pub fn client(folder: &std::path::Path, name: &str, ends_ms: i64) -> String {
    format!("the certificate of {name} is in {}, valid until {}", folder.display(), date(ends_ms))
}

/// The result of `certs renew`.
pub fn renewed(issued: &[(HostName, usize)], kubeconfig: Option<&std::path::Path>) -> String {
    let certificates: usize = issued.iter().map(|(_, n)| n).sum();
    let mut done = Vec::new();
    if certificates > 0 {
        done.push(format!("{} renewed on {}", count(certificates, "certificate"), count(issued.len(), "host")));
    }
    if let Some(path) = kubeconfig {
        done.push(format!("the administrator's kubeconfig is new: {}", path.display()));
    }
    if done.is_empty() { "nothing to do".to_owned() } else { done.join("; ") }
}

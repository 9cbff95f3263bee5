//! Certificates as a page: a table for every host and one of what the administrator keeps, and what is odd about them.
//!
//! As JSON, in a shape that stays, `schema` is `hactl.certs/1`. Fields are added, never renamed or removed, within one schema; what is not known
//! is null. Moments are RFC 3339, judged by the clock of the place that they are of.
//!
//! | field | meaning |
//! |---|---|
//! | `cluster` | its name |
//! | `hosts[]` | `name`, `answers`, `why` and `hint` when it does not, `now`, `certificates[]` |
//! | `administrator` | `now`, `certificates[]`: the authorities and the kubeconfig in the state |
//! | `certificates[].name` | as `certs renew` takes it; `kubelet-serving`; of authorities `cluster-ca`, `etcd-ca`, `front-proxy-ca`, `signing-ca`, `unknown-ca` |
//! | `certificates[].subject` `signedBy` `paths[]` | whom it names; the name of the authority, `itself` or `unknown`; where it lies |
//! | `certificates[].begins` `ends` `leftSeconds` `serial` `sha256` | null: it is not there |
//! | `certificates[].fate` `why` | `up`, `kubelet` (renews it by itself), `due` (at the next `up`), `stays`, `expired`, `missing`; `why` it is due or missing |
//! | `certificates[].presented` | null: nobody was asked; else `at`, `same` (null: not known, see `why`), `older`, `ends` and `serial` of what is served |

use super::flow::Flow;
use super::style::{Paint, Style};
use super::table::{Cell, head, lines, plain, widths};
use super::words::{count, one_line};
use crate::model::certificate::{CertFact, Certificate, Fate, Listing, OfHost, Presented, Seen, Term};
use crate::model::facts::Unreachable;
use crate::model::leaf::span;
use crate::model::names::{ClusterName, HostName};
use crate::model::rotation::{Rotatable, Stage};
use crate::model::timestamp::{date, rfc3339};
use serde_json::{Value, json};

const HEADS: [&str; 6] = ["CERTIFICATE", "FOR", "SIGNED BY", "ENDS", "LEFT", "THEN"];
/// Which of them gives way where the page is narrow, and to how few columns.
const NARROWED: usize = 1;
const NARROWEST: usize = 12;

/// The rows of one place.
type Rows = Vec<Vec<Cell>>;

/// The page.
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
                for certificate in &of.certificates {
                    text.push_str(&odd(certificate, style));
                }
            }
            Err(silence) => {
                let mut flow = Flow::of("does not answer:", Paint::Plain).and(&one_line(&silence.why), Paint::Plain);
                if let Some(hint) = &silence.hint {
                    flow = flow.and(style.dash(), Paint::Dim).and(&one_line(hint), Paint::Dim);
                }
                text.push_str(&flow.lines(&format!("{} ", style.bad()), style.mark_width() + 1, style));
            }
        }
        text.push('\n');
    }
    text
}

/// Every place with its heading.
fn places(listing: &Listing) -> impl Iterator<Item = (String, Result<&OfHost, &Unreachable>)> {
    let hosts = listing.hosts.iter().map(|(host, of)| (host.to_string(), of.as_ref()));
    hosts.chain([("kept on this machine".to_owned(), Ok(&listing.own))])
}

/// Heads, rows and widths, with a column less or a narrower one where there is no room.
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
                Term::Good => (Paint::Plain, span(left_s(found, now_ms))),
                Term::Near => (Paint::Warn, span(left_s(found, now_ms))),
                Term::Ended => (Paint::Bad, "ended".to_owned()),
            };
            (plain(date(found.not_after_s.saturating_mul(1000))), (paint, left))
        }
        None => (plain("-"), plain("-")),
    };
    let then = match &certificate.fate {
        Fate::ByUp => (Paint::Dim, "renewed by up".to_owned()),
        Fate::ByHost => (Paint::Dim, "renewed by its host itself".to_owned()),
        Fate::ByKubelet => (Paint::Dim, "renewed by the kubelet itself".to_owned()),
        Fate::Stays => (Paint::Dim, "stays".to_owned()),
        Fate::Due(why) => (Paint::Warn, format!("due: {}", one_line(why))),
        Fate::Expired => (Paint::Bad, "expired".to_owned()),
        Fate::Missing(_) => (Paint::Warn, "missing".to_owned()),
    };
    let signed = certificate.authority.trim_end_matches("-ca").to_owned();
    let signed = if signed == "unknown" { (Paint::Bad, signed) } else { plain(signed) };
    vec![(Paint::Bold, certificate.name.clone()), plain(one_line(&certificate.subject)), signed, ends, left, then]
}

/// Who serves with it, and the unit or pod to look at.
fn component(name: &str) -> &'static str {
    match name {
        "apiserver" => "the API server",
        "etcd-server" | "etcd-peer" => "etcd",
        _ => "the kubelet",
    }
}

/// What does not fit into a row.
fn odd(certificate: &Certificate, style: &Style) -> String {
    let say = |mark: String, why: &str| {
        let flow = Flow::of(&format!("{}:", certificate.name), Paint::Bold).and(why, Paint::Plain);
        flow.lines(&format!("{mark} "), style.mark_width() + 1, style)
    };
    let mut text = String::new();
    match &certificate.fate {
        Fate::Missing(why) => text.push_str(&say(style.warn(), &format!("it is not there; {}", one_line(why)))),
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
                "on port {port} of {address} {who} presents {which}, which ends on {ends}; it reads its file again within a minute, \
                 and has to be restarted if it does not"
            );
            text.push_str(&say(style.warn(), &why));
        }
        Seen::Nothing(why) if style.verbosity > 0 => {
            let why = format!("what {who} presents is not known: {}", one_line(why));
            text.push_str(&say(style.paint(Paint::Dim, "-"), &why));
        }
        Seen::Nothing(_) => {}
    }
    text
}

/// How many there are, and which ends first.
pub fn summary(listing: &Listing) -> String {
    let here = listing.own.certificates.iter().map(|c| (None, listing.own.now_ms, c));
    let hosts = listing.hosts.iter().filter_map(|(host, of)| Some((host, of.as_ref().ok()?)));
    let there = hosts.flat_map(|(host, of)| of.certificates.iter().map(move |c| (Some(host), of.now_ms, c)));
    let found: Vec<(Option<&HostName>, i64, &Certificate)> =
        there.chain(here).filter(|(.., c)| c.found.is_some()).collect();
    let left = |now_ms: i64, c: &Certificate| c.found.as_ref().map_or(i64::MAX, |found| left_s(found, now_ms));
    let Some((host, now_ms, first)) = found.iter().min_by_key(|(_, now_ms, c)| left(*now_ms, c)) else {
        return "there are no certificates yet: `hactl up` makes them".to_owned();
    };
    let place = host.map_or_else(|| "this machine".to_owned(), ToString::to_string);
    let ends = match left(*now_ms, first) {
        left if left <= 0 => format!("expired {} ago", span(left.saturating_neg())),
        left => format!("ends in {}", span(left)),
    };
    format!("{}; the first to end is {} on {place}: it {ends}", count(found.len(), "certificate"), first.name)
}

/// The same for programs.
pub fn json(cluster: &ClusterName, listing: &Listing) -> Value {
    let hosts = listing.hosts.iter().map(|(name, of)| {
        let silence = of.as_ref().err();
        let of = of.as_ref().ok();
        json!({
            "name": name,
            "answers": of.is_some(),
            "why": silence.map(|s| s.why.as_str()),
            "hint": silence.and_then(|s| s.hint.as_deref()),
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

/// What the next stage of a rotation is, before its plan.
pub fn rotation(what: Rotatable, stage: Option<Stage>, finish: bool) -> String {
    let end = if what.outlives() && !finish { "stays trusted until --finish" } else { "goes" };
    let used = format!("Then it comes into use, and what the old one was for is made anew; the old one {end}.");
    let (now, then) = match stage {
        None => (format!("{what} would be replaced: first every host learns of the new one, as below."), used),
        Some(Stage::Spread) => (format!("{what} is being replaced: every host learns of the new one, as below."), used),
        Some(Stage::Issued) => (
            format!("{what} is being replaced: the new one comes into use, as below."),
            format!("Then the old one {end}."),
        ),
        Some(Stage::Ending) => {
            (format!("{what} is being replaced: the old one goes, as below."), "Then it is done.".to_owned())
        }
    };
    format!("{now}\n{then}\n\n")
}

/// How a rotation ended.
pub fn rotated(what: Rotatable, old_is_trusted: bool, rewritten: usize) -> String {
    let more = if rewritten > 0 { format!("; {} written anew", count(rewritten, "Secret")) } else { String::new() };
    let old = match (what, old_is_trusted) {
        (_, true) => "; the old one is still trusted",
        // What stands above it vouches for it still, to whoever is shown it along with what it signed.
        (Rotatable::SigningCa, false) => ", and nothing uses the old one any more",
        (_, false) => ", and the old one is gone",
    };
    format!("{what} is new{more}{old}")
}

/// What is left to do for people behind a rotation.
pub fn after_rotation(what: Rotatable, old_is_trusted: bool, kubeconfig: &std::path::Path) -> Vec<String> {
    let kubeconfig = kubeconfig.display();
    match what {
        Rotatable::ServiceAccount if old_is_trusted => vec![
            "give programs outside the cluster other tokens: those that they hold are good until the old key goes"
                .to_owned(),
            format!("after a day, when pods have got other tokens: hactl certs rotate {what} --finish"),
        ],
        Rotatable::ClusterCa if old_is_trusted => vec![
            format!(
                "give people other kubeconfigs ({kubeconfig} is new): those that they have are good until the old one goes"
            ),
            format!("when they have them: hactl certs rotate {what} --finish"),
        ],
        Rotatable::SigningCa if old_is_trusted => vec![
            "give those other certificates who had the API sign theirs: what they have is good until the old one goes".to_owned(),
            format!("when they have them: hactl certs rotate {what} --finish"),
        ],
        Rotatable::SigningCa => vec![
            "where its key may be in wrong hands that is not enough, for the cluster's authority vouches for it still: hactl certs rotate cluster-ca"
                .to_owned(),
        ],
        Rotatable::ClusterCa => {
            vec![format!("kubeconfigs from before are refused from now on; the administrator's is new: {kubeconfig}")]
        }
        _ => vec![],
    }
}

/// How `certs renew` ended well.
pub fn renewed(issued: &[(HostName, usize)], kubeconfig: Option<&std::path::Path>) -> String {
    let certificates: usize = issued.iter().map(|(_, n)| n).sum();
    let mut done = Vec::new();
    if certificates > 0 {
        done.push(format!("{} issued anew on {}", count(certificates, "certificate"), count(issued.len(), "host")));
    }
    if let Some(path) = kubeconfig {
        done.push(format!("the administrator's kubeconfig is new: {}", path.display()));
    }
    if done.is_empty() { "nothing to do".to_owned() } else { done.join("; ") }
}

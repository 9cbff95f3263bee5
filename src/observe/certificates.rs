//! Checks when certificates expire: those on hosts, those that components present, and the CAs.
//!
//! `up` and the kubelets renew theirs long before this check warns. It reports those that were not, or cannot be,
//! renewed.

use crate::model::certificate::{Term, WARN_DAYS, term};
use crate::model::check::{Check, Outcome, check as named};
use crate::model::desired::Desired;
use crate::model::facts::{Facts, HostFacts};
use crate::model::leaf::duration;
use crate::model::names::HostName;
use crate::model::timestamp::rfc3339;
use crate::pki::{KUBELET_SERVING, Kind, authority_paths, has_issuer, leaf_ids, serving_path};
use std::collections::BTreeMap;

/// The check's name.
pub const CERTIFICATES: &str = "certificates";

/// The component that renews a certificate; first the one that needs most work of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    Nobody,
    Kubelet,
    Component,
    Up,
}

impl By {
    const fn hint(self) -> &'static str {
        match self {
            Self::Nobody => {
                "certificates expire with their CA; `hactl certs rotate` replaces a CA while the cluster serves; \
                 hactl certs list"
            }
            Self::Kubelet => {
                "the kubelet requests its own renewal: journalctl -u kubelet -u hactl-approver on the host; \
                 hactl certs list"
            }
            Self::Component => {
                "the file is newer than the certificate that is served: restart that component; hactl certs list"
            }
            Self::Up => "hactl up renews it",
        }
    }
}

/// A certificate and its remaining validity.
struct Found {
    /// Its name and its host.
    what: String,
    by: By,
    term: Term,
    /// Seconds; negative once it has expired.
    left_s: i64,
}

/// The check; none if no host has certificates.
pub fn check(desired: &Desired, facts: &Facts) -> Option<Check> {
    let mut all = Vec::new();
    // Every host stores the same CA; it is reported once.
    let mut authorities = BTreeMap::new();
    for host in &desired.hosts {
        let Some(found) = facts.host(&host.name) else { continue };
        let judged = |what: String, by: By, (begin, end): (i64, i64)| Found {
            what,
            by,
            term: term(begin, end, found.now_ms),
            left_s: end.saturating_sub(found.now_ms.div_euclid(1000)),
        };
        let on = |name: &dyn std::fmt::Display| format!("{name} on {}", host.name);
        for (id, own) in leaf_ids(desired, host) {
            let Some(leaf) = found.leaves.get(&id) else { continue };
            let by = if own { By::Kubelet } else { By::Up };
            all.push(judged(on(&id), by, (leaf.not_before_s, leaf.not_after_s)));
        }
        let files = &found.certificates.files;
        if let Some(serving) = serving_path(host).and_then(|path| files.get(path)?.first()) {
            all.push(judged(on(&KUBELET_SERVING), By::Kubelet, (serving.not_before_s, serving.not_after_s)));
        }
        for path in authority_paths(desired, host) {
            for authority in files.get(path).into_iter().flatten() {
                let kind = Kind::ALL.into_iter().find(|kind| kind.paths(desired, host).contains(&path));
                let unnamed = authority.common_name.is_empty();
                let name = if unnamed { kind.map_or(path, Kind::name) } else { &authority.common_name };
                let found = judged(format!("the {name}"), By::Nobody, (authority.not_before_s, authority.not_after_s));
                authorities.entry(authority.fingerprint).or_insert(found);
            }
        }
        all.extend(served(&host.name, found));
    }
    all.extend(authorities.into_values());
    all.sort_by(|a, b| (b.term, a.left_s, &a.what).cmp(&(a.term, b.left_s, &b.what)));
    let first = all.first()?;
    let count = |term: Term| all.iter().filter(|found| found.term == term).count();
    let (ended, near) = (count(Term::Ended), count(Term::Near));
    let more = |n: usize| if n > 1 { format!(", and {} more", n - 1) } else { String::new() };
    let themselves = desired.unattended_days.map(|_| themselves(desired, facts));
    if let (Term::Good, Some(Err((detail, hint)))) = (first.term, &themselves) {
        return Some(named(CERTIFICATES, None, Outcome::Warn, detail, Some(hint)));
    }
    let (outcome, detail) = match first.term {
        Term::Ended => {
            let soon = if near > 0 { format!("; {near} more expire within {WARN_DAYS} days") } else { String::new() };
            let ago = duration(first.left_s.saturating_neg());
            (Outcome::Fail, format!("{} expired {ago} ago{}{soon}", first.what, more(ended)))
        }
        Term::Near => {
            let left = duration(first.left_s);
            (Outcome::Warn, format!("{} expires in {left}{}, within {WARN_DAYS} days", first.what, more(near)))
        }
        Term::Good => {
            let alone = match themselves {
                Some(Ok(Some(until_s))) => format!("; hosts renew their own until {}", day(until_s)),
                _ => String::new(),
            };
            let (count, left) = (all.len(), duration(first.left_s));
            (Outcome::Pass, format!("all {count} valid; the first to expire is {}, in {left}{alone}", first.what))
        }
    };
    // The hint is for the certificate that needs most work of a person.
    let hint = all.iter().filter(|found| found.term == first.term).map(|found| found.by).min().map(By::hint);
    Some(named(CERTIFICATES, None, outcome, detail, hint.filter(|_| outcome > Outcome::Pass)))
}

/// How overdue a renewal by the host may be, seconds: a host checks once a day.
const OVERDUE_S: i64 = 3 * 86_400;

/// Until when hosts can renew their own certificates, seconds since 1970: while their issuers and all CAs are valid.
/// `Err`: the obstacle on a host, and the remedy.
fn themselves(desired: &Desired, facts: &Facts) -> Result<Option<i64>, (String, &'static str)> {
    let mut until: Option<i64> = None;
    for host in &desired.hosts {
        let Some(found) = facts.host(&host.name) else { continue };
        let now_s = found.now_ms.div_euclid(1000);
        for (id, own) in leaf_ids(desired, host) {
            let issuer = id.issues();
            match found.leaves.get(&id) {
                None if issuer => {
                    let what = format!("{} has no {id}, so it cannot renew all of its own certificates", host.name);
                    return Err((what, "hactl up creates it, or says why it cannot"));
                }
                Some(leaf) if issuer => until = until.into_iter().chain([leaf.not_after_s]).min(),
                Some(leaf) if !own && id.may_be_renewed_by_its_host() && has_issuer(id, host) => {
                    let third_s = (leaf.not_after_s - leaf.not_before_s) / 3;
                    let overdue_s = third_s - (leaf.not_after_s - now_s);
                    if overdue_s > OVERDUE_S {
                        let since = duration(overdue_s);
                        let what = format!("{id} on {} should have been renewed by its host {since} ago", host.name);
                        return Err((what, "on the host: journalctl -u hactl-renew; hactl up renews it as well"));
                    }
                }
                _ => {}
            }
        }
        let authorities =
            authority_paths(desired, host).into_iter().filter_map(|path| found.certificates.files.get(path));
        until = until.into_iter().chain(authorities.flatten().map(|authority| authority.not_after_s)).min();
    }
    Ok(until)
}

fn day(at_s: i64) -> String {
    rfc3339(at_s.saturating_mul(1000)).chars().take(10).collect()
}

/// Certificates that components present and that differ from those in their files.
fn served(host: &HostName, facts: &HostFacts) -> Vec<Found> {
    let certificates = &facts.certificates;
    let one = |(path, shown): (&String, &Result<crate::model::certificate::CertFact, String>)| {
        let shown = shown.as_ref().ok()?;
        let file = certificates.files.get(path).and_then(|all| all.first());
        let other = file.is_some_and(|file| file.fingerprint != shown.fingerprint);
        // A component may reload its file a little later; only an expiring certificate is reported.
        (other && shown.term(facts.now_ms) > Term::Good).then(|| Found {
            what: format!("the certificate served on {host} instead of {path}"),
            by: By::Component,
            term: shown.term(facts.now_ms),
            left_s: shown.not_after_s.saturating_sub(facts.now_ms.div_euclid(1000)),
        })
    };
    certificates.presented.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::certificate::CertFact;
    use crate::model::desired::{Role, sample};
    use crate::model::facts::{LeafFact, Unreachable};
    use crate::model::names::Digest;
    use crate::model::target::CertId;

    const DAY: i64 = 86_400;
    const NOW: i64 = 400 * DAY;

    fn leaf(left_days: i64) -> LeafFact {
        LeafFact {
            common_name: String::new(),
            organizations: vec![],
            sans: vec![],
            authority: String::new(),
            through: None,
            not_before_s: NOW + (left_days - 365) * DAY,
            not_after_s: NOW + left_days * DAY,
            key_matches: true,
            changed_ms: 0,
        }
    }

    fn cert(name: &str, left_days: i64) -> CertFact {
        CertFact {
            common_name: name.to_owned(),
            key_id: String::new(),
            authority: String::new(),
            serial: String::new(),
            fingerprint: Digest::of(format!("{name} {left_days}").as_bytes()),
            not_before_s: NOW + (left_days - 3652) * DAY,
            not_after_s: NOW + left_days * DAY,
        }
    }

    /// Three hosts on which all is well, changed.
    fn stated(change: impl FnOnce(&mut Vec<HostFacts>)) -> Option<(Outcome, String, String)> {
        let desired = sample(3);
        let mut all: Vec<HostFacts> = desired
            .hosts
            .iter()
            .map(|host| {
                let mut facts = HostFacts { now_ms: NOW * 1000, ..HostFacts::default() };
                facts.leaves = leaf_ids(&desired, host).map(|(id, _)| (id, leaf(300))).collect();
                for path in authority_paths(&desired, host) {
                    facts.certificates.files.insert(path.to_owned(), vec![cert("lab cluster CA", 3000)]);
                }
                let path = serving_path(host).unwrap().to_owned();
                facts.certificates.files.insert(path, vec![cert("system:node:x", 301)]);
                facts
            })
            .collect();
        change(&mut all);
        let hosts = desired.hosts.iter().map(|h| h.name.clone()).zip(all.into_iter().map(Ok)).collect();
        check(&desired, &Facts::of(hosts)).map(|c| (c.outcome, c.detail, c.hint.unwrap_or_default()))
    }

    #[test]
    fn all_that_last_are_counted_and_the_first_to_end_is_named() {
        let (outcome, detail, hint) = stated(|all| drop(all[1].leaves.insert(CertId::Scheduler, leaf(120)))).unwrap();
        assert_eq!(outcome, Outcome::Pass);
        assert_eq!(
            detail, "all 43 valid; the first to expire is scheduler on cp2, in 120 d",
            "14 on each host, and one CA"
        );
        assert_eq!(hint, "");
    }

    #[test]
    fn less_than_thirty_days_warn_and_an_end_fails() {
        let near = |all: &mut Vec<HostFacts>| {
            all[1].leaves.insert(CertId::Apiserver, leaf(12));
            all[2].leaves.insert(CertId::EtcdPeer, leaf(29));
            all[0].leaves.insert(CertId::EtcdPeer, leaf(31));
        };
        let (outcome, detail, hint) = stated(near).unwrap();
        assert_eq!(outcome, Outcome::Warn);
        assert_eq!(detail, "apiserver on cp2 expires in 12 d, and 1 more, within 30 days");
        assert!(hint.contains("hactl up"), "{hint}");
        let (outcome, detail, _) = stated(|all| {
            near(all);
            all[0].leaves.insert(CertId::Observer, leaf(-3));
        })
        .unwrap();
        assert_eq!(
            (outcome, detail.as_str()),
            (Outcome::Fail, "observer on cp1 expired 3 d ago; 2 more expire within 30 days")
        );
    }

    #[test]
    fn expiring_cas_and_kubelet_certificates_are_reported_with_their_renewer() {
        let (outcome, detail, hint) = stated(|all| {
            for facts in all.iter_mut() {
                facts.certificates.files.insert("/etc/etcd/pki/ca.crt".to_owned(), vec![cert("lab etcd CA", 20)]);
            }
        })
        .unwrap();
        assert_eq!((outcome, detail.as_str()), (Outcome::Warn, "the lab etcd CA expires in 20 d, within 30 days"));
        assert!(hint.contains("hactl certs rotate"), "{hint}");
        let (outcome, _, hint) = stated(|all| drop(all[2].leaves.insert(CertId::Kubelet, leaf(9)))).unwrap();
        assert!(outcome == Outcome::Warn && hint.contains("hactl-approver"), "{hint}");
        let path = "/var/lib/kubelet/pki/kubelet-server-current.pem".to_owned();
        let (outcome, detail, _) =
            stated(|all| drop(all[0].certificates.files.insert(path, vec![cert("x", -1)]))).unwrap();
        assert_eq!((outcome, detail.as_str()), (Outcome::Fail, "kubelet-serving on cp1 expired 24 h ago"));
    }

    #[test]
    fn an_expiring_served_certificate_is_reported_although_its_file_is_new() {
        let path = "/etc/kubernetes/pki/apiserver.crt".to_owned();
        let serves = |left: i64| {
            stated(|all| {
                let certificates = &mut all[0].certificates;
                certificates.files.insert(path.clone(), vec![cert("new", 300)]);
                certificates.presented.insert(path.clone(), Ok(cert("old", left)));
                certificates.presented.insert("/x".to_owned(), Err("refused".to_owned()));
            })
            .unwrap()
        };
        let (outcome, detail, hint) = serves(-1);
        assert!(outcome == Outcome::Fail && detail.contains(&path) && hint.contains("restart"), "{detail}: {hint}");
        assert_eq!(serves(200).0, Outcome::Pass, "it will reload the file soon");
    }

    #[test]
    fn bare_and_unreachable_hosts_yield_no_certificate_checks() {
        assert_eq!(stated(|all| all.iter_mut().for_each(|f| *f = HostFacts::default())), None);
        let mut desired = sample(1);
        desired.hosts[0].roles = vec![Role::Spare];
        let unreachable = Unreachable { why: String::new(), hint: None };
        let hosts = [(desired.hosts[0].name.clone(), Err(unreachable))].into();
        assert_eq!(check(&desired, &Facts::of(hosts)), None);
    }
}

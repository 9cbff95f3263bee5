//! When a leaf certificate is to be issued again.
//!
//! In: the certificate as wanted, the certificate as found, the time. Out: the reason in words, or nothing. One rule
//! for `plan/`, `certs list` and `status`, so that they cannot disagree.

use super::facts::LeafFact;
use super::names::HostName;
use super::target::{CertId, CertSpec};
use std::collections::{BTreeMap, BTreeSet};

/// No run takes longer, seconds: a later start of validity is due to a clock that was ahead, and not to the requested
/// renewal.
const LONGEST_RUN_S: i64 = 6 * 3600;

/// Certificates to be renewed on request although they are valid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renewal {
    /// The earliest start of validity of a renewed certificate, seconds since 1970: the time of the request, minus the
    /// backdating of certificates. So a plan that was run does not ask for the same again.
    pub since_s: i64,
    /// The certificates, by host.
    pub leaves: BTreeMap<HostName, BTreeSet<CertId>>,
}

impl Renewal {
    /// Why this certificate of this host is to be issued, or `None`. A certificate that its component renews is never
    /// requested.
    pub fn wants(&self, host: &HostName, leaf: &CertSpec, fact: &LeafFact) -> Option<String> {
        let asked = !leaf.self_renewing && self.leaves.get(host).is_some_and(|leaves| leaves.contains(&leaf.id));
        let new = (self.since_s..self.since_s.saturating_add(LONGEST_RUN_S)).contains(&fact.not_before_s);
        (asked && !new).then(|| "its renewal was requested".to_owned())
    }
}

/// Why a certificate has to be issued, or `None` if it is good.
///
/// A certificate is renewed when less than a third of its lifetime is left. If its component renews it
/// ([`CertSpec::self_renewing`]), only its existence, its validity, its CA and its common name are checked: a renewal
/// keeps the name, which is another one after its host got the role of another host, and its age may differ at any
/// time.
pub fn needs_renewal(leaf: &CertSpec, fact: Option<&LeafFact>, now_ms: i64) -> Option<String> {
    let Some(fact) = fact else { return Some("it does not exist".to_owned()) };
    let now_s = now_ms.div_euclid(1000);
    if !fact.key_matches {
        return Some(NOT_ITS_KEY.to_owned());
    }
    if !is_of(fact, leaf) {
        return Some("another CA issued it".to_owned());
    }
    if let Some(why) = expired(fact, now_s) {
        return Some(why);
    }
    if fact.common_name != leaf.common_name {
        return Some(format!("it names {:?}, not {:?}", fact.common_name, leaf.common_name));
    }
    if leaf.self_renewing {
        return None;
    }
    if fact.organizations != leaf.organizations {
        return Some(format!("it names the groups {:?}, not {:?}", fact.organizations, leaf.organizations));
    }
    if fact.sans != leaf.sans {
        return Some(difference(&leaf.sans, &fact.sans));
    }
    aged(leaf, fact, now_s)
}

fn expired(fact: &LeafFact, now_s: i64) -> Option<String> {
    (now_s >= fact.not_after_s).then(|| format!("it expired {} ago", duration(now_s.saturating_sub(fact.not_after_s))))
}

/// Whether the wanted CA issued the certificate, or an issuing CA below it did. Issuing CAs themselves are issued only
/// by the CA.
fn is_of(fact: &LeafFact, leaf: &CertSpec) -> bool {
    fact.authority == leaf.authority
        || leaf.id.may_be_renewed_by_its_host() && fact.through.as_ref() == Some(&leaf.authority)
}

/// Why a certificate with the wanted content is due, or `None`.
fn aged(leaf: &CertSpec, fact: &LeafFact, now_s: i64) -> Option<String> {
    if let Some(why) = expired(fact, now_s) {
        return Some(why);
    }
    if now_s < fact.not_before_s {
        // It was issued with a clock that was ahead.
        return Some(format!("it is not valid before {} from now", duration(fact.not_before_s.saturating_sub(now_s))));
    }
    let (life, left) = (fact.not_after_s.saturating_sub(fact.not_before_s), fact.not_after_s.saturating_sub(now_s));
    // With a third left there is time for several failed runs before anything breaks. An issuing CA has to last for the
    // whole configured time after each run: only its host reads it, so a new one costs nothing.
    let due =
        if leaf.id.issues() { left.saturating_mul(10) < life.saturating_mul(9) } else { left.saturating_mul(3) < life };
    due.then(|| format!("it expires in {}", duration(left)))
}

/// Why a host renews a certificate with its issuing CA, or `None`: it is due, or the last renewal was interrupted. All
/// other faults are left to `up`, which has newer information than the files on the host.
pub fn renews_by_itself(leaf: &CertSpec, fact: &LeafFact, now_ms: i64) -> Option<String> {
    if !leaf.id.may_be_renewed_by_its_host() || leaf.self_renewing || !is_of(fact, leaf) {
        None
    } else if fact.key_matches {
        aged(leaf, fact, now_ms.div_euclid(1000))
    } else {
        Some(NOT_ITS_KEY.to_owned())
    }
}

const NOT_ITS_KEY: &str = "its key does not match the key file";

fn difference(wanted: &[String], found: &[String]) -> String {
    let missing: Vec<_> = wanted.iter().filter(|san| !found.contains(san)).cloned().collect();
    // The certificate may contain anything, and this text is for a terminal.
    let extra: Vec<_> =
        found.iter().filter(|san| !wanted.contains(san)).map(|san| san.escape_debug().to_string()).collect();
    match (missing.as_slice(), extra.as_slice()) {
        ([], extra) => format!("it is also valid for {}", extra.join(", ")),
        (missing, _) => format!("it is not valid for {}", missing.join(", ")),
    }
}

/// A duration in its largest unit, for people: `40 s`, `7 min`, `26 h`, `312 d`.
pub fn duration(seconds: i64) -> String {
    match seconds {
        s if s < 120 => format!("{s} s"),
        s if s < 7200 => format!("{} min", s / 60),
        s if s < 172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::target::CaId;

    const DAY: i64 = 86_400;

    fn leaf() -> CertSpec {
        CertSpec {
            id: CertId::Apiserver,
            ca: CaId::Cluster,
            authority: "aa".into(),
            common_name: "kube-apiserver".into(),
            organizations: vec!["o".into()],
            sans: vec!["DNS:a".into(), "IP:10.0.0.1".into()],
            server: true,
            client: false,
            days: 365,
            cert_path: "/c".into(),
            key_path: "/k".into(),
            owner: "root".into(),
            self_renewing: false,
            serves_by: None,
        }
    }

    fn fact() -> LeafFact {
        LeafFact {
            common_name: "kube-apiserver".into(),
            organizations: vec!["o".into()],
            sans: vec!["DNS:a".into(), "IP:10.0.0.1".into()],
            authority: "aa".into(),
            through: None,
            not_before_s: 0,
            not_after_s: 300 * DAY,
            key_matches: true,
            changed_ms: 0,
        }
    }

    fn why(leaf: &CertSpec, fact: &LeafFact, day: i64) -> String {
        needs_renewal(leaf, Some(fact), day * DAY * 1000).unwrap_or_default()
    }

    #[test]
    fn a_good_leaf_is_left_alone_until_a_third_of_its_life_is_left() {
        assert_eq!(why(&leaf(), &fact(), 1), "");
        assert_eq!(why(&leaf(), &fact(), 200), "", "exactly a third left is not less than a third");
        assert_eq!(why(&leaf(), &fact(), 201), "it expires in 99 d");
        assert_eq!(why(&leaf(), &fact(), 301), "it expired 24 h ago");
    }

    #[test]
    fn a_certificate_of_an_issuer_signed_by_a_ca_counts_as_signed_by_the_ca() {
        let by_issuer = LeafFact { authority: "issuer".into(), through: Some("aa".into()), ..fact() };
        assert_eq!(why(&leaf(), &by_issuer, 1), "");
        let strange = LeafFact { through: Some("bb".into()), ..by_issuer.clone() };
        assert!(why(&leaf(), &strange, 1).contains("another CA"));
        let issuer = CertSpec { id: CertId::ClusterIssuer, ..leaf() };
        assert!(why(&issuer, &by_issuer, 1).contains("another CA"), "issuers sign no issuers");
    }

    #[test]
    fn an_issuer_is_renewed_after_a_tenth_of_its_lifetime() {
        let issuer = CertSpec { id: CertId::ClusterIssuer, ..leaf() };
        assert_eq!(why(&issuer, &fact(), 30), "");
        assert_eq!(why(&issuer, &fact(), 31), "it expires in 269 d");
    }

    #[test]
    fn a_leaf_that_is_valid_from_later_on_is_due() {
        let ahead = LeafFact { not_before_s: 40 * DAY, not_after_s: 400 * DAY, ..fact() };
        assert_eq!(why(&leaf(), &ahead, 30), "it is not valid before 10 d from now");
    }

    #[test]
    fn a_host_renews_certificates_near_or_past_their_end_and_leaves_the_rest_to_up() {
        let renews =
            |leaf: &CertSpec, fact: &LeafFact, day: i64| renews_by_itself(leaf, fact, day * DAY * 1000).is_some();
        assert!(!renews(&leaf(), &fact(), 200) && renews(&leaf(), &fact(), 201) && renews(&leaf(), &fact(), 900));
        assert!(renews(&leaf(), &LeafFact { sans: vec![], ..fact() }, 201), "by what up asked for last");
        assert!(renews(&leaf(), &LeafFact { key_matches: false, ..fact() }, 1), "it was cut off");
        for (other, of) in [
            (leaf(), LeafFact { authority: "bb".into(), ..fact() }),
            (CertSpec { self_renewing: true, ..leaf() }, fact()),
            (CertSpec { id: CertId::ClusterIssuer, ..leaf() }, fact()),
        ] {
            assert!(!renews(&other, &of, 900), "{other:?} {of:?}");
        }
    }

    #[test]
    fn a_leaf_that_is_not_as_asked_for_is_replaced_and_the_difference_named() {
        assert_eq!(needs_renewal(&leaf(), None, 0).as_deref(), Some("it does not exist"));
        assert!(why(&leaf(), &LeafFact { key_matches: false, ..fact() }, 1).contains("key"));
        assert!(why(&leaf(), &LeafFact { authority: "bb".into(), ..fact() }, 1).contains("another CA"));
        assert!(why(&leaf(), &LeafFact { common_name: "x".into(), ..fact() }, 1).contains("\"x\""));
        assert!(why(&leaf(), &LeafFact { organizations: vec![], ..fact() }, 1).contains("groups"));
        let narrower = LeafFact { sans: vec!["DNS:a".into()], ..fact() };
        assert_eq!(why(&leaf(), &narrower, 1), "it is not valid for IP:10.0.0.1");
        let mut wider = fact();
        wider.sans.push("IP:10.0.0.2".into());
        assert_eq!(why(&leaf(), &wider, 1), "it is also valid for IP:10.0.0.2");
    }

    #[test]
    fn a_leaf_that_was_asked_for_is_wanted_until_it_is_younger_than_the_question() {
        let (one, other): (HostName, HostName) = ("cp1".parse().unwrap(), "cp2".parse().unwrap());
        let renewal = Renewal {
            since_s: 100,
            leaves: [(one.clone(), [CertId::Apiserver].into()), (other.clone(), [].into())].into(),
        };
        let old = LeafFact { not_before_s: 99, ..fact() };
        assert!(renewal.wants(&one, &leaf(), &old).is_some());
        assert_eq!(renewal.wants(&one, &leaf(), &LeafFact { not_before_s: 100, ..fact() }), None);
        let ahead = LeafFact { not_before_s: 100 + 7 * 3600, ..fact() };
        assert!(renewal.wants(&one, &leaf(), &ahead).is_some(), "it was issued with a clock that was ahead");
        assert_eq!(renewal.wants(&other, &leaf(), &old), None);
        assert_eq!(renewal.wants(&one, &CertSpec { id: CertId::Scheduler, ..leaf() }, &old), None);
        assert_eq!(renewal.wants(&one, &CertSpec { self_renewing: true, ..leaf() }, &old), None);
    }

    #[test]
    fn a_certificate_renewed_by_its_component_is_replaced_only_if_missing_expired_or_of_another_ca_or_name() {
        let kubelet = CertSpec { self_renewing: true, ..leaf() };
        assert_eq!(why(&kubelet, &LeafFact { organizations: vec![], sans: vec![], ..fact() }, 299), "");
        assert!(why(&kubelet, &LeafFact { common_name: "x".into(), ..fact() }, 1).contains("\"x\""));
        assert!(why(&kubelet, &fact(), 300).contains("expired"));
        assert!(why(&kubelet, &LeafFact { authority: "bb".into(), ..fact() }, 1).contains("another CA"));
        assert!(needs_renewal(&kubelet, None, 0).is_some());
    }
}

//! Every certificate of a host as a row: name, signer, end of validity, and what happens to it.
//!
//! In: the certificates a host should have, and those that it reported. Out: rows for `certs list`. The planner's rule
//! decides whether a certificate is due.

use super::places::{KUBELET_SERVING, Kind, authority_paths, serving, serving_path};
use crate::model::certificate::{CertFact, Certificate, Fate, OfHost, Presented, Seen, Term};
use crate::model::desired::{Desired, Host};
use crate::model::facts::HostFacts;
use crate::model::leaf::{duration, needs_renewal};
use crate::model::rotation::{Rotatable, Stage};
use crate::model::target::CertSpec;
use crate::statedir::Publics;
use std::collections::BTreeMap;

/// The name of the admin kubeconfig in lists: its common name.
pub const ADMIN: &str = "admin";
/// The kubeconfig is renewed when it has fewer days left than this.
pub const RENEW_KUBECONFIG_DAYS: i64 = 30;

/// The certificates of a reachable host. `leaves` are those that it should have.
pub fn of_host(desired: &Desired, host: &Host, leaves: &[CertSpec], publics: &Publics, facts: &HostFacts) -> OfHost {
    let presented = presented(desired, host, leaves, facts);
    let mut rows: Vec<Certificate> = leaves
        .iter()
        .map(|leaf| {
            let has_issuer = leaves.iter().any(|other| other.id.issues() && other.authority == leaf.authority);
            of_leaf(leaf, has_issuer && leaf.id.may_be_renewed_by_its_host(), publics, facts)
        })
        .collect();
    rows.extend(serving_path(host).map(|path| of_kubelet(path, publics, facts)));
    rows.extend(authorities(desired, host, publics, facts));
    for row in &mut rows {
        row.presented = presented.get(&row.name).cloned();
    }
    OfHost::sorted(rows, facts.now_ms)
}

/// The certificates on the administrator's machine: the CAs, and the certificate in the kubeconfig.
pub fn of_administrator(publics: &Publics, kubeconfig: (String, Option<CertFact>), now_ms: i64) -> OfHost {
    let (path, found) = kubeconfig;
    let mut rows: Vec<Certificate> = Kind::ALL
        .into_iter()
        .filter_map(|kind| {
            let found = CertFact::read_pem(kind.of(publics).cert_pem.as_bytes()).into_iter().next()?;
            Some(authority_row(kind.name(), vec![], found, publics, now_ms))
        })
        .collect();
    let left_s = found.as_ref().map(|f| f.not_after_s - now_ms.div_euclid(1000));
    let fate = match left_s {
        None => Fate::Due("it does not exist".to_owned()),
        Some(left) if left <= 0 => Fate::Due(format!("it expired {} ago", duration(-left))),
        Some(left) if left < RENEW_KUBECONFIG_DAYS * 86_400 => Fate::Due(format!("it expires in {}", duration(left))),
        Some(_) => Fate::ByUp,
    };
    rows.push(Certificate {
        name: ADMIN.to_owned(),
        subject: found.as_ref().map_or_else(|| ADMIN.to_owned(), |f| f.common_name.clone()),
        authority: found.as_ref().map_or_else(|| Kind::Cluster.name().to_owned(), |f| signer(f, publics)),
        paths: vec![path],
        found,
        fate,
        presented: None,
    });
    OfHost::sorted(rows, now_ms)
}

/// The name of its signer.
fn signer(found: &CertFact, publics: &Publics) -> String {
    if found.authority.is_empty() || found.authority == found.key_id {
        return if found.key_id.is_empty() { "unknown" } else { "itself" }.to_owned();
    }
    if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.of(publics).id == found.authority) {
        return kind.name().to_owned();
    }
    let other = publics.others.iter().find(|(_, _, other)| other.id == found.authority);
    other.map_or_else(|| "unknown".to_owned(), |(what, stage, _)| other_name(*what, *stage))
}

/// The name of a CA that is trusted beside the one that signs.
fn other_name(what: Rotatable, stage: Stage) -> String {
    match stage {
        Stage::Spread => format!("{what}.next"),
        Stage::Issued | Stage::Ending => format!("{what}.old"),
    }
}

fn first<'a>(facts: &'a HostFacts, path: &str) -> Option<&'a CertFact> {
    facts.certificates.files.get(path)?.first()
}

/// The host's issuer that signed it, by the name of its row: the issuer's certificate follows in the file.
fn issuer(found: &CertFact, file: &[CertFact], publics: &Publics) -> Option<String> {
    let signer = file.iter().skip(1).find(|behind| behind.key_id == found.authority)?;
    let known = |kind: &Kind| kind.of(publics).id == found.authority;
    let above = Kind::ALL.into_iter().find(|kind| kind.of(publics).id == signer.authority)?;
    (!Kind::ALL.iter().any(known)).then(|| above.issuer().map(|id| id.to_string())).flatten()
}

fn of_leaf(leaf: &CertSpec, unattended: bool, publics: &Publics, facts: &HostFacts) -> Certificate {
    let all = facts.certificates.files.get(&leaf.cert_path).map(Vec::as_slice).unwrap_or_default();
    let found = all.first().cloned();
    let due = needs_renewal(leaf, facts.leaves.get(&leaf.id), facts.now_ms);
    let expected = Kind::ALL.into_iter().find(|kind| kind.of(publics).id == leaf.authority);
    Certificate {
        name: leaf.id.to_string(),
        subject: found.as_ref().map_or(&leaf.common_name, |f| &f.common_name).clone(),
        authority: match &found {
            Some(found) => issuer(found, all, publics).unwrap_or_else(|| signer(found, publics)),
            None => expected.map_or("unknown", Kind::name).to_owned(),
        },
        paths: vec![leaf.cert_path.clone()],
        found,
        fate: match due {
            Some(why) => Fate::Due(why),
            None if leaf.self_renewing => Fate::ByKubelet,
            None if unattended => Fate::ByHost,
            None => Fate::ByUp,
        },
        presented: None,
    }
}

fn of_kubelet(path: &str, publics: &Publics, facts: &HostFacts) -> Certificate {
    let found = first(facts, path).cloned();
    let fate = match &found {
        None => Fate::Missing("the kubelet requests it from the API, and hactl-approver approves it".to_owned()),
        Some(found) if found.term(facts.now_ms) == Term::Ended => Fate::Expired,
        Some(_) => Fate::ByKubelet,
    };
    Certificate {
        name: KUBELET_SERVING.to_owned(),
        subject: found.as_ref().map(|f| f.common_name.clone()).unwrap_or_default(),
        authority: found.as_ref().map_or_else(|| Kind::KubeletServing.name().to_owned(), |f| signer(f, publics)),
        paths: vec![path.to_owned()],
        found,
        fate,
        presented: None,
    }
}

fn authority_row(name: &str, paths: Vec<String>, found: CertFact, publics: &Publics, now_ms: i64) -> Certificate {
    let fate = if found.term(now_ms) == Term::Ended { Fate::Expired } else { Fate::Stays };
    Certificate {
        name: name.to_owned(),
        subject: found.common_name.clone(),
        authority: signer(&found, publics),
        paths,
        found: Some(found),
        fate,
        presented: None,
    }
}

/// The CAs that a host trusts, each once, even if several files contain it; and other certificates in those files.
fn authorities(desired: &Desired, host: &Host, publics: &Publics, facts: &HostFacts) -> Vec<Certificate> {
    let holds = |path: &str, kind: Kind| {
        let all = facts.certificates.files.get(path).map(Vec::as_slice).unwrap_or_default();
        all.iter().find(|found| found.fingerprint == kind.of(publics).fingerprint)
    };
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        let wanted = kind.paths(desired, host);
        let lacking: Vec<&str> = wanted.iter().copied().filter(|path| holds(path, kind).is_none()).collect();
        let Some(found) = wanted.iter().find_map(|path| holds(path, kind)) else {
            if !wanted.is_empty() {
                rows.push(Certificate {
                    name: kind.name().to_owned(),
                    subject: String::new(),
                    authority: "unknown".to_owned(),
                    paths: wanted.iter().map(|path| (*path).to_owned()).collect(),
                    found: None,
                    fate: Fate::Due(format!("it is not in {}", wanted.join(", "))),
                    presented: None,
                });
            }
            continue;
        };
        let paths = wanted.iter().map(|path| (*path).to_owned()).collect();
        let mut row = authority_row(kind.name(), paths, found.clone(), publics, facts.now_ms);
        if !lacking.is_empty() {
            row.fate = Fate::Due(format!("it is not in {}", lacking.join(", ")));
        }
        rows.push(row);
    }
    for path in authority_paths(desired, host) {
        let ours = |found: &CertFact| Kind::ALL.iter().any(|kind| kind.of(publics).fingerprint == found.fingerprint);
        let all = facts.certificates.files.get(path).map(Vec::as_slice).unwrap_or_default();
        for stranger in all.iter().filter(|found| !ours(found)) {
            let other = publics.others.iter().find(|(_, _, other)| other.fingerprint == stranger.fingerprint);
            if let Some((what, stage, _)) = other {
                let name = other_name(*what, *stage);
                match rows.iter_mut().find(|row: &&mut Certificate| row.name == name) {
                    Some(row) => row.paths.push(path.to_owned()),
                    None => {
                        let paths = vec![path.to_owned()];
                        rows.push(authority_row(&name, paths, stranger.clone(), publics, facts.now_ms));
                    }
                }
                continue;
            }
            let mut row = authority_row("unknown-ca", vec![path.to_owned()], stranger.clone(), publics, facts.now_ms);
            row.fate = Fate::Due(format!("{path} is not as hactl wrote it"));
            rows.push(row);
        }
    }
    rows
}

/// What components present, by the name of the expected certificate.
fn presented(desired: &Desired, host: &Host, leaves: &[CertSpec], facts: &HostFacts) -> BTreeMap<String, Presented> {
    let one = |(name, ask): (String, crate::model::certificate::Presenting)| {
        let seen = match (facts.certificates.presented.get(&ask.path)?, first(facts, &ask.path)) {
            (Err(why), _) => Seen::Nothing(why.clone()),
            (Ok(shown), Some(file)) if shown.fingerprint == file.fingerprint => Seen::Same,
            (Ok(shown), file) => {
                let older = file.is_some_and(|file| shown.not_before_s < file.not_before_s);
                Seen::Other { certificate: shown.clone(), older }
            }
        };
        Some((name, Presented { at: ask.at, seen }))
    };
    serving(desired, host, leaves).into_iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::{Role, sample};
    use crate::pki::brought::Brought;
    use crate::pki::{Contents, certificates_ask, found, leaves};
    use time::{Duration, OffsetDateTime};

    struct World {
        desired: Desired,
        contents: Contents,
        now: OffsetDateTime,
    }

    impl World {
        fn new() -> Self {
            let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
            let desired = sample(3);
            let contents = found(&desired.cluster, Brought::default(), now).unwrap();
            Self { desired, contents, now }
        }
        fn host(&self) -> &Host {
            &self.desired.hosts[0]
        }
        fn leaves(&self) -> Vec<CertSpec> {
            leaves(&self.desired, self.host(), &self.contents.publics())
        }
        /// A host on which everything is in order, `days` after the bootstrap.
        fn facts(&self, days: i64) -> HostFacts {
            let publics = self.contents.publics();
            let mut facts =
                HostFacts { now_ms: (self.now.unix_timestamp() + days * 86_400) * 1000, ..HostFacts::default() };
            let authority = |kind: Kind| CertFact::read_pem(kind.of(&publics).cert_pem.as_bytes()).remove(0);
            for kind in Kind::ALL {
                for path in kind.paths(&self.desired, self.host()) {
                    facts.certificates.files.entry(path.to_owned()).or_default().push(authority(kind));
                }
            }
            for leaf in self.leaves() {
                let key = rcgen::KeyPair::generate().unwrap();
                let mut asked = rcgen::CertificateParams::default();
                asked.distinguished_name = rcgen::DistinguishedName::new();
                let request = asked.serialize_request(&key).unwrap().pem().unwrap();
                let issuer = self.contents.issuer(&leaf).unwrap();
                let pem = crate::pki::sign(&request, &leaf, issuer, self.now).unwrap();
                let mut read = CertFact::read_pem(pem.as_bytes());
                read.truncate(1);
                let fact = crate::model::facts::LeafFact {
                    common_name: leaf.common_name.clone(),
                    organizations: leaf.organizations.clone(),
                    sans: leaf.sans.clone(),
                    authority: read[0].authority.clone(),
                    through: None,
                    not_before_s: read[0].not_before_s,
                    not_after_s: read[0].not_after_s,
                    key_matches: true,
                    changed_ms: 0,
                };
                facts.leaves.insert(leaf.id, fact);
                facts.certificates.files.insert(leaf.cert_path.clone(), read);
            }
            facts
        }
        fn rows(&self, facts: &HostFacts) -> BTreeMap<String, Certificate> {
            let publics = self.contents.publics();
            let all = of_host(&self.desired, self.host(), &self.leaves(), &publics, facts).certificates;
            let count = all.len();
            let rows: BTreeMap<_, _> = all.into_iter().map(|c| (c.name.clone(), c)).collect();
            assert_eq!(rows.len(), count, "every row has a name of its own");
            rows
        }
    }

    #[test]
    fn every_certificate_and_every_ca_of_a_host_is_a_row_with_its_signer_and_its_fate() {
        let world = World::new();
        let rows = world.rows(&world.facts(1));
        for leaf in world.leaves() {
            let row = &rows[&leaf.id.to_string()];
            assert_eq!(row.subject, leaf.common_name);
            assert_eq!(row.fate, if leaf.self_renewing { Fate::ByKubelet } else { Fate::ByUp }, "{}", row.name);
        }
        let signed = |name: &str| rows[name].authority.as_str();
        assert_eq!(
            (signed("etcd-peer"), signed("apiserver"), signed("kubelet")),
            ("etcd-ca", "cluster-ca", "signing-ca")
        );
        assert_eq!((signed("cluster-ca"), signed("signing-ca")), ("itself", "cluster-ca"));
        assert_eq!(rows["cluster-ca"].paths.len(), 2);
        for kind in Kind::ALL {
            assert_eq!(rows[kind.name()].fate, Fate::Stays);
        }
        assert!(matches!(&rows[KUBELET_SERVING].fate, Fate::Missing(_)));
        assert_eq!(rows.len(), 13 + 5 + 1);
    }

    #[test]
    fn a_row_shows_the_action_of_the_planner_or_that_there_is_none() {
        let world = World::new();
        let late = world.rows(&world.facts(300));
        assert!(
            matches!(&late["apiserver"].fate, Fate::Due(why) if why.contains("expires in 65 d")),
            "{:?}",
            late["apiserver"]
        );
        assert_eq!(late["kubelet"].fate, Fate::ByKubelet);
        let ended = world.rows(&world.facts(4000));
        assert!(matches!(&ended["kubelet"].fate, Fate::Due(why) if why.contains("expired")));
        assert_eq!((&ended["cluster-ca"].fate, &ended["signing-ca"].fate), (&Fate::Expired, &Fate::Expired));
        let mut facts = world.facts(1);
        facts.leaves.clear();
        facts.certificates.files.clear();
        let bare = world.rows(&facts);
        assert_eq!(bare["etcd-server"].fate, Fate::Due("it does not exist".to_owned()));
        assert_eq!(bare["etcd-server"].authority, "etcd-ca");
        assert!(matches!(&bare["etcd-ca"].fate, Fate::Due(why) if why.contains("/etc/etcd/pki/ca.crt")));
    }

    #[test]
    fn a_ca_missing_from_one_of_its_files_and_an_unknown_ca_are_reported() {
        let world = World::new();
        let mut facts = world.facts(1);
        let files = &mut facts.certificates.files;
        let stranger = found(&"other".parse().unwrap(), Brought::default(), world.now).unwrap().publics().cluster;
        files.insert("/etc/kubernetes/pki/ca.crt".to_owned(), CertFact::read_pem(stranger.cert_pem.as_bytes()));
        let rows = world.rows(&facts);
        assert_eq!(rows["cluster-ca"].fate, Fate::Due("it is not in /etc/kubernetes/pki/ca.crt".to_owned()));
        assert_eq!(rows["unknown-ca"].subject, "other cluster CA");
    }

    #[test]
    fn a_component_that_still_presents_an_older_certificate_than_its_file_is_found_out() {
        let world = World::new();
        let mut facts = world.facts(1);
        let ask = certificates_ask(&world.desired, world.host(), &world.leaves());
        assert_eq!(ask.presented.len(), 4, "etcd to clients and peers, the API server, the kubelet");
        for one in &ask.presented {
            let shown = facts.certificates.files.get(&one.path).map(|all| all[0].clone());
            facts.certificates.presented.insert(one.path.clone(), shown.ok_or_else(|| "refused".to_owned()));
        }
        let path = "/etc/kubernetes/pki/apiserver.crt";
        let Some(Ok(shown)) = facts.certificates.presented.get_mut(path) else { panic!() };
        shown.not_before_s -= 86_400;
        shown.fingerprint = crate::model::names::Digest::of(b"another");
        let rows = world.rows(&facts);
        let seen = |name: &str| rows[name].presented.as_ref().map(|p| &p.seen);
        assert_eq!((seen("etcd-server"), seen("etcd-peer")), (Some(&Seen::Same), Some(&Seen::Same)));
        assert!(matches!(seen("apiserver"), Some(Seen::Other { older: true, .. })));
        assert_eq!(seen(KUBELET_SERVING), Some(&Seen::Nothing("refused".to_owned())));
        assert_eq!(seen("scheduler"), None);
    }

    #[test]
    fn hosts_have_the_cas_of_their_roles_and_the_first_to_expire_comes_first() {
        let mut world = World::new();
        world.desired.hosts[0].roles = vec![Role::LoadBalancer];
        let facts = world.facts(1);
        assert_eq!(world.rows(&facts).into_keys().collect::<Vec<_>>(), ["cluster-ca"]);
        world.desired.hosts[0].roles = vec![Role::Worker];
        let facts = world.facts(1);
        let publics = world.contents.publics();
        let all = of_host(&world.desired, world.host(), &world.leaves(), &publics, &facts).certificates;
        let names: Vec<&str> = all.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, [KUBELET_SERVING, "kubelet", "signing-ca", "cluster-ca"]);
    }

    #[test]
    fn the_administrators_kubeconfig_is_due_when_it_is_missing_or_near_its_end() {
        let world = World::new();
        let publics = world.contents.publics();
        let credential = crate::pki::admin_credential(&world.contents.cluster, world.now).unwrap();
        let found = CertFact::read_pem(credential.cert_pem.as_bytes()).pop();
        let fate = |found: Option<CertFact>, days: i64| {
            let now_ms = (world.now + Duration::days(days)).unix_timestamp() * 1000;
            let all = of_administrator(&publics, ("kubeconfig".to_owned(), found), now_ms).certificates;
            assert_eq!(all.len(), 6);
            all.into_iter().find(|c| c.name == ADMIN).map(|c| (c.authority, c.fate)).unwrap()
        };
        assert_eq!(fate(found.clone(), 300), ("cluster-ca".to_owned(), Fate::ByUp));
        assert_eq!(fate(found, 340).1, Fate::Due("it expires in 25 d".to_owned()));
        assert_eq!(fate(None, 1).1, Fate::Due("it does not exist".to_owned()));
    }
}

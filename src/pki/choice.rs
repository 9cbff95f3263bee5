//! The arguments of `certs renew`: names and hosts become certificates, or an error that says why one cannot be
//! renewed.
//!
//! In: words of the command line, the inventory. Out: certificates by host, and whether the admin kubeconfig is
//! renewed.

use super::list::ADMIN;
use super::places::{KUBELET_SERVING, Kind};
use super::table::leaf_ids;
use crate::model::desired::Desired;
use crate::model::names::HostName;
use crate::model::target::CertId;
use std::collections::{BTreeMap, BTreeSet};

/// The certificates to renew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Certificates by host; every host here has at least one.
    pub leaves: BTreeMap<HostName, BTreeSet<CertId>>,
    /// Whether the admin kubeconfig is renewed.
    pub admin: bool,
}

/// Why a certificate cannot be renewed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRenewable {
    /// No certificate has this name.
    #[error("there is no certificate {name}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// Its component renews it.
    #[error("{name} belongs to the kubelet, which renews it automatically when 10 to 30 % of its lifetime is left")]
    SelfRenewing {
        /// The name.
        name: String,
    },
    /// It is a CA.
    #[error("{name} is a CA: every certificate that it signed would have to be replaced too; see `hactl certs rotate`")]
    Authority {
        /// The name.
        name: String,
    },
    /// None of the hosts has it.
    #[error("{} has no {name}", .hosts.iter().map(HostName::as_str).collect::<Vec<_>>().join(", "))]
    NotThere {
        /// The name.
        name: String,
        /// The hosts.
        hosts: Vec<HostName>,
    },
}

/// The names that can be renewed, as they are written on the command line.
pub fn renewable() -> Vec<String> {
    let ours = CertId::ALL.into_iter().filter(|id| *id != CertId::Kubelet).map(|id| id.to_string());
    ours.chain([ADMIN.to_owned()]).collect()
}

/// Parses names and hosts; no names means every certificate that hactl renews, no hosts means every host.
///
/// # Errors
/// An unknown name, or a certificate that cannot be renewed this way.
pub fn choose(desired: &Desired, names: &[String], hosts: &[HostName]) -> Result<Chosen, NotRenewable> {
    let there: Vec<(&HostName, BTreeSet<CertId>)> = desired
        .hosts
        .iter()
        .filter(|host| hosts.is_empty() || hosts.contains(&host.name))
        .map(|host| (&host.name, leaf_ids(desired, host).filter(|(_, own)| !own).map(|(id, _)| id).collect()))
        .collect();
    let mut chosen = Chosen::default();
    let mut take = |wanted: &dyn Fn(CertId) -> bool| {
        let mut taken = false;
        for (host, leaves) in &there {
            for id in leaves.iter().filter(|id| wanted(**id)) {
                chosen.leaves.entry((*host).clone()).or_default().insert(*id);
                taken = true;
            }
        }
        taken
    };
    if names.is_empty() {
        take(&|_| true);
        return Ok(chosen);
    }
    let mut admin = false;
    for name in names {
        match CertId::named(name) {
            _ if name == ADMIN => admin = true,
            _ if name == KUBELET_SERVING => return Err(NotRenewable::SelfRenewing { name: name.clone() }),
            Some(CertId::Kubelet) => return Err(NotRenewable::SelfRenewing { name: name.clone() }),
            Some(id) if take(&|other| other == id) => {}
            Some(_) => {
                let hosts = there.iter().map(|(host, _)| (*host).clone()).collect();
                return Err(NotRenewable::NotThere { name: name.clone(), hosts });
            }
            None if Kind::ALL.iter().any(|kind| kind.name() == name) => {
                return Err(NotRenewable::Authority { name: name.clone() });
            }
            None => return Err(NotRenewable::Unknown { name: name.clone() }),
        }
    }
    chosen.admin = admin;
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::{Role, sample};
    use crate::model::healing::Mode;

    fn chosen(names: &[&str], hosts: &[&str]) -> Result<Chosen, NotRenewable> {
        let mut desired = Desired { unattended_days: Some(365), metrics: true, ..sample(3) };
        desired.hosts[2].roles = vec![Role::Worker];
        desired.healing.mode = Mode::Watch;
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let hosts: Vec<HostName> =
            hosts.iter().map(|h| desired.hosts[h.parse::<usize>().unwrap()].name.clone()).collect();
        choose(&desired, &names, &hosts)
    }

    fn count(chosen: &Chosen) -> Vec<usize> {
        chosen.leaves.values().map(BTreeSet::len).collect()
    }

    #[test]
    fn without_names_every_leaf_that_hactl_renews_is_meant_and_not_the_kubeconfig() {
        let all = chosen(&[], &[]).unwrap();
        assert_eq!((count(&all), all.admin), (vec![17, 17, 1], false), "its kubelet renews that of a worker itself");
        assert_eq!(count(&chosen(&[], &["1"]).unwrap()), [17]);
    }

    #[test]
    fn names_and_hosts_are_taken_together() {
        assert_eq!(count(&chosen(&["apiserver", "etcd-peer", "apiserver"], &[]).unwrap()), [2, 2]);
        let one = chosen(&["admin", "scheduler"], &["0"]).unwrap();
        assert_eq!((count(&one), one.admin), (vec![1], true));
        assert_eq!(chosen(&["admin"], &[]).unwrap(), Chosen { admin: true, ..Chosen::default() });
    }

    #[test]
    fn certificates_that_cannot_be_renewed_get_a_reason() {
        for (name, word) in [
            ("apiserve", "no certificate apiserve"),
            ("kubelet", "automatically"),
            ("kubelet-serving", "automatically"),
            ("etcd-ca", "is a CA"),
        ] {
            let error = chosen(&["apiserver", name], &[]).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(
            matches!(chosen(&["apiserver"], &["2"]), Err(NotRenewable::NotThere { hosts, .. }) if hosts.len() == 1)
        );
        for name in renewable() {
            assert!(chosen(&[&name], &[]).is_ok(), "{name}");
        }
    }
}

//! The machines of a lab: the one description that `hactl lab`, the Vagrantfile and `-i vagrant:DIR` share.
//!
//! In: `vagrant/topology.yaml`, which is part of the binary. Out: names for machines, and the roles of a machine by its
//! name and those of its neighbours.

use crate::model::desired::Role;
use serde::Deserialize;
use std::sync::LazyLock;

const TEXT: &str = include_str!("../../vagrant/topology.yaml");

static TOPOLOGY: LazyLock<Topology> = LazyLock::new(|| {
    serde_saphyr::from_str(TEXT).unwrap_or_else(|error| panic!("vagrant/topology.yaml, which a test reads: {error}"))
});

/// The description.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// The last octet of the first machine's address; the others are numbered from it.
    pub first: u8,
    /// The last octet of the API's virtual address.
    pub vip: u8,
    /// The kinds of machines, in the order of their creation.
    pub machines: Vec<Machines>,
    /// Lines of an inventory that only containers on one machine need.
    pub containers: String,
}

/// Machines of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machines {
    /// Their role.
    pub role: Role,
    /// Their default number.
    pub count: usize,
    /// Their names without the number; new machines use the first.
    pub names: Vec<String>,
    /// Their additional roles, as long as no machines have only these.
    pub also: Vec<Role>,
}

/// The description that was built in.
#[must_use]
pub fn topology() -> &'static Topology {
    &TOPOLOGY
}

impl Topology {
    /// The names of this many machines of each role, in the order of their addresses.
    pub fn names(&self, count: impl Fn(Role) -> usize) -> impl Iterator<Item = (String, Role)> {
        self.machines.iter().flat_map(move |kind| {
            let called = kind.names.first().map_or("", String::as_str);
            (1..=count(kind.role)).map(move |number| (format!("{called}{number}"), kind.role))
        })
    }

    /// The role of a machine by its name: the longest word for a role at its end, before its number.
    #[must_use]
    pub fn role_of(&self, name: &str) -> Option<Role> {
        let name = name.split('.').next().unwrap_or(name).to_ascii_lowercase().replace('_', "-");
        let word = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-');
        let ends = |called: &str| word == called || word.strip_suffix(called).is_some_and(|rest| rest.ends_with('-'));
        let words = self.machines.iter().flat_map(|kind| kind.names.iter().map(move |called| (called, kind.role)));
        words.filter(|(called, _)| ends(called)).max_by_key(|(called, _)| called.len()).map(|(_, role)| role)
    }

    /// All roles of a machine made for `role`, in a lab that has machines for `there`.
    #[must_use]
    pub fn roles(&self, role: Role, there: &[Role]) -> Vec<Role> {
        let also = self.machines.iter().filter(|kind| kind.role == role).flat_map(|kind| &kind.also);
        std::iter::once(role).chain(also.copied().filter(|more| !there.contains(more))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_of_three_has_all_that_a_cluster_needs_on_each() {
        let names: Vec<_> = topology().names(|role| if role == Role::ControlPlane { 3 } else { 0 }).collect();
        assert_eq!(names.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["cp1", "cp2", "cp3"]);
        let there = [Role::ControlPlane];
        assert_eq!(topology().roles(Role::ControlPlane, &there), [Role::ControlPlane, Role::Etcd, Role::LoadBalancer]);
    }

    #[test]
    fn machines_for_etcd_alone_take_it_from_the_control_plane() {
        let there = [Role::ControlPlane, Role::Etcd, Role::Worker];
        assert_eq!(topology().roles(Role::ControlPlane, &there), [Role::ControlPlane, Role::LoadBalancer]);
        assert_eq!(topology().roles(Role::Etcd, &there), [Role::Etcd]);
        assert_eq!(topology().roles(Role::Worker, &there), [Role::Worker]);
    }

    #[test]
    fn a_name_determines_the_role_of_a_machine() {
        let cases = [
            ("cp1", Some(Role::ControlPlane)),
            ("etcd2", Some(Role::Etcd)),
            ("lb1", Some(Role::LoadBalancer)),
            ("w12", Some(Role::Worker)),
            ("s1", Some(Role::Spare)),
            ("k8s-master-1", Some(Role::ControlPlane)),
            ("kube_node_02", Some(Role::Worker)),
            ("Worker", Some(Role::Worker)),
            ("prod-control-plane-3.example.org", Some(Role::ControlPlane)),
            ("db1", None),
            ("scp1", None),
            ("default", None),
            ("", None),
        ];
        for (name, role) in cases {
            assert_eq!(topology().role_of(name), role, "{name:?}");
        }
    }

    #[test]
    fn every_role_has_machines_recognized_by_their_names() {
        for kind in &topology().machines {
            for called in &kind.names {
                assert_eq!(topology().role_of(&format!("{called}1")), Some(kind.role), "{called}");
            }
        }
        assert_eq!(topology().machines.len(), 5, "one of each role");
    }
}

//! What a host may have of roles that it has no more, against all that it had.

use super::super::table::unit;
use super::*;
use crate::model::target::SetTarget;

const STACKED: [Role; 3] = [Role::ControlPlane, Role::Etcd, Role::LoadBalancer];

fn with(roles: &[Role]) -> (Desired, Host) {
    let mut desired = desired();
    desired.hosts[0].roles = roles.to_vec();
    let host = desired.hosts[0].clone();
    (desired, host)
}

fn sets(roles: &[Role]) -> BTreeMap<FileSet, SetTarget> {
    let (desired, host) = with(roles);
    former_sets(&desired, &host)
}

#[test]
fn all_files_and_units_of_former_roles_are_known_and_none_of_the_remaining_roles() {
    let (before, host) = with(&STACKED);
    let had: BTreeSet<String> = paths(&before, &host).into_iter().collect();
    let ran: BTreeSet<UnitName> = units(&before, &host).into_iter().collect();
    let worker = [Role::Worker, Role::Etcd];
    for roles in [&STACKED[..2], &STACKED[1..], &STACKED[..1], &worker[..1], &worker, &[Role::Spare]] {
        let (after, host) = with(roles);
        let needs: BTreeSet<String> = paths(&after, &host).into_iter().collect();
        let goes: BTreeSet<String> = former_sets(&after, &host).into_values().flat_map(|set| set.own).collect();
        let kept: Vec<&String> = had.iter().filter(|path| !needs.contains(*path) && !goes.contains(*path)).collect();
        assert_eq!(kept, Vec::<&String>::new(), "{roles:?}: it keeps these");
        let lost: Vec<&String> = needs.intersection(&goes).collect();
        assert_eq!(lost, Vec::<&String>::new(), "{roles:?}: it loses these");
        let runs: BTreeSet<UnitName> = units(&after, &host).into_iter().collect();
        let stops: BTreeSet<UnitName> = former_units(&after, &host).into_iter().collect();
        assert!(ran.iter().all(|unit| runs.contains(unit) != stops.contains(unit)), "{roles:?}: {stops:?}");
    }
}

#[test]
fn keys_of_leaves_go_with_the_role_that_they_are_of() {
    let control = &sets(&[Role::Worker, Role::Etcd])[&FileSet::FormerControlPlane];
    for key in ["apiserver.key", "apiserver.key.new", "controller-manager.key", "sa.key", "signing.key"] {
        assert!(control.own.contains(&format!("/etc/kubernetes/pki/{key}")), "{key}");
    }
    assert!(control.own.contains(&"/etc/kubernetes/config/encryption.yaml".to_owned()));
    let etcd = &sets(&[Role::ControlPlane])[&FileSet::FormerEtcd];
    for key in ["server.key", "peer.key", "observer.key"] {
        assert!(etcd.own.contains(&format!("/etc/etcd/pki/{key}")), "{key}");
    }
    let state = "/var/lib/hactl/state.age".to_owned();
    assert!(!etcd.own.contains(&state) && sets(&[Role::Worker])[&FileSet::FormerEtcd].own.contains(&state));
}

#[test]
fn files_that_others_may_own_count_only_beside_files_of_hactl_which_are_removed_last() {
    let sets = sets(&[Role::Spare]);
    for (set, theirs) in [
        (FileSet::FormerBalancer, "/etc/haproxy/haproxy.cfg"),
        (FileSet::FormerBalancer, "/etc/keepalived/keepalived.conf"),
        (FileSet::FormerEtcd, "/etc/systemd/system/etcd.service"),
        (FileSet::FormerNode, "/etc/containerd/config.toml"),
        (FileSet::FormerNode, "/etc/systemd/system/kubelet.service"),
    ] {
        let set = &sets[&set];
        assert!(set.own.contains(&theirs.to_owned()) && !set.is_told(|path| path == theirs), "{theirs}");
    }
    for set in sets.values() {
        assert!(!set.told_by.is_empty() && set.own.ends_with(&set.told_by), "{:?}", set.own);
        assert!(set.files.is_empty() && set.unit.is_none());
    }
}

#[test]
fn kernel_settings_sort_after_the_usual_files_and_their_former_file_goes_from_every_host() {
    let (desired, host) = with(&STACKED);
    let written = paths(&desired, &host);
    let path = written.iter().find(|path| path.starts_with("/etc/sysctl.d/")).unwrap();
    let usual = ["10-network-security.conf", "99-sysctl.conf", "99-zzz.conf", "k8s.conf", "zabbix.conf"];
    assert!(usual.iter().all(|name| *path > format!("/etc/sysctl.d/{name}")), "{path}");
    let old = "/etc/sysctl.d/90-hactl.conf".to_owned();
    for roles in [&STACKED[..], &[Role::Worker], &[Role::Spare]] {
        let (desired, host) = with(roles);
        let sets = rendered(&desired, &host, &facts(&host)).unwrap();
        let mut sets: BTreeMap<FileSet, SetTarget> = sets.into_iter().map(|set| (set.set, set.target())).collect();
        sets.extend(former_sets(&desired, &host));
        assert!(sets.values().any(|set| set.own.contains(&old)), "{roles:?}: it is removed");
        assert!(former(&desired, &host).contains(&old), "{roles:?}: it is looked for");
        assert!(!paths(&desired, &host).contains(&old), "{roles:?}: it is not written");
    }
    assert!(wipe(&desired, &host, false).remove.contains(&old));
}

#[test]
fn no_host_is_a_former_balancer_without_a_virtual_address() {
    for kind in [EndpointKind::External("lb.example".to_owned()), EndpointKind::Local { name: None }] {
        let (mut desired, host) = with(&[Role::Worker]);
        desired.endpoint.kind = kind;
        let sets = former_sets(&desired, &host);
        assert!(!sets.contains_key(&FileSet::FormerBalancer));
        assert!(!sets.values().any(|set| set.own.iter().any(|path| path.contains("haproxy.cfg"))));
    }
    let haproxy = unit(FileSet::LoadBalancer).map(|(name, _)| name).into_iter().collect::<Vec<_>>();
    let (mut desired, host) = with(&[Role::Etcd]);
    desired.endpoint.kind = EndpointKind::Local { name: None };
    assert!(clear_node(&desired, &host).units.ends_with(&haproxy), "every Node had one of its own");
}

#[test]
fn a_former_node_keeps_no_key_in_its_archived_files() {
    let (desired, host) = with(&[Role::Etcd]);
    let ask = clear_node(&desired, &host);
    assert!(ask.stays && !ask.delete && ask.remove.contains(&"/var/lib/kubelet/pki".to_owned()));
    assert!(!ask.data.iter().chain(&ask.remove).any(|path| path.contains("etcd")), "its member goes on");
}

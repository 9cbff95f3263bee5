//! The names of the units that more than one folder needs.

use super::names::UnitName;

/// One repair of the etcd member of its host, with the leave of the others.
pub const HEAL_UNIT: &str = "hactl-heal.service";

/// Copies the newest snapshots of the other etcd hosts to its host, and its schedule.
pub const PEER_SNAPSHOTS_UNIT: &str = "hactl-peer-snapshots.service";
/// See [`PEER_SNAPSHOTS_UNIT`].
pub const PEER_SNAPSHOTS_TIMER: &str = "hactl-peer-snapshots.timer";

/// Approves the serving certificates of kubelets.
pub const APPROVER_UNIT: &str = "hactl-approver.service";

/// Records the positions of etcd members.
pub const POSITIONS_UNIT: &str = "hactl-positions.service";

/// The unit that runs etcd.
pub const ETCD_UNIT: &str = "etcd.service";

/// The oldest systemd that hactl supports. The version 248 is the first that shows to the microsecond when a unit
/// started; earlier ones lack conditions and settings of hactl's units as well.
pub const OLDEST_SYSTEMD: u32 = 248;

/// A unit by a constant name.
///
/// # Panics
/// If the name is not a valid one.
pub fn unit(name: &'static str) -> UnitName {
    name.parse().expect("a constant that is a valid unit name")
}

/// The unit that runs etcd.
pub fn etcd_unit() -> UnitName {
    unit(ETCD_UNIT)
}

/// The unit of the balancer between an API server and etcd's members.
pub fn etcd_balancer_unit() -> UnitName {
    unit("hactl-etcd-balancer.service")
}

/// containerd's unit.
pub fn containerd_unit() -> UnitName {
    unit("containerd.service")
}

/// The kubelet's unit.
pub fn kubelet_unit() -> UnitName {
    unit("kubelet.service")
}

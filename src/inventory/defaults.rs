//! The values of keys that an inventory leaves out, for the checks and for the published schema.

/// Default version of Kubernetes.
pub const DEFAULT_KUBERNETES: &str = "1.37.2";
/// Default pod range.
pub const PODS: &str = "10.244.0.0/16";
/// Default service range.
pub const SERVICES: &str = "10.96.0.0/12";
/// etcd's default data directory.
pub const DATA_DIR: &str = "/var/lib/etcd";
/// Default login user.
pub const USER: &str = "root";
/// Default port of sshd.
pub const PORT: u16 = 22;

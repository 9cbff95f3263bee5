//! The owner of each setting of the components: only hactl, or hactl with a default that the inventory may replace.
//!
//! Only hactl sets what other components or the planner depend on (addresses, certificates, names): a setting with two
//! owners breaks a cluster at the next upgrade. Tunable numbers are defaults. A test in `render/` finds every flag and
//! field that the templates and manifests set, and fails if one is in neither list.

/// The owner of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// hactl: an inventory that sets it is refused.
    Hactl,
    /// hactl, from another key of the inventory.
    Key(&'static str),
    /// hactl as a default: `extra` may replace it.
    Default,
}

impl Owner {
    /// The key that it is derived from, empty for none; `None` for defaults.
    pub fn key(self) -> Option<&'static str> {
        match self {
            Self::Hactl => Some(""),
            Self::Key(key) => Some(key),
            Self::Default => None,
        }
    }
}

use Owner::{Default, Hactl, Key};
use serde_json::{Map, Value};

/// Owners with their settings: words, which for a field of a file are the keys of its path with `/` between them.
type Table = &'static [(Owner, &'static str)];

fn owned(table: Table) -> impl Iterator<Item = (&'static str, Owner)> {
    table.iter().flat_map(|(owner, names)| names.split_ascii_whitespace().map(|name| (name, *owner)))
}

/// The flags of a component; a trailing `*` matches any suffix.
pub fn flags(component: &str) -> impl Iterator<Item = (&'static str, Owner)> {
    owned(match component {
        "kube-apiserver" => APISERVER,
        "kube-controller-manager" => CONTROLLER_MANAGER,
        "kube-scheduler" => SCHEDULER,
        "etcd" => ETCD,
        "kubelet" => KUBELET,
        "kube-proxy" => KUBE_PROXY,
        _ => &[],
    })
}

/// The fields of a component's configuration, as paths.
pub fn fields(component: &str) -> impl Iterator<Item = (Vec<&'static str>, Owner)> {
    let table = match component {
        "kubelet" => KUBELET_FIELDS,
        "kube-proxy" => KUBE_PROXY_FIELDS,
        "containerd" => CONTAINERD_FIELDS,
        _ => &[],
    };
    owned(table).map(|(path, owner)| (path.split('/').collect(), owner))
}

/// Whether a pattern, in which a trailing `*` matches any suffix, matches this flag.
fn is(pattern: &str, flag: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => flag.starts_with(start),
        None => flag == pattern,
    }
}

/// Whether only hactl may set a flag.
pub fn owns(component: &str, flag: &str) -> bool {
    // Components accept an underscore for a dash.
    let flag = flag.replace('_', "-");
    flags(component).any(|(pattern, owner)| owner == Hactl && is(pattern, &flag))
}

/// Removes the fields that only hactl sets from a component's configuration, and returns their names.
pub fn take_owned(component: &str, config: &mut Map<String, Value>) -> Vec<String> {
    let own = fields(component).filter(|(_, owner)| owner.key().is_some());
    own.filter(|(path, _)| take(config, path)).map(|(path, _)| path.join(".")).collect()
}

/// Removes a field from a mapping; returns whether it was there, or a value above it that would replace it.
pub fn take(map: &mut Map<String, Value>, path: &[&str]) -> bool {
    let Some((first, rest)) = path.split_first() else { return false };
    match map.get_mut(*first) {
        None => false,
        Some(Value::Object(inner)) if !rest.is_empty() => take(inner, rest),
        Some(_) => map.remove(*first).is_some(),
    }
}

const APISERVER: Table = &[
    (
        Hactl,
        "admission-control-config-file advertise-address allow-privileged anonymous-auth audit-log-format \
         audit-log-path audit-policy-file authentication-* authorization-* bind-address client-ca-file \
         disable-admission-plugins enable-admission-plugins enable-aggregator-routing enable-bootstrap-token-auth \
         encryption-provider-config* etcd-* external-hostname insecure-* kubelet-* oidc-* proxy-client-* \
         requestheader-* secure-port service-account-* service-cluster-ip-range",
    ),
    // The balancers depend on them when an API server stops.
    (Hactl, "shutdown-*"),
    (Hactl, "storage-* tls-* token-auth-file"),
    (Default, "audit-log-maxage audit-log-maxbackup audit-log-maxsize goaway-chance profiling request-timeout"),
];

const CONTROLLER_MANAGER: Table = &[
    (
        Hactl,
        "allocate-node-cidrs authentication-* authorization-* bind-address client-ca-file cluster-cidr cluster-name \
         cluster-signing-* kubeconfig leader-elect leader-elect-resource-* master node-cidr-mask-size* requestheader-* \
         root-ca-file secure-port service-account-private-key-file service-cluster-ip-range tls-* \
         use-service-account-credentials",
    ),
    (
        Default,
        "controllers feature-gates kube-api-burst kube-api-qps leader-elect-lease-duration leader-elect-renew-deadline \
         leader-elect-retry-period node-monitor-grace-period profiling terminated-pod-gc-threshold",
    ),
];

const SCHEDULER: Table = &[
    (Hactl, "authentication-* authorization-* bind-address client-ca-file"),
    // With a configuration file, the scheduler ignores its other flags.
    (Hactl, "config"),
    (Hactl, "kubeconfig leader-elect leader-elect-resource-* master requestheader-* secure-port tls-*"),
    (Default, "leader-elect-lease-duration leader-elect-renew-deadline leader-elect-retry-period profiling"),
];

const ETCD: Table = &[
    (Hactl, "advertise-client-urls"),
    // The API servers compact; a second compactor would only interrupt watches.
    (Hactl, "auto-compaction-*"),
    (Hactl, "auto-tls ca-file cert-file cipher-suites client-* config-file data-dir discovery* enable-grpc-gateway"),
    // hactl enables the comparison of hashes with a feature gate.
    (Hactl, "feature-gates"),
    (
        Hactl,
        "force-new-cluster* initial-* key-file listen-* name peer-* pre-vote quota-backend-bytes strict-reconfig-check \
         tls-* trusted-ca-file wal-dir",
    ),
    (Default, "compact-hash-check-time election-timeout heartbeat-interval log-level"),
];

const KUBELET: Table = &[(
    Hactl,
    "bootstrap-kubeconfig cert-dir config config-dir container-runtime-endpoint hostname-override kubeconfig \
     node-ip node-labels register-* root-dir tls-*",
)];

const KUBE_PROXY: Table =
    &[(Hactl, "cleanup cluster-cidr config hostname-override kubeconfig master proxy-mode write-config-to")];

const KUBELET_FIELDS: Table = &[
    (Hactl, "apiVersion kind"),
    (Key("the host's address"), "address"),
    (Hactl, "authentication authorization"),
    (Key("network.services"), "clusterDNS"),
    (Hactl, "clusterDomain containerRuntimeEndpoint healthzBindAddress healthzPort port readOnlyPort registerNode"),
    (Key("hosts[].taints"), "registerWithTaints"),
    (Hactl, "rotateCertificates serverTLSBootstrap staticPodPath staticPodURL tlsCertFile tlsPrivateKeyFile"),
    (
        Default,
        "cgroupDriver containerLogMaxFiles containerLogMaxSize crashLoopBackOff eventRecordQPS evictionHard failSwapOn \
         imageMinimumGCAge imagePullCredentialsVerificationPolicy makeIPTablesUtilChains maxParallelImagePulls \
         nodeStatusReportFrequency nodeStatusUpdateFrequency podPidsLimit protectKernelDefaults resolvConf \
         seccompDefault serializeImagePulls shutdownGracePeriod shutdownGracePeriodByPodPriority \
         shutdownGracePeriodCriticalPods streamingConnectionIdleTimeout systemReserved tlsCipherSuites tlsMinVersion",
    ),
];

const KUBE_PROXY_FIELDS: Table = &[
    (Hactl, "apiVersion kind clientConnection"),
    (Key("network.pods"), "clusterCIDR"),
    (Key("hosts[].name"), "hostnameOverride"),
    (Key("network.kubeProxy"), "mode"),
    (Default, "bindAddress healthzBindAddress metricsBindAddress"),
];

const CONTAINERD_FIELDS: Table = &[
    (Hactl, "version root state imports grpc/address plugins/io.containerd.cri.v1.images/pinned_images/sandbox"),
    (Key("registries"), "plugins/io.containerd.cri.v1.images/registry"),
    (Key("metrics"), "metrics/address"),
    (Hactl, "plugins/io.containerd.cri.v1.runtime/enable_selinux"),
    (Key("extra.containerd.restrictOomScoreAdj"), "plugins/io.containerd.cri.v1.runtime/restrict_oom_score_adj"),
    (Hactl, "plugins/io.containerd.cri.v1.runtime/cni/bin_dirs plugins/io.containerd.cri.v1.runtime/cni/conf_dir"),
    (Default, "plugins/io.containerd.cri.v1.runtime/containerd/default_runtime_name"),
    (Hactl, "plugins/io.containerd.cri.v1.runtime/containerd/runtimes/runc"),
    (
        Default,
        "plugins/io.containerd.cri.v1.images/snapshotter plugins/io.containerd.cri.v1.images/max_concurrent_downloads",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_is_taken_whether_it_is_named_or_replaced_by_something_above_it() {
        let path = ["plugins", "a.b", "cni"];
        let taken = |value: Value| take(&mut value.as_object().unwrap().clone(), &path);
        assert!(taken(json!({"plugins": {"a.b": {"cni": {"bin_dirs": []}}}})));
        assert!(taken(json!({"plugins": 1})), "it would replace all of it");
        assert!(!taken(json!({"plugins": {"a.b": {"other": 1}}})));
        assert!(!taken(json!({"plugins": {"c": {"cni": 1}}})));
    }

    #[test]
    fn an_underscore_does_not_hide_a_flag() {
        assert!(owns("kube-apiserver", "etcd_servers") && owns("kube-apiserver", "etcd-servers"));
        assert!(!owns("kube-apiserver", "event-ttl"));
    }
}

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

type Flags = &'static [(&'static str, Owner)];
type Fields = &'static [(&'static [&'static str], Owner)];

/// The flags of a component; a trailing `*` matches any suffix.
pub fn flags(component: &str) -> Flags {
    match component {
        "kube-apiserver" => APISERVER,
        "kube-controller-manager" => CONTROLLER_MANAGER,
        "kube-scheduler" => SCHEDULER,
        "etcd" => ETCD,
        "kubelet" => KUBELET,
        "kube-proxy" => KUBE_PROXY,
        _ => &[],
    }
}

/// The fields of a component's configuration, as paths.
pub fn fields(component: &str) -> Fields {
    match component {
        "kubelet" => KUBELET_FIELDS,
        "kube-proxy" => KUBE_PROXY_FIELDS,
        "containerd" => CONTAINERD_FIELDS,
        _ => &[],
    }
}

const APISERVER: Flags = &[
    ("admission-control-config-file", Hactl),
    ("advertise-address", Hactl),
    ("allow-privileged", Hactl),
    ("anonymous-auth", Hactl),
    ("audit-log-format", Hactl),
    ("audit-log-path", Hactl),
    ("audit-policy-file", Hactl),
    ("authentication-*", Hactl),
    ("authorization-*", Hactl),
    ("bind-address", Hactl),
    ("client-ca-file", Hactl),
    ("disable-admission-plugins", Hactl),
    ("enable-admission-plugins", Hactl),
    ("enable-aggregator-routing", Hactl),
    ("enable-bootstrap-token-auth", Hactl),
    ("encryption-provider-config*", Hactl),
    ("etcd-*", Hactl),
    ("external-hostname", Hactl),
    ("insecure-*", Hactl),
    ("kubelet-*", Hactl),
    ("oidc-*", Hactl),
    ("proxy-client-*", Hactl),
    ("requestheader-*", Hactl),
    ("secure-port", Hactl),
    ("service-account-*", Hactl),
    ("service-cluster-ip-range", Hactl),
    // The balancers depend on them when an API server stops.
    ("shutdown-*", Hactl),
    ("storage-*", Hactl),
    ("tls-*", Hactl),
    ("token-auth-file", Hactl),
    ("audit-log-maxage", Default),
    ("audit-log-maxbackup", Default),
    ("audit-log-maxsize", Default),
    ("goaway-chance", Default),
    ("profiling", Default),
    ("request-timeout", Default),
];

const CONTROLLER_MANAGER: Flags = &[
    ("allocate-node-cidrs", Hactl),
    ("authentication-*", Hactl),
    ("authorization-*", Hactl),
    ("bind-address", Hactl),
    ("client-ca-file", Hactl),
    ("cluster-cidr", Hactl),
    ("cluster-name", Hactl),
    ("cluster-signing-*", Hactl),
    ("kubeconfig", Hactl),
    ("leader-elect", Hactl),
    ("leader-elect-resource-*", Hactl),
    ("master", Hactl),
    ("node-cidr-mask-size*", Hactl),
    ("requestheader-*", Hactl),
    ("root-ca-file", Hactl),
    ("secure-port", Hactl),
    ("service-account-private-key-file", Hactl),
    ("service-cluster-ip-range", Hactl),
    ("tls-*", Hactl),
    ("use-service-account-credentials", Hactl),
    ("controllers", Default),
    ("feature-gates", Default),
    ("kube-api-burst", Default),
    ("kube-api-qps", Default),
    ("leader-elect-lease-duration", Default),
    ("leader-elect-renew-deadline", Default),
    ("leader-elect-retry-period", Default),
    ("node-monitor-grace-period", Default),
    ("profiling", Default),
    ("terminated-pod-gc-threshold", Default),
];

const SCHEDULER: Flags = &[
    ("authentication-*", Hactl),
    ("authorization-*", Hactl),
    ("bind-address", Hactl),
    ("client-ca-file", Hactl),
    // With a configuration file, the scheduler ignores its other flags.
    ("config", Hactl),
    ("kubeconfig", Hactl),
    ("leader-elect", Hactl),
    ("leader-elect-resource-*", Hactl),
    ("master", Hactl),
    ("requestheader-*", Hactl),
    ("secure-port", Hactl),
    ("tls-*", Hactl),
    ("leader-elect-lease-duration", Default),
    ("leader-elect-renew-deadline", Default),
    ("leader-elect-retry-period", Default),
    ("profiling", Default),
];

const ETCD: Flags = &[
    ("advertise-client-urls", Hactl),
    // The API servers compact; a second compactor would only interrupt watches.
    ("auto-compaction-*", Hactl),
    ("auto-tls", Hactl),
    ("ca-file", Hactl),
    ("cert-file", Hactl),
    ("cipher-suites", Hactl),
    ("client-*", Hactl),
    ("config-file", Hactl),
    ("data-dir", Hactl),
    ("discovery*", Hactl),
    ("enable-grpc-gateway", Hactl),
    // hactl enables the comparison of hashes with a feature gate.
    ("feature-gates", Hactl),
    ("force-new-cluster*", Hactl),
    ("initial-*", Hactl),
    ("key-file", Hactl),
    ("listen-*", Hactl),
    ("name", Hactl),
    ("peer-*", Hactl),
    ("pre-vote", Hactl),
    ("quota-backend-bytes", Hactl),
    ("strict-reconfig-check", Hactl),
    ("tls-*", Hactl),
    ("trusted-ca-file", Hactl),
    ("wal-dir", Hactl),
    ("compact-hash-check-time", Default),
    ("election-timeout", Default),
    ("heartbeat-interval", Default),
    ("log-level", Default),
];

const KUBELET: Flags = &[
    ("bootstrap-kubeconfig", Hactl),
    ("cert-dir", Hactl),
    ("config", Hactl),
    ("config-dir", Hactl),
    ("container-runtime-endpoint", Hactl),
    ("hostname-override", Hactl),
    ("kubeconfig", Hactl),
    ("node-ip", Hactl),
    ("node-labels", Hactl),
    ("register-*", Hactl),
    ("root-dir", Hactl),
    ("tls-*", Hactl),
];

const KUBE_PROXY: Flags = &[
    ("cleanup", Hactl),
    ("cluster-cidr", Hactl),
    ("config", Hactl),
    ("hostname-override", Hactl),
    ("kubeconfig", Hactl),
    ("master", Hactl),
    ("proxy-mode", Hactl),
    ("write-config-to", Hactl),
];

const KUBELET_FIELDS: Fields = &[
    (&["apiVersion"], Hactl),
    (&["kind"], Hactl),
    (&["address"], Key("the host's address")),
    (&["authentication"], Hactl),
    (&["authorization"], Hactl),
    (&["clusterDNS"], Key("network.services")),
    (&["clusterDomain"], Hactl),
    (&["containerRuntimeEndpoint"], Hactl),
    (&["healthzBindAddress"], Hactl),
    (&["healthzPort"], Hactl),
    (&["port"], Hactl),
    (&["readOnlyPort"], Hactl),
    (&["registerNode"], Hactl),
    (&["registerWithTaints"], Key("hosts[].taints")),
    (&["rotateCertificates"], Hactl),
    (&["serverTLSBootstrap"], Hactl),
    (&["staticPodPath"], Hactl),
    (&["staticPodURL"], Hactl),
    (&["tlsCertFile"], Hactl),
    (&["tlsPrivateKeyFile"], Hactl),
    (&["cgroupDriver"], Default),
    (&["containerLogMaxFiles"], Default),
    (&["containerLogMaxSize"], Default),
    (&["crashLoopBackOff"], Default),
    (&["eventRecordQPS"], Default),
    (&["evictionHard"], Default),
    (&["failSwapOn"], Default),
    (&["imageMinimumGCAge"], Default),
    (&["imagePullCredentialsVerificationPolicy"], Default),
    (&["makeIPTablesUtilChains"], Default),
    (&["maxParallelImagePulls"], Default),
    (&["nodeStatusReportFrequency"], Default),
    (&["nodeStatusUpdateFrequency"], Default),
    (&["podPidsLimit"], Default),
    (&["protectKernelDefaults"], Default),
    (&["resolvConf"], Default),
    (&["seccompDefault"], Default),
    (&["serializeImagePulls"], Default),
    (&["shutdownGracePeriod"], Default),
    (&["shutdownGracePeriodByPodPriority"], Default),
    (&["shutdownGracePeriodCriticalPods"], Default),
    (&["streamingConnectionIdleTimeout"], Default),
    (&["systemReserved"], Default),
    (&["tlsCipherSuites"], Default),
    (&["tlsMinVersion"], Default),
];

const KUBE_PROXY_FIELDS: Fields = &[
    (&["apiVersion"], Hactl),
    (&["kind"], Hactl),
    (&["clientConnection"], Hactl),
    (&["clusterCIDR"], Key("network.pods")),
    (&["hostnameOverride"], Key("hosts[].name")),
    (&["mode"], Key("network.kubeProxy")),
    (&["bindAddress"], Default),
    (&["healthzBindAddress"], Default),
    (&["metricsBindAddress"], Default),
];

const IMAGES: &str = "io.containerd.cri.v1.images";
const RUNTIME: &str = "io.containerd.cri.v1.runtime";

const CONTAINERD_FIELDS: Fields = &[
    (&["version"], Hactl),
    (&["root"], Hactl),
    (&["state"], Hactl),
    (&["imports"], Hactl),
    (&["grpc", "address"], Hactl),
    (&["plugins", IMAGES, "pinned_images", "sandbox"], Hactl),
    (&["plugins", IMAGES, "registry"], Key("registries")),
    (&["plugins", RUNTIME, "enable_selinux"], Hactl),
    (&["plugins", RUNTIME, "restrict_oom_score_adj"], Key("extra.containerd.restrictOomScoreAdj")),
    (&["plugins", RUNTIME, "cni", "bin_dirs"], Hactl),
    (&["plugins", RUNTIME, "cni", "conf_dir"], Hactl),
    (&["plugins", RUNTIME, "containerd", "default_runtime_name"], Default),
    (&["plugins", RUNTIME, "containerd", "runtimes", "runc"], Hactl),
    (&["plugins", IMAGES, "snapshotter"], Default),
    (&["plugins", IMAGES, "max_concurrent_downloads"], Default),
];

//! The keys of schema 1 as they are written in an inventory, each with the text that explains it.
//!
//! In: YAML, through serde. Out: raw values with their places, which `check/` validates. The doc comments are the
//! descriptions in the published JSON Schema and in docs/inventory.md: they address the author of an inventory.
//! Every field is optional for serde; `check/` reports missing keys. It also has the rules beyond shape (ranges,
//! references between keys): it reports all problems at once, while a deserializer stops at the first.

mod healing;

use super::at::{At, Key};
use super::defaults;
pub use healing::{Healing, HealingAfter, HealingSettings, HostPower};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A text with its place.
pub type Text = At<String>;
/// A list of texts.
pub type Texts = At<Vec<Text>>;
/// Names to texts.
pub type TextMap = BTreeMap<String, Text>;
/// Settings passed on as they are.
pub type FreeMap = serde_json::Map<String, serde_json::Value>;

/// The machines of a highly available Kubernetes cluster, their roles and the settings of the cluster.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(title = "hactl inventory", extend("required" = ["schema", "cluster", "endpoint", "hosts"]))]
pub struct Inventory {
    /// Version of this format. Always 1.
    #[schemars(extend("const" = 1))]
    pub schema: Key<i64>,
    /// Name of the cluster, its state directory and its kubeconfig context: a-z, 0-9 and '-', at most 40 characters.
    #[schemars(length(min = 1, max = 40), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub cluster: Key<String>,
    /// Versions of Kubernetes, etcd and containerd.
    pub versions: Key<Versions>,
    /// Where clients reach the API: a virtual address managed by hactl, an external load balancer, or `local`.
    pub endpoint: Key<Endpoint>,
    /// Port of the API server on each host's address. May equal endpoint.port: haproxy binds only the virtual address.
    #[schemars(range(min = 1, max = 65535), extend("default" = 6443))]
    pub api_port: Key<i64>,
    /// SSH settings of all hosts; a host can override them.
    pub ssh: Key<Ssh>,
    /// The hosts.
    #[schemars(with = "Vec<Host>", length(min = 1))]
    pub hosts: Key<Vec<At<Host>>>,
    /// Pod and service networks.
    pub network: Key<Network>,
    /// Control-plane settings.
    pub control_plane: Key<ControlPlane>,
    /// static: the control plane runs as static pods. self: as pods of DaemonSets, with the static pods in reserve.
    #[schemars(with = "HostingName", extend("default" = "static"))]
    pub hosting: Key<String>,
    /// etcd settings.
    pub etcd: Key<Etcd>,
    /// Authenticators besides client certificates and service accounts.
    pub authentication: Key<Authentication>,
    /// Image registries: mirrors, CAs and credentials.
    pub registries: Key<Registries>,
    /// Your own CAs and keys, read once, when the cluster is bootstrapped; hactl generates those that are missing.
    pub pki: Key<Pki>,
    /// Proxy for downloads by hosts. Always exempt: hosts, the virtual address, the pod and service ranges and .svc.
    pub proxy: Key<Proxy>,
    /// report: hactl shows rules that the hosts' firewalls lack. manage: it adds them where ufw or firewalld is active.
    #[schemars(with = "FirewallName", extend("default" = "report"))]
    pub firewall: Key<String>,
    /// How haproxy and keepalived are installed.
    pub load_balancer: Key<LoadBalancer>,
    /// Your manifests: files or folders, relative to the inventory; applied last, pruned when removed from the list.
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub manifests: Key<Vec<Text>>,
    /// Snapshots of etcd and of everything else that a restore needs.
    pub snapshots: Key<Snapshots>,
    /// Guards on the hosts of the control plane; a word alone is the mode.
    #[schemars(extend("default" = "off"))]
    pub healing: Key<Healing>,
    /// on: each host serves the metrics of its components on port 10273, over TLS, to clients with a certificate of the
    /// group hactl:metrics (`hactl certs client`), which may also read those of API servers, kubelets and CoreDNS.
    #[schemars(with = "ComponentMetricsName", extend("default" = "off"))]
    pub metrics: Key<String>,
    /// Upgrades of Kubernetes.
    pub upgrade: Key<Upgrade>,
    /// Unattended renewal of certificates by the hosts.
    pub certificates: Key<Certificates>,
    /// age keys that can decrypt the snapshots and the replicated state directory.
    pub vault: Key<Vault>,
    /// Checks before the first change.
    pub preflight: Key<Preflight>,
    /// Settings that hactl has no key for, passed to the components as they are.
    pub extra: Key<Extra>,
}

/// Versions. Always quoted text: without quotes, 1.30 would be the number 1.3.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Versions {
    /// Kubernetes, MAJOR.MINOR.PATCH without a leading v. The default upgrades no cluster to another minor version.
    #[schemars(regex(pattern = r"^[0-9]+\.[0-9]+\.[0-9]+$"), extend("default" = defaults::DEFAULT_KUBERNETES))]
    pub kubernetes: Key<String>,
    /// etcd; by default the version that belongs to this Kubernetes version.
    #[schemars(regex(pattern = r"^[0-9]+\.[0-9]+\.[0-9]+$"))]
    pub etcd: Key<String>,
    /// containerd; by default the version that belongs to this Kubernetes version.
    #[schemars(regex(pattern = r"^[0-9]+\.[0-9]+\.[0-9]+$"))]
    pub containerd: Key<String>,
}

/// Where clients reach the API. Exactly one of vip and external.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["vip"]}, {"required": ["external"]}, {"required": ["local"]}]))]
pub struct Endpoint {
    /// A free address of the hosts' network. keepalived moves it between the hosts with the role load-balancer.
    #[schemars(extend("format" = "ipv4"))]
    pub vip: Key<String>,
    /// An external load balancer, as name:port or address:port.
    pub external: Key<String>,
    /// true: no shared address. Each Node runs a balancer on loopback; people use `name` or an API server's address.
    #[schemars(extend("default" = false))]
    pub local: Key<bool>,
    /// Port that clients connect to.
    #[schemars(range(min = 1, max = 65535), extend("default" = 6443))]
    pub port: Key<i64>,
    /// Interface of the virtual address; by default the one with the host's own address.
    #[schemars(length(min = 1, max = 15))]
    pub interface: Key<String>,
    /// VRRP router ID, unique on the network segment; by default derived from the cluster's name.
    #[schemars(range(min = 1, max = 255))]
    pub vrid: Key<i64>,
    /// DNS name that you point at the endpoint, with `local` at all control-plane hosts; it is in the API certificates.
    pub name: Key<String>,
    /// Additional names and addresses in the API servers' certificates.
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub sans: Key<Vec<Text>>,
}

/// Checks before the first change.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Preflight {
    /// Checks that warn instead of stopping the run, by the names in brackets after their findings.
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub ignore: Key<Vec<Text>>,
}

/// SSH settings of all hosts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ssh {
    /// Login user: root, or a user with sudo. By default the one of OpenSSH's configuration, else root.
    pub user: Key<String>,
    /// Port of sshd. By default the one of OpenSSH's configuration, else 22.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Key<i64>,
    /// Private key file. A certificate beside it (NAME-cert.pub) is used. By default the keys of OpenSSH's
    /// configuration, the agent and the usual files in ~/.ssh.
    pub identity: Key<String>,
    /// File of known host keys. By default the one of OpenSSH's configuration, else ~/.ssh/known_hosts.
    pub known_hosts: Key<String>,
    /// CA of the host keys: its public key (TYPE KEY) or SHA256:... of it. Like a @cert-authority line in known_hosts.
    #[serde(rename = "hostCA")]
    pub host_ca: Key<String>,
    /// Jump hosts, [user@]host[:port], comma-separated, nearest first; none: direct, despite OpenSSH's configuration.
    pub jump: Key<String>,
    /// OpenSSH configuration for settings that the inventory does not contain; none: no such file is read.
    #[schemars(extend("default" = "~/.ssh/config"))]
    pub config: Key<String>,
    /// How the user becomes root.
    pub sudo: Key<Sudo>,
}

/// How the user becomes root.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Sudo {
    /// File with the sudo password in its first line, readable only by you. Without it, sudo must not ask for a
    /// password, or you use --ask-sudo-password.
    pub password_file: Key<String>,
}

/// One machine.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "address", "roles"]))]
pub struct Host {
    /// Name of the Node and the etcd member. The hostname of the machine is never changed.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: Key<String>,
    /// Address that components bind, advertise and put into certificates.
    #[schemars(extend("format" = "ipv4"))]
    pub address: Key<String>,
    /// SSH settings of this host, where they differ from its address and the common settings.
    pub ssh: Key<HostSsh>,
    /// Roles of the host. Always explicit; spare cannot be combined with another role.
    #[schemars(with = "Vec<RoleName>", length(min = 1))]
    pub roles: Key<Vec<Text>>,
    /// Failure domain, such as a rack. Set it for all hosts or for none.
    pub zone: Key<String>,
    /// Takes over the vote of an etcd host that is gone, with `healing: on`. For a host without the role etcd.
    #[schemars(with = "Vec<StandbyName>", length(max = 1), extend("default" = []))]
    pub standby: Key<Vec<Text>>,
    /// How other guards switch its power once it gives no sign of life, with `healing.reboot: power`.
    pub power: Key<HostPower>,
    /// Node labels.
    #[schemars(with = "BTreeMap<String, String>", extend("default" = {}))]
    pub labels: Key<TextMap>,
    /// Node taints, key=value:Effect or key:Effect.
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub taints: Key<Vec<Text>>,
}

/// SSH settings of one host.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostSsh {
    /// Name or address to connect to, resolved by OpenSSH's configuration as by ssh; by default the host's address.
    pub host: Key<String>,
    /// Port of sshd.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Key<i64>,
    /// Login user.
    pub user: Key<String>,
    /// Private key file.
    pub identity: Key<String>,
    /// File of known host keys.
    pub known_hosts: Key<String>,
    /// Fingerprint of the host key, SHA256:..., instead of a known_hosts line.
    #[schemars(regex(pattern = "^SHA256:[A-Za-z0-9+/]{43}$"))]
    pub fingerprint: Key<String>,
    /// CA of this host's key: its public key (TYPE KEY) or SHA256:... of it.
    #[serde(rename = "hostCA")]
    pub host_ca: Key<String>,
    /// Jump hosts, [user@]host[:port], comma-separated, nearest first; none: direct.
    pub jump: Key<String>,
    /// How the user becomes root on this host.
    pub sudo: Key<Sudo>,
}

/// Pod and service networks.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Network {
    /// Range of pod addresses. Each Node gets a /24 of it.
    #[schemars(extend("default" = defaults::PODS))]
    pub pods: Key<String>,
    /// Range of service addresses, /12 to /26.
    #[schemars(extend("default" = defaults::SERVICES))]
    pub services: Key<String>,
    /// Pod network. none: Nodes stay NotReady until you install a network plugin.
    #[schemars(with = "CniName", extend("default" = "flannel"))]
    pub cni: Key<String>,
    /// MTU of the pods' interfaces: auto, or a number from 576 to 9216.
    #[schemars(with = "Mtu", extend("default" = "auto"))]
    pub mtu: Key<String>,
    /// Implementation of Services. none: your network plugin implements them.
    #[schemars(with = "KubeProxyName", extend("default" = "nftables"))]
    pub kube_proxy: Key<String>,
}

/// Control-plane settings.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControlPlane {
    /// Whether ordinary pods may run on control-plane Nodes.
    #[schemars(extend("default" = false))]
    pub schedulable: Key<bool>,
    /// Hardening. baseline: works on any cluster. cis: also settings that need a registry or break common usage.
    #[schemars(with = "SecurityName", extend("default" = "baseline"))]
    pub security: Key<String>,
}

/// etcd settings.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Etcd {
    /// Data directory, preferably on a disk of its own.
    #[serde(rename = "dataDir")]
    #[schemars(extend("default" = defaults::DATA_DIR))]
    pub data_dir: Key<String>,
    /// Quota in GiB: etcd rejects writes when its database reaches this size.
    #[serde(rename = "quotaGiB")]
    #[schemars(range(min = 1, max = 64), extend("default" = 8))]
    pub quota_gib: Key<i64>,
}

/// Authenticators.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Authentication {
    /// JWT authenticators, as in Kubernetes' AuthenticationConfiguration; each requires issuer.url.
    #[schemars(with = "Vec<FreeMap>", extend("default" = []))]
    pub jwt: Key<Vec<At<FreeMap>>>,
}

/// Image registries: mirrors, CAs and credentials.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Registries {
    /// Mirrors by registry: URLs, tried in order.
    #[schemars(with = "BTreeMap<String, Vec<String>>", extend("default" = {}))]
    pub mirrors: Key<BTreeMap<String, Texts>>,
    /// PEM files with the CA of a registry's or mirror's certificate, by host or host:port.
    #[schemars(with = "BTreeMap<String, String>", extend("default" = {}))]
    pub ca: Key<TextMap>,
    /// Files with user:password for a registry or mirror, by host or host:port. An inventory never contains the secret.
    #[schemars(with = "BTreeMap<String, String>", extend("default" = {}))]
    pub credentials: Key<TextMap>,
}

/// Your own CAs and keys.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Pki {
    /// Cluster CA of Kubernetes.
    pub ca: Key<Pair>,
    /// CA of etcd.
    pub etcd_ca: Key<Pair>,
    /// Front-proxy CA: aggregated API servers accept requests with its certificates.
    pub front_proxy_ca: Key<Pair>,
    /// PEM file of the private key that signs service account tokens.
    pub service_account_key: Key<String>,
}

/// A certificate and its key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["cert", "key"]))]
pub struct Pair {
    /// PEM file of the certificate, a self-signed CA.
    pub cert: Key<String>,
    /// PEM file of its private key, without a passphrase.
    pub key: Key<String>,
}

/// Proxy for downloads by hosts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Proxy {
    /// Proxy for http URLs; empty for none.
    #[schemars(extend("default" = ""))]
    pub http: Key<String>,
    /// Proxy for https URLs; empty for none.
    #[schemars(extend("default" = ""))]
    pub https: Key<String>,
    /// Additional names, addresses and ranges that bypass the proxy.
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub no_proxy: Key<Vec<Text>>,
}

/// From where haproxy, keepalived and nftables are installed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadBalancer {
    /// host: from the sources of the host's package manager. bundle: from the bundle alone, so that the hosts need no
    /// mirror.
    #[schemars(with = "PackagesName", extend("default" = "host"))]
    pub packages: Key<String>,
}

/// Snapshots of etcd.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Snapshots {
    /// Interval: a number with s, m, h or d.
    #[schemars(regex(pattern = "^[0-9]+[smhd]$"), extend("default" = "15m"))]
    pub every: Key<String>,
    /// How many snapshots to keep.
    pub keep: Key<Keep>,
    /// How often each etcd host tests a restore of its newest snapshot, with its own identity that decrypts no CA key.
    #[schemars(with = "DrillName", extend("default" = "never"))]
    pub drill: Key<String>,
    /// Destinations of copies, read by recovery: directories on hosts, such as mounted shares, and s3://BUCKET/PREFIX.
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub to: Key<Vec<Text>>,
    /// Access to the object storage of `to`.
    pub s3: Key<ObjectStorage>,
}

/// Upgrades of Kubernetes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Upgrade {
    /// Hosts with a kubelet and no API server. Hosts with an API server are always upgraded one at a time.
    pub workers: Key<UpgradeWorkers>,
}

/// Workers during an upgrade of their kubelets.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct UpgradeWorkers {
    /// How many of them are upgraded at once; the next batch begins when all of these are healthy.
    #[schemars(range(min = 1, max = 1000), extend("default" = 1))]
    pub max_unavailable: Key<i64>,
    /// How long a drain may take before a minor version upgrade: a number with s, m, h or d.
    #[schemars(regex(pattern = "^[0-9]+[smhd]$"), extend("default" = "5m"))]
    pub drain_timeout: Key<String>,
}

/// Unattended renewal of certificates by the hosts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Certificates {
    /// How long after each hactl up the hosts renew their own certificates, with issuers that are stored on them:
    /// a number with d or y [default: not at all].
    #[schemars(regex(pattern = "^[0-9]+[dy]$"))]
    pub unattended: Key<String>,
}

/// Object storage with the S3 API.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ObjectStorage {
    /// Its address, https://HOST or https://HOST:PORT [default: Amazon's endpoint of the region].
    pub endpoint: Key<String>,
    /// Region; servers other than Amazon's usually accept the default.
    #[schemars(extend("default" = "us-east-1"))]
    pub region: Key<String>,
    /// File with ACCESS_KEY_ID:SECRET_ACCESS_KEY. An inventory never contains the secret.
    pub credentials: Key<String>,
    /// PEM file with the CA of its certificate [default: the CAs that each host trusts].
    pub ca: Key<String>,
}

/// How many snapshots to keep.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Keep {
    /// Number of newest snapshots.
    #[schemars(range(min = 1, max = 100_000), extend("default" = 96))]
    pub last: Key<i64>,
    /// One snapshot for each of this many days.
    #[schemars(range(min = 0, max = 100_000), extend("default" = 14))]
    pub daily: Key<i64>,
    /// One snapshot for each of this many weeks.
    #[schemars(range(min = 0, max = 100_000), extend("default" = 8))]
    pub weekly: Key<i64>,
}

/// age keys that can decrypt the snapshots.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Vault {
    /// age public keys, age1...
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub recipients: Key<Vec<Text>>,
}

/// Settings passed to the components as they are.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Extra {
    /// The API server.
    pub kube_apiserver: Key<PodExtra>,
    /// The controller manager.
    pub kube_controller_manager: Key<PodExtra>,
    /// The scheduler.
    pub kube_scheduler: Key<PodExtra>,
    /// etcd.
    pub etcd: Key<ArgsExtra>,
    /// The kubelet.
    pub kubelet: Key<ConfigExtra>,
    /// kube-proxy.
    pub kube_proxy: Key<ConfigExtra>,
    /// containerd.
    pub containerd: Key<ContainerdExtra>,
}

/// A component that takes flags and runs as a static pod.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PodExtra {
    /// Additional command-line flags, without dashes. Flags that hactl sets itself are refused.
    #[schemars(with = "BTreeMap<String, ArgValue>", extend("default" = {}))]
    pub args: Key<TextMap>,
    /// Directories and files of the host that the pod may read, at the same path.
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub mounts: Key<Vec<Text>>,
}

/// A component that takes flags.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ArgsExtra {
    /// Additional command-line flags, without dashes. Flags that hactl sets itself are refused.
    #[schemars(with = "BTreeMap<String, ArgValue>", extend("default" = {}))]
    pub args: Key<TextMap>,
}

/// A component that takes flags and a configuration file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigExtra {
    /// Additional command-line flags, without dashes. Flags that hactl sets itself are refused.
    #[schemars(with = "BTreeMap<String, ArgValue>", extend("default" = {}))]
    pub args: Key<TextMap>,
    /// Merged over the component's configuration. Fields that hactl sets itself are refused.
    #[schemars(extend("default" = {}))]
    pub config: Key<FreeMap>,
}

/// containerd.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ContainerdExtra {
    /// Merged over containerd's configuration, version 3. Fields that hactl sets itself are refused.
    #[schemars(extend("default" = {}))]
    pub config: Key<FreeMap>,
    /// For hosts without CAP_SYS_RESOURCE, such as containers: do not lower the OOM score below containerd's own.
    #[schemars(extend("default" = false))]
    pub restrict_oom_score_adj: Key<bool>,
}

/// The words of a choice, for the schema. `check/` reads the text itself, so that one bad word does not hide the next.
macro_rules! words {
    ($($name:ident: $($word:literal),+;)+) => {$(
        struct $name;
        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> { stringify!($name).into() }
            fn inline_schema() -> bool { true }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "enum": [$($word),+]})
            }
        }
    )+};
}
words! {
    RoleName: "control-plane", "etcd", "load-balancer", "worker", "spare";
    CniName: "flannel", "none";
    KubeProxyName: "nftables", "none";
    SecurityName: "baseline", "cis";
    PackagesName: "host", "bundle";
    FirewallName: "report", "manage";
    HostingName: "static", "self";
    StandbyName: "etcd";
    DrillName: "weekly", "daily", "never";
    HealingName: "off", "watch", "on";
    RebootName: "never", "systemd", "power";
    ForeignName: "refuse", "ignore";
    MetricsName: "loopback", "host";
    ComponentMetricsName: "off", "on";
}

/// `auto` or a number.
struct Mtu;
impl JsonSchema for Mtu {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Mtu".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 576, "maximum": 9216}]})
    }
}

/// A flag's value.
struct ArgValue;
impl JsonSchema for ArgValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ArgValue".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": ["string", "integer", "number", "boolean"]})
    }
}

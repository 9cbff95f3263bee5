//! The inventory as it is written: every key of schema 1, with the text that explains it.
//!
//! In: YAML, through serde. Out: raw values with their places, for `check/` to judge. The doc comments here are the
//! descriptions in the published JSON Schema and in the reference page, so they speak to the person who writes an
//! inventory. Every field may be missing as far as serde is concerned: what must be there is a rule like the others.
//! Rules beyond shape (ranges, references between keys) live in `check/`, because they are reported all
//! at once and a deserializer stops at the first.

use super::at::At;
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

/// Inventory of hosts for hactl: which machines become which part of a highly available Kubernetes cluster.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(title = "hactl inventory", extend("required" = ["schema", "cluster", "endpoint", "hosts"]))]
pub struct Inventory {
    /// Version of this format. Always 1.
    #[schemars(with = "i64", extend("const" = 1))]
    pub schema: Option<At<i64>>,
    /// Name of the cluster: names the state directory and the kubeconfig context. Letters a-z, digits and '-', at most 40.
    #[schemars(with = "String", length(min = 1, max = 40), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub cluster: Option<Text>,
    /// Which version of what.
    #[schemars(with = "Versions")]
    pub versions: Option<At<Versions>>,
    /// Where clients find the API: a virtual address that hactl looks after, or somebody else's load balancer.
    #[schemars(with = "Endpoint")]
    pub endpoint: Option<At<Endpoint>>,
    /// Port of each API server on its own host's address. haproxy binds the virtual address alone, so the endpoint may use the same number.
    #[schemars(with = "i64", range(min = 1, max = 65535), extend("default" = 6443))]
    pub api_port: Option<At<i64>>,
    /// How hosts are reached by SSH, unless a host says otherwise.
    #[schemars(with = "Ssh")]
    pub ssh: Option<At<Ssh>>,
    /// The hosts.
    #[schemars(with = "Vec<Host>", length(min = 1))]
    pub hosts: Option<At<Vec<At<Host>>>>,
    /// Pod and service networks.
    #[schemars(with = "Network")]
    pub network: Option<At<Network>>,
    /// Control-plane settings.
    #[schemars(with = "ControlPlane")]
    pub control_plane: Option<At<ControlPlane>>,
    /// etcd settings.
    #[schemars(with = "Etcd")]
    pub etcd: Option<At<Etcd>>,
    /// Who may authenticate besides client certificates and service accounts.
    #[schemars(with = "Authentication")]
    pub authentication: Option<At<Authentication>>,
    /// Where images come from.
    #[schemars(with = "Registries")]
    pub registries: Option<At<Registries>>,
    /// Authorities and keys of your own, read once, when the cluster is founded; without them hactl makes them.
    #[schemars(with = "Pki")]
    pub pki: Option<At<Pki>>,
    /// Proxy for what the hosts fetch themselves. The hosts, the virtual address, the pod and service ranges and .svc are always exempt.
    #[schemars(with = "Proxy")]
    pub proxy: Option<At<Proxy>>,
    /// Who changes the hosts' firewalls. report: you; what lacks is told with the rule. manage: hactl, where ufw or firewalld is active.
    #[schemars(with = "FirewallName", extend("default" = "report"))]
    pub firewall: Option<Text>,
    /// How haproxy and keepalived are installed.
    #[schemars(with = "LoadBalancer")]
    pub load_balancer: Option<At<LoadBalancer>>,
    /// Your own manifests: files or folders, applied last, pruned when removed from this list. Relative to the inventory.
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub manifests: Option<Texts>,
    /// Recovery bundles: snapshots of etcd with all that a restore needs.
    #[schemars(with = "Snapshots")]
    pub snapshots: Option<At<Snapshots>>,
    /// How Kubernetes takes another version.
    #[schemars(with = "Upgrade")]
    pub upgrade: Option<At<Upgrade>>,
    /// Certificates that hosts renew.
    #[schemars(with = "Certificates")]
    pub certificates: Option<At<Certificates>>,
    /// Who can open recovery bundles and the replicated state.
    #[schemars(with = "Vault")]
    pub vault: Option<At<Vault>>,
    /// What is looked at before anything is changed.
    #[schemars(with = "Preflight")]
    pub preflight: Option<At<Preflight>>,
    /// Settings handed to components as they are, for what hactl has no key for.
    #[schemars(with = "Extra")]
    pub extra: Option<At<Extra>>,
}

/// Which version of what. Always quoted text: unquoted, 1.30 would be the number 1.3.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Versions {
    /// Kubernetes, MAJOR.MINOR.PATCH without a leading v.
    #[schemars(with = "String", regex(pattern = r"^[0-9]+\.[0-9]+\.[0-9]+$"), extend("default" = super::DEFAULT_KUBERNETES))]
    pub kubernetes: Option<Text>,
    /// etcd; without it the one that goes with this Kubernetes.
    #[schemars(with = "String", regex(pattern = r"^[0-9]+\.[0-9]+\.[0-9]+$"))]
    pub etcd: Option<Text>,
    /// containerd; without it the one that goes with this Kubernetes.
    #[schemars(with = "String", regex(pattern = r"^[0-9]+\.[0-9]+\.[0-9]+$"))]
    pub containerd: Option<Text>,
}

/// Where clients find the API. Exactly one of vip and external.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["vip"]}, {"required": ["external"]}]))]
pub struct Endpoint {
    /// A free address of the hosts' network. keepalived moves it among the hosts with the role load-balancer.
    #[schemars(with = "String", extend("format" = "ipv4"))]
    pub vip: Option<Text>,
    /// Somebody else's load balancer as name:port or address:port.
    #[schemars(with = "String")]
    pub external: Option<Text>,
    /// true: no address is shared. Every node has a balancer of its own on loopback; people have `name`, or an API server's own address.
    #[schemars(with = "bool", extend("default" = false))]
    pub local: Option<At<bool>>,
    /// Port that clients use.
    #[schemars(with = "i64", range(min = 1, max = 65535), extend("default" = 6443))]
    pub port: Option<At<i64>>,
    /// Interface for the virtual address; without it the one that has the host's own address.
    #[schemars(with = "String", length(min = 1, max = 15))]
    pub interface: Option<Text>,
    /// VRRP router id, unique on the network segment; without it derived from the cluster's name.
    #[schemars(with = "i64", range(min = 1, max = 255))]
    pub vrid: Option<At<i64>>,
    /// A DNS name that you point at the endpoint, or with `local` at every control-plane host; it goes into the API servers' certificates.
    #[schemars(with = "String")]
    pub name: Option<Text>,
    /// More names and addresses for the API servers' certificates.
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub sans: Option<Texts>,
}

/// What is looked at before anything is changed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Preflight {
    /// Checks that warn instead of stopping the run, by the names that stand in brackets behind their findings.
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub ignore: Option<Texts>,
}

/// How hosts are reached by SSH.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ssh {
    /// User to log in as: root, or one who may use sudo. Without it what OpenSSH's configuration says, else root.
    #[schemars(with = "String")]
    pub user: Option<Text>,
    /// Port of sshd; without it what OpenSSH's configuration says, else 22.
    #[schemars(with = "i64", range(min = 1, max = 65535))]
    pub port: Option<At<i64>>,
    /// Private key file; without it those of OpenSSH's configuration, the agent and the usual files under ~/.ssh. A certificate beside it (NAME-cert.pub) is used.
    #[schemars(with = "String")]
    pub identity: Option<Text>,
    /// File of known host keys; without it what OpenSSH's configuration says, else ~/.ssh/known_hosts.
    #[schemars(with = "String")]
    pub known_hosts: Option<Text>,
    /// Authority that signs the hosts' keys: its public key (TYPE KEY), or SHA256:... of it. Like a @cert-authority line in known_hosts.
    #[serde(rename = "hostCA")]
    #[schemars(with = "String")]
    pub host_ca: Option<Text>,
    /// Hosts to go through, [user@]host[:port], separated by commas, the nearest first; none: directly, whatever OpenSSH's configuration says.
    #[schemars(with = "String")]
    pub jump: Option<Text>,
    /// OpenSSH's configuration, for what the inventory leaves open; none: no such file is read.
    #[schemars(with = "String", extend("default" = "~/.ssh/config"))]
    pub config: Option<Text>,
    /// How the user becomes root.
    #[schemars(with = "Sudo")]
    pub sudo: Option<At<Sudo>>,
}

/// How the user becomes root.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Sudo {
    /// File whose first line is the password that sudo asks for; nobody else may read it. Without it sudo must not ask, or --ask-sudo-password is given.
    #[schemars(with = "String")]
    pub password_file: Option<Text>,
}

/// One machine.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "address", "roles"]))]
pub struct Host {
    /// The Node's and the etcd member's name. The machine itself is never renamed.
    #[schemars(with = "String", length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: Option<Text>,
    /// What components bind, advertise and put into certificates.
    #[schemars(with = "String", extend("format" = "ipv4"))]
    pub address: Option<Text>,
    /// Where and how to reach this host, when that differs from its address and the common settings.
    #[schemars(with = "HostSsh")]
    pub ssh: Option<At<HostSsh>>,
    /// What the host is for. Always explicit; spare stands alone.
    #[schemars(with = "Vec<RoleName>", length(min = 1))]
    pub roles: Option<Texts>,
    /// Failure domain, such as a rack. Give every host one, or none.
    #[schemars(with = "String")]
    pub zone: Option<Text>,
    /// Node labels.
    #[schemars(with = "BTreeMap<String, String>", extend("default" = {}))]
    pub labels: Option<At<TextMap>>,
    /// Node taints, key=value:Effect or key:Effect.
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub taints: Option<Texts>,
}

/// How one host is reached by SSH.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostSsh {
    /// Name or address to connect to, looked up in OpenSSH's configuration as ssh would; without it the host's address.
    #[schemars(with = "String")]
    pub host: Option<Text>,
    /// Port of sshd.
    #[schemars(with = "i64", range(min = 1, max = 65535))]
    pub port: Option<At<i64>>,
    /// User to log in as.
    #[schemars(with = "String")]
    pub user: Option<Text>,
    /// Private key file.
    #[schemars(with = "String")]
    pub identity: Option<Text>,
    /// File of known host keys.
    #[schemars(with = "String")]
    pub known_hosts: Option<Text>,
    /// Fingerprint of the host key, SHA256:..., instead of a known_hosts line.
    #[schemars(with = "String", regex(pattern = "^SHA256:[A-Za-z0-9+/]{43}$"))]
    pub fingerprint: Option<Text>,
    /// Authority that signs this host's key: its public key, or SHA256:... of it.
    #[serde(rename = "hostCA")]
    #[schemars(with = "String")]
    pub host_ca: Option<Text>,
    /// Hosts to go through, [user@]host[:port], separated by commas, the nearest first; none: directly.
    #[schemars(with = "String")]
    pub jump: Option<Text>,
    /// How the user becomes root on this host.
    #[schemars(with = "Sudo")]
    pub sudo: Option<At<Sudo>>,
}

/// Pod and service networks.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Network {
    /// Range of pod addresses. Each node takes a /24 of it.
    #[schemars(with = "String", extend("default" = super::check::network::PODS))]
    pub pods: Option<Text>,
    /// Range of service addresses, /12 to /26.
    #[schemars(with = "String", extend("default" = super::check::network::SERVICES))]
    pub services: Option<Text>,
    /// Who connects pods. none: nodes stay NotReady until you install a network plugin.
    #[schemars(with = "CniName", extend("default" = "flannel"))]
    pub cni: Option<Text>,
    /// MTU of the pods' interfaces: auto, or a number from 576 to 9216.
    #[schemars(with = "Mtu", extend("default" = "auto"))]
    pub mtu: Option<Text>,
    /// Who implements Services. none: your network plugin does.
    #[schemars(with = "KubeProxyName", extend("default" = "nftables"))]
    pub kube_proxy: Option<Text>,
}

/// Control-plane settings.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControlPlane {
    /// Whether ordinary pods may run on control-plane nodes.
    #[schemars(with = "bool", extend("default" = false))]
    pub schedulable: Option<At<bool>>,
    /// Hardening. baseline: what works on any cluster. cis: also what needs a registry or breaks habits.
    #[schemars(with = "SecurityName", extend("default" = "baseline"))]
    pub security: Option<Text>,
}

/// etcd settings.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Etcd {
    /// Data directory, best on a disk of its own.
    #[serde(rename = "dataDir")]
    #[schemars(with = "String", extend("default" = super::check::DATA_DIR))]
    pub data_dir: Option<Text>,
    /// Largest database in GiB before etcd stops taking writes.
    #[serde(rename = "quotaGiB")]
    #[schemars(with = "i64", range(min = 1, max = 64), extend("default" = 8))]
    pub quota_gib: Option<At<i64>>,
}

/// Who may authenticate.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Authentication {
    /// JWT authenticators, as in Kubernetes' AuthenticationConfiguration; each needs issuer.url.
    #[schemars(with = "Vec<FreeMap>", extend("default" = []))]
    pub jwt: Option<At<Vec<At<FreeMap>>>>,
}

/// Where images come from.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Registries {
    /// Registry to the URLs that mirror it, tried in order.
    #[schemars(with = "BTreeMap<String, Vec<String>>", extend("default" = {}))]
    pub mirrors: Option<At<BTreeMap<String, Texts>>>,
    /// Registry or mirror, as host or host:port, to the PEM file of the authority that its certificate is of.
    #[schemars(with = "BTreeMap<String, String>", extend("default" = {}))]
    pub ca: Option<At<TextMap>>,
    /// Registry or mirror, as host or host:port, to a file that holds user:password for it. The secret itself never stands in an inventory.
    #[schemars(with = "BTreeMap<String, String>", extend("default" = {}))]
    pub credentials: Option<At<TextMap>>,
}

/// Authorities and keys of your own.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Pki {
    /// Kubernetes' own authority.
    #[schemars(with = "Pair")]
    pub ca: Option<At<Pair>>,
    /// etcd's authority.
    #[schemars(with = "Pair")]
    pub etcd_ca: Option<At<Pair>>,
    /// The authority of aggregated API servers' callers.
    #[schemars(with = "Pair")]
    pub front_proxy_ca: Option<At<Pair>>,
    /// PEM file of the private key that signs service account tokens.
    #[schemars(with = "String")]
    pub service_account_key: Option<Text>,
}

/// A certificate and its key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["cert", "key"]))]
pub struct Pair {
    /// PEM file of the certificate, a self-signed authority.
    #[schemars(with = "String")]
    pub cert: Option<Text>,
    /// PEM file of its private key, without a passphrase.
    #[schemars(with = "String")]
    pub key: Option<Text>,
}

/// Proxy for what the hosts fetch themselves.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Proxy {
    /// For http URLs; empty for none.
    #[schemars(with = "String", extend("default" = ""))]
    pub http: Option<Text>,
    /// For https URLs; empty for none.
    #[schemars(with = "String", extend("default" = ""))]
    pub https: Option<Text>,
    /// More names, addresses and ranges that need no proxy.
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub no_proxy: Option<Texts>,
}

/// How haproxy and keepalived are installed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadBalancer {
    /// host: by the host's own package manager. bundle: from packages carried in the bundle.
    #[schemars(with = "PackagesName", extend("default" = "host"))]
    pub packages: Option<Text>,
}

/// Snapshots of etcd.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Snapshots {
    /// How often: a number with s, m, h or d.
    #[schemars(with = "String", regex(pattern = "^[0-9]+[smhd]$"), extend("default" = "15m"))]
    pub every: Option<Text>,
    /// How many to keep.
    #[schemars(with = "Keep")]
    pub keep: Option<At<Keep>>,
    /// How often each etcd host restores its newest bundle by itself, with an identity of its own that opens no CA key.
    #[schemars(with = "DrillName", extend("default" = "never"))]
    pub drill: Option<Text>,
    /// Who gets a copy of each bundle: directories on the hosts, such as mounted shares, and s3://BUCKET/PREFIX. A recovery finds them there.
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub to: Option<Texts>,
    /// How the object storage of `to` is reached.
    #[schemars(with = "ObjectStorage")]
    pub s3: Option<At<ObjectStorage>>,
}

/// Upgrades of Kubernetes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Upgrade {
    /// Hosts that run a kubelet and no API server. Those with an API server always go one at a time.
    #[schemars(with = "UpgradeWorkers")]
    pub workers: Option<At<UpgradeWorkers>>,
}

/// Workers while their kubelets take another version.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct UpgradeWorkers {
    /// So many of them at once; the next ones begin when all of these are well.
    #[schemars(with = "i64", range(min = 1, max = 1000), extend("default" = 1))]
    pub max_unavailable: Option<At<i64>>,
    /// How long the pods of one may take to leave it before another minor version: a number with s, m, h or d.
    #[schemars(with = "String", regex(pattern = "^[0-9]+[smhd]$"), extend("default" = "5m"))]
    pub drain_timeout: Option<Text>,
}

/// Certificates that hosts renew.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Certificates {
    /// How long after each hactl up hosts renew their own, by issuers that lie on them: a number with d or y [default: not at all].
    #[schemars(with = "String", regex(pattern = "^[0-9]+[dy]$"))]
    pub unattended: Option<Text>,
}

/// Object storage that speaks S3.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ObjectStorage {
    /// Its address, https://HOST or https://HOST:PORT [default: Amazon's own of the region].
    #[schemars(with = "String")]
    pub endpoint: Option<Text>,
    /// The region; servers other than Amazon's mostly take the default.
    #[schemars(with = "String", extend("default" = "us-east-1"))]
    pub region: Option<Text>,
    /// A file that holds ACCESS_KEY_ID:SECRET_ACCESS_KEY. The secret itself never stands in an inventory.
    #[schemars(with = "String")]
    pub credentials: Option<Text>,
    /// The PEM file of the authority that its certificate is of [default: those that each host trusts].
    #[schemars(with = "String")]
    pub ca: Option<Text>,
}

/// How many snapshots to keep.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Keep {
    /// The newest.
    #[schemars(with = "i64", range(min = 1, max = 100_000), extend("default" = 96))]
    pub last: Option<At<i64>>,
    /// One for each of so many days.
    #[schemars(with = "i64", range(min = 0, max = 100_000), extend("default" = 14))]
    pub daily: Option<At<i64>>,
    /// One for each of so many weeks.
    #[schemars(with = "i64", range(min = 0, max = 100_000), extend("default" = 8))]
    pub weekly: Option<At<i64>>,
}

/// Who can open recovery bundles.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Vault {
    /// age public keys, age1...
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub recipients: Option<Texts>,
}

/// Settings handed to components as they are.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Extra {
    /// The API server.
    #[schemars(with = "PodExtra")]
    pub kube_apiserver: Option<At<PodExtra>>,
    /// The controller manager.
    #[schemars(with = "PodExtra")]
    pub kube_controller_manager: Option<At<PodExtra>>,
    /// The scheduler.
    #[schemars(with = "PodExtra")]
    pub kube_scheduler: Option<At<PodExtra>>,
    /// etcd.
    #[schemars(with = "ArgsExtra")]
    pub etcd: Option<At<ArgsExtra>>,
    /// The kubelet.
    #[schemars(with = "ConfigExtra")]
    pub kubelet: Option<At<ConfigExtra>>,
    /// kube-proxy.
    #[schemars(with = "ConfigExtra")]
    pub kube_proxy: Option<At<ConfigExtra>>,
    /// containerd.
    #[schemars(with = "ContainerdExtra")]
    pub containerd: Option<At<ContainerdExtra>>,
}

/// A component that takes flags and runs as a static pod.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PodExtra {
    /// Further command-line flags, without dashes. Flags that hactl sets itself are refused.
    #[schemars(with = "BTreeMap<String, ArgValue>", extend("default" = {}))]
    pub args: Option<At<TextMap>>,
    /// Directories and files of the host that the pod may read, at the same path.
    #[schemars(with = "Vec<String>", extend("default" = []))]
    pub mounts: Option<Texts>,
}

/// A component that takes flags.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ArgsExtra {
    /// Further command-line flags, without dashes. Flags that hactl sets itself are refused.
    #[schemars(with = "BTreeMap<String, ArgValue>", extend("default" = {}))]
    pub args: Option<At<TextMap>>,
}

/// A component that takes flags and a configuration file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigExtra {
    /// Further command-line flags, without dashes. Flags that hactl sets itself are refused.
    #[schemars(with = "BTreeMap<String, ArgValue>", extend("default" = {}))]
    pub args: Option<At<TextMap>>,
    /// Merged over the component's configuration. Fields that hactl sets itself are refused.
    #[schemars(with = "FreeMap", extend("default" = {}))]
    pub config: Option<At<FreeMap>>,
}

/// containerd.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ContainerdExtra {
    /// Merged over containerd's configuration, version 3. Fields that hactl sets itself are refused.
    #[schemars(with = "FreeMap", extend("default" = {}))]
    pub config: Option<At<FreeMap>>,
    /// For hosts without CAP_SYS_RESOURCE, such as containers: do not lower the OOM score below containerd's own.
    #[schemars(with = "bool", extend("default" = false))]
    pub restrict_oom_score_adj: Option<At<bool>>,
}

/// The words of a choice, for the schema; `check/` reads the text itself so that one bad word does not hide the next.
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
    DrillName: "weekly", "daily", "never";
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

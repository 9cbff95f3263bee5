//! The checks of the CIS Kubernetes Benchmark 1.12, by their ids: what each asks for, and whether it fails or is left
//! to a person if that does not hold. Ids, flags and modes are those by which kube-bench judges. Where hactl has
//! something else than kubeadm, such as etcd as a unit, that is judged.

use super::evidence::{API, CONTROLLERS, ETCD, Host, KUBELET, PROXY, SCHEDULER};
use super::judge::Ask::{Flags, Holds, Kubelet, Mode, Objects, Owner, Person, Refused, Rights};
use super::judge::Want::{AtLeast, Has, Is, Lacks, Not, Set, Strong, Unset, UnsetOr, Without};
use super::judge::{self, Ask, Check, Verdict};
use super::objects::{Cluster, Right};

const fn fails(id: &'static str, program: &'static str, ask: Ask) -> Check {
    Check { id, program, ask, otherwise: Verdict::Fail }
}

const fn warns(id: &'static str, program: &'static str, ask: Ask) -> Check {
    Check { id, program, ask, otherwise: Verdict::Warn }
}

/// A check of what the API shows.
const fn shown(id: &'static str, ask: Ask) -> Check {
    warns(id, "", ask)
}

const ROOT: &str = "root:root";
const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Every check.
#[rustfmt::skip]
pub const CHECKS: &[Check] = &[
    fails("1.1.1", API, Mode(|h| h.manifest(API), 0o600)),
    fails("1.1.2", API, Owner(|h| h.manifest(API), ROOT)),
    fails("1.1.3", CONTROLLERS, Mode(|h| h.manifest(CONTROLLERS), 0o600)),
    fails("1.1.4", CONTROLLERS, Owner(|h| h.manifest(CONTROLLERS), ROOT)),
    fails("1.1.5", SCHEDULER, Mode(|h| h.manifest(SCHEDULER), 0o600)),
    fails("1.1.6", SCHEDULER, Owner(|h| h.manifest(SCHEDULER), ROOT)),
    // etcd is no pod: its unit and the settings that the unit reads take the place of the manifest.
    fails("1.1.7", ETCD, Mode(|h| h.unit(ETCD), 0o600)),
    fails("1.1.8", ETCD, Owner(|h| h.unit(ETCD), ROOT)),
    warns("1.1.9", API, Mode(Host::network, 0o600)),
    warns("1.1.10", API, Owner(Host::network, ROOT)),
    fails("1.1.11", ETCD, Mode(|h| h.file(ETCD, "data-dir"), 0o700)),
    fails("1.1.12", ETCD, Owner(|h| h.file(ETCD, "data-dir"), "etcd:etcd")),
    fails("1.1.13", API, Mode(Host::administrators, 0o600)),
    fails("1.1.14", API, Owner(Host::administrators, ROOT)),
    fails("1.1.15", SCHEDULER, Mode(|h| h.file(SCHEDULER, "kubeconfig"), 0o600)),
    fails("1.1.16", SCHEDULER, Owner(|h| h.file(SCHEDULER, "kubeconfig"), ROOT)),
    fails("1.1.17", CONTROLLERS, Mode(|h| h.file(CONTROLLERS, "kubeconfig"), 0o600)),
    fails("1.1.18", CONTROLLERS, Owner(|h| h.file(CONTROLLERS, "kubeconfig"), ROOT)),
    fails("1.1.19", API, Owner(Host::all_pki, ROOT)),
    warns("1.1.20", API, Mode(|h| h.pki_files(".crt"), 0o644)),
    warns("1.1.21", API, Mode(|h| h.pki_files(".key"), 0o600)),

    warns("1.2.1", API, Flags(&["anonymous-auth"], Is("false"))),
    fails("1.2.2", API, Flags(&["token-auth-file"], Unset)),
    warns("1.2.3", API, Flags(&["enable-admission-plugins"], Has("DenyServiceExternalIPs"))),
    fails("1.2.4", API, Flags(&["kubelet-client-certificate", "kubelet-client-key"], Set)),
    fails("1.2.5", API, Flags(&["kubelet-certificate-authority"], Set)),
    fails("1.2.6", API, Flags(&["authorization-mode"], Without("AlwaysAllow"))),
    fails("1.2.7", API, Flags(&["authorization-mode"], Has("Node"))),
    fails("1.2.8", API, Flags(&["authorization-mode"], Has("RBAC"))),
    warns("1.2.9", API, Flags(&["enable-admission-plugins"], Has("EventRateLimit"))),
    fails("1.2.10", API, Flags(&["enable-admission-plugins"], Lacks("AlwaysAdmit"))),
    warns("1.2.11", API, Flags(&["enable-admission-plugins"], Has("AlwaysPullImages"))),
    fails("1.2.12", API, Flags(&["disable-admission-plugins"], Lacks("ServiceAccount"))),
    fails("1.2.13", API, Flags(&["disable-admission-plugins"], Lacks("NamespaceLifecycle"))),
    fails("1.2.14", API, Flags(&["enable-admission-plugins"], Has("NodeRestriction"))),
    fails("1.2.15", API, Flags(&["profiling"], Is("false"))),
    fails("1.2.16", API, Flags(&["audit-log-path"], Set)),
    fails("1.2.17", API, Flags(&["audit-log-maxage"], AtLeast(30))),
    fails("1.2.18", API, Flags(&["audit-log-maxbackup"], AtLeast(10))),
    fails("1.2.19", API, Flags(&["audit-log-maxsize"], AtLeast(100))),
    // The default, which is long enough for large lists.
    warns("1.2.20", API, Flags(&["request-timeout"], Is("60s"))),
    fails("1.2.21", API, Flags(&["service-account-lookup"], Not("false"))),
    fails("1.2.22", API, Flags(&["service-account-key-file"], Set)),
    fails("1.2.23", API, Flags(&["etcd-certfile", "etcd-keyfile"], Set)),
    fails("1.2.24", API, Flags(&["tls-cert-file", "tls-private-key-file"], Set)),
    fails("1.2.25", API, Flags(&["client-ca-file"], Set)),
    fails("1.2.26", API, Flags(&["etcd-cafile"], Set)),
    warns("1.2.27", API, Flags(&["encryption-provider-config"], Set)),
    warns("1.2.28", API, Holds(judge::encrypts)),
    warns("1.2.29", API, Flags(&["tls-cipher-suites"], Strong)),
    fails("1.2.30", API, Flags(&["service-account-extend-token-expiration"], Is("false"))),

    warns("1.3.1", CONTROLLERS, Flags(&["terminated-pod-gc-threshold"], Set)),
    fails("1.3.2", CONTROLLERS, Flags(&["profiling"], Is("false"))),
    fails("1.3.3", CONTROLLERS, Flags(&["use-service-account-credentials"], Is("true"))),
    fails("1.3.4", CONTROLLERS, Flags(&["service-account-private-key-file"], Set)),
    fails("1.3.5", CONTROLLERS, Flags(&["root-ca-file"], Set)),
    fails("1.3.6", CONTROLLERS, Flags(&["feature-gates"], Lacks("RotateKubeletServerCertificate=false"))),
    fails("1.3.7", CONTROLLERS, Flags(&["bind-address"], Is("127.0.0.1"))),
    fails("1.4.1", SCHEDULER, Flags(&["profiling"], Is("false"))),
    fails("1.4.2", SCHEDULER, Flags(&["bind-address"], Is("127.0.0.1"))),

    fails("2.1", ETCD, Flags(&["cert-file", "key-file"], Set)),
    fails("2.2", ETCD, Flags(&["client-cert-auth"], Is("true"))),
    fails("2.3", ETCD, Flags(&["auto-tls"], UnsetOr("false"))),
    fails("2.4", ETCD, Flags(&["peer-cert-file", "peer-key-file"], Set)),
    fails("2.5", ETCD, Flags(&["peer-client-cert-auth"], Is("true"))),
    fails("2.6", ETCD, Flags(&["peer-auto-tls"], UnsetOr("false"))),
    warns("2.7", ETCD, Holds(judge::etcd_has_its_own_ca)),

    shown("3.1.1", Person),
    shown("3.1.2", Person),
    warns("3.1.3", API, Flags(&["enable-bootstrap-token-auth"], UnsetOr("false"))),
    warns("3.2.1", API, Flags(&["audit-policy-file"], Set)),
    warns("3.2.2", API, Holds(judge::audits)),

    fails("4.1.1", KUBELET, Mode(|h| h.unit(KUBELET), 0o600)),
    fails("4.1.2", KUBELET, Owner(|h| h.unit(KUBELET), ROOT)),
    warns("4.1.3", PROXY, Mode(Host::proxy_kubeconfig, 0o600)),
    warns("4.1.4", PROXY, Owner(Host::proxy_kubeconfig, ROOT)),
    fails("4.1.5", KUBELET, Mode(|h| h.file(KUBELET, "kubeconfig"), 0o600)),
    fails("4.1.6", KUBELET, Owner(|h| h.file(KUBELET, "kubeconfig"), ROOT)),
    warns("4.1.7", KUBELET, Mode(Host::client_ca, 0o644)),
    warns("4.1.8", KUBELET, Owner(Host::client_ca, ROOT)),
    fails("4.1.9", KUBELET, Mode(|h| h.file(KUBELET, "config"), 0o600)),
    fails("4.1.10", KUBELET, Owner(|h| h.file(KUBELET, "config"), ROOT)),

    fails("4.2.1", KUBELET, Kubelet("/authentication/anonymous/enabled", Is("false"))),
    fails("4.2.2", KUBELET, Kubelet("/authorization/mode", Without("AlwaysAllow"))),
    fails("4.2.3", KUBELET, Kubelet("/authentication/x509/clientCAFile", Set)),
    warns("4.2.4", KUBELET, Kubelet("/readOnlyPort", UnsetOr("0"))),
    warns("4.2.5", KUBELET, Kubelet("/streamingConnectionIdleTimeout", Not("0s"))),
    fails("4.2.6", KUBELET, Kubelet("/makeIPTablesUtilChains", Is("true"))),
    warns("4.2.7", KUBELET, Flags(&["hostname-override"], Unset)),
    warns("4.2.8", KUBELET, Kubelet("/eventRecordQPS", AtLeast(5))),
    warns("4.2.9", KUBELET, Holds(judge::kubelet_has_a_certificate)),
    fails("4.2.10", KUBELET, Kubelet("/rotateCertificates", Is("true"))),
    // The feature gate of this name is on, and the kubelet refuses the setting without it.
    warns("4.2.11", KUBELET, Kubelet("/serverTLSBootstrap", Is("true"))),
    warns("4.2.12", KUBELET, Kubelet("/tlsCipherSuites", Strong)),
    warns("4.2.13", KUBELET, Kubelet("/podPidsLimit", AtLeast(1))),
    warns("4.2.14", KUBELET, Kubelet("/seccompDefault", Is("true"))),
    fails("4.3.1", PROXY, Holds(judge::proxy_metrics_are_local)),

    shown("5.1.1", Objects(Cluster::all_powerful)),
    shown("5.1.2", Rights(&[Right("", &["secrets"], &["get", "list", "watch"])])),
    shown("5.1.3", Objects(Cluster::wildcards)),
    shown("5.1.4", Rights(&[Right("", &["pods"], &["create"])])),
    shown("5.1.5", Objects(Cluster::default_accounts)),
    shown("5.1.6", Objects(Cluster::needless_tokens)),
    shown("5.1.7", Person),
    shown("5.1.8", Rights(&[
        Right(RBAC, &["roles", "clusterroles"], &["bind", "escalate"]),
        Right("", &["users", "groups", "serviceaccounts"], &["impersonate"]),
    ])),
    shown("5.1.9", Rights(&[Right("", &["persistentvolumes"], &["create"])])),
    shown("5.1.10", Rights(&[Right("", &["nodes/proxy"], &["get", "create"])])),
    shown("5.1.11", Rights(&[Right(
        "certificates.k8s.io",
        &["certificatesigningrequests/approval"],
        &["update", "patch"],
    )])),
    shown("5.1.12", Rights(&[Right(
        ADMISSION,
        &["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
        &["create", "update", "patch", "delete"],
    )])),
    shown("5.1.13", Rights(&[Right("", &["serviceaccounts/token"], &["create"])])),
    shown("5.2.1", Refused),
    shown("5.2.2", Refused),
    shown("5.2.3", Refused),
    shown("5.2.4", Refused),
    shown("5.2.5", Refused),
    shown("5.2.6", Refused),
    shown("5.2.7", Refused),
    shown("5.2.8", Refused),
    shown("5.2.9", Refused),
    shown("5.2.10", Refused),
    shown("5.2.11", Refused),
    shown("5.2.12", Refused),
    shown("5.3.1", Person),
    shown("5.3.2", Objects(Cluster::unrestricted)),
    shown("5.4.1", Objects(Cluster::in_environment)),
    shown("5.4.2", Person),
    warns("5.5.1", API, Flags(&["enable-admission-plugins"], Has("ImagePolicyWebhook"))),
    shown("5.6.1", Person),
    shown("5.6.2", Refused),
    shown("5.6.3", Refused),
    shown("5.6.4", Objects(Cluster::in_default)),
];

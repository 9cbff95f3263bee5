//! Maps the kinds that hactl applies itself to URL paths. For other kinds hactl asks the API server.

/// Group and version, kind, plural, and whether the kind is namespaced.
#[rustfmt::skip]
const KINDS: &[(&str, &str, &str, bool)] = &[
    ("v1", "Namespace", "namespaces", false),
    ("v1", "Node", "nodes", false),
    ("v1", "Pod", "pods", true),
    ("v1", "Secret", "secrets", true),
    ("v1", "ConfigMap", "configmaps", true),
    ("v1", "Service", "services", true),
    ("v1", "Event", "events", true),
    ("v1", "ServiceAccount", "serviceaccounts", true),
    ("apps/v1", "DaemonSet", "daemonsets", true),
    ("apps/v1", "Deployment", "deployments", true),
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    ("coordination.k8s.io/v1", "Lease", "leases", true),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", false),
    ("rbac.authorization.k8s.io/v1", "Role", "roles", true),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", false),
    ("lifecycle.hactl.dev/v1alpha1", "NodeMaintenance", "nodemaintenances", false),
    ("lifecycle.hactl.dev/v1alpha1", "NodeMaintenanceRollout", "nodemaintenancerollouts", false),
    ("lifecycle.hactl.dev/v1alpha1", "EvictionRequest", "evictionrequests", true),
    ("lifecycle.k8s.io/v1alpha1", "EvictionRequest", "evictionrequests", true),
    ("certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", false),
];

/// The plural and whether the kind is namespaced, if it is in the table.
pub(super) fn known(api_version: &str, kind: &str) -> Option<(String, bool)> {
    KINDS.iter().find(|row| row.0 == api_version && row.1 == kind).map(|row| (row.2.to_owned(), row.3))
}

/// The path of a group and version; the core group has a path of its own.
pub(super) fn root(api_version: &str) -> String {
    if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") }
}

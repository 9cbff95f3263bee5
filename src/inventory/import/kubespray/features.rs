//! Kubespray's features without an equivalent in hactl: one note each, with what to do.
//!
//! In: the variables. Out: notes. Disabled features need none.

use super::super::ansible::groups::Var;
use super::super::ansible::scope::Scope;
use super::super::node::truth;
use super::super::notes::{Notes, listed, short, table};

/// Components that Kubespray installs if a variable is true.
const INSTALLED: [(&str, &str); 26] = [
    ("dashboard_enabled", "the dashboard"),
    ("registry_enabled", "a registry"),
    ("metrics_server_enabled", "metrics-server"),
    ("local_path_provisioner_enabled", "the local path provisioner"),
    ("local_volume_provisioner_enabled", "the local volume provisioner"),
    ("csi_snapshot_controller_enabled", "the CSI snapshot controller"),
    ("cephfs_provisioner_enabled", "the CephFS provisioner"),
    ("rbd_provisioner_enabled", "the RBD provisioner"),
    ("gateway_api_enabled", "the Gateway API's definitions"),
    ("ingress_nginx_enabled", "ingress-nginx"),
    ("ingress_alb_enabled", "the ALB ingress controller"),
    ("ingress_ambassador_enabled", "Ambassador"),
    ("cert_manager_enabled", "cert-manager"),
    ("metallb_enabled", "MetalLB"),
    ("argocd_enabled", "Argo CD"),
    ("node_feature_discovery_enabled", "Node Feature Discovery"),
    ("scheduler_plugins_enabled", "the scheduler plugins"),
    ("kubelet_csr_approver_enabled", "the kubelet CSR approver (hactl approves kubelet certificates automatically)"),
    ("kube_network_plugin_multus", "Multus"),
    ("cinder_csi_enabled", "the Cinder CSI driver"),
    ("aws_ebs_csi_enabled", "the EBS CSI driver"),
    ("azure_csi_enabled", "the Azure disk CSI driver"),
    ("gcp_pd_csi_enabled", "the GCE disk CSI driver"),
    ("vsphere_csi_enabled", "the vSphere CSI driver"),
    ("persistent_volumes_enabled", "storage classes of the cloud"),
    ("deploy_netchecker", "netchecker"),
];

/// Other settings that differ if a variable is true.
const ARRANGED: &str = "\
helm_enabled: helm is installed on the hosts there
  install it on your own machine
krew_enabled: krew is installed on the hosts there
  install it on your own machine
enable_nodelocaldns: a DNS cache runs on every Node there, and only CoreDNS here
  nothing, or add NodeLocal DNSCache as a manifest
kata_containers_enabled: Kata Containers is a runtime there
  install it on the hosts, and write the runtime under extra.containerd.config
gvisor_enabled: gVisor is a runtime there
  install it on the hosts, and write the runtime under extra.containerd.config
crun_enabled: crun is a runtime there
  hactl installs runc; write another runtime under extra.containerd.config
nvidia_accelerator_enabled: drivers for GPUs are installed there
  install them on the hosts, and the device plugin as a manifest
kubernetes_audit: the API servers write an audit log by Kubespray's policy there
  nothing: hactl writes one by its own policy
kubernetes_audit_webhook: audit events go to a webhook there
  write audit-webhook-config-file under extra.kube-apiserver, with its file under mounts
kube_encrypt_secret_data: Secrets are encrypted in etcd with Kubespray's key there
  nothing: hactl encrypts them with its own key
kube_oidc_auth: users authenticate by OIDC there
  write the issuer under authentication.jwt
kube_token_auth: users authenticate with a token file there
  use certificates, OIDC (authentication.jwt) or service accounts
kube_webhook_token_auth: a webhook authenticates tokens there
  use authentication.jwt: hactl does not support token webhooks
kube_webhook_authorization: a webhook authorizes requests there
  use RBAC: hactl does not support authorization webhooks
podsecuritypolicy_enabled: PodSecurityPolicy is enabled there, and Kubernetes has removed it
  label namespaces with pod-security.kubernetes.io/enforce
kube_proxy_strict_arp: kube-proxy uses strict ARP there, which only ipvs needs
  nothing: hactl's kube-proxy uses nftables
enable_coredns_k8s_endpoint_pod_names: CoreDNS resolves pods of a headless Service by their names there
  set hostname and subdomain of such pods, as a StatefulSet does
ignore_assert_errors: Kubespray continues when its checks fail
  run `hactl plan`; preflight.ignore lists checks that only warn
auto_renew_certificates: a timer renews certificates there
  nothing: `hactl up` renews those that expire, and `status` reports them";

/// Variables that need a note as soon as they are set; those of a row have the same one.
const SET: &str = "\
cloud_provider: a cloud provider is set
  install its cloud controller manager as a manifest
external_cloud_provider: a cloud controller manager is set
  install it as a manifest
kube_feature_gates kube_apiserver_feature_gates kube_controller_feature_gates kube_scheduler_feature_gates \
kube_proxy_feature_gates kubelet_feature_gates: feature gates, which depend on the version
  write those that you need under extra.COMPONENT.args
kubelet_custom_flags: flags of the kubelet
  write them under extra.kubelet.args, or better as fields under extra.kubelet.config
kubelet_node_custom_flags: flags of some kubelets
  all kubelets have the same flags here: extra.kubelet.args, extra.kubelet.config
upstream_dns_servers: DNS servers for the hosts and CoreDNS
  set them on the hosts; CoreDNS uses the DNS servers of its host
nameservers: DNS servers for the hosts
  set them on the hosts
searchdomains: search domains for the hosts
  set them on the hosts
dns_etchosts: entries of CoreDNS' own hosts file
  change its ConfigMap with your own manifest
tls_min_version: the minimum TLS version of the components
  nothing: hactl sets it; the kubelet's is tlsMinVersion under extra.kubelet.config
tls_cipher_suites: cipher suites of the components
  nothing: hactl sets them; the kubelet's are tlsCipherSuites under extra.kubelet.config
kube_proxy_nodeport_addresses kube_proxy_nodeport_addresses_cidr: the addresses of the hosts that answer for NodePorts
  write the ranges as nodePortAddresses under extra.kube-proxy.config
docker_registry_mirrors: mirrors for Docker
  write them under registries.mirrors";

/// Paths, users and other settings of Kubespray itself, which do not describe the cluster.
const ITS_OWN: &str = "\
    kube_config_dir kube_script_dir kube_manifest_dir kube_cert_dir kube_token_dir kube_owner kube_cert_group \
    kube_api_anonymous_auth local_release_dir retry_stagger credentials_dir bin_dir kube_apiserver_ip skydns_server \
    skydns_server_secondary kubeadm_certificate_key default_kubelet_config_dir k8s_image_pull_policy kube_log_level \
    loadbalancer_apiserver_healthcheck_port loadbalancer_apiserver_type no_proxy_exclude_workers nodelocaldns_ip \
    nodelocaldns_health_port nodelocaldns_second_health_port nodelocaldns_bind_metrics_host_ip \
    nodelocaldns_secondary_skew_seconds enable_nodelocaldns_secondary ndots dns_mode resolvconf_mode \
    volume_cross_zone_attachment krew_root_dir kube_vip_arp_enabled metallb_speaker_enabled \
    ingress_publish_status_address kubeconfig_localhost kubectl_localhost";

/// Reports features that are enabled for any of the hosts.
pub fn features(scopes: &[&Scope<'_>], notes: &mut Notes) {
    let is_on = |var: &Var| var.node.as_text().and_then(truth) == Some(true);
    for (key, what) in INSTALLED {
        for place in places(scopes, key, is_on) {
            notes.add(
                place,
                format!("{key}: Kubespray installs {what}; hactl does not"),
                "put its manifests into a folder, and name that under `manifests`",
            );
        }
    }
    for (key, what, remedy) in table(ARRANGED) {
        for place in places(scopes, key, is_on) {
            notes.add(place, format!("{key}: {what}"), remedy);
        }
    }
    for (keys, what, remedy) in table(SET) {
        for key in keys.split(' ') {
            for place in places(scopes, key, is_set) {
                notes.add(place, format!("{key} is not carried over: {what}"), remedy);
            }
        }
    }
    outside_names(scopes, is_on, notes);
    let engines = |var: &Var| var.node.as_text().is_some_and(|engine| !matches!(engine.trim(), "" | "containerd"));
    for place in places(scopes, "container_manager", engines) {
        let at = |scope: &&&Scope<'_>| scope.raw("container_manager").is_some_and(|var| var.place == place);
        let said = scopes.iter().find(at).and_then(|scope| scope.text("container_manager", notes));
        if let Some(said) = said.filter(|said| said.value != "containerd") {
            notes.add(
                place,
                format!("the container runtime is {} there, and containerd here", short(&said.value)),
                "check that nothing of yours uses its socket",
            );
        }
    }
    let patched = |var: &Var| var.node.is_true("enabled");
    for place in places(scopes, "kubeadm_patches", patched) {
        notes.add(
            place,
            "kubeadm_patches changes manifests of the components",
            "write their settings under extra.COMPONENT",
        );
    }
}

/// The places where a variable has such a value for a host, each once.
fn places(scopes: &[&Scope<'_>], key: &str, meant: impl Fn(&Var) -> bool) -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    for var in scopes.iter().filter_map(|scope| scope.raw(key)).filter(|var| meant(var)) {
        if !places.contains(&var.place) {
            places.push(var.place.clone());
        }
    }
    places
}

/// Whether a variable is set. Kubespray's sample derives one variable from another in every inventory, also if that is
/// not set.
fn is_set(var: &Var) -> bool {
    let text = var.node.as_text().unwrap_or_default();
    !var.node.is_empty() && truth(text) != Some(false) && !text.contains("kube_proxy_nodeport_addresses_cidr")
}

/// External names of Services, in their own zone.
fn outside_names(scopes: &[&Scope<'_>], is_on: impl Fn(&Var) -> bool, notes: &mut Notes) {
    let zones: Vec<&str> = scopes
        .iter()
        .filter_map(|scope| scope.raw("coredns_k8s_external_zone").and_then(|var| var.node.as_text()))
        .collect();
    for place in places(scopes, "enable_coredns_k8s_external", is_on) {
        notes.add(
            place,
            format!(
                "enable_coredns_k8s_external: CoreDNS resolves Services for external clients there, in the zone {}",
                short(zones.first().unwrap_or(&"k8s_external.local"))
            ),
            "run your own CoreDNS for that zone, with the plugin k8s_external, as a manifest",
        );
    }
}

/// Reports all variables that only concern Kubespray, in one note.
pub fn its_own(scopes: &[&Scope<'_>], notes: &mut Notes) {
    let set = ITS_OWN.split_ascii_whitespace().filter_map(|key| {
        let places = places(scopes, key, |var| !var.node.is_empty());
        Some((key, places.into_iter().next()?))
    });
    let set: Vec<(&str, String)> = set.collect();
    if let Some((_, place)) = set.first() {
        let keys: Vec<&str> = set.iter().map(|(key, _)| *key).collect();
        notes.add(
            place.rsplit_once(':').map_or(place.as_str(), |(file, _)| file),
            format!("these concern only Kubespray itself: {}", listed(&keys, keys.len())),
            "nothing: hactl has its own directories, users and add-ons",
        );
    }
}

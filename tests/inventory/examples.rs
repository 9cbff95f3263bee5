//! The examples in `inventories/` are valid and have the intended meaning.

use super::root;
use hactl::inventory::{DEFAULT_KUBERNETES, Loaded, Source, load};
use hactl::model::desired::{Cni, EndpointKind, KubeProxy, Role, Security};
use std::path::{Path, PathBuf};

fn example(name: &str) -> Loaded {
    let path = root().join("inventories").join(name);
    load(&Source::Path(path)).unwrap_or_else(|error| panic!("{name}:\n{error}"))
}

fn count(loaded: &Loaded, role: Role) -> usize {
    loaded.desired.with(role).count()
}

fn warned(loaded: &Loaded) -> Vec<String> {
    loaded.warnings.iter().map(|w| w.what.clone()).collect()
}

#[test]
fn the_minimal_example_gets_every_default() {
    let loaded = example("minimal.yaml");
    assert_eq!(warned(&loaded), Vec::<String>::new());
    let desired = &loaded.desired;
    assert_eq!(desired.cluster.as_str(), "minimal");
    assert!(desired.versions.is_default && desired.versions.kubernetes == DEFAULT_KUBERNETES);
    assert_eq!((desired.versions.etcd.as_ref(), desired.versions.containerd.as_ref()), (None, None));
    assert_eq!((desired.endpoint.url().as_str(), desired.api_port), ("https://10.0.0.100:6443", 6443));
    let EndpointKind::Vip { interface, vrid, .. } = &desired.endpoint.kind else { panic!("a virtual address") };
    assert_eq!((interface.as_ref(), *vrid >= 1), (None, true));
    assert_eq!(
        (desired.network.pods.to_string(), desired.network.services.to_string()),
        ("10.244.0.0/16".into(), "10.96.0.0/12".into())
    );
    assert_eq!(
        (desired.network.cni, desired.network.mtu, desired.network.kube_proxy),
        (Cni::Flannel, None, KubeProxy::Nftables)
    );
    assert_eq!((desired.control_plane.schedulable, desired.control_plane.security), (false, Security::Baseline));
    assert_eq!((desired.etcd.data_dir.as_path(), desired.etcd.quota_gib), (Path::new("/var/lib/etcd"), 8));
    let ssh = &desired.hosts[1].ssh;
    assert_eq!((ssh.host.as_str(), ssh.port, ssh.user.as_str()), ("10.0.0.12", 22, "root"));
    assert_eq!((&ssh.identity, &ssh.fingerprint, &ssh.host_ca, &ssh.sudo_password), (&None, &None, &None, &None));
    assert!(ssh.known_hosts.is_empty() && ssh.jump.is_empty());
    assert_eq!(desired.extra, hactl::model::desired::Extra::default());
    assert_eq!(desired.hosting, hactl::model::hosting::Hosting::Static);
    assert_eq!(loaded.base, root().join("inventories"));
}

#[test]
fn the_full_example_sets_every_field_and_names_what_has_no_effect_yet() {
    let loaded = example("full.yaml");
    let desired = &loaded.desired;
    let files = root().join("inventories/files");
    assert!(!desired.versions.is_default);
    assert_eq!(
        (desired.versions.etcd.as_deref(), desired.versions.containerd.as_deref()),
        (Some("3.7.3"), Some("2.3.7"))
    );
    assert_eq!(
        desired.endpoint.kind,
        EndpointKind::Vip { address: "10.0.0.100".parse().unwrap(), interface: Some("bond0".into()), vrid: 77 }
    );
    assert_eq!((desired.endpoint.port, desired.api_port), (8443, 6443));
    assert_eq!(desired.endpoint.sans, ["api.full.example.org", "kubernetes.example.org", "192.0.2.80"]);
    let first = &desired.hosts[0];
    assert_eq!(
        (first.ssh.host.as_str(), first.ssh.port, first.ssh.user.as_str()),
        ("cp1.mgmt.example.org", 2222, "admin")
    );
    assert!(first.ssh.fingerprint.as_ref().unwrap().starts_with("SHA256:"));
    assert_eq!(first.ssh.to_string(), "admin@cp1.mgmt.example.org:2222 through admin@bastion.example.org:22");
    let jump = &first.ssh.jump[0];
    assert_eq!(
        jump.identities,
        [std::env::home_dir().unwrap().join(".ssh/id_bastion")],
        "its own, of ./files/ssh_config"
    );
    assert!(first.ssh.host_ca.as_ref().unwrap().starts_with("SHA256:") && first.ssh.host_ca == jump.host_ca);
    assert_eq!(first.ssh.sudo_password, Some(files.join("sudo-password")));
    assert_eq!((first.zone.as_deref(), first.labels["disk"].as_str()), (Some("rack-a"), "nvme"));
    assert_eq!(first.taints, ["example.org/quiet:PreferNoSchedule"]);
    let second = &desired.hosts[1].ssh;
    assert_eq!(second.to_string(), "ops@10.0.0.12:22 through ops@bastion.example.org:2222");
    assert_eq!(
        (second.identity.clone(), second.known_hosts.clone()),
        (Some(files.join("id_ed25519")), vec![files.join("known_hosts")])
    );
    assert_eq!(
        (desired.network.mtu, desired.network.pods.prefix, desired.network.services.prefix),
        (Some(1400), 14, 16)
    );
    assert_eq!((desired.control_plane.schedulable, desired.control_plane.security), (true, Security::Cis));
    assert_eq!(desired.hosting, hactl::model::hosting::Hosting::SelfHosted);
    assert_eq!((desired.etcd.data_dir.clone(), desired.etcd.quota_gib), (PathBuf::from("/srv/etcd"), 4));
    assert_eq!(desired.jwt[0]["claimMappings"]["username"]["claim"], "email");
    assert_eq!(desired.mirrors["registry.k8s.io"], ["https://mirror.example.org", "http://10.0.0.9:5000"]);
    assert_eq!((desired.proxy.http.as_str(), desired.proxy.no_proxy.len()), ("http://proxy.example.org:3128", 2));
    assert_eq!(desired.manifests, [files.join("addons")]);
    let args = |component: &str, flag: &str| desired.extra.args[component][flag].clone();
    assert_eq!(
        (args("kube-apiserver", "event-ttl"), args("etcd", "heartbeat-interval"), args("kubelet", "v")),
        ("2h".into(), "200".into(), "2".into())
    );
    assert_eq!(desired.extra.kubelet_config["maxPods"], 200);
    assert_eq!(desired.extra.kube_proxy_config["conntrack"]["maxPerCore"], 0);
    assert!(desired.extra.restrict_oom_score_adj);

    assert!(desired.bundled_packages);
    let snapshots = &desired.snapshots;
    assert_eq!((snapshots.every_s, snapshots.keep.last, snapshots.recipients.len()), (900, 96, 1));
    assert_eq!(snapshots.drill, Some(hactl::model::drill::Period::Weekly));
    let to: Vec<String> = snapshots.to.iter().map(ToString::to_string).collect();
    assert_eq!(to, ["/srv/backup/hactl", "s3://backups/hactl"]);
    let storage = snapshots.storage.as_ref().expect("its settings");
    assert_eq!(
        (storage.endpoint.as_deref(), storage.region.as_str()),
        (Some("https://minio.example:9000"), "eu-central-1")
    );
    // A checked-out file may be readable by others; the example's password is not real.
    let open = |w: &&String| !w.starts_with("other users of this machine can read");
    let warnings = warned(&loaded);
    assert_eq!(warnings.iter().filter(open).count(), 0, "other warnings: {warnings:?}");
    let keys: Vec<&str> =
        loaded.attached.logins.keys().chain(loaded.attached.authorities.keys()).map(String::as_str).collect();
    let wanted = ["mirror.example.org", "s3://", "mirror.example.org", "s3://"];
    assert_eq!((keys.as_slice(), loaded.attached.manifests.len()), (wanted.as_slice(), 1));
    let pki = &desired.named.pki;
    assert_eq!(pki.etcd.as_ref().map(|pair| pair.key.clone()), Some(files.join("pki/etcd-ca.key")));
    assert_eq!(desired.extra.mounts["kube-scheduler"], ["/etc/kubernetes/scheduler"]);
}

#[test]
fn five_members_tolerate_two_failures_without_a_warning() {
    let loaded = example("five-members.yaml");
    assert_eq!(warned(&loaded), Vec::<String>::new());
    assert_eq!(
        (count(&loaded, Role::Etcd), count(&loaded, Role::LoadBalancer), count(&loaded, Role::Spare)),
        (5, 3, 1)
    );
}

#[test]
fn an_external_endpoint_takes_its_port_from_the_text() {
    let loaded = example("external-endpoint.yaml");
    assert_eq!(warned(&loaded), Vec::<String>::new());
    assert_eq!(loaded.desired.endpoint.url(), "https://api.example.org:443");
    assert_eq!(loaded.desired.api_port, 6443);
}

#[test]
fn without_a_virtual_address_nodes_use_loopback_and_people_a_name() {
    let loaded = example("local-balancers.yaml");
    assert_eq!(warned(&loaded), Vec::<String>::new());
    assert_eq!(loaded.desired.endpoint.url(), "https://127.0.0.1:6443");
    assert_eq!(loaded.desired.url_for_people(), "https://api.example.org:6443");
    assert!(loaded.desired.hosts.iter().all(|host| loaded.desired.balances(host)));
}

#[test]
fn etcd_may_live_on_hosts_of_its_own() {
    let loaded = example("separate-etcd.yaml");
    assert_eq!(warned(&loaded), Vec::<String>::new());
    assert!(loaded.desired.with(Role::Etcd).all(|host| !host.is(Role::ControlPlane)));
}

#[test]
fn one_machine_is_accepted_with_a_warning() {
    let loaded = example("single.yaml");
    assert_eq!(loaded.warnings.len(), 1);
    assert!(warned(&loaded)[0].contains("one etcd member"));
}

#[test]
fn three_zones_are_accepted_without_a_warning() {
    let loaded = example("three-zones.yaml");
    assert_eq!(warned(&loaded), Vec::<String>::new());
    assert_eq!(loaded.desired.hosts[3].zone.as_deref(), Some("rack-a"));
}

#[test]
fn balancers_may_have_machines_of_their_own() {
    let loaded = example("dedicated-balancers.yaml");
    assert_eq!(warned(&loaded), Vec::<String>::new());
    assert!(loaded.desired.with(Role::LoadBalancer).all(|host| host.roles == [Role::LoadBalancer]));
    assert_eq!((count(&loaded, Role::LoadBalancer), count(&loaded, Role::Etcd)), (2, 3));
}

#[test]
fn five_members_in_three_racks_tolerate_the_loss_of_any_rack() {
    let loaded = example("five-zones.yaml");
    assert_eq!(warned(&loaded), Vec::<String>::new());
    for rack in ["rack-a", "rack-b", "rack-c"] {
        let left = loaded.desired.with(Role::Etcd).filter(|host| host.zone.as_deref() != Some(rack)).count();
        assert!(left >= 3, "without {rack} {left} of 5 members are left");
    }
}

#[test]
fn behind_an_air_gap_the_mirror_is_inside_and_packages_are_in_the_bundle() {
    let loaded = example("air-gap.yaml");
    assert_eq!(warned(&loaded), Vec::<String>::new());
    assert!(loaded.desired.bundled_packages);
    assert_eq!(loaded.desired.mirrors["docker.io"], ["http://10.0.0.5:5000"]);
}

#[test]
fn the_vagrant_example_matches_the_vagrantfile() {
    use hactl::inventory::topology::topology;
    let loaded = example("vagrant.yaml");
    assert_eq!(warned(&loaded), Vec::<String>::new());
    let there: Vec<Role> = loaded.desired.hosts.iter().map(|host| host.roles[0]).collect();
    let names = topology().names(|role| there.iter().filter(|other| **other == role).count());
    for (index, ((name, role), host)) in names.zip(&loaded.desired.hosts).enumerate() {
        assert_eq!((name.as_str(), topology().roles(role, &there)), (host.name.as_str(), host.roles.clone()));
        let last = usize::from(topology().first) + index;
        assert_eq!(host.address.to_string(), format!("10.88.200.{last}"));
    }
    assert!(loaded.text.ends_with(&topology().containers), "the settings for containers are the same");
}

//! Properties that hold for every text: it causes no panic, and written values are read back.

use super::{BASE, parse};
use hactl::inventory::parse as parse_in;
use hactl::model::desired::{EndpointKind, Role};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;

/// An inventory by its parts, all of them valid together.
#[derive(Debug, Clone)]
struct Model {
    cluster: String,
    vip: Option<u8>,
    port: u16,
    api_port: u16,
    vrid: Option<u8>,
    controls: u8,
    workers: u8,
    spares: u8,
    split_etcd: bool,
    user: String,
    labels: std::collections::BTreeMap<String, String>,
    pods: u8,
    mtu: Option<u16>,
    quota: u32,
    schedulable: bool,
    version: (u8, u8),
}

fn model() -> impl Strategy<Value = Model> {
    let names = "[a-z]([a-z0-9-]{0,20}[a-z0-9])?";
    (
        (names, proptest::option::of(100..250_u8), 7000..8200_u16, 6500..7000_u16, proptest::option::of(1..=255_u8)),
        (1..6_u8, 0..8_u8, 0..3_u8, any::<bool>(), "[a-z][a-z0-9_-]{0,12}"),
        (btree_map("[a-z]([a-z0-9._-]{0,10}[a-z0-9])?", "[A-Za-z0-9]{0,10}", 0..4), 10..=19_u8),
        (proptest::option::of(576..=9216_u16), 1..=8_u32, any::<bool>(), (34..=36_u8, 0..99_u8)),
    )
        .prop_map(
            |(
                (cluster, vip, port, api_port, vrid),
                (controls, workers, spares, split_etcd, user),
                (labels, pods),
                rest,
            )| Model {
                cluster,
                vip,
                port,
                api_port,
                vrid,
                controls,
                workers,
                spares,
                split_etcd,
                user,
                labels,
                pods,
                mtu: rest.0,
                quota: rest.1,
                schedulable: rest.2,
                version: rest.3,
            },
        )
}

impl Model {
    /// Name, last part of the address, roles.
    fn hosts(&self) -> Vec<(String, u8, Vec<Role>)> {
        let mut hosts = Vec::new();
        let mut add = |kind: &str, n: u8, roles: &[Role]| {
            let last = u8::try_from(hosts.len()).unwrap() + 10;
            hosts.push((format!("{kind}{n}"), last, roles.to_vec()));
        };
        for n in 0..self.controls {
            let mut roles = vec![Role::ControlPlane];
            if !self.split_etcd {
                roles.push(Role::Etcd);
            }
            if self.vip.is_some() {
                roles.push(Role::LoadBalancer);
            }
            add("cp", n, &roles);
        }
        for n in 0..(if self.split_etcd { 3 } else { 0 }) {
            add("etcd", n, &[Role::Etcd]);
        }
        for n in 0..self.workers {
            add("w", n, &[Role::Worker]);
        }
        for n in 0..self.spares {
            add("s", n, &[Role::Spare]);
        }
        hosts
    }

    fn yaml(&self) -> String {
        let mut text = format!("cluster: {:?}\nschema: 1\nendpoint:\n  port: {}\n", self.cluster, self.port);
        match self.vip {
            Some(last) => {
                let _ = writeln!(text, "  vip: 192.0.2.{last}");
            }
            None => text.push_str("  external: api.example.org\n"),
        }
        if let (Some(vrid), Some(_)) = (self.vrid, self.vip) {
            let _ = writeln!(text, "  vrid: {vrid}");
        }
        let _ = writeln!(text, "apiPort: {}\nssh: {{user: {:?}}}", self.api_port, self.user);
        let _ = writeln!(text, "versions: {{kubernetes: \"1.{}.{}\"}}", self.version.0, self.version.1);
        let _ =
            writeln!(text, "etcd: {{quotaGiB: {}}}\ncontrolPlane: {{schedulable: {}}}", self.quota, self.schedulable);
        let mtu = self.mtu.map_or("auto".to_owned(), |mtu| mtu.to_string());
        let base = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)));
        let _ = writeln!(text, "network: {{pods: {base}/{}, services: 172.20.0.0/16, mtu: {mtu}}}\nhosts:", self.pods);
        for (name, last, roles) in self.hosts() {
            let roles: Vec<String> = roles.iter().map(Role::to_string).collect();
            let labels: Vec<String> = self.labels.iter().map(|(k, v)| format!("{k:?}: {v:?}")).collect();
            let _ = writeln!(
                text,
                "- name: {name}\n  address: 192.0.2.{last}\n  roles: [{}]\n  labels: {{{}}}",
                roles.join(", "),
                labels.join(", ")
            );
        }
        text
    }
}

/// Every line of the base text twice, with the pieces that trouble readers of YAML.
fn soup() -> impl Strategy<Value = String> {
    let lines: Vec<String> = BASE.lines().map(str::to_owned).collect();
    let odd = prop_oneof![
        Just("---".to_owned()),
        Just("\t- x".to_owned()),
        Just("&a [*a]".to_owned()),
        Just("<<: *a".to_owned()),
        Just("? [1, 2]".to_owned()),
        Just("x: |\n  y".to_owned()),
        Just("!!binary x".to_owned()),
        Just("{".to_owned()),
        Just("endpoint: {vip: ~}".to_owned()),
        Just("    roles:".to_owned()),
        Just("ssh: {port: 1e99}".to_owned()),
        Just("network: {pods: 0.0.0.0/0}".to_owned()),
        Just("extra: {kubelet: {config: {a: .nan}}}".to_owned()),
        any::<String>(),
    ];
    vec(prop_oneof![3 => proptest::sample::select(lines), 1 => odd], 0..25).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_ever_panics(text in any::<String>()) {
        let _ = parse(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn no_bytes_ever_panic(bytes in vec(any::<u8>(), 0..400)) {
        let _ = parse_in(&String::from_utf8_lossy(&bytes), Path::new("")).map_err(|error| error.to_string());
    }

    #[test]
    fn no_inventory_cut_and_mixed_ever_panics(text in soup()) {
        let _ = parse(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn a_valid_inventory_is_read_as_it_was_written(model in model()) {
        let loaded = parse(&model.yaml()).map_err(|error| TestCaseError::fail(format!("{error}\n{}", model.yaml())))?;
        let desired = &loaded.desired;
        prop_assert_eq!(desired.cluster.as_str(), &model.cluster);
        prop_assert_eq!((desired.endpoint.port, desired.api_port), (model.port, model.api_port));
        match (&desired.endpoint.kind, model.vip) {
            (EndpointKind::Vip { address, vrid, .. }, Some(last)) => {
                prop_assert_eq!(address.to_string(), format!("192.0.2.{last}"));
                prop_assert!(model.vrid.is_none_or(|wanted| wanted == *vrid) && *vrid > 0);
            }
            (EndpointKind::External(name), None) => prop_assert_eq!(name, "api.example.org"),
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        }
        let hosts: Vec<_> = desired.hosts.iter().map(|h| (h.name.to_string(), h.address.to_string(), h.roles.clone())).collect();
        let wanted: Vec<_> = model.hosts().into_iter().map(|(n, last, r)| (n, format!("192.0.2.{last}"), r)).collect();
        prop_assert_eq!(hosts, wanted);
        for host in &desired.hosts {
            prop_assert_eq!(&host.labels, &model.labels);
            prop_assert_eq!((&host.ssh.user, &host.ssh.host), (&model.user, &host.address.to_string()));
        }
        prop_assert_eq!((desired.network.pods.prefix, desired.network.mtu), (model.pods, model.mtu));
        prop_assert_eq!((desired.etcd.quota_gib, desired.control_plane.schedulable), (model.quota, model.schedulable));
        prop_assert_eq!(&desired.versions.kubernetes, &format!("1.{}.{}", model.version.0, model.version.1));
        // The same meaning, written again, is the same desired state.
        let again = parse(&format!("# the same\n{}", model.yaml())).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(desired, &again.desired);
    }
}

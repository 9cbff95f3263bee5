//! The table of refusals and warnings: a name and the text. The first word of the name is the golden file of its
//! output.

use super::{BASE, edited, golden, shown, with};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// One JWT authenticator.
fn jwt(entry: &str) -> String {
    format!("authentication:\n  jwt:\n    - {entry}")
}

/// Each: its name in the golden file of its family, and the text.
fn cases() -> Vec<(&'static str, String)> {
    let hosts = |count: usize, role: &str| {
        let mut text = BASE.split("hosts:").next().unwrap().to_owned() + "hosts:\n";
        for n in 1..=count {
            let _ = writeln!(text, "  - {{name: cp{n}, address: 10.0.0.{}, roles: [{role}]}}", 10 + n);
        }
        text
    };
    let all = "control-plane, etcd, load-balancer";
    let zoned = |a: &str, b: &str, c: &str| {
        edited("    address: 10.0.0.11\n", &format!("    address: 10.0.0.11\n    zone: {a}\n"))
            .replace("    address: 10.0.0.12\n", &format!("    address: 10.0.0.12\n    zone: {b}\n"))
            .replace("    address: 10.0.0.13\n", &format!("    address: 10.0.0.13\n    zone: {c}\n"))
    };
    vec![
        // The document.
        ("document-empty", String::new()),
        ("document-only-comments", "# nothing\n---\n".into()),
        ("document-is-a-list", "- one\n- two\n".into()),
        ("document-is-a-word", "hello\n".into()),
        ("document-twice", format!("{BASE}---\n{BASE}")),
        ("document-with-tabs", edited("  vip: 10.0.0.100", "\tvip: 10.0.0.100")),
        ("document-is-binary", "\u{1}\u{2}ELF\u{0}\n".into()),
        ("document-unclosed", edited("[control-plane, etcd, load-balancer]", "[control-plane, etcd")),
        ("document-bad-indentation", edited("    address: 10.0.0.11", "  address: 10.0.0.11")),
        ("document-enormous", format!("{BASE}# {}\n", "x".repeat(1024 * 1024))),
        ("document-alias-bomb", bomb()),
        (
            "document-too-deep",
            with(&format!("extra: {{kubelet: {{config: {{a: {}1{}}}}}}}", "[".repeat(60), "]".repeat(60))),
        ),
        ("document-unknown-anchor", edited("cluster: lab", "cluster: *name")),
        ("document-with-tag", edited("cluster: lab", "cluster: !secret lab")),
        // Keys.
        ("key-unknown", with("zebra: 1")),
        ("key-mistyped", with("api_port: 6443")),
        ("key-mistyped-in-host", edited("    address: 10.0.0.12", "    adress: 10.0.0.12")),
        ("key-in-the-wrong-place", with("vip: 10.0.0.9")),
        ("key-twice", edited("    address: 10.0.0.12", "    address: 10.0.0.12\n    address: 10.0.0.22")),
        ("key-twice-at-top", with("cluster: again")),
        ("schema-missing", edited("schema: 1\n", "")),
        ("schema-two", edited("schema: 1", "schema: 2")),
        ("everything-missing", "schema: 1\n".into()),
        // Types.
        ("type-text-for-number", with("apiPort: https")),
        ("type-list-for-mapping", with("network: [10.244.0.0/16]")),
        ("type-mapping-for-list", edited("roles: [control-plane, etcd, load-balancer]", "roles: {etcd: true}")),
        ("type-text-for-list", edited("roles: [control-plane, etcd, load-balancer]", "roles: etcd")),
        ("type-text-for-bool", with("controlPlane: {schedulable: yes}")),
        ("type-text-for-mapping", with("etcd: /var/lib/etcd")),
        ("type-nothing-in-list", edited("roles: [control-plane, etcd, load-balancer]", "roles: [~]")),
        ("type-list-for-text", edited("cluster: lab", "cluster: [lab]")),
        // Versions.
        ("version-float", with("versions: {kubernetes: 1.36}")),
        ("version-float-that-would-shrink", with("versions: {kubernetes: 1.30}")),
        ("version-two-parts", with("versions: {kubernetes: \"1.36\"}")),
        ("version-of-another-minor", with("versions: {kubernetes: \"1.30.4\"}")),
        ("version-with-v", with("versions: {kubernetes: v1.36.3}")),
        ("version-latest", with("versions: {etcd: latest}")),
        ("version-prerelease", with("versions: {containerd: 2.3.0-rc.1}")),
        // Names.
        ("cluster-too-long", edited("cluster: lab", &format!("cluster: {}", "a".repeat(41)))),
        ("cluster-uppercase", edited("cluster: lab", "cluster: Lab_1")),
        ("cluster-missing", edited("cluster: lab\n", "")),
        ("host-name-twice", edited("name: cp2", "name: cp1")),
        ("host-name-qualified", edited("name: cp2", "name: cp2.example.org")),
        ("host-name-missing", edited("  - name: cp2\n    address", "  - address")),
        // Hosts.
        ("hosts-missing", BASE.split("hosts:").next().unwrap().to_owned()),
        ("hosts-empty", hosts(0, all).replace("hosts:", "hosts: []")),
        ("host-address-twice", edited("10.0.0.12", "10.0.0.11")),
        ("host-address-missing", edited("    address: 10.0.0.12\n", "")),
        ("host-address-is-a-name", edited("10.0.0.12", "cp2.example.org")),
        ("host-address-with-prefix", edited("10.0.0.12", "10.0.0.12/24")),
        ("host-address-with-port", edited("10.0.0.12", "10.0.0.12:22")),
        ("host-address-ipv6", edited("10.0.0.12", "fd00::12")),
        ("host-address-loopback", edited("10.0.0.12", "127.0.1.1")),
        (
            "host-reached-twice",
            edited(
                "    roles: [control-plane, etcd, load-balancer]\n  - name: cp2",
                "    ssh: {host: 10.0.0.12}\n    roles: [control-plane, etcd, load-balancer]\n  - name: cp2",
            ),
        ),
        // Roles.
        (
            "roles-missing",
            edited(
                "    address: 10.0.0.12\n    roles: [control-plane, etcd, load-balancer]\n",
                "    address: 10.0.0.12\n",
            ),
        ),
        ("roles-empty", edited("[control-plane, etcd, load-balancer]", "[]")),
        ("role-unknown", edited("etcd, load-balancer", "etcd, loadbalancer, master")),
        ("role-twice", edited("etcd, load-balancer", "etcd, etcd")),
        ("role-spare-and-more", edited("[control-plane, etcd, load-balancer]", "[spare, worker]")),
        ("roles-no-control-plane", hosts(3, "etcd, load-balancer")),
        ("roles-no-etcd", hosts(3, "control-plane, load-balancer")),
        ("roles-no-load-balancer", hosts(3, "control-plane, etcd")),
        ("roles-external-with-load-balancer", edited("vip: 10.0.0.100", "external: api.example.org:6443")),
        ("etcd-one", hosts(1, all)),
        ("etcd-two", hosts(2, all)),
        ("etcd-four", hosts(4, all)),
        ("etcd-nine", hosts(9, all)),
        ("load-balancer-alone", hosts(3, "control-plane, etcd").replacen("etcd]", "etcd, load-balancer]", 1)),
        ("labels-on-a-host-without-kubelet", with("  - {name: e1, address: 10.0.0.31, roles: [etcd], labels: {a: b}}")),
        // Endpoint.
        ("endpoint-missing", edited("endpoint:\n  vip: 10.0.0.100\n", "")),
        ("endpoint-both", edited("  vip: 10.0.0.100", "  vip: 10.0.0.100\n  external: api.example.org:6443")),
        ("endpoint-vip-and-local", edited("  vip: 10.0.0.100", "  vip: 10.0.0.100\n  local: true")),
        ("endpoint-local-without-a-name", edited("  vip: 10.0.0.100", "  local: true\n  interface: eth0")),
        ("preflight-unknown-check", with("preflight: {ignore: [time]}")),
        ("firewall-unknown", with("firewall: open")),
        ("hosting-unknown", with("hosting: dynamic")),
        ("endpoint-neither", edited("  vip: 10.0.0.100", "  port: 6443")),
        ("endpoint-vip-is-a-host", edited("10.0.0.100", "10.0.0.12")),
        ("endpoint-vip-in-pods", edited("10.0.0.100", "10.244.1.1")),
        ("endpoint-vip-in-services", edited("10.0.0.100", "10.96.0.1")),
        ("endpoint-vip-ipv6", edited("10.0.0.100", "fd00::100")),
        ("endpoint-vrid-out-of-range", edited("  vip: 10.0.0.100", "  vip: 10.0.0.100\n  vrid: 256")),
        ("endpoint-port-of-kubelet", edited("  vip: 10.0.0.100", "  vip: 10.0.0.100\n  port: 10250")),
        ("endpoint-ports-differ", edited("  vip: 10.0.0.100", "  external: api.example.org:443\n  port: 6443")),
        ("endpoint-external-bad-port", edited("  vip: 10.0.0.100", "  external: api.example.org:https")),
        ("endpoint-external-with-vrid", edited("  vip: 10.0.0.100", "  external: api.example.org\n  vrid: 3")),
        ("endpoint-bad-san", edited("  vip: 10.0.0.100", "  vip: 10.0.0.100\n  sans: [https://api]")),
        ("endpoint-bad-interface", edited("  vip: 10.0.0.100", "  vip: 10.0.0.100\n  interface: eth0 eth1")),
        // Ports.
        ("port-of-etcd", with("apiPort: 2379")),
        ("port-of-etcd-balancer", with("apiPort: 2381")),
        ("port-of-scheduler", with("apiPort: 10259")),
        ("port-node-range", with("apiPort: 30443")),
        ("port-out-of-range", with("apiPort: 65536")),
        ("port-ssh-zero", with("ssh: {port: 0}")),
        ("port-ssh-collides", with("ssh: {port: 6443}")),
        // Networks.
        ("network-host-in-pods", edited("10.0.0.12", "10.244.3.4")),
        ("network-host-in-services", edited("10.0.0.12", "10.100.0.4")),
        ("network-overlap", with("network: {pods: 10.96.0.0/16}")),
        ("network-pods-too-small-for-a-node", with("network: {pods: 10.244.0.0/25}")),
        ("network-pods-too-few-nodes", with("network: {pods: 10.244.0.0/23}")),
        ("network-services-too-large", with("network: {services: 10.96.0.0/11}")),
        ("network-services-too-small", with("network: {services: 10.96.0.0/27}")),
        ("network-host-bits", with("network: {pods: 10.244.3.0/16}")),
        ("network-not-a-range", with("network: {pods: 10.244.0.0}")),
        ("network-ipv6", with("network: {pods: \"fd00::/48\"}")),
        ("network-dual-stack", with("network: {pods: \"10.244.0.0/16,fd00::/48\"}")),
        ("network-unusable", with("network: {pods: 127.0.0.0/16}")),
        ("network-cni", with("network: {cni: flanel}")),
        ("network-kube-proxy", with("network: {kubeProxy: ipvs}")),
        ("network-mtu", with("network: {mtu: 100}")),
        // Nodes.
        ("label-key", edited("    address: 10.0.0.11", "    address: 10.0.0.11\n    labels: {\"a b\": c}")),
        ("label-value", edited("    address: 10.0.0.11", "    address: 10.0.0.11\n    labels: {a: \"b c\"}")),
        (
            "taint-without-effect",
            edited("    address: 10.0.0.11", "    address: 10.0.0.11\n    taints: [dedicated=gpu]"),
        ),
        (
            "taint-effect",
            edited("    address: 10.0.0.11", "    address: 10.0.0.11\n    taints: [\"dedicated=gpu:NoSchedul\"]"),
        ),
        ("taint-key", edited("    address: 10.0.0.11", "    address: 10.0.0.11\n    taints: [\"a b=c:NoExecute\"]")),
        ("zone-name", edited("    address: 10.0.0.11", "    address: 10.0.0.11\n    zone: rack a")),
        ("zone-majority", zoned("a", "a", "b")),
        ("zone-everything", zoned("a", "a", "a")),
        ("zone-missing", edited("    address: 10.0.0.11", "    address: 10.0.0.11\n    zone: a")),
        // SSH.
        ("ssh-user", with("ssh: {user: \"-oProxyCommand=x\"}")),
        (
            "ssh-fingerprint",
            edited("    address: 10.0.0.11", "    address: 10.0.0.11\n    ssh: {fingerprint: \"MD5:aa\"}"),
        ),
        ("ssh-host", edited("    address: 10.0.0.11", "    address: 10.0.0.11\n    ssh: {host: \"cp1 cp2\"}")),
        ("ssh-jump", with("ssh: {jump: \"bastion:99999\"}")),
        ("ssh-jump-chain", with("ssh: {jump: \"ops@a,,b\"}")),
        ("ssh-host-ca", with("ssh: {hostCA: ./ca.pub}")),
        ("ssh-sudo-password", with("ssh: {sudo: {password: secret}}")),
        ("ssh-identity-of-another-user", with("ssh: {identity: ~bob/.ssh/id}")),
        // The rest.
        ("etcd-data-dir", with("etcd: {dataDir: var/lib/etcd}")),
        ("etcd-quota", with("etcd: {quotaGiB: 65}")),
        ("etcd-quota-large", with("etcd: {quotaGiB: 16}")),
        ("security-level", with("controlPlane: {security: strict}")),
        ("jwt-without-issuer", with("authentication: {jwt: [{claimMappings: {}}]}")),
        ("mirror-url", with("registries: {mirrors: {registry.k8s.io: [mirror.example]}}")),
        ("mirror-registry", with("registries: {mirrors: {\"https://registry.k8s.io\": [https://mirror.example]}}")),
        ("proxy-url", with("proxy: {http: \"proxy:3128\"}")),
        ("snapshots-every", with("snapshots: {every: hourly}")),
        ("snapshots-drill", with("snapshots: {drill: monthly}")),
        ("healing-mode", with("healing: {mode: wach}")),
        ("healing-is-a-boolean", with("healing: true")),
        ("healing-unknown-key", with("healing: {mode: watch, after: {hostAway: 10m}}")),
        ("healing-too-early-and-too-late", with("healing: {mode: watch, after: {hostUnreachable: 5s, frozen: 1d}}")),
        ("healing-after-without-mode", with("healing: {after: {frozen: 30s}}")),
        ("healing-metrics", with("healing: {mode: watch, metrics: hosts}")),
        ("metrics-word", with("metrics: host")),
        ("healing-metrics-without-mode", with("healing: {metrics: host}")),
        ("snapshots-without-a-key", with("snapshots: {to: [\"s3://backup/lab\"]}")),
        ("snapshots-to-no-bucket", with("snapshots: {to: [\"s3://backup/../lab\"], s3: {credentials: ./login}}")),
        ("snapshots-to-a-url", with("snapshots: {to: [\"https://backup.example/lab\"]}")),
        (
            "snapshots-endpoint-with-a-path",
            with(
                "snapshots: {to: [\"s3://backup\"], s3: {endpoint: https://minio.example/backup, region: \"eu 1\", credentials: ./login}}",
            ),
        ),
        ("vault-secret-key", with("vault: {recipients: [AGE-SECRET-KEY-1AAAA]}")),
        ("vault-not-a-key", with("vault: {recipients: [age1short]}")),
        ("packages-from-elsewhere", with("loadBalancer: {packages: mirror}")),
        ("mirror-registry-with-star", with("registries: {mirrors: {\"*.example\": [https://mirror.example]}}")),
        ("registry-authority-of-no-registry", with("registries: {ca: {\"https://r.example\": ./ca.pem}}")),
        ("registry-login-of-no-registry", with("registries: {credentials: {\"r.example/team\": ./login}}")),
        (
            "registry-login-over-http",
            with(
                "registries: {mirrors: {docker.io: [\"http://m.example:5000/cache\"]}, credentials: {\"m.example:5000\": ./login}}",
            ),
        ),
        ("manifests-twice", with("manifests: [./a.yaml, ./a.yaml]")),
        ("pki-without-key", with("pki: {ca: {cert: ./ca.crt}}")),
        (
            "pki-one-key-for-two",
            with("pki:\n  ca: {cert: ./ca.crt, key: ./ca.key}\n  etcdCa: {cert: ./etcd.crt, key: ./ca.key}"),
        ),
        (
            "jwt-audiences",
            with(&jwt(
                "{issuer: {url: https://id.example, audiences: [a, b]}, claimMappings: {username: {claim: sub, prefix: x}}}",
            )),
        ),
        ("jwt-nothing", with(&jwt("{}"))),
        ("jwt-unknown-keys", with(&jwt("{issuer: {url: https://id.example, audience: [a]}, claimMapping: {}}"))),
        (
            "jwt-prefix",
            with(&jwt(
                "{issuer: {url: https://id.example, audiences: [a]}, claimMappings: {username: {claim: sub}, groups: {expression: claims.g, prefix: x}}}",
            )),
        ),
        (
            "jwt-claim-and-expression",
            with(&jwt(
                "{issuer: {url: https://id.example, audiences: [a]}, claimMappings: {username: {claim: sub, prefix: x, expression: claims.sub}}}",
            )),
        ),
        (
            "jwt-own-issuer",
            with(&jwt(
                "{issuer: {url: https://kubernetes.default.svc.cluster.local, audiences: [a]}, claimMappings: {username: {claim: sub, prefix: x}}}",
            )),
        ),
        (
            "jwt-url-with-password",
            with(&jwt(
                "{issuer: {url: \"https://me:secret@id.example\", audiences: [a]}, claimMappings: {username: {claim: sub, prefix: x}}}",
            )),
        ),
        (
            "jwt-authority-is-a-path",
            with(&jwt(
                "{issuer: {url: https://id.example, certificateAuthority: /etc/ca.pem, audiences: [a]}, claimMappings: {username: {claim: sub, prefix: x}}}",
            )),
        ),
        (
            "jwt-rules",
            with(&jwt(
                "{issuer: {url: https://id.example, audiences: [a]}, claimMappings: {username: {claim: sub, prefix: x}, extra: [{key: Role, valueExpression: claims.role}]}, claimValidationRules: [{claim: hd, message: no}], userValidationRules: [{message: no}]}",
            )),
        ),
        (
            "jwt-twice",
            with(
                "authentication:\n  jwt:\n    - &one {issuer: {url: https://id.example, audiences: [a]}, claimMappings: {username: {claim: sub, prefix: x}}}\n    - *one",
            ),
        ),
        (
            "extra-containerd-owned",
            with(
                "extra: {containerd: {config: {version: 2, plugins: {io.containerd.cri.v1.images: {registry: {config_path: /x}}}}}}",
            ),
        ),
        ("extra-containerd-null", with("extra: {containerd: {config: {debug: {level: ~}}}}")),
        (
            "extra-mounts-of-hactl",
            with("extra: {kube-apiserver: {mounts: [/etc/kubernetes, /etc/kubernetes/pki/x, /proc]}}"),
        ),
        ("extra-mounts-within-one-another", with("extra: {kube-scheduler: {mounts: [/srv/a, /srv/a/b]}}")),
        ("extra-flag-with-underscore", with("extra: {kube-apiserver: {args: {etcd_servers: x}}}")),
        ("extra-component", with("extra: {kube-api-server: {args: {v: 2}}}")),
        (
            "extra-owned-flags",
            with(
                "extra:\n  kube-apiserver: {args: {etcd-servers: x, tls-min-version: y, client-ca-file: z}}\n  etcd: {args: {data-dir: /x, initial-cluster-token: y}}",
            ),
        ),
        ("extra-flag-with-dashes", with("extra: {kube-scheduler: {args: {--v: 2}}}")),
        ("extra-owned-field", with("extra: {kubelet: {config: {clusterDNS: [10.0.0.1]}}}")),
        ("extra-mounts", with("extra: {kube-apiserver: {mounts: [etc]}}")),
        (
            "everything-at-once",
            edited("10.0.0.12", "10.0.0.11")
                .replace("name: cp3", "name: CP3")
                .replace("vip: 10.0.0.100", "vip: 10.0.0.13")
                + "apiPort: 10250\nversions: {kubernetes: 1.36}\nnetwork: {pods: 10.244.1.0/16}\n",
        ),
    ]
}

/// Nine levels of nine aliases: a billion values from a few hundred bytes.
fn bomb() -> String {
    let mut text = format!("{BASE}extra:\n  kubelet:\n    config:\n      a0: &a0 [x]\n");
    for n in 1..10 {
        let _ = writeln!(text, "      a{n}: &a{n} [{}]", vec![format!("*a{}", n - 1); 9].join(", "));
    }
    text
}

/// The report of each case under its name, by family: the first word of the name.
fn reports() -> BTreeMap<&'static str, String> {
    let mut cases = cases();
    cases.sort_by_key(|(name, _)| *name);
    let mut families: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, text) in cases {
        let family = name.split('-').next().unwrap();
        families.entry(family).or_default().push(format!("== {name}\n{}", shown(&text)));
    }
    families.into_iter().map(|(family, reports)| (family, reports.join("\n"))).collect()
}

#[test]
fn the_reports_of_bad_inventories_match_the_golden_file_of_their_family() {
    let differs = |(family, reports): (&'static str, String)| {
        std::panic::catch_unwind(|| golden(family, &reports)).is_err().then_some(family)
    };
    let failed: Vec<&str> = reports().into_iter().filter_map(differs).collect();
    assert!(
        failed.is_empty(),
        "the output differs from tests/inventory/golden/ for: {failed:?}\nif this is intended: UPDATE=1 cargo test --release --test inventory"
    );
}

#[test]
fn every_golden_file_belongs_to_a_family() {
    let known: BTreeSet<String> = reports().into_keys().map(|family| format!("{family}.txt")).collect();
    let there: BTreeSet<String> = std::fs::read_dir(super::root().join("tests/inventory/golden"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(known, there);
}

#[test]
fn every_error_names_its_place_quotes_the_line_and_shows_a_remedy() {
    for (name, text) in cases() {
        let Err(error) = super::parse(&text) else { continue };
        let report = error.report().unwrap_or_else(|| panic!("{name} is not a report"));
        assert!(!report.problems.is_empty(), "{name}");
        for problem in &report.problems {
            assert!(problem.place.line > 0 && problem.place.column > 0, "{name}: {problem:?}");
            assert!(!problem.what.is_empty() && !problem.remedy.is_empty(), "{name}: {problem:?}");
            let shown = problem.to_string();
            assert!(shown.starts_with(&format!("hactl.yaml:{}:{}: error: ", problem.place.line, problem.place.column)));
            assert!(shown.contains('^'), "{name}: {shown}");
        }
    }
}

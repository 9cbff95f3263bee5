//! CAs and keys that are rotated while clients read every 20 ms: no client is refused, and no data is lost.

use super::support::{Api, Probe, ReadLoop, Writer, wait_for};
use super::trials::unnoticed;
use super::{Scenario, World, in_one_line};
use std::path::Path;
use std::time::Duration;

/// Three control-plane hosts.
pub const FRONT_PROXY: &[Scenario] = &[Scenario {
    name: "the front-proxy CA is rotated in a run that is killed and one that resumes it, and nothing restarts",
    cut: true,
    run: front_proxy,
}];

/// Three control-plane hosts and a worker.
pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "the etcd CA is rotated, and certificates of the old CA are refused", cut: false, run: etcd },
    Scenario { name: "all Secrets are encrypted with another key, and no client notices", cut: false, run: encryption },
    Scenario {
        name: "the cluster CA is rotated, and pods that started before still trust the API servers",
        cut: false,
        run: cluster,
    },
    Scenario {
        name: "old tokens are valid until the old key is removed, and tokens in Secrets are replaced",
        cut: false,
        run: tokens,
    },
];

const HEAL: Duration = Duration::from_secs(180);
const ETCDCTL: &str = "sudo etcdctl --endpoints https://127.0.0.1:2379 --cacert /etc/etcd/pki/ca.crt";
const OWN: &str = "--cert /etc/etcd/pki/server.crt --key /etc/etcd/pki/server.key";

struct Watched {
    reading: ReadLoop,
    writer: Writer,
}

impl Watched {
    fn start(w: &World, name: &str) -> Self {
        Self { reading: w.api().reads(Duration::from_millis(20)), writer: Writer::start(&w.api(), name) }
    }
    /// A member that stops may fail a request in flight: it ends its streams under TLS without a message, and the API
    /// server answers with 500 (see `docs/limits.md`).
    fn nobody_noticed(self, w: &World) {
        let reads = self.reading.end();
        let (written, longest) = self.writer.end_within(Duration::from_secs(2));
        println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.2?}");
        let cut_by_etcd = |k: &Probe| {
            k.2.as_ref().is_some_and(|why| why.contains("unexpected HTTP status code received from server: 200 (OK)"))
        };
        let (cut, reads) = reads.partition(cut_by_etcd);
        println!("        {} of {} were cut off as a member stopped", cut.len(), reads.len() + cut.len());
        assert!(cut.len() <= 2, "{cut:?}");
        unnoticed(w, &reads);
    }
}

/// How many certificates a file of a host contains.
fn certificates(w: &World, host: &str, path: &str) -> usize {
    w.on(host, &format!("sudo grep -c BEGIN {path}")).trim().parse().unwrap_or(0)
}

/// When the processes of the control plane on cp1 started.
fn started(w: &World) -> String {
    w.on("cp1", "sudo pgrep -x 'etcd|kube-apiserver|kubelet' | sort | xargs -r ps -o lstart=,pid= -p")
}

/// The CAs that aggregated API servers find under this key.
fn aggregated(w: &World, key: &str) -> String {
    let (name, path) = ("extension-apiserver-authentication", format!("jsonpath={{.data.{key}}}"));
    w.hactl.kubectl(&["get", "configmap", "-n", "kube-system", name, "-o", &path]).ok().out
}

fn front_proxy(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    let path = "/etc/kubernetes/pki/front-proxy-ca.crt";
    w.hactl.run(&["certs", "rotate", "front-proxy"]).exits(2).says("front-proxy-ca");
    w.hactl.run(&["certs", "rotate", "front-proxy-ca", "--finish"]).exits(3).says("no rotation of it to finish");
    let plan = in_one_line(&w.hactl.run(&["certs", "rotate", "front-proxy-ca", "--dry-run"]).ok());
    assert!(plan.contains("would be rotated") && plan.contains("CA certificates"), "{plan}");
    assert_eq!(certificates(w, "cp1", path), 1, "nothing was changed");
    let (before, running) = (w.on("cp1", &format!("sudo cat {path}")), started(w));
    let state = w.hactl.state(w.lab.name());
    let copy = state.with_extension("copy");
    copy_of(&state, &copy);

    let watched = Watched::start(w, "w-front-proxy");
    let mut child =
        w.hactl.command(&["certs", "rotate", "front-proxy-ca", "--yes"]).spawn().expect("hactl can be started");
    wait_for("a host trusts both", Duration::from_secs(60), || certificates(w, "cp2", path) == 2);
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    w.hactl.run(&["certs", "list"]).ok().says("front-proxy-ca.next");
    let ran = w.hactl.run(&["certs", "rotate", "front-proxy-ca", "--yes"]).ok().says("the old one is gone");
    println!("        replaced in {:.1?}", ran.took);
    watched.nobody_noticed(w);

    let listed = in_one_line(&w.hactl.run(&["certs", "list"]).ok());
    assert!(!listed.contains("front-proxy-ca.") && !listed.contains("unknown"), "{listed}");
    for host in ["cp1", "cp2", "cp3"] {
        let after = w.on(host, &format!("sudo cat {path}"));
        assert!(after.contains("BEGIN") && after != before, "{host}");
        assert_eq!(certificates(w, host, path), 1, "{host}");
        let chain = format!("sudo openssl verify -CAfile {path} /etc/kubernetes/pki/front-proxy-client.crt");
        assert!(w.on(host, &chain).contains("OK"), "{host}");
    }
    assert_eq!(started(w), running, "nothing was restarted");
    let found = aggregated(w, "requestheader-client-ca-file");
    assert_eq!(
        found.split_whitespace().collect::<String>(),
        w.on("cp1", &format!("sudo cat {path}")).split_whitespace().collect::<String>(),
        "aggregated API servers find only the new CA"
    );
    w.hactl.up().ok().says("nothing to do");

    // An older copy of the state would give hosts certificates that nothing trusts any more.
    let away = state.with_extension("away");
    std::fs::rename(&state, &away).expect("the state can be moved");
    std::fs::rename(&copy, &state).expect("the copy can be put in its place");
    let refused = in_one_line(&w.hactl.up().exits(3));
    assert!(refused.contains("has newer CAs or keys of this cluster") && refused.contains("state pull"), "{refused}");
    // The newest state is not lost: the hosts have it, although no snapshot was accepted since.
    std::fs::remove_dir_all(&state).expect("it can be removed");
    let identity = away.join("identity.txt").display().to_string();
    super::authentic::pull(&w.hactl, &identity, &super::authentic::fingerprint(&away)).ok();
    w.hactl.up().ok();
    assert_eq!(w.on("cp1", &format!("sudo cat {path}")), w.on("cp2", &format!("sudo cat {path}")));
    assert_ne!(w.on("cp1", &format!("sudo cat {path}")), before, "the rotation is kept");
    std::fs::remove_dir_all(&away).expect("it can be removed");
}

/// The state directory as a backup has it.
fn copy_of(state: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").args([state, to]).status().expect("cp runs");
    assert!(copied.success());
}

fn etcd(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    w.on("cp1", "sudo sh -c 'mkdir -p /root/old && cp /etc/etcd/pki/server.* /root/old/'");
    let watched = Watched::start(w, "w-etcd-ca");
    let ran = w.hactl.run(&["certs", "rotate", "etcd-ca", "--yes"]).ok().says("the old one is gone");
    println!("        replaced in {:.1?}", ran.took);
    watched.nobody_noticed(w);

    let listed = in_one_line(&w.hactl.run(&["certs", "list"]).ok());
    assert!(!listed.contains("etcd-ca.") && !listed.contains("unknown"), "{listed}");
    for host in ["cp1", "cp2", "cp3"] {
        assert_eq!(certificates(w, host, "/etc/etcd/pki/ca.crt"), 1, "{host}");
        let said = w.on(host, &format!("{ETCDCTL} {OWN} endpoint health 2>&1"));
        assert!(said.contains("is healthy"), "{host}: {said}");
    }
    let said =
        w.on("cp1", &format!("{ETCDCTL} --cert /root/old/server.crt --key /root/old/server.key endpoint health 2>&1"));
    assert!(!said.contains("is healthy"), "certificates of the old CA are refused: {said}");
    w.hactl.up().ok().says("nothing to do");
    w.hactl.run(&["snapshot", "take"]).ok();
}

fn encryption(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    w.hactl.kubectl(&["create", "secret", "generic", "before", "--from-literal=word=swordfish"]).ok();
    let raw = || {
        w.on("cp1", &format!("{ETCDCTL} {OWN} get --prefix /registry/secrets | grep -ao 'k8s:enc:secretbox:v1:key[0-9]*' | sort | uniq -c"))
    };
    assert!(raw().contains("key1") && !raw().contains("key2"), "{}", raw());
    let watched = Watched::start(w, "w-encryption");
    let ran = w.hactl.run(&["certs", "rotate", "encryption", "--yes"]).ok().says("re-encrypted");
    println!("        replaced in {:.1?}", ran.took);
    watched.nobody_noticed(w);
    assert!(raw().contains("key2") && !raw().contains("key1"), "{}", raw());
    let word = w.hactl.kubectl(&["get", "secret", "before", "-o", "jsonpath={.data.word}"]).ok().out;
    assert_eq!(word, "c3dvcmRmaXNo");
    w.hactl.kubectl(&["delete", "secret", "before"]).ok();
    w.hactl.up().ok().says("nothing to do");
}

/// Whether a kubeconfig is accepted.
fn accepted(kubeconfig: &Path) -> bool {
    Api::new(kubeconfig, Duration::from_secs(10)).get("/api/v1/namespaces/default").is_ok()
}

/// When the pods of CoreDNS started, and how often they restarted.
fn resolvers(w: &World) -> String {
    let path = "jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].restartCount} {.status.startTime};{end}";
    w.hactl.kubectl(&["get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns", "-o", path]).ok().out
}

fn cluster(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    let state = w.hactl.state(w.lab.name());
    let old = state.join("kubeconfig-of-somebody");
    std::fs::copy(state.join("kubeconfig"), &old).expect("a copy");
    let before = resolvers(w);
    assert!(before.contains("coredns"), "{before}");

    let watched = Watched::start(w, "w-cluster-ca");
    let ran = w.hactl.run(&["certs", "rotate", "cluster-ca", "--yes"]).ok().says("still trusted").says("--finish");
    println!("        both are trusted in {:.1?}", ran.took);
    watched.nobody_noticed(w);
    assert!(accepted(&old), "existing kubeconfigs are valid until the old CA is removed");
    let listed = in_one_line(&w.hactl.run(&["certs", "list"]).ok());
    assert!(listed.contains("cluster-ca.old") && listed.contains("signing-ca.old"), "{listed}");
    w.hactl
        .run(&["certs", "rotate", "signing-ca"])
        .exits(3)
        .says("the rotation of cluster-ca, which includes it, is in progress");
    w.hactl.up().ok().says("nothing to do");

    let watched = Watched::start(w, "w-cluster-ca-2");
    let ran = w.hactl.run(&["certs", "rotate", "cluster-ca", "--finish", "--yes"]).ok().says("the old one is gone");
    println!("        the old one is gone in {:.1?}", ran.took);
    watched.nobody_noticed(w);
    assert!(!accepted(&old), "certificates of the old CA are refused");
    std::fs::remove_file(&old).expect("it was there");
    // The same command again changes nothing. A third CA is refused: clients that know only the first one could not
    // verify it.
    let again = in_one_line(&w.hactl.run(&["certs", "rotate", "cluster-ca", "--finish", "--yes"]).exits(3));
    assert!(again.contains("no rotation of it to finish"), "{again}");
    let third = in_one_line(&w.hactl.run(&["certs", "rotate", "cluster-ca", "--yes"]).exits(3));
    assert!(third.contains("may trust only the previous CA"), "{third}");
    let found = aggregated(w, "client-ca-file");
    assert_eq!(found.matches("BEGIN").count(), 2, "aggregated API servers find the CA and the signing CA: {found}");

    // Existing pods know only the old CA, and the API server presents them its signature of the new one.
    assert_eq!(resolvers(w), before, "no pod was restarted");
    w.hactl.kubectl(&["create", "service", "clusterip", "new-after", "--clusterip=None", "--tcp=80"]).ok();
    w.hactl.kubectl(&["delete", "service", "new-after"]).ok();
    let at = "kubernetes.default.svc.cluster.local";
    w.hactl.kubectl(&["create", "service", "externalname", "later", "--external-name", at]).ok();
    // Prints the number of answers to a query for its CNAME.
    let queries = r#"perl -MIO::Socket::INET -e '
        my $s = IO::Socket::INET->new(PeerAddr => "10.96.0.10:53", Proto => "udp");
        my $name = join("", map { pack("C/a*", $_) } split(/\./, "later.default.svc.cluster.local")) . chr(0);
        print $s pack("n6", 7, 0x100, 1, 0, 0, 0) . $name . pack("nn", 5, 1);
        alarm 3; recv($s, my $said, 512, 0); print((unpack("n6", $said))[3]);'"#;
    wait_for("CoreDNS serves a new Service", Duration::from_secs(120), || w.on("cp1", queries).trim() == "1");
    w.hactl.kubectl(&["delete", "service", "later"]).ok();

    let listed = in_one_line(&w.hactl.run(&["certs", "list"]).ok());
    assert!(!listed.contains(".old") && !listed.contains("unknown"), "{listed}");
    let proxy =
        w.hactl.kubectl(&["get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-proxy", "-o", "name"]).ok().out;
    for pod in proxy.lines() {
        w.hactl.kubectl(&["logs", "-n", "kube-system", pod, "--tail=1"]).ok();
    }
    w.hactl.up().ok().says("nothing to do");
    w.healthy(HEAL);
}

fn tokens(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    w.hactl.kubectl(&["create", "serviceaccount", "robot"]).ok();
    let secret = w.lab.dir().join("token.yaml");
    let text = "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/service-account-token\nmetadata:\n  name: robot\n  annotations: {kubernetes.io/service-account.name: robot}\n";
    std::fs::write(&secret, text).expect("a file");
    w.hactl.kubectl(&["apply", "-f", &secret.display().to_string()]).ok();
    let held = || w.hactl.kubectl(&["get", "secret", "robot", "-o", "jsonpath={.data.token}"]).ok().out;
    wait_for("it has a token", Duration::from_secs(60), || !held().is_empty());
    let decoded = |packed: &str| w.on("cp1", &format!("echo {packed} | base64 -d"));
    let (before, asked) = (decoded(&held()), w.hactl.kubectl(&["create", "token", "robot"]).ok().out.trim().to_owned());
    let code = |token: &str| {
        let at = format!("https://{}:6443/apis/authentication.k8s.io/v1/selfsubjectreviews", w.lab.vip());
        let body = "'{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"SelfSubjectReview\"}'";
        w.on("cp1", &format!("curl -sk -o /dev/null -w '%{{http_code}}' -X POST -H 'Content-Type: application/json' -H 'Authorization: Bearer {token}' -d {body} {at}"))
    };
    assert_eq!((code(&before), code(&asked)), ("201".to_owned(), "201".to_owned()));

    let watched = Watched::start(w, "w-tokens");
    let ran = w.hactl.run(&["certs", "rotate", "service-account", "--yes"]).ok().says("still trusted");
    println!("        both are trusted in {:.1?}", ran.took);
    watched.nobody_noticed(w);
    assert_eq!((code(&before), code(&asked)), ("201".to_owned(), "201".to_owned()), "old tokens are valid");
    w.hactl.run(&["certs", "rotate", "service-account", "--finish", "--yes"]).exits(3).says("--at-once");

    let ran = w.hactl.run(&["certs", "rotate", "service-account", "--finish", "--at-once", "--yes"]).ok();
    assert!(in_one_line(&ran).contains("Secret default/robot gets another token"), "{}", ran.all());
    assert_eq!((code(&before), code(&asked)), ("401".to_owned(), "401".to_owned()), "old tokens are refused");
    wait_for("the Secret has another token", Duration::from_secs(60), || {
        let now = held();
        !now.is_empty() && code(&decoded(&now)) == "201"
    });
    w.hactl.kubectl(&["delete", "serviceaccount", "robot"]).ok();
    w.healthy(HEAL);
    w.hactl.up().ok().says("nothing to do");
}

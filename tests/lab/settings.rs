//! Settings that are changed on a running cluster, one after the other: each takes effect, and is undone when it is
//! removed.

use super::support::{Hactl, Ran, Writer, wait_for};
use super::tiny_tls::{Server, TestCa, TokenIssuer, registry_pages};
use super::{Scenario, World};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a cluster is bootstrapped with the user's own CA and keeps it", cut: false, run: own_ca },
    Scenario {
        name: "labels and taints are set and removed, and those of others stay",
        cut: false,
        run: labels_and_taints,
    },
    Scenario {
        name: "another SAN reissues the API servers' certificates and restarts no API server",
        cut: false,
        run: sans,
    },
    Scenario { name: "the user's manifests are applied, repaired and pruned", cut: false, run: manifests },
    Scenario { name: "a mirror with its own CA and a password serves an image", cut: false, run: mirror },
    Scenario { name: "a token of an external issuer is accepted", cut: false, run: jwt },
    Scenario { name: "extra mounts and flags reach the static pods", cut: false, run: extra },
    Scenario { name: "containerd, API servers and controller managers use the proxy", cut: false, run: proxy },
    Scenario {
        name: "a new etcd quota restarts members, and another data directory is refused",
        cut: false,
        run: etcd,
    },
    Scenario { name: "interfaces and new pods get the MTU", cut: false, run: mtu },
    Scenario { name: "kube-proxy can be switched off and on again", cut: false, run: kube_proxy },
];

const NODES: [&str; 4] = ["cp1", "cp2", "cp3", "w1"];
const CONTROL: [&str; 3] = ["cp1", "cp2", "cp3"];

fn folder(w: &World) -> PathBuf {
    w.lab.dir().to_owned()
}

/// The lab's inventory with the CA of the bootstrap, changed by `edit`. It is always the same file, as people have it.
fn set(w: &World, edit: impl Fn(String) -> String) -> Hactl {
    let base = fs::read_to_string(w.lab.inventory()).expect("readable");
    let with_ca = format!("{base}pki: {{ca: {{cert: ./own-ca.crt, key: ./own-ca.key}}}}\n");
    let path = folder(w).join("settings.yaml");
    fs::write(&path, edit(with_ca)).expect("writable");
    Hactl::new(path)
}

fn with(w: &World, more: &str) -> Hactl {
    set(w, |text| format!("{text}{more}\n"))
}

/// The inventory without further settings.
fn plain(w: &World) -> Hactl {
    set(w, |text| text)
}

fn converged(hactl: &Hactl) -> Ran {
    hactl.up().ok();
    hactl.up().ok().says("nothing to do")
}

/// The plan with its reasons, which are not wrapped.
fn why(hactl: &Hactl) -> Ran {
    hactl.run(&["plan", "-o", "json"]).ok()
}

fn put(w: &World, name: &str, text: &str) {
    let path = folder(w).join(name);
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
}

/// When the processes of a program started, on these hosts: the text stays the same while none restarts.
fn started(w: &World, program: &str, hosts: &[&str]) -> String {
    let one = |host: &&str| w.on(host, &format!("pgrep -x {program} | xargs -r ps -o pid=,lstart= -p"));
    hosts.iter().map(one).collect()
}

fn own_ca(w: &World) {
    let own = TestCa::new("the lab's own CA");
    put(w, "own-ca.crt", &own.cert);
    put(w, "own-ca.key", &own.key());
    let hactl = plain(w);
    hactl.up().ok();
    let trusted = w.on("cp1", "sudo cat /etc/kubernetes/pki/ca.crt");
    assert_eq!(trusted.trim(), own.cert.trim(), "hosts trust the user's CA");
    let chain = "sudo openssl verify -CAfile /etc/kubernetes/pki/ca.crt /etc/kubernetes/pki/apiserver.crt /etc/kubernetes/pki/observer.crt";
    assert!(w.on("cp1", chain).contains("apiserver.crt: OK"), "{}", w.on("cp1", chain));
    let key = w.on(
        "cp1",
        "sudo grep -rlF \"$(sudo sed -n 2p /etc/kubernetes/pki/ca.crt)\" /etc --include='*.key' 2>/dev/null",
    );
    assert_eq!(key.trim(), "", "no CA key is on a host");
    fs::remove_file(folder(w).join("own-ca.key")).expect("the file can be removed");
    hactl.up().ok().says("nothing to do");
    let another = TestCa::new("another CA");
    put(w, "own-ca.crt", &another.cert);
    hactl.up().exits(3).says("the CAs and keys of a running cluster cannot be replaced").says("own-ca.crt");
    put(w, "own-ca.crt", &own.cert);
    hactl.up().ok().says("nothing to do");
}

fn labels_and_taints(w: &World) {
    plain(w).kubectl(&["taint", "node", "w1", "by-hand=yes:NoSchedule"]).ok();
    plain(w).kubectl(&["label", "node", "w1", "by-hand=yes"]).ok();
    let kubelets = started(w, "kubelet", &NODES);
    let more = "labels: {disk: nvme, example.org/rack: r1}\n    taints: [\"gpu=yes:NoSchedule\", \"slow:PreferNoSchedule\"]\n    roles: [worker]";
    let hactl = set(w, |t| t.replace("roles: [worker]", more));
    hactl.run(&["plan"]).ok().says("Nothing that serves is disturbed");
    converged(&hactl);
    let node = || -> Value {
        serde_json::from_str(&hactl.kubectl(&["get", "node", "w1", "-o", "json"]).ok().out).expect("a Node")
    };
    let taints = |node: &Value| -> Vec<String> {
        let all = node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
        all.iter()
            .map(|t| format!("{}={}", t["key"].as_str().unwrap_or(""), t["value"].as_str().unwrap_or("")))
            .collect()
    };
    let live = node();
    assert_eq!(live["metadata"]["labels"]["disk"], "nvme");
    assert_eq!(live["metadata"]["labels"]["example.org/rack"], "r1");
    for taint in ["gpu=yes", "slow=", "by-hand=yes"] {
        assert!(taints(&live).contains(&taint.to_owned()), "{:?}", taints(&live));
    }
    // Changed by hand against the inventory: `up` restores them.
    hactl.kubectl(&["label", "node", "w1", "disk=hdd", "--overwrite"]).ok();
    hactl.kubectl(&["taint", "node", "w1", "gpu=yes:NoSchedule-"]).ok();
    hactl.run(&["plan", "--exit-code"]).exits(5).says("Node w1");
    converged(&hactl);
    assert_eq!(node()["metadata"]["labels"]["disk"], "nvme");
    // Another value, and some settings removed.
    let fewer = "labels: {disk: ssd}\n    taints: [\"gpu=no:NoSchedule\"]\n    roles: [worker]";
    converged(&set(w, |t| t.replace("roles: [worker]", fewer)));
    let live = node();
    assert_eq!(live["metadata"]["labels"]["disk"], "ssd");
    assert_eq!(live["metadata"]["labels"].get("example.org/rack"), None);
    let left = taints(&live);
    assert!(left.contains(&"gpu=no".to_owned()) && !left.iter().any(|t| t.starts_with("slow")), "{left:?}");
    // All settings removed, on a Node that is cordoned meanwhile.
    hactl.kubectl(&["cordon", "w1"]).ok();
    converged(&plain(w));
    let live = node();
    let left = taints(&live);
    assert!(left.contains(&"by-hand=yes".to_owned()) && !left.iter().any(|t| t.starts_with("gpu")), "{left:?}");
    assert_eq!(live["spec"]["unschedulable"], true, "the inventory does not control cordoning");
    assert_eq!(live["metadata"]["labels"]["by-hand"], "yes");
    assert_eq!(live["metadata"]["labels"].get("disk"), None);
    assert_eq!(started(w, "kubelet", &NODES), kubelets, "no kubelet was restarted");
    hactl.kubectl(&["uncordon", "w1"]).ok();
    hactl.kubectl(&["taint", "node", "w1", "by-hand-"]).ok();
    hactl.kubectl(&["label", "node", "w1", "by-hand-"]).ok();
}

fn sans(w: &World) {
    let servers = started(w, "kube-apiserver", &CONTROL);
    let hactl = set(w, |t| t.replacen("endpoint:\n", "endpoint:\n  sans: [api.settings.example]\n", 1));
    hactl.run(&["plan"]).ok().says("issue 1 certificate").says("Nothing that serves is disturbed");
    converged(&hactl);
    for host in CONTROL {
        let ask = "curl -s -o /dev/null -w '%{http_code}' --cacert /etc/kubernetes/pki/ca.crt --connect-to \
                   api.settings.example:6443:$(hostname -I | tr ' ' '\\n' | grep '^10\\.88' | head -1):6443 \
                   https://api.settings.example:6443/readyz";
        wait_for(&format!("{host} answers by its new name"), Duration::from_secs(90), || w.on(host, ask) == "200");
    }
    assert_eq!(started(w, "kube-apiserver", &CONTROL), servers, "no API server was restarted");
    converged(&plain(w));
}

const DEFINITION: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.settings.example}
spec:
  group: settings.example
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties: {size: {type: integer}, colour: {type: string, default: red}}
";

fn manifests(w: &World) {
    // The order in the files is not the one in which they can be applied.
    put(
        w,
        "addons/a-widget.yaml",
        "apiVersion: settings.example/v1\nkind: Widget\nmetadata: {name: one, namespace: shop}\nspec: {size: 3}\n",
    );
    let objects = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: words, namespace: shop}\ndata: {a: \"1\", b: \"2\"}\n---\n\
                   apiVersion: v1\nkind: Secret\nmetadata: {name: hidden, namespace: shop}\nstringData: {word: abracadabra}\n---\n\
                   apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: idle, namespace: shop}\nspec:\n  replicas: 0\n  \
                   selector: {matchLabels: {app: idle}}\n  template:\n    metadata: {labels: {app: idle}}\n    \
                   spec: {containers: [{name: x, image: example.org/none, resources: {requests: {cpu: 0.1, memory: 1024Mi}}}]}\n";
    put(w, "addons/objects.yml", objects);
    put(w, "addons/z/definition.yaml", DEFINITION);
    put(
        w,
        "addons/z/shop.json",
        "{\"apiVersion\": \"v1\", \"kind\": \"Namespace\", \"metadata\": {\"name\": \"shop\"}}",
    );
    let hactl = with(w, "manifests: [./addons/]");
    hactl.run(&["inventory", "check"]).ok();
    why(&hactl).says("apply manifests (6 objects)").says("Widget shop/one: it does not exist");
    hactl.up().ok();
    let again = (0..3).map(|_| hactl.up().ok().says("nothing to do").took).min().expect("three runs");
    assert!(again < Duration::from_millis(2500), "a converged run with manifests took {again:?}");
    assert!(!why(&hactl).all().contains("abracadabra"));
    let value =
        |path: &str| hactl.kubectl(&["-n", "shop", "get", "configmap", "words", "-o", &format!("jsonpath={path}")]).out;
    assert_eq!(value("{.data.a}"), "1");
    let colour = hactl.kubectl(&["-n", "shop", "get", "widget", "one", "-o", "jsonpath={.spec.colour}"]).ok().out;
    assert_eq!(colour, "red", "a default of the server is not a difference");
    // Edited and deleted by hand.
    hactl
        .kubectl(&[
            "-n",
            "shop",
            "patch",
            "configmap",
            "words",
            "--type=merge",
            "-p",
            "{\"data\":{\"a\":\"x\",\"c\":\"theirs\"}}",
        ])
        .ok();
    hactl.kubectl(&["-n", "shop", "delete", "secret", "hidden"]).ok();
    why(&hactl).says("/data/a differs").says("Secret shop/hidden: it does not exist");
    converged(&hactl);
    assert_eq!((value("{.data.a}").as_str(), value("{.data.c}").as_str()), ("1", "theirs"));
    // A field that is removed from a manifest is removed from the object.
    put(w, "addons/objects.yml", &objects.replace("data: {a: \"1\", b: \"2\"}", "data: {a: \"1\"}"));
    why(&hactl).says("ConfigMap shop/words: its manifest has changed");
    converged(&hactl);
    assert_eq!((value("{.data.b}").as_str(), value("{.data.c}").as_str()), ("", "theirs"));
    // An object of hactl's own is refused, with its line.
    put(w, "addons/own.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns, namespace: kube-system}\n");
    hactl.up().exits(2).says("own.yaml:1").says("hactl's own coredns");
    fs::remove_file(folder(w).join("addons/own.yaml")).expect("removable");
    // Objects are deleted with consent only; a namespace with other objects stays.
    hactl.kubectl(&["-n", "shop", "create", "configmap", "theirs"]).ok();
    fs::remove_file(folder(w).join("addons/a-widget.yaml")).expect("removable");
    hactl.run(&["up"]).exits(3).says("Widget shop/one");
    converged(&hactl);
    hactl.kubectl(&["-n", "shop", "get", "widget", "one"]).exits(1);
    let none = plain(w);
    why(&none).says("Namespace shop stays: it still holds ConfigMap theirs").says("delete ");
    converged(&none);
    none.kubectl(&["-n", "shop", "get", "configmap", "theirs"]).ok();
    for gone in ["configmap/words", "secret/hidden", "deployment/idle"] {
        none.kubectl(&["-n", "shop", "get", gone]).exits(1);
    }
    none.kubectl(&["get", "crd", "widgets.settings.example"]).exits(1);
    none.kubectl(&["delete", "namespace", "shop", "--wait=false"]).ok();
}

fn mirror(w: &World) {
    use hactl::component::{Bundle, default_store};
    let bundle = Bundle::open(&default_store(), hactl::inventory::DEFAULT_KUBERNETES).expect("the bundle");
    let pause = bundle.parts().into_iter().find(|part| part.name == "pause").expect("it has pause");
    let packed = fs::read(bundle.blob(&pause.digest).expect("its blob")).expect("readable");
    let archive = zstd::decode_all(packed.as_slice()).expect("zstd");
    let ca = TestCa::new("the mirror's CA");
    let server = Server::start(w.gateway(), &ca, |_| registry_pages(&archive), Some("me:hunter2"));
    let at = format!("{}:{}", w.gateway(), server.port);
    put(w, "mirror-ca.pem", &ca.cert);
    put(w, "mirror-login", "me:hunter2\n");
    let runtimes = started(w, "containerd", &NODES);
    let settings = format!(
        "registries:\n  mirrors: {{mirrored.example: [\"https://{at}\"]}}\n  ca: {{\"{at}\": ./mirror-ca.pem}}\n  \
         credentials: {{\"{at}\": ./mirror-login}}"
    );
    let hactl = with(w, &settings);
    hactl.run(&["plan"]).ok().says("registry settings").says("Nothing that serves is disturbed");
    converged(&hactl);
    let pod = |name: &str| {
        let run = ["run", name, "--image=mirrored.example/t/pause:1", "--image-pull-policy=Always", "--restart=Never"];
        hactl.kubectl(&[run.as_slice(), &["--overrides={\"spec\":{\"nodeName\":\"w1\"}}"]].concat()).ok();
    };
    pod("mirrored");
    let phase = ["get", "pod", "mirrored", "-o", "jsonpath={.status.phase}"];
    wait_for("the mirrored image runs", Duration::from_secs(90), || hactl.kubectl(&phase).out == "Running");
    let asked = server.asked();
    assert!(asked.iter().any(|a| a.contains("/manifests/1 200")), "{asked:?}");
    // Only root can read the password, and it is stored nowhere else.
    let modes = w.on("w1", "sudo stat -c '%a %U' /etc/containerd/certs.d/mirrored.example/hosts.toml");
    assert_eq!(modes, "600 root\n");
    let secret = "aHVudGVyMg"; // hunter2, wherever base64 may begin
    let state = hactl.state(w.lab.name());
    let said = format!("{}{}", hactl.run(&["plan", "-v", "-v"]).all(), read_all(&state.join("runs")));
    assert!(
        !said.contains("hunter2") && !said.contains(secret) && !said.contains("bWU6aHVudGVyMg"),
        "a password was printed"
    );
    // A wrong password is refused by the mirror.
    put(w, "mirror-login", "me:wrong\n");
    converged(&hactl);
    pod("refused");
    wait_for("the mirror refuses a wrong password", Duration::from_secs(90), || {
        server.asked().iter().any(|a| a.contains("/manifests/1 401"))
    });
    hactl.kubectl(&["delete", "pod", "mirrored", "refused", "--grace-period=1"]).ok();
    converged(&plain(w));
    let left = w.on("w1", "sudo find /etc/containerd/certs.d -type f");
    assert_eq!(left, "", "no file of the removed settings is left");
    assert_eq!(started(w, "containerd", &NODES), runtimes, "no containerd was restarted");
}

fn read_all(folder: &std::path::Path) -> String {
    let files = fs::read_dir(folder).expect("the logs of runs");
    files.flatten().map(|f| fs::read_to_string(f.path()).unwrap_or_default()).collect()
}

fn jwt(w: &World) {
    let ca = TestCa::new("the issuer's CA");
    let issuer = TokenIssuer::new();
    let url = |port: u16| format!("https://{}:{port}", w.gateway());
    let server = Server::start(w.gateway(), &ca, |port| issuer.pages(&url(port)), None);
    let url = url(server.port);
    let indented: String = ca.cert.lines().map(|line| format!("          {line}\n")).collect();
    let settings = format!(
        "authentication:\n  jwt:\n    - issuer:\n        url: {url}\n        audiences: [the-lab]\n        certificateAuthority: |\n{indented}      \
         claimMappings:\n        username: {{claim: sub, prefix: \"lab:\"}}\n        groups: {{claim: groups, prefix: \"lab:\"}}\n"
    );
    let hactl = with(w, &settings);
    hactl.run(&["plan"]).ok().says("only while the cluster can do without");
    converged(&hactl);
    let whoami = |token: &str| {
        let ask = format!(
            "curl -s --cacert /etc/kubernetes/pki/ca.crt -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' \
             -d '{{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"SelfSubjectReview\"}}' \
             https://{}:6443/apis/authentication.k8s.io/v1/selfsubjectreviews",
            w.lab.vip()
        );
        w.on("cp1", &ask)
    };
    let token = issuer.token(&url, "the-lab", "alice");
    wait_for("the token is accepted", Duration::from_secs(60), || whoami(&token).contains("\"lab:alice\""));
    assert!(whoami(&token).contains("lab:testers"), "{}", whoami(&token));
    // An answer may be late, but an accepted token never gets this one.
    let refused = |what: &str, token: &str| {
        wait_for(what, Duration::from_secs(30), || whoami(token).contains("Unauthorized"));
    };
    refused("another audience is refused", &issuer.token(&url, "another", "alice"));
    refused("another issuer's key is refused", &TokenIssuer::new().token(&url, "the-lab", "alice"));
    converged(&plain(w));
    refused("without the setting the token is refused", &token);
}

fn extra(w: &World) {
    let own = |t: String| {
        t.replace("extra: {", "extra: {kube-apiserver: {args: {event-ttl: 2h}, mounts: [/etc/kubernetes-extra]}, ")
    };
    let hactl = set(w, own);
    hactl.up().exits(3).says("/etc/kubernetes-extra").says("cp3");
    for host in CONTROL {
        w.on(host, "sudo sh -c 'mkdir -p /etc/kubernetes-extra; echo hello > /etc/kubernetes-extra/word'");
    }
    converged(&hactl);
    for host in CONTROL {
        let inside = w.on(host, "sudo sh -c 'p=$(pgrep -x kube-apiserver); tr \"\\0\" \"\\n\" < /proc/$p/cmdline | grep event-ttl; cat /proc/$p/root/etc/kubernetes-extra/word'");
        assert_eq!(inside, "--event-ttl=2h\nhello\n", "{host}");
    }
    set(w, |t| t.replace("extra: {", "extra: {kube-apiserver: {args: {etcd-servers: x}}, "))
        .up()
        .exits(2)
        .says("--etcd-servers itself");
    converged(&plain(w));
}

/// A variable of a program's environment on a host.
fn variable(w: &World, host: &str, program: &str, name: &str) -> String {
    // The kernel keeps 15 letters of a program's name.
    let program = program.get(..15).unwrap_or(program);
    let ask = format!("sudo sh -c 'tr \"\\0\" \"\\n\" < /proc/$(pgrep -xo {program})/environ | grep \"^{name}=\"'");
    w.on(host, &ask).trim().to_owned()
}

fn proxy(w: &World) {
    let url = format!("http://{}:9", w.gateway());
    converged(&with(w, &format!("proxy: {{https: \"{url}\", noProxy: [.inside.example]}}")));
    for (host, program) in
        [("w1", "containerd"), ("cp1", "containerd"), ("cp2", "kube-apiserver"), ("cp3", "kube-controller-manager")]
    {
        assert_eq!(variable(w, host, program, "HTTPS_PROXY"), format!("HTTPS_PROXY={url}"), "{program} on {host}");
        let exempt = variable(w, host, program, "NO_PROXY");
        for inside in [".svc", ".inside.example", "10.96.0.0/12", &w.lab.vip().to_string()] {
            assert!(exempt.contains(inside), "{program} on {host}: {exempt}");
        }
    }
    converged(&plain(w));
    assert_eq!(variable(w, "w1", "containerd", "HTTPS_PROXY"), "");
}

fn etcd(w: &World) {
    let smaller = with(w, "etcd: {quotaGiB: 2}");
    let plan = smaller.run(&["plan"]).ok();
    assert_eq!(plan.out.matches("restart etcd.service").count(), 3, "{}", plan.all());
    smaller.run(&["up"]).exits(3).says("restart etcd.service");
    let api = super::support::Api::new(&smaller.state(w.lab.name()).join("kubeconfig"), Duration::from_secs(10));
    let writer = Writer::start(&api, "quota");
    converged(&smaller);
    let (written, longest) = writer.end();
    println!("        {written} writes while etcd restarted, longest pause {longest:?}");
    assert!(longest < Duration::from_secs(15), "no write was acknowledged for {longest:?}");
    for host in CONTROL {
        assert_eq!(
            variable(w, host, "etcd", "ETCD_QUOTA_BACKEND_BYTES"),
            "ETCD_QUOTA_BACKEND_BYTES=2147483648",
            "{host}"
        );
    }
    let members = started(w, "etcd", &CONTROL);
    with(w, "etcd: {quotaGiB: 2, dataDir: /srv/etcd}")
        .up()
        .exits(3)
        .says("it is in /var/lib/etcd")
        .says("/srv/etcd")
        .says("abandoned");
    assert_eq!(started(w, "etcd", &CONTROL), members, "nothing was touched");
    converged(&plain(w));
}

fn mtu(w: &World) {
    let hactl = with(w, "network: {mtu: 1300}");
    converged(&hactl);
    for host in NODES {
        let device = || w.on(host, "cat /sys/class/net/flannel.1/mtu").trim().to_owned();
        wait_for(&format!("flannel.1 on {host} has its MTU"), Duration::from_secs(60), || device() == "1300");
    }
    let image =
        hactl.kubectl(&["-n", "kube-system", "get", "deployment", "coredns", "-o", "jsonpath={..image}"]).ok().out;
    let run = ["run", "small", "--image", image.trim(), "--image-pull-policy=IfNotPresent", "--restart=Never"];
    hactl.kubectl(&[run.as_slice(), &["--overrides={\"spec\":{\"nodeName\":\"w1\"}}"]].concat()).ok();
    let ends = "for d in $(ls /sys/class/net | grep ^veth); do cat /sys/class/net/$d/mtu; done";
    wait_for("a new pod has the MTU", Duration::from_secs(60), || w.on("w1", ends).lines().any(|l| l == "1300"));
    hactl.kubectl(&["delete", "pod", "small", "--grace-period=0", "--force"]).ok();
    converged(&plain(w));
}

fn kube_proxy(w: &World) {
    let tables = |host: &str| w.on(host, "sudo nft list tables");
    assert!(tables("w1").contains("kube-proxy"), "{}", tables("w1"));
    let off = with(w, "network: {kubeProxy: none}");
    off.run(&["up"]).exits(3).says("DaemonSet kube-system/kube-proxy");
    converged(&off);
    off.kubectl(&["-n", "kube-system", "get", "daemonset", "kube-proxy"]).exits(1);
    for host in NODES {
        assert!(!tables(host).contains("kube-proxy"), "{host}: {}", tables(host));
    }
    let on = plain(w);
    converged(&on);
    assert!(tables("w1").contains("kube-proxy"), "{}", tables("w1"));
    on.run(&["status"]).ok();
}

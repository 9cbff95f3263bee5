//! A cluster from bare hosts, its properties, a second run, and its end.

use super::{Scenario, World};
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a plan for bare hosts shows steps and changes nothing", cut: true, run: plan_changes_nothing },
    Scenario { name: "up turns three bare hosts into a healthy cluster", cut: true, run: from_bare },
    Scenario { name: "a second up has nothing to do and takes less than 2.5 s", cut: true, run: converged },
    Scenario { name: "up restores a deleted object and an edited file", cut: true, run: drift },
    Scenario {
        name: "the administrator is subject to RBAC, and etcd stores Secrets encrypted",
        cut: true,
        run: security,
    },
    Scenario { name: "kubelet serving certificates are approved, so logs work", cut: true, run: kubelet_serving },
];

pub const LAST: &[Scenario] =
    &[Scenario { name: "down --wipe leaves bare hosts that can become a cluster again", cut: true, run: down_and_up }];

fn plan_changes_nothing(w: &World) {
    w.hactl.run(&["plan", "--exit-code"]).exits(5).says("etcd").says("cp3");
    let left = w.on("cp1", "ls /etc/kubernetes /var/lib/hactl/cluster.json 2>/dev/null");
    assert_eq!(left, "", "a plan leaves nothing of a cluster on a host");
    assert!(!w.hactl.state(w.lab.name()).exists(), "a plan makes no keys");
    w.hactl.run(&["status"]).exits(7);
}

fn from_bare(w: &World) {
    w.hactl.up().ok().says("export KUBECONFIG=");
    let nodes = w.hactl.kubectl(&["get", "nodes", "--no-headers"]).ok().out;
    let ready = nodes.lines().filter(|l| l.split_whitespace().nth(1) == Some("Ready")).count();
    assert_eq!(ready, 3, "three Ready nodes: {nodes}");
    w.hactl.run(&["status"]).ok();
}

fn converged(w: &World) {
    w.hactl.up().ok().says("nothing to do");
    w.hactl.run(&["plan", "--exit-code"]).exits(0);
    let quickest = (0..6).map(|_| w.hactl.up().ok().took).min().expect("six runs");
    assert!(quickest < Duration::from_millis(2500), "a converged run took {quickest:?}");
}

fn drift(w: &World) {
    w.hactl.kubectl(&["-n", "kube-system", "delete", "deployment", "coredns"]).ok();
    w.on("cp2", "sudo sh -c 'echo oops >> /etc/haproxy/haproxy.cfg'");
    w.hactl.run(&["plan", "--exit-code"]).exits(5).says("coredns").says("load balancer");
    w.hactl.up().ok();
    w.hactl.kubectl(&["-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=60s"]).ok();
    assert!(!w.on("cp2", "sudo cat /etc/haproxy/haproxy.cfg").contains("oops"));
    w.hactl.up().ok().says("nothing to do");
}

fn security(w: &World) {
    let user = w.hactl.kubectl(&["auth", "whoami", "-o", "json"]).ok().out;
    assert!(user.contains("hactl:administrators") && !user.contains("system:masters"), "{user}");
    w.hactl.run(&["kubeconfig", "--break-glass"]).ok().says("client-certificate-data").says("8 hours");
    let secret = "create secret generic canary-test --from-literal=word=plaintext-canary";
    w.hactl.kubectl(&secret.split(' ').collect::<Vec<_>>()).ok();
    let etcdctl = "sudo etcdctl --endpoints=https://127.0.0.1:2379 --cacert=/etc/etcd/pki/ca.crt --cert=/etc/etcd/pki/observer.crt \
                   --key=/etc/etcd/pki/observer.key get /registry/secrets/default/canary-test";
    let raw = w.on("cp1", etcdctl);
    assert!(
        raw.contains("k8s:enc:secretbox") && !raw.contains("plaintext-canary"),
        "the Secret as etcd stores it: {raw}"
    );
    let anonymous =
        w.on("cp1", "curl -sk -o /dev/null -w '%{http_code}' https://$(hostname -I | cut -d' ' -f1):6443/api/v1/nodes");
    assert!(matches!(anonymous.as_str(), "401" | "403"), "anonymous got {anonymous}");
    let ca_keys = w.on(
        "cp1",
        "sudo find / -xdev -name 'ca.key' 2>/dev/null; sudo grep -rl 'PRIVATE KEY' /etc/kubernetes/pki | sort",
    );
    assert!(!ca_keys.contains("ca.key"), "no CA key is on a host: {ca_keys}");
    let modes = w.on("cp1", "sudo stat -c '%a %U' /var/lib/etcd /etc/kubernetes/pki/apiserver.key");
    assert_eq!(modes, "700 etcd\n600 root\n");
}

fn kubelet_serving(w: &World) {
    let pods = w.hactl.kubectl(&["-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns", "-o", "name"]).ok().out;
    let pod = pods.lines().next().expect("CoreDNS runs").to_owned();
    super::support::wait_for("logs through a kubelet with an approved certificate", Duration::from_secs(60), || {
        w.hactl.kubectl(&["-n", "kube-system", "logs", &pod, "--tail=1"]).code == 0
    });
    let requests = w.hactl.kubectl(&["get", "csr", "--no-headers"]).ok().out;
    assert!(!requests.contains("Pending"), "no CSR is pending: {requests}");
}

pub fn down_and_up(w: &World) {
    w.hactl.run(&["down", "--wipe"]).exits(3);
    w.hactl.run(&["down", "--wipe", "--yes"]).ok();
    let left = w.on("cp1", "ls -d /etc/kubernetes /var/lib/etcd/member 2>/dev/null; pgrep -l 'etcd|kube|containerd'; ip -br addr | grep -c '\\.100/'");
    assert_eq!(left.trim(), "0", "what is left on a host: {left}");
    w.hactl.up().ok();
    w.hactl.up().ok().says("nothing to do");
}

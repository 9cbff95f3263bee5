//! Only the API server of a host fails: its Node stays, by the API server of another host.

use super::failures::{LEADS, lease};
use super::support::{Api, wait_for};
use super::{Scenario, World, with_pod};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "a Node whose own API server is gone stays Ready and keeps its pods, and its kubelet returns to it",
    cut: false,
    run: own_api_server_gone,
}];

const HEAL: Duration = Duration::from_secs(180);
/// A Node is NotReady 40 s after its kubelet reported last.
const WATCHED: Duration = Duration::from_secs(80);
/// A kubelet renews its Lease every ten seconds.
const RENEWALS: usize = 6;
/// Until the kubelet is back at the API server of its host, once that is ready: a check, and a new connection.
const RETURNS: Duration = Duration::from_secs(30);
const MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";
/// Prints the API servers to which the balancer of a host has connections of the kubelet.
const USED: &str = "sudo perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(Peer => \"/run/hactl-etcd-balancer.sock\") or die; \
                    print $s \"show stat -1 4 -1\\n\"; while (<$s>) { @c = split /,/; print \"$c[1] \" if $c[0] =~ /api-server/ && $c[4] > 0 }'";

/// The host whose scheduler leads, so that it has a Lease that must move.
fn leading(api: &Api) -> String {
    let (holder, _) = lease(api, "kube-scheduler").expect("some instance leads");
    holder.split('_').next().unwrap_or_default().to_owned()
}

/// Each once: the balancer has two ways to the API server of its host.
fn used(w: &World, host: &str) -> String {
    let all = w.on(host, USED);
    all.split_whitespace().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
}

fn own_api_server_gone(w: &World) {
    let api = w.api();
    let host = leading(&api);
    wait_for("the kubelet uses the API server of its host", RETURNS, || used(w, &host) == host);
    with_pod(&w.hactl, &host, || {
        let pod = format!("/api/v1/namespaces/default/pods/on-{host}");
        let uid = api.get(&pod).expect("it was just started")["metadata"]["uid"].clone();
        assert_eq!(w.on(&host, &format!("sudo mv {MANIFEST} /root/ && echo moved")).trim(), "moved");
        wait_for("its API server has ended", HEAL, || w.on(&host, "pgrep -x kube-apiserver").trim().is_empty());
        stays_ready(&api, &host);
        println!("        the kubelet of {host} uses {}", used(w, &host));
        for name in ["kube-scheduler", "kube-controller-manager"] {
            wait_for(&format!("another host than {host} leads with {name}"), LEADS, || {
                lease(&api, name).is_some_and(|(holder, _)| holder.split('_').next() != Some(host.as_str()))
            });
        }
        let there = api.get(&pod).expect("it is there")["metadata"].clone();
        assert!(there["uid"] == uid && there["deletionTimestamp"].is_null(), "the pod was evicted: {there}");
        assert_ne!(used(w, &host), host);
        assert_eq!(w.on(&host, &format!("sudo mv /root/kube-apiserver.yaml {MANIFEST} && echo moved")).trim(), "moved");
        w.healthy(HEAL);
        let took = wait_for("the kubelet uses the API server of its host again", RETURNS, || used(w, &host) == host);
        println!("        the kubelet of {host} was back at its API server {took:.1?} after status passed");
        let there = api.get(&pod).expect("it is there")["metadata"]["uid"].clone();
        assert_eq!(there, uid, "it is the same pod");
    });
    w.hactl.up().ok().says("nothing to do");
}

/// Looks at a Node every second: it is Ready each time, and its Lease is renewed.
fn stays_ready(api: &Api, host: &str) {
    let (begun, mut looks, mut renewed) = (Instant::now(), 0, BTreeSet::new());
    while begun.elapsed() < WATCHED {
        // Connections that the dying API server had may still fail.
        if let Ok(node) = api.get(&format!("/api/v1/nodes/{host}")) {
            let conditions = node["status"]["conditions"].as_array().expect("a Node has conditions");
            let ready = conditions.iter().find(|c| c["type"] == "Ready").expect("one is Ready");
            assert_eq!(ready["status"], "True", "after {:.1?}: {ready}", begun.elapsed());
            looks += 1;
        }
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{host}");
        renewed.extend(api.get(&lease).ok().and_then(|lease| Some(lease["spec"]["renewTime"].as_str()?.to_owned())));
        std::thread::sleep(Duration::from_secs(1));
    }
    println!("        {host}: Ready at {looks} looks, and its Lease was renewed {} times", renewed.len() - 1);
    assert!(looks > 50, "only {looks} looks were answered");
    assert!(renewed.len() > RENEWALS, "its Lease was renewed at {renewed:?}");
}

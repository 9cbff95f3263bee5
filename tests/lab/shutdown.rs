//! A host that is shut down in order: clients notice nothing, and its API server stops after the pods and the kubelet
//! that report to it.

use super::failures::{holder_of, leads};
use super::support::{Writer, wait_for};
use super::trials::{LATE, unnoticed_but_for_moves};
use super::{Scenario, World};
use std::time::{Duration, Instant};

/// Runs after the other scenarios of the suite: a host that shut down leaves terminated pods behind.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "a host that shuts down in order moves the VIP, stops its API server last, and no client notices",
    cut: false,
    run: in_order,
}];

const BOOT: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(180);
/// The time for which the kubelet delays the shutdown in all, and some time for the next shutdown job to start.
const OFF: Duration = Duration::from_secs(80);
/// How long an ordinary pod takes to terminate, seconds: longer than an API server that is stopped at the same time.
const LINGERS: u32 = 9;
/// How long a write may take when etcd's leader stops: a proposal that a follower forwards during the handover is lost,
/// and etcd reports that only after 5 s and two elections.
pub const LOST: Duration = Duration::from_millis(7500);
/// The last message of an API server that has answered all requests.
const ENDS: &str = "quota evaluator worker shutdown";

fn in_order(w: &World) {
    w.hactl.up().ok();
    w.healthy(HEAL);
    let holder = holder_of(w);
    let images = w.hactl.kubectl(&["get", "pods", "-A", "-o", "jsonpath={.items[*].spec.containers[*].image}"]).ok();
    let coredns = images.out.split_whitespace().find(|image| image.contains("coredns")).expect("CoreDNS runs");
    let spec = format!(
        "{{\"apiVersion\":\"v1\",\"spec\":{{\"nodeName\":\"{holder}\",\"tolerations\":[{{\"operator\":\"Exists\"}}],\"containers\":[{{\
         \"name\":\"lingers\",\"image\":\"{coredns}\",\"imagePullPolicy\":\"IfNotPresent\",\
         \"lifecycle\":{{\"preStop\":{{\"sleep\":{{\"seconds\":{LINGERS}}}}}}}}}]}}}}"
    );
    w.hactl.kubectl(&["run", "lingers", "--image", coredns, "--overrides", &spec]).ok();
    let pod = |path: &str| w.hactl.kubectl(&["get", "pod", "lingers", "-o", &format!("jsonpath={{{path}}}")]).out;
    wait_for("a pod runs there", Duration::from_secs(60), || pod(".status.phase") == "Running");

    let timeout = if leads(w, holder) { LOST } else { LATE };
    let (reading, writer) = (w.api().reads(Duration::from_millis(20)), Writer::start(&w.api(), "w-shutdown"));
    let begun = Instant::now();
    w.on(holder, "sudo systemctl poweroff");
    wait_for("the host is off", OFF, || {
        w.lab.states().expect("LXC lists its hosts").iter().any(|host| host.name == holder && !host.running)
    });
    println!("        {holder} was off after {:.1?}", begun.elapsed());
    std::thread::sleep(Duration::from_secs(4));
    let (written, longest) = writer.end_within(timeout);
    println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.2?}");
    unnoticed_but_for_moves(w, &reading.end(), 1);
    assert_ne!(holder_of(w), holder);
    let ended = pod(".status.containerStatuses[0].state.terminated.finishedAt");
    assert!(!ended.is_empty(), "its kubelet could still report that the pod had terminated: {}", pod(".status"));

    w.lab.start(holder, BOOT).expect("the host boots");
    w.hactl.kubectl(&["delete", "pod", "lingers", "--grace-period=1"]).ok();
    w.healthy(HEAL);
    // Both are timestamps of the same clock, to the second.
    let logs = "sudo sh -c 'cat /var/log/pods/kube-system_kube-apiserver-*/kube-apiserver/*.log'";
    let said = w.on(holder, logs);
    let stopped = said.lines().filter(|line| line.contains(ENDS)).filter_map(|line| line.get(..19)).max();
    let (ended, stopped) = (&ended[..19], stopped.unwrap_or_default());
    println!("        a pod terminated at {ended}, and the API server at {stopped}");
    assert!(stopped >= ended, "the API server stops after the pod: {ended}, {stopped}");
    w.hactl.up().ok().says("nothing to do");
}

//! One pod that is to leave: requests of hactl's own kind, and pods with responders on the API of Kubernetes 1.37.

use super::Scenario;
use super::acting::{TAKEN_OVER, reaches};
use super::bare_hosts::variant;
use super::guard::asked;
use super::maintain::{HEAL, apply, kubectl, object};
use super::support::{Hactl, wait_for};
use super::upgrades::{LATEST, named};
use super::{World, in_one_line, present_image};
use std::time::{Duration, Instant};

/// On one control-plane host and one worker.
pub const REQUESTS: &[Scenario] = &[Scenario {
    name: "a pod leaves for an EvictionRequest once its budget allows it, and only for those who may evict it",
    cut: false,
    run: requested,
}];

/// On one control-plane host and one worker, with the newest Kubernetes.
pub const RESPONDERS: &[Scenario] = &[Scenario {
    name: "a drain asks the responders of a pod first on Kubernetes 1.37, shows what they say, and evicts where nobody acts",
    cut: false,
    run: responders,
}];

/// A Deployment on the worker, with more for its pods.
fn deployment(image: &str, replicas: u32, more: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: db}}\nspec:\n  replicas: {replicas}\n  selector: {{matchLabels: {{app: db}}}}\n  \
         template: {{metadata: {{labels: {{app: db}}}}, spec: {{{more}terminationGracePeriodSeconds: 1, containers: [{{name: c, \
         image: {image:?}, imagePullPolicy: IfNotPresent}}]}}}}\n"
    )
}

/// The names and uids of the pods.
fn pods(w: &World) -> Vec<(String, String)> {
    let path = "jsonpath={range .items[?(@.status.phase==\"Running\")]}{.metadata.name} {.metadata.uid}{\"\\n\"}{end}";
    let found = w.hactl.kubectl(&["get", "pods", "-l", "app=db", "-o", path]).ok().out;
    found.lines().filter_map(|line| line.split_once(' ')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

fn running(w: &World, count: usize) -> Vec<(String, String)> {
    wait_for("the pods run", HEAL, || pods(w).len() == count);
    pods(w)
}

fn request((pod, uid): &(String, String)) -> String {
    format!(
        "apiVersion: lifecycle.hactl.dev/v1alpha1\nkind: EvictionRequest\nmetadata: {{name: move, namespace: default}}\nspec: \
         {{target: {{pod: {{name: {pod}, uid: {uid}}}}}, requester: example.org/me, intent: Eviction}}\n"
    )
}

/// A condition of the request: a field of it.
fn condition(w: &World, kind: &str, field: &str) -> String {
    let path = format!("jsonpath={{.status.conditions[?(@.type==\"{kind}\")].{field}}}");
    w.hactl.kubectl(&["get", "evreq", "move", "-o", &path]).out
}

fn requested(w: &World) {
    let hactl = asked(w, "healing: watch");
    hactl.up().ok();
    w.healthy(HEAL);
    apply(w, &deployment(&present_image(&hactl), 2, "")).ok();
    let budget = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: db}\nspec: {minAvailable: 2, selector: \
                  {matchLabels: {app: db}}}\n";
    apply(w, budget).ok();
    let meant = running(w, 2).swap_remove(0);
    kubectl(w, "create rolebinding editor --clusterrole=edit --user=editor").ok();
    kubectl(w, "create role requester --verb=create --resource=evictionrequests.lifecycle.hactl.dev").ok();
    kubectl(w, "create rolebinding requester --role=requester --user=stranger").ok();
    let path = w.lab.dir().join("request.yaml");
    std::fs::write(&path, request(&meant)).expect("writable");
    let create = |who: &str| {
        let who = format!("--as={who}");
        hactl.kubectl(&[&who, "create", "-f", path.to_str().expect("a path of letters")])
    };
    create("stranger").exits(1).says(&format!("stranger may not evict the pod {}", meant.0));
    create("editor").ok();
    wait_for("the budget is named", TAKEN_OVER, || {
        condition(w, "TargetEvicted", "message").contains("PodDisruptionBudget db")
    });
    assert_eq!(condition(w, "TargetEvicted", "status"), "False");
    kubectl(w, "scale deployment db --replicas=3").ok();
    let since = Instant::now();
    kubectl(w, "wait evreq/move --for=condition=TargetEvicted --timeout=300s").ok();
    println!("        the pod left {:.1?} after its budget was raised", since.elapsed());
    assert_eq!(condition(w, "TargetEvicted", "reason"), "PodDeleted");
    assert!(!running(w, 3).contains(&meant));
    assert_eq!(kubectl(w, "get nodes -o jsonpath={.items[*].spec.unschedulable}").ok().out, "");
    kubectl(w, "delete evreq move").ok();

    // A pod of a DaemonSet would come back.
    let path = "jsonpath={.items[0].metadata.name} {.items[0].metadata.uid}";
    let found = hactl.kubectl(&["-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy", "-o", path]).ok().out;
    let (name, uid) = found.split_once(' ').expect("kube-proxy runs");
    let of_node = request(&(name.to_owned(), uid.to_owned())).replace("namespace: default", "namespace: kube-system");
    apply(w, &of_node).ok();
    let path = "jsonpath={.status.conditions[?(@.type==\"Failed\")].reason}";
    wait_for("it says why not", TAKEN_OVER, || {
        hactl.kubectl(&["-n", "kube-system", "get", "evreq", "move", "-o", path]).out == "EvictionInvalid"
    });
    kubectl(w, "-n kube-system delete evreq move").ok();
    kubectl(w, "delete rolebinding editor requester").ok();
    kubectl(w, "delete role requester").ok();
    kubectl(w, "delete deployment,pdb db").ok();
    w.hactl.up().ok();
    w.healthy(HEAL);
}

/// The API of upstream, which no component acts on.
const GATE: &str =
    "kube-apiserver: {args: {feature-gates: EvictionRequestAPI=true, runtime-config: lifecycle.k8s.io/v1alpha1=true}}";
const REQUESTER: &str = "jsonpath={.items[*].spec.target.pod.name}";

fn requests(hactl: &Hactl) -> String {
    hactl.kubectl(&["get", "evictionrequests.lifecycle.k8s.io", "-o", REQUESTER]).ok().out
}

fn patch(hactl: &Hactl, (kind, name): (&str, &str), status: &str) {
    let body = format!("{{\"status\":{status}}}");
    hactl.kubectl(&["patch", kind, name, "--subresource=status", "--type", "merge", "-p", &body]).ok();
}

/// Plays the controller of upstream: the request for a pod is taken up.
fn is_taken_up(hactl: &Hactl, uid: &str) {
    patch(hactl, ("evictionrequests.lifecycle.k8s.io", &format!("hactl-{uid}")), "{\"observedGeneration\":1}");
}

/// Plays the controller of upstream, and a responder, which says this.
fn plays(w: &World, hactl: &Hactl, (pod, uid): &(String, String), message: &str) {
    let eviction = format!(
        "apiVersion: lifecycle.k8s.io/v1alpha1\nkind: Eviction\nmetadata: {{name: {uid}, namespace: default, labels: \
         {{lifecycle.hactl.dev/drain: requester}}}}\nspec: {{target: {{pod: {{name: {pod}, uid: {uid}}}}}}}\n"
    );
    apply(w, &eviction).ok();
    let targets = "{\"name\":\"example.org/mover\",\"priority\":10000,\"state\":\"Active\"},\
                   {\"name\":\"imperative-eviction.k8s.io/evictor\",\"priority\":100,\"state\":\"Inactive\"}";
    let time = time::OffsetDateTime::now_utc().format(&time::format_description::well_known::Rfc3339);
    let time = time.expect("a time").split('.').next().expect("seconds").to_owned() + "Z";
    let said = format!(
        "{{\"name\":\"example.org/mover\",\"startTime\":\"{time}\",\"heartbeatTime\":\"{time}\",\"message\":\"{message}\"}},\
         {{\"name\":\"imperative-eviction.k8s.io/evictor\"}}"
    );
    let requesters = "{\"name\":\"lifecycle.hactl.dev/drain\",\"intent\":\"Eviction\"}";
    patch(
        hactl,
        ("evictions.lifecycle.k8s.io", uid),
        &format!(
            "{{\"observedGeneration\":1,\"requesters\":[{requesters}],\"targetResponders\":[{targets}],\"responders\":[{said}]}}"
        ),
    );
}

fn responders(w: &World) {
    let hactl = variant(w, "responders.yaml", |text| named(&text, LATEST, GATE) + "healing: watch\n");
    hactl.up().ok();
    let moves = "evictionResponders: [{name: example.org/mover, priority: 10000}], nodeSelector: {kubernetes.io/hostname: w1}, ";
    apply(w, &deployment(&present_image(&hactl), 1, moves)).ok();

    // Nobody acts on requests: after a while the pod is evicted as any other one.
    let first = running(w, 1).swap_remove(0);
    let begun = Instant::now();
    apply(w, &object("w1", "{nodeName: w1, stage: Drain}")).ok();
    wait_for("the responders are asked", TAKEN_OVER, || requests(&hactl) == first.0);
    assert_eq!(pods(w), std::slice::from_ref(&first), "it is not evicted before");
    reaches(w, "w1", "Drained", Duration::from_secs(180));
    println!("        without a responder that acts, the Node was drained after {:.1?}", begun.elapsed());
    assert!(begun.elapsed() >= Duration::from_secs(30));
    hactl.run(&["maintain", "finish", "w1"]).ok();
    assert_eq!(requests(&hactl), "", "they are withdrawn");
    kubectl(w, "delete nmt w1").ok();

    // A responder acts, and says how far it is.
    let second = running(w, 1).swap_remove(0);
    apply(w, &object("w1", "{nodeName: w1, stage: Drain}")).ok();
    wait_for("the responders are asked", TAKEN_OVER, || requests(&hactl) == second.0);
    is_taken_up(&hactl, &second.1);
    plays(w, &hactl, &second, "70 % copied");
    wait_for("the status shows what it says", Duration::from_secs(60), || {
        in_one_line(&hactl.run(&["maintain", "status"]))
            .contains("its eviction responder example.org/mover acts: 70 % copied")
    });
    std::thread::sleep(Duration::from_secs(45));
    assert_eq!(pods(w), std::slice::from_ref(&second), "it is left to its responder");
    hactl.run(&["maintain", "cancel", "w1"]).ok();
    assert_eq!(requests(&hactl), "", "they are withdrawn");
    assert_eq!(pods(w), std::slice::from_ref(&second));
    apply(w, &object("w1", "{nodeName: w1, stage: Drain}")).ok();
    wait_for("the responders are asked again", TAKEN_OVER, || requests(&hactl) == second.0);
    is_taken_up(&hactl, &second.1);
    hactl.kubectl(&["delete", "pod", &second.0]).ok();
    reaches(w, "w1", "Drained", Duration::from_secs(60));
    hactl.run(&["maintain", "finish", "w1"]).ok();
}

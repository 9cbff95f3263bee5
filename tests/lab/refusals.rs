//! What real API servers refuse during a drain: a budget, two of them, a webhook, a namespace that ends; and what a guard
//! does about it.

use super::acting::{TAKEN_OVER, complete, reaches, status};
use super::guard::asked;
use super::maintain::{HEAL, apply, is_cordoned, kubectl, object};
use super::support::{Api, wait_for};
use super::{Scenario, World, in_one_line, present_image};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// On one control-plane host and one worker.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a budget that never allows an eviction holds back its pod alone, which leaves once the budget allows it",
        cut: false,
        run: goes_on,
    },
    Scenario {
        name: "two budgets, a webhook and a namespace that ends are named, and the drain ends without them",
        cut: false,
        run: named,
    },
    Scenario {
        name: "a pod is deleted a minute after its eviction was refused, and none that stays or comes back",
        cut: false,
        run: forced,
    },
];

/// From when a budget allows an eviction until its pod is asked to leave.
const ASKED: Duration = Duration::from_secs(2);
/// How long an eviction is refused before the pod is deleted, and how late that may be.
const FORCED: Duration = Duration::from_secs(60);
const LATE: Duration = Duration::from_secs(5);
/// Nothing serves there.
const NOBODY: &str = "https://127.0.0.1:9/";

/// A new namespace. What a scenario that failed has left is removed before.
pub fn created(w: &World, namespace: &str) {
    kubectl(w, "delete nmt --all --timeout=60s").ok();
    kubectl(w, &format!("delete namespace {namespace} --ignore-not-found")).ok();
    kubectl(w, &format!("create namespace {namespace}")).ok();
}

/// A pod that runs on the worker only.
pub fn pinned() -> Value {
    json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "w1"}, "terminationGracePeriodSeconds": 1}})
}

/// Creates a Deployment of one pod. Its label `app` is its name; what else the pod and its container have is `pod` and
/// `container`.
pub fn deploy(w: &World, (namespace, name): (&str, &str), mut pod: Value, mut container: Value) {
    container["name"] = json!("c");
    container["image"] = json!(present_image(&w.hactl));
    container["imagePullPolicy"] = json!("IfNotPresent");
    pod["spec"]["containers"] = json!([container]);
    pod["metadata"]["labels"]["app"] = json!(name);
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": pod},
    });
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    w.api().post(&path, &deployment).unwrap_or_else(|e| panic!("{name}: {e}"));
}

/// A budget of the pods with this label, of which one has to be healthy.
pub fn budget(w: &World, name: &str, app: &str) {
    let spec = format!("{{minAvailable: 1, selector: {{matchLabels: {{app: {app}}}}}}}");
    let metadata = format!("{{name: {name}, namespace: rules}}");
    apply(w, &format!("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {metadata}\nspec: {spec}\n")).ok();
    wait_for("the budget counts its pod", HEAL, || {
        kubectl(w, &format!("-n rules get pdb {name} -o jsonpath={{.status.currentHealthy}}")).out == "1"
    });
}

/// The pods of a Deployment on the worker that are not being deleted.
fn pods(api: &Api, namespace: &str, name: &str) -> Vec<Value> {
    let of = format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app%3D{name}&fieldSelector=spec.nodeName%3Dw1");
    let list = api.get(&of).unwrap_or_default();
    let all = list["items"].as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|pod| pod.pointer("/metadata/deletionTimestamp").is_none()).collect()
}

/// The name of the only pod of a Deployment, and its uid, once it is ready on the worker.
pub fn running(api: &Api, namespace: &str, name: &str) -> (String, String) {
    let mut found = Vec::new();
    let is_ready = |pod: &Value| {
        let all = pod.pointer("/status/conditions").and_then(Value::as_array);
        all.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    wait_for(&format!("{namespace}/{name} is ready on the worker"), HEAL, || {
        found = pods(api, namespace, name);
        found.len() == 1 && found.iter().all(is_ready)
    });
    let text = |at: &str| found[0].pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/metadata/name"), text("/metadata/uid"))
}

fn begins(w: &World, drain: &str) {
    apply(w, &object("w1", &format!("{{nodeName: w1, stage: Drain, drain: {drain}}}"))).ok();
}

fn ends(w: &World, namespaces: &str) {
    complete(w, "w1");
    reaches(w, "w1", "Completed", TAKEN_OVER);
    assert!(!is_cordoned(w));
    kubectl(w, "delete nmt w1").ok();
    kubectl(w, &format!("delete namespace {namespaces}")).ok();
    asked(w, "").up().ok();
    w.healthy(HEAL);
}

/// From when the budget of a pod allows its eviction until the pod is being deleted, at most: the pod was not when the
/// budget was last seen to refuse.
fn asked_after(api: &Api, budget: &str, pod: &str) -> Duration {
    let mut refused = Instant::now();
    wait_for("the pod is asked to leave", HEAL, || {
        let now = Instant::now();
        let allowed = api.get(budget).map(|budget| budget["status"]["disruptionsAllowed"].clone());
        let leaves = match api.get(pod) {
            Ok(pod) => pod.pointer("/metadata/deletionTimestamp").is_some(),
            Err(why) => why.starts_with("404"),
        };
        if !leaves && allowed == Ok(json!(0)) {
            refused = now;
        }
        leaves
    });
    refused.elapsed()
}

pub fn goes_on(w: &World) {
    asked(w, "healing: watch").up().ok();
    created(w, "rules");
    let api = w.api();
    let worker = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["w1"]});
    let prefers = json!([{"weight": 100, "preference": {"matchExpressions": [worker]}}]);
    let movable = json!({"spec": {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": prefers}},
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
    }});
    deploy(w, ("rules", "web"), movable, json!({}));
    deploy(w, ("rules", "other"), pinned(), json!({}));
    running(&api, "rules", "other");
    let (web, uid) = running(&api, "rules", "web");
    budget(w, "web", "web");

    begins(w, "{}");
    reaches(w, "w1", "Blocked", TAKEN_OVER);
    wait_for("the others have left", HEAL, || pods(&api, "rules", "other").is_empty());
    assert_eq!(status(w, "w1", "drain.blocked[*].pod"), format!("rules/{web}"));
    assert_eq!(status(w, "w1", "drain.blocked[*].never"), "true");
    let why = status(w, "w1", "drain.blocked[*].message");
    assert_eq!(why, "PodDisruptionBudget rules/web never allows an eviction: 1 of its 1 must be healthy");
    assert_eq!(running(&api, "rules", "web").1, uid);

    kubectl(w, "-n rules scale deployment web --replicas=2").ok();
    let budget = "/apis/policy/v1/namespaces/rules/poddisruptionbudgets/web";
    let took = asked_after(&api, budget, &format!("/api/v1/namespaces/rules/pods/{web}"));
    println!("        the pod was asked to leave {took:.2?} after its budget allowed it, at most");
    assert!(took < ASKED, "{took:?}");
    reaches(w, "w1", "Drained", HEAL);
    ends(w, "rules");
}

/// Evictions in one namespace, and deletions of pods in another one, are decided by a webhook that does not answer.
fn unanswered() -> Value {
    let hook = |namespace: &str, operation: &str, resource: &str| {
        json!({
            "name": format!("{namespace}.hactl.test"),
            "clientConfig": {"url": NOBODY},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "operations": [operation]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 2, "admissionReviewVersions": ["v1"],
        })
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "unanswered"},
        "webhooks": [hook("hooked", "CREATE", "pods/eviction"), hook("ending", "DELETE", "pods")],
    })
}

pub fn named(w: &World) {
    asked(w, "healing: watch").up().ok();
    let api = w.api();
    let pod = ["rules", "hooked", "ending"].map(|namespace| {
        created(w, namespace);
        deploy(w, (namespace, "web"), pinned(), json!({}));
        format!("{namespace}/{}", running(&api, namespace, "web").0)
    });
    budget(w, "one", "web");
    budget(w, "two", "web");
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    api.post(hooks, &unanswered()).expect("it can be created");
    wait_for("the webhook decides", HEAL, || {
        kubectl(w, "-n ending delete pod -l app=web --dry-run=server").err.contains("failed calling webhook")
    });
    kubectl(w, "delete namespace ending --wait=false").ok();
    wait_for("the namespace cannot end", HEAL, || {
        kubectl(w, "get namespace ending -o jsonpath={.status.conditions[*].message}").out.contains("webhook")
    });

    begins(w, "{}");
    wait_for("three pods are refused", TAKEN_OVER, || status(w, "w1", "drain.blockedCount") == "3");
    let said = in_one_line(&w.hactl.run(&["maintain", "status", "w1"]).exits(4));
    for (pod, why) in pod.iter().zip([
        "more than one PodDisruptionBudget selects it",
        "the API server answered 500: Internal error occurred: failed calling webhook \"hooked.hactl.test\"",
        "its namespace is being deleted",
    ]) {
        let at = format!("drain.blocked[?(@.pod==\"{pod}\")].message");
        let shown = status(w, "w1", &at);
        assert!(shown.contains(why) && said.contains(&format!("{pod}: {why}")), "{pod}: {shown}; {said}");
    }

    kubectl(w, "-n rules delete pdb two").ok();
    // The other one needs the only pod.
    wait_for("the budget that is left is named", HEAL, || {
        status(w, "w1", "drain.blocked[*].message").contains("PodDisruptionBudget rules/one never allows an eviction")
    });
    kubectl(w, "-n rules delete pdb one").ok();
    kubectl(w, "delete validatingwebhookconfiguration unanswered").ok();
    let since = Instant::now();
    reaches(w, "w1", "Drained", HEAL);
    println!("        drained {:.1?} after the last cause was gone", since.elapsed());
    wait_for("the namespace has ended", HEAL, || kubectl(w, "get namespace ending").code != 0);
    ends(w, "rules hooked");
}

fn forced(w: &World) {
    asked(w, "healing: watch").up().ok();
    created(w, "rules");
    let api = w.api();
    let (mut slow, mut held, mut sticky) = (pinned(), pinned(), pinned());
    slow["spec"]["terminationGracePeriodSeconds"] = json!(20);
    deploy(w, ("rules", "web"), slow, json!({"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}));
    held["metadata"]["labels"]["lifecycle.hactl.dev/drain"] = json!("skip");
    deploy(w, ("rules", "held"), held, json!({}));
    sticky["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    deploy(w, ("rules", "sticky"), sticky, json!({}));
    let [(web, _), held, sticky] = ["web", "held", "sticky"].map(|name| running(&api, "rules", name));
    budget(w, "web", "web");
    budget(w, "held", "held");

    let begun = Instant::now();
    begins(w, "{forceAfter: 1m}");
    wait_for("the Node is cordoned", TAKEN_OVER, || is_cordoned(w));
    let cordoned = Instant::now();
    wait_for("the pod that tolerates everything is another one", HEAL, || {
        pods(&api, "rules", "sticky").iter().any(|pod| pod["metadata"]["uid"] != sticky.1.as_str())
    });
    let back = running(&api, "rules", "sticky");
    let mut pod = Value::Null;
    wait_for("the pod is deleted", FORCED + LATE + LATE, || {
        pod = api.get(&format!("/api/v1/namespaces/rules/pods/{web}")).unwrap_or_else(|e| panic!("{web}: {e}"));
        pod.pointer("/metadata/deletionTimestamp").is_some()
    });
    let (since_cordon, since_begin) = (cordoned.elapsed(), begun.elapsed());
    println!("        the pod was deleted {since_cordon:.1?} after the cordon");
    assert!(since_begin >= FORCED && since_cordon < FORCED + LATE, "{since_begin:?}, {since_cordon:?}");
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 20, "its own grace period");
    reaches(w, "w1", "Drained", HEAL);
    let events =
        kubectl(w, "get events --field-selector reason=EvictionForced -o jsonpath={.items[*].message}").ok().out;
    assert!(events.contains(&format!("rules/{web} was deleted")) && !events.contains("rules/held"), "{events}");
    assert_eq!(status(w, "w1", "drain.forced[*]"), format!("rules/{web}"));
    assert_eq!([running(&api, "rules", "held"), running(&api, "rules", "sticky")], [held.clone(), back.clone()]);
    for (name, why) in [(held.0, "label"), (back.0, "it came back to the cordoned Node")] {
        let shown = status(w, "w1", &format!("drain.kept[?(@.pod==\"rules/{name}\")].reason"));
        assert!(shown.contains(why), "{name}: {shown}");
    }
    ends(w, "rules");
}

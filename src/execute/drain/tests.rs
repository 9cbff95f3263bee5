//! Drains of a Node of a small API server in memory, with the real client; its requests are counted.

use super::*;
use crate::kube::{Answer, Chunks, Http, KnownNode, Request};
use crate::model::cordon::CordonRecord;
use futures::stream;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::sleep;

/// The time that a request takes.
const TAKES: Duration = Duration::from_millis(10);
const NODE: &str = "/api/v1/nodes/w1";
const PODS: &str = "/api/v1/pods?fieldSelector=spec.nodeName%3Dw1";
const CLUSTER_RULES: &str = "/apis/lifecycle.hactl.dev/v1alpha1/clusterdrainrules";
const RULES: &str = "/apis/lifecycle.hactl.dev/v1alpha1/drainrules";
const BUDGET: &str = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/db";

#[derive(Clone)]
struct Api(Arc<Mutex<State>>);

struct State {
    node: Value,
    pods: BTreeMap<String, Value>,
    grace: Duration,
    /// Of pods that are called `db-...`: the numbers of their budget, and after what time a replacement is healthy.
    budget: Option<(BudgetFact, Duration)>,
    /// How often a webhook denies the eviction of `denied`.
    denials: usize,
    /// A person cordons the Node just before the next change of it.
    is_cordoned_by_a_person: bool,
    serves_lists: bool,
    serves_watches: bool,
    watches: Vec<UnboundedSender<Vec<u8>>>,
    budget_watches: Vec<UnboundedSender<Vec<u8>>>,
    request: DrainRequest,
    /// The drain rules; `None`: the API does not serve the kind.
    rules: Option<Vec<Value>>,
    requests: Vec<String>,
    evicting: usize,
    most_evicting: usize,
}

fn pod(name: &str, uid: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": uid,
            "ownerReferences": [{"kind": "ReplicaSet", "uid": "web", "controller": true}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn failure(code: u16, message: &str, details: Value) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "details": details}))
}

impl Api {
    fn new(pods: impl IntoIterator<Item = Value>) -> Self {
        let uid = |pod: &Value| pod["metadata"]["uid"].as_str().expect("a uid").to_owned();
        Self(Arc::new(Mutex::new(State {
            node: json!({"metadata": {"name": "w1", "resourceVersion": "7"}, "spec": {}}),
            pods: pods.into_iter().map(|pod| (uid(&pod), pod)).collect(),
            grace: Duration::from_secs(1),
            budget: None,
            denials: 0,
            is_cordoned_by_a_person: false,
            serves_lists: true,
            serves_watches: true,
            watches: Vec::new(),
            budget_watches: Vec::new(),
            request: DrainRequest::default(),
            rules: None,
            requests: Vec::new(),
            evicting: 0,
            most_evicting: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic holds it")
    }

    fn count(&self, part: &str) -> usize {
        self.state().requests.iter().filter(|request| request.contains(part)).count()
    }

    fn is_cordoned(&self) -> bool {
        self.state().node["spec"]["unschedulable"] == true
    }

    async fn drain(&self, seconds: u64) -> Result<Vec<String>, String> {
        let host: HostName = "w1".parse().expect("a name");
        let client = Client::over(Arc::new(self.clone()));
        let within = Duration::from_secs(seconds);
        let request = self.state().request.clone();
        let draining = Draining {
            host: &host,
            by: Holder::Up,
            request,
            within,
            lasts: Duration::ZERO,
            taken_from: None,
            pace: None,
        };
        draining.run(&client, None, &|_| {}).await.map_err(|error| error.to_string())
    }

    fn evict(&self, path: &str, body: &Value) -> (u16, Value) {
        let mut state = self.state();
        let name = path.rsplit('/').nth(1).unwrap_or_default().to_owned();
        let uid = body["deleteOptions"]["preconditions"]["uid"].as_str().unwrap_or_default().to_owned();
        if !state.pods.contains_key(&uid) {
            return failure(404, "pods not found", Value::Null);
        }
        if name == "denied" && state.denials > 0 {
            state.denials -= 1;
            return failure(500, "admission webhook \"w\" denied the request: later", Value::Null);
        }
        if let Some((budget, _)) = state.budget.as_mut().filter(|_| name.starts_with("db-")) {
            if budget.allowed == 0 {
                let text = "The disruption budget db needs 2 healthy pods and has 2 currently";
                let details = json!({"causes": [{"reason": "DisruptionBudget", "message": text}]});
                return failure(429, "Cannot evict pod as it would violate the pod's disruption budget.", details);
            }
            budget.allowed -= 1;
            state.tell_budget();
        }
        state.pods.get_mut(&uid).expect("it exists")["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let changed = state.pods[&uid].clone();
        state.tell("MODIFIED", &changed);
        let (grace, api) = (state.grace, self.clone());
        tokio::spawn(async move { api.end(uid, grace).await });
        (201, json!({"kind": "Status", "status": "Success", "code": 201}))
    }

    /// The end of a pod, and what its controller does then.
    async fn end(self, uid: String, grace: Duration) {
        sleep(grace).await;
        let pod = self.state().pods.remove(&uid).expect("it exists");
        self.state().tell("DELETED", &pod);
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if pod.pointer("/spec/tolerations").is_some() {
            let mut back = pod;
            back["metadata"]["uid"] = json!(format!("{uid}-back"));
            back["metadata"]["deletionTimestamp"] = Value::Null;
            back["metadata"].as_object_mut().expect("an object").remove("deletionTimestamp");
            let mut state = self.state();
            state.tell("ADDED", &back);
            state.pods.insert(format!("{uid}-back"), back);
        } else if name.starts_with("db-") {
            let healthy = self.state().budget.as_ref().map(|(_, healthy)| *healthy);
            sleep(healthy.unwrap_or_default()).await;
            let mut state = self.state();
            if let Some((budget, _)) = &mut state.budget {
                budget.allowed += 1;
            }
            state.tell_budget();
        }
    }

    fn answer(&self, request: &Request) -> (u16, Value) {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let path = request.path.as_str();
        if path.ends_with("/eviction") {
            return self.evict(path, &body);
        }
        let mut state = self.state();
        match (request.method.as_str(), path) {
            ("GET", PODS) if !state.serves_lists => failure(503, "it is starting", Value::Null),
            ("GET", PODS) => {
                let items: Vec<_> = state.pods.values().cloned().collect();
                (200, json!({"metadata": {"resourceVersion": "9"}, "items": items}))
            }
            ("GET", CLUSTER_RULES | RULES) if state.rules.is_none() => {
                failure(404, "the server could not find it", Value::Null)
            }
            ("GET", CLUSTER_RULES) => (200, json!({"items": state.rules})),
            ("GET", RULES) => (200, json!({"items": []})),
            ("GET", NODE) => (200, state.node.clone()),
            ("PATCH", _) if path.starts_with(NODE) => {
                if std::mem::take(&mut state.is_cordoned_by_a_person) {
                    state.node["spec"]["unschedulable"] = json!(true);
                    state.node["metadata"]["resourceVersion"] = json!("8");
                }
                if body["metadata"]["resourceVersion"] != state.node["metadata"]["resourceVersion"] {
                    return failure(409, "the object has been modified", Value::Null);
                }
                if let Some(unschedulable) = body.pointer("/spec/unschedulable") {
                    state.node["spec"]["unschedulable"] = unschedulable.clone();
                }
                state.node["metadata"]["annotations"] = body["metadata"]["annotations"].clone();
                (200, state.node.clone())
            }
            ("GET", BUDGET) => {
                state.budget().map_or_else(|| failure(404, "not found", Value::Null), |found| (200, found))
            }
            ("GET", _) if path.starts_with("/apis/lifecycle.k8s.io/") => failure(404, "not found", Value::Null),
            (method, path) => panic!("{method} {path}"),
        }
    }
}

impl State {
    fn budget(&self) -> Option<Value> {
        let (BudgetFact { allowed, healthy, desired, expected, .. }, _) = self.budget.as_ref()?;
        let status = json!({"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired,
            "expectedPods": expected});
        Some(json!({"metadata": {"name": "db"}, "status": status}))
    }

    fn tell_budget(&mut self) {
        let Some(object) = self.budget() else { return };
        let event = json!({"type": "MODIFIED", "object": object}).to_string() + "\n";
        self.budget_watches.retain(|watch| watch.send(event.clone().into_bytes()).is_ok());
    }

    fn tell(&mut self, kind: &str, pod: &Value) {
        let event = json!({"type": kind, "object": pod}).to_string() + "\n";
        self.watches.retain(|watch| watch.send(event.clone().into_bytes()).is_ok());
    }
}

impl Http for Api {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, String>> {
        async move {
            let evicts = usize::from(request.path.ends_with("/eviction"));
            {
                let mut state = self.state();
                state.requests.push(format!("{} {}", request.method, request.path));
                state.evicting += evicts;
                state.most_evicting = state.most_evicting.max(state.evicting);
            }
            sleep(TAKES).await;
            let (status, body) = self.answer(&request);
            self.state().evicting -= evicts;
            Ok(Answer { status, retry_after_s: None, body: body.to_string().into_bytes() })
        }
        .boxed()
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<(u16, Chunks), String>> {
        async move {
            self.state().requests.push(format!("WATCH {}", request.path));
            if !self.state().serves_watches {
                return Err("refused".to_owned());
            }
            let (sender, receiver) = unbounded_channel::<Vec<u8>>();
            if request.path.contains("poddisruptionbudgets") {
                let mut state = self.state();
                state.budget_watches.push(sender);
                // A watch begins with the object as it is.
                state.tell_budget();
            } else {
                self.state().watches.push(sender);
            }
            let events = stream::unfold(receiver, |mut receiver| async move {
                receiver.recv().await.map(|event| (Ok(event), receiver))
            });
            Ok((200, events.boxed()))
        }
        .boxed()
    }
}

fn budget(allowed: u32, desired: u32, expected: u32) -> BudgetFact {
    BudgetFact { allowed, healthy: desired, desired, expected, computed: true, always_allows_unready: false }
}

fn numbered(name: &str, pods: usize) -> Vec<Value> {
    (0..pods).map(|n| pod(&format!("{name}-{n}"), &format!("{name}-{n:03}"))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hundred_pods_leave_with_few_requests_at_once_and_in_all() {
    for grace in [1, 30, 60] {
        let api = Api::new(numbered("web", 100));
        api.state().grace = Duration::from_secs(grace);
        let begun = Instant::now();
        assert_eq!(api.drain(300).await, Ok(vec![]));
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(grace) + Duration::from_millis(500), "{took:?} with a grace of {grace} s");
        let state = api.state();
        assert_eq!(state.most_evicting, AT_ONCE);
        assert!(state.requests.len() <= 120, "{} requests with a grace of {grace} s", state.requests.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_lets_one_go_at_a_time_costs_no_more_than_its_replacements() {
    let api = Api::new(numbered("db", 10));
    let healthy = Duration::from_secs(3);
    api.state().budget = Some((budget(1, 9, 10), healthy));
    let begun = Instant::now();
    assert_eq!(api.drain(300).await, Ok(vec![]));
    let each = begun.elapsed() / 10;
    assert!(each < Duration::from_secs(1) + healthy + READ_SLACK, "{each:?} for each pod");
    let (evictions, reads) = (api.count("/eviction"), api.count("GET /apis/policy"));
    assert!(evictions <= 18, "{evictions} evictions: eight are refused at once, and each is accepted");
    assert!(reads <= 4, "{reads} reads of the budget, which is watched");
    assert_eq!(api.count("WATCH /apis/policy"), 1);
    assert_eq!(api.count("GET /api/v1/namespaces/shop/pods"), 0, "no pod is read by itself");

    let api = Api::new(numbered("db", 10));
    api.state().budget = Some((budget(1, 9, 10), healthy));
    api.state().serves_watches = false;
    let begun = Instant::now();
    assert_eq!(api.drain(300).await, Ok(vec![]));
    let each = begun.elapsed() / 10;
    assert!(each < Duration::from_secs(2) + healthy + READ_SLACK, "{each:?} for each pod, without watches");
}

/// The time of requests.
const READ_SLACK: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn under_a_budget_a_hundred_pods_cost_little_more_than_a_request_each() {
    let api = Api::new(numbered("db", 100));
    api.state().budget = Some((budget(1, 99, 100), Duration::ZERO));
    assert_eq!(api.drain(300).await, Ok(vec![]));
    let requests = api.state().requests.len();
    assert!(requests <= 130, "{requests} requests");
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_never_allows_an_eviction_is_named_and_holds_back_no_other_pod() {
    let mut dns = pod("dns", "dns");
    dns["spec"] = json!({"priority": 2_000_000_000});
    let api = Api::new([pod("db-0", "db-0"), pod("web", "web"), dns]);
    api.state().budget = Some((budget(0, 2, 2), Duration::ZERO));
    let error = api.drain(60).await.expect_err("it cannot leave");
    assert_eq!(
        error,
        "1 pod did not leave w1 within 60 s: shop/db-0 (PodDisruptionBudget shop/db never allows an eviction: 2 of its 2 \
         must be healthy) (1 pod leaves after that); the Node stays cordoned; raise the number of replicas, or let the budget allow an eviction, then run the same command again, or give up with `kubectl uncordon \
         w1`"
    );
    assert!(api.is_cordoned());
    let left: Vec<String> = api.state().pods.keys().cloned().collect();
    assert_eq!(left, ["db-0", "dns"]);
    api.state().budget = None;
    assert_eq!(api.drain(60).await, Ok(vec![]), "the next drain continues");
    assert!(CordonRecord::of(&api.state().node).is_some_and(|record| record.is_held_by(&Holder::Up)));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_tolerates_everything_is_evicted_once_and_reported_when_it_is_back() {
    let mut tolerant = pod("agent", "agent");
    tolerant["spec"] = json!({"tolerations": [{"operator": "Exists"}]});
    let api = Api::new([tolerant, pod("web", "web")]);
    assert_eq!(
        api.drain(60).await,
        Ok(vec!["shop/agent comes back to w1 although that is cordoned, and stays there".to_owned()])
    );
    assert_eq!(api.count("agent/eviction"), 1);
}

#[tokio::test(start_paused = true)]
async fn rules_decide_which_pods_stay_for_which_the_drain_waits_and_which_leave_last() {
    let labelled = |name: &str| {
        let mut pod = pod(name, name);
        pod["metadata"]["labels"] = json!({"app": name});
        pod
    };
    let rule = |app: &str, spec: Value| {
        let mut spec = spec;
        spec["podSelector"] = json!({"matchLabels": {"app": app}});
        json!({"metadata": {"name": app}, "spec": spec})
    };
    let api = Api::new(["agent", "job", "storage", "web"].map(labelled));
    api.state().rules = Some(vec![
        rule("agent", json!({"behavior": "Skip"})),
        rule("job", json!({"behavior": "WaitCompleted"})),
        rule("storage", json!({"behavior": "Drain", "order": 100})),
        rule("web", json!({"behavior": "Later"})),
    ]);
    let error = api.drain(20).await.expect_err("the job has not completed");
    assert!(
        error.contains("shop/job (until it has completed, by ClusterDrainRule job) (1 pod leaves after"),
        "{error}"
    );
    assert_eq!((api.count("web/eviction"), api.count("storage/eviction")), (1, 0));

    api.state().pods.get_mut("job").expect("it is there")["status"]["phase"] = json!("Succeeded");
    let said = api.drain(20).await.expect("it has completed");
    let unread = "ClusterDrainRule web: its behavior cannot be read; it selects no pods";
    assert_eq!(said, [unread, "shop/agent stays on w1, by ClusterDrainRule agent"]);
    assert_eq!((api.count("agent/eviction"), api.count("job/eviction"), api.count("storage/eviction")), (0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_denies_one_eviction_delays_only_that_pod() {
    let api = Api::new([pod("denied", "denied"), pod("web", "web")]);
    api.state().denials = 3;
    assert_eq!(api.drain(60).await, Ok(vec![]));
    assert_eq!((api.count("denied/eviction"), api.count("web/eviction")), (4, 1));

    let api = Api::new([pod("denied", "denied")]);
    api.state().denials = usize::MAX;
    let error = api.drain(30).await.expect_err("it never leaves");
    assert!(error.contains("shop/denied (the API server answered 500: admission webhook \"w\" denied"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn without_watches_and_after_one_that_ends_the_pods_are_listed() {
    let api = Api::new(numbered("web", 10));
    api.state().serves_watches = false;
    assert_eq!(api.drain(60).await, Ok(vec![]));

    let api = Api::new(numbered("web", 10));
    api.state().grace = Duration::from_secs(5);
    let cut = async {
        sleep(Duration::from_secs(2)).await;
        api.state().watches.clear();
    };
    let begun = Instant::now();
    let (drained, ()) = tokio::join!(api.drain(60), cut);
    assert_eq!(drained, Ok(vec![]));
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    assert_eq!(api.count("WATCH"), 2, "one that was cut, and one after it");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_only_the_watch_says_is_empty_is_not_drained() {
    let api = Api::new([pod("web", "web")]);
    let fail = async {
        sleep(Duration::from_millis(500)).await;
        api.state().serves_lists = false;
    };
    let begun = Instant::now();
    let (drained, ()) = tokio::join!(api.drain(10), fail);
    let error = drained.expect_err("it was not listed");
    assert_eq!(error, "list the pods of w1: timed out; last observed: all have left, by their watch");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn bare_pods_are_named_before_anything_changes() {
    let mut bare = pod("bare", "bare");
    bare["metadata"]["ownerReferences"] = json!([]);
    let api = Api::new([bare, pod("web", "web")]);
    let error = api.drain(60).await.expect_err("it would be lost");
    assert!(error.starts_with("1 pod on w1 would be lost, because no controller recreates them"), "{error}");
    assert!(error.contains("shop/bare"), "{error}");
    assert!(!api.is_cordoned());
    assert_eq!(api.state().requests, [CLUSTER_RULES, RULES, PODS].map(|path| format!("GET {path}")));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_a_person_cordoned_is_not_hactls_to_uncordon() {
    let host: HostName = "w1".parse().expect("a name");
    let until = Instant::now() + Duration::from_secs(60);
    // Cordoned before, at the same moment, and by no person.
    for (before, meanwhile, after) in [(true, false, true), (false, true, true), (false, false, false)] {
        let api = Api::new([pod("web", "web")]);
        api.state().node["spec"] = json!({"unschedulable": before});
        api.state().is_cordoned_by_a_person = meanwhile;
        assert_eq!(api.drain(60).await, Ok(vec![]));
        assert!(api.is_cordoned());
        Client::over(Arc::new(api.clone()))
            .uncordon(&mut KnownNode::new(&host), &Holder::Up, false, until)
            .await
            .expect("an answer");
        assert_eq!(api.is_cordoned(), after, "{before} {meanwhile}");
    }
}

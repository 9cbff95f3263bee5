//! An API server in memory, with one Node, its pods and its maintenances. It keeps versions, finalizers and watches as a
//! real one does.

use crate::kube::{Answer, Chunks, Client, Http, Request};
use crate::model::event::{Event, Sink};
use crate::model::gate::Gate;
use crate::model::labels::COMPLETION;
use crate::model::maintenance::{DrainRequest, RebootRequest, Stage, Wanted, Work};
use crate::model::merge_patch::merged;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub const NODE: &str = "/api/v1/nodes/w3";
pub const MAINTENANCE: &str = "/apis/lifecycle.hactl.dev/v1alpha1/nodemaintenances/w3";
const MAINTENANCES: &str = "/apis/lifecycle.hactl.dev/v1alpha1/nodemaintenances";
const NODES: &str = "/api/v1/nodes";
const ROLLOUTS: &str = "/apis/lifecycle.hactl.dev/v1alpha1/nodemaintenancerollouts";
const PODS: &str = "/api/v1/pods?fieldSelector=spec.nodeName%3Dw3";
/// The time that a pod takes to end.
pub const GRACE: Duration = Duration::from_secs(2);

/// Objects by their path; pods by their uid.
#[derive(Default)]
pub struct State {
    pub objects: BTreeMap<String, Value>,
    pub pods: BTreeMap<String, Value>,
    /// How often the eviction of each pod was accepted, by its name.
    pub evicted: BTreeMap<String, usize>,
    pub deleted: Vec<String>,
    /// What was asked for: methods and paths.
    pub asked: Vec<String>,
    /// Pods in the order in which their eviction was accepted.
    pub order: Vec<String>,
    /// Other hosts of the control plane, and whether they are ready; none: w3 is a worker.
    pub others: BTreeMap<String, bool>,
    /// Whether the budget of the control plane refuses, although all are ready.
    pub refuses: bool,
    /// Who watches a folder; `None`: nobody may.
    watchers: Option<Vec<(String, UnboundedSender<Vec<u8>>)>>,
}

/// The pod of w3 that stands for the control plane.
pub const STANDS: &str = "control-plane-quorum-w3";
const POD: &str = "/api/v1/namespaces/shop/pods/";
const QUORUM: &str = "/api/v1/namespaces/kube-system/pods";
const BUDGET: &str = "/apis/policy/v1/namespaces/kube-system/poddisruptionbudgets/control-plane-quorum";

/// An API server. Pods that are called `db-...` have a budget that allows nothing.
#[derive(Clone, Default)]
pub struct Api(Arc<Mutex<State>>);

/// A process that reaches no API server any more after so many of its writes; the answer to the last one is lost.
struct Killed {
    api: Api,
    left: Mutex<usize>,
}

impl Api {
    pub fn new(pods: &[&str], cordoned: bool, drain: DrainRequest) -> Self {
        let api = Self::default();
        {
            let mut state = api.state();
            let spec = if cordoned { json!({"unschedulable": true}) } else { json!({}) };
            let ready = json!([{"type": "Ready", "status": "True", "message": "", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]);
            let metadata = json!({"name": "w3", "resourceVersion": "1"});
            let node = json!({"metadata": metadata, "spec": spec, "status": {"conditions": ready}});
            state.objects.insert(NODE.to_owned(), node);
            state.ask("w3", drain);
            for name in pods {
                let owner = json!([{"kind": "ReplicaSet", "uid": "r", "controller": true}]);
                let owners = if name.starts_with("bare") { Value::Null } else { owner };
                let metadata = json!({"name": name, "namespace": "shop", "uid": name, "ownerReferences": owners});
                state.pods.insert((*name).to_owned(), json!({"metadata": metadata, "status": {"phase": "Running"}}));
            }
        }
        api
    }

    /// The same, with watches, of a host of the control plane; whether the others are ready.
    pub fn of_control_plane(pods: &[&str], ready: bool) -> Self {
        let api = Self::watched(&[pods, &[STANDS]].concat(), false, DrainRequest::default());
        {
            let mut state = api.state();
            state.others = ["cp1", "cp2"].map(|host| (host.to_owned(), ready || host == "cp1")).into();
            let labels = json!({"metadata": {"namespace": "kube-system", "labels": {"hactl.dev/quorum": "x"}}});
            let pod = state.pods.get_mut(STANDS).unwrap();
            *pod = merged(pod, &labels);
        }
        api
    }

    /// The same, with watches.
    pub fn watched(pods: &[&str], cordoned: bool, drain: DrainRequest) -> Self {
        let api = Self::new(pods, cordoned, drain);
        api.state().watchers = Some(Vec::new());
        api
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn object(&self, path: &str) -> Value {
        self.state().objects.get(path).cloned().unwrap_or(Value::Null)
    }

    /// Whether the maintenance keeps its object from being deleted.
    pub fn is_held(&self) -> bool {
        self.object(MAINTENANCE)["metadata"]["finalizers"].to_string().contains(COMPLETION)
    }

    pub fn change(&self, path: &str, patch: &Value) {
        let answer = self.state().patch(path, patch);
        assert_eq!(answer.0, 200, "{path}");
    }

    pub fn client(&self) -> Client {
        Client::over(Arc::new(self.clone()))
    }

    pub fn killed_after(&self, writes: usize) -> Client {
        Client::over(Arc::new(Killed { api: self.clone(), left: Mutex::new(writes) }))
    }

    fn answer(&self, request: &Request) -> (u16, Value) {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let mut state = self.state();
        state.asked.push(format!("{} {}", request.method, request.path));
        if request.path == PODS {
            let items: Vec<Value> = state.pods.values().cloned().collect();
            return (200, json!({"metadata": {"resourceVersion": "9"}, "items": items}));
        }
        if request.path.ends_with("component%3Dkube-apiserver") {
            return (200, json!({"items": state.api_servers()}));
        }
        let path = request.path.split('?').next().unwrap_or_default().to_owned();
        // A watch of all namespaces shows them.
        let path = path.replace("/namespaces/shop/evictionrequests", "/evictionrequests");
        let method = request.method.as_str();
        match method {
            "GET" if path == QUORUM => (200, json!({"items": state.quorum()})),
            "GET" if path == BUDGET => (200, state.budget()),
            "GET" if [MAINTENANCES, NODES].contains(&path.as_str()) => {
                (200, json!({"metadata": {"resourceVersion": "9"}, "items": state.within(&path)}))
            }
            _ if path.ends_with("/eviction") => self.evict(&mut state, &body),
            "GET" if path.starts_with(POD) => {
                state.pods.get(path.trim_start_matches(POD)).map_or((404, Value::Null), |pod| (200, pod.clone()))
            }
            "GET" => state.objects.get(&path).map_or((404, Value::Null), |object| (200, object.clone())),
            "POST" => {
                let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
                let mut object = body;
                if state.objects.contains_key(&path) {
                    return (409, json!({"message": "it exists"}));
                }
                object["metadata"]["resourceVersion"] = json!("1");
                object["metadata"]["generation"] = json!(1);
                object["metadata"]["uid"] = json!(format!("u-{path}"));
                state.put(&path, object.clone());
                (201, object)
            }
            "PATCH" if path == format!("{NODE}/status") => {
                let before = state.objects.get(NODE).cloned().unwrap_or_default();
                state.patch(NODE, &by_type(&before, &body))
            }
            "PATCH" => state.patch(path.trim_end_matches("/status"), &body),
            "DELETE" => state.delete(&path),
            other => panic!("{other} {path}"),
        }
    }

    fn evict(&self, state: &mut State, body: &Value) -> (u16, Value) {
        let uid = body["deleteOptions"]["preconditions"]["uid"].as_str().unwrap().to_owned();
        if uid.starts_with("db-") {
            let text = "The disruption budget db needs 2 healthy pods and has 2 currently";
            let details = json!({"causes": [{"reason": "DisruptionBudget", "message": text}]});
            return (429, json!({"kind": "Status", "message": "it would violate the budget", "details": details}));
        }
        if uid == STANDS && (state.refuses || state.others.values().any(|ready| !ready)) {
            let text = "The disruption budget control-plane-quorum needs 2 healthy pods and has 2 currently";
            let details = json!({"causes": [{"reason": "DisruptionBudget", "message": text}]});
            return (429, json!({"kind": "Status", "message": "it would violate the budget", "details": details}));
        }
        state.order.push(uid.clone());
        *state.evicted.entry(uid.clone()).or_default() += 1;
        self.end(state, uid);
        (201, json!({"kind": "Status", "status": "Success"}))
    }

    fn end(&self, state: &mut State, uid: String) {
        if let Some(pod) = state.pods.get_mut(&uid) {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let api = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(GRACE).await;
            api.state().pods.remove(&uid);
        });
    }
}

impl State {
    /// Creates a maintenance.
    pub fn ask(&mut self, name: &str, drain: DrainRequest) {
        self.create(name, drain, Work::ByPerson);
    }

    /// Creates one that reboots the host; one of this name is replaced.
    pub fn reboot(&mut self, name: &str, request: &RebootRequest) {
        self.create(name, DrainRequest::default(), Work::Reboot(request.clone()));
    }

    /// Creates a rollout of reboots over all Nodes.
    pub fn roll_out(&mut self, name: &str) {
        let spec = json!({"allNodes": true, "soak": "1s", "template": {"action": "Reboot"}});
        let metadata = json!({"name": name, "uid": format!("u-{name}"), "resourceVersion": "1", "generation": 1});
        self.put(&format!("{ROLLOUTS}/{name}"), json!({"metadata": metadata, "spec": spec}));
    }

    fn create(&mut self, name: &str, drain: DrainRequest, work: Work) {
        let (node, reason) = ("w3".parse().unwrap(), "disk".to_owned());
        let (stage, stays_cordoned, allow_outage) = (Stage::Drain, false, false);
        let gate = Gate::default();
        let powered_off = false;
        let wanted = Wanted { node, stage, reason, work, stays_cordoned, allow_outage, powered_off, drain, gate };
        let metadata = json!({"name": name, "uid": format!("u-{name}"), "resourceVersion": "1", "generation": 1});
        self.put(&format!("{MAINTENANCES}/{name}"), json!({"metadata": metadata, "spec": wanted.spec()}));
    }

    fn quorum(&self) -> Vec<Value> {
        let pod = |host: &str, ready: bool| {
            let status = if ready { "True" } else { "False" };
            json!({"spec": {"nodeName": host}, "status": {"conditions": [{"type": "Ready", "status": status}]}})
        };
        let own = self.pods.get(STANDS).map_or_else(|| json!({"spec": {}}), |_| pod("w3", true));
        self.others.iter().map(|(host, ready)| pod(host, *ready)).chain([own]).collect()
    }

    /// The pods of the API servers of other hosts that are ready.
    fn api_servers(&self) -> Vec<Value> {
        let pod = |host: &String| {
            let metadata = json!({"name": format!("kube-apiserver-{host}"), "namespace": "kube-system", "uid": host});
            let ready = json!([{"type": "Ready", "status": "True"}]);
            json!({"metadata": metadata, "spec": {"nodeName": host}, "status": {"conditions": ready}})
        };
        self.others.iter().filter(|(_, ready)| **ready).map(|(host, _)| pod(host)).collect()
    }

    /// Has w3 run these static pods.
    pub fn run_static_pods(&mut self, names: &[&str]) {
        for name in names {
            let annotations = json!({"kubernetes.io/config.mirror": "x"});
            let metadata = json!({"name": name, "namespace": "kube-system", "uid": name, "annotations": annotations,
                "labels": {"component": name}});
            self.pods.insert((*name).to_owned(), json!({"metadata": metadata, "status": {"phase": "Running"}}));
        }
    }

    fn budget(&self) -> Value {
        let healthy =
            self.others.values().filter(|ready| **ready).count() + usize::from(self.pods.contains_key(STANDS));
        let allowed = if self.refuses { 0 } else { healthy.saturating_sub(2) };
        json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "disruptionsAllowed": allowed,
            "currentHealthy": healthy, "desiredHealthy": 2, "expectedPods": 3}})
    }

    fn within(&self, folder: &str) -> Vec<Value> {
        let inside = |path: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        self.objects.iter().filter(|(path, _)| inside(path)).map(|(_, object)| object.clone()).collect()
    }

    pub fn put(&mut self, path: &str, object: Value) {
        self.notify("MODIFIED", path, &object);
        self.objects.insert(path.to_owned(), object);
    }

    pub fn remove(&mut self, path: &str) -> Option<Value> {
        let object = self.objects.remove(path)?;
        self.notify("DELETED", path, &object);
        Some(object)
    }

    fn notify(&mut self, kind: &str, path: &str, object: &Value) {
        let folder = path.rsplit_once('/').unwrap().0;
        for (watched, sender) in self.watchers.iter().flatten() {
            if watched == folder {
                drop(sender.send(line(kind, object)));
            }
        }
    }

    fn watch(&mut self, folder: &str) -> Option<Chunks> {
        let (sender, receiver) = unbounded_channel();
        for object in self.within(folder) {
            drop(sender.send(line("ADDED", &object)));
        }
        self.watchers.as_mut()?.push((folder.to_owned(), sender));
        let next = |mut receiver: tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>| async move {
            receiver.recv().await.map(|line| (Ok(line), receiver))
        };
        Some(stream::unfold(receiver, next).boxed())
    }

    fn patch(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let Some(object) = self.objects.get_mut(path) else { return (404, Value::Null) };
        let version = object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        if body.pointer("/metadata/resourceVersion").is_some_and(|wanted| *wanted != version.as_str()) {
            return (409, Value::Null);
        }
        let before = object["spec"].clone();
        *object = merged(object, body);
        object["metadata"]["resourceVersion"] = json!((version.parse::<u32>().unwrap() + 1).to_string());
        if object["spec"] != before {
            let generation = object["metadata"]["generation"].as_u64().unwrap_or(0) + 1;
            object["metadata"]["generation"] = json!(generation);
        }
        let object = object.clone();
        let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array).map_or(0, Vec::len);
        if finalizers == 0 && object.pointer("/metadata/deletionTimestamp").is_some() {
            self.remove(path);
        } else {
            self.notify("MODIFIED", path, &object);
        }
        (200, object)
    }

    fn delete(&mut self, path: &str) -> (u16, Value) {
        if let Some(uid) = path.strip_prefix(POD) {
            self.deleted.push(uid.to_owned());
            return self.pods.remove(uid).map_or((404, Value::Null), |pod| (200, pod));
        }
        let held = self.objects.get(path).and_then(|object| object.pointer("/metadata/finalizers")).is_some();
        if held {
            return self.patch(path, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        }
        self.remove(path).map_or((404, Value::Null), |object| (200, object))
    }
}

/// A strategic merge patch of conditions, as one that replaces all of them.
fn by_type(before: &Value, body: &Value) -> Value {
    let list = |object: &Value| object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut all = list(before);
    for change in list(body) {
        all.retain(|one| one["type"] != change["type"]);
        if change.get("$patch").is_none() {
            all.push(change);
        }
    }
    json!({"status": {"conditions": all}})
}

fn line(kind: &str, object: &Value) -> Vec<u8> {
    (json!({"type": kind, "object": object}).to_string() + "\n").into_bytes()
}

fn answered((status, body): (u16, Value)) -> Answer {
    Answer { status, retry_after_s: None, body: body.to_string().into_bytes() }
}

impl Http for Api {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, String>> {
        let answer = answered(self.answer(&request));
        Box::pin(async move { Ok(answer) })
    }
    fn stream(&self, request: Request) -> BoxFuture<'_, Result<(u16, Chunks), String>> {
        let folder = request.path.split('?').next().unwrap_or_default();
        self.state().asked.push(format!("WATCH {}", request.path));
        let watch = self.state().watch(folder).map(|chunks| (200, chunks));
        Box::pin(async { watch.ok_or_else(|| "no watches here".to_owned()) })
    }
}

impl Http for Killed {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, String>> {
        let mut left = self.left.lock().unwrap();
        let writes = request.method.as_str() != "GET";
        let result = match *left {
            0 => Err("it is killed".to_owned()),
            1 if writes => {
                self.api.answer(&request);
                Err("it is killed".to_owned())
            }
            _ => Ok(answered(self.api.answer(&request))),
        };
        *left = left.saturating_sub(usize::from(writes));
        Box::pin(async move { result })
    }
    fn stream(&self, request: Request) -> BoxFuture<'_, Result<(u16, Chunks), String>> {
        let is_dead = *self.left.lock().unwrap() == 0;
        Box::pin(async move { if is_dead { Err("it is killed".to_owned()) } else { self.api.stream(request).await } })
    }
}

pub struct Quiet;

impl Sink for Quiet {
    fn emit(&self, _: Event) {}
}

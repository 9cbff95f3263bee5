//! Maintenances of a Node of an API server in memory, by the real client and the real drain; processes are killed after
//! any of their writes.

use super::*;
use crate::kube::{Answer, Chunks, Client, Http, Request};
use crate::model::cordon::{CordonRecord, is_cordoned};
use crate::model::event::{Event, Sink};
use crate::model::labels::COMPLETION;
use crate::model::maintenance::{DrainRequest, Stage, Wanted};
use crate::model::merge_patch::merged;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const NODE: &str = "/api/v1/nodes/w3";
const MAINTENANCE: &str = "/apis/lifecycle.hactl.dev/v1alpha1/nodemaintenances/w3";
const PODS: &str = "/api/v1/pods?fieldSelector=spec.nodeName%3Dw3";
/// The time that a pod takes to end.
const GRACE: Duration = Duration::from_secs(2);

/// Objects by their path; pods by their uid.
#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    /// How often the eviction of each pod was accepted, by its name.
    evicted: BTreeMap<String, usize>,
    deleted: Vec<String>,
}

/// An API server. Pods that are called `db-...` have a budget that allows nothing.
#[derive(Clone, Default)]
struct Api(Arc<Mutex<State>>);

/// A process that reaches no API server any more after so many of its writes; the answer to the last one is lost.
struct Killed {
    api: Api,
    left: Mutex<usize>,
}

impl Api {
    fn new(pods: &[&str], cordoned: bool, drain: DrainRequest) -> Self {
        let api = Self::default();
        {
            let mut state = api.state();
            let spec = if cordoned { json!({"unschedulable": true}) } else { json!({}) };
            let node = json!({"metadata": {"name": "w3", "resourceVersion": "1"}, "spec": spec});
            state.objects.insert(NODE.to_owned(), node);
            let wanted = Wanted {
                node: "w3".parse().unwrap(),
                stage: Stage::Drain,
                reason: "disk".to_owned(),
                stays_cordoned: false,
                drain,
            };
            let metadata = json!({"name": "w3", "uid": "m1", "resourceVersion": "1"});
            state.objects.insert(MAINTENANCE.to_owned(), json!({"metadata": metadata, "spec": wanted.spec()}));
            for name in pods {
                let owner = json!([{"kind": "ReplicaSet", "uid": "r", "controller": true}]);
                let owners = if name.starts_with("bare") { Value::Null } else { owner };
                let metadata = json!({"name": name, "namespace": "shop", "uid": name, "ownerReferences": owners});
                state.pods.insert((*name).to_owned(), json!({"metadata": metadata, "status": {"phase": "Running"}}));
            }
        }
        api
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn object(&self, path: &str) -> Value {
        self.state().objects.get(path).cloned().unwrap_or(Value::Null)
    }

    fn change(&self, path: &str, patch: &Value) {
        let answer = self.state().patch(path, patch);
        assert_eq!(answer.0, 200, "{path}");
    }

    fn client(&self) -> Client {
        Client::over(Arc::new(self.clone()))
    }

    fn killed_after(&self, writes: usize) -> Client {
        Client::over(Arc::new(Killed { api: self.clone(), left: Mutex::new(writes) }))
    }

    fn answer(&self, request: &Request) -> (u16, Value) {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let mut state = self.state();
        if request.path == PODS {
            let items: Vec<Value> = state.pods.values().cloned().collect();
            return (200, json!({"metadata": {"resourceVersion": "9"}, "items": items}));
        }
        let path = request.path.split('?').next().unwrap_or_default().to_owned();
        let method = request.method.as_str();
        match method {
            "GET" if MAINTENANCE.strip_suffix("/w3") == Some(path.as_str()) => {
                let items: Vec<Value> = state.objects.get(MAINTENANCE).cloned().into_iter().collect();
                (200, json!({"items": items}))
            }
            _ if path.ends_with("/eviction") => self.evict(&mut state, &body),
            "GET" => state.objects.get(&path).map_or((404, Value::Null), |object| (200, object.clone())),
            "POST" => {
                let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
                let mut object = body;
                object["metadata"]["resourceVersion"] = json!("1");
                state.objects.insert(path, object.clone());
                (201, object)
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
    fn patch(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let Some(object) = self.objects.get_mut(path) else { return (404, Value::Null) };
        let version = object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        if body.pointer("/metadata/resourceVersion").is_some_and(|wanted| *wanted != version.as_str()) {
            return (409, Value::Null);
        }
        *object = merged(object, body);
        object["metadata"]["resourceVersion"] = json!((version.parse::<u32>().unwrap() + 1).to_string());
        let object = object.clone();
        let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array).map_or(0, Vec::len);
        if finalizers == 0 && object.pointer("/metadata/deletionTimestamp").is_some() {
            self.objects.remove(path);
        }
        (200, object)
    }

    fn delete(&mut self, path: &str) -> (u16, Value) {
        if let Some(uid) = path.strip_prefix("/api/v1/namespaces/shop/pods/") {
            self.deleted.push(uid.to_owned());
            return self.pods.remove(uid).map_or((404, Value::Null), |pod| (200, pod));
        }
        let held = self.objects.get(path).and_then(|object| object.pointer("/metadata/finalizers")).is_some();
        if held {
            return self.patch(path, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        }
        self.objects.remove(path).map_or((404, Value::Null), |object| (200, object))
    }
}

fn answered((status, body): (u16, Value)) -> Answer {
    Answer { status, retry_after_s: None, body: body.to_string().into_bytes() }
}

impl Http for Api {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, String>> {
        let answer = answered(self.answer(&request));
        Box::pin(async move { Ok(answer) })
    }
    fn stream(&self, _: Request) -> BoxFuture<'_, Result<(u16, Chunks), String>> {
        Box::pin(async { Err("no watches here".to_owned()) })
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
    fn stream(&self, _: Request) -> BoxFuture<'_, Result<(u16, Chunks), String>> {
        Box::pin(async { Err("no watches here".to_owned()) })
    }
}

struct Quiet;

impl Sink for Quiet {
    fn emit(&self, _: Event) {}
}

async fn run(client: &Client, holder: &str) -> Result<Ended, MaintenanceError> {
    let stop = CancellationToken::new();
    let node = "w3".parse().unwrap();
    let mut controller = Controller::elected(client, (&Quiet, &stop), &node, holder).await?;
    let result = controller.run("w3").await;
    controller.release().await?;
    result
}

/// Drains the Node, and restores it.
async fn drained_and_restored(client: &Client, holder: &str) -> Result<(), MaintenanceError> {
    if let Ended::Drained(_) = run(client, holder).await? {
        let until = tokio::time::Instant::now() + GRACE;
        let found = client.maintenance("w3", until).await?.expect("it exists");
        client.change_maintenance(&found, &json!({"stage": "Complete"}), until).await?;
    }
    run(client, holder).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_killed_after_any_of_its_writes_is_continued_and_the_node_ends_as_it_began() {
    let mut killed = 0;
    for cordoned in [false, true] {
        for writes in 1.. {
            let api = Api::new(&["web-1", "web-2"], cordoned, DrainRequest::default());
            let first = drained_and_restored(&api.killed_after(writes), "a").await;
            killed += usize::from(first.is_err());
            drained_and_restored(&api.client(), "b").await.expect("another process continues");

            let node = api.object(NODE);
            assert_eq!(is_cordoned(&node), cordoned, "after {writes} writes");
            assert_eq!(CordonRecord::of(&node), None, "after {writes} writes");
            let object = api.object(MAINTENANCE);
            assert_eq!(object["status"]["state"], "Completed", "after {writes} writes");
            assert!(!object["metadata"]["finalizers"].to_string().contains(COMPLETION), "after {writes} writes");
            let state = api.state();
            assert!(state.pods.is_empty() && state.evicted.values().all(|times| *times == 1), "{:?}", state.evicted);
            if first.is_ok() {
                break;
            }
        }
    }
    assert!(killed > 12, "{killed} processes were killed");
}

#[tokio::test(start_paused = true)]
async fn a_drained_node_shows_what_left_and_stays_cordoned_until_its_maintenance_is_complete() {
    let api = Api::new(&["web-1", "web-2"], false, DrainRequest::default());
    assert_eq!(run(&api.client(), "a").await.unwrap(), Ended::Drained(vec![]));
    let object = api.object(MAINTENANCE);
    assert_eq!(
        (&object["status"]["state"], &object["status"]["drain"]["progress"]),
        (&json!("Drained"), &json!("2/2"))
    );
    assert_eq!(object["metadata"]["finalizers"], json!([COMPLETION]));
    let is = |kind: &str| {
        let all = object["status"]["conditions"].as_array().unwrap().iter();
        all.filter(|one| one["type"] == kind).map(|one| one["status"] == "True").collect::<Vec<_>>()
    };
    assert_eq!([is("Cordoned"), is("Drained"), is("Completed")].concat(), [true, true, false]);
    assert!(is_cordoned(&api.object(NODE)));
}

#[tokio::test(start_paused = true)]
async fn pods_that_would_be_lost_are_named_before_anything_is_changed() {
    let api = Api::new(&["web-1", "bare"], false, DrainRequest::default());
    let error = run(&api.client(), "a").await.unwrap_err();
    assert!(matches!(&error, MaintenanceError::WouldLose(why) if why.contains("shop/bare")), "{error}");
    assert_eq!(api.object(NODE)["metadata"]["resourceVersion"], "1");
    assert_eq!(api.object(MAINTENANCE)["metadata"]["resourceVersion"], "1");
    assert_eq!(api.state().evicted.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_given_up_restores_the_node_and_says_what_was_in_the_way() {
    let drain = DrainRequest { give_up_after: Some(Duration::from_secs(60)), ..DrainRequest::default() };
    let api = Api::new(&["db-1", "web-1"], false, drain);
    let error = run(&api.client(), "a").await.unwrap_err();
    assert!(matches!(&error, MaintenanceError::GaveUp(why) if why.contains("shop/db-1")), "{error}");
    assert!(!is_cordoned(&api.object(NODE)));
    let object = api.object(MAINTENANCE);
    assert_eq!(object["status"]["state"], "Failed");
    assert!(!object["metadata"]["finalizers"].to_string().contains(COMPLETION));

    assert_eq!(object["status"]["drain"]["lastedSeconds"], 0, "the next drain has the whole time again");
    api.state().pods.remove("db-1");
    assert_eq!(run(&api.client(), "a").await.unwrap(), Ended::Drained(vec![]));
}

#[tokio::test(start_paused = true)]
async fn what_refuses_is_in_the_status_and_a_pod_is_deleted_after_the_time_that_was_given_to_it() {
    let drain = DrainRequest { force_after: Some(Duration::from_secs(60)), ..DrainRequest::default() };
    let api = Api::new(&["db-1"], false, drain);
    let client = api.client();
    let seen = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let status = api.object(MAINTENANCE)["status"].clone();
        assert_eq!(status["state"], "Blocked");
        assert_eq!(status["drain"]["blocked"][0]["pod"], "shop/db-1");
        assert!(status["drain"]["blocked"][0]["message"].as_str().unwrap().contains("PodDisruptionBudget shop/db"));
        assert_eq!(api.state().deleted.len(), 0);
    };
    let (ended, ()) = tokio::join!(run(&client, "a"), seen);
    assert_eq!(ended.unwrap(), Ended::Drained(vec![]));
    assert_eq!(api.state().deleted, ["db-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_maintenance_that_is_deleted_or_completed_by_others_ends_and_the_node_is_restored() {
    for deleted in [true, false] {
        let api = Api::new(&["db-1"], false, DrainRequest::default());
        let client = api.client();
        let ends = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert!(is_cordoned(&api.object(NODE)));
            let deletion = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
            let patch = if deleted { deletion } else { json!({"spec": {"stage": "Complete"}}) };
            api.change(MAINTENANCE, &patch);
        };
        let (ended, ()) = tokio::join!(run(&client, "a"), ends);
        assert_eq!(ended.unwrap(), Ended::Completed);
        assert!(!is_cordoned(&api.object(NODE)));
        assert_eq!(api.object(MAINTENANCE).is_null(), deleted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_others_uncordon_is_cordoned_again_and_at_the_third_time_the_drain_ends() {
    let api = Api::new(&["db-1"], false, DrainRequest::default());
    let client = api.client();
    let others = async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert!(is_cordoned(&api.object(NODE)));
            api.change(NODE, &json!({"spec": {"unschedulable": null}}));
        }
    };
    let (ended, ()) = tokio::join!(run(&client, "a"), others);
    assert!(matches!(ended.unwrap_err(), MaintenanceError::Contested(_)));
}

#[tokio::test(start_paused = true)]
async fn a_drain_goes_on_with_the_rest_of_its_time_and_the_time_without_a_process_does_not_count() {
    let drain = DrainRequest { give_up_after: Some(Duration::from_secs(300)), ..DrainRequest::default() };
    let api = Api::new(&["db-1"], false, drain);
    let client = api.client();
    tokio::select! {
        _ = run(&client, "a") => unreachable!("its budget allows nothing"),
        () = tokio::time::sleep(Duration::from_secs(200)) => {}
    }
    let lasted = api.object(MAINTENANCE)["status"]["drain"]["lastedSeconds"].as_u64().unwrap();
    assert!((130..=200).contains(&lasted), "{lasted}");
    tokio::time::sleep(Duration::from_secs(10_000)).await;
    let begun = tokio::time::Instant::now();
    assert!(matches!(run(&client, "b").await.unwrap_err(), MaintenanceError::GaveUp(_)));
    let rest = begun.elapsed().as_secs();
    assert!((90..=200).contains(&rest), "{rest}");
}

#[tokio::test(start_paused = true)]
async fn a_cordon_of_a_maintenance_that_does_not_exist_any_more_ends() {
    let api = Api::new(&["db-1"], false, DrainRequest::default());
    let client = api.client();
    tokio::select! {
        _ = run(&client, "a") => unreachable!("its budget allows nothing"),
        () = tokio::time::sleep(Duration::from_secs(10)) => {}
    }
    // Somebody removes the finalizer and the object.
    api.state().objects.remove(MAINTENANCE);
    assert!(is_cordoned(&api.object(NODE)));
    let (stop, node) = (CancellationToken::new(), "w3".parse().unwrap());
    let mut controller = Controller::elected(&client, (&Quiet, &stop), &node, "b").await.unwrap();
    assert!(controller.end_lost().await.unwrap());
    assert!(!is_cordoned(&api.object(NODE)));
    assert!(!controller.end_lost().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn another_process_is_refused_while_one_drains() {
    let api = Api::new(&["db-1"], false, DrainRequest::default());
    let (one, other) = (api.client(), api.client());
    tokio::select! {
        _ = run(&one, "a") => unreachable!("its budget allows nothing"),
        second = async { tokio::time::sleep(GRACE).await; run(&other, "b").await } => {
            assert!(matches!(second.unwrap_err(), MaintenanceError::Held { by, .. } if by == "a"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_maintenance_of_a_node_that_does_not_exist_changes_nothing() {
    let api = Api::new(&[], false, DrainRequest::default());
    api.state().objects.remove(NODE);
    assert!(matches!(run(&api.client(), "a").await.unwrap_err(), MaintenanceError::NoNode(_)));
    assert!(!api.object(MAINTENANCE)["metadata"]["finalizers"].to_string().contains(COMPLETION));
}

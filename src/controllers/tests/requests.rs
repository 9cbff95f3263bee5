//! Requests that single pods leave.

use super::guards::{beside_a_guard, until};
use super::*;
use crate::model::merge_patch::merged;
use serde_json::Value;
use std::collections::BTreeMap;
use tokio::time::sleep;

const FOLDER: &str = "/apis/lifecycle.hactl.dev/v1alpha1/evictionrequests";

fn ask(api: &Api, name: &str, pod: &str) -> String {
    let spec =
        json!({"target": {"pod": {"name": pod, "uid": pod}}, "requester": "example.org/me", "intent": "Eviction"});
    let metadata = json!({"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1", "generation": 1});
    let path = format!("{FOLDER}/{name}");
    api.state().put(&path, json!({"metadata": metadata, "spec": spec}));
    path
}

/// A condition of a request: its status, its reason and its message.
fn condition(api: &Api, path: &str, kind: &str) -> [String; 3] {
    let object = api.object(path);
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let one = all.into_iter().find(|one| one["type"] == kind).unwrap_or_default();
    ["status", "reason", "message"].map(|field| one[field].as_str().unwrap_or_default().to_owned())
}

/// An API server without maintenances.
fn served(pods: &[&str]) -> Api {
    let api = Api::watched(pods, false, DrainRequest::default());
    api.state().remove(MAINTENANCE);
    api
}

#[tokio::test(start_paused = true)]
async fn a_pod_leaves_when_that_is_asked_for_and_nothing_else_does() {
    let api = served(&["web-1", "web-2"]);
    let path = ask(&api, "move", "web-1");
    beside_a_guard(&api, async {
        until("it has left", || condition(&api, &path, "TargetEvicted")[..2] == ["True", "PodDeleted"]).await;
        assert_eq!(condition(&api, &path, "Failed")[..2], ["False", "Succeeded"]);
        assert_eq!(api.object(&path)["status"]["observedGeneration"], 1);
        let evicted = api.state().evicted.clone();
        let version = api.object(&path)["metadata"]["resourceVersion"].clone();
        assert_eq!(evicted, BTreeMap::from([("web-1".to_owned(), 1)]));
        assert!(!is_cordoned(&api.object(NODE)));
        sleep(Duration::from_secs(100)).await;
        assert_eq!(api.object(&path)["metadata"]["resourceVersion"], version, "what is over is written once");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_status_names_the_budget_that_refuses() {
    let api = served(&["db-1"]);
    let path = ask(&api, "move", "db-1");
    beside_a_guard(&api, async {
        until("the budget is named", || condition(&api, &path, "TargetEvicted")[2].contains("PodDisruptionBudget db"))
            .await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(condition(&api, &path, "TargetEvicted")[..2], ["False", "AwaitingEviction"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_person_holds_stays_and_leaves_no_more_once_the_request_is_withdrawn() {
    let api = served(&["web-1", "web-2"]);
    let held = |reason: Value| json!({"metadata": {"annotations": {"hold.hactl.dev/backup": reason}}});
    let hold = |pod: &str, reason: Value| {
        let changed = merged(&api.state().pods[pod].clone(), &held(reason));
        api.state().pods.insert(pod.to_owned(), changed);
    };
    let paths = ["web-1", "web-2"].map(|pod| {
        hold(pod, json!("until noon"));
        ask(&api, &format!("move-{pod}"), pod)
    });
    beside_a_guard(&api, async {
        for path in &paths {
            let says = || condition(&api, path, "TargetEvicted")[2].contains("hold.hactl.dev/backup");
            until("the hold is named", says).await;
        }
        api.change(&paths[0], &json!({"spec": {"intent": "Withdrawn"}}));
        let cancelled = || condition(&api, &paths[0], "Failed")[..2] == ["True", "CanceledDueToNoRequesters"];
        until("it is withdrawn", cancelled).await;
        hold("web-1", Value::Null);
        hold("web-2", Value::Null);
        until("the other one leaves", || api.state().evicted.contains_key("web-2")).await;
        sleep(Duration::from_secs(600)).await;
        assert!(!api.state().evicted.contains_key("web-1"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_would_come_back_to_their_node_are_not_evicted() {
    let api = served(&["web-1"]);
    let daemon = json!({"metadata": {"ownerReferences": [{"kind": "DaemonSet", "uid": "d", "controller": true}]}});
    let changed: Value = merged(&api.state().pods["web-1"].clone(), &daemon);
    api.state().pods.insert("web-1".to_owned(), changed);
    let path = ask(&api, "move", "web-1");
    beside_a_guard(&api, async {
        until("it says why", || condition(&api, &path, "Failed")[..2] == ["True", "EvictionInvalid"]).await;
        sleep(Duration::from_secs(100)).await;
        assert!(api.state().evicted.is_empty());
    })
    .await;
}

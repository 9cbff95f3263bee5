//! Maintenances of a Node of an API server in memory, by the real client and the real drain; processes are killed after
//! any of their writes.

mod api;
mod gates;
mod guards;
mod reboots;
mod recovered;
mod requests;
mod static_pods;

use super::*;
use crate::kube::Client;
use crate::model::boot::{Boot, BootId};
use crate::model::cordon::{CordonRecord, is_cordoned};
use crate::model::labels::COMPLETION;
use crate::model::maintenance::DrainRequest;
use crate::model::names::HostName;
use api::{Api, GRACE, MAINTENANCE, NODE, Quiet};
use futures::future::BoxFuture;
use serde_json::json;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// No host is reached.
struct NoHosts;

impl Hosts for NoHosts {
    fn boot<'a>(&'a self, _: &'a HostName) -> BoxFuture<'a, Result<Boot, String>> {
        Box::pin(async { Err("it is not reached".to_owned()) })
    }
    fn reboot<'a>(&'a self, _: &'a HostName, _: &'a BootId) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Err("it is not reached".to_owned()) })
    }
}

async fn run(client: &Client, holder: &str) -> Result<Ended, MaintenanceError> {
    let stop = CancellationToken::new();
    let node = "w3".parse().unwrap();
    let mut controller =
        Controller::elected(client, (&Quiet, &stop), (&node, Place::default()), (&NoHosts, holder)).await?;
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
    api.state().remove(MAINTENANCE);
    assert!(is_cordoned(&api.object(NODE)));
    let (stop, node) = (CancellationToken::new(), "w3".parse().unwrap());
    let mut controller =
        Controller::elected(&client, (&Quiet, &stop), (&node, Place::default()), (&NoHosts, "b")).await.unwrap();
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
    api.state().remove(NODE);
    assert!(matches!(run(&api.client(), "a").await.unwrap_err(), MaintenanceError::NoNode(_)));
    assert!(!api.is_held());
}

//! Static pods that a maintenance holds: the node agent of the host is played by the test.

use super::guards::{beside, ends, guard, reaches, state, until};
use super::*;
use crate::model::labels::HELD;
use crate::model::maintenance::{Maintenance, Through};
use serde_json::Value;
use tokio::time::sleep;

const STATIC: [&str; 2] = ["kube-apiserver", "kube-scheduler"];

fn request() -> DrainRequest {
    DrainRequest { through: Through::Static, ..DrainRequest::default() }
}

fn worker(pods: &[&str]) -> Api {
    let api = Api::watched(pods, false, request());
    let mut state = api.state();
    state.others = ["cp1", "cp2"].map(|host| (host.to_owned(), true)).into();
    state.run_static_pods(&STATIC);
    drop(state);
    api
}

fn place(_: &HostName) -> Place {
    Place::default()
}

/// Holds static pods while that is asked for, and counts how often it began to.
async fn node_agent(api: &Api, begun: &mut usize) {
    let mut holds = false;
    loop {
        let object = api.object(MAINTENANCE);
        let asked = Maintenance::of(&object).is_ok_and(|one| one.holds_static_pods().is_some());
        if asked && !holds {
            *begun += 1;
            api.state().pods.retain(|name, _| !STATIC.contains(&name.as_str()));
            api.change(NODE, &json!({"metadata": {"annotations": {HELD: "2"}}}));
        } else if !asked && holds {
            api.state().run_static_pods(&STATIC);
            api.change(NODE, &json!({"metadata": {"annotations": {HELD: null}}}));
        }
        holds = asked;
        sleep(Duration::from_secs(3)).await;
    }
}

fn taints(api: &Api) -> usize {
    api.object(NODE).pointer("/spec/taints").and_then(Value::as_array).map_or(0, Vec::len)
}

#[tokio::test(start_paused = true)]
async fn a_node_is_drained_once_its_static_pods_are_held_and_restored_once_they_run_again() {
    let api = worker(&["web-1"]);
    beside(&api, &place, async {
        until("the node agent is asked", || api.object(MAINTENANCE)["status"]["staticPods"].is_object()).await;
        assert_eq!(api.state().evicted.len(), 1, "after the other pods have left");
        sleep(Duration::from_secs(90)).await;
        assert_eq!(state(&api, MAINTENANCE), "Draining", "nobody has obeyed");
        let why = api.object(MAINTENANCE)["status"]["waitingFor"][0]["message"].to_string();
        assert!(why.contains("kube-scheduler") && why.contains("journalctl -u hactl-node-agent"), "{why}");
        let mut begun = 0;
        let maintained = async {
            reaches(&api, MAINTENANCE, "Drained").await;
            assert_eq!((taints(&api), api.state().pods.len()), (1, 0));
            api.change(MAINTENANCE, &json!({"spec": {"stage": "Complete"}}));
            reaches(&api, MAINTENANCE, "Completed").await;
            assert_eq!((taints(&api), api.state().pods.len()), (0, STATIC.len()));
            assert!(!is_cordoned(&api.object(NODE)));
        };
        tokio::select! {
            () = node_agent(&api, &mut begun) => unreachable!(),
            () = maintained => {}
        }
        assert_eq!(begun, 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_another_api_server_static_pods_stay_and_the_status_says_why() {
    let api = worker(&[]);
    api.state().others.values_mut().for_each(|ready| *ready = false);
    beside(&api, &place, async {
        let why = || api.object(MAINTENANCE)["status"]["waitingFor"][0]["message"].to_string();
        until("it waits", || why().contains("another API server")).await;
        assert!(api.object(MAINTENANCE)["status"]["staticPods"].is_null());
        api.state().others.insert("cp1".to_owned(), true);
        until("it goes on", || api.object(MAINTENANCE)["status"]["staticPods"].is_object()).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_killed_after_any_of_its_writes_is_replaced_and_static_pods_are_held_once() {
    let mut replaced = 0;
    for writes in 1.. {
        let api = worker(&["web-1"]);
        let mut begun = 0;
        let a = guard(api.killed_after(writes), "a");
        let b = async {
            sleep(Duration::from_secs(1)).await;
            guard(api.client(), "b").await;
        };
        let author = async {
            reaches(&api, MAINTENANCE, "Drained").await;
            assert_eq!(api.state().pods.len(), 0, "after {writes} writes");
            api.change(MAINTENANCE, &json!({"spec": {"stage": "Complete"}}));
            ends(&api).await;
        };
        tokio::select! {
            () = a => unreachable!(),
            () = b => unreachable!(),
            () = node_agent(&api, &mut begun) => unreachable!(),
            () = author => {}
        }
        let node = api.object(NODE);
        assert_eq!((is_cordoned(&node), taints(&api), begun), (false, 0, 1), "after {writes} writes");
        assert_eq!(api.state().pods.len(), STATIC.len(), "after {writes} writes");
        let lease = api.object("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/hactl-controllers");
        if lease["spec"]["holderIdentity"] == "a" {
            break;
        }
        replaced += 1;
    }
    assert!(replaced > 10, "{replaced} guards were replaced");
}

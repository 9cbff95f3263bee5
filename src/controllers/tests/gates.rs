//! Maintenances that wait for a window or for approval, and drains whose window ends.

use super::api::{Api, MAINTENANCE, NODE};
use super::guards::{beside_a_guard, guard, reaches, state, until};
use super::*;
use serde_json::Value;
use tokio::time::sleep;

const ROLLOUT: &str = "/apis/lifecycle.hactl.dev/v1alpha1/nodemaintenancerollouts/kernel";
const CHILD: &str = "/apis/lifecycle.hactl.dev/v1alpha1/nodemaintenances/kernel-w3";

/// A window that is closed, for all but five minutes of four years.
fn closed() -> Value {
    json!({"spec": {"windows": [{"schedule": "0 0 29 2 *", "duration": "5m", "timeZone": "UTC"}]}})
}

/// A window that is open at any time.
fn open() -> Value {
    json!({"spec": {"windows": [{"schedule": "* * * * *", "duration": "1h"}]}})
}

/// A rollout over a Node that is ready, instead of its maintenance.
fn rolled_out(api: &Api) {
    api.state().remove(MAINTENANCE);
    api.state().roll_out("kernel");
    let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:30Z", "message": ""});
    api.change(NODE, &json!({"status": {"conditions": [ready]}}));
}

fn why(api: &Api, path: &str) -> String {
    api.object(path)["status"]["waitingFor"][0]["message"].as_str().unwrap_or_default().to_owned()
}

fn is_as_before(api: &Api) -> bool {
    let node = api.object(NODE);
    !is_cordoned(&node) && CordonRecord::of(&node).is_none() && !api.is_held()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_before_somebody_approves_it_and_a_window_opens() {
    let api = Api::watched(&["web-1"], false, DrainRequest::default());
    api.change(MAINTENANCE, &closed());
    api.change(MAINTENANCE, &json!({"spec": {"approval": "Required", "approved": false}}));
    let node = api.object(NODE)["spec"].clone();
    beside_a_guard(&api, async {
        reaches(&api, MAINTENANCE, "Waiting").await;
        assert_eq!(why(&api, MAINTENANCE), "nobody has approved it yet: hactl maintain approve w3");
        api.change(MAINTENANCE, &json!({"spec": {"approved": true}}));
        until("the window is named", || why(&api, MAINTENANCE).starts_with("its next window opens at")).await;
        let next = api.object(MAINTENANCE)["status"]["nextWindow"].as_str().unwrap_or_default().to_owned();
        assert!(next.ends_with("-02-29T00:00:00Z"), "{next}");
        sleep(Duration::from_secs(100)).await;
        assert!(is_as_before(&api));
        assert_eq!((&api.object(NODE)["spec"], api.state().evicted.len()), (&node, 0));
        api.change(MAINTENANCE, &open());
        reaches(&api, MAINTENANCE, "Drained").await;
        assert!(api.object(MAINTENANCE)["status"]["nextWindow"].is_null());
        // What is drained stays so.
        api.change(MAINTENANCE, &closed());
        sleep(Duration::from_secs(100)).await;
        assert_eq!((state(&api, MAINTENANCE), is_cordoned(&api.object(NODE))), (json!("Drained"), true));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_command_that_acts_alone_waits_for_approval_and_then_goes_on() {
    let api = Api::new(&["web-1"], false, DrainRequest::default());
    api.change(MAINTENANCE, &json!({"spec": {"approval": "Required", "approved": false}}));
    let client = api.client();
    let person = async {
        reaches(&api, MAINTENANCE, "Waiting").await;
        sleep(Duration::from_secs(100)).await;
        assert!(is_as_before(&api));
        api.change(MAINTENANCE, &json!({"spec": {"approved": true}}));
    };
    let (ended, ()) = tokio::join!(run(&client, "a"), person);
    assert_eq!(ended.unwrap(), Ended::Drained(vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_drain_whose_window_ends_is_undone_also_if_its_guard_is_killed_after_any_write_and_has_its_whole_time_again()
{
    let mut replaced = 0;
    for writes in 1.. {
        let two_minutes = Some(Duration::from_secs(120));
        let drain = DrainRequest { give_up_after: two_minutes, ..DrainRequest::default() };
        let api = Api::watched(&["db-1"], false, drain);
        let b = async {
            sleep(Duration::from_secs(1)).await;
            guard(api.client(), "b").await;
        };
        let author = async {
            reaches(&api, MAINTENANCE, "Blocked").await;
            api.change(MAINTENANCE, &closed());
            until("the Node is as before", || is_as_before(&api)).await;
            reaches(&api, MAINTENANCE, "Waiting").await;
            until("the window is named", || why(&api, MAINTENANCE).starts_with("its next window opens at")).await;
            let status = api.object(MAINTENANCE)["status"].clone();
            assert_eq!((&status["drain"]["lastedSeconds"], &status["drain"]["blockedCount"]), (&json!(0), &json!(0)));
            sleep(Duration::from_secs(500)).await;
            assert_eq!(state(&api, MAINTENANCE), "Waiting", "time passes, and it is not given up");
            api.state().pods.remove("db-1");
            api.change(MAINTENANCE, &open());
            reaches(&api, MAINTENANCE, "Drained").await;
        };
        tokio::select! {
            () = guard(api.killed_after(writes), "a") => unreachable!(),
            () = b => unreachable!(),
            () = author => {}
        }
        let lease = api.object("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/hactl-controllers");
        if lease["spec"]["holderIdentity"] == "a" {
            break;
        }
        replaced += 1;
    }
    assert!(replaced > 15, "{replaced} guards were replaced");
}

#[tokio::test(start_paused = true)]
async fn a_window_that_cannot_be_understood_is_named_and_nothing_is_done() {
    let api = Api::watched(&["web-1"], false, DrainRequest::default());
    api.change(MAINTENANCE, &json!({"spec": {"windows": [{"schedule": "61 * * * *", "duration": "1h"}]}}));
    beside_a_guard(&api, async {
        reaches(&api, MAINTENANCE, "Waiting").await;
        assert!(why(&api, MAINTENANCE).starts_with("\"61 * * * *\" is no schedule"), "{}", why(&api, MAINTENANCE));
        assert!(is_as_before(&api));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_cordoned_before_its_drain_had_to_wait_stays_cordoned() {
    let api = Api::watched(&["web-1"], false, DrainRequest::default());
    api.change(MAINTENANCE, &json!({"spec": {"stage": "Cordon"}}));
    beside_a_guard(&api, async {
        reaches(&api, MAINTENANCE, "Cordoned").await;
        api.change(MAINTENANCE, &closed());
        api.change(MAINTENANCE, &json!({"spec": {"stage": "Drain"}}));
        until("the window is named", || why(&api, MAINTENANCE).starts_with("its next window opens at")).await;
        sleep(Duration::from_secs(100)).await;
        assert_eq!((state(&api, MAINTENANCE), is_cordoned(&api.object(NODE))), (json!("Cordoned"), true));
        assert_eq!(api.state().evicted.len(), 0);
        api.change(MAINTENANCE, &open());
        reaches(&api, MAINTENANCE, "Drained").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_of_its_author_is_no_proof_that_a_maintenance_has_begun() {
    let api = Api::watched(&["web-1"], false, DrainRequest::default());
    api.change(MAINTENANCE, &closed());
    api.change(MAINTENANCE, &json!({"spec": {"stage": "Cordon"}, "metadata": {"finalizers": [COMPLETION]}}));
    beside_a_guard(&api, async {
        reaches(&api, MAINTENANCE, "Waiting").await;
        sleep(Duration::from_secs(100)).await;
        assert!(is_as_before(&api));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_maintenance_of_next_week_does_not_limit_the_drain_of_today() {
    let minute = Some(Duration::from_secs(60));
    let api = Api::watched(&["db-1"], false, DrainRequest { force_after: minute, ..DrainRequest::default() });
    api.state().ask("other", DrainRequest::default());
    api.change("/apis/lifecycle.hactl.dev/v1alpha1/nodemaintenances/other", &closed());
    beside_a_guard(&api, async {
        reaches(&api, MAINTENANCE, "Drained").await;
        assert_eq!(api.state().deleted, ["db-1"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_waits_is_taken_back_while_its_rollout_is_paused() {
    let api = Api::watched(&["web-1"], false, DrainRequest::default());
    rolled_out(&api);
    api.change(ROLLOUT, &json!({"spec": {"approval": "EachNode"}}));
    beside_a_guard(&api, async {
        reaches(&api, CHILD, "Waiting").await;
        api.change(ROLLOUT, &json!({"spec": {"paused": true}}));
        until("it is taken back", || api.object(CHILD).is_null()).await;
        sleep(Duration::from_secs(60)).await;
        assert!(api.object(CHILD).is_null() && !is_cordoned(&api.object(NODE)));
        assert_eq!(state(&api, ROLLOUT), "Paused");
        api.change(ROLLOUT, &json!({"spec": {"paused": false}}));
        reaches(&api, CHILD, "Waiting").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_waits_for_its_approval_and_each_of_its_nodes_for_its_own() {
    for each in [false, true] {
        let api = Api::watched(&["web-1"], false, DrainRequest::default());
        rolled_out(&api);
        api.change(ROLLOUT, &json!({"spec": {"approval": if each { "EachNode" } else { "Once" }}}));
        beside_a_guard(&api, async {
            let (path, name) = if each { (CHILD, "kernel-w3") } else { (ROLLOUT, "kernel") };
            reaches(&api, path, "Waiting").await;
            assert_eq!(why(&api, path), format!("nobody has approved it yet: hactl maintain approve {name}"));
            sleep(Duration::from_secs(100)).await;
            assert!(!is_cordoned(&api.object(NODE)));
            assert_eq!(api.object(CHILD).is_null(), !each);
            api.change(path, &json!({"spec": {"approved": true}}));
            until("its Node begins", || is_cordoned(&api.object(NODE))).await;
        })
        .await;
    }
}

//! Guards that act on maintenances: which one does, what they wait for, and several maintenances of one Node.

use super::api::{Api, MAINTENANCE, NODE, Quiet, STANDS};
use super::*;
use crate::model::maintained::Maintained;
use crate::model::names::HostName;
use serde_json::Value;
use tokio::time::{sleep, timeout};

const OTHER: &str = "/apis/lifecycle.hactl.dev/v1alpha1/nodemaintenances/other";
/// Long enough for whatever the guards do in these tests.
const ENOUGH: Duration = Duration::from_secs(300);

pub fn worker(_: &HostName) -> Place {
    Place::default()
}

/// A guard that cannot know in which cluster of etcd it is; nobody asks what the maintenances come to.
pub fn knowing(places: Places<'_>) -> Guarding<'_> {
    Guarding { places, shows: &|_: Option<Maintained>| {}, cluster: &|| InCluster::Unknown }
}

/// The host of a guard that is not w3.
fn other() -> HostName {
    "cp1".parse().unwrap()
}

pub async fn guard(client: Client, name: &str) {
    control(&client, &Quiet, (name, &other()), knowing(&worker)).await;
}

pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let seen = async {
        while !holds() {
            sleep(Duration::from_millis(500)).await;
        }
    };
    timeout(ENOUGH, seen).await.unwrap_or_else(|_| panic!("{what}"));
}

pub fn state(api: &Api, path: &str) -> Value {
    api.object(path)["status"]["state"].clone()
}

pub async fn reaches(api: &Api, path: &str, wanted: &str) {
    let seen = timeout(ENOUGH, async {
        while state(api, path) != wanted {
            sleep(Duration::from_millis(500)).await;
        }
    });
    assert!(seen.await.is_ok(), "{path} is not {wanted}: {}", api.object(path));
}

/// Returns once the maintenance is completed, and its object may be deleted.
pub async fn ends(api: &Api) {
    reaches(api, MAINTENANCE, "Completed").await;
    until("the object is let go", || !api.is_held()).await;
}

/// Runs `work` beside one guard.
pub async fn beside_a_guard(api: &Api, work: impl Future<Output = ()>) {
    beside(api, &worker, work).await;
}

/// The same; what each Node is to the control plane.
pub async fn beside(api: &Api, places: Places<'_>, work: impl Future<Output = ()>) {
    let (client, own) = (api.client(), other());
    tokio::select! {
        () = Box::pin(control(&client, &Quiet, ("a", &own), knowing(places))) => unreachable!("it ends never"),
        () = work => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_killed_after_any_of_its_writes_is_replaced_and_the_node_ends_as_it_began() {
    let mut replaced = 0;
    for cordoned in [false, true] {
        for writes in 1.. {
            let api = Api::watched(&["web-1", "web-2"], cordoned, DrainRequest::default());
            let a = guard(api.killed_after(writes), "a");
            let b = async {
                sleep(Duration::from_secs(1)).await;
                guard(api.client(), "b").await;
            };
            let author = async {
                reaches(&api, MAINTENANCE, "Drained").await;
                assert!(is_cordoned(&api.object(NODE)), "after {writes} writes");
                api.change(MAINTENANCE, &json!({"spec": {"stage": "Complete"}}));
                ends(&api).await;
            };
            tokio::select! {
                () = a => unreachable!(),
                () = b => unreachable!(),
                () = author => {}
            }
            let node = api.object(NODE);
            assert_eq!(is_cordoned(&node), cordoned, "after {writes} writes");
            assert_eq!(CordonRecord::of(&node), None, "after {writes} writes");
            let lease = api.object("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/hactl-controllers");
            let by = lease["spec"]["holderIdentity"].clone();
            let state = api.state();
            assert!(state.pods.is_empty() && state.evicted.values().all(|times| *times == 1), "{:?}", state.evicted);
            if by == "a" {
                break;
            }
            assert_eq!(by, "b");
            replaced += 1;
        }
    }
    assert!(replaced > 20, "{replaced} guards were replaced");
}

#[tokio::test(start_paused = true)]
async fn the_work_on_a_node_costs_few_requests_besides_one_eviction_of_each_pod() {
    let pods: Vec<String> = (0..40).map(|n| format!("web-{n}")).collect();
    let names: Vec<&str> = pods.iter().map(String::as_str).collect();
    let api = Api::watched(&names, false, DrainRequest::default());
    let mut until_drained = 0;
    beside_a_guard(&api, async {
        reaches(&api, MAINTENANCE, "Drained").await;
        until_drained = for_the_node(&api).len();
        api.change(MAINTENANCE, &json!({"spec": {"stage": "Complete"}}));
        reaches(&api, MAINTENANCE, "Completed").await;
    })
    .await;
    let asked = for_the_node(&api);
    let evictions = asked.iter().filter(|one| one.ends_with("/eviction")).count();
    assert_eq!(evictions, 40);
    assert!(until_drained - evictions <= 26 && asked.len() - evictions <= 38, "{until_drained}: {asked:#?}");
}

/// What was asked for because of the Node, and not of the guard itself.
fn for_the_node(api: &Api) -> Vec<String> {
    let own = ["leases/hactl-controllers", "leases?", "rollouts", "/api/v1/nodes?limit"];
    let is_own = |one: &String| {
        own.iter().any(|part| one.contains(part)) || one.starts_with("WATCH") && !one.contains("fieldSelector")
    };
    api.state().asked.iter().filter(|one| !is_own(one)).cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn of_two_maintenances_the_stricter_one_says_what_happens_to_pods_and_the_last_one_restores_the_node() {
    let minute = Some(Duration::from_secs(60));
    let api = Api::watched(&["db-1"], false, DrainRequest { force_after: minute, ..DrainRequest::default() });
    api.state().ask("other", DrainRequest::default());
    beside_a_guard(&api, async {
        sleep(Duration::from_secs(200)).await;
        assert_eq!(api.state().deleted.len(), 0, "one of them does not ask for deletions");
        api.change(OTHER, &json!({"spec": {"stage": "Complete"}}));
        reaches(&api, OTHER, "Completed").await;
        assert!(is_cordoned(&api.object(NODE)), "the other one still needs it");
        reaches(&api, MAINTENANCE, "Drained").await;
        assert_eq!(api.state().deleted, ["db-1"]);
        api.change(MAINTENANCE, &json!({"spec": {"stage": "Complete"}}));
        reaches(&api, MAINTENANCE, "Completed").await;
        assert!(!is_cordoned(&api.object(NODE)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_would_be_lost_hold_a_maintenance_back_until_they_are_gone() {
    let api = Api::watched(&["bare", "web-1"], false, DrainRequest::default());
    beside_a_guard(&api, async {
        reaches(&api, MAINTENANCE, "Waiting").await;
        let waits = api.object(MAINTENANCE)["status"]["waitingFor"][0]["message"].clone();
        assert!(waits.as_str().unwrap().contains("shop/bare"), "{waits}");
        assert!(!is_cordoned(&api.object(NODE)));
        let written = api.object(MAINTENANCE)["metadata"]["resourceVersion"].clone();
        sleep(Duration::from_secs(120)).await;
        assert_eq!(api.object(MAINTENANCE)["metadata"]["resourceVersion"], written, "the same is not written again");
        api.state().pods.remove("bare");
        reaches(&api, MAINTENANCE, "Drained").await;
        assert_eq!(api.object(MAINTENANCE)["status"]["waitingFor"], json!([]));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_maintenance_that_may_not_begin_changes_nothing_and_says_why() {
    let api = Api::watched(&["web-1"], false, DrainRequest::default());
    let refuses = |_: &HostName| Place { needed: Some("EtcdFrozen of cp2".to_owned()), ..Place::default() };
    beside(&api, &refuses, reaches(&api, MAINTENANCE, "Waiting")).await;
    let object = api.object(MAINTENANCE);
    assert_eq!(object["status"]["waitingFor"][0]["message"], "EtcdFrozen of cp2");
    assert_eq!(object["metadata"]["finalizers"], Value::Null);
    assert!(!is_cordoned(&api.object(NODE)));
}

#[tokio::test(start_paused = true)]
async fn guards_leave_a_node_alone_on_which_a_command_acts() {
    let api = Api::watched(&["db-1"], false, DrainRequest::default());
    let (client, node, stop) = (api.client(), "w3".parse().unwrap(), CancellationToken::new());
    let mut command =
        Controller::elected(&client, (&Quiet, &stop), (&node, Place::default()), (&NoHosts, "command")).await.unwrap();
    beside_a_guard(&api, async {
        for _ in 0..40 {
            sleep(Duration::from_secs(2)).await;
            command.end_lost().await.expect("its Lease is renewed");
        }
        assert_eq!(api.object(MAINTENANCE)["status"], Value::Null);
        command.release().await.unwrap();
        reaches(&api, MAINTENANCE, "Blocked").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_was_given_up_is_tried_again_only_when_its_author_changes_it() {
    let drain = DrainRequest { give_up_after: Some(Duration::from_secs(60)), ..DrainRequest::default() };
    let api = Api::watched(&["db-1"], false, drain);
    beside_a_guard(&api, async {
        reaches(&api, MAINTENANCE, "Failed").await;
        let why = api.object(MAINTENANCE)["status"]["waitingFor"][0]["message"].clone();
        assert!(why.as_str().unwrap().contains("shop/db-1"), "{why}");
        until("it is restored", || !is_cordoned(&api.object(NODE))).await;
        api.state().pods.remove("db-1");
        sleep(Duration::from_secs(120)).await;
        assert_eq!(state(&api, MAINTENANCE), "Failed");
        api.change(MAINTENANCE, &json!({"spec": {"reason": "again"}}));
        reaches(&api, MAINTENANCE, "Drained").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_during_its_drain_ends_the_maintenance_and_a_deleted_object_restores_the_node() {
    let api = Api::watched(&["db-1"], false, DrainRequest::default());
    beside_a_guard(&api, async {
        reaches(&api, MAINTENANCE, "Blocked").await;
        api.state().remove(NODE);
        reaches(&api, MAINTENANCE, "Completed").await;
    })
    .await;

    let api = Api::watched(&["db-1"], false, DrainRequest::default());
    beside_a_guard(&api, async {
        reaches(&api, MAINTENANCE, "Blocked").await;
        api.change(MAINTENANCE, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        until("it is gone", || api.object(MAINTENANCE).is_null()).await;
        assert!(!is_cordoned(&api.object(NODE)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_command_follows_what_the_guards_do_and_notices_when_none_acts_any_more() {
    let api = Api::watched(&["web-1"], false, DrainRequest::default());
    let (client, stop) = (api.client(), CancellationToken::new());
    beside_a_guard(&api, async {
        reaches(&api, MAINTENANCE, "Drained").await;
        let elected = Elected::look(&client, None).await.unwrap().expect("a guard acts");
        let followed = follow(&client, (&Quiet, &stop), "w3", elected).await.unwrap();
        assert!(matches!(followed, Followed::Ended(Ended::Drained(_))));
    })
    .await;

    let api = Api::watched(&["db-1"], false, DrainRequest::default());
    let client = api.client();
    beside_a_guard(&api, reaches(&api, MAINTENANCE, "Blocked")).await;
    let elected = Elected::look(&client, None).await.unwrap().expect("its Lease is still there");
    let followed = timeout(ENOUGH, follow(&client, (&Quiet, &stop), "w3", elected)).await.expect("it is noticed");
    let Followed::Left(left) = followed.unwrap() else { panic!("nobody acts") };
    assert!(Elected::look(&client, Some(&left)).await.unwrap().is_none());
}

/// What w3 is to the control plane, if it belongs to it.
fn host_of_control_plane(_: &HostName) -> Place {
    Place { control_plane: Some(["cp1", "cp2", "w3"].map(|host| host.parse().unwrap()).into()), ..Place::default() }
}

#[tokio::test(start_paused = true)]
async fn of_a_control_plane_host_the_pod_leaves_first_that_stands_for_it_and_nothing_else_while_its_budget_refuses() {
    let api = Api::of_control_plane(&["web-1", "web-2"], true);
    api.state().refuses = true;
    let author = async {
        reaches(&api, MAINTENANCE, "Blocked").await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(api.state().order.len(), 0, "no pod was asked to leave");
        api.state().refuses = false;
        reaches(&api, MAINTENANCE, "Drained").await;
        let order = api.state().order.clone();
        assert_eq!((order[0].as_str(), order.len()), (STANDS, 3));
        assert_eq!(api.state().deleted.len(), 0);
        let hold = api.object(NODE)["metadata"]["annotations"]["hold.hactl.dev/maintenance"].clone();
        assert_eq!(hold, "NodeMaintenance w3");
        api.change(MAINTENANCE, &json!({"spec": {"stage": "Complete"}}));
        reaches(&api, MAINTENANCE, "Completed").await;
        let annotations = api.object(NODE)["metadata"]["annotations"].clone();
        assert_eq!(annotations, json!({}));
    };
    beside(&api, &host_of_control_plane, author).await;
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_host_waits_untouched_until_the_others_are_ready() {
    let api = Api::of_control_plane(&["web-1"], false);
    let author = async {
        reaches(&api, MAINTENANCE, "Waiting").await;
        sleep(Duration::from_secs(60)).await;
        let why = api.object(MAINTENANCE)["status"]["waitingFor"][0]["message"].clone();
        assert!(why.as_str().unwrap().contains("etcd or the API server of cp2 is not ready"), "{why}");
        assert!(!is_cordoned(&api.object(NODE)));
        assert_eq!(api.object(MAINTENANCE)["metadata"]["finalizers"], Value::Null);
        api.state().others.insert("cp2".to_owned(), true);
        reaches(&api, MAINTENANCE, "Drained").await;
        assert_eq!(api.state().order[0], STANDS);
    };
    beside(&api, &host_of_control_plane, author).await;
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_host_that_is_needed_meanwhile_is_not_drained_by_the_guard_that_takes_over() {
    let api = Api::of_control_plane(&["web-1"], true);
    api.state().refuses = true;
    let client = api.client();
    beside(&api, &host_of_control_plane, reaches(&api, MAINTENANCE, "Blocked")).await;
    let needed = |host: &HostName| Place { needed: Some("cp1 is not heard".to_owned()), ..host_of_control_plane(host) };
    let own = other();
    tokio::select! {
        () = control(&client, &Quiet, ("b", &own), knowing(&needed)) => unreachable!(),
        () = sleep(Duration::from_secs(200)) => {}
    }
    assert_eq!(api.state().order.len(), 0, "the pod that stands for the host is still there");
    assert_eq!(state(&api, MAINTENANCE), "Blocked");
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_pod_left_is_not_called_drained_while_another_one_is_not_ready() {
    let api = Api::of_control_plane(&["db-1"], true);
    let author = async {
        reaches(&api, MAINTENANCE, "Blocked").await;
        assert_eq!(api.state().order, [STANDS]);
        api.state().others.insert("cp2".to_owned(), false);
        api.state().pods.remove("db-1");
        reaches(&api, MAINTENANCE, "Waiting").await;
        sleep(Duration::from_secs(100)).await;
        assert_eq!(state(&api, MAINTENANCE), "Waiting");
        assert!(is_cordoned(&api.object(NODE)));
        api.state().others.insert("cp2".to_owned(), true);
        reaches(&api, MAINTENANCE, "Drained").await;
    };
    beside(&api, &host_of_control_plane, author).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_would_be_lost_and_comes_during_the_drain_is_in_its_way_and_its_time_runs() {
    let drain = DrainRequest { give_up_after: Some(Duration::from_secs(120)), ..DrainRequest::default() };
    let api = Api::watched(&["db-1"], false, drain);
    beside_a_guard(&api, async {
        reaches(&api, MAINTENANCE, "Blocked").await;
        let bare = json!({"metadata": {"name": "bare", "namespace": "shop", "uid": "bare"}});
        api.state().pods.insert("bare".to_owned(), bare);
        api.state().pods.remove("db-1");
        until("it is named", || api.object(MAINTENANCE)["status"]["drain"]["blocked"][0]["pod"] == "shop/bare").await;
        assert_eq!(state(&api, MAINTENANCE), "Blocked");
        reaches(&api, MAINTENANCE, "Failed").await;
        assert_eq!(api.state().deleted.len(), 0);
        until("it is restored", || !is_cordoned(&api.object(NODE))).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_object_vanished_without_its_finalizer_is_restored() {
    let api = Api::watched(&["db-1"], false, DrainRequest::default());
    beside_a_guard(&api, async {
        reaches(&api, MAINTENANCE, "Blocked").await;
        api.state().remove(MAINTENANCE);
        until("it is restored", || !is_cordoned(&api.object(NODE))).await;
    })
    .await;
}

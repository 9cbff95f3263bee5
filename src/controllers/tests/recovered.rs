//! Guards after a recovery of etcd: they wait for a person.

use super::api::{Api, MAINTENANCE, NODE, Quiet};
use super::guards::{knowing, reaches, until, worker};
use super::*;
use crate::model::names::HostName;
use std::sync::Mutex;
use tokio::time::sleep;

const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/hactl-controllers";

/// Runs `work` beside a guard in a cluster that changes.
async fn beside(api: &Api, cluster: &Mutex<InCluster>, work: impl Future<Output = ()>) {
    let (client, own): (_, HostName) = (api.client(), "cp1".parse().unwrap());
    let now = || cluster.lock().unwrap().clone();
    let knows = Guarding { cluster: &now, ..knowing(&worker) };
    tokio::select! {
        () = control(&client, &Quiet, ("a", &own), knows) => unreachable!("it ends never"),
        () = work => {}
    }
}

/// The ConfigMap as `hactl up` creates it.
fn noting(api: &Api) {
    let metadata = json!({"name": "hactl-controllers", "namespace": "kube-system", "resourceVersion": "1"});
    api.state().put(CONFIG_MAP, json!({"metadata": metadata}));
}

fn of(id: &str) -> InCluster {
    InCluster::Of(id.to_owned())
}

#[tokio::test(start_paused = true)]
async fn after_a_recovery_nothing_is_done_until_a_person_lets_maintenances_go_on() {
    let api = Api::watched(&["web-1"], false, DrainRequest::default());
    let object = api.object(MAINTENANCE);
    api.state().remove(MAINTENANCE);
    noting(&api);
    let cluster = Mutex::new(of("a1"));
    let soon = || tokio::time::Instant::now() + GRACE;
    beside(&api, &cluster, async {
        until("the cluster is noted", || api.object(CONFIG_MAP)["data"]["cluster"] == "a1").await;
        assert!(!waits_after_recovery(&api.client(), soon()).await.unwrap());
        // etcd is recovered while the guard acts: its member is in another cluster, and the objects are old ones.
        *cluster.lock().unwrap() = of("b2");
        api.state().put(MAINTENANCE, object);
        until("a person can see it", || api.object(CONFIG_MAP)["data"]["recovered"] == "b2").await;
        sleep(Duration::from_secs(300)).await;
        assert!(!is_cordoned(&api.object(NODE)) && api.state().evicted.is_empty());
        assert!(waits_after_recovery(&api.client(), soon()).await.unwrap());
        assert!(resume_after_recovery(&api.client(), soon()).await.unwrap());
        reaches(&api, MAINTENANCE, "Drained").await;
        assert!(!waits_after_recovery(&api.client(), soon()).await.unwrap());
        assert!(!resume_after_recovery(&api.client(), soon()).await.unwrap());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_older_than_the_note_of_the_cluster_came_with_a_snapshot() {
    let api = Api::watched(&["web-1"], false, DrainRequest::default());
    noting(&api);
    api.change(CONFIG_MAP, &json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}));
    beside(&api, &Mutex::new(of("b2")), async {
        until("a person can see it", || api.object(CONFIG_MAP)["data"]["recovered"] == "b2").await;
        sleep(Duration::from_secs(100)).await;
        assert!(!is_cordoned(&api.object(NODE)));
        assert!(resume_after_recovery(&api.client(), tokio::time::Instant::now() + GRACE).await.unwrap());
        reaches(&api, MAINTENANCE, "Drained").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_guard_whose_host_has_no_member_of_etcd_leaves_the_lease_to_others() {
    let api = Api::watched(&["web-1"], false, DrainRequest::default());
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/hactl-controllers";
    noting(&api);
    let cluster = Mutex::new(InCluster::None);
    beside(&api, &cluster, async {
        sleep(Duration::from_secs(60)).await;
        assert!(api.object(lease).is_null() && !is_cordoned(&api.object(NODE)));
        *cluster.lock().unwrap() = of("a1");
        reaches(&api, MAINTENANCE, "Drained").await;
        *cluster.lock().unwrap() = InCluster::None;
        until("it leaves the Lease", || api.object(lease).is_null()).await;
    })
    .await;
}

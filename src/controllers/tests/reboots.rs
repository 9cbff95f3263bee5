//! Reboots of a host: by its node agent or by a command, asked for once whatever happens, and beside other maintenances.

use super::api::{Api, MAINTENANCE, NODE, Quiet};
use super::guards::{beside_a_guard, ends, guard, knowing, reaches, state, until, worker};
use super::*;
use crate::kube::KnownNode;
use crate::model::boot::{Boot, BootId, announcement, asks};
use crate::model::maintenance::{CONTROLLERS_LEASE, Maintenance, RebootRequest};
use crate::model::names::HostName;
use crate::model::node::NodeFact;
use futures::future::BoxFuture;
use serde_json::Value;
use std::sync::Mutex;
use tokio::time::sleep;

const OTHER: &str = "/apis/lifecycle.hactl.dev/v1alpha1/nodemaintenances/other";
const CHILD: &str = "/apis/lifecycle.hactl.dev/v1alpha1/nodemaintenances/kernel-w3";
const ROLLOUT: &str = "/apis/lifecycle.hactl.dev/v1alpha1/nodemaintenancerollouts/kernel";
const KERNEL: &str = "6f1c2a34-93e9-4c7a-8e34-0f2f4f6f7b10";
const LONG_AGO: &str = "2026-01-01T00:00:00Z";
/// How long the host takes to boot.
const BOOTS: Duration = Duration::from_secs(40);

/// The machine of w3: how often it has booted, and how often it was asked to.
struct Machine {
    api: Api,
    boots: Mutex<i64>,
    asked: Mutex<usize>,
}

impl Machine {
    fn of(api: &Api) -> Self {
        let machine = Self { api: api.clone(), boots: Mutex::new(1), asked: Mutex::new(0) };
        machine.is_ready("True");
        machine
    }

    fn boot(&self) -> BootId {
        BootId::new(KERNEL, *self.boots.lock().unwrap()).unwrap()
    }

    fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }

    fn is_ready(&self, ready: &str) {
        let minute = *self.boots.lock().unwrap();
        let heard = format!("2026-01-01T00:{minute:02}:30Z");
        let condition = json!({"type": "Ready", "status": ready, "lastHeartbeatTime": heard, "message": ""});
        let others = self.api.object(NODE)["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let others = others.into_iter().filter(|one| one["type"] != "Ready");
        let all: Vec<Value> = others.chain([condition]).collect();
        self.api.change(NODE, &json!({"status": {"conditions": all, "nodeInfo": {"bootID": KERNEL}}}));
    }

    async fn reboots(&self) {
        *self.asked.lock().unwrap() += 1;
        self.is_ready("Unknown");
        sleep(BOOTS).await;
        *self.boots.lock().unwrap() += 1;
        self.is_ready("True");
    }

    /// The node agent on it.
    async fn agent(&self) {
        let own: HostName = "w3".parse().unwrap();
        loop {
            sleep(Duration::from_secs(1)).await;
            let node = self.api.object(NODE);
            if let Some(patch) = announcement(&node, &self.boot(), false) {
                self.api.change(NODE, &patch);
            }
            let objects = [MAINTENANCE, OTHER, CHILD].map(|path| Maintenance::of(&self.api.object(path)));
            if objects.iter().flatten().any(|one| asks(one, &own, &self.boot())) {
                self.reboots().await;
            }
        }
    }
}

/// The machine, as a command reaches it.
struct Reached(std::sync::Arc<Machine>);

impl Hosts for Reached {
    fn boot<'a>(&'a self, _: &'a HostName) -> BoxFuture<'a, Result<Boot, String>> {
        let minute = *self.0.boots.lock().unwrap();
        let since = NodeFact::of(&self.0.api.object(NODE)).unwrap();
        let down = *self.0.asked.lock().unwrap() >= usize::try_from(minute).unwrap();
        let boot = Boot { id: self.0.boot(), since_ms: since.heard_ms };
        Box::pin(async move { if down { Err("it is down".to_owned()) } else { Ok(boot) } })
    }

    fn reboot<'a>(&'a self, _: &'a HostName, boot: &'a BootId) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            if self.0.boot() != *boot {
                return Err("it has booted since".to_owned());
            }
            let machine = std::sync::Arc::clone(&self.0);
            tokio::spawn(async move { machine.reboots().await });
            Ok(())
        })
    }
}

fn api(pods: &[&str], request: &RebootRequest) -> Api {
    let api = Api::watched(pods, false, DrainRequest::default());
    api.state().reboot("w3", request);
    api
}

fn uncordoned(api: &Api) {
    let node = api.object(NODE);
    assert!(!is_cordoned(&node));
    assert_eq!(CordonRecord::of(&node), None);
    assert!(!api.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_killed_after_any_of_its_writes_is_replaced_and_the_host_reboots_once() {
    let mut replaced = 0;
    for writes in 1.. {
        let api = api(&["web-1"], &RebootRequest::default());
        let machine = Machine::of(&api);
        let b = async {
            sleep(Duration::from_secs(1)).await;
            guard(api.client(), "b").await;
        };
        let author = async {
            ends(&api).await;
        };
        tokio::select! {
            () = guard(api.killed_after(writes), "a") => unreachable!(),
            () = b => unreachable!(),
            () = machine.agent() => unreachable!(),
            () = author => {}
        }
        assert_eq!(machine.asked(), 1, "after {writes} writes");
        assert_eq!(api.state().evicted.get("web-1"), Some(&1), "after {writes} writes");
        uncordoned(&api);
        assert_eq!(api.object(MAINTENANCE)["status"]["reboot"]["newBoot"], json!(machine.boot()));
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{CONTROLLERS_LEASE}");
        if api.object(&lease)["spec"]["holderIdentity"] == "a" {
            break;
        }
        replaced += 1;
    }
    assert!(replaced > 20, "{replaced} guards were replaced");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_is_killed_after_any_of_its_writes_is_continued_and_the_host_reboots_once() {
    let mut killed = 0;
    for writes in 1.. {
        let api = api(&["web-1"], &RebootRequest::default());
        let machine = Reached(std::sync::Arc::new(Machine::of(&api)));
        let (stop, node) = (CancellationToken::new(), "w3".parse().unwrap());
        let run = async |client: &Client, holder: &str| {
            let place = (&node, Place::default());
            let mut controller = Controller::elected(client, (&Quiet, &stop), place, (&machine, holder)).await?;
            let result = controller.run("w3").await;
            controller.release().await?;
            result
        };
        let first = run(&api.killed_after(writes), "a").await;
        let second = run(&api.client(), "b").await;
        assert_eq!(second.expect("another process continues"), Ended::Rebooted, "after {writes} writes");
        assert_eq!(machine.0.asked(), 1, "after {writes} writes");
        uncordoned(&api);
        if first.is_ok() {
            break;
        }
        killed += 1;
    }
    assert!(killed > 10, "{killed} processes were killed");
}

#[tokio::test(start_paused = true)]
async fn a_host_without_a_node_agent_stays_drained_and_its_status_says_so_until_there_is_one() {
    let api = api(&["web-1"], &RebootRequest::default());
    let machine = Machine::of(&api);
    beside_a_guard(&api, async {
        let why = || api.object(MAINTENANCE)["status"]["waitingFor"][0]["message"].to_string();
        until("it says why", || why().contains("no node agent on w3")).await;
        assert_eq!(state(&api, MAINTENANCE), "Drained");
        let written = api.object(MAINTENANCE)["metadata"]["resourceVersion"].clone();
        sleep(Duration::from_secs(120)).await;
        assert_eq!(api.object(MAINTENANCE)["metadata"]["resourceVersion"], written, "the same is not written again");
        tokio::select! {
            () = machine.agent() => unreachable!(),
            () = reaches(&api, MAINTENANCE, "Completed") => {}
        }
        assert_eq!(machine.asked(), 1);
        sleep(Duration::from_secs(60)).await;
        api.change(MAINTENANCE, &json!({"spec": {"reason": "another one"}}));
        tokio::select! {
            () = machine.agent() => unreachable!(),
            () = sleep(Duration::from_secs(120)) => {}
        }
        assert_eq!(machine.asked(), 1, "a reboot that is done is not repeated");
        uncordoned(&api);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_is_not_asked_while_a_person_works_on_it_or_holds_it_or_up_drains_it() {
    let held = json!({"metadata": {"annotations": {"hold.hactl.dev/ops": "disk"}}});
    let given_up = json!({"metadata": {"annotations": {"hold.hactl.dev/ops": null}}});
    let api = api(&[], &RebootRequest::default());
    api.state().ask("other", DrainRequest::default());
    let machine = Machine::of(&api);
    api.change(NODE, &held);
    let person = async {
        let why = || api.object(MAINTENANCE)["status"]["waitingFor"][0]["message"].to_string();
        until("it is held", || why().contains("hold.hactl.dev/ops of the Node w3")).await;
        reaches(&api, OTHER, "Drained").await;
        api.change(NODE, &given_up);
        until("a person works on it", || why().contains("NodeMaintenance other is under way as well")).await;
        let until_then = tokio::time::Instant::now() + GRACE;
        let up = crate::model::cordon::Holder::Up;
        let mut node = KnownNode::new(&"w3".parse().unwrap());
        api.client().cordon(&mut node, (&up, &[]), until_then).await.unwrap();
        api.change(OTHER, &json!({"spec": {"stage": "Complete"}}));
        until("up works on it", || why().contains("hactl up")).await;
        assert_eq!(machine.asked(), 0);
        let until_then = tokio::time::Instant::now() + GRACE;
        api.client().uncordon(&mut node, &up, false, until_then).await.unwrap();
        reaches(&api, MAINTENANCE, "Completed").await;
        assert_eq!(machine.asked(), 1);
        uncordoned(&api);
    };
    Box::pin(beside_a_guard(&api, async {
        tokio::select! {
            () = machine.agent() => unreachable!(),
            () = person => {}
        }
    }))
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_host_has_not_obeyed_is_taken_back_while_it_is_held_and_made_again() {
    let api = api(&[], &RebootRequest::default());
    let machine = Machine::of(&api);
    // Its node agent says how it runs, and does not obey.
    api.change(NODE, &announcement(&api.object(NODE), &machine.boot(), false).unwrap());
    beside_a_guard(&api, async {
        reaches(&api, MAINTENANCE, "Rebooting").await;
        api.change(NODE, &json!({"metadata": {"annotations": {"hold.hactl.dev/ops": "stop"}}}));
        reaches(&api, MAINTENANCE, "Drained").await;
        assert_eq!(api.object(MAINTENANCE)["status"]["reboot"], Value::Null);
        assert!(is_cordoned(&api.object(NODE)));
        api.change(NODE, &json!({"metadata": {"annotations": {"hold.hactl.dev/ops": null}}}));
        tokio::select! {
            () = machine.agent() => unreachable!(),
            () = reaches(&api, MAINTENANCE, "Completed") => {}
        }
        assert_eq!(machine.asked(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn of_two_reboots_of_a_node_one_comes_after_the_other() {
    let api = api(&["web-1"], &RebootRequest::default());
    api.state().reboot("other", &RebootRequest::default());
    let machine = Machine::of(&api);
    beside_a_guard(&api, async {
        let both = async {
            reaches(&api, OTHER, "Completed").await;
            reaches(&api, MAINTENANCE, "Completed").await;
        };
        tokio::select! {
            () = machine.agent() => unreachable!(),
            () = both => {}
        }
        assert_eq!(machine.asked(), 2);
        uncordoned(&api);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_not_back_in_time_stays_cordoned_and_its_maintenance_goes_on_when_it_is() {
    for then_heal in [false, true] {
        let api = api(&["web-1"], &RebootRequest { then_heal, ..RebootRequest::default() });
        let machine = Machine::of(&api);
        beside_a_guard(&api, async {
            tokio::select! {
                () = machine.agent() => unreachable!(),
                () = reaches(&api, MAINTENANCE, "Rebooting") => {}
            }
            assert_eq!(api.object(MAINTENANCE)["status"]["conditions"][2]["status"], "True", "it is drained as well");
            api.change(MAINTENANCE, &json!({"status": {"reboot": {"requestTime": LONG_AGO}}}));
            reaches(&api, MAINTENANCE, "Overdue").await;
            let node = api.object(NODE);
            assert!(is_cordoned(&node));
            let is_shielded = node["metadata"]["annotations"]["hold.hactl.dev/maintenance"].is_string();
            assert_eq!(is_shielded, !then_heal);
            tokio::select! {
                () = machine.agent() => unreachable!(),
                () = reaches(&api, MAINTENANCE, "Completed") => {}
            }
            uncordoned(&api);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_maintenance_that_is_called_off_while_its_host_boots_ends_at_once() {
    let api = api(&[], &RebootRequest::default());
    let machine = Machine::of(&api);
    beside_a_guard(&api, async {
        tokio::select! {
            () = machine.agent() => unreachable!(),
            () = reaches(&api, MAINTENANCE, "Rebooting") => {}
        }
        api.change(MAINTENANCE, &json!({"spec": {"stage": "Complete"}}));
        reaches(&api, MAINTENANCE, "Completed").await;
        uncordoned(&api);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_guard_leaves_the_reboot_of_its_own_host_to_another_one_if_there_is_one() {
    for others in [true, false] {
        let api = api(&[], &RebootRequest::default());
        let machine = Machine::of(&api);
        let (client, own) = (api.client(), "w3".parse().unwrap());
        let other = async {
            if !others {
                std::future::pending::<()>().await;
            }
            sleep(Duration::from_secs(1)).await;
            guard(api.client(), "b").await;
        };
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{CONTROLLERS_LEASE}");
        let author = async {
            until("it reboots", || machine.asked() == 1).await;
            let by = if others { "b" } else { "a" };
            assert_eq!(api.object(&lease)["spec"]["holderIdentity"], by);
            reaches(&api, MAINTENANCE, "Completed").await;
        };
        tokio::select! {
            () = control(&client, &Quiet, ("a", &own), knowing(&worker)) => unreachable!(),
            () = other => unreachable!(),
            () = machine.agent() => unreachable!(),
            () = author => {}
        }
        uncordoned(&api);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollout_has_each_node_reboot_once_and_is_complete_also_if_the_guard_is_killed_after_any_of_its_writes() {
    let mut replaced = 0;
    for writes in 1.. {
        let api = api(&["web-1"], &RebootRequest::default());
        api.state().remove(MAINTENANCE);
        api.state().roll_out("kernel");
        let machine = Machine::of(&api);
        let b = async {
            sleep(Duration::from_secs(1)).await;
            guard(api.client(), "b").await;
        };
        tokio::select! {
            () = guard(api.killed_after(writes), "a") => unreachable!(),
            () = b => unreachable!(),
            () = machine.agent() => unreachable!(),
            () = reaches(&api, ROLLOUT, "Completed") => {}
        }
        assert_eq!(machine.asked(), 1, "after {writes} writes");
        let status = api.object(ROLLOUT)["status"].clone();
        assert_eq!((&status["progress"], &status["nodes"]["waiting"]), (&json!("1/1"), &json!(0)), "{status}");
        assert_eq!(api.object(CHILD)["metadata"]["labels"]["lifecycle.hactl.dev/rollout"], "kernel");
        assert!(!is_cordoned(&api.object(NODE)));
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{CONTROLLERS_LEASE}");
        if api.object(&lease)["spec"]["holderIdentity"] == "a" {
            break;
        }
        replaced += 1;
    }
    assert!(replaced > 15, "{replaced} guards were replaced");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_needed_by_then_stays_drained() {
    let api = api(&[], &RebootRequest::default());
    let machine = Machine::of(&api);
    let needed = Mutex::new(None);
    let places = |_: &HostName| Place { needed: needed.lock().unwrap().clone(), ..Place::default() };
    let author = async {
        reaches(&api, MAINTENANCE, "Drained").await;
        *needed.lock().unwrap() = Some("cp2 is not heard".to_owned());
        sleep(Duration::from_secs(60)).await;
        assert_eq!((state(&api, MAINTENANCE), machine.asked()), (json!("Drained"), 0));
        let why = api.object(MAINTENANCE)["status"]["waitingFor"][0]["message"].clone();
        assert_eq!(why, "w3 is not asked to reboot: cp2 is not heard");
        *needed.lock().unwrap() = None;
        reaches(&api, MAINTENANCE, "Completed").await;
    };
    let both = async {
        tokio::select! {
            () = machine.agent() => unreachable!(),
            () = author => {}
        }
    };
    super::guards::beside(&api, &places, both).await;
}

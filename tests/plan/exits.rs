//! Exit codes, end to end without a host: the engine works on the simulated world, and hactl's own table turns the end
//! of a command into a code.

use crate::sim::agent::SimNetwork;
use crate::sim::api::SimApi;
use crate::sim::effect::Effect;
use crate::sim::live::{Live, Shared};
use crate::sim::run::{Nobody, contents};
use crate::sim::{Script, World, make};
use crate::{Shape, converged};
use hactl::cli::failure_verdict;
use hactl::execute::{ConnectApi, Recoveries};
use hactl::model::attached::Attached;
use hactl::model::desired::{Desired, Role};
use hactl::model::event::Sink;
use hactl::model::facts::{ClusterId, Facts};
use hactl::model::names::{Digest, HostName};
use hactl::model::plan::Plan;
use hactl::model::target::{CertSpec, Target};
use hactl::observe::{Answers, Queries, QueryScope, Wait};
use hactl::plan::Intent;
use hactl::reconcile::{Authority, Choices, Failure, Files, Fleet, KnownHost, Round, Run};
use hactl::report::{Exit, FailureKind, Verdict};
use hactl::transport::Connect;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// The simulated world's administrator.
struct SimAuthority {
    live: Shared,
    attached: Attached,
}

impl Authority for SimAuthority {
    fn queries(&self, desired: &Arc<Desired>) -> Result<Queries, Failure> {
        Ok(self.live.lock().expect("no panic holds it").world.queries(desired))
    }
    fn target(&self, _: &Desired, _: &Answers, _: &BTreeMap<HostName, String>) -> Result<(Target, Files), Failure> {
        let target = self.live.lock().expect("no panic holds it").world.target.clone();
        let files = contents(&target);
        Ok((target, files))
    }
    fn complete(&self, _: &Desired, _: &mut Facts) -> Result<(), Failure> {
        Ok(())
    }
    fn intent(&self, _: &ClusterId) -> Result<Intent, Failure> {
        Ok(self.live.lock().expect("no panic holds it").world.intent.clone())
    }
    fn bootstrap_token(&self) -> Result<String, Failure> {
        Ok("token-1".to_owned())
    }
    fn known_hosts(&self) -> Result<Vec<KnownHost>, Failure> {
        Ok(Vec::new())
    }
    fn warnings(&self, _: &Desired) -> Vec<String> {
        Vec::new()
    }
    fn attached(&self) -> &Attached {
        &self.attached
    }
    fn sign(&self, _: &CertSpec, _: &str) -> Result<String, String> {
        Ok("certificate".to_owned())
    }
    fn artifact(&self, _: &Desired, _: &Digest) -> Result<PathBuf, String> {
        Ok(PathBuf::new())
    }
    fn record(&self, _: &str, _: i64) -> Result<(), String> {
        let mut live = self.live.lock().expect("no panic holds it");
        live.happen(&Effect::BootstrapRecorded).map_err(Option::unwrap_or_default)
    }
    fn recoveries(&self) -> Recoveries {
        Recoveries::of(Path::new("/nowhere"), Path::new("/nowhere/identity.txt"))
    }
    fn access(&self) -> Result<Arc<dyn ConnectApi>, Failure> {
        Ok(Arc::new(SimApi(Arc::clone(&self.live))))
    }
}

/// The common part of commands: the lock, a round, and the plan of that round.
async fn planned(fleet: &mut Fleet, authority: &Arc<dyn Authority>) -> Result<(Round, Plan), Failure> {
    fleet.lock("up").await?;
    let round = Round::take(fleet, &**authority, Wait::ForAll).await?;
    round.planned(fleet, &**authority, &Choices::default(), Wait::ForAll).await
}

/// Runs a command on a world. A failure gets the same exit code as in the program.
fn exit<F>(world: World, command: impl FnOnce(Fleet, Arc<dyn Authority>) -> F) -> u8
where
    F: Future<Output = Result<Exit, Failure>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let desired = Arc::new(world.desired.clone());
        let live: Shared = Arc::new(Mutex::new(Live::new(world, &Script::default())));
        let connect: Arc<dyn Connect> = Arc::new(SimNetwork(Arc::clone(&live)));
        let authority: Arc<dyn Authority> = Arc::new(SimAuthority { live, attached: Attached::default() });
        let sink: Arc<dyn Sink> = Arc::new(Nobody);
        let done = async {
            let fleet = Fleet::open(desired, &connect, 32, sink, CancellationToken::new()).await?;
            command(fleet, authority).await
        };
        done.await.unwrap_or_else(|failure| failure_verdict(&failure.into()).exit).code()
    })
}

/// `hactl plan --exit-code`.
fn plan(world: World) -> u8 {
    exit(world, async |mut fleet: Fleet, authority| {
        let (_, plan) = planned(&mut fleet, &authority).await?;
        Ok(Exit::of_plan(!plan.is_empty()))
    })
}

/// `hactl status`.
fn status(world: World) -> u8 {
    exit(world, async |fleet: Fleet, authority: Arc<dyn Authority>| {
        let round = Round::with(&fleet, &*authority, Wait::ForAll, QueryScope::Presented).await?;
        let checks = round.checks(&fleet).await;
        Ok(Exit::of_checks(checks.iter().map(|check| check.outcome).max().expect("there are checks")))
    })
}

/// One round of `hactl up`.
fn up(world: World) -> u8 {
    exit(world, async |mut fleet: Fleet, authority: Arc<dyn Authority>| {
        let (round, plan) = planned(&mut fleet, &authority).await?;
        Run::new(authority).run(&fleet, round, &plan).await?;
        Ok(Exit::Done)
    })
}

fn cp(n: u8) -> HostName {
    make::host_name(&format!("cp{n}"))
}

#[test]
fn nothing_to_do_and_everything_done_exit_with_0_and_pending_changes_with_5() {
    assert_eq!(plan(converged(Shape::Stacked(3))), 0);
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.manifests += 1);
    assert_eq!(plan(world.clone()), 5);
    assert_eq!(up(world), 0);
}

#[test]
fn a_failed_step_exits_with_1() {
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.addons += 1);
    // Applying objects requires an API server, and none comes back: the balancers for etcd are lost after planning.
    let failed = exit(world, async |mut fleet: Fleet, authority: Arc<dyn Authority>| {
        let (round, plan) = planned(&mut fleet, &authority).await?;
        fleet.machines.clear();
        Run::new(authority).run(&fleet, round, &plan).await?;
        Ok(Exit::Done)
    });
    assert_eq!(failed, 1);
}

#[test]
fn an_invalid_inventory_exits_with_2() {
    let error = hactl::inventory::parse("schema: 1\nhosts: []\n", Path::new(".")).expect_err("no host");
    assert_eq!(Verdict::of(&FailureKind::Inventory, Some(&error)).exit.code(), 2);
}

#[test]
fn a_refusal_exits_with_3() {
    let mut world = converged(Shape::Stacked(3));
    world.wipe(&cp(1));
    world.wipe(&cp(2));
    assert_eq!(up(world.clone()), 3, "quorum is lost: up restores nothing");
    assert_eq!(plan(world), 3);
}

#[test]
fn a_default_of_another_minor_version_makes_plan_and_up_exit_with_3_and_does_not_change_the_exit_code_of_status() {
    let mut world = converged(Shape::Stacked(3));
    let before = status(world.clone());
    world.desired.versions.is_default = true;
    world.kubernetes("1.37.2");
    assert_eq!((plan(world.clone()), up(world.clone()), status(world)), (3, 3, before));
}

#[test]
fn a_member_that_is_busy_at_one_look_causes_no_refusal_and_one_that_stays_silent_does() {
    let mut world = converged(Shape::Stacked(3));
    world.reassign(&cp(3), &[Role::ControlPlane, Role::LoadBalancer]);
    world.host_mut(&cp(2)).busy = 1;
    assert_eq!(plan(world.clone()), 5, "the member of cp3 is removed");
    world.host_mut(&cp(2)).busy = u32::MAX;
    assert_eq!(plan(world), 3, "one healthy member of two would be left");
}

#[test]
fn a_cluster_that_serves_with_a_host_off_exits_with_4_and_one_without_quorum_with_7() {
    let mut world = converged(Shape::Stacked(3));
    world.power_off(&cp(3));
    assert_eq!(status(world.clone()), 4);
    world.power_off(&cp(2));
    assert_eq!(status(world), 7);
}

#[test]
fn a_lock_held_by_another_run_exits_with_6() {
    let mut world = converged(Shape::Stacked(3));
    world.host_mut(&cp(2)).lock = Some("somebody else".to_owned());
    assert_eq!(plan(world), 6);
}

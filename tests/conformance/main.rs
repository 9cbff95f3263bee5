//! The simulated host and the real one run the same operations, and must report the same facts after each of them.
//!
//! The planner is verified with `sim`, which proves nothing where `sim` differs from `hactl host`. In: random
//! operations of a plan, crashes between them, other runs, and people who edit files and lose disks meanwhile. Out: for
//! each, both accept or both refuse, and both then report the same facts. The real side is `hactl host` itself in a
//! directory that stands for a host; what that cannot have (systemd, a running etcd, the API) is tested in the lab
//! instead. All intended differences are listed in `conformance/compare.rs`.

mod act;
mod compare;
mod fixture;
mod place;
mod play;
#[path = "../sim/mod.rs"]
mod sim;
mod tamper;

use act::{Act, How, InitialClusterState, Start, story};
use hactl::model::target::FileSet;
use play::Both;
use proptest::prelude::*;
use std::sync::{Mutex, PoisonError};
use tamper::Tamper;

/// Plays a story in both worlds, one story at a time: a child that was forked for one host holds the lock files of all
/// hosts in this process until it runs its program.
fn play(acts: &[Act]) -> Result<(), String> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut both = Both::new().await;
        for (at, act) in acts.iter().enumerate() {
            let played = both.play(act).await;
            let agreed = match played {
                Ok(()) => both.agree().await,
                disagreement => disagreement,
            };
            agreed.map_err(|why| format!("after {act:?}, the {at}th of {acts:?}: {why}"))?;
        }
        Ok(())
    })
}

proptest! {
    #![proptest_config(sim::config(60, 400))]

    #[test]
    fn the_simulated_host_and_the_real_one_agree_after_every_operation(acts in story()) {
        play(&acts).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn both_hosts_agree_on_a_member_that_starts_is_archived_and_starts_again() {
    let mut acts = act::opening(Start::Member);
    acts.extend([
        Act::MarkBootstrapped,
        Act::Start(InitialClusterState::New(0)),
        Act::Start(InitialClusterState::Existing),
        Act::ArchiveDataUnderEtcd,
        Act::ArchiveData,
        Act::MarkBootstrapped,
        Act::Start(InitialClusterState::Restart),
        Act::Start(InitialClusterState::New(1)),
        Act::Tamper(Tamper::DataLost),
        Act::Start(InitialClusterState::Existing),
        Act::Wipe { delete: false },
        Act::ClusterId,
    ]);
    assert_eq!(play(&acts), Ok(()));
}

#[test]
fn both_hosts_agree_on_a_part_that_is_cut_off_resumed_damaged_and_tampered_with() {
    let mut acts = act::opening(Start::Prepared);
    for part in ["kubelet", "kube-apiserver"] {
        let deliver = |how| Act::Deliver { part, how };
        acts.extend([deliver(How::CutOff(100)), deliver(How::CutOff(30)), deliver(How::Whole), deliver(How::Damaged)]);
        acts.extend([Act::Tamper(Tamper::PartFlipped(part)), deliver(How::CutOff(200)), deliver(How::Damaged)]);
        acts.extend([deliver(How::Whole), Act::Tamper(Tamper::PartMode(part)), deliver(How::Whole)]);
    }
    acts.push(Act::Tamper(Tamper::LinkGone));
    acts.push(Act::Deliver { part: fixture::LINKED, how: How::CutOff(9) });
    assert_eq!(play(&acts), Ok(()));
}

#[test]
fn both_hosts_agree_on_an_initial_member_whose_etcd_never_starts_and_which_then_joins() {
    let mut acts = act::opening(Start::Prepared);
    acts.extend([
        Act::Start(InitialClusterState::New(0)),
        Act::Start(InitialClusterState::Existing),
        Act::Start(InitialClusterState::Restart),
    ]);
    assert_eq!(play(&acts), Ok(()));
}

#[test]
fn both_hosts_agree_on_a_bootstrapped_marker_that_outlives_its_member() {
    let mut acts = act::opening(Start::Member);
    acts.extend([
        Act::MarkBootstrapped,
        Act::Tamper(Tamper::MemberGone),
        Act::Start(InitialClusterState::New(0)),
        Act::Start(InitialClusterState::New(1)),
        Act::Tamper(Tamper::DataOfAnother),
        Act::MarkBootstrapped,
        Act::Start(InitialClusterState::New(0)),
        Act::Tamper(Tamper::MarkerGone),
        Act::MarkBootstrapped,
    ]);
    assert_eq!(play(&acts), Ok(()));
}

#[test]
fn both_hosts_agree_on_a_host_that_is_taken_down_and_prepared_again() {
    let mut acts = act::opening(Start::Prepared);
    acts.extend([
        Act::Configure { set: FileSet::Os, which: 0xff },
        Act::Tamper(Tamper::FileMode(0)),
        Act::Configure { set: FileSet::Os, which: 0xff },
        Act::Configure { set: FileSet::LoadBalancer, which: 0xff },
        Act::Configure { set: FileSet::ControlPlane, which: 0xff },
        Act::Deliver { part: fixture::LINKED, how: How::Whole },
        Act::Tamper(Tamper::SettingGone(0)),
        Act::Prepare,
        Act::Wipe { delete: false },
        Act::Tamper(Tamper::ClusterIdOfAnother),
        Act::ClusterId,
        Act::Wipe { delete: true },
        Act::ClusterId,
        Act::Prepare,
        Act::Tamper(Tamper::SettingChanged(0, false)),
        Act::Prepare,
        Act::Deliver { part: fixture::LINKED, how: How::Damaged },
    ]);
    assert_eq!(play(&acts), Ok(()));
}

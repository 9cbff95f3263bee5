//! Each precondition switched off in turn: without it, an event between the plan and a step breaks some law; with it,
//! the same event at the same moment breaks none.

use crate::hosting::self_hosted;
use crate::sim::law::GUARDED;
use crate::sim::{Broken, Chaos, Ended, Script, World, make};
use crate::{Shape, converged, readdressed};
use hactl::model::action::Kind;
use hactl::model::desired::Role;
use hactl::model::plan::{Precondition, Step};
use std::collections::BTreeSet;

/// The action of a precondition, a world whose next plan has such steps, and the events that may happen meanwhile.
struct Mutant {
    without: Kind,
    start: fn() -> World,
    meanwhile: &'static [Chaos],
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        without: Kind::RemoveMember,
        start: || {
            let mut world = converged(Shape::Stacked(5));
            world.leave(&make::host_name("cp1"));
            world
        },
        // Of the hosts that stay, not the first, through which the API is used.
        meanwhile: &[Chaos::PowerOff(2), Chaos::PowerOff(3)],
    },
    Mutant { without: Kind::MoveMember, start: readdressed, meanwhile: &[Chaos::PowerOff(1)] },
    Mutant { without: Kind::AddLearner, start: grown, meanwhile: &[Chaos::ForeignLearner] },
    Mutant { without: Kind::StartMember, start: grown, meanwhile: &[Chaos::ForeignLearner] },
    Mutant { without: Kind::Promote, start: grown, meanwhile: &[Chaos::ForeignRemoval(1)] },
    Mutant { without: Kind::ArchiveData, start: replaced, meanwhile: &[Chaos::ForeignLearner] },
    Mutant {
        without: Kind::RunUnit,
        start: || {
            let mut world = converged(Shape::Stacked(3));
            world.release(|r| r.etcd += 1);
            world
        },
        meanwhile: &[Chaos::PowerOff(1)],
    },
    Mutant {
        without: Kind::Defragment,
        start: || {
            let mut world = converged(Shape::Stacked(3));
            world.hosts.values_mut().for_each(|host| host.loose = true);
            world
        },
        meanwhile: &[Chaos::PowerOff(1)],
    },
    Mutant {
        without: Kind::Configure,
        start: || {
            let mut world = converged(Shape::Apart);
            world.release(|r| r.manifests += 1);
            world
        },
        // The other control-plane host.
        meanwhile: &[Chaos::PowerOff(4)],
    },
    Mutant {
        without: Kind::UpgradeKubelet,
        start: || {
            let mut world = converged(Shape::Apart);
            world.kubernetes("1.36.4");
            world
        },
        meanwhile: &[Chaos::PowerOff(4)],
    },
    Mutant {
        without: Kind::EndPods,
        start: || {
            let mut world = converged(Shape::Apart);
            world.reassign(&make::host_name("cp1"), &[Role::Worker]);
            world
        },
        meanwhile: &[Chaos::PowerOff(4)],
    },
    Mutant {
        without: Kind::Hold,
        start: || {
            let mut world = self_hosted(Shape::Apart);
            world.release(|r| r.manifests += 1);
            world
        },
        meanwhile: &[Chaos::PowerOff(4)],
    },
    Mutant {
        without: Kind::HandOver,
        start: || {
            let mut world = converged(Shape::Apart);
            world.release(|r| r.hosting += 1);
            world
        },
        meanwhile: &[Chaos::PowerOff(4)],
    },
    Mutant {
        without: Kind::Wipe,
        start: || {
            let mut desired = make::apart();
            let leaves = desired.hosts.iter_mut().find(|host| host.name.as_str() == "cp1").expect("it is there");
            leaves.roles.push(Role::Etcd);
            let mut world = World::of(desired);
            assert_eq!(world.converge(7, 4), Ok(Ended::Converged));
            world.leave(&make::host_name("cp1"));
            world
        },
        // The other control-plane host, now that the first has left the inventory: once the member is removed.
        meanwhile: &[Chaos::PowerOff(3)],
    },
];

/// A fourth member is to be added.
pub fn grown() -> World {
    let mut world = converged(Shape::Stacked(3));
    world.grow();
    world
}

/// A running member is to be removed and added again.
fn replaced() -> World {
    let mut world = converged(Shape::Stacked(3));
    let host = make::host_name("cp2");
    let member = world.host(&host).disk.as_ref().expect("its data").member;
    world.intent.replace.insert(host, member);
    world
}

/// What the next round ends with when this happens meanwhile, after so many effects.
fn round(start: &World, mutant: &Mutant, (order, at): (u64, u16), without: Option<Kind>) -> Result<(), Broken> {
    let meanwhile = mutant.meanwhile.iter().map(|chaos| (at, *chaos)).collect();
    start.clone().round(&Script { order, meanwhile, without, ..Script::default() }).map(drop)
}

#[test]
#[allow(clippy::print_stdout, reason = "the list of what each is for")]
fn each_precondition_switched_off_breaks_a_law_that_it_keeps() {
    for mutant in MUTANTS {
        let mut start = (mutant.start)();
        let plan = start.plan().expect("no law is broken").0.expect("a plan");
        let guarded = |step: &Step| step.action.kind() == mutant.without && step.precondition != Precondition::None;
        assert!(plan.steps.iter().any(guarded), "{:?}: no such step has a precondition", mutant.without);
        let mut moments = (0..3).flat_map(|order| (1..100).map(move |at| (order, at)));
        let broken = moments.find_map(|when| {
            // What another tool breaks after our step is not ours to keep.
            round(&start, mutant, when, None).ok()?;
            round(&start, mutant, when, Some(mutant.without)).err()
        });
        println!("without the precondition of {:?}: {broken:?}", mutant.without);
        assert!(broken.is_some(), "without the precondition of {:?} no law is broken", mutant.without);
    }
}

#[test]
fn every_action_whose_steps_may_have_a_precondition_has_a_mutant() {
    let mutants: BTreeSet<Kind> = MUTANTS.iter().map(|mutant| mutant.without).collect();
    assert_eq!(mutants, GUARDED.into());
}

//! Each precondition switched off in turn: without it, an event between the plan and a step breaks some law; with it,
//! the same event at the same moment breaks none.

use crate::sim::{Broken, Chaos, Script, Without, World, make};
use crate::{Shape, converged};

/// A precondition, a world whose next plan has steps that it protects, and the events that may happen meanwhile.
struct Mutant {
    without: Without,
    start: fn() -> World,
    meanwhile: &'static [Chaos],
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        without: Without::MembersBeforeRemoval,
        start: || {
            let mut world = converged(Shape::Stacked(5));
            world.leave(&make::host_name("cp1"));
            world
        },
        // Of the hosts that stay, not the first, through which the API is used.
        meanwhile: &[Chaos::PowerOff(2), Chaos::PowerOff(3)],
    },
    Mutant {
        without: Without::MembersBeforeAddition,
        start: || {
            let mut world = converged(Shape::Stacked(3));
            world.grow();
            world
        },
        meanwhile: &[Chaos::ForeignLearner],
    },
    Mutant {
        without: Without::ToleratesMember,
        start: || {
            let mut world = converged(Shape::Stacked(3));
            world.release(|r| r.etcd += 1);
            world
        },
        meanwhile: &[Chaos::PowerOff(1)],
    },
    Mutant {
        without: Without::ToleratesApiServer,
        start: || {
            let mut world = converged(Shape::Apart);
            world.release(|r| r.manifests += 1);
            world
        },
        // The other control-plane host.
        meanwhile: &[Chaos::PowerOff(4)],
    },
];

/// What the next round ends with when this happens meanwhile, after so many effects.
fn round(start: &World, mutant: &Mutant, (order, at): (u64, u16), without: Option<Without>) -> Result<(), Broken> {
    let meanwhile = mutant.meanwhile.iter().map(|chaos| (at, *chaos)).collect();
    start.clone().round(&Script { order, meanwhile, without, ..Script::default() }).map(drop)
}

#[test]
#[allow(clippy::print_stdout, reason = "the list of what each is for")]
fn each_precondition_switched_off_breaks_a_law_that_it_keeps() {
    for mutant in MUTANTS {
        let start = (mutant.start)();
        let mut moments = (0..3).flat_map(|order| (1..100).map(move |at| (order, at)));
        let broken = moments.find_map(|when| {
            // What another tool breaks after our step is not ours to keep.
            round(&start, mutant, when, None).ok()?;
            round(&start, mutant, when, Some(mutant.without)).err()
        });
        println!("without {:?}: {broken:?}", mutant.without);
        assert!(broken.is_some(), "without {:?} no law is broken: what is it for?", mutant.without);
    }
}

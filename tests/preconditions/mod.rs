//! Each precondition switched off in turn: without it, an event between the plan and a step breaks some law; with it,
//! none does.

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
        // One of the hosts that stay.
        meanwhile: &[Chaos::PowerOff(0), Chaos::PowerOff(1)],
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

/// The first law that is broken in any order and at any time of the event.
fn broken(mutant: &Mutant, without: Option<Without>) -> Option<Broken> {
    let start = (mutant.start)();
    for order in 0..3 {
        for at in 1..70 {
            let meanwhile = mutant.meanwhile.iter().map(|chaos| (at, *chaos)).collect();
            let script = Script { order, meanwhile, without, ..Script::default() };
            if let Err(broken) = start.clone().round(&script) {
                return Some(broken);
            }
        }
    }
    None
}

#[test]
fn each_precondition_switched_off_breaks_a_law_and_none_is_broken_with_it() {
    for mutant in MUTANTS {
        assert_eq!(broken(mutant, None), None, "{:?} is checked", mutant.without);
        let found = broken(mutant, Some(mutant.without));
        println!("without {:?}: {found:?}", mutant.without);
        assert!(found.is_some(), "without {:?} no law is broken: what is it for?", mutant.without);
    }
}

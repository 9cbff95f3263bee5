//! Short losses of etcd's leader in the middle of a run: they delay it and do not end it.

use crate::preconditions::grown;
use crate::sim::{Ended, Script, World, make};
use crate::{Shape, converged};

/// A member that does not lead is to be removed and added again.
fn replaced() -> World {
    let mut world = converged(Shape::Stacked(3));
    let leader = world.leader(&world.living().expect("a cluster lives"));
    let follows = |n: u8| {
        let host = make::host_name(&format!("cp{n}"));
        let member = world.host(&host).disk.as_ref().expect("its data").member;
        (leader != Some(member)).then_some((host, member))
    };
    let (host, member) = (1..=3).find_map(follows).expect("one of three leads");
    world.intent.replace.insert(host, member);
    world
}

#[test]
fn a_loss_of_the_leader_for_some_seconds_at_any_moment_of_a_change_of_members_does_not_end_the_run() {
    for (what, start) in [("a member is added", grown()), ("a member is replaced", replaced())] {
        for order in 0..3 {
            for at in 1.. {
                let mut world = start.clone();
                let script = Script { order, leaderless_at: Some(at), ..Script::default() };
                let end = world.round(&script);
                assert!(matches!(end, Ok(Ended::Done(_))), "{what}, order {order}, question {at}: {end:?}");
                if world.elections == 0 {
                    assert!(at > 10, "{what}: the round asks about etcd more often than {at} times");
                    break;
                }
            }
        }
    }
}

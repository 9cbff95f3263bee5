//! What guards conclude about hosts that they do not hear. Pure.
//!
//! In: the policy, the own host, how each guard that is heard sees the others. Out: at most one presumed fault of each
//! host. That a host is silent counts only by the word of every guard that has a say, and of at least two: one guard
//! that hears nobody is itself the one that is cut off.

use crate::model::fault::FaultKind;
use crate::model::healing::Policy;
use crate::model::heartbeat::Sight;
use crate::model::listed::listed;
use crate::model::names::HostName;
use std::collections::BTreeMap;

/// How each guard sees the others: that of the own host, and those whose heartbeats arrive.
pub type Sights = BTreeMap<HostName, BTreeMap<HostName, Sight>>;

/// A presumed fault, before its delay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presumed {
    /// The host.
    pub host: HostName,
    /// The kind.
    pub kind: FaultKind,
    /// What the observers see.
    pub evidence: String,
}

fn has_a_say(policy: &Policy, sees: &BTreeMap<HostName, Sight>) -> bool {
    policy.has_a_say(sees.values().filter(|sight| **sight == Sight::Heard).count())
}

/// The presumed faults of the other hosts, in the order of the policy.
pub fn presumed(policy: &Policy, own: &HostName, sights: &Sights) -> Vec<Presumed> {
    policy.others(own).filter_map(|guard| of_host(policy, own, &guard.name, sights)).collect()
}

fn of_host(policy: &Policy, own: &HostName, host: &HostName, sights: &Sights) -> Option<Presumed> {
    let mine = sights.get(own)?.get(host).copied()?;
    let observers: Vec<(&HostName, Sight)> = sights
        .iter()
        .filter(|(observer, sees)| *observer != host && has_a_say(policy, sees))
        .filter_map(|(observer, sees)| Some((observer, sees.get(host).copied()?)))
        .collect();
    let with = |wanted: &[Sight]| {
        let all = observers.iter().filter(|(_, sight)| wanted.contains(sight));
        all.map(|(observer, _)| observer.as_str()).collect::<Vec<_>>()
    };
    let (heard, unheard) = (with(&[Sight::Heard]), with(&[Sight::Answers, Sight::Silent]));
    let answers = with(&[Sight::Answers]);
    let found = |kind, evidence| Some(Presumed { host: host.clone(), kind, evidence });
    match mine {
        // Only guards that hear it report what others see of it, so that one cut is reported from both of its sides.
        Sight::Heard if unheard.is_empty() => None,
        Sight::Heard => found(FaultKind::Partitioned, format!("{} does not hear it, {own} does", listed(&unheard))),
        Sight::Answers | Sight::Silent if !heard.is_empty() => {
            found(FaultKind::Partitioned, format!("{} hears it, {own} does not", listed(&heard)))
        }
        Sight::Answers | Sight::Silent if observers.len() < 2 => {
            let why =
                format!("{own} does not hear it, and no second guard that hears half of the others confirms that");
            found(FaultKind::Partitioned, why)
        }
        Sight::Answers | Sight::Silent if !answers.is_empty() => {
            let why = format!("{} hear no heartbeat of it, but it answers {}", listed(&unheard), listed(&answers));
            found(FaultKind::GuardDown, why)
        }
        Sight::Answers | Sight::Silent => {
            let why = format!("no heartbeat, and no answer on any port, to {}", listed(&unheard));
            found(FaultKind::HostUnreachable, why)
        }
    }
}

/// The presumed fault of the VIP: no host has it, or two that hear each other. `holders` are the hosts with a load
/// balancer that are heard, the own one included, each with whether it has the VIP. All guards name the same host: the
/// first with a load balancer if the VIP is missing, the last that has it if several have.
pub fn of_vip(policy: &Policy, own: &HostName, holders: &BTreeMap<HostName, bool>) -> Option<Presumed> {
    policy.vip.filter(|_| policy.guard(own).is_some_and(|guard| guard.balances))?;
    let balancers: Vec<&HostName> =
        policy.guards.iter().filter(|guard| guard.balances).map(|guard| &guard.name).collect();
    let have: Vec<&HostName> = balancers.iter().copied().filter(|host| holders.get(*host) == Some(&true)).collect();
    let found = |host: &HostName, kind, evidence| Some(Presumed { host: host.clone(), kind, evidence });
    match have.as_slice() {
        // A host that is not heard may have it.
        [] if holders.len() == balancers.len() => {
            found(balancers.first()?, FaultKind::VipMissing, "no load balancer has it".to_owned())
        }
        [] | [_] => None,
        [.., last] => {
            let names: Vec<&str> = have.iter().map(|host| host.as_str()).collect();
            found(last, FaultKind::VipDuplicate, format!("{} have it", listed(&names)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::sample;
    use crate::model::healing::Mode;
    use proptest::prelude::*;

    fn policy(hosts: u8) -> Policy {
        let mut desired = sample(hosts);
        desired.healing.mode = Mode::Watch;
        Policy::of(&desired)
    }

    fn name(n: usize) -> HostName {
        format!("cp{n}").parse().unwrap()
    }

    /// Sights from lines such as `cp1: H S`, in the order of the other hosts.
    fn sights(lines: &[(usize, &str)], hosts: usize) -> Sights {
        let row = |own: usize, text: &str| {
            let others = (1..=hosts).filter(|other| *other != own);
            others
                .zip(text.split(' '))
                .map(|(other, letter)| {
                    let sight = match letter {
                        "H" => Sight::Heard,
                        "A" => Sight::Answers,
                        _ => Sight::Silent,
                    };
                    (name(other), sight)
                })
                .collect()
        };
        lines.iter().map(|(own, text)| (name(*own), row(*own, text))).collect()
    }

    fn judged(hosts: u8, lines: &[(usize, &str)]) -> Vec<(String, FaultKind)> {
        let sights = sights(lines, hosts.into());
        let found = presumed(&policy(hosts), &name(1), &sights);
        found.into_iter().map(|fault| (fault.host.to_string(), fault.kind)).collect()
    }

    #[test]
    fn silence_counts_by_the_word_of_two_observers_and_no_answer_on_any_port() {
        use FaultKind::{GuardDown, HostUnreachable, Partitioned};
        let cp3 = |kind| vec![("cp3".to_owned(), kind)];
        assert_eq!(judged(3, &[(1, "H H"), (2, "H H")]), []);
        assert_eq!(judged(3, &[(1, "H S"), (2, "H S")]), cp3(HostUnreachable));
        assert_eq!(judged(3, &[(1, "H A"), (2, "H S")]), cp3(GuardDown));
        assert_eq!(judged(3, &[(1, "H S"), (2, "H H")]), cp3(Partitioned), "cp2 hears it");
        assert_eq!(judged(3, &[(1, "H H"), (2, "H S"), (3, "H H")]), cp3(Partitioned), "from the other side");
        let alone = vec![("cp2".to_owned(), Partitioned), ("cp3".to_owned(), Partitioned)];
        assert_eq!(judged(3, &[(1, "S S")]), alone, "it is cut off itself");
        assert_eq!(judged(2, &[(1, "S")]), [("cp2".to_owned(), Partitioned)], "of two, neither can tell");
        let both = vec![("cp4".to_owned(), HostUnreachable), ("cp5".to_owned(), HostUnreachable)];
        assert_eq!(judged(5, &[(1, "H H S S"), (2, "H H S S"), (3, "H H S S")]), both);
        assert_eq!(
            judged(5, &[(1, "H H S S"), (2, "S S S H"), (3, "H H S S")]),
            both,
            "cp2 hears one of four and has no say"
        );
    }

    proptest! {
        /// Whatever guards see: a host is called unreachable only if at least two that hear half of the others, all of
        /// those that report it, hear it no more and get no answer; and the same input has the same result.
        #[test]
        fn no_host_is_called_unreachable_that_an_observer_with_a_say_hears_or_reaches(
            hosts in 2_usize..7,
            letters in prop::collection::vec(0_u8..3, 49),
            heard in prop::collection::vec(any::<bool>(), 7),
        ) {
            let policy = policy(u8::try_from(hosts).unwrap());
            let sight = |n: u8| [Sight::Heard, Sight::Answers, Sight::Silent][usize::from(n)];
            let mut sights = Sights::new();
            for own in (1..=hosts).filter(|own| *own == 1 || heard[*own - 1]) {
                let others = (1..=hosts).filter(|other| *other != own);
                sights.insert(name(own), others.map(|other| (name(other), sight(letters[own * 7 - 7 + other - 1]))).collect());
            }
            let found = presumed(&policy, &name(1), &sights);
            prop_assert_eq!(&found, &presumed(&policy, &name(1), &sights));
            for fault in found.iter().filter(|fault| fault.kind == FaultKind::HostUnreachable) {
                let say = sights.iter().filter(|(observer, sees)| {
                    let heard = sees.values().filter(|sight| **sight == Sight::Heard).count();
                    **observer != fault.host && 2 * heard >= hosts - 1
                });
                let all: Vec<Sight> = say.map(|(_, sees)| sees[&fault.host]).collect();
                prop_assert!(all.len() >= 2 && all.iter().all(|sight| *sight == Sight::Silent), "{all:?}");
            }
        }
    }

    #[test]
    fn the_virtual_ip_is_missing_only_if_every_load_balancer_says_that_it_has_none() {
        let policy = policy(3);
        let holders = |have: &[bool]| have.iter().enumerate().map(|(n, has)| (name(n + 1), *has)).collect();
        let kind =
            |have: &[bool]| of_vip(&policy, &name(1), &holders(have)).map(|fault| (fault.host.to_string(), fault.kind));
        assert_eq!(kind(&[false, true, false]), None);
        assert_eq!(kind(&[false, false]), None, "the third is not heard");
        assert_eq!(kind(&[false, false, false]), Some(("cp1".to_owned(), FaultKind::VipMissing)));
        assert_eq!(kind(&[true, true, false]), Some(("cp2".to_owned(), FaultKind::VipDuplicate)));
    }
}

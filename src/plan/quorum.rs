//! What a guard concludes while no etcd member serves that it hears: which hosts are missing, whose data goes furthest,
//! and what would be lost with it. Pure.
//!
//! In: the voters, how those that are heard serve, how far their data goes, and the newest entry that any of them had
//! reported. Out: the evidence of the fault `EtcdQuorumLost`. Nothing is done about it: a person decides.

use crate::model::listed::listed;
use crate::model::names::HostName;
use crate::model::positions::Position;
use std::collections::BTreeMap;

/// What guards know about the members.
#[derive(Debug, Clone, Copy)]
pub struct Members<'a> {
    /// The hosts that vote.
    pub voters: &'a [&'a HostName],
    /// Those that are heard: whether the member serves linearizable reads.
    pub serve: &'a BTreeMap<HostName, bool>,
    /// How far the data of those goes that are heard.
    pub reach: &'a BTreeMap<HostName, Position>,
    /// The newest entry that any member had reported while there was a quorum.
    pub known: Option<&'a Position>,
}

/// What is known, if no member serves that is heard; `None`: one does, or none is heard.
pub fn lost(members: Members<'_>) -> Option<String> {
    if members.serve.is_empty() || members.serve.values().any(|serves| *serves) {
        return None;
    }
    let all = members.voters.len();
    let unheard: Vec<&str> =
        members.voters.iter().filter(|host| !members.serve.contains_key(**host)).map(|host| host.as_str()).collect();
    let heard = match unheard.as_slice() {
        [] => format!("all {all} members are heard, and none serves"),
        [one] => format!("{one} is not heard, and none of the other {} members serves", all - 1),
        _ if all - unheard.len() == 1 => {
            format!("{} are not heard, and the other member does not serve", listed(&unheard))
        }
        _ => {
            format!("{} are not heard, and none of the other {} members serves", listed(&unheard), all - unheard.len())
        }
    };
    let same = |position: &Position| members.known.is_none_or(|known| known.cluster == position.cluster);
    let reaches = members.reach.iter().filter(|(_, position)| same(position));
    let Some((host, furthest)) = reaches.max_by_key(|(_, position)| (position.term, position.index)) else {
        return Some(format!("{heard}; no data of etcd can be read on a host that is heard"));
    };
    let behind = members.known.map_or(0, |known| known.index.saturating_sub(furthest.index));
    let rest = match behind {
        0 => "no later entry is known".to_owned(),
        1 => "one later entry is known to have existed".to_owned(),
        more => format!("{more} later entries are known to have existed"),
    };
    Some(format!("{heard}; the data of {host} goes furthest ({furthest}), {rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: u64) -> HostName {
        format!("cp{n}").parse().unwrap()
    }

    fn at(member: u64, index: u64) -> Position {
        Position { cluster: "c1".to_owned(), member, term: 4, index }
    }

    fn said(serve: &[(u64, bool)], reach: &[(u64, u64)], known: Option<u64>) -> Option<String> {
        let all = [1, 2, 3].map(name);
        let voters: Vec<&HostName> = all.iter().collect();
        let serve = serve.iter().map(|(n, serves)| (name(*n), *serves)).collect();
        let reach = reach.iter().map(|(n, index)| (name(*n), at(*n, *index))).collect();
        let known = known.map(|index| at(1, index));
        lost(Members { voters: &voters, serve: &serve, reach: &reach, known: known.as_ref() })
    }

    #[test]
    fn a_quorum_is_lost_only_if_no_member_serves_that_is_heard() {
        assert_eq!(said(&[(1, false), (2, true)], &[], None), None);
        assert_eq!(said(&[], &[], None), None, "a host that hears no member is cut off itself");
        assert!(said(&[(1, false)], &[], None).is_some());
    }

    #[test]
    fn the_host_whose_data_goes_furthest_is_named_with_what_is_missing_from_it() {
        assert_eq!(
            said(&[(2, false), (3, false)], &[(2, 90), (3, 97)], Some(100)).unwrap(),
            "cp1 is not heard, and none of the other 2 members serves; the data of cp3 goes furthest (raft term 4, \
             index 97), 3 later entries are known to have existed"
        );
        assert_eq!(
            said(&[(3, false)], &[(3, 100)], Some(100)).unwrap(),
            "cp1 and cp2 are not heard, and the other member does not serve; the data of cp3 goes furthest (raft term \
             4, index 100), no later entry is known"
        );
        assert_eq!(
            said(&[(1, false), (2, false), (3, false)], &[], Some(9)).unwrap(),
            "all 3 members are heard, and none serves; no data of etcd can be read on a host that is heard"
        );
    }

    #[test]
    fn data_of_another_cluster_is_not_compared() {
        let voters = [name(1)];
        let voters: Vec<&HostName> = voters.iter().collect();
        let serve = [(name(1), false)].into();
        let other = Position { cluster: "c2".to_owned(), ..at(1, 500) };
        let (reach, known) = ([(name(1), other)].into(), at(1, 100));
        let said = lost(Members { voters: &voters, serve: &serve, reach: &reach, known: Some(&known) }).unwrap();
        assert!(said.ends_with("no data of etcd can be read on a host that is heard"), "{said}");
    }
}

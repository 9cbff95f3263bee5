//! Before etcd starts on a host: whether its member may vote with the existing data.
//!
//! In: the data directory, the positions that this host and the others remember, and a certificate that the members
//! of etcd accept. Out: a verdict, with one line for the journal. Three faults keep a member down. Its cluster was
//! recovered without it: previous members that return together would form a quorum, serve old data and accept writes
//! that no other member sees. Its disk went back in time: it would vote for a leader that lacks writes acknowledged
//! with its own help. Its disk is that of another member: two processes would share one vote. So it asks the other
//! members that the data lists, each over TLS with the CA of etcd. A member that cannot be asked, or data that cannot
//! be read, prevents no start: this fence must never block a cluster that merely boots.

use crate::agent::etcd::member::{GENESIS, access, read_mark};
use crate::agent::etcd::positions::remembered;
use crate::agent::machine::files::{private_folder, write_one};
use crate::agent::machine::root::{Root, me};
use crate::agent::machine::run::blocking;
use crate::agent::op_error::{Outcome, STAYS_DOWN};
use crate::etcd::{self, Access, EtcdError, Witness, disk};
use crate::model::facts::DiskFact;
use crate::model::names::PeerUrl;
use crate::model::positions::Position;
use crate::model::recovery::left_behind;
use crate::protocol::EtcdAsk;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// How long all the others may take together; a start with an unreachable member takes this much longer.
const WITHIN: Duration = Duration::from_secs(2);
/// Between two attempts at an unreachable host: right after a boot its network may not be ready.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Whether etcd may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fence {
    /// There is no data: the member joins or bootstraps.
    NoData,
    /// It starts; the findings in words.
    Starts(String),
    /// It stays down; the reason, and what to do.
    StaysDown(String),
}

/// The answer of a member, by its URL; or why there is none.
type PeerAnswer = (String, Result<Witness, String>);

/// Left by a restore for the next start only: the token of the new cluster. It is lost with the power.
const RESTORED: &str = "/run/hactl/restored";

/// Permits the next start of etcd on this host, as long as the data is that restored under this token.
pub(crate) fn may_start_once(root: &Root, token: &str) -> Outcome<()> {
    let at = root.own(RESTORED);
    private_folder(at.parent().unwrap_or(Path::new("/")))?;
    write_one(at, token.as_bytes(), 0o600, me())
}

/// Whether this data was just restored, so that the other members of its cluster have not started yet; true once.
fn restored_now(root: &Root, ask: &EtcdAsk) -> bool {
    let at = root.own(RESTORED);
    let token = fs::read_to_string(&at).ok();
    // If it cannot be removed it does not count, or it would count again.
    let token = token.filter(|_| fs::remove_file(&at).is_ok());
    let of_the_data = root.path(&ask.data_dir).and_then(|data| read_mark(&data, GENESIS)).ok().flatten();
    token.is_some() && token == of_the_data
}

/// Asks the other members that the data of this host lists; `peer` is the peer URL of this host's member.
pub async fn fence(root: &Root, ask: &EtcdAsk, peer: &PeerUrl) -> Fence {
    if restored_now(root, ask) {
        return Fence::Starts("etcd starts: its data was just restored".to_owned());
    }
    let starts = |why: &str| Fence::Starts(format!("etcd starts without asking the other members: {why}"));
    let own = match own(root, ask).await {
        Ok(Some(own)) => own,
        Ok(None) => return Fence::NoData,
        Err(why) => return starts(&why),
    };
    let (Some(_), Some(members)) = (own.revision, &own.members) else {
        return starts(&format!("its own data cannot be read ({})", own.flaws.join("; ")));
    };
    // By address: the data may be a copy of another member, which then has to be asked.
    let others: Vec<String> = members.iter().map(|(_, _, at, _)| at).filter(|at| *at != peer).map(client_url).collect();
    if others.is_empty() {
        return starts("its data lists none");
    }
    let until = Instant::now() + WITHIN;
    let asked = others.into_iter().map(|url| async move {
        let said = said(root, &EtcdAsk { url: url.clone(), ..ask.clone() }, until).await;
        (url, said)
    });
    verdict(&own, peer, &remembered(root), &futures::future::join_all(asked).await)
}

/// The position of this host's own files; `None`: there are none.
async fn own(root: &Root, ask: &EtcdAsk) -> Result<Option<DiskFact>, String> {
    let data = root.path(&ask.data_dir).map_err(|fault| fault.what)?;
    if !data.join("member").exists() {
        return Ok(None);
    }
    let read = blocking(move || Ok(disk::read(&data))).await.map_err(|fault| fault.what)?;
    read.map(Some).map_err(|error| error.to_string())
}

/// The client URL of a member, from its peer URL.
fn client_url(peer: &PeerUrl) -> String {
    let peer = peer.as_str();
    format!("{}:2379", peer.strip_suffix(":2380").unwrap_or(peer))
}

/// What one member reports about itself.
async fn said(root: &Root, ask: &EtcdAsk, until: Instant) -> Result<Witness, String> {
    let access: Outcome<Access> = access(root, ask);
    let access = access.map_err(|fault| fault.what)?;
    let mut last = format!("did not answer within {WITHIN:?}");
    let asked = async {
        loop {
            match Box::pin(etcd::witness(&access, WITHIN)).await {
                Err(error @ EtcdError::NotListening { refused: false, .. }) => last = error.to_string(),
                said => return said.map_err(|error| error.to_string()),
            }
            sleep(ASK_AGAIN).await;
        }
    };
    timeout_at(until, asked).await.unwrap_or(Err(last))
}

/// Judges by the answers. One member is enough to keep another one down, and can do no more.
fn verdict(own: &DiskFact, peer: &PeerUrl, remembered: &[Position], received: &[PeerAnswer]) -> Fence {
    let revision = own.revision.unwrap_or_default();
    let answers = || received.iter().filter_map(|(url, said)| Some((url, said.as_ref().ok()?)));
    let past = |(url, said): (&String, &Witness)| {
        left_behind((&own.cluster, revision), (&said.cluster, said.revision)).then(|| {
            format!(
                "this data is of cluster {} at revision {revision}, which was since recovered as cluster {}, now at \
                 revision {} ({url})",
                own.cluster, said.cluster, said.revision
            )
        })
    };
    let why = answers().find_map(past);
    let why = why.or_else(|| of_another(own, peer, &answers().map(|(_, said)| said).collect::<Vec<_>>()));
    if let Some(why) = why.or_else(|| rolled_back(own, remembered, &answers().collect::<Vec<_>>())) {
        let then = "`hactl up` takes this host in again and keeps the data aside";
        return Fence::StaysDown(format!("{STAYS_DOWN}{why}; {then}"));
    }
    let words = received.iter().map(|(url, said)| match said {
        Ok(said) if said.cluster == own.cluster => format!("{url} is of the same cluster"),
        Ok(said) => {
            let (other, ahead) = (&said.cluster, said.revision);
            format!("{url} is of cluster {other} at revision {ahead}, which did not come after this one")
        }
        Err(why) => format!("{url}: {why}"),
    });
    Fence::Starts(format!("etcd starts: {}", words.collect::<Vec<_>>().join("; ")))
}

/// Why the data is not of this host's member. The list in the data counts unless a member that is ahead of it
/// answers.
fn of_another(own: &DiskFact, peer: &PeerUrl, said: &[&Witness]) -> Option<String> {
    let member = own.member;
    let ours = || said.iter().filter(|said| said.cluster == own.cluster);
    if ours().any(|said| said.member == member) {
        return Some(format!("its member {member:x} already runs on another host: this disk is a copy of that one's"));
    }
    let listed: Vec<(u64, &PeerUrl)> = match ours().max_by_key(|said| (said.term, said.applied)) {
        Some(said) if (said.term, said.applied) >= own.reach() => {
            said.members.iter().map(|(id, at)| (*id, at)).collect()
        }
        _ => own.members.as_ref()?.iter().map(|(id, _, at, _)| (*id, at)).collect(),
    };
    let (here, _) = listed.iter().find(|(_, at)| *at == peer).filter(|(id, _)| *id != member)?;
    let of = listed.iter().find(|(id, _)| *id == member);
    let of =
        of.map_or_else(|| "which is no longer in the list".to_owned(), |(_, at)| format!("which is the one at {at}"));
    Some(format!("this data is of member {member:x}, {of}, and the member of this host is {here:x}"))
}

/// How far ahead of the end of its data the member was seen.
fn rolled_back(own: &DiskFact, remembered: &[Position], answers: &[(&String, &Witness)]) -> Option<String> {
    let mut all: Vec<(&Position, &str)> = remembered.iter().map(|position| (position, "this host")).collect();
    for (url, said) in answers {
        let may = said.positions.iter().filter(|position| said.may_tell(position));
        all.extend(may.map(|position| (position, url.as_str())));
    }
    let (seen, by) = all.into_iter().filter(|(position, _)| position.is_missing_from(own)).max()?;
    Some(format!(
        "its disk went back in time: the member was seen at {seen} ({by} remembers it), and the data ends at raft \
         term {}, index {}",
        own.term, own.index
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::recovery::LEAP;

    const PEER: &str = "https://10.0.0.9:2380";

    fn peer() -> PeerUrl {
        PEER.parse().unwrap()
    }

    fn at(n: u64) -> PeerUrl {
        format!("https://10.0.0.{n}:2380").parse().unwrap()
    }

    /// Data of member 9 of a cluster of three, the member of this host.
    fn own(cluster: &str, revision: i64) -> DiskFact {
        let member = |n: u64| (n, format!("cp{n}"), at(n), false);
        let members = Some(vec![member(1), member(2), member(9)]);
        let cluster = cluster.to_owned();
        DiskFact { cluster, member: 9, term: 3, index: 100, revision: Some(revision), members, ..DiskFact::default() }
    }

    fn seen(member: u64, term: u64, index: u64) -> Position {
        Position { cluster: "c1".to_owned(), member, term, index }
    }

    /// The answer of the member on 10.0.0.n that has applied so much.
    fn witness(n: u64, term: u64, applied: u64, positions: &[Position]) -> PeerAnswer {
        let members = [1, 2, 9].map(|n| (n, at(n))).to_vec();
        let cluster = "c1".to_owned();
        let said = Witness { cluster, member: n, revision: 1, term, applied, members, positions: positions.to_vec() };
        (format!("https://10.0.0.{n}:2379"), Ok(said))
    }

    fn received(said: &[(&str, i64)]) -> Vec<PeerAnswer> {
        let one = |(n, (cluster, revision)): (usize, &(&str, i64))| {
            let said = if cluster.is_empty() {
                Err("nothing answers".to_owned())
            } else {
                Ok(Witness { cluster: (*cluster).to_owned(), revision: *revision, ..Witness::default() })
            };
            (format!("https://10.0.0.{n}:2379"), said)
        };
        said.iter().enumerate().map(one).collect()
    }

    #[test]
    fn a_member_stays_down_just_when_another_cluster_is_half_a_leap_ahead() {
        let silent = ("", 0);
        let half = LEAP / 2;
        let table: [(&[(&str, i64)], bool); 9] = [
            (&[], false),
            (&[silent, silent], false),
            (&[("old", 900), ("old", 1000)], false),
            (&[("old", LEAP * 3)], false),
            (&[silent, ("new", LEAP + 700)], true),
            (&[("old", 900), ("new", LEAP + 700)], true),
            (&[("new", 800 + half)], true),
            (&[("new", 799 + half)], false),
            (&[("older", 12), silent], false),
        ];
        for (said, stays_down) in table {
            let found = verdict(&own("old", 800), &peer(), &[], &received(said));
            assert_eq!(matches!(found, Fence::StaysDown(_)), stays_down, "{said:?}: {found:?}");
        }
        let extreme = verdict(&own("old", i64::MIN), &peer(), &[], &received(&[("new", i64::MAX)]));
        assert!(matches!(extreme, Fence::StaysDown(_)));
    }

    #[test]
    fn the_reasons_for_not_starting_and_the_missing_answers_are_reported_in_one_line() {
        let own = own("c0ffee", 800);
        let line = |said: &[(&str, i64)]| verdict(&own, &peer(), &[], &received(said));
        let Fence::StaysDown(down) = line(&[("", 0), ("beef", LEAP + 900)]) else { panic!() };
        for word in ["c0ffee", "revision 800", "beef", "1000000900", "https://10.0.0.1:2379", "hactl up"] {
            assert!(down.contains(word), "{down}");
        }
        let Fence::Starts(line) = line(&[("", 0), ("c0ffee", 900)]) else { panic!() };
        assert_eq!(
            line,
            "etcd starts: https://10.0.0.0:2379: nothing answers; https://10.0.0.1:2379 is of the same cluster"
        );
    }

    #[test]
    fn a_member_stays_down_just_when_it_was_seen_beyond_the_end_of_its_data() {
        let silent = || ("https://10.0.0.1:2379".to_owned(), Err("nothing answers".to_owned()));
        let down =
            |own: &DiskFact, here: &[Position], received: &[PeerAnswer]| match verdict(own, &peer(), here, received) {
                Fence::StaysDown(line) => Some(line),
                _ => None,
            };
        let data = own("c1", 1);
        // A cold start, and a member that was off while the others made progress.
        assert_eq!(down(&data, &[], &[silent()]), None);
        assert_eq!(down(&data, &[seen(9, 3, 100)], &[silent()]), None);
        let others = [seen(9, 3, 100), seen(1, 5, 900), seen(2, 5, 900)];
        assert_eq!(down(&data, &others, &[witness(1, 5, 901, &others)]), None, "behind the others, not behind itself");
        // Back in time, as this host or another one knows.
        for (term, index) in [(3, 101), (4, 100), (4, 50)] {
            let line = down(&data, &[seen(9, term, index)], &[silent()]).unwrap();
            assert!(line.contains("went back in time") && line.contains("this host remembers"), "{line}");
            let line = down(&data, &[], &[silent(), witness(2, 5, 901, &[seen(9, term, index)])]).unwrap();
            let wanted = format!(
                "seen at raft term {term}, index {index} (https://10.0.0.2:2379 remembers it), and the data ends at raft term 3, index 100"
            );
            assert!(line.contains(&wanted) && line.contains("hactl up"), "{line}");
        }
        // A member that reports the impossible, a log that etcd itself will not start from, another cluster's member.
        assert_eq!(down(&data, &[], &[witness(2, 5, 901, &[seen(9, 5, 902)])]), None);
        assert_eq!(down(&DiskFact { damaged: true, ..data.clone() }, &[seen(9, 4, 200)], &[silent()]), None);
        assert_eq!(down(&DiskFact { cluster: "c2".to_owned(), ..data }, &[seen(9, 4, 200)], &[silent()]), None);
    }

    #[test]
    fn data_of_another_member_stays_down_and_a_host_that_moved_does_not() {
        let silent = || ("https://10.0.0.2:2379".to_owned(), Err("nothing answers".to_owned()));
        let copy = DiskFact { member: 1, ..own("c1", 1) };
        let says = |own: &DiskFact, peer: &PeerUrl, received: &[PeerAnswer]| match verdict(own, peer, &[], received) {
            Fence::StaysDown(line) => line,
            other => format!("{other:?}"),
        };
        let alone = says(&copy, &peer(), &[silent()]);
        assert!(alone.contains("of member 1, which is the one at https://10.0.0.1:2380"), "by its own list: {alone}");
        assert!(says(&copy, &peer(), &[witness(2, 5, 901, &[])]).contains("the member of this host is 9"));
        assert!(says(&copy, &peer(), &[witness(1, 5, 901, &[])]).contains("already runs on another host"));
        // Removed and added again: the data is of the previous member, and a member that lags behind the data cannot
        // tell.
        let again = |applied| {
            let (url, said) = witness(2, 5, applied, &[]);
            (url, said.map(|said| Witness { members: vec![(1, at(1)), (2, at(2)), (77, peer())], ..said }))
        };
        assert!(says(&own("c1", 1), &peer(), &[again(901)]).contains("which is no longer in the list"));
        let behind = DiskFact { term: 6, ..own("c1", 1) };
        assert!(says(&behind, &peer(), &[again(901)]).contains("Starts"));
        // The host has another address, which no member lists yet, or the others list already.
        assert!(says(&own("c1", 1), &at(33), &[silent()]).contains("Starts"));
        let moved = witness(2, 5, 901, &[]).1.map(|said| Witness { members: vec![(2, at(2)), (9, at(33))], ..said });
        assert!(says(&own("c1", 1), &at(33), &[("https://10.0.0.2:2379".to_owned(), moved)]).contains("Starts"));
    }

    #[test]
    fn a_member_is_asked_where_it_answers_clients() {
        for (peer, client) in
            [("https://10.0.0.1:2380", "https://10.0.0.1:2379"), ("https://[fd00::1]:2380", "https://[fd00::1]:2379")]
        {
            assert_eq!(client_url(&peer.parse().unwrap()), client);
        }
    }

    #[tokio::test]
    async fn freshly_restored_data_starts_once_without_asking_other_members() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::at(place.path());
        let path = || "/none".to_owned();
        let ask = EtcdAsk { url: String::new(), data_dir: "/data".to_owned(), ca: path(), cert: path(), key: path() };
        std::fs::create_dir_all(place.path().join("data/member/wal")).unwrap();
        std::fs::write(place.path().join("data").join(GENESIS), "token-one\n").unwrap();
        let said = async || match fence(&root, &ask, &peer()).await {
            Fence::Starts(why) => why,
            other => panic!("{other:?}"),
        };
        may_start_once(&root, "token-two").unwrap();
        assert!(!said().await.contains("just restored"), "other data");
        may_start_once(&root, "token-one").unwrap();
        assert!(said().await.contains("just restored"));
        assert!(!said().await.contains("just restored"), "once");
    }

    #[tokio::test]
    async fn unreadable_files_do_not_prevent_a_start() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::at(place.path());
        let ask = EtcdAsk {
            url: String::new(),
            data_dir: "/data".to_owned(),
            ca: "/none".to_owned(),
            cert: "/none".to_owned(),
            key: "/none".to_owned(),
        };
        assert_eq!(fence(&root, &ask, &peer()).await, Fence::NoData);
        std::fs::create_dir_all(place.path().join("data/member/wal")).unwrap();
        let Fence::Starts(why) = fence(&root, &ask, &peer()).await else {
            panic!("a damaged member is etcd's own to judge")
        };
        assert!(why.contains("member/wal"), "{why}");
    }
}

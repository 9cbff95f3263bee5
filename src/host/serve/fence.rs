//! Before etcd starts on a host: whether its cluster was recovered without it, so that this member is of the past.
//!
//! In: the data directory, and the certificate that the members of etcd answer to. Out: a verdict, with one line for the journal. Old
//! members that come back together would be a quorum, serve what is old and take writes that nobody else sees. So the other
//! members that the data itself lists are asked, each by TLS and the authority of etcd. What cannot be asked or read keeps nothing
//! from starting: this fence must never stand in the way of a cluster that merely boots.

use super::fault::{Explain as _, Outcome};
use super::files::write_one;
use super::member::{GENESIS, access, me, read_mark};
use super::root::Root;
use super::run::blocking;
use crate::etcd::{self, Access, EtcdError, disk};
use crate::host::op::EtcdAsk;
use crate::model::facts::DiskFact;
use crate::model::names::PeerUrl;
use crate::model::recovery::left_behind;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// How long all the others may take together; a start with one of them off takes this much longer.
const WITHIN: Duration = Duration::from_secs(2);
/// Between two tries at a host that cannot be reached: right after a boot its way may not be there yet.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Whether etcd may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fence {
    /// There is no data: whoever starts here joins or founds.
    NoData,
    /// It starts; what was heard, in words.
    Starts(String),
    /// It stays down; why, and what to do.
    StaysDown(String),
}

/// Cluster and revision of a member.
type Reach = (String, i64);

/// What a restore leaves for the one start that follows it: the new cluster's token. It is gone with the power.
const RESTORED: &str = "/run/hactl/restored";

/// Lets the next start of etcd on this host pass, as long as the data is what was restored under this token.
pub(super) fn may_start_once(root: &Root, token: &str) -> Outcome<()> {
    let at = root.own(RESTORED);
    let folder = at.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).explain("create", folder)?;
    write_one(at, token.as_bytes(), 0o600, me())
}

/// Whether this very data was restored just now, so that the others of its cluster are only about to start; true once.
fn restored_now(root: &Root, ask: &EtcdAsk) -> bool {
    let at = root.own(RESTORED);
    let token = fs::read_to_string(&at).ok();
    // Where it cannot be taken away it does not count, or it would count again.
    let token = token.filter(|_| fs::remove_file(&at).is_ok());
    let of_the_data = root.path(&ask.data_dir).and_then(|data| read_mark(&data, GENESIS)).ok().flatten();
    token.is_some() && token == of_the_data
}

/// Asks the other members that this host's data lists.
pub async fn fence(root: &Root, ask: &EtcdAsk) -> Fence {
    if restored_now(root, ask) {
        return Fence::Starts("etcd starts: its data was restored just now".to_owned());
    }
    let starts = |why: &str| Fence::Starts(format!("etcd starts without asking the other members: {why}"));
    let own = match own(root, ask).await {
        Ok(Some(own)) => own,
        Ok(None) => return Fence::NoData,
        Err(why) => return starts(&why),
    };
    let (Some(revision), Some(members)) = (own.revision, &own.members) else {
        return starts(&format!("its own data cannot be read ({})", own.flaws.join("; ")));
    };
    let others: Vec<String> =
        members.iter().filter(|(id, ..)| *id != own.member).map(|(_, _, peer, _)| client_url(peer)).collect();
    if others.is_empty() {
        return starts("there are none in its data");
    }
    let until = Instant::now() + WITHIN;
    let asked = others.into_iter().map(|url| async move {
        let said = said(root, &EtcdAsk { url: url.clone(), ..ask.clone() }, until).await;
        (url, said)
    });
    verdict(&(own.cluster, revision), &futures::future::join_all(asked).await)
}

/// What this host's own files say; `None`: there are none.
async fn own(root: &Root, ask: &EtcdAsk) -> Result<Option<DiskFact>, String> {
    let data = root.path(&ask.data_dir).map_err(|fault| fault.what)?;
    if !data.join("member").exists() {
        return Ok(None);
    }
    let read = blocking(move || Ok(disk::read(&data))).await.map_err(|fault| fault.what)?;
    read.map(Some).map_err(|error| error.to_string())
}

/// Where a member answers its clients, by where it answers its peers.
fn client_url(peer: &PeerUrl) -> String {
    let peer = peer.as_str();
    format!("{}:2379", peer.strip_suffix(":2380").unwrap_or(peer))
}

/// What one member says of itself.
async fn said(root: &Root, ask: &EtcdAsk, until: Instant) -> Result<Reach, String> {
    let access: Outcome<Access> = access(root, ask);
    let access = access.map_err(|fault| fault.what)?;
    let mut last = format!("did not answer within {WITHIN:?}");
    let asked = async {
        loop {
            match etcd::status(&access, WITHIN).await {
                Err(error @ EtcdError::NotListening { refused: false, .. }) => last = error.to_string(),
                said => return said.map_err(|error| error.to_string()),
            }
            sleep(ASK_AGAIN).await;
        }
    };
    timeout_at(until, asked).await.unwrap_or(Err(last))
}

/// Judges by what was heard. One member of the cluster that came after is enough.
fn verdict(own: &Reach, heard: &[(String, Result<Reach, String>)]) -> Fence {
    let of = |(cluster, revision): &Reach| (cluster.clone(), *revision);
    let (cluster, revision) = of(own);
    let past = |(url, said): &(String, Result<Reach, String>)| {
        let (other, ahead) = said.as_ref().ok().map(of)?;
        left_behind((&cluster, revision), (&other, ahead)).then(|| {
            format!(
                "etcd stays down: this data is of cluster {cluster} at revision {revision}, which was recovered since as cluster \
                 {other}, now at revision {ahead} ({url}); `hactl up` takes this host in again and keeps the data aside"
            )
        })
    };
    if let Some(why) = heard.iter().find_map(past) {
        return Fence::StaysDown(why);
    }
    let words = heard.iter().map(|(url, said)| match said {
        Ok((other, _)) if *other == cluster => format!("{url} is of the same cluster"),
        Ok((other, ahead)) => {
            format!("{url} is of cluster {other} at revision {ahead}, which did not come after this one")
        }
        Err(why) => format!("{url}: {why}"),
    });
    Fence::Starts(format!("etcd starts: {}", words.collect::<Vec<_>>().join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::recovery::LEAP;

    fn heard(said: &[(&str, i64)]) -> Vec<(String, Result<Reach, String>)> {
        let one = |(n, (cluster, revision)): (usize, &(&str, i64))| {
            let said = if cluster.is_empty() {
                Err("nothing answers".to_owned())
            } else {
                Ok(((*cluster).to_owned(), *revision))
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
            let found = verdict(&("old".to_owned(), 800), &heard(said));
            assert_eq!(matches!(found, Fence::StaysDown(_)), stays_down, "{said:?}: {found:?}");
        }
        let extreme = verdict(&("old".to_owned(), i64::MIN), &heard(&[("new", i64::MAX)]));
        assert!(matches!(extreme, Fence::StaysDown(_)));
    }

    #[test]
    fn what_keeps_it_down_and_what_was_not_heard_is_said_in_one_line() {
        let own = ("c0ffee".to_owned(), 800);
        let Fence::StaysDown(line) = verdict(&own, &heard(&[("", 0), ("beef", LEAP + 900)])) else { panic!() };
        for word in ["c0ffee", "revision 800", "beef", "1000000900", "https://10.0.0.1:2379", "hactl up"] {
            assert!(line.contains(word), "{line}");
        }
        let Fence::Starts(line) = verdict(&own, &heard(&[("", 0), ("c0ffee", 900)])) else { panic!() };
        assert_eq!(
            line,
            "etcd starts: https://10.0.0.0:2379: nothing answers; https://10.0.0.1:2379 is of the same cluster"
        );
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
    async fn what_was_restored_just_now_starts_once_without_a_question() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::at(place.path());
        let path = || "/none".to_owned();
        let ask = EtcdAsk { url: String::new(), data_dir: "/data".to_owned(), ca: path(), cert: path(), key: path() };
        std::fs::create_dir_all(place.path().join("data/member/wal")).unwrap();
        std::fs::write(place.path().join("data").join(GENESIS), "token-one\n").unwrap();
        let said = async || match fence(&root, &ask).await {
            Fence::Starts(why) => why,
            other => panic!("{other:?}"),
        };
        may_start_once(&root, "token-two").unwrap();
        assert!(!said().await.contains("just now"), "other data");
        may_start_once(&root, "token-one").unwrap();
        assert!(said().await.contains("just now"));
        assert!(!said().await.contains("just now"), "once");
    }

    #[tokio::test]
    async fn what_cannot_be_read_keeps_nothing_from_starting() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::at(place.path());
        let ask = EtcdAsk {
            url: String::new(),
            data_dir: "/data".to_owned(),
            ca: "/none".to_owned(),
            cert: "/none".to_owned(),
            key: "/none".to_owned(),
        };
        assert_eq!(fence(&root, &ask).await, Fence::NoData);
        std::fs::create_dir_all(place.path().join("data/member/wal")).unwrap();
        let Fence::Starts(why) = fence(&root, &ask).await else { panic!("a damaged member is etcd's own to judge") };
        assert!(why.contains("member/wal"), "{why}");
    }
}

//! Texts about a recovery: the proposal, which people read before they agree to it, and the result.

use super::flow::Flow;
use super::style::{Paint, Style};
use super::words::{bytes, clean, count, millis, time};
use crate::model::names::HostName;
use crate::model::recovery::{Diagnosis, Fullness, Loss, Origin, Proposal, Source};
use std::time::Duration;

/// The proposal, with a line feed at its end.
pub fn proposal_text(proposal: &Proposal, style: &Style) -> String {
    let recovery = &proposal.recovery;
    let mut text = String::new();
    let mut say = |head: &str, words: String| {
        let lead = format!("  {head:<9} ");
        text.push_str(&Flow::of(&words, Paint::Plain).lines(&lead, lead.len(), style));
    };
    if proposal.begun {
        say("begun", format!("recovery {} was agreed to but not finished: it is resumed as agreed", recovery.id));
    }
    if let Some(other) = &proposal.gives_up {
        let (id, source) = (&other.id, clean(&other.source.to_string()));
        let words = format!(
            "recovery {id} from {source} was agreed to but not finished: it is abandoned, and the data that it \
             restored is moved aside"
        );
        say("begun", words);
    }
    for source in &proposal.sources {
        let why = if proposal.begun {
            "the recovery was begun with it"
        } else if proposal.passed_over.is_some() {
            "the newest data of a member"
        } else if proposal.sources.first() == Some(source) {
            "the newest readable data"
        } else {
            "your choice"
        };
        let chosen = if source.origin() == recovery.source { format!("; used: {why}") } else { String::new() };
        say("source", described(source, &chosen));
    }
    if let Some(further) = &proposal.passed_over {
        say("further", passed_over(proposal, further));
    }
    if !proposal.empty.is_empty() {
        let words = "a member ran there, and its data is gone. If a volume is not mounted, mount it and run `hactl up` \
                     instead: then nothing is lost";
        say("empty", format!("{}: {words}", names(proposal.empty.iter())));
    }
    for (host, revision) in &proposal.beyond {
        let words = format!(
            "{host} reports that revision {revision} was reached, which is implausibly high: hactl ignores it. Find \
             out why it reports that"
        );
        say("doubt", words);
    }
    say("loss", loss(proposal));
    let members = names(recovery.members.iter().map(|(name, _)| name));
    let fault = match recovery.tolerates() {
        0 => "it tolerates no failure until more members have joined".to_owned(),
        1 => "it tolerates 1 failure".to_owned(),
        n => format!("it tolerates {n} failures"),
    };
    let restored = if recovery.is_local() { "from its own data" } else { "from one snapshot" };
    say("members", format!("a new cluster of {members}, restored {restored}; {fault}"));
    let words = "all watches are cancelled and restarted, and no resourceVersion is used twice";
    say("revision", format!("continues above {}: {words}", recovery.base));
    let there = match recovery.members.len() {
        _ if none_in_place(proposal) => "anything in the data directories",
        1 => "the current data of the member",
        _ => "the current data of the members",
    };
    say("aside", format!("{there} is moved aside, not deleted"));
    if matches!(recovery.source, Origin::Bundle(_)) {
        let words = "Nodes of hosts that are no longer in the inventory are deleted with their pods once their \
                     kubelets stop reporting: keep such hosts off, or add them to the inventory";
        say("nodes", words.to_owned());
    }
    if proposal.unreachable.len() > proposal.voters / 2 {
        let words = "not answer. Together they have a quorum and would continue the old cluster: keep them powered off \
                     until the recovery is done. After that, their etcd does not start until `hactl up` adds them again";
        say("no answer", format!("{} {words}", unreachable(&proposal.unreachable)));
    } else if !proposal.unreachable.is_empty() {
        say(
            "no answer",
            format!("{} not answer, and cannot form a quorum on their own", unreachable(&proposal.unreachable)),
        );
    }
    if !proposal.later.is_empty() {
        say("later", format!("`hactl up` adds {} again, one at a time", names(proposal.later.iter())));
    }
    let voters = count(proposal.voters, "voter");
    let headline = if proposal.begun {
        "etcd is being recovered.".to_owned()
    } else if matches!(proposal.loss, Loss::Undone { .. }) {
        format!("etcd ({voters}) would go back to its data before the last recovery:")
    } else if none_in_place(proposal) {
        format!("No reachable host has the data of an etcd member ({voters}). This recovery would restore it:")
    } else {
        format!("etcd has lost its majority ({voters}). This recovery would restore it:")
    };
    format!("\n{}{text}", Flow::of(&headline, Paint::Bold).lines("", 0, style))
}

/// Whether no member has its data in place: all of it was lost or taken down.
fn none_in_place(proposal: &Proposal) -> bool {
    let undone = matches!(proposal.loss, Loss::Undone { .. });
    !undone && !proposal.sources.iter().any(|source| source.bundle.is_none() && source.aside.is_none())
}

/// Why a snapshot that claims to be newer is not used, and how to use it.
fn passed_over(proposal: &Proposal, further: &Source) -> String {
    let name = further.bundle.as_deref().map(clean).unwrap_or_default();
    let here = proposal.sources.iter().find(|source| source.origin() == proposal.recovery.source);
    let than = here.map_or_else(String::new, |here| {
        let ((term, entry), host, revision) = (here.reach, &here.host, here.revision);
        format!(", while the data of {host} ends at term {term}, entry {entry}, revision {revision} or later")
    });
    let (term, entry) = further.reach;
    format!(
        "{name} claims to end at term {term}, entry {entry}, revision {}{than}. hactl prefers the data of members to \
         any file; if you know that the file is right, use `hactl recover --from {name}`",
        further.revision
    )
}

fn names<'a>(hosts: impl Iterator<Item = &'a HostName>) -> String {
    hosts.map(HostName::as_str).collect::<Vec<_>>().join(", ")
}

fn unreachable(hosts: &[String]) -> String {
    match hosts {
        [one] => format!("{one} does"),
        more => format!("{} do", more.join(", ")),
    }
}

fn described(source: &Source, chosen: &str) -> String {
    let ((term, entry), host, revision, size) = (source.reach, &source.host, source.revision, bytes(source.db_bytes));
    let words = if let Some(name) = &source.bundle {
        let age = match source.ahead_ms {
            0 => ago(source.age_ms),
            ahead => super::snapshots::ago(i64::try_from(ahead).unwrap_or(i64::MAX), 0),
        };
        let place = source.away.as_ref().map_or_else(String::new, |place| format!(" in {}", clean(place)));
        let name = clean(name);
        format!("{name} of {host}{place}: term {term}, entry {entry}, revision {revision}, {size}, taken {age}{chosen}")
    } else {
        let place = source.aside.as_ref().map_or_else(String::new, |name| format!(":{}", clean(name)));
        let at = format!("{host}{place}: term {term}, entry {entry}");
        format!("{at}, revision {revision} or later, {size}, last written {} ago{chosen}", millis(source.age_ms))
    };
    source.flaws.iter().fold(words, |words, flaw| format!("{words}; {}", clean(flaw)))
}

fn ago(ms: u64) -> String {
    super::snapshots::ago(0, i64::try_from(ms).unwrap_or(i64::MAX))
}

fn loss(proposal: &Proposal) -> String {
    let age = proposal.sources.iter().find(|s| s.origin() == proposal.recovery.source).map(|s| millis(s.age_ms));
    let age = age.unwrap_or_else(|| "an unknown time".to_owned());
    match proposal.loss {
        Loss::Nothing => "none: that data contains every acknowledged write".to_owned(),
        Loss::CannotBeKnown => format!(
            "cannot be known: only the missing majority knows what it committed after the last entry of that data, \
             {age} ago{}",
            if proposal.passed_over.is_some() { "" } else { ". There is no newer readable data" }
        ),
        Loss::Since { ms, revisions } => {
            let all = "everything that was written since";
            let least = match revisions {
                0 => String::new(),
                known => format!(": at least {}", count_revisions(known)),
            };
            match &proposal.recovery.source {
                Origin::Bundle(_) => format!("{all} that snapshot was taken, {}{least}", ago(ms)),
                _ => format!("{all} the last write to that data, {}{least}", ago(ms)),
            }
        }
        Loss::Abandoned => "everything that was written after that recovery: you chose data from BEFORE it".to_owned(),
        Loss::Chosen { entries, revisions, ms } => {
            let most = match entries {
                0 => "the entries of a later term in a newer source".to_owned(),
                some => format!("at least {some} entries of a newer source"),
            };
            let known = if revisions > 0 { format!(", about {}", count_revisions(revisions)) } else { String::new() };
            let stretch = if ms > 0 { format!(", written within {}", millis(ms)) } else { String::new() };
            format!("{most}{known}{stretch}: you chose an OLDER source")
        }
        Loss::Undone { revisions } => {
            format!("everything that was written since then, {age} ago: about {}", count_revisions(revisions))
        }
    }
}

/// The result of a recovery, in one sentence.
pub fn recovered(proposal: &Proposal, quorum: Duration, endpoint: Option<Duration>) -> String {
    let loss = match proposal.loss {
        Loss::Nothing => "no acknowledged write is lost".to_owned(),
        Loss::CannotBeKnown => "writes that only the lost members had are lost; how many cannot be known".to_owned(),
        Loss::Since { ms, .. } => match &proposal.recovery.source {
            Origin::Bundle(_) => format!("all writes since the snapshot was taken, {}, are lost", ago(ms)),
            _ => format!("all writes since the last write to that data, {}, are lost", ago(ms)),
        },
        Loss::Abandoned => "the writes after that recovery are lost, as you chose".to_owned(),
        Loss::Chosen { .. } => "the entries that only the newer source had are lost, as you chose".to_owned(),
        Loss::Undone { revisions } => {
            format!("about {} are undone, and their data was moved aside", count_revisions(revisions))
        }
    };
    let served = endpoint
        .map_or_else(|| "the endpoint does not serve yet".to_owned(), |t| format!("the endpoint after {}", time(t)));
    format!("etcd is recovered from {}: a quorum after {}, {served}; {loss}", proposal.recovery.source, time(quorum))
}

fn count_revisions(revisions: u64) -> String {
    count(usize::try_from(revisions).unwrap_or(usize::MAX), "revision")
}

/// The database size of each member, and its quota.
pub fn fullness(members: &[Fullness]) -> String {
    let one = |f: &Fullness| match f.quota_bytes {
        0 => format!("{} {}", f.host, bytes(f.db_bytes)),
        quota => format!("{} {} of {}", f.host, bytes(f.db_bytes), bytes(quota)),
    };
    members.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The result of freeing space in a full database.
pub fn roomy(before: &[Fullness], after: &[Fullness]) -> String {
    format!(
        "etcd takes writes again, and nothing was lost: {}, previously {}. Find out what fills it, or raise \
         `etcd.quotaGiB`",
        fullness(after),
        fullness(before)
    )
}

/// The result of replacing diverged members.
pub fn replaced(odd: &[HostName]) -> String {
    format!("{} joined again with the keys of the others; the previous data was moved aside", names(odd.iter()))
}

/// Why nothing is to be recovered.
pub fn nothing(diagnosis: &Diagnosis) -> String {
    match diagnosis {
        Diagnosis::Serves { healthy, voters } if healthy == voters => {
            format!("nothing to recover: all {voters} members of etcd are healthy")
        }
        Diagnosis::Serves { healthy, voters } => format!(
            "nothing to recover: {healthy} of {voters} members of etcd form a quorum; `hactl up` heals the others"
        ),
        Diagnosis::Uninitialized => {
            "nothing to recover: there is no cluster; `hactl up` bootstraps one, and `--from SNAPSHOT` restores one \
             that was taken down"
                .to_owned()
        }
        Diagnosis::Asleep => {
            "nothing is lost: members have their data and only have to be started, without a restore".to_owned()
        }
        Diagnosis::Full(full) => format!(
            "nothing is lost: etcd has reached its quota and takes no writes ({}). Without --dry-run, hactl compacts \
             it, defragments its members one after the other, and disarms the alarm",
            fullness(full)
        ),
        Diagnosis::Odd { odd, agree } => format!(
            "nothing is lost: {} agree, and {} with other keys. Without --dry-run, hactl removes such members one at \
             a time, and they join again with the keys of the others; their data is moved aside",
            count(*agree, "member"),
            match odd.as_slice() {
                [one] => format!("{one} answers"),
                more => format!("{} answer", names(more.iter())),
            }
        ),
        Diagnosis::Unfinished => {
            "etcd is already recovered, but the steps after that may not be finished: without --dry-run, hactl \
             finishes them, as `hactl up` would, and restores or undoes nothing else"
                .to_owned()
        }
        Diagnosis::Lost(_) => "a majority is lost".to_owned(),
    }
}

//! What a recovery would do, as a person reads it before agreeing to it, and what it did.

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
        say("begun", format!("recovery {} was agreed to and not finished: it goes on as it was begun", recovery.id));
    }
    if let Some(other) = &proposal.gives_up {
        let words = format!(
            "recovery {} from {} was agreed to and not finished: it is given up, and what it restored is moved aside",
            other.id,
            clean(&other.source.to_string())
        );
        say("begun", words);
    }
    for source in &proposal.sources {
        let why = if proposal.begun {
            "it was begun with that"
        } else if proposal.passed_over.is_some() {
            "of the data that members have it goes furthest"
        } else if proposal.sources.first() == Some(source) {
            "of all that can be read it goes furthest"
        } else {
            "you chose it"
        };
        let chosen = if source.origin() == recovery.source { format!(", and is taken: {why}") } else { String::new() };
        say("source", described(source, &chosen));
    }
    if let Some(further) = &proposal.passed_over {
        say("further", passed_over(proposal, further));
    }
    if !proposal.empty.is_empty() {
        say(
            "empty",
            format!(
                "{}: a member ran there, and its data is gone. If a volume is not mounted, mount it instead and run `hactl up`: \
                 then nothing is lost",
                names(proposal.empty.iter())
            ),
        );
    }
    for (host, revision) in &proposal.beyond {
        let words = format!(
            "{host} says that revision {revision} was given out, to which no cluster comes from here: it is not believed, find out why it says so"
        );
        say("doubt", words);
    }
    say("loss", loss(proposal));
    let members = names(recovery.members.iter().map(|(name, _)| name));
    let fault = match recovery.tolerates() {
        0 => "none of them may fail until more have joined".to_owned(),
        n => format!("{n} of them may fail"),
    };
    say("members", format!("{members}: a new cluster, all from that one snapshot; {fault}"));
    say(
        "revision",
        format!(
            "goes on above {}: every watch breaks and is begun anew, and no resourceVersion comes twice",
            recovery.base
        ),
    );
    let there = match recovery.members.len() {
        _ if none_in_place(proposal) => "whatever lies where the data belongs",
        1 => "the data that is there now",
        _ => "the data that the members have now",
    };
    say("aside", format!("{there} is moved aside, not deleted"));
    if matches!(recovery.source, Origin::Bundle(_)) {
        say(
            "nodes",
            "those of hosts that the inventory does not name any more are deleted with their pods, once their kubelets are silent: keep \
             such hosts off, or name them"
                .to_owned(),
        );
    }
    if proposal.dark.len() > proposal.voters / 2 {
        say(
            "dark",
            format!(
                "{} not answer. Together they would go on as the old cluster: keep their power off until this is \
                 done; from then on their etcd stays down by itself until `hactl up` takes them in",
                dark(&proposal.dark)
            ),
        );
    } else if !proposal.dark.is_empty() {
        say("dark", format!("{} not answer: no quorum without the others", dark(&proposal.dark)));
    }
    if !proposal.later.is_empty() {
        say("later", format!("`hactl up` takes {} in again, one at a time", names(proposal.later.iter())));
    }
    let headline = if proposal.begun {
        "etcd is being recovered.".to_owned()
    } else if matches!(proposal.loss, Loss::Undone { .. }) {
        format!("etcd ({}) would go back to what was there before:", count(proposal.voters, "voter"))
    } else if none_in_place(proposal) {
        let voters = count(proposal.voters, "voter");
        format!("No host that answers has the data of a member of etcd ({voters}). This would bring it back:")
    } else {
        format!("etcd has lost its majority ({}). This would bring it back:", count(proposal.voters, "voter"))
    };
    format!("\n{}{text}", Flow::of(&headline, Paint::Bold).lines("", 0, style))
}

/// Whether nobody has data to go on with: all of it is lost, or was taken down.
fn none_in_place(proposal: &Proposal) -> bool {
    let undone = matches!(proposal.loss, Loss::Undone { .. });
    !undone && !proposal.sources.iter().any(|source| source.bundle.is_none() && source.aside.is_none())
}

/// Why a bundle is not taken that says that it goes further, and how it would be.
fn passed_over(proposal: &Proposal, further: &Source) -> String {
    let name = further.bundle.as_deref().map(clean).unwrap_or_default();
    let here = proposal.sources.iter().find(|source| source.origin() == proposal.recovery.source);
    let than = here.map_or_else(String::new, |here| {
        let (term, entry) = here.reach;
        format!(
            ", and the data of {} goes to term {term}, entry {entry}, revision {} or later",
            here.host, here.revision
        )
    });
    let (term, entry) = further.reach;
    format!(
        "{name} says that it goes to term {term}, entry {entry}, revision {}{than}. A member's own data is taken before any file; if you know that the \
         file is right, `hactl recover --from {name}`",
        further.revision
    )
}

fn names<'a>(hosts: impl Iterator<Item = &'a HostName>) -> String {
    hosts.map(HostName::as_str).collect::<Vec<_>>().join(", ")
}

fn dark(hosts: &[String]) -> String {
    match hosts {
        [one] => format!("{one} does"),
        more => format!("{} do", more.join(", ")),
    }
}

fn described(source: &Source, chosen: &str) -> String {
    let (term, entry) = source.reach;
    if let Some(name) = &source.bundle {
        let age = match source.ahead_ms {
            0 => ago(source.age_ms),
            ahead => super::snapshots::ago(i64::try_from(ahead).unwrap_or(i64::MAX), 0),
        };
        let place = source.away.as_ref().map_or_else(String::new, |place| format!(" in {}", clean(place)));
        let words = format!(
            "{} of {}{place}: term {term}, entry {entry}, revision {}, {}, taken {age}{chosen}",
            clean(name),
            source.host,
            source.revision,
            bytes(source.db_bytes)
        );
        return flawed(words, source);
    }
    let place = source.aside.as_ref().map_or_else(String::new, |name| format!(":{}", clean(name)));
    let words = format!(
        "{}{place}: term {term}, entry {entry}, revision {} or later, {}, last written {} ago{chosen}",
        source.host,
        source.revision,
        bytes(source.db_bytes),
        millis(source.age_ms)
    );
    flawed(words, source)
}

fn flawed(words: String, source: &Source) -> String {
    source.flaws.iter().fold(words, |words, flaw| format!("{words}; {}", clean(flaw)))
}

fn ago(ms: u64) -> String {
    super::snapshots::ago(0, i64::try_from(ms).unwrap_or(i64::MAX))
}

fn loss(proposal: &Proposal) -> String {
    let age = proposal.sources.iter().find(|s| s.origin() == proposal.recovery.source).map(|s| millis(s.age_ms));
    let age = age.unwrap_or_else(|| "an unknown time".to_owned());
    match proposal.loss {
        Loss::Nothing => "none: every write that was ever acknowledged is in that data".to_owned(),
        Loss::CannotBeKnown => format!(
            "cannot be known: a majority is missing, and only it could tell what it agreed on after that data's last entry, \
             {age} ago{}",
            if proposal.passed_over.is_some() { "" } else { ". Nothing that can be read is newer" }
        ),
        Loss::Since { ms, revisions } => {
            let least = match revisions {
                0 => String::new(),
                known => format!(": at least {}", count_revisions(known)),
            };
            match &proposal.recovery.source {
                Origin::Bundle(_) => {
                    format!("everything that was written since that bundle was taken, {}{least}", ago(ms))
                }
                _ => format!("everything that was written since that data was last written to, {}{least}", ago(ms)),
            }
        }
        Loss::Abandoned => {
            "everything that the cluster took which came after it: you chose data of BEFORE a recovery".to_owned()
        }
        Loss::Chosen { entries, revisions, ms } => {
            let most = match entries {
                0 => "what a newer source has of a later term".to_owned(),
                some => format!("at least {some} entries that a newer source has"),
            };
            let known = if revisions > 0 { format!(", about {}", count_revisions(revisions)) } else { String::new() };
            let stretch = if ms > 0 { format!(", written within {}", millis(ms)) } else { String::new() };
            format!("{most}{known}{stretch}: you chose an OLDER one")
        }
        Loss::Undone { revisions } => {
            format!("everything that was written since then, {age} ago: about {}", count_revisions(revisions))
        }
    }
}

/// What was done, in one sentence.
pub fn recovered(proposal: &Proposal, quorum: Duration, endpoint: Option<Duration>) -> String {
    let loss = match proposal.loss {
        Loss::Nothing => "no acknowledged write is lost".to_owned(),
        Loss::CannotBeKnown => "what only the lost members knew cannot be known".to_owned(),
        Loss::Since { ms, .. } => match &proposal.recovery.source {
            Origin::Bundle(_) => format!("what was written since the bundle was taken, {}, is lost", ago(ms)),
            _ => format!("what was written since that data was last written to, {}, is lost", ago(ms)),
        },
        Loss::Abandoned => "what the cluster took that came after it is lost, as you chose".to_owned(),
        Loss::Chosen { .. } => "what only the newer source had is lost, as you chose".to_owned(),
        Loss::Undone { revisions } => {
            format!("about {} since are undone, and their data lies aside", count_revisions(revisions))
        }
    };
    let served = endpoint
        .map_or_else(|| "the endpoint does not serve yet".to_owned(), |t| format!("the endpoint after {}", time(t)));
    format!("etcd is recovered from {}: a quorum after {}, {served}; {loss}", proposal.recovery.source, time(quorum))
}

fn count_revisions(revisions: u64) -> String {
    count(usize::try_from(revisions).unwrap_or(usize::MAX), "revision")
}

/// How full members are.
pub fn fullness(members: &[Fullness]) -> String {
    let one = |f: &Fullness| match f.quota_bytes {
        0 => format!("{} {}", f.host, bytes(f.db_bytes)),
        quota => format!("{} {} of {}", f.host, bytes(f.db_bytes), bytes(quota)),
    };
    members.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What making room came to.
pub fn roomy(before: &[Fullness], after: &[Fullness]) -> String {
    format!(
        "etcd takes writes again, and nothing was lost: {}, before that {}. Find out what fills it, or give it more by `etcd.quotaGiB`",
        fullness(after),
        fullness(before)
    )
}

/// What replacing members came to.
pub fn replaced(odd: &[HostName]) -> String {
    format!("{} joined anew with the keys of the others; the data of before lies aside", names(odd.iter()))
}

/// Why nothing is to be recovered.
pub fn nothing(diagnosis: &Diagnosis) -> String {
    match diagnosis {
        Diagnosis::Serves { healthy, voters } if healthy == voters => {
            format!("nothing to recover: all {voters} members of etcd are healthy")
        }
        Diagnosis::Serves { healthy, voters } => {
            format!(
                "nothing to recover: {healthy} of {voters} members of etcd are a quorum; `hactl up` heals the others"
            )
        }
        Diagnosis::Uninitialized => {
            "nothing to recover: there is no cluster; `hactl up` founds one, and `--from BUNDLE` brings back one that was taken down".to_owned()
        },
        Diagnosis::Asleep => {
            "nothing is lost: members have their data and only have to be started, without a restore".to_owned()
        }
        Diagnosis::Full(full) => format!(
            "nothing is lost: etcd has reached its quota and takes no writes ({}). Without --dry-run its history is forgotten, its members \
             write their stores anew, one after the other, and the alarm is taken off",
            fullness(full)
        ),
        Diagnosis::Odd { odd, agree } => format!(
            "nothing is lost: {} agree, and {} with other keys. Without --dry-run it is taken out, one at a time, and joins \
             anew with the others' keys; its data is moved aside",
            count(*agree, "member"),
            match odd.as_slice() {
                [one] => format!("{one} answers"),
                more => format!("{} answer", names(more.iter())),
            }
        ),
        Diagnosis::Unfinished => {
            "etcd is recovered already, and what hangs on it may not be finished: without --dry-run that is done, as by `hactl up`, and \
             nothing else is restored or undone"
                .to_owned()
        }
        Diagnosis::Lost(_) => "a majority is lost".to_owned(),
    }
}

//! Summarises many steps in few phrases: `deliver 21 parts: etcd, containerd, kubelet ...` instead of 21 lines.
//!
//! In: steps of one host and stage. Out: phrases with their reasons, for plans and for progress alike.

use super::words::{count, list};
use crate::model::facts::Members;
use crate::model::plan::{Action, HowToRun, Impact, InitialClusterState, Precondition, Step};
use crate::model::target::FileSet;

/// How many names a phrase lists before it counts the rest.
const MOST: usize = 6;

/// A phrase for steps of one kind, with their reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// What is done.
    pub what: String,
    /// Why; with several reasons, the first and how many more.
    pub why: String,
}

/// Whether a step gets its own line: a change of membership, a restart of something that serves, a loss of data, or a
/// step that belongs to one of these.
pub fn stands_out(step: &Step, members: Option<&Members>) -> bool {
    let story = matches!(step.action, Action::StartMember { .. } | Action::MoveLeader { .. }) && members.is_some();
    story || step.action.profile().impact > Impact::None || matches!(step.precondition, Precondition::Tolerates { .. })
}

/// The steps as rows, one for each kind of action, each with the position of its first step.
pub fn rows(steps: &[&Step]) -> Vec<(usize, Row)> {
    let mut kinds: Vec<(usize, Vec<&Step>)> = Vec::new();
    for (position, step) in steps.iter().enumerate() {
        match kinds.iter_mut().find(|(first, _)| alike(&steps[*first].action, &step.action)) {
            Some((_, same)) => same.push(step),
            None => kinds.push((position, vec![step])),
        }
    }
    kinds.into_iter().map(|(first, steps)| (first, row(&steps))).collect()
}

fn row(steps: &[&Step]) -> Row {
    let actions: Vec<&Action> = steps.iter().map(|s| &s.action).collect();
    let mut whys: Vec<&str> = Vec::new();
    for step in steps {
        if !step.why.is_empty() && !whys.contains(&step.why.as_str()) {
            whys.push(&step.why);
        }
    }
    let all = |what: &str| whys.iter().all(|why| why.contains(what));
    let why = match whys.as_slice() {
        [] => String::new(),
        [one] => plural(one, steps.len()),
        _ if all("missing or damaged") => "they are missing or damaged".to_owned(),
        _ if all("missing or differ") => "they are missing or differ".to_owned(),
        [first, rest @ ..] => format!("{first}; and {}", count(rest.len(), "more reason")),
    };
    Row { what: phrase(&actions), why }
}

/// Turns a reason for one thing into one for several.
fn plural(why: &str, things: usize) -> String {
    if things == 1 {
        return why.to_owned();
    }
    let said =
        [("it does ", "they do "), ("it runs ", "they run "), ("it is ", "they are "), ("it has ", "they have ")];
    let why = said
        .iter()
        .find_map(|(one, many)| why.strip_prefix(one).map(|rest| format!("{many}{rest}")))
        .unwrap_or_else(|| why.to_owned());
    why.strip_suffix(" it").map(|head| format!("{head} them")).unwrap_or(why)
}

/// Whether two actions belong in one phrase.
fn alike(a: &Action, b: &Action) -> bool {
    match (a, b) {
        (Action::RunUnit { how: a, .. }, Action::RunUnit { how: b, .. }) => a == b,
        (Action::Configure { set: a, .. }, Action::Configure { set: b, .. }) => {
            (*a == FileSet::ControlPlane) == (*b == FileSet::ControlPlane) && a.is_former() == b.is_former()
        }
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}

/// One phrase for similar actions. A single action keeps its own text.
pub fn phrase(actions: &[&Action]) -> String {
    let Some(first) = actions.first() else { return String::new() };
    let names = |name: fn(&Action) -> Option<String>| actions.iter().filter_map(|a| name(a)).collect::<Vec<_>>();
    match first {
        Action::Deliver { part, .. } if actions.len() == 1 => format!("deliver {part}"),
        Action::Deliver { .. } => {
            let parts = names(|a| if let Action::Deliver { part, .. } = a { Some(part.clone()) } else { None });
            format!("deliver {}: {}", count(parts.len(), "part"), list(&parts, MOST))
        }
        Action::Import { reference, .. } if actions.len() == 1 => format!("import {}", image(reference)),
        Action::Import { .. } => {
            let images =
                names(|a| if let Action::Import { reference, .. } = a { Some(image(reference)) } else { None });
            format!("import {}: {}", count(images.len(), "image"), list(&images, MOST))
        }
        Action::Configure { .. } => {
            let sets = names(|a| if let Action::Configure { set, .. } = a { Some(set.to_string()) } else { None });
            let files =
                actions.iter().map(|a| if let Action::Configure { paths, .. } = a { paths.len() } else { 0 }).sum();
            format!("{} {}: {}", written(first), count(files, "file"), list(&sets, MOST + 4))
        }
        Action::Certify { .. } => {
            let leaves = actions.iter().map(|a| if let Action::Certify { leaves, .. } = a { leaves.len() } else { 0 });
            format!("issue {}", count(leaves.sum(), "certificate"))
        }
        Action::RunUnit { how, .. } => {
            let units = names(|a| if let Action::RunUnit { unit, .. } = a { Some(short(unit.as_str())) } else { None });
            let verb = match how {
                HowToRun::Start => "start",
                HowToRun::Restart => "restart",
                HowToRun::Reload => "reload",
            };
            format!("{verb} {}", list(&units, MOST))
        }
        Action::StartMember { state: InitialClusterState::New { initial_members, .. }, .. } => {
            format!("start etcd as one of {} initial members", initial_members.len())
        }
        Action::Seal { .. } => "mark etcd as bootstrapped, so that a later start can only join".to_owned(),
        Action::Apply { objects, .. } if actions.len() == 1 && objects.len() <= 1 => first.to_string(),
        Action::Apply { .. } => {
            let addons = names(|a| if let Action::Apply { addon, .. } = a { Some(addon.clone()) } else { None });
            let objects =
                actions.iter().map(|a| if let Action::Apply { objects, .. } = a { objects.len() } else { 0 }).sum();
            format!("apply {}: {}", count(objects, "object"), list(&addons, MOST + 4))
        }
        one => {
            let mut words: Vec<String> = Vec::new();
            for action in actions {
                let text = action.to_string();
                if !words.contains(&text) {
                    words.push(text);
                }
            }
            if words.len() > MOST { format!("{one} and {} more", words.len() - 1) } else { words.join("; ") }
        }
    }
}

/// Phrases without their lists of names, for a line of progress; `done` selects the wording for finished steps.
pub fn brief(actions: &[&Action], done: bool) -> String {
    let mut kinds: Vec<Vec<&Action>> = Vec::new();
    for action in actions {
        let same = |kind: &&mut Vec<&Action>| kind.first().is_some_and(|first| alike_in_brief(first, action));
        match kinds.iter_mut().find(same) {
            Some(same) => same.push(action),
            None => kinds.push(vec![action]),
        }
    }
    let phrases = kinds.iter().filter_map(|same| {
        let head = || phrase(same).split_once(':').map_or_else(|| phrase(same), |(head, _)| head.to_owned());
        let said = match same.first()? {
            Action::WriteClusterId { .. } => "write the cluster's identity".to_owned(),
            Action::Prepare { .. } => "prepare it".to_owned(),
            Action::Deliver { .. } | Action::Import { .. } | Action::Configure { .. } | Action::Apply { .. }
                if same.len() > 1 =>
            {
                head()
            }
            Action::Configure { set, .. } => format!("{} {set}", written(same.first()?)),
            Action::StartMember { .. } => "start etcd".to_owned(),
            Action::Seal { .. } => "mark etcd as bootstrapped".to_owned(),
            Action::ProveQuorum if done => "a quorum answers".to_owned(),
            Action::AwaitServing { .. } if done => "API server ready".to_owned(),
            Action::AwaitApi if done => "an API server ready".to_owned(),
            Action::AwaitEndpoint if done => "endpoint ready".to_owned(),
            Action::AwaitNode { .. } if done => "Node ready".to_owned(),
            _ => phrase(same),
        };
        Some(said)
    });
    phrases.collect::<Vec<_>>().join(", ")
}

/// The verb for a set of files: the files of a role that the host lost are removed.
fn written(action: &Action) -> &'static str {
    if matches!(action, Action::Configure { set, .. } if set.is_former()) { "remove" } else { "write" }
}

/// For brief phrases, all written files are one kind, and all removed files are another.
fn alike_in_brief(a: &Action, b: &Action) -> bool {
    match (a, b) {
        (Action::Configure { .. }, Action::Configure { .. }) => written(a) == written(b),
        _ => alike(a, b),
    }
}

/// Shortens `registry.k8s.io/coredns/coredns:v1.14.6` to `coredns:v1.14.6`.
fn image(reference: &str) -> String {
    reference.rsplit('/').next().unwrap_or(reference).to_owned()
}

/// Shortens `kubelet.service` to `kubelet`; other kinds of units keep their suffix.
fn short(unit: &str) -> String {
    unit.strip_suffix(".service").unwrap_or(unit).to_owned()
}

/// The etcd members in one phrase: `3 voters, quorum 2, 3 healthy, tolerates 1 failure`.
pub fn quorum(members: &Members) -> String {
    let learners = members.0.len() - members.voters();
    let mut text = count(members.voters(), "voter");
    if learners > 0 {
        text.push_str(&format!(" + {}", count(learners, "learner")));
    }
    text.push_str(&format!(", quorum {}, {} healthy", members.quorum(), members.healthy()));
    match members.spare() {
        None => text.push_str(", NO QUORUM"),
        Some(0) => text.push_str(", tolerates no failure"),
        Some(n) => text.push_str(&format!(", tolerates {}", count(n, "failure"))),
    }
    text
}

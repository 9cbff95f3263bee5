//! Summarises many steps in few phrases: `deliver 21 parts: etcd, containerd, kubelet ...` instead of 21 lines.
//!
//! In: steps of one host and stage. Out: phrases with their reasons, for plans and for progress alike.

use super::words::{count, list};
use crate::model::facts::Members;
use crate::model::plan::{Action, Impact, Precondition, Several, Step};
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
    let of_control_plane = |action: &Action| matches!(action, Action::Configure { set: FileSet::ControlPlane, .. });
    alike_in_brief(a, b) && of_control_plane(a) == of_control_plane(b)
}

/// For brief phrases, all written files are one kind, and all removed files are another.
fn alike_in_brief(a: &Action, b: &Action) -> bool {
    let verb = |action: &Action| action.several().map(|several| several.verb());
    a.kind() == b.kind() && verb(a) == verb(b)
}

/// One phrase for similar actions. A single action keeps its own text.
pub fn phrase(actions: &[&Action]) -> String {
    let Some(first) = actions.first() else { return String::new() };
    let several: Vec<Several> = actions.iter().filter_map(|action| action.several()).collect();
    match several.as_slice() {
        [Several::Names { verb, name, .. }] => format!("{verb} {name}"),
        [Several::Things { verb: "apply", count: ..=1, .. }] => first.to_string(),
        [Several::Names { verb, noun, .. }, ..] => {
            let names: Vec<&str> = several.iter().map(Several::name).collect();
            let what = if noun.is_empty() { String::new() } else { format!("{}: ", count(names.len(), noun)) };
            format!("{verb} {what}{}", list(&names, MOST))
        }
        [Several::Things { verb, noun, .. }, ..] => {
            let names: Vec<&str> = several.iter().map(Several::name).filter(|name| !name.is_empty()).collect();
            let of = if names.is_empty() { String::new() } else { format!(": {}", list(&names, MOST + 4)) };
            format!("{verb} {}{of}", count(several.iter().map(Several::count).sum(), noun))
        }
        [] => {
            let mut words: Vec<String> = Vec::new();
            for action in actions {
                let text = action.to_string();
                if !words.contains(&text) {
                    words.push(text);
                }
            }
            if words.len() > MOST { format!("{first} and {} more", words.len() - 1) } else { words.join("; ") }
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
        let first = same.first()?;
        let whole = || phrase(same);
        Some(match first.several().filter(|_| same.len() > 1) {
            Some(_) => whole().split(':').next().unwrap_or_default().to_owned(),
            None => first.in_short(done).unwrap_or_else(whole),
        })
    });
    phrases.collect::<Vec<_>>().join(", ")
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

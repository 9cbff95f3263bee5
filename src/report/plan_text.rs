//! A plan as text, as people read it before they agree to it.
//!
//! Disruptive steps come first, one by one, with the quorum after each. The rest follows in few lines, with one line
//! for all hosts that have the same steps. `-v` lists every step.

use super::flow::Flow;
use super::group::{Row, quorum, rows, stands_out};
use super::style::{Paint, Style};
use super::words::{columns, count, hosts, one_line};
use crate::model::action::Kind;
use crate::model::facts::{ETCD_UNIT, Members};
use crate::model::names::{HostName, PeerUrl};
use crate::model::plan::{Action, Disturbs, Impact, InitialClusterState, Plan, Precondition, STAND_IN, Stage, Step};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

const STAGES: [Stage; 6] =
    [Stage::Prepare, Stage::Deliver, Stage::Configure, Stage::Etcd, Stage::ControlPlane, Stage::Cluster];

/// The plan as text, with a line feed at its end.
pub fn plan_text(plan: &Plan, style: &Style) -> String {
    let mut text = Flow::of(&headline(plan), Paint::Bold).lines("", 0, style);
    for warning in &plan.warnings {
        let lead = format!("{} ", style.warn());
        text.push_str(&Flow::of(warning, Paint::Plain).lines(&lead, 2, style));
    }
    text.push_str(&in_full(plan, style));
    if style.verbosity == 0 {
        text.push_str(&calm(plan, style));
    }
    if let Some(horizon) = &plan.horizon {
        text.push('\n');
        let flow = Flow::of("The plan ends here for now:", Paint::Bold)
            .and(&format!("{horizon}. Then hactl observes the hosts again and plans the rest."), Paint::Plain);
        text.push_str(&flow.lines("", 0, style));
    }
    text
}

/// How many steps, on how many hosts, and what they disturb.
fn headline(plan: &Plan) -> String {
    if plan.is_empty() {
        return if plan.warnings.is_empty() {
            "Nothing to do: everything is as the inventory asks for.".to_owned()
        } else {
            "Nothing to do, but note:".to_owned()
        };
    }
    let mut places: Vec<&HostName> = plan.steps.iter().filter_map(|s| s.action.host()).collect();
    places.sort_unstable();
    places.dedup();
    let steps = count(plan.steps.len(), "step");
    let scope = if places.is_empty() { steps } else { format!("{steps} on {}", count(places.len(), "host")) };
    format!("{scope}. {}", disturbance(plan))
}

/// What a plan disturbs, in one sentence.
pub fn disturbance(plan: &Plan) -> String {
    let mut sums: Vec<(Disturbs, Kind)> = Vec::new();
    for step in &plan.steps {
        let own = step.action.disturbs();
        let disturbs = if step.impact() > own.impact { Disturbs::RESTART } else { own };
        match sums.iter_mut().find(|(sum, _)| sum.words == disturbs.words) {
            Some((sum, _)) => sum.count += disturbs.count,
            None => sums.push((disturbs, step.action.kind())),
        }
    }
    sums.retain(|(sum, _)| sum.impact > Impact::None);
    // The worst first; of the same impact in the order of the table, and restarts last.
    sums.sort_by_key(|(sum, kind)| (Reverse(sum.impact), sum.words == Disturbs::RESTART.words, *kind));
    let words = |(sum, _): &(Disturbs, Kind)| {
        let is = if sum.count == 1 { "is" } else { "are" };
        sum.words.replace("{}", &count(sum.count, sum.noun)).replace("{is}", is)
    };
    let parts: Vec<String> = sums.iter().map(words).collect();
    if parts.is_empty() {
        return "Nothing that serves is disturbed.".to_owned();
    }
    let mut text = parts.join("; ");
    if let Some(first) = text.get(..1).map(str::to_uppercase) {
        text.replace_range(..1, &first);
    }
    text.push('.');
    text
}

fn members(plan: &Plan, index: usize) -> Option<&Members> {
    plan.forecast.get(index).and_then(Option::as_ref)
}

/// The disruptive steps, one by one, in their order; with `-v` every step, numbered as `-o json` and the run log number
/// them.
fn in_full(plan: &Plan, style: &Style) -> String {
    let all = style.verbosity > 0;
    let shown = |at: &usize| all || stands_out(&plan.steps[*at], members(plan, *at));
    let steps: Vec<usize> = (0..plan.steps.len()).filter(shown).collect();
    if steps.is_empty() {
        return String::new();
    }
    let names = peer_names(plan);
    let place = |step: &Step| place(step, &names);
    let widest = steps.iter().map(|&at| columns(&place(&plan.steps[at]))).max().unwrap_or(0);
    let title = style.paint(Paint::Bold, "one by one, in this order");
    let mut text = if all { "\n".to_owned() } else { format!("\n{title}\n") };
    for (position, &index) in steps.iter().enumerate() {
        let step = &plan.steps[index];
        let number = if all { format!("{index:>4}  ") } else { format!("{:>3}. ", position + 1) };
        let place = format!("{:<widest$}  ", place(step));
        let indent = columns(&number) + columns(&place);
        let number = style.paint(if all { Paint::Dim } else { Paint::Plain }, &number);
        let lead = format!("{number}{}", style.paint(Paint::Bold, &place));
        let more = |flow: Flow| flow.lines(&" ".repeat(indent), indent, style);
        text.push_str(&deed(&step.action.to_string(), &step.why, style).lines(&lead, indent, style));
        if let Precondition::Tolerates { down } = &step.precondition
            && !all
        {
            text.push_str(&more(Flow::of(&format!("only while the cluster can do without {down}"), Paint::Dim)));
        }
        if let Some(members) = members(plan, index).filter(|_| about_etcd(step)) {
            let paint = if members.spare().is_none() && !all { Paint::Bad } else { Paint::Plain };
            text.push_str(&more(Flow::of("after:", Paint::Dim).and(&quorum(members), paint)));
        }
        if let Action::Configure { paths, .. } = &step.action
            && style.verbosity > 1
        {
            text.extend(paths.iter().map(|path| more(Flow::of(path, Paint::Dim))));
        }
    }
    text
}

/// Whether the quorum after this step deserves a line.
fn about_etcd(step: &Step) -> bool {
    let member = matches!(&step.action, Action::RunUnit { unit, .. } if unit.as_str() == ETCD_UNIT);
    member || step.precondition != Precondition::None || step.action.profile().impact == Impact::Membership
}

/// The host of each member, as far as the plan knows it, because people think of hosts and not of URLs.
fn peer_names(plan: &Plan) -> BTreeMap<&PeerUrl, &str> {
    let mut names = BTreeMap::new();
    for step in &plan.steps {
        if let Action::StartMember { state: InitialClusterState::Existing { members }, .. } = &step.action {
            // Skip the placeholder names that etcd gets for members without a name.
            let named = |(name, _): &&(String, PeerUrl)| !name.is_empty() && !name.starts_with(STAND_IN);
            names.extend(members.iter().filter(named).map(|(name, peer)| (peer, name.as_str())));
        }
    }
    // The names in the member list take precedence.
    for members in plan.forecast.iter().flatten() {
        names.extend(members.0.iter().filter(|(_, m)| !m.name.is_empty()).map(|(peer, m)| (peer, m.name.as_str())));
    }
    names
}

fn place(step: &Step, names: &BTreeMap<&PeerUrl, &str>) -> String {
    match &step.action {
        Action::RemoveMember { peer } | Action::AddLearner { peer } | Action::Promote { peer } => {
            names.get(peer).map_or_else(|| "etcd".to_owned(), |name| one_line(name))
        }
        action => action.host().map_or_else(|| "cluster".to_owned(), ToString::to_string),
    }
}

fn deed(what: &str, why: &str, style: &Style) -> Flow {
    let flow = Flow::of(what, Paint::Plain);
    if why.is_empty() { flow } else { flow.and(&format!("{} {why}", style.dash()), Paint::Dim) }
}

/// All other steps by stage, with one row for all hosts that have the same one.
fn calm(plan: &Plan, style: &Style) -> String {
    let mut text = String::new();
    for stage in STAGES {
        let rows = merged(plan, stage);
        if rows.is_empty() {
            continue;
        }
        let labels: Vec<String> = rows.iter().map(|(hosts, _)| label(hosts)).collect();
        let widest = labels.iter().map(|l| columns(l)).max().unwrap_or(0);
        text.push_str(&format!("\n{}\n", style.paint(Paint::Bold, &stage.to_string())));
        for (index, (_, row)) in rows.iter().enumerate() {
            let again = index > 0 && labels[index] == labels[index - 1];
            let shown = if again { "" } else { labels[index].as_str() };
            let lead = format!("  {shown:<widest$}  ");
            text.push_str(&deed(&row.what, &row.why, style).lines(&lead, columns(&lead), style));
        }
    }
    text
}

fn label(places: &[&HostName]) -> String {
    if places.is_empty() { "cluster".to_owned() } else { hosts(places, 4) }
}

/// The rows of a stage, each with its hosts.
fn merged(plan: &Plan, stage: Stage) -> Vec<(Vec<&HostName>, Row)> {
    type Numbered<'a> = Vec<(usize, &'a Step)>;
    let mut by_host: Vec<(Option<&HostName>, Numbered)> = Vec::new();
    for (index, step) in plan.steps.iter().enumerate() {
        if step.action.profile().stage != stage || stands_out(step, members(plan, index)) {
            continue;
        }
        let host = step.action.host();
        match by_host.iter_mut().find(|(name, _)| *name == host) {
            Some((_, steps)) => steps.push((index, step)),
            None => by_host.push((host, vec![(index, step)])),
        }
    }
    let mut merged: Vec<(usize, Vec<&HostName>, Row)> = Vec::new();
    for (host, steps) in by_host {
        let indices: Vec<usize> = steps.iter().map(|(index, _)| *index).collect();
        for (first, row) in rows(&steps.into_iter().map(|(_, step)| step).collect::<Vec<_>>()) {
            match merged.iter_mut().find(|(_, places, same)| *same == row && places.is_empty() == host.is_none()) {
                Some((_, places, _)) => places.extend(host),
                None => merged.push((indices[first], host.into_iter().collect(), row)),
            }
        }
    }
    merged.sort_by_key(|(first, _, _)| *first);
    merged.into_iter().map(|(_, places, row)| (places, row)).collect()
}

/// The plan as JSON: `{"schema":"hactl.plan/1","steps":[...],"horizon":...,"warnings":[...]}`; `hactl plan` adds
/// `files`, see [`super::differences_json`]. A step has `step` (its index), `host` (or null), `stage`, `what`, `why`,
/// `impact`, `after` (indices), and `etcd` with `voters`, `learners`, `healthy`, `quorum` and `tolerates` (null: no
/// quorum) after the step, or null while there is no cluster.
pub fn plan_json(plan: &Plan) -> Value {
    let steps = plan.steps.iter().enumerate().map(|(index, step)| {
        let profile = step.action.profile();
        json!({
            "step": index,
            "host": step.action.host(),
            "stage": profile.stage.to_string(),
            "what": step.action.to_string(),
            "why": step.why,
            "impact": match step.impact() {
                Impact::None => "none",
                Impact::Restart => "restart",
                Impact::Membership => "membership",
                Impact::Destructive => "destructive",
            },
            "after": plan.after.get(index),
            "etcd": members(plan, index).map(quorum_json),
        })
    });
    json!({
        "schema": "hactl.plan/1",
        "steps": steps.collect::<Vec<_>>(),
        "horizon": plan.horizon,
        "warnings": plan.warnings,
    })
}

/// The numbers of a member list.
pub(super) fn quorum_json(members: &Members) -> Value {
    json!({
        "voters": members.voters(),
        "learners": members.0.len() - members.voters(),
        "healthy": members.healthy(),
        "quorum": members.quorum(),
        "tolerates": members.spare(),
    })
}

//! `hactl maintain reboot` of many Nodes: which ones, and how many at a time.
//!
//! In: flags. Out: what a rollout is asked for, and what came of it.

use super::common::{Common, Needs, Said, ended, known, number_with_unit};
use super::maintain::{About, DrainFlags};
use crate::model::desired::Desired;
use crate::model::labels::ROLLOUT;
use crate::model::maintenance::{DrainRequest, Work};
use crate::model::names::HostName;
use crate::model::rollout::{LONGEST_NAME, Most, RolloutState, RolloutWanted, Selected, Template, Turn, ZONE};
use crate::model::selector::Selector;
use crate::plan::maintain::Next;
use crate::report::harmless::print;
use crate::report::{self, Exit, FailureKind, Style, Verdict};
use crate::workflow::{self, RolledOut};
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;
use time::OffsetDateTime;

/// The most Nodes that are named one by one: values of one requirement of a selector.
const MOST_NAMED: usize = 64;
/// The label of each Node with the name of its host.
const HOST_LABEL: &str = "kubernetes.io/hostname";

/// Which Nodes, and how many at a time.
#[derive(Debug, Args)]
pub struct Many {
    /// Reboot the Nodes with these labels, as `key=value,key=value`
    #[arg(long, value_name = "LABELS", conflicts_with = "all", value_parser = labels)]
    selector: Option<Value>,
    /// Reboot all Nodes
    #[arg(long)]
    all: bool,
    /// Leave out Nodes whose hosts need no reboot, as their package manager says
    #[arg(long)]
    only_if_required: bool,
    /// So many Nodes may be away at once: a number, or a percentage
    #[arg(long, value_name = "N|N%", default_value = "1", value_parser = Most::of)]
    max_unavailable: Most,
    /// A Node is ready again for so long before the next one begins, a number with s, m or h
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = up_to_a_day)]
    soak: Duration,
    /// Have Nodes of several zones away at once; else one zone comes after the other
    #[arg(long)]
    any_domain: bool,
    /// When hosts of the control plane have their turn, one at a time
    #[arg(long, value_name = "WHEN", default_value = "last", value_parser = ["last", "first", "exclude"])]
    control_plane: String,
    /// So many Nodes may fail before no other one begins
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_failures: usize,
}

fn labels(text: &str) -> Result<Value, String> {
    let mut labels = serde_json::Map::new();
    for pair in text.split(',') {
        let (key, value) = pair.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("write key=value")?;
        labels.insert(key.to_owned(), json!(value));
    }
    Ok(json!({"matchLabels": labels}))
}

/// A day, in seconds: the bound of the kind.
const DAY_S: u64 = 86_400;

fn up_to_a_day(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3600)];
    let words = ["write a number with s, m or h, such as 30s", "from 1s to 24h"];
    Ok(Duration::from_secs(number_with_unit(text, &units, DAY_S, words)?))
}

impl Many {
    /// Whether a rollout is asked for, with these Nodes named.
    pub fn is_rollout(&self, named: &[HostName]) -> bool {
        named.len() != 1 || self.only_if_required
    }

    /// Whether Nodes are selected other than by their names.
    pub fn selects(&self) -> bool {
        self.all || self.selector.is_some()
    }
}

/// A rollout that is asked for.
pub struct RolloutRequest<'a> {
    pub named: &'a [HostName],
    pub about: &'a About,
    pub many: &'a Many,
    pub drain: &'a DrainFlags,
    pub work: Work,
}

impl RolloutRequest<'_> {
    fn usage(headline: &str) -> Verdict {
        Verdict { headline: headline.to_owned(), ..Verdict::of(&FailureKind::Usage, None) }
    }

    fn check(&self, desired: &Desired) -> Result<(), Verdict> {
        if self.named.is_empty() && !self.many.selects() {
            return Err(Self::usage("name the Nodes, or select them by --selector or --all"));
        }
        if !self.named.is_empty() && self.many.selects() {
            return Err(Self::usage("name Nodes, or select them by --selector or --all, not both"));
        }
        if self.named.len() > MOST_NAMED {
            return Err(Self::usage(&format!("{MOST_NAMED} Nodes can be named; select more by --selector or --all")));
        }
        if self.about.stay_cordoned {
            return Err(Self::usage("--stay-cordoned is for a reboot of one Node: the next Nodes would wait for ever"));
        }
        if self.drain.allow_outage {
            return Err(Self::usage("--allow-outage is for a reboot of one Node"));
        }
        if self.about.name.as_ref().is_some_and(|name| name.as_str().len() > LONGEST_NAME) {
            return Err(Self::usage(&format!("--name has at most {LONGEST_NAME} characters")));
        }
        self.about.check()?;
        known("NODE", self.named, desired)
    }

    fn wanted(&self) -> RolloutWanted {
        let many = self.many;
        let by_name = || json!({"matchExpressions": [{"key": HOST_LABEL, "operator": "In", "values": self.named}]});
        let nodes = if many.all {
            Selected::All
        } else {
            let selector = many.selector.clone().unwrap_or_else(by_name);
            let read = Selector::of(&selector).unwrap_or_default();
            Selected::Labels(selector, read)
        };
        let turn = |turn: &Turn| turn.name().to_lowercase() == many.control_plane;
        RolloutWanted {
            nodes,
            only_if_required: many.only_if_required,
            control_plane: Turn::ALL.into_iter().find(turn).unwrap_or(Turn::Last),
            max_unavailable: many.max_unavailable,
            one_domain_of: (!many.any_domain).then(|| ZONE.to_owned()),
            soak: many.soak,
            max_failures: many.max_failures,
            paused: false,
            gate: self.about.gate(self.about.approves_each()),
            approves_each: self.about.approves_each(),
            template: Template {
                reason: self.about.reason.clone(),
                work: self.work.clone(),
                drain: DrainRequest::from(self.drain),
            },
        }
    }

    /// The name of the object: the time says which rollout it is.
    fn name(&self) -> String {
        let now = OffsetDateTime::now_utc();
        let (date, time) = (now.date(), now.time());
        let day = format!("{}{:02}{:02}", date.year(), u8::from(date.month()), date.day());
        let by_time = || format!("reboot-{day}-{:02}{:02}{:02}", time.hour(), time.minute(), time.second());
        self.about.name.as_ref().map_or_else(by_time, ToString::to_string)
    }

    /// Carries it out, or shows what it would do.
    pub fn run(&self, common: &Common) -> Exit {
        if self.about.dry_run { self.preview(common) } else { self.begin(common) }
    }

    fn preview(&self, common: &Common) -> Exit {
        let (reader, wanted, name) = (common.reader(), self.wanted(), self.name());
        let check = |desired: &Desired| self.check(desired);
        let asked = common.run_checked(check, common.sink(&reader), Needs::Hosts, async |session| {
            workflow::would_roll_out(session, (&name, self.named, &wanted)).await
        });
        let said = asked.map(|next| Said {
            object: report::rollout_preview_json(&next),
            text: report::rollout_preview_text(&wanted, &next, &Style::stdout(common.verbose)),
            last: Some(Verdict::ok("nothing was changed")),
        });
        common.said(&reader, said)
    }

    fn begin(&self, common: &Common) -> Exit {
        let (reader, choices, wanted, name) = (common.reader(), common.choices(), self.wanted(), self.name());
        let shows = |next: &Next| {
            if !common.json() {
                reader.pause();
                print(&report::rollout_preview_text(&wanted, next, &Style::stdout(common.verbose)));
            }
        };
        let check = |desired: &Desired| self.check(desired);
        let waits = !self.drain.no_wait;
        let result = common.run_checked(check, reader.clone(), Needs::Hosts, async |session| {
            workflow::roll_out(session, (&name, self.named, &wanted, waits), (&choices, &reader), &shows).await
        });
        let verdict = result.map(|rolled| match rolled {
            RolledOut::Accepted(None) => {
                Verdict::ok(format!("the guards act on the rollout {name}. See: hactl maintain status"))
            }
            RolledOut::Accepted(Some(why)) => {
                Verdict::ok(format!("the rollout {name} waits: {why}. See: hactl maintain status"))
            }
            RolledOut::Completed(progress) => Verdict::ok(format!("the rollout {name} is complete: {progress} Nodes")),
        });
        ended(&reader, verdict)
    }
}

/// Has no other Node of a rollout begin, or lets the next one.
pub fn pause(common: &Common, name: &HostName, paused: bool) -> Exit {
    let reader = common.reader();
    let result =
        common.run(reader.clone(), Needs::Hosts, async |session| workflow::pause_rollout(session, name, paused).await);
    let verdict = result.map(|found| {
        Verdict::ok(if paused {
            format!("no other Node of {name} begins; what is under way goes on. To go on: hactl maintain resume {name}")
        } else if found.state == Some(RolloutState::Stopped) {
            format!(
                "the rollout {name} is not paused, but stays stopped: {}. `hactl kubectl -- delete nmt -l \
                 {ROLLOUT}={name} --field-selector status.state=Failed` has those Nodes begin again",
                found.waits_for.first().map_or("too many Nodes failed", String::as_str)
            )
        } else {
            format!("the rollout {name} goes on")
        })
    });
    ended(&reader, verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_pairs() {
        assert_eq!(labels("a=b,c=").unwrap(), json!({"matchLabels": {"a": "b", "c": ""}}));
        for bad in ["", "a", "=b", "a=b,"] {
            assert!(labels(bad).is_err(), "{bad}");
        }
    }
}

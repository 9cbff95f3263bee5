//! The progress of a run: the state behind both text readers.
//!
//! In: events with their times. Out: slots (one per step), the current step of each host, and transfer rates.

use super::group::{brief, stands_out};
use crate::model::event::Event;
use crate::model::names::HostName;
use crate::model::plan::{Action, Plan, Stage};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How far a step is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not started.
    #[default]
    Ahead,
    /// Running.
    Running,
    /// Done.
    Done,
    /// Failed.
    Failed,
}

/// One step of the run.
#[derive(Debug, Default, Clone)]
pub struct Slot {
    /// Its host, if it runs on one host.
    pub host: Option<HostName>,
    /// A short description.
    pub what: String,
    /// Its action, if there is a plan.
    pub action: Option<Action>,
    /// Its stage, if there is a plan.
    pub stage: Option<Stage>,
    /// Whether it gets its own line.
    pub stands_out: bool,
    /// Its state.
    pub state: State,
    /// When it started.
    pub begun: Duration,
    /// How long it took, or zero.
    pub took: Duration,
    /// Bytes transferred, and in total.
    pub moved: (u64, u64),
    /// The condition that it waits for.
    pub waiting: Option<String>,
}

/// The progress of a run.
#[derive(Debug, Default)]
pub struct ProgressView {
    /// The steps by their index in the plan.
    pub slots: BTreeMap<usize, Slot>,
    /// The current work outside of a plan, and when it started.
    pub phase: Option<(String, Duration)>,
    /// When the first step started.
    pub begun: Option<Duration>,
    /// The hosts in the order of the plan.
    pub hosts: Vec<HostName>,
    traffic: BTreeMap<HostName, VecDeque<(Duration, u64)>>,
}

impl ProgressView {
    /// Applies one event.
    pub fn apply(&mut self, at: Duration, event: &Event) {
        match event {
            Event::Phase { doing } => self.phase = Some((doing.clone(), at)),
            Event::Planned { plan } => self.lay_out(plan),
            Event::Started { step, what, host } => {
                self.phase = None;
                self.begun.get_or_insert(at);
                let slot = self.slot(*step, what, host.as_ref());
                slot.state = State::Running;
                slot.begun = at;
            }
            Event::Waiting { step, on } => {
                if let Some(slot) = self.slots.get_mut(step) {
                    slot.waiting = Some(on.clone());
                }
            }
            Event::Moved { step, done, total } => self.moved(at, *step, *done, *total),
            Event::Done { step, ms, host, what } => {
                let slot = self.slot(*step, what, host.as_ref());
                slot.state = State::Done;
                slot.took = Duration::from_millis(*ms);
                slot.waiting = None;
                if slot.moved.1 > 0 {
                    slot.moved.0 = slot.moved.1;
                }
            }
            Event::Failed { step, host, what, .. } => {
                let slot = self.slot(*step, what, host.as_ref());
                slot.state = State::Failed;
                slot.took = at.saturating_sub(slot.begun);
                slot.waiting = None;
            }
            Event::Note { .. }
            | Event::Warning { .. }
            | Event::Proposed { .. }
            | Event::Checked { .. }
            | Event::Times { .. } => {}
        }
    }

    /// Starts with a new plan and discards the previous progress.
    fn lay_out(&mut self, plan: &Plan) {
        *self = Self::default();
        for (index, step) in plan.steps.iter().enumerate() {
            let slot = self.slot(index, &brief(&[&step.action], false), step.action.host());
            slot.stage = Some(step.action.profile().stage);
            slot.stands_out = stands_out(step, plan.forecast.get(index).and_then(Option::as_ref));
            slot.action = Some(step.action.clone());
        }
    }

    /// The slot of a step; created if it is new.
    fn slot(&mut self, step: usize, what: &str, host: Option<&HostName>) -> &mut Slot {
        if let Some(name) = host
            && !self.hosts.contains(name)
        {
            self.hosts.push(name.clone());
        }
        self.slots.entry(step).or_insert_with(|| Slot {
            host: host.cloned(),
            what: what.to_owned(),
            stands_out: true,
            ..Slot::default()
        })
    }

    fn moved(&mut self, at: Duration, step: usize, done: u64, total: u64) {
        let Some(slot) = self.slots.get_mut(&step) else { return };
        slot.moved = (done, total);
        let Some(host) = slot.host.clone() else { return };
        let last = self.traffic.get(&host).and_then(|t| t.back()).map(|(last, _)| *last);
        if last.is_some_and(|last| at.saturating_sub(last) < Duration::from_millis(100)) {
            return;
        }
        let sent = self.of(Some(&host)).map(|s| s.moved.0).sum();
        let traffic = self.traffic.entry(host).or_default();
        traffic.push_back((at, sent));
        while traffic.front().is_some_and(|(first, _)| at.saturating_sub(*first) > Duration::from_secs(3)) {
            traffic.pop_front();
        }
    }

    /// Recent bytes per second to a host; `None` while there are too few samples.
    pub fn rate(&self, host: &HostName) -> Option<u64> {
        let traffic = self.traffic.get(host)?;
        let ((from, before), (to, now)) = (traffic.front()?, traffic.back()?);
        let ms = u64::try_from(to.saturating_sub(*from).as_millis()).ok().filter(|ms| *ms >= 200)?;
        Some(now.saturating_sub(*before).saturating_mul(1000) / ms)
    }

    /// The number of finished steps.
    pub fn done(&self) -> usize {
        self.slots.values().filter(|s| s.state == State::Done).count()
    }
    /// Whether a step is running.
    pub fn is_running(&self) -> bool {
        self.slots.values().any(|s| s.state == State::Running)
    }
    /// The slots of a host, or those without a host.
    pub fn of<'a>(&'a self, host: Option<&'a HostName>) -> impl Iterator<Item = &'a Slot> {
        self.slots.values().filter(move |s| s.host.as_ref() == host)
    }
}

//! The drain of a maintenance: while pods leave, its object, the cordon and the Lease are looked after, and its status
//! says how far it is.
//!
//! In: a maintenance whose Node is cordoned. Out: what is to be said of pods that stay, or that it is to be looked at
//! again.

use super::ended::{CONTESTED, MaintenanceError};
use super::maintenance::{Controller, draining};
use super::news::news;
use super::occurrence::{Occurrence, now_ms};
use crate::execute::Draining;
use crate::kube::Cordoned;
use crate::model::event::Event;
use crate::model::maintenance::{BlockedPod, DrainProgress, Maintenance, Stage, State, Through};
use futures::stream::StreamExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Between two reports of how far the drain is.
const REPORT_AT_MOST_EVERY: Duration = Duration::from_secs(3);
/// Until the first report, if nothing is known yet.
const FIRST_REPORT: Duration = Duration::from_millis(100);
/// So often is reported how long the drain lasts, if nothing else changes.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// A drain with less time than this cannot say what is in its way.
const LEAST: Duration = Duration::from_secs(5);
/// A pod that a budget refuses for so long is worth a word.
const SAID_AFTER: Duration = Duration::from_secs(30);

/// What a person knows of pods that do not leave, each once.
#[derive(Default)]
pub(super) struct News {
    since: BTreeMap<String, Instant>,
    said: BTreeSet<String>,
}

impl News {
    /// What is to be said now: of a pod that can never leave at once, of another one when it has not left for a while.
    pub(super) fn of(&mut self, progress: &DrainProgress) -> Vec<Occurrence> {
        self.since.retain(|pod, _| progress.blocked.iter().any(|one| one.pod == *pod));
        let mut news = Vec::new();
        for BlockedPod { pod, message, never } in &progress.blocked {
            let since = *self.since.entry(pod.clone()).or_insert_with(Instant::now);
            if (*never || since.elapsed() >= SAID_AFTER) && self.said.insert(pod.clone()) {
                news.push(Occurrence::Blocked(format!("{pod} does not leave: {message}")));
            }
        }
        for pod in &progress.forced {
            if self.said.insert(format!("{pod}, deleted")) {
                news.push(Occurrence::Forced(pod.clone()));
            }
        }
        news
    }
}

/// A drain that is under way.
struct UnderWay<'f> {
    found: &'f Maintenance,
    began_ms: i64,
    begun: Instant,
    news: News,
    reported: Option<(Instant, DrainProgress)>,
    uncordoned: u32,
}

impl UnderWay<'_> {
    fn lasted(&self) -> Duration {
        self.found.drain_lasted + self.begun.elapsed()
    }
}

/// Why pods stay that a maintenance asks to leave: another one of the Node does not.
fn not_agreed(all: &[Maintenance], found: &Maintenance) -> Option<String> {
    let through = found.wanted.drain.through;
    let drains =
        |one: &&Maintenance| one.uid != found.uid && one.holds && one.wanted.stage == Stage::Drain && !one.ends();
    let other = all.iter().filter(drains).find(|one| one.wanted.drain.through < through)?;
    Some(format!("NodeMaintenance {} does not ask for a drain through {}", other.name, through.name()))
}

impl Controller<'_> {
    /// Drains the Node. `None`: an author of one of its maintenances asks for something else meanwhile, or its window has
    /// ended.
    pub(super) async fn drain(
        &mut self,
        all: &[Maintenance],
        found: &Maintenance,
    ) -> Result<Option<Vec<String>>, MaintenanceError> {
        let place = self.place.clone();
        let draining = Draining { pace: self.pace, ..draining((self.node, &place), all, found) };
        if draining.within < LEAST {
            let why = format!("pods did not leave {} in the time that was given to them", self.node);
            self.give_up(found, &why).await?;
            return Err(MaintenanceError::GaveUp(why));
        }
        let (client, sink, stop, node) = (self.client, self.sink, self.stop, self.node);
        let mut under_way = UnderWay {
            found,
            began_ms: found.drain_began_ms.filter(|_| !found.drain_lasted.is_zero()).unwrap_or_else(now_ms),
            begun: Instant::now(),
            news: News::default(),
            reported: None,
            uncordoned: 0,
        };
        let was_drained = found.state == Some(State::Drained);
        if !was_drained {
            sink.emit(Event::Started { step: 0, what: format!("drain {node}"), host: Some(node.clone()) });
        }
        if !matches!(found.state, Some(State::Draining | State::Blocked | State::Drained)) {
            self.tell(found, Occurrence::DrainStarted).await;
        }
        let latest = Mutex::new(None);
        let seen = |progress: DrainProgress| {
            sink.emit(Event::Waiting { step: 0, on: progress.waits_for.clone() });
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
        };
        let latest = || latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let check = self.checked.take().filter(|(uid, _)| *uid == found.uid).map(|(_, check)| check);
        let drained = draining.run(client, check, &seen);
        tokio::pin!(drained);
        let mut news = news(client, node, all);
        // What was drained before is probably drained at once.
        let first = if was_drained { REPORT_AT_MOST_EVERY } else { Duration::ZERO };
        let mut ticks = interval_at(Instant::now() + first, REPORT_AT_MOST_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let result = loop {
            tokio::select! {
                result = &mut drained => break result,
                () = stop.cancelled() => return Err(MaintenanceError::Interrupted),
                _ = news.next() => {
                    if !self.are_unchanged(all).await? {
                        return Ok(None);
                    }
                    self.stay_cordoned(&mut under_way).await?;
                }
                _ = ticks.tick() => {
                    self.leased().await?;
                    if found.closed(now_ms()).is_some() {
                        return Ok(None);
                    }
                    match latest() {
                        Some(progress) => self.say(&mut under_way, progress).await?,
                        None => ticks.reset_after(FIRST_REPORT),
                    }
                }
            }
        };
        match result {
            Ok(notes) => {
                if !self.are_unchanged(all).await? {
                    return Ok(None);
                }
                if let Some(why) = not_agreed(all, found) {
                    return Err(MaintenanceError::NotSpared(why));
                }
                let time = draining.within.saturating_sub(under_way.begun.elapsed());
                if draining.request.through == Through::Static && !self.hold_static_pods(all, found, time).await? {
                    return Ok(None);
                }
                let progress = latest().unwrap_or_default();
                self.tell_of(&mut under_way, &progress).await;
                let status = progress.status(under_way.began_ms, under_way.lasted());
                // What a reboot waits for is not about its drain.
                let is_told = found.is_observed && (found.why.is_empty() || found.reboots());
                if !was_drained || !is_told {
                    self.report(found, State::Drained, "", Some(("drain", status))).await?;
                    self.tell(found, Occurrence::Drained).await;
                }
                if !was_drained {
                    let ms = u64::try_from(under_way.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                    sink.emit(Event::Done { step: 0, ms, host: Some(node.clone()), what: format!("drain {node}") });
                }
                Ok(Some(notes))
            }
            Err(error) => {
                let error = match error.into() {
                    // Its time is up.
                    MaintenanceError::WouldLose(why) => MaintenanceError::GaveUp(why),
                    error => error,
                };
                if let MaintenanceError::GaveUp(why) = &error {
                    self.give_up(found, why).await?;
                }
                Err(error)
            }
        }
    }

    /// The Node is cordoned, also if others uncordon it.
    async fn stay_cordoned(&mut self, drain: &mut UnderWay<'_>) -> Result<(), MaintenanceError> {
        let until = self.leased().await?;
        match self.client.cordon(&mut self.known, (&drain.found.holder(), &drain.found.wanted.taints()), until).await? {
            Cordoned::Before => Ok(()),
            Cordoned::NoNode => {
                self.end(drain.found, State::Completed, "").await?;
                Err(MaintenanceError::NoNode(self.node.clone()))
            }
            Cordoned::Now => {
                drain.uncordoned += 1;
                self.tell(drain.found, Occurrence::Contested).await;
                if drain.uncordoned == CONTESTED { Err(MaintenanceError::Contested(self.node.clone())) } else { Ok(()) }
            }
        }
    }

    /// Says what is new, and has the status show how far the drain is.
    async fn say(&mut self, drain: &mut UnderWay<'_>, progress: DrainProgress) -> Result<(), MaintenanceError> {
        self.tell_of(drain, &progress).await;
        if drain.reported.as_ref().is_none_or(|(at, last)| *last != progress || at.elapsed() >= REPORT_EVERY) {
            // What was drained stays so for others while more pods leave: a person may be at work on the host.
            let (state, why) = match (drain.found.state, progress.blocked_count) {
                (Some(State::Drained), _) => (State::Drained, "more pods leave"),
                (_, 0) => (State::Draining, ""),
                _ => (State::Blocked, ""),
            };
            let status = progress.status(drain.began_ms, drain.lasted());
            self.report(drain.found, state, why, Some(("drain", status))).await?;
            drain.reported = Some((Instant::now(), progress));
        }
        Ok(())
    }

    async fn tell_of(&mut self, drain: &mut UnderWay<'_>, progress: &DrainProgress) {
        for occurrence in drain.news.of(progress) {
            self.tell(drain.found, occurrence).await;
        }
    }
}

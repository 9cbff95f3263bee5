//! The drain of a maintenance: while pods leave, its object, the cordon and the Lease are looked after, and its status
//! says how far it is.
//!
//! In: a maintenance whose Node is cordoned. Out: what is to be said of pods that stay, or that its author asks for
//! something else now.

use super::maintenance::{CONTESTED, Controller, MaintenanceError, draining, now_ms, soon};
use crate::kube::Cordoned;
use crate::model::event::Event;
use crate::model::maintenance::{BlockedPod, DrainProgress, Maintenance, State};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Between two looks at the object and at the cordon.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// So often is reported how long the drain lasts, if nothing else changes.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// A drain with less time than this cannot say what is in its way.
const LEAST: Duration = Duration::from_secs(5);
/// A pod that a budget refuses for so long is worth a word.
const SAID_AFTER: Duration = Duration::from_secs(30);

/// What a person knows of pods that do not leave, each once.
#[derive(Default)]
struct News {
    since: BTreeMap<String, Instant>,
    said: BTreeSet<String>,
}

impl News {
    /// What is to be said now: of a pod that can never leave at once, of another one when it has not left for a while.
    fn of(&mut self, progress: &DrainProgress) -> Vec<String> {
        self.since.retain(|pod, _| progress.blocked.iter().any(|one| one.pod == *pod));
        let mut news = Vec::new();
        for BlockedPod { pod, message, never } in &progress.blocked {
            let since = *self.since.entry(pod.clone()).or_insert_with(Instant::now);
            if (*never || since.elapsed() >= SAID_AFTER) && self.said.insert(pod.clone()) {
                news.push(format!("{pod} does not leave: {message}"));
            }
        }
        for pod in &progress.forced {
            if self.said.insert(format!("{pod}, deleted")) {
                news.push(format!("{pod} was deleted, because its eviction was refused for too long"));
            }
        }
        news
    }
}

impl Controller<'_> {
    /// Drains the Node. `None`: the author asks for something else meanwhile.
    pub(super) async fn drain(&mut self, found: &Maintenance) -> Result<Option<Vec<String>>, MaintenanceError> {
        let node = &found.wanted.node;
        let draining = draining(found);
        if draining.within < LEAST {
            self.end(found, State::Failed).await?;
            let why = format!("pods did not leave {node} in the time that was given to them");
            return Err(MaintenanceError::GaveUp(why));
        }
        let began_ms = found.drain_began_ms.filter(|_| !found.drain_lasted.is_zero()).unwrap_or_else(now_ms);
        let (client, sink, stop, begun) = (self.client, self.sink, self.stop, Instant::now());
        let lasted = || found.drain_lasted + begun.elapsed();

        sink.emit(Event::Started { step: 0, what: format!("drain {node}"), host: Some(node.clone()) });
        let latest = Mutex::new(None);
        let seen = |progress: DrainProgress| {
            sink.emit(Event::Waiting { step: 0, on: progress.waits_for.clone() });
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
        };
        let latest = || latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let drained = draining.run(client, &seen);
        tokio::pin!(drained);
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut known, mut news, mut uncordoned) = (found.clone(), News::default(), 0);
        let mut reported: Option<(Instant, DrainProgress)> = None;
        let result = loop {
            tokio::select! {
                result = &mut drained => break result,
                () = stop.cancelled() => return Err(MaintenanceError::Interrupted),
                _ = ticks.tick() => {
                    match self.unchanged(found).await? {
                        Some(now) => known = now,
                        None => return Ok(None),
                    }
                    let until = self.leased().await?;
                    match client.cordon(node, &found.holder(), until).await? {
                        Cordoned::Before => {}
                        Cordoned::NoNode => {
                            self.end(&known, State::Completed).await?;
                            return Err(MaintenanceError::NoNode(node.clone()));
                        }
                        Cordoned::Now => {
                            uncordoned += 1;
                            sink.warn(format!("{node} was uncordoned by others during the drain; it is cordoned again"));
                            if uncordoned == CONTESTED {
                                return Err(MaintenanceError::Contested(node.clone()));
                            }
                        }
                    }
                    let Some(progress) = latest() else { continue };
                    for said in news.of(&progress) {
                        sink.note(format!("{node}: {said}"));
                    }
                    if reported.as_ref().is_none_or(|(at, last)| *last != progress || at.elapsed() >= REPORT_EVERY) {
                        let state = if progress.blocked_count > 0 { State::Blocked } else { State::Draining };
                        self.report(&known, state, Some((&progress, began_ms, lasted()))).await?;
                        reported = Some((Instant::now(), progress));
                    }
                }
            }
        };
        match result {
            Ok(notes) => {
                let Some(known) = self.unchanged(found).await? else { return Ok(None) };
                let progress = latest().unwrap_or_default();
                for said in news.of(&progress) {
                    sink.note(format!("{node}: {said}"));
                }
                self.report(&known, State::Drained, Some((&progress, began_ms, lasted()))).await?;
                let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                sink.emit(Event::Done { step: 0, ms, host: Some(node.clone()), what: format!("drain {node}") });
                Ok(Some(notes))
            }
            Err(error) => {
                let error = error.into();
                if matches!(error, MaintenanceError::GaveUp(_)) {
                    self.end(&known, State::Failed).await?;
                }
                Err(error)
            }
        }
    }

    /// The object as it is now; `None`: its author asks for something else.
    async fn unchanged(&self, found: &Maintenance) -> Result<Option<Maintenance>, MaintenanceError> {
        let now = self.client.maintenance(&found.name, soon()).await?.filter(|now| now.uid == found.uid);
        let now = now.ok_or_else(|| MaintenanceError::None(found.name.clone()))?;
        Ok(Some(now).filter(|now| now.wanted == found.wanted && !now.is_deleted))
    }
}

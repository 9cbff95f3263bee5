//! A maintenance on which the guards act, followed by a command until it is as far as its author asked for.
//!
//! In: an API client, and an object. Out: lines for people, and how it ended.

use super::drain::News;
use super::ended::{Ended, MaintenanceError};
use super::maintenance::soon;
use super::occurrence::{Occurrence, now_ms};
use crate::kube::{Change, Changes, Client, KubeError, Lease, LeaseSeen, next_change};
use crate::model::event::{Event, Sink};
use crate::model::maintenance::{CONTROLLERS_LEASE, Maintenance, Stage, State};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

/// A Lease that was not renewed while it was looked at for so long was left.
const LEFT: Duration = Duration::from_secs(30);
/// One whose time is so far in the past was probably left.
const LONG_LEFT_MS: i64 = 60_000;
/// Then it is looked at for so long: a guard renews it every few seconds.
const WATCHED: Duration = Duration::from_secs(8);
/// Without an answer of an API server for so long, it is not followed any more.
const UNHEARD: Duration = Duration::from_secs(120);
/// Between two looks at the Lease, and at the object where there is no watch.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Between two looks at the Lease beside a watch.
const LOOK_BESIDE_WATCH: Duration = Duration::from_secs(5);

/// The guard that acts on maintenances.
#[derive(Debug)]
pub struct Elected {
    seen: LeaseSeen,
    since: Instant,
}

impl Elected {
    /// Which guard it is; `None`: no guard acts on maintenances, or only the one that is known to have left its Lease.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn look(client: &Client, left: Option<&Self>) -> Result<Option<Self>, KubeError> {
        let mut seen = Lease::look(client, CONTROLLERS_LEASE, soon()).await?;
        if let Some(before) = seen.take_if(|seen| now_ms().saturating_sub(seen.renewed_ms) > LONG_LEFT_MS) {
            // The clocks may differ.
            sleep(WATCHED).await;
            seen = Lease::look(client, CONTROLLERS_LEASE, soon()).await?.filter(|now| *now != before);
        }
        let seen = seen.filter(|seen| left.is_none_or(|left| left.seen != *seen));
        Ok(seen.map(|seen| Self { seen, since: Instant::now() }))
    }

    /// Its name, for people.
    pub fn name(&self) -> &str {
        self.seen.holder.split(',').next().unwrap_or_default()
    }

    /// Whether it, or another guard, still acts.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn acts(&mut self, client: &Client) -> Result<bool, KubeError> {
        match Lease::look(client, CONTROLLERS_LEASE, soon()).await? {
            Some(seen) if seen != self.seen => {
                *self = Self { seen, since: Instant::now() };
                Ok(true)
            }
            _ => Ok(self.since.elapsed() < LEFT),
        }
    }
}

/// How a maintenance was followed.
#[derive(Debug)]
pub enum Followed {
    /// It is as far as was asked for.
    Ended(Ended),
    /// This guard acts no more, and no other one does.
    Left(Elected),
}

/// Follows a maintenance until it is as far as was asked for.
///
/// # Errors
/// See [`MaintenanceError`].
pub async fn follow(
    client: &Client,
    (sink, stop): (&dyn Sink, &CancellationToken),
    name: &str,
    mut elected: Elected,
) -> Result<Followed, MaintenanceError> {
    let gone = || MaintenanceError::None(name.to_owned());
    let mut now = client.maintenance(name, soon()).await?.ok_or_else(gone)?;
    let node = now.wanted.node.clone();
    let (begun, mut news, mut said) = (Instant::now(), News::default(), String::new());
    let what = if now.reboots() { format!("drain and reboot {node}") } else { format!("drain {node}") };
    sink.note(format!("the {} acts on it", elected.name()));
    if now.wanted.stage == Stage::Drain {
        sink.emit(Event::Started { step: 0, what: what.clone(), host: Some(node.clone()) });
    }
    let (mut changes, mut heard): (Option<Changes>, _) = (None, Instant::now());
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        for occurrence in news.of(&now.progress) {
            occurrence.line(sink, &node);
        }
        if now.why != said {
            said.clone_from(&now.why);
            match now.state {
                Some(State::Waiting | State::Drained) => Occurrence::Waiting(said.clone()).line(sink, &node),
                Some(State::Overdue) => Occurrence::Overdue(said.clone()).line(sink, &node),
                _ => {}
            }
        }
        // Nobody has to stay for that.
        if now.state == Some(State::Waiting)
            && let Some(closed) = now.closed(now_ms())
        {
            return Ok(Followed::Ended(Ended::Later(closed.why)));
        }
        match reached(&now) {
            Some(Ok(ended)) => {
                if matches!(ended, Ended::Drained(_) | Ended::Rebooted) {
                    let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                    sink.emit(Event::Done { step: 0, ms, host: Some(node), what });
                }
                return Ok(Followed::Ended(ended));
            }
            Some(Err(error)) => return Err(error),
            None => sink.emit(Event::Waiting { step: 0, on: on(&now) }),
        }
        tokio::select! {
            () = stop.cancelled() => {
                sink.note(format!("the {} goes on; `hactl maintain cancel {name}` calls the maintenance off", elected.name()));
                return Err(MaintenanceError::Interrupted);
            }
            change = next_change(&mut changes) => match change {
                Some(Change::Is(object)) => {
                    if let Ok(one) = Maintenance::of(&object) && one.uid == now.uid {
                        now = one;
                    }
                }
                Some(Change::Gone(object)) if object["metadata"]["uid"] == now.uid.as_str() => {
                    return Ok(Followed::Ended(Ended::Completed));
                }
                Some(Change::Gone(_)) => {}
                None => {
                    changes = None;
                    ticks.reset_immediately();
                }
            },
            _ = ticks.tick() => match looked(client, &mut elected, &now, &mut changes).await {
                Ok(Looked::Same) => {
                    heard = Instant::now();
                    ticks.reset_after(LOOK_BESIDE_WATCH);
                }
                Ok(Looked::Is(one)) => {
                    heard = Instant::now();
                    now = *one;
                }
                Ok(Looked::Gone) => return Ok(Followed::Ended(Ended::Completed)),
                Ok(Looked::Left) => return Ok(Followed::Left(elected)),
                // Another API server answers, perhaps: this one's host may be the one that reboots.
                Err(KubeError::Unreachable { .. } | KubeError::TimedOut { .. }) if heard.elapsed() < UNHEARD => {
                    changes = None;
                }
                Err(error) => return Err(error.into()),
            },
        }
    }
}

/// What a look at a maintenance found.
enum Looked {
    /// It is as it was.
    Same,
    /// It is so now.
    Is(Box<Maintenance>),
    /// It does not exist any more.
    Gone,
    /// No guard acts on it any more.
    Left,
}

/// Looks whether a guard still acts, and at the object where there is no watch.
async fn looked(
    client: &Client,
    elected: &mut Elected,
    now: &Maintenance,
    changes: &mut Option<Changes>,
) -> Result<Looked, KubeError> {
    if !elected.acts(client).await? {
        return Ok(Looked::Left);
    }
    if changes.is_some() {
        return Ok(Looked::Same);
    }
    let found = client.maintenance(&now.name, soon()).await?.filter(|one| one.uid == now.uid);
    *changes = client.maintenance_changes(Some(&now.wanted.node)).await.ok();
    Ok(found.map_or(Looked::Gone, |one| Looked::Is(Box::new(one))))
}

/// How it ended, if it has.
fn reached(now: &Maintenance) -> Option<Result<Ended, MaintenanceError>> {
    if !now.is_settled() {
        return None;
    }
    let kept = || now.progress.kept.iter().map(|(pod, why)| format!("{pod} stays, by {why}")).collect();
    match now.state? {
        State::Idle => Some(Ok(Ended::Idle)),
        State::Cordoned => Some(Ok(Ended::Cordoned)),
        State::Drained => Some(Ok(Ended::Drained(kept()))),
        State::Completed if now.reboots() && !now.ends() => Some(Ok(Ended::Rebooted)),
        State::Completed => Some(Ok(Ended::Completed)),
        State::Failed => Some(Err(MaintenanceError::GaveUp(now.why.clone()))),
        State::Waiting | State::Draining | State::Blocked | State::Rebooting | State::Overdue | State::Completing => {
            None
        }
    }
}

/// What is waited for.
fn on(now: &Maintenance) -> String {
    match now.state {
        None => "the guard to begin".to_owned(),
        Some(_) if !now.why.is_empty() => now.why.clone(),
        Some(State::Rebooting | State::Overdue) => "its host to boot".to_owned(),
        Some(_) if now.progress.to_leave == 0 => "its pods to leave".to_owned(),
        Some(_) => format!("{} of {} pods have left", now.progress.left, now.progress.to_leave),
    }
}

//! What wakes a drain: its Node is uncordoned or deleted, or a maintenance of the Node asks for something else.
//!
//! In: a Node, and its maintenances as they are known. Out: a signal for each difference, by two watches. Where there is
//! no watch, a signal every few seconds: to look is always right.

use crate::kube::{Change, Changes, Client, KubeError};
use crate::model::cordon::is_cordoned;
use crate::model::event::Sink;
use crate::model::maintenance::Maintenance;
use crate::model::names::HostName;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _, select, unfold};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Between two signals without a watch.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Without a watch, it is tried again after this time.
const OPEN_AGAIN: Duration = Duration::from_secs(5);
/// Before a watch that has ended is opened again.
const AGAIN: Duration = Duration::from_secs(1);

/// Differences between these maintenances of a Node, or its cordon, and what the API shows from now on.
pub(super) fn news<'a>(client: &'a Client, node: &'a HostName, known: &'a [Maintenance]) -> BoxStream<'a, ()> {
    let uncordoned = signals(
        || Box::pin(client.node_changes(node)),
        |change| match change {
            Change::Is(node) => !is_cordoned(node),
            Change::Gone(_) => true,
        },
    );
    let asked = signals(
        || Box::pin(client.maintenance_changes(Some(node))),
        |change| match change {
            Change::Is(object) => Maintenance::of(object)
                .is_ok_and(|now| known.iter().find(|one| one.uid == now.uid).is_none_or(|one| differs(one, &now))),
            Change::Gone(_) => true,
        },
    );
    select(uncordoned, asked).boxed()
}

/// Whether a maintenance asks for something else now.
pub(super) fn differs(known: &Maintenance, now: &Maintenance) -> bool {
    known.wanted != now.wanted || known.is_deleted != now.is_deleted
}

/// A watch, opened after a while, and then as soon as there is one; of what, for people.
pub(super) async fn opened<'a>(
    after: Duration,
    open: impl Fn() -> BoxFuture<'a, Result<Changes, KubeError>>,
    (what, sink): (&str, &dyn Sink),
) -> Changes {
    sleep(after).await;
    loop {
        match open().await {
            Ok(changes) => return changes,
            // The kind comes with `up`.
            Err(error) if error.is_not_found() => {}
            Err(error) => sink.warn(format!("{what} cannot be watched: {error}")),
        }
        sleep(OPEN_AGAIN).await;
    }
}

/// A signal for each change that is news, and whenever a change may have been missed.
fn signals<'a>(
    open: impl Fn() -> BoxFuture<'a, Result<Changes, KubeError>> + Send + Sync + 'a,
    is_news: impl Fn(&Change) -> bool + Send + Sync + 'a,
) -> BoxStream<'a, ()> {
    let both = Arc::new((open, is_news));
    unfold((None, true), move |(mut changes, mut first)| {
        let both = Arc::clone(&both);
        async move {
            let (open, is_news) = &*both;
            loop {
                let Some(live) = &mut changes else {
                    match open().await {
                        // It begins with each object as it is. One that was deleted meanwhile is not among them.
                        Ok(begun) => changes = Some(begun),
                        Err(_) => sleep(LOOK_EVERY).await,
                    }
                    if std::mem::take(&mut first) && changes.is_some() {
                        continue;
                    }
                    return Some(((), (changes, first)));
                };
                match live.next().await {
                    Some(Ok(change)) if is_news(&change) => return Some(((), (changes, first))),
                    Some(Ok(_)) => {}
                    Some(Err(_)) => {
                        sleep(LOOK_EVERY).await;
                        changes = None;
                    }
                    None => {
                        sleep(AGAIN).await;
                        changes = None;
                    }
                }
            }
        }
    })
    .boxed()
}

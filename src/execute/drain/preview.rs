//! What a drain would do now. Changes nothing.
//!
//! In: a drain that is asked for. Out: which pods leave, wait and stay, and whose eviction would be refused.

use super::{AT_ONCE, CHECK_WITHIN, DrainError, Draining, words};
use crate::kube::Client;
use crate::model::action::counted;
use crate::model::maintenance::{DrainPreview, Through};
use crate::model::pod::PodView;
use crate::plan::drain::{Drain, Left, PodKind, State};
use futures::stream::{self, StreamExt as _};
use std::time::Duration;
use tokio::time::Instant;

impl Draining<'_> {
    /// What it would do. With `rehearses`, the API server is asked whether it would accept each eviction now.
    ///
    /// # Errors
    /// [`DrainError::NotSpared`], or the API cannot be used.
    pub async fn preview(&self, client: &Client, rehearses: bool) -> Result<DrainPreview, DrainError> {
        let until = Instant::now() + CHECK_WITHIN;
        let (rules, mut notes) = client.drain_rules(self.host, until).await?;
        let (pods, _) = client.pods(self.host, until).await?;
        let takes_host = self.spare(client, until).await?;
        let drain = Drain::by(rules, self.request.clone()).taking_host(takes_host);
        let next = drain.next(&pods, Duration::ZERO);
        let own = |pod: &&PodView| match PodKind::of(pod) {
            PodKind::Static => self.request.through < Through::Static,
            PodKind::DaemonSet => self.request.through < Through::DaemonSet,
            PodKind::Quorum => !takes_host,
            PodKind::Ended | PodKind::Bare | PodKind::Controlled => false,
        };
        let evicted: Vec<&PodView> = next.left.iter().filter(|left| is_evicted(left)).map(|left| left.pod).collect();
        let held = pods.iter().filter(|pod| PodKind::of(pod) == PodKind::Static).count();
        if self.request.through == Through::Static {
            notes.push(format!("{} are held when the others have left", counted(held, "static pod")));
        }
        let mut refused = Vec::new();
        if rehearses {
            let asked = evicted.iter().map(async |pod| (*pod, client.rehearse_eviction(pod, until).await));
            let answers: Vec<_> = stream::iter(asked).buffered(AT_ONCE).collect().await;
            refused.extend(answers.iter().filter_map(|(pod, answer)| words::would_refuse(pod, answer)));
        }
        let waits = next.left.iter().filter_map(|left| match left.state {
            State::Completing(by) => Some((left.pod.called(), by.to_owned())),
            _ => None,
        });
        Ok(DrainPreview {
            leaves: next.left.len(),
            later: next.left.iter().filter(|left| left.state == State::Later).count(),
            own: pods.iter().filter(own).count(),
            waits: waits.collect(),
            kept: words::reasons(&next.kept).collect(),
            lost: next.lost.iter().map(|pod| pod.called()).collect(),
            refused,
            notes,
        })
    }
}

fn is_evicted(left: &Left<'_>) -> bool {
    !matches!(left.state, State::Completing(_) | State::Terminating)
}

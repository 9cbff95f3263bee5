//! Pairs of etcd members without a peer connection: further looks confirm a new one, once in a run.
//!
//! In: the pairs that a look finds. Out: whether the run has to look again before it believes them.

use crate::model::names::PeerUrl;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

type Pairs = BTreeSet<(PeerUrl, PeerUrl)>;

/// The pairs that the last round confirmed.
#[derive(Debug, Default)]
pub(super) struct Apart(Mutex<Pairs>);

impl Apart {
    /// Whether there is a pair that the last round did not confirm.
    pub fn has_new(&self, found: &Pairs) -> bool {
        !found.is_subset(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the pairs: one that hears each other again has to be confirmed the next time.
    pub fn confirm(&self, found: Pairs) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_new_until_it_is_confirmed_and_again_once_the_two_have_heard_each_other() {
        let peer = |n: u8| PeerUrl::of([10, 0, 0, n].into());
        let (apart, one, two) = (Apart::default(), (peer(1), peer(2)), (peer(1), peer(3)));
        let pairs = |all: &[&(PeerUrl, PeerUrl)]| all.iter().map(|pair| (*pair).clone()).collect::<Pairs>();
        assert!(!apart.has_new(&pairs(&[])) && apart.has_new(&pairs(&[&one])));
        apart.confirm(pairs(&[&one]));
        assert!(!apart.has_new(&pairs(&[&one])) && apart.has_new(&pairs(&[&one, &two])));
        apart.confirm(pairs(&[]));
        assert!(apart.has_new(&pairs(&[&one])));
    }
}

//! Keeps a control plane on its host where its pods do not, `hactl host-hosting`: a resident program of every host of a
//! self-hosted control plane, also where the inventory asks for no guards.
//!
//! In: the mode that runs write, and once a second what the host sees by itself: no API, no quorum, no certificate. Out:
//! manifests that are moved to the kubelet and away from it, as `plan/hosting.rs` decides; lines in the journal.

use super::notify;
use super::shared::turns;
use crate::agent::Root;
use crate::agent::hosting::{answers, components, mode, place, publish_program, withdraw};
use crate::model::hosting::{Component, ComponentFact, Mode};
use crate::plan::hosting::{Around, Keeper, Move, Turn, turn_of};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// How long another API server may take to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// What a keeper knows of its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The address of the API server of this host.
    pub own: IpAddr,
    /// The port of all API servers.
    pub port: u16,
    /// The addresses of all API servers, in the same order on every host.
    pub all: Vec<IpAddr>,
}

impl Place {
    fn turn(&self, missing: Option<Duration>) -> Turn {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let place = self.all.iter().position(|address| *address == self.own).unwrap_or(0);
        turn_of(now, (count(place), count(self.all.len())), missing)
    }

    /// Whether each of the others answers.
    async fn others(&self) -> Vec<bool> {
        let others = self.all.iter().filter(|address| **address != self.own);
        futures::future::join_all(others.map(|address| answers(*address, self.port, ANSWER))).await
    }
}

/// The keepers of a host.
struct Keepers {
    root: Root,
    place: Place,
    components: [Component; 3],
    keepers: [Keeper; 3],
    /// Since when another API server does not answer.
    missing: Option<Duration>,
    said: BTreeSet<String>,
    say: fn(&str),
}

/// Keeps watch until it is stopped. It is ready once it has decided what the kubelet of a host that starts will find.
pub async fn run(root: Root, place: Place, say: fn(&str)) {
    let begun = Instant::now();
    let components = Component::all(place.own, place.port);
    let keepers = components.map(|component| Keeper::of(component.is_api_server()));
    let mut all = Keepers { root, place, components, keepers, missing: None, said: BTreeSet::new(), say };
    all.start().await;
    notify::ready();
    // Pods cannot wait without it: static pods run on.
    if let Err(fault) = publish_program(&all.root) {
        all.say_once(&fault.what);
    }
    let mut turn = turns(EVERY);
    loop {
        turn.tick().await;
        all.look(begun.elapsed()).await;
        notify::alive();
    }
}

impl Keepers {
    /// A host without the file was never handed over: static pods run.
    fn mode(&self) -> Mode {
        mode(&self.root).unwrap_or(Mode::Held)
    }

    async fn seen(&mut self) -> Option<[ComponentFact; 3]> {
        match components(&self.root, self.components).await {
            Ok(seen) => Some(seen),
            Err(fault) => {
                self.say_once(&fault.what);
                None
            }
        }
    }

    /// What there is besides the components; the others are asked only if it is needed.
    async fn around(&mut self, now: Duration, seen: &[ComponentFact; 3], needed: bool) -> Around {
        let has_others = self.place.all.len() > 1;
        let others = if needed { self.place.others().await } else { vec![] };
        let others_serve = others.contains(&true);
        self.missing = others.contains(&false).then(|| self.missing.unwrap_or(now));
        let missing = self.missing.map(|since| now.saturating_sub(since));
        let api_server = self.components.iter().position(Component::is_api_server);
        let own_serves = api_server.is_some_and(|at| seen[at].answers);
        Around { has_others, others_serve, own_serves, turn: self.place.turn(missing) }
    }

    async fn start(&mut self) {
        let mode = self.mode();
        let Some(seen) = self.seen().await else { return };
        let around = self.around(Duration::ZERO, &seen, mode != Mode::Held).await;
        for (at, seen) in seen.iter().enumerate() {
            let moved = self.keepers[at].at_start(&mode, seen, around);
            self.perform(self.components[at], moved);
        }
    }

    async fn look(&mut self, now: Duration) {
        let mode = self.mode();
        let Some(seen) = self.seen().await else { return };
        let open = seen.iter().any(|fact| !fact.answers || fact.placed && fact.waits.is_some());
        let around = self.around(now, &seen, open && mode != Mode::Held).await;
        for (at, seen) in seen.iter().enumerate() {
            let moved = self.keepers[at].judge(now, &mode, seen, around);
            self.perform(self.components[at], moved);
        }
    }

    fn perform(&mut self, component: Component, moved: Option<Move>) {
        let (done, line) = match moved {
            None => return,
            Some(Move::Place(why)) => (place(&self.root, component), format!("{component}: static pod placed: {why}")),
            Some(Move::Withdraw(why)) => {
                (withdraw(&self.root, component), format!("{component}: static pod withdrawn: {why}"))
            }
        };
        match done {
            Ok(()) => {
                self.said.clear();
                (self.say)(&line);
            }
            // The next second tries again.
            Err(fault) => self.say_once(&format!("{component}: {}", fault.what)),
        }
    }

    fn say_once(&mut self, line: &str) {
        if self.said.insert(line.to_owned()) {
            (self.say)(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn keepers(mode: Option<&Mode>) -> (tempfile::TempDir, Keepers) {
        let place = tempfile::tempdir().unwrap();
        let root = Root::at(place.path());
        let own = IpAddr::from([127, 0, 0, 1]);
        let components = Component::all(own, 1);
        for component in components {
            let at = place.path().join(&component.aside()[1..]);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::create_dir_all(place.path().join("etc/kubernetes/manifests")).unwrap();
            fs::write(at, "").unwrap();
        }
        if let Some(mode) = mode {
            let text = serde_json::to_vec(mode).unwrap();
            fs::write(place.path().join("etc/kubernetes/hosting/mode.json"), text).unwrap();
        }
        let keepers = components.map(|component| Keeper::of(component.is_api_server()));
        let at = Place { own, port: 1, all: vec![own] };
        (place, Keepers { root, place: at, components, keepers, missing: None, said: BTreeSet::new(), say: |_| {} })
    }

    fn placed(keepers: &Keepers, folder: &Path) -> Vec<&'static str> {
        let there = |component: &&Component| folder.join(&component.manifest()[1..]).exists();
        keepers.components.iter().filter(there).map(|component| component.program).collect()
    }

    #[tokio::test]
    async fn a_cold_start_places_the_api_server_alone_and_a_held_host_all() {
        let (place, mut keepers) = self::keepers(Some(&Mode::Workloads("a".to_owned())));
        keepers.start().await;
        assert_eq!(placed(&keepers, place.path()), ["kube-apiserver"]);
        for at in [0, 61, 600] {
            keepers.look(Duration::from_secs(at)).await;
            assert_eq!(placed(&keepers, place.path()), ["kube-apiserver"], "without an API, nobody misses the others");
        }
        for mode in [Some(Mode::Held), None] {
            let (place, mut keepers) = self::keepers(mode.as_ref());
            keepers.start().await;
            assert_eq!(placed(&keepers, place.path()).len(), 3);
        }
    }

    #[tokio::test]
    async fn a_manifest_that_cannot_be_moved_is_tried_again() {
        let (place, mut keepers) = self::keepers(Some(&Mode::Held));
        fs::remove_dir(place.path().join("etc/kubernetes/manifests")).unwrap();
        keepers.start().await;
        assert_eq!(keepers.said.len(), 3);
        fs::create_dir(place.path().join("etc/kubernetes/manifests")).unwrap();
        keepers.look(Duration::ZERO).await;
        assert_eq!(placed(&keepers, place.path()).len(), 3);
    }
}

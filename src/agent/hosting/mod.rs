//! The reserve of a self-hosted control plane on this host: moves manifests of static pods to the kubelet and away from
//! it.
//!
//! In: what a run asks for, or what the resident keeper decides. Out: a manifest in one of two folders of one file
//! system. The rename is all that changes, so there is never a moment without a manifest that starts.

mod look;
mod turn;

pub(crate) use look::look_all;
pub use look::{answers, components};
pub use turn::await_turn;

use crate::agent::host::Host;
use crate::agent::machine::ends::{Ends, exit_report};
use crate::agent::machine::files::{moved, optional, private_folder, write_one};
use crate::agent::machine::root::{Root, me};
use crate::agent::op_error::{Explain as _, Outcome, failed, fault};
use crate::model::hosting::{Component, ComponentFact, FOLDER, HostingFact, MODE, Mode, PROGRAM_FOLDER};
use crate::protocol::{HostingAsk, OpError, OpErrorKind};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two looks at components that change.
const LOOK: Duration = Duration::from_millis(500);
/// How long a pod may take to answer once the static pod has made way.
const TAKES: Duration = Duration::from_secs(60);
/// So often may a new pod of the API server exit. A pod that takes over finds its files and a port that nobody has.
const MOST_EXITS: u32 = 3;
/// The program that runs.
const PROGRAM: &str = "/proc/self/exe";

/// What this host may do; `None`: it was never self-hosted. A file that cannot be read counts as held: static pods run.
pub fn mode(root: &Root) -> Option<Mode> {
    let text = optional(fs::read(root.own(MODE))).unwrap_or_default()?;
    Some(serde_json::from_slice(&text).unwrap_or(Mode::Held))
}

fn write_mode(root: &Root, mode: &Mode) -> Outcome<()> {
    private_folder(&root.own(FOLDER))?;
    let text = serde_json::to_vec(mode).map_err(|e| failed(format!("the mode cannot be serialized: {e}")))?;
    write_one(root.own(MODE), &text, 0o600, me())
}

/// Gives a manifest to the kubelet; does nothing if the kubelet has it.
///
/// # Errors
/// It cannot be moved, or there is none.
pub fn place(root: &Root, component: Component) -> Outcome<()> {
    let (there, aside) = places(root, component);
    if there.exists() {
        return Ok(());
    }
    moved(&aside, &there)
}

/// Takes a manifest away from the kubelet; does nothing if it is away already.
///
/// # Errors
/// It cannot be moved.
pub fn withdraw(root: &Root, component: Component) -> Outcome<()> {
    let (there, aside) = places(root, component);
    if !there.exists() && aside.exists() {
        return Ok(());
    }
    private_folder(&root.own(FOLDER))?;
    moved(&there, &aside)
}

/// Puts this program where pods find it, under a path that does not change with its release.
///
/// # Errors
/// It cannot be linked nor copied.
pub fn publish_program(root: &Root) -> Outcome<()> {
    let folder = root.own(PROGRAM_FOLDER);
    fs::create_dir_all(&folder).explain("create", &folder)?;
    let program = fs::read_link(PROGRAM).explain("read", Path::new(PROGRAM))?;
    let (new, at) = (folder.join(".hactl-new"), folder.join("hactl"));
    optional(fs::remove_file(&new)).explain("remove", &new)?;
    // Another file system: a copy, which keeps the permissions.
    fs::hard_link(&program, &new).or_else(|_| fs::copy(&program, &new).map(drop)).explain("link", &new)?;
    fs::rename(&new, &at).explain("replace", &at)
}

/// Makes static pods run on this host, if it was ever self-hosted: before a recovery, and before their manifests change.
pub(crate) fn hold(root: &Root, components: &[Component]) -> Outcome<()> {
    if mode(root).is_none() {
        return Ok(());
    }
    write_mode(root, &Mode::Held)?;
    components.iter().try_for_each(|component| place(root, *component))
}

/// The same without the address of the API server, which does not matter for manifests.
pub(crate) fn hold_all(root: &Root) -> Outcome<()> {
    hold(root, &Component::all(IpAddr::from([127, 0, 0, 1]), 0))
}

/// Does what a run asks for.
pub(crate) async fn obey(host: &Host, ask: HostingAsk) -> Outcome<()> {
    let (address, port) = ask.own();
    let components = Component::all(address, port);
    match ask {
        HostingAsk::Hold { .. } => host.root.blocking(move |root| hold(root, &components)).await,
        HostingAsk::AwaitHeld { within_ms, .. } => await_held(host, components, within_ms).await,
        HostingAsk::HandOver { revision, within_ms, .. } => {
            let taken = hand_over(host, components, &revision, Duration::from_millis(within_ms)).await;
            if taken.is_err() {
                host.root.blocking(move |root| hold(root, &components)).await?;
            }
            taken
        }
    }
}

/// Waits until the static pods have the ports.
async fn await_held(host: &Host, components: [Component; 3], within_ms: u64) -> Outcome<()> {
    let until = Instant::now() + Duration::from_millis(within_ms);
    loop {
        let Some(found) = look_all(&host.root, components).await? else { return Ok(()) };
        let waits = |component: &&Component| {
            let fact = found.components.get(component.program);
            !fact.is_some_and(|fact| fact.is_held() && fact.answers)
        };
        let Some(left) = components.iter().find(waits) else { return Ok(()) };
        let on = format!("the static pod of {left} to answer ({})", seen(&found, *left));
        if Instant::now() >= until {
            return Err(fault(OpErrorKind::TimedOut, format!("waited in vain for {on}")));
        }
        host.waits(on);
        sleep(LOOK).await;
    }
}

/// What is seen of a component, in words.
fn seen(found: &HostingFact, component: Component) -> String {
    let Some(fact) = found.components.get(component.program) else { return "nothing is known of it".to_owned() };
    let place = if fact.placed { "its manifest is in place" } else { "its manifest is aside" };
    let server = match (&fact.server, fact.answers) {
        (None, _) => "nobody listens",
        (Some(_), true) => "it answers",
        (Some(_), false) => "somebody listens and does not answer",
    };
    let waits = if fact.waits.is_some() { ", a pod waits" } else { "" };
    format!("{place}, {server}{waits}")
}

/// Lets pods of a revision take over, one component after the other. The keeper of this host places a manifest again if
/// this process ends meanwhile.
async fn hand_over(host: &Host, components: [Component; 3], revision: &str, within: Duration) -> Outcome<()> {
    let until = Instant::now() + within;
    let mode = Mode::Workloads(revision.to_owned());
    host.root.blocking(move |root| write_mode(root, &mode)).await?;
    let mut ends = Ends::default();
    for component in components {
        let mut made_way: Option<Instant> = None;
        loop {
            let [fact] = look::components(&host.root, [component]).await?;
            if fact.is_hosted_by(revision) {
                break;
            }
            if takes_over(&fact, revision) {
                host.root.blocking(move |root| withdraw(root, component)).await?;
                made_way = Some(Instant::now());
                continue;
            }
            // Its clients may exit while it does not serve.
            if component.is_api_server() && !fact.placed {
                let ended = ends.of(&host.root, component.program);
                if ended >= MOST_EXITS {
                    let what = format!("the pod of the DaemonSet {component} has exited {ended} times");
                    let tail = exit_report(&host.root, component.program);
                    return Err(OpError { tail, ..failed(what) });
                }
            }
            let found = HostingFact { mode: None, components: [(component.program.to_owned(), fact)].into() };
            let on = format!("a pod of the DaemonSet {component} to take over ({})", seen(&found, component));
            if Instant::now() >= until || made_way.is_some_and(|at| at.elapsed() >= TAKES) {
                return Err(fault(OpErrorKind::TimedOut, format!("waited in vain for {on}")));
            }
            host.waits(on);
            sleep(LOOK).await;
        }
    }
    Ok(())
}

/// Whether a pod of the revision waits for the port of the static pod, or has it.
fn takes_over(fact: &ComponentFact, revision: &str) -> bool {
    let wanted = |revision_of: &String| revision_of == revision;
    let waits = fact.waits.as_ref().is_some_and(|pod| wanted(&pod.revision));
    let has_port = fact.answers && fact.workload().is_some_and(|pod| wanted(&pod.revision));
    fact.placed && (waits || has_port)
}

/// The manifest of a component, wherever it is.
pub(super) fn places(root: &Root, component: Component) -> (PathBuf, PathBuf) {
    (root.below(&component.manifest()), root.below(&component.aside()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::hosting::{Server, Workload};

    fn component() -> Component {
        Component::all(IpAddr::from([127, 0, 0, 1]), 6443)[2]
    }

    fn host_with_manifests() -> (tempfile::TempDir, Root) {
        let place = tempfile::tempdir().unwrap();
        let root = Root::at(place.path());
        for component in Component::all(IpAddr::from([127, 0, 0, 1]), 6443) {
            let at = root.below(&component.manifest());
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, component.program).unwrap();
        }
        (place, root)
    }

    #[test]
    fn a_manifest_is_in_one_of_two_places_and_requests_find_it_in_both() {
        let (_place, root) = host_with_manifests();
        let (there, aside) = places(&root, component());
        for _ in 0..2 {
            withdraw(&root, component()).unwrap();
            assert!(!there.exists() && aside.exists());
            assert_eq!(root.present(&component().manifest()).unwrap(), aside);
        }
        for _ in 0..2 {
            place(&root, component()).unwrap();
            assert!(there.exists() && !aside.exists());
            assert_eq!(root.present(&component().manifest()).unwrap(), there);
        }
        fs::remove_file(&there).unwrap();
        assert!(place(&root, component()).is_err(), "there is no manifest");
        assert_eq!(root.present(&component().manifest()).unwrap(), there);
    }

    #[test]
    fn a_host_that_was_never_self_hosted_is_left_alone_and_another_one_is_held() {
        let (_place, root) = host_with_manifests();
        hold_all(&root).unwrap();
        assert_eq!(mode(&root), None);
        assert!(!root.own(MODE).exists());
        write_mode(&root, &Mode::Workloads("a".to_owned())).unwrap();
        assert_eq!(mode(&root), Some(Mode::Workloads("a".to_owned())));
        withdraw(&root, component()).unwrap();
        hold_all(&root).unwrap();
        assert_eq!(mode(&root), Some(Mode::Held));
        assert!(places(&root, component()).0.exists());
        fs::write(root.own(MODE), "{").unwrap();
        assert_eq!(mode(&root), Some(Mode::Held), "unreadable");
    }

    #[test]
    fn only_a_pod_of_the_revision_takes_over() {
        let pod = |revision: &str| Some(Workload { uid: "u".to_owned(), revision: revision.to_owned() });
        let fact = |placed, waits, server, answers| ComponentFact { placed, aside: !placed, server, answers, waits };
        let has = |revision: &str| pod(revision).map(Server::Workload);
        assert!(takes_over(&fact(true, pod("a"), Some(Server::Static), true), "a"));
        assert!(takes_over(&fact(true, None, has("a"), true), "a"));
        assert!(!takes_over(&fact(true, pod("b"), Some(Server::Static), true), "a"));
        assert!(!takes_over(&fact(true, None, has("a"), false), "a"), "it does not answer");
        assert!(!takes_over(&fact(false, pod("a"), None, false), "a"), "the manifest is away already");
    }

    #[test]
    fn the_program_is_published_under_a_path_of_its_own() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::at(place.path());
        for _ in 0..2 {
            publish_program(&root).unwrap();
            assert!(root.own(PROGRAM_FOLDER).join("hactl").is_file());
        }
    }
}

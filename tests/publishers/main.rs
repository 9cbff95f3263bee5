//! Downloads of the real components: the binaries and images that `make bundle` built, laid out as their publishers do,
//! on a web server and a real registry of this machine. `cargo test --test publishers`; needs root for a disk that is
//! full.

#![allow(
    clippy::print_stdout,
    clippy::type_complexity,
    clippy::format_collect,
    reason = "a suite without a harness prints what it ran"
)]
#![allow(clippy::unwrap_used)]

mod lay;
#[path = "../support/registry.rs"]
mod registry;
#[path = "../support/scenarios.rs"]
mod scenarios;
#[path = "../support/served.rs"]
mod served;
#[path = "../download/server.rs"]
#[allow(dead_code, reason = "faults of a server are tested elsewhere")]
mod server;

use hactl::component::{self, Kind, Lock};
use lay::Layout;
use registry::Registry;
use server::Server;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Everything that is published, and a folder for stores.
struct World {
    server: Server,
    registry: Registry,
    root: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let registry = Registry::start(root.path(), Ipv4Addr::LOCALHOST.into());
        let server = Server::start();
        Layout::of(&dist()).publish(&server, &registry);
        Self { server, registry, root }
    }
    fn build(&self, store: &Path) -> Command {
        let (files, images) = (self.server.url(), self.registry.url());
        let mut command = hactl(store);
        command.args(["build", "--kubernetes", &lay::kubernetes(&dist())]);
        for mirror in [
            format!("dl.k8s.io={files}"),
            format!("github.com={files}"),
            format!("registry.k8s.io={images}"),
            format!("ghcr.io={images}/through/ghcr"),
        ] {
            command.args(["--mirror", &mirror]);
        }
        command
    }
}

fn dist() -> PathBuf {
    std::env::var_os("DIST").map_or_else(|| component::default_store().with_file_name("dist"), PathBuf::from)
}

fn hactl(store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hactl"));
    command
        .arg("--bundles")
        .arg(store)
        .arg("bundle")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
}

fn ok(output: Output) -> String {
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    text
}

/// The bundle of a store.
fn lock(store: &Path) -> Lock {
    component::list(store).unwrap().into_iter().find(|l| l.kubernetes == lay::kubernetes(&dist())).unwrap()
}

/// The store that the first scenario fills and the others read.
fn store(world: &World) -> PathBuf {
    world.root.path().join("bundles")
}

fn interrupted_and_run_again(world: &World) {
    let store = store(world);
    let mut child = world.build(&store).spawn().unwrap();
    let begun = Instant::now();
    // Once a part of a download is there, whichever it is.
    let some = || {
        std::fs::read_dir(store.join("downloads"))
            .is_ok_and(|mut all| all.any(|e| e.unwrap().metadata().is_ok_and(|m| m.len() > 1 << 20)))
    };
    while !some() {
        assert!(child.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(60), "nothing arrives");
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(1));
    let text = ok(world.build(&store).output().unwrap());
    assert!(text.contains("22 components"), "{text}");
    assert!(ok(hactl(&store).arg("verify").output().unwrap()).contains("all as built"));
    world.server.asked();
    let again = ok(world.build(&store).output().unwrap());
    assert!(again.contains("nothing to do") && world.server.asked().is_empty(), "{again}");
}

fn as_from_the_directory(world: &World) {
    let built = lock(&component::default_store());
    let fetched = lock(&store(world));
    let of = |lock: &Lock| -> BTreeMap<(String, Kind), component::Component> {
        // Nobody publishes packages as hosts get them.
        let published = lock.components.iter().filter(|c| c.kind != Kind::Packages);
        published.map(|c| ((c.name.clone(), c.kind), c.clone())).collect()
    };
    let (built, fetched) = (of(&built), of(&fetched));
    assert_eq!(built.keys().collect::<Vec<_>>(), fetched.keys().collect::<Vec<_>>());
    let differ: Vec<&str> =
        built.iter().filter(|(key, c)| fetched[*key].digest != c.digest).map(|(key, _)| key.0.as_str()).collect();
    // Their archives have other names: flannel is published elsewhere, and our pause has a second one.
    assert_eq!(differ, ["flannel", "pause"]);
    for (key, component) in built.iter().filter(|(key, _)| !differ.contains(&key.0.as_str())) {
        let there = &fetched[key];
        assert_eq!(
            (there.sent_digest, there.size, &there.link),
            (component.sent_digest, component.size, &component.link),
            "{key:?}"
        );
    }
}

fn through_a_pipe(world: &World) {
    let other = world.root.path().join("inside");
    let mut sends = hactl(&store(world)).args(["export", "-"]).spawn().unwrap();
    let takes = hactl(&other).args(["import", "-"]).stdin(sends.stdout.take().unwrap()).output().unwrap();
    ok(sends.wait_with_output().unwrap());
    ok(takes);
    assert_eq!(lock(&other), lock(&store(world)));
    assert!(ok(hactl(&other).arg("verify").output().unwrap()).contains("all as built"));
}

/// A small file system, unmounted when this value is dropped.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path) -> Self {
        std::fs::create_dir_all(at).unwrap();
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "hactl-test"]).arg(at).status().unwrap();
        assert!(done.success(), "a tmpfs can be mounted by root");
        Self(at.to_owned())
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

fn on_a_full_disk(world: &World) {
    let small = Small::mount(&world.root.path().join("small"));
    let done = world.build(&small.0.join("bundles")).output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(done.status.code(), Some(1), "{text}");
    assert!(text.contains("No space left") && text.contains("free some space"), "{text}");
    let parts = std::fs::read_dir(small.0.join("bundles/downloads")).unwrap().count();
    assert!(parts > 0, "received data is kept");
}

fn main() {
    let scenarios: &[scenarios::Scenario<World>] = &[
        (
            "an interrupted download of the real components resumes, verifies, and is not repeated",
            true,
            interrupted_and_run_again,
        ),
        ("its blobs are those of a bundle built from the same components", true, as_from_the_directory),
        ("the bundle passes through a pipe into another store unchanged", true, through_a_pipe),
        ("a full disk is reported, and received data is kept", true, on_a_full_disk),
    ];
    scenarios::run("publishers", World::new(), scenarios);
}

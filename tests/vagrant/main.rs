//! Vagrant: a freshly built box, real machines of the provider lxc, and their faults. `cargo test --test vagrant`;
//! needs root, Vagrant with vagrant-lxc and vagrant-libvirt, and a bundle. The settings for libvirt and virtualbox are
//! read and validated, but no such machine is started.

#![allow(clippy::print_stdout, reason = "a suite without a harness prints what it ran")]
#![allow(clippy::unwrap_used)]

#[path = "../support/scenarios.rs"]
mod scenarios;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "most of it is the lab's")]
mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Api, Hactl, Ran};

/// Not the network of a user's own lab on this machine.
const NETWORK: &str = "10.88.201";

/// A copy of `vagrant/`, with all files of Vagrant in a folder that is removed with it.
struct World {
    root: tempfile::TempDir,
    before: Traces,
}

/// What a Vagrant machine leaves on this one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Traces {
    links: BTreeSet<String>,
    containers: BTreeSet<String>,
    tables: String,
    settings: Vec<String>,
    register: bool,
}

impl Traces {
    fn now() -> Self {
        let names = |folder: &str| match fs::read_dir(folder) {
            Ok(entries) => entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect(),
            Err(_) => BTreeSet::new(),
        };
        let tables = Command::new("nft").args(["list", "tables"]).output().unwrap().stdout;
        let settings = ["net/ipv4/ip_forward", "fs/inotify/max_user_instances"];
        Self {
            links: names("/sys/class/net"),
            containers: names("/var/lib/lxc"),
            tables: String::from_utf8(tables).unwrap(),
            settings: settings.iter().map(|s| fs::read_to_string(Path::new("/proc/sys").join(s)).unwrap()).collect(),
            register: Path::new("/run/hactl-lab").exists(),
        }
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vagrant").join(name)
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let world = Self { root, before: Traces::now() };
        for name in ["Vagrantfile", "topology.yaml"] {
            fs::create_dir_all(world.dir().join("box")).unwrap();
            fs::copy(source(name), world.dir().join(name)).unwrap();
        }
        world
    }
    /// The folder with the Vagrantfile.
    fn dir(&self) -> PathBuf {
        self.root.path().join("vagrant")
    }
    /// A folder with another Vagrantfile.
    fn other(&self, name: &str, vagrantfile: &str) -> PathBuf {
        let dir = self.root.path().join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("Vagrantfile"), vagrantfile).unwrap();
        dir
    }
    /// A command with the environment of this world.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.dir()).env("VAGRANT_HOME", self.root.path().join("home"));
        command.env("VAGRANT_CHECKPOINT_DISABLE", "1").env("HACTL", hactl("").program);
        command.env("HACTL_NETWORK", NETWORK).stdin(Stdio::null());
        command
    }
    fn vagrant(&self, words: &[&str], set: &[(&str, &str)]) -> Ran {
        ran(self.command("vagrant").args(words).envs(set.iter().copied()))
    }
    /// hactl with the machines of a folder.
    fn hactl(&self, words: &[&str]) -> Ran {
        self.hactl_in(&self.dir(), words)
    }
    fn hactl_in(&self, dir: &Path, words: &[&str]) -> Ran {
        let own = hactl(&format!("vagrant:{}", dir.display()));
        ran(self.command(&own.program).arg("-i").arg(&own.inventory).args(words))
    }
    fn kubeconfig(&self) -> PathBuf {
        self.dir().join(".hactl/vagrant/kubeconfig")
    }
}

impl Drop for World {
    /// Runs after a failure as well: what Vagrant no longer finds is removed by name.
    fn drop(&mut self) {
        let destroyed = self.vagrant(&["destroy", "-f"], &[]);
        for name in Traces::now().containers.difference(&self.before.containers) {
            ran(Command::new("lxc-destroy").args(["-f", "-n", name]));
        }
        let network = self.dir().join(".vagrant/hactl");
        if network.exists() {
            ran(Command::new(hactl("").program)
                .arg("lab")
                .arg("--dir")
                .arg(&network)
                .args(["--name", "vagrant", "down"]));
        }
        assert!(destroyed.code == 0 || std::thread::panicking(), "{}", destroyed.all());
    }
}

fn hactl(inventory: &str) -> Hactl {
    Hactl::new(PathBuf::from(inventory))
}

fn ran(command: &mut Command) -> Ran {
    let begun = Instant::now();
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let ran = Ran { code: output.status.code().unwrap_or(-1), out, err, took: begun.elapsed() };
    if ran.took > Duration::from_secs(10) {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        println!("        {:.0} s: {} {}", ran.took.as_secs_f32(), command.get_program().display(), words.join(" "));
    }
    ran
}

/// Everything it printed, in one line.
fn words(ran: &Ran) -> String {
    format!("{} {}", ran.out, ran.err).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn says(ran: &Ran, text: &str) {
    assert!(words(ran).contains(text), "expected {text:?}: {}", ran.all());
}

fn a_fresh_box_becomes_a_cluster(world: &World) {
    let boxed = world.dir().join("box/hactl-lxc.box");
    let missing = world.vagrant(&["up", "--provider=lxc"], &[]);
    assert_ne!(missing.code, 0, "{}", missing.all());
    says(&missing, "there is no box for the provider lxc yet");
    ran(Command::new(source("box/build.sh")).arg(&boxed)).ok();

    // One machine runs; the addresses of the others are not known yet.
    let shape = [("HACTL_CONTROL_PLANES", "1"), ("HACTL_WORKERS", "1")];
    world.vagrant(&["up", "--provider=lxc", "cp1"], &shape).ok();
    says(&world.hactl(&["status"]).exits(2), "w1 (not created) in");
    let up = world.vagrant(&["up", "--provider=lxc"], &shape).ok();
    says(&up, "the cluster is what the inventory asks for");

    // The shape is remembered and not repeated.
    let status = world.hactl(&["status", "-o", "json"]).ok();
    let json: Value = serde_json::from_str(status.out.lines().last().unwrap()).unwrap();
    assert!(json.to_string().contains("10.88.201.12"), "the worker's address: {json}");
    assert_eq!(nodes(world), 2);

    world.vagrant(&["halt", "-f", "w1"], &[]).ok();
    says(&world.hactl(&["status"]).exits(4), "w1: 10.88.201.12:22 cannot be reached");
    comes_back(world);
    an_inventory_that_is_kept(world);
}

fn a_larger_shape_becomes_a_larger_cluster(world: &World) {
    let larger = [("HACTL_CONTROL_PLANES", "3")];
    says(&world.vagrant(&["up", "--provider=lxc"], &larger).ok(), "the cluster is what the inventory asks for");
    assert_eq!(nodes(world), 4);

    // A control-plane host is gone at once, and the API answers again soon.
    world.vagrant(&["halt", "-f", "cp2"], &[]).ok();
    let api = Api::new(&world.kubeconfig(), Duration::from_secs(10));
    support::wait_for("the API answers without cp2", Duration::from_secs(20), || {
        api.get("/api/v1/namespaces/default").is_ok()
    });
    says(&world.hactl(&["status"]).exits(4), "cp2: 10.88.201.13:22 cannot be reached");
    comes_back(world);
}

/// How many Nodes the API server has.
fn nodes(world: &World) -> usize {
    let nodes = Api::new(&world.kubeconfig(), Duration::from_secs(10)).get("/api/v1/nodes").unwrap();
    nodes.pointer("/items").and_then(Value::as_array).map(Vec::len).unwrap()
}

/// A halted machine is started again, and the cluster is complete.
fn comes_back(world: &World) {
    let again = world.vagrant(&["up"], &[]).ok();
    assert_eq!(
        again.out.matches("asking Vagrant").count() + again.err.matches("asking Vagrant").count(),
        1,
        "one `hactl up`"
    );
    says(&world.hactl(&["up", "--yes"]).ok(), "nothing to do");
}

fn destroy_leaves_nothing_behind(world: &World) {
    world.vagrant(&["destroy", "-f"], &[]).ok();
    assert_eq!(Traces::now(), world.before, "`vagrant destroy -f` leaves nothing behind");
    assert!(!world.dir().join(".hactl").exists(), "nor the cluster's state");
    let left = ran(Command::new("find").arg(world.dir().join(".vagrant")).args(["-name", "hactl*"]));
    assert_eq!(left.ok().out, "", "nor what was remembered of machines");
}

/// The user may not use sudo any more.
fn a_box_without_sudo(world: &World) {
    world.vagrant(&["ssh", "w1", "-c", "sudo mv /etc/sudoers.d/vagrant /etc/vagrant.sudo"], &[]).ok();
    let refused = world.hactl(&["up", "--yes"]);
    assert_ne!(refused.code, 0, "{}", refused.all());
    says(&refused, "w1");
    says(&refused, "sudo");
    let container = fs::read_to_string(world.dir().join(".vagrant/machines/w1/lxc/id")).unwrap();
    let back = ["-n", &container, "--", "mv", "/etc/vagrant.sudo", "/etc/sudoers.d/vagrant"];
    ran(Command::new("lxc-attach").args(back)).ok();
    says(&world.hactl(&["up", "--yes"]).ok(), "nothing to do");
}

/// A machine that is destroyed and created again has another host key and empty disks, and joins the cluster again.
fn a_machine_that_is_created_again(world: &World) {
    world.vagrant(&["destroy", "-f", "cp3"], &[]).ok();
    says(&world.hactl(&["status"]).exits(4), "cp3");
    says(&world.vagrant(&["up"], &[]).ok(), "the cluster is what the inventory asks for");
    says(&world.hactl(&["up", "--yes"]).ok(), "nothing to do");
}

/// An inventory file with the same machines beside the Vagrantfile is the same cluster.
fn an_inventory_that_is_kept(world: &World) {
    let own = hactl("");
    let imported = ran(world.command(&own.program).args(["inventory", "import", "vagrant", "."])).ok();
    let file = world.dir().join("hactl.yaml");
    fs::write(&file, &imported.out).unwrap();
    ran(world.command(&own.program).args(["inventory", "check", "hactl.yaml"])).ok();
    says(&ran(world.command(&own.program).args(["-i", "hactl.yaml", "up", "--yes"])).ok(), "nothing to do");
    fs::remove_file(file).unwrap();
}

/// The settings that the Vagrantfile passes to a provider.
fn settings(world: &World, provider: &str, set: &[(&str, &str)]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vagrant/settings.rb");
    let mut command = world.command("ruby");
    command.arg(script).arg(world.dir()).arg(provider).env_remove("HACTL_NETWORK").envs(set.iter().copied());
    serde_json::from_str(&ran(&mut command).ok().out).unwrap()
}

fn field<'a>(machines: &'a Value, name: &str) -> Vec<&'a Value> {
    machines.as_array().unwrap().iter().map(|machine| &machine[name]).collect()
}

/// A stand-in for VirtualBox's program, whose version Vagrant reads before any setting.
fn with_virtualbox(world: &World) -> String {
    let folder = world.root.path().join("bin");
    let program = folder.join("VBoxManage");
    fs::create_dir_all(&folder).unwrap();
    fs::write(&program, "#!/bin/sh\necho 7.0.20r163906\n").unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

fn the_other_providers_validate_and_get_the_requested_settings(world: &World) {
    let path = with_virtualbox(world);
    for provider in ["libvirt", "virtualbox"] {
        let valid = world.vagrant(&["validate"], &[("VAGRANT_DEFAULT_PROVIDER", provider), ("PATH", &path)]).ok();
        says(&valid, "validated successfully");
    }
    let shape =
        [("HACTL_ETCD", "3"), ("HACTL_CONTROL_PLANES", "2"), ("HACTL_LOAD_BALANCERS", "2"), ("HACTL_WORKERS", "1")];
    let libvirt = settings(world, "libvirt", &shape);
    let names = ["cp1", "cp2", "etcd1", "etcd2", "etcd3", "lb1", "lb2", "w1"];
    assert_eq!(field(&libvirt, "name"), names);
    assert_eq!(field(&libvirt, "hostname"), names);
    let addresses: Vec<String> = (11..19).map(|last| format!("10.88.200.{last}")).collect();
    let networks: Vec<&str> = field(&libvirt, "networks").iter().map(|n| n[0].as_str().unwrap()).collect();
    assert_eq!(networks, addresses, "each in the private network");
    assert!(field(&libvirt, "memory").iter().all(|m| **m == 4096) && field(&libvirt, "cpus").iter().all(|c| **c == 2));

    let set = [("PATH", path.as_str()), ("HACTL_MEMORY", "2048"), ("HACTL_CPUS", "3"), ("HACTL_BOX", "example/box")];
    let virtualbox = settings(world, "virtualbox", &set);
    assert_eq!(field(&virtualbox, "name"), ["cp1", "cp2", "cp3"]);
    assert!(field(&virtualbox, "box").iter().all(|name| *name == "example/box"));
    assert_eq!(virtualbox[0]["networks"][0], "192.168.57.11", "a network that VirtualBox allows by default");
    let text = virtualbox[0]["customizations"].to_string();
    assert!(text.contains(r#""--memory","2048""#) && text.contains(r#""--cpus",3"#), "{text}");
}

fn an_invalid_shape_is_reported(world: &World) {
    for (name, value, expected) in [
        ("HACTL_WORKERS", "many", "HACTL_WORKERS is \"many\": write a number"),
        ("HACTL_WORKERS", "99", "machines are too many"),
        ("HACTL_CONTROL_PLANES", "0", "a lab of no machines"),
        ("HACTL_MEMORY", "4 GB", "HACTL_MEMORY is \"4 GB\": write a whole number"),
        ("HACTL_NETWORK", "192.168.7", "with the provider lxc write 10.88.N"),
        ("HACTL_NETWORK", "10.88", "write the first three numbers of an address"),
    ] {
        let refused = world.vagrant(&["status"], &[(name, value)]);
        let settings = match name {
            // Read only with the settings of a machine.
            "HACTL_MEMORY" | "HACTL_NETWORK" => world.vagrant(&["validate"], &[(name, value)]),
            _ => refused,
        };
        assert_ne!(settings.code, 0, "{name}={value}: {}", settings.all());
        says(&settings, expected);
    }
}

fn unnamed_counts_stay_and_one_folder_is_one_lab(world: &World) {
    let remembered = world.dir().join(".vagrant/hactl-lab.json");
    fs::create_dir_all(world.dir().join(".vagrant")).unwrap();
    let five: Vec<String> = (1..=5).map(|n| format!("\"cp{n}\": {}", n + 10)).collect();
    fs::write(&remembered, format!("{{\"HACTL_MEMORY\": \"3072\", \"machines\": {{{}}}}}", five.join(", "))).unwrap();
    let grown = settings(world, "libvirt", &[("HACTL_WORKERS", "1")]);
    assert_eq!(field(&grown, "name"), ["cp1", "cp2", "cp3", "cp4", "cp5", "w1"]);
    assert!(field(&grown, "memory").iter().all(|m| **m == 3072));
    fs::remove_file(remembered).unwrap();

    let other = world.vagrant(&["up", "--provider=lxc", "cp1"], &[("VAGRANT_DOTFILE_PATH", ".other")]);
    assert_ne!(other.code, 0, "{}", other.all());
    says(&other, "the cluster of another lab would be in the same .hactl");
    says(&other, "copy this folder for a second lab");
}

fn a_folder_that_hactl_cannot_use_is_reported(world: &World) {
    let says_of = |dir: &Path, expected: &str| {
        let refused = world.hactl_in(dir, &["status"]).exits(2);
        says(&refused, expected);
    };
    says_of(&world.root.path().join("nowhere"), "there is no Vagrantfile in");
    says_of(&world.dir(), "no machine of");
    let broken = world.other("broken", "Vagrant.configure('2') do |config|\n");
    says_of(&broken, "Vagrant cannot list its machines");
    let own = hactl(&format!("vagrant:{}", world.dir().display()));
    let without =
        ran(world.command(&own.program).arg("-i").arg(&own.inventory).arg("status").env("PATH", "/nowhere")).exits(2);
    says(&without, "Vagrant is not installed here");
    says(&without, "apt-get install -y vagrant");
    let provider = [("VAGRANT_DEFAULT_PROVIDER", "virtualbox")];
    let none = ran(world.command(&own.program).arg("-i").arg(&own.inventory).arg("status").envs(provider)).exits(2);
    says(&none, "Vagrant could not detect VirtualBox");
    says(&none, "make `vagrant status` work");
}

fn main() {
    let scenarios: &[scenarios::Scenario<World>] = &[
        (
            "the other providers validate and get the requested settings",
            true,
            the_other_providers_validate_and_get_the_requested_settings,
        ),
        ("an invalid shape is reported", true, an_invalid_shape_is_reported),
        (
            "a count that is not named stays the same, and one folder is one lab",
            true,
            unnamed_counts_stay_and_one_folder_is_one_lab,
        ),
        ("a folder that hactl cannot use is reported", true, a_folder_that_hactl_cannot_use_is_reported),
        (
            "a fresh box becomes a cluster, and a machine that was halted comes back",
            true,
            a_fresh_box_becomes_a_cluster,
        ),
        (
            "a larger shape becomes a larger cluster, which survives a halted machine",
            false,
            a_larger_shape_becomes_a_larger_cluster,
        ),
        ("a user without sudo is reported with the host", false, a_box_without_sudo),
        ("a machine that is created again joins the cluster again", false, a_machine_that_is_created_again),
        ("`vagrant destroy` leaves nothing behind", true, destroy_leaves_nothing_behind),
    ];
    scenarios::run("vagrant", World::new(), scenarios);
}

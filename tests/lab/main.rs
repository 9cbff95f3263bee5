//! The lab suite: real hosts, real components, real failures. `cargo test --test lab -- cut|all|NAME...`
//!
//! Scenarios run in order on shared labs, and each starts on the healthy cluster that the previous one left. Ends with
//! `lab: N passed, N failed`.

#![allow(
    clippy::print_stdout,
    clippy::type_complexity,
    clippy::format_collect,
    reason = "a suite without a harness prints what it ran"
)]

#[path = "../support/dashboard.rs"]
mod dashboard;
#[path = "../support/registry.rs"]
mod registry;
#[path = "../support/served.rs"]
mod served;
#[path = "../support/storage.rs"]
mod storage;
#[path = "../support/mod.rs"]
mod support;

mod acting;
mod again;
mod alone;
mod authentic;
mod bad_input;
mod bare_hosts;
mod beside;
mod bundles;
mod certs;
mod cis;
mod cluster;
mod conformance;
mod crowded;
mod drains;
mod examples;
mod expired;
mod failures;
mod firewalls;
mod forgotten;
mod founding;
mod gated;
mod guard;
mod hardened;
mod hostile;
mod hosting;
mod interfered;
mod interrupted;
mod judged;
mod kubelet_serving;
mod kubelets;
mod leaving;
mod lies;
mod maintain;
mod metrics;
mod moved;
mod older;
mod outside;
mod overdue;
mod parted;
mod power;
mod prometheus;
mod quota;
mod reboot;
mod rebooted;
mod recover;
mod refusals;
mod rejoin;
mod repairs;
mod responders;
mod returned;
mod roles;
mod rolled;
mod rolled_back;
mod room;
mod rotations;
mod runbook;
mod secrets;
mod settings;
mod shapes;
mod shutdown;
mod soak;
mod spared;
mod standby;
mod systems;
mod through;
mod timeline;
mod tiny_tls;
mod trials;
mod unattended;
mod upgrades;
mod voting;
mod ways_in;
mod worker;
mod zoned;

use hactl::lab::{Scoped, Silent, Spec};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use support::{Api, Hactl, Ran, wait_for};

/// A lab, and hactl with its inventory.
pub struct World {
    /// Its hosts, which are removed when this value is dropped.
    pub lab: Scoped,
    /// hactl, with the lab's inventory.
    pub hactl: Hactl,
}

impl World {
    /// A lab of this name with bare hosts.
    pub fn bare(name: &str, (control, workers): (usize, usize)) -> Self {
        Self::of(&Spec::new(name).hosts(control, workers, 0))
    }
    /// The lab that is asked for, with bare hosts.
    pub fn of(spec: &Spec) -> Self {
        let lab = Scoped::up(spec, &Silent).expect("the lab comes up");
        let hactl = Hactl::new(lab.inventory());
        Self { lab, hactl }
    }
    /// This machine's address in the lab's network.
    pub fn gateway(&self) -> IpAddr {
        let network = self.lab.network();
        format!("{}.1", network.rsplit_once('.').expect("an address").0).parse().expect("an address")
    }
    /// A client with the administrator's kubeconfig.
    pub fn api(&self) -> Api {
        Api::new(&self.hactl.state(self.lab.name()).join("kubeconfig"), Duration::from_secs(10))
    }
    /// Runs a constant command on a host and returns what it printed.
    pub fn on(&self, host: &str, command: &str) -> String {
        let output = self.lab.ssh(host).expect("the host exists").arg(command).output().expect("ssh can be started");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
    /// A host loses power and its disks, and boots bare.
    pub fn wipe(&self, host: &str) {
        self.lab.wipe(host).expect("the disks can be lost");
        self.lab.start(host, Duration::from_secs(60)).expect("the host boots");
    }
    /// Switches on and connects every host that a failed scenario left otherwise, and waits until the cluster is well.
    pub fn repair(&self) {
        for host in self.lab.states().expect("the lab can be read") {
            if host.cut {
                self.lab.mend(&host.name).expect("a cable can be plugged in");
            }
            if !host.running {
                self.lab.start(&host.name, Duration::from_secs(60)).expect("the host boots");
            }
        }
        self.healthy(Duration::from_secs(120));
    }
    /// What `status` says once it passes: on an overloaded machine, a pod may restart at any time.
    pub fn well(&self) -> Ran {
        self.healthy(Duration::from_secs(120));
        self.hactl.run(&["status"])
    }
    /// Waits until `status` passes, for at most the time that an operator would allow.
    pub fn healthy(&self, within: Duration) -> Duration {
        self.hactl.healthy(within)
    }
}

/// What it printed, with wrapped lines joined and single spaces between the words.
pub fn in_one_line(ran: &Ran) -> String {
    ran.all().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// An image that every Node has.
pub fn present_image(hactl: &Hactl) -> String {
    let images = hactl.kubectl(&["get", "pods", "-A", "-o", "jsonpath={.items[*].spec.containers[*].image}"]).ok().out;
    images.split_whitespace().find(|image| image.contains("coredns")).expect("CoreDNS runs").to_owned()
}

/// Runs a pod on a host while `meanwhile` runs, from an image that is already there.
pub fn with_pod(hactl: &Hactl, host: &str, meanwhile: impl FnOnce()) {
    let image = present_image(hactl);
    let spec = format!("{{\"spec\":{{\"nodeName\":\"{host}\",\"tolerations\":[{{\"operator\":\"Exists\"}}]}}}}");
    let name = format!("on-{host}");
    let run = ["run", &name, "--image", &image, "--image-pull-policy=IfNotPresent", "--overrides", &spec];
    hactl.kubectl(&run).ok();
    let (phase, there) =
        (["get", "pod", &name, "-o", "jsonpath={.status.phase}@{.spec.nodeName}"], format!("Running@{host}"));
    wait_for("a pod runs there", Duration::from_secs(60), || hactl.kubectl(&phase).out == there);
    meanwhile();
    hactl.kubectl(&["delete", "pod", &name, "--grace-period=1"]).ok();
}

/// One scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// What it shows, as a sentence.
    pub name: &'static str,
    /// Whether it belongs to the cut that `make test` runs.
    pub cut: bool,
    /// What it does.
    pub run: fn(&World),
}

struct Tally {
    passed: usize,
    failed: usize,
    chosen: Vec<String>,
}

/// The labs of the first half, chosen by how long they take.
const FIRST: [&str; 5] = ["t-main", "t-up", "t-found", "t-rec", "t-moved"];

impl Tally {
    /// Whether a scenario is selected: by its half, by the name of its lab, or by words of its own name.
    fn wants(&self, lab: &str, scenario: &Scenario) -> bool {
        match self.chosen.first().map(String::as_str) {
            None | Some("cut") => scenario.cut,
            Some("all") => true,
            Some("first") => FIRST.contains(&lab),
            Some("second") => !FIRST.contains(&lab),
            Some(_) => self.chosen.iter().any(|c| c == lab || scenario.name.contains(c.as_str())),
        }
    }

    fn suite(&mut self, lab: &str, hosts: (usize, usize), scenarios: &[Scenario]) {
        self.suite_in(lab, || World::bare(lab, hosts), scenarios);
    }

    fn suite_in(&mut self, lab: &str, make: impl Fn() -> World, scenarios: &[Scenario]) {
        if !scenarios.iter().any(|s| self.wants(lab, s)) {
            return;
        }
        let mut world = None;
        let chosen: Vec<Scenario> = scenarios.iter().filter(|s| self.wants(lab, s)).copied().collect();
        for scenario in chosen {
            let begun = Instant::now();
            let result = catch_unwind(AssertUnwindSafe(|| {
                let world = world.get_or_insert_with(&make);
                (scenario.run)(world);
            }));
            let seconds = begun.elapsed().as_secs_f32();
            match result {
                Ok(()) => {
                    self.passed += 1;
                    println!("ok      {lab}: {} ({seconds:.1} s)", scenario.name);
                }
                Err(_) => {
                    self.failed += 1;
                    println!("FAILED  {lab}: {} ({seconds:.1} s)", scenario.name);
                    // What follows fails by its own faults only.
                    if let Some(world) = &world
                        && catch_unwind(AssertUnwindSafe(|| world.repair())).is_err()
                    {
                        println!("        {lab} is not as it was before");
                    }
                }
            }
        }
    }
}

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    match chosen.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("soak", settings)) => return soak::soak(settings),
        Some(("crowd", settings)) => return crowded::crowd(settings),
        Some(("conformance", words)) => return conformance::all(words),
        _ => {}
    }
    let mut tally = Tally { passed: 0, failed: 0, chosen };
    tally.suite(
        "t-main",
        (3, 0),
        &[
            cluster::SCENARIOS,
            cis::SCENARIOS,
            secrets::SCENARIOS,
            failures::SCENARIOS,
            kubelets::SCENARIOS,
            trials::SCENARIOS,
            bad_input::SCENARIOS,
            shutdown::SCENARIOS,
            drains::SCENARIOS,
            rotations::FRONT_PROXY,
            repairs::SCENARIOS,
            metrics::READ,
            cluster::LAST,
        ]
        .concat(),
    );
    tally.suite("t-up", (3, 1), upgrades::SCENARIOS);
    tally.suite("t-found", (3, 0), &[bare_hosts::SCENARIOS, founding::SCENARIOS].concat());
    tally.suite(
        "t-rec",
        (3, 0),
        &[
            recover::SCENARIOS,
            alone::SCENARIOS,
            room::SCENARIOS,
            interrupted::SCENARIOS,
            runbook::SCENARIOS,
            bundles::SCENARIOS,
            again::SCENARIOS,
            returned::SCENARIOS,
            expired::SCENARIOS,
            parted::SCENARIOS,
        ]
        .concat(),
    );
    tally.suite("t-moved", (6, 0), moved::SCENARIOS);
    tally.suite("t-leave", (5, 0), leaving::SCENARIOS);
    tally.suite("t-roles", (5, 0), roles::SCENARIOS);
    tally.suite_in(
        "t-worker",
        worker::world,
        &[
            worker::SCENARIOS,
            certs::SCENARIOS,
            kubelet_serving::SCENARIOS,
            maintain::SCENARIOS,
            acting::ALONE,
            gated::SCENARIOS,
            responders::REQUESTS,
            refusals::SCENARIOS,
            interfered::SCENARIOS,
            forgotten::SCENARIOS,
            beside::SCENARIOS,
            drains::RULES,
            worker::LAST,
        ]
        .concat(),
    );
    tally.suite_in("t-older", older::world, older::SCENARIOS);
    tally.suite_in("t-oldest", older::oldest, older::OLDEST);
    tally.suite("t-lies", (3, 1), lies::SCENARIOS);
    tally.suite(
        "t-set",
        (3, 1),
        &[
            settings::SCENARIOS,
            rejoin::SCENARIOS,
            voting::SCENARIOS,
            quota::SCENARIOS,
            reboot::SCENARIOS,
            judged::SCENARIOS,
            prometheus::SCENARIOS,
            metrics::SCRAPED,
            guard::SCENARIOS,
            acting::REPLACED,
            beside::AMONG_OTHERS,
            spared::SCENARIOS,
            rebooted::SCENARIOS,
            through::SCENARIOS,
        ]
        .concat(),
    );
    tally.suite("t-latest", (1, 1), responders::RESPONDERS);
    tally.suite("t-rollout", (3, 3), &[rolled::SCENARIOS, zoned::SCENARIOS].concat());
    tally.suite("t-rotate", (3, 1), &[authentic::SCENARIOS, unattended::SCENARIOS, rotations::SCENARIOS].concat());
    tally.suite("t-pods", (3, 1), &[hardened::SCENARIOS, hardened::LAST].concat());
    tally.suite("t-crowd", (3, 0), crowded::SCENARIOS);
    tally.suite("t-conformance", (3, 2), conformance::SCENARIOS);
    tally.suite("t-fire", (3, 1), firewalls::SCENARIOS);
    tally.suite("t-grown", (3, 0), shapes::GROWN);
    tally.suite("t-local", (3, 1), shapes::LOCAL);
    tally.suite("t-external", (4, 0), shapes::EXTERNAL);
    tally.suite(
        "t-zones",
        (5, 0),
        &[
            shapes::ZONES,
            standby::FIVE,
            recover::FIVE,
            room::FIVE,
            interrupted::FIVE,
            bundles::FIVE,
            expired::FIVE,
            parted::FIVE,
        ]
        .concat(),
    );
    tally.suite("t-apart", (7, 1), shapes::APART);
    tally.suite("t-seven", (7, 0), shapes::SEVEN);
    tally.suite("t-standby", (4, 0), standby::SCENARIOS);
    tally.suite("t-hosting", (3, 0), hosting::SCENARIOS);
    tally.suite("t-lone", (1, 0), hosting::ALONE);
    tally.suite("t-newer", (3, 0), hosting::UPGRADED);
    tally.suite("t-power", (3, 0), power::SCENARIOS);
    tally.suite("t-overdue", (3, 0), overdue::SCENARIOS);
    tally.suite("t-outside", (3, 0), outside::SCENARIOS);
    tally.suite("t-disks", (3, 0), rolled_back::SCENARIOS);
    tally.suite("t-ways", (1, 1), ways_in::SCENARIOS);
    tally.suite("t-hostile", (2, 1), hostile::SCENARIOS);
    for (lab, bases, scenarios) in systems::SYSTEMS {
        tally.suite_in(lab, || systems::world(lab, bases), scenarios);
    }
    for (lab, file, scenario) in examples::EXAMPLES {
        tally.suite_in(lab, || examples::world(lab, file), &[*scenario]);
    }
    println!("lab: {} passed, {} failed", tally.passed, tally.failed);
    if tally.failed > 0 {
        std::process::exit(1);
    }
}

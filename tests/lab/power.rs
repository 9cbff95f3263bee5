//! Guards that switch the power of a host that gives no sign of life. This test plays the BMCs: a plug-in on the hosts
//! asks it over the network, as a real one asks a BMC, and it switches the hosts of the lab.

use super::guard::{CLEARED, SLACK, faults, guarded, is_known, none};
use super::repairs::history;
use super::rolled_back::sh;
use super::shapes::{STACKED, inventory, vip};
use super::support::{Hactl, Writer, wait_for};
use super::{Scenario, World, in_one_line};
use hactl::lab::{Lab, default_root};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "a host that is off is switched on, one that hangs is switched off and on, and no other power is touched",
    cut: false,
    run: switched,
}];

/// How long a host must be silent, in the inventory of this test.
pub const UNREACHABLE: Duration = Duration::from_secs(30);
pub const DEAD: Duration = Duration::from_secs(60);
/// From then on, until the plug-in is called: ten seconds in which all guards come to the same conclusion, the locks,
/// and a look at all members, of which one does not answer.
pub const ACTS: Duration = Duration::from_secs(40);
/// Until a host that was switched on is heard.
pub const BOOT: Duration = Duration::from_secs(60);
/// Between the two times that a host is seen off.
const SEEN_TWICE: Duration = Duration::from_millis(4500);

/// What the BMCs were asked.
#[derive(Clone, Default)]
pub struct Calls(Arc<Mutex<Vec<(Instant, String)>>>);

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, String)>> {
        self.0.lock().expect("no thread panics while it has it")
    }

    /// The verbs for a host, with the answer of each.
    pub fn of(&self, host: &str) -> Vec<String> {
        let of = |(_, call): &(Instant, String)| call.strip_prefix(host)?.strip_prefix(' ').map(str::to_owned);
        self.lock().iter().filter_map(of).collect()
    }

    fn at(&self, call: &str) -> Vec<Instant> {
        self.lock().iter().filter(|(_, said)| said == call).map(|(at, _)| *at).collect()
    }
}

/// The BMCs of all hosts of a lab.
pub struct Bmcs {
    at: SocketAddr,
    pub calls: Calls,
    /// What is answered instead of the status of any host.
    rubbish: Arc<Mutex<Option<&'static str>>>,
}

impl Bmcs {
    pub fn start(w: &World) -> Self {
        let listener = TcpListener::bind((w.gateway(), 0)).expect("a free port");
        let at = listener.local_addr().expect("an address");
        let (calls, rubbish) = (Calls::default(), Arc::new(Mutex::new(None)));
        let (lab, said, no_answer) = (w.lab.name().to_owned(), calls.clone(), Arc::clone(&rubbish));
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let rubbish = *no_answer.lock().expect("no thread panics while it has it");
                if let Err(error) = answer(&lab, &stream, &said, rubbish) {
                    println!("        the BMC could not answer: {error}");
                }
            }
        });
        Self { at, calls, rubbish }
    }

    /// Installs the plug-in on all hosts that may act.
    pub fn install(&self, w: &World) {
        for host in ["cp1", "cp2", "cp3"] {
            let plugin = format!("#!/bin/sh\\nexec curl -sSf -m 20 http://{}/\\$2/\\$1\\n", self.at);
            let made = format!(
                "mkdir -p /etc/hactl/power.d && cd /etc/hactl/power.d && printf \"{plugin}\" >bmc && \
                 chmod 755 . bmc && echo made"
            );
            assert_eq!(sh(w, host, &made).trim(), "made", "{host}");
        }
    }
}

/// Answers `GET /HOST/VERB`.
fn answer(lab: &str, stream: &TcpStream, calls: &Calls, rubbish: Option<&str>) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().trim_matches('/');
    let (host, verb) = path.split_once('/').unwrap_or((path, ""));
    let lab = Lab::open(&default_root(), lab).expect("the lab is there");
    let said = match verb {
        "status" => rubbish.unwrap_or_else(|| {
            let states = lab.states().expect("the lab can be looked at");
            if states.iter().any(|state| state.name == host && state.running) { "on" } else { "off" }
        }),
        "off" => {
            lab.kill(host).expect("the power can be cut");
            ""
        }
        _ => "",
    };
    calls.lock().push((Instant::now(), format!("{host} {verb} {said}").trim_end().to_owned()));
    if verb == "on" {
        let host = host.to_owned();
        // A BMC does not wait until the host has booted.
        std::thread::spawn(move || lab.start(&host, BOOT).expect("the host boots"));
    }
    let body = if said.is_empty() { String::new() } else { format!("{said}\n") };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let mut stream = stream;
    stream.write_all(format!("{head}{body}").as_bytes())
}

pub fn explained(hactl: &Hactl, host: &str) -> String {
    in_one_line(&hactl.run(&["guard", "explain", host]).exits(4))
}

fn repairs_said(hactl: &Hactl) -> String {
    in_one_line(&hactl.run(&["guard", "history"]).ok())
}

/// Waits until a host is well again.
pub fn back(w: &World, hactl: &Hactl) {
    none(hactl);
    w.healthy(CLEARED);
}

/// Guards that may switch the power of each host.
pub fn powered(w: &World) -> Hactl {
    let stacked = |name| (name, STACKED, ", power: {exec: bmc}");
    inventory(w, &vip(w), &[stacked("cp1"), stacked("cp2"), stacked("cp3")]);
    guarded(w, "healing: {mode: on, reboot: power, after: {hostUnreachable: 30s, hostDead: 1m}}")
}

fn switched(w: &World) {
    let hactl = powered(w);
    let bmcs = Bmcs::start(w);
    bmcs.install(w);
    assert_eq!((faults(&hactl), history(&hactl)), (vec![], vec![]), "nothing is broken");
    let writer = Writer::every(Duration::from_millis(50), &w.api(), "w-power");
    off(w, &hactl, &bmcs);
    hangs(w, &hactl, &bmcs);
    let (written, longest) = writer.end_within(Duration::from_secs(15));
    println!("        {written} writes acknowledged, longest pause {longest:.1?}");
    unknown(w, &hactl, &bmcs);
    let mut powers = history(&hactl);
    powers.retain(|[_, kind, _]| kind == "PowerDue");
    let helped = powers.iter().filter(|[.., outcome]| outcome == "helped").count();
    assert!(helped >= 3 && powers.iter().all(|[host, ..]| host == "cp1" || host == "cp2"), "{powers:?}");
    hactl.up().ok().says("nothing to do");
}

/// A host loses its power, and gets it back.
fn off(w: &World, hactl: &Hactl, bmcs: &Bmcs) {
    w.lab.kill("cp3").expect("the power can be cut");
    let since = Instant::now();
    wait_for("the guards report that it is unreachable", UNREACHABLE + SLACK, || {
        is_known(hactl, "cp3", "HostUnreachable")
    });
    let known = since.elapsed();
    assert!(known >= UNREACHABLE && bmcs.calls.of("cp3").is_empty(), "after {known:?}: {:?}", bmcs.calls.of("cp3"));
    wait_for("its power is switched on", ACTS + SLACK, || bmcs.calls.of("cp3").contains(&"on".to_owned()));
    let took = since.elapsed();
    println!("        switched on {took:.1?} after its loss, {:.1?} after it was known", took.saturating_sub(known));
    back(w, hactl);
    assert_eq!(bmcs.calls.of("cp3"), ["status off", "on"]);
    let said = repairs_said(hactl);
    assert!(said.contains("switched the power of cp3 on: it was off; PowerDue was over after"), "{said}");
    let events = hactl.kubectl(&["get", "events", "-n", "default", "--field-selector", "involvedObject.name=cp3"]);
    let events = in_one_line(&events.ok());
    assert!(events.contains("PowerDue: switched the power of cp3 on"), "{events}");
}

/// A host hangs, with its power on: nobody reaches it.
fn hangs(w: &World, hactl: &Hactl, bmcs: &Bmcs) {
    w.lab.cut("cp2").expect("the cable can be cut");
    let since = Instant::now();
    wait_for("the guard waits until it counts as dead", UNREACHABLE + ACTS + SLACK, || {
        explained(hactl, "cp2").contains("its power is on, and it may be booting")
    });
    assert_eq!(bmcs.calls.of("cp2"), ["status on"]);
    wait_for("its power is switched off and on", DEAD + ACTS + SLACK, || !bmcs.calls.at("cp2 on").is_empty());
    let off = bmcs.calls.at("cp2 off");
    assert!(off.len() == 1 && off[0] - since >= DEAD, "not before it counts as dead: {:?}", off[0] - since);
    println!("        switched off {:.1?} after the cable was cut, on {:.1?}", off[0] - since, since.elapsed());
    back(w, hactl);
    assert_eq!(bmcs.calls.of("cp2"), ["status on", "status on", "off", "status off", "status off", "on"]);
    let seen = bmcs.calls.at("cp2 status off");
    assert!(seen[1] - seen[0] >= SEEN_TWICE, "{:?}", seen[1] - seen[0]);
    let said = repairs_said(hactl);
    assert!(said.contains("switched the power of cp2 off and on again; PowerDue was over after"), "{said}");
}

/// A plug-in does not know whether a host has power.
fn unknown(w: &World, hactl: &Hactl, bmcs: &Bmcs) {
    *bmcs.rubbish.lock().expect("no thread panics while it has it") = Some("maybe");
    w.lab.kill("cp1").expect("the power can be cut");
    wait_for("the guards say why they do nothing", UNREACHABLE + ACTS + SLACK, || {
        explained(hactl, "cp1").contains("bmc status printed \"maybe\", neither on nor off")
    });
    wait_for("it is tried again", Duration::from_secs(90) + ACTS, || bmcs.calls.of("cp1").len() >= 2);
    assert!(bmcs.calls.of("cp1").iter().all(|call| call == "status maybe"), "{:?}", bmcs.calls.of("cp1"));
    // The plug-in is mended, and a person says so.
    *bmcs.rubbish.lock().expect("no thread panics while it has it") = None;
    hactl.run(&["guard", "retry", "cp2"]).ok();
    wait_for("it is switched on", ACTS + SLACK, || !bmcs.calls.at("cp1 on").is_empty());
    back(w, hactl);
}

//! `up` that is killed without warning or loses a host in mid-run: the same command converges.

use super::support::{GIVEN_BACK, once_free};
use super::{Scenario, World};
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "up that is killed three times during a bootstrap converges when run again",
        cut: false,
        run: killed_thrice,
    },
    Scenario { name: "up that is killed at a random time converges, ten times", cut: false, run: killed_ten_times },
    Scenario {
        name: "a run that loses a host fails and names it, and the next run converges",
        cut: false,
        run: cable_in_mid_run,
    },
    Scenario {
        name: "up completes a package installation that was killed while unpacking",
        cut: false,
        run: half_unpacked,
    },
];

pub fn bare_again(w: &World) {
    for host in ["cp1", "cp2", "cp3"] {
        w.wipe(host);
    }
    let state = w.hactl.state(w.lab.name());
    if state.exists() {
        std::fs::remove_dir_all(&state).expect("the state can be removed");
    }
}

/// The signal that no process can handle.
pub const SIGKILL: i32 = 9;
/// The exit code of a run that finds the lock held.
const LOCKED: i32 = 6;

/// Starts `up` once the lock of the previous run is free, and kills it after a while. Returns whether SIGKILL ended it:
/// the run may have ended before.
fn killed_after(w: &World, after: Duration) -> bool {
    let begun = Instant::now();
    loop {
        let mut child = w.hactl.command(&["up", "--yes"]).spawn().expect("hactl can be started");
        let run = Instant::now();
        while run.elapsed() < after && child.try_wait().expect("it can be asked").is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().expect("it can be killed");
        let ended = child.wait().expect("it ends");
        if ended.code() != Some(LOCKED) || begun.elapsed() >= GIVEN_BACK {
            return ended.signal() == Some(SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

pub fn up_when_free(w: &World) {
    once_free(GIVEN_BACK, || w.hactl.up()).ok();
    w.hactl.up().ok().says("nothing to do");
    let members = w.on("cp1", "sudo sh -c 'ls -d /var/lib/etcd/member*'");
    assert_eq!(members.trim(), "/var/lib/etcd/member", "etcd was bootstrapped only once");
}

fn killed_thrice(w: &World) {
    bare_again(w);
    // As if `up` had been killed while it created the etcd user: the user exists, its group does not.
    w.on("cp3", "id -u etcd >/dev/null 2>&1 || sudo useradd --system --user-group --no-create-home etcd");
    w.on("cp3", "sudo sed -i '/^etcd:/d' /etc/group /etc/gshadow");
    for seconds in [2.0, 9.0, 16.0] {
        let running = killed_after(w, Duration::from_secs_f32(seconds));
        assert!(running, "the run had ended before it was to be killed, after {seconds} s");
    }
    up_when_free(w);
    assert!(w.on("cp3", "getent group etcd").starts_with("etcd:"), "the missing group is created");
}

/// How many runs are killed; a run that ended before does not count.
const KILLS: usize = 10;

fn killed_ten_times(w: &World) {
    // Random times, seeded by the clock. They are printed, and `killed_after` can repeat any of them.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let mut seed = u64::from(now.subsec_nanos());
    let mut kills = 0;
    for number in 0..2 * KILLS {
        bare_again(w);
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let after = Duration::from_millis(300 + (seed >> 33) % 30_000);
        let running = killed_after(w, after);
        println!("        {number}: killed after {after:.1?}{}", if running { "" } else { " (it had ended)" });
        kills += usize::from(running);
        up_when_free(w);
        if kills == KILLS {
            return;
        }
    }
    panic!("{kills} of {} runs were killed before they ended", 2 * KILLS);
}

fn cable_in_mid_run(w: &World) {
    bare_again(w);
    let child = w.hactl.command(&["up", "--yes"]).spawn().expect("hactl can be started");
    std::thread::sleep(Duration::from_secs(5));
    w.lab.cut("cp2").expect("the cable can be pulled");
    let begun = Instant::now();
    let output = child.wait_with_output().expect("it ends");
    assert!(begun.elapsed() < Duration::from_secs(200), "it ended after {:?}", begun.elapsed());
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("cp2"), "{said}");
    w.lab.mend("cp2").expect("the cable can be plugged in");
    up_when_free(w);
}

/// The status that dpkg records while it unpacks, and that a loss of power leaves behind.
fn half_unpacked(w: &World) {
    w.on("cp3", "sudo apt-get purge -y -q --allow-change-held-packages keepalived");
    w.on(
        "cp3",
        "sudo sed -i '/^Package: libglib2.0-0$/,/^$/ s/^Status: .*/Status: install reinstreq unpacked/' /var/lib/dpkg/status",
    );
    assert!(w.on("cp3", "sudo dpkg --audit").contains("libglib2.0-0"), "dpkg reports a half-installed package");
    w.hactl.up().ok();
    assert_eq!(w.on("cp3", "sudo dpkg --audit").trim(), "", "dpkg reports nothing any more");
    assert_eq!(w.on("cp3", "systemctl is-active keepalived").trim(), "active");
    w.hactl.up().ok().says("nothing to do");
}

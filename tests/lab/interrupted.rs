//! Recoveries that are killed again and again at random times.

use super::recover::{lose_majority, recover};
use super::support::{GIVEN_BACK, Ran, Writer, once_free};
use super::{Scenario, World, in_one_line};
use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a recover that is killed at ten random times is finished by the same command",
        cut: false,
        run: killed,
    },
    Scenario {
        name: "an unfinished recovery is abandoned for a named snapshot, and that one is finished after a kill",
        cut: false,
        run: given_up,
    },
];
/// On five members.
pub const FIVE: &[Scenario] =
    &[Scenario { name: "five members: recover is killed at ten random times", cut: false, run: killed }];

/// Runs `recover` until a line matches, and kills it; returns what it printed until then.
pub fn killed_at(w: &World, arguments: &[&str], at: impl Fn(&str) -> bool) -> String {
    let arguments = [&["recover", "--yes"], arguments].concat();
    let ran = once_free(GIVEN_BACK, || {
        let mut said = String::new();
        let mut child = w.hactl.command(&arguments).spawn().expect("hactl can be started");
        for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
            said.push_str(&line.expect("it is read"));
            said.push('\n');
            if said.lines().last().is_some_and(&at) {
                child.kill().expect("it can be killed");
                break;
            }
        }
        let ended = child.wait_with_output().expect("it ends");
        let err = String::from_utf8_lossy(&ended.stderr).into_owned();
        Ran { code: ended.status.code().unwrap_or(-1), out: said, err, took: Duration::ZERO }
    });
    assert_eq!(ran.code, -1, "it was killed: {}", ran.all());
    println!("{}", ran.out.lines().map(|l| format!("        {l}")).collect::<Vec<_>>().join("\n"));
    ran.out
}

fn given_up(w: &World) {
    w.hactl.up().ok();
    w.hactl.run(&["snapshot", "take", "--host", "cp3"]).ok();
    let bundle = w.on("cp3", "sudo sh -c 'ls /var/lib/hactl/snapshots/*-cp3.hactl | sort | tail -n 1'");
    let bundle = bundle.trim().rsplit('/').next().expect("a name").to_owned();
    w.hactl.kubectl(&["create", "configmap", "since-the-bundle"]).ok();
    lose_majority(w);
    let notes = w.hactl.state(w.lab.name()).join("recovery");
    let mut child = w.hactl.command(&["recover", "--yes"]).spawn().expect("hactl can be started");
    // Members start a third of a second later.
    let recorded = || {
        let there = std::fs::read_dir(&notes).into_iter().flatten().flatten();
        there.into_iter().any(|entry| entry.path().extension().is_some_and(|ending| ending == "json"))
    };
    let begun = Instant::now();
    while !recorded() {
        assert!(begun.elapsed() < Duration::from_secs(60), "its snapshot is never recorded");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().expect("it can be killed");
    assert!(child.wait().expect("it ends").code().is_none(), "it was killed before its end");
    for entry in std::fs::read_dir(&notes).expect("the folder is there").flatten() {
        let (path, head) = (entry.path(), std::fs::read(entry.path()).expect("it is ours"));
        let encrypted = head.starts_with(b"age-encryption.org/v1\n") || head.starts_with(b"hactl recovery bundle 1\n");
        let note = path.extension().is_some_and(|ending| ending == "json" || ending == "new");
        assert!(encrypted || note, "{} is not encrypted", path.display());
    }
    let said = killed_at(w, &["--from", &bundle], |line| line.contains("✓ cluster  a quorum answers"));
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("was agreed to but not finished: it is abandoned"), "{said}");
    let revision = || w.on("cp3", "sudo cat /var/lib/hactl/high-water");
    let leapt = revision();
    let ran = once_free(GIVEN_BACK, || recover(w, &["--yes", "--from", &bundle])).ok();
    assert!(in_one_line(&ran).contains("the recovery is finished; nothing else was restored"), "{}", ran.all());
    assert_eq!(revision(), leapt, "the revision leaps only once");
    w.hactl.kubectl(&["get", "configmap", "since-the-bundle"]).exits(1).says("NotFound");
    w.hactl.up().ok().says("nothing to do");
    // The same request again is refused: it would be another recovery.
    recover(w, &["--yes", "--from", &bundle]).exits(3).says("nothing is restored from");
    w.well();
    // A killed run leaves the snapshot that it had fetched, which is encrypted.
    let fetched = notes.join(&bundle);
    if fetched.exists() {
        std::fs::remove_file(&fetched).expect("it is ours");
    }
}

/// How often it is killed.
const KILLS: usize = 10;

/// Pseudo-random numbers, from a seed that is printed (Vigna's splitmix64).
struct Dice(u64);

impl Dice {
    /// A random duration between two others.
    fn between(&mut self, least: Duration, most: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let range = most.saturating_sub(least).as_millis().max(1);
        least + Duration::from_millis(u64::try_from(u128::from(z ^ (z >> 31)) % range).expect("some seconds"))
    }
}

/// Runs `recover` for this long and kills it; returns its exit code if it ended before. Waits for the lock of the
/// previous run.
fn killed_after(w: &World, after: Duration) -> Option<i32> {
    let begun = Instant::now();
    loop {
        let run = Instant::now();
        let mut child = w.hactl.command(&["recover", "--yes"]).spawn().expect("hactl can be started");
        let code = loop {
            if let Some(status) = child.try_wait().expect("it is ours") {
                break status.code().unwrap_or(-1);
            }
            if run.elapsed() >= after {
                child.kill().expect("it can be killed");
                child.wait().expect("it ends");
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if code != 6 {
            return Some(code);
        }
        // The lock of a killed run is released within seconds.
        assert!(begun.elapsed() < Duration::from_secs(60), "the lock of a killed run is never released");
        std::thread::sleep(Duration::from_millis(300));
    }
}

fn killed(w: &World) {
    w.hactl.up().ok();
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    println!("        seed {seed}");
    let mut dice = Dice(seed);
    let mut kills = 0;
    for round in 0.. {
        assert!(round < KILLS, "{kills} kills in {round} rounds: recover always ends before the kill");
        let writer = Writer::start(&w.api(), &format!("w-killed-{round}"));
        std::thread::sleep(Duration::from_secs(3));
        lose_majority(w);
        let mut times = Vec::new();
        let mut ended = None;
        while kills < KILLS && ended.is_none() {
            let after = dice.between(Duration::from_millis(300), Duration::from_secs(9));
            ended = killed_after(w, after);
            if ended.is_none() {
                kills += 1;
                times.push(format!("{:.1}", after.as_secs_f32()));
            }
        }
        println!("        round {round}: killed after {} s", times.join(", "));
        assert!(ended.is_none_or(|code| code == 0), "it ended with {ended:?}");
        once_free(Duration::from_secs(60), || recover(w, &["--yes"])).ok();
        w.hactl.up().ok();
        w.hactl.up().ok().says("nothing to do");
        let (written, longest) = writer.end();
        println!("        {written} writes acknowledged, none lost; the longest pause: {longest:.1?}");
        if kills == KILLS {
            break;
        }
    }
}

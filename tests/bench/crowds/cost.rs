//! What a process of a host costs: memory and processor time.
//!
//! In: the unit of systemd. Out: its memory now, the most that it had, and the processor time since its start.

use crate::on;
use crate::support::wait_for;
use hactl::lab::Scoped;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a busy host may take to answer.
const ANSWERS: Duration = Duration::from_secs(60);
/// Between two looks at the memory.
const EVERY: Duration = Duration::from_secs(2);

/// At one moment.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pid: u64,
    /// The most memory that it had, KiB, with the program, whose pages other processes share.
    pub peak_kib: u64,
    /// Of its own, KiB.
    pub own_kib: u64,
    /// Processor time since its start.
    pub cpu: Duration,
    at: Instant,
}

impl Cost {
    /// Waits while the host is too busy to answer.
    pub fn of(lab: &Scoped, host: &str, unit: &str) -> Self {
        let mut found = None;
        wait_for(&format!("{unit} of {host} shows what it costs"), ANSWERS, || {
            found = Self::look(lab, host, unit);
            found.is_some()
        });
        found.expect("it was waited for")
    }

    fn look(lab: &Scoped, host: &str, unit: &str) -> Option<Self> {
        let said = on(
            lab,
            host,
            &format!(
                "p=$(systemctl show -p MainPID --value {unit}); echo $p; awk '/VmHWM|RssAnon/ {{print $2}}' \
                 /proc/$p/status; cut -d ' ' -f 14,15 /proc/$p/stat; getconf CLK_TCK"
            ),
        );
        let numbers: Vec<u64> = said.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let [pid, peak_kib, own_kib, user, system, ticks_s] = numbers[..] else { return None };
        let cpu = Duration::from_millis((user + system) * 1000 / ticks_s);
        Some(Self { pid, peak_kib, own_kib, cpu, at: Instant::now() })
    }

    /// Processors that it used since an earlier moment.
    pub fn processors_since(&self, before: &Self) -> f64 {
        assert_eq!(self.pid, before.pid, "it is the same process");
        (self.cpu.saturating_sub(before.cpu)).as_secs_f64() / (self.at - before.at).as_secs_f64()
    }
}

/// Looks at the memory again and again until it is ended.
pub struct Watch {
    stop: Arc<AtomicBool>,
    most: JoinHandle<u64>,
}

impl Watch {
    /// The most that it had before is forgotten.
    pub fn begin(lab: &Arc<Scoped>, host: &'static str, unit: &'static str) -> Self {
        on(lab, host, &format!("p=$(systemctl show -p MainPID --value {unit}); echo 5 | sudo tee /proc/$p/clear_refs"));
        let stop = Arc::new(AtomicBool::new(false));
        let (lab, flag) = (Arc::clone(lab), Arc::clone(&stop));
        let most = std::thread::spawn(move || {
            let mut most = 0;
            while !flag.load(Ordering::Relaxed) {
                most = most.max(Cost::look(&lab, host, unit).map_or(0, |cost| cost.own_kib));
                std::thread::sleep(EVERY);
            }
            most
        });
        Self { stop, most }
    }

    /// The most memory of its own that was seen, KiB.
    pub fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.most.join().expect("it ends")
    }
}

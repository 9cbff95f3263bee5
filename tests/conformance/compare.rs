//! The one place where the two worlds are compared. Every intended difference is listed here or, where only one of them
//! can take a step, in a comment of `play.rs`:
//!
//! - **Clocks.** The simulated world counts its own milliseconds. A file must have changed in both or in neither; then
//!   the real change time counts as the simulated one. A leaf must have been issued for the same time from now on.
//! - **Five minutes.** A real certificate begins five minutes early, so that hosts with slow clocks accept it.
//! - **Kinds of faults.** The simulated world only knows that something failed; the kind that a host must return is
//!   stated with each act.
//! - **Order.** The simulated world refuses what no plan may do yet (writing before the host has its cluster identity
//!   and is prepared); a real host executes it. Such an act is not sent to the real host.
//! - **Others.** The simulated host has no files of others, so each of its directories goes when it is wiped.
//! - **Processes.** Both sides use the units, images, API and etcd view of the simulated world.

use crate::fixture::host;
use crate::place::Place;
use crate::play::Both;
use hactl::model::facts::{EtcdFact, FileFact, HostFacts, LeafFact};
use hactl::model::target::CertId;
use hactl::protocol::{Op, OpError, OpErrorKind, Reply};
use std::collections::BTreeMap;

/// How long ago a leaf may have been issued, seconds: no story takes longer.
const STORY_S: i64 = 600;
/// How much earlier than now a real certificate begins, seconds.
const EARLY_S: i64 = 300;

/// When each file and each leaf last changed: by the host's clock and by the simulated one.
#[derive(Default)]
pub struct Clocks(BTreeMap<String, (i64, i64)>);

impl Clocks {
    /// The host's latest reading.
    pub fn latest(&self) -> i64 {
        self.0.values().map(|(real, _)| *real).max().unwrap_or(0)
    }

    /// The change time to compare: the simulated one if the thing changed in both worlds or in neither.
    fn read(&mut self, before: &Self, what: &str, real_ms: i64, sim_ms: i64) -> i64 {
        self.0.insert(what.to_owned(), (real_ms, sim_ms));
        let unchanged = |old: &(i64, i64)| (old.0 == real_ms, old.1 == sim_ms);
        let (one, other) = before.0.get(what).map_or((false, false), unchanged);
        if one == other { sim_ms } else { real_ms }
    }

    fn files(&mut self, old: &Self, real: BTreeMap<String, FileFact>, sim: &HostFacts) -> BTreeMap<String, FileFact> {
        let one = |(path, fact): (String, FileFact)| {
            let sim_ms = sim.files.get(&path).map_or(0, |f| f.changed_ms);
            let changed_ms = self.read(old, &path, fact.changed_ms, sim_ms);
            (path, FileFact { changed_ms, ..fact })
        };
        real.into_iter().map(one).collect()
    }

    fn leaves(&mut self, old: &Self, real: &HostFacts, sim: &HostFacts) -> BTreeMap<CertId, LeafFact> {
        let one = |(id, fact): (&CertId, &LeafFact)| {
            let simulated = sim.leaves.get(id);
            let sim_ms = simulated.map_or(0, |f| f.changed_ms);
            let changed_ms = self.read(old, &format!("leaf {id}"), fact.changed_ms, sim_ms);
            (*id, LeafFact { changed_ms, ..leaf(fact.clone(), simulated, real.now_ms / 1000) })
        };
        real.leaves.iter().map(one).collect()
    }
}

/// A leaf with the times of the simulated clock, if its own are as they should be.
fn leaf(real: LeafFact, sim: Option<&LeafFact>, now_s: i64) -> LeafFact {
    let Some(sim) = sim else { return real };
    let fresh = (now_s - EARLY_S - STORY_S..=now_s).contains(&real.not_before_s);
    let life = real.not_after_s - real.not_before_s == sim.not_after_s - sim.not_before_s + EARLY_S;
    if !fresh || !life {
        return real;
    }
    LeafFact { not_before_s: sim.not_before_s, not_after_s: sim.not_after_s, ..real }
}

/// The facts of the real host, in terms of the simulated one.
fn translated(real: HostFacts, sim: &HostFacts, clocks: &mut Clocks) -> HostFacts {
    let before = std::mem::take(clocks);
    let leaves = clocks.leaves(&before, &real, sim);
    let etcd = real.etcd.unwrap_or_default();
    let seen = sim.etcd.clone().unwrap_or_default();
    HostFacts {
        cluster_id: real.cluster_id,
        swap: real.swap,
        files: clocks.files(&before, real.files, sim),
        blobs: real.blobs,
        leaves,
        programs: real.programs,
        sysctls: real.sysctls,
        etcd: Some(EtcdFact { data: etcd.data, token: etcd.token, bootstrapped: etcd.bootstrapped, ..seen }),
        ..sim.clone()
    }
}

impl Both {
    /// Whether both report the same facts.
    pub async fn agree(&mut self) -> Result<(), String> {
        let real = observed(&mut self.place, Op::Observe(Box::new(crate::fixture::question(&self.world)))).await?;
        let sim = self.world.say(&host()).map_err(|unreachable| unreachable.why)?;
        let real = translated(real, &sim, &mut self.clocks);
        if real == sim { Ok(()) } else { Err(format!("the host says {real:#?}\nand sim {sim:#?}")) }
    }
}

async fn observed(place: &mut Place, question: Op) -> Result<HostFacts, String> {
    match place.ask(question).await {
        Ok(Reply::Facts(facts)) => Ok(*facts),
        other => Err(format!("no facts but {other:?}")),
    }
}

/// Both accept, or both refuse and the host returns this kind of fault.
pub fn same<T: std::fmt::Debug>(
    sim: &Result<(), String>,
    real: &Result<T, OpError>,
    kind: OpErrorKind,
) -> Result<(), String> {
    match (sim, real) {
        (Ok(()), Ok(_)) => Ok(()),
        (Err(_), Err(fault)) if fault.kind == kind => Ok(()),
        _ => Err(format!("sim ended as {sim:?}, the host as {real:?}; refused it would be {kind:?}")),
    }
}

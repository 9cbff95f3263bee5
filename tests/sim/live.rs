//! A world that a run works on: effects are counted and judged one by one, and other events fall between them.
//!
//! In: a world, a script. Out: the world afterwards, and how the run ended: normally, by a kill after an effect, or by
//! a broken law.

use super::dice::Dice;
use super::effect::{Effect, happen};
use super::law::{self, Broken};
use super::member::Stop;
use super::run::Script;
use super::world::World;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long etcd has no leader, of the test's virtual time: a few elections.
const LEADERLESS: Duration = Duration::from_secs(8);

/// Shared by all parts of a run.
pub type Shared = Arc<Mutex<Live>>;

/// Why a run stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    Crashed,
    Broken(Broken),
}

/// The world and what happens to it during one run.
pub struct Live {
    pub world: World,
    pub dice: Dice,
    pub halt: Option<Halt>,
    pub ended: Arc<Notify>,
    script: Script,
    count: u16,
    /// Steps whose precondition was checked and that have not finished yet.
    protected: usize,
    /// The number of the effect up to which the other events of the script have happened.
    until: u16,
    /// How many questions about etcd were asked.
    asked: u32,
    /// When etcd has a leader again.
    leads_at: Option<Instant>,
}

impl Live {
    pub fn new(world: World, script: &Script) -> Self {
        let dice = Dice::new(script.order);
        Self {
            world,
            dice,
            halt: None,
            ended: Arc::default(),
            script: script.clone(),
            count: 0,
            protected: 0,
            until: 0,
            asked: 0,
            leads_at: None,
        }
    }

    /// Whether no event is scripted besides the run itself.
    pub fn is_calm(&self) -> bool {
        self.script.meanwhile.is_empty()
    }

    /// Whether etcd has a leader, at one more question about it. The script may take it away at this moment.
    pub fn has_leader(&mut self) -> bool {
        self.asked += 1;
        if self.script.leaderless_at == Some(self.asked) {
            self.leads_at = Some(Instant::now() + LEADERLESS);
            self.world.elections += 1;
        }
        self.leads_at.is_none_or(|at| Instant::now() >= at)
    }

    /// Ends the run here.
    pub fn stop(&mut self, halt: Halt) {
        self.halt.get_or_insert(halt);
        self.ended.notify_one();
    }

    /// Makes an effect happen and judges it. `Err(Some)`: it failed, as it would on a host; `Err(None)`: the run ended.
    pub fn happen(&mut self, effect: &Effect) -> Result<(), Option<String>> {
        if self.halt.is_some() {
            return Err(None);
        }
        if self.script.crash_after == Some(self.count) {
            self.stop(Halt::Crashed);
            return Err(None);
        }
        let before = law::scene(&self.world);
        match happen(&mut self.world, effect) {
            Ok(()) => {
                if let Err(broken) = law::judge(&before, &self.world, effect) {
                    self.stop(Halt::Broken(broken));
                    return Err(None);
                }
            }
            Err(Stop::Broken(broken)) => {
                self.stop(Halt::Broken(broken));
                return Err(None);
            }
            Err(Stop::Failed(why)) => return Err(Some(why)),
        }
        self.count += 1;
        self.meanwhile();
        Ok(())
    }

    /// No check can foresee a failure between a precondition and its effects, so such a failure falls after the step.
    pub fn protect(&mut self) {
        self.protected += 1;
    }

    pub fn unprotect(&mut self) {
        self.protected -= 1;
        self.meanwhile();
    }

    fn meanwhile(&mut self) {
        if self.protected > 0 {
            return;
        }
        let (after, until) = (self.until, self.count);
        self.until = until;
        let due: Vec<_> =
            self.script.meanwhile.iter().filter(|(at, _)| (after + 1..=until).contains(at)).copied().collect();
        for (_, chaos) in due {
            self.world.suffer(chaos);
        }
    }
}

/// The run has ended: none of its tasks continues.
pub async fn halted<T>() -> T {
    std::future::pending().await
}

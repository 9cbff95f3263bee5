//! A world that a run works on: effects are counted and judged one by one, and what else happens falls between them.
//!
//! In: a world, a script. Out: the world afterwards, and how the run ended: by itself, by a kill after an effect, or by a law that was
//! broken.

use super::dice::Dice;
use super::effect::{Effect, happen};
use super::law::{self, Broken};
use super::member::Stop;
use super::run::Script;
use super::world::World;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Shared by all that a run consists of.
pub type Shared = Arc<Mutex<Live>>;

/// Why a run goes no further.
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
    /// Steps whose precondition was checked and that are not done yet.
    protected: usize,
    /// Up to which effect the script's other happenings have happened.
    until: u16,
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
        }
    }

    /// Whether nothing but the run itself happens.
    pub fn is_calm(&self) -> bool {
        self.script.meanwhile.is_empty()
    }

    /// Ends the run here.
    pub fn stop(&mut self, halt: Halt) {
        self.halt.get_or_insert(halt);
        self.ended.notify_one();
    }

    /// Makes an effect happen and judges it. `Err(Some)`: it failed, as it would in reality; `Err(None)`: the run has ended.
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

    /// Between a precondition and the effects that it protects nobody can see a failure coming: it falls behind the step.
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

/// The run has ended: nothing of it goes on.
pub async fn halted<T>() -> T {
    std::future::pending().await
}

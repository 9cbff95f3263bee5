//! Guards: their mode, and how long a fault must last before they report it.

use super::text::{choice, duration_within};
use super::validator::Validator;
use crate::inventory::at::{At, Place};
use crate::inventory::schema;
use crate::model::healing::{Delays, Healing, Mode};

/// The whole key.
pub fn healing(judge: &mut Validator<'_>, raw: Option<&At<schema::Healing>>) -> Healing {
    let Some(raw) = raw else { return Healing::default() };
    match &raw.value {
        schema::Healing::Mode(word) => {
            let word = At { value: word.clone(), place: raw.place };
            Healing { mode: mode(judge, &word), ..Healing::default() }
        }
        schema::Healing::Settings(given) => {
            let mode = given.mode.as_ref().map_or(Mode::Off, |word| mode(judge, word));
            let after = given.after.as_ref();
            if let Some(after) = after.filter(|_| given.mode.is_none()) {
                no_effect(judge, after.place);
            }
            Healing { mode, after: after.map_or_else(Delays::default, |after| delays(judge, &after.value)) }
        }
    }
}

fn mode(judge: &mut Validator<'_>, word: &At<String>) -> Mode {
    let modes = [Mode::Off, Mode::Watch, Mode::On];
    choice(judge, "healing mode", word, &modes.map(|mode| (mode.word(), mode))).unwrap_or_default()
}

fn no_effect(judge: &mut Validator<'_>, place: Place) {
    let what = "healing.after has no effect without healing.mode: there are no guards";
    judge.warn(place, what, "", "add `mode: watch` or `mode: on`, or remove healing.after");
}

fn delays(judge: &mut Validator<'_>, raw: &schema::HealingAfter) -> Delays {
    let mut delays = Delays::default();
    let mut read = |key, text: &Option<At<String>>, within, such, slot: &mut u32| {
        let given = text.as_ref().and_then(|text| duration_within(judge, key, text, within, such));
        if let Some(seconds) = given.and_then(|seconds| u32::try_from(seconds).ok()) {
            *slot = seconds;
        }
    };
    let unreachable = &raw.host_unreachable;
    read("healing.after.hostUnreachable", unreachable, ["30s", "1h"], "3m", &mut delays.host_unreachable_s);
    read("healing.after.frozen", &raw.frozen, ["5s", "10m"], "15s", &mut delays.frozen_s);
    read("healing.after.notVoting", &raw.not_voting, ["10s", "1h"], "10m", &mut delays.not_voting_s);
    delays
}

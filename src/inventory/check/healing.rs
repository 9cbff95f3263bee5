//! Guards: their mode, how long a fault must last before they report it, reboots, and where metrics are served.

use super::hosts::Hosts;
use super::text::{choice, duration_within};
use super::validator::Validator;
use crate::inventory::at::{At, Place};
use crate::inventory::schema;
use crate::model::healing::{Delays, ForeignHealers, Healing, Metrics, Mode, Reboot, may_be_guarded};

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
            let keys = [
                ("healing.after", after.map(|after| after.place)),
                ("healing.metrics", given.metrics.as_ref().map(|word| word.place)),
            ];
            for (key, place) in keys {
                if let Some(place) = place.filter(|_| given.mode.is_none()) {
                    no_effect(judge, key, place);
                }
            }
            let after = after.map_or_else(Delays::default, |after| delays(judge, after));
            Healing {
                mode,
                after,
                foreign: given.foreign.as_ref().map_or(ForeignHealers::Refuse, |word| foreign(judge, word)),
                reboot: given.reboot.as_ref().map_or(Reboot::Never, |word| reboot(judge, word, mode)),
                metrics: given.metrics.as_ref().map_or(Metrics::Loopback, |word| metrics(judge, word)),
            }
        }
    }
}

fn mode(judge: &mut Validator<'_>, word: &At<String>) -> Mode {
    let modes = [Mode::Off, Mode::Watch, Mode::On];
    choice(judge, "healing mode", word, &modes.map(|mode| (mode.word(), mode))).unwrap_or_default()
}

/// Warns if hosts stand by that no guard lets vote.
pub fn standbys(judge: &mut Validator<'_>, healing: Healing, hosts: &Hosts) {
    for placed in hosts.list.iter().filter(|placed| placed.host.standby && healing.mode != Mode::On) {
        judge.warn(
            placed.start,
            format!("{} stands by for etcd, and no guard repairs anything", placed.host.name),
            "`healing: on`",
            "write `healing: on`, or remove `standby`",
        );
    }
}

fn foreign(judge: &mut Validator<'_>, word: &At<String>) -> ForeignHealers {
    let words = [ForeignHealers::Refuse, ForeignHealers::Ignore].map(|foreign| (foreign.word(), foreign));
    choice(judge, "healing.foreign", word, &words).unwrap_or_default()
}

/// The fewest hosts that may vote, with `reboot: power`: two that see the silence of the third.
const SEEN_BY: usize = 3;

/// Whether guards can switch power as the inventory asks for it.
pub fn power(judge: &mut Validator<'_>, raw: Option<&At<schema::Healing>>, healing: Healing, hosts: &Hosts) {
    let all = hosts.list.iter();
    for placed in all.clone().filter(|placed| placed.host.power.is_some()) {
        let name = &placed.host.name;
        if hosts.roles_known && !may_be_guarded(&placed.host) {
            let what = format!("{name} has `power`, and no guard looks after it");
            let expected = "a host with the role control-plane, etcd or load-balancer";
            judge.refuse(placed.power, what, expected, "remove `power`, or give the host such a role");
        } else if healing.reboot != Reboot::Power {
            judge.warn(
                placed.power,
                format!("{name} has `power`, and no guard switches it"),
                "`healing: {mode: on, reboot: power}`",
                "write that, or remove `power`",
            );
        }
    }
    let Some(At { value: schema::Healing::Settings(given), .. }) = raw else { return };
    let Some(word) = given.reboot.as_ref().filter(|_| healing.reboot == Reboot::Power) else { return };
    if !all.clone().any(|placed| placed.host.power.is_some()) {
        let remedy = "add `power: {exec: NAME}` to hosts, or write `reboot: systemd`";
        judge.refuse(word.place, "healing.reboot is power, and no host has `power`", "a plug-in", remedy);
    }
    let may_vote = all.filter(|placed| placed.host.may_vote()).count();
    if may_vote < SEEN_BY {
        let what = format!("healing.reboot is power, and {may_vote} of the hosts may vote in etcd");
        let expected = "at least 3 hosts with the role etcd or `standby`: two must see that the third is silent";
        judge.refuse(word.place, what, expected, "add etcd hosts, or write `reboot: systemd`");
    }
}

fn reboot(judge: &mut Validator<'_>, word: &At<String>, mode: Mode) -> Reboot {
    let words = [Reboot::Never, Reboot::Systemd, Reboot::Power].map(|reboot| (reboot.word(), reboot));
    let reboot = choice(judge, "healing.reboot", word, &words).unwrap_or_default();
    if reboot != Reboot::Never && mode != Mode::On {
        let what = "healing.reboot has no effect: guards repair only with `mode: on`";
        judge.warn(word.place, what, "", "write `mode: on`, or remove healing.reboot");
    }
    reboot
}

fn metrics(judge: &mut Validator<'_>, word: &At<String>) -> Metrics {
    let words = [Metrics::Loopback, Metrics::Host].map(|metrics| (metrics.word(), metrics));
    choice(judge, "healing.metrics", word, &words).unwrap_or_default()
}

fn no_effect(judge: &mut Validator<'_>, key: &str, place: Place) {
    let what = format!("{key} has no effect without healing.mode: there are no guards");
    judge.warn(place, what, "", format!("add `mode: watch` or `mode: on`, or remove {key}"));
}

fn delays(judge: &mut Validator<'_>, raw: &At<schema::HealingAfter>) -> Delays {
    let (start, raw) = (raw.place, &raw.value);
    let mut delays = Delays::default();
    let mut read = |key, text: &Option<At<String>>, within, such, slot: &mut u32| {
        let given = text.as_ref().and_then(|text| duration_within(judge, key, text, within, such));
        if let Some(seconds) = given.and_then(|seconds| u32::try_from(seconds).ok()) {
            *slot = seconds;
        }
    };
    let unreachable = &raw.host_unreachable;
    read("healing.after.hostUnreachable", unreachable, ["30s", "1h"], "3m", &mut delays.host_unreachable_s);
    read("healing.after.hostDead", &raw.host_dead, ["1m", "24h"], "10m", &mut delays.host_dead_s);
    read("healing.after.frozen", &raw.frozen, ["5s", "10m"], "15s", &mut delays.frozen_s);
    read("healing.after.notVoting", &raw.not_voting, ["10s", "1h"], "10m", &mut delays.not_voting_s);
    if delays.host_dead_s < delays.host_unreachable_s {
        let place = raw.host_dead.as_ref().or(raw.host_unreachable.as_ref()).map_or(start, |text| text.place);
        judge.refuse(
            place,
            "healing.after.hostDead is shorter than healing.after.hostUnreachable",
            "a longer time, or the same",
            "a host is reported as unreachable before another one takes over its vote",
        );
    }
    delays
}

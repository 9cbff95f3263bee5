//! Kubernetes' own rules for labels and taints.

use super::text::is_dns_name;
use super::validator::Validator;
use crate::inventory::at::At;
use crate::inventory::problem::shorten;
use crate::inventory::schema::{TextMap, Texts};
use crate::inventory::suggest::nearest;
use std::collections::BTreeMap;

/// A label's name part or value: at most 63 characters, letters and digits at both ends.
fn is_word(text: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.len() <= 63 && text.bytes().all(fine) && end(text.bytes().next()) && end(text.bytes().last())
}

fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => {
            let lower = !prefix.bytes().any(|b| b.is_ascii_uppercase());
            lower && !prefix.starts_with('*') && is_dns_name(prefix) && is_word(name)
        }
        None => is_word(text),
    }
}

fn is_value(text: &str) -> bool {
    text.is_empty() || is_word(text)
}

const KEY: &str = "[domain/]name: at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends";

/// Node labels.
pub fn labels(judge: &mut Validator<'_>, raw: Option<&At<TextMap>>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (key, value) in raw.iter().flat_map(|map| &map.value) {
        if !is_key(key) {
            judge.refuse(value.place, format!("{:?} cannot be a label's key", shorten(key)), KEY, "rename the label");
        } else if !is_value(&value.value) {
            judge.refuse(
                value.place,
                format!("{:?} cannot be a label's value", shorten(&value.value)),
                "empty, or at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends",
                "change the value",
            );
        } else {
            labels.insert(key.clone(), value.value.clone());
        }
    }
    labels
}

/// Node taints, as `key=value:Effect`.
pub fn taints(judge: &mut Validator<'_>, raw: Option<&Texts>) -> Vec<String> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let mut taints: Vec<String> = Vec::new();
    for taint in raw.iter().flat_map(|list| &list.value) {
        let given = taint.value.as_str();
        let form = "key=value:Effect or key:Effect";
        let Some((pair, effect)) = given.rsplit_once(':') else {
            let remedy = "add an effect, such as :NoSchedule";
            judge.refuse(taint.place, format!("the taint {:?} has no effect", shorten(given)), form, remedy);
            continue;
        };
        if !EFFECTS.contains(&effect) {
            let remedy =
                nearest(effect, EFFECTS).map_or("choose one of them".to_owned(), |m| format!("did you mean {m}?"));
            let expected = format!("one of {}", EFFECTS.join(", "));
            judge.refuse(taint.place, format!("unknown taint effect {:?}", shorten(effect)), expected, remedy);
            continue;
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !is_key(key) || !is_value(value) {
            let what = format!("the taint {:?} is malformed", shorten(given));
            judge.refuse(taint.place, what, form, format!("the key is {KEY}"));
        } else if taints.iter().any(|have| have == given) {
            judge.refuse(taint.place, format!("duplicate taint {given}"), "each taint once", "remove one of them");
        } else {
            taints.push(given.to_owned());
        }
    }
    taints
}

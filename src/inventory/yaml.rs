//! YAML to raw values, with helpful texts for the YAML reader's errors.
//!
//! In: any text. Out: [`Inventory`] with places, or the one problem that stopped the reader: a document that cannot be
//! read as a whole cannot be validated in parts. Bounded: no text can make the result large or deep.

use super::at::{At, Place};
use super::problem::{Problem, Severity, Words};
use super::reference;
use super::schema::Inventory;
use super::suggest::nearest;
use serde_saphyr::{Error, Options};

/// Limit for an inventory: a thousand hosts have about 200 KiB.
pub const LARGEST: usize = 1024 * 1024;

/// Reads the text.
pub fn read(file: &str, text: &str) -> Result<At<Inventory>, Box<Problem>> {
    let problem = |place, words| Box::new(Problem::new(Severity::Error, file, text, place, words));
    if let Some((place, words)) = refuse_early(text) {
        return Err(problem(place, words));
    }
    serde_saphyr::from_str_with_options::<At<Inventory>>(text, options()).map_err(|error| {
        let (place, words) = explain(text, error.without_snippet());
        problem(place, words)
    })
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 200_000, max_nodes: 100_000, max_depth: 32, max_aliases: 2_000, max_anchors: 200,
            max_total_scalar_bytes: LARGEST, max_merge_keys: 2_000, max_recorded_anchor_events: 50_000,
            max_recorded_anchor_bytes: LARGEST, flow_nesting_limit: 32, max_documents: 2,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 50_000, max_replay_stack_depth: 8 },
        strict_booleans: true,
        reject_unsupported_tags: true,
        emit_comments: false,
        with_snippet: false,
    }
}

/// Problems that need no parser, with better messages than a parser's.
fn refuse_early(text: &str) -> Option<(Place, Words)> {
    let start = Place::new(1, 1);
    let other_file = "check the path: this may be another file";
    if text.len() > LARGEST {
        return Some((start, Words::new("this is more than 1024 KiB of text", "at most 1024 KiB", other_file)));
    }
    for (number, line) in text.lines().enumerate() {
        if let Some(column) = line.chars().position(|c| c.is_control() && c != '\t' && c != '\r') {
            let place = Place::new(number + 1, column + 1);
            return Some((place, Words::new("this is not text", "a YAML file", other_file)));
        }
    }
    let says_something = |line: &str| {
        let line = line.trim().trim_start_matches('\u{feff}');
        !line.is_empty() && !line.starts_with('#') && line != "---" && line != "..."
    };
    (!text.lines().any(says_something)).then(|| {
        let expected = "at least schema, cluster, endpoint and hosts";
        (start, Words::new("the inventory is empty", expected, "create one with `hactl inventory init FILE`"))
    })
}

/// The reader's error as a place and a text.
fn explain(text: &str, error: &Error) -> (Place, Words) {
    let mut place = error.location().map(Place::from).unwrap_or_default();
    if place.line == 0 {
        place = Place::new(1, 1);
    }
    let words = match error {
        Error::SerdeUnknownField { field, expected, .. } => unknown_key(field, expected),
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("this key");
            Words::new(format!("duplicate key {key} in this mapping"), "each key once", "remove one of them")
        }
        Error::MultipleDocuments { .. } => Words::new(
            "a second YAML document starts here",
            "one document in the file",
            "remove the `---` line, or split the file: one inventory is one cluster",
        ),
        Error::SerdeInvalidType { unexpected, expected, .. }
        | Error::SerdeInvalidValue { unexpected, expected, .. } => {
            wrong_type(text, place, &found(unexpected), expected)
        }
        Error::Unexpected { expected, .. } => wrong_type(text, place, &found_here(text, place), &plain(expected)),
        Error::InvalidScalar { ty, .. } => wrong_type(text, place, &found_here(text, place), &plain(ty)),
        Error::InvalidBooleanStrict { .. } => wrong_type(text, place, &found_here(text, place), "true or false"),
        Error::NullIntoString { .. } => wrong_type(text, place, "nothing", "a text"),
        Error::TaggedScalarCannotDeserializeIntoString { .. } | Error::UnsupportedTag { .. } => {
            Words::new("YAML tags have no meaning in an inventory", "a plain value", "remove the `!tag`")
        }
        Error::UnknownAnchor { .. } => {
            Words::new("there is no such anchor above", "an `&name` before its `*name`", "write the value")
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => Words::new(
            "this exceeds the limits when it is read",
            "at most 100000 values, 32 levels and 2000 aliases",
            "write the values instead of nested aliases",
        ),
        Error::AliasError { error, .. } => return explain(text, error),
        other => syntax(text, &mut place, other),
    };
    (place, words)
}

fn unknown_key(field: &str, expected: &[&'static str]) -> Words {
    let what = format!("unknown key {field}");
    let allowed = expected.join(", ");
    let elsewhere = reference::places_of(field);
    let remedy = match nearest(field, expected.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None if !elsewhere.is_empty() => format!("{field} belongs elsewhere: {}", elsewhere.join(" or ")),
        None => "remove it; `hactl inventory schema` and docs/inventory.md list every key".to_owned(),
    };
    Words::new(what, format!("one of {allowed}"), remedy)
}

fn wrong_type(text: &str, place: Place, found: &str, expected: &str) -> Words {
    let (found, expected) = (found.replace('`', ""), plain(expected));
    if begins_document(text, place) {
        return Words::new(
            format!("the inventory is {found}, not a mapping"),
            "a mapping with schema, cluster, endpoint and hosts",
            "check the path, or create an inventory with `hactl inventory init FILE`",
        );
    }
    let remedy = match (expected.as_str(), written(text, place)) {
        ("a whole number", Some(word)) if word.starts_with(['"', '\'']) => "remove the quotes".to_owned(),
        ("true or false", Some(word)) if matches!(word.to_ascii_lowercase().as_str(), "yes" | "on") => {
            "write true".to_owned()
        }
        ("true or false", Some(word)) if matches!(word.to_ascii_lowercase().as_str(), "no" | "off") => {
            "write false".to_owned()
        }
        ("a list", _) => "write a list: `[one, two]`, or lines that start with `- `".to_owned(),
        (e, _) if e.starts_with("a mapping") => {
            "write `key: value` lines, indented below this key, or `{key: value}`".to_owned()
        }
        ("a single value", _) => "write one value here, without brackets or `- `".to_owned(),
        _ => format!("write {expected} here"),
    };
    Words::new(format!("found {found} instead of {expected}"), expected, remedy)
}

/// Whether only comments are before the place.
fn begins_document(text: &str, place: Place) -> bool {
    let silent = |line: &str| matches!(line.trim().chars().next(), None | Some('#' | '%')) || line.trim() == "---";
    let line = text.lines().nth(place.line.saturating_sub(1)).unwrap_or_default();
    let before: String = line.chars().take(place.column.saturating_sub(1)).collect();
    text.lines().take(place.line.saturating_sub(1)).all(silent) && matches!(before.trim(), "" | "---" | "\u{feff}")
}

/// Serde's terms in YAML's.
fn found(unexpected: &str) -> String {
    unexpected
        .replace("sequence", "a list")
        .replace("unit value", "nothing")
        .replace("map", "a mapping")
        .replace("string \"", "the text \"")
        .replace("integer", "the number")
        .replace("floating point", "the number")
        .replace("boolean", "the value")
}

/// The kind of the value at the place, by its first character.
fn found_here(text: &str, place: Place) -> String {
    let line = text.lines().nth(place.line.saturating_sub(1)).unwrap_or_default();
    let rest: String = line.chars().skip(place.column.saturating_sub(1)).collect();
    match (written(text, place), rest.trim_start().chars().next()) {
        (_, Some('[' | '-')) if !rest.starts_with("---") => "a list".to_owned(),
        (_, Some('{')) => "a mapping".to_owned(),
        (Some(word), _) if !word.is_empty() => word.chars().take(60).collect(),
        (_, None | Some('#')) => "nothing".to_owned(),
        _ => "something else".to_owned(),
    }
}

/// The characters of a scalar as they are written, quotes included.
pub fn written(text: &str, place: Place) -> Option<&str> {
    text.get(place.offset..place.offset.checked_add(place.bytes)?).map(str::trim).filter(|word| !word.is_empty())
}

/// Serde's and the reader's names of types, for people.
fn plain(expected: &str) -> String {
    match expected {
        "i64" | "u64" | "integer" | "a 64-bit integer" => "a whole number".to_owned(),
        "bool" | "a boolean" | "boolean" => "true or false".to_owned(),
        "a string" | "string" | "String" => "a text".to_owned(),
        // The reader reports a text even where a number or a boolean is expected.
        "string scalar" => "a single value".to_owned(),
        "a sequence" | "sequence" | "sequence start" => "a list".to_owned(),
        "a map" | "mapping" | "mapping start" => "a mapping".to_owned(),
        other => other.to_owned(),
    }
}

/// Any other error is one of syntax; tabs are the most common cause, which the reader does not report.
fn syntax(text: &str, place: &mut Place, error: &Error) -> Words {
    let indents_with_tab = |line: &str| line.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t');
    let near = text.lines().enumerate().take(place.line + 1).skip(place.line.saturating_sub(2));
    if let Some((number, line)) = near.into_iter().find(|(_, line)| indents_with_tab(line)) {
        let column = line.chars().position(|c| c == '\t').unwrap_or(0);
        *place = Place::new(number + 1, column + 1);
        return Words::new("a tab indents this line", "spaces", "YAML forbids tabs in indentation: use two spaces");
    }
    let message = error.to_string();
    if message.contains("recursion limit") || message.contains("nesting") {
        return Words::new("this is nested too deeply", "at most 32 levels", "close the brackets above");
    }
    let message = message.split(" at line ").next().unwrap_or(&message).trim().to_owned();
    Words::new(
        format!("this is not YAML: {message}"),
        "`key: value` lines with consistent indentation",
        "check this line and the one above: a missing `:`, quote or bracket, or wrong indentation",
    )
}

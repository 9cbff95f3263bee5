//! Other tools' YAML, of any shape: every value with its line and its tag, and scalars as they were written.
//!
//! In: any text. Out: [`Node`]s, or the line at which the reader stopped. hactl's own inventory has a schema; a foreign
//! file has none that we could rely on, and its tags (`!vault`, `!unsafe`) must not stop the reader. Bounded like the
//! inventory: no text can make the result large or deep.

use crate::inventory::at::Place;
use crate::inventory::yaml;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use serde_saphyr::{Spanned, Tagged};
use std::fmt;

/// One value of a foreign file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its line, from 1; 0 if it is not from a file.
    pub line: usize,
    /// Its tag, such as `!vault`.
    pub tag: Option<String>,
    /// Its value.
    pub value: Value,
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A text as it was written: `1.30` stays `1.30`, and `yes` is not a boolean yet.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order of the file.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// A text.
    pub fn text(line: usize, text: impl Into<String>) -> Self {
        Self { line, tag: None, value: Value::Text(text.into()) }
    }
    /// Nothing.
    pub fn null(line: usize) -> Self {
        Self { line, tag: None, value: Value::Null }
    }
    /// The text, of a text.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
    /// The members of a list.
    pub fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }
    /// The entries of a mapping.
    pub fn entries(&self) -> &[(String, Self)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }
    /// One entry of a mapping, unless it is null.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|(name, node)| name == key && !node.is_null()).map(|(_, node)| node)
    }
    /// The text of an entry, trimmed and not empty.
    pub fn word(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_text().map(str::trim).filter(|text| !text.is_empty())
    }
    /// Whether an entry is true.
    pub fn is_true(&self, key: &str) -> bool {
        self.get(key).and_then(Self::as_bool) == Some(true)
    }
    /// The members of a list that is an entry.
    pub fn items_of(&self, key: &str) -> &[Self] {
        self.get(key).map(Self::items).unwrap_or_default()
    }
    /// The entries of a mapping that is an entry.
    pub fn entries_of(&self, key: &str) -> &[(String, Self)] {
        self.get(key).map(Self::entries).unwrap_or_default()
    }
    /// One entry further down.
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }
    /// Whether it is a mapping.
    pub fn is_map(&self) -> bool {
        matches!(self.value, Value::Map(_))
    }
    /// Whether it has no value.
    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        match &self.value {
            Value::Null => true,
            Value::Text(text) => text.trim().is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Map(entries) => entries.is_empty(),
        }
    }
    /// Whether it has the same value as another, regardless of their places.
    pub fn same(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Value::Null, Value::Null) => true,
            (Value::Text(one), Value::Text(two)) => {
                one.trim() == two.trim() || truth(one).is_some_and(|one| truth(two) == Some(one))
            }
            (Value::List(one), Value::List(two)) => {
                one.len() == two.len() && one.iter().zip(two).all(|(one, two)| one.same(two))
            }
            (Value::Map(one), Value::Map(two)) => {
                one.len() == two.len()
                    && one.iter().zip(two).all(|((key, one), (other, two))| key == other && one.same(two))
            }
            _ => false,
        }
    }
    /// Whether ansible-vault has encrypted it.
    pub fn is_vaulted(&self) -> bool {
        self.tag.as_deref().is_some_and(|tag| tag.contains("vault"))
            || self.as_text().is_some_and(|text| text.trim_start().starts_with("$ANSIBLE_VAULT"))
    }
    /// True and false as YAML 1.1 and Python write them.
    pub fn as_bool(&self) -> Option<bool> {
        truth(self.as_text()?)
    }
    /// The value for settings that are passed on, with numbers and booleans by YAML 1.2.
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => Json::Object(entries.iter().map(|(k, v)| (k.clone(), v.to_json())).collect()),
            Value::Text(text) => match (text.as_str(), text.parse::<i64>()) {
                ("true" | "True", _) => Json::Bool(true),
                ("false" | "False", _) => Json::Bool(false),
                (_, Ok(number)) if number.to_string() == *text => Json::from(number),
                _ => Json::String(text.clone()),
            },
        }
    }
}

/// True and false as YAML 1.1 and Python write them.
pub fn truth(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Why a text cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotYaml {
    /// The line at which the reader stopped.
    pub line: usize,
    /// Why.
    pub why: String,
}

/// Reads all documents of a text.
pub fn read(text: &str) -> Result<Vec<Node>, NotYaml> {
    let documents = serde_saphyr::from_multiple_with_options::<Raw>(text, options()).map_err(|error| {
        let error = error.without_snippet();
        let place = error.location().map(Place::from).unwrap_or_default();
        let why = error.to_string();
        let why = why.split(" at line ").next().unwrap_or_default().lines().next().unwrap_or_default();
        NotYaml { line: place.line.max(1), why: why.chars().take(200).collect() }
    })?;
    Ok(documents.into_iter().map(|raw| raw.finish(text)).collect())
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 200_000, max_nodes: 100_000, max_depth: 32, max_aliases: 2_000, max_anchors: 200,
            max_total_scalar_bytes: yaml::LARGEST, max_merge_keys: 2_000, max_recorded_anchor_events: 50_000,
            max_recorded_anchor_bytes: yaml::LARGEST, flow_nesting_limit: 32, max_documents: 20,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 50_000, max_replay_stack_depth: 8 },
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        strict_booleans: true,
        reject_unsupported_tags: false,
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::AsString,
        ignore_binary_tag_for_string: true,
        emit_comments: false,
        with_snippet: false,
    }
}

/// A value before its scalars are read from the text.
struct Raw {
    place: Place,
    defined: Place,
    tag: Option<String>,
    shape: Shape,
}

enum Shape {
    Null,
    /// Of a quoted or a block scalar, or of a plain one that can only be text.
    Text(String),
    /// A number or a boolean by the reader; the text has its original form.
    Typed(String),
    List(Vec<Raw>),
    Map(Vec<(Raw, Raw)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: Tagged(shape, tag), referenced, defined } =
            Spanned::<Tagged<Shape>>::deserialize(deserializer)?;
        Ok(Self { place: referenced.into(), defined: defined.into(), tag, shape })
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyShape)
    }
}

struct AnyShape;

impl<'de> Visitor<'de> for AnyShape {
    type Value = Shape;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Shape, E> {
        Ok(Shape::Typed(v.to_string()))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Shape, E> {
        Ok(Shape::Typed(v.to_string()))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Shape, E> {
        Ok(Shape::Typed(v.to_string()))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Shape, E> {
        Ok(Shape::Typed(v.to_string()))
    }
    fn visit_str<E>(self, v: &str) -> Result<Shape, E> {
        Ok(Shape::Text(v.to_owned()))
    }
    fn visit_bytes<E>(self, v: &[u8]) -> Result<Shape, E> {
        Ok(Shape::Text(String::from_utf8_lossy(v).into_owned()))
    }
    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }
    fn visit_none<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        Shape::deserialize(deserializer)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Shape, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Shape::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Shape, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Shape::Map(entries))
    }
}

impl Raw {
    fn finish(self, text: &str) -> Node {
        let value = match self.shape {
            Shape::Null => Value::Null,
            Shape::Text(text) => Value::Text(text),
            Shape::Typed(meant) => Value::Text(as_written(text, self.defined).unwrap_or(meant)),
            Shape::List(items) => Value::List(items.into_iter().map(|item| item.finish(text)).collect()),
            Shape::Map(entries) => {
                Value::Map(entries.into_iter().map(|(key, value)| (key.key(text), value.finish(text))).collect())
            }
        };
        Node { line: self.place.line, tag: self.tag, value }
    }
    /// A key as text; other keys get a description.
    fn key(self, text: &str) -> String {
        match self.finish(text).value {
            Value::Text(text) => text,
            Value::Null => "null".to_owned(),
            Value::List(_) => "(a list)".to_owned(),
            Value::Map(_) => "(a mapping)".to_owned(),
        }
    }
}

/// The characters of a plain scalar at its place.
fn as_written(text: &str, place: Place) -> Option<String> {
    let word = yaml::written(text, place)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_' | ':');
    word.chars().all(plain).then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Node {
        read(text).unwrap().remove(0)
    }

    #[test]
    fn scalars_stay_as_they_were_written() {
        let node = one("a: 1.30\nb: yes\nc: 0x10\nd: \"007\"\ne: 010\nf: True\n1: x\ng: 1e400\n'h': .inf\n");
        let text = |key: &str| node.get(key).unwrap().as_text().unwrap().to_owned();
        assert_eq!(
            ["a", "b", "c", "d", "e", "f", "1", "h"].map(text),
            ["1.30", "yes", "0x10", "007", "010", "True", "x", ".inf"]
        );
        assert_eq!((node.get("b").unwrap().as_bool(), node.get("f").unwrap().as_bool()), (Some(true), Some(true)));
        assert_eq!(node.get("e").unwrap().line, 5);
    }

    #[test]
    fn tags_of_other_tools_do_not_end_the_reading() {
        let node = one(
            "a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\nb: !unsafe 'x{{y}}'\nc: !thing [1, !x 2]\nd: !m {a: 1}\n",
        );
        assert!(node.get("a").unwrap().is_vaulted());
        assert_eq!(node.get("b").unwrap().as_text(), Some("x{{y}}"));
        assert_eq!(node.get("c").unwrap().items().len(), 2);
        assert_eq!(node.at(&["d", "a"]).unwrap().as_text(), Some("1"));
    }

    #[test]
    fn anchors_merges_and_several_documents_are_read() {
        let nodes = read("a: &x {p: 2222}\nb: {<<: *x, q: 1}\nc: *x\n---\nd: 1\n").unwrap();
        assert_eq!(nodes.len(), 2);
        assert_eq!(nodes[0].at(&["b", "p"]).unwrap().as_text(), Some("2222"));
        assert_eq!((nodes[0].at(&["c", "p"]).unwrap().as_text(), nodes[1].get("d").unwrap().line), (Some("2222"), 5));
    }

    #[test]
    fn values_are_the_same_wherever_they_stand_and_however_truth_is_spelt() {
        let nodes = read("a: {x: [1, yes]}\n---\n\nb: {x: [1, True]}\n---\nc: {x: [1, no]}\n").unwrap();
        let [one, two, three] = [("a", 0), ("b", 1), ("c", 2)].map(|(key, at)| nodes[at].get(key).unwrap());
        assert!(one.same(two) && !one.same(three) && !one.same(&Node::null(1)));
    }

    #[test]
    fn invalid_yaml_is_reported_with_its_line() {
        assert_eq!(read("a: 1\nb: [\n").map_err(|e| e.line >= 2), Err(true));
    }
}

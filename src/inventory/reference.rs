//! The published form of the schema: a JSON Schema for editors, and the list of keys in docs/inventory.md.
//!
//! In: the types of `schema`. Out: text. A test compares the committed copies with it.

use super::schema::Inventory;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// The JSON Schema as a value.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Inventory>().to_value()
}

/// The JSON Schema as it is committed and printed.
pub fn schema_text() -> String {
    let mut text = serde_json::to_string_pretty(&schema()).expect("a JSON value with text keys always serializes");
    text.push('\n');
    text
}

/// One key of the inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its path, such as `hosts[].ssh.port`.
    pub path: String,
    /// Its possible values.
    pub kind: String,
    /// Its default value, `required`, or nothing.
    pub default: String,
    /// Its description.
    pub meaning: String,
}

/// Every key, in the order of the schema.
pub fn keys() -> Vec<Key> {
    let mut keys = Vec::new();
    walk(&schema(), "", &mut keys);
    keys
}

/// The paths of a key, for a message about a key in the wrong place.
pub fn places_of(key: &str) -> Vec<String> {
    let under = |path: &String| path.rsplit_once('.').is_some_and(|(_, last)| last == key) || path == key;
    let mut places: Vec<String> = keys().into_iter().map(|k| k.path).filter(under).collect();
    places.truncate(3);
    places
}

fn walk(schema: &Value, path: &str, keys: &mut Vec<Key>) {
    for either in schema["anyOf"].as_array().into_iter().flatten() {
        walk(either, path, keys);
    }
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let default = match property.get("default") {
            Some(Value::String(text)) if text.is_empty() => "`\"\"`".to_owned(),
            Some(Value::String(text)) => format!("`{text}`"),
            Some(value) => format!("`{value}`"),
            None if required.contains(&name.as_str()) => "required".to_owned(),
            None => String::new(),
        };
        let meaning = property["description"].as_str().unwrap_or_default().replace('\n', " ");
        keys.push(Key { path: path.clone(), kind: kind(property), default, meaning });
        walk(property, &path, keys);
        if property["items"].get("properties").is_some() {
            walk(&property["items"], &format!("{path}[]"), keys);
        }
    }
}

fn kind(schema: &Value) -> String {
    let words = |list: &Vec<Value>, with: fn(&Value) -> String| list.iter().map(with).collect::<Vec<_>>().join(", ");
    let quoted = |value: &Value| value.as_str().map_or_else(|| format!("`{value}`"), |text| format!("`{text}`"));
    if let Some(only) = schema.get("const") {
        return quoted(only);
    }
    if let Some(choices) = schema["enum"].as_array() {
        return words(choices, quoted);
    }
    if let Some(either) = schema["anyOf"].as_array() {
        return either.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    match schema["type"].as_str() {
        Some("string") => "text".to_owned(),
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("integer") => match (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
            (Some(from), Some(to)) => format!("{from} to {to}"),
            _ => "number".to_owned(),
        },
        Some("array") if schema["items"].get("properties").is_some() => "list of mappings".to_owned(),
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some("object") if schema.get("properties").is_some() => "mapping".to_owned(),
        Some("object") => match schema.get("additionalProperties") {
            Some(inner) if inner.is_object() => format!("name: {}", kind(inner)),
            _ => "any mapping".to_owned(),
        },
        _ => "text, number or boolean".to_owned(),
    }
}

/// Longest line of the list; documents have at most 120 columns.
const COLUMNS: usize = 118;

/// The list of all keys in Markdown: one item per key.
pub fn list() -> String {
    let mut text = String::new();
    for key in keys() {
        let default = match key.default.as_str() {
            "" => String::new(),
            "required" => "; required".to_owned(),
            default => format!("; default {default}"),
        };
        item(&mut text, &format!("- **`{}`** ({}{default}): {}", key.path, key.kind, key.meaning));
    }
    text
}

/// Writes an item, wrapped with a hanging indent.
fn item(text: &mut String, words: &str) {
    let mut width = 0;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > COLUMNS {
            text.push_str("\n  ");
            width = 2;
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += length;
    }
    text.push('\n');
}

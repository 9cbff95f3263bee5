//! YAML as values: parsed, merged with settings of the inventory, and written.

use serde_json::{Map, Value};

use super::RenderError;

/// Parses one document.
pub(super) fn parse(template: &str, text: &str) -> Result<Value, RenderError> {
    serde_saphyr::from_str(text).map_err(|error| bad(template, &error))
}

/// Parses a stream of documents.
pub(super) fn parse_all(template: &str, text: &str) -> Result<Vec<Value>, RenderError> {
    serde_saphyr::from_multiple(text).map_err(|error| bad(template, &error))
}

/// Writes a document under a comment.
pub(super) fn write(template: &str, value: &Value) -> Result<String, RenderError> {
    serde_saphyr::to_string(value)
        .map(|text| format!("# Written by hactl, with the inventory's `extra`.\n{text}"))
        .map_err(|error| bad(template, &error))
}

fn bad(template: &str, error: &impl ToString) -> RenderError {
    RenderError::NotYaml { template: template.to_owned(), why: error.to_string() }
}

/// The text of a document with the settings of the inventory merged into it, if there are any.
pub(super) fn with(template: &str, text: String, extra: &Map<String, Value>) -> Result<String, RenderError> {
    if extra.is_empty() {
        return Ok(text);
    }
    let mut config = parse(template, &text)?;
    merge(&mut config, extra);
    write(template, &config)
}

/// Merges `over` into `base`: maps are merged key by key, other values replace, null removes.
pub(super) fn merge(base: &mut Value, over: &Map<String, Value>) {
    if !base.is_object() {
        *base = Value::Object(Map::new());
    }
    let Value::Object(map) = base else { return };
    for (key, value) in over {
        match value {
            Value::Null => {
                map.remove(key);
            }
            Value::Object(inner) => merge(map.entry(key.clone()).or_insert(Value::Null), inner),
            other => {
                map.insert(key.clone(), other.clone());
            }
        }
    }
}

/// Replaces flags of a static pod's command with the inventory's: each flag is given once, because some flags
/// accumulate if they are given twice.
pub(super) fn set_flags<'a>(pod: &mut Value, flags: impl Iterator<Item = (&'a String, &'a String)>) {
    let Some(command) = pod.pointer_mut("/spec/containers/0/command").and_then(Value::as_array_mut) else { return };
    for (name, value) in flags {
        let (bare, with_value) = (format!("--{name}"), format!("--{name}="));
        command.retain(|word| word.as_str().is_none_or(|w| w != bare && !w.starts_with(&with_value)));
        command.push(Value::String(format!("{with_value}{value}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_inventory_reaches_single_settings_deep_inside_and_can_remove_one() {
        let mut base = json!({"a": {"b": 1, "c": 2}, "d": 3, "e": 4});
        let over = json!({"a": {"b": 5}, "d": null, "f": {"g": 6}});
        merge(&mut base, over.as_object().unwrap());
        assert_eq!(base, json!({"a": {"b": 5, "c": 2}, "e": 4, "f": {"g": 6}}));
    }

    #[test]
    fn a_flag_of_the_inventory_replaces_ours_instead_of_adding_to_it() {
        let mut pod = json!({"spec": {"containers": [{"command": ["x", "--a=1", "--ab=2", "--a"]}]}});
        let flags = std::collections::BTreeMap::from([("a".to_owned(), "3".to_owned())]);
        set_flags(&mut pod, flags.iter());
        assert_eq!(pod.pointer("/spec/containers/0/command"), Some(&json!(["x", "--ab=2", "--a=3"])));
    }

    #[test]
    fn written_values_are_read_back_the_same() {
        let value = json!({"yes": "no", "n": "1.30", "s": "a: b # c", "l": ["--x=y", "", "0x1"], "t": true, "m": "a\nb\n", "o": {}, "e": []});
        assert_eq!(parse("t", &write("t", &value).unwrap()).unwrap(), value);
    }
}

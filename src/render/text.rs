//! The template engine, restricted: no value reaches a file unquoted, and undefined values are errors.
//!
//! In: a template's text and a typed view. Out: the file's text. Every value in a template ends in one of these
//! filters: `y` (quoted as JSON, which is YAML and TOML too), `word` (no space, no quote: for haproxy, keepalived and
//! the like), `line` (no line break) and `unit` (quoted for a systemd command line). A test checks the templates for
//! it.

use serde::Serialize;
use std::collections::BTreeMap;
use tera::{Context, Kwargs, State, Tera, TeraResult, Value};

use super::RenderError;

/// Renders one template.
///
/// # Errors
/// A value that is not allowed at its place in the template.
pub fn fill<V: Serialize>(template: &str, text: &str, view: &V) -> Result<String, RenderError> {
    let bad = |error: &tera::Error| RenderError::Template { template: template.to_owned(), why: chain(error) };
    let mut engine = engine();
    engine.add_raw_template(template, text).map_err(|e| bad(&e))?;
    let context = Context::from_serialize(view).map_err(|e| bad(&e))?;
    // `{% if missing %}` would be false without an error.
    for name in engine.get_template_variables(template).map_err(|e| bad(&e))? {
        if !context.contains_key(name) {
            let why = format!("it uses {name}, which its view does not have");
            return Err(RenderError::Template { template: template.to_owned(), why });
        }
    }
    engine.render(template, &context).map_err(|e| bad(&e))
}

fn engine() -> Tera {
    let mut engine = Tera::new();
    engine.autoescape_on(Vec::<&str>::new());
    engine.register_filter("y", quoted);
    engine.register_filter("word", word);
    engine.register_filter("line", line);
    engine.register_filter("unit", unit);
    engine
}

/// The engine's error with its sources, once each.
fn chain(error: &tera::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

fn quoted(value: &Value, _: Kwargs, _: &State) -> TeraResult<String> {
    if value.is_undefined() {
        return Err(tera::Error::message("an undefined value"));
    }
    let value = serde_json::to_value(value).map_err(|error| tera::Error::message(error.to_string()))?;
    Ok(sorted(value).to_string())
}

/// The engine does not order maps, but the same input must give the same text.
fn sorted(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value as Json;
    match value {
        Json::Object(map) => {
            let map: BTreeMap<String, Json> = map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            map.into_iter().collect()
        }
        Json::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

fn plain(value: &Value) -> TeraResult<String> {
    if value.is_undefined() || value.is_none() {
        return Err(tera::Error::message("an undefined value"));
    }
    let text = value.to_string();
    if text.chars().any(char::is_control) {
        return Err(tera::Error::message(format!("{text:?} contains a control character")));
    }
    Ok(text)
}

fn line(value: &Value, _: Kwargs, _: &State) -> TeraResult<String> {
    plain(value)
}

fn word(value: &Value, _: Kwargs, _: &State) -> TeraResult<String> {
    let text = plain(value)?;
    let odd = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | '#' | '$' | '`' | '%');
    if text.is_empty() || text.contains(odd) {
        return Err(tera::Error::message(format!("{text:?} is not a single word")));
    }
    Ok(text)
}

fn unit(value: &Value, _: Kwargs, _: &State) -> TeraResult<String> {
    let text = plain(value)?.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    Ok(format!("\"{text}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str, value: &str) -> Result<String, RenderError> {
        fill("test", text, &BTreeMap::from([("value", value)]))
    }

    #[test]
    fn a_value_cannot_break_out_of_its_yaml() {
        let text = filled("key: {{ value | y }}\n", "a\"\nother: 'b'").unwrap();
        let parsed: BTreeMap<String, String> = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(parsed["key"], "a\"\nother: 'b'");
        assert_eq!(parsed.len(), 1);
    }

    #[test]
    fn a_word_with_a_line_break_a_space_or_a_quote_is_refused() {
        for bad in ["a\nb", "a b", "a\"b", "", "%n", "$HOME"] {
            assert!(filled("bind {{ value | word }}", bad).is_err(), "{bad:?} passed");
        }
        assert_eq!(filled("bind {{ value | word }}", "[::1]").unwrap(), "bind [::1]");
    }

    #[test]
    fn systemd_neither_expands_nor_splits_a_value() {
        assert_eq!(filled("{{ value | unit }}", "a b%n$X\"").unwrap(), "\"a b%%n$$X\\\"\"");
    }

    #[test]
    fn a_missing_value_is_an_error_even_in_a_condition() {
        assert!(filled("{% if other %}x{% endif %}", "a").is_err());
        assert!(filled("{{ other | y }}", "a").is_err());
    }
}

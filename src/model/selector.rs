//! Label selectors, as the API writes them.
//!
//! In: a selector of an object. Out: whether labels match it. A selector that cannot be read is an error: each caller
//! decides whether it then selects everything or nothing.

use serde_json::Value;
use std::collections::BTreeMap;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Whether a selector selects an object. One that cannot be read selects everything: what is asked is whether something
/// may act on the object.
pub fn selects(selector: &Value, object: &Value) -> bool {
    Selector::of(selector).map_or(true, |selector| selector.matches(&labels_of(object)))
}

/// The labels of an object.
pub fn labels_of(object: &Value) -> Labels {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Requirements, all of which must hold; without any, everything matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    /// Also without the label.
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

impl Selector {
    /// From `matchLabels` and `matchExpressions`; null selects everything.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn of(value: &Value) -> Result<Self, String> {
        let mut all = Vec::new();
        for (name, field) in members(value, "the selector")? {
            match name.as_str() {
                "matchLabels" => {
                    for (key, label) in members(field, "matchLabels")? {
                        let label = label.as_str().ok_or_else(|| format!("the label {key} is no text"))?;
                        all.push(Requirement { key: key.clone(), operator: Operator::In(vec![label.to_owned()]) });
                    }
                }
                "matchExpressions" => {
                    let list = field.as_array().ok_or("matchExpressions is no list")?;
                    for expression in list {
                        all.push(Requirement::of(expression)?);
                    }
                }
                other => return Err(format!("{other} is unknown")),
            }
        }
        Ok(Self(all))
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these labels match.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }
}

fn members<'a>(value: &'a Value, what: &str) -> Result<Vec<(&'a String, &'a Value)>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Object(map) => Ok(map.iter().collect()),
        _ => Err(format!("{what} is no object")),
    }
}

impl Requirement {
    fn of(value: &Value) -> Result<Self, String> {
        let key = value["key"].as_str().filter(|key| !key.is_empty()).ok_or("an expression has no key")?;
        let values = || -> Result<Vec<String>, String> {
            let list = value["values"].as_array().into_iter().flatten();
            let texts: Option<Vec<String>> = list.map(|value| value.as_str().map(str::to_owned)).collect();
            texts.filter(|texts| !texts.is_empty()).ok_or_else(|| format!("the expression for {key} has no values"))
        };
        let operator = match value["operator"].as_str() {
            Some("In") => Operator::In(values()?),
            Some("NotIn") => Operator::NotIn(values()?),
            Some("Exists") => Operator::Exists,
            Some("DoesNotExist") => Operator::DoesNotExist,
            _ => return Err(format!("the expression for {key} has an unknown operator")),
        };
        Ok(Self { key: key.to_owned(), operator })
    }

    fn matches(&self, labels: &Labels) -> bool {
        let label = labels.get(&self.key);
        match &self.operator {
            Operator::In(values) => label.is_some_and(|label| values.contains(label)),
            Operator::NotIn(values) => label.is_none_or(|label| !values.contains(label)),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn labels(text: &str) -> Labels {
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn all_requirements_must_hold_and_none_selects_everything() {
        let matches = |selector: Value, text: &str| Selector::of(&selector).unwrap().matches(&labels(text));
        for all in [Value::Null, json!({}), json!({"matchLabels": {}, "matchExpressions": []})] {
            assert!(matches(all.clone(), "") && matches(all, "app=db"));
        }
        let selector = |operator: &str, values: Value| json!({"matchLabels": {"app": "db"}, "matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
        for (operator, values, fits, does_not) in [
            ("In", json!(["a", "b"]), "app=db,tier=b", "app=db,tier=c"),
            ("NotIn", json!(["a"]), "app=db", "app=db,tier=a"),
            ("Exists", Value::Null, "app=db,tier=", "app=db"),
            ("DoesNotExist", Value::Null, "app=db", "app=db,tier=a"),
        ] {
            assert!(matches(selector(operator, values.clone()), fits), "{operator}: {fits}");
            assert!(!matches(selector(operator, values.clone()), does_not), "{operator}: {does_not}");
            assert!(!matches(selector(operator, values), "tier=b"), "{operator}: the label app is missing");
        }
    }

    #[test]
    fn a_selector_that_cannot_be_read_may_select_an_object() {
        let node = json!({"metadata": {"labels": {"role": "cp"}}});
        assert!(selects(&json!({"matchLabels": {"role": "cp"}}), &node));
        assert!(!selects(&json!({"matchLabels": {"role": "worker"}}), &node));
        assert!(selects(&json!({"matchExpressions": [{"key": "role", "operator": "Later"}]}), &node));
    }

    #[test]
    fn a_selector_that_cannot_be_read_is_an_error() {
        let expression = |value: Value| json!({"matchExpressions": [value]});
        for bad in [
            json!("app=db"),
            json!({"matchFields": []}),
            json!({"matchLabels": {"app": 1}}),
            json!({"matchExpressions": {}}),
            expression(json!({"operator": "Exists"})),
            expression(json!({"key": "a", "operator": "Like"})),
            expression(json!({"key": "a", "operator": "In"})),
            expression(json!({"key": "a", "operator": "NotIn", "values": []})),
            expression(json!({"key": "a", "operator": "In", "values": [1]})),
        ] {
            assert!(Selector::of(&bad).is_err(), "{bad}");
        }
    }
}

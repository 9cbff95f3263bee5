//! Label selectors: whether one selects an object.
//!
//! In: a selector and an object, as JSON. Out: yes or no. A selector that cannot be understood selects everything: what
//! is asked here is whether something may act on an object.

use serde_json::{Map, Value};

/// Whether a `LabelSelector` selects an object. An empty one selects every object.
pub fn selects(selector: &Value, object: &Value) -> bool {
    let none = Map::new();
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object).unwrap_or(&none);
    let equal = |(key, value): (&String, &Value)| labels.get(key) == Some(value);
    let all = selector.get("matchLabels").and_then(Value::as_object).unwrap_or(&none);
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    all.iter().all(equal) && expressions.iter().all(|expression| holds(expression, labels))
}

fn holds(expression: &Value, labels: &Map<String, Value>) -> bool {
    let text = |field: &str| expression.get(field).and_then(Value::as_str);
    let (Some(key), Some(operator)) = (text("key"), text("operator")) else { return true };
    let values = expression.get("values").and_then(Value::as_array);
    let is_one = labels.get(key).is_some_and(|label| values.is_some_and(|values| values.contains(label)));
    match operator {
        "In" => is_one,
        "NotIn" => !is_one,
        "Exists" => labels.contains_key(key),
        "DoesNotExist" => !labels.contains_key(key),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_is_selected_if_every_requirement_holds() {
        let node = json!({"metadata": {"labels": {"role": "cp", "zone": "a"}}});
        let one = |expression: Value| selects(&json!({"matchExpressions": [expression]}), &node);
        assert!(selects(&json!({}), &node) && selects(&json!({"matchLabels": {"role": "cp"}}), &node));
        assert!(!selects(&json!({"matchLabels": {"role": "cp", "zone": "b"}}), &node));
        assert!(one(json!({"key": "zone", "operator": "In", "values": ["a", "b"]})));
        assert!(!one(json!({"key": "zone", "operator": "NotIn", "values": ["a"]})));
        assert!(one(json!({"key": "none", "operator": "NotIn", "values": ["a"]})));
        assert!(one(json!({"key": "role", "operator": "Exists"})) && !one(json!({"key": "x", "operator": "Exists"})));
        assert!(!one(json!({"key": "role", "operator": "DoesNotExist"})));
        assert!(one(json!({"key": "role", "operator": "Later"})), "unknown: it may select it");
    }
}

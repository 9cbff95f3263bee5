//! What an API server makes of a merge patch (RFC 7396), for tests with servers in memory.
//!
//! In: an object and a patch. Out: the patched object.

use serde_json::Value;

/// The object after the patch.
pub(crate) fn merged(live: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut out = live.as_object().cloned().unwrap_or_default();
    for (key, value) in patch {
        if value.is_null() {
            out.remove(key);
        } else {
            let below = merged(out.get(key).unwrap_or(&Value::Null), value);
            out.insert(key.clone(), below);
        }
    }
    Value::Object(out)
}

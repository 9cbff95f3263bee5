//! The kinds of maintenances beside the policies that say who may change them.

use super::*;

const KINDS: [&str; 2] = ["nodemaintenances.lifecycle.hactl.dev", "nodemaintenancerollouts.lifecycle.hactl.dev"];

fn objects(kind: &str) -> BTreeMap<String, Value> {
    let all = addons(&desired(), &parts()).unwrap().into_iter().flat_map(|addon| addon.objects);
    let of_kind = all.filter(|object| object["kind"] == kind);
    of_kind.map(|object| (object["metadata"]["name"].as_str().unwrap().to_owned(), object)).collect()
}

#[test]
fn who_may_only_approve_can_change_no_other_field_of_a_maintenance_or_a_rollout() {
    let (kinds, policies) = (objects("CustomResourceDefinition"), objects("ValidatingAdmissionPolicy"));
    for name in KINDS {
        let spec = &kinds[name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let variables = policies[name]["spec"]["variables"].as_array().unwrap();
        let only = variables.iter().find(|one| one["name"] == "only_approves").unwrap()["expression"].as_str().unwrap();
        // The Node cannot be changed at all.
        let others = spec["properties"]
            .as_object()
            .unwrap()
            .keys()
            .filter(|field| !["approved", "nodeName"].contains(&field.as_str()));
        let others: Vec<&String> = others.collect();
        assert!(others.len() > 6, "{name}: {others:?}");
        for field in others {
            let is_same = format!("object.spec.?{field} == oldObject.spec.?{field}");
            assert!(only.contains(&is_same), "{name}: {field} can be changed by those who may only approve");
        }
    }
}

#[test]
fn what_was_approved_can_be_changed_in_no_field_that_decides_what_is_done() {
    // Who may have more done, and where the reason, the end and the progress are, see the policies.
    let free = [
        "approved",
        "approval",
        "nodeName",
        "nodeSelector",
        "allNodes",
        "template",
        "stage",
        "reason",
        "after",
        "paused",
    ];
    let kinds = objects("CustomResourceDefinition");
    for name in KINDS {
        let spec = &kinds[name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let rules = spec["x-kubernetes-validations"].as_array().unwrap();
        let is_it = |rule: &&Value| rule["message"] == "what was approved cannot be changed";
        let rule = rules.iter().find(is_it).unwrap()["rule"].as_str().unwrap();
        for field in spec["properties"].as_object().unwrap().keys().filter(|field| !free.contains(&field.as_str())) {
            assert!(rule.contains(&format!("self.{field} == oldSelf.{field}")), "{name}: {field} of what was approved");
        }
    }
}

#[test]
fn both_kinds_have_the_same_windows() {
    let kinds = objects("CustomResourceDefinition");
    let windows = KINDS.map(|name| {
        let schema = &kinds[name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        schema["properties"]["spec"]["properties"]["windows"].clone()
    });
    assert_eq!(windows[0], windows[1]);
    assert_eq!(windows[0]["items"]["required"], json!(["schedule", "duration"]));
}

//! The queries of the dashboard, as Grafana sends them.
//!
//! In: docs/grafana-dashboard.json. Out: each query with the title of its panel, and with values instead of variables.

use serde_json::Value;

/// The dashboard.
pub fn dashboard() -> Value {
    serde_json::from_str(include_str!("../../docs/grafana-dashboard.json")).expect("the dashboard is JSON")
}

/// Its panels, without the rows between them.
pub fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().expect("panels").iter().filter(|panel| panel["type"] != "row")
}

/// Each query for all hosts, after the title of its panel.
pub fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for panel in panels(dashboard) {
        for target in panel["targets"].as_array().expect("targets") {
            let [title, query] = [&panel["title"], &target["expr"]].map(|text| text.as_str().expect("text"));
            found.push((title.to_owned(), query.replace("$host", ".*").replace("$__rate_interval", "1m")));
        }
    }
    found
}

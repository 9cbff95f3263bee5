//! Alert rules and the dashboard: each metric that they name is one that its component serves, and the dashboard has
//! the form that Grafana reads.
//!
//! In: files in docs, and the list of metrics that the lab reads from real components. Out: a failure that names the
//! alert or the panel. promtool plays the rules, and in the lab a real Prometheus runs the queries.

use super::dashboard::{dashboard, panels, queries};
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The rules, and what promtool plays for them.
const RULES: [(&str, &str); 2] = [
    (include_str!("../../docs/alerts.yaml"), include_str!("../alerts.yaml")),
    (include_str!("../../docs/alerts-components.yaml"), include_str!("../alerts-components.yaml")),
];
/// Words of PromQL that stand where a metric may.
const WORDS: [&str; 5] = ["and", "bool", "offset", "or", "unless"];
/// The fields of Grafana's schema (kinds/dashboard/dashboard_kind.cue) that the dashboard uses: Grafana ignores others.
const OF_DASHBOARD: [&str; 14] = [
    "annotations",
    "description",
    "editable",
    "graphTooltip",
    "links",
    "panels",
    "refresh",
    "schemaVersion",
    "tags",
    "templating",
    "time",
    "title",
    "uid",
    "version",
];
/// Those of a panel, and of a row.
const OF_PANEL: [&str; 11] = [
    "collapsed",
    "datasource",
    "description",
    "fieldConfig",
    "gridPos",
    "id",
    "options",
    "panels",
    "targets",
    "title",
    "type",
];
/// Those of the numbers of a panel.
const OF_NUMBERS: [&str; 6] = ["custom", "decimals", "max", "min", "thresholds", "unit"];

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

fn rules(file: &str) -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(file).unwrap();
    let groups = file["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The metrics of an expression, each with the jobs that its selector names.
fn selectors(expression: &str) -> Vec<(String, Vec<String>)> {
    // Words in ranges and in lists of labels are no metrics.
    let lists = Regex::new(r"\[[^\]]*\]|\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)").unwrap();
    let metric = Regex::new(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\(|\{[^}]*\}|)").unwrap();
    let job = Regex::new(r#"\bjob=~?"([^"]*)""#).unwrap();
    let expression = lists.replace_all(expression, " ");
    let selector = |found: regex::Captures<'_>| {
        let (name, rest) = (&found[1], &found[2]);
        let jobs = job.captures(rest).map(|jobs| jobs[1].split('|').map(str::to_owned).collect::<Vec<_>>());
        (rest != "(" && !WORDS.contains(&name)).then(|| (name.to_owned(), jobs.unwrap_or_default()))
    };
    metric.captures_iter(&expression).filter_map(selector).collect()
}

#[test]
fn alerts_and_the_dashboard_name_metrics_of_guards_and_those_that_the_lab_reads_from_components() {
    let words = include_str!("../../docs/healing.md").split(|c: char| !c.is_ascii_lowercase() && c != '_');
    // A test of the guard compares these with what it serves.
    let of_guards: BTreeSet<&str> = words.filter(|word| word.starts_with("hactl_")).collect();
    let lines = include_str!("../lab/metrics.tsv").lines();
    let read: BTreeSet<(&str, &str)> = lines.map(|line| line.split_once('\t').unwrap()).collect();
    let lines = include_str!("../../docs/prometheus-components.yaml").lines();
    let jobs: BTreeSet<&str> = lines.filter_map(|line| line.trim().strip_prefix("- job_name: ")).collect();
    let mut expressions = queries(&dashboard());
    for rule in RULES.iter().flat_map(|(file, _)| rules(file)) {
        expressions.push((text(&rule["alert"]), text(&rule["expr"])));
    }
    let mut named = BTreeSet::new();
    for (place, expression) in &expressions {
        let found = selectors(expression);
        assert!(!found.is_empty(), "{place} names no metric");
        for (metric, of) in found {
            if metric.starts_with("hactl_") {
                assert!(of_guards.contains(metric.as_str()), "{place}: guards serve no {metric}");
            } else if metric != "ALERTS" {
                assert!(!of.is_empty(), "{place}: {metric} without its job");
                for job in of {
                    assert!(jobs.contains(job.as_str()), "{place}: docs/prometheus-components.yaml has no job {job}");
                    named.insert((job, metric.clone()));
                }
            }
        }
    }
    // Prometheus makes it.
    named.retain(|(_, metric)| metric != "up");
    let named: BTreeSet<(&str, &str)> = named.iter().map(|(job, metric)| (job.as_str(), metric.as_str())).collect();
    assert_eq!(named, read, "tests/lab/metrics.tsv lists what alerts and the dashboard name");
}

#[test]
fn each_alert_says_what_to_do_and_promtool_has_a_cluster_that_raises_it_and_one_that_does_not() {
    for (file, played) in RULES {
        let cases: Value = serde_saphyr::from_str(played).unwrap();
        let quiet = cases["tests"][0]["input_series"].as_array().unwrap().iter();
        let quiet: BTreeSet<String> =
            quiet.map(|series| text(&series["series"]).split('{').next().unwrap().to_owned()).collect();
        let rules = rules(file);
        assert!(rules.len() >= 10);
        for rule in rules {
            let (alert, notes) = (text(&rule["alert"]), &rule["annotations"]);
            assert!(["warning", "critical"].contains(&text(&rule["labels"]["severity"]).as_str()), "{alert}");
            assert!(notes["summary"].is_string() && (notes["action"].is_string() || notes["description"].is_string()));
            assert!(played.contains(&format!("alertname=\"{alert}\"")), "promtool raises no {alert}");
            // Guards serve nothing about faults that they do not have.
            let of_components = |(metric, _): &(String, Vec<String>)| !metric.starts_with("hactl_");
            for (metric, _) in selectors(&text(&rule["expr"])).into_iter().filter(of_components) {
                assert!(quiet.contains(&metric), "{alert}: the cluster without alerts has no {metric}");
            }
        }
    }
}

/// The fields of an object that are not among these.
fn others(object: &Value, known: &[&str]) -> Vec<String> {
    object.as_object().unwrap().keys().filter(|key| !known.contains(&key.as_str())).cloned().collect()
}

#[test]
fn the_dashboard_has_panels_that_do_not_overlap_with_a_unit_and_the_chosen_prometheus() {
    let dashboard = dashboard();
    assert!(dashboard["schemaVersion"].as_u64().is_some_and(|version| version >= 36));
    assert!(["uid", "title"].into_iter().all(|key| dashboard[key].is_string()));
    assert!(others(&dashboard, &OF_DASHBOARD).is_empty(), "{:?}", others(&dashboard, &OF_DASHBOARD));
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    assert_eq!(variables.map(|variable| text(&variable["name"])).collect::<Vec<_>>(), ["datasource", "host"]);
    let unknown: Vec<_> = queries(&dashboard).into_iter().filter(|(_, query)| query.contains('$')).collect();
    assert_eq!(unknown, [], "queries with other variables");

    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = text(&panel["title"]);
        assert!(!title.is_empty() && ids.insert(panel["id"].as_u64().unwrap()), "{title}: {}", panel["id"]);
        assert!(others(panel, &OF_PANEL).is_empty(), "{title}: {:?}", others(panel, &OF_PANEL));
        let [x, y, width, height] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(width > 0 && height > 0 && x + width <= 24, "{title} is outside");
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{title} overlaps another panel");
        }
    }
    for panel in panels(&dashboard) {
        let (title, kind) = (text(&panel["title"]), text(&panel["type"]));
        assert!(["stat", "timeseries"].contains(&kind.as_str()), "{title} is a {kind}");
        assert_eq!(panel["datasource"], json!({"type": "prometheus", "uid": "${datasource}"}), "{title}");
        let numbers = &panel["fieldConfig"]["defaults"];
        assert!(others(numbers, &OF_NUMBERS).is_empty(), "{title}: {:?}", others(numbers, &OF_NUMBERS));
        let unit = text(&numbers["unit"]);
        let units = ["none", "s", "d", "bytes", "ops", "reqps", "percentunit"];
        assert!(units.contains(&unit.as_str()), "{title} has the unit {unit}");
        assert!(panel["options"].is_object() && panel["fieldConfig"]["overrides"].is_array(), "{title}");
        let targets = panel["targets"].as_array().unwrap();
        let names: BTreeSet<String> = targets.iter().map(|target| text(&target["refId"])).collect();
        assert!(!targets.is_empty() && names.len() == targets.len(), "{title}: {names:?}");
    }
}

#[test]
fn the_reader_of_expressions_itself_reads_as_meant() {
    let expression =
        r#"sum by (code) (rate(a_total{job=~"x|y", code=~"5.."}[5m])) / on() up{job="z"} and time() - b > 1"#;
    let found = selectors(expression).into_iter().map(|(metric, jobs)| format!("{metric} of {}", jobs.join(" and ")));
    assert_eq!(found.collect::<Vec<_>>(), ["a_total of x and y", "up of z", "b of "]);
}

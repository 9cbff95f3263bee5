//! Drains of a worker: `hactl maintain start` beside `kubectl drain`, with the same pods on the same hosts, in one run.
//!
//! `cargo test --test bench -- drains`. Pods of one Deployment leave one worker for another one, first without a budget,
//! then under one that lets a single pod go at a time. The times are those of the whole commands.

use crate::support::{Hactl, wait_for};
use hactl::lab::{Scoped, Silent, Spec};
use std::time::{Duration, Instant};

/// So many pods leave without a budget, and under one.
const PODS: [usize; 2] = [100, 30];
const READY: Duration = Duration::from_secs(600);

/// A Deployment on workers whose pods take a second to end, and its budget.
fn workload(image: &str, pods: usize, budget: bool) -> String {
    let container = format!(
        "{{name: c, image: {image:?}, imagePullPolicy: IfNotPresent, command: [/pause], lifecycle: {{preStop: {{sleep: \
         {{seconds: 1}}}}}}}}"
    );
    let deployment = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: many}}\nspec:\n  replicas: {pods}\n  selector: {{matchLabels: \
         {{app: many}}}}\n  template: {{metadata: {{labels: {{app: many}}}}, spec: {{terminationGracePeriodSeconds: 2, \
         containers: [{container}]}}}}\n"
    );
    let allowed = "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: many}\nspec: {maxUnavailable: 1, selector: \
                   {matchLabels: {app: many}}}\n";
    if budget { deployment + allowed } else { deployment }
}

struct Bench {
    lab: Scoped,
    hactl: Hactl,
    image: String,
}

impl Bench {
    fn pods_on(&self, host: &str) -> usize {
        let field = format!("--field-selector=spec.nodeName={host},status.phase=Running");
        let path = "jsonpath={.items[*].metadata.name}";
        self.hactl.kubectl(&["get", "pods", "-l", "app=many", &field, "-o", path]).out.split_whitespace().count()
    }

    /// Puts all pods on the worker w1, with another worker that has room for them.
    fn filled(&self, pods: usize, budget: bool) {
        self.hactl.kubectl(&["delete", "deployment,pdb", "many", "--ignore-not-found"]).ok();
        wait_for("no pods are left", READY, || self.pods_on("w1") + self.pods_on("w2") == 0);
        self.hactl.kubectl(&["uncordon", "w1"]).ok();
        self.hactl.kubectl(&["cordon", "w2"]).ok();
        let path = self.lab.dir().join("many.yaml");
        std::fs::write(&path, workload(&self.image, pods, budget)).expect("writable");
        self.hactl.kubectl(&["apply", "-f", path.to_str().expect("a path of letters")]).ok();
        wait_for("all pods run on w1", READY, || self.pods_on("w1") == pods);
        self.hactl.kubectl(&["uncordon", "w2"]).ok();
        if budget {
            let allowed = ["get", "pdb", "many", "-o", "jsonpath={.status.disruptionsAllowed}"];
            wait_for("the budget lets one go", READY, || self.hactl.kubectl(&allowed).out == "1");
        }
    }

    fn kubectl(&self) -> f64 {
        let begun = Instant::now();
        self.hactl.kubectl(&["drain", "w1", "--ignore-daemonsets"]).ok();
        begun.elapsed().as_secs_f64()
    }

    fn hactl(&self) -> f64 {
        let begun = Instant::now();
        self.hactl.run(&["maintain", "start", "w1", "--yes"]).ok();
        let took = begun.elapsed().as_secs_f64();
        self.hactl.run(&["maintain", "finish", "w1"]).ok();
        took
    }
}

/// Runs everything, and prints the table.
pub fn main() {
    let lab = Scoped::up(&Spec::new("b-drains").hosts(1, 2, 0), &Silent).expect("the lab comes up");
    let hactl = Hactl::new(lab.inventory());
    hactl.up().ok();
    let path = "jsonpath={.items[*].spec.containers[*].image}";
    let images = hactl.kubectl(&["-n", "kube-system", "get", "pods", "-o", path]).ok().out;
    let image = images.split_whitespace().find(|image| image.contains("pause")).expect("a pod of hactl does nothing");
    let bench = Bench { image: image.to_owned(), lab, hactl };
    println!("\n| drain of a worker | `kubectl drain` | hactl | ratio |\n|---|---|---|---|");
    for (pods, budget) in PODS.into_iter().zip([false, true]) {
        bench.filled(pods, budget);
        let theirs = bench.kubectl();
        bench.filled(pods, budget);
        let ours = bench.hactl();
        let what = if budget { "under a budget that lets one go at a time" } else { "without a budget" };
        println!("| {pods} pods, {what} | {theirs:.1} s | {ours:.1} s | {:.2}x |", ours / theirs);
    }
}

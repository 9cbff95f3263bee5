//! Drains of a worker: `hactl maintain start` beside `kubectl drain`, with the same pods on the same hosts, in one run.
//!
//! `cargo test --test bench -- drains [short]`. Pods of one Deployment leave one worker for another one, first without a
//! budget, then under one that lets a single pod go at a time; `short` leaves the longest of these out. The times are
//! those of the whole commands. Requests are those that the API server answers to each program.

use crate::admin::Admin;
use crate::requests::{self, Kinds, Request, now_ms};
use crate::support::{Hactl, wait_for};
use hactl::kube::{Change, Client, next_change};
use hactl::lab::{Scoped, Silent, Spec};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many pods leave without a budget, or under one.
const ROWS: [(usize, bool); 4] = [(100, false), (10, true), (30, true), (100, true)];
/// How `short` counts them.
const SHORT: usize = 3;
/// The most requests for each pod that hactl is to need.
const PER_POD: f64 = 1.2;
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
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
    admin: Admin,
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
        wait_for("all pods run on w1", READY, || {
            if self.pods_on("w2") > 0 {
                // A busy scheduler did not know yet that it is cordoned.
                self.hactl.kubectl(&["delete", "pods", "-l", "app=many", "--field-selector=spec.nodeName=w2"]).ok();
            }
            self.pods_on("w1") == pods
        });
        self.hactl.kubectl(&["uncordon", "w2"]).ok();
        if budget {
            let allowed = ["get", "pdb", "many", "-o", "jsonpath={.status.disruptionsAllowed}"];
            wait_for("the budget lets one go", READY, || self.hactl.kubectl(&allowed).out == "1");
        }
    }

    /// Times a command, and counts the requests of its program and how long the budget allowed nothing meanwhile.
    fn measured(&self, is_of_program: impl Fn(&Request) -> bool, pods: usize, act: impl FnOnce()) -> Drained {
        let budget = Budget::watch(&self.admin);
        let (from, begun) = (now_ms(), Instant::now());
        act();
        let (took, to) = (begun.elapsed().as_secs_f64(), now_ms());
        let refused = budget.refused();
        let asked: Vec<Request> = requests::between(&self.lab, from, to).into_iter().filter(is_of_program).collect();
        println!("    {}", Kinds::of(&asked));
        let pods = count(pods);
        Drained { took, per_pod: count(asked.len()) / pods, refused: refused.as_secs_f64() / pods }
    }

    fn kubectl(&self, pods: usize) -> Drained {
        self.measured(
            |one| one.agent.starts_with("kubectl/"),
            pods,
            || drop(self.hactl.kubectl(&["drain", "w1", "--ignore-daemonsets"]).ok()),
        )
    }

    /// The commands of hactl have a certificate of their own.
    fn hactl(&self, pods: usize) -> Drained {
        let drained = self.measured(
            |one| one.user == "hactl",
            pods,
            || drop(self.hactl.run(&["maintain", "start", "w1", "--yes"]).ok()),
        );
        self.hactl.run(&["maintain", "finish", "w1"]).ok();
        drained
    }
}

fn count(number: usize) -> f64 {
    u32::try_from(number).expect("so many").into()
}

/// Runs everything, and prints the table.
pub fn main(short: bool) {
    let lab = Scoped::up(&Spec::new("b-drains").hosts(1, 2, 0), &Silent).expect("the lab comes up");
    let hactl = Hactl::new(lab.inventory());
    hactl.up().ok();
    let path = "jsonpath={.items[*].spec.containers[*].image}";
    let images = hactl.kubectl(&["-n", "kube-system", "get", "pods", "-o", path]).ok().out;
    let image = images.split_whitespace().find(|image| image.contains("pause")).expect("a pod of hactl does nothing");
    let admin = Admin::new(&hactl.state(lab.name()).join("kubeconfig"));
    requests::log(&lab, None, || admin.is_served());
    let bench = Bench { image: image.to_owned(), lab, hactl, admin };
    let mut table = Vec::new();
    for (pods, budget) in ROWS.into_iter().take(if short { SHORT } else { ROWS.len() }) {
        bench.filled(pods, budget);
        let theirs = bench.kubectl(pods);
        bench.filled(pods, budget);
        let ours = bench.hactl(pods);
        let what = if budget { "under a budget that lets one go at a time" } else { "without a budget" };
        let refused = if budget { format!("{:.2} s, {:.2} s", theirs.refused, ours.refused) } else { "-".to_owned() };
        table.push(format!(
            "| {pods} pods, {what} | {:.1} s | {:.1} s | {:.2}x | {:.2} | {:.2} | {refused} |",
            theirs.took,
            ours.took,
            ours.took / theirs.took,
            theirs.per_pod,
            ours.per_pod
        ));
        println!("{}", table[table.len() - 1]);
        if ours.per_pod > PER_POD {
            println!("    MISSED: {:.2} requests for each pod", ours.per_pod);
        }
    }
    println!(
        "\n| drain of a worker | `kubectl drain` | hactl | ratio | requests a pod: kubectl | hactl | the budget refuses, a pod |\n\
         |---|---|---|---|---|---|---|"
    );
    for row in &table {
        println!("{row}");
    }
}

/// What a drain took, in seconds, and its requests.
struct Drained {
    took: f64,
    per_pod: f64,
    /// How long the budget allowed no eviction, for each pod: no tool can be faster.
    refused: f64,
}

/// How many disruptions a budget allowed, and since when.
type Allowed = Arc<Mutex<Vec<(Instant, bool)>>>;

/// Watches the budget until the end of a drain.
struct Budget {
    allowed: Allowed,
    task: tokio::task::JoinHandle<()>,
}

impl Budget {
    fn watch(admin: &Admin) -> Self {
        let allowed = Allowed::default();
        let task = admin.runtime.spawn(seen(admin.client.clone(), Arc::clone(&allowed)));
        Self { allowed, task }
    }

    /// How long it allowed none.
    fn refused(self) -> Duration {
        self.task.abort();
        let mut allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        let last = allowed.last().is_some_and(|(_, allows)| *allows);
        allowed.push((Instant::now(), last));
        let refuses = allowed.windows(2).filter(|pair| !pair[0].1);
        refuses.map(|pair| pair[1].0 - pair[0].0).sum()
    }
}

async fn seen(client: Client, allowed: Allowed) {
    loop {
        let mut live = client.watch(BUDGETS, "", None).await.ok();
        if live.is_none() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        while live.is_some() {
            let Some(change) = next_change(&mut live).await else { break };
            if let Change::Is(budget) = change {
                let allows = budget.pointer("/status/disruptionsAllowed").and_then(Value::as_i64).unwrap_or(0) > 0;
                allowed.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), allows));
            }
        }
    }
}

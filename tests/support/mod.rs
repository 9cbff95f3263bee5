//! What the lab tests and the benchmark share: running hactl, an API client, and a writer that verifies every
//! acknowledged write.

mod machine;

use machine::Watch;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// hactl with one inventory.
#[derive(Clone)]
pub struct Hactl {
    /// The binary.
    pub program: PathBuf,
    /// The inventory.
    pub inventory: PathBuf,
}

/// How a command ended.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
    pub took: Duration,
}

impl Ran {
    /// Everything it printed, for a failed assertion.
    pub fn all(&self) -> String {
        format!("exit {} after {:?}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.took, self.out, self.err)
    }
    pub fn ok(self) -> Self {
        self.exits(0)
    }
    pub fn exits(self, code: i32) -> Self {
        assert!(self.code == code, "expected exit {code}: {}", self.all());
        self
    }
    pub fn says(self, text: &str) -> Self {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = [&self.out, &self.err].map(|stream| words(stream).contains(&words(text)));
        assert!(said.contains(&true), "expected {text:?}: {}", self.all());
        self
    }
}

impl Hactl {
    /// The hactl that was built with the tests, or the one that `HACTL_BIN` names, such as a release.
    pub fn new(inventory: PathBuf) -> Self {
        let program = std::env::var_os("HACTL_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_hactl").into());
        Self { program: program.into(), inventory }
    }
    pub fn inventory(&self) -> &Path {
        &self.inventory
    }
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-i").arg(&self.inventory).args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let begun = Instant::now();
        let output = self.command(arguments).output().expect("hactl can be started");
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            took: begun.elapsed(),
        }
    }
    pub fn up(&self) -> Ran {
        self.run(&["up", "--yes"])
    }
    pub fn kubectl(&self, arguments: &[&str]) -> Ran {
        let mut all = vec!["kubectl", "--"];
        all.extend(arguments);
        self.run(&all)
    }
    /// Waits until `status` passes every check, and again soon after: a kubelet that has just started has not reported
    /// yet, so the API still shows its last report.
    pub fn healthy(&self, within: Duration) -> Duration {
        let begun = Instant::now();
        loop {
            let mut status = self.run(&["status"]);
            if status.code == 0 {
                std::thread::sleep(Duration::from_secs(5));
                status = self.run(&["status"]);
            }
            if status.code == 0 {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < within, "status does not pass twice within {within:?}: {}", status.all());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    /// The administrator's state directory.
    pub fn state(&self, cluster: &str) -> PathBuf {
        self.inventory.parent().expect("an inventory is in a folder").join(".hactl").join(cluster)
    }
}

/// How long the lock of a killed run may be held when none of its operations still runs.
pub const GIVEN_BACK: Duration = Duration::from_secs(40);

/// Runs a command after a killed run, and repeats it while that run's lock is held.
pub fn once_free(within: Duration, run: impl Fn() -> Ran) -> Ran {
    let begun = Instant::now();
    loop {
        let ran = run();
        if ran.code != 6 || begun.elapsed() >= within {
            return ran;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Waits for a condition with a deadline; panics with what it waited for when the deadline passes.
pub fn wait_for(what: &str, within: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < within, "{what}: not within {within:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    begun.elapsed()
}

/// An API client with a kubeconfig and a new connection for every request.
#[derive(Clone)]
pub struct Api {
    client: reqwest::Client,
    base: String,
    runtime: Arc<tokio::runtime::Runtime>,
}

impl Api {
    pub fn new(kubeconfig: &Path, timeout: Duration) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let text = std::fs::read_to_string(kubeconfig).expect("the kubeconfig exists");
        let config: Value = serde_saphyr::from_str(&text).expect("a kubeconfig is YAML");
        let data = |path: &str| {
            use base64::Engine as _;
            let text = config.pointer(path).and_then(Value::as_str).expect("the kubeconfig has it");
            base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
        };
        let mut identity = data("/users/0/user/client-certificate-data");
        identity.extend(data("/users/0/user/client-key-data"));
        let ca = data("/clusters/0/cluster/certificate-authority-data");
        let client = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(&ca).expect("a certificate")])
            .identity(reqwest::Identity::from_pem(&identity).expect("an identity"))
            .pool_max_idle_per_host(0)
            .timeout(timeout)
            .build()
            .expect("a client");
        let base = config.pointer("/clusters/0/cluster/server").and_then(Value::as_str).expect("a server").to_owned();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        Self { client, base, runtime: Arc::new(runtime) }
    }

    /// The same client for one API server at its own address.
    pub fn at(&self, address: std::net::Ipv4Addr) -> Self {
        Self { base: format!("https://{address}:6443"), ..self.clone() }
    }

    pub fn get(&self, path: &str) -> Result<Value, String> {
        let request = self.client.get(format!("{}{path}", self.base));
        self.runtime.block_on(async { send(request).await })
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        let request = self.client.post(format!("{}{path}", self.base));
        let request = request.header("content-type", "application/json").body(body.to_string());
        self.runtime.block_on(async { send(request).await })
    }

    pub fn delete(&self, path: &str) -> Result<Value, String> {
        let request = self.client.delete(format!("{}{path}", self.base));
        self.runtime.block_on(async { send(request).await })
    }

    /// Opens a new connection every `every` that reads an object, as a client does, until it is ended; records how long
    /// each read took, or why it failed. It does not read `/readyz`: an API server that is shutting down, or that still
    /// reconciles its RBAC roles with etcd, reports there that it is not ready although it serves.
    pub fn reads(&self, every: Duration) -> ReadLoop {
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, client, url) =
            (Arc::clone(&stop), self.client.clone(), format!("{}/api/v1/namespaces/default", self.base));
        let begun = Instant::now();
        let task = self.runtime.spawn(async move {
            let mut tasks = Vec::new();
            let mut ticks = tokio::time::interval(every);
            while !flag.load(Ordering::Relaxed) {
                ticks.tick().await;
                let request = client.get(&url);
                let at = begun.elapsed();
                tasks.push(tokio::spawn(async move {
                    let start = Instant::now();
                    let result = send_text(request).await;
                    (at, start.elapsed(), result.err())
                }));
            }
            let mut reads = Vec::new();
            for task in tasks {
                reads.push(task.await.expect("a read ends"));
            }
            reads
        });
        let (since, machine) = (SystemTime::now(), Watch::begin());
        ReadLoop { begun, since, stop: Stop(stop), machine, task, runtime: Arc::clone(&self.runtime) }
    }
}

/// Reads that run in the background.
pub struct ReadLoop {
    begun: Instant,
    pub since: SystemTime,
    stop: Stop,
    machine: Watch,
    task: tokio::task::JoinHandle<Vec<Probe>>,
    runtime: Arc<tokio::runtime::Runtime>,
}

/// Stops the task that polls the flag when dropped, also when a scenario panics.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One read: when it began, how long it took, and why it failed if it did.
pub type Probe = (Duration, Duration, Option<String>);

/// All reads, and how long the most stalled host got no processor in its worst second meanwhile.
pub struct Reads {
    all: Vec<Probe>,
    pub since: SystemTime,
    pub stalled: Duration,
    /// The same of the three most stalled hosts together.
    pub three_stalled: Duration,
}

impl Reads {
    /// The reads of one kind, and the others.
    pub fn partition(self, of_kind: impl Fn(&Probe) -> bool) -> (Vec<Probe>, Self) {
        let (found, all) = self.all.into_iter().partition(|read| of_kind(read));
        (found, Self { all, ..self })
    }
    /// The reads alone.
    pub fn all(self) -> Vec<Probe> {
        self.all
    }
}

impl std::ops::Deref for Reads {
    type Target = Vec<Probe>;
    fn deref(&self) -> &Vec<Probe> {
        &self.all
    }
}

impl ReadLoop {
    /// The time since the first read.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
    pub fn end(self) -> Reads {
        drop(self.stop);
        let (stalls, stalled) = self.machine.end();
        if !stalls.is_empty() {
            let shown: Vec<String> = stalls.iter().map(ToString::to_string).collect();
            println!("        stalls of the machine: {}", shown.join(", "));
        }
        let all = self.runtime.block_on(self.task).expect("the reads end");
        Reads { all, since: self.since, stalled: stalled.one, three_stalled: stalled.three }
    }
}

async fn send_text(request: reqwest::RequestBuilder) -> Result<String, String> {
    let response = request.send().await.map_err(|e| chain(&e))?;
    let status = response.status();
    let text = response.text().await.map_err(|e| chain(&e))?;
    if status.is_success() {
        Ok(text)
    } else {
        Err(format!("{status}: {}", text.chars().take(1000).collect::<String>()))
    }
}

async fn send(request: reqwest::RequestBuilder) -> Result<Value, String> {
    serde_json::from_str(&send_text(request).await?).map_err(|e| e.to_string())
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// How long a writer pauses after a failed write.
const AGAIN: Duration = Duration::from_millis(50);

/// Longer pauses are printed.
const PAUSE: Duration = Duration::from_millis(800);

/// The most failed attempts that are printed, the last ones: a host that boots slowly refuses thousands.
const MOST_SHOWN: usize = 100;

/// What a writer did.
struct Written {
    acknowledged: Vec<String>,
    /// How many attempts failed.
    failures: usize,
    /// The longest pause between two acknowledged writes, when it ended, and the attempts that failed in it: how long
    /// each took, and why it failed.
    longest: Duration,
    ended: Duration,
    failed: Vec<(Duration, String)>,
}

impl Written {
    /// Records a pause if it is the longest so far.
    fn paused(&mut self, pause: Duration, ended: Duration, failed: Vec<(Duration, String)>) {
        if pause > self.longest {
            (self.longest, self.ended, self.failed) = (pause, ended, failed);
        }
    }
}

/// Creates one ConfigMap after the other and remembers those that were acknowledged.
pub struct Writer {
    stop: Stop,
    thread: std::thread::JoinHandle<Written>,
    api: Api,
}

impl Writer {
    /// One write after the other without a pause.
    pub fn start(api: &Api, prefix: &str) -> Self {
        Self::every(Duration::ZERO, api, prefix)
    }

    /// One write per interval, or as soon as the previous one has ended.
    pub fn every(every: Duration, api: &Api, prefix: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, own, prefix) = (Arc::clone(&stop), api.clone(), prefix.to_owned());
        let thread = std::thread::spawn(move || {
            let (begun, mut last) = (Instant::now(), Instant::now());
            let mut failed = Vec::new();
            let mut written = Written {
                acknowledged: Vec::new(),
                failures: 0,
                longest: Duration::ZERO,
                ended: Duration::ZERO,
                failed: Vec::new(),
            };
            for number in 0u32.. {
                if flag.load(Ordering::Relaxed) {
                    break;
                }
                let name = format!("{prefix}-{number}");
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"by": prefix}}, "data": {"n": number.to_string()}});
                let tried = Instant::now();
                if let Err(why) = own.post("/api/v1/namespaces/default/configmaps", &body) {
                    failed.push((tried.elapsed(), why));
                    written.failures += 1;
                    // As clients do: an immediate retry takes processor time from the API server that should answer it.
                    std::thread::sleep(AGAIN);
                    continue;
                }
                written.acknowledged.push(name);
                written.paused(last.elapsed(), begun.elapsed(), std::mem::take(&mut failed));
                last = Instant::now();
                std::thread::sleep(every.saturating_sub(tried.elapsed()));
            }
            // A pause that is not over when the writer is stopped counts as well.
            if !failed.is_empty() {
                written.paused(last.elapsed(), begun.elapsed(), failed);
            }
            written
        });
        Self { stop: Stop(stop), thread, api: api.clone() }
    }

    /// Stops, and checks that every acknowledged write exists. Returns how many there are, and the longest pause
    /// between two.
    pub fn end(self) -> (usize, Duration) {
        let (written, _, longest) = self.account();
        (written, longest)
    }

    /// The same; also checks that no pause was this long.
    pub fn end_within(self, most: Duration) -> (usize, Duration) {
        let (written, _, longest, met) = self.checked();
        assert!(longest < most, "{met}");
        (written, longest)
    }

    /// The same; also returns how many attempts failed.
    pub fn account(self) -> (usize, usize, Duration) {
        let (written, failures, longest, _) = self.checked();
        (written, failures, longest)
    }

    fn checked(self) -> (usize, usize, Duration, String) {
        drop(self.stop);
        let Written { acknowledged, failures, longest, ended, failed } = self.thread.join().expect("the writer ends");
        let (all, last) = (failed.len(), &failed[failed.len().saturating_sub(MOST_SHOWN)..]);
        let met = format!("a writer waited for {longest:.1?} until {ended:.1?}; {all} failed attempts: {last:.1?}");
        if longest > PAUSE {
            println!("        {met}");
        }
        assert!(!acknowledged.is_empty(), "no write was ever acknowledged");
        let mut list = Err("not asked".to_owned());
        wait_for("the ConfigMaps can be listed", Duration::from_secs(60), || {
            list = self.api.get("/api/v1/namespaces/default/configmaps");
            list.is_ok()
        });
        let list = list.expect("the list was read");
        let names: std::collections::BTreeSet<&str> = list["items"]
            .as_array()
            .expect("a list has items")
            .iter()
            .filter_map(|i| i.pointer("/metadata/name").and_then(Value::as_str))
            .collect();
        let lost: Vec<&String> = acknowledged.iter().filter(|n| !names.contains(n.as_str())).collect();
        assert!(lost.is_empty(), "{} acknowledged writes are lost: {lost:?}", lost.len());
        (acknowledged.len(), failures, longest, met)
    }
}

/// etcdctl on a control-plane host, as root, with a certificate that may write.
pub const ETCDCTL: &str = "sudo etcdctl --endpoints=https://127.0.0.1:2379 --cacert=/etc/etcd/pki/ca.crt \
    --cert=/etc/kubernetes/pki/apiserver-etcd-client.crt --key=/etc/kubernetes/pki/apiserver-etcd-client.key";

/// The blocks of this kind in a runbook, which a person would paste, in their order.
pub fn blocks(runbook: &str, kind: &str) -> Vec<String> {
    let fence = format!("\n```{kind}\n");
    let all = runbook.split(&fence).skip(1);
    all.map(|rest| rest.split("\n```").next().unwrap_or_default().to_owned()).collect()
}

/// The manual procedure of the runbook, with its variable set to the host that has the newest data.
pub fn by_hand(runbook: &str, source: &str) -> Vec<String> {
    let set = |step: String| match step.split_once("source=") {
        Some((before, _)) if !step.contains("ctl ") => format!("{before}source={source}"),
        _ => step,
    };
    blocks(runbook, "sh").into_iter().map(set).collect()
}

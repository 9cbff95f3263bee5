//! What the lab tests and the benchmark share: running hactl, an API client of their own, a writer that never lies.

mod machine;

use machine::Watch;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// hactl, working on one inventory.
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
        assert!(self.out.contains(text) || self.err.contains(text), "expected {text:?}: {}", self.all());
        self
    }
}

impl Hactl {
    /// The hactl that was built with the tests, or the one that `HACTL_BIN` names: a release, say.
    pub fn new(inventory: PathBuf) -> Self {
        let program = std::env::var_os("HACTL_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_hactl").into());
        Self { program: program.into(), inventory }
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
    /// The administrator's state folder.
    pub fn state(&self, cluster: &str) -> PathBuf {
        self.inventory.parent().expect("an inventory lies in a folder").join(".hactl").join(cluster)
    }
}

/// Within so long a killed run's lock is given back where nothing is left of what it did.
pub const GIVEN_BACK: Duration = Duration::from_secs(40);

/// Runs something after a run that was killed, whose lock is given back within seconds, not after hours.
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

/// Waits for a condition with a deadline; says what it waited for when it passes.
pub fn wait_for(what: &str, within: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < within, "{what}: not within {within:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    begun.elapsed()
}

/// An API client with the administrator's own kubeconfig and a new connection for every request.
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
            let text = config.pointer(path).and_then(Value::as_str).expect("the kubeconfig carries it");
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

    /// The same client for one API server by its own address.
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

    /// New connections every `every` that read an object, as a client's would, until told to stop: how long each took, or why it failed.
    /// Not `/readyz`: an API server that stops, and one that still compares its own roles with what etcd has, says there that it is
    /// not ready, and serves.
    pub fn reads(&self, every: Duration) -> Knocking {
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
            let mut knocks = Vec::new();
            for task in tasks {
                knocks.push(task.await.expect("a knock ends"));
            }
            knocks
        });
        Knocking { begun, stop: Stop(stop), machine: Watch::begin(), task, runtime: Arc::clone(&self.runtime) }
    }
}

/// Connections being tried in the background.
pub struct Knocking {
    begun: Instant,
    stop: Stop,
    machine: Watch,
    task: tokio::task::JoinHandle<Vec<Probe>>,
    runtime: Arc<tokio::runtime::Runtime>,
}

/// Ends who looks at the flag, also where a scenario fails and nobody ends it.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// When it was tried, how long it took, and why it failed if it did.
pub type Probe = (Duration, Duration, Option<String>);

/// All connections that were tried, and for how much of its worst second some host got no processor meanwhile.
pub struct Knocks {
    all: Vec<Probe>,
    pub stalled: Duration,
}

impl Knocks {
    /// Those of one kind, and the others.
    pub fn partition(self, of_kind: impl Fn(&Probe) -> bool) -> (Vec<Probe>, Self) {
        let (found, all) = self.all.into_iter().partition(|knock| of_kind(knock));
        (found, Self { all, stalled: self.stalled })
    }
    /// The connections alone.
    pub fn all(self) -> Vec<Probe> {
        self.all
    }
}

impl std::ops::Deref for Knocks {
    type Target = Vec<Probe>;
    fn deref(&self) -> &Vec<Probe> {
        &self.all
    }
}

impl Knocking {
    /// Since the first knock.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
    pub fn end(self) -> Knocks {
        drop(self.stop);
        let (stalls, stalled) = self.machine.end();
        if !stalls.is_empty() {
            let told: Vec<String> = stalls.iter().map(ToString::to_string).collect();
            println!("        the machine itself: {}", told.join(", "));
        }
        Knocks { all: self.runtime.block_on(self.task).expect("the knocking ends"), stalled }
    }
}

async fn send_text(request: reqwest::RequestBuilder) -> Result<String, String> {
    let response = request.send().await.map_err(|e| chain(&e))?;
    let status = response.status();
    let text = response.text().await.map_err(|e| chain(&e))?;
    if status.is_success() {
        Ok(text)
    } else {
        Err(format!("{status}: {}", text.chars().take(200).collect::<String>()))
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

/// How long a writer rests after a write that failed.
const AGAIN: Duration = Duration::from_millis(50);

/// What a pause is that is told about.
const PAUSE: Duration = Duration::from_millis(800);

/// What a writer did.
struct Written {
    acknowledged: Vec<String>,
    /// How many tries failed.
    failures: usize,
    /// The longest pause between two, when it ended, and the tries that failed in it: how long each took, and what it met.
    longest: Duration,
    ended: Duration,
    failed: Vec<(Duration, String)>,
}

impl Written {
    /// Notes a pause if it is the longest so far.
    fn paused(&mut self, pause: Duration, ended: Duration, failed: Vec<(Duration, String)>) {
        if pause > self.longest {
            (self.longest, self.ended, self.failed) = (pause, ended, failed);
        }
    }
}

/// Writes one ConfigMap after the other and remembers those that were acknowledged.
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

    /// A write each time that so much has passed, or as soon as the one before has ended.
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
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": number.to_string()}});
                let tried = Instant::now();
                if let Err(why) = own.post("/api/v1/namespaces/default/configmaps", &body) {
                    failed.push((tried.elapsed(), why));
                    written.failures += 1;
                    // As clients do: who asks again at once takes the processor from whoever is to serve it.
                    std::thread::sleep(AGAIN);
                    continue;
                }
                written.acknowledged.push(name);
                written.paused(last.elapsed(), begun.elapsed(), std::mem::take(&mut failed));
                last = Instant::now();
                std::thread::sleep(every.saturating_sub(tried.elapsed()));
            }
            // Who is still waiting when it is told to stop has waited as well.
            if !failed.is_empty() {
                written.paused(last.elapsed(), begun.elapsed(), failed);
            }
            written
        });
        Self { stop: Stop(stop), thread, api: api.clone() }
    }

    /// Stops, and checks that every acknowledged write is there. Returns how many, and the longest pause between two.
    pub fn end(self) -> (usize, Duration) {
        let (written, _, longest) = self.account();
        (written, longest)
    }

    /// The same, and that no pause was so long.
    pub fn end_within(self, most: Duration) -> (usize, Duration) {
        let (written, _, longest, met) = self.checked();
        assert!(longest < most, "{met}");
        (written, longest)
    }

    /// The same, with how many tries failed in between.
    pub fn account(self) -> (usize, usize, Duration) {
        let (written, failures, longest, _) = self.checked();
        (written, failures, longest)
    }

    fn checked(self) -> (usize, usize, Duration, String) {
        drop(self.stop);
        let Written { acknowledged, failures, longest, ended, failed } = self.thread.join().expect("the writer ends");
        let met = format!("a writer waited for {longest:.1?} until {ended:.1?}; what failed meanwhile: {failed:.1?}");
        if longest > PAUSE {
            println!("        {met}");
        }
        assert!(!acknowledged.is_empty(), "no write was ever acknowledged");
        let mut list = Err("not asked".to_owned());
        wait_for("the list of what was written", Duration::from_secs(60), || {
            list = self.api.get("/api/v1/namespaces/default/configmaps");
            list.is_ok()
        });
        let list = list.expect("just seen to be fine");
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

/// etcd's own client on a control-plane host, as root, with the certificate that may write.
pub const ETCDCTL: &str = "sudo etcdctl --endpoints=https://127.0.0.1:2379 --cacert=/etc/etcd/pki/ca.crt \
    --cert=/etc/kubernetes/pki/apiserver-etcd-client.crt --key=/etc/kubernetes/pki/apiserver-etcd-client.key";

/// What a person would paste of a runbook: its blocks of this kind, in their order.
pub fn blocks(runbook: &str, kind: &str) -> Vec<String> {
    let fence = format!("\n```{kind}\n");
    let all = runbook.split(&fence).skip(1);
    all.map(|rest| rest.split("\n```").next().unwrap_or_default().to_owned()).collect()
}

/// The way by hand, with what the page asks its reader to set: who has the newest data.
pub fn by_hand(runbook: &str, source: &str) -> Vec<String> {
    let set = |step: String| match step.split_once("source=") {
        Some((before, _)) if !step.contains("ctl ") => format!("{before}source={source}"),
        _ => step,
    };
    blocks(runbook, "sh").into_iter().map(set).collect()
}

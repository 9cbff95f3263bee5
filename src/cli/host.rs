//! The hidden verbs, which run on a host or inside a pod.

use super::common::block_on;
use crate::agent::{Fence, Root};
use crate::model::drill::{DrillOutcome, OwnDrill, Showed};
use crate::model::names::{HostName, PeerUrl};
use crate::model::recovery::STAYS_DOWN;
use crate::protocol::EtcdAsk;
use crate::report::Exit;
use clap::Args;
use rustix::fs::Mode;
use rustix::process::umask;
use std::fmt::Display;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub struct DnsArgs {
    /// The DNS server
    server: IpAddr,
    /// The name to resolve
    name: String,
    /// Retry for this many seconds
    #[arg(long, default_value_t = 0)]
    within: u64,
}

#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// The API server's URL
    #[arg(long)]
    server: String,
    /// CA certificate
    #[arg(long)]
    ca: PathBuf,
    /// Client certificate
    #[arg(long)]
    cert: PathBuf,
    /// Client key
    #[arg(long)]
    key: PathBuf,
    /// File that lists what each Node may have in its serving certificate
    #[arg(long)]
    allow: PathBuf,
}

#[derive(Debug, Args)]
pub struct CopiesArgs {
    /// The request, as JSON
    ask: String,
}

/// How to authenticate to etcd.
#[derive(Debug, Args)]
struct EtcdClient {
    /// CA certificate of etcd
    #[arg(long)]
    ca: String,
    /// Client certificate
    #[arg(long)]
    cert: String,
    /// Client key
    #[arg(long)]
    key: String,
}

impl EtcdClient {
    fn ask(&self, url: &str, data_dir: &str) -> EtcdAsk {
        let [url, data_dir] = [url, data_dir].map(ToOwned::to_owned);
        EtcdAsk { url, data_dir, ca: self.ca.clone(), cert: self.cert.clone(), key: self.key.clone() }
    }
}

/// Writes a line to the journal; ignores failure, which could not be reported anywhere.
fn journal(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[derive(Debug, Args)]
pub struct FenceArgs {
    /// etcd's data directory
    #[arg(long)]
    data_dir: String,
    #[command(flatten)]
    client: EtcdClient,
    /// Peer URL of this host's member
    #[arg(long)]
    peer: PeerUrl,
}

/// Arguments of `host-positions`.
#[derive(Debug, Args)]
pub struct PositionsArgs {
    #[command(flatten)]
    client: EtcdClient,
}

/// Arguments of `host-guard`.
#[derive(Debug, Args)]
pub struct GuardArgs {
    /// The name of this host in the policy
    #[arg(long)]
    host: HostName,
}

/// Arguments of `host-hosting`.
#[derive(Debug, Args)]
pub struct HostingArgs {
    /// The address of this host's API server
    #[arg(long)]
    address: IpAddr,
    /// The port of all API servers
    #[arg(long)]
    port: u16,
    /// The address of an API server; all of them, in the same order on every host
    #[arg(long = "server", required = true)]
    servers: Vec<IpAddr>,
}

/// Arguments of `host-node-agent`.
#[derive(Debug, Args)]
pub struct NodeAgentArgs {
    /// The Node of this host
    #[arg(long)]
    node: HostName,
    /// The URL of the API, as the kubelet has it
    #[arg(long)]
    server: String,
    /// The kernel's name of the boot, as systemd has it
    #[arg(long)]
    boot: String,
}

/// Arguments of `host-await-turn`.
#[derive(Debug, Args)]
pub struct TurnArgs {
    /// The address that must be free
    #[arg(long)]
    address: IpAddr,
    /// The port
    #[arg(long)]
    port: u16,
    /// What to run then, instead of this program.
    #[arg(last = true)]
    command: Vec<std::ffi::OsString>,
}

/// Arguments of `host-pass-to`.
#[derive(Debug, Args)]
pub struct PassToArgs {
    /// The member, by its host's name
    #[arg(long)]
    member: HostName,
}

/// Runs the work on its own runtime; `end` turns its result into an exit code.
fn run<T>(work: impl Future<Output = T>, end: impl FnOnce(T) -> Exit) -> Exit {
    block_on(async { Ok(work.await) }).map_or_else(|verdict| verdict.exit, end)
}

/// The exit code of a verb; a failure goes to the journal.
fn ended<E: Display>(verb: &str, result: Result<(), E>) -> Exit {
    if let Err(error) = &result {
        journal(&format!("hactl {verb}: {error}"));
    }
    Exit::of_success(result.is_ok())
}

/// Serves the agent protocol on standard input and output.
pub fn serve() -> Exit {
    // A login user may have a umask under which etcd's user could not run the delivered program.
    umask(Mode::WGRP | Mode::WOTH);
    let served = async { crate::agent::serve(tokio::io::stdin(), tokio::io::stdout()).await };
    run(served, |served| ended("host", served))
}

/// Interval between two attempts.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Returns 0 if the name resolves.
pub fn dns(args: &DnsArgs) -> Exit {
    let until = Instant::now() + Duration::from_secs(args.within.min(3600));
    let answer = loop {
        let answer = crate::agent::dns_probe(args.server, &args.name);
        if answer.as_ref().is_ok_and(|addresses| !addresses.is_empty()) || Instant::now() >= until {
            break answer;
        }
        std::thread::sleep(ASK_AGAIN);
    };
    let addresses = answer.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    let code = Exit::of_success(addresses.as_ref().is_ok_and(|all| !all.is_empty()));
    let _ = writeln!(std::io::stdout(), "{}", addresses.unwrap_or_else(|error| error.to_string()));
    code
}

/// Writes the finding to standard error; the exit code decides whether etcd may start.
pub fn fence(args: &FenceArgs) -> Exit {
    let ask = args.client.ask("", &args.data_dir);
    run(crate::agent::fence(&Root::host(), &ask, &args.peer), |found| {
        let (line, code) = match found {
            Fence::NoData => return Exit::Done,
            Fence::Starts(line) => (line, Exit::Done),
            Fence::StaysDown(line) => (line, Exit::Program(STAYS_DOWN)),
        };
        journal(&line);
        code
    })
}

/// Records the positions of the etcd members until it is stopped.
pub fn positions(args: &PositionsArgs) -> Exit {
    let ask = args.client.ask("https://127.0.0.1:2379", "");
    run(crate::agent::record_positions(&Root::host(), &ask, journal), |()| Exit::Done)
}

/// Watches until one of its files changes or it is stopped.
pub fn guard(args: &GuardArgs) -> Exit {
    resident("host-guard", crate::guard::run(Root::host(), &args.host, journal))
}

/// Runs a resident program. One thread is enough for a few messages a second, and needs the least memory.
fn resident<E: Display>(verb: &str, work: impl Future<Output = Result<(), E>>) -> Exit {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let done = runtime.block_on(work);
            runtime.shutdown_background();
            ended(verb, done)
        }
        Err(error) => ended(verb, Err(error)),
    }
}

/// Keeps a control plane on this host where its pods do not, until it is stopped.
pub fn hosting(args: &HostingArgs) -> Exit {
    let place = crate::guard::Place { own: args.address, port: args.port, all: args.servers.clone() };
    let kept = async {
        crate::guard::keep_hosting(Root::host(), place, journal).await;
        Ok::<_, std::convert::Infallible>(())
    };
    resident("host-hosting", kept)
}

/// Serves the Node of this host until it is stopped.
pub fn node_agent(args: &NodeAgentArgs) -> Exit {
    let place = (args.server.clone(), args.boot.as_str());
    resident("host-node-agent", crate::guard::serve_node(Root::host(), args.node.clone(), place, journal))
}

/// Serves the metrics of this host's components until it is stopped.
pub fn metrics() -> Exit {
    resident("host-metrics", crate::guard::serve_metrics(Root::host(), journal))
}

/// Once nobody listens there, becomes the command, if there is one; otherwise returns.
pub fn await_turn(args: &TurnArgs) -> Exit {
    crate::agent::hosting::await_turn(&Root::host(), args.address, args.port);
    let Some((program, words)) = args.command.split_first() else { return Exit::Done };
    // It returns only if it fails.
    let error = std::process::Command::new(program).args(words).exec();
    ended("host-await-turn", Err(error))
}

/// Serves one connection of another guard, which systemd has accepted.
pub fn peer(args: &GuardArgs) -> Exit {
    let stream = std::io::stdin().as_fd().try_clone_to_owned().map(std::net::TcpStream::from);
    let served = async { crate::guard::peer(&Root::host(), &args.host, stream?).await };
    run(served, |served| ended("host-peer", served))
}

/// Makes the etcd member of this host join again. A failure is also in a file, for the guard.
pub fn heal(args: &GuardArgs) -> Exit {
    run(crate::guard::heal(&Root::host(), &args.host, journal), |healed| ended("host-heal", healed))
}

/// Copies the newest snapshots of the other etcd hosts. A failure is also in a file, for `hactl status`.
pub fn peer_snapshots(args: &GuardArgs) -> Exit {
    let root = Root::host();
    run(crate::guard::copy_peer_snapshots(&root, &args.host, journal), |copied| ended("host-peer-snapshots", copied))
}

/// How long a load balancer that does not answer is retried. A reload takes it less than two seconds.
const ANSWERS: Duration = Duration::from_secs(60);

/// Returns 0 if the load balancer sends clients to the member, or if no load balancer lists it.
pub fn pass_to(args: &PassToArgs) -> Exit {
    let until = Instant::now() + ANSWERS;
    let passed = async {
        loop {
            match crate::agent::pass_to(&Root::host(), &args.member).await {
                Err(_) if Instant::now() < until => tokio::time::sleep(ASK_AGAIN).await,
                passed => return passed,
            }
        }
    };
    run(passed, |passed| ended("host-pass-to", passed.map_err(|fault| fault.what)))
}

/// Approves kubelet serving certificates until it is stopped.
pub fn approve(args: &ApproveArgs) -> Exit {
    let settings = crate::kube::approver::Settings {
        server: args.server.clone(),
        ca: args.ca.clone(),
        cert: args.cert.clone(),
        key: args.key.clone(),
        allow: args.allow.clone(),
    };
    run(crate::kube::approver::run(&settings, journal), |approved| ended("host-approve", approved))
}

/// Takes a snapshot if it is this host's turn.
pub fn snapshot() -> Exit {
    // Standard output and standard error go to the journal.
    run(crate::agent::save_bundle(Root::host()), |saved| {
        let text = match saved {
            Ok(None) => "this member is the leader: the followers take the snapshots".to_owned(),
            Ok(Some(bundle)) => {
                let (revision, keys, ms) = (bundle.point.revision, bundle.proof.keys, bundle.proof.restored_ms);
                format!("{}: revision {revision}, {keys} keys, test-restored in {ms} ms", bundle.name)
            }
            Err(fault) => return faulted("no snapshot was taken", &fault.what, &fault.tail),
        };
        let _ = writeln!(std::io::stdout(), "{text}");
        Exit::Done
    })
}

/// Writes a failure, its reason and its log lines to the journal.
fn faulted(what: &str, why: &str, tail: &[String]) -> Exit {
    journal(format!("{what}: {why}\n{}", tail.join("\n")).trim_end());
    Exit::Failed
}

/// Test-restores this host's newest snapshot, in a separate directory and on separate sockets.
pub fn drill() -> Exit {
    // The output goes to the journal; a failure to write it could not be reported anywhere.
    run(crate::agent::drill(Root::host()), |held| {
        let text = match held {
            Ok(DrillOutcome::Held(OwnDrill { bundle, showed, .. }, tail)) => match showed {
                Showed::Restored(proof) => {
                    let (keys, ms) = (proof.keys, proof.restored_ms);
                    format!("{bundle} restores: {keys} keys, identical to when it was taken, in {ms} ms")
                }
                Showed::SealedBefore => {
                    let why = "it is older than this host's identity for drills; the next snapshot can be restored";
                    format!("{bundle} is intact, but was not restored: {why}")
                }
                Showed::Failed { what, .. } => return faulted(bundle.as_str(), &what, &tail),
            },
            Ok(DrillOutcome::NoBundle) => "there is no snapshot on this host yet".to_owned(),
            Ok(DrillOutcome::Busy) => "skipped: other snapshots are being taken or restored on this host".to_owned(),
            Err(fault) => return faulted("the drill did not run", &fault.what, &fault.tail),
        };
        journal(text.trim_end());
        Exit::Done
    })
}

/// Writes the answer to standard output, or the error to standard error.
pub fn copies(args: &CopiesArgs) -> Exit {
    let (answered, code) = match crate::agent::copies_beside(&args.ask) {
        Ok(reply) => (writeln!(std::io::stdout(), "{reply}"), Exit::Done),
        Err(why) => (writeln!(std::io::stderr(), "{why}"), Exit::Failed),
    };
    // A failure to write could not be reported anywhere.
    if answered.is_err() { Exit::Failed } else { code }
}

/// Renews the certificates of this host that are due.
pub fn renew() -> Exit {
    // The output goes to the journal; a failure to write it could not be reported anywhere.
    let mut out = std::io::stdout();
    run(crate::agent::renew(Root::host()), |renewed| match renewed {
        Ok(Ok(turn)) => {
            for (leaf, why) in &turn.leaves {
                let _ = writeln!(out, "{leaf}: renewed, because {why}");
            }
            for (leaf, why) in &turn.left {
                journal(&format!("{leaf}: not renewed: {why}"));
            }
            let (all, done, left) = (turn.looked_at, turn.leaves.len(), turn.left.len());
            let _ = writeln!(out, "{all} certificates checked: {done} renewed, {left} could not be renewed");
            Exit::of_success(left == 0)
        }
        Ok(Err(busy)) => {
            let _ = writeln!(out, "skipped: {busy}");
            Exit::Done
        }
        Err(fault) => faulted("certificates were not renewed", &fault.what, &fault.tail),
    })
}

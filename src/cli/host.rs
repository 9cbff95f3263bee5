//! The hidden verbs, which run on a host or inside a pod.

use super::common::block_on;
use crate::agent::{Fence, Root};
use crate::model::drill::{DrillOutcome, OwnDrill, Showed};
use crate::model::names::{HostName, PeerUrl};
use crate::model::recovery::STAYS_DOWN;
use crate::protocol::EtcdAsk;
use crate::report::Exit;
use clap::Args;
use std::io::Write as _;
use std::net::IpAddr;
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

/// Arguments of `host-pass-to`.
#[derive(Debug, Args)]
pub struct PassToArgs {
    /// The member, by its host's name
    #[arg(long)]
    member: HostName,
}

/// Serves the agent protocol on standard input and output.
pub fn serve() -> Exit {
    let served = block_on(async { Ok(crate::agent::serve(tokio::io::stdin(), tokio::io::stdout()).await) });
    match served {
        Ok(Ok(())) => Exit::Done,
        Ok(Err(error)) => {
            let _ = writeln!(std::io::stderr(), "hactl host: {error}");
            Exit::Failed
        }
        Err(verdict) => verdict.exit,
    }
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
    let (text, code) = match answer {
        Ok(addresses) => (
            addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Exit::of_success(!addresses.is_empty()),
        ),
        Err(error) => (error.to_string(), Exit::Failed),
    };
    let _ = writeln!(std::io::stdout(), "{text}");
    code
}

/// Writes the finding to standard error; the exit code decides whether etcd may start.
pub fn fence(args: &FenceArgs) -> Exit {
    let ask = args.client.ask("", &args.data_dir);
    let found = block_on(async { Ok(crate::agent::fence(&Root::host(), &ask, &args.peer).await) });
    let (line, code) = match found {
        Ok(Fence::NoData) => return Exit::Done,
        Ok(Fence::Starts(line)) => (line, Exit::Done),
        Ok(Fence::StaysDown(line)) => (line, Exit::Program(STAYS_DOWN)),
        Err(verdict) => return verdict.exit,
    };
    journal(&line);
    code
}

/// Records the positions of the etcd members until it is stopped.
pub fn positions(args: &PositionsArgs) -> Exit {
    let ask = args.client.ask("https://127.0.0.1:2379", "");
    let recording = async {
        crate::agent::record_positions(&Root::host(), &ask, journal).await;
        Ok(())
    };
    match block_on(recording) {
        Ok(()) => Exit::Done,
        Err(verdict) => verdict.exit,
    }
}

/// How long a load balancer that does not answer is retried. A reload takes it less than two seconds.
const ANSWERS: Duration = Duration::from_secs(60);

/// Returns 0 if the load balancer sends clients to the member, or if no load balancer lists it.
pub fn pass_to(args: &PassToArgs) -> Exit {
    let until = Instant::now() + ANSWERS;
    loop {
        match block_on(async { Ok(crate::agent::pass_to(&Root::host(), &args.member).await) }) {
            Ok(Ok(())) => return Exit::Done,
            Ok(Err(_)) if Instant::now() < until => std::thread::sleep(ASK_AGAIN),
            Ok(Err(fault)) => {
                journal(&format!("hactl host-pass-to: {}", fault.what));
                return Exit::Failed;
            }
            Err(verdict) => return verdict.exit,
        }
    }
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
    let ended = block_on(async { Ok(crate::kube::approver::run(&settings, journal).await) });
    match ended {
        Ok(Ok(())) => Exit::Done,
        Ok(Err(error)) => {
            journal(&format!("hactl host-approve: {error}"));
            Exit::Failed
        }
        Err(verdict) => verdict.exit,
    }
}

/// Takes a snapshot if it is this host's turn.
pub fn snapshot() -> Exit {
    let saved = block_on(async { Ok(crate::agent::save_bundle(crate::agent::Root::host()).await) });
    // Standard output and standard error go to the journal.
    match saved {
        Ok(Ok(None)) => {
            let _ = writeln!(std::io::stdout(), "this member is the leader: the followers take the snapshots");
            Exit::Done
        }
        Ok(Ok(Some(bundle))) => {
            let (revision, keys, ms) = (bundle.point.revision, bundle.proof.keys, bundle.proof.restored_ms);
            let text = format!("{}: revision {revision}, {keys} keys, test-restored in {ms} ms", bundle.name);
            let _ = writeln!(std::io::stdout(), "{text}");
            Exit::Done
        }
        Ok(Err(fault)) => {
            let _ = writeln!(std::io::stderr(), "no snapshot was taken: {}\n{}", fault.what, fault.tail.join("\n"));
            Exit::Failed
        }
        Err(verdict) => verdict.exit,
    }
}

/// Test-restores this host's newest snapshot, in a separate directory and on separate sockets.
pub fn drill() -> Exit {
    let held = block_on(async { Ok(crate::agent::drill(Root::host()).await) });
    // The output goes to the journal; a failure to write it could not be reported anywhere.
    let (text, code) = match held {
        Ok(Ok(DrillOutcome::Held(OwnDrill { bundle, showed, .. }, tail))) => match showed {
            Showed::Restored(proof) => (
                format!(
                    "{bundle} restores: {} keys, identical to when it was taken, in {} ms",
                    proof.keys, proof.restored_ms
                ),
                Exit::Done,
            ),
            Showed::SealedBefore => {
                let why = "it is older than this host's identity for drills; the next snapshot can be restored";
                (format!("{bundle} is intact, but was not restored: {why}"), Exit::Done)
            }
            Showed::Failed { what, .. } => (format!("{bundle}: {what}\n{}", tail.join("\n")), Exit::Failed),
        },
        Ok(Ok(DrillOutcome::NoBundle)) => ("there is no snapshot on this host yet".to_owned(), Exit::Done),
        Ok(Ok(DrillOutcome::Busy)) => {
            ("skipped: other snapshots are being taken or restored on this host".to_owned(), Exit::Done)
        }
        Ok(Err(fault)) => (format!("the drill did not run: {}\n{}", fault.what, fault.tail.join("\n")), Exit::Failed),
        Err(verdict) => return verdict.exit,
    };
    let _ = writeln!(std::io::stderr(), "{}", text.trim_end());
    code
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
    let renewed = block_on(async { Ok(crate::agent::renew(Root::host()).await) });
    // The output goes to the journal; a failure to write it could not be reported anywhere.
    let mut out = std::io::stdout();
    match renewed {
        Ok(Ok(Ok(turn))) => {
            for (leaf, why) in &turn.leaves {
                let _ = writeln!(out, "{leaf}: renewed, because {why}");
            }
            for (leaf, why) in &turn.left {
                let _ = writeln!(std::io::stderr(), "{leaf}: not renewed: {why}");
            }
            let (done, left) = (turn.leaves.len(), turn.left.len());
            let _ =
                writeln!(out, "{} certificates checked: {done} renewed, {left} could not be renewed", turn.looked_at);
            Exit::of_success(left == 0)
        }
        Ok(Ok(Err(busy))) => {
            let _ = writeln!(out, "skipped: {busy}");
            Exit::Done
        }
        Ok(Err(fault)) => {
            let _ =
                writeln!(std::io::stderr(), "certificates were not renewed: {}\n{}", fault.what, fault.tail.join("\n"));
            Exit::Failed
        }
        Err(verdict) => verdict.exit,
    }
}

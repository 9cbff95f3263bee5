//! The hidden verbs: what runs on a host or inside a pod.

use super::common::block_on;
use crate::agent::{Fence, Root};
use crate::model::drill::{DrillOutcome, OwnDrill, Showed};
use crate::model::names::{HostName, PeerUrl};
use crate::model::recovery::STAYS_DOWN;
use crate::protocol::EtcdAsk;
use clap::Args;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub struct DnsArgs {
    /// The server to ask
    server: IpAddr,
    /// The name to ask for
    name: String,
    /// Ask again until there is an answer, for this many seconds
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
    /// What each Node may have in its serving certificate
    #[arg(long)]
    allow: PathBuf,
}

#[derive(Debug, Args)]
pub struct CopiesArgs {
    /// What is asked, as JSON
    ask: String,
}

/// What etcd is asked with.
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

/// A line for the journal. Without one there is nobody to tell.
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
    /// Where this host's member answers its peers
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

/// Speaks the vocabulary on standard input and output.
pub fn serve() -> u8 {
    let served = block_on(async { Ok(crate::agent::serve(tokio::io::stdin(), tokio::io::stdout()).await) });
    match served {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            let _ = writeln!(std::io::stderr(), "hactl host: {error}");
            1
        }
        Err(verdict) => verdict.exit,
    }
}

/// Between two questions.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// 0 when there is an answer.
pub fn dns(args: &DnsArgs) -> u8 {
    let until = Instant::now() + Duration::from_secs(args.within.min(3600));
    let answer = loop {
        let answer = crate::agent::dns_probe(args.server, &args.name);
        if answer.as_ref().is_ok_and(|addresses| !addresses.is_empty()) || Instant::now() >= until {
            break answer;
        }
        std::thread::sleep(ASK_AGAIN);
    };
    let (text, code) = match answer {
        Ok(addresses) => {
            (addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), u8::from(addresses.is_empty()))
        }
        Err(error) => (error.to_string(), 1),
    };
    let _ = writeln!(std::io::stdout(), "{text}");
    code
}

/// Says on standard error what was found, and by its code whether etcd may start.
pub fn fence(args: &FenceArgs) -> u8 {
    let ask = args.client.ask("", &args.data_dir);
    let found = block_on(async { Ok(crate::agent::fence(&Root::host(), &ask, &args.peer).await) });
    let (line, code) = match found {
        Ok(Fence::NoData) => return 0,
        Ok(Fence::Starts(line)) => (line, 0),
        Ok(Fence::StaysDown(line)) => (line, STAYS_DOWN),
        Err(verdict) => return verdict.exit,
    };
    journal(&line);
    code
}

/// Remembers how far members of etcd are, until it is stopped.
pub fn positions(args: &PositionsArgs) -> u8 {
    let ask = args.client.ask("https://127.0.0.1:2379", "");
    let recording = async {
        crate::agent::record_positions(&Root::host(), &ask, journal).await;
        Ok(())
    };
    match block_on(recording) {
        Ok(()) => 0,
        Err(verdict) => verdict.exit,
    }
}

/// How long a balancer that does not answer is asked again: one that stands still does so for less than two seconds.
const ANSWERS: Duration = Duration::from_secs(60);

/// 0 when clients are sent there, or no balancer names it.
pub fn pass_to(args: &PassToArgs) -> u8 {
    let until = Instant::now() + ANSWERS;
    loop {
        match block_on(async { Ok(crate::agent::pass_to(&Root::host(), &args.member).await) }) {
            Ok(Ok(())) => return 0,
            Ok(Err(_)) if Instant::now() < until => std::thread::sleep(ASK_AGAIN),
            Ok(Err(fault)) => {
                journal(&format!("hactl host-pass-to: {}", fault.what));
                return 1;
            }
            Err(verdict) => return verdict.exit,
        }
    }
}

/// Runs until it is stopped.
pub fn approve(args: &ApproveArgs) -> u8 {
    let settings = crate::kube::approver::Settings {
        server: args.server.clone(),
        ca: args.ca.clone(),
        cert: args.cert.clone(),
        key: args.key.clone(),
        allow: args.allow.clone(),
    };
    let ended = block_on(async { Ok(crate::kube::approver::run(&settings, journal).await) });
    match ended {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            journal(&format!("hactl host-approve: {error}"));
            1
        }
        Err(verdict) => verdict.exit,
    }
}

/// Takes a recovery bundle when it is this host's turn.
pub fn snapshot() -> u8 {
    let saved = block_on(async { Ok(crate::agent::save_bundle(crate::agent::Root::host()).await) });
    // Both go to the journal.
    match saved {
        Ok(Ok(None)) => {
            let _ = writeln!(std::io::stdout(), "this member leads: its followers take the bundles");
            0
        }
        Ok(Ok(Some(bundle))) => {
            let (revision, keys, ms) = (bundle.point.revision, bundle.proof.keys, bundle.proof.restored_ms);
            let text = format!("{}: revision {revision}, {keys} keys, restored for proof in {ms} ms", bundle.name);
            let _ = writeln!(std::io::stdout(), "{text}");
            0
        }
        Ok(Err(fault)) => {
            let _ = writeln!(std::io::stderr(), "no recovery bundle: {}\n{}", fault.what, fault.tail.join("\n"));
            1
        }
        Err(verdict) => verdict.exit,
    }
}

/// Restores this host's newest recovery bundle, in a folder and on sockets of its own.
pub fn drill() -> u8 {
    let held = block_on(async { Ok(crate::agent::drill(Root::host()).await) });
    // All of it goes to the journal; without one there is nobody to tell.
    let (text, code) = match held {
        Ok(Ok(DrillOutcome::Held(OwnDrill { bundle, showed, .. }, tail))) => match showed {
            Showed::Restored(proof) => {
                (format!("{bundle} restores: {} keys, as they were taken, in {} ms", proof.keys, proof.restored_ms), 0)
            }
            Showed::SealedBefore => {
                let why = "it is of before this host had an identity for drills; the next one opens";
                (format!("{bundle} is whole, and was not restored: {why}"), 0)
            }
            Showed::Failed { what, .. } => (format!("{bundle}: {what}\n{}", tail.join("\n")), 1),
        },
        Ok(Ok(DrillOutcome::NoBundle)) => ("there is no recovery bundle on this host yet".to_owned(), 0),
        Ok(Ok(DrillOutcome::Busy)) => ("not now: bundles are taken or restored here all the time".to_owned(), 0),
        Ok(Err(fault)) => (format!("no drill was held: {}\n{}", fault.what, fault.tail.join("\n")), 1),
        Err(verdict) => return verdict.exit,
    };
    let _ = writeln!(std::io::stderr(), "{}", text.trim_end());
    code
}

/// Answers on standard output, or says on standard error why not.
pub fn copies(args: &CopiesArgs) -> u8 {
    let (answered, code) = match crate::agent::copies_beside(&args.ask) {
        Ok(reply) => (writeln!(std::io::stdout(), "{reply}"), 0),
        Err(why) => (writeln!(std::io::stderr(), "{why}"), 1),
    };
    // Nobody is left to be told anything.
    if answered.is_err() { 1 } else { code }
}

/// Renews the certificates of this host whose time is up.
pub fn renew() -> u8 {
    let renewed = block_on(async { Ok(crate::agent::renew(Root::host()).await) });
    // All of it goes to the journal; without one there is nobody to tell.
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
            let _ = writeln!(out, "{} certificates: {done} renewed, {left} that cannot be", turn.looked_at);
            u8::from(left > 0)
        }
        Ok(Ok(Err(busy))) => {
            let _ = writeln!(out, "not now: {busy}");
            0
        }
        Ok(Err(fault)) => {
            let _ =
                writeln!(std::io::stderr(), "certificates were not renewed: {}\n{}", fault.what, fault.tail.join("\n"));
            1
        }
        Err(verdict) => verdict.exit,
    }
}

//! `hactl bundle build`: builds a bundle from a directory or from the publishers.

use super::progress::Shown;
use crate::cli::common::block_on;
use crate::component::{self, Arch, BundleError, Mirror, Mirrors, Order, Prospect, Source, Standing};
use crate::report::harmless::print_json;
use crate::report::{Exit, FailureKind, Verdict};
use clap::Args;
use indicatif::HumanBytes;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Arguments of `hactl bundle build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// Build from this directory with a components.json [default: $XDG_CACHE_HOME/hactl/dist]
    #[arg(long, value_name = "DIR", conflicts_with = "kubernetes")]
    from: Option<PathBuf>,
    /// Fetch this Kubernetes version and the components that go with it
    #[arg(long, value_name = "VERSION")]
    kubernetes: Option<String>,
    /// Use another version of a component than the built-in table: etcd, containerd, runc, cni, cni-flannel, flannel,
    /// coredns, pause
    #[arg(long, value_name = "NAME=VERSION", requires = "kubernetes", value_parser = pair)]
    with: Vec<(String, String)>,
    /// Fetch from this URL instead of HOST; only mirrors may use plain http. Files are verified against the mirror's
    /// checksums, or against those of --lock
    #[arg(long, value_name = "HOST=URL", requires = "kubernetes")]
    mirror: Vec<Mirror>,
    /// Architectures of the hosts: amd64, arm64, or both separated by a comma
    #[arg(long, value_name = "ARCH", requires = "kubernetes", value_delimiter = ',', default_value = "amd64")]
    arch: Vec<Arch>,
    /// Lock the digests in this file; keep it with the inventory [default: sources.lock.json in the store]
    #[arg(long, value_name = "FILE", requires = "kubernetes")]
    lock: Option<PathBuf>,
    /// Show what would be fetched and from where, without contacting any server
    #[arg(long, requires = "kubernetes")]
    dry_run: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, version) = text.split_once('=').ok_or("write NAME=VERSION, such as etcd=3.6.15")?;
    Ok((name.to_owned(), version.to_owned()))
}

/// Runs the verb.
pub fn run(store: &Path, args: BuildArgs, json: bool) -> Result<Exit, Verdict> {
    let begun = Instant::now();
    let Some(kubernetes) = &args.kubernetes else {
        let usual = component::default_store().with_file_name("dist");
        if args.from.is_none() && !usual.join("components.json").exists() {
            return Err(BundleError::Nowhere(usual).into());
        }
        let from = args.from.unwrap_or(usual);
        let shown = Shown::new(json);
        let built = component::build(store, &from, &|progress| shown.packed(progress));
        shown.end();
        super::stated(&built?, begun, store, json);
        return Ok(Exit::Done);
    };
    let order = Order {
        with: args.with.into_iter().collect(),
        architectures: distinct(args.arch),
        mirrors: Mirrors::new(args.mirror),
        lock: args.lock,
        ..Order::of(kubernetes)
    };
    if args.dry_run {
        prospects(&component::prospect(store, &order)?, json);
        return Ok(Exit::Done);
    }
    let shown = Shown::new(json);
    let downloaded = block_on(async {
        let tell = |moment: component::Moment<'_>| shown.moment(moment);
        let fetched = component::download(store, &order, &tell);
        tokio::select! {
            fetched = fetched => fetched.map_err(Verdict::from),
            _ = tokio::signal::ctrl_c() => Err(Verdict::of(&FailureKind::Interrupted, None)),
        }
    });
    shown.end();
    let downloaded = downloaded?;
    let (sources, lock) = (downloaded.sources.clone(), downloaded.lock.clone());
    let shown = Shown::new(json);
    let built = downloaded.pack(&|progress| shown.packed(progress));
    shown.end();
    tell(&sources, &lock, json);
    super::stated(&built?, begun, store, json);
    Ok(Exit::Done)
}

fn distinct(mut architectures: Vec<Arch>) -> Vec<Arch> {
    architectures.sort();
    architectures.dedup();
    architectures
}

fn tell(sources: &[Source], lock: &Path, json: bool) {
    let fetched: Vec<&Source> = sources.iter().filter(|s| s.fetched).collect();
    if json {
        for s in sources {
            print_json(&json!({"source": s.source, "sha256": s.sha256, "bytes": s.bytes, "fetched": s.fetched}));
        }
    } else if !fetched.is_empty() {
        let bytes = fetched.iter().map(|s| s.bytes).sum();
        say!("{} of {} sources fetched, {}", fetched.len(), sources.len(), HumanBytes(bytes));
        say!("their digests are locked in {}", lock.display());
    }
}

fn prospects(all: &[Prospect], json: bool) {
    for p in all {
        let (standing, begun) = match p.standing {
            Standing::Packed => ("in the store", None),
            Standing::Fetched => ("fetched", None),
            Standing::Begun(bytes) => ("begun", Some(bytes)),
            Standing::Missing => ("to fetch", None),
        };
        if json {
            let line = json!({"source": p.source, "from": p.asked, "components": p.components, "bytes": p.size,
                "sha256": p.locked, "standing": standing, "begun": begun});
            print_json(&line);
            continue;
        }
        let size = p.size.map_or_else(|| "size unknown".to_owned(), |size| HumanBytes(size).to_string());
        let there = begun.map(|bytes| format!(", {} there", HumanBytes(bytes))).unwrap_or_default();
        say!("{standing:<12} {size:>12}{there}  {}", p.asked);
        say!("{:27}{}", "", p.components.join(", "));
    }
    if !json {
        let missing: Vec<&Prospect> = all.iter().filter(|p| p.standing != Standing::Packed).collect();
        let known: u64 = missing.iter().filter_map(|p| p.size).sum();
        let unknown = missing.iter().filter(|p| p.size.is_none()).count();
        let (some, all, known) = (missing.len(), all.len(), HumanBytes(known));
        say!("{some} of {all} sources to fetch: {known} in all, and {unknown} of unknown size");
    }
}

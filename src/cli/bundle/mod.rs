//! `hactl bundle`: manages the pinned programs and images of a Kubernetes version.

mod carry;
mod fetch;
mod progress;
mod verdict;

use super::common::Common;
use crate::component::{self, Built, BundleError, Lock, Verified};
use crate::report::harmless::print_json;
use crate::report::{Exit, Verdict};
use clap::{Args, Subcommand};
use indicatif::HumanBytes;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Fetch, build, verify and carry bundles of components.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hactl bundle build --kubernetes 1.37.2     fetch the released components from their publishers
  hactl bundle build                         use the output of components/build.sh
  hactl bundle list
  hactl bundle verify k8s-1.37.2             read every byte; exit with 1 if a file is damaged
  hactl bundle export k8s-1.37.2 k8s.hactl   write one file, for places without internet access
  hactl bundle import k8s.hactl")]
pub struct BundleArgs {
    #[command(subcommand)]
    verb: BundleVerb,
}

#[derive(Debug, Subcommand)]
enum BundleVerb {
    /// Fetch released components, or use locally built ones; files that are already in the store are kept
    #[command(after_help = "Examples:
  hactl bundle build --kubernetes 1.37.2                    from the publishers' servers
  hactl bundle build --kubernetes 1.37.2 --dry-run          show what would be fetched, and from where
  hactl bundle build --kubernetes 1.37.2 --with etcd=3.7.2  use another version than the built-in table
  hactl bundle build --kubernetes 1.37.2 --mirror registry.k8s.io=https://harbor.example/k8s
  hactl bundle build --from ./dist                          use the output of components/build.sh

Fetches from dl.k8s.io, github.com, registry.k8s.io and ghcr.io, through HTTPS_PROXY if that is set. Digests are
locked at their first use. After an interruption, the same command resumes.")]
    Build(fetch::BuildArgs),
    /// Show the bundles of the store
    #[command(after_help = "Examples:\n  hactl bundle list\n  hactl bundle list -o json")]
    List,
    /// Read and unpack every file of one bundle, or of all bundles
    #[command(after_help = "Examples:\n  hactl bundle verify\n  hactl bundle verify k8s-1.37.2")]
    Verify {
        /// The bundle, such as k8s-1.37.2
        name: Option<String>,
    },
    /// Write a bundle to one file
    #[command(
        allow_missing_positional = true,
        after_help = "Examples:
  hactl bundle export k8s-1.37.2 /media/stick/k8s.hactl
  hactl bundle export - | ssh admin@inside hactl bundle import -"
    )]
    Export {
        /// The bundle, such as k8s-1.37.2; may be omitted if there is only one
        name: Option<String>,
        /// The file to write; `-` writes to standard output
        file: PathBuf,
    },
    /// Import a bundle from one file; it is used only after all of it is verified
    #[command(after_help = "Examples:
  hactl bundle import /media/stick/k8s.hactl
  ssh admin@outside hactl bundle export k8s-1.37.2 - | hactl bundle import -
  hactl bundle import --expect 4f1c... k8s.hactl    the identity that `bundle list` shows on the other side")]
    Import {
        /// The file; `-` reads standard input
        file: PathBuf,
        /// The identity that the bundle must have
        #[arg(long, value_name = "DIGEST")]
        expect: Option<crate::model::names::Digest>,
        /// Replace another bundle of the same version
        #[arg(long)]
        replace: bool,
    },
}

/// Runs the verb and returns the exit code.
pub fn run(common: &Common, args: BundleArgs) -> Exit {
    let store = common.bundles();
    let json = common.json();
    let result = match args.verb {
        BundleVerb::Build(args) => fetch::run(&store, args, json),
        BundleVerb::List => list(&store, json),
        BundleVerb::Verify { name } => verify(&store, name.as_deref(), json),
        BundleVerb::Export { name, file } => carry::export(&store, name.as_deref(), &file, json),
        BundleVerb::Import { file, expect, replace } => carry::import(&store, &file, expect, replace, json),
    };
    result.unwrap_or_else(|verdict| common.end(&verdict))
}

/// Reports what was built.
fn stated(built: &Built, begun: Instant, store: &Path, json: bool) {
    let Built { locks, fresh, ignored, replaced } = built;
    for lock in locks {
        if json {
            print_json(&line(lock));
        } else {
            say!("{}", words(lock));
        }
    }
    if !json {
        let what = if *fresh == 0 { "nothing to do".to_owned() } else { format!("{fresh} files compressed") };
        say!("{what} in {:.1} s; the store is {}", begun.elapsed().as_secs_f64(), store.display());
        for name in replaced {
            say!("{name} replaced a bundle with other content: the hosts get the new files at the next `hactl up`");
        }
        if !ignored.is_empty() {
            say!("left out because no host uses them: {}", ignored.join(", "));
        }
    }
}

fn list(store: &Path, json: bool) -> Result<Exit, Verdict> {
    let locks = component::list(store)?;
    for lock in &locks {
        if json {
            print_json(&line(lock));
            continue;
        }
        say!("{}", words(lock));
        say!("  identity {}", lock.identity().hex());
        for c in &lock.components {
            let kind = match c.kind {
                component::Kind::Program => "program",
                component::Kind::Image => "image",
                component::Kind::Packages => "packages",
            };
            let (name, version, arch, digest) = (&c.name, &c.version, &c.architecture, c.digest.short());
            let size = HumanBytes(c.sent_size).to_string();
            say!("  {name:<26} {version:<10} {kind:<8} {arch:<6} {size:>11}  {digest}");
        }
    }
    if locks.is_empty() && !json {
        say!("no bundles in {}; build one with `hactl bundle build --kubernetes VERSION`", store.display());
    }
    Ok(Exit::Done)
}

/// The versions of these bundles.
fn versions(locks: &[Lock]) -> Vec<String> {
    locks.iter().map(|lock| lock.kubernetes.clone()).collect()
}

/// The named bundle, or all; fails if there is none.
fn named(store: &Path, name: Option<&str>) -> Result<Vec<Lock>, BundleError> {
    let mut locks = component::list(store)?;
    let there = versions(&locks);
    locks.retain(|lock| name.is_none_or(|n| n == lock.name() || n == lock.kubernetes));
    if locks.is_empty() {
        let wanted = name.unwrap_or("any version").to_owned();
        return Err(BundleError::NoSuchVersion { wanted, store: store.to_owned(), there });
    }
    Ok(locks)
}

fn verify(store: &Path, name: Option<&str>, json: bool) -> Result<Exit, Verdict> {
    let asked = named(store, name)?;
    let Verified { files, bytes, problems } = component::verify(store, &asked)?;
    if json {
        let problems: Vec<_> =
            problems.iter().map(|p| json!({"component": p.component, "path": p.path, "why": p.why})).collect();
        print_json(&json!({"files": files, "bytes": bytes, "problems": problems}));
    } else {
        for problem in &problems {
            say!("damaged: {} ({}): {}", problem.path.display(), problem.component, problem.why);
        }
        let names = asked.iter().map(Lock::name).collect::<Vec<_>>().join(", ");
        match problems.len() {
            0 => say!("{names}: {files} files, {} of content, all as built", HumanBytes(bytes)),
            bad => say!("{names}: {bad} of {files} files damaged; remove them and build the bundle again"),
        }
    }
    Ok(Exit::of_success(problems.is_empty()))
}

fn words(lock: &Lock) -> String {
    let (size, sent) = lock.sizes();
    let (size, sent) = (HumanBytes(size), HumanBytes(sent));
    format!("{}: {} components, {size} of content, {sent} to send", lock.name(), lock.components.len())
}

fn line(lock: &Lock) -> serde_json::Value {
    let (size, sent) = lock.sizes();
    json!({"bundle": lock.name(), "identity": lock.identity(), "kubernetes": lock.kubernetes, "size": size, "sent_size": sent, "components": lock.components})
}

//! `hactl bundle`: the pinned programs and images of a Kubernetes version.

mod carry;
mod fetch;
mod progress;
mod verdict;

use super::common::{Common, Output};
use crate::component::{self, Built, BundleError, Lock, Verified};
use crate::report::Exit;
use crate::report::harmless::print_json;
use clap::{Args, Subcommand};
use indicatif::HumanBytes;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Fetch, build, verify and carry bundles of components.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hactl bundle build --kubernetes 1.36.3     fetch what its publishers released
  hactl bundle build                         from what components/build.sh made
  hactl bundle list
  hactl bundle verify k8s-1.36.3             read every byte; 1 when one is not as it was built
  hactl bundle export k8s-1.36.3 k8s.hactl   one file, for places without a network
  hactl bundle import k8s.hactl")]
pub struct BundleArgs {
    #[command(subcommand)]
    verb: BundleVerb,
}

#[derive(Debug, Subcommand)]
enum BundleVerb {
    /// Fetch released components, or take built ones; what is there already is left alone
    #[command(after_help = "Examples:
  hactl bundle build --kubernetes 1.36.3                    from the publishers' servers
  hactl bundle build --kubernetes 1.36.3 --dry-run          what would be fetched, and from where
  hactl bundle build --kubernetes 1.36.3 --with etcd=3.6.15 another version than the table's
  hactl bundle build --kubernetes 1.36.3 --mirror registry.k8s.io=https://harbor.example/k8s
  hactl bundle build --from ./dist                          what components/build.sh made

It asks dl.k8s.io, github.com, registry.k8s.io and ghcr.io, through HTTPS_PROXY where that is set. Digests are locked at
their first use. Interrupted, it goes on where it was when it is run again.")]
    Build(fetch::BuildArgs),
    /// Show the bundles of the store
    #[command(after_help = "Examples:\n  hactl bundle list\n  hactl bundle list -o json")]
    List,
    /// Read and unpack every file of one bundle, or of all
    #[command(after_help = "Examples:\n  hactl bundle verify\n  hactl bundle verify k8s-1.36.3")]
    Verify {
        /// Which, such as k8s-1.36.3
        name: Option<String>,
    },
    /// Write a bundle as one file
    #[command(
        allow_missing_positional = true,
        after_help = "Examples:
  hactl bundle export k8s-1.36.3 /media/stick/k8s.hactl
  hactl bundle export - | ssh admin@inside hactl bundle import -"
    )]
    Export {
        /// Which, such as k8s-1.36.3; may be left out when there is only one
        name: Option<String>,
        /// The file to write; `-` is standard output
        file: PathBuf,
    },
    /// Take a bundle from one file; nothing of it counts before all of it is verified
    #[command(after_help = "Examples:
  hactl bundle import /media/stick/k8s.hactl
  ssh admin@outside hactl bundle export k8s-1.36.3 - | hactl bundle import -
  hactl bundle import --expect 4f1c... k8s.hactl    the identity that `bundle list` shows on the other side")]
    Import {
        /// The file; `-` is standard input
        file: PathBuf,
        /// The identity it must have
        #[arg(long, value_name = "DIGEST")]
        expect: Option<crate::model::names::Digest>,
        /// Let it take the place of another bundle of the same version
        #[arg(long)]
        replace: bool,
    },
}

/// Runs the verb and gives the exit code.
pub fn run(common: &Common, args: BundleArgs) -> Exit {
    let store = common.bundles();
    let json = common.output == Output::Json;
    let result = match args.verb {
        BundleVerb::Build(args) => match fetch::run(&store, args, json) {
            Ok(code) => return code,
            Err(fetch::Stopped::Failed(error)) => Err(error),
            Err(fetch::Stopped::By(verdict)) => return common.end(&verdict),
        },
        BundleVerb::List => list(&store, json),
        BundleVerb::Verify { name } => verify(&store, name.as_deref(), json),
        BundleVerb::Export { name, file } => carry::export(&store, name.as_deref(), &file, json),
        BundleVerb::Import { file, expect, replace } => carry::import(&store, &file, expect, replace, json),
    };
    result.unwrap_or_else(|error| common.end(&verdict::of(&error)))
}

/// Tells what was built.
fn told(built: &Built, begun: Instant, store: &Path, json: bool) {
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
            say!("{name} was there, made of other bytes: hosts get the new ones at the next `hactl up`");
        }
        if !ignored.is_empty() {
            say!("left out, for no host has a use for them: {}", ignored.join(", "));
        }
    }
}

fn list(store: &Path, json: bool) -> Result<Exit, BundleError> {
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
            };
            say!(
                "  {:<26} {:<10} {kind:<8} {:<6} {:>11}  {}",
                c.name,
                c.version,
                c.architecture,
                HumanBytes(c.sent_size).to_string(),
                c.digest.short()
            );
        }
    }
    if locks.is_empty() && !json {
        say!("no bundles in {}; make one with `hactl bundle build --kubernetes VERSION`", store.display());
    }
    Ok(Exit::Done)
}

fn verify(store: &Path, name: Option<&str>, json: bool) -> Result<Exit, BundleError> {
    let all = component::list(store)?;
    let there: Vec<String> = all.iter().map(|lock| lock.kubernetes.clone()).collect();
    let asked: Vec<Lock> =
        all.into_iter().filter(|lock| name.is_none_or(|n| n == lock.name() || n == lock.kubernetes)).collect();
    if asked.is_empty() {
        let wanted = name.unwrap_or("any version").to_owned();
        return Err(BundleError::NoSuchVersion { wanted, store: store.to_owned(), there });
    }
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

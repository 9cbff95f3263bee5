//! `hactl bundle`: the pinned programs and images of a Kubernetes version.

#![expect(clippy::print_stdout, reason = "a verb's own reader: results on stdout, progress on stderr")]

use super::common::{Common, Output};
use crate::component::{self, Built, BundleError, Lock, Progress, Verified};
use crate::report::{FailureKind, Verdict};
use clap::{Args, Subcommand};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Build, list and verify bundles of components.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hactl bundle build                         from what components/build.sh made
  hactl bundle build --from ./dist
  hactl bundle list
  hactl bundle verify k8s-1.36.3             read every byte; 1 when one is not as it was built")]
pub struct BundleArgs {
    #[command(subcommand)]
    verb: BundleVerb,
}

#[derive(Debug, Subcommand)]
enum BundleVerb {
    /// Compress and pin built components; what is there already is left alone
    #[command(after_help = "Examples:\n  hactl bundle build\n  hactl bundle build --from ./dist")]
    Build {
        /// A directory with a components.json [default: $XDG_CACHE_HOME/hactl/dist]
        #[arg(long, value_name = "DIR")]
        from: Option<PathBuf>,
    },
    /// Show the bundles of the store
    #[command(after_help = "Examples:\n  hactl bundle list\n  hactl bundle list -o json")]
    List,
    /// Read and unpack every file of one bundle, or of all
    #[command(after_help = "Examples:\n  hactl bundle verify\n  hactl bundle verify k8s-1.36.3")]
    Verify {
        /// Which, such as k8s-1.36.3
        name: Option<String>,
    },
}

/// Runs the verb and gives the exit code.
pub fn run(common: &Common, args: BundleArgs) -> u8 {
    let store = common.bundles();
    let json = common.output == Output::Json;
    let result = match args.verb {
        BundleVerb::Build { from } => {
            let from = from.unwrap_or_else(|| component::default_store().with_file_name("dist"));
            build(&store, &from, json)
        }
        BundleVerb::List => list(&store, json),
        BundleVerb::Verify { name } => verify(&store, name.as_deref(), json),
    };
    result.unwrap_or_else(|error| common.end(&Verdict::of(&FailureKind::Bundle, Some(&error))))
}

fn build(store: &Path, from: &Path, json: bool) -> Result<u8, BundleError> {
    let begun = Instant::now();
    // Drawn on stderr, and only on a terminal.
    let bar = ProgressBar::new(0).with_style(style());
    let built = component::build(store, from, &|progress: Progress<'_>| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        bar.set_message(progress.component.to_owned());
    });
    bar.finish_and_clear();
    let Built { locks, fresh, ignored } = built?;
    for lock in &locks {
        if json {
            println!("{}", line(lock));
        } else {
            println!("{}", words(lock));
        }
    }
    if !json {
        let what = if fresh == 0 { "nothing to do".to_owned() } else { format!("{fresh} files compressed") };
        println!("{what} in {:.1} s; the store is {}", begun.elapsed().as_secs_f64(), store.display());
        if !ignored.is_empty() {
            println!("left out, for no host has a use for them: {}", ignored.join(", "));
        }
    }
    Ok(0)
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:30} {bytes} of {total_bytes} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn list(store: &Path, json: bool) -> Result<u8, BundleError> {
    let locks = component::list(store)?;
    for lock in &locks {
        if json {
            println!("{}", line(lock));
            continue;
        }
        println!("{}", words(lock));
        for c in &lock.components {
            let kind = match c.kind {
                component::Kind::Program => "program",
                component::Kind::Image => "image",
            };
            println!(
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
        println!("no bundles in {}; build one with `hactl bundle build --from DIR`", store.display());
    }
    Ok(0)
}

fn verify(store: &Path, name: Option<&str>, json: bool) -> Result<u8, BundleError> {
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
        println!("{}", json!({"files": files, "bytes": bytes, "problems": problems}));
    } else {
        for problem in &problems {
            println!("damaged: {} ({}): {}", problem.path.display(), problem.component, problem.why);
        }
        let names = asked.iter().map(Lock::name).collect::<Vec<_>>().join(", ");
        match problems.len() {
            0 => println!("{names}: {files} files, {} of content, all as built", HumanBytes(bytes)),
            bad => println!("{names}: {bad} of {files} files damaged; remove them and build the bundle again"),
        }
    }
    Ok(u8::from(!problems.is_empty()))
}

fn words(lock: &Lock) -> String {
    let (size, sent) = lock.sizes();
    let (size, sent) = (HumanBytes(size), HumanBytes(sent));
    format!("{}: {} components, {size} of content, {sent} to send", lock.name(), lock.components.len())
}

fn line(lock: &Lock) -> serde_json::Value {
    let (size, sent) = lock.sizes();
    json!({"bundle": lock.name(), "kubernetes": lock.kubernetes, "size": size, "sent_size": sent, "components": lock.components})
}

//! `hactl snapshot`.

use super::common::{Common, Needs, Output, Quiet, known, there};
use super::verbs::ended;
use crate::model::desired::Desired;
use crate::model::event::Sink;
use crate::model::names::HostName;
use crate::report::harmless::{print, print_json};
use crate::report::{self, Exit, Verdict, snapshots as words};
use crate::snapshot::{BucketTrouble, BundleError};
use crate::workflow::{self, Unusable};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Args)]
pub struct SnapshotArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Take a bundle now
    #[command(
        after_help = "Examples:\n  hactl snapshot take                     on a host whose member follows\n  hactl snapshot take --host cp2          on this one\n  hactl snapshot take --to /mnt/backup/   and fetch it"
    )]
    Take {
        /// On this host [default: one whose etcd member does not lead]
        #[arg(long, value_name = "HOST")]
        host: Option<HostName>,
        /// Fetch it to this file or folder
        #[arg(long, value_name = "PATH")]
        to: Option<PathBuf>,
    },
    /// List the bundles on all etcd hosts, in directories that copies go to, and in object storage
    #[command(
        after_help = "Examples:\n  hactl snapshot list\n  hactl snapshot list -o json | jq '.hosts | map_values(.bundles | length)'"
    )]
    List,
    /// Check a bundle: who signed it, every byte, whether it opens, whether its keys are keys
    #[command(
        after_help = "Examples:\n  hactl snapshot verify                   the newest on the hosts\n  hactl snapshot verify --deep            and restore it, beside what runs there\n  hactl snapshot verify --identity ~/lab-identity.txt lab-20261122T060000000Z-cp1.hactl"
    )]
    Verify {
        /// The bundle: a file, HOST:/DIRECTORY/NAME, or s3://BUCKET/PREFIX/NAME [default: the newest on the hosts]
        file: Option<PathBuf>,
        /// Of this host alone
        #[arg(long, value_name = "HOST", conflicts_with = "file")]
        host: Option<HostName>,
        /// Restore it on a host as well, in a folder and on sockets of its own
        #[arg(long)]
        deep: bool,
        /// The age identity to open it with [default: the one in the state directory]
        #[arg(long, value_name = "FILE")]
        identity: Option<PathBuf>,
        /// Check one without a signature as well, as an earlier hactl made it
        #[arg(long)]
        accept_unsigned: bool,
    },
    /// Drop the bundles that `snapshots.keep` does not keep; every timer's run does so, too
    #[command(after_help = "Examples:\n  hactl snapshot prune")]
    Prune,
}

/// What is printed, and the last line.
struct Said {
    text: String,
    object: serde_json::Value,
    headline: String,
}

pub fn run(common: &Common, args: &SnapshotArgs) -> Exit {
    let reader = common.reader();
    let json = common.output == Output::Json;
    // One object is all that a program wants to read.
    let sink: Arc<dyn Sink> = if json { Arc::new(Quiet) } else { Arc::clone(&reader) as Arc<dyn Sink> };
    // A list may be all that is left: of object storage.
    let alone = matches!(args.verb, Verb::List | Verb::Verify { file: Some(_), .. });
    let needs = if alone { Needs::Nothing } else { Needs::Hosts };
    let now = now_ms();
    let checked = |desired: &Desired| match &args.verb {
        Verb::Take { host, .. } => known("--host", host.as_slice(), desired),
        Verb::Verify { host, identity, .. } => {
            known("--host", host.as_slice(), desired)?;
            there("--identity", identity.as_deref())
        }
        _ => Ok(()),
    };
    let result = common.run_checked(checked, sink, needs, async |session| {
        Ok(match &args.verb {
            Verb::Take { host, to } => {
                let taken = workflow::take_bundle(session, host.as_ref(), to.as_deref()).await?;
                let object = json!({"host": taken.host, "bundle": taken.bundle, "fetched": taken.fetched});
                Said {
                    text: String::new(),
                    object,
                    headline: words::taken(&taken.host, &taken.bundle, taken.fetched.as_deref()),
                }
            }
            Verb::List => {
                if session.desired.snapshots.storage.is_none() {
                    session.anybody().await?;
                }
                let listed = workflow::bundles(session).await?;
                let (copies, away) = tokio::join!(workflow::copied_bundles(session), workflow::away_bundles(session));
                let headline = words::listed(&listed, now);
                let text = words::table(&listed, now) + &report::copies::table(&copies, now) + &words::away(&away, now);
                let (directories, storage) = (report::copies::json(&copies), words::away_json(&away));
                let object = json!({"hosts": listed, "directories": directories, "objectStorage": storage});
                Said { text, object, headline }
            }
            Verb::Verify { file, host, deep, identity, accept_unsigned } => {
                let (identity, deep, accept_unsigned) = (identity.as_deref(), *deep, *accept_unsigned);
                let how = workflow::Verifying { identity, deep, accept_unsigned };
                let verified = match file {
                    Some(file) => workflow::verify_file(session, file, how).await?,
                    None => workflow::verify_newest(session, host.as_ref(), how).await?,
                };
                let restored = verified.restored.as_ref().map(|(host, proof)| json!({"host": host, "proof": proof}));
                let (signed, known) = (&verified.signed, verified.known);
                let object =
                    json!({"manifest": verified.manifest, "signed": signed, "caKnown": known, "restored": restored});
                let headline = words::verified(&verified.path, verified.restored.as_ref());
                let text = words::manifest(&verified.manifest, now) + &words::signed(&verified.signed, verified.known);
                Said { text, object, headline }
            }
            Verb::Prune => {
                let removed = workflow::prune_bundles(session).await?;
                let headline = match removed.values().map(Vec::len).sum() {
                    0 => "nothing to drop".to_owned(),
                    some => format!("dropped {}", report::words::count(some, "bundle")),
                };
                Said { text: words::removed(&removed), object: json!({"removed": removed}), headline }
            }
        })
    });
    let result = result.map(|said| {
        reader.pause();
        if json {
            print_json(&said.object);
        } else {
            print(&said.text);
            reader.end(&Verdict::ok(&said.headline));
        }
        Exit::Done
    });
    ended(&reader, result)
}

pub(super) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

/// What to do about a bundle that cannot be used.
pub(super) fn verdict(unusable: &Unusable, mut verdict: Verdict) -> Verdict {
    if let Unusable::Forged { .. } | Unusable::Unsigned(_) = unusable {
        (verdict.exit, verdict.code) =
            (Exit::Refused, if matches!(unusable, Unusable::Unsigned(_)) { "unsigned" } else { "forged" });
    }
    let hint = match unusable {
        Unusable::Io { .. } | Unusable::Bundle(BundleError::Io { .. }) => {
            "look at the path, its permissions and the room on its disk"
        }
        Unusable::Bundle(BundleError::WrongIdentity(_)) => {
            "--identity FILE: the identity.txt of the state directory it was taken under, or the key of one of vault.recipients"
        }
        Unusable::Forged { .. } => {
            "it is never taken: take another one (hactl snapshot list shows who signed each), and find out who can write to where it lies"
        }
        Unusable::Unsigned(_) => {
            "--accept-unsigned takes it: only if you know where it comes from. `hactl up` has hosts sign those that they take from then on"
        }
        Unusable::Bundle(BundleError::TooNew { .. }) => "use a newer hactl",
        Unusable::Bundle(_) => "take another one: hactl snapshot list",
        Unusable::Identity { .. } | Unusable::NoIdentity(_) => {
            "--identity FILE: a file with a line AGE-SECRET-KEY-1..., such as identity.txt of the state directory"
        }
        Unusable::State { .. } => "take another one: hactl snapshot list",
        Unusable::OtherCluster { .. } => "use the inventory of the cluster that it is of, or a bundle of this one",
        Unusable::Bucket(error) => match error.trouble {
            BucketTrouble::Dark => "look at snapshots.s3.endpoint, and at the way there from this machine",
            BucketTrouble::Refused => "look at the key in the file of snapshots.s3.credentials, and at what it may do",
            BucketTrouble::Missing => "hactl snapshot list shows what there is",
            BucketTrouble::Full | BucketTrouble::Other => "ask whoever runs the storage",
        },
        Unusable::NoStorage(_) => {
            "add snapshots.s3 with `credentials` to the inventory, or fetch it yourself and name the file"
        }
        Unusable::Several(_) => {
            "name the bundle with --from: in object storage its folder ends in its authority's fingerprint"
        }
        Unusable::NoCopy { .. } => "is it mounted there? `hactl snapshot list` shows what there is",
        Unusable::TooLarge { .. } => {
            "take another one: hactl snapshot list; and do not trust that host until you know why it says so"
        }
        Unusable::TooSlow { .. } => "another host may have one as well: hactl snapshot list; `--host` names it",
        Unusable::NoUrl(_) => "hactl snapshot list shows the addresses",
        Unusable::None => "hactl snapshot take; on the hosts: journalctl -u hactl-snapshot",
    };
    verdict.hints = vec![hint.to_owned()];
    verdict
}

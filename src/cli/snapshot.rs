//! `hactl snapshot`.

use super::common::{Common, Needs, Said, known, there};
use crate::model::desired::Desired;
use crate::model::names::HostName;
use crate::report::{self, Exit, Verdict, snapshots as words};
use crate::snapshot::{BucketTrouble, BundleError};
use crate::workflow::{self, Unusable};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct SnapshotArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Take a snapshot now
    #[command(after_help = "\
Examples:
  hactl snapshot take                     on a host whose member is not the leader
  hactl snapshot take --host cp2          on this host
  hactl snapshot take --to /mnt/backup/   and fetch it")]
    Take {
        /// Take it on this host [default: one whose etcd member is not the leader]
        #[arg(long, value_name = "HOST")]
        host: Option<HostName>,
        /// Fetch it to this file or directory
        #[arg(long, value_name = "PATH")]
        to: Option<PathBuf>,
    },
    /// List the snapshots on all etcd hosts, and their copies in directories and object storage
    #[command(after_help = "\
Examples:
  hactl snapshot list
  hactl snapshot list -o json | jq '.hosts | map_values(.bundles | length)'")]
    List,
    /// Verify a snapshot: its signature, every byte, that it decrypts, and that its keys are usable
    #[command(after_help = "\
Examples:
  hactl snapshot verify                   the newest one on the hosts
  hactl snapshot verify --deep            also restore it on a host, beside what runs there
  hactl snapshot verify --identity ~/lab-identity.txt lab-20261122T060000000Z-cp1.hactl")]
    Verify {
        /// The snapshot: a file, HOST:/DIRECTORY/NAME, or s3://BUCKET/PREFIX/NAME [default: the newest on the hosts]
        file: Option<PathBuf>,
        /// The newest one of this host
        #[arg(long, value_name = "HOST", conflicts_with = "file")]
        host: Option<HostName>,
        /// Also restore it on a host, in a separate directory and on separate sockets
        #[arg(long)]
        deep: bool,
        /// The age identity that decrypts it [default: the one in the state directory]
        #[arg(long, value_name = "FILE")]
        identity: Option<PathBuf>,
        /// Also verify a snapshot without a signature, as earlier versions of hactl made them
        #[arg(long)]
        accept_unsigned: bool,
    },
    /// Remove the snapshots that `snapshots.keep` does not keep; every run of the timer does so, too
    #[command(after_help = "Examples:\n  hactl snapshot prune")]
    Prune,
}

pub fn run(common: &Common, args: &SnapshotArgs) -> Exit {
    let reader = common.reader();
    // These also work without a reachable host: object storage may be all that is left.
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
    let result = common.run_checked(checked, common.sink(&reader), needs, async |session| {
        let (object, text, headline) = match &args.verb {
            Verb::Take { host, to } => {
                let taken = workflow::take_bundle(session, host.as_ref(), to.as_deref()).await?;
                let object = json!({"host": taken.host, "bundle": taken.bundle, "fetched": taken.fetched});
                (object, String::new(), words::taken(&taken.host, &taken.bundle, taken.fetched.as_deref()))
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
                (object, text, headline)
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
                (object, text, headline)
            }
            Verb::Prune => {
                let removed = workflow::prune_bundles(session).await?;
                let headline = match removed.values().map(Vec::len).sum() {
                    0 => "nothing to remove".to_owned(),
                    some => format!("removed {}", report::words::count(some, "snapshot")),
                };
                (json!({"removed": removed}), words::removed(&removed), headline)
            }
        };
        Ok(Said { object, text, last: Some(Verdict::ok(headline)) })
    });
    common.said(&reader, result)
}

pub(super) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

/// The verdict on a snapshot that cannot be used, with hints.
pub(super) fn verdict(unusable: &Unusable, mut verdict: Verdict) -> Verdict {
    if let Unusable::Forged { .. } | Unusable::Unsigned(_) = unusable {
        (verdict.exit, verdict.code) =
            (Exit::Refused, if matches!(unusable, Unusable::Unsigned(_)) { "unsigned" } else { "forged" });
    }
    let hint = match unusable {
        Unusable::Io { .. } | Unusable::Bundle(BundleError::Io { .. }) => {
            "check the path, its permissions and the free space on its disk"
        }
        Unusable::Bundle(BundleError::WrongIdentity(_)) => {
            "--identity FILE: the identity.txt of the state directory at that time, or the private key of one of \
             vault.recipients"
        }
        Unusable::Forged { .. } => {
            "never use it. Choose another one (`hactl snapshot list` shows the signer of each), and find out who has \
             write access to the place where it is stored"
        }
        Unusable::Unsigned(_) => {
            "--accept-unsigned accepts it: only if you know its origin. After `hactl up`, the hosts sign the snapshots \
             that they take"
        }
        Unusable::Bundle(BundleError::TooNew { .. }) => "use a newer hactl",
        Unusable::Bundle(_) => "choose another one: hactl snapshot list",
        Unusable::Identity { .. } | Unusable::NoIdentity(_) => {
            "--identity FILE: a file with a line AGE-SECRET-KEY-1..., such as identity.txt in the state directory"
        }
        Unusable::State { .. } => "choose another one: hactl snapshot list",
        Unusable::OtherCluster { .. } => "use the inventory of that cluster, or a snapshot of this one",
        Unusable::Bucket(error) => match error.trouble {
            BucketTrouble::Dark => "check snapshots.s3.endpoint and the network from this machine to it",
            BucketTrouble::Refused => {
                "check the access key in the file of snapshots.s3.credentials and its permissions"
            }
            BucketTrouble::Missing => "`hactl snapshot list` shows the existing ones",
            BucketTrouble::Full | BucketTrouble::Other => "ask the operator of the object storage",
        },
        Unusable::NoStorage(_) => {
            "add snapshots.s3 with `credentials` to the inventory, or download the snapshot and name the file"
        }
        Unusable::Several(_) => {
            "name the snapshot with --from: in object storage, its directory ends in the fingerprint of its CA"
        }
        Unusable::NoCopy { .. } => "is the directory mounted there? `hactl snapshot list` shows the existing ones",
        Unusable::TooLarge { .. } => {
            "choose another one: hactl snapshot list. Do not trust that host until you know why it reports that size"
        }
        Unusable::TooSlow { .. } => "another host may have one: `hactl snapshot list` shows it, `--host` selects it",
        Unusable::NoUrl(_) => "`hactl snapshot list` shows the addresses",
        Unusable::None => "hactl snapshot take; on the hosts: journalctl -u hactl-snapshot",
    };
    verdict.with_hints([hint])
}

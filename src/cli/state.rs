//! `hactl state`.

use super::common::{Common, Needs, ended, there};
use crate::model::desired::Desired;
use crate::model::names::Digest;
use crate::report::{Exit, Verdict};
use crate::workflow::{self, Pulling};
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct StateArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Rebuild a lost state directory from a snapshot or from the encrypted copies on the hosts, whichever is newer
    #[command(after_help = "\
Examples:
  hactl state pull --identity ~/lab-identity.txt
  hactl state pull --identity ~/lab-identity.txt --fingerprint SHA256:9F86D0...
  hactl state pull --identity ~/lab-identity.txt --from lab-20261122T060000000Z-cp1.hactl")]
    Pull {
        /// The age identity that decrypts it: a copy of identity.txt, or the private key of one of vault.recipients
        #[arg(long, value_name = "FILE")]
        identity: PathBuf,
        /// The snapshot: a file, HOST:/DIRECTORY/NAME, or s3://BUCKET/PREFIX/NAME [default: the newest]
        #[arg(long, value_name = "FILE|URL")]
        from: Option<PathBuf>,
        /// SHA-256 fingerprint that you know to be the cluster's CA; without it, hactl shows the fingerprint and asks
        #[arg(long, value_name = "SHA256:HEX", value_parser = Digest::from_fingerprint)]
        fingerprint: Option<Digest>,
    },
}

pub fn run(common: &Common, args: &StateArgs) -> Exit {
    let reader = common.reader();
    let Verb::Pull { identity, from, fingerprint } = &args.verb;
    let asked = Pulling { file: from.clone(), identity: identity.clone(), fingerprint: *fingerprint };
    let choices = common.choices();
    let known = |_: &Desired| there("--identity", Some(identity));
    let result = common.run_checked(known, reader.clone(), Needs::Nothing, async |session| {
        workflow::pull_state(session, &asked, &choices, &reader).await
    });
    let result = result.map(|at| {
        Verdict::ok(format!(
            "the state is rebuilt in {}: now run `hactl up`, or `hactl recover [--from FILE]` if the hosts are empty",
            at.display()
        ))
    });
    ended(&reader, result)
}

//! `hactl state`.

use super::common::{Common, Needs, there};
use super::verbs::{Terminal, ended};
use crate::model::event::Sink;
use crate::model::names::Digest;
use crate::report::Exit;
use crate::report::Verdict;
use crate::workflow::{self, Choices, Pulling};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::sync::Arc;

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
    let sink: Arc<dyn Sink> = Arc::clone(&reader) as Arc<dyn Sink>;
    let Verb::Pull { identity, from, fingerprint } = &args.verb;
    let asked = Pulling { file: from.clone(), identity: identity.clone(), fingerprint: *fingerprint };
    let choices = Choices { yes: common.yes, ..Choices::default() };
    let terminal = Terminal(Arc::clone(&reader));
    let result = common.run_checked(
        |_| there("--identity", Some(identity)),
        sink,
        Needs::Nothing,
        async |session| workflow::pull_state(session, &asked, &choices, &terminal).await,
    );
    let result = result.map(|at| {
        reader.end(&Verdict::ok(format!(
            "the state is rebuilt in {}: now run `hactl up`, or `hactl recover [--from FILE]` if the hosts are empty",
            at.display()
        )));
        Exit::Done
    });
    ended(&reader, result)
}

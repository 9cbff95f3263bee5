//! `hactl recover`.

use super::common::{Common, Needs, Output, Said, ended, failure_verdict, there};
use super::snapshot::now_ms;
use crate::model::desired::Desired;
use crate::report::harmless::print;
use crate::report::{self, Exit, Reader, Style, Verdict};
use crate::workflow::{self, Drilled, Recovered, Recovering};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct RecoverArgs {
    /// Show what is wrong and what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Rehearse a recovery: restore a snapshot on a host, beside what runs there, without touching the running cluster
    #[arg(long, conflicts_with_all = ["dry_run", "confirm_powered_off"])]
    drill: bool,
    /// Use this source instead of the newest: the data of a host (HOST), data moved aside there
    /// (HOST:member.moved-TIME), or a snapshot (its name, a file, HOST:/DIRECTORY/NAME or s3://BUCKET/PREFIX/NAME)
    #[arg(long, value_name = "HOST|FILE|URL")]
    from: Option<String>,
    /// Go back although etcd answers: to the data that the last recovery moved aside, or to the source of --from
    #[arg(long, conflicts_with = "drill")]
    undo: bool,
    /// The age identity that decrypts a snapshot [default: the one in the state directory]
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Use a snapshot without a signature, as earlier versions of hactl made them; only if you know its origin
    #[arg(long)]
    accept_unsigned: bool,
    /// Confirm that this unreachable host is powered off; may be repeated
    #[arg(long, value_name = "HOST")]
    confirm_powered_off: Vec<String>,
}

pub fn run(common: &Common, args: RecoverArgs) -> Exit {
    let reader = common.reader();
    if args.drill {
        return drill(common, &args, &reader);
    }
    let common = &Common { powered_off: args.confirm_powered_off.clone(), ..common.clone() };
    let choices = common.choices();
    let asked = Recovering {
        from: args.from,
        undo: args.undo,
        identity: args.identity,
        powered_off: args.confirm_powered_off,
        accept_unsigned: args.accept_unsigned,
        dry_run: args.dry_run,
    };
    let checked = |_: &Desired| {
        there("--from", asked.from.as_deref().and_then(workflow::file_named).as_deref())?;
        there("--identity", asked.identity.as_deref())
    };
    let result = common.run_checked(checked, reader.clone(), Needs::Most, async |session| {
        let recovered = Box::pin(workflow::recover(session, &asked, &choices, &reader)).await?;
        if let Recovered::Done { after: Ok(summary), .. }
        | Recovered::Woken { summary, .. }
        | Recovered::Replaced { summary, .. } = &recovered
            && common.output == Output::Text
        {
            reader.pause();
            let style = Style::stdout(common.verbose);
            print(&report::status_text(&session.desired, &summary.facts, &summary.checks, &style));
        }
        Ok(recovered)
    });
    let result = result.map(|recovered| {
        let headline = match recovered {
            Recovered::Nothing(diagnosis) => report::recovery::nothing(&diagnosis),
            Recovered::Proposed(_) => "nothing was changed; run it without --dry-run to recover".to_owned(),
            Recovered::Room { before, after } => report::recovery::roomy(&before, &after),
            Recovered::Replaced { odd, .. } => report::recovery::replaced(&odd),
            Recovered::Woken { finished: true, .. } => {
                "the recovery is finished; nothing else was restored or undone".to_owned()
            }
            Recovered::Woken { .. } => "nothing was lost: the members were started with the data they have".to_owned(),
            Recovered::Done { proposal, quorum, endpoint, after } => {
                let headline = report::recovery::recovered(&proposal, quorum, endpoint);
                if let Err(left) = after {
                    let mut verdict = failure_verdict(&left).after_work();
                    verdict.headline = format!("{headline}. Not everything works yet: {}", verdict.headline);
                    return verdict;
                }
                headline
            }
        };
        Verdict::ok(headline)
    });
    ended(&reader, result)
}

fn drill(common: &Common, args: &RecoverArgs, reader: &Arc<dyn Reader>) -> Exit {
    let drilled = common.run(common.sink(reader), Needs::Hosts, async |session| {
        let (from, identity) = (args.from.as_deref(), args.identity.as_deref());
        let drilled = workflow::drill(session, from, identity, args.accept_unsigned).await?;
        let Drilled { manifest, host, proof, took } = drilled;
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let headline = report::snapshots::drilled(&manifest, &host, &proof, took, now_ms());
        let object = json!({"manifest": manifest, "host": host, "proof": proof, "tookMs": took_ms});
        Ok(Said { object, text: String::new(), last: Some(Verdict::ok(headline)) })
    });
    common.said(reader, drilled)
}

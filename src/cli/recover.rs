//! `hactl recover`.

use super::common::{Common, Needs, Output};
use super::verbs::{Terminal, ended, print};
use crate::model::event::Sink;
use crate::model::names::HostName;
use crate::plan::Wish;
use crate::report::{self, Style, Verdict};
use crate::workflow::{self, Choices, Recovered, Recovering};
use clap::Args;
use std::sync::Arc;

#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// Say what is wrong and what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Take the data of this host, and not the newest
    #[arg(long, value_name = "HOST")]
    from: Option<HostName>,
    /// A host that does not answer and is known to be powered off; may be given more than once
    #[arg(long, value_name = "HOST")]
    confirm_powered_off: Vec<String>,
}

pub fn run(common: &Common, args: RecoverArgs) -> u8 {
    let reader = common.reader();
    let choices = Choices { yes: common.yes, ..Choices::default() };
    let terminal = Terminal(Arc::clone(&reader));
    let sink: Arc<dyn Sink> = Arc::clone(&reader) as Arc<dyn Sink>;
    let wish = Wish { from: args.from, powered_off: args.confirm_powered_off, ..Wish::default() };
    let asked = Recovering { wish, dry_run: args.dry_run };
    let result = common.run(sink, Needs::Most, async |session| {
        let recovered = workflow::recover(session, &asked, &choices, &terminal).await?;
        if let Recovered::Done { after: Ok(summary), .. } | Recovered::Woken { summary, .. } = &recovered
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
            Recovered::Proposed(_) => "nothing was changed: without --dry-run it is done".to_owned(),
            Recovered::Woken { finished: true, .. } => "the recovery that was cut off is finished".to_owned(),
            Recovered::Woken { .. } => "nothing was lost: members were started with the data they have".to_owned(),
            Recovered::Done { proposal, quorum, endpoint, after } => {
                let headline = report::recovery::recovered(&proposal, quorum, endpoint);
                if let Err(left) = after {
                    let mut verdict = super::common::failure_verdict(&left);
                    verdict.headline = format!("{headline}. Not everything is well yet: {}", verdict.headline);
                    reader.end(&verdict);
                    return verdict.exit;
                }
                headline
            }
        };
        reader.end(&Verdict::ok(&headline));
        0
    });
    ended(&reader, result)
}

//! What all verbs share: the common flags, the runtime, interrupts, and how an end becomes words and an exit code.

use crate::host::Access;
use crate::inventory::{Loaded, Source};
use crate::model::desired::Desired;
use crate::model::event::{Event, Sink};
use crate::report::{self, FailureKind, OutputKind, Verdict};
use crate::workflow::{Failure, Places, Session};
use clap::{Args, ValueEnum};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How results are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

/// Flags of every verb.
#[derive(Debug, Args)]
pub struct Common {
    /// The inventory; `-` reads standard input
    #[arg(short, long, global = true, default_value = "./hactl.yaml", env = "HACTL_INVENTORY", value_name = "FILE")]
    pub inventory: PathBuf,
    /// How to show results
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Agree to what is disruptive in advance
    #[arg(short, long, global = true)]
    pub yes: bool,
    /// Where this cluster's keys and journal are kept [default: .hactl/CLUSTER beside the inventory]
    #[arg(long, global = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The store of bundles [default: $XDG_CACHE_HOME/hactl/bundles]
    #[arg(long, global = true, value_name = "DIR", env = "HACTL_BUNDLES")]
    pub bundles: Option<PathBuf>,
    /// Record the keys of hosts that are not known yet; a changed key is refused all the same
    #[arg(long, global = true)]
    pub trust_first_use: bool,
    /// Seconds to wait for a host to accept a connection
    #[arg(long, global = true, default_value_t = 10, value_name = "SECONDS")]
    pub timeout: u64,
    /// Say more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

impl Common {
    /// The reader of this run's events.
    pub fn reader(&self) -> Arc<dyn Sink> {
        let kind = match self.output {
            Output::Json => OutputKind::Json,
            Output::Text => OutputKind::Auto,
        };
        report::reader(kind, self.verbose)
    }

    /// The store of bundles.
    pub fn bundles(&self) -> PathBuf {
        self.bundles.clone().unwrap_or_else(crate::component::default_store)
    }

    /// Reads the inventory and tells its warnings.
    pub fn load(&self, sink: &Arc<dyn Sink>) -> Result<Loaded, Verdict> {
        let source = if self.inventory == Path::new("-") { Source::Stdin } else { Source::File(self.inventory.clone()) };
        let loaded = crate::inventory::load(&source).map_err(|error| report::verdict(&FailureKind::Inventory, &error))?;
        for warning in &loaded.warnings {
            sink.emit(Event::Warning { text: warning.to_string() });
        }
        Ok(loaded)
    }

    /// Where things of this cluster are kept.
    pub fn places(&self, desired: &Desired) -> Places {
        let beside = match self.inventory.parent() {
            Some(dir) if self.inventory != Path::new("-") && dir != Path::new("") => dir.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let state = self.state.clone().unwrap_or_else(|| beside.join(".hactl").join(desired.cluster.as_str()));
        Places { state, bundles: self.bundles() }
    }

    /// Prints how it ended, and gives the exit code.
    pub fn end(&self, verdict: &Verdict) -> u8 {
        report::tell(verdict, self.output == Output::Json);
        verdict.exit
    }

    /// Connects, runs a workflow, closes. The first interrupt starts nothing new, the second drops everything.
    pub fn run<T, W>(&self, sink: &Arc<dyn Sink>, work: W) -> Result<T, Verdict>
    where
        W: AsyncFnOnce(&Session) -> Result<T, Failure>,
    {
        let loaded = self.load(sink)?;
        let desired = Arc::new(loaded.desired);
        let places = self.places(&desired);
        let access = Access::this_binary(Duration::from_secs(self.timeout), self.trust_first_use);
        let stop = CancellationToken::new();
        block_on(async {
            let access = access.map_err(|error| failure_verdict(&error.into()))?;
            let worked = async {
                let session = Session::open(desired, places, &access, Arc::clone(sink), stop.clone()).await?;
                let result = work(&session).await;
                session.close().await;
                result
            };
            let result = tokio::select! {
                result = worked => result,
                // The hosts' side ends with its channels; a later run converges from wherever this one stopped.
                () = second_interrupt(&stop, sink) => Err(Failure::Interrupted { done: 0, left: 0 }),
            };
            result.map_err(|failure| failure_verdict(&failure))
        })
    }
}

/// Runs async work on a runtime of its own.
pub fn block_on<T>(work: impl Future<Output = Result<T, Verdict>>) -> Result<T, Verdict> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(work);
            // Tasks that still wait on a lost host must not hold up the end.
            runtime.shutdown_timeout(Duration::from_millis(200));
            result
        }
        Err(error) => Err(report::verdict(&FailureKind::Local, &error)),
    }
}

/// Returns at the second interrupt; the first only asks that nothing new be started.
async fn second_interrupt(stop: &CancellationToken, sink: &Arc<dyn Sink>) {
    if tokio::signal::ctrl_c().await.is_ok() {
        stop.cancel();
        let text = "interrupted: nothing new is started; what runs is finished first (again to drop it)".to_owned();
        sink.emit(Event::Warning { text });
        if tokio::signal::ctrl_c().await.is_ok() {
            return;
        }
    }
    // Without signals there is nothing to wait for: the work alone decides when it ends.
    std::future::pending().await
}

/// Maps a workflow's failure to the one table of words and exit codes.
pub fn failure_verdict(failure: &Failure) -> Verdict {
    let kind = match failure {
        Failure::Refused(refusal) => FailureKind::Refused(refusal.clone()),
        Failure::Vault(_) => FailureKind::State,
        Failure::Bundle(_) => FailureKind::Bundle,
        Failure::Host { host, error } => FailureKind::Connect { host: Some(host.clone()), hint: error.hint() },
        Failure::NoHost { hosts } => FailureKind::NoHost {
            hosts: hosts.iter().map(|(h, e)| (h.clone(), e.to_string(), e.hint())).collect(),
        },
        Failure::Render(_) => FailureKind::Inventory,
        Failure::Steps { .. } => FailureKind::Step,
        Failure::Interrupted { .. } => FailureKind::Interrupted,
        Failure::Unverified { .. } => FailureKind::Unverified,
        Failure::Api(_) => FailureKind::Api,
        Failure::Local { .. } => FailureKind::Local,
    };
    report::verdict(&kind, failure)
}

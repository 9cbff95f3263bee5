//! The one table that maps a failure to its exit code, headline, causes and hints.
//!
//! In: a [`FailureKind`], or a refusal, and the error behind it. Out: a [`Verdict`], as text for people and as the
//! last object of `-o json`. Only this file and `refused` choose exit codes and word hints.

use super::exit::Exit;
use super::fetch_kind::FetchKind;
use super::flow::{Flow, pictured};
use super::inventory_words::InventoryWords;
use super::maintenance_kind::MaintenanceKind;
use super::style::{Paint, Style};
use super::words::{chain, clean, count, texts};
use crate::model::names::HostName;
use crate::model::refusal::Refusal;
use serde_json::{Value, json};
use std::error::Error;

/// How a run ended, for people and for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The process's exit code.
    pub exit: Exit,
    /// A stable word for programs, such as `no-quorum`.
    pub code: &'static str,
    /// What happened, in one sentence.
    pub headline: String,
    /// Why, from the nearest cause to the deepest; or the report of each host.
    pub causes: Vec<String>,
    /// What to do, the most likely fix first.
    pub hints: Vec<String>,
}

/// The kind of a failure, as far as messages and exit codes depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureKind {
    /// The command line is wrong.
    Usage,
    /// The inventory cannot be read, or asks for something impossible.
    Inventory,
    /// To continue would not be safe.
    Refused(Refusal),
    /// A host could not be reached, or the connection was lost.
    Connect {
        /// Which host.
        host: HostName,
        /// How it failed.
        kind: ConnectKind,
    },
    /// A step of a plan failed. The last log lines of its host were shown when it did.
    Step {
        /// The host of the step.
        host: Option<HostName>,
        /// What the step does.
        what: String,
        /// How many steps failed in all.
        failed: usize,
        /// How many steps were done before.
        done: usize,
        /// Whether the host was rolled back.
        rolled_back: bool,
    },
    /// The components could not be found, or are damaged.
    Bundle,
    /// A bundle could not be fetched, exported or imported.
    Fetch(FetchKind),
    /// A maintenance does not go on.
    Maintenance(MaintenanceKind),
    /// The state directory could not be read or written.
    State,
    /// Stopped by a signal.
    Interrupted,
    /// Standard output could not be written.
    Output,
    /// Anything else.
    Other,
}

/// How a connection to a host failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectKind {
    /// No route, connection refused, or timeout.
    Unreachable,
    /// The host key is unknown.
    UnknownKey,
    /// The host key differs from the known one.
    ChangedKey,
    /// The host key is revoked.
    RevokedKey,
    /// The host accepted none of the user's keys.
    Login,
    /// The password or the account of the user has expired.
    Expired,
    /// The user cannot become root.
    Root,
    /// The connection was lost during the work.
    Lost,
    /// The agent could not be started, or speaks another version of the protocol.
    Helper,
}

impl Verdict {
    /// Success.
    pub fn ok(headline: impl Into<String>) -> Self {
        Self { exit: Exit::Done, code: "ok", headline: headline.into(), causes: Vec::new(), hints: Vec::new() }
    }

    /// The verdict on a failure. `error` is the error behind it, if there is one: it provides headline and causes where
    /// the kind alone does not say enough. [`Event::Failed`](crate::model::event::Event) has already shown the reason
    /// of a failed step, so pass no error for a step unless that event was not shown.
    pub fn of(kind: &FailureKind, error: Option<&dyn Error>) -> Self {
        let mut causes = chain(error);
        // If the error's own sentence becomes the headline, only its sources are causes.
        let mut or = |other: &str| if causes.is_empty() { other.to_owned() } else { causes.remove(0) };
        let mut own = Vec::new();
        let (exit, code, headline) = match kind {
            FailureKind::Refused(refusal) => return Self::from(refusal),
            FailureKind::Usage => (Exit::Usage, "usage", or("invalid command line")),
            FailureKind::Inventory => {
                let stated = InventoryWords::of(or("the inventory cannot be used"));
                causes.splice(0..0, stated.more);
                own.extend(stated.to_do);
                (Exit::Usage, "inventory", stated.headline)
            }
            // This may be another machine, so a retry is not safe.
            FailureKind::Connect { host, kind: kind @ (ConnectKind::ChangedKey | ConnectKind::RevokedKey) } => {
                (Exit::Refused, kind.code(), kind.headline(host))
            }
            FailureKind::Connect { host, kind } => (Exit::Failed, kind.code(), kind.headline(host)),
            FailureKind::Step { host, what, failed, .. } => {
                let place = host.as_ref().map(|h| format!("{h}: ")).unwrap_or_default();
                let others =
                    if *failed > 1 { format!(", and {}", count(failed - 1, "other step")) } else { String::new() };
                (Exit::Failed, "step", format!("{place}could not {what}{others}"))
            }
            FailureKind::Bundle => (Exit::Failed, "bundle", or("the component bundle cannot be used")),
            FailureKind::Fetch(kind) => (kind.exit(), kind.code(), or("the component bundle cannot be fetched")),
            FailureKind::Maintenance(kind) => (kind.exit(), kind.code(), or("the maintenance does not go on")),
            FailureKind::State => (Exit::Failed, "state", or("the state directory cannot be read or written")),
            FailureKind::Interrupted => (Exit::Failed, "interrupted", "interrupted".to_owned()),
            FailureKind::Output => {
                (Exit::Failed, "output", "not all of the output could be written to standard output".to_owned())
            }
            FailureKind::Other => (Exit::Failed, "failed", or("something failed")),
        };
        let hints = if own.is_empty() { hints(kind) } else { own };
        Self { exit, code, headline, causes, hints }
    }

    /// The same verdict with other hints.
    #[must_use]
    pub fn with_hints<const N: usize>(self, hints: [&str; N]) -> Self {
        Self { hints: texts(hints), ..self }
    }

    /// The same verdict after a run that completed steps: it must not claim that nothing was changed.
    #[must_use]
    pub fn after_work(mut self) -> Self {
        for cause in self.causes.iter_mut().filter(|cause| *cause == UNTOUCHED) {
            "Completed steps stay done; no further step was started.".clone_into(cause);
        }
        self.headline = self.headline.replace("nothing was changed", "nothing more was changed");
        self
    }

    /// For people: what happened, why, and what to do. Ends with a line feed.
    pub fn text(&self, style: &Style) -> String {
        if self.exit == Exit::Done {
            let lead = format!("{} ", style.good());
            return Flow::of(&clean(&self.headline), Paint::Plain).lines(&lead, style.mark_width() + 1, style);
        }
        let lead = format!("{} ", style.bad());
        let mut text = Flow::of(&clean(&self.headline), Paint::Bold).lines(&lead, 2, style);
        for cause in &self.causes {
            // A cause may be preformatted, such as a line of the inventory with a marker below: keep its line breaks.
            text.push_str(&pictured(&clean(cause), "  ", style));
        }
        if !self.hints.is_empty() {
            text.push_str(&format!("\n{}\n", style.paint(Paint::Bold, "What to do")));
            for hint in &self.hints {
                let bullet = if style.unicode { "  • " } else { "  - " };
                text.push_str(&Flow::of(&clean(hint), Paint::Plain).lines(bullet, 4, style));
            }
        }
        text
    }

    /// For programs: `{"event":"verdict","exit":3,"code":"no-quorum","headline":...,"causes":[...],"hints":[...]}`.
    pub fn json(&self) -> Value {
        json!({
            "event": "verdict",
            "exit": self.exit.code(),
            "code": self.code,
            "headline": self.headline,
            "causes": self.causes,
            "hints": self.hints,
        })
    }
}

pub(super) const UNTOUCHED: &str = "Nothing was changed.";

impl ConnectKind {
    const fn code(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::UnknownKey => "unknown-host-key",
            Self::ChangedKey => "changed-host-key",
            Self::RevokedKey => "revoked-host-key",
            Self::Login => "login",
            Self::Expired => "expired",
            Self::Root => "root",
            Self::Lost => "connection-lost",
            Self::Helper => "helper",
        }
    }
    fn headline(self, host: &HostName) -> String {
        match self {
            Self::Unreachable => format!("{host} cannot be reached by SSH"),
            Self::UnknownKey => format!("{host}: unknown host key: refusing to connect"),
            Self::ChangedKey => format!("{host}: host key mismatch: refusing to connect"),
            Self::RevokedKey => format!("{host}: revoked host key: refusing to connect"),
            Self::Login => format!("{host} accepts none of your SSH keys"),
            Self::Expired => format!("{host}: the password or the account of the login user has expired"),
            Self::Root => format!("{host}: the login works, but the user cannot become root"),
            Self::Lost => format!("the connection to {host} was lost"),
            Self::Helper => format!("the hactl agent on {host} cannot be started"),
        }
    }
    fn hints(self, host: &HostName) -> Vec<String> {
        let hints: &[&str] = match self {
            Self::Unreachable => &[
                "check that the host is up, and that `ssh` in the inventory has the right address, port, user and jump \
                 host",
                "check that this machine can reach its sshd; the usual cause is a firewall in between",
            ],
            Self::UnknownKey => &[
                "compare the fingerprint with the one on the host's console (ssh-keygen -lf \
                 /etc/ssh/ssh_host_ed25519_key.pub), then put it into the inventory or known_hosts",
                "`--trust-first-use` accepts and records the key: only on a network that you trust",
            ],
            Self::ChangedKey => &[
                "first find out why: a reinstalled host has a new key, and so has a man in the middle",
                "if the host was reinstalled, remove the old key (ssh-keygen -R) or change the fingerprint in the \
                 inventory, then run the same command again",
            ],
            Self::RevokedKey => {
                &["the key was marked as revoked for a reason: generate a new one on the host (ssh-keygen -A after \
                 removing /etc/ssh/ssh_host_*), then record that"]
            }
            Self::Login => &[
                "name the user and the identity file under `ssh` in the inventory, or load the key into your SSH agent \
                 (ssh-add -l lists its keys)",
            ],
            Self::Expired => &[
                "change the password, or let the account not expire: `chage -l USER` on the host shows when each ends",
                "or log in as another user (`ssh: {user: NAME}` in the inventory)",
            ],
            Self::Root => &["allow the user to run sudo, with or without a password, or log in as root"],
            Self::Lost => &["run the same command again: it continues from the current state"],
            Self::Helper => {
                &["check that /var/lib/hactl on the host is writable and not mounted noexec, and that the host runs \
                 Linux on the architecture of this machine"]
            }
        };
        hints.iter().map(|hint| hint.replace("HOST", host.as_str())).collect()
    }
}

fn hints(kind: &FailureKind) -> Vec<String> {
    let hints: &[&str] = match kind {
        FailureKind::Connect { host, kind } => return kind.hints(host),
        FailureKind::Refused(refusal) => return Verdict::from(refusal).hints,
        FailureKind::Step { host: Some(host), rolled_back: true, .. } => {
            return vec![
                format!(
                    "fix the setting in the inventory: the last log lines of {host} show why it failed. Check the \
                     change with `hactl plan`, then run `hactl up`"
                ),
                format!(
                    "{host} was rolled back, and the hosts after it were not changed: `hactl status` shows the state"
                ),
            ];
        }
        FailureKind::Step { host, done, .. } => {
            let place = host.as_ref().map_or("the cause".to_owned(), |h| format!("the cause on {h}"));
            let kept =
                if *done > 0 { format!(": {} done and will not be repeated", steps_are(*done)) } else { String::new() };
            return vec![
                format!("fix {place}, then run the same command again{kept}"),
                "`hactl status` shows the current state of the cluster".to_owned(),
            ];
        }
        FailureKind::Usage => &["`hactl --help` lists the commands, `hactl COMMAND --help` shows examples"],
        FailureKind::Inventory => &["`hactl inventory check` validates the inventory without contacting any host"],
        FailureKind::Bundle => &["`hactl bundle verify` lists missing and damaged files"],
        FailureKind::Fetch(kind) => kind.hints(),
        FailureKind::Maintenance(kind) => kind.hints(),
        FailureKind::State => {
            &["check that you can read and write the state directory: .hactl/CLUSTER beside the inventory, unless \
             --state names another one"]
        }
        FailureKind::Interrupted => &["run the same command again: it continues from the current state"],
        FailureKind::Output => {
            &["free space where standard output goes, or send it elsewhere, then run the same command again"]
        }
        FailureKind::Other => &[],
    };
    hints.iter().map(|&hint| hint.to_owned()).collect()
}

fn steps_are(n: usize) -> String {
    if n == 1 { "1 step is".to_owned() } else { format!("{n} steps are") }
}

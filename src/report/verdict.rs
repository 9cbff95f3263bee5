//! The one table from what went wrong to an exit code, a headline, the causes and what to do.
//!
//! In: a [`FailureKind`], or a refusal, and the error behind it. Out: a [`Verdict`], as text for people and as the
//! last object of `-o json`. Nowhere else, but for refusals (`refused`), is an exit code chosen or a hint worded.

use super::exit::Exit;
use super::fetch_kind::FetchKind;
use super::flow::{Flow, pictured};
use super::inventory_words::InventoryWords;
use super::style::{Paint, Style};
use super::words::{chain, clean, count};
use crate::model::names::HostName;
use crate::model::refusal::Refusal;
use serde_json::{Value, json};
use std::error::Error;

/// How a run ended, for the person who started it and for the program that did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The process's exit code.
    pub exit: Exit,
    /// A stable word for programs, such as `no-quorum`.
    pub code: &'static str,
    /// What happened, in one sentence.
    pub headline: String,
    /// Why, from the nearest cause to the deepest; or what each host said.
    pub causes: Vec<String>,
    /// What to do, the likeliest first.
    pub hints: Vec<String>,
}

/// What went wrong, as far as words and exit codes need to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureKind {
    /// The command line is wrong.
    Usage,
    /// The inventory cannot be read or asks for something impossible.
    Inventory,
    /// Going on would not be safe.
    Refused(Refusal),
    /// A host could not be reached, or the connection was lost.
    Connect {
        /// Which host.
        host: HostName,
        /// In which way.
        kind: ConnectKind,
    },
    /// A step of a plan failed. Its host's last lines were shown when it did.
    Step {
        /// Where.
        host: Option<HostName>,
        /// What it tried.
        what: String,
        /// How many steps failed in all.
        failed: usize,
        /// How many steps were done before.
        done: usize,
        /// Whether what ran there before runs again by its earlier files.
        put_back: bool,
    },
    /// The components could not be found, or are not what they should be.
    Bundle,
    /// A bundle could not be fetched, exported or imported.
    Fetch(FetchKind),
    /// What the administrator keeps could not be read or written.
    State,
    /// Stopped by a signal.
    Interrupted,
    /// Anything else.
    Other,
}

/// In which way a host could not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectKind {
    /// No route, nobody listens, or no answer in time.
    Unreachable,
    /// Its host key is not known.
    UnknownKey,
    /// Its host key is another than the known one.
    ChangedKey,
    /// Its host key was revoked.
    RevokedKey,
    /// No key of ours was accepted.
    Login,
    /// The user may not become root without a password.
    Root,
    /// The connection was lost while we worked.
    Lost,
    /// The host's side could not be started there, or does not speak our language.
    Helper,
}

impl Verdict {
    /// All went well.
    pub fn ok(headline: impl Into<String>) -> Self {
        Self { exit: Exit::Done, code: "ok", headline: headline.into(), causes: Vec::new(), hints: Vec::new() }
    }

    /// The verdict on a failure. `error` is the error behind it, if there is one: it gives headline and causes where the
    /// kind alone does not say enough. A step's reason was told by [`Event::Failed`](crate::model::event::Event) already:
    /// give no error for it unless nobody read that.
    pub fn of(kind: &FailureKind, error: Option<&dyn Error>) -> Self {
        let mut causes = chain(error);
        // Where the error's own sentence makes the headline, only what is behind it is a cause.
        let mut or = |other: &str| if causes.is_empty() { other.to_owned() } else { causes.remove(0) };
        let mut own = Vec::new();
        let (exit, code, headline) = match kind {
            FailureKind::Refused(refusal) => return Self::from(refusal),
            FailureKind::Usage => (Exit::Usage, "usage", or("the command line is not understood")),
            FailureKind::Inventory => {
                let told = InventoryWords::of(or("the inventory cannot be used"));
                causes.splice(0..0, told.more);
                own.extend(told.to_do);
                (Exit::Usage, "inventory", told.headline)
            }
            // Somebody else's machine is no failure to try again.
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
            FailureKind::Bundle => (Exit::Failed, "bundle", or("the components cannot be used")),
            FailureKind::Fetch(kind) => (kind.exit(), kind.code(), or("the components cannot be fetched")),
            FailureKind::State => (Exit::Failed, "state", or("the state cannot be read or written")),
            FailureKind::Interrupted => (Exit::Failed, "interrupted", "stopped on request".to_owned()),
            FailureKind::Other => (Exit::Failed, "failed", or("something failed")),
        };
        let hints = if own.is_empty() { hints(kind) } else { own };
        Self { exit, code, headline, causes, hints }
    }

    /// The same after a run that had done steps already: it must not say that nothing was changed.
    #[must_use]
    pub fn after_work(mut self) -> Self {
        for cause in self.causes.iter_mut().filter(|cause| *cause == UNTOUCHED) {
            "What was done before this stays done; nothing more was begun.".clone_into(cause);
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
            // A cause may be a picture, such as the line of an inventory with a mark below: its line breaks are meant.
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
            Self::Root => "root",
            Self::Lost => "connection-lost",
            Self::Helper => "helper",
        }
    }
    fn headline(self, host: &HostName) -> String {
        match self {
            Self::Unreachable => format!("{host} cannot be reached by SSH"),
            Self::UnknownKey => format!("{host} shows a host key that nobody has vouched for"),
            Self::ChangedKey => format!("{host} shows another host key than the one on record: full stop"),
            Self::RevokedKey => format!("{host} shows a host key that was revoked: full stop"),
            Self::Login => format!("{host} accepts none of our keys"),
            Self::Root => format!("{host}: the login works, but it may not become root"),
            Self::Lost => format!("the connection to {host} was lost"),
            Self::Helper => format!("hactl's side on {host} cannot be started"),
        }
    }
    fn hints(self, host: &HostName) -> Vec<String> {
        let hints: &[&str] = match self {
            Self::Unreachable => &[
                "see that the host is up, and that `ssh` in the inventory names the right address, port, user and jump host",
                "see that its sshd is reached from here: a firewall between is the usual cause",
            ],
            Self::UnknownKey => &[
                "compare the fingerprint with the one on the host's console (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then put it into the inventory or known_hosts",
                "`--trust-first-use` takes it as it is and records it: only on a network that you trust",
            ],
            Self::ChangedKey => &[
                "find out why before anything else: a host that was installed anew has a new key, and so has a host that somebody put in between",
                "if it was installed anew, remove the old line (ssh-keygen -R) or change the fingerprint in the inventory, then run the same command again",
            ],
            Self::RevokedKey => &[
                "whoever marked the key as revoked had a reason: give the host a new one (ssh-keygen -A after removing /etc/ssh/ssh_host_*), then record that",
            ],
            Self::Login => &[
                "name the user and the identity file under `ssh` in the inventory, or load the key into your agent (ssh-add -l shows what it holds)",
            ],
            Self::Root => &["let the user run sudo, with or without a password, or log in as root"],
            Self::Lost => &["run the same command again: it goes on from what is there"],
            Self::Helper => &[
                "see that /var/lib/hactl can be written on the host, that it is not mounted noexec, and that the host runs Linux on this machine's architecture",
            ],
        };
        hints.iter().map(|hint| hint.replace("HOST", host.as_str())).collect()
    }
}

fn hints(kind: &FailureKind) -> Vec<String> {
    let hints: &[&str] = match kind {
        FailureKind::Connect { host, kind } => return kind.hints(host),
        FailureKind::Refused(refusal) => return Verdict::from(refusal).hints,
        FailureKind::Step { host: Some(host), put_back: true, .. } => {
            return vec![
                format!(
                    "mend what the inventory asks for: the last lines of {host} say why; `hactl plan` shows the change, then `hactl up`"
                ),
                format!("{host} has what it had, and no host after it was touched: `hactl status` shows it"),
            ];
        }
        FailureKind::Step { host, done, .. } => {
            let place = host.as_ref().map_or("the cause".to_owned(), |h| format!("the cause on {h}"));
            let kept =
                if *done > 0 { format!(": {} done and will not be repeated", steps_are(*done)) } else { String::new() };
            return vec![
                format!("put right {place}, then run the same command again{kept}"),
                "`hactl status` shows how the cluster is now".to_owned(),
            ];
        }
        FailureKind::Usage => &["`hactl --help` lists the commands, `hactl COMMAND --help` shows examples"],
        FailureKind::Inventory => &["`hactl inventory check` reads the inventory alone, without touching a host"],
        FailureKind::Bundle => &["`hactl bundle verify` names what is missing or changed"],
        FailureKind::Fetch(kind) => kind.hints(),
        FailureKind::State => &[
            "the state lies beside the inventory in .hactl/, unless --state names another place: see that it can be read and written by you",
        ],
        FailureKind::Interrupted => &["run the same command again: it goes on from what is there"],
        FailureKind::Other => &[],
    };
    hints.iter().map(|&hint| hint.to_owned()).collect()
}

fn steps_are(n: usize) -> String {
    if n == 1 { "1 step is".to_owned() } else { format!("{n} steps are") }
}

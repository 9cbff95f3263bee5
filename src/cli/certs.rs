//! `hactl certs`.

use super::common::{Common, Needs, Output, Quiet, failure_verdict, known};
use super::verbs::{Terminal, ended};
use crate::model::desired::Desired;
use crate::model::event::{Event, Sink};
use crate::model::names::HostName;
use crate::model::rotation::Rotatable;
use crate::pki::list::ADMIN;
use crate::pki::{Chosen, NotRenewable, choose, renewable};
use crate::report::harmless::{print, print_json};
use crate::report::{self, FailureKind, Reader, Style, Verdict, certs as words};
use crate::workflow::{self, Choices, Failure, Rotating};
use clap::{Args, Subcommand};
use std::sync::Arc;

#[derive(Debug, Args)]
pub struct CertsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List every certificate on every host: whom it names, who signed it, when it ends, what becomes of it
    #[command(
        after_help = "Examples:\n  hactl certs list\n  hactl certs list cp1 cp2    of these hosts\n  hactl certs list -v         also why it is not known what a component presents\n  hactl certs list -o json | jq -r '.hosts[] | .name as $h | .certificates[] | [.ends, $h, .name] | @tsv' | sort\n\nFiles are read on the hosts, and API servers, etcd and kubelets are asked what they present.\nIt needs neither quorum nor the API, and certificates may have expired."
    )]
    List {
        /// Of these hosts [default: all]
        #[arg(value_name = "HOST")]
        hosts: Vec<HostName>,
    },
    /// Issue certificates anew though they are good: after a suspicion, before a long absence
    #[command(
        after_help = "Examples:\n  hactl certs renew --dry-run             what would be done\n  hactl certs renew                       every certificate that hactl issues, on every host\n  hactl certs renew apiserver --host cp1  one, on one host\n  hactl certs renew etcd-server etcd-peer\n  hactl certs renew admin                 the administrator's kubeconfig\n\n`certs list` shows the names. What is replaced stays valid until it ends: nothing revokes it.\n`up` renews by itself what has less than a third of its life left."
    )]
    Renew {
        /// Which [default: all but admin]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// On these hosts alone
        #[arg(long, value_name = "HOST", value_delimiter = ',')]
        host: Vec<HostName>,
        /// Show what would be done, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Replace an authority or a key while the cluster serves: both are trusted, then the new one is used, then the old one goes
    #[command(
        after_help = "Examples:\n  hactl certs rotate etcd-ca --dry-run    what its next stage would do\n  hactl certs rotate etcd-ca              etcd's authority, and every certificate that it signed\n  hactl certs rotate encryption           the key of Secrets in etcd; all are written anew\n  hactl certs rotate cluster-ca           Kubernetes' authority; the old one stays trusted ...\n  hactl certs rotate cluster-ca --finish  ... until now: kubeconfigs that were given to people end\n\nWHAT: cluster-ca, etcd-ca, front-proxy-ca, signing-ca, service-account, encryption.\nHosts are restarted one at a time, and every host must answer before the next stage begins.\nCut off at any moment, the same command goes on where it was; `up` meanwhile changes nothing about it.\nPeople's kubeconfigs and tokens that were copied are known to nobody here: of cluster-ca and\nservice-account the old one stays trusted until --finish. Bundles from before stay good."
    )]
    Rotate {
        /// Which authority or key
        #[arg(value_name = "WHAT")]
        what: Rotatable,
        /// Also let the old one go of what people and programs may still hold something of
        #[arg(long)]
        finish: bool,
        /// Do not wait for what pods hold that run: with service-account --finish a day for other tokens; with cluster-ca until those from
        /// before the last rotation are gone
        #[arg(long)]
        at_once: bool,
        /// Show what the next stage would do, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

pub fn run(common: &Common, args: &CertsArgs) -> u8 {
    let reader = common.reader();
    match &args.verb {
        Verb::List { hosts } => list(common, hosts, &reader),
        Verb::Renew { names, host, dry_run } => {
            let asked = Asked { names, hosts: host };
            if *dry_run { plan(common, &asked, &reader) } else { renew(common, &asked, &reader) }
        }
        Verb::Rotate { what, finish, at_once, dry_run } => {
            let asked = Rotating { what: *what, finish: *finish, at_once: *at_once };
            if *dry_run { would_rotate(common, asked, &reader) } else { rotate(common, asked, &reader) }
        }
    }
}

fn list(common: &Common, hosts: &[HostName], reader: &Arc<dyn Reader>) -> u8 {
    let json = common.output == Output::Json;
    let sink = sink(json, reader);
    let check = |desired: &Desired| known("HOST", hosts, desired);
    let listed = common.run_checked(check, sink, Needs::Nothing, async |session| {
        Ok((session.desired.cluster.clone(), workflow::certificates(session, hosts).await?))
    });
    let result = listed.map(|(cluster, listing)| {
        reader.pause();
        if json {
            print_json(&words::json(&cluster, &listing));
        } else {
            print(&words::text(&listing, &Style::stdout(common.verbose)));
        }
        if !listing.hosts.is_empty() && listing.hosts.iter().all(|(_, of)| of.is_err()) {
            let mut verdict = Verdict::of(&FailureKind::Other, None);
            "no host answers: what is listed is what lies here".clone_into(&mut verdict.headline);
            if !json {
                reader.end(&verdict);
            }
            return verdict.exit;
        }
        if !json {
            reader.end(&Verdict::ok(words::summary(&listing)));
        }
        0
    });
    ended(reader, result)
}

/// What was asked for on the command line.
struct Asked<'a> {
    names: &'a [String],
    hosts: &'a [HostName],
}

impl Asked<'_> {
    fn check(&self, desired: &Desired) -> Result<(), Verdict> {
        known("--host", self.hosts, desired)?;
        self.chosen(desired).map(drop).map_err(|failure| failure_verdict(&failure))
    }
    /// Whether nothing but the administrator's kubeconfig is meant, with which no host has to do.
    fn only_admin(&self) -> bool {
        !self.names.is_empty() && self.names.iter().all(|name| name == ADMIN)
    }
    fn chosen(&self, desired: &Desired) -> Result<Chosen, Failure> {
        Ok(choose(desired, self.names, self.hosts)?)
    }
}

fn sink(quiet: bool, reader: &Arc<dyn Reader>) -> Arc<dyn Sink> {
    // One object is all that a program wants to read.
    if quiet { Arc::new(Quiet) } else { Arc::clone(reader) as Arc<dyn Sink> }
}

fn plan(common: &Common, asked: &Asked<'_>, reader: &Arc<dyn Reader>) -> u8 {
    let json = common.output == Output::Json;
    if asked.only_admin() {
        reader.end(&Verdict::ok("the administrator's kubeconfig would be made anew; no host has to do with it"));
        return 0;
    }
    let check = |desired: &Desired| asked.check(desired);
    let planned = common.run_checked(check, sink(json, reader), Needs::Bundle, async |session| {
        workflow::would_renew(session, &asked.chosen(&session.desired)?).await
    });
    let result = planned.map(|plan| {
        reader.pause();
        if json {
            print_json(&report::plan_json(&plan));
        } else {
            print(&report::plan_text(&plan, &Style::stdout(common.verbose)));
            if asked.names.iter().any(|name| name == ADMIN) {
                print("The administrator's kubeconfig is made anew as well.\n");
            }
        }
        0
    });
    ended(reader, result)
}

fn renew(common: &Common, asked: &Asked<'_>, reader: &Arc<dyn Reader>) -> u8 {
    let choices = Choices { yes: common.yes, ..Choices::default() };
    let terminal = Terminal(Arc::clone(reader));
    let check = |desired: &Desired| asked.check(desired);
    let sink = sink(false, reader);
    let renewed = if asked.only_admin() {
        common.load(&*sink).and_then(|loaded| {
            check(&loaded.desired)?;
            let renewed = workflow::renew_kubeconfig(&loaded.desired, &common.places(&loaded), &sink);
            renewed.map_err(|failure| failure_verdict(&failure))
        })
    } else {
        common.run_checked(check, sink, Needs::Bundle, async |session| {
            let chosen = asked.chosen(&session.desired)?;
            workflow::renew(session, &chosen, &choices, &terminal).await
        })
    };
    let result = renewed.map(|renewed| {
        reader.end(&Verdict::ok(words::renewed(&renewed.issued, renewed.kubeconfig.as_deref())));
        0
    });
    ended(reader, result)
}

fn would_rotate(common: &Common, asked: Rotating, reader: &Arc<dyn Reader>) -> u8 {
    let json = common.output == Output::Json;
    let planned = common.run_checked(
        |_| Ok(()),
        sink(json, reader),
        Needs::Bundle,
        async |session| workflow::would_rotate(session, asked).await,
    );
    let result = planned.map(|(stage, plan)| {
        reader.pause();
        if json {
            print_json(&report::plan_json(&plan));
        } else {
            print(&words::rotation(asked.what, stage, asked.finish));
            print(&report::plan_text(&plan, &Style::stdout(common.verbose)));
        }
        0
    });
    ended(reader, result)
}

fn rotate(common: &Common, asked: Rotating, reader: &Arc<dyn Reader>) -> u8 {
    let choices = Choices { yes: common.yes, ..Choices::default() };
    let terminal = Terminal(Arc::clone(reader));
    let rotated = common.run_checked(
        |_| Ok(()),
        sink(false, reader),
        Needs::Bundle,
        async |session| workflow::rotate(session, asked, &choices, &terminal).await,
    );
    let result = rotated.map(|rotated| {
        for text in words::after_rotation(rotated.what, rotated.old_is_trusted, &rotated.kubeconfig) {
            reader.emit(Event::Note { text });
        }
        reader.end(&Verdict::ok(words::rotated(rotated.what, rotated.old_is_trusted, rotated.rewritten)));
        0
    });
    ended(reader, result)
}

/// What to do about something that is not renewed so.
pub(super) fn verdict(why: &NotRenewable, mut verdict: Verdict) -> Verdict {
    let names = || format!("these can be renewed: {}", renewable().join(", "));
    verdict.hints = match why {
        NotRenewable::Unknown { .. } => vec![names()],
        NotRenewable::SelfRenewing { .. } => vec![
            "if it does not: journalctl -u kubelet -u hactl-approver on the host; `hactl up` issues one that has expired or is gone"
                .to_owned(),
            names(),
        ],
        NotRenewable::Authority { name } => vec![format!("hactl certs rotate {name}"), names()],
        NotRenewable::NotThere { .. } => vec!["hactl certs list shows what lies where".to_owned()],
    };
    verdict
}

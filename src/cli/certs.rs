//! `hactl certs`.

use super::common::{Common, Needs, Said, ended, failure_verdict, known};
use super::new_file;
use crate::model::desired::Desired;
use crate::model::event::{Event, Sink};
use crate::model::healing::METRICS_READERS;
use crate::model::names::HostName;
use crate::model::rotation::Rotatable;
use crate::model::timestamp::rfc3339;
use crate::pki::list::ADMIN;
use crate::pki::{Chosen, NotRenewable, choose, renewable};
use crate::report::{Exit, FailureKind, Reader, Style, Verdict, certs as words};
use crate::workflow::{self, Failure, Rotating};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Args)]
pub struct CertsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List every certificate on every host: subject, signer, expiry, and what renews it
    #[command(after_help = "\
Examples:
  hactl certs list
  hactl certs list cp1 cp2    list only these hosts
  hactl certs list -v         also explain why a component's served certificate is unknown
  hactl certs list -o json | jq -r '.hosts[] | .name as $h | .certificates[] | [.ends, $h, .name] | @tsv' | sort

Reads the files on the hosts, and asks API servers, etcd and kubelets for the certificates that they serve.
Requires neither quorum nor the API, and works with expired certificates.")]
    List {
        /// List only these hosts [default: all]
        #[arg(value_name = "HOST")]
        hosts: Vec<HostName>,
    },
    /// Issue a certificate to a program that reads metrics of the cluster, such as Prometheus
    #[command(after_help = "\
Examples:
  hactl certs client --out /etc/prometheus/hactl
  hactl certs client --name mimir --out ./mimir

Writes client.crt, client.key (readable by its owner only), ca.crt, and kubelet-ca.crt for kubelets, and replaces no
file. The certificate is valid for a year; hactl does not renew it. What it may read depends on the inventory:
  `metrics: on`            metrics of all components: on port 10273 of each host, of API servers and of kubelets
  `healing.metrics: host`  metrics of guards, on port 10272 of each host that has one
In the Kubernetes API, only `metrics: on` gives it rights beyond those of every authenticated user.
Nothing revokes it: only `hactl certs rotate cluster-ca --finish` ends it early.")]
    Client {
        /// The group of the certificate
        #[arg(long, value_name = "GROUP", default_value = METRICS_READERS, value_parser = [METRICS_READERS])]
        group: String,
        /// The name of the program; the common name is hactl:metrics:NAME
        #[arg(long, value_name = "NAME", default_value = "prometheus", value_parser = client_name)]
        name: String,
        /// The folder for the files; created if it does not exist
        #[arg(long, value_name = "FOLDER")]
        out: PathBuf,
    },
    /// Renew certificates that are still valid; to replace a CA or key that may be stolen, use `certs rotate`
    #[command(after_help = "\
Examples:
  hactl certs renew --dry-run             show what would be done
  hactl certs renew                       every certificate that hactl issues, on every host
  hactl certs renew apiserver --host cp1  one certificate on one host
  hactl certs renew etcd-server etcd-peer
  hactl certs renew admin                 the administrator's kubeconfig

`certs list` shows the names. A replaced certificate stays valid until it expires: nothing revokes it.
`up` automatically renews certificates with less than a third of their lifetime left.")]
    Renew {
        /// Certificates to renew [default: all except admin]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// Renew only on these hosts
        #[arg(long, value_name = "HOST", value_delimiter = ',')]
        host: Vec<HostName>,
        /// Show what would be done; change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Rotate a CA or key while the cluster serves: trust both, switch to the new one, then remove the old one
    #[command(after_help = "\
Examples:
  hactl certs rotate etcd-ca --dry-run    show what the next stage would do
  hactl certs rotate etcd-ca              replace etcd's CA and every certificate that it signed
  hactl certs rotate encryption           replace the encryption key and re-encrypt all Secrets in etcd
  hactl certs rotate cluster-ca           replace the Kubernetes CA; the old one stays trusted
  hactl certs rotate cluster-ca --finish  stop trusting the old CA; kubeconfigs handed out before stop working

WHAT: cluster-ca, etcd-ca, front-proxy-ca, signing-ca, kubelet-serving-ca, service-account, encryption.
Components restart one host at a time, and every host must answer before the next stage begins.
If interrupted, the same command resumes the rotation; in the meantime, `up` does not change it.
hactl does not know where kubeconfigs and tokens were copied to. So the old cluster-ca, signing-ca or
service-account key stays trusted until --finish. Earlier snapshots remain usable.")]
    Rotate {
        /// The CA or key to rotate
        #[arg(value_name = "WHAT")]
        what: Rotatable,
        /// Also stop trusting the old CA or key, which people and programs may still use
        #[arg(long)]
        finish: bool,
        /// Do not wait for running pods: with service-account --finish, a day until they have new tokens; with
        /// cluster-ca, until the pods from before the last rotation are gone
        #[arg(long)]
        at_once: bool,
        /// Show what the next stage would do; change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// The files of [`Verb::Client`], with their modes.
const CLIENT_FILES: [(&str, u32); 4] =
    [("client.crt", 0o644), ("client.key", 0o600), ("ca.crt", 0o644), ("kubelet-ca.crt", 0o644)];

/// Parses a name that fits into a common name.
fn client_name(text: &str) -> Result<String, String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    let fits = (1..=40).contains(&text.len()) && text.bytes().all(plain);
    if fits { Ok(text.to_owned()) } else { Err("write 1 to 40 of a-z, 0-9, '-' and '.'".to_owned()) }
}

pub fn run(common: &Common, args: &CertsArgs) -> Exit {
    let reader = common.reader();
    match &args.verb {
        Verb::List { hosts } => list(common, hosts, &reader),
        Verb::Client { group, name, out } => client(common, (group, name), out, &reader),
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

fn list(common: &Common, hosts: &[HostName], reader: &Arc<dyn Reader>) -> Exit {
    let check = |desired: &Desired| known("HOST", hosts, desired);
    let listed = common.run_checked(check, common.sink(reader), Needs::Nothing, async |session| {
        let listing = workflow::certificates(session, hosts).await?;
        let text = words::text(&listing, &Style::stdout(common.verbose));
        let nobody = !listing.hosts.is_empty() && listing.hosts.iter().all(|(_, of)| of.is_err());
        let last = if nobody {
            let headline = "no host answers: only the certificates on this machine are listed".to_owned();
            Verdict { headline, ..Verdict::of(&FailureKind::Other, None) }
        } else {
            Verdict::ok(words::summary(&listing))
        };
        Ok(Said { object: words::json(&session.desired.cluster, &listing), text, last: Some(last) })
    });
    common.said(reader, listed)
}

fn client(common: &Common, (group, name): (&str, &str), out: &Path, reader: &Arc<dyn Reader>) -> Exit {
    let issued = common.load(&*common.sink(reader)).and_then(|loaded| {
        let mut ends_ms = 0;
        new_file::write_all(out, CLIENT_FILES, || {
            let issued = workflow::reader(&loaded.desired, &common.places(&loaded), name);
            let (credential, [ca, kubelet_ca]) = issued.map_err(|failure| failure_verdict(&failure))?;
            ends_ms = credential.not_after.unix_timestamp().saturating_mul(1000);
            Ok::<_, Verdict>([credential.cert_pem, credential.key_pem.reveal().clone(), ca, kubelet_ca])
        })?;
        let paths = CLIENT_FILES.map(|(file, _)| out.join(file));
        let object = json!({
            "name": name, "group": group, "ends": rfc3339(ends_ms),
            "certificate": paths[0], "key": paths[1], "ca": paths[2], "kubeletCa": paths[3],
        });
        let last = Verdict::ok(words::client(out, name, ends_ms));
        Ok(Said { object, text: String::new(), last: Some(last) })
    });
    common.said(reader, issued)
}

impl From<new_file::Unwritten> for Verdict {
    fn from(unwritten: new_file::Unwritten) -> Self {
        let new_file::Unwritten { exit, what, to_do } = unwritten;
        Self { exit, headline: what, ..Self::of(&FailureKind::Other, None) }.with_hints([to_do])
    }
}

/// The selection on the command line.
struct Asked<'a> {
    names: &'a [String],
    hosts: &'a [HostName],
}

impl Asked<'_> {
    fn check(&self, desired: &Desired) -> Result<(), Verdict> {
        known("--host", self.hosts, desired)?;
        self.chosen(desired).map(drop).map_err(|failure| failure_verdict(&failure))
    }
    /// Whether only the administrator's kubeconfig is selected, which involves no host.
    fn only_admin(&self) -> bool {
        !self.names.is_empty() && self.names.iter().all(|name| name == ADMIN)
    }
    fn chosen(&self, desired: &Desired) -> Result<Chosen, Failure> {
        Ok(choose(desired, self.names, self.hosts)?)
    }
}

fn plan(common: &Common, asked: &Asked<'_>, reader: &Arc<dyn Reader>) -> Exit {
    if asked.only_admin() {
        return ended(reader, Ok(Verdict::ok("the administrator's kubeconfig would be renewed; no host is involved")));
    }
    let check = |desired: &Desired| asked.check(desired);
    let planned = common.run_checked(check, common.sink(reader), Needs::Bundle, async |session| {
        let mut said = common.plan(&workflow::would_renew(session, &asked.chosen(&session.desired)?).await?);
        if asked.names.iter().any(|name| name == ADMIN) {
            said.text += "The administrator's kubeconfig is renewed as well.\n";
        }
        Ok(said)
    });
    common.said(reader, planned)
}

fn renew(common: &Common, asked: &Asked<'_>, reader: &Arc<dyn Reader>) -> Exit {
    let choices = common.choices();
    let check = |desired: &Desired| asked.check(desired);
    let sink: Arc<dyn Sink> = reader.clone();
    let renewed = if asked.only_admin() {
        common.load(&*sink).and_then(|loaded| {
            check(&loaded.desired)?;
            let renewed = workflow::renew_kubeconfig(&loaded.desired, &common.places(&loaded), &sink);
            renewed.map_err(|failure| failure_verdict(&failure))
        })
    } else {
        common.run_checked(check, sink, Needs::Bundle, async |session| {
            let chosen = asked.chosen(&session.desired)?;
            workflow::renew(session, &chosen, &choices, reader).await
        })
    };
    ended(reader, renewed.map(|done| Verdict::ok(words::renewed(&done.issued, done.kubeconfig.as_deref()))))
}

fn would_rotate(common: &Common, asked: Rotating, reader: &Arc<dyn Reader>) -> Exit {
    let planned = common.run(common.sink(reader), Needs::Bundle, async |session| {
        let (stage, plan) = workflow::would_rotate(session, asked).await?;
        let mut said = common.plan(&plan);
        said.text.insert_str(0, &words::rotation(asked.what, stage, asked.finish));
        Ok(said)
    });
    common.said(reader, planned)
}

fn rotate(common: &Common, asked: Rotating, reader: &Arc<dyn Reader>) -> Exit {
    let choices = common.choices();
    let rotated = common
        .run(reader.clone(), Needs::Bundle, async |session| workflow::rotate(session, asked, &choices, reader).await);
    let result = rotated.map(|rotated| {
        for text in words::after_rotation(rotated.what, rotated.old_is_trusted, &rotated.kubeconfig) {
            reader.emit(Event::Note { text });
        }
        Verdict::ok(words::rotated(rotated.what, rotated.old_is_trusted, rotated.rewritten))
    });
    ended(reader, result)
}

/// The hints for a certificate that `certs renew` does not renew.
pub(super) fn verdict(why: &NotRenewable, verdict: Verdict) -> Verdict {
    let names = &format!("these can be renewed: {}", renewable().join(", "));
    match why {
        NotRenewable::Unknown { .. } => verdict.with_hints([names]),
        NotRenewable::SelfRenewing { .. } => verdict.with_hints([
            "if it does not: journalctl -u kubelet -u hactl-approver on the host; `hactl up` replaces an expired or \
             missing one",
            names,
        ]),
        NotRenewable::Authority { name } => verdict.with_hints([&format!("hactl certs rotate {name}"), names]),
        NotRenewable::NotThere { .. } => {
            verdict.with_hints(["`hactl certs list` shows which certificates are on which host"])
        }
    }
}

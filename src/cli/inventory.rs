//! `hactl inventory init|check|import|schema`: work on the inventory without contacting any host.
//!
//! In: parsed flags, and two of the common flags. Out: text on the given writers, and an exit code: 0 valid or done, 1
//! could not write, 2 invalid inventory or flags, 3 refused to overwrite.

use crate::inventory::summary::Summary;
use crate::inventory::{InventoryError, Loaded, Problem, Report, Severity, Source, load, reference, starter};
use crate::report::Exit;
use clap::{Args, Subcommand};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::PathBuf;

/// `hactl inventory`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hactl inventory init\n  hactl inventory check\n  hactl inventory import kubespray \
                  inventory/prod/hosts.yaml > hactl.yaml\n  hactl inventory schema"
)]
pub struct InventoryArgs {
    /// The verb.
    #[command(subcommand)]
    pub verb: InventoryVerb,
}

/// The verbs below `inventory`.
#[derive(Debug, Subcommand)]
pub enum InventoryVerb {
    /// Write a commented starter inventory; never overwrites
    #[command(
        after_help = "Examples:\n  hactl inventory init\n  hactl inventory init --cluster prod --vip 10.0.0.100 \
        --hosts 10.0.0.11,10.0.0.12,10.0.0.13\n  hactl inventory init --hosts \
        cp1=10.0.0.11,cp2=10.0.0.12,cp3=10.0.0.13 prod.yaml"
    )]
    Init(InitArgs),
    /// Validate an inventory without contacting any host; shows how many failures the cluster would survive
    #[command(after_help = "Examples:\n  hactl inventory check\n  hactl inventory check prod.yaml\n  \
        hactl inventory check -o json - < prod.yaml")]
    Check(CheckArgs),
    /// Convert the inventory of another tool
    #[command(after_help = "Examples:\n  hactl inventory import ansible --vip 10.0.0.100 hosts.ini > hactl.yaml\n  \
        hactl inventory import kubespray inventory/prod/hosts.yaml > hactl.yaml\n  \
        hactl inventory import k0sctl --file hactl.yaml k0sctl.yaml\n\n\
        Warnings on standard error list each setting that cannot be converted, where it is, and what to do instead.\n\
        Secrets are never converted.")]
    Import(super::import::ImportArgs),
    /// Print the JSON Schema of the inventory, for editors
    #[command(after_help = "Examples:\n  hactl inventory schema > hactl.schema.json\n  \
        # then, as the first line of the inventory:\n  # yaml-language-server: $schema=./hactl.schema.json")]
    Schema,
}

/// `hactl inventory init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Hosts, separated by commas: addresses, or NAME=ADDRESS
    #[arg(long, value_delimiter = ',', value_name = "HOST")]
    pub hosts: Vec<String>,
    /// Virtual IP of the API endpoint
    #[arg(long, value_name = "ADDRESS")]
    pub vip: Option<String>,
    /// Name of the cluster
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// File to write
    #[arg(default_value = "hactl.yaml")]
    pub file: PathBuf,
}

/// `hactl inventory check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The inventory, instead of the one of -i; `-` reads standard input
    pub file: Option<OsString>,
}

/// The common flags that matter here.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// The inventory of `-i`.
    pub inventory: &'a OsStr,
    /// Whether `-o json` is set.
    pub json: bool,
}

/// Runs `hactl inventory` and returns the exit code.
pub fn run(args: &InventoryArgs, given: Given<'_>, out: &mut dyn Write, err: &mut dyn Write) -> Exit {
    let done = match &args.verb {
        InventoryVerb::Init(args) => init(args, out, err),
        InventoryVerb::Check(args) => check(args, given, out, err),
        InventoryVerb::Import(args) => super::import::run(args, given.json, out, err),
        InventoryVerb::Schema => write!(out, "{}", reference::schema_text()).map(|()| Exit::Done),
    };
    // Standard output remembers its errors. If standard error fails, there is nowhere to report it.
    done.and_then(|exit| out.flush().map(|()| exit)).unwrap_or(Exit::Failed)
}

fn init(args: &InitArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let start = starter::Start { cluster: args.cluster.clone(), vip: args.vip.clone(), hosts: args.hosts.clone() };
    let starter = match starter::starter(&start) {
        Ok(starter) => starter,
        Err(error) => {
            writeln!(err, "error: {error}")?;
            return Ok(Exit::Usage);
        }
    };
    let shown = args.file.display();
    // The result must be valid: duplicate names or addresses, for example, are found here and not at the first `up`.
    let base = args.file.parent().map(std::path::Path::to_owned).unwrap_or_default();
    if let Err(error) = crate::inventory::parse(&starter.text, &base) {
        writeln!(err, "{error}\n\nerror: nothing was written: these flags do not make a valid inventory")?;
        return Ok(Exit::Usage);
    }
    if let Err(unwritten) = super::new_file::write(&args.file, &starter.text) {
        writeln!(err, "error: {unwritten}")?;
        return Ok(unwritten.exit);
    }
    writeln!(out, "wrote {shown}\nedit next:")?;
    for line in &starter.edit {
        writeln!(out, "  {line}")?;
    }
    writeln!(out, "then: hactl inventory check {shown}")?;
    Ok(Exit::Done)
}

fn check(args: &CheckArgs, given: Given<'_>, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let source = Source::from(args.file.as_deref().unwrap_or(given.inventory));
    match (load(&source).and_then(deeper), given.json) {
        (Ok(loaded), false) => {
            for warning in &loaded.warnings {
                writeln!(err, "{warning}")?;
            }
            write!(out, "{}", Summary::of(&loaded.desired))?;
            match loaded.warnings.len() {
                0 => writeln!(out, "{source} is valid")?,
                1 => writeln!(out, "{source} is valid, with 1 warning")?,
                n => writeln!(out, "{source} is valid, with {n} warnings")?,
            }
            Ok(Exit::Done)
        }
        (Ok(loaded), true) => {
            let summary = Summary::of(&loaded.desired);
            json_line(out, &json!({"valid": true, "summary": summary, "errors": [], "warnings": loaded.warnings}))?;
            Ok(Exit::Done)
        }
        (Err(error), false) => {
            let prefix = if error.report().is_some() { "" } else { "error: " };
            writeln!(err, "{prefix}{error}")?;
            Ok(Exit::Usage)
        }
        (Err(error), true) => {
            let (errors, warnings) = match &error {
                InventoryError::Invalid(report) => (json!(report.problems), json!(report.warnings)),
                other => (json!([{"what": other.to_string()}]), json!([])),
            };
            json_line(out, &json!({"valid": false, "errors": errors, "warnings": warnings}))?;
            Ok(Exit::Usage)
        }
    }
}

/// Checks that need more than the inventory: collisions with hactl's own objects, and the provided CAs.
fn deeper(mut loaded: Loaded) -> Result<Loaded, InventoryError> {
    let desired = &loaded.desired;
    let mut problems = Vec::new();
    let mut refuse = |at: (&str, usize), what: String, remedy: String| {
        problems.push(Problem::elsewhere(Severity::Error, at, what, "", remedy));
    };
    match crate::workflow::collisions(desired, &loaded.attached) {
        Ok(found) => {
            let remedy = "rename or remove it: hactl manages its own objects and would revert it";
            for (file, line, what) in found {
                refuse((&file, line), what, remedy.to_owned());
            }
        }
        Err(error) => refuse(("hactl.yaml", 1), error.to_string(), "correct the settings under `extra`".to_owned()),
    }
    let named = &desired.named.pki;
    let pairs = [&named.cluster, &named.etcd, &named.front_proxy].into_iter().flatten();
    let files = pairs.flat_map(|pair| [&pair.cert, &pair.key]).chain(&named.service_account);
    let missing: Vec<String> = files.filter(|path| !path.exists()).map(|path| path.display().to_string()).collect();
    if missing.is_empty() {
        match crate::pki::brought::read(named, time::OffsetDateTime::now_utc()) {
            Ok(brought) => {
                let warn =
                    |text: String| Problem::elsewhere(Severity::Warning, ("pki", 1), text, "", "renew it before");
                loaded.warnings.extend(brought.warnings.into_iter().map(warn));
            }
            Err(crate::pki::PkiError::Brought { path, why, remedy }) => {
                refuse((&path.display().to_string(), 1), why, remedy);
            }
            Err(error) => refuse(("pki", 1), error.to_string(), "provide another CA".to_owned()),
        }
    } else {
        let what = format!("missing: {}", missing.join(", "));
        let expected = "the files of `pki`, until the cluster is bootstrapped; afterwards, keep them elsewhere";
        let remedy = "if there is no cluster yet, put the files there";
        loaded.warnings.push(Problem::elsewhere(Severity::Warning, ("pki", 1), what, expected, remedy));
    }
    if problems.is_empty() {
        return Ok(loaded);
    }
    Err(InventoryError::Invalid(Report { problems, warnings: loaded.warnings }))
}

fn json_line(out: &mut dyn Write, value: &serde_json::Value) -> io::Result<()> {
    writeln!(out, "{}", crate::report::harmless::json(value))
}

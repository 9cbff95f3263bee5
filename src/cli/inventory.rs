//! `hactl inventory init|check|schema`: the inventory before any host is touched.
//!
//! In: parsed flags, and the two that all verbs share. Out: text on the writers handed in, and an exit code: 0 fine, 1 could not write, 2 bad
//! inventory or flags, 3 refused to overwrite.

use crate::inventory::summary::Summary;
use crate::inventory::{InventoryError, Problem, Source, load, reference, starter};
use clap::{Args, Subcommand};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;

/// `hactl inventory`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  hactl inventory init\n  hactl inventory check\n  hactl inventory schema")]
pub struct InventoryArgs {
    /// What to do with the inventory.
    #[command(subcommand)]
    pub verb: InventoryVerb,
}

/// The verbs below `inventory`.
#[derive(Debug, Subcommand)]
pub enum InventoryVerb {
    /// Write a commented inventory to start from; never overwrites
    #[command(
        after_help = "Examples:\n  hactl inventory init\n  hactl inventory init --cluster prod --vip 10.0.0.100 \
        --hosts 10.0.0.11,10.0.0.12,10.0.0.13\n  hactl inventory init --hosts cp1=10.0.0.11,cp2=10.0.0.12,cp3=10.0.0.13 prod.yaml"
    )]
    Init(InitArgs),
    /// Judge an inventory without touching any host, and say what it survives
    #[command(after_help = "Examples:\n  hactl inventory check\n  hactl inventory check prod.yaml\n  \
        hactl inventory check -o json - < prod.yaml")]
    Check(CheckArgs),
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
    /// Virtual address of the API
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
    /// Inventory, instead of the one of -i; `-` reads standard input
    pub file: Option<OsString>,
}

/// What the flags of all verbs say.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// The inventory of `-i`.
    pub inventory: &'a OsStr,
    /// Whether `-o json` was asked for.
    pub json: bool,
}

/// Runs `hactl inventory`; the number is the exit code.
pub fn run(args: &InventoryArgs, given: Given<'_>, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let done = match &args.verb {
        InventoryVerb::Init(args) => init(args, out, err),
        InventoryVerb::Check(args) => check(args, given, out, err),
        InventoryVerb::Schema => write!(out, "{}", reference::schema_text()).map(|()| 0),
    };
    // Nobody is left to tell when the writers themselves are gone.
    done.unwrap_or(1)
}

fn init(args: &InitArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let start = starter::Start { cluster: args.cluster.clone(), vip: args.vip.clone(), hosts: args.hosts.clone() };
    let starter = match starter::starter(&start) {
        Ok(starter) => starter,
        Err(error) => {
            writeln!(err, "error: {error}")?;
            return Ok(2);
        }
    };
    let shown = args.file.display();
    // What we write must hold: names and addresses given twice, say, are found here and not at the first `up`.
    let base = args.file.parent().map(std::path::Path::to_owned).unwrap_or_default();
    if let Err(error) = crate::inventory::parse(&starter.text, &base) {
        writeln!(err, "{error}\n\nerror: nothing was written: what was given does not make an inventory")?;
        return Ok(2);
    }
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&args.file)
        .and_then(|mut file| file.write_all(starter.text.as_bytes()).and_then(|()| file.sync_all()));
    match written {
        Ok(()) => {
            writeln!(out, "wrote {shown}")?;
            writeln!(out, "edit next:")?;
            for line in &starter.edit {
                writeln!(out, "  {line}")?;
            }
            writeln!(out, "then: hactl inventory check {shown}")?;
            Ok(0)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            writeln!(
                err,
                "error: {shown} exists and is left as it is\n  do: name another file, or move this one away"
            )?;
            Ok(3)
        }
        Err(error) => {
            writeln!(
                err,
                "error: cannot write {shown}: {error}\n  do: name a file in a directory that exists and that you may write to"
            )?;
            Ok(1)
        }
    }
}

fn check(args: &CheckArgs, given: Given<'_>, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let source = Source::from(args.file.as_deref().unwrap_or(given.inventory));
    match (load(&source), given.json) {
        (Ok(loaded), false) => {
            for warning in &loaded.warnings {
                writeln!(err, "{warning}")?;
            }
            write!(out, "{}", Summary::of(&loaded.desired))?;
            match loaded.warnings.len() {
                0 => writeln!(out, "{source} holds")?,
                1 => writeln!(out, "{source} holds, with 1 warning")?,
                n => writeln!(out, "{source} holds, with {n} warnings")?,
            }
            Ok(0)
        }
        (Ok(loaded), true) => {
            let summary = Summary::of(&loaded.desired);
            json_line(out, &json!({"valid": true, "summary": summary, "errors": [], "warnings": loaded.warnings}))?;
            Ok(0)
        }
        (Err(error), false) => {
            let prefix = if error.report().is_some() { "" } else { "error: " };
            writeln!(err, "{prefix}{error}")?;
            Ok(2)
        }
        (Err(error), true) => {
            let none: &[Problem] = &[];
            let (errors, warnings) = match &error {
                InventoryError::Invalid(report) => (json!(report.problems), json!(report.warnings)),
                other => (json!([{"what": other.to_string()}]), json!(none)),
            };
            json_line(out, &json!({"valid": false, "errors": errors, "warnings": warnings}))?;
            Ok(2)
        }
    }
}

fn json_line(out: &mut dyn Write, value: &serde_json::Value) -> io::Result<()> {
    writeln!(out, "{value}")
}

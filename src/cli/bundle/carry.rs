//! `hactl bundle export` and `import`: carry a bundle as one file.

use super::progress::Shown;
use super::{named, versions};
use crate::component::{self, Bundle, BundleError, Carried, CarryError, Exported};
use crate::model::names::Digest;
use crate::report::harmless::print_json;
use crate::report::{Exit, Verdict};
use indicatif::HumanBytes;
use serde_json::json;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal as _};
use std::path::Path;

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BundleError {
    let path = path.to_owned();
    move |source| BundleError::Io { doing, path, source }
}

/// Writes the file completely or not at all.
pub fn export(store: &Path, name: Option<&str>, file: &Path, json: bool) -> Result<Exit, Verdict> {
    let fits = named(store, name)?;
    let [one] = fits.as_slice() else { return Err(BundleError::Which { there: versions(&fits) }.into()) };
    let bundle = Bundle::open(store, &one.kubernetes)?;
    let shown = Shown::new(json);
    let tell = |done, total| shown.bytes("written", done, Some(total));
    if file == Path::new("-") {
        if io::stdout().is_terminal() {
            let source = io::Error::other("it is a terminal: name a file, or pipe the output with |");
            return Err(failed("write to", Path::new("standard output"))(source).into());
        }
        let exported = component::export(&bundle, BufWriter::new(io::stdout().lock()), &tell);
        shown.end();
        let Exported { lock, bytes } = exported?;
        tell!("{}: {} written, identity {}", lock.name(), HumanBytes(bytes), lock.identity().hex());
        return Ok(Exit::Done);
    }
    let mut fresh = file.as_os_str().to_owned();
    fresh.push(".part");
    let fresh = Path::new(&fresh);
    let opened = File::create(fresh).map_err(failed("create", fresh))?;
    let written = component::export(&bundle, BufWriter::new(&opened), &tell);
    shown.end();
    let Exported { lock, bytes } = written.inspect_err(|_| {
        // A partial bundle is useless. If it cannot be removed, the first error still counts.
        std::fs::remove_file(fresh).ok();
    })?;
    opened.sync_all().map_err(failed("write", fresh))?;
    std::fs::rename(fresh, file).map_err(failed("create", file))?;
    if json {
        print_json(&json!({"bundle": lock.name(), "identity": lock.identity(), "file": file, "bytes": bytes}));
    } else {
        say!("{}: {} in {}", lock.name(), HumanBytes(bytes), file.display());
        say!("identity {}", lock.identity().hex());
    }
    Ok(Exit::Done)
}

/// Imports the file into the store.
pub fn import(store: &Path, file: &Path, expected: Option<Digest>, replace: bool, json: bool) -> Result<Exit, Verdict> {
    let shown = Shown::new(json);
    let tell = |what: &str, done| shown.bytes(what, done, None);
    let carried = if file == Path::new("-") {
        if io::stdin().is_terminal() {
            let why = "it is a terminal: name a file, or pipe one in with |".to_owned();
            return Err(BundleError::from(CarryError::NotABundle { from: "standard input".to_owned(), why }).into());
        }
        component::import(store, io::stdin().lock(), "standard input", expected, replace, &tell)
    } else {
        let opened = File::open(file).map_err(failed("open", file))?;
        let from = file.display().to_string();
        component::import(store, BufReader::with_capacity(1 << 17, opened), &from, expected, replace, &tell)
    };
    shown.end();
    let Carried { lock, there, taken } = carried?;
    if json {
        print_json(&json!({"bundle": lock.name(), "identity": lock.identity(), "taken": taken, "there": there}));
    } else {
        let what = if taken == 0 { String::new() } else { format!("{taken} files imported, {there} ") };
        say!("{}: {what}already there; every file is as it was exported", lock.name());
        say!("identity {}", lock.identity().hex());
    }
    Ok(Exit::Done)
}

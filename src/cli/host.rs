//! The hidden verbs: what runs on a host or inside a pod.

use super::common::block_on;
use clap::Args;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct DnsArgs {
    /// The server to ask
    server: IpAddr,
    /// The name to ask for
    name: String,
    /// A file for the answer, such as a container's termination log
    #[arg(long)]
    report: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ApproveArgs {
    #[command(flatten)]
    settings: crate::kube::approver::Settings,
}

/// Speaks the vocabulary on standard input and output.
pub fn serve() -> u8 {
    let served = block_on(async {
        Ok(crate::host::serve::serve(tokio::io::stdin(), tokio::io::stdout()).await)
    });
    match served {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            let _ = writeln!(std::io::stderr(), "hactl host: {error}");
            1
        }
        Err(verdict) => verdict.exit,
    }
}

/// Asks once; 0 when there is an answer.
pub fn dns(args: &DnsArgs) -> u8 {
    let (text, code) = match crate::host::serve::dns_probe(args.server, &args.name) {
        Ok(addresses) => {
            (addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), u8::from(addresses.is_empty()))
        }
        Err(error) => (error.to_string(), 1),
    };
    if let Some(path) = &args.report {
        if let Err(error) = std::fs::write(path, &text) {
            let _ = writeln!(std::io::stderr(), "could not write {}: {error}", path.display());
        }
    }
    let _ = writeln!(std::io::stdout(), "{text}");
    code
}

/// Runs until it is stopped.
pub fn approve(args: &ApproveArgs) -> u8 {
    let ended = block_on(async { Ok(crate::kube::approver::run(&args.settings).await) });
    match ended {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            let _ = writeln!(std::io::stderr(), "hactl host-approve: {error}");
            1
        }
        Err(verdict) => verdict.exit,
    }
}

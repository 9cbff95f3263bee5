//! The binary: parses, runs one verb, exits. Only this file ends the process.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    hactl::process::leave_no_core();
    hactl::cli::main(std::env::args_os())
}

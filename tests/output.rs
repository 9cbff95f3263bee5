//! Standard output that cannot be written: on a full disk a command fails and says why; a closed pipe is no failure.
//!
//! In: the built binary, with commands that print and need no host. Out: exit codes and standard error.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

/// Commands whose result is what they print.
const COMMANDS: &[&[&str]] = &[
    &["--help"],
    &["--version"],
    &["man"],
    &["completions", "bash"],
    &["completions", "zsh"],
    &["inventory", "schema"],
    &["inventory", "check", "inventories/minimal.yaml"],
    &["-o", "json", "inventory", "check", "inventories/minimal.yaml"],
    &["inventory", "import", "kubespray", "tests/inventory/import/kubespray-yaml/hosts.yaml"],
    &["--bundles", "/nonexistent/bundles", "bundle", "list"],
];

/// The exit code, what was captured of standard output, and standard error.
fn hactl(words: &[&str], out: impl Into<Stdio>) -> (Option<i32>, Vec<u8>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_hactl"))
        .args(words)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_remove("HACTL_INVENTORY")
        .env_remove("HACTL_BUNDLES")
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(Stdio::piped())
        .output()
        .expect("hactl can be started");
    (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_result_that_does_not_fit_the_disk_is_a_failure_with_its_reason() {
    for words in COMMANDS {
        let (code, printed, err) = hactl(words, Stdio::piped());
        assert!(code == Some(0) && !printed.is_empty(), "{words:?}: {code:?} {err}");
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let (code, _, err) = hactl(words, full);
        assert_eq!(code, Some(1), "{words:?}: {err}");
        assert!(err.contains("standard output") && err.contains("No space left on device"), "{words:?}: {err}");
    }
}

#[test]
fn a_pipe_whose_reader_has_ended_is_no_failure() {
    for words in COMMANDS {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let (code, _, err) = hactl(words, writer);
        assert_eq!(code, Some(0), "{words:?}: {err}");
        assert!(!err.contains("standard output"), "{words:?}: {err}");
    }
}

//! Questions to the person at the terminal. Only a terminal can agree: a pipe that sends `y` is a script, and scripts
//! use `--yes`.
//!
//! In: a question. Out: agreement, or a refusal. [`agreed`] and [`named`] are the pure core, for any reader and writer.

use super::harmless::Harmless;
use crate::model::names::ClusterName;
use crate::model::refusal::Refusal;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};

/// Asks a question; the default answer is no. `what` names the disruption, for the refusal without a terminal.
///
/// # Errors
/// [`Refusal::NeedsConsent`] without a terminal, [`Refusal::Declined`] on anything but yes.
pub fn ask(question: &str, what: &str) -> Result<(), Refusal> {
    with_terminal(what, |input, output| agreed(input, output, question))
}

/// Asks for the cluster's name, before work that takes a cluster down.
///
/// # Errors
/// As [`ask`].
pub fn ask_name(cluster: &ClusterName, what: &str) -> Result<(), Refusal> {
    with_terminal(what, |input, output| named(input, output, cluster))
}

fn with_terminal(
    what: &str,
    talk: impl FnOnce(&mut BufReader<File>, &mut Harmless<File>) -> io::Result<bool>,
) -> Result<(), Refusal> {
    let nobody = || Refusal::NeedsConsent { what: what.to_owned() };
    // The controlling terminal, not standard input, which may carry an inventory.
    let open = || OpenOptions::new().read(true).write(true).open("/dev/tty");
    let (Ok(input), Ok(output)) = (open(), open()) else { return Err(nobody()) };
    match talk(&mut BufReader::new(input), &mut Harmless(output)) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Refusal::Declined),
        // A terminal that is gone cannot agree.
        Err(_) => Err(nobody()),
    }
}

/// Asks on `output` until `input` answers yes or no. An empty line and the end of input mean no.
///
/// # Errors
/// When reading or writing fails.
pub fn agreed(input: &mut impl BufRead, output: &mut impl Write, question: &str) -> io::Result<bool> {
    for _ in 0..3 {
        write!(output, "{question} [y/N] ")?;
        output.flush()?;
        let Some(answer) = line(input)? else {
            writeln!(output)?;
            return Ok(false);
        };
        match answer.to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(true),
            "" | "n" | "no" => return Ok(false),
            _ => writeln!(output, "Please type y or n.")?,
        }
    }
    Ok(false)
}

/// Asks for the cluster's name. Only the exact name agrees, and there is one attempt.
///
/// # Errors
/// When reading or writing fails.
pub fn named(input: &mut impl BufRead, output: &mut impl Write, cluster: &ClusterName) -> io::Result<bool> {
    write!(output, "Type the name of the cluster ({cluster}) to continue: ")?;
    output.flush()?;
    Ok(line(input)?.as_deref() == Some(cluster.as_str()))
}

/// A line without its end and surrounding whitespace; `None` at the end of input.
fn line(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut text = String::new();
    let read = input.read_line(&mut text)?;
    Ok((read > 0).then(|| text.trim().to_owned()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn answer(typed: &str) -> (bool, String) {
        let mut shown = Vec::new();
        let said = agreed(&mut typed.as_bytes(), &mut shown, "Restart etcd on cp1?").unwrap();
        (said, String::from_utf8(shown).unwrap())
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        for yes in ["y\n", "YES\n", " yes \r\n", "y"] {
            assert!(answer(yes).0, "{yes:?}");
        }
        for no in ["", "\n", "n\n", "no\n", "yy\n", "yess\nperhaps\nja\ny\n"] {
            assert!(!answer(no).0, "{no:?}");
        }
    }

    #[test]
    fn an_answer_that_is_neither_is_asked_again() {
        let (said, shown) = answer("what\ny\n");
        assert!(said);
        assert_eq!(shown, "Restart etcd on cp1? [y/N] Please type y or n.\nRestart etcd on cp1? [y/N] ");
    }

    #[test]
    fn a_cluster_goes_down_by_its_very_name_only() {
        let lab: ClusterName = "lab".parse().unwrap();
        let said = |typed: &str| named(&mut typed.as_bytes(), &mut Vec::new(), &lab).unwrap();
        assert!(said("lab\n"));
        for no in ["", "\n", "y\n", "yes\n", "Lab\n", "lab2\n"] {
            assert!(!said(no), "{no:?}");
        }
    }
}

//! Asks the person at the terminal for a password, without echo.
//!
//! In: a question. Out: a [`Secret`], or why there is none. Only the controlling terminal is used, because a password
//! from a pipe would be stored in a script. While echo is off, interrupt keys are handled here, so that the terminal
//! always gets its settings back.

use crate::model::secret::Secret;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use zeroize::{Zeroize, Zeroizing};

/// Why there is no password.
#[derive(Debug, thiserror::Error)]
pub enum NoPassword {
    /// There is no terminal.
    #[error("there is no terminal to ask for the password on")]
    NoTerminal,
    /// The user declined.
    #[error("no password was given")]
    Declined,
    /// The terminal failed.
    #[error("the password could not be read")]
    Terminal(#[source] io::Error),
    /// The input is not a usable password.
    #[error("sudo cannot use this password: {0}")]
    Unusable(String),
}

/// A terminal without echo, until this is dropped.
struct Hushed {
    terminal: File,
    before: Termios,
}

impl Hushed {
    fn open() -> Result<Self, NoPassword> {
        let terminal =
            OpenOptions::new().read(true).write(true).open("/dev/tty").map_err(|_| NoPassword::NoTerminal)?;
        let before = tcgetattr(&terminal).map_err(|_| NoPassword::NoTerminal)?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG);
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&terminal, OptionalActions::Flush, &quiet).map_err(|error| NoPassword::Terminal(error.into()))?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Hushed {
    fn drop(&mut self) {
        // A terminal that is gone needs no reset.
        let _ = tcsetattr(&self.terminal, OptionalActions::Flush, &self.before);
    }
}

/// Asks for a password on the terminal.
///
/// # Errors
/// [`NoPassword`].
pub fn ask_password(question: &str) -> Result<Secret<String>, NoPassword> {
    let hushed = Hushed::open()?;
    let mut shown = &hushed.terminal;
    write!(shown, "{question} ").map_err(NoPassword::Terminal)?;
    let line = typed(&hushed.terminal);
    let ended = writeln!(shown);
    let line = line?;
    ended.map_err(NoPassword::Terminal)?;
    crate::transport::usable_password(&line).map_err(NoPassword::Unusable)
}

/// Reads a line, with the usual editing keys.
fn typed(mut from: impl Read) -> Result<Zeroizing<String>, NoPassword> {
    const INTERRUPT: u8 = 0x03;
    const END: u8 = 0x04;
    const BACKSPACE: u8 = 0x08;
    const KILL: u8 = 0x15;
    const QUIT: u8 = 0x1c;
    const DELETE: u8 = 0x7f;
    // Never grows, because growing would leave copies in memory.
    let mut line = Zeroizing::new(Vec::with_capacity(4096));
    let mut one = [0];
    loop {
        if from.read(&mut one).map_err(NoPassword::Terminal)? == 0 {
            return Err(NoPassword::Declined);
        }
        match one[0] {
            b'\n' | b'\r' => break,
            INTERRUPT | QUIT => return Err(NoPassword::Declined),
            END if line.is_empty() => return Err(NoPassword::Declined),
            END => break,
            KILL => line.zeroize(),
            BACKSPACE | DELETE => {
                // A character may be several bytes: all but the first have the form 10xxxxxx.
                while line.pop().is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000) {}
            }
            byte if line.len() < 4096 => line.push(byte),
            _ => return Err(NoPassword::Unusable("it is too long".to_owned())),
        }
    }
    one.zeroize();
    let text = std::str::from_utf8(&line).map_err(|_| NoPassword::Unusable("it is not text".to_owned()))?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_with_its_corrections() {
        for (keys, expected) in [
            (&b"secret\n"[..], "secret"),
            (b"secret\rmore", "secret"),
            (b"sex\x7fcret\n", "secret"),
            ("p\u{e4}\x7fass\n".as_bytes(), "pass"),
            (b"wrong\x15right\n", "right"),
            (b"with spaces \n", "with spaces "),
            (b"end\x04", "end"),
        ] {
            assert_eq!(typed(keys).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn an_interrupt_or_end_of_input_yields_no_password() {
        for keys in [&b"half\x03\n"[..], b"\x04", b"", b"half"] {
            assert!(matches!(typed(keys), Err(NoPassword::Declined)), "{keys:?}");
        }
        assert!(matches!(typed(&[b'x'; 5000][..]), Err(NoPassword::Unusable(_))));
    }
}

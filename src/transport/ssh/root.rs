//! Becoming root: directly, by a sudo that does not ask, or by one that asks for a password.
//!
//! In: a session and a constant command. Out: a [`Wire`] to it, running as root, or a [`SudoTrouble`]. The password
//! is written only after sudo has asked, with a prompt of our own on stderr. A sudo that does not ask (NOPASSWD, or a
//! cached login) never gets it, so it can never reach the program behind sudo. The password is written once for each
//! program. A second prompt means that it was wrong, and the program is dropped before sudo counts another failure. A
//! password that no host has accepted yet is tried on one host while the others wait: a wrong one must not lock the
//! account everywhere.

use super::Session;
use crate::model::desired::SshTarget;
use crate::model::secret::Secret;
use crate::transport::access::Access;
use crate::transport::error::{BECOMING_ROOT, Expired, HostError, SudoTrouble};
use crate::transport::wire::{ExitReport, Wire};
use std::collections::HashMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::MutexGuard;

/// The prompt of sudo; nothing else on a host prints this.
const PROMPT: &str = "[hactl:sudo-password]";
/// sudo accepts no longer password.
const LONGEST: usize = 1023;

/// How a user becomes root on a host.
#[derive(Clone)]
pub(crate) struct Root {
    user: String,
    how: How,
    timeout: Duration,
}

#[derive(Clone)]
enum How {
    /// The user is root.
    Already,
    /// Sudo, which must not ask.
    Sudo,
    /// Sudo, which may ask.
    Asking(Password),
}

/// A password, and whether a host has accepted it.
#[derive(Clone)]
struct Password {
    secret: Arc<Secret<String>>,
    standing: Arc<tokio::sync::Mutex<Standing>>,
}

/// What is known of a password.
#[derive(Default, Clone)]
enum Standing {
    #[default]
    Untried,
    Accepted,
    /// The first host that rejected it.
    Refused(String),
}

/// The source of a password, and its user.
type Source = (Option<PathBuf>, String);

/// The passwords of a run.
#[derive(Clone, Default)]
pub(crate) struct Passwords(Arc<Mutex<HashMap<Source, Password>>>);

impl Passwords {
    fn of(&self, target: &SshTarget, access: &Access) -> Result<Option<Password>, HostError> {
        let file = if access.sudo_password.is_some() { None } else { target.sudo_password.clone() };
        if access.sudo_password.is_none() && file.is_none() {
            return Ok(None);
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let source = (file.clone(), target.user.clone());
        if let Some(password) = known.get(&source) {
            return Ok(Some(password.clone()));
        }
        let secret = match (&access.sudo_password, &file) {
            (Some(given), _) => Arc::clone(given),
            (None, Some(path)) => {
                Arc::new(read(path).map_err(|why| HostError::SudoPassword { path: path.clone(), why })?)
            }
            (None, None) => return Ok(None),
        };
        let password = Password { secret, standing: Arc::default() };
        known.insert(source, password.clone());
        Ok(Some(password))
    }
}

/// The first line of a file that only its owner can read.
fn read(path: &Path) -> Result<Secret<String>, String> {
    let mut file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mode = file.metadata().map_err(|error| error.to_string())?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(format!("others may read it; run `chmod 600 {}`", path.display()));
    }
    let mut bytes = zeroize::Zeroizing::new(Vec::with_capacity(2 * LONGEST));
    file.by_ref().take(LONGEST as u64 + 2).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let text = std::str::from_utf8(&bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    usable(text.lines().next().unwrap_or_default())
}

/// A password that can be typed on one line.
pub fn usable(line: &str) -> Result<Secret<String>, String> {
    match line {
        "" => Err("its first line is empty".to_owned()),
        long if long.len() > LONGEST => Err("its first line is too long for a password".to_owned()),
        odd if odd.contains('\0') => Err("its first line has a NUL character".to_owned()),
        fine => Ok(Secret::new(fine.to_owned())),
    }
}

impl Root {
    /// How the user of this target becomes root.
    pub(super) fn of(target: &SshTarget, access: &Access) -> Result<Self, HostError> {
        let how = if target.user == "root" {
            How::Already
        } else {
            access.passwords.of(target, access)?.map_or(How::Sudo, How::Asking)
        };
        Ok(Self { user: target.user.clone(), how, timeout: access.connect_timeout })
    }

    /// The command with its prefix for root. Messages are requested in English, because hactl reads them.
    fn command(&self, command: &str) -> String {
        match self.how {
            How::Already => command.to_owned(),
            How::Sudo => format!("env LC_ALL=C sudo -n {command}"),
            How::Asking(_) => format!("env LC_ALL=C sudo -S -p '{PROMPT}' {command}"),
        }
    }

    /// Starts a constant command as root. With a password, the wire is returned once the command speaks or has ended:
    /// before that, only sudo may be written to.
    pub(super) async fn exec(&self, session: &Session, command: &str) -> Result<Wire, HostError> {
        let wire = session.exec(&self.command(command)).await?;
        match &self.how {
            How::Already | How::Sudo => Ok(wire),
            How::Asking(password) => self.answer(session, wire, password).await,
        }
    }

    async fn answer(&self, session: &Session, wire: Wire, password: &Password) -> Result<Wire, HostError> {
        let Wire { reader, mut writer, exit_report } = wire;
        let mut reader = BufReader::new(reader);
        if !self.asked(&mut reader, &exit_report, 1).await? {
            return Ok(Wire { reader: Box::new(reader), writer, exit_report });
        }
        // The first task tries the password while the others wait; afterwards none waits.
        let mut turn: Option<MutexGuard<'_, Standing>> = Some(password.standing.lock().await);
        match turn.as_deref() {
            Some(Standing::Refused(first)) => {
                return Err(self.no_sudo(SudoTrouble::NotTried { first: first.clone() }, String::new()));
            }
            Some(Standing::Accepted) => turn = None,
            _ => {}
        }
        let mut line = zeroize::Zeroizing::new(String::with_capacity(LONGEST + 2));
        line.push_str(password.secret.reveal());
        line.push('\n');
        let lost = |error: std::io::Error| session.explain(HostError::Lost { why: error.to_string() });
        writer.write_all(line.as_bytes()).await.map_err(lost)?;
        writer.flush().await.map_err(lost)?;
        let again = self.asked(&mut reader, &exit_report, 2).await?;
        let said = said(&exit_report);
        if again || said.contains("incorrect password") {
            if let Some(turn) = &mut turn {
                **turn = Standing::Refused(session.place.clone());
            }
            return Err(self.no_sudo(SudoTrouble::WrongPassword, said));
        }
        if let (Some(turn), None) = (&mut turn, session.gone()) {
            **turn = Standing::Accepted;
        }
        Ok(Wire { reader: Box::new(reader), writer, exit_report })
    }

    /// Waits until sudo asks for the `nth` time (true), or the program behind it speaks or ends (false).
    async fn asked<R>(&self, reader: &mut BufReader<R>, words: &ExitReport, nth: usize) -> Result<bool, HostError>
    where
        R: tokio::io::AsyncRead + Unpin,
    {
        let waiting = async {
            tokio::select! {
                () = words.received(PROMPT, nth) => true,
                // A read error shows again at the next read.
                _ = reader.fill_buf() => words.count(PROMPT) >= nth,
            }
        };
        let asked = tokio::time::timeout(self.timeout, waiting).await;
        asked.map_err(|_| {
            let said = said(words);
            // If the password has expired, sudo asks for another one, with a prompt that is not ours.
            self.expired(&said).unwrap_or_else(|| HostError::too_slow(BECOMING_ROOT, self.timeout, said))
        })
    }

    /// The failure of the login user or of sudo itself, if the output reports one.
    pub(super) fn trouble(&self, words: &str) -> Option<HostError> {
        let of_sudo = || match self.how {
            How::Already => None,
            How::Sudo | How::Asking(_) => Some(self.no_sudo(trouble(words)?, plain(words))),
        };
        self.expired(words).or_else(of_sudo)
    }

    /// Why nothing could be run as root, where the user or sudo may be the reason.
    pub(super) fn stopped(&self, words: &str) -> Option<HostError> {
        let of_sudo = || match self.how {
            How::Already => None,
            How::Sudo | How::Asking(_) => Some(self.no_sudo(SudoTrouble::Other, plain(words))),
        };
        self.trouble(words).or_else(of_sudo)
    }

    /// That the password or the account of the user has expired, if the output reports it.
    fn expired(&self, words: &str) -> Option<HostError> {
        Some(HostError::Expired { user: self.user.clone(), what: expired(words)?, said: plain(words) })
    }

    fn no_sudo(&self, trouble: SudoTrouble, said: String) -> HostError {
        HostError::NoSudo { user: self.user.clone(), trouble, said }
    }
}

fn said(words: &ExitReport) -> String {
    plain(&words.said())
}

/// The words without our own prompt.
fn plain(words: &str) -> String {
    words.replace(PROMPT, "").trim().to_owned()
}

/// What of the user has expired, by the words of sshd, PAM and sudo.
fn expired(words: &str) -> Option<Expired> {
    const OF_PASSWORDS: [&str; 6] = [
        "password has expired",
        "password is expired",
        "Password expired",
        "Password change required",
        "required to change your password",
        "change expired password",
    ];
    let has = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
    if has(&OF_PASSWORDS) {
        Some(Expired::Password)
    } else {
        has(&["account has expired", "Account expired"]).then_some(Expired::Account)
    }
}

/// The failure that sudo reports. A missing command is none: then hactl is installed.
fn trouble(words: &str) -> Option<SudoTrouble> {
    let has = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
    Some(if has(&["must have a tty"]) {
        SudoTrouble::NeedsTerminal
    } else if has(&["not allowed to execute", "not in the sudoers file", "may not run sudo"]) {
        SudoTrouble::NotAllowed
    } else if has(&["incorrect password"]) {
        SudoTrouble::WrongPassword
    } else if has(&["a password is required", "no password was provided", "no askpass program"]) {
        SudoTrouble::Queries
    } else if has(&["'sudo': No such file", "\u{2018}sudo\u{2019}: No such file", "sudo: No such file"]) {
        SudoTrouble::Missing
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_sudo_are_distinguished_from_a_missing_command() {
        for (words, expected) in [
            ("sudo: a password is required", Some(SudoTrouble::Queries)),
            ("sudo: sorry, you must have a tty to run sudo", Some(SudoTrouble::NeedsTerminal)),
            ("Sorry, user ops is not allowed to execute '/bin/sh -c x' as root on cp1.", Some(SudoTrouble::NotAllowed)),
            ("ops is not in the sudoers file.", Some(SudoTrouble::NotAllowed)),
            ("env: 'sudo': No such file or directory", Some(SudoTrouble::Missing)),
            ("sudo: /var/lib/hactl/bin/0a/hactl: command not found", None),
            ("hactl host: nothing was heard for 30 s", None),
        ] {
            assert_eq!(trouble(words), expected, "{words}");
        }
    }

    #[test]
    fn an_expired_password_or_account_is_no_error_of_sudo_and_is_named_for_root_too() {
        let of_pam = "sudo: Account expired or PAM config lacks an \"account\" section for sudo, contact your \
                           system administrator";
        for (words, expected) in [
            ("WARNING: Your password has expired. Password change required but no TTY available.", "password"),
            ("sudo: Account or password is expired, reset your password and try again", "password"),
            ("sudo: Password expired, contact your system administrator", "password"),
            ("sudo: unable to change expired password: Authentication token manipulation error", "password"),
            ("You are required to change your password immediately (administrator enforced).", "password"),
            ("Your account has expired; please contact your system administrator.", "account"),
            (of_pam, "account"),
        ] {
            for how in [How::Already, How::Sudo] {
                let root = Root { user: "ops".to_owned(), how, timeout: Duration::from_secs(1) };
                for error in [root.trouble(words), root.stopped(words)].map(Option::unwrap) {
                    assert_eq!(error.to_string(), format!("the {expected} of ops has expired ({words})"));
                    assert!(error.hint().is_some_and(|hint| hint.contains("chage")), "{:?}", error.hint());
                }
            }
        }
        for words in ["sudo: a password is required", "Warning: your password will expire in 5 days"] {
            assert_eq!(expired(words), None, "{words}");
        }
    }

    #[test]
    fn only_the_first_line_of_a_password_file_is_read_and_only_if_no_other_user_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        for (text, mode, expected) in [
            ("s3cret\nnot this\n", 0o600, Ok("s3cret")),
            ("with spaces \r\n", 0o400, Ok("with spaces ")),
            ("s3cret", 0o644, Err("others may read it")),
            ("s3cret", 0o640, Err("others may read it")),
            ("\nsecond", 0o600, Err("empty")),
            (&"x".repeat(2000), 0o600, Err("too long")),
        ] {
            std::fs::remove_file(&path).ok();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            match (read(&path), expected) {
                (Ok(secret), Ok(expected)) => assert_eq!(secret.reveal(), expected),
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (found, expected) => panic!("{:?} instead of {expected:?}", found.map(|_| "a password")),
            }
        }
        assert!(read(&dir.path().join("none")).is_err());
    }
}

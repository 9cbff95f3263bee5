//! One run at a time on this machine: an advisory lock on the state directory that names its holder.
//!
//! In: the state directory and a verb. Out: a [`StateDirLock`], which the kernel releases when it is dropped or its
//! process ends in any way.

use super::{StateDirError, io_error, journal};
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The exclusive use of the state directory, for as long as this value lives.
#[derive(Debug)]
pub struct StateDirLock {
    _file: File,
}

/// Takes the lock, or returns its holder.
pub fn take(dir: &Path, verb: &str) -> Result<StateDirLock, StateDirError> {
    let path = dir.join("lock");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&path).map_err(io_error("open", &path))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            // The holder's description is only for the message: that the lock is held is known without it.
            if file.take(400).read_to_string(&mut holder).is_err() || holder.trim().is_empty() {
                "unknown holder".clone_into(&mut holder);
            }
            return Err(StateDirError::Held { path: dir.to_owned(), holder: holder.trim().to_owned() });
        }
        Err(e) => return Err(io_error("lock", &path)(e.into())),
    }
    let words = format!("hactl {verb}, pid {}, user {}, since {}\n", std::process::id(), user(), journal::now());
    file.set_len(0)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .and_then(|_| file.write_all(words.as_bytes()))
        .map_err(io_error("write", &path))?;
    Ok(StateDirLock { _file: file })
}

/// The user of this process, as other people know them.
pub fn user() -> String {
    ["SUDO_USER", "USER", "LOGNAME"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .map(|name| name.chars().filter(char::is_ascii_graphic).take(40).collect::<String>())
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()))
}

//! Keys, known hosts and SSH to a host. The host keys are created here, so that verification works from the start.

use super::error::Result;
use super::files;
use crate::process::Run;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Creates an ed25519 key pair at `path`, unless there is one.
pub(crate) fn key(path: &Path, comment: &str) -> Result<()> {
    if path.with_extension("pub").exists() {
        return Ok(());
    }
    // Under another name, because an ssh-keygen whose caller was killed may still be writing.
    let new = path.with_extension(format!("new-{}", std::process::id()));
    // ssh-keygen would ask before it replaces a file.
    files::remove(&new)?;
    let target = new.display().to_string();
    Run::new("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", &target]).ok()?;
    // The public half comes last: it proves that the pair is complete.
    files::rename(&new, path)?;
    files::rename(&PathBuf::from(format!("{target}.pub")), &path.with_extension("pub"))
}

/// The line of `known_hosts` for a host: by address and by name.
pub(crate) fn known(name: &str, address: Ipv4Addr, public: &str) -> String {
    let key: Vec<&str> = public.split_whitespace().take(2).collect();
    format!("{address},{name} {}\n", key.join(" "))
}

/// OpenSSH as user `ops`, with host key verification and without the user's configuration.
pub(crate) fn command(dir: &Path, name: &str, address: Ipv4Addr) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.args(["-F", "none", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "IdentitiesOnly=yes"])
        .args(["-o", "StrictHostKeyChecking=yes", "-o", "UpdateHostKeys=no"])
        .arg("-o")
        .arg(format!("UserKnownHostsFile={}", dir.join("known_hosts").display()))
        .arg("-o")
        .arg(format!("HostKeyAlias={name}"))
        .arg("-i")
        .arg(dir.join("id_ed25519"))
        .arg(format!("ops@{address}"));
    ssh
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_by_address_and_name_without_the_keys_comment() {
        let line = known("cp1", Ipv4Addr::new(10, 88, 0, 11), "ssh-ed25519 AAAA root@cp1\n");
        assert_eq!(line, "10.88.0.11,cp1 ssh-ed25519 AAAA\n");
    }
}

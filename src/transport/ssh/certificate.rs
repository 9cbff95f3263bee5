//! SSH certificates: whether a host certificate is accepted, and whether a user certificate is worth offering.
//!
//! In: a certificate, the expected name, and the time. Out: yes, or the reason why not. The library checks the
//! signature; validity, kind, names and options are checked here, as OpenSSH does, with one exception: a host
//! certificate without names would be valid for any host, and is refused.

use crate::model::glob::covers;
use russh::keys::ssh_key::Fingerprint;
use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{Certificate, HashAlg};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A CA for host certificates.
#[derive(Debug, Clone)]
pub(super) struct Authority {
    /// `file:line` of the record, or that it is the inventory.
    pub(super) at: String,
    /// Fingerprint of its key, `SHA256:...`.
    pub(super) fingerprint: String,
}

/// The time, Unix seconds.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Whether the certificate of a host is valid for it and signed by one of these CAs.
pub(super) fn convinces(shown: &Certificate, host: &str, authorities: &[Authority], now: u64) -> Result<(), String> {
    if shown.cert_type() != CertType::Host {
        return Err("it is a user certificate, not a host certificate".to_owned());
    }
    let by = shown.signature_key().fingerprint(HashAlg::Sha256);
    let known = authorities.iter().find(|authority| authority.fingerprint == by.to_string());
    let Some(authority) = known else {
        return Err(format!("it was signed by {by}, which is not a CA on record for {host}"));
    };
    valid(shown, now)?;
    if !shown.valid_principals().iter().any(|name| covers(name, host)) {
        let names = shown.valid_principals();
        return Err(if names.is_empty() {
            format!("it names no host and would be valid for any: sign it for {host} (ssh-keygen -n)")
        } else {
            format!("it is for {}, not for {host}", names.join(", "))
        });
    }
    if let Some((option, _)) = shown.critical_options().iter().next() {
        return Err(format!("it requires {option:?}, which hactl does not support"));
    }
    let fingerprint: Fingerprint = by;
    shown
        .validate_at(now, std::iter::once(&fingerprint))
        .map_err(|_| format!("its signature is not that of the CA in {}", authority.at))
}

/// Whether a user certificate may be accepted; a host counts every other one as a failed attempt. The names in it are
/// not checked: a host may map other principals to a user (AuthorizedPrincipalsFile).
pub(super) fn worth_showing(ours: &Certificate, now: u64) -> Result<(), String> {
    if ours.cert_type() != CertType::User {
        return Err("it is a host certificate, not a user certificate".to_owned());
    }
    valid(ours, now)
}

fn valid(certificate: &Certificate, now: u64) -> Result<(), String> {
    if now < certificate.valid_after() {
        return Err(format!("it is valid only from {}: check the clocks", moment(certificate.valid_after())));
    }
    if now >= certificate.valid_before() {
        return Err(format!("it was valid until {}", moment(certificate.valid_before())));
    }
    Ok(())
}

fn moment(seconds: u64) -> String {
    let at = UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).filter(|_| seconds < 253_402_300_800);
    at.and_then(|at| OffsetDateTime::from(at).format(&Rfc3339).ok()).unwrap_or_else(|| "the end of time".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    /// Made by ssh-keygen: `args` come between the CA and the key.
    fn signed(dir: &Path, name: &str, args: &[&str]) -> Certificate {
        let run = |args: &[&str]| {
            assert!(Command::new("ssh-keygen").current_dir(dir).args(["-q"]).args(args).status().unwrap().success());
        };
        if !dir.join("ca").exists() {
            run(&["-t", "ed25519", "-N", "", "-f", "ca"]);
        }
        run(&["-t", "ed25519", "-N", "", "-f", name]);
        let key = format!("{name}.pub");
        run(&[&["-s", "ca", "-I", name][..], args, &[&key]].concat());
        Certificate::read_file(&dir.join(format!("{name}-cert.pub"))).unwrap()
    }

    fn authority(dir: &Path) -> Vec<Authority> {
        let key = russh::keys::PublicKey::read_openssh_file(dir.join("ca.pub")).unwrap();
        vec![Authority { at: "known_hosts:1".into(), fingerprint: key.fingerprint(HashAlg::Sha256).to_string() }]
    }

    #[test]
    fn a_host_certificate_is_verified_by_ca_time_name_and_kind() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        let fine = signed(at, "fine", &["-h", "-n", "cp1.mgmt,*.lab"]);
        let known = authority(at);
        assert_eq!(convinces(&fine, "cp1.mgmt", &known, now()), Ok(()));
        assert_eq!(convinces(&fine, "cp2.lab", &known, now()), Ok(()));
        let refused = |shown: &Certificate, host, authorities: &[Authority], part: &str| {
            let why = convinces(shown, host, authorities, now()).unwrap_err();
            assert!(why.contains(part), "{why}");
        };
        refused(&fine, "cp2.mgmt", &known, "it is for cp1.mgmt, *.lab, not for cp2.mgmt");
        refused(&fine, "cp1.mgmt", &[], "not a CA on record");
        refused(&signed(at, "user", &["-n", "cp1"]), "cp1", &known, "a user certificate");
        refused(&signed(at, "nobody", &["-h"]), "cp1", &known, "names no host");
        refused(
            &signed(at, "old", &["-h", "-n", "cp1", "-V", "20200101:20200102"]),
            "cp1",
            &known,
            "valid until 2020-01-0",
        );
        refused(&signed(at, "early", &["-h", "-n", "cp1", "-V", "20500101:20510101"]), "cp1", &known, "only from 20");
        refused(&signed(at, "odd", &["-h", "-n", "cp1", "-O", "critical:x@y=1"]), "cp1", &known, "requires \"x@y\"");
    }

    #[test]
    fn a_certificate_that_was_tampered_with_does_not_convince() {
        let dir = tempfile::tempdir().unwrap();
        let fine = signed(dir.path(), "fine", &["-h", "-n", "cp1.mgmt"]);
        let known = authority(dir.path());
        let mut bytes = fine.to_bytes().unwrap();
        let at = bytes.windows(8).position(|w| w == b"cp1.mgmt").unwrap();
        bytes[at + 2] = b'2';
        let forged = Certificate::from_bytes(&bytes).unwrap();
        assert!(convinces(&forged, "cp2.mgmt", &known, now()).unwrap_err().contains("signature"));
    }

    #[test]
    fn a_user_certificate_that_has_run_out_or_is_a_hosts_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(worth_showing(&signed(dir.path(), "fine", &["-n", "ops"]), now()), Ok(()));
        let old = signed(dir.path(), "old", &["-n", "ops", "-V", "20200101:20200102"]);
        assert!(worth_showing(&old, now()).unwrap_err().contains("valid until"));
        assert!(worth_showing(&signed(dir.path(), "host", &["-h", "-n", "ops"]), now()).is_err());
    }
}

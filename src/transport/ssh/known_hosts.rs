//! Verifies host keys against the records.
//!
//! In: known_hosts files (plain, hashed and wildcard names, `[host]:port`, `@revoked`, `@cert-authority`), and what
//! the inventory pins: a fingerprint, or a CA. Out: a judgement on the key or certificate that a host presents, and
//! the key types to request: a host with several keys must present the one on record. RSA keys are reported by line
//! as unusable, never silently skipped.

use super::certificate::{self, Authority};
use crate::model::desired::SshTarget;
use crate::model::glob::covers;
use crate::transport::error::HostError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use russh::keys::{Algorithm, Certificate, EcdsaCurve, HashAlg, PublicKey};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// Host key types that can be verified, best first. RSA is left out: its crate is known to leak through timing.
pub(super) const VERIFIABLE: [Algorithm; 4] = [
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
];

/// The records of one host.
#[derive(Debug, Clone, Default)]
pub(super) struct Records {
    address: String,
    /// The name in records, with the port unless it is 22.
    name: String,
    /// The name alone, as in a certificate.
    host: String,
    keys: Vec<Record>,
    revoked: Vec<Record>,
    /// Keys recorded for the name without the port: they may be accepted, but their absence proves no change.
    portless: Vec<Record>,
    /// CAs whose certificates are accepted for this host.
    authorities: Vec<Authority>,
    notes: Vec<String>,
    pinned: Option<String>,
    file: PathBuf,
}

#[derive(Debug, Clone)]
struct Record {
    at: String,
    key: PublicKey,
}

/// The result for an acceptable key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// On record.
    Known,
    /// No record, and no contradiction: the first connection.
    FirstMeeting,
}

impl Records {
    /// Reads the records of a host. The first file is where a new key would be recorded.
    pub(super) fn of(target: &SshTarget, files: &[PathBuf]) -> Result<Self, HostError> {
        let host = target.key_alias.as_ref().unwrap_or(&target.host).as_str();
        let mut records = Self {
            address: target.address(),
            // An alias replaces the host and its port, as in OpenSSH.
            name: if target.port == 22 || target.key_alias.is_some() {
                host.to_owned()
            } else {
                format!("[{host}]:{}", target.port)
            },
            host: host.to_owned(),
            pinned: target.fingerprint.as_ref().map(|p| p.trim_end_matches('=').to_owned()),
            file: files.first().cloned().unwrap_or_default(),
            ..Self::default()
        };
        if let Some(authority) = &target.host_ca {
            let at = "the inventory (ssh.hostCA)".to_owned();
            records.authorities.push(Authority { at, fingerprint: authority.trim_end_matches('=').to_owned() });
        }
        for file in files {
            match std::fs::read(file) {
                Ok(text) => records.learn(file, &String::from_utf8_lossy(&text), host),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(HostError::KnownHosts { path: file.clone(), source }),
            }
        }
        Ok(records)
    }

    fn learn(&mut self, file: &Path, text: &str, host: &str) {
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split_ascii_whitespace();
            let Some(first) = words.next().filter(|word| !word.starts_with('#')) else { continue };
            let (marker, names) =
                if first.starts_with('@') { (first, words.next().unwrap_or("")) } else { ("", first) };
            let exact = matches(names, &self.name);
            if !exact && !matches(names, host) {
                continue;
            }
            let at = format!("{}:{}", file.display(), number + 1);
            let (kind, text) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            let key = PublicKey::from_openssh(&format!("{kind} {text}"));
            match (marker, key) {
                ("@revoked", Ok(key)) => self.revoked.push(Record { at, key }),
                ("@cert-authority", Ok(key)) if VERIFIABLE.contains(&key.algorithm()) => {
                    let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
                    self.authorities.push(Authority { at, fingerprint });
                }
                ("@cert-authority", Ok(_)) => {
                    self.notes
                        .push(format!("{at} names a host CA with a {kind} key, a type that hactl does not verify"));
                }
                ("", Ok(key)) if !exact => self.portless.push(Record { at, key }),
                ("", Ok(key)) if VERIFIABLE.contains(&key.algorithm()) => self.keys.push(Record { at, key }),
                ("", Ok(_)) => self.notes.push(format!("{at} has a {kind} key, a type that hactl does not verify")),
                _ => self.notes.push(format!("{at} cannot be parsed")),
            }
        }
    }

    /// Key types to request from the host: those on record first.
    pub(super) fn types(&self) -> Vec<Algorithm> {
        let mut types: Vec<Algorithm> = Vec::new();
        for algorithm in self.keys.iter().chain(&self.portless).map(|r| r.key.algorithm()).chain(VERIFIABLE) {
            if VERIFIABLE.contains(&algorithm) && !types.contains(&algorithm) {
                types.push(algorithm);
            }
        }
        types
    }

    /// Key types whose certificates are requested: none unless a CA is on record for the host.
    pub(super) fn certificate_types(&self) -> &'static [Algorithm] {
        if self.authorities.is_empty() || self.is_pinned() { &[] } else { &VERIFIABLE }
    }

    /// Judges the certificate that a host presents, at this time (Unix, seconds). If it is not accepted, its key may
    /// still be on record.
    pub(super) fn judge_certificate(&self, shown: &Certificate, now: u64) -> Result<Judgement, HostError> {
        let key = PublicKey::from(shown.public_key().clone());
        let by = PublicKey::from(shown.signature_key().clone());
        for (one, what) in [(&key, ""), (&by, "the CA of ")] {
            if let Some(revoked) = self.revoked.iter().find(|r| r.key.key_data() == one.key_data()) {
                let key = format!("{what}{}", describe(&key));
                return Err(HostError::KeyRevoked {
                    address: self.address.clone(),
                    key,
                    on_record: revoked.at.clone(),
                });
            }
        }
        let Err(why) = certificate::convinces(shown, &self.host, &self.authorities, now) else {
            return Ok(Judgement::Known);
        };
        let mut records = self.clone();
        records.notes.push(format!("it presents a certificate, but {why}"));
        records.authorities.clear();
        // A host that was asked for a certificate presents one of any key type: another type is no change here.
        if !records.keys.iter().any(|r| r.key.algorithm() == key.algorithm()) {
            records.keys.clear();
        }
        records.judge(&key, false)
    }

    /// Whether a fingerprint is pinned: then the type of the key is not known in advance.
    pub(super) fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// Judges the key that a host presents.
    pub(super) fn judge(&self, presented: &PublicKey, trust_first_use: bool) -> Result<Judgement, HostError> {
        let address = || self.address.clone();
        let is = |record: &&Record| record.key.key_data() == presented.key_data();
        let key = describe(presented);
        if let Some(revoked) = self.revoked.iter().find(is) {
            return Err(HostError::KeyRevoked { address: address(), key, on_record: revoked.at.clone() });
        }
        if let Some(pinned) = &self.pinned {
            if presented.fingerprint(HashAlg::Sha256).to_string() == *pinned {
                return Ok(Judgement::Known);
            }
            let on_record = "the inventory (ssh.fingerprint)".to_owned();
            return Err(HostError::KeyChanged { address: address(), key, expected: pinned.clone(), on_record });
        }
        if self.keys.iter().chain(&self.portless).any(|record| is(&record)) {
            return Ok(Judgement::Known);
        }
        // A key of another type is a change as well: the host was asked for the type on record first. Otherwise an
        // interceptor would only have to present a type that was never recorded.
        let same_type = |r: &&Record| r.key.algorithm() == presented.algorithm();
        if let Some(old) = self.keys.iter().find(same_type).or_else(|| self.keys.first()) {
            let (expected, on_record) = (describe(&old.key), old.at.clone());
            return Err(HostError::KeyChanged { address: address(), key, expected, on_record });
        }
        let mut notes = self.notes.clone();
        for authority in &self.authorities {
            notes.push(format!("it presents no certificate of the CA in {}", authority.at));
        }
        // This is not a first connection if there are unusable records, or if a certificate is required.
        if trust_first_use && notes.is_empty() {
            return Ok(Judgement::FirstMeeting);
        }
        Err(HostError::UnknownKey { address: address(), key, notes, file: self.file.clone() })
    }

    /// Records a key after a first connection.
    pub(super) fn record(&self, key: &PublicKey) -> Result<(), HostError> {
        let failed = |source| HostError::KnownHosts { path: self.file.clone(), source };
        let text = PublicKey::from(key.key_data().clone()).to_openssh().map_err(|e| failed(io::Error::other(e)))?;
        append(&self.file, &format!("{} {}\n", self.name, text.trim())).map_err(failed)
    }
}

/// One write in append mode: several hosts may be recorded at the same time.
fn append(file: &Path, line: &str) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut open = std::fs::OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(file)?;
    let mut last = [b'\n'];
    if open.metadata()?.len() > 0 {
        open.seek(SeekFrom::End(-1))?;
        open.read_exact(&mut last)?;
    }
    let lead = if last == [b'\n'] { "" } else { "\n" };
    open.write_all(format!("{lead}{line}").as_bytes())?;
    open.sync_data()
}

/// Type and fingerprint, in the format that people compare.
pub(super) fn describe(key: &PublicKey) -> String {
    format!("{} {}", key.algorithm(), key.fingerprint(HashAlg::Sha256))
}

/// Whether a list of names or patterns covers `name`; one negated pattern that matches excludes it.
fn matches(list: &str, name: &str) -> bool {
    let mut covered = false;
    for pattern in list.split(',') {
        let (negated, pattern) = pattern.strip_prefix('!').map_or((false, pattern), |rest| (true, rest));
        let hit = match pattern.strip_prefix("|1|") {
            Some(hashed) => hashed_is(hashed, name),
            None => covers(pattern, name),
        };
        if hit && negated {
            return false;
        }
        covered |= hit;
    }
    covered
}

fn hashed_is(salt_and_hash: &str, name: &str) -> bool {
    use aws_lc_rs::hmac;
    let Some((salt, hash)) = salt_and_hash.split_once('|') else { return false };
    let (Ok(salt), Ok(hash)) = (BASE64.decode(salt), BASE64.decode(hash)) else { return false };
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
    hmac::verify(&key, name.to_ascii_lowercase().as_bytes(), &hash).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const ED2: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILIG2T/B0l0gaqj3puu510tu9N1OkQ4znY3LYuEm5zCF";
    const EC: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBFkBfTOhe0VTVLSZvg0pbLdLdSSvIcBQcYmQOxNaAcRjjB8UmSEvGi7CYM9oB5CLVIPmEq7dBPBmKRNpHhuCpzU=";

    fn key(text: &str) -> PublicKey {
        PublicKey::from_openssh(text).unwrap()
    }

    fn records(text: &str, host: &str, port: u16) -> Records {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("known_hosts");
        std::fs::write(&file, text).unwrap();
        Records::of(&at(host, port), &[file]).unwrap()
    }

    fn at(host: &str, port: u16) -> SshTarget {
        SshTarget { port, ..SshTarget::new(host, "root") }
    }

    #[test]
    fn a_recorded_key_is_known_by_name_pattern_port_and_hash() {
        // Made with `ssh-keygen -H` for example.com.
        let hashed = format!("|1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak= {ED2}");
        for (text, host, port, presented) in [
            (format!("cp1,10.0.0.1 {ED} a comment"), "10.0.0.1", 22, ED),
            (format!("[cp1]:2222 {ED}"), "cp1", 2222, ED),
            (format!("cp1 {ED}"), "cp1", 2222, ED),
            (format!("*.mgmt,!bad.mgmt {ED}"), "cp1.mgmt", 22, ED),
            (format!("# cp1 {ED2}\n\nCP1 {ED}\n"), "cp1", 22, ED),
            (format!("cp1 {EC}\ncp1 {ED}\n"), "cp1", 22, ED),
            (hashed, "example.com", 22, ED2),
        ] {
            let judged = records(&text, host, port).judge(&key(presented), false);
            assert_eq!(judged.unwrap(), Judgement::Known, "{text}");
        }
        let excluded = records(&format!("*.mgmt,!bad.mgmt {ED}"), "bad.mgmt", 22);
        assert!(matches!(excluded.judge(&key(ED), false), Err(HostError::UnknownKey { .. })));
    }

    #[test]
    fn an_unknown_key_says_its_fingerprint_and_passes_only_as_a_first_meeting() {
        let none = records("other ssh-ed25519 AAAA\n", "cp1", 22);
        let Err(HostError::UnknownKey { key: said, .. }) = none.judge(&key(ED), false) else { panic!("it passed") };
        assert_eq!(said, describe(&key(ED)));
        assert!(said.starts_with("ssh-ed25519 SHA256:"));
        assert_eq!(none.judge(&key(ED), true).unwrap(), Judgement::FirstMeeting);
    }

    #[test]
    fn a_changed_key_is_a_hard_stop_with_file_and_line_even_on_trust_first_use() {
        for presented in [ED2, EC] {
            let one = records(&format!("# first\ncp1 {ED}\n"), "cp1", 22);
            let Err(HostError::KeyChanged { on_record, expected, .. }) = one.judge(&key(presented), true) else {
                panic!("it passed")
            };
            assert!(on_record.ends_with("known_hosts:2"), "{on_record}");
            assert_eq!(expected, describe(&key(ED)));
        }
    }

    #[test]
    fn a_revoked_key_is_a_hard_stop_even_when_it_is_also_recorded_or_pinned() {
        let mut both = records(&format!("cp1 {ED}\n@revoked * {ED}\n"), "cp1", 22);
        assert!(
            matches!(both.judge(&key(ED), true), Err(HostError::KeyRevoked { on_record, .. }) if on_record.ends_with(":2"))
        );
        both.pinned = Some(key(ED).fingerprint(HashAlg::Sha256).to_string());
        assert!(matches!(both.judge(&key(ED), true), Err(HostError::KeyRevoked { .. })));
    }

    #[test]
    fn the_host_is_asked_for_the_type_on_record_first_and_never_for_rsa() {
        let types = records(&format!("cp1 {EC}\n"), "cp1", 22).types();
        assert_eq!(types[0], key(EC).algorithm());
        assert_eq!(types.len(), VERIFIABLE.len());
    }

    #[test]
    fn records_that_cannot_be_used_are_named_by_line_and_rule_out_a_first_meeting() {
        let text = "@cert-authority *.mgmt ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAQQC\na.mgmt nonsense\n";
        let unusable = records(text, "a.mgmt", 22);
        let Err(HostError::UnknownKey { notes, .. }) = unusable.judge(&key(ED), true) else { panic!("it passed") };
        assert!(notes[0].contains(":1 cannot be parsed") && notes[1].contains(":2 cannot be parsed"), "{notes:?}");
    }

    #[test]
    fn a_host_with_a_recorded_ca_must_show_a_certificate_or_a_recorded_key() {
        let text = format!("@cert-authority *.mgmt {ED2}\nb.mgmt {ED}\n");
        let Err(HostError::UnknownKey { notes, .. }) = records(&text, "a.mgmt", 22).judge(&key(ED), true) else {
            panic!("it passed as a first connection")
        };
        assert!(notes[0].contains("no certificate of the CA in") && notes[0].ends_with(":1"), "{notes:?}");
        assert_eq!(records(&text, "b.mgmt", 22).judge(&key(ED), false).unwrap(), Judgement::Known);
        assert!(
            records(&text, "a.other", 22).certificate_types().is_empty(),
            "no host is asked for a certificate that cannot be judged"
        );
        assert_eq!(records(&text, "a.mgmt", 2222).certificate_types().len(), VERIFIABLE.len());
    }

    #[test]
    fn a_key_is_recorded_under_its_alias() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("known_hosts");
        std::fs::write(&file, format!("fleet {ED}\n10.0.0.1 {ED2}\n")).unwrap();
        let target = SshTarget { key_alias: Some("fleet".into()), ..at("10.0.0.1", 2222) };
        let records = Records::of(&target, &[file]).unwrap();
        assert_eq!(records.judge(&key(ED), false).unwrap(), Judgement::Known);
        assert!(matches!(records.judge(&key(ED2), true), Err(HostError::KeyChanged { .. })));
    }

    #[test]
    fn a_pinned_fingerprint_outranks_the_files() {
        let mut pinned = records(&format!("cp1 {ED}\n"), "cp1", 22);
        pinned.pinned = Some(key(ED2).fingerprint(HashAlg::Sha256).to_string());
        assert_eq!(pinned.judge(&key(ED2), false).unwrap(), Judgement::Known);
        assert!(matches!(pinned.judge(&key(ED), true), Err(HostError::KeyChanged { .. })));
    }

    #[test]
    fn a_first_meeting_is_recorded_so_that_the_next_one_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ssh").join("known_hosts");
        let files = [file.clone()];
        Records::of(&at("cp1", 2222), &files).unwrap().record(&key(ED)).unwrap();
        let again = Records::of(&at("cp1", 2222), &files).unwrap();
        assert_eq!(again.judge(&key(ED), false).unwrap(), Judgement::Known);
        // A file whose last line has no newline must not corrupt the record.
        std::fs::write(&file, format!("cp2 {ED}")).unwrap();
        again.record(&key(ED)).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("cp2 {ED}\n[cp1]:2222 {ED}\n"));
    }
}

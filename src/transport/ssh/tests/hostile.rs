//! Hostile known_hosts files: each line is used or reported, and a revoked key is never accepted.

use super::super::HostError;
use super::super::known_hosts::{Judgement, Records};
use super::SshTarget;
use crate::mutate;
use russh::keys::PublicKey;

const ED: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
const ED2: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILIG2T/B0l0gaqj3puu510tu9N1OkQ4znY3LYuEm5zCF";

#[test]
fn no_file_of_host_keys_makes_the_reader_panic_or_a_key_known_that_does_not_stand_in_it() {
    let good: Vec<Vec<u8>> = [
        format!("cp1 {ED2}\n[cp1]:2222,192.0.2.1 {ED2}\n"),
        format!("# a comment\n@cert-authority *.example,cp? {ED2}\n@revoked * {ED2}\n"),
        format!("|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= {ED2}\n!cp1,cp* {ED2}\n"),
        "cp1 ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBFkB\n".to_owned(),
    ]
    .map(String::into_bytes)
    .into();
    let words =
        ["cp1 ", "*", "!", "@revoked ", "@cert-authority ", "|1|", "ssh-rsa ", "ssh-ed25519 ", ",", "=", "[cp1]:22"];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("known_hosts");
    let shown = PublicKey::from_openssh(ED).unwrap();
    for case in 0..2500 {
        let mut dice = crate::Dice::new(case);
        let text = mutate::damaged(&mut dice, &good, &words);
        std::fs::write(&file, &text).unwrap();
        let records = Records::of(&SshTarget::new("cp1", "root"), std::slice::from_ref(&file)).unwrap();
        assert!(!records.types().is_empty());
        // The presented key is in none of the files.
        match records.judge(&shown, false) {
            Ok(Judgement::FirstMeeting | Judgement::Known) => {
                panic!("case {case}: a key without a record is accepted")
            }
            Err(HostError::UnknownKey { .. } | HostError::KeyChanged { .. }) => {}
            Err(error) => assert!(error.to_string().len() < 4000, "case {case}: {error}"),
        }
        // With a line that revokes the key, nothing else in the file accepts it, not even as a first connection.
        let revoked = [format!("@revoked * {ED}\n").as_bytes(), &text].concat();
        std::fs::write(&file, revoked).unwrap();
        let records = Records::of(&SshTarget::new("cp1", "root"), std::slice::from_ref(&file)).unwrap();
        assert!(matches!(records.judge(&shown, true), Err(HostError::KeyRevoked { .. })), "case {case}");
    }
}

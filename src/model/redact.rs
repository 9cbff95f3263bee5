//! Redaction of secrets in text that leaves the machine: known secrets, and everything that looks like one.
//!
//! In: secret values ([`Known`]), and text of any origin. Out: the text with [`STRUCK`] in their place, and the number
//! of redactions. Redacting a harmless word costs a question; missing a key costs the cluster. So in doubt, text is
//! redacted.

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use zeroize::Zeroize;

/// The replacement of a secret.
pub const STRUCK: &str = "[redacted]";
/// Shorter values are not redacted: they are no real secrets, and would match parts of other text.
const SHORTEST: usize = 8;
/// Each line of this length of a longer secret is redacted separately: programs wrap and prefix lines.
const SHORTEST_LINE: usize = 16;
/// Longer values are searched only line by line.
const WHOLE: usize = 16 << 10;

/// Values that are secret. No `Debug`; zeroed when dropped.
#[derive(Default)]
pub struct Known(BTreeSet<String>);

impl Known {
    /// A secret value, as it is and in base64, and each of its longer lines.
    pub fn value(&mut self, value: &str) {
        let value = value.trim();
        if value.len() < SHORTEST {
            return;
        }
        if value.len() <= WHOLE {
            self.0.insert(value.to_owned());
            self.0.insert(STANDARD.encode(value).trim_end_matches('=').to_owned());
        }
        let lines = value.lines().map(str::trim).filter(|l| l.len() >= SHORTEST_LINE && !l.starts_with("-----"));
        self.0.extend(lines.map(str::to_owned));
    }

    /// The text of a file that contains secrets among other things: the lines of its private keys, the values of secret
    /// keys. A file with one line is a secret as a whole.
    pub fn file(&mut self, text: &str) {
        if text.trim().lines().count() == 1 {
            return self.value(text);
        }
        for block in KEY_BLOCK.find_iter(text) {
            self.value(block.as_str());
        }
        for found in NAMED.captures_iter(text) {
            self.value(found[2].trim_matches(['"', '\'']));
        }
        for found in BASIC.captures_iter(text) {
            self.value(&found[1]);
            let plain = STANDARD.decode(&found[1]).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let mut plain = plain.unwrap_or_default();
            self.value(plain.split_once(':').map_or("", |(_, password)| password));
            plain.zeroize();
        }
        text.lines().filter(|line| line.trim().starts_with("AGE-SECRET-KEY-")).for_each(|line| self.value(line));
    }

    /// The number of strings to search for.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether no secret is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        for mut value in std::mem::take(&mut self.0) {
            value.zeroize();
        }
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("patterns are constant; a test uses each")
}

/// A private key. A key without an end marker extends to the end of the text.
static KEY_BLOCK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)")
});
/// The end of a private key whose beginning was cut off.
static KEY_END: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s)\A.*-----END [A-Z0-9 ]*PRIVATE KEY-----"));
/// The value after a word for a secret: `password: x`, `"token":"x"`, `--secret=x`, `PASSWORD='x y'`. Not the start of
/// a structure or a path: `secret: {secretName: …}`, `token=/var/run/…`.
static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)((?:password|passwd|passphrase|secret|token|api[-_]?key|access[-_]?key(?:[-_]?id)?|secret[-_]?key|private[-_]?key|client[-_]key[-_]data|auth[-_]?pass|credentials?)\\?["']?[ \t]*[:=][ \t]*)(\\?"[^"\\\n]+\\?"|'[^'\n]+'|[^\s"'\\,;{}\[\]<>/(|&][^\s"',;{}]{3,})"#,
    )
});
/// User and password in HTTP basic authentication.
static BASIC: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\bbasic\s+([A-Za-z0-9+/=]{8,})"));
/// Secrets with a known form; the first group, if there is one, stays.
static FORMS: LazyLock<[Regex; 8]> = LazyLock::new(|| {
    [
        // A JSON Web Token: service accounts, OpenID Connect.
        pattern(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
        pattern(r"(?i)((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"),
        pattern(r#"(?i)(authorization\\?["']?\s*[:=]\s*\\?["']?)[^\s"',\\]{8,}"#),
        // The password in a URL.
        pattern(r#"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s:@"']*:[^/\s@"']+@"#),
        // A password in Docker's configuration.
        pattern(r#"(\\?["']auth\\?["']\s*:\s*\\?["'])[A-Za-z0-9+/=]{8,}"#),
        // A bootstrap token of Kubernetes.
        pattern(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"),
        pattern(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
        pattern(r"(?i)\bAGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    ]
});

/// Redacts secrets.
pub struct Redactor {
    known: Option<AhoCorasick>,
}

impl Redactor {
    /// A redactor for these values, and for secrets with a known form.
    ///
    /// # Errors
    /// When there are too many of them to search for at once: then no text may be sent.
    pub fn new(known: &Known) -> Result<Self, String> {
        if known.is_empty() {
            return Ok(Self { known: None });
        }
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(known.0.iter());
        Ok(Self { known: Some(automaton.map_err(|e| format!("{} secrets cannot be searched for: {e}", known.len()))?) })
    }

    /// The text without secrets, and the number of redactions.
    pub fn strike(&self, text: &str) -> (String, u32) {
        let mut count = 0;
        let mut text = Cow::Borrowed(text);
        if let Some(known) = &self.known {
            let mut struck = String::with_capacity(text.len());
            known.replace_all_with(&text, &mut struck, |_, _, out| {
                count += 1;
                out.push_str(STRUCK);
                true
            });
            if count > 0 {
                text = Cow::Owned(struck);
            }
        }
        for form in [&*KEY_BLOCK, &*KEY_END].into_iter().chain(FORMS.iter()).chain([&*NAMED]) {
            replace(form, &mut text, &mut count);
        }
        (text.into_owned(), count)
    }
}

const QUOTES: [char; 3] = ['"', '\'', '\\'];

/// Replaces every match, except for its first group if there is one.
fn replace(form: &Regex, text: &mut Cow<'_, str>, count: &mut u32) {
    let mut found = 0;
    let replaced = form.replace_all(text, |all: &regex::Captures<'_>| {
        let kept = all.get(1).map_or("", |m| m.as_str());
        let value = &all[0][kept.len()..];
        // Text that was redacted before stays as it is, even after a word for a secret; so do empty values.
        if [STRUCK, "null", "true", "false", "None", "nil"].contains(&value.trim_matches(QUOTES)) {
            return all[0].to_owned();
        }
        found += 1;
        // Quotes stay, so that JSON stays JSON.
        let inner = value.trim_start_matches(QUOTES);
        let (open, close) = (&value[..value.len() - inner.len()], &inner[inner.trim_end_matches(QUOTES).len()..]);
        let close = if close.is_empty() && value.ends_with('@') { "@" } else { close };
        format!("{kept}{open}{STRUCK}{close}")
    });
    if found > 0 {
        let replaced = replaced.into_owned();
        *text = Cow::Owned(replaced);
        *count += found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn blind() -> Redactor {
        Redactor::new(&Known::default()).unwrap()
    }

    #[test]
    fn likely_secrets_are_redacted_and_their_names_stay() {
        let jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl";
        for (text, expected) in [
            ("password: hunter22", "password: [redacted]"),
            ("{\"token\":\"abcdef\",\"n\":1}", "{\"token\":\"[redacted]\",\"n\":1}"),
            ("{\\\"token\\\":\\\"abcdef\\\"}", "{\\\"token\\\":\\\"[redacted]\\\"}"),
            ("DB_PASSWORD='two words' next", "DB_PASSWORD='[redacted]' next"),
            ("run --client-secret=s3cr3t99 --v=2", "run --client-secret=[redacted] --v=2"),
            ("Authorization: Bearer abcdefghijk", "Authorization: Bearer [redacted]"),
            ("header authorization=Zm9vOmJhcg== x", "header authorization=[redacted] x"),
            ("proxy http://me:pw@10.0.0.1:3128/", "proxy http://[redacted]@10.0.0.1:3128/"),
            ("{\"auths\":{\"r\":{\"auth\":\"bWU6cGFzc3dvcmQ=\"}}}", "{\"auths\":{\"r\":{\"auth\":\"[redacted]\"}}}"),
            ("join --token abcdef.0123456789abcdef", "join --token [redacted]"),
            ("key AKIAIOSFODNN7EXAMPLE", "key [redacted]"),
            ("secret: c2VjcmV0c2VjcmV0", "secret: [redacted]"),
        ] {
            let (struck, count) = blind().strike(text);
            assert_eq!((struck.as_str(), count), (expected, 1), "{text}");
        }
        assert_eq!(blind().strike(&format!("got {jwt} from it")).0, "got [redacted] from it");
        assert_eq!(blind().strike(&format!("AGE-SECRET-KEY-1{}", "Q".repeat(58))).0, "[redacted]");
    }

    #[test]
    fn words_that_only_resemble_secrets_stay() {
        for text in [
            "--service-account-key-file=/etc/kubernetes/pki/sa.key",
            "token=/var/run/secrets/kubernetes.io/serviceaccount/token",
            "secret: {secretName: canary, optional: true}",
            "volumes:\n- secret:\n    secretName: x",
            "secrets \"app\" not found",
            "{\"token\": null, \"secret\": true}",
            "the password was wrong",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "etcd.service: active since 10:00:00, http://10.0.0.1:2379/health",
        ] {
            assert_eq!(blind().strike(text), (text.to_owned(), 0));
        }
    }

    #[test]
    fn a_private_key_goes_whole_also_without_its_begin_or_its_end() {
        let (begin, end) = ("-----BEGIN EC PRIVATE KEY-----", "-----END EC PRIVATE KEY-----");
        assert_eq!(blind().strike(&format!("a\n{begin}\nMHcC\nAQEE\n{end}\nb")).0, "a\n[redacted]\nb");
        assert_eq!(blind().strike(&format!("host x: {begin}\nhost x: MHcC\nhost x: AQ")).0, "host x: [redacted]");
        assert_eq!(blind().strike(&format!("MHcC\nAQEE\n{end}\nb")).0, "[redacted]\nb");
    }

    #[test]
    fn known_secrets_go_wherever_they_stand() {
        let mut known = Known::default();
        known.value("correct horse battery staple\n");
        known.value("short");
        known.file("kind: EncryptionConfiguration\nkeys:\n  - name: key1\n    secret: MDEyMzQ1Njc4OQ==\n");
        known.file("-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49\nAwEHBG0wawIBAQQg\n-----END PRIVATE KEY-----\nx\n");
        let redactor = Redactor::new(&known).unwrap();
        let base64 = STANDARD.encode("correct horse battery staple");
        let text = format!(
            "said correct horse battery staple; {base64}; 'MDEyMzQ1Njc4OQ=='; line MIGHAgEAMBMGByqGSM49AgEGCCqGSM49 alone; short; EncryptionConfiguration"
        );
        let (struck, count) = redactor.strike(&text);
        assert_eq!(
            struck,
            "said [redacted]; [redacted]==; '[redacted]'; line [redacted] alone; short; EncryptionConfiguration"
        );
        assert_eq!(count, 4);
    }

    proptest! {
        #[test]
        fn no_known_value_survives_and_striking_twice_changes_nothing(
            secret in "[!-~]{8,40}", before in "\\PC{0,60}", after in "\\PC{0,60}",
        ) {
            prop_assume!(!STRUCK.contains(&secret));
            let mut known = Known::default();
            known.value(&secret);
            let redactor = Redactor::new(&known).unwrap();
            let (once, _) = redactor.strike(&format!("{before}{secret}{after} {secret}"));
            prop_assert!(!once.contains(&secret), "{}", once);
            prop_assert_eq!(&redactor.strike(&once).0, &once);
        }
    }
}

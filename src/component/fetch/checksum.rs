//! Published checksums, in the forms that publishers use.
//!
//! In: the text of a checksum file and the name of a file. Out: that file's SHA-256. Known forms: a digest alone; lines
//! of `DIGEST  NAME` or `DIGEST *NAME`, also inside a clear-signed message. The signature is not checked.

use crate::model::names::Digest;

/// The largest checksum file that is accepted.
pub const LARGEST: u64 = 256 * 1024;

/// The digest of `name`, or why the text does not have one.
pub fn of(text: &str, name: &str) -> Result<Digest, String> {
    let mut alone = Vec::new();
    let mut named = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(digest) = words.next().and_then(|w| w.to_ascii_lowercase().parse::<Digest>().ok()) else { continue };
        match (words.next(), words.next()) {
            (None, _) => alone.push(digest),
            (Some(file), None) => {
                let file = file.trim_start_matches('*');
                if file.rsplit('/').next() == Some(name) {
                    named.push(digest);
                }
            }
            _ => {}
        }
    }
    named.dedup();
    alone.dedup();
    match (named.as_slice(), alone.as_slice()) {
        ([digest], _) | ([], [digest]) => Ok(*digest),
        ([], []) => Err(format!("it has no SHA-256 of {name}")),
        _ => Err(format!("it has several SHA-256 of {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a() -> String {
        "a5".repeat(32)
    }
    fn b() -> String {
        "b6".repeat(32)
    }

    #[test]
    fn every_form_that_publishers_use_is_read() {
        let (a, b) = (a(), b());
        for text in [
            a.clone(),
            format!("{a}\n"),
            format!("{a}  kubelet\n"),
            format!("{b}  kubectl\n{a} *kubelet\n"),
            format!("{b}  kubelet.exe\n{a}  ./bin/kubelet\n"),
            format!(
                "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{b}  runc.arm64\n{a}  kubelet\n-----BEGIN PGP SIGNATURE-----\n\niQ==\n"
            ),
            a.to_uppercase(),
        ] {
            assert_eq!(of(&text, "kubelet").map(|d| d.hex()), Ok(a.clone()), "{text}");
        }
    }

    #[test]
    fn a_text_that_does_not_say_it_gives_no_digest() {
        let (a, b) = (a(), b());
        for text in [
            String::new(),
            "<html>please log in</html>".to_owned(),
            a[..63].to_owned(),
            format!("{a}  kubectl"),
            format!("{a}  kubelet\n{b}  kubelet"),
            format!("{a}\n{b}"),
        ] {
            assert!(of(&text, "kubelet").is_err(), "{text}");
        }
    }
}

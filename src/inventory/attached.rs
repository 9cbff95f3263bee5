//! The contents of the files that an inventory names: CAs and passwords of registries, Kubernetes objects.
//!
//! In: the files, by key and place. Out: [`Attached`], or problems that point into the inventory or into the file. A
//! file with a password is never quoted. All sizes are bounded: a wrong path must not exhaust the memory.

use super::check::validator::{NamedFile, Reading};
use super::manifests;
use super::problem::{Problem, Severity, Words};
use crate::model::attached::Attached;
use crate::model::bucket::SCHEME;
use crate::model::secret::Secret;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Limit for a file with CAs or a password.
const LARGEST: u64 = 256 << 10;

/// The inventory that names the files.
#[derive(Clone, Copy)]
pub(super) struct Naming<'a> {
    /// As the user named it.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
    /// Its directory.
    pub base: &'a Path,
}

impl Naming<'_> {
    fn problem(&self, severity: Severity, file: &NamedFile, words: Words) -> Problem {
        Problem::new(severity, self.name, self.text, file.place, words)
    }
    /// A path as people write it: relative to the inventory's directory if it is below that.
    pub fn shown(&self, path: &Path) -> String {
        path.strip_prefix(self.base).unwrap_or(path).display().to_string()
    }
}

/// The contents and the problems of the files.
#[derive(Default)]
pub(super) struct Found {
    pub attached: Attached,
    pub problems: Vec<Problem>,
    pub warnings: Vec<Problem>,
}

/// Reads every file whose contents are used here. They are known to exist.
pub(super) fn read(naming: Naming<'_>, files: &[NamedFile]) -> Found {
    let mut found = Found::default();
    let mut collection = manifests::Collection::default();
    for file in files {
        let read = match &file.reading {
            Reading::Elsewhere => Ok(()),
            Reading::Authority(at) => {
                authority(&file.path).map(|pem| drop(found.attached.authorities.insert(at.clone(), pem)))
            }
            Reading::Login(at) => login(&file.path, at).map(|(login, open)| {
                found.attached.logins.insert(at.clone(), login);
                if open {
                    let shown = file.path.display();
                    let words = Words::new(
                        format!("other users of this machine can read {shown}, which contains a password"),
                        "a file that only its owner can read",
                        format!("chmod 600 {shown}"),
                    );
                    found.warnings.push(naming.problem(Severity::Warning, file, words));
                }
            }),
            Reading::Manifests => collection.add(naming, &file.path),
        };
        if let Err(words) = read {
            found.problems.push(naming.problem(Severity::Error, file, words));
        }
    }
    let (objects, problems) = collection.finish();
    found.attached.manifests = objects;
    found.problems.extend(problems);
    found
}

fn bounded(path: &Path) -> Result<String, Words> {
    let shown = path.display();
    let remedy = "name another file, or correct this one";
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes))
        .map_err(|e| Words::new(format!("{shown} cannot be read: {e}"), "a file that you can read", remedy))?;
    if bytes.len() as u64 > LARGEST {
        let remedy = "check the path: this may be another file";
        return Err(Words::new(format!("{shown} is too large"), "at most 256 KiB", remedy));
    }
    String::from_utf8(bytes).map_err(|_| Words::new(format!("{shown} is not text"), "a text file", remedy))
}

/// Certificates, all of them valid PEM and of CAs.
fn authority(path: &Path) -> Result<String, Words> {
    let text = bounded(path)?;
    let shown = path.display();
    let bad = |what: String, remedy: &str| Words::new(what, "one or more PEM certificates of CAs", remedy);
    let mut count = 0;
    for block in x509_parser::pem::Pem::iter_from_buffer(text.as_bytes()) {
        let block = block.map_err(|_| bad(format!("{shown} is not PEM"), "export the certificate in PEM"))?;
        if block.label.contains("PRIVATE KEY") {
            let what = format!("{shown} contains a private key, which no host needs");
            return Err(bad(what, "name a file with only the certificate"));
        }
        let authority = block.parse_x509().is_ok_and(|cert| cert.is_ca());
        if block.label != "CERTIFICATE" || !authority {
            let what = format!("{shown} contains something that is not a CA certificate");
            return Err(bad(what, "name the certificate of the CA that signed the server's certificate"));
        }
        count += 1;
    }
    if count == 0 {
        return Err(bad(format!("{shown} contains no certificate"), "export the certificate in PEM"));
    }
    Ok(text)
}

/// `user:password` in base64, and whether others on this machine could read it.
fn login(path: &Path, at: &str) -> Result<(Secret<String>, bool), Words> {
    use base64::Engine as _;
    let text = Secret::new(bounded(path)?);
    let line = text.reveal().trim_end_matches(['\n', '\r']);
    let shown = path.display();
    let fine = line.split_once(':').is_some_and(|(user, password)| !user.is_empty() && !password.is_empty());
    if !fine || line.chars().any(char::is_control) {
        // Not quoted: it may be a password.
        let (form, parts) = match at {
            SCHEME => ("ACCESS_KEY_ID:SECRET_ACCESS_KEY", "one line: the key's ID, a colon, the secret key"),
            _ => ("user:password", "one line: the user, a colon, the password"),
        };
        return Err(Words::new(
            format!("{shown} does not contain {form}"),
            parts,
            "rewrite the file, and `chmod 600` it",
        ));
    }
    let open = std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0);
    Ok((Secret::new(base64::engine::general_purpose::STANDARD.encode(line)), open))
}

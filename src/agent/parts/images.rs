//! Images in containerd's store: listing them, and importing a delivered one.
//!
//! In: a delivered OCI archive, decompressed while containerd reads it. Out: the image under its reference, unpacked,
//! and pinned so that kubelet's image garbage collection keeps it. containerd is accessed with its own `ctr`, which
//! is delivered with it.

use crate::agent::host::Host;
use crate::agent::machine::root::Root;
use crate::agent::machine::run::{must, must_take, run};
use crate::agent::op_error::{Outcome, bad, failed, fault};
use crate::agent::parts;
use crate::model::target::{Part, Place};
use crate::protocol::OpErrorKind;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

const CTR: &str = "/usr/local/bin/ctr";
const SOCKET: &str = "/run/containerd/containerd.sock";
const PINNED: &str = "io.cri-containerd.pinned=pinned";
/// The label with the part from which an image was imported.
const PART: &str = "hactl.part";
const LIST: Duration = Duration::from_secs(10);
/// How long containerd may take to accept a connection. If it is busy, it gets more time, as other components do.
const CONNECTS: [&str; 2] = ["1s", "4s"];
const IMPORT: Duration = Duration::from_secs(280);

/// An image as `ctr` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listed {
    digest: String,
    pinned: bool,
    part: Option<String>,
}

/// Images by reference, with the part they were imported from, or else the digest of their manifest; none if
/// containerd does not run. If it runs and does not list them, the second value is the reason.
pub(crate) async fn list(root: &Root) -> Outcome<(BTreeMap<String, String>, Option<String>)> {
    if !root.own(SOCKET).exists() || !root.own(CTR).exists() {
        return Ok((BTreeMap::new(), None));
    }
    // A socket without a server: containerd is down, and its unit shows that.
    let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
    if UnixStream::connect(root.own(SOCKET)).await.is_err_and(refused) {
        return Ok((BTreeMap::new(), None));
    }
    let mut trouble = None;
    for within in CONNECTS {
        let fault = match run(&[CTR, "-n", "k8s.io", "--connect-timeout", within, "images", "ls"], LIST).await {
            Ok(ran) if ran.ok() => {
                let listed = parse(&ran.out).into_iter();
                let images = listed.map(|(reference, image)| (reference, image.part.unwrap_or(image.digest)));
                return Ok((images.collect(), None));
            }
            Ok(ran) => ran.fault("ctr images ls"),
            Err(late) if late.kind == OpErrorKind::TimedOut => late,
            Err(other) => return Err(other),
        };
        trouble = Some(fault.tail.last().cloned().unwrap_or(fault.what));
    }
    Ok((BTreeMap::new(), trouble))
}

/// `REF TYPE DIGEST SIZE PLATFORMS LABELS`, with blanks inside the size.
fn parse(text: &str) -> BTreeMap<String, Listed> {
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (reference, _, digest) = (words.next()?, words.next()?, words.next()?);
            let labels = || words.clone().flat_map(|w| w.split(','));
            let pinned = labels().any(|label| label == PINNED);
            let part = labels().find_map(|l| l.strip_prefix(PART)?.strip_prefix('=')).map(ToOwned::to_owned);
            let listed = Listed { digest: digest.to_owned(), pinned, part };
            digest.starts_with("sha256:").then(|| (reference.to_owned(), listed))
        })
        .collect()
}

/// Imports a delivered image and pins it; idempotent.
pub(crate) async fn import(host: &Host, part: &Part) -> Outcome<()> {
    let Place::Image { reference } = &part.place else {
        return Err(bad(format!("{} is not an image", part.name)));
    };
    let plain = !reference.is_empty()
        && reference.len() <= 300
        && !reference.starts_with('-')
        && reference.bytes().all(|b| b.is_ascii_graphic());
    if !plain {
        return Err(bad(format!("{reference:?} is not an image reference")));
    }
    let wanted = part.clone();
    let reading = host.root.blocking(move |root| manifest(&mut parts::unpacked(root, &wanted)?, &wanted.name));
    let digest = reading.await?;
    let from = format!("{PART}={}", part.digest.hex());
    host.waits(format!("containerd to import {reference}"));
    let there = images(Duration::from_secs(30)).await?.remove(reference);
    let there = there.filter(|image| image.digest == digest);
    if there.is_none() {
        let import = [CTR, "-n", "k8s.io", "images", "import", "--local", "--label", PINNED, "--label", &from, "-"];
        must_take(&import, parts::unpacked(&host.root, part)?, IMPORT).await?;
    } else if !there.is_some_and(|image| image.pinned && image.part.as_ref() == Some(&part.digest.hex())) {
        must(&[CTR, "-n", "k8s.io", "images", "label", "--", reference, PINNED, &from], LIST).await?;
    }
    Ok(())
}

/// Lists the images; waits for a containerd that is just starting.
async fn images(timeout: Duration) -> Outcome<BTreeMap<String, Listed>> {
    let until = Instant::now() + timeout;
    loop {
        let ran = run(&[CTR, "-n", "k8s.io", "--connect-timeout", "5s", "images", "ls"], LIST).await?;
        if ran.ok() {
            return Ok(parse(&ran.out));
        }
        if Instant::now() > until {
            return Err(crate::protocol::OpError {
                kind: OpErrorKind::TimedOut,
                ..ran.fault("containerd does not answer: ctr images ls")
            });
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// The digest of the first manifest of an OCI archive, which is the one that containerd lists.
fn manifest(archive: &mut impl Read, name: &str) -> Outcome<String> {
    let corrupt = |why: &str| fault(OpErrorKind::Corrupt, format!("{name} is not an OCI archive: {why}"));
    let unread = |error: io::Error| failed(format!("could not read the image {name}: {error}"));
    let mut header = [0; 512];
    loop {
        archive.read_exact(&mut header).map_err(|_| corrupt("it has no index.json"))?;
        let entry = header[..100].split(|b| *b == 0).next().unwrap_or_default();
        let digits = String::from_utf8_lossy(&header[124..136]);
        let size = u64::from_str_radix(digits.trim_matches(['\0', ' ']), 8).ok().filter(|_| !entry.is_empty());
        let size = size.filter(|size| *size < 1 << 40).ok_or_else(|| corrupt("it has no index.json"))?;
        if matches!(entry, b"index.json" | b"./index.json") {
            let mut text = Vec::new();
            archive.take(size.min(1 << 20)).read_to_end(&mut text).map_err(unread)?;
            let index: serde_json::Value =
                serde_json::from_slice(&text).map_err(|_| corrupt("its index.json is not JSON"))?;
            let digest = index.pointer("/manifests/0/digest").and_then(serde_json::Value::as_str);
            return digest.map(ToOwned::to_owned).ok_or_else(|| corrupt("its index.json names no manifest"));
        }
        io::copy(&mut archive.take((size + 511) & !511), &mut io::sink()).map_err(unread)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_gives_reference_digest_and_pin() {
        let text = "REF TYPE DIGEST SIZE PLATFORMS LABELS\n\
            registry.k8s.io/pause:3.10 application/vnd.oci.image.index.v1+json sha256:aa 671.6 KiB linux/amd64 io.cri-containerd.image=managed,io.cri-containerd.pinned=pinned \n\
            sha256:bb application/vnd.oci.image.manifest.v1+json sha256:aa 1.0 MiB linux/amd64 io.cri-containerd.image=managed \n";
        let images = parse(text);
        assert!(images["registry.k8s.io/pause:3.10"].pinned && !images["sha256:bb"].pinned);
        assert_eq!(images["sha256:bb"].digest, "sha256:aa");
    }

    #[test]
    fn an_archive_says_its_manifest_and_anything_else_is_refused() {
        let entry = |name: &str, content: &str| {
            let mut block = vec![0_u8; 512 + content.len().div_ceil(512) * 512];
            block[..name.len()].copy_from_slice(name.as_bytes());
            block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
            block[512..512 + content.len()].copy_from_slice(content.as_bytes());
            block
        };
        let whole = [
            entry("oci-layout", "{}"),
            entry("index.json", r#"{"manifests":[{"digest":"sha256:cafe"}]}"#),
            vec![0; 1024],
        ]
        .concat();
        assert_eq!(manifest(&mut whole.as_slice(), "x").unwrap(), "sha256:cafe");
        for mut bad in [&whole[..700], b"".as_slice(), &[0; 2048], &[0xff; 4096]] {
            assert_eq!(manifest(&mut bad, "x").unwrap_err().kind, OpErrorKind::Corrupt);
        }
    }
}

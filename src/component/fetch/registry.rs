//! An image in a registry: from a tag to the manifest of one architecture and its blobs.
//!
//! In: an image, an architecture. Out: the blobs to download, each by digest and size. Only data covered by a digest is
//! used, and larger images than a control plane can have are refused.

use super::super::error::BundleError;
use super::super::publishers::{Arch, Image};
use super::archive::Descriptor;
use super::error::FetchError;
use super::net::{Net, Place};
use super::order::key;
use super::pins::Pins;
use super::transfer::{Job, Moment, repeated};
use crate::model::names::Digest;
use oci_client::Reference;
use oci_client::manifest::{
    IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE,
};
use serde::Deserialize;

/// The largest manifest or index.
const LARGEST_MANIFEST: usize = 4 << 20;
/// The largest image, compressed.
const LARGEST_IMAGE: u64 = 2 << 30;
/// Runtimes limit the number of layers too.
const MOST_LAYERS: usize = 128;

const MANIFESTS: [&str; 2] = [OCI_IMAGE_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE];
const ALL: [&str; 4] =
    [OCI_IMAGE_INDEX_MEDIA_TYPE, IMAGE_MANIFEST_LIST_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE];

/// An image resolved to its blobs.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The digest that the tag names: of an index, or of the manifest itself.
    pub tagged: Digest,
    /// The manifest of the architecture.
    pub manifest: Descriptor,
    /// Its bytes.
    pub text: Vec<u8>,
    /// Config, then layers.
    pub blobs: Vec<Descriptor>,
    /// The reference in the registry.
    reference: Reference,
}

#[derive(Deserialize)]
struct AnyManifest {
    #[serde(rename = "mediaType")]
    media_type: Option<String>,
    manifests: Option<Vec<Listed>>,
    config: Option<Named>,
    layers: Option<Vec<Named>>,
}

#[derive(Deserialize)]
struct Listed {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "mediaType")]
    media_type: String,
    digest: String,
    size: u64,
}

/// Queries the registry, and compares its answers with the locked digests.
pub async fn resolve(
    net: &Net,
    image: &Image,
    arch: Arch,
    pins: &Pins,
    tell: &(dyn Fn(Moment<'_>) + Sync),
) -> Result<Resolved, BundleError> {
    let registry = net.mirrors.registry(image.registry);
    let repository = format!("{}{}", registry.prefix, image.repository);
    let reference = Reference::with_tag(registry.host, repository, image.tag.clone());
    let key = key(&image.to_string(), arch);
    repeated(net, reference.whole(), tell, || net.log_in(&reference, &key)).await?;
    let (text, tagged) = ask(net, &reference, &image.to_string(), &ALL, tell).await?;
    pins.agrees(&key, tagged, &reference.whole())?;
    let outer = parse(&reference.whole(), &text)?;
    let (text, digest, manifest) = match outer.manifests {
        None => (text, tagged, outer),
        Some(list) => {
            let chosen = choose(&reference, image, arch, &list)?;
            let exact = reference.clone_with_digest(format!("sha256:{}", chosen.hex()));
            let (text, digest) = ask(net, &exact, &image.to_string(), &MANIFESTS, tell).await?;
            if digest != chosen {
                let (expected, found) = (chosen.hex(), digest.hex());
                return Err(FetchError::Checksum { url: exact.whole(), by: reference.whole(), expected, found }.into());
            }
            let manifest = parse(&exact.whole(), &text)?;
            (text, digest, manifest)
        }
    };
    pins.manifest_agrees(&key, digest, &reference.whole())?;
    let blobs = blobs(&reference.whole(), &manifest)?;
    let media_type = manifest.media_type.unwrap_or_else(|| OCI_IMAGE_MEDIA_TYPE.to_owned());
    let manifest = Descriptor { media_type, digest, size: text.len() as u64 };
    Ok(Resolved { tagged, manifest, text, blobs, reference })
}

impl Resolved {
    /// The blobs to download.
    pub fn jobs(&self, what: &str) -> impl Iterator<Item = Job> {
        let reference = &self.reference;
        self.blobs.iter().map(move |blob| Job {
            what: what.to_owned(),
            place: Place::Blob(reference.clone(), format!("sha256:{}", blob.digest.hex())),
            digest: blob.digest,
            by: reference.whole(),
            size: Some(blob.size),
            limit: blob.size,
        })
    }

    /// Total size of the blobs.
    pub fn size(&self) -> u64 {
        self.blobs.iter().map(|blob| blob.size).sum()
    }
}

/// Checks the platform in an image's config; a tag without an index leads to a single manifest for any platform.
pub fn is_for(config: &[u8], image: &Image, arch: Arch) -> Result<(), FetchError> {
    #[derive(Deserialize)]
    struct Config {
        os: String,
        architecture: String,
    }
    let image = image.to_string();
    let found: Config = serde_json::from_slice(config)
        .map_err(|e| FetchError::NotUnderstood { url: image.clone(), why: format!("its config: {e}") })?;
    if found.os == "linux" && found.architecture == arch.name() {
        return Ok(());
    }
    let there = format!("{}/{}", found.os, found.architecture);
    Err(FetchError::Platform { image, architecture: arch.name().to_owned(), there })
}

fn choose(reference: &Reference, image: &Image, arch: Arch, list: &[Listed]) -> Result<Digest, FetchError> {
    let fits = |p: &Platform| p.os == "linux" && p.architecture == arch.name();
    let Some(found) = list.iter().find(|l| l.platform.as_ref().is_some_and(fits)) else {
        let all: Vec<String> =
            list.iter().filter_map(|l| l.platform.as_ref()).map(|p| format!("{}/{}", p.os, p.architecture)).collect();
        let there = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        return Err(FetchError::Platform { image: image.to_string(), architecture: arch.name().to_owned(), there });
    };
    digest(&reference.whole(), &found.digest)
}

/// The bytes of a manifest, and their digest.
async fn ask(
    net: &Net,
    reference: &Reference,
    what: &str,
    types: &[&str],
    tell: &(dyn Fn(Moment<'_>) + Sync),
) -> Result<(Vec<u8>, Digest), BundleError> {
    let url = reference.whole();
    let bytes = repeated(net, url.clone(), tell, || net.manifest(reference, what, types)).await?;
    if bytes.len() > LARGEST_MANIFEST {
        return Err(FetchError::TooLarge { url, limit: LARGEST_MANIFEST as u64 }.into());
    }
    let digest = Digest::of(&bytes);
    Ok((bytes.to_vec(), digest))
}

fn parse(url: &str, text: &[u8]) -> Result<AnyManifest, FetchError> {
    serde_json::from_slice(text)
        .map_err(|e| FetchError::NotUnderstood { url: url.to_owned(), why: format!("its manifest: {e}") })
}

fn digest(url: &str, text: &str) -> Result<Digest, FetchError> {
    let found = text.strip_prefix("sha256:").and_then(|hex| hex.parse().ok());
    found.ok_or_else(|| {
        let shown: String = text.chars().take(80).collect();
        FetchError::NotUnderstood { url: url.to_owned(), why: format!("{shown} is not a SHA-256 digest") }
    })
}

fn blobs(url: &str, manifest: &AnyManifest) -> Result<Vec<Descriptor>, FetchError> {
    let not = |why: &str| FetchError::NotUnderstood { url: url.to_owned(), why: why.to_owned() };
    let config = manifest.config.as_ref().ok_or_else(|| not("its manifest names no config"))?;
    let layers = manifest.layers.as_ref().ok_or_else(|| not("its manifest names no layers"))?;
    if layers.len() > MOST_LAYERS {
        return Err(not("it has more layers than a runtime accepts"));
    }
    if config.size > LARGEST_MANIFEST as u64 {
        return Err(not("its config is too large"));
    }
    if layers.iter().any(|l| l.media_type.contains("foreign") || l.media_type.contains("nondistributable")) {
        return Err(not("some of its layers are not in the registry"));
    }
    let mut all = Vec::with_capacity(layers.len() + 1);
    let mut size = 0_u64;
    for named in std::iter::once(config).chain(layers) {
        size = size.saturating_add(named.size);
        let digest = digest(url, &named.digest)?;
        all.push(Descriptor { media_type: named.media_type.clone(), digest, size: named.size });
    }
    if size > LARGEST_IMAGE {
        return Err(FetchError::TooLarge { url: url.to_owned(), limit: LARGEST_IMAGE });
    }
    Ok(all)
}

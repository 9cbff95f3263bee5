//! An image as a file: an OCI archive as `ctr images import` takes it.
//!
//! In: the manifest, exactly as the registry sent it, and the files of its blobs. Out: a reproducible tar, the same as
//! `components/image` writes for the same blobs. Layers stay as they were published, so that the image on a host has
//! the digest that its publisher signed.

use super::super::tar;
use crate::model::names::Digest;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::PathBuf;

/// A blob by its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// Media type.
    pub media_type: String,
    /// SHA-256.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
}

/// The content of an archive.
#[derive(Debug, Clone)]
pub struct Archive {
    /// The image's reference in containerd.
    pub name: String,
    /// Descriptor of the manifest.
    pub manifest: Descriptor,
    /// The manifest itself.
    pub text: Vec<u8>,
    /// Config and layers with their files, in the manifest's order.
    pub blobs: Vec<(Descriptor, PathBuf)>,
}

#[derive(Serialize)]
struct Named<'a> {
    #[serde(rename = "mediaType")]
    media_type: &'a str,
    digest: String,
    size: u64,
    annotations: BTreeMap<&'static str, &'a str>,
}

#[derive(Serialize)]
struct Index<'a> {
    manifests: [Named<'a>; 1],
    #[serde(rename = "mediaType")]
    media_type: &'static str,
    #[serde(rename = "schemaVersion")]
    schema_version: u32,
}

impl Archive {
    fn index(&self) -> io::Result<Vec<u8>> {
        let tag = self.name.rsplit(':').next().unwrap_or(&self.name);
        let annotations = BTreeMap::from([
            ("io.containerd.image.name", self.name.as_str()),
            ("org.opencontainers.image.ref.name", tag),
        ]);
        let named = Named {
            media_type: &self.manifest.media_type,
            digest: format!("sha256:{}", self.manifest.digest.hex()),
            size: self.manifest.size,
            annotations,
        };
        let media_type = "application/vnd.oci.image.index.v1+json";
        Ok(serde_json::to_vec(&Index { manifests: [named], media_type, schema_version: 2 })?)
    }

    /// The tar and its size.
    pub fn read(&self) -> io::Result<(Box<dyn Read>, u64)> {
        let place = |descriptor: &Descriptor| format!("blobs/sha256/{}", descriptor.digest.hex());
        let folder = |name: &str| -> io::Result<Box<dyn Read>> {
            let header = tar::header(name, tar::Entry::Folder).ok_or(io::ErrorKind::InvalidInput)?;
            Ok(Box::new(Cursor::new(header)))
        };
        let memory = |name: &str, content: Vec<u8>| -> io::Result<(Box<dyn Read>, u64)> {
            let size = content.len() as u64;
            Ok((tar::entry(name, size, Cursor::new(content))?, tar::BLOCK + size + tar::padding(size)))
        };
        let mut pieces = vec![
            memory("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec())?,
            memory("index.json", self.index()?)?,
            (folder("blobs/")?, tar::BLOCK),
            (folder("blobs/sha256/")?, tar::BLOCK),
            memory(&place(&self.manifest), self.text.clone())?,
        ];
        // An image can have the same layer more than once, such as an empty one.
        let mut entered = BTreeSet::new();
        for (descriptor, path) in &self.blobs {
            if entered.insert(descriptor.digest) {
                let size = descriptor.size;
                let content = Whole { file: File::open(path)?, left: size };
                pieces.push((tar::entry(&place(descriptor), size, content)?, tar::BLOCK + size + tar::padding(size)));
            }
        }
        pieces.push((Box::new(Cursor::new(tar::END)), tar::END.len() as u64));
        let total = pieces.iter().map(|(_, size)| size).sum();
        let empty: Box<dyn Read> = Box::new(io::empty());
        let all = pieces.into_iter().fold(empty, |all, (piece, _)| Box::new(all.chain(piece)));
        Ok((all, total))
    }
}

/// A file that must have exactly the announced size.
struct Whole {
    file: File,
    left: u64,
}

impl Read for Whole {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        if count == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a downloaded layer became shorter"));
        }
        self.left = self.left.saturating_sub(count as u64);
        Ok(count)
    }
}

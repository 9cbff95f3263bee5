//! Lays out built components as their publishers do: archives with checksums on a web server, images with an index of
//! several architectures in a registry.

use crate::registry::{Archive, Registry};
use crate::server::Server;
use flate2::{Compression, write::GzEncoder};
use hactl::component::{self, Order};
use hactl::model::names::Digest;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn sha256(content: &[u8]) -> String {
    Digest::of(content).hex()
}

fn rows(dist: &Path) -> Vec<Value> {
    let path = dist.join("components.json");
    let text = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; `make bundle` makes it", path.display()));
    let all: Value = serde_json::from_slice(&text).unwrap();
    all["components"].as_array().unwrap().clone()
}

/// The Kubernetes version of a directory of components.
pub fn kubernetes(dist: &Path) -> String {
    rows(dist).iter().find(|r| r["name"] == "kubelet").unwrap()["version"].as_str().unwrap().to_owned()
}

/// Built components by name.
pub struct Layout {
    binaries: BTreeMap<String, PathBuf>,
    images: BTreeMap<String, PathBuf>,
    kubernetes: String,
}

impl Layout {
    pub fn of(dist: &Path) -> Self {
        let of = |kind: &str| {
            let fits = rows(dist).into_iter().filter(|r| r["kind"] == kind);
            let pair = |r: Value| (r["name"].as_str().unwrap().to_owned(), dist.join(r["path"].as_str().unwrap()));
            fits.map(pair).collect()
        };
        Self { binaries: of("binary"), images: of("image"), kubernetes: kubernetes(dist) }
    }

    fn binary(&self, name: &str) -> Vec<u8> {
        fs::read(&self.binaries[name]).unwrap()
    }

    /// A file of one binary, or an archive of several, each under its member's path.
    fn file(&self, url: &str) -> Vec<u8> {
        let archive = |members: &[(String, &str)]| {
            let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
            for (path, name) in members {
                let content = self.binary(name);
                let mut header = tar::Header::new_gnu();
                header.set_size(content.len() as u64);
                header.set_mode(0o755);
                tar.append_data(&mut header, path, content.as_slice()).unwrap();
            }
            tar.into_inner().unwrap().finish().unwrap()
        };
        let name = url.rsplit('/').next().unwrap();
        if let Some(folder) = name.strip_suffix(".tar.gz").filter(|n| n.starts_with("etcd-")) {
            return archive(&["etcd", "etcdctl", "etcdutl"].map(|n| (format!("{folder}/{n}"), n)));
        }
        if name.starts_with("containerd-static-") {
            return archive(&["containerd", "containerd-shim-runc-v2", "ctr"].map(|n| (format!("bin/{n}"), n)));
        }
        if name.starts_with("cni-plugins-") {
            let plugins = ["bridge", "host-local", "loopback", "portmap", "ptp"];
            let names = plugins.map(|n| (n, format!("cni-{n}")));
            return archive(&names.each_ref().map(|(n, component)| (format!("./{n}"), component.as_str())));
        }
        if name.starts_with("cni-plugin-flannel-") {
            return archive(&[("flannel-amd64".to_owned(), "cni-flannel")]);
        }
        self.binary(name.strip_suffix(".amd64").unwrap_or(name))
    }

    /// Puts everything that hactl downloads onto the server and into the registry.
    pub fn publish(&self, server: &Server, registry: &Registry) {
        let nowhere = std::env::temp_dir().join("hactl-publishers-nothing");
        let mut sums: BTreeMap<String, String> = BTreeMap::new();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        for prospect in component::prospect(&nowhere, &Order::of(&self.kubernetes)).unwrap() {
            let Some(rest) = prospect.source.strip_prefix("https://") else {
                let reference = prospect.source.split(' ').next().unwrap();
                let name = prospect.components[0].split(' ').next().unwrap();
                runtime.block_on(push(registry, reference, &self.images[name]));
                continue;
            };
            let path = format!("/{}", rest.split_once('/').unwrap().1);
            let (folder, name) = path.rsplit_once('/').unwrap();
            let content = self.file(&path);
            let line = format!("{}  {name}\n", sha256(&content));
            let beside = match name {
                _ if name.starts_with("etcd-") => format!("{folder}/SHA256SUMS"),
                _ if name.starts_with("runc.") => format!("{folder}/runc.sha256sum"),
                _ if name.starts_with("containerd-") => format!("{path}.sha256sum"),
                _ => format!("{path}.sha256"),
            };
            sums.entry(beside).or_default().push_str(&line);
            server.put(&path, content);
        }
        for (path, text) in sums {
            server.put(&path, text);
        }
    }
}

/// Pushes an image as its publisher does: an index of this image and of one for another architecture.
async fn push(registry: &Registry, reference: &str, archive: &Path) {
    let (host, rest) = reference.split_once('/').unwrap();
    let (repository, tag) = rest.rsplit_once(':').unwrap();
    let repository = if host == "ghcr.io" { format!("through/ghcr/{repository}") } else { repository.to_owned() };
    let (client, target) = registry.client(&repository, tag).await;

    let archive = Archive::open(archive);
    let manifest = archive.names().remove(0).1;
    for digest in archive.parts(&manifest) {
        client.push_blob(&target, archive.blob(&digest), &digest).await.unwrap();
    }
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let mut listed = Vec::new();
    let foreign =
        json!({"os": "linux", "architecture": "arm64", "rootfs": {"type": "layers", "diff_ids": []}}).to_string();
    let config_digest = format!("sha256:{}", sha256(foreign.as_bytes()));
    client.push_blob(&target, foreign.clone().into_bytes(), &config_digest).await.unwrap();
    let other = json!({"schemaVersion": 2, "mediaType": kind, "layers": [], "config": {
        "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config_digest, "size": foreign.len()}});
    for (text, arch) in [(other.to_string().into_bytes(), "arm64"), (archive.blob(&manifest), "amd64")] {
        let digest = format!("sha256:{}", sha256(&text));
        listed.push(json!({"mediaType": kind, "digest": digest, "size": text.len(),
            "platform": {"os": "linux", "architecture": arch}}));
        client.push_manifest_raw(&target.clone_with_digest(digest), text, kind.parse().unwrap()).await.unwrap();
    }
    let kind = "application/vnd.oci.image.index.v1+json";
    let index = json!({"schemaVersion": 2, "mediaType": kind, "manifests": listed}).to_string();
    client.push_manifest_raw(&target, index.into_bytes(), kind.parse().unwrap()).await.unwrap();
}

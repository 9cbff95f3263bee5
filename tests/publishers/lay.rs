//! Lays out built components as their publishers do: archives with checksums on a web server, images with an index of
//! several architectures in a registry.

use crate::server::Server;
use flate2::{Compression, write::GzEncoder};
use hactl::component::{self, Order};
use hactl::model::names::Digest;
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::{Reference, RegistryOperation};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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
                runtime.block_on(registry.push(reference, &self.images[name]));
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

/// A registry on this machine, stopped when this value is dropped.
pub struct Registry {
    child: Child,
    at: String,
}

impl Registry {
    pub fn start(root: &Path) -> Self {
        let program = std::env::var("REGISTRY").expect("REGISTRY names the registry's binary: `make test` builds it");
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let config = json!({"version": "0.1", "log": {"level": "error", "accesslog": {"disabled": true}},
            "storage": {"filesystem": {"rootdirectory": root.join("registry")}}, "http": {"addr": at}});
        let file = root.join("registry.yml");
        // JSON is YAML.
        fs::write(&file, config.to_string()).unwrap();
        let mut command = Command::new(&program);
        command.arg("serve").arg(&file).env("OTEL_TRACES_EXPORTER", "none");
        let log = fs::File::create(root.join("registry.log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let mut child = child.unwrap_or_else(|e| panic!("{program}: {e}"));
        let begun = Instant::now();
        while std::net::TcpStream::connect(&at).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "{}", fs::read_to_string(root.join("registry.log")).unwrap());
            assert!(begun.elapsed() < Duration::from_secs(20), "the registry does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, at }
    }
    pub fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    /// Pushes an image as its publisher does: an index of this image and of one for another architecture.
    async fn push(&self, reference: &str, archive: &Path) {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let (host, rest) = reference.split_once('/').unwrap();
        let (repository, tag) = rest.rsplit_once(':').unwrap();
        let repository = if host == "ghcr.io" { format!("through/ghcr/{repository}") } else { repository.to_owned() };
        let target = Reference::with_tag(self.at.clone(), repository, tag.to_owned());
        let config =
            ClientConfig { protocol: ClientProtocol::Http, use_monolithic_push: true, ..ClientConfig::default() };
        let client = Client::try_from(config).unwrap();
        client.auth(&target, &RegistryAuth::Anonymous, RegistryOperation::Push).await.unwrap();

        let entries = entries(archive);
        let index: Value = serde_json::from_slice(&entries["index.json"]).unwrap();
        let manifest_digest = index["manifests"][0]["digest"].as_str().unwrap();
        let blob = |digest: &str| entries[&format!("blobs/sha256/{}", digest.strip_prefix("sha256:").unwrap())].clone();
        let text = blob(manifest_digest);
        let manifest: Value = serde_json::from_slice(&text).unwrap();
        for descriptor in std::iter::once(&manifest["config"]).chain(manifest["layers"].as_array().unwrap()) {
            let digest = descriptor["digest"].as_str().unwrap();
            client.push_blob(&target, blob(digest), digest).await.unwrap();
        }
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let mut listed = Vec::new();
        let foreign =
            json!({"os": "linux", "architecture": "arm64", "rootfs": {"type": "layers", "diff_ids": []}}).to_string();
        let config_digest = format!("sha256:{}", sha256(foreign.as_bytes()));
        client.push_blob(&target, foreign.clone().into_bytes(), &config_digest).await.unwrap();
        let other = json!({"schemaVersion": 2, "mediaType": kind, "layers": [], "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config_digest, "size": foreign.len()}});
        for (text, arch) in [(other.to_string().into_bytes(), "arm64"), (text, "amd64")] {
            let digest = format!("sha256:{}", sha256(&text));
            listed.push(json!({"mediaType": kind, "digest": digest, "size": text.len(),
                "platform": {"os": "linux", "architecture": arch}}));
            client.push_manifest_raw(&target.clone_with_digest(digest), text, kind.parse().unwrap()).await.unwrap();
        }
        let kind = "application/vnd.oci.image.index.v1+json";
        let index = json!({"schemaVersion": 2, "mediaType": kind, "manifests": listed}).to_string();
        client.push_manifest_raw(&target, index.into_bytes(), kind.parse().unwrap()).await.unwrap();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn entries(archive: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut tar = tar::Archive::new(fs::File::open(archive).unwrap());
    let read = |entry: std::io::Result<tar::Entry<'_, fs::File>>| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (entry.path().unwrap().to_string_lossy().into_owned(), content)
    };
    tar.entries().unwrap().map(read).collect()
}

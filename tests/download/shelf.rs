//! All components of a Kubernetes version, laid out as the publishers do: small, and different in every byte.

use crate::server::Server;
use flate2::{Compression, write::GzEncoder};
use hactl::component::{self, BundleError, Downloaded, Lock, Mirror, Mirrors, Moment, Order, Patience, Source};
use serde_json::json;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const VERSION: &str = "1.36.3";
/// Large enough to be cut in the middle.
const SIZE: usize = 150_000;

/// Bytes that are unique to this name and do not compress.
pub fn noise(name: &str, size: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(size + 32);
    let mut n = 0_u64;
    while all.len() < size {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, format!("{name} {n}").as_bytes());
        all.extend_from_slice(digest.as_ref());
        n += 1;
    }
    all.truncate(size);
    all
}

pub fn sha256(content: &[u8]) -> String {
    hactl::model::names::Digest::of(content).hex()
}

pub fn program(name: &str) -> Vec<u8> {
    noise(&format!("program {name}"), SIZE)
}

/// A gzip-compressed tar of programs, each under its path.
pub fn archive(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        tar.append_data(&mut header, path, content.as_slice()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// One server that stands for all publishers, and a store.
pub struct World {
    pub server: Server,
    root: tempfile::TempDir,
}

const K8S: &str = "/k8s";
const GITHUB: &str = "/github";

impl World {
    /// Everything is published.
    pub fn new() -> Self {
        let world = Self { server: Server::start(), root: tempfile::tempdir().unwrap() };
        world.publish();
        world
    }
    pub fn store(&self) -> PathBuf {
        self.root.path().join("bundles")
    }
    pub fn root(&self) -> &Path {
        self.root.path()
    }
    /// The mirrors, as values of the flag.
    pub fn mirrors(&self) -> Vec<String> {
        let url = self.server.url();
        vec![
            format!("dl.k8s.io={url}{K8S}"),
            format!("github.com={url}{GITHUB}"),
            format!("registry.k8s.io={url}"),
            format!("ghcr.io={url}/ghcr"),
        ]
    }
    pub fn order(&self) -> Order {
        Order {
            mirrors: Mirrors::new(self.mirrors().iter().map(|m| m.parse::<Mirror>().unwrap())),
            timeout: Patience {
                connect: Duration::from_secs(5),
                unreachable: Duration::from_millis(400),
                attempts: 3,
                pause: Duration::from_millis(5),
            },
            ..Order::of(VERSION)
        }
    }
    fn beside(&self, path: &str, suffix: &str, content: Vec<u8>) {
        let name = path.rsplit('/').next().unwrap();
        self.server.put(&format!("{path}{suffix}"), format!("{}  {name}\n", sha256(&content)));
        self.server.put(path, content);
    }
    fn publish(&self) {
        for arch in ["amd64", "arm64"] {
            let of = |name: &str| program(&format!("{name} {arch}"));
            for name in ["kubelet", "kubectl"] {
                let path = format!("{K8S}/release/v{VERSION}/bin/linux/{arch}/{name}");
                self.server.put(&format!("{path}.sha256"), sha256(&of(name)));
                self.server.put(&path, of(name));
            }
            let etcd = format!("etcd-v3.6.16-linux-{arch}");
            let members: Vec<(String, Vec<u8>)> =
                ["README.md", "etcd", "etcdctl", "etcdutl"].iter().map(|n| (format!("{etcd}/{n}"), of(n))).collect();
            let content = archive(&members.iter().map(|(p, c)| (p.as_str(), c.clone())).collect::<Vec<_>>());
            let release = format!("{GITHUB}/etcd-io/etcd/releases/download/v3.6.16");
            let digests = self.server.state().files.get(&format!("{release}/SHA256SUMS")).cloned().unwrap_or_default();
            let line = format!("{}  {etcd}.tar.gz\n", sha256(&content));
            self.server.put(&format!("{release}/SHA256SUMS"), [digests, line.into_bytes()].concat());
            self.server.put(&format!("{release}/{etcd}.tar.gz"), content);

            let programs = ["containerd", "containerd-shim-runc-v2", "containerd-stress", "ctr"];
            let members: Vec<(String, Vec<u8>)> = programs.iter().map(|n| (format!("bin/{n}"), of(n))).collect();
            let content = archive(&members.iter().map(|(p, c)| (p.as_str(), c.clone())).collect::<Vec<_>>());
            let release = format!("{GITHUB}/containerd/containerd/releases/download/v2.3.7");
            self.beside(&format!("{release}/containerd-static-2.3.7-linux-{arch}.tar.gz"), ".sha256sum", content);

            let release = format!("{GITHUB}/opencontainers/runc/releases/download/v1.4.3");
            let before = self.server.state().files.get(&format!("{release}/runc.sha256sum")).cloned();
            let before = before.unwrap_or_else(|| b"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n".to_vec());
            let line = format!("{}  runc.{arch}\n", sha256(&of("runc")));
            self.server.put(&format!("{release}/runc.sha256sum"), [before, line.into_bytes()].concat());
            self.server.put(&format!("{release}/runc.{arch}"), of("runc"));

            let plugins = ["LICENSE", "bandwidth", "bridge", "host-local", "loopback", "portmap", "ptp"];
            let members: Vec<(String, Vec<u8>)> = plugins.iter().map(|n| (format!("./{n}"), of(n))).collect();
            let content = archive(&members.iter().map(|(p, c)| (p.as_str(), c.clone())).collect::<Vec<_>>());
            let release = format!("{GITHUB}/containernetworking/plugins/releases/download/v1.9.1");
            self.beside(&format!("{release}/cni-plugins-linux-{arch}-v1.9.1.tgz"), ".sha256", content);

            let content = archive(&[(&format!("flannel-{arch}"), of("flannel"))]);
            let release = format!("{GITHUB}/flannel-io/cni-plugin/releases/download/v1.9.1-flannel1");
            self.beside(&format!("{release}/cni-plugin-flannel-linux-{arch}-v1.9.1.tgz"), ".sha256", content);
        }
        for (repository, tag) in IMAGES {
            self.publish_image(repository, tag, &["amd64", "arm64"]);
        }
    }
    /// Publishes an index of several architectures with its manifests and blobs. Returns the digest of the index.
    pub fn publish_image(&self, repository: &str, tag: &str, architectures: &[&str]) -> String {
        let mut listed = vec![json!({"mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "digest": format!("sha256:{}", sha256(b"windows")), "size": 7,
            "platform": {"os": "windows", "architecture": "amd64", "os.version": "10.0.17763"}})];
        let blob = |content: Vec<u8>| {
            let digest = format!("sha256:{}", sha256(&content));
            let size = content.len();
            self.server.put(&format!("/v2/{repository}/blobs/{digest}"), content);
            (digest, size)
        };
        for arch in architectures {
            // The first layer is shared by all images, as those of Kubernetes share their base.
            let mut layers = Vec::new();
            for name in ["base".to_owned(), format!("image {repository} {tag} {arch}")] {
                let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
                gz.write_all(&noise(&name, SIZE)).unwrap();
                let (digest, size) = blob(gz.finish().unwrap());
                layers.push(json!({"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", "digest": digest, "size": size}));
            }
            let config = json!({"os": "linux", "architecture": arch, "rootfs": {"type": "layers"}}).to_string();
            let (digest, size) = blob(config.into_bytes());
            let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
                "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": digest, "size": size},
                "layers": layers})
            .to_string();
            let digest = format!("sha256:{}", sha256(manifest.as_bytes()));
            listed.push(json!({"mediaType": "application/vnd.docker.distribution.manifest.v2+json", "digest": digest,
                "size": manifest.len(), "platform": {"os": "linux", "architecture": arch}}));
            self.server.put(&format!("/v2/{repository}/manifests/{digest}"), manifest);
        }
        let index =
            json!({"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.list.v2+json",
            "manifests": listed})
            .to_string();
        self.server.put(&format!("/v2/{repository}/manifests/{tag}"), index.clone());
        sha256(index.as_bytes())
    }
}

/// The repositories of the server, with their tags.
pub const IMAGES: [(&str, &str); 7] = [
    ("pause", "3.10.1"),
    ("kube-apiserver", "v1.36.3"),
    ("kube-controller-manager", "v1.36.3"),
    ("kube-scheduler", "v1.36.3"),
    ("kube-proxy", "v1.36.3"),
    ("coredns/coredns", "v1.14.6"),
    ("ghcr/flannel-io/flannel", "v0.28.4"),
];

/// The result of a build.
#[derive(Debug)]
pub struct Got {
    pub lock: Lock,
    pub sources: Vec<Source>,
    pub again: Vec<String>,
}

pub fn download(store: &Path, order: &Order) -> (Result<Downloaded, BundleError>, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let again = std::sync::Mutex::new(Vec::new());
    let report = |moment: Moment<'_>| {
        if let Moment::Again { url, why, .. } = moment {
            again.lock().unwrap().push(format!("{url}: {why}"));
        }
    };
    let result = runtime.block_on(component::download(store, order, &report));
    (result, again.into_inner().unwrap())
}

pub fn build(store: &Path, order: &Order) -> Result<Got, BundleError> {
    let (downloaded, again) = download(store, order);
    let downloaded = downloaded?;
    let sources = downloaded.sources.clone();
    let lock = downloaded.pack(&|_| {})?.locks.remove(0);
    Ok(Got { lock, sources, again })
}

impl World {
    pub fn build(&self) -> Got {
        build(&self.store(), &self.order()).unwrap()
    }
    pub fn refusal(&self) -> BundleError {
        build(&self.store(), &self.order()).map(|_| ()).unwrap_err()
    }
    /// The sizes of partial files.
    pub fn parts(&self) -> Vec<u64> {
        let Ok(entries) = std::fs::read_dir(self.store().join("downloads")) else { return Vec::new() };
        let parts = entries.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "part"));
        // A file that is complete may be renamed between the two calls.
        parts.filter_map(|p| p.metadata().ok()).map(|of| of.len()).collect()
    }
}

//! A registry on this machine: the reference implementation on a folder, stopped when its value is dropped.
//!
//! In: a folder, and archives as `components/image` writes them. Out: a registry over plain HTTP, and a client for it.

use super::served::{Server, free};
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::{Reference, RegistryOperation};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// A running registry.
pub struct Registry {
    _server: Server,
    at: SocketAddr,
}

impl Registry {
    /// Starts it with its files below `root`, on a free port of this address.
    pub fn start(root: &Path, address: IpAddr) -> Self {
        let program = std::env::var("REGISTRY").expect("REGISTRY names the registry's binary, as the Makefile does");
        let at = free(address);
        let config = json!({"version": "0.1", "log": {"level": "error", "accesslog": {"disabled": true}},
            "storage": {"filesystem": {"rootdirectory": root.join("registry")}}, "http": {"addr": at.to_string()}});
        let file = root.join("registry.yml");
        // JSON is YAML.
        fs::write(&file, config.to_string()).expect("writable");
        let mut command = Command::new(program);
        command.arg("serve").arg(&file).env("OTEL_TRACES_EXPORTER", "none");
        Self { _server: Server::start(command, at, &root.join("registry.log")), at }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    /// A client that may push to a repository, and the name of an image there.
    pub async fn client(&self, repository: &str, tag: &str) -> (Client, Reference) {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let target = Reference::with_tag(self.at.to_string(), repository.to_owned(), tag.to_owned());
        let config =
            ClientConfig { protocol: ClientProtocol::Http, use_monolithic_push: true, ..ClientConfig::default() };
        let client = Client::try_from(config).expect("a client");
        client.auth(&target, &RegistryAuth::Anonymous, RegistryOperation::Push).await.expect("anybody may push");
        (client, target)
    }
}

/// An image as a file: its parts by path.
pub struct Archive(BTreeMap<String, Vec<u8>>);

impl Archive {
    pub fn open(path: &Path) -> Self {
        let file = fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut tar = tar::Archive::new(file);
        let read = |entry: std::io::Result<tar::Entry<'_, fs::File>>| {
            let mut entry = entry.expect("a readable archive");
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("a readable archive");
            (entry.path().expect("a path").to_string_lossy().into_owned(), content)
        };
        Self(tar.entries().expect("a readable archive").map(read).collect())
    }

    /// Each name of the image, with the digest of its manifest.
    pub fn names(&self) -> Vec<(String, String)> {
        let index: Value = serde_json::from_slice(&self.0["index.json"]).expect("an OCI layout");
        let text = |value: &Value| value.as_str().expect("an index of an image").to_owned();
        let one = |entry: &Value| (text(&entry["annotations"]["io.containerd.image.name"]), text(&entry["digest"]));
        index["manifests"].as_array().expect("manifests").iter().map(one).collect()
    }

    /// The digests of a manifest's config and layers.
    pub fn parts(&self, manifest: &str) -> Vec<String> {
        let manifest: Value = serde_json::from_slice(&self.blob(manifest)).expect("a manifest");
        let layers = manifest["layers"].as_array().expect("layers");
        let digest = |part: &Value| part["digest"].as_str().expect("a digest").to_owned();
        std::iter::once(&manifest["config"]).chain(layers).map(digest).collect()
    }

    pub fn blob(&self, digest: &str) -> Vec<u8> {
        let hex = digest.strip_prefix("sha256:").expect("a SHA-256 digest");
        self.0[&format!("blobs/sha256/{hex}")].clone()
    }
}

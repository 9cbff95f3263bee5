//! The administrator of a lab's cluster: a client that keeps its connections, for many requests and for watches.

use base64::Engine as _;
use hactl::kube::{Client, ObjectRef};
use hactl::model::secret::Secret;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// A client and what runs its requests.
pub struct Admin {
    pub client: Client,
    pub runtime: Runtime,
}

impl Admin {
    pub fn new(kubeconfig: &Path) -> Self {
        let text = std::fs::read_to_string(kubeconfig).expect("the kubeconfig exists");
        let config: Value = serde_saphyr::from_str(&text).expect("a kubeconfig is YAML");
        let text = |path: &str| config.pointer(path).and_then(Value::as_str).expect("the kubeconfig has it");
        let pem = |path: &str| {
            let data = base64::engine::general_purpose::STANDARD.decode(text(path)).expect("base64");
            String::from_utf8(data).expect("PEM is text")
        };
        let key = Secret::new(pem("/users/0/user/client-key-data"));
        let ca = pem("/clusters/0/cluster/certificate-authority-data");
        let certificate = pem("/users/0/user/client-certificate-data");
        let client = Client::direct(text("/clusters/0/cluster/server"), &ca, &certificate, &key).expect("a client");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Self { client, runtime: runtime.expect("a runtime") }
    }

    /// Whether the API server answers.
    pub fn is_served(&self) -> bool {
        let until = Instant::now() + Duration::from_secs(5);
        let namespace = ObjectRef::new("v1", "Namespace", None, "default");
        self.runtime.block_on(self.client.get(&namespace, until)).is_ok()
    }
}

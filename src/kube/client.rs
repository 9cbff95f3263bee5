//! A small API client: explicit TLS, a deadline for every call, retries only after known transient errors.
//!
//! It reaches an API server directly or through a local forward of the SSH connection, and trusts only the cluster CA.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

use super::server::{Server, builder, tls};
use super::{KubeError, kinds};
use crate::model::causes::causes;
use crate::model::names::HostName;
use crate::model::secret::Secret;

/// hactl's field manager for server-side apply.
pub const FIELD_MANAGER: &str = "hactl";
/// Pause before a retry after a transient error, and between two polls while waiting.
const PAUSE: Duration = Duration::from_millis(250);
/// Longer error messages are cut.
pub(super) const LONGEST_MESSAGE: usize = 600;

/// Group and version, and kind, to: plural, and whether the kind is namespaced.
type Discovered = BTreeMap<(String, String), (String, bool)>;

/// The media type of bodies.
const JSON: &str = "application/json";
/// The media type of a server-side apply.
const APPLY: &str = "application/apply-patch+yaml";
/// The media type of a merge patch (RFC 7396).
pub(super) const MERGE: &str = "application/merge-patch+json";
/// The media type of a patch that merges lists by their keys.
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A request to an API server.
#[derive(Debug, Clone)]
pub struct Request {
    /// GET, PATCH and so on.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// What kind of answer is asked for, where it is not the usual one.
    pub accept: Option<&'static str>,
    /// The media type of the body.
    pub media: &'static str,
    /// The body; empty: none.
    pub body: Vec<u8>,
}

impl Request {
    pub(super) fn get(path: &str) -> Self {
        Self { method: Method::GET, path: path.to_owned(), accept: None, media: JSON, body: Vec::new() }
    }
    pub(super) fn with(method: Method, path: &str, body: &Value) -> Self {
        Self { method, body: body.to_string().into_bytes(), ..Self::get(path) }
    }
}

/// An answer of an API server.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// After how many seconds the request should be sent again, if the server says so.
    pub retry_after_s: Option<u64>,
    /// The body.
    pub body: Vec<u8>,
}

/// The body of an answer, in the pieces that arrive.
pub type Chunks = BoxStream<'static, Result<Vec<u8>, String>>;

/// What answers requests: an API server, or a simulated one.
pub trait Http: Send + Sync {
    /// The whole answer, or why there is none.
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, String>>;
    /// The status of an answer, and its body while it arrives: a watch.
    fn stream(&self, request: Request) -> BoxFuture<'_, Result<(u16, Chunks), String>>;
}

/// A connection to one API server.
#[derive(Clone)]
pub struct Client {
    http: Arc<dyn Http>,
    discovered: Arc<Mutex<Discovered>>,
}

/// Identifies an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRef {
    /// Group and version, such as `apps/v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; `None` for a cluster-scoped object.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl ObjectRef {
    /// Names an object.
    pub fn new(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        let (namespace, [api_version, kind, name]) =
            (namespace.map(str::to_owned), [api_version, kind, name].map(str::to_owned));
        Self { api_version, kind, namespace, name }
    }
    /// The Node of a host.
    pub fn node(host: &HostName) -> Self {
        Self::new("v1", "Node", None, host.as_str())
    }
    /// The reference of an object, from its own fields.
    pub fn of(object: &Value) -> Result<Self, KubeError> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
        Ok(Self {
            api_version: text("/apiVersion").ok_or(KubeError::Nameless { field: "apiVersion" })?.to_owned(),
            kind: text("/kind").ok_or(KubeError::Nameless { field: "kind" })?.to_owned(),
            namespace: text("/metadata/namespace").map(str::to_owned),
            name: text("/metadata/name").ok_or(KubeError::Nameless { field: "metadata.name" })?.to_owned(),
        })
    }
}

impl std::fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// Reads a file of credentials or settings.
pub(super) fn read(path: &Path) -> Result<String, KubeError> {
    std::fs::read_to_string(path).map_err(|source| KubeError::File { path: path.display().to_string(), source })
}

impl Client {
    /// Connects through a local forward at `at`. `server_name` is a DNS name in the API server's certificate, such as
    /// `kubernetes`; an IP address does not work, because the client would connect to it directly.
    pub fn new(
        at: SocketAddr,
        server_name: &str,
        ca_pem: &str,
        cert_pem: &str,
        key_pem: &Secret<String>,
    ) -> Result<Self, KubeError> {
        if server_name.parse::<std::net::IpAddr>().is_ok() {
            return Err(KubeError::Credentials { why: format!("{server_name} is an IP address, not a DNS name") });
        }
        let base = format!("https://{server_name}:{}", at.port());
        let tls = tls(ca_pem, cert_pem, key_pem)?;
        let server_name = server_name.to_owned();
        Self::at(base, move || builder(&tls).resolve(&server_name, at).build())
    }

    /// Directly at `server`, a URL without a path.
    pub fn direct(server: &str, ca_pem: &str, cert_pem: &str, key_pem: &Secret<String>) -> Result<Self, KubeError> {
        let tls = tls(ca_pem, cert_pem, key_pem)?;
        Self::at(server.trim_end_matches('/').to_owned(), move || builder(&tls).build())
    }

    /// The same, with certificates and a key in PEM files.
    pub fn with_files(server: &str, [ca, cert, key]: [&Path; 3]) -> Result<Self, KubeError> {
        Self::direct(server, &read(ca)?, &read(cert)?, &Secret::new(read(key)?))
    }

    fn at(
        base: String,
        connect: impl Fn() -> reqwest::Result<reqwest::Client> + Send + Sync + 'static,
    ) -> Result<Self, KubeError> {
        let server = Server::new(base, Box::new(connect));
        Ok(Self::over(Arc::new(server.map_err(|error| KubeError::Credentials { why: causes(&error) })?)))
    }

    /// Over anything that answers requests as an API server does.
    pub fn over(http: Arc<dyn Http>) -> Self {
        Self { http, discovered: Arc::default() }
    }

    /// Reads an object; `None` when it does not exist.
    pub async fn get(&self, object: &ObjectRef, until: Instant) -> Result<Option<Value>, KubeError> {
        let what = format!("get {object}");
        let path = self.path(object, until).await?;
        absent(self.call(&what, until, || Request::get(&path)).await)
    }

    /// Like [`Client::get`], for a kind that the API server may not serve; then the object does not exist either.
    pub async fn find(&self, object: &ObjectRef, until: Instant) -> Result<Option<Value>, KubeError> {
        let (api_version, kind) = (&object.api_version, &object.kind);
        if kinds::known(api_version, kind).is_none() && self.folder(api_version, kind, until).await?.is_none() {
            return Ok(None);
        }
        self.get(object, until).await
    }

    /// The path that lists a kind in all namespaces; `None` if the API server does not serve the kind.
    pub async fn folder(&self, api_version: &str, kind: &str, until: Instant) -> Result<Option<String>, KubeError> {
        let object = ObjectRef::new(api_version, kind, None, "any");
        match self.discover(&object, until, Duration::ZERO).await {
            Ok((plural, _)) => Ok(Some(format!("{}/{plural}", kinds::root(api_version)))),
            Err(KubeError::UnknownKind { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Every namespaced kind whose objects can be listed and deleted: group and version, kind, plural.
    pub async fn namespaced_kinds(&self, until: Instant) -> Result<Vec<(String, String, String)>, KubeError> {
        let groups = self.raw(Method::GET, "/apis", until).await?;
        let mut versions = vec!["v1".to_owned()];
        let preferred =
            |group: &Value| group.pointer("/preferredVersion/groupVersion").and_then(Value::as_str).map(str::to_owned);
        versions.extend(groups.get("groups").and_then(Value::as_array).into_iter().flatten().filter_map(preferred));
        let mut found = Vec::new();
        for version in versions {
            let answer = self.raw(Method::GET, &kinds::root(&version), until).await?;
            for resource in answer.get("resources").and_then(Value::as_array).into_iter().flatten() {
                let text = |field: &str| resource.get(field).and_then(Value::as_str).unwrap_or_default();
                let verbs = resource.get("verbs").and_then(Value::as_array);
                let can = |verb: &str| verbs.is_some_and(|all| all.iter().any(|v| v == verb));
                if resource["namespaced"] == true && !text("name").contains('/') && can("list") && can("delete") {
                    found.push((version.clone(), text("kind").to_owned(), text("name").to_owned()));
                }
            }
        }
        Ok(found)
    }

    /// Server-side apply: creates the object or takes over the fields in it. A Node is only updated, because its
    /// kubelet creates it.
    pub async fn apply(&self, object: &Value, until: Instant) -> Result<Value, KubeError> {
        let reference = ObjectRef::of(object)?;
        if reference.api_version == "v1" && reference.kind == "Node" {
            return self.change_node(&reference, object, until).await;
        }
        self.patch(("apply", &reference), ("", "&force=true"), APPLY, object, until).await
    }

    /// The result of a server-side apply as a dry run, including admission. Changes nothing.
    pub async fn rehearse(&self, object: &Value, until: Instant) -> Result<Value, KubeError> {
        let reference = ObjectRef::of(object)?;
        self.patch(("apply", &reference), ("", "&force=true&dryRun=All"), APPLY, object, until).await
    }

    /// Merge patch: changes the given fields of an existing object and no others; `null` removes a field.
    pub async fn merge(&self, reference: &ObjectRef, change: &Value, until: Instant) -> Result<Value, KubeError> {
        self.change(reference, "", MERGE, change, until).await
    }

    /// The same; a field that the API server does not know is an error.
    pub(super) async fn merge_strictly(
        &self,
        reference: &ObjectRef,
        change: &Value,
        until: Instant,
    ) -> Result<Value, KubeError> {
        self.patch(("change", reference), ("", "&fieldValidation=Strict"), MERGE, change, until).await
    }

    /// Patches an object, or a subresource of it, with a patch of this media type.
    pub(super) async fn change(
        &self,
        reference: &ObjectRef,
        part: &str,
        media: &'static str,
        change: &Value,
        until: Instant,
    ) -> Result<Value, KubeError> {
        self.patch(("change", reference), (part, ""), media, change, until).await
    }

    async fn patch(
        &self,
        (verb, reference): (&str, &ObjectRef),
        (part, query): (&str, &str),
        media: &'static str,
        body: &Value,
        until: Instant,
    ) -> Result<Value, KubeError> {
        let path = format!("{}{part}?fieldManager={FIELD_MANAGER}{query}", self.path(reference, until).await?);
        let what = format!("{verb} {reference}");
        self.call(&what, until, || Request { media, ..Request::with(Method::PATCH, &path, body) }).await
    }

    /// Labels and taints: reads, changes and writes the Node; tries once more after a conflict.
    async fn change_node(&self, node: &ObjectRef, desired: &Value, until: Instant) -> Result<Value, KubeError> {
        loop {
            let Some(live) = self.get(node, until).await? else {
                return Err(KubeError::Missing { what: node.to_string() });
            };
            match self.merge(node, &super::node::patch(desired, &live), until).await {
                Err(error) if error.is_conflict() && Instant::now() + PAUSE < until => sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
    }

    /// Creates an object; an existing one is an error.
    pub async fn create(&self, object: &Value, until: Instant) -> Result<Value, KubeError> {
        self.created(object, "", until).await
    }

    /// The same; a field that the API server does not know is an error.
    pub(super) async fn create_strictly(&self, object: &Value, until: Instant) -> Result<Value, KubeError> {
        self.created(object, "&fieldValidation=Strict", until).await
    }

    async fn created(&self, object: &Value, more: &str, until: Instant) -> Result<Value, KubeError> {
        let reference = ObjectRef::of(object)?;
        let what = format!("create {reference}");
        let path = self.path(&reference, until).await?;
        let folder = path.rsplit_once('/').map_or(path.as_str(), |(folder, _)| folder).to_owned();
        let path = format!("{folder}?fieldManager={FIELD_MANAGER}{more}");
        self.call(&what, until, || Request::with(Method::POST, &path, object)).await
    }

    /// Replaces an object or one of its subresources, such as `approval`.
    pub async fn replace(&self, object: &Value, subresource: &str, until: Instant) -> Result<Value, KubeError> {
        let reference = ObjectRef::of(object)?;
        let what = format!("update {reference}");
        let path = self.path(&reference, until).await?;
        let path = if subresource.is_empty() { path } else { format!("{path}/{subresource}") };
        self.call(&what, until, || Request::with(Method::PUT, &path, object)).await
    }

    /// Deletes an object; returns whether it existed.
    pub async fn delete(&self, object: &ObjectRef, grace_s: Option<u32>, until: Instant) -> Result<bool, KubeError> {
        self.delete_if(object, None, grace_s, until).await
    }

    /// Like [`Client::delete`], but only if the object has this uid; a newer object of the same name stays.
    pub async fn delete_if(
        &self,
        object: &ObjectRef,
        uid: Option<&str>,
        grace_s: Option<u32>,
        until: Instant,
    ) -> Result<bool, KubeError> {
        let what = format!("delete {object}");
        let path = self.path(object, until).await?;
        let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        if let Some(seconds) = grace_s {
            body["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(uid) = uid {
            body["preconditions"] = json!({"uid": uid});
        }
        Ok(absent(self.call(&what, until, || Request::with(Method::DELETE, &path, &body)).await)?.is_some())
    }

    /// Polls an object until `good` accepts it, and returns it (`None`: it is gone). Until then `good` returns the
    /// observed state in words.
    pub async fn wait(
        &self,
        object: &ObjectRef,
        what: &str,
        until: Instant,
        good: impl Fn(Option<&Value>) -> Result<(), String>,
    ) -> Result<Option<Value>, KubeError> {
        loop {
            let live = self.get(object, until).await?;
            match good(live.as_ref()) {
                Ok(()) => return Ok(live),
                Err(seen) if Instant::now() + PAUSE >= until => {
                    return Err(KubeError::TimedOut { what: what.to_owned(), seen });
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    async fn path(&self, object: &ObjectRef, until: Instant) -> Result<String, KubeError> {
        let (plural, namespaced) = match kinds::known(&object.api_version, &object.kind) {
            Some(known) => known,
            // Long enough for a CRD to be established, short enough for a misspelt kind.
            None => self.discover(object, until, Duration::from_secs(10)).await?,
        };
        let root = kinds::root(&object.api_version);
        let name = &object.name;
        Ok(if namespaced {
            format!("{root}/namespaces/{}/{plural}/{name}", object.namespace.as_deref().unwrap_or("default"))
        } else {
            format!("{root}/{plural}/{name}")
        })
    }

    /// Asks the API server for the plural of a kind. An unknown kind is retried until `timeout`, because its CRD may
    /// have been created just now.
    async fn discover(
        &self,
        object: &ObjectRef,
        until: Instant,
        timeout: Duration,
    ) -> Result<(String, bool), KubeError> {
        let key = (object.api_version.clone(), object.kind.clone());
        let timeout = until.min(Instant::now() + timeout);
        let path = kinds::root(&object.api_version);
        loop {
            if let Some(known) = self.discovered().get(&key) {
                return Ok(known.clone());
            }
            let answer = absent(self.call("discover", until, || Request::get(&path)).await)?;
            let resources = answer.as_ref().and_then(|a| a.get("resources")).and_then(Value::as_array);
            for resource in resources.into_iter().flatten() {
                let text = |field: &str| resource.get(field).and_then(Value::as_str).unwrap_or_default();
                // Subresources have the kind of their request body.
                if !text("name").is_empty() && !text("name").contains('/') {
                    let namespaced = resource.get("namespaced") == Some(&Value::Bool(true));
                    let known = (text("name").to_owned(), namespaced);
                    self.discovered().insert((object.api_version.clone(), text("kind").to_owned()), known);
                }
            }
            if self.discovered().contains_key(&key) {
                continue;
            }
            if Instant::now() + PAUSE >= timeout {
                let (kind, api_version) = (object.kind.clone(), object.api_version.clone());
                return Err(KubeError::UnknownKind { kind, api_version });
            }
            sleep(PAUSE).await;
        }
    }

    fn discovered(&self) -> std::sync::MutexGuard<'_, Discovered> {
        self.discovered.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn send(&self, what: &str, request: Request) -> Result<Vec<u8>, KubeError> {
        let unreachable = |why: String| KubeError::Unreachable { what: what.to_owned(), why };
        let Answer { status, body, .. } = self.http.send(request).await.map_err(unreachable)?;
        if (200..300).contains(&status) { Ok(body) } else { Err(refused(what, status, &body)) }
    }

    /// What answers the requests, for those that are not answered with one object.
    pub(super) fn http(&self) -> &dyn Http {
        &*self.http
    }

    /// One call, retried after transient errors until the deadline; returns the body of the answer.
    pub(super) async fn body(
        &self,
        what: &str,
        until: Instant,
        request: impl Fn() -> Request,
    ) -> Result<Vec<u8>, KubeError> {
        loop {
            let late = || KubeError::TimedOut { what: what.to_owned(), seen: "no answer".to_owned() };
            match timeout_at(until, self.send(what, request())).await.unwrap_or_else(|_| Err(late())) {
                Err(error) if error.is_transient() && Instant::now() + PAUSE < until => sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
    }

    /// The same; the answer is one object.
    async fn call(&self, what: &str, until: Instant, request: impl Fn() -> Request) -> Result<Value, KubeError> {
        let body = self.body(what, until, request).await?;
        serde_json::from_slice(&body)
            .map_err(|error| KubeError::Garbled { what: what.to_owned(), why: error.to_string() })
    }

    /// Any other path, such as `readyz`.
    pub async fn raw(&self, method: Method, path: &str, until: Instant) -> Result<Value, KubeError> {
        self.call(path, until, || Request { method: method.clone(), ..Request::get(path) }).await
    }
}

/// An answer that is not the object: the server's own words.
fn refused(what: &str, status: u16, body: &[u8]) -> KubeError {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let text = |field: &str| {
        let said = parsed.as_ref().and_then(|answer| answer.get(field)).and_then(Value::as_str);
        said.unwrap_or_default().chars().take(LONGEST_MESSAGE).collect::<String>()
    };
    let plain = || String::from_utf8_lossy(body).chars().take(LONGEST_MESSAGE).collect::<String>();
    let message = if parsed.is_some() { text("message") } else { plain() };
    KubeError::Refused { what: what.to_owned(), status, reason: text("reason"), message }
}

/// "Not found" is an answer, not a failure.
pub(super) fn absent(outcome: Result<Value, KubeError>) -> Result<Option<Value>, KubeError> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

//! The API server of a simulated host: as much of the Kubernetes API as the executor uses.
//!
//! In: requests of the real API client. Out: Nodes, Pods, objects and hactl's own record as they are in the world. A
//! request that changes something is an effect like any other.

use super::effect::Effect;
use super::live::{Shared, halted};
use super::world::World;
use futures::future::BoxFuture;
use hactl::execute::{ApiClient, ConnectApi};
use hactl::kube::{self, Chunks, Client, Http, KubeError, Request};
use hactl::model::hosting::NODE_LABEL;
use hactl::model::names::HostName;
use hactl::model::target::{RECORD, object_key};
use hactl::model::timestamp::rfc3339;
use hactl::transport::Agent;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Connects to API servers of the world.
pub struct SimApi(pub Shared);

impl ConnectApi for SimApi {
    fn connect<'a>(&'a self, agent: &'a dyn Agent, _: IpAddr, _: u16) -> BoxFuture<'a, Result<ApiClient, KubeError>> {
        Box::pin(async move {
            let live = self.0.lock().expect("no panic holds it");
            let host = agent.name().clone();
            if !live.world.host(&host).answers() || !live.world.api_serves(&host) {
                return Err(KubeError::Unreachable {
                    what: format!("reach the API of {host}"),
                    why: "refused".to_owned(),
                });
            }
            Ok(Client::over(Arc::new(SimServer { host, live: Arc::clone(&self.0) })).into())
        })
    }
}

struct SimServer {
    host: HostName,
    live: Shared,
}

/// Status and body.
type Answer = (u16, Value);

impl Http for SimServer {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<kube::Answer, String>> {
        Box::pin(async move {
            let ms = self.live.lock().expect("no panic holds it").dice.below(20);
            tokio::time::sleep(Duration::from_millis(ms as u64 + 1)).await;
            match self.answer(&request)? {
                Some((status, body)) => {
                    Ok(kube::Answer { status, retry_after_s: None, body: body.to_string().into_bytes() })
                }
                None => halted().await,
            }
        })
    }

    /// Without watches: what needs one lists again instead.
    fn stream(&self, _: Request) -> BoxFuture<'_, Result<(u16, Chunks), String>> {
        Box::pin(async { Err("watches are not served".to_owned()) })
    }
}

fn missing() -> Answer {
    (404, json!({"reason": "NotFound", "message": "it does not exist"}))
}

/// Where an object is, by its key. A Node's kubelet makes its own.
fn path_of(key: &str) -> String {
    let parts: Vec<&str> = key.split('|').collect();
    let plural = format!("{}s", parts[1].to_ascii_lowercase());
    format!("/api/{}/namespaces/{}/{plural}/{}", parts[0], parts[2], parts[3])
}

impl SimServer {
    /// `None`: the run has ended.
    fn answer(&self, request: &Request) -> Result<Option<Answer>, String> {
        let mut live = self.live.lock().expect("no panic holds it");
        if !live.world.host(&self.host).answers() || !live.world.api_serves(&self.host) {
            return Err("connection refused".to_owned());
        }
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let effect = match (request.method.as_str(), path) {
            ("GET", "/api/v1/namespaces/kube-system") => return Ok(Some((200, json!({})))),
            ("GET", "/api/v1/pods") => return Ok(Some((200, json!({"items": pods(&live.world, query)})))),
            ("GET", _) if path.ends_with("/pods") || path.ends_with("/leases") => {
                return Ok(Some((200, json!({"items": []}))));
            }
            ("GET", _) => return Ok(Some(found(&live.world, path))),
            ("DELETE", _) if path.starts_with("/api/v1/nodes/") => Effect::NodeGone(name(path)),
            ("DELETE", _) if path.contains("/pods/") => return Ok(Some((200, json!({})))),
            ("DELETE", _) => match live.world.objects.keys().find(|key| path_of(key) == path).cloned() {
                Some(key) => Effect::ObjectGone(key),
                None => return Ok(Some(missing())),
            },
            ("POST", _) if path.ends_with("/eviction") => {
                Effect::Evicted(path.rsplit('/').nth(1).unwrap_or_default().to_owned())
            }
            ("PATCH", _) if path.starts_with("/api/v1/nodes/") => {
                if found(&live.world, path).0 == 404 {
                    return Ok(Some(missing()));
                }
                match body.pointer("/spec/unschedulable") {
                    Some(shut) => Effect::Cordoned(name(path), shut == true),
                    None => match body.pointer("/metadata/labels").and_then(|labels| labels.get(NODE_LABEL)) {
                        Some(label) => Effect::Labelled(name(path), !label.is_null()),
                        None => return Ok(Some((200, body))),
                    },
                }
            }
            ("PATCH" | "POST", _) if path == path_of(RECORD) || object_key(&body) == RECORD => {
                if request.method == "PATCH" && live.world.record.is_none() {
                    return Ok(Some(missing()));
                }
                Effect::Recorded(body["data"].clone())
            }
            ("PATCH", _) => Effect::Object(object_key(&body)),
            _ => return Ok(Some((405, json!({"reason": "MethodNotAllowed"})))),
        };
        Ok(match live.happen(&effect) {
            Ok(()) => Some((200, body)),
            Err(Some(why)) => Some((409, json!({"reason": "Invalid", "message": why}))),
            Err(None) => None,
        })
    }
}

fn name(path: &str) -> HostName {
    path.rsplit('/').next().and_then(|name| name.parse().ok()).expect("the executor names hosts")
}

fn found(world: &World, path: &str) -> Answer {
    if let Some(name) = path.strip_prefix("/api/v1/nodes/") {
        return name.parse().ok().and_then(|name| node(world, &name)).map_or_else(missing, |node| (200, node));
    }
    if path == path_of(RECORD) {
        return world.record.as_ref().map_or_else(missing, |data| (200, json!({"data": data})));
    }
    let object = world.objects.iter().find(|(key, _)| path_of(key) == path);
    object.map_or_else(missing, |(_, object)| (200, object.clone()))
}

/// A Node as its API shows it.
fn node(world: &World, name: &HostName) -> Option<Value> {
    let (ready, unknown) = match world.unknown_nodes.get(name) {
        Some((unreachable, _)) => (!unreachable, *unreachable),
        None => {
            let host = world.desired.hosts.iter().find(|h| &h.name == name && h.is_node())?;
            // Its kubelet registers it at its first start.
            world.host(&host.name).ran.get("kubelet")?;
            (world.node_ready(name), false)
        }
    };
    let version = world.hosts.get(name).and_then(|h| h.ran.get("kubelet")).map(|v| format!("v{v}")).unwrap_or_default();
    let status = if unknown {
        "Unknown"
    } else if ready {
        "True"
    } else {
        "False"
    };
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name.as_str(), "uid": name.as_str(), "annotations": {}},
        "spec": {"podCIDR": "10.244.0.0/24"},
        "status": {
            "conditions": [{"type": "Ready", "status": status, "message": "as it is", "lastHeartbeatTime": rfc3339(world.now)}],
            "nodeInfo": {"kubeletVersion": version, "containerRuntimeVersion": "containerd://2.3.7"},
        },
    });
    if world.cordoned.contains(name) {
        node["spec"]["unschedulable"] = json!(true);
        let record = json!({"schema": 1, "before": false, "by": ["up"]});
        node["metadata"]["annotations"]["lifecycle.hactl.dev/record"] = json!(record.to_string());
    }
    Some(node)
}

fn pods(world: &World, query: &str) -> Vec<Value> {
    let on = query.strip_prefix("fieldSelector=spec.nodeName%3D").unwrap_or_default();
    let here = world.pods.iter().filter(|(_, host)| host.as_ref().is_some_and(|host| host.as_str() == on));
    here.map(|(pod, _)| {
        json!({"metadata": {"name": pod, "namespace": "shop", "uid": pod,
            "ownerReferences": [{"kind": "ReplicaSet", "controller": true}]}, "status": {"phase": "Running"}})
    })
    .collect()
}

/// The keys that hactl's record has for an add-on.
pub fn recorded(world: &World, addon: &str) -> BTreeSet<String> {
    let text = world.record.as_ref().and_then(|data| data.get(addon)).and_then(Value::as_str).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

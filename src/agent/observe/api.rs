//! The API from the point of view of this host: its own server and the endpoint.
//!
//! In: an [`ApiAsk`]. Out: an [`ApiFact`]. Only a ready server is queried further; data that cannot be read then is a
//! failure, never an absence.

use crate::agent::machine::root::Root;
use crate::agent::machine::when::{now_ms, parse_rfc3339};
use crate::agent::pki::tls;
use crate::agent::web::Web;
use crate::model::control_plane::ELECTED;
use crate::model::facts::{ApiFact, LeaseFact, PodFact};
use crate::model::may_deny::{LISTS, MayDeny, NAMESPACE, may_deny};
use crate::model::node::NodeFact;
use crate::model::uncreated::{events_of, outdated, why_uncreated};
use crate::protocol::ApiAsk;
use futures::future::{BoxFuture, join_all};
use futures::stream::{StreamExt, iter};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// The timeouts of connecting, of `/readyz` and of everything else.
const CONNECT: Duration = Duration::from_millis(2000);
const READY: Duration = Duration::from_millis(3000);
const READ: Duration = Duration::from_millis(2500);
/// Objects queried concurrently.
const AT_ONCE: usize = 24;
/// The namespaces whose pods are observed.
const NAMESPACES: [&str; 2] = ["kube-system", "kube-flannel"];

/// A connection to this host's own API server, with the client certificate of the observer.
pub(crate) fn connect(root: &Root, ask: &ApiAsk) -> Result<Web, String> {
    let tls = tls::client(root, &ask.ca, Some((&ask.cert, &ask.key))).map_err(|f| f.what)?;
    Web::new(tls, &ask.own.0.to_string(), ask.own.1, CONNECT)
}

/// Observes everything.
pub(super) async fn look(root: &Root, ask: &ApiAsk) -> ApiFact {
    let own = async {
        let web = connect(root, ask)?;
        web.ready(READY).await?;
        Ok(inside(&web, ask).await)
    };
    let (own, endpoint) = tokio::join!(own, endpoint(root, ask));
    let inside = own.unwrap_or_else(|trouble: String| ApiFact { own_trouble: Some(trouble), ..ApiFact::default() });
    ApiFact { endpoint_trouble: endpoint.err(), ..inside }
}

async fn endpoint(root: &Root, ask: &ApiAsk) -> Result<(), String> {
    let Some((host, port)) = &ask.endpoint else { return Ok(()) };
    let tls = tls::client(root, &ask.ca, Some((&ask.cert, &ask.key))).map_err(|f| f.what)?;
    Web::new(tls, host, *port, CONNECT)?.ready(READY).await
}

/// An object or a list, or why it could not be read.
type Answer = Result<Option<Value>, String>;

async fn inside(web: &Web, ask: &ApiAsk) -> ApiFact {
    let mut paths = vec!["/version".to_owned(), "/api/v1/nodes".to_owned()];
    paths.extend(ELECTED.map(|name| format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}")));
    paths.extend(NAMESPACES.map(|namespace| format!("/api/v1/namespaces/{namespace}/pods")));
    let keys: Vec<(&String, Option<String>)> = ask.objects.iter().map(|key| (key, path(key))).collect();
    let mut waiting: Vec<BoxFuture<'_, (usize, Answer)>> = Vec::new();
    let wanted = paths.iter().map(Some).chain(keys.iter().map(|(_, path)| path.as_ref()));
    for (i, path) in wanted.enumerate() {
        waiting.push(Box::pin(async move {
            match path {
                Some(path) => (i, web.json(path, READ).await),
                None => (i, Err("the name of an object is invalid".to_owned())),
            }
        }));
    }
    let denying = async { if ask.may_deny { denying(web).await } else { vec![] } };
    let answers = iter(waiting).buffer_unordered(AT_ONCE).collect::<Vec<(usize, Answer)>>();
    let (mut answers, may_deny) = tokio::join!(answers, denying);
    answers.sort_by_key(|(i, _)| *i);
    let mut trouble = None;
    let now = now_ms();
    let mut found = answers.into_iter().map(|(_, answer)| match answer {
        Ok(found) => found,
        Err(why) => {
            trouble.get_or_insert(why);
            None
        }
    });
    let version = found.next().flatten().map(|answer| text(&answer, "/gitVersion")).unwrap_or_default();
    let nodes = found.next().flatten().map(|list| items(&list).filter_map(NodeFact::of).collect()).unwrap_or_default();
    let leases = found.by_ref().take(ELECTED.len()).filter_map(|l| lease(&l?, now)).collect();
    let lists: Vec<Value> = found.by_ref().take(NAMESPACES.len()).flatten().collect();
    let pods = lists.iter().flat_map(items).filter_map(|p| pod(p, now)).collect();
    let mut live = BTreeMap::new();
    for ((key, _), object) in keys.iter().zip(found) {
        let Some(mut object) = object else { continue };
        // The managed fields are half of an object, and not used here.
        if let Some(meta) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            meta.remove("managedFields");
        }
        live.insert((*key).clone(), object);
    }
    let uncreated = uncreated(web, &live, now).await;
    ApiFact {
        own_trouble: trouble,
        version,
        leases,
        pods,
        nodes,
        objects: live,
        may_deny,
        uncreated,
        ..ApiFact::default()
    }
}

/// Why pods of these objects are not created. Events that cannot be read name no reason.
async fn uncreated(web: &Web, live: &BTreeMap<String, Value>, now: i64) -> BTreeMap<String, String> {
    let mut asked = Vec::new();
    for (key, object) in live.iter().filter(|(_, object)| outdated(object).is_some()) {
        asked.push(async move {
            let events = match events_of(object) {
                Some(path) => web.json(&path, READ).await.ok().flatten().unwrap_or_default(),
                None => Value::Null,
            };
            Some((key.clone(), why_uncreated(object, &events, now)?))
        });
    }
    join_all(asked).await.into_iter().flatten().collect()
}

/// What may deny pods of the control plane. A list that cannot be read denies nothing: `up` itself grants the permission.
async fn denying(web: &Web) -> Vec<MayDeny> {
    let read = async |path: &str| web.json(path, READ).await.ok().flatten().unwrap_or_default();
    let [a, b, c, d] = LISTS.map(read);
    let (namespace, a, b, c, d) = tokio::join!(read(NAMESPACE), a, b, c, d);
    may_deny(&namespace, [&a, &b, &c, &d])
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.get("items").and_then(Value::as_array).into_iter().flatten()
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn condition<'a>(value: &'a Value, kind: &str) -> Option<&'a Value> {
    let all = value.pointer("/status/conditions")?.as_array()?;
    all.iter().find(|c| c.get("type").and_then(Value::as_str) == Some(kind))
}

fn lease(value: &Value, now: i64) -> Option<LeaseFact> {
    Some(LeaseFact {
        name: text(value, "/metadata/name"),
        holder: text(value, "/spec/holderIdentity"),
        age_ms: now - parse_rfc3339(&text(value, "/spec/renewTime"))?,
        duration_s: value.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(0),
    })
}

fn pod(value: &Value, now: i64) -> Option<PodFact> {
    let phase = text(value, "/status/phase");
    let ready = phase == "Succeeded" || condition(value, "Ready").is_some_and(|c| text(c, "/status") == "True");
    // The time by which it should be gone: it includes the grace period.
    let overdue = parse_rfc3339(&text(value, "/metadata/deletionTimestamp")).map_or(0, |due| (now - due).max(0) / 1000);
    Some(PodFact {
        namespace: text(value, "/metadata/namespace"),
        name: value.pointer("/metadata/name")?.as_str()?.to_owned(),
        node: text(value, "/spec/nodeName"),
        phase,
        ready,
        reason: if ready { String::new() } else { reason(value) },
        overdue_s: overdue,
    })
}

/// Why a pod is not ready: the first container with a reason, else the pod itself, else its scheduling failure.
fn reason(pod: &Value) -> String {
    let containers = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let statuses = containers.iter().filter_map(|p| pod.pointer(p)?.as_array()).flatten();
    let stated = statuses.filter(|s| s.get("ready").and_then(Value::as_bool) != Some(true)).find_map(|status| {
        let waiting = text(status, "/state/waiting/reason");
        let ended = text(status, "/state/terminated/reason");
        [waiting, ended].into_iter().find(|r| !r.is_empty() && r != "Completed" && r != "PodInitializing")
    });
    let own = Some(text(pod, "/status/reason")).filter(|r| !r.is_empty());
    let unscheduled =
        || condition(pod, "PodScheduled").filter(|c| text(c, "/status") == "False").map(|c| text(c, "/reason"));
    stated.or(own).or_else(unscheduled).unwrap_or_default()
}

/// The API path of an object named `apiVersion|kind|namespace|name`.
fn path(key: &str) -> Option<String> {
    let mut parts = key.split('|');
    let (version, kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    // Names of RBAC objects may contain a colon; no name may escape its position in the path.
    let plain = |t: &str| t.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.:".contains(&b)) && !t.contains("..");
    let good = parts.next().is_none()
        && !name.is_empty()
        && !kind.is_empty()
        && [kind, namespace, name].iter().all(|t| plain(t));
    let group = match version.split_once('/') {
        None if plain(version) && !version.is_empty() => format!("/api/{version}"),
        Some((group, version)) if plain(group) && plain(version) => format!("/apis/{group}/{version}"),
        _ => return None,
    };
    let place = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    good.then(|| format!("{group}{place}/{}/{name}", plural(kind)))
}

/// The resource of a kind. These English plurals suffice for every kind of Kubernetes.
fn plural(kind: &str) -> String {
    let name = kind.to_ascii_lowercase();
    match name.as_str() {
        "endpoints" => name,
        _ if name.ends_with("ss") || name.ends_with("ch") || name.ends_with('x') => format!("{name}es"),
        _ => match name.strip_suffix('y') {
            Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
            _ => format!("{name}s"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_kind_that_hactl_applies_has_its_path() {
        for (key, expected) in [
            ("v1|Namespace||kube-flannel", "/api/v1/namespaces/kube-flannel"),
            ("v1|ConfigMap|kube-system|coredns", "/api/v1/namespaces/kube-system/configmaps/coredns"),
            ("apps/v1|DaemonSet|kube-system|kube-proxy", "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy"),
            (
                "rbac.authorization.k8s.io/v1|ClusterRole||system:coredns",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:coredns",
            ),
            ("scheduling.k8s.io/v1|PriorityClass||x", "/apis/scheduling.k8s.io/v1/priorityclasses/x"),
            ("networking.k8s.io/v1|NetworkPolicy|a|b", "/apis/networking.k8s.io/v1/namespaces/a/networkpolicies/b"),
            ("networking.k8s.io/v1|Ingress|a|b", "/apis/networking.k8s.io/v1/namespaces/a/ingresses/b"),
            ("node.k8s.io/v1|RuntimeClass||kata", "/apis/node.k8s.io/v1/runtimeclasses/kata"),
            ("apiregistration.k8s.io/v1|APIService||v1.x", "/apis/apiregistration.k8s.io/v1/apiservices/v1.x"),
            ("gateway.networking.k8s.io/v1|Gateway|a|b", "/apis/gateway.networking.k8s.io/v1/namespaces/a/gateways/b"),
            (
                "admissionregistration.k8s.io/v1|ValidatingAdmissionPolicy||flannel.hactl.dev",
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/flannel.hactl.dev",
            ),
            ("v1|Endpoints|a|b", "/api/v1/namespaces/a/endpoints/b"),
            ("flowcontrol.apiserver.k8s.io/v1|FlowSchema||x", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/x"),
        ] {
            assert_eq!(path(key).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_key_that_could_leave_its_place_is_none() {
        for key in
            ["", "v1|Pod|a", "v1|Pod|a|b|c", "v1|Pod|a|../x", "v1|Pod|a/b|c", "v1|Pod|a|b?x=1", "|Pod|a|b", "v1||a|b"]
        {
            assert_eq!(path(key), None, "{key:?}");
        }
    }

    #[test]
    fn a_pod_reports_its_readiness_reason_and_overdue_time() {
        let now = parse_rfc3339("2026-01-01T00:01:40Z").unwrap();
        let broken = json!({"metadata": {"name": "a", "namespace": "kube-system", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{"ready": true}, {"ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}});
        let fact = pod(&broken, now).unwrap();
        assert_eq!((fact.ready, fact.reason.as_str(), fact.overdue_s), (false, "CrashLoopBackOff", 100));
        let fine = json!({"metadata": {"name": "b"}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!((pod(&fine, now).unwrap().ready, pod(&fine, now).unwrap().overdue_s), (true, 0));
        let pending = json!({"metadata": {"name": "c"}, "status": {"phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
        assert_eq!(pod(&pending, now).unwrap().reason, "Unschedulable");
    }

    #[test]
    fn the_age_of_a_lease_is_measured_by_the_local_clock() {
        let now = parse_rfc3339("2026-01-01T00:00:02.5Z").unwrap();
        let value = json!({"metadata": {"name": "kube-scheduler"}, "spec": {"holderIdentity": "cp1_x", "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:01.000000Z"}});
        let fact = lease(&value, now).unwrap();
        assert_eq!((fact.age_ms, fact.duration_s, fact.holder.as_str()), (1500, 15, "cp1_x"));
    }
}

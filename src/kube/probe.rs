//! A functional test: a pod on a given Node must start, resolve a name through the cluster's DNS, and terminate.
//!
//! In: a Node, images and the path of hactl on its host. Out: checks. It is an ordinary pod: it is scheduled, gets an
//! address of the pod network, runs a container, and is killed while running, because a runtime that cannot kill leaves
//! every pod Terminating.

use serde_json::{Value, json};
use std::net::IpAddr;
use tokio::time::Instant;

use super::{Client, KubeError, ObjectRef};
use crate::model::check::{Check, Outcome};
use crate::model::names::HostName;
use crate::model::pod::{NAMESPACE, PROBE};

/// What to probe.
#[derive(Debug, Clone)]
pub struct Ask {
    /// On which Node.
    pub node: HostName,
    /// The pause image, which every host has.
    pub image: String,
    /// The path of hactl on the host, such as `/var/lib/hactl/bin/DIGEST/hactl`.
    pub hactl_path: String,
    /// The DNS service's address.
    pub dns: IpAddr,
    /// The name to resolve.
    pub name: String,
}

/// A pod gets answers from the cluster's DNS.
const IN_A_POD: &str = "DNS answers inside a pod";
/// How long the cluster's DNS may take to answer: it may still be starting.
const TIMEOUT_S: u32 = 60;
/// Long enough to kill a container, short enough to notice when that fails.
const GRACE_S: u32 = 1;

/// Runs the probe and deletes its pod, also after a failure.
pub async fn probe(client: &Client, ask: &Ask, until: Instant) -> Result<Vec<Check>, KubeError> {
    let pod = pod(ask);
    let reference = ObjectRef::of(&pod)?;
    // The pod of an interrupted run.
    if client.delete(&reference, Some(0), until).await? {
        client.wait(&reference, "deletion of the previous probe's pod", until, gone).await?;
    }
    if let Err(error) = client.create(&pod, until).await {
        return if is_denied(&error) { Ok(vec![denied(ask, &error)]) } else { Err(error) };
    }
    let ran = client.wait(&reference, "start of the probe's pod", until, settled).await;
    let dns = verdict(ask, &ran);
    // Only a running pod proves that running containers can be killed.
    let running = matches!(&ran, Ok(Some(live)) if phase(live) == "Running");
    let removed = remove(client, &reference, until).await;
    if let Err(error @ (KubeError::Unreachable { .. } | KubeError::Refused { .. })) = ran {
        return Err(error);
    }
    Ok(vec![dns, deletion(ask, running, &removed)])
}

/// Whether the API server refused the pod for good, as for a quota, Pod Security or a webhook.
fn is_denied(error: &KubeError) -> bool {
    matches!(error, KubeError::Refused { .. }) && !error.is_transient() && !error.is_conflict()
}

/// The check whose pod was not even created.
fn denied(ask: &Ask, error: &KubeError) -> Check {
    let detail = format!(
        "all steps are done, and the cluster has what the inventory asks for; only the pod of this check was refused, \
         so DNS was not tested from inside a pod ({error})"
    );
    let hint = "other new pods in kube-system may be refused as well: change what the message names (a quota, a limit, \
                Pod Security, a webhook); `hactl status` tests DNS without such a pod";
    let (host, hint) = (Some(ask.node.clone()), Some(hint.to_owned()));
    Check { name: IN_A_POD, host, outcome: Outcome::Fail, detail, hint }
}

/// The deletion has a time limit of its own: after a failed wait the deadline has passed.
async fn remove(client: &Client, pod: &ObjectRef, until: Instant) -> Result<(), KubeError> {
    let until = until.max(Instant::now() + std::time::Duration::from_secs(20));
    client.delete(pod, Some(GRACE_S), until).await?;
    client.wait(pod, "deletion of the probe's pod", until, gone).await.map(drop)
}

fn gone(live: Option<&Value>) -> Result<(), String> {
    live.map_or(Ok(()), |live| Err(format!("it is still {}", phase(live))))
}

/// Running or terminated.
fn settled(live: Option<&Value>) -> Result<(), String> {
    let Some(live) = live else { return Err("it does not exist".to_owned()) };
    match phase(live) {
        "Running" | "Succeeded" | "Failed" => Ok(()),
        phase => Err(format!("{phase}{}", waiting(live))),
    }
}

fn phase(live: &Value) -> &str {
    live.pointer("/status/phase").and_then(Value::as_str).unwrap_or("Pending")
}

/// Why a pod does not run yet, if its status says so.
fn waiting(live: &Value) -> String {
    let statuses = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let containers = statuses.iter().filter_map(|path| live.pointer(path)?.as_array()).flatten();
    let said = containers.filter_map(|c| c.pointer("/state/waiting")).find_map(|w| {
        let reason = w.get("reason").and_then(Value::as_str).filter(|reason| *reason != "PodInitializing")?;
        Some(format!(": {reason} {}", w.get("message").and_then(Value::as_str).unwrap_or_default()))
    });
    let unscheduled = || {
        let conditions = live.pointer("/status/conditions")?.as_array()?;
        let message = conditions.iter().find(|c| c.get("status").and_then(Value::as_str) == Some("False"))?;
        Some(format!(": {}", message.get("message")?.as_str()?))
    };
    said.or_else(unscheduled).unwrap_or_default()
}

fn verdict(ask: &Ask, ran: &Result<Option<Value>, KubeError>) -> Check {
    let (outcome, detail) = match ran {
        Ok(Some(live)) if phase(live) != "Failed" => (Outcome::Pass, format!("{} resolved", ask.name)),
        Ok(Some(live)) => (Outcome::Fail, exit_report(live)),
        Ok(None) => (Outcome::Fail, "the pod was deleted while the probe waited for it".to_owned()),
        Err(error) => (Outcome::Fail, error.to_string()),
    };
    let hint = (outcome == Outcome::Fail).then(|| hint(ran, &detail).to_owned());
    Check { name: IN_A_POD, host: Some(ask.node.clone()), outcome, detail, hint }
}

/// The next place to check. A pod that never ran proves nothing about DNS.
fn hint(ran: &Result<Option<Value>, KubeError>, detail: &str) -> &'static str {
    let says = |words: &[&str]| words.iter().any(|word| detail.contains(word));
    if says(&["ImagePull", "ErrImage", "InvalidImageName"]) {
        return "the pod's image cannot be pulled: check that this host reaches a registry that has it, or set a mirror \
                (`registries.mirrors`); with `security: cis` present images are checked with the registry too";
    }
    match ran {
        Ok(Some(_)) => {
            "`hactl status` shows on which hosts DNS fails, and whether CoreDNS, kube-proxy and flannel are \
                        Ready there; if it fails on this host alone, check 8472/udp between hosts and checksum \
                        offloading of the network card: `ethtool -K flannel.1 tx-checksum-ip-generic off` turns it off"
        }
        Ok(None) | Err(_) => {
            "the pod did not start, so DNS was not tested; the API's message is above; \
                              `hactl kubectl -- -n kube-system get events --sort-by=.lastTimestamp` shows the cause \
                              (a quota, a webhook, the container runtime)"
        }
    }
}

fn exit_report(live: &Value) -> String {
    let ended = live.pointer("/status/initContainerStatuses/0/state/terminated");
    let message = ended.and_then(|t| t.get("message")).and_then(Value::as_str).unwrap_or_default().trim();
    let reason = live.pointer("/status/message").and_then(Value::as_str).unwrap_or_default();
    match (message.is_empty(), reason.is_empty()) {
        (false, _) => message.to_owned(),
        (true, false) => reason.to_owned(),
        (true, true) => "the pod failed without a message".to_owned(),
    }
}

fn deletion(ask: &Ask, running: bool, removed: &Result<(), KubeError>) -> Check {
    let (outcome, detail) = match removed {
        Ok(()) if running => (Outcome::Pass, "a running pod was deleted".to_owned()),
        Ok(()) => (Outcome::Skip, "the pod did not run, so killing it was not tested".to_owned()),
        Err(error) => (Outcome::Fail, error.to_string()),
    };
    let hint = "pods that stay Terminating often mean that AppArmor keeps runc from killing: see the host's kernel log";
    let hint = (outcome == Outcome::Fail).then(|| hint.to_owned());
    Check { name: "a pod can be deleted", host: Some(ask.node.clone()), outcome, detail, hint }
}

fn pod(ask: &Ask) -> Value {
    let (folder, program) = ask.hactl_path.rsplit_once('/').unwrap_or(("/", &ask.hactl_path));
    let within = format!("--within={TIMEOUT_S}");
    let command = json!([format!("/hactl/{program}"), "host-dns", within, ask.dns.to_string(), ask.name]);
    let locked = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("hactl-probe-{}", ask.node), "namespace": NAMESPACE, "labels": {"app": PROBE}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": GRACE_S,
            "tolerations": [{"operator": "Exists"}],
            // Through the scheduler, which is tested as well.
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [ask.node.to_string()]}]},
            ]}}},
            "initContainers": [{
                "name": "dns", "image": ask.image, "imagePullPolicy": "IfNotPresent", "command": command,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": locked,
                "volumeMounts": [{"name": "hactl", "mountPath": "/hactl", "readOnly": true}],
            }],
            "containers": [{
                "name": "stay", "image": ask.image, "imagePullPolicy": "IfNotPresent",
                "securityContext": locked,
            }],
            "volumes": [{"name": "hactl", "hostPath": {"path": folder, "type": "Directory"}}],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> Ask {
        Ask {
            node: "cp2".parse().unwrap(),
            image: "registry.k8s.io/pause:3.10.1".to_owned(),
            hactl_path: "/var/lib/hactl/bin/abc/hactl".to_owned(),
            dns: "10.96.0.10".parse().unwrap(),
            name: "kubernetes.default.svc.cluster.local".to_owned(),
        }
    }

    #[test]
    fn the_probe_runs_hactl_from_the_host_and_asks_the_clusters_dns() {
        let pod = pod(&ask());
        let command = pod.pointer("/spec/initContainers/0/command").unwrap();
        assert_eq!(
            command,
            &json!(["/hactl/hactl", "host-dns", "--within=60", "10.96.0.10", "kubernetes.default.svc.cluster.local"])
        );
        assert_eq!(pod.pointer("/spec/volumes/0/hostPath/path"), Some(&json!("/var/lib/hactl/bin/abc")));
    }

    #[test]
    fn a_failed_probe_repeats_the_pods_last_words() {
        let live = json!({"status": {"phase": "Failed", "initContainerStatuses": [
            {"state": {"terminated": {"exitCode": 1, "message": "no answer from 10.96.0.10\n"}}}]}});
        let check = verdict(&ask(), &Ok(Some(live)));
        assert_eq!((check.outcome, check.detail.as_str()), (Outcome::Fail, "no answer from 10.96.0.10"));
        assert!(check.hint.is_some_and(|hint| hint.contains("ethtool")));
    }

    #[test]
    fn a_pod_that_never_ran_is_no_matter_of_the_network() {
        let waits = |seen: &str| {
            let error = KubeError::TimedOut { what: "the pod".to_owned(), seen: seen.to_owned() };
            verdict(&ask(), &Err(error)).hint.unwrap()
        };
        let image = waits("Pending: ImagePullBackOff Back-off pulling image");
        assert!(image.contains("registry") && !image.contains("ethtool"), "{image}");
        let quota = waits("it does not exist");
        assert!(quota.contains("events") && !quota.contains("ethtool"), "{quota}");
    }

    #[test]
    fn a_denied_pod_fails_the_check_with_the_reason_and_a_busy_api_server_denies_none() {
        let error = |status: u16, message: &str| KubeError::Refused {
            what: "create Pod kube-system/hactl-probe-cp2".to_owned(),
            status,
            reason: String::new(),
            message: message.to_owned(),
        };
        let quota = error(403, "pods \"hactl-probe-cp2\" is forbidden: failed quota: q");
        let check = denied(&ask(), &quota);
        assert_eq!(check.outcome, Outcome::Fail);
        assert!(check.detail.starts_with("all steps are done, and the cluster has"), "{}", check.detail);
        assert!(check.detail.contains("failed quota: q"), "{}", check.detail);
        let webhook = error(500, "Internal error occurred: failed calling webhook");
        assert!(is_denied(&quota) && is_denied(&webhook));
        assert!(![error(503, ""), error(429, ""), error(409, "")].iter().any(is_denied));
    }

    #[test]
    fn a_pod_that_never_ran_proves_nothing_about_deletion() {
        assert_eq!(deletion(&ask(), false, &Ok(())).outcome, Outcome::Skip);
        assert_eq!(deletion(&ask(), true, &Ok(())).outcome, Outcome::Pass);
        let stuck =
            KubeError::TimedOut { what: "the pod being gone".to_owned(), seen: "it is still Running".to_owned() };
        assert_eq!(deletion(&ask(), true, &Err(stuck)).outcome, Outcome::Fail);
    }

    #[test]
    fn a_waiting_pod_reports_its_reason() {
        let live = json!({"status": {"phase": "Pending", "initContainerStatuses": [
            {"state": {"waiting": {"reason": "ErrImageNeverPull", "message": "not present"}}}]}});
        assert_eq!(settled(Some(&live)).unwrap_err(), "Pending: ErrImageNeverPull not present");
    }
}

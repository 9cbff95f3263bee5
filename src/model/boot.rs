//! The boots of a host: which one it is, and whether a maintenance asks for the next.
//!
//! In: what the host reads of itself, or what the API shows. Out: a [`Boot`]. A request names the boot that it ends: so
//! it is obeyed once, whatever repeats it.

use super::labels::{BOOT, REBOOT_REQUIRED, annotation};
use super::maintenance::{Maintenance, Stage, Work};
use super::names::HostName;
use super::node::NodeFact;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;

/// The unit of the node agent.
pub const NODE_AGENT: &str = "hactl-node-agent.service";
/// The longest name of a boot, in characters.
const LONGEST: usize = 64;

/// The name of a boot: the kernel's id, and the start of the first process, hundredths of a second after the kernel's.
/// Containers of one machine share the first, and differ in the second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct BootId(String);

impl BootId {
    /// Of these two numbers.
    ///
    /// # Errors
    /// The id is not one of the kernel.
    pub fn new(kernel: &str, started: i64) -> Result<Self, String> {
        // systemd writes it without hyphens.
        Self::try_from(format!("{}/{started}", kernel.trim().replace('-', "")))
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for BootId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_id = |id: &str| !id.is_empty() && id.chars().all(|c| c.is_ascii_hexdigit());
        let is_number = |number: &str| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
        match text.split_once('/') {
            Some((id, number)) if is_id(id) && is_number(number) && text.len() <= LONGEST => Ok(Self(text)),
            _ => Err("it names no boot".to_owned()),
        }
    }
}

impl From<BootId> for String {
    fn from(id: BootId) -> Self {
        id.0
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a host runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// The boot.
    pub id: BootId,
    /// When its first process started, by the clock of the host, milliseconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub since_ms: i64,
}

impl Boot {
    /// Whether the kubelet of a Node has reported it as ready since this boot: until then, the API shows its last report
    /// before.
    pub fn is_ready(&self, node: &Value) -> bool {
        NodeFact::of(node).is_some_and(|node| node.ready && node.heard_ms >= self.since_ms)
    }
}

/// The boot by which a Node is ready, as the node agent on its host says. It counts only while the kubelet says the
/// same of the kernel: after a recovery of etcd, an annotation may be of an earlier boot.
pub fn announced(node: &Value) -> Option<BootId> {
    let id = BootId::try_from(annotation(node, BOOT)?.as_str()?.to_owned()).ok()?;
    let kernel = node.pointer("/status/nodeInfo/bootID").and_then(Value::as_str)?.replace('-', "");
    id.0.split_once('/').is_some_and(|(own, _)| own == kernel).then_some(id)
}

/// The merge patch by which a node agent says how its host runs, and whether it needs a reboot; `None`: the Node says so.
pub fn announcement(node: &Value, boot: &BootId, is_due: bool) -> Option<Value> {
    let due = is_due.then_some("true");
    let says = |key: &str| annotation(node, key).and_then(Value::as_str);
    let is_said = says(BOOT) == Some(boot.as_str()) && says(REBOOT_REQUIRED) == due;
    (!is_said).then(|| json!({"metadata": {"annotations": {BOOT: boot, REBOOT_REQUIRED: due}}}))
}

/// Whether a maintenance asks the host of this name to end this boot.
pub fn asks(of: &Maintenance, host: &HostName, boot: &BootId) -> bool {
    let is_under_way = of.wanted.stage == Stage::Drain && !of.ends() && !of.is_over();
    let asks = matches!(of.wanted.work, Work::Reboot(_)) && of.reboot.as_ref().is_some_and(|one| one.boot == *boot);
    of.wanted.node == *host && is_under_way && asks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::merge_patch::merged;

    const ID: &str = "6f1c2a34-93e9-4c7a-8e34-0f2f4f6f7b10";

    fn boot(started: i64) -> BootId {
        BootId::new(ID, started).unwrap()
    }

    fn maintenance(action: &str, stage: &str, state: &str, asked: &BootId) -> Maintenance {
        let status = json!({"state": state, "reboot": {"boot": asked, "requestTime": "2026-11-29T04:00:00Z"}});
        let spec = json!({"nodeName": "w3", "stage": stage, "action": action});
        Maintenance::of(&json!({"metadata": {"name": "w3", "uid": "u"}, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn a_name_that_the_kernel_does_not_give_is_none() {
        for text in ["", "/", "a/", "/1", "x/1", "a/1/2", "a/-1", "a b/1", &format!("{}/1", "a".repeat(70))] {
            assert!(BootId::try_from(text.to_owned()).is_err(), "{text}");
        }
        assert_eq!(boot(12).as_str(), "6f1c2a3493e94c7a8e340f2f4f6f7b10/12");
        assert_eq!(BootId::new("6f1c2a3493e94c7a8e340f2f4f6f7b10\n", 12), Ok(boot(12)));
    }

    #[test]
    fn a_node_is_ready_by_a_boot_once_its_kubelet_has_reported_since() {
        let node = |ready: &str| {
            let condition =
                json!({"type": "Ready", "status": ready, "lastHeartbeatTime": "2026-11-29T04:00:00Z", "message": ""});
            json!({"metadata": {"name": "w3"}, "status": {"conditions": [condition]}})
        };
        let heard_ms = NodeFact::of(&node("True")).unwrap().heard_ms;
        let since = |since_ms: i64| Boot { id: boot(1), since_ms };
        assert!(since(heard_ms).is_ready(&node("True")));
        assert!(!since(heard_ms + 1).is_ready(&node("True")), "it is the report of the boot before");
        assert!(!since(heard_ms - 1).is_ready(&node("False")));
    }

    #[test]
    fn what_a_node_agent_says_is_written_once() {
        let mut node = json!({"metadata": {"name": "w3"}, "status": {"nodeInfo": {"bootID": ID}}});
        for (started, due) in [(1, false), (1, true), (2, false)] {
            let patch = announcement(&node, &boot(started), due).expect("it is new");
            node = merged(&node, &patch);
            assert_eq!(announcement(&node, &boot(started), due), None);
            assert_eq!(announced(&node), Some(boot(started)));
            assert_eq!(annotation(&node, REBOOT_REQUIRED).is_some(), due);
        }
        let mut recovered = node.clone();
        recovered["status"]["nodeInfo"]["bootID"] = json!("e3cf905f-ba52-4ee1-a79e-426c5c45c58f");
        assert_eq!(announced(&recovered), None, "the kubelet says another one");
        node["metadata"]["annotations"][BOOT] = json!("garbled");
        assert_eq!(announced(&node), None);
    }

    #[test]
    fn a_host_reboots_for_its_own_maintenance_that_is_under_way_and_names_its_boot() {
        let host = "w3".parse().unwrap();
        let own = boot(1);
        assert!(asks(&maintenance("Reboot", "Drain", "Rebooting", &own), &host, &own));
        assert!(asks(&maintenance("Reboot", "Drain", "Overdue", &own), &host, &own));
        for (action, stage, state, asked, of) in [
            ("None", "Drain", "Rebooting", boot(1), "w3"),
            ("Reboot", "Complete", "Rebooting", boot(1), "w3"),
            ("Reboot", "Cordon", "Rebooting", boot(1), "w3"),
            ("Reboot", "Drain", "Completed", boot(1), "w3"),
            ("Reboot", "Drain", "Rebooting", boot(2), "w3"),
            ("Reboot", "Drain", "Rebooting", boot(1), "w4"),
        ] {
            let one = maintenance(action, stage, state, &asked);
            assert!(!asks(&one, &of.parse().unwrap(), &own), "{action} {stage} {state} {asked} {of}");
        }
        let mut unasked = maintenance("Reboot", "Drain", "Drained", &own);
        unasked.reboot = None;
        assert!(!asks(&unasked, &host, &own));
    }
}

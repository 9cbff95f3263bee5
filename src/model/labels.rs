//! The annotations that hactl sets on objects of the API, and the label of its own Pods: all of them, in one domain.
//!
//! In: an object as the API shows it. Out: the value of an annotation.

use serde_json::Value;

/// On a Node: which of its labels and taints are from the inventory.
pub const OWNS: &str = "hactl.dev/owns";
/// On a Node: an earlier hactl cordoned it. Since then there is [`RECORD`].
pub const CORDONED: &str = "hactl.dev/cordoned";
/// On an object of a manifest: the digest of the manifest that was applied.
pub const APPLIED: &str = "hactl.dev/applied";
/// On an object of hactl: what it is for.
pub const NOTE: &str = "hactl.dev/note";
/// On a Pod: the digest of the files that it reads, so that another content replaces it.
pub const READS: &str = "hactl.dev/reads";

/// On a Pod of the control plane: the revision of its template.
pub const REVISION: &str = "hactl.dev/revision";

/// The label of the Pods of a self-hosted control plane, by the name of their program: the selector of their DaemonSets.
pub const HOSTS: &str = "hactl.dev/hosts";

/// The label of the Pods that stand for the control plane of their host: the budget of drains selects them.
pub const QUORUM: &str = "hactl.dev/quorum";

/// On a Node: what keeps it cordoned (`model/cordon`).
pub const RECORD: &str = "lifecycle.hactl.dev/record";
/// On a Node: which taints its record has set, and which holders need each (`model/cordon`).
pub const TAINTS: &str = "lifecycle.hactl.dev/taints";
/// On a Node: its maintenances hold the repairs of its host (`model/hold`).
pub const HOLD: &str = "hold.hactl.dev/maintenance";
/// The label of a NodeMaintenance that a rollout has made: its name.
pub const ROLLOUT: &str = "lifecycle.hactl.dev/rollout";
/// On a Node: the boot by which it is ready (`model/boot`).
pub const BOOT: &str = "lifecycle.hactl.dev/boot";
/// On a Node: its host needs a reboot.
pub const REBOOT_REQUIRED: &str = "lifecycle.hactl.dev/reboot-required";
/// The finalizer of a NodeMaintenance that has changed its Node.
pub const COMPLETION: &str = "lifecycle.hactl.dev/completion";

/// The taint of a Node whose pods of DaemonSets leave, too.
pub const DRAINED: &str = "lifecycle.hactl.dev/drained";
/// The taint of Kubernetes for a Node whose host is off: its pods are deleted and its volumes detached.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// On a Node: how many static pods its node agent holds (`model/static_pods`).
pub const HELD: &str = "lifecycle.hactl.dev/held-static-pods";

/// The label of requests of a drain: its Node.
pub const DRAINS_NODE: &str = "lifecycle.hactl.dev/node";

/// The label of a Pod with which its owner says how it leaves a drained Node: `skip` or `wait-completed`.
pub const DRAIN: &str = "lifecycle.hactl.dev/drain";
/// The same label of Cluster API (`MachineDrainRule`).
pub const CAPI_DRAIN: &str = "cluster.x-k8s.io/drain";

/// The value of an annotation.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get("metadata")?.get("annotations")?.get(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_set_listed_annotations_only() {
        let mut found = 0;
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests");
        let files = [folder, concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/static")];
        for entry in files.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
            let path = entry.unwrap().path();
            for line in std::fs::read_to_string(&path).unwrap_or_default().lines() {
                let Some((key, _)) = line.trim().split_once(": ").filter(|(key, _)| key.starts_with("hactl.dev/"))
                else {
                    continue;
                };
                assert!([OWNS, CORDONED, APPLIED, NOTE, READS, REVISION].contains(&key), "{}: {key}", path.display());
                found += 1;
            }
        }
        assert!(found > 4, "{found} annotations in manifests");
    }
}

//! The status of a cluster for programs, in a stable format: `schema` is `hactl.status/1`.
//!
//! Within one schema, fields are added, never renamed or removed. Unknown values are null. Member IDs are text, because
//! JSON numbers are exact only up to 2^53.
//!
//! - `cluster`, `kubernetes`, `endpoint`: from the inventory; if it names no version of Kubernetes, the one that runs
//! - `standing`: `healthy`, `watch`, `degraded` (exit 4) or `down` (exit 7)
//! - `hosts[]`: `name`, `address`, `roles`, `answers`, `why` and `hint` when it does not, `os`, `kernel`,
//!   `architecture`
//! - `etcd.state`: one of the words in `fn etcd` below
//! - `etcd.quorum`: `voters`, `learners`, `healthy`, `quorum`, `tolerates` (null: no quorum); null without a quorum
//! - `etcd.members[]`: `name`, `host` (null: orphan), `peer`, `id`, `learner`, `healthy`, `leader`; as reported by the
//!   member: `version`, `dbBytes`, `revision`, `term`, `applied`, `alarms`
//! - `etcd.evidence[]`: `host`, `what`, `data`, `answers`: the report of each host while no quorum answers
//! - `etcd.evidence[].disk`: the position of its data, read from files, or null: `term` and `entry` of the log's end,
//!   `committed`, `revision` and `applied` of the store (or null), `dbBytes`, `writtenMs`, `newest` (of the hosts that
//!   answer), `flaws[]`
//! - `apiServers[]`: `host`, `ready` (null: unknown), `why`, `endpointReady`, `endpointWhy`, `hosting` (null: the host was
//!   never self-hosted): `mode` (`held`, or `workloads` with the revision that may serve), `components` by name:
//!   `placed`, `aside`, `server`, `answers`, `waits`
//! - `leases[]`: `name`, `holder`, `ageMs`, `durationMs`
//! - `nodes[]`: `name`, `ready`, `cordoned`, `maintenances[]` (that keep it cordoned), `version`, `message`
//! - `drills[]`: the last drill of each kind on each host: `host`, `heldBy` (`owners`: with the identity that also
//!   decrypts the CA keys; `host`: with the identity of the host), `atMs`, `outcome` (`restored`, `sealed-before`,
//!   `failed`), `why` if it failed, `bundle` and `takenMs` (null: not recorded), `keys` and `restoredMs` if it restored
//! - `healing`: `mode`, `guards[]`, `faults[]`, `pending[]`, as in `hactl.guard.status/1`; null if healing is off
//! - `checks[]`: `name`, `host`, `outcome`, `detail`, `hint`

use super::checks::Standing;
use super::plan_text::quorum_json;
use super::status::{best, kubernetes, leader, view};
use crate::model::check::Check;
use crate::model::desired::{Desired, Role};
use crate::model::drill::Showed;
use crate::model::facts::{DiskFact, Etcd, Facts, newest};
use crate::model::guards::Guards;
use crate::model::names::HostName;
use serde_json::{Value, json};

/// The status as JSON.
pub fn status_json(desired: &Desired, facts: &Facts, checks: &[Check]) -> Value {
    let leases = best(facts).map(|a| a.leases.as_slice()).unwrap_or_default();
    let nodes = best(facts).map(|a| a.nodes.as_slice()).unwrap_or_default();
    json!({
        "schema": "hactl.status/1",
        "cluster": desired.cluster,
        "kubernetes": kubernetes(desired, facts),
        "endpoint": desired.url_for_people(),
        "standing": Standing::of(checks),
        "hosts": hosts(desired, facts),
        "etcd": etcd(desired, facts),
        "apiServers": desired.with(Role::ControlPlane).map(|host| {
            let api = facts.host(&host.name).and_then(|f| f.api.as_ref());
            json!({
                "host": host.name,
                "ready": api.map(|a| a.own_trouble.is_none()),
                "why": api.and_then(|a| a.own_trouble.as_ref()),
                "endpointReady": api.map(|a| a.endpoint_trouble.is_none()),
                "endpointWhy": api.and_then(|a| a.endpoint_trouble.as_ref()),
                "hosting": facts.host(&host.name).and_then(|f| f.hosting.as_ref()),
            })
        }).collect::<Vec<_>>(),
        "leases": leases.iter().map(|lease| json!({
            "name": lease.name,
            "holder": lease.holder,
            "ageMs": lease.age_ms,
            "durationMs": lease.duration_s.saturating_mul(1000),
        })).collect::<Vec<_>>(),
        "nodes": nodes.iter().map(|node| json!({
            "name": node.name,
            "ready": node.ready,
            "cordoned": node.unschedulable,
            "maintenances": node.maintenances,
            "version": node.version,
            "message": node.message,
        })).collect::<Vec<_>>(),
        "drills": facts.hosts.keys().flat_map(|host| drills(host, facts)).collect::<Vec<_>>(),
        "healing": Guards::of(desired, &facts.hosts).map(|guards| super::healing::json(&guards)),
        "checks": checks,
    })
}

fn hosts(desired: &Desired, facts: &Facts) -> Vec<Value> {
    let one = |host: &crate::model::desired::Host| {
        let answer = facts.hosts.get(&host.name);
        let found = answer.and_then(|a| a.as_ref().ok());
        let unreachable = answer.and_then(|a| a.as_ref().err());
        json!({
            "name": host.name,
            "address": host.address,
            "roles": host.roles,
            "answers": found.is_some(),
            "why": unreachable.map(|s| s.why.as_str()),
            "hint": unreachable.and_then(|s| s.hint.as_deref()),
            "os": found.map(|f| f.os.as_str()),
            "kernel": found.map(|f| f.kernel.as_str()),
            "architecture": found.map(|f| f.architecture.as_str()),
        })
    };
    desired.hosts.iter().map(one).collect()
}

/// The last drill with the owners' identity on a host, and the last one that the host ran automatically.
fn drills(host: &HostName, facts: &Facts) -> Vec<Value> {
    let Some(found) = facts.host(host).and_then(|f| f.bundles.as_ref()) else { return Vec::new() };
    let by_owners = found.drill.map(|drill| {
        json!({
            "host": host, "heldBy": "owners", "atMs": drill.at_ms, "outcome": "restored", "why": null,
            "bundle": null, "takenMs": null, "keys": drill.proof.keys, "restoredMs": drill.proof.restored_ms,
        })
    });
    let by_host = found.own_drill.as_ref().map(|drill| {
        let (why, proof) = match &drill.showed {
            Showed::Restored(proof) => (None, Some(proof)),
            Showed::SealedBefore => (None, None),
            Showed::Failed { what, .. } => (Some(what), None),
        };
        json!({
            "host": host, "heldBy": "host", "atMs": drill.at_ms, "outcome": drill.showed.word(), "why": why,
            "bundle": drill.bundle, "takenMs": drill.taken_ms,
            "keys": proof.map(|p| p.keys), "restoredMs": proof.map(|p| p.restored_ms),
        })
    });
    by_owners.into_iter().chain(by_host).collect()
}

fn etcd(desired: &Desired, facts: &Facts) -> Value {
    let (state, members, evidence) = match &facts.etcd {
        Etcd::Uninitialized => ("never-born", None, [].as_slice()),
        Etcd::Bootstrapping { .. } => ("founding", None, [].as_slice()),
        Etcd::HasQuorum(members) => ("speaks", Some(members), [].as_slice()),
        Etcd::NoQuorum(evidence) => ("silent", None, evidence.as_slice()),
        Etcd::Disputed(evidence) => ("disputed", None, evidence.as_slice()),
    };
    let leader = leader(facts);
    let newest = newest(evidence.iter().filter_map(|e| facts.host(&e.host))).map(DiskFact::reach);
    let list = members.map(|m| m.0.iter().collect::<Vec<_>>()).unwrap_or_default();
    let list = list.into_iter().map(|(peer, member)| {
        let found = view(desired, facts, peer);
        let view = found.as_ref().and_then(|(_, v)| *v);
        json!({
            "name": member.name,
            "host": found.as_ref().map(|(host, _)| host),
            "peer": peer,
            "id": format!("{:x}", member.id),
            "learner": member.learner,
            "healthy": member.healthy,
            "leader": leader == Some(member.id),
            "version": view.map(|v| v.version.as_str()),
            "dbBytes": view.map(|v| v.db_bytes),
            "revision": view.map(|v| v.revision),
            "term": view.map(|v| v.term),
            "applied": view.map(|v| v.applied),
            "alarms": view.map(|v| v.alarms.as_slice()).unwrap_or_default(),
        })
    });
    json!({
        "state": state,
        "quorum": members.map(quorum_json),
        "members": list.collect::<Vec<_>>(),
        "evidence": evidence.iter().map(|e| json!({
            "host": e.host,
            "what": e.what,
            "data": e.has_data,
            "answers": e.reachable,
            "disk": facts.host(&e.host).and_then(|f| f.etcd.as_ref()?.disk.as_ref()).map(|disk| json!({
                "term": disk.term,
                "entry": disk.index,
                "committed": disk.commit,
                "revision": disk.revision,
                "applied": disk.applied,
                "dbBytes": disk.db_bytes,
                "writtenMs": disk.written_ms,
                "newest": newest == Some(disk.reach()),
                "flaws": disk.flaws,
            })),
        })).collect::<Vec<_>>(),
    })
}

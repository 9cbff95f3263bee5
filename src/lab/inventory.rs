//! The inventory of a lab, for `hactl up -i`.

use super::error::Result;
use super::files;
use super::progress::{Note, Progress};
use super::record::Record;
use crate::inventory::topology::topology;
use crate::model::desired::Role;
use std::fmt::Write;
use std::path::Path;

const TEMPLATE: &str = include_str!("../../templates/lab/hactl.yaml");
/// The inventory's name in the lab's folder.
pub(crate) const FILE: &str = "hactl.yaml";

/// The inventory's text.
pub(crate) fn text(record: &Record, dir: &Path) -> String {
    let network = record.network();
    let hosts = record.hosts.iter().enumerate().fold(String::new(), |mut text, (index, host)| {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "  - name: {}\n    address: {}\n    roles: [{}]\n",
            host.name,
            network.address(index),
            words(&record.roles(host.kind))
        );
        text
    });
    files::fill(
        TEMPLATE,
        &[
            ("name", &record.name),
            ("path", &dir.join(FILE).display().to_string()),
            ("kubernetes", &record.kubernetes),
            ("vip", &network.vip().to_string()),
            ("hosts", &hosts),
            ("containers", topology().containers.trim_end()),
        ],
    )
}

/// Roles as an inventory lists them.
fn words(roles: &[Role]) -> String {
    roles.iter().map(Role::to_string).collect::<Vec<_>>().join(", ")
}

/// Writes the inventory. An edited one stays, and the new one is written beside it.
pub(crate) fn write(old: Option<&Record>, new: &Record, dir: &Path, progress: &dyn Progress) -> Result<()> {
    let path = dir.join(FILE);
    let wanted = text(new, dir);
    let before = old.map(|record| text(record, dir));
    match files::read_if(&path)? {
        Some(found) if found == wanted => Ok(()),
        Some(found) if before.as_ref() != Some(&found) => {
            if before.as_ref() == Some(&wanted) {
                return Ok(());
            }
            let beside = dir.join(format!("{FILE}.new"));
            files::write(&beside, 0o644, &wanted)?;
            progress.on(&Note::InventoryKept { path, beside });
            Ok(())
        }
        _ => {
            files::write(&path, 0o644, &wanted)?;
            progress.on(&Note::Inventory { path });
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::{Base, HostSpec, Silent};

    fn record() -> Record {
        Record {
            name: "lab".into(),
            octet: 4,
            base: "/b".into(),
            bases: std::collections::BTreeMap::new(),
            kubernetes: "1.36.3".into(),
            hosts: vec![
                HostSpec { name: "cp1".into(), kind: Role::ControlPlane, base: Base::Debian12 },
                HostSpec { name: "w1".into(), kind: Role::Worker, base: Base::Debian13 },
            ],
        }
    }

    #[test]
    fn the_inventory_reads_as_designed() {
        let text = text(&record(), Path::new("/labs/lab"));
        let expected = r#"# Made by `hactl lab up --name lab`. To bring up the cluster: hactl up -i /labs/lab/hactl.yaml
schema: 1
cluster: lab
versions: {kubernetes: "1.36.3"}
endpoint:
  vip: 10.88.4.100
ssh: {user: ops, identity: ./id_ed25519, known_hosts: ./known_hosts, config: none}
hosts:
  - name: cp1
    address: 10.88.4.11
    roles: [control-plane, etcd, load-balancer]
  - name: w1
    address: 10.88.4.12
    roles: [worker]
# What containers on one machine need; real hosts need none of it. (The machine keeps their clock.)
preflight: {ignore: [time-synchronised]}
extra: {kubelet: {config: {failCgroupV1: false, cgroupDriver: cgroupfs}}, containerd: {restrictOomScoreAdj: true}, kube-proxy: {config: {conntrack: {maxPerCore: 0, min: 0}}}}
"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn an_edited_inventory_stays() {
        let dir = std::env::temp_dir().join(format!("hactl-inventory-{}", std::process::id()));
        let old = record();
        write(None, &old, &dir, &Silent).expect("first");
        let mut new = old.clone();
        new.hosts.push(HostSpec { name: "w2".into(), kind: Role::Worker, base: Base::Debian12 });
        write(Some(&old), &new, &dir, &Silent).expect("grown");
        assert_eq!(files::read(&dir.join(FILE)).expect("read"), text(&new, &dir));
        files::write(&dir.join(FILE), 0o644, "mine").expect("edit");
        write(Some(&new), &old, &dir, &Silent).expect("kept");
        assert_eq!(files::read(&dir.join(FILE)).expect("read"), "mine");
        assert_eq!(files::read(&dir.join("hactl.yaml.new")).expect("read"), text(&old, &dir));
        files::remove(&dir).expect("cleaning up");
    }
}

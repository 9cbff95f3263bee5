//! The inventory's text for the machines of a Vagrantfile.
//!
//! In: machines with their addresses and roles. Out: YAML to keep and edit.

use super::said::Way;
use crate::inventory::import::write::scalar;
use crate::inventory::topology::topology;
use crate::model::desired::Role;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// A machine as the inventory has it.
pub(super) struct Host {
    /// The Node's name.
    pub(super) name: String,
    /// The address at which the others reach it.
    pub(super) address: Ipv4Addr,
    /// Its roles.
    pub(super) roles: Vec<Role>,
    /// Vagrant's SSH settings.
    pub(super) way: Way,
    /// The file with its host keys.
    pub(super) known_hosts: PathBuf,
    /// Its state if Vagrant does not report it as running.
    pub(super) off: Option<String>,
}

/// The contents of an inventory.
pub(super) struct Draft<'a> {
    /// The Vagrantfile's folder.
    pub(super) dir: &'a Path,
    /// The cluster's name.
    pub(super) cluster: &'a str,
    /// The API's virtual address.
    pub(super) vip: Ipv4Addr,
    /// Whether the machines are containers.
    pub(super) containers: bool,
    /// The machines.
    pub(super) hosts: Vec<Host>,
}

/// The text.
pub(super) fn render(draft: &Draft<'_>) -> String {
    let mut text = format!(
        "\
# The machines of the Vagrantfile in {}, as Vagrant reports them.
# Every key is explained in docs/inventory.md; `hactl inventory schema` prints a JSON Schema for editors.
schema: 1
cluster: {}
endpoint:
  vip: {}                       # a free address of the machines' network
ssh:
  config: none                           # Vagrant's SSH settings apply, not ~/.ssh/config
hosts:
",
        // A path may contain a line break, a comment must not.
        draft.dir.display().to_string().escape_debug(),
        scalar(draft.cluster),
        draft.vip
    );
    for host in &draft.hosts {
        host_text(&mut text, host);
    }
    if draft.containers {
        text.push_str("# Only containers on one machine need these settings.\n");
        text.push_str(&topology().containers);
    }
    text
}

/// Writing to a String cannot fail, so the results are ignored.
fn host_text(text: &mut String, host: &Host) {
    let roles: Vec<String> = host.roles.iter().map(Role::to_string).collect();
    if let Some(state) = &host.off {
        let _ = writeln!(text, "  # State in Vagrant: {}; these are its last known settings.", state.escape_debug());
    }
    let _ = writeln!(text, "  - name: {}", scalar(&host.name));
    let _ = writeln!(text, "    address: {}\n    roles: [{}]", host.address, roles.join(", "));
    text.push_str("    ssh:\n");
    if host.way.host != host.address.to_string() {
        let _ = writeln!(text, "      host: {}", quoted(&host.way.host));
    }
    if host.way.port != 22 {
        let _ = writeln!(text, "      port: {}", host.way.port);
    }
    let _ = writeln!(text, "      user: {}", quoted(&host.way.user));
    if let Some(identity) = &host.way.identity {
        let _ = writeln!(text, "      identity: {}", quoted(&identity.to_string_lossy()));
    }
    let _ = writeln!(text, "      known_hosts: {}", quoted(&host.known_hosts.to_string_lossy()));
}

/// A text in JSON's notation, which is valid YAML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{Loaded, parse};

    fn read(cluster: &str, name: &str) -> Result<Loaded, String> {
        let host = Host {
            name: name.to_owned(),
            address: Ipv4Addr::new(10, 88, 200, 11),
            roles: vec![Role::ControlPlane, Role::Etcd, Role::LoadBalancer],
            way: Way { host: "10.88.200.11".to_owned(), port: 22, user: "vagrant".to_owned(), identity: None },
            known_hosts: PathBuf::from("/v/known_hosts"),
            off: None,
        };
        let vip = Ipv4Addr::new(10, 88, 200, 100);
        let text = render(&Draft { dir: Path::new("/v"), cluster, vip, containers: false, hosts: vec![host] });
        parse(&text, Path::new("/v")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_clusters_name_is_one_value_with_any_content() {
        assert_eq!(read("lab", "cp1").unwrap().desired.cluster.as_str(), "lab");
        for name in ["lab #2", "lab\napiPort: 7443", "[lab]", "lab: x"] {
            let said = read(name, "cp1").unwrap_err();
            assert!(said.contains("cluster"), "{name:?}: {said}");
        }
    }

    #[test]
    fn a_machines_name_stays_text_when_yaml_would_take_it_for_something_else() {
        for name in ["on", "1e3", "007"] {
            assert_eq!(read("lab", name).unwrap().desired.hosts[0].name.as_str(), name);
        }
    }
}

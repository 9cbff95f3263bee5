//! The check that pods get name servers: their kubelet takes them from a file of the host, which may be gone or empty.

use crate::model::check::{Check, NAME_SERVERS, Outcome, UP, check};
use crate::model::desired::{Desired, Host};
use crate::model::dns::{RESOLV_CONF, RESOLVED};
use crate::model::facts::{Facts, HostFacts};

/// A warning for each Node whose kubelet finds no name servers, or other ones than those of its host.
pub(super) fn checks(desired: &Desired, facts: &Facts) -> Vec<Check> {
    let nodes = desired.hosts.iter().filter(|host| host.is_node());
    nodes.filter_map(|host| one(desired, host, facts.host(&host.name)?)).collect()
}

fn one(desired: &Desired, host: &Host, facts: &HostFacts) -> Option<Check> {
    let found = facts.resolv_conf.as_ref()?;
    let is_chosen_here = !desired.extra.kubelet_config.contains_key("resolvConf");
    let what = if !found.exists {
        "which does not exist: it starts no new pod".to_owned()
    } else if !found.has_servers {
        "which names none: new pods resolve no names outside the cluster".to_owned()
    } else if is_chosen_here && found.file == RESOLV_CONF && facts.systemd_resolved {
        format!("but those of the host are in {RESOLVED}: new pods may get the address of a stub on loopback")
    } else {
        return None;
    };
    let detail = format!("the kubelet takes them from {}, {what}", found.file);
    Some(check(NAME_SERVERS, Some(&host.name), Outcome::Warn, detail, Some(UP)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::sample;
    use crate::model::facts::ResolvConf;

    #[test]
    fn a_kubelet_whose_file_is_gone_or_names_no_server_or_is_not_the_hosts_is_a_warning() {
        let mut desired = sample(1);
        let warned = |desired: &Desired, (file, exists, has_servers): (&str, bool, bool), systemd_resolved| {
            let resolv_conf = Some(ResolvConf { file: file.to_owned(), exists, has_servers });
            let host = HostFacts { systemd_resolved, resolv_conf, ..HostFacts::default() };
            let facts = Facts::of([(desired.hosts[0].name.clone(), Ok(host))].into());
            checks(desired, &facts).into_iter().map(|check| (check.outcome, check.detail)).collect::<Vec<_>>()
        };
        for (found, systemd_resolved, says) in [
            ((RESOLVED, false, false), false, "/resolve/resolv.conf, which does not exist: it starts no new pod"),
            ((RESOLVED, true, false), false, "/resolve/resolv.conf, which names none"),
            (("/dev/null", true, false), true, "/dev/null, which names none"),
            ((RESOLV_CONF, true, true), true, "/etc/resolv.conf, but those of the host are in /run/systemd/resolve/"),
        ] {
            let warnings = warned(&desired, found, systemd_resolved);
            assert!(matches!(&warnings[..], [(Outcome::Warn, what)] if what.contains(says)), "{warnings:?}");
        }
        for (found, systemd_resolved) in [((RESOLVED, true, true), true), ((RESOLV_CONF, true, true), false)] {
            assert_eq!(warned(&desired, found, systemd_resolved), []);
        }
        desired.extra.kubelet_config.insert("resolvConf".to_owned(), RESOLV_CONF.into());
        assert_eq!(warned(&desired, (RESOLV_CONF, true, true), true), [], "the inventory says so");
    }
}

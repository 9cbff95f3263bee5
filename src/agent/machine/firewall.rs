//! The firewall of this host: which manager is active, which ports it opens for the cluster, and changing that.
//!
//! In: openings. Out: exactly these, now and after the next boot. Rules of the administrator are never treated as
//! ours nor changed: ours have a comment in ufw, and policies of their own in firewalld.

use crate::agent::host::Host;
use crate::agent::machine::files::{remove, same, write_one};
use crate::agent::machine::run::{must, run};
use crate::agent::op_error::{Explain, Outcome, failed};
use crate::model::firewall::{FirewallFact, Manager, Opening, Source};
use crate::model::survey::Way;
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

/// Both managers are Python programs, and firewalld does not answer while it reloads.
const WITHIN: Duration = Duration::from_secs(40);
/// The comment of our rules in ufw.
const COMMENT: &str = "hactl";
/// Our policy in firewalld: traffic to the host.
const IN: &str = "hactl";
/// The same: traffic of pods through the host.
const THROUGH: &str = "hactl-pods";
/// The exit code of firewall-cmd if there is no such policy, its INVALID_POLICY.
const NO_POLICY: i32 = 140;
/// The directory of the policies that were made on this host.
const POLICIES: &str = "/etc/firewalld/policies";

/// Which manager is active.
pub(crate) async fn manager() -> Option<Manager> {
    let firewalld = run(&["systemctl", "is-active", "--quiet", "firewalld.service"], WITHIN).await;
    if firewalld.is_ok_and(|ran| ran.ok()) {
        return Some(Manager::Firewalld);
    }
    // Its unit does not show it: it is inactive after `ufw enable` and active while ufw is not. A host without ufw
    // has no such program.
    let ufw = run(&["ufw", "status"], WITHIN).await;
    ufw.is_ok_and(|ran| ran.out.contains("Status: active")).then_some(Manager::Ufw)
}

/// The openings of hactl in the active manager.
pub(crate) async fn look() -> Outcome<Option<FirewallFact>> {
    let Some(manager) = manager().await else { return Ok(None) };
    Ok(Some(FirewallFact { manager, open: found(manager).await? }))
}

async fn found(manager: Manager) -> Outcome<BTreeSet<Opening>> {
    match manager {
        Manager::Ufw => Ok(must(&["ufw", "show", "added"], WITHIN).await?.lines().filter_map(from_ufw).collect()),
        Manager::Firewalld => {
            // The runtime and the permanent rules are read separately; only what is in both is open.
            let mut open = BTreeSet::new();
            for policy in [IN, THROUGH] {
                let (now, kept) = tokio::try_join!(rules(policy, &[]), rules(policy, &["--permanent"]))?;
                open.extend(now.intersection(&kept));
            }
            Ok(open)
        }
    }
}

/// The openings of hactl in the runtime rules of firewalld, whatever its files contain.
async fn in_force() -> Outcome<BTreeSet<Opening>> {
    let (incoming, through) = tokio::try_join!(rules(IN, &[]), rules(THROUGH, &[]))?;
    Ok(incoming.into_iter().chain(through).collect())
}

/// Opens exactly these, besides the administrator's rules. Does nothing if no manager is active.
pub(crate) async fn open(host: &Host, wanted: &BTreeSet<Opening>) -> Outcome<()> {
    let Some(manager) = manager().await else { return Ok(()) };
    let found = found(manager).await?;
    match manager {
        Manager::Ufw => {
            for opening in wanted.difference(&found) {
                let rule = to_ufw(opening);
                let mut argv = vec!["ufw"];
                argv.extend(rule.split(' '));
                argv.extend(["comment", COMMENT]);
                must(&argv, WITHIN).await?;
            }
            for opening in found.difference(wanted) {
                let rule = to_ufw(opening);
                // The word `delete` comes after `route`.
                let (head, rest) = match rule.strip_prefix("route ") {
                    Some(rest) => (["ufw", "route", "delete"].as_slice(), rest),
                    None => (["ufw", "delete"].as_slice(), rule.as_str()),
                };
                let argv: Vec<&str> = head.iter().copied().chain(rest.split(' ')).collect();
                must(&argv, WITHIN).await?;
            }
        }
        Manager::Firewalld => {
            if wanted.is_empty() && !host.root.path(&policy(IN))?.exists() {
                return Ok(());
            }
            let texts = policies(wanted);
            let nothing = wanted.is_empty();
            let changing = host.root.blocking(move |root| {
                fs::create_dir_all(root.path(POLICIES)?).explain("create", &root.path(POLICIES)?)?;
                let mut changed = false;
                for (path, text) in &texts {
                    let (at, owner) = (root.path(path)?, root.owner("root")?);
                    if nothing {
                        changed |= at.exists();
                        remove(&at)?;
                    } else if !same(&at, text.as_bytes(), 0o644, owner) {
                        changed = true;
                        write_one(at, text.as_bytes(), 0o644, owner)?;
                    }
                }
                Ok(changed)
            });
            let changed = changing.await?;
            // firewalld does not answer while it reloads: so do not reload without need.
            if !changed && &in_force().await? == wanted {
                return Ok(());
            }
            must(&["firewall-cmd", "--reload"], WITHIN).await?;
        }
    }
    let now = self::found(manager).await?;
    if &now == wanted {
        return Ok(());
    }
    let differ: Vec<String> = now.symmetric_difference(wanted).map(ToString::to_string).collect();
    Err(failed(format!("{manager} accepted the rules of hactl but does not show them: {}", differ.join(", "))))
}

fn policy(name: &str) -> String {
    format!("{POLICIES}/{name}.xml")
}

/// A rule in the syntax of ufw.
fn to_ufw(opening: &Opening) -> String {
    let word = |from: &Source| match from {
        Source::Anywhere => "any".to_owned(),
        range @ Source::Range(_) => range.to_string(),
    };
    match opening {
        Opening::In { way: Way::Tcp(port), from } => format!("allow proto tcp from {} to any port {port}", word(from)),
        Opening::In { way: Way::Udp(port), from } => format!("allow proto udp from {} to any port {port}", word(from)),
        Opening::In { way: Way::Vrrp, from } => format!("allow proto vrrp from {}", word(from)),
        Opening::Through { from } => format!("route allow from {}", word(from)),
    }
}

/// One of our rules, as `ufw show added` prints it; any other line is not ours.
fn from_ufw(line: &str) -> Option<Opening> {
    let rule = line.strip_prefix("ufw ")?.strip_suffix(&format!(" comment '{COMMENT}'"))?;
    let words: Vec<&str> = rule.split(' ').collect();
    let (from, way) = match words.as_slice() {
        ["route", "allow", "from", from] => return Some(Opening::Through { from: source(from)? }),
        ["allow", port] => {
            let (port, protocol) = port.split_once('/')?;
            (Source::Anywhere, way(protocol, Some(port))?)
        }
        ["allow", "from", from, "to", "any", "port", port, "proto", protocol] => {
            (source(from)?, way(protocol, Some(port))?)
        }
        ["allow", "from", from, "proto", protocol] => (source(from)?, way(protocol, None)?),
        _ => return None,
    };
    Some(Opening::In { way, from })
}

fn way(protocol: &str, port: Option<&str>) -> Option<Way> {
    match (protocol, port) {
        ("tcp", Some(port)) => Some(Way::Tcp(port.parse().ok()?)),
        ("udp", Some(port)) => Some(Way::Udp(port.parse().ok()?)),
        ("vrrp", None) => Some(Way::Vrrp),
        _ => None,
    }
}

fn source(text: &str) -> Option<Source> {
    let range = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok()?;
    Some(Source::Range(range.into()))
}

/// The rules of one of our policies, runtime or permanent.
async fn rules(policy: &str, which: &[&str]) -> Outcome<BTreeSet<Opening>> {
    let mut argv = vec!["firewall-cmd"];
    argv.extend(which);
    argv.extend(["--policy", policy, "--list-rich-rules"]);
    let ran = run(&argv, WITHIN).await?;
    match ran.code {
        Some(0) => Ok(ran.out.lines().filter_map(from_rich).collect()),
        Some(NO_POLICY) => Ok(BTreeSet::new()),
        _ => Err(ran.fault(&argv.join(" "))),
    }
}

/// A rich rule as firewalld prints it.
fn from_rich(line: &str) -> Option<Opening> {
    let rule = line.trim().strip_prefix("rule family=\"ipv4\" ")?.strip_suffix(" accept")?;
    let value = |key: &str| rule.split(' ').find_map(|w| w.strip_prefix(key)?.strip_prefix("=\"")?.strip_suffix('"'));
    let from = match value("address") {
        Some(address) => source(address)?,
        None => Source::Anywhere,
    };
    let way = match (value("port"), value("value")) {
        (Some(port), _) => way(value("protocol")?, Some(port))?,
        (None, Some(protocol)) => way(protocol, None)?,
        (None, None) => return Some(Opening::Through { from }),
    };
    Some(Opening::In { way, from })
}

/// Our two policies: for traffic to the host, and for traffic through it. firewalld forwards nothing between
/// interfaces that it does not know.
fn policies(wanted: &BTreeSet<Opening>) -> [(String, String); 2] {
    let (mut incoming, mut through) = (String::new(), String::new());
    for opening in wanted {
        let (rules, from, what) = match opening {
            Opening::In { way: Way::Tcp(port), from } => {
                (&mut incoming, from, format!("<port port=\"{port}\" protocol=\"tcp\"/>"))
            }
            Opening::In { way: Way::Udp(port), from } => {
                (&mut incoming, from, format!("<port port=\"{port}\" protocol=\"udp\"/>"))
            }
            Opening::In { way: Way::Vrrp, from } => (&mut incoming, from, "<protocol value=\"vrrp\"/>".to_owned()),
            Opening::Through { from } => (&mut through, from, String::new()),
        };
        let source = match from {
            Source::Anywhere => String::new(),
            range @ Source::Range(_) => format!("<source address=\"{range}\"/>"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(rules, "  <rule family=\"ipv4\">{source}{what}<accept/></rule>");
    }
    [
        (policy(IN), framed("Traffic of the cluster's hosts, pods and clients to this host.", "HOST", &incoming)),
        (policy(THROUGH), framed("Traffic of this cluster's pods through this host.", "ANY", &through)),
    ]
}

fn framed(what: &str, egress: &str, rules: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<!-- Written by hactl. -->\n<policy target=\"CONTINUE\">\n  <short>hactl</short>\n  \
         <description>{what}</description>\n{rules}  <ingress-zone name=\"ANY\"/>\n  <egress-zone name=\"{egress}\"/>\n</policy>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::Cidr;

    fn openings() -> BTreeSet<Opening> {
        let address = |last: u8| IpAddr::from([10, 88, 0, last]);
        let pods = Source::Range(Cidr { base: IpAddr::from([10, 244, 0, 0]), prefix: 16 });
        BTreeSet::from([
            Opening::from_address(address(12), Way::Tcp(2380)),
            Opening::from_address(address(12), Way::Udp(8472)),
            Opening::from_address(address(13), Way::Vrrp),
            Opening::In { way: Way::Tcp(6443), from: pods },
            Opening::Through { from: pods },
            Opening::from_anywhere(Way::Tcp(6443)),
        ])
    }

    #[test]
    fn rules_of_ufw_are_read_from_its_output_and_rules_of_people_are_not_hactls() {
        let stated = "Added user rules (see 'ufw status' for running firewall):\n\
                    ufw allow 22/tcp\n\
                    ufw allow from 10.88.0.12 to any port 2380 proto tcp comment 'hactl'\n\
                    ufw allow from 10.88.0.12 to any port 8472 proto udp comment 'hactl'\n\
                    ufw allow from 10.88.0.13 proto vrrp comment 'hactl'\n\
                    ufw allow 6443/tcp comment 'hactl'\n\
                    ufw allow from 10.244.0.0/16 to any port 6443 proto tcp comment 'hactl'\n\
                    ufw allow from 10.88.0.12 to any port 2381 proto tcp comment 'mine'\n\
                    ufw route allow from 10.244.0.0/16 comment 'hactl'\n\
                    ufw route allow from 10.245.0.0/16 comment 'mine'\n\
                    ufw deny from 10.88.0.12 to any port 2381 proto tcp comment 'hactl'\n";
        assert_eq!(stated.lines().filter_map(from_ufw).collect::<BTreeSet<_>>(), openings());
    }

    #[test]
    fn rules_of_firewalld_are_read_from_its_output() {
        let stated = "rule family=\"ipv4\" source address=\"10.88.0.12\" port port=\"2380\" protocol=\"tcp\" accept\n\
                    rule family=\"ipv4\" source address=\"10.88.0.12\" port port=\"8472\" protocol=\"udp\" accept\n\
                    rule family=\"ipv4\" source address=\"10.88.0.13\" protocol value=\"vrrp\" accept\n\
                    rule family=\"ipv4\" source address=\"10.244.0.0/16\" port port=\"6443\" protocol=\"tcp\" accept\n\
                    rule family=\"ipv4\" port port=\"6443\" protocol=\"tcp\" accept\n\
                    rule family=\"ipv4\" source address=\"10.244.0.0/16\" accept\n\
                    rule family=\"ipv4\" source address=\"10.88.0.12\" port port=\"9\" protocol=\"tcp\" reject\n";
        assert_eq!(stated.lines().filter_map(from_rich).collect::<BTreeSet<_>>(), openings());
    }

    #[test]
    fn only_pods_may_send_through_the_host() {
        let [(_, incoming), (_, through)] = policies(&openings());
        assert!(
            through.contains("<rule family=\"ipv4\"><source address=\"10.244.0.0/16\"/><accept/></rule>"),
            "{through}"
        );
        assert_eq!((incoming.matches("<rule").count(), through.matches("<rule").count()), (5, 1));
    }

    #[test]
    fn rules_written_to_ufw_are_read_back_the_same() {
        let stated: Vec<String> = openings().iter().map(to_ufw).collect();
        for rule in [
            "allow proto tcp from 10.88.0.12 to any port 2380",
            "allow proto vrrp from 10.88.0.13",
            "allow proto tcp from any to any port 6443",
            "route allow from 10.244.0.0/16",
        ] {
            assert!(stated.iter().any(|t| t == rule), "{rule}: {stated:?}");
        }
    }
}

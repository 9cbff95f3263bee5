//! What keeps pods and other hosts from what is not theirs, as files.

use super::*;

/// The rules of a host's packet filter, without comments.
fn filter(desired: &Desired, name: &str) -> String {
    let text = all(desired, name)["/etc/hactl/vrrp.nft"].content.clone();
    let rules = text.lines().map(str::trim).filter(|line| !line.starts_with('#') && !line.is_empty());
    rules.collect::<Vec<_>>().join("\n")
}

#[test]
fn vrrp_comes_in_from_the_other_balancers_of_the_segment_alone_and_keepalived_checks_them_again() {
    let rules = filter(&desired(), "cp2");
    let accepts: Vec<&str> = rules.lines().filter(|line| line.ends_with("accept")).collect();
    assert_eq!(
        accepts[1..],
        [
            "meta l4proto != 112 accept",
            r#"iifname { "eth0", } ip saddr { 10.88.0.11, 10.88.0.13, } ip ttl 255 accept"#
        ],
        "the first is the chain's policy"
    );
    assert!(rules.ends_with("counter drop\n}\n}"), "{rules}");
    assert!(rules.starts_with("table inet hactl_vrrp\ndelete table inet hactl_vrrp\n"), "it replaces what is there");
    let files = all(&desired(), "cp2");
    assert!(files["/etc/keepalived/keepalived.conf"].content.contains("\n    check_unicast_src\n"));
    let starts = &files["/etc/systemd/system/keepalived.service.d/50-hactl.conf"].content;
    assert!(starts.contains("\nExecStartPre=/usr/sbin/nft -f /etc/hactl/vrrp.nft\n"), "never without it");
}

#[test]
fn a_lone_balancer_lets_no_vrrp_in_and_hosts_without_the_address_have_no_filter() {
    let mut lone = desired();
    for host in &mut lone.hosts[1..] {
        host.roles.retain(|role| *role != Role::LoadBalancer);
    }
    assert!(!filter(&lone, "cp1").contains("saddr"), "it sends to a host that is no balancer, and hears nobody");
    for host in ["cp2", "w1"] {
        assert!(!all(&lone, host).contains_key("/etc/hactl/vrrp.nft"), "{host}");
    }
    let before = |units: Vec<UnitName>, one: &str, other: &str| {
        let at = |name: &str| units.iter().position(|unit| unit.as_str() == name).unwrap();
        at(one) < at(other)
    };
    assert!(before(units(&lone, &lone.hosts[0]), "hactl-vrrp-filter.service", "keepalived.service"));
    assert!(before(wipe(&lone, &lone.hosts[0], false).units, "keepalived.service", "hactl-vrrp-filter.service"));
}

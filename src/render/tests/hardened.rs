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

#[test]
fn every_service_account_that_may_write_nodes_is_bound_by_a_policy_that_is_there_before_its_pods() {
    const WRITES: [&str; 6] = ["create", "update", "patch", "delete", "deletecollection", "*"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut bound = 0;
    for addon in addons(&desired(), &parts()).unwrap() {
        let of = |kind: &str| addon.objects.iter().enumerate().filter(|(_, o)| o["kind"] == kind).collect::<Vec<_>>();
        let writers = of("ClusterRole").into_iter().filter(|(_, role)| {
            list(&role["rules"]).iter().any(|rule| {
                let nodes = |r: &Value| r.as_str().is_some_and(|r| r == "*" || r.split('/').next() == Some("nodes"));
                let writes = |v: &Value| v.as_str().is_some_and(|v| WRITES.contains(&v));
                list(&rule["resources"]).iter().any(nodes) && list(&rule["verbs"]).iter().any(writes)
            })
        });
        for (_, role) in writers {
            let bindings = of("ClusterRoleBinding").into_iter();
            let bindings = bindings.filter(|(_, b)| b["roleRef"]["name"] == role["metadata"]["name"]);
            for subject in bindings.flat_map(|(_, binding)| list(&binding["subjects"])) {
                assert_eq!(subject["kind"], "ServiceAccount", "others are people and hosts");
                let word = |at: &str| subject[at].as_str().unwrap_or_default().to_owned();
                let user = format!("\"system:serviceaccount:{}:{}\"", word("namespace"), word("name"));
                let (at, policy) = of("ValidatingAdmissionPolicy")
                    .into_iter()
                    .find(|(_, p)| p["spec"]["matchConditions"].to_string().replace("\\\"", "\"").contains(&user))
                    .unwrap_or_else(|| panic!("{user} may write any Node"));
                let by = |b: &Value| b["spec"]["policyName"] == policy["metadata"]["name"];
                let denies = of("ValidatingAdmissionPolicyBinding").into_iter().find(|(_, b)| by(b)).unwrap();
                assert!(list(&denies.1["spec"]["validationActions"]).contains(&json!("Deny")));
                assert_eq!(policy["spec"]["failurePolicy"], "Fail");
                let pods = of("DaemonSet").into_iter().chain(of("Deployment")).map(|(at, _)| at).min().unwrap();
                assert!(at < pods && denies.0 < pods, "before its first pod");
                bound += 1;
            }
        }
    }
    assert_eq!(bound, 1, "flannel's");
}

#[test]
fn the_policy_and_each_node_name_the_hosts_own_address_for_its_pods() {
    let objects: Vec<Value> = addons(&desired(), &parts()).unwrap().into_iter().flat_map(|a| a.objects).collect();
    let policy = objects.iter().find(|o| o["kind"] == "ValidatingAdmissionPolicy").unwrap();
    let variables = policy["spec"]["variables"].as_array().unwrap();
    let addresses = variables.iter().find(|v| v["name"] == "addresses").unwrap()["expression"].as_str().unwrap();
    let addresses: Value = serde_json::from_str(addresses).unwrap();
    assert_eq!(
        addresses,
        json!({"cp1": "10.88.0.11", "cp2": "10.88.0.12", "cp3": "10.88.0.13", "w1": "10.88.0.21"})
    );
    for node in objects.iter().filter(|o| o["kind"] == "Node") {
        let name = node["metadata"]["name"].as_str().unwrap();
        assert_eq!(node["metadata"]["annotations"]["flannel.alpha.coreos.com/public-ip"], addresses[name]);
    }
    let mut other = desired();
    other.network.cni = Cni::None;
    assert!(!addons(&other, &parts()).unwrap().iter().any(|a| json!(a.objects).to_string().contains("flannel")));
}

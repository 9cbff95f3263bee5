//! How a check is judged. In: what hosts and the API show. Out: a verdict for each check, with the reasons; and which
//! checks could not fail.

use super::evidence::{API, ETCD, Found, Host, PROXY, Paths};
use super::objects::{Cluster, Right, items, words};
use super::table::CHECKS;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What becomes of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    /// A person decides, or a check that the benchmark leaves to people does not hold.
    Warn,
    Fail,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "PASS",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        })
    }
}

/// What the value of a flag or a setting has to be. Lists have commas.
#[derive(Debug, Clone, Copy)]
pub enum Want {
    Set,
    Unset,
    Is(&'static str),
    UnsetOr(&'static str),
    Not(&'static str),
    Has(&'static str),
    Lacks(&'static str),
    /// Set, and without this element.
    Without(&'static str),
    AtLeast(i64),
    /// Cipher suites that are forward secret and authenticated.
    Strong,
}

fn is_strong(suite: &str) -> bool {
    let ephemeral = ["TLS_ECDHE_", "TLS_AES_", "TLS_CHACHA20_"].iter().any(|start| suite.starts_with(start));
    ephemeral && (suite.contains("_GCM_") || suite.contains("CHACHA20_POLY1305"))
}

impl Want {
    fn holds(self, found: Option<&str>) -> bool {
        let list: Vec<&str> = found.into_iter().flat_map(|found| found.split(',')).collect();
        match self {
            Self::Set => found.is_some_and(|value| !value.is_empty()),
            Self::Unset => found.is_none(),
            Self::Is(value) => found == Some(value),
            Self::UnsetOr(value) => found.is_none_or(|found| found == value),
            Self::Not(value) => found != Some(value),
            Self::Has(item) => list.contains(&item),
            Self::Lacks(item) => !list.contains(&item),
            Self::Without(item) => found.is_some() && !list.contains(&item),
            Self::AtLeast(least) => {
                found.and_then(|value| value.parse::<i64>().ok()).is_some_and(|value| value >= least)
            }
            Self::Strong => found.is_some() && list.into_iter().all(is_strong),
        }
    }

    /// A value that does not hold; `None`: the setting is left out.
    fn weak(self) -> Option<String> {
        match self {
            Self::Set | Self::Has(_) => None,
            Self::Unset | Self::Is(_) | Self::UnsetOr(_) => Some("weak".to_owned()),
            Self::Not(value) | Self::Lacks(value) | Self::Without(value) => Some(value.to_owned()),
            Self::AtLeast(least) => Some((least - 1).to_string()),
            Self::Strong => Some("TLS_RSA_WITH_AES_128_CBC_SHA".to_owned()),
        }
    }
}

/// What a check asks for, on each host that runs its program, or of the API.
#[derive(Clone, Copy)]
pub enum Ask {
    /// A person judges it.
    Person,
    /// Each of these flags of the program.
    Flags(&'static [&'static str], Want),
    /// A setting of the kubelet, by its JSON pointer.
    Kubelet(&'static str, Want),
    /// Files with no more permissions than these.
    Mode(fn(&Host) -> Paths, u32),
    /// Files of this owner and group.
    Owner(fn(&Host) -> Paths, &'static str),
    /// Something else about the host.
    Holds(fn(&Host) -> bool),
    /// None of these objects.
    Objects(fn(&Cluster) -> Vec<String>),
    /// Nobody but administrators and Kubernetes has one of these rights.
    Rights(&'static [Right]),
    /// The pod of this check is refused.
    Refused,
}

/// One check of the benchmark.
#[derive(Clone, Copy)]
pub struct Check {
    pub id: &'static str,
    /// The program whose hosts are judged; empty for what the API shows.
    pub program: &'static str,
    pub ask: Ask,
    /// What it is if it does not hold.
    pub otherwise: Verdict,
}

/// What is wrong with files.
fn bad(host: &Host, paths: Paths, good: impl Fn(&Found) -> bool) -> Option<String> {
    let wrong = |path: &str, found: &Found| {
        (!good(found)).then(|| format!("{path} has the mode {:o} and the owner {}", found.mode, found.owner))
    };
    match paths {
        Paths::These(paths) if paths.is_empty() => Some("there is no such file".to_owned()),
        Paths::These(paths) => paths.iter().find_map(|path| match host.files.get(path) {
            Some(found) => wrong(path, found),
            None => Some(format!("{path} is not there")),
        }),
        Paths::IfThere(paths) => paths.iter().find_map(|path| wrong(path, host.files.get(path)?)),
    }
}

impl Check {
    /// What is wrong on a host.
    fn on(&self, host: &Host) -> Option<String> {
        match self.ask {
            Ask::Flags(flags, want) => {
                let value = |flag: &str| host.value(self.program, flag);
                let flag = flags.iter().find(|flag| !want.holds(value(flag)))?;
                Some(format!("--{flag} is {}", value(flag).unwrap_or("not set")))
            }
            Ask::Kubelet(pointer, want) => {
                let value = host.setting(pointer);
                (!want.holds(value.as_deref())).then(|| format!("{pointer} is {value:?}"))
            }
            Ask::Mode(files, most) => bad(host, files(host), |found| found.mode & !most == 0),
            Ask::Owner(files, owner) => bad(host, files(host), |found| found.owner == owner),
            Ask::Holds(judge) => (!judge(host)).then(|| "it does not hold".to_owned()),
            Ask::Person | Ask::Objects(_) | Ask::Rights(_) | Ask::Refused => None,
        }
    }

    /// What is wrong; nothing if the check holds.
    fn wrong(&self, hosts: &[Host], cluster: &Cluster) -> Vec<String> {
        match self.ask {
            Ask::Person => vec!["a person judges it".to_owned()],
            Ask::Objects(of) => of(cluster),
            Ask::Rights(rights) => cluster.granted(rights),
            Ask::Refused if cluster.refused.contains(self.id) => Vec::new(),
            Ask::Refused => vec!["such a pod is admitted".to_owned()],
            _ => {
                let on: Vec<&Host> = hosts.iter().filter(|host| host.program(self.program).is_some()).collect();
                assert!(!on.is_empty(), "{}: no host runs {}", self.id, self.program);
                on.iter().filter_map(|host| Some(format!("{}: {}", host.name, self.on(host)?))).collect()
            }
        }
    }

    /// Weakens what the check judges, on one host.
    fn weaken(&self, hosts: &mut [Host], cluster: &mut Cluster) {
        let program = self.program;
        let Some(host) = hosts.iter_mut().rfind(|host| host.program(program).is_some()) else {
            cluster.refused.remove(self.id);
            return cluster.weaken();
        };
        match self.ask {
            Ask::Flags(flags, want) => {
                host.weaken_flag(program, flags.last().expect("a check has a flag"), want.weak());
            }
            Ask::Kubelet(pointer, want) => host.weaken_setting(pointer, want.weak()),
            Ask::Mode(files, _) | Ask::Owner(files, _) => {
                host.weaken_rest();
                let (Paths::These(paths) | Paths::IfThere(paths)) = files(host);
                host.weaken_files(paths);
            }
            _ => host.weaken_rest(),
        }
    }
}

/// The verdict of every check, and what is wrong.
pub fn verdicts(hosts: &[Host], cluster: &Cluster) -> BTreeMap<&'static str, (Verdict, Vec<String>)> {
    let judged = CHECKS.iter().map(|check| {
        let wrong = check.wrong(hosts, cluster);
        (check.id, (if wrong.is_empty() { Verdict::Pass } else { check.otherwise }, wrong))
    });
    judged.collect()
}

/// The checks that hold, and that also hold once what they judge is weakened: they could not fail.
pub fn blind(hosts: &[Host], cluster: &Cluster) -> Vec<&'static str> {
    let holds = |check: &Check, hosts: &[Host], cluster: &Cluster| check.wrong(hosts, cluster).is_empty();
    let blind = CHECKS.iter().filter(|check| {
        let (mut weak_hosts, mut weak_cluster) = (hosts.to_vec(), cluster.clone());
        holds(check, hosts, cluster) && {
            check.weaken(&mut weak_hosts, &mut weak_cluster);
            holds(check, &weak_hosts, &weak_cluster)
        }
    });
    blind.map(|check| check.id).collect()
}

/// Secrets are written with a strong provider.
pub fn encrypts(host: &Host) -> bool {
    let known = ["aescbc", "aesgcm", "identity", "kms", "secretbox"];
    let first = host.text(API, "providers").lines().find(|line| known.contains(line));
    first.is_some_and(|first| matches!(first, "aescbc" | "kms" | "secretbox"))
}

/// The certificates in a text.
fn certificates(pem: &str) -> BTreeSet<String> {
    let blocks = pem.split("-----BEGIN CERTIFICATE-----").skip(1);
    let bodies = blocks.filter_map(|block| Some(block.split_once("-----END CERTIFICATE-----")?.0));
    bodies.map(|body| body.split_whitespace().collect()).collect()
}

/// etcd trusts no CA that signs clients of the API.
pub fn etcd_has_its_own_ca(host: &Host) -> bool {
    let (members, clients) =
        (certificates(host.text(ETCD, "trusted-ca-file")), certificates(host.text(API, "client-ca-file")));
    !members.is_empty() && !clients.is_empty() && members.is_disjoint(&clients)
}

/// The kubelet serves with a certificate that somebody else issued.
pub fn kubelet_has_a_certificate(host: &Host) -> bool {
    let files = ["/tlsCertFile", "/tlsPrivateKeyFile"].iter().all(|file| host.setting(file).is_some());
    files || host.setting("/serverTLSBootstrap").is_some_and(|value| value == "true")
}

/// kube-proxy shows its metrics to its own host only.
pub fn proxy_metrics_are_local(host: &Host) -> bool {
    let config = host.proxy();
    let written = host.value(PROXY, "metrics-bind-address").or_else(|| config["metricsBindAddress"].as_str());
    config.is_object() && written.is_none_or(|at| at.is_empty() || at.starts_with("127.0.0.1"))
}

const CHANGES: &[&str] = &["create", "update", "patch", "delete"];
const ALL: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];

/// What an audit policy has to record: verbs, a group, resources, and whether only who, what and when.
const RECORDED: [(&[&str], &str, &[&str], bool); 5] = [
    (ALL, "", &["secrets", "configmaps"], true),
    (&["create"], "authentication.k8s.io", &["tokenreviews"], true),
    (CHANGES, "", &["pods"], false),
    (CHANGES, "apps", &["deployments"], false),
    (&["get", "create"], "", &["pods/exec", "pods/portforward", "pods/proxy", "services/proxy"], false),
];

/// Whether a rule of an audit policy covers such requests, if only some of them.
fn covers(rule: &Value, verb: &str, group: &str, resource: &str) -> bool {
    let has = |list: &Value, one: &str| items(list).is_empty() || words(list).contains(&one);
    let its = |kind: &Value| {
        let named = has(&kind["resources"], resource) || has(&kind["resources"], "*");
        let of = kind["group"].as_str().unwrap_or_default();
        (of == group || of == "*") && named
    };
    let kinds = items(&rule["resources"]);
    rule["nonResourceURLs"].is_null() && has(&rule["verbs"], verb) && (kinds.is_empty() || kinds.iter().any(its))
}

/// Whether what a rule covers depends neither on who asks nor on the names of objects.
fn is_for_all(rule: &Value) -> bool {
    let named = items(&rule["resources"]).iter().any(|kind| !kind["resourceNames"].is_null());
    !named && ["users", "userGroups", "namespaces"].iter().all(|key| rule[key].is_null())
}

/// The levels at which an audit policy records such requests. The last one is that of an ordinary user.
fn levels<'a>(policy: &'a Value, verb: &str, group: &str, resource: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for rule in items(&policy["rules"]).iter().filter(|rule| covers(rule, verb, group, resource)) {
        found.push(rule["level"].as_str().unwrap_or("None"));
        if is_for_all(rule) {
            return found;
        }
    }
    found.push("None");
    found
}

/// The audit policy records access to secrets, of nobody with the content, changes of workloads, and access to containers.
pub fn audits(host: &Host) -> bool {
    let policy: Value = serde_saphyr::from_str(host.text(API, "audit-policy-file")).unwrap_or_default();
    let with_content = |level: &str| matches!(level, "Request" | "RequestResponse");
    RECORDED.iter().all(|(verbs, group, resources, without_content)| {
        let mut pairs = verbs.iter().flat_map(|verb| resources.iter().map(move |resource| (verb, resource)));
        pairs.all(|(verb, resource)| {
            let levels = levels(&policy, verb, group, resource);
            let is_recorded = levels.last().is_some_and(|level| *level == "Metadata" || with_content(level));
            is_recorded && !(*without_content && levels.iter().any(|level| with_content(level)))
        })
    })
}

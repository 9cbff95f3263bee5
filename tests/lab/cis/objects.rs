//! What the API shows of what the benchmark asks for. In: lists of objects, and which pods an API server refuses. Out:
//! the names of what is against a check.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The lists that are judged, with their paths.
pub const LISTS: [(&str, &str); 9] = [
    ("pods", "/api/v1/pods"),
    ("services", "/api/v1/services"),
    ("namespaces", "/api/v1/namespaces"),
    ("serviceaccounts", "/api/v1/serviceaccounts"),
    ("networkpolicies", "/apis/networking.k8s.io/v1/networkpolicies"),
    ("clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ("roles", "/apis/rbac.authorization.k8s.io/v1/roles"),
    ("clusterrolebindings", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    ("rolebindings", "/apis/rbac.authorization.k8s.io/v1/rolebindings"),
];

/// What the API shows.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    pub lists: BTreeMap<&'static str, Vec<Value>>,
    /// The checks whose pod is refused in a namespace without labels.
    pub refused: BTreeSet<&'static str>,
}

/// A right that only few may have: a group of the API, resources in it, and verbs, of each any.
#[derive(Debug, Clone, Copy)]
pub struct Right(pub &'static str, pub &'static [&'static str], pub &'static [&'static str]);

impl Right {
    fn is_given_by(&self, rule: &Value) -> bool {
        let of = |key: &str, wanted: &[&str]| {
            let found = words(&rule[key]);
            found.contains(&"*") || wanted.iter().any(|one| found.contains(one))
        };
        let of_all = items(&rule["resourceNames"]).is_empty();
        of_all && of("apiGroups", &[self.0]) && of("resources", self.1) && of("verbs", self.2)
    }
}

/// The elements of a list; none if it is no list.
pub fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[][..], Vec::as_slice)
}

/// The same as words.
pub fn words(value: &Value) -> Vec<&str> {
    items(value).iter().filter_map(Value::as_str).collect()
}

fn name(object: &Value) -> String {
    let of = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    format!("{}/{}", of("namespace"), of("name"))
}

/// Whether every cluster of Kubernetes has it.
fn is_built_in(object: &Value) -> bool {
    object["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
}

impl Cluster {
    fn list(&self, plural: &str) -> &[Value] {
        self.lists.get(plural).map_or(&[][..], Vec::as_slice)
    }

    fn bindings(&self) -> impl Iterator<Item = &Value> {
        self.list("clusterrolebindings").iter().chain(self.list("rolebindings"))
    }

    /// The rules of the role of a binding.
    fn rules(&self, binding: &Value) -> impl Iterator<Item = &Value> {
        let (role, namespace) = (binding["roleRef"].clone(), binding["metadata"]["namespace"].clone());
        let of_cluster = role["kind"] == "ClusterRole";
        let all = self.list(if of_cluster { "clusterroles" } else { "roles" }).iter();
        let its = all.filter(move |one| {
            let metadata = &one["metadata"];
            metadata["name"] == role["name"] && (of_cluster || metadata["namespace"] == namespace)
        });
        its.flat_map(|role| items(&role["rules"]))
    }

    /// The containers of a pod.
    fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
        ["containers", "initContainers"].into_iter().flat_map(move |key| items(&pod["spec"][key]))
    }

    /// The bindings besides those of Kubernetes that give one of these rights to others than administrators.
    pub fn granted(&self, rights: &[Right]) -> Vec<String> {
        let others = |binding: &&Value| {
            items(&binding["subjects"]).iter().any(|subject| subject["name"] != "hactl:administrators")
        };
        let grants =
            |binding: &&Value| self.rules(binding).any(|rule| rights.iter().any(|right| right.is_given_by(rule)));
        let found = self.bindings().filter(|binding| !is_built_in(binding));
        found.filter(others).filter(grants).map(name).collect()
    }

    /// Bindings to cluster-admin besides that of Kubernetes.
    pub fn all_powerful(&self) -> Vec<String> {
        let found = self.bindings().filter(|one| one["roleRef"]["name"] == "cluster-admin" && !is_built_in(one));
        found.map(name).collect()
    }

    /// Roles besides those of Kubernetes that name no resources, verbs or groups.
    pub fn wildcards(&self) -> Vec<String> {
        let roles = self.list("clusterroles").iter().chain(self.list("roles")).filter(|role| !is_built_in(role));
        let any = |rule: &Value| ["apiGroups", "resources", "verbs"].iter().any(|key| words(&rule[key]).contains(&"*"));
        roles.filter(|role| items(&role["rules"]).iter().any(any)).map(name).collect()
    }

    /// Default service accounts whose tokens pods get without asking.
    pub fn default_accounts(&self) -> Vec<String> {
        let all = self.list("serviceaccounts").iter().filter(|account| account["metadata"]["name"] == "default");
        all.filter(|account| account["automountServiceAccountToken"] != false).map(name).collect()
    }

    /// Pods with a token that is bound to no role, so that they cannot need it.
    pub fn needless_tokens(&self) -> Vec<String> {
        let has_token = |pod: &&Value| {
            let volumes = items(&pod["spec"]["volumes"]).iter();
            let mut sources = volumes.flat_map(|volume| items(&volume["projected"]["sources"]));
            sources.any(|source| !source["serviceAccountToken"].is_null())
        };
        let is_bound = |pod: &Value| {
            let (account, namespace) = (&pod["spec"]["serviceAccountName"], &pod["metadata"]["namespace"]);
            let mut subjects = self.bindings().flat_map(|binding| items(&binding["subjects"]));
            subjects.any(|subject| {
                subject["kind"] == "ServiceAccount" && subject["name"] == *account && subject["namespace"] == *namespace
            })
        };
        self.list("pods").iter().filter(has_token).filter(|pod| !is_bound(pod)).map(name).collect()
    }

    /// Pods with a Secret in an environment variable.
    pub fn in_environment(&self) -> Vec<String> {
        let reads = |container: &Value| {
            let one = items(&container["env"]).iter().any(|env| !env["valueFrom"]["secretKeyRef"].is_null());
            one || items(&container["envFrom"]).iter().any(|env| !env["secretRef"].is_null())
        };
        self.list("pods").iter().filter(|pod| Self::containers(pod).any(reads)).map(name).collect()
    }

    /// Namespaces without a NetworkPolicy.
    pub fn unrestricted(&self) -> Vec<String> {
        let restricted = |one: &Value| {
            self.list("networkpolicies").iter().any(|policy| policy["metadata"]["namespace"] == one["metadata"]["name"])
        };
        self.list("namespaces").iter().filter(|one| !restricted(one)).map(name).collect()
    }

    /// Pods and Services in the namespace `default`, except for that of the API.
    pub fn in_default(&self) -> Vec<String> {
        let services = self.list("services").iter().filter(|service| service["metadata"]["name"] != "kubernetes");
        let all = self.list("pods").iter().chain(services);
        all.filter(|object| object["metadata"]["namespace"] == "default").map(name).collect()
    }

    /// Adds what is against every check of lists.
    pub fn weaken(&mut self) {
        let somebody = json!([{"kind": "User", "name": "somebody"}]);
        let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        let pod = json!({
            "serviceAccountName": "default",
            "volumes": [{"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
            "containers": [{"env": [{"name": "ONE", "valueFrom": {"secretKeyRef": {"name": "one", "key": "one"}}}]}],
        });
        for (plural, object) in [
            ("clusterroles", json!({"metadata": {"name": "everything"}, "rules": all})),
            (
                "clusterrolebindings",
                json!({
                    "metadata": {"name": "everything"}, "subjects": somebody,
                    "roleRef": {"kind": "ClusterRole", "name": "everything"},
                }),
            ),
            (
                "clusterrolebindings",
                json!({
                    "metadata": {"name": "administrator"}, "subjects": somebody,
                    "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
                }),
            ),
            ("pods", json!({"metadata": {"name": "one", "namespace": "default"}, "spec": pod})),
            ("serviceaccounts", json!({"metadata": {"name": "default", "namespace": "new"}})),
            ("namespaces", json!({"metadata": {"name": "new"}})),
        ] {
            self.lists.entry(plural).or_default().push(object);
        }
    }
}

//! Requests that the API server of a lab answers, by its audit log.
//!
//! In: a lab with one API server. Out: who asked for what in a span of time. hactl logs no reads, so its audit policy is
//! replaced on the host; the next `hactl up` would bring it back.

use crate::on;
use hactl::lab::Scoped;
use hactl::model::timestamp::parse_rfc3339;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

const HOST: &str = "cp1";
const POLICY: &str = "/etc/kubernetes/config/audit-policy.yaml";
const LOGS: &str = "/var/log/kubernetes/audit";

/// A request, but not what it says.
pub struct Request {
    pub user: String,
    /// Empty: the client does not say what it is.
    pub agent: String,
    pub verb: String,
    /// The resource and its part, `some` if a field selects its objects; or the path of a request for none.
    pub of: String,
    pub code: u64,
}

/// Milliseconds of the clock that the machine and its labs share.
pub fn now_ms() -> i64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().expect("the clock is after 1970");
    i64::try_from(since.as_millis()).expect("the clock is before the end of time")
}

/// Has the API server log every request, or those of one group of users. It starts again for that.
pub fn log(lab: &Scoped, group: Option<&str>, serves: impl FnMut() -> bool) {
    let mut logged = json!({"level": "Metadata"});
    if let Some(group) = group {
        logged["userGroups"] = json!([group]);
    }
    let health = json!({"level": "None", "nonResourceURLs": ["/livez*", "/readyz*", "/healthz*"]});
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [health, logged, {"level": "None"}],
    });
    let replaced = on(
        lab,
        HOST,
        &format!(
            "echo '{policy}' | sudo tee {POLICY} > /dev/null; old=$(pgrep -x kube-apiserver); sudo kill $old; \
             for n in $(seq 240); do new=$(pgrep -x kube-apiserver) && [ \"$new\" != \"$old\" ] && echo replaced && \
             break; sleep 0.5; done"
        ),
    );
    assert_eq!(replaced.trim(), "replaced", "the API server starts again");
    crate::support::wait_for("the API server serves again", Duration::from_secs(120), serves);
}

/// The requests that began in this span of time.
pub fn between(lab: &Scoped, from_ms: i64, to_ms: i64) -> Vec<Request> {
    let mut reads = lab.ssh(HOST).expect("the host exists");
    reads.arg(format!("sudo sh -c 'cat {LOGS}/*.log'")).stdout(Stdio::piped());
    let mut child = reads.spawn().expect("ssh runs");
    let out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut found = BTreeMap::new();
    for line in out.lines() {
        let line = line.expect("the log is text");
        // The last line may not be whole yet.
        let Ok(entry) = serde_json::from_str::<Value>(&line) else { continue };
        let at = entry["requestReceivedTimestamp"].as_str().and_then(parse_rfc3339);
        if at.is_some_and(|at| (from_ms..=to_ms).contains(&at)) {
            // A watch has an entry when it begins, and one when it ends.
            found.insert(entry["auditID"].to_string(), request(&entry));
        }
    }
    assert!(child.wait().expect("ssh ends").success(), "the audit log can be read");
    found.into_values().collect()
}

fn request(entry: &Value) -> Request {
    let text = |at: &str| entry.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (resource, part) = (text("/objectRef/resource"), text("/objectRef/subresource"));
    let uri = text("/requestURI");
    let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
    let resource = if query.contains("fieldSelector=") { format!("some {resource}") } else { resource };
    let of = match (resource.is_empty(), part.is_empty()) {
        (true, _) => path.to_owned(),
        (false, true) => resource,
        (false, false) => format!("{resource}/{part}"),
    };
    Request {
        user: text("/user/username"),
        agent: text("/userAgent"),
        verb: text("/verb"),
        of,
        code: entry.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or(0),
    }
}

/// Kinds of requests, and how many there were of each.
pub struct Kinds(pub BTreeMap<String, usize>);

impl Kinds {
    pub fn of<'a>(requests: impl IntoIterator<Item = &'a Request>) -> Self {
        let mut kinds = BTreeMap::new();
        for one in requests {
            let code = if one.code < 400 { String::new() } else { format!(" ({})", one.code) };
            *kinds.entry(format!("{} {}{code}", one.verb, one.of)).or_default() += 1;
        }
        Self(kinds)
    }

    pub fn of_kind(&self, kind: &str) -> usize {
        self.0.get(kind).copied().unwrap_or(0)
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let words: Vec<String> = all.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        write!(f, "{}", words.join(", "))
    }
}

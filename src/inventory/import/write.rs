//! A draft as YAML: each value with a comment that names its source, quoted so that it is read back unchanged.
//!
//! In: a [`Draft`]. Out: [`Written`], the text and for each of its lines the place in the foreign file, so that a
//! violation is reported with a place that people know.

use super::draft::{Draft, Host, Said, Ssh, Way};
use serde_json::Value;
use std::fmt::Display;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// Column of comments, if the line is short enough.
const COMMENTS: usize = 44;

/// The YAML.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// The text.
    pub text: String,
    /// The source of each line; empty: no particular place.
    pub origins: Vec<String>,
}

impl Written {
    fn line(&mut self, text: &str, comment: &str, origin: &str) {
        let comment = said_aside(comment);
        if comment.is_empty() {
            self.text.push_str(text);
        } else {
            let column = COMMENTS.max(text.chars().count() + 1);
            let _ = write!(self.text, "{text:<column$}# {comment}");
        }
        self.text.push('\n');
        self.origins.push(origin.to_owned());
    }
    fn plain(&mut self, text: &str) {
        self.line(text, "", "");
    }
    fn said<T: Display>(&mut self, indent: usize, key: &str, said: Option<&Said<T>>) {
        if let Some(said) = said {
            let text = scalar(&said.value.to_string());
            self.line(&format!("{:indent$}{key}: {text}", ""), &said.key, &said.place);
        }
    }
    /// Numbers and booleans, without quotes.
    fn bare<T: Display>(&mut self, indent: usize, key: &str, said: Option<&Said<T>>) {
        if let Some(said) = said {
            self.line(&format!("{:indent$}{key}: {}", "", said.value), &said.key, &said.place);
        }
    }
    fn list(&mut self, indent: usize, key: &str, list: &[Said]) {
        if let Some(first) = list.first() {
            let words: Vec<String> = list.iter().map(|said| scalar(&said.value)).collect();
            self.line(&format!("{:indent$}{key}: [{}]", "", words.join(", ")), &first.key, &first.place);
        }
    }
    /// Headings, written only if content follows.
    fn section(&mut self, headings: &[&str], body: impl FnOnce(&mut Self)) {
        let mut inside = Self::default();
        body(&mut inside);
        if !inside.origins.is_empty() {
            for heading in headings {
                self.plain(heading);
            }
            self.text.push_str(&inside.text);
            self.origins.extend(inside.origins);
        }
    }
}

/// Words that YAML or one of its readers does not read as text.
const RESERVED: [&str; 10] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan"];

/// A text as a YAML scalar that is read back as this text, also in flow collections.
pub fn scalar(text: &str) -> String {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | '@' | '+');
    let (address, length) = text.split_once('/').unwrap_or((text, "0"));
    let is_address = address.parse::<Ipv4Addr>().is_ok() && length.parse::<u8>().is_ok();
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/') || text.starts_with("~/");
    let body = text.strip_prefix('~').unwrap_or(text);
    let reserved = RESERVED.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is_address || (word && body.chars().all(fine) && !reserved) { text.to_owned() } else { quoted(text) }
}

/// A text in a comment: one line, with only characters that YAML allows.
fn said_aside(text: &str) -> String {
    let fine = |c: char| c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric();
    text.chars().map(|c| if fine(c) { c } else { '\u{fffd}' }).collect()
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            ' ' => out.push(' '),
            c if c.is_ascii_graphic() || (!c.is_ascii() && c.is_alphanumeric()) => out.push(c),
            c => {
                let _ = write!(out, "\\U{:08X}", u32::from(c));
            }
        }
    }
    out.push('"');
    out
}

/// Writes the inventory.
pub fn write(draft: &Draft) -> Written {
    let mut out = Written::default();
    header(&mut out, draft);
    out.plain("schema: 1");
    out.said(0, "cluster", Some(&draft.cluster));
    out.section(&["", "versions:"], |out| {
        // Versions are always quoted: 1.30 would be the number 1.3.
        let text = draft.kubernetes.as_ref().map(|s| Said::new(quoted(&s.value), &s.key, &s.place));
        out.bare::<String>(2, "kubernetes", text.as_ref());
    });
    out.section(&["", "# Where clients reach the API.", "endpoint:"], |out| endpoint(out, draft));
    out.bare(0, "apiPort", draft.api_port.as_ref());
    let reached =
        "# SSH to the hosts; hactl takes missing settings from ~/.ssh/config. The user is root, or may use sudo.";
    out.section(&["", reached, "ssh:"], |out| ssh(out, 2, &draft.ssh));
    out.plain("");
    out.plain("# name: the Node's name. address: components bind it and put it into certificates.");
    out.plain(
        "# roles: control-plane, etcd, load-balancer, worker; or only spare. An odd number of etcd members: 3 or 5.",
    );
    out.plain(if draft.hosts.is_empty() { "hosts: []" } else { "hosts:" });
    for one in &draft.hosts {
        host(&mut out, one);
    }
    out.section(&["", "network:"], |out| {
        out.said(2, "pods", draft.pods.as_ref());
        out.said(2, "services", draft.services.as_ref());
        out.said(2, "cni", draft.cni.as_ref());
        out.said(2, "kubeProxy", draft.kube_proxy.as_ref());
    });
    out.section(&["", "etcd:"], |out| {
        out.said(2, "dataDir", draft.etcd_data_dir.as_ref());
        out.bare(2, "quotaGiB", draft.etcd_quota_gib.as_ref());
    });
    out.section(&["", "registries:", "  mirrors:"], |out| {
        for (registry, urls) in &draft.mirrors {
            out.list(4, &scalar(registry), urls);
        }
    });
    out.section(&["", "proxy:"], |out| {
        out.said(2, "http", draft.http_proxy.as_ref());
        out.said(2, "https", draft.https_proxy.as_ref());
        out.list(2, "noProxy", &draft.no_proxy);
    });
    out.section(&["", "# Passed to the components as it is.", "extra:"], |out| extra(out, draft));
    out
}

fn header(out: &mut Written, draft: &Draft) {
    let cluster = said_aside(&draft.cluster.value);
    let from = said_aside(&draft.made_from);
    out.plain(&format!("# Inventory of the cluster {cluster}, converted from {from}."));
    for line in [
        "# Next: read the warnings of the import, then run `hactl inventory check FILE` and `hactl plan -i FILE`.",
        "# It describes the same hosts for a new cluster: an existing cluster on them is not taken over.",
        "# A comment behind a value names the setting that it comes from. docs/inventory.md explains every key.",
    ] {
        out.plain(line);
    }
}

fn endpoint(out: &mut Written, draft: &Draft) {
    match &draft.endpoint {
        Some(Way::Vip(vip)) => out.said(2, "vip", Some(vip)),
        Some(Way::External(external)) => out.said(2, "external", Some(external)),
        Some(Way::Local(from)) => out.line("  local: true", &from.key, &from.place),
        None => {}
    }
    out.bare(2, "port", draft.endpoint_port.as_ref());
    if matches!(draft.endpoint, Some(Way::Vip(_))) {
        out.said(2, "interface", draft.interface.as_ref());
        out.bare(2, "vrid", draft.vrid.as_ref());
    }
    out.said(2, "name", draft.endpoint_name.as_ref());
    out.list(2, "sans", &draft.sans);
}

fn ssh(out: &mut Written, indent: usize, ssh: &Ssh) {
    out.said(indent, "host", ssh.host.as_ref());
    out.bare(indent, "port", ssh.port.as_ref());
    out.said(indent, "user", ssh.user.as_ref());
    out.said(indent, "identity", ssh.identity.as_ref());
    out.said(indent, "known_hosts", ssh.known_hosts.as_ref());
    out.said(indent, "jump", ssh.jump.as_ref());
}

fn host(out: &mut Written, host: &Host) {
    let renamed = if host.given == host.name { "" } else { host.given.as_str() };
    out.line(&format!("  - name: {}", scalar(&host.name)), renamed, &host.place);
    out.said(4, "address", host.address.as_ref());
    let roles: Vec<String> = host.roles.iter().map(ToString::to_string).collect();
    out.line(&format!("    roles: [{}]", roles.join(", ")), "", &host.place);
    out.said(4, "zone", host.zone.as_ref());
    out.section(&["    ssh:"], |out| ssh(out, 6, &host.ssh));
    out.section(&["    labels:"], |out| {
        for (key, value) in &host.labels {
            let value = Said::new(quoted(&value.value), &value.key, &value.place);
            out.bare::<String>(6, &scalar(key), Some(&value));
        }
    });
    out.list(4, "taints", &host.taints);
}

fn extra(out: &mut Written, draft: &Draft) {
    let mut components: Vec<&str> = draft.args.keys().copied().collect();
    if !draft.kubelet_config.is_empty() && !components.contains(&"kubelet") {
        components.push("kubelet");
    }
    for component in components {
        out.section(&[&format!("  {component}:")], |out| {
            out.section(&["    args:"], |out| {
                for (flag, value) in draft.args.get(component).into_iter().flatten() {
                    out.said(6, &scalar(flag), Some(value));
                }
            });
            if component == "kubelet" {
                out.section(&["    config:"], |out| {
                    for (key, said) in &draft.kubelet_config {
                        json(out, 6, key, &said.value, &Said::new((), &said.key, &said.place));
                    }
                });
            }
        });
    }
}

fn json(out: &mut Written, indent: usize, key: &str, value: &Value, from: &Said<()>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.line(&format!("{:indent$}{}:", "", scalar(key)), &from.key, &from.place);
            for (key, value) in map {
                json(out, indent + 2, key, value, &Said::new((), "", &from.place));
            }
        }
        _ => out.line(&format!("{:indent$}{}: {}", "", scalar(key), flow(value)), &from.key, &from.place),
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(k, v)| format!("{}: {}", scalar(k), flow(v))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

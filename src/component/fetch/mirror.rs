//! Mirrors: alternatives for the publishers' hosts.
//!
//! In: `HOST=URL` from the user. Out: the URL or registry to use instead of a host. Only an explicit mirror may use
//! plain HTTP: digests protect the content, and it is the user's choice.

use super::super::publishers::HOSTS;
use reqwest::Url;
use std::collections::BTreeMap;
use std::str::FromStr;

/// One mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    host: String,
    base: Url,
}

/// Why a mirror is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMirror {
    /// The form is wrong.
    #[error("write HOST=URL, such as dl.k8s.io=https://mirror.example/k8s")]
    Form,
    /// A host that hactl does not download from.
    #[error("hactl does not download from {host}: the hosts are {}", HOSTS.join(", "))]
    Host {
        /// The host.
        host: String,
    },
    /// The URL is invalid.
    #[error("{why}")]
    Place {
        /// What is wrong.
        why: String,
    },
}

impl FromStr for Mirror {
    type Err = BadMirror;
    fn from_str(text: &str) -> Result<Self, BadMirror> {
        let (host, place) = text.split_once('=').ok_or(BadMirror::Form)?;
        if !HOSTS.contains(&host) {
            return Err(BadMirror::Host { host: host.chars().take(80).collect() });
        }
        let wrong = |why: &str| BadMirror::Place { why: why.to_owned() };
        let base = Url::parse(place).map_err(|e| BadMirror::Place { why: format!("the URL is not one: {e}") })?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(wrong("a mirror is an http or https URL"));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(wrong("a URL must not contain a password: every user of this machine can read command lines"));
        }
        if base.query().is_some() || base.fragment().is_some() {
            return Err(wrong("a mirror's URL must end with its path"));
        }
        Ok(Self { host: host.to_owned(), base })
    }
}

/// All mirrors, by the host that they replace.
#[derive(Debug, Clone, Default)]
pub struct Mirrors(BTreeMap<String, Url>);

/// A registry: its host, and the prefix of its repository names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    /// Host, and port unless it is the default.
    pub host: String,
    /// Prefix with its slash; may be empty.
    pub prefix: String,
    /// Whether it uses HTTP without TLS.
    pub plain: bool,
}

impl Mirrors {
    /// If a host has two mirrors, the later one counts.
    pub fn new(mirrors: impl IntoIterator<Item = Mirror>) -> Self {
        Self(mirrors.into_iter().map(|m| (m.host, m.base)).collect())
    }

    /// The URL to use for a published `url`.
    pub fn url(&self, url: &str) -> String {
        let parsed = Url::parse(url).ok();
        let found = parsed.as_ref().and_then(|u| Some((u, self.0.get(u.host_str()?)?)));
        match found {
            Some((url, base)) => format!("{}{}", base.as_str().trim_end_matches('/'), url.path()),
            None => url.to_owned(),
        }
    }

    /// The registry to use for a host.
    pub fn registry(&self, host: &str) -> Registry {
        let Some(base) = self.0.get(host) else {
            return Registry { host: host.to_owned(), prefix: String::new(), plain: false };
        };
        let name = base.host_str().unwrap_or(host);
        let host = base.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
        let path = base.path().trim_matches('/');
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        Registry { host, prefix, plain: base.scheme() == "http" }
    }

    /// The registries that use HTTP without TLS.
    pub fn plain(&self) -> Vec<String> {
        let all = self.0.keys().map(|host| self.registry(host));
        all.filter(|registry| registry.plain).map(|registry| registry.host).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirrors(list: &[&str]) -> Mirrors {
        Mirrors::new(list.iter().map(|m| m.parse::<Mirror>().unwrap()))
    }

    #[test]
    fn a_mirror_takes_the_place_of_its_host_and_keeps_the_path() {
        let all = mirrors(&["dl.k8s.io=http://127.0.0.1:8080/k8s/", "registry.k8s.io=https://harbor.example/k8s"]);
        let kubelet = "/release/v1.36.3/bin/linux/amd64/kubelet";
        assert_eq!(all.url(&format!("https://dl.k8s.io{kubelet}")), format!("http://127.0.0.1:8080/k8s{kubelet}"));
        assert_eq!(all.url("https://github.com/x"), "https://github.com/x");
        let harbor = Registry { host: "harbor.example".into(), prefix: "k8s/".into(), plain: false };
        assert_eq!(all.registry("registry.k8s.io"), harbor);
        assert_eq!(all.registry("ghcr.io").host, "ghcr.io");
        let local = mirrors(&["ghcr.io=http://127.0.0.1:5000"]);
        assert_eq!(local.plain(), ["127.0.0.1:5000"]);
        assert!(all.plain().contains(&"127.0.0.1:8080".to_owned()) && !all.plain().contains(&"harbor.example".into()));
    }

    #[test]
    fn an_invalid_mirror_is_refused_with_the_reason() {
        for (text, says) in [
            ("dl.k8s.io", "HOST=URL"),
            ("example.org=http://x", "the hosts are dl.k8s.io"),
            ("ghcr.io=ftp://x", "http or https"),
            ("ghcr.io=mirror", "not one"),
            ("ghcr.io=https://me:secret@x", "password"),
            ("ghcr.io=https://x/?a=b", "path"),
        ] {
            let error = text.parse::<Mirror>().unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("secret"), "{text}: {error}");
        }
    }
}

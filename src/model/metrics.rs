//! The metrics of components: which ones a host has, and where readers get them.
//!
//! In: the desired state. Out: [`Settings`], a file on each host without secrets. The components in question serve their
//! metrics on loopback, because they know no readers, or because the CIS benchmark wants it. One program on each host
//! serves them all on the address of the host, to the readers of [`super::healing::METRICS_READERS`].

use super::desired::{Desired, Host, KubeProxy, Role};
use super::healing::is_guarded;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The unit of the program.
pub const UNIT: &str = "hactl-metrics.service";
/// The directory of its certificate.
pub const FOLDER: &str = "/etc/hactl/metrics";
/// Its [`Settings`].
pub const SETTINGS: &str = "/etc/hactl/metrics.json";
/// Its certificate: it serves readers with it, and identifies itself to the scheduler and the controller manager.
pub const CERT: &str = "/etc/hactl/metrics/metrics.crt";
/// Its key.
pub const KEY: &str = "/etc/hactl/metrics/metrics.key";
/// The certificate of the cluster CA, by which it knows readers.
pub const CA: &str = "/etc/hactl/metrics/ca.crt";
/// The group of the program in the API: it may read metrics of components. It is not the group of readers, so that no
/// host reads those of another.
pub const RELAYS: &str = "hactl:metrics-relays";
/// The port on the address of a host.
pub const PORT: u16 = 10273;
/// The port on loopback where the balancer in front of etcd serves its metrics.
pub const ETCD_BALANCER: u16 = 6482;
/// containerd's port for metrics on loopback: that of its documentation.
pub const CONTAINERD: u16 = 1338;

/// Whether a host serves metrics: each one with components, if the inventory asks for it.
pub fn serves(desired: &Desired, host: &Host) -> bool {
    desired.metrics && host.has_components()
}

macro_rules! sources {
    ($($(#[doc = $doc:literal])+ $name:ident, $word:literal, $url:literal, $is_on:expr;)+) => {
        /// A component with metrics on loopback.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Source {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Source {
            /// All of them, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Its word after `/metrics/` in the path at which readers get its metrics.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
            /// Where the component serves them on its host.
            pub fn url(self) -> &'static str {
                match self { $(Self::$name => $url,)+ }
            }
            /// Whether a host has it.
            fn is_on(self, desired: &Desired, host: &Host) -> bool {
                let is_on: fn(&Desired, &Host) -> bool = match self { $(Self::$name => $is_on,)+ };
                is_on(desired, host)
            }
        }
    };
}

sources! {
    /// containerd.
    Containerd, "containerd", "http://127.0.0.1:1338/v1/metrics", |_, host| host.is_node();
    /// The etcd member.
    Etcd, "etcd", "http://127.0.0.1:2384/metrics", |_, host| host.may_vote();
    /// The balancer in front of etcd.
    EtcdBalancer, "etcd-balancer", "http://127.0.0.1:6482/metrics", |_, host| host.is(Role::ControlPlane);
    /// The guard.
    Guard, "guard", "http://127.0.0.1:10272/metrics", is_guarded;
    /// The balancer of the endpoint.
    LoadBalancer, "load-balancer", "http://127.0.0.1:6480/metrics", Desired::balances;
    /// The controller manager.
    KubeControllerManager, "kube-controller-manager", "https://127.0.0.1:10257/metrics",
        |_, host| host.is(Role::ControlPlane);
    /// kube-proxy.
    KubeProxy, "kube-proxy", "http://127.0.0.1:10249/metrics",
        |desired, host| host.is_node() && desired.network.kube_proxy == KubeProxy::Nftables;
    /// The scheduler.
    KubeScheduler, "kube-scheduler", "https://127.0.0.1:10259/metrics", |_, host| host.is(Role::ControlPlane);
}

/// What the program serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The address of the host, on which it serves.
    pub address: IpAddr,
    /// The components of the host.
    pub sources: Vec<Source>,
}

impl Settings {
    /// Those of a host.
    pub fn of(desired: &Desired, host: &Host) -> Self {
        let sources = Source::ALL.iter().copied().filter(|source| source.is_on(desired, host)).collect();
        Self { address: host.address, sources }
    }

    /// The component that a path of a request names.
    pub fn source(&self, path: &str) -> Option<Source> {
        let word = path.strip_prefix("/metrics/")?;
        self.sources.iter().copied().find(|source| source.word() == word)
    }

    /// The content of the file.
    pub fn to_text(&self) -> String {
        // A list of words and an address always have a form in JSON.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::super::desired::sample;
    use super::super::healing::METRICS_PORT;
    use super::super::ports::USABLE;
    use super::*;

    fn words(desired: &Desired, roles: &[Role]) -> Vec<&'static str> {
        let mut desired = desired.clone();
        desired.hosts[0].roles = roles.into();
        Settings::of(&desired, &desired.hosts[0]).sources.into_iter().map(Source::word).collect()
    }

    #[test]
    fn a_host_serves_the_metrics_of_the_components_that_its_roles_give_it() {
        let mut desired = sample(3);
        desired.healing.mode = super::super::healing::Mode::Watch;
        assert_eq!(words(&desired, &[Role::Worker]), ["containerd", "kube-proxy"]);
        assert_eq!(words(&desired, &[Role::Etcd]), ["etcd", "guard"]);
        assert_eq!(words(&desired, &[Role::LoadBalancer]), ["guard", "load-balancer"]);
        let all = words(&desired, &[Role::ControlPlane, Role::Etcd, Role::LoadBalancer]);
        assert_eq!(all, Source::ALL.iter().map(|source| source.word()).collect::<Vec<_>>());
        desired.network.kube_proxy = KubeProxy::None;
        assert_eq!(words(&desired, &[Role::Worker]), ["containerd"]);
    }

    #[test]
    fn a_path_names_only_a_component_of_this_host() {
        let settings = Settings { address: [10, 0, 0, 1].into(), sources: vec![Source::Etcd] };
        assert_eq!(settings.source("/metrics/etcd"), Some(Source::Etcd));
        for path in ["/metrics/kube-proxy", "/metrics", "/metrics/", "/metrics/etcd/", "/metrics/../etcd", "etcd"] {
            assert_eq!(settings.source(path), None, "{path}");
        }
        let same: Settings = serde_json::from_str(&settings.to_text()).unwrap();
        assert_eq!(same, settings);
    }

    #[test]
    fn every_source_is_on_loopback_and_the_ports_of_hactl_are_those_of_its_constants() {
        let at =
            |source: Source| source.url().split("127.0.0.1:").nth(1).unwrap().split('/').next().unwrap().to_owned();
        for &source in Source::ALL {
            assert!(at(source).parse::<u16>().is_ok(), "{}", source.url());
            let word = serde_json::to_value(source).unwrap();
            assert_eq!(word, source.word(), "the file has the same words");
        }
        for (source, port) in [
            (Source::Containerd, CONTAINERD),
            (Source::EtcdBalancer, ETCD_BALANCER),
            (Source::Guard, METRICS_PORT),
            (Source::LoadBalancer, USABLE),
        ] {
            assert_eq!(at(source), port.to_string());
        }
    }
}

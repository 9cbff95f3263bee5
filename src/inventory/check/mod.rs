//! Rules: from raw values to the desired state, with every default filled in and every violation collected.
//!
//! In: the raw inventory. Out: [`Desired`], or all problems in one report. Each subject has a file; [`Validator`]
//! collects the findings. A refused value is replaced by a valid one, so that the rules that depend on it can still
//! be checked; if any value was refused, the result is discarded.

pub mod endpoint;
pub mod extra;
mod healing;
pub mod hosts;
pub mod jwt;
pub mod kubernetes;
pub mod network;
pub mod pki;
pub mod quorum;
pub mod registries;
pub mod settings;
mod snapshots;
pub mod text;
pub mod validator;
pub mod ways;

use super::at::{At, Place};
use super::problem::shorten;
use super::schema::Inventory;
use crate::model::desired::{Desired, Named};
use crate::model::names::{BadName, ClusterName};
use validator::Validator;

/// Validates a raw inventory. The result is valid only if the validator has no problems.
pub fn desired(judge: &mut Validator<'_>, raw: &At<Inventory>) -> Desired {
    let top = raw.place;
    let raw = &raw.value;
    schema_version(judge, raw, top);
    let cluster = cluster(judge, raw, top);
    let network = network::network(judge, raw.network.as_ref());
    let hosts = hosts::hosts(judge, raw, top);
    let endpoint = endpoint::endpoint(judge, raw, top, &cluster, &hosts);
    let api_port = endpoint::api_port(judge, raw, &endpoint, &hosts);
    network::addresses_apart(judge, raw, &network, &endpoint, &hosts);
    quorum::roles(judge, raw, top, &endpoint, &hosts);
    quorum::zones(judge, &hosts);
    let versions = settings::versions(judge, raw.versions.as_ref());
    let etcd = settings::etcd(judge, raw.etcd.as_ref());
    let manifests = settings::manifests(judge, raw.manifests.as_ref());
    let healing = healing::healing(judge, raw.healing.as_ref());
    healing::standbys(judge, healing, &hosts);
    healing::power(judge, raw.healing.as_ref(), healing, &hosts);
    Desired {
        cluster,
        versions,
        endpoint,
        api_port,
        hosts: hosts.list.into_iter().map(|placed| placed.host).collect(),
        leaving: Vec::new(),
        network,
        control_plane: settings::control_plane(judge, raw.control_plane.as_ref()),
        etcd,
        snapshots: snapshots::snapshots(judge, raw.snapshots.as_ref(), raw.vault.as_ref()),
        healing,
        metrics: settings::metrics(judge, raw.metrics.as_ref()),
        upgrade: settings::upgrade(judge, raw.upgrade.as_ref()),
        unattended_days: settings::unattended(judge, raw.certificates.as_ref()),
        jwt: jwt::authenticators(judge, raw.authentication.as_ref()),
        mirrors: registries::mirrors(judge, raw.registries.as_ref()),
        named: Named {
            registry_authorities: registries::authorities(judge, raw.registries.as_ref()),
            registry_logins: registries::logins(judge, raw.registries.as_ref()),
            pki: pki::brought(judge, raw.pki.as_ref()),
        },
        proxy: settings::proxy(judge, raw.proxy.as_ref()),
        bundled_packages: settings::bundled_packages(judge, raw),
        firewall: settings::firewall(judge, raw.firewall.as_ref()),
        hosting: settings::hosting(judge, raw),
        manifests,
        extra: extra::extra(judge, raw.extra.as_ref()),
        ignored_checks: settings::ignored_checks(judge, raw.preflight.as_ref()),
    }
}

fn schema_version(judge: &mut Validator<'_>, raw: &Inventory, top: Place) {
    match raw.schema.as_ref() {
        None => {
            judge.refuse(top, "schema is missing", "the version of the inventory format", "add the line `schema: 1`");
        }
        Some(schema) if schema.value != 1 => judge.refuse(
            schema.place,
            format!("this hactl does not support schema {}", schema.value),
            "schema: 1",
            "use a newer hactl, or write `schema: 1`",
        ),
        Some(_) => {}
    }
}

fn cluster(judge: &mut Validator<'_>, raw: &Inventory, top: Place) -> ClusterName {
    let stand_in = || "unnamed".parse().expect("a literal that satisfies the rule for cluster names");
    let Some(cluster) = raw.cluster.as_ref() else {
        judge.refuse(top, "cluster is missing", "the cluster's name", "add a line such as `cluster: lab`");
        return stand_in();
    };
    cluster.value.parse().unwrap_or_else(|error: BadName| {
        judge.refuse(
            cluster.place,
            format!("{:?} cannot name a cluster: {}", shorten(&cluster.value), error.why),
            "letters a-z, digits and '-', at most 40 of them",
            "choose another name; it also names the state directory and the kubeconfig context",
        );
        stand_in()
    })
}

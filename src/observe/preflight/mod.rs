//! Preflight checks: finds what would make a run fail half-way, before it changes anything. Every check has a name, a
//! verdict and a remedy.
//!
//! In: facts of all hosts, connected machines. Out: [`Finding`]s, errors first. Only new hosts are surveyed, and hosts
//! that get a service which others may run there. hactl tests connectivity between new hosts and the other ones on the
//! ports that components use.

mod judge;

pub use judge::{PATHS, Seen, ahead_ms, judge, own_clock};

use crate::model::components::{Kind, row};
use crate::model::desired::{Desired, Host, Security};
use crate::model::facts::{Facts, UnitFact};
use crate::model::foreign::{SHARED, shared_at};
use crate::model::names::{HostName, UnitName};
use crate::model::ports;
use crate::model::survey::{Survey, Tried, Way};
use crate::model::target::{Part, Place, Target};
use crate::protocol::{ConnectivityTest, Expected, Op, Probe, ProbeResult, Reply};
use crate::transport::{Agents, Payload};
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Timeout of a single probe.
const KNOCK: Duration = Duration::from_secs(4);
/// Timeout of a survey, which measures a disk, and of a connectivity test, which waits for all other hosts.
const TIMEOUT: Duration = Duration::from_secs(30);

/// For each host, the registries that it cannot reach, and why.
pub type Away = BTreeMap<HostName, BTreeMap<String, String>>;

/// The registries that the Nodes cannot reach, if every image is pulled even if a host has it (AlwaysPullImages).
pub async fn registries(desired: &Desired, machines: &Agents, facts: &Facts, target: &Target) -> Away {
    if desired.control_plane.security != Security::Cis {
        return Away::new();
    }
    let one = async |host: &Host| {
        let machine = machines.get(&host.name).filter(|_| facts.host(&host.name).is_some())?;
        let parts = target.hosts.get(&host.name)?.parts.iter();
        let image =
            |part: &Part| if let Place::Image { reference } = &part.place { Some(reference.clone()) } else { None };
        let references: Vec<String> = parts.filter_map(image).collect();
        let op = Op::Dial { registries: crate::render::registry_places(desired, &references) };
        match machine.call(op, Payload::None, TIMEOUT, &|_| {}).await {
            Ok(Reply::Dialled(away)) if !away.is_empty() => Some((host.name.clone(), away)),
            _ => None,
        }
    };
    let nodes = desired.hosts.iter().filter(|host| host.is_node());
    join_all(nodes.map(one)).await.into_iter().flatten().collect()
}

/// The files and programs that hactl writes on a host where others may write, too.
fn places(target: &Target, host: &HostName) -> Vec<String> {
    let Some(target) = target.hosts.get(host) else { return Vec::new() };
    let files = target.sets.values().flat_map(|set| &set.files).map(|file| file.path.clone());
    let programs = target.parts.iter().filter(|part| part.place == Place::Program);
    let links = programs.filter_map(|part| row(&part.name, Kind::Program)?.link.map(str::to_owned));
    files.filter(|path| shared_at(path).is_some()).chain(links).collect()
}

/// Whether a host gets a service that hactl does not run there yet.
fn gets_service(target: &Target, facts: &Facts, host: &HostName) -> bool {
    let Some(found) = facts.host(host) else { return false };
    let places = places(target, host);
    SHARED.iter().any(|shared| places.iter().any(|path| path == shared.path) && !found.files.contains_key(shared.mark))
}

/// The surveys of new hosts, and of hosts that get a service; or why a host gave none.
pub type Surveys = BTreeMap<HostName, Result<Survey, String>>;

/// What hosts report before anything is changed.
#[derive(Debug, Default)]
pub struct Surveyed {
    /// What is on them.
    pub surveys: Surveys,
    /// The connections that were tested.
    pub tried: Vec<Tried>,
}

/// Surveys new hosts and those that get a service, and tests connectivity between new hosts and the other ones. An
/// unreachable host is left out; it is reported elsewhere.
pub async fn survey(desired: &Desired, machines: &Agents, facts: &Facts, target: &Target) -> Surveyed {
    let new: BTreeSet<&HostName> = desired
        .hosts
        .iter()
        .map(|h| &h.name)
        .filter(|h| facts.host(h).is_some_and(|f| f.cluster_id.is_none()))
        .collect();
    let is_surveyed = |host: &&Host| new.contains(&host.name) || gets_service(target, facts, &host.name);
    let surveyed: Vec<&Host> = desired.hosts.iter().filter(is_surveyed).collect();
    if surveyed.is_empty() {
        return Surveyed::default();
    }
    let surveys = async {
        let one = async |host: &Host| -> (HostName, Result<Survey, String>) {
            let etcd_dir = host.may_vote().then(|| desired.etcd.data_dir.display().to_string());
            let op = Op::Survey { etcd_dir, address: host.address, places: places(target, &host.name) };
            let survey = match machines.get(&host.name) {
                None => Err("there is no connection to it".to_owned()),
                Some(machine) => match machine.call(op, Payload::None, TIMEOUT, &|_| {}).await {
                    Ok(Reply::Surveyed(survey)) => Ok(*survey),
                    Ok(_) => Err("it sent an unexpected reply".to_owned()),
                    Err(error) => Err(error.to_string()),
                },
            };
            (host.name.clone(), survey)
        };
        join_all(surveyed.iter().map(|host| one(host))).await
    };
    let (surveys, tried) = tokio::join!(surveys, meet(desired, machines, &new, facts));
    Surveyed { surveys: surveys.into_iter().collect(), tried }
}

/// Whether the component that listens on this port runs on a host of the cluster; on a host to be healed it may not.
fn runs(facts: &Facts, host: &HostName, port: u16) -> bool {
    let Some(found) = facts.host(host) else { return false };
    let active = |unit: UnitName| found.units.get(&unit).is_some_and(UnitFact::runs_or_starts);
    match port {
        ports::ETCD_CLIENTS | ports::ETCD_PEERS => active(crate::plan::etcd_unit()),
        ports::KUBELET => active(crate::plan::kubelet_unit()),
        _ => found.api.as_ref().is_some_and(|api| api.own_trouble.is_none()),
    }
}

/// Probes all connections in parallel, and asks both ends for the result.
async fn meet(desired: &Desired, machines: &Agents, new: &BTreeSet<&HostName>, facts: &Facts) -> Vec<Tried> {
    let present = |host: &HostName| facts.host(host).is_some() && machines.contains_key(host);
    let ways = ports::wanted(desired, &|host| present(host), &|host| new.contains(host), &|host, port| {
        runs(facts, host, port)
    });
    let number = |host: &HostName| {
        let at = desired.hosts.iter().position(|h| &h.name == host).unwrap_or(0);
        u16::try_from(at).unwrap_or(u16::MAX)
    };
    let taking_part: BTreeSet<&HostName> = ways.iter().flat_map(|w| [&w.from, &w.to]).collect();
    let one = async |host: &HostName| -> Option<(HostName, Vec<ProbeResult>, Vec<Option<String>>)> {
        let (machine, known) = (machines.get(host)?, desired.host(host)?);
        let expected = ways.iter().filter(|w| &w.to == host && w.echo);
        let probes = ways.iter().filter(|w| &w.from == host);
        let address = |name: &HostName| desired.host(name).map(|h| h.address);
        let meeting = ConnectivityTest {
            who: number(host),
            address: known.address,
            expected: expected.map(|w| Expected { who: number(&w.from), way: w.way }).collect(),
            probes: probes.filter_map(|w| Some(Probe { to: address(&w.to)?, way: w.way, echo: w.echo })).collect(),
            within_ms: u64::try_from(KNOCK.as_millis()).unwrap_or(u64::MAX),
        };
        match machine.call(Op::Meet(meeting), Payload::None, TIMEOUT, &|_| {}).await {
            Ok(Reply::Met { received, probed }) => Some((host.clone(), received, probed)),
            _ => None,
        }
    };
    let stated = join_all(taking_part.into_iter().map(one)).await;
    let stated: BTreeMap<HostName, (Vec<ProbeResult>, Vec<Option<String>>)> =
        stated.into_iter().flatten().map(|(host, received, probed)| (host, (received, probed))).collect();
    let mut next: BTreeMap<&HostName, usize> = BTreeMap::new();
    let mut tried = Vec::new();
    for way in &ways {
        // The probes of a host are answered in their order.
        let at = next.entry(&way.from).or_default();
        let said = stated.get(&way.from).and_then(|(_, probed)| probed.get(*at));
        *at += 1;
        let received = stated.get(&way.to).and_then(|(received, _)| {
            received.iter().find(|h| h.who == number(&way.from) && h.way == way.way).and_then(|h| h.received)
        });
        let listened = !way.echo || received.is_some();
        // Without an answer of the sender, or if the receiver could not listen, there is no verdict.
        let (Some(said), true) = (said, listened) else { continue };
        let trouble = match (way.way, said) {
            (Way::Vrrp, None) if received == Some(false) => Some("sent, but not received".to_owned()),
            (_, said) => said.clone(),
        };
        tried.push(Tried { from: way.from.clone(), to: way.to.clone(), way: way.way, trouble });
    }
    tried
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::sample;
    use crate::model::facts::{ClusterId, HostFacts};
    use crate::model::names::Digest;
    use crate::protocol::{OpError, OpErrorKind};
    use crate::transport::{Agent, HostError, Stub};
    use std::sync::Arc;

    #[tokio::test]
    async fn a_host_that_is_to_be_surveyed_and_gives_no_survey_is_named_with_the_reason() {
        let desired = sample(4);
        let [fails, lost, member, unreachable] = [0, 1, 2, 3].map(|at: usize| desired.hosts[at].name.clone());
        let new = || Ok(HostFacts::default());
        let (cluster, ca) = (desired.cluster.clone(), Digest::of(b"ca"));
        let cluster_id = Some(ClusterId { cluster, ca, stages: 0, host: None, machine: None });
        let hosts = [
            (fails.clone(), new()),
            (lost.clone(), new()),
            (member, Ok(HostFacts { cluster_id, ..HostFacts::default() })),
        ];
        let facts = Facts::of(hosts.into());
        assert!(facts.host(&unreachable).is_none(), "it is reported elsewhere");
        let why = ["systemctl show did not end within 60 s", "there is no connection to it"].map(str::to_owned);
        let what = why[0].clone();
        let answer = move |_: Op| -> Result<Reply, HostError> {
            Err(HostError::Op(OpError { kind: OpErrorKind::TimedOut, what: what.clone(), tail: vec![] }))
        };
        let agent: Arc<dyn Agent> = Arc::new(Stub(fails.clone(), answer));
        let found = survey(&desired, &Agents::from([(fails.clone(), agent)]), &facts, &Target::default()).await;
        let named: Surveys = [fails, lost].into_iter().zip(why.map(Err)).collect();
        assert_eq!(found.surveys, named);
    }
}

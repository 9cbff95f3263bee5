//! Metrics: what is served, and to which clients on the address of the host.

use super::*;
use crate::guard::book::Book;
use crate::guard::figures::{Effect, Figures, Snapshots};
use crate::guard::metrics::{serve, text};
use crate::guard::readers::Readers;
use crate::guard::repair::{LocalHost, Repairs};
use crate::model::drill::LastDrill;
use crate::model::healing::{METRICS_PORT, METRICS_READERS};
use crate::model::hold::Hold;
use crate::model::maintained::Maintained;
use crate::model::maintenance::Maintenance;
use crate::model::repair::{LocalStep, Runs, Switched};
use crate::model::standby::Voters;
use crate::protocol::{OpError, OpErrorKind};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const SNAPSHOTS: Snapshots = Snapshots { newest_ms: Some(-3_000), every_s: 900 };

const BOOT: &str = "6f1c2a3493e94c7a8e340f2f4f6f7b10/1";

fn text_of(played: &Played) -> String {
    text(&played.report(), played.state.etcd(played.now()), &played.state.figures)
}

#[test]
fn metrics_name_each_fault_with_its_host_and_kind() {
    let mut cp1 = Played::new();
    let found = [(FaultKind::EtcdFrozen, "process 7 is suspended".to_owned())];
    for _ in 0..20 {
        cp1.state.probed(&[FaultKind::EtcdFrozen], &found, cp1.now());
        cp1.second(&[], &[]);
    }
    assert_eq!(cp1.state.etcd(cp1.now()), None, "it was not asked yet");
    cp1.state.serves(Some(false));
    let text = text_of(&cp1);
    for line in [
        "hactl_etcd_serves 0\n",
        "hactl_etcd_members 3\n",
        "hactl_guard_up 1\n",
        "hactl_faults{host=\"cp1\",kind=\"EtcdFrozen\",class=\"confirmed\"} 1\n",
        "hactl_fault_seconds{host=\"cp1\",kind=\"EtcdFrozen\"} 20\n",
        "hactl_guard_heard{host=\"cp2\"} 0\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("hactl_clock_offset_seconds{"), "no clock is heard");
}

#[test]
fn alert_rules_and_the_guide_name_metrics_that_guards_serve() {
    let mut cp1 = Played::new();
    cp1.state.serves(Some(true));
    cp1.state.figures = Figures {
        certificate_ends_s: Some(9),
        snapshots: Some(SNAPSHOTS),
        maintained: Some(Maintained::default()),
        ..Figures::of_repairs()
    };
    let text = text_of(&cp1);
    let served: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let named = |text: &'static str| -> BTreeSet<&str> {
        let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
        words.filter(|word| word.starts_with("hactl_")).collect()
    };
    let rules = named(include_str!("../../../docs/alerts.yaml"));
    assert!(rules.len() >= 11 && rules.is_subset(&served), "{rules:?} of {served:?}");
    assert_eq!(named(include_str!("../../../docs/healing.md")), served);
}

#[test]
fn the_age_of_snapshots_and_drills_the_end_of_certificates_and_every_repair_are_served_as_numbers() {
    let mut cp1 = Played::new();
    let text = text_of(&cp1);
    for absent in ["hactl_certificate_days", "hactl_snapshot", "hactl_drill_age_seconds{", "hactl_guard_repairs_total{"]
    {
        assert!(!text.contains(absent), "{absent}: not measured, or nothing is repaired");
    }
    let snapshots = Some(Snapshots { newest_ms: None, ..SNAPSHOTS });
    cp1.state.figures = Figures { certificate_ends_s: Some(43_200), snapshots, ..Figures::of_repairs() };
    let text = text_of(&cp1);
    assert!(text.contains("hactl_certificate_days 0.5\n"), "{text}");
    assert!(text.contains("hactl_snapshot_interval_seconds 900\n") && !text.contains("snapshot_age_"), "{text}");
    cp1.state.figures.snapshots = Some(SNAPSHOTS);
    cp1.state.figures.drills = vec![
        LastDrill { identity: "owners", outcome: "restored", at_ms: -90_000 },
        LastDrill { identity: "host", outcome: "failed", at_ms: -60_000 },
    ];
    cp1.state.figures.count(FaultKind::EtcdFrozen, LocalStep::Restart, Effect::Helped);
    cp1.state.figures.count(FaultKind::EtcdFrozen, LocalStep::Reboot, Effect::Helped);
    let text = text_of(&cp1);
    for line in [
        "hactl_snapshot_age_seconds 3\n",
        "hactl_drill_age_seconds{identity=\"owners\",outcome=\"restored\"} 90\n",
        "hactl_drill_age_seconds{identity=\"host\",outcome=\"failed\"} 60\n",
        "# TYPE hactl_guard_repairs_total counter\n",
        "hactl_guard_repairs_total{kind=\"EtcdFrozen\",step=\"restart\",outcome=\"helped\"} 1\n",
        "hactl_guard_repairs_total{kind=\"EtcdFrozen\",step=\"reboot\",outcome=\"helped\"} 1\n",
        "hactl_guard_repairs_total{kind=\"EtcdStopped\",step=\"start\",outcome=\"failed\"} 0\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn the_guard_that_acts_on_maintenances_serves_how_far_they_are() {
    let mut cp1 = Played::new();
    assert!(!text_of(&cp1).contains("hactl_maintenances"), "another guard does");
    let object = |node: &str, status: Value| {
        Maintenance::of(&json!({
            "metadata": {"name": node, "uid": node}, "spec": {"nodeName": node, "stage": "Drain"}, "status": status,
        }))
        .unwrap()
    };
    let all = [
        object("w1", json!({"state": "Blocked", "drain": {"blockedCount": 2, "lastedSeconds": 90}})),
        object("w2", json!({"state": "Draining", "drain": {"lastedSeconds": 5}})),
        object("w3", json!({"state": "Rebooting", "reboot": {"boot": BOOT, "requestTime": "1970-01-01T00:00:00Z"}})),
        object("w4", Value::Null),
    ];
    let mut maintained = Maintained::of(all.iter(), BTreeMap::from([("accepted", 3), ("refused", 1)]));
    let asked_ms = maintained.reboots.get_mut(&name("w3")).unwrap();
    assert_eq!(std::mem::replace(asked_ms, -40_000), 0);
    cp1.state.figures.maintained = Some(maintained);
    let text = text_of(&cp1);
    for line in [
        "hactl_maintenances{state=\"Blocked\"} 1\n",
        "hactl_maintenances{state=\"Completed\"} 0\n",
        "hactl_drain_blocked_pods 2\n",
        "# TYPE hactl_evictions_total counter\nhactl_evictions_total{result=\"accepted\"} 3\n",
        "hactl_evictions_total{result=\"refused\"} 1\n",
        "hactl_drain_seconds{node=\"w1\"} 90\n",
        "hactl_drain_seconds{node=\"w2\"} 5\n",
        "hactl_reboot_seconds{node=\"w3\"} 40\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn a_step_has_the_same_name_in_metrics_and_in_records() {
    for step in Figures::of_repairs().repairs.into_keys().map(|(_, step, _)| step).chain([LocalStep::Reboot]) {
        assert_eq!(serde_json::to_value(step).unwrap(), step.word());
    }
}

#[test]
fn etcd_tolerates_as_many_failures_as_members_that_serve_are_more_than_a_quorum() {
    let tolerated = |serve: [bool; 3], voters: Option<&[&str]>| {
        let mut cp1 = Played::new();
        cp1.state.serves(Some(serve[0]));
        cp1.state
            .vote(voters.map(|hosts| Voters { hosts: hosts.iter().map(|host| name(host)).collect(), strangers: 0 }));
        let beat = |cp1: &Played, host, serves| Heartbeat { etcd: Some(serves), ..cp1.beat(host, &[]) };
        let beats = [beat(&cp1, "cp2", serve[1]), beat(&cp1, "cp3", serve[2])];
        cp1.second(&beats, &["cp2", "cp3"]);
        cp1.state.etcd(cp1.now()).unwrap().tolerated
    };
    assert_eq!(tolerated([true; 3], None), 1);
    assert_eq!(tolerated([true, false, true], None), 0);
    assert_eq!(tolerated([false; 3], None), 0, "there is no quorum");
    assert_eq!(tolerated([true; 3], Some(&["cp1", "cp2"])), 0, "two vote");
}

/// A host whose haproxy is frozen; the second attempt fails.
struct Frozen(Cell<u32>);

impl LocalHost for Frozen {
    type Lock = ();

    async fn runs(&self, _: FaultKind) -> Result<Option<Runs>, OpError> {
        Ok(Some(Runs::Suspended))
    }
    async fn is_usable(&self) -> bool {
        true
    }
    fn hold(&self, _: i64) -> Option<Hold> {
        None
    }
    fn retry_ms(&self) -> i64 {
        i64::MIN
    }
    async fn lock(&self, _: FaultKind, _: LocalStep) -> Result<Result<(), String>, OpError> {
        Ok(Ok(()))
    }
    async fn perform(&self, _: (FaultKind, LocalStep, Option<HostName>), (): &()) -> Result<(), OpError> {
        self.0.set(self.0.get() + 1);
        let error = OpError { kind: OpErrorKind::Failed, what: "no".to_owned(), tail: vec![] };
        if self.0.get() == 2 { Err(error) } else { Ok(()) }
    }
    fn switched(&self) -> Switched {
        Switched::Unknown
    }
}

#[tokio::test]
async fn each_attempt_is_counted_once_when_its_outcome_is_known() {
    let mut policy = policy(75);
    policy.healing.mode = Mode::On;
    let (cp1, host, mut repairs) = (shared(&policy, "cp1"), Frozen(Cell::new(0)), Repairs::of(Book::in_memory()));
    let kind = FaultKind::BalancerFrozen;
    let mut counts = Vec::new();
    for second in 0_u32..400 {
        let now = Now { steady: Duration::from_secs(second.into()), wall_ms: i64::from(second) * 1000 };
        let frozen = host.0.get() < 3;
        let found = [(kind, "it is suspended".to_owned())];
        cp1.with(|state| state.probed(&[kind], if frozen { &found } else { &[] }, now));
        cp1.with(|state| state.judge(now));
        repairs.turn(&cp1, &policy, &host, now).await;
        let count = |effect| cp1.with(|state| state.figures.repairs[&(kind, LocalStep::Restart, effect)]);
        let all = [Effect::Helped, Effect::Failed, Effect::Unhelpful].map(count);
        if counts.last() != Some(&all) {
            counts.push(all);
        }
    }
    assert_eq!(counts, [[0, 0, 0], [0, 1, 1], [1, 1, 1]]);
    assert_eq!(cp1.with(|state| state.figures.repairs.values().sum::<u64>()), 3, "nothing else is counted");
}

/// cp1, which serves its metrics with this identity to these readers.
fn serving(net: u8, identity: &Identity) -> ((Arc<Shared>, Readers), tokio::task::JoinHandle<()>) {
    let cp1 = shared(&policy(net), "cp1");
    let readers = Readers::of(identity.server().unwrap(), identity.authorities.clone());
    let serving = tokio::spawn(serve(Arc::clone(&cp1), Some(readers.clone())));
    ((cp1, readers), serving)
}

async fn connected(to: &Shared) -> TcpStream {
    let (address, until) = (SocketAddr::new(to.own.address, METRICS_PORT), Instant::now() + Duration::from_secs(10));
    loop {
        match TcpStream::connect(address).await {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a client with this configuration gets of cp1, and what cp1 said about clients.
async fn get((cp1, readers): &(Arc<Shared>, Readers), client: ClientConfig, path: &str) -> (String, String) {
    let (stream, address) = (connected(cp1).await, cp1.own.address);
    let mut got = Vec::new();
    let connector = TlsConnector::from(Arc::new(client));
    if let Ok(mut stream) = connector.connect(ServerName::from(address), stream).await {
        let request = format!("GET {path} HTTP/1.1\r\nHost: cp1\r\n\r\n");
        // A refusal ends the connection at any of these points.
        if stream.write_all(request.as_bytes()).await.is_ok() {
            let _ = stream.read_to_end(&mut got).await;
        }
    }
    let said = || readers.refused.lock().unwrap().iter().cloned().collect::<Vec<_>>().join("\n");
    let until = Instant::now() + Duration::from_secs(10);
    while got.is_empty() && said().is_empty() {
        assert!(Instant::now() < until, "neither an answer nor a refusal");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (String::from_utf8(got).unwrap(), said())
}

async fn read(net: u8, of_cp1: &Identity, client: ClientConfig, path: &str) -> (String, String) {
    let (cp1, serving) = serving(net, of_cp1);
    let found = get(&cp1, client, path).await;
    serving.abort();
    found
}

#[tokio::test]
async fn only_a_certificate_of_the_group_that_the_cluster_ca_itself_issued_reads_metrics_over_the_network() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let (cluster, stranger) = (root("cluster"), root("cluster"));
    let (signing, issuer) = (below("signing", &cluster), below("hactl cluster issuer on cp2", &cluster));
    let address = |n| IpAddr::from([127, 0, 77, n]);
    let leaf = |by, behind| Leaf {
        host: "cp2",
        group: METRICS_READERS,
        address: address(2),
        by,
        behind,
        trusts: &cluster,
        expired: false,
    };
    let direct = || leaf(&cluster, vec![]);
    let of_cp1 = Leaf { host: "cp1", group: GUARDS, address: address(1), ..direct() }.identity();

    let (got, said) = read(77, &of_cp1, direct().identity().client().unwrap(), "/metrics").await;
    assert!(got.starts_with("HTTP/1.1 200") && got.contains("\nhactl_guard_up 1\n") && said.is_empty(), "{got}{said}");
    let (got, _) = read(77, &of_cp1, direct().identity().client().unwrap(), "/").await;
    assert!(got.starts_with("HTTP/1.1 404") && !got.contains("hactl_"), "{got}");

    let not_reader = "not of group hactl:metrics alone, issued by the cluster CA itself";
    let refused = [
        ("another CA", Leaf { by: &stranger, ..direct() }, "invalid peer certificate"),
        ("expired", Leaf { expired: true, ..direct() }, "expired"),
        ("a guard", Leaf { group: GUARDS, ..direct() }, not_reader),
        ("an administrator", Leaf { group: "hactl:administrators", ..direct() }, not_reader),
        ("through the CA of CSRs", leaf(&signing, vec![&signing]), not_reader),
        ("the same without that CA", leaf(&signing, vec![]), "invalid peer certificate"),
        ("the same with the cluster CA instead", leaf(&signing, vec![&cluster]), "invalid peer certificate"),
        ("through the issuer of a host", leaf(&issuer, vec![&issuer]), not_reader),
        ("the same with the cluster CA first", leaf(&issuer, vec![&cluster, &issuer]), not_reader),
    ];
    for (what, leaf, why) in refused {
        let (got, said) = read(77, &of_cp1, leaf.identity().client().unwrap(), "/metrics").await;
        assert!(got.is_empty() && said.contains(why) && !said.contains("verification time"), "{what}: {got}{said:?}");
    }
    let mut roots = RootCertStore::empty();
    roots.add(cluster.der().clone()).unwrap();
    let nobody = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let (got, said) = read(77, &of_cp1, nobody, "/metrics").await;
    assert!(got.is_empty() && said.contains("no certificates"), "{got}{said:?}");
}

#[tokio::test]
async fn a_client_that_sends_nothing_keeps_no_place_for_long() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cluster = root("cluster");
    let address = |n| IpAddr::from([127, 0, 78, n]);
    let leaf = |host, group, address| {
        Leaf { host, group, address, by: &cluster, behind: vec![], trusts: &cluster, expired: false }.identity()
    };
    let of_cp1 = leaf("cp1", GUARDS, address(1));
    let reader = leaf("cp2", METRICS_READERS, address(2)).client().unwrap();
    let (cp1, serving) = serving(78, &of_cp1);
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(connected(&cp1.0).await);
    }
    let (got, said) = get(&cp1, reader, "/metrics").await;
    serving.abort();
    drop(idle);
    assert!(got.starts_with("HTTP/1.1 200"), "{got}{said}");
}

//! Guards on loopback, with real certificates: who is heard, and who is not.

mod compared;
mod metrics;
mod metrics_relay;
mod peer;
mod peer_snapshots;
mod powering;
mod repairing;

use super::ledger::Now;
use super::peers;
use super::shared::Shared;
use super::state::{Setup, State};
use crate::model::desired::{Role, sample};
use crate::model::fault::FaultKind;
use crate::model::guard_report::GuardReport;
use crate::model::healing::{GUARDS, GuardedHost, HEARTBEAT_PORT, Mode, Policy};
use crate::model::heartbeat::{Heartbeat, Sight};
use crate::model::names::{Digest, HostName};
use crate::transport::mtls::Identity;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn subject(common_name: &str, organization: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, common_name);
    subject.push(DnType::OrganizationName, organization);
    subject
}

fn ca_params(name: &str, below: Option<u8>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(name, "hactl");
    params.is_ca = IsCa::Ca(below.map_or(BasicConstraints::Unconstrained, BasicConstraints::Constrained));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn root(name: &str) -> Issuer {
    CertifiedIssuer::self_signed(ca_params(name, None), KeyPair::generate().unwrap()).unwrap()
}

fn below(name: &str, by: &Issuer) -> Issuer {
    CertifiedIssuer::signed_by(ca_params(name, Some(0)), KeyPair::generate().unwrap(), by).unwrap()
}

/// A certificate, as its issuer made it.
struct Leaf<'a> {
    host: &'a str,
    group: &'a str,
    address: IpAddr,
    by: &'a Issuer,
    behind: Vec<&'a Issuer>,
    trusts: &'a Issuer,
    expired: bool,
}

impl Leaf<'_> {
    fn identity(&self) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(&format!("hactl:guard:{}", self.host), self.group);
        params.subject_alt_names = vec![SanType::IpAddress(self.address)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        if self.expired {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        let signed = params.signed_by(&key, self.by).unwrap();
        let chain = std::iter::once(signed.der().clone()).chain(self.behind.iter().map(|ca| ca.der().clone()));
        Identity {
            authorities: vec![self.trusts.der().clone()],
            chain: chain.collect(),
            key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        }
    }
}

fn name(text: &str) -> HostName {
    text.parse().unwrap()
}

/// Three hosts at addresses of their own on loopback.
fn policy(net: u8) -> Policy {
    let mut desired = sample(3);
    desired.healing.mode = Mode::Watch;
    for (n, host) in (1..).zip(&mut desired.hosts) {
        host.address = IpAddr::from([127, 0, net, n]);
    }
    Policy::of(&desired)
}

fn setup(policy: &Policy, own: &str) -> Setup {
    Setup {
        own: policy.guard(&name(own)).unwrap().clone(),
        policy: policy.clone(),
        release: Digest::of(b"release"),
        boot: "0f3c6f5e-7d2c-4a1a-9a55-0123456789ab".to_owned(),
        started: Now { steady: Duration::ZERO, wall_ms: 0 },
    }
}

fn shared(policy: &Policy, own: &str) -> Arc<Shared> {
    let setup = setup(policy, own);
    Arc::new(Shared {
        own: setup.own.clone(),
        guards: policy.guards.clone(),
        api_port: policy.api_port,
        state: Mutex::new(State::new(setup)),
        begun: Instant::now(),
        said: Mutex::default(),
        refused: Mutex::default(),
        say: |_| (),
        events: tokio::sync::mpsc::channel(1).0,
    })
}

fn guard<'a>(policy: &'a Policy, host: &str) -> &'a GuardedHost {
    policy.guard(&name(host)).unwrap()
}

/// Whether cp1 hears heartbeats that are sent from the address of `from` with this identity; and what it said.
async fn is_heard(net: u8, from: &str, of_cp1: &Identity, sender: &Identity) -> (bool, String) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let policy = policy(net);
    let (cp1, other) = (shared(&policy, "cp1"), shared(&policy, from));
    let receiving =
        tokio::spawn(peers::receive(Arc::clone(&cp1), of_cp1.server().unwrap(), of_cp1.authorities.clone()));
    let client = Arc::new(sender.client().unwrap());
    let to = guard(&policy, "cp1").clone();
    let sending = tokio::spawn(peers::send(other, to, client, sender.authorities.clone()));
    let until = Instant::now() + Duration::from_secs(10);
    let settled = || {
        let said = cp1.refused.lock().unwrap().iter().cloned().collect::<Vec<_>>().join(
            "
",
        );
        let heard = ["cp2", "cp3"].iter().any(|host| cp1.with(|state| state.hears(&name(host), cp1.now())));
        (heard, said)
    };
    let mut found = settled();
    while !found.0 && found.1.is_empty() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
        found = settled();
    }
    receiving.abort();
    sending.abort();
    found
}

#[tokio::test]
async fn a_guard_hears_only_guards_of_its_cluster_at_their_own_addresses() {
    let (cluster, stranger) = (root("cluster"), root("cluster"));
    let (signing, issuer) = (below("signing", &cluster), below("hactl cluster issuer on cp2", &cluster));
    let other_issuer = below("hactl cluster issuer on cp3", &cluster);
    let address = |net, n| IpAddr::from([127, 0, net, n]);
    let leaf = |net, by, behind| Leaf {
        host: "cp2",
        group: GUARDS,
        address: address(net, 2),
        by,
        behind,
        trusts: &cluster,
        expired: false,
    };
    let of_cp1 = |net| Leaf { host: "cp1", address: address(net, 1), ..leaf(net, &cluster, vec![]) }.identity();

    let good = leaf(71, &cluster, vec![]).identity();
    assert_eq!(is_heard(71, "cp2", &of_cp1(71), &good).await, (true, String::new()));
    let renewed = leaf(72, &issuer, vec![&issuer]).identity();
    assert_eq!(is_heard(72, "cp2", &of_cp1(72), &renewed).await, (true, String::new()), "by the issuer on its host");

    let refused = [
        ("another CA", Leaf { by: &stranger, ..leaf(73, &cluster, vec![]) }, "cp2", "invalid peer certificate"),
        ("expired", Leaf { expired: true, ..leaf(73, &cluster, vec![]) }, "cp2", "expired"),
        ("another group", Leaf { group: "system:nodes", ..leaf(73, &cluster, vec![]) }, "cp2", "of another group"),
        ("through the CA of CSRs", leaf(73, &signing, vec![&signing]), "cp2", "not issued by the cluster CA or by"),
        ("the issuer of another host", leaf(73, &other_issuer, vec![&other_issuer]), "cp2", "or by the issuer of cp2"),
        ("from another address", leaf(73, &cluster, vec![]), "cp3", "the certificate is that of cp2"),
    ];
    for (what, leaf, from, why) in refused {
        let (heard, said) = is_heard(73, from, &of_cp1(73), &leaf.identity()).await;
        assert!(!heard && said.contains(why), "{what}: heard {heard}, said {said:?}");
    }
}

#[tokio::test]
async fn a_guard_sends_nothing_to_one_that_is_not_the_host_it_dialled() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cluster = root("cluster");
    let (cp1_at, policy) = (IpAddr::from([127, 0, 74, 1]), policy(74));
    let leaf = |host, address| {
        Leaf { host, group: GUARDS, address, by: &cluster, behind: vec![], trusts: &cluster, expired: false }.identity()
    };
    // cp3 has taken the address of cp1, with a certificate for that address but of its own name.
    let thief = leaf("cp3", cp1_at);
    let listening = shared(&policy, "cp1");
    let receiving =
        tokio::spawn(peers::receive(Arc::clone(&listening), thief.server().unwrap(), thief.authorities.clone()));
    let sender = leaf("cp2", IpAddr::from([127, 0, 74, 2]));
    let cp2 = shared(&policy, "cp2");
    let to = guard(&policy, "cp1").clone();
    let sending =
        tokio::spawn(peers::send(Arc::clone(&cp2), to, Arc::new(sender.client().unwrap()), sender.authorities.clone()));
    let until = Instant::now() + Duration::from_secs(10);
    let trouble = || cp2.with(|state| state.report(cp2.now())).others[&name("cp1")].trouble.clone();
    while !trouble().contains("that of cp3") {
        assert!(Instant::now() < until, "{:?}", trouble());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!listening.with(|state| state.hears(&name("cp2"), listening.now())));
    receiving.abort();
    sending.abort();
    assert_eq!(HEARTBEAT_PORT, 10270);
}

/// A guard of cp1 without sockets, at seconds of its own.
struct Played {
    state: State,
    seconds: u64,
}

impl Played {
    fn new() -> Self {
        Self { state: State::new(setup(&policy(75), "cp1")), seconds: 0 }
    }

    fn now(&self) -> Now {
        let wall_ms = i64::try_from(self.seconds).unwrap() * 1000;
        Now { steady: Duration::from_secs(self.seconds), wall_ms }
    }

    /// What the guard of a host sends.
    fn beat(&self, of: &str, sees: &[(&str, Sight)]) -> Heartbeat {
        let other = State::new(setup(&policy(75), of));
        let sees = sees.iter().map(|(host, sight)| (name(host), *sight)).collect();
        Heartbeat { sees, now_ms: 0, vip: of == "cp2", ..other.heartbeat(self.now()) }
    }

    /// Lets a second pass, with these heartbeats.
    fn second(&mut self, beats: &[Heartbeat], from: &[&str]) {
        self.seconds += 1;
        for (beat, from) in beats.iter().zip(from) {
            let beat = Heartbeat { now_ms: beat.now_ms + self.now().wall_ms, ..beat.clone() };
            self.state.received(&name(from), beat, self.now()).unwrap();
        }
        self.state.judge(self.now());
    }

    fn report(&self) -> GuardReport {
        self.state.report(self.now())
    }

    fn raised(&self) -> Vec<(String, FaultKind)> {
        let report = self.report();
        report.own.iter().chain(&report.presumed).map(|fault| (fault.host.to_string(), fault.kind)).collect()
    }
}

#[test]
fn a_host_that_goes_silent_is_unreachable_after_three_minutes_and_not_if_it_returns_before() {
    for silent_for in [150, 200] {
        let mut cp1 = Played::new();
        let both = [Sight::Heard, Sight::Heard];
        let cp2 = |cp1: &Played, cp3| cp1.beat("cp2", &[("cp1", both[0]), ("cp3", cp3)]);
        for _ in 0..20 {
            let beats = [cp2(&cp1, Sight::Heard), cp1.beat("cp3", &[("cp1", both[0]), ("cp2", both[1])])];
            cp1.second(&beats, &["cp2", "cp3"]);
        }
        for second in 0..silent_for {
            // Until the first attempt at its ports fails.
            cp1.state.dialled(&name("cp3"), second < 8);
            let beat = cp2(&cp1, if second < 8 { Sight::Answers } else { Sight::Silent });
            cp1.second(&[beat], &["cp2"]);
        }
        let unreachable = (silent_for > 195).then(|| ("cp3".to_owned(), FaultKind::HostUnreachable));
        assert_eq!(cp1.raised(), Vec::from_iter(unreachable.clone()), "silent for {silent_for} s");
        assert_eq!(cp1.report().pending.len(), usize::from(unreachable.is_none()));
        for _ in 0..70 {
            let beats = [cp2(&cp1, Sight::Heard), cp1.beat("cp3", &[("cp1", both[0]), ("cp2", both[1])])];
            cp1.second(&beats, &["cp2", "cp3"]);
        }
        assert_eq!(cp1.raised(), [], "it is back");
    }
}

#[test]
fn a_clock_that_differs_from_two_others_is_reported_by_its_own_host() {
    for (ahead_ms, skewed) in [(1500, false), (30_000, true), (-30_000, true)] {
        let mut cp1 = Played::new();
        for _ in 0..70 {
            let mut beats = [cp1.beat("cp2", &[]), cp1.beat("cp3", &[])];
            for beat in &mut beats {
                beat.now_ms = ahead_ms;
            }
            cp1.second(&beats, &["cp2", "cp3"]);
        }
        let found = cp1.raised().contains(&("cp1".to_owned(), FaultKind::ClockSkew));
        assert_eq!(found, skewed, "{ahead_ms} ms: {:?}", cp1.report().own);
    }
}

#[test]
fn a_guard_of_another_policy_reports_that_it_needs_up() {
    let mut cp1 = Played::new();
    for _ in 0..70 {
        let mut beats = [cp1.beat("cp2", &[]), cp1.beat("cp3", &[])];
        for beat in &mut beats {
            beat.policy = Digest::of(b"another");
        }
        cp1.second(&beats, &["cp2", "cp3"]);
    }
    assert!(cp1.raised().contains(&("cp1".to_owned(), FaultKind::NeedsUp)), "{:?}", cp1.raised());
}

#[test]
fn the_role_of_a_host_decides_what_is_probed() {
    use crate::agent::probe::Probe;
    let mut policy = policy(76);
    policy.guards[0].roles = vec![Role::Etcd];
    policy.guards[0].balances = false;
    let of = Probe::of(&policy.guards[0], &policy);
    let etcd = [Probe::Etcd, Probe::EtcdData, Probe::Alarms];
    assert_eq!(of, [&etcd[..], &[Probe::Disk, Probe::Certificates]].concat());
}

//! The port for other guards, on loopback with real certificates: who is served, and what is permitted.

use super::{GUARDS, Identity, Issuer, Leaf, name, policy, root};
use crate::agent::Root;
use crate::guard::peer::{PeerError, served};
use crate::model::desired::{Desired, sample};
use crate::model::facts::ClusterId;
use crate::model::healing::{Mode, PEER_PORT, Policy};
use crate::model::hold::HOLD;
use crate::model::names::{Digest, HostName, PeerUrl};
use crate::model::recovery::Room;
use crate::model::units::{etcd_balancer_unit, etcd_unit, kubelet_unit};
use crate::observe::KnownCluster;
use crate::protocol::{Balancing, EtcdAsk, GuardAsk, MemberChange, MemberStart, ObserveAsk, Op, Reply};
use crate::reconcile::{EtcdPast, RepairSpec, Spec};
use crate::transport::{Agent, Connect as _, Payload, Peers};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// The file of the hosts of a policy.
fn spec(policy: &Policy) -> RepairSpec {
    let mut desired: Desired = sample(3);
    for host in &mut desired.hosts {
        host.address = policy.guard(&host.name).unwrap().address;
    }
    let asks = desired.hosts.iter().map(|host| {
        let files = vec!["/etc/etcd/etcd.env".to_owned()];
        let etcd = Some(EtcdAsk::own("/var/lib/etcd"));
        (host.name.clone(), ObserveAsk { files, etcd, ..ObserveAsk::default() })
    });
    let cluster =
        ClusterId { cluster: desired.cluster.clone(), ca: Digest::of(b"ca"), stages: 0, host: None, machine: None };
    let spec = Spec {
        asks: asks.collect(),
        target: crate::model::target::Target::default(),
        known: KnownCluster::default(),
        generation: 0,
        cluster,
        desired,
    };
    RepairSpec { spec, past: EtcdPast::default() }
}

/// A network of its own on loopback, and a host that serves there as cp1.
pub(super) struct Place {
    pub(super) directory: tempfile::TempDir,
    pub(super) policy: Policy,
    pub(super) ca: Issuer,
}

impl Place {
    pub(super) async fn new(net: u8, mode: Mode) -> Self {
        let (directory, mut policy, ca) = (tempfile::tempdir().unwrap(), policy(net), root("cluster"));
        policy.healing.mode = mode;
        let place = Self { directory, policy, ca };
        let listener = TcpListener::bind(SocketAddr::new(place.address("cp1"), PEER_PORT)).await.unwrap();
        let (root, policy) = (Root::at(place.directory.path()), place.policy.clone());
        let identity = Arc::new(place.identity("cp1", "cp1", &place.ca));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (root, policy, identity) = (root.clone(), policy.clone(), Arc::clone(&identity));
                tokio::spawn(async move {
                    let spec = spec(&policy);
                    let outcome: Result<(), PeerError> =
                        served(&root, (&name("cp1"), &policy, &identity), || Ok(spec), stream).await;
                    outcome
                });
            }
        });
        place
    }

    pub(super) fn address(&self, host: &str) -> IpAddr {
        self.policy.guard(&name(host)).unwrap().address
    }

    pub(super) fn identity(&self, host: &str, at: &str, by: &Issuer) -> Identity {
        let address = self.address(at);
        let leaf = Leaf { host, group: GUARDS, address, by, behind: vec![], trusts: &self.ca, expired: false };
        leaf.identity()
    }

    /// A connection from an address with an identity.
    async fn enter(&self, from: IpAddr, identity: &Identity) -> Result<Arc<dyn Agent>, String> {
        let peers = Peers::new(from, identity, &self.policy).unwrap();
        let ssh = sample(3).hosts[0].ssh.clone();
        peers.connect(&name("cp1"), &ssh).await.map_err(|error| error.to_string())
    }

    /// As the guard of a host of the policy.
    async fn as_guard(&self, host: &str) -> Arc<dyn Agent> {
        self.enter(self.address(host), &self.identity(host, host, &self.ca)).await.unwrap()
    }
}

async fn ask(agent: &Arc<dyn Agent>, op: Op) -> Result<Reply, String> {
    let asked = agent.call(op, Payload::None, Duration::from_secs(20), &|_| {}).await;
    asked.map_err(|error| error.to_string())
}

fn lock() -> Op {
    Op::Lock { holder: "anything\nat all".to_owned() }
}

fn start() -> MemberStart {
    MemberStart { unit: kubelet_unit(), data_dir: "/".to_owned(), first_boot: "/etc/passwd".to_owned(), first: None }
}

#[tokio::test]
async fn only_guards_of_etcd_hosts_at_their_own_addresses_are_served_and_only_if_guards_repair() {
    let place = Place::new(81, Mode::On).await;
    let (cp2, cp3) = (place.address("cp2"), place.address("cp3"));
    assert!(place.enter(cp2, &place.identity("cp2", "cp2", &place.ca)).await.is_ok());
    let own = place.enter(place.address("cp1"), &place.identity("cp1", "cp1", &place.ca)).await;
    assert!(own.is_ok(), "its own guard, too");
    let of_another = place.enter(cp3, &place.identity("cp2", "cp2", &place.ca)).await;
    assert!(of_another.is_err(), "cp2's certificate from the address of cp3");
    let stranger = place.enter(IpAddr::from([127, 0, 81, 9]), &place.identity("cp2", "cp2", &place.ca)).await;
    assert!(stranger.is_err(), "an address outside the policy");
    let by_another = place.enter(cp2, &place.identity("cp2", "cp2", &root("another"))).await;
    assert!(by_another.is_err(), "a certificate of another CA");
    let watching = Place::new(82, Mode::Watch).await;
    let refused = watching.enter(watching.address("cp2"), &watching.identity("cp2", "cp2", &watching.ca)).await;
    assert!(refused.is_err(), "guards that only watch serve nobody");
}

#[tokio::test]
async fn a_guard_may_observe_and_lock_and_its_query_is_replaced_by_that_of_the_host() {
    let place = Place::new(83, Mode::On).await;
    let secret = place.directory.path().join("etc/shadow");
    std::fs::create_dir_all(secret.parent().unwrap()).unwrap();
    std::fs::write(&secret, "secret").unwrap();
    let cp2 = place.as_guard("cp2").await;
    let nosy = ObserveAsk { files: vec!["/etc/shadow".to_owned()], ..ObserveAsk::default() };
    let Ok(Reply::Facts(facts)) = ask(&cp2, Op::Observe(Box::new(nosy))).await else { panic!("no facts") };
    assert!(facts.files.is_empty(), "{:?}", facts.files);

    assert!(matches!(ask(&cp2, lock()).await, Ok(Reply::Locked { wanted: false, .. })));
    let cp3 = place.as_guard("cp3").await;
    let Ok(Reply::Held { by, yields, .. }) = ask(&cp3, lock()).await else { panic!("two holders") };
    assert_eq!((by.as_str(), yields), ("the guard of cp2 (a repair of etcd)", true));
    cp2.close().await;

    let hold = Root::at(place.directory.path()).path(HOLD).unwrap();
    std::fs::create_dir_all(hold.parent().unwrap()).unwrap();
    std::fs::write(&hold, "").unwrap();
    let held = ask(&place.as_guard("cp3").await, lock()).await.unwrap_err();
    assert!(held.contains("cp1 is held by a file on the host"), "{held}");
}

#[tokio::test]
async fn a_guard_changes_no_other_member_than_its_own_and_nothing_else() {
    let place = Place::new(84, Mode::On).await;
    let cp2 = place.as_guard("cp2").await;
    assert!(matches!(ask(&cp2, lock()).await, Ok(Reply::Locked { .. })));
    let peer = |host: &str| PeerUrl::of(place.address(host));
    let etcd = || EtcdAsk::own("/elsewhere");
    let change = |change| Op::ChangeMembers { etcd: etcd(), change };
    let passed_over = |member: &str| Op::Balance {
        unit: etcd_balancer_unit(),
        how: Balancing::PassOver { member: name(member), most_s: 5 },
    };
    let not_gone = "the guard of cp1 does not see that cp";
    let only_own = "changes no other member than its own";
    let only_itself = "only the guard of cp1 repairs its member";
    let only_what = "permits guards only what";
    let refused: [(Op, &str); 19] = [
        (change(MemberChange::Remove(peer("cp3"))), not_gone),
        (change(MemberChange::Remove(peer("cp1"))), not_gone),
        (change(MemberChange::AddLearner(peer("cp3"))), only_own),
        (change(MemberChange::Promote(peer("cp3"))), only_own),
        (change(MemberChange::Lead(peer("cp2"))), "no repair by guards takes"),
        (change(MemberChange::Move(peer("cp2"), peer("cp3"))), "no repair by guards takes"),
        (Op::ArchiveData(etcd()), only_itself),
        (Op::StartMember(start()), only_itself),
        (Op::Seal { data_dir: "/".to_owned(), cluster: "cafe".to_owned() }, only_itself),
        (Op::Blame { unit: etcd_unit() }, only_itself),
        (passed_over("cp3"), only_what),
        (Op::MakeRoom { etcd: etcd(), room: Room::Agreed }, only_what),
        (Op::MakeRoom { etcd: etcd(), room: Room::Compact }, only_what),
        (Op::ReadFiles { paths: vec!["/etc/shadow".to_owned()] }, only_what),
        (Op::WriteFiles { files: vec![], remove: vec!["/etc/passwd".to_owned()], keep: None }, only_what),
        (Op::StopUnits { units: vec![etcd_unit()] }, only_what),
        (Op::ReadBundle { name: "../../../etc/shadow".to_owned(), from: 0 }, "is not the name of a snapshot"),
        (Op::Guard(GuardAsk::Resume), only_what),
        (Op::Relay { to: place.address("cp1"), port: 22 }, "does not ask for connections"),
    ];
    for (op, why) in refused {
        let shown = format!("{op:?}");
        let error = ask(&cp2, op).await.map(|reply| format!("{reply:?}")).unwrap_err();
        assert!(error.contains(why), "{shown}: {error}");
    }
    // What it may ask for fails only because there is no etcd.
    let own = ask(&cp2, change(MemberChange::Promote(peer("cp2")))).await.unwrap_err();
    assert!(!own.contains("changes no other") && !own.contains("permits guards"), "{own}");
    let hash = ask(&cp2, Op::EtcdHash { etcd: etcd(), revision: 1 }).await.unwrap_err();
    assert!(!hash.contains("permits guards"), "{hash}");
    let host: &HostName = cp2.name();
    assert_eq!(host, &name("cp1"));
}

#[tokio::test]
async fn a_host_pauses_its_balancer_for_guards_once_in_a_while() {
    let place = Place::new(86, Mode::On).await;
    let pause = || Op::Balance { unit: etcd_unit(), how: Balancing::Pause { most_ms: 60_000 } };
    let paused = Root::at(place.directory.path()).path("/run/hactl/paused-for-a-guard").unwrap();
    std::fs::create_dir_all(paused.parent().unwrap()).unwrap();
    let cp2 = place.as_guard("cp2").await;
    // It fails only because there is no systemd.
    let permitted = ask(&cp2, pause()).await.unwrap_err();
    assert!(!permitted.contains("permits guards") && !permitted.contains("was paused"), "{permitted}");
    for host in ["cp2", "cp3"] {
        let refused = ask(&place.as_guard(host).await, pause()).await.unwrap_err();
        assert!(refused.contains("was paused for a guard within the last 20 s"), "{refused}");
    }
    let resume = Op::Balance { unit: etcd_unit(), how: Balancing::Resume };
    let resumed = ask(&cp2, resume).await.unwrap_err();
    assert!(!resumed.contains("permits guards"), "{resumed}");
}

#[tokio::test]
async fn a_host_hands_over_the_lead_and_disarms_the_alarm_for_its_own_guard_only() {
    let place = Place::new(85, Mode::On).await;
    let cp1 = place.as_guard("cp1").await;
    assert!(matches!(ask(&cp1, lock()).await, Ok(Reply::Locked { .. })));
    let etcd = || EtcdAsk::own("/elsewhere");
    let to = PeerUrl::of(place.address("cp2"));
    // These fail only because there is no etcd.
    for op in [
        Op::ChangeMembers { etcd: etcd(), change: MemberChange::Lead(to) },
        Op::MakeRoom { etcd: etcd(), room: Room::Agreed },
    ] {
        let shown = format!("{op:?}");
        let error = ask(&cp1, op).await.unwrap_err();
        assert!(!error.contains("no repair by guards") && !error.contains("permits guards"), "{shown}: {error}");
    }
    for room in [Room::Compact, Room::Defragment, Room::Disarm] {
        let error = ask(&cp1, Op::MakeRoom { etcd: etcd(), room }).await.unwrap_err();
        assert!(error.contains("permits guards only what"), "{room:?}: {error}");
    }
}

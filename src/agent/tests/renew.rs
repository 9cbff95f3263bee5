//! Certificates that a host renews automatically, with real CAs.

use super::*;
use crate::issue::{self, Signer};
use crate::model::certificate::CertFact;
use crate::model::facts::LeafFact;
use crate::model::leaf::needs_renewal;
use crate::model::renewal::{Renewed, SETTINGS, Settings};
use crate::model::secret::Secret;
use crate::model::target::{CaId, CertId, CertSpec};
use crate::protocol::ObserveAsk;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use time::{Duration as Days, OffsetDateTime};

/// A host with one leaf certificate of a CA, and an issuer below it.
struct World {
    place: Place,
    authority: CertifiedIssuer<'static, KeyPair>,
    settings: Settings,
}

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

impl World {
    /// The issuer is valid for so many more days; the leaf certificate was issued so many days ago for a year.
    fn new(issuer_days: u32, leaf_age: i64) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
        params.distinguished_name.push(DnType::CommonName, "lab cluster CA");
        params.not_before = now() - Days::days(2000);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let id = CertFact::read_pem(authority.pem().as_bytes()).remove(0).key_id;
        let leaf = |leaf_id: CertId, days: u32| CertSpec {
            id: leaf_id,
            ca: CaId::Cluster,
            authority: id.clone(),
            common_name: leaf_id.to_string(),
            organizations: vec!["hactl".to_owned()],
            sans: if leaf_id.issues() { vec![] } else { vec!["DNS:kubernetes".to_owned()] },
            server: !leaf_id.issues(),
            client: false,
            days,
            cert_path: format!("/etc/pki/{leaf_id}.crt"),
            key_path: format!("/etc/pki/{leaf_id}.key"),
            owner: me(),
            self_renewing: false,
            serves_by: None,
        };
        let leaves = vec![leaf(CertId::Apiserver, 365), leaf(CertId::ClusterIssuer, issuer_days)];
        let world = Self { place: Place::new(), authority, settings: Settings { leaves, readers: vec![] } };
        world.issued(0, leaf_age);
        world.issued(1, 0);
        world.settle();
        world
    }
    fn leaf(&self) -> &CertSpec {
        &self.settings.leaves[0]
    }
    /// Makes the CA itself sign one of them, some days ago.
    fn issued(&self, which: usize, age: i64) {
        let leaf = &self.settings.leaves[which];
        let key = KeyPair::generate().unwrap();
        let mut asked = CertificateParams::default();
        asked.distinguished_name = DistinguishedName::new();
        let request = asked.serialize_request(&key).unwrap().pem().unwrap();
        let pem = self.authority.pem();
        let signer = Signer {
            cert_pem: &pem,
            key: &Secret::new(self.authority.key().serialize_pem()),
            not_after_s: (now() + Days::days(3000)).unix_timestamp(),
            behind: "",
        };
        let signed = issue::sign(&request, leaf, &signer, now() - Days::days(age)).unwrap();
        self.place.write(&leaf.cert_path, signed);
        self.place.write(&leaf.key_path, key.serialize_pem());
    }
    /// Writes the current settings.
    fn settle(&self) {
        self.place.write(SETTINGS, serde_json::to_vec(&self.settings).unwrap());
    }
    async fn renew(&self) -> Result<Renewed, String> {
        crate::agent::pki::renew(Root::at(self.place.at("/"))).await.expect("nothing goes wrong")
    }
    async fn fact(&self) -> LeafFact {
        let ask = ObserveAsk { leaves: vec![self.leaf().clone()], ..ObserveAsk::default() };
        let reply = self.place.client().ask(Op::Observe(Box::new(ask))).await.unwrap();
        let Reply::Facts(mut facts) = reply else { panic!() };
        facts.leaves.remove(&self.leaf().id).unwrap()
    }
    fn now_ms() -> i64 {
        now().unix_timestamp() * 1000
    }
}

#[tokio::test]
async fn a_certificate_near_its_end_is_renewed_by_the_hosts_own_issuer_and_counts_as_signed_by_its_ca() {
    for age in [250, 400] {
        let world = World::new(1000, age);
        let (before, key) = (world.fact().await, world.place.read("/etc/pki/apiserver.key"));
        assert!(needs_renewal(world.leaf(), Some(&before), World::now_ms()).is_some(), "{age}");
        let turn = world.renew().await.unwrap();
        assert_eq!((turn.leaves.len(), turn.left.len(), turn.looked_at), (1, 0, 1), "{turn:?}");
        let fact = world.fact().await;
        assert_eq!(fact.through.as_deref(), Some(world.leaf().authority.as_str()));
        assert_ne!(fact.authority, world.leaf().authority);
        assert_eq!(needs_renewal(world.leaf(), Some(&fact), World::now_ms()), None);
        assert_ne!(world.place.read("/etc/pki/apiserver.key"), key, "its key is a new one");
        assert!(!world.place.list("/etc/pki").iter().any(|name| name.ends_with(".new")));
        assert_eq!(world.renew().await.unwrap().leaves, [], "once is enough");
    }
}

#[tokio::test]
async fn certificates_with_time_left_or_of_another_ca_stay_as_they_are() {
    let mut world = World::new(1000, 200);
    let before = world.place.read("/etc/pki/apiserver.crt");
    assert_eq!(world.renew().await.unwrap(), Renewed { looked_at: 1, ..Renewed::default() });
    world.issued(0, 300);
    let other = world.place.read("/etc/pki/apiserver.crt");
    world.settings.leaves[0].authority = "00".repeat(20);
    world.settle();
    assert_eq!(world.renew().await.unwrap(), Renewed { looked_at: 1, ..Renewed::default() });
    assert_eq!(world.place.read("/etc/pki/apiserver.crt"), other);
    assert_ne!(before, other);
}

#[tokio::test]
async fn certificates_that_no_issuer_can_renew_are_reported_and_stay() {
    let ending = World::new(20, 300);
    let gone = World::new(1000, 300);
    std::fs::remove_file(gone.place.at("/etc/pki/cluster-issuer.crt")).unwrap();
    let strange = World::new(1000, 300);
    strange.place.write("/etc/pki/cluster-issuer.key", KeyPair::generate().unwrap().serialize_pem());
    for (world, words) in [
        (ending, "only `hactl up` can renew it"),
        (gone, "the cluster-issuer does not exist"),
        (strange, "was changed since hactl made it"),
    ] {
        let before = world.place.read("/etc/pki/apiserver.crt");
        let turn = world.renew().await.unwrap();
        assert!(turn.leaves.is_empty() && turn.left.len() == 1 && turn.left[0].1.contains(words), "{turn:?}");
        assert!(turn.left[0].1.starts_with("it expires in "), "{turn:?}");
        assert_eq!(world.place.read("/etc/pki/apiserver.crt"), before);
    }
}

#[tokio::test]
async fn a_turn_that_was_cut_off_between_key_and_certificate_is_made_good() {
    let world = World::new(1000, 1);
    world.place.write("/etc/pki/apiserver.key", KeyPair::generate().unwrap().serialize_pem());
    assert!(!world.fact().await.key_matches);
    assert_eq!(world.renew().await.unwrap().leaves.len(), 1);
    assert!(world.fact().await.key_matches);
}

#[tokio::test]
async fn while_a_run_has_the_host_nothing_is_renewed() {
    let world = World::new(1000, 300);
    let run = world.place.locked().await;
    let said = world.renew().await.unwrap_err();
    assert!(said.contains("lock"), "{said}");
    drop(run);
}

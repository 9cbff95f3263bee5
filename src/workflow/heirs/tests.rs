//! Choosing among states that were found.

use super::*;
use crate::model::rotation::Rotatable;
use crate::pki::brought::Brought;
use crate::pki::{Contents, found, rotate};
use crate::snapshot::new_identity;
use crate::statedir::{Carried, carry, uncarry};
use time::{Duration, OffsetDateTime};

fn at(day: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap() + Duration::days(day)
}

fn contents() -> Contents {
    found(&"lab".parse().unwrap(), Brought::default(), at(0)).unwrap()
}

/// A copy, through its serialized form.
fn carried(contents: &Contents) -> Carried {
    uncarry(&carry(&"lab".parse().unwrap(), contents, &new_identity(), "")).unwrap()
}

fn on(host: &str, contents: &Contents) -> Candidate {
    Candidate::of(host.to_owned(), carried(contents))
}

fn rotated(contents: &Contents, day: i64) -> Contents {
    let mut contents = carried(contents).contents;
    rotate::begin(&"lab".parse().unwrap(), &mut contents, Rotatable::ClusterCa, at(day)).unwrap();
    rotate::issue(&mut contents, Rotatable::ClusterCa, at(day)).unwrap();
    rotate::end(&mut contents, Rotatable::ClusterCa, at(day));
    rotate::finish(&mut contents, Rotatable::ClusterCa);
    contents
}

/// A foreign state that claims to be this cluster's, and the latest one.
fn lying(ours: &Contents) -> Contents {
    let mut lie = contents();
    (lie.rotations.founded, lie.rotations.stages) = (ours.rotations.founded, u64::MAX);
    lie
}

fn chosen(found: Vec<Candidate>, wanted: Option<Digest>) -> Result<String, Refusal> {
    choose(found, wanted).map(|one| one.from)
}

#[test]
fn the_latest_successor_of_one_chain_is_chosen_and_a_false_stage_number_changes_nothing() {
    let first = contents();
    let second = rotated(&first, 10);
    let third = rotated(&second, 20);
    let all = || vec![on("cp1", &first), on("cp2", &third), on("cp3", &second)];
    assert_eq!(chosen(all(), None), Ok("cp2".to_owned()));
    let refused = chosen([all(), vec![on("w1", &lying(&first))]].concat_all(), None);
    let Err(Refusal::SeveralCas { claims }) = refused else { panic!("two CAs: {refused:?}") };
    assert_eq!(claims.len(), 4, "each with its fingerprint and sources: {claims:?}");
    let lie = lying(&first);
    for known in [first.rotations.founded, second.cluster.fingerprint(), third.cluster.fingerprint()] {
        let found = [all(), vec![on("w1", &lie)]].concat_all();
        assert_eq!(chosen(found, Some(known)), Ok("cp2".to_owned()), "a person knows it");
    }
    let nobody = Digest::of(b"another");
    assert!(matches!(chosen(all(), Some(nobody)), Err(Refusal::OtherCa { wanted: Some(ca), .. }) if ca == nobody));
    assert!(matches!(chosen(vec![], None), Err(Refusal::OtherCa { wanted: None, .. })));
}

#[test]
fn a_stolen_first_ca_does_not_replace_its_successor_and_a_person_chooses_between_two_successors() {
    let first = contents();
    let (ours, theirs) = (rotated(&first, 10), rotated(&first, 11));
    let mut stolen = carried(&first).contents;
    stolen.rotations.stages = 1_000_000;
    assert_eq!(chosen(vec![on("cp1", &stolen), on("cp2", &ours)], None), Ok("cp2".to_owned()));
    let both = || vec![on("cp1", &theirs), on("cp2", &ours)];
    for unclear in [None, Some(first.rotations.founded)] {
        assert!(matches!(chosen(both(), unclear), Err(Refusal::SeveralCas { claims }) if claims.len() == 2));
    }
    assert_eq!(chosen(both(), Some(ours.cluster.fingerprint())), Ok("cp2".to_owned()));
}

#[test]
fn a_state_of_another_ca_than_most_hosts_live_with_is_refused_unless_a_person_knows_it() {
    let ours = contents();
    let (cluster, etcd, other) = (ours.cluster.fingerprint(), ours.etcd.fingerprint(), Digest::of(b"another"));
    let shown = |hosts: &[(&str, &[Digest])]| {
        hosts.iter().map(|(host, cas)| (host.parse().unwrap(), cas.iter().copied().collect())).collect()
    };
    let judge = |hosts, known| judge_shown(&on("cp1", &ours), &shown(hosts), known);
    let bare: &[(&str, &[Digest])] = &[("cp1", &[]), ("cp2", &[])];
    assert!(judge(bare, false).unwrap().starts_with("no etcd or control-plane host"));
    let well: &[(&str, &[Digest])] = &[("cp1", &[cluster, other]), ("e1", &[etcd]), ("cp3", &[])];
    assert_eq!(
        judge(well, false).unwrap(),
        "all 2 etcd and control-plane hosts that answer and are not bare have this CA"
    );
    let most: &[(&str, &[Digest])] = &[("cp1", &[cluster]), ("cp2", &[etcd]), ("cp3", &[other])];
    assert!(judge(most, false).unwrap().contains("hosts with ANOTHER CA: cp3"));
    let few: &[(&str, &[Digest])] = &[("cp1", &[cluster]), ("cp2", &[other])];
    assert!(matches!(judge(few, false), Err(Refusal::CaNotShown { differ, .. }) if differ == "cp2"));
    assert!(judge(few, true).unwrap().contains("hosts with ANOTHER CA: cp2"));
}

/// Concatenated lists.
trait Joined<T> {
    fn concat_all(self) -> Vec<T>;
}

impl<T, const N: usize> Joined<T> for [Vec<T>; N] {
    fn concat_all(self) -> Vec<T> {
        self.into_iter().flatten().collect()
    }
}

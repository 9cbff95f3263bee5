//! Replaces a CA or key in stages: created and distributed, then used, then the only one.
//!
//! In: the contents of a state directory, the time. Out: the contents at the next stage. This module does not know when
//! a stage is complete: its caller has checked every host.

use super::PkiError;
use super::found::{BELOW_CLUSTER, BELOW_OTHERS, intermediate, kubelet_serving, root, signed_by, token_key};
use crate::model::certificate::CertFact;
use crate::model::names::ClusterName;
use crate::model::rotation::{Rotatable, Stage};
use crate::model::secret::Secret;
use crate::statedir::{
    Authority, BadAuthority, Contents, Former, KeyText, PublicAuthority, Rotation, new_encryption_key,
};
use time::OffsetDateTime;

/// Creates the new CA or key. Changes nothing if a rotation is in progress.
///
/// # Errors
/// Keys that cannot be created.
pub fn begin(
    cluster: &ClusterName,
    contents: &mut Contents,
    what: Rotatable,
    now: OffsetDateTime,
) -> Result<(), PkiError> {
    if contents.stage(what).is_some() {
        return Ok(());
    }
    // Two CAs of the same name would differ only in their keys, which not every program handles.
    let cluster_id = now
        .format(time::macros::format_description!("[year]-[month]-[day] [hour]:[minute]:[second]"))
        .unwrap_or_default();
    let name = |which: &str| format!("{cluster} {which} CA of {cluster_id}");
    let mut made: Vec<(Rotatable, KeyText)> = Vec::new();
    match what {
        Rotatable::ClusterCa => {
            let above = root(&name("cluster"), BELOW_CLUSTER, now)?;
            let signing = intermediate(&name("signing"), &above, now)?;
            made.push((Rotatable::SigningCa, of(&signing)));
            made.push((what, of(&above)));
        }
        Rotatable::EtcdCa => made.push((what, of(&root(&name("etcd"), BELOW_OTHERS, now)?))),
        Rotatable::FrontProxyCa => made.push((what, of(&root(&name("front-proxy"), BELOW_OTHERS, now)?))),
        Rotatable::SigningCa => made.push((what, of(&intermediate(&name("signing"), &contents.cluster, now)?))),
        Rotatable::KubeletServingCa => {
            made.push((what, of(&kubelet_serving(&format!("{cluster} kubelet-serving CA of {cluster_id}"), now)?)));
        }
        Rotatable::ServiceAccount => {
            let pair = token_key()?;
            made.push((what, KeyText { public: pair.public, private: pair.private }));
        }
        Rotatable::Encryption => {
            let key = new_encryption_key().map_err(PkiError::Random)?;
            made.push((what, KeyText { public: String::new(), private: key }));
        }
    }
    for (what, other) in made {
        contents.rotations.under_way.insert(what, turn_at(Stage::Spread, other, now));
    }
    contents.rotations.stages += 1;
    Ok(())
}

fn turn_at(stage: Stage, other: KeyText, now: OffsetDateTime) -> Rotation {
    Rotation { stage, other, since_s: now.unix_timestamp(), everywhere_s: None }
}

fn of(authority: &Authority) -> KeyText {
    KeyText::of(authority.cert_pem(), authority.key())
}

/// The new one replaces the old one, which stays trusted. Changes nothing if that is done already.
///
/// # Errors
/// The new CA or key is invalid: a bug in hactl.
pub fn issue(contents: &mut Contents, what: Rotatable, now: OffsetDateTime) -> Result<(), PkiError> {
    if contents.stage(what) != Some(Stage::Spread) {
        return Ok(());
    }
    if what == Rotatable::ClusterCa {
        let next = cross(contents, now)?;
        contents.rotations.cross.clone_from(&next);
        let former = Former { public: contents.cluster.public().clone(), next, until_s: None };
        contents.rotations.former.push(former);
    }
    for what in what.along().iter().copied() {
        let Some(turn) = contents.rotations.under_way.remove(&what) else { continue };
        let old = contents.pair(what);
        contents.put(what, turn.other).map_err(|source| unusable(what, source))?;
        if what == Rotatable::Encryption {
            contents.rotations.retired.push(Secret::new(old.private.reveal().clone()));
        }
        // The old key signs nothing any more, so it is not kept.
        let other = KeyText { public: old.public, private: Secret::new(String::new()) };
        contents.rotations.under_way.insert(what, turn_at(Stage::Issued, other, now));
    }
    contents.rotations.stages += 1;
    Ok(())
}

/// The new cluster CA, cross-signed by the previous one; `None` if the previous one has expired.
fn cross(contents: &Contents, now: OffsetDateTime) -> Result<Option<PublicAuthority>, PkiError> {
    let what = Rotatable::ClusterCa;
    let Some(turn) = contents.rotations.under_way.get(&what) else { return Ok(None) };
    if contents.cluster.public().not_after_s <= now.unix_timestamp() {
        return Ok(None);
    }
    let next = Authority::new(turn.other.public.clone(), Secret::new(turn.other.private.reveal().clone()));
    let next = next.map_err(|source| unusable(what, source))?;
    let name = CertFact::read_pem(next.cert_pem().as_bytes()).into_iter().next().map(|fact| fact.common_name);
    let pem = signed_by(&next, &name.unwrap_or_default(), &contents.cluster, now)?;
    PublicAuthority::new(pem).map(Some).map_err(|source| unusable(what, source))
}

fn unusable(what: Rotatable, source: BadAuthority) -> PkiError {
    PkiError::Authority { what: what.to_string(), source }
}

/// Every host is at this stage; recorded the first time only.
pub fn arrived(contents: &mut Contents, what: Rotatable, now: OffsetDateTime) {
    for what in what.along() {
        if let Some(turn) = contents.rotations.under_way.get_mut(what) {
            turn.everywhere_s.get_or_insert(now.unix_timestamp());
        }
    }
}

/// Ends trust in the old one. Changes nothing if the new one is not in use.
pub fn end(contents: &mut Contents, what: Rotatable, now: OffsetDateTime) {
    if contents.stage(what) != Some(Stage::Issued) {
        return;
    }
    if what == Rotatable::ClusterCa
        && let Some(former) = contents.rotations.former.last_mut()
    {
        former.until_s.get_or_insert(now.unix_timestamp());
    }
    for what in what.along() {
        if let Some(turn) = contents.rotations.under_way.get_mut(what) {
            (turn.stage, turn.since_s, turn.everywhere_s) = (Stage::Ending, now.unix_timestamp(), None);
        }
    }
    contents.rotations.stages += 1;
}

/// No host trusts the old one any more.
pub fn finish(contents: &mut Contents, what: Rotatable) {
    for what in what.along() {
        contents.rotations.under_way.remove(what);
    }
}

/// Data restored from a snapshot may be encrypted with any earlier key: all of them decrypt again, until everything has
/// been rewritten.
pub fn reread(contents: &mut Contents, now: OffsetDateTime) {
    let turn = contents.rotations.under_way.get(&Rotatable::Encryption);
    if contents.rotations.retired.is_empty() || turn.is_some_and(|turn| turn.stage == Stage::Issued) {
        return;
    }
    // A key that was distributed but not used yet encrypts nothing.
    let other = KeyText { public: String::new(), private: Secret::new(String::new()) };
    contents.rotations.under_way.insert(Rotatable::Encryption, turn_at(Stage::Issued, other, now));
    contents.rotations.stages += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::brought::Brought;
    use crate::pki::found;

    const DAY: i64 = 86_400;

    fn at(day: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000 + day * DAY).unwrap()
    }

    fn founded() -> (ClusterName, Contents) {
        let cluster: ClusterName = "lab".parse().unwrap();
        let contents = found(&cluster, Brought::default(), at(0)).unwrap();
        (cluster, contents)
    }

    fn certificates(pem: &str) -> usize {
        pem.matches("-----BEGIN").count()
    }

    #[test]
    fn the_current_and_the_previous_signing_ca_are_trusted_at_every_stage() {
        for what in Rotatable::ALL.into_iter().filter(|what| *what != Rotatable::Encryption) {
            let (cluster, mut contents) = founded();
            let trusted = |contents: &Contents| {
                let all = contents.publics().trusted;
                match what {
                    Rotatable::ClusterCa => all.cluster,
                    Rotatable::EtcdCa => all.etcd,
                    Rotatable::FrontProxyCa => all.front_proxy,
                    Rotatable::SigningCa => all.signing,
                    Rotatable::KubeletServingCa => all.kubelet_serving,
                    Rotatable::ServiceAccount | Rotatable::Encryption => all.service_account,
                }
            };
            let old = contents.pair(what).public;
            begin(&cluster, &mut contents, what, at(1)).unwrap();
            assert_eq!(contents.pair(what).public, old, "{what}: the old one signs");
            let spread = trusted(&contents);
            assert_eq!(certificates(&spread), 2, "{what}");

            issue(&mut contents, what, at(2)).unwrap();
            let new = contents.pair(what).public;
            assert_ne!(new, old, "{what}: the new one signs");
            assert_eq!(trusted(&contents), spread, "{what}: a host that trusts both needs no other file");
            assert!(contents.rotations.under_way[&what].other.private.reveal().is_empty(), "{what}: its key is gone");

            arrived(&mut contents, what, at(3));
            arrived(&mut contents, what, at(4));
            assert_eq!(
                contents.rotations.under_way[&what].everywhere_s,
                Some(at(3).unix_timestamp()),
                "{what}: the first time"
            );
            end(&mut contents, what, at(5));
            assert_eq!(trusted(&contents).trim(), new.trim(), "{what}: the old one is no longer trusted");
            assert_eq!(contents.stage(what), Some(Stage::Ending), "{what}: until all hosts have reached that stage");
            let stages = contents.rotations.stages;
            finish(&mut contents, what);
            assert_eq!((stages, contents.rotations.stages), (3, 3), "{what}: hosts go through three stages, not four");
            assert_eq!(trusted(&contents).trim(), new.trim(), "{what}");
            assert!(contents.rotations.under_way.is_empty());
            assert_eq!(
                contents.rotations.founded,
                founded_with(&old, what, &contents),
                "{what}: the cluster keeps its identity"
            );
        }
    }

    fn founded_with(old: &str, what: Rotatable, contents: &Contents) -> crate::model::names::Digest {
        match what {
            Rotatable::ClusterCa => PublicAuthority::new(old.to_owned()).unwrap().fingerprint,
            _ => contents.cluster.fingerprint(),
        }
    }

    #[test]
    fn a_stage_is_reached_once_however_often_it_is_asked_for() {
        let (cluster, mut contents) = founded();
        begin(&cluster, &mut contents, Rotatable::ClusterCa, at(1)).unwrap();
        let next = contents.rotations.under_way[&Rotatable::ClusterCa].other.public.clone();
        begin(&cluster, &mut contents, Rotatable::ClusterCa, at(2)).unwrap();
        assert_eq!(contents.rotations.under_way[&Rotatable::ClusterCa].other.public, next);
        for day in [3, 4] {
            issue(&mut contents, Rotatable::ClusterCa, at(day)).unwrap();
            assert_eq!(contents.cluster.cert_pem(), next);
            assert_eq!(contents.rotations.under_way[&Rotatable::ClusterCa].since_s, at(3).unix_timestamp());
        }
    }

    #[test]
    fn the_intermediate_follows_the_ca_above_it() {
        let (cluster, mut contents) = founded();
        begin(&cluster, &mut contents, Rotatable::ClusterCa, at(1)).unwrap();
        issue(&mut contents, Rotatable::ClusterCa, at(2)).unwrap();
        let signing = CertFact::read_pem(contents.signing.cert_pem().as_bytes());
        assert_eq!(signing[0].authority, contents.cluster.id());
        assert_eq!(contents.stage(Rotatable::SigningCa), Some(Stage::Issued));
    }

    #[test]
    fn the_previous_ca_cross_signs_the_new_one() {
        let (cluster, mut contents) = founded();
        let old = contents.cluster.public().clone();
        begin(&cluster, &mut contents, Rotatable::ClusterCa, at(1)).unwrap();
        issue(&mut contents, Rotatable::ClusterCa, at(2)).unwrap();
        let cross = contents.rotations.cross.as_ref().expect("one that has not expired cross-signs");
        let fact = CertFact::read_pem(cross.cert_pem.as_bytes()).remove(0);
        let new = CertFact::read_pem(contents.cluster.cert_pem().as_bytes()).remove(0);
        assert_eq!((fact.authority, &fact.key_id), (old.id, &new.key_id), "the same key, signed by the old one");
        assert_eq!(fact.common_name, new.common_name);
        assert!(fact.not_after_s <= old.not_after_s);
        finish(&mut contents, Rotatable::ClusterCa);
        assert!(contents.rotations.cross.is_some(), "programs that have not been restarted since still need it");
    }

    #[test]
    fn a_cluster_without_a_kubelet_serving_ca_gets_one_and_trusts_the_previous_signer_at_every_stage() {
        let (cluster, mut contents) = founded();
        contents.kubelet_serving = None;
        let what = Rotatable::KubeletServingCa;
        let signing = contents.signing.public().clone();
        assert_eq!(contents.publics().kubelet_serving, signing);
        assert_eq!(contents.publics().trusted.kubelet_serving.trim(), signing.cert_pem.trim());

        begin(&cluster, &mut contents, what, at(1)).unwrap();
        let spread = contents.publics();
        assert_eq!(spread.kubelet_serving, signing, "the previous signer still signs");
        assert_eq!(certificates(&spread.trusted.kubelet_serving), 2);
        assert!(spread.trusted.kubelet_serving.contains(signing.cert_pem.trim()));

        issue(&mut contents, what, at(2)).unwrap();
        let issued = contents.publics();
        assert_ne!(issued.kubelet_serving, signing);
        assert_eq!(issued.trusted.kubelet_serving, spread.trusted.kubelet_serving);
        end(&mut contents, what, at(3));
        finish(&mut contents, what);
        assert_eq!(contents.publics().trusted.kubelet_serving.trim(), issued.kubelet_serving.cert_pem.trim());
        assert_eq!(contents.signing.public(), &signing, "the signer for clients stays");
        let trusted = contents.publics().trusted;
        let clients = [trusted.cluster, trusted.signing].concat();
        assert!(!clients.contains(issued.kubelet_serving.cert_pem.trim()));
    }

    #[test]
    fn an_expired_ca_cross_signs_nothing() {
        let (cluster, mut contents) = founded();
        begin(&cluster, &mut contents, Rotatable::ClusterCa, at(3700)).unwrap();
        issue(&mut contents, Rotatable::ClusterCa, at(3700)).unwrap();
        assert!(contents.rotations.cross.is_none());
    }

    fn keys(contents: &Contents) -> Vec<(String, String)> {
        contents.material().encryption.iter().map(|key| (key.name.clone(), key.key.reveal().clone())).collect()
    }

    #[test]
    fn a_key_for_secrets_decrypts_before_it_encrypts_and_keeps_its_name() {
        let (cluster, mut contents) = founded();
        let first = keys(&contents).remove(0);
        assert_eq!(first.0, "key1");
        for turn in 1..=2 {
            let before = keys(&contents).remove(0);
            begin(&cluster, &mut contents, Rotatable::Encryption, at(turn)).unwrap();
            let spread = keys(&contents);
            assert_eq!((&spread[0], spread.len()), (&before, 2), "the old one encrypts");
            issue(&mut contents, Rotatable::Encryption, at(turn)).unwrap();
            let issued = keys(&contents);
            assert_eq!((&issued[0], &issued[1]), (&spread[1], &before), "the new one encrypts, the old one decrypts");
            end(&mut contents, Rotatable::Encryption, at(turn));
            assert_eq!(keys(&contents), [issued[0].clone()]);
            finish(&mut contents, Rotatable::Encryption);
            assert_eq!(keys(&contents), [issued[0].clone()]);
        }
        reread(&mut contents, at(9));
        let names: Vec<String> = keys(&contents).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["key3", "key2", "key1"], "a snapshot may be of any age");
        assert!(keys(&contents).contains(&first));
    }
}

//! The state directory: created, opened, changed and damaged.

use super::*;
use crate::model::names::PeerUrl;
use crate::model::recovery::{Origin, Recovery};
use crate::model::rotation::{Rotatable, Stage};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use std::os::unix::fs::PermissionsExt as _;

fn name() -> ClusterName {
    "lab".parse().unwrap()
}

fn authority() -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let cert = params.self_signed(&key).unwrap();
    Authority::new(cert.pem(), Secret::new(key.serialize_pem())).unwrap()
}

fn contents() -> Contents {
    let tokens = KeyPair::generate().unwrap();
    let cluster = authority();
    Contents {
        rotations: Rotations::never(cluster.fingerprint()),
        cluster,
        etcd: authority(),
        front_proxy: authority(),
        signing: authority(),
        kubelet_serving: Some(authority()),
        service_account: KeyPairPem { private: Secret::new(tokens.serialize_pem()), public: tokens.public_key_pem() },
        encryption: new_encryption_key().unwrap(),
    }
}

fn made() -> (tempfile::TempDir, PathBuf, StateDir) {
    let root = tempfile::tempdir().unwrap();
    let dir = StateDir::default_dir(root.path(), &name());
    let state_dir = StateDir::create(&dir, &name(), contents()).unwrap();
    (root, dir, state_dir)
}

fn trouble(dir: &Path) -> StateDirError {
    match StateDir::open(dir, &name()) {
        Err(error) => error,
        Ok(found) => panic!("it opened: {}", found.is_some()),
    }
}

#[test]
fn contents_are_read_back_as_written() {
    let (_root, dir, state_dir) = made();
    let again = StateDir::open(&dir, &name()).unwrap().unwrap();
    assert_eq!(state_dir.contents().publics(), again.contents().publics());
    assert_eq!(
        state_dir.contents().material().encryption[0].key.reveal(),
        again.contents().material().encryption[0].key.reveal()
    );
    assert_eq!(
        state_dir.contents().material().signing_key_pem.reveal(),
        again.contents().material().signing_key_pem.reveal()
    );
    assert!(
        matches!(&again.journal().unwrap()[0].entry, Entry::Founded { ca, .. } if *ca == state_dir.contents().publics().cluster.fingerprint)
    );
}

#[test]
fn a_missing_state_directory_is_none() {
    let root = tempfile::tempdir().unwrap();
    assert!(StateDir::open(&root.path().join("lab"), &name()).unwrap().is_none());
}

#[test]
fn only_its_owner_can_read_its_files() {
    let (_root, dir, _state_dir) = made();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(dir.parent().unwrap())), (0o700, 0o700));
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
    assert_eq!(std::fs::read_to_string(dir.join(".gitignore")).unwrap(), "*\n");
}

#[test]
fn a_state_directory_that_others_can_read_is_refused_with_the_chmod_command() {
    let (_root, dir, _state_dir) = made();
    let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    set(&dir, 0o755);
    assert!(trouble(&dir).to_string().contains(&format!("chmod 700 {}", dir.display())));
    set(&dir, 0o700);
    for secret in ["cluster-ca.key", "signing-ca.key", "service-account.key", "encryption.key", "journal.jsonl"] {
        set(&dir.join(secret), 0o640);
        let words = trouble(&dir).to_string();
        assert!(words.contains(&format!("chmod 600 {}", dir.join(secret).display())), "{words}");
        set(&dir.join(secret), 0o600);
    }
    assert!(StateDir::open(&dir, &name()).unwrap().is_some());
}

#[test]
fn a_missing_or_damaged_file_is_named() {
    let (_root, dir, _state_dir) = made();
    let files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
    // The identity is read only for encryption; another test covers it.
    let read = |p: &&PathBuf| p.is_file() && !p.ends_with(".gitignore") && !p.ends_with(IDENTITY);
    for path in files.iter().filter(read) {
        let good = std::fs::read(path).unwrap();
        let at = path.display().to_string();
        std::fs::remove_file(path).unwrap();
        assert!(
            matches!(trouble(&dir), StateDirError::Missing { .. }) && trouble(&dir).to_string().contains(&at),
            "{at}"
        );
        files::create_new(path, 0o600).unwrap();
        std::fs::write(path, b"\xff garbage\n").unwrap();
        assert!(trouble(&dir).to_string().contains(&at) || path.ends_with("cluster"), "{at}: {}", trouble(&dir));
        std::fs::write(path, &good).unwrap();
    }
    assert!(StateDir::open(&dir, &name()).unwrap().is_some());
}

#[test]
fn a_key_of_another_ca_is_not_accepted() {
    let (_root, dir, _state_dir) = made();
    std::fs::copy(dir.join("etcd-ca.key"), dir.join("cluster-ca.key")).unwrap();
    let words = trouble(&dir).to_string();
    assert!(words.contains("cluster-ca.key") && words.contains("not the certificate's"), "{words}");
}

#[test]
fn a_state_directory_is_never_overwritten_and_never_opened_for_another_cluster() {
    let (_root, dir, state_dir) = made();
    let more = contents();
    assert!(matches!(StateDir::create(&dir, &name(), more), Err(StateDirError::Exists { .. })));
    assert_eq!(StateDir::open(&dir, &name()).unwrap().unwrap().contents().publics(), state_dir.contents().publics());
    let other = StateDir::open(&dir, &"prod".parse().unwrap());
    assert!(matches!(other, Err(StateDirError::OtherCluster { .. })));
}

#[test]
fn a_killed_creation_leaves_no_state_directory_and_does_not_block_the_next_one() {
    let root = tempfile::tempdir().unwrap();
    let dir = StateDir::default_dir(root.path(), &name());
    let half = dir.parent().unwrap().join(".lab.new");
    std::fs::create_dir_all(&half).unwrap();
    std::fs::write(half.join("cluster-ca.key"), "half").unwrap();
    assert!(StateDir::open(&dir, &name()).unwrap().is_none());
    StateDir::create(&dir, &name(), contents()).unwrap();
    assert!(StateDir::open(&dir, &name()).unwrap().is_some() && !half.exists());
}

#[test]
fn a_bootstrap_token_is_remembered_until_spent_and_never_used_twice() {
    let (_root, dir, state_dir) = made();
    let token = state_dir.bootstrap_token().unwrap();
    assert_eq!(token.len(), 32);
    assert_eq!(StateDir::open(&dir, &name()).unwrap().unwrap().bootstrap_token().unwrap(), token);
    state_dir.spend_genesis("abc").unwrap();
    state_dir.spend_genesis("abc").unwrap();
    assert!(matches!(state_dir.spend_genesis("def"), Err(StateDirError::NothingToSpend { .. })));
    assert_ne!(state_dir.bootstrap_token().unwrap(), token);
}

#[test]
fn a_line_that_was_never_finished_does_not_count_and_other_damage_is_an_error() {
    let (_root, dir, state_dir) = made();
    let token = state_dir.bootstrap_token().unwrap();
    let path = dir.join("journal.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{whole}{{\"at\":\"2026")).unwrap();
    assert_eq!(state_dir.journal().unwrap().len(), 2);
    assert_eq!(state_dir.bootstrap_token().unwrap(), token);
    state_dir.record(Entry::Consent { to: "restore".into(), how: "--yes".into() }).unwrap();
    assert_eq!(state_dir.journal().unwrap().len(), 3);
    std::fs::write(&path, format!("nonsense\n{whole}")).unwrap();
    assert!(trouble(&dir).to_string().contains("line 1"));
    std::fs::write(&path, "").unwrap();
    assert!(trouble(&dir).to_string().contains("does not begin"), "an emptied journal would forget a used token");
}

#[test]
fn the_second_of_two_runs_learns_the_holder_of_the_lock() {
    let (_root, _dir, state_dir) = made();
    let first = state_dir.lock("up").unwrap();
    let Err(StateDirError::Held { holder, .. }) = state_dir.lock("recover") else { panic!("both hold it") };
    assert!(holder.contains("hactl up") && holder.contains(&format!("pid {}", std::process::id())), "{holder}");
    assert!(holder.contains("since 20"), "{holder}");
    drop(first);
    state_dir.lock("recover").unwrap();
}

#[test]
fn the_issuer_of_a_certificate_is_the_ca_that_it_names() {
    let (_root, _dir, state_dir) = made();
    let publics = state_dir.contents().publics();
    for id in [&publics.cluster.id, &publics.etcd.id, &publics.front_proxy.id, &publics.signing.id] {
        assert_eq!(publics_of(&state_dir, id).unwrap(), *id);
    }
    assert!(matches!(publics_of(&state_dir, "00"), Err(StateDirError::NoSuchAuthority { .. })));
}

fn publics_of(state_dir: &StateDir, id: &str) -> Result<String, StateDirError> {
    use crate::model::target::{CaId, CertId};
    let leaf = crate::model::target::CertSpec {
        id: CertId::Observer,
        ca: CaId::Cluster,
        authority: id.into(),
        common_name: "x".into(),
        organizations: vec![],
        sans: vec![],
        server: false,
        client: true,
        days: 1,
        cert_path: "/x".into(),
        key_path: "/y".into(),
        owner: "root".into(),
        self_renewing: false,
        serves_by: None,
    };
    state_dir.contents().issuer(&leaf).map(|a| a.id().to_owned())
}

#[test]
fn a_recovery_that_was_agreed_to_is_open_until_it_made_a_cluster() {
    let (_root, _dir, state_dir) = made();
    assert_eq!(state_dir.past().unwrap().open, None);
    let recovery = Recovery {
        id: "00ff00ff".to_owned(),
        source: crate::model::recovery::Origin::Data("cp3".parse().unwrap()),
        reach: (5, 1200),
        base: 1_000_000_900,
        members: vec![("cp3".parse().unwrap(), PeerUrl::of("10.0.0.13".parse().unwrap()))],
        undo: false,
    };
    state_dir.record(Entry::RecoveryChosen { recovery: recovery.clone(), instead_of: None }).unwrap();
    assert_eq!(state_dir.past().unwrap().recovered(), None, "agreed to is not done");
    assert_eq!(state_dir.past().unwrap().open, Some(recovery.clone()));
    state_dir.record(Entry::RecoveryEnded { id: "00ff00ff".to_owned(), cluster_id: "c2".to_owned() }).unwrap();
    assert_eq!(state_dir.past().unwrap().open, None);
    assert_eq!(
        state_dir.past().unwrap().bootstrapped.as_deref(),
        Some("c2"),
        "the cluster that it bootstrapped is the current one"
    );
    assert_eq!(state_dir.past().unwrap().recovered(), Some(1_000_000_900), "lower revisions are of an earlier cluster");
    let undo = Recovery { id: "11ff11ff".to_owned(), base: 2_000_000_900, ..recovery };
    state_dir.record(Entry::RecoveryChosen { recovery: undo.clone(), instead_of: None }).unwrap();
    state_dir.record(Entry::RecoveryDropped { id: "11ff11ff".to_owned() }).unwrap();
    assert_eq!(state_dir.past().unwrap().open, None);
    assert_eq!(state_dir.past().unwrap().recovered(), Some(1_000_000_900), "c2 still answers: nothing replaced it");
    assert_eq!(state_dir.past().unwrap().dropped, ["11ff11ff".to_owned()].into());
    assert_eq!(state_dir.past().unwrap().leapt, 2_000_000_900, "the next one starts above an abandoned recovery too");
    assert!(state_dir.past().unwrap().lived.contains("c2"));
    let other = Recovery { id: "22ff22ff".to_owned(), ..undo };
    state_dir
        .record(Entry::RecoveryChosen { recovery: other.clone(), instead_of: Some("00aa00aa".to_owned()) })
        .unwrap();
    let past = state_dir.past().unwrap();
    assert_eq!((past.open, past.dropped.contains("00aa00aa")), (Some(other), true), "both or neither");
    state_dir.record(Entry::RecoveryDropped { id: "22ff22ff".to_owned() }).unwrap();
    let last = |state_dir: &StateDir| state_dir.past().unwrap().last.map(|(recovery, whole)| (recovery.id, whole));
    assert_eq!(last(&state_dir), Some(("00ff00ff".to_owned(), false)), "its cleanup was not recorded");
    state_dir.record(Entry::RecoveryWhole { id: "00ff00ff".to_owned() }).unwrap();
    assert_eq!(last(&state_dir), Some(("00ff00ff".to_owned(), true)));
    state_dir.record(Entry::TakenDown { deleted: false }).unwrap();
    let past = state_dir.past().unwrap();
    assert_eq!(past.recovered(), None, "a new cluster begins with its own revisions");
    assert_eq!((past.bootstrapped.as_ref(), past.lived.contains("c2")), (None, true));
    assert!(past.taken_down_ms.is_some(), "older snapshots are of another cluster");
    assert_eq!(past.leapt, 2_000_000_900, "a revision is never reused");
}

#[test]
fn a_portable_state_is_the_same_state_and_decrypts_data_encrypted_for_it() {
    let (_root, _, state_dir) = made();
    let named = vec!["age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p".to_owned()];
    let sealed = state_dir.sealed(&name(), "schema: 1\n", &named, true).unwrap();
    assert_eq!(
        state_dir.sealed(&name(), "schema: 1\n", &named, true).unwrap(),
        sealed,
        "unchanged content is not encrypted again"
    );
    assert_ne!(state_dir.sealed(&name(), "schema: 1\nmore: 1\n", &named, true).unwrap(), sealed);
    assert_eq!(state_dir.recipients(&named).unwrap().len(), 2);
    let identities = crate::snapshot::Identities::parse(&state_dir.identity().unwrap()).unwrap();
    let carried = uncarry(&identities.text(sealed.as_bytes(), 1 << 20).unwrap()).unwrap();
    assert_eq!((carried.cluster, carried.inventory.as_str()), (name(), "schema: 1\n"));
    assert_eq!(carried.identity.reveal(), state_dir.identity().unwrap().reveal());
    assert_eq!(carried.contents.publics(), state_dir.contents().publics());
    let kept =
        |c: &Contents| c.encryption.reveal().clone() + c.etcd.key().reveal() + c.service_account.private.reveal();
    assert_eq!(kept(&carried.contents), kept(state_dir.contents()));
}

#[test]
fn an_invalid_portable_state_is_refused_without_quoting_it() {
    for text in ["", "{}", "{\"schema\": 1, \"secret\": \"SECRET\"}", "SECRET"] {
        let error = uncarry(&Secret::new(text.to_owned())).map(drop).expect_err("it is invalid").to_string();
        assert!(!error.contains("SECRET"), "{error}");
    }
}

#[test]
fn a_missing_identity_is_not_replaced_and_only_the_lock_holder_stores_the_encrypted_state() {
    let (_root, dir, state_dir) = made();
    state_dir.sealed(&name(), "a", &[], false).unwrap();
    assert!(!dir.join("state.age").exists());
    state_dir.sealed(&name(), "a", &[], true).unwrap();
    std::fs::remove_file(state_dir.identity_path()).unwrap();
    assert!(matches!(state_dir.identity(), Err(StateDirError::Missing { .. })));
}

#[test]
fn a_state_directory_is_rebuilt_from_its_portable_form_and_knows_of_the_bootstrap() {
    let (root, _, state_dir) = made();
    let text = carry(&name(), state_dir.contents(), &state_dir.identity().unwrap(), "schema: 1\n");
    let again = root.path().join("again");
    StateDir::recreate(&again, uncarry(&text).unwrap()).unwrap();
    let found = StateDir::open(&again, &name()).unwrap().unwrap();
    assert_eq!(found.past().unwrap().bootstrapped.as_deref(), Some("rebuilt"));
    assert_eq!(found.identity().unwrap().reveal(), state_dir.identity().unwrap().reveal());
    assert_eq!(std::fs::read_to_string(again.join(INVENTORY)).unwrap(), "schema: 1\n");
}

#[test]
fn hosts_that_were_taken_in_are_remembered_as_the_inventory_had_them_last() {
    let (_root, dir, state_dir) = made();
    let hosts = crate::model::desired::sample(3).hosts;
    let names = |state_dir: &StateDir| {
        state_dir
            .hosts()
            .unwrap()
            .into_iter()
            .map(|known| (known.host.name.to_string(), known.left))
            .collect::<Vec<_>>()
    };
    assert_eq!(state_dir.hosts().unwrap(), []);
    state_dir.note_hosts(&[&hosts[0], &hosts[1]], &[]).unwrap();
    let mut moved = hosts[1].clone();
    moved.address = "10.88.0.99".parse().unwrap();
    state_dir.note_hosts(&[&moved, &hosts[2]], &[&hosts[0].name]).unwrap();
    let kept = |name: &str, left| (name.to_owned(), left);
    assert_eq!(names(&state_dir), [kept("cp1", true), kept("cp2", false), kept("cp3", false)]);
    assert_eq!(state_dir.hosts().unwrap()[1].host, moved);
    // A host that joins again is no longer removed.
    state_dir.note_hosts(&[&hosts[0]], &[]).unwrap();
    assert_eq!(names(&state_dir)[0], kept("cp1", false));
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(dir.join("hosts.json")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let cidr = |base: &str, prefix| crate::model::desired::Cidr { base: base.parse().unwrap(), prefix };
    let range = |pods: &str| Ranges { pods: cidr(pods, 16), services: cidr("10.96.0.0", 12) };
    assert_eq!(state_dir.ranges().unwrap(), None);
    state_dir.note_ranges(range("10.100.0.0"), true).unwrap();
    state_dir.note_ranges(range("10.244.0.0"), true).unwrap();
    state_dir.note_ranges(range("10.200.0.0"), false).unwrap();
    assert_eq!(state_dir.ranges().unwrap(), Some(range("10.244.0.0")), "the last CIDRs before the bootstrap count");
    assert_eq!(state_dir.url().unwrap(), None);
    state_dir.note_url("https://10.88.0.100:6443").unwrap();
    state_dir.note_url("https://10.88.0.101:6443").unwrap();
    assert_eq!(state_dir.url().unwrap().as_deref(), Some("https://10.88.0.101:6443"));
    assert_eq!(state_dir.ranges().unwrap(), Some(range("10.244.0.0")));
    assert_eq!(names(&state_dir).len(), 3, "no host is forgotten");
    state_dir.forget_hosts().unwrap();
    assert_eq!((state_dir.hosts().unwrap(), state_dir.ranges().unwrap()), (vec![], None));
    assert_eq!(state_dir.url().unwrap(), None);
    std::fs::write(dir.join("hosts.json"), "{").unwrap();
    assert!(matches!(state_dir.hosts(), Err(StateDirError::Corrupt { .. })));
}

/// A rotation of etcd's CA at this stage.
fn turned(state_dir: &mut StateDir, stage: Stage) {
    let next = authority();
    let other = KeyText { public: next.cert_pem().to_owned(), private: Secret::new(next.key().reveal().clone()) };
    let change = |contents: &mut Contents| {
        contents
            .rotations
            .under_way
            .insert(Rotatable::EtcdCa, Rotation { stage, other, since_s: 7, everywhere_s: Some(9) });
        contents.rotations.stages = 5;
        contents.rotations.retired.push(Secret::new("c2VjcmV0".to_owned()));
        contents.rotations.cross = Some(contents.cluster.public().clone());
        contents
            .put(Rotatable::FrontProxyCa, contents.pair(Rotatable::SigningCa))
            .map_err(|bad| StateDirError::Corrupt { path: PathBuf::new(), why: bad.to_string() })
    };
    state_dir.change(change).unwrap();
}

fn same_rotation(one: &Contents, other: &Contents) {
    let (a, b) = (&one.rotations, &other.rotations);
    assert_eq!((a.founded, &a.cross, a.stages), (b.founded, &b.cross, b.stages));
    let (of, and) = (&a.under_way[&Rotatable::EtcdCa], &b.under_way[&Rotatable::EtcdCa]);
    assert_eq!((of.stage, of.since_s, of.everywhere_s), (and.stage, and.since_s, and.everywhere_s));
    assert_eq!(of.other.public, and.other.public);
    assert_eq!(of.other.private.reveal(), and.other.private.reveal());
    let keys = |of: &[Secret<String>]| of.iter().map(|key| key.reveal().clone()).collect::<Vec<_>>();
    assert_eq!(keys(&a.retired), keys(&b.retired));
    assert_eq!(one.publics(), other.publics());
}

#[test]
fn a_state_from_before_kubelets_had_a_ca_of_their_own_is_read_and_carried_as_it_was() {
    let root = tempfile::tempdir().unwrap();
    let dir = StateDir::default_dir(root.path(), &name());
    let mut state_dir = StateDir::create(&dir, &name(), Contents { kubelet_serving: None, ..contents() }).unwrap();
    // Other changes do not create one.
    state_dir
        .change::<StateDirError>(|contents| {
            contents.rotations.stages = 1;
            Ok(())
        })
        .unwrap();
    let again = StateDir::open(&dir, &name()).unwrap().unwrap();
    assert!(again.contents().kubelet_serving.is_none());
    assert_eq!(again.contents().publics().kubelet_serving, again.contents().publics().signing);
    let text = carry(&name(), again.contents(), &again.identity().unwrap(), "schema: 1\n");
    assert!(!text.reveal().contains("kubelet_serving"));
    assert!(uncarry(&text).unwrap().contents.kubelet_serving.is_none());

    let next = authority();
    let pair = KeyText { public: next.cert_pem().to_owned(), private: Secret::new(next.key().reveal().clone()) };
    let put = |contents: &mut Contents| {
        let bad = |bad: BadAuthority| StateDirError::Corrupt { path: PathBuf::new(), why: bad.to_string() };
        contents.put(Rotatable::KubeletServingCa, pair).map_err(bad)
    };
    state_dir.change(put).unwrap();
    let again = StateDir::open(&dir, &name()).unwrap().unwrap();
    assert_eq!(again.contents().publics().kubelet_serving.id, next.id());
    let text = carry(&name(), again.contents(), &again.identity().unwrap(), "schema: 1\n");
    assert_eq!(uncarry(&text).unwrap().contents.publics(), again.contents().publics());

    for half in ["kubelet-serving-ca.crt", "kubelet-serving-ca.key"] {
        let kept = std::fs::read(dir.join(half)).unwrap();
        std::fs::remove_file(dir.join(half)).unwrap();
        assert!(matches!(trouble(&dir), StateDirError::Missing { .. }), "{half} alone is lost");
        files::put(&dir.join(half), std::str::from_utf8(&kept).unwrap()).unwrap();
    }
}

#[test]
fn a_rotation_in_progress_survives_reopening_and_rebuilding_the_state_directory() {
    for stage in [Stage::Spread, Stage::Issued] {
        let (root, dir, mut state_dir) = made();
        turned(&mut state_dir, stage);
        let again = StateDir::open(&dir, &name()).unwrap().unwrap();
        same_rotation(state_dir.contents(), again.contents());
        assert_eq!(
            state_dir.contents().front_proxy.id(),
            state_dir.contents().signing.id(),
            "and another one is in use"
        );

        let text = carry(&name(), state_dir.contents(), &state_dir.identity().unwrap(), "schema: 1\n");
        let elsewhere = root.path().join("elsewhere/lab");
        let rebuilt = StateDir::recreate(&elsewhere, uncarry(&text).unwrap()).unwrap();
        same_rotation(state_dir.contents(), rebuilt.contents());
        same_rotation(state_dir.contents(), StateDir::open(&elsewhere, &name()).unwrap().unwrap().contents());
    }
}

#[test]
fn a_run_killed_while_keys_are_written_leaves_those_that_it_meant() {
    let (_root, dir, mut state_dir) = made();
    turned(&mut state_dir, Stage::Issued);
    let meant = state_dir.contents().publics();
    let file = dir.join("rotations.json");
    let whole = std::fs::read_to_string(&file).unwrap();
    assert!(whole.contains("\"current\":null"), "the CAs and keys in use are in their own files");
    // As after the first of the three writes: the files are old or half written.
    let pairs = Rotatable::ALL.map(|what| {
        let pair = state_dir.contents().pair(what);
        let (public, private) = (serde_json::to_string(&pair.public), serde_json::to_string(pair.private.reveal()));
        format!("\"{what}\":{{\"public\":{},\"private\":{}}}", public.unwrap(), private.unwrap())
    });
    let cut = whole.replace("\"current\":null", &format!("\"current\":{{{}}}", pairs.join(",")));
    std::fs::write(&file, cut).unwrap();
    for name in ["front-proxy-ca.crt", "etcd-ca.key", "encryption.key"] {
        std::fs::write(dir.join(name), "half").unwrap();
    }
    let mut again = StateDir::open(&dir, &name()).unwrap().unwrap();
    assert_eq!(again.contents().publics(), meant);
    again.change::<StateDirError>(|_| Ok(())).unwrap();
    assert_eq!(StateDir::open(&dir, &name()).unwrap().unwrap().contents().publics(), meant);
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"current\":null"));
    assert!(!std::fs::read_to_string(dir.join("etcd-ca.key")).unwrap().contains("half"));
}

#[test]
fn a_state_without_rotations_keeps_the_original_portable_form() {
    let (_root, dir, state_dir) = made();
    let text = carry(&name(), state_dir.contents(), &state_dir.identity().unwrap(), "schema: 1\n");
    assert!(!text.reveal().contains("rotations"));
    assert!(!dir.join("rotations.json").exists());
    // A completed rotation counts, because hosts store the number.
    let mut turned = uncarry(&text).unwrap().contents;
    turned.rotations.stages = 3;
    let carried = uncarry(&carry(&name(), &turned, &state_dir.identity().unwrap(), "schema: 1\n")).unwrap();
    assert_eq!(carried.contents.rotations.stages, 3);
    let carried = uncarry(&text).unwrap();
    assert_eq!(carried.contents.rotations.founded, state_dir.contents().publics().cluster.fingerprint);
}

#[test]
fn damage_to_a_rotation_in_progress_is_named_without_quoting_its_keys() {
    let (_root, dir, mut state_dir) = made();
    turned(&mut state_dir, Stage::Spread);
    let file = dir.join("rotations.json");
    let whole = std::fs::read_to_string(&file).unwrap();
    for (bad, says) in [
        (whole.replacen("\"schema\":1", "\"schema\":9", 1), "schema 9"),
        (whole.replace("CERTIFICATE-----\\nMI", "CERTIFICATE-----\\nXX"), "no readable certificate"),
        (whole[..whole.len() / 2].to_owned(), "at byte"),
    ] {
        std::fs::write(&file, bad).unwrap();
        let words = trouble(&dir).to_string();
        assert!(words.contains("rotations.json") && words.contains(says), "{says}: {words}");
        assert!(!words.contains("PRIVATE"), "{words}");
    }
}

#[test]
fn a_recovery_at_an_implausible_revision_is_ignored_and_reported_until_it_is_closed() {
    let (_root, _, state_dir) = made();
    state_dir.bootstrap_token().unwrap();
    state_dir.spend_genesis("c1").unwrap();
    let poisoned = Recovery {
        id: "00ff00ff".to_owned(),
        source: Origin::Data("cp1".parse().unwrap()),
        reach: (2, 9),
        base: i64::MAX,
        members: vec![("cp1".parse().unwrap(), PeerUrl::of("10.0.0.11".parse().unwrap()))],
        undo: false,
    };
    state_dir.record(Entry::RecoveryChosen { recovery: poisoned.clone(), instead_of: None }).unwrap();
    let past = state_dir.past().unwrap();
    assert_eq!((past.open, past.leapt), (None, 0), "it is not resumed, and the next one does not start above it");
    state_dir.record(Entry::RecoveryEnded { id: "00ff00ff".to_owned(), cluster_id: "c2".to_owned() }).unwrap();
    let past = state_dir.past().unwrap();
    assert_eq!(
        (past.bootstrapped.as_deref(), past.recovered()),
        (Some("c1"), None),
        "the previous cluster stays the current one"
    );
    assert!(!past.lived.contains("c2") && past.dropped.contains("00ff00ff"));
    assert_eq!(past.impossible, vec![poisoned]);
    state_dir.record(Entry::RecoveryDropped { id: "00ff00ff".to_owned() }).unwrap();
    let past = state_dir.past().unwrap();
    assert_eq!((past.impossible, past.bootstrapped.as_deref()), (vec![], Some("c1")), "it is reported once");
    assert!(past.dropped.contains("00ff00ff"));
}

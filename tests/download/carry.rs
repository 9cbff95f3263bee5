//! Bundles as one file: whole, truncated, tampered with, imported twice, beside another one.

use crate::shelf::{VERSION, World, noise};
use hactl::component::{Bundle, BundleError, Carried, CarryError, export, import, list, verify};
use proptest::prelude::*;
use std::path::Path;
use std::sync::OnceLock;

/// One exported bundle for all tests of this module.
fn exported() -> &'static (Vec<u8>, String) {
    static FILE: OnceLock<(Vec<u8>, String)> = OnceLock::new();
    FILE.get_or_init(|| {
        let world = World::new();
        world.build();
        let bundle = Bundle::open(&world.store(), VERSION).unwrap();
        let mut file = Vec::new();
        let done = export(&bundle, &mut file, &|_, _| {}).unwrap();
        assert_eq!(done.bytes, file.len() as u64);
        (file, done.lock.identity().hex())
    })
}

fn take(store: &Path, file: &[u8]) -> Result<Carried, BundleError> {
    import(store, file, "the file", None, false, &|_, _| {})
}

fn refused(store: &Path, file: &[u8]) -> CarryError {
    match take(store, file) {
        Err(BundleError::Carry(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bundle_is_imported_as_it_was_exported_and_a_second_import_takes_nothing() {
    let (file, identity) = exported();
    let dir = tempfile::tempdir().unwrap();
    let first = take(dir.path(), file).unwrap();
    assert_eq!((first.taken, first.there), (22, 0));
    assert_eq!(first.lock.identity().hex(), *identity);
    assert!(verify(dir.path(), &[first.lock]).unwrap().problems.is_empty());
    let second = take(dir.path(), file).unwrap();
    assert_eq!((second.taken, second.there), (0, 22));
    let mut again = Vec::new();
    export(&Bundle::open(dir.path(), VERSION).unwrap(), &mut again, &|_, _| {}).unwrap();
    assert!(again == *file, "its export is the same file");
}

#[test]
fn the_file_is_a_tar_with_its_format_first_and_a_checksum_last() {
    let (file, _) = exported();
    let mut tar = tar::Archive::new(file.as_slice());
    let names: Vec<String> =
        tar.entries().unwrap().map(|e| e.unwrap().path().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!((names[0].as_str(), names[1].as_str()), ("hactl-bundle.json", "lock.json"));
    assert_eq!((names.len(), names.last().unwrap().as_str()), (2 + 22 + 1, "checksum"));
}

#[test]
fn a_truncated_file_is_refused_wherever_it_ends_and_the_next_import_keeps_whole_blobs() {
    let (file, _) = exported();
    let dir = tempfile::tempdir().unwrap();
    for end in [1, 511, 512, 700, 5000, file.len() / 2, file.len() - 1500, file.len() - 1] {
        let error = refused(dir.path(), &file[..end]);
        assert!(matches!(error, CarryError::CutShort { at, .. } if at == end as u64), "{end}: {error}");
        assert!(list(dir.path()).unwrap().is_empty(), "a truncated bundle is not listed");
    }
    let last = take(dir.path(), file).unwrap();
    assert!(last.there > 10, "whole blobs are not taken twice: {last:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_file_with_one_flipped_bit_is_refused_and_not_listed(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let (file, _) = exported();
        let dir = tempfile::tempdir().unwrap();
        // The zeros at the end of a tar are not significant.
        let at = at.index(file.len() - 1024);
        let mut bad = file.clone();
        bad[at] ^= 1 << bit;
        match take(dir.path(), &bad) {
            Err(BundleError::Carry(_)) => {}
            other => prop_assert!(false, "byte {at} bit {bit}: {other:?}"),
        }
        prop_assert!(list(dir.path()).unwrap().is_empty());
        let whole = take(dir.path(), file).unwrap();
        prop_assert!(verify(dir.path(), &[whole.lock]).unwrap().problems.is_empty());
    }

    #[test]
    fn arbitrary_content_is_refused(content in prop::collection::vec(any::<u8>(), 0..4000)) {
        let dir = tempfile::tempdir().unwrap();
        let error = refused(dir.path(), &content);
        prop_assert!(matches!(error, CarryError::NotABundle { .. } | CarryError::CutShort { .. }), "{error}");
    }
}

#[test]
fn an_import_replaces_a_damaged_blob_in_the_store() {
    let (file, _) = exported();
    let dir = tempfile::tempdir().unwrap();
    let first = take(dir.path(), file).unwrap();
    let path = Bundle::open(dir.path(), VERSION).unwrap().blob(&first.lock.components[0].digest).unwrap();
    std::fs::write(&path, noise("a disk that lies", 1000)).unwrap();
    assert_eq!(take(dir.path(), file).unwrap().taken, 1);
    assert!(verify(dir.path(), &[first.lock]).unwrap().problems.is_empty());
}

#[test]
fn an_import_keeps_a_blob_that_is_compressed_differently() {
    let (file, identity) = exported();
    let dir = tempfile::tempdir().unwrap();
    let first = take(dir.path(), file).unwrap();
    let component = &first.lock.components[0];
    let path = Bundle::open(dir.path(), VERSION).unwrap().blob(&component.digest).unwrap();
    let plain = zstd::decode_all(std::fs::File::open(&path).unwrap()).unwrap();
    let otherwise = zstd::encode_all(plain.as_slice(), 1).unwrap();
    std::fs::write(&path, &otherwise).unwrap();
    let second = take(dir.path(), file).unwrap();
    assert_eq!((second.taken, second.lock.identity().hex()), (0, identity.clone()));
    assert_eq!(std::fs::read(&path).unwrap(), otherwise);
    assert!(verify(dir.path(), &list(dir.path()).unwrap()).unwrap().problems.is_empty());
}

#[test]
fn another_bundle_of_the_same_version_is_replaced_only_on_request() {
    let (file, identity) = exported();
    let world = World::new();
    let kubelet = "/k8s/release/v1.36.3/bin/linux/amd64/kubelet";
    let other = noise("built by somebody else", 150_000);
    world.server.put(&format!("{kubelet}.sha256"), crate::shelf::sha256(&other));
    world.server.put(kubelet, other);
    let there = world.build().lock.identity().hex();
    let error = refused(&world.store(), file);
    let CarryError::Different { bundle, there: named, coming, .. } = &error else { panic!("{error}") };
    assert_eq!((bundle.as_str(), named, coming), ("k8s-1.36.3", &there, identity));
    let taken = import(&world.store(), file.as_slice(), "the file", None, true, &|_, _| {}).unwrap();
    assert_eq!((taken.taken, taken.lock.identity().hex()), (1, identity.clone()));
}

#[test]
fn an_expected_identity_is_checked_before_any_blob_is_stored() {
    let (file, identity) = exported();
    let dir = tempfile::tempdir().unwrap();
    let wrong =
        import(dir.path(), file.as_slice(), "the file", Some("a5".repeat(32).parse().unwrap()), false, &|_, _| {});
    assert!(matches!(wrong, Err(BundleError::Carry(CarryError::Unexpected { .. }))));
    assert!(!dir.path().join("blobs").exists());
    import(dir.path(), file.as_slice(), "the file", Some(identity.parse().unwrap()), false, &|_, _| {}).unwrap();
}

#[test]
fn a_later_format_is_refused_by_its_number() {
    let (file, _) = exported();
    let at = file.windows(10).position(|w| w == b"\"format\":1").unwrap();
    let mut later = file.clone();
    later[at + 9] = b'2';
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(refused(dir.path(), &later), CarryError::Newer { format: 2, .. }));
}

//! Images: tokens, architectures, tags that move, archives that containerd imports.

use crate::server::Quirk;
use crate::shelf::{VERSION, World, build, noise, sha256};
use hactl::component::{Arch, Bundle, BundleError, FetchError, Kind, Order};
use serde_json::Value;
use std::io::Read as _;

const PAUSE: &str = "/v2/pause/manifests/3.10.1";

fn fetch(error: BundleError) -> FetchError {
    match error {
        BundleError::Fetch(error) => error,
        other => panic!("{other}"),
    }
}

/// The entries of an image's archive in the store.
fn entries(world: &World, name: &str) -> Vec<(String, Vec<u8>)> {
    let bundle = Bundle::open(&world.store(), VERSION).unwrap();
    let component = bundle.lock().components.iter().find(|c| c.name == name && c.kind == Kind::Image).unwrap();
    let packed = std::fs::File::open(bundle.blob(&component.digest).unwrap()).unwrap();
    let plain = zstd::decode_all(packed).unwrap();
    let mut tar = tar::Archive::new(plain.as_slice());
    let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (entry.path().unwrap().to_string_lossy().into_owned(), content)
    };
    tar.entries().unwrap().map(read).collect()
}

#[test]
fn an_image_is_stored_as_an_archive_with_the_publishers_manifest_and_layers() {
    let world = World::new();
    world.build();
    let all = entries(&world, "pause");
    let find = |name: &str| &all.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1;
    assert_eq!(all[0], ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()));
    assert_eq!(all[1].0, "index.json", "a host finds the manifest's digest without reading the layers");
    let index: Value = serde_json::from_slice(find("index.json")).unwrap();
    assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], "registry.k8s.io/pause:3.10.1");
    assert_eq!(index["manifests"].as_array().unwrap().len(), 1, "of the one architecture");
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let content = find(&format!("blobs/sha256/{digest}"));
        assert_eq!((sha256(content).as_str(), content.len() as u64), (digest, descriptor["size"].as_u64().unwrap()));
        content.clone()
    };
    let manifest: Value = serde_json::from_slice(&blob(&index["manifests"][0])).unwrap();
    let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
    assert_eq!(config["architecture"], "amd64");
    for layer in manifest["layers"].as_array().unwrap() {
        blob(layer);
    }
    assert_eq!(all.len(), 4 + 1 + 1 + 2, "and nothing else");
}

#[test]
fn a_registry_that_requires_a_token_gets_one() {
    let world = World::new();
    world.server.state().token = Some("for-everybody".into());
    world.build();
    let asked = world.server.asked();
    assert!(asked.iter().any(|a| a.path == "/token"));
    assert!(
        asked.iter().filter(|a| a.path.contains("/k8s/") || a.path.contains("/github/")).all(|a| a.path != "/token")
    );
}

#[test]
fn a_registry_that_denies_a_token_is_reported_as_such() {
    let world = World::new();
    {
        let mut state = world.server.state();
        state.token = Some("for-friends".into());
        state.deny = true;
    }
    let error = fetch(world.refusal());
    assert!(
        matches!(&error, FetchError::Denied { status: 401, why, .. } if why.contains("incorrect username")),
        "{error}"
    );
}

#[test]
fn a_missing_tag_is_named() {
    let world = World::new();
    world.server.state().files.remove(PAUSE);
    let error = fetch(world.refusal());
    assert!(matches!(&error, FetchError::NotFound { url, .. } if url.ends_with("/pause:3.10.1")), "{error}");
}

#[test]
fn a_tag_that_moved_is_refused_with_both_digests() {
    let world = World::new();
    world.build();
    let old = sha256(&world.server.state().files[PAUSE].clone());
    let new = world.publish_image("pause", "3.10.1", &["arm64", "amd64"]);
    assert_ne!(old, new);
    std::fs::remove_dir_all(world.store().join("blobs")).unwrap();
    let error = fetch(world.refusal());
    let FetchError::Moved { what, locked, published, .. } = &error else { panic!("{error}") };
    assert_eq!((what.as_str(), locked, published), ("registry.k8s.io/pause:3.10.1 linux/amd64", &old, &new));
}

#[test]
fn an_unpublished_architecture_is_refused_with_the_published_ones() {
    let world = World::new();
    world.publish_image("pause", "3.10.1", &["arm64"]);
    let error = fetch(world.refusal());
    let FetchError::Platform { image, architecture, there } = &error else { panic!("{error}") };
    assert_eq!((image.as_str(), architecture.as_str()), ("registry.k8s.io/pause:3.10.1", "amd64"));
    assert_eq!(there, "windows/amd64, linux/arm64");
}

#[test]
fn a_tag_without_an_index_is_accepted_only_for_its_own_architecture() {
    let world = World::new();
    world.publish_image("pause", "3.10.1", &["arm64"]);
    // The tag points to the manifest itself, without an index.
    let index: Value = serde_json::from_slice(&world.server.state().files[PAUSE].clone()).unwrap();
    let digest = index["manifests"][1]["digest"].as_str().unwrap().to_owned();
    let manifest = world.server.state().files[&format!("/v2/pause/manifests/{digest}")].clone();
    world.server.put(PAUSE, manifest);
    let error = fetch(world.refusal());
    assert!(matches!(&error, FetchError::Platform { there, .. } if there == "linux/arm64"), "{error}");
    let other = world.root().join("arm");
    build(&other, &Order { architectures: vec![Arch::Arm64], ..world.order() }).unwrap();
}

#[test]
fn a_manifest_or_layer_with_a_wrong_digest_is_refused() {
    let world = World::new();
    let index: Value = serde_json::from_slice(&world.server.state().files[PAUSE].clone()).unwrap();
    let path = format!("/v2/pause/manifests/{}", index["manifests"][1]["digest"].as_str().unwrap());
    let right = world.server.state().files[&path].clone();
    world.server.put(&path, String::from_utf8(right.clone()).unwrap().replace("gzip", "gzap"));
    assert!(matches!(fetch(world.refusal()), FetchError::Checksum { .. }));
    world.server.put(&path, right.clone());
    let manifest: Value = serde_json::from_slice(&right).unwrap();
    let layer = manifest["layers"][1]["digest"].as_str().unwrap();
    let path = format!("/v2/pause/blobs/{layer}");
    let size = world.server.state().files[&path].len();
    world.server.put(&path, noise("another layer", size));
    let error = fetch(world.refusal());
    let FetchError::Checksum { url, by, .. } = &error else { panic!("{error}") };
    assert!(url.ends_with(layer) && by.ends_with("/pause:3.10.1"), "{error}");
}

#[test]
fn a_layer_that_is_cut_off_is_resumed_and_one_that_is_too_long_is_refused() {
    let world = World::new();
    let index: Value = serde_json::from_slice(&world.server.state().files[PAUSE].clone()).unwrap();
    let path = format!("/v2/pause/manifests/{}", index["manifests"][1]["digest"].as_str().unwrap());
    let manifest: Value = serde_json::from_slice(&world.server.state().files[&path].clone()).unwrap();
    let layer = format!("/v2/pause/blobs/{}", manifest["layers"][1]["digest"].as_str().unwrap());
    world.server.quirk(&layer, Quirk::Cut(40_000, 2));
    world.build();
    let ranges: Vec<Option<String>> = world.server.asked_for(&layer).into_iter().map(|a| a.range).collect();
    assert_eq!(ranges, [None, Some("bytes=40000-".to_owned()), Some("bytes=80000-".to_owned())]);

    let world = World::new();
    let content = world.server.state().files[&layer].clone();
    world.server.put(&layer, [content, vec![0; 10]].concat());
    let error = fetch(world.refusal());
    assert!(matches!(error, FetchError::TooLarge { .. }), "{error}");
}

#[test]
fn an_invalid_answer_of_a_registry_is_reported_with_its_reason() {
    for (content, says) in [
        ("<html>please log in</html>", "manifest"),
        ("{\"schemaVersion\":1}", "config"),
        ("{\"schemaVersion\":2,\"manifests\":[]}", "published for: none"),
        (r#"{"config":{"mediaType":"c","digest":"md5:1","size":1},"layers":[]}"#, "not a SHA-256"),
        (r#"{"config":{"mediaType":"c","digest":"sha256:00","size":99999999},"layers":[]}"#, "config"),
    ] {
        let world = World::new();
        world.server.put(PAUSE, content);
        let error = world.refusal().to_string();
        assert!(error.contains("pause:3.10.1") && error.contains(says), "{content}: {error}");
    }
}

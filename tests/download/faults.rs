//! Faults between a publisher and the store, and how a download handles them.

use crate::server::{Quirk, Server};
use crate::shelf::{World, build, download, noise, sha256};
use hactl::component::{BundleError, FetchError, Mirror, Mirrors, Order, Standing, prospect};
use std::time::Duration;

const KUBELET: &str = "/k8s/release/v1.36.3/bin/linux/amd64/kubelet";

fn fetch(error: BundleError) -> FetchError {
    match error {
        BundleError::Fetch(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn a_download_that_is_cut_off_resumes_at_that_byte() {
    let world = World::new();
    world.server.quirk(KUBELET, Quirk::Cut(50_000, 2));
    let got = world.build();
    let asked = world.server.asked_for(KUBELET);
    let ranges: Vec<Option<&str>> = asked.iter().map(|a| a.range.as_deref()).collect();
    assert_eq!(ranges, [None, Some("bytes=50000-"), Some("bytes=100000-")]);
    assert!(asked[1].if_range.is_some() && asked[0].if_range.is_none());
    assert!(got.again.iter().any(|a| a.contains("cut short")), "{:?}", got.again);
}

#[test]
fn a_download_that_is_cut_off_repeatedly_completes_while_it_makes_progress() {
    let world = World::new();
    world.server.quirk(KUBELET, Quirk::Cut(10_000, 14));
    world.build();
    assert_eq!(world.server.asked_for(KUBELET).len(), 15);
}

#[test]
fn a_server_without_ranges_is_asked_for_the_whole_file_a_limited_number_of_times() {
    let world = World::new();
    world.server.quirk(KUBELET, Quirk::NoRanges);
    world.server.quirk(KUBELET, Quirk::Cut(50_000, 1));
    world.build();
    let world = World::new();
    world.server.quirk(KUBELET, Quirk::NoRanges);
    world.server.quirk(KUBELET, Quirk::Cut(50_000, 100));
    let error = fetch(world.refusal());
    assert!(matches!(error, FetchError::Cut { attempts: 3, have: 50_000, of: Some(150_000), .. }), "{error}");
    assert_eq!(world.server.asked_for(KUBELET).len(), 3);
    assert!(world.parts().contains(&50_000), "received data is kept");
}

#[test]
fn a_stalled_download_times_out_and_the_next_run_resumes_it() {
    let world = World::new();
    world.server.quirk(KUBELET, Quirk::NoRanges);
    world.server.quirk(KUBELET, Quirk::Stall(60_000, 100));
    let error = fetch(world.refusal());
    let FetchError::Slow { url, attempts: 3, have: 60_000, .. } = &error else { panic!("{error}") };
    assert!(url.ends_with(KUBELET), "{error}");
    world.server.well_again();
    world.server.asked();
    world.build();
    let asked = world.server.asked_for(KUBELET);
    assert!(asked.len() == 1 && asked[0].range.is_some(), "{asked:?}");
}

#[test]
fn a_wrong_checksum_is_refused_with_both_urls_and_nothing_is_locked() {
    let world = World::new();
    world.server.put(KUBELET, noise("something else", 150_000));
    let error = fetch(world.refusal());
    let FetchError::Checksum { url, by, expected, found } = &error else { panic!("{error}") };
    assert!(url.ends_with(KUBELET) && by.ends_with("kubelet.sha256"));
    assert_eq!(*found, sha256(&noise("something else", 150_000)));
    assert_ne!(expected, found);
    assert_eq!(
        prospect(&world.store(), &world.order())
            .unwrap()
            .iter()
            .find(|p| p.source.ends_with("kubelet"))
            .unwrap()
            .locked,
        None
    );
    assert!(!world.store().join("bundles/k8s-1.36.3.lock.json").exists());
}

#[test]
fn a_corrupt_partial_file_is_found_at_the_end_and_fetched_again_whole() {
    let world = World::new();
    world.server.quirk(KUBELET, Quirk::Cut(50_000, 100));
    world.server.quirk(KUBELET, Quirk::NoRanges);
    world.refusal();
    world.server.well_again();
    let downloads = world.store().join("downloads");
    let parts = std::fs::read_dir(downloads).unwrap().map(|e| e.unwrap().path());
    let part = parts
        .filter(|p| p.extension().is_some_and(|e| e == "part"))
        .find(|p| p.metadata().unwrap().len() == 50_000)
        .unwrap();
    std::fs::write(&part, noise("a disk that lies", 50_000)).unwrap();
    world.server.asked();
    world.build();
    let ranges: Vec<Option<String>> = world.server.asked_for(KUBELET).into_iter().map(|a| a.range).collect();
    assert_eq!(ranges, [Some("bytes=50000-".to_owned()), None]);
}

#[test]
fn a_file_that_changed_between_two_attempts_is_fetched_from_its_beginning() {
    let world = World::new();
    let right = world.server.state().files[KUBELET].clone();
    world.server.put(KUBELET, noise("not replaced yet", 150_000));
    world.server.quirk(KUBELET, Quirk::Cut(50_000, 3));
    world.server.quirk(KUBELET, Quirk::NoRanges);
    world.refusal();
    world.server.well_again();
    world.server.put(KUBELET, right);
    world.server.asked();
    world.build();
    let asked = world.server.asked_for(KUBELET);
    assert!(asked.len() == 1 && asked[0].if_range.is_some(), "the ETag differs, so the whole file is sent: {asked:?}");
}

#[test]
fn a_server_error_is_retried_and_reported_if_it_persists() {
    let world = World::new();
    world.server.quirk(KUBELET, Quirk::Status(503, 2));
    assert!(world.build().again.iter().any(|a| a.contains("503")));
    let world = World::new();
    world.server.quirk(KUBELET, Quirk::Status(503, 100));
    let error = fetch(world.refusal());
    assert!(matches!(error, FetchError::Status { status: 503, attempts: 3, .. }), "{error}");
}

#[test]
fn a_missing_file_is_named_with_its_version_and_requested_once() {
    let world = World::new();
    world.server.state().files.remove(KUBELET);
    let error = fetch(world.refusal());
    assert!(matches!(error, FetchError::NotFound { .. }) && error.to_string().contains("kubelet"), "{error}");
    assert_eq!(world.server.asked_for(KUBELET).len(), 1);
    let order = Order { kubernetes: "1.36.99".into(), ..world.order() };
    let error = build(&world.store(), &order).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("404") && error.contains("1.36.99"), "{error}");
}

#[test]
fn a_server_that_denies_access_is_reported_as_such() {
    let world = World::new();
    world.server.quirk(KUBELET, Quirk::Status(403, 100));
    let error = fetch(world.refusal());
    assert!(matches!(error, FetchError::Denied { status: 403, .. }), "{error}");
}

#[test]
fn an_invalid_checksum_file_is_reported_as_such() {
    let world = World::new();
    world.server.put(&format!("{KUBELET}.sha256"), "<html>please log in</html>");
    let error = fetch(world.refusal());
    let FetchError::NotUnderstood { url, why } = &error else { panic!("{error}") };
    assert!(url.ends_with("kubelet.sha256") && why.contains("no SHA-256 of kubelet"), "{error}");
    world.server.put(&format!("{KUBELET}.sha256"), vec![b'x'; 300_000]);
    assert!(matches!(fetch(world.refusal()), FetchError::TooLarge { .. }));
}

#[test]
fn an_archive_without_its_program_is_refused() {
    let world = World::new();
    let path = world.server.path("containerd-static-2.3.7-linux-amd64.tar.gz");
    let content = crate::shelf::archive(&[("bin/containerd", noise("c", 100)), ("bin/ctr", noise("d", 100))]);
    world.server.put(&format!("{path}.sha256sum"), sha256(&content));
    world.server.put(&path, content);
    let error = fetch(world.refusal());
    let FetchError::NotUnderstood { url, why } = &error else { panic!("{error}") };
    assert!(url.contains("containerd") && why.contains("bin/containerd-shim-runc-v2"), "{error}");
}

#[test]
fn a_file_with_an_excessive_content_length_is_refused() {
    let world = World::new();
    world.server.quirk(KUBELET, Quirk::Claims(1 << 40));
    let error = fetch(world.refusal());
    assert!(matches!(error, FetchError::TooLarge { .. }), "{error}");
}

#[test]
fn a_digest_that_a_publisher_changes_is_refused_with_both_digests_and_the_lock_file() {
    let world = World::new();
    let first = world.build();
    let (old, other) = (sha256(&crate::shelf::program("kubelet amd64")), noise("a second release", 150_000));
    world.server.put(&format!("{KUBELET}.sha256"), sha256(&other));
    world.server.put(KUBELET, other.clone());
    assert_eq!(world.build().lock, first.lock, "content in the store is not checked with the publisher again");
    std::fs::remove_dir_all(world.store().join("blobs")).unwrap();
    let error = fetch(world.refusal());
    let FetchError::Moved { locked, published, lock, .. } = &error else { panic!("{error}") };
    assert_eq!((locked, published), (&old, &sha256(&other)));
    assert_eq!(*lock, world.store().join("sources.lock.json"));
    // A person who knows that the new digest is right removes the source from the lock file.
    let text = std::fs::read_to_string(lock).unwrap();
    let mut content: serde_json::Value = serde_json::from_str(&text).unwrap();
    content["sources"].as_object_mut().unwrap().retain(|source, _| !source.ends_with("/kubelet"));
    std::fs::write(lock, content.to_string()).unwrap();
    let second = world.build();
    assert_ne!(second.lock.identity(), first.lock.identity());
}

#[test]
fn a_lock_file_outside_the_store_binds_another_store_to_the_same_digests() {
    let world = World::new();
    let kept = world.root().join("sources.lock.json");
    let order = Order { lock: Some(kept.clone()), ..world.order() };
    build(&world.store(), &order).unwrap();
    world.server.put(&format!("{KUBELET}.sha256"), "a5".repeat(32));
    let other = world.root().join("other");
    let error = fetch(build(&other, &order).map(|_| ()).unwrap_err());
    assert!(matches!(&error, FetchError::Moved { lock, .. } if *lock == kept), "{error}");
}

#[test]
fn a_dropped_download_is_resumed_by_the_next_run() {
    let world = World::new();
    world.server.quirk(KUBELET, Quirk::Stall(70_000, 1));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (store, mut order) = (world.store(), world.order());
    order.timeout.unreachable = Duration::from_secs(30);
    runtime.block_on(async {
        let begun = |_: hactl::component::Moment<'_>| {};
        let work = hactl::component::download(&store, &order, &begun);
        let seen = async {
            while !world.parts().contains(&70_000) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let within = tokio::time::timeout(Duration::from_secs(20), seen);
        tokio::select! { _ = work => panic!("it cannot end"), seen = within => seen.expect("70 000 bytes come") }
    });
    drop(runtime);
    world.server.asked();
    world.build();
    assert_eq!(
        world.server.asked_for(KUBELET).iter().map(|a| a.range.as_deref()).collect::<Vec<_>>(),
        [Some("bytes=70000-")]
    );
}

#[test]
fn a_redirect_to_another_server_is_followed() {
    let world = World::new();
    let content = world.server.state().files.remove(KUBELET).unwrap();
    let elsewhere = Server::start();
    elsewhere.put("/bucket/kubelet", content);
    world.server.quirk(KUBELET, Quirk::Redirect(format!("{}/bucket/kubelet", elsewhere.url())));
    world.build();
}

#[test]
fn a_refused_connection_and_an_unknown_name_are_different_errors() {
    let world = World::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let order = |place: &str| {
        let mut mirrors = world.mirrors();
        mirrors.push(format!("dl.k8s.io=http://{place}"));
        Order { mirrors: Mirrors::new(mirrors.iter().map(|m| m.parse::<Mirror>().unwrap())), ..world.order() }
    };
    let error = fetch(build(&world.store(), &order(&free.to_string())).map(|_| ()).unwrap_err());
    assert!(matches!(error, FetchError::Unreachable { attempts: 3, .. }), "{error}");
    let mut unknown = order("no-such-host.invalid");
    // A resolver may take long to report an unknown name.
    unknown.timeout.unreachable = Duration::from_secs(30);
    let error = fetch(build(&world.store(), &unknown).map(|_| ()).unwrap_err());
    assert!(matches!(error, FetchError::Name { .. }), "{error}");
}

#[test]
fn a_partial_download_is_shown_in_the_prospect_once_its_digest_is_locked() {
    let world = World::new();
    world.build();
    std::fs::remove_dir_all(world.store().join("blobs")).unwrap();
    world.server.quirk(KUBELET, Quirk::NoRanges);
    world.server.quirk(KUBELET, Quirk::Cut(50_000, 100));
    let (result, _) = download(&world.store(), &world.order());
    assert!(result.is_err());
    let all = prospect(&world.store(), &world.order()).unwrap();
    let kubelet = all.iter().find(|p| p.source.ends_with("/kubelet")).unwrap();
    assert_eq!((kubelet.standing, kubelet.size), (Standing::Begun(50_000), Some(150_000)));
}

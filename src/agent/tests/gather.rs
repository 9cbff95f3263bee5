//! The diagnostics of a host for a support bundle, from a test directory.

use super::*;
use crate::model::bucket::Storage;
use crate::model::secret::Secret;
use crate::model::support::{GatherAsk, Page, SECRETS};
use crate::snapshot::new_identity;
use std::os::unix::fs::PermissionsExt as _;

const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0w\n-----END PRIVATE KEY-----\n";

async fn gathered(place: &Place, files: &[&str]) -> Vec<Page> {
    let files = files.iter().map(|f| (*f).to_owned()).collect();
    let ask = GatherAsk { units: vec![], files, hours: 24 };
    // Observations require no lock.
    let Reply::Pages(pages) = place.client().ask(Op::Gather(ask)).await.unwrap() else { panic!("no pages") };
    pages
}

fn page<'a>(pages: &'a [Page], name: &str) -> &'a Page {
    pages.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("{name} is not among the pages"))
}

fn private(place: &Place, path: &str) {
    std::fs::set_permissions(place.at(path), std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test]
async fn logs_of_the_clusters_own_pods_and_files_that_all_may_read_are_gathered() {
    let place = Place::new();
    for (log, text) in [("1.log", "older\n"), ("0.log", "oldest\n"), ("2.log", "newest\n")] {
        place.write(&format!("/var/log/pods/kube-system_dns_1/coredns/{log}"), text);
        let age = std::time::SystemTime::now() - Duration::from_secs(100 - u64::from(log.as_bytes()[0]));
        let file = std::fs::File::open(place.at(&format!("/var/log/pods/kube-system_dns_1/coredns/{log}"))).unwrap();
        file.set_modified(age).unwrap();
    }
    place.write("/var/log/pods/shop_web_2/web/0.log", "an application's\n");
    place.write("/etc/kubernetes/kubelet.yaml", "kind: KubeletConfiguration\n");
    place.write("/etc/kubernetes/encryption.yaml", "secret: MDEyMzQ1Njc4OWFiY2RlZg==\n");
    private(&place, "/etc/kubernetes/encryption.yaml");
    let pages =
        gathered(&place, &["/etc/kubernetes/kubelet.yaml", "/etc/kubernetes/encryption.yaml", "/etc/never"]).await;
    assert_eq!(page(&pages, "pods/kube-system_dns_1/coredns/2.log").text, "newest\n");
    assert_eq!(page(&pages, "pods/kube-system_dns_1/coredns/1.log").text, "older\n");
    assert!(!pages.iter().any(|p| p.name.contains("0.log")), "only the newest two, and none of applications");
    assert_eq!(page(&pages, "files/etc/kubernetes/kubelet.yaml").text, "kind: KubeletConfiguration\n");
    assert!(
        page(&pages, "files/etc/kubernetes/encryption.yaml").text.starts_with("(not shown: only its owner may read it")
    );
    assert!(page(&pages, "files/etc/never").text.contains("No such file"));
}

#[tokio::test]
async fn contents_of_key_files_tokens_and_mounted_secrets_are_redacted_everywhere() {
    let place = Place::new();
    place.write("/etc/kubernetes/pki/apiserver.key", KEY);
    place.write("/etc/kubernetes/encryption.yaml", "keys:\n- name: key1\n  secret: MDEyMzQ1Njc4OWFiY2RlZg==\n");
    place.write("/etc/containerd/certs.d/r/hosts.toml", "[header]\nauthorization = \"Basic bWU6cGFzc3dvcmQ=\"\n");
    for path in ["/etc/kubernetes/pki/apiserver.key", "/etc/kubernetes/encryption.yaml"] {
        private(&place, path);
    }
    let volumes = "/var/lib/kubelet/pods/u/volumes";
    place.write(&format!("{volumes}/kubernetes.io~projected/api/..1/token"), "opaque-service-account-token");
    place.write(&format!("{volumes}/kubernetes.io~projected/api/..1/namespace"), "kube-system");
    place.write(&format!("{volumes}/kubernetes.io~secret/db/..1/word"), "open sesame, please");
    let log = "kube-system says opaque-service-account-token and open sesame, please\n\
               key MDEyMzQ1Njc4OWFiY2RlZg== line MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0w\n\u{1b}[31mred\u{1b}[0m\n";
    place.write("/var/log/pods/kube-system_a_1/a/0.log", log);
    let pages = gathered(&place, &["/etc/containerd/certs.d/r/hosts.toml"]).await;
    let log = page(&pages, "pods/kube-system_a_1/a/0.log");
    assert_eq!(log.text, "kube-system says [redacted] and [redacted]\nkey [redacted] line [redacted]\n?[31mred?[0m\n");
    assert_eq!(log.struck, 4);
    assert!(!page(&pages, "files/etc/containerd/certs.d/r/hosts.toml").text.contains("bWU6"), "known by its form");
}

#[tokio::test]
async fn a_long_log_keeps_its_newest_whole_lines_and_says_how_much_is_left_out() {
    let place = Place::new();
    let line = |n: usize| format!("{n:07} {}\n", "x".repeat(91));
    let whole: String = (0..30_000).map(line).collect();
    for pod in 0..16 {
        place.write(&format!("/var/log/pods/kube-system_p{pod:02}_1/c/0.log"), &whole);
    }
    let pages = gathered(&place, &[]).await;
    let first = page(&pages, "pods/kube-system_p00_1/c/0.log");
    assert!(first.text.ends_with(&line(29_999)) && first.text.len().is_multiple_of(100), "whole lines to the newest");
    assert!(first.left_out > 0 && first.text.len() <= 512 << 10);
    let all: usize = pages.iter().map(|p| p.text.len()).sum();
    assert!(all <= 6 << 20, "all pages together are bounded: {all}");
    assert_eq!(page(&pages, "pods/kube-system_p15_1/c/0.log").text, "", "there was no space for the last");
    assert!(page(&pages, "system/hosts").left_out > 0 || page(&pages, "system/hosts").text.contains("No such file"));
}

#[tokio::test]
async fn a_canary_in_each_place_that_holds_secrets_is_found_in_no_page() {
    let place = Place::new();
    let mut canaries = Vec::new();
    for (number, at) in SECRETS.iter().filter(|at| **at != crate::model::drill::IDENTITY).enumerate() {
        let canary = format!("canary-number-{number}-of-this-host");
        // Some are folders and some are files.
        let file = if at.contains('.') { (*at).to_owned() } else { format!("{at}/deep/below/word") };
        place.write(&file, format!("token: \"{canary}\"\nother: x\n"));
        private(&place, &file);
        canaries.push(canary);
    }
    let storage = Storage {
        key_id: "canary-of-the-key-id".to_owned(),
        key: Secret::new("canary-of-the-storage-key".to_owned()),
        endpoint: None,
        region: "us-east-1".to_owned(),
        ca: None,
        proxy: None,
        no_proxy: String::new(),
    };
    let identity = new_identity();
    let secret = identity.reveal().lines().find(|line| line.starts_with("AGE-SECRET-KEY-")).unwrap().to_owned();
    for (file, text) in [
        ("/etc/hactl/object-storage/access.toml", storage.to_file()),
        ("/etc/hactl/issuers/etcd-issuer.key", KEY.to_owned()),
        (crate::model::drill::IDENTITY, format!("# created: 2026-11-26T00:00:00Z\n{}", identity.reveal())),
        (
            "/etc/containerd/certs.d/r/hosts.toml",
            "[header]\nauthorization = \"Basic bWU6Y2FuYXJ5LXJlZ2lzdHJ5\"\n".to_owned(),
        ),
    ] {
        place.write(file, text);
        private(&place, file);
    }
    for canary in ["canary-of-the-key-id", "canary-of-the-storage-key", "canary-registry", "bWU6Y2FuYXJ5LXJlZ2lzdHJ5"] {
        canaries.push(canary.to_owned());
    }
    canaries.extend([secret.clone(), secret.to_lowercase(), KEY.lines().nth(1).unwrap().to_owned()]);
    let said: String = canaries.iter().flat_map(|canary| ["somebody said ", canary, " here\n"]).collect();
    place.write("/var/log/pods/kube-system_a_1/a/0.log", &said);
    place.write("/etc/hosts", &said);
    for page in gathered(&place, &["/etc/hosts", crate::model::drill::IDENTITY]).await {
        let found: Vec<_> = canaries.iter().filter(|canary| page.text.contains(canary.as_str())).collect();
        assert!(found.is_empty(), "{}: {found:?}\n{}", page.name, page.text);
    }
}

//! The commands as a person or a script uses them: output, exit codes, proxies, certificates, pipes, interrupts.

use crate::server::{Quirk, Server};
use crate::shelf::{VERSION, World, noise};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const KUBELET: &str = "/k8s/release/v1.36.3/bin/linux/amd64/kubelet";

fn hactl(store: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hactl"));
    command.arg("--bundles").arg(store).arg("bundle").args(arguments).stdin(Stdio::null());
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn fetch(world: &World, more: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = ["build", "--kubernetes", VERSION].map(str::to_owned).to_vec();
    for mirror in world.mirrors() {
        all.extend(["--mirror".to_owned(), mirror]);
    }
    all.extend(more.iter().map(|m| (*m).to_owned()));
    all
}

fn strs(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn all(output: &Output) -> String {
    format!("{}{}", out(output), String::from_utf8_lossy(&output.stderr))
}

fn objects(output: &Output) -> Vec<Value> {
    out(output).lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

#[test]
fn build_reports_its_sources_and_verify_finds_all_files() {
    let world = World::new();
    let done = hactl(&world.store(), &strs(&fetch(&world, &[]))).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", all(&done));
    let text = all(&done);
    assert!(text.contains("fetched kubelet, ") && text.contains("14 of 14 sources fetched"), "{text}");
    assert!(text.contains("sources.lock.json") && text.contains("k8s-1.36.3: 22 components"), "{text}");
    let verified = hactl(&world.store(), &["verify"]).output().unwrap();
    assert!(verified.status.success() && out(&verified).contains("22 files"), "{}", all(&verified));
}

#[test]
fn json_output_is_one_object_a_line_and_nothing_else() {
    let world = World::new();
    let done = hactl(&world.store(), &strs(&fetch(&world, &["-o", "json"]))).output().unwrap();
    let objects = objects(&done);
    assert_eq!(objects.len(), 14 + 1);
    assert!(objects[..14].iter().all(|o| o["fetched"] == true && o["sha256"].as_str().is_some_and(|d| d.len() == 64)));
    assert_eq!((objects[14]["bundle"].as_str(), done.stderr.len()), (Some("k8s-1.36.3"), 0));
}

#[test]
fn a_dry_run_lists_every_source_and_sends_no_request() {
    let world = World::new();
    let done = hactl(&world.store(), &strs(&fetch(&world, &["--dry-run"]))).output().unwrap();
    let text = out(&done);
    assert!(done.status.success() && text.contains("14 of 14 sources to fetch"), "{}", all(&done));
    assert!(text.contains(&format!("{}{KUBELET}", world.server.url())) && text.contains("etcd 3.6.16, etcdctl 3.6.16"));
    let plain = hactl(&world.store(), &["build", "--kubernetes", VERSION, "--dry-run", "-o", "json"]).output().unwrap();
    let froms: Vec<String> = objects(&plain).iter().map(|o| o["from"].as_str().unwrap().to_owned()).collect();
    for place in [
        "https://dl.k8s.io/release/v1.36.3/bin/linux/amd64/kubelet",
        "https://github.com/etcd-io/etcd/releases/download/v3.6.16/etcd-v3.6.16-linux-amd64.tar.gz",
        "https://github.com/containerd/containerd/releases/download/v2.3.7/containerd-static-2.3.7-linux-amd64.tar.gz",
        "https://github.com/opencontainers/runc/releases/download/v1.4.3/runc.amd64",
        "https://github.com/containernetworking/plugins/releases/download/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz",
        "https://github.com/flannel-io/cni-plugin/releases/download/v1.9.1-flannel1/cni-plugin-flannel-linux-amd64-v1.9.1.tgz",
        "registry.k8s.io/kube-apiserver:v1.36.3",
        "registry.k8s.io/coredns/coredns:v1.14.6",
        "ghcr.io/flannel-io/flannel:v0.28.4",
    ] {
        assert!(froms.iter().any(|f| f == place), "{place} is not among {froms:?}");
    }
    assert_eq!(world.server.asked(), []);
    assert!(!world.store().exists());
}

/// A code, the fault, the exit code, and words of the error.
type Case = (&'static str, fn(&World), i32, &'static [&'static str]);

#[test]
fn each_failure_has_its_exit_code_its_url_and_a_hint() {
    let cases: [Case; 4] = [
        (
            "checksum",
            |w| w.server.put(KUBELET, noise("wrong", 150_000)),
            3,
            &["kubelet.sha256 says", "another network"],
        ),
        (
            "not-published",
            |w| drop(w.server.state().files.remove(KUBELET)),
            1,
            &["(404)", "check the publisher's list of releases"],
        ),
        ("denied", |w| w.server.quirk(KUBELET, Quirk::Status(401, 9)), 1, &["is not public", "--mirror"]),
        (
            "not-understood",
            |w| w.server.put(&format!("{KUBELET}.sha256"), "<html>"),
            1,
            &["no SHA-256 of kubelet", "portal"],
        ),
    ];
    for (code, breaks, exit, says) in cases {
        let world = World::new();
        breaks(&world);
        let done = hactl(&world.store(), &strs(&fetch(&world, &[]))).output().unwrap();
        let text = all(&done).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(done.status.code(), Some(exit), "{text}");
        assert!(says.iter().all(|s| text.contains(s)) && text.contains(KUBELET), "{code}: {text}");
        let done = hactl(&world.store(), &strs(&fetch(&world, &["-o", "json"]))).output().unwrap();
        assert_eq!(objects(&done).last().unwrap()["code"], code);
    }
}

#[test]
fn a_changed_digest_is_refused_with_exit_3() {
    let world = World::new();
    hactl(&world.store(), &strs(&fetch(&world, &[]))).output().unwrap();
    std::fs::remove_dir_all(world.store().join("blobs")).unwrap();
    world.server.put(&format!("{KUBELET}.sha256"), "a5".repeat(32));
    let done = hactl(&world.store(), &strs(&fetch(&world, &[]))).output().unwrap();
    let text = all(&done);
    assert_eq!(done.status.code(), Some(3), "{text}");
    assert!(text.contains("locked at its first use") && text.contains(&"a5".repeat(32)), "{text}");
}

#[test]
fn wrong_flags_are_usage_errors() {
    let store = tempfile::tempdir().unwrap();
    for (arguments, says) in [
        (vec!["build", "--kubernetes", VERSION, "--mirror", "example.org=http://x"], "hactl does not download from"),
        (vec!["build", "--kubernetes", VERSION, "--arch", "riscv"], "amd64, arm64"),
        (vec!["build", "--kubernetes", VERSION, "--from", "."], "cannot be used with"),
        (vec!["build", "--dry-run"], "--kubernetes"),
        (vec!["build", "--kubernetes", "1.36"], "three numbers"),
    ] {
        let done = hactl(store.path(), &arguments).output().unwrap();
        assert!(done.status.code() == Some(2) && all(&done).contains(says), "{arguments:?}: {}", all(&done));
    }
}

#[test]
fn build_without_components_names_both_flags_for_a_source() {
    let home = tempfile::tempdir().unwrap();
    let done = hactl(home.path(), &["build"]).env("XDG_CACHE_HOME", home.path()).output().unwrap();
    let text = all(&done);
    assert!(
        done.status.code() == Some(2) && text.contains("--kubernetes VERSION") && text.contains("--from DIR"),
        "{text}"
    );
}

fn wait(child: &mut Child, what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before {what}");
        assert!(Instant::now() < until, "never {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_interrupted_download_is_kept_and_the_next_run_resumes_it() {
    let world = World::new();
    world.server.quirk(KUBELET, Quirk::Stall(70_000, 1));
    let mut child = hactl(&world.store(), &strs(&fetch(&world, &[]))).spawn().unwrap();
    wait(&mut child, "70 000 bytes are there", || world.parts().contains(&70_000));
    let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.code() == Some(1) && all(&done).contains("interrupted"), "{}", all(&done));
    assert!(world.parts().contains(&70_000));
    world.server.asked();
    let done = hactl(&world.store(), &strs(&fetch(&world, &[]))).output().unwrap();
    assert!(done.status.success(), "{}", all(&done));
    let ranges: Vec<Option<String>> = world.server.asked_for(KUBELET).into_iter().map(|a| a.range).collect();
    assert_eq!(ranges, [Some("bytes=70000-".to_owned())]);
}

#[test]
fn requests_use_the_proxy_of_the_environment_except_for_no_proxy() {
    let world = World::new();
    // A name that only the proxy knows.
    let through: Vec<String> = world
        .mirrors()
        .iter()
        .map(|m| m.replace(&world.server.address.to_string(), "publisher.test"))
        .flat_map(|m| ["--mirror".to_owned(), m])
        .collect();
    let mut arguments = vec!["build", "--kubernetes", VERSION];
    arguments.extend(strs(&through));
    let done = hactl(&world.store(), &arguments).env("HTTP_PROXY", world.server.url()).output().unwrap();
    assert!(done.status.success(), "{}", all(&done));
    let asked = world.server.asked();
    assert!(!asked.is_empty() && asked.iter().all(|a| a.through.as_deref() == Some("publisher.test")), "{asked:?}");
    let other = world.root().join("other");
    let done = hactl(&other, &strs(&fetch(&world, &[])))
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", all(&done));
}

/// A server with a self-signed certificate, and the certificate.
fn secure() -> (Server, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let cert = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let private = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], private)
        .unwrap();
    (Server::with_tls(std::sync::Arc::new(config)), cert.pem())
}

#[test]
fn an_untrusted_certificate_and_a_redirect_from_https_to_http_are_refused() {
    let world = World::new();
    let (secure, pem) = secure();
    for end in [KUBELET.to_owned(), format!("{KUBELET}.sha256")] {
        let content = world.server.state().files[&end].clone();
        secure.put(&end, content);
    }
    let place = format!("dl.k8s.io=https://localhost:{}/k8s", secure.address.port());
    let arguments = fetch(&world, &["--mirror", &place]);
    let untrusted = hactl(&world.store(), &strs(&arguments)).output().unwrap();
    let text = all(&untrusted);
    assert!(
        untrusted.status.code() == Some(1) && text.contains("no secure connection") && text.contains("SSL_CERT_FILE"),
        "{text}"
    );

    // With trust, kubelet is downloaded; the run ends at the first file that the secure server lacks.
    let file = world.root().join("ca.pem");
    std::fs::write(&file, pem).unwrap();
    let trusted = hactl(&world.store(), &strs(&arguments)).env("SSL_CERT_FILE", &file).output().unwrap();
    let text = all(&trusted);
    assert!(text.contains("kubectl") && text.contains("404"), "{text}");

    for name in ["kubectl", "kubectl.sha256"] {
        let path = KUBELET.replace("kubelet", name);
        let content = world.server.state().files[&path].clone();
        secure.put(&path, content);
    }
    secure.quirk(
        &KUBELET.replace("kubelet", "kubectl"),
        Quirk::Redirect(format!("{}{}", world.server.url(), KUBELET.replace("kubelet", "kubectl"))),
    );
    let sent_on = hactl(&world.store(), &strs(&arguments)).env("SSL_CERT_FILE", &file).output().unwrap();
    let text = all(&sent_on);
    assert!(sent_on.status.code() == Some(1) && text.contains("from https to http"), "{text}");
    secure.well_again();
    let done = hactl(&world.store(), &strs(&arguments)).env("SSL_CERT_FILE", &file).output().unwrap();
    assert!(done.status.success(), "{}", all(&done));
}

#[test]
fn a_bundle_is_piped_from_one_store_into_another() {
    let world = World::new();
    assert!(hactl(&world.store(), &strs(&fetch(&world, &[]))).output().unwrap().status.success());
    let other = world.root().join("other");
    let mut sends = hactl(&world.store(), &["export", "k8s-1.36.3", "-"]).spawn().unwrap();
    let takes = hactl(&other, &["import", "-"]).stdin(sends.stdout.take().unwrap()).output().unwrap();
    let sends = sends.wait_with_output().unwrap();
    assert!(sends.status.success() && takes.status.success(), "{}{}", all(&sends), all(&takes));
    assert!(out(&takes).contains("22 files imported, 0 already there"), "{}", all(&takes));
    let identity = |store: &Path| {
        let listed = hactl(store, &["list", "-o", "json"]).output().unwrap();
        objects(&listed)[0]["identity"].as_str().unwrap().to_owned()
    };
    assert_eq!(identity(&other), identity(&world.store()));
    assert!(all(&sends).contains(&identity(&other)), "both sides report the same identity: {}", all(&sends));
}

#[test]
fn an_export_is_written_whole_and_a_truncated_or_changed_file_is_refused() {
    let world = World::new();
    assert!(hactl(&world.store(), &strs(&fetch(&world, &[]))).output().unwrap().status.success());
    let file = world.root().join("k8s.hactl");
    let done = hactl(&world.store(), &["export", file.to_str().unwrap()]).output().unwrap();
    assert!(done.status.success() && !world.root().join("k8s.hactl.part").exists(), "{}", all(&done));
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 3]).unwrap();
    let other = world.root().join("other");
    let done = hactl(&other, &["import", file.to_str().unwrap()]).output().unwrap();
    let text = all(&done).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        done.status.code() == Some(1) && text.contains("cut short") && text.contains("copy the file again"),
        "{text}"
    );
    let mut bad = whole.clone();
    bad[whole.len() / 2] ^= 1;
    std::fs::write(&file, &bad).unwrap();
    let done = hactl(&other, &["import", file.to_str().unwrap()]).output().unwrap();
    assert!(done.status.code() == Some(3) && all(&done).contains("tampered"), "{}", all(&done));
    let none = hactl(&other, &["list"]).output().unwrap();
    assert!(out(&none).contains("no bundles"), "{}", all(&none));
}

//! The files that an inventory names: their content, and the errors for unusable ones.

use super::{BASE, with};
use hactl::inventory::{InventoryError, Loaded, Source, load};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;

/// An inventory with more keys, beside some files.
struct Place(TempDir);

impl Place {
    fn new(files: &[(&str, &str)]) -> Self {
        let place = Self(tempfile::tempdir().expect("a directory"));
        for (path, text) in files {
            place.put(path, text);
        }
        place
    }
    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
    }
    fn load(&self, more: &str) -> Result<Loaded, InventoryError> {
        let path = self.0.path().join("hactl.yaml");
        fs::write(&path, with(more)).expect("an inventory");
        load(&Source::Path(path))
    }
    fn objects(&self, more: &str) -> Vec<String> {
        let loaded = self.load(more).unwrap_or_else(|e| panic!("{e}"));
        loaded
            .attached
            .manifests
            .iter()
            .map(|o| format!("{}:{} {}", o.file, o.line, o.object["metadata"]["name"]))
            .collect()
    }
    fn refused(&self, more: &str) -> String {
        self.load(more).expect_err("it is refused").to_string()
    }
}

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME, namespace: shop}\n";

fn map(name: &str) -> String {
    MAP.replace("NAME", name)
}

#[test]
fn folders_are_read_whole_and_in_order_and_hidden_files_are_not() {
    let place = Place::new(&[
        ("addons/b.yaml", &map("b")),
        ("addons/a/z.yml", &map("z")),
        ("addons/c.json", "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"c\"}}"),
        ("addons/README.md", "# not a manifest"),
        ("addons/.hidden.yaml", "also: not"),
        ("last.yaml", &format!("# first a comment\n---\n{}---\n# nothing\n---\n{}", map("one"), map("two"))),
    ]);
    assert_eq!(
        place.objects("manifests: [./last.yaml, ./addons/]"),
        [
            "last.yaml:3 \"one\"",
            "last.yaml:9 \"two\"",
            "addons/a/z.yml:1 \"z\"",
            "addons/b.yaml:1 \"b\"",
            "addons/c.json:1 \"c\""
        ]
    );
}

#[test]
fn lists_are_taken_apart_and_what_a_server_wrote_is_dropped() {
    let item = "{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME, uid: x, resourceVersion: '5', managedFields: []}, status: {}}";
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n  - {}\n  - {}\n",
        item.replace("NAME", "a"),
        item.replace("NAME", "b")
    );
    let place = Place::new(&[("list.yaml", &list)]);
    let loaded = place.load("manifests: [./list.yaml]").expect("it holds");
    let objects: Vec<String> = loaded.attached.manifests.iter().map(|o| o.object.to_string()).collect();
    let expected =
        |n: &str| format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{n}\"}}}}");
    assert_eq!(objects, [expected("a"), expected("b")]);
}

#[test]
fn yaml_is_read_as_kubernetes_reads_it() {
    let text = format!("{}data: {{quoted: \"yes\"}}\nimmutable: yes\nmode: 0644\n", map("a"));
    let place = Place::new(&[("a.yaml", &text)]);
    let loaded = place.load("manifests: [./a.yaml]").expect("it holds");
    let object = &loaded.attached.manifests[0].object;
    assert_eq!(
        (&object["immutable"], &object["mode"], &object["data"]["quoted"]),
        (&true.into(), &420.into(), &"yes".into())
    );
}

#[test]
fn an_error_is_reported_with_file_and_line() {
    let cases = [
        ("kind: ConfigMap\nmetadata: {name: a}\n", "m/x.yaml:1:1: error: this document has no apiVersion and kind"),
        ("apiVersion: v1\nkind: ConfigMap\n", "this ConfigMap has no name"),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: a-}\n", "instead of generateName"),
        ("apiVersion: v1\nkind: Node\nmetadata: {name: cp1}\n", "is created by its kubelet"),
        ("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n", "kubectl kustomize"),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hactl-objects, namespace: kube-system}\n",
            "is reserved for hactl",
        ),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ../x}\n", "cannot name a ConfigMap"),
        ("- a\n- b\n", "not a Kubernetes object"),
        ("a: [1\n", "m/x.yaml:"),
        ("a: 1\na: 2\n", "m/x.yaml:2:"),
    ];
    for (text, said) in cases {
        let place = Place::new(&[("m/x.yaml", text)]);
        let refusal = place.refused("manifests: [./m]");
        assert!(refusal.contains(said) && refusal.contains("m/x.yaml:"), "{text}: {refusal}");
    }
    let second = format!("{}---\napiVersion: v1\nkind: ConfigMap\n", map("a"));
    let place = Place::new(&[("x.yaml", &second)]);
    assert!(place.refused("manifests: [x.yaml]").contains("x.yaml:5:1"), "{}", place.refused("manifests: [x.yaml]"));
}

#[test]
fn an_object_that_is_defined_twice_is_reported_with_both_places() {
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    let place =
        Place::new(&[("a.yaml", other), ("b.yaml", &other.replace("{name: a}", "{name: a, namespace: default}"))]);
    let refusal = place.refused("manifests: [a.yaml, b.yaml]");
    assert!(refusal.contains("b.yaml:1:1: error: ConfigMap default/a is defined here and at a.yaml:1"), "{refusal}");
}

#[test]
fn a_line_of_a_file_with_secrets_is_not_quoted() {
    let text =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {password: hunter2, password: hunter3}\n";
    let place = Place::new(&[("a.yaml", text)]);
    let refusal = place.refused("manifests: [a.yaml]");
    assert!(refusal.contains("a.yaml:4:") && !refusal.contains("hunter"), "{refusal}");
}

#[test]
fn a_folder_without_manifests_and_a_path_that_is_not_there_are_refused() {
    let place = Place::new(&[("empty/README.md", "x")]);
    assert!(place.refused("manifests: [./empty]").contains("contains no manifests"));
    assert!(place.refused("manifests: [./nowhere]").contains("does not exist"));
}

#[test]
fn a_password_is_read_and_never_shown() {
    use base64::Engine as _;
    let place = Place::new(&[("login", "me:hunter2\n"), ("bad", "hunter2\n")]);
    let loaded = place.load("registries: {credentials: {r.example: ./login}}").expect("it holds");
    let kept = loaded.attached.logins["r.example"].reveal().clone();
    assert_eq!(base64::engine::general_purpose::STANDARD.decode(kept).unwrap(), b"me:hunter2");
    assert!(loaded.warnings.is_empty());
    assert!(!format!("{loaded:?}").contains("hunter2"));
    let refusal = place.refused("registries: {credentials: {r.example: ./bad}}");
    assert!(refusal.contains("does not contain user:password") && !refusal.contains("hunter2"), "{refusal}");
    fs::set_permissions(place.0.path().join("login"), fs::Permissions::from_mode(0o644)).unwrap();
    let loaded = place.load("registries: {credentials: {r.example: ./login}}").expect("it holds");
    assert!(loaded.warnings[0].what.contains("other users of this machine can read"));
}

#[test]
fn the_ca_of_a_registry_must_be_a_ca() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    let leaf = params.self_signed(&key).unwrap().pem();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap().pem();
    let both = format!("{ca}{}", key.serialize_pem());
    let place = Place::new(&[("ca.pem", &ca), ("leaf.pem", &leaf), ("both.pem", &both), ("no.pem", "hello")]);
    let of = |file: &str| format!("registries: {{ca: {{\"r.example:5000\": ./{file}}}}}");
    let loaded = place.load(&of("ca.pem")).expect("it holds");
    assert_eq!(loaded.attached.authorities["r.example:5000"], ca);
    assert!(place.refused(&of("leaf.pem")).contains("not a CA certificate"));
    assert!(place.refused(&of("both.pem")).contains("private key"));
    assert!(place.refused(&of("no.pem")).contains("contains no certificate"));
}

#[test]
fn check_refuses_objects_of_hactl_and_checks_cas_of_the_user() {
    let own = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: coredns, namespace: kube-system}\n";
    let place = Place::new(&[("a.yaml", own), ("ca.crt", "hello"), ("ca.key", "hello")]);
    let check = |more: &str| {
        fs::write(place.0.path().join("hactl.yaml"), with(more)).unwrap();
        checked(&place.0.path().join("hactl.yaml"))
    };
    let (code, said) = check("manifests: [a.yaml]");
    assert!(code == 2 && said.contains("a.yaml:1") && said.contains("belongs to hactl's own coredns"), "{said}");
    let (code, said) = check("pki: {ca: {cert: ./ca.crt, key: ./ca.key}}");
    assert!(code == 2 && said.contains("ca.crt") && said.contains("no certificate"), "{said}");
    let (code, said) = check("pki: {ca: {cert: ./gone.crt, key: ./gone.key}}");
    assert!(code == 0 && said.contains("until the cluster is bootstrapped"), "{said}");
    assert!(BASE.contains("cluster: lab"));
}

/// `hactl inventory check`: its exit code and its whole output.
fn checked(path: &Path) -> (u8, String) {
    use hactl::cli::inventory::{CheckArgs, Given, InventoryArgs, InventoryVerb, run};
    let args = InventoryArgs { verb: InventoryVerb::Check(CheckArgs { file: None }) };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(&args, Given { inventory: path.as_os_str(), json: false }, &mut out, &mut err);
    (code.code(), format!("{}{}", String::from_utf8_lossy(&out), String::from_utf8_lossy(&err)))
}

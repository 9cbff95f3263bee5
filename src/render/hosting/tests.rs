use super::*;
use crate::model::desired::{Host, Role};
use crate::model::facts::HostFacts;
use crate::model::hosting::{MODE, UNIT};
use crate::model::target::{FileSet, Target};
use crate::render::tests::{desired, facts, rendered};

fn self_hosted() -> Desired {
    Desired { hosting: Hosting::SelfHosted, ..desired() }
}

fn manifests(desired: &Desired, os: &str) -> Vec<(IpAddr, Vec<FilePut>)> {
    let one = |host: &Host| {
        let facts = HostFacts { os: os.to_owned(), ..facts(host) };
        let sets = rendered(desired, host, &facts).unwrap();
        let files = sets.into_iter().find(|set| set.set == FileSet::ControlPlane).unwrap().files;
        (host.address, files)
    };
    desired.with(Role::ControlPlane).map(one).collect()
}

fn completed(desired: &Desired, hosts: &[(IpAddr, Vec<FilePut>)]) -> Option<Addon> {
    let hosts: Vec<_> = hosts.iter().map(|(address, files)| (*address, files.as_slice())).collect();
    complete(desired, &hosts).unwrap()
}

#[test]
fn every_host_gives_the_same_objects() {
    let desired = self_hosted();
    let all = manifests(&desired, "debian 12");
    let whole = completed(&desired, &all).unwrap();
    for one in &all {
        assert_eq!(completed(&desired, std::slice::from_ref(one)).unwrap(), whole);
    }
    let text = json!(whole.objects).to_string();
    assert!(desired.hosts.iter().all(|host| !text.contains(&format!("={}\"", host.address))), "{text}");
    assert_eq!(completed(&desired, &[]), None);
    assert_eq!(completed(&crate::render::tests::desired(), &all), None, "the inventory does not ask for it");
}

#[test]
fn a_pod_has_what_the_static_pod_has_but_for_the_host() {
    let desired = self_hosted();
    let addon = completed(&desired, &manifests(&desired, "debian 12")).unwrap();
    let names = named(&desired).unwrap().unwrap().objects;
    assert_eq!(addon.objects[PROGRAMS.len()..], names[PROGRAMS.len()..], "the policy differs for no cluster");
    for (object, name) in addon.objects.iter().zip(&names).take(PROGRAMS.len()) {
        let of = |pointer: &str| object.pointer(pointer).unwrap_or(&Value::Null);
        assert_eq!((of("/kind"), of("/metadata/name")), (&name["kind"], &name["metadata"]["name"]));
        assert_eq!(of("/spec/updateStrategy/type"), "OnDelete");
        assert_eq!(of("/spec/selector/matchLabels"), &json!({HOSTS: name["metadata"]["name"]}));
        assert_eq!(of("/spec/template/metadata/labels/component"), &Value::Null);
        let spec = of("/spec/template/spec");
        assert_eq!(spec["nodeSelector"], json!({NODE_LABEL: NODE_LABEL_VALUE}));
        assert_eq!((&spec["priority"], &spec["hostNetwork"]), (&Value::Null, &json!(true)));
        assert_eq!(spec["automountServiceAccountToken"], json!(false));
        assert_eq!(spec["containers"][0]["ports"], Value::Null, "they would collide with those of the static pod");
        let wait = spec["initContainers"][0]["command"].as_array().unwrap();
        assert_eq!(wait[1], AWAIT_TURN);
        let main = spec["containers"][0]["command"].as_array().unwrap();
        assert_eq!(main[..wait.len()], wait[..], "it waits again when it is started again");
        assert_eq!((&main[wait.len()], &main[wait.len() + 1]), (&json!("--"), &name["metadata"]["name"]));
        assert_eq!(spec["initContainers"][0]["image"], spec["containers"][0]["image"]);
    }
    let text = |at: usize| addon.objects[at].to_string();
    assert!(text(0).contains("--advertise-address=$(HOST_IP)") && text(0).contains("--bind-address=$(HOST_IP)"));
    assert!(text(1).contains("--bind-address=127.0.0.1") && text(1).contains("\"host\":\"127.0.0.1\""));
}

#[test]
fn the_revision_is_in_the_environment_and_changes_with_flags_and_not_with_hosts() {
    let of = |desired: &Desired, os: &str| {
        let addon = completed(desired, &manifests(desired, os)).unwrap();
        let target = Target { addons: vec![addon.clone()], ..Target::default() };
        let revision = target.revision().unwrap().to_owned();
        let count = json!(addon.objects).to_string().matches(&revision).count();
        assert_eq!(count, 9, "an annotation and two environments of three pods");
        revision
    };
    let desired = self_hosted();
    let first = of(&desired, "debian 12");
    assert_eq!(of(&desired, "debian 12"), first);
    let mut fewer = desired.clone();
    fewer.hosts.remove(0);
    assert_eq!(of(&fewer, "debian 12"), first);
    assert_ne!(of(&desired, "rocky 9"), first, "one more folder of certificates");
    let mut other = desired.clone();
    other.extra.args.insert("kube-scheduler".to_owned(), [("v".to_owned(), "4".to_owned())].into());
    assert_ne!(of(&other, "debian 12"), first);
    assert_eq!(Target { addons: vec![named(&desired).unwrap().unwrap()], ..Target::default() }.revision(), None);
}

#[test]
fn where_the_control_plane_is_self_hosted_its_hosts_have_a_keeper_and_else_it_is_to_go() {
    let unit = format!("/etc/systemd/system/{UNIT}");
    let of = |desired: &Desired, at: usize| {
        let host = &desired.hosts[at];
        let sets = rendered(desired, host, &facts(host)).unwrap();
        sets.into_iter().find(|set| set.set == FileSet::Hosting)
    };
    let kept = of(&self_hosted(), 1).unwrap();
    let servers = "--server 10.88.0.11 --server 10.88.0.12 --server 10.88.0.13\n";
    let line = format!("host-hosting --address 10.88.0.12 --port 6443 {servers}");
    assert!(kept.files[0].content.contains(&line), "{}", kept.files[0].content);
    assert_eq!(kept.files[0].path, unit);
    assert!(of(&self_hosted(), 3).is_none(), "a worker has none");
    let left = of(&desired(), 1).unwrap().target();
    assert!(left.files.is_empty() && left.unit.is_none());
    let former = crate::render::former(&desired(), &desired().hosts[1]);
    for path in [unit.as_str(), MODE] {
        assert!(left.own.iter().any(|own| own == path) && former.iter().any(|own| own == path), "{path}");
    }
    let wiped = crate::render::wipe(&self_hosted(), &self_hosted().hosts[1], false);
    assert!(wiped.remove.iter().any(|path| path == PROGRAM_FOLDER));
    let stops = |name: &str| wiped.units.iter().position(|unit| unit.as_str() == name).unwrap();
    assert!(stops(UNIT) < stops("kubelet.service"), "it would place static pods again");
}

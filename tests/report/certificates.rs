//! The page of certificates and its JSON.

use crate::world::*;
use hactl::model::certificate::*;
use hactl::model::facts::Unreachable;
use hactl::model::rotation::{Rotatable, Stage};
use hactl::report::{Style, certs};
use snapbox::{assert_data_eq, file};

const NOW: i64 = 1_800_000_000;
const DAY: i64 = 86_400;

fn found(name: &str, left_days: i64) -> CertFact {
    CertFact {
        common_name: name.into(),
        key_id: String::new(),
        authority: "aa".into(),
        serial: "4a11".into(),
        fingerprint: digest(7),
        not_before_s: NOW + (left_days - 365) * DAY,
        not_after_s: NOW + left_days * DAY,
    }
}

fn row(name: &str, subject: &str, ca: &str, left_days: i64, fate: Fate) -> Certificate {
    Certificate {
        name: name.into(),
        subject: subject.into(),
        authority: ca.into(),
        paths: vec![format!("/etc/kubernetes/pki/{name}.crt")],
        found: Some(found(subject, left_days)),
        fate,
        presented: None,
    }
}

fn presented(port: u16, seen: Seen) -> Presented {
    Presented { at: ("10.0.0.11".parse().unwrap(), port), seen }
}

fn listing() -> Listing {
    let mut apiserver = row("apiserver", "kube-apiserver", "cluster-ca", 360, Fate::ByUp);
    apiserver.presented = Some(presented(6443, Seen::Other { certificate: found("kube-apiserver", 20), older: true }));
    let mut etcd = row("etcd-server", "cp1", "etcd-ca", 99, Fate::Due("it expires in 99 d".into()));
    etcd.presented = Some(presented(2379, Seen::Same));
    let mut serving = row("kubelet-serving", "", "signing-ca", 0, Fate::Missing("the kubelet asks for it".into()));
    (serving.found, serving.presented) = (None, Some(presented(10250, Seen::Nothing("Connection refused".into()))));
    let client = "kube-apiserver-kubelet-client";
    let one = vec![
        apiserver,
        row("apiserver-kubelet-client", client, "cluster-ca", 12, Fate::ByUp),
        row("kubelet", "system:node:cp1", "signing-ca", 200, Fate::ByKubelet),
        row("cluster-ca", "lab cluster authority", "itself", 3000, Fate::Stays),
        row("signing-ca", "lab signing authority", "unknown", -2, Fate::Expired),
        etcd,
        serving,
    ];
    let unreachable =
        Unreachable { why: "no answer to SSH within 10 s".into(), hint: Some("see that the host is up".into()) };
    let own = vec![row("admin", "admin", "cluster-ca", 365, Fate::ByUp)];
    Listing {
        hosts: vec![(name("cp1"), Ok(OfHost::sorted(one, NOW * 1000))), (name("cp2"), Err(unreachable))],
        own: OfHost::sorted(own, NOW * 1000),
    }
}

#[test]
fn every_certificate_has_a_line_followed_by_its_problems() {
    let wide = Style { colour: false, unicode: true, width: 120, verbosity: 1 };
    assert_data_eq!(certs::text(&listing(), &wide), file!["certs.txt"]);
    let json = certs::json(&"lab".parse().unwrap(), &listing());
    assert_data_eq!(format!("{json:#}\n"), file!["certs.json"]);
}

#[test]
fn a_narrow_page_keeps_its_lines_whole_and_plain_text_has_no_colour() {
    for width in [80, 100] {
        let style = Style { colour: false, unicode: false, width, verbosity: 0 };
        let text = certs::text(&listing(), &style);
        assert!(text.is_ascii() && !text.contains('\x1b'), "{text}");
        assert!(text.lines().all(|line| line.len() <= width), "{width}: {text}");
        assert_eq!(text.contains("FOR"), width > 80, "{text}");
        for word in ["360 d", "ended", "due: it expires in 99 d", "an older one", "does not answer"] {
            assert!(text.contains(word), "{word} at {width}: {text}");
        }
        assert!(!text.contains("refused"), "with -v alone: {text}");
    }
    let coloured = certs::text(&listing(), &Style { colour: true, unicode: true, width: 120, verbosity: 0 });
    assert!(coloured.contains("\x1b[33m12 d\x1b[0m") && coloured.contains("\x1b[1;31mended\x1b[0m"), "{coloured}");
}

#[test]
fn the_last_line_names_the_first_certificate_to_expire() {
    let all = listing();
    assert_eq!(
        certs::summary(&all),
        "7 certificates; the first to expire is signing-ca on cp1: it expired 2 d ago".to_owned()
    );
    let none = Listing { hosts: vec![], own: OfHost::default() };
    assert!(certs::summary(&none).contains("no certificates yet"));
    let of = |issued: &[(_, usize)], path: Option<&str>| certs::renewed(issued, path.map(std::path::Path::new));
    assert_eq!(of(&[(name("cp1"), 2), (name("cp2"), 2)], None), "4 certificates renewed on 2 hosts");
    assert_eq!(
        of(&[(name("cp1"), 1)], Some("/x")),
        "1 certificate renewed on 1 host; the administrator's kubeconfig is new: /x"
    );
}

#[test]
fn text_from_a_host_cannot_move_the_cursor() {
    let mut all = listing();
    let Ok(of) = &mut all.hosts[0].1 else { panic!() };
    of.certificates[0].subject = "evil\x1b[2J\nname".into();
    let text = certs::text(&all, &Style { width: 120, ..Style::plain() });
    assert!(text.contains("evil name") && !text.contains('\x1b'), "{text}");
}

#[test]
fn every_end_of_a_rotation_shows_the_trusted_cas_and_the_remaining_steps() {
    let path = std::path::Path::new(".hactl/lab/kubeconfig");
    let mut all = String::new();
    for what in Rotatable::ALL {
        for (stage, old_is_trusted) in
            [(None, true), (Some(Stage::Spread), true), (Some(Stage::Issued), false), (Some(Stage::Ending), false)]
        {
            if old_is_trusted && !what.outlives() {
                continue;
            }
            let rewritten = if what == Rotatable::Encryption { 42 } else { 0 };
            all += &certs::rotation(what, stage, !old_is_trusted);
            all += &format!("{}\n", certs::rotated(what, old_is_trusted, rewritten));
            for next in certs::after_rotation(what, old_is_trusted, path) {
                all += &format!("{next}\n");
            }
            all += "\n";
        }
    }
    assert_data_eq!(all, file!["rotations.txt"]);
}

//! The errors for files of another kind and for inventories that would break a rule.

use super::samples::{GOLDEN, sample, vip};
use crate::golden_in;
use hactl::inventory::import::{ImportError, Input, Tool, Wishes, import, read};
use hactl::inventory::{Disk, Nothing, Source};
use std::fmt::Write as _;
use std::fs;

fn refused(tool: Tool, input: &Input, wishes: &Wishes) -> String {
    match import(tool, input, wishes, &Disk) {
        Err(error) => error.to_string(),
        Ok(done) => panic!("{} was taken:\n{}", input.name, done.text),
    }
}

fn text(name: &str, text: &str) -> Input {
    Input { name: name.to_owned(), text: text.to_owned(), folder: None }
}

#[test]
fn a_file_of_another_tool_is_named_with_a_remedy() {
    let bad = [
        (Tool::Ansible, "k0sctl/k0sctl.yaml"),
        (Tool::Ansible, "bad/docker-compose.yml"),
        (Tool::Ansible, "bad/rke-cluster.yml"),
        (Tool::Ansible, "bad/terraform.tfstate"),
        (Tool::Ansible, "bad/site.yml"),
        (Tool::Ansible, "bad/aws_ec2.yml"),
        (Tool::Ansible, "bad/ansible.cfg"),
        (Tool::Ansible, "bad/vars.yml"),
        (Tool::Ansible, "bad/vaulted.yml"),
        (Tool::Ansible, "../../../inventories/minimal.yaml"),
        (Tool::Kubespray, "bad/k0s.yaml"),
        (Tool::Kubespray, "k0sctl/k0sctl.yaml"),
        (Tool::Kubespray, "bad/vars.yml"),
        (Tool::K0sctl, "kubespray-ini/inventory.ini"),
        (Tool::K0sctl, "kubespray-yaml/hosts.yaml"),
        (Tool::K0sctl, "bad/k0s.yaml"),
        (Tool::K0sctl, "bad/k0sctl-v1.yaml"),
        (Tool::K0sctl, "bad/docker-compose.yml"),
        (Tool::K0sctl, "bad/vars.yml"),
    ];
    let mut shown = String::new();
    for (tool, name) in bad {
        let said = refused(tool, &sample(name), &vip("10.0.0.100"));
        assert!(said.contains("\n  do: "), "{name}: {said}");
        let _ = writeln!(shown, "{said}");
    }
    golden_in(GOLDEN, "refused", &shown);
}

#[test]
fn a_broken_file_is_refused_with_the_line_and_the_expected_content() {
    for (tool, name, words) in [
        (Tool::Ansible, "bad/broken.ini", ["broken.ini:3:", "[group:children]"]),
        (Tool::Kubespray, "bad/broken.yml", ["broken.yml:3:", "hosts, children and vars"]),
        (Tool::K0sctl, "bad/unclosed.yaml", ["unclosed.yaml:", "not YAML"]),
    ] {
        let said = refused(tool, &sample(name), &vip("10.0.0.100"));
        assert!(words.iter().all(|word| said.contains(word)), "{name}: {said}");
    }
    for line in
        ["[a", "[]", "[a:b:c]", "[g]\nh x", "[g]\nh[1:", "[g]\nh[1:9999999]", "[g:vars]\nx", "[g]\nh a='b", "[g] h"]
    {
        let said = refused(Tool::Ansible, &text("h", line), &Wishes::default());
        assert!(said.starts_with("h:") && said.contains("do: "), "{line:?}: {said}");
    }
}

#[test]
fn errors_are_reported_without_the_secrets_in_them() {
    for (lines, words) in [
        ("[g]\ncp1 ansible_password=correct hunter2", vec!["h:2:", "word 3 of the line"]),
        ("[g]\ncp1 hunter2 ansible_password=x", vec!["h:2:", "word 2 of the line"]),
        ("[g]\nansible_become_password=hunter2", vec!["h:2:", "ansible_become_password is a variable", "[group:vars]"]),
        ("[g]\nHunter2hunter2==", vec!["h:2:", "this is a variable"]),
        ("[g]\ncp1 ansible_password='hunter2", vec!["h:2:", "quotation mark"]),
        ("[g:vars]\npassword hunter2", vec!["h:2:", "a '=' is missing"]),
    ] {
        let said = refused(Tool::Ansible, &text("h", lines), &Wishes::default());
        assert!(words.iter().all(|word| said.contains(word)), "{lines:?}: {said}");
        assert!(!said.contains("hunter2") && !said.contains("correct"), "{lines:?}: {said}");
    }
    for value in
        ["*hunter2", "\"hunter2", "[hunter2", "a: hunter2: b", "@hunter2", "&hunter2 *hunter3", "!!int hunter2"]
    {
        let lines = format!("all:\n  vars:\n    ansible_password: {value}\n  hosts: [\n");
        let said = refused(Tool::Ansible, &text("h.yml", &lines), &Wishes::default());
        assert!(!said.contains("hunter"), "{value}: {said}");
        let lines = format!("apiVersion: k0sctl.k0sproject.io/v1beta1\nkind: Cluster\npassword: {value}\nspec: [\n");
        let said = refused(Tool::K0sctl, &text("k0sctl.yaml", &lines), &Wishes::default());
        assert!(!said.contains("hunter"), "{value}: {said}");
    }
}

#[test]
fn an_empty_file_and_a_file_that_is_not_text_get_different_errors() {
    for (bytes, word) in [
        (&b""[..], "is empty"),
        (b"# only a comment\n\n", "is empty"),
        (b"\x7fELF\x02\x01\x00\x00", "is not text"),
        (b"[g]\n\xff\xfe", "is not text"),
        (b"#!/usr/bin/python3\nprint(1)\n", "is a program"),
        (b"Vagrant.configure(\"2\") do |config|\nend\n", "is a Vagrantfile"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        fs::write(&path, bytes).unwrap();
        let done = read(Tool::Ansible, &Source::Path(path), &Disk)
            .and_then(|input| import(Tool::Ansible, &input, &Wishes::default(), &Disk));
        let said = done.unwrap_err().to_string();
        assert!(said.contains(word) && said.contains("do: "), "{bytes:?}: {said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hosts");
    fs::write(&path, "a\n".repeat(600 * 1024)).unwrap();
    let said = read(Tool::Ansible, &Source::Path(path), &Disk).unwrap_err().to_string();
    assert!(said.contains("1024 KiB"), "{said}");
}

#[test]
fn a_folder_is_taken_only_when_one_file_in_it_is_meant_for_certain() {
    let folder = tempfile::tempdir().unwrap();
    let source = || Source::Path(folder.path().to_owned());
    fs::write(folder.path().join("site.yml"), "- hosts: all\n").unwrap();
    let said = read(Tool::Ansible, &source(), &Disk).unwrap_err().to_string();
    assert!(said.contains("name the file itself: site.yml"), "{said}");
    fs::write(folder.path().join("hosts.ini"), "[masters]\na\n").unwrap();
    assert_eq!(read(Tool::Ansible, &source(), &Disk).unwrap().text, "[masters]\na\n");
    fs::write(folder.path().join("inventory.yml"), "all: {}\n").unwrap();
    let said = read(Tool::Ansible, &source(), &Disk).unwrap_err().to_string();
    assert!(said.contains("hosts.ini and inventory.yml"), "{said}");
    let gone = read(Tool::K0sctl, &Source::Path(folder.path().join("gone")), &Disk);
    assert!(matches!(gone, Err(ImportError::Missing(_))));
}

#[test]
fn an_endpoint_is_asked_for_and_never_invented() {
    let said = refused(Tool::Ansible, &text("h", "[masters]\na ansible_host=10.0.0.1\n"), &Wishes::default());
    assert!(["--vip", "--external", "--local"].iter().all(|flag| said.contains(flag)), "{said}");
}

#[test]
fn groups_that_mean_nothing_are_listed_with_the_flag_that_gives_them_a_meaning() {
    let hosts = text("h", "[web]\na ansible_host=10.0.0.1\n[db]\nb\n");
    let said = refused(Tool::Ansible, &hosts, &vip("10.0.0.100"));
    assert!(said.contains("web and db") && said.contains("--role web=control-plane"), "{said}");
    for (flag, word) in [("gone=worker", "no such group"), ("web=king", "king is not a role"), ("web", "GROUP=ROLE")] {
        let wishes = Wishes { roles: vec![flag.to_owned()], ..vip("10.0.0.100") };
        let said = refused(Tool::Ansible, &hosts, &wishes);
        assert!(said.contains(word) && said.contains("--role"), "{flag}: {said}");
    }
    let wishes = Wishes {
        addresses: vec!["gone=10.0.0.1".to_owned()],
        roles: vec!["web=control-plane".to_owned()],
        ..vip("10.0.0.100")
    };
    assert!(refused(Tool::Ansible, &hosts, &wishes).contains("no host of the cluster has this name"));
}

#[test]
fn broken_rules_are_reported_with_the_place_in_the_foreign_file() {
    let hosts =
        "[masters]\ncp1.example.org\ncp2 ansible_host=10.0.0.2\ncp3 ansible_host=10.0.0.2\n[etcd]\ncp1.example.org\n";
    let error = import(Tool::Ansible, &text("hosts.ini", hosts), &vip("10.0.0.2"), &Nothing).unwrap_err();
    let ImportError::Broken { broken, .. } = &error else { panic!("{error}") };
    let places: Vec<&str> = broken.iter().map(|rule| rule.place.as_str()).collect();
    assert_eq!(places, ["--vip", "hosts.ini:2", "hosts.ini:4"], "{error}");
    assert!(broken[1].what.contains("cp1 has no address") && broken[1].remedy.contains("--address"), "{error}");
    assert!(error.to_string().ends_with("nothing was written: the result would not be a valid inventory"), "{error}");
}

#[test]
fn a_host_with_an_interface_instead_of_an_address_is_refused_until_a_flag_or_the_file_gives_the_address() {
    let file = |more: &str| {
        let lines = format!(
            "apiVersion: k0sctl.k0sproject.io/v1beta1\nkind: Cluster\nspec:\n  hosts:\n  - role: controller\n    \
             hostname: cp1\n    privateInterface: eth7\n{more}    ssh: {{address: 192.0.2.11}}\n"
        );
        text("k0sctl.yaml", &lines)
    };
    let error = import(Tool::K0sctl, &file(""), &vip("10.0.0.100"), &Nothing).unwrap_err();
    let ImportError::Broken { broken, .. } = &error else { panic!("{error}") };
    let rule = broken.iter().find(|rule| rule.place == "spec.hosts[0].privateInterface");
    let rule = rule.unwrap_or_else(|| panic!("{error}"));
    assert!(rule.what.starts_with("cp1 has no address") && rule.what.contains("eth7"), "{error}");
    assert!(rule.remedy.contains("--address cp1=ADDRESS") && rule.remedy.contains("privateAddress"), "{error}");
    let by_flag = Wishes { addresses: vec!["cp1=10.0.0.11".to_owned()], ..vip("10.0.0.100") };
    for (more, wishes) in [("", by_flag), ("    privateAddress: 10.0.0.11\n", vip("10.0.0.100"))] {
        let done = import(Tool::K0sctl, &file(more), &wishes, &Nothing).unwrap();
        let lines = ["address: 10.0.0.11", "host: 192.0.2.11"];
        assert!(lines.iter().all(|line| done.text.contains(line)), "{}", done.text);
        assert!(!done.warnings.iter().any(|note| note.place.contains("privateInterface")), "{:?}", done.warnings);
    }
}

#[test]
fn an_expression_that_only_ansible_can_evaluate_is_shown_where_a_value_is_required() {
    let hosts = "[masters]\ncp1 ansible_host=\"{{ lookup('dig', 'cp1') }}\"\n";
    let said = refused(Tool::Ansible, &text("hosts.ini", hosts), &vip("10.0.0.100"));
    assert!(said.contains("lookup('dig', 'cp1')") && said.contains("cp1 has no address"), "{said}");
}

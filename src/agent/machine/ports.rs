//! Which process listens on which TCP port or Unix socket, from the tables of the kernel.
//!
//! In: ports, or the path of a socket. Out: those in use and their processes. Processes are searched only for those in
//! use.

use crate::agent::machine::root::Root;
use crate::model::facts::PortFact;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;

/// The state of a listening socket.
const LISTEN: &str = "0A";
/// The flags of a Unix socket that accepts connections.
const ACCEPTS: &str = "00010000";

/// A listening socket.
struct Listener {
    address: IpAddr,
    port: u16,
    inode: u64,
}

/// Listening sockets.
fn listeners(root: &Root) -> Vec<Listener> {
    // Those of this process's own network namespace: /proc/net refers to it.
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().filter_map(|path| File::open(root.own(path)).ok());
    tables.flat_map(|table| parse(BufReader::new(table))).collect()
}

/// The listening sockets of a table. The kernel lists them first (its documentation, `networking/proc_net_tcp`): the
/// connections, of which there may be thousands, are not read.
fn parse(table: impl BufRead) -> impl Iterator<Item = Listener> {
    let lines = table.lines().skip(1).map_while(Result::ok);
    let listening = lines.take_while(|line| line.split_whitespace().nth(3) == Some(LISTEN));
    listening.filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (address, port) = fields.get(1)?.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        Some(Listener { address: address_of(address)?, port, inode: fields.get(9)?.parse().ok()? })
    })
}

/// An address in a table of the kernel: words of 32 bits, each in network order, written as numbers of this machine.
fn address_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(IpAddr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Some(IpAddr::from(<[u8; 16]>::try_from(words).ok()?).to_canonical())
        }
        _ => None,
    }
}

/// The sockets that receive connections to this address and port, by inode.
pub(crate) fn sockets_at(root: &Root, address: IpAddr, port: u16) -> BTreeSet<u64> {
    let receives = |socket: &Listener| socket.address.is_unspecified() || socket.address == address;
    let all = listeners(root).into_iter().filter(|socket| socket.port == port && receives(socket));
    all.map(|socket| socket.inode).collect()
}

/// Whether a process has one of these sockets open.
pub(crate) fn has_socket(root: &Root, pid: u32, sockets: &BTreeSet<u64>) -> bool {
    // One that has ended has none.
    let open = fs::read_dir(root.own("/proc").join(pid.to_string()).join("fd"));
    let mut targets = open.into_iter().flatten().flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.any(|target| socket_of(&target).is_some_and(|inode| sockets.contains(&inode)))
}

fn socket_of(target: &Path) -> Option<u64> {
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Whether a process listens on a port.
pub(crate) fn listening(root: &Root, port: u16) -> bool {
    listeners(root).iter().any(|socket| socket.port == port)
}

/// The process that listens on a Unix socket.
pub(crate) fn listener_at(root: &Root, path: &str) -> Option<String> {
    let text = fs::read_to_string(root.own("/proc/net/unix")).unwrap_or_default();
    let inode = text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let inode: u64 = fields.get(6)?.parse().ok()?;
        (*fields.get(3)? == ACCEPTS && *fields.get(7)? == path).then_some(inode)
    })?;
    owners(root, &BTreeSet::from([inode])).remove(&inode)
}

/// The ports in use among `ports`.
pub(crate) fn taken(root: &Root, ports: &[u16]) -> Vec<PortFact> {
    // The kernel searches its whole table of connections behind the listening sockets, which takes it milliseconds.
    if ports.is_empty() {
        return Vec::new();
    }
    let wanted: BTreeSet<u16> = ports.iter().copied().collect();
    let found = listeners(root).into_iter().filter(|socket| wanted.contains(&socket.port));
    let found: Vec<(u16, u64)> = found.map(|socket| (socket.port, socket.inode)).collect();
    if found.is_empty() {
        return Vec::new();
    }
    let owners = owners(root, &found.iter().map(|(_, inode)| *inode).collect());
    let mut by_port: BTreeMap<u16, BTreeSet<String>> = BTreeMap::new();
    for (port, inode) in found {
        let by = owners.get(&inode).cloned().unwrap_or_else(|| "the kernel or another container".to_owned());
        by_port.entry(port).or_default().insert(by);
    }
    by_port.into_iter().map(|(port, by)| PortFact { port, by: by.into_iter().collect::<Vec<_>>().join(", ") }).collect()
}

/// The processes that have these sockets open, such as `nginx (pid 812)`; of several the one with the lowest pid.
fn owners(root: &Root, wanted: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    let mut pids: Vec<u32> = fs::read_dir(root.own("/proc"))
        .map(|all| all.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect())
        .unwrap_or_default();
    pids.sort_unstable();
    let mut found = BTreeMap::new();
    for pid in pids {
        if found.len() == wanted.len() {
            break;
        }
        let process = root.own("/proc").join(pid.to_string());
        // Ended in the meantime, or not accessible.
        let Ok(open) = fs::read_dir(process.join("fd")) else { continue };
        for target in open.flatten().filter_map(|e| fs::read_link(e.path()).ok()) {
            if let Some(inode) = socket_of(&target).filter(|i| wanted.contains(i)) {
                found.entry(inode).or_insert_with(|| {
                    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
                    format!("{} (pid {pid})", name.trim())
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_table_the_sockets_before_the_first_connection_are_read() {
        let line = |port: u16, state: &str| format!("0: 0100007F:{port:04X} 0:0 {state} 0:0 0:0 0 0 0 {port} 1 0\n");
        let table = ["head\n".to_owned(), line(1, LISTEN), line(2, LISTEN), line(3, "01"), line(4, LISTEN)].concat();
        assert_eq!(parse(table.as_bytes()).map(|socket| socket.port).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_listener_of_this_very_process_is_found_with_its_name_beside_a_connection() {
        let older = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _connection = std::net::TcpStream::connect(older.local_addr().unwrap()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let found = taken(&Root::host(), &[port, 1]);
        assert_eq!(found.len(), 1);
        assert!(found[0].port == port && found[0].by.ends_with(&format!("(pid {})", std::process::id())), "{found:?}");
        assert!(listening(&Root::host(), port));
        let address = listener.local_addr().unwrap().ip();
        let sockets = sockets_at(&Root::host(), address, port);
        assert!(sockets.len() == 1 && has_socket(&Root::host(), std::process::id(), &sockets));
        assert!(sockets_at(&Root::host(), "127.0.0.9".parse().unwrap(), port).is_empty(), "another address");
        assert!(!has_socket(&Root::host(), std::process::id(), &BTreeSet::new()));
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("containerd.sock");
        let at = |path: &Path| listener_at(&Root::host(), path.to_str().unwrap());
        assert_eq!(at(&socket), None);
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(at(&socket).is_some_and(|by| by.ends_with(&format!("(pid {})", std::process::id()))));
    }
}

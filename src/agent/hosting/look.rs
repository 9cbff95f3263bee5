//! How the components of the control plane run on this host, from the kernel: who listens is found by socket, process
//! and environment. The API is not asked: it may be down, or older than what runs.
//!
//! In: components, with their addresses. Out: facts. A process counts as a pod of a `DaemonSet` by the revision and the
//! uid in its environment, where the template of the pod puts them.

use crate::agent::machine::ports::{has_socket, sockets_at};
use crate::agent::machine::root::Root;
use crate::agent::op_error::Outcome;
use crate::agent::plain_http;
use crate::model::control_plane::PROGRAMS;
use crate::model::hosting::{
    AWAIT_TURN, Component, ComponentFact, HostingFact, POD_VARIABLE, REVISION_VARIABLE, Server, Workload, is_name,
};
use futures::future::join_all;
use std::fs::{self, File};
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(3);
/// The largest environment that is read, bytes.
const LARGEST: u64 = 256 << 10;

/// All components of a host that has been self-hosted; `None`: it never was.
pub(crate) async fn look_all(root: &Root, components: [Component; 3]) -> Outcome<Option<HostingFact>> {
    let Some(mode) = super::mode(root) else { return Ok(None) };
    let names = components.map(|component| component.program.to_owned());
    let facts = self::components(root, components).await?;
    Ok(Some(HostingFact { mode: Some(mode), components: names.into_iter().zip(facts).collect() }))
}

/// How these components run. The processes of the host are read once.
///
/// # Errors
/// A defect of this program.
pub async fn components<const N: usize>(root: &Root, all: [Component; N]) -> Outcome<[ComponentFact; N]> {
    let kernel = root.blocking(move |root| {
        let processes: Vec<Process> = processes(root).collect();
        Ok(all.map(|component| by_the_kernel(root, component, &processes)))
    });
    let asked = join_all(all.map(|component| answers(component.address, component.port, ANSWER)));
    let (mut facts, answers) = tokio::join!(kernel, asked);
    for (fact, answers) in facts.iter_mut().flatten().zip(answers) {
        fact.answers = answers;
    }
    facts
}

/// Whether an HTTP server answers there, with any status. The request is not encrypted, and the servers of the control
/// plane answer it with an error: that takes no certificate, and they answer once they serve.
pub async fn answers(address: IpAddr, port: u16, within: Duration) -> bool {
    plain_http::answers(&SocketAddr::new(address, port).to_string(), "/livez", within).await.is_ok()
}

fn by_the_kernel(root: &Root, component: Component, processes: &[Process]) -> ComponentFact {
    let (there, aside) = super::places(root, component);
    let sockets = sockets_at(root, component.address, component.port);
    let mut fact = ComponentFact { placed: there.exists(), aside: aside.exists(), ..ComponentFact::default() };
    let port = component.port.to_string();
    for process in processes {
        if process.program() == component.program.as_bytes() {
            if !sockets.is_empty() && has_socket(root, process.pid, &sockets) {
                fact.server = Some(process.workload().map_or(Server::Static, Server::Workload));
            }
        } else if fact.waits.is_none() && process.awaits(&port) && process.is_in_our_network(root) {
            fact.waits = process.workload();
        }
    }
    if fact.server.is_none() && !sockets.is_empty() {
        fact.server = Some(Server::Other);
    }
    fact
}

/// A process that may belong to a control plane.
struct Process {
    pid: u32,
    at: PathBuf,
    command: Vec<Vec<u8>>,
}

/// Processes of the programs, and those that wait for a port.
fn processes(root: &Root) -> impl Iterator<Item = Process> {
    let entries = fs::read_dir(root.own("/proc")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // One that has ended has no command.
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        let command: Vec<Vec<u8>> = command.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        let process = Process { pid, at: entry.path(), command };
        let program = PROGRAMS.iter().any(|program| program.as_bytes() == process.program());
        (program || process.waits()).then_some(process)
    })
}

impl Process {
    fn program(&self) -> &[u8] {
        let path = self.command.first().map(Vec::as_slice).unwrap_or_default();
        path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    fn waits(&self) -> bool {
        self.command.get(1).is_some_and(|verb| verb == AWAIT_TURN.as_bytes())
    }

    fn awaits(&self, port: &str) -> bool {
        let given = |pair: &[Vec<u8>]| pair == [b"--port".as_slice(), port.as_bytes()];
        self.waits() && self.command.windows(2).any(given)
    }

    /// Whether it shares the network of this process: a pod of a user cannot wait for a port of the host.
    fn is_in_our_network(&self, root: &Root) -> bool {
        let network = |of: PathBuf| fs::read_link(of.join("ns/net")).ok();
        let own = network(root.own("/proc/self"));
        own.is_some() && network(self.at.clone()) == own
    }

    /// The pod of a `DaemonSet` that it belongs to.
    fn workload(&self) -> Option<Workload> {
        let mut bytes = Vec::new();
        File::open(self.at.join("environ")).ok()?.take(LARGEST).read_to_end(&mut bytes).ok()?;
        workload(&bytes)
    }
}

fn workload(environment: &[u8]) -> Option<Workload> {
    let value = |name: &str| {
        let mut values = environment.split(|byte| *byte == 0).filter_map(|variable| {
            let text = std::str::from_utf8(variable).ok()?;
            text.strip_prefix(name)?.strip_prefix('=')
        });
        values.next().filter(|value| is_name(value)).map(str::to_owned)
    };
    Some(Workload { uid: value(POD_VARIABLE)?, revision: value(REVISION_VARIABLE)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// A process of a made-up host, with a socket and an environment.
    fn process(root: &Path, pid: u32, command: &[&str], environment: &str, socket: Option<u64>) {
        let at = root.join("proc").join(pid.to_string());
        fs::create_dir_all(at.join("fd")).unwrap();
        fs::create_dir_all(at.join("ns")).unwrap();
        symlink("net:[1]", at.join("ns/net")).unwrap();
        fs::write(at.join("cmdline"), command.join("\0")).unwrap();
        fs::write(at.join("environ"), environment).unwrap();
        if let Some(inode) = socket {
            symlink(format!("socket:[{inode}]"), at.join("fd/3")).unwrap();
        }
    }

    fn host(listens: &[(u16, u64)]) -> (tempfile::TempDir, Root) {
        let place = tempfile::tempdir().unwrap();
        let line = |(port, inode): &(u16, u64)| {
            let address = u32::from_ne_bytes([127, 0, 0, 1]);
            format!("0: {address:08X}:{port:04X} 00000000:0000 0A 0:0 0:0 0 0 0 {inode} 1 0\n")
        };
        fs::create_dir_all(place.path().join("proc/net")).unwrap();
        fs::create_dir_all(place.path().join("proc/self/ns")).unwrap();
        symlink("net:[1]", place.path().join("proc/self/ns/net")).unwrap();
        let lines: String = listens.iter().map(line).collect();
        fs::write(place.path().join("proc/net/tcp"), format!("head\n{lines}")).unwrap();
        let root = Root::at(place.path());
        (place, root)
    }

    fn scheduler() -> Component {
        Component::all(ADDRESS, 6443)[0]
    }

    fn seen(root: &Root, component: Component) -> ComponentFact {
        by_the_kernel(root, component, &processes(root).collect::<Vec<_>>())
    }

    #[test]
    fn who_listens_is_known_by_its_environment() {
        for (environment, expected) in [
            ("A=1\0HACTL_POD=u1\0HACTL_REVISION=r1\0", "workload"),
            ("A=1\0", "static"),
            ("HACTL_POD=u1\0", "static"),
            ("HACTL_POD=\0HACTL_REVISION=r1\0", "static"),
        ] {
            let (place, root) = host(&[(scheduler().port, 77)]);
            process(place.path(), 12, &["/usr/local/bin/kube-scheduler", "--x"], environment, Some(77));
            let found = match seen(&root, scheduler()).server {
                Some(Server::Workload(pod)) if pod.uid == "u1" && pod.revision == "r1" => "workload",
                Some(Server::Static) => "static",
                _ => "another",
            };
            assert_eq!(found, expected, "{environment:?}");
        }
        let (place, root) = host(&[(scheduler().port, 77)]);
        process(place.path(), 12, &["kube-scheduler"], "", Some(78));
        process(place.path(), 13, &["nginx"], "", Some(77));
        assert_eq!(seen(&root, scheduler()).server, Some(Server::Other));
        let (_place, root) = host(&[]);
        assert_eq!(seen(&root, scheduler()), ComponentFact::default());
    }

    #[test]
    fn a_pod_waits_for_its_own_port_and_only_in_the_network_of_the_host() {
        let environment = "HACTL_POD=u1\0HACTL_REVISION=r1\0";
        let wait =
            |port: &str| vec!["/turn/hactl".to_owned(), AWAIT_TURN.to_owned(), "--port".to_owned(), port.to_owned()];
        let looked = |port: &str, network: &str| {
            let (place, root) = host(&[]);
            let command = wait(port);
            let command: Vec<&str> = command.iter().map(String::as_str).collect();
            process(place.path(), 12, &command, environment, None);
            fs::remove_file(place.path().join("proc/12/ns/net")).unwrap();
            symlink(network, place.path().join("proc/12/ns/net")).unwrap();
            seen(&root, scheduler()).waits
        };
        let own = scheduler().port.to_string();
        assert_eq!(looked(&own, "net:[1]").map(|pod| pod.uid), Some("u1".to_owned()));
        assert_eq!(looked(&own, "net:[2]"), None, "a pod with a network of its own");
        assert_eq!(looked("6443", "net:[1]"), None);
    }

    #[tokio::test]
    async fn a_server_that_expects_encryption_answers_and_a_silent_one_does_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let short = Duration::from_millis(200);
        assert!(!answers(ADDRESS, port, short).await, "it accepts and says nothing");
        let server = tokio::spawn(async move {
            use tokio::io::AsyncWriteExt as _;
            // The first connection is the one that got no answer.
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request").await;
                let _ = stream.shutdown().await;
            }
        });
        assert!(answers(ADDRESS, port, Duration::from_secs(5)).await);
        server.abort();
    }
}

//! What the tested host should have: the simulated world's target with real content behind every digest, the
//! directories and kernel settings that are rendered for a real host, and leaves of the real certificate table.

use crate::sim::{World, make};
use aws_lc_rs::digest::SHA256;
use hactl::model::desired::Desired;
use hactl::model::names::{Digest, HostName};
use hactl::model::target::{CertId, CertSpec, FileSet, HostTarget, Part, Target};
use hactl::pki::Contents;
use hactl::protocol::{FilePut, ObserveAsk, Preparation};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use time::OffsetDateTime;

/// The owner of everything: the user that runs the test, by the name in the host's `/etc/passwd`. Only root can give
/// files to other users, so this one stands for both `root` and `etcd`.
pub const OWNER: &str = "hactl";
/// The part with a link.
pub const LINKED: &str = "kubelet";
/// Directories without files of the target.
pub const EMPTY: [&str; 3] = ["/etc/cni/net.d", "/opt/cni/bin", "/var/log/kubernetes/audit"];

/// Keys and compressed parts: made once.
pub struct Fixture {
    pub ours: Contents,
    pub others: Contents,
    /// A key that belongs to no certificate.
    pub stray_key: String,
    sent: BTreeMap<Digest, Vec<u8>>,
    parts: Vec<Part>,
}

pub static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let found = || {
        hactl::pki::found(
            &"lab".parse().expect("a valid name"),
            hactl::pki::brought::Brought::default(),
            OffsetDateTime::now_utc(),
        )
    };
    let mut sent = BTreeMap::new();
    let mut parts = make::target(&desired(), make::Release::default()).hosts.remove(&host()).expect("cp1").parts;
    for part in &mut parts {
        let content = noise(&part.name);
        let packed = zstd::encode_all(content.as_slice(), 1).expect("compressing to memory");
        (part.digest, part.size) = (Digest::of(&content), content.len() as u64);
        (part.sent_digest, part.sent_size) = (Digest::of(&packed), packed.len() as u64);
        sent.insert(part.digest, packed);
    }
    Fixture {
        ours: found().expect("CAs"),
        others: found().expect("CAs"),
        stray_key: rcgen::KeyPair::generate().expect("a key").serialize_pem(),
        sent,
        parts,
    }
});

impl Fixture {
    /// The compressed form of a part.
    pub fn sent(&self, part: &Part) -> &[u8] {
        &self.sent[&part.digest]
    }
    /// A certificate for a request, signed by the CA that the leaf names.
    pub fn sign(&self, leaf: &CertSpec, request: &str) -> String {
        let authority = self.ours.issuer(leaf).or_else(|_| self.others.issuer(leaf)).expect("a known CA");
        hactl::pki::sign(request, leaf, authority, OffsetDateTime::now_utc()).expect("a good request")
    }
}

/// Content that cannot be compressed, so that any byte that is damaged in transit also differs in the content.
fn noise(name: &str) -> Vec<u8> {
    let block = |n: u16| aws_lc_rs::digest::digest(&SHA256, format!("{name} {n}").as_bytes()).as_ref().to_vec();
    (0..600).flat_map(block).collect()
}

pub fn host() -> HostName {
    make::host_name("cp1")
}

fn desired() -> Desired {
    make::desired(1, 0)
}

pub fn sets() -> Vec<FileSet> {
    make::target(&desired(), make::Release::default()).hosts[&host()].sets.keys().copied().collect()
}

pub fn part_names() -> Vec<&'static str> {
    FIXTURE.parts.iter().map(|p| p.name.as_str()).collect()
}

/// The content of a file, by the release of the inventory.
pub fn content(path: &str, release: u8) -> String {
    format!("{path} of release {release}\n")
}

/// Files of the control plane also change their mode between releases.
fn mode(set: FileSet, release: u8) -> u32 {
    if set == FileSet::ControlPlaneConfig && release > 0 { 0o600 } else { 0o644 }
}

/// What `hactl up` would prepare, with the only owner there is.
pub fn preparation() -> Preparation {
    let desired = desired();
    let mut all = hactl::render::preparation(&desired, &desired.hosts[0]);
    for (_, owner, _) in &mut all.directories {
        OWNER.clone_into(owner);
    }
    all
}

fn leaves(release: u8) -> Vec<CertSpec> {
    let desired = desired();
    let mut all = hactl::pki::leaves(&desired, &desired.hosts[0], &FIXTURE.ours.publics());
    let some = [CertId::EtcdPeer, CertId::ApiserverEtcdClient, CertId::Apiserver, CertId::Kubelet];
    all.retain(|leaf| some.contains(&leaf.id));
    for leaf in &mut all {
        OWNER.clone_into(&mut leaf.owner);
        if leaf.id == CertId::Apiserver {
            leaf.sans.push(format!("DNS:release-{release}"));
            leaf.sans.sort();
        }
    }
    all
}

/// What the host should have.
pub fn target(release: u8) -> Target {
    let mut all = make::target(&desired(), make::Release::default());
    let host = all.hosts.get_mut(&host()).expect("cp1");
    let preparation = preparation();
    host.parts.clone_from(&FIXTURE.parts);
    host.leaves = leaves(release);
    host.paths = preparation.directories.into_iter().map(|(path, _, _)| path).collect();
    host.sysctls = preparation.sysctls;
    for (set, files) in &mut host.sets {
        for file in &mut files.files {
            file.digest = Digest::of(content(&file.path, release).as_bytes());
            file.mode = mode(*set, release);
            OWNER.clone_into(&mut file.owner);
        }
    }
    all
}

/// Contents for some paths of a set.
pub fn puts(target: &HostTarget, set: FileSet, paths: &[String], release: u8) -> Vec<FilePut> {
    let files = target.sets[&set].files.iter().filter(|f| paths.contains(&f.path));
    let put = |f: &hactl::model::target::FileTarget| FilePut {
        path: f.path.clone(),
        mode: f.mode,
        owner: f.owner.clone(),
        content: content(&f.path, release),
        check: None,
    };
    files.map(put).collect()
}

/// The simulated world with this one host in it, as bare as the real one.
pub fn world() -> World {
    let mut world = World::bare(1, 0);
    world.target = target(0);
    let settings = world.host_target(&host()).sysctls;
    let bare = world.host_mut(&host());
    // The real host's swap cannot be tested without turning off that of this machine.
    bare.swap = false;
    bare.sysctls = settings.into_keys().map(|key| (key, "77".to_owned())).collect();
    world
}

/// Everything that both can be asked for.
pub fn question(world: &World) -> ObserveAsk {
    let target = world.host_target(&host());
    ObserveAsk {
        files: target.sets.values().flat_map(|s| &s.files).map(|f| f.path.clone()).collect(),
        parts: target.parts,
        leaves: target.leaves,
        programs: target.paths,
        sysctls: target.sysctls.into_keys().collect(),
        etcd: hactl::render::etcd_ask(&world.desired, &world.desired.hosts[0]),
        ..ObserveAsk::default()
    }
}

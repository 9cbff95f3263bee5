//! What people and broken disks do to a host between two operations, done to both: to the simulated one as changed
//! facts, to the real one with the usual tools.

use crate::fixture::{EMPTY, FIXTURE, LINKED, OWNER, host, part_names};
use crate::place::{DATA, sysctl};
use crate::play::Both;
use crate::sim::effect::Effect;
use crate::sim::make;
use crate::sim::member::{Cluster, Listed};
use crate::sim::world::Disk;
use hactl::model::facts::{ClusterId, FileFact};
use hactl::model::names::Digest;
use hactl::model::target::CertSpec;
use hactl::protocol::Op;
use proptest::prelude::*;
use std::fs;

/// One act. Numbers choose a file, a leaf, a setting or a folder.
#[derive(Debug, Clone, Copy)]
pub enum Tamper {
    /// Edited, or created by hand if it is missing.
    FileEdited(u8),
    FileMode(u8),
    FileGone(u8),
    PartFlipped(&'static str),
    PartMode(&'static str),
    PartGone(&'static str),
    LinkGone,
    ClusterIdGone,
    ClusterIdOfAnother,
    CertGone(u8),
    CertGarbled(u8),
    KeyGone(u8),
    KeySwapped(u8),
    CertOfAnother(u8),
    SettingChanged(u8, bool),
    SettingGone(u8),
    FolderGone(u8),
    /// The volume of etcd is another, empty one.
    DataLost,
    MemberGone,
    MarkerGone,
    TokenGone,
    DataOfAnother,
    EtcdStops,
}

pub fn tamper() -> impl Strategy<Value = Tamper> {
    let part = || prop::sample::select(part_names());
    let n = || any::<u8>();
    prop_oneof![
        prop_oneof![
            n().prop_map(Tamper::FileEdited),
            n().prop_map(Tamper::FileMode),
            n().prop_map(Tamper::FileGone),
            (n(), any::<bool>()).prop_map(|(n, good)| Tamper::SettingChanged(n, good)),
            n().prop_map(Tamper::SettingGone),
            n().prop_map(Tamper::FolderGone),
            Just(Tamper::ClusterIdGone),
            Just(Tamper::ClusterIdOfAnother),
        ],
        prop_oneof![
            part().prop_map(Tamper::PartFlipped),
            part().prop_map(Tamper::PartMode),
            part().prop_map(Tamper::PartGone),
            Just(Tamper::LinkGone),
        ],
        prop_oneof![
            n().prop_map(Tamper::CertGone),
            n().prop_map(Tamper::CertGarbled),
            n().prop_map(Tamper::KeyGone),
            n().prop_map(Tamper::KeySwapped),
            n().prop_map(Tamper::CertOfAnother),
        ],
        data(),
    ]
}

/// Acts on etcd's data.
pub fn data() -> BoxedStrategy<Tamper> {
    prop_oneof![
        Just(Tamper::DataLost),
        Just(Tamper::MemberGone),
        Just(Tamper::MarkerGone),
        Just(Tamper::TokenGone),
        Just(Tamper::DataOfAnother),
        Just(Tamper::EtcdStops),
    ]
    .boxed()
}

impl Both {
    /// Does it to both hosts.
    pub async fn tamper(&mut self, tamper: Tamper) -> Result<(), String> {
        match tamper {
            Tamper::FileEdited(n) => self.edit(&self.path(n)),
            Tamper::FileMode(n) => {
                let (path, now) = (self.path(n), self.world.tick());
                if let Some(found) = self.world.host_mut(&host()).files.get_mut(&path) {
                    found.mode ^= 0o040;
                    found.changed_ms = now;
                    self.place.chmod(&path, found.mode);
                }
            }
            Tamper::FileGone(n) => {
                // With the host's own operation, which no plan uses yet.
                let path = self.path(n);
                self.world.host_mut(&host()).files.remove(&path);
                let op = Op::WriteFiles { files: vec![], remove: vec![path], keep: None };
                self.place.ask(op).await.map_err(|fault| fault.what)?;
            }
            Tamper::PartFlipped(name) => self.harm(name, |at| {
                let mut content = fs::read(at).expect("it is there");
                let middle = content.len() / 2;
                // Never back to its original value.
                content[middle] = content[middle].wrapping_add(1);
                fs::write(at, content).expect("it can be written");
            }),
            Tamper::PartMode(name) => self.harm(name, |at| {
                use std::os::unix::fs::PermissionsExt as _;
                fs::set_permissions(at, fs::Permissions::from_mode(0o600)).expect("it is ours");
            }),
            Tamper::PartGone(name) => self.harm(name, |at| fs::remove_file(at).expect("it is there")),
            Tamper::LinkGone => {
                // A program without its link is not in its place.
                let part = self.part(LINKED);
                self.world.host_mut(&host()).blobs.remove(&part.digest);
                self.place.remove(&format!("/usr/local/bin/{LINKED}"));
            }
            Tamper::ClusterIdGone => {
                self.world.host_mut(&host()).cluster_id = None;
                self.place.remove("/var/lib/hactl/cluster.json");
            }
            Tamper::ClusterIdOfAnother => {
                let cluster_id = ClusterId {
                    cluster: "other".parse().expect("a valid name"),
                    ca: Digest::new([9; 32]),
                    stages: 0,
                    host: None,
                    machine: None,
                };
                self.place.write("/var/lib/hactl/cluster.json", serde_json::to_vec(&cluster_id).expect("JSON"));
                self.world.host_mut(&host()).cluster_id = Some(cluster_id);
            }
            Tamper::SettingChanged(n, good) => {
                let (key, wanted) = self.setting(n);
                let value = if good { wanted } else { "5".to_owned() };
                self.place.write(&sysctl(&key), format!("{value}\n"));
                self.world.host_mut(&host()).sysctls.insert(key, value);
            }
            Tamper::SettingGone(n) => {
                let (key, _) = self.setting(n);
                self.place.remove(&sysctl(&key));
                self.world.host_mut(&host()).sysctls.remove(&key);
            }
            Tamper::FolderGone(n) => {
                let folder = EMPTY[usize::from(n) % EMPTY.len()];
                self.place.remove(folder);
                self.world.host_mut(&host()).programs.remove(folder);
            }
            Tamper::CertGone(n) | Tamper::CertGarbled(n) | Tamper::KeyGone(n) | Tamper::KeySwapped(n) => {
                self.tamper_leaf(tamper, &self.leaf(n));
            }
            Tamper::CertOfAnother(n) => self.foreign(&self.leaf(n)).await?,
            Tamper::DataLost
            | Tamper::MemberGone
            | Tamper::MarkerGone
            | Tamper::TokenGone
            | Tamper::DataOfAnother
            | Tamper::EtcdStops => self.tamper_data(tamper),
        }
        Ok(())
    }

    fn path(&self, n: u8) -> String {
        let all: Vec<String> = self.target().sets.into_values().flat_map(|s| s.files).map(|f| f.path).collect();
        all[usize::from(n) % all.len()].clone()
    }
    fn leaf(&self, n: u8) -> CertSpec {
        let mut all = self.target().leaves;
        all.swap_remove(usize::from(n) % all.len())
    }
    fn setting(&self, n: u8) -> (String, String) {
        let all = self.target().sysctls;
        let count = all.len();
        all.into_iter().nth(usize::from(n) % count).expect("there are some")
    }

    fn edit(&mut self, path: &str) {
        let folders = self.target().paths;
        let mut content = fs::read(self.place.at(path)).unwrap_or_default();
        content.extend(b"edited\n");
        self.place.write(path, &content);
        let changed_ms = self.world.tick();
        let found = self.world.host_mut(&host());
        let mode = found.files.get(path).map_or(0o644, |f| f.mode);
        self.place.chmod(path, mode);
        let fact = FileFact { digest: Digest::of(&content), mode, owner: OWNER.to_owned(), changed_ms };
        found.files.insert(path.to_owned(), fact);
        // An editor that creates a file creates the folders above it.
        found.programs.extend(folders.into_iter().filter(|folder| path.starts_with(&format!("{folder}/"))));
    }

    fn harm(&mut self, name: &str, how: impl Fn(&std::path::Path)) {
        let part = self.part(name);
        let at = self.place.at(&part.path());
        self.world.host_mut(&host()).blobs.remove(&part.digest);
        if at.exists() {
            how(&at);
        }
    }

    fn tamper_leaf(&mut self, tamper: Tamper, leaf: &CertSpec) {
        let (cert, key) = (leaf.cert_path.as_str(), leaf.key_path.as_str());
        let now = self.world.tick();
        let leaves = &mut self.world.host_mut(&host()).leaves;
        let Some(fact) = leaves.get_mut(&leaf.id) else { return };
        match tamper {
            // Only its own key, which is not newer than the certificate: the leaf's change time stays the same.
            Tamper::KeyGone(_) if cert != key && fact.key_matches => {
                fact.key_matches = false;
                self.place.remove(key);
            }
            Tamper::KeyGone(_) if cert != key => {}
            Tamper::KeySwapped(_) if cert != key => {
                (fact.key_matches, fact.changed_ms) = (false, now);
                self.place.write(key, &FIXTURE.stray_key);
            }
            Tamper::CertGarbled(_) => {
                leaves.remove(&leaf.id);
                self.place.write(cert, "nonsense");
            }
            // A file with both is removed as a whole.
            _ => {
                leaves.remove(&leaf.id);
                self.place.remove(cert);
            }
        }
    }

    /// The CA of another cluster signs the leaf.
    async fn foreign(&mut self, leaf: &CertSpec) -> Result<(), String> {
        if !self.ready() {
            return Ok(());
        }
        let authority = FIXTURE.others.cluster.id().to_owned();
        let theirs = CertSpec { authority: authority.clone(), ..leaf.clone() };
        self.place.certify(vec![theirs]).await.map_err(|fault| fault.what)?;
        self.happen(&[Effect::CertSpec(host(), leaf.id)])?;
        let fact = self.world.host_mut(&host()).leaves.get_mut(&leaf.id).expect("just issued");
        fact.authority = authority;
        Ok(())
    }

    fn tamper_data(&mut self, tamper: Tamper) {
        let etcd = make::unit("etcd.service");
        match tamper {
            Tamper::DataLost => {
                self.world.lose_data(&host());
                for entry in fs::read_dir(self.place.at(DATA)).into_iter().flatten().flatten() {
                    self.place.remove(&format!("{DATA}/{}", entry.file_name().to_string_lossy()));
                }
            }
            Tamper::MemberGone => {
                self.world.unit_stopped(&host(), &etcd, true);
                self.world.host_mut(&host()).disk = None;
                self.place.remove(&format!("{DATA}/member"));
            }
            Tamper::MarkerGone => {
                self.world.host_mut(&host()).bootstrapped = None;
                self.place.remove(&format!("{DATA}/hactl-born"));
            }
            Tamper::TokenGone => {
                self.world.host_mut(&host()).token = None;
                self.place.remove(&format!("{DATA}/hactl-genesis"));
            }
            Tamper::DataOfAnother if self.world.host(&host()).disk.is_none() && self.place.at(DATA).is_dir() => {
                let peer = self.world.peer(&host());
                let listed = Listed { peer, name: "elsewhere".to_owned(), learner: false, started: true };
                let cluster = Cluster { members: [(7, listed)].into(), ..Cluster::default() };
                self.world.clusters.insert("beef".to_owned(), cluster);
                let disk = Disk { cluster: "beef".to_owned(), member: 7 };
                // On the real host the data appears when its etcd is set as the simulated one is.
                self.world.host_mut(&host()).disk = Some(disk);
            }
            _ => self.world.unit_stopped(&host(), &etcd, false),
        }
        self.world.settle();
    }
}

//! The single effects between which a crash can fall, and what each does to the world.

use super::make;
use super::member::{Change, Stop, failed};
use super::world::{FirstBoot, World};
use hactl::model::facts::{FileFact, LeafFact};
use hactl::model::names::{Digest, HostName, PeerUrl, UnitName};
use hactl::model::recovery::Recovery;
use hactl::model::target::{CertId, FileSet, SetTarget, object_key};

/// A single effect: either it has happened or it has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    ClusterId(HostName),
    Prepare(HostName),
    Package(HostName, String),
    Blob(HostName, Digest),
    Image(HostName, String, Digest),
    File(HostName, FileSet, String),
    CertSpec(HostName, CertId),
    UnitStops(HostName, UnitName),
    UnitStarts(HostName, UnitName),
    UnitReloads(HostName, UnitName),
    Bundled(HostName),
    UnitEnabled(HostName, UnitName),
    UnitDisabled(HostName, UnitName),
    /// The kubelet stops a static pod whose manifest was removed; without a kubelet, hactl stops it.
    PodEnds(HostName, String),
    /// The processes of an API server that does not answer are ended.
    ApiServerEnds(HostName),
    FirstBoot(HostName, FirstBoot),
    MemberStarts(HostName, bool),
    DataArchived(HostName),
    PodsEnd(HostName),
    SnapshotTaken(HostName, String, Option<String>),
    Restored(HostName, Recovery),
    /// The administrator's journal records that the cluster was bootstrapped, after the fact.
    BootstrapRecorded,
    MarkedBootstrapped(HostName),
    TokenSpent(HostName),
    Members(Change),
    Dense(HostName),
    Leads(HostName, PeerUrl),
    ServingSeen(HostName),
    /// Static pods run on the host from now on.
    Held(HostName),
    /// Pods of this revision take over from them.
    HandedOver(HostName, String),
    /// The label by which the Node gets those pods.
    Labelled(HostName, bool),
    /// All components of a host's control plane run.
    PodsSeen(HostName),
    ApiSeen,
    EndpointSeen,
    Object(String),
    ObjectGone(String),
    /// Entries of hactl's own record of objects, as a merge patch.
    Recorded(serde_json::Value),
    Evicted(String),
    Cordoned(HostName, bool),
    NodeGone(HostName),
    DataDeleted(HostName),
    Blank(HostName),
}

/// The host an effect happens on, when it needs one to answer.
pub fn place(effect: &Effect) -> Option<&HostName> {
    match effect {
        Effect::ClusterId(h)
        | Effect::Prepare(h)
        | Effect::Package(h, _)
        | Effect::Blob(h, _)
        | Effect::Image(h, _, _)
        | Effect::File(h, _, _)
        | Effect::CertSpec(h, _)
        | Effect::UnitStops(h, _)
        | Effect::UnitStarts(h, _)
        | Effect::UnitReloads(h, _)
        | Effect::Bundled(h)
        | Effect::UnitEnabled(h, _)
        | Effect::UnitDisabled(h, _)
        | Effect::PodEnds(h, _)
        | Effect::ApiServerEnds(h)
        | Effect::FirstBoot(h, _)
        | Effect::MemberStarts(h, _)
        | Effect::DataArchived(h)
        | Effect::PodsEnd(h)
        | Effect::SnapshotTaken(h, _, _)
        | Effect::Restored(h, _)
        | Effect::MarkedBootstrapped(h)
        | Effect::TokenSpent(h)
        | Effect::Dense(h)
        | Effect::Leads(h, _)
        | Effect::ServingSeen(h)
        | Effect::Held(h)
        | Effect::HandedOver(h, _)
        | Effect::PodsSeen(h)
        | Effect::DataDeleted(h)
        | Effect::Blank(h) => Some(h),
        Effect::BootstrapRecorded
        | Effect::Members(_)
        | Effect::ApiSeen
        | Effect::EndpointSeen
        | Effect::Object(_)
        | Effect::ObjectGone(_)
        | Effect::Recorded(_)
        | Effect::Evicted(_)
        | Effect::Cordoned(..)
        | Effect::Labelled(..)
        | Effect::NodeGone(_) => None,
    }
}

pub(super) fn need(holds: bool, what: impl FnOnce() -> String) -> Result<(), Stop> {
    if holds { Ok(()) } else { failed(what()) }
}

/// Makes one effect happen, or says why it does not.
pub fn happen(world: &mut World, effect: &Effect) -> Result<(), Stop> {
    if let Some(host) = place(effect) {
        need(world.host(host).answers(), || format!("{host} does not answer"))?;
    }
    match effect {
        Effect::ClusterId(h) => {
            let ours = world.intent.cluster_id.of(h);
            let found = world.host(h).cluster_id.as_ref();
            let free = found.is_none_or(|theirs| theirs.same_cluster(&ours) && theirs.stages <= ours.stages);
            need(free, || format!("{h} belongs to another cluster, or knows of later keys"))?;
            world.host_mut(h).cluster_id = Some(ours);
        }
        Effect::Prepare(h) => prepare(world, h)?,
        Effect::Package(h, package) => {
            let target = world.host_target(h);
            let programs = target.packages.iter().filter(|(_, p)| *p == package).map(|(path, _)| path.clone());
            world.host_mut(h).programs.extend(programs);
        }
        Effect::Blob(h, digest) => {
            prepared(world, h)?;
            world.host_mut(h).blobs.insert(*digest);
        }
        Effect::Image(h, reference, digest) => {
            let host = world.host(h);
            need(host.runs("containerd.service"), || format!("containerd does not run on {h}"))?;
            need(host.blobs.contains(digest), || format!("{reference} was not delivered to {h}"))?;
            world.host_mut(h).images.insert(reference.clone(), digest.hex());
        }
        Effect::File(h, set, path) => write(world, h, *set, path)?,
        Effect::CertSpec(h, leaf) => certify(world, h, *leaf)?,
        Effect::UnitStops(h, unit) => {
            world.unit_stopped(h, unit, false);
            world.settle();
        }
        Effect::UnitStarts(h, unit) => start(world, h, unit)?,
        Effect::UnitReloads(h, unit) => {
            let now = world.tick();
            let host = world.host_mut(h);
            let found = host.units.get_mut(unit).filter(|u| u.running);
            let Some(found) = found else { return failed(format!("{unit} does not run on {h}")) };
            found.reloaded_ms = now;
            world.balancer_reads(h, unit);
        }
        Effect::Bundled(h) => {
            need(world.host(h).runs("etcd.service") && world.living().is_some(), || {
                format!("no member answers on {h}")
            })?;
            need(world.stale_files(h, FileSet::Snapshots) == 0, || {
                format!("{h} does not know how to take a snapshot")
            })?;
            let now = world.tick();
            world.host_mut(h).bundled_ms = Some(now);
            world.saved_ms = Some(now);
        }
        Effect::UnitEnabled(h, unit) => {
            world.host_mut(h).units.entry(unit.clone()).or_default().enabled = true;
        }
        Effect::UnitDisabled(h, unit) => {
            if let Some(found) = world.host_mut(h).units.get_mut(unit) {
                found.enabled = false;
            }
        }
        Effect::PodEnds(h, path) => {
            let found = world.host_mut(h);
            found.files.remove(path);
            found.processes.remove(super::world::program_of(path));
            world.settle();
        }
        Effect::ApiServerEnds(h) => {
            let (found, program) = (world.host_mut(h), super::world::program_of(make::MANIFESTS[0]));
            // One that answers by now is left alone.
            if found.frozen.remove(program) {
                found.processes.remove(program);
            }
        }
        Effect::FirstBoot(h, boot) => first_boot(world, h, boot)?,
        Effect::MemberStarts(h, first) => member_starts(world, h, *first)?,
        Effect::DataArchived(h) => {
            need(!world.host(h).runs("etcd.service"), || format!("etcd still runs on {h}"))?;
            let host = world.host_mut(h);
            let disk = host.without_data();
            host.aside.extend(disk);
        }
        Effect::PodsEnd(h) => {
            super::hosting::hold(world, h);
            let host = world.host_mut(h);
            host.taken = None;
            host.processes.clear();
        }
        Effect::SnapshotTaken(h, id, aside) => {
            need(aside.is_some() || !world.host(h).runs("etcd.service"), || format!("etcd still runs on {h}"))?;
            let found = match aside {
                Some(name) => world.host(h).moved().find(|(moved, _)| moved == name).map(|(_, disk)| disk.clone()),
                None => world.host(h).disk.clone(),
            };
            let Some(disk) = found else { return failed(format!("{h} holds no data")) };
            world.snapshots.insert(id.clone(), disk);
        }
        Effect::Restored(h, recovery) => world.restore(h, recovery)?,
        Effect::BootstrapRecorded => {
            world.intent.bootstrapped = true;
            world.intent.lived.extend(world.living());
            let living = world.living().map(|id| &world.clusters[&id]);
            if let Some(base) = living.filter(|c| c.restored).map(|c| c.revision) {
                world.intent.recovered = Some(base);
            }
        }
        Effect::MarkedBootstrapped(h) => {
            let disk = world.host(h).disk.clone();
            let Some(disk) = disk else { return failed(format!("there is no member on {h} to mark as bootstrapped")) };
            let bootstrapped = &world.host(h).bootstrapped;
            let ours = bootstrapped.as_ref().is_none_or(|b| *b == disk.cluster);
            need(ours, || format!("the disk on {h} is marked as bootstrapped for another cluster"))?;
            world.host_mut(h).bootstrapped = Some(disk.cluster);
        }
        Effect::TokenSpent(h) => {
            let host = world.host_mut(h);
            host.token = None;
            // The settings stay; from now on they only let the member join.
            if let Some(FirstBoot::New { initial_members, .. }) = &host.first_boot {
                let members = initial_members.iter().map(|(name, peer)| (name.to_string(), peer.clone())).collect();
                host.first_boot = Some(FirstBoot::Existing { members });
            }
        }
        Effect::Dense(h) => {
            need(!world.host(h).runs("etcd.service"), || format!("etcd still runs on {h}"))?;
            world.host_mut(h).loose = false;
        }
        Effect::Leads(h, to) => world.lead(h, to)?,
        Effect::Members(change) => world.change_members(change)?,
        Effect::ServingSeen(h) => {
            world.kubelet_acts(h);
            need(world.api_serves(h), || format!("the API server on {h} is not ready"))?;
            world.disturbed.remove(h);
        }
        Effect::Held(h) => super::hosting::hold(world, h),
        Effect::HandedOver(h, revision) => super::hosting::hand_over(world, h, revision)?,
        Effect::Labelled(h, labelled) => super::hosting::label(world, h, *labelled)?,
        Effect::PodsSeen(h) => {
            world.kubelet_acts(h);
            let run = world.host(h).processes.len() == make::MANIFESTS.len();
            need(run, || format!("the control plane of {h} does not run"))?;
            let pods = matches!(world.host(h).hosting, Some(hactl::model::hosting::Mode::Workloads(_)));
            need(pods == world.host(h).taken.is_some(), || format!("{h} has pods that are to end"))?;
            world.disturbed.remove(h);
        }
        Effect::ApiSeen => {
            let hosts = world.with(hactl::model::desired::Role::ControlPlane);
            for host in &hosts {
                world.kubelet_acts(host);
            }
            need(hosts.iter().any(|h| world.api_serves(h)), || "no API server answers".to_owned())?;
        }
        Effect::EndpointSeen => {
            for host in world.with(hactl::model::desired::Role::ControlPlane) {
                world.kubelet_acts(&host);
            }
            need(world.endpoint_serves(), || "the endpoint does not answer".to_owned())?;
        }
        Effect::Object(key) => {
            let object = world.target.addons.iter().flat_map(|a| &a.objects).find(|o| &object_key(o) == key).cloned();
            let Some(object) = object else { return failed(format!("{key} is not an object of the target")) };
            // Recorded before it is created, so that hactl never loses track of an object.
            if !super::observe::is_recorded(world, key) {
                return Err(Stop::Broken(super::law::Broken::NotRecorded { key: key.clone() }));
            }
            world.objects.insert(key.clone(), object);
        }
        Effect::ObjectGone(key) => {
            need(world.any_api(), || "no API server answers".to_owned())?;
            let asked_for = world.target.addons.iter().flat_map(|a| &a.objects).any(|o| &object_key(o) == key);
            need(!asked_for, || format!("{key} is asked for and was to be deleted"))?;
            super::hosting::no_pods_of(world, key)?;
            world.objects.remove(key);
        }
        Effect::Recorded(data) => {
            let record = world.record.get_or_insert_with(serde_json::Map::new);
            for (addon, text) in data.as_object().into_iter().flatten() {
                if text.is_null() {
                    record.remove(addon);
                } else {
                    record.insert(addon.clone(), text.clone());
                }
            }
        }
        Effect::Evicted(pod) => world.evict(pod)?,
        Effect::Cordoned(h, true) => drop(world.cordoned.insert(h.clone())),
        Effect::Cordoned(h, false) => drop(world.cordoned.remove(h)),
        Effect::NodeGone(h) => {
            need(world.any_api(), || "no API server answers".to_owned())?;
            // A running kubelet would create it again.
            let lives = world.hosts.get(h).is_some_and(|host| host.runs("kubelet.service"));
            need(!lives, || format!("the kubelet on {h} still reports"))?;
            world.unknown_nodes.remove(h);
            world.cordoned.remove(h);
            world.labelled.remove(h);
        }
        Effect::DataDeleted(h) => drop(world.host_mut(h).without_data()),
        Effect::Blank(h) => blank(world, h),
    }
    Ok(())
}

/// Directories first, then every kernel setting: one that this kernel does not have fails the whole operation.
fn prepare(world: &mut World, host: &HostName) -> Result<(), Stop> {
    let target = world.host_target(host);
    let found = world.host_mut(host);
    found.programs.extend(target.paths);
    let missing = target.sysctls.keys().find(|key| !found.sysctls.contains_key(*key)).cloned();
    for (key, value) in target.sysctls {
        found.sysctls.entry(key).and_modify(|now| *now = value);
    }
    need(missing.is_none(), || format!("the kernel of {host} has no setting {}", missing.unwrap_or_default()))?;
    found.swap = false;
    Ok(())
}

/// The content of the disk decides whether a member may bootstrap or join.
fn first_boot(world: &mut World, host: &HostName, boot: &FirstBoot) -> Result<(), Stop> {
    prepared(world, host)?;
    let found = world.host(host);
    let token = match boot {
        FirstBoot::New { token, .. } => {
            need(found.bootstrapped.is_none(), || format!("{host}: its disk is marked as bootstrapped"))?;
            let ours = found.disk.is_none() || found.token.as_ref() == Some(token);
            need(ours, || format!("{host} holds data of another cluster"))?;
            Some(token.clone())
        }
        FirstBoot::Existing { .. } => {
            let again = found.disk.is_none() || found.first_boot.as_ref() == Some(boot);
            need(again, || format!("{host} holds data of an earlier member"))?;
            None
        }
    };
    let found = world.host_mut(host);
    if matches!(boot, FirstBoot::Existing { .. }) {
        // The mark was that of the member whose data is gone.
        found.bootstrapped = None;
    }
    (found.token, found.first_boot) = (token, Some(boot.clone()));
    Ok(())
}

/// Removes what `down` removes, from the same request that a host gets. Parts, packages and kernel settings stay.
fn blank(world: &mut World, host: &HostName) {
    let entered = world.desired.entered().find(|h| &h.name == host);
    let desired = entered.expect("only entered hosts are wiped").clone();
    let ask = hactl::render::wipe(&world.desired, &desired, true);
    let below = |path: &str, folder: &String| {
        path.strip_prefix(folder.as_str()).is_some_and(|r| r.is_empty() || r.starts_with('/'))
    };
    let gone = |path: &str| ask.remove.iter().chain(&ask.data).any(|folder| below(path, folder));
    let leaves = world.host_target(host).leaves;
    let found = world.host_mut(host);
    found.files.retain(|path, _| !gone(path));
    found.programs.retain(|path| !gone(path));
    found.leaves.retain(|id, _| leaves.iter().any(|l| l.id == *id && !gone(&l.cert_path)));
    (found.cluster_id, found.first_boot) = (None, None);
    (found.hosting, found.taken) = (None, None);
    found.units.clear();
    found.images.clear();
    found.processes.clear();
    world.settle();
}

fn prepared(world: &World, host: &HostName) -> Result<(), Stop> {
    let target = world.host_target(host);
    let found = world.host(host);
    need(found.cluster_id.is_some(), || format!("{host} has no cluster ID"))?;
    need(target.paths.iter().all(|p| found.programs.contains(p)), || format!("{host} has no directories yet"))
}

fn write(world: &mut World, host: &HostName, set: FileSet, path: &str) -> Result<(), Stop> {
    prepared(world, host)?;
    let target = world.host_target(host);
    let files = target.sets.get(&set).map(|s| s.files.clone()).unwrap_or_default();
    let Some(file) = files.into_iter().find(|f| f.path == path) else {
        let of_set = |s: &SetTarget| {
            s.folders.iter().any(|folder| path.starts_with(folder.as_str())) || s.own.iter().any(|own| own == path)
        };
        if target.sets.get(&set).is_some_and(of_set) {
            world.host_mut(host).files.remove(path);
            return Ok(());
        }
        return failed(format!("{path} is not a file of {set} on {host}"));
    };
    // A file that is as it should be is not touched, so its change time stays the time of its last change.
    if world.host(host).has(&file) {
        return Ok(());
    }
    if world.serves_by(host, set) {
        world.disturbed.insert(host.clone());
    }
    let changed_ms = world.tick();
    let fact = FileFact { digest: file.digest, mode: file.mode, owner: file.owner, changed_ms };
    let program =
        if [make::KUBELET, make::ETCD_BALANCER].contains(&path) { "kubelet" } else { super::world::program_of(path) };
    let version = world.desired.versions.kubernetes.clone();
    let named = target.parts.iter().find(|part| part.name == program).map(|part| (version, part.digest));
    let found = world.host_mut(host);
    found.names.extend(named.map(|named| (path.to_owned(), named)));
    found.files.insert(path.to_owned(), fact);
    Ok(())
}

fn certify(world: &mut World, host: &HostName, id: CertId) -> Result<(), Stop> {
    prepared(world, host)?;
    let target = world.host_target(host);
    let Some(leaf) = target.leaves.iter().find(|l| l.id == id).cloned() else {
        return failed(format!("{id} is not a certificate of {host}"));
    };
    // The certificate of the signing CA follows the certificate it signed; the CA above it signs the API server's.
    let above = target.leaves.iter().find(|l| l.id == CertId::Apiserver && l.ca == leaf.ca);
    let through = above.map(|l| l.authority.clone()).filter(|above| id == CertId::Kubelet && *above != leaf.authority);
    let changed_ms = world.tick();
    let now_s = world.now / 1000;
    let fact = LeafFact {
        common_name: leaf.common_name,
        organizations: leaf.organizations,
        sans: leaf.sans,
        authority: leaf.authority,
        through,
        not_before_s: now_s,
        not_after_s: now_s + i64::from(leaf.days) * 86_400,
        key_matches: true,
        changed_ms,
    };
    world.host_mut(host).leaves.insert(id, fact);
    Ok(())
}

/// Requirements of a unit's start, known from the components and not from the conditions of the planner.
fn start(world: &mut World, host: &HostName, unit: &UnitName) -> Result<(), Stop> {
    if unit.as_str() == "etcd.service" {
        etcd_ready(world, host)?;
        return world.etcd_process_starts(host);
    }
    let found = world.host(host);
    let program = |path: &str| found.programs.contains(path);
    let part =
        |name: &str| world.host_target(host).parts.iter().any(|p| p.name == name && found.blobs.contains(&p.digest));
    let can = match unit.as_str() {
        "containerd.service" => part("containerd"),
        "kubelet.service" => {
            let named = found.names.get(make::KUBELET).is_some_and(|(_, digest)| found.blobs.contains(digest));
            named && found.runs("containerd.service") && found.leaves.contains_key(&CertId::Kubelet)
        }
        "haproxy.service" | make::BALANCES => program("/usr/sbin/haproxy"),
        "hactl-vrrp-filter.service" => program("/usr/sbin/nft"),
        "keepalived.service" => {
            let shielded = found.runs("haproxy.service") && found.runs("hactl-vrrp-filter.service");
            program("/usr/sbin/keepalived") && shielded
        }
        "hactl-approver.service" => world.applied("rbac"),
        "hactl-positions.service" => found.leaves.contains_key(&CertId::EtcdPeer),
        "hactl-snapshot.timer" => part("etcd") && found.leaves.contains_key(&CertId::EtcdPeer),
        make::DRILLS => make::DRILL.iter().all(|path| found.files.contains_key(*path)),
        make::GUARDS => {
            let files = make::GUARD.iter().all(|path| found.files.contains_key(*path));
            files && found.leaves.contains_key(&CertId::Guard)
        }
        make::NODE_AGENTS => found.files.contains_key(make::NODE_AGENT),
        make::KEEPS => found.files.contains_key(make::KEEPER),
        make::RENEWS => make::RENEWAL.iter().all(|path| found.files.contains_key(*path)),
        _ => false,
    };
    need(can, || format!("{unit} cannot start on {host} yet"))?;
    let ran = |world: &World| world.host(host).ran.get("kubelet").cloned();
    let before = ran(world);
    world.unit_started(host, unit);
    // A kubelet of another version may start its static pods again, and does so only once it has read the manifests.
    if before.is_some() && before != ran(world) {
        world.host_mut(host).processes.clear();
    }
    world.settle();
    Ok(())
}

fn etcd_ready(world: &World, host: &HostName) -> Result<(), Stop> {
    let found = world.host(host);
    let target = world.host_target(host);
    // A member that is to be removed runs the binary that its unit names.
    let former = found.disk.is_some() && !target.sets.contains_key(&FileSet::Etcd);
    let binary = former || target.parts.iter().any(|p| p.name == "etcd" && found.blobs.contains(&p.digest));
    need(binary, || format!("there is no etcd binary on {host}"))?;
    need(found.leaves.contains_key(&CertId::EtcdPeer), || format!("etcd on {host} has no certificate"))
}

/// Starts a member as the plan says. A process that already runs from its own disk is left alone.
fn member_starts(world: &mut World, host: &HostName, first: bool) -> Result<(), Stop> {
    etcd_ready(world, host)?;
    if world.host(host).runs("etcd.service") && world.host(host).disk.is_some() {
        return Ok(());
    }
    if first && world.host(host).disk.is_none() {
        world.etcd_first_start(host)
    } else {
        world.etcd_process_starts(host)
    }
}

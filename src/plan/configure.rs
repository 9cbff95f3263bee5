//! Files, certificates and units of a host.

use super::conditions::etcd_balancer_unit;
use super::draft::Draft;
use super::upgrade::API_MANIFEST;
use crate::model::desired::{Host, Role};
use crate::model::drill;
use crate::model::names::{HostName, UnitName};
use crate::model::plan::{Action, Condition, HowToRun, Precondition};
use crate::model::renewal;
use crate::model::target::{CertId, FileSet, Place};

pub(super) fn unit(name: &'static str) -> UnitName {
    name.parse().expect("a constant that is a valid unit name")
}

/// containerd's unit.
pub(super) fn containerd_unit() -> UnitName {
    unit("containerd.service")
}

fn wants(d: &Draft, host: &HostName, set: FileSet) -> bool {
    d.host_target(host).sets.contains_key(&set)
}

/// Writes a set if any of its files differ. What somebody runs by is kept until the new files have proven themselves.
pub(super) fn write(d: &mut Draft, host: &HostName, set: FileSet, requires: Vec<Condition>) {
    let keep = d.look().in_use(host, set) || d.look().on_trial(host, set);
    write_and(d, host, set, requires, keep);
}

/// The same, and the caller says whether what it replaces is kept.
pub(super) fn write_and(d: &mut Draft, host: &HostName, set: FileSet, mut requires: Vec<Condition>, keep: bool) {
    let paths = d.look().differing(host, set);
    requires.push(Condition::Prepared(host.clone()));
    if set != FileSet::State {
        requires.extend(super::prepare::heard(d, host));
    }
    let asked_for = |path: &String| {
        let wanted = d.host_target(host).sets.get(&set);
        wanted.is_some_and(|wanted| wanted.files.iter().any(|file| &file.path == path))
    };
    let why = match paths.as_slice() {
        [] => String::new(),
        [one] if !asked_for(one) => format!("{one} is not asked for any more"),
        [one] => format!("{one} is missing or differs"),
        [one, rest @ ..] if paths.iter().all(asked_for) => {
            format!("{one} and {} more are missing or differ", rest.len())
        }
        [one, rest @ ..] => format!("{one} and {} more are missing, differ or are not asked for any more", rest.len()),
    };
    let action = Action::Configure { host: host.clone(), set, paths, keep };
    d.ensure(action, why, requires, Condition::Configured(host.clone(), set));
}

/// Brings the unit of a set to run by its files. `requires` come on top of the files themselves.
pub(super) fn run(d: &mut Draft, host: &HostName, set: FileSet, mut requires: Vec<Condition>) {
    requires.push(Condition::Configured(host.clone(), set));
    run_as_it_is(d, host, set, requires);
}

/// The same by whatever files are there.
pub(super) fn run_as_it_is(d: &mut Draft, host: &HostName, set: FileSet, mut requires: Vec<Condition>) {
    let target = d.host_target(host);
    let Some(wanted) = target.sets.get(&set) else { return };
    let Some(unit) = wanted.unit.clone() else { return };
    let configured = Condition::Configured(host.clone(), set);
    let certified = Condition::Certified(host.clone());
    let own = |id: &CertId| set == FileSet::Kubelet && *id == CertId::Kubelet;
    let due = d.look().due(host);
    let renewed = d.plans(&certified) && due.iter().any(|(id, _)| wanted.reads.contains(id) || own(id));
    if renewed {
        requires.push(certified);
    }
    let rewritten = renewed || d.plans(&configured);
    if d.look().runs(host, wanted) && !rewritten {
        return;
    }
    let active = d.look().is_active(host, &unit);
    let how = match (active, wanted.reload) {
        (false, _) => HowToRun::Start,
        (true, true) => HowToRun::Reload,
        (true, false) => HowToRun::Restart,
    };
    let why = match how {
        HowToRun::Start => "it does not run",
        HowToRun::Restart | HowToRun::Reload => "it runs by older files",
    };
    let running = Condition::Running(host.clone(), unit.clone());
    // One that a run before was cut off at is on trial still: the others wait for it, too.
    if (how == HowToRun::Restart || d.look().on_trial(host, set)) && set.serves() {
        d.take_turn(&mut requires, &[configured], running.clone());
    }
    d.must(Action::RunUnit { host: host.clone(), unit, how }, why, requires, running, Precondition::None);
    d.or_back_to(host, &[set]);
}

/// Host settings, authorities and leaf certificates.
pub(super) fn trust(d: &mut Draft, host: &Host) {
    let name = &host.name;
    for set in [FileSet::Os, FileSet::Trust] {
        write(d, name, set, vec![]);
    }
    let mut requires = vec![Condition::Prepared(name.clone())];
    requires.extend(super::prepare::heard(d, name));
    certify(d, name, requires);
}

/// Issues the leaves of a host that are due; says whether there are any.
pub(super) fn certify(d: &mut Draft, host: &HostName, requires: Vec<Condition>) -> bool {
    let due = d.look().due(host);
    let why = due.first().map(|(id, why)| format!("{id}: {why}")).unwrap_or_default();
    let leaves = due.into_iter().map(|(id, _)| id).collect();
    d.ensure(Action::Certify { host: host.clone(), leaves }, why, requires, Condition::Certified(host.clone()))
}

/// containerd.
pub(super) fn runtime(d: &mut Draft, host: &Host) {
    let name = &host.name;
    if !wants(d, name, FileSet::Runtime) {
        return;
    }
    write(d, name, FileSet::Registries, vec![]);
    write(d, name, FileSet::Runtime, vec![]);
    let needed = ["containerd", "containerd-shim-runc-v2", "runc", "ctr"];
    let parts = d.host_target(name).parts.iter().filter(|p| needed.contains(&p.name.as_str()));
    let requires = parts.map(|p| Condition::Delivered(name.clone(), p.digest)).collect();
    run(d, name, FileSet::Runtime, requires);
}

/// The balancer in front of etcd on loopback, and the one in front of the API with its address.
pub(super) fn balancers(d: &mut Draft, host: &Host) {
    let name = &host.name;
    for set in [FileSet::EtcdBalancer, FileSet::LoadBalancer, FileSet::VrrpFilter, FileSet::Keepalived] {
        if wants(d, name, set) && !(set == FileSet::LoadBalancer && waits_for_servers(d, name)) {
            balancer(d, name, set, vec![]);
        }
    }
}

/// The balancers that learn of API servers only once those serve.
pub(super) fn balancers_after(d: &mut Draft, hosts: &[Host]) {
    for host in hosts {
        if wants(d, &host.name, FileSet::LoadBalancer) && waits_for_servers(d, &host.name) {
            let rising = d.rising();
            balancer(d, &host.name, FileSet::LoadBalancer, rising);
        }
    }
}

/// Whether a balancer that works is to be told of others while API servers are still to come up. It takes whoever it has just heard of for
/// one that serves, until a check says otherwise; and then it cuts off the clients that it has sent there meanwhile.
fn waits_for_servers(d: &Draft, host: &HostName) -> bool {
    d.look().is_active(host, &unit("haproxy.service"))
        && !d.look().differing(host, FileSet::LoadBalancer).is_empty()
        && d.reachable_with(Role::ControlPlane).iter().any(|h| !d.serves_now(&h.name))
}

/// Before keepalived starts on a host, those that run elsewhere must send to it: one that hears of nobody takes the endpoint's address, and
/// then two have it.
fn known_to(d: &Draft, name: &HostName) -> Vec<Condition> {
    let keepalived = unit("keepalived.service");
    if d.look().is_active(name, &keepalived) {
        return Vec::new();
    }
    let others = d.reachable_with(Role::LoadBalancer).into_iter().map(|h| h.name);
    let running = others.filter(|h| h != name && d.look().is_active(h, &keepalived));
    running
        .flat_map(|h| {
            [Condition::Configured(h.clone(), FileSet::Keepalived), Condition::Running(h, keepalived.clone())]
        })
        .collect()
}

fn balancer(d: &mut Draft, name: &HostName, set: FileSet, after: Vec<Condition>) {
    let mut requires = vec![Condition::Packaged(name.clone())];
    requires.extend(after);
    // The new files are checked before they are put in place: haproxy reads certificates then, keepalived's script
    // must be there when it starts.
    let vrrp = matches!(set, FileSet::VrrpFilter | FileSet::Keepalived);
    requires.push(Condition::Configured(name.clone(), if vrrp { FileSet::Os } else { FileSet::Trust }));
    if set == FileSet::EtcdBalancer {
        requires.push(Condition::Certified(name.clone()));
    }
    if set == FileSet::Keepalived {
        // Who leaves must not be left alone with the endpoint's address.
        let stopped = d.desired.leaving.iter().map(|h| Condition::Stopped(h.name.clone(), unit("keepalived.service")));
        requires.extend(stopped.filter(|stopped| d.plans(stopped)));
        requires.extend(super::remove_roles::still_balance(d));
    }
    write(d, name, set, requires);
    // Its files may be there although its package is not any more.
    let mut first = vec![Condition::Packaged(name.clone())];
    if set == FileSet::Keepalived {
        // The address must not come to a host whose haproxy does not listen yet.
        let haproxy = unit("haproxy.service");
        first.extend((!d.look().is_active(name, &haproxy)).then(|| Condition::Running(name.clone(), haproxy)));
        first.extend(known_to(d, name));
        // Nor to one that anybody can talk out of it.
        first.extend(d.host_target(name).sets.get(&FileSet::VrrpFilter).and_then(|filter| {
            let running = Condition::Running(name.clone(), filter.unit.clone()?);
            d.plans(&running).then_some(running)
        }));
    }
    run(d, name, set, first);
}

/// The kubelet.
pub(super) fn kubelet(d: &mut Draft, host: &Host) {
    let name = &host.name;
    if !wants(d, name, FileSet::Kubelet) || d.rollout.kubelets.contains_key(name) || comes_after(d, name) {
        return;
    }
    kubelet_by_its_files(d, host, vec![]);
}

/// The kubelets that come after API servers: after the one beside them, or, where they are signed anew, after all that is to be served by the
/// new authority.
pub(super) fn kubelets_after(d: &mut Draft, hosts: &[Host]) {
    for host in hosts.iter().filter(|host| host.is_node()) {
        if d.rollout.kubelets.contains_key(&host.name) || !comes_after(d, &host.name) {
            continue;
        }
        let own = vec![Condition::Serving(host.name.clone())];
        let all = d.reachable_with(Role::ControlPlane).into_iter().map(|h| Condition::Serving(h.name));
        let anew = d.look().kubelet_is_signed_anew(&host.name);
        let before = if anew { all.filter(|serving| d.plans(serving)).collect() } else { own };
        kubelet_by_its_files(d, host, before);
    }
}

/// Whether a kubelet is to read new settings only once its API server runs by its new manifest. One that is started anew leaves alone what ran
/// before until it has heard of its pods from the API; where its way to that is new, too, what it waits for is what it would have to start.
/// One that is signed anew asks for another certificate to serve with, and whoever signs that must do so by the new authority.
fn comes_after(d: &Draft, host: &HostName) -> bool {
    if d.look().kubelet_is_signed_anew(host) {
        return true;
    }
    let changes = |set, path: &str| d.look().differing(host, set).iter().any(|p| p == path);
    d.look().is_active(host, &super::conditions::kubelet_unit())
        && changes(FileSet::ControlPlane, API_MANIFEST)
        && !d.look().differing(host, FileSet::Kubelet).is_empty()
}

fn kubelet_by_its_files(d: &mut Draft, host: &Host, before: Vec<Condition>) {
    let name = &host.name;
    write(d, name, FileSet::Kubelet, before.clone());
    let mut requires = kubelet_needs(d, host);
    requires.extend(before);
    run(d, name, FileSet::Kubelet, requires);
}

/// What a kubelet needs besides its own files.
pub(super) fn kubelet_needs(d: &Draft, host: &Host) -> Vec<Condition> {
    let name = &host.name;
    let mut requires = vec![
        Condition::Configured(name.clone(), FileSet::Trust),
        Condition::Configured(name.clone(), FileSet::Os),
        // Before the first image is asked for.
        Condition::Configured(name.clone(), FileSet::Registries),
        Condition::Certified(name.clone()),
        Condition::Running(name.clone(), containerd_unit()),
    ];
    for part in &d.host_target(name).parts {
        match (&part.place, part.name.as_str()) {
            (_, "kubelet") => requires.push(Condition::Delivered(name.clone(), part.digest)),
            (Place::Image { .. }, "pause") => requires.push(Condition::Imported(name.clone(), part.digest)),
            _ => {}
        }
    }
    if !host.is(Role::ControlPlane) {
        // It has no API server of its own to bring up, and one that finds no API waits longer after each refusal.
        requires.push(Condition::Endpoint);
        if wants(d, name, FileSet::LoadBalancer) {
            // Where every node has a balancer of its own, this one's way to the API is that.
            requires.push(Condition::Running(name.clone(), unit("haproxy.service")));
        }
    }
    requires
}

/// Files that an API server runs by, and that are put back together.
const TRIED_TOGETHER: [FileSet; 2] = [FileSet::ControlPlane, FileSet::ControlPlaneConfig];

/// What new files replaced that have proven themselves is let go of: an earlier run was cut off before it could.
pub(super) fn accept(d: &mut Draft, host: &Host) {
    let name = &host.name;
    let well = |set: &FileSet| match set {
        // Of a role that the host has no more.
        set if !wants(d, name, *set) => true,
        FileSet::ControlPlane | FileSet::ControlPlaneConfig => d.holds(&Condition::Serving(name.clone())),
        set => d.host_target(name).sets.get(set).is_none_or(|wanted| d.look().runs(name, wanted)),
    };
    let sets: Vec<FileSet> = d.undecided(name).into_iter().filter(well).collect();
    if !sets.is_empty() {
        let action = Action::Accept { host: host.name.clone(), sets };
        d.must(
            action,
            "what runs by the new files is well",
            vec![],
            Condition::Accepted(host.name.clone()),
            Precondition::None,
        );
    }
}

/// The static pods, and the approver beside them.
pub(super) fn control_plane(d: &mut Draft, host: &Host) {
    let name = &host.name;
    if !host.is(Role::ControlPlane) {
        return;
    }
    static_pods(d, name, if d.rollout.api_first { Pods::Rest } else { Pods::All });
    write(d, name, FileSet::Approver, vec![]);
    let requires = vec![Condition::Certified(name.clone()), Condition::Applied("rbac".to_owned())];
    run(d, name, FileSet::Approver, requires);
}

/// The API server alone, before anything that asks it gets another version.
pub(super) fn api_server(d: &mut Draft, host: &Host) {
    if host.is(Role::ControlPlane) {
        static_pods(d, &host.name, Pods::ApiServer);
    }
}

/// Which of the static pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pods {
    All,
    ApiServer,
    /// Those that ask the API server, once it has been seen to.
    Rest,
}

/// Manifests, and whoever runs by them.
fn static_pods(d: &mut Draft, name: &HostName, pods: Pods) {
    let serves_now = d.serves_now(name);
    let mut paths = d.look().differing(name, FileSet::ControlPlane);
    match pods {
        Pods::All => {}
        Pods::ApiServer => paths.retain(|path| path == API_MANIFEST),
        Pods::Rest => paths.retain(|path| path != API_MANIFEST),
    }
    let (configured, serving) = match pods {
        Pods::ApiServer => (Condition::Manifest(name.clone()), Condition::ApiServer(name.clone())),
        Pods::All | Pods::Rest => {
            (Condition::Configured(name.clone(), FileSet::ControlPlane), Condition::Serving(name.clone()))
        }
    };
    let restarts = paths.iter().any(|path| path == API_MANIFEST);
    let on_trial = TRIED_TOGETHER.map(|set| d.look().on_trial(name, set));
    let others =
        d.reachable_with(Role::ControlPlane).iter().filter(|h| &h.name != name && d.serves_now(&h.name)).count();
    let rising = d.rising();
    let lone = d.desired.with(Role::ControlPlane).count() == 1;
    let must_wait = restarts && serves_now && others == 0 && rising.is_empty() && !lone;
    if must_wait {
        d.warn(format!(
            "the manifests on {name} are to change; that waits until another API server is ready to stand in for it"
        ));
    } else if pods != Pods::Rest {
        // What is read only at a start is put back together with the manifest that brings the start about.
        let keep = on_trial[1] || (!paths.is_empty() && serves_now);
        write_and(d, name, FileSet::ControlPlaneConfig, vec![], keep);
    }
    let mut requires = vec![
        Condition::Quorum,
        Condition::Configured(name.clone(), FileSet::Trust),
        Condition::Configured(name.clone(), FileSet::ControlPlaneConfig),
        Condition::Certified(name.clone()),
        Condition::Running(name.clone(), etcd_balancer_unit()),
    ];
    // No API server writes before every reachable member can only join: see failure mode 1 of the recovery experiments.
    requires.extend(d.reachable_with(Role::Etcd).into_iter().map(|h| Condition::Sealed(h.name)));
    for part in &d.host_target(name).parts {
        let wanted = match part.name.as_str() {
            "kube-apiserver" => pods != Pods::Rest,
            "kube-controller-manager" | "kube-scheduler" => pods != Pods::ApiServer,
            _ => false,
        };
        if wanted {
            requires.push(Condition::Imported(name.clone(), part.digest));
        }
    }
    match pods {
        Pods::All => {}
        // A host that comes new may be the first that gets another version.
        Pods::ApiServer if !d.rollout.api.is_empty() && !d.rollout.begun => requires.push(Condition::Saved),
        Pods::ApiServer => {}
        Pods::Rest => {
            requires.extend(d.reachable_with(Role::ControlPlane).into_iter().map(|h| Condition::ApiServer(h.name)))
        }
    }
    if !paths.is_empty() && !must_wait {
        // One whose API server this very plan brings up serves by the time that the others follow.
        let precondition = if serves_now || (pods == Pods::Rest && d.plans(&Condition::ApiServer(name.clone()))) {
            if others == 0 && restarts {
                requires.extend(rising);
            }
            let config = Condition::Configured(name.clone(), FileSet::ControlPlaneConfig);
            // The rest needs none of it, and the API server that does has had its turn.
            let writes = if pods == Pods::Rest { vec![] } else { vec![config] };
            d.take_turn(&mut requires, &writes, serving.clone());
            // What asks an API server can restart beside the only one.
            if restarts || others > 0 { Precondition::Tolerates { down: name.clone() } } else { Precondition::None }
        } else {
            if on_trial.contains(&true) {
                d.take_turn(&mut requires, &[], serving.clone());
            }
            Precondition::None
        };
        let differ = format!(
            "{} {} missing or differ{}",
            paths.len(),
            if paths.len() == 1 { "manifest is" } else { "manifests are" },
            if paths.len() == 1 { "s" } else { "" }
        );
        let why = super::upgrade::reason(d, name, &paths).unwrap_or(differ);
        d.must(
            Action::Configure {
                host: name.clone(),
                set: FileSet::ControlPlane,
                paths,
                keep: serves_now || on_trial[0],
            },
            why,
            requires,
            configured.clone(),
            precondition,
        );
    }
    let kubelet = Condition::Running(name.clone(), super::conditions::kubelet_unit());
    // Where the API server is only made now, or the Node is, the kubelet has been refused often enough to ask but seldom.
    let new = d.plans(&configured) || !d.look().registered(name);
    let restart_kubelet = d.plans(&kubelet) && !serves_now && new;
    let mut await_needs = vec![configured.clone()];
    // One that waits for its own new version runs by what it has.
    let later = d.rollout.kubelets.contains_key(name) || comes_after(d, name);
    await_needs.extend(Some(kubelet).filter(|_| !later));
    let action = Action::AwaitServing { host: name.clone(), restart_kubelet };
    if d.plans(&configured) {
        d.must(action, "its manifests are new", await_needs, serving, Precondition::None);
        d.or_back_to(name, &TRIED_TOGETHER);
    } else {
        let trouble = d.host_facts(name).and_then(|f| f.api.as_ref()?.own_trouble.clone());
        let why = trouble
            .map_or("not all static pods run by their manifests".to_owned(), |t| format!("it is not ready: {t}"));
        let tried = on_trial.contains(&true);
        if tried && !d.holds(&serving) {
            d.take_turn(&mut await_needs, &[], serving.clone());
        }
        if pods == Pods::ApiServer && tried && d.holds(&serving) {
            // It has proven itself: what comes next must go back to it, and not to what was before it.
            let why = "a run that was cut off left it on trial, and it is ready";
            d.must(action, why, await_needs, serving, Precondition::None);
            d.or_back_to(name, &TRIED_TOGETHER);
        } else if d.ensure(action, why, await_needs, serving) {
            d.or_back_to(name, &TRIED_TOGETHER);
        }
    }
}

/// What remembers how far members are. It asks nobody but its own host's member, and waits for that by itself.
pub(super) fn positions(d: &mut Draft, host: &Host) {
    if wants(d, &host.name, FileSet::Fence) {
        run(d, &host.name, FileSet::Fence, vec![Condition::Certified(host.name.clone())]);
    }
}

/// What renews the host's certificates without anybody; or what once did leaves.
pub(super) fn renewal(d: &mut Draft, host: &Host) {
    let certified = Condition::Certified(host.name.clone());
    on_demand(d, &host.name, FileSet::Renewal, renewal::TIMER, (vec![], vec![certified]));
}

/// What has the host restore its newest recovery bundle by itself; or what once did leaves, once bundles are not sealed to it any more.
pub(super) fn drills(d: &mut Draft, host: &Host) {
    let settings = Condition::Configured(host.name.clone(), FileSet::Snapshots);
    let requires = if d.plans(&settings) { vec![settings] } else { vec![] };
    on_demand(d, &host.name, FileSet::Drills, drill::TIMER, (requires, vec![]));
}

/// A timer and its files where the inventory asks for them; else what is left of them leaves, the timer first. Both may need something: the
/// files, and the timer.
fn on_demand(
    d: &mut Draft,
    name: &HostName,
    set: FileSet,
    timer: &'static str,
    (mut files, runs): (Vec<Condition>, Vec<Condition>),
) {
    let Some(wanted) = d.host_target(name).sets.get(&set) else { return };
    if wanted.unit.is_some() {
        write(d, name, set, files);
        run(d, name, set, runs);
        return;
    }
    if d.look().differing(name, set).is_empty() {
        return;
    }
    let timer = unit(timer);
    let stopped = Condition::Stopped(name.clone(), timer.clone());
    let action = Action::StopUnit { host: name.clone(), unit: timer };
    d.ensure(action, "the inventory does not ask for it any more", vec![], stopped.clone());
    files.push(stopped);
    write(d, name, set, files);
}

/// The sealed state, and what takes recovery bundles.
pub(super) fn snapshots(d: &mut Draft, host: &Host) {
    let name = &host.name;
    let paths = d.look().differing(name, FileSet::State);
    let there = d.host_facts(name).is_some_and(|f| paths.iter().all(|path| f.files.contains_key(path)));
    // The inventory is sealed with the keys, and its every edit would be work to do. What is there opens all the same: it is
    // replaced along with something else. Other keys and other recipients always change something else as well.
    let along = d.has_steps() || !d.look().differing(name, FileSet::Snapshots).is_empty();
    let state = Condition::Configured(name.clone(), FileSet::State);
    if wants(d, name, FileSet::State) && (!there || along) {
        write(d, name, FileSet::State, vec![]);
    }
    if wants(d, name, FileSet::Snapshots) {
        let requires = if d.plans(&state) { vec![state] } else { vec![] };
        write(d, name, FileSet::Snapshots, requires);
        let tools = ["etcd", "etcdutl"];
        let parts = d.host_target(name).parts.iter().filter(|p| tools.contains(&p.name.as_str()));
        let mut requires: Vec<Condition> = parts.map(|p| Condition::Delivered(name.clone(), p.digest)).collect();
        requires.extend([Condition::Quorum, Condition::Certified(name.clone())]);
        run(d, name, FileSet::Snapshots, requires);
    }
}

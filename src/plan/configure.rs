//! Files, certificates and units of a host.

use super::draft::Draft;
use super::rollout::reason;
use crate::model::control_plane::{API_MANIFEST, API_SERVER, CONTROLLER_MANAGER, SCHEDULER};
use crate::model::desired::{Host, Role};
use crate::model::drill;
use crate::model::healing;
use crate::model::names::HostName;
use crate::model::plan::{Action, Condition, HowToRun, Precondition};
use crate::model::renewal;
use crate::model::target::{CertId, FileSet, Place};
use crate::model::units::{containerd_unit, etcd_balancer_unit, kubelet_unit, unit};

fn wants(d: &Draft, host: &HostName, set: FileSet) -> bool {
    d.host_target(host).sets.contains_key(&set)
}

/// Writes a set if any of its files differ. Files in use are kept until the new ones have passed their trial.
pub(super) fn write(d: &mut Draft, host: &HostName, set: FileSet, requires: Vec<Condition>) {
    let keep = d.in_use(host, set) || d.on_trial(host, set);
    write_and(d, host, set, requires, keep);
}

/// The same, and the caller decides whether the previous files are kept.
pub(super) fn write_and(d: &mut Draft, host: &HostName, set: FileSet, mut requires: Vec<Condition>, keep: bool) {
    let paths = d.differing(host, set);
    requires.push(Condition::Prepared(host.clone()));
    if set != FileSet::State {
        requires.extend(super::prepare::received(d, host));
    }
    let asked_for = |path: &String| {
        let wanted = d.host_target(host).sets.get(&set);
        wanted.is_some_and(|wanted| wanted.files.iter().any(|file| &file.path == path))
    };
    let why = match paths.as_slice() {
        [] => String::new(),
        [one] if !asked_for(one) => format!("{one} is no longer wanted"),
        [one] => format!("{one} is missing or differs"),
        [one, rest @ ..] if paths.iter().all(asked_for) => {
            format!("{one} and {} more are missing or differ", rest.len())
        }
        [one, rest @ ..] => format!("{one} and {} more are missing, differ or are no longer wanted", rest.len()),
    };
    let action = Action::Configure { host: host.clone(), set, paths, keep };
    d.ensure(action, why, requires);
}

/// Makes the unit of a set run with its files. `requires` are added to the files themselves.
pub(super) fn run(d: &mut Draft, host: &HostName, set: FileSet, mut requires: Vec<Condition>) {
    requires.push(Condition::Configured(host.clone(), set));
    run_as_it_is(d, host, set, requires);
}

/// The same, with the files that are there now.
pub(super) fn run_as_it_is(d: &mut Draft, host: &HostName, set: FileSet, mut requires: Vec<Condition>) {
    let target = d.host_target(host);
    let Some(wanted) = target.sets.get(&set) else { return };
    let Some(unit) = wanted.unit.clone() else { return };
    let configured = Condition::Configured(host.clone(), set);
    let certified = Condition::Certified(host.clone());
    let own = |id: &CertId| set == FileSet::Kubelet && *id == CertId::Kubelet;
    let due = d.due(host);
    let renewed = d.plans(&certified) && due.iter().any(|(id, _)| wanted.reads.contains(id) || own(id));
    if renewed {
        requires.push(certified);
    }
    let rewritten = renewed || d.plans(&configured);
    if d.runs(host, wanted) && !rewritten {
        return;
    }
    let active = d.is_active(host, &unit);
    let how = match (active, wanted.reload) {
        (false, _) => HowToRun::Start,
        (true, true) => HowToRun::Reload,
        (true, false) => HowToRun::Restart,
    };
    let why = match how {
        HowToRun::Start => "it does not run",
        HowToRun::Restart | HowToRun::Reload => "it runs with older files",
    };
    let running = Condition::Running(host.clone(), unit.clone());
    // A unit at which an earlier run was interrupted is still on trial: the others wait for it, too.
    if (how == HowToRun::Restart || d.on_trial(host, set)) && set.serves() {
        d.take_turn(&mut requires, &[configured], running.clone());
    }
    d.must(Action::RunUnit { host: host.clone(), unit, how }, why, requires);
    d.or_back_to(host, &[set]);
}

/// Host settings, CAs and leaf certificates.
pub(super) fn trust(d: &mut Draft, host: &Host) {
    let name = &host.name;
    for set in [FileSet::Os, FileSet::Trust] {
        write(d, name, set, vec![]);
    }
    let mut requires = vec![Condition::Prepared(name.clone())];
    requires.extend(super::prepare::received(d, name));
    certify(d, name, requires);
}

/// Issues the certificates of a host that are due; returns whether there are any.
pub(super) fn certify(d: &mut Draft, host: &HostName, requires: Vec<Condition>) -> bool {
    let due = d.due(host);
    let why = due.first().map(|(id, why)| format!("{id}: {why}")).unwrap_or_default();
    let leaves = due.into_iter().map(|(id, _)| id).collect();
    d.ensure(Action::Certify { host: host.clone(), leaves }, why, requires)
}

/// containerd.
pub(super) fn runtime(d: &mut Draft, host: &Host) {
    let name = &host.name;
    if !wants(d, name, FileSet::Runtime) {
        return;
    }
    write(d, name, FileSet::Registries, vec![]);
    write(d, name, FileSet::Runtime, vec![]);
    let requires = d.delivered(name, &["containerd", "containerd-shim-runc-v2", "runc", "ctr"]);
    run(d, name, FileSet::Runtime, requires);
}

/// The balancer on loopback in front of etcd and API servers, and the load balancer of the API with its VIP.
pub(super) fn balancers(d: &mut Draft, host: &Host) {
    let name = &host.name;
    for set in [FileSet::EtcdBalancer, FileSet::LoadBalancer, FileSet::VrrpFilter, FileSet::Keepalived] {
        if wants(d, name, set) && !(set == FileSet::LoadBalancer && waits_for_servers(d, name)) {
            balancer(d, name, set, vec![]);
        }
    }
}

/// The load balancers that get API servers only once those are ready.
pub(super) fn balancers_after(d: &mut Draft, hosts: &[Host]) {
    for host in hosts {
        if wants(d, &host.name, FileSet::LoadBalancer) && waits_for_servers(d, &host.name) {
            let rising = d.rising();
            balancer(d, &host.name, FileSet::LoadBalancer, rising);
        }
    }
}

/// Whether a running load balancer would get other servers while API servers are not ready yet. haproxy takes a new
/// server for ready until a check fails, and then drops the connections that it has opened to it meanwhile.
fn waits_for_servers(d: &Draft, host: &HostName) -> bool {
    d.is_active(host, &unit("haproxy.service"))
        && !d.differing(host, FileSet::LoadBalancer).is_empty()
        && d.reachable_with(Role::ControlPlane).iter().any(|h| !d.serves_now(&h.name))
}

/// Before keepalived starts on a host, the others must send advertisements to it: a keepalived that receives none takes
/// the VIP, and then two hosts have it.
fn known_to(d: &Draft, name: &HostName) -> Vec<Condition> {
    let keepalived = unit("keepalived.service");
    if d.is_active(name, &keepalived) {
        return Vec::new();
    }
    let others = d.reachable_with(Role::LoadBalancer).into_iter().map(|h| h.name);
    let running = others.filter(|h| h != name && d.is_active(h, &keepalived));
    running
        .flat_map(|h| {
            [Condition::Configured(h.clone(), FileSet::Keepalived), Condition::Running(h, keepalived.clone())]
        })
        .collect()
}

fn balancer(d: &mut Draft, name: &HostName, set: FileSet, after: Vec<Condition>) {
    let mut requires = vec![Condition::Packaged(name.clone())];
    requires.extend(after);
    // The new files are checked before they are installed: haproxy reads certificates during that check, and
    // keepalived's script must exist when it starts.
    let vrrp = matches!(set, FileSet::VrrpFilter | FileSet::Keepalived);
    requires.push(Condition::Configured(name.clone(), if vrrp { FileSet::Os } else { FileSet::Trust }));
    if set == FileSet::EtcdBalancer {
        requires.push(Condition::Certified(name.clone()));
    }
    if set == FileSet::Keepalived {
        // A host that is removed must not stay the only one with the endpoint's VIP.
        let stopped = d.desired.leaving.iter().map(|h| Condition::Stopped(h.name.clone(), unit("keepalived.service")));
        requires.extend(stopped.filter(|stopped| d.plans(stopped)));
        requires.extend(super::remove_roles::still_balance(d));
    }
    write(d, name, set, requires);
    // Its files may be there although its package was removed.
    let mut first = vec![Condition::Packaged(name.clone())];
    if set == FileSet::Keepalived {
        // The VIP must not move to a host whose haproxy does not listen yet.
        let haproxy = unit("haproxy.service");
        first.extend((!d.is_active(name, &haproxy)).then(|| Condition::Running(name.clone(), haproxy)));
        first.extend(known_to(d, name));
        // Nor to a host that accepts VRRP advertisements from any source.
        first.extend(d.running(name, FileSet::VrrpFilter).filter(|running| d.plans(running)));
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

/// The kubelets that are configured after API servers: after the local one, or, if they get new certificates, after all
/// API servers that use the new CA.
pub(super) fn kubelets_after(d: &mut Draft, hosts: &[Host]) {
    for host in hosts.iter().filter(|host| host.is_node()) {
        if d.rollout.kubelets.contains_key(&host.name) || !comes_after(d, &host.name) {
            continue;
        }
        let own = vec![Condition::Serving(host.name.clone())];
        let all = d.reachable_with(Role::ControlPlane).into_iter().map(|h| Condition::Serving(h.name));
        let anew = d.kubelet_is_signed_anew(&host.name);
        let before = if anew { all.filter(|serving| d.plans(serving)).collect() } else { own };
        kubelet_by_its_files(d, host, before);
    }
}

/// Whether a kubelet reads new settings only once its API server runs with its new manifest. A restarted kubelet leaves
/// running pods alone until it has received its pods from the API; if its kubeconfig changes as well, it would wait for
/// the API server that it has to start. A kubelet with a new client certificate requests another serving certificate,
/// which must be signed by the new CA.
fn comes_after(d: &Draft, host: &HostName) -> bool {
    if d.kubelet_is_signed_anew(host) {
        return true;
    }
    let changes = |set, path: &str| d.differing(host, set).iter().any(|p| p == path);
    d.is_active(host, &kubelet_unit())
        && changes(FileSet::ControlPlane, API_MANIFEST)
        && !d.differing(host, FileSet::Kubelet).is_empty()
}

fn kubelet_by_its_files(d: &mut Draft, host: &Host, before: Vec<Condition>) {
    let name = &host.name;
    write_kubelet(d, name, before.clone());
    let mut requires = kubelet_needs(d, host);
    requires.extend(before);
    run(d, name, FileSet::Kubelet, requires);
}

/// The kubelet's files, once the balancer through which it reaches the API on a control-plane host runs with its own
/// current files: it listens for the kubelet, and knows which API servers are too old for it.
pub(super) fn write_kubelet(d: &mut Draft, host: &HostName, mut requires: Vec<Condition>) {
    requires.extend(d.running(host, FileSet::EtcdBalancer));
    write(d, host, FileSet::Kubelet, requires);
}

/// The conditions that a kubelet requires besides its own files.
pub(super) fn kubelet_needs(d: &Draft, host: &Host) -> Vec<Condition> {
    let name = &host.name;
    let mut requires = vec![
        Condition::Configured(name.clone(), FileSet::Trust),
        Condition::Configured(name.clone(), FileSet::Os),
        // Before the first image is pulled.
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
    requires.extend(d.running(name, FileSet::EtcdBalancer));
    if !host.is(Role::ControlPlane) {
        // It has no local API server to start, and a kubelet that finds no API server backs off longer after each
        // refusal.
        requires.push(Condition::Endpoint);
        if wants(d, name, FileSet::LoadBalancer) {
            // If every node runs a load balancer, the kubelet reaches the API through it.
            requires.push(Condition::Running(name.clone(), unit("haproxy.service")));
        }
    }
    requires
}

/// The files of an API server, which are rolled back together.
const TRIED_TOGETHER: [FileSet; 2] = [FileSet::ControlPlane, FileSet::ControlPlaneConfig];

/// Accepts files on trial whose processes are healthy: an earlier run was interrupted before it could.
pub(super) fn accept(d: &mut Draft, host: &Host) {
    let name = &host.name;
    let well = |set: &FileSet| match set {
        // Of a role that the host no longer has.
        set if !wants(d, name, *set) => true,
        FileSet::ControlPlane | FileSet::ControlPlaneConfig => d.holds(&Condition::Serving(name.clone())),
        set => d.host_target(name).sets.get(set).is_none_or(|wanted| d.runs(name, wanted)),
    };
    let sets: Vec<FileSet> = d.undecided(name).into_iter().filter(well).collect();
    if !sets.is_empty() {
        d.must(Action::Accept { host: name.clone(), sets }, "their processes are healthy with the new files", vec![]);
    }
}

/// The static pods, and the CSR approver.
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

/// The API server alone, before any of its clients gets another version.
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
    /// The clients of the API server, once it is current.
    Rest,
}

/// Manifests, and the static pods that run with them.
fn static_pods(d: &mut Draft, name: &HostName, pods: Pods) {
    let serves_now = d.serves_now(name);
    let mut paths = d.differing(name, FileSet::ControlPlane);
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
    let on_trial = TRIED_TOGETHER.map(|set| d.on_trial(name, set));
    let others =
        d.reachable_with(Role::ControlPlane).iter().filter(|h| &h.name != name && d.serves_now(&h.name)).count();
    let rising = d.rising();
    let lone = d.desired.with(Role::ControlPlane).count() == 1;
    let must_wait = restarts && serves_now && others == 0 && rising.is_empty() && !lone;
    if must_wait {
        d.warn(format!("the manifests on {name} have to change; the change waits until another API server is ready"));
    } else if pods != Pods::Rest {
        // Files that are read only at a start are rolled back together with the manifest that causes the start.
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
    // No API server writes before every reachable member can only join: otherwise a member could bootstrap a second
    // cluster.
    requires.extend(d.reachable_with(Role::Etcd).into_iter().map(|h| Condition::Sealed(h.name)));
    for part in &d.host_target(name).parts {
        let wanted = match part.name.as_str() {
            API_SERVER => pods != Pods::Rest,
            CONTROLLER_MANAGER | SCHEDULER => pods != Pods::ApiServer,
            _ => false,
        };
        if wanted {
            requires.push(Condition::Imported(name.clone(), part.digest));
        }
    }
    match pods {
        Pods::All => {}
        // A new host may be the first that gets another version.
        Pods::ApiServer if !d.rollout.api.is_empty() && !d.rollout.begun => requires.push(Condition::Saved),
        Pods::ApiServer => {}
        Pods::Rest => {
            requires.extend(d.reachable_with(Role::ControlPlane).into_iter().map(|h| Condition::ApiServer(h.name)));
        }
    }
    if !paths.is_empty() && !must_wait {
        // An API server that this plan starts is ready when the other static pods follow.
        let precondition = if serves_now || (pods == Pods::Rest && d.plans(&Condition::ApiServer(name.clone()))) {
            if others == 0 && restarts {
                requires.extend(rising);
            }
            let config = Condition::Configured(name.clone(), FileSet::ControlPlaneConfig);
            // The other pods do not read it, and the API server has had its turn.
            let writes = if pods == Pods::Rest { vec![] } else { vec![config] };
            d.take_turn(&mut requires, &writes, serving.clone());
            // The clients of an API server can restart while it is the only one.
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
        let why = d.host_facts(name).and_then(|facts| reason(d.desired, facts, &paths)).unwrap_or(differ);
        let (set, keep) = (FileSet::ControlPlane, serves_now || on_trial[0]);
        d.guarded(Action::Configure { host: name.clone(), set, paths, keep }, why, requires, precondition);
        d.providing(&configured);
    }
    let kubelet = Condition::Running(name.clone(), kubelet_unit());
    // If the API server or the Node is new, the kubelet was refused so often that it backs off.
    let new = d.plans(&configured) || !d.registered(name);
    let restart_kubelet = d.plans(&kubelet) && !serves_now && new;
    let mut await_needs = vec![configured.clone()];
    // A kubelet that waits for its own upgrade keeps its current files.
    let later = d.rollout.kubelets.contains_key(name) || comes_after(d, name);
    await_needs.extend(Some(kubelet).filter(|_| !later));
    let action = Action::AwaitServing { host: name.clone(), restart_kubelet };
    if d.plans(&configured) {
        d.must(action, "its manifests are new", await_needs);
        d.providing(&serving);
        d.or_back_to(name, &TRIED_TOGETHER);
    } else {
        let trouble = d.host_facts(name).and_then(|f| f.api.as_ref()?.own_trouble.clone());
        let why = trouble.map_or("not all static pods run with their current manifests".to_owned(), |t| {
            format!("it is not ready: {t}")
        });
        let (tried, ready) = (on_trial.contains(&true), d.holds(&serving));
        if tried && !ready {
            d.take_turn(&mut await_needs, &[], serving.clone());
        }
        // It has passed its trial: the next files must roll back to these, not to the previous ones.
        let passed = pods == Pods::ApiServer && tried && ready;
        let why = if passed { "an interrupted run left it on trial, and it is ready".to_owned() } else { why };
        if passed || !ready {
            d.must(action, why, await_needs);
            d.providing(&serving);
            d.or_back_to(name, &TRIED_TOGETHER);
        }
    }
}

/// The unit that records the positions of members. It queries only the local member, and waits for it.
pub(super) fn positions(d: &mut Draft, host: &Host) {
    if wants(d, &host.name, FileSet::Fence) {
        run(d, &host.name, FileSet::Fence, vec![Condition::Certified(host.name.clone())]);
    }
}

/// The timer that renews the host's certificates unattended, or its removal.
pub(super) fn renewal(d: &mut Draft, host: &Host) {
    let certified = Condition::Certified(host.name.clone());
    on_demand(d, &host.name, FileSet::Renewal, renewal::TIMER, (vec![], vec![certified]));
}

/// The timer of restore drills on the host, or its removal once snapshots are no longer encrypted to the host.
pub(super) fn drills(d: &mut Draft, host: &Host) {
    let settings = Condition::Configured(host.name.clone(), FileSet::Snapshots);
    let requires = if d.plans(&settings) { vec![settings] } else { vec![] };
    on_demand(d, &host.name, FileSet::Drills, drill::TIMER, (requires, vec![]));
}

/// The guard of the host, or its removal. It reads its files and its certificate only when it starts, and starts once
/// this plan has started what it watches: before that, it would report it.
pub(super) fn guard(d: &mut Draft, host: &Host) {
    let name = &host.name;
    let units = [kubelet_unit(), etcd_balancer_unit(), unit("haproxy.service"), unit("keepalived.service")];
    let mut watched = vec![Condition::Endpoint, Condition::Serving(name.clone()), Condition::Started(name.clone())];
    watched.extend(units.map(|unit| Condition::Running(name.clone(), unit)));
    watched.retain(|condition| d.plans(condition));
    watched.push(Condition::Certified(name.clone()));
    on_demand(d, name, FileSet::Guard, healing::UNIT, (vec![], watched));
}

/// A unit and its files if the inventory asks for them; otherwise they are removed, the unit first. The files and the
/// unit may each require conditions.
fn on_demand(
    d: &mut Draft,
    name: &HostName,
    set: FileSet,
    name_of_unit: &'static str,
    (mut files, runs): (Vec<Condition>, Vec<Condition>),
) {
    let Some(wanted) = d.host_target(name).sets.get(&set) else { return };
    if wanted.unit.is_some() {
        write(d, name, set, files);
        run(d, name, set, runs);
        return;
    }
    if d.differing(name, set).is_empty() {
        return;
    }
    let action = Action::StopUnit { host: name.clone(), unit: unit(name_of_unit) };
    files.push(action.provides());
    d.ensure(action, "the inventory no longer asks for it", vec![]);
    write(d, name, set, files);
}

/// The encrypted state, and the timer of snapshots.
pub(super) fn snapshots(d: &mut Draft, host: &Host) {
    let name = &host.name;
    let paths = d.differing(name, FileSet::State);
    let there = d.host_facts(name).is_some_and(|f| paths.iter().all(|path| f.files.contains_key(path)));
    // The encrypted state includes the inventory, so every edit would be a step. The stored state can still be
    // decrypted: it is replaced together with something else. Other keys and other recipients always change something
    // else as well.
    let along = d.has_steps() || !d.differing(name, FileSet::Snapshots).is_empty();
    let state = Condition::Configured(name.clone(), FileSet::State);
    if wants(d, name, FileSet::State) && (!there || along) {
        write(d, name, FileSet::State, vec![]);
    }
    if wants(d, name, FileSet::Snapshots) {
        let requires = if d.plans(&state) { vec![state] } else { vec![] };
        write(d, name, FileSet::Snapshots, requires);
        let mut requires = d.delivered(name, &["etcd", "etcdutl"]);
        requires.extend([Condition::Quorum, Condition::Certified(name.clone())]);
        run(d, name, FileSet::Snapshots, requires);
    }
}

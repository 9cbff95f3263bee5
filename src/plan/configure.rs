//! Files, certificates and units of a host.

use super::conditions::Observed;
use super::draft::Draft;
use super::etcd::etcd_fact;
use super::rollout::reason;
use super::steps::Steps;
use crate::model::boot::NODE_AGENT;
use crate::model::control_plane::{API_MANIFEST, API_SERVER, CONTROLLER_MANAGER, SCHEDULER};
use crate::model::desired::{Host, Role};
use crate::model::drill;
use crate::model::healing;
use crate::model::metrics;
use crate::model::names::HostName;
use crate::model::plan::{Action, Condition, HowToRun, Precondition};
use crate::model::renewal;
use crate::model::target::{CertId, FileSet, Place};
use crate::model::units::{containerd_unit, etcd_balancer_unit, kubelet_unit, unit};

fn wants(o: &Observed, host: &HostName, set: FileSet) -> bool {
    o.host_target(host).sets.contains_key(&set)
}

/// Writes a set if any of its files differ. Files in use are kept until the new ones have passed their trial.
pub(super) fn write(o: &Observed, host: &HostName, set: FileSet, requires: Vec<Condition>) -> Steps {
    let keep = o.in_use(host, set) || o.on_trial(host, set);
    replace(o, host, set, requires, keep)
}

/// The same, and the caller decides whether the previous files are kept.
pub(super) fn replace(o: &Observed, host: &HostName, set: FileSet, mut requires: Vec<Condition>, keep: bool) -> Steps {
    let paths = o.differing(host, set);
    requires.push(Condition::Prepared(host.clone()));
    if set != FileSet::State {
        requires.extend(super::prepare::received(o, host));
    }
    let asked_for = |path: &String| {
        let wanted = o.host_target(host).sets.get(&set);
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
    o.ensure(action, why, requires)
}

/// Writes a set, and makes its unit run with it. The files and the unit may each require conditions.
pub(super) fn apply(d: &Draft, host: &HostName, set: FileSet, files: Vec<Condition>, runs: Vec<Condition>) -> Steps {
    let requires = [runs, vec![Condition::Configured(host.clone(), set)]].concat();
    Steps::from_iter([write(d, host, set, files), run(d, host, set, requires)])
}

/// Makes the unit of a set run: with its files as wanted if it requires them, else with those that are there now.
pub(super) fn run(d: &Draft, host: &HostName, set: FileSet, mut requires: Vec<Condition>) -> Steps {
    let mut steps = Steps::default();
    let target = d.host_target(host);
    let Some(wanted) = target.sets.get(&set) else { return steps };
    let Some(unit) = wanted.unit.clone() else { return steps };
    let configured = Condition::Configured(host.clone(), set);
    let rewritten = requires.contains(&configured) && !d.holds(&configured);
    let certified = Condition::Certified(host.clone());
    let own = |id: &CertId| set == FileSet::Kubelet && *id == CertId::Kubelet;
    let due = d.due(host);
    let renewed = d.plans(&certified) && due.iter().any(|(id, _)| wanted.reads.contains(id) || own(id));
    if renewed {
        requires.push(certified);
    }
    if d.runs(host, wanted) && !renewed && !rewritten {
        return steps;
    }
    let active = d.is_active(host, &unit);
    let hung = d.facts.host(host).and_then(|facts| facts.why_hung(unit.as_str()));
    let how = match (active, hung) {
        (false, _) => HowToRun::Start,
        // There is no other reason to restart it.
        (true, Some(_)) if d.is_current(host, wanted) && !renewed && !rewritten => HowToRun::RestartIfHung,
        (true, None) if wanted.reload => HowToRun::Reload,
        (true, _) => HowToRun::Restart,
    };
    let why = match (how, hung) {
        (HowToRun::Start, _) => "it does not run".to_owned(),
        (_, Some(why)) => why.to_owned(),
        (_, None) => "it runs with older files".to_owned(),
    };
    let noted = steps.must(Action::RunUnit { host: host.clone(), unit, how }, why, requires);
    noted.step.rollback = vec![set];
    // A unit at which an earlier run was interrupted is still on trial: the others wait for it, too.
    let disturbs = (how.restarts() || d.on_trial(host, set)) && set.serves();
    noted.turn = disturbs.then(|| (vec![configured], noted.provides()));
    steps
}

/// Host settings, CAs and leaf certificates.
pub(super) fn trust(d: &Draft, host: &Host) -> Steps {
    let name = &host.name;
    let mut requires = vec![Condition::Prepared(name.clone())];
    requires.extend(super::prepare::received(d, name));
    let files = [FileSet::Os, FileSet::Trust].map(|set| write(d, name, set, vec![]));
    files.into_iter().chain([certify(d, name, requires)]).collect()
}

/// Issues the certificates of a host that are due.
pub(super) fn certify(o: &Observed, host: &HostName, requires: Vec<Condition>) -> Steps {
    let due = o.due(host);
    let why = due.first().map(|(id, why)| format!("{id}: {why}")).unwrap_or_default();
    let leaves = due.into_iter().map(|(id, _)| id).collect();
    o.ensure(Action::Certify { host: host.clone(), leaves }, why, requires)
}

/// containerd.
pub(super) fn runtime(d: &Draft, host: &Host) -> Steps {
    let name = &host.name;
    if !wants(d, name, FileSet::Runtime) {
        return Steps::default();
    }
    let requires = d.delivered(name, &["containerd", "containerd-shim-runc-v2", "runc", "ctr"]);
    let registries = write(d, name, FileSet::Registries, vec![]);
    Steps::from_iter([registries, apply(d, name, FileSet::Runtime, vec![], requires)])
}

/// The balancer on loopback in front of etcd and API servers, and the load balancer of the API with its VIP.
pub(super) fn balancers(d: &Draft, host: &Host) -> Steps {
    let sets = [FileSet::EtcdBalancer, FileSet::LoadBalancer, FileSet::VrrpFilter, FileSet::Keepalived];
    let now = |set: &FileSet| !(*set == FileSet::LoadBalancer && waits_for_servers(d, &host.name));
    sets.into_iter().filter(now).map(|set| balancer(d, &host.name, set, vec![])).collect()
}

/// A load balancer that gets API servers only once those are ready.
pub(super) fn balancer_after(d: &Draft, host: &Host) -> Steps {
    if !waits_for_servers(d, &host.name) {
        return Steps::default();
    }
    balancer(d, &host.name, FileSet::LoadBalancer, d.rising())
}

/// Whether a running load balancer would get other servers while API servers are not ready yet. haproxy takes a new
/// server for ready until a check fails, and then drops the connections that it has opened to it meanwhile.
fn waits_for_servers(o: &Observed, host: &HostName) -> bool {
    o.answers(host, &unit("haproxy.service"))
        && !o.differing(host, FileSet::LoadBalancer).is_empty()
        && o.reachable_with(Role::ControlPlane).iter().any(|h| !o.serves_now(&h.name))
}

/// Before keepalived starts on a host, or uses another address, the others must send advertisements to it: a keepalived
/// that receives none takes the VIP, and then two hosts have it.
fn known_to(o: &Observed, name: &HostName) -> Vec<Condition> {
    let keepalived = unit("keepalived.service");
    let all = o.reachable_with(Role::LoadBalancer);
    let runs = o.is_active(name, &keepalived);
    // After an interrupted run, files on trial make reloads take turns: an order on top of that may be a circle.
    let in_turns = all.iter().any(|h| o.on_trial(&h.name, FileSet::Keepalived));
    if runs && (in_turns || !has_another_address(o, name)) {
        return Vec::new();
    }
    let stays = |h: &HostName| h != name && !(runs && has_another_address(o, h));
    let others = all.into_iter().map(|h| h.name);
    let running = others.filter(|h| stays(h) && o.is_active(h, &keepalived));
    running
        .flat_map(|h| {
            [Condition::Configured(h.clone(), FileSet::Keepalived), Condition::Running(h, keepalived.clone())]
        })
        .collect()
}

/// Whether the etcd member of a host still has another address than the inventory.
fn has_another_address(o: &Observed, name: &HostName) -> bool {
    let view = etcd_fact(o, name).and_then(|etcd| etcd.view.as_ref());
    let listed = view.and_then(|view| view.members.iter().find(|(id, ..)| *id == view.member));
    let wanted = o.desired.host(name).map(Host::peer_url);
    listed.zip(wanted).is_some_and(|((_, _, peer, _), wanted)| *peer != wanted)
}

fn balancer(d: &Draft, name: &HostName, set: FileSet, after: Vec<Condition>) -> Steps {
    if !wants(d, name, set) {
        return Steps::default();
    }
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
    // Its files may be there although its package was removed.
    let mut first = vec![Condition::Packaged(name.clone())];
    if set == FileSet::Keepalived {
        // The VIP must not move to a host whose haproxy does not listen yet.
        let haproxy = unit("haproxy.service");
        first.extend((!d.answers(name, &haproxy)).then(|| Condition::Running(name.clone(), haproxy)));
        first.extend(known_to(d, name));
        // Nor to a host that accepts VRRP advertisements from any source.
        first.extend(d.running(name, FileSet::VrrpFilter));
    }
    apply(d, name, set, requires, first)
}

/// The kubelet.
pub(super) fn kubelet(d: &Draft, host: &Host) -> Steps {
    let name = &host.name;
    if !wants(d, name, FileSet::Kubelet) || d.rollout.kubelets.contains_key(name) || comes_after(d, name) {
        return Steps::default();
    }
    kubelet_by_its_files(d, host, vec![])
}

/// A kubelet that is configured after API servers: after the local one, or, if it gets new certificates, after all API
/// servers that use the new CA.
pub(super) fn kubelet_after(d: &Draft, host: &Host) -> Steps {
    if !host.is_node() || d.rollout.kubelets.contains_key(&host.name) || !comes_after(d, &host.name) {
        return Steps::default();
    }
    let own = vec![Condition::Serving(host.name.clone())];
    let all = d.reachable_with(Role::ControlPlane).into_iter().map(|h| Condition::Serving(h.name));
    let anew = d.kubelet_is_signed_anew(&host.name);
    let before = if anew { all.filter(|serving| d.plans(serving)).collect() } else { own };
    kubelet_by_its_files(d, host, before)
}

/// Whether a kubelet reads new settings only once its API server runs with its new manifest. A restarted kubelet leaves
/// running pods alone until it has received its pods from the API; if its kubeconfig changes as well, it would wait for
/// the API server that it has to start. A kubelet with a new client certificate requests another serving certificate,
/// which must be signed by the new CA.
fn comes_after(o: &Observed, host: &HostName) -> bool {
    if o.kubelet_is_signed_anew(host) {
        return true;
    }
    let changes = |set, path: &str| o.differing(host, set).iter().any(|p| p == path);
    o.is_active(host, &kubelet_unit())
        && changes(FileSet::ControlPlane, API_MANIFEST)
        && !o.differing(host, FileSet::Kubelet).is_empty()
}

fn kubelet_by_its_files(d: &Draft, host: &Host, before: Vec<Condition>) -> Steps {
    let mut requires = kubelet_needs(d, host);
    requires.extend(before.iter().cloned());
    apply(d, &host.name, FileSet::Kubelet, before_kubelet(d, &host.name, before), requires)
}

/// What the kubelet's files require: the balancer through which it reaches the API on a control-plane host runs with its
/// own current files. It listens for the kubelet, and knows which API servers are too old for it.
pub(super) fn before_kubelet(o: &Observed, host: &HostName, mut requires: Vec<Condition>) -> Vec<Condition> {
    requires.extend(o.running(host, FileSet::EtcdBalancer));
    requires
}

/// The conditions that a kubelet requires besides its own files.
pub(super) fn kubelet_needs(o: &Observed, host: &Host) -> Vec<Condition> {
    let name = &host.name;
    let mut requires = vec![
        Condition::Configured(name.clone(), FileSet::Trust),
        Condition::Configured(name.clone(), FileSet::Os),
        // Before the first image is pulled.
        Condition::Configured(name.clone(), FileSet::Registries),
        Condition::Certified(name.clone()),
        Condition::Running(name.clone(), containerd_unit()),
    ];
    for part in &o.host_target(name).parts {
        match (&part.place, part.name.as_str()) {
            (_, "kubelet") => requires.push(Condition::Delivered(name.clone(), part.digest)),
            (Place::Image { .. }, "pause") => requires.push(Condition::Imported(name.clone(), part.digest)),
            _ => {}
        }
    }
    requires.extend(o.running(name, FileSet::EtcdBalancer));
    if !host.is(Role::ControlPlane) {
        // It has no local API server to start, and a kubelet that finds no API server backs off longer after each
        // refusal.
        requires.push(Condition::Endpoint);
        if wants(o, name, FileSet::LoadBalancer) {
            // If every node runs a load balancer, the kubelet reaches the API through it.
            requires.push(Condition::Running(name.clone(), unit("haproxy.service")));
        }
    }
    requires
}

/// The files of an API server, which are rolled back together.
const TRIED_TOGETHER: [FileSet; 2] = [FileSet::ControlPlane, FileSet::ControlPlaneConfig];

/// Accepts files on trial whose processes are healthy: an earlier run was interrupted before it could.
pub(super) fn accept(d: &Draft, host: &Host) -> Steps {
    let mut steps = Steps::default();
    let name = &host.name;
    let well = |set: &FileSet| match set {
        // Of a role that the host no longer has.
        set if !wants(d, name, *set) => true,
        FileSet::ControlPlane | FileSet::ControlPlaneConfig => d.holds(&Condition::Serving(name.clone())),
        set => d.host_target(name).sets.get(set).is_none_or(|wanted| d.runs(name, wanted)),
    };
    let sets: Vec<FileSet> = d.undecided(name).into_iter().filter(well).collect();
    if !sets.is_empty() {
        let why = "their processes are healthy with the new files";
        steps.must(Action::Accept { host: name.clone(), sets }, why, vec![]);
    }
    steps
}

/// The static pods, and the CSR approver.
pub(super) fn control_plane(d: &Draft, host: &Host) -> Steps {
    let name = &host.name;
    if !host.is(Role::ControlPlane) {
        return Steps::default();
    }
    let pods = match d.rollout.api_first {
        _ if d.rollout.pods.contains(name) => Steps::default(),
        true => static_pods(d, name, Pods::Rest),
        false => static_pods(d, name, Pods::All),
    };
    let requires = vec![Condition::Certified(name.clone()), Condition::Applied("rbac".to_owned())];
    Steps::from_iter([pods, apply(d, name, FileSet::Approver, vec![], requires)])
}

/// The API server alone, before any of its clients gets another version.
pub(super) fn api_server(d: &Draft, host: &Host) -> Steps {
    if !(d.rollout.api_first && host.is(Role::ControlPlane)) {
        return Steps::default();
    }
    static_pods(d, &host.name, Pods::ApiServer)
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
fn static_pods(d: &Draft, name: &HostName, pods: Pods) -> Steps {
    let mut steps = Steps::default();
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
        let text =
            format!("the manifests on {name} have to change; the change waits until another API server is ready");
        steps.warnings.push(text);
    } else if pods != Pods::Rest {
        // Files that are read only at a start are rolled back together with the manifest that causes the start.
        let keep = on_trial[1] || (!paths.is_empty() && serves_now);
        steps.add(replace(d, name, FileSet::ControlPlaneConfig, vec![], keep));
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
    requires.push(Condition::Held(name.clone()));
    let changes = !paths.is_empty() && !must_wait;
    let tried = on_trial.contains(&true);
    let hung = d.facts.host(name).and_then(|facts| facts.why_hung(API_SERVER));
    let hung = hung.filter(|_| pods != Pods::Rest && !serves_now);
    if changes {
        // An API server that this plan starts is ready when the other static pods follow.
        let serves = serves_now || (pods == Pods::Rest && d.plans(&Condition::ApiServer(name.clone())));
        if serves && others == 0 && restarts {
            requires.extend(rising);
        }
        if restarts && hung.is_some() {
            requires.extend(d.ended());
        }
        // The clients of an API server can restart while it is the only one.
        let precondition = if serves && (restarts || others > 0) {
            Precondition::Tolerates { down: name.clone() }
        } else {
            Precondition::None
        };
        let differ = match paths.len() {
            1 => "1 manifest is missing or differs".to_owned(),
            many => format!("{many} manifests are missing or differ"),
        };
        let why = d.facts.host(name).and_then(|facts| reason(d.desired, facts, &paths)).unwrap_or(differ);
        let (set, keep) = (FileSet::ControlPlane, serves_now || on_trial[0]);
        let action = Action::Configure { host: name.clone(), set, paths, keep };
        let noted = steps.must(action, why, requires).guarded(precondition);
        noted.step.provides = configured.clone();
        // The other pods do not read it, and the API server has had its turn.
        let config = Condition::Configured(name.clone(), FileSet::ControlPlaneConfig);
        let writes = Some(config).filter(|_| serves && pods != Pods::Rest).into_iter().collect();
        noted.turn = Some((writes, serving.clone())).filter(|_| serves || tried);
    }
    let kubelet = Condition::Running(name.clone(), kubelet_unit());
    // If the API server or the Node is new, the kubelet was refused so often that it backs off.
    let new = changes || !d.registered(name);
    let restart_kubelet = d.plans(&kubelet) && !serves_now && new;
    let mut await_needs = vec![configured.clone()];
    // A kubelet that waits for its own upgrade keeps its current files.
    let later = d.rollout.kubelets.contains_key(name) || comes_after(d, name);
    await_needs.extend(Some(kubelet).filter(|_| !later));
    if hung.is_some() {
        await_needs.extend(d.ended());
    }
    let action = Action::AwaitServing { host: name.clone(), ends_hung: hung.is_some(), restart_kubelet };
    let ready = d.holds(&serving);
    // It has passed its trial: the next files must roll back to these, not to the previous ones.
    let passed = pods == Pods::ApiServer && tried && ready;
    // Static pods that are held for a maintenance are not to be ready.
    if !changes && !passed && (ready || d.holds_static_pods(name)) {
        return steps;
    }
    let trouble = d.facts.host(name).and_then(|f| f.api.as_ref()?.own_trouble.as_ref());
    let why = match (hung, trouble) {
        _ if changes => "its manifests are new".to_owned(),
        _ if passed => "an interrupted run left it on trial, and it is ready".to_owned(),
        (Some(why), _) => why.to_owned(),
        (None, Some(trouble)) => format!("it is not ready: {trouble}"),
        (None, None) => "not all static pods run with their current manifests".to_owned(),
    };
    let noted = steps.must(action, why, await_needs);
    noted.step.provides = serving.clone();
    noted.step.rollback = TRIED_TOGETHER.to_vec();
    noted.turn = (!changes && tried && !ready).then(|| (vec![], serving));
    steps
}

/// The unit that records the positions of members. It queries only the local member, and waits for it.
pub(super) fn positions(d: &Draft, host: &Host) -> Steps {
    let name = &host.name;
    let requires = vec![Condition::Certified(name.clone()), Condition::Configured(name.clone(), FileSet::Fence)];
    run(d, name, FileSet::Fence, requires)
}

/// The timer that renews the host's certificates unattended, or its removal.
pub(super) fn renewal(d: &Draft, host: &Host) -> Steps {
    let certified = Condition::Certified(host.name.clone());
    on_demand(d, &host.name, FileSet::Renewal, renewal::TIMER, (vec![], vec![certified]))
}

/// The timer of restore drills on the host, or its removal once snapshots are no longer encrypted to the host.
pub(super) fn drills(d: &Draft, host: &Host) -> Steps {
    let settings = Condition::Configured(host.name.clone(), FileSet::Snapshots);
    let requires = if d.plans(&settings) { vec![settings] } else { vec![] };
    on_demand(d, &host.name, FileSet::Drills, drill::TIMER, (requires, vec![]))
}

/// The guard of the host, or its removal. It reads its files and its certificate only when it starts, and starts once
/// this plan has started what it watches: before that, it would report it.
pub(super) fn guard(d: &Draft, host: &Host) -> Steps {
    let name = &host.name;
    let units = [kubelet_unit(), etcd_balancer_unit(), unit("haproxy.service"), unit("keepalived.service")];
    let mut watched = vec![Condition::Endpoint, Condition::Serving(name.clone()), Condition::Started(name.clone())];
    watched.extend(units.map(|unit| Condition::Running(name.clone(), unit)));
    watched.retain(|condition| d.plans(condition));
    watched.push(Condition::Certified(name.clone()));
    on_demand(d, name, FileSet::Guard, healing::UNIT, (vec![], watched))
}

/// The node agent of the host, or its removal. It needs the certificate of a kubelet that has joined.
pub(super) fn node_agent(d: &Draft, host: &Host) -> Steps {
    let runs = Condition::Running(host.name.clone(), kubelet_unit());
    let runs = if d.plans(&runs) { vec![runs] } else { vec![] };
    on_demand(d, &host.name, FileSet::NodeAgent, NODE_AGENT, (vec![], runs))
}

/// What serves the metrics of the host's components, or its removal.
pub(super) fn metrics(d: &Draft, host: &Host) -> Steps {
    let certified = Condition::Certified(host.name.clone());
    on_demand(d, &host.name, FileSet::Metrics, metrics::UNIT, (vec![], vec![certified]))
}

/// A unit and its files if the inventory asks for them; otherwise they are removed, the unit first. The files and the
/// unit may each require conditions.
fn on_demand(
    d: &Draft,
    name: &HostName,
    set: FileSet,
    name_of_unit: &'static str,
    (mut files, runs): (Vec<Condition>, Vec<Condition>),
) -> Steps {
    let mut steps = Steps::default();
    let Some(wanted) = d.host_target(name).sets.get(&set) else { return steps };
    if wanted.unit.is_some() {
        return apply(d, name, set, files, runs);
    }
    if d.differing(name, set).is_empty() {
        return steps;
    }
    let action = Action::StopUnit { host: name.clone(), unit: unit(name_of_unit) };
    files.push(action.provides());
    steps.add(d.ensure(action, "the inventory no longer asks for it", vec![]));
    steps.add(write(d, name, set, files));
    steps
}

/// The encrypted state, and the timer of snapshots.
pub(super) fn snapshots(d: &Draft, host: &Host) -> Steps {
    let mut steps = Steps::default();
    let name = &host.name;
    let paths = d.differing(name, FileSet::State);
    let there = d.facts.host(name).is_some_and(|f| paths.iter().all(|path| f.files.contains_key(path)));
    // The encrypted state includes the inventory, so every edit would be a step. The stored state can still be
    // decrypted: it is replaced together with something else. Other keys and other recipients always change something
    // else as well.
    let along = d.has_steps() || !d.differing(name, FileSet::Snapshots).is_empty();
    if wants(d, name, FileSet::State) && (!there || along) {
        steps.add(write(d, name, FileSet::State, vec![]));
    }
    if wants(d, name, FileSet::Snapshots) {
        let state = steps.last().into_iter().collect();
        let mut requires = d.delivered(name, &["etcd", "etcdutl"]);
        requires.extend([Condition::Quorum, Condition::Certified(name.clone())]);
        steps.add(apply(d, name, FileSet::Snapshots, state, requires));
    }
    steps
}

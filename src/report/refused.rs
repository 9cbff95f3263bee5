//! Messages of refusals: what would not have been safe, with the numbers, and what to do instead.
//!
//! In: a [`Refusal`]. Out: its [`Verdict`], one arm for each.

use super::exit::Exit;
use super::verdict::{UNTOUCHED, Verdict};
use super::words::{count, one_line, texts};
use crate::model::desired::Role;
use crate::model::facts::Evidence;
use crate::model::names::HostName;
use crate::model::ports::reconnect;
use crate::model::refusal::{CaClaim, Refusal};
use crate::model::rotation::{NoRotation, Rotatable};
use std::collections::BTreeSet;

/// A code for programs, the causes and the hints.
pub(super) type Said = (&'static str, Vec<String>, Vec<String>);

impl From<&Refusal> for Verdict {
    fn from(refusal: &Refusal) -> Self {
        let mut headline = one_line(&refusal.to_string());
        let (code, mut causes, hints): Said = match refusal {
            Refusal::NoQuorum { evidence } => (
                "no-quorum",
                said(evidence),
                texts([
                    "bring back hosts that are off or disconnected, if you can: once a majority has its data, \
                     `hactl up` restores quorum without loss",
                    "otherwise use `hactl recover`: with --dry-run it shows what it would do and the data loss. \
                     `hactl runbook` and docs/troubleshooting.md have the manual procedure",
                ]),
            ),
            Refusal::Disputed { evidence } => {
                let why = "hactl does not trust a single host: it may be slow, mistaken, or compromised.";
                (
                    "disputed",
                    [said(evidence), texts([why])].concat(),
                    texts([
                        "run the same command again: under load and during membership changes, members briefly disagree",
                        "otherwise find out which host is wrong, stop etcd on it (`systemctl stop etcd`) or \
                         disconnect it, and run the same command again. Power off a host that may be compromised; if \
                         quorum is lost, name it with `hactl recover --confirm-powered-off HOST`",
                    ]),
                )
            }
            Refusal::CannotTell { unreachable } => (
                "cannot-tell",
                texts([
                    "An unreachable host may hold a cluster. Bootstrapping a second one beside it would lose its data.",
                ]),
                texts([
                    &format!("make {} reachable, then run the same command again", all(unreachable)),
                    "only if the host never held a cluster: remove the host, or its role `etcd`, from the inventory",
                ]),
            ),
            Refusal::WouldLoseQuorum { voters, quorum, unhealthy, apart, .. } => {
                let counted = format!(
                    "The quorum counts all {voters} voters, healthy or not: {quorum} must answer, or etcd accepts no \
                     writes."
                );
                let (which, back) = match unhealthy.as_slice() {
                    [] => (None, "a member".to_owned()),
                    unhealthy => {
                        let names = one_line(&unhealthy.join(", "));
                        (Some(format!("Members that did not answer: {names}.")), names)
                    }
                };
                let connect = |(one, other): &(String, String)| one_line(&reconnect(one, other));
                let mut hints: Vec<String> = apart.iter().map(connect).collect();
                let unconnected =
                    (!apart.is_empty()).then(|| "Members without a peer connection are no quorum together.".to_owned());
                if apart.is_empty() || !unhealthy.is_empty() {
                    hints.extend(texts([
                        &format!("first bring {back} back: `hactl status` lists the unhealthy members"),
                        "if they are gone for good and there is no quorum, use `hactl recover`",
                    ]));
                }
                ("would-lose-quorum", which.into_iter().chain(unconnected).chain([counted]).collect(), hints)
            }
            Refusal::MembersChanged { .. } => (
                "members-changed",
                texts(["Something else changed the etcd members after planning. No further change was made."]),
                texts(["find out what else changes this cluster, then run the same command again: it replans"]),
            ),
            Refusal::OtherCluster { host, same_name, .. } => {
                let hint = if *same_name {
                    "the state directory belongs to another cluster of this name: name the right one with --state DIR"
                } else {
                    "check that the inventory names the right host and address"
                };
                (
                    "other-cluster",
                    Vec::new(),
                    texts([
                        hint,
                        &format!(
                            "to move {host} to this cluster, first run `hactl down` with the inventory of the other one"
                        ),
                    ]),
                )
            }
            Refusal::OtherHost { hosts } => {
                let flags: Vec<String> = hosts.iter().map(|one| format!("--reassign {}", one.host)).collect();
                (
                    "other-host",
                    texts(["A host keeps its name and its machine as long as it is in the cluster."]),
                    texts([
                        "check that the names and addresses in the inventory match",
                        "to rename a host, remove it under its old name first: take it out of the inventory, run \
                         `hactl up --prune NAME`, then add it",
                        &format!("if the machines were swapped on purpose: the same command with {}", flags.join(" ")),
                    ]),
                )
            }
            Refusal::Renamed { host, was } => (
                "renamed-host",
                texts([&format!(
                    "A Node cannot be renamed: the Node {was} would stay without a kubelet, with its pods."
                )]),
                texts([
                    &format!("keep the name {was} in the inventory"),
                    &format!(
                        "or remove the host under its old name first: take it out of the inventory, run `hactl up \
                         --prune {was}`, then add it as {host}"
                    ),
                ]),
            ),
            Refusal::NameInUse { host, at } => (
                "name-in-use",
                texts(["Two kubelets of one name would report different things for the same Node."]),
                texts([
                    "give the host in the inventory a name that no Node has",
                    &format!(
                        "if it replaces the machine at {at}, power that one off, wait a minute and run the same \
                         command again"
                    ),
                    &format!(
                        "or remove that machine first: take {host} out of the inventory, run `hactl up --prune \
                         {host}`, then add it again"
                    ),
                ]),
            ),
            Refusal::InMaintenance { maintained, .. } => (
                "host-in-maintenance",
                texts([
                    "Its host may be switched off at any time, and one host of the control plane may be away at once.",
                ]),
                texts([&format!(
                    "when the work on it is done: `hactl maintain finish {maintained}`, then run the same command again"
                )]),
            ),
            Refusal::StateLost { .. } => (
                "state-lost",
                texts(["Without the state, hactl would create new CA keys, and no component would trust them."]),
                texts([
                    "if the state directory is elsewhere, name it with --state DIR",
                    "if it is lost: `hactl state pull --identity FILE` rebuilds it from a snapshot. The identity is a \
                     copy of the lost identity.txt, or the private key of one of vault.recipients",
                ]),
            ),
            Refusal::NoProgress { .. } => (
                "no-progress",
                texts([
                    "The steps reported success, but the hosts do not show the result. A repetition would not help.",
                ]),
                texts([
                    "`hactl status` shows what the hosts report, `hactl plan -v` why each step is planned",
                    "something else may revert the change: configuration management, or a second hactl with another \
                     inventory",
                ]),
            ),
            Refusal::Blocked { .. } => (
                "blocked",
                texts(["All other steps are done, and the running components passed their checks."]),
                texts([
                    "run the same command again: the missing condition may hold by now",
                    "if not, `hactl status` shows the host that blocks the run, and its journal shows why",
                ]),
            ),
            Refusal::StateBehind { .. } => (
                "state-behind",
                texts([
                    "A CA or key was rotated after this copy of the state was made: the hosts would get keys that are \
                     no longer trusted.",
                ]),
                texts([
                    "use the state directory of the run that did the rotation",
                    "if that is lost, move this one aside and run `hactl state pull --identity` with the identity.txt \
                     in it: that rebuilds the newest state from the encrypted copies on the hosts",
                ]),
            ),
            Refusal::Locked { .. } => (
                "locked",
                texts(["Two runs at the same time could remove each other's members."]),
                texts([
                    "wait for the other run to end, then run the same command again; the lock of a dead process is \
                     released when its connection closes",
                ]),
            ),
            Refusal::StateInUse { .. } => (
                "locked",
                texts(["Two runs at the same time could bootstrap two clusters."]),
                texts(["wait for the other run to end: its lock is released when the process exits"]),
            ),
            Refusal::NoVoterLock { .. } => (
                "no-voter-lock",
                texts([
                    "The member list has voters on hosts that are not in this inventory or do not answer: another run \
                     may hold the lock on those.",
                ]),
                texts(["use the inventory that names all member hosts, and make those hosts reachable by SSH"]),
            ),
            Refusal::NoMajorityLock { .. } => (
                "no-majority-lock",
                texts(["A run that reaches the other hosts could change members at the same time."]),
                texts(["make the other etcd hosts reachable by SSH, then run the same command again"]),
            ),
            Refusal::CannotRotate { what, why } => ("cannot-rotate", Vec::new(), not_rotated(*what, why)),
            Refusal::SkipsMinor { component, wanted, first, .. } => {
                super::versions::skipped(component, *wanted, *first)
            }
            Refusal::OlderMinor { component, runs, .. } => super::versions::older(component, *runs),
            Refusal::VersionNotNamed { component, runs, wanted, .. } => {
                super::versions::not_named(component, *runs, *wanted)
            }
            Refusal::VersionUnknown { wanted } => super::versions::unknown(*wanted),
            Refusal::NoPackages { hosts, there } => {
                let lacks = |(host, _, packages): &(HostName, String, BTreeSet<String>)| {
                    format!("{host} lacks {}.", packages.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
                };
                let there: Vec<&str> = there.iter().map(String::as_str).collect();
                let has = if there.is_empty() {
                    "The bundle has no packages at all.".to_owned()
                } else {
                    format!("The bundle has packages for {}.", there.join(", "))
                };
                let hints = [
                    "install these packages manually, then run the same command again: a host that has them needs none \
                     from the bundle",
                    "or set loadBalancer.packages to host, if the hosts have a package mirror",
                    "or use a bundle with packages for these distributions: `make bundle` builds one, and \
                     components/balancers/recipe.sh names its distributions",
                ];
                ("no-packages", hosts.iter().map(lacks).chain([has]).collect(), texts(hints))
            }
            Refusal::RangeChanged { setting, .. } => (
                "range-changed",
                texts(["Existing Nodes and Services have addresses from the old range and keep them."]),
                texts([
                    &format!("restore the previous value of {setting} in the inventory"),
                    "for another range, bootstrap a new cluster and move the workloads there",
                ]),
            ),
            Refusal::CannotLeave { role, .. } => {
                nobody_else("cannot-leave", *role, "or add one to the inventory: the same command then adds it first")
            }
            Refusal::LastOfRole { role, .. } => {
                nobody_else("last-of-role", *role, "or give this host the role again in the inventory")
            }
            Refusal::LeftBehind { host } => (
                "left-behind",
                texts(["Load balancers that do not know each other both answer for the endpoint, and clients reach \
                        either of them at random."]),
                texts([
                    &format!(
                        "remove the host: `hactl up --prune {host}` drains and cleans it; that also works for a host \
                         that is off for good"
                    ),
                    "or add it to the inventory again",
                ]),
            ),
            Refusal::OtherAuthority { problems } => {
                "the CAs and keys of a running cluster cannot be replaced through `pki`".clone_into(&mut headline);
                let why = "All existing certificates, kubeconfigs and tokens would stop working at once.";
                let causes = [problems.clone(), texts([why])].concat();
                ("other-authority", causes, texts(["name the previous files again, or remove them from `pki`"]))
            }
            Refusal::DataElsewhere { hosts, wanted } => {
                "etcd's data is not where the inventory says".clone_into(&mut headline);
                let lies = |(host, from): &(_, _)| format!("{host}: it is in {from}, and the inventory says {wanted}");
                let mut causes: Vec<String> = hosts.iter().map(lies).collect();
                causes.push("Members would start empty there, and their current data is abandoned.".to_owned());
                let from = hosts.first().map_or("OLD", |(_, from)| from.as_str());
                let hints = texts([
                    &format!("set etcd.dataDir to {from} again; a new disk can be mounted there"),
                    &format!(
                        "or move the data, with an outage of the API: on every etcd host run `systemctl stop etcd`, \
                         then move {from} to {wanted} with owner and modes (`mv`, or `cp -a` to another disk, and \
                         move the old directory aside), then run `hactl up`, which starts all members"
                    ),
                ]);
                ("data-elsewhere", causes, hints)
            }
            Refusal::NeedsConsent { .. } => (
                "needs-consent",
                Vec::new(),
                texts(["`hactl plan` shows the steps; `--yes` agrees to them, for scripts"]),
            ),
            Refusal::LimitedFounding { left } => (
                "limited-founding",
                texts(["Each initial member waits for the others: some of them alone cannot form the cluster."]),
                texts([&format!("name {} with --limit, too, or omit --limit", all(left))]),
            ),
            Refusal::Declined => ("declined", Vec::new(), Vec::new()),
            Refusal::Unsigned { bundles } => (
                "unsigned",
                texts([&one_line(&bundles.join(", ")), "Anyone with write access to its storage can have forged it."]),
                texts([
                    "if you know its origin: the same command with --accept-unsigned, and --from to name it",
                    "after `hactl up`, the hosts sign the snapshots that they take",
                ]),
            ),
            Refusal::Forged { .. } => (
                "forged",
                texts(["No flag makes hactl accept it."]),
                texts([
                    "choose another one: `hactl snapshot list` shows the signer of each",
                    "find out who has write access to its storage",
                ]),
            ),
            Refusal::OtherCa { claims, .. } => {
                let compare = "compare the fingerprint: `openssl x509 -noout -fingerprint -sha256` of the \
                               certificate-authority-data in a kubeconfig";
                ("other-ca", claims.iter().map(claimed).collect(), texts([compare]))
            }
            Refusal::SeveralCas { claims } => (
                "several-cas",
                [
                    claims.iter().map(claimed).collect(),
                    texts(["One of them is forged, or belongs to another cluster of this name. No state was created."]),
                ]
                .concat(),
                texts([
                    "find out which one is your cluster's CA (see certificate-authority-data in a kubeconfig), and \
                     name it with --fingerprint SHA256:...",
                ]),
            ),
            Refusal::CaNotShown { .. } => (
                "ca-not-shown",
                texts(["The state is of another cluster, or those hosts were rebuilt. No state was created."]),
                texts([
                    "if you know that the fingerprint is your cluster's: the same command with --fingerprint SHA256:...",
                ]),
            ),
            Refusal::NeedsFingerprint { ca, .. } => (
                "needs-fingerprint",
                texts(["Anyone who knows your public key can forge a state; only its CA identifies it. No state was \
                        created."]),
                texts([
                    &format!(
                        "compare it with your notes, or with the certificate-authority-data of a kubeconfig, then add \
                         --fingerprint {ca}"
                    ),
                    "without --yes, hactl asks on the terminal",
                ]),
            ),
            Refusal::NoSource { hosts, .. } => (
                "no-source",
                said(hosts),
                texts([
                    "bring back a host whose disk still has etcd's data, or mount the volume with the data, then \
                     run the same command again",
                    "`hactl recover --from FILE`, with a snapshot that was fetched or copied elsewhere",
                    "name data that was moved aside: `--from HOST:member.moved-TIME`, a directory below etcd's \
                     data directory",
                ]),
            ),
            Refusal::NobodyAgrees { hashes } => (
                "nobody-agrees",
                hashes.iter().map(|(host, hash)| format!("{host}: {hash:08x}")).collect(),
                texts([
                    "first bring back unreachable members, which may complete a majority; `hactl status` lists them",
                    "take a snapshot of each member: `hactl snapshot take --host HOST --to DIR`",
                    "find out which member has the right keys (`etcdctl get --prefix / --keys-only \
                     --consistency=s` on each host)",
                    "then run `hactl recover --undo --from HOST`: all members get the data of that one",
                ]),
            ),
            Refusal::NeedNot { serves, begun, .. } => (
                "need-not",
                Vec::new(),
                match (serves, begun) {
                    (true, _) => texts([
                        "keep the current data: `hactl status` shows its health, and `hactl up` heals unhealthy members",
                        "to go back anyway: the same command with --undo; the current data is moved aside",
                    ]),
                    (false, None) => texts([
                        "`hactl recover` without --from (or `hactl up`) starts them, and nothing is lost",
                        "to go back anyway: the same command with --undo; the current data is moved aside",
                    ]),
                    (false, Some(begun)) => {
                        let begun = one_line(&begun.to_string());
                        texts([
                            "to keep the members' data: `hactl recover --undo --from HOST`, with the host that has the \
                             newest data in `hactl status`",
                            "to use the named source anyway: the same command with --undo",
                            &format!(
                                "without --from, hactl resumes the unfinished recovery from {begun} and moves the \
                                 members' data aside"
                            ),
                        ])
                    }
                },
            ),
            Refusal::NewerEtcd { of, .. } => (
                "newer-etcd",
                texts(["The members would not start with it."]),
                texts([
                    &format!(
                        "use a Kubernetes version in the inventory whose bundle has etcd {}, or build a bundle with \
                         `hactl bundle build --with etcd={of}`, then run the same command again",
                        of.minor
                    ),
                    "or use an older snapshot of `hactl snapshot list`, with `hactl recover --from NAME`",
                ]),
            ),
            Refusal::Undone { to } => (
                "undone",
                texts([&format!("It restored {} and moved the data at that time aside.", one_line(&to.to_string()))]),
                texts([
                    "to return to that data, name it: `--from HOST:member.moved-TIME`, the newest such directory \
                     below etcd's data directory",
                    "to go back further, name a snapshot or an older directory",
                ]),
            ),
            Refusal::NothingAside => (
                "nothing-aside",
                texts(["`--undo` restores the data that the last recovery moved aside. This state directory has no \
                        record of a recovery, or that data was removed since."]),
                texts([
                    "name the source: `hactl recover --undo --from FILE` or `--from HOST:member.moved-TIME`; `hactl \
                     snapshot list` shows the snapshots",
                ]),
            ),
            Refusal::TwoOrigins { hosts: (one, other) } => (
                "two-origins",
                texts(["Two clusters cannot be compared, and one may be left over from an earlier recovery."]),
                texts([&format!(
                    "`hactl status` shows the data of each; choose with `hactl recover --from {one}` or `--from \
                     {other}`"
                )]),
            ),
            Refusal::NotLost { .. } => (
                "not-lost",
                texts(["A restore could lose writes, and fixes neither a partition nor a failing process."]),
                texts([
                    "`hactl status` shows for each member whether it runs and why not; check the network between \
                     them, port 2380",
                    "to restore anyway: `hactl recover --from HOST`",
                ]),
            ),
            Refusal::StillFull { members } => (
                "still-full",
                texts([
                    &format!("It was compacted and defragmented: {}.", super::recovery::fullness(members)),
                    "Reads and deletions work. The alarm stays, because more writes would raise it again.",
                ]),
                texts([
                    "delete the keys that fill it (often Events, or objects of a runaway controller), then run the \
                     same command again",
                    "or raise `etcd.quotaGiB` in the inventory, `hactl up`, then run the same command again",
                ]),
            ),
            Refusal::QuotaBelowStored { members, .. } => (
                "quota-below-stored",
                texts([&format!("Current size of the members: {}.", super::recovery::fullness(members))]),
                texts([
                    "raise `etcd.quotaGiB` above the stored size; etcd's default is 2 GiB, tested up to 8",
                    "or first delete keys, compact and defragment: free pages in a store count against its quota, too",
                ]),
            ),
            Refusal::MayLive { unreachable, .. } => (
                "may-live",
                texts(["Two clusters that both accepted writes cannot be merged."]),
                texts([
                    &format!(
                        "bring {} back, if possible: nothing is lost once a majority has its data",
                        unreachable.join(", ")
                    ),
                    &format!(
                        "otherwise power them off for good, so that they cannot come back on their own, and add to \
                         the same command: {}",
                        unreachable
                            .iter()
                            .map(|host| format!("--confirm-powered-off {host}"))
                            .collect::<Vec<_>>()
                            .join(" ")
                    ),
                ]),
            ),
            Refusal::Preflight { problems } => {
                headline = format!("{} before the start", count(problems.len(), "problem"));
                ("preflight", problems.clone(), texts(["fix these problems, then run the same command again"]))
            }
        };
        // Not if something was changed, or if the causes say it themselves.
        if !matches!(
            refusal,
            Refusal::WouldLoseQuorum { .. }
                | Refusal::MembersChanged { .. }
                | Refusal::NoProgress { .. }
                | Refusal::Blocked { .. }
                | Refusal::Declined
                | Refusal::OtherCa { .. }
                | Refusal::SeveralCas { .. }
                | Refusal::CaNotShown { .. }
                | Refusal::NeedsFingerprint { .. }
                | Refusal::StillFull { .. }
        ) {
            causes.push(UNTOUCHED.to_owned());
        }
        let locked = matches!(refusal, Refusal::Locked { .. } | Refusal::StateInUse { .. });
        Self { exit: if locked { Exit::Locked } else { Exit::Refused }, code, headline, causes, hints }
    }
}

/// Why a host keeps a role that no other reachable host has; `or`: the alternative to bringing such a host back.
fn nobody_else(code: &'static str, role: Role, or: &str) -> Said {
    let back = format!("bring back another host with the role {role}, then run the same command again");
    (code, texts(["No reachable host could take over this role."]), texts([&back, or]))
}

/// A CA, and where a state with it was found.
fn claimed(claim: &CaClaim) -> String {
    let now = claim.now.as_ref().map_or_else(String::new, |now| format!(", followed by {now}"));
    one_line(&format!("{}{now}: {}", claim.ca, claim.from.join(", ")))
}

/// The report of each host, one line each, in columns.
fn said(evidence: &[Evidence]) -> Vec<String> {
    let widest = evidence.iter().map(|e| e.host.as_str().len()).max().unwrap_or(0);
    let data = |e: &Evidence| match (e.reachable, e.has_data) {
        (false, _) => "",
        (true, true) => " (its data is there)",
        (true, false) => " (no data)",
    };
    evidence.iter().map(|e| format!("{:<widest$}  {}{}", e.host, one_line(&e.what), data(e))).collect()
}

fn all(hosts: &[HostName]) -> String {
    hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What to do about a refused rotation.
fn not_rotated(what: Rotatable, why: &NoRotation) -> Vec<String> {
    match why {
        NoRotation::Brought => {
            texts(["remove it from `pki` in the inventory, then run the same command: hactl creates its own"])
        }
        NoRotation::Other { other } => {
            texts([&format!("finish that one first: `hactl certs rotate {other} --finish`")])
        }
        NoRotation::NotWhole { .. } => texts(["run `hactl up` first: a rotation must not include other changes"]),
        NoRotation::NotBegun => texts([&format!("start one: `hactl certs rotate {what}`")]),
        NoRotation::StillVouched { .. } => texts([
            "restart the pods that are older than the last rotation (`kubectl rollout restart`, namespace by \
             namespace), then run the same command with --at-once",
            "or wait until then: pods that have read the CA since the last rotation need no restart",
        ]),
        NoRotation::TooYoung { .. } => texts([
            "run the same command again then: by that time, every kubelet has fetched new tokens",
            "or use --at-once if the old key may be compromised: pods with old tokens are rejected until their \
             kubelets have fetched new ones, which may take a day",
        ]),
    }
}

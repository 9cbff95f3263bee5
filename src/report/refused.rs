//! Messages of refusals: what would not have been safe, with the numbers, and what to do instead.
//!
//! In: a [`Refusal`]. Out: its [`Verdict`], one arm for each.

use super::exit::Exit;
use super::verdict::{UNTOUCHED, Verdict};
use super::words::{count, one_line};
use crate::model::desired::Role;
use crate::model::facts::Evidence;
use crate::model::names::HostName;
use crate::model::refusal::{CaClaim, Refusal};
use crate::model::rotation::{NoRotation, Rotatable};

impl From<&Refusal> for Verdict {
    fn from(refusal: &Refusal) -> Self {
        let mut verdict = Self {
            exit: Exit::Refused,
            code: "refused",
            headline: one_line(&refusal.to_string()),
            causes: Vec::new(),
            hints: Vec::new(),
        };
        let untouched = UNTOUCHED;
        let (code, causes, hints): (_, Vec<String>, Vec<String>) = match refusal {
            Refusal::NoQuorum { evidence } => {
                let mut causes = said(evidence);
                causes.push(untouched.to_owned());
                (
                    "no-quorum",
                    causes,
                    vec![
                        "bring back hosts that are off or disconnected, if you can: once a majority has its data, \
                         `hactl up` restores quorum without loss"
                            .to_owned(),
                        "otherwise use `hactl recover`: with --dry-run it shows what it would do and the data loss. \
                         `hactl runbook` and docs/troubleshooting.md have the manual procedure"
                            .to_owned(),
                    ],
                )
            }
            Refusal::Disputed { evidence } => {
                let mut causes = said(evidence);
                causes.push("hactl does not trust a single host: it may be slow, mistaken, or compromised.".to_owned());
                causes.push(untouched.to_owned());
                (
                    "disputed",
                    causes,
                    vec![
                        "run the same command again: under load and during membership changes, members briefly disagree"
                            .to_owned(),
                        "otherwise find out which host is wrong, stop etcd on it (`systemctl stop etcd`) or \
                         disconnect it, and run the same command again. Power off a host that may be compromised; if \
                         quorum is lost, name it with `hactl recover --confirm-powered-off HOST`"
                            .to_owned(),
                    ],
                )
            }
            Refusal::CannotTell { unreachable } => (
                "cannot-tell",
                vec![
                    "An unreachable host may hold a cluster. Bootstrapping a second one beside it would lose its data."
                        .to_owned(),
                    untouched.to_owned(),
                ],
                vec![
                    format!("make {} reachable, then run the same command again", all(unreachable)),
                    "only if the host never held a cluster: remove the host, or its role `etcd`, from the inventory"
                        .to_owned(),
                ],
            ),
            Refusal::WouldLoseQuorum { voters, quorum, .. } => (
                "would-lose-quorum",
                vec![format!(
                    "The quorum counts all {voters} voters, healthy or not: {quorum} must answer, or etcd accepts no \
                     writes."
                )],
                vec![
                    "first bring a member back: `hactl status` lists the unhealthy ones".to_owned(),
                    "if they are gone for good and there is no quorum, use `hactl recover`".to_owned(),
                ],
            ),
            Refusal::MembersChanged { .. } => (
                "members-changed",
                vec!["Something else changed the etcd members after planning. No further change was made.".to_owned()],
                vec!["find out what else changes this cluster, then run the same command again: it replans".to_owned()],
            ),
            Refusal::OtherCluster { host, same_name, .. } => {
                let hint = if *same_name {
                    "the state directory belongs to another cluster of this name: name the right one with --state DIR"
                } else {
                    "check that the inventory names the right host and address"
                };
                (
                    "other-cluster",
                    vec![untouched.to_owned()],
                    vec![
                        hint.to_owned(),
                        format!(
                            "to move {host} to this cluster, first run `hactl down` with the inventory of the other one"
                        ),
                    ],
                )
            }
            Refusal::OtherHost { hosts } => {
                let flags: Vec<String> = hosts.iter().map(|one| format!("--reassign {}", one.host)).collect();
                (
                    "other-host",
                    vec![
                        "A host keeps its name and its machine as long as it is in the cluster.".to_owned(),
                        untouched.to_owned(),
                    ],
                    vec![
                        "check that the names and addresses in the inventory match".to_owned(),
                        "to rename a host, remove it under its old name first: take it out of the inventory, run \
                         `hactl up --prune NAME`, then add it"
                            .to_owned(),
                        format!("if the machines were swapped on purpose: the same command with {}", flags.join(" ")),
                    ],
                )
            }
            Refusal::StateLost { .. } => (
                "state-lost",
                vec![
                    "Without the state, hactl would create new CA keys, and no component would trust them.".to_owned(),
                    untouched.to_owned(),
                ],
                vec![
                    "if the state directory is elsewhere, name it with --state DIR".to_owned(),
                    "if it is lost: `hactl state pull --identity FILE` rebuilds it from a snapshot. The identity is a \
                     copy of the lost identity.txt, or the private key of one of vault.recipients"
                        .to_owned(),
                ],
            ),
            Refusal::NoProgress { .. } => (
                "no-progress",
                vec![
                    "The steps reported success, but the hosts do not show the result. A repetition would not help."
                        .to_owned(),
                ],
                vec![
                    "`hactl status` shows what the hosts report, `hactl plan -v` why each step is planned".to_owned(),
                    "something else may revert the change: configuration management, or a second hactl with another \
                     inventory"
                        .to_owned(),
                ],
            ),
            Refusal::Blocked { .. } => (
                "blocked",
                vec!["All other steps are done, and the running components passed their checks.".to_owned()],
                vec![
                    "run the same command again: the missing condition may hold by now".to_owned(),
                    "if not, `hactl status` shows the host that blocks the run, and its journal shows why".to_owned(),
                ],
            ),
            Refusal::StateBehind { .. } => (
                "state-behind",
                vec![
                    "A CA or key was rotated after this copy of the state was made: the hosts would get keys that are \
                     no longer trusted."
                        .to_owned(),
                    untouched.to_owned(),
                ],
                vec![
                    "use the state directory of the run that did the rotation".to_owned(),
                    "if that is lost, move this one aside and run `hactl state pull --identity` with the identity.txt \
                     in it: that rebuilds the newest state from the encrypted copies on the hosts"
                        .to_owned(),
                ],
            ),
            Refusal::Locked { .. } => (
                "locked",
                vec!["Two runs at the same time could remove each other's members.".to_owned(), untouched.to_owned()],
                vec![
                    "wait for the other run to end, then run the same command again; the lock of a dead process is \
                     released when its connection closes"
                        .to_owned(),
                ],
            ),
            Refusal::StateInUse { .. } => (
                "locked",
                vec!["Two runs at the same time could bootstrap two clusters.".to_owned(), untouched.to_owned()],
                vec!["wait for the other run to end: its lock is released when the process exits".to_owned()],
            ),
            Refusal::NoVoterLock { .. } => (
                "no-voter-lock",
                vec![
                    "The member list has voters on hosts that are not in this inventory or do not answer: another run \
                     may hold the lock on those."
                        .to_owned(),
                    untouched.to_owned(),
                ],
                vec!["use the inventory that names all member hosts, and make those hosts reachable by SSH".to_owned()],
            ),
            Refusal::NoMajorityLock { .. } => (
                "no-majority-lock",
                vec![
                    "A run that reaches the other hosts could change members at the same time.".to_owned(),
                    untouched.to_owned(),
                ],
                vec!["make the other etcd hosts reachable by SSH, then run the same command again".to_owned()],
            ),
            Refusal::CannotRotate { what, why } => {
                ("cannot-rotate", vec![untouched.to_owned()], not_rotated(*what, why))
            }
            Refusal::SkipsMinor { component, wanted, first, .. } => {
                super::versions::skipped(component, *wanted, *first, untouched)
            }
            Refusal::OlderMinor { component, runs, .. } => super::versions::older(component, *runs, untouched),
            Refusal::RangeChanged { setting, .. } => (
                "range-changed",
                vec![
                    "Existing Nodes and Services have addresses from the old range and keep them.".to_owned(),
                    untouched.to_owned(),
                ],
                vec![
                    format!("restore the previous value of {setting} in the inventory"),
                    "for another range, bootstrap a new cluster and move the workloads there".to_owned(),
                ],
            ),
            Refusal::CannotLeave { role, .. } => {
                nobody_else("cannot-leave", *role, "or add one to the inventory: the same command then adds it first")
            }
            Refusal::LastOfRole { role, .. } => {
                nobody_else("last-of-role", *role, "or give this host the role again in the inventory")
            }
            Refusal::LeftBehind { host } => (
                "left-behind",
                vec![
                    "Load balancers that do not know each other both answer for the endpoint, and clients reach \
                     either of them at random."
                        .to_owned(),
                    untouched.to_owned(),
                ],
                vec![
                    format!(
                        "remove the host: `hactl up --prune {host}` drains and cleans it; that also works for a host \
                         that is off for good"
                    ),
                    "or add it to the inventory again".to_owned(),
                ],
            ),
            Refusal::OtherAuthority { problems } => {
                "the CAs and keys of a running cluster cannot be replaced through `pki`"
                    .clone_into(&mut verdict.headline);
                let mut causes = problems.clone();
                causes.push("All existing certificates, kubeconfigs and tokens would stop working at once.".to_owned());
                causes.push(untouched.to_owned());
                ("other-authority", causes, vec!["name the previous files again, or remove them from `pki`".to_owned()])
            }
            Refusal::DataElsewhere { hosts, wanted } => {
                "etcd's data is not where the inventory says".clone_into(&mut verdict.headline);
                let lies = |(host, from): &(_, _)| format!("{host}: it is in {from}, and the inventory says {wanted}");
                let mut causes: Vec<String> = hosts.iter().map(lies).collect();
                causes.push("Members would start empty there, and their current data is abandoned.".to_owned());
                causes.push(untouched.to_owned());
                let from = hosts.first().map_or("OLD", |(_, from)| from.as_str());
                let hints = vec![
                    format!("set etcd.dataDir to {from} again; a new disk can be mounted there"),
                    format!(
                        "or move the data, with an outage of the API: on every etcd host run `systemctl stop etcd`, \
                         then move {from} to {wanted} with owner and modes (`mv`, or `cp -a` to another disk, and \
                         move the old directory aside), then run `hactl up`, which starts all members"
                    ),
                ];
                ("data-elsewhere", causes, hints)
            }
            Refusal::NeedsConsent { .. } => (
                "needs-consent",
                vec![untouched.to_owned()],
                vec!["`hactl plan` shows the steps; `--yes` agrees to them, for scripts".to_owned()],
            ),
            Refusal::LimitedFounding { left } => (
                "limited-founding",
                vec![
                    "Each initial member waits for the others: some of them alone cannot form the cluster.".to_owned(),
                    untouched.to_owned(),
                ],
                vec![format!("name {} with --limit, too, or omit --limit", all(left))],
            ),
            Refusal::Declined => ("declined", Vec::new(), Vec::new()),
            Refusal::Unsigned { bundles } => (
                "unsigned",
                vec![
                    one_line(&bundles.join(", ")),
                    "Anyone with write access to its storage can have forged it.".to_owned(),
                    untouched.to_owned(),
                ],
                vec![
                    "if you know its origin: the same command with --accept-unsigned, and --from to name it".to_owned(),
                    "after `hactl up`, the hosts sign the snapshots that they take".to_owned(),
                ],
            ),
            Refusal::Forged { .. } => (
                "forged",
                vec!["No flag makes hactl accept it.".to_owned(), untouched.to_owned()],
                vec![
                    "choose another one: `hactl snapshot list` shows the signer of each".to_owned(),
                    "find out who has write access to its storage".to_owned(),
                ],
            ),
            Refusal::OtherCa { claims, .. } => {
                let compare = "compare the fingerprint: `openssl x509 -noout -fingerprint -sha256` of the \
                               certificate-authority-data in a kubeconfig";
                ("other-ca", claims.iter().map(claimed).collect(), vec![compare.to_owned()])
            }
            Refusal::SeveralCas { claims } => (
                "several-cas",
                claims
                    .iter()
                    .map(claimed)
                    .chain(["One of them is forged, or belongs to another cluster of this name. No state was created."
                        .to_owned()])
                    .collect(),
                vec![
                    "find out which one is your cluster's CA (see certificate-authority-data in a kubeconfig), and \
                     name it with --fingerprint SHA256:..."
                        .to_owned(),
                ],
            ),
            Refusal::CaNotShown { .. } => (
                "ca-not-shown",
                vec!["The state is of another cluster, or those hosts were rebuilt. No state was created.".to_owned()],
                vec![
                    "if you know that the fingerprint is your cluster's: the same command with --fingerprint SHA256:..."
                        .to_owned(),
                ],
            ),
            Refusal::NeedsFingerprint { ca, .. } => (
                "needs-fingerprint",
                vec![
                    "Anyone who knows your public key can forge a state; only its CA identifies it. No state was \
                     created."
                        .to_owned(),
                ],
                vec![
                    format!(
                        "compare it with your notes, or with the certificate-authority-data of a kubeconfig, then add \
                         --fingerprint {ca}"
                    ),
                    "without --yes, hactl asks on the terminal".to_owned(),
                ],
            ),
            Refusal::NoSource { hosts, .. } => {
                let mut causes = said(hosts);
                causes.push(untouched.to_owned());
                (
                    "no-source",
                    causes,
                    vec![
                        "bring back a host whose disk still has etcd's data, or mount the volume with the data, then \
                         run the same command again"
                            .to_owned(),
                        "`hactl recover --from FILE`, with a snapshot that was fetched or copied elsewhere".to_owned(),
                        "name data that was moved aside: `--from HOST:member.moved-TIME`, a directory below etcd's \
                         data directory"
                            .to_owned(),
                    ],
                )
            }
            Refusal::NobodyAgrees { hashes } => {
                let mut causes: Vec<String> = hashes.iter().map(|(host, hash)| format!("{host}: {hash:08x}")).collect();
                causes.push(untouched.to_owned());
                (
                    "nobody-agrees",
                    causes,
                    vec![
                        "first bring back unreachable members, which may complete a majority; `hactl status` lists them"
                            .to_owned(),
                        "take a snapshot of each member: `hactl snapshot take --host HOST --to DIR`".to_owned(),
                        "find out which member has the right keys (`etcdctl get --prefix / --keys-only \
                         --consistency=s` on each host)"
                            .to_owned(),
                        "then run `hactl recover --undo --from HOST`: all members get the data of that one".to_owned(),
                    ],
                )
            }
            Refusal::NeedNot { serves, begun, .. } => (
                "need-not",
                vec![untouched.to_owned()],
                match (serves, begun) {
                    (true, _) => vec![
                        "keep the current data: `hactl status` shows its health, and `hactl up` heals unhealthy members"
                            .to_owned(),
                        "to go back anyway: the same command with --undo; the current data is moved aside".to_owned(),
                    ],
                    (false, None) => vec![
                        "`hactl recover` without --from (or `hactl up`) starts them, and nothing is lost".to_owned(),
                        "to go back anyway: the same command with --undo; the current data is moved aside".to_owned(),
                    ],
                    (false, Some(begun)) => {
                        let begun = one_line(&begun.to_string());
                        vec![
                            "to keep the members' data: `hactl recover --undo --from HOST`, with the host that has the \
                             newest data in `hactl status`"
                                .to_owned(),
                            "to use the named source anyway: the same command with --undo".to_owned(),
                            format!(
                                "without --from, hactl resumes the unfinished recovery from {begun} and moves the \
                                 members' data aside"
                            ),
                        ]
                    }
                },
            ),
            Refusal::NewerEtcd { of, .. } => (
                "newer-etcd",
                vec!["The members would not start with it.".to_owned(), untouched.to_owned()],
                vec![
                    format!(
                        "use a Kubernetes version in the inventory whose bundle has etcd {}, or build a bundle with \
                         `hactl bundle build --with etcd={of}`, then run the same command again",
                        of.minor
                    ),
                    "or use an older snapshot of `hactl snapshot list`, with `hactl recover --from NAME`".to_owned(),
                ],
            ),
            Refusal::Undone { to } => (
                "undone",
                vec![
                    format!("It restored {} and moved the data at that time aside.", one_line(&to.to_string())),
                    untouched.to_owned(),
                ],
                vec![
                    "to return to that data, name it: `--from HOST:member.moved-TIME`, the newest such directory \
                     below etcd's data directory"
                        .to_owned(),
                    "to go back further, name a snapshot or an older directory".to_owned(),
                ],
            ),
            Refusal::NothingAside => (
                "nothing-aside",
                vec![
                    "`--undo` restores the data that the last recovery moved aside. This state directory has no \
                     record of a recovery, or that data was removed since."
                        .to_owned(),
                    untouched.to_owned(),
                ],
                vec![
                    "name the source: `hactl recover --undo --from FILE` or `--from HOST:member.moved-TIME`; `hactl \
                     snapshot list` shows the snapshots"
                        .to_owned(),
                ],
            ),
            Refusal::TwoOrigins { hosts: (one, other) } => (
                "two-origins",
                vec![
                    "Two clusters cannot be compared, and one may be left over from an earlier recovery.".to_owned(),
                    untouched.to_owned(),
                ],
                vec![format!(
                    "`hactl status` shows the data of each; choose with `hactl recover --from {one}` or `--from \
                     {other}`"
                )],
            ),
            Refusal::NotLost { .. } => (
                "not-lost",
                vec![
                    "A restore could lose writes, and fixes neither a partition nor a failing process.".to_owned(),
                    untouched.to_owned(),
                ],
                vec![
                    "`hactl status` shows for each member whether it runs and why not; check the network between \
                     them, port 2380"
                        .to_owned(),
                    "to restore anyway: `hactl recover --from HOST`".to_owned(),
                ],
            ),
            Refusal::StillFull { members } => (
                "still-full",
                vec![
                    format!("It was compacted and defragmented: {}.", super::recovery::fullness(members)),
                    "Reads and deletions work. The alarm stays, because more writes would raise it again.".to_owned(),
                ],
                vec![
                    "delete the keys that fill it (often Events, or objects of a runaway controller), then run the \
                     same command again"
                        .to_owned(),
                    "or raise `etcd.quotaGiB` in the inventory, `hactl up`, then run the same command again".to_owned(),
                ],
            ),
            Refusal::QuotaBelowStored { members, .. } => (
                "quota-below-stored",
                vec![
                    format!("Current size of the members: {}.", super::recovery::fullness(members)),
                    untouched.to_owned(),
                ],
                vec![
                    "raise `etcd.quotaGiB` above the stored size; etcd's default is 2 GiB, tested up to 8".to_owned(),
                    "or first delete keys, compact and defragment: free pages in a store count against its quota, too"
                        .to_owned(),
                ],
            ),
            Refusal::MayLive { dark, .. } => (
                "may-live",
                vec!["Two clusters that both accepted writes cannot be merged.".to_owned(), untouched.to_owned()],
                vec![
                    format!(
                        "bring {} back, if possible: nothing is lost once a majority has its data",
                        dark.join(", ")
                    ),
                    format!(
                        "otherwise power them off for good, so that they cannot come back on their own, and add to \
                         the same command: {}",
                        dark.iter().map(|host| format!("--confirm-powered-off {host}")).collect::<Vec<_>>().join(" ")
                    ),
                ],
            ),
            Refusal::Preflight { problems } => {
                verdict.headline = format!("{} before the start", count(problems.len(), "problem"));
                let mut causes = problems.clone();
                causes.push(untouched.to_owned());
                ("preflight", causes, vec!["fix these problems, then run the same command again".to_owned()])
            }
        };
        if matches!(refusal, Refusal::Locked { .. } | Refusal::StateInUse { .. }) {
            verdict.exit = Exit::Locked;
        }
        Self { code, causes, hints, ..verdict }
    }
}

/// Why a host keeps a role that no other reachable host has; `or`: the alternative to bringing such a host back.
fn nobody_else(code: &'static str, role: Role, or: &str) -> (&'static str, Vec<String>, Vec<String>) {
    let causes = vec!["No reachable host could take over this role.".to_owned(), UNTOUCHED.to_owned()];
    let back = format!("bring back another host with the role {role}, then run the same command again");
    (code, causes, vec![back, or.to_owned()])
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
            vec!["remove it from `pki` in the inventory, then run the same command: hactl creates its own".to_owned()]
        }
        NoRotation::Other { other } => vec![format!("finish that one first: `hactl certs rotate {other} --finish`")],
        NoRotation::NotWhole { .. } => {
            vec!["run `hactl up` first: a rotation must not include other changes".to_owned()]
        }
        NoRotation::NotBegun => vec![format!("start one: `hactl certs rotate {what}`")],
        NoRotation::StillVouched { .. } => vec![
            "restart the pods that are older than the last rotation (`kubectl rollout restart`, namespace by \
             namespace), then run the same command with --at-once"
                .to_owned(),
            "or wait until then: pods that have read the CA since the last rotation need no restart".to_owned(),
        ],
        NoRotation::TooYoung { .. } => vec![
            "run the same command again then: by that time, every kubelet has fetched new tokens".to_owned(),
            "or use --at-once if the old key may be compromised: pods with old tokens are rejected until their \
             kubelets have fetched new ones, which may take a day"
                .to_owned(),
        ],
    }
}

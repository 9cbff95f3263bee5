//! Refusals in words: what would not have been safe, with its numbers, and the way on.
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
                        "bring back hosts that are off or cut off, if you can: a majority with its data heals by `hactl up`, without loss".to_owned(),
                        "else it is a case for `hactl recover`; with --dry-run it says what it would do and what it would cost. docs/troubleshooting.md has the way by hand".to_owned(),
                    ],
                )
            }
            Refusal::Disputed { evidence } => {
                let mut causes = said(evidence);
                causes.push("One host alone is not believed: it may be slow, mistaken, or in the wrong hands.".to_owned());
                causes.push(untouched.to_owned());
                (
                    "disputed",
                    causes,
                    vec![
                        "run the same command again: under load, and while members change, members say different things for a moment".to_owned(),
                        "else find out which host is wrong, stop etcd there (`systemctl stop etcd`) or take the host off the network, and run the same command again; \
                         a host that may be in the wrong hands is powered off, and named with `hactl recover --confirm-powered-off HOST` where a majority is lost".to_owned(),
                    ],
                )
            }
            Refusal::CannotTell { unreachable } => (
                "cannot-tell",
                vec!["A host that is silent may hold a cluster, and founding a second one beside it would lose it.".to_owned(), untouched.to_owned()],
                vec![
                    format!("make {} reachable, then run the same command again", all(unreachable)),
                    "only if no cluster ever lived on it may its role `etcd` (or the host) be taken out of the inventory instead".to_owned(),
                ],
            ),
            Refusal::WouldLoseQuorum { voters, quorum, .. } => (
                "would-lose-quorum",
                vec![format!("etcd counts over all {voters} voters, healthy or not: {quorum} must answer, or nobody can write.")],
                vec![
                    "bring a member back first: `hactl status` names the ones that are not healthy".to_owned(),
                    "if they are gone for good and no quorum answers any more, it is a case for `hactl recover`".to_owned(),
                ],
            ),
            Refusal::MembersChanged { .. } => (
                "members-changed",
                vec!["Somebody else changed etcd's members since the plan was made. No further change was made.".to_owned()],
                vec!["see who else works on this cluster, then run the same command again: it plans by what is there now".to_owned()],
            ),
            Refusal::OtherCluster { host, same_name, .. } => {
                let hint = if *same_name {
                    "the inventory's state is of another cluster of this name: name the right place with --state DIR"
                } else {
                    "see that the inventory names the right host and address"
                };
                (
                    "other-cluster",
                    vec![untouched.to_owned()],
                    vec![
                        hint.to_owned(),
                        format!("to give {host} to this cluster, first run `hactl down` with the inventory of the other one"),
                    ],
                )
            }
            Refusal::OtherHost { hosts } => {
                let flags: Vec<String> = hosts.iter().map(|one| format!("--reassign {}", one.host)).collect();
                (
                    "other-host",
                    vec![
                        "A host keeps its name and its machine for as long as it is in the cluster.".to_owned(),
                        untouched.to_owned(),
                    ],
                    vec![
                        "see that names and addresses in the inventory belong together".to_owned(),
                        "to give a host another name, let it leave by its old one first: take it out of the inventory, `hactl up --prune NAME`, then add it".to_owned(),
                        format!("if machines did change places: the same command with {}", flags.join(" ")),
                    ],
                )
            }
            Refusal::StateLost { .. } => (
                "state-lost",
                vec![
                    "Without its state (the keys of its authorities above all) a new set would be made, and no component would trust it.".to_owned(),
                    untouched.to_owned(),
                ],
                vec![
                    "if it lies elsewhere, name the place with --state DIR".to_owned(),
                    "if it is lost: `hactl state pull --identity FILE` rebuilds it from a recovery bundle; the identity is a copy of the lost identity.txt, or the key of one of vault.recipients".to_owned(),
                ],
            ),
            Refusal::NoProgress { .. } => (
                "no-progress",
                vec!["The steps report success and the hosts do not show it. Doing the same again would not help.".to_owned()],
                vec![
                    "`hactl status` shows what the hosts say; `hactl plan -v` shows why each step is planned".to_owned(),
                    "something else may undo the change: configuration management, or a second hactl with another inventory".to_owned(),
                ],
            ),
            Refusal::Blocked { .. } => (
                "blocked",
                vec!["All else is done, and what the cluster serves passed its checks.".to_owned()],
                vec![
                    "run the same command again: what was missing may have come up since".to_owned(),
                    "if it says the same again, `hactl status` shows the host that keeps it waiting, and that host's journal why".to_owned(),
                ],
            ),
            Refusal::StateBehind { .. } => (
                "state-behind",
                vec![
                    "Something was rotated since this copy of the state was made: hosts would be given keys that are not trusted any more.".to_owned(),
                    untouched.to_owned(),
                ],
                vec![
                    "use the state directory that the rotation was run with".to_owned(),
                    "where that is lost, move this one aside and run `hactl state pull --identity` with the identity.txt in it: it rebuilds the newest that lies sealed on the hosts".to_owned(),
                ],
            ),
            Refusal::Locked { .. } => (
                "locked",
                vec!["Two runs at once could take each other's members out.".to_owned(), untouched.to_owned()],
                vec!["wait for the other run to end; if its process is gone, its lock goes with its connection, then run the same command again".to_owned()],
            ),
            Refusal::StateInUse { .. } => (
                "locked",
                vec!["Two runs at once could found a cluster twice.".to_owned(), untouched.to_owned()],
                vec!["wait for the other run to end: the lock goes with its process".to_owned()],
            ),
            Refusal::NoVoterLock { .. } => (
                "no-voter-lock",
                vec![
                    "The member list names voters on hosts that this inventory does not name, or that do not answer: another run may hold those.".to_owned(),
                    untouched.to_owned(),
                ],
                vec!["run it with the inventory that names the hosts of all members, and make them reachable by SSH".to_owned()],
            ),
            Refusal::NoMajorityLock { .. } => (
                "no-majority-lock",
                vec![
                    "A run that reaches the other hosts could change members at the same time.".to_owned(),
                    untouched.to_owned(),
                ],
                vec!["make the other hosts of etcd reachable by SSH, then run the same command again".to_owned()],
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
                vec!["Nodes and Services have addresses out of the old range, which nothing takes from them while they live.".to_owned(), untouched.to_owned()],
                vec![
                    format!("put {setting} back in the inventory to what it was"),
                    "for another range found another cluster, and move what runs there".to_owned(),
                ],
            ),
            Refusal::CannotLeave { role, .. } => {
                nobody_else("cannot-leave", *role, "or add one to the inventory: with the same command it comes in first")
            }
            Refusal::LastOfRole { role, .. } => {
                nobody_else("last-of-role", *role, "or give this one the role again in the inventory")
            }
            Refusal::LeftBehind { host } => (
                "left-behind",
                vec![
                    "Balancers that do not know of one another both answer for the endpoint, and clients reach one or the other by chance."
                        .to_owned(),
                    untouched.to_owned(),
                ],
                vec![
                    format!("let it leave: `hactl up --prune {host}` takes it out and cleans it; one that is off for good is taken out all the same"),
                    "or name it again in the inventory".to_owned(),
                ],
            ),
            Refusal::OtherAuthority { problems } => {
                "a living cluster keeps the authorities and keys that it was founded on".clone_into(&mut verdict.headline);
                let mut causes = problems.clone();
                causes.push("Every certificate, kubeconfig and token there is would stop working at once.".to_owned());
                causes.push(untouched.to_owned());
                ("other-authority", causes, vec!["name the old files again, or remove them from `pki`".to_owned()])
            }
            Refusal::DataElsewhere { hosts, wanted } => {
                "etcd's data is not where the inventory says".clone_into(&mut verdict.headline);
                let lies = |(host, from): &(_, _)| format!("{host}: it lies in {from}, and the inventory says {wanted}");
                let mut causes: Vec<String> = hosts.iter().map(lies).collect();
                causes.push("Members that are started elsewhere begin empty, and what they hold now is abandoned.".to_owned());
                causes.push(untouched.to_owned());
                let from = hosts.first().map_or("OLD", |(_, from)| from.as_str());
                let hints = vec![
                    format!("write {from} as etcd.dataDir again; a new disk can be mounted there"),
                    format!(
                        "or move it, with the API away meanwhile: on every etcd host `systemctl stop etcd`, then move \
                         {from} to {wanted} with owner and modes (`mv`, or `cp -a` to another disk and the old one put \
                         aside), then `hactl up`, which starts them all"
                    ),
                ];
                ("data-elsewhere", causes, hints)
            }
            Refusal::NeedsConsent { .. } => (
                "needs-consent",
                vec![untouched.to_owned()],
                vec!["`hactl plan` shows it; `--yes` agrees to it, for scripts".to_owned()],
            ),
            Refusal::LimitedFounding { left } => (
                "limited-founding",
                vec![
                    "Each founder waits for the others: a few of them would be no cluster.".to_owned(),
                    untouched.to_owned(),
                ],
                vec![format!("name {} with --limit as well, or leave --limit out", all(left))],
            ),
            Refusal::Declined => ("declined", Vec::new(), Vec::new()),
            Refusal::Unsigned { bundles } => (
                "unsigned",
                vec![
                    one_line(&bundles.join(", ")),
                    "Whoever can write to where it lies can have changed what it says of itself.".to_owned(),
                    untouched.to_owned(),
                ],
                vec![
                    "if you know where it comes from: the same command with --accept-unsigned, and --from to name it".to_owned(),
                    "`hactl up` has hosts sign the snapshots that they take from then on".to_owned(),
                ],
            ),
            Refusal::Forged { .. } => (
                "forged",
                vec!["It is never taken, whatever the flags.".to_owned(), untouched.to_owned()],
                vec![
                    "take another one: `hactl snapshot list` shows who signed each".to_owned(),
                    "find out who can write to where it lies".to_owned(),
                ],
            ),
            Refusal::OtherCa { claims, .. } => {
                ("other-ca", claims.iter().map(claimed).collect(), vec!["compare the fingerprint: `openssl x509 -noout -fingerprint -sha256` of the certificate-authority-data in a kubeconfig".to_owned()])
            }
            Refusal::SeveralCas { claims } => (
                "several-cas",
                claims
                    .iter()
                    .map(claimed)
                    .chain(["One of them was made by somebody else, or is of another cluster of this name. No state was made.".to_owned()])
                    .collect(),
                vec!["find out which is your cluster's CA (certificate-authority-data in a kubeconfig has it), and name it with --fingerprint SHA256:...".to_owned()],
            ),
            Refusal::CaNotShown { .. } => (
                "ca-not-shown",
                vec!["It is of another cluster, or those hosts were made anew since. No state was made.".to_owned()],
                vec!["if you know the fingerprint to be your cluster's: the same command with --fingerprint SHA256:...".to_owned()],
            ),
            Refusal::NeedsFingerprint { ca, .. } => (
                "needs-fingerprint",
                vec!["A state can be made by anybody who knows your public key; only its CA tells whose it is. No state was made.".to_owned()],
                vec![
                    format!("compare it with what you noted, or with the certificate-authority-data of a kubeconfig, then add --fingerprint {ca}"),
                    "without --yes it is asked on the terminal".to_owned(),
                ],
            ),
            Refusal::NoSource { hosts, .. } => {
                let mut causes = said(hosts);
                causes.push(untouched.to_owned());
                (
                    "no-source",
                    causes,
                    vec![
                        "bring back a host whose disk still holds etcd's data, or mount the volume it lies on, then run the same command again".to_owned(),
                        "hactl recover --from FILE, with a recovery bundle that was fetched or copied elsewhere".to_owned(),
                        "data that was moved aside may have to be named: `--from HOST:member.moved-TIME`, a directory below etcd's data directory".to_owned(),
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
                        "bring back members that do not answer first: they may make a majority; `hactl status` names them".to_owned(),
                        "keep a bundle of each member: `hactl snapshot take --host HOST --to DIR`".to_owned(),
                        "find out whose keys are right (`etcdctl get --prefix / --keys-only --consistency=s` on each host)".to_owned(),
                        "then `hactl recover --undo --from HOST` gives all members that one's data".to_owned(),
                    ],
                )
            }
            Refusal::NeedNot { serves, begun, .. } => (
                "need-not",
                vec![untouched.to_owned()],
                match (serves, begun) {
                    (true, _) => vec![
                        "leave it as it is: `hactl status` says how it does, and `hactl up` heals members that are not well".to_owned(),
                        "to go back in spite of that: the same command with --undo; what is there now is moved aside".to_owned(),
                    ],
                    (false, None) => vec![
                        "`hactl recover` without --from (or `hactl up`) starts them, and nothing is lost".to_owned(),
                        "to go back in spite of that: the same command with --undo; what is there now is moved aside".to_owned(),
                    ],
                    (false, Some(begun)) => {
                        let begun = one_line(&begun.to_string());
                        vec![
                            "to keep what they have: `hactl recover --undo --from HOST`, a host that `hactl status` shows with the newest data".to_owned(),
                            "to go to what you named in spite of that: the same command with --undo".to_owned(),
                            format!("without --from the recovery from {begun} that was begun goes on, and what members have is moved aside"),
                        ]
                    }
                },
            ),
            Refusal::NewerEtcd { of, .. } => (
                "newer-etcd",
                vec!["Members would not start with it.".to_owned(), untouched.to_owned()],
                vec![
                    format!(
                        "name a Kubernetes version in the inventory whose components have etcd {}, or build such with `hactl bundle build --with etcd={of}`, then run the same command again",
                        of.minor
                    ),
                    "or take an older bundle: `hactl snapshot list` shows them, `hactl recover --from NAME` takes one".to_owned(),
                ],
            ),
            Refusal::Undone { to } => (
                "undone",
                vec![format!("It went back to {}, and moved aside what was there until then.", one_line(&to.to_string())), untouched.to_owned()],
                vec![
                    "to go forth again, name that: `--from HOST:member.moved-TIME`, the newest such directory below etcd's data directory".to_owned(),
                    "to go back further, name a bundle or an older directory".to_owned(),
                ],
            ),
            Refusal::NothingAside => (
                "nothing-aside",
                vec!["`--undo` goes back to what the last recovery moved aside: etcd was not recovered by this state, or that data was removed since.".to_owned(), untouched.to_owned()],
                vec!["name what to go back to: `hactl recover --undo --from FILE` or `--from HOST:member.moved-TIME`; `hactl snapshot list` shows the bundles".to_owned()],
            ),
            Refusal::TwoOrigins { hosts: (one, other) } => (
                "two-origins",
                vec![
                    "How far two clusters got cannot be compared, and one of them may be what an earlier recovery left behind.".to_owned(),
                    untouched.to_owned(),
                ],
                vec![format!("`hactl status` shows what each holds; `hactl recover --from {one}` or `--from {other}` says which one counts")],
            ),
            Refusal::NotLost { .. } => (
                "not-lost",
                vec!["A restore would lose time and perhaps writes, and would help neither against a cut network nor against a process that does not start.".to_owned(), untouched.to_owned()],
                vec![
                    "`hactl status` says for each member whether it runs and why not; look at the network between them, port 2380".to_owned(),
                    "if you know better, `hactl recover --from HOST` restores all the same".to_owned(),
                ],
            ),
            Refusal::StillFull { members } => (
                "still-full",
                vec![
                    format!("Its history is forgotten and its stores were written anew: {}.", super::recovery::fullness(members)),
                    "It can be read, and keys can be deleted; the alarm stays, for the next writes would raise it again.".to_owned(),
                ],
                vec![
                    "delete what fills it (often Events, or what a controller makes without end), then the same command again".to_owned(),
                    "or give it more: `etcd.quotaGiB` in the inventory, `hactl up`, then the same command again".to_owned(),
                ],
            ),
            Refusal::QuotaBelowStored { members, .. } => (
                "quota-below-stored",
                vec![format!("How full its members are now: {}.", super::recovery::fullness(members)), untouched.to_owned()],
                vec![
                    "raise `etcd.quotaGiB` above what is stored; etcd's own default is 2 GiB, and 8 is what it is tested with".to_owned(),
                    "or delete what fills it first, compact and defragment it: what is free in a store counts against its quota too".to_owned(),
                ],
            ),
            Refusal::MayLive { dark, .. } => (
                "may-live",
                vec![
                    "Two clusters that both take writes cannot be made one again.".to_owned(),
                    untouched.to_owned(),
                ],
                vec![
                    format!("if {} can be brought back, do: with a majority of data nothing is lost", dark.join(", ")),
                    format!(
                        "else power them off for good, so that they cannot come back by themselves, and add to the same command: {}",
                        dark.iter().map(|host| format!("--confirm-powered-off {host}")).collect::<Vec<_>>().join(" ")
                    ),
                ],
            ),
            Refusal::Preflight { problems } => {
                verdict.headline = format!("{} before the start", count(problems.len(), "problem"));
                let mut causes = problems.clone();
                causes.push(untouched.to_owned());
                ("preflight", causes, vec!["put these right, then run the same command again".to_owned()])
            }
        };
        if matches!(refusal, Refusal::Locked { .. } | Refusal::StateInUse { .. }) {
            verdict.exit = Exit::Locked;
        }
        Self { code, causes, hints, ..verdict }
    }
}

/// Why a host keeps a role, or stays with it, that nobody else has who answers; `or`: what helps beside a host that comes back.
fn nobody_else(code: &'static str, role: Role, or: &str) -> (&'static str, Vec<String>, Vec<String>) {
    let causes = vec!["Nobody who answers could take over what it does.".to_owned(), UNTOUCHED.to_owned()];
    let back = format!("bring another host with the role {role} back, then run the same command again");
    (code, causes, vec![back, or.to_owned()])
}

/// What each host said, one line each, in a column.
/// A CA, and who has a state of it.
fn claimed(claim: &CaClaim) -> String {
    let now = claim.now.as_ref().map_or_else(String::new, |now| format!(", followed by {now}"));
    one_line(&format!("{}{now}: {}", claim.ca, claim.from.join(", ")))
}

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

/// The way on where nothing is rotated.
fn not_rotated(what: Rotatable, why: &NoRotation) -> Vec<String> {
    match why {
        NoRotation::Brought => {
            vec!["take it out of the inventory's `pki`, then run the same command again: hactl makes its own, which the inventory need not name".to_owned()]
        }
        NoRotation::Other { other } => vec![format!("end that one first: `hactl certs rotate {other} --finish`")],
        NoRotation::NotWhole { .. } => {
            vec!["run `hactl up` first: whoever rotates must not have to take other changes along".to_owned()]
        }
        NoRotation::NotBegun => vec![format!("begin one: `hactl certs rotate {what}`")],
        NoRotation::StillVouched { .. } => vec![
            "start pods anew that run since before the last rotation (`kubectl rollout restart`, namespace by namespace), then the same command with --at-once".to_owned(),
            "or wait until then: whoever has read the authority since the last one needs nothing".to_owned(),
        ],
        NoRotation::TooYoung { .. } => vec![
            "run the same command again then: by that time every kubelet has fetched new ones for its pods".to_owned(),
            "or with --at-once, where the old key may be in wrong hands: pods whose tokens end are refused until their kubelets have fetched others, which may take a day".to_owned(),
        ],
    }
}

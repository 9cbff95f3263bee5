//! The command line: flags select one workflow, its events go to a reader, and its result becomes an exit code.

/// Prints a line on standard output through [`harmless`](crate::report::harmless).
macro_rules! say {
    ($($word:tt)*) => { $crate::report::harmless::print(&format!("{}\n", format_args!($($word)*))) };
}
/// Prints a line on standard error.
macro_rules! tell {
    ($($word:tt)*) => { $crate::report::harmless::tell(&format!("{}\n", format_args!($($word)*))) };
}

mod bundle;
mod certs;
mod common;
mod event_log;
mod guard;
mod host;
mod import;
pub mod inventory;
mod lab;
mod maintain;
mod new_file;
mod recover;
mod roll_out;
mod runbook;
mod snapshot;
mod state;
mod support;
mod verbs;

pub use common::failure_verdict;

use crate::report::harmless;
use crate::report::{Exit, FailureKind, Style, Verdict};
use clap::{CommandFactory, Parser, Subcommand};
use common::Common;
use std::ffi::OsString;
use std::process::ExitCode;

/// Turn bare hosts into a highly available Kubernetes control plane over SSH
#[derive(Debug, Parser)]
#[command(
    name = "hactl",
    version,
    about,
    max_term_width = 110,
    after_help = "\
Examples:
  hactl inventory init                     write a starter inventory, hactl.yaml
  hactl plan                               show what `up` would do; change nothing
  hactl up                                 do it; a second run finds nothing to do
  hactl status --watch                     observe the health of the cluster
  hactl kubectl -- get nodes               run kubectl through SSH, without a route to the API
  hactl lab up                             create three bare hosts on this machine, to try hactl

Exit codes: 0 done, 1 failed, 2 wrong usage or invalid inventory, 3 refused for safety, 4 degraded,
5 changes pending (plan --exit-code), 6 another run holds the lock, 7 API or quorum down."
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Bring the hosts to what the inventory asks for: bootstrap, heal, change and renew the cluster
    #[command(after_help = "\
Examples:
  hactl up -i lab.yaml
  hactl up --yes                  do not ask for confirmation; for scripts
  hactl up --limit cp1            change one host first, check it, then run `up` for the rest
  hactl up --prune cp4            remove a host that is no longer in the inventory
  hactl up --ask-sudo-password    for hosts whose sudo asks for a password")]
    Up(verbs::UpArgs),
    /// Show what `up` would do; change nothing
    #[command(after_help = "\
Examples:
  hactl plan
  hactl plan --exit-code      exit with 5 if changes are pending
  hactl plan -v               show every single step
  hactl plan --limit cp2,w1   show what would be done if only these hosts were changed")]
    Plan(verbs::PlanArgs),
    /// Ask every host for its state and run the checks; requires neither quorum nor the API
    #[command(after_help = "\
Examples:
  hactl status
  hactl status --watch        repeat every 2 seconds until interrupted
  hactl status -o json        for programs; exit code 4: degraded, 7: API or quorum down")]
    Status(verbs::StatusArgs),
    /// Show what the guards on the hosts report; requires neither quorum nor the API
    #[command(after_help = "\
Examples:
  hactl guard status         show whether all guards work, and the faults that they report
  hactl guard explain cp1    show what each guard sees of cp1, and what is not reported yet

The hosts of the control plane have guards if the inventory says `healing: watch`. Guards detect and report faults,
and change nothing.")]
    Guard(guard::GuardArgs),
    /// Take Nodes out of service for work on their hosts, and back
    #[command(after_help = "\
Examples:
  hactl maintain start w3 --reason 'replace sdb'    cordon and drain w3
  hactl maintain status                             show what is in the way
  hactl maintain finish w3                          restore w3

A maintenance is an object of the API: kubectl get nodemaintenances. Requires the API.")]
    Maintain(maintain::MaintainArgs),
    /// Print a kubeconfig
    #[command(after_help = "\
Examples:
  hactl kubeconfig > ~/.kube/config
  hactl kubeconfig --break-glass    not restricted by RBAC, valid for 8 hours")]
    Kubeconfig(verbs::KubeconfigArgs),
    /// Run kubectl through SSH; no route to the API is needed
    #[command(after_help = "\
Examples:
  hactl kubectl -- get nodes -o wide
  hactl kubectl -i lab.yaml -- logs -n kube-system -l k8s-app=kube-dns")]
    Kubectl(verbs::KubectlArgs),
    /// Recover etcd from quorum loss, a full database or a diverged member; shows the data loss and asks before acting
    #[command(after_help = "\
Examples:
  hactl recover --dry-run     show what is wrong and what would be done
  hactl recover               ask for the name of the cluster, then recover
  hactl recover --confirm-powered-off cp2 --confirm-powered-off cp3
                              the other hosts are gone for good
  hactl recover --from cp2    use the data of cp2 instead of the newest
  hactl recover --from lab-20261122T060000000Z-cp1.hactl
                              restore a snapshot, also onto bare hosts
  hactl recover --undo --dry-run
                              show what undoing the last recovery would lose
  hactl recover --drill       rehearse with the newest snapshot, without touching the running cluster

Requires neither quorum nor the API. Replaced data is moved aside, never deleted. After an interruption, the same
command resumes the recovery that was agreed to.")]
    Recover(recover::RecoverArgs),
    /// Take, list, verify and prune snapshots; the etcd hosts also take them automatically
    #[command(after_help = "\
Examples:
  hactl snapshot list                     show the snapshots on every host, and their age
  hactl snapshot take                     take one now, on a host whose member is not the leader
  hactl snapshot take --to /mnt/backup/   take one and fetch it
  hactl snapshot verify                   check every byte of the newest one, and that it decrypts
  hactl snapshot verify --deep FILE       also restore it on a host, beside what runs there

A snapshot contains the data of etcd, test-restored once, the cluster's keys and its inventory. It is encrypted for
the identity in the state directory and for vault.recipients. Keep a copy of that identity and of the inventory
elsewhere: with them and any snapshot, the whole cluster can be rebuilt.")]
    Snapshot(snapshot::SnapshotArgs),
    /// List and renew certificates; rotate CAs and keys
    #[command(after_help = "\
Examples:
  hactl certs list                        show when each certificate expires and what renews it
  hactl certs renew --dry-run             show what a renewal would do
  hactl certs renew apiserver --host cp1
  hactl certs rotate etcd-ca --dry-run    show the next stage of replacing a CA, for example a compromised one

`up` renews certificates with less than a third of their lifetime left; `status` warns 30 days before one expires.")]
    Certs(certs::CertsArgs),
    /// Print the disaster-recovery runbook of this cluster, with a manual procedure that needs no hactl
    #[command(after_help = "\
Examples:
  hactl runbook --to runbook.md
  hactl runbook | pandoc -o runbook.pdf

Print it again after every change of the hosts. Requires neither quorum nor the API, nor a reachable host.")]
    Runbook(runbook::RunbookArgs),
    /// Rebuild a lost state directory
    #[command(after_help = "\
Examples:
  hactl state pull --identity ~/lab-identity.txt    from the newest copy on the hosts and in object storage")]
    State(state::StateArgs),
    /// Take the cluster down on all hosts, after asking for its name; a later `up` bootstraps an empty one
    #[command(after_help = "\
Examples:
  hactl snapshot take --to /mnt/backup/   first keep a snapshot elsewhere: `down` also removes those on the hosts
  hactl down                              move data and snapshots aside
  hactl down --wipe                       delete data and snapshots")]
    Down(verbs::DownArgs),
    /// Collect journals, logs and states of all hosts in one archive, with secrets removed
    #[command(after_help = "\
Examples:
  hactl support-bundle
  hactl support-bundle --since 3d --to /tmp/lab.tar.zst
  tar --zstd -xf FILE && cat hactl-support-*/README.txt

Requires neither quorum nor the API, nor a reachable host. For everything that could not be collected, the archive
contains a page with the reason.")]
    SupportBundle(support::SupportArgs),
    /// Write, import and validate inventories
    Inventory(inventory::InventoryArgs),
    /// Fetch, build, verify and carry bundles of components
    Bundle(bundle::BundleArgs),
    /// Manage bare hosts on this machine, to try things and to break them
    Lab(lab::LabArgs),
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  hactl completions bash > /etc/bash_completion.d/hactl
  hactl completions zsh > ~/.zfunc/_hactl")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(after_help = "Examples:\n  hactl man | man -l -")]
    Man,
    /// The agent on a host; started by hactl over SSH
    #[command(hide = true)]
    Host,
    /// Resolve a name with a DNS server; run inside pods by hactl
    #[command(hide = true)]
    HostDns(host::DnsArgs),
    /// Take a snapshot if it is this host's turn; run by a timer on etcd hosts
    #[command(hide = true)]
    HostSnapshot,
    /// Test-restore this host's newest snapshot; run by a timer where the inventory asks for it
    #[command(hide = true)]
    HostDrill,
    /// Find copies of snapshots in a directory; a separate process of the agent, so that a dead share blocks nothing
    /// else
    #[command(hide = true)]
    HostCopies(host::CopiesArgs),
    /// Renew this host's certificates with the issuers on it; run by a timer where the inventory asks for it
    #[command(hide = true)]
    HostRenew,
    /// Approve kubelet serving certificates; run as a unit on control-plane hosts
    #[command(hide = true)]
    HostApprove(host::ApproveArgs),
    /// Ask the etcd members whether the data of this host's member may vote; run before etcd starts
    #[command(hide = true)]
    HostFence(host::FenceArgs),
    /// Record the position of each etcd member; run as a unit on etcd hosts
    #[command(hide = true)]
    HostPositions(host::PositionsArgs),
    /// Watch this host and the other hosts of the control plane; run as a unit where the inventory asks for it
    #[command(hide = true)]
    HostGuard(host::GuardArgs),
    /// Keep a control plane on this host where its pods do not; run as a unit where the inventory has `hosting: self`
    #[command(hide = true)]
    HostHosting(host::HostingArgs),
    /// Reboot this host when a maintenance of its Node asks for it; run as a unit on the Nodes of clusters with guards
    #[command(hide = true)]
    HostNodeAgent(host::NodeAgentArgs),
    /// Serve the metrics of this host's components to readers; run as a unit where the inventory has `metrics: on`
    #[command(hide = true)]
    HostMetrics,
    /// Wait until nobody listens at a port of the host; run in pods of the control plane
    #[command(hide = true)]
    HostAwaitTurn(host::TurnArgs),
    /// Serve one connection of the guard of another host, on standard input; systemd starts it
    #[command(hide = true)]
    HostPeer(host::GuardArgs),
    /// Make the etcd member of this host join again, as its guard has decided; run as a unit
    #[command(hide = true)]
    HostHeal(host::GuardArgs),
    /// Copy the newest snapshots of the other etcd hosts to this one; run by a timer
    #[command(hide = true)]
    HostPeerSnapshots(host::GuardArgs),
    /// Let the load balancer in front of etcd send clients to a member again; run by a timer while it bypasses one
    #[command(hide = true)]
    HostPassTo(host::PassToArgs),
}

/// Runs one verb and returns its exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // Every run starts the agent on every host, and making the parser of all verbs takes it milliseconds.
    let is_agent = arguments.get(1..).is_some_and(|rest| rest == ["host"]);
    let exit = if is_agent {
        host::serve()
    } else {
        match Cli::try_parse_from(arguments) {
            Ok(cli) => run(cli),
            Err(error) => usage(&error),
        }
    };
    whole(exit).into()
}

/// Shows help, the version, or what is wrong with the command line.
fn usage(error: &clap::Error) -> Exit {
    // clap chooses stream and colour.
    let printed = error.print();
    if error.use_stderr() {
        // There is nowhere to report that it could not print.
        return Exit::Usage;
    }
    // An error is remembered.
    harmless::noted(printed, ()).ok();
    Exit::Done
}

/// The exit code: a run whose output could not be written has failed.
fn whole(exit: Exit) -> Exit {
    let Some(error) = harmless::lost() else { return exit };
    let verdict = Verdict::of(&FailureKind::Output, Some(error));
    harmless::tell(&verdict.text(&Style::stderr(0)));
    if exit == Exit::Done { verdict.exit } else { exit }
}

fn run(cli: Cli) -> Exit {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let common = cli.common;
    match cli.verb {
        Verb::Host => host::serve(),
        Verb::HostDns(args) => host::dns(&args),
        Verb::HostApprove(args) => host::approve(&args),
        Verb::HostSnapshot => host::snapshot(),
        Verb::HostDrill => host::drill(),
        Verb::HostCopies(args) => host::copies(&args),
        Verb::HostRenew => host::renew(),
        Verb::HostFence(args) => host::fence(&args),
        Verb::HostPositions(args) => host::positions(&args),
        Verb::HostGuard(args) => host::guard(&args),
        Verb::HostHosting(args) => host::hosting(&args),
        Verb::HostNodeAgent(args) => host::node_agent(&args),
        Verb::HostMetrics => host::metrics(),
        Verb::HostAwaitTurn(args) => host::await_turn(&args),
        Verb::HostPeer(args) => host::peer(&args),
        Verb::HostHeal(args) => host::heal(&args),
        Verb::HostPeerSnapshots(args) => host::peer_snapshots(&args),
        Verb::HostPassTo(args) => host::pass_to(&args),
        Verb::Up(args) => verbs::up(&common, args),
        Verb::Plan(args) => verbs::plan(&common, &args),
        Verb::Status(args) => verbs::status(&common, &args),
        Verb::Guard(args) => guard::run(&common, &args),
        Verb::Maintain(args) => maintain::run(&common, &args),
        Verb::Kubeconfig(args) => verbs::kubeconfig(&common, &args),
        Verb::Kubectl(args) => verbs::kubectl(&common, &args),
        Verb::Recover(args) => recover::run(&common, args),
        Verb::Snapshot(args) => snapshot::run(&common, &args),
        Verb::Certs(args) => certs::run(&common, &args),
        Verb::Runbook(args) => runbook::run(&common, &args),
        Verb::State(args) => state::run(&common, &args),
        Verb::Down(args) => verbs::down(&common, &args),
        Verb::SupportBundle(args) => support::run(&common, &args),
        Verb::Inventory(args) => {
            let given = inventory::Given { inventory: common.inventory.as_os_str(), json: common.json() };
            inventory::run(&args, given, &mut harmless::stdout(), &mut harmless::stderr())
        }
        Verb::Bundle(args) => bundle::run(&common, args),
        Verb::Lab(args) => lab::run(&common, &args),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "hactl", &mut script);
            harmless::print_unfiltered(&script);
            Exit::Done
        }
        Verb::Man => manual(),
    }
}

fn manual() -> Exit {
    let mut page = Vec::new();
    match clap_mangen::Man::new(Cli::command()).render(&mut page) {
        Ok(()) => {
            harmless::print_unfiltered(&page);
            Exit::Done
        }
        Err(error) => {
            tell!("error: the manual page could not be made: {error}");
            Exit::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command};

    /// The commands below this one that have an option of their own with one of these identifiers.
    fn colliding(command: &Command, global: &[&str]) -> Vec<String> {
        let below = |command: &Command| {
            let own = command.get_arguments().filter(|own| global.contains(&own.get_id().as_str()));
            let own = own.map(|own| format!("{} --{}", command.get_name(), own.get_id())).collect::<Vec<_>>();
            [own, colliding(command, global)].concat()
        };
        command.get_subcommands().flat_map(below).collect()
    }

    #[test]
    fn no_command_has_an_option_of_its_own_under_the_name_of_a_global_one() {
        let cli = Cli::command();
        let global: Vec<&str> = cli
            .get_arguments()
            .filter(|option| option.is_global_set())
            .map(|option| option.get_id().as_str())
            .collect();
        assert!(global.contains(&"timeout") && global.len() > 8, "{global:?}");
        assert_eq!(colliding(&cli, &global), Vec::<String>::new());
        let wrong = cli.clone().subcommand(Command::new("wrong").arg(Arg::new("timeout").long("timeout")));
        assert_eq!(colliding(&wrong, &global), ["wrong --timeout"]);
    }
}

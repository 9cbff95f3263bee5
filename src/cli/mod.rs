//! The command line: flags become one workflow, its events go to a reader, its end becomes an exit code.

/// Prints a line on standard output, by way of [`harmless`](crate::report::harmless).
macro_rules! say {
    ($($word:tt)*) => { $crate::report::harmless::print(&format!("{}\n", format_args!($($word)*))) };
}
/// The same on standard error.
macro_rules! tell {
    ($($word:tt)*) => { $crate::report::harmless::tell(&format!("{}\n", format_args!($($word)*))) };
}

mod bundle;
mod certs;
mod common;
mod event_log;
mod host;
mod import;
pub mod inventory;
mod lab;
mod new_file;
mod recover;
mod runbook;
mod snapshot;
mod state;
mod support;
mod verbs;

use crate::report::harmless;
use clap::{CommandFactory, Parser, Subcommand};
use common::{Common, Output};
use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

/// From bare hosts over SSH to a highly available Kubernetes control plane
#[derive(Debug, Parser)]
#[command(
    name = "hactl",
    version,
    about,
    max_term_width = 110,
    after_help = "\
Examples:
  hactl inventory init                     write a starter inventory, hactl.yaml
  hactl plan                               show what would be done, and change nothing
  hactl up                                 do it; again, and there is nothing to do
  hactl status --watch                     is everything well?
  hactl kubectl -- get nodes               through SSH, without a route to the API
  hactl lab up                             three bare hosts on this machine, to try it on

Exit codes: 0 done, 1 failed, 2 usage or bad inventory, 3 refused for safety, 4 degraded,
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
    /// Bring the hosts to what the inventory asks for: found, heal, change, renew
    #[command(
        after_help = "Examples:\n  hactl up -i lab.yaml\n  hactl up --yes              do not ask, for scripts\n  hactl up --limit cp1        change one host first, look, then change the rest\n  hactl up --prune cp4        let a host that left the inventory leave the cluster\n  hactl up --ask-sudo-password    for hosts whose sudo asks"
    )]
    Up(verbs::UpArgs),
    /// Show what `up` would do, and change nothing
    #[command(
        after_help = "Examples:\n  hactl plan\n  hactl plan --exit-code      5 when something is to be done\n  hactl plan -v               every single step\n  hactl plan --limit cp2,w1   what would be done if only these were changed"
    )]
    Plan(verbs::PlanArgs),
    /// Ask every host how the cluster is; needs neither quorum nor the API
    #[command(
        after_help = "Examples:\n  hactl status\n  hactl status --watch        until interrupted\n  hactl status -o json        4: degraded, 7: API or quorum down"
    )]
    Status(verbs::StatusArgs),
    /// Print a kubeconfig
    #[command(
        after_help = "Examples:\n  hactl kubeconfig > ~/.kube/config\n  hactl kubeconfig --break-glass    beyond RBAC, for 8 hours"
    )]
    Kubeconfig(verbs::KubeconfigArgs),
    /// Run kubectl through SSH; no route to the API is needed
    #[command(
        after_help = "Examples:\n  hactl kubectl -- get nodes -o wide\n  hactl kubectl -i lab.yaml -- logs -n kube-system -l k8s-app=kube-dns"
    )]
    Kubectl(verbs::KubectlArgs),
    /// Bring etcd back when its majority is lost, it is full or a member has other keys: says what it costs, asks, and does it
    #[command(
        after_help = "Examples:\n  hactl recover --dry-run     what is wrong, and what would be done\n  hactl recover               asks for the cluster's name first\n  hactl recover --confirm-powered-off cp2 --confirm-powered-off cp3\n                              when the others are gone for good\n  hactl recover --from cp2    take cp2's data, and not the newest\n  hactl recover --from lab-20261122T060000000Z-cp1.hactl\n                              from a recovery bundle, also onto bare hosts\n  hactl recover --undo --dry-run\n                              what going back to before the last recovery would lose\n  hactl recover --drill       would it work? with the newest bundle, and nothing live touched\n\nIt needs neither quorum nor the API. Data that is replaced is moved aside, never deleted. Cut off, the same\ncommand goes on with what was agreed to."
    )]
    Recover(recover::RecoverArgs),
    /// Take, list, verify and prune recovery bundles; the etcd hosts take theirs by themselves
    #[command(
        after_help = "Examples:\n  hactl snapshot list                     what lies on which host, and how old it is\n  hactl snapshot take                     one now, on a host whose member follows\n  hactl snapshot take --to /mnt/backup/   and fetch it\n  hactl snapshot verify                   the newest: every byte, and whether it opens\n  hactl snapshot verify --deep FILE       restore it on a host, beside what runs there\n\nA bundle is a snapshot of etcd, restored once for proof, with the cluster's keys and its inventory, sealed to the\nidentity in the state directory and to vault.recipients. Keep a copy of that identity and of the inventory\nelsewhere: with them and any bundle the whole cluster can be rebuilt."
    )]
    Snapshot(snapshot::SnapshotArgs),
    /// List certificates, issue them anew, and replace authorities and keys
    #[command(
        after_help = "Examples:\n  hactl certs list                        when each ends, and what becomes of it\n  hactl certs renew --dry-run             what issuing them anew would do\n  hactl certs renew apiserver --host cp1\n  hactl certs rotate etcd-ca --dry-run    what replacing a key that may be stolen would do\n\n`up` renews what has less than a third of its life left; `status` warns 30 days before an end."
    )]
    Certs(certs::CertsArgs),
    /// Print the disaster-recovery runbook of this cluster, also by hand without hactl
    #[command(
        after_help = "Examples:\n  hactl runbook --to runbook.md\n  hactl runbook | pandoc -o runbook.pdf\n\nPrint it again after every change of hosts. It needs neither quorum nor the API, and not even a host that answers."
    )]
    Runbook(runbook::RunbookArgs),
    /// Rebuild the state directory where it was lost
    #[command(
        after_help = "Examples:\n  hactl state pull --identity ~/lab-identity.txt    from the newest of what hosts and stores have of it"
    )]
    State(state::StateArgs),
    /// End the cluster on all hosts: a later `up` begins empty; asks for its name
    #[command(
        after_help = "Examples:\n  hactl snapshot take --to /mnt/backup/   before: bundles on the hosts go as well\n  hactl down                              data and recovery bundles are moved aside\n  hactl down --wipe                       they are deleted"
    )]
    Down(verbs::DownArgs),
    /// Gather journals, logs and states of all hosts in one archive, without secrets
    #[command(
        after_help = "Examples:\n  hactl support-bundle\n  hactl support-bundle --since 3d --to /tmp/lab.tar.zst\n  tar --zstd -xf FILE && cat hactl-support-*/README.txt\n\nIt needs neither quorum nor the API, and not even a host that answers. What cannot be had is a page that says why."
    )]
    SupportBundle(support::SupportArgs),
    /// Write and check inventories
    Inventory(inventory::InventoryArgs),
    /// Fetch, build, verify and carry bundles of components
    Bundle(bundle::BundleArgs),
    /// Bare hosts on this machine
    Lab(lab::LabArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Examples:\n  hactl completions bash > /etc/bash_completion.d/hactl\n  hactl completions zsh > ~/.zfunc/_hactl"
    )]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(after_help = "Examples:\n  hactl man | man -l -")]
    Man,
    /// The host's own side; started by hactl over SSH
    #[command(hide = true)]
    Host,
    /// Ask a DNS server for a name; run inside pods by hactl
    #[command(hide = true)]
    HostDns(host::DnsArgs),
    /// Take a recovery bundle when it is this host's turn; run by a timer on etcd hosts
    #[command(hide = true)]
    HostSnapshot,
    /// Restore this host's newest recovery bundle by itself; run by a timer where the inventory asks for it
    #[command(hide = true)]
    HostDrill,
    /// Find copies of recovery bundles in a directory; run by the host's own side, so that a dead share holds nobody else
    #[command(hide = true)]
    HostCopies(host::CopiesArgs),
    /// Renew this host's certificates by issuers that lie on it; run by a timer where the inventory asks for it
    #[command(hide = true)]
    HostRenew,
    /// Approve kubelet serving certificates; run as a unit on control-plane hosts
    #[command(hide = true)]
    HostApprove(host::ApproveArgs),
    /// Ask the members of etcd whether this host's member may vote by its data; run before etcd starts
    #[command(hide = true)]
    HostFence(host::FenceArgs),
    /// Remember how far each member of etcd is; run as a unit on etcd hosts
    #[command(hide = true)]
    HostPositions(host::PositionsArgs),
    /// Have the balancer in front of etcd send clients to a member again; run by a timer while one is passed over
    #[command(hide = true)]
    HostPassTo(host::PassToArgs),
}

/// Runs one verb and tells how it went.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // clap knows which stream and colour; its own failure to print has nowhere to be told.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let common = cli.common;
    let code = match cli.verb {
        Verb::Host => host::serve(),
        Verb::HostDns(args) => host::dns(&args),
        Verb::HostApprove(args) => host::approve(&args),
        Verb::HostSnapshot => host::snapshot(),
        Verb::HostDrill => host::drill(),
        Verb::HostCopies(args) => host::copies(&args),
        Verb::HostRenew => host::renew(),
        Verb::HostFence(args) => host::fence(&args),
        Verb::HostPositions(args) => host::positions(&args),
        Verb::HostPassTo(args) => host::pass_to(&args),
        Verb::Up(args) => verbs::up(&common, args),
        Verb::Plan(args) => verbs::plan(&common, &args),
        Verb::Status(args) => verbs::status(&common, &args),
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
            let given =
                inventory::Given { inventory: common.inventory.as_os_str(), json: common.output == Output::Json };
            inventory::run(&args, given, &mut harmless::stdout(), &mut harmless::stderr())
        }
        Verb::Bundle(args) => bundle::run(&common, args),
        Verb::Lab(args) => lab::run(&common, &args),
        Verb::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "hactl", &mut std::io::stdout());
            0
        }
        Verb::Man => manual(),
    };
    ExitCode::from(code)
}

fn manual() -> u8 {
    let mut page = Vec::new();
    let written = clap_mangen::Man::new(Cli::command()).render(&mut page);
    match written.and_then(|()| std::io::stdout().write_all(&page)) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

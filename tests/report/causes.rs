//! The error behind each kind of failure, as the program produces it: of the same type, or with the same words.

use crate::world::digest;
use hactl::component::{BundleError, CarryError, FetchError, NoRelease};
use hactl::controllers::MaintenanceError;
use hactl::execute::StepError;
use hactl::kube::KubeError;
use hactl::report::{ConnectKind, FailureKind, FetchKind, MaintenanceKind};
use hactl::statedir::StateDirError;
use hactl::transport::{Barrier, Expired, HostError, SudoTrouble};
use hactl::workflow::Failure;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

const INVENTORY: &str = include_str!("../../inventories/minimal.yaml");
const STORE: &str = "/home/anna/.cache/hactl/bundles";
const KUBELET: &str = "https://dl.k8s.io/release/v1.36.3/bin/linux/amd64/kubelet";
/// A file of `hactl bundle export`.
const EXPORTED: &str = "/media/stick/k8s.hactl";

// Error numbers of Linux.
const EACCES: i32 = 13;
const ENOSPC: i32 = 28;

/// An error of this kind.
pub fn of(kind: &FailureKind) -> Box<dyn Error> {
    match kind {
        // Two bundles are in the store, and `hactl bundle export` names none.
        FailureKind::Usage => Box::new(BundleError::Which { there: vec!["1.35.4".into(), "1.36.3".into()] }),
        FailureKind::Inventory => {
            let text = INVENTORY.replace("cluster: minimal", "cluster: Lab");
            Box::new(hactl::inventory::parse(&text, Path::new(".")).expect_err("a capital letter"))
        }
        FailureKind::Refused(refusal) => Box::new(refusal.clone()),
        FailureKind::Connect { kind, .. } => Box::new(connect(*kind)),
        FailureKind::Step { rolled_back: true, .. } => {
            let what = "kube-apiserver has exited 2 times with its new manifest".into();
            Box::new(StepError::RolledBack { what, tail: Vec::new() })
        }
        FailureKind::Step { .. } => {
            Box::new(StepError::Failed { what: "containerd.service ends again and again".into(), tail: Vec::new() })
        }
        FailureKind::Bundle => Box::new(BundleError::Damaged {
            path: in_store(&format!("blobs/sha256/{}.zst", digest(1).hex())),
            component: "kubelet 1.36.3".into(),
            why: "its digest has changed since the build".into(),
        }),
        FailureKind::Fetch(kind) => Box::new(fetch(*kind)),
        FailureKind::Maintenance(kind) => Box::new(maintenance(*kind)),
        FailureKind::State => Box::new(StateDirError::Io {
            doing: "open",
            path: "/home/anna/lab/.hactl/lab/cluster".into(),
            source: io::Error::from_raw_os_error(EACCES),
        }),
        // The command line replaces the error of an interrupt with these words.
        FailureKind::Interrupted => "12 steps are done, 30 were not started".into(),
        FailureKind::Output => Box::new(io::Error::from_raw_os_error(ENOSPC)),
        FailureKind::Other => Box::new(Failure::Local {
            what: "could not run /usr/local/bin/kubectl".into(),
            source: io::Error::from_raw_os_error(EACCES),
        }),
    }
}

/// The error of a connection to cp2 as the user `ops`.
fn connect(kind: ConnectKind) -> HostError {
    let address = || "10.0.0.12:22".to_owned();
    let key = || "ssh-ed25519 SHA256:mVPwvezndPv/ARoIadVY98vAC0g+P/5633yTC4d/wXE".to_owned();
    match kind {
        ConnectKind::Unreachable => {
            HostError::Unreachable { address: address(), barrier: Barrier::TimedOut, said: "10s".into() }
        }
        ConnectKind::UnknownKey => HostError::UnknownKey {
            address: address(),
            key: key(),
            notes: Vec::new(),
            file: "/home/anna/.ssh/known_hosts".into(),
        },
        ConnectKind::ChangedKey => HostError::KeyChanged {
            address: address(),
            key: key(),
            expected: "ssh-ed25519 SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8".into(),
            on_record: "/home/anna/.ssh/known_hosts:7".into(),
        },
        ConnectKind::RevokedKey => {
            HostError::KeyRevoked { address: address(), key: key(), on_record: "/home/anna/.ssh/known_hosts:7".into() }
        }
        ConnectKind::Login => HostError::AuthFailed {
            address: address(),
            user: "ops".into(),
            tried: vec![format!("/home/anna/.ssh/id_ed25519 ({})", key())],
            accepted: vec!["publickey".into()],
        },
        ConnectKind::Expired => HostError::Expired {
            user: "ops".into(),
            what: Expired::Password,
            said: "WARNING: Your password has expired. Password change required but no TTY available.".into(),
        },
        ConnectKind::Root => HostError::NoSudo {
            user: "ops".into(),
            trouble: SudoTrouble::Queries,
            said: "sudo: a password is required".into(),
        },
        ConnectKind::Lost => HostError::Lost { why: "the host stopped answering".into() },
        // The words of templates/bootstrap.sh, followed by its standard error.
        ConnectKind::Helper => HostError::BootstrapFailed {
            output: "cannot make the directory /var/lib/hactl/bin mkdir: cannot create directory '/var/lib/hactl': \
                     Read-only file system"
                .into(),
        },
    }
}

/// The error of `hactl maintain`.
fn maintenance(kind: MaintenanceKind) -> MaintenanceError {
    let node = || "w3".parse().expect("a name");
    match kind {
        MaintenanceKind::NotServed => MaintenanceError::NotServed,
        MaintenanceKind::NoSuch => MaintenanceError::None("w3".into()),
        MaintenanceKind::NoNode => MaintenanceError::NoNode(node()),
        MaintenanceKind::OtherNode => MaintenanceError::OtherNode { name: "disk".into(), node: node() },
        MaintenanceKind::Balancer => MaintenanceError::Balancer("lb1".parse().expect("a name")),
        MaintenanceKind::NotSpared => MaintenanceError::NotSpared(
            "the control plane cannot spare cp3 now: cp2 is in maintenance or cordoned, and of its 3 hosts one at a time may be \
             away"
                .into(),
        ),
        MaintenanceKind::Held => MaintenanceError::Held { node: node(), by: "anna@laptop, pid 4711".into() },
        MaintenanceKind::NotRestored => MaintenanceError::NotRestored(node()),
        MaintenanceKind::NoGuard => MaintenanceError::NoGuard,
        MaintenanceKind::NotReady => MaintenanceError::NotReady(node()),
        MaintenanceKind::NotOff => MaintenanceError::NotOff(node()),
        MaintenanceKind::NoNodeAgent => MaintenanceError::NoNodeAgent,
        MaintenanceKind::StaticPodsHeld => MaintenanceError::StaticPodsHeld(node()),
        MaintenanceKind::WouldLose => MaintenanceError::WouldLose(
            "1 pod on w3 would be lost, because no controller recreates them elsewhere: shop/by-hand; delete them, or \
             create them with a Deployment, then run the same command again"
                .into(),
        ),
        MaintenanceKind::GaveUp => MaintenanceError::GaveUp(
            "1 pod did not leave w3 within 7200 s: shop/db-1 (PodDisruptionBudget shop/db never allows an eviction: 2 \
             of its 2 must be healthy)"
                .into(),
        ),
        MaintenanceKind::Contested => MaintenanceError::Contested(node()),
        MaintenanceKind::NoneSelected => MaintenanceError::NoneSelected,
        MaintenanceKind::NoRollout => MaintenanceError::NoRollout("kernel".to_owned()),
        MaintenanceKind::CalledOff => MaintenanceError::CalledOff("kernel".to_owned()),
        MaintenanceKind::OtherWork => {
            MaintenanceError::OtherWork { name: "w3".to_owned(), node: node(), why: ": replace sdb".to_owned() }
        }
        MaintenanceKind::OfRollout => MaintenanceError::OfRollout { node: node(), rollout: "kernel".to_owned() },
        MaintenanceKind::RolloutExists => MaintenanceError::RolloutExists("kernel".to_owned()),
        MaintenanceKind::NotGated => MaintenanceError::NotGated("the maintenance of w3".to_owned()),
        MaintenanceKind::ApprovesEach => MaintenanceError::ApprovesEach("kernel".to_owned()),
        MaintenanceKind::Several => {
            MaintenanceError::Several { node: node(), names: vec!["disk".to_owned(), "kernel-w3".to_owned()] }
        }
        MaintenanceKind::Recovered => MaintenanceError::Recovered,
        MaintenanceKind::IsRollout => MaintenanceError::IsRollout("kernel".to_owned()),
        MaintenanceKind::Stopped => {
            let why = "w1 failed, and 0 may".to_owned();
            MaintenanceError::Stopped { name: "kernel".to_owned(), why }
        }
        MaintenanceKind::Down => MaintenanceError::Api(KubeError::Unreachable {
            what: "reach the API of cp1".into(),
            why: "Connection refused (os error 111)".into(),
        }),
        MaintenanceKind::Refused => MaintenanceError::Api(KubeError::Refused {
            what: "change NodeMaintenance w3".into(),
            status: 422,
            reason: "Invalid".into(),
            message: "spec.stage: stage cannot go from Drain to Cordon: the order is Idle, Cordon, Drain, Complete"
                .into(),
        }),
    }
}

/// The error of `hactl bundle build`, `export` or `import`.
fn fetch(kind: FetchKind) -> BundleError {
    let url = || KUBELET.to_owned();
    let checksum = || format!("{KUBELET}.sha256");
    let from = || EXPORTED.to_owned();
    match kind {
        FetchKind::NoRelease => {
            let known = ["1.34", "1.35", "1.36"].map(str::to_owned).into();
            FetchError::from(NoRelease::NoSet { wanted: "1.29.4".into(), known }).into()
        }
        FetchKind::Name => {
            let why = "failed to lookup address information: Name or service not known".into();
            FetchError::Name { url: checksum(), why }.into()
        }
        FetchKind::Trust => {
            FetchError::Tls { url: checksum(), why: "invalid peer certificate: UnknownIssuer".into() }.into()
        }
        FetchKind::Unreachable => {
            let why = "Connection refused (os error 111)".into();
            FetchError::Unreachable { url: checksum(), attempts: 5, why }.into()
        }
        FetchKind::NotFound => {
            let url = checksum().replace("1.36.3", "1.36.99");
            FetchError::NotFound { url, what: "kubelet 1.36.99".into() }.into()
        }
        FetchKind::Denied => {
            let url = "ghcr.io/flannel-io/flannel:v0.28.4".into();
            FetchError::Denied { url, status: 401, why: "no message".into() }.into()
        }
        FetchKind::Unwell => {
            let (have, of) = (20_971_520, Some(60_096_676));
            FetchError::Cut { url: url(), attempts: 5, have, of, why: "the answer ended early".into() }.into()
        }
        FetchKind::Checksum => {
            let (expected, found) = (digest(1).hex(), digest(2).hex());
            FetchError::Checksum { url: url(), by: checksum(), expected, found }.into()
        }
        FetchKind::Moved => FetchError::Moved {
            what: url(),
            locked: digest(1).hex(),
            published: digest(2).hex(),
            by: checksum(),
            lock: in_store("sources.lock.json"),
        }
        .into(),
        FetchKind::NotUnderstood => {
            FetchError::NotUnderstood { url: checksum(), why: "it has no SHA-256 of kubelet".into() }.into()
        }
        FetchKind::Full => BundleError::Io {
            doing: "write",
            path: in_store(&format!("downloads/{}.part", digest(1).hex())),
            source: io::Error::from_raw_os_error(ENOSPC),
        },
        FetchKind::Busy => BundleError::Busy(in_store("downloads")),
        FetchKind::NotABundle => {
            CarryError::NotABundle { from: from(), why: "it does not start like one".into() }.into()
        }
        FetchKind::CutShort => {
            CarryError::CutShort { from: from(), at: 104_857_600, within: "kubelet 1.36.3".into() }.into()
        }
        FetchKind::Tampered => {
            CarryError::Tampered { from: from(), why: "kubelet 1.36.3 does not match its digest".into() }.into()
        }
        FetchKind::Different => {
            let (there, coming) = (digest(1).hex(), digest(2).hex());
            CarryError::Different { bundle: "k8s-1.36.3".into(), there, coming, from: from() }.into()
        }
    }
}

fn in_store(path: &str) -> PathBuf {
    Path::new(STORE).join(path)
}

//! What can happen to the two hosts, and random stories made of it. A story starts with bare hosts, prepared hosts or a
//! running member, so that short stories reach late states. Everything here shrinks.

use crate::fixture;
use crate::tamper::{self, Tamper};
use hactl::model::target::FileSet;
use proptest::collection::vec;
use proptest::prelude::*;

/// How a delivery goes.
#[derive(Debug, Clone, Copy)]
pub enum How {
    Whole,
    /// The channel closes after this many 256ths of the remaining bytes; the next run resumes there.
    CutOff(u8),
    /// One byte differs on arrival.
    Damaged,
}

/// How a member is to start.
#[derive(Debug, Clone, Copy)]
pub enum InitialClusterState {
    /// With one of two tokens.
    New(u8),
    Existing,
    Restart,
}

/// The epoch of an operation that comes too late.
#[derive(Debug, Clone, Copy)]
pub enum Stale {
    Never,
    Earlier,
}

/// One thing that happens.
#[derive(Debug, Clone)]
pub enum Act {
    ClusterId,
    Prepare,
    Deliver {
        part: &'static str,
        how: How,
    },
    /// The files of a set whose bit is set in `which`.
    Configure {
        set: FileSet,
        which: u8,
    },
    /// The same, but a check rejects the last of them.
    Rejected {
        set: FileSet,
        which: u8,
    },
    /// The leaf certificates whose bit is set.
    Certify(u8),
    /// A run that is killed after the keys were made, before the certificates are installed.
    KeysOnly(u8),
    /// A certificate for a key that was made elsewhere.
    WrongCert(u8),
    Start(InitialClusterState),
    ArchiveData,
    /// The archiving itself, while etcd runs on the data.
    ArchiveDataUnderEtcd,
    MarkBootstrapped,
    Wipe {
        delete: bool,
    },
    /// The run ends, and another one takes the lock.
    NextRun,
    /// A second run asks for the lock, and a late one asks for changes.
    Late(Stale),
    /// The inventory changes: the target has other files and certificates.
    Release,
    Tamper(Tamper),
}

/// The state in which a story starts.
#[derive(Debug, Clone, Copy)]
pub enum Start {
    Bare,
    Prepared,
    Member,
}

/// The acts that lead to that state; they are compared like all others.
pub fn opening(start: Start) -> Vec<Act> {
    let prepared = vec![Act::ClusterId, Act::Prepare];
    match start {
        Start::Bare => vec![],
        Start::Prepared => prepared,
        Start::Member => {
            let files = [FileSet::Trust, FileSet::Etcd].map(|set| Act::Configure { set, which: 0xff });
            let etcd = Act::Deliver { part: "etcd", how: How::Whole };
            let last = [etcd, Act::Certify(0xff), Act::Start(InitialClusterState::New(0))];
            prepared.into_iter().chain(files).chain(last).collect()
        }
    }
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![3 => Just(How::Whole), 2 => any::<u8>().prop_map(How::CutOff), 1 => Just(How::Damaged)]
}

fn state() -> impl Strategy<Value = InitialClusterState> {
    prop_oneof![3 => (0..2_u8).prop_map(InitialClusterState::New), 2 => Just(InitialClusterState::Existing), 1 => Just(InitialClusterState::Restart)]
}

/// Acts on one subject: such stories find what needs several steps in a row.
fn files() -> BoxedStrategy<Act> {
    // The first files of the target are those of the first sets.
    let set = || prop::sample::select(fixture::sets()[..3].to_vec());
    let file = || 0..4_u8;
    prop_oneof![
        5 => (set(), 0..4_u8).prop_map(|(set, which)| Act::Configure { set, which }),
        1 => (set(), 0..4_u8).prop_map(|(set, which)| Act::Rejected { set, which }),
        2 => file().prop_map(|n| Act::Tamper(Tamper::FileEdited(n))),
        2 => file().prop_map(|n| Act::Tamper(Tamper::FileMode(n))),
        1 => file().prop_map(|n| Act::Tamper(Tamper::FileGone(n))),
        1 => Just(Act::Release),
        2 => Just(Act::ClusterId),
        1 => Just(Act::Tamper(Tamper::ClusterIdOfAnother)),
        1 => Just(Act::Tamper(Tamper::ClusterIdGone)),
    ]
    .boxed()
}

fn member() -> BoxedStrategy<Act> {
    prop_oneof![
        6 => state().prop_map(Act::Start),
        3 => Just(Act::MarkBootstrapped),
        2 => Just(Act::ArchiveData),
        1 => Just(Act::ArchiveDataUnderEtcd),
        1 => any::<bool>().prop_map(|delete| Act::Wipe { delete }),
        6 => tamper::data().prop_map(Act::Tamper),
    ]
    .boxed()
}

fn parts() -> BoxedStrategy<Act> {
    // One program and one image: the same part is delivered and harmed again and again.
    let part = || prop::sample::select(vec![fixture::LINKED, "kube-apiserver"]);
    prop_oneof![
        5 => (part(), how()).prop_map(|(part, how)| Act::Deliver { part, how }),
        1 => part().prop_map(|part| Act::Tamper(Tamper::PartFlipped(part))),
        1 => part().prop_map(|part| Act::Tamper(Tamper::PartMode(part))),
        1 => part().prop_map(|part| Act::Tamper(Tamper::PartGone(part))),
        1 => Just(Act::Tamper(Tamper::LinkGone)),
        1 => Just(Act::Wipe { delete: true }),
        1 => Just(Act::ClusterId),
        1 => Just(Act::Prepare),
    ]
    .boxed()
}

fn anything() -> BoxedStrategy<Act> {
    let which = any::<u8>;
    prop_oneof![
        2 => Just(Act::Prepare),
        4 => which().prop_map(Act::Certify),
        1 => which().prop_map(Act::KeysOnly),
        1 => which().prop_map(Act::WrongCert),
        1 => Just(Act::NextRun),
        1 => prop::sample::select(vec![Stale::Never, Stale::Earlier]).prop_map(Act::Late),
        3 => files(),
        3 => member(),
        2 => parts(),
        8 => tamper::tamper().prop_map(Act::Tamper),
    ]
    .boxed()
}

/// A whole story.
pub fn story() -> impl Strategy<Value = Vec<Act>> {
    let start = prop_oneof![1 => Just(Start::Bare), 3 => Just(Start::Prepared), 3 => Just(Start::Member)];
    let acts = prop_oneof![
        2 => vec(files(), 1..14),
        4 => vec(member(), 1..14),
        1 => vec(parts(), 1..14),
        3 => vec(anything(), 1..14),
    ];
    (start, acts).prop_map(|(start, acts)| opening(start).into_iter().chain(acts).collect())
}

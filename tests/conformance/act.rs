//! What can happen to the two hosts, and random stories made of it. A story begins bare, prepared, or with a member that
//! runs, so that short stories reach what lies deep. Everything here shrinks.

use crate::fixture;
use crate::tamper::{self, Tamper};
use hactl::model::target::FileSet;
use proptest::collection::vec;
use proptest::prelude::*;

/// How a delivery goes.
#[derive(Debug, Clone, Copy)]
pub enum How {
    Whole,
    /// The channel closes after so many 256ths of what was still to come; the next run goes on from there.
    CutOff(u8),
    /// One byte is another one on arrival.
    Damaged,
}

/// How a member is told to start.
#[derive(Debug, Clone, Copy)]
pub enum InitialClusterState {
    /// With one of two tokens.
    New(u8),
    Existing,
    Restart,
}

/// Whose epoch an operation carries that comes too late.
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
    /// The same, and a check does not accept the last of them.
    Rejected {
        set: FileSet,
        which: u8,
    },
    /// The leaves whose bit is set.
    Certify(u8),
    /// A run that is killed between the two halves of certifying.
    KeysOnly(u8),
    /// A certificate for a key that was made elsewhere.
    WrongCert(u8),
    Start(InitialClusterState),
    ArchiveData,
    /// The second half of moving aside, while etcd runs on the data.
    MoveAsideUnderEtcd,
    Seal,
    Wipe {
        delete: bool,
    },
    /// The run ends, another takes the lock.
    NextRun,
    /// A second run asks for the lock, and a late one for changes.
    Late(Stale),
    /// The inventory changes: files and certificates should be others.
    Release,
    Tamper(Tamper),
}

/// What has happened before a story begins.
#[derive(Debug, Clone, Copy)]
pub enum Start {
    Bare,
    Prepared,
    Member,
}

/// The acts that bring both hosts there; they are compared like all others.
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

/// About one subject: stories that stay with it find what needs several steps in a row.
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
        1 => Just(Act::Tamper(Tamper::StampOfAnother)),
        1 => Just(Act::Tamper(Tamper::StampGone)),
    ]
    .boxed()
}

fn member() -> BoxedStrategy<Act> {
    prop_oneof![
        6 => state().prop_map(Act::Start),
        3 => Just(Act::Seal),
        2 => Just(Act::ArchiveData),
        1 => Just(Act::MoveAsideUnderEtcd),
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

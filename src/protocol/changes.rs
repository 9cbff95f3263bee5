//! Which operations change a host: the others do not need the lock of the run.
//!
//! In: an operation. Out: whether it requires the lock. The match is exhaustive, so that a new operation must be
//! classified.

use super::Op;

/// Whether an operation changes the host, and so requires the lock.
pub fn changes(op: &Op) -> bool {
    match op {
        Op::Lock { .. }
        | Op::Unlock
        | Op::Observe(_)
        | Op::ReadFiles { .. }
        | Op::EtcdHash { .. }
        | Op::WhoHas { .. }
        | Op::Survey { .. }
        | Op::Dial { .. }
        | Op::Meet(_)
        | Op::Await { .. }
        | Op::Relay { .. }
        | Op::Gather(_)
        // These change nothing that a run would observe.
        | Op::Balance { .. }
        | Op::SaveBundle
        | Op::NewestBundle
        | Op::ReadBundle { .. }
        | Op::Copies(_)
        | Op::PruneBundles
        | Op::Boot
        // It takes the lock itself.
        | Op::Reboot { .. }
        // A guard must be stopped at once, also while a run has the lock.
        | Op::Guard(_)
        | Op::Blame { .. } => false,
        Op::WriteClusterId(_)
        | Op::Prepare(_)
        | Op::InstallPackages { .. }
        | Op::Deliver(_)
        | Op::DeliverSnapshot { .. }
        | Op::Import(_)
        | Op::WriteFiles { .. }
        | Op::RollBack { .. }
        | Op::Accept { .. }
        | Op::MakeKeys { .. }
        | Op::InstallCerts { .. }
        | Op::RunUnit { .. }
        | Op::StopUnits { .. }
        | Op::StartMember(_)
        | Op::ArchiveData(_)
        | Op::Halt { .. }
        | Op::EndPods { .. }
        | Op::EndHungApiServer { .. }
        | Op::TakeSnapshot(_)
        | Op::ReadSnapshot { .. }
        | Op::Restore(_)
        | Op::Rehearse { .. }
        | Op::Seal { .. }
        | Op::ChangeMembers { .. }
        | Op::Defragment { .. }
        | Op::MakeRoom { .. }
        | Op::Wipe(_)
        | Op::Hosting(_)
        | Op::Sweep(_) => true,
    }
}

//! Dispatches an operation to its implementation.
//!
//! In: an [`Op`] that does not belong to the session. Out: its [`Reply`], or the fault to answer with. One exhaustive
//! match.

use super::backup::{bundles, copies};
use super::etcd::{balancer, defragment, member, recover, restore, survey};
use super::machine::{files, packages, prepare, previous, units, wipe};
use super::observe::{gather, reach, wait};
use super::op_error::Outcome;
use super::parts::blob::Blob;
use super::parts::{self, images};
use super::pki::keys as pki;
use super::{host::Host, hosting, observe, op_error, reboot, repair};
use crate::protocol::{MemberChange, Op, OpError, Reply};
use std::time::Duration;

/// Performs one operation on the host; `blob` is the blob that follows a [`Op::Deliver`].
pub(super) async fn perform(host: &Host, op: Op, blob: &mut Blob<'_>) -> Outcome<Reply> {
    let done = |()| Reply::Done;
    match op {
        Op::Lock { .. } | Op::Unlock | Op::Relay { .. } => Err(op_error::bad("this operation belongs to the session")),
        Op::Observe(ask) => Ok(Reply::Facts(Box::new(Box::pin(observe::observe(host, *ask)).await?))),
        Op::ReadFiles { paths } => files::texts(host, paths).await.map(Reply::Texts),
        Op::EtcdHash { etcd, revision } => member::hash(host, &etcd, revision).await,
        Op::WhoHas { address } => observe::neighbour::owner(host, address).await.map(Reply::Owner),
        Op::Survey { etcd_dir, address, places } => {
            survey::survey(host, etcd_dir, address, places).await.map(|s| Reply::Surveyed(Box::new(s)))
        }
        Op::Dial { registries } => reach::dial(host, registries).await.map(Reply::Dialled),
        Op::Meet(meeting) => reach::meet(host, meeting).await.map(|(received, probed)| Reply::Met { received, probed }),
        Op::WriteClusterId(cluster_id) => files::write_cluster_id(host, cluster_id).await.map(done),
        Op::Prepare(preparation) => prepare::prepare(host, preparation).await.map(done),
        Op::InstallPackages { packages, from } => packages::install(host, &packages, &from).await.map(done),
        Op::Deliver(part) => parts::deliver(host, parts::Item::part(&part)?, blob).await.map(done),
        Op::DeliverSnapshot { snapshot, to } => parts::deliver_snapshot(host, snapshot, to, blob).await.map(done),
        Op::Import(part) => images::import(host, &part).await.map(done),
        Op::WriteFiles { files, remove, keep } => files::write(host, files, remove, keep).await.map(done),
        Op::RollBack { sets } => previous::put_back(host, sets).await.map(done),
        Op::Accept { sets } => previous::accept(host, sets).await.map(done),
        Op::MakeKeys { leaves } => pki::make_keys(host, leaves).await.map(Reply::Requests),
        Op::InstallCerts { certs } => pki::install(host, certs).await.map(done),
        Op::Blame { unit } => Err(units::blame(&unit, crate::protocol::OpErrorKind::Failed, "does not stay up").await),
        Op::RunUnit { unit, how, no_wait } => repair::run_unit(host, &unit, how, no_wait).await.map(done),
        Op::Balance { unit, how } => balancer::balance(host, &unit, how).await.map(done),
        Op::StopUnits { units } => units::stop(host, &units).await.map(done),
        Op::StartMember(start) => member::start(host, start).await.map(done),
        Op::ArchiveData(etcd) => member::move_aside(host, etcd).await.map(done),
        Op::Halt { unless_serving, units, programs } => {
            if let Some(etcd) = unless_serving {
                member::must_not_serve(host, &etcd, Duration::ZERO).await?;
            }
            recover::halt(host, &units, &programs).await.map(done)
        }
        Op::EndPods { manifests } => wipe::end_pods(host, &manifests).await.map(done),
        Op::EndHungApiServer { address, port } => repair::end_hung_api_server(host, (address, port)).await.map(done),
        Op::TakeSnapshot(ask) => recover::take(host, ask).await.map(Reply::Taken),
        Op::ReadSnapshot { recovery, from } => recover::read(host, recovery, from).await.map(Reply::Bytes),
        Op::Restore(ask) => restore::restore(host, *ask).await.map(done),
        Op::SaveBundle => match Box::pin(bundles::take(host, bundles::Occasion::Asked)).await? {
            Some(taken) => Ok(Reply::Saved(taken)),
            None => Err(op_error::failed("no snapshot was taken although one was requested")),
        },
        Op::NewestBundle => host.root.blocking(bundles::newest_fact).await.map(Reply::Newest),
        Op::ReadBundle { name, from } => bundles::read(host, name, from).await.map(Reply::Bytes),
        Op::Copies(ask) => copies::copies(host, ask).await,
        Op::PruneBundles => bundles::prune(host).await.map(Reply::Lines),
        Op::Rehearse { snapshot, drill } => Box::pin(bundles::rehearse(host, snapshot, drill)).await.map(Reply::Proved),
        Op::Seal { data_dir, cluster } => {
            member::seal(host, data_dir, cluster).await?;
            host.root.blocking(recover::let_go).await.map(done)
        }
        Op::ChangeMembers { etcd, change } => {
            host.waits(match &change {
                MemberChange::Remove(peer) => format!("etcd to remove the member {peer}"),
                MemberChange::AddLearner(peer) => format!("etcd to add the learner {peer}"),
                MemberChange::Promote(peer) => format!("{peer} to catch up"),
                MemberChange::Move(from, to) => format!("etcd to list {from} as {to}"),
                MemberChange::Lead(peer) => format!("{peer} to become the leader"),
            });
            member::change(host, &etcd, change).await.map(done)
        }
        Op::Defragment { unit, data_dir } => defragment::defragment(host, &unit, &data_dir).await.map(done),
        Op::MakeRoom { etcd, room } => member::make_room(host, &etcd, room).await.map(done),
        Op::Await { condition, within_ms } => {
            wait::wait(host, &condition, Duration::from_millis(within_ms)).await.map(done)
        }
        Op::Wipe(ask) => wipe::wipe(host, ask).await.map(done),
        Op::Sweep(what) => wipe::sweep(host, what).await.map(done),
        Op::Gather(ask) => gather::gather(host, ask).await.map(Reply::Pages),
        Op::Guard(ask) => repair::obey(host, ask).await.map(done),
        Op::Hosting(ask) => hosting::obey(host, ask).await.map(done),
        Op::Boot => reboot::boot().map(Reply::Boot),
        Op::Reboot { boot } => reboot::end(&host.root, &boot).await.map(done),
    }
}

/// The fault for a panic: it is a bug of hactl, and the channel must not be affected further.
pub(super) fn panicked(cause: &(dyn std::any::Any + Send)) -> OpError {
    let text =
        cause.downcast_ref::<&str>().map(ToString::to_string).or_else(|| cause.downcast_ref::<String>().cloned());
    op_error::failed(format!(
        "hactl itself failed on this host: {}",
        text.unwrap_or_else(|| "a panic without a message".to_owned())
    ))
}

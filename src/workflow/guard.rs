//! `hactl guard`: the reports of all guards, over SSH.
//!
//! In: a session. Out: [`Guards`], in which hosts that do not answer are unknown. It needs neither quorum nor the API,
//! nor state or a bundle of components, and asks the hosts for nothing else.

use super::Session;
use crate::model::desired::Host;
use crate::model::facts::{HostFacts, Unreachable};
use crate::model::guards::Guards;
use crate::model::healing::is_guarded;
use crate::protocol::{ObserveAsk, Op, Reply};
use crate::transport::Payload;
use futures::StreamExt as _;
use std::time::Duration;

/// Timeout of a host, which reads one file.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The guards, if the inventory asks for them.
pub async fn guards(session: &Session) -> Option<Guards> {
    let guarded = session.desired.hosts.iter().filter(|host| is_guarded(&session.desired, host));
    let asked = guarded.map(async |host| (host.name.clone(), of_host(session, host).await));
    let asked = futures::stream::iter(asked.collect::<Vec<_>>()).buffered(session.at_once.max(1));
    Guards::of(&session.desired, &asked.collect().await)
}

async fn of_host(session: &Session, host: &Host) -> Result<HostFacts, Unreachable> {
    let Some(machine) = session.machines.get(&host.name) else {
        let unknown = Unreachable { why: "there is no connection to it".to_owned(), hint: None };
        return Err(session.unreachable.get(&host.name).cloned().unwrap_or(unknown));
    };
    let ask = ObserveAsk { guard: true, ..ObserveAsk::default() };
    match machine.call(Op::Observe(Box::new(ask)), Payload::None, TIMEOUT, &|_| {}).await {
        Ok(Reply::Facts(facts)) => Ok(*facts),
        Ok(_) => Err(Unreachable { why: "it sent an unexpected reply".to_owned(), hint: None }),
        Err(error) => Err(error.unreachable()),
    }
}

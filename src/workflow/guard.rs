//! `hactl guard`: the reports of all guards and their records of repairs, over SSH; and what a person wants of them.
//!
//! In: a session. Out: [`Guards`], in which hosts that do not answer are unknown; records; which hosts have received a
//! wish. It needs neither quorum nor the API, nor state or a bundle of components, nor the lock of any host.

use super::Session;
use crate::model::desired::Host;
use crate::model::facts::Unreachable;
use crate::model::guards::Guards;
use crate::model::healing::is_guarded;
use crate::model::names::HostName;
use crate::model::repair::{MOST_RECORDS, RECORDS, RepairRecord};
use crate::protocol::{GuardAsk, ObserveAsk, Op, Reply};
use std::time::Duration;

/// Timeout of a host, which reads one file.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The hosts with guards.
fn guarded(session: &Session) -> impl Iterator<Item = &Host> {
    session.desired.hosts.iter().filter(|host| is_guarded(&session.desired, host))
}

/// The guards, if the inventory asks for them.
pub async fn guards(session: &Session) -> Option<Guards> {
    let ask = || ObserveAsk { guard: true, ..ObserveAsk::default() };
    let answers = session.each(guarded(session), async |host| session.observe(&host.name, ask(), TIMEOUT).await).await;
    Guards::of(&session.desired, &answers.into_iter().collect())
}

/// The result of each host.
pub type OfHosts<T> = Vec<(HostName, Result<T, Unreachable>)>;

/// Brings a person's wish to the guards of these hosts, or of all if none is named.
pub async fn wish(session: &Session, hosts: &[HostName], ask: &GuardAsk) -> OfHosts<()> {
    let wanted = guarded(session).filter(|host| hosts.is_empty() || hosts.contains(&host.name));
    let done = |reply| matches!(reply, Reply::Done).then_some(());
    session.each(wanted, async |host| session.ask(&host.name, Op::Guard(ask.clone()), TIMEOUT, done).await).await
}

/// The records of repairs of all hosts, each the newest last. Lines that cannot be read are left out.
pub async fn repairs(session: &Session) -> OfHosts<Vec<RepairRecord>> {
    let read = |reply| match reply {
        Reply::Texts(texts) => {
            let lines = texts.get(RECORDS).map(|text| text.lines().collect::<Vec<_>>()).unwrap_or_default();
            let read = lines.iter().take(MOST_RECORDS).filter_map(|line| serde_json::from_str(line).ok());
            Some(read.map(RepairRecord::in_one_line).collect())
        }
        _ => None,
    };
    let op = || Op::ReadFiles { paths: vec![RECORDS.to_owned()] };
    session.each(guarded(session), async |host| session.ask(&host.name, op(), TIMEOUT, read).await).await
}

//! `hactl guard`: the reports of all guards and their records of repairs, over SSH; and what a person wants of them.
//!
//! In: a session. Out: [`Guards`], in which hosts that do not answer are unknown; records; which hosts have received a
//! wish. It needs neither quorum nor the API, nor state or a bundle of components, nor the lock of any host.

use super::Session;
use crate::model::facts::Unreachable;
use crate::model::guards::Guards;
use crate::model::healing::is_guarded;
use crate::model::names::HostName;
use crate::model::repair::{MOST_RECORDS, RECORDS, RepairRecord};
use crate::protocol::{GuardAsk, ObserveAsk, Op, Reply};
use futures::StreamExt as _;
use std::collections::BTreeMap;
use std::time::Duration;

/// Timeout of a host, which reads one file.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The guards, if the inventory asks for them.
pub async fn guards(session: &Session) -> Option<Guards> {
    let guarded = session.desired.hosts.iter().filter(|host| is_guarded(&session.desired, host));
    let ask = || ObserveAsk { guard: true, ..ObserveAsk::default() };
    let asked = guarded.map(async |host| (host.name.clone(), session.observe(&host.name, ask(), TIMEOUT).await));
    let asked = futures::stream::iter(asked.collect::<Vec<_>>()).buffered(session.at_once.max(1));
    Guards::of(&session.desired, &asked.collect().await)
}

/// The result of each host.
pub type OfHosts<T> = BTreeMap<HostName, Result<T, Unreachable>>;

/// Asks each of these hosts for one operation.
async fn each<T>(session: &Session, hosts: &[HostName], op: &Op, read: fn(Reply) -> Option<T>) -> OfHosts<T> {
    let asked = hosts.iter().map(async |host| (host.clone(), session.ask(host, op.clone(), TIMEOUT, read).await));
    futures::stream::iter(asked.collect::<Vec<_>>()).buffered(session.at_once.max(1)).collect().await
}

/// The hosts with guards.
pub fn guarded(session: &Session) -> Vec<HostName> {
    let all = session.desired.hosts.iter().filter(|host| is_guarded(&session.desired, host));
    all.map(|host| host.name.clone()).collect()
}

/// Brings a person's wish to the guards of these hosts.
pub async fn wish(session: &Session, hosts: &[HostName], ask: &GuardAsk) -> OfHosts<()> {
    each(session, hosts, &Op::Guard(ask.clone()), |reply| matches!(reply, Reply::Done).then_some(())).await
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
    each(session, &guarded(session), &Op::ReadFiles { paths: vec![RECORDS.to_owned()] }, read).await
}

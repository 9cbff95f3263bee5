//! `hactl guard`: the reports of all guards, over SSH.
//!
//! In: a session. Out: [`Guards`], in which hosts that do not answer are unknown. It needs neither quorum nor the API,
//! nor state or a bundle of components, and asks the hosts for nothing else.

use super::Session;
use crate::model::guards::Guards;
use crate::model::healing::is_guarded;
use crate::protocol::ObserveAsk;
use futures::StreamExt as _;
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

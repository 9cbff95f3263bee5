//! The alarms that a member knows, from its status: unlike the list of alarms, it needs no quorum.
//!
//! In: the access to the member. Out: each alarm with its member.

use super::{Access, EtcdError, ask};
use std::time::Duration;

/// An alarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// The member that it concerns.
    pub member: u64,
    /// Whether that is the member which was asked. Member 0 stands for an unknown one.
    pub own: bool,
    /// Its name, such as `NOSPACE`.
    pub name: String,
}

/// The alarms that the member knows.
///
/// # Errors
/// It does not answer.
pub async fn alarms(access: &Access, within: Duration) -> Result<Vec<Alarm>, EtcdError> {
    let mut link = access.connect(within).await?;
    let status = ask("report its status", within, link.0.status()).await?;
    let own = status.header().map_or(0, etcd_client::ResponseHeader::member_id);
    Ok(status.errors().iter().filter_map(|text| alarm(text, own)).collect())
}

/// An alarm as the status has it: `memberID:123 alarm:NOSPACE `.
fn alarm(text: &str, own: u64) -> Option<Alarm> {
    let (member, name) = text.split_once("alarm:")?;
    let member = member.trim().strip_prefix("memberID:").map_or(Some(0), |id| id.trim().parse().ok())?;
    let name = name.split_whitespace().next()?.chars().take(40).collect();
    Some(Alarm { member, own: member == own, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_of_the_member_that_it_names() {
        let of = |text| alarm(text, 42);
        assert_eq!(of("memberID:42 alarm:NOSPACE "), Some(Alarm { member: 42, own: true, name: "NOSPACE".to_owned() }));
        assert_eq!(of("memberID:7 alarm:CORRUPT "), Some(Alarm { member: 7, own: false, name: "CORRUPT".to_owned() }));
        assert_eq!(of("alarm:CORRUPT "), Some(Alarm { member: 0, own: false, name: "CORRUPT".to_owned() }));
        assert_eq!(of("etcdserver: no leader"), None);
    }
}

//! What is done on the host of a Node that is drained, and how far that is.
//!
//! In: `action`, `reboot` and the status of a NodeMaintenance. Out: [`Work`], [`Reboot`].

use super::boot::BootId;
use super::duration::{go_duration, in_go};
use super::timestamp::parse_rfc3339;
use serde_json::{Value, json};
use std::time::Duration;

/// What is done once the Node is drained.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Work {
    /// A person works on the host, and completes the maintenance.
    #[default]
    ByPerson,
    /// The host reboots, and the maintenance ends when its Node is ready again.
    Reboot(RebootRequest),
}

/// How a host reboots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebootRequest {
    /// How long it may take until the Node is ready again.
    pub timeout: Duration,
    /// Whether guards may repair a host that is not back in time.
    pub then_heal: bool,
}

impl Default for RebootRequest {
    /// As the kind has it.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(900), then_heal: false }
    }
}

impl Work {
    pub(super) fn of(spec: &Value) -> Result<Self, String> {
        match spec["action"].as_str() {
            None | Some("None") => Ok(Self::ByPerson),
            Some("Reboot") => {
                let default = RebootRequest::default();
                let timeout = match &spec["reboot"]["timeout"] {
                    Value::Null => default.timeout,
                    text => text.as_str().and_then(go_duration).ok_or("its reboot.timeout cannot be read")?,
                };
                Ok(Self::Reboot(RebootRequest { timeout, then_heal: spec["reboot"]["onTimeout"] == "Heal" }))
            }
            Some(_) => Err("its action cannot be read".to_owned()),
        }
    }

    /// The fields of `spec`.
    pub(super) fn spec(&self) -> [(&'static str, Value); 2] {
        match self {
            Self::ByPerson => [("action", json!("None")), ("reboot", json!({}))],
            Self::Reboot(RebootRequest { timeout, then_heal }) => {
                let on_timeout = if *then_heal { "Heal" } else { "Hold" };
                let reboot = json!({"timeout": in_go(*timeout), "onTimeout": on_timeout});
                [("action", json!("Reboot")), ("reboot", reboot)]
            }
        }
    }
}

/// The reboot of the host, as far as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reboot {
    /// The boot that is to end.
    pub boot: BootId,
    /// When that was asked for, by the clock of hactl, milliseconds since 1970.
    pub asked_ms: i64,
    /// Whether the Node was ready by another boot.
    pub is_done: bool,
}

impl Reboot {
    /// One that cannot be read is none: it is asked for again.
    pub(super) fn of(status: &Value) -> Option<Self> {
        let boot = BootId::try_from(status["boot"].as_str()?.to_owned()).ok()?;
        let is_done = status["newBoot"].is_string();
        Some(Self { boot, asked_ms: parse_rfc3339(status["requestTime"].as_str()?)?, is_done })
    }
}

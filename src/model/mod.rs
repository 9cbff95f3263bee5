//! The types that all other modules share: names, desired state, facts, conditions, steps, events.
//!
//! Pure data. Nothing here performs I/O, reads a clock or uses random numbers, so that a plan made of these types can
//! be printed, compared, stored and tested.

pub mod action;
pub mod attached;
pub mod authentic;
pub mod blob;
pub mod bucket;
pub mod causes;
pub mod certificate;
pub mod check;
pub mod components;
pub mod condition;
pub mod control_plane;
pub mod copies;
pub mod desired;
pub mod difference;
pub mod digester;
pub mod drill;
pub mod duration;
pub mod event;
pub mod facts;
pub mod fault;
pub mod firewall;
pub mod glob;
pub mod guard_report;
pub mod guards;
pub mod healing;
pub mod healing_mode;
pub mod heartbeat;
pub mod labels;
pub mod leaf;
pub mod listed;
pub mod names;
pub mod node;
pub mod plan;
pub mod plausible;
pub mod ports;
pub mod positions;
pub mod recovery;
pub mod redact;
pub mod refusal;
pub mod remedy;
pub mod renewal;
pub mod repair;
pub mod rotation;
pub mod secret;
pub mod snapshot;
pub mod ssh_target;
pub mod standby;
pub mod support;
pub mod survey;
pub mod target;
pub mod timestamp;
pub mod units;
pub mod version;

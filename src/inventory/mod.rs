//! The inventory: YAML written by a person becomes the desired state, on which all other modules work.
//!
//! `load` reads and validates, `schema` has the keys, `check` the rules, `reference` publishes both, `starter` writes a
//! first file, `import` converts files of other tools.

mod at;
mod attached;
mod check;
mod defaults;
mod files;
pub mod import;
mod load;
pub mod manifests;
mod openssh;
pub mod owned;
mod problem;
pub mod reference;
mod schema;
mod source;
pub mod starter;
mod suggest;
pub mod summary;
pub mod topology;
pub mod vagrant;
mod word_or_mapping;
mod yaml;

pub use crate::model::attached::{Attached, UserObject};
pub use at::Place;
pub use defaults::DEFAULT_KUBERNETES;
pub use files::{Disk, Files, Nothing};
pub use load::{InventoryError, Loaded, load, parse, parse_at_home};
pub use problem::{Problem, Report, Severity};
pub use source::Source;

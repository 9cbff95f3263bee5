//! A value together with the place in the text where it was written.
//!
//! In: the YAML reader's spans. Out: [`At`], which every field of the schema is wrapped in, so that a rule broken
//! long after parsing can still point at the characters that broke it.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};
use serde_saphyr::{Location, Spanned};
use std::borrow::Cow;

/// A place in the inventory's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, serde::Serialize)]
pub struct Place {
    /// Line, from 1; 0 when the place is unknown.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// How many bytes of the text belong to it; 0 for lists and mappings.
    #[serde(skip)]
    pub bytes: usize,
    /// Offset in bytes.
    #[serde(skip)]
    pub offset: usize,
}

impl Place {
    /// The place as a character position; what does not fit becomes unknown.
    pub fn new(line: usize, column: usize) -> Self {
        Self { line, column, ..Self::default() }
    }
}

impl From<Location> for Place {
    fn from(location: Location) -> Self {
        let small = |n: u64| usize::try_from(n).unwrap_or(0);
        let span = location.span();
        Self {
            line: small(location.line()),
            column: small(location.column()),
            bytes: small(span.byte_len().unwrap_or(0)),
            offset: small(span.byte_offset().unwrap_or(0)),
        }
    }
}

/// A value and where it was written.
#[derive(Debug, Clone)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it was written; for an alias the place that uses it.
    pub place: Place,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::<T>::deserialize(deserializer)?;
        Ok(Self { value, place: referenced.into() })
    }
}

/// In the published schema the wrapper does not exist.
impl<T: JsonSchema> JsonSchema for At<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
    fn inline_schema() -> bool {
        T::inline_schema()
    }
}

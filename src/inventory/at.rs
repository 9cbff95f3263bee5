//! A value with its place in the text.
//!
//! In: the YAML reader's locations. Out: [`At`], which wraps every field of the schema, so that a violation found long
//! after parsing can still point to its characters.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};
use serde_saphyr::{Location, Spanned};
use std::borrow::Cow;
use std::ops::Deref;

/// A place in the inventory's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, serde::Serialize)]
pub struct Place {
    /// Line, from 1; 0 when the place is unknown.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Length in bytes; 0 for lists and mappings.
    #[serde(skip)]
    pub bytes: usize,
    /// Offset in bytes.
    #[serde(skip)]
    pub offset: usize,
}

impl Place {
    /// A place by line and column.
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

/// A value and its place.
#[derive(Debug, Clone)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its place; for an alias the place that uses it.
    pub place: Place,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::<T>::deserialize(deserializer)?;
        Ok(Self { value, place: referenced.into() })
    }
}

/// The published schema does not contain the wrapper.
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

/// A key that may be missing. The published schema has the type of its value, which cannot be null.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Key<T>(#[schemars(with = "T")] Option<At<T>>);

impl<T> Default for Key<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Deref for Key<T> {
    type Target = Option<At<T>>;
    fn deref(&self) -> &Option<At<T>> {
        &self.0
    }
}

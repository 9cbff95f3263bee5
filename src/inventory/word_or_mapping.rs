//! Reads a key that is a word or a mapping, with the places of the values in the mapping.
//!
//! In: YAML, through serde. Out: the key of the schema.

use super::schema::{Healing, HealingSettings};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// A derived form would read the mapping without the places of its values.
impl<'de> Deserialize<'de> for Healing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrMapping;
        impl<'de> Visitor<'de> for WordOrMapping {
            type Value = Healing;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("on, watch, off or a mapping")
            }
            fn visit_str<E>(self, word: &str) -> Result<Healing, E> {
                Ok(Healing::Mode(word.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Healing, A::Error> {
                Box::<HealingSettings>::deserialize(MapAccessDeserializer::new(map)).map(Healing::Settings)
            }
        }
        deserializer.deserialize_any(WordOrMapping)
    }
}

use super::facts::LeafFact;
use super::target::Leaf;
pub fn needs_renewal(_l: &Leaf, _f: Option<&LeafFact>, _now: i64) -> Option<String> {
    None
}

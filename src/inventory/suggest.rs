//! "Did you mean": the nearest word to a mistyped one.

use strsim::osa_distance;

/// The word of `known` that is nearest to `word`, if it is near enough to be a typing error.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = flat(&word.chars().take(64).collect::<String>());
    known
        .into_iter()
        .map(|candidate| (osa_distance(&plain, &flat(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count() / 3).max(1))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Case and word breaks are the commonest mistakes: `api_port` for `apiPort`.
fn flat(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_nonsense_finds_none() {
        let known = ["apiPort", "cluster", "controlPlane", "hosts"];
        for (slip, meant) in
            [("api_port", "apiPort"), ("clutser", "cluster"), ("control-plane", "controlPlane"), ("host", "hosts")]
        {
            assert_eq!(nearest(slip, known), Some(meant));
        }
        assert_eq!(nearest("zebra", known), None);
    }
}

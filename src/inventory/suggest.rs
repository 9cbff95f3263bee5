//! "Did you mean": the nearest word to a mistyped one.

/// The word of `known` that is nearest to `word`, if it is near enough to be a typing error.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: String = word.chars().take(64).collect();
    let plain = flat(&word);
    known
        .into_iter()
        .map(|candidate| (distance(&plain, &flat(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count() / 3).max(1))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Case and word breaks are the commonest mistakes: `api_port` for `apiPort`.
fn flat(word: &str) -> Vec<char> {
    word.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

/// Edits (insert, delete, replace, swap neighbours) between two words.
fn distance(a: &[char], b: &[char]) -> usize {
    let width = b.len() + 1;
    let mut rows = vec![0; (a.len() + 1) * width];
    for (j, cell) in rows.iter_mut().take(width).enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        rows[i * width] = i;
        for j in 1..=b.len() {
            let at = |i: usize, j: usize| rows[i * width + j];
            let replaced = at(i - 1, j - 1) + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(at(i - 1, j) + 1).min(at(i, j - 1) + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(at(i - 2, j - 2) + 1);
            }
            rows[i * width + j] = best;
        }
    }
    rows[a.len() * width + b.len()]
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

//! Damaged inputs: good ones, damaged as files and streams get damaged, and as an attacker would damage them.
//!
//! In: dice (from the including module), good inputs, words with a meaning for the reader. Out: bytes; the same dice
//! give the same bytes. It is not guided by coverage: the words and the good inputs bring it past the first check.

use super::Dice;

/// A range inside something of this length, short more often than long.
fn range(dice: &mut Dice, length: usize) -> std::ops::Range<usize> {
    let from = dice.below(length + 1);
    let longest = if dice.below(4) == 0 { length } else { 12 };
    from..length.min(from + dice.below(longest + 1))
}

/// Numbers at their limits, ends of strings, terminal sequences, and bytes that are not UTF-8.
const ODD: [&[u8]; 22] = [
    b"",
    b"0",
    b"-1",
    b"255",
    b"65536",
    b"2147483648",
    b"18446744073709551616",
    b"1e999",
    b"\0",
    b"\n",
    b"\r\n",
    b"\t",
    b"\x1b[2J",
    b"\xff",
    b"\xc3",
    b"\xe2\x80\xae",
    b"\xf0\x9f\x92\xa5",
    b"\"",
    b"\\",
    b"%n%s",
    b"../../../../etc/passwd",
    b"$(reboot)",
];

/// A good input, damaged in one to six places.
pub fn damaged(dice: &mut Dice, good: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut text = dice.pick(good).clone();
    for _ in 0..=dice.below(6) {
        let length = text.len();
        let at = dice.below(length + 1);
        match dice.below(12) {
            0 if length > 0 => text[at.min(length - 1)] ^= 1 << dice.below(8),
            1 => text.truncate(at),
            2 => drop(text.drain(range(dice, length))),
            3 => insert(&mut text, at, dice.pick::<&[u8]>(&ODD)),
            4 => insert(&mut text, at, dice.pick(words).as_bytes()),
            5 => {
                let range = range(dice, length);
                let piece = text[range].to_vec();
                insert(&mut text, at, &piece.repeat(1 + dice.below(3)));
            }
            6 => {
                let other = dice.pick(good).clone();
                insert(&mut text, at, &other[range(dice, other.len())]);
            }
            7 => {
                let range = range(dice, length);
                text.splice(range, dice.pick::<&[u8]>(&ODD).iter().copied());
            }
            8 => {
                let range = range(dice, length);
                text.splice(range, dice.pick(words).bytes());
            }
            9 => lines(dice, &mut text),
            // Deep nesting, and length.
            10 => {
                let open = *dice.pick(&["[", "{", "{a: ", "- ", "(", "&a [*a, ", "\""]);
                let often = 1 << dice.below(11);
                insert(&mut text, at, open.repeat(often).as_bytes());
            }
            _ => {
                let byte = u8::try_from(dice.below(256)).unwrap_or(0);
                let often = 1 << dice.below(13);
                insert(&mut text, at, &vec![byte; often]);
            }
        }
    }
    text
}

fn insert(into: &mut Vec<u8>, at: usize, what: &[u8]) {
    drop(into.splice(at..at, what.iter().copied()));
}

/// Swaps, drops, repeats or indents whole lines.
fn lines(dice: &mut Dice, text: &mut Vec<u8>) {
    let mut all: Vec<Vec<u8>> = text.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    if all.is_empty() {
        return;
    }
    let (one, other) = (dice.below(all.len()), dice.below(all.len()));
    match dice.below(4) {
        0 => all.swap(one, other),
        1 => drop(all.remove(one)),
        2 => all.insert(other, all[one].clone()),
        _ => all[one].splice(0..0, b"  ".iter().copied()).for_each(drop),
    }
    *text = all.concat();
}

//! Reproducible tars: headers with a fixed date, owner and mode.
//!
//! In: a name and a size. Out: one header block, as Go's archive/tar writes it in the USTAR format, so that an image
//! built here is the same file as one that `components/image` wrote.

use std::io::{self, Cursor, Read};

/// Size of a block.
pub const BLOCK: u64 = 512;
/// The date of all entries.
const DATE: u64 = 1_700_000_000;
/// A size has eleven octal digits.
pub const LARGEST: u64 = 1 << 33;

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A file of this size.
    File(u64),
    /// A folder.
    Folder,
}

/// The header of an entry. `None`: the name is longer than 100 bytes, or the size is too large for a header.
pub fn header(name: &str, entry: Entry) -> Option<[u8; 512]> {
    let (size, mode, kind) = match entry {
        Entry::File(size) => (size, 0o644, b'0'),
        Entry::Folder => (0, 0o755, b'5'),
    };
    if name.len() > 100 || size >= LARGEST {
        return None;
    }
    let mut block = [0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    let mut octal = |at: usize, digits: usize, value: u64| {
        block[at..at + digits].copy_from_slice(format!("{value:0digits$o}").as_bytes());
    };
    octal(100, 7, mode);
    octal(108, 7, 0);
    octal(116, 7, 0);
    octal(124, 11, size);
    octal(136, 11, DATE);
    octal(329, 7, 0);
    octal(337, 7, 0);
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
    block[154] = 0;
    Some(block)
}

/// Padding after a file of this size, up to the next block.
pub fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK) - size
}

/// The end of a tar.
pub const END: [u8; 1024] = [0; 1024];

/// Name and type of the entry with this header, if it is one that this module writes.
pub fn read_header(block: &[u8; 512]) -> Option<(String, Entry)> {
    let name = std::str::from_utf8(block[..100].split(|b| *b == 0).next()?).ok()?.to_owned();
    let size = std::str::from_utf8(&block[124..135]).ok()?;
    let entry = match block[156] {
        b'0' => Entry::File(u64::from_str_radix(size, 8).ok()?),
        b'5' => Entry::Folder,
        _ => return None,
    };
    // Every difference from the header that this module would write is an error.
    (header(&name, entry)? == *block).then_some((name, entry))
}

/// A complete entry with its header and padding, as a reader.
pub fn entry(name: &str, size: u64, content: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let too_long = || io::Error::new(io::ErrorKind::InvalidInput, format!("{name} does not fit into a tar"));
    let header = header(name, Entry::File(size)).ok_or_else(too_long)?;
    Ok(Box::new(Cursor::new(header).chain(content.take(size)).chain(io::repeat(0).take(padding(size)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_describes_the_written_file_and_other_readers_agree(name in "[a-z0-9/._-]{1,100}", size in 0..LARGEST) {
            let block = header(&name, Entry::File(size)).unwrap();
            prop_assert_eq!(read_header(&block), Some((name.clone(), Entry::File(size))));
            let theirs = ::tar::Header::from_byte_slice(&block);
            prop_assert_eq!(theirs.entry_size().unwrap(), size);
            prop_assert_eq!(theirs.path_bytes().into_owned(), name.into_bytes());
            let cksum = theirs.cksum().unwrap();
            let sum: u32 = block.iter().enumerate().map(|(i, b)| if (148..156).contains(&i) { 32 } else { u32::from(*b) }).sum();
            prop_assert_eq!(cksum, sum);
        }

        #[test]
        fn a_header_with_any_byte_changed_is_not_ours(at in 0_usize..512, bit in 0_u8..8) {
            let mut block = header("blobs/sha256/x", Entry::File(77)).unwrap();
            block[at] ^= 1 << bit;
            prop_assert_eq!(read_header(&block), None);
        }
    }

    #[test]
    fn values_that_do_not_fit_a_header_are_refused() {
        assert!(header(&"x".repeat(101), Entry::Folder).is_none());
        assert!(header("x", Entry::File(LARGEST)).is_none());
    }
}

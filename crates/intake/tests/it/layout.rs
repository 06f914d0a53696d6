//! The example in `docs/formats/books.md` is a book as the code writes it, and the page names each line of it.

use intake::{BOOK_VERSION, Book};
use journal::Identity;
use model::Gap;
use proptest::prelude::*;

use crate::world::batch;

const PAGE: &str = include_str!("../../../../docs/formats/books.md");

fn example() -> Book {
    let identity = |producer, sequence| Identity { producer, boot: 0xb007, sequence };
    let mut book = Book::new(7, 3, 1_000_000_000);
    book.name(0x1d, "statsd udp");
    book.add(3, Some(identity(0x1d, 1)), batch("a", 4).bytes());
    book.add(4, Some(identity(0x1d, 1)), batch("a", 4).bytes());
    book.add(5, None, b"none of ours");
    let reason = "the kernel's buffer was full".to_owned();
    let gap = Gap { start: 5, end: 9, producer: None, lost: Some(2), reason };
    book.lose(Some(0x1d), &gap);
    book
}

#[test]
fn the_page_has_a_book_as_it_is_written() {
    let example = String::from_utf8(example().write()).unwrap();
    let told = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(told, example);
    assert!(told.starts_with(&format!("topdeck book {BOOK_VERSION}\n")));
    for word in example.lines().map(|line| line.split(' ').next().unwrap()) {
        assert!(PAGE.contains(&format!("| `{word} ")), "{word}");
    }
}

#[test]
fn a_book_comes_back_and_any_flipped_bit_is_seen() {
    let book = example();
    let bytes = book.write();
    assert_eq!(Book::read(&bytes), Ok(book.clone()));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Book::read(&flipped).is_err(), "bit {bit}");
    }
    for end in 0..bytes.len() {
        assert!(Book::read(&bytes[..end]).is_err(), "cut at {end}");
    }
}

proptest! {
    /// A checksum keeps a fuzzer out, and a bug of a writer in.
    #[test]
    fn any_lines_are_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0u8..5, any::<u8>()), 0..6),
    ) {
        let text = String::from_utf8(example().write()).unwrap();
        let mut lines: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
        lines.pop();
        for (at, what, byte) in changes {
            let line = at.index(lines.len());
            let len = lines[line].len();
            match what {
                0 => lines.swap(0, line),
                1 => lines.insert(line, lines[line].clone()),
                2 if lines.len() > 1 => drop(lines.remove(line)),
                3 => lines[line].truncate(at.index(len + 1)),
                _ if len > 0 => lines[line][at.index(len)] = byte % 128,
                _ => {}
            }
        }
        let mut bytes: Vec<u8> = lines.into_iter().flat_map(|line| [line, b"\n".to_vec()].concat()).collect();
        bytes.extend(format!("checksum {:08x}\n", crc32c::crc32c(&bytes)).bytes());
        if let Ok(book) = Book::read(&bytes) {
            prop_assert_eq!(Book::read(&book.write()), Ok(book.clone()));
            book.total().records();
        }
    }
}

//! The example in `docs/formats/books.md` is a book as the code writes it, and the page names each line of it.

use intake::{BOOK_VERSION, Book};
use journal::Identity;
use model::Gap;

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

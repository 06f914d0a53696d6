//! The example in `docs/formats/ledgers.md` equals the written ledger file, and the page documents
//! each line of it.

use intake::{LEDGER_VERSION, Ledger};
use journal::BatchIdentity;
use model::Gap;
use proptest::prelude::*;

use crate::fixture::batch;

const PAGE: &str = include_str!("../../../../docs/formats/ledgers.md");

fn example() -> Ledger {
    let identity = |producer, sequence| BatchIdentity { producer, epoch: 0xb007, sequence };
    let mut ledger = Ledger::new(7, 3, 1_000_000_000);
    ledger.set_name(0x1d, "statsd udp");
    ledger.add(3, Some(identity(0x1d, 1)), batch("a", 4).bytes());
    ledger.add(4, Some(identity(0x1d, 1)), batch("a", 4).bytes());
    ledger.add(5, None, b"none of ours");
    let reason = "the kernel's buffer was full".to_owned();
    let gap = Gap { start: 5, end: 9, producer: None, lost: Some(2), reason };
    ledger.add_loss(Some(0x1d), &gap);
    let text = String::from_utf8(ledger.encode()).unwrap();
    let text = text.replace("state open whole\n", "state open lossy\nvolatile 1d\nvolatile 2e\n");
    Ledger::decode(&with_checksum(&text)).unwrap()
}

/// The text with a checksum that is correct.
fn with_checksum(text: &str) -> Vec<u8> {
    let body = &text[..text.rfind("checksum ").unwrap()];
    format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes())).into_bytes()
}

/// A ledger of version 1, as released.
const VERSION_1: &str = "topdeck book 1
journal 00000000000000000000000000000007 3 6
begun 1000000000
saved 1000000000
state open whole
producer 1d statsd%20udp 1 1 4 1 0 0
boot b007 1
loss 1 2 0 5 9 the%20kernel's%20buffer%20was%20full
producer - others 0 0 0 0 1 0
checksum 4638d73e
";

#[test]
fn ledger_of_version_1_is_read() {
    let ledger = Ledger::decode(VERSION_1.as_bytes()).unwrap();
    assert_eq!(ledger.total(), example().total());
    let written = String::from_utf8(ledger.encode()).unwrap();
    let expected = with_checksum(&VERSION_1.replace("book 1", "book 2"));
    assert_eq!(written.as_bytes(), expected);
}

#[test]
fn ledger_of_a_later_version_is_rejected_with_its_version() {
    let disk = sim::SimDisk::new(1);
    let intake = crate::fixture::new_journal_intake(&disk, &std::sync::Arc::default());
    let file = intake.ledger_file("remote").unwrap();
    let later = LEDGER_VERSION + 1;
    let bytes = with_checksum(&VERSION_1.replace("book 1", &format!("book {later}")));
    let path = std::path::Path::new(crate::fixture::DIR).join("ledgers/remote");
    let process = disk.process();
    let remote = disk::Disk::open(&process, &path, disk::OpenMode::CreateNew).unwrap();
    remote.write_all_at(&bytes, 0).unwrap();
    let error = file.load().unwrap_err().to_string();
    let expected = format!("format version {later} is not supported");
    assert!(error.contains(&expected), "{error}");
}

#[test]
fn format_page_shows_a_ledger_as_written() {
    let example = String::from_utf8(example().encode()).unwrap();
    let told = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(told, example);
    assert!(told.starts_with(&format!("topdeck book {LEDGER_VERSION}\n")));
    for word in example.lines().map(|line| line.split(' ').next().unwrap()) {
        assert!(PAGE.contains(&format!("| `{word} ")), "{word}");
    }
}

#[test]
fn ledger_round_trips_and_any_flipped_bit_is_detected() {
    let ledger = example();
    let bytes = ledger.encode();
    assert_eq!(Ledger::decode(&bytes), Ok(ledger.clone()));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Ledger::decode(&flipped).is_err(), "bit {bit}");
    }
    for end in 0..bytes.len() {
        assert!(Ledger::decode(&bytes[..end]).is_err(), "cut at {end}");
    }
}

proptest! {
    /// The checksum stops a fuzzer; this test mutates files with a valid checksum, as a buggy
    /// writer would.
    #[test]
    fn arbitrary_lines_are_read_or_rejected(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0u8..5, any::<u8>()), 0..6),
    ) {
        let text = String::from_utf8(example().encode()).unwrap();
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
        if let Ok(ledger) = Ledger::decode(&bytes) {
            prop_assert_eq!(Ledger::decode(&ledger.encode()), Ok(ledger.clone()));
            ledger.total().records();
        }
    }
}

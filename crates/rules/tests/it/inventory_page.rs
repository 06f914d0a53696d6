//! The example in `docs/formats/series-inventory.md` equals the written bytes, and an inventory
//! goes on after it was stored.

use std::collections::HashMap;

use model::SeriesId;
use rules::{
    InventoryError, SeriesEvent, SeriesInventory, StoredInventory, decode_inventory,
    encode_inventory,
};

use crate::harness::{SECOND, START};

const PAGE: &str = include_str!("../../../../docs/formats/series-inventory.md");
const POLL: i64 = 15 * SECOND;
const ID: SeriesId = SeriesId([7; 16]);
const OTHER_ID: SeriesId = SeriesId([8; 16]);

/// An inventory of one series that arrived in five polls, the last one at the start.
fn example() -> SeriesInventory {
    let mut inventory = SeriesInventory::default();
    for poll in -4..=0 {
        let now_ns = START + poll * POLL;
        inventory.begin_poll(now_ns);
        inventory.record(0, Some(now_ns));
        inventory.end_poll();
    }
    inventory
}

fn encode(inventory: &SeriesInventory) -> Vec<u8> {
    let appeared = HashMap::from([(ID, START - 60 * SECOND)]);
    // The second series never sent anything.
    encode_inventory(inventory, &[(0, ID), (1, OTHER_ID)], &appeared).expect("a poll has ended")
}

#[test]
fn the_page_shows_an_inventory_as_written() {
    let bytes = encode(&example());
    let told = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let told: Vec<u8> = told
        .expect("an example")
        .lines()
        .flat_map(|line| line.split("    ").next().unwrap_or_default().split(' '))
        .map(|byte| u8::from_str_radix(byte, 16).expect("a byte"))
        .collect();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x} ")).collect::<String>();
    assert_eq!(hex(&told), hex(&bytes));
    assert_eq!(encode_inventory(&SeriesInventory::default(), &[], &HashMap::new()), None);
}

#[test]
fn a_stored_inventory_round_trips_and_any_flipped_bit_is_detected() {
    let bytes = encode(&example());
    let stored = decode_inventory(&bytes).expect("as written");
    assert_eq!(stored.appeared_ns(ID), Some(START - 60 * SECOND));
    assert_eq!(stored.appeared_ns(OTHER_ID), None);
    let mut restored = SeriesInventory::default();
    restored.resume(&stored);
    assert!(restored.restore(0, ID, &stored));
    assert!(!restored.restore(1, OTHER_ID, &stored));
    assert_eq!(encode(&restored), bytes);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_inventory(&flipped).is_err(), "bit {bit}");
    }
    for end in 0..bytes.len() {
        assert!(decode_inventory(&bytes[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn a_newer_version_is_named() {
    let mut bytes = encode(&example());
    bytes[8] = 2;
    assert_eq!(decode_inventory(&bytes), Err(InventoryError::Version(2)));
    let text = InventoryError::Version(2).to_string();
    assert_eq!(text, "cannot read the inventory of series: found version 2, expected 1");
    assert_eq!(decode_inventory(b"something else"), Err(InventoryError::Title));
}

/// Polls after a restart, an hour later.
fn events(stored: &StoredInventory, arrives: &[bool], polls: i64) -> Vec<(i64, u32, SeriesEvent)> {
    let mut inventory = SeriesInventory::default();
    inventory.resume(stored);
    inventory.restore(0, ID, stored);
    let mut found = Vec::new();
    for poll in 0..polls {
        let now_ns = START + 3600 * SECOND + poll * POLL;
        inventory.begin_poll(now_ns);
        for (position, arrives) in (0..).zip(arrives) {
            let event = inventory.record(position, arrives.then_some(now_ns));
            found.extend(event.map(|event| (poll * POLL / SECOND, position, event)));
        }
        inventory.end_poll();
    }
    found
}

#[test]
fn what_changed_while_nobody_looked_is_known_after_it() {
    let stored = decode_inventory(&encode(&example())).expect("as written");
    // The known series does not come back, another one is there.
    let vanished = SeriesEvent::Vanished { end_ns: START + SECOND };
    assert_eq!(
        events(&stored, &[false, true], 40),
        [(0, 1, SeriesEvent::Appeared), (300, 0, vanished)]
    );
    // One that comes back is no news.
    assert_eq!(events(&stored, &[true], 40), []);
}

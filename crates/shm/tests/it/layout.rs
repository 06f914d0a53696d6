//! The tables of `docs/formats/shm.md` equal `layout.rs`.

use shm::layout::*;

use crate::page::{check_fields, rows};

const PAGE: &str = include_str!("../../../../docs/formats/shm.md");

#[track_caller]
fn check(heading: &str, fields: &[Field]) {
    check_fields(PAGE, heading, fields);
    for pair in fields.windows(2) {
        assert_eq!(pair[0].1 + pair[0].2, pair[1].1, "{heading}: {} does not follow", pair[1].0);
    }
}

#[test]
fn page_matches_the_layout() {
    check("## Header", &HEADER);
    check("## Lanes", &LANE);
    check("## Registry", &ENTRY);
    check("## Histogram", &HISTOGRAM);
    check("## In flight", &IN_FLIGHT);
    check("### Slot", &SLOT);
    check("## Text", &TEXT);
    check("## Heartbeat", &HEARTBEAT);
    for (fields, size) in [(&LANE[..], LANE_BYTES), (&ENTRY, ENTRY_BYTES), (&SLOT, SLOT_BYTES)] {
        assert_eq!(fields.iter().map(|field| field.2).sum::<usize>(), size);
    }
    assert_eq!(VERSION, 1, "another version is another page");
}

#[test]
fn page_lists_the_header_numbers() {
    let told = |name: &str| {
        let rows = rows(PAGE, "## Header", "| offset");
        let row = rows.into_iter().find(|row| row[2] == name).expect("the field");
        let digits: String =
            row[3].chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
        digits.replace(',', "").parse::<usize>().expect("a number")
    };
    assert_eq!(told("version") as u64, VERSION);
    assert_eq!(told("registry"), REGISTRY_OFFSET);
    assert_eq!(told("registry_capacity"), ENTRIES_MAX);
    assert_eq!(told("strings"), STRINGS);
    assert_eq!(told("strings_capacity"), STRINGS_BYTES);
    assert_eq!(told("lanes"), LANES_OFFSET);
    assert_eq!(told("lane_stride"), LANE_STRIDE);
    assert_eq!(told("lane_capacity"), LANES_MAX);
    assert_eq!(told("small_capacity"), SMALL_BYTES);
    assert!(PAGE.contains("2,049 words") && BUCKETS == 2_049);
    assert!(PAGE.contains("16,384 slots") && SLOTS_MAX == 16_384);
}

#[test]
fn page_lists_kind_role_and_state_numbers() {
    let told: Vec<(String, u64)> = rows(PAGE, "## Registry", "| kind |")
        .into_iter()
        .map(|row| (row[1].to_owned(), row[0].parse().expect("a number")))
        .collect();
    let kinds = [
        ("counter", kind::COUNTER),
        ("up-down counter", kind::UP_DOWN),
        ("gauge", kind::GAUGE),
        ("float gauge", kind::FLOAT_GAUGE),
        ("text", kind::TEXT),
        ("histogram", kind::HISTOGRAM),
        ("operations in flight", kind::IN_FLIGHT),
        ("heartbeat", kind::HEARTBEAT),
    ];
    assert_eq!(told, kinds.map(|(name, number)| (name.to_owned(), number)));
    for (number, role) in shm::MetricRole::ALL.iter().enumerate() {
        let told = format!("{number} {}", format!("{role:?}").to_lowercase());
        assert!(PAGE.contains(&told), "{told}");
    }
    for (number, what) in [
        (state::BUILDING, "being made"),
        (state::LIVE, "live"),
        (state::EXITED, "exited"),
        (state::REPLACED, "replaced"),
    ] {
        assert!(PAGE.contains(&format!("{number} {what}")), "{what}");
    }
}

//! Compares the tables of `docs/formats/journal.md` with `layout.rs`.

use journal::layout::*;

use crate::page::check_fields;

const PAGE: &str = include_str!("../../../../docs/formats/journal.md");

#[track_caller]
fn check(heading: &str, fields: &[Field]) {
    check_fields(PAGE, heading, fields);
}

#[test]
fn page_matches_the_layout() {
    check("## Segment", &SEGMENT);
    check("### Producer", &PRODUCER);
    check("## Frame", &FRAME);
    check("## Copies", &SUPERBLOCK);
    check("### Settings", &SETTINGS);
    check("### Checkpoint", &CHECKPOINT);
    check("## Gaps", &GAPS);
    check("### Gap", &GAP);
    check("### Gap's producer", &GAP_PRODUCER);
    check("### Entry", &ENTRY);
}

#[test]
fn page_lists_the_magic_numbers() {
    for magic in [SEGMENT_MAGIC, SETTINGS_MAGIC, CHECKPOINT_MAGIC, GAPS_MAGIC] {
        let magic = String::from_utf8(magic.to_vec()).unwrap();
        assert!(PAGE.contains(&format!("`{magic}`")), "{magic}");
    }
    let magic = String::from_utf8(FRAME_MAGIC.to_vec()).unwrap();
    assert!(PAGE.contains(&format!("| magic | `{magic}` |")), "{magic}");
    assert!(PAGE.contains(&format!("at 0 and at {SUPERBLOCK_MIRROR_OFFSET}.")));
    assert!(PAGE.contains(&format!("64 + {PRODUCER_BYTES} · producers")) && SEGMENT_BYTES == 64);
    assert_eq!(VERSION, 1, "another version is another page");
}

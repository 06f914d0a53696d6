//! The tables of `docs/formats/journal.md` are those of `layout.rs`.

use journal::layout::*;

const PAGE: &str = include_str!("../../../../docs/formats/journal.md");

/// The rows of the table below a heading: offset, size, field.
fn table(heading: &str) -> Vec<(String, usize, usize)> {
    let below = PAGE
        .split(&format!("\n{heading}\n"))
        .nth(1)
        .unwrap_or_else(|| panic!("no heading {heading:?}"));
    let rows = below.lines().skip_while(|line| !line.starts_with("| offset"));
    rows.take_while(|line| line.starts_with('|'))
        .filter_map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            Some((cells[3].to_owned(), cells[1].parse().ok()?, cells[2].parse().ok()?))
        })
        .collect()
}

#[track_caller]
fn check(heading: &str, fields: &[Field]) {
    let told: Vec<_> = table(heading);
    let told: Vec<Field> = fields
        .iter()
        .zip(&told)
        .map(|(field, (name, offset, size))| {
            assert_eq!(field.0, name, "{heading}");
            (field.0, *offset, *size)
        })
        .collect();
    assert_eq!(told, fields, "{heading}");
    assert_eq!(table(heading).len(), fields.len(), "{heading}");
}

#[test]
fn the_page_tells_where_each_byte_lies() {
    check("## Segment", &SEGMENT);
    check("### Producer", &PRODUCER);
    check("## Frame", &FRAME);
    check("## Copies", &COPY);
    check("### Settings", &SETTINGS);
    check("### Checkpoint", &CHECKPOINT);
    check("## Gaps", &GAPS);
    check("### Gap", &GAP);
    check("### Gap's producer", &GAP_PRODUCER);
    check("### Entry", &ENTRY);
}

#[test]
fn the_page_tells_the_magic_numbers() {
    for magic in [SEGMENT_MAGIC, SETTINGS_MAGIC, CHECKPOINT_MAGIC, GAPS_MAGIC] {
        let magic = String::from_utf8(magic.to_vec()).unwrap();
        assert!(PAGE.contains(&format!("`{magic}`")), "{magic}");
    }
    let magic = String::from_utf8(FRAME_MAGIC.to_vec()).unwrap();
    assert!(PAGE.contains(&format!("| magic | `{magic}` |")), "{magic}");
    assert!(PAGE.contains(&format!("at 0 and at {COPY_SECOND}.")));
    assert!(PAGE.contains(&format!("64 + {PRODUCER_BYTES} · producers")) && SEGMENT_BYTES == 64);
    assert_eq!(VERSION, 1, "another version is another page");
}

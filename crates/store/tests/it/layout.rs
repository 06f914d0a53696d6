//! Compares the tables of `docs/formats/chunk.md`, `part.md` and `traces.md` with the code.

use store::layout::*;

use crate::page::check_fields;

const CHUNK: &str = include_str!("../../../../docs/formats/chunk.md");
const PART: &str = include_str!("../../../../docs/formats/part.md");
const TRACES: &str = include_str!("../../../../docs/formats/traces.md");
const MANIFEST: &str = include_str!("../../../../docs/formats/manifest.md");

#[track_caller]
fn check(page: &str, heading: &str, fields: &[(&str, usize, usize)], bytes: usize) {
    check_fields(page, heading, fields);
    let mut end = 0;
    for &(field, offset, size) in fields {
        assert_eq!(offset, end, "{heading}, {field}: fields are next to each other");
        end += size;
    }
    assert_eq!(end, bytes, "{heading}");
}

#[test]
fn pages_match_the_layouts() {
    check(CHUNK, "## Header", &CHUNK_FIELDS, CHUNK_HEADER_BYTES);
    check(PART, "## Header", &PART_HEADER, PART_HEADER_BYTES);
    check(PART, "## Index", &ENTRY, ENTRY_BYTES);
    check(PART, "## Footer", &FOOTER, FOOTER_BYTES);
    check(TRACES, "## Index", &TRACE_INDEX, TRACE_INDEX_BYTES);
    check(TRACES, "## Table", &TRACE_TABLE, TRACE_TABLE_BYTES);
    check(TRACES, "## Footer", &TRACE_FOOTER, TRACE_FOOTER_BYTES);
    assert!(PART.contains(&format!("The last {FOOTER_BYTES} bytes of the file.")));
}

#[test]
fn pages_list_magic_numbers_limits_and_versions() {
    let told = |page: &str, text: String| assert!(page.contains(&text), "{text}");
    told(CHUNK, format!("| magic | `{}` |", CHUNK_MAGIC.escape_ascii()));
    for magic in [PART_MAGIC, FOOTER_MAGIC] {
        let name = magic.strip_suffix(&[0, 0]).unwrap();
        told(PART, format!("| magic | `{}` and two zero bytes |", name.escape_ascii()));
    }
    told(TRACES, format!("| magic | `{}` |", TRACE_MAGIC.escape_ascii()));
    let versions = format!("{TRACE_VERSION}, or {MERGED_TRACE_VERSION} of a merged part");
    told(TRACES, format!("| version | {versions} |"));
    told(CHUNK, format!("| rows | at most {CHUNK_ROWS_MAX} |"));
    told(CHUNK, format!("at most {CHUNK_BYTES_MAX} |"));
    told(CHUNK, format!("| version | {CHUNK_VERSION} |"));
    told(PART, format!("| version | {PART_VERSION}; "));
    told(MANIFEST, format!("| `topdeck store {MANIFEST_VERSION}` |"));
    let names = MANIFEST_PART_FIELDS.join(" ");
    told(MANIFEST, format!("| `part {names}` |"));
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/store/v3/manifest");
    let golden = std::fs::read_to_string(golden).unwrap();
    let part = golden.lines().find(|line| line.starts_with("part ")).expect("it has parts");
    assert_eq!(part.split(' ').count(), 1 + MANIFEST_PART_FIELDS.len(), "{part}");
}

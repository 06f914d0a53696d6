//! Inputs that once failed, the seeds of fuzzing, and a short run of the fuzz targets' checks on
//! random bytes.

use std::fs;

use proptest::prelude::*;

use crate::checks;
use crate::fuzz_inputs::{self, root};

/// `testdata/fuzz/<target>/<failure>`.
#[test]
fn past_fuzz_failures_pass() {
    fuzz_inputs::check_past_findings(&checks::CHECKS);
}

/// Target, name and bytes.
fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let golden = root().join("testdata/store/v1");
    let mut seeds = Vec::new();
    for (dir, name) in [("v1", "manifest"), ("v2", "manifest-2")] {
        let path = root().join("testdata/store").join(dir).join("manifest");
        let manifest = fs::read_to_string(path).unwrap();
        let (body, _) = manifest.split_once("checksum ").unwrap();
        assert!(store::fuzzing::manifest(body.as_bytes()));
        seeds.push(("store_chunk", name.to_owned(), [&[1], body.as_bytes()].concat()));
    }
    // A chunk of each content, from the golden parts.
    let mut contents = std::collections::BTreeSet::new();
    let mut parts: Vec<_> =
        fs::read_dir(golden.join("parts")).unwrap().map(|entry| entry.unwrap().path()).collect();
    parts.sort();
    for part in parts {
        let part = fs::read(part).unwrap();
        let mut rest = &part[store::layout::PART_HEADER_BYTES..];
        while rest.starts_with(&store::layout::CHUNK_MAGIC) {
            let length = u32::from_le_bytes(*rest[44..].first_chunk().unwrap()) as usize;
            let (chunk, after) = rest.split_at(store::layout::CHUNK_HEADER_BYTES + length);
            rest = after;
            if chunk.len() <= 1024 && contents.insert(chunk[5]) {
                assert!(store::fuzzing::chunk(chunk).is_some());
                let name = format!("content-{}", chunk[5]);
                seeds.push(("store_chunk", name, [&[0], chunk].concat()));
            }
        }
    }
    assert_eq!(contents.len(), 5, "{contents:?}");
    seeds.push(("batch", "life".to_owned(), crate::lifecycle::batch(3).bytes().to_owned()));
    for (name, text) in [
        ("prometheus", r#"http{host="a",path=~"/api/.*",zone!="x"}"#),
        ("tags", "and(__name:http,or(host:web-*,not(region:/^eu/)))"),
    ] {
        assert!(::model::Selector::parse(text).is_ok(), "{text}");
        seeds.push(("selector", name.to_owned(), text.as_bytes().to_vec()));
    }
    seeds
}

#[test]
fn seeds_pass_with_any_bit_flipped() {
    for (target, name, bytes) in seeds() {
        let (_, check) = checks::CHECKS.iter().find(|check| check.0 == target).unwrap();
        check(&bytes);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            println!("{target} {name}, bit {bit}");
            check(&flipped);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        checks::CHECKS.iter().for_each(|(_, check)| check(&bytes));
    }

    #[test]
    fn any_selectors(text in r#"(and|or|not|[a-c]|[:{}(),!=~"*/\\]|b64|__name|__kind|\[|\]| ){0,24}"#) {
        (checks::CHECKS[1].1)(text.as_bytes());
    }
}

/// Run by the fuzz part: without seeds a fuzzer spends its minute on magic numbers.
#[test]
#[ignore = "writes fuzz/corpus/, for the fuzz part alone"]
fn write_seeds() {
    let seeds: Vec<_> = seeds().into_iter().map(|(target, _, bytes)| (target, bytes)).collect();
    fuzz_inputs::write_seeds(&checks::CHECKS, &seeds);
}

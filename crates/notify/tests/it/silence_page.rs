//! The example in `docs/formats/silences.md` equals the written silences, and the page documents
//! each line of them.

use std::collections::BTreeMap;

use notify::{
    AlertMatcher, Recurrence, SILENCE_FILE_VERSION, Silence, SilenceFileError, decode_silences,
    encode_silences,
};

const PAGE: &str = include_str!("../../../../docs/formats/silences.md");

fn silence(id: &str, matchers: &[&str], by: &str, comment: &str) -> Silence {
    Silence {
        id: id.to_owned(),
        matchers: matchers.iter().map(|text| AlertMatcher::parse(text).unwrap()).collect(),
        starts_ns: 1_700_000_000_000_000_000,
        ends_ns: 1_700_007_200_000_000_000,
        recurrences: Vec::new(),
        created_by: by.to_owned(),
        comment: comment.to_owned(),
        annotations: BTreeMap::new(),
        updated_ns: 1_700_000_000_000_000_000,
    }
}

fn example() -> Vec<Silence> {
    let one = silence(
        "0b2f3c1e-7d44-4b0e-9a51-3c8f5f0d6a10",
        &["host=db1", "severity!~\"info|none\""],
        "ann",
        "disk is replaced",
    );
    let one = Silence { annotations: [("ticket".to_owned(), "OPS 7".to_owned())].into(), ..one };
    let window = serde_json::json!({
        "times": [{"start_time": "02:00", "end_time": "04:00"}],
        "weekdays": ["sunday"],
        "location": "Europe/Berlin",
    });
    let weekly = Silence {
        ends_ns: i64::MAX,
        recurrences: vec![Recurrence::from_json(window).unwrap()],
        ..silence(
            "7e6d2a90-13c5-4f7b-8e02-51b9c4d7e8f3",
            &["job=~\"backup.*\""],
            "ben",
            "weekly backup",
        )
    };
    vec![one, weekly]
}

#[test]
fn the_page_shows_silences_as_written() {
    let text = encode_silences(&example());
    let told = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(told, Some(text.as_str()));
    assert!(text.starts_with(&format!("topdeck silences {SILENCE_FILE_VERSION}\n")));
    for word in text.lines().map(|line| line.split(' ').next().unwrap()) {
        assert!(PAGE.contains(&format!("| `{word}")), "{word}");
    }
}

#[test]
fn silences_round_trip_and_any_flipped_bit_is_detected() {
    let text = encode_silences(&example());
    let read = decode_silences(&text).unwrap();
    assert_eq!(encode_silences(&read), text);
    for bit in 0..text.len() * 8 {
        let mut bytes = text.clone().into_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(flipped) = String::from_utf8(bytes) {
            assert!(decode_silences(&flipped).is_err(), "bit {bit}");
        }
    }
    for end in 0..text.len() {
        assert!(decode_silences(&text[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn lines_of_a_writer_with_a_bug_are_named() {
    let check = |line: &str| {
        let body = format!("topdeck silences 1\n{line}\n");
        let text = format!("{body}{}", model::text_file::checksum_line(&body));
        let found = decode_silences(&text).map(|_| ());
        assert_eq!(found, Err(SilenceFileError::Line { line: 2 }), "{line}");
    };
    check("matcher a = b");
    check("silence a 1 2 x ann note");
    check("silence a 1 2");
    check("window a");
    check("recurs {}");
    check("annotation a b");
    let newer = decode_silences("topdeck silences 2\nwhatever\n").unwrap_err().to_string();
    assert_eq!(newer, "cannot read silences: found version 2, expected 1");
}

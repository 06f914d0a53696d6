//! The example in `docs/formats/alert-states.md` equals the written states, and the page documents
//! each line of them.

use proptest::prelude::*;
use proptest::sample::Index;
use rules::{
    AcknowledgementChange, AlertAcknowledgement, GroupSnapshot, SNAPSHOT_VERSION, SnapshotError,
    decode_snapshots, encode_snapshots,
};

use crate::harness::{MINUTE, SECOND, SimulatedNode, labels, with_rules};

const PAGE: &str = include_str!("../../../../docs/formats/alert-states.md");

fn example() -> Vec<GroupSnapshot> {
    example_of(&[None, Some("https://north:7717")])
}

/// States with an alert that was acknowledged at these sites.
fn example_of(origins: &[Option<&str>]) -> Vec<GroupSnapshot> {
    let rules = "  - alert: Down\n    expr: up == 0\n    labels: {severity: page}\n    \
                 annotations:\n      summary: \"{{ $labels.instance }} is down\"\n\
                 \x20 - record: job:up:sum\n    expr: sum(up)\n";
    let mut node = SimulatedNode::new(&with_rules(rules));
    node.set("up{instance=\"a\"}", 0.0);
    node.step();
    let acknowledgement = |origin: Option<&str>| {
        AcknowledgementChange::Set(AlertAcknowledgement {
            at_ns: node.time_ns,
            until_ns: node.time_ns + 30 * MINUTE,
            by: "ann".to_owned(),
            note: "I am on it".to_owned(),
            origin: origin.map(str::to_owned),
        })
    };
    let alert = labels("{alertname=\"Down\", instance=\"a\", severity=\"page\"}");
    let changes: Vec<AcknowledgementChange> =
        origins.iter().map(|origin| acknowledgement(*origin)).collect();
    for change in changes {
        assert!(node.group.change_acknowledgements(0, &alert, &change));
    }
    vec![node.group.snapshot()]
}

#[test]
fn the_page_shows_states_as_written() {
    let text = encode_snapshots(&example());
    let told = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(told, Some(text.as_str()));
    assert!(text.starts_with(&format!("topdeck alert states {SNAPSHOT_VERSION}\n")));
    for word in text.lines().map(|line| line.split(' ').next().unwrap()) {
        assert!(PAGE.contains(&format!("| `{word}")), "{word}");
    }
}

#[test]
fn states_round_trip_and_any_flipped_bit_is_detected() {
    let snapshots = example();
    let text = encode_snapshots(&snapshots);
    assert_eq!(decode_snapshots(&text), Ok(snapshots));
    for bit in 0..text.len() * 8 {
        let mut bytes = text.clone().into_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(flipped) = String::from_utf8(bytes) {
            assert!(decode_snapshots(&flipped).is_err(), "bit {bit}");
        }
    }
    for end in 0..text.len() {
        assert!(decode_snapshots(&text[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn a_newer_version_is_named() {
    let found = decode_snapshots("topdeck alert states 6\nwhatever\n");
    assert_eq!(found, Err(SnapshotError::Version { found: "6".to_owned() }));
    assert_eq!(
        found.unwrap_err().to_string(),
        "cannot read alert states: found version 6, expected 5"
    );
}

#[test]
fn states_of_earlier_versions_are_read() {
    for version in 1..SNAPSHOT_VERSION {
        let text = encode_snapshots(&example_of(&[None]));
        let title = format!("states {SNAPSHOT_VERSION}\n");
        let text = text.replace(&title, &format!("states {version}\n"));
        let (body, _) = text.split_once("checksum ").expect("the last line");
        let text = format!("{body}{}", model::text_file::checksum_line(body));
        assert_eq!(decode_snapshots(&text), Ok(example_of(&[None])));
    }
}

/// Lines of an own rule are not in the example, which is one of Prometheus.
#[test]
fn the_page_documents_the_lines_of_own_rules() {
    let rule = "[[rule]]\nname = \"Own\"\nselect = \"up\"\n[[rule.criteria]]\nseverity = 2\n\
                equals = 0\n";
    let mut node = SimulatedNode::new(rule);
    node.set("up{instance=\"a\"}", 0.0);
    node.step();
    let snapshots = vec![node.group.snapshot()];
    let text = encode_snapshots(&snapshots);
    assert!(text.contains("\ncriterion 0 2 "), "{text}");
    assert!(text.contains("\nrows_after 1700000000000000000\n"), "{text}");
    for line in ["criterion INDEX SEVERITY", "rows_after TIME", "began TIME", "mirrored_ended AT"] {
        assert!(PAGE.contains(&format!("| `{line}")), "{line}");
    }
    assert_eq!(decode_snapshots(&text), Ok(snapshots));
    // The begin by rows.
    let began = text.replacen("\ncriterion 0", "\nbegan 1699999999000000000\ncriterion 0", 1);
    let (body, _) = began.split_once("checksum ").expect("the last line");
    let began = format!("{body}{}", model::text_file::checksum_line(body));
    let read = decode_snapshots(&began).expect("as documented");
    assert_eq!(encode_snapshots(&read), began);
}

#[test]
fn the_page_documents_the_step_of_a_clock() {
    let rule = "[[rule]]\nname = \"Own\"\nselect = \"up\"\n[[rule.criteria]]\nseverity = 2\n\
                equals = 0\n";
    let mut node = SimulatedNode::new(rule);
    node.step();
    node.time_ns -= 60 * MINUTE;
    node.step();
    let snapshots = vec![node.group.snapshot()];
    let text = encode_snapshots(&snapshots);
    let line = "clock_step 1699996410000000000 1700000010000000000 1699996410000000000";
    assert!(text.contains(&format!("\n{line}\nrule Own")), "{text}");
    assert!(PAGE.contains("| `clock_step FROM UNTIL REACHED` |"));
    assert_eq!(decode_snapshots(&text), Ok(snapshots));
    // Ahead by an hour for one evaluation, then two minutes without one.
    for time_ns in [60 * MINUTE, -60 * MINUTE, 2 * MINUTE] {
        node.time_ns += time_ns;
        node.step();
    }
    let snapshots = vec![node.group.snapshot()];
    let text = encode_snapshots(&snapshots);
    for line in ["clock_gap", "clock_ahead"] {
        assert!(text.contains(&format!("\n{line} 1")), "{text}");
    }
    assert!(PAGE.contains("| `clock_gap BEFORE AFTER` |"));
    assert!(PAGE.contains("| `clock_ahead FROM UNTIL` |"));
    assert_eq!(decode_snapshots(&text), Ok(snapshots));
}

#[test]
fn names_with_blanks_and_empty_labels_survive() {
    let rules = "  - alert: \"a name\"\n    expr: up == 0\n    labels: {\"\\u00e9\": \"\"}\n";
    let text = with_rules(rules).replace("name: g", "name: \"two words\"");
    let mut node = SimulatedNode::new(&text);
    node.set("up{instance=\"%41 x\"}", 0.0);
    node.step();
    node.time_ns += SECOND;
    let snapshots = vec![node.group.snapshot()];
    assert_eq!(decode_snapshots(&encode_snapshots(&snapshots)), Ok(snapshots));
}

proptest! {
    /// The checksum stops a fuzzer; this test changes lines under a valid checksum, as a writer
    /// with a bug would.
    #[test]
    fn arbitrary_lines_are_read_or_rejected(
        changes in prop::collection::vec((any::<Index>(), 0u8..4, any::<Index>()), 0..6),
    ) {
        let text = encode_snapshots(&example());
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.pop();
        for (at, change, with) in changes {
            let at = at.index(lines.len());
            let other = lines[with.index(lines.len())].clone();
            match change {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, other),
                2 => lines[at] = other,
                _ => {
                    let cut = with.index(lines[at].len() + 1);
                    lines[at].truncate(cut);
                }
            }
            if lines.is_empty() {
                lines.push(String::new());
            }
        }
        let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let text = format!("{body}{}", model::text_file::checksum_line(&body));
        if let Ok(snapshots) = decode_snapshots(&text) {
            prop_assert_eq!(decode_snapshots(&encode_snapshots(&snapshots)), Ok(snapshots));
        }
    }
}

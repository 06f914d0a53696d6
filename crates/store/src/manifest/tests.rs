//! Tests of the manifest: round trips, damage, limits, older versions.

use super::*;

#[test]
fn a_flood_of_invented_producers_does_not_make_a_batch_of_another_sender_new() {
    let identity = |origin, producer| journal::BatchIdentity {
        producer: journal::with_origin(origin, producer),
        epoch: 1,
        sequence: 1,
    };
    let mut producers = ProducerTable::default();
    producers.record(identity(1, 1), 0);
    let flood = PRODUCERS_MAX as u64 + 5_000;
    let forgotten: u64 = (1..=flood).map(|n| producers.record(identity(2, n), n)).sum();
    assert!(producers.contains(identity(1, 1)), "its retry would count twice");
    assert!(producers.contains(identity(2, flood)) && !producers.contains(identity(2, 1)));
    assert_eq!(producers.0.len() as u64 + forgotten, flood + 1);
    assert!(producers.0.len() <= PRODUCERS_MAX);
}

fn example() -> Manifest {
    let mut manifest = Manifest {
        generation: 7,
        journal: Some(u128::MAX - 5),
        position: 99,
        series: 3,
        next_part: 12,
        retention: vec![RetentionRule {
            resolution: Resolution::FiveMinutes,
            duration: Some(5),
            selector: Selector::parse(r#"http{host=~"a b%.*"}"#).unwrap(),
        }],
        ..Manifest::default()
    };
    let identity = journal::BatchIdentity { producer: 1, epoch: u64::MAX, sequence: 5 };
    assert_eq!(manifest.producers.record(identity, 98), 0);
    for number in [3, 11] {
        manifest.parts.insert(
            number,
            PartInfo {
                number,
                resolution: Resolution::Hour,
                start: -5,
                end: 17,
                bytes: 1000,
                chunks: 2,
                rows: 40,
                covers: [(-DAY, [1, 2, 5].into()), (3 * DAY, [7].into())].into(),
                has_dropped_series: number == 11,
            },
        );
    }
    manifest.add_gap(Gap {
        start: 1,
        end: 2,
        producer: None,
        lost: Some(4),
        reason: "é 100 %\n".into(),
    });
    manifest
}

#[test]
fn manifests_round_trip() {
    let with_sections = Manifest { has_sections: true, ..example() };
    for manifest in [Manifest::default(), example(), with_sections] {
        let version = if manifest.has_sections { "topdeck store 4\n" } else { "topdeck store 3\n" };
        assert!(manifest.write().starts_with(version.as_bytes()));
        assert_eq!(Manifest::read(&manifest.write()), Ok(manifest));
    }
}

/// The manifest in version 1.
fn first_version(manifest: &Manifest) -> Vec<u8> {
    let text = String::from_utf8(manifest.write()).unwrap();
    let (body, _) = split_last_line(&text);
    let line = |line: &str| match line.split_once(' ') {
        Some(("part", rest)) => format!("part {}\n", rest.rsplit_once(' ').unwrap().0),
        _ => format!("{line}\n"),
    };
    let body: String = body.lines().map(line).collect();
    let body =
        body.replace(&format!("{TITLE}{VERSION_WITHOUT_SECTIONS}\n"), &format!("{TITLE}1\n"));
    format!("{body}{}", checksum_line(&body)).into_bytes()
}

#[test]
fn version_1_is_read_and_what_its_rules_may_have_dropped_is_looked_for() {
    let mut manifest = example();
    let mut check = |resolution, duration, expected: bool| {
        manifest.retention[0].resolution = resolution;
        manifest.retention[0].duration = duration;
        let read = Manifest::read(&first_version(&manifest)).unwrap();
        for part in manifest.parts.values_mut() {
            part.has_dropped_series = expected;
        }
        assert_eq!(read, manifest, "{resolution} {duration:?}");
        assert_eq!(Manifest::read(&read.write()), Ok(read));
    };
    check(Resolution::Hour, Some(5), true);
    check(Resolution::Hour, None, false);
    check(Resolution::Minute, Some(5), false);
}

#[test]
fn a_part_of_version_2_says_whether_rows_were_dropped() {
    for word in ["", " droppe", " - -"] {
        let text = String::from_utf8(example().write()).unwrap();
        let (body, _) = split_last_line(&text);
        let body = body.replace(" dropped\n", &format!("{word}\n"));
        let changed = format!("{body}{}", checksum_line(&body));
        assert!(Manifest::read(changed.as_bytes()).is_err(), "{word:?}");
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = example().write();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Manifest::read(&damaged).is_err_and(|reason| !reason.is_empty()), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(Manifest::read(&bytes[..len]).is_err());
    }
}

#[test]
fn batches_are_recorded_once() {
    let manifest = example();
    let identity = |epoch, sequence| journal::BatchIdentity { producer: 1, epoch, sequence };
    assert!(
        manifest.producers.contains(identity(u64::MAX, 5))
            && manifest.producers.contains(identity(u64::MAX, 4))
    );
    assert!(
        !manifest.producers.contains(identity(u64::MAX, 6))
            && !manifest.producers.contains(identity(3, 1))
    );
}

#[test]
fn gaps_with_distinct_reasons_are_bounded() {
    let mut manifest = Manifest::default();
    for at in 0..3 * GAPS_MAX as i64 {
        manifest.add_gap(Gap {
            start: at,
            end: at + 1,
            producer: None,
            lost: Some(1),
            reason: format!("a record was not taken in (position {at})"),
        });
    }
    assert!(manifest.gaps.len() <= GAPS_MAX);
    let lost = manifest.gaps.iter().map(|gap| gap.lost.unwrap()).sum::<u64>();
    assert_eq!(lost, 3 * GAPS_MAX as u64);
    let (first, last) = (
        manifest.gaps.iter().map(|gap| gap.start).min().unwrap(),
        manifest.gaps.iter().map(|gap| gap.end).max().unwrap(),
    );
    assert_eq!((first, last), (0, 3 * GAPS_MAX as i64));
}

#[test]
fn gap_limit_is_per_producer() {
    let mut manifest = Manifest::default();
    let gap = |producer, at: i64| Gap {
        start: at,
        end: at + 1,
        producer,
        lost: Some(1),
        reason: format!("a record was not taken in (position {at})"),
    };
    let others: Vec<Gap> = (0..10).map(|at| gap([None, Some(9)][at as usize % 2], at)).collect();
    others.iter().for_each(|gap| manifest.add_gap(gap.clone()));
    for at in 0..3 * GAPS_MAX as i64 {
        manifest.add_gap(gap(Some(7), at));
    }
    assert!(manifest.gaps.len() <= GAPS_MAX);
    assert!(others.iter().all(|gap| manifest.gaps.contains(gap)), "{:?}", manifest.gaps);
    let lost = manifest.gaps.iter().map(|gap| gap.lost.unwrap()).sum::<u64>();
    assert_eq!(lost, 3 * GAPS_MAX as u64 + 10);
}

#[test]
fn gaps_are_bounded() {
    let mut manifest = Manifest::default();
    for at in 0..3 * GAPS_MAX as i64 {
        manifest.add_gap(Gap {
            start: at,
            end: at + 1,
            producer: None,
            lost: Some(1),
            reason: "why".into(),
        });
    }
    assert!(manifest.gaps.len() <= GAPS_MAX);
    assert_eq!(manifest.gaps.iter().map(|gap| gap.lost.unwrap()).sum::<u64>(), 3 * GAPS_MAX as u64);
}

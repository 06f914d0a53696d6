//! Heatmaps of synthetic services and of edge cases.

use super::*;
use crate::svg::heatmap::document as svg;
use crate::terminal::heatmap::heatmap_text;
use crate::terminal::{ColourDepth, Terminal};
use expect_test::{Expect, expect};
use hist::{Histogram, Scheme};

const S: i64 = 1_000_000_000;
/// 2026-03-01 12:00:00 UTC.
const NOON: i64 = 1_772_366_400 * S;

/// Next number of splitmix64 (Vigna), scaled to 0..1.
fn next_unit(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as f64 / 2f64.powi(64)
}

/// A service with five latency modes, an incident and a gap. A column is 30 s.
fn service(columns: usize) -> Heatmap {
    let mut state = 7;
    let modes = [
        (0.25e6, 0.10, 0.30),
        (1.1e6, 0.12, 0.45),
        (6e6, 0.15, 0.2),
        (40e6, 0.1, 0.045),
        (300e6, 0.2, 0.005),
    ];
    let columns = (0..columns).map(|at| {
        let place = at as f64 / columns as f64;
        let unknown = (0.62..0.68).contains(&place);
        let incident = (0.38..0.52).contains(&place);
        let mut histogram = Histogram::new(Scheme::exp2(5).unwrap());
        let n = if unknown { 0.0 } else { 3000.0 * (1.0 + 0.5 * (place * 9.0).sin()) };
        for _ in 0..n as usize {
            let mut kind = next_unit(&mut state);
            let mode = modes.iter().find(|mode| {
                kind -= mode.2;
                kind < 0.0
            });
            let (middle, width, _) = *mode.unwrap_or(&modes[4]);
            let normal: f64 = (0..6).map(|_| next_unit(&mut state)).sum::<f64>() - 3.0;
            let mut value = middle * (normal * width * 1.4f64).exp();
            if incident && next_unit(&mut state) < 0.3 {
                value *= 8.0 + 60.0 * next_unit(&mut state);
            }
            histogram.record(value.round());
        }
        let mut values = MergedDistribution::default();
        values.add(&histogram).unwrap();
        let start = NOON + at as i64 * 30 * S;
        let gaps = match at {
            _ if unknown => vec!["the agent on host-3 was not heard".to_owned()],
            _ if at + 3 == columns => vec!["12 records lost at the producer".to_owned()],
            _ => Vec::new(),
        };
        HeatmapColumn { start, end: start + 30 * S, values, gaps }
    });
    Heatmap {
        title: "checkout, 5 kinds of answers".into(),
        unit: Some(Unit::Nanoseconds),
        columns: columns.collect(),
        thresholds: vec![100e6],
        warnings: Vec::new(),
    }
}

/// A column of ten seconds with these values.
fn column(at: i64, values: &[f64], gaps: &[&str]) -> HeatmapColumn {
    let mut histogram = Histogram::default();
    values.iter().for_each(|&value| histogram.record(value));
    let mut whole = MergedDistribution::default();
    if !values.is_empty() {
        whole.add(&histogram).unwrap();
    }
    let start = NOON + at * 10 * S;
    let gaps = gaps.iter().map(|&gap| gap.to_owned()).collect();
    HeatmapColumn { start, end: start + 10 * S, values: whole, gaps }
}

fn map(columns: Vec<HeatmapColumn>) -> Heatmap {
    Heatmap {
        title: "a <title> & more".into(),
        unit: Some(Unit::Nanoseconds),
        columns,
        thresholds: vec![1e6],
        warnings: Vec::new(),
    }
}

fn terminal(colours: ColourDepth) -> Terminal {
    Terminal { width: 60, raw_width: 60, height: 17, ascii: false, colour_depth: colours }
}

/// Compares the terminal output without colours. Also checks that the SVG is well-formed XML and
/// the same in each run.
#[track_caller]
fn check(map: &Heatmap, expected: Expect) {
    let picture = heatmap_text(map, &terminal(ColourDepth::None)).unwrap();
    expected.assert_eq(&picture);
    let maps = [map.clone(), map.clone()];
    let file = svg(&maps).unwrap();
    assert_eq!(file, svg(&maps).unwrap());
    assert_well_formed(&file);
    for colours in [ColourDepth::Ansi16, ColourDepth::Ansi256, ColourDepth::TrueColour] {
        let coloured = heatmap_text(map, &terminal(colours)).unwrap();
        assert!(picture_lines(&coloured).all(|line| width(line) <= 60), "{coloured}");
    }
}

/// Lines of the plot area.
fn picture_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.contains(['│', '┤', '└']))
}

/// Number of visible characters of a line.
fn width(line: &str) -> usize {
    let rest = line.split('\x1b').enumerate().map(|(at, part)| match at {
        0 => part,
        _ => part.split_once('m').expect("an escape ends").1,
    });
    rest.map(|part| part.chars().count()).sum()
}

/// Asserts that elements are closed in order and that text and attributes contain no markup.
#[track_caller]
fn assert_well_formed(xml: &str) {
    let mut open = Vec::new();
    let mut rest = xml;
    while let Some(from) = rest.find('<') {
        let words = &rest[..from];
        assert!(!words.contains('>'), "{words}");
        for entity in words.split('&').skip(1) {
            assert!(
                ["amp;", "lt;", "gt;", "quot;"].iter().any(|e| entity.starts_with(e)),
                "{words}"
            );
        }
        let to = from + rest[from..].find('>').expect("a tag ends");
        let tag = &rest[from + 1..to];
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        assert!(!tag.contains("NaN") && !tag.contains("inf"), "{tag}");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split(' ').next().unwrap_or(tag)),
        }
        rest = &rest[to + 1..];
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn an_incident_and_a_gap() {
    let quiet = [0.9e6, 1.0e6, 1.1e6, 1.2e6, 6e6, 6.5e6];
    let slow = [1.0e6, 1.2e6, 6e6, 300e6, 400e6, 2.1e9];
    let columns = (0..12).map(|at| match at {
        5 | 6 => column(at, &slow, &[]),
        7 => column(at, &[], &["the agent on host-3 was not heard"]),
        8 => column(at, &[], &["the agent on host-3 was not heard", "12 records were lost"]),
        9 => column(at, &quiet, &["12 records were lost"]),
        11 => column(at, &[], &[]),
        _ => column(at, &quiet, &[]),
    });
    check(
        &map(columns.collect()),
        expect![[r#"
            a <title> & more
              54 values, max 2.1 s in the column from 2026-03-01 12:00:50Z
              between 38 and 47 of 54 (70.37 to 87.04 %) took longer than 1 ms, likely 40

                      │                    ▁▁▁▁▁▁▁▁
                  1 s ┤                    ········ ? ? ? ?
                      │                    ········? ? ? ?
                      │                    ········ ? ? ? ?
               100 ms ┤                            ? ? ? ?
                      │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁         ? ? ? ?▁▁▁▁▁▁▁▁
                10 ms ┤····················        ? ? ? ? ········
                      │···························· ? ? ? ?········
                 1 ms ┤████████████████████▒▒▒▒▒▒▒▒? ? ? ? ████████
              missing ┤                            ????????????
                      └┬───────────────────────┬──────────────────────┬
                     12:00                   12:01                12:02
              values per cell  · 1  ▒ 2  ▓ 3  █ 4+    ▁ maximum
              2026-03-01 12:00:00Z to 2026-03-01 12:02:00Z; column width 10 s
              ? 3 of 12 columns have gaps, 2 have no data; first 2026-03-01 12:01:10Z
                the agent on host-3 was not heard (2 columns)
                12 records were lost (2 columns)
        "#]],
    );
}

#[test]
fn empty_heatmap() {
    check(
        &map(Vec::new()),
        expect![[r#"
            a <title> & more
              0 values

        "#]],
    );
    check(
        &map(vec![column(0, &[], &[]), column(1, &[], &[])]),
        expect![[r#"
            a <title> & more
              0 values

                      │(no values to draw)
                      └┬───────────────────────┬──────────────────────┬
                   12:00:00                12:00:10            12:00:20
              2026-03-01 12:00:00Z to 2026-03-01 12:00:20Z; column width 10 s
        "#]],
    );
}

#[test]
fn gaps_only() {
    let columns = (0..4).map(|at| column(at, &[], &["nobody was there"]));
    check(
        &map(columns.collect()),
        expect![[r#"
            a <title> & more
              0 values

                      │(no values to draw)
              missing ┤????????????????????????????????????????????????
                      └┬─────────────────┬─────────────────┬───────────
                   12:00:00          12:00:15          12:00:30
              2026-03-01 12:00:00Z to 2026-03-01 12:00:40Z; column width 10 s
              ? no data for 4 of 4 columns; first 2026-03-01 12:00:00Z
                nobody was there (4 columns)
        "#]],
    );
}

#[test]
fn single_value() {
    check(
        &map(vec![column(0, &[5e6], &[])]),
        expect![[r#"
        a <title> & more
          1 value, max 5 ms in the column from 2026-03-01 12:00:00Z
          1 of 1 (100 %) took longer than 1 ms

                  │
             7 ms ┤
             6 ms ┤
                  │
                  │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
             5 ms ┤█████████████████████████████████████████████████
                  │
             4 ms ┤
                  │
                  └┬───────────────────────┬───────────────────────┬
               12:00:00                12:00:05             12:00:10
          values per cell  █ 1+    ▁ maximum
          2026-03-01 12:00:00Z to 2026-03-01 12:00:10Z; column width 10 s
    "#]],
    );
}

#[test]
fn values_outside_a_logarithmic_axis() {
    let odd = [0.0, -3.0, f64::INFINITY, 2e6];
    check(
        &map(vec![column(0, &odd, &[]), column(1, &[1e6, 0.0], &[])]),
        expect![[r#"
        a <title> & more
          6 values, max infinity in the column from 2026-03-01 12:00:00Z
          2 of 6 (33.33 %) took longer than 1 ms

                  │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         infinite ┤████████████████████████
             2 ms ┤████████████████████████
                  │
                  │
           1.5 ms ┤
                  │
                  │
                  │                        ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
             1 ms ┤                        ████████████████████████
                0 ┤████████████████████████████████████████████████
              < 0 ┤████████████████████████
                  └┬───────────────────────┬──────────────────────┬
               12:00:00                12:00:10            12:00:20
          values per cell  █ 1+    ▁ maximum
          2026-03-01 12:00:00Z to 2026-03-01 12:00:20Z; column width 10 s
    "#]],
    );
}

#[test]
fn grids_that_do_not_nest() {
    let mut foreign = Histogram::new(Scheme::explicit(&[5e6, 10e6, 100e6]).unwrap());
    for value in [1e6, 7e6, 50e6, 200e6] {
        foreign.record_n(value, 100);
    }
    // A histogram without minimum and maximum.
    let mut parts = foreign.into_parts();
    (parts.min, parts.max) = (hist::TrackedValue::Absent, hist::TrackedValue::Absent);
    let foreign = Histogram::from_parts(parts).unwrap();
    let mut both = column(0, &[20e6, 30e6], &[]);
    both.values.add(&foreign).unwrap();
    assert_eq!(both.values.components().len(), 2);
    check(
        &map(vec![both, column(1, &[20e6], &[])]),
        expect![[r#"
        a <title> & more
          403 values, max > 100 ms (100.0 ms to infinity) in the column from 2026-03-01 12:00:00Z
          between 303 and 403 of 403 (75.19 to 100 %) took longer than 1 ms, likely 383

                  │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         > 100 ms ┤████████████████████████
           100 ms ┤▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓
                  │▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓
                  │▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓
                  │▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
                  │▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓························
                  │▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓
            10 ms ┤████████████████████████
                  │████████████████████████
           ≤ 5 ms ┤████████████████████████
                  └┬───────────────────────┬──────────────────────┬
               12:00:00                12:00:10            12:00:20
          values per cell  · 1+  ░ 3+  ▒ 7+  ▓ 16+  █ 40+    ▁ maximum
          2026-03-01 12:00:00Z to 2026-03-01 12:00:20Z; column width 10 s
    "#]],
    );
}

#[test]
fn excess_columns_are_merged_exactly() {
    let columns: Vec<HeatmapColumn> = (0..101)
        .map(|at| column(at, &[1e6 + at as f64], if at == 7 { &["why"] } else { &[] }))
        .collect();
    let map = map(columns);
    let fitted = map.fit_columns(50).unwrap();
    assert_eq!((fitted.columns.len(), fitted.merged), (34, 3));
    let counts: Vec<u64> = fitted.columns.iter().map(|column| column.values.count()).collect();
    assert_eq!((counts.iter().sum::<u64>(), counts[0], counts[33]), (101, 3, 2));
    assert_eq!(fitted.columns[2].gaps, ["why"]);
    assert_eq!(fitted.columns[33].end, NOON + 1010 * S);
    assert_eq!(fitted.columns[0].values.max().unwrap(), Bracket::exact(1e6 + 2.0));
}

#[test]
fn gap_reasons_are_escaped() {
    let map = map(vec![column(0, &[], &["\u{1b}]0;t\u{7}"])]);
    let picture = heatmap_text(&map, &terminal(ColourDepth::None)).unwrap();
    assert!(picture.chars().all(|c| c == '\n' || !c.is_control()), "{picture:?}");
    assert!(svg(&[map]).unwrap().chars().all(|c| c == '\n' || !c.is_control()));
}

#[test]
fn colours_are_half_blocks() {
    let map = map(vec![column(0, &[1e6, 2e6], &[]), column(1, &[1e6], &[])]);
    let small = Terminal {
        width: 40,
        raw_width: 13,
        height: 1,
        ascii: false,
        colour_depth: ColourDepth::TrueColour,
    };
    let picture = heatmap_text(&map, &small).unwrap().replace('\x1b', "␛");
    expect![[r#"
        ␛[1ma <title> & more␛[0m
          3 values, max 2 ms in the column from 2026-03-01 12:00:00Z
          between 1 and 2 of 3 (33.33 to 66.67 %) took longer than 1 ms, likely 2

                  │␛[0;38;2;255;85;85m▄␛[0m
             2 ms ┤␛[0;38;2;253;231;37m▀␛[0m
                  │
                  │
           1.5 ms ┤
                  │
                  │
                  │
             1 ms ┤␛[0;38;2;253;231;37m▄␛[0;38;2;255;85;85;48;2;253;231;37m▀␛[0m
                  └┬─
             12:00:00
          values per cell  ␛[0;38;2;253;231;37m██␛[0m 1    ␛[0;38;2;255;85;85m▀▀␛[0m maximum
        ␛[2m  2026-03-01 12:00:00Z to 2026-03-01 12:00:20Z; column width 10 s␛[0m
    "#]]
    .assert_eq(&picture);
}

#[test]
fn a_large_picture_is_a_small_file() {
    let file = svg(&[service(200)]).unwrap();
    assert!(file.len() < 200_000, "{}", file.len());
    assert_well_formed(&file);
    // Noise: no two neighbouring cells have the same colour.
    let mut state = 1;
    let columns = (0..200).map(|at| {
        let values: Vec<f64> =
            (0..2000).map(|_| 10f64.powf(9.0 * next_unit(&mut state)).round()).collect();
        column(at, &values, &[])
    });
    let file = svg(&[map(columns.collect())]).unwrap();
    assert!(file.len() < 1_000_000, "{}", file.len());
}

/// Heatmap and query answered the same question with 2,979 and 2,982.
#[test]
fn count_above_a_threshold_is_estimated_from_all_values() {
    let columns: Vec<HeatmapColumn> =
        (0..7).map(|at| column(at, &[0.99e6, 1.0e6, 1.01e6], &[])).collect();
    let mut all = MergedDistribution::default();
    columns.iter().for_each(|column| all.merge(&column.values).unwrap());
    let whole = all.count_above(1.0e6);
    assert!(!whole.is_exact(), "the threshold is inside a bucket: {whole:?}");
    assert_eq!(map(columns).count_above(1.0e6).estimate, whole.estimate);
}

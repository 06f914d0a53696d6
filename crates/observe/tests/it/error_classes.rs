//! Servers choose the classes of errors: the number of their series is bounded, and histograms and
//! counters have the same ones.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::conversation::HttpConnection;
use crate::fixture::WireFixture;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;
/// Classes that are counted apart, and `other`.
const CLASSES_MAX: usize = 65;

#[test]
fn classes_are_bounded_over_all_intervals_and_statements() {
    let fixture = WireFixture::new(Duration::from_secs(10));
    let mut connection = HttpConnection::new(40_000, START);
    let mut time = START;
    // Each second has four classes that never come back, and one that does.
    for second in 0..40 {
        for error in 0..5 {
            time = START + (second + 1) * SECOND + error * 10_000;
            let command = if error % 2 == 0 { "GET" } else { "DEL" };
            let request = format!("*2\r\n$3\r\n{command}\r\n$1\r\na\r\n");
            let letters = match error {
                4 => "AGAIN".to_owned(),
                _ => [second / 20, second % 20, error]
                    .map(|n| (b'A' + n as u8) as char)
                    .iter()
                    .collect(),
            };
            connection.message(time, true, request.as_bytes());
            connection.message(time + 1_000, false, format!("-{letters} no\r\n").as_bytes());
        }
    }
    let keys = "protocols = []\nservices = ['cache=8080/redis']";
    fixture.capture(keys, connection.into_packets()).stop().unwrap();
    let rows = fixture.contents();
    let last = *rows.ends().last().unwrap();
    assert!(rows.ends().len() >= 4 && last >= time as i64, "{:?}", rows.ends());
    let of = |metric: &str| -> BTreeSet<&str> {
        let series = rows.rows.iter().map(|(series, _)| series);
        series.filter(|one| one.name() == metric).filter_map(|one| one.label("error")).collect()
    };
    let classes = of("wire_latency");
    assert_eq!(classes.len(), CLASSES_MAX);
    assert_eq!(classes, of("wire_errors_total"));
    let count = |class: &str| {
        let labels = [("error", class)];
        let counted = rows.number_at(last, "wire_errors_total", &labels);
        assert_eq!(rows.distribution("wire_latency", &labels).count() as f64, counted, "{class}");
        counted
    };
    assert_eq!(classes.iter().map(|class| count(class)).sum::<f64>(), 200.0);
    assert_eq!((count("AGAIN"), count("other")), (40.0, 97.0));
}

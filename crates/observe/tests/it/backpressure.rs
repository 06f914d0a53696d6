//! Intervals that the journal does not accept are part of a later one, and lost gauges are
//! reported.

use std::time::Duration;

use intake::Supervisor;
use journal::{Level, Limits, StartPosition};

use crate::conversation::HttpConnection;
use crate::fixture::{WireFixture, wait};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;

#[test]
fn a_rejected_interval_is_part_of_the_next_one() {
    let limits = Limits { bytes_max: Some(1 << 20), ..journal::Settings::default().limits };
    let fixture = WireFixture::with(Duration::from_secs(10), limits, Supervisor::default());
    fixture.journal.add_subscriber("slow", StartPosition::First, true).unwrap();
    let filler = vec![b'x'; 16 << 10];
    while fixture.journal.append(&filler, Level::Process).is_ok() {}
    let mut connection = HttpConnection::new(40_000, START);
    for request in 0..40 {
        let time = START + (request + 1) * SECOND;
        connection.request(time, "/a");
        connection.response(time + 1_000, "200 OK");
    }
    let keys = "protocols = []\nservices = ['web=8080/http']";
    let capture = fixture.capture_at_once(keys, connection.into_packets());
    let meter = fixture.intake.meter();
    let deferred = meter.counter("topdeck_wire_deferred_intervals_total", "", &[]);
    wait("an interval is deferred", || deferred.get() >= 1);
    let mut slow = fixture.journal.subscribe("slow").unwrap();
    while slow.next().unwrap().is_some() {}
    let read = slow.position();
    slow.commit(read, Level::Disk).unwrap();
    capture.stop().unwrap();
    let rows = fixture.contents();
    assert_eq!(rows.distribution("wire_latency", &[]).count(), 40);
    let first = rows.samples("wire_latency", &[]).next().unwrap();
    assert_eq!(first.start, START as i64, "the row includes the rejected interval");
    assert!(first.end > (START + 10 * SECOND) as i64);
    let gap = rows.gaps.iter().find(|gap| gap.reason.starts_with("backpressure")).unwrap();
    assert!(gap.lost.is_some_and(|lost| lost > 0) && gap.end <= first.end, "{gap:?}");
}

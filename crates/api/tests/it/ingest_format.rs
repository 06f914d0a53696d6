//! The worked example of an ingest format in a server.

use api::IngestFormatRow;
use model::SampleValue;

use crate::fixture::ServerFixture;
use crate::laps::LapFormat;

const FORMATS: &[IngestFormatRow] = &[IngestFormatRow::of::<LapFormat>()];

#[test]
fn its_requests_are_stored() {
    let mut server = ServerFixture::with_formats(FORMATS);
    let taken = server.post("/v1/laps?prefix=race_", "", "first;12.5\nsecond;7.5\n");
    assert_eq!((taken.status, taken.text().as_str()), (200, "{\"laps\":2}\n"));
    let rows = server.rows("race_second");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].1.value, SampleValue::Number(7.5));
    // Its producer, its route and its metric.
    let audit = server.intake.audit().unwrap();
    assert!(audit.producers.iter().any(|account| account.name == "laps"));
    let measured = server.intake.meter().snapshot();
    let is_route = |(name, value): &(String, String)| name == "route" && value == "/v1/laps";
    assert!(measured.iter().any(|one| {
        one.name == "topdeck_http_request_duration" && one.labels.iter().any(is_route)
    }));
    let document = server.request("GET", "/v1/openapi.json", "", b"").text();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["paths"]["/v1/laps"]["post"]["summary"], "Takes times of laps.");
    assert!(server.stop());
}

#[track_caller]
fn check(path: &str, body: &str, expected: &str) {
    let server = ServerFixture::with_formats(FORMATS);
    server.post(path, "", body).check(400, expected);
    assert!(server.rows("first").is_empty(), "nothing of the body is taken");
}

#[test]
fn errors_have_a_response() {
    let no_semicolon = "cannot read line 2: no semicolon; send name;milliseconds";
    check("/v1/laps", "first;1\nsecond", no_semicolon);
    check("/v1/laps", "first;1\nsecond;x", "cannot read line 2: no number after the semicolon");
    check("/v1/laps", "first;1\n;2", "cannot store line 2: ");
    check("/v1/laps?prefx=a", "first;1", "; allowed: prefix");
}

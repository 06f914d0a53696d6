//! Tests of scrapes.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use pull::{ScrapeJobSettings, Settings};

use crate::fixture::{PullFixture, TestTarget, http_response, text_response};

pub(crate) fn scrape(url: String) -> ScrapeJobSettings {
    ScrapeJobSettings {
        name: "j".to_owned(),
        url,
        interval: Duration::from_millis(100),
        timeout: Duration::from_millis(100),
        ..ScrapeJobSettings::default()
    }
}

/// Runs one attempt with a long timeout.
pub(crate) fn once_with_long_timeout(url: String) -> ScrapeJobSettings {
    let long = Duration::from_secs(60);
    ScrapeJobSettings { interval: long, timeout: long, ..scrape(url) }
}

pub(crate) fn settings_with(scrape: ScrapeJobSettings) -> Settings {
    Settings { scrapes: vec![scrape], ..Settings::default() }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Runs one attempt; returns the stored lines of series and values without the report metrics.
#[track_caller]
fn check_page(headers: &str, body: &[u8], expected: &[&str]) {
    let bytes = http_response("200 OK", headers, body);
    let server = TestTarget::new(move |_| bytes.clone());
    let mut world = PullFixture::new();
    let labels = vec![("env".to_owned(), "test".to_owned())];
    world.start(&settings_with(ScrapeJobSettings {
        labels,
        ..once_with_long_timeout(server.url())
    }));
    world.wait("scrape", "success", 1);
    world.stop();
    let labels = format!("env=\"test\",instance=\"{}\",job=\"j\"", server.address);
    let all = world.values();
    let of = |name: &str| all[&format!("{name}{{{labels}}}")][0].clone();
    assert_eq!(
        [of("up"), of("scrape_samples_scraped")],
        ["1".to_owned(), expected.len().to_string()]
    );
    let is_report = |name: &str| name.starts_with("up{") || name.starts_with("scrape_");
    let page = all.iter().filter(|(series, _)| !is_report(series));
    let shown: Vec<_> = page
        .map(|(series, values)| format!("{} {}", series.replace(&labels, "…"), values[0]))
        .collect();
    assert_eq!(shown, expected);
}

const HISTOGRAM: &str =
    "# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 3\nh_count 3\nh_sum 4\n";

#[test]
fn text_is_read() {
    let page = format!("# TYPE a counter\na{{b=\"c\"}} 3\n{HISTOGRAM}up_to 7 1700000000000\n");
    check_page(
        "content-type: text/plain; version=0.0.4\r\n",
        HISTOGRAM.as_bytes(),
        &["h{…} 3 values"],
    );
    check_page("", b"a 3\nb 4 1700000000000\n", &["a{…} 3", "b{…} 4"]);
    check_page(
        "content-type: text/plain\r\n",
        page.as_bytes(),
        &["a{b=\"c\",…} 3", "h{…} 3 values", "up_to{…} 7"],
    );
}

#[test]
fn openmetrics_is_read() {
    let page = b"# TYPE a counter\na_total 3 # {id=\"7\"} 1\na_created 1700000000\n# EOF\n";
    check_page(
        "content-type: application/openmetrics-text; version=1.0.0\r\n",
        page,
        &["a_total{…} 3"],
    );
}

#[test]
fn gzip_is_decompressed() {
    let headers = "content-type: text/plain\r\ncontent-encoding: gzip\r\n";
    check_page(headers, &gzip(b"a 3\n"), &["a{…} 3"]);
}

#[test]
fn protobuf_scrape_stores_native_histograms() {
    let page = include_bytes!("../../../../testdata/decode/prometheus/scrape.pb");
    let headers = "content-type: application/vnd.google.protobuf; \
                   proto=io.prometheus.client.MetricFamily; encoding=delimited\r\n";
    let bytes = http_response("200 OK", headers, page);
    let server = TestTarget::new(move |_| bytes.clone());
    let mut world = PullFixture::new();
    world.start(&settings_with(once_with_long_timeout(server.url())));
    world.wait("scrape", "success", 1);
    world.stop();
    let (rows, _) = world.stored();
    let (series, sample) = rows.iter().find(|(series, _)| series.name() == "both_seconds").unwrap();
    assert_eq!((series.unit(), series.label("job")), ("s", Some("j")));
    let model::SampleValue::Histogram(histogram) = &sample.value else { panic!("{sample:?}") };
    // The source's buckets: they grow by a factor of 2^(1/8).
    assert_eq!(histogram.count(), 3);
    let cell = histogram.cells().next().unwrap();
    assert!((cell.upper / cell.lower - 2f64.powf(0.125)).abs() < 1e-9, "{cell:?}");
    // A scraped label that conflicts with a job label, and a scraped timestamp.
    let (series, sample) = rows.iter().find(|(series, _)| series.name() == "sent_total").unwrap();
    assert_eq!((series.label("job"), series.label("exported_job")), (Some("j"), Some("api")));
    assert_eq!(sample.end, 1_700_000_000_000_000_000);
}

/// Runs one failing attempt: only the failure and its reason are stored.
#[track_caller]
fn probe_failure_reason(bytes: Vec<u8>, why: &str) {
    let server = TestTarget::new(move |_| bytes.clone());
    let mut world = PullFixture::new();
    world.start(&settings_with(ScrapeJobSettings {
        bytes_max: 1000,
        ..once_with_long_timeout(server.url())
    }));
    world.wait("scrape", "failed", 1);
    world.stop();
    let values = world.values();
    assert_eq!(values.len(), 6, "{values:?}");
    assert_eq!([world.values_of("up"), world.values_of("scrape_samples_scraped")], [["0"], ["0"]]);
    let said = world.values_of("scrape_error");
    assert!(said[0].contains(why), "{said:?}");
}

#[test]
fn invalid_response_is_a_failure() {
    let mut running = Vec::new();
    let mut check = |bytes: Vec<u8>, why: &'static str| {
        running.push(std::thread::spawn(move || probe_failure_reason(bytes, why)));
    };
    let text_with = |body: &[u8]| http_response("200 OK", "content-type: text/plain\r\n", body);
    check(http_response("200 OK", "content-type: text/html\r\n", b"<p>a 1</p>"), "HTML");
    check(
        http_response("302 Found", "location: /other\r\n", b""),
        "302 Found; redirects are not followed",
    );
    check(http_response("404 Not Found", "", b"a 1\n"), "HTTP 404 Not Found");
    check(text_with(b"a 1\nb{ 2\nc 3\n"), "cannot parse the response: line 2");
    check(text_with(b"a 1\nb x\n"), "cannot parse the response: line 2");
    check(text_with(&b"a 1\n".repeat(1000)), "exceeds 1000 bytes");
    let packed = "content-encoding: gzip\r\n";
    check(http_response("200 OK", packed, &gzip(&b"a 1\n".repeat(1000))), "exceeds 1000 bytes");
    check(http_response("200 OK", packed, b"a 1\n"), "cannot decompress gzip");
    check(http_response("200 OK", "content-encoding: br\r\n", b"a 1\n"), "\"br\"");
    let openmetrics = "content-type: application/openmetrics-text\r\n";
    check(http_response("200 OK", openmetrics, b"a 1\n"), "# EOF");
    let protobuf = "content-type: application/vnd.google.protobuf; encoding=delimited\r\n";
    check(http_response("200 OK", protobuf, b"\x09\x0a"), "cannot parse the response: byte 0");
    let mut cut = text_with(b"a 1\nb 2\n");
    cut.truncate(cut.len() - 2);
    check(cut, "no response from");
    check(Vec::new(), "no response from");
    running.into_iter().for_each(|one| one.join().unwrap());
}

#[test]
fn slow_scrape_times_out() {
    let server = TestTarget::new(|_| {
        loop {
            std::thread::park();
        }
    });
    let mut world = PullFixture::new();
    world.start(&settings_with(scrape(server.url())));
    world.wait("scrape", "failed", 1);
    world.stop();
    // After 200 ms the connection itself gives up, if this machine stalls for so long.
    let error = &world.values_of("scrape_error")[0];
    let address = server.url().replace("http://", "").replace("/metrics", "");
    let of_connection = format!("no response from {address}: timed out after 200 ms");
    assert!([&of_connection, "no response within 100 ms"].contains(&error.as_str()), "{error}");
    assert!(world.values_of("scrape_duration_seconds")[0].parse::<f64>().unwrap() >= 0.1);
}

#[test]
fn invalid_samples_are_skipped_alone() {
    let page = "# TYPE h histogram\nh_bucket{le=\"1\"} 5\nh_bucket{le=\"+Inf\"} 3\na \
                1\nb{c=\"1\",c=\"2\"} 1\n";
    let server = TestTarget::new(move |_| text_response(page));
    let mut world = PullFixture::new();
    world.start(&settings_with(once_with_long_timeout(server.url())));
    world.wait("scrape", "success", 1);
    world.stop();
    assert_eq!(
        [world.values_of("up"), world.values_of("a"), world.values_of("b")],
        [&["1"][..], &["1"], &[]]
    );
    assert_eq!(world.values_of("scrape_samples_scraped"), ["3"]);
    assert_eq!(world.values_of("scrape_samples_post_metric_relabeling"), ["1"]);
    let refused =
        world.intake.meter().counter("topdeck_pull_rejected_samples_total", "", &[("job", "j")]);
    assert_eq!(refused.get(), 2);
}

#[test]
fn missing_series_are_marked_stale() {
    let server = TestTarget::new(|number| match number {
        0 => text_response(&format!("a 1\nb 2\nc 3 1700000000000\n{HISTOGRAM}")),
        1 => text_response("a 4\n"),
        _ => Vec::new(),
    });
    let mut world = PullFixture::with_running_clock(&journal::Settings::default());
    let long = Duration::from_secs(1);
    world.start(&settings_with(ScrapeJobSettings {
        interval: long,
        timeout: long,
        ..once_with_long_timeout(server.url())
    }));
    world.wait("scrape", "failed", 2);
    world.stop();
    assert_eq!(world.values_of("a"), ["1", "4", "ended"]);
    assert_eq!(world.values_of("b"), ["2", "ended"]);
    // The sample has its own timestamp.
    assert_eq!(world.values_of("c"), ["3"]);
    assert_eq!(world.values_of("h"), ["3 values", "ended"]);
    assert_eq!(world.values_of("up")[..4], ["1", "1", "0", "0"]);
    assert_eq!(world.values_of("scrape_series_added")[..3], ["3", "0", "0"]);
}

#[test]
fn request_names_the_scraper() {
    let server = TestTarget::new(|_| text_response("a 1\n"));
    let mut world = PullFixture::new();
    let token = Some("secret".to_owned());
    world
        .start(&settings_with(ScrapeJobSettings { token, ..once_with_long_timeout(server.url()) }));
    world.wait("scrape", "success", 1);
    world.stop();
    let head = server.heads()[0].to_ascii_lowercase();
    assert!(head.starts_with("get /metrics http/1.1\r\n"), "{head}");
    for line in [
        "authorization: bearer secret",
        "accept-encoding: gzip",
        "x-prometheus-scrape-timeout-seconds: 60",
        &format!("host: {}", server.address),
    ] {
        assert!(head.contains(&format!("{line}\r\n")), "{line} is not in {head}");
    }
}

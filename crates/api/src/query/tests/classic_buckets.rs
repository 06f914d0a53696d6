//! Classic histograms of remote write 1: counters of buckets as distributions.

use std::sync::Arc;

use axum::body::Body;
use decode::SeriesSink as _;
use hist::Histogram;
use hist::codec::header::Temporality;
use http::{Request, StatusCode};
use model::{Sample, SampleValue, Series, SeriesKind};
use serde_json::{Value, json};
use store::Resolution;

use crate::query_service::QueryServiceSettings;
use crate::test_server::{NOW, TestServer, empty_store};

/// Samples of a request.
const SAMPLES_AT_ONCE: usize = 1_000;
/// Requests of a minute up to a bound, of a program before and after its bounds change.
const OLD: [(&str, u32); 3] = [("0.1", 60), ("1", 98), ("+Inf", 100)];
const NEW: [(&str, u32); 3] = [("0.25", 90), ("1", 98), ("+Inf", 100)];

/// Time of a scrape: the twelfth one is now.
fn at(minute: i64) -> i64 {
    NOW - (12 - minute) * store::MINUTE
}

fn empty_server() -> TestServer {
    TestServer::with_store(empty_store(), QueryServiceSettings::default())
}

/// Sends samples as remote write 1: they do not say when their counters began.
fn send(server: &TestServer, samples: impl IntoIterator<Item = (Series, i64, f64)>) {
    let intake = &server.context.intake;
    let samples: Vec<(Series, i64, f64)> = samples.into_iter().collect();
    for some in samples.chunks(SAMPLES_AT_ONCE) {
        let mut writer = intake.writer(intake::SeriesKeyEncoding::CANONICAL);
        for (series, end, value) in some {
            writer.series(&series.canonical_key(), &mut || Ok(series.clone())).unwrap();
            let value = SampleValue::Number(*value);
            writer.sample(&Sample { start: *end, end: *end, value }).unwrap();
        }
        intake.append(&intake.producer("server"), writer).unwrap().wait_durable().unwrap();
    }
}

fn counter(name: &str, labels: &[(&str, &str)]) -> Series {
    let series = Series::new(name, SeriesKind::Counter(Temporality::Cumulative));
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    series.with_labels(labels).validate().unwrap()
}

fn bucket(bound: &str, zone: &str) -> Series {
    counter("x_seconds_bucket", &[("le", bound), ("zone", zone)])
}

/// Scrape of a program that has counted for so many minutes.
fn scrape(
    rates: &[(&str, u32)],
    zone: &str,
    (minute, counted): (i64, u32),
) -> Vec<(Series, i64, f64)> {
    let sample =
        |(bound, rate): &(&str, u32)| (bucket(bound, zone), at(minute), f64::from(rate * counted));
    rates.iter().map(sample).collect()
}

/// Scrapes from one minute to another of a program that was started a minute before the first one.
fn send_scrapes(server: &TestServer, rates: &[(&str, u32)], zone: &str, minutes: [i64; 2]) {
    let scrapes = (1..).zip(minutes[0]..=minutes[1]);
    send(server, scrapes.flat_map(|(counted, minute)| scrape(rates, zone, (minute, counted))));
}

/// Histograms of remote write 1 were not in the page's list of metrics, and "Split by label" found
/// that all series have the same labels.
#[tokio::test]
async fn a_classic_histogram_and_its_labels_are_listed_by_its_name() {
    let server = empty_server();
    send_scrapes(&server, &OLD, "a", [1, 2]);
    send_scrapes(&server, &NEW, "b", [1, 2]);
    let histogram = json!({
        "name": "x_seconds", "kind": "cumulative-histogram", "unit": "s", "series": 2
    });
    let names = server.json("/v1/metric_names?search=X_SEC").await;
    assert_eq!(names["names"][0], histogram, "{names}");
    assert_eq!(names["names"][1]["name"], "x_seconds_bucket", "{names}");
    let names = server.json("/v1/metric_names?selector=x_seconds{zone=\"a\"}").await;
    assert_eq!((&names["total"], &names["names"][0]["series"]), (&1.into(), &1.into()), "{names}");
    let labels = server.json("/v1/labels?selector=x_seconds").await;
    let zone = json!([{"name": "zone", "values": 2, "series": 2}]);
    assert_eq!(labels["labels"], zone, "{labels}");
    let values = server.json("/v1/label/zone/values?selector=x_seconds").await;
    let both = json!([{"value": "a", "series": 1}, {"value": "b", "series": 1}]);
    assert_eq!(values["values"], both, "{values}");
    // Those of the counters are as before.
    let labels = server.json("/v1/labels?selector=x_seconds_bucket").await;
    let zone = json!([
        {"name": "le", "values": 4, "series": 6}, {"name": "zone", "values": 2, "series": 6}
    ]);
    assert_eq!(labels["labels"], zone, "{labels}");
}

/// The page had no exemplar of a histogram of remote write 1: its buckets have them.
#[tokio::test]
async fn exemplars_of_buckets_are_those_of_the_histogram() {
    let server = empty_server();
    send_scrapes(&server, &OLD, "a", [1, 12]);
    let intake = &server.context.intake;
    let mut writer = intake.writer(intake::SeriesKeyEncoding::CANONICAL);
    for (bound, value, trace) in [("0.1", 0.07, 1), ("1", 0.7, 2), ("+Inf", 3.0, 3)] {
        let exemplar = model::Exemplar {
            time: at(10),
            value,
            trace_id: [trace; 16],
            span_id: [0; 8],
            attributes: model::ExemplarAttributes::default(),
            source: model::ExemplarSource::RemoteWrite,
        };
        let series = bucket(bound, "a");
        let key = series.canonical_key();
        assert!(writer.exemplar(&key, &mut || Ok(series.clone()), &exemplar));
    }
    intake.append(&intake.producer("server"), writer).unwrap().wait_durable().unwrap();
    let answer = server.json("/v1/exemplars?selector=x_seconds&above=100ms&from=-10m").await;
    let found: Vec<Value> = answer["exemplars"].as_array().unwrap().clone();
    let mut values: Vec<f64> = found.iter().map(|one| one["value"].as_f64().unwrap()).collect();
    values.sort_by(f64::total_cmp);
    assert_eq!((values, &answer["series"]), (vec![0.7, 3.0], &json!(1)), "{answer}");
    for one in &found {
        assert_eq!((&one["metric"], &one["labels"]), (&json!("x_seconds"), &json!({"zone": "a"})));
    }
    // Of ten minutes with 40 slow requests each.
    assert_eq!(answer["count"]["estimate"], 400, "{answer}");
    let histogram = server.json("/v1/histogram?selector=x_seconds").await;
    assert_eq!(histogram["series"], 1, "its buckets were counted");
}

/// CAQL of a histogram of remote write 1, or of a misspelt name, had no values and no warning; a
/// change of its series did not say where they are.
#[tokio::test]
async fn caql_and_changes_say_which_name_they_take() {
    let server = empty_server();
    send_scrapes(&server, &OLD, "a", [1, 2]);
    for (find, expected) in [
        ("find:histogram('x_seconds')", "x_seconds matches no series"),
        ("find:histogram('x_secnds') | histogram:merge()", "x_secnds matches no series"),
    ] {
        let find = find.replace('|', "%7C").replace(' ', "%20");
        let path = format!("/v1/query?language=caql&query={find}&from={}ns&step=1m", at(0));
        let warnings = server.json(&path).await["warnings"].to_string();
        assert!(warnings.contains(expected), "{find}: {warnings}");
    }
    for change in ["delete?", "retire?", "rename?name=y&"] {
        let path = format!("/v1/series/{change}selector=x_seconds");
        let request = Request::post(&path).body(Body::empty()).unwrap();
        let (status, text) = server.send_request(request).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{text}");
        let expected = "x_seconds matches no series; stored as buckets, the counters \
                        x_seconds_bucket: select these";
        assert!(text.contains(expected), "{path}: {text}");
    }
}

/// Path of the histogram or the heatmap of the twelve minutes.
fn path(of: &str, selector: &str) -> String {
    format!("/v1/{of}?selector={selector}&above=250ms&from={}ns&to={NOW}ns", at(0))
}

fn reasons(gaps: &Value) -> Vec<&str> {
    gaps.as_array().unwrap().iter().map(|gap| gap["reason"].as_str().unwrap()).collect()
}

/// A user saw classic histograms of remote write 1 as counters only.
#[tokio::test]
async fn buckets_of_remote_write_are_one_row_of_overview_and_a_heatmap() {
    let server = TestServer::new();
    let counter = SeriesKind::Counter(Temporality::Cumulative);
    let start = at(0);
    let rates = [("0.1", 60.0), ("0.25", 90.0), ("1", 98.0), ("+Inf", 100.0)];
    for (bound, zone) in rates.into_iter().flat_map(|of| [(of, "a"), (of, "b")]) {
        let series = Series::new("rw_latency_seconds_bucket", counter).with_label("le", bound.0);
        let series = series.with_label("zone", zone).validate().unwrap();
        for minute in 0..=12_u32 {
            let value = SampleValue::Number(bound.1 * f64::from(minute));
            let end = at(minute.into());
            server.send(&series, Sample { start, end, value });
        }
    }
    let overview = server.json("/v1/overview?budget=60s&threshold=rw_latency_seconds=250ms").await;
    let rows = overview["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "rw_latency_seconds").unwrap();
    let shown = |name: &str| row[name].clone();
    assert_eq!((rows.len(), shown("series"), shown("unit")), (2, 2.into(), "s".into()), "{row}");
    // In each minute 100 requests in each of two zones, of which ten take more than 250 ms.
    assert_eq!((shown("count_now"), shown("count_today")), (1_000.into(), 2_400.into()));
    assert_eq!(row["above_now"]["estimate"], 100);
    assert_eq!((shown("state"), shown("selector")), ("affected".into(), row["name"].clone()));
    assert!(row["heatmap"]["cells"].is_string(), "{row}");
    for (selector, expected) in [
        ("rw_latency_seconds", 2_400),
        ("rw_latency_seconds_bucket", 2_400),
        ("rw_latency_seconds{zone=\"b\"}", 1_200),
        ("rw_latency_seconds{__unit=\"s\"}", 2_400),
    ] {
        let of = format!("selector={selector}&above=250ms");
        let histogram = server.json(&format!("/v1/histogram?{of}")).await;
        assert_eq!(histogram["count"], expected, "{selector}");
        assert_eq!(histogram["above"][0]["count"]["estimate"], expected / 10, "{selector}");
        let heatmap = server.json(&format!("/v1/heatmap?{of}&max_columns=12")).await;
        assert_eq!(heatmap["total"]["count"], expected, "{selector}");
        let columns = heatmap["columns"].as_array().unwrap();
        assert!(columns.iter().all(|column| column["count"] != 0), "{heatmap}");
    }
    let breakdown = "/v1/breakdown?selector=rw_latency_seconds&above=250ms";
    let labels = &server.json(breakdown).await["labels"];
    assert_eq!((&labels[0]["label"], labels.as_array().unwrap().len()), (&"zone".into(), 1));
    let sides = "a=rw_latency_seconds{zone=\"a\"}&b=rw_latency_seconds{zone=\"b\"}";
    let compared = server.json(&format!("/v1/compare?{sides}")).await;
    assert_eq!(compared["ks_statistic"]["estimate"], 0.0, "{compared}");
    let (status, text) = server.get("/v1/histogram?selector=rw_latency_seconds{zone=\"c\"}").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{text}");
}

/// After a deployment with other bounds, requests between the old bounds looked as if they were
/// between the new ones.
#[tokio::test]
async fn change_of_bounds_neither_loses_requests_silently_nor_invents_latencies() {
    let server = empty_server();
    send_scrapes(&server, &OLD, "a", [0, 5]);
    send_scrapes(&server, &NEW, "a", [6, 12]);
    let histogram = server.json(&path("histogram", "x_seconds")).await;
    // The first sample of the new bounds does not say how many of its requests are of this minute.
    assert_eq!(histogram["count"], 1_100, "{histogram}");
    let left_out = "100 values of x_seconds are left out: some of its buckets have no sample of \
                    the same scrapes";
    assert_eq!(reasons(&histogram["gaps"]), [left_out]);
    let above = &histogram["above"][0]["count"];
    // Each is exact at the bounds of its time: ten of each minute with the new ones.
    assert_eq!((&above["lower"], &above["upper"]), (&json!(60 + 10), &json!(60 + 200)));
    let warning = "the bounds of buckets have changed or differ between series: 100 ms, 250 ms \
                   are not bounds of all; counts and quantiles near these are between bounds";
    assert_eq!(histogram["warnings"], json!([warning]));
    let query = "histogram_count_above(250ms, sum(exact_increase(x_seconds[12m])))";
    let answer = server.json(&format!("/v1/query?query={query}").replace(' ', "%20")).await;
    assert!(answer["warnings"].to_string().contains(warning), "{answer}");
    let heatmap = server.json(&(path("heatmap", "x_seconds") + "&step=1m")).await;
    for (minute, column) in (1..).zip(heatmap["columns"].as_array().unwrap()) {
        let above = &column["above"][0]["count"];
        let found = [&column["count"], &above["lower"], &above["upper"]];
        let (expected, gaps) = match minute {
            ..6 => ([100, 2, 40], vec![]),
            6 => ([0, 0, 0], vec![left_out]),
            _ => ([100, 10, 10], vec![]),
        };
        assert_eq!(found, expected.map(|count| json!(count)).each_ref(), "{minute}: {column}");
        assert_eq!(reasons(&column["gaps"]), gaps, "{minute}");
    }
}

/// The counters of the old bounds go on after the change is taken back: their first increase is
/// over all scrapes in between.
#[tokio::test]
async fn change_of_bounds_that_is_taken_back_does_not_invent_latencies() {
    let server = empty_server();
    send_scrapes(&server, &OLD, "a", [0, 3]);
    send_scrapes(&server, &NEW, "a", [4, 7]);
    send_scrapes(&server, &OLD, "a", [8, 11]);
    let histogram = server.json(&path("histogram", "x_seconds")).await;
    assert_eq!(histogram["count"], 900, "{histogram}");
    let reasons = reasons(&histogram["gaps"]);
    assert!(reasons[0].starts_with("200 values of x_seconds are left out"), "{reasons:?}");
    let above = &histogram["above"][0]["count"];
    assert_eq!((&above["lower"], &above["upper"]), (&json!(30 + 12), &json!(30 + 240)));
}

/// The mean of a histogram of remote write 1 was between minus and plus infinity.
#[tokio::test]
async fn mean_is_the_sum_by_the_count_if_the_sum_is_of_the_same_scrapes() {
    let server = empty_server();
    let sum = |zone| counter("x_seconds_sum", &[("zone", zone)]);
    for (zone, rate) in [("a", 21.5), ("b", 40.25)] {
        send_scrapes(&server, &OLD, zone, [0, 12]);
        let at_minute = |minute: i64| (sum(zone), at(minute), rate * (minute + 1) as f64);
        send(&server, (0..=12).map(at_minute));
    }
    let bracket = |value: f64| json!({"lower": value, "estimate": value, "upper": value});
    for (selector, expected) in [
        ("x_seconds{zone=\"a\"}", 12.0 * 21.5),
        ("x_seconds_bucket{zone=\"b\"}", 12.0 * 40.25),
        ("x_seconds", 12.0 * 61.75),
    ] {
        let histogram = server.json(&path("histogram", selector)).await;
        assert_eq!(histogram["sum"], bracket(expected), "{selector}: {histogram}");
        let count = histogram["count"].as_f64().unwrap();
        assert_eq!(histogram["mean"]["estimate"], expected / count, "{histogram}");
        let ends = [&histogram["mean"]["lower"], &histogram["mean"]["upper"]];
        let ends = ends.map(|end| (end.as_f64().unwrap() * count - expected).abs() < 1e-9);
        assert_eq!(ends, [true; 2], "{histogram}");
        // The bounds of the extremes are those of the buckets.
        // Bounds are closed: a value above 1 is at least the next number.
        let ends = [&histogram["max"]["lower"], &histogram["max"]["upper"]];
        assert_eq!(ends, [&json!(1f64.next_up()), &Value::Null], "{histogram}");
        assert_eq!(histogram["min"]["lower"], Value::Null, "{histogram}");
        let heatmap = server.json(&(path("heatmap", selector) + "&step=1m")).await;
        assert_eq!(heatmap["total"]["sum"], bracket(expected), "{heatmap}");
        assert_eq!(heatmap["columns"][7]["sum"], bracket(expected / 12.0), "{heatmap}");
    }
    let query = "/v1/query?query=histogram_avg(sum(exact_increase(x_seconds[12m])))";
    let value = &server.json(query).await["data"][0]["points"][0];
    assert!(value.to_string().contains("0.30875"), "{value}");
    // A scrape whose sum has not arrived: nothing is known of its values.
    send(&server, scrape(&OLD, "a", (13, 14)));
    let late = format!("/v1/histogram?selector=x_seconds{{zone=\"a\"}}&to={}ns", at(13));
    let late = server.json(&late).await;
    assert_eq!((&late["sum"]["lower"], &late["sum"]["upper"]), (&Value::Null, &Value::Null));
    send(&server, [(sum("a"), at(13), 14.0 * 21.5)]);
    let path = format!("/v1/histogram?selector=x_seconds{{zone=\"a\"}}&to={}ns", at(13));
    assert_eq!(server.json(&path).await["sum"], bracket(13.0 * 21.5));
}

/// The highest bucket was taken for the number of all requests.
#[tokio::test]
async fn without_the_bucket_inf_the_count_is_the_total_or_a_warning_says_that_it_is_unknown() {
    let server = empty_server();
    send_scrapes(&server, &OLD[..2], "a", [0, 12]);
    send_scrapes(&server, &OLD[..2], "b", [0, 12]);
    let count = counter("x_seconds_count", &[("zone", "a")]);
    send(&server, (0..=12).map(|minute| (count.clone(), at(minute), 100.0 * minute as f64)));
    let counted = server.json(&path("histogram", "x_seconds{zone=\"a\"}")).await;
    assert_eq!((&counted["count"], &counted["warnings"]), (&json!(1_200), &Value::Null));
    assert_eq!(counted["above"][0]["count"]["lower"], 24);
    assert_eq!(reasons(&counted["gaps"]).len(), 0);
    let warning = "1 of 1 series x_seconds_bucket have no bucket +Inf and no x_seconds_count: \
                   values above their highest bound are not counted";
    let not_counted = "values of x_seconds above 1 are not counted: it has no bucket +Inf and no \
                       x_seconds_count";
    for of in ["histogram", "heatmap"] {
        let uncounted = server.json(&path(of, "x_seconds{zone=\"b\"}")).await;
        assert_eq!(uncounted["warnings"], json!([warning]));
        let total = if of == "heatmap" { &uncounted["total"] } else { &uncounted };
        assert_eq!(total["count"], 1_176);
        assert!(reasons(&total["gaps"]).iter().all(|reason| *reason == not_counted), "{total}");
        assert!(!reasons(&total["gaps"]).is_empty(), "{total}");
    }
    let overview = server.json("/v1/overview?budget=60s").await;
    assert_eq!(overview["rows"][0]["gaps"][0]["reason"], not_counted, "{overview}");
}

/// A program that sends both was counted by its histograms only, and had no requests before the
/// first of them.
#[tokio::test]
async fn series_with_histograms_and_buckets_is_counted_once() {
    let server = empty_server();
    let rates = [("0.1", 60), ("0.25", 90), ("1", 98), ("+Inf", 100)];
    send_scrapes(&server, &rates, "a", [0, 12]);
    send_scrapes(&server, &rates, "b", [0, 12]);
    let native = Series::new("x_seconds", SeriesKind::Histogram(Temporality::Delta));
    let native = native.with_unit("s").with_label("zone", "a").validate().unwrap();
    for minute in 7..=12 {
        let mut histogram = Histogram::default();
        histogram.record_n(0.05, 90);
        histogram.record_n(0.5, 10);
        let value = SampleValue::Histogram(Box::new(histogram));
        server.send(&native, Sample { start: at(minute - 1), end: at(minute), value });
    }
    for (selector, zones) in [("x_seconds{zone=\"a\"}", 1), ("x_seconds", 2)] {
        let histogram = server.json(&path("histogram", selector)).await;
        assert_eq!(histogram["count"], 1_200 * zones, "{histogram}");
        assert_eq!(histogram["above"][0]["count"]["estimate"], 120 * zones);
        assert_eq!(reasons(&histogram["gaps"]).len(), 0, "{histogram}");
        let warning = format!(
            "1 series x_seconds are histograms and {zones} are counters x_seconds_bucket; 1 are \
             both and read as histograms from their first to their last sample"
        );
        assert_eq!(histogram["warnings"], json!([warning]));
        let heatmap = server.json(&(path("heatmap", selector) + "&step=1m")).await;
        assert_eq!(heatmap["total"]["count"], 1_200 * zones);
    }
    // The maximum of the histograms is exact, that of buckets unknown.
    let late = format!("/v1/histogram?selector=x_seconds{{zone=\"a\"}}&from={}ns", at(6));
    assert_eq!(server.json(&late).await["max"]["upper"], 0.5);
    let buckets = server.json(&path("histogram", "x_seconds_bucket{zone=\"a\"}")).await;
    assert_eq!((&buckets["count"], &buckets["warnings"]), (&json!(1_200), &Value::Null));
    let breakdown = server.json("/v1/breakdown?selector=x_seconds&above=250ms").await;
    assert_eq!(breakdown["inside"]["estimate"], 240);
    assert_eq!(breakdown["labels"][0]["label"], "zone");
    let sides = "a=x_seconds{zone=\"a\"}&b=x_seconds{zone=\"b\"}";
    let compared = server.json(&format!("/v1/compare?{sides}")).await;
    assert_eq!((&compared["a"]["count"], &compared["b"]["count"]), (&json!(1_200), &json!(1_200)));
    let overview = server.json("/v1/overview?budget=60s&threshold=x_seconds=250ms").await;
    let row = &overview["rows"][0];
    assert_eq!((&overview["total"], &row["series"]), (&json!(1), &json!(2)));
    assert_eq!((&row["count_now"], &row["above_now"]["estimate"]), (&json!(1_000), &json!(100)));
}

/// Histograms in milliseconds and buckets in seconds have no sum.
#[tokio::test]
async fn buckets_in_another_unit_than_the_histograms_are_left_out_and_named() {
    let server = empty_server();
    send_scrapes(&server, &OLD, "a", [0, 12]);
    let native = Series::new("x_seconds", SeriesKind::Histogram(Temporality::Delta));
    let native = native.with_unit("ms").with_label("zone", "a").validate().unwrap();
    let mut histogram = Histogram::default();
    histogram.record(50.0);
    let value = SampleValue::Histogram(Box::new(histogram));
    server.send(&native, Sample { start: at(11), end: NOW, value });
    let histogram = server.json("/v1/histogram?selector=x_seconds").await;
    let warning = "3 counters x_seconds_bucket are left out: their unit is not that of the \
                   histograms x_seconds; select x_seconds_bucket to read them";
    assert_eq!((&histogram["count"], &histogram["warnings"]), (&json!(1), &json!([warning])));
    let overview = server.json("/v1/overview?budget=60s").await;
    let reason = "3 counters x_seconds_bucket are left out: their unit is not that of the \
                  histograms x_seconds";
    assert_eq!(overview["unranked"], json!([{"name": "x_seconds", "reason": reason}]));
    assert_eq!(overview["total"], 1);
}

/// While the samples of a scrape arrived by several connections, its requests looked slow.
#[tokio::test]
async fn scrape_that_arrived_only_in_part_does_not_look_slow() {
    let server = empty_server();
    let rates = [("0.1", 60), ("0.25", 90), ("1", 98), ("+Inf", 100)];
    send_scrapes(&server, &rates, "a", [0, 11]);
    send(&server, scrape(&rates[2..], "a", (12, 13)));
    let overview = server.json("/v1/overview?budget=60s&threshold=x_seconds=250ms").await;
    let row = &overview["rows"][0];
    assert_eq!((&row["count_now"], &row["above_now"]["upper"]), (&json!(400), &json!(40)), "{row}");
    let left_out = "100 values of x_seconds are left out: some of its buckets have no sample of \
                    the same scrapes";
    assert_eq!(row["gaps"][0]["reason"], left_out);
    let histogram = server.json(&path("histogram", "x_seconds")).await;
    assert_eq!((&histogram["count"], reasons(&histogram["gaps"])), (&json!(1_100), vec![left_out]));
    let heatmap = server.json(&(path("heatmap", "x_seconds") + "&step=1m")).await;
    assert_eq!(heatmap["columns"][11]["count"], 0, "{heatmap}");
    assert_eq!(reasons(&heatmap["columns"][11]["gaps"]), [left_out]);
    // A range that has only this scrape.
    let last = format!("/v1/histogram?selector=x_seconds&from={}ns&to={NOW}ns", at(11));
    let last = server.json(&last).await;
    assert_eq!((&last["count"], reasons(&last["gaps"])), (&json!(0), vec![left_out]));
    // The other samples arrive.
    send(&server, scrape(&rates[..2], "a", (12, 13)));
    let histogram = server.json(&path("histogram", "x_seconds")).await;
    assert_eq!((&histogram["count"], reasons(&histogram["gaps"])), (&json!(1_200), vec![]));
    assert_eq!(histogram["above"][0]["count"]["estimate"], 120);
}

/// Senders choose bounds: each set of them was a part of every column.
#[tokio::test]
async fn bounds_and_sets_of_bounds_are_limited() {
    let server = TestServer::new();
    let minutes = || [0, 12].into_iter();
    let sets = (0..101).flat_map(|zone| {
        let bound = format!("0.{:03}", zone + 1);
        let series = ["+Inf", bound.as_str()].map(|bound| bucket(bound, &zone.to_string()));
        minutes().flat_map(move |minute| series.clone().map(|of| (of, at(minute), minute as f64)))
    });
    send(&server, sets);
    let many = (0..=1_000).map(|bound| counter("many_bucket", &[("le", &bound.to_string())]));
    send(&server, many.flat_map(|of| minutes().map(move |minute| (of.clone(), at(minute), 1.0))));
    let sets = "limit of 100 sets of bucket bounds (le) exceeded (101); select series with the \
                same bounds, as those of one job";
    let bounds = "limit of 1000 bucket bounds (le) exceeded (1001); select series with the same \
                  bounds, as those of one job";
    for (name, expected) in [("x_seconds", sets), ("many", bounds)] {
        for of in ["histogram", "heatmap", "breakdown"] {
            let (status, text) = server.get(&format!("/v1/{of}?selector={name}&above=1")).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{text}");
            assert!(text.contains(expected), "{text}");
        }
    }
    let one = server.json("/v1/histogram?selector=x_seconds{zone=\"7\"}").await;
    assert_eq!(one["count"], 12);
    let overview = server.json("/v1/overview?budget=60s").await;
    let unranked =
        json!([{"name": "many", "reason": bounds}, {"name": "x_seconds", "reason": sets}]);
    assert_eq!(overview["unranked"], unranked);
    assert_eq!((&overview["total"], &overview["rows"][0]["name"]), (&json!(1), &json!("latency")));
}

/// Counters were collected with their names and labels before any limit applied.
#[tokio::test]
async fn memory_of_buckets_is_reserved_before_they_are_collected() {
    let settings = QueryServiceSettings {
        max_query_bytes: QueryServiceSettings::QUERY_BYTES_MIN,
        ..Default::default()
    };
    let server = TestServer::with_store(empty_store(), settings);
    let zones = || (0..7_500).map(|zone| zone.to_string());
    let series = zones().flat_map(|zone| ["1", "+Inf"].map(|bound| bucket(bound, &zone)));
    send(&server, series.map(|series| (series, NOW, 1.0)));
    for of in ["histogram?selector=x_seconds", "breakdown?selector=x_seconds&above=1s"] {
        let (status, text) = server.get(&format!("/v1/{of}")).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{text}");
        assert!(text.contains("memory limit 29360128 bytes exceeded"), "{text}");
    }
    let (status, text) = server.get("/v1/histogram?selector=x_seconds&max_series=100").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{text}");
    assert!(text.contains("matches 15000 buckets"), "{text}");
}

/// The values of such an hour vanished without a gap.
#[tokio::test]
async fn change_of_bounds_in_an_hour_whose_finer_rows_were_dropped_is_a_gap() {
    let store = empty_store();
    let rule = |resolution| store::RetentionRule {
        resolution,
        duration: Some(2 * store::DAY),
        selector: model::Selector::All,
    };
    let finer = [Resolution::Base, Resolution::Minute, Resolution::FiveMinutes];
    store.set_retention(Vec::from(finer.map(rule))).unwrap();
    let server = TestServer::with_store(Arc::clone(&store), QueryServiceSettings::default());
    // A whole hour, ten days ago.
    let start = -78 - 10 * 24 * 60;
    assert_eq!(at(start).rem_euclid(store::HOUR), 0);
    send_scrapes(&server, &OLD, "a", [start, start + 30]);
    send_scrapes(&server, &NEW, "a", [start + 31, start + 120]);
    store.flush().unwrap();
    while store.maintain().unwrap() {}
    let path = |hour: i64| {
        let [from, to] = [0, 60].map(|minute| at(start + 60 * hour + minute));
        format!("/v1/histogram?selector=x_seconds&above=250ms&from={from}ns&to={to}ns")
    };
    let changed = server.json(&path(0)).await;
    let reasons = reasons(&changed["gaps"]);
    assert_eq!(changed["count"], 0, "{changed}");
    let has = |text: &str| reasons.iter().any(|reason| reason.contains(text));
    assert!(has("6000 values of x_seconds are left out"), "{reasons:?}");
    assert!(has("dropped; longer columns are answered from rollups"), "{reasons:?}");
    let unchanged = server.json(&path(1)).await;
    assert_eq!((&unchanged["count"], &unchanged["gaps"]), (&json!(6_000), &json!([])));
}

/// A program that is restarted and has counted more than before by the next scrape: its buckets
/// that are higher do not look restarted, and the slow requests were none.
#[tokio::test]
async fn restart_that_only_some_buckets_show_does_not_look_fast() {
    let server = empty_server();
    send_scrapes(&server, &OLD, "a", [10, 10]);
    // 120 requests since the restart, 70 of them slow.
    let after = [("0.1", 10), ("1", 50), ("+Inf", 120)];
    send(&server, scrape(&after, "a", (11, 1)));
    send(&server, scrape(&[("0.1", 70), ("1", 148), ("+Inf", 220)], "a", (12, 1)));
    let heatmap = server.json(&(path("heatmap", "x_seconds") + "&step=1m")).await;
    let column = |minute: usize| {
        let column = &heatmap["columns"][minute - 1];
        (column["count"].clone(), reasons(&column["gaps"]))
    };
    let why = "50 values of x_seconds are left out: some of its buckets rose by more than higher \
               ones, as after a restart that not all of them show";
    assert_eq!(column(11), (json!(0), vec![why]));
    assert_eq!(column(12), (json!(100), vec![]));
}

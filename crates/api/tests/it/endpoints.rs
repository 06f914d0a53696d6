//! Every endpoint: stored data equals the sent data, units included, and errors are reported.

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use model::SampleValue;

use crate::client::{connect, exchange};
use crate::fixture::{RECEIVED, ServerFixture, local_settings};

#[test]
fn numbers_are_recorded_in_one_histogram() {
    let it = ServerFixture::new();
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let path = "/v1/record?metric=took&unit=ms&label.host=a";
    it.post(path, form, "12.5").check(200, "{\"duplicate\":false,\"values\":1}");
    it.post(path, form, "1500\n1501\n0.5\n").check(200, "\"values\":3");
    assert_eq!(it.count("took"), 4);
    let rows = it.rows(r#"took{host="a"}"#);
    let sum = |value: &SampleValue| match value {
        SampleValue::Histogram(histogram) => histogram.tracked_sum().value().unwrap().value(),
        other => panic!("{other:?}"),
    };
    let sum: f64 = rows.iter().map(|row| sum(&row.1.value)).sum();
    assert!((sum - 3014e6).abs() < 1.0, "{sum} is not 3,014 ms in nanoseconds");
}

#[test]
fn invalid_body_is_rejected_whole() {
    let it = ServerFixture::new();
    it.post("/v1/record?metric=took", "", "1\n2\nx\n")
        .check(400, "line 3: expected a number, found");
    it.post("/v1/record", "", "1").check(400, "parameter metric is missing");
    it.post("/v1/record?metric=a&unit=parsec", "", "1")
        .check(400, "unit=parsec: expected one of ns");
    it.post("/v1/record?metric=a&units=ms", "", "1").check(400, "unknown parameter \\\"units\\\"");
    it.post("/v1/record?metric=a", "Content-Encoding: br\r\n", "1")
        .check(415, "unsupported content encoding \\\"br\\\"");
    it.post("/v1/records?metric=a", "", "1").check(404, "no route /v1/records");
    // In the shape of Prometheus below /api/v1.
    let missing = it.request("GET", "/api/v1/parse_query?query=a", "", b"");
    missing.check(404, "\"errorType\":\"not_found\",\"error\":\"no route /api/v1/parse_query");
    missing.check(404, "; /api/v1/format_query says whether an expression is valid");
    // A user of Prometheus and its Pushgateway read only "no route".
    for (method, path, remedy) in [
        ("POST", "/api/v1/admin/tsdb/delete_series?match[]=a", "use `topdeck delete`, or POST to"),
        ("PUT", "/metrics/job/backup", "topdeck is no Pushgateway: POST the text to /v1/import"),
        ("POST", "/-/reload", "SIGHUP reads the settings again"),
        ("GET", "/graph?g0.expr=up", "open /#/explore"),
        ("GET", "/graphs", "see /v1/openapi.json"),
    ] {
        it.request(method, path, "", b"").check(404, remedy);
    }
    it.request("GET", "/v1/record?metric=a", "", b"").check(405, "; use POST\"");
    it.post("/v1/logs", "", "").check(404, "topdeck accepts metrics");
    assert_eq!(it.rows(RECEIVED).len(), 0);
}

/// A browser showed the JSON of an error for a link of a runbook to Prometheus.
#[test]
fn a_link_to_the_graph_of_prometheus_opens_explore_with_its_expression() {
    let it = ServerFixture::new();
    for (path, address) in [
        (
            "/graph?g0.expr=rate%28a%5B5m%5D%29&g0.tab=0&g0.range_input=2h",
            "/#/explore?language=promql&query=rate%28a%5B5m%5D%29&from=-2h&v=2",
        ),
        ("/graph", "/#/explore"),
        ("/targets", "/#/sources"),
        ("/alerts", "/#/alerts"),
        ("/rules", "/#/alerts"),
        ("/favicon.ico", "/icon.svg"),
    ] {
        let answer = it.request("GET", path, "Accept: text/html,*/*;q=0.8\r\n", b"");
        assert_eq!((answer.status, answer.header("location")), (302, Some(address)), "{path}");
    }
    // A program is told what to use.
    it.request("GET", "/targets", "", b"").check(404, "open /#/sources");
}

#[test]
fn bodies_may_be_compressed() {
    let it = ServerFixture::new();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"1\n2\n3\n").unwrap();
    let path = "/v1/record?metric=took";
    it.post(path, "Content-Encoding: gzip\r\n", gzip.finish().unwrap()).check(200, "\"values\":3");
    let zstd = zstd::encode_all(&b"4\n5\n"[..], 1).unwrap();
    it.post(path, "Content-Encoding: zstd\r\n", zstd).check(200, "\"values\":2");
    assert_eq!(it.count("took"), 5);
}

#[test]
fn duplicate_batch_is_counted_once() {
    let it = ServerFixture::new();
    let post = |batch: &str, value: &str| {
        it.post("/v1/record?metric=took", &format!("Topdeck-Batch: {batch}\r\n"), value)
    };
    post("a1/7/1", "1").check(200, "\"duplicate\":false");
    post("a1/7/1", "1").check(200, "\"duplicate\":true");
    post("a1/7/2", "2").check(200, "\"duplicate\":false");
    post("a1/8/1", "3").check(200, "\"duplicate\":false");
    post("b/7/1", "4").check(200, "\"duplicate\":false");
    post("a1/8", "5").check(400, "PRODUCER/EPOCH/SEQUENCE");
    assert_eq!(it.count("took"), 4);
}

#[test]
fn httptrap_accepts_values_before_an_error() {
    let it = ServerFixture::new();
    let path = "/module/httptrap/c640d8cb/secret";
    let body = br#"{"a":1,"b":{"_type":"h","_value":[1,2,3]},"c":"text","d":null}"#;
    it.request("PUT", path, "", body).check(200, "{\"filtered\":1,\"stats\":3}");
    let debug = "X-Circonus-HTTPTrap-Debug: on\r\n";
    let answer = it.post(path, debug, r#"{"e":5,"f":"#);
    answer.check(406, "\"stats\":1");
    answer.check(406, "\"error\":\"byte 11: ");
    assert_eq!(answer.header("x-circonus-httptrap-debug"), Some("on"));
    it.post("/v1/httptrap?label.host=b", "", r#"{"g":7}"#).check(200, "\"stats\":1");
    assert_eq!(it.count(r#"{check="c640d8cb"}"#), 1 + 3 + 1 + 1);
    assert_eq!(it.count(r#"g{host="b"}"#), 1);
}

#[test]
fn influx_lines_are_accepted_one_by_one() {
    let it = ServerFixture::new();
    let lines = "cpu,host=a used=1.5,idle=2i 1794906565\n";
    it.post("/write?db=x&precision=s", "", lines).check(204, "");
    it.post("/api/v2/write?bucket=b&org=o", "", "cpu,host=b used=3\n").check(204, "");
    let answer = it.post("/write", "", "cpu,host=c used=1\ncpu,host=c used\n");
    answer.check(400, "dropped=1, accepted=1");
    it.post("/write?precision=y", "", "cpu used=1").check(400, "precision=y");
    assert_eq!(
        (it.count(r#"{host="a"}"#), it.count(r#"{host="b"}"#), it.count(r#"{host="c"}"#)),
        (2, 1, 1)
    );
}

#[test]
fn hdrhistogram_logs_get_timestamps() {
    let it = ServerFixture::new();
    let path = "/../../testdata/hist/hdr/jHiccup-2.0.7S.logV2.hlog";
    let log = std::fs::read(format!("{}{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let answer = it.post("/v1/hlog?metric=pause&label.host=a&start=1794906565", "", &log);
    answer.check(200, "intervals");
    let told: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert!(told["values"].as_u64().unwrap() > 0);
    assert_eq!(it.count(r#"pause{host="a"}"#), told["values"].as_u64().unwrap());
    assert_eq!(it.rows("pause").len() as u64, told["intervals"].as_u64().unwrap());
    it.post("/v1/import?metric=pause2", "", &log).check(200, "\"format\":\"hlog\"");
    assert_eq!(it.count("pause2"), it.count("pause"));
    it.post("/v1/hlog", "", &log).check(400, "parameter metric is missing");
    it.post("/v1/hlog?metric=x&start=soon", "", &log).check(400, "start=soon: expected seconds");
}

/// Binary, protobuf, and lines of base64; the sender's buckets are kept.
#[test]
fn ddsketches_are_imported() {
    let it = ServerFixture::new();
    // The values 1 to 5, and 300 times the value 1, as sketches-go encodes them.
    let binary = b"\x02\xfd\x4a\x81\x5a\xbf\x52\xf0\x3f\0\0\0\0\0\0\0\0\
        \x05\x05\0\x02\x44\x02\x28\x02\x1e\x02\x16\x02";
    let protobuf = b"\x0a\x09\x09\xfd\x4a\x81\x5a\xbf\x52\xf0\x3f\
        \x12\x0a\x12\x08\0\0\0\0\0\xc0\x72\x40\x1a\0";
    let answer = it.post("/v1/import?metric=took&unit=ms&label.host=a", "", binary);
    answer.check(200, "\"format\":\"ddsketch\"");
    it.post("/v1/import?metric=took&unit=ms&label.host=b", "", protobuf)
        .check(200, "\"values\":300");
    let lines = "Av1KgVq/UvA/AAAAAAAAAAAFBQACRAIoAh4CFgI=\n";
    it.post("/v1/import?metric=lines&format=ddsketch", "", lines).check(200, "\"samples\":1");
    assert_eq!((it.count(r#"took{host="a"}"#), it.count("took"), it.count("lines")), (5, 305, 5));
    let [(_, row)] = &it.rows(r#"took{host="a"}"#)[..] else { panic!("one row") };
    let SampleValue::Histogram(histogram) = &row.value else { panic!("{row:?}") };
    assert_eq!(histogram.positive().indexes(), [0, 34, 54, 69, 80]);
    it.post("/v1/import?metric=took&format=ddsketch", "", &binary[..20])
        .check(400, "expected a DDSketch");
    it.post("/v1/import", "", binary).check(400, "name");
}

#[test]
fn import_format_is_detected() {
    let it = ServerFixture::new();
    let page = "# TYPE up gauge\nup{job=\"x\"} 1\n# TYPE n_total counter\nn_total 5\n";
    it.post("/v1/import", "", page).check(200, "\"format\":\"prometheus\"");
    it.post("/v1/import?metric=m", "", "1\n2\n").check(200, "\"format\":\"numbers\"");
    it.post("/v1/import?format=xml", "", "1").check(400, "format=xml: expected one of numbers");
    it.post("/v1/import", "", "<html>").check(400, "expected a known format");
    assert_eq!((it.count("up"), it.count("m")), (1, 2));
}

/// `prometheus.WriteRequest` with one series of two samples.
fn write_request(name: &str) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let label = [field(1, b"__name__"), field(2, name.as_bytes())].concat();
    let sample =
        |value: f64, ms: u8| field(2, &[&[0x09][..], &value.to_le_bytes(), &[0x10, ms]].concat());
    let series = [field(1, &label), sample(1.0, 1), sample(2.0, 2)].concat();
    field(1, &series)
}

#[test]
fn remote_write_response_has_the_counts() {
    let it = ServerFixture::new();
    let post = |headers: &str, body: &[u8]| {
        let body = snap::raw::Encoder::new().compress_vec(body).unwrap();
        it.post("/api/v1/write", headers, body)
    };
    let v1 = "Content-Encoding: snappy\r\nContent-Type: application/x-protobuf\r\n";
    let answer = post(v1, &write_request("up"));
    answer.check(204, "");
    assert_eq!(answer.header("x-prometheus-remote-write-samples-written"), Some("2"));
    assert_eq!(answer.header("x-prometheus-remote-write-histograms-written"), Some("0"));
    assert_eq!(answer.header("x-prometheus-remote-write-exemplars-written"), Some("0"));
    let answer = post(v1, b"\xff\xff\xff");
    answer.check(400, "invalid remote write request");
    assert_eq!(answer.header("x-prometheus-remote-write-samples-written"), Some("0"));
    post("Content-Type: application/x-protobuf\r\n", b"").check(415, "expected snappy");
    let text = "Content-Encoding: snappy\r\nContent-Type: text/plain\r\n";
    post(text, b"").check(415, "found \\\"text/plain");
    it.post("/api/v1/write", v1, "no snappy").check(400, "snappy");
    let v2 = "Content-Encoding: snappy\r\n\
              Content-Type: application/x-protobuf;proto=io.prometheus.write.v2.Request\r\n";
    // Symbols "", "__name__", "down"; one series of them with one sample.
    let sample = [&[0x09][..], &3f64.to_le_bytes(), &[0x10, 9]].concat();
    let series = [&[0x0a, 2, 1, 2, 0x12, sample.len() as u8][..], &sample].concat();
    let symbols = b"\x22\x00\x22\x08__name__\x22\x04down\x2a";
    let answer = post(v2, &[&symbols[..], &[series.len() as u8], &series].concat());
    assert_eq!((answer.status, it.count("down"), it.count("up")), (204, 1, 2), "{answer:?}");
}

#[test]
fn sender_at_its_series_limit_does_not_affect_others() {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = {
        let lines = Arc::clone(&lines);
        Arc::new(move |_, line: &str| lines.lock().unwrap().push(line.to_owned()))
    };
    let intake_settings =
        intake::Settings { background: false, log, ..intake::Settings::default() };
    let limits =
        store::CardinalityLimits { max_producer_series: 2, ..store::CardinalityLimits::default() };
    let it =
        ServerFixture::with_store_limits(local_settings(None), intake_settings, limits).unwrap();
    let write = |names: &[&str]| {
        let body: Vec<u8> = names.iter().flat_map(|name| write_request(name)).collect();
        let body = snap::raw::Encoder::new().compress_vec(&body).unwrap();
        let v1 = "Content-Encoding: snappy\r\nContent-Type: application/x-protobuf\r\n";
        it.post("/api/v1/write", v1, body)
    };
    let written = "x-prometheus-remote-write-samples-written";
    // Two samples of each, in one request.
    let answer = write(&["a", "b", "c", "d"]);
    answer.check(
        400,
        "4 samples of this request rejected, the others stored: cannot store new series c",
    );
    answer.check(400, "series limit per producer (2) reached");
    assert_eq!(answer.header(written), Some("4"));
    assert_eq!(["a", "b", "c", "d"].map(|name| it.count(name)), [2, 2, 0, 0]);
    // Existing series are stored, in the same request as rejected ones.
    let answer = write(&["e", "a"]);
    assert_eq!((answer.status, answer.header(written)), (400, Some("2")));
    assert_eq!(write(&["b", "a"]).status, 204);
    // Other producers have their own limits, and get errors of their protocol.
    let otlp = |names: &[&str]| {
        let body: Vec<u8> = names.iter().flat_map(|name| crate::grpc::request(name, 1)).collect();
        it.post("/v1/metrics", "Content-Type: application/x-protobuf\r\n", body)
    };
    let answer = otlp(&["o1", "o2", "o3"]);
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("cannot store new series o3"), "{}", answer.text());
    // `ExportMetricsServiceResponse`: partial_success with rejected_data_points, 1.
    assert!(answer.body.windows(3).any(|field| field == b"\x08\x01\x12"), "{:?}", answer.body);
    assert_eq!(["o1", "o2", "o3"].map(|name| it.count(name)), [1, 1, 0]);
    it.post("/write", "", "i1 value=1\ni2 value=1\ni3 value=1\n")
        .check(400, "dropped=1, accepted=2");
    assert_eq!(["i1", "i2", "i3"].map(|name| it.count(name)), [1, 1, 0]);
    let trap = it.post("/v1/httptrap", "", r#"{"t1": 1, "t2": 2, "t3": 3}"#);
    trap.check(406, r#""stats":2"#);
    it.post("/v1/record?metric=r", "", "1").check(200, "");
    // Writing to another producer's series is allowed and creates no new series.
    assert_eq!(otlp(&["o1"]).status, 200);

    let counter = |reason| {
        let name = "topdeck_intake_samples_rejected_total";
        it.intake.meter().counter(name, "", &[("reason", reason)]).get()
    };
    assert_eq!((counter("max_producer_series"), counter("max_label_values")), (9, 0));
    it.intake.checkpoint_ledger().unwrap();
    let gaps = it.store.stat().unwrap().gaps;
    let id = it.intake.producer("remote write").id();
    let gap = gaps.iter().find(|gap| gap.producer == Some(id)).unwrap();
    assert_eq!(gap.reason, "new series of metric c rejected: limit max_producer_series reached");
    assert_eq!((gap.lost, gap.start, gap.end), (Some(2), 1_000_000, 2_000_000));
    let lost: u64 = gaps.iter().filter_map(|gap| gap.lost).sum();
    assert_eq!(lost, 9);
    let lines = lines.lock().unwrap();
    let line = "producer \"remote write\": new series of metric c rejected: limit \
                max_producer_series reached (2 samples)";
    assert!(lines.iter().any(|found| found == line), "{lines:?}");
}

#[test]
fn otlp_http_accepts_both_encodings() {
    let it = ServerFixture::new();
    let json = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"load","gauge":
        {"dataPoints":[{"timeUnixNano":"1794906565000000000","asDouble":0.5}]}}]}]}]}"#;
    let answer = it.post("/v1/metrics", "Content-Type: application/json\r\n", json);
    answer.check(200, "{}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(it.count("load"), 1);
    let protobuf = "Content-Type: application/x-protobuf\r\n";
    let answer = it.post("/v1/metrics", protobuf, crate::grpc::request("seen", 3));
    answer.check(200, "");
    assert_eq!(answer.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(it.count("seen"), 3);
    let answer = it.post("/v1/metrics", protobuf, b"\xff");
    answer.check(400, "invalid OTLP request");
    assert_eq!(answer.body[..2], [0x08, 3], "a google.rpc.Status");
    it.post("/v1/metrics", "Content-Type: application/json\r\n", "{").check(400, "\"code\":3");
    it.post("/v1/metrics", "", "").check(415, "unsupported content type");
    // The path of Prometheus was 404.
    it.post("/api/v1/otlp/v1/metrics", "Content-Type: application/json\r\n", "{}").check(200, "{}");
}

#[test]
fn unknown_parameters_are_rejected() {
    let it = ServerFixture::new();
    let document = it.request("GET", "/v1/openapi.json", "", b"");
    let document: serde_json::Value = serde_json::from_slice(&document.body).unwrap();
    for path in ["/v1/record", "/v1/hlog", "/v1/import", "/v1/httptrap"] {
        let parameters = document["paths"][path]["post"]["parameters"].as_array().unwrap();
        for parameter in parameters {
            // References are to headers.
            let Some(name) = parameter["name"].as_str() else { continue };
            let answer = it.post(&format!("{path}?{name}=1"), "", "");
            assert!(!answer.text().contains("unknown parameter"), "{path} {name}: {answer:?}");
        }
        it.post(&format!("{path}?nobody=1"), "", "").check(400, "unknown parameter \\\"nobody\\\"");
    }
}

#[test]
fn forged_sequence_does_not_block_a_sender() {
    let fixture = ServerFixture::new();
    let record = |sequence: u64| {
        let header = format!("Topdeck-Batch: 7/1/{sequence}\r\n");
        fixture.post("/v1/record?metric=a", &header, "1")
    };
    assert_eq!(record(1).status, 200);
    record(1 << 40).check(409, "cannot take sequence 1099511627776 of producer");
    record(2).check(200, "\"duplicate\":false");
    assert_eq!(fixture.count("a"), 2);
    let name = "topdeck_intake_identity_rejections_total";
    let refused = fixture.intake.meter().counter(name, "", &[("reason", "sequence")]);
    assert_eq!(refused.get(), 1);
}

#[test]
fn a_forged_request_without_the_secret_skips_no_batch_of_its_owner() {
    let it = ServerFixture::new();
    let record = |sequence: u64, secret: &str| {
        let header = format!("Topdeck-Batch: 7/1/{sequence}\r\n{secret}");
        it.post("/v1/record?metric=a", &header, "1")
    };
    let own = "Topdeck-Batch-Secret: 5f1c2a90b7d34e68\r\n";
    record(1, own).check(200, "\"duplicate\":false");
    for forged in ["", "Topdeck-Batch-Secret: 0000000000000000\r\n"] {
        record(1_000_000, forged).check(200, "\"duplicate\":false");
    }
    // Without a secret a request can skip few sequences, with one many.
    record(1_000_000 + 4_097, "").check(409, "at most 4096 may be left out");
    record(2, own).check(200, "\"duplicate\":false");
    record(2, own).check(200, "\"duplicate\":true");
    record(1 << 20, own).check(200, "\"duplicate\":false");
    assert_eq!(it.count("a"), 5);
    record(3, "Topdeck-Batch-Secret: short\r\n").check(400, "5 characters; send 16 to 256");
}

#[test]
fn batch_accepted_by_version_0_1_0_is_a_duplicate() {
    let it = ServerFixture::new();
    let hash = blake3::Hasher::new_derive_key("topdeck 2026 producers of HTTP batches")
        .update(&7u64.to_le_bytes())
        .finalize();
    let producer = u64::from_le_bytes(*hash.as_bytes().first_chunk().unwrap());
    let identity = journal::BatchIdentity { producer, epoch: 1, sequence: 5 };
    let mut writer = it.intake.writer(intake::SeriesKeyEncoding::CANONICAL);
    decode::SeriesSink::gap(
        &mut writer,
        model::Gap {
            start: 0,
            end: 1,
            producer: None,
            lost: None,
            reason: "taken before".to_owned(),
        },
    );
    it.intake.append_with_identity(identity, 0, "", writer).unwrap().wait_durable().unwrap();
    let post =
        |batch: &str| it.post("/v1/record?metric=a", &format!("Topdeck-Batch: {batch}\r\n"), "1");
    post("7/1/5").check(200, "\"duplicate\":true");
    post("7/1/6").check(200, "\"duplicate\":false");
    assert_eq!(it.count("a"), 1);
}

/// The documentation of Prometheus has `curl -g '…?match[]={job="prometheus"}'`, which was 400 with
/// an empty body.
#[test]
fn quotes_in_a_url_need_no_percent_encoding() {
    let it = ServerFixture::new();
    it.post("/v1/record?metric=http.server.took&unit=ms", "", "1730").check(200, "");
    it.store.catch_up().unwrap();
    let path = "/api/v1/series?match[]={__name__=~\"http.server.*\"}";
    it.request("GET", path, "", b"").check(200, "http.server.took");
    let malformed = b"GET /v1/status?a=\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = exchange(&mut connect(it.address), malformed);
    answer.check(400, "{\"error\":\"cannot read the request");
}

/// Of rejected points and lines only the client was told: no counter, no log line, and nothing in
/// the audit.
#[test]
fn input_that_is_rejected_is_counted_logged_and_named_in_the_audit() {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = {
        let lines = Arc::clone(&lines);
        Arc::new(move |_, line: &str| lines.lock().unwrap().push(line.to_owned()))
    };
    let settings = intake::Settings { background: false, log, ..intake::Settings::default() };
    let it = ServerFixture::with_intake(local_settings(None), settings).unwrap();
    let point = r#"{"timeUnixNano":"1794906565000000000","asDouble":0.5}"#;
    let metric = |name: &str, temporality: u8| {
        let sum = format!(r#"{{"aggregationTemporality":{temporality},"dataPoints":[{point}]}}"#);
        format!(r#"{{"name":"{name}","sum":{sum}}}"#)
    };
    let otlp = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{},{}]}}]}}]}}"#,
        metric("bad", 0),
        metric("good", 2)
    );
    let json = "Content-Type: application/json\r\n";
    for _ in 0..2 {
        it.post("/v1/metrics", json, &otlp).check(200, "\"rejectedDataPoints\":\"1\"");
    }
    it.post("/write", "", "cpu,host=c used=1\ncpu,host=c used\n").check(400, "dropped=1");
    it.post("/v1/metrics", json, "{").check(400, "invalid OTLP request");

    let count = |source, reason| {
        let labels = [("source", source), ("reason", reason)];
        it.intake.meter().counter("topdeck_ingest_rejected_total", "", &labels).get()
    };
    assert_eq!((count("otlp", "sample"), count("otlp", "request")), (2, 1));
    assert_eq!((count("influx", "sample"), count("influx", "request")), (1, 0));
    let audit = it.intake.audit().unwrap();
    let source = |name: &str| {
        let producer = audit.producers.iter().find(|producer| producer.name == name).unwrap();
        assert!(producer.is_reconciled(), "{producer:?}");
        producer.source.clone().unwrap()
    };
    let otlp = source("otlp");
    assert_eq!((otlp.received, otlp.accepted, otlp.buffered()), (4, 2, 0));
    assert_eq!(otlp.dropped, [("rejected: invalid samples".to_owned(), 2)]);
    let problem = otlp.last_problem.unwrap().text;
    assert!(problem.starts_with("invalid OTLP request: "), "{problem}");
    let influx = source("influx").last_problem.unwrap().text;
    assert!(influx.starts_with("line 2: "), "{influx}");
    // A line per sender, not per request.
    let lines = lines.lock().unwrap();
    let of = |name: &str| {
        let start = format!("input of \"{name}\" rejected: ");
        lines.iter().filter(|line| line.starts_with(&start)).cloned().collect::<Vec<_>>()
    };
    assert_eq!((of("otlp").len(), of("influx").len()), (1, 1), "{lines:?}");
    assert!(of("otlp")[0].contains("metric \"bad\": "), "{lines:?}");
}

/// `NaN` was answered with `"values":0`, and `1e400` was stored as infinity: the mean, the sum and
/// the maximum of the metric were infinite.
#[test]
fn recorded_numbers_that_are_not_finite_are_rejected_with_their_line() {
    let it = ServerFixture::new();
    let path = "/v1/record?metric=took&unit=ms";
    for (body, expected) in [
        ("NaN", "line 1: expected a finite number, found \\\"NaN\\\""),
        ("5\nNaN\n", "line 2: expected a finite number, found \\\"NaN\\\"; the whole body is"),
        ("1e400", "line 1: expected a finite number, found \\\"1e400\\\""),
        ("5\n-inf", "line 2: expected a finite number, found \\\"-inf\\\""),
    ] {
        it.post(path, "", body).check(400, expected);
    }
    assert_eq!(it.count("took"), 0);
    it.post(path, "", "1e30\n5").check(200, "\"values\":2");
}

/// One value in bytes was accepted for a metric in ns, which then had no answer anywhere.
#[test]
fn a_value_in_another_unit_than_its_metric_is_rejected_with_the_remedy() {
    let it = ServerFixture::new();
    it.post("/v1/record?metric=checkout&unit=ms", "", "5").check(200, "\"values\":1");
    assert_eq!(it.count("checkout"), 1);
    let expected = "metric checkout has histograms in ns, these are in B: different units cannot \
                    be merged; send another name or unit; topdeck rename and delete take the \
                    series of one unit, as in 'checkout{__unit=\\\"ns\\\"}'";
    for label in ["", "&label.host=b"] {
        let path = format!("/v1/record?metric=checkout&unit=B{label}");
        it.post(&path, "", "1").check(400, expected);
    }
    // Units of time are one unit; a value without one is left out of queries, and named.
    it.post("/v1/record?metric=checkout&unit=s", "", "1").check(200, "\"values\":1");
    it.post("/v1/record?metric=checkout", "", "1").check(200, "\"values\":1");
    it.post("/v1/record?metric=size&unit=B", "", "1").check(200, "\"values\":1");
    assert_eq!((it.count("checkout"), it.count("size")), (3, 1));
    // A client of OTLP cannot act on it.
    let point = r#"{"startTimeUnixNano":"1600000000000000000","timeUnixNano":"1600000060000000000",
                    "count":"1","sum":1,"bucketCounts":["1","0"],"explicitBounds":[1]}"#;
    let body = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"size","unit":"s",
           "histogram":{{"aggregationTemporality":1,"dataPoints":[{point}]}}}}]}}]}}]}}"#
    );
    it.post("/v1/metrics", "Content-Type: application/json\r\n", &body).check(200, "");
    let conflicts = "topdeck_ingest_unit_conflicts_total";
    assert_eq!(it.intake.meter().counter(conflicts, "", &[("source", "otlp")]).get(), 1);
    let query = |path: &str| it.request("GET", path, "", b"");
    let expected = "select one, as in 'size{__unit=\\\"B\\\"}'";
    query("/v1/histogram?selector=size").check(422, expected);
    let narrow = "size%7B__unit=%22B%22%7D";
    query(&format!("/v1/histogram?selector={narrow}")).check(200, "\"count\":1");
    query(&format!("/api/v1/query?query=count({narrow})")).check(200, "\"success\"");
}

/// An empty body was answered with `"values":0`.
#[test]
fn an_empty_body_of_numbers_is_rejected() {
    let it = ServerFixture::new();
    for body in ["", " \n"] {
        it.post("/v1/record?metric=took", "", body).check(400, "the body is empty");
    }
}

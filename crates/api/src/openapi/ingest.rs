//! Routes by which measurements come in. Their handlers are registered where they are written.

use super::{JSON, Parameter, Route, Scope};

/// Something that takes a body.
const fn post(
    path: &'static str,
    about: &'static str,
    parameters: &'static [Parameter],
    body: (&'static str, &'static str),
    answer: (u16, &'static str, &'static str),
) -> Route {
    Route {
        method: "post",
        path,
        scope: Some(Scope::Ingest),
        about,
        parameters,
        body: Some(body),
        answer,
        handler: None,
    }
}

const METRIC: Parameter = Parameter::text("metric", "the metric's name");
const UNIT: Parameter = Parameter::text("unit", "the unit of the values, such as ms");
const DURABLE: &str = "what was taken; it is durable";
const LINES: (&str, &str) = ("text/plain", "lines of the Influx line protocol");
const PRECISION: Parameter =
    Parameter::text("precision", "the unit of times: ns, us, ms, s; ns if not said");

pub(crate) const ROUTES: &[Route] = &[
    post(
        "/v1/record",
        "Records raw values: numbers, one in a line.",
        &[METRIC.required(), UNIT],
        ("text/plain", "numbers, one in a line"),
        (200, JSON, DURABLE),
    ),
    post(
        "/v1/httptrap",
        "Takes an HTTPTrap body (docs/formats/httptrap.md).",
        &[],
        (JSON, "metrics as Circonus' HTTPTrap takes them"),
        (200, JSON, "how many were taken: {\"stats\": n}; they are durable"),
    ),
    post(
        "/module/httptrap/{check}/{secret}",
        "Takes an HTTPTrap body at the address that Circonus' clients know.",
        &[Parameter::text("check", "which check"), Parameter::text("secret", "a token")],
        (JSON, "metrics as Circonus' HTTPTrap takes them"),
        (200, JSON, "how many were taken: {\"stats\": n}; they are durable"),
    ),
    post(
        "/v1/hlog",
        "Takes a log of HdrHistogram.",
        &[METRIC, UNIT],
        ("text/plain", "a log of HdrHistogram"),
        (200, JSON, DURABLE),
    ),
    post(
        "/v1/metrics",
        "Takes OpenTelemetry metrics (docs/formats/otlp.md).",
        &[],
        ("application/x-protobuf, application/json", "an ExportMetricsServiceRequest"),
        (
            200,
            "application/x-protobuf, application/json",
            "an ExportMetricsServiceResponse, with what was not taken",
        ),
    ),
    post(
        "/api/v1/write",
        "Takes Prometheus remote write, 1.0 and 2.0 (docs/formats/prometheus.md).",
        &[],
        ("application/x-protobuf", "a write request, compressed with snappy"),
        (204, "", "all of it is durable; headers say how much"),
    ),
    post(
        "/write",
        "Takes the line protocol of InfluxDB 1.",
        &[PRECISION],
        LINES,
        (204, "", "all of it is durable"),
    ),
    post(
        "/api/v2/write",
        "Takes the line protocol of InfluxDB 2.",
        &[PRECISION],
        LINES,
        (204, "", "all of it is durable"),
    ),
    post(
        "/v1/import",
        "Takes a recording in any format that `topdeck import` reads.",
        &[METRIC, UNIT],
        ("application/octet-stream", "the recording"),
        (200, JSON, DURABLE),
    ),
    post(
        "/v1/batches",
        "Takes batches of an agent (docs/formats/forward.md).",
        &[],
        ("application/octet-stream", "batches with their identities"),
        (200, "application/octet-stream", "how far they are durable"),
    ),
];

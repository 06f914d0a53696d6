//! Fields of OTLP's messages: their names in JSON, numbers in protobuf, and types.
//!
//! The tables convert JSON to protobuf and back, and say what a stored span may have. Source:
//! opentelemetry-proto.

/// A field of a message.
#[derive(Debug)]
pub(crate) struct OtlpField {
    pub(super) name: &'static str,
    pub(super) number: u32,
    pub(super) field_type: FieldType,
    pub(super) is_list: bool,
    /// Whether only stored traces have it: in JSON, values of another type within are left out.
    pub(super) is_stored_only: bool,
}

/// Type of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum FieldType {
    Message(&'static [OtlpField]),
    Text,
    Bytes,
    /// Bytes as hexadecimal digits, as ids of traces and spans.
    Hex,
    Bool,
    Double,
    /// `fixed64`.
    Fixed,
    /// `fixed32`.
    Fixed32,
    /// `sfixed64`.
    SignedFixed,
    /// `uint32`, `uint64`, enumerations.
    Unsigned,
    /// `int64`.
    Signed,
    /// `sint32`.
    Zigzag,
}

const fn single_field(name: &'static str, number: u32, holds: FieldType) -> OtlpField {
    OtlpField { name, number, field_type: holds, is_list: false, is_stored_only: false }
}

const fn repeated_field(name: &'static str, number: u32, holds: FieldType) -> OtlpField {
    OtlpField { name, number, field_type: holds, is_list: true, is_stored_only: false }
}

/// The field, if the measurement of a span does not read it.
const fn stored_only(field: OtlpField) -> OtlpField {
    OtlpField { is_stored_only: true, ..field }
}

use FieldType::{
    Bool, Bytes, Double, Fixed, Fixed32, Hex, Message, Signed, SignedFixed, Text, Unsigned, Zigzag,
};

/// `ExportMetricsServiceRequest`.
pub(super) static REQUEST: [OtlpField; 1] =
    [repeated_field("resourceMetrics", 1, Message(&RESOURCE_METRICS))];
static RESOURCE_METRICS: [OtlpField; 2] = [
    single_field("resource", 1, Message(&RESOURCE)),
    repeated_field("scopeMetrics", 2, Message(&SCOPE_METRICS)),
];
/// `Resource`.
pub(crate) static RESOURCE: [OtlpField; 1] = [repeated_field("attributes", 1, Message(&KEY_VALUE))];
static SCOPE_METRICS: [OtlpField; 2] =
    [single_field("scope", 1, Message(&SCOPE)), repeated_field("metrics", 2, Message(&METRIC))];
/// `InstrumentationScope`.
pub(crate) static SCOPE: [OtlpField; 3] = [
    single_field("name", 1, Text),
    single_field("version", 2, Text),
    repeated_field("attributes", 3, Message(&KEY_VALUE)),
];
/// An attribute.
pub(super) static KEY_VALUE: [OtlpField; 2] =
    [single_field("key", 1, Text), single_field("value", 2, Message(&ANY_VALUE))];
/// A value of an attribute.
pub(super) static ANY_VALUE: [OtlpField; 7] = [
    single_field("stringValue", 1, Text),
    single_field("boolValue", 2, Bool),
    single_field("intValue", 3, Signed),
    single_field("doubleValue", 4, Double),
    single_field("arrayValue", 5, Message(&ARRAY_VALUE)),
    single_field("kvlistValue", 6, Message(&KEY_VALUE_LIST)),
    single_field("bytesValue", 7, Bytes),
];
static ARRAY_VALUE: [OtlpField; 1] = [repeated_field("values", 1, Message(&ANY_VALUE))];
static KEY_VALUE_LIST: [OtlpField; 1] = [repeated_field("values", 1, Message(&KEY_VALUE))];
static METRIC: [OtlpField; 8] = [
    single_field("name", 1, Text),
    single_field("description", 2, Text),
    single_field("unit", 3, Text),
    single_field("gauge", 5, Message(&NUMBERS)),
    single_field("sum", 7, Message(&NUMBERS)),
    single_field("histogram", 9, Message(&HISTOGRAMS)),
    single_field("exponentialHistogram", 10, Message(&EXPONENTIAL_HISTOGRAMS)),
    single_field("summary", 11, Message(&SUMMARIES)),
];
static NUMBERS: [OtlpField; 3] = [
    repeated_field("dataPoints", 1, Message(&NUMBER)),
    TEMPORALITY,
    single_field("isMonotonic", 3, Bool),
];
static HISTOGRAMS: [OtlpField; 2] =
    [repeated_field("dataPoints", 1, Message(&HISTOGRAM)), TEMPORALITY];
static EXPONENTIAL_HISTOGRAMS: [OtlpField; 2] =
    [repeated_field("dataPoints", 1, Message(&EXPONENTIAL_HISTOGRAM)), TEMPORALITY];
static SUMMARIES: [OtlpField; 1] = [repeated_field("dataPoints", 1, Message(&SUMMARY))];
const TEMPORALITY: OtlpField = single_field("aggregationTemporality", 2, Unsigned);
const START: OtlpField = single_field("startTimeUnixNano", 2, Fixed);
const TIME: OtlpField = single_field("timeUnixNano", 3, Fixed);
static EXEMPLAR: [OtlpField; 6] = [
    single_field("timeUnixNano", 2, Fixed),
    single_field("asDouble", 3, Double),
    single_field("spanId", 4, Hex),
    single_field("traceId", 5, Hex),
    single_field("asInt", 6, SignedFixed),
    repeated_field("filteredAttributes", 7, Message(&KEY_VALUE)),
];
static NUMBER: [OtlpField; 7] = [
    repeated_field("attributes", 7, Message(&KEY_VALUE)),
    START,
    TIME,
    single_field("asDouble", 4, Double),
    repeated_field("exemplars", 5, Message(&EXEMPLAR)),
    single_field("asInt", 6, SignedFixed),
    single_field("flags", 8, Unsigned),
];
static HISTOGRAM: [OtlpField; 11] = [
    repeated_field("attributes", 9, Message(&KEY_VALUE)),
    START,
    TIME,
    single_field("count", 4, Fixed),
    single_field("sum", 5, Double),
    repeated_field("bucketCounts", 6, Fixed),
    repeated_field("explicitBounds", 7, Double),
    repeated_field("exemplars", 8, Message(&EXEMPLAR)),
    single_field("flags", 10, Unsigned),
    single_field("min", 11, Double),
    single_field("max", 12, Double),
];
static EXPONENTIAL_HISTOGRAM: [OtlpField; 14] = [
    repeated_field("attributes", 1, Message(&KEY_VALUE)),
    START,
    TIME,
    single_field("count", 4, Fixed),
    single_field("sum", 5, Double),
    single_field("scale", 6, Zigzag),
    single_field("zeroCount", 7, Fixed),
    single_field("positive", 8, Message(&BUCKETS)),
    single_field("negative", 9, Message(&BUCKETS)),
    single_field("flags", 10, Unsigned),
    repeated_field("exemplars", 11, Message(&EXEMPLAR)),
    single_field("min", 12, Double),
    single_field("max", 13, Double),
    single_field("zeroThreshold", 14, Double),
];
static BUCKETS: [OtlpField; 2] =
    [single_field("offset", 1, Zigzag), repeated_field("bucketCounts", 2, Unsigned)];
static SUMMARY: [OtlpField; 7] = [
    repeated_field("attributes", 7, Message(&KEY_VALUE)),
    START,
    TIME,
    single_field("count", 4, Fixed),
    single_field("sum", 5, Double),
    repeated_field("quantileValues", 6, Message(&QUANTILE)),
    single_field("flags", 8, Unsigned),
];
static QUANTILE: [OtlpField; 2] =
    [single_field("quantile", 1, Double), single_field("value", 2, Double)];

/// `TracesData`, and `ExportTraceServiceRequest`.
pub(super) static TRACES: [OtlpField; 1] =
    [repeated_field("resourceSpans", 1, Message(&RESOURCE_SPANS))];
static RESOURCE_SPANS: [OtlpField; 2] = [
    single_field("resource", 1, Message(&RESOURCE)),
    repeated_field("scopeSpans", 2, Message(&SCOPE_SPANS)),
];
static SCOPE_SPANS: [OtlpField; 2] = [
    stored_only(single_field("scope", 1, Message(&SCOPE))),
    repeated_field("spans", 2, Message(&SPAN)),
];
/// `Span`.
pub(crate) static SPAN: [OtlpField; 16] = [
    single_field("traceId", 1, Hex),
    single_field("spanId", 2, Hex),
    single_field("traceState", 3, Text),
    single_field("parentSpanId", 4, Hex),
    stored_only(single_field("flags", 16, Fixed32)),
    single_field("name", 5, Text),
    single_field("kind", 6, Unsigned),
    single_field("startTimeUnixNano", 7, Fixed),
    single_field("endTimeUnixNano", 8, Fixed),
    repeated_field("attributes", 9, Message(&KEY_VALUE)),
    stored_only(single_field("droppedAttributesCount", 10, Unsigned)),
    stored_only(repeated_field("events", 11, Message(&EVENT))),
    stored_only(single_field("droppedEventsCount", 12, Unsigned)),
    stored_only(repeated_field("links", 13, Message(&LINK))),
    stored_only(single_field("droppedLinksCount", 14, Unsigned)),
    single_field("status", 15, Message(&STATUS)),
];
static EVENT: [OtlpField; 4] = [
    single_field("timeUnixNano", 1, Fixed),
    single_field("name", 2, Text),
    repeated_field("attributes", 3, Message(&KEY_VALUE)),
    single_field("droppedAttributesCount", 4, Unsigned),
];
static LINK: [OtlpField; 6] = [
    single_field("traceId", 1, Hex),
    single_field("spanId", 2, Hex),
    single_field("traceState", 3, Text),
    repeated_field("attributes", 4, Message(&KEY_VALUE)),
    single_field("droppedAttributesCount", 5, Unsigned),
    single_field("flags", 6, Fixed32),
];
static STATUS: [OtlpField; 2] =
    [stored_only(single_field("message", 2, Text)), single_field("code", 3, Unsigned)];

impl FieldType {
    /// What a JSON value of the type is.
    pub(super) fn name(self) -> &'static str {
        match self {
            Message(_) => "an object",
            Text => "a text",
            Bytes => "base64",
            Hex => "hexadecimal digits",
            Bool => "true or false",
            Double => "a number",
            Fixed | Unsigned => "a whole number from 0 to 2^64 - 1",
            Fixed32 => "a whole number from 0 to 2^32 - 1",
            SignedFixed | Signed => "a whole number from -2^63 to 2^63 - 1",
            Zigzag => "a whole number from -2^31 to 2^31 - 1",
        }
    }
}

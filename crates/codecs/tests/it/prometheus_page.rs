//! The tables of `docs/formats/prometheus.md` compared with the code.

use codecs::prometheus::{
    BucketSpan, ClientBucket, ClientHistogram, RemoteCount, RemoteHistogram, RemoteZeroCount,
};

use crate::otlp::{field_number, fields_in_page, inner_field_number};

const PAGE: &str = include_str!("../../../../docs/formats/prometheus.md");

#[test]
fn page_and_code_agree_on_field_numbers() {
    type Remote = RemoteHistogram;
    let span = || vec![BucketSpan::default()];
    let fields: [(&str, Remote); 17] = [
        ("count_int", Remote { count: Some(RemoteCount::Int(1)), ..Default::default() }),
        ("count_float", Remote { count: Some(RemoteCount::Float(1.0)), ..Default::default() }),
        ("sum", Remote { sum: 1.0, ..Default::default() }),
        ("schema", Remote { schema: 1, ..Default::default() }),
        ("zero_threshold", Remote { zero_threshold: 1.0, ..Default::default() }),
        (
            "zero_count_int",
            Remote { zero_count: Some(RemoteZeroCount::Int(1)), ..Default::default() },
        ),
        (
            "zero_count_float",
            Remote { zero_count: Some(RemoteZeroCount::Float(1.0)), ..Default::default() },
        ),
        ("negative_spans", Remote { negative_spans: span(), ..Default::default() }),
        ("negative_deltas", Remote { negative_deltas: vec![1], ..Default::default() }),
        ("negative_counts", Remote { negative_counts: vec![1.0], ..Default::default() }),
        ("positive_spans", Remote { positive_spans: span(), ..Default::default() }),
        ("positive_deltas", Remote { positive_deltas: vec![1], ..Default::default() }),
        ("positive_counts", Remote { positive_counts: vec![1.0], ..Default::default() }),
        ("reset_hint", Remote { reset_hint: 1, ..Default::default() }),
        ("timestamp", Remote { timestamp: 1, ..Default::default() }),
        ("custom_values", Remote { custom_values: vec![1.0], ..Default::default() }),
        ("start_timestamp", Remote { start_timestamp: 1, ..Default::default() }),
    ];
    let coded = fields.map(|(name, message)| (field_number(&message.to_bytes()), name.to_string()));
    assert_eq!(fields_in_page(PAGE, "Remote write"), coded);

    type Client = ClientHistogram;
    let fields: [(&str, Client); 16] = [
        ("sample_count", Client { sample_count: Some(1), ..Default::default() }),
        ("sample_sum", Client { sample_sum: Some(1.0), ..Default::default() }),
        ("bucket", Client { bucket: vec![ClientBucket::default()], ..Default::default() }),
        ("sample_count_float", Client { sample_count_float: Some(1.0), ..Default::default() }),
        ("schema", Client { schema: Some(1), ..Default::default() }),
        ("zero_threshold", Client { zero_threshold: Some(1.0), ..Default::default() }),
        ("zero_count", Client { zero_count: Some(1), ..Default::default() }),
        ("zero_count_float", Client { zero_count_float: Some(1.0), ..Default::default() }),
        ("negative_span", Client { negative_span: span(), ..Default::default() }),
        ("negative_delta", Client { negative_delta: vec![1], ..Default::default() }),
        ("negative_count", Client { negative_count: vec![1.0], ..Default::default() }),
        ("positive_span", Client { positive_span: span(), ..Default::default() }),
        ("positive_delta", Client { positive_delta: vec![1], ..Default::default() }),
        ("positive_count", Client { positive_count: vec![1.0], ..Default::default() }),
        ("created_timestamp", Client { created_timestamp: Some(vec![1]), ..Default::default() }),
        ("exemplars", Client { exemplars: vec![vec![1]], ..Default::default() }),
    ];
    let coded = fields.map(|(name, message)| (field_number(&message.to_bytes()), name.to_string()));
    assert_eq!(fields_in_page(PAGE, "Client model"), coded);

    let fields = [
        ("cumulative_count", ClientBucket { cumulative_count: Some(1), ..Default::default() }),
        ("upper_bound", ClientBucket { upper_bound: Some(1.0), ..Default::default() }),
        ("exemplar", ClientBucket { exemplar: Some(vec![1]), ..Default::default() }),
        (
            "cumulative_count_float",
            ClientBucket { cumulative_count_float: Some(1.0), ..Default::default() },
        ),
    ];
    let coded = fields.map(|(name, bucket)| {
        let message = Client { bucket: vec![bucket], ..Default::default() };
        (inner_field_number(&message.to_bytes()), name.to_string())
    });
    assert_eq!(fields_in_page(PAGE, "Client bucket"), coded);
    let fields = [
        ("offset", BucketSpan { offset: 1, length: 0 }),
        ("length", BucketSpan { offset: 0, length: 1 }),
    ];
    let coded = fields.map(|(name, span)| {
        let message = Client { positive_span: vec![span], ..Default::default() };
        (inner_field_number(&message.to_bytes()), name.to_string())
    });
    assert_eq!(fields_in_page(PAGE, "Span"), coded);
}

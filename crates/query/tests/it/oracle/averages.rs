//! Averages of quantiles: all are rejected with a suggested query, which is valid; nothing else is
//! rejected.

use std::sync::LazyLock;

use query::{
    Language, QueryRequest, QueryResult, Result, ResultData, Settings, StoreSource, promql,
};
use store::{MINUTE, Store};

use super::random_queries::Splitmix64;
use super::raw::{BEGIN, RawData, build_store};

/// Store of all queries in this file.
static STORE: LazyLock<Store> = LazyLock::new(|| {
    let mut random = Splitmix64(3);
    let raw = RawData::new(&mut random);
    build_store(&raw, &mut random)
});

fn execute(text: &str, options: promql::Options) -> Result<QueryResult> {
    let view = STORE.view().unwrap();
    let start = BEGIN + 30 * MINUTE;
    let question =
        QueryRequest { text, language: Language::PromQl, start, end: start, step: 0, options };
    query::execute(&StoreSource::new(&view), &question, &Settings::default(), &|| false)
}

/// Suggested query in the message.
#[track_caller]
fn suggested_query(text: &str) -> Option<String> {
    let found = execute(text, promql::Options::all());
    let message = found.map(|answer| panic!("{text}: {:?}", answer.data)).unwrap_err().to_string();
    assert!(message.contains("cannot average quantiles"), "{text}: {message}");
    let (_, remedy) = message.split_once("take the quantile of the result: ")?;
    Some(remedy.to_owned())
}

/// The query is rejected, and the suggested query returns a non-empty result.
#[track_caller]
fn check(text: &str, instead: &str) {
    let remedy = suggested_query(text).unwrap_or_else(|| panic!("{text} has no remedy"));
    assert_eq!(remedy, instead);
    let answer = execute(&remedy, promql::Options::default()).unwrap();
    let ResultData::Vector(streams) = answer.data else { panic!("{remedy} gives no vector") };
    assert!(!streams.is_empty() || remedy.contains("_bucket"), "{remedy} gives nothing");
}

const P99: &str = "histogram_quantile(0.99, sum by (host) (sum_over_time(latency[5m])))";

#[test]
fn suggested_queries_are_valid() {
    let whole = "histogram_quantile(0.99, sum (sum_over_time(latency[5m])))";
    check(&format!("avg({P99})"), whole);
    check(&format!("avg by () ({P99})"), whole);
    check(&format!("avg(({P99}))"), whole);
    check(&format!("avg({P99} * 1000)"), whole);
    check(&format!("avg({P99} > 0.1)"), whole);
    check(&format!("avg(topk(3, {P99}))"), whole);
    check(&format!("1 + max(avg({P99}))"), whole);
    check(
        "avg by (zone) (histogram_quantile(0.5, rate(waited[5m])))",
        "histogram_quantile(0.5, sum by (zone) (rate(waited[5m])))",
    );
    check(
        "avg without (host) (histogram_quantile(0.5, rate(waited[5m])))",
        "histogram_quantile(0.5, sum without (host) (rate(waited[5m])))",
    );
    check(
        "avg_over_time(histogram_quantile(0.9, sum by (host) \
         (sum_over_time(latency[1m])))[20m:1m])",
        "histogram_quantile(0.9, sum by (host) (sum_over_time(latency[20m])))",
    );
    check(
        "avg_over_time(histogram_quantile(0.9, latency)[20m:1m])",
        "histogram_quantile(0.9, sum_over_time(latency[20m]))",
    );
    // Classic histogram buckets keep their bounds.
    check(
        "avg(histogram_quantile(0.9, sum by (le, host) (rate(old_bucket[5m]))))",
        "histogram_quantile(0.9, sum by (le) (rate(old_bucket[5m])))",
    );
    check(
        "avg by (zone) (histogram_quantile(0.9, rate(old_bucket[5m])))",
        "histogram_quantile(0.9, sum by (zone, le) (rate(old_bucket[5m])))",
    );
    check(
        "avg without (host) (histogram_quantile(0.9, rate(old_bucket[5m])))",
        "histogram_quantile(0.9, sum without (host) (rate(old_bucket[5m])))",
    );
}

#[test]
fn all_average_forms_are_rejected() {
    for of in [
        P99.to_owned(),
        format!("-({P99})"),
        format!("round({P99}, 0.1)"),
        format!("1000 * ({P99})"),
        format!("({P99}) / scalar(load{{host=\"a\"}})"),
        format!("({P99}) > 0.2"),
        format!("({P99}) and load"),
        format!("({P99}) or load"),
        format!("({P99}) or ({P99})"),
        format!("topk(3, {P99})"),
        format!("bottomk(3, {P99})"),
        format!("sort({P99})"),
        format!("sort_by_label({P99}, \"host\")"),
        format!("label_replace({P99}, \"a\", \"b\", \"c\", \"d\")"),
        format!("last_over_time(({P99})[5m:])"),
        format!("running_total({P99})"),
        "quantile(0.9, load)".to_owned(),
        "quantile_over_time(0.9, load[5m])".to_owned(),
        "histogram_quantiles(latency, \"q\", 0.5, 0.9)".to_owned(),
    ] {
        suggested_query(&format!("avg({of})"));
        suggested_query(&format!("avg by (host) ({of})"));
        suggested_query(&format!("avg_over_time(({of})[10m:1m])"));
        suggested_query(&format!("max(avg_over_time(({of})[10m:1m] offset 5m))"));
        suggested_query(&format!("sum(avg({of})) / 2"));
    }
    suggested_query(&format!("sum({P99}) / count({P99})"));
    suggested_query(&format!("sum_over_time(({P99})[10m:]) / count_over_time(({P99})[10m:])"));
}

#[test]
fn other_averages_are_answered() {
    for text in [
        P99.to_owned(),
        format!("max({P99})"),
        format!("max_over_time(({P99})[10m:1m])"),
        format!("count({P99} > 0.1)"),
        format!("sum({P99} > bool 0.1) / count({P99})"),
        format!("avg({P99} > bool 0.1)"),
        format!("avg_over_time((({P99}) < bool 1)[10m:1m])"),
        format!("sum({P99})"),
        format!("sum by (host) ({P99}) / 1000"),
        "avg(load)".to_owned(),
        "avg_over_time(load[5m])".to_owned(),
        "avg(histogram_avg(sum_over_time(latency[5m])))".to_owned(),
        "avg(histogram_fraction(0, 1, sum_over_time(latency[5m])))".to_owned(),
        "avg(rate(bytes_total[5m]))".to_owned(),
        format!("avg(load and on (host) ({P99}))"),
        format!("avg(load) + on () group_right () ({P99})"),
        format!("avg(absent({P99}))"),
    ] {
        if let Err(error) = execute(&text, promql::Options::all()) {
            panic!("{text}: {error}");
        }
    }
}

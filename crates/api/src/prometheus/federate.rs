//! `/federate`: the latest sample of selected series in Prometheus' text format, for another
//! Prometheus to scrape.
//!
//! A selector is evaluated as in PromQL, so series are found under the names of Prometheus. The
//! text format has no native histograms: a histogram is written as a classic one, with the edges of
//! its non-empty buckets as bounds. Characters that the format does not allow in names become
//! underscores, as Prometheus does it for scrapers that do not ask for others.
//!
//! Series of deltas are left out: a scraper expects totals. A comment tells how many.

use std::collections::BTreeMap;
use std::fmt::{Result as FmtResult, Write as _};

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use query::{
    FloatHistogram, LabelSet, Language, NAME, QueryRequest, ResultData, Settings, StepValue,
    StoreSource, promql,
};
use store::ReadView;

use super::PrometheusError;
use super::expression::{OPTIONS, parse_error};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::BoundedBuffer;
use crate::context::Context;
use crate::parameters::Parameters;
use crate::query::EntryBudget;

const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Maximum number of selectors.
const SELECTORS_MAX: usize = 64;
/// Suffixes of the series of a histogram.
const PARTS: [&str; 3] = ["_bucket", "_count", "_sum"];

/// The latest samples by metric name, then by labels.
#[derive(Default)]
struct FederatedFamilies {
    families: BTreeMap<String, BTreeMap<LabelSet, (i64, StepValue)>>,
    series: usize,
    /// Number of series of deltas, which are left out.
    deltas: usize,
}

pub(super) async fn federate(
    context: Context,
    parameters: Result<Parameters, ApiError>,
) -> Result<Response, PrometheusError> {
    let parameters = parameters?;
    let selectors = range_selectors(&parameters)?;
    let (now, queries) = (context.intake.now(), context.queries.clone());
    let settings = Settings {
        limits: queries.settings.limits,
        threads: queries.settings.threads,
        sums_deltas: true,
        ..Settings::default()
    };
    let (captures, own_settings) = (selectors.clone(), settings.clone());
    let estimate = move |view: &ReadView, active: &ActiveQuery| {
        let source = StoreSource::new(view).with_context(active);
        let rows = captures.iter().map(|text| {
            query::estimate(&source, &request(text, now), &own_settings, active).unwrap_or(0)
        });
        rows.fold(0, u64::saturating_add)
    };
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let (mut found, mut entries) = (FederatedFamilies::default(), EntryBudget::new(active));
        for text in &selectors {
            let source = StoreSource::new(view).with_context(active);
            let answer = query::execute(&source, &request(text, now), &settings, active)
                .map_err(|error| ApiError::from_query_error(error, text))?;
            found.add(answer.data);
            entries.set_count(found.series)?;
        }
        let mut out = active.response_buffer();
        match found.write(&mut out) {
            Ok(()) => Ok(out.text),
            Err(_) => Err(out.into_error()),
        }
    };
    let text = context.run_query("prometheus_federate", None, estimate, work).await?;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(KIND))], text).into_response())
}

/// All `match[]` as range selectors of the lookback.
fn range_selectors(parameters: &Parameters) -> Result<Vec<String>, ApiError> {
    let texts: Vec<&str> = parameters.all("match[]").collect();
    if texts.is_empty() || texts.len() > SELECTORS_MAX {
        let found = texts.len();
        let what = format!(
            "match[]: found {found} selectors, expected 1 to {SELECTORS_MAX}, such as \
             match[]={{job=\"api\"}}"
        );
        return Err(ApiError::BadRequest(what));
    }
    let one = |text: &&str| {
        let expression =
            promql::parse(text, &OPTIONS).map_err(|error| parse_error("match[]", &error, text))?;
        match expression.kind {
            promql::ExprKind::Selector(_) => Ok(format!("{text}[5m]")),
            _ => Err(ApiError::BadRequest(format!(
                "invalid parameter \"match[]\": {text:?} is not a selector such as up or \
                 {{job=\"a\"}}"
            ))),
        }
    };
    texts.iter().map(one).collect()
}

fn request(text: &str, now: i64) -> QueryRequest<'_> {
    let (start, end, step) = (now, now, 0);
    QueryRequest { text, language: Language::PromQl, start, end, step, options: OPTIONS }
}

impl FederatedFamilies {
    fn add(&mut self, data: ResultData) {
        // A selector with an offset or a range of its own has no other data.
        let ResultData::RawSamples(all) = data else { return };
        for series in all {
            let Some(last) = series.points.into_iter().next_back() else { continue };
            if series.is_running_total {
                self.deltas += 1;
                continue;
            }
            let labels = series.labels.filter(|name| name != NAME);
            let family = self.families.entry(escaped(series.labels.name(), true)).or_default();
            if family.insert(labels, (last.time, last.value)).is_none() {
                self.series += 1;
            }
        }
    }

    /// Whether the series of a name are written with a histogram.
    fn is_part(&self, name: &str) -> bool {
        let base = PARTS.iter().find_map(|part| name.strip_suffix(part));
        let base = base.and_then(|base| self.families.get(base));
        base.is_some_and(|base| base.values().any(|(_, value)| value.is_distribution()))
    }

    fn write(&self, out: &mut BoundedBuffer) -> FmtResult {
        if self.deltas > 0 {
            writeln!(
                out,
                "# {} series of delta temporality are left out, as a scrape needs totals; remote \
                 read has them",
                self.deltas
            )?;
        }
        for (name, family) in &self.families {
            if self.is_part(name) {
                continue;
            }
            let is_histogram = family.values().any(|(_, value)| value.is_distribution());
            writeln!(out, "# TYPE {name} {}", if is_histogram { "histogram" } else { "untyped" })?;
            for (labels, (time, value)) in family {
                let ms = time.div_euclid(1_000_000);
                match (value.histogram(), value.number()) {
                    (Some(histogram), _) => write_histogram(out, name, labels, (&histogram, ms))?,
                    (None, Some(number)) => write_line(out, (name, ""), labels, None, number, ms)?,
                    (None, None) => {}
                }
            }
        }
        Ok(())
    }
}

/// The classic series of a histogram. Both edges of a non-empty bucket are bounds.
fn write_histogram(
    out: &mut BoundedBuffer,
    name: &str,
    labels: &LabelSet,
    (histogram, ms): (&FloatHistogram, i64),
) -> FmtResult {
    let mut bucket = |bound: f64, count: f64| {
        let le = bound_text(bound);
        write_line(out, (name, "_bucket"), labels, Some(&le), count, ms)
    };
    let (mut sum, mut last) = (0.0, f64::NEG_INFINITY);
    for found in histogram.buckets().filter(|bucket| bucket.count != 0.0) {
        if found.lower > last && found.lower.is_finite() {
            bucket(found.lower, sum)?;
        }
        sum += found.count;
        last = found.upper;
        if last.is_finite() {
            bucket(last, sum)?;
        }
    }
    bucket(f64::INFINITY, histogram.count)?;
    write_line(out, (name, "_sum"), labels, None, histogram.sum, ms)?;
    write_line(out, (name, "_count"), labels, None, histogram.count, ms)
}

/// A line: name and suffix, labels, value and time.
fn write_line(
    out: &mut BoundedBuffer,
    (name, suffix): (&str, &str),
    labels: &LabelSet,
    le: Option<&str>,
    value: f64,
    ms: i64,
) -> FmtResult {
    write!(out, "{name}{suffix}")?;
    let pairs = labels.iter().filter(|(name, _)| le.is_none() || *name != "le");
    for (at, (name, value)) in pairs.chain(le.map(|le| ("le", le))).enumerate() {
        out.write_char(if at == 0 { '{' } else { ',' })?;
        write!(out, "{}=\"", escaped(name, false))?;
        for c in value.chars() {
            match c {
                '"' | '\\' => write!(out, "\\{c}")?,
                '\n' => out.write_str("\\n")?,
                c => out.write_char(c)?,
            }
        }
        out.write_char('"')?;
    }
    let has_labels = le.is_some() || !labels.is_empty();
    writeln!(out, "{} {} {ms}", if has_labels { "}" } else { "" }, number_text(value))
}

/// A bound as Prometheus 3 spells it: `0.25`, `1.0`, `+Inf`.
fn bound_text(bound: f64) -> String {
    let text = number_text(bound);
    let is_whole = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if is_whole { text + ".0" } else { text }
}

fn number_text(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value if value != 0.0 && !(1e-6..1e21).contains(&value.abs()) => format!("{value:e}"),
        value => value.to_string(),
    }
}

/// A name with underscores for characters that are not allowed.
fn escaped(name: &str, is_metric: bool) -> String {
    let is_allowed = |(at, c): (usize, char)| {
        c.is_ascii_alphabetic()
            || c == '_'
            || (c == ':' && is_metric)
            || (at > 0 && c.is_ascii_digit())
    };
    let chars = name.chars().enumerate();
    chars.map(|(at, c)| if is_allowed((at, c)) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use hist::Histogram;
    use hist::codec::header::Temporality;
    use http::StatusCode;
    use model::{Sample, SampleValue, Series, SeriesKind};

    use crate::test_server::{NOW, START, TestServer};

    fn send(server: &TestServer, series: Series, value: SampleValue) {
        let series = series.validate().unwrap();
        server.send(&series, Sample { start: START, end: NOW - store::SECOND, value });
    }

    /// Tools that federate got 404.
    #[tokio::test]
    async fn federation_has_the_latest_samples_and_histograms_as_classic_ones() {
        let server = TestServer::new();
        let mut histogram = Histogram::default();
        histogram.record_n(0.25, 30);
        histogram.record_n(4.0, 2);
        let kind = SeriesKind::Histogram(Temporality::Cumulative);
        let took = Series::new("shop.took", kind).with_unit("s").with_label("http.route", "/\"a\"");
        send(&server, took, SampleValue::Histogram(Box::new(histogram)));
        let counter = SeriesKind::Counter(Temporality::Cumulative);
        let sent = Series::new("sent_total", counter).with_label("job", "api");
        send(&server, sent, SampleValue::Number(1e22));
        send(&server, Series::new("pool", SeriesKind::Gauge), SampleValue::Number(f64::NAN));
        let uri = "/federate?match[]={__name__=~\"shop.*|sent.*\"}&match[]=pool&match[]=sent_total";
        let (status, text) = server.get(uri).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        let ms = (NOW - store::SECOND) / 1_000_000;
        let labels = r#"http_route="/\"a\"""#;
        for expected in [
            "# TYPE shop_took histogram\n".to_owned(),
            format!("shop_took_bucket{{{labels},le=\"+Inf\"}} 32 {ms}\n"),
            format!("shop_took_sum{{{labels}}} 15.5 {ms}\nshop_took_count{{{labels}}} 32 {ms}\n"),
            format!("# TYPE sent_total untyped\nsent_total{{job=\"api\"}} 1e22 {ms}\n"),
            format!("# TYPE pool untyped\npool NaN {ms}\n"),
        ] {
            assert!(text.contains(&expected), "{expected}: {text}");
        }
        assert_eq!(text.matches("sent_total{").count(), 1, "{text}");
        let buckets = text.lines().filter(|line| line.starts_with("shop_took_bucket"));
        let counts: Vec<&str> = buckets.map(|line| line.rsplit(' ').nth(1).unwrap()).collect();
        assert_eq!((counts.first(), counts.last()), (Some(&"0"), Some(&"32")), "{text}");
        assert!(counts.contains(&"30"), "{text}");
        // A part that is asked for by its own name.
        let (_, text) = server.get("/federate?match[]=shop_took_seconds_count").await;
        assert!(text.contains("shop_took_seconds_count{http_route=\"/\\\"a\\\"\"} 32 "), "{text}");
    }

    #[tokio::test]
    async fn series_of_deltas_are_left_out_of_a_federation_with_a_comment() {
        let server = TestServer::new();
        let mut histogram = Histogram::default();
        histogram.record(1.0);
        let kind = SeriesKind::Histogram(Temporality::Delta);
        send(&server, Series::new("took", kind), SampleValue::Histogram(Box::new(histogram)));
        let (_, text) = server.get("/federate?match[]=took").await;
        assert!(text.starts_with("# 1 series of delta temporality are left out"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    #[tokio::test]
    async fn selectors_of_a_federation_are_checked() {
        let server = TestServer::new();
        for (query, expected) in [
            ("", "match[]: found 0 selectors, expected 1 to 64"),
            ("?match[]=sum(a)", "is not a selector such as up"),
            ("?match[]=a{", "parse error"),
        ] {
            let (status, text) = server.get(&format!("/federate{query}")).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
            assert!(text.contains(expected), "{text}");
        }
    }
}

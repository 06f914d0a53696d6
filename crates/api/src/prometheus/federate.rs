//! `/federate`: the latest sample of selected series in Prometheus' text format, for another
//! Prometheus to scrape.
//!
//! A selector is evaluated as in PromQL, so series are found under the names of Prometheus. The
//! text format has no native histograms: a histogram is written as a classic one, with its custom
//! bounds, or the edges of its non-empty buckets as bounds. Characters that the format does not
//! allow in names become underscores, as Prometheus does it for scrapers that do not ask for
//! others; of series that are then written alike the first one stays.
//!
//! Series of deltas are left out: a scraper expects totals. A comment tells how many.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Result as FmtResult, Write as _};

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use query::promql::DurationValue;
use query::{
    BucketGrid, FloatHistogram, LabelSet, Language, NAME, QueryContext as _, QueryRequest,
    ResultData, Settings, StepValue, StoreSource, promql,
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
/// Age of the oldest sample.
const LOOKBACK: i64 = 5 * store::MINUTE;
/// Series between two checks whether the query is cancelled.
const CHECKED_SERIES: usize = 64;
/// Suffixes of the series of a histogram.
const CLASSIC_SUFFIXES: [&str; 3] = ["_bucket", "_count", "_sum"];

/// The latest samples by metric name, then by labels.
#[derive(Default)]
struct FederatedFamilies {
    families: BTreeMap<String, BTreeMap<LabelSet, LatestSample>>,
    series: usize,
    /// Number of series of deltas, which are left out.
    deltas: usize,
    /// Series that would be written with the name and labels of another.
    left_out: BTreeSet<LabelSet>,
}

/// The latest sample of a series.
struct LatestSample {
    /// Labels as they are stored, with the name.
    series: LabelSet,
    time: i64,
    value: StepValue,
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
        let mut found = FederatedFamilies::default();
        let mut memory = (EntryBudget::new(active), active);
        for text in &selectors {
            let source = StoreSource::new(view).with_context(active);
            let answer = query::execute(&source, &request(text, now), &settings, active)
                .map_err(|error| ApiError::from_query_error(error, text))?;
            let held = answer.data.reserved_bytes();
            found.add(answer.data, &mut memory)?;
            active.release_memory(held);
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
        let invalid = |what: &str| {
            ApiError::BadRequest(format!("invalid parameter \"match[]\": {text:?} {what}"))
        };
        let promql::ExprKind::Selector(selector) = expression.kind else {
            return Err(invalid("is not a selector such as up or {job=\"a\"}"));
        };
        let is_plain = selector.offset == DurationValue::Nanos(0)
            && selector.at.is_none()
            && !(selector.anchored || selector.smoothed);
        if !is_plain {
            return Err(invalid(
                "has a modifier such as offset or @: a federation has the latest samples; use a \
                 selector without one, or remote read",
            ));
        }
        let kind = promql::ExprKind::Matrix { selector, range: DurationValue::Nanos(LOOKBACK) };
        Ok(promql::Expr { kind, span: expression.span }.to_string())
    };
    texts.iter().map(one).collect()
}

fn request(text: &str, now: i64) -> QueryRequest<'_> {
    let (start, end, step) = (now, now, 0);
    QueryRequest { text, language: Language::PromQl, start, end, step, options: OPTIONS }
}

impl FederatedFamilies {
    /// Adds series; their memory is reserved beside that of `data`.
    fn add(
        &mut self,
        data: ResultData,
        (entries, active): &mut (EntryBudget<'_>, &ActiveQuery),
    ) -> Result<(), ApiError> {
        let ResultData::RawSamples(all) = data else {
            panic!("BUG: a range selector has raw samples")
        };
        for (at, series) in all.into_iter().enumerate() {
            if at % CHECKED_SERIES == 0 {
                active.check_cancelled()?;
            }
            let Some(last) = series.points.into_iter().next_back() else { continue };
            if series.is_running_total {
                self.deltas += 1;
                continue;
            }
            let bytes = last.value.reserved_bytes();
            if self.insert(series.labels, last.time, last.value) {
                entries.set_count(self.series + self.left_out.len())?;
                active.reserve(usize::try_from(bytes).unwrap_or(usize::MAX))?;
            }
        }
        Ok(())
    }

    /// Whether the series is a new one. One whose name and labels are written like those of
    /// another is left out.
    fn insert(&mut self, series: LabelSet, time: i64, value: StepValue) -> bool {
        let written = written_labels(&series);
        let family = self.families.entry(escaped(series.name(), true)).or_default();
        match family.entry(written) {
            Entry::Vacant(free) => {
                free.insert(LatestSample { series, time, value });
                self.series += 1;
                true
            }
            // Another selector has selected it, too, or this one by another of its names.
            Entry::Occupied(found)
                if found.get().series == series
                    || (found.get().time == time && found.get().value == value) =>
            {
                false
            }
            Entry::Occupied(_) => self.left_out.insert(series),
        }
    }

    /// Whether the series of a name are written with a histogram.
    fn is_classic_series(&self, name: &str) -> bool {
        let base = CLASSIC_SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
        let base = base.and_then(|base| self.families.get(base));
        base.is_some_and(|base| base.values().any(|latest| latest.value.is_distribution()))
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
        if !self.left_out.is_empty() {
            writeln!(
                out,
                "# {} series are left out, as their names and labels would be written like those \
                 of others; remote read has them",
                self.left_out.len()
            )?;
        }
        for (name, family) in &self.families {
            if self.is_classic_series(name) {
                continue;
            }
            let is_histogram = family.values().any(|latest| latest.value.is_distribution());
            writeln!(out, "# TYPE {name} {}", if is_histogram { "histogram" } else { "untyped" })?;
            for (labels, LatestSample { time, value, .. }) in family {
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

/// The classic series of a histogram. Its custom bounds are bounds; in other grids both edges of a
/// non-empty bucket are.
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
    if let BucketGrid::Custom(bounds) = &histogram.grid {
        // All of them, so that no series begins later than the others.
        let mut counts = histogram.positive.iter().peekable();
        for (index, bound) in (0..).zip(bounds.iter()).filter(|(_, bound)| bound.is_finite()) {
            while let Some((_, count)) = counts.next_if(|bucket| bucket.0 <= index) {
                sum += count;
            }
            bucket(*bound, sum)?;
        }
        return write_totals(out, name, labels, (histogram, ms));
    }
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
    write_totals(out, name, labels, (histogram, ms))
}

fn write_totals(
    out: &mut BoundedBuffer,
    name: &str,
    labels: &LabelSet,
    (histogram, ms): (&FloatHistogram, i64),
) -> FmtResult {
    let all = bound_text(f64::INFINITY);
    write_line(out, (name, "_bucket"), labels, Some(&all), histogram.count, ms)?;
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
        write!(out, "{name}=\"")?;
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

/// Labels with names that are allowed, without that of the metric. Of several that are written with
/// the same name the first one by stored name stays.
fn written_labels(series: &LabelSet) -> LabelSet {
    let mut names = BTreeSet::new();
    let labels = series.iter().filter(|(name, _)| *name != NAME);
    let written = labels.map(|(name, value)| (escaped(name, false), value));
    let kept: Vec<_> = written.filter(|(name, _)| names.insert(name.clone())).collect();
    LabelSet::new(kept.iter().map(|(name, value)| (&**name, *value)))
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

    use super::*;
    use crate::query_service::QueryServiceSettings;
    use crate::test_server::{NOW, START, TestServer, empty_store};

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
        // The range is added behind a comment, not to it.
        let (_, text) = server.get("/federate?match[]=pool%20%23%20all").await;
        assert_eq!(text, format!("# TYPE pool untyped\npool NaN {ms}\n"));
        // A part that is asked for by its own name.
        let (_, text) = server.get("/federate?match[]=shop_took_seconds_count").await;
        assert!(text.contains("shop_took_seconds_count{http_route=\"/\\\"a\\\"\"} 32 "), "{text}");
    }

    /// A series that begins with the first values of its bucket has no rate of them.
    #[tokio::test]
    async fn all_bounds_of_a_federated_histogram_with_fixed_bounds_are_written() {
        let server = TestServer::new();
        let scheme = hist::Scheme::explicit(&[1.0, 2.0, 4.0, 8.0]).unwrap();
        let mut histogram = Histogram::new(scheme);
        histogram.record_n(1.5, 3);
        histogram.record_n(9.0, 2);
        let series = Series::new("took", SeriesKind::Histogram(Temporality::Cumulative));
        send(&server, series, SampleValue::Histogram(Box::new(histogram)));
        let (_, text) = server.get("/federate?match[]=took").await;
        let lines = text.lines().filter(|line| line.starts_with("took_bucket"));
        let found: Vec<&str> = lines.map(|line| line.rsplit_once(' ').unwrap().0).collect();
        let expected = [
            r#"took_bucket{le="1.0"} 0"#,
            r#"took_bucket{le="2.0"} 3"#,
            r#"took_bucket{le="4.0"} 3"#,
            r#"took_bucket{le="8.0"} 3"#,
            r#"took_bucket{le="+Inf"} 5"#,
        ];
        assert_eq!(found, expected);
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

    /// Two samples of one series with the same time, or a label twice, make a scrape fail.
    #[tokio::test]
    async fn series_that_are_written_alike_are_left_out_of_a_federation_with_a_comment() {
        let server = TestServer::new();
        let gauge = |name| Series::new(name, SeriesKind::Gauge);
        for (series, value) in [
            (gauge("a.b"), 1.0),
            (gauge("a_b"), 2.0),
            (gauge("c").with_label("http.route", "/"), 3.0),
            (gauge("c").with_label("http_route", "/"), 4.0),
        ] {
            send(&server, series, SampleValue::Number(value));
        }
        let uri = "/federate?match[]={\"a.b\"}&match[]=a_b&match[]=c&match[]={__name__=\"c\"}";
        let (status, text) = server.get(uri).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        let comment = "# 2 series are left out, as their names and labels would be written like";
        assert!(text.starts_with(comment), "{text}");
        let ms = (NOW - store::SECOND) / 1_000_000;
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [format!("a_b 1 {ms}"), format!("c{{http_route=\"/\"}} 3 {ms}")];
        assert_eq!(lines, expected);
        let labels = written_labels(&LabelSet::new([("x.y", "1"), ("x_y", "2"), (NAME, "d")]));
        assert!(labels == LabelSet::new([("x_y", "1")]));
    }

    /// What earlier selectors read stayed reserved: 64 selectors need no more memory than one.
    #[tokio::test]
    async fn a_federation_holds_the_memory_of_one_selector() {
        let max_query_bytes = QueryServiceSettings::QUERY_BYTES_MIN;
        let settings = QueryServiceSettings { max_query_bytes, ..Default::default() };
        let server = TestServer::with_store(empty_store(), settings);
        let mut histogram = Histogram::default();
        (1..2_000).for_each(|n| histogram.record(1.03f64.powi(n)));
        for series in 0..8 {
            let kind = SeriesKind::Histogram(Temporality::Cumulative);
            let series = Series::new("took", kind).with_label("n", series.to_string());
            let series = series.validate().unwrap();
            for second in (1..=20).rev() {
                let value = SampleValue::Histogram(Box::new(histogram.clone()));
                server.send(
                    &series,
                    Sample { start: START, end: NOW - second * store::SECOND, value },
                );
            }
        }
        let (status, text) = server.get("/federate?match[]=took{n=\"0\"}").await;
        assert_eq!(status, StatusCode::OK, "{text}");
        let all = ["match[]=took{n!=\"\"}"; 8].join("&");
        let (status, text) = server.get(&format!("/federate?{all}")).await;
        assert_eq!(status, StatusCode::OK, "{}", &text[..text.len().min(300)]);
    }

    #[tokio::test]
    async fn selectors_of_a_federation_are_checked() {
        let server = TestServer::new();
        for (query, expected) in [
            ("", "match[]: found 0 selectors, expected 1 to 64"),
            ("?match[]=sum(a)", "is not a selector such as up"),
            ("?match[]=a{", "parse error"),
            ("?match[]=a%20offset%205m", "has a modifier such as offset or @"),
            ("?match[]=a@1", "has a modifier such as offset or @"),
            ("?match[]=a[5m]", "is not a selector such as up"),
        ] {
            let (status, text) = server.get(&format!("/federate{query}")).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
            assert!(text.contains(expected), "{text}");
        }
    }
}

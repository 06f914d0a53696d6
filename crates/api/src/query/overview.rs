//! `/v1/overview`: rows of all distributions by affected requests.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::{IntoResponse as _, Response};
use decode::{Quantity, Unit};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, header};
use query::overview::row_threshold::RowThreshold;
use query::overview::{Overview, OverviewTimes, PageRange, ROWS_MAX, RowGroup, RowKey};
use role::MetricThreshold;
use store::{DAY, MINUTE, ReadView};

use super::OVERVIEW;
use super::expected_share::{slos_of, typed_threshold};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::overview_cache::{GroupOverview, OverviewAccess, OverviewSnapshot};
use crate::parameters::Parameters;
use crate::web_files::accepts_gzip;
use report::document;

/// Default number of rows: with noise in every cell of their heatmaps, 80 rows take 60 kB.
const ROWS: usize = 80;
/// Default CPU time for reads.
const BUDGET: Duration = Duration::from_millis(80);
/// Share of it for rows, if there are users to count.
const ROWS_SHARE: f64 = 0.75;
/// Maximum CPU time for reads.
const BUDGET_MAX: Duration = Duration::from_secs(60);
/// Times of the clock that count as one of the CPU: a busy machine reads as many rows as an idle
/// one, and a slow disk ends the reads.
const WALL_PER_CPU: u32 = 10;
/// Time of a portion of the reads, after which other requests see what was read.
const PORTION: Duration = Duration::from_millis(100);

/// Parameters of a request.
struct OverviewParams {
    times: OverviewTimes,
    page: PageRange,
    group: RowGroup,
    budget: Duration,
    /// Metric names and the user's thresholds.
    thresholds: Vec<(String, Quantity)>,
    /// Those of SLOs.
    slo_thresholds: Vec<MetricThreshold>,
}

impl OverviewParams {
    fn parse(parameters: &Parameters, now: i64) -> Result<OverviewParams, ApiError> {
        let OverviewTimes { today_start, .. } = OverviewTimes::of_utc_day(now);
        let today_start = parameters.time("today_from", now)?.unwrap_or(today_start);
        if !(now - 2 * DAY..=now).contains(&today_start) {
            let found = parameters.get("today_from").unwrap_or("");
            let expected = "a time in the last two days";
            return Err(ApiError::invalid_parameter("today_from", found, expected));
        }
        // Days begin at a quarter of an hour of UTC in all time zones. Each start of a day is kept.
        let today_start = today_start - today_start.rem_euclid(15 * MINUTE);
        let budget = parameters.duration("budget")?;
        let budget = budget.map_or(BUDGET, |ns| Duration::from_nanos(ns.unsigned_abs()));
        let thresholds = parameters.parse_all("threshold", |text| {
            let pair = text.rsplit_once('=');
            let pair = pair.and_then(|(name, limit)| Some((name, Quantity::parse(limit)?)));
            pair.map(|(name, limit)| (name.to_owned(), limit)).ok_or_else(|| {
                let expected = "a metric name and a quantity, such as latency=250ms";
                ApiError::invalid_parameter("threshold", text, expected)
            })
        })?;
        Ok(OverviewParams {
            times: OverviewTimes { now, today_start },
            page: PageRange {
                offset: parameters.integer("offset", 0, ROWS_MAX)?,
                limit: parameters.integer("limit", ROWS, ROWS_MAX)?,
            },
            group: parameters
                .parse_with("group", "services, host or topdeck", RowGroup::parse)?
                .unwrap_or(RowGroup::Services),
            budget: budget.min(BUDGET_MAX),
            thresholds,
            slo_thresholds: Vec::new(),
        })
    }

    /// The user's threshold of a row, else that of an SLO; `None` also if its unit does not fit
    /// the row's. One that the user typed is that of an SLO if it is the same.
    fn threshold(&self, key: &RowKey) -> Option<RowThreshold> {
        let user = self.thresholds.iter().find(|(name, _)| *name == key.name);
        let user = user.and_then(|(_, limit)| limit.value_in(Unit::parse(&key.unit).as_ref()));
        let of_slo = || {
            let (value, slo) = self.slo(key)?;
            Some(RowThreshold::of_slo(value, &slo.slo, slo.bad_share))
        };
        let typed = user.map(|limit| typed_threshold(limit, &self.slos(key)));
        typed.or_else(of_slo).or_else(|| self.threshold_of_part(key))
    }

    /// The smallest threshold of the SLOs whose series may be some of the row's.
    fn threshold_of_part(&self, key: &RowKey) -> Option<RowThreshold> {
        let unit = Unit::parse(&key.unit);
        // Not those of another service.
        let slos = slos_of(&self.slo_thresholds, (&key.name, unit.as_ref()), |name, value| {
            key.service.as_ref().is_none_or(|service| service.0 != name || service.1 == value)
        });
        let smallest = slos.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        smallest.map(|(value, slo)| RowThreshold::of_slo_of_part(value, &slo.slo))
    }

    /// Label of users that the SLO of a row names.
    fn user_label(&self, key: &RowKey) -> Option<String> {
        let (_, slo) = self.slo(key)?;
        slo.user_label.clone()
    }

    /// Of the SLOs whose series include those of the row: that with most labels, then the smallest;
    /// with its threshold in the unit of the row.
    fn slo(&self, key: &RowKey) -> Option<(f64, &MetricThreshold)> {
        let labels = |slo: &MetricThreshold| slo.labels.len();
        let slos = self.slos(key).into_iter();
        slos.min_by(|a, b| labels(b.1).cmp(&labels(a.1)).then(a.0.total_cmp(&b.0)))
    }

    /// SLOs whose series include those of the row.
    fn slos(&self, key: &RowKey) -> Vec<(f64, &MetricThreshold)> {
        let unit = Unit::parse(&key.unit);
        slos_of(&self.slo_thresholds, (&key.name, unit.as_ref()), |name, value| {
            key.service.as_ref().is_some_and(|service| (&*service.0, &*service.1) == (name, value))
        })
    }
}

pub(super) async fn overview(
    context: Context,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, ApiError> {
    let parameters = parameters.reject_unknown(OVERVIEW)?;
    let timeout = parameters.timeout()?;
    let mut params = OverviewParams::parse(&parameters, context.intake.now())?;
    let queries = context.queries.clone();
    params.slo_thresholds = queries.thresholds();
    let has_gzip = accepts_gzip(&headers);
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let page = queries.overviews.group(params.group).answer(view, &params, active)?;
        let body = active.json_response(&document::overview::to_json(&page, params.page))?;
        response(body, has_gzip)
    };
    context.run_light_with_view("overview", timeout, work).await
}

impl GroupOverview {
    fn answer(
        &self,
        view: &ReadView,
        params: &OverviewParams,
        active: &ActiveQuery,
    ) -> Result<query::overview::OverviewPage, ApiError> {
        let timer = ReadTimer::start();
        let elapsed = || timer.elapsed();
        let failure = |error| ApiError::from_query_error(error, "");
        let snapshot = match self.access(params.times, active)? {
            OverviewAccess::Snapshot(snapshot) => snapshot,
            OverviewAccess::Working(mut working) => {
                self.read_on(&mut working, view, params, &elapsed)?
            }
        };
        let other_day = snapshot.of_other_day(params.times.today_start);
        let overview = other_day.as_ref().unwrap_or(&snapshot.overview);
        let mut page = overview.page(params.page, &|key| params.threshold(key));
        let label = |key: &RowKey| params.user_label(key);
        let limit = (params.budget, &elapsed as &dyn Fn() -> Duration);
        let has_all = overview.count_users(view, &mut page, &label, limit).map_err(failure)?;
        if other_day.is_none() {
            snapshot.set_complete(page.incomplete == 0 && has_all);
        }
        Ok(page)
    }

    /// Reads what is new, and publishes it after each portion.
    fn read_on(
        &self,
        working: &mut Overview,
        view: &ReadView,
        params: &OverviewParams,
        elapsed: &dyn Fn() -> Duration,
    ) -> Result<Arc<OverviewSnapshot>, ApiError> {
        // The rest is for the users of the rows that are shown.
        let budget = match working.has_users() {
            true => params.budget.mul_f64(ROWS_SHARE),
            false => params.budget,
        };
        loop {
            let portion = budget.min(elapsed() + PORTION);
            let read = working.refresh(view, params.times, (portion, elapsed));
            // Also of a request that was cancelled.
            let snapshot = self.publish(working, params.times.today_start);
            read.map_err(|error| ApiError::from_query_error(error, ""))?;
            if portion == budget || !working.has_due_reads() {
                return Ok(snapshot);
            }
        }
    }
}

/// Time that reads of this thread take.
struct ReadTimer {
    started: Instant,
    cpu_started: Duration,
}

impl ReadTimer {
    fn start() -> ReadTimer {
        ReadTimer { started: Instant::now(), cpu_started: cpu_time() }
    }

    fn elapsed(&self) -> Duration {
        read_time(cpu_time().saturating_sub(self.cpu_started), self.started.elapsed())
    }
}

/// CPU time, or a part of the time of the clock, whichever is longer.
fn read_time(cpu: Duration, wall: Duration) -> Duration {
    cpu.max(wall / WALL_PER_CPU)
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The body, compressed if the client accepts it.
fn response(body: JsonBody, has_gzip: bool) -> Result<Response, ApiError> {
    let vary = (header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if !has_gzip {
        return Ok(([vary], body).into_response());
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let packed = encoder.write_all(body.0.as_bytes()).and_then(|()| encoder.finish());
    let packed = packed.map_err(|error| ApiError::Internal(error.to_string()))?;
    let gzip = (header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(([vary, gzip, kind], packed).into_response())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use axum::body::Body;
    use decode::SeriesSink as _;
    use flate2::read::GzDecoder;
    use hist::Histogram;
    use hist::codec::header::Temporality;
    use http::{Request, StatusCode};
    use model::{Gap, Sample, SampleValue, Series, SeriesKind};
    use serde_json::{Value, json};
    use store::MINUTE;

    use crate::query_service::QueryServiceSettings;
    use crate::test_server::{NOW, START, TestServer, empty_store};

    /// The only row of the answer.
    async fn row(server: &TestServer, uri: &str) -> Value {
        let answer = server.json(uri).await;
        assert_eq!(answer["total"], 1, "{answer}");
        answer["rows"][0].clone()
    }

    #[tokio::test]
    async fn overview_says_how_many_requests_were_above_the_users_threshold() {
        let row = row(&TestServer::new(), "/v1/overview?threshold=latency=550ms").await;
        // In each minute host b has 10 values, of which 600 to 1000 ms are above.
        assert_eq!(row["above_now"], json!({"lower": 25, "estimate": 25, "upper": 25}));
        assert_eq!(row["above_today"]["estimate"], 300);
        assert_eq!((&row["count_now"], &row["count_today"]), (&json!(100), &json!(1200)));
        assert_eq!((&row["counts"], &row["state"]), (&json!("requests"), &json!("affected")));
        assert_eq!(
            (&row["expected_share"], &row["burn_rate_now"]["estimate"]),
            (&json!(0.01), &json!(25.0))
        );
        // Longer than the last hour: since the hour of its first values.
        let noon = START - 30 * MINUTE;
        assert_eq!(row["affected_since"], json!({"start_ns": noon, "end_ns": noon + store::HOUR}));
        assert_eq!(row["threshold"], json!({"value": 550.0, "origin": "user"}));
        assert_eq!(row["max"]["estimate"], 1000.0);
        assert_eq!(row["latest_ns"], NOW);
        assert_eq!(row["unusual"]["reason"], "history too short");
        assert_eq!(row["unusual"]["days_min"], 3);
        assert_eq!(row["selector"], "latency");
        let cells = row["heatmap"]["cells"].as_str().unwrap();
        assert_eq!(cells.len(), 60 * 24);
        assert_eq!(row["heatmap"]["start_ns"], START + MINUTE);
    }

    #[tokio::test]
    async fn slo_sets_the_threshold_unless_the_user_does() {
        let server = TestServer::new();
        let threshold = |metric: &str, limit: &str, slo: &str| role::MetricThreshold {
            metric: metric.to_owned(),
            labels: Default::default(),
            limit: decode::Quantity::parse(limit).unwrap(),
            bad_share: 0.005,
            slo: slo.to_owned(),
            user_label: None,
        };
        let elsewhere = role::MetricThreshold {
            labels: [("service".to_owned(), "cart".to_owned())].into(),
            ..threshold("latency", "1ms", "cart")
        };
        server.context.queries.set_thresholds(vec![
            threshold("other", "1ms", "other"),
            threshold("latency", "700ms", "slower"),
            threshold("latency", "550ms", "checkout"),
            elsewhere,
        ]);
        let row_of_slo = row(&server, "/v1/overview").await;
        let expected = json!({"value": 550.0, "origin": "slo", "slo": "checkout"});
        assert_eq!(row_of_slo["threshold"], expected);
        assert_eq!(row_of_slo["above_now"]["estimate"], 25);
        // The objective allows half a percent of 100 requests.
        assert_eq!(
            (&row_of_slo["expected_share"], &row_of_slo["expected_now"]),
            (&json!(0.005), &json!(0.5))
        );
        assert_eq!(row_of_slo["burn_rate_now"]["estimate"], 50.0);
        let row_of_user = row(&server, "/v1/overview?threshold=latency=950ms").await;
        assert_eq!(row_of_user["threshold"], json!({"value": 950.0, "origin": "user"}));
        assert_eq!(row_of_user["expected_share"], 0.01);
        // Explore expects the same of the same threshold.
        let typed = row(&server, "/v1/overview?threshold=latency=550ms").await;
        assert_eq!((&typed["threshold"], &typed["expected_share"]), (&expected, &json!(0.005)));
    }

    /// A learned threshold of 1 s stood beside three firing alerts for 250 ms.
    #[tokio::test]
    async fn threshold_of_an_slo_of_some_endpoints_is_used_before_a_learned_one() {
        let server = TestServer::new();
        let slo = |slo: &str, label: (&str, &str), limit: &str| role::MetricThreshold {
            metric: "latency".to_owned(),
            labels: [(label.0.to_owned(), label.1.to_owned())].into(),
            limit: decode::Quantity::parse(limit).unwrap(),
            bad_share: 0.005,
            slo: slo.to_owned(),
            user_label: None,
        };
        server.context.queries.set_thresholds(vec![
            slo("slower", ("host", "a"), "800ms"),
            slo("pay", ("host", "b"), "550ms"),
        ]);
        let row = row(&server, "/v1/overview").await;
        let expected = json!({"value": 550.0, "origin": "slo_of_part", "slo_of_part": "pay"});
        assert_eq!((&row["threshold"], &row["expected_share"]), (&expected, &json!(0.01)));
        assert_eq!(row["state"], "affected");
    }

    /// Of 800 ms Explore expected 1 % above the threshold, and the overview 0.5 %.
    #[tokio::test]
    async fn explore_and_overview_expect_the_same_share_above_the_threshold_of_an_slo() {
        let server = TestServer::new();
        let slo = |slo: &str, limit: &str, host: Option<&str>| role::MetricThreshold {
            metric: "latency".to_owned(),
            labels: host.map(|host| ("host".to_owned(), host.to_owned())).into_iter().collect(),
            limit: decode::Quantity::parse(limit).unwrap(),
            bad_share: 0.005,
            slo: slo.to_owned(),
            user_label: None,
        };
        server
            .context
            .queries
            .set_thresholds(vec![slo("all", "550ms", None), slo("host a", "7ms", Some("a"))]);
        let row = row(&server, "/v1/overview").await;
        let above = async |selector: &str, limit: &str| {
            let asked = format!("/v1/histogram?selector={selector}&above={limit}");
            let answer = server.json(&asked).await;
            let above = &answer["above"][0];
            (above["expected_share"].clone(), above["slo"].clone())
        };
        let of_row = (row["expected_share"].clone(), row["threshold"]["slo"].clone());
        assert_eq!(of_row, (json!(0.005), json!("all")));
        assert_eq!(above("latency", "0.55s").await, of_row);
        assert_eq!(above("latency{host=\"a\"}", "7ms").await, (json!(0.005), json!("host a")));
        // Not that of an SLO: of another threshold, and of further series.
        let of_none = (json!(0.01), Value::Null);
        assert_eq!(above("latency", "551ms").await, of_none);
        assert_eq!(above("latency", "7ms").await, of_none);
    }

    #[tokio::test]
    async fn users_above_the_threshold_are_counted_by_the_label_that_the_slo_names() {
        let server = TestServer::new();
        let without = row(&server, "/v1/overview?threshold=latency=550ms").await;
        assert_eq!(without["users"], Value::Null);
        server.context.queries.set_thresholds(vec![role::MetricThreshold {
            metric: "latency".to_owned(),
            labels: Default::default(),
            limit: decode::Quantity::parse("550ms").unwrap(),
            bad_share: 0.005,
            slo: "checkout".to_owned(),
            user_label: Some("host".to_owned()),
        }]);
        let one = json!({"lower": 1, "estimate": 1, "upper": 1});
        let expected = json!({"label": "host", "now": one, "today": one});
        assert_eq!(row(&server, "/v1/overview?budget=10s").await["users"], expected);
        // Of two readers with different thresholds.
        let all = row(&server, "/v1/overview?budget=10s&threshold=latency=1ms").await;
        assert!(all["users"]["now"]["estimate"].as_u64() > Some(1), "{all}");
        assert_eq!(row(&server, "/v1/overview?budget=10s").await["users"], expected);
    }

    #[tokio::test]
    async fn without_a_threshold_of_the_user_the_p99_of_the_hours_before_now_is_taken_and_labelled()
    {
        let row = row(&TestServer::new(), "/v1/overview").await;
        // Since the first values, and not since midnight.
        let expected = json!({
            "value": 1000.0, "origin": "hourly_p99", "start_ns": START, "end_ns": NOW - 5 * MINUTE
        });
        assert_eq!(row["threshold"], expected);
        assert_eq!((&row["above_now"]["estimate"], &row["state"]), (&json!(0), &json!("usual")));
    }

    #[tokio::test]
    async fn without_time_to_read_a_row_is_unknown_and_the_next_request_has_it() {
        let server = TestServer::new();
        let kind = SeriesKind::Histogram(Temporality::Delta);
        let series = Series::new("other", kind).validate().unwrap();
        let mut histogram = Histogram::default();
        histogram.record(1.0);
        let value = SampleValue::Histogram(Box::new(histogram));
        server.send(&series, Sample { start: NOW - MINUTE, end: NOW, value });
        // One row is read in any case.
        let answer = server.json("/v1/overview?budget=1ns").await;
        assert_eq!(answer["incomplete"], 1);
        let row = |answer: &Value, name: &str| {
            let rows = answer["rows"].as_array().unwrap();
            rows.iter().find(|row| row["name"] == name).unwrap().clone()
        };
        let other = row(&answer, "other");
        assert_eq!((&other["state"], &other["read_ns"]), (&json!("unknown"), &Value::Null));
        assert_eq!(row(&answer, "latency")["state"], "usual");
        let answer = server.json("/v1/overview?budget=10s").await;
        assert_eq!(answer["incomplete"], 0);
        assert_eq!(row(&answer, "other")["read_ns"], NOW);
    }

    /// On a busy machine most rows were "not read yet": the budget was time of the clock.
    #[test]
    fn time_for_reads_is_cpu_time_unless_the_disk_is_slow() {
        let ms = std::time::Duration::from_millis;
        assert_eq!(super::read_time(ms(10), ms(90)), ms(10));
        assert_eq!(super::read_time(ms(10), ms(900)), ms(90));
        let timer = super::ReadTimer::start();
        let before = timer.elapsed();
        let mut sum = 0_u64;
        while timer.elapsed() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(timer.elapsed() > before, "the thread's CPU time counts");
    }

    #[tokio::test]
    async fn gap_is_told_with_the_row_and_marked_in_its_heatmap() {
        let server = TestServer::new();
        let start = NOW - 10 * MINUTE;
        let reason = "a cable was cut".to_owned();
        server.send_gap(Gap { start, end: start + MINUTE, producer: None, lost: Some(3), reason });
        let row = row(&server, "/v1/overview?budget=10s").await;
        assert_eq!((&row["gaps_total"], &row["gaps"][0]["lost"]), (&json!(1), &json!(3)));
        assert_eq!(row["heatmap"]["missing"], json!([49]));
    }

    #[tokio::test]
    async fn invalid_parameters_of_an_overview_are_explained() {
        let server = TestServer::new();
        let check = async |uri: &str, expected: &str| {
            let (status, text) = server.get(uri).await;
            assert_eq!(status, StatusCode::BAD_REQUEST);
            assert!(text.contains(expected), "{text}");
        };
        check("/v1/overview?threshold=250ms", "a metric name and a quantity").await;
        check("/v1/overview?today_from=-3d", "a time in the last two days").await;
        check("/v1/overview?group=all", "services, host or topdeck").await;
    }

    /// 1,000 streams with a minute of latencies each, 100 of them with an hour.
    fn server_with_1000_streams() -> TestServer {
        let server = TestServer::with_store(empty_store(), QueryServiceSettings::default());
        let intake = &server.context.intake;
        for stream in 0..1000_u32 {
            let series =
                Series::new("http_request_duration", SeriesKind::Histogram(Temporality::Delta))
                    .with_unit("s")
                    .with_label("service", format!("service-{stream}"))
                    .validate()
                    .unwrap();
            let mut writer = intake.writer(intake::SeriesKeyEncoding::CANONICAL);
            writer.series(&series.canonical_key(), &mut || Ok(series.clone())).unwrap();
            let minutes = if stream % 10 == 0 { 60 } else { 2 };
            for minute in 0..minutes {
                let mut histogram = Histogram::default();
                // Latencies over three decades that differ in every minute.
                for n in 0..40_u32 {
                    let mixed = (stream * 31 + minute * 17 + n * 1009).wrapping_mul(2_654_435_761);
                    let value = 0.001 * 1000f64.powf(f64::from(mixed % 1000) / 1000.0);
                    histogram.record_n(value, u64::from(1 + mixed % 200));
                }
                let end = NOW - i64::from(minute) * MINUTE;
                let value = SampleValue::Histogram(Box::new(histogram));
                writer.sample(&Sample { start: end - MINUTE, end, value }).unwrap();
            }
            intake.append(&intake.producer("server"), writer).unwrap().wait_durable().unwrap();
        }
        server
    }

    #[tokio::test]
    async fn page_of_a_thousand_streams_has_at_most_64_kilobytes() {
        let server = server_with_1000_streams();
        let uri = "/v1/overview?budget=60s&threshold=http_request_duration=500ms";
        let request = Request::get(uri).header("Accept-Encoding", "gzip").body(Body::empty());
        let response = server.respond(request.unwrap()).await;
        assert_eq!(response.headers()["content-encoding"], "gzip");
        let packed = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert!(packed.len() <= 64_000, "{} bytes", packed.len());
        let mut text = String::new();
        GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&answer["total"], &answer["incomplete"]), (&json!(1000), &json!(0)));
        let rows = answer["rows"].as_array().unwrap();
        assert_eq!(rows.len(), super::ROWS);
        // Ranked by the requests above the threshold.
        let above = |row: &Value| row["above_now"]["estimate"].as_u64().unwrap();
        assert!(above(&rows[0]) > above(&rows[79]), "{} {}", above(&rows[0]), above(&rows[79]));
        assert!(rows.iter().filter(|row| !row["heatmap"].is_null()).count() == super::ROWS);
        // The same without compression, and the next rows.
        let (_, plain) = server.get(uri).await;
        assert_eq!(serde_json::from_str::<Value>(&plain).unwrap(), answer);
        let next = server.json(&format!("{uri}&offset=80&limit=10")).await;
        assert_eq!(next["rows"].as_array().unwrap().len(), 10);
        assert!(rows.iter().all(|row| row["labels"] != next["rows"][0]["labels"]));
    }
}

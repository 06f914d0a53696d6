//! `topdeck demo`: a server in a temporary directory, with a made-up shop.
//!
//! The shop ([`synthetic::Shop`]) has a week of requests up to now, an incident three hours ago,
//! and continues. The statements of its database and two load tests are written as the role `wire`
//! and `topdeck load --push` write them. The directory is removed at the end.

mod alert_history;
mod load_test;

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow};
use decode::SeriesSink;
use hist::codec::header::Temporality;
use intake::{Intake, PendingAck, Producer, SeriesKeyEncoding};
use model::{Sample, SampleValue, Series, SeriesKind};
use render::json::Json::{self, List, Object, Text};
use render::json::integer;
use role::NodeMode;
use synthetic::{Shop, ShopNumbers, ShopStatement};
use tokio::runtime;

use crate::node::{Node, ROLES};
use crate::output::{print_message, print_stdout};
use crate::serve::{ServiceEvent, Signals};
use crate::settings::Settings;
use crate::store::{disk, private_dir};

use self::alert_history::{
    OBJECTIVES, RULE_FILE, RULES, ShopObjective, evaluate_rules, write_series,
};
use self::load_test::{LOAD_TESTS, write_second, write_texts};

/// Start a server with a made-up shop, to look around
///
/// The server runs in a temporary directory, which is removed at the end, and listens on loopback
/// only. It has a week of requests of five services in two regions, an incident three hours ago
/// with its alerts, the statements of a database, two load tests, counters, gauges, texts,
/// annotations, a dashboard, alert rules, two SLOs, a scrape and a check; new data arrive every ten
/// seconds. Stop it with ctrl-C.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Port on 127.0.0.1; 0 selects a free one [default: 7717, or a free one if it is in use]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
}

const AFTER: &str = "\
Examples:
  topdeck demo
  topdeck query 'sum by (service) (histogram_count_above(800ms, exact_increase(request_duration[1h])))'
  topdeck breakdown 'request_duration{service=\"payment\"}' --above 800ms --from -3h

Exit status:
  0  stopped by a signal
  1  it could not start, or failed
  2  usage error";

/// Interval of new data.
const INTERVAL_NS: i64 = 10_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_NS: i64 = synthetic::MINUTE_NS;
const DAY_NS: i64 = 24 * 60 * MINUTE_NS;
/// A day in minutes, the days before it in intervals of ten minutes.
const HISTORY: [(i64, i64); 2] = [(7 * DAY_NS, 10 * MINUTE_NS), (DAY_NS, MINUTE_NS)];
/// Time before the incident from which on alerts have a history.
const QUIET_NS: i64 = 30 * MINUTE_NS;
/// Metric of the requests.
const METRIC: &str = "request_duration";

/// Directory that is removed when the demonstration ends, however it ends.
struct DemoDir(PathBuf);

impl Drop for DemoDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            print_message(format_args!("cannot remove {}: {error}", self.0.display()));
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let name = format!("topdeck-demo-{:016x}", journal::random_id() as u64);
    let directory = DemoDir(std::env::temp_dir().join(name));
    private_dir(&directory.0)?;
    let port = listen_port(options.port)?;
    let settings = Settings::parse(&settings_text(port), &directory.0, ROLES)
        .map_err(|problems| anyhow!("BUG: invalid settings of the demonstration: {problems}"))?;
    write_dashboard(&directory.0)?;
    write_file(&directory.0.join(RULE_FILE), RULES)?;
    heap::configure_allocator();
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    runtime.block_on(run_until_stopped(settings, &directory.0))?;
    Ok(ExitCode::SUCCESS)
}

async fn run_until_stopped(settings: Settings, directory: &Path) -> Result<()> {
    let mut signals = Signals::new()?;
    // Appending may wait for the disk.
    let write = |intake: &Arc<Intake>| {
        tokio::task::block_in_place(|| ShopWriter::new(Arc::clone(intake)).write_history(directory))
    };
    let (node, (writer, mut written_end)) =
        Node::start_with_history(NodeMode::Serve, settings, directory, write).await?;
    print_stdout(welcome_text(&node.url(), directory, &writer.shop).as_bytes())?;
    let mut tick = tokio::time::interval(Duration::from_nanos(INTERVAL_NS.unsigned_abs()));
    loop {
        tokio::select! {
            event = signals.next() => match event {
                ServiceEvent::Stop => break,
                ServiceEvent::Reload => {}
            },
            _ = tick.tick() => {
                tokio::task::block_in_place(|| writer.write_until_now(&mut written_end))?;
            }
        }
    }
    drop(writer);
    print_message("stopping");
    node.stop().await
}

/// The default port if it is free, so that commands find the server without an address.
fn listen_port(port: Option<u16>) -> Result<u16> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let listener = match port {
        Some(port) => bind(port).with_context(|| format!("cannot listen on 127.0.0.1:{port}"))?,
        None => bind(api::PORT).or_else(|_| bind(0)).context("cannot listen on 127.0.0.1")?,
    };
    Ok(listener.local_addr()?.port())
}

/// The server scrapes and checks itself, so that these views have something to show. It does not
/// collect the programs of this host: their metrics would be rows of the shop.
fn settings_text(port: u16) -> String {
    let slos: String = OBJECTIVES.iter().map(ShopObjective::settings_text).collect();
    format!(
        r#"durability = "memory"

[http]
listen = ["127.0.0.1:{port}"]

[host]
shm_metrics = false

[[scrape]]
name = "topdeck"
url = "http://127.0.0.1:{port}/metrics"
interval = "5s"

[[check]]
name = "topdeck is healthy"
http = "http://127.0.0.1:{port}/health"
interval = "5s"

[alerts]
rule_files = ["{RULE_FILE}"]

{slos}"#
    )
}

/// Writes a file, and the directory that contains it.
fn write_file(path: &Path, text: &str) -> Result<()> {
    path.parent().map_or(Ok(()), private_dir)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn write_dashboard(directory: &Path) -> Result<()> {
    // Legend and unit, if there are any.
    let panel = |title: &str, text: &str, language: &str, more: &[(&'static str, &str)]| {
        let fields = [("title", title), ("text", text), ("language", language)];
        let fields = fields.iter().chain(more);
        Object(fields.map(|(name, value)| (*name, Text((*value).to_owned()))).collect())
    };
    let panels = vec![
        panel("Orders", "request_duration{service=\"orders\"}", "metric", &[]),
        panel(
            "p99 by service",
            "histogram_quantile(0.99, sum by (service) (exact_increase(request_duration[5m])))",
            "promql",
            &[("legend", "{{service}}")],
        ),
        panel(
            "Payments above 800 ms by host",
            "sum by (host) (histogram_count_above(800ms, \
             exact_increase(request_duration{service=\"payment\"}[5m])))",
            "promql",
            &[("legend", "{{host}}"), ("unit", "payments")],
        ),
        panel(
            "Orders per second",
            "sum by (region) (rate(orders_total[5m]))",
            "promql",
            &[("legend", "{{region}}"), ("unit", "/s")],
        ),
        panel(
            "Payments that wait",
            "payment_queue_depth",
            "promql",
            &[("legend", "{{region}}"), ("unit", "payments")],
        ),
    ];
    let dashboard: Json = Object(vec![
        ("schema", integer(2)),
        ("title", Text("The shop".to_owned())),
        ("panels", List(panels)),
    ]);
    write_file(&directory.join("dashboards/shop.json"), &format!("{dashboard}\n"))
}

fn welcome_text(url: &str, directory: &Path, shop: &Shop) -> String {
    let incident = shop.incident();
    let time = render::time::precise_time_text;
    let server = match url.ends_with(&format!(":{}", api::PORT)) {
        true => String::new(),
        false => format!(" --server {url}"),
    };
    format!(
        "\
topdeck demo: {url}
A made-up shop in {}; ctrl-C ends it and removes the directory.

What to look at first:
  {url}/#/explore?from=-6h&selector=request_duration{{service=%22payment%22}}&threshold=800ms&v=2
      payments of the last six hours: a second band of slow ones, from {} to {}.
      Press Who?, or drag a rectangle around it: version 3.8.0 on host pay-2 in region eu.
  {url}/#/explore?from=-7d&selector=request_duration&v=2
      a week of all requests, without averages: days, nights, and the modes of each service.
  {url}/#/dashboards?dashboard=shop&from=-6h&v=2
      a dashboard of the shop, with the incident
  {url}/#/alerts?from=-6h&v=2
      what fired during the incident, and when it ended; click PaymentsSlow
  {url}/#/slos
      what the incident cost of the error budget of a week
  {url}/#/wire?from=-6h&v=2
      statements of a database as seen on the network, with the incident
  {url}/#/load?from=-6h&v=2
      load tests of both versions of payment, side by side
  {url}/#/host
      what this host does
  topdeck breakdown 'request_duration{{service=\"payment\"}}' --above 800ms --from -3h{server}
      the same by command line
",
        directory.display(),
        time(incident.start),
        time(incident.end),
    )
}

/// Writes data of the shop through the intake.
struct ShopWriter {
    intake: Arc<Intake>,
    producer: Producer,
    shop: Shop,
    start: i64,
}

impl ShopWriter {
    fn new(intake: Arc<Intake>) -> ShopWriter {
        let now = intake.now();
        let start = now - now.rem_euclid(INTERVAL_NS);
        let producer = intake.producer("demo");
        ShopWriter { intake, producer, shop: Shop::new(start), start }
    }

    /// Writes everything up to the start of the demonstration; returns that time too.
    fn write_history(self, directory: &Path) -> Result<(ShopWriter, i64)> {
        // Whole minutes first, then the intervals of the current minute.
        let rounded_start = self.start - self.start.rem_euclid(10 * MINUTE_NS);
        let [(week, coarse), (day, fine)] = HISTORY;
        let mut last = self.write_intervals(rounded_start - week..rounded_start - day, coarse)?;
        last = self.write_intervals(rounded_start - day..rounded_start, fine)?.or(last);
        last = self.write_intervals(rounded_start..self.start, INTERVAL_NS)?.or(last);
        self.write_events()?;
        self.write_load_tests()?;
        if let Some(pending_ack) = last {
            pending_ack.wait_durable()?;
        }
        self.write_alerts(directory)?;
        let start = self.start;
        Ok((self, start))
    }

    /// Writes the history of the alerts, from before the incident up to the start: their states as
    /// samples, which the page draws, and the changes of these, which commands list.
    fn write_alerts(&self, directory: &Path) -> Result<()> {
        let Some(store) = self.intake.write_target().store() else { return Ok(()) };
        let range = self.shop.incident().start - QUIET_NS..self.start;
        let encoding = SeriesKeyEncoding::CANONICAL;
        let mut batch = self.intake.writer_for(self.producer.id(), encoding);
        let (writes, changes) = evaluate_rules(store, &range)?;
        for write in writes {
            let Some(number) = write.value.number() else { continue };
            let at = write.time_ns..write.time_ns;
            write_sample(&mut batch, write_series(&write), &at, SampleValue::Number(number))?;
        }
        self.intake.append(&self.producer, batch)?.wait_durable()?;
        Ok(changes.write(disk(), directory)?)
    }

    /// Writes the intervals that have ended since `written_end`.
    fn write_until_now(&self, written_end: &mut i64) -> Result<()> {
        let now = self.intake.now();
        // After a pause of the host, the interval is longer.
        let end = now - now.rem_euclid(INTERVAL_NS);
        if end > *written_end {
            self.write_intervals(*written_end..end, INTERVAL_NS)?;
            *written_end = end;
        }
        Ok(())
    }

    /// Writes a range in intervals; returns the pending acknowledgement of the last batch.
    fn write_intervals(&self, range: Range<i64>, length: i64) -> Result<Option<PendingAck>> {
        let encoding = SeriesKeyEncoding::CANONICAL;
        let new_batch = || self.intake.writer_for(self.producer.id(), encoding);
        let (mut batch, mut last, mut start) = (new_batch(), None, range.start);
        while start < range.end {
            let interval = start..(start + length).min(range.end);
            self.write_interval(&interval, &mut batch)?;
            start = interval.end;
            if batch.is_half_full() || start == range.end {
                let full = std::mem::replace(&mut batch, new_batch());
                last = Some(self.intake.append(&self.producer, full)?);
            }
        }
        Ok(last)
    }

    fn write_interval(&self, interval: &Range<i64>, batch: &mut dyn SeriesSink) -> Result<()> {
        for requests in self.shop.requests(interval) {
            if requests.durations.count() == 0 {
                continue;
            }
            let kind = SeriesKind::Histogram(Temporality::Delta);
            let series = Series::new(METRIC, kind).with_unit("ns");
            let labels = requests.labels.iter();
            let series =
                labels.fold(series, |series, (name, value)| series.with_label(*name, value));
            let value = SampleValue::Histogram(Box::new(requests.durations));
            write_sample(batch, series, interval, value)?;
        }
        // Operations on the network are of the last day: the capture began then.
        if interval.end - interval.start <= MINUTE_NS {
            self.write_statements(interval, batch)?;
        }
        for ShopNumbers { region, orders, queue_depth } in self.shop.numbers(interval) {
            let of = |name, kind| Series::new(name, kind).with_label("region", region);
            let total = of("orders_total", SeriesKind::Counter(Temporality::Delta));
            write_sample(batch, total, interval, SampleValue::Number(orders))?;
            let at = interval.end..interval.end;
            let depth = of("payment_queue_depth", SeriesKind::Gauge);
            write_sample(batch, depth, &at, SampleValue::Number(queue_depth))?;
        }
        Ok(())
    }

    /// Statements of the database, as the role `wire` measures them.
    fn write_statements(&self, interval: &Range<i64>, batch: &mut dyn SeriesSink) -> Result<()> {
        for ShopStatement { verb, statement, durations } in self.shop.statements(interval) {
            if durations.count() == 0 {
                continue;
            }
            let kind = SeriesKind::Histogram(Temporality::Delta);
            let labels = [
                ("host", "db-1"),
                ("service", "ledger"),
                ("protocol", "postgres"),
                ("verb", verb),
                ("statement", statement),
                ("outcome", "ok"),
            ];
            let series = Series::new("wire_latency", kind).with_unit("ns").with_labels(labels);
            write_sample(batch, series, interval, SampleValue::Histogram(Box::new(durations)))?;
        }
        Ok(())
    }

    /// Load tests of both versions of `payment`, as `topdeck load --push` sends them.
    fn write_load_tests(&self) -> Result<()> {
        let encoding = SeriesKeyEncoding::CANONICAL;
        for test in &LOAD_TESTS {
            let mut batch = self.intake.writer_for(self.producer.id(), encoding);
            let range = test.range(&self.shop);
            for start in range.clone().step_by(SECOND_NS as usize) {
                let second = start..start + SECOND_NS;
                let durations = self.shop.load_test(test.is_failing, &second);
                write_second(&mut batch, test, &second, &durations)?;
            }
            write_texts(&mut batch, test, range.end)?;
            self.intake.append(&self.producer, batch)?.wait_durable()?;
        }
        Ok(())
    }

    /// Deployment and rollback as annotations, and the version as a text.
    fn write_events(&self) -> Result<()> {
        let incident = self.shop.incident();
        let encoding = SeriesKeyEncoding::CANONICAL;
        let mut batch = self.intake.writer_for(self.producer.id(), encoding);
        let events = [
            (incident.start, "deployed payment 3.8.0 on pay-2"),
            (incident.end, "rolled back payment to 3.7.2 on pay-2"),
        ];
        for (at, text) in events {
            let series = Series::new(api::ANNOTATION_METRIC, SeriesKind::Text)
                .with_label("host", "pay-2")
                .with_label("service", "payment");
            write_sample(&mut batch, series, &(at..at), SampleValue::Text(text.to_owned()))?;
        }
        for at in [incident.start - DAY_NS, incident.start, incident.end] {
            let version = self.shop.payment_version(at).to_owned();
            let series = Series::new("payment_version", SeriesKind::Text)
                .with_label("host", "pay-2")
                .with_label("region", "eu");
            write_sample(&mut batch, series, &(at..at), SampleValue::Text(version))?;
        }
        Ok(self.intake.append(&self.producer, batch)?.wait_durable()?)
    }
}

fn write_sample(
    batch: &mut dyn SeriesSink,
    series: Series,
    interval: &Range<i64>,
    value: SampleValue,
) -> Result<()> {
    let series = series.validate()?;
    let key = series.canonical_key();
    batch.series(&key, &mut || Ok(series.clone()))?;
    let sample = Sample { start: interval.start, end: interval.end, value };
    batch.sample(&sample).map_err(Error::from)
}

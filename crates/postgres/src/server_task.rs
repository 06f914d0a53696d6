//! The task of a server: connects, takes samples, reads views, appends rows.

use std::sync::Arc;
use std::time::Duration;

use intake::{Error, EventCounter, Intake, LogLevel, Producer, Restartable, keep_running};
use model::Gap;
use net::ExponentialBackoff;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::activity::{self, ActivitySamples};
use crate::blocking::{self, LockWaits};
use crate::collectors::COLLECTORS;
use crate::metric::{PostgresMetric, gauge, text};
use crate::report::{PostgresRow, append_rows};
use crate::rights::{ServerRights, query_remedy};
use crate::server_state::ServerState;
use crate::session::{PostgresSession, QueryFailure, ResultRow};
use crate::settings::PostgresServer;
use crate::statements::{self, TopStatements};

/// Interval of slow views, and of attempts to read what failed.
const SLOW_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of reads of blocked sessions while there are any: the view locks the lock table.
const BLOCKING_INTERVAL: Duration = Duration::from_secs(1);
/// First and longest delay of a reconnect.
const RECONNECT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// A report later than its boundary by at most this part of the interval counts as of the boundary.
const LATE_FRACTION: i64 = 20;
/// Errors that wait to be written; more are in the log only.
const NOTES_MAX: usize = 200;

pub(crate) const UP: PostgresMetric = gauge("pg_up", "", "", "1 if the server is reached, else 0");
pub(crate) const COLLECTOR_SUCCESS: PostgresMetric = gauge(
    "pg_scrape_collector_success",
    "",
    "",
    "1 if the last read of the `collector` succeeded, else 0",
);
pub(crate) const COLLECTOR_DURATION: PostgresMetric = gauge(
    "pg_scrape_collector_duration_seconds",
    "s",
    "",
    "duration of the last read of the `collector`",
);
pub(crate) const COLLECTOR_ERROR: PostgresMetric = text(
    "pg_scrape_collector_error",
    "why the `collector` has no metrics; `connection`: why the server is not reached; written when \
     the reason changes",
);

/// A server that is read.
#[derive(Debug)]
pub(crate) struct RunningServer {
    settings: PostgresServer,
    state: Arc<ServerState>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    intake: Arc<Intake>,
    producer: Producer,
}

impl RunningServer {
    pub(crate) fn start(
        settings: PostgresServer,
        host: &str,
        intake: &Arc<Intake>,
    ) -> RunningServer {
        let address = settings.session.server.address();
        let state = Arc::new(ServerState::new(&settings.name, address));
        let producer = intake.volatile_producer(&format!("postgres {}", settings.name));
        let (stop, stopped) = watch::channel(false);
        let task = ServerTask::new(settings.clone(), host, intake, &producer, &state, stopped);
        let supervised = intake.supervisor().thread("postgres");
        let task = tokio::spawn(keep_running(supervised, task));
        let intake = Arc::clone(intake);
        RunningServer { settings, state, stop, task, intake, producer }
    }

    pub(crate) fn settings(&self) -> &PostgresServer {
        &self.settings
    }

    pub(crate) fn state(&self) -> &Arc<ServerState> {
        &self.state
    }

    /// Whether it uses TLS files, which may have changed.
    pub(crate) fn has_files(&self) -> bool {
        self.settings.session.tls.has_files()
    }

    /// Makes the task write the samples so far and close the connection.
    pub(crate) fn request_stop(&self) {
        // The receiver is dropped if the task has ended.
        let _ = self.stop.send(true);
    }

    /// Stops the task and waits for its end.
    pub(crate) async fn stop(self, is_removed: bool) {
        self.request_stop();
        // The task ends with a panic only if the supervisor gave up; it has reported that.
        let _ = self.task.await;
        if is_removed {
            self.intake.retire_source(&self.producer);
        }
    }
}

/// State of the task.
struct ServerTask {
    settings: PostgresServer,
    common: Vec<(&'static str, String)>,
    intake: Arc<Intake>,
    producer: Producer,
    state: Arc<ServerState>,
    stop: watch::Receiver<bool>,
    rejected: EventCounter,
    session: Option<PostgresSession>,
    backoff: ExponentialBackoff,
    retry_at: Instant,
    next_sample: Instant,
    /// Earliest time of the next read of slow views, and of blocked sessions.
    slow_at: Instant,
    blocking_at: Instant,
    /// Collectors that failed: not before `slow_at`.
    failed: Vec<&'static str>,
    rights: ServerRights,
    samples: ActivitySamples,
    lock_waits: LockWaits,
    statements: TopStatements,
    /// Rows that are written when something changed.
    notes: Vec<PostgresRow>,
    last_end: i64,
    /// Gauges that were not accepted: end of the first such report, and their number.
    lost: Option<(i64, u64)>,
    /// Whether rows are being appended: after an interruption they may be stored.
    is_appending: bool,
    has_descriptions: bool,
}

impl ServerTask {
    fn new(
        settings: PostgresServer,
        host: &str,
        intake: &Arc<Intake>,
        producer: &Producer,
        state: &Arc<ServerState>,
        stop: watch::Receiver<bool>,
    ) -> ServerTask {
        let (now, began) = (Instant::now(), intake.now());
        ServerTask {
            common: vec![("host", host.to_owned()), ("instance", settings.name.clone())],
            settings,
            producer: producer.clone(),
            state: Arc::clone(state),
            stop,
            rejected: intake.meter().counter(
                "topdeck_postgres_rejected_reports_total",
                "reports of PostgreSQL servers with at least one rejected sample",
                &[],
            ),
            session: None,
            backoff: ExponentialBackoff::new(RECONNECT),
            retry_at: now,
            next_sample: now,
            slow_at: now,
            blocking_at: now,
            failed: Vec::new(),
            rights: ServerRights::NONE,
            samples: ActivitySamples::new(began),
            lock_waits: LockWaits::default(),
            statements: TopStatements::default(),
            notes: Vec::new(),
            last_end: began,
            lost: None,
            is_appending: false,
            has_descriptions: false,
            intake: Arc::clone(intake),
        }
    }

    fn log(&self, line: Option<(LogLevel, String)>) {
        if let Some((level, line)) = line {
            (self.intake.settings().log)(level, &line);
        }
    }

    async fn work(&mut self) {
        loop {
            let (boundary, end) = self.next_boundary();
            loop {
                let due = if self.session.is_some() { self.next_sample } else { self.retry_at };
                sleep_until(due.min(boundary)).await;
                self.intake.supervisor().failpoint("postgres");
                if self.session.is_none() && Instant::now() >= self.retry_at {
                    self.connect().await;
                }
                self.sample_if_due().await;
                if Instant::now() >= boundary {
                    break;
                }
            }
            self.report(end).await;
        }
    }

    /// Instant and wall-clock time of the next report, a multiple of the interval.
    fn next_boundary(&self) -> (Instant, i64) {
        let (now, instant) = (self.intake.now(), Instant::now());
        let interval = i64::try_from(self.settings.interval.as_nanos()).unwrap_or(i64::MAX);
        let remaining = interval - now.rem_euclid(interval);
        let end = now.saturating_add(remaining);
        (instant + Duration::from_nanos(remaining.unsigned_abs()), end)
    }

    async fn connect(&mut self) {
        let opened = PostgresSession::open(&self.settings.session).await;
        match opened {
            Ok(session) => {
                let line = self.state.record(self.intake.now(), Ok(&session.version_text));
                self.log(line);
                self.note_error("connection", None);
                self.backoff.reset();
                let now = Instant::now();
                (self.next_sample, self.slow_at, self.blocking_at) = (now, now, now);
                self.failed.clear();
                self.session = Some(session);
                self.read_rights().await;
            }
            // The server rejects the login: an operator must act.
            Err(QueryFailure::Rejected(code, reason)) => {
                self.disconnect(&reason, !matches!(&*code, "57P03" | "53300" | "57P01"));
            }
            Err(QueryFailure::Broken(reason)) => self.disconnect(&reason, false),
        }
    }

    fn disconnect(&mut self, reason: &str, needs_operator: bool) {
        self.session = None;
        self.lock_waits.end();
        self.state.set_blocking_tree("");
        let line = self.state.record(self.intake.now(), Err(reason));
        self.log(line);
        self.note_error("connection", Some(reason));
        let random = self.intake.now().cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.retry_at = Instant::now() + self.backoff.next_delay(None, needs_operator, random);
    }

    /// Writes the reason with the next rows if it has changed.
    fn note_error(&mut self, collector: &'static str, reason: Option<&str>) {
        let (is_new, line) = self.state.record_collector(collector, reason);
        if collector != "connection" {
            self.log(line);
        }
        if let Some(reason) = reason.filter(|_| is_new && self.notes.len() < NOTES_MAX) {
            let labels = vec![("collector", collector.to_owned())];
            self.notes.push(PostgresRow::text(&COLLECTOR_ERROR, labels, reason.to_owned()));
        }
    }

    /// Runs a query. A lost connection is the end of the session.
    async fn query(&mut self, sql: &str) -> Result<Vec<ResultRow>, String> {
        let Some(session) = &mut self.session else { return Err("not connected".to_owned()) };
        match session.query(sql).await {
            Ok(rows) => Ok(rows),
            Err(QueryFailure::Rejected(code, text)) => Err(text + query_remedy(&code)),
            Err(broken) => {
                self.lose(&broken);
                Err(String::new())
            }
        }
    }

    /// The connection is lost.
    fn lose(&mut self, failure: &QueryFailure) {
        let (QueryFailure::Broken(reason) | QueryFailure::Rejected(_, reason)) = failure;
        let address = self.settings.session.server.address();
        self.disconnect(&format!("lost the connection to {address}: {reason}"), false);
    }

    /// Takes the sample that is due. Those that were due before it are skipped.
    async fn sample_if_due(&mut self) {
        let now = Instant::now();
        if now < self.next_sample {
            return;
        }
        let interval = self.settings.sample_interval;
        let missed = (now - self.next_sample).as_nanos() / interval.as_nanos().max(1);
        let missed = u32::try_from(missed).unwrap_or(u32::MAX);
        self.next_sample += interval.saturating_mul(missed).saturating_add(interval);
        self.samples.skip(missed.into());
        if self.session.is_none() || !self.rights.has_all_stats || self.failed.contains(&"activity")
        {
            self.samples.skip(1);
            return;
        }
        let rows = match self.query(activity::SQL).await {
            Ok(rows) => rows,
            Err(reason) => {
                self.samples.skip(1);
                if self.session.is_some() {
                    self.fail("activity", &reason);
                }
                return;
            }
        };
        self.note_error("activity", None);
        let waiting = self.samples.add(&rows);
        if waiting == 0 {
            self.lock_waits.end();
        } else if Instant::now() >= self.blocking_at {
            self.blocking_at = Instant::now() + BLOCKING_INTERVAL;
            self.read_blocking(waiting).await;
        }
    }

    async fn read_blocking(&mut self, waiting: u64) {
        let Some(version) = self.session.as_ref().map(|session| session.version) else { return };
        match self.query(&blocking::sql(version)).await {
            Ok(rows) => {
                self.lock_waits.add(&rows, waiting);
                self.note_error("blocking", None);
            }
            Err(reason) if self.session.is_some() => self.fail("blocking", &reason),
            Err(_) => {}
        }
    }

    fn fail(&mut self, collector: &'static str, reason: &str) {
        if !self.failed.contains(&collector) {
            self.failed.push(collector);
        }
        self.note_error(collector, Some(reason));
    }

    /// Reads the views and appends all rows.
    async fn report(&mut self, boundary: i64) {
        let mut rows = Vec::new();
        let interval = i64::try_from(self.settings.interval.as_nanos()).unwrap_or(i64::MAX);
        let now = self.intake.now();
        let is_late = now.saturating_sub(boundary).saturating_abs() > interval / LATE_FRACTION;
        let end = if is_late { now } else { boundary };
        if self.session.is_some() {
            self.read_views(&mut rows).await;
        }
        let up = f64::from(u8::from(self.session.is_some()));
        rows.push(PostgresRow::number(&UP, Vec::new(), up));
        self.state.set_blocking_tree(self.lock_waits.tree());
        self.append(rows, end).await;
    }

    async fn read_views(&mut self, rows: &mut Vec<PostgresRow>) {
        let is_slow_due = Instant::now() >= self.slow_at;
        if is_slow_due {
            self.slow_at = Instant::now() + SLOW_INTERVAL;
            self.failed.clear();
            self.read_rights().await;
        }
        for collector in COLLECTORS {
            let Some(version) = self.session.as_ref().map(|session| session.version) else {
                return;
            };
            let Some(sql) = collector.sql(version) else { continue };
            if self.failed.contains(&collector.name) || (collector.is_slow && !is_slow_due) {
                continue;
            }
            let began = Instant::now();
            let result = match collector.needs_all_stats && !self.rights.has_all_stats {
                true => Err(ServerRights::remedy(&self.settings.session.server)),
                false => self.query(&sql).await,
            };
            if self.session.is_none() {
                return;
            }
            self.note_read(collector.name, began, result.as_ref().err(), rows);
            if let Ok(result) = result {
                collector.rows(version, &result, rows);
            }
        }
        if is_slow_due {
            let began = Instant::now();
            let result = self.read_statements().await;
            if self.session.is_some() {
                self.note_read("statements", began, result.as_ref().err(), rows);
            }
        }
        if !self.rights.has_all_stats {
            let reason = ServerRights::remedy(&self.settings.session.server);
            self.fail("activity", &reason);
        }
    }

    fn note_read(
        &mut self,
        collector: &'static str,
        began: Instant,
        error: Option<&String>,
        rows: &mut Vec<PostgresRow>,
    ) {
        let labels = || vec![("collector", collector.to_owned())];
        let success = f64::from(u8::from(error.is_none()));
        let duration = began.elapsed().as_secs_f64();
        rows.push(PostgresRow::number(&COLLECTOR_SUCCESS, labels(), success));
        rows.push(PostgresRow::number(&COLLECTOR_DURATION, labels(), duration));
        match error {
            Some(reason) => self.fail(collector, reason),
            None => self.note_error(collector, None),
        }
    }

    /// Reads what the role may see. Without the connection nothing is read.
    async fn read_rights(&mut self) {
        let Some(session) = &mut self.session else { return };
        match ServerRights::read(session, &self.settings.session.server).await {
            Ok(rights) => self.rights = rights,
            Err(failure) => self.lose(&failure),
        }
    }

    async fn read_statements(&mut self) -> Result<(), String> {
        let schema = self.rights.statements_schema.clone()?;
        if !self.rights.has_all_stats {
            return Err(ServerRights::remedy(&self.settings.session.server));
        }
        let rows = self.query(&statements::sql(&schema)).await?;
        self.statements.add(&rows, self.intake.now());
        let ids = self.statements.ids_without_text();
        if !ids.is_empty() {
            let texts = self.query(&statements::text_sql(&schema, &ids)).await?;
            self.statements.add_texts(&texts);
        }
        Ok(())
    }

    /// Appends rows, and those of samples and statements. If the journal has no space,
    /// distributions and counters are part of the next report.
    async fn append(&mut self, mut more: Vec<PostgresRow>, end: i64) {
        // Distributions are in the first batch: it is stored, or none.
        let mut rows = Vec::new();
        self.samples.rows(&mut rows);
        self.lock_waits.rows(&mut rows);
        rows.extend(self.notes.iter().cloned());
        self.statements.rows(&mut rows);
        rows.append(&mut more);
        let count = rows.len();
        let gap = self.lost.map(|(start, lost)| Gap {
            start: start.min(end),
            end,
            producer: Some(self.producer.id()),
            lost: Some(lost),
            reason: "backpressure: samples of PostgreSQL are lost; counters are cumulative".into(),
        });
        let (intake, producer) = (Arc::clone(&self.intake), self.producer.clone());
        let (common, interval) = (self.common.clone(), (self.last_end, end));
        let describes = !self.has_descriptions;
        self.is_appending = true;
        let appended = role::run_blocking(move || {
            append_rows((&intake, &producer), gap, &common, &rows, interval, describes)
        })
        .await;
        self.is_appending = false;
        match appended {
            Ok(appended) => {
                // What cannot be stored later neither is dropped.
                let is_final = match &appended.outcome {
                    Ok(()) => true,
                    Err(error) => matches!(error, Error::TooLarge { .. } | Error::Rejected(_)),
                };
                if appended.rows > 0 {
                    (self.lost, self.has_descriptions) = (None, true);
                }
                if is_final || appended.rows > 0 {
                    self.notes.clear();
                    self.samples.clear();
                    self.lock_waits.clear();
                    self.statements.clear();
                    self.last_end = end;
                }
                let error = appended.outcome.as_ref().err().filter(|_| is_final);
                let reason = error.map(ToString::to_string);
                let reason = reason.or(appended.rejection.map(|error| error.to_string()));
                if let Some(reason) = reason {
                    self.rejected.add(1);
                    self.note_error("series", Some(&reason));
                }
                if appended.outcome.is_err() {
                    let (start, lost) = self.lost.unwrap_or((end, 0));
                    self.lost = Some((start, lost + (count - appended.rows) as u64));
                }
            }
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {}
        }
    }

    /// The samples since the last report, and the end of the session.
    async fn finish(&mut self) {
        if !std::mem::take(&mut self.is_appending) {
            let now = self.intake.now();
            self.append(Vec::new(), now).await;
        }
        self.intake.end_volatile_producer(&self.producer);
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }
}

impl Restartable for ServerTask {
    async fn run(&mut self) {
        // After a panic the connection may be in the middle of a response.
        self.session = None;
        let mut stop = self.stop.clone();
        tokio::select! {
            () = self.work() => {}
            _ = stop.wait_for(|is_set| *is_set) => {}
        }
        self.finish().await;
    }

    async fn wait_for_stop(&mut self) {
        // A closed channel counts as a stop.
        let _ = self.stop.wait_for(|is_set| *is_set).await;
    }
}

//! Checks of the node's settings that TOML types cannot express.

use std::time::Duration;

use role::settings::{SettingsCheck, Size, TableRef, Transport};

use crate::settings::NodeSettings;

/// A forward request must fit, otherwise its agent can never make progress.
const BUFFERED_BODY_BYTES_MIN: u64 = 32 << 20;
/// The web UI and its files must fit for several clients at a time.
const BUFFERED_RESPONSE_BYTES_MIN: u64 = 8 << 20;
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(60);

/// Sources write at most once a second, and the check runs once a second.
const ABSENCE_MIN: Duration = Duration::from_secs(2);

const ABSENCE: TableRef<'static> = TableRef::named("absence");
/// A shorter retention than a minute, the unit of the sample, keeps nothing for long.
const EXEMPLAR_RETENTIONS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(7 * 24 * 3600);
/// Maximum memory of exemplars: their file is written as a whole.
const EXEMPLAR_MEMORY_MAX: u64 = 512 << 20;

/// A trace must fit into a batch, which has a limit of its own.
const TRACE_BYTES_MAX: u64 = 8 << 20;
const TRACE_RETENTION_MIN: Duration = Duration::from_secs(3600);

const EXEMPLARS: TableRef<'static> = TableRef::named("exemplars");
const TRACES: TableRef<'static> = TableRef::named("traces");
const HTTP: TableRef<'static> = TableRef::named("http");
const HTTP_TLS: TableRef<'static> = TableRef::named("http.tls");
const HTTP_LIMITS: TableRef<'static> = TableRef::named("http.limits");

impl NodeSettings {
    /// Reports all errors.
    pub(crate) fn validate_node(&self, check: &mut SettingsCheck<'_>) {
        if let Some(interval) = self.collection_interval
            && !INTERVALS.contains(&interval.0)
        {
            let what = format!("collection_interval is {:?}, must be 1s to 60s", interval.0);
            check.problem(TableRef::ROOT, "collection_interval", what);
        }
        if let Some(min) = self.absence.min_duration
            && min.0 < ABSENCE_MIN
        {
            let what = format!("min_duration is {:?}, must be at least {ABSENCE_MIN:?}", min.0);
            check.problem(ABSENCE, "min_duration", what);
        }
        if self.absence.intervals == Some(0) {
            check.problem(ABSENCE, "intervals", "intervals is 0, must be at least 1");
        }
        self.check_exemplars(check);
        self.check_traces(check);
        if let Some(tls) = &self.http.tls {
            check.file(HTTP_TLS, "certificate", Some(&tls.certificate));
            check.file(HTTP_TLS, "key", Some(&tls.key));
            check.file(HTTP_TLS, "client_ca", tls.client_ca.as_ref());
            check.contents(HTTP_TLS, "certificate", || tls.server_tls().config().map(drop));
        }
        let addresses = self.http.listen.as_deref().unwrap_or_default();
        check.listen(HTTP, "listen", Transport::Tcp, addresses);
        let limits = &self.http.limits;
        let mut at_least = |key, size: Option<Size>, min: u64, reason: &str| {
            if let Some(Size(bytes)) = size
                && bytes < min
            {
                let what =
                    format!("{key} is {bytes} bytes, must be at least {}MiB{reason}", min >> 20);
                check.problem(HTTP_LIMITS, key, what);
            }
        };
        let reason = ", the maximum of an agent's forward request";
        at_least(
            "max_buffered_body_bytes",
            limits.max_buffered_body_bytes,
            BUFFERED_BODY_BYTES_MIN,
            reason,
        );
        at_least(
            "max_buffered_response_bytes",
            limits.max_buffered_response_bytes,
            BUFFERED_RESPONSE_BYTES_MIN,
            "",
        );
        let (query_bytes_min, share) = (
            api::QueryServiceSettings::QUERY_BYTES_MIN,
            ", because light queries use a part of \
                it",
        );
        at_least("max_query_memory", limits.max_query_memory, query_bytes_min, share);
    }

    fn check_traces(&self, check: &mut SettingsCheck<'_>) {
        let table = &self.traces;
        if let Some(retention) = table.retention
            && retention.0 < TRACE_RETENTION_MIN
        {
            let what = format!("retention is {:?}, must be at least 1h", retention.0);
            check.problem(TRACES, "retention", what);
        }
        if let Some(Size(bytes)) = table.max_trace_size
            && bytes > TRACE_BYTES_MAX
        {
            let max = TRACE_BYTES_MAX >> 20;
            let what = format!("max_trace_size is {bytes} bytes, must be at most {max}MiB");
            check.problem(TRACES, "max_trace_size", what);
        }
    }

    fn check_exemplars(&self, check: &mut SettingsCheck<'_>) {
        let table = &self.exemplars;
        if let Some(retention) = table.retention
            && !EXEMPLAR_RETENTIONS.contains(&retention.0)
        {
            let what = format!("retention is {:?}, must be 1min to 7d", retention.0);
            check.problem(EXEMPLARS, "retention", what);
        }
        if let Some(Size(bytes)) = table.max_memory
            && bytes > EXEMPLAR_MEMORY_MAX
        {
            let what = format!(
                "max_memory is {bytes} bytes, must be at most {}MiB",
                EXEMPLAR_MEMORY_MAX >> 20
            );
            check.problem(EXEMPLARS, "max_memory", what);
        }
        if let Some(url) = &table.trace_url
            && !(url.starts_with("http://") || url.starts_with("https://"))
        {
            let what = format!("trace_url is {url:?}, must be an http or https URL");
            check.problem(EXEMPLARS, "trace_url", what);
        }
    }
}

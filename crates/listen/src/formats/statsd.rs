//! StatsD and DogStatsD. Timings become histograms, counters sums, gauges their last value, sets
//! the number of distinct members.
//!
//! ```text
//! c g m d s   name | tags     key of a series: counter, gauge, milliseconds, distribution, set
//! ```

use std::net::{SocketAddr, UdpSocket};

use decode::statsd::{self, StatsdLine, StatsdMetric, StatsdType, StatsdValue};
use hist::codec::header::Temporality;
use intake::{LogFn, LogLevel};
use model::{Series, SeriesKind};
use role::settings::{FilePath, SettingsCheck, Size, TableRef, Transport};
use serde::Deserialize;

use crate::line_format::{LineFormat, SocketAddresses};
use crate::line_sink::{LineSink, LineValue};
use crate::series_aggregate::AggregateKind;
use crate::settings::Limits;

/// Default StatsD port.
const PORT: u16 = 8125;

/// `[statsd]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Statsd {
    /// UDP addresses; `["127.0.0.1:8125"]` without a settings file.
    udp: Vec<SocketAddr>,
    tcp: Vec<SocketAddr>,
    /// Unix datagram socket.
    unix: Option<FilePath>,
    /// Size of the kernel's receive buffer for datagrams: `8MiB`.
    receive_buffer: Option<Size>,
    /// Series limit per interval: 100,000.
    max_series: Option<usize>,
}

impl LineFormat for Statsd {
    const NAME: &'static str = "statsd";
    const TITLE: &'static str = "StatsD";

    /// The default address is not configured explicitly, so if another program uses the port,
    /// StatsD is off and the node starts.
    fn without_file(log: &LogFn) -> Statsd {
        let address = SocketAddr::from(([127, 0, 0, 1], PORT));
        let is_free = UdpSocket::bind(address).is_ok();
        if !is_free {
            log(LogLevel::Warn, &format!("StatsD is off: {address} is in use"));
        }
        let udp = if is_free { vec![address] } else { Vec::new() };
        Statsd { udp, ..Statsd::default() }
    }

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        check.listen(table, "tcp", Transport::Tcp, &self.tcp);
        check.listen(table, "udp", Transport::Udp, &self.udp);
    }

    fn sockets(&self) -> SocketAddresses {
        let unix = self.unix.as_ref().map(|path| path.to_path_buf());
        SocketAddresses { udp: self.udp.clone(), tcp: self.tcp.clone(), unix }
    }

    fn limits(&self) -> Limits {
        let default = Limits::default();
        let buffer = self.receive_buffer.map(Size::in_memory);
        Limits {
            receive_buffer_bytes: buffer.unwrap_or(default.receive_buffer_bytes),
            series_max: self.max_series.unwrap_or(default.series_max),
            ..default
        }
    }

    fn read(&self, bytes: &[u8], sink: &mut LineSink<'_>) {
        statsd::for_each_line(bytes, |line| match line {
            Ok(StatsdLine::Metric(metric)) => add_metric(&metric, sink),
            Ok(StatsdLine::Skipped(_)) => sink.skip(),
            Err(error) => sink.reject(&error),
        });
    }

    fn series(&self, kind: u8, name: &str) -> model::Result<Series> {
        let delta = Temporality::Delta;
        let (kind, unit) = match kind {
            b'c' => (SeriesKind::Counter(delta), ""),
            b'm' => (SeriesKind::Histogram(delta), "ns"),
            b'd' => (SeriesKind::Histogram(delta), ""),
            _ => (SeriesKind::Gauge, ""),
        };
        // A name contains no bar: the bar ends it.
        let (name, tags) = name.split_once('|').expect("BUG: a bar ends the name");
        let series = Series::new(name, kind).with_unit(unit);
        let labels = labels(tags).into_iter();
        labels.fold(series, |series, (name, value)| series.with_label(name, value)).validate()
    }
}

fn add_metric(metric: &StatsdMetric<'_>, sink: &mut LineSink<'_>) {
    let (kind, aggregation) = match metric.kind {
        StatsdType::Counter => (b'c', AggregateKind::Sum),
        StatsdType::Gauge => (b'g', AggregateKind::Last),
        StatsdType::Milliseconds => (b'm', AggregateKind::Histogram),
        StatsdType::Distribution => (b'd', AggregateKind::Histogram),
        StatsdType::Set => (b's', AggregateKind::Set),
    };
    sink.series(kind, &[metric.name, "|", metric.tags], aggregation, metric.time);
    for value in metric.values() {
        match value {
            Ok(StatsdValue::Number(number)) => sink.value(LineValue::Number(number), metric.rate),
            Ok(StatsdValue::Delta(change)) => sink.value(LineValue::Delta(change), metric.rate),
            Ok(StatsdValue::Member(member)) => sink.value(LineValue::Member(member), metric.rate),
            Err(error) => sink.reject(&error),
        }
    }
}

/// Labels from tags. The values of a repeated tag are joined in one label.
fn labels(tags: &str) -> Vec<(&str, String)> {
    let mut tags: Vec<(&str, &str)> = statsd::tags(tags).collect();
    tags.sort_unstable();
    tags.dedup();
    let mut labels: Vec<(&str, String)> = Vec::new();
    for (name, value) in tags {
        match labels.last_mut() {
            Some((last, values)) if *last == name => {
                values.push(',');
                values.push_str(value);
            }
            _ => labels.push((name, value.to_owned())),
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use model::selector::kind_name;

    use super::*;

    #[track_caller]
    fn check(key: &str, expected: &str) {
        let shown = match Statsd::default().series(key.as_bytes()[0], &key[1..]) {
            Ok(series) => format!("{series} {} {}", series.unit(), kind_name(series.kind())),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{key}");
    }

    #[test]
    fn series_are_parsed_from_keys() {
        check("ca.b|", "a.b  delta-counter");
        check("ma|env:prod,fast,:x", "a{env=\"prod\",fast=\"true\"} ns delta-histogram");
        check("da|b:2,a:1,b:1,b:2", "a{a=\"1\",b=\"1,2\"}  delta-histogram");
        check("sa|b:", "a  gauge");
    }
}

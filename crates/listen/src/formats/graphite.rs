//! Graphite plaintext protocol. Each value is stored with its own timestamp.
//!
//! ```text
//! p   path;tags     key of a series
//! ```

use std::net::SocketAddr;

use decode::graphite::{self, GraphiteLine};
use model::{Series, SeriesKind};
use role::settings::{SettingsCheck, TableRef, Transport};
use serde::Deserialize;

use crate::line_format::{LineFormat, SocketAddresses};
use crate::line_sink::{LineSink, LineValue};
use crate::series_aggregate::AggregateKind;

/// `[graphite]`: the plaintext protocol.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Graphite {
    tcp: Vec<SocketAddr>,
    udp: Vec<SocketAddr>,
}

impl LineFormat for Graphite {
    const NAME: &'static str = "graphite";
    const TITLE: &'static str = "Graphite";

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        check.listen(table, "tcp", Transport::Tcp, &self.tcp);
        check.listen(table, "udp", Transport::Udp, &self.udp);
    }

    fn sockets(&self) -> SocketAddresses {
        SocketAddresses { udp: self.udp.clone(), tcp: self.tcp.clone(), unix: None }
    }

    fn read(&self, bytes: &[u8], sink: &mut LineSink<'_>) {
        for (number, line) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            match graphite::parse_line(number, line, sink.now()) {
                Ok(GraphiteLine::Metric(metric)) => {
                    sink.series(b'p', &[metric.series], AggregateKind::Points, None);
                    let point = LineValue::Point { time: metric.time, value: metric.value };
                    sink.value(point, 1.0);
                }
                Ok(GraphiteLine::Skipped(_)) => sink.skip(),
                Err(error) => sink.reject(&error),
            }
        }
    }

    fn series(&self, _kind: u8, name: &str) -> model::Result<Series> {
        let (path, tags) = graphite::path_and_tags(name);
        let series = Series::new(path, SeriesKind::Gauge);
        tags.fold(series, |series, (name, value)| series.with_label(name, value)).validate()
    }
}

#[cfg(test)]
mod tests {
    use model::selector::kind_name;

    use super::*;

    #[track_caller]
    fn check(key: &str, expected: &str) {
        let shown = match Graphite::default().series(b'p', key) {
            Ok(series) => format!("{series} {} {}", series.unit(), kind_name(series.kind())),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{key}");
    }

    #[test]
    fn series_are_parsed_from_keys() {
        check("a.b;x=1;y=2", "a.b{x=\"1\",y=\"2\"}  gauge");
        check("a;x=1;x=2", "duplicate label \"x\"");
    }
}

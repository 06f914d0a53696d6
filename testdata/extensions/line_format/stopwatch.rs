//! Example of a line format: `name;milliseconds`, in datagrams. The file has a setting with its
//! check, errors, and a test. Lines and values are counted with the label `source="stopwatch"`.

use std::net::SocketAddr;

use hist::codec::header::Temporality;
use model::{Series, SeriesKind};
use role::settings::{SettingsCheck, TableRef, Transport};
use serde::Deserialize;

use crate::{AggregateKind, LineFormat, LineSink, LineValue, SocketAddresses};

/// `[stopwatch]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Stopwatch {
    pub(crate) udp: Vec<SocketAddr>,
    /// Prefix of all metric names.
    pub(crate) prefix: String,
}

#[derive(Debug, thiserror::Error)]
enum StopwatchError {
    #[error("cannot read {line:?}: no semicolon; send name;milliseconds")]
    NoSemicolon { line: String },
    #[error("cannot read {line:?}: no number after the semicolon; send name;milliseconds")]
    NoNumber { line: String },
}

fn parse(line: &str) -> Result<(&str, f64), StopwatchError> {
    let no_semicolon = || StopwatchError::NoSemicolon { line: line.to_owned() };
    let (name, time) = line.split_once(';').ok_or_else(no_semicolon)?;
    let time = time.parse().ok().filter(|time: &f64| time.is_finite());
    time.map(|time| (name, time)).ok_or_else(|| StopwatchError::NoNumber { line: line.to_owned() })
}

impl LineFormat for Stopwatch {
    const NAME: &'static str = "stopwatch";
    const TITLE: &'static str = "Stopwatch";

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        check.listen(table, "udp", Transport::Udp, &self.udp);
        if self.prefix.contains(';') {
            check.problem(table, "prefix", "prefix has a semicolon, which ends a name");
        }
    }

    fn sockets(&self) -> SocketAddresses {
        SocketAddresses { udp: self.udp.clone(), ..SocketAddresses::default() }
    }

    fn read(&self, bytes: &[u8], sink: &mut LineSink<'_>) {
        for line in String::from_utf8_lossy(bytes).lines() {
            match parse(line) {
                Ok((name, time)) => {
                    sink.series(b't', &[&self.prefix, name], AggregateKind::Histogram, None);
                    sink.value(LineValue::Number(time), 1.0);
                }
                Err(error) => sink.reject(&error),
            }
        }
    }

    fn series(&self, _kind: u8, name: &str) -> model::Result<Series> {
        let kind = SeriesKind::Histogram(Temporality::Delta);
        Series::new(name, kind).with_unit("ms").validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_name_and_a_number() {
        assert_eq!(parse("lap;12.5").unwrap(), ("lap", 12.5));
        let error = parse("lap;x").unwrap_err().to_string();
        assert!(error.ends_with("no number after the semicolon; send name;milliseconds"));
    }
}

//! Worked example: a line format, `name;milliseconds`, in datagrams. This file is complete: a
//! setting with its check, a metric, an error, and tests. A row in `src/formats.rs` adds the format
//! to a node. CONTRIBUTING.md refers to this file.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hist::codec::header::Temporality;
use listen::{
    AggregateKind, AnyLineFormat, LineFormat, LineFormatRow, LineSink, LineValue, ListenTables,
    Listener, SocketAddresses,
};
use model::{Series, SeriesKind};
use role::settings::{Document, Problems, SettingsCheck, TableRef, Transport};
use serde::Deserialize;

use crate::fixture::{ListenFixture, TIMEOUT, ip};

/// `[stopwatch]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
struct Stopwatch {
    udp: Vec<SocketAddr>,
    /// Prefix of all metric names.
    prefix: String,
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

const FORMATS: &[LineFormatRow] = &[LineFormatRow::of::<Stopwatch>()];

fn read(text: &str) -> Result<ListenTables, Problems> {
    let document = Document::parse(text, Path::new("/etc/topdeck"))?;
    let tables = ListenTables::read(FORMATS, &document)?;
    let mut check = SettingsCheck::new(&document);
    tables.check(&mut check);
    let problems = check.finish();
    if problems.is_empty() { Ok(tables) } else { Err(problems) }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(read(text).unwrap_err().to_string(), expected);
}

#[test]
fn its_settings_are_checked() {
    check(
        "[stopwatch]\nprefix = \"a;\"\n",
        "line 2: prefix has a semicolon, which ends a name\n  | prefix = \"a;\"\n  | ^",
    );
    check(
        "[stopwatch]\nprefx = \"a\"\n",
        "line 2: unknown key \"prefx\"; did you mean \"prefix\"?\n  | prefx = \"a\"\n  \
         | ^",
    );
    assert!(read("").unwrap().listeners().is_empty());
    assert_ne!(AnyLineFormat::new(Stopwatch::default()), {
        AnyLineFormat::new(Stopwatch { prefix: "a".to_owned(), ..Stopwatch::default() })
    });
}

#[test]
fn its_datagrams_are_stored() {
    let world = ListenFixture::new();
    let tables = read("[stopwatch]\nudp = [\"127.0.0.1:0\"]\nprefix = \"race.\"\n").unwrap();
    let settings = tables.listeners().remove(0);
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"lap;12.5\nlap;7.5\nlap", ip(&listener.addresses()[0])).unwrap();
    let labels = |outcome| [("source", "stopwatch"), ("outcome", outcome)];
    let count = |name, outcome| world.intake.meter().counter(name, "", &labels(outcome)).get();
    let began = Instant::now();
    while count("topdeck_listen_lines_total", "rejected") == 0 {
        assert!(began.elapsed() < TIMEOUT, "no rejected line was counted");
        std::thread::yield_now();
    }
    let mut errors = String::new();
    listener.recent_errors().iter().for_each(|error| write!(errors, "{error}").unwrap());
    assert!(
        errors.ends_with("cannot read \"lap\": no semicolon; send name;milliseconds"),
        "{errors}"
    );
    listener.stop();
    assert_eq!(count("topdeck_listen_values_total", "accepted"), 2);
    let (rows, _) = world.stored();
    assert_eq!(rows[0].0.to_string(), "race.lap");
}

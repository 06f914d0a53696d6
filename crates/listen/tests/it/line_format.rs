//! The worked example of a line format with a real socket.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use listen::{AnyLineFormat, LineFormatRow, ListenTables, Listener};
use role::settings::{Document, Problems, SettingsCheck};

use crate::fixture::{ListenFixture, TIMEOUT, ip};
use crate::stopwatch::Stopwatch;

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

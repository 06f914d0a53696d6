//! Tests of job start, change and end, and of a full journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use journal::{Compression, LimitPolicy, Limits, StartPosition};
use pull::{CheckJobSettings, ScrapeJobSettings, Settings, TcpProbe};

use crate::checks::{check, page};
use crate::fixture::{PullFixture, TestTarget, text_response, wait_until};
use crate::scrapes::{once_with_long_timeout, settings_with};

#[track_caller]
fn check_settings(settings: Settings, why: &str) {
    let error = settings.check().unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

#[test]
fn invalid_settings_are_rejected_at_start() {
    let sound = || once_with_long_timeout("http://127.0.0.1:1/".to_owned());
    let tcp = || check(TcpProbe { tcp: "127.0.0.1:1".to_owned(), ..TcpProbe::default() });
    let with = |name: &str| vec![(name.to_owned(), "x".to_owned())];
    let checks = |check| Settings { checks: vec![check], ..Settings::default() };
    let both = Settings { scrapes: vec![sound()], checks: vec![tcp()], ..Settings::default() };
    assert!(both.check().is_ok());
    for own in ["check", "phase", "outcome"] {
        check_settings(checks(CheckJobSettings { labels: with(own), ..tcp() }), own);
    }
    let twice = [with("a"), with("a")].concat();
    check_settings(checks(CheckJobSettings { labels: twice.clone(), ..tcp() }), "duplicate label");
    check_settings(
        settings_with(ScrapeJobSettings { labels: twice, ..sound() }),
        "duplicate label",
    );
    check_settings(
        settings_with(ScrapeJobSettings { labels: with("__name__"), ..sound() }),
        "reserved",
    );
    check_settings(
        settings_with(ScrapeJobSettings { interval: Duration::ZERO, ..sound() }),
        "interval",
    );
    check_settings(
        settings_with(ScrapeJobSettings { timeout: Duration::from_secs(61), ..sound() }),
        "timeout",
    );
    check_settings(
        settings_with(ScrapeJobSettings { timeout: Duration::ZERO, ..sound() }),
        "timeout",
    );
    let (interval, timeout) = (Duration::from_secs(2), Duration::from_secs(121));
    check_settings(checks(CheckJobSettings { interval, timeout, ..tcp() }), "60 intervals");
    check_settings(
        checks(check(TcpProbe { tcp: "x".to_owned() + ":y", ..TcpProbe::default() })),
        "invalid URL",
    );
    check_settings(
        settings_with(ScrapeJobSettings { url: "ftp://x".to_owned(), ..sound() }),
        "invalid URL",
    );
    check_settings(
        settings_with(ScrapeJobSettings { token: Some("a\nb".to_owned()), ..sound() }),
        "token",
    );
    let tls = net::tls::ClientTls { ca: Some("/nowhere.pem".into()), ..Default::default() };
    check_settings(
        settings_with(ScrapeJobSettings { url: "https://x".to_owned(), tls, ..sound() }),
        "/nowhere.pem",
    );
}

#[test]
fn reload_ends_removed_jobs_and_keeps_the_rest() {
    let server = TestTarget::new(|_| text_response("a 1\n"));
    let often = Duration::from_secs(1);
    let scrape = ScrapeJobSettings {
        interval: often,
        timeout: often,
        ..once_with_long_timeout(server.url())
    };
    let named = |name: &str| ScrapeJobSettings { name: name.to_owned(), ..scrape.clone() };
    let both = Settings { scrapes: vec![named("j"), named("k")], ..Settings::default() };
    let mut world = PullFixture::with_running_clock(&journal::Settings::default());
    world.start(&both);
    for job in ["j", "k"] {
        world.wait_for("scrape", job, "success", 1);
    }
    // Invalid settings change nothing.
    let wrong = ScrapeJobSettings { interval: Duration::ZERO, ..named("k") };
    assert!(world.reload(&settings_with(wrong)).is_err());
    world.reload(&settings_with(named("k"))).unwrap();
    world.stop();
    let values = world.values();
    let of = |name: &str, job: &str| {
        values[&format!("{name}{{instance=\"{}\",job=\"{job}\"}}", server.address)].clone()
    };
    assert_eq!(
        [of("a", "j"), of("up", "j")].map(|of| of.last().cloned()),
        [(); 2].map(|()| Some("ended".to_owned()))
    );
    // One value per request, both jobs together.
    let values = of("a", "j").len() - 1 + of("a", "k").len();
    assert!(!of("a", "k").contains(&"ended".to_owned()) && values <= server.heads().len());
}

#[test]
fn scrape_without_journal_space_leaves_a_gap() {
    let bytes_max = Some(256 << 10);
    let settings = journal::Settings {
        segment_bytes: 64 << 10,
        buffer_bytes: 16 << 10,
        compression: Compression::None,
        limits: Limits { bytes_max, age_max: None, on_full: LimitPolicy::Reject },
        ..journal::Settings::default()
    };
    let mut world = PullFixture::with_running_clock(&settings);
    world.journal.add_subscriber("slow", StartPosition::First, true).unwrap();
    while world.journal.append(&[7; 4000], journal::Level::Disk).is_ok() {}
    // Larger than the rest of the last segment.
    let lines: String = (0..100).map(|at| format!("a{at:0>40} {at}\n")).collect();
    let server = TestTarget::new(move |_| text_response(&lines));
    let second = Duration::from_secs(1);
    world.start(&settings_with(ScrapeJobSettings {
        interval: second,
        timeout: second,
        ..once_with_long_timeout(server.url())
    }));
    world.wait("scrape", "not_stored", 2);
    assert_eq!(world.count("scrape", "j", "success"), 0);
    world.journal.set_checkpoint("slow", StartPosition::End).unwrap();
    world.intake.checkpoint_ledger().unwrap();
    world.wait("scrape", "success", 1);
    world.stop();
    let (rows, gaps) = world.stored();
    let not_stored = world.count("scrape", "j", "not_stored");
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    // Each loses its five report metrics.
    assert_eq!(gaps[0].lost, Some(not_stored * 105));
    assert!(gaps[0].reason.starts_with("result of scrape \"j\" not stored: "), "{}", gaps[0]);
    let first = rows.iter().map(|(_, sample)| sample.end).min().unwrap();
    assert!(gaps[0].start < gaps[0].end && gaps[0].end <= first, "{} {first}", gaps[0]);
    assert!(world.intake.audit().unwrap().producers.iter().all(|of| of.is_reconciled()));
}

/// An attempt interrupted by a stop is a gap.
#[test]
fn stop_does_not_wait_for_hanging_targets() {
    let seen = Arc::new(AtomicBool::new(false));
    let is_there = Arc::clone(&seen);
    let server = TestTarget::new(move |_| {
        is_there.store(true, Ordering::SeqCst);
        loop {
            thread::park();
        }
    });
    let mut world = PullFixture::new();
    let hour = Duration::from_secs(3600);
    let settings = Settings {
        checks: vec![CheckJobSettings {
            interval: hour,
            timeout: hour,
            ..check(page(server.address, None))
        }],
        stop_timeout: Duration::from_millis(100),
        ..Settings::default()
    };
    world.start(&settings);
    wait_until("a request arrives", || seen.load(Ordering::SeqCst));
    // A test that waits an hour hangs.
    world.stop();
    let (rows, gaps) = world.stored();
    assert!(rows.is_empty() && gaps.len() == 1, "{gaps:?}");
    assert!(gaps[0].lost >= Some(1) && gaps[0].reason.contains("stopped"), "{}", gaps[0]);
}

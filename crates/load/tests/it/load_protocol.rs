//! The worked example of a load protocol in runs against a real server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use load::{
    ArrivalProcess, Failure, ProtocolRow, RequestTemplate, Requests, Schedule, Settings, Target,
    Template,
};

use crate::cache::ROW;
use crate::fixture;

/// A server that answers `set` with `ok`, `get` of a key that ends in `hit` with `1`, and any other
/// with an error. Returns its port. Its threads end with their connections.
fn serve() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                    let answer = match line.unwrap_or_default().as_str() {
                        set if set.starts_with("set ns:") => "ok\n",
                        get if get.starts_with("get ns:") && get.ends_with("hit") => "1\n",
                        _ => "ERROR no such key\n",
                    };
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn cache_run_has_response_times_and_errors() {
    let (target, path) =
        Target::parse_with(&format!("cache://127.0.0.1:{}/ns:", serve()), &[ROW]).unwrap();
    assert_eq!((path.as_str(), target.is_tls), ("/", false));
    let run = |words: &[&str]| {
        let arguments = words.iter().map(|word| Template::text(*word)).collect();
        let requests = Requests::single(RequestTemplate {
            name: "a".to_owned(),
            arguments,
            ..RequestTemplate::default()
        });
        requests.check(Some(&target)).unwrap();
        let schedule = Schedule::constant(200.0, 100_000_000, ArrivalProcess::Constant);
        let settings = Settings {
            target: Some(target.clone()),
            requests,
            ..fixture::settings("tcp://localhost:1", schedule)
        };
        load::run(&settings, &Arc::new(AtomicBool::new(false)), &mut ()).unwrap()
    };
    // A machine may stall for the length of a run.
    let run = |words: &[&str]| {
        let mut runs = (0..10).map(|_| run(words));
        runs.find(|run| run.tally.completed + run.tally.failures() > 0)
            .expect("ten runs without an answer in time")
    };
    let found = run(&["set", "a", "1"]);
    assert_eq!(found.tally.accounted(), found.tally.scheduled);
    assert!(found.tally.completed > 0 && found.tally.failures() == 0, "{:?}", found.tally);
    assert!(run(&["get", "hit"]).tally.completed > 0);
    let missed = run(&["get", "miss"]);
    assert_eq!(missed.tally.completed, 0);
    let detail = missed.first_errors[Failure::Status as usize].as_deref();
    assert_eq!(detail, Some("ERROR no such key"));
}

#[test]
fn cache_requests_are_checked_before_a_run() {
    let (target, _) = Target::parse_with("cache://a", &[ROW]).unwrap();
    assert_eq!(target.port, 11_211);
    let arguments = vec![Template::text("drop"), Template::text("a")];
    let requests = Requests::single(RequestTemplate { arguments, ..RequestTemplate::default() });
    let error = requests.check(Some(&target)).unwrap_err().to_string();
    assert!(error.contains("cannot send \"drop a\": it is no command"), "{error}");
}

#[test]
fn cache_urls_are_checked() {
    let error = |url: &str| Target::parse_with(url, &[ROW]).unwrap_err().to_string();
    assert!(error("cache://a/b%20c").contains("cannot use namespace \"b c\""));
    assert!(error("cache://me@a/").contains("a user is not supported"));
    assert!(error("redis://a").contains("expected cache://"));
}

#[test]
fn help_shows_the_row() {
    let rows: Vec<ProtocolRow> = load::PROTOCOLS.iter().copied().chain([ROW]).collect();
    let help = load::schemes_help(&rows);
    assert!(help.starts_with("http://HOST:PORT/PATH, https, "), "{help}");
    assert!(help.ends_with("redis, rediss or cache"), "{help}");
    assert!(load::arguments_help(&rows).ends_with("; for cache a word of the command"));
}

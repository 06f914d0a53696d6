//! Worked example of a load protocol: a small cache with the lines `set KEY BYTES` and `get KEY`.
//! The file contains the URL scheme with a default port, a URL option with its check, the codec, an
//! error, the texts for `--help`, and tests. A protocol of `topdeck load` is such a file in
//! `src/protocols/`, and a line of `PROTOCOLS`. CONTRIBUTING.md refers to this file.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use load::{
    ArrivalProcess, Codec, Completion, Failure, LoadProtocol, ProtocolRow, ProtocolTarget,
    RenderedRequest, Request, RequestId, Requests, Schedule, Settings, Target, TargetUrl, Template,
    UrlScheme,
};

use crate::fixture;

/// The row of the table.
const ROW: ProtocolRow = ProtocolRow {
    schemes: &[UrlScheme {
        name: "cache",
        is_tls: false,
        default_port: Some(11_211),
        help: Some("cache"),
    }],
    has_credentials: false,
    body: None,
    argument: Some("a word of the command"),
    open: |url| Ok(ProtocolTarget::new(CacheProtocol::read(url)?, url.scheme)),
};

#[derive(Debug, PartialEq, thiserror::Error)]
enum CacheError {
    #[error("cannot use namespace {0:?}: it has white space; remove that")]
    Namespace(String),
    #[error("cannot send {0:?}: it is no command; use get KEY or set KEY BYTES")]
    Command(String),
}

/// One command at a time. A path is the prefix of all keys: `cache://host/namespace`.
#[derive(Debug, PartialEq)]
struct CacheProtocol {
    namespace: String,
}

impl CacheProtocol {
    fn read(url: &TargetUrl<'_>) -> Result<CacheProtocol, String> {
        let namespace = url.path.trim_start_matches('/').replace("%20", " ");
        match namespace.contains(' ') {
            true => Err(CacheError::Namespace(namespace).to_string()),
            false => Ok(CacheProtocol { namespace }),
        }
    }
}

impl LoadProtocol for CacheProtocol {
    fn codec(&self) -> Box<dyn Codec> {
        let (namespace, line) = (self.namespace.clone(), Vec::new());
        Box::new(CacheCodec { namespace, request_id: None, line, error_detail: None })
    }

    fn check(&self, request: &RenderedRequest) -> Result<(), String> {
        request.refuse_headers()?;
        let words: Vec<&[u8]> = request.arguments.iter().map(Vec::as_slice).collect();
        match words[..] {
            [b"get", _] | [b"set", _, _] => Ok(()),
            _ => {
                let words = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
                Err(CacheError::Command(words).to_string())
            }
        }
    }
}

/// Codec of one connection. A response is a line; an error begins with `ERROR`.
struct CacheCodec {
    namespace: String,
    request_id: Option<RequestId>,
    line: Vec<u8>,
    error_detail: Option<String>,
}

impl Codec for CacheCodec {
    fn capacity(&self) -> usize {
        usize::from(self.request_id.is_none())
    }

    fn send(&mut self, request: &RenderedRequest, request_id: RequestId, out: &mut Vec<u8>) {
        for (index, word) in request.arguments.iter().enumerate() {
            match index {
                0 => {}
                1 => out.extend_from_slice(format!(" {}", self.namespace).as_bytes()),
                _ => out.push(b' '),
            }
            out.extend_from_slice(word);
        }
        out.push(b'\n');
        self.request_id = Some(request_id);
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        _out: &mut Vec<u8>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Failure> {
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).into_owned();
            let failure = line.starts_with("ERROR").then_some(Failure::Status);
            self.error_detail = failure.map(|_| line);
            self.line.clear();
            let request_id = self.request_id.take().ok_or(Failure::Malformed)?;
            completions.push(Completion { request_id, failure });
        }
        Ok(())
    }

    fn error_detail(&mut self, failure: Failure) -> Option<String> {
        self.error_detail.take_if(|_| failure == Failure::Status)
    }
}

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
        let requests =
            Requests::single(Request { name: "a".to_owned(), arguments, ..Request::default() });
        requests.check(Some(&target)).unwrap();
        let schedule = Schedule::constant(200.0, 100_000_000, ArrivalProcess::Constant);
        let settings = Settings {
            target: Some(target.clone()),
            requests,
            ..fixture::settings("tcp://localhost:1", schedule)
        };
        load::run(&settings, &Arc::new(AtomicBool::new(false)), &mut ()).unwrap()
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
    let requests = Requests::single(Request { arguments, ..Request::default() });
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

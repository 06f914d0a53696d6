//! Pictures in events of PagerDuty: the link of an event opens its picture without a token, and
//! nothing else does.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::alert_clock_steps::SteppedClock;
use super::alert_receiver::read_request;
use super::client::{TestResponse, request_at};
use super::server_process::{ServerProcess, wait_until};

const RULES: &str = "[[rule]]\nname = 'Slow'\nselect = 'latency'\nby = ['host']\nwindow = '1h'\n\
                     [[rule.criteria]]\nseverity = 1\ncount_above = '250ms'\nat_least = 3\n";
/// A link is valid for 7 days.
const EIGHT_DAYS_S: i64 = 8 * 86_400;

/// Events API of PagerDuty on loopback: accepts all events.
struct EventsApi {
    address: SocketAddr,
    events: Arc<Mutex<Vec<Value>>>,
}

impl EventsApi {
    fn start() -> EventsApi {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let events = Arc::<Mutex<Vec<Value>>>::default();
        let api = EventsApi { address, events: Arc::clone(&events) };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.expect("a connection"));
                let Some((path, body)) = read_request(&mut stream) else { continue };
                assert_eq!(path, "/v2/enqueue");
                let event = serde_json::from_slice(&body).expect("JSON");
                events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
                let text = "HTTP/1.1 202 Accepted\r\nconnection: close\r\ncontent-length: 21\r\n\
                            \r\n{\"status\": \"success\"}";
                // The sender may be gone.
                let _ = stream.get_mut().write_all(text.as_bytes());
            }
        });
        api
    }

    /// The event of a host.
    fn event(&self, host: &str) -> Option<Value> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meant =
            |event: &&Value| event["payload"]["custom_details"]["labels"]["host"] == host;
        events.iter().find(is_meant).cloned()
    }
}

/// A server on which each request needs a token, and a token.
fn start(api: &EventsApi, clock: Option<&SteppedClock>) -> (ServerProcess, String) {
    let settings = format!(
        "[alerts]\nrule_files = [\"*.rules.toml\"]\n[[contact]]\nname = \"pager\"\nkind = \
         \"pagerduty\"\nrouting_key = \"0123456789abcdef0123456789abcdef\"\nurl = \
         \"http://{0}\"\npicture_url = \"http://deck.example/\"\n[route]\nreceiver = \
         \"pager\"\ngroup_by = [\"...\"]\ngroup_wait = \"0s\"\n",
        api.address
    );
    let mut server = ServerProcess::new("serve", &settings);
    let text = std::fs::read_to_string(server.settings()).expect("there are settings");
    let text = text.replace("[http]\n", "[http]\ntokens_required = true\n");
    std::fs::write(server.settings(), text).expect("settings are written");
    std::fs::write(server.dir.path("own.rules.toml"), RULES).expect("rules are written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_topdeck"));
    command.arg("token").arg(server.dir.path("data")).args(["add", "test", "ingest", "read"]);
    let output = command.output().expect("the binary starts");
    let secret = String::from_utf8(output.stdout).expect("it is UTF-8");
    if let Some(clock) = clock {
        server.set_variables(&clock.variables());
    }
    server.start();
    (server, format!("Bearer {}", secret.trim()))
}

#[track_caller]
fn get(server: &ServerProcess, path: &str) -> TestResponse {
    request_at(server.address(), "GET", path, &[], b"").expect("it answers")
}

fn is_png(response: &TestResponse) -> bool {
    response.body.windows(4).any(|bytes| bytes == b"\x89PNG")
}

#[test]
fn the_link_of_an_event_opens_its_picture_without_a_token_and_nothing_else_does() {
    let (api, mut clock) = (EventsApi::start(), SteppedClock::new());
    let (mut server, token) = start(&api, clock.as_ref());
    // A picture that a busy machine does not draw in time is left out.
    let image = (0..20).find_map(|number| {
        let host = format!("web{number}");
        let path = format!("/v1/record?metric=latency&unit=ms&label.host={host}");
        let headers = [("authorization", token.as_str())];
        let sent = request_at(server.address(), "POST", &path, &headers, b"10\n900\n900\n900");
        assert!(sent.expect("it answers").status < 300);
        wait_until("the alert is told", || api.event(&host).is_some());
        api.event(&host)?["images"].as_array().map(|images| images[0].clone())
    });
    let image = image.expect("no event has a picture");
    assert!(image["alt"].as_str().is_some_and(|alt| alt.starts_with("Heatmap of ")), "{image:#}");
    let src = image["src"].as_str().expect("a text");
    let path = src.strip_prefix("http://deck.example").expect(src);
    assert_eq!(get(&server, "/v1/alerts").status, 401, "a token is required elsewhere");
    let picture = get(&server, path);
    assert_eq!(picture.status, 200, "{}", picture.text());
    assert!(picture.body.starts_with(b"\x89PNG"));
    let head = picture.head.to_ascii_lowercase();
    assert!(head.contains("content-type: image/png"), "{head}");
    assert!(head.contains("cache-control: private"), "{head}");
    let (place, query) = path.split_once('?').expect("a query");
    let (expires, signature) = query.split_once('&').expect("two parameters");
    let other = if signature.ends_with('0') { "1" } else { "0" };
    let wrong = format!("{}{other}", &path[..path.len() - 1]);
    let truncated = &path[..path.len() - 2];
    let later = path.replace("expires=", "expires=1");
    for invalid in [
        &wrong,
        truncated,
        &later,
        place,
        &format!("{place}?{expires}"),
        &format!("{place}?{signature}"),
        &path.replace("alert-pictures/", "alert-pictures/0"),
        &format!("/v1/alert-pictures/key?{query}"),
        &format!("/v1/alert-pictures/..%2Fkey?{query}"),
    ] {
        let response = get(&server, invalid);
        assert_eq!(response.status, 404, "{invalid}: {}", response.text());
        assert!(!is_png(&response) && response.text().contains("no picture"), "{invalid}");
    }
    let key = server.dir.path("data/notifications/pictures/key");
    let mode = std::fs::metadata(key).expect("there is a key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The key is kept.
    server.stop();
    server.start();
    assert_eq!(get(&server, path).status, 200);
    if let Some(clock) = &mut clock {
        clock.add(EIGHT_DAYS_S);
        wait_until("the link expires", || get(&server, path).status == 404);
        assert!(!is_png(&get(&server, path)));
    }
    server.stop();
}

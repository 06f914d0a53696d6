//! What a user sees of each extension.

use std::net::UdpSocket;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::extended_server::ExtendedServer;
use super::peers;
use crate::command_line::CommandLine;

/// A check for each kind of the list of extensions.
#[expect(clippy::type_complexity, reason = "a table of pairs")]
pub(super) const CHECKS: &[(&str, fn(&ExtendedServer) -> Result<()>)] = &[
    ("role", check_role),
    ("check", check_probe),
    ("contact", check_contact),
    ("host source", check_host_source),
    ("ingest format", check_ingest_format),
    ("line format", check_line_format),
    ("PromQL function", check_promql_function),
    ("CAQL package", check_caql_package),
    ("load protocol", check_load_protocol),
    ("subcommand", check_subcommand),
    ("page view", check_page_view),
];

/// Settings, summary, status, route and metric.
fn check_role(server: &ExtendedServer) -> Result<()> {
    server.accepts("1 heart")?;
    server.rejects("[heartbeat]\nperiod = \"1h\"\n", "period is 3600s, must be 1ms to 60s")?;
    server.rejects("[heartbeat]\nperoid = \"1s\"\n", "did you mean \"period\"?")?;
    let station = "[heartbeat]\nstation = \"mir\"\n";
    server.rejects(station, "cannot send heartbeats to mir: no station is reachable")?;
    let is_positive = |value: &Value| value.as_u64().is_some_and(|beats| beats > 0);
    server.await_json("/v1/status", &[], |status| is_positive(&status["heartbeats"]))?;
    server.await_json("/v1/heartbeat", &[], is_positive)?;
    let document = server.get("/v1/openapi.json", &[])?;
    ensure!(document["paths"]["/v1/heartbeat"].is_object(), "the OpenAPI document has no route");
    server.await_number("topdeck_heartbeat_beats_total", |beats| beats > 0.0)
}

/// Settings, the result of an attempt, and the duration of its phase.
fn check_probe(server: &ExtendedServer) -> Result<()> {
    server.accepts("1 check")?;
    let check = "[[check]]\nname = \"a\"\nheader_url = ";
    server.rejects(&format!("{check}\"ftp://a\"\n"), "must begin with http:// or https://")?;
    server.rejects(
        &format!("{check}\"http://a\"\nheader = \"a b\"\n"),
        "header has white space, which no header name has",
    )?;
    server.await_number("probe_success{check=\"shard\"}", |success| success == 1.0)?;
    let phase = "histogram_count(probe_duration{check=\"shard\",phase=\"headers\"})";
    server.await_number(phase, |count| count >= 1.0)
}

/// Settings, and a message that the receiver accepts.
fn check_contact(server: &ExtendedServer) -> Result<()> {
    let contact = "[[contact]]\nname = \"desk\"\nkind = \"lamp\"\nurl = ";
    server.rejects(
        &format!("{contact}\"http://a\"\nmildest_severity = 9\n"),
        "mildest_severity is 9, must be 1 to 5",
    )?;
    let path = server.dir.0.join("contacts.toml");
    let settings = format!("{contact}\"http://{}/\"\n", peers::http_server()?);
    std::fs::write(&path, settings).context("cannot write the settings of the contact")?;
    let path = path.to_str().context("the path is not UTF-8")?;
    server.prints(&["contacts", "test", "desk", "--config", path], "accepted the message")
}

/// Settings, and a metric.
fn check_host_source(server: &ExtendedServer) -> Result<()> {
    server.rejects("[host]\nentropi = true\n", "did you mean \"entropy\"?")?;
    server.rejects("[host]\nentropy_file = \"a\"\n", "entropy_file is a relative path")?;
    server.await_number("host_entropy_bits", |bits| bits > 0.0)
}

/// A request whose rows are stored, a rejected one, and the route.
fn check_ingest_format(server: &ExtendedServer) -> Result<()> {
    let path = "/v1/laps?prefix=track_";
    let answer = server.deck.curl(&["--data-binary", "first;12.5\nsecond;7.5\n"], path)?;
    ensure!(answer == "{\"laps\":2}\n", "the response is {answer:?}");
    let rejected = server.deck.curl(&["--data-binary", "third"], path);
    let error = rejected.err().map(|error| error.to_string()).unwrap_or_default();
    let expected = "cannot read line 1: no semicolon; send name;milliseconds";
    ensure!(error.contains(expected), "the error is {error:?}");
    server.await_number("track_second", |time| time == 7.5)?;
    let document = server.get("/v1/openapi.json", &[])?;
    ensure!(document["paths"]["/v1/laps"].is_object(), "the OpenAPI document has no route");
    let route = "histogram_count(topdeck_http_request_duration{route=\"/v1/laps\"})";
    server.await_number(route, |count| count >= 1.0)
}

/// Settings, and a datagram whose values are stored and counted.
fn check_line_format(server: &ExtendedServer) -> Result<()> {
    let text = "[stopwatch]\nprefix = \"a;\"\n";
    server.rejects(text, "prefix has a semicolon, which ends a name")?;
    let address = server.deck.logged_address("Stopwatch at udp ");
    let socket = UdpSocket::bind("127.0.0.1:0").context("cannot bind a UDP socket")?;
    let sent = socket.send_to(b"lap;12.5\nlap;7.5\nlap", &address);
    sent.with_context(|| format!("cannot send to {address:?}"))?;
    server.await_number("histogram_count(race_lap)", |count| count >= 1.0)?;
    let lines = "topdeck_listen_lines_total{source=\"stopwatch\",outcome=\"rejected\"}";
    server.await_number(lines, |rejected| rejected == 1.0)
}

/// A result, a rejected argument, and the list of functions.
fn check_promql_function(server: &ExtendedServer) -> Result<()> {
    server.await_number("example_cube(vector(2))", |cube| cube == 8.0)?;
    let wrong = server.get("/api/v1/query", &["query=example_cube(2)"]);
    let error = wrong.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(error.contains("expected type instant vector"), "the error is {error:?}");
    let list = server.get("/v1/functions", &["language=promql"])?.to_string();
    ensure!(list.contains("example_cube"), "the list of functions lacks it");
    Ok(())
}

/// A result, and the list of functions.
fn check_caql_package(server: &ExtendedServer) -> Result<()> {
    let query = ["language=caql", "query=2 | example:cube()", "from=-10m", "to=now", "step=60s"];
    let answer = server.get("/v1/query", &query)?;
    ensure!(find_number(&answer, 8.0), "the response has no 8: {answer}");
    let list = server.get("/v1/functions", &["language=caql"])?.to_string();
    ensure!(list.contains("example:cube"), "the list of functions lacks it");
    Ok(())
}

/// Whether a JSON value contains the number, as a number or in a text.
fn find_number(value: &Value, number: f64) -> bool {
    match value {
        Value::Array(values) => values.iter().any(|value| find_number(value, number)),
        Value::Object(fields) => fields.values().any(|value| find_number(value, number)),
        Value::String(text) => text.parse() == Ok(number),
        other => other.as_f64() == Some(number),
    }
}

/// `--help`, a run, and a rejected request.
fn check_load_protocol(server: &ExtendedServer) -> Result<()> {
    server.prints(&["load", "--help"], "rediss or cache")?;
    server.prints(&["load", "--help"], "for cache a word of the command")?;
    let url = format!("cache://{}/ns:", peers::cache_server()?);
    let run = ["load", &url, "--rate", "50", "--duration", "1s", "--no-calibration", "--quiet"];
    let arguments = [&run[..], &["--arg", "get", "--arg", "a", "--json", "-"]].concat();
    // A busy machine may make the run invalid, which is another exit status.
    let output = server.output(&arguments)?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("the report is no JSON: {output:?}"))?;
    // A busy machine may also send fewer requests than were scheduled.
    let counts = &report["counts"];
    let is_zero = |count: &Value| count.as_u64() == Some(0);
    let has_no_failure =
        counts["failed"].as_object().is_some_and(|failed| failed.values().all(is_zero));
    let has_completed = counts["completed"].as_u64().is_some_and(|count| count > 0);
    ensure!(has_no_failure && has_completed, "the run has failures or no response: {counts}");
    let arguments = [&run[..], &["--arg", "drop", "--arg", "a"]].concat();
    server.fails(&arguments, "cannot send \"drop a\": it is no command")
}

/// `--help`, its output, and its error.
fn check_subcommand(server: &ExtendedServer) -> Result<()> {
    server.prints(&["--help"], "Print a count per second")?;
    server.prints(&["rate", "--help"], "Duration in seconds")?;
    server.prints(&["completions", "bash"], "topdeck,rate")?;
    server.prints(&["rate", "300", "--seconds", "60"], "5/s")?;
    server.fails(&["rate", "1", "--seconds", "0"], "the duration is 0 s; pass --seconds")
}

/// The navigation, and the view with a setting from its address.
fn check_page_view(server: &ExtendedServer) -> Result<()> {
    let url = format!("http://{}/#/build?detail=long", server.deck.http());
    let profile = server.dir.0.join("chromium");
    let line = CommandLine::new("timeout 120 chromium --headless --no-sandbox --disable-gpu");
    let line = line.arg("--virtual-time-budget=10000").arg("--dump-dom");
    let line = line.arg(&format!("--user-data-dir={}", profile.display())).arg(&url);
    let page = String::from_utf8(line.stdout()?).context("the page is not UTF-8")?;
    let start = page.find("<nav").context("the page has no navigation")?;
    let navigation = &page[start..start + page[start..].find("</nav>").unwrap_or(0)];
    ensure!(navigation.contains(">Build</a>"), "the navigation lacks the view: {navigation}");
    for expected in ["Built as topdeck ", "Started at ", "aria-current=\"page\">Build</a>"] {
        ensure!(page.contains(expected), "the page lacks {expected:?}: {page}");
    }
    Ok(())
}

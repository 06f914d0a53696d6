//! The commands: second start, port in use, invalid settings, signals.

use std::io::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::thread;

use super::load_sender::LoadSender;
use super::matrix::{await_stored, stored};
use super::server_process::{ServerProcess, append, wait_until};

#[test]
fn second_start_in_the_same_directory_names_the_first() {
    let mut deck = ServerProcess::new("serve", "");
    deck.start();
    let (status, said) = deck.start_another(&[]);
    assert_eq!(status, Some(1), "{said}");
    let server = format!("a server uses this store at http://{}", deck.address());
    assert!(said.contains("in use by another process"), "{said}");
    assert!(said.contains(&server), "{said}");
    deck.stop();
    deck.start();
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = taken.local_addr().expect("it has an address").port();
    let mut deck = ServerProcess::new("serve", "[statsd]\nudp = [\"127.0.0.1:0\"]\n");
    let text = std::fs::read_to_string(deck.settings()).expect("there are settings");
    let http = format!("127.0.0.1:{}", deck.port);
    std::fs::write(deck.settings(), text.replace(&http, &format!("127.0.0.1:{port}")))
        .expect("settings");
    let (status, said) = deck.start_another(&[]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains(&format!("127.0.0.1:{port}")), "{said}");
    // The next start, on another port, said that the last stop was not clean, and each row of the
    // overview had a gap.
    std::fs::write(deck.settings(), text).expect("settings");
    deck.start();
    assert!(!deck.log().contains("the last stop was not clean"), "{}", deck.log());
    deck.stop();
    for section in ["statsd", "graphite"] {
        let deck =
            ServerProcess::new("serve", &format!("[{section}]\ntcp = [\"127.0.0.1:{port}\"]\n"));
        let (status, said) = deck.start_another(&[]);
        assert_eq!(status, Some(1), "{section}: {said}");
        assert!(said.contains(&format!("127.0.0.1:{port}")), "{section}: {said}");
    }
}

#[test]
fn invalid_settings_are_reported_with_their_lines() {
    for (more, words) in [
        ("[jurnal]\nmax_size = \"1GiB\"\n", "journal"),
        ("[journal]\nmax_size = \"much\"\n", "much"),
        ("[statsd]\nudp = 8125\n", "udp"),
        ("nothing but words\n", "topdeck.toml"),
    ] {
        let deck = ServerProcess::new("serve", more);
        let (status, said) = deck.start_another(&[]);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(words) && said.contains("topdeck.toml:"), "{said}");
        assert!(!deck.dir.path("data").exists(), "nothing was begun");
    }
    let deck = ServerProcess::new("agent", "");
    let (status, said) = deck.start_another(&[]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("[[remote]]"), "{said}");
}

/// A user could not tell from the log since when a target was down, or parse it.
#[test]
fn the_log_has_time_and_level_and_says_when_a_target_goes_down_as_text_and_as_json() {
    let gone = "[[scrape]]\nname = \"gone\"\nurl = \"http://127.0.0.1:1/metrics\"\n\
                interval = \"1s\"\ntimeout = \"1s\"\n";
    let down = "scrape \"gone\" (http://127.0.0.1:1/metrics) is down: ";
    let mut deck = ServerProcess::new("serve", gone);
    deck.start();
    wait_until("it says so", || deck.log().contains(down));
    let log = deck.log();
    for line in log.lines() {
        let (time, rest) = line.split_at(24);
        assert!(time.ends_with('Z') && time.as_bytes()[10] == b' ', "{line}");
        assert!([" info ", " warn ", " error"].iter().any(|of| rest.starts_with(of)), "{line}");
    }
    let line = log.lines().find(|line| line.contains(down)).unwrap();
    assert!(line[24..].starts_with(" warn  "), "{line}");
    deck.stop();
    let mut deck = ServerProcess::new("serve", &format!("{gone}[log]\nformat = \"json\"\n"));
    deck.start();
    let lines = || {
        let log = deck.log();
        let lines = log.lines().map(serde_json::from_str::<serde_json::Value>);
        lines.collect::<Result<Vec<_>, _>>()
    };
    let is_down = |line: &serde_json::Value| {
        line["message"].as_str().is_some_and(|message| message.starts_with(down))
    };
    // A line may be half written.
    wait_until("it says so", || lines().is_ok_and(|lines| lines.iter().any(is_down)));
    let lines = lines().unwrap();
    let line = lines.iter().find(|line| is_down(line)).unwrap();
    assert_eq!(line["level"], "warn");
    let time = line["time"].as_str().unwrap();
    assert!(time.len() == 24 && time.as_bytes()[10] == b'T', "{time}");
    // Once, although the scrape fails every second.
    assert_eq!(lines.iter().filter(|line| is_down(line)).count(), 1);
}

/// At a reload the ports in use are the server's own.
#[test]
fn reload_without_settings_changes_nothing() {
    let Some(mut deck) = ServerProcess::with_defaults() else { return };
    deck.start();
    deck.reload();
    wait_until("it says so", || deck.log().contains("the settings are unchanged"));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.send_to(b"told_by_statsd:7|g", "127.0.0.1:8125").expect("it is sent");
    // A stop stores the received data.
    deck.stop();
    deck.start();
    // All programs of this host may export metrics, and names are returned in pages.
    wait_until("it was taken", || {
        deck.get("/v1/metric_names?search=told_by").text().contains("told_by_statsd")
    });
}

/// Invalid settings are rejected as a whole, and the server continues with the old ones.
#[test]
fn invalid_host_settings_change_nothing() {
    let mut deck = ServerProcess::new("serve", "");
    let base = std::fs::read_to_string(deck.settings()).expect("there are settings");
    let hiccup = base.replace("hiccup = false", "hiccup = true");
    std::fs::write(deck.settings(), &hiccup).expect("settings are written");
    deck.start();
    std::fs::write(deck.settings(), hiccup + "hiccup_interval = \"1m\"\n").expect("settings");
    deck.reload();
    wait_until("it says so", || {
        deck.log().contains("hiccup_interval is 60s, must be 100µs to 10s")
    });
    assert!(deck.log().contains("keeping the previous ones"), "{}", deck.log());
    wait_until("it tells of the host", || {
        deck.get("/v1/metric_names?search=hiccup").text().contains("host_hiccup_delay")
    });
}

#[test]
fn data_files_are_private_to_their_owner() {
    let mut deck = ServerProcess::new("serve", "");
    deck.start();
    for dir in ["data", "data/store"] {
        let found = std::fs::metadata(deck.dir.path(dir)).expect("it is there");
        assert_eq!(found.permissions().mode() & 0o777, 0o700, "{dir}");
    }
    deck.stop();
}

fn remote_settings(name: &str, port: u16) -> String {
    format!("[[remote]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:{port}\"\n")
}

/// Settings are reloaded while a client sends: remotes are added and removed, and invalid settings
/// change nothing.
#[test]
fn settings_are_reloaded() {
    let (mut north, mut south) = (ServerProcess::new("serve", ""), ServerProcess::new("serve", ""));
    north.start();
    south.start();
    let mut agent = ServerProcess::new("agent", "");
    let base = std::fs::read_to_string(agent.settings()).expect("there are settings");
    append(&agent.settings(), &remote_settings("north", north.port));
    agent.start();
    let sender = LoadSender::start(agent.port, 1);
    wait_until("it forwards", || stored(&north).is_some_and(|stored| stored > 0));

    let broken = format!("{base}[[remote]]\nname = 7\n");
    std::fs::write(agent.settings(), broken).expect("settings are written");
    agent.reload();
    wait_until("it says so", || agent.log().contains("keeping the previous ones"));
    // Status and metrics said that all is well.
    let config = || agent.get("/v1/status").json()["config"].clone();
    wait_until("the status says so", || config()["error"].is_string());
    let failed = config();
    let error = failed["error"].as_str().unwrap_or_default();
    assert!(error.starts_with("cannot load the new settings, keeping the previous"), "{error}");
    let is_metric = |line: &str| agent.get("/metrics").text().contains(line);
    assert!(is_metric("\ntopdeck_config_last_reload_successful 0\n"));
    let before = stored(&north).expect("it answers");
    wait_until("it goes on", || stored(&north).is_some_and(|stored| stored > before));

    let both = base.clone()
        + &remote_settings("north", north.port)
        + &remote_settings("south", south.port);
    std::fs::write(agent.settings(), both).expect("settings are written");
    agent.reload();
    wait_until("it says so", || agent.log().contains("forwarding to 2 remotes"));
    wait_until("the status says so", || config()["error"].is_null());
    assert!(config()["loaded_ns"].as_i64() > failed["loaded_ns"].as_i64(), "{failed}");
    assert!(is_metric("\ntopdeck_config_last_reload_successful 1\n"));
    let sent = sender.stop();
    await_stored(&north, sent);
    // The new remote has newer data and the records that the journal still had.
    wait_until("it has some", || stored(&south).is_some_and(|stored| stored > 0));
    agent.audit();
    agent.stop();
}

/// Server with a metrics page.
fn scrape_target(name: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let body = format!("# TYPE {name} gauge\n{name} 7\n");
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close";
            let _ = std::io::Read::read(&mut client, &mut [0; 4096]);
            let _ = write!(client, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    port
}

#[test]
fn scrapes_are_reloaded() {
    let scrape = |port: u16| {
        format!(
            "[[scrape]]\nname = \"shop\"\nurl = \"http://127.0.0.1:{port}/metrics\"\ninterval = \
             \"1s\"\ntimeout = \"1s\"\n"
        )
    };
    let mut deck = ServerProcess::new("serve", "");
    let base = std::fs::read_to_string(deck.settings()).expect("there are settings");
    append(&deck.settings(), &scrape(scrape_target("first_page")));
    deck.start();
    let names = || deck.get("/v1/metric_names").text();
    wait_until("the page is read", || names().contains("first_page"));
    std::fs::write(deck.settings(), base + &scrape(scrape_target("second_page")))
        .expect("settings are written");
    deck.reload();
    wait_until("the other page is read", || names().contains("second_page"));
}

#[test]
fn second_stop_signal_is_harmless() {
    let mut deck = ServerProcess::new("serve", "");
    deck.start();
    let sender = LoadSender::start(deck.port, 1);
    wait_until("some is taken", || sender.acknowledged() > 50);
    deck.request_stop();
    deck.request_stop();
    deck.await_end();
    deck.start();
    let sent = sender.stop();
    await_stored(&deck, sent);
    deck.stop();
    // Also right after a start.
    deck.start();
    deck.stop();
}

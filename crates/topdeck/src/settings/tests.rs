//! Settings files and their errors.

use std::path::Path;
use std::time::Duration;

use expect_test::{Expect, expect};

use crate::node::ROLES;
use crate::server_log::LogFormat;
use crate::settings::{NodeSettings, Settings};

fn parse(text: &str) -> Settings {
    Settings::parse(text, Path::new("/etc/topdeck"), ROLES)
        .unwrap_or_else(|reason| panic!("{reason}"))
}

/// Number of each kind of table.
fn counts(settings: &Settings) -> Vec<usize> {
    settings.roles.summary().iter().map(|of| of.count).collect()
}

#[track_caller]
fn check(text: &str, expected: Expect) {
    let problems = Settings::parse(text, Path::new("/etc/topdeck"), ROLES).unwrap_err();
    expected.assert_eq(&problems.to_string());
}

#[test]
fn an_empty_file_is_the_defaults() {
    let settings = parse("");
    assert_eq!(settings.node, NodeSettings::default());
    assert_eq!(settings.roles.get::<listen::ListenRole>(), Some(&listen::ListenTables::default()));
    assert_eq!(settings.roles.get::<pull::PullRole>(), Some(&pull::PullTables::default()));
    assert_eq!(settings.roles.get::<host::HostRole>(), Some(&host::HostTable::default()));
    assert_eq!(settings.roles.get::<forward::ForwardRole>(), Some(&Default::default()));
}

#[test]
fn example_settings_are_valid() {
    let text = include_str!("../../../../docs/topdeck.toml");
    let settings = parse(text);
    assert_eq!(counts(&settings), [0, 0, 0, 0, 0, 0, 0]);
    // The documented defaults equal the actual ones.
    let (data, without) = (Path::new("/data"), parse(""));
    let (node, nothing) = (&settings.node, &without.node);
    assert_eq!(node.server(data), nothing.server(data));
    assert_eq!(node.journal_bytes(), nothing.journal_bytes());
    assert_eq!(node.intake().interval, nothing.intake().interval);
    assert_eq!(node.intake().level, nothing.intake().level);
    assert_eq!(node.intake().absence, nothing.intake().absence);
    assert!(node.absence.enabled.is_some() && node.absence.retire_after.is_some());
    assert_eq!(node.intake().exemplars, nothing.intake().exemplars);
    assert_eq!(node.exemplars(), nothing.exemplars());
    assert!(node.exemplars.enabled.is_some() && node.exemplars.max_memory.is_some());
    assert_eq!(node.intake().traces, nothing.intake().traces);
    assert_eq!(node.traces(), nothing.traces());
    assert!(node.traces.enabled.is_some() && node.traces.max_size.is_some());
    assert_eq!(node.log, nothing.log);
    assert_eq!(node.query_service(data), nothing.query_service(data));
    let host = |settings: &Settings| {
        settings.roles.get::<host::HostRole>().map(|host| host.settings("box"))
    };
    assert_eq!(host(&settings), host(&without));
    let listeners = |settings: &Settings| {
        settings.roles.get::<listen::ListenRole>().map(listen::ListenTables::listeners)
    };
    assert_eq!(listeners(&settings), listeners(&without));
    let options = store::Options::default();
    assert_eq!(node.store.max_head_size.map(|head| head.0), Some(options.head_bytes_max as u64));
    assert_eq!(node.store.limits(), options.limits);
    assert!(node.store.max_series.is_some() && node.store.max_producer_series.is_some());
    assert!(node.store.max_metric_series.is_some() && node.store.max_label_values.is_some());
    // The commented-out settings are valid, too.
    let all: String = text
        .lines()
        .map(|line| line.strip_prefix("#: ").unwrap_or(line))
        .map(|line| format!("{line}\n"))
        .collect();
    let dir = tempdir();
    let files = ["server.pem", "server.key", "clients.pem", "token", "north-ca.pem", "password"];
    for file in files.into_iter().chain(["collectd.users"]) {
        std::fs::write(dir.join(file), "x").unwrap();
    }
    let settings = Settings::parse(&all, &dir, ROLES).unwrap_or_else(|reason| panic!("{reason}"));
    assert_eq!(counts(&settings), [1, 9, 1, 0, 1, 2, 3]);
    std::fs::remove_dir_all(dir).unwrap();
}

fn tempdir() -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("topdeck-settings-{:x}", journal::random_id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn errors_have_their_line_and_the_nearest_key() {
    check(
        "data_dir = \"x\"\n[http]\nlisen = [\"127.0.0.1:1\"]\n",
        expect![[r#"
            line 3: unknown key "lisen"; did you mean "listen"?
              | lisen = ["127.0.0.1:1"]
              | ^"#]],
    );
    check(
        "collection_intervall = \"1s\"",
        expect![[r#"
            line 1: unknown key "collection_intervall"; did you mean "collection_interval"?
              | collection_intervall = "1s"
              | ^"#]],
    );
    check(
        "collection_interval = 10",
        expect![[r#"
            line 1: 10: expected a duration in quotes, as in "10s"
              | collection_interval = 10
              |                       ^"#]],
    );
    check(
        "collection_interval = \"10\"",
        expect![[r#"
            line 1: "10": expected a duration in ns, us, ms, s, min, h, d, w or y, such as 30d or 1h30m
              | collection_interval = "10"
              |                       ^"#]],
    );
    check(
        "collection_interval = \"2min\"",
        expect![[r#"
        line 1: collection_interval is 120s, must be 1s to 60s
          | collection_interval = "2min"
          | ^"#]],
    );
    check(
        "durability = \"never\"",
        expect![[r#"
            line 1: "never": expected "disk", "process" or "memory"
              | durability = "never"
              |              ^"#]],
    );
    check(
        "[journal]\nmax_size = \"10 GB\"",
        expect![[r#"
            line 2: "10 GB": expected a size in B, KiB, MiB, GiB or TiB, as in 16MiB
              | max_size = "10 GB"
              |            ^"#]],
    );
    check(
        "[http]\nlisten = [\"localhost\"]",
        expect![[r#"
            line 2: expected an IP address and a port, as in "127.0.0.1:7717"
              | listen = ["localhost"]
              |           ^"#]],
    );
    check(
        "[store]\nretention = [\"base\"]",
        expect![[r#"
            line 2: "base": expected a resolution (base, 1m, 5m, 1h or 1d), a duration (such as 30d, 1y or forever) and optionally a selector, as in 'base 30d' or '5m 1y {host="x"}'
              | retention = ["base"]
              |              ^"#]],
    );
    check(
        "data_dir = ",
        expect![[r#"
            line 1: string values must be quoted, expected literal string
              | data_dir = 
              |            ^"#]],
    );
    check(
        "[[remote]]\nname = \"a\"",
        expect![[r#"
        line 1: missing key "url"; add it to this table
          | [[remote]]
          | ^"#]],
    );
}

/// `invalid type: string "127.0.0.1:7717", expected a sequence` said nothing to do.
#[test]
fn one_address_without_brackets_is_told_how_to_write_a_list() {
    check(
        "[http]\nlisten = \"127.0.0.1:7717\"\n[store]\nretention = 7\n",
        expect![[r#"
            line 2: found the text "127.0.0.1:7717", expected a list, as in ["127.0.0.1:7717"]
              | listen = "127.0.0.1:7717"
              |          ^
            line 4: found integer `7`, expected a list in brackets
              | retention = 7
              |             ^"#]],
    );
}

#[test]
fn type_errors_of_all_tables_are_reported_at_once() {
    check(
        "[host]\nprocfs = 1\n[statsd]\nudb = []\n[jurnal]\n[[remote]]\nname = 7\n",
        expect![[r#"
            line 2: invalid type: integer `1`, expected a boolean
              | procfs = 1
              |          ^
            line 4: unknown key "udb"; did you mean "udp"?
              | udb = []
              | ^
            line 5: unknown key "jurnal"; did you mean "journal"?
              | [jurnal]
              |  ^
            line 6: missing key "url"; add it to this table
              | [[remote]]
              | ^
            line 7: invalid type: integer `7`, expected a string
              | name = 7
              |        ^"#]],
    );
}

#[test]
fn tables_in_other_forms_have_their_lines_too() {
    check(
        "collection_interval = \"10s\"\nhost.shm_scrape_interval = \"60s\"\nstatsd = { udp = [] }\n\
         check = [{ name = \"a\", tcp = \"x\" },\n  { name = \"a\", http = \"http://b\" }]\n",
        expect![[r#"
            line 2: shm_scrape_interval is 60s, must be 100ms to 30s
              | host.shm_scrape_interval = "60s"
              |      ^
            line 4: tcp is "x", must be host:port
              | check = [{ name = "a", tcp = "x" },
              |                        ^
            line 5: duplicate [[check]] name "a"
              |   { name = "a", http = "http://b" }]
              |     ^"#]],
    );
}

#[test]
fn keys_of_checks_are_those_of_their_kinds() {
    check(
        "[[check]]\nname = \"a\"\nhtpp = \"http://b\"\n",
        expect![[r#"
            line 3: unknown key "htpp"; did you mean "http"?
              | htpp = "http://b"
              | ^"#]],
    );
    check(
        "[[check]]\nname = \"a\"\nhttp = \"http://b\"\nstatus = \"ok\"\n",
        expect![[r#"
            line 4: invalid statuses "ok": expected 200, 200-299 or 200,301-302
              | status = "ok"
              |          ^"#]],
    );
    // A key of another kind.
    check(
        "[[check]]\nname = \"a\"\nping = \"b\"\nstatus = \"200\"\n",
        expect![[r#"
        line 4: unknown key "status"; known keys: name, interval, timeout, labels, ca, ping, payload_bytes
          | status = "200"
          | ^"#]],
    );
    check(
        "[[check]]\nhttp = \"http://b\"\n[[check]]\nname = \"b\"\ntcp = \"a:1\"\nhttp = \
         \"http://b\"\n",
        expect![[r#"
            line 1: missing key "name"; add it to this table
              | [[check]]
              | ^
            line 4: a check has exactly one of http, tcp, dns, ping, ntp, json, grpc, sql, websocket, snmp, command
              | name = "b"
              | ^"#]],
    );
    check(
        "[[check]]\nname = \"b\"\ntcp = \"a:1\"\nhttp = \"http://b\"\n",
        expect![[r#"
            line 2: a check has exactly one of http, tcp, dns, ping, ntp, json, grpc, sql, websocket, snmp, command
              | name = "b"
              | ^"#]],
    );
}

#[test]
fn an_address_without_a_host_or_with_a_path_is_not_host_and_port() {
    for address in [":80", "a/b:80", "a?b:80", "a b:80", "a:", "a:0", "::1:80"] {
        let text = format!("[[check]]\nname = \"a\"\ntcp = {address:?}\n");
        let problems = Settings::parse(&text, Path::new("/etc/topdeck"), ROLES).unwrap_err();
        let expected = format!("line 3: tcp is {address:?}, must be host:port\n");
        assert!(problems.to_string().starts_with(&expected), "{problems}");
    }
    for address in ["a:80", "127.0.0.1:80", "[::1]:80"] {
        parse(&format!("[[check]]\nname = \"a\"\ntcp = {address:?}\n"));
    }
}

#[test]
fn all_roles_use_the_host_name() {
    assert_eq!(parse("[host]\nname = \"web-1\"").host_name(), "web-1");
    let system = rustix::system::uname();
    assert_eq!(parse("").host_name(), system.nodename().to_string_lossy());
}

#[test]
fn pins_of_remotes_are_checked() {
    check(
        "[[remote]]\nname = \"a\"\nurl = \"https://b\"\npinned_public_keys = [\"sha256//AA\"]\n",
        expect![[r#"
            line 4: invalid pin "sha256//AA": expected sha256// and the Base64 of 32 bytes, as for curl's --pinnedpubkey
              | pinned_public_keys = ["sha256//AA"]
              | ^"#]],
    );
}

#[test]
fn all_errors_are_reported_at_once() {
    check(
        "[[remote]]\nname = \"a\"\nurl = \"a:1\"\n[[remote]]\nname = \"a\"\nurl = \
         \"http://b\"\ntoken_file = \"none\"\n[[check]]\nname = \"c\"\n[[check]]\nname = \
         \"d\"\ntcp = \"x\"\n[http]\nlisten = [\"127.0.0.1:9\", \"127.0.0.1:9\"]\n[host]\nname = \
         \"\"\nhiccup_interval = \"60s\"\nshm_scrape_interval = \"60s\"\n",
        expect![[r#"
            line 3: url is "a:1", must begin with http:// or https:// and a host
              | url = "a:1"
              | ^
            line 5: duplicate [[remote]] name "a"
              | name = "a"
              | ^
            line 7: token_file: cannot read /etc/topdeck/none: No such file or directory (os error 2)
              | token_file = "none"
              | ^
            line 9: a check has exactly one of http, tcp, dns, ping, ntp, json, grpc, sql, websocket, snmp, command
              | name = "c"
              | ^
            line 12: tcp is "x", must be host:port
              | tcp = "x"
              | ^
            line 14: listen address 127.0.0.1:9 is used twice, first in listen of [http]
              | listen = ["127.0.0.1:9", "127.0.0.1:9"]
              | ^
            line 16: name has 0 bytes, must have 1 to 255
              | name = ""
              | ^
            line 17: hiccup_interval is 60s, must be 100µs to 10s
              | hiccup_interval = "60s"
              | ^
            line 18: shm_scrape_interval is 60s, must be 100ms to 30s
              | shm_scrape_interval = "60s"
              | ^"#]],
    );
}

#[test]
fn a_file_with_errors_of_every_phase_is_reported_in_one_run() {
    check(
        "duribility = \"disk\"\ncollection_interval = \"10x\"\n[http]\nlisten = \
         [\"127.0.0.1:99999\", \"127.0.0.1:1\", \"host\"]\n[http.limits]\nmax_connections = \
         \"lots\"\nidle_timeout = 5\n[store]\nretention = [\"30d\"]\n[host]\nhiccup_interval = \
         \"60s\"\nprocfs = 1\n[[scrape]]\nurl = \"ftp://x\"\ninterval = \"1ms\"\n[[check]]\nname = \
         \"c\"\ntcp = \"nohost\"\nlabels = { phase = \"x\" }\n[[remote]]\nname = 7\nurl = \
         \"http://h:99999\"\ntoken_file = \"none\"\n",
        expect![[r#"
            line 1: unknown key "duribility"; did you mean "durability"?
              | duribility = "disk"
              | ^
            line 2: "10x": expected a duration in ns, us, ms, s, min, h, d, w or y, such as 30d or 1h30m
              | collection_interval = "10x"
              |                       ^
            line 4: expected an IP address and a port, as in "127.0.0.1:7717"
              | listen = ["127.0.0.1:99999", "127.0.0.1:1", "host"]
              |           ^
            line 4: expected an IP address and a port, as in "127.0.0.1:7717"
              | listen = ["127.0.0.1:99999", "127.0.0.1:1", "host"]
              |                                             ^
            line 6: invalid type: string "lots", expected a whole number
              | max_connections = "lots"
              |                   ^
            line 7: 5: expected a duration in quotes, as in "10s"
              | idle_timeout = 5
              |                ^
            line 9: "30d": expected a resolution (base, 1m, 5m, 1h or 1d), a duration (such as 30d, 1y or forever) and optionally a selector, as in 'base 30d' or '5m 1y {host="x"}'
              | retention = ["30d"]
              |              ^
            line 11: hiccup_interval is 60s, must be 100µs to 10s
              | hiccup_interval = "60s"
              | ^
            line 12: invalid type: integer `1`, expected a boolean
              | procfs = 1
              |          ^
            line 13: missing key "name"; add it to this table
              | [[scrape]]
              | ^
            line 14: url is "ftp://x", must begin with http:// or https:// and a host
              | url = "ftp://x"
              | ^
            line 15: interval is 1ms, must be 100ms to 86400s
              | interval = "1ms"
              | ^
            line 18: tcp is "nohost", must be host:port
              | tcp = "nohost"
              | ^
            line 19: label "phase": the check itself sets it; rename it
              | labels = { phase = "x" }
              | ^
            line 21: invalid type: integer `7`, expected a string
              | name = 7
              |        ^
            line 22: url: invalid URL "http://h:99999": port is not a number from 0 to 65535; expected https://host:port/path
              | url = "http://h:99999"
              | ^
            line 23: token_file: cannot read /etc/topdeck/none: No such file or directory (os error 2)
              | token_file = "none"
              | ^"#]],
    );
}

#[test]
fn a_value_that_cannot_be_read_has_no_consequences_elsewhere() {
    // Each file has one error: keys that need the unread value are not reported.
    for text in [
        "[[remote]]\nname = 7\nurl = \"http://b\"",
        "[[remote]]\nname = \"a\"\nulr = \"http://b\"",
        "[[remote]]\nname = \"a\"\nurl = \"http://b\"\ncertificate = 7\nkey = \"/dev/null\"",
        "[[check]]\nname = \"a\"\ntcp = 7",
        "[[check]]\nname = \"a\"\nhtpp = \"http://b\"",
        "[[check]]\nname = [\"a\"]\ntcp = \"b:1\"",
        "[http.tls]\ncertificate = 7\nkey = \"/dev/null\"",
        "data_dir = {}",
        "check = [7]",
        "host = 7",
    ] {
        let problems = Settings::parse(text, Path::new("/etc/topdeck"), ROLES).unwrap_err();
        let text_of_problems = problems.to_string();
        let lines = text_of_problems.lines().filter(|line| line.starts_with("line "));
        assert_eq!(lines.count(), 1, "{text}\n{problems}");
    }
}

#[test]
fn errors_of_syntax_do_not_hide_others() {
    check(
        "data_dir = \ndurability = \"never\"\n[[remote]]\nname = abc\nurl = \"ftp://b\"\n",
        expect![[r#"
            line 1: string values must be quoted, expected literal string
              | data_dir = 
              |            ^
            line 2: "never": expected "disk", "process" or "memory"
              | durability = "never"
              |              ^
            line 4: string values must be quoted, expected literal string
              | name = abc
              |        ^
            line 5: url is "ftp://b", must begin with http:// or https:// and a host
              | url = "ftp://b"
              | ^"#]],
    );
    // Keys below a malformed header belong to no known table.
    check(
        "[http\nlisten = []\n[hots]\n",
        expect![[r#"
        line 1: unclosed table, expected `]`
          | [http
          |      ^"#]],
    );
}

#[test]
fn log_and_absence_are_settings() {
    let text = "[log]\nformat = \"json\"\n[absence]\nmin_duration = \"2min\"\nintervals = 3\n";
    let node = parse(text).node;
    assert_eq!(node.log.format, LogFormat::Json);
    let absence = node.intake().absence;
    assert_eq!((absence.min.as_secs(), absence.factor, absence.is_enabled), (120, 3, true));
    check(
        "[absence]\nmin_duration = \"1s\"\nintervals = 0\n",
        expect![[r#"
            line 2: min_duration is 1s, must be at least 2s
              | min_duration = "1s"
              | ^
            line 3: intervals is 0, must be at least 1
              | intervals = 0
              | ^"#]],
    );
}

#[test]
fn exemplars_are_settings() {
    let text = "[exemplars]\nenabled = false\nretention = \"10min\"\nmax_memory = \"1MiB\"\n\
                attributes = [\"route\"]\nhash_attributes = [\"user\"]\n\
                trace_url = \"https://t/{trace_id}\"\n";
    let node = parse(text).node;
    let exemplars = store::ExemplarOptions { bytes_max: 1 << 20, retention: 10 * store::MINUTE };
    assert_eq!(node.exemplars(), exemplars);
    let policy = node.intake().exemplars;
    assert!(!policy.is_enabled && policy.hashed_attributes == ["user"]);
    assert_eq!(policy.attributes, Some(vec!["route".to_owned()]));
    let url = node.query_service(Path::new("/data")).trace_url;
    assert_eq!(url.as_deref(), Some("https://t/{trace_id}"));
    check(
        "[exemplars]\nretention = \"30s\"\nmax_memory = \"1GiB\"\ntrace_url = \"t/{trace_id}\"\n",
        expect![[r#"
            line 2: retention is 30s, must be 1min to 7d
              | retention = "30s"
              | ^
            line 3: max_memory is 1073741824 bytes, must be at most 512MiB
              | max_memory = "1GiB"
              | ^
            line 4: trace_url is "t/{trace_id}", must be an http or https URL
              | trace_url = "t/{trace_id}"
              | ^"#]],
    );
}

#[test]
fn traces_are_settings() {
    let text = "[traces]\nenabled = false\nbuffer_time = \"5s\"\nmax_buffer = \"1MiB\"\n\
                max_trace_size = \"2MiB\"\nretention = \"2h\"\nmax_size = \"3MiB\"\n";
    let node = parse(text).node;
    let traces = store::TraceOptions { bytes_max: 3 << 20, retention: 2 * store::HOUR };
    assert_eq!(node.traces(), traces);
    let policy = intake::TracePolicy {
        is_enabled: false,
        buffer_time: Duration::from_secs(5),
        buffer_bytes_max: 1 << 20,
        trace_bytes_max: 2 << 20,
    };
    assert_eq!(node.intake().traces, policy);
    check(
        "[traces]\nretention = \"30min\"\nmax_trace_size = \"1GiB\"\n",
        expect![[r#"
            line 2: retention is 1800s, must be at least 1h
              | retention = "30min"
              | ^
            line 3: max_trace_size is 1073741824 bytes, must be at most 8MiB
              | max_trace_size = "1GiB"
              | ^"#]],
    );
}

//! `topdeck import --server`: retries, and imports that were interrupted.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::environment::wait_until;
use crate::scripted_relay::RelayAction::{Cut, Forward, Hold, LoseResponse, Respond};
use crate::scripted_relay::{RelayAction, ScriptedRelay};
use crate::serve::server_process::ServerProcess;
use crate::store::{run, run_ok};
use crate::test_dir::TestDir;
use crate::{TextRun, root};

/// Texts of a file: 12 MB, which are at least four requests.
const TEXTS: usize = 1200;
const TEXT_BYTES: usize = 10_000;

/// A server, a relay in front of it, and a file to import.
struct ImportFixture {
    dir: TestDir,
    server: ServerProcess,
    relay: ScriptedRelay,
}

impl ImportFixture {
    fn new(script: &[RelayAction]) -> ImportFixture {
        ImportFixture::with_settings("", script)
    }

    fn with_settings(settings: &str, script: &[RelayAction]) -> ImportFixture {
        let dir = TestDir::new();
        let mut server = ServerProcess::new("serve", settings);
        server.start();
        let relay = ScriptedRelay::new(server.port, script);
        let it = ImportFixture { dir, server, relay };
        fs::write(it.file(), texts(TEXTS)).unwrap();
        it
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("texts.frames")
    }

    /// Starts `topdeck import` with this port and arguments.
    fn spawn(&self, port: u16, arguments: &[&str], input: Stdio) -> Child {
        Command::new(env!("CARGO_BIN_EXE_topdeck"))
            .args(["import", "--server", &format!("http://127.0.0.1:{port}")])
            .args(arguments)
            .current_dir(self.dir.path())
            .env_clear()
            .env("HOME", self.dir.path())
            .env("TMPDIR", self.dir.path())
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts")
    }

    /// Imports through the relay.
    fn run(&self, arguments: &[&str]) -> TextRun {
        finish(self.spawn(self.relay.port, arguments, Stdio::null()))
    }

    /// Stops the server and compares its texts with those of the file.
    #[track_caller]
    fn check_stored(mut self) {
        self.server.stop();
        let store = self.server.dir.path("data/store");
        let found = run_ok(&self.dir, &format!("store export {} note", store.display()));
        let expected = texts(TEXTS);
        // Not assert_eq: it would print 24 MB.
        assert_eq!(found.lines().count(), TEXTS);
        assert!(found == expected, "the texts differ");
    }
}

fn texts(count: usize) -> String {
    let line = |n: usize| {
        let (ns, text) =
            (1_794_182_400_000_000_000 + n, format!("{n:010}").repeat(TEXT_BYTES / 10));
        format!(
            "{{\"metric\":\"note\",\"labels\":{{}},\"start_ns\":{ns},\"end_ns\":{ns},\
             \"kind\":\"text\",\"text\":\"{text}\"}}\n"
        )
    };
    (0..count).map(line).collect()
}

fn finish(child: Child) -> TextRun {
    let output = child.wait_with_output().expect("the binary ends");
    TextRun {
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        status: output.status.code().expect("no signal"),
    }
}

#[test]
fn a_busy_server_and_lost_connections_do_not_end_an_import() {
    let busy = Respond("503 Service Unavailable\r\nRetry-After: 1");
    let full = Respond("429 Too Many Requests\r\nRetry-After: 0");
    let it = ImportFixture::new(&[full, Forward, busy, full, Forward, LoseResponse, Cut]);
    let found = it.run(&["texts.frames"]);
    assert_eq!(found.status, 0, "{}", found.stderr);
    assert_eq!(it.relay.unused_actions(), 0);
    assert!(
        found.stdout.starts_with("texts.frames: 1,200 texts in 1 series, "),
        "{}",
        found.stdout
    );
    // Only what lasts is reported.
    let lines: Vec<&str> = found.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", found.stderr);
    assert!(lines[0].ends_with("; retrying for 10 min") && lines[1].ends_with(": continuing"));
    it.check_stored();
}

#[test]
fn an_import_whose_client_was_killed_continues_where_it_stopped() {
    let it = ImportFixture::new(&[Forward, Forward, Hold]);
    let mut child = it.spawn(it.relay.port, &["texts.frames"], Stdio::null());
    it.relay.wait_held();
    child.kill().unwrap();
    child.wait().unwrap();
    it.relay.release();
    let content = fs::read(it.file()).unwrap();
    // A change of the file would count what is stored twice.
    fs::write(it.file(), texts(TEXTS + 1)).unwrap();
    let found = it.run(&["texts.frames"]);
    assert_eq!((found.status, found.stdout.as_str()), (1, ""));
    let expected = "cannot continue the import of texts.frames: the file has grown since it was \
                    interrupted (";
    assert!(found.stderr.contains(expected), "{}", found.stderr);
    let remedy = format!("(head -c {} texts.frames | topdeck import … -)", content.len());
    assert!(found.stderr.contains(&remedy), "{}", found.stderr);
    fs::write(it.file(), texts(TEXTS / 2)).unwrap();
    let found = it.run(&["texts.frames"]);
    assert!(found.status == 1 && found.stderr.contains("was changed since"), "{}", found.stderr);
    fs::write(it.file(), &content).unwrap();
    let found = it.run(&["texts.frames", "--json"]);
    assert_eq!(found.status, 0, "{}", found.stderr);
    let document = crate::store::json(&found.stdout);
    let file = &document["files"][0];
    let (known, all) = (file["duplicate_batches"].as_u64(), file["batches"].as_u64());
    assert!(known > Some(0) && known < all, "{document}");
    let again = it.run(&["texts.frames"]);
    assert_eq!(again.stdout, "texts.frames: already in the store; nothing is counted twice\n");
    it.check_stored();
}

#[test]
fn an_import_outlives_a_server_that_was_killed() {
    let mut it = ImportFixture::new(&[Forward, Forward, Hold]);
    let child = it.spawn(it.relay.port, &["texts.frames"], Stdio::null());
    it.relay.wait_held();
    it.server.kill();
    it.relay.release();
    it.server.start();
    let found = finish(child);
    assert_eq!(found.status, 0, "{}", found.stderr);
    it.check_stored();
}

#[test]
fn an_import_from_a_pipe_continues_with_the_same_bytes() {
    let it = ImportFixture::new(&[Forward, Forward, Respond("503 Service Unavailable")]);
    let arguments = ["--retry-for", "0s", "-"];
    let found = finish(it.spawn(it.relay.port, &arguments, File::open(it.file()).unwrap().into()));
    assert_eq!((found.status, found.stdout.as_str()), (1, ""));
    let expected = "topdeck: standard input: import incomplete; a pipe cannot be read again: to \
                    continue, import the same bytes again: ";
    assert!(found.stderr.starts_with(expected), "{}", found.stderr);
    assert!(found.stderr.ends_with("; not retried (--retry-for)\n"), "{}", found.stderr);
    let found = finish(it.spawn(it.relay.port, &arguments, File::open(it.file()).unwrap().into()));
    assert!(
        found.status == 0 && found.stdout.contains(" already in the store"),
        "{}",
        found.stderr
    );
    it.check_stored();
}

#[test]
fn a_block_of_prometheus_is_sent_again_to_a_busy_server() {
    let full = Respond("429 Too Many Requests\r\nRetry-After: 1");
    let it = ImportFixture::new(&[Forward, full, LoseResponse]);
    let data = root().join("testdata/tsdb/data");
    let arguments = ["--format", "prometheus-tsdb", data.to_str().unwrap()];
    let found = it.run(&arguments);
    assert_eq!(found.status, 0, "{}", found.stderr);
    assert!(found.stdout.contains(": 150 histograms with "), "{}", found.stdout);
    assert!(it.run(&arguments).stdout.contains("already in the store"));
}

#[test]
fn a_directory_is_not_imported_as_a_file() {
    let dir = TestDir::new();
    fs::create_dir(dir.path().join("d")).unwrap();
    let found = crate::store::run(&dir, "import s --create --metric a d");
    let expected = "topdeck: cannot import d: it is a directory; name the files in it, or use \
                    --format prometheus-tsdb for the data directory of a Prometheus\n";
    assert_eq!((found.status, found.stderr.as_str()), (1, expected));
}

/// A large import does not fill the memory of the server either.
#[test]
fn a_server_lets_an_import_wait_until_it_has_written_the_rows_before() {
    let it = ImportFixture::with_settings("[store]\nmax_head_size = \"1MiB\"\n", &[]);
    let found = it.run(&["texts.frames"]);
    assert_eq!((found.status, found.stderr.as_str()), (0, ""));
    let statuses = it.relay.statuses();
    assert!(statuses.len() > 3 && statuses.iter().all(|status| *status == 200), "{statuses:?}");
    it.check_stored();
}

/// The reader does not run ahead of a server that does not respond.
#[test]
fn memory_of_an_import_does_not_grow_with_the_file() {
    let it = ImportFixture::new(&[Forward, Hold]);
    // 60 MB.
    fs::write(it.file(), texts(5 * TEXTS)).unwrap();
    let mut child = it.spawn(it.relay.port, &["texts.frames"], Stdio::null());
    it.relay.wait_held();
    // The second pass blocks on the third request.
    let state = || fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let number = |name: &str| -> u64 {
        let state = state();
        let line = state.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let switches = || number("voluntary_ctxt_switches");
    let mut before = switches();
    wait_until("it waits for the server", || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = switches();
        std::mem::replace(&mut before, now) == now
    });
    let anonymous_kib = number("RssAnon:");
    child.kill().unwrap();
    child.wait().unwrap();
    it.relay.release();
    assert!(anonymous_kib < 40 << 10, "{anonymous_kib} KiB");
}

/// What was older than the retention was imported, and dropped without a word.
#[test]
fn import_of_what_the_retention_would_drop_says_so_and_waits_for_consent() {
    let dir = TestDir::new();
    run_ok(&dir, "store create kept --retention 'base 1d'");
    let rules = ["base", "1m", "5m", "1h", "1d"].map(|of| format!("--retention '{of} 1d'"));
    run_ok(&dir, &format!("store create short {}", rules.join(" ")));
    fs::write(dir.path().join("old.frames"), texts(3)).unwrap();
    // The rollups remain.
    let found = run(&dir, "import kept old.frames");
    assert_eq!(found.status, 0, "{}", found.stderr);
    for expected in
        ["3 of 3 samples", "older than the retention (base 1d)", "1m, 5m, 1h, 1d remain"]
    {
        assert!(found.stderr.contains(expected), "{expected}: {}", found.stderr);
    }
    // Nothing remains.
    let found = run(&dir, "import short old.frames");
    assert_eq!((found.status, &found.stdout[..]), (1, ""), "{}", found.stderr);
    for expected in ["of 3 of them nothing remains", "nothing is imported", "--accept-retention"] {
        assert!(found.stderr.contains(expected), "{expected}: {}", found.stderr);
    }
    let stat = run_ok(&dir, "store stat short --json");
    assert!(stat.contains("\"series\": 0") || stat.contains("\"series\":0"), "{stat}");
    let found = run(&dir, "import short old.frames --accept-retention");
    assert_eq!(found.status, 0, "{}", found.stderr);
    assert!(found.stderr.contains("of 3 of them nothing remains"), "{}", found.stderr);
}

/// The same by a server, whose rules are those of its settings.
#[test]
fn import_into_a_server_is_compared_with_its_retention() {
    let settings =
        "[store]\nretention = [\"base 1d\", \"1m 1d\", \"5m 1d\", \"1h 1d\", \"1d 1d\"]\n";
    let it = ImportFixture::with_settings(settings, &[]);
    let found = it.run(&["texts.frames"]);
    assert_eq!((found.status, &found.stdout[..]), (1, ""), "{}", found.stderr);
    let expected = "texts.frames: 1,200 of 1,200 samples";
    assert!(found.stderr.contains(expected) && found.stderr.contains("--accept-retention"));
    assert_eq!(it.relay.statuses(), [0; 0]);
}

//! A random program: actions on a server, and the expected results of the server and of the
//! commands.

mod comparison;

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::model::{
    COARSE, COUNTER, FINE, ModelCounts, ModelKind, ModelRow, POSITIVE, SeriesModel, coarse,
};
use super::wire::{STATSD, WireRequest, request};
use crate::serve::client::request as send;
use crate::serve::server_process::{ServerProcess, free_port, wait_until};
use crate::topdeck;

pub(super) const SECOND: i64 = 1_000_000_000;
pub(super) const MINUTE: i64 = 60 * SECOND;
const DAY: i64 = 24 * 60 * MINUTE;
/// Number of past days with rows.
const DAYS: i64 = 4;
/// Minimum distance of rows of a series.
const SLOT_NS: i64 = 10 * MINUTE;
/// Number of steps of a program.
const STEPS: usize = 24;
/// From this seed on, senders change the type of a metric and the buckets of classic histograms,
/// and start at different times. Programs with smaller seeds stay as they were when they failed.
pub(super) const FIRST_SEED_OF_CHANGES: u64 = 2_000;

/// The first kinds, without [`ModelKind::Retyped`].
const KINDS_WITHOUT_CHANGES: usize = 9;

/// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014.
pub(super) struct SplitMixRng(pub(super) u64);

impl SplitMixRng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Series sent, and its models.
struct SentSeries {
    model: SeriesModel,
    /// Model without rows that were late for a range with dropped rows: their successors are
    /// relative to the previous row.
    timely: SeriesModel,
    /// Model of a remote that receives everything, and drops and deletes nothing.
    model_without_deletes: SeriesModel,
    /// Slot of the next row.
    slot: i64,
    counts: ModelCounts,
    /// Start of the cumulative counts.
    since: i64,
    /// Schema, as in a row.
    schema: u32,
    requests: Vec<(WireRequest, Vec<ModelRow>)>,
    /// Whether a row was late for a day with dropped rows, or was deleted there.
    may_have_gaps: bool,
}

impl SentSeries {
    /// Whether a late row came for a range with dropped rows: a gap must be reported.
    fn has_untimely(&self, range: &Range<i64>) -> bool {
        let count = |model: &SeriesModel| model.rows_in(std::slice::from_ref(range))[0];
        count(&self.model) != count(&self.timely)
    }
}

struct BlackboxRun {
    rng: SplitMixRng,
    server: ServerProcess,
    /// TCP port of StatsD.
    statsd: u16,
    /// Remote that receives everything the server accepts.
    remote: Option<ServerProcess>,
    begin: i64,
    /// Whether senders change types and buckets.
    has_changes: bool,
    sent: Vec<SentSeries>,
    /// Base rows may have been dropped up to this time.
    dropped: i64,
    snapshots: u32,
    /// Whether retention rules for rollups of one series are used.
    has_rollup_rules: bool,
    /// Steps so far, for the failure message.
    steps: Vec<String>,
}

/// Runs the program of a seed.
pub(super) fn run(seed: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_nanos();
    let now = i64::try_from(now).expect("it is before 2262");
    let begin = now - now.rem_euclid(DAY) - DAYS * DAY;
    let statsd = free_port();
    let mut settings = format!("[statsd]\ntcp = [\"127.0.0.1:{statsd}\"]\n");
    // Every second program has a remote.
    let site = seed.is_multiple_of(2).then(|| {
        let mut site = ServerProcess::new("serve", "");
        site.start();
        let url = format!("http://127.0.0.1:{}", site.port);
        settings += &format!("[[remote]]\nname = \"north\"\nurl = \"{url}\"\n");
        site
    });
    let mut deck = ServerProcess::new("serve", &settings);
    deck.start();
    let sent = |kind| SentSeries {
        model: SeriesModel { kind, rows: Vec::new() },
        timely: SeriesModel { kind, rows: Vec::new() },
        model_without_deletes: SeriesModel { kind, rows: Vec::new() },
        slot: 0,
        counts: ModelCounts::default(),
        since: begin,
        schema: 0,
        requests: Vec::new(),
        may_have_gaps: false,
    };
    let has_changes = seed >= FIRST_SEED_OF_CHANGES;
    let kinds =
        &ModelKind::ALL[..if has_changes { ModelKind::ALL.len() } else { KINDS_WITHOUT_CHANGES }];
    let mut run = BlackboxRun {
        rng: SplitMixRng(seed),
        server: deck,
        statsd,
        remote: site,
        begin,
        has_changes,
        sent: kinds.iter().copied().map(sent).collect(),
        dropped: i64::MIN,
        snapshots: 0,
        // Recorded seeds are of programs without such rules.
        has_rollup_rules: !seed.is_multiple_of(3),
        steps: vec![format!("seed {seed}")],
    };
    if has_changes {
        // Some series start so late that they continue after older rows were dropped.
        for sent in &mut run.sent {
            sent.slot = run.rng.below((DAYS * DAY / SLOT_NS * 3 / 4).cast_unsigned()).cast_signed();
        }
    }
    for _ in 0..STEPS {
        run.step(now);
    }
    run.check_server();
    run.with_store(|_, _| {});
    run.check_server();
    run.check_remote();
}

impl BlackboxRun {
    fn step(&mut self, now: i64) {
        match self.rng.below(24) {
            0..14 => (0..3).for_each(|_| self.send()),
            14 => self.resend(),
            15 => {
                self.steps.push("kill -9".to_owned());
                self.server.kill();
                self.server.start();
            }
            16..19 => {
                self.steps.push("maintain".to_owned());
                self.with_store(|_, store| drop(command(&["store", "maintain", store])));
            }
            19 => self.set_retention(now),
            20 => self.delete(),
            21 => self.restore(),
            _ => self.check_server(),
        }
    }

    /// Stops the server, acts on its store, checks the commands, and restarts the server.
    fn with_store(&mut self, action: impl FnOnce(&mut BlackboxRun, &str)) {
        self.server.stop();
        let store = self.server.dir.path("data/store");
        let store = store.to_str().expect("it is UTF-8").to_owned();
        command(&["store", "flush", &store]);
        action(self, &store);
        self.check_commands(&store);
        self.server.start();
    }

    /// Sends rows of a series: the next ones, or late ones.
    fn send(&mut self) {
        let which = self.rng.below(self.sent.len() as u64) as usize;
        let is_late = self.rng.below(5) == 0;
        let count = if is_late { 1 + self.rng.below(3) } else { 4 + self.rng.below(40) };
        if self.rng.below(3) == 0 {
            let schema = self.rng.below(3) as u32;
            // Cumulative series change their buckets only at a restart.
            if self.sent[which].model.kind != ModelKind::Cumulative {
                self.sent[which].schema = schema;
            }
        }
        if self.rng.below(6) == 0 {
            // Skips slots.
            self.sent[which].slot += 1 + self.rng.below(60).cast_signed();
        }
        let mut rows: Vec<ModelRow> = Vec::new();
        for _ in 0..count {
            let row = self.row(which, is_late);
            rows.extend(row.filter(|row| rows.iter().all(|held| held.end != row.end)));
        }
        if rows.is_empty() {
            return;
        }
        let kind = self.sent[which].model.kind;
        let request = request(kind, &rows);
        self.post(which, &request, &rows);
        self.sent[which].requests.push((request, rows));
    }

    fn row(&mut self, which: usize, is_late: bool) -> Option<ModelRow> {
        let (chance, begin, has_changes) = (&mut self.rng, self.begin, self.has_changes);
        let sent = &mut self.sent[which];
        let kind = sent.model.kind;
        let end = if is_late {
            let slot = chance.below((sent.slot + 1).cast_unsigned()).cast_signed();
            begin + slot * SLOT_NS + (1 + chance.below(9).cast_signed()) * MINUTE
        } else {
            sent.slot += 1 + chance.below(3).cast_signed();
            // Whole minutes, and times close to them.
            let ms = [0, 0, 1, 999, 59_999][chance.below(5) as usize];
            begin + sent.slot * SLOT_NS + ms * 1_000_000
        };
        // StatsD timestamps are whole seconds: the start of an interval.
        let end =
            if kind == ModelKind::Statsd { end - end.rem_euclid(SECOND) + SECOND } else { end };
        if end >= begin + DAYS * DAY || sent.model.has(end) {
            return None;
        }
        let schema = match kind {
            _ if kind.is_native() || kind.is_otlp() && has_changes => sent.schema,
            ModelKind::Retyped => sent.schema.min(COUNTER),
            _ => FINE,
        };
        let row = |start, counts| ModelRow { end, start, counts, schema, is_stale_mark: false };
        if kind.has_stale_marks() && chance.below(30) == 0 {
            return Some(ModelRow { is_stale_mark: true, ..row(end, ModelCounts::default()) });
        }
        let mut counts = ModelCounts::default();
        counts.iter_mut().for_each(|count| *count = chance.below(7));
        counts[0] += 1;
        if !kind.is_histogram() {
            counts[1..].fill(0);
        } else if !kind.is_native() {
            counts[POSITIVE..].fill(0);
        }
        if kind == ModelKind::Delta && schema == COARSE {
            counts = coarse(&counts);
        }
        if !kind.is_cumulative() {
            let span = match kind {
                ModelKind::Delta => 1 + chance.below(600).cast_signed(),
                ModelKind::Statsd => 1,
                _ => 0,
            };
            return Some(row(end - span * SECOND, counts));
        }
        if is_late {
            // As before, or far higher, so that the following row looks like a reset.
            let before = sent.model.last_before(end).filter(|_| chance.below(3) > 0);
            let counts = before.map_or(sent.counts, |before| before.counts);
            let start = before.map_or(sent.since.min(end), |before| before.start);
            let start = if kind == ModelKind::Cumulative { start } else { end };
            let schema = match before {
                Some(before) if kind == ModelKind::Cumulative => before.schema,
                _ => schema,
            };
            return Some(ModelRow { schema, ..row(start, counts) });
        }
        if chance.below(40) == 0 {
            sent.counts = ModelCounts::default();
            sent.since = end - MINUTE;
            if kind == ModelKind::Cumulative && has_changes {
                sent.schema = chance.below(3) as u32;
            }
        }
        let schema = if kind == ModelKind::Cumulative { sent.schema } else { schema };
        if kind == ModelKind::Cumulative && schema == COARSE {
            counts = coarse(&counts);
        }
        sent.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        let start = if kind == ModelKind::Cumulative { sent.since.min(end) } else { end };
        Some(ModelRow { schema, ..row(start, sent.counts) })
    }

    fn resend(&mut self) {
        let which = self.rng.below(self.sent.len() as u64) as usize;
        let sent = &self.sent[which];
        if sent.requests.is_empty() {
            return;
        }
        let at = self.rng.below(sent.requests.len() as u64) as usize;
        let (request, rows) = sent.requests[at].clone();
        // A gauge histogram that is sent again after rows were dropped is a new one.
        let is_dropped = rows.iter().any(|row| row.end <= self.dropped);
        if sent.model.kind == ModelKind::Points && is_dropped {
            return;
        }
        self.steps.push("again".to_owned());
        self.post(which, &request, &rows);
    }

    #[track_caller]
    fn post(&mut self, which: usize, request: &WireRequest, rows: &[ModelRow]) {
        let kind = self.sent[which].model.kind;
        let times = rows.iter().map(|row| self.at(row.end)).collect::<Vec<_>>();
        self.steps.push(format!("{kind:?} to {}", times.join(" ")));
        if request.path == STATSD {
            self.send_statsd(&request.body, rows.len() as u64);
        } else {
            let (path, headers) = (request.path, &request.headers);
            let answer = send(self.server.port, "POST", path, headers, &request.body);
            let answer = answer.unwrap_or_else(|error| panic!("{error}: {}", self.trace()));
            assert!(matches!(answer.status, 200 | 204), "{}: {}", answer.text(), self.trace());
        }
        // Late rows of a day with dropped rows are not in a rollup.
        let dropped = self.dropped_days_end();
        let sent = &mut self.sent[which];
        sent.may_have_gaps |= rows.iter().any(|row| row.end <= dropped);
        let is_point = kind == ModelKind::Points;
        let in_time = |row: &&ModelRow| row.end > dropped;
        let timely: Vec<ModelRow> = rows.iter().filter(in_time).copied().collect();
        for (model, rows) in [
            (&mut sent.model, rows),
            (&mut sent.timely, &timely[..]),
            (&mut sent.model_without_deletes, rows),
        ] {
            let new = rows.iter().filter(|row| !is_point || !model.has(row.end));
            let new: Vec<ModelRow> = new.copied().collect();
            model.rows.extend(new);
        }
    }

    /// Queries the remote instead of the server, after it received everything.
    #[track_caller]
    fn check_remote(&mut self) {
        let Some(site) = self.remote.take() else { return };
        self.steps.push("at the site".to_owned());
        wait_until("the site has everything", || {
            self.server.get("/v1/status").json()["remotes"][0]["lag"] == 0
        });
        self.server = site;
        self.dropped = i64::MIN;
        for sent in &mut self.sent {
            sent.model = sent.model_without_deletes.clone();
            sent.timely = sent.model_without_deletes.clone();
            sent.may_have_gaps = false;
        }
        self.check_server();
    }

    /// StatsD lines are not acknowledged: they are stored when their values are counted as
    /// accepted.
    #[track_caller]
    fn send_statsd(&self, lines: &[u8], values: u64) {
        let taken = || -> u64 {
            let metrics = self.server.get("/metrics").text();
            let of = |line: &&str| {
                line.starts_with("topdeck_listen_values_total{")
                    && line.contains("source=\"statsd\"")
                    && line.contains("outcome=\"accepted\"")
            };
            let line = metrics.lines().find(of);
            line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
        };
        let before = taken();
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.statsd)).expect("it listens");
        stream.write_all(lines).expect("it is read");
        drop(stream);
        wait_until("all values of StatsD are taken", || taken() >= before + values);
    }

    /// Changes the retention rules: for base rows, for rollups of a series, or for both. Daily
    /// rollups are kept.
    fn set_retention(&mut self, now: i64) {
        let hours = 12 + self.rng.below(72).cast_signed();
        let mut rules = vec![format!("base {hours}h")];
        if self.has_rollup_rules {
            let which = self.rng.below(self.sent.len() as u64) as usize;
            let name = self.sent[which].model.kind.name();
            let hours = 1 + self.rng.below(72);
            let resolutions = ["1m", "5m", "1h"];
            let first = self.rng.below(resolutions.len() as u64) as usize;
            let last = first + self.rng.below((resolutions.len() - first) as u64) as usize;
            let of = |resolution: &&str| format!("{resolution} {hours}h {name}");
            rules.extend(resolutions[first..=last].iter().map(of));
            if self.rng.below(4) == 0 {
                rules.remove(0);
            }
        }
        self.steps.push(format!("keep {}", rules.join(", ")));
        self.with_store(|run, store| {
            let rules = rules.iter().map(String::as_str);
            command(
                &["store", "retention", store].into_iter().chain(rules.clone()).collect::<Vec<_>>(),
            );
            command(&["store", "maintain", store]);
            if rules.clone().any(|rule| rule.starts_with("base")) {
                run.dropped = run.dropped.max(now - hours * 60 * MINUTE);
            }
        });
        self.check_server();
    }

    /// Deletes all rows of a series in a day.
    fn delete(&mut self) {
        let which = self.rng.below(self.sent.len() as u64) as usize;
        let day = self.begin + self.rng.below(DAYS as u64).cast_signed() * DAY;
        let range = day..day + DAY;
        let name = self.sent[which].model.kind.name();
        if self.sent[which].requests.is_empty() {
            return;
        }
        self.steps.push(format!("delete {name} of day {}", (day - self.begin) / DAY));
        self.with_store(|run, store| {
            let (from, to) = (time(range.start), time(range.end));
            let arguments = ["store", "delete", store, name, "--from", &from, "--to", &to, "--yes"];
            let deleted = topdeck(&arguments, b"");
            let is_gone = deleted.stderr.contains("matches no series");
            let is_right = deleted.status == 0 || is_gone && run.may_be_gone(&run.sent[which]);
            assert!(is_right, "store delete: {}\n{}", deleted.all(), run.trace());
            run.sent[which].model.delete(&range);
            run.sent[which].timely.delete(&range);
            run.sent[which].may_have_gaps |= range.start <= run.dropped + DAY;
        });
    }

    /// Restores a snapshot of the running server and checks the commands on it.
    fn restore(&mut self) {
        self.steps.push("snapshot".to_owned());
        let name = format!("s{}", self.snapshots);
        self.snapshots += 1;
        let path = format!("/v1/snapshots?name={name}");
        let answer = send(self.server.port, "POST", &path, &[], b"").expect("it answers");
        assert_eq!(answer.status / 100, 2, "{}: {}", answer.text(), self.trace());
        let snapshot = self.server.dir.path(&format!("data/snapshots/{name}"));
        let restored = self.server.dir.path(&format!("restored-{name}"));
        let text = |path: &std::path::Path| path.to_str().expect("it is UTF-8").to_owned();
        command(&["restore", &text(&snapshot), &text(&restored)]);
        self.check_commands(&text(&restored.join("store")));
        std::fs::remove_dir_all(restored).expect("it can be removed");
    }

    #[track_caller]
    fn get_json(&self, path: &str) -> Value {
        let answer = self.server.get(path);
        assert_eq!(answer.status, 200, "{path}: {}: {}", answer.text(), self.trace());
        answer.json()
    }

    /// A time as day, hour and minute of the program.
    fn at(&self, time: i64) -> String {
        let since = time - self.begin;
        let (day, rest) = (since.div_euclid(DAY), since.rem_euclid(DAY));
        let (minutes, ns) = (rest / MINUTE, rest % MINUTE);
        let ms = match ns {
            0 => String::new(),
            ns => format!("+{}ms", ns as f64 / 1e6),
        };
        format!("{day}d{:02}:{:02}{ms}", minutes / 60, minutes % 60)
    }

    fn trace(&self) -> String {
        self.steps.join("\n")
    }
}

/// Runs a command that must succeed; returns its output.
#[track_caller]
pub(super) fn command(arguments: &[&str]) -> String {
    let run = topdeck(arguments, b"");
    assert!(matches!(run.status, 0 | 3), "topdeck {}: {}", arguments.join(" "), run.all());
    run.stdout
}

/// Time in whole seconds as RFC 3339.
fn time(ns: i64) -> String {
    let (days, second) = (ns.div_euclid(DAY), ns.rem_euclid(DAY) / SECOND);
    // Howard Hinnant, "chrono-compatible low-level date algorithms": civil_from_days, from 1970 on.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

pub(super) fn percent_encode(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(one).collect()
}

//! Durable acknowledgements: each append waits until its message survives a power failure.

use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use anyhow::Result;

use crate::Effort;
use crate::clock::wall_time;
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples};

use super::append::named_median;
use super::cost::{DiskDevice, flush_page_cache};
use super::messages::{Messages, SIZE};
use super::{ContenderTurns, PROMISES, rounds, run_turns, scratch, topdeck};

const PRODUCERS: [usize; 3] = [1, 64, 256];
const TIME: Duration = Duration::from_secs(1);
const TIME_QUICK: Duration = Duration::from_millis(200);
/// Number of different messages, which producers use in turn.
const MESSAGES: usize = 100_000;

const METHOD: &str = "Each producer is a thread that appends one message of 100 bytes and waits \
                      for its durable acknowledgement, in a loop, for one second per cell. \
                      Latencies cover all appends of the cell; median, p99 and maximum are \
                      computed per round, and the table shows their median over the rounds \
                      (min–max). “Device” is the number of bytes that the block device wrote \
                      during the cell, per byte of message; it includes writes of other \
                      programs.\n\nIn topdeck, the first waiting producer calls fdatasync for \
                      all waiting ones (group commit), after a short delay for producers that \
                      are about to append. In raft-engine waiting producers share one fdatasync, \
                      and each producer writes to its own region. fjall calls fdatasync per \
                      commit, serially. **Chronicle Queue is not included**: its appender has a \
                      `sync`, which has not been measured yet.";

/// Statistics of the appends of all producers.
pub(crate) struct AckStats {
    pub(crate) count: usize,
    pub(crate) wall: Duration,
    pub(crate) median_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
    /// Bytes that the device wrote; `None` without a counter.
    pub(crate) device_bytes: Option<u64>,
}

pub(crate) fn run(effort: &Effort) -> ReportSection {
    let mut section = ReportSection {
        name: "journal-durable",
        title: "Journal: durable acknowledgements",
        method: METHOD.to_owned(),
        tables: Vec::new(),
        targets: Vec::new(),
        samples: Vec::new(),
    };
    let messages = Messages::new(MESSAGES);
    let contenders = super::ack_contenders();
    let time = if effort.quick { TIME_QUICK } else { TIME };
    let mut cells = Vec::new();
    for producers in PRODUCERS {
        let result = run_turns(
            contenders.iter().map(|one| one.label()).collect(),
            rounds(effort),
            |at| -> Result<AckStats> {
                let dir = scratch::dir()?;
                contenders[at].acknowledge(dir.path(), producers, time, &messages)
            },
        );
        let rows = DurableFigures::new(producers, &result);
        section.tables.push(rows.table(&result));
        section.samples.extend(rows.named_samples());
        cells.push(rows);
    }
    section.method += &format!(
        "\n\nMedians of {} rounds. {PROMISES} File system: {}.",
        rounds(effort),
        super::file_system()
    );
    section.targets = targets(&cells);
    section
}

/// Figures of all contenders for one number of producers.
pub(crate) struct DurableFigures {
    pub(crate) producers: usize,
    pub(crate) per_second: Vec<Samples>,
    median_us: Vec<Samples>,
    p99_us: Vec<Samples>,
    max_us: Vec<Samples>,
    pub(crate) device: Vec<Samples>,
}

impl DurableFigures {
    fn new(producers: usize, turns: &[ContenderTurns<AckStats>]) -> DurableFigures {
        let of = |figure: &dyn Fn(&AckStats) -> Option<f64>| {
            turns.iter().map(|one| one.samples(figure)).collect::<Vec<_>>()
        };
        DurableFigures {
            producers,
            per_second: of(&|one| Some(one.count as f64 / one.wall.as_secs_f64())),
            median_us: of(&|one| Some(one.median_us)),
            p99_us: of(&|one| Some(one.p99_us)),
            max_us: of(&|one| Some(one.max_us)),
            device: of(&|one| Some(one.device_bytes? as f64 / (one.count * SIZE) as f64)),
        }
    }

    fn table(&self, turns: &[ContenderTurns<AckStats>]) -> ReportTable {
        let caption = match self.producers {
            1 => "One producer: median (min–max).".to_owned(),
            many => format!("{many} producers: median (min–max)."),
        };
        let header = ["", "promises", "acks/s", "median µs", "p99 µs", "max µs", "device B/B"];
        let mut table = ReportTable::new(&caption, 2, &header);
        for (at, turns) in turns.iter().enumerate() {
            table.rows.push(turns.row(header.len(), || {
                vec![
                    self.per_second[at].cell(),
                    self.median_us[at].cell(),
                    self.p99_us[at].cell(),
                    self.max_us[at].cell(),
                    match self.device[at].values.is_empty() {
                        true => "not known".to_owned(),
                        false => self.device[at].cell(),
                    },
                ]
            }));
        }
        table
    }

    fn named_samples(&self) -> Vec<(String, Vec<Samples>)> {
        let name = |what: &str| format!("{} producers, {what}", self.producers);
        vec![
            (name("acks/s"), self.per_second.clone()),
            (name("median µs"), self.median_us.clone()),
            (name("p99 µs"), self.p99_us.clone()),
            (name("max µs"), self.max_us.clone()),
            (name("device B/B"), self.device.clone()),
        ]
    }
}

fn targets(cells: &[DurableFigures]) -> Vec<ReportTarget> {
    let mut targets = Vec::new();
    for rows in cells {
        let producers = rows.producers;
        let ours = named_median(&rows.per_second, topdeck::DURABLE_NAME);
        let peers = rows.per_second.iter().filter(|row| row.name != topdeck::DURABLE_NAME);
        let best = peers.max_by(|a, b| a.median().total_cmp(&b.median()));
        if let Some(best) = best {
            let what = format!(
                "journal, durable acks/s, {producers} producers, against the best peer ({})",
                best.name
            );
            targets.push(ReportTarget::at_least(
                &what,
                1.0,
                "× as many",
                ours.map(|ours| ours / best.median()),
            ));
        }
        if producers == 256 {
            let what = "journal, durable acks/s, 256 producers";
            targets.push(ReportTarget::at_least(what, 100_000.0, "acks/s", ours));
        }
        if producers == 64 {
            let what = "journal, device bytes written per byte of message, 64 producers";
            targets.push(ReportTarget::at_most(
                what,
                2.5,
                "B",
                named_median(&rows.device, topdeck::DURABLE_NAME),
            ));
        }
    }
    targets
}

/// Appends a message and returns when it is durable.
pub(crate) type ProducerFn<'a> = Box<dyn FnMut(&[u8]) -> Result<()> + Send + 'a>;

/// Runs the producers of a journal in this process; `connect` prepares each of them before the
/// measurement.
pub(crate) fn run_producers<'a>(
    dir: &Path,
    producers: usize,
    time: Duration,
    messages: &Messages,
    connect: impl Fn(usize) -> Result<ProducerFn<'a>>,
) -> Result<AckStats> {
    let ready: Vec<ProducerFn> = (0..producers).map(connect).collect::<Result<_>>()?;
    let start = Barrier::new(producers + 1);
    flush_page_cache(dir)?;
    let device = DiskDevice::for_dir(dir);
    let before = device.as_ref().and_then(DiskDevice::written_bytes);
    let worked: Vec<ProducerRun> = std::thread::scope(|scope| {
        let start = &start;
        let threads: Vec<_> = ready
            .into_iter()
            .enumerate()
            .map(|(at, producer)| {
                // Producers start far apart in the messages, so that no two append the same message
                // at a time.
                let first = at * (messages.len() / producers);
                scope.spawn(move || {
                    start.wait();
                    produce(producer, time, messages, first)
                })
            })
            .collect();
        start.wait();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<_>>()
    })?;
    let after = device.as_ref().and_then(DiskDevice::written_bytes);
    let began = worked.iter().map(|one| one.started).min().unwrap_or_default();
    let ended = worked.iter().map(|one| one.ended).max().unwrap_or_default();
    let mut latencies_ns: Vec<u64> = worked.into_iter().flat_map(|one| one.latencies_ns).collect();
    latencies_ns.sort_unstable();
    let at = |share: f64| {
        let last = latencies_ns.len().saturating_sub(1);
        latencies_ns
            .get((share * last as f64).round() as usize)
            .map_or(f64::NAN, |&ns| ns as f64 / 1e3)
    };
    Ok(AckStats {
        count: latencies_ns.len(),
        wall: ended - began,
        median_us: at(0.5),
        p99_us: at(0.99),
        max_us: at(1.0),
        device_bytes: after.zip(before).map(|(after, before)| after - before),
    })
}

/// Work of one producer, with its start and end by the clock.
struct ProducerRun {
    started: Duration,
    ended: Duration,
    latencies_ns: Vec<u64>,
}

/// Appends messages one at a time until the deadline.
fn produce(
    mut append: ProducerFn,
    time: Duration,
    messages: &Messages,
    first: usize,
) -> Result<ProducerRun> {
    let mut latencies_ns = Vec::new();
    let began = wall_time();
    let mut before = began;
    while before - began < time {
        append(messages.one(first + latencies_ns.len()))?;
        let now = wall_time();
        latencies_ns.push((now - before).as_nanos() as u64);
        before = now;
    }
    Ok(ProducerRun { started: began, ended: before, latencies_ns })
}

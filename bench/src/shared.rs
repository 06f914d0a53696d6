//! In-process metrics: counters, histograms, timed operations, and the effect of reads on
//! recording.

mod c;
pub(crate) mod child;
mod contenders;
mod disturbance;
mod losses;
mod reading;

use crate::Effort;
use crate::bursts::{BURST, two_processors};
use crate::data::{ValueDistribution, Values};
use crate::record::named_median;
use crate::report::{ReportSection, ReportTarget};
use crate::threads::measure_set;

const METHOD: &str = "Cost: CPU time of one call with one thread and with two, pinned, as in \
                      “Record, two threads on one logical histogram”; each thread records its \
                      own values, and a timed operation is empty. All peers keep their metrics \
                      in private memory, where other processes see them only if the process \
                      exports them; those of topdeck are in shared memory. Handles are retained: \
                      no label lookup is measured. `prometheus` and `measured` have 20 \
                      exponential bounds, as has `prometheus-client`. Losses: threads count, and \
                      the total is compared with the value that a reader sees; in another \
                      process, killed (SIGKILL) while it records, each thread counts its \
                      operations before and after each record. Read: counters of a running \
                      process, looked up by name once, then read repeatedly. System calls are \
                      those of the working threads between a mark before the first operation and \
                      one after the last, from strace.";

const COUNTER: &str = "topdeck shm counter";
const HISTOGRAM: &str = "topdeck shm histogram";
const TIMED: &str = "topdeck shm timer";

shm::metrics! {
    static COUNTED_TOTAL: shm::Counter = "bench_counted_total";
    static TOOK: shm::Histogram = "bench_took", unit "ns";
    static TIMED_OPERATION: shm::Histogram = "bench_timed", unit "ns";
}

pub(crate) fn run(effort: &Effort) -> ReportSection {
    let mut section = ReportSection {
        name: "shm",
        title: "Metrics in shared memory",
        method: METHOD.to_owned(),
        tables: Vec::new(),
        targets: Vec::new(),
        samples: Vec::new(),
    };
    let Some(processors) = two_processors() else {
        section.method += "\n\n**Not measured: only one CPU is available.**";
        return section;
    };
    let values = [1, 2].map(|seed| Values::new(ValueDistribution::Lognormal.values(BURST, seed)));
    let sets = [
        ("counter", contenders::counters()),
        ("histogram, lognormal", contenders::histograms()),
        ("an operation timed and recorded", contenders::timers()),
    ];
    let mut medians = Vec::new();
    for (what, contenders) in sets {
        let rows = measure_set(effort, &values, processors, &contenders);
        section.tables.push(rows.table(what));
        for name in [COUNTER, HISTOGRAM, TIMED] {
            let found = named_median(&rows.alone, name).zip(named_median(&rows.concurrent, name));
            medians.extend(found.map(|found| (name, found)));
        }
        section.samples.push((format!("{what}, alone, ns"), rows.alone));
        section.samples.push((format!("{what}, two threads, ns"), rows.concurrent));
    }
    for (name, limit) in [(COUNTER, 1.0), (HISTOGRAM, 3.0), (TIMED, 25.0)] {
        let of = |pick: fn((f64, f64)) -> f64| {
            medians.iter().find(|one| one.0 == name).map(|one| pick(one.1))
        };
        section.targets.push(ReportTarget::at_most(
            &format!("{name}, 1 thread"),
            limit,
            "ns",
            of(|m| m.0),
        ));
        section.targets.push(ReportTarget::at_most(
            &format!("{name}, 2 threads"),
            limit,
            "ns",
            of(|m| m.1),
        ));
    }
    losses::run(effort, &mut section);
    disturbance::run(effort, &mut section, processors);
    reading::run(effort, &mut section);
    c::abi(effort, &mut section);
    c::pcp(effort, &mut section);
    section
}

fn add_note(section: &mut ReportSection, note: &str) {
    section.method += &format!("\n\n{note}");
}

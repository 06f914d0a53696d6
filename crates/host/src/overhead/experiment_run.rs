//! One run: latencies of the operation next to an observer.

use hist::Histogram;

use render::value_formatter::count;
use render::{table::format_table, time::format_ns};

/// Limits of the columns; a value on a limit belongs to the column above.
pub(crate) const LIMITS_NS: [u64; 6] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
const DECADES: usize = LIMITS_NS.len() + 1;
const QUANTILES: [f64; 4] = [0.5, 0.99, 0.999, 0.9999];
const COLUMNS: usize = DECADES + QUANTILES.len() + 3;

const HEADING: [&str; COLUMNS] = [
    "observer",
    "< 1 us",
    "1-10 us",
    "10-100 us",
    "0.1-1 ms",
    "1-10 ms",
    "10-100 ms",
    ">= 100 ms",
    "p50",
    "p99",
    "p99.9",
    "p99.99",
    "max",
    "rounds",
];

/// Result of one run.
#[derive(Clone, Debug)]
pub(crate) struct ExperimentRun {
    pub(crate) observer: &'static str,
    /// Durations in nanoseconds, with thresholds just below [`LIMITS_NS`].
    pub(crate) times: Histogram,
    /// Number of rounds of the observer.
    pub(crate) rounds: Option<u64>,
}

impl ExperimentRun {
    /// Number of values per column.
    fn decades(&self) -> [u64; DECADES] {
        let mut from = self.times.count();
        let mut decades = [0; DECADES];
        let above = self.times.thresholds().iter().map(|threshold| threshold.above);
        for (decade, above) in decades.iter_mut().zip(above.chain([0])) {
            *decade = from - above;
            from = above;
        }
        decades
    }

    pub(crate) fn quantile_ns(&self, q: f64) -> f64 {
        self.times.quantile(q).map_or(f64::NAN, |bracket| bracket.estimate)
    }

    fn cells(&self) -> [String; COLUMNS] {
        // Without a value above it, a quantile would equal the maximum.
        let quantile = |q: f64| match self.times.count_beyond_quantile(q) {
            0 => "–".to_owned(),
            _ => format_ns(self.quantile_ns(q)),
        };
        let max = self.times.max().map_or(f64::NAN, |bracket| bracket.estimate);
        let mut cells = [self.observer.to_owned()]
            .into_iter()
            .chain(self.decades().map(count))
            .chain(QUANTILES.map(quantile))
            .chain([format_ns(max)])
            .chain([self.rounds.map_or(String::new(), |n| format!("{} x", count(n)))]);
        std::array::from_fn(|_| cells.next().unwrap_or_default())
    }
}

/// Table of an experiment.
pub(crate) fn table_text(rows: &[ExperimentRun]) -> String {
    let heading = HEADING.map(str::to_owned);
    let cells: Vec<_> =
        std::iter::once(heading).chain(rows.iter().map(ExperimentRun::cells)).collect();
    let mut right = [true; COLUMNS];
    right[0] = false;
    format_table(&cells, right)
}

#[cfg(test)]
pub(crate) mod tests {
    use expect_test::expect;
    use hist::Recorder;

    use super::*;

    /// Row with these values and counts.
    pub(crate) fn test_run(
        observer: &'static str,
        times: &[(u64, u64)],
        read: Option<u64>,
    ) -> ExperimentRun {
        let mut recorder = Recorder::new().with_thresholds(&LIMITS_NS.map(|limit| limit - 1));
        times.iter().for_each(|(ns, n)| recorder.record_n(*ns, *n));
        ExperimentRun { observer, times: recorder.snapshot(), rounds: read }
    }

    #[test]
    fn every_value_is_in_one_column_and_bounds_are_exact() {
        let times = LIMITS_NS.map(|limit| [(limit - 1, 1), (limit, 2)]);
        let row = test_run("nothing", times.as_flattened(), None);
        assert_eq!(row.decades(), [1, 3, 3, 3, 3, 3, 2]);
        assert_eq!(row.decades().iter().sum::<u64>(), row.times.count());
    }

    #[test]
    fn a_quantile_is_shown_if_a_value_is_above_it() {
        let has_p9999 = |n: u64| {
            let cells = test_run("nothing", &[(800, n - 1), (5_000, 1)], None).cells();
            let at = HEADING.iter().position(|name| *name == "p99.99").unwrap();
            cells[at] != "–"
        };
        assert_eq!([9_999, 10_000, 10_001].map(has_p9999), [false, true, true]);
    }

    #[test]
    fn the_table_has_all_columns() {
        let rows = [
            test_run("nothing", &[(800, 900_000), (9_000, 8_000), (33_000, 1_054)], None),
            test_run("/proc/net/unix", &[(800, 9_000), (46_000, 7), (3_459_000, 2)], Some(32)),
            test_run("topdeck host", &[(800, 9_000)], Some(1_500)),
        ];
        expect![[r#"
            title
              observer         < 1 us  1-10 us  10-100 us  0.1-1 ms  1-10 ms  10-100 ms  >= 100 ms       p50       p99     p99.9    p99.99       max   rounds
              nothing         900,000    8,000      1,054         0        0          0          0  803.5 ns  806.9 ns  32.80 us  32.98 us  33.00 us
              /proc/net/unix    9,000        0          7         0        2          0          0  803.5 ns  806.8 ns  806.9 ns         –  3.459 ms     32 x
              topdeck host      9,000        0          0         0        0          0          0    800 ns    800 ns    800 ns         –    800 ns  1,500 x
        "#]]
        .assert_eq(&format!("title\n{}", table_text(&rows)));
    }
}

//! Mini heatmap: the last hour of a row in 60 × 24 cells.
//!
//! Minutes are kept as counts on a fixed grid of four bins per octave (factor 1.19), because the
//! value range of the hour, and with it the 24 bins of the picture, changes while minutes pass. A
//! picture joins bins in powers of two until the range fits, so a picture of at most 6 octaves
//! (factor 64) has the full resolution. It is a picture: counts are exact, positions are those of
//! the middles of buckets.
//!
//! Samples that cover more than a minute are spread over their minutes. A minute in which no sample
//! ends, and which none covers, has no data, which is not the same as no values.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use hist::{Cell, Histogram, Mixture};

use super::onset::MinuteAbove;

/// Columns of the picture, one per minute.
pub const COLUMNS: usize = 60;
/// Value bins of the picture.
pub const BINS: usize = 24;
/// Levels of a cell: 0 is empty, the others are logarithmic in the count.
pub const LEVELS: u8 = 16;

/// Bins per octave of the kept counts.
const BINS_PER_OCTAVE: f64 = 4.0;
/// Least number of distances between minutes with values from which an interval is known.
const DISTANCES_MIN: usize = 4;
/// Column of the running minute.
const RUNNING: usize = COLUMNS - 1;
/// Bin of values that are not above zero.
const NOT_POSITIVE: i16 = -5000;

/// Counts of the last minutes of a row.
#[derive(Clone, Debug, Default)]
pub(super) struct MinuteCounts {
    minutes: VecDeque<MinuteColumn>,
    /// Minutes that a sample covers; `None` if that is learned from the distances of the minutes in
    /// which samples end.
    pub(super) row_minutes: Option<usize>,
}

#[derive(Clone, Debug)]
struct MinuteColumn {
    start: i64,
    has_gap: bool,
    presence: SamplePresence,
    bins: Arc<[(i16, u64)]>,
}

/// Whether a sample of a row ends in a minute, even one without values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SamplePresence {
    Present,
    Absent,
    /// The row has too many series to look.
    Unknown,
}

impl MinuteCounts {
    /// Replaces the minute that begins at `start`; minutes are set in order of time. `presence` is
    /// that of a minute without values.
    pub(super) fn set(
        &mut self,
        start: i64,
        values: &Mixture,
        has_gap: bool,
        presence: SamplePresence,
    ) {
        while self.minutes.back().is_some_and(|minute| minute.start >= start) {
            self.minutes.pop_back();
        }
        let mut bins: BTreeMap<i16, u64> = BTreeMap::new();
        for cell in values.components().iter().flat_map(Histogram::cells) {
            let count = bins.entry(bin_of(middle(&cell))).or_default();
            *count = count.saturating_add(cell.count);
        }
        let bins = bins.into_iter().collect();
        let presence = if values.count() > 0 { SamplePresence::Present } else { presence };
        self.minutes.push_back(MinuteColumn { start, has_gap, presence, bins });
    }

    /// Forgets the minutes before `start`.
    pub(super) fn forget_before(&mut self, start: i64) {
        while self.minutes.front().is_some_and(|minute| minute.start < start) {
            self.minutes.pop_front();
        }
    }

    /// Whether no sample ends in some of the `COLUMNS` minutes from `start`, although one does in
    /// others: the length of samples decides how they are drawn.
    pub(super) fn lacks_samples(&self, start: i64) -> bool {
        let with_rows = self.columns_with_rows(start);
        let is_over = |at: &&usize| **at != RUNNING;
        !with_rows.is_empty() && with_rows.iter().filter(is_over).count() < RUNNING
    }

    /// Values of each minute, and those of them that are certainly above a threshold.
    pub(super) fn above(&self, threshold: f64) -> Vec<MinuteAbove> {
        let of_threshold = bin_of(threshold);
        let minute = |minute: &MinuteColumn| {
            let sum = |is_counted: &dyn Fn(i16) -> bool| {
                let counted = minute.bins.iter().filter(|(bin, _)| is_counted(*bin));
                counted.map(|(_, count)| *count).fold(0, u64::saturating_add)
            };
            let above = sum(&|bin| bin > of_threshold);
            MinuteAbove { start: minute.start, above, count: sum(&|_| true) }
        };
        self.minutes.iter().map(minute).collect()
    }

    fn columns_with_rows(&self, start: i64) -> Vec<usize> {
        let is_present = |minute: &&MinuteColumn| minute.presence == SamplePresence::Present;
        let with_rows = self.minutes.iter().filter(is_present);
        let columns = with_rows.map(|minute| column_of(minute, start));
        columns.flatten().collect()
    }

    /// Memory of the counts, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let bytes = |minute: &MinuteColumn| minute.bins.len() * size_of::<(i16, u64)>();
        self.minutes.capacity() * size_of::<MinuteColumn>()
            + self.minutes.iter().map(bytes).sum::<usize>()
    }

    /// The picture of `COLUMNS` minutes from `start`; `None` without values.
    pub(super) fn picture(&self, start: i64) -> Option<MiniHeatmap> {
        let shown = || self.minutes.iter().filter(move |minute| minute.start >= start);
        let bins = || shown().flat_map(|minute| minute.bins.iter());
        let most = bins().map(|(_, count)| *count).max()?;
        // Values that are not above zero have no place on a logarithmic axis: the lowest bin.
        let positive = || bins().map(|(bin, _)| *bin).filter(|bin| *bin != NOT_POSITIVE);
        let (least, greatest) = (positive().min().unwrap_or(0), positive().max().unwrap_or(0));
        let shift = (0..14).find(|by| ((greatest >> by) - (least >> by)) < BINS as i16)?;
        let height = (greatest >> shift) - (least >> shift) + 1;
        // A narrow distribution is drawn in the middle.
        let lowest = (least >> shift) - (BINS as i16 - height) / 2;
        let mut cells = vec![[0u64; BINS]; COLUMNS];
        let mut missing = Vec::new();
        for minute in shown() {
            let Some(at) = column_of(minute, start) else { continue };
            let column = &mut cells[at];
            for (bin, count) in minute.bins.iter() {
                let bin = if *bin == NOT_POSITIVE { lowest } else { *bin >> shift };
                let at = usize::try_from(bin - lowest).unwrap_or(0).min(BINS - 1);
                column[at] = column[at].saturating_add(*count);
            }
            if minute.has_gap {
                missing.push(at);
            }
        }
        let with_rows = self.columns_with_rows(start);
        let interval = interval_minutes(&with_rows);
        let minutes = self.row_minutes.or(interval).unwrap_or(1);
        fill_intervals(&mut cells, &with_rows, &missing, minutes);
        let without = shown().filter(|minute| minute.presence == SamplePresence::Absent);
        let mut no_data: Vec<usize> = without.filter_map(|one| column_of(one, start)).collect();
        no_data.retain(|at| {
            let is_covered = (*at..at.saturating_add(minutes)).any(|end| with_rows.contains(&end));
            // The row that covers it may yet come.
            let is_over = at.saturating_add(minutes) <= RUNNING;
            is_over && !is_covered && !missing.contains(at)
        });
        // Joined bins may exceed the largest single one.
        let most = cells.iter().flatten().copied().max().unwrap_or(most);
        // Of 1,440 cells: the logarithm is computed once.
        let most_ln = (most as f64).ln();
        let levels = cells.iter().flatten().map(|count| level(*count, (most, most_ln))).collect();
        let edge = |bin: i16| 2f64.powf(f64::from(bin) * f64::from(1 << shift) / BINS_PER_OCTAVE);
        Some(MiniHeatmap {
            start,
            values: edge(lowest)..edge(lowest + BINS as i16),
            levels,
            most,
            missing,
            no_data,
        })
    }
}

/// Column of a minute in a picture that begins at `start`.
fn column_of(minute: &MinuteColumn, start: i64) -> Option<usize> {
    let at = usize::try_from((minute.start - start).div_euclid(store::MINUTE)).ok()?;
    (at < COLUMNS).then_some(at)
}

/// Interval of rows in minutes, from the distances of the minutes in which rows end: at least
/// `DISTANCES_MIN`, more than a minute, and different by at most one minute. Requests that are rare
/// have others.
fn interval_minutes(with_rows: &[usize]) -> Option<usize> {
    let distances: Vec<usize> = with_rows.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (least, most) = (*distances.iter().min()?, *distances.iter().max()?);
    let is_regular = distances.len() >= DISTANCES_MIN && most - least <= 1;
    (is_regular && most > 1).then_some(most)
}

/// Spreads values of rows that are longer than a minute over their `minutes`: a column in which no
/// row ends would be a stripe. Minutes with known gaps stay empty.
fn fill_intervals(
    cells: &mut [[u64; BINS]],
    with_rows: &[usize],
    missing: &[usize],
    minutes: usize,
) {
    for (at, before) in with_rows.iter().enumerate().map(|(n, at)| (*at, n.checked_sub(1))) {
        let first = (at + 1).saturating_sub(minutes);
        let start = before.map_or(first, |before| first.max(with_rows[before] + 1));
        let covered: Vec<usize> =
            (start..=at).filter(|minute| *minute == at || !missing.contains(minute)).collect();
        let spread = cells[at].map(|count| count.div_ceil(covered.len() as u64));
        covered.into_iter().for_each(|minute| cells[minute] = spread);
    }
}

/// The last hour of a row: `COLUMNS` minutes of `BINS` bins.
#[derive(Clone, Debug, PartialEq)]
pub struct MiniHeatmap {
    /// Start of the first minute, in nanoseconds since the Unix epoch.
    pub start: i64,
    /// Lower edge of the lowest bin and upper edge of the highest; the edges between them are
    /// geometric.
    pub values: Range<f64>,
    /// Levels below `LEVELS`, minute by minute, each from the lowest bin to the highest.
    pub levels: Vec<u8>,
    /// Largest count of a cell, which has the highest level.
    pub most: u64,
    /// Minutes with known gaps, as column indices.
    pub missing: Vec<usize>,
    /// Minutes of which no row tells anything, without those with known gaps.
    pub no_data: Vec<usize>,
}

/// Level of a count: 1 for one value, the highest for `most`, whose logarithm is `most_ln`.
fn level(count: u64, (most, most_ln): (u64, f64)) -> u8 {
    let highest = f64::from(LEVELS - 1);
    match (count, most) {
        (0, _) => 0,
        (_, 1) => LEVELS / 2,
        _ => (1.0 + (count as f64).ln() / most_ln * (highest - 1.0)).round() as u8,
    }
}

fn bin_of(value: f64) -> i16 {
    if value <= 0.0 || value.is_nan() {
        return NOT_POSITIVE;
    }
    (value.log2() * BINS_PER_OCTAVE).floor().clamp(-4400.0, 4400.0) as i16
}

/// Middle of a cell, or its finite end.
fn middle(cell: &Cell) -> f64 {
    match (cell.lower.is_finite(), cell.upper.is_finite()) {
        (true, true) => f64::midpoint(cell.lower, cell.upper),
        (true, false) => cell.lower,
        (false, true) if cell.upper > 0.0 => cell.upper / 2.0,
        _ => cell.upper,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(of: &[(f64, u64)]) -> Mixture {
        let mut histogram = Histogram::default();
        of.iter().for_each(|(value, count)| histogram.record_n(*value, *count));
        Mixture::from(histogram)
    }

    #[track_caller]
    fn check(minutes: &[&[(f64, u64)]], expected_bins: usize, expected_most: u64) -> MiniHeatmap {
        let mut counts = MinuteCounts::default();
        for (at, minute) in minutes.iter().enumerate() {
            counts.set(at as i64 * store::MINUTE, &values(minute), false, SamplePresence::Absent);
        }
        let picture = counts.picture(0).unwrap();
        assert_eq!(picture.levels.len(), COLUMNS * BINS);
        let used =
            (0..BINS).filter(|bin| picture.levels.chunks(BINS).any(|column| column[*bin] > 0));
        assert_eq!((used.count(), picture.most), (expected_bins, expected_most));
        picture
    }

    #[test]
    fn wide_range_fits_in_24_bins() {
        // 1 ns to 100 s: 36.5 octaves, eight bins joined.
        let picture = check(&[&[(1.0, 5), (1e11, 3)]], 2, 5);
        assert!(picture.values.start <= 1.0 && picture.values.end > 1e11, "{:?}", picture.values);
        assert_eq!((picture.levels[0..BINS].iter().max(), LEVELS), (Some(&15), 16));
    }

    #[test]
    fn narrow_range_keeps_its_resolution() {
        let picture = check(&[&[(100.0, 10), (119.5, 10)]], 2, 10);
        let octaves = (picture.values.end / picture.values.start).log2();
        assert!((octaves - 6.0).abs() < 1e-9, "{octaves}");
    }

    #[test]
    fn zero_and_negative_values_are_in_the_lowest_bin() {
        let picture = check(&[&[(0.0, 4), (-3.0, 1), (50.0, 2)]], 2, 5);
        assert_eq!(picture.levels[0], 15);
    }

    /// A picture whose rows end in some minutes, its columns with values, and its largest count.
    fn picture_of(
        rows: &[usize],
        gaps: &[usize],
        row_minutes: Option<usize>,
    ) -> (MiniHeatmap, Vec<usize>) {
        let mut counts = MinuteCounts { row_minutes, ..MinuteCounts::default() };
        for at in 0..COLUMNS {
            let has_row = rows.contains(&at);
            let of = if has_row { values(&[(100.0, 50)]) } else { Mixture::default() };
            let has_gap = gaps.contains(&at);
            counts.set(at as i64 * store::MINUTE, &of, has_gap, SamplePresence::Absent);
        }
        let picture = counts.picture(0).unwrap();
        let columns = picture.levels.chunks(BINS).enumerate();
        let shown = columns.filter(|(_, column)| column.iter().any(|level| *level > 0));
        let shown = shown.map(|(at, _)| at).collect();
        (picture, shown)
    }

    /// Scrapes every two to five minutes were stripes: columns were finer than the samples.
    #[test]
    fn samples_longer_than_a_minute_are_no_stripes() {
        let filled = |minutes: &[usize], gaps: &[usize]| {
            let (picture, shown) = picture_of(minutes, gaps, None);
            (shown, picture.most)
        };
        assert_eq!(filled(&[4, 9, 14, 19, 24], &[]), ((0..=24).collect(), 10));
        // Every 90 seconds.
        assert_eq!(filled(&[1, 3, 4, 6, 7], &[]), ((0..=7).collect(), 50));
        // A gap stays one.
        let expected: Vec<usize> = (0..=24).filter(|at| *at != 11).collect();
        assert_eq!(filled(&[4, 9, 14, 19, 24], &[11]), (expected, 13));
        // Rare requests, and a pause.
        assert_eq!(filled(&[4, 5, 14, 19, 34], &[]), (vec![4, 5, 14, 19, 34], 50));
        assert_eq!(filled(&[4, 9, 14], &[]), (vec![4, 9, 14], 50));
    }

    /// A job that runs for a minute looked as if it had run all the time, or as a service without
    /// requests.
    #[test]
    fn short_job_is_drawn_where_it_ran_and_the_rest_has_no_data() {
        let check = |rows: &[usize], minutes: Option<usize>, shown: &[usize], no_data: usize| {
            let (picture, found) = picture_of(rows, &[], minutes);
            assert_eq!(found, shown);
            assert_eq!(picture.no_data.len(), no_data, "{:?}", picture.no_data);
            assert!(!picture.no_data.iter().any(|at| shown.contains(at) || *at == RUNNING));
        };
        // Once an hour, and every ten minutes: rows of a minute.
        check(&[17], Some(1), &[17], 58);
        check(&[4, 14, 24, 34, 44, 54], Some(1), &[4, 14, 24, 34, 44, 54], 53);
        // It takes two minutes.
        check(&[4, 14, 24], Some(2), &[3, 4, 13, 14, 23, 24], 52);
        // Every quarter of an hour: four rows are too few to learn that from their distances.
        check(&[10, 25, 40, 55], Some(15), &(0..56).collect::<Vec<_>>(), 0);
        // Cumulative rows cover the time since the row before.
        check(&[9, 19, 29, 39, 49, 59], None, &(0..60).collect::<Vec<_>>(), 0);
        // A known gap is told as one.
        let (picture, _) = picture_of(&[17], &[3], Some(1));
        assert_eq!((picture.missing, picture.no_data.contains(&3)), (vec![3], false));
    }

    #[test]
    fn minute_whose_row_has_no_values_has_data() {
        let mut counts = MinuteCounts::default();
        counts.set(0, &values(&[(10.0, 1)]), false, SamplePresence::Absent);
        for (at, presence) in [
            (1, SamplePresence::Present),
            (2, SamplePresence::Absent),
            (3, SamplePresence::Unknown),
        ] {
            counts.set(at * store::MINUTE, &Mixture::default(), false, presence);
        }
        assert_eq!(counts.picture(0).unwrap().no_data, [2]);
    }

    #[test]
    fn a_minute_without_values_is_empty_and_one_with_a_gap_is_marked() {
        let mut counts = MinuteCounts::default();
        counts.set(0, &values(&[(10.0, 1)]), false, SamplePresence::Absent);
        counts.set(store::MINUTE, &Mixture::default(), true, SamplePresence::Absent);
        let picture = counts.picture(0).unwrap();
        assert!(picture.levels[BINS..2 * BINS].iter().all(|level| *level == 0));
        assert_eq!(picture.missing, [1]);
        // A minute is read again as data arrives.
        counts.set(store::MINUTE, &values(&[(10.0, 9)]), false, SamplePresence::Absent);
        let picture = counts.picture(0).unwrap();
        assert_eq!((picture.most, picture.missing.len()), (9, 0));
        counts.forget_before(2 * store::MINUTE);
        assert_eq!(counts.picture(0), None);
    }

    #[test]
    fn values_in_the_bin_of_the_threshold_are_not_certainly_above_it() {
        let mut counts = MinuteCounts::default();
        counts.set(
            0,
            &values(&[(0.0, 1), (10.0, 5), (252.0, 7), (900.0, 3)]),
            false,
            SamplePresence::Absent,
        );
        counts.set(store::MINUTE, &Mixture::default(), false, SamplePresence::Absent);
        let minute = |start: i64, above: u64, count: u64| MinuteAbove { start, above, count };
        let expected = [minute(0, 3, 16), minute(store::MINUTE, 0, 0)];
        assert_eq!(counts.above(250.0), expected);
        assert_eq!(counts.above(0.0)[0], minute(0, 15, 16));
    }
}

//! Forecast: when a gauge reaches a bound, such as a disk its capacity.
//!
//! A straight line through a sawtooth (rotation of logs, vacuum) or through a step (one large file)
//! tells of a full disk that never comes. Therefore:
//!
//! * The gauge is read as the extremes of intervals: the maximum of each hour if it must not rise,
//!   the minimum if it must not fall. Windows below two days have shorter intervals.
//! * A *step* is a change between two extremes that is [`STEP_DEVIATIONS`] deviations (by the
//!   median absolute deviation) and [`STEP_SHARE_MIN`] of the range away from the median change.
//! * One fall, or at most two rises, are isolated: slopes are taken between them. Three rises are
//!   growth, a staircase.
//! * Two falls are a sawtooth: its trend is that of its peaks. A tooth that rises above all earlier
//!   peaks is no tooth any more, and peaks beyond the bound say nothing of it: then the slope
//!   within teeth counts.
//!
//! The slope is the median of the slopes of pairs of extremes at half a segment from each other
//! (Theil 1950, the incomplete method); the distance is a whole number of weeks or days if it can
//! be, so that their cycles cancel. [`OUTCOME_COUNT`] outcomes resample these slopes in blocks, and
//! start at an extreme drawn from the newest ones. Times are in seconds from now. The same extremes
//! have the same outcomes: the seed is constant.

use hist::Bracket;

use super::criterion::{
    ComparisonKind, CriterionOutcome, MeasuredValue, ThresholdComparison, in_unit,
};

const SECOND_NS: i64 = 1_000_000_000;
const DAY_S: f64 = 86_400.0;
/// Lengths of intervals: the first one of which the window has [`INTERVALS_WANTED`].
const INTERVALS_NS: [i64; 4] = [3600 * SECOND_NS, 900 * SECOND_NS, 300 * SECOND_NS, 60 * SECOND_NS];
const INTERVALS_WANTED: i64 = 48;
/// Shortest window of a rule with a forecast: 60 intervals of a minute.
pub(super) const FORECAST_WINDOW_MIN_NS: i64 = 3600 * SECOND_NS;
/// Extremes below which nothing is known; they must span half of the window.
const POINTS_MIN: usize = 24;
/// Deviations of a change from the median change.
const STEP_DEVIATIONS: f64 = 8.0;
/// Standard deviations of a normal distribution in a median absolute deviation.
const DEVIATION_FACTOR: f64 = 1.4826;
/// Share of the range below which a change is no step.
const STEP_SHARE_MIN: f64 = 0.1;
/// Rises that are still isolated.
const ISOLATED_RISES_MAX: usize = 2;
/// Falls that make a sawtooth.
const TEETH_MIN: usize = 2;
/// Peaks below which the trend of a sawtooth is not known.
const PEAKS_MIN: usize = 3;
/// Peaks that are compared: 2,016 pairs, so that a forecast does not delay other rules.
const PEAKS_MAX: usize = 64;
/// Extremes of a segment below which its slope says little.
const SEGMENT_POINTS_MIN: usize = 4;
/// Segments that are shorter than this share of all extremes are left out if others are longer.
const SEGMENT_SHARE_MIN: usize = 8;
/// Resampled outcomes.
const OUTCOME_COUNT: usize = 200;
/// Lengths of the window beyond which a straight line says nothing: such an outcome is *never*.
const HORIZON_WINDOWS: f64 = 10.0;
/// Seed of the resampling.
const SEED: u64 = 0x746f_7064_6563_6b21;

/// Criterion: a gauge reaches a bound soon.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ForecastCriterion {
    /// Above or at least: the gauge must not rise to it; below or at most: not fall to it.
    pub(crate) bound: ThresholdComparison,
    pub(crate) within_ns: i64,
    /// Share of the outcomes that must reach the bound within that time, 0 to 1.
    pub(crate) chance: f64,
}

impl ForecastCriterion {
    /// Whether the gauge must not rise to the bound.
    pub(super) fn is_rise(&self) -> bool {
        matches!(self.bound.kind, ComparisonKind::Above | ComparisonKind::AtLeast)
    }
}

/// Extreme of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GaugePoint {
    /// End of the interval, in seconds from now; not positive.
    pub(super) time_s: f64,
    pub(super) value: f64,
}

/// Length of the intervals of a window.
pub(super) fn interval_ns(window_ns: i64) -> i64 {
    let is_fine = |interval_ns: &&i64| window_ns / **interval_ns >= INTERVALS_WANTED;
    let shortest = INTERVALS_NS[INTERVALS_NS.len() - 1];
    INTERVALS_NS.iter().find(is_fine).copied().unwrap_or(shortest)
}

/// Compares the time until a gauge reaches the bound. The value is the time in seconds that a
/// tenth, half and nine tenths of the outcomes do not exceed; infinity is *never*.
pub(super) fn compare_forecast(
    forecast: &ForecastCriterion,
    unit: &str,
    window_ns: i64,
    points: &[GaugePoint],
) -> Result<CriterionOutcome, String> {
    let bound = in_unit(&forecast.bound.threshold, unit)?;
    // A fall is a rise of the negative value.
    let sign = if forecast.is_rise() { 1.0 } else { -1.0 };
    let rising: Vec<GaugePoint> =
        points.iter().map(|point| GaugePoint { value: point.value * sign, ..*point }).collect();
    let window_s = window_ns as f64 / SECOND_NS as f64;
    let Some(outcomes) = outcomes(&rising, bound * sign, window_s, SEED) else {
        return Ok(CriterionOutcome::Unknown);
    };
    let [lower, estimate, upper] = [0.1, 0.5, 0.9].map(|share| quantile(&outcomes, share));
    let within_s = forecast.within_ns as f64 / SECOND_NS as f64;
    let measured = MeasuredValue {
        value: Bracket { lower, estimate, upper },
        threshold: Some(within_s),
        unit: "s".to_owned(),
    };
    match quantile(&outcomes, forecast.chance) <= within_s {
        true => Ok(CriterionOutcome::Holds(measured)),
        false => Ok(CriterionOutcome::Clear),
    }
}

/// Value of sorted outcomes that this share of them does not exceed.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Seconds until a rising gauge reaches the bound, sorted; `None` if too little is known.
fn outcomes(points: &[GaugePoint], bound: f64, window_s: f64, seed: u64) -> Option<Vec<f64>> {
    let (first, last) = (points.first()?, points.last()?);
    if points.len() < POINTS_MIN || first.time_s > -window_s / 2.0 {
        return None;
    }
    if last.value >= bound {
        return Some(vec![0.0; OUTCOME_COUNT]);
    }
    let trend = Trend::of(points, bound)?;
    let mut random = RandomSequence(seed);
    let mut times: Vec<f64> = (0..OUTCOME_COUNT)
        .map(|_| {
            let slope = trend.resampled_slope(&mut random);
            let start = trend.starts[random.below(trend.starts.len())];
            if slope <= 0.0 {
                return f64::INFINITY;
            }
            let level = start.value - slope * start.time_s;
            let time_s = ((bound - level) / slope).max(0.0);
            if time_s > HORIZON_WINDOWS * window_s { f64::INFINITY } else { time_s }
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Some(times)
}

/// Slopes per second, and where outcomes start.
struct Trend {
    slopes: Vec<f64>,
    /// Not empty.
    starts: Vec<GaugePoint>,
}

impl Trend {
    fn of(points: &[GaugePoint], bound: f64) -> Option<Trend> {
        let steps = steps(points);
        let falls: Vec<Step> = steps.iter().filter(|step| !step.is_rise).copied().collect();
        if falls.len() < TEETH_MIN {
            let rises = steps.len() - falls.len();
            let is_isolated = |step: &Step| !step.is_rise || rises <= ISOLATED_RISES_MAX;
            let cuts: Vec<Step> = steps.iter().copied().filter(is_isolated).collect();
            return Trend::within(&segments(points, &cuts));
        }
        let teeth = segments(points, &falls);
        let (current, earlier) = teeth.split_last()?;
        let peaks: Vec<GaugePoint> = earlier.iter().filter_map(|tooth| highest(tooth)).collect();
        let values = || peaks.iter().map(|peak| peak.value);
        let (top, bottom) =
            (values().fold(f64::NEG_INFINITY, f64::max), values().fold(f64::INFINITY, f64::min));
        let trough = points.iter().map(|point| point.value).fold(f64::INFINITY, f64::min);
        let tolerance = (top - bottom).max(STEP_SHARE_MIN * (top - trough));
        let is_broken = highest(current).is_some_and(|peak| peak.value > top + tolerance);
        if is_broken {
            return Trend::within(&[*current]).or_else(|| Trend::within(&teeth));
        }
        if top >= bound {
            return Trend::within(&teeth);
        }
        Trend::of_peaks(&peaks)
    }

    /// Slopes within segments, from the last segment on.
    fn within(segments: &[&[GaugePoint]]) -> Option<Trend> {
        let all: usize = segments.iter().map(|segment| segment.len()).sum();
        let slopes_of = |least: usize| -> Vec<f64> {
            let long = segments.iter().filter(|segment| segment.len() >= least);
            long.flat_map(|segment| pair_slopes(segment)).collect()
        };
        let long = slopes_of((all / SEGMENT_SHARE_MIN).max(SEGMENT_POINTS_MIN));
        let slopes = if long.is_empty() { slopes_of(SEGMENT_POINTS_MIN) } else { long };
        let last = segments.last()?;
        let starts = last[last.len() / 2..].to_vec();
        (!slopes.is_empty() && !starts.is_empty()).then_some(Trend { slopes, starts })
    }

    /// Slopes of all pairs of the newest peaks.
    fn of_peaks(peaks: &[GaugePoint]) -> Option<Trend> {
        if peaks.len() < PEAKS_MIN {
            return None;
        }
        let peaks = &peaks[peaks.len().saturating_sub(PEAKS_MAX)..];
        let pairs = (1..peaks.len()).flat_map(|later| (0..later).map(move |at| (at, later)));
        let slopes = pairs.map(|(at, later)| slope(&peaks[at], &peaks[later])).collect();
        Some(Trend { slopes, starts: peaks[peaks.len() / 2..].to_vec() })
    }

    /// Median of as many slopes, drawn in blocks: neighbours are alike.
    fn resampled_slope(&self, random: &mut RandomSequence) -> f64 {
        let count = self.slopes.len();
        let block = count.isqrt().max(1);
        let mut drawn = Vec::with_capacity(count + block);
        while drawn.len() < count {
            let start = random.below(count);
            drawn.extend((start..start + block).map(|at| self.slopes[at % count]));
        }
        drawn.truncate(count);
        median(&mut drawn)
    }
}

/// Slopes of the pairs of a segment at half of its length from each other.
fn pair_slopes(segment: &[GaugePoint]) -> Vec<f64> {
    let [first, .., last] = segment else { return Vec::new() };
    let length_s = last.time_s - first.time_s;
    let interval_s = length_s / (segment.len() - 1) as f64;
    let whole = |unit_s: f64| (length_s / 2.0 / unit_s).floor() * unit_s;
    let lags = [whole(7.0 * DAY_S), whole(DAY_S), length_s / 2.0];
    let Some(lag_s) = lags.into_iter().find(|lag_s| *lag_s > 0.0) else { return Vec::new() };
    let pair = |early: &GaugePoint| {
        let wanted_s = early.time_s + lag_s - interval_s / 2.0;
        let at = segment.partition_point(|point| point.time_s < wanted_s);
        let late = segment.get(at)?;
        (late.time_s <= wanted_s + interval_s).then(|| slope(early, late))
    };
    segment.iter().filter_map(pair).collect()
}

fn slope(early: &GaugePoint, late: &GaugePoint) -> f64 {
    (late.value - early.value) / (late.time_s - early.time_s)
}

fn highest(segment: &[GaugePoint]) -> Option<GaugePoint> {
    segment.iter().copied().max_by(|a, b| a.value.total_cmp(&b.value))
}

/// A sudden change: points before `end` are before it, those from `start` on after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    end: usize,
    start: usize,
    is_rise: bool,
}

/// Steps by time. Neighbours of the same direction are one step.
fn steps(points: &[GaugePoint]) -> Vec<Step> {
    let changes: Vec<f64> = points.windows(2).map(|pair| pair[1].value - pair[0].value).collect();
    let middle = median(&mut changes.clone());
    let mut deviations: Vec<f64> = changes.iter().map(|change| (change - middle).abs()).collect();
    let deviation = median(&mut deviations) * DEVIATION_FACTOR;
    let values = || points.iter().map(|point| point.value);
    let range = values().fold(f64::NEG_INFINITY, f64::max) - values().fold(f64::INFINITY, f64::min);
    let least = (STEP_DEVIATIONS * deviation).max(STEP_SHARE_MIN * range);
    let mut steps: Vec<Step> = Vec::new();
    for (at, change) in changes.iter().enumerate() {
        if (change - middle).abs() <= least {
            continue;
        }
        let is_rise = *change > middle;
        match steps.last_mut().filter(|step| step.start == at && step.is_rise == is_rise) {
            Some(step) => step.start = at + 1,
            None => steps.push(Step { end: at + 1, start: at + 1, is_rise }),
        }
    }
    steps
}

/// Points between steps. Those of a step that took several intervals are left out.
fn segments<'a>(points: &'a [GaugePoint], steps: &[Step]) -> Vec<&'a [GaugePoint]> {
    let starts = std::iter::once(0).chain(steps.iter().map(|step| step.start));
    let ends = steps.iter().map(|step| step.end).chain(std::iter::once(points.len()));
    starts.zip(ends).map(|(start, end)| &points[start.min(end)..end]).collect()
}

/// Upper median of numbers; 0 of none.
fn median(numbers: &mut [f64]) -> f64 {
    if numbers.is_empty() {
        return 0.0;
    }
    let at = numbers.len() / 2;
    *numbers.select_nth_unstable_by(at, f64::total_cmp).1
}

/// Pseudorandom numbers (SplitMix64).
struct RandomSequence(u64);

impl RandomSequence {
    /// Number from 0 to below `count`, which is small: the bias is below `count` / 2^64.
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % count as u64) as usize
    }
}

#[cfg(test)]
mod tests;

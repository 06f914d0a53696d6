//! Heatmap as a PNG file, 720 pixels wide: cells, thresholds, and labels of both axes. Title and
//! numbers are left to the text beside it.

use hist::MergeError;

use crate::chart::axis::Axis;
use crate::chart::colour_scale::{self, Background, ColourScale};
use crate::chart::heatmap::{FittedColumns, Heatmap};
use crate::chart::heatmap_rows::{HeatmapRow, HeatmapRows};
use crate::chart::time_axis;
use crate::raster::{CHAR_HEIGHT, CHAR_WIDTH, RasterImage};
use crate::value_formatter::ValueFormatter;

const WIDTH: usize = 720;
/// Left edge and width of the plot.
const LEFT: usize = 112;
const PLOT: usize = 600;
/// Distance from the top to the plot.
const TOP: usize = 10;
/// Rows of the axis, and the height of each.
const ROWS: usize = 72;
const ROW: usize = 3;
/// Height of an end row, and its distance from the axis.
const END_ROW: usize = 12;
const END_GAP: usize = 4;
/// Height of the time labels below the plot.
const TIMES: usize = 30;
/// Minimum distance of time labels.
const TICK_WIDTH: usize = 100;
const COLUMNS_MAX: usize = 300;
/// Height of the line of a threshold.
const LIMIT_HEIGHT: usize = 2;

/// Colours of the palette: these, then the levels of the ramp.
const PAPER: u8 = 0;
const INK: u8 = 1;
const GRID: u8 = 2;
const LIMIT: u8 = 3;
const GAP: u8 = 4;
const FIXED_COLOURS: [[u8; 3]; 5] = [
    [0xff, 0xff, 0xff],
    [0x24, 0x29, 0x2f],
    [0xd8, 0xde, 0xe4],
    [0xcf, 0x22, 0x2e],
    [0xaf, 0xb8, 0xc1],
];
const LEVELS: usize = 16;

/// PNG file of a heatmap. Columns are merged if there are more than 300.
pub fn picture(map: &Heatmap) -> Result<Vec<u8>, MergeError> {
    let fitted = map.fit_columns(COLUMNS_MAX)?;
    let formatter = map.formatter();
    let values = fitted.columns.iter().map(|column| &column.values);
    let mut rows = HeatmapRows::covering(values, &formatter, ROWS);
    rows.widen(map.thresholds.iter().map(|limit| formatter.scale(*limit)));
    let mut drawing = HeatmapDrawing::new(map, &fitted, &formatter, &rows);
    drawing.grid();
    drawing.cells();
    drawing.gaps();
    drawing.limits();
    drawing.times();
    Ok(drawing.image.png())
}

struct HeatmapDrawing<'a> {
    map: &'a Heatmap,
    fitted: &'a FittedColumns,
    formatter: &'a ValueFormatter,
    rows: &'a HeatmapRows,
    /// Top edge of each row, as in [`HeatmapRows::all`], with its height.
    tops: Vec<(HeatmapRow, usize, usize)>,
    /// Bottom edge of the plot.
    bottom: usize,
    image: RasterImage,
}

impl<'a> HeatmapDrawing<'a> {
    fn new(
        map: &'a Heatmap,
        fitted: &'a FittedColumns,
        formatter: &'a ValueFormatter,
        rows: &'a HeatmapRows,
    ) -> HeatmapDrawing<'a> {
        let mut tops: Vec<(HeatmapRow, usize, usize)> = Vec::new();
        let mut bottom = TOP;
        for row in rows.all() {
            let height = if row.is_on_axis() { ROW } else { END_ROW };
            let is_apart =
                tops.last().is_some_and(|(above, ..)| !(above.is_on_axis() && row.is_on_axis()));
            let top = bottom + if is_apart { END_GAP } else { 0 };
            tops.push((row, top, height));
            bottom = top + height;
        }
        let bottom = bottom.max(TOP + ROWS * ROW);
        let ramp = (0..LEVELS).map(|level| {
            colour_scale::colour(level as f64 / (LEVELS - 1) as f64, Background::Light)
        });
        let palette = FIXED_COLOURS.into_iter().chain(ramp).collect();
        let image = RasterImage::new(WIDTH, bottom + TIMES, palette);
        HeatmapDrawing { map, fitted, formatter, rows, tops, bottom, image }
    }

    /// Left edge of a column; fractions are times within one.
    fn x(&self, column: f64) -> usize {
        LEFT + (column * PLOT as f64 / self.fitted.columns.len().max(1) as f64) as usize
    }

    /// Row of pixels of a value on the axis, in the chart unit; `None` outside of it.
    fn y(&self, axis: &Axis, base: f64) -> Option<usize> {
        let is_on_axis = (axis.low..=axis.high).contains(&base);
        let top = self.tops.iter().find(|(row, ..)| row.is_on_axis())?.1;
        let from_top = (1.0 - axis.position(base)) * (ROWS * ROW) as f64;
        is_on_axis.then_some(top + (from_top as usize).min(ROWS * ROW - LIMIT_HEIGHT))
    }

    /// Frame, and ticks of values.
    fn grid(&mut self) {
        for (row, top, height) in self.tops.clone() {
            if !row.is_on_axis() {
                let label = self.rows.row_label(row, self.formatter, true);
                self.value_label(top + height / 2, &label);
            }
        }
        if let Some(axis) = self.rows.axis {
            for tick in axis.ticks(6) {
                let Some(y) = self.y(&axis, tick) else { continue };
                self.image.fill(LEFT..LEFT + PLOT, y..y + 1, GRID);
                let label = self.formatter.tick(tick);
                self.value_label(y, &label);
            }
        }
        let (bottom, right) = (self.bottom, LEFT + PLOT);
        for y in [TOP - 1, bottom] {
            self.image.fill(LEFT - 1..right + 1, y..y + 1, GRID);
        }
        for x in [LEFT - 1, right] {
            self.image.fill(x..x + 1, TOP - 1..bottom + 1, GRID);
        }
    }

    /// Writes a label left of the plot; if there is no room for it, without its unit.
    fn value_label(&mut self, middle: usize, label: &str) {
        const CHARS_MAX: usize = (LEFT - 8) / CHAR_WIDTH;
        let number = match label.split_once(' ') {
            Some((number, _)) if label.chars().count() > CHARS_MAX => number,
            _ => label,
        };
        let label: String = number.chars().take(CHARS_MAX).collect();
        let width = label.chars().count() * CHAR_WIDTH;
        let at = ((LEFT - 8).saturating_sub(width), middle.saturating_sub(CHAR_HEIGHT / 2));
        self.image.text(at, &label, INK);
    }

    fn cells(&mut self) {
        let columns = &self.fitted.columns;
        let counts = columns.iter().map(|column| self.rows.counts(&column.values, self.formatter));
        let counts: Vec<_> = counts.collect();
        let ramp = ColourScale::up_to(counts.iter().map(|counts| counts.max()).max().unwrap_or(0));
        for (at, counts) in counts.iter().enumerate() {
            let across = self.x(at as f64)..self.x((at + 1) as f64);
            for (row, top, height) in self.tops.clone() {
                let Some(level) = ramp.level(counts.get(row), LEVELS) else { continue };
                let colour = FIXED_COLOURS.len() + level;
                let colour = u8::try_from(colour).expect("BUG: a small palette");
                self.image.fill(across.clone(), top..top + height, colour);
            }
        }
    }

    /// Columns without data are hatched: nothing was measured, rather than no value.
    fn gaps(&mut self) {
        for at in 0..self.fitted.columns.len() {
            if self.fitted.columns[at].is_unknown() {
                let across = self.x(at as f64)..self.x((at + 1) as f64);
                for y in TOP..self.bottom {
                    for x in across.clone().filter(|x| (x + y) % 6 == 0) {
                        self.image.fill(x..x + 1, y..y + 1, GAP);
                    }
                }
            }
        }
    }

    fn limits(&mut self) {
        let Some(axis) = self.rows.axis else { return };
        for limit in self.map.thresholds.clone() {
            let Some(y) = self.y(&axis, self.formatter.scale(limit)) else { continue };
            self.image.fill(LEFT..LEFT + PLOT, y..y + LIMIT_HEIGHT, LIMIT);
            let label = self.formatter.exact(limit);
            let width = label.chars().count() * CHAR_WIDTH;
            // Above the line, unless the picture ends there.
            let top = match y.checked_sub(CHAR_HEIGHT + 4) {
                Some(top) if top >= TOP => top,
                _ => y + 5,
            };
            self.image.fill(LEFT + 4..LEFT + 8 + width, top - 2..top + CHAR_HEIGHT + 1, PAPER);
            self.image.text((LEFT + 6, top), &label, LIMIT);
        }
    }

    fn times(&mut self) {
        let Some((start, end)) = self.map.time_range() else { return };
        for (time, label) in time_axis::ticks(start, end, PLOT / TICK_WIDTH) {
            let Some(column) = self.fitted.position(time) else { continue };
            let (x, bottom) = (self.x(column), self.bottom);
            self.image.fill(x..x + 1, bottom..bottom + 5, INK);
            let width = label.chars().count() * CHAR_WIDTH;
            let left = x.saturating_sub(width / 2).min(WIDTH.saturating_sub(width));
            self.image.text((left, bottom + 9), &label, INK);
        }
    }
}

#[cfg(test)]
mod tests {
    use decode::Unit;
    use hist::Histogram;

    use super::*;
    use crate::chart::heatmap::HeatmapColumn;
    use crate::merged_distribution::MergedDistribution;
    use crate::raster::tests::decode;

    const S: i64 = 1_000_000_000;
    /// 2026-03-01 12:00:00 UTC.
    const NOON: i64 = 1_772_366_400 * S;

    /// Heatmap of columns of a minute with these values in milliseconds; `None` is a gap.
    fn map(columns: &[Option<&[f64]>], thresholds_ms: &[f64]) -> Heatmap {
        let column = |(at, found): (usize, &Option<&[f64]>)| {
            let mut histogram = Histogram::default();
            found.iter().copied().flatten().for_each(|ms| histogram.record(ms * 1e6));
            let mut values = MergedDistribution::default();
            values.add(&histogram).unwrap();
            let gaps = if found.is_none() { vec!["lost".to_owned()] } else { Vec::new() };
            let start = NOON + at as i64 * 60 * S;
            HeatmapColumn { start, end: start + 60 * S, values, gaps }
        };
        Heatmap {
            title: String::new(),
            unit: Some(Unit::Nanoseconds),
            columns: columns.iter().enumerate().map(column).collect(),
            thresholds: thresholds_ms.iter().map(|ms| ms * 1e6).collect(),
            warnings: Vec::new(),
        }
    }

    fn is_cell(colour: [u8; 3]) -> bool {
        !FIXED_COLOURS.contains(&colour)
    }

    /// Of each of the columns, whether it has cells, and rows of pixels with the colour of limits
    /// across the whole plot.
    #[track_caller]
    fn check(map: &Heatmap, expected: &[bool], lines: usize) {
        let file = picture(map).expect("a picture");
        assert!(file.len() < 16 << 10, "{}", file.len());
        let (width, height, pixels) = decode(&file);
        assert_eq!((width, pixels.len()), (WIDTH, WIDTH * height));
        let row = |y: usize| &pixels[y * WIDTH + LEFT..][..PLOT];
        let columns = map.columns.len().max(1);
        let across = |at: usize| at * PLOT / columns..(at + 1) * PLOT / columns;
        let has_cells =
            |at: usize| (0..height).any(|y| row(y)[across(at)].iter().any(|c| is_cell(*c)));
        let found: Vec<bool> = (0..map.columns.len()).map(has_cells).collect();
        assert_eq!(found, expected);
        let limit = FIXED_COLOURS[usize::from(LIMIT)];
        let is_line = |y: &usize| row(*y).iter().all(|colour| *colour == limit);
        assert_eq!((0..height).filter(is_line).count(), 2 * lines);
    }

    #[test]
    fn a_column_with_values_has_cells_and_a_threshold_is_a_line() {
        let values: &[f64] = &[1.0, 2.0, 2.0, 300.0];
        check(
            &map(&[Some(values), Some(&[]), None, Some(&[250.0])], &[250.0]),
            &[true, false, false, true],
            1,
        );
    }

    #[test]
    fn a_threshold_beyond_the_values_is_shown() {
        check(&map(&[Some(&[10.0, 12.0])], &[900.0, 0.01]), &[true], 2);
        // One that a logarithmic axis cannot show.
        check(&map(&[Some(&[10.0])], &[0.0, -1.0, f64::NAN, f64::INFINITY]), &[true], 0);
    }

    #[test]
    fn more_values_are_darker_and_higher_values_further_up() {
        let (many, one) = (vec![10.0; 1000], [1000.0]);
        let file = picture(&map(&[Some(&many), Some(&one)], &[])).unwrap();
        let (_, height, pixels) = decode(&file);
        let found = |column: usize| {
            let x = LEFT + column * PLOT / 2 + PLOT / 4;
            let cell = (0..height).map(|y| (y, pixels[y * WIDTH + x])).find(|(_, c)| is_cell(*c));
            cell.expect("a cell")
        };
        let ((low, dark), (high, pale)) = (found(0), found(1));
        let lightness = |colour: [u8; 3]| colour.iter().map(|c| u32::from(*c)).sum::<u32>();
        assert!(low > high && lightness(dark) < lightness(pale), "{dark:?} {pale:?}");
    }

    #[test]
    fn a_gap_is_hatched_and_an_empty_column_is_not() {
        let (_, height, pixels) = decode(&picture(&map(&[None, Some(&[])], &[])).unwrap());
        let gap = FIXED_COLOURS[usize::from(GAP)];
        let hatched = |from: usize| {
            let rows = (0..height).map(|y| &pixels[y * WIDTH + from..][..PLOT / 2]);
            rows.flatten().filter(|colour| **colour == gap).count()
        };
        assert!(hatched(LEFT) > 1000, "{}", hatched(LEFT));
        assert_eq!(hatched(LEFT + PLOT / 2), 0);
    }

    #[test]
    fn all_kinds_of_rows_and_no_columns_are_drawn() {
        let mut all = map(&[Some(&[0.0, -5.0, 1.0, 1e30])], &[1.0]);
        check(&all, &[true], 1);
        all.columns.clear();
        check(&all, &[], 0);
        let hour: Vec<f64> = (1..2000).map(f64::from).collect();
        check(&map(&vec![Some(hour.as_slice()); 60], &[250.0]), &[true; 60], 1);
        let (.., pixels) = decode(&picture(&map(&vec![Some(hour.as_slice()); 1000], &[])).unwrap());
        assert!(pixels.iter().any(|colour| is_cell(*colour)));
    }
}

//! Heatmap as text: half blocks if the terminal has enough colours, otherwise shades.

use std::fmt::Write as _;

use hist::MergeError;

use crate::chart::colour_scale::{self, Background, ColourScale};
use crate::chart::heatmap::{FittedColumns, Heatmap, HeatmapColumn};
use crate::chart::heatmap_rows::{HeatmapRow, HeatmapRows, RowCounts};
use crate::chart::time_axis;
use crate::terminal::plot::{self, GUTTER};
use crate::terminal::{ColourDepth, Terminal, TextStyle};
use crate::text::escape_control;
use crate::time;
use crate::value_formatter::{self, ValueFormatter};

/// Lines besides the plot: title, totals, axis, legend, time, and the prompt.
const RESERVED_LINES: usize = 9;
const LINES_MIN: usize = 8;
/// Maximum height: a taller plot cannot be taken in at a glance.
const LINES_MAX: usize = 30;
/// Distance of time labels, in characters.
const TICK_WIDTH: usize = 16;
const SHADES: [char; 5] = ['·', '░', '▒', '▓', '█'];
const SHADES_ASCII: [char; 9] = ['.', ':', '-', '=', '+', '*', '#', '%', '@'];
/// Number of legend entries.
const MARKS: usize = 5;
/// Colour of the maximum of a column, in half blocks.
const MAX: TerminalColour = TerminalColour { rgb: [0xff, 0x55, 0x55], palette: 203 };

/// Number of columns that fit.
pub fn column_capacity(terminal: &Terminal) -> usize {
    terminal.raw_width.saturating_sub(GUTTER + 1).max(1)
}

/// Heatmap with legend and notes, terminated by a newline.
pub fn heatmap_text(map: &Heatmap, terminal: &Terminal) -> Result<String, MergeError> {
    let fitted = map.fit_columns(column_capacity(terminal))?;
    let formatter = map.formatter();
    let mut lines = vec![terminal.paint(TextStyle::Heading, &escape_control(&map.title))];
    lines.push(format!("  {}", map.totals_text()));
    lines.extend(map.exceedances().iter().map(|sentence| format!("  {sentence}")));
    lines.push(String::new());
    if let Some((start, end)) = map.time_range() {
        lines.extend(TerminalHeatmap::new(&fitted, &formatter, terminal).lines(start, end));
        let step = fitted.columns.iter().map(|c| c.end.saturating_sub(c.start)).min().unwrap_or(0);
        let time = |ns| time::time_text(ns, step);
        let about = fitted.description().map_or(String::new(), |about| format!("; {about}"));
        let span = format!("  {} to {}{about}", time(start), time(end));
        lines.push(terminal.paint(TextStyle::Faint, &span));
    }
    let mut missing = map.gap_summary().into_iter();
    lines.extend(missing.next().map(|first| format!("  ? {first}")));
    lines.extend(missing.map(|more| format!("    {}", escape_control(&more))));
    lines.extend(map.warnings.iter().map(|note| format!("  {}", escape_control(note))));
    Ok(lines.join("\n") + "\n")
}

/// Terminal colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TerminalColour {
    rgb: [u8; 3],
    /// Index in the 256-colour palette.
    palette: u8,
}

impl TerminalColour {
    fn for_heat(heat: f64) -> TerminalColour {
        TerminalColour {
            rgb: colour_scale::colour(heat, Background::Any),
            palette: colour_scale::palette_256(heat),
        }
    }
}

/// Character with foreground and background colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Glyph {
    c: char,
    foreground: Option<TerminalColour>,
    background: Option<TerminalColour>,
    faint: bool,
}

const BLANK: Glyph = Glyph { c: ' ', foreground: None, background: None, faint: false };

/// Rows drawn by one glyph. The mark above all rows has no row.
#[derive(Clone, Copy, Debug, Default)]
struct GlyphRow {
    row: Option<HeatmapRow>,
    below: Option<HeatmapRow>,
}

fn is_on_axis(places: &[GlyphRow]) -> bool {
    places[0].row.is_some_and(HeatmapRow::is_on_axis)
}

/// Cells of one column.
struct CellColumn<'a> {
    column: &'a HeatmapColumn,
    counts: RowCounts,
    /// Row of the maximum: no row above it has values.
    top: Option<HeatmapRow>,
}

struct TerminalHeatmap<'a> {
    fitted: &'a FittedColumns,
    formatter: &'a ValueFormatter,
    terminal: &'a Terminal,
    rows: HeatmapRows,
    /// Whether two rows share a line (half blocks).
    uses_half_blocks: bool,
    columns: Vec<CellColumn<'a>>,
    scale: ColourScale,
    /// Characters per column.
    wide: usize,
}

impl<'a> TerminalHeatmap<'a> {
    fn new(
        fitted: &'a FittedColumns,
        formatter: &'a ValueFormatter,
        terminal: &'a Terminal,
    ) -> TerminalHeatmap<'a> {
        let coloured =
            matches!(terminal.colour_depth, ColourDepth::Ansi256 | ColourDepth::TrueColour);
        let halves = coloured && !terminal.ascii;
        let lines = terminal.height.saturating_sub(RESERVED_LINES).clamp(LINES_MIN, LINES_MAX);
        let on_axis = if halves { 2 * lines } else { lines };
        let rows = HeatmapRows::covering(
            fitted.columns.iter().map(|column| &column.values),
            formatter,
            on_axis,
        );
        let all = rows.all();
        let columns: Vec<CellColumn<'_>> = fitted
            .columns
            .iter()
            .map(|column| {
                let counts = rows.counts(&column.values, formatter);
                let max = column.values.max().and_then(|max| rows.find_row(max, formatter));
                // If only the bucket of the maximum is known, its row may be above that of the
                // estimate.
                let top = all.iter().copied().find(|&row| max == Some(row) || counts.get(row) > 0);
                CellColumn { column, counts, top }
            })
            .collect();
        let most = columns.iter().map(|cells| cells.counts.max()).max().unwrap_or(0);
        let wide = (self::column_capacity(terminal) / columns.len().max(1)).max(1);
        TerminalHeatmap {
            fitted,
            formatter,
            terminal,
            rows,
            uses_half_blocks: halves,
            columns,
            scale: ColourScale::up_to(most),
            wide,
        }
    }

    fn width(&self) -> usize {
        self.columns.len() * self.wide
    }

    fn lines(&self, start: i64, end: i64) -> Vec<String> {
        let groups = self.groups();
        let names = self.row_labels(&groups);
        let mut lines = Vec::new();
        for (at, (group, name)) in groups.iter().zip(&names).enumerate() {
            let glyphs = self.columns.iter().enumerate().flat_map(|(column, cells)| {
                (0..self.wide).map(move |x| self.glyph(cells, group, at + column * self.wide + x))
            });
            lines.push(self.line(name, glyphs));
        }
        if self.rows.all().is_empty() {
            lines.push(self.line("", "(no values to draw)".chars().map(|c| Glyph { c, ..BLANK })));
        }
        if self.columns.iter().any(|cells| !cells.column.gaps.is_empty()) {
            let mark =
                |cells: &CellColumn<'_>| if cells.column.gaps.is_empty() { ' ' } else { '?' };
            let marks = self.columns.iter().flat_map(|cells| vec![mark(cells); self.wide]);
            lines.push(self.line("missing", marks.map(|c| Glyph { c, faint: true, ..BLANK })));
        }
        let width = self.width();
        let ticks: Vec<(usize, String)> = time_axis::ticks(start, end, width.div_ceil(TICK_WIDTH))
            .into_iter()
            .filter_map(|(time, name)| {
                let at = (self.fitted.position(time)? * self.wide as f64) as usize;
                Some((at.min(width - 1), name))
            })
            .collect();
        lines.extend(plot::axis_lines(&ticks, width, self.terminal));
        lines.extend((!self.rows.all().is_empty()).then(|| self.legend()));
        lines
    }

    /// Rows of each line, top to bottom: two axis rows with half blocks, otherwise one. The first
    /// entry is for the mark of the maximum.
    fn groups(&self) -> Vec<Vec<GlyphRow>> {
        let all = self.rows.all();
        let mut groups: Vec<Vec<GlyphRow>> = Vec::new();
        if !all.is_empty() {
            let above = GlyphRow { row: None, below: Some(all[0]) };
            groups.push(if self.uses_half_blocks {
                vec![GlyphRow::default(), above]
            } else {
                vec![above]
            });
        }
        for (at, &row) in all.iter().enumerate() {
            let glyph_row = GlyphRow { row: Some(row), below: all.get(at + 1).copied() };
            match groups.last_mut() {
                Some(last)
                    if self.uses_half_blocks
                        && last.len() == 1
                        && is_on_axis(last)
                        && row.is_on_axis() =>
                {
                    last.push(glyph_row);
                }
                _ => groups.push(vec![glyph_row]),
            }
        }
        groups
    }

    /// Label left of each line.
    fn row_labels(&self, groups: &[Vec<GlyphRow>]) -> Vec<String> {
        let ascii = self.terminal.ascii;
        let name = |group: &Vec<GlyphRow>| {
            group[0]
                .row
                .map_or(String::new(), |row| self.rows.row_label(row, self.formatter, ascii))
        };
        let mut names: Vec<String> = groups.iter().map(name).collect();
        let lines = groups.iter().filter(|group| is_on_axis(group)).count();
        let first = groups.iter().position(|group| is_on_axis(group)).unwrap_or(0);
        for tick in self.rows.axis.iter().flat_map(|axis| {
            axis.ticks(lines / 2).into_iter().map(|tick| (axis.position(tick), tick))
        }) {
            let from_top = ((1.0 - tick.0) * lines as f64) as usize;
            let name = &mut names[first + from_top.min(lines - 1)];
            if name.is_empty() {
                *name = self.formatter.tick(tick.1);
            }
        }
        names
    }

    /// Character of a column: two rows, or one.
    fn glyph(&self, cells: &CellColumn<'_>, places: &[GlyphRow], diagonal: usize) -> Glyph {
        if cells.column.is_unknown() {
            let inside = places[0].row.is_some() && diagonal.is_multiple_of(2);
            return Glyph { c: if inside { '?' } else { ' ' }, faint: true, ..BLANK };
        }
        // No cell above the maximum of a column has values: its mark is drawn there and hides no
        // count.
        let is_mark = |place: GlyphRow| cells.top.is_some() && place.below == cells.top;
        let count = |place: GlyphRow| place.row.map_or(0, |row| cells.counts.get(row));
        if !self.uses_half_blocks {
            let shades: &[char] = if self.terminal.ascii { &SHADES_ASCII } else { &SHADES };
            return match self.scale.level(count(places[0]), shades.len()) {
                _ if is_mark(places[0]) => Glyph { c: self.max_mark(), ..BLANK },
                Some(shade) => Glyph { c: shades[shade], ..BLANK },
                None => BLANK,
            };
        }
        let ink = |place: GlyphRow| match self.scale.heat(count(place)) {
            _ if is_mark(place) => Some(MAX),
            heat => heat.map(TerminalColour::for_heat),
        };
        let upper = ink(places[0]);
        // End rows are a full line high, marks half a line.
        let lower = places.get(1).map_or(upper, |&place| ink(place));
        let upper = if places.len() == 1 && upper == Some(MAX) { None } else { upper };
        match (upper, lower) {
            (None, None) => BLANK,
            (Some(_), _) if upper == lower => Glyph { c: '█', foreground: upper, ..BLANK },
            (Some(_), _) => Glyph { c: '▀', foreground: upper, background: lower, ..BLANK },
            (None, Some(_)) => Glyph { c: '▄', foreground: lower, ..BLANK },
        }
    }

    fn max_mark(&self) -> char {
        if self.terminal.ascii { '_' } else { '▁' }
    }

    fn line(&self, name: &str, glyphs: impl Iterator<Item = Glyph>) -> String {
        let edge = plot::edge(self.terminal, !name.is_empty());
        // Labels keep a distance from the edge if they fit.
        let name: String = format!("{name:>width$} ", width = GUTTER - 1);
        let name: String = name.chars().take(GUTTER).collect();
        let mut line = format!("{name}{edge}");
        let mut glyphs: Vec<Glyph> = glyphs.collect();
        let inked = glyphs.iter().rposition(|glyph| *glyph != BLANK).map_or(0, |at| at + 1);
        glyphs.truncate(inked);
        let mut before = BLANK;
        for glyph in glyphs {
            self.write_style_change(&mut line, before, glyph);
            line.push(glyph.c);
            before = glyph;
        }
        self.write_style_change(&mut line, before, BLANK);
        line.trim_end().to_owned()
    }

    /// Writes the escape sequence that changes the style from one glyph to the next.
    fn write_style_change(&self, line: &mut String, from: Glyph, to: Glyph) {
        let look = |glyph: Glyph| (glyph.foreground, glyph.background, glyph.faint);
        if look(from) == look(to) || self.terminal.colour_depth == ColourDepth::None {
            return;
        }
        line.push_str("\x1b[0");
        if to.faint {
            line.push_str(";2");
        }
        for (ground, ink) in [(38, to.foreground), (48, to.background)] {
            let Some(TerminalColour { rgb, palette }) = ink else { continue };
            let _ = match self.terminal.colour_depth {
                ColourDepth::TrueColour => {
                    write!(line, ";{ground};2;{};{};{}", rgb[0], rgb[1], rgb[2])
                }
                _ => write!(line, ";{ground};5;{palette}"),
            };
        }
        line.push('m');
    }

    fn legend(&self) -> String {
        let mut line = "  values per cell".to_owned();
        if self.uses_half_blocks {
            let mut before = BLANK;
            for count in self.scale.marks(MARKS) {
                let heat = self.scale.heat(count).unwrap_or(0.0);
                let ink = Some(TerminalColour::for_heat(heat));
                line.push_str("  ");
                self.swatch(&mut line, &mut before, Glyph { c: '█', foreground: ink, ..BLANK });
                let _ = write!(line, " {}", value_formatter::count(count));
            }
            line.push_str("    ");
            self.swatch(&mut line, &mut before, Glyph { c: '▀', foreground: Some(MAX), ..BLANK });
        } else {
            let shades: &[char] = if self.terminal.ascii { &SHADES_ASCII } else { &SHADES };
            let levels = self.scale.levels(shades.len());
            for (at, (level, least)) in levels.iter().enumerate() {
                let _ = write!(line, "  {} {}", shades[*level], value_formatter::count(*least));
                let next = levels.get(at + 1).map_or(u64::MAX, |next| next.1);
                if next - least > 1 {
                    line.push('+');
                }
            }
            let _ = write!(line, "    {}", self.max_mark());
        }
        line.push_str(" maximum");
        line
    }

    fn swatch(&self, line: &mut String, before: &mut Glyph, glyph: Glyph) {
        self.write_style_change(line, *before, glyph);
        line.push(glyph.c);
        line.push(glyph.c);
        self.write_style_change(line, glyph, BLANK);
        *before = BLANK;
    }
}

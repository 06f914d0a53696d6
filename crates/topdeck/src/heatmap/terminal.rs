//! The heatmap as characters: half blocks where the terminal has enough colours, shades elsewhere.

use std::fmt::Write as _;

use anyhow::Result;

use crate::command::plain;
use crate::heatmap::ramp::{self, Ground, Ramp};
use crate::heatmap::rows::{Counts, Row, Rows};
use crate::heatmap::{Column, Fitted, Heatmap, clock};
use crate::hist::intervals;
use crate::hist::plot::{self, GUTTER};
use crate::hist::show::{self, Show};
use crate::hist::terminal::{Colours, Paint, Terminal};

/// Lines beside the picture: title, totals, axis, legend, time, and the prompt.
const LINES_BESIDE: usize = 9;
const LINES_MIN: usize = 8;
/// Higher, the eye does not see it at once.
const LINES_MAX: usize = 30;
/// Characters from one name below the axis to the next.
const TICK_ROOM: usize = 16;
const SHADES: [char; 5] = ['·', '░', '▒', '▓', '█'];
const SHADES_ASCII: [char; 9] = ['.', ':', '-', '=', '+', '*', '#', '%', '@'];
/// Marks in the legend of colours.
const MARKS: usize = 5;
/// The maximum of a column, in half blocks.
const MAX: Ink = Ink { rgb: [0xff, 0x55, 0x55], palette: 203 };

/// How many columns there is room for.
pub(crate) fn columns(terminal: &Terminal) -> usize {
    terminal.wide.saturating_sub(GUTTER + 1).max(1)
}

/// The picture, what stands beside it, and a line end.
pub(crate) fn text(map: &Heatmap, terminal: &Terminal) -> Result<String> {
    let fitted = map.fitted(columns(terminal))?;
    let show = map.show();
    let mut lines = vec![terminal.paint(Paint::Heading, &plain(&map.title))];
    lines.push(format!("  {}", map.totals()));
    lines.extend(map.exceedances().iter().map(|sentence| format!("  {sentence}")));
    lines.push(String::new());
    if let Some((start, end)) = map.span() {
        lines.extend(Picture::new(&fitted, &show, terminal).lines(start, end));
        let step = fitted.columns.iter().map(|c| c.end.saturating_sub(c.start)).min().unwrap_or(0);
        let time = |ns| intervals::time(ns, step);
        let about = fitted.about().map_or(String::new(), |about| format!("; {about}"));
        let span = format!("  {} to {}{about}", time(start), time(end));
        lines.push(terminal.paint(Paint::Faint, &span));
    }
    let mut missing = map.missing().into_iter();
    lines.extend(missing.next().map(|first| format!("  ? {first}")));
    lines.extend(missing.map(|more| format!("    {}", plain(&more))));
    lines.extend(map.notes.iter().map(|note| format!("  {}", plain(note))));
    Ok(lines.join("\n") + "\n")
}

/// A colour on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ink {
    rgb: [u8; 3],
    /// The same in the palette of 256.
    palette: u8,
}

impl Ink {
    fn of(heat: f64) -> Ink {
        Ink { rgb: ramp::colour(heat, Ground::Either), palette: ramp::palette(heat) }
    }
}

/// One character: what it is, its colour, and the colour behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Glyph {
    c: char,
    ink: Option<Ink>,
    behind: Option<Ink>,
    faint: bool,
}

const BLANK: Glyph = Glyph { c: ' ', ink: None, behind: None, faint: false };

/// Where one row is drawn, and which one is below it. The mark above all rows has no row.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    row: Option<Row>,
    below: Option<Row>,
}

fn on_axis(places: &[Place]) -> bool {
    places[0].row.is_some_and(Row::is_on_axis)
}

/// One column of cells.
struct Cells<'a> {
    column: &'a Column,
    counts: Counts,
    /// The row of the maximum: nothing is above it.
    top: Option<Row>,
}

struct Picture<'a> {
    fitted: &'a Fitted,
    show: &'a Show,
    terminal: &'a Terminal,
    rows: Rows,
    /// Two rows to a line.
    halves: bool,
    columns: Vec<Cells<'a>>,
    ramp: Ramp,
    /// Characters to a column.
    wide: usize,
}

impl<'a> Picture<'a> {
    fn new(fitted: &'a Fitted, show: &'a Show, terminal: &'a Terminal) -> Picture<'a> {
        let coloured = matches!(terminal.colours, Colours::Palette | Colours::True);
        let halves = coloured && !terminal.ascii;
        let lines = terminal.height.saturating_sub(LINES_BESIDE).clamp(LINES_MIN, LINES_MAX);
        let on_axis = if halves { 2 * lines } else { lines };
        let rows = Rows::over(fitted.columns.iter().map(|column| &column.values), show, on_axis);
        let all = rows.all();
        let columns: Vec<Cells<'_>> = fitted
            .columns
            .iter()
            .map(|column| {
                let counts = rows.counts(&column.values, show);
                let max = column.values.max().and_then(|max| rows.row_of(max, show));
                // Where only its bucket is known, that reaches higher than the likeliest value.
                let top = all.iter().copied().find(|&row| max == Some(row) || counts.of(row) > 0);
                Cells { column, counts, top }
            })
            .collect();
        let most = columns.iter().map(|cells| cells.counts.most()).max().unwrap_or(0);
        let wide = (self::columns(terminal) / columns.len().max(1)).max(1);
        Picture { fitted, show, terminal, rows, halves, columns, ramp: Ramp::to(most), wide }
    }

    fn width(&self) -> usize {
        self.columns.len() * self.wide
    }

    fn lines(&self, start: i64, end: i64) -> Vec<String> {
        let groups = self.groups();
        let names = self.names(&groups);
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
            let mark = |cells: &Cells<'_>| if cells.column.gaps.is_empty() { ' ' } else { '?' };
            let marks = self.columns.iter().flat_map(|cells| vec![mark(cells); self.wide]);
            lines.push(self.line("missing", marks.map(|c| Glyph { c, faint: true, ..BLANK })));
        }
        let width = self.width();
        let ticks: Vec<(usize, String)> = clock::ticks(start, end, width.div_ceil(TICK_ROOM))
            .into_iter()
            .filter_map(|(time, name)| {
                let at = (self.fitted.place(time)? * self.wide as f64) as usize;
                Some((at.min(width - 1), name))
            })
            .collect();
        lines.extend(plot::axis_lines(&ticks, width, self.terminal));
        lines.extend((!self.rows.all().is_empty()).then(|| self.legend()));
        lines
    }

    /// The places of each line, top to bottom: two rows of the axis in half blocks, one otherwise. Above all of
    /// them is one for the mark of the greatest value.
    fn groups(&self) -> Vec<Vec<Place>> {
        let all = self.rows.all();
        let mut groups: Vec<Vec<Place>> = Vec::new();
        if !all.is_empty() {
            let above = Place { row: None, below: Some(all[0]) };
            groups.push(if self.halves { vec![Place::default(), above] } else { vec![above] });
        }
        for (at, &row) in all.iter().enumerate() {
            let place = Place { row: Some(row), below: all.get(at + 1).copied() };
            match groups.last_mut() {
                Some(last)
                    if self.halves && last.len() == 1 && on_axis(last) && row.is_on_axis() =>
                {
                    last.push(place);
                }
                _ => groups.push(vec![place]),
            }
        }
        groups
    }

    /// What stands left of each line.
    fn names(&self, groups: &[Vec<Place>]) -> Vec<String> {
        let ascii = self.terminal.ascii;
        let name = |group: &Vec<Place>| {
            group[0].row.map_or(String::new(), |row| self.rows.name(row, self.show, ascii))
        };
        let mut names: Vec<String> = groups.iter().map(name).collect();
        let lines = groups.iter().filter(|group| on_axis(group)).count();
        let first = groups.iter().position(|group| on_axis(group)).unwrap_or(0);
        for tick in
            self.rows.axis.iter().flat_map(|axis| {
                axis.ticks(lines / 2).into_iter().map(|tick| (axis.place(tick), tick))
            })
        {
            let from_top = ((1.0 - tick.0) * lines as f64) as usize;
            let name = &mut names[first + from_top.min(lines - 1)];
            if name.is_empty() {
                *name = self.show.tick(tick.1);
            }
        }
        names
    }

    /// One character of a column: two places above each other, or one.
    fn glyph(&self, cells: &Cells<'_>, places: &[Place], diagonal: usize) -> Glyph {
        if cells.column.is_unknown() {
            let inside = places[0].row.is_some() && diagonal.is_multiple_of(2);
            return Glyph { c: if inside { '?' } else { ' ' }, faint: true, ..BLANK };
        }
        // Above the maximum of a column is nothing: its mark stands there and hides no count.
        let is_mark = |place: Place| cells.top.is_some() && place.below == cells.top;
        let count = |place: Place| place.row.map_or(0, |row| cells.counts.of(row));
        if !self.halves {
            let shades: &[char] = if self.terminal.ascii { &SHADES_ASCII } else { &SHADES };
            return match self.ramp.level(count(places[0]), shades.len()) {
                _ if is_mark(places[0]) => Glyph { c: self.max_mark(), ..BLANK },
                Some(shade) => Glyph { c: shades[shade], ..BLANK },
                None => BLANK,
            };
        }
        let ink = |place: Place| match self.ramp.heat(count(place)) {
            _ if is_mark(place) => Some(MAX),
            heat => heat.map(Ink::of),
        };
        let upper = ink(places[0]);
        // Rows at the ends are a whole line high, marks half a line.
        let lower = places.get(1).map_or(upper, |&place| ink(place));
        let upper = if places.len() == 1 && upper == Some(MAX) { None } else { upper };
        match (upper, lower) {
            (None, None) => BLANK,
            (Some(_), _) if upper == lower => Glyph { c: '█', ink: upper, ..BLANK },
            (Some(_), _) => Glyph { c: '▀', ink: upper, behind: lower, ..BLANK },
            (None, Some(_)) => Glyph { c: '▄', ink: lower, ..BLANK },
        }
    }

    fn max_mark(&self) -> char {
        if self.terminal.ascii { '_' } else { '▁' }
    }

    fn line(&self, name: &str, glyphs: impl Iterator<Item = Glyph>) -> String {
        let edge = match (self.terminal.ascii, name.is_empty()) {
            (true, true) => '|',
            (true, false) => '+',
            (false, true) => '│',
            (false, false) => '┤',
        };
        // Names keep a distance from the edge if they can.
        let name: String = format!("{name:>width$} ", width = GUTTER - 1);
        let name: String = name.chars().take(GUTTER).collect();
        let mut line = format!("{name}{edge}");
        let mut glyphs: Vec<Glyph> = glyphs.collect();
        let inked = glyphs.iter().rposition(|glyph| *glyph != BLANK).map_or(0, |at| at + 1);
        glyphs.truncate(inked);
        let mut before = BLANK;
        for glyph in glyphs {
            self.change(&mut line, before, glyph);
            line.push(glyph.c);
            before = glyph;
        }
        self.change(&mut line, before, BLANK);
        line.trim_end().to_owned()
    }

    /// Writes what the terminal needs to go from the look of one glyph to that of the next.
    fn change(&self, line: &mut String, from: Glyph, to: Glyph) {
        let look = |glyph: Glyph| (glyph.ink, glyph.behind, glyph.faint);
        if look(from) == look(to) || self.terminal.colours == Colours::None {
            return;
        }
        line.push_str("\x1b[0");
        if to.faint {
            line.push_str(";2");
        }
        for (ground, ink) in [(38, to.ink), (48, to.behind)] {
            let Some(Ink { rgb, palette }) = ink else { continue };
            let _ = match self.terminal.colours {
                Colours::True => write!(line, ";{ground};2;{};{};{}", rgb[0], rgb[1], rgb[2]),
                _ => write!(line, ";{ground};5;{palette}"),
            };
        }
        line.push('m');
    }

    fn legend(&self) -> String {
        let mut line = "  values per cell".to_owned();
        if self.halves {
            let mut before = BLANK;
            for count in self.ramp.marks(MARKS) {
                let heat = self.ramp.heat(count).unwrap_or(0.0);
                let ink = Some(Ink::of(heat));
                line.push_str("  ");
                self.swatch(&mut line, &mut before, Glyph { c: '█', ink, ..BLANK });
                let _ = write!(line, " {}", show::count(count));
            }
            line.push_str("    ");
            self.swatch(&mut line, &mut before, Glyph { c: '▀', ink: Some(MAX), ..BLANK });
        } else {
            let shades: &[char] = if self.terminal.ascii { &SHADES_ASCII } else { &SHADES };
            let levels = self.ramp.levels(shades.len());
            for (at, (level, least)) in levels.iter().enumerate() {
                let _ = write!(line, "  {} {}", shades[*level], show::count(*least));
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
        self.change(line, *before, glyph);
        line.push(glyph.c);
        line.push(glyph.c);
        self.change(line, glyph, BLANK);
        *before = BLANK;
    }
}

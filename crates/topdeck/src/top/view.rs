//! Draws the state: a function of nothing else.

use std::ops::Range;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span};

use crate::hist::intervals;
use crate::hist::show;
use crate::hist::terminal::{Colours, Paint, Terminal};
use crate::top::board::{Board, Page};
use crate::top::columns::{Column, age_text, trouble};
use crate::top::process::Process;
use crate::top::series::Series;
use crate::top::table::{Table, cut, width};
use crate::top::{ansi, distribution, keys};
use shm::show::Value;

/// Fills the screen.
pub(crate) fn draw(board: &Board, colours: Colours, area: Rect, buffer: &mut Buffer) {
    let (room, height) = (usize::from(area.width), usize::from(area.height));
    let lines = if board.is_helping {
        help()
    } else {
        match board.page {
            Page::Processes => processes(board, room, height, colours),
            Page::Process => series(board, room, height, colours),
            Page::Histogram => histogram(board, room, height, colours),
        }
    };
    for (y, line) in (area.top()..area.bottom()).zip(lines) {
        let is_whole_line = line.style != Style::new();
        buffer.set_line(area.left(), y, &line, area.width);
        // A bar reaches from end to end.
        if is_whole_line {
            buffer.set_style(Rect { y, height: 1, ..area }, line.style);
        }
    }
}

/// Lines of a page: what is above its rows, how many rows there is room for, and what is below.
struct Frame {
    above: Vec<Line<'static>>,
    rows: usize,
    below: Vec<Line<'static>>,
}

impl Frame {
    /// On a low screen the rows are what stays.
    fn new(
        height: usize,
        title: Line<'static>,
        head: Line<'static>,
        below: [Line<'static>; 2],
    ) -> Frame {
        let mut frame = Frame { above: Vec::new(), rows: height, below: Vec::new() };
        let [status, foot] = below;
        if height >= 3 {
            frame.above.push(title);
        }
        if height >= 2 {
            frame.above.push(head);
        }
        if height >= 6 {
            frame.below.push(status);
        }
        if height >= 5 {
            frame.below.push(foot);
        }
        frame.rows = Frame::room(height);
        frame
    }

    /// How many rows there is room for.
    fn room(height: usize) -> usize {
        height - [2, 3, 5, 6].into_iter().filter(|&least| height >= least).count()
    }

    /// The rows that are seen, the selected one among them: no other is worked out.
    fn seen(selected: usize, rows: usize, height: usize) -> Range<usize> {
        let room = Frame::room(height);
        let first = (selected + 1).saturating_sub(room).min(rows);
        first..rows.min(first + room)
    }

    fn filled(self, mut rows: Vec<Line<'static>>) -> Vec<Line<'static>> {
        rows.resize(self.rows, Line::default());
        self.above.into_iter().chain(rows).chain(self.below).collect()
    }
}

fn processes(board: &Board, room: usize, height: usize, colours: Colours) -> Vec<Line<'static>> {
    let rows = board.rows();
    let columns = Column::of_processes(&rows);
    let headings = columns.iter().map(|column| column.heading(board.order.mark(*column))).collect();
    let cells =
        |process: &&Process| columns.iter().map(|column| column.of_process(process)).collect();
    let at = board.selected();
    let shown = Frame::seen(at, rows.len(), height);
    let table = Table { headings, rows: rows[shown.clone()].iter().map(cells).collect() };
    let placed = table.fit(room);
    let selected = board.process();
    let of = counted(rows.len(), board.processes.len(), "process", "processes");
    let title =
        title(board, "topdeck top", &[of, format!("by {}", board.order.by.name())], room, colours);
    let head = Line::styled(table.head(&placed, room), head_style());
    let status = selected.map_or_else(
        || (board.problems.first().cloned().unwrap_or_default(), Paint::Max),
        |process| status_of(board, process),
    );
    let below = [painted(&cut(&status.0, room), status.1, colours), foot(board, room, colours)];
    let frame = Frame::new(height, title, head, below);
    if rows.is_empty() {
        return filled_with_reason(board, frame, colours);
    }
    let lines = shown.clone().map(|row| {
        let is_gone = rows[row].fate.is_gone();
        row_line(&table, row - shown.start, &placed, room, colours, row == at, is_gone)
    });
    let lines = lines.collect();
    frame.filled(lines)
}

fn series(board: &Board, room: usize, height: usize, colours: Colours) -> Vec<Line<'static>> {
    let Some(process) = board.process() else {
        return vec![Line::raw("The process is gone; q goes back.")];
    };
    let rows = board.series_rows();
    let at = board.selected();
    let shown = Frame::seen(at, rows.len(), height);
    let cells = |series: &&Series| {
        let cell = |column: Column| column.of_series(series, process.looked_ns);
        Column::OF_SERIES.into_iter().map(cell).collect()
    };
    let mark = |column: Column| column.heading(board.series_order.mark(column));
    let table = Table {
        headings: Column::OF_SERIES.into_iter().map(mark).collect(),
        rows: rows[shown.clone()].iter().map(cells).collect(),
    };
    let placed = table.fit(room);
    let name = format!("{} {}", process.program, process.pid);
    let gone = process.fate.is_gone().then(|| process.fate.name().to_uppercase());
    // Sums are rows, too, but no metrics of the process.
    let own = rows.iter().filter(|series| series.members == 1).count();
    let of = counted(own, process.series.len(), "metric", "metrics");
    let by = format!("by {}", board.series_order.by.name());
    let parts: Vec<String> = gone.into_iter().chain([process.format.to_owned(), of, by]).collect();
    let title = title(board, &name, &parts, room, colours);
    let head = Line::styled(table.head(&placed, room), head_style());
    let status =
        rows.get(at).map_or((String::new(), Paint::Faint), |series| about(series, process));
    let below = [painted(&cut(&status.0, room), status.1, colours), foot(board, room, colours)];
    let frame = Frame::new(height, title, head, below);
    let line = |row| row_line(&table, row - shown.start, &placed, room, colours, row == at, false);
    let lines = shown.clone().map(line).collect();
    frame.filled(lines)
}

fn histogram(board: &Board, room: usize, height: usize, colours: Colours) -> Vec<Line<'static>> {
    let (Some(process), Some(series)) = (board.process(), board.series()) else {
        return vec![Line::raw("It is gone; q goes back.")];
    };
    let name = format!("{} {}", process.program, process.pid);
    let title = title(board, &name, &[process.format.to_owned()], room, colours);
    let head = Line::styled(cut(&series.shown, room), head_style());
    let (text, paint) = about(series, process);
    let below = [painted(&cut(&text, room), paint, colours), foot(board, room, colours)];
    let frame = Frame::new(height, title, head, below);
    let screen = Terminal { width: room, wide: room, height: frame.rows, ascii: false, colours };
    let lines: Vec<String> = distribution::lines(board, series, &screen);
    board.scroll_max.set(lines.len().saturating_sub(frame.rows));
    let scroll = board.scroll.min(board.scroll_max.get());
    let lines = lines.iter().skip(scroll).take(frame.rows).map(|line| ansi::line(line)).collect();
    frame.filled(lines)
}

fn help() -> Vec<Line<'static>> {
    let keys = keys::HELP.iter().map(|(key, about)| format!("  {key:<12}  {about}"));
    let text = ["Keys".to_owned(), String::new()].into_iter().chain(keys).chain([
        String::new(),
        "A row is a process with its busiest timing histogram, all series of that name together."
            .to_owned(),
        "rate, p50, p99 and max are of the last interval; percentiles are within 1.1 %.".to_owned(),
        "in flight: what has begun and not ended, and the age of the oldest.".to_owned(),
        "The bars are p99 on a logarithmic scale of their own, from least to most or ten times."
            .to_owned(),
        String::new(),
        "Any key goes on.".to_owned(),
    ]);
    text.map(Line::raw).collect()
}

/// `3 of 12 processes`.
fn counted(shown: usize, all: usize, one: &str, many: &str) -> String {
    let (shown, all) = (shown as u64, all as u64);
    let noun = if all == 1 { one } else { many };
    if shown == all {
        format!("{} {noun}", show::count(all))
    } else {
        format!("{} of {} {noun}", show::count(shown), show::count(all))
    }
}

/// The first line: what there is room for.
fn title(
    board: &Board,
    name: &str,
    parts: &[String],
    room: usize,
    colours: Colours,
) -> Line<'static> {
    let mut all: Vec<(String, Option<Paint>)> = vec![(cut(name, room), Some(Paint::Heading))];
    if board.is_paused {
        all.push(("PAUSED".into(), Some(Paint::Max)));
    }
    if let Some(moment) = board.moment {
        match moment.length_ns {
            None => all.push(("first look".into(), Some(Paint::Max))),
            Some(length) => {
                let length = format!("{:.2} s", length as f64 / 1e9);
                all.push(match (moment.is_late, moment.is_after_pause) {
                    (true, _) => (format!("LATE: last {length}"), Some(Paint::Max)),
                    (_, true) => (format!("last {length}, a pause"), Some(Paint::Max)),
                    _ => (format!("last {length}"), None),
                });
            }
        }
    }
    all.extend(parts.iter().map(|part| (part.clone(), None)));
    if let Some(moment) = board.moment {
        all.push((intervals::time(moment.unix_ns, intervals::NS_PER_S), Some(Paint::Faint)));
    }
    let (mut spans, mut taken) = (Vec::new(), 0);
    for (text, paint) in all {
        let gap = if spans.is_empty() { 0 } else { 3 };
        if taken + gap + width(&text) > room {
            break;
        }
        taken += gap + width(&text);
        spans.push(Span::raw(" ".repeat(gap)));
        spans.push(Span::styled(text, paint.map_or(Style::new(), |paint| style(paint, colours))));
    }
    Line::from(spans)
}

/// What is to be said of the process that is selected, and how loudly.
fn status_of(board: &Board, process: &Process) -> (String, Paint) {
    if let Some(trouble) = trouble(process) {
        return (trouble, Paint::Max);
    }
    if let [problem, more @ ..] = &board.problems[..] {
        let more =
            if more.is_empty() { String::new() } else { format!(" (and {} more)", more.len()) };
        return (
            format!("a file could not be read{more}: {}", crate::command::plain(problem)),
            Paint::Max,
        );
    }
    let metric = process.busiest().map_or(String::new(), |series| format!("{}: ", series.shown));
    (format!("{metric}{}", process.command), Paint::Faint)
}

/// What is to be said of the metric that is selected.
fn about(series: &Series, process: &Process) -> (String, Paint) {
    if let Some(why) = series.why_unknown().filter(|_| series.is_histogram()) {
        return (format!("? {why}"), Paint::Max);
    }
    if let Some(Value::InFlight(table)) = series.value()
        && let Some(oldest) = table.operations.first()
    {
        let tags: Vec<String> =
            oldest.tags.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        let age = age_text(process.looked_ns.saturating_sub(oldest.start_ns));
        let text = format!("oldest: {age}, number {}, {}", oldest.number, tags.join(", "));
        return (crate::command::plain(&text), Paint::Heading);
    }
    if let Some(Value::Unknown(why)) = series.value() {
        return (format!("? {why}"), Paint::Max);
    }
    (series.help.clone(), Paint::Faint)
}

fn filled_with_reason(board: &Board, frame: Frame, colours: Colours) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    if !board.processes.is_empty() {
        lines.push(Line::raw("  No row has the words of the filter; Esc takes it away."));
    } else {
        lines.push(Line::raw(
            "  No process of this host shows metrics in shared memory that may be read.",
        ));
        lines.push(Line::raw(
            "  A program does once it uses the crate shm, or runs on a Java virtual machine.",
        ));
    }
    for problem in board.problems.iter().take(frame.rows.saturating_sub(4)) {
        lines.push(painted(&format!("  {}", crate::command::plain(problem)), Paint::Max, colours));
    }
    lines.truncate(frame.rows);
    frame.filled(lines)
}

/// The last line: the filter while it is written, or else keys.
fn foot(board: &Board, room: usize, colours: Colours) -> Line<'static> {
    let filter = if board.page == Page::Processes { &board.filter } else { &board.series_filter };
    if board.is_editing {
        return Line::from(vec![
            Span::styled("/", style(Paint::Heading, colours)),
            Span::raw(filter.clone()),
            Span::styled("_", style(Paint::Heading, colours)),
            Span::styled("   Enter keeps it, Esc takes it away", style(Paint::Faint, colours)),
        ]);
    }
    let mut keys: Vec<String> = match board.page {
        Page::Processes => [
            "q quit",
            "? help",
            "Enter open",
            "s sort",
            "/ filter",
            "space pause",
            "r reverse",
            "+ - interval",
        ]
        .map(str::to_owned)
        .to_vec(),
        Page::Process => [
            "q back",
            "? help",
            "Enter histogram",
            "s sort",
            "/ filter",
            "space pause",
            "r reverse",
            "+ - interval",
        ]
        .map(str::to_owned)
        .to_vec(),
        Page::Histogram => {
            ["q back", "? help", "w window", "up down scroll", "space pause", "+ - interval"]
                .map(str::to_owned)
                .to_vec()
        }
    };
    if !filter.is_empty() && board.page != Page::Histogram {
        keys.insert(0, format!("/{filter}"));
    }
    let mut text = String::new();
    for key in keys {
        let gap = if text.is_empty() { "" } else { "  " };
        if width(&text) + gap.len() + width(&key) > room {
            break;
        }
        text.push_str(gap);
        text.push_str(&key);
    }
    painted(&text, Paint::Faint, colours)
}

fn row_line(
    table: &Table,
    row: usize,
    placed: &[crate::top::table::Placed],
    room: usize,
    colours: Colours,
    is_selected: bool,
    is_gone: bool,
) -> Line<'static> {
    let parts = table.line(row, placed, room).into_iter().map(|(text, paint)| {
        // A bar is of one colour.
        let paint = paint.filter(|_| !is_selected);
        let paint = if is_gone && !is_selected {
            paint.filter(|paint| *paint == Paint::Max).or(Some(Paint::Faint))
        } else {
            paint
        };
        Span::styled(text, paint.map_or(Style::new(), |paint| style(paint, colours)))
    });
    let line = Line::from(parts.collect::<Vec<_>>());
    if is_selected { line.style(Style::new().add_modifier(Modifier::REVERSED)) } else { line }
}

fn painted(text: &str, paint: Paint, colours: Colours) -> Line<'static> {
    Line::from(Span::styled(text.to_owned(), style(paint, colours)))
}

fn head_style() -> Style {
    Style::new().add_modifier(Modifier::UNDERLINED | Modifier::BOLD)
}

/// The same looks as pictures have.
fn style(paint: Paint, colours: Colours) -> Style {
    let style = match paint {
        Paint::Heading => Style::new().add_modifier(Modifier::BOLD),
        Paint::Bar => Style::new().fg(Color::Cyan),
        Paint::Doubt => Style::new().fg(Color::Cyan).add_modifier(Modifier::DIM),
        Paint::Max => Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD),
        Paint::Faint => Style::new().add_modifier(Modifier::DIM),
    };
    if colours == Colours::None { Style { fg: None, bg: None, ..style } } else { style }
}

#[cfg(test)]
mod tests;

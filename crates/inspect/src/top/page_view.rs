//! Rendering of the state (pure function).

use std::ops::Range;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span};

use crate::top::app_state::{AppPage, AppState};
use crate::top::column_table::{ColumnTable, display_width, truncate};
use crate::top::columns::{TableColumn, age_text, row_status};
use crate::top::process_history::ProcessHistory;
use crate::top::series_history::SeriesHistory;
use crate::top::{ansi, distribution, keys};
use render::terminal::{ColourDepth, Terminal, TextStyle};
use render::value_formatter;
use shm::snapshot::MetricValue;

/// Draws the screen.
pub fn draw(board: &AppState, colours: ColourDepth, area: Rect, buffer: &mut Buffer) {
    let (room, height) = (usize::from(area.width), usize::from(area.height));
    let lines = if board.is_helping {
        help_lines()
    } else {
        match board.page {
            AppPage::Processes => process_lines(board, room, height, colours),
            AppPage::Process => series_lines(board, room, height, colours),
            AppPage::Histogram => histogram_lines(board, room, height, colours),
        }
    };
    for (y, line) in (area.top()..area.bottom()).zip(lines) {
        let is_whole_line = line.style != Style::new();
        buffer.set_line(area.left(), y, &line, area.width);
        // A bar fills the whole line.
        if is_whole_line {
            buffer.set_style(Rect { y, height: 1, ..area }, line.style);
        }
    }
}

/// Page layout: header, row capacity, footer.
struct PageLayout {
    header: Vec<Line<'static>>,
    rows: usize,
    footer: Vec<Line<'static>>,
}

impl PageLayout {
    /// On a low screen only the rows remain.
    fn new(
        height: usize,
        title: Line<'static>,
        head: Line<'static>,
        below: [Line<'static>; 2],
    ) -> PageLayout {
        let mut frame = PageLayout { header: Vec::new(), rows: height, footer: Vec::new() };
        let [status, foot] = below;
        if height >= 3 {
            frame.header.push(title);
        }
        if height >= 2 {
            frame.header.push(head);
        }
        if height >= 6 {
            frame.footer.push(status);
        }
        if height >= 5 {
            frame.footer.push(foot);
        }
        frame.rows = PageLayout::row_capacity(height);
        frame
    }

    /// Number of rows that fit.
    fn row_capacity(height: usize) -> usize {
        height - [2, 3, 5, 6].into_iter().filter(|&least| height >= least).count()
    }

    /// Visible rows, including the selected one; other rows are not formatted.
    fn visible_rows(selected: usize, rows: usize, height: usize) -> Range<usize> {
        let room = PageLayout::row_capacity(height);
        let first = (selected + 1).saturating_sub(room).min(rows);
        first..rows.min(first + room)
    }

    fn with_rows(self, mut rows: Vec<Line<'static>>) -> Vec<Line<'static>> {
        rows.resize(self.rows, Line::default());
        self.header.into_iter().chain(rows).chain(self.footer).collect()
    }
}

fn process_lines(
    board: &AppState,
    room: usize,
    height: usize,
    colours: ColourDepth,
) -> Vec<Line<'static>> {
    let rows = board.visible_processes();
    let columns = TableColumn::process_columns(&rows);
    let headings =
        columns.iter().map(|column| column.heading(board.order.column_mark(*column))).collect();
    let cells = |process: &&ProcessHistory| {
        columns.iter().map(|column| column.process_cell(process)).collect()
    };
    let at = board.selected();
    let visible_rows = PageLayout::visible_rows(at, rows.len(), height);
    let table =
        ColumnTable { headings, rows: rows[visible_rows.clone()].iter().map(cells).collect() };
    let placed = table.fit_columns(room);
    let selected = board.selected_process();
    let of = count_text(rows.len(), board.processes.len(), "process", "processes");
    let title = title_line(
        board,
        "topdeck top",
        &[of, format!("by {}", board.order.by.name())],
        room,
        colours,
    );
    let head = Line::styled(table.head(&placed, room), head_style());
    let status = selected.map_or_else(
        || (board.errors.first().cloned().unwrap_or_default(), TextStyle::Max),
        |process| process_status(board, process),
    );
    let below = [
        styled_line(&truncate(&status.0, room), status.1, colours),
        footer_line(board, room, colours),
    ];
    let frame = PageLayout::new(height, title, head, below);
    if rows.is_empty() {
        return filled_with_reason(board, frame, colours);
    }
    let lines = visible_rows.clone().map(|row| {
        let is_gone = rows[row].state.has_ended();
        row_line(&table, row - visible_rows.start, &placed, room, colours, row == at, is_gone)
    });
    let lines = lines.collect();
    frame.with_rows(lines)
}

fn series_lines(
    board: &AppState,
    room: usize,
    height: usize,
    colours: ColourDepth,
) -> Vec<Line<'static>> {
    let Some(process) = board.selected_process() else {
        return vec![Line::raw("The process has exited; q goes back.")];
    };
    let rows = board.visible_series();
    let at = board.selected();
    let visible_rows = PageLayout::visible_rows(at, rows.len(), height);
    let cells = |series: &&SeriesHistory| {
        let cell = |column: TableColumn| column.series_cell(series, process.sampled_ns);
        TableColumn::SERIES_COLUMNS.into_iter().map(cell).collect()
    };
    let mark = |column: TableColumn| column.heading(board.series_order.column_mark(column));
    let table = ColumnTable {
        headings: TableColumn::SERIES_COLUMNS.into_iter().map(mark).collect(),
        rows: rows[visible_rows.clone()].iter().map(cells).collect(),
    };
    let placed = table.fit_columns(room);
    let name = format!("{} {}", process.program, process.pid);
    let exit_state = process.state.has_ended().then(|| process.state.name().to_uppercase());
    // Totals are rows too, but not metrics of the process.
    let own = rows.iter().filter(|series| series.members == 1).count();
    let of = count_text(own, process.series.len(), "metric", "metrics");
    let by = format!("by {}", board.series_order.by.name());
    let parts: Vec<String> =
        exit_state.into_iter().chain([process.format.to_owned(), of, by]).collect();
    let title = title_line(board, &name, &parts, room, colours);
    let head = Line::styled(table.head(&placed, room), head_style());
    let status = rows
        .get(at)
        .map_or((String::new(), TextStyle::Faint), |series| series_status(series, process));
    let below = [
        styled_line(&truncate(&status.0, room), status.1, colours),
        footer_line(board, room, colours),
    ];
    let frame = PageLayout::new(height, title, head, below);
    let line =
        |row| row_line(&table, row - visible_rows.start, &placed, room, colours, row == at, false);
    let lines = visible_rows.clone().map(line).collect();
    frame.with_rows(lines)
}

fn histogram_lines(
    board: &AppState,
    room: usize,
    height: usize,
    colours: ColourDepth,
) -> Vec<Line<'static>> {
    let (Some(process), Some(series)) = (board.selected_process(), board.selected_series()) else {
        return vec![Line::raw("The metric is gone; q goes back.")];
    };
    let name = format!("{} {}", process.program, process.pid);
    let title = title_line(board, &name, &[process.format.to_owned()], room, colours);
    let head = Line::styled(truncate(&series.display_name, room), head_style());
    let (text, paint) = series_status(series, process);
    let below =
        [styled_line(&truncate(&text, room), paint, colours), footer_line(board, room, colours)];
    let frame = PageLayout::new(height, title, head, below);
    let screen = Terminal {
        width: room,
        raw_width: room,
        height: frame.rows,
        ascii: false,
        colour_depth: colours,
    };
    let lines: Vec<String> = distribution::page_lines(board, series, &screen);
    board.scroll_max.set(lines.len().saturating_sub(frame.rows));
    let scroll = board.scroll.min(board.scroll_max.get());
    let lines =
        lines.iter().skip(scroll).take(frame.rows).map(|line| ansi::parse_line(line)).collect();
    frame.with_rows(lines)
}

fn help_lines() -> Vec<Line<'static>> {
    let keys = keys::HELP.iter().map(|(key, about)| format!("  {key:<12}  {about}"));
    let text = ["Keys".to_owned(), String::new()].into_iter().chain(keys).chain([
        String::new(),
        "A row is a process with its busiest timing histogram, all series of that name together."
            .to_owned(),
        "rate, p50, p99 and max are of the last interval; percentiles are within 1.1 %.".to_owned(),
        "in flight: number of in-flight operations, and the age of the oldest.".to_owned(),
        "The bars are p99 on a logarithmic scale of their own, from least to most or ten times."
            .to_owned(),
        String::new(),
        "Press any key to continue.".to_owned(),
    ]);
    text.map(Line::raw).collect()
}

/// `3 of 12 processes`.
fn count_text(visible_count: usize, all: usize, one: &str, many: &str) -> String {
    let (visible_count, all) = (visible_count as u64, all as u64);
    let noun = if all == 1 { one } else { many };
    if visible_count == all {
        format!("{} {noun}", value_formatter::count(all))
    } else {
        format!(
            "{} of {} {noun}",
            value_formatter::count(visible_count),
            value_formatter::count(all)
        )
    }
}

/// First line, as far as it fits.
fn title_line(
    board: &AppState,
    name: &str,
    parts: &[String],
    room: usize,
    colours: ColourDepth,
) -> Line<'static> {
    let mut all: Vec<(String, Option<TextStyle>)> =
        vec![(truncate(name, room), Some(TextStyle::Heading))];
    if board.is_paused {
        all.push(("PAUSED".into(), Some(TextStyle::Max)));
    }
    if let Some(sample_time) = board.last_sample {
        match sample_time.interval_ns {
            None => all.push(("first sample".into(), Some(TextStyle::Max))),
            Some(length) => {
                let length = format!("{:.2} s", length as f64 / 1e9);
                all.push(match (sample_time.is_late, sample_time.is_after_pause) {
                    (true, _) => (format!("LATE: last {length}"), Some(TextStyle::Max)),
                    (_, true) => (format!("last {length}, a pause"), Some(TextStyle::Max)),
                    _ => (format!("last {length}"), None),
                });
            }
        }
    }
    all.extend(parts.iter().map(|part| (part.clone(), None)));
    if let Some(sample_time) = board.last_sample {
        all.push((
            render::time::time_text(sample_time.unix_ns, render::time::NS_PER_S),
            Some(TextStyle::Faint),
        ));
    }
    let (mut spans, mut taken) = (Vec::new(), 0);
    for (text, paint) in all {
        let gap = if spans.is_empty() { 0 } else { 3 };
        if taken + gap + display_width(&text) > room {
            break;
        }
        taken += gap + display_width(&text);
        spans.push(Span::raw(" ".repeat(gap)));
        spans.push(Span::styled(text, paint.map_or(Style::new(), |paint| style(paint, colours))));
    }
    Line::from(spans)
}

/// Status of the selected process, and its severity.
fn process_status(board: &AppState, process: &ProcessHistory) -> (String, TextStyle) {
    if let Some(error) = row_status(process) {
        return (error, TextStyle::Max);
    }
    if let [problem, more @ ..] = &board.errors[..] {
        let more =
            if more.is_empty() { String::new() } else { format!(" (and {} more)", more.len()) };
        return (
            format!("a file could not be read{more}: {}", render::text::escape_control(problem)),
            TextStyle::Max,
        );
    }
    let metric =
        process.busiest().map_or(String::new(), |series| format!("{}: ", series.display_name));
    (format!("{metric}{}", process.command), TextStyle::Faint)
}

/// Status of the selected metric.
fn series_status(series: &SeriesHistory, process: &ProcessHistory) -> (String, TextStyle) {
    if let Some(reason) = series.unknown_reason().filter(|_| series.is_histogram()) {
        return (format!("? {reason}"), TextStyle::Max);
    }
    if let Some(MetricValue::InFlight(table)) = series.value()
        && let Some(oldest) = table.operations.first()
    {
        let tags: Vec<String> =
            oldest.tags.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        let age = age_text(process.sampled_ns.saturating_sub(oldest.start_ns));
        let text = format!("oldest: {age}, number {}, {}", oldest.number, tags.join(", "));
        return (render::text::escape_control(&text), TextStyle::Heading);
    }
    if let Some(MetricValue::Unknown(reason)) = series.value() {
        return (format!("? {reason}"), TextStyle::Max);
    }
    (series.help.clone(), TextStyle::Faint)
}

fn filled_with_reason(
    board: &AppState,
    frame: PageLayout,
    colours: ColourDepth,
) -> Vec<Line<'static>> {
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
    for problem in board.errors.iter().take(frame.rows.saturating_sub(4)) {
        lines.push(styled_line(
            &format!("  {}", render::text::escape_control(problem)),
            TextStyle::Max,
            colours,
        ));
    }
    lines.truncate(frame.rows);
    frame.with_rows(lines)
}

/// Last line: the filter while it is edited, else keys.
fn footer_line(board: &AppState, room: usize, colours: ColourDepth) -> Line<'static> {
    let filter =
        if board.page == AppPage::Processes { &board.filter } else { &board.series_filter };
    if board.is_editing {
        return Line::from(vec![
            Span::styled("/", style(TextStyle::Heading, colours)),
            Span::raw(filter.clone()),
            Span::styled("_", style(TextStyle::Heading, colours)),
            Span::styled("   Enter keeps it, Esc takes it away", style(TextStyle::Faint, colours)),
        ]);
    }
    let mut keys: Vec<String> = match board.page {
        AppPage::Processes => [
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
        AppPage::Process => [
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
        AppPage::Histogram => {
            ["q back", "? help", "w window", "up down scroll", "space pause", "+ - interval"]
                .map(str::to_owned)
                .to_vec()
        }
    };
    if !filter.is_empty() && board.page != AppPage::Histogram {
        keys.insert(0, format!("/{filter}"));
    }
    let mut text = String::new();
    for key in keys {
        let gap = if text.is_empty() { "" } else { "  " };
        if display_width(&text) + gap.len() + display_width(&key) > room {
            break;
        }
        text.push_str(gap);
        text.push_str(&key);
    }
    styled_line(&text, TextStyle::Faint, colours)
}

fn row_line(
    table: &ColumnTable,
    row: usize,
    placed: &[crate::top::column_table::VisibleColumn],
    room: usize,
    colours: ColourDepth,
    is_selected: bool,
    is_gone: bool,
) -> Line<'static> {
    let parts = table.row_cells(row, placed, room).into_iter().map(|(text, paint)| {
        // A bar has one colour.
        let paint = paint.filter(|_| !is_selected);
        let paint = if is_gone && !is_selected {
            paint.filter(|paint| *paint == TextStyle::Max).or(Some(TextStyle::Faint))
        } else {
            paint
        };
        Span::styled(text, paint.map_or(Style::new(), |paint| style(paint, colours)))
    });
    let line = Line::from(parts.collect::<Vec<_>>());
    if is_selected { line.style(Style::new().add_modifier(Modifier::REVERSED)) } else { line }
}

fn styled_line(text: &str, paint: TextStyle, colours: ColourDepth) -> Line<'static> {
    Line::from(Span::styled(text.to_owned(), style(paint, colours)))
}

fn head_style() -> Style {
    Style::new().add_modifier(Modifier::UNDERLINED | Modifier::BOLD)
}

/// The style used in graphs.
fn style(paint: TextStyle, colours: ColourDepth) -> Style {
    let style = match paint {
        TextStyle::Heading => Style::new().add_modifier(Modifier::BOLD),
        TextStyle::Bar => Style::new().fg(Color::Cyan),
        TextStyle::Uncertain => Style::new().fg(Color::Cyan).add_modifier(Modifier::DIM),
        TextStyle::Max => Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD),
        TextStyle::Faint => Style::new().add_modifier(Modifier::DIM),
    };
    if colours == ColourDepth::None { Style { fg: None, bg: None, ..style } } else { style }
}

#[cfg(test)]
mod tests;

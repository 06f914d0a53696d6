//! Application state and key handling; no clock, no I/O.

use std::cell::Cell;
use std::path::PathBuf;

use crate::top::detail_selection::DetailSelection;
use crate::top::process_history::ProcessHistory;
use crate::top::process_sample::ProcessSample;
use crate::top::series_history::SeriesHistory;
use crate::top::sort_order::{SortKey, SortOrder, matches_filter};

/// Time for which an exited process stays listed.
const EXITED_SHOWN_NS: u64 = 10_000_000_000;
/// Intervals selectable by keys.
const INTERVALS_NS: [u64; 7] = [
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];
/// An interval longer than requested by this ratio is reported.
const LATE_RATIO: f64 = 1.2;
const LATE_NS: u64 = 20_000_000;

/// State of the application.
#[derive(Debug)]
pub struct AppState {
    pub(crate) processes: Vec<ProcessHistory>,
    pub(crate) page: AppPage,
    /// Sort orders of the process list and the metric list.
    pub(crate) order: SortOrder,
    pub(crate) series_order: SortOrder,
    /// Filters of the same two lists.
    pub(crate) filter: String,
    pub(crate) series_filter: String,
    /// Whether keys edit the filter.
    pub is_editing: bool,
    /// Whether sampling is paused.
    pub is_paused: bool,
    pub(crate) is_helping: bool,
    /// Whether the user quit.
    pub is_done: bool,
    /// Sampling interval in nanoseconds.
    pub interval_ns: u64,
    pub(crate) last_sample: Option<SampleTime>,
    /// Processes that could not be read, with the reason.
    pub errors: Vec<String>,
    process: Option<PathBuf>,
    series: Option<String>,
    pub(crate) window: HistogramWindow,
    /// Lines of a long page above the screen.
    pub(crate) scroll: usize,
    /// Largest `scroll` of the page as last drawn.
    pub(crate) scroll_max: Cell<usize>,
}

/// Time of the latest samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleTime {
    pub(crate) at_ns: u64,
    /// The same as nanoseconds since the Unix epoch.
    pub(crate) unix_ns: i64,
    /// Time since the previous samples; `None` after the first.
    pub(crate) interval_ns: Option<u64>,
    pub(crate) is_late: bool,
    pub(crate) is_after_pause: bool,
}

/// Current page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppPage {
    Processes,
    Process,
    Histogram,
}

/// Time window of a histogram page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistogramWindow {
    Minute,
    Start,
    Interval,
}

/// Action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAction {
    /// Moves down by that many rows.
    Move(isize),
    /// Selects the first row.
    First,
    /// Selects the last row.
    Last,
    /// Opens the selected row.
    Open,
    /// Returns to the previous page.
    Back,
    /// Clears the filter, or goes back.
    Escape,
    /// Quits.
    Quit,
    /// Sorts by the next column.
    Sort,
    /// Reverses the order.
    Reverse,
    /// Starts editing the filter.
    Filter,
    /// Pauses or resumes.
    Pause,
    /// Lengthens the interval.
    Longer,
    /// Shortens the interval.
    Shorter,
    /// Selects the next window of a histogram.
    Window,
    /// Shows the keys.
    Help,
    /// Character of the filter.
    Char(char),
    /// Removes the last character of the filter.
    Erase,
    /// Ends editing and keeps the filter.
    Accept,
    /// Ends editing and removes the filter.
    Clear,
}

impl AppState {
    /// State without processes; interval in nanoseconds.
    pub fn new(interval_ns: u64) -> AppState {
        AppState {
            processes: Vec::new(),
            page: AppPage::Processes,
            order: SortOrder::new(SortKey::Rate),
            series_order: SortOrder::new(SortKey::Metric),
            filter: String::new(),
            series_filter: String::new(),
            is_editing: false,
            is_paused: false,
            is_helping: false,
            is_done: false,
            interval_ns,
            last_sample: None,
            errors: Vec::new(),
            process: None,
            series: None,
            window: HistogramWindow::Minute,
            scroll: 0,
            scroll_max: Cell::new(0),
        }
    }

    /// Whether no process is known.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Adds samples of all processes, taken at this time.
    pub(crate) fn record_samples(
        &mut self,
        looks: Vec<ProcessSample>,
        at_ns: u64,
        unix_ns: i64,
        after_pause: bool,
    ) {
        let length_ns = self.last_sample.map(|sample_time| at_ns.saturating_sub(sample_time.at_ns));
        let due_ns = self.interval_ns as f64 * LATE_RATIO;
        let is_late = length_ns
            .is_some_and(|length| length as f64 > due_ns && length > self.interval_ns + LATE_NS);
        self.last_sample = Some(SampleTime {
            at_ns,
            unix_ns,
            interval_ns: length_ns,
            is_late: is_late && !after_pause,
            is_after_pause: after_pause,
        });
        for look in looks {
            let is_open =
                self.page != AppPage::Processes && self.process.as_ref() == Some(&look.path);
            match self.processes.iter_mut().find(|known| known.path == look.path) {
                Some(known) => known.record(look, is_open),
                None => self.processes.push(ProcessHistory::new(look, is_open)),
            }
        }
        // The page of an exited process stays while it is open.
        let open = if self.page == AppPage::Processes { None } else { self.process.clone() };
        self.processes.retain(|process| {
            let is_recent =
                process.ended_ns.is_none_or(|gone| at_ns.saturating_sub(gone) <= EXITED_SHOWN_NS);
            is_recent || open.as_ref() == Some(&process.path)
        });
    }

    /// Series to read in detail with the next sample: those on the screen, and those that the next
    /// key may open.
    pub fn detail_selection(&self) -> DetailSelection {
        let row = |process: &ProcessHistory| {
            Some((process.path.clone(), process.busiest_name()?.to_owned()))
        };
        DetailSelection {
            is_all: false,
            process: self.selected_process().map(|process| process.path.clone()),
            rows: self.processes.iter().filter_map(row).collect(),
        }
    }

    /// Visible processes in order.
    pub(crate) fn visible_processes(&self) -> Vec<&ProcessHistory> {
        let mut rows: Vec<&ProcessHistory> = self
            .processes
            .iter()
            .filter(|process| {
                let metric = process.busiest().map_or("", |series| &series.display_name);
                let pid = process.pid.to_string();
                matches_filter(&self.filter, &[&process.program, &pid, metric])
            })
            .collect();
        self.order.sort_processes(&mut rows);
        rows
    }

    /// Visible metrics of the open process in order.
    pub(crate) fn visible_series(&self) -> Vec<&SeriesHistory> {
        let Some(process) = self.selected_process() else { return Vec::new() };
        let mut rows = process.rows();
        rows.retain(|series| matches_filter(&self.series_filter, &[&series.display_name]));
        self.series_order.sort_series(&mut rows);
        rows
    }

    /// Selected process: the first in the list if the previous one is no longer visible.
    pub(crate) fn selected_process(&self) -> Option<&ProcessHistory> {
        if self.page == AppPage::Processes {
            return self.visible_processes().get(self.selected()).copied();
        }
        self.processes.iter().find(|process| Some(&process.path) == self.process.as_ref())
    }

    /// Selected metric.
    pub(crate) fn selected_series(&self) -> Option<&SeriesHistory> {
        let rows = self.visible_series();
        if self.page == AppPage::Histogram {
            let process = self.selected_process()?;
            return process
                .rows()
                .into_iter()
                .find(|series| Some(&series.display_name) == self.series.as_ref());
        }
        rows.get(self.selected()).copied()
    }

    /// Index of the selected row.
    pub(crate) fn selected(&self) -> usize {
        let found = match self.page {
            AppPage::Processes => self
                .visible_processes()
                .iter()
                .position(|process| Some(&process.path) == self.process.as_ref()),
            _ => self
                .visible_series()
                .iter()
                .position(|series| Some(&series.display_name) == self.series.as_ref()),
        };
        found.unwrap_or(0)
    }

    fn select(&mut self, row: usize) {
        match self.page {
            AppPage::Processes => {
                let rows = self.visible_processes();
                let row = row.min(rows.len().saturating_sub(1));
                self.process = rows.get(row).map(|process| process.path.clone());
            }
            _ => {
                let rows = self.visible_series();
                let row = row.min(rows.len().saturating_sub(1));
                self.series = rows.get(row).map(|series| series.display_name.clone());
            }
        }
    }

    /// Applies the action of a key.
    pub fn apply(&mut self, action: KeyAction) {
        // Any key closes the help.
        if std::mem::take(&mut self.is_helping) && action != KeyAction::Quit {
            return;
        }
        match action {
            KeyAction::Move(by) => self.move_selection(by),
            KeyAction::First => self.move_selection(isize::MIN / 2),
            KeyAction::Last => self.move_selection(isize::MAX / 2),
            KeyAction::Open => self.open_selected(),
            KeyAction::Back => self.close_page(),
            KeyAction::Escape
                if !self.filter_mut().is_empty() && self.page != AppPage::Histogram =>
            {
                self.filter_mut().clear();
            }
            KeyAction::Escape if self.page == AppPage::Processes => {}
            KeyAction::Escape => self.close_page(),
            KeyAction::Quit => self.is_done = true,
            KeyAction::Sort => {
                let is_of_series = self.page == AppPage::Process;
                let order = self.order_mut();
                *order = SortOrder::new(order.by.next(is_of_series));
            }
            KeyAction::Reverse => {
                let order = self.order_mut();
                order.is_reversed = !order.is_reversed;
            }
            KeyAction::Filter => self.is_editing = self.page != AppPage::Histogram,
            KeyAction::Pause => self.is_paused = !self.is_paused,
            KeyAction::Longer => {
                let next = INTERVALS_NS.into_iter().find(|ns| *ns > self.interval_ns);
                self.interval_ns = next.unwrap_or(self.interval_ns);
            }
            KeyAction::Shorter => {
                let next = INTERVALS_NS.into_iter().rev().find(|ns| *ns < self.interval_ns);
                self.interval_ns = next.unwrap_or(self.interval_ns);
            }
            KeyAction::Window => {
                self.window = match self.window {
                    HistogramWindow::Minute => HistogramWindow::Start,
                    HistogramWindow::Start => HistogramWindow::Interval,
                    HistogramWindow::Interval => HistogramWindow::Minute,
                };
            }
            KeyAction::Help => self.is_helping = true,
            KeyAction::Char(c) if !c.is_control() => self.filter_mut().push(c),
            KeyAction::Char(_) => {}
            KeyAction::Erase => {
                self.filter_mut().pop();
            }
            KeyAction::Accept => self.is_editing = false,
            KeyAction::Clear => {
                self.is_editing = false;
                self.filter_mut().clear();
            }
        }
    }

    fn move_selection(&mut self, by: isize) {
        if self.page == AppPage::Histogram {
            let last = self.scroll_max.get();
            self.scroll = self.scroll.saturating_add_signed(by).min(last);
        } else {
            self.select(self.selected().saturating_add_signed(by));
        }
    }

    fn open_selected(&mut self) {
        match self.page {
            AppPage::Processes => {
                let path = self.selected_process().map(|process| process.path.clone());
                let shown = self
                    .selected_process()
                    .and_then(ProcessHistory::busiest)
                    .map(|series| series.display_name.clone());
                if path.is_none() {
                    return;
                }
                (self.process, self.series) = (path, shown);
                self.page = AppPage::Process;
                self.series_filter.clear();
                let open =
                    self.processes.iter_mut().find(|one| Some(&one.path) == self.process.as_ref());
                if let Some(open) = open {
                    open.series.iter_mut().for_each(SeriesHistory::update_stats);
                }
            }
            AppPage::Process => {
                if let Some(series) = self.selected_series().filter(|series| series.is_histogram())
                {
                    self.series = Some(series.display_name.clone());
                    self.page = AppPage::Histogram;
                    self.scroll = 0;
                }
            }
            AppPage::Histogram => {}
        }
    }

    fn close_page(&mut self) {
        match self.page {
            AppPage::Processes => self.is_done = true,
            AppPage::Process => self.page = AppPage::Processes,
            AppPage::Histogram => self.page = AppPage::Process,
        }
    }

    fn order_mut(&mut self) -> &mut SortOrder {
        if self.page == AppPage::Process { &mut self.series_order } else { &mut self.order }
    }

    fn filter_mut(&mut self) -> &mut String {
        if self.page == AppPage::Processes { &mut self.filter } else { &mut self.series_filter }
    }
}

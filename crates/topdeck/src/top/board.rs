//! The state: what was seen, what is shown of it, and what a key does to it. Nothing here reads a clock or a process.

use std::cell::Cell;
use std::path::PathBuf;

use crate::top::close::Close;
use crate::top::look::Look;
use crate::top::order::{By, Order, is_shown};
use crate::top::process::Process;
use crate::top::series::Series;

/// One that ended stays so long.
const GONE_NS: u64 = 10_000_000_000;
/// Intervals that keys go through.
const INTERVALS_NS: [u64; 7] = [
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];
/// An interval that is so much longer than wanted is told.
const LATE_RATIO: f64 = 1.2;
const LATE_NS: u64 = 20_000_000;

/// All that is shown.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) processes: Vec<Process>,
    pub(crate) page: Page,
    /// Sorted by, in the list of processes and in that of metrics.
    pub(crate) order: Order,
    pub(crate) series_order: Order,
    /// What is shown, in the same two lists.
    pub(crate) filter: String,
    pub(crate) series_filter: String,
    pub(crate) is_editing: bool,
    pub(crate) is_paused: bool,
    pub(crate) is_helping: bool,
    pub(crate) is_done: bool,
    pub(crate) interval_ns: u64,
    pub(crate) moment: Option<Moment>,
    /// What could not be looked at.
    pub(crate) problems: Vec<String>,
    process: Option<PathBuf>,
    series: Option<String>,
    pub(crate) window: Window,
    /// Lines of a long page that are above the screen.
    pub(crate) scroll: usize,
    /// How many can be, as the page was drawn last.
    pub(crate) scroll_max: Cell<usize>,
}

/// When the latest looks were made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) at_ns: u64,
    /// The same as time of day: nanoseconds since 1970.
    pub(crate) unix_ns: i64,
    /// Since the looks before; `None` after the first.
    pub(crate) length_ns: Option<u64>,
    pub(crate) is_late: bool,
    pub(crate) is_after_pause: bool,
}

/// What fills the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Processes,
    Process,
    Histogram,
}

/// Which values the pictures of a histogram are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Minute,
    Start,
    Interval,
}

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// So many rows down.
    Move(isize),
    First,
    Last,
    Open,
    Back,
    /// Takes the filter away, or goes back.
    Escape,
    Quit,
    Sort,
    Reverse,
    Filter,
    Pause,
    Longer,
    Shorter,
    Window,
    Help,
    /// While a filter is written.
    Char(char),
    Erase,
    Accept,
    Clear,
}

impl Board {
    pub(crate) fn new(interval_ns: u64) -> Board {
        Board {
            processes: Vec::new(),
            page: Page::Processes,
            order: Order::of(By::Rate),
            series_order: Order::of(By::Metric),
            filter: String::new(),
            series_filter: String::new(),
            is_editing: false,
            is_paused: false,
            is_helping: false,
            is_done: false,
            interval_ns,
            moment: None,
            problems: Vec::new(),
            process: None,
            series: None,
            window: Window::Minute,
            scroll: 0,
            scroll_max: Cell::new(0),
        }
    }

    /// Takes note of looks at all processes, made at this time.
    pub(crate) fn look(&mut self, looks: Vec<Look>, at_ns: u64, unix_ns: i64, after_pause: bool) {
        let length_ns = self.moment.map(|moment| at_ns.saturating_sub(moment.at_ns));
        let wanted = self.interval_ns as f64 * LATE_RATIO;
        let is_late = length_ns
            .is_some_and(|length| length as f64 > wanted && length > self.interval_ns + LATE_NS);
        self.moment = Some(Moment {
            at_ns,
            unix_ns,
            length_ns,
            is_late: is_late && !after_pause,
            is_after_pause: after_pause,
        });
        for look in looks {
            let is_open = self.page != Page::Processes && self.process.as_ref() == Some(&look.path);
            match self.processes.iter_mut().find(|known| known.path == look.path) {
                Some(known) => known.look(look, is_open),
                None => self.processes.push(Process::new(look, is_open)),
            }
        }
        // The page of one that is gone stays for as long as somebody looks at it.
        let open = if self.page == Page::Processes { None } else { self.process.clone() };
        self.processes.retain(|process| {
            let is_recent =
                process.gone_ns.is_none_or(|gone| at_ns.saturating_sub(gone) <= GONE_NS);
            is_recent || open.as_ref() == Some(&process.path)
        });
    }

    /// What the next look is to see closely: what the screen shows, and what the next key may open.
    pub(crate) fn close(&self) -> Close {
        let row =
            |process: &Process| Some((process.path.clone(), process.busiest_name()?.to_owned()));
        Close {
            is_all: false,
            process: self.process().map(|process| process.path.clone()),
            rows: self.processes.iter().filter_map(row).collect(),
        }
    }

    /// The processes that are shown, in order.
    pub(crate) fn rows(&self) -> Vec<&Process> {
        let mut rows: Vec<&Process> = self
            .processes
            .iter()
            .filter(|process| {
                let metric = process.busiest().map_or("", |series| &series.shown);
                let pid = process.pid.to_string();
                is_shown(&self.filter, &[&process.program, &pid, metric])
            })
            .collect();
        self.order.processes(&mut rows);
        rows
    }

    /// The metrics of the open process that are shown, in order.
    pub(crate) fn series_rows(&self) -> Vec<&Series> {
        let Some(process) = self.process() else { return Vec::new() };
        let mut rows = process.rows();
        rows.retain(|series| is_shown(&self.series_filter, &[&series.shown]));
        self.series_order.series(&mut rows);
        rows
    }

    /// The process that is selected: in the list the first one if the one that was is not shown any more.
    pub(crate) fn process(&self) -> Option<&Process> {
        if self.page == Page::Processes {
            return self.rows().get(self.selected()).copied();
        }
        self.processes.iter().find(|process| Some(&process.path) == self.process.as_ref())
    }

    /// The metric that is selected.
    pub(crate) fn series(&self) -> Option<&Series> {
        let rows = self.series_rows();
        if self.page == Page::Histogram {
            let process = self.process()?;
            return process
                .rows()
                .into_iter()
                .find(|series| Some(&series.shown) == self.series.as_ref());
        }
        rows.get(self.selected()).copied()
    }

    /// Which row is selected.
    pub(crate) fn selected(&self) -> usize {
        let found = match self.page {
            Page::Processes => {
                self.rows().iter().position(|process| Some(&process.path) == self.process.as_ref())
            }
            _ => self
                .series_rows()
                .iter()
                .position(|series| Some(&series.shown) == self.series.as_ref()),
        };
        found.unwrap_or(0)
    }

    fn select(&mut self, row: usize) {
        match self.page {
            Page::Processes => {
                let rows = self.rows();
                let row = row.min(rows.len().saturating_sub(1));
                self.process = rows.get(row).map(|process| process.path.clone());
            }
            _ => {
                let rows = self.series_rows();
                let row = row.min(rows.len().saturating_sub(1));
                self.series = rows.get(row).map(|series| series.shown.clone());
            }
        }
    }

    /// Does what a key means.
    pub(crate) fn act(&mut self, action: Action) {
        // Any key puts the help away.
        if std::mem::take(&mut self.is_helping) && action != Action::Quit {
            return;
        }
        match action {
            Action::Move(by) => self.step(by),
            Action::First => self.step(isize::MIN / 2),
            Action::Last => self.step(isize::MAX / 2),
            Action::Open => self.open(),
            Action::Back => self.back(),
            Action::Escape if !self.filter_mut().is_empty() && self.page != Page::Histogram => {
                self.filter_mut().clear();
            }
            Action::Escape if self.page == Page::Processes => {}
            Action::Escape => self.back(),
            Action::Quit => self.is_done = true,
            Action::Sort => {
                let is_of_series = self.page == Page::Process;
                let order = self.order_mut();
                *order = Order::of(order.by.next(is_of_series));
            }
            Action::Reverse => {
                let order = self.order_mut();
                order.is_reversed = !order.is_reversed;
            }
            Action::Filter => self.is_editing = self.page != Page::Histogram,
            Action::Pause => self.is_paused = !self.is_paused,
            Action::Longer => {
                let next = INTERVALS_NS.into_iter().find(|ns| *ns > self.interval_ns);
                self.interval_ns = next.unwrap_or(self.interval_ns);
            }
            Action::Shorter => {
                let next = INTERVALS_NS.into_iter().rev().find(|ns| *ns < self.interval_ns);
                self.interval_ns = next.unwrap_or(self.interval_ns);
            }
            Action::Window => {
                self.window = match self.window {
                    Window::Minute => Window::Start,
                    Window::Start => Window::Interval,
                    Window::Interval => Window::Minute,
                };
            }
            Action::Help => self.is_helping = true,
            Action::Char(c) if !c.is_control() => self.filter_mut().push(c),
            Action::Char(_) => {}
            Action::Erase => {
                self.filter_mut().pop();
            }
            Action::Accept => self.is_editing = false,
            Action::Clear => {
                self.is_editing = false;
                self.filter_mut().clear();
            }
        }
    }

    fn step(&mut self, by: isize) {
        if self.page == Page::Histogram {
            let last = self.scroll_max.get();
            self.scroll = self.scroll.saturating_add_signed(by).min(last);
        } else {
            self.select(self.selected().saturating_add_signed(by));
        }
    }

    fn open(&mut self) {
        match self.page {
            Page::Processes => {
                let path = self.process().map(|process| process.path.clone());
                let shown =
                    self.process().and_then(Process::busiest).map(|series| series.shown.clone());
                if path.is_none() {
                    return;
                }
                (self.process, self.series) = (path, shown);
                self.page = Page::Process;
                self.series_filter.clear();
                let open =
                    self.processes.iter_mut().find(|one| Some(&one.path) == self.process.as_ref());
                if let Some(open) = open {
                    open.series.iter_mut().for_each(Series::follow);
                }
            }
            Page::Process => {
                if let Some(series) = self.series().filter(|series| series.is_histogram()) {
                    self.series = Some(series.shown.clone());
                    self.page = Page::Histogram;
                    self.scroll = 0;
                }
            }
            Page::Histogram => {}
        }
    }

    fn back(&mut self) {
        match self.page {
            Page::Processes => self.is_done = true,
            Page::Process => self.page = Page::Processes,
            Page::Histogram => self.page = Page::Process,
        }
    }

    fn order_mut(&mut self) -> &mut Order {
        if self.page == Page::Process { &mut self.series_order } else { &mut self.order }
    }

    fn filter_mut(&mut self) -> &mut String {
        if self.page == Page::Processes { &mut self.filter } else { &mut self.series_filter }
    }
}

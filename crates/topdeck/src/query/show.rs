//! An answer as a table: a row for each stream at one moment, or for each moment.

use hist::{Bracket, Mixture};
use query::{Answer, Data, Labels, Readings, Stream, Value};

use crate::command::plain;
use crate::hist::intervals;
use crate::hist::show;
use crate::hist::terminal::{Paint, Terminal};
use crate::store::plural;
use crate::time;

use super::numbers::{Doubt, Numbers, bracket};
use super::table::{TIME, Table};
use api::maxima::Maxima;

/// Streams that are told moment by moment; of more, each has a line.
const STREAMS_MAX: usize = 6;
/// Statistics of a whole distribution.
const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

pub(super) const NOTHING: &str = "nothing: no series has a value there";

pub(super) fn text(answer: &Answer, maxima: &[Maxima], terminal: &Terminal) -> String {
    let page = Page {
        answer,
        maxima,
        terminal,
        numbers: Numbers::new(answer.unit.as_deref()),
        doubt: Doubt::default(),
        is_short: false,
        text: String::new(),
    };
    page.whole()
}

struct Page<'a> {
    answer: &'a Answer,
    maxima: &'a [Maxima],
    terminal: &'a Terminal,
    numbers: Numbers,
    doubt: Doubt,
    /// Times are without their date.
    is_short: bool,
    text: String,
}

impl Page<'_> {
    fn whole(mut self) -> String {
        match &self.answer.data {
            Data::Text(text) => return format!("{}\n", plain(text)),
            Data::Scalar(values) => self.scalar(values),
            Data::Vector(streams) | Data::Matrix(streams) if streams.is_empty() => {
                return format!("{NOTHING}\n");
            }
            Data::Vector(streams) => self.vector(streams),
            Data::Matrix(streams) => self.matrix(streams),
            Data::Readings(series) if series.is_empty() => return format!("{NOTHING}\n"),
            Data::Readings(series) => self.readings(series),
        }
        for maxima in self.maxima.iter().filter(|maxima| !maxima.is_beside) {
            self.text.push_str(&format!("  {}\n", together(maxima)));
        }
        if let Some(doubt) = self.doubt.text("--json") {
            self.faint(&format!("  {doubt}"));
        }
        self.text
    }

    fn faint(&mut self, line: &str) {
        self.text.push_str(&self.terminal.paint(Paint::Faint, line));
        self.text.push('\n');
    }

    fn heading(&mut self, line: &str) {
        self.text.push_str(&self.terminal.paint(Paint::Heading, line));
        self.text.push('\n');
    }

    fn table(&mut self, table: &Table) {
        self.text.push_str(&table.text(self.terminal));
    }

    fn moment(&self, at: usize) -> String {
        moment(self.answer, at)
    }

    /// When, and in what.
    fn first_line(&mut self, streams: &[Stream]) {
        let count = self.answer.steps.count;
        let is_range = count > 1;
        let mut line = match is_range {
            true => format!("{} to {}", self.moment(0), self.moment(count - 1)),
            false => format!("at {}", self.moment(0)),
        };
        if is_range {
            line.push_str(&format!(", every {}", length(self.answer.steps.step)));
        }
        line.extend(self.about(streams));
        self.faint(&line);
    }

    fn about(&self, streams: &[Stream]) -> Option<String> {
        let about = self.numbers.about(self.answer.unit.as_deref());
        let n = (streams.len() > 1).then(|| plural(streams.len() as u64, "stream", "streams"));
        let parts: Vec<String> = n.into_iter().chain(about).collect();
        (!parts.is_empty()).then(|| format!("; {}", parts.join(", ")))
    }

    fn scalar(&mut self, values: &[f64]) {
        if let [value] = values {
            self.text.push_str(&format!("{}\n", self.numbers.exact(*value)));
            return;
        }
        self.first_line(&[]);
        let mut table = Table::new(&[(TIME, false), ("value", true)]);
        for (at, value) in values.iter().enumerate() {
            table.row(vec![self.moment(at), self.numbers.exact(*value)]);
        }
        self.table(&table);
    }

    fn vector(&mut self, streams: &[Stream]) {
        self.first_line(streams);
        let names = Names::of(streams);
        if let Some(common) = &names.common {
            self.heading(common);
        }
        let is_whole = |stream: &Stream| matches!(stream.points[0], Some(Value::Distribution(_)));
        if streams.len() <= STREAMS_MAX && streams.iter().all(is_whole) {
            for (stream, name) in streams.iter().zip(&names.own) {
                if let Some(Value::Distribution(mixture)) = &stream.points[0] {
                    self.distribution(mixture, name);
                }
            }
            return;
        }
        if streams.iter().all(is_whole) {
            let mut table = Table::new(&[&[("stream", false)], &STATISTICS[..]].concat());
            for (stream, name) in streams.iter().zip(&names.own) {
                if let Some(Value::Distribution(mixture)) = &stream.points[0] {
                    let row = statistics(&self.numbers, &mut self.doubt, mixture);
                    table.row([name.clone()].into_iter().chain(row).collect());
                }
            }
            return self.table(&table);
        }
        let columns = [("stream", false), ("value", true), ("bounds", false), ("max", true)];
        let mut table = Table::new(&columns);
        table.left(1, streams.iter().any(has_distributions));
        for (stream, name) in streams.iter().zip(&names.own) {
            let mut row = vec![name.clone()];
            row.extend(self.cells(stream, 0));
            table.row(row);
        }
        self.table(&table);
    }

    /// A number, its bounds, and the maximum beside it.
    fn cells(&mut self, stream: &Stream, at: usize) -> [String; 3] {
        let Some(value) = &stream.points[at] else {
            return ["–".to_owned(), String::new(), String::new()];
        };
        let [value, bounds] = match value.bracket() {
            Some(bracket) => [self.numbers.value(bracket), self.numbers.bounds(bracket)],
            None => [sentence(&self.numbers, &mut self.doubt, value), String::new()],
        };
        let max = self.max(stream).and_then(|max| bracket(max.points.get(at)?));
        [value, bounds, max.map_or_else(String::new, |max| self.numbers.range(max))]
    }

    fn max(&self, stream: &Stream) -> Option<&Stream> {
        self.maxima.iter().find_map(|maxima| maxima.of(&stream.labels))
    }

    /// Statistics of a distribution, one below the other.
    fn distribution(&mut self, mixture: &Mixture, name: &str) {
        self.heading(name);
        let mut table = Table::new(&[("", false), ("value", true), ("bounds", false)]);
        table.row(vec!["count".to_owned(), show::count(mixture.count()), String::new()]);
        let statistics = [("min".to_owned(), mixture.min()), ("mean".to_owned(), mixture.mean())];
        let quantiles = SHARES.map(|share| (show::quantile_name(share), mixture.quantile(share)));
        let max = [("max".to_owned(), mixture.max())];
        for (name, of) in statistics.into_iter().chain(quantiles).chain(max) {
            if let Some(of) = of {
                table.row(vec![name, self.numbers.value(of), self.numbers.bounds(of)]);
            }
        }
        self.table(&table);
    }

    fn matrix(&mut self, streams: &[Stream]) {
        self.first_line(streams);
        let names = Names::of(streams);
        if let Some(common) = &names.common {
            self.heading(common);
        }
        if streams.len() > STREAMS_MAX {
            return self.lines(streams, &names);
        }
        if streams.len() > 1 && !streams.iter().any(has_distributions) {
            let table = self.side_by_side(streams, &names);
            if table.width() <= self.terminal.width {
                return self.table(&table);
            }
        }
        for (stream, name) in streams.iter().zip(&names.own) {
            if streams.len() > 1 || !stream.labels.is_empty() {
                self.heading(name);
            }
            let mut table = self.alone(stream);
            if table.width() > self.terminal.width && self.is_one_day() {
                self.is_short = true;
                table = self.alone(stream);
            }
            self.table(&table);
        }
    }

    fn alone(&mut self, stream: &Stream) -> Table {
        match has_distributions(stream) {
            true => self.distributions(stream),
            false => {
                let own = Names { common: None, own: vec!["value".to_owned()] };
                self.side_by_side(std::slice::from_ref(stream), &own)
            }
        }
    }

    /// Whether the first line says the date of all moments.
    fn is_one_day(&self) -> bool {
        let (first, last) = (self.moment(0), self.moment(self.answer.steps.count - 1));
        first.len() == last.len() && first.split(' ').next() == last.split(' ').next()
    }

    /// A row for each moment, some columns for each stream. Moments at which none has a value are told as one.
    fn side_by_side(&mut self, streams: &[Stream], names: &Names) -> Table {
        let mut columns = vec![(TIME, false)];
        for name in &names.own {
            columns.extend([(name.as_str(), true), ("bounds", false), ("max", true)]);
        }
        let mut table = Table::new(&columns);
        self.moments(
            &mut table,
            |at| streams.iter().any(|stream| stream.points[at].is_some()),
            |page, at| streams.iter().flat_map(|stream| page.cells(stream, at)).collect(),
        );
        table
    }

    /// A row for each moment with the main statistics of a distribution.
    fn distributions(&mut self, stream: &Stream) -> Table {
        let mut table = Table::new(&[&[(TIME, false)], &STATISTICS[..]].concat());
        self.moments(
            &mut table,
            |at| stream.points[at].is_some(),
            |page, at| match &stream.points[at] {
                Some(Value::Distribution(mixture)) => {
                    statistics(&page.numbers, &mut page.doubt, mixture).to_vec()
                }
                Some(value) => {
                    let text = sentence(&page.numbers, &mut page.doubt, value);
                    vec![text, String::new(), String::new(), String::new()]
                }
                None => vec![String::new(); 4],
            },
        );
        table
    }

    fn moments(
        &mut self,
        table: &mut Table,
        is_there: impl Fn(usize) -> bool,
        cells: impl Fn(&mut Self, usize) -> Vec<String>,
    ) {
        let steps = self.answer.steps;
        let missing =
            |n: usize| format!("(no value for {})", length(steps.step.saturating_mul(n as i64)));
        let mut without = 0;
        for at in 0..steps.count {
            if !is_there(at) {
                without += 1;
                continue;
            }
            if without > 0 {
                table.aside(missing(without));
                without = 0;
            }
            let time = moment(self.answer, at);
            let clock = time.split_once(' ').filter(|_| self.is_short).map(|(_, clock)| clock);
            let mut row = vec![clock.unwrap_or(&time).to_owned()];
            row.extend(cells(self, at));
            table.row(row);
        }
        if without > 0 {
            table.aside(missing(without));
        }
    }

    /// A line for each of many streams: what it did.
    fn lines(&mut self, streams: &[Stream], names: &Names) {
        let columns =
            [("stream", false), ("least", true), ("greatest", true), ("last", true), ("max", true)];
        let mut table = Table::new(&columns);
        for (stream, name) in streams.iter().zip(&names.own) {
            let brackets = || stream.points.iter().filter_map(bracket);
            let key = |of: &Bracket| of.estimate;
            let least = brackets().min_by(|a, b| key(a).total_cmp(&key(b)));
            let greatest = brackets().max_by(|a, b| key(a).total_cmp(&key(b)));
            let mut cells: Vec<String> = [least, greatest, brackets().next_back()]
                .into_iter()
                .map(|of| {
                    let of = of.inspect(|of| self.doubt.add(*of));
                    of.map_or_else(String::new, |of| self.numbers.marked(of))
                })
                .collect();
            if has_distributions(stream) {
                let last = stream.points.iter().flatten().next_back();
                cells[2] = last.map_or_else(String::new, |value| {
                    sentence(&self.numbers, &mut self.doubt, value)
                });
            }
            let max = self.max(stream).and_then(|max| greatest_of(&max.points));
            cells.push(max.map_or_else(String::new, |max| self.numbers.range(max)));
            table.row([name.clone()].into_iter().chain(cells).collect());
        }
        self.table(&table);
        self.faint("  each moment of each: --json");
    }

    fn readings(&mut self, series: &[Readings]) {
        self.first_line(&[]);
        for series in series {
            self.heading(&name(&series.labels));
            let is_whole =
                |reading: &query::Reading| matches!(reading.value, Value::Distribution(_));
            let of_numbers = [(TIME, false), ("value", true), ("bounds", false)];
            let mut table = match series.readings.iter().all(is_whole) {
                true => Table::new(&[&[(TIME, false)], &STATISTICS[..]].concat()),
                false => Table::new(&of_numbers),
            };
            table.left(1, series.readings.iter().any(|of| matches!(of.value, Value::Histogram(_))));
            for reading in &series.readings {
                let cells = match &reading.value {
                    Value::Distribution(mixture) if series.readings.iter().all(is_whole) => {
                        statistics(&self.numbers, &mut self.doubt, mixture).to_vec()
                    }
                    value => match value.bracket() {
                        Some(of) => vec![self.numbers.value(of), self.numbers.bounds(of)],
                        None => {
                            vec![sentence(&self.numbers, &mut self.doubt, value), String::new()]
                        }
                    },
                };
                let time = intervals::time(reading.time, row_ns(reading.time));
                table.row([time].into_iter().chain(cells).collect());
            }
            self.table(&table);
        }
    }
}

/// What a line says of a distribution.
const STATISTICS: [(&str, bool); 4] =
    [("values", true), ("median", true), ("p99", true), ("max", true)];

fn statistics(numbers: &Numbers, doubt: &mut Doubt, mixture: &Mixture) -> [String; 4] {
    let mut marked = |share: f64| {
        let of = mixture.quantile(share).inspect(|of| doubt.add(*of));
        of.map_or_else(String::new, |of| numbers.marked(of))
    };
    let max = mixture.max().map_or_else(String::new, |max| numbers.range(max));
    [show::count(mixture.count()), marked(0.5), marked(0.99), max]
}

/// A moment of an answer, with decimals where the steps need them.
pub(super) fn moment(answer: &Answer, at: usize) -> String {
    let steps = answer.steps;
    let rows = if steps.is_instant() { 0 } else { steps.step };
    let row_ns = row_ns(steps.start).min(if rows == 0 { i64::MAX } else { row_ns(rows) });
    intervals::time(steps.time(at), row_ns)
}

/// A length of time: `30 min`.
pub(super) fn length(ns: i64) -> String {
    let text = time::length_text(ns);
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    match &text[unit..] {
        // No round length.
        "ns" => intervals::length(ns),
        _ => format!("{} {}", &text[..unit], &text[unit..]),
    }
}

/// What [`intervals::time`] needs to know to show all of a time.
fn row_ns(ns: i64) -> i64 {
    if ns % intervals::NS_PER_S == 0 { intervals::NS_PER_S } else { 1 }
}

/// A distribution in a cell.
fn sentence(numbers: &Numbers, doubt: &mut Doubt, value: &Value) -> String {
    match value {
        Value::Number(_) | Value::Bracket(_) => {
            value.bracket().map_or_else(String::new, |of| numbers.value(of))
        }
        Value::Distribution(mixture) => {
            let n = plural(mixture.count(), "value", "values");
            let mut marked = |share: f64| {
                let of = mixture.quantile(share).inspect(|of| doubt.add(*of));
                of.map_or_else(String::new, |of| numbers.marked(of))
            };
            match mixture.max() {
                Some(max) => {
                    let (median, p99) = (marked(0.5), marked(0.99));
                    format!("{n}: median {median}, p99 {p99}, max {}", numbers.range(max))
                }
                None => n,
            }
        }
        Value::Histogram(histogram) => {
            let n = Numbers::new(Some("values")).exact(histogram.count);
            let buckets = || histogram.buckets().filter(|bucket| bucket.count != 0.0);
            match (buckets().next(), buckets().next_back()) {
                (Some(first), Some(last)) => {
                    let (low, high) = (numbers.exact(first.lower), numbers.exact(last.upper));
                    format!("{n} between {low} and {high}")
                }
                _ => n,
            }
        }
    }
}

fn has_distributions(stream: &Stream) -> bool {
    stream.points.iter().flatten().any(Value::is_distribution)
}

/// The one that may be the greatest.
pub(super) fn greatest_of(points: &[Option<Value>]) -> Option<Bracket> {
    let brackets = points.iter().filter_map(bracket).filter(|of| !of.estimate.is_nan());
    brackets.reduce(|a, b| Bracket {
        lower: a.lower.max(b.lower),
        estimate: a.estimate.max(b.estimate),
        upper: a.upper.max(b.upper),
    })
}

/// Maxima that belong beside no single number, in a line.
pub(super) fn together(maxima: &Maxima) -> String {
    let all: Vec<Option<Value>> =
        maxima.streams.iter().flat_map(|stream| stream.points.iter().cloned()).collect();
    let numbers = Numbers::new(maxima.unit.as_deref());
    let max = greatest_of(&all).map_or_else(|| "unknown".to_owned(), |max| numbers.range(max));
    format!("greatest value: {max}, of {}", plain(&maxima.question))
}

/// What streams are called: what all of them have in common is said once.
pub(super) struct Names {
    pub(super) common: Option<String>,
    pub(super) own: Vec<String>,
}

impl Names {
    pub(super) fn of(streams: &[Stream]) -> Names {
        let is_legend = |stream: &Stream| !stream.labels.get(query::caql::LABEL).is_empty();
        let (first, others) = match streams {
            [first, others @ ..] if !others.is_empty() && !streams.iter().any(is_legend) => {
                (first, others)
            }
            _ => {
                let own = streams.iter().map(|stream| name(&stream.labels)).collect();
                return Names { common: None, own };
            }
        };
        let is_common = |label: &str| {
            let value = first.labels.get(label);
            !value.is_empty() && others.iter().all(|other| other.labels.get(label) == value)
        };
        let common = first.labels.keep(is_common);
        let rest = |stream: &Stream| stream.labels.keep(|label| !is_common(label));
        if common.is_empty() || streams.iter().any(|stream| rest(stream).is_empty()) {
            let own = streams.iter().map(|stream| name(&stream.labels)).collect();
            return Names { common: None, own };
        }
        let own = streams.iter().map(|stream| name(&rest(stream))).collect();
        Names { common: Some(plain(&common.to_string())), own }
    }
}

/// What a stream is called; CAQL's legend where there is one.
pub(super) fn name(labels: &Labels) -> String {
    match labels.get(query::caql::LABEL) {
        "" if labels.is_empty() => "all".to_owned(),
        "" => plain(&labels.to_string()),
        label => plain(label),
    }
}

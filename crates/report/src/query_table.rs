//! Query result as a table.

use hist::{Bracket, Mixture};
use query::{LabelSet, QueryResult, ResultData, SeriesPoints, StepValue, Stream};

use render::terminal::{Terminal, TextStyle};
use render::text::escape_control;
use render::text::plural;
use render::time::duration_text;
use render::value_formatter;

use query::maxima::Maxima;
use render::number_formatter::{EstimateNote, NumberFormatter};
use render::table::{TIME, TextTable};

/// Maximum number of streams shown step by step; beyond it each stream has one line.
const STREAMS_MAX: usize = 6;
/// Statistics of a whole distribution.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

pub(crate) const NO_RESULT: &str = "no data: no series has a value in the range";

/// Tables of a result and of the maxima of its percentiles.
pub fn query_text(answer: &QueryResult, maxima: &[Maxima], terminal: &Terminal) -> String {
    let page = ResultPage {
        result: answer,
        maxima,
        terminal,
        formatter: NumberFormatter::new(answer.unit.as_deref()),
        estimate_note: EstimateNote::default(),
        is_short: false,
        text: String::new(),
    };
    page.finish()
}

struct ResultPage<'a> {
    result: &'a QueryResult,
    maxima: &'a [Maxima],
    terminal: &'a Terminal,
    formatter: NumberFormatter,
    estimate_note: EstimateNote,
    /// Times are shown without the date.
    is_short: bool,
    text: String,
}

impl ResultPage<'_> {
    fn finish(mut self) -> String {
        match &self.result.data {
            ResultData::Text(text) => return format!("{}\n", escape_control(text)),
            ResultData::Scalar(values) => self.scalar(values),
            ResultData::Vector(streams) | ResultData::Matrix(streams) if streams.is_empty() => {
                return format!("{NO_RESULT}\n");
            }
            ResultData::Vector(streams) => self.vector(streams),
            ResultData::Matrix(streams) => self.matrix(streams),
            ResultData::RawSamples(series) if series.is_empty() => return format!("{NO_RESULT}\n"),
            ResultData::RawSamples(series) => self.samples(series),
        }
        for maxima in self.maxima.iter().filter(|maxima| !maxima.is_per_stream) {
            self.text.push_str(&format!("  {}\n", merged_maxima_line(maxima)));
        }
        if let Some(note) = self.estimate_note.text("--json") {
            self.faint(&format!("  {note}"));
        }
        self.text
    }

    fn faint(&mut self, line: &str) {
        self.text.push_str(&self.terminal.paint(TextStyle::Faint, line));
        self.text.push('\n');
    }

    fn heading(&mut self, line: &str) {
        self.text.push_str(&self.terminal.paint(TextStyle::Heading, line));
        self.text.push('\n');
    }

    fn table(&mut self, table: &TextTable) {
        self.text.push_str(&table.text(self.terminal));
    }

    fn time_text(&self, at: usize) -> String {
        step_time(self.result, at)
    }

    /// First line: time range and unit.
    fn first_line(&mut self, streams: &[Stream]) {
        let count = self.result.steps.count;
        let is_range = count > 1;
        let mut line = match is_range {
            true => format!("{} to {}", self.time_text(0), self.time_text(count - 1)),
            false => format!("at {}", self.time_text(0)),
        };
        if is_range {
            line.push_str(&format!(", every {}", duration_text(self.result.steps.step)));
        }
        line.extend(self.series_summary(streams));
        self.faint(&line);
    }

    fn series_summary(&self, streams: &[Stream]) -> Option<String> {
        let about = self.formatter.unit_note(self.result.unit.as_deref());
        let n = (streams.len() > 1).then(|| plural(streams.len() as u64, "stream", "streams"));
        let parts: Vec<String> = n.into_iter().chain(about).collect();
        (!parts.is_empty()).then(|| format!("; {}", parts.join(", ")))
    }

    fn scalar(&mut self, values: &[f64]) {
        if let [value] = values {
            self.text.push_str(&format!("{}\n", self.formatter.exact(*value)));
            return;
        }
        self.first_line(&[]);
        let mut table = TextTable::new(&[(TIME, false), ("value", true)]);
        for (at, value) in values.iter().enumerate() {
            table.row(vec![self.time_text(at), self.formatter.exact(*value)]);
        }
        self.table(&table);
    }

    fn vector(&mut self, streams: &[Stream]) {
        self.first_line(streams);
        let names = StreamNames::new(streams);
        if let Some(common) = &names.common {
            self.heading(common);
        }
        let is_whole =
            |stream: &Stream| matches!(stream.points[0], Some(StepValue::Distribution(_)));
        if streams.len() <= STREAMS_MAX && streams.iter().all(is_whole) {
            for (stream, name) in streams.iter().zip(&names.individual) {
                if let Some(StepValue::Distribution(mixture)) = &stream.points[0] {
                    self.distribution(mixture, name);
                }
            }
            return;
        }
        if streams.iter().all(is_whole) {
            let mut table = TextTable::new(&[&[("stream", false)], &STATISTICS[..]].concat());
            for (stream, name) in streams.iter().zip(&names.individual) {
                if let Some(StepValue::Distribution(mixture)) = &stream.points[0] {
                    let row = statistics(&self.formatter, &mut self.estimate_note, mixture);
                    table.row([name.clone()].into_iter().chain(row).collect());
                }
            }
            return self.table(&table);
        }
        let columns = [("stream", false), ("value", true), ("bounds", false), ("max", true)];
        let mut table = TextTable::new(&columns);
        table.left_align(1, streams.iter().any(has_distributions));
        for (stream, name) in streams.iter().zip(&names.individual) {
            let mut row = vec![name.clone()];
            row.extend(self.number_cells(stream, 0));
            table.row(row);
        }
        self.table(&table);
    }

    /// Number, bounds, and its maximum.
    fn number_cells(&mut self, stream: &Stream, at: usize) -> [String; 3] {
        let Some(value) = &stream.points[at] else {
            return ["–".to_owned(), String::new(), String::new()];
        };
        let [value, bounds] = match value.bracket() {
            Some(bracket) => [self.formatter.value(bracket), self.formatter.bounds(bracket)],
            None => {
                [distribution_text(&self.formatter, &mut self.estimate_note, value), String::new()]
            }
        };
        let max = self.max(stream).and_then(|max| number_bracket(max.points.get(at)?));
        [value, bounds, max.map_or_else(String::new, |max| self.formatter.range(max))]
    }

    fn max(&self, stream: &Stream) -> Option<&Stream> {
        self.maxima.iter().find_map(|maxima| maxima.stream_for(&stream.labels))
    }

    /// Statistics of a distribution, one per line.
    fn distribution(&mut self, mixture: &Mixture, name: &str) {
        self.heading(name);
        let mut table = TextTable::new(&[("", false), ("value", true), ("bounds", false)]);
        table.row(vec!["count".to_owned(), value_formatter::count(mixture.count()), String::new()]);
        let statistics = [("min".to_owned(), mixture.min()), ("mean".to_owned(), mixture.mean())];
        let quantiles =
            QUANTILES.map(|share| (value_formatter::quantile_name(share), mixture.quantile(share)));
        let max = [("max".to_owned(), mixture.max())];
        for (name, of) in statistics.into_iter().chain(quantiles).chain(max) {
            if let Some(of) = of {
                table.row(vec![name, self.formatter.value(of), self.formatter.bounds(of)]);
            }
        }
        self.table(&table);
    }

    fn matrix(&mut self, streams: &[Stream]) {
        self.first_line(streams);
        let names = StreamNames::new(streams);
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
        for (stream, name) in streams.iter().zip(&names.individual) {
            if streams.len() > 1 || !stream.labels.is_empty() {
                self.heading(name);
            }
            let mut table = self.single_stream_table(stream);
            if table.width() > self.terminal.width && self.is_one_day() {
                self.is_short = true;
                table = self.single_stream_table(stream);
            }
            self.table(&table);
        }
    }

    fn single_stream_table(&mut self, stream: &Stream) -> TextTable {
        match has_distributions(stream) {
            true => self.distributions(stream),
            false => {
                let names = StreamNames { common: None, individual: vec!["value".to_owned()] };
                self.side_by_side(std::slice::from_ref(stream), &names)
            }
        }
    }

    /// Whether the first line has the date of all steps.
    fn is_one_day(&self) -> bool {
        let (first, last) = (self.time_text(0), self.time_text(self.result.steps.count - 1));
        first.len() == last.len() && first.split(' ').next() == last.split(' ').next()
    }

    /// A row per step, with columns per stream. Consecutive steps without any value are merged.
    fn side_by_side(&mut self, streams: &[Stream], names: &StreamNames) -> TextTable {
        let mut columns = vec![(TIME, false)];
        for name in &names.individual {
            columns.extend([(name.as_str(), true), ("bounds", false), ("max", true)]);
        }
        let mut table = TextTable::new(&columns);
        self.time_rows(
            &mut table,
            |at| streams.iter().any(|stream| stream.points[at].is_some()),
            |page, at| streams.iter().flat_map(|stream| page.number_cells(stream, at)).collect(),
        );
        table
    }

    /// A row per step with the main statistics of a distribution.
    fn distributions(&mut self, stream: &Stream) -> TextTable {
        let mut table = TextTable::new(&[&[(TIME, false)], &STATISTICS[..]].concat());
        self.time_rows(
            &mut table,
            |at| stream.points[at].is_some(),
            |page, at| match &stream.points[at] {
                Some(StepValue::Distribution(mixture)) => {
                    statistics(&page.formatter, &mut page.estimate_note, mixture).to_vec()
                }
                Some(value) => {
                    let text = distribution_text(&page.formatter, &mut page.estimate_note, value);
                    vec![text, String::new(), String::new(), String::new()]
                }
                None => vec![String::new(); 4],
            },
        );
        table
    }

    fn time_rows(
        &mut self,
        table: &mut TextTable,
        is_there: impl Fn(usize) -> bool,
        cells: impl Fn(&mut Self, usize) -> Vec<String>,
    ) {
        let steps = self.result.steps;
        let missing = |n: usize| {
            format!("(no value for {})", duration_text(steps.step.saturating_mul(n as i64)))
        };
        let mut without = 0;
        for at in 0..steps.count {
            if !is_there(at) {
                without += 1;
                continue;
            }
            if without > 0 {
                table.remark(missing(without));
                without = 0;
            }
            let time = step_time(self.result, at);
            let clock = time.split_once(' ').filter(|_| self.is_short).map(|(_, clock)| clock);
            let mut row = vec![clock.unwrap_or(&time).to_owned()];
            row.extend(cells(self, at));
            table.row(row);
        }
        if without > 0 {
            table.remark(missing(without));
        }
    }

    /// A summary line per stream.
    fn lines(&mut self, streams: &[Stream], names: &StreamNames) {
        let columns =
            [("stream", false), ("least", true), ("greatest", true), ("last", true), ("max", true)];
        let mut table = TextTable::new(&columns);
        for (stream, name) in streams.iter().zip(&names.individual) {
            let brackets = || stream.points.iter().filter_map(number_bracket);
            let key = |of: &Bracket| of.estimate;
            let least = brackets().min_by(|a, b| key(a).total_cmp(&key(b)));
            let greatest = brackets().max_by(|a, b| key(a).total_cmp(&key(b)));
            let mut cells: Vec<String> = [least, greatest, brackets().next_back()]
                .into_iter()
                .map(|of| {
                    let of = of.inspect(|of| self.estimate_note.add(*of));
                    of.map_or_else(String::new, |of| self.formatter.value_with_mark(of))
                })
                .collect();
            if has_distributions(stream) {
                let last = stream.points.iter().flatten().next_back();
                cells[2] = last.map_or_else(String::new, |value| {
                    distribution_text(&self.formatter, &mut self.estimate_note, value)
                });
            }
            let max = self.max(stream).and_then(|max| max_bracket(&max.points));
            cells.push(max.map_or_else(String::new, |max| self.formatter.range(max)));
            table.row([name.clone()].into_iter().chain(cells).collect());
        }
        self.table(&table);
        self.faint("  all steps of all streams: --json");
    }

    fn samples(&mut self, series: &[SeriesPoints]) {
        self.first_line(&[]);
        for series in series {
            self.heading(&stream_name(&series.labels));
            let is_whole =
                |sample: &query::SeriesPoint| matches!(sample.value, StepValue::Distribution(_));
            let of_numbers = [(TIME, false), ("value", true), ("bounds", false)];
            let mut table = match series.points.iter().all(is_whole) {
                true => TextTable::new(&[&[(TIME, false)], &STATISTICS[..]].concat()),
                false => TextTable::new(&of_numbers),
            };
            table.left_align(
                1,
                series.points.iter().any(|of| matches!(of.value, StepValue::Histogram(_))),
            );
            for sample in &series.points {
                let cells = match &sample.value {
                    StepValue::Distribution(mixture) if series.points.iter().all(is_whole) => {
                        statistics(&self.formatter, &mut self.estimate_note, mixture).to_vec()
                    }
                    value => match value.bracket() {
                        Some(of) => vec![self.formatter.value(of), self.formatter.bounds(of)],
                        None => {
                            vec![
                                distribution_text(&self.formatter, &mut self.estimate_note, value),
                                String::new(),
                            ]
                        }
                    },
                };
                let time = render::time::time_text(sample.time, time_precision_ns(sample.time));
                table.row([time].into_iter().chain(cells).collect());
            }
            self.table(&table);
        }
    }
}

/// Statistics of the summary line of a distribution.
const STATISTICS: [(&str, bool); 4] =
    [("values", true), ("median", true), ("p99", true), ("max", true)];

fn statistics(
    numbers: &NumberFormatter,
    note: &mut EstimateNote,
    mixture: &Mixture,
) -> [String; 4] {
    let mut marked = |share: f64| {
        let of = mixture.quantile(share).inspect(|of| note.add(*of));
        of.map_or_else(String::new, |of| numbers.value_with_mark(of))
    };
    let max = mixture.max().map_or_else(String::new, |max| numbers.range(max));
    [value_formatter::count(mixture.count()), marked(0.5), marked(0.99), max]
}

/// Time of a step, with decimals if the steps need them.
pub(crate) fn step_time(answer: &QueryResult, at: usize) -> String {
    let steps = answer.steps;
    let rows = if steps.is_instant() { 0 } else { steps.step };
    let row_ns = time_precision_ns(steps.start).min(if rows == 0 {
        i64::MAX
    } else {
        time_precision_ns(rows)
    });
    render::time::time_text(steps.time(at), row_ns)
}

/// Precision that [`render::time::time_text`] needs to show all digits of a time.
fn time_precision_ns(ns: i64) -> i64 {
    if ns % render::time::NS_PER_S == 0 { render::time::NS_PER_S } else { 1 }
}

/// Distribution in one cell.
fn distribution_text(
    numbers: &NumberFormatter,
    note: &mut EstimateNote,
    value: &StepValue,
) -> String {
    match value {
        StepValue::Number(_) | StepValue::Bracket(_) => {
            value.bracket().map_or_else(String::new, |of| numbers.value(of))
        }
        StepValue::Distribution(mixture) => {
            let n = plural(mixture.count(), "value", "values");
            let mut marked = |share: f64| {
                let of = mixture.quantile(share).inspect(|of| note.add(*of));
                of.map_or_else(String::new, |of| numbers.value_with_mark(of))
            };
            match mixture.max() {
                Some(max) => {
                    let (median, p99) = (marked(0.5), marked(0.99));
                    format!("{n}: median {median}, p99 {p99}, max {}", numbers.range(max))
                }
                None => n,
            }
        }
        StepValue::Histogram(histogram) => {
            let n = NumberFormatter::new(Some("values")).exact(histogram.count);
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
    stream.points.iter().flatten().any(StepValue::is_distribution)
}

/// Largest possible maximum.
pub(crate) fn max_bracket(points: &[Option<StepValue>]) -> Option<Bracket> {
    let brackets = points.iter().filter_map(number_bracket).filter(|of| !of.estimate.is_nan());
    brackets.reduce(|a, b| Bracket {
        lower: a.lower.max(b.lower),
        estimate: a.estimate.max(b.estimate),
        upper: a.upper.max(b.upper),
    })
}

/// Maxima that belong to no single number, in one line.
pub(crate) fn merged_maxima_line(maxima: &Maxima) -> String {
    let all: Vec<Option<StepValue>> =
        maxima.streams.iter().flat_map(|stream| stream.points.iter().cloned()).collect();
    let numbers = NumberFormatter::new(maxima.unit.as_deref());
    let max = max_bracket(&all).map_or_else(|| "unknown".to_owned(), |max| numbers.range(max));
    format!("maximum: {max}, of {}", escape_control(&maxima.expression))
}

/// Stream names with common labels factored out.
pub(crate) struct StreamNames {
    pub(crate) common: Option<String>,
    pub(crate) individual: Vec<String>,
}

impl StreamNames {
    pub(crate) fn new(streams: &[Stream]) -> StreamNames {
        let is_legend = |stream: &Stream| !stream.labels.get(query::caql::LEGEND).is_empty();
        let (first, others) = match streams {
            [first, others @ ..] if !others.is_empty() && !streams.iter().any(is_legend) => {
                (first, others)
            }
            _ => {
                let names = streams.iter().map(|stream| stream_name(&stream.labels)).collect();
                return StreamNames { common: None, individual: names };
            }
        };
        let is_common = |label: &str| {
            let value = first.labels.get(label);
            !value.is_empty() && others.iter().all(|other| other.labels.get(label) == value)
        };
        let common = first.labels.filter(is_common);
        let rest = |stream: &Stream| stream.labels.filter(|label| !is_common(label));
        if common.is_empty() || streams.iter().any(|stream| rest(stream).is_empty()) {
            let names = streams.iter().map(|stream| stream_name(&stream.labels)).collect();
            return StreamNames { common: None, individual: names };
        }
        let names = streams.iter().map(|stream| stream_name(&rest(stream))).collect();
        StreamNames { common: Some(escape_control(&common.to_string())), individual: names }
    }
}

/// Name of a stream; CAQL's legend if there is one.
pub(crate) fn stream_name(labels: &LabelSet) -> String {
    match labels.get(query::caql::LEGEND) {
        "" if labels.is_empty() => "all".to_owned(),
        "" => escape_control(&labels.to_string()),
        label => escape_control(label),
    }
}

/// Bracket of a number; `None` for a distribution.
pub(crate) fn number_bracket(value: &Option<StepValue>) -> Option<Bracket> {
    value.as_ref().and_then(StepValue::bracket)
}

//! An answer as a table: a row for each stream at one moment, or for each moment.

use collect::Unit;
use hist::Bracket;
use query::{Answer, Data, Labels, Readings, Stream, Value};

use crate::command::plain;
use crate::hist::intervals;
use crate::hist::show::Show;
use crate::hist::terminal::Terminal;
use crate::store::plural;

/// Streams that a table over time has a column for; more are told in a line each.
const COLUMNS_MAX: usize = 6;

/// How numbers are written.
pub(super) struct Numbers {
    show: Option<Show>,
    unit: Option<String>,
}

impl Numbers {
    pub(super) fn new(answer: &Answer) -> Numbers {
        let known = answer.unit.as_deref().and_then(Unit::parse);
        Numbers {
            show: known.as_ref().map(|unit| Show::new(Some(unit))),
            unit: answer.unit.clone(),
        }
    }

    pub(super) fn value(&self, bracket: Bracket) -> String {
        match (&self.show, &self.unit) {
            _ if !bracket.estimate.is_finite() => bracket.estimate.to_string(),
            (Some(show), _) => show.value(bracket),
            (None, Some(unit)) if !unit.contains(',') => {
                format!("{} {unit}", short(bracket.estimate))
            }
            (None, _) => short(bracket.estimate),
        }
    }

    pub(super) fn bounds(&self, bracket: Bracket) -> String {
        match &self.show {
            _ if bracket.is_exact() || bracket.estimate.is_nan() => String::new(),
            Some(show) => show.bounds(bracket),
            None => format!("{} to {}", short(bracket.lower), short(bracket.upper)),
        }
    }

    /// A statistic or a distribution in a line.
    fn cell(&self, value: &Value) -> [String; 2] {
        match value {
            Value::Number(_) | Value::Bracket(_) => {
                let bracket = value.bracket().expect("BUG: a number is one");
                [self.value(bracket), self.bounds(bracket)]
            }
            Value::Distribution(mixture) => {
                let at = |q: f64| mixture.quantile(q).map_or_else(String::new, |of| self.value(of));
                let n = plural(mixture.count(), "value", "values");
                let text = match mixture.count() {
                    0 => n,
                    _ => format!("{n}: median {}, p99 {}, max {}", at(0.5), at(0.99), at(1.0)),
                };
                [text, String::new()]
            }
            Value::Histogram(histogram) => {
                let (lower, upper) = (
                    histogram.buckets().next().map(|bucket| bucket.lower),
                    histogram.buckets().next_back().map(|bucket| bucket.upper),
                );
                let of = |edge: Option<f64>| {
                    edge.map_or_else(String::new, |edge| self.value(Bracket::exact(edge)))
                };
                let n = short(histogram.count);
                [format!("{n} values from {} to {}", of(lower), of(upper)), String::new()]
            }
        }
    }
}

/// Seven digits at the most, as people write numbers.
fn short(number: f64) -> String {
    if !number.is_finite() {
        return number.to_string();
    }
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-4..1e15).contains(&magnitude) {
        return format!("{number:.3e}");
    }
    let decimals = (6 - magnitude.max(1.0).log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{number:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    };
    let (whole, fraction) =
        text.split_once('.').map_or((text.as_str(), None), |(a, b)| (a, Some(b)));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let fraction = fraction.map_or_else(String::new, |fraction| format!(".{fraction}"));
    format!("{sign}{grouped}{fraction}")
}

pub(super) fn text(answer: &Answer, terminal: &Terminal) -> String {
    let numbers = Numbers::new(answer);
    let moment = |at: usize| intervals::time(answer.steps.time(at), answer.steps.step);
    match &answer.data {
        Data::Text(text) => format!("{}\n", plain(text)),
        Data::Scalar(values) => {
            let rows = values
                .iter()
                .enumerate()
                .map(|(at, value)| vec![moment(at), numbers.value(Bracket::exact(*value))]);
            table(rows.collect(), &[false, true])
        }
        Data::Vector(streams) | Data::Matrix(streams) if streams.is_empty() => {
            "nothing: no series has a value there\n".to_owned()
        }
        Data::Vector(streams) => {
            let rows = streams.iter().map(|stream| {
                let value =
                    stream.points[0].as_ref().expect("BUG: a vector's streams have a value");
                let [value, bounds] = numbers.cell(value);
                vec![name(&stream.labels), value, bounds]
            });
            format!("{}\n{}", moment(0), table(rows.collect(), &[false, true, false]))
        }
        Data::Matrix(streams) if streams.len() <= COLUMNS_MAX => {
            over_time(answer, streams, &numbers, terminal)
        }
        Data::Matrix(streams) => {
            let heads = ["stream", "least", "greatest", "last"].map(str::to_owned).to_vec();
            let rows = streams.iter().map(|stream| line(stream, &numbers));
            let n = plural(streams.len() as u64, "stream", "streams");
            let (first, last) = (moment(0), moment(answer.steps.count - 1));
            let rows = [heads].into_iter().chain(rows).collect();
            format!("{n} from {first} to {last}\n{}", table(rows, &[false, true, true, true]))
        }
        Data::Readings(series) => series.iter().map(|series| readings(series, &numbers)).collect(),
    }
}

/// A row for each moment, two columns for each stream.
fn over_time(
    answer: &Answer,
    streams: &[Stream],
    numbers: &Numbers,
    terminal: &Terminal,
) -> String {
    let mut text = String::new();
    let names: Vec<String> = streams.iter().map(|stream| name(&stream.labels)).collect();
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let fits = streams.len() * (widest + 4) + 24 <= terminal.width;
    let heads: Vec<String> = match fits {
        true => names,
        false => {
            for (at, name) in names.iter().enumerate() {
                text.push_str(&format!("  [{}] {name}\n", at + 1));
            }
            (1..=streams.len()).map(|at| format!("[{at}]")).collect()
        }
    };
    let mut rows = vec![
        ["time".to_owned()]
            .into_iter()
            .chain(heads.into_iter().flat_map(|head| [head, String::new()]))
            .collect::<Vec<_>>(),
    ];
    for at in 0..answer.steps.count {
        if streams.iter().all(|stream| stream.points[at].is_none()) {
            continue;
        }
        let mut row = vec![intervals::time(answer.steps.time(at), answer.steps.step)];
        for stream in streams {
            match &stream.points[at] {
                Some(value) => row.extend(numbers.cell(value)),
                None => row.extend(["–".to_owned(), String::new()]),
            }
        }
        rows.push(row);
    }
    let right: Vec<bool> = (0..rows[0].len()).map(|at| at % 2 == 1).collect();
    text + &table(rows, &right)
}

/// What a stream did, in a line.
fn line(stream: &Stream, numbers: &Numbers) -> Vec<String> {
    let brackets = || stream.points.iter().flatten().filter_map(Value::bracket);
    let of = |bracket: Option<Bracket>| {
        bracket.map_or_else(String::new, |bracket| numbers.value(bracket))
    };
    let least = brackets().min_by(|a, b| a.estimate.total_cmp(&b.estimate));
    let greatest = brackets().max_by(|a, b| a.estimate.total_cmp(&b.estimate));
    match brackets().next_back() {
        Some(last) => vec![name(&stream.labels), of(least), of(greatest), of(Some(last))],
        None => {
            let last = stream.points.iter().flatten().next_back();
            let [cell, _] = last.map_or_else(Default::default, |last| numbers.cell(last));
            vec![name(&stream.labels), String::new(), String::new(), cell]
        }
    }
}

fn readings(series: &Readings, numbers: &Numbers) -> String {
    let rows = series.readings.iter().map(|reading| {
        let [value, bounds] = numbers.cell(&reading.value);
        vec![intervals::time(reading.time, 1), value, bounds]
    });
    format!("{}\n{}", name(&series.labels), table(rows.collect(), &[false, true, false]))
}

/// What a stream is called; CAQL's legend where there is one.
pub(super) fn name(labels: &Labels) -> String {
    match labels.get(query::caql::LABEL) {
        "" if labels.is_empty() => "all".to_owned(),
        "" => plain(&labels.to_string()),
        label => plain(label),
    }
}

fn table(rows: Vec<Vec<String>>, right: &[bool]) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..right.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().enumerate().filter(|(at, _)| widths[*at] > 0).map(|(at, cell)| {
            let blank = " ".repeat(widths[at] - cell.chars().count());
            if right[at] { format!("{blank}{cell}") } else { format!("{cell}{blank}") }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(&format!("  {}\n", line.trim_end()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.123_456_789, "0.123457"),
            (1234.5, "1,234.5"),
            (1_226_742_335.0, "1,226,742,335"),
            (-1_000_000.0, "-1,000,000"),
            (1e-9, "1.000e-9"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(short(number), expected);
        }
    }
}

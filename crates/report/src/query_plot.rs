//! Plots a query result in the terminal: distributions as heatmaps, numbers as lines.

use crate::error::{Result, unsuitable};
use decode::Unit;
use query::{QueryResult, ResultData, StepValue, Stream};

use crate::gap::gap_text;
use render::chart::heatmap::{Heatmap, HeatmapColumn};
use render::merged_distribution::MergedDistribution;
use render::terminal::Terminal;
use render::terminal::heatmap as terminal_heatmap;
use render::terminal::line_plot::{LINES_MAX, LinePlot, PlottedLine};
use render::time::duration_text;

use crate::query_table::{self, NO_RESULT, StreamNames, number_bracket};
use query::maxima::Maxima;
use render::number_formatter::NumberFormatter;

/// Window of a distribution at a step.
#[derive(Clone, Copy, Debug)]
pub enum StepWindow {
    /// Equal to the step.
    Step,
    /// Duration in nanoseconds.
    Length(i64),
    /// Not known: windows may overlap.
    Unknown,
}

/// Distributions as heatmaps, numbers as lines.
pub fn plot_text(
    answer: &QueryResult,
    maxima: &[Maxima],
    (expression, window): (&str, StepWindow),
    terminal: &Terminal,
) -> Result<String> {
    let scalar;
    let streams = match &answer.data {
        ResultData::Matrix(streams) => streams,
        ResultData::Scalar(values) if !answer.steps.is_instant() => {
            let points = values.iter().map(|value| Some(StepValue::Number(*value))).collect();
            scalar = vec![Stream::new(query::LabelSet::default(), points)];
            &scalar
        }
        _ => {
            let message = "cannot plot an instant query; set --from, or omit --plot";
            return Err(unsuitable(message));
        }
    };
    if streams.is_empty() {
        return Ok(format!("{NO_RESULT}\n"));
    }
    let is_distribution =
        |stream: &&Stream| stream.points.iter().flatten().any(StepValue::is_distribution);
    let (distributions, lines): (Vec<&Stream>, Vec<&Stream>) =
        streams.iter().partition(is_distribution);
    let most = LINES_MAX;
    if distributions.len() > most || lines.len() > most {
        return Err(unsuitable(format!(
            "cannot plot {} streams: the limit is {most}; select some with topk, or merge them \
             with sum by (…)",
            streams.len(),
        )));
    }
    let mut pictures = Vec::new();
    for stream in distributions {
        pictures.push(heatmap_text(answer, stream, (expression, window), terminal)?);
    }
    if !lines.is_empty() {
        let lines: Vec<Stream> = lines.into_iter().cloned().collect();
        pictures.push(line_plot_text(answer, maxima, &lines, (expression, terminal)));
    }
    Ok(pictures.join("\n"))
}

fn heatmap_text(
    answer: &QueryResult,
    stream: &Stream,
    (expression, window): (&str, StepWindow),
    terminal: &Terminal,
) -> Result<String> {
    let steps = answer.steps;
    let (length, note) = match window {
        StepWindow::Step => (steps.step, None),
        StepWindow::Length(window) if window == steps.step => (window, None),
        StepWindow::Length(window) if window > steps.step => {
            let (window, step) = (duration_text(window), duration_text(steps.step));
            return Err(unsuitable(format!(
                "cannot plot: windows of {window} overlap at steps of {step}, so values would be \
                 counted more than once; set --step {}",
                window.replace(' ', "")
            )));
        }
        StepWindow::Length(window) => {
            let (of, step) = (duration_text(window), duration_text(steps.step));
            (
                window,
                Some(format!(
                    "Each column is the last {of} of each {step}; earlier values are not included."
                )),
            )
        }
        StepWindow::Unknown => {
            let note = "Each column is an instant: a value may be in several columns or in none.";
            (steps.step, Some(note.to_owned()))
        }
    };
    let mut columns = Vec::with_capacity(stream.points.len());
    for (at, point) in stream.points.iter().enumerate() {
        let values = match point {
            Some(StepValue::Distribution(mixture)) => MergedDistribution::from((**mixture).clone()),
            None => MergedDistribution::from(hist::Mixture::default()),
            Some(_) => {
                let message = "cannot plot histograms with fractional counts as a heatmap; use \
                               exact_increase";
                return Err(unsuitable(message));
            }
        };
        let end = steps.time(at);
        let start = end.saturating_sub(length);
        let gaps = answer.gaps.iter().filter(|gap| gap.start < end && start < gap.end);
        let gaps = gaps.map(gap_text).collect();
        columns.push(HeatmapColumn { start, end, values, gaps });
    }
    let unit = answer.unit.as_deref().and_then(Unit::parse);
    let label = query_table::stream_name(&stream.labels);
    let title =
        if label == "all" { expression.to_owned() } else { format!("{expression}  {label}") };
    let map = Heatmap {
        title,
        unit,
        columns,
        thresholds: Vec::new(),
        warnings: note.into_iter().collect(),
    };
    Ok(terminal_heatmap::heatmap_text(&map, terminal)?)
}

/// Numbers as lines of one plot.
fn line_plot_text(
    answer: &QueryResult,
    maxima: &[Maxima],
    streams: &[Stream],
    (expression, terminal): (&str, &Terminal),
) -> String {
    let steps = answer.steps;
    let numbers = NumberFormatter::new(answer.unit.as_deref());
    let names = StreamNames::new(streams);
    let lines = streams.iter().zip(&names.individual).map(|(stream, name)| {
        let max = maxima.iter().find_map(|maxima| maxima.stream_for(&stream.labels));
        let max = max.and_then(|max| query_table::max_bracket(&max.points));
        let suffix = max.map_or_else(String::new, |max| {
            format!("; maximum of the values {}", numbers.range(max))
        });
        let points = stream.points.iter().map(number_bracket).collect();
        PlottedLine { name: name.clone(), suffix, points }
    });
    let together = maxima.iter().filter(|maxima| !maxima.is_per_stream);
    let remarks = together.map(|maxima| format!("  {}", query_table::merged_maxima_line(maxima)));
    let (first, last) =
        (query_table::step_time(answer, 0), query_table::step_time(answer, steps.count - 1));
    let about = numbers.unit_note(answer.unit.as_deref());
    let about = about.map_or_else(String::new, |about| format!("; {about}"));
    let step = duration_text(steps.step);
    let plot = LinePlot {
        title: expression.to_owned(),
        lines: lines.collect(),
        header: names.common.iter().map(|common| format!("  {common}")).collect(),
        remarks: remarks.collect(),
        footer: format!("  {first} to {last}, every {step}{about}"),
        range: [steps.start, steps.end()],
        step_ns: steps.step,
        steps: steps.count,
        numbers: &numbers,
    };
    plot.text(terminal)
}

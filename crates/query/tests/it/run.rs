//! Script runner: runs each query and compares its result with the expectation.
//!
//! As in Prometheus, an instant query is repeated at other timestamps with `@` in every selector,
//! and each of these again as a range query with the timestamp in the middle.

use std::panic::{AssertUnwindSafe, catch_unwind};

use query::promql::{self, AtModifier, Expr, ExprKind};
use query::{
    Language, QueryRequest, QueryResult, QueryWarningKind, QueryWarnings, Settings, execute,
};

use crate::classic;
use crate::compare::{self, ActualResult};
use crate::memory::ScriptSource;
use crate::script::{self, CommandKind, EvalCommand, MessagePattern};

/// Outcome of a script.
#[derive(Default)]
pub(crate) struct ScriptReport {
    pub(crate) passed: usize,
    pub(crate) failures: Vec<ScriptFailure>,
}

/// Query with an unexpected result, or a command that failed.
pub(crate) struct ScriptFailure {
    /// Line of the script, from 1.
    pub(crate) line: usize,
    pub(crate) message: String,
}

/// Runs a script.
pub(crate) fn run(text: &str) -> ScriptReport {
    let mut report = ScriptReport::default();
    let commands = match script::read(text) {
        Ok(commands) => commands,
        Err((line, message)) => {
            report.failures.push(ScriptFailure { line, message });
            return report;
        }
    };
    let mut memory = ScriptSource::default();
    for command in commands {
        let result = match command.kind {
            CommandKind::Clear => {
                memory = ScriptSource::default();
                continue;
            }
            CommandKind::Load(load) => {
                let result = memory.load(&load).and_then(|()| match load.with_custom_buckets {
                    true => add_histograms(&mut memory, &load),
                    false => Ok(()),
                });
                if result.is_ok() {
                    continue;
                }
                result
            }
            CommandKind::Eval(eval) => {
                let result = catch_unwind(AssertUnwindSafe(|| answer(&memory, &eval)));
                let result = result
                    .unwrap_or_else(|panic| Err(format!("it panics: {}", panic_text(&*panic))));
                result.map_err(|message| format!("{}\n    {message}", eval.expr))
            }
        };
        match result {
            Ok(()) => report.passed += 1,
            Err(message) => report.failures.push(ScriptFailure { line: command.line, message }),
        }
    }
    report
}

fn add_histograms(memory: &mut ScriptSource, load: &script::LoadCommand) -> Result<(), String> {
    for (labels, samples) in classic::histograms(load)? {
        memory.add(&labels, samples)?;
    }
    Ok(())
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Runs a query in all variants and compares the results.
fn answer(memory: &ScriptSource, eval: &EvalCommand) -> Result<(), String> {
    if eval.is_range {
        return check(
            eval,
            &eval.expr,
            query_range(memory, &eval.expr, eval.start, eval.end, eval.step),
        );
    }
    let time = eval.end;
    let mut questions = vec![(eval.expr.clone(), time)];
    if let Some(fixed) = at_fixed_time(&eval.expr, time)? {
        let second = 1_000_000_000;
        let others = match time {
            0 => vec![-second, 0, second],
            time => vec![-10 * time, 0, whole_millis(time / 5), time, 10 * time],
        };
        questions.extend(others.into_iter().map(|time| (fixed.clone(), time)));
    }
    for (expr, time) in questions {
        let asked = |way: &str, wrong: String| {
            format!("{way} {expr} at {} s: {wrong}", query::seconds(time))
        };
        check(eval, &expr, query_range(memory, &expr, time, time, 0))
            .map_err(|wrong| asked("", wrong))?;
        if eval.expect.fail.is_some() || !eval.is_for_range_too || depends_on_query_range(&expr) {
            continue;
        }
        check_over_range(memory, eval, &expr, time)
            .map_err(|wrong| asked("over a range,", wrong))?;
    }
    Ok(())
}

fn whole_millis(time: i64) -> i64 {
    time / 1_000_000 * 1_000_000
}

/// Whether the result depends on the start, end or step of the query.
fn depends_on_query_range(expr: &str) -> bool {
    ["start()", "end()", "range()", "step()"].iter().any(|function| expr.contains(function))
}

/// The middle of three steps must equal the instant result.
fn check_over_range(
    memory: &ScriptSource,
    eval: &EvalCommand,
    expr: &str,
    time: i64,
) -> Result<(), String> {
    let minute = 60_000_000_000;
    let answer = query_range(memory, expr, time - minute, time + minute, minute);
    let answer = answer.map_err(|error| error.to_string())?;
    if eval.expect.ordered {
        return Ok(());
    }
    let ActualResult::Matrix(mut rows) = ActualResult::from_data(answer.data, answer.steps, true)
    else {
        return Err("the answer is of another kind".to_owned());
    };
    if !rows.is_sorted_by(|a, b| a.labels <= b.labels) {
        return Err("the series are not in the order of their labels".to_owned());
    }
    for row in &mut rows {
        row.points.retain(|(at, _)| *at == time);
    }
    rows.retain(|row| !row.points.is_empty());
    let found = match (&eval.answer, &rows[..]) {
        (script::ExpectedResult::Scalar(_), [row]) if row.labels.is_empty() => {
            ActualResult::Scalar(row.points[0].1.number().unwrap_or(f64::NAN))
        }
        _ => ActualResult::Vector(rows),
    };
    compare_with(eval, &found)
}

fn query_range(
    memory: &ScriptSource,
    expr: &str,
    start: i64,
    end: i64,
    step: i64,
) -> query::Result<QueryResult> {
    let question = QueryRequest {
        text: expr,
        language: Language::PromQl,
        start,
        end,
        step,
        options: options(),
    };
    let settings = Settings {
        delayed_name_removal: true,
        start_timestamps: true,
        averaged_quantiles: true,
        ..Settings::default()
    };
    execute(memory, &question, &settings, &|| false)
}

/// All features enabled.
fn options() -> promql::Options {
    promql::Options::all()
}

fn check(eval: &EvalCommand, expr: &str, answer: query::Result<QueryResult>) -> Result<(), String> {
    let answer = match (answer, &eval.expect.fail) {
        (Err(error), Some(pattern)) => {
            let message = error.to_string();
            return match pattern.matches(&message) {
                true => Ok(()),
                false => Err(format!("it fails with {message:?}, not {pattern:?}")),
            };
        }
        (Err(error), None) => return Err(format!("it fails: {error}")),
        (Ok(answer), _) => answer,
    };
    let found = ActualResult::from_data(answer.data, answer.steps, eval.is_range);
    if eval.expect.fail.is_some() {
        return Err(format!("it does not fail but gives {}", found.show()));
    }
    check_warnings(eval, expr, &answer.warnings)?;
    compare_with(eval, &found)
}

fn compare_with(eval: &EvalCommand, found: &ActualResult) -> Result<(), String> {
    compare::check(eval, found).map_err(|wrong| {
        let expected = compare::show_expected(&eval.answer);
        format!("{wrong}\n    expected {expected}\n    found {}", found.show())
    })
}

fn check_warnings(eval: &EvalCommand, expr: &str, notes: &QueryWarnings) -> Result<(), String> {
    let expect = &eval.expect;
    let kinds = [
        (QueryWarningKind::Warning, "warning", &expect.warn, expect.no_warn),
        (QueryWarningKind::Info, "info", &expect.info, expect.no_info),
    ];
    for (kind, name, patterns, none) in kinds {
        let found: Vec<String> = notes
            .of_kind(kind)
            .map(|(message, place)| {
                let (line, column) = place.line_and_column(expr);
                format!("{message} ({line}:{column})")
            })
            .collect();
        if none && !found.is_empty() {
            return Err(format!("{name} that is not expected: {found:?}"));
        }
        if let Some(pattern) = patterns.iter().find(|pattern| !is_any(pattern, &found)) {
            return Err(format!("no {name} is as {pattern:?}: {found:?}"));
        }
        let is_expected = |note: &String| patterns.iter().any(|pattern| pattern.matches(note));
        if let Some(note) = found.iter().find(|note| !patterns.is_empty() && !is_expected(note)) {
            return Err(format!("{name} that is not expected: {note:?}"));
        }
    }
    Ok(())
}

fn is_any(pattern: &MessagePattern, found: &[String]) -> bool {
    found.iter().any(|note| pattern.matches(note))
}

/// Functions whose value depends on the step even if their arguments do not.
const TIME_DEPENDENT: [&str; 15] = [
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "days_in_month",
    "end",
    "hour",
    "minute",
    "month",
    "predict_linear",
    "range",
    "start",
    "step",
    "time",
    "timestamp",
    "year",
];

/// Expression with `@` in every selector, so that it is constant over steps; `None` if it is not.
fn at_fixed_time(text: &str, time: i64) -> Result<Option<String>, String> {
    let mut expr =
        promql::parse(text, &options()).map_err(|error| error.format_with_source(text))?;
    Ok(set_fixed_time(&mut expr, time).then(|| expr.to_string()))
}

fn set_fixed_time(expr: &mut Expr, time: i64) -> bool {
    let at = match &mut expr.kind {
        ExprKind::Selector(selector) | ExprKind::Matrix { selector, .. } => &mut selector.at,
        ExprKind::Subquery { at, .. } => at,
        ExprKind::Call { function, .. } if TIME_DEPENDENT.contains(&function.name) => return false,
        _ => {
            let mut children = expr.children_mut().into_iter();
            return children.all(|child| set_fixed_time(child, time));
        }
    };
    if !matches!(at, Some(AtModifier::Time(_))) {
        *at = Some(AtModifier::Time(time));
    }
    true
}

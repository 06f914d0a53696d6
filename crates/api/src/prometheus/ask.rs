//! Expressions: at one moment, over time, and set in order.

use std::sync::Arc;

use query::{Language, Question, Settings, Stored, promql};
use store::View;

use super::{Beside, Failure, answer, success};
use crate::context::Context;
use crate::desk::{Asking, Written};
use crate::json::write_text;
use crate::parameters::Parameters;
use crate::refusal::Refusal;

/// Moments of an answer at the most, as in Prometheus.
const POINTS_MAX: i64 = 11_000;
const MS: i64 = 1_000_000;
const QUERY: &str = "an expression of PromQL";
/// What is told when the limit was reached, as Prometheus does.
pub(super) const TRUNCATED: &str = "results truncated due to limit";

/// Everything but what averages quantiles, or has operators in durations: what Prometheus has without flags, and what
/// dashboards use with them.
const OPTIONS: promql::Options = promql::Options {
    experimental_functions: true,
    duration_expressions: true,
    extended_selectors: true,
    binop_fill: true,
    standard_only: false,
};

/// What is asked.
struct Asked {
    text: String,
    start: i64,
    end: i64,
    /// 0 for one moment.
    step: i64,
    limit: usize,
    lookback: Option<i64>,
    timeout: Option<std::time::Duration>,
}

pub(super) async fn instant(
    context: Context,
    parameters: Result<Parameters, Refusal>,
) -> Result<Written, Failure> {
    let parameters = parameters?;
    let now = context.intake.now();
    let time = millis(parameters.moment("time", now)?.unwrap_or(now));
    answer(&context, Asked::read(&parameters, time, time, 0)?).await
}

pub(super) async fn range(
    context: Context,
    parameters: Result<Parameters, Refusal>,
) -> Result<Written, Failure> {
    let parameters = parameters?;
    let now = context.intake.now();
    let moment = |name: &str| {
        parameters.required(name, crate::moment::MOMENT)?;
        Ok::<_, Refusal>(millis(parameters.moment(name, now)?.unwrap_or(now)))
    };
    let (start, end) = (moment("start")?, moment("end")?);
    if end < start {
        let what = "invalid parameter \"end\": end timestamp must not be before start time";
        return Err(Refusal::Bad(what.to_owned()).into());
    }
    parameters.required("step", crate::moment::LENGTH)?;
    let step = match parameters.length("step")? {
        Some(step) if step >= MS => millis(step),
        _ => {
            let found = parameters.get("step").unwrap_or("");
            return Err(
                Refusal::parameter("step", found, "a length of a millisecond or more").into()
            );
        }
    };
    if end.saturating_sub(start) / step > POINTS_MAX {
        let what = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)";
        return Err(Refusal::Bad(what.to_owned()).into());
    }
    answer(&context, Asked::read(&parameters, start, end, step)?).await
}

/// Prometheus knows milliseconds.
fn millis(ns: i64) -> i64 {
    ns.div_euclid(MS).saturating_mul(MS)
}

impl Asked {
    fn read(parameters: &Parameters, start: i64, end: i64, step: i64) -> Result<Asked, Refusal> {
        Ok(Asked {
            text: parameters.required("query", QUERY)?.to_owned(),
            start,
            end,
            step,
            limit: parameters.count("limit", 0, usize::MAX)?,
            lookback: parameters.length("lookback_delta")?,
            timeout: parameters.timeout()?,
        })
    }

    fn question(&self) -> Question<'_> {
        let &Asked { ref text, start, end, step, .. } = self;
        Question { text, language: Language::PromQl, start, end, step, options: OPTIONS }
    }
}

/// An expression that cannot be read, as Prometheus tells it.
pub(super) fn unread(name: &str, error: &query::Error, text: &str) -> Refusal {
    let (line, column) = error.place().unwrap_or_default().line_and_column(text);
    Refusal::Bad(format!("invalid parameter {name:?}: {line}:{column}: parse error: {error}"))
}

async fn answer(context: &Context, asked: Asked) -> Result<Written, Failure> {
    let (desk, timeout) = (context.desk.clone(), asked.timeout);
    let mut settings = Settings {
        limits: desk.settings.limits,
        threads: desk.settings.threads,
        ..Settings::default()
    };
    settings.lookback = asked.lookback.unwrap_or(settings.lookback);
    let asked = Arc::new(asked);
    let (own, own_settings) = (Arc::clone(&asked), settings.clone());
    let estimate = move |view: &View, asking: &Asking| {
        let source = Stored::new(view).within(asking);
        // What is wrong with it is told when it is worked on.
        query::estimate(&source, &own.question(), &own_settings, asking).unwrap_or(0)
    };
    let work = move |view: &View, asking: &Asking| {
        let Asked { text, step, limit, .. } = &*asked;
        let source = Stored::new(view).within(asking);
        let mut answer = query::ask(&source, &asked.question(), &settings, asking).map_err(
            |error| match error {
                query::Error::Parse { .. } => unread("query", &error, text),
                other => Refusal::of_question(other, text),
            },
        )?;
        let is_cut = answer::cut(&mut answer, *limit);
        let mut beside = answer::beside(&answer, text);
        beside.warnings.extend(is_cut.then(|| TRUNCATED.to_owned()));
        success(asking.page(), &beside, |page| answer::write(page, &answer, *step != 0))
    };
    Ok(context.query("prometheus", timeout, estimate, work).await?)
}

pub(super) async fn format(
    context: Context,
    parameters: Result<Parameters, Refusal>,
) -> Result<Written, Failure> {
    let parameters = parameters?;
    let desk = context.desk.clone();
    let work = move |_: &Asking| {
        let text = parameters.required("query", QUERY)?;
        let expression =
            promql::parse(text, &OPTIONS).map_err(|error| unread("query", &error, text))?;
        let shown = expression.to_string();
        success(desk.page(), &Beside::default(), |page| write_text(page, &shown))
    };
    Ok(context.light("prometheus_format", None, work).await?)
}

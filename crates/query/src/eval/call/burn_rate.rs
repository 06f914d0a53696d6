//! `burn_rate(factor, budget, bad_long, total_long, bad_short, total_short)`: burn rate of an error
//! budget over two windows ([`crate::burn_rate`]). Vectors are matched by all labels; a step at
//! which one of the four has no value has no result, so that missing data is not a rate of 0.

use std::collections::HashMap;

use crate::burn_rate::{BurnRule, WindowEvents};
use crate::error::Result;
use crate::eval::Evaluation;
use crate::labels::LabelSet;
use crate::stream::Stream;
use crate::value::StepValue;

use super::{FunctionCall, samples};

/// Position of the first vector among the arguments.
const VECTORS: usize = 2;

/// Smaller burn rate of the two windows; 0 if chance explains the bad events.
pub(crate) fn burn_rate(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let factors = evaluation.scalar(&call.args[0], call.steps)?;
    let budgets = evaluation.scalar(&call.args[1], call.steps)?;
    let mut held = 0;
    let mut vectors: Vec<HashMap<LabelSet, Stream>> = Vec::new();
    for argument in &call.args[VECTORS..] {
        let mut streams = evaluation.streams(argument, call.steps)?;
        held += samples(&streams);
        streams.iter_mut().for_each(|stream| evaluation.drop_name(stream));
        let streams = evaluation.merge_equal_labels(streams, call.span)?;
        vectors.push(streams.into_iter().map(|stream| (stream.labels.clone(), stream)).collect());
    }
    let [bad_long, total_long, bad_short, total_short] = &vectors[..] else {
        panic!("BUG: the signature has four vectors");
    };
    let mut labels: Vec<&LabelSet> = total_long.keys().collect();
    model::sort::by(&mut labels, Ord::cmp);
    let mut streams = Vec::new();
    for labels in labels {
        let all = [bad_long, total_long, bad_short, total_short].map(|all| all.get(labels));
        let [Some(bad_long), Some(total_long), Some(bad_short), Some(total_short)] = all else {
            continue;
        };
        let points = (0..call.steps.count).map(|step| {
            let long = window(bad_long, total_long, step)?;
            let short = window(bad_short, total_short, step)?;
            let rule = BurnRule { factor: factors[step], budget: budgets[step] };
            let rate = rule.burn_rate(&long, &short);
            Some(StepValue::from_bounds(rate.lower, rate.estimate, rate.upper))
        });
        streams.push(Stream::new(labels.clone(), points.collect()));
    }
    evaluation.replace_streams(held, &mut streams)?;
    Ok(streams)
}

fn window(bad: &Stream, total: &Stream, step: usize) -> Option<WindowEvents> {
    let value = |stream: &Stream| stream.points[step].as_ref().and_then(StepValue::bracket);
    Some(WindowEvents { bad: value(bad)?, total: value(total)?.estimate })
}

#[cfg(test)]
mod tests {
    use crate::eval::aggregate::tests::EmptySource;
    use crate::{Language, QueryRequest, ResultData, Settings, StepValue, execute, promql};

    fn evaluate(text: &str) -> Vec<Option<StepValue>> {
        let options = promql::Options::default();
        let request =
            QueryRequest { text, language: Language::PromQl, start: 0, end: 0, step: 0, options };
        let result = execute(&EmptySource, &request, &Settings::default(), &|| false).unwrap();
        let ResultData::Vector(streams) = result.data else { panic!("{:?}", result.data) };
        streams.into_iter().flat_map(|stream| stream.points).collect()
    }

    #[test]
    fn smaller_rate_is_returned_and_a_single_bad_event_is_not() {
        let call = "burn_rate(14.4, 0.001, vector(300), vector(10000), vector(20), vector(1000))";
        let found = evaluate(call)[0].as_ref().and_then(StepValue::number).unwrap();
        assert!((found - 20.0).abs() < 1e-9, "{found}");
        let one = "burn_rate(14.4, 0.001, vector(1), vector(60), vector(1), vector(5))";
        assert_eq!(evaluate(one), [Some(StepValue::Number(0.0))]);
    }

    #[test]
    fn missing_window_has_no_rate() {
        let call =
            "burn_rate(14.4, 0.001, vector(300), vector(10000), absent(vector(1)), vector(1))";
        assert_eq!(evaluate(call), []);
    }
}

//! From a query to what has to be done: sources are found, operators become functions, what stands in the query
//! twice is worked out once, and histograms that are merged are read together.

use std::collections::HashMap;

use super::arguments::{Arguments, Context};
use super::ast::{Body, Directives, Operator};
use super::bind::{Bound, Meaning, bind};
use super::parse;
use super::quantiles;
use super::signature::Signature;
use super::sources::{Find, What};
use super::stage::{Call, Form, Stage};
use crate::ask::Question;
use crate::error::{Error, Place, Result};
use crate::eval::Settings;
use crate::note::Notes;
use crate::plan::{Node, Op};
use crate::promql;
use crate::stream::Steps;

/// Of a slot, where nothing else is said; and what durations are rounded down to.
const PERIOD: i64 = store::MINUTE;

/// What has to be done.
pub(crate) struct Plan {
    pub(crate) node: Node,
    /// The slots that are asked for.
    pub(crate) steps: Steps,
    pub(crate) notes: Notes,
    /// The expression is PromQL, and begins here.
    pub(crate) promql_at: Option<usize>,
    /// How old PromQL takes the latest reading at the most, if the query says so.
    pub(crate) lookback: Option<i64>,
}

/// What has to be done for a question.
pub(crate) fn plan(question: &Question<'_>, settings: &Settings) -> Result<Plan> {
    let query = parse(question.text)?;
    let steps = slots(question, &query.directives, settings)?;
    let mut plan = Plan {
        node: Node { op: Op::Number(0.0), place: Place::default() },
        steps,
        notes: Notes::default(),
        promql_at: None,
        lookback: query.directives.lookback_ns,
    };
    let expr = match query.body {
        Body::Caql(expr) => expr,
        Body::Promql { text, offset } => {
            plan.promql_at = Some(offset);
            let planned = of_promql(&text, question, settings, steps);
            plan.node = planned.map_err(|error| error.moved(offset))?;
            return Ok(plan);
        }
    };
    let context = Context {
        view_range_ns: steps.step.saturating_mul(steps.count as i64),
        view_period_ns: steps.step,
        is_serial: query.directives.serial,
    };
    let bound = bind(&expr, &context, &mut plan.notes)?;
    if !settings.averaged_quantiles {
        quantiles::refuse_averages(&bound, question.text)?;
    }
    let mut planner = Planner {
        context,
        start: steps.start,
        least: query.directives.min_period_ns.unwrap_or(PERIOD),
        known: HashMap::new(),
        uses: Vec::new(),
    };
    let counted = planner.count(&bound);
    plan.node = planner.node(&bound, &counted, 0)?;
    Ok(plan)
}

/// The slots of a question: its end belongs to none of them.
fn slots(question: &Question<'_>, directives: &Directives, settings: &Settings) -> Result<Steps> {
    let least = directives.min_period_ns.unwrap_or(PERIOD);
    let period = if question.step == 0 { PERIOD } else { question.step }.max(least);
    let invalid = |message: &str| {
        let place = Place::new(0, question.text.len());
        Err(Error::Parse { place, message: message.to_owned() })
    };
    if question.step < 0 {
        return invalid("the period is negative: give a period above nought");
    }
    if question.end < question.start {
        return invalid("the start is later than the end: give a start before the end");
    }
    // One moment is its slot.
    let length = question.end.saturating_sub(question.start).max(1);
    let count = (length as u64).div_ceil(period as u64);
    let max = settings.limits.steps;
    if count > max {
        let remedy = "ask for longer periods or a shorter time, or raise max_steps".to_owned();
        return Err(Error::Limit { what: "steps (max_steps)", found: count, max, remedy });
    }
    Ok(Steps { start: question.start, step: period, count: count as usize })
}

fn of_promql(
    text: &str,
    question: &Question<'_>,
    settings: &Settings,
    steps: Steps,
) -> Result<Node> {
    let expression = promql::parse(text, &question.options)?;
    let question = Question { text, end: steps.end(), step: steps.step, ..question.clone() };
    let (_, node) = promql::plan(&expression, &question, settings)?;
    Ok(node)
}

struct Planner {
    context: Context,
    /// Of the first slot that is asked for.
    start: i64,
    /// What durations are rounded down to.
    least: i64,
    /// Nodes by what they say: which of those that differ.
    known: HashMap<String, usize>,
    /// By how many nodes that differ each is needed.
    uses: Vec<usize>,
}

/// A node, as one of those that differ.
struct Counted {
    which: usize,
    sources: Vec<Counted>,
}

/// How deep nodes may stand within each other: working them out is recursive.
const DEPTH_MAX: usize = 256;

/// Whether an operator takes two operands at a time.
fn is_pairwise(operator: Operator) -> bool {
    matches!(operator, Operator::Divide | Operator::Remainder | Operator::Power)
}

impl Planner {
    /// Recursive; the parser has seen to the depth.
    fn count(&mut self, bound: &Bound) -> Counted {
        let below: &[Bound] = match &bound.meaning {
            Meaning::Constant(_) => &[],
            Meaning::Call { sources, .. } => sources,
            Meaning::Operation { operands, .. } => operands,
        };
        let sources: Vec<Counted> = below.iter().map(|source| self.count(source)).collect();
        let own = match &bound.meaning {
            Meaning::Constant(number) => format!("{number:?}"),
            // Two of them are not the same walk.
            Meaning::Call { function, .. } if function.computes == "randomwalk" => {
                format!("{}", bound.place)
            }
            Meaning::Call { function, arguments, .. } => {
                format!("{} {arguments:?}", function.computes)
            }
            Meaning::Operation { operator, .. } => format!("{operator:?}"),
        };
        let places: Vec<String> = sources.iter().map(|source| source.which.to_string()).collect();
        let key = format!("{own} {{{}}}", places.join(","));
        let next = self.uses.len();
        let which = *self.known.entry(key).or_insert(next);
        if which == next {
            self.uses.push(1);
        } else {
            self.uses[which] += 1;
            // Its sources are needed by the same as before.
            for source in &sources {
                self.uses[source.which] -= 1;
            }
        }
        Counted { which, sources }
    }

    fn node(&self, bound: &Bound, counted: &Counted, depth: usize) -> Result<Node> {
        let place = bound.place;
        if depth > DEPTH_MAX {
            let message = format!(
                "more than {DEPTH_MAX} operations within each other; a row of / % or ^ counts each of them"
            );
            return Err(Error::Parse { place, message });
        }
        let shared = (self.uses[counted.which] > 1).then_some(counted.which);
        let stage = |form: Form| {
            let stage = Stage { form, shared, context: self.context };
            Ok(Node { op: Op::Stage(Box::new(stage)), place })
        };
        match &bound.meaning {
            Meaning::Constant(Some(number)) => Ok(Node { op: Op::Number(*number), place }),
            Meaning::Constant(None) => stage(Form::Null),
            Meaning::Operation { operator, operands } => {
                // Two at a time, the first stand below all others.
                let depth = depth + if is_pairwise(*operator) { operands.len() } else { 1 };
                let sources = self.nodes(operands, &counted.sources, depth)?;
                stage(self.operation(*operator, sources, place))
            }
            Meaning::Call { function, arguments, sources, name_place } => {
                let computes = function.computes.as_str();
                if let Some(what) = What::of_function(computes) {
                    return stage(Form::Find(self.find(what, function, arguments, *name_place)?));
                }
                if let Some(merge) = self.merge(computes, arguments, sources)? {
                    return stage(merge);
                }
                let sources = self.nodes(sources, &counted.sources, depth + 1)?;
                if computes == "delay" {
                    let delays = arguments.rest().iter().filter_map(|given| given.duration());
                    let delays = delays.map(|delay| delay - delay % self.least).collect();
                    return stage(Form::Delay { delays, sources });
                }
                let (arguments, place) = (arguments.clone(), *name_place);
                stage(Form::Call(Box::new(Call { function, arguments, sources, place })))
            }
        }
    }

    fn nodes(&self, bound: &[Bound], counted: &[Counted], depth: usize) -> Result<Vec<Node>> {
        bound.iter().zip(counted).map(|(bound, counted)| self.node(bound, counted, depth)).collect()
    }

    /// Operators that take more than two operands take all at once, the others two at a time.
    fn operation(&self, operator: Operator, sources: Vec<Node>, place: Place) -> Form {
        let function = Signature::of(operator.function()).expect("BUG: operators are functions");
        let call = |sources: Vec<Node>| {
            let arguments = Arguments::none();
            Form::Call(Box::new(Call { function, arguments, sources, place }))
        };
        if !is_pairwise(operator) || sources.len() < 3 {
            return call(sources);
        }
        let mut sources = sources.into_iter();
        let mut left: Vec<Node> = sources.by_ref().take(2).collect();
        for right in sources {
            let stage = Stage { form: call(left), shared: None, context: self.context };
            left = vec![Node { op: Op::Stage(Box::new(stage)), place }, right];
        }
        call(left)
    }

    fn find(
        &self,
        what: What,
        function: &Signature,
        arguments: &Arguments,
        place: Place,
    ) -> Result<Box<Find>> {
        Find::new(what, function, arguments, self.start, place).map(Box::new)
    }

    /// Histograms that are found only to be merged are read together: a store adds them up faster.
    fn merge(
        &self,
        computes: &str,
        arguments: &Arguments,
        sources: &[Bound],
    ) -> Result<Option<Form>> {
        let by = match computes {
            "histogram:merge" => None,
            "group_by:merge" => {
                let texts = arguments.rest().iter().filter_map(|given| given.text());
                Some(texts.map(str::to_owned).collect())
            }
            _ => return Ok(None),
        };
        let [Bound { meaning: Meaning::Call { function, arguments, name_place, .. }, .. }] =
            sources
        else {
            return Ok(None);
        };
        match What::of_function(&function.computes) {
            Some(what @ What::Histogram) => {
                let find = self.find(what, function, arguments, *name_place)?;
                Ok(Some(Form::Merge { find, by }))
            }
            _ => Ok(None),
        }
    }
}

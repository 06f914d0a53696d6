//! Binder: resolves functions and argument values.
//!
//! Properties that depend on data are not checked here: the number of streams of an input, and
//! whether a time zone exists.

use model::Selector;
use model::selector::Pattern;

use super::arguments::{ArgumentValue, Arguments, CaqlContext, arguments, constant_stream};
use super::ast::{CallExpr, CaqlExpr, CaqlExprKind, Operator};
use super::signature::{InputKind, OutputKind, Signature, Stability};
use crate::error::{Error, Result, SourceSpan};
use crate::query_warnings::QueryWarnings;

/// Maximum number of regexes in a query, over all of its selectors.
pub const REGEXES_MAX: usize = 64;

/// Bound expression.
#[derive(Clone, Debug)]
pub struct BoundExpr {
    /// Kind of the expression.
    pub bound_kind: BoundKind,
    /// Value kind of its streams.
    pub stream_kind: StreamKind,
    /// Span in the query.
    pub span: SourceSpan,
}

/// Kind of a bound expression.
#[derive(Clone, Debug)]
pub enum BoundKind {
    /// Constant: the same number in every slot, or no value in any slot.
    Constant(Option<f64>),
    /// Call of a function with its inputs.
    Call {
        /// Signature of the function.
        function: &'static Signature,
        /// Arguments, defaults included.
        arguments: Arguments,
        /// Span of the function name.
        name_span: SourceSpan,
        /// Inputs; their streams are concatenated in order.
        inputs: Vec<BoundExpr>,
    },
    /// Operation; more than two operands are evaluated from the left.
    Operation {
        /// Operator.
        operator: Operator,
        /// Operands.
        operands: Vec<BoundExpr>,
    },
}

/// Value kind of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// All streams hold numbers.
    Numbers,
    /// All streams hold histograms.
    Histograms,
    /// Streams of both kinds.
    Mixed,
}

/// Binds a tree and adds hints for better queries to `notes`.
pub fn bind(
    expr: &CaqlExpr,
    context: &CaqlContext,
    notes: &mut QueryWarnings,
) -> Result<BoundExpr> {
    Binder { context, warnings: notes, regexes: 0 }.bind(expr)
}

struct Binder<'a> {
    context: &'a CaqlContext,
    warnings: &'a mut QueryWarnings,
    regexes: usize,
}

impl Binder<'_> {
    /// Recursive; the parser limits the depth.
    fn bind(&mut self, expr: &CaqlExpr) -> Result<BoundExpr> {
        let span = expr.span;
        match &expr.kind {
            CaqlExprKind::Literal(literal) => {
                let number = constant_stream(literal, self.context)
                    .map_err(|message| parse_error(span, message))?;
                Ok(BoundExpr {
                    bound_kind: BoundKind::Constant(number),
                    stream_kind: StreamKind::Numbers,
                    span,
                })
            }
            CaqlExprKind::Operation { operator, operands } => {
                let operands = self.bind_all(operands)?;
                for operand in &operands {
                    check_input_kind(
                        operand,
                        InputKind::Numbers,
                        &format!("`{}`", operator.symbol()),
                    )?;
                }
                let meaning = BoundKind::Operation { operator: *operator, operands };
                Ok(BoundExpr { bound_kind: meaning, stream_kind: StreamKind::Numbers, span })
            }
            CaqlExprKind::Call(call) => self.call(call, span),
        }
    }

    fn bind_all(&mut self, exprs: &[CaqlExpr]) -> Result<Vec<BoundExpr>> {
        exprs.iter().map(|expr| self.bind(expr)).collect()
    }

    fn call(&mut self, call: &CallExpr, span: SourceSpan) -> Result<BoundExpr> {
        let name_place = call.name_span;
        let refused = |message: String| Err(parse_error(name_place, message));
        let function = self.function(call)?;
        let name = &function.name;
        if self.context.is_serial && !function.is_serial {
            return refused(format!("{name} needs the whole range: not available with #serial"));
        }
        let arguments = arguments(function, call, self.context)?;
        self.count_regexes(&arguments)?;
        match (function.inputs_kind, call.inputs.is_empty()) {
            (InputKind::Nothing, false) => {
                return refused(format!(
                    "{name} takes no streams; to combine both, write pass{{…, {name}(…)}}"
                ));
            }
            (InputKind::Numbers | InputKind::Histograms | InputKind::Either, true) => {
                return refused(format!(
                    "{name} requires streams; write find(…) | {name}(…) or {name}(…){{…}}"
                ));
            }
            _ => {}
        }
        let inputs = self.bind_all(&call.inputs)?;
        for input in &inputs {
            check_input_kind(input, function.inputs_kind, name)?;
        }
        let kind = match function.output_kind {
            OutputKind::Numbers => StreamKind::Numbers,
            OutputKind::Histograms => StreamKind::Histograms,
            OutputKind::AsInput => kind_of(&inputs),
        };
        let meaning = BoundKind::Call { function, arguments, name_span: name_place, inputs };
        Ok(BoundExpr { bound_kind: meaning, stream_kind: kind, span })
    }

    fn function(&mut self, call: &CallExpr) -> Result<&'static Signature> {
        let (name, span) = (&call.name, call.name_span);
        let Some(function) = Signature::find(name) else {
            let mut near = Signature::nearest(name);
            near.truncate(4);
            let hint = match near.is_empty() {
                true => String::new(),
                false => format!("; did you mean {}?", near.join(" or ")),
            };
            return Err(parse_error(span, format!("unknown function {name}{hint}")));
        };
        match function.stability {
            Stability::Current => {}
            Stability::Deprecated(instead) => {
                self.warnings.info(span, format!("{name} is deprecated; use {instead}"));
            }
            Stability::Removed(instead) => {
                return Err(parse_error(span, format!("{name} was removed; use {instead}")));
            }
        }
        Ok(function)
    }

    fn count_regexes(&mut self, arguments: &Arguments) -> Result<()> {
        self.regexes += arguments.values().map(count_in_value).sum::<usize>();
        if self.regexes <= REGEXES_MAX {
            return Ok(());
        }
        Err(Error::Limit {
            limit: "regexes",
            found: self.regexes as u64,
            max: REGEXES_MAX as u64,
            remedy: "use globs, such as web-*, or combine several regexes in one".to_owned(),
        })
    }
}

fn count_in_value(value: &ArgumentValue) -> usize {
    match value {
        ArgumentValue::Regex(_) => 1,
        ArgumentValue::Selector(selector) => count_in_selector(selector),
        _ => 0,
    }
}

/// Recursive; the depth of a selector is at most `model::selector::DEPTH_MAX`.
fn count_in_selector(selector: &Selector) -> usize {
    match selector {
        Selector::And(parts) | Selector::Or(parts) => parts.iter().map(count_in_selector).sum(),
        Selector::Not(part) => count_in_selector(part),
        Selector::Tag { pattern: Pattern::Regex(_), .. } => 1,
        Selector::Tag { .. } | Selector::All => 0,
    }
}

fn kind_of(inputs: &[BoundExpr]) -> StreamKind {
    let mut kinds = inputs.iter().map(|input| input.stream_kind);
    let first = kinds.next().unwrap_or(StreamKind::Numbers);
    if kinds.all(|kind| kind == first) { first } else { StreamKind::Mixed }
}

/// Rejects an input of a kind that the function does not accept.
fn check_input_kind(input: &BoundExpr, takes: InputKind, name: &str) -> Result<()> {
    let (expected_kind, hint) = match (takes, input.stream_kind) {
        (InputKind::Numbers, StreamKind::Histograms | StreamKind::Mixed) => (
            "numbers",
            "histogram:mean() or histogram:percentile(99) convert histograms to numbers, \
             histogram:merge() merges them",
        ),
        (InputKind::Histograms, StreamKind::Numbers | StreamKind::Mixed) => (
            "histograms",
            "find:histogram(…) reads histograms, histogram() builds them from numbers",
        ),
        _ => return Ok(()),
    };
    let found = match input.stream_kind {
        StreamKind::Numbers => "numbers",
        StreamKind::Histograms => "histograms",
        StreamKind::Mixed => "numbers and histograms",
    };
    Err(parse_error(input.span, format!("{name} takes {expected_kind}, got {found}; {hint}")))
}

fn parse_error(span: SourceSpan, message: String) -> Error {
    Error::Parse { span, message }
}

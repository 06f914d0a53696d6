//! Binder: resolves functions and argument values.
//!
//! What depends on data is not looked at here: how many streams a source gives, whether a time zone
//! is known.

use model::Selector;
use model::selector::Pattern;

use super::arguments::{ArgumentValue, Arguments, CaqlContext, arguments, constant_stream};
use super::ast::{CallExpr, CaqlExpr, CaqlExprKind, Operator};
use super::signature::{InputKind, OutputKind, Signature, Stability};
use crate::error::{Error, Result, SourceSpan};
use crate::query_warnings::QueryWarnings;

/// Regexes of a query at the most, those of all its selectors together.
pub const REGEXES_MAX: usize = 64;

/// Bound expression.
#[derive(Clone, Debug)]
pub struct BoundExpr {
    /// What it is.
    pub bound_kind: BoundKind,
    /// Of what kind its streams are.
    pub stream_kind: StreamKind,
    /// Where it stands in the query.
    pub span: SourceSpan,
}

/// Kind of a bound expression.
#[derive(Clone, Debug)]
pub enum BoundKind {
    /// The same number in every slot, or none in any.
    Constant(Option<f64>),
    /// A function of its sources.
    Call {
        /// Which.
        function: &'static Signature,
        /// Its arguments, defaults included.
        arguments: Arguments,
        /// Where its name stands.
        name_span: SourceSpan,
        /// Its streams are those of the first, then those of the second, and so on.
        sources: Vec<BoundExpr>,
    },
    /// An operator; of more than two operands, it is taken from the left.
    Operation {
        /// Which.
        operator: Operator,
        /// Its operands.
        operands: Vec<BoundExpr>,
    },
}

/// Value kind of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// All are numbers.
    Numbers,
    /// All are histograms.
    Histograms,
    /// There are some of both.
    Mixed,
}

/// Binds a tree. What could be better about it is noted.
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
    /// Recursive; the parser has seen to the depth.
    fn bind(&mut self, expr: &CaqlExpr) -> Result<BoundExpr> {
        let place = expr.span;
        match &expr.kind {
            CaqlExprKind::Literal(literal) => {
                let number = constant_stream(literal, self.context)
                    .map_err(|message| parse_error(place, message))?;
                Ok(BoundExpr {
                    bound_kind: BoundKind::Constant(number),
                    stream_kind: StreamKind::Numbers,
                    span: place,
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
                Ok(BoundExpr { bound_kind: meaning, stream_kind: StreamKind::Numbers, span: place })
            }
            CaqlExprKind::Call(call) => self.call(call, place),
        }
    }

    fn bind_all(&mut self, exprs: &[CaqlExpr]) -> Result<Vec<BoundExpr>> {
        exprs.iter().map(|expr| self.bind(expr)).collect()
    }

    fn call(&mut self, call: &CallExpr, place: SourceSpan) -> Result<BoundExpr> {
        let name_place = call.name_span;
        let refused = |message: String| Err(parse_error(name_place, message));
        let function = self.function(call)?;
        let name = &function.name;
        if self.context.is_serial && !function.is_serial {
            return refused(format!(
                "{name} needs the whole range at once: it is not available with #serial and in \
                 checks"
            ));
        }
        let arguments = arguments(function, call, self.context)?;
        self.count_regexes(&arguments)?;
        match (function.inputs_kind, call.sources.is_empty()) {
            (InputKind::Nothing, false) => {
                return refused(format!(
                    "{name} takes no streams; to have both, write pass{{…, {name}(…)}}"
                ));
            }
            (InputKind::Numbers | InputKind::Histograms | InputKind::Either, true) => {
                return refused(format!(
                    "{name} wants streams: write find(…) | {name}(…), or {name}(…){{…}}"
                ));
            }
            _ => {}
        }
        let sources = self.bind_all(&call.sources)?;
        for source in &sources {
            check_input_kind(source, function.inputs_kind, name)?;
        }
        let kind = match function.output_kind {
            OutputKind::Numbers => StreamKind::Numbers,
            OutputKind::Histograms => StreamKind::Histograms,
            OutputKind::AsInput => kind_of(&sources),
        };
        let meaning = BoundKind::Call { function, arguments, name_span: name_place, sources };
        Ok(BoundExpr { bound_kind: meaning, stream_kind: kind, span: place })
    }

    fn function(&mut self, call: &CallExpr) -> Result<&'static Signature> {
        let (name, place) = (&call.name, call.name_span);
        let Some(function) = Signature::find(name) else {
            let mut near = Signature::nearest(name);
            near.truncate(4);
            let hint = match near.is_empty() {
                true => String::new(),
                false => format!("; did you mean {}?", near.join(" or ")),
            };
            return Err(parse_error(place, format!("there is no function {name}{hint}")));
        };
        match function.stability {
            Stability::Current => {}
            Stability::Deprecated(instead) => {
                self.warnings.info(place, format!("{name} is an old name: write {instead}"));
            }
            Stability::Removed(instead) => {
                return Err(parse_error(
                    place,
                    format!("there is no function {name}: use {instead}"),
                ));
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
            remedy: "use globs, such as web-*, or one find for what several regexes find"
                .to_owned(),
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

/// Recursive; a selector is at most `model::selector::DEPTH_MAX` deep.
fn count_in_selector(selector: &Selector) -> usize {
    match selector {
        Selector::And(parts) | Selector::Or(parts) => parts.iter().map(count_in_selector).sum(),
        Selector::Not(part) => count_in_selector(part),
        Selector::Tag { pattern: Pattern::Regex(_), .. } => 1,
        Selector::Tag { .. } | Selector::All => 0,
    }
}

fn kind_of(sources: &[BoundExpr]) -> StreamKind {
    let mut kinds = sources.iter().map(|source| source.stream_kind);
    let first = kinds.next().unwrap_or(StreamKind::Numbers);
    if kinds.all(|kind| kind == first) { first } else { StreamKind::Mixed }
}

/// Refuses a source of a kind that a function does not take.
fn check_input_kind(source: &BoundExpr, takes: InputKind, name: &str) -> Result<()> {
    let (wanted, hint) = match (takes, source.stream_kind) {
        (InputKind::Numbers, StreamKind::Histograms | StreamKind::Mixed) => (
            "numbers",
            "histogram:mean() or histogram:percentile(99) make numbers of histograms, \
             histogram:merge() adds them",
        ),
        (InputKind::Histograms, StreamKind::Numbers | StreamKind::Mixed) => {
            ("histograms", "find:histogram(…) finds them, histogram() makes them of numbers")
        }
        _ => return Ok(()),
    };
    let found = match source.stream_kind {
        StreamKind::Numbers => "numbers",
        StreamKind::Histograms => "histograms",
        StreamKind::Mixed => "numbers and histograms",
    };
    Err(parse_error(source.span, format!("{name} takes {wanted}, and this gives {found}: {hint}")))
}

fn parse_error(place: SourceSpan, message: String) -> Error {
    Error::Parse { span: place, message }
}

//! From what is written to what is meant: every call with its function and the values of its arguments.
//!
//! What depends on data is not looked at here: how many streams a source gives, whether a time zone is known.

use model::Selector;
use model::selector::Pattern;

use super::arguments::{Arguments, Context, Given, arguments, stream_of};
use super::ast::{Call, Expr, Form, Operator};
use super::signature::{Gives, Signature, Standing, Takes};
use crate::error::{Error, Place, Result};
use crate::note::Notes;

/// Regexes of a query at the most, those of all its selectors together.
pub const REGEXES_MAX: usize = 64;

/// A node of a tree that can be evaluated.
#[derive(Clone, Debug)]
pub struct Bound {
    /// What it is.
    pub meaning: Meaning,
    /// Of what kind its streams are.
    pub kind: Kind,
    /// Where it stands in the query.
    pub place: Place,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// The same number in every slot, or none in any.
    Constant(Option<f64>),
    /// A function of its sources.
    Call {
        /// Which.
        function: &'static Signature,
        /// Its arguments, defaults included.
        arguments: Arguments,
        /// Where its name stands.
        name_place: Place,
        /// Its streams are those of the first, then those of the second, and so on.
        sources: Vec<Bound>,
    },
    /// An operator; of more than two operands, it is taken from the left.
    Operation {
        /// Which.
        operator: Operator,
        /// Its operands.
        operands: Vec<Bound>,
    },
}

/// Of what kind streams are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All are numbers.
    Numbers,
    /// All are histograms.
    Histograms,
    /// There are some of both.
    Mixed,
}

/// Binds a tree. What could be better about it is noted.
pub fn bind(expr: &Expr, context: &Context, notes: &mut Notes) -> Result<Bound> {
    Binder { context, notes, regexes: 0 }.bind(expr)
}

struct Binder<'a> {
    context: &'a Context,
    notes: &'a mut Notes,
    regexes: usize,
}

impl Binder<'_> {
    /// Recursive; the parser has seen to the depth.
    fn bind(&mut self, expr: &Expr) -> Result<Bound> {
        let place = expr.place;
        match &expr.form {
            Form::Literal(literal) => {
                let number =
                    stream_of(literal, self.context).map_err(|message| parse(place, message))?;
                Ok(Bound { meaning: Meaning::Constant(number), kind: Kind::Numbers, place })
            }
            Form::Operation { operator, operands } => {
                let operands = self.all(operands)?;
                for operand in &operands {
                    fits(operand, Takes::Numbers, &format!("`{}`", operator.symbol()))?;
                }
                let meaning = Meaning::Operation { operator: *operator, operands };
                Ok(Bound { meaning, kind: Kind::Numbers, place })
            }
            Form::Call(call) => self.call(call, place),
        }
    }

    fn all(&mut self, exprs: &[Expr]) -> Result<Vec<Bound>> {
        exprs.iter().map(|expr| self.bind(expr)).collect()
    }

    fn call(&mut self, call: &Call, place: Place) -> Result<Bound> {
        let name_place = call.name_place;
        let refused = |message: String| Err(parse(name_place, message));
        let function = self.function(call)?;
        let name = &function.name;
        if self.context.is_serial && !function.is_serial {
            return refused(format!(
                "{name} needs the whole range at once: it is not available with #serial and in checks"
            ));
        }
        let arguments = arguments(function, call, self.context)?;
        self.count_regexes(&arguments)?;
        match (function.takes, call.sources.is_empty()) {
            (Takes::Nothing, false) => {
                return refused(format!(
                    "{name} takes no streams; to have both, write pass{{…, {name}(…)}}"
                ));
            }
            (Takes::Numbers | Takes::Histograms | Takes::Either, true) => {
                return refused(format!(
                    "{name} wants streams: write find(…) | {name}(…), or {name}(…){{…}}"
                ));
            }
            _ => {}
        }
        let sources = self.all(&call.sources)?;
        for source in &sources {
            fits(source, function.takes, name)?;
        }
        let kind = match function.gives {
            Gives::Numbers => Kind::Numbers,
            Gives::Histograms => Kind::Histograms,
            Gives::Same => kind_of(&sources),
        };
        let meaning = Meaning::Call { function, arguments, name_place, sources };
        Ok(Bound { meaning, kind, place })
    }

    fn function(&mut self, call: &Call) -> Result<&'static Signature> {
        let (name, place) = (&call.name, call.name_place);
        let Some(function) = Signature::of(name) else {
            let mut near = Signature::nearest(name);
            near.truncate(4);
            let hint = match near.is_empty() {
                true => String::new(),
                false => format!("; did you mean {}?", near.join(" or ")),
            };
            return Err(parse(place, format!("there is no function {name}{hint}")));
        };
        match function.standing {
            Standing::Current => {}
            Standing::Deprecated(instead) => {
                self.notes.info(place, format!("{name} is an old name: write {instead}"));
            }
            Standing::Gone(instead) => {
                return Err(parse(place, format!("there is no function {name}: use {instead}")));
            }
        }
        Ok(function)
    }

    fn count_regexes(&mut self, arguments: &Arguments) -> Result<()> {
        self.regexes += arguments.values().map(regexes_in).sum::<usize>();
        if self.regexes <= REGEXES_MAX {
            return Ok(());
        }
        Err(Error::Limit {
            what: "regexes",
            found: self.regexes as u64,
            max: REGEXES_MAX as u64,
            remedy: "use globs, such as web-*, or one find for what several regexes find"
                .to_owned(),
        })
    }
}

fn regexes_in(value: &Given) -> usize {
    match value {
        Given::Regex(_) => 1,
        Given::Selector(selector) => regexes_of(selector),
        _ => 0,
    }
}

/// Recursive; a selector is at most `model::selector::DEPTH_MAX` deep.
fn regexes_of(selector: &Selector) -> usize {
    match selector {
        Selector::And(parts) | Selector::Or(parts) => parts.iter().map(regexes_of).sum(),
        Selector::Not(part) => regexes_of(part),
        Selector::Tag { pattern: Pattern::Regex(_), .. } => 1,
        Selector::Tag { .. } | Selector::All => 0,
    }
}

fn kind_of(sources: &[Bound]) -> Kind {
    let mut kinds = sources.iter().map(|source| source.kind);
    let first = kinds.next().unwrap_or(Kind::Numbers);
    if kinds.all(|kind| kind == first) { first } else { Kind::Mixed }
}

/// Refuses a source of a kind that a function does not take.
fn fits(source: &Bound, takes: Takes, name: &str) -> Result<()> {
    let (wanted, hint) = match (takes, source.kind) {
        (Takes::Numbers, Kind::Histograms | Kind::Mixed) => (
            "numbers",
            "histogram:mean() or histogram:percentile(99) make numbers of histograms, histogram:merge() adds them",
        ),
        (Takes::Histograms, Kind::Numbers | Kind::Mixed) => {
            ("histograms", "find:histogram(…) finds them, histogram() makes them of numbers")
        }
        _ => return Ok(()),
    };
    let found = match source.kind {
        Kind::Numbers => "numbers",
        Kind::Histograms => "histograms",
        Kind::Mixed => "numbers and histograms",
    };
    Err(parse(source.place, format!("{name} takes {wanted}, and this gives {found}: {hint}")))
}

fn parse(place: Place, message: String) -> Error {
    Error::Parse { place, message }
}

//! Syntax tree of a template. `Display` writes a node as error messages quote it.

use std::collections::HashMap;
use std::fmt;

use super::quote::quoted;

/// All templates of one text: the text itself and what it defines, by name.
pub(super) type Definitions = HashMap<String, Vec<TemplateNode>>;

/// A part of a template that produces output or controls it.
#[derive(Debug)]
pub(super) enum TemplateNode {
    Text(String),
    Action(Pipeline),
    Break,
    Continue,
    /// `{{if}}` with its `{{else if}}`s.
    If(Branches),
    /// `{{with}}` with its `{{else with}}`s.
    With(Branches),
    Range {
        pipeline: Pipeline,
        body: Vec<TemplateNode>,
        otherwise: Option<Vec<TemplateNode>>,
    },
    Template(TemplateCall),
}

/// Conditions with what follows each, tried in order.
#[derive(Debug)]
pub(super) struct Branches {
    pub(super) tried: Vec<(Pipeline, Vec<TemplateNode>)>,
    pub(super) otherwise: Option<Vec<TemplateNode>>,
}

/// `{{template "name" pipeline}}`.
#[derive(Debug)]
pub(super) struct TemplateCall {
    pub(super) offset: usize,
    pub(super) name: String,
    pub(super) pipeline: Option<Pipeline>,
}

/// Commands whose results are passed from left to right, and the variables that get the last one.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) offset: usize,
    pub(super) assigns: bool,
    pub(super) variables: Vec<String>,
    pub(super) commands: Vec<TemplateCommand>,
}

/// An operand, or a function and its arguments.
#[derive(Debug)]
pub(super) struct TemplateCommand {
    pub(super) offset: usize,
    pub(super) operands: Vec<Operand>,
}

/// An operand and its byte offset in the template.
#[derive(Debug)]
pub(super) struct Operand {
    pub(super) offset: usize,
    pub(super) kind: TemplateOperand,
}

/// What an [`Operand`] is.
#[derive(Debug)]
pub(super) enum TemplateOperand {
    Bool(bool),
    /// `(pipeline).Field.Field` or `function.Field`.
    Chain(Box<Operand>, Vec<String>),
    Dot,
    Field(Vec<String>),
    Function(String),
    Nil,
    Number(NumberLiteral),
    Pipeline(Box<Pipeline>),
    /// Source text with its quotes, and value.
    Text(String, String),
    /// Name with `$`, then fields.
    Variable(Vec<String>),
}

/// A number as written: it is an integer, a float, or either, as its use demands.
#[derive(Debug)]
pub(super) struct NumberLiteral {
    pub(super) source: String,
    pub(super) integer: Option<i64>,
    pub(super) float: f64,
}

impl fmt::Display for TemplateCall {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{{{{template {}", quoted(&self.name))?;
        if let Some(pipeline) = &self.pipeline {
            write!(out, " {pipeline}")?;
        }
        out.write_str("}}")
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            let sign = if self.assigns { "=" } else { ":=" };
            write!(out, "{} {sign} ", self.variables.join(", "))?;
        }
        for (index, command) in self.commands.iter().enumerate() {
            let separator = if index > 0 { " | " } else { "" };
            write!(out, "{separator}{command}")?;
        }
        Ok(())
    }
}

impl fmt::Display for TemplateCommand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, operand) in self.operands.iter().enumerate() {
            if index > 0 {
                out.write_str(" ")?;
            }
            match &operand.kind {
                TemplateOperand::Pipeline(pipeline) => write!(out, "({pipeline})")?,
                _ => write!(out, "{operand}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            TemplateOperand::Bool(value) => write!(out, "{value}"),
            TemplateOperand::Chain(first, fields) => {
                match &first.kind {
                    TemplateOperand::Pipeline(pipeline) => write!(out, "({pipeline})")?,
                    _ => write!(out, "{first}")?,
                }
                fields.iter().try_for_each(|field| write!(out, ".{field}"))
            }
            TemplateOperand::Dot => out.write_str("."),
            TemplateOperand::Field(fields) => {
                fields.iter().try_for_each(|field| write!(out, ".{field}"))
            }
            TemplateOperand::Function(name) => out.write_str(name),
            TemplateOperand::Nil => out.write_str("nil"),
            TemplateOperand::Number(number) => out.write_str(&number.source),
            TemplateOperand::Pipeline(pipeline) => write!(out, "{pipeline}"),
            TemplateOperand::Text(source, _) => out.write_str(source),
            TemplateOperand::Variable(names) => out.write_str(&names.join(".")),
        }
    }
}

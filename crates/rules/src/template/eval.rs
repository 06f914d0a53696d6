//! Evaluator of templates.
//!
//! Every expansion is bounded, because rule files come from users: output and each text
//! ([`TEXT_SIZE_MAX`]), steps ([`STEP_COUNT_MAX`]), bytes made by functions
//! ([`PRODUCED_BYTES_MAX`]), nesting at run time ([`DEPTH_MAX`]), queries. Messages are Go's.

mod call;

use super::TemplateContext;
use super::format::{TEXT_SIZE_MAX, print};
use super::function::FunctionState;
use super::method;
use super::node::{
    Branches, Definitions, Operand, Pipeline, TemplateCall, TemplateCommand, TemplateNode,
    TemplateOperand,
};
use super::quote::quoted;
use super::value::TemplateValue;

/// Limit of nodes, commands and operands that an expansion evaluates. A step takes less than 1 µs.
pub(super) const STEP_COUNT_MAX: usize = 1_000_000;

/// What compiling a pattern costs in steps.
const PATTERN_STEPS: usize = 10_000;

/// Limit of bytes of all values that functions return: 64 MiB.
pub(super) const PRODUCED_BYTES_MAX: usize = 64 << 20;

/// Limit of blocks, calls of templates and parentheses in each other while a template runs.
pub(super) const DEPTH_MAX: usize = 150;

type Outcome<T> = Result<T, String>;

/// Expands the template `name`. The error is a message with name, position and context.
pub(super) fn expand(
    name: &str,
    text: &str,
    definitions: &Definitions,
    data: &TemplateValue,
    context: &TemplateContext<'_>,
) -> Outcome<String> {
    let mut evaluation = TemplateEvaluation {
        name,
        text,
        definitions,
        template: name,
        variables: vec![("$", data.clone())],
        place: TemplatePlace::None,
        state: FunctionState::new(context),
        out: String::new(),
        step_count: 0,
        produced_bytes: 0,
        depth: 0,
    };
    if let Some(nodes) = definitions.get(name) {
        evaluation.nodes(data, nodes)?;
    }
    Ok(evaluation.out)
}

/// The node that an error message names.
#[derive(Clone, Copy)]
enum TemplatePlace<'a> {
    None,
    Pipeline(&'a Pipeline),
    Command(&'a TemplateCommand),
    Operand(&'a Operand),
    Call(&'a TemplateCall),
}

/// Whether a loop goes on after a list of nodes.
#[derive(Clone, Copy, PartialEq)]
enum LoopControl {
    None,
    Break,
    Continue,
}

/// A function or a method that is about to be called.
#[derive(Clone, Copy)]
struct Call<'a> {
    name: &'a str,
    /// What an error of the function names.
    place: TemplatePlace<'a>,
    /// Operands after the name.
    operands: &'a [Operand],
}

struct TemplateEvaluation<'a> {
    name: &'a str,
    text: &'a str,
    definitions: &'a Definitions,
    /// Name of the template that runs.
    template: &'a str,
    variables: Vec<(&'a str, TemplateValue)>,
    place: TemplatePlace<'a>,
    state: FunctionState<'a>,
    out: String,
    step_count: usize,
    produced_bytes: usize,
    depth: usize,
}

impl<'a> TemplateEvaluation<'a> {
    fn fail<T>(&self, message: impl AsRef<str>) -> Outcome<T> {
        let message = message.as_ref();
        let (offset, context) = match self.place {
            TemplatePlace::None => return Err(format!("template: {}: {message}", self.template)),
            TemplatePlace::Pipeline(pipeline) => (pipeline.offset, pipeline.to_string()),
            TemplatePlace::Command(command) => (command.offset, command.to_string()),
            TemplatePlace::Operand(operand) => (operand.offset, operand.to_string()),
            TemplatePlace::Call(call) => (call.offset, call.to_string()),
        };
        let before = &self.text[..offset];
        let line = 1 + before.matches('\n').count();
        let column = before.rfind('\n').map_or(offset, |newline| offset - newline - 1);
        let (name, template) = (self.name, quoted(self.template));
        Err(format!(
            "template: {name}:{line}:{column}: executing {template} at <{context}>: {message}"
        ))
    }

    fn step(&mut self, cost: usize) -> Outcome<()> {
        self.step_count += cost;
        match self.step_count > STEP_COUNT_MAX {
            true => self.fail(format!("step limit ({STEP_COUNT_MAX}) reached")),
            false => Ok(()),
        }
    }

    fn enter(&mut self) -> Outcome<()> {
        self.depth += 1;
        match self.depth > DEPTH_MAX {
            true => self.fail(format!("nesting limit ({DEPTH_MAX}) reached")),
            false => self.step(1),
        }
    }

    fn write(&mut self, text: &str) -> Outcome<()> {
        if self.out.len() + text.len() > TEXT_SIZE_MAX {
            return self.fail(format!("output size limit ({} KiB) reached", TEXT_SIZE_MAX >> 10));
        }
        self.out.push_str(text);
        Ok(())
    }

    fn nodes(&mut self, dot: &TemplateValue, nodes: &'a [TemplateNode]) -> Outcome<LoopControl> {
        self.enter()?;
        for node in nodes {
            let control = self.node(dot, node)?;
            if control != LoopControl::None {
                self.depth -= 1;
                return Ok(control);
            }
        }
        self.depth -= 1;
        Ok(LoopControl::None)
    }

    fn node(&mut self, dot: &TemplateValue, node: &'a TemplateNode) -> Outcome<LoopControl> {
        self.step(1)?;
        match node {
            TemplateNode::Text(text) => self.write(text)?,
            TemplateNode::Action(pipeline) => {
                let value = self.pipeline(dot, pipeline)?;
                if pipeline.variables.is_empty() {
                    self.print(&value)?;
                }
            }
            TemplateNode::Break => return Ok(LoopControl::Break),
            TemplateNode::Continue => return Ok(LoopControl::Continue),
            TemplateNode::If(branches) => return self.branches(dot, branches, false),
            TemplateNode::With(branches) => return self.branches(dot, branches, true),
            TemplateNode::Range { pipeline, body, otherwise } => {
                let variable_count = self.variables.len();
                let control = self.range(dot, pipeline, body, otherwise.as_deref())?;
                self.variables.truncate(variable_count);
                return Ok(control);
            }
            TemplateNode::Template(call) => self.template_call(dot, call)?,
        }
        Ok(LoopControl::None)
    }

    fn print(&mut self, value: &TemplateValue) -> Outcome<()> {
        match print(std::slice::from_ref(&value.printable())) {
            Ok(text) => self.write(&text),
            Err(_) => self.fail(format!("text size limit ({} KiB) reached", TEXT_SIZE_MAX >> 10)),
        }
    }

    fn branches(
        &mut self,
        dot: &TemplateValue,
        branches: &'a Branches,
        sets_dot: bool,
    ) -> Outcome<LoopControl> {
        let variable_count = self.variables.len();
        let mut control = None;
        for (pipeline, nodes) in &branches.tried {
            let value = self.pipeline(dot, pipeline)?;
            if value.is_true() {
                control = Some(self.nodes(if sets_dot { &value } else { dot }, nodes)?);
                break;
            }
        }
        let control = match (control, &branches.otherwise) {
            (Some(control), _) => control,
            (None, Some(nodes)) => self.nodes(dot, nodes)?,
            (None, None) => LoopControl::None,
        };
        self.variables.truncate(variable_count);
        Ok(control)
    }

    fn range(
        &mut self,
        dot: &TemplateValue,
        pipeline: &'a Pipeline,
        body: &'a [TemplateNode],
        otherwise: Option<&'a [TemplateNode]>,
    ) -> Outcome<LoopControl> {
        use TemplateValue as Value;
        let collection = self.pipeline(dot, pipeline)?;
        let mut is_empty = true;
        macro_rules! iterate {
            ($items:expr) => {
                for (index, item) in $items {
                    is_empty = false;
                    if self.iteration(pipeline, body, index, item)? == LoopControl::Break {
                        break;
                    }
                }
            };
        }
        match &collection {
            Value::Int(_) | Value::Byte(_) | Value::Duration(_, false)
                if pipeline.variables.len() > 1 =>
            {
                let number = self.plain_text(&collection);
                return self
                    .fail(format!("can't use {number} to iterate over more than one variable"));
            }
            Value::Int(count) => iterate!((0..*count).map(|i| (Value::Missing, Value::Int(i)))),
            Value::Byte(count) => iterate!((0..*count).map(|i| (Value::Missing, Value::Byte(i)))),
            Value::Duration(count, _) => {
                iterate!((0..*count).map(|i| (Value::Missing, Value::Duration(i, false))));
            }
            Value::List(list) => {
                iterate!((0..).map(Value::Int).zip(list.items.iter().cloned()));
            }
            Value::Map(map) => iterate!(
                map.entries.iter().map(|(key, value)| (Value::text(key.as_str()), value.clone()))
            ),
            Value::Missing | Value::Nil => {}
            _ => {
                let text = self.plain_text(&collection.printable());
                return self.fail(format!("range can't iterate over {text}"));
            }
        }
        match otherwise {
            Some(nodes) if is_empty => self.nodes(dot, nodes),
            _ => Ok(LoopControl::None),
        }
    }

    fn plain_text(&self, value: &TemplateValue) -> String {
        print(std::slice::from_ref(value)).unwrap_or_default()
    }

    fn iteration(
        &mut self,
        pipeline: &'a Pipeline,
        body: &'a [TemplateNode],
        index: TemplateValue,
        item: TemplateValue,
    ) -> Outcome<LoopControl> {
        let scope_start = self.variables.len();
        match &pipeline.variables[..] {
            [] => {}
            [name] if pipeline.assigns => self.assign(name, item.clone())?,
            [key, name, ..] if pipeline.assigns => {
                self.assign(key, index)?;
                self.assign(name, item.clone())?;
            }
            [_] => self.variables[scope_start - 1].1 = item.clone(),
            [..] => {
                self.variables[scope_start - 1].1 = item.clone();
                self.variables[scope_start - 2].1 = index;
            }
        }
        let control = self.nodes(&item, body)?;
        self.variables.truncate(scope_start);
        Ok(control)
    }

    fn assign(&mut self, name: &str, value: TemplateValue) -> Outcome<()> {
        match self.variables.iter_mut().rev().find(|(existing, _)| *existing == name) {
            Some(variable) => variable.1 = value,
            None => return self.fail(format!("undefined variable: {name}")),
        }
        Ok(())
    }

    fn template_call(&mut self, dot: &TemplateValue, call: &'a TemplateCall) -> Outcome<()> {
        self.place = TemplatePlace::Call(call);
        let Some((name, nodes)) = self.definitions.get_key_value(&call.name) else {
            return self.fail(format!("template {} not defined", quoted(&call.name)));
        };
        let data = match &call.pipeline {
            Some(pipeline) => self.pipeline(dot, pipeline)?,
            None => TemplateValue::Missing,
        };
        self.run(name, nodes, data)
    }

    /// Runs a template with variables of its own.
    fn run(
        &mut self,
        name: &'a str,
        nodes: &'a [TemplateNode],
        data: TemplateValue,
    ) -> Outcome<()> {
        let outer = std::mem::replace(&mut self.template, name);
        let variables = std::mem::replace(&mut self.variables, vec![("$", data.clone())]);
        self.nodes(&data, nodes)?;
        self.template = outer;
        self.variables = variables;
        Ok(())
    }

    fn pipeline(&mut self, dot: &TemplateValue, pipeline: &'a Pipeline) -> Outcome<TemplateValue> {
        self.place = TemplatePlace::Pipeline(pipeline);
        self.enter()?;
        let mut piped = None;
        for command in &pipeline.commands {
            let value = self.command(dot, command, piped)?;
            // A nil in an interface is no value.
            piped = Some(match value {
                TemplateValue::Nil => TemplateValue::Missing,
                value => value,
            });
        }
        self.depth -= 1;
        let value = piped.unwrap_or(TemplateValue::Missing);
        for name in &pipeline.variables {
            match pipeline.assigns {
                true => self.assign(name, value.clone())?,
                false => self.variables.push((name, value.clone())),
            }
        }
        Ok(value)
    }

    fn command(
        &mut self,
        dot: &TemplateValue,
        command: &'a TemplateCommand,
        piped: Option<TemplateValue>,
    ) -> Outcome<TemplateValue> {
        self.step(1)?;
        let [first, operands @ ..] = &command.operands[..] else {
            return Ok(TemplateValue::Missing);
        };
        match &first.kind {
            TemplateOperand::Field(_)
            | TemplateOperand::Chain(..)
            | TemplateOperand::Variable(_) => {
                return self.access(dot, first, operands, piped);
            }
            TemplateOperand::Function(name) => {
                self.place = TemplatePlace::Operand(first);
                let call = Call { name, place: TemplatePlace::Command(command), operands };
                return self.function(dot, call, piped);
            }
            TemplateOperand::Pipeline(pipeline) => {
                self.not_a_function(first, operands, &piped)?;
                return self.pipeline(dot, pipeline);
            }
            _ => {}
        }
        self.place = TemplatePlace::Operand(first);
        self.not_a_function(first, operands, &piped)?;
        match &first.kind {
            TemplateOperand::Dot => Ok(dot.clone()),
            TemplateOperand::Nil => self.fail("nil is not a command"),
            _ => self.literal(first),
        }
    }

    fn not_a_function(
        &self,
        first: &Operand,
        operands: &[Operand],
        piped: &Option<TemplateValue>,
    ) -> Outcome<()> {
        match operands.is_empty() && piped.is_none() {
            true => Ok(()),
            false => self.fail(format!("can't give argument to non-function {first}")),
        }
    }

    /// The value of a constant where any type fits: its syntax decides.
    fn literal(&mut self, operand: &'a Operand) -> Outcome<TemplateValue> {
        self.place = TemplatePlace::Operand(operand);
        Ok(match &operand.kind {
            TemplateOperand::Bool(value) => TemplateValue::Bool(*value),
            TemplateOperand::Text(_, text) => TemplateValue::text(text.as_str()),
            TemplateOperand::Number(number) => {
                let source = &number.source;
                let is_character = source.starts_with('\'');
                let hexadecimal = source.starts_with("0x") || source.starts_with("0X");
                let is_hexadecimal = hexadecimal && !source.contains(['p', 'P']);
                let is_float = source.contains(['.', 'e', 'E', 'p', 'P']);
                if is_float && !is_character && !is_hexadecimal {
                    return Ok(TemplateValue::Float(number.float));
                }
                match number.integer {
                    Some(integer) => TemplateValue::Int(integer),
                    None => return self.fail(format!("{source} overflows int")),
                }
            }
            _ => TemplateValue::Missing,
        })
    }

    /// The value of a field, a chain or a variable.
    fn access(
        &mut self,
        dot: &TemplateValue,
        operand: &'a Operand,
        operands: &'a [Operand],
        piped: Option<TemplateValue>,
    ) -> Outcome<TemplateValue> {
        self.place = TemplatePlace::Operand(operand);
        let (value, names) = match &operand.kind {
            TemplateOperand::Field(names) => (dot.clone(), &names[..]),
            TemplateOperand::Chain(first, names) => {
                let value = match &first.kind {
                    TemplateOperand::Pipeline(pipeline) => self.pipeline(dot, pipeline)?,
                    TemplateOperand::Function(name) => {
                        self.place = TemplatePlace::Operand(first);
                        let call = Call { name, place: self.place, operands: &[] };
                        self.function(dot, call, None)?
                    }
                    _ => TemplateValue::Missing,
                };
                (value, &names[..])
            }
            TemplateOperand::Variable(names) => {
                let name = names[0].as_str();
                let found = self.variables.iter().rev().find(|(existing, _)| *existing == name);
                let Some((_, value)) = found else {
                    return self.fail(format!("undefined variable: {name}"));
                };
                let value = value.clone();
                if names.len() == 1 {
                    self.not_a_function(operand, operands, &piped)?;
                }
                (value, &names[1..])
            }
            _ => (TemplateValue::Missing, &[][..]),
        };
        let place = TemplatePlace::Operand(operand);
        let Some((last, path)) = names.split_last() else { return Ok(value) };
        let mut receiver = (value, false);
        for name in path {
            let call = Call { name, place, operands: &[] };
            receiver = self.field(dot, receiver, call, None)?;
        }
        let call = Call { name: last, place, operands };
        Ok(self.field(dot, receiver, call, piped)?.0)
    }

    /// A field, element or method of the receiver, and whether its type is an interface. The
    /// flag of the receiver says the same; error messages name that type.
    fn field(
        &mut self,
        dot: &TemplateValue,
        (receiver, is_interface): (TemplateValue, bool),
        call: Call<'a>,
        piped: Option<TemplateValue>,
    ) -> Outcome<(TemplateValue, bool)> {
        self.step(1)?;
        let name = call.name;
        let type_name =
            if is_interface { "interface {}".to_owned() } else { receiver.type_name().to_owned() };
        if let Some(method) = method::find(&receiver, name) {
            let values = self.arguments(dot, call, &method.signature, piped)?;
            return Ok((method.call(&receiver, &values), false));
        }
        let has_arguments = !call.operands.is_empty() || piped.is_some();
        let invoked = format!("{name} has arguments but cannot be invoked as function");
        match &receiver {
            TemplateValue::Missing => return Ok((TemplateValue::Missing, false)),
            TemplateValue::Nil => {
                return self.fail(format!("nil pointer evaluating {type_name}.{name}"));
            }
            TemplateValue::Map(_) if has_arguments => {
                return self.fail(format!("{name} is not a method but has arguments"));
            }
            TemplateValue::Map(map) => return Ok((map.get(name), !map.is_text)),
            TemplateValue::Sample(None) if matches!(name, "Labels" | "Value") => {
                return self.fail(format!("nil pointer evaluating {type_name}.{name}"));
            }
            TemplateValue::Sample(Some(sample)) => {
                if let Some(value) = sample.field(name) {
                    return match has_arguments {
                        true => self.fail(invoked),
                        false => Ok((value, name == "Value")),
                    };
                }
            }
            TemplateValue::Record(record) => {
                if let Some(value) = record.field(name) {
                    return match has_arguments {
                        true => self.fail(invoked),
                        // The only field of alert data whose type is an interface.
                        false => Ok((value.clone(), name == "Value")),
                    };
                }
            }
            _ => {}
        }
        self.fail(format!("can't evaluate field {name} in type {type_name}"))
    }
}

//! Calls of functions: arguments, which Go converts to the types of parameters, and results.

use super::super::function::{self, FunctionKind, TemplateFunction};
use super::super::node::{Operand, TemplateOperand};
use super::super::quote::quoted;
use super::super::signature::{GoSignature, ParameterType};
use super::super::value::TemplateValue;
use super::{Call, Outcome, PATTERN_STEPS, PRODUCED_BYTES_MAX, TemplateEvaluation, TemplatePlace};

impl<'a> TemplateEvaluation<'a> {
    pub(super) fn function(
        &mut self,
        dot: &TemplateValue,
        call: Call<'a>,
        piped: Option<TemplateValue>,
    ) -> Outcome<TemplateValue> {
        let Some(function) = function::find(call.name) else {
            return self.fail(format!("{} is not a defined function", quoted(call.name)));
        };
        if let FunctionKind::ShortCircuit { stops_at } = function.kind {
            return self.short_circuit(dot, call, function, stops_at, piped);
        }
        let values = self.arguments(dot, call, &function.signature, piped)?;
        self.step(if self.state.compiles(call.name, &values) { PATTERN_STEPS } else { 1 })?;
        let size_bytes: usize = values.iter().map(TemplateValue::size_bytes).sum();
        let outcome = match function.kind {
            FunctionKind::Plain(run) => run(&mut self.state, &values),
            FunctionKind::Call => Err(not_callable(call, &values)),
            _ => self.nested_template(&values),
        };
        let value = match outcome {
            Ok(value) => value,
            Err(message) => {
                self.place = call.place;
                return self.fail(format!("error calling {}: {message}", call.name));
            }
        };
        self.produced_bytes += size_bytes + value.size_bytes();
        if self.produced_bytes > PRODUCED_BYTES_MAX {
            let limit = PRODUCED_BYTES_MAX >> 20;
            return self.fail(format!("limit of bytes from functions ({limit} MiB) reached"));
        }
        Ok(value)
    }

    fn short_circuit(
        &mut self,
        dot: &TemplateValue,
        call: Call<'a>,
        function: &TemplateFunction,
        stops_at: bool,
        piped: Option<TemplateValue>,
    ) -> Outcome<TemplateValue> {
        let checked = function.signature.check(call.name, call.operands.len(), piped.is_some());
        checked.or_else(|message| self.fail(message))?;
        let mut last = TemplateValue::Missing;
        for operand in call.operands {
            last = self.argument(dot, ParameterType::Raw, operand)?;
            if last.is_true() == stops_at {
                return Ok(last);
            }
        }
        Ok(piped.unwrap_or(last))
    }

    /// `tmpl name data`: the output of a template as a value.
    fn nested_template(&mut self, values: &[TemplateValue]) -> Outcome<TemplateValue> {
        let [TemplateValue::Text(name), data] = values else { return Ok(TemplateValue::Missing) };
        let Some((name, nodes)) = self.definitions.get_key_value(name.as_ref()) else {
            let (name, associated) = (quoted(name), quoted(self.name));
            return Err(format!(
                "template: no template {name} associated with template {associated}"
            ));
        };
        let outer = std::mem::take(&mut self.out);
        let outer_template = self.template;
        let run = self.run(name, nodes, data.clone());
        // The error of this call names the template that calls.
        self.template = outer_template;
        let text = std::mem::replace(&mut self.out, outer);
        run.map(|()| TemplateValue::Html(text.into()))
    }

    pub(super) fn arguments(
        &mut self,
        dot: &TemplateValue,
        call: Call<'a>,
        signature: &GoSignature,
        piped: Option<TemplateValue>,
    ) -> Outcome<Vec<TemplateValue>> {
        let checked = signature.check(call.name, call.operands.len(), piped.is_some());
        checked.or_else(|message| self.fail(message))?;
        let mut values = Vec::with_capacity(call.operands.len() + 1);
        for (index, operand) in call.operands.iter().enumerate() {
            values.push(self.argument(dot, signature.parameter(index), operand)?);
        }
        if let Some(value) = piped {
            values.push(self.accept(signature.parameter(values.len()), value)?);
        }
        Ok(values)
    }

    fn accept(&self, parameter: ParameterType, value: TemplateValue) -> Outcome<TemplateValue> {
        parameter.accept(value).or_else(|message| self.fail(message))
    }

    fn argument(
        &mut self,
        dot: &TemplateValue,
        parameter: ParameterType,
        operand: &'a Operand,
    ) -> Outcome<TemplateValue> {
        self.step(1)?;
        self.place = TemplatePlace::Operand(operand);
        let value = match &operand.kind {
            TemplateOperand::Dot => dot.clone(),
            TemplateOperand::Nil => {
                return match parameter.nil() {
                    Some(value) => Ok(value),
                    None => self.fail(format!("cannot assign nil to {}", parameter.name())),
                };
            }
            TemplateOperand::Field(_)
            | TemplateOperand::Variable(_)
            | TemplateOperand::Chain(..) => self.access(dot, operand, &[], None)?,
            TemplateOperand::Pipeline(pipeline) => self.pipeline(dot, pipeline)?,
            TemplateOperand::Function(name) => {
                let call = Call { name, place: self.place, operands: &[] };
                self.function(dot, call, None)?
            }
            TemplateOperand::Bool(_) | TemplateOperand::Number(_) | TemplateOperand::Text(..) => {
                return self.constant(parameter, operand);
            }
        };
        self.accept(parameter, value)
    }

    /// A constant as an argument: the parameter decides its type.
    fn constant(
        &mut self,
        parameter: ParameterType,
        operand: &'a Operand,
    ) -> Outcome<TemplateValue> {
        match (parameter, &operand.kind) {
            (ParameterType::Any | ParameterType::Raw, _) => self.literal(operand),
            (ParameterType::Text, TemplateOperand::Text(_, text)) => {
                Ok(TemplateValue::text(text.as_str()))
            }
            (ParameterType::Text, _) => self.fail(format!("expected string; found {operand}")),
            (ParameterType::Duration, TemplateOperand::Number(number))
                if number.integer.is_some() =>
            {
                Ok(TemplateValue::Duration(number.integer.unwrap_or(0), false))
            }
            (ParameterType::Duration, _) => self.fail(format!("expected integer; found {operand}")),
            (ParameterType::Time | ParameterType::Sample | ParameterType::Vector, _) => {
                let name = parameter.name();
                self.fail(format!("can't handle {operand} for arg of type {name}"))
            }
        }
    }
}

/// The message of `call`.
fn not_callable(call: Call<'_>, values: &[TemplateValue]) -> String {
    let Some(value) = values
        .first()
        .filter(|value| !matches!(value, TemplateValue::Missing | TemplateValue::Nil))
    else {
        return "call of nil".to_owned();
    };
    let type_name = value.type_name();
    let name = match (call.operands.first(), value) {
        (Some(operand), _) => operand.to_string(),
        (None, TemplateValue::Text(text)) => text.to_string(),
        (None, _) => format!("<{type_name} Value>"),
    };
    format!("non-function {name} of type {type_name}")
}

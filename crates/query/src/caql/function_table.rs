//! Rows of the function table: signature, kernel and planner traits of each function.
//!
//! Each package adds its rows in its own file, beside its kernels; `functions.rs` lists the
//! packages.

use super::kernel::Kernel;
use super::signature::ArgumentType::{IntegerWithin, NumberWithin};
use super::signature::DefaultValue::Required;
use super::signature::{
    ArgumentType, DefaultValue, FunctionParameter, InputArity, InputKind, OutputKind, OutputShape,
    Signature, Stability,
};
use crate::plan::MetricStatistic;

pub(super) use super::function_traits::{
    AverageOver, FunctionTraits, MergeRule, QuantileRule, ResampleRule, StreamUnitRule,
};

pub(super) const SECOND_NS: i64 = 1_000_000_000;
pub(super) const MINUTE_NS: i64 = 60 * SECOND_NS;
pub(super) const DAY_NS: i64 = 24 * 60 * MINUTE_NS;

pub(super) const PERCENT: ArgumentType = NumberWithin(0.0, 100.0);
pub(super) const SHARE: ArgumentType = NumberWithin(0.0, 1.0);
pub(super) const SWITCH: ArgumentType = IntegerWithin(0.0, 1.0);
pub(super) const COUNT: ArgumentType = IntegerWithin(0.0, f64::INFINITY);
pub(super) const POSITION: ArgumentType = IntegerWithin(1.0, f64::INFINITY);
pub(super) const INTEGER: ArgumentType = IntegerWithin(f64::NEG_INFINITY, f64::INFINITY);

/// Row of the function table: signature and implementation. An alias has its own row with the same
/// kernel.
#[derive(Clone)]
pub(super) struct CaqlFunctionRow {
    pub(super) signature: Signature,
    pub(super) kernel: CaqlKernel,
}

/// Implementation of a function.
#[derive(Clone, Copy)]
pub(super) enum CaqlKernel {
    /// Computes streams from streams.
    Kernel(Kernel),
    /// Reads a statistic of stored metrics.
    Find(MetricStatistic),
    /// Delays its inputs.
    Delay,
    /// None: the function was removed from the language.
    Removed,
}

impl From<Kernel> for CaqlKernel {
    fn from(kernel: Kernel) -> CaqlKernel {
        CaqlKernel::Kernel(kernel)
    }
}

/// Rows of all functions, added by the packages.
pub(super) struct FunctionTable(pub(super) Vec<CaqlFunctionRow>);

impl FunctionTable {
    fn add(
        &mut self,
        name: String,
        takes: InputKind,
        gives: OutputKind,
        shape: OutputShape,
        kernel: CaqlKernel,
    ) -> &mut CaqlFunctionRow {
        let signature = Signature {
            canonical_name: name.clone(),
            name,
            parameters: Vec::new(),
            variadic: None,
            options: Vec::new(),
            inputs_kind: takes,
            arity: InputArity::Any,
            output_kind: gives,
            output_shape: shape,
            is_serial: true,
            stability: Stability::Current,
            traits: FunctionTraits {
                unit: StreamUnitRule::Unknown,
                quantiles: QuantileRule::NotQuantile,
                merges: MergeRule::Nothing,
                resample: ResampleRule::NoPeriod,
                first_count_input: None,
                is_random: false,
            },
        };
        self.0.push(CaqlFunctionRow { signature, kernel });
        self.last()
    }

    fn last(&mut self) -> &mut CaqlFunctionRow {
        self.0.last_mut().expect("BUG: a row was added before")
    }

    /// Adds a function without inputs.
    pub(super) fn add_source(
        &mut self,
        name: impl Into<String>,
        gives: OutputKind,
        kernel: CaqlKernel,
    ) -> &mut CaqlFunctionRow {
        self.add(name.into(), InputKind::Nothing, gives, OutputShape::Source, kernel)
    }

    /// Adds a function that computes one stream from all.
    pub(super) fn add_fold(
        &mut self,
        name: impl Into<String>,
        takes: InputKind,
        kernel: Kernel,
    ) -> &mut CaqlFunctionRow {
        self.add(name.into(), takes, OutputKind::AsInput, OutputShape::One, kernel.into())
    }

    /// Adds a function that computes one stream from each.
    pub(super) fn add_map(
        &mut self,
        name: impl Into<String>,
        takes: InputKind,
        kernel: impl Into<CaqlKernel>,
    ) -> &mut CaqlFunctionRow {
        self.add(name.into(), takes, OutputKind::AsInput, OutputShape::Each, kernel.into())
    }

    /// Adds a function that selects streams without changing them.
    pub(super) fn add_choice(
        &mut self,
        name: impl Into<String>,
        takes: InputKind,
        kernel: Kernel,
    ) -> &mut CaqlFunctionRow {
        self.add(name.into(), takes, OutputKind::AsInput, OutputShape::Some, kernel.into())
    }

    /// Adds an alias of a function that was already added.
    pub(super) fn add_alias(&mut self, name: &str, canonical_name: &str) -> &mut CaqlFunctionRow {
        let known = self.0.iter().find(|known| known.signature.name == canonical_name);
        let CaqlFunctionRow { signature, kernel } =
            known.expect("BUG: an alias follows its function").clone();
        let signature = Signature { name: name.to_owned(), ..signature };
        self.0.push(CaqlFunctionRow { signature, kernel });
        self.last()
    }

    /// Adds a function that was removed from the language.
    pub(super) fn add_removed(&mut self, name: impl Into<String>, instead: &'static str) {
        let row = self.add_source(name, OutputKind::Numbers, CaqlKernel::Removed);
        row.signature.stability = Stability::Removed(instead);
    }
}

impl CaqlFunctionRow {
    pub(super) fn required(
        &mut self,
        name: &'static str,
        wants: ArgumentType,
    ) -> &mut CaqlFunctionRow {
        self.optional(name, wants, Required)
    }

    pub(super) fn optional(
        &mut self,
        name: &'static str,
        wants: ArgumentType,
        default: DefaultValue,
    ) -> &mut CaqlFunctionRow {
        self.signature.parameters.push(FunctionParameter { name, argument_type: wants, default });
        self
    }

    pub(super) fn variadic(
        &mut self,
        name: &'static str,
        wants: ArgumentType,
    ) -> &mut CaqlFunctionRow {
        self.signature.variadic =
            Some(FunctionParameter { name, argument_type: wants, default: Required });
        self
    }

    pub(super) fn option(
        &mut self,
        name: &'static str,
        wants: ArgumentType,
        default: DefaultValue,
    ) -> &mut CaqlFunctionRow {
        self.signature.options.push(FunctionParameter { name, argument_type: wants, default });
        self
    }

    pub(super) fn inputs(&mut self, inputs: InputArity) -> &mut CaqlFunctionRow {
        self.signature.arity = inputs;
        self
    }

    pub(super) fn output(&mut self, gives: OutputKind) -> &mut CaqlFunctionRow {
        self.signature.output_kind = gives;
        self
    }

    pub(super) fn shape(&mut self, shape: OutputShape) -> &mut CaqlFunctionRow {
        self.signature.output_shape = shape;
        self
    }

    pub(super) fn needs_whole_range(&mut self) -> &mut CaqlFunctionRow {
        self.signature.is_serial = false;
        self
    }

    pub(super) fn deprecated(&mut self, instead: &'static str) -> &mut CaqlFunctionRow {
        self.signature.stability = Stability::Deprecated(instead);
        self
    }

    pub(super) fn unit(&mut self, unit: StreamUnitRule) -> &mut CaqlFunctionRow {
        self.signature.traits.unit = unit;
        self
    }

    pub(super) fn quantiles(&mut self, quantiles: QuantileRule) -> &mut CaqlFunctionRow {
        self.signature.traits.quantiles = quantiles;
        self
    }

    pub(super) fn merges(&mut self, merges: MergeRule) -> &mut CaqlFunctionRow {
        self.signature.traits.merges = merges;
        self
    }

    pub(super) fn resample(&mut self, resample: ResampleRule) -> &mut CaqlFunctionRow {
        self.signature.traits.resample = resample;
        self
    }

    pub(super) fn first_count_input(&mut self, input: usize) -> &mut CaqlFunctionRow {
        self.signature.traits.first_count_input = Some(input);
        self
    }

    pub(super) fn random(&mut self) -> &mut CaqlFunctionRow {
        self.signature.traits.is_random = true;
        self
    }
}

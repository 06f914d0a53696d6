//! `histogram:random`: synthetic distributions. The number in a slot, times `samples`, is the
//! number of values drawn.
//!
//! The same query always returns the same values: the generator of each slot is seeded from its
//! time and the seed, so a moving view keeps the values that it showed. The seed −1, which
//! elsewhere means a different seed each time, is fixed here.

use std::sync::Arc;

use hist::{Histogram, Mixture, Scheme};

use super::super::arguments::Arguments;
use super::super::function_table::{CaqlFunctionRow, FunctionTable};
use super::super::kernel::{Kernel, KernelInput};
use super::super::points::number;
use super::super::random_variates::RandomVariates;
use super::super::signature::ArgumentType::{Number, OneOf};
use super::super::signature::InputKind::Numbers;
use super::super::signature::{DefaultValue, InputArity, OutputKind};
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::value::StepValue;

/// Maximum number of values drawn per call: about a second of work.
const VALUES_MAX: u64 = 10_000_000;

/// Adds the functions that draw random values.
pub(super) fn add_functions(table: &mut FunctionTable) {
    let by_option = Kernel::without_margin(|call| {
        let method = call.arguments.text("method").unwrap_or("normal").to_owned();
        random(call, &method)
    });
    add_random(table, "histogram:random".to_owned(), by_option).option(
        "method",
        OneOf(&DISTRIBUTIONS),
        DefaultValue::Text("normal"),
    );
    let by_name: [(&str, Kernel); 11] = [
        ("normal", Kernel::without_margin(|call| random(call, "normal"))),
        ("uniform", Kernel::without_margin(|call| random(call, "uniform"))),
        ("exponential", Kernel::without_margin(|call| random(call, "exponential"))),
        ("beta", Kernel::without_margin(|call| random(call, "beta"))),
        ("gamma", Kernel::without_margin(|call| random(call, "gamma"))),
        ("binomial", Kernel::without_margin(|call| random(call, "binomial"))),
        ("negative_binomial", Kernel::without_margin(|call| random(call, "negative_binomial"))),
        ("poisson", Kernel::without_margin(|call| random(call, "poisson"))),
        ("chisq", Kernel::without_margin(|call| random(call, "chisq"))),
        ("f", Kernel::without_margin(|call| random(call, "f"))),
        ("t", Kernel::without_margin(|call| random(call, "t"))),
    ];
    for (name, kernel) in by_name {
        add_random(table, format!("histogram:random:{name}"), kernel);
    }
}

/// The reference names only the parameters; these are the distributions that have those parameters.
const DISTRIBUTIONS: [&str; 11] = [
    "normal",
    "uniform",
    "exponential",
    "beta",
    "gamma",
    "binomial",
    "negative_binomial",
    "poisson",
    "chisq",
    "f",
    "t",
];

fn add_random(table: &mut FunctionTable, name: String, kernel: Kernel) -> &mut CaqlFunctionRow {
    let mut row = table
        .add_fold(name, Numbers, kernel)
        .output(OutputKind::Histograms)
        .inputs(InputArity::Exactly(1))
        .option("samples", Number, DefaultValue::Number(1.0))
        .option("seed", Number, DefaultValue::Number(-1.0));
    let parameters = ["mean", "sd", "min", "max", "alpha", "beta", "rate", "p", "n", "df"];
    for parameter in parameters.into_iter().chain(["dfn", "dfd", "xnonc"]) {
        row = row.option(parameter, Number, DefaultValue::Absent);
    }
    row
}

fn random(call: KernelInput<'_>, method: &str) -> Result<Vec<Stream>> {
    let refused = |message: String| Error::Execution { span: call.span, message };
    let drawn = DistributionSpec::parse(method, call.arguments).map_err(refused)?;
    let samples = call.arguments.number("samples").unwrap_or(1.0);
    let seed = call.arguments.number("seed").unwrap_or(-1.0);
    let mut total = 0u64;
    let mut of = |input: &Stream| {
        let mut points = Vec::with_capacity(call.steps.count);
        for at in 0..call.steps.count {
            // A missing or negative number draws no values.
            let count = (number(input, at).unwrap_or(0.0) * samples).round().max(0.0) as u64;
            total = total.saturating_add(count);
            if total > VALUES_MAX {
                let remedy = "reduce the range or the number of values".to_owned();
                let limit = "values drawn by histogram:random";
                return Err(Error::Limit { limit, found: total, max: VALUES_MAX, remedy });
            }
            let mut draw =
                RandomVariates::new(seed.to_bits() ^ (call.steps.time(at) as u64).rotate_left(32));
            let mut histogram = Histogram::new(Scheme::LogLinear10);
            for _ in 0..count {
                histogram.record(drawn.value(&mut draw));
            }
            let mixture = match histogram.is_empty() {
                true => Mixture::default(),
                false => Mixture::from(histogram),
            };
            points.push(Some(StepValue::Distribution(Arc::new(mixture))));
        }
        Ok(Stream { points, ..Stream::new(input.labels.clone(), Vec::new()) })
    };
    call.inputs.iter().map(&mut of).collect()
}

/// Distribution with checked parameters.
enum DistributionSpec {
    Normal {
        mean: f64,
        sd: f64,
    },
    Uniform {
        min: f64,
        max: f64,
    },
    Exponential {
        rate: f64,
    },
    Beta {
        alpha: f64,
        beta: f64,
    },
    /// `alpha` is the shape, `beta` the rate.
    Gamma {
        alpha: f64,
        beta: f64,
    },
    Binomial {
        n: f64,
        p: f64,
    },
    /// Failures before the `n`-th success.
    NegativeBinomial {
        n: f64,
        p: f64,
    },
    Poisson {
        rate: f64,
    },
    ChiSquared {
        df: f64,
        xnonc: f64,
    },
    F {
        dfn: f64,
        dfd: f64,
        xnonc: f64,
    },
    T {
        df: f64,
        xnonc: f64,
    },
}

impl DistributionSpec {
    fn parse(method: &str, arguments: &Arguments) -> Result<DistributionSpec, String> {
        let any = |name: &str, default: f64| arguments.number(name).unwrap_or(default);
        let checked = |name: &str, default: f64, requirement: &str, is_fine: fn(f64) -> bool| {
            let found = any(name, default);
            match is_fine(found) {
                true => Ok(found),
                false => Err(format!(
                    "invalid {name} of {method}: expected {requirement}, found {found}"
                )),
            }
        };
        // Above this, doubles do not represent consecutive integers.
        const MAX: f64 = 1e15;
        let above = |name: &str, default| {
            checked(name, default, "a number above 0 and at most 1e15", |x| x > 0.0 && x <= MAX)
        };
        let least = |name: &str, default| {
            checked(name, default, "a number from 0 to 1e15", |x| (0.0..=MAX).contains(&x))
        };
        let share = |name: &str| {
            checked(name, 0.5, "a number above 0 and at most 1", |x| x > 0.0 && x <= 1.0)
        };
        let integer = |name: &str, default| {
            checked(name, default, "a whole number from 0 to 1e15", |x| {
                (0.0..=MAX).contains(&x) && x.fract() == 0.0
            })
        };
        Ok(match method {
            "uniform" => DistributionSpec::Uniform { min: any("min", 0.0), max: any("max", 1.0) },
            "exponential" => DistributionSpec::Exponential { rate: above("rate", 1.0)? },
            "beta" => {
                DistributionSpec::Beta { alpha: above("alpha", 1.0)?, beta: above("beta", 1.0)? }
            }
            "gamma" => {
                DistributionSpec::Gamma { alpha: above("alpha", 1.0)?, beta: above("beta", 1.0)? }
            }
            "binomial" => DistributionSpec::Binomial { n: integer("n", 1.0)?, p: share("p")? },
            "negative_binomial" => {
                DistributionSpec::NegativeBinomial { n: above("n", 1.0)?, p: share("p")? }
            }
            "poisson" => DistributionSpec::Poisson { rate: least("rate", 1.0)? },
            "chisq" => {
                DistributionSpec::ChiSquared { df: above("df", 1.0)?, xnonc: least("xnonc", 0.0)? }
            }
            "f" => {
                let (dfn, dfd) = (above("dfn", 1.0)?, above("dfd", 1.0)?);
                DistributionSpec::F { dfn, dfd, xnonc: least("xnonc", 0.0)? }
            }
            "t" => DistributionSpec::T { df: above("df", 1.0)?, xnonc: any("xnonc", 0.0) },
            _ => DistributionSpec::Normal { mean: any("mean", 0.0), sd: least("sd", 1.0)? },
        })
    }

    fn value(&self, draw: &mut RandomVariates) -> f64 {
        match *self {
            DistributionSpec::Normal { mean, sd } => mean + sd * draw.normal(),
            DistributionSpec::Uniform { min, max } => min + (max - min) * draw.unit_interval(),
            DistributionSpec::Exponential { rate } => draw.exponential() / rate,
            DistributionSpec::Beta { alpha, beta } => draw.beta(alpha, beta),
            DistributionSpec::Gamma { alpha, beta } => draw.gamma(alpha) / beta,
            DistributionSpec::Binomial { n, p } => draw.binomial(n, p),
            DistributionSpec::NegativeBinomial { n, p } => {
                let rate = draw.gamma(n) * (1.0 - p) / p;
                draw.poisson(rate)
            }
            DistributionSpec::Poisson { rate } => draw.poisson(rate),
            DistributionSpec::ChiSquared { df, xnonc } => draw.chi_squared(df, xnonc),
            DistributionSpec::F { dfn, dfd, xnonc } => {
                (draw.chi_squared(dfn, xnonc) / dfn) / (draw.chi_squared(dfd, 0.0) / dfd)
            }
            DistributionSpec::T { df, xnonc } => {
                (draw.normal() + xnonc) / (draw.chi_squared(df, 0.0) / df).sqrt()
            }
        }
    }
}

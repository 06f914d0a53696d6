//! Function table of CAQL.
//!
//! From circonus/product-docs, caql/reference.md, with what its change log and its pages on PromQL and Graphite name.

use super::ast::Constant;
use super::signature::DefaultValue::{
    Absent, As, Duration as Dur, Number as Num, Required, Text as Txt,
};
use super::signature::{
    ArgumentType, DefaultValue, FunctionParameter, InputArity, InputKind, OutputKind, OutputShape,
    Signature, Stability,
};
use ArgumentType::{
    Duration, DurationOr, DurationOrMinutes, Format, IntegerWithin, Name, Number, NumberWithin,
    OneOf, Regex, Search, Shift, ShiftOrZone, Span, Text, Time, Uuid,
};
use InputKind::{Either, Histograms, Nothing, Numbers};

const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_NS: i64 = 60 * SECOND_NS;
const DAY_NS: i64 = 24 * 60 * MINUTE_NS;

/// Streams that one find gives at the most.
pub const FIND_LIMIT_MAX: f64 = 3000.0;

const PERCENT: ArgumentType = NumberWithin(0.0, 100.0);
const SHARE: ArgumentType = NumberWithin(0.0, 1.0);
const SWITCH: ArgumentType = IntegerWithin(0.0, 1.0);
const COUNT: ArgumentType = IntegerWithin(0.0, f64::INFINITY);
const POSITION: ArgumentType = IntegerWithin(1.0, f64::INFINITY);
const INTEGER: ArgumentType = IntegerWithin(f64::NEG_INFINITY, f64::INFINITY);

const CONDITIONS: [&str; 6] = ["lt", "leq", "eq", "neq", "geq", "gt"];

pub(super) fn table() -> Vec<Signature> {
    let mut table = FunctionTable(Vec::with_capacity(400));
    sources(&mut table);
    global(&mut table);
    labels_and_tags(&mut table);
    stats(&mut table);
    op_and_each(&mut table);
    windows(&mut table);
    groups(&mut table);
    filters(&mut table);
    histograms(&mut table);
    math(&mut table);
    forecasts(&mut table);
    outliers_and_vectors(&mut table);
    graphite(&mut table);
    table.0
}

fn sources(t: &mut FunctionTable) {
    let numeric = ["average", "count", "stddev", "counter", "counter_stddev", "derivative"];
    let numeric = numeric.into_iter().chain(["derivative_stddev"]);
    let kinds: Vec<(&str, OutputKind)> = numeric
        .map(|kind| (kind, OutputKind::Numbers))
        .chain([("histogram", OutputKind::Histograms)])
        .collect();
    for (kind, gives) in &kinds {
        t.source(format!("metric:{kind}"), *gives)
            .required("check_uuid", Uuid)
            .required("name", Text);
        t.removed(format!("search:metric:{kind}"), "find, with a tag search");
    }
    for (package, wants) in [("find", Name), ("graphite:find", Text)] {
        let more = [("sum", OutputKind::Numbers), ("histogram_cum", OutputKind::Histograms)];
        for (kind, gives) in kinds.iter().chain(&more) {
            t.source(format!("{package}:{kind}"), *gives)
                .required("name", wants)
                .optional("tag_query", Search, Absent)
                .option("limit", IntegerWithin(1.0, FIND_LIMIT_MAX), Num(1000.0))
                .option("start_time_override", Number, Absent)
                .option("start_time_offset", Shift, Absent);
        }
    }
    t.alias("find", "find:average");
    t.alias("graphite:find", "graphite:find:average");
    t.alias("metric", "metric:average");
    t.alias("find:deriv", "find:derivative").deprecated("find:derivative");
    t.removed("search:metric", "find, with a tag search");
    t.removed("metriccluster", "find, with a tag search");
    t.removed("hf:find", "find, with #min_period before the expression");
    t.source("randomwalk", OutputKind::Numbers)
        .optional("max", Number, Num(100.0))
        .optional("min", Number, Num(0.0))
        .optional("change", Number, Num(0.0))
        .option("seed", Number, Num(-1.0));
    t.source("time:epoch", OutputKind::Numbers);
    t.source("time:tz", OutputKind::Numbers)
        .required("timezone", Text)
        .required("field", OneOf(&TIME_FIELDS));
    t.source("math:pi", OutputKind::Numbers);
    t.source("math:e", OutputKind::Numbers);
}

const TIME_FIELDS: [&str; 8] =
    ["second", "minute", "hour", "monthday", "month", "weekday", "yearday", "year"];

fn global(t: &mut FunctionTable) {
    t.each("pass", Either);
    t.one("coalesce", Numbers);
    t.one("count", Either).output(OutputKind::Numbers);
    t.each("counter", Numbers);
    t.each("derivative", Numbers);
    t.each("diff", Numbers);
    t.each("delay", Either).variadic("delay", Duration).shape(OutputShape::EachPerArgument);
    t.one("if", Numbers).inputs(InputArity::Exactly(3));
    t.each("is_missing", Either).output(OutputKind::Numbers);
    t.each("normalize", Numbers).option("scale", Number, Num(1.0)).option(
        "default",
        Number,
        Num(0.5),
    );
    t.each("wait", Numbers).required("duration", Duration);
    for name in ["top", "bottom"] {
        t.some(name, Numbers)
            .required("k", POSITION)
            .option("method", OneOf(&["mean", "max", "min"]), Txt("mean"))
            .not_serial();
    }
    t.each("anomaly_detection", Numbers)
        .optional("sensitivity", PERCENT, Num(50.0))
        .option("model", OneOf(&ANOMALY_MODELS), Txt("constant"))
        .option("model_period", DurationOrMinutes, Dur(DAY_NS))
        .option("prefill_period", DurationOr("auto"), Txt("auto"));
    t.some("sort:label", Either).option("reverse", SWITCH, Num(0.0));
    t.some("sort:name", Either).option("reverse", SWITCH, Num(0.0));
    for name in ["sort:mean", "sort:min", "sort:max"] {
        t.some(name, Numbers).option("reverse", SWITCH, Num(0.0)).not_serial();
    }
    t.each("integrate", Numbers).optional("base", Number, Absent);
    t.each("integrate:while", Numbers)
        .optional("condition", OneOf(&["constant", "rising", "falling"]), Txt("constant"))
        .inputs(InputArity::AtLeast(2))
        .shape(OutputShape::Other);
    t.each("fill", Numbers).required("value", Number);
    t.each("fill:forward", Numbers).option("limit", Duration, Absent);
}

const ANOMALY_MODELS: [&str; 5] =
    ["constant", "trending", "periodic", "periodic daily", "periodic weekly"];

fn labels_and_tags(t: &mut FunctionTable) {
    t.each("label", Either).variadic("format", Format);
    t.each("label:name", Either).variadic("format", Format);
    t.each("label:replace", Either)
        .required("format", Format)
        .required("regex", Regex)
        .required("replacement", Text);
    t.each("tag:add", Either).variadic("tag", Text);
    t.alias("tag", "tag:add");
    t.each("tag:remove", Either).required("category", Text).optional("value", Text, Absent);
    t.each("tag:synth", Either)
        .required("format", Format)
        .required("regex", Regex)
        .required("category", Text)
        .required("value", Text);
}

fn stats(t: &mut FunctionTable) {
    for name in ["sum", "sub", "prod", "div", "max", "min"] {
        t.one(format!("stats:{name}"), Numbers).optional("x", Number, Absent);
    }
    for name in ["mean", "stddev", "var", "popvar"] {
        t.one(format!("stats:{name}"), Numbers);
    }
    for name in ["count", "alwaysone", "absent"] {
        t.one(format!("stats:{name}"), Either).output(OutputKind::Numbers);
    }
    t.one("stats:percentile", Numbers)
        .variadic("percentile", PERCENT)
        .shape(OutputShape::OnePerArgument);
    t.each("stats:ratio", Numbers)
        .option("partition_fmt", Format, Absent)
        .option("partition", Text, Absent)
        .option("of", Number, Num(1.0));
    t.each("stats:clamp", Numbers).required("min", Number).required("max", Number);
    t.each("stats:trim", Numbers).required("n", COUNT).shape(OutputShape::Other);
    t.one("stats:select", Numbers).required("n", POSITION);
}

fn op_and_each(t: &mut FunctionTable) {
    for name in ["neg", "not"] {
        t.each(format!("op:{name}"), Numbers);
    }
    for name in ["sum", "sub", "prod", "div"] {
        t.one(format!("op:{name}"), Numbers).optional("x", Number, Absent);
    }
    for name in ["div2", "mod", "exp", "eq", "geq", "gt", "leq", "lt"] {
        t.one(format!("op:{name}"), Numbers)
            .optional("x", Number, Absent)
            .inputs(InputArity::Exactly(2));
    }
    for name in ["or", "and"] {
        t.one(format!("op:{name}"), Numbers);
    }
    for name in ["add", "sub", "mul", "div", "mod", "exp", "eq", "geq", "gt", "leq", "lt"] {
        t.each(format!("each:{name}"), Numbers).required("x", Number);
    }
    t.each("each:coalesce", Numbers).required("x", Number);
    t.alias("op:add", "op:sum").deprecated("op:sum");
    t.removed("op:mul", "op:prod");
    t.removed("each:sum", "each:add");
    t.removed("each:prod", "each:mul");
    t.removed("op:neq", "not (a == b)");
    t.removed("each:neq", "each:eq(x) | op:not()");
}

fn windows(t: &mut FunctionTable) {
    const NUMERIC: [&str; 15] = [
        "sum", "mean", "max", "min", "count", "stddev", "popvar", "delta", "changes", "resets",
        "increase", "last", "first", "present", "absent",
    ];
    for package in ["window", "rolling"] {
        let name = |suffix: &str| format!("{package}:{suffix}");
        for suffix in NUMERIC {
            window(t, package, Numbers, name(suffix));
        }
        window(t, package, Numbers, name("percentile")).required("percentile", PERCENT);
        window(t, package, Numbers, name("inverse_percentile")).required("threshold", Number);
        window(t, package, Numbers, name("histogram")).output(OutputKind::Histograms);
        window(t, package, Histograms, name("merge"));
    }
    t.alias("histogram:window", "window:merge").deprecated("window:merge");
    t.alias("histogram:rolling", "rolling:merge").deprecated("rolling:merge");
    for name in ["count", "max", "mean", "min", "sum"] {
        t.each(format!("aggregate:{name}"), Numbers).optional("period", Span, Dur(MINUTE_NS));
    }
    t.each("aggregate:histogram", Either).output(OutputKind::Histograms).optional(
        "period",
        Span,
        Dur(MINUTE_NS),
    );
}

fn window<'a>(
    t: &'a mut FunctionTable,
    package: &str,
    takes: InputKind,
    name: String,
) -> &'a mut Signature {
    let is_rolling = package == "rolling";
    let skip = if is_rolling { Dur(MINUTE_NS) } else { As("window_duration") };
    let align = if is_rolling { "end" } else { "start" };
    t.each(name, takes)
        .required("window_duration", Span)
        .option("skip", Span, skip)
        .option("offset", ShiftOrZone, Dur(0))
        .option("align", OneOf(&["start", "end"]), Txt(align))
        .option("period", Span, DefaultValue::Constant(Constant::ViewPeriod))
}

fn groups(t: &mut FunctionTable) {
    for name in ["count", "sum", "mean", "max", "min", "stddev", "popvar", "alwaysone", "prod"] {
        t.one(format!("group_by:{name}"), Numbers)
            .variadic("category", Text)
            .shape(OutputShape::Groups);
    }
    t.one("group_by:merge", Histograms).variadic("category", Text).shape(OutputShape::Groups);
}

fn filters(t: &mut FunctionTable) {
    for outer in ["", "not:"] {
        for mode in ["any", "all"] {
            for inner in ["", "not:"] {
                for condition in CONDITIONS {
                    let name = format!("filter:{outer}{mode}:{inner}{condition}");
                    t.some(name, Numbers).required("x", Number);
                }
                t.some(format!("filter:{outer}{mode}:{inner}missing"), Either);
            }
        }
        for condition in CONDITIONS {
            for mode in ["mean", "min", "max"] {
                let name = format!("filter:{outer}{mode}:{condition}");
                t.some(name, Numbers).required("x", Number).not_serial();
            }
            t.some(format!("filter:{outer}latest:{condition}"), Numbers)
                .required("x", Number)
                .option("lookback", Duration, Absent);
        }
        t.some(format!("filter:{outer}label"), Either).required("regex", Regex);
    }
    for inner in ["", "not:"] {
        for condition in CONDITIONS {
            t.each(format!("filter:values:{inner}{condition}"), Numbers).required("x", Number);
        }
        for condition in ["gt", "geq", "eq", "lt", "leq"] {
            for (statistic, wants) in [("percentile", PERCENT), ("quantile", SHARE)] {
                t.each(format!("filter:values:{inner}{statistic}:{condition}"), Numbers)
                    .required(statistic, wants)
                    .not_serial();
            }
        }
    }
    for condition in CONDITIONS {
        t.some(format!("filter:sum:{condition}"), Numbers).required("x", Number).not_serial();
    }
    t.alias("filter:label:matches", "filter:label");
    t.some("filter:label:unique", Either);
    t.some("filter:limit", Either).required("n", COUNT);
    t.each("filter:whence", Either).option("start", Time, Absent).option("end", Time, Absent);
    t.some("exclude:tags", Either).required("tag_query", Search);
    t.alias("exclude", "exclude:tags");
    t.some("exclude:label", Either).required("regex", Regex);
}

fn histograms(t: &mut FunctionTable) {
    t.one("histogram:create", Numbers).output(OutputKind::Histograms);
    t.alias("histogram", "histogram:create");
    t.one("histogram:merge", Histograms);
    t.one("histogram:subtract", Histograms);
    let second = Dur(SECOND_NS);
    for name in ["count", "median", "min", "max", "mean", "stddev"] {
        add_numbers_of(t, name);
    }
    add_numbers_of(t, "rate").option("period", Span, second);
    add_numbers_of(t, "sum").option("period", Span, Absent);
    add_numbers_of(t, "IQR").optional("range", PERCENT, Num(50.0));
    for name in ["count_above", "count_below", "count_bin", "rate_bin", "ratio_above"] {
        add_numbers_of(t, name).variadic("threshold", Number).shape(OutputShape::EachPerArgument);
    }
    for name in ["ratio_below", "inverse_percentile"] {
        add_numbers_of(t, name).variadic("threshold", Number).shape(OutputShape::EachPerArgument);
    }
    for name in ["rate_above", "rate_below"] {
        add_numbers_of(t, name)
            .variadic("threshold", Number)
            .option("period", Span, second)
            .shape(OutputShape::EachPerArgument);
    }
    for name in ["count_between", "ratio_between"] {
        add_numbers_of(t, name).required("lower", Number).required("upper", Number);
    }
    add_numbers_of(t, "percentile")
        .variadic("percentile", PERCENT)
        .shape(OutputShape::EachPerArgument);
    t.alias("histogram:count_bucket", "histogram:count_bin").deprecated("histogram:count_bin");
    t.alias("histogram:rate_bucket", "histogram:rate_bin").deprecated("histogram:rate_bin");
    random(t, "histogram:random").option("method", OneOf(&DISTRIBUTIONS), Txt("normal"));
    for method in DISTRIBUTIONS {
        random(t, &format!("histogram:random:{method}"));
    }
}

fn add_numbers_of<'a>(t: &'a mut FunctionTable, name: &str) -> &'a mut Signature {
    t.each(format!("histogram:{name}"), Histograms).output(OutputKind::Numbers)
}

/// The reference names their parameters, not them; these are those that the parameters are of.
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

fn random<'a>(t: &'a mut FunctionTable, name: &str) -> &'a mut Signature {
    let mut signature =
        t.one(name, Numbers).output(OutputKind::Histograms).inputs(InputArity::Exactly(1));
    signature = signature.option("samples", Number, Num(1.0)).option("seed", Number, Num(-1.0));
    let parameters = ["mean", "sd", "min", "max", "alpha", "beta", "rate", "p", "n", "df"];
    for parameter in parameters.into_iter().chain(["dfn", "dfd", "xnonc"]) {
        signature = signature.option(parameter, Number, Absent);
    }
    signature
}

fn math(t: &mut FunctionTable) {
    const PLAIN: [&str; 26] = [
        "abs", "sgn", "ceil", "floor", "round", "sqrt", "exp", "ln", "log2", "log10", "deg", "rad",
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
        "atanh", "logit", "sigmoid",
    ];
    for name in PLAIN {
        t.each(format!("math:{name}"), Numbers);
    }
    t.each("math:log", Numbers).optional("base", Number, Num(10.0));
    t.each("math:pow", Numbers).required("exponent", Number);
    t.each("math:roundx", Numbers).optional("step", Number, Num(1.0));
    t.removed("math:neg", "op:neg");
}

fn forecasts(t: &mut FunctionTable) {
    const FILL: ArgumentType = IntegerWithin(1.0, 2.0);
    t.each("forecasting:auto", Numbers).required("forecast_duration", DurationOrMinutes);
    for name in ["regression", "slope"] {
        t.each(format!("forecasting:{name}"), Numbers)
            .required("forecast_duration", DurationOrMinutes)
            .optional("model_duration", DurationOrMinutes, Dur(10 * MINUTE_NS))
            .option("step", DurationOrMinutes, Dur(MINUTE_NS))
            .option("model", OneOf(&["linear", "exp"]), Txt("linear"));
    }
    t.each("forecasting:ewma", Numbers).required("alpha", SHARE).option("fill", FILL, Num(1.0));
    t.each("forecasting:dewma", Numbers)
        .required("alpha", SHARE)
        .required("beta", SHARE)
        .option("fill", FILL, Num(1.0))
        .option("forecast_duration", DurationOrMinutes, Dur(0));
    t.each("forecasting:holt_winters", Numbers)
        .required("alpha", SHARE)
        .required("beta", SHARE)
        .required("gamma", SHARE)
        .option("forecast_duration", DurationOrMinutes, Dur(0))
        .option("fill", FILL, Num(1.0))
        .option("period", DurationOrMinutes, Dur(DAY_NS));
}

fn outliers_and_vectors(t: &mut FunctionTable) {
    const NORMALIZE: ArgumentType = IntegerWithin(0.0, 2.0);
    t.each("outlier:cluster_score", Numbers).option("normalize", NORMALIZE, Num(0.0));
    t.one("outlier:count", Numbers).option("sensitivity", PERCENT, Num(50.0));
    t.one("outlier:normal_range", Numbers)
        .option("sensitivity", PERCENT, Num(50.0))
        .shape(OutputShape::Other);
    t.one("outlier:std_score", Numbers)
        .option("trim", COUNT, Num(0.0))
        .option("show_model", SWITCH, Num(0.0))
        .option("normalize", NORMALIZE, Num(0.0));
    t.one("vector:pack", Either)
        .required("format", Format)
        .option("sloppy", SWITCH, Num(0.0))
        .option("meta", SWITCH, Num(1.0));
    t.alias("vector", "vector:pack");
    t.each("vector:unpack", Either).inputs(InputArity::Exactly(1)).shape(OutputShape::Other);
    t.each("vector:drop", Either).variadic("key", Text);
}

fn graphite(t: &mut FunctionTable) {
    t.each("graphite:aliasbynode", Either).variadic("node", INTEGER);
    t.each("graphite:aliassub", Either).required("search", Regex).required("replace", Text);
    t.each("graphite:removenode", Either).variadic("node", INTEGER);
    t.each("graphite:tagbynode", Either).required("key", Text).variadic("node", INTEGER);
    t.each("graphite:aliasbytags", Either).variadic("tag", Text);
    for name in ["averageoutsidepercentile", "removebetweenpercentile"] {
        t.some(format!("graphite:{name}"), Numbers)
            .required("lower_percentile", PERCENT)
            .not_serial();
    }
    t.each("graphite:substr", Either).optional("start", INTEGER, Num(0.0)).optional(
        "stop",
        INTEGER,
        Num(0.0),
    );
    t.each("graphite:interpolate", Numbers).optional("limit", Number, Absent);
    t.each("graphite:integralbyinterval", Numbers).required("interval", Span);
    t.each("graphite:linearregression", Numbers)
        .optional("bootstrap", Duration, Absent)
        .not_serial();
    t.each("graphite:offsettozero", Numbers).not_serial();
    t.one("graphite:rangeofseries", Numbers);
    for name in ["forecast", "confidencebands", "aberration"] {
        t.each(format!("graphite:holtwinters{name}"), Numbers).shape(OutputShape::Other);
    }
}

// How lines are written.

struct FunctionTable(Vec<Signature>);

impl FunctionTable {
    fn add(
        &mut self,
        name: String,
        takes: InputKind,
        gives: OutputKind,
        shape: OutputShape,
    ) -> &mut Signature {
        self.0.push(Signature {
            computes: name.clone(),
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
        });
        self.last()
    }

    fn last(&mut self) -> &mut Signature {
        self.0.last_mut().expect("BUG: a line was added before")
    }

    fn source(&mut self, name: impl Into<String>, gives: OutputKind) -> &mut Signature {
        self.add(name.into(), Nothing, gives, OutputShape::Source)
    }

    fn one(&mut self, name: impl Into<String>, takes: InputKind) -> &mut Signature {
        self.add(name.into(), takes, OutputKind::AsInput, OutputShape::One)
    }

    fn each(&mut self, name: impl Into<String>, takes: InputKind) -> &mut Signature {
        self.add(name.into(), takes, OutputKind::AsInput, OutputShape::Each)
    }

    fn some(&mut self, name: impl Into<String>, takes: InputKind) -> &mut Signature {
        self.add(name.into(), takes, OutputKind::AsInput, OutputShape::Some)
    }

    /// A second name for a function above.
    fn alias(&mut self, name: &str, computes: &str) -> &mut Signature {
        let known = self.0.iter().find(|known| known.name == computes);
        let known = known.expect("BUG: a second name follows the first").clone();
        self.0.push(Signature { name: name.to_owned(), ..known });
        self.last()
    }

    fn removed(&mut self, name: impl Into<String>, instead: &'static str) {
        self.source(name, OutputKind::Numbers).stability = Stability::Removed(instead);
    }
}

impl Signature {
    fn required(&mut self, name: &'static str, wants: ArgumentType) -> &mut Signature {
        self.optional(name, wants, Required)
    }

    fn optional(
        &mut self,
        name: &'static str,
        wants: ArgumentType,
        default: DefaultValue,
    ) -> &mut Signature {
        self.parameters.push(FunctionParameter { name, argument_type: wants, default });
        self
    }

    fn variadic(&mut self, name: &'static str, wants: ArgumentType) -> &mut Signature {
        self.variadic = Some(FunctionParameter { name, argument_type: wants, default: Required });
        self
    }

    fn option(
        &mut self,
        name: &'static str,
        wants: ArgumentType,
        default: DefaultValue,
    ) -> &mut Signature {
        self.options.push(FunctionParameter { name, argument_type: wants, default });
        self
    }

    fn inputs(&mut self, inputs: InputArity) -> &mut Signature {
        self.arity = inputs;
        self
    }

    fn output(&mut self, gives: OutputKind) -> &mut Signature {
        self.output_kind = gives;
        self
    }

    fn shape(&mut self, shape: OutputShape) -> &mut Signature {
        self.output_shape = shape;
        self
    }

    fn not_serial(&mut self) -> &mut Signature {
        self.is_serial = false;
        self
    }

    fn deprecated(&mut self, instead: &'static str) -> &mut Signature {
        self.stability = Stability::Deprecated(instead);
        self
    }
}

//! All functions of CAQL: a line each, or a loop for what differs only in name.
//!
//! From circonus/product-docs, caql/reference.md, with what its change log and its pages on PromQL and Graphite name.

use super::ast::Constant;
use super::signature::Default::{
    Absent, As, Duration as Dur, Number as Num, Required, Text as Txt,
};
use super::signature::{
    Default, Gives, Inputs, Parameter, Shape, Signature, Standing, Takes, Wants,
};
use Takes::{Either, Histograms, Nothing, Numbers};
use Wants::{
    Duration, DurationOr, DurationOrMinutes, Format, Moment, Name, Number, NumberWithin, OneOf,
    Regex, Search, Shift, ShiftOrZone, Span, Text, Uuid, WholeWithin,
};

const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_NS: i64 = 60 * SECOND_NS;
const DAY_NS: i64 = 24 * 60 * MINUTE_NS;

/// Streams that one find gives at the most.
pub const FIND_LIMIT_MAX: f64 = 3000.0;

const PERCENT: Wants = NumberWithin(0.0, 100.0);
const SHARE: Wants = NumberWithin(0.0, 1.0);
const SWITCH: Wants = WholeWithin(0.0, 1.0);
const COUNT: Wants = WholeWithin(0.0, f64::INFINITY);
const POSITION: Wants = WholeWithin(1.0, f64::INFINITY);
const WHOLE: Wants = WholeWithin(f64::NEG_INFINITY, f64::INFINITY);

const CONDITIONS: [&str; 6] = ["lt", "leq", "eq", "neq", "geq", "gt"];

pub(super) fn table() -> Vec<Signature> {
    let mut table = Table(Vec::with_capacity(400));
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

fn sources(t: &mut Table) {
    let numeric = ["average", "count", "stddev", "counter", "counter_stddev", "derivative"];
    let numeric = numeric.into_iter().chain(["derivative_stddev"]);
    let kinds: Vec<(&str, Gives)> = numeric
        .map(|kind| (kind, Gives::Numbers))
        .chain([("histogram", Gives::Histograms)])
        .collect();
    for (kind, gives) in &kinds {
        t.source(format!("metric:{kind}"), *gives).needs("check_uuid", Uuid).needs("name", Text);
        t.gone(format!("search:metric:{kind}"), "find, with a tag search");
    }
    for (package, wants) in [("find", Name), ("graphite:find", Text)] {
        let more = [("sum", Gives::Numbers), ("histogram_cum", Gives::Histograms)];
        for (kind, gives) in kinds.iter().chain(&more) {
            t.source(format!("{package}:{kind}"), *gives)
                .needs("name", wants)
                .may("tag_query", Search, Absent)
                .option("limit", WholeWithin(1.0, FIND_LIMIT_MAX), Num(1000.0))
                .option("start_time_override", Number, Absent)
                .option("start_time_offset", Shift, Absent);
        }
    }
    t.same("find", "find:average");
    t.same("graphite:find", "graphite:find:average");
    t.same("metric", "metric:average");
    t.same("find:deriv", "find:derivative").deprecated("find:derivative");
    t.gone("search:metric", "find, with a tag search");
    t.gone("metriccluster", "find, with a tag search");
    t.gone("hf:find", "find, with #min_period before the expression");
    t.source("randomwalk", Gives::Numbers)
        .may("max", Number, Num(100.0))
        .may("min", Number, Num(0.0))
        .may("change", Number, Num(0.0))
        .option("seed", Number, Num(-1.0));
    t.source("time:epoch", Gives::Numbers);
    t.source("time:tz", Gives::Numbers).needs("timezone", Text).needs("field", OneOf(&TIME_FIELDS));
    t.source("math:pi", Gives::Numbers);
    t.source("math:e", Gives::Numbers);
}

const TIME_FIELDS: [&str; 8] =
    ["second", "minute", "hour", "monthday", "month", "weekday", "yearday", "year"];

fn global(t: &mut Table) {
    t.each("pass", Either);
    t.one("coalesce", Numbers);
    t.one("count", Either).gives(Gives::Numbers);
    t.each("counter", Numbers);
    t.each("derivative", Numbers);
    t.each("diff", Numbers);
    t.each("delay", Either).rest("delay", Duration).shape(Shape::EachPerArgument);
    t.one("if", Numbers).inputs(Inputs::Exactly(3));
    t.each("is_missing", Either).gives(Gives::Numbers);
    t.each("normalize", Numbers).option("scale", Number, Num(1.0)).option(
        "default",
        Number,
        Num(0.5),
    );
    t.each("wait", Numbers).needs("duration", Duration);
    for name in ["top", "bottom"] {
        t.some(name, Numbers)
            .needs("k", POSITION)
            .option("method", OneOf(&["mean", "max", "min"]), Txt("mean"))
            .not_serial();
    }
    t.each("anomaly_detection", Numbers)
        .may("sensitivity", PERCENT, Num(50.0))
        .option("model", OneOf(&ANOMALY_MODELS), Txt("constant"))
        .option("model_period", DurationOrMinutes, Dur(DAY_NS))
        .option("prefill_period", DurationOr("auto"), Txt("auto"));
    t.some("sort:label", Either).option("reverse", SWITCH, Num(0.0));
    t.some("sort:name", Either).option("reverse", SWITCH, Num(0.0));
    for name in ["sort:mean", "sort:min", "sort:max"] {
        t.some(name, Numbers).option("reverse", SWITCH, Num(0.0)).not_serial();
    }
    t.each("integrate", Numbers).may("base", Number, Absent);
    t.each("integrate:while", Numbers)
        .may("condition", OneOf(&["constant", "rising", "falling"]), Txt("constant"))
        .inputs(Inputs::AtLeast(2))
        .shape(Shape::Other);
    t.each("fill", Numbers).needs("value", Number);
    t.each("fill:forward", Numbers).option("limit", Duration, Absent);
}

const ANOMALY_MODELS: [&str; 5] =
    ["constant", "trending", "periodic", "periodic daily", "periodic weekly"];

fn labels_and_tags(t: &mut Table) {
    t.each("label", Either).rest("format", Format);
    t.each("label:name", Either).rest("format", Format);
    t.each("label:replace", Either)
        .needs("format", Format)
        .needs("regex", Regex)
        .needs("replacement", Text);
    t.each("tag:add", Either).rest("tag", Text);
    t.same("tag", "tag:add");
    t.each("tag:remove", Either).needs("category", Text).may("value", Text, Absent);
    t.each("tag:synth", Either)
        .needs("format", Format)
        .needs("regex", Regex)
        .needs("category", Text)
        .needs("value", Text);
}

fn stats(t: &mut Table) {
    for name in ["sum", "sub", "prod", "div", "max", "min"] {
        t.one(format!("stats:{name}"), Numbers).may("x", Number, Absent);
    }
    for name in ["mean", "stddev", "var", "popvar"] {
        t.one(format!("stats:{name}"), Numbers);
    }
    for name in ["count", "alwaysone", "absent"] {
        t.one(format!("stats:{name}"), Either).gives(Gives::Numbers);
    }
    t.one("stats:percentile", Numbers).rest("percentile", PERCENT).shape(Shape::OnePerArgument);
    t.each("stats:ratio", Numbers)
        .option("partition_fmt", Format, Absent)
        .option("partition", Text, Absent)
        .option("of", Number, Num(1.0));
    t.each("stats:clamp", Numbers).needs("min", Number).needs("max", Number);
    t.each("stats:trim", Numbers).needs("n", COUNT).shape(Shape::Other);
    t.one("stats:select", Numbers).needs("n", POSITION);
}

fn op_and_each(t: &mut Table) {
    for name in ["neg", "not"] {
        t.each(format!("op:{name}"), Numbers);
    }
    for name in ["sum", "sub", "prod", "div"] {
        t.one(format!("op:{name}"), Numbers).may("x", Number, Absent);
    }
    for name in ["div2", "mod", "exp", "eq", "geq", "gt", "leq", "lt"] {
        t.one(format!("op:{name}"), Numbers).may("x", Number, Absent).inputs(Inputs::Exactly(2));
    }
    for name in ["or", "and"] {
        t.one(format!("op:{name}"), Numbers);
    }
    for name in ["add", "sub", "mul", "div", "mod", "exp", "eq", "geq", "gt", "leq", "lt"] {
        t.each(format!("each:{name}"), Numbers).needs("x", Number);
    }
    t.each("each:coalesce", Numbers).needs("x", Number);
    t.same("op:add", "op:sum").deprecated("op:sum");
    t.gone("op:mul", "op:prod");
    t.gone("each:sum", "each:add");
    t.gone("each:prod", "each:mul");
    t.gone("op:neq", "not (a == b)");
    t.gone("each:neq", "each:eq(x) | op:not()");
}

fn windows(t: &mut Table) {
    const NUMERIC: [&str; 15] = [
        "sum", "mean", "max", "min", "count", "stddev", "popvar", "delta", "changes", "resets",
        "increase", "last", "first", "present", "absent",
    ];
    for package in ["window", "rolling"] {
        let name = |suffix: &str| format!("{package}:{suffix}");
        for suffix in NUMERIC {
            window(t, package, Numbers, name(suffix));
        }
        window(t, package, Numbers, name("percentile")).needs("percentile", PERCENT);
        window(t, package, Numbers, name("inverse_percentile")).needs("threshold", Number);
        window(t, package, Numbers, name("histogram")).gives(Gives::Histograms);
        window(t, package, Histograms, name("merge"));
    }
    t.same("histogram:window", "window:merge").deprecated("window:merge");
    t.same("histogram:rolling", "rolling:merge").deprecated("rolling:merge");
    for name in ["count", "max", "mean", "min", "sum"] {
        t.each(format!("aggregate:{name}"), Numbers).may("period", Span, Dur(MINUTE_NS));
    }
    t.each("aggregate:histogram", Either).gives(Gives::Histograms).may(
        "period",
        Span,
        Dur(MINUTE_NS),
    );
}

fn window<'a>(t: &'a mut Table, package: &str, takes: Takes, name: String) -> &'a mut Signature {
    let is_rolling = package == "rolling";
    let skip = if is_rolling { Dur(MINUTE_NS) } else { As("window_duration") };
    let align = if is_rolling { "end" } else { "start" };
    t.each(name, takes)
        .needs("window_duration", Span)
        .option("skip", Span, skip)
        .option("offset", ShiftOrZone, Dur(0))
        .option("align", OneOf(&["start", "end"]), Txt(align))
        .option("period", Span, Default::Constant(Constant::ViewPeriod))
}

fn groups(t: &mut Table) {
    for name in ["count", "sum", "mean", "max", "min", "stddev", "popvar", "alwaysone", "prod"] {
        t.one(format!("group_by:{name}"), Numbers).rest("category", Text).shape(Shape::Groups);
    }
    t.one("group_by:merge", Histograms).rest("category", Text).shape(Shape::Groups);
}

fn filters(t: &mut Table) {
    for outer in ["", "not:"] {
        for mode in ["any", "all"] {
            for inner in ["", "not:"] {
                for condition in CONDITIONS {
                    let name = format!("filter:{outer}{mode}:{inner}{condition}");
                    t.some(name, Numbers).needs("x", Number);
                }
                t.some(format!("filter:{outer}{mode}:{inner}missing"), Either);
            }
        }
        for condition in CONDITIONS {
            for mode in ["mean", "min", "max"] {
                let name = format!("filter:{outer}{mode}:{condition}");
                t.some(name, Numbers).needs("x", Number).not_serial();
            }
            t.some(format!("filter:{outer}latest:{condition}"), Numbers)
                .needs("x", Number)
                .option("lookback", Duration, Absent);
        }
        t.some(format!("filter:{outer}label"), Either).needs("regex", Regex);
    }
    for inner in ["", "not:"] {
        for condition in CONDITIONS {
            t.each(format!("filter:values:{inner}{condition}"), Numbers).needs("x", Number);
        }
        for condition in ["gt", "geq", "eq", "lt", "leq"] {
            for (statistic, wants) in [("percentile", PERCENT), ("quantile", SHARE)] {
                t.each(format!("filter:values:{inner}{statistic}:{condition}"), Numbers)
                    .needs(statistic, wants)
                    .not_serial();
            }
        }
    }
    for condition in CONDITIONS {
        t.some(format!("filter:sum:{condition}"), Numbers).needs("x", Number).not_serial();
    }
    t.same("filter:label:matches", "filter:label");
    t.some("filter:label:unique", Either);
    t.some("filter:limit", Either).needs("n", COUNT);
    t.each("filter:whence", Either).option("start", Moment, Absent).option("end", Moment, Absent);
    t.some("exclude:tags", Either).needs("tag_query", Search);
    t.same("exclude", "exclude:tags");
    t.some("exclude:label", Either).needs("regex", Regex);
}

fn histograms(t: &mut Table) {
    t.one("histogram:create", Numbers).gives(Gives::Histograms);
    t.same("histogram", "histogram:create");
    t.one("histogram:merge", Histograms);
    t.one("histogram:subtract", Histograms);
    let second = Dur(SECOND_NS);
    for name in ["count", "median", "min", "max", "mean", "stddev"] {
        numbers_of(t, name);
    }
    numbers_of(t, "rate").option("period", Span, second);
    numbers_of(t, "sum").option("period", Span, Absent);
    numbers_of(t, "IQR").may("range", PERCENT, Num(50.0));
    for name in ["count_above", "count_below", "count_bin", "rate_bin", "ratio_above"] {
        numbers_of(t, name).rest("threshold", Number).shape(Shape::EachPerArgument);
    }
    for name in ["ratio_below", "inverse_percentile"] {
        numbers_of(t, name).rest("threshold", Number).shape(Shape::EachPerArgument);
    }
    for name in ["rate_above", "rate_below"] {
        numbers_of(t, name)
            .rest("threshold", Number)
            .option("period", Span, second)
            .shape(Shape::EachPerArgument);
    }
    for name in ["count_between", "ratio_between"] {
        numbers_of(t, name).needs("lower", Number).needs("upper", Number);
    }
    numbers_of(t, "percentile").rest("percentile", PERCENT).shape(Shape::EachPerArgument);
    t.same("histogram:count_bucket", "histogram:count_bin").deprecated("histogram:count_bin");
    t.same("histogram:rate_bucket", "histogram:rate_bin").deprecated("histogram:rate_bin");
    random(t, "histogram:random").option("method", OneOf(&DISTRIBUTIONS), Txt("normal"));
    for method in DISTRIBUTIONS {
        random(t, &format!("histogram:random:{method}"));
    }
}

fn numbers_of<'a>(t: &'a mut Table, name: &str) -> &'a mut Signature {
    t.each(format!("histogram:{name}"), Histograms).gives(Gives::Numbers)
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

fn random<'a>(t: &'a mut Table, name: &str) -> &'a mut Signature {
    let mut signature = t.one(name, Numbers).gives(Gives::Histograms).inputs(Inputs::Exactly(1));
    signature = signature.option("samples", Number, Num(1.0)).option("seed", Number, Num(-1.0));
    let parameters = ["mean", "sd", "min", "max", "alpha", "beta", "rate", "p", "n", "df"];
    for parameter in parameters.into_iter().chain(["dfn", "dfd", "xnonc"]) {
        signature = signature.option(parameter, Number, Absent);
    }
    signature
}

fn math(t: &mut Table) {
    const PLAIN: [&str; 26] = [
        "abs", "sgn", "ceil", "floor", "round", "sqrt", "exp", "ln", "log2", "log10", "deg", "rad",
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
        "atanh", "logit", "sigmoid",
    ];
    for name in PLAIN {
        t.each(format!("math:{name}"), Numbers);
    }
    t.each("math:log", Numbers).may("base", Number, Num(10.0));
    t.each("math:pow", Numbers).needs("exponent", Number);
    t.each("math:roundx", Numbers).may("step", Number, Num(1.0));
    t.gone("math:neg", "op:neg");
}

fn forecasts(t: &mut Table) {
    const FILL: Wants = WholeWithin(1.0, 2.0);
    t.each("forecasting:auto", Numbers).needs("forecast_duration", DurationOrMinutes);
    for name in ["regression", "slope"] {
        t.each(format!("forecasting:{name}"), Numbers)
            .needs("forecast_duration", DurationOrMinutes)
            .may("model_duration", DurationOrMinutes, Dur(10 * MINUTE_NS))
            .option("step", DurationOrMinutes, Dur(MINUTE_NS))
            .option("model", OneOf(&["linear", "exp"]), Txt("linear"));
    }
    t.each("forecasting:ewma", Numbers).needs("alpha", SHARE).option("fill", FILL, Num(1.0));
    t.each("forecasting:dewma", Numbers)
        .needs("alpha", SHARE)
        .needs("beta", SHARE)
        .option("fill", FILL, Num(1.0))
        .option("forecast_duration", DurationOrMinutes, Dur(0));
    t.each("forecasting:holt_winters", Numbers)
        .needs("alpha", SHARE)
        .needs("beta", SHARE)
        .needs("gamma", SHARE)
        .option("forecast_duration", DurationOrMinutes, Dur(0))
        .option("fill", FILL, Num(1.0))
        .option("period", DurationOrMinutes, Dur(DAY_NS));
}

fn outliers_and_vectors(t: &mut Table) {
    const NORMALIZE: Wants = WholeWithin(0.0, 2.0);
    t.each("outlier:cluster_score", Numbers).option("normalize", NORMALIZE, Num(0.0));
    t.one("outlier:count", Numbers).option("sensitivity", PERCENT, Num(50.0));
    t.one("outlier:normal_range", Numbers)
        .option("sensitivity", PERCENT, Num(50.0))
        .shape(Shape::Other);
    t.one("outlier:std_score", Numbers)
        .option("trim", COUNT, Num(0.0))
        .option("show_model", SWITCH, Num(0.0))
        .option("normalize", NORMALIZE, Num(0.0));
    t.one("vector:pack", Either).needs("format", Format).option("sloppy", SWITCH, Num(0.0)).option(
        "meta",
        SWITCH,
        Num(1.0),
    );
    t.same("vector", "vector:pack");
    t.each("vector:unpack", Either).inputs(Inputs::Exactly(1)).shape(Shape::Other);
    t.each("vector:drop", Either).rest("key", Text);
}

fn graphite(t: &mut Table) {
    t.each("graphite:aliasbynode", Either).rest("node", WHOLE);
    t.each("graphite:aliassub", Either).needs("search", Regex).needs("replace", Text);
    t.each("graphite:removenode", Either).rest("node", WHOLE);
    t.each("graphite:tagbynode", Either).needs("key", Text).rest("node", WHOLE);
    t.each("graphite:aliasbytags", Either).rest("tag", Text);
    for name in ["averageoutsidepercentile", "removebetweenpercentile"] {
        t.some(format!("graphite:{name}"), Numbers).needs("lower_percentile", PERCENT).not_serial();
    }
    t.each("graphite:substr", Either).may("start", WHOLE, Num(0.0)).may("stop", WHOLE, Num(0.0));
    t.each("graphite:interpolate", Numbers).may("limit", Number, Absent);
    t.each("graphite:integralbyinterval", Numbers).needs("interval", Span);
    t.each("graphite:linearregression", Numbers).may("bootstrap", Duration, Absent).not_serial();
    t.each("graphite:offsettozero", Numbers).not_serial();
    t.one("graphite:rangeofseries", Numbers);
    for name in ["forecast", "confidencebands", "aberration"] {
        t.each(format!("graphite:holtwinters{name}"), Numbers).shape(Shape::Other);
    }
}

// How lines are written.

struct Table(Vec<Signature>);

impl Table {
    fn add(&mut self, name: String, takes: Takes, gives: Gives, shape: Shape) -> &mut Signature {
        self.0.push(Signature {
            computes: name.clone(),
            name,
            parameters: Vec::new(),
            rest: None,
            options: Vec::new(),
            takes,
            inputs: Inputs::Any,
            gives,
            shape,
            is_serial: true,
            standing: Standing::Current,
        });
        self.last()
    }

    fn last(&mut self) -> &mut Signature {
        self.0.last_mut().expect("BUG: a line was added before")
    }

    fn source(&mut self, name: impl Into<String>, gives: Gives) -> &mut Signature {
        self.add(name.into(), Nothing, gives, Shape::Source)
    }

    fn one(&mut self, name: impl Into<String>, takes: Takes) -> &mut Signature {
        self.add(name.into(), takes, Gives::Same, Shape::One)
    }

    fn each(&mut self, name: impl Into<String>, takes: Takes) -> &mut Signature {
        self.add(name.into(), takes, Gives::Same, Shape::Each)
    }

    fn some(&mut self, name: impl Into<String>, takes: Takes) -> &mut Signature {
        self.add(name.into(), takes, Gives::Same, Shape::Some)
    }

    /// A second name for a function above.
    fn same(&mut self, name: &str, computes: &str) -> &mut Signature {
        let known = self.0.iter().find(|known| known.name == computes);
        let known = known.expect("BUG: a second name follows the first").clone();
        self.0.push(Signature { name: name.to_owned(), ..known });
        self.last()
    }

    fn gone(&mut self, name: impl Into<String>, instead: &'static str) {
        self.source(name, Gives::Numbers).standing = Standing::Gone(instead);
    }
}

impl Signature {
    fn needs(&mut self, name: &'static str, wants: Wants) -> &mut Signature {
        self.may(name, wants, Required)
    }

    fn may(&mut self, name: &'static str, wants: Wants, default: Default) -> &mut Signature {
        self.parameters.push(Parameter { name, wants, default });
        self
    }

    fn rest(&mut self, name: &'static str, wants: Wants) -> &mut Signature {
        self.rest = Some(Parameter { name, wants, default: Required });
        self
    }

    fn option(&mut self, name: &'static str, wants: Wants, default: Default) -> &mut Signature {
        self.options.push(Parameter { name, wants, default });
        self
    }

    fn inputs(&mut self, inputs: Inputs) -> &mut Signature {
        self.inputs = inputs;
        self
    }

    fn gives(&mut self, gives: Gives) -> &mut Signature {
        self.gives = gives;
        self
    }

    fn shape(&mut self, shape: Shape) -> &mut Signature {
        self.shape = shape;
        self
    }

    fn not_serial(&mut self) -> &mut Signature {
        self.is_serial = false;
        self
    }

    fn deprecated(&mut self, instead: &'static str) -> &mut Signature {
        self.standing = Standing::Deprecated(instead);
        self
    }
}

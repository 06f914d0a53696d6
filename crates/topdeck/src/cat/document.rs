//! What a process shows, as JSON. Schema: `docs/shm.md`. Fields are only ever added; a change of meaning is another `schema`.

use api::document::{bracket, fields as bracket_fields, labels, statistic};
use api::json::Json::{self, Integer, List, Null, Object, Text};
use api::json::{integer, number};
use shm::show::{Metric, Number, Value};

use crate::processes::find::Process;
use crate::processes::moment::AsOf;
use crate::processes::pattern::Patterns;
use crate::processes::{derived, values};

const SCHEMA: u64 = 1;
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

pub(super) fn of(process: &Process, metrics: &[Metric], wanted: &Patterns, as_of: &AsOf) -> String {
    let wanted = metrics.iter().enumerate().filter(|(_, metric)| wanted.take(metric));
    let series = wanted.map(|(at, _)| metric(metrics, at, as_of));
    let document = Object(vec![
        ("schema", integer(SCHEMA)),
        ("process", about(process)),
        ("as_of_ns", as_of.unix_ns.map_or(Null, |ns| Integer(ns.into()))),
        ("as_of", Text(as_of.basis.clone())),
        ("metrics", List(series.collect())),
    ]);
    format!("{document}\n")
}

fn about(process: &Process) -> Json {
    let attached = &process.attached;
    let own = attached.reader().map(|reader| reader.process());
    let count = |n: Option<u64>| n.map_or(Null, integer);
    let own = own.as_ref();
    Object(vec![
        ("pid", integer(attached.pid().into())),
        ("program", Text(process.program().to_owned())),
        ("command", Text(attached.command().to_owned())),
        ("format", Text(attached.found().format.name().to_owned())),
        ("state", Text(process.state().to_owned())),
        ("file", Text(attached.found().path.display().to_string())),
        ("since_ns", own.map_or(Null, |of| Integer(of.created_unix_ns.into()))),
        ("lost", count(own.map(|of| of.lost))),
        ("refused", count(own.map(|of| of.refused))),
        ("sharing", count(own.map(|of| of.sharing))),
    ])
}

fn metric(metrics: &[Metric], at: usize, as_of: &AsOf) -> Json {
    let metric = &metrics[at];
    let link = metric.link.and_then(|link| metrics.get(link));
    let names = metric.labels.iter().map(|(name, value)| (&name[..], &value[..]));
    let mut fields = vec![
        ("name", Text(metric.name.clone())),
        ("labels", labels(names)),
        ("unit", Text(metric.unit.clone())),
        ("help", Text(metric.help.clone())),
        ("role", Text(metric.role.name().to_owned())),
        ("linked_to", link.map_or(Null, |link| Text(values::series(link)))),
        ("remark", Text(derived::remark(metrics, at))),
    ];
    fields.extend(value(&metric.value, as_of));
    Object(fields)
}

fn value(of: &Value, as_of: &AsOf) -> Vec<(&'static str, Json)> {
    let age = |start_ns: u64| as_of.age_ns(start_ns).map_or(Null, integer);
    let kind = |kind: &str| ("kind", Text(kind.to_owned()));
    match of {
        Value::Counter(n) => vec![kind("counter"), ("value", any(*n))],
        Value::Gauge(n) => vec![kind("gauge"), ("value", any(*n))],
        Value::Text(text) => vec![kind("text"), ("value", Text(text.clone()))],
        Value::Histogram(of) => {
            let quantiles = QUANTILES.iter().map(|&q| {
                let mut fields = vec![("q", number(q))];
                fields.extend(of.quantile(q).map(bracket_fields).unwrap_or_default());
                Object(fields)
            });
            vec![
                kind("histogram"),
                ("count", integer(of.count())),
                ("sum", bracket(of.sum())),
                ("min", statistic(of.min())),
                ("mean", statistic(of.mean())),
                ("max", statistic(of.max())),
                ("quantiles", List(quantiles.collect())),
            ]
        }
        Value::InFlight(of) => vec![
            kind("in_flight"),
            ("count", integer(of.outstanding())),
            ("not_listed", integer(of.outstanding_unlisted())),
            ("began", integer(of.started)),
            ("ended", integer(of.ended)),
            ("oldest_age_ns", of.operations.first().map_or(Null, |oldest| age(oldest.start_ns))),
        ],
        Value::Heartbeat(of) => vec![
            kind("heartbeat"),
            ("beats", integer(of.beats)),
            ("last_age_ns", if of.beats > 0 { age(of.last_ns) } else { Null }),
            ("every_ns", if of.every_ns > 0 { integer(of.every_ns) } else { Null }),
        ],
        Value::Unknown(why) => vec![kind("unknown"), ("why", Text((*why).to_owned()))],
        _ => vec![kind("unknown"), ("why", Text("a kind that this command does not know".into()))],
    }
}

fn any(n: Number) -> Json {
    match n {
        Number::Unsigned(n) => integer(n),
        Number::Signed(n) => Integer(n.into()),
        Number::Float(x) => number(x),
    }
}

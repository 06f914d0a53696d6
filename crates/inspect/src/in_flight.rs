//! In-flight operations of one or several processes, as text and as JSON. Schema: `docs/shm.md`.

use render::json::Json::{self, List, Null, Object, Text};
use render::json::integer;
use render::json::statistics::labels;
use render::text::escape_control;
use render::value_formatter::count;

use crate::find::MatchedProcess;
use crate::operations::Operations;
use crate::reference_time::ReferenceTime;

/// Limit of listed operations.
pub const LISTED_MAX: usize = 20;
const SCHEMA: u64 = 1;

/// In-flight operations of all processes, the latest reference time, and errors of processes that
/// could not be read.
pub fn gather(processes: &mut [MatchedProcess]) -> (Operations, ReferenceTime, Vec<shm::Error>) {
    let (mut operations, mut errors) = (Operations::default(), Vec::new());
    let mut as_of = ReferenceTime::unknown();
    for process in processes {
        match process.attached.metrics() {
            Ok(metrics) => {
                as_of = ReferenceTime::for_process(process, &metrics);
                operations.add(&process.name(), &metrics, &as_of);
            }
            Err(error) => errors.push(error),
        }
    }
    (operations, as_of, errors)
}

/// Number of operations, the oldest or groups by the tag `by`, and omissions.
pub fn to_text(
    by: Option<&str>,
    of: &[MatchedProcess],
    operations: &Operations,
    as_of: &ReferenceTime,
) -> String {
    let who = match of {
        [one] => one.name(),
        all => format!("{} processes", count(all.len() as u64)),
    };
    let n = count(operations.count());
    let mut text = escape_control(&format!("{n} in flight in {who}, {}", as_of.sentence())) + "\n";
    if operations.count() > 0 {
        text.push('\n');
    }
    let shown = match by {
        Some(by) if operations.count() > 0 => {
            text.push_str(&operations.group_table(by));
            operations.list.len()
        }
        None if !operations.list.is_empty() => {
            text.push_str(&operations.oldest_table(LISTED_MAX));
            LISTED_MAX
        }
        _ => LISTED_MAX,
    };
    for line in operations.omissions(shown) {
        text.push_str(&format!("{line}\n"));
    }
    text
}

/// In-flight operations as JSON.
pub fn to_json(by: Option<&str>, operations: &Operations, as_of: &ReferenceTime) -> Json {
    let age = |ns: Option<u64>| ns.map_or(Null, integer);
    let mut fields = vec![
        ("schema", integer(SCHEMA)),
        ("as_of_ns", as_of.unix_ns.map_or(Null, |ns| Json::Integer(ns.into()))),
        ("as_of", Text(as_of.basis.clone())),
        ("count", integer(operations.count())),
        ("untracked", integer(operations.untracked)),
        ("younger_count", integer(operations.too_young)),
    ];
    if let Some(by) = by {
        let groups = operations.groups(by).into_iter().map(|group| {
            Object(vec![
                ("value", group.value.map_or(Null, Text)),
                ("count", integer(group.count)),
                ("p50_age_ns", age(group.p50_ns)),
                ("oldest_age_ns", age(group.oldest_ns)),
            ])
        });
        fields.extend([("by", Text(by.to_owned())), ("groups", List(groups.collect()))]);
    } else {
        let list = operations.list.iter().map(|open| {
            let (of_metric, of_operation) = open.tags.split_at(open.labels);
            let pairs = |tags: &[(String, String)]| {
                labels(tags.iter().map(|(name, value)| (&name[..], &value[..])))
            };
            Object(vec![
                ("process", Text(open.process.clone())),
                ("metric", Text(open.metric.clone())),
                ("labels", pairs(of_metric)),
                ("tags", pairs(of_operation)),
                ("number", integer(open.number)),
                ("age_ns", age(open.age_ns)),
            ])
        });
        fields.push(("operations", List(list.collect())));
    }
    Object(fields)
}

//! The report as JSON. Schema: `docs/hist.md`.
//!
//! Every statistic is `{"lower", "estimate", "upper"}` in the unit named; numbers read back to the same bits;
//! `null` stands for no bound, or for not known. Fields are only ever added; a change of meaning is another
//! `schema`.

use anyhow::Result;
use api::document::{bracket, count, fields as bracket_fields, statistic};
use hist::{Side, Sum};

use crate::hist::group::Group;
use crate::hist::input::{self, Collected};
use crate::hist::options::Options;
use crate::hist::show::Show;
use crate::hist::whole::Whole;
use crate::hist::{above, compare, decades, intervals};
use api::json::Json::{self, Bool, List, Null, Object, Text};
use api::json::{integer, number};

const SCHEMA: u64 = 1;

pub(crate) fn document(options: &Options, collected: &Collected) -> Result<String> {
    let groups = collected.groups.iter().filter(|group| !group.whole.is_void());
    let groups: Vec<Json> = groups.map(|g| group(options, g)).collect::<Result<_>>()?;
    let mut fields = vec![
        ("schema", integer(SCHEMA)),
        ("files", List(options.files.iter().map(|file| Text(input::name(file))).collect())),
        ("complete", Bool(collected.trouble_count == 0 && collected.unread.is_empty())),
        ("groups", List(groups)),
    ];
    if options.compare {
        let pairs = compare::pairs(options, collected)?;
        fields.push((
            "comparisons",
            List(pairs.iter().map(|p| pair(options, p)).collect::<Result<_>>()?),
        ));
    }
    let skipped = collected.skipped.iter().map(|(what, n)| ((*what).to_owned(), integer(*n)));
    fields.push(("skipped", Json::Map(skipped.collect())));
    let troubles = collected.troubles.iter().map(|(file, trouble)| {
        Object(vec![
            ("file", Text(file.clone())),
            ("place", Text(trouble.place.to_string())),
            ("expected", Text(trouble.expected.to_string())),
            ("found", Text(trouble.found.clone())),
        ])
    });
    fields.push(("troubles", List(troubles.collect())));
    fields.push(("trouble_count", integer(collected.trouble_count)));
    Ok(format!("{}\n", Object(fields)))
}

fn group(options: &Options, group: &Group) -> Result<Json> {
    let show = Show::new(group.key.unit.as_ref());
    let mut fields = vec![
        ("metric", Text(group.key.metric.clone())),
        ("by", group.key.by.clone().map_or(Null, Text)),
        ("file", group.key.file.map_or(Null, |file| Text(input::name(&options.files[file])))),
        ("unit", group.key.unit.as_ref().map_or(Null, |unit| Text(unit.to_string()))),
    ];
    fields.extend(whole(options, &group.whole));
    let limits = above::all(options, group)?;
    let above = limits.iter().map(|above| {
        Object(vec![
            ("written", Text(above.written.to_string())),
            ("limit", number(above.limit)),
            ("count", count(above.count)),
            ("share", bracket(above.count.share_of(group.whole.count()))),
        ])
    });
    fields.push(("above", List(above.collect())));
    let decades = decades::of(group, &show).into_iter().map(|decade| {
        Object(vec![
            ("from", number(decade.from)),
            ("below", number(decade.below)),
            ("closed", Bool(decade.closed)),
            ("count", count(decade.count)),
        ])
    });
    fields.push(("decades", List(decades.collect())));
    if let Some(interval) = &options.interval {
        intervals::check_times(interval, group)?;
        let row_ns = intervals::interval_ns(interval)?;
        let rows = group.rows.iter().map(|(&start, row)| {
            let mut fields = vec![
                ("start_ns", Json::Integer(start.into())),
                ("end_ns", Json::Integer(i128::from(start) + i128::from(row_ns))),
                ("histograms", integer(row.histograms)),
                ("reach_past", integer(row.reach_past)),
            ];
            fields.extend(whole(options, &row.whole));
            Object(fields)
        });
        fields.push(("intervals", List(rows.collect())));
    }
    Ok(Object(fields))
}

fn whole(options: &Options, whole: &Whole) -> Vec<(&'static str, Json)> {
    let quantiles = options.quantiles().iter().map(|&q| {
        let mut fields = vec![("q", number(q))];
        fields.extend(whole.quantile(q).map(bracket_fields).unwrap_or_default());
        Object(fields)
    });
    let parts = whole.parts().iter().map(|part| {
        Object(vec![
            ("scheme", Text(part.scheme().to_string())),
            ("count", integer(part.count())),
            ("sum", side(part.sum_side(), Sum::value)),
            ("min", side(part.min_side(), |min| min)),
            ("max", side(part.max_side(), |max| max)),
        ])
    });
    vec![
        ("count", integer(whole.count())),
        ("not_a_number", integer(whole.nan())),
        ("zero", integer(whole.zero())),
        ("past_grid", integer(whole.overflow())),
        ("below_grid", integer(whole.underflow())),
        ("sum", bracket(whole.sum())),
        ("min", statistic(whole.min())),
        ("mean", statistic(whole.mean())),
        ("stddev", statistic(whole.stddev())),
        ("max", statistic(whole.max())),
        ("quantiles", List(quantiles.collect())),
        ("parts", List(parts.collect())),
    ]
}

fn pair(options: &Options, pair: &compare::Pair<'_>) -> Result<Json> {
    let rows = compare::rows(options, pair).into_iter().map(|(name, a, b)| {
        let ratio = a.zip(b).and_then(|(a, b)| compare::ratio(a, b));
        Object(vec![
            ("name", Text(name)),
            ("a", statistic(a)),
            ("b", statistic(b)),
            ("ratio", statistic(ratio)),
        ])
    });
    let apart = compare::distances(&pair.a.whole, &pair.b.whole)?;
    Ok(Object(vec![
        ("metric", Text(pair.a.key.metric.clone())),
        ("by", pair.a.key.by.clone().map_or(Null, Text)),
        ("unit", pair.a.key.unit.as_ref().map_or(Null, |unit| Text(unit.to_string()))),
        ("rows", List(rows.collect())),
        ("wasserstein", statistic(apart.wasserstein)),
        ("kolmogorov_smirnov", statistic(apart.kolmogorov_smirnov)),
        ("flattened", Bool(apart.flattened)),
    ]))
}

fn side<T: Copy>(side: Side<T>, value: impl Fn(T) -> f64) -> Json {
    let (standing, value) = match side {
        Side::Exact(known) => ("exact", number(value(known))),
        Side::Estimated(known) => ("estimated", number(value(known))),
        Side::Absent => ("absent", Null),
    };
    Object(vec![("standing", Text(standing.into())), ("value", value)])
}

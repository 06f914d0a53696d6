//! JSON report. Schema: `docs/hist.md`.
//!
//! Every statistic is `{"lower", "estimate", "upper"}` in the unit given; numbers read back to the
//! same bits; `null` means unbounded or unknown. Fields may be added; a change of meaning
//! increments `schema`.

use crate::error::Result;
use hist::{DoubleDouble, TrackedValue};
use render::json::statistics::{bracket, count, fields as bracket_fields, statistic};

use crate::distribution::collected_input::{self, CollectedInput};
use crate::distribution::group::DistributionGroup;
use crate::distribution::{DistributionOptions, interval_ns};
use crate::distribution::{group_comparison, intervals, threshold_count};
use render::decades;
use render::json::Json::{self, Bool, List, Null, Object, Text};
use render::json::{integer, number};
use render::merged_distribution::MergedDistribution;
use render::value_formatter::ValueFormatter;

const SCHEMA: u64 = 2;

/// JSON document of all groups.
pub fn distribution_json(
    options: &DistributionOptions,
    collected: &CollectedInput,
) -> Result<String> {
    let groups = collected.groups.iter().filter(|group| !group.distribution.is_empty());
    let groups: Vec<Json> = groups.map(|g| group_json(options, g)).collect::<Result<_>>()?;
    let mut fields = vec![
        ("schema", integer(SCHEMA)),
        (
            "files",
            List(
                options
                    .files
                    .iter()
                    .map(|file| Text(collected_input::display_name(file)))
                    .collect(),
            ),
        ),
        ("complete", Bool(collected.error_count == 0 && collected.unreadable.is_empty())),
        ("groups", List(groups)),
    ];
    if options.compare {
        let pairs = group_comparison::pairs(options, collected)?;
        fields.push((
            "comparisons",
            List(pairs.iter().map(|p| pair_json(options, p)).collect::<Result<_>>()?),
        ));
    }
    let skipped = collected.skipped.iter().map(|(what, n)| ((*what).to_owned(), integer(*n)));
    fields.push(("skipped", Json::Map(skipped.collect())));
    let errors = collected.errors.iter().map(|(file, error)| {
        Object(vec![
            ("file", Text(file.clone())),
            ("position", Text(error.position.to_string())),
            ("expected", Text(error.expected.to_string())),
            ("actual", Text(error.actual.clone())),
        ])
    });
    fields.push(("errors", List(errors.collect())));
    fields.push(("error_count", integer(collected.error_count)));
    Ok(format!("{}\n", Object(fields)))
}

fn group_json(options: &DistributionOptions, group: &DistributionGroup) -> Result<Json> {
    let formatter = ValueFormatter::new(group.key.unit.as_ref());
    let mut fields = vec![
        ("metric", Text(group.key.metric.clone())),
        ("by", group.key.by.clone().map_or(Null, Text)),
        (
            "file",
            group
                .key
                .file
                .map_or(Null, |file| Text(collected_input::display_name(&options.files[file]))),
        ),
        ("unit", group.key.unit.as_ref().map_or(Null, |unit| Text(unit.to_string()))),
    ];
    fields.extend(statistics_json(options, &group.distribution));
    let limits = threshold_count::count_all(options, group)?;
    let above = options.above.iter().zip(&limits).map(|(written, above)| {
        Object(vec![
            ("text", Text(written.to_string())),
            ("threshold", number(above.threshold)),
            ("count", count(above.count)),
            ("share", bracket(above.count.fraction_of(group.distribution.count()))),
        ])
    });
    fields.push(("above", List(above.collect())));
    let decades =
        decades::split_decades(&group.distribution, &formatter).into_iter().map(|decade| {
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
        let row_ns = interval_ns(interval)?;
        let rows = group.rows.iter().map(|(&start, row)| {
            let mut fields = vec![
                ("start_ns", Json::Integer(start.into())),
                ("end_ns", Json::Integer(i128::from(start) + i128::from(row_ns))),
                ("histograms", integer(row.histograms)),
                ("reach_past", integer(row.reach_past)),
            ];
            fields.extend(statistics_json(options, &row.distribution));
            Object(fields)
        });
        fields.push(("intervals", List(rows.collect())));
    }
    Ok(Object(fields))
}

fn statistics_json(
    options: &DistributionOptions,
    distribution: &MergedDistribution,
) -> Vec<(&'static str, Json)> {
    let quantiles = options.quantiles().iter().map(|&q| {
        let mut fields = vec![("q", number(q))];
        fields.extend(distribution.quantile(q).map(bracket_fields).unwrap_or_default());
        Object(fields)
    });
    let parts = distribution.components().iter().map(|part| {
        Object(vec![
            ("scheme", Text(part.scheme().to_string())),
            ("count", integer(part.count())),
            ("sum", summary_json(part.tracked_sum(), DoubleDouble::value)),
            ("min", summary_json(part.tracked_min(), |min| min)),
            ("max", summary_json(part.tracked_max(), |max| max)),
        ])
    });
    vec![
        ("count", integer(distribution.count())),
        ("nan", integer(distribution.nan())),
        ("zero", integer(distribution.zero())),
        ("overflow", integer(distribution.overflow())),
        ("underflow", integer(distribution.underflow())),
        ("sum", bracket(distribution.sum())),
        ("min", statistic(distribution.min())),
        ("mean", statistic(distribution.mean())),
        ("stddev", statistic(distribution.stddev())),
        ("max", statistic(distribution.max())),
        ("quantiles", List(quantiles.collect())),
        ("parts", List(parts.collect())),
    ]
}

fn pair_json(
    options: &DistributionOptions,
    pair: &group_comparison::GroupPair<'_>,
) -> Result<Json> {
    let rows = group_comparison::rows(options, pair).into_iter().map(|(name, a, b)| {
        let ratio = a.zip(b).and_then(|(a, b)| group_comparison::ratio(a, b));
        Object(vec![
            ("name", Text(name)),
            ("a", statistic(a)),
            ("b", statistic(b)),
            ("ratio", statistic(ratio)),
        ])
    });
    let distances = group_comparison::distances(&pair.a.distribution, &pair.b.distribution)?;
    Ok(Object(vec![
        ("metric", Text(pair.a.key.metric.clone())),
        ("by", pair.a.key.by.clone().map_or(Null, Text)),
        ("unit", pair.a.key.unit.as_ref().map_or(Null, |unit| Text(unit.to_string()))),
        ("rows", List(rows.collect())),
        ("wasserstein", statistic(distances.wasserstein)),
        ("ks_statistic", statistic(distances.kolmogorov_smirnov)),
        ("flattened", Bool(distances.flattened)),
    ]))
}

fn summary_json<T: Copy>(side: TrackedValue<T>, value: impl Fn(T) -> f64) -> Json {
    let (exactness, value) = match side {
        TrackedValue::Exact(known) => ("exact", number(value(known))),
        TrackedValue::Estimated(known) => ("estimated", number(value(known))),
        TrackedValue::Bound(known) => ("bound", number(value(known))),
        TrackedValue::Absent => ("absent", Null),
    };
    Object(vec![("exactness", Text(exactness.into())), ("value", value)])
}

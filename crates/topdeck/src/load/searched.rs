//! A search as JSON: `docs/formats/load-search.md`, to which a test holds it.

use api::json::Json::{self, Bool, Integer, List, Null, Object, Text};
use api::json::{integer, number};
use load::{Above, Doubt};

use crate::load::document::{calibration, doubts, planned, time};
use crate::load::search::{Searched, aim};

pub(crate) fn of(searched: &Searched) -> Json {
    let Searched { search, found, .. } = searched;
    let text = |text: &str| Text(text.to_owned());
    let mut all = vec![("format", text("topdeck load search")), ("version", integer(1))];
    all.extend(planned(&searched.plan));
    let requirements = searched.requirements.iter().map(|one| text(&one.written));
    let steps = found.steps.iter().map(|step| {
        let of = &step.measured;
        Object(vec![
            ("rate", number(step.rate)),
            ("length_ns", integer(step.length_ns)),
            ("for", text(aim(step))),
            ("held", Bool(step.is_held)),
            ("generator", Bool(step.is_generators)),
            ("failed", integer(of.failed)),
            ("unknown", number(of.unknown)),
            ("doubts", List(of.doubts.iter().map(Doubt::kind).map(text).collect())),
            ("response", time(&of.response)),
            ("service", time(&of.service)),
        ])
    });
    all.extend([
        ("calibration", searched.calibration.as_ref().map_or(Null, calibration)),
        ("began_unix_ns", Integer(searched.began_unix_ns.into())),
        ("length_ns", integer(searched.length_ns)),
        ("trusted", Bool(searched.is_trusted())),
        ("doubts", doubts(&searched.doubts)),
        ("requirements", List(requirements.collect())),
        ("first_rate", number(search.first_rate)),
        ("rate_max", number(search.rate_max)),
        ("precision", number(search.precision)),
        (
            "held",
            found.held.map_or(Null, |held| {
                let (from, to) = held.confidence();
                Object(vec![
                    ("rate", number(held.rate)),
                    ("met", integer(held.met.into())),
                    ("of", integer(held.of.into())),
                    ("confidence_from", number(from)),
                    ("confidence_to", number(to)),
                ])
            }),
        ),
        ("above", above(found.above)),
        (
            "knee",
            Object(vec![
                ("below", found.knee.below.map_or(Null, number)),
                ("above", above(found.knee.above)),
            ]),
        ),
        ("words", text(&found.to_string())),
        ("steps", List(steps.collect())),
    ]);
    Object(all)
}

fn above(of: Above) -> Json {
    let (limit, rate) = match of {
        Above::Broken(rate) => ("target", Some(rate)),
        Above::Generator(rate) => ("generator", Some(rate)),
        Above::Nothing => return Null,
    };
    Object(vec![("limit", Text(limit.to_owned())), ("rate", rate.map_or(Null, number))])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use hist::Histogram;
    use load::{Limit, Measured, Search};

    use super::*;
    use crate::load::recorded::tests::{paths, report};

    const PAGE: &str = include_str!("../../../../docs/formats/load-search.md");

    /// Of a target that holds 1,000 requests per second.
    fn searched() -> Searched {
        let report = report();
        let requirements = vec!["p99<20ms".parse().unwrap()];
        let limits = requirements.iter().map(|one| Limit::try_from(one).unwrap()).collect();
        let search = Search { requirements: limits, ..Search::default() };
        let found: Result<_, (Infallible, _)> = search.run(&mut |ask| {
            let ms = if ask.rate > 1_000.0 { 50 } else { 1 };
            let times = |ms: u64| {
                let mut times = Histogram::default();
                (0..100).for_each(|_| times.record(ms as f64 * 1e6));
                times
            };
            let doubts = report.run.doubts.clone();
            Ok(Measured { response: times(ms), service: times(1), doubts, ..Measured::default() })
        });
        Searched {
            plan: report.plan,
            calibration: report.calibration,
            requirements,
            search,
            found: found.unwrap(),
            doubts: report.run.doubts,
            began_unix_ns: report.run.began_unix_ns,
            length_ns: 90_000_000_000,
        }
    }

    #[test]
    fn the_page_names_every_field() {
        let text = of(&searched()).to_string();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!((950.0..=1_000.0).contains(&json["held"]["rate"].as_f64().unwrap()), "{text}");
        let mut found = BTreeSet::new();
        paths(&json, "", &mut found);
        let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let told: BTreeSet<String> = rows.map(|(path, _)| path.to_owned()).collect();
        assert_eq!(told, found);
    }
}

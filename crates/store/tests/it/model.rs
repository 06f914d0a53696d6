//! Compares the store with an evaluator that keeps every sample and recomputes every answer.

mod cardinality_limits;
mod comparison;
mod cumulative_samples;
mod evaluator;
mod program;
mod regressions;
mod retention;

use proptest::prelude::*;
use store::{DAY, HOUR, Resolution, RetentionRule, TimeGrid};

use self::program::{ModelRun, ModelStep, adding_step, step};
use self::retention::retention_rule;
use crate::fixture::StoreFixture;

fn run(steps: &[ModelStep]) {
    run_on(StoreFixture::new(), steps);
}

fn run_on(world: StoreFixture, steps: &[ModelStep]) {
    let mut run = ModelRun::of(world);
    steps.iter().for_each(|step| run.step(step));
    let all: Vec<usize> = (0..run.evaluator.series.len()).collect();
    let check = |run: &ModelRun| {
        let Some(extent) = run.extent() else { return };
        let start = extent.start - extent.start.rem_euclid(DAY);
        let columns = |step: i64| ((extent.end - start) as u64).div_ceil(step as u64);
        for step in [extent.end - start, DAY, HOUR] {
            run.compare(TimeGrid { start, step, columns: columns(step) }, &all);
        }
        for &series in &all {
            run.compare(TimeGrid { start, step: 6 * HOUR, columns: columns(6 * HOUR) }, &[series]);
        }
    };
    check(&run);
    run.step(&ModelStep::Maintain);
    check(&run);
    run.advance(3 * DAY);
    run.step(&ModelStep::Maintain);
    check(&run);
}

fn rules() -> impl Strategy<Value = Vec<RetentionRule>> {
    let selector = prop_oneof![2 => Just("*"), 1 => Just("latency"), 1 => Just("and(host:a)")];
    let rule = (selector, 0usize..3, prop::option::weighted(0.9, 1i64..90)).prop_map(
        |(selector, resolution, hours)| {
            let resolution =
                [Resolution::Base, Resolution::Minute, Resolution::FiveMinutes][resolution];
            retention_rule(resolution, hours.map(|hours| hours * HOUR), selector)
        },
    );
    prop::collection::vec(rule, 1..5)
}

fn run_with_retention(rules: Vec<RetentionRule>, steps: &[ModelStep]) {
    let mut run = ModelRun::new();
    run.store().set_retention(rules).unwrap();
    steps.iter().for_each(|step| run.step(step));
    run.step(&ModelStep::CheckSums);
    run.step(&ModelStep::Maintain);
    run.step(&ModelStep::CheckSums);
    run.advance(3 * DAY);
    run.step(&ModelStep::Maintain);
    run.step(&ModelStep::CheckSums);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn sums_are_independent_of_retention(
        rules in rules(),
        steps in prop::collection::vec(adding_step(), 1..40),
    ) {
        run_with_retention(rules, &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..Default::default() })]

    #[test]
    #[ignore = "soak: twenty thousand long programs, some hours"]
    fn soak_sums_are_independent_of_retention(
        rules in rules(),
        steps in prop::collection::vec(adding_step(), 1..120),
    ) {
        run_with_retention(rules, &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn results_match_the_evaluator(steps in prop::collection::vec(step(), 1..30)) {
        run(&steps);
    }

    #[test]
    fn results_in_memory_match_the_evaluator(steps in prop::collection::vec(step(), 1..30)) {
        run_on(StoreFixture::in_memory(), &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..Default::default() })]

    #[test]
    #[ignore = "soak: twenty thousand long programs, some hours"]
    fn soak_results_match_the_evaluator(steps in prop::collection::vec(step(), 1..120)) {
        run(&steps);
    }
}

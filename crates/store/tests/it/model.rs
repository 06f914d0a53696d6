//! The store beside an evaluator that keeps every sample and works every answer out anew.

mod evaluator;
mod known;
mod program;
mod refused;
mod retention;

use proptest::prelude::*;
use store::{DAY, Grid, HOUR, Keep, Resolution};

use self::program::{Run, Step, adding_step, step};
use self::retention::keep;

fn run(steps: &[Step]) {
    let mut run = Run::new();
    steps.iter().for_each(|step| run.step(step));
    let all: Vec<usize> = (0..run.evaluator.series.len()).collect();
    let check = |run: &Run| {
        let Some(extent) = run.extent() else { return };
        let start = extent.start - extent.start.rem_euclid(DAY);
        let columns = |step: i64| ((extent.end - start) as u64).div_ceil(step as u64);
        for step in [extent.end - start, DAY, HOUR] {
            run.compare(Grid { start, step, columns: columns(step) }, &all);
        }
        for &series in &all {
            run.compare(Grid { start, step: 6 * HOUR, columns: columns(6 * HOUR) }, &[series]);
        }
    };
    check(&run);
    run.step(&Step::Maintain);
    check(&run);
    run.advance(3 * DAY);
    run.step(&Step::Maintain);
    check(&run);
}

fn rules() -> impl Strategy<Value = Vec<Keep>> {
    let selector = prop_oneof![2 => Just("*"), 1 => Just("latency"), 1 => Just("and(host:a)")];
    let rule = (selector, 0usize..3, prop::option::weighted(0.9, 1i64..90)).prop_map(
        |(selector, resolution, hours)| {
            let resolution =
                [Resolution::Base, Resolution::Minute, Resolution::FiveMinutes][resolution];
            keep(resolution, hours.map(|hours| hours * HOUR), selector)
        },
    );
    prop::collection::vec(rule, 1..5)
}

fn run_kept(rules: Vec<Keep>, steps: &[Step]) {
    let mut run = Run::new();
    run.store().set_keep(rules).unwrap();
    steps.iter().for_each(|step| run.step(step));
    run.step(&Step::CheckSums);
    run.step(&Step::Maintain);
    run.step(&Step::CheckSums);
    run.advance(3 * DAY);
    run.step(&Step::Maintain);
    run.step(&Step::CheckSums);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_adds_up_is_the_same_however_short_rows_are_kept(
        rules in rules(),
        steps in prop::collection::vec(adding_step(), 1..40),
    ) {
        run_kept(rules, &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..Default::default() })]

    #[test]
    #[ignore = "soak: twenty thousand long programs, some hours"]
    fn soak_what_adds_up_is_the_same_however_short_rows_are_kept(
        rules in rules(),
        steps in prop::collection::vec(adding_step(), 1..120),
    ) {
        run_kept(rules, &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn answers_are_those_of_the_evaluator(steps in prop::collection::vec(step(), 1..30)) {
        run(&steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..Default::default() })]

    #[test]
    #[ignore = "soak: twenty thousand long programs, some hours"]
    fn soak_answers_are_those_of_the_evaluator(steps in prop::collection::vec(step(), 1..120)) {
        run(&steps);
    }
}

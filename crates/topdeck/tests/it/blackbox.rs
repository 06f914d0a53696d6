//! topdeck from outside: random programs over HTTP and with its commands, beside a model that works every
//! answer out from all rows that were sent.

mod model;
mod run;
mod wire;

use run::run;

/// Seeds of programs that failed once; each stays.
const KEPT: [u64; 1] = [1005];

#[test]
fn answers_from_outside_are_those_of_the_model() {
    KEPT.into_iter().chain(1..=6).for_each(run);
}

#[test]
#[ignore = "soak: five hundred programs, about an hour"]
fn soak_answers_from_outside_are_those_of_the_model() {
    (1_000..1_500).for_each(run);
}

//! Integration tests on a simulated clock: rule files, traps of Prometheus' semantics, the cases of
//! its alert generator compliance suite, own rules, and a comparison with a slow model.

mod affected_series;
mod cached_findings;
mod checks;
mod classic_histograms;
mod clock_steps;
mod compliance;
mod damaged_files;
mod extensions;
mod forecasts;
mod format_page;
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;
mod harness;
mod incidents;
mod inventory_page;
mod own_absence;
mod own_criteria;
mod own_rule_files;
mod own_rule_tests;
mod own_rules;
mod random_alerts;
mod replay;
mod rule_files;
mod rule_tests;
mod shape_changes;
mod slo;
mod stored_node;
mod stored_series;
mod template_bounds;
mod template_golden;
mod traps;
mod two_sites;
mod unmatched_selectors;

//! Integration tests of `hist`: golden vectors of frames and blocks, and statistics against sorted
//! samples.

mod accumulator;
mod big;
mod block;
mod block_reference;
mod bounds;
mod cases;
mod checks;
mod corrected;
mod distance;
mod frame;
mod fuzz_inputs;
mod fuzz_regressions;
mod golden;
mod matrix_reference;
mod merge;
mod model;
mod oracle;
mod page;
mod regressions;
mod soak;
mod statistics;

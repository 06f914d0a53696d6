//! Tests of the crate from outside.

mod template_bounds;
mod template_golden;

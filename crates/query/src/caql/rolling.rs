//! `rolling:*`: a window that ends with each slot.

use super::window::{Rolling, kernel_of};
use super::work::Kernel;

/// What works out a function of this package.
pub(crate) fn kernel(name: &str) -> Option<Kernel> {
    kernel_of::<Rolling>(name.strip_prefix("rolling:")?)
}

//! `rolling:*`: a window that ends with each slot.

use super::kernel::Kernel;
use super::window::{RollingPackage, window_kernel};

/// What works out a function of this package.
pub(crate) fn kernel(name: &str) -> Option<Kernel> {
    window_kernel::<RollingPackage>(name.strip_prefix("rolling:")?)
}

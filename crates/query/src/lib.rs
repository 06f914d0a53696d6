//! Questions to whole distributions: PromQL and CAQL, read into one plan, evaluated over what a store can read.
//!
//! Times are nanoseconds since the Unix epoch, as `i64`. The crate reads no file and knows no clock of its own.
#![forbid(unsafe_code)]

pub mod caql;
mod error;
mod histogram;
mod note;
pub mod promql;

pub use error::{Error, Place, Result};
pub use histogram::{
    Bucket, Combined, Compensation, Description, DescriptionError, FloatHistogram, Grid,
    Incompatible, Invalid, Keep, ResetHint, parse_description,
};
pub use note::{Note, Notes};

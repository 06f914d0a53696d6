//! Questions to whole distributions: PromQL and CAQL, read into one plan, evaluated over what a store can read.
//!
//! Times are nanoseconds since the Unix epoch, as `i64`. The crate reads no file and knows no clock of its own.
#![forbid(unsafe_code)]

mod ask;
pub mod caql;
pub mod compare;
mod error;
mod eval;
pub mod explain;
mod histogram;
mod labels;
mod limits;
mod note;
mod plan;
pub mod promql;
mod sliding;
mod source;
mod stored;
mod stream;
mod unit;
mod value;

/// What is asked beside answers, for tests.
#[doc(hidden)]
pub mod testing {
    pub use crate::ask::ask_and_count;
}

pub use ask::{Answer, Data, Language, Question, ask};
pub use error::{Error, Place, Result};
pub use eval::Settings;
pub use histogram::{
    Bucket, Combined, Compensation, Description, DescriptionError, FloatHistogram, Grid,
    Incompatible, Invalid, Keep, ResetHint, parse_description,
};
pub use labels::{Labels, NAME, TYPE, UNIT};
pub use limits::Limits;
pub use note::{Note, Notes};
pub use source::{Handle, Read, Source};
pub use stored::Stored;
pub use stream::{Reading, Readings, Steps, Stream, seconds};
pub use value::{STALE_BITS, Value, is_stale};

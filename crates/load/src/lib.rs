//! Load on an open schedule.
//!
//! When each request is due is decided before the run ([`Schedule`]) and moved by nothing that happens in it. A request's **response
//! time** runs from the moment it was due, its **service time** from the moment it was sent; the difference, the **send lag**, is
//! recorded too. What never ended counts with the age it had. All times are nanoseconds.
#![forbid(unsafe_code)]

mod calibration;
mod codec;
mod connection;
mod doubt;
mod events;
mod failure;
mod flight;
mod pool;
mod process;
mod protocol;
mod replay;
mod request;
mod require;
mod run;
mod schedule;
mod search;
mod secret;
mod sessions;
mod stub;
mod tally;
mod target;
mod truth;
mod units;
mod words;
mod worker;

pub use calibration::{Calibration, Compared, calibrate};
pub use codec::{Codec, Ended, Ticket};
pub use doubt::Doubt;
pub use failure::Failure;
pub use protocol::Protocol;
pub use replay::ReplayError;
pub use request::{Rendered, Request, Requests, RequestsError, Template, Values};
pub use require::{Requirement, RequirementError, Statistic, Time, Verdict, What};
pub use run::{Error, Files, Observer, Run, Settings, run};
pub use schedule::{Arrivals, Piece, Schedule, Spacing, per_second};
pub use search::{Above, Aim, Ask, Found, Held, Knee, Limit, Measured, Search, Step};
pub use secret::Secret;
pub use sessions::Sessions;
pub use stub::{Answers, Freezing, Service, Stub};
pub use tally::{Tally, bucket_width};
pub use target::{Target, TargetError};
pub use truth::{Freeze, truth};
pub use worker::STALL_NS;

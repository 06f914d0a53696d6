//! Load generator with an open-loop schedule.
//!
//! The schedule ([`Schedule`]) fixes the start time of each request before the run; nothing that
//! happens during the run moves it. The **response time** of a request starts at its scheduled
//! time, the **service time** at the time it was sent; the difference is the **queue time**. A
//! request that never ends counts with its age. All times are nanoseconds.
#![forbid(unsafe_code)]

mod calibration;
mod calibration_check;
mod codec;
mod connect_options;
mod connection;
mod error;
mod failure;
mod file_limits;
mod first_errors;
mod in_flight;
mod load_protocol;
mod observer;
mod oracle;
mod poller;
mod pool;
mod process;
mod protocols;
mod recorder;
mod rendered_request;
mod replay;
pub mod report;
mod request;
mod requests_error;
mod requests_file;
mod requirement;
mod run;
mod run_result;
mod schedule;
mod search;
mod secret;
mod sessions;
mod settings;
mod stub_server;
mod tally;
mod target;
mod target_url;
mod template;
mod units;
mod validity;
mod worker;

pub use calibration::{Calibration, calibrate};
pub use calibration_check::CalibrationCheck;
pub use codec::{Codec, Completion, RequestId};
pub use error::Error;
pub use failure::Failure;
pub use file_limits::FileLimits;
pub use load_protocol::{
    LoadProtocol, ProtocolRow, ProtocolTarget, UrlScheme, arguments_help, bodies_help, schemes_help,
};
pub use observer::Observer;
pub use oracle::{ServerStall, expected_response_times};
pub use protocols::PROTOCOLS;
pub use rendered_request::RenderedRequest;
pub use replay::ReplayError;
pub use request::{RequestTemplate, Requests};
pub use requests_error::RequestsError;
pub use requirement::{
    LatencyKind, Requirement, RequirementError, RequirementMetric, RequirementOutcome, Statistic,
};
pub use run::run;
pub use run_result::RunResult;
pub use schedule::{ArrivalProcess, Arrivals, Schedule, ScheduleSegment, format_rate};
pub use search::{
    CapacitySearch, Knee, LatencyLimit, SearchResult, SearchTrial, SustainedRate, TrialMeasurement,
    TrialPurpose, TrialSpec, UpperBound,
};
pub use secret::Secret;
pub use sessions::Sessions;
pub use settings::Settings;
pub use stub_server::{ServiceModel, StallOnRunStart, StubProtocol, StubServer};
pub use tally::{Tally, bucket_width};
pub use target::Target;
pub use target_url::{TargetError, TargetUrl};
pub use template::Template;
pub use validity::InvalidReason;

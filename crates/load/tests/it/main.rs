//! Integration tests of the load generator.

#[path = "../../../../testdata/extensions/load_protocol/cache.rs"]
mod cache;
mod calibration;
mod checks;
mod codecs;
mod commands;
mod coordinated_omission;
mod coordinated_omission_protocols;
mod fixture;
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;
mod hostile;
mod hostile_server;
mod load_protocol;
mod protocols;
mod scheduling;
mod seconds;
mod servers;
mod stopped_generator;

// The worked example `cache` imports them from `crate`, as a file of the crate `load`.
use load::{
    Codec, Completion, Failure, LoadProtocol, ProtocolRow, ProtocolTarget, RenderedRequest,
    RequestId, TargetUrl, UrlScheme,
};

//! Integration tests with real sockets: every value sent is stored or counted as lost.

mod connections;
mod datagrams;
mod fixture;
mod line_format;
mod overflow;
mod panics;
#[path = "../../../../testdata/extensions/line_format/stopwatch.rs"]
mod stopwatch;

// The worked example `stopwatch` imports them from `crate`, as a file of the crate `listen`.
use listen::{AggregateKind, LineFormat, LineSink, LineValue, SocketAddresses};

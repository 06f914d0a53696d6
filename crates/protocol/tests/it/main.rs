//! Integration tests of the message parsers.

mod cassandra_sessions;
mod checks;
mod dns_sessions;
mod fingerprints;
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;
mod http1_sessions;
mod http2_sessions;
mod kafka_sessions;
mod mongodb_sessions;
mod mysql_sessions;
mod postgres_sessions;
mod redis_sessions;
mod round_trip;
mod session;

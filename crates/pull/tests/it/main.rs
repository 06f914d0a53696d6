//! Integration tests with real servers and connections: every response is in the journal, or the
//! reason why not.

mod checks;
mod fixture;
mod jobs;
mod panics;
mod probes;
mod scrapes;
mod snmp;
mod sql;
mod websocket;

//! MySQL and MariaDB: packets of a connection between other programs, and of a client.
//!
//! A packet is a length of three bytes (little-endian), a sequence number, and a payload. The
//! number starts at 0 with each command and continues through its response, in both directions.

mod client;
mod commands;
mod frames;
pub(crate) mod observer;
mod packets;
mod requests;
mod responses;
mod statements;

pub use self::client::{MysqlAccount, MysqlLogin, MysqlResult, MysqlStep, query_command};

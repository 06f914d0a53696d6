//! All protocols that can be observed.

use crate::observer::ObservedProtocol;

/// All protocols that can be observed. Adding one is a file and a line here.
pub const PROTOCOLS: &[ObservedProtocol] = &[
    crate::http1::observer::HTTP,
    crate::http2::HTTP2,
    crate::postgres::observer::POSTGRES,
    crate::mysql::observer::MYSQL,
    crate::redis::observer::REDIS,
    crate::kafka::KAFKA,
    crate::cassandra::CASSANDRA,
    crate::mongodb::MONGODB,
    crate::dns::DNS,
];

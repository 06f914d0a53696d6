//! Fingerprints: what requests of one kind have in common, without their literal values.
//!
//! * A statement of SQL or CQL: literals become `$1`, `$2`, … as in `pg_stat_statements`; comments
//!   are dropped; space is reduced; lists of literals (`IN`, `ARRAY`, rows of `VALUES`) have one
//!   element and `...`.
//! * A path of a URL: numbers and identifiers become `{n}`, `{uuid}`, `{hex}`, `{token}`.
//!
//! A fingerprint never contains a literal: whatever the lexer does not understand (a string that
//! does not end, a number with letters) is a literal. Limit: a server that changes the meaning of a
//! backslash in strings (`standard_conforming_strings = off` of PostgreSQL,
//! `NO_BACKSLASH_ESCAPES` of MySQL) is read with the default of its dialect.

mod lexer;
mod literal_list;
mod route;
mod split;
mod statement;
mod traceparent;

pub use route::RouteTemplates;
pub use statement::StatementFingerprint;

pub(crate) use split::split_statement;
pub(crate) use traceparent::{parse_traceparent, traceparent_of_comment};

/// Quoting and comments of a query language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlDialect {
    /// PostgreSQL: `"` quotes names; dollar quotes, `E''`, nested comments.
    Postgres,
    /// MySQL and MariaDB: `"` quotes strings, backquotes quote names, backslashes escape.
    Mysql,
    /// CQL: `"` quotes names; UUIDs are literals without quotes.
    Cql,
}

impl SqlDialect {
    /// Dialect of the statements of a protocol.
    pub fn of_protocol(name: &str) -> SqlDialect {
        match name {
            "mysql" => SqlDialect::Mysql,
            "cassandra" => SqlDialect::Cql,
            _ => SqlDialect::Postgres,
        }
    }
}

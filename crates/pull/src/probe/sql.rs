//! SQL probe: logs in to PostgreSQL, MySQL or MariaDB, and runs one query.
//!
//! The query runs in a transaction that is read-only, and the server cancels it at the timeout of
//! the check. Rows are counted and not kept, whatever the server sends.

mod mysql;
mod postgres;

use std::time::Duration;

use net::{Endpoint, EndpointError};
use role::settings::{FilePath, SettingsCheck, TableRef};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::probe::{Attempt, Probe};

/// Size limit of a password file.
const PASSWORD_BYTES_MAX: u64 = 4_096;
/// Bytes of a value in the reason of a failure.
const SHOWN_BYTES_MAX: usize = 100;
/// Largest size of a result; the connection is closed at it.
const RESULT_BYTES_MAX: usize = 16 << 20;

/// `sql = "postgres://user@host:port/database"` or `"mysql://…"`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct SqlProbe {
    /// `postgres://user@host:port/database` or `mysql://…`; default ports: 5432 and 3306.
    pub sql: String,
    /// The query.
    pub query: String,
    /// File with the password; default: none.
    pub password_file: Option<FilePath>,
    /// Whether the connection uses TLS.
    #[serde(default)]
    pub secure: bool,
    /// Expected number of rows.
    pub expect_rows: Option<u64>,
    /// Expected first value of the first row, as text.
    pub expect: Option<String>,
}

/// System of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SqlSystem {
    Postgres,
    Mysql,
}

/// Parts of the address.
#[derive(Clone, Copy, Debug)]
struct SqlAddress<'a> {
    system: SqlSystem,
    user: &'a str,
    database: &'a str,
    endpoint: &'a str,
}

/// What a client needs to log in and to query.
struct SqlTask<'a> {
    address: SqlAddress<'a>,
    password: &'a str,
    query: &'a str,
    /// Whether the server may learn the password.
    is_trusted: bool,
    secure: bool,
    timeout: Duration,
}

/// Result of a query.
#[derive(Debug, Default, PartialEq)]
struct SqlAnswer {
    rows: u64,
    /// First value of the first row; `None` is NULL, or no row.
    first: Option<String>,
}

/// Connection with or without TLS.
trait SqlStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> SqlStream for T {}

type BoxedStream = Box<dyn SqlStream>;

impl SqlProbe {
    fn address(&self) -> Result<SqlAddress<'_>, &'static str> {
        let (scheme, rest) = self.sql.split_once("://").ok_or("the scheme is missing")?;
        let system = match scheme {
            "postgres" | "postgresql" => SqlSystem::Postgres,
            "mysql" | "mariadb" => SqlSystem::Mysql,
            _ => return Err("the scheme is neither postgres nor mysql"),
        };
        let (server, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, endpoint) = server.rsplit_once('@').ok_or("the user is missing")?;
        if user.contains(':') {
            return Err("it has a password; use password_file");
        }
        let is_plain = |text: &str| !text.chars().any(|c| c.is_control() || "?#%".contains(c));
        if user.is_empty() || !is_plain(user) || !is_plain(database) {
            return Err("user or database is empty, or has one of ?#%");
        }
        // As libpq.
        let database = match (database, system) {
            ("", SqlSystem::Postgres) => user,
            _ => database,
        };
        Ok(SqlAddress { system, user, database, endpoint })
    }

    /// The password, without the end of the line.
    fn password(&self) -> Result<String, String> {
        let Some(path) = &self.password_file else { return Ok(String::new()) };
        let failure = |error| format!("cannot read the password: {}: {error}", path.display());
        let file = std::fs::File::open(path).map_err(failure)?;
        let mut text = String::new();
        let mut file = std::io::Read::take(file, PASSWORD_BYTES_MAX + 1);
        let bytes = std::io::Read::read_to_string(&mut file, &mut text).map_err(failure)?;
        if bytes as u64 > PASSWORD_BYTES_MAX {
            let path = path.display();
            return Err(format!("{path} has more than {PASSWORD_BYTES_MAX} bytes: no password"));
        }
        Ok(text.trim_end_matches(['\n', '\r']).to_owned())
    }

    /// Whether the result is the expected one.
    fn judge(&self, answer: &SqlAnswer) -> Result<(), String> {
        let rows = answer.rows;
        if let Some(expected) = self.expect_rows.filter(|expected| *expected != rows) {
            return Err(format!("the result has {rows} rows, expected {expected}"));
        }
        let Some(expected) = &self.expect else { return Ok(()) };
        match &answer.first {
            Some(found) if found == expected => Ok(()),
            Some(found) => {
                let shown = &found[..found.floor_char_boundary(SHOWN_BYTES_MAX)];
                Err(format!("the first value is {shown:?}, expected {expected:?}"))
            }
            None if rows == 0 => Err(format!("the result has no row, expected {expected:?}")),
            None => Err(format!("the first value is NULL, expected {expected:?}")),
        }
    }
}

/// Text for the reason of a failure.
fn broken(error: std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        _ => format!("connection lost: {error}"),
    }
}

fn too_large() -> String {
    format!("the result exceeds {} MiB; select less", RESULT_BYTES_MAX >> 20)
}

impl Probe for SqlProbe {
    const KEY: &'static str = "sql";
    const KEYS: &'static [&'static str] =
        &["sql", "query", "password_file", "secure", "expect_rows", "expect"];

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        let error = match self.address() {
            Ok(_) => self.endpoint().err().map(|error| error.reason),
            Err(reason) => Some(reason.to_owned()),
        };
        if let Some(error) = error {
            let what = format!("invalid address: {error}; expected postgres://user@host/database");
            check.problem(table, "sql", what);
        }
        if self.query.trim().is_empty() || self.query.contains('\0') {
            check.problem(table, "query", "the query is empty, or has a zero byte");
        }
        check.file(table, "password_file", self.password_file.as_ref());
    }

    fn url(&self) -> String {
        self.sql.clone()
    }

    fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        let wrong =
            |reason: &str| EndpointError { url: self.sql.clone(), reason: reason.to_owned() };
        let address = self.address().map_err(wrong)?;
        let port = match address.system {
            SqlSystem::Postgres => 5432,
            SqlSystem::Mysql => 3306,
        };
        Endpoint::parse_as(&format!("sql://{}", address.endpoint), self.secure, Some(port))
    }

    fn alpn(&self) -> &'static [&'static [u8]] {
        match self.address().map(|address| address.system) {
            Ok(SqlSystem::Postgres) => &[b"postgresql"],
            _ => &[],
        }
    }

    async fn run(&self, attempt: &mut Attempt<'_>) -> Result<(), String> {
        let (address, password) = (self.address()?, self.password()?);
        let stream = attempt.connect_tcp().await?;
        let is_local = stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback());
        let task = SqlTask {
            address,
            password: &password,
            query: &self.query,
            is_trusted: self.secure || is_local,
            secure: self.secure,
            timeout: attempt.timeout,
        };
        let answer = match address.system {
            SqlSystem::Postgres => postgres::run(&task, stream, attempt).await?,
            SqlSystem::Mysql => mysql::run(&task, stream, attempt).await?,
        };
        attempt.report.add("probe_sql_rows", "", answer.rows as f64);
        let number = answer.first.as_ref().and_then(|text| text.trim().parse::<f64>().ok());
        if let Some(number) = number.filter(|number| number.is_finite()) {
            attempt.report.add("probe_sql_value", "", number);
        }
        self.judge(&answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(sql: &str) -> SqlProbe {
        SqlProbe { sql: sql.to_owned(), ..SqlProbe::default() }
    }

    #[test]
    fn addresses_have_their_parts() {
        #[track_caller]
        fn check(sql: &str, expected: &str) {
            let probe = probe(sql);
            let found = probe.address().map(|at| (at.system, at.user, at.database));
            let found = match (found, probe.endpoint()) {
                (Ok((system, user, database)), Ok(endpoint)) => {
                    let Endpoint { host, port, .. } = endpoint;
                    format!("{system:?} {user} {host} {port} {database}")
                }
                (_, Err(error)) => error.reason,
                (Err(error), _) => error.to_owned(),
            };
            assert_eq!(found, expected);
        }
        check("postgres://u@db", "Postgres u db 5432 u");
        check("postgresql://u@[::1]:5433/shop", "Postgres u ::1 5433 shop");
        check("mysql://u@db/shop", "Mysql u db 3306 shop");
        check("mariadb://u@db:3307", "Mysql u db 3307 ");
        check("db", "the scheme is missing");
        check("oracle://u@db", "the scheme is neither postgres nor mysql");
        check("mysql://db", "the user is missing");
        check("mysql://u:secret@db", "it has a password; use password_file");
        check("mysql://@db", "user or database is empty, or has one of ?#%");
        check("mysql://u@db/a?b", "user or database is empty, or has one of ?#%");
        check("mysql://u@db:x", "port is not a number from 0 to 65535");
        check("mysql://u@", "host is missing");
    }

    #[test]
    fn results_are_judged() {
        let expecting = |rows, first: Option<&str>| SqlProbe {
            expect_rows: rows,
            expect: first.map(str::to_owned),
            ..SqlProbe::default()
        };
        let judge = |probe: SqlProbe, rows, first: Option<&str>| {
            probe.judge(&SqlAnswer { rows, first: first.map(str::to_owned) })
        };
        assert_eq!(judge(expecting(None, None), 0, None), Ok(()));
        assert_eq!(judge(expecting(Some(2), Some("a")), 2, Some("a")), Ok(()));
        for (probe, rows, first, expected) in [
            (expecting(Some(1), None), 2, Some("a"), "the result has 2 rows, expected 1"),
            (expecting(None, Some("0")), 1, Some("7"), "the first value is \"7\", expected \"0\""),
            (expecting(None, Some("0")), 0, None, "the result has no row, expected \"0\""),
            (expecting(None, Some("0")), 1, None, "the first value is NULL, expected \"0\""),
        ] {
            assert_eq!(judge(probe, rows, first).unwrap_err(), expected);
        }
        let long = "é".repeat(500);
        let reason = judge(expecting(None, Some("0")), 1, Some(&long)).unwrap_err();
        assert_eq!(reason.chars().filter(|c| *c == 'é').count(), 50);
    }
}

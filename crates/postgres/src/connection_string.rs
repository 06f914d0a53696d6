//! Connection strings as in libpq: keywords (`host=/run/postgresql user=topdeck`) or a URL
//! (`postgresql://topdeck@db.example:5432/postgres?sslmode=verify-full`).
//!
//! Known parameters are `host`, `port`, `user`, `dbname` and `sslmode`. A password is an error: the
//! settings file is no place for it.
//! <https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING>

use std::net::IpAddr;

use percent_encoding::percent_decode_str;

/// Directory of Unix sockets in packages of distributions.
const SOCKET_DIR: &str = "/var/run/postgresql";
const PORT: u16 = 5432;
/// Role and operating system user of the installed agent, so that peer authentication suffices.
const USER: &str = "topdeck";
const DATABASE: &str = "postgres";

/// Without the text: a mistyped URL may have a password.
const EXPECTED: &str = "expected KEY=VALUE, or a URL postgresql://…";

/// How a TCP connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEncryption {
    Disable,
    /// TLS without verification.
    Require,
    /// TLS; the certificate is verified.
    VerifyFull,
}

/// Where a server is, and as which role topdeck connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionString {
    /// Directory of a Unix socket, or a host.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) database: String,
    encryption: Option<SessionEncryption>,
}

impl ConnectionString {
    pub(crate) fn parse(text: &str) -> Result<ConnectionString, String> {
        let mut found = ConnectionString {
            host: SOCKET_DIR.to_owned(),
            port: PORT,
            user: USER.to_owned(),
            database: DATABASE.to_owned(),
            encryption: None,
        };
        let url = ["postgresql://", "postgres://"];
        match url.iter().find_map(|scheme| text.strip_prefix(scheme)) {
            Some(rest) => found.read_url(rest)?,
            None => found.read_keywords(text)?,
        }
        if found.is_unix() && found.encryption.is_some_and(|it| it != SessionEncryption::Disable) {
            return Err("a Unix socket has no TLS; remove sslmode".to_owned());
        }
        Ok(found)
    }

    /// Whether the host is the directory of a socket.
    pub(crate) fn is_unix(&self) -> bool {
        self.host.starts_with('/')
    }

    /// Path of the Unix socket.
    pub(crate) fn socket_path(&self) -> String {
        format!("{}/.s.PGSQL.{}", self.host.trim_end_matches('/'), self.port)
    }

    /// Where the server is, for messages.
    pub(crate) fn address(&self) -> String {
        match self.is_unix() {
            true => self.socket_path(),
            false if self.host.contains(':') => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Whether packets stay on this host.
    pub(crate) fn is_local(&self) -> bool {
        let is_loopback = |host: &str| host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        self.is_unix() || self.host == "localhost" || is_loopback(&self.host)
    }

    /// By default, connections that leave this host are encrypted and verified.
    pub(crate) fn encryption(&self) -> SessionEncryption {
        let default = match self.is_local() {
            true => SessionEncryption::Disable,
            false => SessionEncryption::VerifyFull,
        };
        self.encryption.unwrap_or(default)
    }

    fn set(&mut self, key: &str, value: String) -> Result<(), String> {
        if value.contains('\0') {
            return Err(format!("{key} has a NUL"));
        }
        match key {
            "host" if !value.is_empty() => self.host = value,
            "port" => {
                let port = value.parse().ok().filter(|port| *port > 0);
                self.port = port.ok_or("port must be 1 to 65535")?;
            }
            "user" if !value.is_empty() => self.user = value,
            "dbname" if !value.is_empty() => self.database = value,
            "sslmode" => {
                self.encryption = Some(match &*value {
                    "disable" => SessionEncryption::Disable,
                    "require" => SessionEncryption::Require,
                    "verify-full" => SessionEncryption::VerifyFull,
                    _ => {
                        let expected = "expected disable, require or verify-full";
                        return Err(format!("sslmode is {value:?}, {expected}"));
                    }
                });
            }
            "host" | "user" | "dbname" => return Err(format!("{key} is empty")),
            "password" => {
                let what = "a connection string has no password here; remove it, and set a \
                            password file";
                return Err(what.to_owned());
            }
            _ if !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') => {
                return Err(EXPECTED.to_owned());
            }
            _ => {
                let known = "known are host, port, user, dbname and sslmode";
                return Err(format!("unknown parameter {key:?}; {known}"));
            }
        }
        Ok(())
    }

    fn read_url(&mut self, url: &str) -> Result<(), String> {
        let (url, parameters) = url.split_once('?').unwrap_or((url, ""));
        let (authority, database) = url.split_once('/').unwrap_or((url, ""));
        let (user, address) = authority.rsplit_once('@').unwrap_or(("", authority));
        if user.contains(':') {
            self.set("password", String::new())?;
        }
        let (host, port) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':').unwrap_or(port)),
            None => address.split_once(':').unwrap_or((address, "")),
        };
        let parts = [("host", host), ("port", port), ("user", user), ("dbname", database)];
        let parameters = parameters.split('&').filter(|it| !it.is_empty());
        let parameters = parameters.map(|one| one.split_once('=').unwrap_or((one, "")));
        let parts = parts.into_iter().filter(|(_, value)| !value.is_empty());
        for (key, value) in parts.chain(parameters) {
            let value = percent_decode_str(value).decode_utf8();
            let value = value.map_err(|_| format!("{key} is not UTF-8"))?;
            self.set(key, value.into_owned())?;
        }
        Ok(())
    }

    fn read_keywords(&mut self, text: &str) -> Result<(), String> {
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let Some((key, value)) = rest.split_once('=') else {
                return Err(EXPECTED.to_owned());
            };
            let (value, after) = read_value(value.trim_start())?;
            self.set(key.trim_end(), value)?;
            rest = after.trim_start();
        }
        Ok(())
    }
}

/// A value up to a blank, or in single quotes; a backslash escapes one character. Returns the rest.
fn read_value(text: &str) -> Result<(String, &str), String> {
    let is_quoted = text.starts_with('\'');
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, c) in text.char_indices().skip(usize::from(is_quoted)) {
        match c {
            _ if std::mem::take(&mut is_escaped) => value.push(c),
            '\\' => is_escaped = true,
            '\'' if is_quoted => return Ok((value, &text[at + 1..])),
            c if c.is_whitespace() && !is_quoted => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    match is_quoted {
        true => Err("a quote is not closed".to_owned()),
        false => Ok((value, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Address, role, database and encryption, or the error.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = ConnectionString::parse(text).map_or_else(
            |error| error,
            |it| format!("{} {} {} {:?}", it.address(), it.user, it.database, it.encryption()),
        );
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn keywords_and_urls_are_read_as_by_libpq() {
        check("", "/var/run/postgresql/.s.PGSQL.5432 topdeck postgres Disable");
        check("host=/tmp/ port=6", "/tmp/.s.PGSQL.6 topdeck postgres Disable");
        check(" host = db.example user=a dbname = b", "db.example:5432 a b VerifyFull");
        check(r"host='a b' user='o\'x' dbname=a\ b", "a b:5432 o'x a b VerifyFull");
        check("host=::1 sslmode=require", "[::1]:5432 topdeck postgres Require");
        check("host=localhost", "localhost:5432 topdeck postgres Disable");
        check("postgresql://", "/var/run/postgresql/.s.PGSQL.5432 topdeck postgres Disable");
        check("postgres://a%40b@db:6/shop", "db:6 a@b shop VerifyFull");
        check("postgresql://[::1]:7/x?sslmode=verify-full", "[::1]:7 topdeck x VerifyFull");
        check("postgresql://a@/b?host=/tmp&port=8", "/tmp/.s.PGSQL.8 a b Disable");
        check("postgresql://%2Ftmp/b", "/tmp/.s.PGSQL.5432 topdeck b Disable");
    }

    #[test]
    fn errors_name_the_parameter() {
        const PASSWORD: &str =
            "a connection string has no password here; remove it, and set a password file";
        check("password=x", PASSWORD);
        check("postgresql://a:x@b", PASSWORD);
        check("postgresql://b?password=x", PASSWORD);
        check("port=0", "port must be 1 to 65535");
        check("postgresql://a:x?y@b", "port must be 1 to 65535");
        check("user=", "user is empty");
        check("host", EXPECTED);
        check("postgresql:/a:x@b", EXPECTED);
        check("postgresql:/a:x@b?port=1", EXPECTED);
        check("postgresql://a?x@b", EXPECTED);
        check("user='a", "a quote is not closed");
        check("sslmode=prefer", r#"sslmode is "prefer", expected disable, require or verify-full"#);
        check("sslmode=require", "a Unix socket has no TLS; remove sslmode");
        let known = "known are host, port, user, dbname and sslmode";
        check("hots=x", &format!("unknown parameter \"hots\"; {known}"));
        check("postgresql://%ff@a", "user is not UTF-8");
    }
}

//! Passwords: of a file, of the environment (`PGPASSWORD`), or of a password file of libpq.
//!
//! They are read when a server asks for one, at each connection, so that a changed password needs
//! no reload.
//! <https://www.postgresql.org/docs/current/libpq-pgpass.html>

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::connection_string::ConnectionString;

/// Where a password is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PasswordSource {
    /// File with the password only.
    pub(crate) file: Option<PathBuf>,
    /// File with a line `host:port:database:user:password` per server; default: `PGPASSFILE`, else
    /// `.pgpass` in the home directory.
    pub(crate) pgpass: Option<PathBuf>,
}

impl PasswordSource {
    /// The password for a server.
    pub(crate) fn read(
        &self,
        server: &ConnectionString,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<String, String> {
        if let Some(path) = &self.file {
            return match std::fs::read_to_string(path) {
                Ok(text) => Ok(text.trim_end_matches(['\n', '\r']).to_owned()),
                Err(error) => Err(format!("cannot read the password: {}: {error}", path.display())),
            };
        }
        let of_environment = variable("PGPASSWORD").and_then(|it| it.into_string().ok());
        if let (Some(password), None) = (of_environment, &self.pgpass) {
            return Ok(password);
        }
        let home = || variable("HOME").map(|home| Path::new(&home).join(".pgpass"));
        let default = || variable("PGPASSFILE").map(PathBuf::from).or_else(home);
        let remedy = "set `password_file` or `pgpass_file`";
        let Some(path) = self.pgpass.clone().or_else(default) else {
            return Err(format!("the server asks for a password; {remedy}"));
        };
        let fail =
            |error| format!("cannot read the password: {}: {error}; {remedy}", path.display());
        let mode = std::fs::metadata(&path).map_err(fail)?.mode();
        if mode & 0o077 != 0 {
            let path = path.display();
            return Err(format!("other users may read the passwords of {path}; chmod 600 {path}"));
        }
        let text = std::fs::read_to_string(&path).map_err(fail)?;
        let found = find_password(&text, server);
        found.ok_or_else(|| {
            let (path, address) = (path.display(), server.address());
            format!("{path} has no password for {} at {address}; add a line", server.user)
        })
    }
}

/// Password of the first line that matches.
fn find_password(text: &str, server: &ConnectionString) -> Option<String> {
    // As libpq, which writes `localhost` for its default directory of sockets.
    let hosts = match server.is_unix() {
        true => [&*server.host, "localhost"],
        false => [&*server.host; 2],
    };
    let port = server.port.to_string();
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let [host, of_port, database, user, password] = split_line(line)?;
        let is = |found: &str, expected: &str| found == "*" || found == expected;
        let is_match = hosts.iter().any(|expected| is(&host, expected))
            && is(&of_port, &port)
            && is(&database, &server.database)
            && is(&user, &server.user);
        is_match.then_some(password)
    })
}

/// The five fields of a line; a backslash escapes a colon and a backslash.
fn split_line(line: &str) -> Option<[String; 5]> {
    let mut fields: [String; 5] = Default::default();
    let (mut at, mut is_escaped) = (0, false);
    for c in line.chars() {
        match c {
            '\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            ':' if !is_escaped && at < 4 => at += 1,
            c => fields[at].push(c),
        }
        is_escaped = false;
    }
    (at == 4).then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &str, server: &str, expected: Option<&str>) {
        let server = ConnectionString::parse(server).unwrap();
        assert_eq!(find_password(lines, &server).as_deref(), expected, "{lines}");
    }

    #[test]
    fn the_first_matching_line_has_the_password() {
        let server = "host=db user=u dbname=d";
        check("db:5432:d:u:secret", server, Some("secret"));
        check("# db:5432:d:u:no\nother:*:*:*:no\n*:*:*:u:yes\n*:*:*:u:no", server, Some("yes"));
        check("db:1:d:u:no\ndb:5432:e:u:no\ndb:5432:d:v:no\nbroken\n", server, None);
        check(r"db:5432:d:u:a\:b\\c:d", server, Some(r"a:b\c:d"));
        check("localhost:5432:postgres:topdeck:x", "", Some("x"));
        check("/tmp:5432:*:*:x", "host=/tmp", Some("x"));
        check("", server, None);
    }

    #[test]
    fn files_precede_the_environment_and_errors_say_what_to_do() {
        let number = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        let dir = std::env::temp_dir().join(format!("topdeck-postgres-{number:x}"));
        std::fs::create_dir(&dir).unwrap();
        let path = |name: &str| dir.join(name);
        let read = |place: &PasswordSource, variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|it| it.0 == name).map(|it| it.1.into());
            let server = ConnectionString::parse("host=db user=u").unwrap();
            let found = place.read(&server, find);
            found.unwrap_or_else(|error| error.replace(&*dir.to_string_lossy(), "DIR"))
        };
        std::fs::write(path("password"), "of the file\n").unwrap();
        std::fs::write(path(".pgpass"), "db:*:*:u:of pgpass\n").unwrap();
        let home = dir.to_str().unwrap();
        let of_file = PasswordSource { file: Some(path("password")), pgpass: None };
        let of_pgpass = PasswordSource { file: None, pgpass: Some(path(".pgpass")) };
        let none = PasswordSource::default();
        assert_eq!(read(&of_file, &[("PGPASSWORD", "x")]), "of the file");
        assert_eq!(read(&none, &[("PGPASSWORD", "x"), ("HOME", home)]), "x");
        let open = "other users may read the passwords of DIR/.pgpass; chmod 600 DIR/.pgpass";
        assert_eq!(read(&of_pgpass, &[("PGPASSWORD", "x")]), open);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path(".pgpass"), mode).unwrap();
        assert_eq!(read(&of_pgpass, &[("PGPASSWORD", "x")]), "of pgpass");
        assert_eq!(read(&none, &[("HOME", home)]), "of pgpass");
        let remedy = "set `password_file` or `pgpass_file`";
        assert_eq!(read(&none, &[]), format!("the server asks for a password; {remedy}"));
        let missing = PasswordSource { file: Some(path("none")), pgpass: None };
        assert!(read(&missing, &[]).starts_with("cannot read the password: DIR/none: No such"));
        std::fs::write(path(".pgpass"), "").unwrap();
        let empty = "DIR/.pgpass has no password for u at db:5432; add a line";
        assert_eq!(read(&of_pgpass, &[]), empty);
        std::fs::remove_dir_all(dir).unwrap();
    }
}

//! Settings file of an installed agent.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;

use net::forward_protocol::PORT;

use crate::discovery::{DiscoveredSource, PullKind};

/// Ports of the agent on 127.0.0.1: HTTP, and OTLP over gRPC and HTTP.
const PORTS: [u16; 3] = [PORT, 4317, 4318];

/// Program whose statistics can be read by SQL, and what its administrator runs before.
pub(crate) const POSTGRES: &str = "postgres";
pub(crate) const POSTGRES_ROLE_SQL: &str =
    "CREATE ROLE topdeck LOGIN; GRANT pg_monitor TO topdeck;";

/// Contents of the settings file.
#[derive(Debug)]
pub(crate) struct AgentSettings<'a> {
    pub(crate) data: &'a Path,
    pub(crate) server: &'a str,
    pub(crate) pins: &'a [String],
    /// Name of the host, if it is not that of the system.
    pub(crate) name: Option<&'a str>,
    /// Ports on which it listens, of [`PORTS`].
    pub(crate) ports: &'a [u16],
    pub(crate) sources: &'a [DiscoveredSource],
}

/// Ports of the agent that no other program uses, and the others.
pub(crate) fn partition_ports() -> (Vec<u16>, Vec<u16>) {
    PORTS.into_iter().partition(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
}

impl AgentSettings<'_> {
    pub(crate) fn text(&self) -> String {
        let mut text = "# Settings of the topdeck agent, written by `topdeck install`. `topdeck \
                        check-config FILE`\n# checks a file, and SIGHUP makes a running agent \
                        read it. docs/topdeck.toml lists all keys.\n\n"
            .to_owned();
        let _ = writeln!(text, "data_dir = {}", quoted(&self.data.display().to_string()));
        text.push_str("\n[[remote]]\nname = \"server\"\n");
        let _ = writeln!(text, "url = {}\ntoken_file = \"agent-token\"", quoted(self.server));
        if !self.pins.is_empty() {
            let pins: Vec<String> = self.pins.iter().map(|pin| quoted(pin)).collect();
            let _ = writeln!(text, "pinned_public_keys = [{}]", pins.join(", "));
        }
        if self.ports != PORTS {
            text.push_str("\n[http]\n");
            let listen: Vec<String> =
                self.ports.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
            let _ = writeln!(text, "listen = [{}]", listen.join(", "));
        }
        if let Some(name) = self.name {
            let _ = writeln!(text, "\n[host]\nname = {}", quoted(name));
        }
        for source in self.sources {
            let (program, address) = (&source.program, &source.address);
            let name = quoted(&format!("{program} {}", source.port()));
            match source.kind {
                PullKind::Check => {
                    let _ = writeln!(text, "\n[[check]]\nname = {name}\ntcp = \"{address}\"");
                    if program == POSTGRES {
                        text.push_str(&postgres_proposal(source));
                    }
                }
                PullKind::Scrape => {
                    let url = format!("http://{address}/metrics");
                    let _ = writeln!(text, "\n[[scrape]]\nname = {name}\nurl = \"{url}\"");
                }
            }
        }
        text
    }
}

/// Statistics of a server need a role there: the table is a proposal. The default directory of
/// sockets is that of packages.
fn postgres_proposal(source: &DiscoveredSource) -> String {
    let port = source.port();
    let socket = format!("/var/run/postgresql/.s.PGSQL.{port}");
    let host = match Path::new(&socket).exists() {
        true => String::new(),
        false => format!("host={} ", source.address.ip()),
    };
    format!(
        "\n# Statistics by SQL, docs/postgres.md: {POSTGRES_ROLE_SQL}\n#[[postgres]]\n#name = \
         \"postgres {port}\"\n#dsn = \"{host}port={port}\"\n"
    )
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_remote_and_what_was_found() {
        let source = |program: &str, address: &str, kind| DiscoveredSource {
            program: program.to_owned(),
            pid: 1,
            address: address.parse().unwrap(),
            kind,
        };
        let sources = [
            source("postgres", "127.0.0.1:1", PullKind::Check),
            source("node_exporter", "[::1]:9100", PullKind::Scrape),
        ];
        let settings = AgentSettings {
            data: Path::new("/var/lib/topdeck-agent"),
            server: "https://north.example:7717",
            pins: &["sha256//AA=".to_owned()],
            name: Some("web \"1\""),
            ports: &[4317],
            sources: &sources,
        };
        let text = settings.text();
        let (_, body) = text.split_once("\n\n").unwrap();
        assert_eq!(
            body,
            r#"data_dir = "/var/lib/topdeck-agent"

[[remote]]
name = "server"
url = "https://north.example:7717"
token_file = "agent-token"
pinned_public_keys = ["sha256//AA="]

[http]
listen = ["127.0.0.1:4317"]

[host]
name = "web \"1\""

[[check]]
name = "postgres 1"
tcp = "127.0.0.1:1"

# Statistics by SQL, docs/postgres.md: CREATE ROLE topdeck LOGIN; GRANT pg_monitor TO topdeck;
#[[postgres]]
#name = "postgres 1"
#dsn = "host=127.0.0.1 port=1"

[[scrape]]
name = "node_exporter 9100"
url = "http://[::1]:9100/metrics"
"#
        );
    }

    #[test]
    fn texts_are_escaped() {
        assert_eq!(quoted("a\\\"\n"), r#""a\\\"\u000A""#);
    }
}

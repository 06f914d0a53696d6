//! `topdeck token`: access tokens of the HTTP API.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use api::{Credential, EnrollmentTerms, Scope, Token, TokenFile};
use clap::Subcommand;
use client::{STORE_DIR, print_stderr, print_stdout, private_dir, server_of, server_pin_of};
use net::Endpoint;
use render::table::format_table;
use render::text::escape_control;
use render::time::precise_time_text;

use crate::time;

/// Create, list and remove access tokens
///
/// A token is shown once, when it is created; only its hash is stored. A running topdeck applies
/// changes within seconds. On loopback no token is required by default.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Data directory, as for `topdeck serve`
    #[arg(value_name = "DIR")]
    data: PathBuf,

    #[command(subcommand)]
    subcommand: TokenCommand,
}

const AFTER: &str = "\
Examples:
  topdeck token /var/lib/topdeck add web-team ingest
  topdeck token /var/lib/topdeck add grafana read
  topdeck token /var/lib/topdeck add north ingest --client-cert-name north.example
  topdeck token /var/lib/topdeck enroll --url https://north.example:7717
  topdeck token /var/lib/topdeck list
  topdeck token /var/lib/topdeck remove web-team

Exit status:
  0  success
  1  error
  2  usage error";

#[derive(Subcommand)]
enum TokenCommand {
    /// Create a token and print it
    Add {
        /// Token name
        name: String,
        /// Scopes: ingest, read, admin, alerts, exemplars
        #[arg(required = true, value_parser = parse_scope)]
        scopes: Vec<Scope>,
        /// Create no token: grant the scopes to client certificates with this name, signed by
        /// `client_ca` of the settings
        #[arg(long, value_name = "NAME")]
        client_cert_name: Option<String>,
    },
    /// Create an enrollment token and print the command that installs an agent with it
    Enroll {
        /// URL of this server, as the hosts reach it [default: its address on this host]
        #[arg(long, value_name = "URL")]
        url: Option<String>,
        /// Trust the server by the CAs of the hosts: behind a proxy, or if its key changes
        #[arg(long)]
        no_pin: bool,
        /// Number of hosts that may use it
        #[arg(long, value_name = "N", default_value = "1")]
        uses: NonZeroU32,
        /// Time until it expires
        #[arg(long, value_name = "DURATION", value_parser = time::parse_duration)]
        #[arg(default_value = "1h")]
        expires: i64,
        /// Token name [default: enroll-NUMBER]
        #[arg(long)]
        name: Option<String>,
    },
    /// List names and scopes
    List,
    /// Revoke a token
    Remove {
        /// Token name
        name: String,
    },
}

fn parse_scope(text: &str) -> Result<Scope, String> {
    Scope::parse(text).ok_or_else(|| {
        "expected ingest, read, admin, alerts or exemplars; separate several scopes by spaces: \
         read alerts"
            .to_owned()
    })
}

/// Token file of a data directory.
pub(crate) fn token_file(data: &Path) -> PathBuf {
    data.join("tokens")
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    private_dir(&options.data)?;
    let mut tokens = TokenFile::open(&token_file(&options.data))?;
    match &options.subcommand {
        TokenCommand::Add { name, scopes, client_cert_name } => {
            let now_s = journal::wall_clock()() / 1_000_000_000;
            match client_cert_name {
                Some(certificate) => tokens.add_certificate(name, certificate, scopes, now_s)?,
                None => print_stdout(format!("{}\n", tokens.add(name, scopes, now_s)?).as_bytes())?,
            }
        }
        TokenCommand::Enroll { url, no_pin, uses, expires, name } => {
            let mut server = enrollment_server(&options.data, url.as_deref())?;
            server.pin = server.pin.filter(|_| !no_pin);
            let number = || format!("enroll-{:08x}", journal::random_id() as u32);
            let name = name.clone().unwrap_or_else(number);
            let now_s = journal::wall_clock()() / 1_000_000_000;
            let expires_s = now_s.saturating_add(expires / 1_000_000_000);
            let terms = EnrollmentTerms { expires_s, uses_left: uses.get() };
            let secret = tokens.add_enrollment(&name, terms, now_s)?;
            print_stderr(&format!(
                "Paste this as root on {}, before {}. Revoke it with `topdeck token {} remove \
                 {name}`.\n",
                if uses.get() == 1 {
                    "one host".to_owned()
                } else {
                    format!("at most {uses} hosts")
                },
                seconds_text(expires_s),
                options.data.display(),
            ));
            print_stdout(install_line(&server, &secret).as_bytes())?;
        }
        TokenCommand::List => {
            let mut rows = vec![["name", "scopes", "since", "by"].map(str::to_owned)];
            let now_s = journal::wall_clock()() / 1_000_000_000;
            for token in tokens.tokens() {
                let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.name()).collect();
                let (since, by) = (seconds_text(token.created_s), credential_text(token, now_s));
                rows.push([escape_control(&token.name), scopes.join(" "), since, by]);
            }
            print_stdout(format_table(&rows, [false; 4]).as_bytes())?;
        }
        TokenCommand::Remove { name } => {
            if !tokens.remove(name)? {
                bail!("no token named {name:?}; list tokens with `topdeck token DIR list`");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn seconds_text(at_s: i64) -> String {
    precise_time_text(at_s.saturating_mul(1_000_000_000))
}

/// What proves the identity, and for how long.
fn credential_text(token: &Token, now_s: i64) -> String {
    match (&token.credential, &token.enrollment, &token.enrolled_by) {
        (Credential::Certificate(name), ..) => format!("certificate {}", escape_control(name)),
        (_, Some(terms), _) if terms.expires_s <= now_s => "token, expired".to_owned(),
        (_, Some(terms), _) => {
            let until = seconds_text(terms.expires_s);
            format!("token, {} uses until {until}", terms.uses_left)
        }
        (_, _, Some(name)) => format!("token, enrolled with {}", escape_control(name)),
        (Credential::Secret(_), None, None) => "token".to_owned(),
    }
}

/// Server of the command that installs an agent.
struct EnrollmentServer {
    url: String,
    /// Pin of its public key, if it has TLS itself.
    pin: Option<String>,
}

fn enrollment_server(data: &Path, url: Option<&str>) -> Result<EnrollmentServer> {
    let store = data.join(STORE_DIR);
    let Some(url) = url.map(str::to_owned).or_else(|| server_of(&store)) else {
        bail!(
            "cannot tell the address of the server: none runs in {}; start it, or add --url URL",
            data.display()
        );
    };
    let endpoint = Endpoint::parse(&url)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/[]".contains(c);
    if !url.chars().all(is_plain) {
        bail!("invalid URL {url:?}: expected letters, digits and -._~:/[] only");
    }
    if ["127.0.0.1", "::1", "localhost"].contains(&endpoint.host.as_str()) {
        print_stderr("This address is reachable on this host only; for others, add --url URL.\n");
    }
    if !endpoint.secure {
        print_stderr(
            "Without TLS, tokens are sent in the clear: use it in trusted networks only.\n",
        );
    }
    let pin = if endpoint.secure { server_pin_of(&store) } else { None };
    Ok(EnrollmentServer { url: url.trim_end_matches('/').to_owned(), pin })
}

/// The command to paste. With a pin the key proves the server, and no CA is needed. The secret is
/// not an argument of curl, which all users of the host could read: `echo` is a builtin of the
/// shell.
fn install_line(server: &EnrollmentServer, secret: &str) -> String {
    let url = &server.url;
    let tls = match &server.pin {
        Some(pin) => format!(" -k --pinnedpubkey '{pin}'"),
        // TLS may end at a proxy that does not say so: the agent must use it, too.
        None if url.starts_with("https:") => " -H 'X-Forwarded-Proto: https'".to_owned(),
        None => String::new(),
    };
    let header = format!("echo 'header = \"Authorization: Bearer {secret}\"'");
    format!("{header} | curl -fsS{tls} -K - {url}/install.sh | sh\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_no_argument_and_the_key_is_pinned() {
        let check = |url: &str, pin: Option<&str>, expected: &str| {
            let server = EnrollmentServer { url: url.to_owned(), pin: pin.map(str::to_owned) };
            let line = install_line(&server, "td_1");
            let (echo, curl) = line.split_once(" | ").unwrap();
            assert_eq!(echo, "echo 'header = \"Authorization: Bearer td_1\"'");
            assert_eq!(curl, expected);
        };
        check(
            "https://north:7717",
            Some("sha256//AA="),
            "curl -fsS -k --pinnedpubkey 'sha256//AA=' -K - https://north:7717/install.sh | sh\n",
        );
        check(
            "https://north",
            None,
            "curl -fsS -H 'X-Forwarded-Proto: https' -K - https://north/install.sh | sh\n",
        );
        check("http://north:7717", None, "curl -fsS -K - http://north:7717/install.sh | sh\n");
    }
}

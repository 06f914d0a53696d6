//! `topdeck token`: access tokens of the HTTP API.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use api::{Credential, Scope, TokenFile};
use clap::Subcommand;
use client::{print_stdout, private_dir};
use render::table::format_table;
use render::text::escape_control;
use render::time::precise_time_text;

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
        TokenCommand::List => {
            let mut rows = vec![["name", "scopes", "since", "by"].map(str::to_owned)];
            for token in tokens.tokens() {
                let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.name()).collect();
                let by = match &token.credential {
                    Credential::Certificate(name) => {
                        format!("certificate {}", escape_control(name))
                    }
                    Credential::Secret(_) => "token".to_owned(),
                };
                let since = precise_time_text(token.created_s.saturating_mul(1_000_000_000));
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

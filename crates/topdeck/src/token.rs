//! `topdeck token`: who may do what over HTTP.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use api::{Proof, Scope, Tokens};
use clap::Subcommand;

use crate::command::{plain, print};
use crate::journal::show;
use crate::store::private_dir;
use crate::time;

/// Make, list and remove tokens: who may send, ask and administer
///
/// A token is shown once, when it is made; what is kept is its hash. A running topdeck notices changes within
/// seconds. On loopback no token is needed, unless the settings say so.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// The folder of everything that topdeck keeps, as `topdeck serve` says it
    #[arg(value_name = "DIR")]
    data: PathBuf,

    #[command(subcommand)]
    what: What,
}

const AFTER: &str = "\
Examples:
  topdeck token /var/lib/topdeck add web-team ingest
  topdeck token /var/lib/topdeck add grafana read
  topdeck token /var/lib/topdeck add north ingest --certificate north.example
  topdeck token /var/lib/topdeck list
  topdeck token /var/lib/topdeck remove web-team

Exit status:
  0  it is done
  1  it cannot be done
  2  the command line makes no sense";

#[derive(Subcommand)]
enum What {
    /// Make a token and print it, once
    Add {
        /// Whose it is
        name: String,
        /// What it is good for: ingest, read, admin
        #[arg(required = true, value_parser = scope)]
        scopes: Vec<Scope>,
        /// No token: whoever shows a certificate of this name that the settings' client_ca has signed
        #[arg(long, value_name = "CERTIFICATE")]
        certificate: Option<String>,
    },
    /// Show names and scopes
    List,
    /// Take a token back
    Remove {
        /// Whose it is
        name: String,
    },
}

fn scope(text: &str) -> Result<Scope, String> {
    Scope::parse(text).ok_or_else(|| "expected ingest, read or admin".to_owned())
}

/// The file in which tokens are kept.
pub(crate) fn file(data: &Path) -> PathBuf {
    data.join("tokens")
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    private_dir(&options.data)?;
    let mut tokens = Tokens::open(&file(&options.data))?;
    match &options.what {
        What::Add { name, scopes, certificate } => {
            let now_s = journal::wall_clock()() / 1_000_000_000;
            match certificate {
                Some(certificate) => tokens.add_certificate(name, certificate, scopes, now_s)?,
                None => print(format!("{}\n", tokens.add(name, scopes, now_s)?).as_bytes())?,
            }
        }
        What::List => {
            let mut rows = vec![["name", "scopes", "since", "by"].map(str::to_owned)];
            for token in tokens.list() {
                let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.name()).collect();
                let by = match &token.proof {
                    Proof::Certificate(name) => format!("certificate {}", plain(name)),
                    Proof::Secret(_) => "token".to_owned(),
                };
                let since = time::text(token.since_s.saturating_mul(1_000_000_000));
                rows.push([plain(&token.name), scopes.join(" "), since, by]);
            }
            print(show::table(&rows, [false; 4]).as_bytes())?;
        }
        What::Remove { name } => {
            if !tokens.remove(name)? {
                bail!("there is no token named {name:?}; `topdeck token DIR list` shows them");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

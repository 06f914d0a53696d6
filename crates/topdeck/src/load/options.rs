//! What a person can ask `topdeck load` for.

use std::path::PathBuf;

use clap::Subcommand;
use load::{Requirement, Sessions};

use crate::load::{compare, sessions};
use crate::time;

/// Put load on a server and see what its users would have felt
///
/// When each request is due is decided beforehand, and nothing that the server does moves it: who waits for an answer keeps nobody else from
/// asking. Response time runs from when a request was due, service time from when it was sent; both are always told. What was not answered
/// until the end counts with the age it had. The generator watches itself: if it was the bottleneck, the report says so first, and the exit
/// status does.
#[derive(clap::Args)]
#[command(after_long_help = AFTER, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) subcommand: Option<Command>,

    #[command(flatten)]
    pub(crate) run: RunOptions,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Compare(compare::Options),
    Sessions(sessions::Options),
}

const AFTER: &str = "\
Examples:
  topdeck load http://localhost:8080/ --rate 1000 --duration 30s
  topdeck load http://localhost:8080/ --ramp 100..2000 --poisson --duration 1min --html run.html
  topdeck load http://localhost:8080/ --rate 500 --require 'p99.9<20ms' --require 'failed<0.1%'
  topdeck load http://localhost:8080/ --search --require 'p99.9<20ms' --rate 100 --rate-max 50000
  topdeck load https://shop.test/ --rate 200 --requests shop.toml --json run.json
  topdeck load postgres://me:secret@db/shop?prepared=true --rate 100 --body 'select $1::int' --argument 5
  topdeck load redis://localhost --rate 1000 --argument GET --argument key
  topdeck load compare before.json after.json
  topdeck load sessions --clicks 5 --requests-per-click 40

Requirements:
  p50, p99.9, max and mean of response time below a limit; of service time as service.p99; failed below a share;
  rate (answers that count, per second) above a number. What failed counts as never answered. A limit that lies
  between the bounds of a value is not met, for it is not sure. A search takes percentiles and max of response time.

Exit status:
  0  it ran, and all that was required was met
  1  it could not run, or a file could not be written
  2  the command line makes no sense
  3  the generator or this machine was the bottleneck: the numbers are not to be trusted
  4  a --require was not met; of a search, at no rate that was tried";

#[derive(clap::Args)]
pub(crate) struct RunOptions {
    /// Where load goes: http://HOST:PORT/PATH, https, h2c, h2, grpc, grpcs, tcp (an echo), postgres, redis or rediss
    #[arg(value_name = "TARGET", required = true, value_parser = target)]
    pub(crate) target: Option<String>,

    /// Requests per second; with --search where it begins, 100 unless said
    #[arg(
        long,
        value_name = "RATE",
        value_parser = rate,
        required_unless_present_any = ["ramp", "steps", "replay", "search"],
        conflicts_with_all = ["ramp", "steps", "replay"]
    )]
    pub(crate) rate: Option<f64>,

    /// A rate that changes evenly from one to the other, such as 100..2000
    #[arg(long, value_name = "FROM..TO", value_parser = ramp, conflicts_with_all = ["steps", "replay"])]
    pub(crate) ramp: Option<(f64, f64)>,

    /// Rates one after the other, each for the same share of the time, such as 100,200,400
    #[arg(
        long,
        value_name = "RATES",
        value_delimiter = ',',
        value_parser = rate,
        conflicts_with = "replay"
    )]
    pub(crate) steps: Vec<f64>,

    /// When requests are due, from a file: a time per line, in seconds or with a unit, ascending; the first is due at once
    #[arg(long, value_name = "FILE", conflicts_with = "poisson")]
    pub(crate) replay: Option<PathBuf>,

    /// Requests come as independent users do, at random moments, and not at even distances
    #[arg(long)]
    pub(crate) poisson: bool,

    /// Search for the highest rate that meets what is required by percentiles and max of response time, and for the rate from which on
    /// response time parts from service time
    #[arg(long, conflicts_with_all = ["ramp", "steps", "replay", "clicks", "html", "hlog", "push"])]
    pub(crate) search: bool,

    /// No higher rate is tried
    #[arg(long, value_name = "RATE", requires = "search", value_parser = rate)]
    pub(crate) rate_max: Option<f64>,

    /// How near the rate that is found is to one that is not held: 3% unless said
    #[arg(long, value_name = "SHARE", requires = "search", value_parser = precision)]
    pub(crate) precision: Option<f64>,

    /// For how long requests are due: 10s unless said; of --replay all of the file; with --search at the most, in each step, 60s
    /// unless said
    #[arg(long, value_name = "LENGTH", value_parser = length)]
    pub(crate) duration: Option<u64>,

    /// What moments, weights and variables are drawn from; told in the report, another each time unless said
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Connections that there are when it begins
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count)]
    pub(crate) connections: usize,

    /// Connections at the most: 10,000 unless said, or as many as files may be open. What finds none waits, and its time goes on
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) connections_max: Option<usize>,

    /// Threads that send
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = threads)]
    pub(crate) threads: usize,

    /// So long after it was due a request has failed
    #[arg(long, value_name = "LENGTH", default_value = "60s", value_parser = length)]
    pub(crate) timeout: u64,

    /// How long answers are waited for when all is sent
    #[arg(long, value_name = "LENGTH", default_value = "5s", value_parser = length)]
    pub(crate) drain: u64,

    /// Do not look before the run what this machine can be trusted with, which takes 1 to 5 seconds; the report says so
    #[arg(long)]
    pub(crate) no_calibration: bool,

    /// What is sent, from a file: several requests with weights, bodies and variables
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["method", "header", "body", "body_file", "argument"]
    )]
    pub(crate) requests: Option<PathBuf>,

    /// The method: GET unless said, POST with a body
    #[arg(long, value_name = "METHOD", value_parser = method)]
    pub(crate) method: Option<String>,

    /// A header, such as 'Accept: text/html'; may be repeated
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) header: Vec<(String, String)>,

    /// The body; of postgres the SQL, of redis the words of a command
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    pub(crate) body: Option<String>,

    /// The body, from a file, as it is
    #[arg(long, value_name = "FILE")]
    pub(crate) body_file: Option<PathBuf>,

    /// What goes with the request: of postgres a parameter, $1 first; of redis a word of the command; may be repeated
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub(crate) argument: Vec<String>,

    /// Who signed the server's certificate, PEM, if not one that the system trusts
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,

    /// The client's own certificate, PEM, where the server asks for one
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of that
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,

    /// What must be true of the run, such as 'p99.9<20ms'; may be repeated
    #[arg(long, value_name = "REQUIREMENT")]
    pub(crate) require: Vec<Requirement>,

    /// What sessions of so many clicks meet, with --requests-per-click
    #[arg(long, value_name = "N", requires = "requests_per_click", value_parser = sessions::number())]
    pub(crate) clicks: Option<u32>,

    /// Requests that each click makes
    #[arg(long, value_name = "N", requires = "clicks", value_parser = sessions::number())]
    pub(crate) requests_per_click: Option<u32>,

    /// Write the whole run to this file as JSON, which `topdeck load compare` reads; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write a page with pictures to this file, which needs nothing else
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Write an HdrHistogram log to this file: response and service times of each second
    #[arg(long, value_name = "FILE")]
    pub(crate) hlog: Option<PathBuf>,

    /// Show the run in a running topdeck while it goes on, second by second, such as http://127.0.0.1:7717
    #[arg(long, value_name = "URL", value_parser = server)]
    pub(crate) push: Option<net::Target>,

    /// A file with the token for --push, where one is asked for
    #[arg(long, value_name = "FILE", requires = "push")]
    pub(crate) push_token_file: Option<PathBuf>,

    /// Who signed the certificate of --push, PEM
    #[arg(long, value_name = "FILE", requires = "push")]
    pub(crate) push_ca: Option<PathBuf>,

    /// What the run is called where it is pushed to; the time it began, unless said
    #[arg(long, value_name = "NAME", requires = "push")]
    pub(crate) run: Option<String>,

    /// Say nothing until the end
    #[arg(long)]
    pub(crate) quiet: bool,

    /// Draw with plain ASCII
    #[arg(long)]
    pub(crate) ascii: bool,
}

impl RunOptions {
    pub(crate) fn sessions(&self) -> Option<Sessions> {
        let (clicks, requests_per_click) = (self.clicks?, self.requests_per_click?);
        Some(Sessions { clicks, requests_per_click })
    }
}

/// Beyond that, a schedule is a mistake: a machine sends less.
const RATE_MAX: f64 = 100e6;
const THREADS_MAX: usize = 1_024;
/// More than a machine has ports, towards one address.
const CONNECTIONS_MAX: usize = 1_000_000;

fn target(text: &str) -> Result<String, String> {
    load::Target::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn server(text: &str) -> Result<net::Target, String> {
    net::Target::parse(text).map_err(|error| error.to_string())
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix("/s").unwrap_or(text.trim()).parse::<f64>().ok();
    let number = number.filter(|rate| *rate > 0.0 && *rate <= RATE_MAX);
    number.ok_or_else(|| "expected requests per second, above 0 and up to 100 million".to_owned())
}

fn ramp(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text.split_once("..").ok_or("expected two rates, as in 100..2000")?;
    // A ramp may begin or end with nothing, but not both.
    let end = |text: &str| if text.trim() == "0" { Ok(0.0) } else { rate(text) };
    match (end(from)?, end(to)?) {
        (0.0, 0.0) => Err("from nothing to nothing there is no request".to_owned()),
        both => Ok(both),
    }
}

fn precision(text: &str) -> Result<f64, String> {
    let percent = text.trim().strip_suffix('%').and_then(|text| text.trim().parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.1..=100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| "expected 0.1% to 100%".to_owned())
}

fn length(text: &str) -> Result<u64, String> {
    let ns = time::length(text)?;
    u64::try_from(ns).map_err(|_| "a length is above 0".to_owned())
}

fn bounded(text: &str, most: usize) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("expected a number from 1 to {most}"))
}

fn count(text: &str) -> Result<usize, String> {
    bounded(text, CONNECTIONS_MAX)
}

fn threads(text: &str) -> Result<usize, String> {
    bounded(text, THREADS_MAX)
}

fn method(text: &str) -> Result<String, String> {
    match http::Method::from_bytes(text.as_bytes()) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("a method is one word, such as PUT".to_owned()),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    let (name, value) = (name.trim(), value.trim());
    http::HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("{name:?} cannot be the name of a header"))?;
    http::HeaderValue::from_str(value)
        .map_err(|_| format!("{name} has characters that no header can have"))?;
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_per_second() {
        assert_eq!(rate("1000"), Ok(1000.0));
        assert_eq!(rate("0.5/s"), Ok(0.5));
        assert_eq!(ramp("100..2000"), Ok((100.0, 2000.0)));
        assert_eq!(ramp("0..5"), Ok((0.0, 5.0)));
        for text in ["", "0", "-1", "NaN", "inf", "1e99", "5/min"] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["5", "0..0", "5..x", ".."] {
            assert!(ramp(text).is_err(), "{text}");
        }
    }

    #[test]
    fn headers_have_a_name_and_a_value() {
        assert_eq!(header("A: b: c"), Ok(("A".to_owned(), "b: c".to_owned())));
        for text in ["a", ": b", "a b: c", "a: b\nc"] {
            assert!(header(text).is_err(), "{text}");
        }
    }
}

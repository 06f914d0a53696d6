//! Command line of `topdeck load`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;
use load::{Requirement, Sessions};

use crate::load::{compare, sessions};
use crate::time;

/// Load test a server or a command with an open-loop schedule
///
/// The start time of each request is fixed beforehand, independent of responses, so there is no
/// coordinated omission. Response time starts at the scheduled time, service time when the request
/// is sent; both are reported. Unfinished requests count with their age. The generator monitors
/// itself: if it was the bottleneck, report and exit status say that the result is invalid.
#[derive(clap::Args)]
#[command(
    after_long_help = AFTER,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
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
  topdeck load http://localhost:8080/ --search --require 'p99.9<20ms' --rate 100 --max-rate 50000
  topdeck load https://shop.test/ --rate 200 --requests shop.toml --json run.json
  topdeck load postgres://me:secret@db/shop?prepared=true --rate 100 --body 'select $1' --arg 5
  topdeck load redis://localhost --rate 1000 --arg GET --arg key
  topdeck load --rate 10 --duration 30s -- psql -c 'select 1'
  topdeck load compare before.json after.json
  topdeck load sessions --page-views 5 --requests-per-page 40

Requirements:
  p50, p99.9, max and mean of response time below a limit; of service time as service.p99; failed
  below a share; rate (completed requests per second) above a number. Failed requests exceed every
  limit. If the limit lies between the bounds of a value the requirement is INCONCLUSIVE and not
  met. A search takes percentiles and max of response time.

Exit status:
  0  the run completed and met all requirements
  1  the run could not start, a search was interrupted, or a file could not be written
  2  usage error
  3  invalid result: the generator or this machine was the bottleneck
  4  a requirement was not met; with --search, at no rate";

#[derive(clap::Args)]
pub(crate) struct RunOptions {
    #[arg(
        help = format!("Target: {}", load::schemes_help(load::PROTOCOLS)),
        value_name = "TARGET",
        required_unless_present_any = ["command", "requests"],
        value_parser = target
    )]
    pub(crate) target: Option<String>,

    /// Requests per second; with --search the first rate [default with --search: 100]
    #[arg(
        long,
        value_name = "RATE",
        value_parser = rate,
        required_unless_present_any = ["ramp", "steps", "replay", "search"],
        conflicts_with_all = ["ramp", "steps", "replay"]
    )]
    pub(crate) rate: Option<f64>,

    /// Linearly changing rate, such as 100..2000
    #[arg(
        long,
        value_name = "FROM..TO",
        value_parser = ramp,
        conflicts_with_all = ["steps", "replay"]
    )]
    pub(crate) ramp: Option<(f64, f64)>,

    /// Rates in sequence, each for the same part of the duration, such as 100,200,400
    #[arg(
        long,
        value_name = "RATES",
        value_delimiter = ',',
        value_parser = rate,
        conflicts_with = "replay"
    )]
    pub(crate) steps: Vec<f64>,

    /// File with recorded start times: one per line, in seconds or with a unit, ascending; the
    /// first is due at once
    #[arg(long, value_name = "FILE", conflicts_with = "poisson")]
    pub(crate) replay: Option<PathBuf>,

    /// Random (Poisson) arrivals, as from independent users, instead of evenly spaced ones
    #[arg(long)]
    pub(crate) poisson: bool,

    /// Search for the highest rate that meets all requirements on percentiles and max of response
    /// time, and for the knee of the response time
    #[arg(
        long,
        conflicts_with_all = ["ramp", "steps", "replay", "page_views", "html", "hlog", "push"]
    )]
    pub(crate) search: bool,

    /// Highest rate to try
    #[arg(long, value_name = "RATE", requires = "search", value_parser = rate)]
    pub(crate) max_rate: Option<f64>,

    /// Relative distance between the result and the next failing rate [default: 3%]
    #[arg(long, value_name = "PERCENT", requires = "search", value_parser = tolerance)]
    pub(crate) tolerance: Option<f64>,

    /// Duration of the schedule [default: 10s, with --replay the whole file]; with --search the
    /// maximum per trial [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) duration: Option<u64>,

    /// Random seed for arrivals, request choice and variables [default: random, printed in the
    /// report]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Initial connections [default: 16]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) connections: Option<usize>,

    /// Maximum number of connections [default: 10000, or the limit of open files]; for commands, of
    /// concurrent processes [default: 100]. Further requests queue, and their response time
    /// continues
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) max_connections: Option<usize>,

    /// Sending threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = threads)]
    pub(crate) threads: usize,

    /// Request timeout, measured from the scheduled time
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub(crate) timeout: u64,

    /// Time to wait for outstanding responses after the last send
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub(crate) grace_period: u64,

    /// Skip the generator calibration (1 to 5 s); the report mentions it
    #[arg(long)]
    pub(crate) no_calibration: bool,

    /// File with requests, weights, bodies and variables; without a TARGET they are commands
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["method", "header", "body", "body_file", "arg"]
    )]
    pub(crate) requests: Option<PathBuf>,

    /// HTTP method [default: GET, with a body POST]
    #[arg(long, value_name = "METHOD", value_parser = method)]
    pub(crate) method: Option<String>,

    /// HTTP header, such as 'Accept: text/html'. Repeatable
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) header: Vec<(String, String)>,

    #[arg(
        help = format!(
            "Body; {}, for a command its standard input",
            load::bodies_help(load::PROTOCOLS)
        ),
        long,
        value_name = "TEXT",
        conflicts_with = "body_file"
    )]
    pub(crate) body: Option<String>,

    /// File with the body, sent unchanged
    #[arg(long, value_name = "FILE")]
    pub(crate) body_file: Option<PathBuf>,

    #[arg(
        help = format!("Argument: {}. Repeatable", load::arguments_help(load::PROTOCOLS)),
        long,
        value_name = "VALUE",
        allow_hyphen_values = true
    )]
    pub(crate) arg: Vec<String>,

    /// CA certificate (PEM) [default: system trust store]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,

    /// Client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,

    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,

    /// Requirement, such as 'p99.9<20ms'. Repeatable
    #[arg(long, value_name = "REQUIREMENT")]
    pub(crate) require: Vec<Requirement>,

    /// Report sessions with this number of page views; needs --requests-per-page
    #[arg(
        long,
        value_name = "N",
        requires = "requests_per_page",
        value_parser = sessions::number()
    )]
    pub(crate) page_views: Option<u32>,

    /// Requests per page view; needs --page-views
    #[arg(long, value_name = "N", requires = "page_views", value_parser = sessions::number())]
    pub(crate) requests_per_page: Option<u32>,

    /// Write the run with all histograms as JSON, for `topdeck load compare`; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write a self-contained HTML page with charts
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Write an HdrHistogram log: response and service times of each second
    #[arg(long, value_name = "FILE")]
    pub(crate) hlog: Option<PathBuf>,

    /// Send each second to a topdeck server during the run, such as http://127.0.0.1:7717
    #[arg(long, value_name = "URL", value_parser = server)]
    pub(crate) push: Option<net::Endpoint>,

    /// File with the bearer token for --push
    #[arg(long, value_name = "FILE", requires = "push")]
    pub(crate) push_token_file: Option<PathBuf>,

    /// CA certificate (PEM) for --push [default: system trust store]
    #[arg(long, value_name = "FILE", requires = "push")]
    pub(crate) push_ca: Option<PathBuf>,

    /// Label `run` of the metrics sent with --push [default: start time]
    #[arg(long, value_name = "NAME", requires = "push")]
    pub(crate) run_name: Option<String>,

    /// Suppress progress output
    #[arg(long)]
    pub(crate) quiet: bool,

    /// Draw with plain ASCII
    #[arg(long)]
    pub(crate) ascii: bool,

    /// Command to start for each request instead of a TARGET; it completes when it exits with
    /// status 0
    #[arg(
        last = true,
        value_name = "COMMAND",
        conflicts_with_all = [
            "target", "requests", "method", "header", "connections", "ca", "cert", "key"
        ]
    )]
    pub(crate) command: Vec<OsString>,
}

impl RunOptions {
    pub(crate) fn sessions(&self) -> Option<Sessions> {
        let (page_views, requests_per_page) = (self.page_views?, self.requests_per_page?);
        Some(Sessions { page_views, requests_per_page })
    }
}

/// A higher rate is a mistake: no machine sends that many.
const RATE_MAX: f64 = 100e6;
const THREADS_MAX: usize = 1_024;
/// More than the ports of a machine towards one address.
const CONNECTIONS_MAX: usize = 1_000_000;

fn target(text: &str) -> Result<String, String> {
    load::Target::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn server(text: &str) -> Result<net::Endpoint, String> {
    net::Endpoint::parse(text).map_err(|error| error.to_string())
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix("/s").unwrap_or(text.trim()).parse::<f64>().ok();
    let number = number.filter(|rate| *rate > 0.0 && *rate <= RATE_MAX);
    number.ok_or_else(|| "expected requests per second, above 0 and up to 100 million".to_owned())
}

fn ramp(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text.split_once("..").ok_or("expected two rates, as in 100..2000")?;
    // Either end may be 0, but not both.
    let end = |text: &str| if text.trim() == "0" { Ok(0.0) } else { rate(text) };
    match (end(from)?, end(to)?) {
        (0.0, 0.0) => Err("expected a rate above 0 at one end".to_owned()),
        both => Ok(both),
    }
}

fn tolerance(text: &str) -> Result<f64, String> {
    let percent = text.trim().strip_suffix('%').and_then(|text| text.trim().parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.1..=100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| "expected 0.1% to 100%".to_owned())
}

fn duration(text: &str) -> Result<u64, String> {
    let ns = time::parse_duration(text)?;
    u64::try_from(ns).map_err(|_| "expected a duration above 0".to_owned())
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
        Err(_) => Err("expected a single word, such as PUT".to_owned()),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    let (name, value) = (name.trim(), value.trim());
    http::HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("invalid header name {name:?}"))?;
    http::HeaderValue::from_str(value)
        .map_err(|_| format!("header {name} contains an invalid character"))?;
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

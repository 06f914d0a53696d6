//! Example of a subcommand: `topdeck rate COUNT --seconds S`. The file has the options, an error,
//! and a test.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use client::print_stdout;

/// Print a count per second
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of events
    count: u64,
    /// Duration in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    print_stdout(rate(options.count, options.seconds)?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn rate(count: u64, seconds: f64) -> Result<String> {
    ensure!(
        seconds > 0.0 && seconds.is_finite(),
        "cannot compute the rate: the duration is {seconds} s; pass --seconds with more than 0 s"
    );
    Ok(format!("{}/s\n", count as f64 / seconds))
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    fn parse(words: &[&str]) -> Options {
        let command = Options::augment_args(clap::Command::new("rate"));
        Options::from_arg_matches(&command.get_matches_from(words)).unwrap()
    }

    #[test]
    fn a_rate_is_per_second() {
        let options = parse(&["rate", "300", "--seconds", "60"]);
        assert_eq!(rate(options.count, options.seconds).unwrap(), "5/s\n");
        assert_eq!(run(&parse(&["rate", "1"])).unwrap(), ExitCode::SUCCESS);
    }

    #[test]
    fn a_rate_over_no_time_is_refused() {
        let error = rate(1, 0.0).unwrap_err().to_string();
        assert!(error.starts_with("cannot compute the rate: the duration is 0 s; "), "{error}");
    }
}

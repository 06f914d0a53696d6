//! Positional arguments `[DIR] VALUE`: a store and what is asked of it.
//!
//! One argument is the value, and the local server is asked. clap would assign it to an optional
//! DIR whenever an option is between the two.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use model::selector::Selector;

use crate::store_dir::{ParsedSelector, parse_selector};

const ID: &str = "arguments";
/// End of a message, as clap writes it.
const SEE_HELP: &str = "\n\nFor more information, try '--help'.\n";

/// What follows the directory.
pub trait StoreArgumentValue: Sized {
    /// Placeholder and description in the help text.
    const HELP: [&str; 2];

    /// Parses the argument.
    fn parse(text: &str) -> Result<Self, String>;
}

/// The arguments `[DIR] VALUE`.
#[derive(Clone, Debug)]
pub struct StoreArguments<T> {
    /// Directory of the store; `None` is a server.
    pub dir: Option<PathBuf>,
    /// What is asked of it.
    pub value: T,
}

impl<T: StoreArgumentValue> FromArgMatches for StoreArguments<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<StoreArguments<T>, Error> {
        let all: Vec<&String> = matches.get_many(ID).into_iter().flatten().collect();
        let [name, _] = T::HELP;
        let (dir, text) = match all[..] {
            [text] => (None, text),
            [dir, text] => (Some(PathBuf::from(dir)), text),
            _ => {
                let what = format!("{} arguments, expected [DIR] <{name}>{SEE_HELP}", all.len());
                return Err(Error::raw(ErrorKind::TooManyValues, what));
            }
        };
        let value = T::parse(text).map_err(|error| {
            let what = format!("invalid value '{text}' for '<{name}>': {error}{SEE_HELP}");
            Error::raw(ErrorKind::ValueValidation, what)
        })?;
        Ok(StoreArguments { dir, value })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = StoreArguments::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: StoreArgumentValue> Args for StoreArguments<T> {
    fn augment_args(command: Command) -> Command {
        let [name, help] = T::HELP;
        let help =
            format!("[DIR] {name}: directory of the store [default: the local server], and {help}");
        let arg = Arg::new(ID).num_args(1..).required(true).value_name(name).help(help);
        command.arg(arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        StoreArguments::<T>::augment_args(command)
    }
}

impl StoreArgumentValue for String {
    const HELP: [&str; 2] = ["EXPRESSION", "a PromQL or CAQL expression"];

    fn parse(text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }
}

impl StoreArgumentValue for ParsedSelector {
    const HELP: [&str; 2] =
        ["SELECTOR", "a selector, such as latency, 'latency{host=\"a\"}' or 'and(host:web-*)'"];

    fn parse(text: &str) -> Result<ParsedSelector, String> {
        ParsedSelector::parse(text)
    }
}

impl StoreArgumentValue for Selector {
    const HELP: [&str; 2] = ["SELECTOR", "a selector; '*' matches all series"];

    fn parse(text: &str) -> Result<Selector, String> {
        parse_selector(text)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct ParsedArguments {
        #[command(flatten)]
        arguments: StoreArguments<String>,

        #[arg(long)]
        json: bool,
    }

    fn parse(words: &[&str]) -> Result<ParsedArguments, String> {
        let matches =
            ParsedArguments::command().try_get_matches_from([&["topdeck"], words].concat());
        matches
            .and_then(|matches| ParsedArguments::from_arg_matches(&matches))
            .map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check(words: &[&str], dir: Option<&str>, value: &str) {
        let asked = parse(words).unwrap().arguments;
        assert_eq!((asked.dir.as_deref(), &asked.value[..]), (dir.map(Path::new), value));
    }

    #[test]
    fn directory_is_optional_wherever_options_are() {
        check(&["s", "latency"], Some("s"), "latency");
        check(&["s", "--json", "latency"], Some("s"), "latency");
        check(&["--json", "s", "latency"], Some("s"), "latency");
        check(&["latency"], None, "latency");
        check(&["latency", "--json"], None, "latency");
        let error = parse(&["a", "b", "--json", "c"]).unwrap_err();
        assert!(error.starts_with("error: 3 arguments, expected [DIR] <EXPRESSION>\n"), "{error}");
        assert!(parse(&[]).unwrap_err().contains("EXPRESSION"));
    }
}

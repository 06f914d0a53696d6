//! Output of the problems of a settings file.

use client::print_message;
use role::settings::Problems;

/// Prints the errors of a settings file, each on lines of its own.
pub(crate) fn print_problems(problems: &Problems) {
    for problem in problems.to_string().split('\n') {
        // Source lines below a message are printed unchanged.
        match problem.strip_prefix("  | ") {
            Some(_) => eprintln!("{}", problem.replace(char::is_control, " ")),
            None => print_message(problem),
        }
    }
}

//! `docs/hist.md` shows what the binary prints.
//!
//! In its `console` blocks a line `$ topdeck …` is run in the root of the repository, and what follows up to the
//! next `$` is compared with the output. `UPDATE_EXPECT=1` writes the page anew.

use std::fs;

use crate::{root, topdeck};

const PAGE: &str = "docs/hist.md";
const PROMPT: &str = "$ topdeck ";

#[test]
fn examples_print_what_the_page_shows() {
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).expect("the page is there");
    let (written, commands) = with_outputs(&page);
    assert!(commands > 0, "{PAGE} has no example");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, written).expect("the page can be written");
    } else {
        assert!(
            page == written,
            "{PAGE} does not show what topdeck prints; UPDATE_EXPECT=1 writes it anew:\n{written}"
        );
    }
}

/// The page with the output that each command has now, and how many commands there are.
fn with_outputs(page: &str) -> (String, usize) {
    let (mut written, mut commands) = (String::new(), 0);
    let (mut in_console, mut in_output) = (false, false);
    for line in page.split_inclusive('\n') {
        if line.starts_with("```") {
            in_console = line.trim_end() == "```console";
            in_output = false;
        } else if let (true, Some(arguments)) = (in_console, line.strip_prefix(PROMPT)) {
            commands += 1;
            written.push_str(line);
            let arguments: Vec<&str> = arguments.split_whitespace().collect();
            let run = topdeck(&arguments, b"");
            written.push_str(&run.stdout);
            written.push_str(&run.stderr);
            in_output = true;
        }
        if !in_output {
            written.push_str(line);
        }
    }
    (written, commands)
}

//! Terminal capabilities.

pub mod heatmap;
pub mod line_plot;
pub mod plot;
pub mod quantile_plot;
pub mod sparkline;

use std::env;
use std::io;
use std::os::fd::AsFd;

const WIDTH_DEFAULT: usize = 80;
/// Charts narrower than this are unreadable; text wider than the maximum is hard to read.
const WIDTH_MIN: usize = 40;
const WIDTH_MAX: usize = 160;
/// Charts over time may be wider than text.
const RAW_WIDTH_MAX: usize = 500;
const HEIGHT_DEFAULT: usize = 24;

/// Width, character set and colours of a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// Width for text, in characters.
    pub width: usize,
    /// Width for charts that use the whole width.
    pub raw_width: usize,
    /// Height in lines.
    pub height: usize,
    /// Whether only ASCII characters are used.
    pub ascii: bool,
    /// Supported colours.
    pub colour_depth: ColourDepth,
}

/// Supported colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColourDepth {
    /// No colours.
    None,
    /// The 8 or 16 named colours.
    Ansi16,
    /// The 256-colour palette.
    Ansi256,
    /// 24-bit colours.
    TrueColour,
}

/// Semantic text style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextStyle {
    /// Section heading.
    Heading,
    /// Bars and cells.
    Bar,
    /// Range between bounds.
    Uncertain,
    /// Maximum.
    Max,
    /// Notes.
    Faint,
}

impl Terminal {
    /// Terminal of standard output.
    pub fn new(ascii: bool) -> Terminal {
        Terminal::for_stream(&io::stdout(), ascii)
    }

    /// Terminal of a stream; without colours if the stream is not a terminal.
    pub fn for_stream(stream: &(impl io::IsTerminal + AsFd), ascii: bool) -> Terminal {
        let is_terminal = stream.is_terminal();
        let columns = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let screen = if is_terminal { terminal_size::terminal_size_of(stream) } else { None };
        let width = columns.or(screen.map(|(width, _)| usize::from(width.0)));
        let width = width.unwrap_or(WIDTH_DEFAULT);
        let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        Terminal {
            width: width.clamp(WIDTH_MIN, WIDTH_MAX),
            raw_width: width.clamp(WIDTH_MIN, RAW_WIDTH_MAX),
            height: screen.map_or(HEIGHT_DEFAULT, |(_, height)| usize::from(height.0)),
            ascii: ascii || !is_utf8(),
            colour_depth: if is_terminal && !no_colour && !dumb {
                detect_colour_depth()
            } else {
                ColourDepth::None
            },
        }
    }

    /// Text with the escape sequences of a style.
    pub fn paint(&self, paint: TextStyle, text: &str) -> String {
        if self.colour_depth == ColourDepth::None || text.trim().is_empty() {
            return text.to_owned();
        }
        let code = match paint {
            TextStyle::Heading => "1",
            TextStyle::Bar => "36",
            TextStyle::Uncertain => "2;36",
            TextStyle::Max => "1;33",
            TextStyle::Faint => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Colour support according to the environment.
fn detect_colour_depth() -> ColourDepth {
    let says = |name, words: &[&str]| {
        env::var(name).is_ok_and(|value| words.iter().any(|word| value.contains(word)))
    };
    if says("COLORTERM", &["truecolor", "24bit"]) || says("TERM", &["direct"]) {
        ColourDepth::TrueColour
    } else if says("TERM", &["256color"]) {
        ColourDepth::Ansi256
    } else {
        ColourDepth::Ansi16
    }
}

/// Width of the widest cell of each column.
pub fn column_widths<const N: usize>(rows: &[[String; N]]) -> [usize; N] {
    std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    })
}

/// Whether the locale uses UTF-8; also true if no locale is set.
fn is_utf8() -> bool {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let Some(locale) = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")) else {
        return true;
    };
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

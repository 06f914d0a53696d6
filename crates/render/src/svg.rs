//! SVG primitives: self-contained, light or dark according to the reader's system.
//!
//! Lengths are in pixels of an image 960 wide. Text widths are estimated: a character of the fonts
//! used is at most [`CHAR_WIDTH`] wide on average, which keeps labels apart.

pub mod curve;
pub mod distribution;
pub mod heatmap;

use std::fmt::Write as _;

pub(crate) const WIDTH: f64 = 960.0;
/// Left edge of plots.
pub const LEFT: f64 = 88.0;
const RIGHT: f64 = 24.0;
/// Width of a plot.
pub const PLOT: f64 = WIDTH - LEFT - RIGHT;
/// Estimated width of a character.
pub const CHAR_WIDTH: f64 = 7.4;
pub(crate) const CHAR_WIDTH_BOLD: f64 = 8.6;
pub(crate) const LINE: f64 = 17.0;

/// CSS classes shared by all charts.
pub const STYLE: &str = "text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#24292f}.title{font-size:19px;font-weight:600}.heading{font-weight:600}.faint{fill:#57606a}.paper{fill:#ffffff}.grid{stroke:#d8dee4;stroke-width:1}.axis{stroke:#8c959f;stroke-width:1}.area{fill:#2f81c7}.line{fill:none;stroke:#1f6fb2;stroke-width:2.5;stroke-linejoin:round}.band{fill:#2f81c7;fill-opacity:.25}.limit{stroke:#8250df;stroke-width:1.5;stroke-dasharray:5 \
                         4}.limits{fill:#8250df;stroke:#ffffff;stroke-width:4px;paint-order:stroke}.max{fill:#bc4c00;font-weight:600}.dot{fill:#bc4c00}.maxline{stroke:#bc4c00;stroke-width:1.5}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.faint{fill:#9da7b1}.paper{fill:#0d1117}.grid{stroke:#262c34}.axis{stroke:#6e7681}.area{fill:#58a6e8}.line{stroke:#79c0ff}.band{fill:#58a6e8}.limit{stroke:#bc8cff}.limits{fill:#bc8cff;stroke:#0d1117}.max{fill:#ffa657}.dot{fill:#ffa657}.maxline{stroke:#ffa657}}";

/// Complete SVG file. `style` adds to the common style.
pub fn document(title: &str, about: &str, height: f64, style: &str, body: &str) -> String {
    element("", title, about, height, &format!("<style>{STYLE}{style}</style>\n"), body)
}

/// SVG element for a page; `id` makes element ids unique. The styles are the page's or in `head`.
pub fn element(id: &str, title: &str, about: &str, height: f64, head: &str, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-labelledby=\"{id}title \
         {id}desc\">\n<title id=\"{id}title\">{}</title>\n<desc \
         id=\"{id}desc\">{}</desc>\n{head}<rect class=\"paper\" width=\"100%\" \
         height=\"100%\"/>\n{body}</svg>\n",
        escape(title),
        escape(about),
    )
}

/// Horizontal anchor of a text.
#[derive(Clone, Copy, PartialEq)]
pub enum TextAnchor {
    /// Left edge.
    Start,
    /// Centre.
    Middle,
    /// Right edge.
    End,
}

/// Writes a line.
pub fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        out,
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.0, from.1, to.0, to.1
    );
}

/// Writes a text at the position of its anchor; empty text writes nothing.
pub fn text(out: &mut String, at: (f64, f64), class: &str, anchor: TextAnchor, words: &str) {
    if words.is_empty() {
        return;
    }
    let anchor = match anchor {
        TextAnchor::Start => "",
        TextAnchor::Middle => " text-anchor=\"middle\"",
        TextAnchor::End => " text-anchor=\"end\"",
    };
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let words = escape(words);
    let _ =
        writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\"{class}{anchor}>{words}</text>", at.0, at.1);
}

/// Control characters are dropped: XML cannot represent them, even as references.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() || ('\u{fffe}'..='\u{ffff}').contains(&c) => {
                escaped.push('\u{fffd}')
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// Occupied intervals of a line of labels.
#[derive(Default)]
pub(crate) struct OccupiedSpans {
    spans: Vec<(f64, f64)>,
}

impl OccupiedSpans {
    /// Line with one occupied interval.
    pub(crate) fn new(from: f64, to: f64) -> OccupiedSpans {
        OccupiedSpans { spans: vec![(from, to)] }
    }

    const GAP: f64 = 8.0;

    pub(crate) fn try_occupy(&mut self, from: f64, to: f64) -> bool {
        let free = self
            .spans
            .iter()
            .all(|&(start, end)| to + Self::GAP <= start || end + Self::GAP <= from);
        if free {
            self.spans.push((from, to));
        }
        free
    }
}

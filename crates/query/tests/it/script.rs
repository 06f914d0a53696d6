//! Scripts: `load`, `clear` and `eval` commands with expectations.
//!
//! The notation is that of Prometheus' own tests (package `promqltest`), so that both can run the
//! same script. An empty line or one that starts with `#` ends a command.

use query::LabelSet;
use query::promql::{parse_duration, parse_number};
use regex::Regex;

use query::notation::{self, NotationItem};

/// Command with its line in the script, from 1.
pub(crate) struct ScriptCommand {
    pub(crate) line: usize,
    pub(crate) kind: CommandKind,
}

pub(crate) enum CommandKind {
    Clear,
    Load(LoadCommand),
    Eval(Box<EvalCommand>),
}

/// Series added to the existing ones.
#[derive(Default)]
pub(crate) struct LoadCommand {
    /// Nanoseconds between values; the first is at 0.
    pub(crate) step: i64,
    /// Whether classic histograms are also loaded as histograms with custom buckets.
    pub(crate) with_custom_buckets: bool,
    pub(crate) series: Vec<LoadedSeries>,
}

pub(crate) struct LoadedSeries {
    pub(crate) labels: LabelSet,
    pub(crate) values: Vec<NotationItem>,
    /// Start of each value, relative to its timestamp; empty if none is given.
    pub(crate) starts: Vec<Option<i64>>,
}

/// Query with its expected result.
pub(crate) struct EvalCommand {
    pub(crate) expr: String,
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// 0 for an instant query, unless its result is a range vector.
    pub(crate) step: i64,
    pub(crate) is_range: bool,
    pub(crate) expect: Expectation,
    pub(crate) answer: ExpectedResult,
    /// Whether the other expectations also apply to the range query.
    pub(crate) is_for_range_too: bool,
}

/// Expectations besides the result.
#[derive(Default)]
pub(crate) struct Expectation {
    pub(crate) ordered: bool,
    /// The query fails with a message that matches.
    pub(crate) fail: Option<MessagePattern>,
    pub(crate) warn: Vec<MessagePattern>,
    pub(crate) info: Vec<MessagePattern>,
    pub(crate) no_warn: bool,
    pub(crate) no_info: bool,
}

/// Expected result.
pub(crate) enum ExpectedResult {
    Scalar(f64),
    Text(String),
    /// Series in the expected order.
    Series(Vec<(LabelSet, Vec<NotationItem>)>),
}

/// Expected message.
#[derive(Debug)]
pub(crate) enum MessagePattern {
    Any,
    Exact(String),
    Like(Regex),
}

impl MessagePattern {
    pub(crate) fn matches(&self, message: &str) -> bool {
        match self {
            MessagePattern::Any => true,
            MessagePattern::Exact(exact) => exact == message,
            MessagePattern::Like(regex) => regex.is_match(message),
        }
    }

    fn regex(text: &str) -> Result<MessagePattern, String> {
        Ok(MessagePattern::Like(Regex::new(text).map_err(|wrong| wrong.to_string())?))
    }
}

/// Parses a script; the error holds the line and the cause.
pub(crate) fn read(text: &str) -> Result<Vec<ScriptCommand>, (usize, String)> {
    let mut lines = ScriptLines::new(text);
    let mut commands = Vec::new();
    while let Some((line, text)) = lines.next_command() {
        let word = text.split_whitespace().next().unwrap_or("").to_lowercase();
        let kind = match word.as_str() {
            "clear" => Ok(CommandKind::Clear),
            "load" | "load_with_nhcb" => load(text, &mut lines).map(CommandKind::Load),
            word if word.starts_with("eval") => {
                eval(text, &mut lines).map(|eval| CommandKind::Eval(Box::new(eval)))
            }
            _ => Err(format!("{word:?} is no command: load, clear or eval")),
        };
        match kind {
            Ok(kind) => commands.push(ScriptCommand { line, kind }),
            Err(wrong) => return Err((lines.at, wrong)),
        }
    }
    Ok(commands)
}

/// Trimmed lines without comments.
struct ScriptLines<'a> {
    lines: Vec<&'a str>,
    /// Number of lines read.
    at: usize,
}

impl<'a> ScriptLines<'a> {
    fn new(text: &'a str) -> ScriptLines<'a> {
        let without_comment = |line: &'a str| if line.starts_with('#') { "" } else { line };
        ScriptLines {
            lines: text.lines().map(|line| without_comment(line.trim())).collect(),
            at: 0,
        }
    }

    fn next_command(&mut self) -> Option<(usize, &'a str)> {
        while let Some(line) = self.lines.get(self.at) {
            self.at += 1;
            if !line.is_empty() {
                return Some((self.at, line));
            }
        }
        None
    }

    /// Next line, if it belongs to the same command.
    fn next_part(&mut self) -> Option<&'a str> {
        let line = self.lines.get(self.at).filter(|line| !line.is_empty())?;
        self.at += 1;
        Some(line)
    }
}

fn load(text: &str, lines: &mut ScriptLines<'_>) -> Result<LoadCommand, String> {
    let (command, step) = text.split_once(char::is_whitespace).ok_or("expected load <step>")?;
    let mut load = LoadCommand {
        step: parse_duration(step.trim())?,
        with_custom_buckets: command == "load_with_nhcb",
        series: Vec::new(),
    };
    let mut starts = None;
    while let Some(line) = lines.next_part() {
        let first = line.split_whitespace().next().unwrap_or("");
        if let Some(metric) = first.strip_suffix("@st") {
            let (labels, _) = notation::metric(metric)?;
            starts = Some((labels, notation::starts(&line[first.len()..])?));
            continue;
        }
        let (labels, values) = notation::series(line)?;
        let starts = match starts.take() {
            None => Vec::new(),
            Some((of, _)) if of != labels => return Err(format!("@st is of {of}, not {labels}")),
            Some((_, starts)) if starts.len() != values.len() => {
                return Err(format!("@st has {} items, not {}", starts.len(), values.len()));
            }
            Some((_, starts)) => starts,
        };
        // Of two lines for the same series, the last one counts.
        load.series.retain(|loaded| loaded.labels != labels);
        load.series.push(LoadedSeries { labels, values, starts });
    }
    match starts {
        Some((of, _)) => Err(format!("{of}@st is not followed by values")),
        None => Ok(load),
    }
}

fn eval(text: &str, lines: &mut ScriptLines<'_>) -> Result<EvalCommand, String> {
    let mut words = WordReader(text);
    let command = words.next();
    let mut eval = EvalCommand {
        expr: String::new(),
        start: 0,
        end: 0,
        step: 0,
        is_range: false,
        expect: Expectation::default(),
        answer: ExpectedResult::Series(Vec::new()),
        is_for_range_too: true,
    };
    match words.next() {
        "instant" => {
            words.expect("at")?;
            eval.start = parse_duration(words.next())?;
            eval.end = eval.start;
        }
        "range" => {
            eval.is_range = true;
            words.expect("from")?;
            eval.set_range(&mut words)?;
        }
        other => return Err(format!("expected instant or range, found {other:?}")),
    }
    eval.expr = words.0.trim().to_owned();
    match command {
        "eval" => {}
        "eval_fail" => eval.expect.fail = Some(MessagePattern::Any),
        "eval_warn" => eval.expect.warn.push(MessagePattern::Any),
        "eval_info" => eval.expect.info.push(MessagePattern::Any),
        "eval_ordered" => eval.expect.ordered = true,
        _ => return Err(format!("{command:?} is no command: load, clear or eval")),
    }
    while let Some(line) = lines.next_part() {
        if !eval.expected(line)? {
            break;
        }
    }
    Ok(eval)
}

impl EvalCommand {
    fn set_range(&mut self, words: &mut WordReader<'_>) -> Result<(), String> {
        self.start = parse_duration(words.next())?;
        words.expect("to")?;
        self.end = parse_duration(words.next())?;
        words.expect("step")?;
        self.step = parse_duration(words.next())?;
        match self.end < self.start {
            true => Err("the end is before the start".to_owned()),
            false => Ok(()),
        }
    }

    /// Parses one line of an expectation; returns `false` for the last.
    fn expected(&mut self, line: &str) -> Result<bool, String> {
        if let Some(message) = line.strip_prefix("expected_fail_message") {
            self.expect.fail = Some(MessagePattern::Exact(message.trim().to_owned()));
            return Ok(false);
        }
        if let Some(regex) = line.strip_prefix("expected_fail_regexp") {
            self.expect.fail = Some(MessagePattern::regex(regex.trim())?);
            return Ok(false);
        }
        if let Some(range) = line.strip_prefix("expect range vector") {
            let mut words = WordReader(range);
            words.expect("from")?;
            self.is_for_range_too = false;
            self.set_range(&mut words)?;
            return Ok(true);
        }
        if let Some(text) = line.strip_prefix("expect string") {
            let (text, _) = notation::quoted(text.trim())?;
            self.answer = ExpectedResult::Text(text);
            self.is_for_range_too = false;
            return Ok(true);
        }
        if let Some(text) = line.strip_prefix("expect ") {
            return self.expect.read(text.trim()).map(|()| true);
        }
        if let Ok(number) = parse_number(line) {
            self.answer = ExpectedResult::Scalar(number);
            return Ok(false);
        }
        let (labels, values) = notation::series(line)?;
        if values.len() > 1 && !self.is_range && self.is_for_range_too {
            return Err(
                "the result of an instant query has one value; expect range vector".to_owned()
            );
        }
        match &mut self.answer {
            ExpectedResult::Series(series) => series.push((labels, values)),
            _ => return Err("expected either series or one value".to_owned()),
        }
        Ok(true)
    }
}

impl Expectation {
    /// Parses the text after `expect`.
    fn read(&mut self, text: &str) -> Result<(), String> {
        let (kind, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let pattern = match rest.trim().split_once(':') {
            Some(("msg", message)) => MessagePattern::Exact(message.trim().to_owned()),
            Some(("regex", regex)) => MessagePattern::regex(regex.trim())?,
            None if rest.trim().is_empty() => MessagePattern::Any,
            _ => return Err(format!("expected msg: or regex: at {rest:?}")),
        };
        match kind {
            "ordered" => self.ordered = true,
            "fail" if self.fail.is_some() => return Err("two messages of failure".to_owned()),
            "fail" => self.fail = Some(pattern),
            "warn" => self.warn.push(pattern),
            "info" => self.info.push(pattern),
            "no_warn" => self.no_warn = true,
            "no_info" => self.no_info = true,
            _ => return Err(format!("{kind:?} is nothing to expect")),
        }
        match self.no_warn && !self.warn.is_empty() || self.no_info && !self.info.is_empty() {
            true => Err("expected and not expected".to_owned()),
            false => Ok(()),
        }
    }
}

/// Words of a line.
struct WordReader<'a>(&'a str);

impl<'a> WordReader<'a> {
    fn next(&mut self) -> &'a str {
        let text = self.0.trim_start();
        let (word, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
        self.0 = rest;
        word
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        match self.next() {
            found if found == word => Ok(()),
            found => Err(format!("expected {word}, found {found:?}")),
        }
    }
}

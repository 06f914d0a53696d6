//! Tokens of a template: splits text and actions, and trims white space at `{{-` and `-}}`.
//!
//! A lexical error is a token ([`TemplateTokenKind::Error`]) and the last one, because the parser
//! reports the first of several errors in the order of the text. Semantics: Go 1.26,
//! `text/template`.

use super::quote::{code_point, quoted};

const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// Kind of a [`PositionedToken`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateTokenKind {
    Assign,
    Bool,
    Char,
    CharConstant,
    Complex,
    Declare,
    EndOfText,
    Error,
    Field,
    Identifier,
    LeftDelimiter,
    LeftParenthesis,
    Number,
    Pipe,
    QuotedString,
    RawString,
    RightDelimiter,
    RightParenthesis,
    Space,
    Text,
    Variable,
    Block,
    Break,
    Continue,
    Dot,
    Define,
    Else,
    End,
    If,
    NilConstant,
    Range,
    Template,
    With,
}

/// A token and where it starts.
#[derive(Clone, Debug)]
pub(super) struct PositionedToken {
    pub(super) kind: TemplateTokenKind,
    pub(super) text: String,
    /// Byte offset in the template.
    pub(super) offset: usize,
    /// Line, from 1.
    pub(super) line: usize,
}

impl PositionedToken {
    /// The token as an error message shows it.
    pub(super) fn describe(&self) -> String {
        use TemplateTokenKind::*;
        match self.kind {
            EndOfText => "EOF".to_owned(),
            Error => self.text.clone(),
            Block | Break | Continue | Dot | Define | Else | End | If | NilConstant | Range
            | Template | With => format!("<{}>", self.text),
            _ if self.text.len() > 10 => {
                let short: String = self.text.chars().take(10).collect();
                format!("{}...", quoted(&short))
            }
            _ => quoted(&self.text),
        }
    }
}

/// The tokens of `template`. The last one is an error or the end of the text.
pub(super) fn tokens(template: &str) -> Vec<PositionedToken> {
    let mut lexer =
        TemplateLexer { input: template, at: 0, start: 0, tokens: Vec::new(), line: 1, seen: 0 };
    if let Err(message) = lexer.run() {
        lexer.count_lines(lexer.start);
        let token = PositionedToken {
            kind: TemplateTokenKind::Error,
            text: message,
            offset: lexer.start,
            line: lexer.line,
        };
        lexer.tokens.push(token);
    }
    lexer.tokens
}

struct TemplateLexer<'a> {
    input: &'a str,
    /// Offset of the next character.
    at: usize,
    /// Offset of the current token.
    start: usize,
    tokens: Vec<PositionedToken>,
    /// Line of `seen`.
    line: usize,
    /// Offset up to which lines are counted.
    seen: usize,
}

impl TemplateLexer<'_> {
    fn run(&mut self) -> Result<(), String> {
        loop {
            let rest = &self.input[self.at..];
            let Some(length) = rest.find("{{") else {
                self.at = self.input.len();
                if self.at > self.start {
                    self.emit(TemplateTokenKind::Text);
                }
                self.emit(TemplateTokenKind::EndOfText);
                return Ok(());
            };
            let delimiter = self.at + length;
            let text = &rest[..length];
            let kept = match trims_left(&self.input[delimiter + 2..]) {
                true => text.trim_end_matches(SPACES),
                false => text,
            };
            self.at += kept.len();
            if !kept.is_empty() {
                self.emit(TemplateTokenKind::Text);
            }
            (self.at, self.start) = (delimiter, delimiter);
            self.left_delimiter()?;
        }
    }

    fn left_delimiter(&mut self) -> Result<(), String> {
        let marker = if trims_left(&self.input[self.at + 2..]) { 2 } else { 0 };
        if self.input[self.at + 2 + marker..].starts_with("/*") {
            self.at += 2 + marker;
            self.start = self.at;
            return self.comment();
        }
        self.at += 2;
        self.emit(TemplateTokenKind::LeftDelimiter);
        self.at += marker;
        self.start = self.at;
        self.action()
    }

    fn comment(&mut self) -> Result<(), String> {
        let rest = &self.input[self.at + 2..];
        let end = rest.find("*/").ok_or("unclosed comment")?;
        self.at += 2 + end + 2;
        let trims = self.right_delimiter().ok_or("comment ends before closing delimiter")?;
        self.at += if trims { 4 } else { 2 };
        self.start = self.at;
        if trims {
            self.skip_spaces();
        }
        Ok(())
    }

    /// Whether white space after the right delimiter is trimmed, if the text is at one.
    fn right_delimiter(&self) -> Option<bool> {
        let rest = &self.input[self.at..];
        if trims_right(rest) && rest[2..].starts_with("}}") {
            return Some(true);
        }
        rest.starts_with("}}").then_some(false)
    }

    fn skip_spaces(&mut self) {
        let rest = &self.input[self.at..];
        self.at += rest.len() - rest.trim_start_matches(SPACES).len();
        self.start = self.at;
    }

    /// Tokens up to and including the right delimiter.
    fn action(&mut self) -> Result<(), String> {
        let mut depth = 0;
        loop {
            if let Some(trims) = self.right_delimiter() {
                if depth > 0 {
                    return Err("unclosed left paren".to_owned());
                }
                if trims {
                    self.at += 2;
                    self.start = self.at;
                }
                self.at += 2;
                self.emit(TemplateTokenKind::RightDelimiter);
                if trims {
                    self.skip_spaces();
                }
                return Ok(());
            }
            self.token_in_action(&mut depth)?;
        }
    }

    fn token_in_action(&mut self, depth: &mut usize) -> Result<(), String> {
        let Some(next) = self.next() else { return Err("unclosed action".to_owned()) };
        match next {
            _ if is_space(next) => self.spaces(),
            '=' => self.emit(TemplateTokenKind::Assign),
            ':' if self.next() == Some('=') => self.emit(TemplateTokenKind::Declare),
            ':' => return Err("expected :=".to_owned()),
            '|' => self.emit(TemplateTokenKind::Pipe),
            '"' => {
                self.quoted('"', "unterminated quoted string", TemplateTokenKind::QuotedString)?
            }
            '\'' => {
                self.quoted(
                    '\'',
                    "unterminated character constant",
                    TemplateTokenKind::CharConstant,
                )?;
            }
            '`' => {
                let end =
                    self.input[self.at..].find('`').ok_or("unterminated raw quoted string")?;
                self.at += end + 1;
                self.emit(TemplateTokenKind::RawString);
            }
            '$' => self.name(TemplateTokenKind::Variable, TemplateTokenKind::Variable)?,
            '.' if !self.peek().is_some_and(|c| c.is_ascii_digit()) && self.peek().is_some() => {
                self.name(TemplateTokenKind::Field, TemplateTokenKind::Dot)?;
            }
            '.' | '+' | '-' | '0'..='9' => {
                self.at = self.start;
                self.number()?;
            }
            _ if is_alphanumeric(next) => self.identifier()?,
            '(' => {
                *depth += 1;
                self.emit(TemplateTokenKind::LeftParenthesis);
            }
            ')' => {
                *depth = depth.checked_sub(1).ok_or("unexpected right paren")?;
                self.emit(TemplateTokenKind::RightParenthesis);
            }
            ' '..='~' => self.emit(TemplateTokenKind::Char),
            _ => return Err(format!("unrecognized character in action: {}", code_point(next))),
        }
        Ok(())
    }

    /// A run of spaces, without the one that belongs to ` -}}`.
    fn spaces(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
        let last = self.at - 1;
        if trims_right(&self.input[last..]) && self.input[last + 2..].starts_with("}}") {
            self.at = last;
            if self.at == self.start {
                return;
            }
        }
        self.emit(TemplateTokenKind::Space);
    }

    fn quoted(&mut self, end: char, error: &str, kind: TemplateTokenKind) -> Result<(), String> {
        loop {
            match self.next() {
                Some('\\') if self.next().is_some_and(|c| c != '\n') => {}
                Some('\\' | '\n') | None => return Err(error.to_owned()),
                Some(next) if next == end => break,
                Some(_) => {}
            }
        }
        self.emit(kind);
        Ok(())
    }

    /// A field or a variable; `alone` if no name follows the first character.
    fn name(&mut self, kind: TemplateTokenKind, alone: TemplateTokenKind) -> Result<(), String> {
        if self.at_terminator() {
            self.emit(alone);
            return Ok(());
        }
        self.finish_word()?;
        self.emit(kind);
        Ok(())
    }

    fn finish_word(&mut self) -> Result<(), String> {
        while self.peek().is_some_and(is_alphanumeric) {
            self.next();
        }
        match self.peek() {
            Some(next) if !self.at_terminator() => {
                Err(format!("bad character {}", code_point(next)))
            }
            _ => Ok(()),
        }
    }

    fn identifier(&mut self) -> Result<(), String> {
        self.finish_word()?;
        let kind = match &self.input[self.start..self.at] {
            "block" => TemplateTokenKind::Block,
            "break" => TemplateTokenKind::Break,
            "continue" => TemplateTokenKind::Continue,
            "define" => TemplateTokenKind::Define,
            "else" => TemplateTokenKind::Else,
            "end" => TemplateTokenKind::End,
            "if" => TemplateTokenKind::If,
            "nil" => TemplateTokenKind::NilConstant,
            "range" => TemplateTokenKind::Range,
            "template" => TemplateTokenKind::Template,
            "with" => TemplateTokenKind::With,
            "true" | "false" => TemplateTokenKind::Bool,
            _ => TemplateTokenKind::Identifier,
        };
        self.emit(kind);
        Ok(())
    }

    fn at_terminator(&self) -> bool {
        match self.peek() {
            None => true,
            Some('.' | ',' | '|' | ':' | ')' | '(') => true,
            Some(next) => is_space(next) || self.input[self.at..].starts_with("}}"),
        }
    }

    fn number(&mut self) -> Result<(), String> {
        let mut complex = false;
        let mut good = self.scan_number();
        if good && matches!(self.peek(), Some('+' | '-')) {
            good = self.scan_number() && self.input[..self.at].ends_with('i');
            complex = true;
        }
        if !good {
            return Err(format!("bad number syntax: {}", quoted(&self.input[self.start..self.at])));
        }
        self.emit(if complex { TemplateTokenKind::Complex } else { TemplateTokenKind::Number });
        Ok(())
    }

    fn scan_number(&mut self) -> bool {
        self.accept("+-");
        let mut digits = "0123456789_";
        if self.accept("0") {
            if self.accept("xX") {
                digits = "0123456789abcdefABCDEF_";
            } else if self.accept("oO") {
                digits = "01234567_";
            } else if self.accept("bB") {
                digits = "01_";
            }
        }
        while self.accept(digits) {}
        if self.accept(".") {
            while self.accept(digits) {}
        }
        let exponent = match digits.len() {
            11 => "eE",
            23 => "pP",
            _ => "",
        };
        if self.accept(exponent) {
            self.accept("+-");
            while self.accept("0123456789_") {}
        }
        self.accept("i");
        if self.peek().is_some_and(is_alphanumeric) {
            self.next();
            return false;
        }
        true
    }

    fn accept(&mut self, set: &str) -> bool {
        match self.peek() {
            Some(next) if set.contains(next) => {
                self.at += next.len_utf8();
                true
            }
            _ => false,
        }
    }

    fn peek(&self) -> Option<char> {
        self.input[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn count_lines(&mut self, offset: usize) {
        let passed = &self.input.as_bytes()[self.seen..offset];
        self.line += passed.iter().filter(|byte| **byte == b'\n').count();
        self.seen = offset;
    }

    fn emit(&mut self, kind: TemplateTokenKind) {
        self.count_lines(self.start);
        let text = self.input[self.start..self.at].to_owned();
        self.tokens.push(PositionedToken { kind, text, offset: self.start, line: self.line });
        self.start = self.at;
    }
}

/// Whether an action whose text after `{{` is `rest` trims the text before it.
fn trims_left(rest: &str) -> bool {
    let mut chars = rest.chars();
    chars.next() == Some('-') && chars.next().is_some_and(is_space)
}

fn trims_right(rest: &str) -> bool {
    let mut chars = rest.chars();
    chars.next().is_some_and(is_space) && chars.next() == Some('-')
}

fn is_space(c: char) -> bool {
    SPACES.contains(&c)
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphabetic() || (c.is_numeric() && c.is_digit(36))
}

//! PromQL lexer.
//!
//! The meaning of a character depends on the context: braces and brackets have their own tokens.
//! Messages and spans are those of Prometheus, even where a span reflects its lexer more than the
//! text.

use crate::error::{Error, Result, SourceSpan};

use super::ast::BinaryOp;
use super::quote::{code_point, quote_char, quote_text};
use super::token::{Keyword, PromqlToken, TokenKind, duration_keyword, keyword};

/// PromQL lexer.
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// Start of the token.
    start: usize,
    parens: usize,
    is_in_braces: bool,
    is_in_brackets: bool,
    /// Whether the lexer is inside brackets, before the first number.
    is_before_number: bool,
    had_colon: bool,
    had_number: bool,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer {
            text,
            at: 0,
            start: 0,
            parens: 0,
            is_in_braces: false,
            is_in_brackets: false,
            is_before_number: false,
            had_colon: false,
            had_number: false,
        }
    }

    /// Next token; `End` at the end. Must not be called after an error.
    pub(super) fn next(&mut self) -> Result<PromqlToken> {
        let kind = self.kind()?;
        let span = SourceSpan::new(self.start, self.at);
        Ok(PromqlToken { kind, span })
    }

    fn kind(&mut self) -> Result<TokenKind> {
        if self.is_in_braces {
            self.skip(true);
            self.in_braces()
        } else if self.is_before_number {
            self.skip(false);
            self.in_duration()
        } else {
            self.skip(true);
            self.in_expression()
        }
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn consume(&mut self, accepts: impl Fn(char) -> bool) -> bool {
        let is_next = self.peek().is_some_and(accepts);
        if is_next {
            self.bump();
        }
        is_next
    }

    fn consume_all(&mut self, accepts: impl Fn(char) -> bool) {
        while self.consume(&accepts) {}
    }

    /// Skips to the next token.
    fn skip(&mut self, with_comments: bool) {
        loop {
            self.consume_all(is_blank);
            if !with_comments || self.peek() != Some('#') {
                break;
            }
            self.consume_all(|c| c != '\n' && c != '\r');
        }
        self.start = self.at;
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        let span = SourceSpan::new(self.start, self.text.len());
        Err(Error::Parse { span, message: message.into() })
    }

    /// Error after a complete token.
    fn error_after<T>(&mut self, message: impl Into<String>) -> Result<T> {
        self.start = self.at;
        self.error(message)
    }

    fn in_expression(&mut self) -> Result<TokenKind> {
        let Some(c) = self.bump() else {
            return match (self.parens, self.is_in_brackets) {
                (0, false) => Ok(TokenKind::End),
                (0, true) => self.error("unclosed left bracket"),
                _ => self.error("unclosed left parenthesis"),
            };
        };
        let found = quote_char(c);
        Ok(match c {
            ',' => TokenKind::Comma,
            '=' if self.consume(|c| c == '=') => TokenKind::Op(BinaryOp::Equal),
            '=' if self.peek() == Some('~') => {
                return self.error("unexpected character after '=': '~'");
            }
            '=' => TokenKind::Assign,
            '!' if self.consume(|c| c == '=') => TokenKind::Op(BinaryOp::NotEqual),
            '!' => return self.unexpected("unexpected character after '!'"),
            '<' if self.consume(|c| c == '=') => TokenKind::Op(BinaryOp::LessOrEqual),
            '<' if self.consume(|c| c == '/') => TokenKind::Op(BinaryOp::TrimUpper),
            '<' => TokenKind::Op(BinaryOp::Less),
            '>' if self.consume(|c| c == '=') => TokenKind::Op(BinaryOp::GreaterOrEqual),
            '>' if self.consume(|c| c == '/') => TokenKind::Op(BinaryOp::TrimLower),
            '>' => TokenKind::Op(BinaryOp::Greater),
            '+' | '-' | '*' | '/' | '%' | '^' => arithmetic(c),
            c if self.is_number(c) => return self.number(),
            '"' | '\'' | '`' => return self.lex_string(c),
            ':' if self.is_in_brackets && self.had_colon => {
                return self.error(format!("unexpected colon {found}"));
            }
            ':' if self.is_in_brackets => {
                self.had_colon = true;
                TokenKind::Colon
            }
            c if is_letter(c) && self.is_in_brackets => match self.duration_word(c) {
                Some(kind) => kind,
                None => return self.error(format!("unexpected character: {found}, expected ':'")),
            },
            c if is_letter(c) || c == ':' => self.word(),
            '(' | ')' => return self.lex_paren(c),
            '{' => {
                self.is_in_braces = true;
                TokenKind::LeftBrace
            }
            '[' if self.is_in_brackets => {
                return self.error(format!("unexpected left bracket {found}"));
            }
            '[' => {
                (self.is_in_brackets, self.is_before_number) = (true, true);
                self.had_colon = false;
                TokenKind::LeftBracket
            }
            ']' if self.is_in_brackets => {
                self.is_in_brackets = false;
                TokenKind::RightBracket
            }
            ']' => return self.error(format!("unexpected right bracket {found}")),
            '@' => TokenKind::At,
            _ => return self.error(format!("unexpected character: {found}")),
        })
    }

    fn in_braces(&mut self) -> Result<TokenKind> {
        let Some(c) = self.bump() else {
            return self.error("unexpected end of input inside braces");
        };
        let found = quote_char(c);
        Ok(match c {
            c if is_letter(c) => {
                self.consume_all(is_letter_or_digit);
                TokenKind::Identifier
            }
            ',' => TokenKind::Comma,
            '"' | '\'' | '`' => return self.lex_string(c),
            '=' if self.consume(|c| c == '~') => TokenKind::EqualRegex,
            '=' => TokenKind::Assign,
            '!' if self.consume(|c| c == '~') => TokenKind::NotEqualRegex,
            '!' if self.consume(|c| c == '=') => TokenKind::Op(BinaryOp::NotEqual),
            '!' => return self.unexpected("unexpected character after '!' inside braces"),
            '{' => return self.error(format!("unexpected left brace {found}")),
            '}' => {
                self.is_in_braces = false;
                TokenKind::RightBrace
            }
            _ => return self.error(format!("unexpected character inside braces: {found}")),
        })
    }

    /// Inside brackets, before the first number. After it, tokens are those of expressions.
    fn in_duration(&mut self) -> Result<TokenKind> {
        let Some(c) = self.bump() else {
            return self.error("unexpected end of input in duration expression");
        };
        Ok(match c {
            ']' => {
                (self.is_in_brackets, self.is_before_number) = (false, false);
                self.had_colon = false;
                TokenKind::RightBracket
            }
            ':' if !self.had_number => {
                return self.error_after("unexpected colon before duration in duration expression");
            }
            ':' if self.had_colon => {
                return self.error_after("unexpected repeated colon in duration expression");
            }
            ':' => {
                self.had_colon = true;
                TokenKind::Colon
            }
            '(' | ')' => return self.lex_paren(c),
            ',' => TokenKind::Comma,
            '+' | '-' | '*' | '/' | '%' | '^' => arithmetic(c),
            c if self.is_number(c) => {
                (self.is_before_number, self.had_number) = (false, true);
                return self.number();
            }
            c => match self.duration_word(c) {
                Some(kind) => kind,
                None => {
                    let found = quote_char(c);
                    return self
                        .error(format!("unexpected character in duration expression: {found}"));
                }
            },
        })
    }

    fn unexpected(&mut self, message: &str) -> Result<TokenKind> {
        // At the end of the text, Prometheus shows its end-of-input marker, which is not a
        // character.
        let found = self.peek().map_or("'\u{fffd}'".to_owned(), quote_char);
        self.error(format!("{message}: {found}"))
    }

    fn lex_paren(&mut self, c: char) -> Result<TokenKind> {
        if c == '(' {
            self.parens += 1;
            return Ok(TokenKind::LeftParen);
        }
        match self.parens.checked_sub(1) {
            Some(parens) => self.parens = parens,
            None => return self.error_after("unexpected right parenthesis ')'"),
        }
        Ok(TokenKind::RightParen)
    }

    fn word(&mut self) -> TokenKind {
        self.consume_all(|c| is_letter_or_digit(c) || c == ':');
        let text = &self.text[self.start..self.at];
        match keyword(text) {
            // Metrics may have these names.
            Some(TokenKind::Keyword(Keyword::Fill | Keyword::FillLeft | Keyword::FillRight))
                if !self.text[self.at..].trim_start_matches(is_blank).starts_with('(') =>
            {
                TokenKind::Identifier
            }
            Some(kind) => kind,
            None if text.contains(':') => TokenKind::MetricIdentifier,
            None => TokenKind::Identifier,
        }
    }

    fn duration_word(&mut self, first: char) -> Option<TokenKind> {
        matches!(first.to_ascii_lowercase(), 's' | 'r' | 'm').then(|| {
            self.consume_all(is_letter);
            duration_keyword(&self.text[self.start..self.at])
        })?
    }

    fn is_number(&self, c: char) -> bool {
        c.is_ascii_digit() || c == '.' && self.peek().is_some_and(|c| c.is_ascii_digit())
    }

    fn number(&mut self) -> Result<TokenKind> {
        self.at = self.start;
        if self.plain_number() {
            return Ok(TokenKind::Number);
        }
        if self.consume_units() {
            return Ok(TokenKind::Duration);
        }
        let text = &self.text[self.start..self.at];
        self.error(format!("bad number or duration syntax: {}", quote_text(text)))
    }

    /// Whether a number follows. If not, the text read so far may continue as a duration, or is
    /// reported as invalid.
    fn plain_number(&mut self) -> bool {
        let is_hex = self.consume(|c| c == '0') && self.consume(|c| matches!(c, 'x' | 'X'));
        let is_digit = |c: char| if is_hex { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
        if is_hex {
            self.consume(|c| c == '_');
        }
        let is_bad = |c: char| matches!(c, '.' | '_' | 'e' | 'E');
        // A second dot is not rejected here: `.5.5` fails when it is parsed as a number.
        self.consume(|c| c == '.');
        self.consume(is_digit);
        let (mut had_dot, mut had_exponent) = (false, false);
        loop {
            match self.peek() {
                Some('.') => {
                    self.bump();
                    if had_dot || self.consume(|c| matches!(c, '.' | '_')) || is_hex {
                        return false;
                    }
                    had_dot = true;
                }
                // In hexadecimal numbers too, where `e` is a digit, as in Prometheus.
                Some('e' | 'E') => {
                    self.bump();
                    if had_exponent {
                        return false;
                    }
                    had_exponent = true;
                    self.consume(|c| matches!(c, '+' | '-'));
                    if self.consume(is_bad) || self.peek().is_none() {
                        return false;
                    }
                }
                Some('_') => {
                    self.bump();
                    if self.consume(is_bad) || self.peek().is_none() {
                        return false;
                    }
                }
                Some(c) if is_digit(c) => self.consume_all(is_digit),
                next => return !next.is_some_and(is_letter_or_digit),
            }
        }
    }

    /// Whether units follow; their names and order are checked when the duration is parsed.
    fn consume_units(&mut self) -> bool {
        if !self.consume(|c| matches!(c, 's' | 'm' | 'h' | 'd' | 'w' | 'y')) {
            return false;
        }
        self.consume(|c| c == 's');
        while self.consume(|c| c.is_ascii_digit()) {
            self.consume_all(|c| c.is_ascii_digit());
            if !self.consume(|c| matches!(c, 's' | 'm' | 'h' | 'd' | 'w')) {
                return false;
            }
            self.consume(|c| c == 's');
        }
        // The invalid text is part of the message.
        !self.consume(is_letter_or_digit)
    }

    fn lex_string(&mut self, quote: char) -> Result<TokenKind> {
        let is_raw = quote == '`';
        loop {
            match self.bump() {
                Some(c) if c == quote => return Ok(TokenKind::String),
                Some('\\') if !is_raw => self.escape(quote)?,
                // Invalid UTF-8 was decoded as this character.
                Some(char::REPLACEMENT_CHARACTER) => return self.error("invalid UTF-8 rune"),
                None if is_raw => return self.error("unterminated raw string"),
                None => return self.error("unterminated quoted string"),
                Some('\n') if !is_raw => return self.error("unterminated quoted string"),
                Some(_) => {}
            }
        }
    }

    fn escape(&mut self, quote: char) -> Result<()> {
        let (digits, base, max) = match self.peek() {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\') => (0, 10, 0),
            Some(c) if c == quote => (0, 10, 0),
            Some('0'..='7') => (3, 8, 255),
            Some('x') => (2, 16, 255),
            Some('u') => (4, 16, 0x10_ffff),
            Some('U') => (8, 16, 0x10_ffff),
            Some(c) => return self.error(format!("unknown escape sequence {}", code_point(c))),
            None => return self.error("escape sequence not terminated"),
        };
        if base != 8 {
            self.bump();
        }
        let mut number = 0u32;
        for _ in 0..digits {
            let Some(c) = self.bump() else { return self.error("escape sequence not terminated") };
            let Some(digit) = c.to_digit(base) else {
                let found = code_point(c);
                return self.error(format!("illegal character {found} in escape sequence"));
            };
            number = number.wrapping_mul(base).wrapping_add(digit);
        }
        if number > max && digits > 0 || (0xd800..0xe000).contains(&number) {
            return self.error("escape sequence is an invalid Unicode code point");
        }
        Ok(())
    }
}

pub(super) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

fn is_letter(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic()
}

fn is_letter_or_digit(c: char) -> bool {
    is_letter(c) || c.is_ascii_digit()
}

fn arithmetic(c: char) -> TokenKind {
    TokenKind::Op(match c {
        '+' => BinaryOp::Add,
        '-' => BinaryOp::Subtract,
        '*' => BinaryOp::Multiply,
        '/' => BinaryOp::Divide,
        '%' => BinaryOp::Modulo,
        _ => BinaryOp::Power,
    })
}

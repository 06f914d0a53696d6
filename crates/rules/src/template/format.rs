//! Formats values as Go's package `fmt` does: `print`, `println`, and the verbs of `printf`.
//!
//! Not as in Go: the address of a pointer is `0xc000000000`, and `%#v` is `%v`.

use super::float::{FloatPrecision, format_float};
use super::go_time::{duration_text, time_text};
use super::quote::{is_printable, quote};
use super::value::TemplateValue;

/// Limit of one result: 1 MiB.
pub(super) const TEXT_SIZE_MAX: usize = 1 << 20;

/// Limit of widths and precisions given as arguments. Written ones may have one digit more, as in
/// Go; the format ends at a longer one.
const WIDTH_MAX: usize = 1_000_000;

const POINTER: &str = "0xc000000000";

/// Why formatting stopped: the result is longer than [`TEXT_SIZE_MAX`].
#[derive(Debug)]
pub(super) struct TextSizeExceeded;

type FormatResult = Result<(), TextSizeExceeded>;

/// `values` as `print` writes them: spaces only between two values neither of which is a string.
pub(super) fn print(values: &[TemplateValue]) -> Result<String, TextSizeExceeded> {
    let mut printer = Printer::default();
    let is_string =
        |value: &TemplateValue| matches!(value, TemplateValue::Text(_) | TemplateValue::Html(_));
    for (index, value) in values.iter().enumerate() {
        if index > 0 && !is_string(value) && !is_string(&values[index - 1]) {
            printer.write(" ")?;
        }
        printer.print(value, 'v', 0)?;
    }
    Ok(printer.out)
}

/// `values` as `println` writes them.
pub(super) fn print_line(values: &[TemplateValue]) -> Result<String, TextSizeExceeded> {
    let mut printer = Printer::default();
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            printer.write(" ")?;
        }
        printer.print(value, 'v', 0)?;
    }
    printer.write("\n")?;
    Ok(printer.out)
}

/// `values` as `printf` writes them.
pub(super) fn print_format(
    format: &str,
    values: &[TemplateValue],
) -> Result<String, TextSizeExceeded> {
    let mut printer = Printer::default();
    let mut arguments = FormatArguments { values, next: 0, reordered: false, good: true };
    let mut rest = format;
    while let Some(percent) = rest.find('%') {
        printer.write(&rest[..percent])?;
        printer.flags = Flags::default();
        arguments.good = true;
        rest = printer.verb(&rest[percent + 1..], &mut arguments)?;
    }
    printer.write(rest)?;
    if !arguments.reordered && arguments.next < values.len() {
        printer.flags = Flags::default();
        printer.write("%!(EXTRA ")?;
        for (index, value) in values[arguments.next..].iter().enumerate() {
            if index > 0 {
                printer.write(", ")?;
            }
            match value {
                TemplateValue::Nil | TemplateValue::Missing => printer.write("<nil>")?,
                _ => {
                    printer.write(value.type_name())?;
                    printer.write("=")?;
                    printer.print(value, 'v', 0)?;
                }
            }
        }
        printer.write(")")?;
    }
    Ok(printer.out)
}

#[derive(Clone, Copy, Default)]
struct Flags {
    sharp: bool,
    zero: bool,
    plus: bool,
    minus: bool,
    space: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

struct FormatArguments<'a> {
    values: &'a [TemplateValue],
    next: usize,
    reordered: bool,
    good: bool,
}

impl FormatArguments<'_> {
    /// Reads `[n]`; true if there was one.
    fn index(&mut self, text: &mut &str) -> bool {
        let Some(inner) = text.strip_prefix('[') else { return false };
        self.reordered = true;
        let Some(end) = inner.find(']') else {
            self.good = false;
            *text = inner;
            return false;
        };
        let number = inner[..end].parse::<usize>();
        *text = &inner[end + 1..];
        match number {
            Ok(number @ 1..) if number <= self.values.len() => self.next = number - 1,
            _ => {
                self.good = false;
                return false;
            }
        }
        true
    }

    /// The integer that `*` stands for.
    fn star(&mut self) -> Option<i64> {
        let value = self.values.get(self.next)?;
        self.next += 1;
        let number = match value {
            TemplateValue::Int(number) => *number,
            TemplateValue::Byte(number) => i64::from(*number),
            _ => return None,
        };
        (number.unsigned_abs() <= WIDTH_MAX as u64).then_some(number)
    }
}

/// A decimal number at the start of `text`.
fn number(text: &mut &str) -> Option<usize> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(length);
    if digits.is_empty() {
        return None;
    }
    match digits.parse().ok().filter(|number| *number / 10 <= WIDTH_MAX) {
        Some(number) => {
            *text = rest;
            Some(number)
        }
        None => {
            *text = "";
            None
        }
    }
}

#[derive(Default)]
struct Printer {
    out: String,
    flags: Flags,
}

impl Printer {
    fn write(&mut self, text: &str) -> FormatResult {
        if self.out.len() + text.len() > TEXT_SIZE_MAX {
            return Err(TextSizeExceeded);
        }
        self.out.push_str(text);
        Ok(())
    }

    /// Writes the verb at the start of `text`, which follows a percent sign; returns the rest.
    fn verb<'a>(
        &mut self,
        text: &'a str,
        arguments: &mut FormatArguments<'_>,
    ) -> Result<&'a str, TextSizeExceeded> {
        let mut rest = text;
        while let Some(flag) = rest.chars().next() {
            match flag {
                '#' => self.flags.sharp = true,
                '0' => self.flags.zero = true,
                '+' => self.flags.plus = true,
                '-' => self.flags.minus = true,
                ' ' => self.flags.space = true,
                _ => break,
            }
            rest = &rest[1..];
        }
        let mut indexed = arguments.index(&mut rest);
        if let Some(after) = rest.strip_prefix('*') {
            rest = after;
            match arguments.star() {
                Some(width) => {
                    self.flags.minus |= width < 0;
                    self.flags.zero &= width >= 0;
                    self.flags.width = usize::try_from(width.unsigned_abs()).ok();
                }
                None => self.write("%!(BADWIDTH)")?,
            }
            indexed = false;
        } else {
            self.flags.width = number(&mut rest);
            arguments.good &= !(indexed && self.flags.width.is_some());
        }
        if rest.len() > 1 && rest.starts_with('.') {
            rest = &rest[1..];
            arguments.good &= !indexed;
            indexed = arguments.index(&mut rest);
            if let Some(after) = rest.strip_prefix('*') {
                rest = after;
                indexed = false;
                let precision = arguments.star();
                self.flags.precision = precision.and_then(|number| usize::try_from(number).ok());
                if self.flags.precision.is_none() {
                    self.write("%!(BADPREC)")?;
                }
            } else {
                self.flags.precision = Some(number(&mut rest).unwrap_or(0));
            }
        }
        if !indexed {
            arguments.index(&mut rest);
        }
        let Some(verb) = rest.chars().next() else {
            self.write("%!(NOVERB)")?;
            return Ok("");
        };
        match arguments.values.get(arguments.next) {
            _ if verb == '%' => self.write("%")?,
            _ if !arguments.good => self.write(&format!("%!{verb}(BADINDEX)"))?,
            None => self.write(&format!("%!{verb}(MISSING)"))?,
            Some(value) => {
                if verb == 'v' {
                    self.flags.sharp = false;
                    self.flags.plus = false;
                }
                arguments.next += 1;
                self.print(value, verb, 0)?;
            }
        }
        Ok(&rest[verb.len_utf8()..])
    }

    fn print(&mut self, value: &TemplateValue, verb: char, depth: usize) -> FormatResult {
        if verb == 'T' && depth == 0 {
            return match value {
                TemplateValue::Nil | TemplateValue::Missing => self.pad("<nil>"),
                _ => self.text(value.type_name(), 's'),
            };
        }
        match value {
            TemplateValue::Nil | TemplateValue::Missing => match verb {
                'v' if depth > 0 => self.write("<nil>"),
                'v' => self.pad("<nil>"),
                _ => self.write(&format!("%!{verb}(<nil>)")),
            },
            TemplateValue::Bool(truth) => match verb {
                't' | 'v' => self.pad(if *truth { "true" } else { "false" }),
                _ => self.bad_verb(value, verb),
            },
            TemplateValue::Int(number) => self.integer(value, i128::from(*number), verb),
            TemplateValue::Byte(number) => self.integer(value, i128::from(*number), verb),
            TemplateValue::Float(number) => self.float(value, *number, verb),
            TemplateValue::Text(text) | TemplateValue::Html(text) => match verb {
                'v' | 's' | 'x' | 'X' | 'q' => self.text(text, verb),
                _ => self.bad_verb(value, verb),
            },
            TemplateValue::Time(time) => match verb {
                'v' | 's' | 'x' | 'X' | 'q' => self.text(&time_text(time.time_ns), verb),
                _ => self.bad_verb(value, verb),
            },
            TemplateValue::Duration(span_ns, is_pointer) => match verb {
                'v' | 's' | 'x' | 'X' | 'q' => self.text(&duration_text(*span_ns), verb),
                _ if *is_pointer => self.write(POINTER),
                _ => self.integer(value, i128::from(*span_ns), verb),
            },
            TemplateValue::Map(map) => {
                self.write("map[")?;
                for (index, (key, item)) in map.entries.iter().enumerate() {
                    if index > 0 {
                        self.write(" ")?;
                    }
                    match verb {
                        'v' | 's' | 'x' | 'X' | 'q' => self.text(key, verb)?,
                        _ => self.bad_verb(&TemplateValue::text(key.as_str()), verb)?,
                    }
                    self.write(":")?;
                    self.print(item, verb, depth + 1)?;
                }
                self.write("]")
            }
            TemplateValue::List(list) => {
                self.write("[")?;
                for (index, item) in list.items.iter().enumerate() {
                    if index > 0 {
                        self.write(" ")?;
                    }
                    self.print(item, verb, depth + 1)?;
                }
                self.write("]")
            }
            TemplateValue::Sample(None) if verb == 'v' => self.pad("<nil>"),
            TemplateValue::Sample(None) => self.bad_verb(value, verb),
            TemplateValue::Sample(Some(_)) if depth > 0 => match verb {
                'v' | 'p' | 'b' | 'o' | 'd' | 'x' | 'X' => self.write(POINTER),
                _ => self.bad_verb(value, verb),
            },
            TemplateValue::Sample(Some(sample)) => {
                self.write("&{")?;
                self.print(&TemplateValue::text_map(&sample.labels), verb, depth + 1)?;
                self.write(" ")?;
                self.print(&sample.value, verb, depth + 1)?;
                self.write("}")
            }
            TemplateValue::Record(record) => match &record.text {
                Some(text) => self.text(text, verb),
                None => {
                    self.write("{")?;
                    for (index, (_, field)) in record.fields.iter().enumerate() {
                        if index > 0 {
                            self.write(" ")?;
                        }
                        self.print(field, verb, depth + 1)?;
                    }
                    self.write("}")
                }
            },
        }
    }

    fn bad_verb(&mut self, value: &TemplateValue, verb: char) -> FormatResult {
        self.write(&format!("%!{verb}({}=", value.type_name()))?;
        self.print(value, 'v', 0)?;
        self.write(")")
    }

    fn pad(&mut self, text: &str) -> FormatResult {
        let length = text.chars().count();
        let missing = self.flags.width.unwrap_or(0).saturating_sub(length);
        let zero = self.flags.zero && !self.flags.minus;
        let padding = if zero { "0" } else { " " }.repeat(missing);
        if self.flags.minus {
            self.write(text)?;
            self.write(&padding)
        } else {
            self.write(&padding)?;
            self.write(text)
        }
    }

    fn pad_without_zeros(&mut self, text: &str) -> FormatResult {
        let zero = std::mem::replace(&mut self.flags.zero, false);
        let written = self.pad(text);
        self.flags.zero = zero;
        written
    }

    fn text(&mut self, text: &str, verb: char) -> FormatResult {
        if matches!(verb, 'x' | 'X') {
            return self.hexadecimal(text.as_bytes(), verb);
        }
        let text = match self.flags.precision {
            Some(length) => match text.char_indices().nth(length) {
                Some((end, _)) => &text[..end],
                None => text,
            },
            None => text,
        };
        if verb != 'q' {
            return self.pad(text);
        }
        let raw = |c: char| c != '`' && c != '\u{feff}' && (c == '\t' || !c.is_control());
        match self.flags.sharp && text.chars().all(raw) {
            true => self.pad(&format!("`{text}`")),
            false => self.pad(&quote(text, '"', self.flags.plus)),
        }
    }

    fn hexadecimal(&mut self, bytes: &[u8], verb: char) -> FormatResult {
        let length = self.flags.precision.unwrap_or(bytes.len()).min(bytes.len());
        let (prefix, space) = (self.flags.sharp, self.flags.space);
        let base_prefix = if verb == 'X' { "0X" } else { "0x" };
        let mut out = String::with_capacity(length * 2);
        for (index, byte) in bytes[..length].iter().enumerate() {
            if index > 0 && space {
                out.push(' ');
            }
            if prefix && (index == 0 || space) {
                out.push_str(base_prefix);
            }
            out.push_str(&match verb {
                'X' => format!("{byte:02X}"),
                _ => format!("{byte:02x}"),
            });
        }
        self.pad(&out)
    }

    fn integer(&mut self, value: &TemplateValue, number: i128, verb: char) -> FormatResult {
        let digits = match verb {
            'v' | 'd' => format!("{}", number.unsigned_abs()),
            'b' => format!("{:b}", number.unsigned_abs()),
            'o' | 'O' => format!("{:o}", number.unsigned_abs()),
            'x' => format!("{:x}", number.unsigned_abs()),
            'X' => format!("{:X}", number.unsigned_abs()),
            'c' | 'q' | 'U' => return self.character(number, verb),
            _ => return self.bad_verb(value, verb),
        };
        let flags = self.flags;
        if flags.precision == Some(0) && number == 0 {
            return self.pad_without_zeros("");
        }
        let sign = match number {
            ..0 => "-",
            _ if flags.plus => "+",
            _ if flags.space => " ",
            _ => "",
        };
        let digit_count = match (flags.precision, flags.width) {
            (Some(count), _) => count,
            (None, Some(width)) if flags.zero && !flags.minus => width - sign.len().min(width),
            _ => 0,
        };
        let zeros = "0".repeat(digit_count.saturating_sub(digits.len()));
        let prefix = match verb {
            'O' => "0o",
            'b' if flags.sharp => "0b",
            'o' if flags.sharp && !zeros.starts_with('0') && !digits.starts_with('0') => "0",
            'x' if flags.sharp => "0x",
            'X' if flags.sharp => "0X",
            _ => "",
        };
        self.pad_without_zeros(&format!("{sign}{prefix}{zeros}{digits}"))
    }

    fn character(&mut self, number: i128, verb: char) -> FormatResult {
        let c = u32::try_from(number).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
        match verb {
            'c' => self.pad(c.encode_utf8(&mut [0; 4])),
            'q' => self.pad(&quote(c.encode_utf8(&mut [0; 4]), '\'', self.flags.plus)),
            _ => {
                let digits = format!("{:X}", number & i128::from(u64::MAX));
                let length = self.flags.precision.unwrap_or(0).max(4);
                let zeros = "0".repeat(length.saturating_sub(digits.len()));
                let is_shown = self.flags.sharp && i128::from(u32::from(c)) == number;
                let shown = match is_shown && is_printable(c) {
                    true => format!(" '{c}'"),
                    false => String::new(),
                };
                self.pad_without_zeros(&format!("U+{zeros}{digits}{shown}"))
            }
        }
    }

    fn float(&mut self, value: &TemplateValue, number: f64, verb: char) -> FormatResult {
        let (kind, precision) = match verb {
            'v' => ('g', FloatPrecision::Shortest),
            'g' | 'G' | 'x' | 'X' => (verb, FloatPrecision::Shortest),
            'e' | 'E' | 'f' => (verb, FloatPrecision::Digits(6)),
            'F' => ('f', FloatPrecision::Digits(6)),
            _ => return self.bad_verb(value, verb),
        };
        let flags = self.flags;
        let precision = flags.precision.map_or(precision, FloatPrecision::Digits);
        let text = format_float(number, kind, precision);
        let (sign, digits) = match text.split_at_checked(1) {
            Some(("-" | "+", rest)) if text.starts_with('-') => ("-", rest),
            Some(("+", rest)) => ("", rest),
            _ => ("", text.as_str()),
        };
        let digits = match flags.sharp && number.is_finite() {
            true => with_point(digits, kind, precision),
            false => digits.to_owned(),
        };
        let sign = match sign {
            "-" => "-",
            _ if flags.plus => "+",
            _ if flags.space => " ",
            // Infinity always has a sign.
            _ if number == f64::INFINITY => "+",
            _ => "",
        };
        if !number.is_finite() {
            return self.pad_without_zeros(&format!("{sign}{digits}"));
        }
        let width = flags.width.unwrap_or(0);
        if flags.zero && !flags.minus && !sign.is_empty() && width > digits.len() + 1 {
            let zeros = "0".repeat(width - digits.len() - 1);
            return self.write(&format!("{sign}{zeros}{digits}"));
        }
        self.pad(&format!("{sign}{digits}"))
    }
}

/// `digits` with the point and the trailing zeros that `#` asks for.
fn with_point(digits: &str, kind: char, precision: FloatPrecision) -> String {
    let is_general = matches!(kind, 'g' | 'G');
    let end = digits.find(['e', 'E', 'p', 'P']).filter(|_| kind != 'x' && kind != 'X');
    let (mut number, tail) = match end.or_else(|| digits.find(['p', 'P'])) {
        Some(end) => (digits[..end].to_owned(), &digits[end..]),
        None => (digits.to_owned(), ""),
    };
    let significant = number.trim_start_matches(['0', '.']).replace('.', "").len().max(1);
    if !number.contains('.') {
        number.push('.');
    }
    if is_general {
        let wanted = match precision {
            FloatPrecision::Shortest => 6,
            FloatPrecision::Digits(count) => count,
        };
        number.push_str(&"0".repeat(wanted.saturating_sub(significant)));
    }
    number + tail
}

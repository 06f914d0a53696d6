//! HTTPTrap JSON, as Circonus brokers take it from programs.
//!
//! Any JSON is read. Nested names are joined by back-quotes (`container`, back-quote, `key`; in an array the place from 0).
//! A number is a number, a string is text; `{"_type": t, "_value": v, "_ts": ms}` is read as `t` says:
//! `i` `I` `l` `L` whole numbers of 32 and 64 bits, signed and unsigned; `n` a number; `s` text; `h` a
//! histogram: a list of samples, a list of bins `H[1.2]=3`, or base64 of circllhist. A key may be repeated
//! and documents may follow one another: every value is a reading of its own. What stands before a syntax
//! error has been read.

use hist::Histogram;

use crate::json::{Token, Tokens};
use crate::reading::{Reading, Sink, Value};
use crate::trouble::{Place, Trouble, quote};
use crate::{circllhist, number};

type Result<T> = std::result::Result<T, Trouble>;

/// Reads documents, one after another.
pub fn read(bytes: &[u8], sink: &mut dyn Sink) {
    let mut reader = Reader { bytes, tokens: Tokens::new(bytes), path: String::new(), stop: false };
    while !reader.stop && !reader.tokens.at_end() {
        reader.path.clear();
        if let Err(trouble) = reader.value(sink) {
            let _ = sink.trouble(trouble);
            return;
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    tokens: Tokens<'a>,
    path: String,
    stop: bool,
}

/// The parts of a typed value that have been read; values wait as bytes until the type is known.
#[derive(Default)]
struct Typed {
    kind: Option<(usize, String)>,
    value: Option<(usize, usize)>,
    ts: Option<(usize, usize)>,
}

impl Reader<'_> {
    fn value(&mut self, sink: &mut dyn Sink) -> Result<()> {
        match self.tokens.value()? {
            Token::Object => self.object(sink)?,
            Token::Array => {
                let mut place = 0;
                while self.tokens.element()? {
                    self.below(&place.to_string(), sink)?;
                    place += 1;
                }
            }
            Token::Text(text) => self.reading(Value::Text(text), None, sink),
            Token::Number(text) => self.reading(Value::Number(double(text)), None, sink),
            Token::Bool(_) | Token::Null => sink.skipped("a null, true or false"),
        }
        Ok(())
    }

    fn below(&mut self, name: &str, sink: &mut dyn Sink) -> Result<()> {
        let length = self.path.len();
        if length > 0 {
            self.path.push('`');
        }
        self.path.push_str(name);
        self.value(sink)?;
        self.path.truncate(length);
        Ok(())
    }

    fn object(&mut self, sink: &mut dyn Sink) -> Result<()> {
        let start = self.tokens.offset();
        let mut typed = Typed::default();
        while let Some(key) = self.tokens.key()? {
            match key.as_str() {
                "_type" => {
                    let at = self.tokens.offset();
                    typed.kind = match self.tokens.value()? {
                        Token::Text(kind) => Some((at, kind)),
                        _ => return Err(self.trouble(at, "a type in quotes")),
                    };
                }
                "_value" => typed.value = Some(self.skipped()?),
                "_ts" => typed.ts = Some(self.skipped()?),
                _ => self.below(&key, sink)?,
            }
        }
        let Typed { kind, value, ts } = typed;
        let read = match (kind, value) {
            (Some(kind), Some(value)) => self.typed(kind, value, ts, sink),
            (None, None) => return Ok(()),
            (Some((at, _)), None) => Err(self.trouble(at, "a _value beside _type")),
            (None, Some((at, _))) => Err(self.trouble(at.max(start), "a _type beside _value")),
        };
        // The document goes on behind a value that its type does not allow.
        if let Err(trouble) = read {
            self.stop |= sink.trouble(trouble).is_break();
        }
        Ok(())
    }

    /// Where a value stands, which is passed over.
    fn skipped(&mut self) -> Result<(usize, usize)> {
        let start = self.tokens.offset();
        self.tokens.skip()?;
        Ok((start, self.tokens.offset()))
    }

    fn typed(
        &mut self,
        (kind_at, kind): (usize, String),
        value: (usize, usize),
        ts: Option<(usize, usize)>,
        sink: &mut dyn Sink,
    ) -> Result<()> {
        let end = ts.map(|ts| self.milliseconds(ts)).transpose()?;
        let value = match kind.as_str() {
            "i" => self.integer(
                value,
                "a whole number from -2^31 to 2^31 - 1",
                i32::MIN.into(),
                i32::MAX.into(),
            )?,
            "I" => self.integer(value, "a whole number from 0 to 2^32 - 1", 0, u32::MAX.into())?,
            "l" => self.integer(
                value,
                "a whole number from -2^63 to 2^63 - 1",
                i64::MIN.into(),
                i64::MAX.into(),
            )?,
            "L" => self.integer(value, "a whole number from 0 to 2^64 - 1", 0, u64::MAX.into())?,
            "n" => {
                let text = self.scalar(value, "a number")?;
                let number = number::parse(text.trim().as_bytes());
                Value::Number(number.ok_or_else(|| self.trouble(value.0, "a number"))?)
            }
            "s" => Value::Text(self.scalar(value, "a string")?),
            "h" => {
                for histogram in self.histograms(value)? {
                    self.reading(Value::Histogram(Box::new(histogram)), end, sink);
                }
                return Ok(());
            }
            _ => return Err(self.trouble(kind_at, "a type: one of i I l L n s h")),
        };
        self.reading(value, end, sink);
        Ok(())
    }

    fn integer(
        &self,
        at: (usize, usize),
        expected: &'static str,
        least: i128,
        greatest: i128,
    ) -> Result<Value> {
        let number: Option<i128> = self.scalar(at, expected)?.trim().parse().ok();
        number
            .filter(|number| (least..=greatest).contains(number))
            .map(Value::Integer)
            .ok_or_else(|| self.trouble(at.0, expected))
    }

    fn milliseconds(&self, at: (usize, usize)) -> Result<i64> {
        const EXPECTED: &str = "milliseconds since 1970";
        let text = self.scalar(at, EXPECTED)?;
        number::parse_scaled(text.trim().as_bytes(), (1, 6))
            .filter(|ns| ns.abs() < i64::MAX as f64)
            .map(|ns| ns as i64)
            .ok_or_else(|| self.trouble(at.0, EXPECTED))
    }

    /// A number or a string, as text.
    fn scalar(&self, (start, end): (usize, usize), expected: &'static str) -> Result<String> {
        match Tokens::new(&self.bytes[start..end]).value()? {
            Token::Number(text) => Ok(text.to_owned()),
            Token::Text(text) => Ok(text),
            _ => Err(self.trouble(start, expected)),
        }
    }

    /// Samples are topdeck's own recording; bins and base64 keep their grid. A list may hold both.
    fn histograms(&self, (start, end): (usize, usize)) -> Result<Vec<Histogram>> {
        const EXPECTED: &str =
            "a histogram: samples, bins like \"H[1.2]=3\", or base64 of circllhist";
        let mut tokens = Tokens::new(&self.bytes[start..end]);
        let decoded = |at: usize, text: &str| {
            circllhist::decode(text).map_err(|error| {
                let found = format!("{} ({error})", quote(text.as_bytes()));
                Trouble::new(Place::Byte((start + at) as u64), EXPECTED, found)
            })
        };
        match tokens.value()? {
            Token::Text(text) => return Ok(vec![decoded(0, &text)?]),
            Token::Number(text) => {
                let mut samples = Histogram::default();
                samples.record(double(text));
                return Ok(vec![samples]);
            }
            Token::Array => {}
            _ => return Err(self.trouble(start, EXPECTED)),
        }
        let (mut samples, mut bins) = (Histogram::default(), None::<Histogram>);
        while tokens.element()? {
            let at = tokens.offset();
            match tokens.value()? {
                Token::Number(text) => samples.record(double(text)),
                Token::Text(text) => match number::parse(text.trim().as_bytes()) {
                    Some(sample) => samples.record(sample),
                    None => {
                        let bin = decoded(at, &text)?;
                        let merged = bins.as_mut().map_or(Ok(()), |bins| bins.merge(&bin));
                        merged.map_err(|_| self.trouble(start + at, "counts below 2^64 in all"))?;
                        bins.get_or_insert(bin);
                    }
                },
                _ => return Err(self.trouble(start + at, EXPECTED)),
            }
        }
        let only_bins = bins.is_some() && samples.count() == 0 && samples.nan_count() == 0;
        Ok((!only_bins).then_some(samples).into_iter().chain(bins).collect())
    }

    fn reading(&self, value: Value, end: Option<i64>, sink: &mut dyn Sink) {
        sink.reading(Reading { metric: self.path.clone(), start: end, end, ..Reading::new(value) });
    }

    fn trouble(&self, at: usize, expected: &'static str) -> Trouble {
        let rest = &self.bytes[at..];
        let end = rest.iter().position(|b| b",}]\n".contains(b)).unwrap_or(rest.len());
        Trouble::new(Place::Byte(at as u64), expected, quote(&rest[..end]))
    }
}

fn double(text: &str) -> f64 {
    number::parse(text.as_bytes()).expect("BUG: every JSON number is a number")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Recorded;

    #[track_caller]
    fn check(text: &str, expected: &[&str], troubles: &[&str]) {
        let mut sink = Recorded::default();
        read(text.as_bytes(), &mut sink);
        assert_eq!(sink.shown().lines().collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(sink.troubles(), troubles, "{text}");
    }

    #[test]
    fn plain_values_and_nested_names() {
        check(
            r#"{"number":1.23,"text":"x","container":{"key1":1},"array":[1,2,{"crazy":"like a fox"}]}"#,
            &[
                "number number 1.23",
                "text text \"x\"",
                "container`key1 number 1",
                "array`0 number 1",
                "array`1 number 2",
                "array`2`crazy text \"like a fox\"",
            ],
            &[],
        );
        check("7", &[" number 7"], &[]);
        check(r#"{"a":null,"b":true}"#, &[], &[]);
    }

    #[test]
    fn typed_values() {
        check(r#"{"a":{"_type":"i","_value":-5}}"#, &["a integer -5"], &[]);
        check(r#"{"a":{"_value":"4294967295","_type":"I"}}"#, &["a integer 4294967295"], &[]);
        check(
            r#"{"a":{"_type":"l","_value":"-9223372036854775808"}}"#,
            &["a integer -9223372036854775808"],
            &[],
        );
        check(
            r#"{"a":{"_type":"L","_value":18446744073709551615}}"#,
            &["a integer 18446744073709551615"],
            &[],
        );
        check(r#"{"a":{"_type":"n","_value":"1.5"}}"#, &["a number 1.5"], &[]);
        check(
            r#"{"a":{"_type":"s","_value":"1.5","_ts":1500}}"#,
            &["a text \"1.5\" @Some(1500000000)..Some(1500000000)"],
            &[],
        );
        check(
            r#"{"a":{"_type":"n","_value":1,"more":2}}"#,
            &["a`more number 2", "a number 1"],
            &[],
        );
    }

    #[test]
    fn histograms() {
        check(
            r#"{"a":{"_type":"h","_value":["H[0.1]=3","H[11]=7"]}}"#,
            &["a histogram of 10: 0.1000..0.1100=3 11.0000..12.0000=7 sum None"],
            &[],
        );
        check(
            r#"{"a":{"_type":"h","_value":"AAEKAAAB","_ts":1}}"#,
            &["a histogram of 1: 1.0000..1.1000=1 sum None @Some(1000000)..Some(1000000)"],
            &[],
        );
        let mut sink = Recorded::default();
        read(br#"{"a":{"_type":"h","_value":[123,123,"234"]}}"#, &mut sink);
        let Value::Histogram(histogram) = &sink.readings[0].value else { panic!("a histogram") };
        assert_eq!((histogram.count(), histogram.sum_side().value().unwrap().value()), (3, 480.0));
        check(r#"{"a":{"_type":"h","_value":[]}}"#, &["a histogram of 0: sum Some(0.0)"], &[]);
    }

    #[test]
    fn repeated_keys_and_documents_one_after_another() {
        check("{\"a\":1,\"a\":2}\n{\"a\":3}", &["a number 1", "a number 2", "a number 3"], &[]);
    }

    #[test]
    fn what_stands_before_a_syntax_error_is_kept() {
        check(
            r#"{"a":1,"b":{"_type":"h","_value":["H[1]=1"]},"c":oops}"#,
            &["a number 1", "b histogram of 1: 1.0000..1.1000=1 sum None"],
            &["byte 49: expected a JSON value, found \"oops}\""],
        );
    }

    #[test]
    fn values_against_their_type_are_named_and_the_rest_is_read() {
        check(
            r#"{"a":{"_type":"i","_value":2147483648},"b":1}"#,
            &["b number 1"],
            &["byte 27: expected a whole number from -2^31 to 2^31 - 1, found \"2147483648\""],
        );
        check(
            r#"{"a":{"_type":"x","_value":1}}"#,
            &[],
            &["byte 14: expected a type: one of i I l L n s h, found \"\"x\"\""],
        );
        check(
            r#"{"a":{"_type":"n"}}"#,
            &[],
            &["byte 14: expected a _value beside _type, found \"\"n\"\""],
        );
        check(
            r#"{"a":{"_type":"L","_value":-1}}"#,
            &[],
            &["byte 27: expected a whole number from 0 to 2^64 - 1, found \"-1\""],
        );
        let mut sink = Recorded::default();
        read(br#"{"a":{"_type":"h","_value":["H[x]=1"]},"b":1}"#, &mut sink);
        assert_eq!((sink.readings.len(), sink.troubles[0].place), (1, Place::Byte(28)));
    }
}

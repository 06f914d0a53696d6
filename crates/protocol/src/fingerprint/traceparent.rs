//! `traceparent` of W3C Trace Context in the comment of a statement, as sqlcommenter writes it:
//! `/*traceparent='00-...-01'*/`.

/// Length of a value: version, trace, span, flags.
const LENGTH: usize = 55;
const KEY: &str = "traceparent=";

/// The value in a comment at the end or at the start of a statement.
pub(crate) fn traceparent_of_comment(statement: &str) -> Option<&str> {
    let statement = statement.trim_ascii();
    let statement = statement.strip_suffix(';').unwrap_or(statement).trim_ascii_end();
    let comment = match statement.strip_suffix("*/").and_then(|text| text.rsplit_once("/*")) {
        Some((_, comment)) => comment,
        None => statement.strip_prefix("/*")?.split_once("*/")?.0,
    };
    let (before, value) = comment.split_once(KEY)?;
    // The end of another key is not the key.
    if before.ends_with(|last: char| last.is_ascii_alphanumeric() || last == '_') {
        return None;
    }
    let value = value.strip_prefix("%27").or(value.strip_prefix('\'')).unwrap_or(value);
    parse_traceparent(value.get(..LENGTH)?)
}

/// The text, if it is a value of `traceparent`.
pub(crate) fn parse_traceparent(text: &str) -> Option<&str> {
    let is_part = |(at, byte): (usize, u8)| match at {
        2 | 35 | 52 => byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    let is_valid = text.len() == LENGTH && text.bytes().enumerate().all(is_part);
    is_valid.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01";

    #[test]
    fn values_are_found_in_comments() {
        for text in [
            "select 1 /*a='b',traceparent='V',z='c'*/",
            "/*traceparent='V'*/ select 1;",
            "select 1 /*traceparent=%27V%27*/ ; ",
        ] {
            let text = text.replace('V', VALUE);
            assert_eq!(traceparent_of_comment(&text), Some(VALUE), "{text}");
        }
        for text in [
            "select 'traceparent=V'",
            "select 1 /*xtraceparent='V'*/",
            "select 1 /*traceparent='00-5bd'*/",
            "",
            "*/",
        ] {
            let text = text.replace('V', VALUE);
            assert_eq!(traceparent_of_comment(&text), None, "{text}");
        }
        assert_eq!(parse_traceparent(&VALUE.to_uppercase()), None);
    }
}

//! Bearer token header.

use http::HeaderValue;
use http::header::InvalidHeaderValue;

/// What `Authorization` says of a token. It is in no debugging output.
pub fn bearer(token: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_marked_sensitive() {
        let value = bearer("secret").unwrap();
        assert_eq!(value, "Bearer secret");
        assert!(!format!("{value:?}").contains("secret"));
        assert!(bearer("two\nlines").is_err());
    }
}

//! Bearer token header.

use http::HeaderValue;
use http::header::InvalidHeaderValue;

/// Value of `Authorization` for a token, marked as sensitive so that debug output omits it.
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

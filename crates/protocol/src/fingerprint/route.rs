//! Templates of URL paths: `/users/123` is `/users/{n}`.
//!
//! Rules of the user are templates themselves (`/shop/{name}/items`) and come first: `{...}` and
//! `*` are any one segment, and `{...*}` at the end any number of them. Without a rule, segments
//! that look like an identifier are replaced:
//!
//! | segment, or its part between `-_.~,;:=` | template |
//! |---|---|
//! | digits | `{n}` |
//! | 8 or more hexadecimal digits with a decimal digit | `{hex}` |
//!
//! | segment | template |
//! |---|---|
//! | UUID, or 32 hexadecimal digits | `{uuid}` |
//! | a part of 20 or more characters, and a decimal digit anywhere | `{token}` |
//! | 64 or more characters, `@` or `%40` | `{token}` |

/// Segments of a path beyond this number are `{rest*}`.
const SEGMENTS_MAX: usize = 32;

/// Rules of the user.
#[derive(Clone, Debug, Default)]
pub struct RouteTemplates {
    rules: Vec<String>,
}

impl RouteTemplates {
    /// Rules, most important first. The error says which one is invalid.
    pub fn new(rules: Vec<String>) -> Result<RouteTemplates, String> {
        for rule in &rules {
            check_rule(rule)?;
        }
        Ok(RouteTemplates { rules })
    }

    /// Replaces `out` by the template of a path.
    pub fn write(&self, path: &str, out: &mut String) {
        out.clear();
        if let Some(rule) = self.rules.iter().find(|rule| matches(rule, path)) {
            return out.push_str(rule);
        }
        for (count, segment) in path.split('/').enumerate() {
            if count > 0 {
                out.push('/');
            }
            if count > SEGMENTS_MAX {
                return out.push_str("{rest*}");
            }
            push_segment(segment, out);
        }
    }
}

fn check_rule(rule: &str) -> Result<(), String> {
    let Some(rest) = rule.strip_prefix('/') else {
        return Err(format!("route {rule:?} does not start with /"));
    };
    let mut segments = rest.split('/').peekable();
    while let Some(segment) = segments.next() {
        let is_wildcard = segment.starts_with('{') && segment.ends_with('}');
        if segment.contains(['{', '}']) && !is_wildcard {
            return Err(format!(
                "segment {segment:?} of route {rule:?} is only in part a {{name}}"
            ));
        }
        if segment.ends_with("*}") && segments.peek().is_some() {
            return Err(format!("segment {segment:?} of route {rule:?} is not the last"));
        }
    }
    Ok(())
}

fn matches(rule: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    for expected in rule.split('/') {
        if expected.ends_with("*}") {
            return true;
        }
        match segments.next() {
            Some(segment) if is_any_segment(expected) && !segment.is_empty() => {}
            Some(segment) if expected == segment => {}
            _ => return false,
        }
    }
    segments.next().is_none()
}

fn is_any_segment(expected: &str) -> bool {
    expected == "*" || expected.starts_with('{')
}

fn push_segment(segment: &str, out: &mut String) {
    let bytes = segment.as_bytes();
    // An e-mail address.
    let has_at = bytes.contains(&b'@') || segment.contains("%40");
    if !bytes.iter().any(u8::is_ascii_digit) && bytes.len() < 64 && !has_at {
        return out.push_str(segment);
    }
    if bytes.iter().all(u8::is_ascii_digit) {
        return out.push_str("{n}");
    }
    if is_uuid(bytes) {
        return out.push_str("{uuid}");
    }
    if bytes.len() >= 8 && bytes.iter().all(u8::is_ascii_hexdigit) {
        return out.push_str("{hex}");
    }
    let is_separator = |c: char| "-_.~,;:=".contains(c);
    let has_long_part = segment.split(is_separator).any(|part| part.len() >= 20);
    let is_long = bytes.len() >= 64 || has_long_part;
    if is_long || has_at {
        return out.push_str("{token}");
    }
    for part in segment.split_inclusive(is_separator) {
        let name = part.trim_end_matches(is_separator);
        if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
            out.push_str("{n}");
            out.push_str(&part[name.len()..]);
        } else if name.len() >= 8
            && name.bytes().all(|byte| byte.is_ascii_hexdigit())
            && name.bytes().any(|byte| byte.is_ascii_digit())
        {
            out.push_str("{hex}");
            out.push_str(&part[name.len()..]);
        } else {
            out.push_str(part);
        }
    }
}

fn is_uuid(bytes: &[u8]) -> bool {
    match bytes.len() {
        32 => bytes.iter().all(u8::is_ascii_hexdigit),
        36 => bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rules: &[&str], path: &str, expected: &str) {
        let rules = rules.iter().map(|rule| (*rule).to_owned()).collect();
        let mut out = "before".to_owned();
        RouteTemplates::new(rules).unwrap().write(path, &mut out);
        assert_eq!(out, expected, "{path}");
    }

    #[test]
    fn identifiers_are_replaced() {
        for (path, expected) in [
            ("/", "/"),
            ("/users/123", "/users/{n}"),
            ("/users/123/orders/4/", "/users/{n}/orders/{n}/"),
            ("/api/v1/users", "/api/v1/users"),
            ("/a/123e4567-e89b-12d3-a456-426614174000/b", "/a/{uuid}/b"),
            ("/a/123e4567e89b12d3a456426614174000", "/a/{uuid}"),
            ("/commit/9fceb02d0ae598e95dc970b74767f19372d61af8", "/commit/{hex}"),
            ("/commit/9fceb02", "/commit/9fceb02"),
            ("/facade/deadbeef", "/facade/deadbeef"),
            ("/order-12345/2024-01-31.pdf", "/order-{n}/{n}-{n}-{n}.pdf"),
            ("/t/eyJhbGciOiJIUzI1NiIsInR5cCI6", "/t/{token}"),
            ("/u/a@b.example", "/u/{token}"),
            ("/u/john.doe%40b.example", "/u/{token}"),
            ("*", "*"),
            ("", ""),
        ] {
            check(&[], path, expected);
        }
        let long = "/a".repeat(100);
        check(&[], &long, &["/a".repeat(SEGMENTS_MAX), "/{rest*}".to_owned()].concat());
        check(&[], &format!("/{}", "x".repeat(64)), "/{token}");
    }

    #[test]
    fn rules_come_first() {
        let rules = ["/shop/{name}/items", "/static/{file*}", "/users/me", "/users/*/orders"];
        check(&rules, "/shop/books/items", "/shop/{name}/items");
        check(&rules, "/shop/books/items/1", "/shop/books/items/{n}");
        check(&rules, "/shop//items", "/shop//items");
        check(&rules, "/static/a/b/1.js", "/static/{file*}");
        check(&rules, "/users/me", "/users/me");
        check(&rules, "/users/ann/orders", "/users/*/orders");
        check(&rules, "/users//orders", "/users//orders");
        check(&rules, "/users/ann/orders/2", "/users/ann/orders/{n}");
        for rule in ["shop", "/a{b}", "/{a*}/b", "/a}"] {
            assert!(RouteTemplates::new(vec![rule.to_owned()]).is_err(), "{rule}");
        }
    }
}

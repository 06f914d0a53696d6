//! Enrollment tokens (kubeadm: bootstrap tokens): a host exchanges one for a token of its own.
//!
//! An exchange replaces the token file once, with the use counted and the host's token added.
//! Whatever a crash leaves, a use was counted exactly if a host's token exists.

use std::path::Path;

use super::{Credential, NAME_BYTES_MAX, Scope, Token, TokenError, TokenFile, new_secret};

/// Longest name of a host that is kept; the rest is for a number that makes it unique.
const HOST_BYTES_MAX: usize = NAME_BYTES_MAX - 8;
/// Seconds for which an expired enrollment token is listed.
const EXPIRED_LISTED_S: i64 = 7 * 86_400;

/// Terms of an enrollment token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnrollmentTerms {
    /// Expiry, in seconds since the Unix epoch.
    pub expires_s: i64,
    /// Number of hosts that may still enroll.
    pub uses_left: u32,
}

/// Result of an enrollment: the token of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnrolledHost {
    pub(crate) name: String,
    pub(crate) secret: String,
}

/// Reason why a host cannot enroll.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnrollmentError {
    /// No enrollment token has this secret. The client is to blame.
    #[error("unknown enrollment token; create one on the server with `topdeck token DIR enroll`")]
    Unknown,
    /// The token has expired. The client is to blame.
    #[error(
        "enrollment token {0} has expired; create one on the server with `topdeck token DIR \
         enroll`"
    )]
    Expired(String),
    /// All its uses are spent. The client is to blame.
    #[error(
        "enrollment token {0} has no uses left; create one on the server with `topdeck token DIR \
         enroll`, for several hosts with --uses N"
    )]
    UsedUp(String),
    /// The server's file cannot be changed.
    #[error(transparent)]
    File(#[from] TokenError),
}

impl TokenFile {
    /// Creates an enrollment token and removes those that expired long ago. Returns the secret,
    /// which is not stored.
    pub fn add_enrollment(
        &mut self,
        name: &str,
        terms: EnrollmentTerms,
        now_s: i64,
    ) -> Result<String, TokenError> {
        let (secret, credential) = new_secret();
        let token = Token::new(name, &[Scope::Enroll], credential, now_s);
        self.update(|tokens| {
            let is_listed =
                |terms: EnrollmentTerms| terms.expires_s.saturating_add(EXPIRED_LISTED_S) > now_s;
            tokens.tokens.retain(|token| token.enrollment.is_none_or(is_listed));
            tokens.insert(Token { enrollment: Some(terms), ..token })?;
            Ok::<_, TokenError>(true)
        })?;
        Ok(secret)
    }

    /// Exchanges the secret of an enrollment token for a token of a host, with the scope `ingest`.
    /// Its name is that of the host, made unique and valid.
    pub(crate) fn enroll(
        &mut self,
        secret: &[u8],
        host: &str,
        now_s: i64,
    ) -> Result<EnrolledHost, EnrollmentError> {
        let (own_secret, credential) = new_secret();
        let mut enrolled = None;
        self.update(|tokens| {
            let found = tokens.find_by_secret(secret).map(|token| token.name.clone());
            let found = found.ok_or(EnrollmentError::Unknown)?;
            let token = tokens.tokens.iter_mut().find(|token| token.name == found);
            let terms = token.and_then(|token| token.enrollment.as_mut());
            let terms = terms.ok_or(EnrollmentError::Unknown)?;
            if terms.expires_s <= now_s {
                return Err(EnrollmentError::Expired(found));
            }
            if terms.uses_left == 0 {
                return Err(EnrollmentError::UsedUp(found));
            }
            terms.uses_left -= 1;
            let name = tokens.unique_name(host);
            let token = Token::new(&name, &[Scope::Ingest], credential, now_s);
            tokens.insert(Token { enrolled_by: Some(found), ..token })?;
            enrolled = Some(EnrolledHost { name, secret: own_secret });
            Ok(true)
        })?;
        Ok(enrolled.expect("BUG: the change was made"))
    }

    /// Removes the token of a host that enrolled, and gives the use of its enrollment token back if
    /// the host did not use its own, which is asked only then. Returns whether it did.
    pub(crate) fn unenroll(
        &mut self,
        name: &str,
        was_used: impl FnOnce() -> bool,
    ) -> Result<bool, TokenError> {
        self.update(|tokens| {
            let is_host = |token: &Token| token.name == name && token.enrolled_by.is_some();
            let Some(at) = tokens.tokens.iter().position(is_host) else { return Ok(false) };
            let was_used = was_used();
            let Token { enrolled_by, created_s, .. } = tokens.tokens.remove(at);
            // A later token of that name is another one.
            let is_its = |token: &&mut Token| {
                Some(&token.name) == enrolled_by.as_ref() && token.created_s <= created_s
            };
            let enrollment = tokens.tokens.iter_mut().find(is_its);
            let terms = enrollment.and_then(|token| token.enrollment.as_mut());
            if let Some(terms) = terms.filter(|_| !was_used) {
                terms.uses_left = terms.uses_left.saturating_add(1);
            }
            Ok(true)
        })
    }

    /// File of the tokens.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn unique_name(&self, host: &str) -> String {
        let valid = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
        let mut base: String = host.chars().map(valid).take(HOST_BYTES_MAX).collect();
        if base.is_empty() {
            base.push_str("host");
        }
        let is_free = |name: &String| self.tokens.iter().all(|token| token.name != *name);
        let numbered = (2..).map(|n: u64| format!("{base}.{n}"));
        let mut names = std::iter::once(base.clone()).chain(numbered);
        names.find(is_free).expect("BUG: the numbers are endless")
    }
}

/// Fields of a line after the creation time.
pub(super) fn parse_fields(
    fields: &[&str],
) -> Result<(Option<EnrollmentTerms>, Option<String>), String> {
    let (mut expires, mut uses, mut enrolled_by) = (None, None, None);
    for field in fields {
        let invalid = || format!("expected expires=, uses= or enrolled-by=, found {field:?}");
        let (key, value) = field.split_once('=').ok_or_else(invalid)?;
        match key {
            "expires" => expires = Some(value.parse().map_err(|_| invalid())?),
            "uses" => uses = Some(value.parse().map_err(|_| invalid())?),
            "enrolled-by" => enrolled_by = Some(value.to_owned()),
            _ => return Err(invalid()),
        }
    }
    let terms = match (expires, uses) {
        (Some(expires_s), Some(uses_left)) => Some(EnrollmentTerms { expires_s, uses_left }),
        (None, None) => None,
        _ => return Err("expires and uses require each other".to_owned()),
    };
    Ok((terms, enrolled_by))
}

/// Enrollment tokens have this scope only, expiry and uses; other tokens have none of them.
pub(super) fn check_terms(token: &Token) -> Result<(), String> {
    let can_enroll = token.scopes.contains(&Scope::Enroll);
    let is_secret = matches!(token.credential, Credential::Secret(_));
    match (can_enroll, token.enrollment) {
        (true, None) => Err("scope enroll requires expires and uses; create the token with \
                             `topdeck token DIR enroll`"
            .to_owned()),
        (true, Some(_)) if token.scopes.len() > 1 => {
            Err("scope enroll cannot be combined with other scopes".to_owned())
        }
        (true, Some(_)) if !is_secret => {
            Err("scope enroll cannot be granted to a certificate".to_owned())
        }
        (false, Some(_)) => Err("expires and uses require the scope enroll".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const CREATED_S: i64 = 1_000;

    struct TokenDir(PathBuf);

    impl TokenDir {
        fn new() -> TokenDir {
            let name = format!("topdeck-enrollment-{:x}", journal::random_id());
            let dir = std::env::temp_dir().join(name);
            std::fs::create_dir(&dir).unwrap();
            TokenDir(dir)
        }

        /// As after a start: everything is read from the file.
        fn open(&self) -> TokenFile {
            TokenFile::open(&self.0.join("tokens")).unwrap()
        }

        fn add(&self, uses_left: u32) -> String {
            let terms = EnrollmentTerms { expires_s: CREATED_S + 60, uses_left };
            self.open().add_enrollment("e", terms, CREATED_S).unwrap()
        }
    }

    impl Drop for TokenDir {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[track_caller]
    fn check(dir: &TokenDir, secret: &str, host: &str, now_s: i64, expected: Result<&str, &str>) {
        let found = dir.open().enroll(secret.as_bytes(), host, now_s);
        let found = found.map(|host| host.name).map_err(|error| error.to_string());
        match (&found, expected) {
            (Ok(name), Ok(expected)) => assert_eq!(name, expected),
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            _ => panic!("{found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn a_use_counts_once_and_outlives_a_restart() {
        let dir = TokenDir::new();
        let secret = dir.add(2);
        check(&dir, &secret, "web-1", CREATED_S, Ok("web-1"));
        check(&dir, &secret, "web-1", CREATED_S, Ok("web-1.2"));
        check(&dir, &secret, "web-2", CREATED_S, Err("token e has no uses left"));
        let read = dir.open();
        let enrolled: Vec<_> = read.tokens().iter().map(|token| &token.enrolled_by).collect();
        assert_eq!(enrolled, [&None, &Some("e".to_owned()), &Some("e".to_owned())]);
        let text = std::fs::read_to_string(read.path()).unwrap();
        assert!(!text.contains(&secret[3..]), "the file has a secret");
    }

    #[test]
    fn expired_revoked_and_unknown_tokens_enroll_nobody() {
        let dir = TokenDir::new();
        let secret = dir.add(1);
        check(&dir, &secret, "a", CREATED_S + 60, Err("token e has expired"));
        check(&dir, &secret[1..], "a", CREATED_S, Err("unknown enrollment token"));
        // A token of another kind is no enrollment token.
        let other = dir.open().add("web", &[Scope::Ingest], CREATED_S).unwrap();
        check(&dir, &other, "a", CREATED_S, Err("unknown enrollment token"));
        assert!(dir.open().remove("e").unwrap());
        check(&dir, &secret, "a", CREATED_S, Err("unknown enrollment token"));
        assert_eq!(dir.open().tokens().len(), 1);
    }

    #[test]
    fn concurrent_hosts_get_no_more_tokens_than_uses() {
        let dir = TokenDir::new();
        let secret = dir.add(3);
        let enrolled = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let host = dir.open().enroll(secret.as_bytes(), "web", CREATED_S);
                    enrolled.fetch_add(u32::from(host.is_ok()), Ordering::Relaxed);
                });
            }
        });
        assert_eq!(enrolled.into_inner(), 3);
        let names: Vec<String> = dir.open().tokens().iter().map(|it| it.name.clone()).collect();
        assert_eq!(names, ["e", "web", "web.2", "web.3"]);
    }

    #[test]
    fn hosts_with_any_name_get_a_valid_token_name() {
        let dir = TokenDir::new();
        let secret = dir.add(9);
        check(&dir, &secret, "db 1/ä", CREATED_S, Ok("db-1--"));
        check(&dir, &secret, "", CREATED_S, Ok("host"));
        check(&dir, &secret, &"a".repeat(300), CREATED_S, Ok(&"a".repeat(HOST_BYTES_MAX)));
    }

    #[test]
    fn only_an_enrolled_host_removes_its_token() {
        let dir = TokenDir::new();
        let secret = dir.add(1);
        dir.open().add("web", &[Scope::Ingest], CREATED_S).unwrap();
        check(&dir, &secret, "a", CREATED_S, Ok("a"));
        let unenroll = |name: &str| dir.open().unenroll(name, || true).unwrap();
        assert!(!unenroll("web") && !unenroll("e"));
        let unasked = || panic!("nobody asks whether it was used");
        assert!(!dir.open().unenroll("web", unasked).unwrap());
        assert!(unenroll("a") && !unenroll("a"));
    }

    #[test]
    fn a_use_is_given_back_by_a_host_that_sent_nothing() {
        let dir = TokenDir::new();
        let secret = dir.add(1);
        check(&dir, &secret, "a", CREATED_S, Ok("a"));
        assert!(dir.open().unenroll("a", || false).unwrap());
        check(&dir, &secret, "b", CREATED_S, Ok("b"));
        assert!(dir.open().unenroll("b", || true).unwrap());
        check(&dir, &secret, "c", CREATED_S, Err("token e has no uses left"));
        // That of a removed enrollment token is nobody's.
        let secret = {
            dir.open().remove("e").unwrap();
            dir.add(1)
        };
        check(&dir, &secret, "c", CREATED_S, Ok("c"));
        assert!(dir.open().remove("e").unwrap() && dir.open().unenroll("c", || false).unwrap());
        assert_eq!(dir.open().tokens(), []);
    }

    #[test]
    fn tokens_that_expired_long_ago_are_no_longer_listed() {
        let dir = TokenDir::new();
        dir.add(1);
        let (now, terms) = (
            CREATED_S + 60 + EXPIRED_LISTED_S,
            EnrollmentTerms { expires_s: i64::MAX / 2, uses_left: 1 },
        );
        dir.open().add_enrollment("soon", terms, now - 1).unwrap();
        assert_eq!(dir.open().tokens().len(), 2);
        dir.open().add_enrollment("later", terms, now).unwrap();
        let names: Vec<String> = dir.open().tokens().iter().map(|it| it.name.clone()).collect();
        assert_eq!(names, ["soon", "later"]);
    }
}

//! Token file: secrets and client certificates with scopes.
//!
//! The file has a line for each token, and never contains a secret:
//!
//! ```text
//! # name scopes credential created
//! web-team ingest,read blake3:3f…(64 hex digits) 1794906565
//! edge-1 ingest certificate:edge-1.example 1794906565
//! enroll-5c0e enroll blake3:91…(64 hex digits) 1794906565 expires=1794910165 uses=1
//! web-1 ingest blake3:07…(64 hex digits) 1794906601 enrolled-by=enroll-5c0e
//! ```
//! Times are in seconds since the Unix epoch. A secret has 256 random bits, so that a plain hash
//! protects it.

mod enrollment;

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

use subtle::ConstantTimeEq as _;

pub use self::enrollment::EnrollmentTerms;
pub(crate) use self::enrollment::{EnrolledHost, EnrollmentError};

/// Scope of a token; scopes do not imply each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Permission to send measurements.
    Ingest,
    /// Permission to query.
    Read,
    /// Permission to change stored data, and to create snapshots.
    Admin,
    /// Permission to acknowledge and silence alerts, and to send alerts.
    Alerts,
    /// Permission to read exemplars, whose attributes may be personal.
    Exemplars,
    /// Permission to exchange the token for one of a host.
    Enroll,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Scope; 6] =
        [Scope::Ingest, Scope::Read, Scope::Admin, Scope::Alerts, Scope::Exemplars, Scope::Enroll];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Ingest => "ingest",
            Scope::Read => "read",
            Scope::Admin => "admin",
            Scope::Alerts => "alerts",
            Scope::Exemplars => "exemplars",
            Scope::Enroll => "enroll",
        }
    }

    /// The scope of a name.
    pub fn parse(text: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.name() == text)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Credential: secret hash or certificate name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// A secret with this BLAKE3 hash.
    Secret([u8; 32]),
    /// A client certificate with this name, as common name or subject alternative name.
    Certificate(String),
}

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its name: letters, digits, `.`, `_`, `-`; also in the ledger, as a part of producer names.
    pub name: String,
    /// Its scopes.
    pub scopes: Vec<Scope>,
    /// Its credential.
    pub credential: Credential,
    /// Creation time, in seconds since the Unix epoch.
    pub created_s: i64,
    /// Expiry and uses, of tokens with the scope [`Scope::Enroll`] only.
    pub enrollment: Option<EnrollmentTerms>,
    /// Name of the enrollment token that this token was issued for.
    pub enrolled_by: Option<String>,
}

/// Errors of reading or changing the token file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("cannot {action} the token file {}: {source}", path.display())]
    File {
        /// The failed action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A line is invalid.
    #[error("{}, line {line}: {message}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The error.
        message: String,
    },
    /// The requested change is invalid.
    #[error("{0}")]
    Invalid(String),
}

/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Prefix of secrets, so that scanners detect a leaked one.
const SECRET_PREFIX: &str = "td_";
/// Maximum file size in bytes: about 10,000 tokens.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// All tokens of a file.
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
    tokens: Vec<Token>,
}

impl TokenFile {
    /// Reads a file; a missing file has no tokens.
    pub fn open(path: &Path) -> Result<TokenFile, TokenError> {
        let error = |source| TokenError::File { action: "read", path: path.to_owned(), source };
        let text = match std::fs::metadata(path) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => String::new(),
            Err(other) => return Err(error(other)),
            Ok(found) if found.len() > FILE_BYTES_MAX => {
                return Err(error(io::Error::other("size limit (1 MiB) exceeded")));
            }
            Ok(_) => std::fs::read_to_string(path).map_err(error)?,
        };
        let mut tokens = TokenFile { path: path.to_owned(), tokens: Vec::new() };
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong =
                |what| TokenError::Line { path: path.to_owned(), line: at + 1, message: what };
            let token = parse_line(line).map_err(wrong)?;
            tokens.insert(token).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(tokens)
    }

    /// No tokens, and no file.
    pub(crate) fn empty() -> TokenFile {
        TokenFile { path: PathBuf::new(), tokens: Vec::new() }
    }

    /// All tokens, in file order.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Creates a token and adds it to the current file. Returns the secret, which is not stored: it
    /// cannot be shown again.
    pub fn add(&mut self, name: &str, scopes: &[Scope], now_s: i64) -> Result<String, TokenError> {
        let (secret, credential) = new_secret();
        self.push(Token::new(name, scopes, credential, now_s))?;
        Ok(secret)
    }

    /// Adds a client certificate name as a token, and writes the file.
    pub fn add_certificate(
        &mut self,
        name: &str,
        certificate: &str,
        scopes: &[Scope],
        now_s: i64,
    ) -> Result<(), TokenError> {
        let credential = Credential::Certificate(certificate.to_owned());
        self.push(Token::new(name, scopes, credential, now_s))
    }

    /// Deletes a token, and writes the file. Returns whether it existed.
    pub fn remove(&mut self, name: &str) -> Result<bool, TokenError> {
        self.update(|tokens| {
            let before = tokens.tokens.len();
            tokens.tokens.retain(|token| token.name != name);
            Ok(tokens.tokens.len() < before)
        })
    }

    /// The token of a secret. Compares with every token, in constant time.
    pub(crate) fn find_by_secret(&self, secret: &[u8]) -> Option<&Token> {
        let hash = blake3::hash(secret);
        let mut found = None;
        for token in &self.tokens {
            if let Credential::Secret(known) = &token.credential
                && bool::from(known.ct_eq(hash.as_bytes()))
            {
                found = Some(token);
            }
        }
        found
    }

    /// The token of a client certificate.
    pub(crate) fn find_by_certificate(&self, names: &[String]) -> Option<&Token> {
        self.tokens
            .iter()
            .find(|token| matches!(&token.credential, Credential::Certificate(name) if names.contains(name)))
    }

    fn insert(&mut self, token: Token) -> Result<(), TokenError> {
        check_token(&token).map_err(TokenError::Invalid)?;
        if self.tokens.iter().any(|known| known.name == token.name) {
            let name = token.name;
            return Err(TokenError::Invalid(format!("token {name} exists")));
        }
        self.tokens.push(token);
        Ok(())
    }

    fn push(&mut self, token: Token) -> Result<(), TokenError> {
        self.update(|tokens| tokens.insert(token).map(|()| true)).map(drop)
    }

    /// Changes the current file under a lock, and writes it if `change` returns true.
    fn update<E: From<TokenError>>(
        &mut self,
        change: impl FnOnce(&mut TokenFile) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let path = self.path.clone();
        let write =
            |source| E::from(TokenError::File { action: "write", path: path.clone(), source });
        // The lock is on the directory: a lock file would be another file shared by two users.
        let directory = File::open(parent_dir(&self.path)).map_err(write)?;
        directory.lock().map_err(write)?;
        let mut tokens = TokenFile::open(&self.path)?;
        let is_changed = change(&mut tokens)?;
        if is_changed {
            tokens.write(&directory).map_err(write)?;
        }
        *self = tokens;
        Ok(is_changed)
    }

    /// Replaces the file durably and atomically; only its owner can read the new one.
    fn write(&self, directory: &File) -> io::Result<()> {
        let mut text = "# name scopes credential created\n".to_owned();
        self.tokens.iter().for_each(|token| text.push_str(&format!("{token}\n")));
        // A longer file could not be read again.
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other("size limit (1 MiB) exceeded; remove tokens"));
        }
        let mut new = self.path.clone().into_os_string();
        new.push(format!(".{:032x}", journal::random_id()));
        let mut options = File::options();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&new)?;
        let written = set_owner(&file, &self.path, directory)
            .and_then(|()| file.write_all(text.as_bytes()))
            .and_then(|()| file.sync_all())
            .and_then(|()| std::fs::rename(&new, &self.path));
        if written.is_err() {
            // Cleanup; the write error is returned.
            let _ = std::fs::remove_file(&new);
        }
        written?;
        directory.sync_all()
    }
}

/// A secret and its credential.
fn new_secret() -> (String, Credential) {
    let (high, low) = (journal::random_id(), journal::random_id());
    let secret = format!("{SECRET_PREFIX}{high:032x}{low:032x}");
    let credential = Credential::Secret(*blake3::hash(secret.as_bytes()).as_bytes());
    (secret, credential)
}

/// Whether a text has the form of a secret.
pub(crate) fn is_secret(text: &str) -> bool {
    let digits = text.strip_prefix(SECRET_PREFIX).unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Token {
    fn new(name: &str, scopes: &[Scope], credential: Credential, created_s: i64) -> Token {
        Token {
            name: name.to_owned(),
            scopes: scopes.to_vec(),
            credential,
            created_s,
            enrollment: None,
            enrolled_by: None,
        }
    }
}

fn parent_dir(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

/// Keeps a file that root writes readable for topdeck's user: its owner becomes that of the old
/// file, or of the directory.
fn set_owner(file: &File, path: &Path, directory: &File) -> io::Result<()> {
    let made = file.metadata()?;
    if made.uid() != 0 {
        return Ok(());
    }
    let before = match std::fs::metadata(path) {
        Ok(before) => before,
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => directory.metadata()?,
        Err(error) => return Err(error),
    };
    // An earlier topdeck let root replace a user's file: root's ownership is not kept.
    let owner = if before.uid() == 0 { directory.metadata()? } else { before };
    match (owner.uid(), owner.gid()) == (made.uid(), made.gid()) {
        true => Ok(()),
        false => fchown(file, Some(owner.uid()), Some(owner.gid())),
    }
}

impl fmt::Display for Token {
    /// Its line in the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scopes: Vec<&str> = self.scopes.iter().map(|scope| scope.name()).collect();
        write!(f, "{} {} ", self.name, scopes.join(","))?;
        match &self.credential {
            Credential::Secret(hash) => write!(f, "blake3:{}", blake3::Hash::from(*hash).to_hex())?,
            Credential::Certificate(name) => write!(f, "certificate:{name}")?,
        }
        write!(f, " {}", self.created_s)?;
        if let Some(terms) = &self.enrollment {
            write!(f, " expires={} uses={}", terms.expires_s, terms.uses_left)?;
        }
        match &self.enrolled_by {
            Some(name) => write!(f, " enrolled-by={name}"),
            None => Ok(()),
        }
    }
}

fn parse_line(line: &str) -> Result<Token, String> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [name, scopes, proof, since, ref more @ ..] = fields[..] else {
        return Err(format!(
            "expected name, scopes, credential, created; found {} fields",
            fields.len()
        ));
    };
    let scope = |text: &str| {
        Scope::parse(text).ok_or_else(|| {
            format!("expected ingest, read, admin, alerts or exemplars, found {text:?}")
        })
    };
    let proof = if let Some(hash) = proof.strip_prefix("blake3:") {
        let hash = blake3::Hash::from_hex(hash);
        Credential::Secret(*hash.map_err(|_| "expected 64 hex digits after blake3:")?.as_bytes())
    } else if let Some(name) = proof.strip_prefix("certificate:") {
        Credential::Certificate(name.to_owned())
    } else {
        return Err(format!("expected blake3:… or certificate:…, found {proof:?}"));
    };
    let since_s = since.parse().map_err(|_| format!("expected seconds, found {since:?}"))?;
    let scopes = scopes.split(',').map(scope).collect::<Result<_, _>>()?;
    let (enrollment, enrolled_by) = enrollment::parse_fields(more)?;
    Ok(Token {
        name: name.to_owned(),
        scopes,
        credential: proof,
        created_s: since_s,
        enrollment,
        enrolled_by,
    })
}

fn check_token(token: &Token) -> Result<(), String> {
    let is_letter = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    let name = &token.name;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_letter) {
        return Err(format!(
            "invalid token name {name:?}: expected 1 to {NAME_BYTES_MAX} letters, digits, \".\", \
             \"_\", \"-\""
        ));
    }
    if token.scopes.is_empty() {
        return Err("a token requires a scope: ingest, read, admin, alerts or exemplars".to_owned());
    }
    enrollment::check_terms(token)?;
    match &token.credential {
        Credential::Certificate(name) if name.is_empty() || name.contains(char::is_whitespace) => {
            Err(format!("invalid certificate name {name:?}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_line(line: &str, expected: Result<&str, &str>) {
        let token = parse_line(line).and_then(|token| check_token(&token).map(|()| token));
        let shown = token.map(|token| token.to_string());
        assert_eq!(shown.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn a_file_that_could_not_be_read_again_is_not_written() {
        let name = format!("topdeck-token-limit-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir(&dir).unwrap();
        let line = format!("a ingest blake3:{} 5", "0f".repeat(32));
        let token = parse_line(&line).unwrap();
        let count = FILE_BYTES_MAX as usize / line.len() + 1;
        let tokens = TokenFile { path: dir.join("tokens"), tokens: vec![token; count] };
        let error = tokens.write(&File::open(&dir).unwrap()).unwrap_err().to_string();
        assert_eq!(error, "size limit (1 MiB) exceeded; remove tokens");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        std::fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn token_lines_round_trip() {
        let hash = "0f".repeat(32);
        let line = format!("a ingest,read blake3:{hash} 5");
        check_line(&line, Ok(&line));
        check_line("e.1 admin certificate:edge-1 7", Ok("e.1 admin certificate:edge-1 7"));
        let line = format!("e enroll blake3:{hash} 5 expires=65 uses=2");
        check_line(&line, Ok(&line));
        let line = format!("web-1 ingest blake3:{hash} 5 enrolled-by=e");
        check_line(&line, Ok(&line));
        check_line(
            &format!("e enroll blake3:{hash} 5"),
            Err(
                "scope enroll requires expires and uses; create the token with `topdeck token DIR \
                 enroll`",
            ),
        );
        check_line(
            &format!("e enroll,read blake3:{hash} 5 expires=65 uses=2"),
            Err("scope enroll cannot be combined with other scopes"),
        );
        check_line(
            &format!("e read blake3:{hash} 5 expires=65 uses=2"),
            Err("expires and uses require the scope enroll"),
        );
        check_line(
            &format!("e enroll blake3:{hash} 5 expires=65"),
            Err("expires and uses require each other"),
        );
        check_line(
            &format!("e read blake3:{hash} 5 color=red"),
            Err("expected expires=, uses= or enrolled-by=, found \"color=red\""),
        );
        check_line("a b", Err("expected name, scopes, credential, created; found 2 fields"));
        check_line("a b c 1", Err("expected blake3:… or certificate:…, found \"c\""));
        check_line(
            "a b certificate:x 1",
            Err("expected ingest, read, admin, alerts or exemplars, found \"b\""),
        );
        check_line("a read blake3:00 1", Err("expected 64 hex digits after blake3:"));
        check_line("a read certificate:x y", Err("expected seconds, found \"y\""));
        check_line(
            "a/b read certificate:x 1",
            Err(
                "invalid token name \"a/b\": expected 1 to 64 letters, digits, \".\", \"_\", \"-\"",
            ),
        );
    }

    #[test]
    fn token_file_stores_no_secret_and_finds_its_owner() {
        let dir = empty_dir();
        let path = dir.join("tokens");
        let mut tokens = TokenFile::open(&path).unwrap();
        let secret = tokens.add("web", &[Scope::Ingest], 3).unwrap();
        tokens.add_certificate("edge", "edge-1", &[Scope::Read, Scope::Admin], 4).unwrap();
        assert!(tokens.add("web", &[Scope::Read], 5).is_err());
        assert!(tokens.add("none", &[], 5).is_err());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&secret) && !text.contains(&secret[3..]));
        let mut read = TokenFile::open(&path).unwrap();
        assert_eq!(read.tokens(), tokens.tokens());
        assert_eq!(
            read.find_by_secret(secret.as_bytes()).map(|token| token.name.as_str()),
            Some("web")
        );
        assert_eq!(read.find_by_secret(&secret.as_bytes()[1..]), None);
        let names = ["x".to_owned(), "edge-1".to_owned()];
        assert_eq!(read.find_by_certificate(&names).map(|token| token.name.as_str()), Some("edge"));
        assert!(read.remove("web").unwrap() && !read.remove("web").unwrap());
        assert_eq!(TokenFile::open(&path).unwrap().find_by_secret(secret.as_bytes()), None);
        std::fs::write(&path, "# nothing\n\nweb read\n").unwrap();
        let error = TokenFile::open(&path).unwrap_err().to_string();
        assert!(
            error.ends_with("line 3: expected name, scopes, credential, created; found 2 fields"),
            "{error}"
        );
        std::fs::remove_dir_all(dir).unwrap();
    }

    fn empty_dir() -> PathBuf {
        let dir = std::env::temp_dir().join(format!("topdeck-tokens-{:x}", journal::random_id()));
        std::fs::create_dir(&dir).unwrap();
        dir
    }

    #[test]
    fn concurrent_writers_lose_no_token() {
        let dir = empty_dir();
        let path = dir.join("tokens");
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let mut tokens = TokenFile::open(&path).unwrap();
                scope.spawn(move || {
                    for n in 0..8 {
                        tokens.add(&format!("t{writer}.{n}"), &[Scope::Read], 1).unwrap();
                    }
                    assert!(tokens.remove(&format!("t{writer}.0")).unwrap());
                });
            }
        });
        assert_eq!(TokenFile::open(&path).unwrap().tokens().len(), 8 * 7);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "a temporary file is left");
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// Only root can change a file's owner: the test does nothing for other users.
    #[test]
    fn file_written_by_root_keeps_its_owner() {
        let dir = empty_dir();
        let path = dir.join("tokens");
        let owner = || {
            let found = std::fs::metadata(&path).unwrap();
            (found.uid(), found.gid(), found.mode() & 0o777)
        };
        if std::os::unix::fs::chown(&dir, Some(65_534), Some(65_533)).is_ok() {
            let mut tokens = TokenFile::open(&path).unwrap();
            tokens.add("one", &[Scope::Read], 1).unwrap();
            assert_eq!(owner(), (65_534, 65_533, 0o600));
            std::os::unix::fs::chown(&path, Some(65_532), Some(65_531)).unwrap();
            tokens.add("two", &[Scope::Read], 1).unwrap();
            assert_eq!(owner(), (65_532, 65_531, 0o600));
            // As root left it in earlier versions.
            std::os::unix::fs::chown(&path, Some(0), Some(0)).unwrap();
            assert!(tokens.remove("one").unwrap());
            assert_eq!(owner(), (65_534, 65_533, 0o600));
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}

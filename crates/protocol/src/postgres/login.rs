//! Authentication of a client: trust, peer, clear-text password, MD5, SCRAM-SHA-256.

use std::fmt;

use bytes::BytesMut;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::frontend;

/// Whether a server may learn the password, or a hash from which it can be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTrust {
    /// It is on this host, or its certificate is verified.
    Trusted,
    /// It may be another server. The text is what to set so that it is verified.
    Unverified(&'static str),
}

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginError {
    /// The server asks for what the client does not do. Reason and remedy.
    Rejected(String),
    /// The server broke the protocol.
    Malformed,
}

/// Reads the password, when the server asks for one.
pub type PasswordReader<'a> = dyn Fn() -> Result<String, String> + Sync + 'a;

/// Authentication state.
pub struct PostgresLogin<'a> {
    user: &'a str,
    password: &'a PasswordReader<'a>,
    trust: ServerTrust,
    scram: Option<ScramSha256>,
    is_authenticated: bool,
}

impl fmt::Debug for PostgresLogin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresLogin").field("user", &self.user).finish_non_exhaustive()
    }
}

impl<'a> PostgresLogin<'a> {
    /// Before the first request of the server.
    pub fn new(
        user: &'a str,
        password: &'a PasswordReader<'a>,
        trust: ServerTrust,
    ) -> PostgresLogin<'a> {
        PostgresLogin { user, password, trust, scram: None, is_authenticated: false }
    }

    /// Answers an authentication request (`R`), by its body.
    pub fn answer(&mut self, request: &[u8], out: &mut BytesMut) -> Result<(), LoginError> {
        let Some((code, request)) = request.split_first_chunk::<4>() else {
            return Err(LoginError::Malformed);
        };
        match (u32::from_be_bytes(*code), self.trust) {
            (0, _) => self.is_authenticated = true,
            (3 | 5, ServerTrust::Unverified(remedy)) => {
                return Err(rejected(&format!(
                    "the server asks for the password in clear text or as MD5, and its \
                     certificate is not verified; set scram-sha-256 in pg_hba.conf, or {remedy}"
                )));
            }
            (3, _) => {
                frontend::password_message(self.password()?.as_bytes(), out).map_err(malformed)?;
            }
            (5, _) => {
                let salt = <[u8; 4]>::try_from(request).map_err(malformed)?;
                let hash = md5_hash(self.user.as_bytes(), self.password()?.as_bytes(), salt);
                frontend::password_message(hash.as_bytes(), out).map_err(malformed)?;
            }
            (10, _) => {
                let mut methods = request.split(|byte| *byte == 0);
                if !methods.any(|method| method == SCRAM_SHA_256.as_bytes()) {
                    return Err(rejected(
                        "the server offers no SCRAM-SHA-256 without channel binding; set \
                         password_encryption = scram-sha-256",
                    ));
                }
                let password = self.password()?;
                let binding = ChannelBinding::unsupported();
                let scram = ScramSha256::new(password.as_bytes(), binding);
                let message = scram.message();
                frontend::sasl_initial_response(SCRAM_SHA_256, message, out).map_err(malformed)?;
                self.scram = Some(scram);
            }
            (11, _) => {
                let scram = self.scram.as_mut().ok_or(LoginError::Malformed)?;
                scram.update(request).map_err(malformed)?;
                frontend::sasl_response(scram.message(), out).map_err(malformed)?;
            }
            // The server proves that it knows the password.
            (12, _) => {
                let mut scram = self.scram.take().ok_or(LoginError::Malformed)?;
                let what = "invalid SCRAM signature: the server does not know the password; check \
                            its address";
                scram.finish(request).map_err(|_| rejected(what))?;
            }
            _ => {
                return Err(rejected(
                    "the server requires an unsupported authentication method; set peer, md5 or \
                     scram-sha-256 in pg_hba.conf",
                ));
            }
        }
        Ok(())
    }

    /// A server that skips the end of SCRAM did not prove that it knows the password.
    pub fn check_end(&self) -> Result<(), LoginError> {
        match self.is_authenticated && self.scram.is_none() {
            true => Ok(()),
            false => Err(LoginError::Malformed),
        }
    }

    fn password(&self) -> Result<String, LoginError> {
        (self.password)().map_err(LoginError::Rejected)
    }
}

fn rejected(what: &str) -> LoginError {
    LoginError::Rejected(what.to_owned())
}

fn malformed<E>(_: E) -> LoginError {
    LoginError::Malformed
}

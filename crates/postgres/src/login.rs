//! Authentication: trust, peer, clear-text password, MD5, SCRAM-SHA-256.

use bytes::BytesMut;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::frontend;

use crate::connection_string::{ConnectionString, SessionEncryption};
use crate::password::PasswordSource;
use crate::session::QueryFailure;

/// Authentication state.
pub(crate) struct PostgresLogin<'a> {
    server: &'a ConnectionString,
    password: &'a PasswordSource,
    scram: Option<ScramSha256>,
    is_authenticated: bool,
}

impl PostgresLogin<'_> {
    pub(crate) fn new<'a>(
        server: &'a ConnectionString,
        password: &'a PasswordSource,
    ) -> PostgresLogin<'a> {
        PostgresLogin { server, password, scram: None, is_authenticated: false }
    }

    /// Answers an authentication request.
    pub(crate) fn answer(
        &mut self,
        request: &[u8],
        out: &mut BytesMut,
    ) -> Result<(), QueryFailure> {
        let Some((code, request)) = request.split_first_chunk::<4>() else {
            return Err(malformed(()));
        };
        match u32::from_be_bytes(*code) {
            0 => self.is_authenticated = true,
            3 | 5 if !self.is_trusted() => {
                return Err(rejected(
                    "the server asks for the password in clear text or as MD5, and its \
                     certificate is not verified; set scram-sha-256 in pg_hba.conf, or \
                     sslmode=verify-full in `dsn`",
                ));
            }
            3 => frontend::password_message(self.password()?.as_bytes(), out).map_err(malformed)?,
            5 => {
                let salt = <[u8; 4]>::try_from(request).map_err(malformed)?;
                let password = self.password()?;
                let hash = md5_hash(self.server.user.as_bytes(), password.as_bytes(), salt);
                frontend::password_message(hash.as_bytes(), out).map_err(malformed)?;
            }
            10 => {
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
            11 => {
                let scram = self.scram.as_mut().ok_or_else(|| malformed(()))?;
                scram.update(request).map_err(malformed)?;
                frontend::sasl_response(scram.message(), out).map_err(malformed)?;
            }
            // The server proves that it knows the password.
            12 => {
                let mut scram = self.scram.take().ok_or_else(|| malformed(()))?;
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
    pub(crate) fn check_end(&self) -> Result<(), QueryFailure> {
        match self.is_authenticated && self.scram.is_none() {
            true => Ok(()),
            false => Err(malformed(())),
        }
    }

    /// Whether a server may learn the password, or a hash from which it can be guessed.
    fn is_trusted(&self) -> bool {
        self.server.is_local() || self.server.encryption() == SessionEncryption::VerifyFull
    }

    fn password(&self) -> Result<String, QueryFailure> {
        let password = self.password.read(self.server, |name| std::env::var_os(name));
        password.map_err(|error| QueryFailure::Rejected(String::new(), error))
    }
}

fn rejected(what: &str) -> QueryFailure {
    QueryFailure::Rejected(String::new(), what.to_owned())
}

fn malformed<E>(_: E) -> QueryFailure {
    QueryFailure::Broken("invalid authentication request".to_owned())
}

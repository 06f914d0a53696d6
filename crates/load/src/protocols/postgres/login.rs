//! PostgreSQL authentication: trust, clear-text password, MD5, SCRAM-SHA-256.
//!
//! SCRAM takes some milliseconds of CPU per connection by design: connections should be opened
//! before the run. The salted password is the same for all of them, but `postgres-protocol` cannot
//! reuse it.

use std::fmt;
use std::io;

use bytes::BytesMut;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::frontend;

use crate::failure::Failure;
use crate::secret::Secret;

/// Authentication state.
pub(crate) struct Login {
    user: String,
    password: Option<Secret>,
    database: String,
    scram: Option<ScramSha256>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Login {
    pub(crate) fn new(user: &str, password: Option<Secret>, database: &str) -> Login {
        Login { user: user.to_owned(), password, database: database.to_owned(), scram: None }
    }

    /// Writes the startup message.
    pub(super) fn open(&self, out: &mut BytesMut) -> io::Result<()> {
        let parameters = [
            ("user", self.user.as_str()),
            ("database", &self.database),
            ("application_name", "topdeck load"),
            ("client_encoding", "UTF8"),
        ];
        frontend::startup_message(parameters, out)
    }

    /// Answers an authentication request. Returns whether authentication is complete; the
    /// error is the failure and its detail. `Failure::Status` also means an unsupported method.
    pub(super) fn answer(
        &mut self,
        request: &[u8],
        out: &mut BytesMut,
    ) -> Result<bool, (Failure, &'static str)> {
        const INVALID: (Failure, &str) = (Failure::Malformed, "invalid authentication request");
        let malformed = |_| INVALID;
        let (code, request) = request.split_first_chunk::<4>().ok_or(INVALID)?;
        match u32::from_be_bytes(*code) {
            0 => return Ok(true),
            3 => frontend::password_message(self.password()?, out).map_err(malformed)?,
            5 => {
                let salt = <[u8; 4]>::try_from(request).map_err(|_| INVALID)?;
                let hash = md5_hash(self.user.as_bytes(), self.password()?, salt);
                frontend::password_message(hash.as_bytes(), out).map_err(malformed)?;
            }
            10 => {
                let mut methods = request.split(|byte| *byte == 0);
                if !methods.any(|method| method == SCRAM_SHA_256.as_bytes()) {
                    let detail = "the server offers no SCRAM-SHA-256 without channel binding; set \
                                  password_encryption = scram-sha-256";
                    return Err((Failure::Status, detail));
                }
                let scram = ScramSha256::new(self.password()?, ChannelBinding::unsupported());
                frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), out)
                    .map_err(malformed)?;
                self.scram = Some(scram);
            }
            11 => {
                let scram = self.scram.as_mut().ok_or(INVALID)?;
                scram.update(request).map_err(malformed)?;
                frontend::sasl_response(scram.message(), out).map_err(malformed)?;
            }
            // The server proves that it knows the password.
            12 => {
                let mut scram = self.scram.take().ok_or(INVALID)?;
                let detail = "the server cannot prove that it knows the password";
                scram.finish(request).map_err(|_| (Failure::Malformed, detail))?;
            }
            // Methods that need more than a password, such as Kerberos.
            _ => {
                let detail = "the server requires an authentication method other than a password";
                return Err((Failure::Status, detail));
            }
        }
        Ok(false)
    }

    fn password(&self) -> Result<&[u8], (Failure, &'static str)> {
        let password = self.password.as_ref().map(|one| one.reveal().as_bytes());
        password.ok_or((
            Failure::Status,
            "the server requires a password; add it: postgres://USER:PASSWORD@HOST",
        ))
    }
}

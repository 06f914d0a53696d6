//! How a connection to PostgreSQL says who it is: with no password, with the password itself, with its MD5 sum, or by SCRAM-SHA-256.
//!
//! SCRAM takes some milliseconds of the processor per connection, by its nature: connections belong before a run. Its salted password is the
//! same for all of them, but `postgres-protocol` takes none that was made before.

use std::fmt;
use std::io;

use bytes::BytesMut;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::frontend;

use crate::failure::Failure;
use crate::secret::Secret;

/// Who we are, and what has been said of it.
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

    /// What is said first.
    pub(super) fn open(&self, out: &mut BytesMut) -> io::Result<()> {
        let parameters = [
            ("user", self.user.as_str()),
            ("database", &self.database),
            ("application_name", "topdeck load"),
            ("client_encoding", "UTF8"),
        ];
        frontend::startup_message(parameters, out)
    }

    /// Answers what the server asks about who we are. Whether it is content; or why it is not to be answered, in words.
    pub(super) fn answer(
        &mut self,
        asked: &[u8],
        out: &mut BytesMut,
    ) -> Result<bool, (Failure, &'static str)> {
        const STRANGE: (Failure, &str) =
            (Failure::Malformed, "what the server asks about the user is not of the protocol");
        let malformed = |_| STRANGE;
        let (code, asked) = asked.split_first_chunk::<4>().ok_or(STRANGE)?;
        match u32::from_be_bytes(*code) {
            0 => return Ok(true),
            3 => frontend::password_message(self.password()?, out).map_err(malformed)?,
            5 => {
                let salt = <[u8; 4]>::try_from(asked).map_err(|_| STRANGE)?;
                let hash = md5_hash(self.user.as_bytes(), self.password()?, salt);
                frontend::password_message(hash.as_bytes(), out).map_err(malformed)?;
            }
            10 => {
                let mut ways = asked.split(|byte| *byte == 0);
                if !ways.any(|way| way == SCRAM_SHA_256.as_bytes()) {
                    let words = "the server takes none of the ways that topdeck knows: SCRAM-SHA-256 \
                                 without channel binding, MD5, the password itself";
                    return Err((Failure::Status, words));
                }
                let scram = ScramSha256::new(self.password()?, ChannelBinding::unsupported());
                frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), out)
                    .map_err(malformed)?;
                self.scram = Some(scram);
            }
            11 => {
                let scram = self.scram.as_mut().ok_or(STRANGE)?;
                scram.update(asked).map_err(malformed)?;
                frontend::sasl_response(scram.message(), out).map_err(malformed)?;
            }
            // The server proves that it knows the password too.
            12 => {
                let mut scram = self.scram.take().ok_or(STRANGE)?;
                let words = "the server does not know the password, although it lets in with it";
                scram.finish(asked).map_err(|_| (Failure::Malformed, words))?;
            }
            // Ways that need more than a password: Kerberos and its like.
            _ => {
                let words = "the server wants another proof of who the user is than a password";
                return Err((Failure::Status, words));
            }
        }
        Ok(false)
    }

    fn password(&self) -> Result<&[u8], (Failure, &'static str)> {
        let password = self.password.as_ref().map(|one| one.reveal().as_bytes());
        password.ok_or((Failure::Status, "the server wants a password, and the target has none"))
    }
}

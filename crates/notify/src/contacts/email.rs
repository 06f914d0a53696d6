//! E-mail: text, HTML and the picture inline.
//!
//! Proof of delivery: the mail server's response 250 to the message.

use serde::Deserialize;

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::mime::{MailAddresses, mail_message};
use crate::notification::Notification;
use crate::setting_values::{ContactSecret, KeyProblems};
use crate::smtp::{MailSecurity, MailServer};
use crate::text_limit::TextLimit;

/// Not a limit of the format: programs show no more of a subject.
const SUBJECT: TextLimit = TextLimit::characters("subject", 250);
/// Maximum number of receivers; servers accept at least 100 (RFC 5321, section 4.5.3.1.8).
const RECEIVERS_MAX: usize = 100;

/// Settings of e-mail.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EmailContact {
    /// Mail server as `host:port`.
    server: String,
    /// `starttls` (default), `tls` or `none`.
    #[serde(default = "default_security")]
    security: MailSecurity,
    /// User name at the mail server.
    user: Option<String>,
    /// Its password.
    password: Option<ContactSecret>,
    /// Address of the sender.
    from: String,
    /// Addresses of the receivers.
    to: Vec<String>,
}

fn default_security() -> MailSecurity {
    MailSecurity::StartTls
}

impl Contact for EmailContact {
    const KIND: &'static str = "email";

    fn check(&self, problems: &mut KeyProblems) {
        if self.host_and_port().is_none() {
            problems.add("server", format!("server is {:?}, must be host:port", self.server));
        }
        if !is_address(&self.from) {
            problems.add("from", format!("from is {:?}, must be name@host", self.from));
        }
        if self.to.is_empty() || self.to.len() > RECEIVERS_MAX {
            problems.add("to", format!("to has {} addresses, must be 1 to 100", self.to.len()));
        }
        for to in self.to.iter().filter(|to| !is_address(to)) {
            problems.add("to", format!("to has {to:?}, must be name@host"));
        }
        match (&self.user, &self.password) {
            (Some(_), Some(_)) if self.security == MailSecurity::None => {
                problems.add("password", "the password would be sent unencrypted; set security");
            }
            (Some(_), Some(password)) => password.check("password", problems),
            (Some(_), None) => problems.add("user", "`user` requires `password`"),
            (None, Some(_)) => problems.add("password", "`password` requires `user`"),
            (None, None) => {}
        }
    }

    fn host(&self) -> Option<String> {
        Some(self.server.clone())
    }

    fn shows_pictures(&self) -> bool {
        true
    }

    async fn send(
        &self,
        notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> Result<DeliveryReceipt, DeliveryError> {
        let Some((host, port)) = self.host_and_port() else {
            return Err(DeliveryError::permanent(format!("invalid server {:?}", self.server)));
        };
        let credentials = match (&self.user, &self.password) {
            (Some(user), Some(password)) => Some((user.clone(), password.read(context.dir)?)),
            _ => None,
        };
        let mut cuts = Vec::new();
        let mut text = context.text(notification);
        text.title = SUBJECT.apply(&text.title, &mut cuts);
        let addresses = MailAddresses { from: &self.from, to: &self.to };
        let mail = mail_message(&addresses, notification, &text, context.now_ns);
        let client = context.client;
        let (tls, timeout) = (client.tls(), client.timeout());
        let server = MailServer { host, port, security: self.security, credentials, tls, timeout };
        server.send(&self.from, &self.to, &mail).await?;
        Ok(DeliveryReceipt::with_cuts(cuts))
    }
}

impl EmailContact {
    fn host_and_port(&self) -> Option<(&str, u16)> {
        let (host, port) = self.server.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().ok().filter(|&port| port > 0)?;
        (!host.is_empty()).then_some((host, port))
    }
}

/// An address that needs no quoting in a header or a command.
fn is_address(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_graphic() && !"<>()[],;:\\\"".contains(c);
    let parts: Vec<&str> = text.split('@').collect();
    parts.len() == 2 && parts.iter().all(|part| !part.is_empty()) && text.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_cannot_add_a_command() {
        assert!(is_address("eve+alerts@mail.example.org"));
        for text in ["", "eve", "@", "a@", "a@b@c", "a@b>\r\nRCPT TO:<c@d", "a b@c", "Eve <e@f>"] {
            assert!(!is_address(text), "{text:?}");
        }
    }
}

//! Kinds of contacts, one file each.
//!
//! A kind is a type with [`Contact`] and a row of [`CONTACTS`]. Each one names in its file what
//! proves that the receiver accepted a notification.

mod discord;
mod email;
mod heartbeat;
mod ntfy;
mod opsgenie;
mod pagerduty;
mod slack;
mod teams;
mod telegram;
mod twilio;
mod victorops;
mod webhook;

#[cfg(test)]
#[path = "../../../testdata/extensions/contact/lamp.rs"]
mod example;

use toml::Spanned;
use toml::de::{DeTable, Deserializer, Error};

use crate::contact::{AnyContact, Contact};

/// All kinds of contacts.
pub(crate) const CONTACTS: &[ContactRow] = &[
    // A comment: rustfmt then writes one row per line.
    row::<discord::DiscordContact>(),
    row::<email::EmailContact>(),
    row::<heartbeat::HeartbeatContact>(),
    row::<ntfy::NtfyContact>(),
    row::<opsgenie::OpsgenieContact>(),
    row::<pagerduty::PagerDutyContact>(),
    row::<slack::SlackContact>(),
    row::<teams::TeamsContact>(),
    row::<telegram::TelegramContact>(),
    row::<twilio::TwilioContact>(),
    row::<victorops::VictorOpsContact>(),
    row::<webhook::WebhookContact>(),
];

/// Table row of a kind of contact.
pub(crate) struct ContactRow {
    pub(crate) kind: &'static str,
    /// Reads the kind's keys from a table.
    pub(crate) read: fn(Spanned<DeTable<'_>>) -> Result<AnyContact, Error>,
}

const fn row<C: Contact>() -> ContactRow {
    ContactRow { kind: C::KIND, read: read::<C> }
}

fn read<C: Contact>(table: Spanned<DeTable<'_>>) -> Result<AnyContact, Error> {
    C::deserialize(Deserializer::from(table)).map(AnyContact::new)
}

/// Values of the key `kind`.
pub fn contact_kinds() -> impl Iterator<Item = &'static str> {
    CONTACTS.iter().map(|row| row.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_unique_and_sorted() {
        let kinds: Vec<_> = contact_kinds().collect();
        assert!(kinds.is_sorted_by(|a, b| a < b), "{kinds:?}");
    }
}

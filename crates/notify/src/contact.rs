//! Contact: a receiver of notifications, and the result of sending to it.

use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::http_client::HttpClient;
use crate::message::{MessageText, render_message};
use crate::message_template::TemplateTexts;
use crate::notification::Notification;
use crate::picture_links::PictureLinks;
use crate::setting_values::KeyProblems;

/// Kind of contact. The fields of the type are its keys of `[[contact]]`; it denies unknown fields.
pub trait Contact: DeserializeOwned + fmt::Debug + Send + Sync + 'static {
    /// Value of the key `kind`.
    const KIND: &'static str;

    /// Checks values that TOML cannot constrain.
    fn check(&self, problems: &mut KeyProblems);

    /// Host and port of the receiver, which are no secret; `None` if they are in the file of a
    /// secret.
    fn host(&self) -> Option<String>;

    /// Whether the receiver recognizes a second delivery of this notification by its key, so that a
    /// repeat is harmless. `previous` is [`DeliveryContext::previous`]. Most receivers have no
    /// keys.
    fn is_idempotent(&self, _notification: &Notification, _previous: Option<&str>) -> bool {
        false
    }

    /// Interval of messages that are sent while no alert fires (dead man's switch). Such a contact
    /// receives no alerts.
    fn heartbeat_interval(&self) -> Option<Duration> {
        None
    }

    /// Whether its messages have a picture.
    fn shows_pictures(&self) -> bool {
        false
    }

    /// Sends a notification. The future may be dropped at any time.
    fn send(
        &self,
        notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> impl Future<Output = Result<DeliveryReceipt, DeliveryError>> + Send;
}

/// What a contact needs for one delivery.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryContext<'a> {
    /// Sends HTTP requests.
    pub client: &'a HttpClient,
    /// Directory of the settings file, for relative paths.
    pub dir: &'a Path,
    /// The receiver's identity of the message on an earlier state of this alert, from
    /// [`DeliveryReceipt::message_id`].
    pub previous: Option<&'a str>,
    /// Whether the receiver may already have this notification and cannot recognize it.
    pub may_be_duplicate: bool,
    /// Time of the delivery, in nanoseconds since the Unix epoch.
    pub now_ns: i64,
    /// Texts of the contact's templates.
    pub texts: Option<&'a TemplateTexts>,
    /// Links to pictures; `None` if nobody would answer them.
    pub pictures: Option<&'a PictureLinks>,
}

impl DeliveryContext<'_> {
    /// The texts of a notification.
    pub(crate) fn text(&self, notification: &Notification) -> MessageText {
        let mut message = render_message(notification, self.may_be_duplicate);
        if let Some(texts) = self.texts {
            texts.apply(&mut message, self.may_be_duplicate);
        }
        message
    }
}

/// A contact of any kind, type-erased.
#[derive(Clone)]
pub struct AnyContact(Arc<dyn DynContact>);

impl AnyContact {
    /// Wraps a contact.
    pub fn new(contact: impl Contact) -> AnyContact {
        AnyContact(Arc::new(contact))
    }

    /// See [`Contact::KIND`].
    pub fn kind(&self) -> &'static str {
        self.0.kind()
    }

    /// See [`Contact::host`].
    pub(crate) fn host(&self) -> Option<String> {
        self.0.host()
    }

    /// See [`Contact::is_idempotent`].
    pub fn is_idempotent(&self, notification: &Notification, previous: Option<&str>) -> bool {
        self.0.is_idempotent(notification, previous)
    }

    /// See [`Contact::heartbeat_interval`].
    pub fn heartbeat_interval(&self) -> Option<Duration> {
        self.0.heartbeat_interval()
    }

    /// See [`Contact::shows_pictures`].
    pub(crate) fn shows_pictures(&self) -> bool {
        self.0.shows_pictures()
    }

    /// See [`Contact::send`].
    pub async fn send(
        &self,
        notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> Result<DeliveryReceipt, DeliveryError> {
        self.0.send(notification, context).await
    }

    pub(crate) fn check(&self, problems: &mut KeyProblems) {
        self.0.check(problems);
    }
}

impl fmt::Debug for AnyContact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

type SendFuture<'a> =
    Pin<Box<dyn Future<Output = Result<DeliveryReceipt, DeliveryError>> + Send + 'a>>;

/// Object-safe form of [`Contact`].
trait DynContact: fmt::Debug + Send + Sync {
    fn kind(&self) -> &'static str;
    fn check(&self, problems: &mut KeyProblems);
    fn host(&self) -> Option<String>;
    fn is_idempotent(&self, notification: &Notification, previous: Option<&str>) -> bool;
    fn heartbeat_interval(&self) -> Option<Duration>;
    fn shows_pictures(&self) -> bool;
    fn send<'a>(
        &'a self,
        notification: &'a Notification,
        context: &'a DeliveryContext<'a>,
    ) -> SendFuture<'a>;
}

impl<C: Contact> DynContact for C {
    fn kind(&self) -> &'static str {
        C::KIND
    }

    fn check(&self, problems: &mut KeyProblems) {
        Contact::check(self, problems);
    }

    fn host(&self) -> Option<String> {
        Contact::host(self)
    }

    fn is_idempotent(&self, notification: &Notification, previous: Option<&str>) -> bool {
        Contact::is_idempotent(self, notification, previous)
    }

    fn heartbeat_interval(&self) -> Option<Duration> {
        Contact::heartbeat_interval(self)
    }

    fn shows_pictures(&self) -> bool {
        Contact::shows_pictures(self)
    }

    fn send<'a>(
        &'a self,
        notification: &'a Notification,
        context: &'a DeliveryContext<'a>,
    ) -> SendFuture<'a> {
        Box::pin(Contact::send(self, notification, context))
    }
}

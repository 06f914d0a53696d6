//! One attempt: from the log of deliveries to a contact, and its outcome back.

use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use journal::supervisor::catch_panic;

use crate::contact::DeliveryContext;
use crate::contact_settings::ConfiguredContact;
use crate::delivery_log::{DeliveryLog, DeliveryLogError};
use crate::delivery_policy::AttemptVerdict;
use crate::delivery_result::DeliveryError;
use crate::http_client::HttpClient;
use crate::message_template::{MessageTemplates, TemplateTexts};
use crate::notification::{NotificationKey, NotifiedState};
use crate::picture_links::PictureLinks;

/// Result of an attempt, for log and status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptReport {
    /// Name of the contact.
    pub contact: String,
    /// Time of its end, in nanoseconds since the Unix epoch.
    pub at_ns: i64,
    /// Key of the notification.
    pub key: NotificationKey,
    /// Name of the alert; empty if it is not known any more.
    pub alert: String,
    /// State of the alert that the notification tells, if it is known.
    pub state: Option<NotifiedState>,
    /// What follows.
    pub verdict: AttemptVerdict,
    /// Number of attempts at this notification, with this one, if it is known.
    pub attempts: Option<u32>,
    /// Time from begin to end of the attempt; `None` of one before the start.
    pub latency: Option<Duration>,
    /// Whether the message was marked as a repeat.
    pub may_be_duplicate: bool,
    /// Failover contact that receives the notification because of this attempt.
    pub failover: Option<String>,
    /// Error, or texts that were cut; may be empty.
    pub note: String,
    /// Message of the panic that ended the attempt: a bug, which costs no other message.
    pub panic: Option<String>,
}

/// What the messages of a node are made with.
#[derive(Clone, Copy, Debug)]
pub struct MessageComposition<'a> {
    /// Expands templates.
    pub templates: &'a dyn MessageTemplates,
    /// Links to pictures; `None` if nobody would answer them.
    pub pictures: Option<&'a PictureLinks>,
}

/// Makes the next attempt that is due at a contact; `None` if there is none.
///
/// Each contact has a task that calls it, so that a slow receiver delays no other. It waits for
/// fsync twice. A dropped future is an attempt with an unknown outcome.
pub async fn deliver_next(
    log: &Mutex<DeliveryLog>,
    contact: &ConfiguredContact,
    client: &HttpClient,
    dir: &Path,
    now_ns: &(dyn Fn() -> i64 + Sync),
    composition: &MessageComposition<'_>,
) -> Result<Option<AttemptReport>, DeliveryLogError> {
    let Some(attempt) = lock_log(log).begin_attempt(contact, now_ns())? else {
        return Ok(None);
    };
    let begun_ns = now_ns();
    let (notification, may_be_duplicate) = (&attempt.notification, attempt.may_be_duplicate);
    let MessageComposition { templates, pictures } = *composition;
    let (sources, mut panic) = (&contact.templates, None);
    let texts = catch_panic(|| {
        TemplateTexts::new(sources, templates, notification, may_be_duplicate, begun_ns)
    });
    let texts = texts.unwrap_or_else(|message| {
        let texts = TemplateTexts::failed(&message);
        panic = Some(message);
        texts
    });
    let context = DeliveryContext {
        client,
        dir,
        previous: attempt.previous.as_deref(),
        may_be_duplicate,
        now_ns: begun_ns,
        texts: Some(&texts),
        pictures,
    };
    let sent = catch_panic_of(contact.contact.send(notification, &context)).await;
    let mut result = sent.unwrap_or_else(|message| {
        let reason = format!("BUG: the message panicked: {message}");
        panic = Some(message);
        Err(DeliveryError::permanent(reason))
    });
    if let Ok(receipt) = &mut result {
        receipt.notes.extend(texts.notes);
    }
    let (notification, may_be_duplicate) = (attempt.notification.clone(), attempt.may_be_duplicate);
    let attempts = attempt.attempts;
    let at_ns = now_ns();
    // The clock may step back.
    let latency_ns = u64::try_from(at_ns.saturating_sub(begun_ns)).unwrap_or(0);
    let outcome = lock_log(log).finish_attempt(attempt, &result, &contact.policy, at_ns)?;
    Ok(Some(AttemptReport {
        contact: contact.name.clone(),
        at_ns,
        key: notification.key.clone(),
        alert: notification.name.clone(),
        state: Some(notification.state),
        verdict: outcome.verdict,
        attempts: Some(attempts),
        latency: Some(Duration::from_nanos(latency_ns)),
        may_be_duplicate,
        failover: outcome.failover,
        note: outcome.note,
        panic,
    }))
}

/// Result of a future, or the message of its panic.
async fn catch_panic_of<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_panic(|| future.as_mut().poll(context)) {
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(message) => Poll::Ready(Err(message)),
    })
    .await
}

/// A panic elsewhere leaves a log whose file is intact.
pub(crate) fn lock_log(log: &Mutex<DeliveryLog>) -> MutexGuard<'_, DeliveryLog> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

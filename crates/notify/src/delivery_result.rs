//! Result of sending a notification: a receipt, or an error that says what may follow.

use std::time::Duration;

use crate::text_limit::TextCut;

/// Proof that a receiver accepted a notification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryReceipt {
    /// Identity of the message at the receiver, with which it can be updated.
    pub message_id: Option<String>,
    /// Texts that were longer than the receiver allows.
    pub cuts: Vec<TextCut>,
    /// Why texts are not those of the settings, or there is no picture.
    pub notes: Vec<String>,
}

impl DeliveryReceipt {
    /// A receipt without an identity.
    pub(crate) fn with_cuts(cuts: Vec<TextCut>) -> DeliveryReceipt {
        DeliveryReceipt { cuts, ..DeliveryReceipt::default() }
    }

    /// The same, of a message without the picture, for a reason if there is one.
    pub(crate) fn without_picture(mut self, reason: Option<String>) -> DeliveryReceipt {
        self.notes.extend(reason.map(|reason| format!("sent without the picture: {reason}")));
        self
    }
}

/// Result of sending a message without the picture, for a reason if the receiver rejected that: a
/// retry does not try it again.
pub(crate) fn without_picture(
    result: Result<DeliveryReceipt, DeliveryError>,
    rejected: Option<String>,
) -> Result<DeliveryReceipt, DeliveryError> {
    match result {
        Ok(receipt) => Ok(receipt.without_picture(rejected)),
        Err(DeliveryError::Temporary { reason, retry_after, may_have_arrived, .. }) => {
            let is_picture_rejected = rejected.is_some();
            Err(DeliveryError::Temporary {
                reason,
                retry_after,
                may_have_arrived,
                is_picture_rejected,
            })
        }
        Err(permanent) => Err(permanent),
    }
}

/// A receiver did not accept a notification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeliveryError {
    /// A later attempt may succeed.
    #[error("{reason}")]
    Temporary {
        /// Cause.
        reason: String,
        /// Delay requested by the receiver.
        retry_after: Option<Duration>,
        /// Whether the receiver may have the notification: the request was sent, and the response
        /// is missing or does not confirm it.
        may_have_arrived: bool,
        /// Whether the receiver rejected the message with its picture.
        is_picture_rejected: bool,
    },
    /// The receiver rejects this notification, or the settings are wrong.
    #[error("{reason}")]
    Permanent {
        /// Cause.
        reason: String,
    },
}

impl DeliveryError {
    /// The receiver does not have the notification; a later attempt may succeed.
    pub(crate) fn temporary(reason: impl Into<String>) -> DeliveryError {
        DeliveryError::new_temporary(reason.into(), None, false)
    }

    /// The receiver may have the notification.
    pub(crate) fn unconfirmed(reason: impl Into<String>) -> DeliveryError {
        DeliveryError::new_temporary(reason.into(), None, true)
    }

    /// A later attempt may succeed, after the delay that the receiver requests, if it does.
    pub(crate) fn new_temporary(
        reason: String,
        retry_after: Option<Duration>,
        may_have_arrived: bool,
    ) -> DeliveryError {
        let is_picture_rejected = false;
        DeliveryError::Temporary { reason, retry_after, may_have_arrived, is_picture_rejected }
    }

    /// No later attempt can succeed.
    pub(crate) fn permanent(reason: impl Into<String>) -> DeliveryError {
        DeliveryError::Permanent { reason: reason.into() }
    }
}

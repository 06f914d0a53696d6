//! Notifications of alerts: contacts, message texts, and the durable log of deliveries.
//!
//! A [`Notification`] says what happened to an alert; `message.rs` renders it. A [`Contact`] sends
//! it to one receiver, a service such as a mail server; kinds of contacts are files of `contacts/`,
//! listed in `contacts.rs`. In routes, a receiver is the name of a contact, a rotation or an
//! escalation, as in Alertmanager. A site is one of two servers that evaluate the same rules: the
//! primary, or the standby, which delivers while the primary does not answer. The
//! [`DeliveryLog`] decides what is sent when, and survives crashes. The [`Notifier`] joins them: it
//! routes alerts and delivers to all contacts. Time comes in as an argument, in nanoseconds since
//! the Unix epoch.
#![forbid(unsafe_code)]

mod alert_dispatcher;
mod alertmanager_file;
mod contact;
mod contact_settings;
mod contact_test;
mod contacts;
mod delivery;
mod delivery_log;
mod delivery_policy;
mod delivery_record;
mod delivery_result;
mod fingerprint;
mod form_body;
mod http_client;
mod message;
mod message_template;
mod mime;
mod nearest_name;
mod notification;
mod notifier;
mod notify_problem;
mod notify_settings;
mod on_call_calendar;
mod picture_links;
mod receiver_table;
mod rotation;
mod rotation_settings;
mod routed_notification;
mod routing;
mod setting_values;
mod silence;
mod silence_file;
mod smtp;
mod text_limit;

pub use contact::{AnyContact, Contact, DeliveryContext};
pub use contact_settings::{ConfiguredContact, failover_chain, read_contacts};
pub use contact_test::ContactTest;
pub use contacts::contact_kinds;
pub use delivery::{AttemptReport, MessageComposition, deliver_next};
pub use delivery_log::{
    DeliveryLog, DeliveryLogError, LogLimits, LogSummary, OtherSiteDeliveries, PendingNotification,
    SiteDelivery,
};
pub use delivery_policy::{AttemptVerdict, DeliveryPolicy};
pub use delivery_record::{DELIVERY_LOG_VERSION, DeliveryRecord, RecordError};
pub use delivery_result::{DeliveryError, DeliveryReceipt};
pub use fingerprint::label_fingerprint;
pub use http_client::HttpClient;
pub use message_template::{
    ContactTemplates, MessageFacts, MessageTemplates, TemplateSource, TemplateTexts,
};
pub use notification::{AlertImpact, Notification, NotificationKey, NotifiedState, Picture};
pub use notifier::{
    ContactStatus, Notifier, NotifierError, NotifierOptions, NotifierStatus, TimedText,
    UndeliveredNotification,
};
pub use notify_problem::NotifyProblem;
pub use notify_settings::NotifySettings;
pub use on_call_calendar::{CalendarProblem, OnCallCalendar};
pub use picture_links::PictureLinks;
pub use receiver_table::EscalationPolicy;
pub use rotation::{OnCallRotation, OnCallShift};
pub use routed_notification::{RoutedNotification, routing_labels};
pub use routing::{
    AlertGroupPlace, AlertGroups, AlertLabels, AlertMatcher, AlertRoute, GroupBy,
    GroupNotification, GroupReason, InhibitRule, InhibitionIndex, MatcherError, Recurrence,
    RecurrenceError, RoutedAlert, RoutingError, RoutingTree, TimeInterval, TimeIntervalError,
};
pub use setting_values::KeyProblems;
pub use silence::{
    ActiveSilences, SLO_CORRECTION_ANNOTATION, Silence, SilenceError, SilenceSet, SilenceState,
};
pub use silence_file::{SILENCE_FILE_VERSION, SilenceFileError, decode_silences, encode_silences};
pub use text_limit::{LengthUnit, TextCut, TextLimit};

//! Templates of a contact for title and text of its messages. A template that fails costs its text,
//! not the message: the default text is sent, and the note of the delivery says why.
//!
//! The language is that of the caller ([`MessageTemplates`]): this crate has none.

use std::fmt;

use crate::message::{MessageText, render_message};
use crate::message::{impact_text, one_line, value_text};
use crate::notification::Notification;

/// Maximum size of a text that a template made.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Expands templates of messages.
pub trait MessageTemplates: fmt::Debug + Send + Sync {
    /// Text of a template. An error is its cause.
    fn expand(&self, template: &str, facts: &MessageFacts<'_>) -> Result<String, String>;
}

/// What the templates of a message see.
#[derive(Clone, Debug)]
pub struct MessageFacts<'a> {
    /// What happened.
    pub notification: &'a Notification,
    /// Default title.
    pub title: &'a str,
    /// Default text.
    pub text: &'a str,
    /// Value and threshold with their unit; empty if not known.
    pub measured: String,
    /// Requests and users affected.
    pub affected: String,
    /// Whether the receiver may have the message already.
    pub may_be_duplicate: bool,
    /// Time of the message, in nanoseconds since the Unix epoch.
    pub now_ns: i64,
}

/// A template of the settings file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateSource {
    /// The template.
    pub text: String,
    /// Byte of the settings file at which its key is.
    pub byte: usize,
}

/// Templates of a contact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContactTemplates {
    /// Of the title.
    pub title: Option<TemplateSource>,
    /// Of the text.
    pub text: Option<TemplateSource>,
}

/// Texts that the templates of a contact made; without a template, the default ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateTexts {
    title: Option<String>,
    text: Option<String>,
    /// Why the default is sent instead of the text of a template.
    pub(crate) notes: Vec<String>,
}

impl TemplateTexts {
    pub(crate) fn new(
        sources: &ContactTemplates,
        templates: &dyn MessageTemplates,
        notification: &Notification,
        may_be_duplicate: bool,
        now_ns: i64,
    ) -> TemplateTexts {
        let mut texts = TemplateTexts::default();
        if *sources == ContactTemplates::default() {
            return texts;
        }
        let default = render_message(notification, may_be_duplicate);
        let facts = MessageFacts {
            notification,
            title: &default.title,
            text: &default.long,
            measured: value_text(notification).unwrap_or_default(),
            affected: impact_text(notification),
            may_be_duplicate,
            now_ns,
        };
        let mut expand = |name: &str, source: &Option<TemplateSource>| {
            let source = source.as_ref()?;
            let expanded = templates.expand(&source.text, &facts).and_then(|mut text| {
                text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
                match text.trim() {
                    "" => Err("it has no text".to_owned()),
                    text => Ok(text.to_owned()),
                }
            });
            let failed = |cause| {
                let note = format!("template of the {name}: {cause}; the default {name} is sent");
                texts.notes.push(note);
            };
            expanded.map_err(failed).ok()
        };
        let title = expand("title", &sources.title);
        let text = expand("text", &sources.text);
        (texts.title, texts.text) = (title, text);
        texts
    }

    /// The default texts, because the templates panicked.
    pub(crate) fn failed(message: &str) -> TemplateTexts {
        let note = format!("BUG: a template panicked: {message}; the default texts are sent");
        TemplateTexts { notes: vec![note], ..TemplateTexts::default() }
    }

    /// Puts the texts in the place of the default ones.
    pub(crate) fn apply(&self, message: &mut MessageText, may_be_duplicate: bool) {
        if let Some(title) = &self.title {
            let repeat = if may_be_duplicate { REPEAT_MARK } else { "" };
            message.title = format!("{}{repeat}", one_line(title));
        }
        if let Some(text) = &self.text {
            message.long.clone_from(text);
            message.short = one_line(text);
        }
    }
}

/// End of the title of a message that the receiver may have already.
pub(crate) const REPEAT_MARK: &str = " (repeat: the first message may have arrived)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::example_notification;

    /// Templates are texts with `NAME`; `!` fails.
    #[derive(Debug)]
    struct NameTemplates;

    impl MessageTemplates for NameTemplates {
        fn expand(&self, template: &str, facts: &MessageFacts<'_>) -> Result<String, String> {
            match template {
                "!" => Err("it failed".to_owned()),
                _ => Ok(template.replace("NAME", &facts.notification.name)),
            }
        }
    }

    /// Title and text of the example with these templates, and the notes.
    #[track_caller]
    fn check(
        title: Option<&str>,
        text: Option<&str>,
        may_be_duplicate: bool,
        expected: (&str, Option<&str>, &[&str]),
    ) {
        let source = |text: &str| TemplateSource { text: text.to_owned(), byte: 0 };
        let sources = ContactTemplates { title: title.map(source), text: text.map(source) };
        let notification = example_notification();
        let texts =
            TemplateTexts::new(&sources, &NameTemplates, &notification, may_be_duplicate, 0);
        let default = render_message(&notification, may_be_duplicate);
        let mut message = default.clone();
        texts.apply(&mut message, may_be_duplicate);
        let text = expected.1.unwrap_or(&default.long);
        assert_eq!((message.title.as_str(), message.long.as_str()), (expected.0, text));
        assert_eq!(texts.notes, expected.2);
    }

    #[test]
    fn a_template_replaces_its_text_only() {
        let default = "[Severity 1] CheckoutSlow";
        check(None, None, false, (default, None, &[]));
        check(Some("SHOP: NAME\n"), None, false, ("SHOP: CheckoutSlow", None, &[]));
        check(None, Some(" NAME\nfires\n"), false, (default, Some("CheckoutSlow\nfires"), &[]));
        check(Some("a\nb"), Some("c"), false, ("a b", Some("c"), &[]));
    }

    #[test]
    fn a_template_that_fails_or_is_empty_leaves_the_default_with_a_note() {
        let default = "[Severity 1] CheckoutSlow";
        let notes = [
            "template of the title: it failed; the default title is sent",
            "template of the text: it has no text; the default text is sent",
        ];
        check(Some("!"), Some(" \n"), false, (default, None, &notes));
    }

    #[test]
    fn a_repeat_is_marked_whatever_the_template_says() {
        let expected = "x (repeat: the first message may have arrived)";
        check(Some("x"), None, true, (expected, None, &[]));
    }

    #[test]
    fn a_huge_text_is_cut_between_characters() {
        let sources = ContactTemplates {
            title: None,
            text: Some(TemplateSource { text: "é".repeat(TEXT_BYTES_MAX), byte: 0 }),
        };
        let texts = TemplateTexts::new(&sources, &NameTemplates, &example_notification(), false, 0);
        assert_eq!(texts.text.map(|text| text.len()), Some(TEXT_BYTES_MAX));
    }
}

//! Texts of a notification: title, short text and long text.
//!
//! The long text has one fact per line, the most urgent first: criterion, value, time, requests and
//! users, what to do, link, other alerts. It is plain text, so that cutting it breaks nothing.

use std::time::Duration;

use render::number_formatter::NumberFormatter;
use render::text::plural;
use render::time::{format_age, format_time};
use render::value_formatter::count;

use crate::message_template::REPEAT_MARK;
use crate::notification::{AlertImpact, Notification, NotifiedState};

/// Maximum number of other alerts that are named.
const OTHERS_MAX: usize = 10;

/// Texts of a notification, without any limit of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MessageText {
    /// State, severity and name, on one line.
    pub(crate) title: String,
    /// What, since when and how much, on one line, without the title.
    pub(crate) short: String,
    /// Everything, on several lines, without the title.
    pub(crate) long: String,
}

/// Renders a notification. `may_be_duplicate` marks one that the receiver may already have.
pub(crate) fn render_message(notification: &Notification, may_be_duplicate: bool) -> MessageText {
    let facts = lines(notification);
    let short: Vec<&str> = facts
        .iter()
        .filter(|line| line.is_urgent)
        .map(|line| line.text.as_str())
        .filter(|text| !text.is_empty())
        .collect();
    let long: Vec<&str> = facts.iter().map(|line| line.text.as_str()).collect();
    MessageText {
        title: title(notification, may_be_duplicate),
        short: short.join("; "),
        long: long.join("\n"),
    }
}

fn title(notification: &Notification, may_be_duplicate: bool) -> String {
    let state = match notification.state {
        NotifiedState::Firing => format!("Severity {}", notification.severity),
        NotifiedState::Unknown => format!("Unknown, severity {} held", notification.severity),
        NotifiedState::Acknowledged => format!("Acknowledged, severity {}", notification.severity),
        NotifiedState::Resolved => "Resolved".to_owned(),
    };
    let reminder = match notification.key.reminder {
        0 => String::new(),
        number => format!(", reminder {number}"),
    };
    let repeat = if may_be_duplicate { REPEAT_MARK } else { "" };
    format!("[{state}{reminder}] {}{repeat}", one_line(&notification.name))
}

/// A line of the long text. Urgent ones are in the short text too.
struct MessageLine {
    text: String,
    is_urgent: bool,
}

fn lines(notification: &Notification) -> Vec<MessageLine> {
    let mut lines = Vec::new();
    let mut add = |is_urgent: bool, text: String| lines.push(MessageLine { text, is_urgent });
    if let Some(summary) = notification.annotations.get("summary") {
        add(false, summary.clone());
    }
    if !notification.criterion.is_empty() {
        add(true, one_line(&notification.criterion));
    }
    if let Some(text) = value_text(notification) {
        add(true, text);
    }
    add(true, time_text(notification));
    let is_known = notification.impact != AlertImpact::default();
    add(is_known, impact_text(notification));
    if let Some(notes) = &notification.notes {
        add(false, format!("What to do: {notes}"));
    }
    if let Some(link) = &notification.link {
        add(false, format!("View: {link}"));
    }
    if !notification.labels.is_empty() {
        let labels = notification.labels.iter().map(|(name, value)| format!("{name}={value:?}"));
        add(false, format!("Labels: {}", labels.collect::<Vec<_>>().join(", ")));
    }
    for (name, text) in notification.annotations.iter().filter(|(name, _)| *name != "summary") {
        add(false, format!("{name}: {text}"));
    }
    if !notification.also_firing.is_empty() {
        add(false, others_text(&notification.also_firing));
    }
    lines
}

/// "value 310.0 ms (300.0 to 320.0 ms), threshold 250 ms".
pub(crate) fn value_text(notification: &Notification) -> Option<String> {
    let unit = Some(notification.unit.as_str()).filter(|unit| !unit.is_empty());
    let numbers = NumberFormatter::new(unit);
    let value = notification.value.map(|value| {
        let bounds = numbers.bounds(value);
        let bounds = if bounds.is_empty() { bounds } else { format!(" ({bounds})") };
        format!("value {}{bounds}", numbers.value(value))
    });
    let threshold =
        notification.threshold.map(|threshold| format!("threshold {}", numbers.exact(threshold)));
    let texts: Vec<String> = value.into_iter().chain(threshold).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// "since 2023-11-14 22:13:20Z (5 min)"; without a duration if that is less than a second.
pub(crate) fn time_text(notification: &Notification) -> String {
    let since = format_time(notification.since_ns);
    let lasted_ns = notification.at_ns.saturating_sub(notification.since_ns);
    let lasted_s = u64::try_from(lasted_ns).unwrap_or(0) / 1_000_000_000;
    // From 10 minutes on, seconds do not matter.
    let row_s = if lasted_s < 600 { 1 } else { 60 };
    let lasted = match lasted_s {
        0 => String::new(),
        s => format!(" ({})", format_age(Duration::from_secs(s / row_s * row_s))),
    };
    match notification.state {
        NotifiedState::Resolved => {
            format!("from {since} to {}{lasted}", format_time(notification.at_ns))
        }
        _ => format!("since {since}{lasted}"),
    }
}

/// "12,031 requests and 811 users affected". The numbers of a reminder are those of the message
/// that it reminds of.
pub(crate) fn impact_text(notification: &Notification) -> String {
    let text =
        |n: u64, one: &str, many: &str| format!("{} {}", count(n), plural_noun(n, one, many));
    let requests = notification.impact.requests.map(|n| text(n, "request", "requests"));
    let users = notification.impact.users.map(|n| text(n, "user", "users"));
    let parts: Vec<String> = requests.into_iter().chain(users).collect();
    match parts.is_empty() {
        true => "requests affected: unknown".to_owned(),
        false => {
            let begin = if notification.key.reminder > 0 { "in the first message: " } else { "" };
            format!("{begin}{} affected", parts.join(" and "))
        }
    }
}

fn plural_noun<'a>(n: u64, one: &'a str, many: &'a str) -> &'a str {
    if n == 1 { one } else { many }
}

fn others_text(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(OTHERS_MAX).map(|name| one_line(name)).collect();
    let rest = match names.len() - shown.len() {
        0 => String::new(),
        rest => format!(" and {}", plural(rest as u64, "other", "others")),
    };
    format!("Also firing: {}{rest}", shown.join(", "))
}

/// Colour of a notification as 0xRRGGBB.
pub(crate) fn message_color(notification: &Notification) -> u32 {
    match (notification.state, notification.severity) {
        (NotifiedState::Resolved, _) => 0x2e_a0_44,
        (NotifiedState::Acknowledged, _) => 0x3b_7d_d8,
        (NotifiedState::Unknown, _) => 0x80_80_80,
        (NotifiedState::Firing, ..=2) => 0xd0_24_24,
        (NotifiedState::Firing, _) => 0xe0_9b_00,
    }
}

/// Line breaks and control characters as spaces.
pub(crate) fn one_line(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::example_notification;

    #[test]
    fn a_message_says_what_since_when_how_many_and_what_to_do() {
        let MessageText { title, short, long } = render_message(&example_notification(), false);
        assert_eq!(title, "[Severity 1] CheckoutSlow");
        assert_eq!(
            short,
            "p99 of checkout latency above 250 ms for 5 min; \
             value 310.0 ms (300.0 to 320.0 ms), threshold 250 ms; \
             since 2023-11-14 22:13:20Z (5 min); 12,031 requests and 811 users affected"
        );
        let expected = [
            "Checkout is slow",
            "p99 of checkout latency above 250 ms for 5 min",
            "value 310.0 ms (300.0 to 320.0 ms), threshold 250 ms",
            "since 2023-11-14 22:13:20Z (5 min)",
            "12,031 requests and 811 users affected",
            "What to do: Restart the cart service.",
            "Then call Eve.",
            "View: https://topdeck.example/#/alerts/a1b2",
            "Labels: job=\"shop\", zone=\"eu 1\"",
            "Also firing: CartErrors, Disk 90 %",
        ];
        assert_eq!(long.lines().collect::<Vec<_>>(), expected);
    }

    /// A user saw "since 2023-11-14 22:13:20Z (0 d)".
    #[test]
    fn an_alert_that_has_just_begun_has_lasted_no_days() {
        let mut notification = example_notification();
        notification.at_ns = notification.since_ns + 999_999_999;
        assert_eq!(time_text(&notification), "since 2023-11-14 22:13:20Z");
        notification.at_ns += 1;
        assert_eq!(time_text(&notification), "since 2023-11-14 22:13:20Z (1 s)");
    }

    #[test]
    fn missing_data_are_never_called_resolved() {
        let mut notification = example_notification();
        notification.state = NotifiedState::Unknown;
        let message = render_message(&notification, false);
        assert_eq!(message.title, "[Unknown, severity 1 held] CheckoutSlow");
        assert!(!message.long.to_lowercase().contains("resolved"));
    }

    #[test]
    fn a_resolved_alert_says_how_long_it_lasted() {
        let mut notification = example_notification();
        notification.state = NotifiedState::Resolved;
        let message = render_message(&notification, false);
        assert_eq!(message.title, "[Resolved] CheckoutSlow");
        let expected = "from 2023-11-14 22:13:20Z to 2023-11-14 22:18:20Z (5 min)";
        assert!(message.short.contains(expected), "{}", message.short);
    }

    #[test]
    fn reminders_and_repeats_are_marked() {
        let mut notification = example_notification();
        notification.key.reminder = 2;
        let title = render_message(&notification, true).title;
        let expected =
            "[Severity 1, reminder 2] CheckoutSlow (repeat: the first message may have arrived)";
        assert_eq!(title, expected);
    }

    #[test]
    fn a_storm_names_ten_other_alerts() {
        let mut notification = example_notification();
        notification.also_firing = (0..14).map(|at| format!("a{at}")).collect();
        let long = render_message(&notification, false).long;
        assert!(long.ends_with("a8, a9 and 4 others"), "{long}");
    }

    #[test]
    fn unknown_numbers_are_left_out_of_the_short_text() {
        let mut notification = example_notification();
        notification.impact = Default::default();
        (notification.value, notification.threshold) = (None, None);
        let MessageText { short, long, .. } = render_message(&notification, false);
        assert!(!short.contains("affected") && !short.contains("threshold"), "{short}");
        assert!(long.contains("\nrequests affected: unknown\n"), "{long}");
    }

    #[test]
    fn numbers_of_a_reminder_are_those_of_the_first_message() {
        let mut notification = example_notification();
        notification.key.reminder = 1;
        let expected = "in the first message: 12,031 requests and 811 users affected";
        assert_eq!(impact_text(&notification), expected);
    }

    #[test]
    fn no_affected_request_is_known_not_unknown() {
        let mut notification = example_notification();
        notification.impact = AlertImpact { requests: Some(0), users: None };
        let short = render_message(&notification, false).short;
        assert!(short.ends_with("; 0 requests affected"), "{short}");
    }
}

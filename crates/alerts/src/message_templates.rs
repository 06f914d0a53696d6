//! Templates of messages: those of rules with the functions of Prometheus, over what a message
//! knows.

use std::sync::Arc;

use notify::{ConfiguredContact, MessageFacts, MessageTemplates, Notification, NotifyProblem};
use role::settings::Document;
use rules::AlertTemplates;
use rules::template::{
    TemplateContext, TemplateQuery, TemplateRecord, TemplateSample, TemplateValue, TextTemplate,
};

use crate::alert_link::page_link;
use crate::settings::AlertTables;

/// Variables of the templates of rules.
const DECLARATIONS: &str = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}\
    {{$externalURL := .ExternalURL}}{{$value := .Value}}";

/// Expands templates of messages.
#[derive(Clone, Debug)]
pub struct AlertMessageTemplates {
    /// What all templates see of the node.
    node: AlertTemplates,
}

impl AlertMessageTemplates {
    /// Templates that see what the table `[alerts]` of a settings file says of the node; of a table
    /// with mistakes, nothing.
    pub fn of_settings(document: &Document<'_>) -> AlertMessageTemplates {
        let tables = AlertTables::read(document).unwrap_or_default();
        AlertMessageTemplates::new(tables.templates())
    }

    /// Address of the view Alerts of the page; `None` if nobody said where the page is.
    pub fn alerts_link(&self) -> Option<String> {
        page_link(&self.node.external_url)
    }

    pub(crate) fn new(node: AlertTemplates) -> AlertMessageTemplates {
        AlertMessageTemplates { node }
    }
}

/// Templates of contacts that are none.
pub fn message_template_problems(contacts: &[ConfiguredContact]) -> Vec<NotifyProblem> {
    let sources = contacts.iter().flat_map(|contact| {
        let templates = &contact.templates;
        [("title", templates.title.as_ref()), ("text", templates.text.as_ref())]
    });
    let problems = sources.filter_map(|(name, source)| {
        let source = source?;
        let what = format!("{name}: {}", parse(&source.text).err()?);
        Some(NotifyProblem { position: source.byte, what })
    });
    problems.collect()
}

fn parse(template: &str) -> Result<TextTemplate, String> {
    let parsed = TextTemplate::parse("message", &format!("{DECLARATIONS}{template}"));
    parsed.map_err(|error| error.to_string())
}

impl MessageTemplates for AlertMessageTemplates {
    fn expand(&self, template: &str, facts: &MessageFacts<'_>) -> Result<String, String> {
        let context = TemplateContext {
            query: &NoQueries,
            time_ns: facts.now_ns,
            external_url: &self.node.external_url,
        };
        let expanded = parse(template)?.expand(&self.data(facts), &context);
        expanded.map_err(|error| error.to_string())
    }
}

/// A message is sent whatever the store does.
struct NoQueries;

impl TemplateQuery for NoQueries {
    fn query(&self, _expression: &str, _time_ns: i64) -> Result<Vec<TemplateSample>, String> {
        Err("messages cannot query; use an annotation of the rule".to_owned())
    }
}

impl AlertMessageTemplates {
    fn data(&self, facts: &MessageFacts<'_>) -> TemplateValue {
        let Notification { key, value, also_firing, since_ns, at_ns, .. } = facts.notification;
        let notification = facts.notification;
        let text = |text: &str| TemplateValue::text(text);
        let number = |number: Option<f64>| number.map_or(TemplateValue::Nil, TemplateValue::Float);
        let count = |count: Option<u64>| {
            let count = count.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
            count.map_or(TemplateValue::Nil, TemplateValue::Int)
        };
        let others = also_firing.iter().map(|name| text(name)).collect();
        let fields = [
            ("Title", text(facts.title)),
            ("Text", text(facts.text)),
            ("State", text(notification.state.name())),
            ("Severity", TemplateValue::Int(notification.severity.into())),
            ("Name", text(&notification.name)),
            ("Labels", TemplateValue::text_map(&notification.labels)),
            ("Annotations", TemplateValue::text_map(&notification.annotations)),
            ("Criterion", text(&notification.criterion)),
            ("Value", number(value.map(|value| value.estimate))),
            ("Lower", number(value.map(|value| value.lower))),
            ("Upper", number(value.map(|value| value.upper))),
            ("Threshold", number(notification.threshold)),
            ("Unit", text(&notification.unit)),
            ("Measured", text(&facts.measured)),
            ("Requests", count(notification.impact.requests)),
            ("Users", count(notification.impact.users)),
            ("Affected", text(&facts.affected)),
            ("Since", TemplateValue::time(*since_ns)),
            ("At", TemplateValue::time(*at_ns)),
            ("Duration", TemplateValue::Duration(at_ns.saturating_sub(*since_ns), false)),
            ("Link", text(notification.link.as_deref().unwrap_or_default())),
            ("Notes", text(notification.notes.as_deref().unwrap_or_default())),
            ("AlsoFiring", TemplateValue::list(others)),
            ("Reminder", TemplateValue::Int(key.reminder.into())),
            ("MayBeDuplicate", TemplateValue::Bool(facts.may_be_duplicate)),
            ("Key", text(&key.to_string())),
            ("ExternalLabels", TemplateValue::text_map(&self.node.external_labels)),
            ("ExternalURL", text(&self.node.external_url)),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value)).into();
        TemplateValue::Record(Arc::new(TemplateRecord::new("message", fields, None)))
    }
}

#[cfg(test)]
mod tests {
    use hist::Bracket;
    use notify::{AlertImpact, NotificationKey, NotifiedState};

    use super::*;

    fn notification() -> Notification {
        let text = |text: &str| text.to_owned();
        Notification {
            key: NotificationKey { alert_id: text("a1"), transition: 3, reminder: 2 },
            state: NotifiedState::Firing,
            severity: 1,
            name: text("Slow"),
            labels: [(text("job"), text("shop"))].into(),
            annotations: [(text("team"), text("red"))].into(),
            since_ns: 1_700_000_000_000_000_000,
            at_ns: 1_700_000_300_000_000_000,
            criterion: text("p99 above 250 ms"),
            impact: AlertImpact { requests: Some(7), users: None },
            unit: text("s"),
            threshold: Some(0.25),
            value: Some(Bracket { lower: 0.3, estimate: 0.31, upper: 0.32 }),
            link: None,
            notes: Some(text("restart")),
            also_firing: vec![text("b"), text("c")],
            picture: None,
        }
    }

    fn expand(template: &str) -> Result<String, String> {
        let templates = AlertMessageTemplates::new(AlertTemplates {
            external_labels: [("site".to_owned(), "north".to_owned())].into(),
            external_url: "http://deck".to_owned(),
        });
        let facts = MessageFacts {
            notification: &notification(),
            title: "default title",
            text: "default text",
            measured: "value 310.0 ms (300.0 to 320.0 ms), threshold 250 ms".to_owned(),
            affected: "7 requests affected".to_owned(),
            may_be_duplicate: false,
            now_ns: 1_700_000_300_000_000_000,
        };
        templates.expand(template, &facts)
    }

    #[track_caller]
    fn check(template: &str, expected: &str) {
        assert_eq!(expand(template).as_deref(), Ok(expected));
    }

    /// Each field of the table of the page, with its example.
    #[test]
    fn fields_and_functions_of_the_page_work() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/templates.md");
        let page = std::fs::read_to_string(page).expect("the page");
        let (_, rest) = page.split_once("## Templates of messages\n").expect("the section");
        let table = rest.split("\n## ").next().unwrap_or_default();
        let mut documented = 0;
        for row in table.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
            let [_, _, example, output] = cells[..] else { panic!("{row}") };
            let plain = |cell: &str| cell.trim().trim_matches('`').replace("\\|", "|");
            check(&plain(example), &plain(output));
            documented += 1;
        }
        assert_eq!(documented, 28, "fields");
    }

    #[test]
    fn unknown_numbers_are_false() {
        check("{{ if .Users }}{{ .Users }}{{ else }}nobody knows{{ end }}", "nobody knows");
        check("{{ $labels.missing }}", "");
    }

    #[test]
    fn a_failing_template_has_a_cause() {
        let error = expand("{{ .Nothing }}").unwrap_err();
        assert!(error.contains("can't evaluate field Nothing"), "{error}");
        let error = expand("{{ query \"up\" }}").unwrap_err();
        assert!(error.contains("messages cannot query"), "{error}");
        assert!(expand("{{ if }}").is_err());
    }
}

//! Templates of rules and messages: Go's `text/template` with the functions of Prometheus.
//!
//! Output and error messages are those of Go 1.26 and Prometheus 3.15, byte for byte; golden
//! vectors made by those programs (`testdata/templates/generate.go`) keep it so.
//! `docs/templates.md` lists functions and known differences. Expansion is pure: the time and the
//! answers to queries are arguments. It is bounded as `eval.rs` says, so a template can neither
//! hang nor exhaust the node.

mod alert_data;
mod builtin;
mod duration;
mod eval;
mod float;
mod format;
mod function;
mod go_time;
mod method;
mod node;
mod number;
mod parser;
mod quote;
mod signature;
mod title;
mod token;
mod value;

pub(crate) use alert_data::check_alert_text;
pub use alert_data::{AlertTemplateData, ExpandedText, expand_alert_text};
pub(crate) use quote::quoted as go_literal;
pub use value::{
    TemplateList, TemplateMap, TemplateRecord, TemplateSample, TemplateTime, TemplateValue,
};

use node::Definitions;

/// Limit of the source text of a template: 1 MiB.
const TEMPLATE_SIZE_MAX: usize = 1 << 20;

/// A parsed template. Parse once, expand often.
#[derive(Debug)]
pub struct TextTemplate {
    name: String,
    text: String,
    definitions: Definitions,
}

/// Why a template has no result. The texts are Prometheus', which users search for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The text is no template. The author of the rule must correct it.
    #[error("error parsing template {name}: {message}")]
    Parse {
        /// Name of the template.
        name: String,
        /// Message with name and line.
        message: String,
    },
    /// The template failed with these data, or reached a limit.
    #[error("error executing template {name}: {message}")]
    Execute {
        /// Name of the template.
        name: String,
        /// Message with name, line, column and the part that failed.
        message: String,
    },
}

/// Answers the function `query`.
pub trait TemplateQuery {
    /// The instant vector of a PromQL expression at a time; the error is shown in the message.
    fn query(&self, expression: &str, time_ns: i64) -> Result<Vec<TemplateSample>, String>;
}

/// What a template sees apart from its data.
#[derive(Clone, Copy)]
pub struct TemplateContext<'a> {
    /// Answers the function `query`.
    pub query: &'a dyn TemplateQuery,
    /// Time of `now` and of queries, in nanoseconds since 1970.
    pub time_ns: i64,
    /// URL under which users reach the node (`externalURL`, `pathPrefix`).
    pub external_url: &'a str,
}

impl TextTemplate {
    /// Parses a template. `name` appears in error messages.
    pub fn parse(name: &str, text: &str) -> Result<TextTemplate, TemplateError> {
        let failed = |message| TemplateError::Parse { name: name.to_owned(), message };
        if text.len() > TEMPLATE_SIZE_MAX {
            let limit = TEMPLATE_SIZE_MAX >> 10;
            return Err(failed(format!("template: {name}: size limit ({limit} KiB) reached")));
        }
        let is_function = |name: &str| function::find(name).is_some();
        let definitions = parser::parse(name, text, &is_function).map_err(failed)?;
        Ok(TextTemplate { name: name.to_owned(), text: text.to_owned(), definitions })
    }

    /// Expands the template with `data` as `.` and `$`.
    pub fn expand(
        &self,
        data: &TemplateValue,
        context: &TemplateContext<'_>,
    ) -> Result<String, TemplateError> {
        let expanded = eval::expand(&self.name, &self.text, &self.definitions, data, context);
        expanded.map_err(|message| TemplateError::Execute { name: self.name.clone(), message })
    }
}

//! `/v1/functions`: functions of both languages, for completion.

use query::Language;
use query::caql::Signature;
use query::caql::signature::Stability;
use query::promql::{self, AggregateOp};

use super::{FUNCTIONS, language};
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{self, Bool, List, Object, Text};
use crate::json::integer;
use crate::parameters::Parameters;

pub(super) async fn functions(
    context: Context,
    parameters: Parameters,
) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(FUNCTIONS)?;
    let list = match language(&parameters)? {
        Language::PromQl => promql(),
        Language::Caql => caql(),
    };
    context.queries.json_response(&Object(vec![("schema", integer(1)), ("functions", List(list))]))
}

fn promql() -> Vec<Json> {
    let aggregations = AggregateOp::ALL.into_iter().map(|op| {
        let parameter = op.param().map(|of| format!("{}, ", of.documented())).unwrap_or_default();
        let written = format!("{} by (label) ({parameter}instant vector)", op.text());
        function(op.text(), written, op.is_experimental())
    });
    let functions =
        promql::functions().map(|one| function(one.name, one.to_string(), one.is_experimental));
    aggregations.chain(functions).collect()
}

/// Functions that are not deprecated.
fn caql() -> Vec<Json> {
    let current = Signature::all().filter(|one| one.stability == Stability::Current);
    current.map(|one| function(&one.name, one.to_string(), false)).collect()
}

fn function(name: &str, call: String, is_experimental: bool) -> Json {
    Object(vec![
        ("name", Text(name.to_owned())),
        ("call", Text(call)),
        ("experimental", Bool(is_experimental)),
    ])
}

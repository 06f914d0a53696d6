//! Replay of a rule file, of Prometheus or of own rules, over stored data, before it is used:
//! `/v1/rules/replay`.
//!
//! One replay runs at a time, on a thread of its own beside those of queries and of the role that
//! evaluates rules; a second one is rejected. Its memory counts as that of a heavy query. It ends
//! when the client disconnects.

mod document;
mod replay_body;
mod replay_lane;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use query::{Settings, StoreSource, promql};
use rules::{
    AlertTemplates, EvaluatedGroup, GroupDefaults, ProblemSeverity, ReplayInputs, RuleFile,
    RuleReplayError, replay_groups,
};
use store::ReadView;

use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::blocking::blocking;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{self, Bool, Null, Object};
use crate::json::integer;
use crate::parameters::Parameters;
use crate::route::{ApiRoute, JSON, Parameter, RULE_REPLAY_PATH};
use crate::routing;

use self::replay_body::{BodyKind, ReplayBody};
pub(crate) use self::replay_lane::ReplayLane;

/// Maximum number of evaluations of rules: a week of 49 rules each minute.
const EVALUATIONS_MAX: u64 = 500_000;
/// Longest replay: `topdeck rules replay` waits for ten minutes.
const TIMEOUT: Duration = Duration::from_secs(9 * 60);
/// Default range.
const RANGE_NS: i64 = 7 * store::DAY;
/// Types of rule files.
const YAML: &str = "application/yaml";
const TOML: &str = "application/toml";

const PARAMETERS: &[Parameter] = &[
    Parameter::text("from", "start of the range; default: a week before the end"),
    Parameter::text("to", "end of the range; default: now"),
    Parameter::text(
        "file",
        "path of the file: groups are evaluated at the times of those of the file of this name; \
         own rules are in files that end in .toml",
    ),
    Parameter::text("rule", "name of an alert or recorded metric; default: all").many(),
    Parameter::text(
        "interval",
        "evaluation interval of groups that set none; default: that of the node",
    ),
    Parameter::text(
        "query_offset",
        "query_offset of groups that set none; default: that of the node",
    ),
];

const REPLAY: ApiRoute = ApiRoute {
    method: "post",
    body: Some((
        YAML,
        "a rule file of Prometheus, or with the type application/toml, or a file whose name ends \
         in .toml, one of own rules; at most 1 MiB. With the type application/json, at most 16 \
         MiB: {\"rules\": \"TEXT\", \"files\": {\"NAME\": \"TEXT\"}}, own rules with the files \
         that they name",
    )),
    ..ApiRoute::get(
        RULE_REPLAY_PATH,
        "Evaluates a rule file over stored data: what its alerts would have done.",
        PARAMETERS,
        || routing::post(replay),
    )
}
.with_response(200, JSON, "changes of state per alert, and a sentence per rule");

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(RULE_REPLAY_PATH, "Progress of the replay that is running.", &[], || {
        routing::get(progress)
    }),
    REPLAY,
];

/// A request.
struct ReplayRequest {
    file: RuleFile,
    defaults: GroupDefaults,
    rules: Vec<String>,
    from_ns: i64,
    to_ns: i64,
}

impl ReplayRequest {
    fn parse(
        parameters: &Parameters,
        body: &ReplayBody,
        mut defaults: GroupDefaults,
        now: i64,
    ) -> Result<ReplayRequest, ApiError> {
        let to_ns = parameters.time("to", now)?.unwrap_or(now).min(now);
        let from_ns = parameters.time("from", now)?.unwrap_or(to_ns.saturating_sub(RANGE_NS));
        if from_ns >= to_ns {
            let what = "invalid range: from is not before to; rules are replayed up to now";
            return Err(ApiError::BadRequest(what.to_owned()));
        }
        if let Some(interval_ns) = parameters.duration("interval")? {
            defaults.interval_ns = interval_ns.max(1);
        }
        if let Some(offset_ns) = parameters.duration("query_offset")? {
            defaults.query_offset_ns = offset_ns.max(0);
        }
        let file = body.parse(parameters.get("file"));
        let is_error = |severity| severity == ProblemSeverity::Error;
        if file.groups.iter().all(|group| group.rules.is_empty()) {
            let first = file.problems.iter().find(|problem| is_error(problem.severity));
            let cause = first.map_or_else(|| "it has no rules".to_owned(), ToString::to_string);
            return Err(ApiError::BadRequest(format!("cannot replay the rule file: {cause}")));
        }
        let rules: Vec<String> = parameters.all("rule").map(str::to_owned).collect();
        let names = || file.groups.iter().flat_map(|group| &group.rules).map(|rule| &rule.name);
        if let Some(unknown) = rules.iter().find(|rule| !names().any(|name| name == *rule)) {
            let known: Vec<&str> = names().take(20).map(String::as_str).collect();
            let expected = format!("the name of a rule of the file: {}", known.join(", "));
            return Err(ApiError::invalid_parameter("rule", unknown, &expected));
        }
        Ok(ReplayRequest { file, defaults, rules, from_ns, to_ns })
    }

    /// Groups with the rules to be evaluated: those that are asked for, and the recording ones and
    /// own rules that they may read.
    fn groups(&self) -> Vec<EvaluatedGroup> {
        let groups = self.file.groups.iter().filter_map(|group| {
            let mut group = group.clone();
            if !self.rules.is_empty() {
                let mut names: BTreeSet<&str> = self.rules.iter().map(String::as_str).collect();
                // Own rules follow those that they read.
                for rule in self.file.groups.iter().flat_map(|group| &group.rules).rev() {
                    let own = rule.condition().filter(|_| names.contains(&*rule.name));
                    names.extend(own.into_iter().flat_map(|own| own.dependencies()));
                }
                group
                    .rules
                    .retain(|rule| rule.alert_settings().is_none() || names.contains(&*rule.name));
            }
            let is_used = !group.rules.is_empty();
            is_used.then(|| EvaluatedGroup::new(group, &self.defaults))
        });
        groups.collect()
    }

    fn run(
        &self,
        view: &ReadView,
        active: &ActiveQuery,
        progress: &dyn Fn(u64, u64),
    ) -> Result<rules::RuleReplay, ApiError> {
        // One thread: queries and the evaluation of rules have the other processors.
        let settings = Settings { threads: 1, ..Settings::default() };
        let inputs = ReplayInputs {
            open_source: &|| Box::new(StoreSource::new(view).with_context(active)),
            settings: &settings,
            options: promql::Options::all(),
            context: active,
            templates: &AlertTemplates::default(),
            evaluations_max: EVALUATIONS_MAX,
            progress,
        };
        let range = self.from_ns..self.to_ns;
        let replayed = replay_groups(self.groups(), &range, &inputs);
        replayed.map_err(|error| match error {
            RuleReplayError::Cancelled => match active.check_cancelled() {
                Err(refusal) => refusal,
                Ok(()) => ApiError::Timeout(error.to_string()),
            },
            RuleReplayError::Source(_) => ApiError::Internal(error.to_string()),
            _ => ApiError::Unprocessable(error.to_string()),
        })
    }
}

/// Values of the role that evaluates rules, from its status.
fn node_defaults(context: &Context) -> GroupDefaults {
    let mut defaults = GroupDefaults::default();
    let Some(Object(fields)) = context.queries.status_section("alerts") else { return defaults };
    for (name, value) in fields {
        let Json::Integer(number) = value else { continue };
        let Ok(number) = i64::try_from(number) else { continue };
        match name {
            "evaluation_interval_ns" => defaults.interval_ns = number,
            "query_offset_ns" => defaults.query_offset_ns = number,
            _ => {}
        }
    }
    defaults
}

async fn replay(context: Context, request: Request) -> Result<JsonBody, ApiError> {
    let parameters = Parameters::of_uri(request.uri())?.reject_unknown(PARAMETERS)?;
    let kind = BodyKind::of(request.headers().get(http::header::CONTENT_TYPE));
    // Before the lane: an upload may be slow. Its memory is that of the bodies.
    let text = ReplayBody::read(kind, request.into_body()).await?;
    // The files of one request are parsed at a time.
    let early = match kind {
        BodyKind::Json => Some(context.queries.replay_lane.enter()?),
        BodyKind::Yaml | BodyKind::Toml => None,
    };
    let body = ReplayBody::parse_text(kind, text)?;
    let (supervisor, shared) = (context.intake.supervisor().clone(), context.clone());
    // A large file takes a while.
    let parse = move || {
        let (defaults, now) = (node_defaults(&shared), shared.intake.now());
        ReplayRequest::parse(&parameters, &body, defaults, now)
    };
    let request = blocking(&supervisor, parse).await.map_err(ApiError::Internal)??;
    let permit = match early {
        Some(permit) => permit,
        None => context.queries.replay_lane.enter()?,
    };
    let queries = Arc::clone(&context.queries);
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let replayed = request.run(view, active, &|done, total| permit.record(done, total))?;
        let json = document::replay_json(&request, &replayed);
        queries.json_response(&json)
    };
    context.run_replay(TIMEOUT, work).await
}

async fn progress(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    parameters.reject_unknown(&[])?;
    let running = context.queries.replay_lane.running();
    let count = |found: Option<u64>| found.map_or(Null, integer);
    context.queries.json_response(&Object(vec![
        ("schema", integer(1)),
        ("is_running", Bool(running.is_some())),
        ("evaluations", count(running.map(|(done, _)| done))),
        ("total", count(running.map(|(_, total)| total))),
    ]))
}

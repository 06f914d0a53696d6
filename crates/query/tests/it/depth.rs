//! The deepest expressions that the limits permit, and deeper ones, in a thread of 2 MiB as a
//! server has: the library is compiled here as its profile says, unlike in its unit tests.

use query::{Error, Language, QueryRequest, Settings, execute, promql};
use store::MINUTE;

use crate::memory::ScriptSource;

fn answer(language: Language, text: &str) -> Result<(), Error> {
    let (start, step) = (0, MINUTE);
    let options = promql::Options::all();
    let request = QueryRequest { text, language, start, end: start, step, options };
    execute(&ScriptSource::default(), &request, &Settings::default(), &|| false).map(|_| ())
}

#[track_caller]
fn is_answered(language: Language, text: &str) {
    answer(language, text).unwrap_or_else(|error| panic!("{text:.80}: {error}"));
}

#[track_caller]
fn is_too_deep(language: Language, text: &str) {
    let error = answer(language, text).expect_err("deeper than the limit").to_string();
    assert!(error.contains("level") || error.contains("nested"), "{text:.80}: {error}");
}

#[test]
fn deepest_caql_fits_the_stack() {
    let caql = Language::Caql;
    is_answered(caql, &format!("{}1{}", "(".repeat(100), ")".repeat(100)));
    is_answered(caql, &format!("1{}", "|pass()".repeat(99)));
    for opening in ["!", "-", "not ", "pass{", "(", "(1^1/1*1%1-1+1<1>1<=1>=1==1 and "] {
        is_too_deep(caql, &opening.repeat(8_000));
    }
}

#[test]
fn deepest_promql_fits_the_stack() {
    let promql = Language::PromQl;
    is_answered(promql, &format!("{}a{}", "(".repeat(90), ")".repeat(90)));
    is_answered(promql, &format!("a{}", "+a".repeat(250)));
    for opening in ["(", "-", "sum(", "2^", "abs("] {
        is_too_deep(promql, &opening.repeat(200));
    }
    for text in ["(", "-"].map(|opening| format!("a[{}", opening.repeat(200))) {
        is_too_deep(promql, &text);
    }
    is_too_deep(promql, &format!("a[1{}]", "+1".repeat(200)));
    is_too_deep(promql, &format!("a{}", "+a".repeat(300)));
    is_too_deep(promql, &format!("a{}", "[5m:]".repeat(300)));
}

//! Rejected queries and their messages.

use expect_test::{Expect, expect};

use super::super::signature::{InputKind, OutputShape, Stability};
use super::super::{DEPTH_MAX, EXPRESSION_BYTES_MAX, Signature, bind, parse};
use super::{context, error_text, expr_of};
use crate::query_warnings::{QueryWarningKind, QueryWarnings};

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(error_text(text), expected, "{:.80}", text);
}

#[test]
fn required_errors() {
    check("1 < 2 < 3", "[<] comparisons take exactly two operands: write (a < b) and (b < c)");
    check("find(\"a\"", "[] found the end, expected `,` or `)`");
    check("label", "[label] `label` requires arguments or a block; write label(…) or label{…}");
    check("f(x=1, 2)", "[2] positional arguments come first; move this before x=");
    check(
        "find('a') | delay(60)",
        "[60] invalid delay of delay: expected a duration, such as 5m; found the number 60: write \
         60s or 60m",
    );
    check(
        "find(\"lat\") | group_by:merge(\"host\")",
        "[find(\"lat\")] group_by:merge takes histograms, got numbers; \
         find:histogram(…) reads histograms, histogram() builds them from numbers",
    );
    check(
        "metric(\"not-a-uuid\",\"x\")",
        "[\"not-a-uuid\"] invalid check_uuid of metric: expected a UUID in quotes, such as \
         \"1b4e28ba-2fa1-11d2-883f-0016d3cca427\"; found the string \"not-a-uuid\"",
    );
    check(
        "find(\"x\", limit=5000)",
        "[limit=5000] invalid limit of find: expected a whole number from 1 to 3000; found the \
         number 5000",
    );
    check(
        "#serial find(\"req\") | top(1)",
        "[top] top needs the whole range: not available with #serial",
    );
    check(
        "find('x', 'host:a')",
        "['host:a'] invalid tag_query of find: expected a tag search in quotes, such as \
         \"and(host:web-1)\"; a search starts with and(, or( or not(; write and(host:a)",
    );
    check(
        "find('x', 'not(a:b,c:d)')",
        "['not(a:b,c:d)'] invalid tag_query of find: expected a tag search in quotes, such as \
         \"and(host:web-1)\"; invalid search: column 8: found `,`, expected `)`",
    );
}

/// Each text with its error.
#[track_caller]
fn check_all(texts: &[&str], expected: Expect) {
    let lines =
        texts.iter().map(|text| format!("{}\n    {}\n", text.escape_debug(), error_text(text)));
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn syntax() {
    check_all(
        &[
            "",
            "// only this",
            "a == b",
            "1 == 2 == 3",
            "1 +",
            "1 2",
            "1)",
            "(1",
            "pass{1",
            "pass{1,}",
            "pass{,}",
            "f(1,)",
            "f(mean)",
            "f(x=)",
            "f(x=1,x=2)",
            "f(g(1))",
            "1 | 2",
            "1 | (pass())",
            "1 | pass",
            "1 | pass() + 1",
            "1 | not pass()",
            "1 = 2",
            "+ 5",
            "+pass{1}",
            "and 1",
            "f(x:y=1)",
            "f{1}(2)",
            "find('x)",
            "1 != 2",
            "[5m]",
            "NULL()",
            "5x",
            "'a' // \n | ; pass()",
            "1 | | pass()",
        ],
        expect![[r#"

                [] empty expression; write one, such as find("name")
            // only this
                [] empty expression; write one, such as find("name")
            a == b
                [a] `a` requires arguments or a block; write a(…) or a{…}
            1 == 2 == 3
                [==] comparisons take exactly two operands: write (a == b) and (b == c)
            1 +
                [] found the end, expected a call, a number, a duration, a string or `(`
            1 2
                [2] found the number 2, expected an operator, | or the end
            1)
                [)] found `)`, expected an operator, | or the end
            (1
                [] found the end, expected an operator, | or `)`
            pass{1
                [] found the end, expected `,` or `}`
            pass{1,}
                [}] found `}`, expected a call, a number, a duration, a string or `(`
            pass{,}
                [,] found `,`, expected a call, a number, a duration, a string or `(`
            f(1,)
                [)] found `)`, expected a number, a duration, a string or a constant
            f(mean)
                [mean] `mean` is not a value; quote strings, as in "mean", and put streams in braces after the arguments
            f(x=)
                [)] found `)`, expected a number, a duration, a string or a constant
            f(x=1,x=2)
                [x] duplicate argument `x`
            f(g(1))
                [g] `g` is not a value; quote strings, as in "g", and put streams in braces after the arguments
            1 | 2
                [2] found the number 2, expected a call after |, such as stats:sum()
            1 | (pass())
                [(] found `(`, expected a call after |, such as stats:sum()
            1 | pass
                [pass] `pass` requires arguments or a block; write pass(…) or pass{…}
            1 | pass() + 1
                [+] a call after | cannot be an operand; write (… | f()) + 1 or f(){…} + 1
            1 | not pass()
                [not] found `not`, expected a call after |, such as stats:sum()
            1 = 2
                [=] a single = names an argument; write == for a comparison
            + 5
                [+] unary + requires a number directly after it
            +pass{1}
                [+] unary + requires a number directly after it
            and 1
                [and] found `and`, expected a call, a number, a duration, a string or `(`
            f(x:y=1)
                [f] unknown function f; did you mean if?
            f{1}(2)
                [(] found `(`, expected an operator, | or the end
            find(\'x)
                ['] unterminated string: missing '
            1 != 2
                [!=] `!=` is not an operator; write not (a == b)
            [5m]
                [[] unexpected `[`; write window:sum(5m) or rolling:sum(5m) for a time range
            NULL()
                [(] found `(`, expected an operator, | or the end
            5x
                [x] unknown unit `x`; use s, m, h, d or w
            \'a\' // \n | ; pass()
                [;] unexpected `;`: a query is one expression
            1 | | pass()
                [|] found `|`, expected a call after |, such as stats:sum()
        "#]],
    );
}

#[test]
fn heads() {
    check_all(
        &[
            "#serail 1",
            "#min_period 1",
            "#min_period=0 1",
            "#min_period=x 1",
            "#min_period=1m30 1",
            "#min_period=1 #min_period=2 1",
            "#lang 1",
            "#lang=\"sql\" 1",
            "1 #serial",
            "#serial",
            "#min_period=99999999999 1",
        ],
        expect![[r##"
            #serail 1
                [#serail] unknown directive #serail; supported are #preview, #serial, #min_period=10s, #lang="promql", #lookback_window=5m
            #min_period 1
                [#min_period] #min_period requires a positive duration, as in #min_period=60 or #min_period=1m
            #min_period=0 1
                [#min_period=0] #min_period requires a positive duration, as in #min_period=60 or #min_period=1m
            #min_period=x 1
                [#min_period=] #min_period requires a positive duration, as in #min_period=60 or #min_period=1m
            #min_period=1m30 1
                [1m30] duration without a unit
            #min_period=1 #min_period=2 1
                [#min_period] duplicate directive #min_period
            #lang 1
                [] #lang requires a language, as in #lang="promql"
            #lang=\"sql\" 1
                [#lang] unknown language "sql"; use "caql" or "promql"
            1 #serial
                [#] directives must precede the expression
            #serial
                [] empty expression; write one, such as find("name")
            #min_period=99999999999 1
                [#min_period=99999999999] #min_period requires a positive duration, as in #min_period=60 or #min_period=1m
        "##]],
    );
}

#[test]
fn functions_and_arguments() {
    check_all(
        &[
            "fnd('x')",
            "1 | histogram:percentil(9)",
            "1 | percentile(9)",
            "1 | xyzzy()",
            "op:mul{1,2}",
            "search:metric('x')",
            "hf:find('x')",
            "1 | op:neq(2)",
            "find()",
            "find('x', 'and(a)', 3)",
            "find('x', limits=3)",
            "find('x', foo=3)",
            "find('x', 'and(a)', tag_query='and(b)')",
            "find(5)",
            "find('')",
            "find('/a(/')",
            "find('x', 'hint(and(a))')",
            "find('x', limit=1.5)",
            "1 | find('x')",
            "stats:sum()",
            "'x' | pass()",
            "1 | stats:percentile()",
            "1 | stats:percentile(101)",
            "1 | window:sum()",
            "1 | window:sum(0m)",
            "1 | window:sum(5m, align='middle')",
            "1 | delay(-1m)",
            "1 | fill(NULL)",
            "1 | fill(VIEW_RANGE)",
            "1 | fill(5m)",
            "1 | delay('5m')",
            "1 | label('%t{x')",
            "1 | exclude:label('(')",
            "1 | top(0)",
            "1 | fill:forward(1m)",
            "1 | histogram:mean()",
            "find:histogram('x') + 1",
            "find:histogram('x') | stats:sum()",
            "pass{1, histogram{1}} | fill(0)",
            "time:tz('UTC', 'century')",
        ],
        expect![[r#"
            fnd(\'x\')
                [fnd] unknown function fnd; did you mean find?
            1 | histogram:percentil(9)
                [histogram:percentil] unknown function histogram:percentil; did you mean histogram:percentile?
            1 | percentile(9)
                [percentile] unknown function percentile; did you mean histogram:percentile or rolling:percentile or stats:percentile or window:percentile?
            1 | xyzzy()
                [xyzzy] unknown function xyzzy
            op:mul{1,2}
                [op:mul] op:mul was removed; use op:prod
            search:metric(\'x\')
                [search:metric] search:metric was removed; use find, with a tag search
            hf:find(\'x\')
                [hf:find] hf:find was removed; use find, with #min_period before the expression
            1 | op:neq(2)
                [op:neq] op:neq was removed; use not (a == b)
            find()
                [find] find requires name, a metric's name in quotes, such as "http_*": find(name, [tag_query], limit=1000, start_time_override=…, start_time_offset=…)
            find(\'x\', \'and(a)\', 3)
                [3] find takes 2 arguments by position and named arguments, such as limit=…: find(name, [tag_query], limit=1000, start_time_override=…, start_time_offset=…)
            find(\'x\', limits=3)
                [limits=3] find has no argument limits; did you mean limit?
            find(\'x\', foo=3)
                [foo=3] find has no argument foo: find(name, [tag_query], limit=1000, start_time_override=…, start_time_offset=…)
            find(\'x\', \'and(a)\', tag_query=\'and(b)\')
                [tag_query='and(b)'] argument tag_query is given twice, by name and by position
            find(5)
                [5] invalid name of find: expected a metric's name in quotes, such as "http_*"; found the number 5
            find(\'\')
                [''] invalid name of find: expected a metric's name in quotes, such as "http_*"; found an empty string; match every name with "*"
            find(\'/a(/\')
                ['/a(/'] invalid name of find: expected a metric's name in quotes, such as "http_*"; found the invalid regex "a(" (unclosed group), expected a valid regex
            find(\'x\', \'hint(and(a))\')
                ['hint(and(a))'] invalid tag_query of find: expected a tag search in quotes, such as "and(host:web-1)"; hint(…) is not supported; use its first argument alone
            find(\'x\', limit=1.5)
                [limit=1.5] invalid limit of find: expected a whole number from 1 to 3000; found the number 1.5
            1 | find(\'x\')
                [find] find takes no streams; to combine both, write pass{…, find(…)}
            stats:sum()
                [stats:sum] stats:sum requires streams; write find(…) | stats:sum(…) or stats:sum(…){…}
            \'x\' | pass()
                ['x'] a string is not a stream; use it as an argument, as in find("name")
            1 | stats:percentile()
                [stats:percentile] stats:percentile requires percentile, a number from 0 to 100: stats:percentile(percentile, …)
            1 | stats:percentile(101)
                [101] invalid percentile of stats:percentile: expected a number from 0 to 100; found the number 101
            1 | window:sum()
                [window:sum] window:sum requires window_duration, a duration above 0, such as 5m: window:sum(window_duration, skip=window_duration, offset=0s, align="start", period=VIEW_PERIOD)
            1 | window:sum(0m)
                [0m] invalid window_duration of window:sum: expected a duration above 0, such as 5m; found the duration 0s
            1 | window:sum(5m, align=\'middle\')
                [align='middle'] invalid align of window:sum: expected one of "start", "end"; found the string "middle"
            1 | delay(-1m)
                [-1m] invalid delay of delay: expected a duration, such as 5m; found the duration -1m, below 0
            1 | fill(NULL)
                [NULL] invalid value of fill: expected a number; found NULL
            1 | fill(VIEW_RANGE)
                [VIEW_RANGE] invalid value of fill: expected a number; VIEW_RANGE is the duration 1h
            1 | fill(5m)
                [5m] invalid value of fill: expected a number; found the duration 5m
            1 | delay(\'5m\')
                ['5m'] invalid delay of delay: expected a duration, such as 5m; found the string "5m"
            1 | label(\'%t{x\')
                ['%t{x'] invalid format of label: expected a label in quotes, such as "%n %tv{host}"; `%t{` has no closing }: write %t{host}
            1 | exclude:label(\'(\')
                ['('] invalid regex of exclude:label: expected a regex in quotes, such as "^web-"; found the invalid regex "(" (unclosed group), expected a valid regex
            1 | top(0)
                [0] invalid k of top: expected a whole number not below 1; found the number 0
            1 | fill:forward(1m)
                [1m] fill:forward takes only named arguments, such as limit=…: fill:forward(limit=…)
            1 | histogram:mean()
                [1] histogram:mean takes histograms, got numbers; find:histogram(…) reads histograms, histogram() builds them from numbers
            find:histogram(\'x\') + 1
                [find:histogram('x')] `+` takes numbers, got histograms; histogram:mean() or histogram:percentile(99) convert histograms to numbers, histogram:merge() merges them
            find:histogram(\'x\') | stats:sum()
                [find:histogram('x')] stats:sum takes numbers, got histograms; histogram:mean() or histogram:percentile(99) convert histograms to numbers, histogram:merge() merges them
            pass{1, histogram{1}} | fill(0)
                [pass{1, histogram{1}}] fill takes numbers, got numbers and histograms; histogram:mean() or histogram:percentile(99) convert histograms to numbers, histogram:merge() merges them
            time:tz(\'UTC\', \'century\')
                ['century'] invalid field of time:tz: expected one of "second", "minute", "hour", "monthday", "month", "weekday", "yearday", "year"; found the string "century"
        "#]],
    );
}

#[test]
fn limits() {
    let long = format!("1 {}", " ".repeat(EXPRESSION_BYTES_MAX));
    check(&long, "limit of 262144 bytes of query text exceeded (262146); split the query");
    let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(parse(&nested(DEPTH_MAX)).is_ok());
    let deep =
        "limit of 100 levels of calls, operators and parentheses exceeded (101); split the query";
    check(&nested(DEPTH_MAX + 1), deep);
    let pipes = |count: usize| format!("1{}", "|pass()".repeat(count));
    assert!(parse(&pipes(DEPTH_MAX - 1)).is_ok());
    check(&pipes(DEPTH_MAX), deep);
    check(&"!".repeat(200_000), deep);
    check(&"-".repeat(200_000), deep);
    check(&"not ".repeat(50_000), deep);
    check(&"pass{".repeat(50_000), deep);
    check(&"(".repeat(200_000), deep);
    check(&"(1^1/1*1%1-1+1<1>1<=1>=1==1 and ".repeat(8_000), deep);
    check(
        &format!("pass{{{}1}}", "1,".repeat(1000)),
        "limit of 1000 inputs of a call exceeded (1001); use one find for many streams",
    );
    check(
        &format!("delay({}1m)", "1m,".repeat(1000)),
        "limit of 1000 arguments in a call exceeded (1001); split the call into several",
    );
    check(
        &format!("1{}", "+1".repeat(100_000)),
        "limit of 1000 operands in a chain exceeded (1001); use op:sum or stats:sum with one find",
    );
    check(
        &format!("pass{{{}1}}", "find('/a/'),".repeat(65)),
        "limit of 64 regexes exceeded (65); use globs, such as web-*, or combine several regexes \
         in one",
    );
}

#[test]
fn deprecated_names_are_warned_about() {
    let query = parse("find:histogram('x') | histogram:window(5m)").unwrap();
    let (context, mut notes) = (context(&query), QueryWarnings::default());
    assert!(bind(&expr_of(query), &context, &mut notes).is_ok());
    let notes: Vec<_> =
        notes.of_kind(QueryWarningKind::Info).map(|(message, _)| message.to_owned()).collect();
    assert_eq!(notes, ["histogram:window is deprecated; use window:merge"]);
}

#[test]
fn function_table_is_consistent() {
    for (before, next) in Signature::all().zip(Signature::all().skip(1)) {
        assert!(before.name < next.name, "{} is there twice", next.name);
    }
    for function in Signature::all() {
        let canonical = Signature::find(&function.canonical_name).expect(&function.canonical_name);
        assert_eq!(canonical.canonical_name, canonical.name);
        let mut names: Vec<_> =
            function.parameters.iter().chain(&function.options).map(|p| p.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{function}");
        let is_source = function.inputs_kind == InputKind::Nothing;
        assert_eq!(is_source, function.output_shape == OutputShape::Source, "{function}");
        if let Stability::Deprecated(instead) = function.stability {
            assert!(Signature::find(instead).is_some(), "{instead}");
        }
    }
}

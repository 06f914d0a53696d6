//! The expressions of the evaluation tests: each parses, binds and reads back from its formatted
//! text.

use super::super::{Body, bind, parse};
use super::{context, parse_and_bind};
use crate::query_warnings::QueryWarnings;

/// Short names for streams.
const STREAMS: [(&str, &str); 6] = [
    ("A", r#"find("req", "and(host:a)")"#),
    ("B", r#"find("req", "and(host:b)")"#),
    ("C", r#"find("req", "and(host:c)")"#),
    ("D", r#"find("total", "and(host:a)")"#),
    ("H", r#"find:histogram("lat", "and(host:a)")"#),
    ("K", r#"find:histogram("lat", "and(host:b)")"#),
];

const EXPRESSIONS: &str = r#"
1 + 2
pass{1, 2, 3}
2 + 3 * 4 ^ 2 / 8
7 % 4 * 2
not 0 or 1
!0 or 1
10 - 2 - 3
100 / 5 / 2
A > 5
B + 1
op:sum{NULL, 3}
stats:sum{NULL, 3}
find("req") | stats:sum()
find("req") | stats:mean()
find("req") | stats:max()
A | stats:min(4)
find("req") | count()
find("nothing") | stats:sum()
B | is_missing()
B | fill(0)
B | fill:forward()
B | fill:forward(limit=1m)
coalesce{B, A}
C | diff()
A | derivative()
D | counter()
D | derivative()
A | delay(2m)
A | delay(1m, 2m)
if{A > 5, A, 0}
A > 5 | wait(3m)
A | window:sum(5m)
A | window:sum(5m, align="end")
A | rolling:mean(3m)
B | rolling:count(3m)
A | window:delta(5m)
C | window:changes(5m)
A | window:stddev(5m)
D | window:resets(10m)
D | window:increase(10m)
D | window:delta(10m)
A | integrate()
integrate:while{ time:tz("UTC","hour"), pass{1} }
integrate:while{ time:tz("US/Eastern","month"), A }
find("req") | group_by:sum("dc")
find("req") | top(1)
find("req") | bottom(1)
find("req") | top(2) | label("%tv{host}")
find("req") | filter:any:gt(9)
find("req") | filter:all:gt(9)
find("req") | filter:any:missing()
find("req") | filter:any:not:missing()
A | filter:values:gt(5)
find("req") | exclude("and(dc:us)")
find("req") | exclude:label("host:[ab]")
find("req") | stats:ratio()
A | normalize()
A | forecasting:slope(3m, 1m)
A | forecasting:ewma(0.5)
op:div{ find("req") | vector("%tv{host}"), find("total") | vector("%tv{host}") } | vector:unpack()
find("req") | vector("%tv{dc}")
find("req") | vector("%tv{dc}", sloppy=1)
find("req") | label("%n %tv-{*}")
A | label("%cn")
A | tag("svc:x") | label("%t{svc}")
find("prod.n1.cpu") | tag:synth("%n","^prod\.([^\.]+)\.","host","$1") | label("%tv{host}")
histogram{1, 2, 3} | histogram:count()
histogram{1, 2, 3} | histogram:mean()
histogram{1, 2, 3} | histogram:median()
histogram{1, 2, 3} | histogram:count_above(2)
histogram{1, 2, 3} | histogram:count_below(2)
histogram{1, 2, 3} | histogram:count_bin(2)
H | histogram:percentile(99, 50, 90)
H | histogram:count()
H | histogram:rate()
H | histogram:rate(period=60s)
H | histogram:mean()
H | histogram:sum()
H | histogram:stddev()
H | histogram:IQR()
H | histogram:count_above(20)
H | histogram:count_below(20)
H | histogram:count_bin(20)
H | histogram:count_between(10,50)
H | histogram:ratio_above(20)
H | histogram:ratio_below(20)
H | histogram:ratio_between(10,50)
H | histogram:inverse_percentile(20, 25, 100)
find:histogram("lat") | histogram:merge() | histogram:count()
find:histogram("lat") | histogram:merge() | histogram:median()
find:histogram("lat") | histogram:merge() | histogram:inverse_percentile(10.5)
H | window:merge(5m) | histogram:count()
H | window:merge(5m) | histogram:median()
histogram:subtract{ find:histogram("lat") | histogram:merge(), K } | histogram:count()
find:histogram("lat") | histogram:merge() | histogram:count_above(100) | integrate()
find("req") | histogram() | histogram:percentile(0,50,100)
time:epoch()
time:tz("UTC", "hour")
time:tz("UTC", "minute")
time:tz("UTC", "monthday")
time:tz("UTC", "month")
time:tz("UTC", "weekday")
time:tz("UTC", "yearday")
time:tz("UTC", "year")
time:tz("US/Eastern","hour")
find("/^re/","and(or(host:a,host:/^c$/),not(dc:eu))")
find("r?q","and(dc:u*)")
find('and(__name:req,host)')
A | delay(90s)
A | delay(1d 6h)
pass{ A, A | op:prod(2) } | stats:sum()
op:div2{1,2,3}
time:tz("Mars/Base","hour")
"#;

#[test]
fn all_expressions_parse_and_bind() {
    let names = regex::Regex::new(r"\b[ABCDHK]\b").unwrap();
    let expand = |found: &regex::Captures<'_>| {
        let short = |(short, _): &&(&str, &str)| *short == &found[0];
        STREAMS.iter().find(short).map_or("", |(_, long)| long).to_owned()
    };
    let lines = EXPRESSIONS.lines().filter(|line| !line.is_empty());
    assert!(lines.clone().count() > 110);
    for line in lines {
        let text = names.replace_all(line, expand);
        let shown = match parse_and_bind(&text) {
            Ok(_) => parse(&text).unwrap().to_string(),
            Err(error) => panic!("{}", error.format_with_source(&text)),
        };
        let again = parse(&shown).unwrap();
        assert_eq!(again.to_string(), shown);
        let Body::Caql(expr) = &again.body else { panic!("this is CAQL") };
        assert!(bind(expr, &context(&again), &mut QueryWarnings::default()).is_ok(), "{shown}");
    }
}

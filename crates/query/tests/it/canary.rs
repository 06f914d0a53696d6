//! Scripts with wrong expectations: the runner must report each as a failure.

use crate::run::run;

/// Each query must fail, for the reason above it.
const WRONG: &str = r#"
load 1m
  depth{host="a"} 1 2 3
  depth{host="b"} 4 5 6
  latency {{schema:0 sum:1 count:1 buckets:[1]}}x2

# A different number, beyond rounding.
eval instant at 2m depth{host="a"}
  depth{host="a"} 3.00001

# A missing series, an additional one, and a different one.
eval instant at 2m depth
  depth{host="a"} 3

eval instant at 2m depth{host="a"}
  depth{host="a"} 3
  depth{host="b"} 6

eval instant at 2m depth{host="a"} + 0
  depth{host="a"} 3

# An empty result where a value is expected, and the reverse.
eval instant at 2m depth

eval instant at 2m no_such_metric
  {} 1

# A different order.
eval instant at 2m sort(depth)
  expect ordered
  depth{host="b"} 6
  depth{host="a"} 3

# A different result type.
eval instant at 2m vector(1)
  1

eval instant at 2m 1
  {} 1

eval instant at 2m "text"
  expect string "other"

# Timestamps: too few, too many, different ones.
eval range from 0 to 2m step 1m depth{host="a"}
  depth{host="a"} 1 2

eval range from 0 to 2m step 1m depth{host="a"} > 1
  depth{host="a"} 1 2 3

eval range from 0 to 2m step 1m depth{host="a"} > 1
  depth{host="a"} 2 3 _

# Histograms: a different sum, bucket, schema or hint, or a float.
eval instant at 2m latency
  latency {{schema:0 sum:2 count:1 buckets:[1]}}

eval instant at 2m latency
  latency {{schema:0 sum:1 count:1 offset:1 buckets:[1]}}

eval instant at 2m latency
  latency {{schema:1 sum:1 count:1 buckets:[1]}}

eval instant at 2m latency
  latency {{schema:0 sum:1 count:1 counter_reset_hint:gauge buckets:[1]}}

eval instant at 2m latency
  latency 1

# Annotations that are unexpected, missing, or different.
eval instant at 2m quantile(2, depth)
  expect no_warn
  {} Inf

eval instant at 2m sum(depth)
  expect warn
  {} 9

eval instant at 2m quantile(2, depth)
  expect warn msg: PromQL warning: quantile value should be between 0 and 1, got 2 (1:1)
  {} Inf

eval instant at 2m latency + 1
  expect info regex: nothing like it

eval instant at 2m latency + 1
  expect no_info

# Errors that are unexpected, missing, or different.
eval instant at 2m depth + on() depth
  {} 1

eval instant at 2m depth
  expect fail

eval instant at 2m depth + on() depth
  expect fail msg: something else

eval instant at 2m depth + on() depth
  expect fail regex: ^something else$

# No query.
eval instant at 2m depth +
  {} 1
"#;

#[test]
fn wrong_results_are_detected() {
    let report = run(WRONG);
    let lines = WRONG.lines().enumerate();
    let questions: Vec<usize> =
        lines.filter(|(_, line)| line.starts_with("eval")).map(|(at, _)| at + 1).collect();
    let failed: Vec<usize> = report.failures.iter().map(|failure| failure.line).collect();
    assert_eq!(failed, questions);
    assert!(report.failures.iter().all(|failure| !failure.message.contains("it panics")));
}

#[test]
fn script_errors_name_the_line() {
    let check = |script: &str, line: usize| {
        let report = run(script);
        let failed: Vec<usize> = report.failures.iter().map(|failure| failure.line).collect();
        assert_eq!(failed, [line], "{script}");
    };
    check("\nlod 1m", 2);
    check("load 1m\n  a 1 2 x\n", 2);
    check("load 1 minute", 1);
    check("load 1m\n  a{b} 1\n", 2);
    check("load 1m\n  a@st -1m -1m\n  a 1\n", 3);
    check("load 1m\n  a {{sum:x}}\n", 2);
    check("eval instant 5m a", 1);
    check("eval range from 5m to 1m step 1m a", 1);
    check("eval instant at 1m a\n  expect more", 2);
    check("eval instant at 1m a\n  expect warn\n  expect no_warn", 3);
    check("eval instant at 1m a\n  a 1 2", 2);
    check("# A comment ends a command.\nload 1m\n  # here\n  a 1", 4);
}

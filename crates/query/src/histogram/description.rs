//! Histogram literals of tests as text, and tests of their parser.

use super::number::GoNumber;
use super::parser::parse_description;
use super::{BucketGrid, FloatHistogram, ResetHint};

/// Buckets with a gap above this are not formatted.
const BUCKETS_MAX: i64 = 1 << 20;

impl FloatHistogram {
    /// Text that [`parse_description`] parses; `None` for buckets that the notation cannot express,
    /// or that are too far apart.
    pub(crate) fn description(&self) -> Option<String> {
        let mut fields = Vec::new();
        let mut number = |key: &str, value: f64| {
            if value != 0.0 {
                fields.push(format!("{key}:{}", GoNumber(value)));
            }
        };
        match self.grid {
            BucketGrid::Exponential(schema) => number("schema", schema.into()),
            BucketGrid::Custom(_) => number("schema", -53.0),
            BucketGrid::Scheme(_) => return None,
        }
        number("count", self.count);
        number("sum", self.sum);
        number("z_bucket", self.zero_count);
        number("z_bucket_w", self.zero_threshold);
        if let BucketGrid::Custom(bounds) = &self.grid
            && !bounds.is_empty()
        {
            fields.push(format!("custom_values:{}", list(bounds.iter().copied())));
        }
        match self.hint {
            ResetHint::Unknown => {}
            ResetHint::Reset => fields.push("counter_reset_hint:reset".into()),
            ResetHint::NotReset => fields.push("counter_reset_hint:not_reset".into()),
            ResetHint::Gauge => fields.push("counter_reset_hint:gauge".into()),
        }
        for (key, counts) in [("", &self.positive), ("n_", &self.negative)] {
            let (Some(&(first, _)), Some(&(last, _))) = (counts.first(), counts.last()) else {
                continue;
            };
            if i64::from(last) - i64::from(first) >= BUCKETS_MAX {
                return None;
            }
            if first != 0 {
                fields.push(format!("{key}offset:{first}"));
            }
            let mut buckets = counts.iter().copied().peekable();
            let all = (first..=last).map(|index| {
                buckets.next_if(|&(at, _)| at == index).map_or(0.0, |(_, count)| count)
            });
            fields.push(format!("{key}buckets:{}", list(all)));
        }
        Some(format!("{{{{{}}}}}", fields.join(" ")))
    }
}

fn list(values: impl Iterator<Item = f64>) -> String {
    let values: Vec<String> = values.map(|value| GoNumber(value).to_string()).collect();
    format!("[{}]", values.join(" "))
}

mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str, again: &str) {
        let histogram = parse_description(text).unwrap().histogram;
        assert_eq!(histogram.to_string(), shown);
        assert_eq!(histogram.description().as_deref(), Some(again));
        assert!(parse_description(again).unwrap().histogram.equals(&histogram));
    }

    #[track_caller]
    fn fails(text: &str, offset: usize) {
        let error = parse_description(text).unwrap_err();
        assert_eq!(error.offset, offset, "{error}");
    }

    #[test]
    fn read_and_written() {
        check("{{}}", "{count:0, sum:0}", "{{}}");
        check("{{ }}", "{count:0, sum:0}", "{{}}");
        check(
            "{{schema:0 sum:5 count:4 buckets:[1 2 1]}}",
            "{count:4, sum:5, (0.5,1]:1, (1,2]:2, (2,4]:1}",
            "{{count:4 sum:5 buckets:[1 2 1]}}",
        );
        check(
            "{{schema:1 sum:-0.3 count:3.1 z_bucket:7.1 z_bucket_w:0.05 buckets:[5.1 10 0 7] \
             offset:-3 n_buckets:[4.1 5] n_offset:-5 counter_reset_hint:gauge }}",
            "{count:3.1, sum:-0.3, [-0.25,-0.17677669529663687):5, \
             [-0.17677669529663687,-0.125):4.1, [-0.05,0.05]:7.1, \
             (0.25,0.35355339059327373]:5.1, (0.35355339059327373,0.5]:10, \
             (0.7071067811865475,1]:7}",
            "{{schema:1 count:3.1 sum:-0.3 z_bucket:7.1 z_bucket_w:0.05 counter_reset_hint:gauge \
             offset:-3 buckets:[5.1 10 0 7] n_offset:-5 n_buckets:[4.1 5]}}",
        );
        check(
            "{{schema:-53 custom_values:[5 1e1] buckets:[1 4 0x10] sum:NaN count:Inf}}",
            "{count:+Inf, sum:NaN, [-Inf,5]:1, (5,10]:4, (10,+Inf]:16}",
            "{{schema:-53 count:+Inf sum:NaN custom_values:[5 10] buckets:[1 4 16]}}",
        );
    }

    #[test]
    fn only_explicit_hints_are_written() {
        assert!(!parse_description("{{sum:1}}").unwrap().has_hint);
        assert!(parse_description("{{counter_reset_hint:unknown}}").unwrap().has_hint);
    }

    #[test]
    fn errors_name_the_problem() {
        fails("{sum:1}", 0);
        fails("{{sum:1", 0);
        fails(" {{}", 1);
        fails("{{total:1}}", 2);
        fails("{{sum 1}}", 5);
        fails("{{sum:x}}", 6);
        fails("{{sum:1 sum:2}}", 8);
        fails("{{sum:1count:2}}", 6);
        fails("{{buckets:[1,2]}}", 12);
        fails("{{buckets:[]}}", 11);
        fails("{{buckets:1}}", 10);
        fails("{{schema:1.5}}", 10);
        fails("{{schema:9}}", 2);
        fails("{{custom_values:[1]}}", 2);
        fails("{{offset:2147483647 buckets:[1 1]}}", 2);
        fails("{{counter_reset_hint:maybe}}", 21);
        fails("{{é}}", 2);
    }
}

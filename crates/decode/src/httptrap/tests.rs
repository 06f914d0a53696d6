//! Tests of decoded documents.

use super::*;
use crate::decoded_sample::RecordingSink;

#[track_caller]
fn check(text: &str, expected: &[&str], errors: &[&str]) {
    let mut sink = RecordingSink::default();
    read(text.as_bytes(), &mut sink);
    assert_eq!(sink.dump_samples().lines().collect::<Vec<_>>(), expected, "{text}");
    assert_eq!(sink.error_texts(), errors, "{text}");
}

#[test]
fn plain_values_and_nested_names() {
    check(
        r#"{"number":1.23,"text":"x","container":{"key1":1},"array":[1,2,{"crazy":"like a fox"}]}"#,
        &[
            "number number 1.23",
            "text text \"x\"",
            "container`key1 number 1",
            "array`0 number 1",
            "array`1 number 2",
            "array`2`crazy text \"like a fox\"",
        ],
        &[],
    );
    check("7", &[" number 7"], &[]);
    check(r#"{"a":null,"b":true,"c":false}"#, &["b integer 1", "c integer 0"], &[]);
}

#[test]
fn typed_values() {
    check(r#"{"a":{"_type":"i","_value":-5}}"#, &["a integer -5"], &[]);
    check(r#"{"a":{"_value":"4294967295","_type":"I"}}"#, &["a integer 4294967295"], &[]);
    check(
        r#"{"a":{"_type":"l","_value":"-9223372036854775808"}}"#,
        &["a integer -9223372036854775808"],
        &[],
    );
    check(
        r#"{"a":{"_type":"L","_value":18446744073709551615}}"#,
        &["a integer 18446744073709551615"],
        &[],
    );
    check(r#"{"a":{"_type":"n","_value":"1.5"}}"#, &["a number 1.5"], &[]);
    check(
        r#"{"a":{"_type":"s","_value":"1.5","_ts":1500}}"#,
        &["a text \"1.5\" @Some(1500000000)..Some(1500000000)"],
        &[],
    );
    check(r#"{"a":{"_type":"n","_value":1,"more":2}}"#, &["a`more number 2", "a number 1"], &[]);
}

#[test]
fn histograms() {
    check(
        r#"{"a":{"_type":"h","_value":["H[0.1]=3","H[11]=7"]}}"#,
        &["a histogram of 10: 0.1000..0.1100=3 11.0000..12.0000=7 sum None"],
        &[],
    );
    check(
        r#"{"a":{"_type":"h","_value":"AAEKAAAB","_ts":1}}"#,
        &["a histogram of 1: 1.0000..1.1000=1 sum None @Some(1000000)..Some(1000000)"],
        &[],
    );
    let mut sink = RecordingSink::default();
    read(br#"{"a":{"_type":"h","_value":[123,123,"234"]}}"#, &mut sink);
    let DecodedValue::Histogram(histogram) = &sink.samples[0].value else { panic!("a histogram") };
    assert_eq!((histogram.count(), histogram.tracked_sum().value().unwrap().value()), (3, 480.0));
    check(r#"{"a":{"_type":"h","_value":[]}}"#, &["a histogram of 0: sum Some(0.0)"], &[]);
}

#[test]
fn repeated_keys_and_documents_one_after_another() {
    check("{\"a\":1,\"a\":2}\n{\"a\":3}", &["a number 1", "a number 2", "a number 3"], &[]);
}

#[test]
fn values_before_a_syntax_error_are_emitted() {
    check(
        r#"{"a":1,"b":{"_type":"h","_value":["H[1]=1"]},"c":oops}"#,
        &["a number 1", "b histogram of 1: 1.0000..1.1000=1 sum None"],
        &["byte 49: expected a JSON value, found \"oops}\""],
    );
}

#[test]
fn values_of_another_type_are_rejected_alone() {
    check(
        r#"{"a":{"_type":"i","_value":2147483648},"b":1}"#,
        &["b number 1"],
        &["byte 27: expected a whole number from -2^31 to 2^31 - 1, found \"2147483648\""],
    );
    check(
        r#"{"a":{"_type":"x","_value":1}}"#,
        &[],
        &["byte 14: expected a type: one of i I l L n s h H, found \"\"x\"\""],
    );
    check(
        r#"{"a":{"_type":"n"}}"#,
        &[],
        &["byte 14: expected a _value next to _type, found \"\"n\"\""],
    );
    check(
        r#"{"a":{"_type":"L","_value":-1}}"#,
        &[],
        &["byte 27: expected a whole number from 0 to 2^64 - 1, found \"-1\""],
    );
    let mut sink = RecordingSink::default();
    read(br#"{"a":{"_type":"h","_value":["H[x]=1"]},"b":1}"#, &mut sink);
    assert_eq!((sink.samples.len(), sink.errors[0].position), (1, InputPosition::Byte(28)));
}

#[test]
fn histograms_as_senders_write_them() {
    let bins = "histogram of 10: 0.1000..0.1100=3 11.0000..12.0000=7 sum None";
    let list = r#"["H[0.1]=3","H[1.1e+01]=7"]"#;
    for kind in ["n", "h", "H"] {
        check(
            &format!(r#"{{"a":{{"_type":"{kind}","_value":{list}}}}}"#),
            &[&format!("a {bins}")],
            &[],
        );
    }
    let one = "a histogram of 1: 1.0000..1.1000=1 sum None";
    check(r#"{"a":{"_type":"n","_value":"H[1]=1"}}"#, &[one], &[]);
    check(r#"{"a":{"_type":"H","_value":"AAEKAAAB"}}"#, &[one], &[]);
    check(
        r#"{"a":{"_type":"h","_value":["AAEKAAAB"],"_ts":1}}"#,
        &[&format!("{one} @Some(1000000)..Some(1000000)")],
        &[],
    );
}

#[test]
fn timestamped_histogram_is_one_base64_value() {
    for value in [r#""H[1]=1""#, r#"["AAEKAAAB","AAEKAAAB"]"#, "[1,2]", "5"] {
        let mut sink = RecordingSink::default();
        let text = format!(r#"{{"a":{{"_type":"h","_value":{value},"_ts":1}},"b":1}}"#);
        read(text.as_bytes(), &mut sink);
        assert_eq!(sink.samples.len(), 1, "{text}");
        let error = sink.errors[0].to_string();
        assert!(error.contains("one base64 circllhist next to _ts"), "{error}");
    }
}

#[test]
fn values_have_their_temporality() {
    #[track_caller]
    fn check(text: &str, temporality: SampleTemporality) {
        let mut sink = RecordingSink::default();
        read(text.as_bytes(), &mut sink);
        assert_eq!(sink.samples[0].temporality, temporality, "{text}");
    }
    check(r#"{"a":{"_type":"h","_value":["H[1]=1"]}}"#, SampleTemporality::Delta);
    check(r#"{"a":{"_type":"n","_value":["H[1]=1"]}}"#, SampleTemporality::Delta);
    check(r#"{"a":{"_type":"H","_value":["H[1]=1"]}}"#, SampleTemporality::Cumulative);
    check(r#"{"a":{"_type":"L","_value":1}}"#, SampleTemporality::Instant);
    check(r#"{"a":{"_type":"L","_value":1,"_fl":"+"}}"#, SampleTemporality::Delta);
    check(r#"{"a":{"_fl":"~","_type":"n","_value":1}}"#, SampleTemporality::Instant);
    check(r#"{"a":1}"#, SampleTemporality::Instant);
}

#[test]
fn number_lists_are_summed() {
    check(r#"{"a":{"_type":"n","_value":[1,"2",6]}}"#, &["a number 3"], &[]);
    check(r#"{"a":{"_type":"L","_value":[1,2,true],"_fl":"+"}}"#, &["a number 4"], &[]);
    check(r#"{"a":{"_type":"s","_value":["x","y"]}}"#, &["a text \"x\"", "a text \"y\""], &[]);
    check(r#"{"a":{"_type":"n","_value":[]}}"#, &[], &["byte 27: expected a number, found \"[\""]);
}

#[test]
fn a_value_with_a_time_needs_no_type() {
    check(r#"{"a":{"_value":5,"_ts":2}}"#, &["a number 5 @Some(2000000)..Some(2000000)"], &[]);
    check(r#"{"a":{"_value":"x","_ts":2}}"#, &["a text \"x\" @Some(2000000)..Some(2000000)"], &[]);
    check(
        r#"{"a":{"_value":5},"b":1}"#,
        &["b number 1"],
        &["byte 15: expected a _type next to _value, found \"5\""],
    );
}

#[test]
fn tags_become_labels() {
    check(r#"{"foo|ST[env:prod,app:web]":1}"#, &[r#"foo{app="web"}{env="prod"} number 1"#], &[]);
    check(
        r#"{"foo|ST[b\"ZW52\":b\"YTpi\",plain]":{"bar":2}}"#,
        &[r#"foo`bar{env="a:b"}{plain="true"} number 2"#],
        &[],
    );
    check(r#"{"f|ST[a:2,a:1,a:2]":1,"g":2}"#, &[r#"f{a="1,2"} number 1"#, "g number 2"], &[]);
    check(r#"{"f|ST[:x]":1,"|ST[a:b]":2}"#, &["f|ST[:x] number 1", "|ST[a:b] number 2"], &[]);
    check(
        r#"{"f|ST[a:1]":{"_tags":["b:2","c:d:e"],"_type":"i","_value":3,"x":4}}"#,
        &[r#"f`x{a="1"} number 4"#, r#"f{a="1"}{b="2"}{c="d:e"} integer 3"#],
        &[],
    );
    check(
        r#"{"f":{"_type":"i","_value":3,"_tags":{"b":"2","c":1}}}"#,
        &[r#"f{b="2"}{c="1"} integer 3"#],
        &[],
    );
    check(
        r#"{"f":{"_type":"i","_value":3,"_tags":7},"g":1}"#,
        &["g number 1"],
        &["byte 37: expected tags: a list of \"category:value\", or an object, found \"7\""],
    );
}

#[test]
fn comments_and_limits() {
    check("/* x */ {\"a\": // y\n 1} // z", &["a number 1"], &[]);
    check(r#"{"a":{"_type":"n","_value":[ /* one */ 1]}}"#, &["a number 1"], &[]);
    check(
        &format!("{{\"a\":1}}{}1{}", "[".repeat(33), "]".repeat(33)),
        &["a number 1"],
        &["byte 39: expected nesting of at most 32 levels, found \"[1]]]]]]]]]]]]]]]]]]\""],
    );
    let mut sink = RecordingSink::default();
    let text = format!("{{\"{}\":[1,2],\"b\":1}}", "x".repeat(5000));
    read(text.as_bytes(), &mut sink);
    assert_eq!((sink.samples.len(), sink.errors.len()), (1, 1));
}

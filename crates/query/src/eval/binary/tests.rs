//! Operators on streams that test scripts cannot express, and errors over several steps.

use hist::Bracket;

use super::*;
use crate::error::Error;
use crate::eval::aggregate::tests::EmptySource;
use crate::plan::{PlanNode, PlanOp};
use crate::promql::MatchCardinality;
use crate::settings::Settings;

fn stream(labels: &str, points: &[Option<f64>]) -> Stream {
    let pairs = labels.split(',').map(|pair| pair.split_once('=').unwrap());
    let points = points.iter().map(|point| point.map(StepValue::Number)).collect();
    Stream::new(LabelSet::new(pairs), points)
}

struct BinaryCase {
    operator: BinaryOp,
    matching: VectorMatching,
    is_bool: bool,
    left: Vec<Stream>,
    right: Vec<Stream>,
}

impl BinaryCase {
    fn new(operator: BinaryOp, left: Vec<Stream>, right: Vec<Stream>) -> BinaryCase {
        let cardinality = if operator.is_set() {
            MatchCardinality::ManyToMany
        } else {
            MatchCardinality::OneToOne
        };
        let matching = VectorMatching { cardinality, ..VectorMatching::default() };
        BinaryCase { operator, matching, is_bool: false, left, right }
    }

    /// Result with one stream per line. At the end, only the result is charged.
    #[track_caller]
    fn check(self, expected: &[&str]) {
        let (found, held) = self.run();
        let shown = |stream: &Stream| {
            let point = |point: &Option<StepValue>| match point.as_ref().and_then(StepValue::number)
            {
                Some(number) => number.to_string(),
                None => "_".to_owned(),
            };
            let points: Vec<String> = stream.points.iter().map(point).collect();
            format!("{} {}", stream.labels, points.join(" "))
        };
        let streams = found.unwrap();
        let found: Vec<String> = streams.iter().map(shown).collect();
        assert_eq!(found, expected);
        assert_eq!(held, streams.iter().map(Stream::samples).sum::<u64>());
    }

    #[track_caller]
    fn fails(self, expected: &str) {
        let error = self.run().0.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    fn run(self) -> (Result<Vec<Stream>>, u64) {
        let mut settings = Settings::default();
        settings.limits.samples = 1000;
        let mut evaluation = Evaluation::new(&EmptySource, &settings, &|| false);
        let all = self.left.iter().chain(&self.right);
        evaluation.budget.charge_samples(all.clone().map(Stream::samples).sum()).unwrap();
        let count = all.map(|stream| stream.points.len()).max().unwrap();
        let node = || PlanNode { op: PlanOp::Number(0.0), span: SourceSpan::default() };
        let binary = BinaryOperation {
            operator: self.operator,
            left: (OperandKind::Vector, node()),
            right: (OperandKind::Vector, node()),
            matching: self.matching,
            is_bool: self.is_bool,
        };
        let steps = StepGrid { start: 0, step: 1, count };
        let work = if self.operator.is_set() { sets::combine } else { join::join };
        let span = SourceSpan::default();
        let result = work(&mut evaluation, &binary, self.left, self.right, span, steps);
        let mut held = 1000;
        while evaluation.budget.charge_samples(1).is_ok() {
            held -= 1;
        }
        (result, held)
    }
}

const A: Option<f64> = Some(1.0);
const B: Option<f64> = Some(2.0);

#[test]
fn streams_meet_where_both_are() {
    let left = vec![stream("__name__=l,x=1", &[A, None, B]), stream("__name__=l,x=2", &[A, A, A])];
    let right = vec![stream("__name__=r,x=1", &[B, B, B])];
    BinaryCase::new(BinaryOp::Add, left.clone(), right.clone()).check(&[r#"{x="1"} 3 _ 4"#]);
    BinaryCase::new(BinaryOp::Less, left.clone(), right.clone()).check(&[r#"l{x="1"} 1 _ _"#]);
    BinaryCase::new(BinaryOp::And, left.clone(), right.clone()).check(&[r#"l{x="1"} 1 _ 2"#]);
    BinaryCase::new(BinaryOp::Unless, left.clone(), right.clone()).check(&[r#"l{x="2"} 1 1 1"#]);
    let all = [r#"l{x="1"} 1 _ 2"#, r#"l{x="2"} 1 1 1"#, r#"r{x="1"} _ 2 _"#];
    BinaryCase::new(BinaryOp::Or, left, right).check(&all);
}

#[test]
fn the_order_is_that_of_the_many() {
    let left = vec![stream("x=1,y=1", &[A]), stream("x=2,y=1", &[A]), stream("x=1,y=2", &[A])];
    let right = vec![stream("y=1", &[B]), stream("y=2", &[B])];
    let mut case = BinaryCase::new(BinaryOp::Multiply, left, right);
    case.matching = VectorMatching {
        on: true,
        labels: vec!["y".to_owned()],
        cardinality: MatchCardinality::ManyToOne,
        ..VectorMatching::default()
    };
    case.check(&[r#"{x="1", y="1"} 2"#, r#"{x="2", y="1"} 2"#, r#"{x="1", y="2"} 2"#]);
}

#[test]
fn alternating_one_side_gives_one_series() {
    let left = vec![stream("x=1", &[A, A, A])];
    let right = vec![stream("x=1,z=1", &[B, None, None]), stream("x=1,z=2", &[None, B, B])];
    let mut case = BinaryCase::new(BinaryOp::Add, left.clone(), right.clone());
    case.matching.labels = vec!["z".to_owned()];
    case.check(&[r#"{x="1"} 3 3 3"#]);
    let mut case = BinaryCase::new(BinaryOp::Add, left, right);
    case.matching = VectorMatching {
        labels: vec!["z".to_owned()],
        cardinality: MatchCardinality::ManyToOne,
        include: vec!["z".to_owned()],
        ..VectorMatching::default()
    };
    case.check(&[r#"{x="1", z="1"} 3 _ _"#, r#"{x="1", z="2"} _ 3 3"#]);
}

#[test]
fn earliest_error_is_reported() {
    let twice = |name: &str, points: [&[Option<f64>]; 2]| {
        points
            .iter()
            .zip(["1", "2"])
            .map(|(points, z)| stream(&format!("x={name},z={z}"), points))
            .collect::<Vec<_>>()
    };
    let many = [twice("a", [&[None, A], &[None, A]]), twice("b", [&[A, None], &[None, None]])];
    let one = [twice("a", [&[A, A], &[None, None]]), twice("b", [&[A, None], &[A, None]])];
    let mut case = BinaryCase::new(BinaryOp::Add, many.concat(), one.concat());
    case.matching.labels = vec!["z".to_owned()];
    case.fails(
        "found duplicate series for the match group {x=\"b\"} on the right hand-side of the \
         operation: [{x=\"b\", z=\"1\"}, {x=\"b\", z=\"2\"}];many-to-many matching not allowed",
    );
    let mut case = BinaryCase::new(BinaryOp::Add, many[0].clone(), one[0].clone());
    case.matching.labels = vec!["z".to_owned()];
    case.fails("multiple matches for labels: many-to-one matching must be explicit");
}

#[test]
fn missing_side_is_no_error() {
    let right = vec![stream("x=1,z=1", &[A, A]), stream("x=1,z=2", &[None, A])];
    let mut case = BinaryCase::new(BinaryOp::Add, vec![stream("x=1", &[A, None])], right);
    case.matching.labels = vec!["z".to_owned()];
    case.check(&[r#"{x="1"} 2 _"#]);
}

#[test]
fn bounds_are_carried_through_arithmetic() {
    let value = StepValue::from_bracket(Bracket { lower: 1.0, estimate: 2.0, upper: 4.0 });
    let result = element::apply(BinaryOp::Multiply, &value, &StepValue::Number(-2.0)).unwrap();
    let bracket = result.value.bracket().unwrap();
    assert_eq!(bracket.estimate, -4.0);
    assert!(bracket.lower <= -8.0 && bracket.upper >= -2.0, "{bracket:?}");
    let result = element::apply(BinaryOp::Power, &value, &StepValue::Number(2.0)).unwrap();
    assert_eq!(result.value, StepValue::Number(4.0));
    let picked = element::apply(BinaryOp::Greater, &value, &StepValue::Number(1.0)).unwrap();
    assert_eq!((picked.value, picked.holds), (value.clone(), true));
    let turned = negate_value(&value).bracket().unwrap();
    assert_eq!((turned.lower, turned.estimate, turned.upper), (-4.0, -2.0, -1.0));
}

#[test]
fn errors_name_the_position() {
    let right = vec![stream("z=1", &[A]), stream("z=2", &[A])];
    let mut case = BinaryCase::new(BinaryOp::Add, vec![stream("x=1", &[A])], right);
    case.matching.on = true;
    assert!(matches!(case.run().0, Err(Error::Execution { .. })));
}

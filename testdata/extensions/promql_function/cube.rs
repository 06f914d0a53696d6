//! Example of a PromQL function: `example_cube(v)`, the third power. The file has the kernel, and
//! tests; errors of arguments follow from the signature in the row.

use crate::error::Result;
use crate::eval::Evaluation;
use crate::stream::Stream;

use super::FunctionCall;
use super::math::{self, Monotonicity};

/// Third power. It is monotonic, so bounds map to bounds.
pub(crate) fn cube(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    math::map(evaluation, call, Monotonicity::Rising, |x| x * x * x)
}

#[cfg(test)]
mod tests {
    use crate::eval::aggregate::tests::EmptySource;
    use crate::{Language, QueryRequest, ResultData, Settings, StepValue, execute, promql};

    fn request(text: &str) -> QueryRequest<'_> {
        let options = promql::Options::default();
        QueryRequest { text, language: Language::PromQl, start: 0, end: 0, step: 0, options }
    }

    #[test]
    fn a_query_calls_it() {
        let request = request("example_cube(vector(2))");
        let result = execute(&EmptySource, &request, &Settings::default(), &|| false).unwrap();
        let ResultData::Vector(streams) = result.data else { panic!("{:?}", result.data) };
        assert_eq!(streams[0].points, [Some(StepValue::Number(8.0))]);
    }

    #[test]
    fn its_signature_is_checked_and_listed() {
        let error = promql::parse("example_cube(2)", &promql::Options::default()).unwrap_err();
        assert!(error.to_string().contains("expected type instant vector"), "{error}");
        let listed = promql::functions().map(ToString::to_string);
        assert!(listed.into_iter().any(|call| call == "example_cube(instant vector)"));
        let standard = promql::Options { standard_only: true, ..promql::Options::default() };
        assert!(promql::parse("example_cube(vector(2))", &standard).is_err());
    }
}

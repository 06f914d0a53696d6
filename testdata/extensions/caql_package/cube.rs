//! Example of a CAQL package: `example:cube()`, the third power. The file has the function with its
//! signature, and tests; errors of arguments follow from the signature.

use super::function_table::FunctionTable;
use super::kernel::Kernel;
use super::points::map;
use super::signature::InputKind::Numbers;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    let cube = Kernel::without_margin(|call| Ok(map(call.inputs, |x| x * x * x)));
    table.add_map("example:cube", Numbers, cube);
}

#[cfg(test)]
mod tests {
    use super::super::Signature;
    use crate::eval::aggregate::tests::EmptySource;
    use crate::{Language, QueryRequest, ResultData, Settings, StepValue, execute, promql};

    #[test]
    fn a_query_calls_it() {
        let (text, options) = ("2 | example:cube()", promql::Options::default());
        let end = 2 * store::MINUTE;
        let request =
            QueryRequest { text, language: Language::Caql, start: 0, end, step: end, options };
        let result = execute(&EmptySource, &request, &Settings::default(), &|| false).unwrap();
        let (ResultData::Vector(streams) | ResultData::Matrix(streams)) = result.data else {
            panic!("{:?}", result.data)
        };
        assert_eq!(streams[0].points, [Some(StepValue::Number(8.0))]);
    }

    #[test]
    fn its_signature_is_listed() {
        let listed = Signature::find("example:cube").map(ToString::to_string);
        assert_eq!(listed.as_deref(), Some("example:cube()"));
    }
}

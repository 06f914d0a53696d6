//! The plan and the planners must not import the evaluator: only `eval`, the function tables and
//! the engine do.

use std::fs;
use std::path::Path;

fn imports_evaluator(path: &Path) -> bool {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.into_iter().any(|line| line.contains("eval::") || line.contains("Evaluation"))
}

#[test]
fn the_plan_does_not_import_the_evaluator() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let entries = fs::read_dir(src.join("plan")).expect("plan/ can be listed");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    assert!(files.len() >= 5, "{files:?}");
    let others = ["plan.rs", "promql/plan.rs", "promql/ast.rs", "promql/signature.rs"];
    files.extend(others.into_iter().chain(["caql/plan.rs"]).map(|file| src.join(file)));
    let wrong: Vec<_> = files.iter().filter(|path| imports_evaluator(path)).collect();
    assert!(wrong.is_empty(), "{wrong:?} import the evaluator");
    // The check detects an import that exists.
    assert!(imports_evaluator(&src.join("eval/node.rs")));
}

//! The promise about any text of a table; the fuzzer `test_tables` makes it too.

/// A text is a table with tests, or an error at one of its lines.
pub(crate) fn reads(text: &str) {
    match skep_test::check_text(text) {
        Ok(tests) => assert!(tests > 0 || text.contains("[]"), "no test and no error"),
        Err(error) => assert!((1..=text.matches('\n').count() + 1).contains(&error.line), "{error}"),
    }
}

//! Counts tests from the output of their harnesses.

use std::fmt;
use std::ops::AddAssign;

/// Tests of one program, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Count {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) ignored: usize,
}

impl Count {
    /// Adds up all lines of the form "test result: ok. 3 passed; 0 failed; 1 ignored; ...".
    pub(super) fn of(lines: &[String]) -> Self {
        let mut total = Self::default();
        for line in lines.iter().filter(|line| is_result(line)) {
            total += Self::of_line(line);
        }
        total
    }

    /// The last line of pytest: "90 passed, 1 skipped in 5.20s".
    pub(super) fn of_pytest(lines: &[String]) -> Self {
        let is_summary =
            |line: &&String| line.contains(" in ") && line.trim_end_matches([' ', '=']).ends_with('s');
        let Some(line) = lines.iter().rev().find(is_summary) else { return Self::default() };
        let words: Vec<&str> = line.split([' ', ',', '=']).filter(|word| !word.is_empty()).collect();
        let mut count = Self::default();
        for pair in words.windows(2) {
            let number = || pair[0].parse().unwrap_or(0);
            match pair[1] {
                "passed" => count.passed += number(),
                "failed" | "error" | "errors" => count.failed += number(),
                "skipped" => count.ignored += number(),
                _ => {}
            }
        }
        count
    }

    /// The tests of one program. Tests that run themselves again print results of their own before, so the last line
    /// counts. A program without a harness is one test, and so is one that died before its harness printed a result.
    pub(super) fn of_program(output: &str, success: bool) -> Self {
        match output.lines().rev().find(|line| is_result(line)).map(Self::of_line) {
            Some(count) if success || count.failed > 0 => count,
            _ if success => Self { passed: 1, ..Self::default() },
            _ => Self { failed: 1, ..Self::default() },
        }
    }

    fn of_line(line: &str) -> Self {
        let mut count = Self::default();
        let words: Vec<&str> = line.split([' ', ';']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let number = || pair[0].parse().unwrap_or(0);
            match pair[1] {
                "passed" => count.passed += number(),
                "failed" => count.failed += number(),
                "ignored" => count.ignored += number(),
                _ => {}
            }
        }
        count
    }
}

fn is_result(line: &str) -> bool {
    line.starts_with("test result:")
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} ignored", self.passed, self.failed, self.ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [&str; 4] = [
        "running 3 tests",
        "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        "a line with 7 passed in it",
        "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
    ];

    #[test]
    fn results_of_several_harnesses_are_added_up() {
        let count = Count::of(&LINES.map(str::to_owned));
        assert_eq!(count, Count { passed: 13, failed: 2, ignored: 1 });
    }

    #[test]
    fn the_last_result_is_the_program_s_own() {
        let count = Count::of_program(&LINES.join("\n"), false);
        assert_eq!(count, Count { passed: 10, failed: 2, ignored: 0 });
        // The harness of a child printed a result, the program's own did not: the program died.
        let died = Count::of_program(LINES[1], false);
        assert_eq!(died, Count { passed: 0, failed: 1, ignored: 0 });
    }

    #[test]
    fn pytest_counts_in_its_last_line() {
        let lines = ["12 passed in a name", "== 3 failed, 90 passed, 1 skipped, 2 errors in 5.20s =="];
        let count = Count::of_pytest(&lines.map(str::to_owned));
        assert_eq!(count, Count { passed: 90, failed: 5, ignored: 1 });
        assert_eq!(Count::of_pytest(&["93 passed in 4.01s".to_owned()]).passed, 93);
        assert_eq!(Count::of_pytest(&["no tests ran in 0.01s".to_owned()]), Count::default());
    }

    #[test]
    fn a_program_without_a_harness_is_one_test() {
        assert_eq!(Count::of_program("", true), Count { passed: 1, failed: 0, ignored: 0 });
        assert_eq!(Count::of_program("", false), Count { passed: 0, failed: 1, ignored: 0 });
    }
}

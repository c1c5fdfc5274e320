//! What the test harness of Rust prints of tests that fail, picked out of all that it prints.

use std::collections::VecDeque;
use std::fmt::Write as _;

/// Lines that are kept of one test. The last ones: a panic ends what a test prints.
const KEPT: usize = 60;

/// The tests that failed, with the end of what each of them printed.
#[derive(Debug, Default)]
pub struct Failures {
    tests: Vec<Failure>,
    /// Lines belong to the last of `tests`.
    open: bool,
}

#[derive(Debug)]
struct Failure {
    name: String,
    lines: VecDeque<String>,
    left_out: usize,
}

impl Failures {
    /// Reads the next line of the output.
    pub fn line(&mut self, line: &str) {
        let heading = |line: &str| {
            let line = line.strip_prefix("---- ")?;
            Some(
                line.strip_suffix(" ----")?
                    .strip_suffix(" stdout")?
                    .to_owned(),
            )
        };
        if let Some(name) = heading(line) {
            self.open = true;
            return self.tests.push(Failure {
                name,
                lines: VecDeque::new(),
                left_out: 0,
            });
        }
        if line == "failures:" || line.starts_with("test result: ") {
            self.open = false;
        }
        let Some(test) = self.tests.last_mut().filter(|_| self.open) else {
            return;
        };
        test.lines.push_back(line.to_owned());
        if test.lines.len() > KEPT {
            test.lines.pop_front();
            test.left_out += 1;
        }
    }

    /// Returns all of them, a paragraph each.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for test in &self.tests {
            // Writing into a string cannot fail.
            let _ = writeln!(text, "\n---- {}, which failed ----", test.name);
            if test.left_out > 0 {
                let _ = writeln!(text, "({} lines before)", test.left_out);
            }
            for line in &test.lines {
                text += line;
                text.push('\n');
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> String {
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.line(line));
        failures.text()
    }

    #[test]
    fn a_run_without_failures_leaves_nothing() {
        assert_eq!(
            read("test a ... ok\n\ntest result: ok. 1 passed; 0 failed\n"),
            ""
        );
    }

    #[test]
    fn each_test_that_failed_is_kept_with_what_it_printed() {
        let text = read(
            "test a ... FAILED\ntest b ... ok\ntest c ... FAILED\n\nfailures:\n\n\
             ---- a stdout ----\nthread 'a' panicked\nleft: 1\n\n\
             ---- c stdout ----\nError: no such file\n\n\
             failures:\n    a\n    c\n\ntest result: FAILED. 1 passed; 2 failed\n\
             \nrunning 1 test\ntest d ... ok\n",
        );
        assert_eq!(
            text,
            "\n---- a, which failed ----\nthread 'a' panicked\nleft: 1\n\n\
             \n---- c, which failed ----\nError: no such file\n\n"
        );
    }

    #[test]
    fn of_a_long_output_the_end_is_kept() {
        let lines: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
        let text = read(&format!("---- a stdout ----\n{}\n", lines.join("\n")));
        assert!(text.contains("(40 lines before)\nline 40\n"), "{text}");
        assert!(text.ends_with("line 99\n"), "{text}");
    }
}

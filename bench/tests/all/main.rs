//! What `skep-bench` prints for scripts and for people, and its exit status.

mod alloc;
mod exec;
mod exec_calls;
mod flow;
mod htab_mem;
mod load;
mod map;
mod pack;
mod tail;
mod usage;
mod verify;
mod world;

/// What the command printed and how it ended.
struct Said {
    status: Option<i32>,
    out: String,
    err: String,
}

fn bench(args: &[&str]) -> Said {
    let output = skep_testkit::other(env!("CARGO_BIN_EXE_skep-bench")).args(args).output().unwrap();
    Said {
        status: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Said {
    /// The report of a benchmark that succeeded: one JSON document with what every report has.
    #[track_caller]
    fn json(&self) -> serde_json::Value {
        assert_eq!(self.status, Some(0), "{}", self.err);
        let report: serde_json::Value =
            serde_json::from_str(&self.out).expect("one JSON document and nothing else");
        for text in ["benchmark", "arch", "cpu"] {
            assert!(report[text].is_string(), "{text}: {report}");
        }
        for nothing in ["linux_release", "linux_unavailable"] {
            assert_eq!(report.get(nothing), Some(&serde_json::Value::Null), "{nothing}");
        }
        for target in report["targets"].as_array().unwrap() {
            let (value, limit) = (target["value"].as_f64().unwrap(), target["target"].as_f64().unwrap());
            let met = if target["at_least"] == true { value >= limit } else { value <= limit };
            assert_eq!(target["met"], met, "{target}");
            assert!(target["name"].is_string() && target["unit"].is_string(), "{target}");
        }
        report
    }

    /// Checks that the command refused, with words that name the place, and without a panic.
    #[track_caller]
    fn refused(&self, status: i32, words: &[&str]) {
        assert_eq!(self.status, Some(status), "out: {}\nerr: {}", self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "{word:?} is missing in: {}", self.err);
        }
    }
}

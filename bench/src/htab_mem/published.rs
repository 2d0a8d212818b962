//! What was published in 2023 for the kernel with each policy, on a machine with eight producers.

use super::cases::{Case, PUBLISHED};
use serde_json::{Value, json};

/// A policy, and its figures for overwrite, batch and add_del.
type Line = (&'static str, [(f64, f64); 3]);

/// Thousand loops in a second, and MiB at the peak.
const TABLE: [Line; 5] = [
    ("none", [(3.74, 84.2), (2.23, 48.8), (3.92, 49.0)]),
    ("immediate", [(27.12, 3.0), (8.90, 3.2), (11.30, 440.0)]),
    ("reuse-after-gp", [(15.66, 33.1), (10.32, 22.6), (13.00, 749.0)]),
    ("free-after-gp", [(10.73, 20.3), (7.02, 14.1), (8.99, 204.0)]),
    ("call-rcu-first", [(12.52, 653.0), (9.21, 436.0), (14.45, 882.0)]),
];

/// Thousand loops in a second of `no_op`, over all policies.
pub(super) const NO_OP: [f64; 2] = [1187.0, 1276.0];

/// What was published for that, or `null`.
pub(super) fn find(case: Case, policy: &str, producers: u32) -> Value {
    let column = match case {
        Case::NoOp => return Value::Null,
        Case::Overwrite => 0,
        Case::BatchAddBatchDel => 1,
        Case::AddDelOnDiffCpu => 2,
    };
    let found = TABLE.iter().find(|(name, _)| *name == policy && producers == PUBLISHED);
    found.map_or(Value::Null, |(_, line)| {
        let (loops_k_per_s, peak_mib) = line[column];
        json!({"loops_k_per_s": loops_k_per_s, "peak_mib": peak_mib})
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_eight_producers() {
        let found = find(Case::AddDelOnDiffCpu, "reuse-after-gp", 8);
        assert_eq!(found, json!({"loops_k_per_s": 13.0, "peak_mib": 749.0}));
        assert_eq!(find(Case::AddDelOnDiffCpu, "reuse-after-gp", 2), Value::Null);
        assert_eq!(find(Case::NoOp, "none", 8), Value::Null);
    }
}

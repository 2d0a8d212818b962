//! What was published in 2023 for the kernel with each policy, on a machine with eight producers.

use super::cases::{Case, PUBLISHED};
use serde::Serialize;

/// What was published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Published {
    /// Thousand loops in a second.
    loops_k_per_s: f64,
    /// MiB at the peak.
    peak_mib: f64,
}

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

/// What was published for that, if it was.
pub(super) fn find(case: Case, policy: &str, producers: u32) -> Option<Published> {
    let column = match case {
        Case::NoOp => return None,
        Case::Overwrite => 0,
        Case::Batch => 1,
        Case::AddDel => 2,
    };
    let (_, line) = TABLE.iter().find(|(name, _)| *name == policy && producers == PUBLISHED)?;
    let (loops_k_per_s, peak_mib) = line[column];
    Some(Published { loops_k_per_s, peak_mib })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_eight_producers() {
        let found = find(Case::AddDel, "reuse-after-gp", 8).unwrap();
        assert_eq!((found.loops_k_per_s, found.peak_mib), (13.0, 749.0));
        assert_eq!(find(Case::AddDel, "reuse-after-gp", 2), None);
        assert_eq!(find(Case::NoOp, "none", 8), None);
    }
}

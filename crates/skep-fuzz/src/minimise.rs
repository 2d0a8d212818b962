//! The smallest input that still shows the same.

use crate::case::Case;

/// The most tries for one case: each of them loads the program anew.
const TRIES: usize = 400;

/// Makes a case smaller as long as `holds`: without elements of maps, without inputs before it, shorter, with zeroes.
pub(crate) fn minimise(mut case: Case, fixed_len: bool, holds: &mut dyn FnMut(&Case) -> bool) -> Case {
    let mut left = TRIES;
    let mut attempt = |case: &mut Case, change: &dyn Fn(&mut Case)| -> bool {
        let mut smaller = case.clone();
        change(&mut smaller);
        if left == 0 || smaller == *case {
            return false;
        }
        left -= 1;
        let better = holds(&smaller);
        if better {
            *case = smaller;
        }
        better
    };
    attempt(&mut case, &|case| case.before.clear());
    attempt(&mut case, &|case| case.setup.elements.clear());
    for list in 0..2 {
        let mut at = 0;
        loop {
            let len = if list == 0 { case.before.len() } else { case.setup.elements.len() };
            if at >= len {
                break;
            }
            let removed = attempt(&mut case, &|case| {
                if list == 0 {
                    case.before.remove(at);
                } else {
                    case.setup.elements.remove(at);
                }
            });
            at += usize::from(!removed);
        }
    }
    if !fixed_len {
        let mut cut = case.input.len() / 2;
        while cut > 0 {
            if !attempt(&mut case, &|case| case.input.truncate(case.input.len().saturating_sub(cut))) {
                cut /= 2;
            }
        }
    }
    let mut width = case.input.len().next_power_of_two() / 2;
    while width > 0 {
        for start in (0..case.input.len()).step_by(width) {
            attempt(&mut case, &|case| {
                let end = (start + width).min(case.input.len());
                case.input[start..end].fill(0);
            });
        }
        width /= 2;
    }
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Why;
    use crate::setup::{Element, Setup};

    #[test]
    fn what_does_not_matter_goes() {
        let element = |value: u8| Element { map: "m".to_owned(), key: vec![0], value: vec![value] };
        let case = Case {
            setup: Setup { elements: (0..5).map(element).collect() },
            before: vec![vec![1], vec![2]],
            input: (1..=100).collect(),
            why: Why::Fails { error: String::new() },
        };
        let small = minimise(case, false, &mut |case| {
            case.setup.elements.contains(&element(3)) && case.input.get(20) == Some(&21)
        });
        assert_eq!((&small.setup.elements[..], small.before.len()), (&[element(3)][..], 0));
        assert_eq!((small.input.len(), small.input[20]), (21, 21));
        assert!(small.input[..20].iter().all(|byte| *byte == 0), "{small:?}");
    }
}

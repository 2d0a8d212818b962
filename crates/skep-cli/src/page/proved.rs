//! What the verifier proved, by instruction: ranges of registers and of what is in the stack.
//!
//! The verifier's log has a line for each instruction that it walks, with what holds behind it on that path:
//!
//! ```text
//!   7: (71) r2 = *(u8 *)(r1 +12)          ; R1=pkt(r=14) R2_w=scalar(umax=255)
//!   |                                       |
//!   slot                                    kept, if it differs from what other paths have there
//! ```
//!
//! A program may be walked for a million instructions, so only the first few states of each slot are kept.

use std::collections::BTreeMap;

/// States that are kept of each slot.
const KEPT: usize = 4;

/// What holds behind each instruction.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Proved {
    by_slot: BTreeMap<u32, States>,
}

/// What holds behind an instruction, on one path or another.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct States {
    /// As the log has them, in the order of the walk.
    pub(super) some: Vec<String>,
    /// Whether some path has another one.
    pub(super) more: bool,
}

impl Proved {
    /// Takes a line of the log.
    pub(super) fn line(&mut self, line: &str) {
        let Some((slot, state)) = walked(line) else { return };
        let states = self.by_slot.entry(slot).or_default();
        if states.some.iter().any(|known| known == state) {
            return;
        }
        match states.some.len() < KEPT {
            true => states.some.push(state.to_owned()),
            false => states.more = true,
        }
    }

    /// What holds behind the instruction in a slot, if anything is known.
    pub(super) fn of(&self, slot: u32) -> Option<&States> {
        self.by_slot.get(&slot)
    }
}

/// The slot and the state of a line about an instruction.
fn walked(line: &str) -> Option<(u32, &str)> {
    let (slot, rest) = line.split_once(": (")?;
    let (_, state) = rest.split_once("; ")?;
    Some((slot.parse().ok()?, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proved(log: &[&str]) -> Proved {
        let mut proved = Proved::default();
        log.iter().for_each(|line| proved.line(line));
        proved
    }

    #[test]
    fn the_state_behind_an_instruction_is_kept_once() {
        let line = "1: (b7) r2 = 5                        ; R2_w=5";
        let proved = proved(&["0: R1=ctx() R10=fp0", "; int x = 5; @ prog.c:12", line, line]);
        assert_eq!(proved.by_slot.len(), 1, "{proved:?}");
        assert_eq!(proved.of(1), Some(&States { some: vec!["R2_w=5".to_owned()], more: false }));
    }

    #[test]
    fn lines_about_paths_sources_and_results_say_nothing_of_an_instruction() {
        let lines = [
            "from 3 to 7: R0=0 R10=fp0",
            "9: safe",
            "5: (95) exit",
            "; if (x: (y); z) @ a.c:3",
            "99999999999: (b7) r0 = 1  ; R0_w=1",
            "processed 12 insns (limit 1000000) max_states_per_insn 1 total_states 2 peak_states 2 mark_read 0",
            "",
        ];
        assert_eq!(proved(&lines), Proved::default());
    }

    #[test]
    fn a_slot_with_many_states_keeps_the_first_and_says_that_there_are_more() {
        let lines: Vec<String> = (0..=KEPT).map(|n| format!("3: (07) r1 += 1    ; R1_w={n}")).collect();
        let mut proved = Proved::default();
        lines[..KEPT].iter().for_each(|line| proved.line(line));
        assert!(!proved.of(3).unwrap().more);
        lines.iter().for_each(|line| proved.line(line));
        let states = proved.of(3).unwrap();
        assert_eq!((states.some.len(), &*states.some[0], states.more), (KEPT, "R1_w=0", true));
    }
}

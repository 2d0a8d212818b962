//! The verifier's log as clients of the system call see it.
//!
//! Clients do not only print it: libraries find out what a kernel has by the words of its log, and show its last line
//! as the error. So a refusal ends with the words that Linux has for it, after the reason.
//!
//! ```text
//!   0: (95) exit
//!   the program ends without a result: r0 is read but was never written
//!   R0 !read_ok
//!   processed 1 insns (limit 1000000) ...
//! ```

use crate::error::Error;
use skep_abi::linux_helper;
use skep_isa::{CallTarget, DecodeError, Field, Insn};
use skep_verifier::{Code, Refusal};

/// Levels of the log: all paths, and only statistics.
const ALL_PATHS: u32 = 2;
const STATISTICS: u32 = 4;

/// The lines of one load: of the path that was refused, or of all.
pub(super) struct PathLog {
    level: u32,
    lines: Vec<String>,
    /// The last line, which says what the walk took.
    cost: Option<String>,
}

impl PathLog {
    pub(super) fn new(level: u32) -> Self {
        Self { level, lines: Vec::new(), cost: None }
    }

    /// Takes a line of the verifier's.
    pub(super) fn line(&mut self, line: &str) {
        if line.starts_with("processed ") {
            self.cost = Some(line.to_owned());
            return;
        }
        let statistics = ["verification time ", "stack depth "].iter().any(|start| line.starts_with(start));
        // Without the level of all paths, a new path begins a new log.
        if self.level & ALL_PATHS == 0 && line.starts_with("from ") {
            self.lines.clear();
        }
        let wanted = if statistics { STATISTICS } else { !STATISTICS };
        if self.level & wanted != 0 {
            self.lines.push(line.to_owned());
        }
    }

    /// Writes what the level asks for.
    pub(super) fn finish(self, error: Option<&Error>, insns: &[Insn], log: &mut dyn FnMut(&str)) {
        let statistics = |line: &&String| ["verification", "stack"].iter().any(|word| line.starts_with(word));
        let (last, path): (Vec<&String>, Vec<&String>) = self.lines.iter().partition(statistics);
        // What was accepted has no path to tell of.
        if error.is_some() || self.level & ALL_PATHS != 0 {
            path.iter().for_each(|line| log(line));
        }
        // A reason is told at every level.
        if let Some(error) = error {
            match error {
                Error::Refused(_) if self.level & !STATISTICS != 0 => {}
                Error::Refused(refusal) => log(&refusal.reason),
                other => log(&other.to_string()),
            }
            if let Some(words) = words(error, insns) {
                log(&words);
            }
        }
        last.iter().map(|line| line.as_str()).chain(self.cost.as_deref()).for_each(log);
    }
}

/// Linux's words for an error, if clients look for them.
fn words(error: &Error, insns: &[Insn]) -> Option<String> {
    match error {
        Error::Refused(refusal) => words_for_refusal(refusal, insns),
        Error::HelperMissing { id, .. } => Some(cannot_use(*id)),
        Error::HelperOfContext { helper, .. } => {
            let name = helper.strip_prefix("bpf_")?;
            (1..).map_while(linux_helper).find(|known| known.name == name).map(|known| cannot_use(known.id))
        }
        _ => None,
    }
}

fn words_for_refusal(refusal: &Refusal, insns: &[Insn]) -> Option<String> {
    if refusal.words.is_some() {
        return refusal.words.clone();
    }
    let at = insns.get(refusal.slot as usize);
    match (refusal.code, at) {
        (Code::Helper | Code::Types, Some(Insn::Call { target: CallTarget::Helper(id) })) => {
            if linux_helper(*id).is_none() {
                return Some(format!("invalid func unknown#{id}"));
            }
            let licence = refusal.reason.ends_with("GPL-compatible licence");
            Some(match licence {
                true => "cannot call GPL-restricted function from non-GPL compatible program".to_owned(),
                false => cannot_use(*id),
            })
        }
        _ => None,
    }
}

fn cannot_use(id: u32) -> String {
    let name = linux_helper(id).map_or("unknown", |helper| &helper.name);
    format!("program of this type cannot use helper bpf_{name}#{id}")
}

/// Linux's words for bytes that are no program.
pub(super) fn words_of_code(error: &DecodeError, slots: &[u8]) -> Option<String> {
    const LOAD_IMM64: u8 = 0x18;
    let slot = |at: usize| slots.get(at * 8..at * 8 + 8);
    // What Linux asks of a load's second slot, before the rest of the first.
    let pair = |at: usize| match slot(at + 1) {
        Some([0, 0, 0, 0, ..]) => "BPF_LD_IMM64 uses reserved fields",
        _ => "invalid bpf_ld_imm64 insn",
    };
    Some(match *error {
        DecodeError::PartialSlot { .. } => return None,
        // An instruction of zeroes comes after one that should have been an end.
        DecodeError::UnknownOpcode { slot: 0, opcode: 0 } if slots.len() == 8 => {
            "last insn is not an exit or jmp".to_owned()
        }
        // A load from memory of no mode.
        DecodeError::UnknownOpcode { opcode: 1, .. } => "BPF_LDX uses reserved fields".to_owned(),
        DecodeError::UnknownOpcode { opcode, .. } => format!("unknown opcode {opcode:02x}"),
        DecodeError::UnknownRegister { number, .. } => format!("R{number} is invalid"),
        DecodeError::MissingTail { .. } | DecodeError::MalformedTail { .. } => {
            let unrecognized = matches!(*error, DecodeError::MalformedTail { field: Field::Imm, .. });
            match unrecognized {
                true => "unrecognized bpf_ld_imm64 insn".to_owned(),
                false => "invalid bpf_ld_imm64 insn".to_owned(),
            }
        }
        DecodeError::ReservedField { slot: at, opcode, .. }
        | DecodeError::UnknownVariant { slot: at, opcode, .. } => match opcode & 7 {
            _ if opcode == LOAD_IMM64 => pair(at).to_owned(),
            0 => "BPF_LD_[ABS|IND] uses reserved fields".to_owned(),
            1 => "BPF_LDX uses reserved fields".to_owned(),
            2 => "BPF_ST uses reserved fields".to_owned(),
            3 => "BPF_STX uses reserved fields".to_owned(),
            5 | 6 if opcode == 0x85 => "BPF_CALL uses reserved fields".to_owned(),
            5 | 6 if opcode == 0x95 => "BPF_EXIT uses reserved fields".to_owned(),
            5 | 6 if opcode & 0xf0 == 0 => "BPF_JA uses reserved fields".to_owned(),
            5 | 6 => "BPF_JMP/JMP32 uses reserved fields".to_owned(),
            _ => "BPF_ALU uses reserved fields".to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use crate::sys::tests::Process;
    use skep_sys::Errno;

    /// The types of socket filters and of XDP.
    const SOCKET_FILTER: u32 = 1;
    const XDP: u32 = 6;
    /// Of probes.
    const KPROBE: u32 = 2;

    /// The last lines of the log at that level, the last first.
    fn refused(program_type: u32, text: &str, level: u32) -> (Errno, Vec<String>) {
        let (answer, log) = Process::new().load_with(program_type, text, level, 4096);
        (answer.unwrap_err(), log.lines().rev().map(str::to_owned).collect())
    }

    #[test]
    fn a_refusal_ends_with_the_words_that_libraries_look_for() {
        for (program_type, text, number, words) in [
            (SOCKET_FILTER, "exit", Errno::EACCES, "R0 !read_ok"),
            (XDP, "r0 = r7\nexit", Errno::EACCES, "R7 !read_ok"),
            (XDP, "call 195896080\nexit", Errno::EINVAL, "invalid func unknown#195896080"),
            (XDP, "call 4000\nexit", Errno::EINVAL, "invalid func unknown#4000"),
            // Provided to no program here; of another type of program.
            (
                KPROBE,
                "r1 = r10\nr1 += -24\nr2 = 24\nr3 = 0\ncall 176\nr0 = 0\nexit",
                Errno::EINVAL,
                "program of this type cannot use helper bpf_get_branch_snapshot#176",
            ),
            (
                XDP,
                "call 18\nexit",
                Errno::EINVAL,
                "program of this type cannot use helper bpf_skb_vlan_push#18",
            ),
            (
                SOCKET_FILTER,
                "call 166\nexit",
                Errno::EINVAL,
                "program of this type cannot use helper bpf_sys_bpf#166",
            ),
        ] {
            let (answer, lines) = refused(program_type, text, 1);
            assert_eq!(answer, number, "{text}: {lines:?}");
            assert!(lines[0].starts_with("processed "), "{text}: {lines:?}");
            assert_eq!(lines[1], words, "{text}: {lines:?}");
        }
    }

    #[test]
    fn times_and_depths_are_told_only_to_those_who_ask_for_statistics() {
        let told = |level| {
            let (_, lines) = refused(XDP, "exit", level);
            ["verification time ", "stack depth ", "processed "]
                .map(|start| lines.iter().any(|line| line.starts_with(start)))
        };
        assert_eq!(told(1), [false, false, true]);
        assert_eq!(told(2), [false, false, true]);
        assert_eq!(told(4), [true; 3]);
        assert_eq!(told(1 | 4), [true; 3]);
        let (_, only) = refused(XDP, "exit", 4);
        // And the reason, in both tongues.
        assert_eq!(only.len(), 5, "{only:?}");
    }
}

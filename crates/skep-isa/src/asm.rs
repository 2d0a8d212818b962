//! Text to instructions: the syntax that [`disassemble`](crate::disassemble) prints and clang's assembler
//! takes, a line an instruction.
//!
//! ```text
//!   text --lex--> tokens of a line --parse--> Insn, or Insn with a label to be resolved
//!                                                 |
//!                       end of the text: labels --+--> offsets filled in --> [Insn]
//! ```
//!
//! Every accepted program can be encoded: ranges are checked here, where an error can name line and column.
//!
//! Besides what `disassemble` prints, the assembler takes
//!
//! - labels, `name:` alone or before an instruction, for `goto name`, `call name` and `r1 = func[name] ll`;
//! - comments, from `//`, `;` or `#` to the end of the line (a `#` between a name and a number is none: it
//!   belongs to `call bpf_ktime_get_ns#5`, where the number counts and the name is for the reader);
//! - decimal and hexadecimal numbers; 32-bit operations take theirs signed or unsigned;
//! - `w1` for `r1` as the value of loads and stores of less than eight bytes, as LLVM writes them where it
//!   has 32-bit registers;
//! - a slot number with a colon before an instruction, which must then be right, and the `<name+0x10>` that
//!   `llvm-objdump` prints after a jump's distance, which is not looked at.

mod error;
mod lex;
mod line;
mod parse;

use std::collections::HashMap;

pub use error::{AssembleError, AssembleProblem};

use crate::insn::{CallTarget, Imm64, Insn};
use lex::Position;
use line::{LabelUse, Line};

/// Assembles a program.
///
/// ```
/// use skep_isa::{Insn, assemble};
///
/// let program = assemble(
///     "   r0 = 0                 // the sum
///         r1 = 10
///     next:
///         r0 += r1
///         r1 += -1
///         if r1 != 0 goto next
///         exit",
/// )?;
/// assert_eq!(program[4].to_string(), "if r1 != 0x0 goto -0x3");
/// # Ok::<(), skep_isa::AssembleError>(())
/// ```
///
/// # Errors
///
/// The first thing in the text that is not understood, with its line and column.
pub fn assemble(text: &str) -> Result<Vec<Insn>, AssembleError> {
    let mut program = Program::default();
    for (index, line) in text.lines().enumerate() {
        let mut line = Line::new(line, index + 1)?;
        while let Some((name, position)) = line.label() {
            program.define(name, position)?;
        }
        line.slot_number(program.insns.len())?;
        if let Some((insn, label)) = line.insn()? {
            program.uses.extend(label.map(|label| (program.insns.len(), label)));
            program.insns.push(insn);
            if matches!(insn, Insn::LoadImm64 { .. }) {
                program.insns.push(Insn::LoadImm64Tail);
            }
        }
    }
    program.resolve()
}

/// What has been read so far.
#[derive(Default)]
struct Program<'a> {
    insns: Vec<Insn>,
    /// Name to slot, and where it was defined.
    labels: HashMap<&'a str, (usize, Position)>,
    /// Instructions whose distance waits for a label.
    uses: Vec<(usize, LabelUse<'a>)>,
}

impl<'a> Program<'a> {
    fn define(&mut self, name: &'a str, position: Position) -> Result<(), AssembleError> {
        match self.labels.insert(name, (self.insns.len(), position)) {
            None => Ok(()),
            Some((_, first)) => Err(position
                .error(AssembleProblem::DuplicateLabel { name: name.to_owned(), first_line: first.line })),
        }
    }

    fn resolve(mut self) -> Result<Vec<Insn>, AssembleError> {
        for (slot, LabelUse { name, position }) in self.uses {
            let Some(&(target, _)) = self.labels.get(name) else {
                return Err(position.error(AssembleProblem::UnknownLabel { name: name.to_owned() }));
            };
            let distance = target as i64 - (slot as i64 + 1);
            if set_distance(&mut self.insns[slot], distance).is_none() {
                let name = name.to_owned();
                return Err(position.error(AssembleProblem::LabelTooFar { name, distance }));
            }
        }
        Ok(self.insns)
    }
}

/// Fills in the distance of a jump or call; `None` where it does not fit the form.
fn set_distance(insn: &mut Insn, distance: i64) -> Option<()> {
    match insn {
        Insn::Jump { offset, long: true } => *offset = i32::try_from(distance).ok()?,
        Insn::Jump { offset, long: false } => *offset = i16::try_from(distance).ok()?.into(),
        Insn::JumpIf { offset, .. } | Insn::MayGoto { offset } => *offset = i16::try_from(distance).ok()?,
        Insn::Call { target: CallTarget::Local(local) } => *local = i32::try_from(distance).ok()?,
        Insn::LoadImm64 { value: Imm64::Function(function), .. } => {
            *function = i32::try_from(distance).ok()?;
        }
        _ => return None,
    }
    Some(())
}

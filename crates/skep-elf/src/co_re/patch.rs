//! Writes an answer into the instruction that asked.

use skep_isa::{Imm64, Insn, Operand, Size, Width};

use super::Fault;
use super::value::{Access, Answer};

/// Changes the instruction. `false` where the target's field cannot be accessed by an instruction of this kind:
/// it must not be reached then.
pub(super) fn patch(insn: &mut Insn, answer: &Answer) -> Result<bool, Fault> {
    match insn {
        Insn::Alu { width, src: Operand::Imm(imm), .. } => {
            expect(answer, i64::from(*imm))?;
            *imm = immediate(*width, answer.value)?;
            Ok(true)
        }
        Insn::Load { size, signed, offset, .. } => {
            let signed = *signed;
            access(answer, size, offset, signed)
        }
        Insn::Store { size, offset, .. } | Insn::Atomic { size, offset, .. } => {
            access(answer, size, offset, false)
        }
        Insn::LoadAcquire { size, offset, .. } | Insn::StoreRelease { size, offset, .. } => {
            access(answer, size, offset, false)
        }
        Insn::LoadImm64 { value: Imm64::Value(value), .. } => {
            expect(answer, value.cast_signed())?;
            *value = answer.value;
            Ok(true)
        }
        _ => Err("is at an instruction that has no number to change".into()),
    }
}

/// The answer as the immediate of arithmetic, which is sign-extended in 64 bits.
fn immediate(width: Width, value: u64) -> Result<i32, Fault> {
    let narrow = value as u32 as i32;
    let reads_as = match width {
        Width::W32 => u64::from(narrow.cast_unsigned()),
        Width::W64 => i64::from(narrow).cast_unsigned(),
    };
    // Enumerators of 32 bits come sign-extended, and a 32-bit operation takes their lower half.
    let is_negative = width == Width::W32 && value == i64::from(narrow).cast_unsigned();
    if reads_as == value || is_negative { Ok(narrow) } else { Err("finds a number that is too large".into()) }
}

/// Moves a load or store to the target's field.
fn access(answer: &Answer, size: &mut Size, offset: &mut i16, signed: bool) -> Result<bool, Fault> {
    expect(answer, i64::from(*offset))?;
    let to = i16::try_from(answer.value).map_err(|_| "finds an offset that is too large")?;
    if let Some(Access { from, to, adjustable }) = answer.access
        && from != to
    {
        let Some(larger) = Size::from_bytes(to).filter(|_| adjustable && !signed) else { return Ok(false) };
        if size.bytes() != from {
            return Err("is at an instruction that accesses another number of bytes".into());
        }
        *size = larger;
    }
    *offset = to;
    Ok(true)
}

/// What stands in the instruction must be what the object's own types say, or the relocation is about another.
fn expect(answer: &Answer, stands: i64) -> Result<(), Fault> {
    match answer.expected {
        Some(expected) if expected != stands.cast_unsigned() => {
            Err("does not fit the instruction it is about".into())
        }
        _ => Ok(()),
    }
}

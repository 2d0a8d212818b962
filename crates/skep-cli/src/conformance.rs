//! `skep conformance`: the plugin protocol of the public bpf_conformance suite.
//!
//! The program comes as hexadecimal bytes on standard input or with `--program`, memory as an argument. The program
//! is verified like any other, as type `raw`: `r1` is the memory and `r2` its length. The output is `r0` in
//! hexadecimal.

use crate::failure::Failure;
use crate::output;
use skep::abi::RAW;
use skep::isa::{CallTarget, Cond, Insn, Operand, Reg, Width};
use skep::{Engine, Object, Runtime};
use std::ffi::OsString;
use std::io::Read;

/// The number of the helper that ends the program if its argument is 0.
const UNWIND: u32 = 5;
/// Maximum length of the input, in bytes of text.
const INPUT_MAX: u64 = 64 << 20;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Memory for the program, as hexadecimal bytes separated by white space.
    #[arg(value_name = "MEMORY")]
    memory: Option<String>,
    /// The program, as hexadecimal bytes; read from standard input by default.
    #[arg(long, value_name = "BYTES")]
    program: Option<String>,
    /// Run machine code (the default).
    #[arg(long, conflicts_with = "interpret")]
    jit: bool,
    /// Interpret.
    #[arg(long)]
    interpret: bool,
}

/// Runs the command.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let mut memory = bytes("memory", args.memory.as_deref().unwrap_or_default())?;
    let program = match &args.program {
        Some(text) => bytes("program", text)?,
        None => {
            let mut text = String::new();
            std::io::stdin().take(INPUT_MAX).read_to_string(&mut text)?;
            bytes("program", &text)?
        }
    };
    let mut insns = skep::isa::decode_bytes(&program).map_err(|error| Failure::Refused(error.to_string()))?;
    // Before unwinding, which looks for calls of its helper.
    skep::isa::resolve_register_calls(&mut insns);
    let object = Object::from_insns("conformance", &RAW, with_unwinding(insns)?);
    let runtime = Runtime::builder().conformance_helpers().build()?;
    let len = memory.len() as u32;
    let module = runtime.linker(&object).buffer_len(len).load()?;
    let engine = if args.interpret { Engine::Interpreter } else { Engine::Jit };
    let result = module.programs()[0].run_raw_with(engine, &mut memory)?;
    output::text(&format!("{result:x}\n"))
}

/// Arguments with the memory behind the command's name, where the suite's runner puts it before all options:
/// `skep "00 01" conformance --jit`.
pub(crate) fn reordered(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    let is_memory = |text: &OsString| text.to_str().is_some_and(|text| bytes("memory", text).is_ok());
    if let [_, memory, command, ..] = &arguments[..]
        && command == "conformance"
        && is_memory(memory)
    {
        arguments.swap(1, 2);
    }
    arguments
}

/// Parses hexadecimal bytes separated by optional white space.
fn bytes(what: &str, text: &str) -> Result<Vec<u8>, Failure> {
    let mut digits = Vec::with_capacity(text.len());
    for word in text.split_whitespace() {
        let word = word.strip_prefix("0x").unwrap_or(word);
        if word.len() % 2 != 0 || !word.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(Failure::Usage(format!("expected hexadecimal bytes in the {what}, found {word:?}")));
        }
        digits.extend_from_slice(word.as_bytes());
    }
    let nibble = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
    Ok(digits.chunks_exact(2).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])).collect())
}

/// Inserts two instructions after each call of the unwinding helper, which end the program if the helper returned
/// 0, and lengthens the jumps over them. In a called function, only that function ends.
fn with_unwinding(insns: Vec<Insn>) -> Result<Vec<Insn>, Failure> {
    let is_unwind = |insn: &Insn| matches!(insn, Insn::Call { target: CallTarget::Helper(UNWIND) });
    if !insns.iter().any(is_unwind) {
        return Ok(insns);
    }
    // The new slot of each slot, including the end.
    let mut places = Vec::with_capacity(insns.len() + 1);
    let mut place = 0i64;
    for insn in &insns {
        places.push(place);
        place += if is_unwind(insn) { 3 } else { 1 };
    }
    places.push(place);
    let too_far = || Failure::Refused("a jump is too long once calls of unwind are expanded".into());
    let moved = |slot: usize, offset: i64| -> Result<i64, Failure> {
        let target = slot as i64 + 1 + offset;
        let target = usize::try_from(target)
            .ok()
            .and_then(|target| places.get(target))
            .ok_or_else(|| Failure::Refused(format!("instruction {slot} jumps out of the program")))?;
        Ok(target - places[slot] - 1)
    };
    let mut out = Vec::with_capacity(place as usize);
    for (slot, insn) in insns.iter().enumerate() {
        out.push(match *insn {
            Insn::Jump { offset, long } => {
                let offset = moved(slot, offset.into())?;
                if !long && i16::try_from(offset).is_err() {
                    return Err(too_far());
                }
                Insn::Jump { offset: offset as i32, long }
            }
            Insn::JumpIf { width, cond, dst, src, offset } => {
                let offset = i16::try_from(moved(slot, offset.into())?).map_err(|_| too_far())?;
                Insn::JumpIf { width, cond, dst, src, offset }
            }
            Insn::Call { target: CallTarget::Local(offset) } => {
                Insn::Call { target: CallTarget::Local(moved(slot, offset.into())? as i32) }
            }
            other => other,
        });
        if is_unwind(insn) {
            let (cond, src) = (Cond::Ne, Operand::Imm(0));
            out.push(Insn::JumpIf { width: Width::W64, cond, dst: Reg::R0, src, offset: 1 });
            out.push(Insn::Exit);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_may_be_separate_or_joined() {
        assert_eq!(bytes("memory", " aa bb\n0xCC\tddee ").unwrap(), [0xaa, 0xbb, 0xcc, 0xdd, 0xee]);
        assert!(bytes("memory", "").unwrap().is_empty());
        assert!(bytes("memory", "abc").unwrap_err().to_string().contains("memory"));
        assert!(bytes("program", "zz").unwrap_err().to_string().contains("program"));
    }

    #[test]
    fn unwinding_preserves_jump_targets() {
        let before = skep::isa::assemble(
            "again:
             r1 = 1
             if r1 == 0 goto end
             call 5
             if r0 == 7 goto again
             end:
             r0 = 2
             exit",
        )
        .unwrap();
        let after = skep::isa::assemble(
            "again:
             r1 = 1
             if r1 == 0 goto end
             call 5
             if r0 != 0 goto on
             exit
             on:
             if r0 == 7 goto again
             end:
             r0 = 2
             exit",
        )
        .unwrap();
        assert_eq!(with_unwinding(before).unwrap(), after);
    }
}

//! The exception callback: the function that the program names by a declaration tag.

use crate::program::Subject;
use crate::program::cfg::target;
use crate::program::global::{Global, Param};
use crate::program::violation::{Checked, Code, Violation};
use skep_isa::{CallTarget, Imm64, Insn};

/// The prefix of the tag.
const TAG: &str = "exception_callback:";

/// The index of the function that the program's tag names, if there is a tag.
pub(crate) fn exception_callback(program: &Subject, globals: &[Option<Global>]) -> Checked<Option<usize>> {
    let source = &program.source;
    let main = source.functions.first().and_then(|main| main.prototype.as_ref());
    let Some((main, btf)) = main.zip(source.btf.as_deref()) else { return Ok(None) };
    let tags = btf.decl_tags(main.function).filter(|tag| tag.component.is_none());
    let names: Vec<&str> = tags.filter_map(|tag| tag.name.strip_prefix(TAG)).collect();
    let name = match names[..] {
        [] => return Ok(None),
        [name] => name,
        _ => {
            let text = format!("the program names {} exception callbacks: {}", names.len(), names.join(", "));
            return Err(Violation::at(Code::Structure, 0, text)
                .suggest("keep one of them")
                .in_linux("multiple exception callback tags for main subprog"));
        }
    };
    let found = |(_, function): &(usize, &skep_abi::Function)| function.name == name;
    let Some((index, function)) = source.functions.iter().enumerate().skip(1).find(found) else {
        let text = format!("the program names {name:?} as its exception callback, but has no such function");
        return Err(Violation::at(Code::Structure, 0, text));
    };
    let start = function.start as usize;
    if !function.global {
        let text = format!("the exception callback {name} is static: expected a global function");
        return Err(Violation::at(Code::Structure, start, text));
    }
    match &globals[index] {
        Some(global) if global.returns && global.params == [Param::Number] => {}
        _ => {
            let text = format!(
                "expected the exception callback {name} to take one number and to return a number, found other types"
            );
            let words = match &globals[index] {
                Some(global) if !global.returns => {
                    format!("Global function {name}() doesn't return scalar. Only those are supported.")
                }
                _ => "exception cb only supports single integer argument".to_owned(),
            };
            return Err(Violation::at(Code::Structure, start, text)
                .suggest("declare it as `int NAME(u64 cookie)`")
                .in_linux(words));
        }
    }
    check_unused(&source.insns, start)?;
    Ok(Some(index))
}

/// Refuses calls of the exception callback, and uses of its address.
fn check_unused(insns: &[Insn], start: usize) -> Checked<()> {
    for (slot, insn) in insns.iter().enumerate() {
        let (offset, what) = match insn {
            Insn::Call { target: CallTarget::Local(offset) } => (*offset, "called"),
            Insn::LoadImm64 { value: Imm64::Function(offset), .. } => (*offset, "given to a helper"),
            _ => continue,
        };
        if target(slot, offset) == Some(start) {
            let text = format!("the exception callback is {what}, but only bpf_throw may lead to it");
            return Err(Violation::at(Code::Structure, slot, text)
                .suggest("move what both need into a function of its own")
                .in_linux(format!("insn {slot} cannot call exception cb directly")));
        }
    }
    Ok(())
}

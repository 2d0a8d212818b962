//! Exceptions: `bpf_throw(cookie)` ends the program, and its result is made of the cookie.
//!
//! ```text
//!   bpf_throw(cookie) --with a callback-----> callback(cookie) --r0--> the program's result
//!                     --without a callback---------------------------> the cookie is the result
//! ```
//!
//! - The callback is the global function that the one declaration tag `exception_callback:NAME` on the program names.
//!   It takes one number. It is walked as a root of its own with any cookie, and what it returns is checked as the
//!   program's result. Nothing calls it: engines alone do.
//! - A throw leaves all frames of the program, so nothing may be held in any of them. It cannot leave frames of the
//!   host: neither a callback of a helper nor anything that it calls may throw.
//! - Where control goes on behind a throw is nowhere: the path ends.

use crate::Code;
use crate::domain::state::State;
use crate::domain::value::Value;
use crate::explore::walk::Walker;
use crate::program::Subject;
use crate::program::cfg::target;
use crate::program::fault::{Fault, Step};
use crate::step::callback::RootKind;
use crate::step::ends::check_range;
use crate::step::global::{Global, Param};
use skep_isa::{CallTarget, Imm64, Insn, Reg};

/// What the tag's text begins with.
const TAG: &str = "exception_callback:";

/// The index of the function that the program's tag names, if it has one.
pub(crate) fn exception_callback(program: &Subject, globals: &[Option<Global>]) -> Step<Option<usize>> {
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
            return Err(Fault::at(Code::Structure, 0, text).suggest("keep one of them"));
        }
    };
    let found = |(_, function): &(usize, &skep_abi::Function)| function.name == name;
    let Some((index, function)) = source.functions.iter().enumerate().skip(1).find(found) else {
        let text = format!("the program names {name:?} as its exception callback, but has no such function");
        return Err(Fault::at(Code::Structure, 0, text));
    };
    let start = function.start as usize;
    if !function.global {
        let text = format!("the exception callback {name} is static: expected a global function");
        return Err(Fault::at(Code::Structure, start, text));
    }
    match &globals[index] {
        Some(global) if global.returns && global.params == [Param::Number] => {}
        _ => {
            let text = format!(
                "expected the exception callback {name} to take one number and to return a number, found other types"
            );
            return Err(
                Fault::at(Code::Structure, start, text).suggest("declare it as `int NAME(u64 cookie)`")
            );
        }
    }
    check_unused(&source.insns, start)?;
    Ok(Some(index))
}

/// Refuses calls of the exception callback, and uses of its address.
fn check_unused(insns: &[Insn], start: usize) -> Step<()> {
    for (slot, insn) in insns.iter().enumerate() {
        let (offset, what) = match insn {
            Insn::Call { target: CallTarget::Local(offset) } => (*offset, "called"),
            Insn::LoadImm64 { value: Imm64::Function(offset), .. } => (*offset, "given to a helper"),
            _ => continue,
        };
        if target(slot, offset) == Some(start) {
            let text = format!("the exception callback is {what}, but only bpf_throw may lead to it");
            return Err(Fault::at(Code::Structure, slot, text)
                .suggest("move what both need into a function of its own"));
        }
    }
    Ok(())
}

impl Walker<'_> {
    /// Whether the path may not throw: the host, or the end of a throw, called a function on it.
    pub(crate) fn may_not_throw(&self, state: &State) -> bool {
        let called_back = state.frames().iter().any(|frame| frame.callback.is_some());
        called_back || matches!(self.root_kind(), RootKind::Timer { .. } | RootKind::Exception)
    }

    /// The program ends by a throw.
    pub(crate) fn throw(&mut self, state: &State, cookie: &Value) -> Step<()> {
        if self.root_kind() == RootKind::Exception {
            let text = "bpf_throw is called in the exception callback, which must return";
            return Err(Fault::new(Code::Resource, text));
        }
        if self.may_not_throw(state) {
            let text = "bpf_throw may not end a program from a function that the host calls";
            return Err(Fault::new(Code::Resource, text)
                .suggest("return a result that ends the rounds, and throw behind the call"));
        }
        self.check_nothing_held(state, "where the program ends with bpf_throw")?;
        if self.shape.exception_callback.is_none()
            && let Some(range) = self.results_of_program().range()
        {
            check_range(cookie, range, "program, which is the cookie of bpf_throw,", Reg::R1)?;
        }
        self.record.throws(self.slot);
        Ok(())
    }
}

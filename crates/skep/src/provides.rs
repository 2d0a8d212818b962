//! Checks at load that the runtime provides all that a verified program uses, so that an error names what is missing
//! before compilation or a run.

use crate::error::Error;
use skep_abi::{Context, OwnReturn, TAIL_CALL, own_kfunc};
use skep_btf::Btf;
use skep_isa::{CallTarget, Imm64, Insn};
use skep_verifier::Verified;
use std::sync::LazyLock;

/// `bpf_get_current_task_btf`.
const GET_CURRENT_TASK_BTF: u32 = 158;

/// What the runtime provides instead.
static INSTRUCTIONS: LazyLock<String> = LazyLock::new(|| {
    let functions: Vec<_> = skep_abi::OWN_KFUNCS.iter().map(|own| own.name).collect();
    let others = "arithmetic, loads, stores, atomic operations, jumps, legacy packet loads, calls of helpers, of the \
                  program's own functions, and of";
    format!("{others} {}", functions.join(", "))
});

/// Checks every instruction that the program reaches. `types` are those of the host that it was linked with.
pub(crate) fn check(program: &Verified, types: Option<&Btf>) -> Result<(), Error> {
    let reached =
        program.insns().iter().zip(program.facts()).enumerate().filter(|(_, (_, fact))| fact.reached);
    for (slot, (insn, _)) in reached {
        if let Some(what) = missing(insn, types) {
            return Err(Error::NotProvided {
                program: program.name().to_owned(),
                slot,
                what,
                provided: &INSTRUCTIONS,
            });
        }
    }
    // Programs of an array take the same arguments, and members of tables take their own.
    if matches!(program.program_type().context, Context::Arguments { .. }) {
        let tail_call = Insn::Call { target: CallTarget::Helper(TAIL_CALL) };
        let mut all = program.insns().iter().zip(program.facts());
        if let Some(slot) = all.position(|(insn, fact)| fact.reached && *insn == tail_call) {
            return Err(Error::NotProvided {
                program: program.name().to_owned(),
                slot,
                what: "a tail call from a function of a table, or from an iterator".to_owned(),
                provided: &CALLS,
            });
        }
    }
    // Helpers of the host say themselves what they take.
    let of_linux = |slot: &&u32| match program.insns().get(**slot as usize) {
        Some(Insn::Call { target: CallTarget::Helper(id) }) => skep_abi::linux_helper(*id).is_some(),
        _ => false,
    };
    if let Some(slot) = program.foreign_sockets().iter().find(of_linux) {
        return Err(Error::NotProvided {
            program: program.name().to_owned(),
            slot: *slot as usize,
            what: "a helper's argument that is a socket of an xskmap, or an object of the host".to_owned(),
            provided: &SOCKETS,
        });
    }
    Ok(())
}

/// Whether the program gets objects of the runtime's machine.
pub(crate) fn holds_machine_objects(program: &Verified) -> bool {
    let mut reached = program.insns().iter().zip(program.facts()).filter(|(_, fact)| fact.reached);
    reached.any(|(insn, _)| match insn {
        Insn::Call { target: CallTarget::Helper(id) } => *id == GET_CURRENT_TASK_BTF,
        Insn::Call { target: CallTarget::Kfunc { id, .. } } => {
            own_kfunc(id.cast_unsigned()).is_some_and(|own| matches!(own.returns, OwnReturn::Machine(_)))
        }
        _ => false,
    })
}

/// What the runtime provides instead.
static CALLS: LazyLock<String> = LazyLock::new(|| "calls of the program's own functions".to_owned());

/// What the runtime provides instead.
static SOCKETS: LazyLock<String> = LazyLock::new(|| {
    "sockets of the context, of a sockmap or sockhash, and those that a helper has looked up".to_owned()
});

/// What an instruction needs and the runtime lacks.
fn missing(insn: &Insn, types: Option<&Btf>) -> Option<String> {
    let named = |id: i32| match types.and_then(|types| types.name(id.cast_unsigned()).ok()) {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => format!("of BTF id {id}"),
    };
    match *insn {
        Insn::Call { target: CallTarget::Kfunc { id, .. } } if own_kfunc(id.cast_unsigned()).is_none() => {
            Some(format!("a call of the kernel function {}", named(id)))
        }
        Insn::CallReg { reg } => Some(format!("a call through the register {reg}")),
        Insn::LoadImm64 { value: Imm64::Variable { id, .. }, .. } => {
            Some(format!("the address of the kernel variable {}", named(id)))
        }
        Insn::LoadImm64 { value: Imm64::MapFd(_) | Imm64::MapFdValue { .. }, .. } => {
            Some("a map by its file descriptor".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{INSTRUCTIONS, missing};

    #[test]
    fn every_kernel_function_that_is_provided_is_listed() {
        for own in &skep_abi::OWN_KFUNCS {
            assert!(INSTRUCTIONS.contains(own.name), "{}", own.name);
        }
    }

    #[test]
    fn what_is_not_provided_is_named() {
        let cases = [
            ("call kfunc[5]", "BTF id 5"),
            ("callx r3", "r3"),
            ("r1 = var[7] ll", "BTF id 7"),
            ("r1 = map_fd[3] ll", "descriptor"),
        ];
        for (text, word) in cases {
            let insns = skep_isa::assemble(&format!("{text}\nexit\nexit")).unwrap();
            assert!(missing(&insns[0], None).is_some_and(|what| what.contains(word)), "{text}");
        }
    }

    #[test]
    fn what_is_provided_needs_nothing() {
        let text = "r1 = map[0] ll\nr2 = map_value[0]+4 ll\nr3 = func[own] ll\nr3 = 5 ll\ncall 1\ncall own\ncall kfunc[1073741824]\nmay_goto +0\nr0 = *(u16 *)skb[12]\nif r0 == 0 goto +0\nlock *(u64 *)(r10 - 8) += r1\nexit\nown:\nr0 = 0\nexit";
        let insns = skep_isa::assemble(text).unwrap();
        assert!(insns.iter().all(|insn| missing(insn, None).is_none()));
    }
}

//! Features of instructions, functions and values, with the release that has them first.
//!
//! Helpers, kernel functions, maps and program types have tables of their own. What is here cannot be named by a
//! number.

use crate::Version;
use skep_abi::{Function, ParamTags, SpecialKind};
use skep_isa::{AluOp, AtomicOp, ByteOrder, CallTarget, Imm64, Insn};

/// What the lack of a feature means for a program that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// The program is refused, wherever the instruction is.
    Refused,
    /// It is refused if control reaches the instruction.
    RefusedIfReached,
    /// It may be refused: older kernels do not know what the feature tells them.
    Doubtful,
}

/// A feature.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Feature {
    /// What it is, as the subject of a sentence.
    pub(crate) what: &'static str,
    /// The first release that has it.
    pub(crate) since: Version,
    /// What a program faces without it.
    pub(crate) lack: Lack,
}

macro_rules! features {
    ($($name:ident: $major:literal . $minor:literal, $lack:ident, $what:literal;)*) => {
        $(static $name: Feature = Feature {
            what: $what,
            since: Version::new($major, $minor),
            lack: Lack::$lack,
        };)*
    };
}

// The releases are those of the documentation of eBPF.
features! {
    FETCH: 5 . 12, Refused, "an atomic operation other than an addition without result";
    FUNCTION_ADDRESS: 5 . 13, Refused, "the address of a function (a callback)";
    KERNEL_FUNCTION: 5 . 13, Refused, "a call of a kernel function";
    KERNEL_FUNCTION_ADDRESS: 6 . 4, Refused, "the address of a kernel function";
    CONTEXT_CONSTANT: 6 . 4, Refused, "a store of a constant to the context";
    LOAD_SIGNED: 6 . 6, Refused, "a sign-extending load (cpu v4)";
    MOVE_SIGNED: 6 . 6, RefusedIfReached, "a sign-extending move (cpu v4)";
    DIVIDE_SIGNED: 6 . 6, RefusedIfReached, "a signed division (cpu v4)";
    SWAP: 6 . 6, Refused, "an unconditional byte swap (cpu v4)";
    LONG_JUMP: 6 . 6, Doubtful, "a jump with 32 bits of offset (cpu v4)";
    MAY_GOTO: 6 . 9, Refused, "may_goto";
    ACQUIRE: 6 . 15, Refused, "a load-acquire or store-release";
    GLOBAL_MEMORY: 5 . 12, Doubtful, "a global function with a pointer to memory as parameter";
    PARAMETER_TAGS: 6 . 8, Doubtful, "a parameter with a tag (__arg_ctx and others)";
    TIMER: 5 . 15, Doubtful, "struct bpf_timer in a map's value";
    KPTR: 6 . 4, Doubtful, "a kept pointer in a map's value";
    LIST: 6 . 2, Doubtful, "struct bpf_list_head in a map's value";
    TREE: 6 . 3, Doubtful, "struct bpf_rb_root in a map's value";
    REFCOUNT: 6 . 4, Doubtful, "struct bpf_refcount";
    KPTR_PERCPU: 6 . 7, Doubtful, "a kept per-CPU pointer in a map's value";
    WORKQUEUE: 6 . 10, Doubtful, "struct bpf_wq in a map's value";
    USER_POINTER: 6 . 13, Doubtful, "a __uptr pointer in a map's value";
    RES_LOCK: 6 . 15, Doubtful, "struct bpf_res_spin_lock in a map's value";
    TASK_WORK: 6 . 18, Doubtful, "struct bpf_task_work in a map's value";
}

/// The feature that an instruction needs beyond those of all releases.
pub(crate) fn of_insn(insn: &Insn) -> Option<&'static Feature> {
    Some(match insn {
        Insn::Atomic { op: AtomicOp::Add { fetch: false }, .. } => return None,
        Insn::Atomic { .. } => &FETCH,
        Insn::LoadImm64 { value: Imm64::Function(_), .. } => &FUNCTION_ADDRESS,
        Insn::Call { target: CallTarget::Kfunc { .. } } => &KERNEL_FUNCTION,
        Insn::Load { signed: true, .. } => &LOAD_SIGNED,
        Insn::MovSx { .. } => &MOVE_SIGNED,
        Insn::Alu { op: AluOp::Sdiv | AluOp::Smod, .. } => &DIVIDE_SIGNED,
        Insn::Endian { order: ByteOrder::Swap, .. } => &SWAP,
        Insn::Jump { long: true, .. } => &LONG_JUMP,
        Insn::MayGoto { .. } => &MAY_GOTO,
        Insn::LoadAcquire { .. } | Insn::StoreRelease { .. } => &ACQUIRE,
        _ => return None,
    })
}

/// The feature that storing a constant to the context needs.
pub(crate) fn of_context_constant() -> &'static Feature {
    &CONTEXT_CONSTANT
}

/// The feature that the address of a function of the kernel needs.
pub(crate) fn of_kernel_function_address() -> &'static Feature {
    &KERNEL_FUNCTION_ADDRESS
}

/// The features that a function's prototype needs. `is_memory` says whether a parameter's type is a pointer to memory.
pub(crate) fn of_function(
    function: &Function,
    is_memory: impl Fn(u32) -> bool,
) -> impl Iterator<Item = &'static Feature> {
    let params =
        function.prototype.iter().filter(|_| function.global).flat_map(|prototype| &prototype.params);
    params.flat_map(move |param| {
        let tagged = param.tags != ParamTags::default();
        let memory = param.tags == ParamTags::default() && is_memory(param.ty);
        [tagged.then_some(&PARAMETER_TAGS), memory.then_some(&GLOBAL_MEMORY)].into_iter().flatten()
    })
}

/// The feature that a special field of a map's value needs.
pub(crate) fn of_field(kind: SpecialKind) -> Option<&'static Feature> {
    Some(match kind {
        SpecialKind::Timer => &TIMER,
        SpecialKind::Kptr { .. } | SpecialKind::KptrUntrusted { .. } => &KPTR,
        SpecialKind::ListHead { .. } | SpecialKind::ListNode => &LIST,
        SpecialKind::RbRoot { .. } | SpecialKind::RbNode => &TREE,
        SpecialKind::Refcount => &REFCOUNT,
        SpecialKind::KptrPercpu { .. } => &KPTR_PERCPU,
        SpecialKind::Workqueue => &WORKQUEUE,
        SpecialKind::Uptr { .. } => &USER_POINTER,
        SpecialKind::ResSpinLock => &RES_LOCK,
        SpecialKind::TaskWork => &TASK_WORK,
        _ => return None,
    })
}

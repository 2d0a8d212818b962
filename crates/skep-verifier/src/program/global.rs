//! Which global functions are verified by themselves, what their prototypes say, and what they may do.

use crate::domain::state::ARGS;
use crate::program::Subject;
use crate::program::cfg::target;
use crate::program::config::Config;
use skep_abi::{
    Context, Function, HelperFlags, HelperProto, KfuncFlags, OwnKfunc, ParamTags, ProgramType, RetKind,
    SpecialKfunc, kfunc_named, own_kfunc,
};
use skep_btf::{Btf, Kind as Type};
use skep_isa::{CallTarget, Imm64, Insn};

/// What a parameter takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Param {
    /// Any number.
    Number,
    /// The context, unchanged.
    Context,
    /// The address of this many bytes.
    Memory { bytes: u32, nullable: bool, read_only: bool },
    /// A trusted object of the host, by the number of its type there.
    Object { ty: u32, nullable: bool },
}

/// A function that is verified by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Global {
    pub(crate) params: Vec<Param>,
    /// Whether it returns a number, else nothing.
    pub(crate) returns: bool,
    /// What it, or a function it calls, may do.
    pub(crate) effects: Effects,
}

/// What a function may do that its callers must know.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Effects {
    /// It may move the packet.
    pub(crate) moves_packet: bool,
    /// It may sleep.
    pub(crate) sleeps: bool,
    /// It may end the program.
    pub(crate) throws: bool,
    /// It may return the result of another program, by a tail call.
    pub(crate) leaves: bool,
}

impl Effects {
    fn or(self, other: Self) -> Self {
        Self {
            moves_packet: self.moves_packet || other.moves_packet,
            sleeps: self.sleeps || other.sleeps,
            throws: self.throws || other.throws,
            leaves: self.leaves || other.leaves,
        }
    }
}

/// By function: how it is verified by itself; `None` for those that are walked in place.
pub(crate) fn globals(
    program: &Subject,
    config: &Config<'_>,
    function_at: impl Fn(usize) -> Option<usize>,
) -> Vec<Option<Global>> {
    let (source, extends) = (&program.source, program.source.replaces().is_some());
    let known = |(at, function): (usize, &Function)| {
        // The program itself has a context, unless it takes the place of a function.
        let by_itself = if at == 0 { extends } else { function.global };
        global(source.program_type, config, source.btf.as_deref().filter(|_| by_itself)?, function)
    };
    let mut globals: Vec<Option<Global>> = source.functions.iter().enumerate().map(known).collect();
    if globals.iter().any(Option::is_some) {
        let effects = effects(program, config, function_at);
        for (global, effects) in globals.iter_mut().zip(effects) {
            if let Some(global) = global {
                global.effects = effects;
            }
        }
    }
    globals
}

/// What the prototype of a function of that type of programs says; `None` if it is unsupported.
pub(crate) fn global(
    of: &ProgramType,
    config: &Config<'_>,
    btf: &Btf,
    function: &Function,
) -> Option<Global> {
    let prototype = function.prototype.as_ref()?;
    if prototype.params.len() > ARGS.len() {
        return None;
    }
    let param = |param: &skep_abi::Param| param_of(of, config, btf, param.ty, param.tags);
    let params = prototype.params.iter().map(param).collect::<Option<_>>()?;
    let returns = match btf.resolve(prototype.result).ok()?.kind {
        Type::Void => false,
        Type::Int | Type::Enum | Type::Enum64 => true,
        _ => return None,
    };
    Some(Global { params, returns, effects: Effects::default() })
}

/// Parameter tags that are not supported.
const OTHERS: [ParamTags; 1] = [ParamTags::UNTRUSTED];

fn param_of(of: &ProgramType, config: &Config<'_>, btf: &Btf, ty: u32, tags: ParamTags) -> Option<Param> {
    if tags.contains(ParamTags::TRUSTED) && !tags.contains(ParamTags::CTX) {
        let to = btf.resolve(btf.pointer(ty).ok()??.to).ok()?;
        let name = to.name().ok()?;
        let ty = config.machine_type(name).or_else(|| config.btf?.find(name, Type::Struct))?;
        return Some(Param::Object { ty, nullable: tags.contains(ParamTags::NULLABLE) });
    }
    if OTHERS.iter().any(|other| tags.contains(*other)) {
        return None;
    }
    if tags.contains(ParamTags::ARENA) {
        // An address in space 1, or one in space 0, which is a number too.
        return Some(Param::Number);
    }
    if tags.contains(ParamTags::CTX) {
        return Some(Param::Context);
    }
    let resolved = btf.resolve(ty).ok()?;
    match resolved.kind {
        Type::Int | Type::Enum | Type::Enum64 => return Some(Param::Number),
        Type::Ptr => {}
        _ => return None,
    }
    let pointer = btf.pointer(ty).ok()??;
    if !pointer.tags.is_empty() {
        return None;
    }
    let to = btf.resolve(pointer.to).ok()?;
    if to.kind.is_composite() && is_context(of, to.name().ok()?) {
        return Some(Param::Context);
    }
    // These are not plain memory.
    if to.kind.is_composite() && to.name().ok()?.starts_with("bpf_") {
        return None;
    }
    let constant = btf.ty(resolved.target()).ok()?.kind == Type::Const;
    let bytes = btf.size(pointer.to).ok().filter(|bytes| *bytes > 0)?;
    let nullable = !tags.contains(ParamTags::NONNULL);
    Some(Param::Memory { bytes, nullable, read_only: constant })
}

/// Whether the context of programs of that type is a structure of that name.
fn is_context(of: &ProgramType, name: &str) -> bool {
    match of.context {
        Context::Struct(layout) => layout.name == name,
        Context::Bytes { name: known, .. } => known == name,
        Context::Buffer | Context::Arguments { .. } => false,
    }
}

/// By function: what it, or any function it may call, may do. A fixpoint over the call graph.
fn effects(
    program: &Subject,
    config: &Config<'_>,
    function_at: impl Fn(usize) -> Option<usize>,
) -> Vec<Effects> {
    let count = program.source.functions.len();
    let mut effects = vec![Effects::default(); count];
    let mut callers = vec![Vec::new(); count];
    for (at, effects) in effects.iter_mut().enumerate() {
        for slot in program.function_range(at).unwrap_or_default() {
            match program.source.insns.get(slot) {
                Some(Insn::Call { target: CallTarget::Helper(id) }) => {
                    *effects = effects.or(of_helper((config.helpers)(*id)));
                }
                Some(Insn::Call { target: CallTarget::Kfunc { id, .. } }) => {
                    *effects = effects.or(of_kfunc(config.btf, *id as u32));
                }
                Some(Insn::CallReg { .. }) => {
                    *effects = Effects { moves_packet: true, sleeps: true, throws: true, leaves: false };
                }
                Some(
                    Insn::Call { target: CallTarget::Local(offset) }
                    | Insn::LoadImm64 { value: Imm64::Function(offset), .. },
                ) => {
                    if let Some(callee) = target(slot, *offset).and_then(&function_at) {
                        callers[callee].push(at);
                    }
                }
                _ => {}
            }
        }
    }
    let mut changed: Vec<usize> = (0..count).filter(|at| effects[*at] != Effects::default()).collect();
    while let Some(at) = changed.pop() {
        for caller in &callers[at] {
            let both = effects[*caller].or(effects[at]);
            if both != effects[*caller] {
                effects[*caller] = both;
                changed.push(*caller);
            }
        }
    }
    effects
}

fn of_helper(proto: Option<&HelperProto>) -> Effects {
    // A call of a helper that the host lacks is refused where the function itself is verified.
    let Some(proto) = proto else { return Effects::default() };
    // A write through a dynptr may go to a packet, and move it.
    let moves_packet = proto.moves_packet || proto.flags.has(HelperFlags::WRITES_DYNPTR);
    let leaves = proto.ret == RetKind::TailCall;
    Effects { moves_packet, sleeps: proto.sleeps, throws: false, leaves }
}

fn of_kfunc(btf: Option<&Btf>, id: u32) -> Effects {
    let of_host = || btf.and_then(|btf| kfunc_named(btf.ty(id).ok()?.name().ok()?));
    let known = own_kfunc(id).and_then(OwnKfunc::known).or_else(of_host);
    Effects {
        // No known kfunc does.
        moves_packet: known.is_none(),
        sleeps: known.is_none_or(|known| known.flags.has(KfuncFlags::SLEEPABLE)),
        throws: known.is_none_or(|known| known.special == SpecialKfunc::Throw),
        leaves: false,
    }
}

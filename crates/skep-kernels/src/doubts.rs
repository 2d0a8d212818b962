//! What the verifiers of other releases may see otherwise than skep's, which was compared with Linux 6.12.

use crate::judge::{Program, place};
use crate::judgement::{Obstacle, Rule};
use crate::refusals::{DYNPTRS, NEAREST};
use crate::{Version, refusals};
use skep_abi::{AttachTo, Context, ProgramSource};
use skep_btf::Kind;
use skep_isa::{AluOp, CallTarget, Cond, Insn, Operand, Reg, Size};
use skep_verifier::{Abilities, Spills, Unwritten, Verified};

/// The abilities of skep's verifier that the verifier of that release has too.
pub fn abilities(version: Version) -> Abilities {
    let since = |major, minor| version >= Version::new(major, minor);
    Abilities {
        lenient: false,
        unwritten_stack: match version {
            _ if since(6, 3) => Unwritten::Any,
            // Stable updates of these allow it.
            _ if STABLE.contains(&version) => Unwritten::AboveWritten,
            _ => Unwritten::None,
        },
        passed_pointers: since(6, 18),
        equal_objects: since(6, 2),
        spills: match version {
            _ if since(6, 3) => Spills::All,
            _ if since(5, 16) => Spills::Registers,
            _ if since(5, 12) => Spills::Words,
            _ => Spills::Constants,
        },
        linked_spills: since(6, 8),
        compared_numbers: since(6, 8),
        unequal_numbers: since(6, 8),
        linked_halves: since(6, 8),
        contradictions: since(7, 3),
        memory_keys: since(6, 2),
    }
}

/// Why a release may refuse a program that skep's verifier accepts.
pub(crate) fn about(program: &Program<'_>, verified: &Verified, version: Version) -> Option<Obstacle> {
    let ability = |text: String| Obstacle { rule: Rule::Ability, text, since: None, place: None };
    if let Some(refusal) = program.limited {
        let text = format!("the kernel's verifier may be unable to see that it is safe: {}", refusal.reason);
        return Some(Obstacle { place: Some(place(program.source, refusal.slot)), ..ability(text) });
    }
    let walked = verified.stats().walked;
    let limit = MOST_WALKED.iter().find(|(from, _)| version >= *from).map_or(0, |(_, most)| *most);
    if walked > limit {
        return Some(ability(format!(
            "skep's verifier walks {walked} instructions; the kernel's may need more than its limit of 1,000,000"
        )));
    }
    if calls_programs_from_nothing(program.source) {
        return Some(ability("a function that returns nothing makes a tail call".to_owned()));
    }
    if version < ENTERED_LOOPS && enters_loops_inside(program.source) {
        return Some(ability(ENTERED.to_owned()));
    }
    if version < SMALL_FRAMES && stack_of_calls(program.source, verified) > STACK_BYTES {
        return Some(ability(DEEP.to_owned()));
    }
    if let Some((slot, text)) = walked_otherwise(program.source, verified, version) {
        let place = Some(place(program.source, slot));
        return Some(Obstacle { place, ..ability(text.to_owned()) });
    }
    if let Some(slot) = reads_number_pointers(program, verified, version) {
        let text = "older verifiers refuse to load a pointer to a number from the arguments".to_owned();
        let place = Some(place(program.source, slot));
        return Some(Obstacle { since: Some(NUMBER_POINTERS), place, ..ability(text) });
    }
    if loads_in_functions(program.source) {
        return Some(ability("a function loads from the packet as classic filters do".to_owned()));
    }
    let found = changed(program.source, verified, version)?;
    let place = found.0.map(|slot| place(program.source, slot));
    Some(Obstacle { rule: Rule::Ability, text: found.1.to_owned(), since: Some(found.2), place })
}

/// What surely stands in the way in a release although skep's verifier accepts: what its tables do not have.
pub(crate) fn surely(program: &Program<'_>, verified: &Verified, version: Version) -> Option<Obstacle> {
    let ability = |text: String| Obstacle { rule: Rule::Ability, text, since: None, place: None };
    if let Some(refusal) =
        program.limited.filter(|refusal| refusals::are_known(program.source, refusal, version))
    {
        let place = Some(place(program.source, refusal.slot));
        return Some(Obstacle { place, ..ability(refusal.reason.clone()) });
    }
    if version > OBSERVED {
        return None;
    }
    if enters_loops_inside(program.source) {
        return Some(ability(ENTERED.to_owned()));
    }
    (stack_of_calls(program.source, verified) > STACK_BYTES).then(|| ability(DEEP.to_owned()))
}

/// The most bytes of stack in a chain of calls, as older verifiers count them: each frame takes a multiple of 32.
fn stack_of_calls(source: &ProgramSource, verified: &Verified) -> u32 {
    let functions = verified.functions();
    let mut deepest = vec![0; functions.len()];
    // Calls nest at most 8 deep and do not recurse, so as many rounds settle all sums.
    for _ in 0..MAX_FRAMES {
        for (at, function) in functions.iter().enumerate() {
            let range = function.start as usize..function.end as usize;
            let insns = source.insns.get(range).unwrap_or_default();
            let calls = insns.iter().zip(function.start..).filter_map(|(insn, slot)| match insn {
                Insn::Call { target: CallTarget::Local(offset) } => slot.checked_add_signed(offset + 1),
                _ => None,
            });
            let callee = |start: u32| functions.iter().position(|callee| callee.start == start);
            let below = calls.filter_map(callee).map(|callee| deepest[callee]).max().unwrap_or(0);
            deepest[at] = function.stack_bytes.max(1).next_multiple_of(32) + below;
        }
    }
    deepest.first().copied().unwrap_or(0)
}

/// A call, or a use of functions, whose rules changed with a release: the slot, what it is, the release.
fn changed(
    source: &ProgramSource,
    verified: &Verified,
    version: Version,
) -> Option<(Option<u32>, &'static str, Version)> {
    let several = source.functions.len() > 1;
    let calls = source.insns.iter().zip(verified.facts()).zip(0u32..).filter(|((_, fact), _)| fact.reached);
    for ((insn, fact), slot) in calls {
        let Insn::Call { target: CallTarget::Helper(number) } = insn else { continue };
        let map = fact.call.and_then(|call| call.map);
        let by_name = source.program_type.number == Some(STRUCT_OPS)
            && source.target.as_deref().is_some_and(|target| target.ends_with(".release"));
        let rule = match *number {
            SPIN_LOCK if several => (Version::new(6, 8), "locks are followed into functions"),
            FOR_EACH if map.is_none() => (Version::new(6, 10), "one call may walk through several maps"),
            FIND_VMA => (NEVER, "the area of bpf_find_vma may be used in later calls of the callback"),
            SETSOCKOPT if by_name => (NEVER, "socket options may be changed where a socket is released"),
            GET_TASK_STACK => (Version::new(5, 15), "the result of this helper is bounded"),
            number if DYNPTRS.contains(&number) => {
                (Version::new(6, 4), "the rules of dynptrs are those of today")
            }
            _ => continue,
        };
        if version < rule.0 {
            return Some((Some(slot), rule.1, rule.0));
        }
    }
    let whole = match (source.program_type.number, source.program_type.attach, source.target.as_deref()) {
        (Some(SOCK_ADDR), Some(8 | 9), _) => (Version::new(5, 12), "bind may return 2 and 3"),
        (Some(LSM), _, _) if source.sleepable => (NEAREST, "this security hook may sleep"),
        (Some(TRACING), _, Some("bpf_map_elem")) => (NEAREST, "elements of maps may be passed to helpers"),
        _ => return None,
    };
    (version < whole.0).then_some((None, whole.1, whole.0))
}

/// Later than all releases.
const NEVER: Version = Version::new(u16::MAX, 0);
const LSM: u32 = 29;
const SOCK_ADDR: u32 = 18;
const TRACING: u32 = 26;
const STRUCT_OPS: u32 = 27;

// Helpers.
const TAIL_CALL: u32 = 12;
const SETSOCKOPT: u32 = 49;
const GET_TASK_STACK: u32 = 141;
const SPIN_LOCK: u32 = 93;
const FOR_EACH: u32 = 164;
const FIND_VMA: u32 = 180;

/// The most instructions walked here with which a program is surely within the limit there.
const MOST_WALKED: [(Version, u64); 2] = [(Version::new(6, 12), 200_000), (Version::new(5, 10), 100_000)];

/// Why a loop that is entered in its middle is refused.
const ENTERED: &str = "a loop is entered in its middle, which older verifiers refuse";

/// Why a chain of calls has too much stack.
const DEEP: &str =
    "older verifiers count the stack of each function in steps of 32 bytes, and find more than 512";

/// Bytes of stack of a chain of calls.
const STACK_BYTES: u32 = 512;
const MAX_FRAMES: usize = 8;

/// Frames are counted in steps of 16 bytes since then, at the latest.
const SMALL_FRAMES: Version = Version::new(6, 12);

/// The last release without what is certain about old ones.
const OBSERVED: Version = Version::new(6, 1);

/// Releases that stable updates gave abilities of later ones.
const STABLE: &[Version] = &[Version::new(5, 10), Version::new(5, 15), Version::new(6, 1)];

/// Loops whose state differs in the stack alone are not taken for endless since then.
const EXACT_LOOPS: Version = Version::new(6, 8);

/// Loops whose bound is a number in a register end for the verifier since then, at the latest.
const BOUNDED_LOOPS: Version = Version::new(6, 1);

/// How far back a constant is looked for.
const NEAR: usize = 16;

/// Arguments that are pointers to numbers may be loaded since then.
const NUMBER_POINTERS: Version = Version::new(5, 17);

/// Loops may be entered in their middle since then, at the latest.
const ENTERED_LOOPS: Version = Version::new(6, 12);

/// Whether an instruction that is no jump falls through to one that leads to it: the loop's head is inside of it.
fn enters_loops_inside(source: &ProgramSource) -> bool {
    let insns = &source.insns;
    let mut entered = vec![false; insns.len()];
    let mut left = vec![false; insns.len()];
    let mut stack: Vec<(usize, u8)> =
        source.functions.iter().map(|function| (function.start as usize, 0)).collect();
    while let Some((slot, step)) = stack.pop() {
        let Some(insn) = insns.get(slot) else { continue };
        if step == 0 && std::mem::replace(&mut entered[slot], true) {
            continue;
        }
        // A 64-bit load has two slots.
        let next = slot + if matches!(insn, Insn::LoadImm64 { .. }) { 2 } else { 1 };
        match step {
            0 => {
                stack.push((slot, 1));
                if insn.falls_through() && next < insns.len() {
                    if insn.jump_offset().is_none() && entered[next] && !left[next] {
                        return true;
                    }
                    stack.push((next, 0));
                }
            }
            1 => {
                stack.push((slot, 2));
                let to = insn.jump_offset().and_then(|offset| (slot + 1).checked_add_signed(offset as isize));
                stack.extend(to.map(|to| (to, 0)));
            }
            _ => left[slot] = true,
        }
    }
    false
}

/// Whether a function without a result makes a tail call.
fn calls_programs_from_nothing(source: &ProgramSource) -> bool {
    let ends = source.functions.iter().skip(1).map(|next| next.start as usize);
    let ranges = source.functions.iter().zip(ends.chain([source.insns.len()]));
    ranges.skip(1).any(|(function, end)| {
        let returns_nothing = function.prototype.as_ref().is_some_and(|prototype| prototype.result == 0);
        let insns = source.insns.get(function.start as usize..end).unwrap_or_default();
        returns_nothing
            && insns.iter().any(|insn| matches!(insn, Insn::Call { target: CallTarget::Helper(TAIL_CALL) }))
    })
}

/// A loop whose iterations releases count otherwise: the slot of its jump, and why.
fn walked_otherwise(
    source: &ProgramSource,
    verified: &Verified,
    version: Version,
) -> Option<(u32, &'static str)> {
    let insns = &source.insns;
    let jumps = insns.iter().zip(verified.facts()).zip(0u32..).filter(|((_, fact), _)| fact.reached);
    for ((insn, _), slot) in jumps {
        let Some(offset) = insn.jump_offset() else { continue };
        let Some(target) = (slot as usize + 1).checked_add_signed(offset as isize) else { continue };
        if target > slot as usize {
            continue;
        }
        if matches!(insn, Insn::JumpIf { cond: Cond::Set, .. }) {
            return Some((
                slot,
                "a loop goes on while bits are set, which releases walk for more or fewer rounds",
            ));
        }
        if version < EXACT_LOOPS && returns_to(insns, target, slot as usize) {
            if version < BOUNDED_LOOPS && counts_to_register(insns, target, slot as usize) {
                let text =
                    "a loop counts up to a number in a register, which older verifiers may do without end";
                return Some((slot, text));
            }
            if counts_in_stack(insns, target, slot as usize) {
                let text = "a loop may change nothing but the stack, which older verifiers take for endless";
                return Some((slot, text));
            }
        }
    }
    None
}

/// Whether control may come from `start` to the jump at `end` that leads back, by instructions between them.
fn returns_to(insns: &[Insn], start: usize, end: usize) -> bool {
    let mut seen = vec![false; end + 1 - start];
    let mut left = vec![start];
    while let Some(slot) = left.pop() {
        if !(start..=end).contains(&slot) || std::mem::replace(&mut seen[slot - start], true) {
            continue;
        }
        if slot == end {
            return true;
        }
        let insn = &insns[slot];
        left.extend(insn.jump_offset().and_then(|offset| (slot + 1).checked_add_signed(offset as isize)));
        if insn.falls_through() {
            left.push(slot + if matches!(insn, Insn::LoadImm64 { .. }) { 2 } else { 1 });
        }
    }
    false
}

/// Whether the jump at `end` compares a register that the loop counts with another one.
fn counts_to_register(insns: &[Insn], start: usize, end: usize) -> bool {
    let Some(Insn::JumpIf { cond, dst, src: Operand::Reg(src), .. }) = insns.get(end) else { return false };
    let counts = |insn: &Insn| {
        matches!(insn, Insn::Alu { op: AluOp::Add, dst: counted, src: Operand::Imm(_), .. }
            if counted == dst || counted == src)
    };
    !matches!(cond, Cond::Eq | Cond::Ne | Cond::Set) && insns[start..end].iter().any(counts)
}

/// Whether the condition of the loop from `start` to the jump at `end` is about a number that the loop keeps in the stack,
/// and that does not start as a constant.
fn counts_in_stack(insns: &[Insn], start: usize, end: usize) -> bool {
    let body = insns.get(start..=end).unwrap_or_default();
    let is_constant = |at: usize, src: &Operand| match src {
        Operand::Imm(_) => true,
        Operand::Reg(reg) => {
            insns[..at].iter().rev().take(NEAR).find_map(|insn| match insn {
                Insn::Alu { op, dst, src, .. } if dst == reg => {
                    Some(*op == AluOp::Mov && matches!(src, Operand::Imm(_)))
                }
                Insn::Load { dst, .. } if dst == reg => Some(false),
                Insn::Call { .. } => Some(false),
                _ => None,
            }) == Some(true)
        }
    };
    let kept = |slot: i16| {
        let mut stores = insns.iter().enumerate().filter_map(|(at, insn)| match insn {
            Insn::Store { base: Reg::R10, offset, src, .. } if *offset == slot => Some((at, src)),
            _ => None,
        });
        let (mut inside, mut varies) = (false, false);
        stores.by_ref().for_each(|(at, src)| match (start..=end).contains(&at) {
            true => inside = true,
            false => varies |= !is_constant(at, src),
        });
        inside && varies
    };
    let mut loaded = [None; 16];
    body.iter().any(|insn| match insn {
        Insn::Load { dst, base: Reg::R10, offset, .. } => {
            loaded[dst.number() as usize] = Some(*offset);
            false
        }
        Insn::JumpIf { dst, .. } => loaded[dst.number() as usize].is_some_and(kept),
        Insn::Load { dst, .. } | Insn::Alu { op: AluOp::Mov, dst, .. } => {
            loaded[dst.number() as usize] = None;
            false
        }
        Insn::Call { .. } => {
            loaded[..6].fill(None);
            false
        }
        _ => false,
    })
}

/// The first load of an argument that is a pointer to a number, in programs whose arguments are the kernel's.
fn reads_number_pointers(program: &Program<'_>, verified: &Verified, version: Version) -> Option<u32> {
    let (types, target) = (program.given.types?, program.source.target.as_deref()?);
    let Context::Arguments {
        of: AttachTo::FunctionEntry | AttachTo::FunctionExit | AttachTo::FunctionModify,
    } = program.source.program_type.context
    else {
        return None;
    };
    if version >= NUMBER_POINTERS {
        return None;
    }
    let prototype = types.prototype(types.find(target, Kind::Func)?).ok()?;
    let is_number = |ty: u32| {
        let pointer = types.resolve(ty).ok().filter(|ty| ty.kind == Kind::Ptr);
        let pointee = pointer.and_then(|ty| types.resolve(ty.target()).ok());
        pointee.is_some_and(|ty| matches!(ty.kind, Kind::Int | Kind::Enum | Kind::Ptr))
    };
    let numbers: Vec<bool> = prototype.params().map(|param| is_number(param.ty)).collect();
    let loads = program.source.insns.iter().zip(verified.facts()).zip(0u32..);
    loads.filter(|((_, fact), _)| fact.reached).find_map(|((insn, _), slot)| match insn {
        Insn::Load { size: Size::B8, offset, base, .. } if *base != Reg::R10 && offset % 8 == 0 => {
            let at = usize::try_from(offset / 8).ok()?;
            numbers.get(at).is_some_and(|number| *number).then_some(slot)
        }
        _ => None,
    })
}

/// Whether functions other than the program itself load from the packet as classic filters do.
pub(crate) fn loads_in_functions(source: &ProgramSource) -> bool {
    let first = source.functions.get(1).map_or(source.insns.len(), |function| function.start as usize);
    let rest = source.insns.get(first..).unwrap_or_default();
    rest.iter().any(|insn| matches!(insn, Insn::LoadPacket { .. }))
}

//! What the verifiers of other releases may see otherwise than skep's, which was compared with Linux 6.12.

use crate::judge::{Program, place};
use crate::judgement::{Obstacle, Rule};
use crate::loops::{all_are_reachable, enters_loops_inside, walked_otherwise};
use crate::refusals::{DYNPTRS, NEAREST};
use crate::{Version, refusals};
use skep_abi::{AttachTo, Context, MapKind, ProgramSource, TAIL_CALL};
use skep_btf::Kind;
use skep_isa::{CallTarget, Imm64, Insn, Operand, Reg, Size};
use skep_verifier::{Abilities, Spills, Unwritten, Verified};

/// The abilities of skep's verifier that the verifier of that release has too.
pub fn abilities(version: Version) -> Abilities {
    let since = |major, minor| version >= Version::new(major, minor);
    Abilities {
        // No release has it, which a rule of its own says below.
        dead_code: true,
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
    if version > NEAREST && tail_calls_in_globals(program.source) {
        return Some(ability("a global function makes a tail call".to_owned()));
    }
    if version < NEAREST && program.source.sleepable && sleeps_with_others(program.source, verified) {
        let text = "programs that may sleep may not use locks and maps of all kinds in older releases";
        return Some(ability(text.to_owned()));
    }
    if stores_parts_beside_arenas(program.source, verified) {
        return Some(ability(
            "parts of addresses in an arena may be stored, or its numbers extended".to_owned(),
        ));
    }
    if let Some(slot) = reads_two_numbers(program.source) {
        let place = Some(place(program.source, slot));
        return Some(Obstacle { place, ..ability("two numbers in the stack are read as one".to_owned()) });
    }
    if throws_in_callbacks(program.source) {
        return Some(ability("a program with callbacks may call bpf_throw".to_owned()));
    }
    let array = |map: u32| {
        let def = verified.maps().get(map as usize);
        def.is_some_and(|def| def.kind == MapKind::Array && def.max_entries > 1)
    };
    let address = |insn: &Insn| matches!(insn, Insn::LoadImm64 { value: Imm64::MapValue { map, .. }, .. } if array(*map));
    if program.source.insns.iter().any(address) {
        return Some(ability("the address of a value is taken in a map that has several".to_owned()));
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
    if !all_are_reachable(program.source) {
        return Some(ability("no path leads to some of the instructions".to_owned()));
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
    let deep = stack_of_calls(source, verified) >= STACK_WITH_TAIL_CALLS;
    let loops = source.insns.iter().any(|insn| insn.jump_offset().is_some_and(|offset| offset < 0));
    let calls = source.insns.iter().zip(verified.facts()).zip(0u32..).filter(|((_, fact), _)| fact.reached);
    for ((insn, fact), slot) in calls {
        let Insn::Call { target: CallTarget::Helper(number) } = insn else { continue };
        let map = fact.call.and_then(|call| call.map);
        let by_name = source.program_type.number == Some(STRUCT_OPS)
            && source.target.as_deref().is_some_and(|target| target.ends_with(".release"));
        let in_function =
            |slot: u32| source.functions.get(1).is_some_and(|second| slot >= second.start) && deep;
        let rule = match *number {
            SPIN_LOCK if several => (Version::new(6, 8), "locks are followed into functions"),
            FOR_EACH if map.is_none() => (Version::new(6, 10), "one call may walk through several maps"),
            FIND_VMA => (NEVER, "the area of bpf_find_vma may be used in later calls of the callback"),
            SNPRINTF => (Version::new(6, 3), "the buffer of this helper need not have been written"),
            STRTOL | STRTOUL => (Version::new(6, 1), "the result of this helper need not have been written"),
            TAIL_CALL if in_function(slot) => {
                (Version::new(6, 12), "functions may make tail calls deep in a chain of calls")
            }
            _ if ACQUIRERS.contains(number) && loops => (
                Version::new(6, 12),
                "objects that are acquired anew in each iteration do not keep paths apart",
            ),
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
const SETSOCKOPT: u32 = 49;
const STRTOL: u32 = 105;
const STRTOUL: u32 = 106;
const SNPRINTF: u32 = 165;
/// Helpers whose results are acquired.
const ACQUIRERS: &[u32] = &[84, 85, 99, 131];
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

/// With so much stack, a chain of calls may have too much for a tail call in a function.
const STACK_WITH_TAIL_CALLS: u32 = 256;

/// Frames are counted in steps of 16 bytes since then, at the latest.
const SMALL_FRAMES: Version = Version::new(6, 12);

/// The last release without what is certain about old ones.
const OBSERVED: Version = Version::new(6, 1);

/// Releases that stable updates gave abilities of later ones.
const STABLE: &[Version] = &[Version::new(5, 10), Version::new(5, 15), Version::new(6, 1)];

/// Arguments that are pointers to numbers may be loaded since then.
const NUMBER_POINTERS: Version = Version::new(5, 17);

/// Loops may be entered in their middle since then, at the latest.
const ENTERED_LOOPS: Version = Version::new(6, 12);

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

/// Whether a global function makes a tail call.
fn tail_calls_in_globals(source: &ProgramSource) -> bool {
    let ends = source.functions.iter().skip(1).map(|next| next.start as usize).chain([source.insns.len()]);
    let is_tail_call = |insn: &Insn| matches!(insn, Insn::Call { target: CallTarget::Helper(TAIL_CALL) });
    source.functions.iter().zip(ends).skip(1).any(|(function, end)| {
        let insns = source.insns.get(function.start as usize..end).unwrap_or_default();
        function.global && insns.iter().any(is_tail_call)
    })
}

/// The first load of eight bytes that were only stored as two numbers.
fn reads_two_numbers(source: &ProgramSource) -> Option<u32> {
    let stored = |wanted: Size, at: i16| {
        source.insns.iter().any(|insn| {
            matches!(insn, Insn::Store { size, base: Reg::R10, offset, .. } if *size == wanted && *offset == at)
        })
    };
    source.insns.iter().zip(0u32..).find_map(|(insn, slot)| match insn {
        Insn::Load { size: Size::B8, base: Reg::R10, offset, .. } => {
            let two = stored(Size::B4, *offset) && stored(Size::B4, offset.saturating_add(4));
            (two && !stored(Size::B8, *offset)).then_some(slot)
        }
        _ => None,
    })
}

/// Whether a program locks, or names maps of kinds that programs that sleep could not always use.
fn sleeps_with_others(source: &ProgramSource, verified: &Verified) -> bool {
    let always = [MapKind::Hash, MapKind::Array, MapKind::LruHash];
    let other = |map: u32| verified.maps().get(map as usize).is_some_and(|def| !always.contains(&def.kind));
    source.insns.iter().any(|insn| match insn {
        Insn::Call { target: CallTarget::Helper(number) } => *number == SPIN_LOCK,
        Insn::LoadImm64 { value: Imm64::Map(map), .. } => other(*map),
        _ => false,
    })
}

/// Whether a program with an arena stores parts of registers to its stack, or extends the sign of what it loads.
fn stores_parts_beside_arenas(source: &ProgramSource, verified: &Verified) -> bool {
    let arena = verified.maps().iter().any(|def| def.kind == MapKind::Arena);
    let part = |insn: &Insn| match insn {
        Insn::Load { signed, .. } => *signed,
        Insn::Store { size, base: Reg::R10, src: Operand::Reg(_), .. } => *size != Size::B8,
        _ => false,
    };
    arena && source.insns.iter().any(part)
}

/// Whether it passes functions to be called back, and may throw.
fn throws_in_callbacks(source: &ProgramSource) -> bool {
    let takes_function = |insn: &Insn| matches!(insn, Insn::LoadImm64 { value: Imm64::Function(_), .. });
    source.insns.iter().any(takes_function)
        && source.externs.iter().any(|symbol| &*symbol.name == "bpf_throw")
}

/// Whether functions other than the program itself load from the packet as classic filters do.
pub(crate) fn loads_in_functions(source: &ProgramSource) -> bool {
    let first = source.functions.get(1).map_or(source.insns.len(), |function| function.start as usize);
    let rest = source.insns.get(first..).unwrap_or_default();
    rest.iter().any(|insn| matches!(insn, Insn::LoadPacket { .. }))
}

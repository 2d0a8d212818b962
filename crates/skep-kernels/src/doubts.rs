//! What the verifiers of other releases may see otherwise than skep's, which was compared with Linux 6.12.

use crate::Version;
use crate::judge::{Program, place};
use crate::judgement::{Obstacle, Rule};
use crate::refusals::{DYNPTRS, NEAREST};
use skep_abi::{MapKind, ProgramSource};
use skep_isa::{CallTarget, Insn};
use skep_verifier::{Abilities, Spills, Verified};

/// The abilities of skep's verifier that the verifier of that release has too.
pub fn abilities(version: Version) -> Abilities {
    let since = |major, minor| version >= Version::new(major, minor);
    Abilities {
        lenient: false,
        unwritten_stack: since(6, 3),
        passed_pointers: since(6, 18),
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
        let text = "a loop is entered in its middle, which older verifiers refuse".to_owned();
        return Some(ability(text));
    }
    if loads_in_functions(program.source) {
        return Some(ability("a function loads from the packet as classic filters do".to_owned()));
    }
    let found = changed(program.source, verified, version)?;
    let place = found.0.map(|slot| place(program.source, slot));
    Some(Obstacle { rule: Rule::Ability, text: found.1.to_owned(), since: Some(found.2), place })
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
            GET_STACK | GET_TASK_STACK => (Version::new(5, 15), "the result of this helper is bounded"),
            _ if map.is_some_and(|map| is_of_sockets(verified, map)) => {
                (Version::new(6, 1), "more types of programs may use maps of sockets")
            }
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

fn is_of_sockets(verified: &Verified, map: u32) -> bool {
    let kind = verified.maps().get(map as usize).map(|def| def.kind);
    matches!(kind, Some(MapKind::Sockmap | MapKind::Sockhash))
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
const GET_STACK: u32 = 67;
const GET_TASK_STACK: u32 = 141;
const SPIN_LOCK: u32 = 93;
const FOR_EACH: u32 = 164;
const FIND_VMA: u32 = 180;

/// The most instructions walked here with which a program is surely within the limit there.
const MOST_WALKED: [(Version, u64); 3] =
    [(Version::new(6, 12), 200_000), (Version::new(6, 1), 10_000), (Version::new(5, 10), 5_000)];

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

/// Whether functions other than the program itself load from the packet as classic filters do.
pub(crate) fn loads_in_functions(source: &ProgramSource) -> bool {
    let first = source.functions.get(1).map_or(source.insns.len(), |function| function.start as usize);
    let rest = source.insns.get(first..).unwrap_or_default();
    rest.iter().any(|insn| matches!(insn, Insn::LoadPacket { .. }))
}

//! Stack use along chains of calls, checked after the walk: all frames of a chain are in the one stack of the host's
//! thread, which cannot be checked at run time.
//!
//! ```text
//!   program: 100 -> 112    calls f: 300 -> 304    calls g: 8 -> 16        sum: 432, at most 512
//! ```
//!
//! A tail call in a function replaces that function only: the frames of its callers stay. A chain of 33 tail calls
//! could pile them up. So the callers of a function that makes a tail call may use less than half of the stack.

use crate::domain::stack::STACK_BYTES;
use crate::domain::state::MAX_FRAMES;
use crate::program::cfg::target;
use crate::program::env::Env;
use crate::program::facts::Record;
use crate::program::violation::{Checked, Code, Violation};
use skep_abi::RetKind;
use skep_isa::{CallTarget, Insn};

/// The alignment of frames in bytes.
const FRAME_ALIGNMENT: u32 = 16;
/// The callers of a function that makes tail calls use fewer bytes than this.
const BEFORE_TAIL_CALL: u32 = 256;

/// A call that some path makes.
#[derive(Clone, Copy)]
struct Edge {
    slot: u32,
    callee: u32,
}

/// What is known of one function.
#[derive(Clone, Default)]
struct Node {
    bytes: u32,
    tail_call: Option<u32>,
    /// The most bytes of callers that it was checked with; `None` if it was not yet.
    seen: Option<u32>,
}

/// Checks all chains of calls that the walk found.
pub(crate) fn check_chains(env: &Env<'_>, record: &Record) -> Checked<()> {
    let node = |bytes: &u32| Node { bytes: bytes.next_multiple_of(FRAME_ALIGNMENT), ..Node::default() };
    let mut nodes: Vec<Node> = record.stacks().iter().map(node).collect();
    let mut edges = vec![Vec::new(); nodes.len()];
    for (function, range) in env.cfg.functions.iter().enumerate() {
        let counts = |slot: &usize| !env.config.abilities.dead_code || record.is_reached(*slot);
        for slot in range.clone().filter(counts) {
            match env.insn(slot) {
                Insn::Call { target: CallTarget::Local(offset) } => {
                    let callee = target(slot, offset).and_then(|to| env.cfg.function_at(to));
                    edges[function]
                        .extend(callee.map(|callee| Edge { slot: slot as u32, callee: callee as u32 }));
                }
                Insn::Call { target: CallTarget::Helper(id) }
                    if (env.config.helpers)(id).is_some_and(|proto| proto.ret == RetKind::TailCall) =>
                {
                    nodes[function].tail_call = Some(slot as u32);
                }
                _ => {}
            }
        }
    }
    for (slot, callee) in record.calls_back() {
        let caller = env.cfg.functions.partition_point(|range| range.start <= *slot as usize) - 1;
        edges[caller].push(Edge { slot: *slot, callee: *callee });
    }
    for root in record.roots() {
        follow(env, &mut nodes, &edges, root.function as usize, 0, &mut Vec::new())?;
    }
    Ok(())
}

/// Follows all chains from `function`, whose callers use `before` bytes. Nests no deeper than [`MAX_FRAMES`].
fn follow(
    env: &Env<'_>,
    nodes: &mut [Node],
    edges: &[Vec<Edge>],
    function: usize,
    before: u32,
    chain: &mut Vec<Edge>,
) -> Checked<()> {
    if nodes[function].seen.is_some_and(|seen| seen >= before) {
        return Ok(());
    }
    nodes[function].seen = Some(before);
    if chain.len() >= MAX_FRAMES {
        let text = format!("calls nest deeper than {MAX_FRAMES} frames: {}", chain_text(env, nodes, chain));
        let slot = chain.last().map_or(0, |edge| edge.slot as usize);
        let words = format!("the call stack of {} frames is too deep !", MAX_FRAMES + 1);
        return Err(Violation::at(Code::Stack, slot, text).in_linux(words));
    }
    if let Some(slot) = nodes[function].tail_call
        && before >= BEFORE_TAIL_CALL
    {
        let text = format!(
            "expected less than {BEFORE_TAIL_CALL} bytes of stack in the callers of a function that makes a \
                 tail call, found {before} in {}",
            chain_text(env, nodes, chain)
        );
        let words = format!(
            "tail_calls are not allowed when call stack of previous frames is {before} bytes. Too large"
        );
        return Err(Violation::at(Code::Stack, slot as usize, text).suggest(LESS_STACK).in_linux(words));
    }
    let sum = before + nodes[function].bytes;
    if sum > STACK_BYTES {
        let text = format!(
            "expected at most {STACK_BYTES} bytes of stack in a chain of calls, found {sum} in {}",
            chain_text(env, nodes, chain)
        );
        let slot = chain.last().map_or(env.cfg.functions[function].start, |edge| edge.slot as usize);
        let words = format!("combined stack size of {} calls is {sum}. Too large", chain.len() + 1);
        return Err(Violation::at(Code::Stack, slot, text).suggest(LESS_STACK).in_linux(words));
    }
    for edge in &edges[function] {
        chain.push(*edge);
        follow(env, nodes, edges, edge.callee as usize, sum, chain)?;
        chain.pop();
    }
    Ok(())
}

/// The functions of a chain, outermost first, with what each uses.
#[cold]
fn chain_text(env: &Env<'_>, nodes: &[Node], chain: &[Edge]) -> String {
    let first = chain
        .first()
        .map_or(0, |edge| env.cfg.functions.partition_point(|range| range.start <= edge.slot as usize) - 1);
    let name = |at: usize| format!("{} ({})", env.function_name(at), nodes[at].bytes);
    let mut text = name(first);
    for edge in chain {
        text += " -> ";
        text += &name(edge.callee as usize);
    }
    text
}

const LESS_STACK: &str = "keep large arrays in a map's value, or call from a function that uses less stack";

//! What the verifier learned of a program: the facts that compilers use.

use serde::Serialize;
use skep::Verified;
use skep::isa::Insn;

/// What is known of one instruction, if anything.
#[derive(Serialize)]
pub(crate) struct Line {
    /// The slot.
    pub(crate) insn: u32,
    /// The instruction as it is now.
    text: String,
    /// No path reaches it.
    #[serde(skip_serializing_if = "is_false")]
    removed: bool,
    /// Whether a conditional jump is always or never taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    decided: Option<&'static str>,
    /// The context access that was rewritten for the native structure.
    #[serde(skip_serializing_if = "Option::is_none")]
    rewritten: Option<String>,
    /// The map with which the helper is always called.
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<String>,
    /// The array key with which the helper is always called.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<u32>,
    /// The key is always within the array's bounds.
    #[serde(skip_serializing_if = "is_false")]
    in_bounds: bool,
    /// The upper half of the 32-bit result is never read.
    #[serde(skip_serializing_if = "is_false")]
    without_extension: bool,
    /// A loop starts here.
    #[serde(skip_serializing_if = "is_false")]
    loop_head: bool,
    /// A function starts here, and that many bytes of its stack are zeroed first.
    #[serde(skip_serializing_if = "Option::is_none")]
    zeroed: Option<u32>,
}

/// The facts of a program that had these instructions before it was verified.
pub(crate) fn of(program: &Verified, before: &[Insn]) -> Vec<Line> {
    let narrow = program.without_extension();
    let zeroed = |slot: usize| {
        let mut functions = program.functions().iter().filter(|function| function.zeroed);
        functions.find(|function| function.start as usize == slot).map(|function| function.stack_bytes)
    };
    let slots = program.insns().iter().zip(program.facts()).enumerate();
    slots
        .filter(|(_, (insn, _))| !matches!(insn, Insn::LoadImm64Tail))
        .filter_map(|(slot, (insn, fact))| {
            let was = before.get(slot).filter(|was| *was != insn);
            let call = fact.call.unwrap_or_default();
            let decided = match (was, insn) {
                (Some(Insn::JumpIf { .. }), Insn::Jump { offset: 0, .. }) => Some("never taken"),
                (Some(Insn::JumpIf { .. }), Insn::Jump { .. }) => Some("always taken"),
                (Some(Insn::JumpIf { .. }), _) => Some("never reached by a run"),
                _ => None,
            };
            let map = call.map.and_then(|map| program.maps().get(map as usize));
            let line = Line {
                insn: slot as u32,
                text: insn.to_string(),
                removed: !fact.reached,
                decided,
                rewritten: was.filter(|_| decided.is_none()).map(ToString::to_string),
                map: map.map(|map| map.name.clone()),
                key: call.key,
                in_bounds: call.in_bounds,
                without_extension: fact.reached && narrow.get(slot).copied().unwrap_or_default(),
                loop_head: fact.loop_head,
                zeroed: zeroed(slot),
            };
            (!line.words().is_empty()).then_some(line)
        })
        .collect()
}

impl Line {
    /// The facts as text.
    pub(crate) fn words(&self) -> Vec<String> {
        let when = |holds: bool, words: &str| holds.then(|| words.to_owned());
        [
            when(self.removed, "never reached"),
            self.decided.map(str::to_owned),
            self.rewritten.as_ref().map(|was| format!("was {was}")),
            self.map.as_ref().map(|map| format!("always map {map}")),
            self.key.map(|key| format!("always key {key}")),
            when(self.in_bounds, "key in bounds"),
            when(self.without_extension, "needs no extension"),
            when(self.loop_head, "loop head"),
            self.zeroed.map(|bytes| format!("starts with {bytes} bytes of stack zeroed")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// One line of text.
    pub(crate) fn line(&self) -> String {
        format!("{:>6}: {:<40} ; {}\n", self.insn, self.text, self.words().join(", "))
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

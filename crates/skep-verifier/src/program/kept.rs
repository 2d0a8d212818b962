//! What a verified program keeps of each slot, unpacked for the compiler or packed afterwards.
//!
//! An engine reads instructions and facts once, when the program is loaded. Later only questions about the program need
//! them: dumps, source lines of a fault, the interpreter. Unpacked they take some 70 bytes for each instruction, packed
//! about four, long programs less:
//!
//! ```text
//!   LZ4, if it is long, of:  slots | calls | lines
//!   a slot:  which of the others follow | opcode | registers | offset | immediate | flags
//! ```
//!
//! An offset or an immediate of 0 is left out, and so are the flags of a slot that is reached and no more.
//!
//! A program that is asked unpacks itself once and stays so: `&[Insn]` must live as long as the program. Instructions
//! that cannot be written as slots would be lost, so such a program is never packed.
//!
//! What would break it: a field of [`Fact`] or [`LineInfo`] that is not written here. Both are taken apart by name
//! below, so a new field does not compile.

use crate::program::{CallFact, Fact};
use skep_abi::{ContextField, LineInfo};
use skep_isa::{Insn, Slot, varint};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Instructions and facts, one of each for each slot, and source lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    pub(crate) insns: Vec<Insn>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) lines: Vec<LineInfo>,
}

/// The slots of a program in one of the two forms, or both.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    unpacked: OnceLock<Arc<Slots>>,
    packed: Option<Arc<Packed>>,
}

impl Kept {
    pub(crate) fn new(slots: Slots) -> Self {
        Self { unpacked: OnceLock::from(Arc::new(slots)), packed: None }
    }

    /// The slots, which are unpacked if need be.
    pub(crate) fn slots(&self) -> &Slots {
        self.unpacked
            .get_or_init(|| Arc::new(self.packed.as_ref().map(|packed| packed.unpack()).unwrap_or_default()))
    }

    /// The instructions as in an object file. Unpacks nothing that stays.
    pub(crate) fn encoded(&self) -> Vec<u8> {
        if let (None, Some(packed)) = (self.unpacked.get(), &self.packed) {
            return packed.slots(&mut Reader(&packed.plain())).0;
        }
        skep_isa::encode_bytes(&self.slots().insns).unwrap_or_default()
    }

    /// Gives the memory of the unpacked form back.
    pub(crate) fn pack(&mut self) {
        if self.packed.is_none() {
            self.packed = Packed::of(self.slots()).map(Arc::new);
        }
        if self.packed.is_some() {
            self.unpacked = OnceLock::new();
        }
    }

    /// Bytes on the heap of the packed form; `None` if there is only the other.
    pub(crate) fn packed_bytes(&self) -> Option<usize> {
        self.packed.as_ref().map(|packed| size_of::<Packed>() + packed.heap_bytes())
    }
}

/// The packed form.
#[derive(Debug)]
struct Packed {
    slots: u32,
    lines: u32,
    /// Bytes before compression.
    plain: u32,
    bytes: Box<[u8]>,
    /// They are no bytes. Programs that run have none.
    foreign: Box<[(u32, &'static ContextField)]>,
}

/// Below this size compression saves less than its table costs in time.
const SMALL: usize = 2048;

// What follows the opcode and the registers of a slot.
const OFFSET: u8 = 1 << 0;
const IMMEDIATE: u8 = 1 << 1;
const FLAGS: u8 = 1 << 2;

// The flags of a slot.
const REACHED: u8 = 1 << 0;
const JUMP_TARGET: u8 = 1 << 1;
const LOOP_HEAD: u8 = 1 << 2;
const PROBE: u8 = 1 << 3;
const ARENA: u8 = 1 << 4;
const CALL: u8 = 1 << 5;
const THROWS: u8 = 1 << 6;
const RELOAD: u8 = 1 << 7;

// Those of a call.
const MAP: u8 = 1 << 0;
const KEY: u8 = 1 << 1;
const IN_BOUNDS: u8 = 1 << 2;

impl Packed {
    /// `None` for what has no packed form.
    fn of(slots: &Slots) -> Option<Self> {
        let Slots { insns, facts, lines } = slots;
        let encoded = skep_isa::encode_bytes(insns).ok()?;
        let (encoded, _) = encoded.as_chunks();
        let mut plain = Vec::with_capacity(4 * facts.len() + 16 * lines.len());
        encoded.iter().zip(facts).for_each(|(slot, fact)| write_slot(&mut plain, *slot, flags(fact)));
        facts.iter().filter_map(|fact| fact.call).for_each(|call| write_call(&mut plain, call));
        write_lines(&mut plain, lines);
        let foreign = (0..).zip(facts).filter_map(|(slot, fact)| Some((slot, fact.foreign?))).collect();
        let length = u32::try_from(plain.len()).ok()?;
        let bytes = if plain.len() < SMALL { plain } else { lz4_flex::block::compress(&plain) };
        Some(Self {
            slots: u32::try_from(insns.len()).ok()?,
            lines: u32::try_from(lines.len()).ok()?,
            plain: length,
            bytes: bytes.into(),
            foreign,
        })
    }

    /// The bytes before compression.
    fn plain(&self) -> Cow<'_, [u8]> {
        let plain = self.plain as usize;
        if plain < SMALL {
            return Cow::Borrowed(&self.bytes);
        }
        match lz4_flex::block::decompress(&self.bytes, plain) {
            Ok(bytes) => Cow::Owned(bytes),
            Err(error) => unreachable!("bytes that this module compressed: {error}"),
        }
    }

    fn unpack(&self) -> Slots {
        let bytes = self.plain();
        let mut rest = Reader(&bytes);
        let (code, flags) = self.slots(&mut rest);
        let insns = match skep_isa::decode_bytes(&code) {
            Ok(insns) => insns,
            Err(error) => unreachable!("slots that this module encoded: {error}"),
        };
        let mut facts: Vec<Fact> = flags.iter().map(|flags| fact(*flags, &mut rest)).collect();
        for (slot, field) in &self.foreign {
            facts[*slot as usize].foreign = Some(field);
        }
        Slots { insns, facts, lines: read_lines(&mut rest, self.lines) }
    }

    /// The slots as in an object file, and the flags of each.
    fn slots(&self, bytes: &mut Reader<'_>) -> (Vec<u8>, Vec<u8>) {
        let count = self.slots as usize;
        let (mut code, mut flags) = (Vec::with_capacity(count * Slot::BYTES), Vec::with_capacity(count));
        for _ in 0..count {
            let (slot, of_slot) = read_slot(bytes);
            code.extend(slot);
            flags.push(of_slot);
        }
        (code, flags)
    }

    fn heap_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.foreign)
    }
}

fn flags(fact: &Fact) -> u8 {
    let Fact { reached, jump_target, loop_head, probe, arena, call, foreign: _, throws, reload } = *fact;
    [
        (reached, REACHED),
        (jump_target, JUMP_TARGET),
        (loop_head, LOOP_HEAD),
        (probe, PROBE),
        (arena, ARENA),
        (call.is_some(), CALL),
        (throws, THROWS),
        (reload, RELOAD),
    ]
    .into_iter()
    .fold(0, |flags, (is, flag)| if is { flags | flag } else { flags })
}

/// The fact with these flags. Calls follow in the order of their slots.
fn fact(flags: u8, calls: &mut Reader<'_>) -> Fact {
    let has = |flag| flags & flag != 0;
    Fact {
        reached: has(REACHED),
        jump_target: has(JUMP_TARGET),
        loop_head: has(LOOP_HEAD),
        probe: has(PROBE),
        arena: has(ARENA),
        call: has(CALL).then(|| read_call(calls)),
        foreign: None,
        throws: has(THROWS),
        reload: has(RELOAD),
    }
}

fn write_slot(bytes: &mut Vec<u8>, slot: [u8; Slot::BYTES], flags: u8) {
    let [code, registers, o @ .., i0, i1, i2, i3] = slot;
    let (offset, immediate) = (i16::from_le_bytes(o), i32::from_le_bytes([i0, i1, i2, i3]));
    let flag = |is, flag| if is { flag } else { 0 };
    let follow = flag(offset != 0, OFFSET) | flag(immediate != 0, IMMEDIATE) | flag(flags != REACHED, FLAGS);
    bytes.extend([follow, code, registers]);
    if offset != 0 {
        varint::write(bytes, offset.into());
    }
    if immediate != 0 {
        varint::write(bytes, immediate);
    }
    if flags != REACHED {
        bytes.push(flags);
    }
}

fn read_slot(bytes: &mut Reader<'_>) -> ([u8; Slot::BYTES], u8) {
    let [follow, code, registers] = bytes.array();
    let mut number = |flag| if follow & flag != 0 { varint::read(&mut bytes.0) } else { 0 };
    // Truncating: it was an offset.
    let [o0, o1] = (number(OFFSET) as i16).to_le_bytes();
    let [i0, i1, i2, i3] = number(IMMEDIATE).to_le_bytes();
    let [flags] = if follow & FLAGS != 0 { bytes.array() } else { [REACHED] };
    ([code, registers, o0, o1, i0, i1, i2, i3], flags)
}

fn write_call(bytes: &mut Vec<u8>, call: CallFact) {
    let CallFact { map, key, in_bounds } = call;
    let flag = |is, flag| if is { flag } else { 0 };
    bytes.push(flag(map.is_some(), MAP) | flag(key.is_some(), KEY) | flag(in_bounds, IN_BOUNDS));
    [map, key].into_iter().flatten().for_each(|number| bytes.extend(number.to_le_bytes()));
}

fn read_call(bytes: &mut Reader<'_>) -> CallFact {
    let [flags] = bytes.array();
    let map = (flags & MAP != 0).then(|| bytes.number());
    let key = (flags & KEY != 0).then(|| bytes.number());
    CallFact { map, key, in_bounds: flags & IN_BOUNDS != 0 }
}

/// A line has the numbers of the first lines with its file and with its text, so that lines share both again: a
/// stranger's object may have a million lines with one text.
fn write_lines(bytes: &mut Vec<u8>, lines: &[LineInfo]) {
    let (mut files, mut texts) = (BTreeMap::new(), BTreeMap::new());
    for (number, LineInfo { slot, file, text, line, column }) in (0u32..).zip(lines) {
        let firsts = [*files.entry(&**file).or_insert(number), *texts.entry(&**text).or_insert(number)];
        let numbers = [*slot, *line, *column].into_iter().chain(firsts);
        numbers.for_each(|number| bytes.extend(number.to_le_bytes()));
        for (first, word) in firsts.into_iter().zip([file, text]) {
            if first == number {
                bytes.extend((word.len() as u32).to_le_bytes());
                bytes.extend(word.as_bytes());
            }
        }
    }
}

fn read_lines(bytes: &mut Reader<'_>, count: u32) -> Vec<LineInfo> {
    let mut lines: Vec<LineInfo> = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let [slot, line, column, file, text] = std::array::from_fn(|_| bytes.number());
        let file = match lines.get(file as usize) {
            Some(first) => Arc::clone(&first.file),
            None => bytes.text(),
        };
        let text = match lines.get(text as usize) {
            Some(first) => Arc::clone(&first.text),
            None => bytes.text(),
        };
        lines.push(LineInfo { slot, file, text, line, column });
    }
    lines
}

/// Takes apart what this module wrote.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (array, rest) =
            self.0.split_first_chunk().map_or(([0; N], &[][..]), |(array, rest)| (*array, rest));
        self.0 = rest;
        array
    }

    fn number(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// A length and that many bytes of text.
    fn text(&mut self) -> Arc<str> {
        let length = self.number() as usize;
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8_lossy(text).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_isa::assemble;

    fn line(slot: u32, file: &Arc<str>, text: &str) -> LineInfo {
        LineInfo { slot, file: Arc::clone(file), text: text.into(), line: slot + 7, column: slot % 3 }
    }

    /// `rounds` times a few instructions, with every flag and every form of a call.
    fn slots(rounds: u32) -> Slots {
        let text = "r1 = 0x123456789 ll\nif r1 > 5 goto +1\ncall 7\nr0 += -3\nr2 = *(u64 *)(r1 - 32768)\n"
            .repeat(rounds as usize);
        let insns = assemble(&format!("{text}exit")).unwrap();
        let call = |n: u32| CallFact {
            map: (n & 1 != 0).then_some(n),
            key: (n & 2 != 0).then_some(n << 20),
            in_bounds: n & 4 != 0,
        };
        let fact = |n: u32| Fact {
            reached: n & 1 != 0,
            jump_target: n & 2 != 0,
            loop_head: n & 4 != 0,
            probe: n & 8 != 0,
            arena: n & 16 != 0,
            call: n.is_multiple_of(3).then(|| call(n)),
            foreign: None,
            throws: n & 32 != 0,
            reload: n & 64 != 0,
        };
        let facts = (0..insns.len() as u32).map(fact).collect();
        let files: [Arc<str>; 3] = ["a.c".into(), "".into(), "b \u{e9}.h".into()];
        let lines =
            (0..rounds).map(|n| line(n, &files[n as usize % 3], &"x".repeat(n as usize % 40))).collect();
        Slots { insns, facts, lines }
    }

    fn same(a: &Slots, b: &Slots) {
        assert_eq!((&a.insns, &a.facts, &a.lines), (&b.insns, &b.facts, &b.lines));
    }

    #[test]
    fn a_packed_program_is_the_same_when_it_is_unpacked() {
        for rounds in [0, 1, 5, 30, 300] {
            let slots = slots(rounds);
            let mut kept = Kept::new(slots.clone());
            for _ in 0..2 {
                kept.pack();
                assert_eq!(kept.encoded(), skep_isa::encode_bytes(&slots.insns).unwrap());
                assert!(kept.unpacked.get().is_none());
                same(kept.slots(), &slots);
            }
            let copy = kept.clone();
            drop(kept);
            same(copy.slots(), &slots);
        }
    }

    #[test]
    fn lines_share_the_names_of_their_files_again() {
        let mut kept = Kept::new(slots(30));
        kept.pack();
        let lines = &kept.slots().lines;
        assert!(Arc::ptr_eq(&lines[0].file, &lines[27].file));
    }

    #[test]
    fn many_lines_with_one_long_text_take_little_and_share_it_again() {
        let (file, text) = ("a.c".into(), "long ".repeat(100));
        let lines = (0..10_000).map(|slot| line(slot, &file, &text)).collect();
        let mut kept = Kept::new(Slots { lines, ..Slots::default() });
        kept.pack();
        assert!(kept.packed_bytes().unwrap() < 10_000 * 20, "{:?}", kept.packed_bytes());
        let lines = &kept.slots().lines;
        assert!(Arc::ptr_eq(&lines[0].text, &lines[9_999].text));
    }

    #[test]
    fn what_cannot_be_written_as_slots_stays_unpacked() {
        // The second half of an instruction without its first.
        let slots =
            Slots { insns: vec![Insn::LoadImm64Tail], facts: vec![Fact::default()], lines: Vec::new() };
        let mut kept = Kept::new(slots.clone());
        kept.pack();
        assert_eq!(kept.packed_bytes(), None);
        same(kept.slots(), &slots);
    }

    #[test]
    fn long_programs_take_few_bytes_for_each_instruction() {
        let slots = slots(800);
        let instructions = slots.insns.len();
        let mut kept = Kept::new(Slots { lines: Vec::new(), ..slots });
        kept.pack();
        assert!(kept.packed_bytes().unwrap() < 4 * instructions);
    }
}

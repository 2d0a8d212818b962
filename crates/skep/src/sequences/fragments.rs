//! Programs in pieces. Each piece begins with the program's argument in `r6` and ends so at its own label, so that any
//! of them can be left out. What they do with maps is mostly what the definitions allow.
//!
//! ```text
//!   r6 = r1 | piece | piece | ... | r0 = 0; exit | functions of the pieces
//!
//!   stack:  -8 a counter   -64..-32 a key   -128..-64 a value   -256..-128 a counter and bytes that it counts
//! ```

use super::definitions::{definition, holds_maps};
use skep_abi::{MapDef, MapKind, ProgramType, RAW, SCHED_CLS, SpecialKind, XDP};
use skep_testgen::Source;
use std::fmt::Write;

/// The number of the helper by which programs have the host do something.
pub(super) const ACT: u32 = 1000;

/// A piece of a program.
#[derive(Clone, Debug)]
pub(super) struct Fragment {
    body: String,
    /// Functions that helpers call in it.
    functions: String,
}

/// The text of a program.
pub(super) fn text<'a>(fragments: impl Iterator<Item = &'a Fragment> + Clone) -> String {
    let mut text = String::from("r6 = r1\n");
    fragments.clone().for_each(|fragment| text += &fragment.body);
    text += "r0 = 0\nexit\n";
    fragments.for_each(|fragment| text += &fragment.functions);
    text
}

/// The type of an object's program, mostly the one over a buffer.
pub(super) fn program_type(source: &mut Source) -> &'static ProgramType {
    match source.below(10) {
        0 => &XDP,
        1 => &SCHED_CLS,
        _ => &RAW,
    }
}

/// A piece of a program of that type, over a buffer of that length, that uses these maps. `number` makes its labels
/// its own.
pub(super) fn fragment(
    source: &mut Source,
    maps: &[MapDef],
    (program_type, buffer): (&'static ProgramType, u32),
    number: u32,
) -> Fragment {
    let raw = std::ptr::eq(program_type, &raw const RAW);
    let buffer = if raw { buffer } else { 0 };
    let mut maker = Maker { source, number, buffer, body: String::new(), functions: String::new() };
    maker.make(maps);
    Fragment { body: maker.body, functions: maker.functions }
}

struct Maker<'a> {
    source: &'a mut Source,
    number: u32,
    /// Bytes that `r6` points to; 0 where it is a context.
    buffer: u32,
    body: String,
    functions: String,
}

macro_rules! put {
    ($maker:expr, $($text:tt)*) => {
        writeln!($maker.body, $($text)*).expect("text takes text")
    };
}

impl Maker<'_> {
    fn make(&mut self, maps: &[MapDef]) {
        let (number, bracketed) = (self.number, self.source.chance(5));
        if bracketed {
            put!(self, "call kfunc[{}]", skep_abi::OWN_KFUNC);
        }
        match self.source.below(20) {
            0 => {
                put!(self, "r1 = {}\ncall {ACT}", number);
            }
            1 => self.repeat(),
            2 if self.buffer > 0 => self.buffer_access(),
            3 | 4 => self.direct_value(maps),
            _ => self.map(maps),
        }
        put!(self, "end{number}:");
        if bracketed {
            put!(self, "call kfunc[{}]", skep_abi::OWN_KFUNC + 1);
        }
    }

    /// Something with a map, or with one that is found in it.
    fn map(&mut self, maps: &[MapDef]) {
        // More often one that holds maps, where there is one.
        let outer = maps.iter().position(|def| holds_maps(def.kind));
        let index = match outer {
            Some(index) if self.source.chance(50) => index,
            _ => self.source.below(maps.len() as u32) as usize,
        };
        let mut def = maps[index].clone();
        put!(self, "r7 = map[{index}] ll");
        while (holds_maps(def.kind) && self.source.chance(92)) || self.source.chance(1) {
            self.key(&def);
            put!(self, "r2 = r10\nr2 += -64\nr1 = r7\ncall 1\nif r0 == 0 goto end{}\nr7 = r0", self.number);
            def = match def.inner {
                Some(inner) => *inner,
                None => definition(self.source, "guess".into(), 2),
            };
            if self.source.chance(6) {
                // Found, the host changes something before it is used.
                put!(self, "r1 = {}\ncall {ACT}", self.number);
            }
        }
        match def.kind {
            _ if self.source.chance(2) => self.any_call(),
            MapKind::ProgArray => self.tail_call(&def),
            MapKind::Queue | MapKind::Stack | MapKind::BloomFilter => self.queue(&def),
            MapKind::Ringbuf => self.ring(),
            kind if holds_maps(kind) => self.look_up(&MapDef { fields: Vec::new(), ..def }),
            _ => match self.source.below(10) {
                0..=3 => self.look_up(&def),
                4 | 5 => self.change(&def),
                6 if def.kind.is_per_cpu() => self.look_up_of_cpu(&def),
                _ => self.for_each(&def),
            },
        }
    }

    /// A key in its place.
    fn key(&mut self, def: &MapDef) {
        put!(self, "*(u64 *)(r10 - 64) = 0");
        for at in (8..def.key_size.min(32)).step_by(8) {
            put!(self, "*(u64 *)(r10 - {}) = 0", 64 - at);
        }
        let index = self.source.pick(&[0, 0, 0, 0, 1, 1, 2, 3, 4, 7, 15, 16, 32]);
        if self.buffer > 0 && self.source.chance(15) {
            put!(self, "r1 = *(u8 *)(r6 + 0)\nr1 &= 3\n*(u32 *)(r10 - 64) = r1");
        } else {
            put!(self, "*(u32 *)(r10 - 64) = {index}");
        }
    }

    /// A value in its place.
    fn value(&mut self) {
        let value = self.source.below(100);
        for at in (64..=128).step_by(8) {
            put!(self, "*(u64 *)(r10 - {at}) = {value}");
        }
    }

    fn look_up(&mut self, def: &MapDef) {
        self.key(def);
        put!(self, "r2 = r10\nr2 += -64\nr1 = r7\ncall 1\nif r0 == 0 goto end{}", self.number);
        put!(self, "r8 = r0");
        if self.source.chance(10) {
            // Found, the host changes something while it is in use.
            put!(self, "r1 = {}\ncall {ACT}", self.number);
        }
        self.use_value(def);
    }

    fn look_up_of_cpu(&mut self, def: &MapDef) {
        self.key(def);
        let cpu = self.source.pick(&[0, 1, 2, 7, 1000]);
        put!(self, "r3 = {cpu}\nr2 = r10\nr2 += -64\nr1 = r7\ncall 195");
        put!(self, "if r0 == 0 goto end{}\nr8 = r0", self.number);
        self.use_value(def);
    }

    /// Uses the value in `r8`.
    fn use_value(&mut self, def: &MapDef) {
        let number = self.number;
        if let Some(field) = def.fields.iter().find(|field| field.kind == SpecialKind::SpinLock) {
            let (at, other) = (field.offset, def.fields.last().map_or(0, |field| field.offset));
            let unlocked = if self.source.chance(80) { at } else { other };
            let free = (0..def.value_size).step_by(4).find(|free| !(at..at.saturating_add(4)).contains(free));
            put!(self, "r1 = r8\nr1 += {}\ncall 93", at as i32);
            if let Some(free) = free {
                put!(self, "*(u32 *)(r8 + {}) = 7", free as i16);
            }
            put!(self, "r1 = r8\nr1 += {}\ncall 94", unlocked as i32);
            return;
        }
        let (size, bytes) = self.source.pick(&[("u64", 8), ("u32", 4), ("u8", 1)]);
        let last = def.value_size.saturating_sub(bytes);
        let at = match self.source.below(20) {
            0 => last.saturating_add(1),
            1..=9 => last,
            _ => self.source.below(last.saturating_add(1)),
        } as i16;
        match self.source.below(6) {
            0 => put!(self, "*({size} *)(r8 + {at}) = 1"),
            1 if bytes > 1 => {
                put!(self, "r1 = 3\nlock *({size} *)(r8 + {}) += r1", (at as u32 / bytes * bytes) as i16);
            }
            2 => {
                let limit = def.value_size as i32 - i32::from(self.source.chance(95));
                put!(self, "r1 = *(u8 *)(r8 + 0)\nif r1 > {limit} goto end{number}");
                put!(self, "r8 += r1\n*(u8 *)(r8 + 0) = 1");
            }
            3 => {
                put!(self, "r1 = *({size} *)(r8 + {at})");
                if self.source.chance(90) {
                    put!(self, "r1 &= 7");
                }
                self.index_by_r1(8);
            }
            _ => put!(self, "r1 = *({size} *)(r8 + {at})\nr1 += 1\n*({size} *)(r8 + {at}) = r1"),
        }
    }

    /// Indexes memory by `r1`, which only something that the verifier knows keeps below `end`.
    fn index_by_r1(&mut self, end: u32) {
        let end = if self.source.chance(95) { end.max(1) } else { end / 2 };
        if self.buffer >= end && self.source.chance(70) {
            // As far back as it may reach.
            put!(self, "r1 += {}", self.buffer - end);
            put!(self, "r2 = r6\nr2 += r1");
            match self.source.chance(50) {
                true => put!(self, "*(u8 *)(r2 + 0) = 1"),
                false => put!(self, "r3 = *(u8 *)(r2 + 0)"),
            }
        } else {
            put!(self, "r2 = r10\nr2 += -{end}\nr2 += r1\n*(u8 *)(r2 + 0) = 1");
        }
    }

    fn direct_value(&mut self, maps: &[MapDef]) {
        // More often one whose value is said to be known.
        let frozen = maps.iter().position(|def| def.frozen.is_some());
        let one = maps.iter().position(|def| def.kind == MapKind::Array);
        let Some(index) = frozen.or(one) else { return self.map(maps) };
        let offset = self.source.below(maps[index].value_size.clamp(1, 64));
        if self.source.chance(50) {
            put!(self, "r8 = map_value[{index}]+{offset} ll\nr1 = *(u8 *)(r8 + 0)");
        } else {
            put!(self, "*(u32 *)(r10 - 64) = 0\nr2 = r10\nr2 += -64\nr1 = map[{index}] ll\ncall 1");
            put!(self, "if r0 == 0 goto end{}\nr1 = *(u8 *)(r0 + {offset})", self.number);
        }
        if self.source.chance(30) {
            let known = maps[index].frozen.as_deref().and_then(|bytes| bytes.get(offset as usize));
            put!(self, "if r1 != {} goto end{}", known.copied().unwrap_or(0), self.number);
        }
        self.index_by_r1(64);
    }

    fn change(&mut self, def: &MapDef) {
        self.key(def);
        if self.source.chance(35) {
            put!(self, "r2 = r10\nr2 += -64\nr1 = r7\ncall 3");
            return;
        }
        self.value();
        let flags = self.source.pick(&[0, 0, 0, 1, 2, 4, 9]);
        put!(self, "r4 = {flags}\nr3 = r10\nr3 += -128\nr2 = r10\nr2 += -64\nr1 = r7\ncall 2");
    }

    fn queue(&mut self, def: &MapDef) {
        self.value();
        let call = match def.kind {
            MapKind::BloomFilter => self.source.pick(&[87, 89]),
            _ => self.source.pick(&[87, 87, 88, 89]),
        };
        if call == 87 {
            put!(self, "r3 = {}", self.source.pick(&[0, 0, 2, 1]));
        }
        put!(self, "r2 = r10\nr2 += -128\nr1 = r7\ncall {call}");
        if def.value_size >= 8 && call != 87 {
            put!(self, "if r0 != 0 goto end{}\nr1 = *(u64 *)(r10 - 128)", self.number);
        }
    }

    fn ring(&mut self) {
        let bytes = self.source.pick(&[8, 8, 64, 4096, 1]);
        match self.source.below(3) {
            0 => put!(self, "r2 = {}\nr1 = r7\ncall 134", self.source.below(5)),
            1 => {
                self.value();
                put!(self, "r4 = 0\nr3 = {}\nr2 = r10\nr2 += -128\nr1 = r7\ncall 130", bytes.min(64));
            }
            _ => {
                put!(self, "r3 = 0\nr2 = {bytes}\nr1 = r7\ncall 131\nif r0 == 0 goto end{}", self.number);
                put!(self, "*(u8 *)(r0 + {}) = 1\nr1 = r0\nr2 = 0", bytes - 1);
                put!(self, "call {}", self.source.pick(&[132, 133]));
            }
        }
    }

    fn tail_call(&mut self, def: &MapDef) {
        let index = self.source.below(def.max_entries.clamp(1, 16) + 1);
        put!(self, "r3 = {index}\nr2 = r7\nr1 = r6\ncall 12");
    }

    fn any_call(&mut self) {
        let helper = self.source.pick(&[1, 2, 3, 87, 88, 89, 130, 164, 169, 170, 171, 195, 209, 226]);
        put!(self, "r1 = r7\nr2 = r10\nr2 += -64\nr3 = r10\nr3 += -128\nr4 = 0\nr5 = 0\ncall {helper}");
    }

    fn buffer_access(&mut self) {
        let (size, bytes) = self.source.pick(&[("u64", 8), ("u32", 4), ("u8", 1)]);
        let at = match self.source.chance(50) {
            true => self.buffer.saturating_sub(bytes),
            false => self.source.below(self.buffer + 1),
        };
        match self.source.chance(50) {
            true => put!(self, "*({size} *)(r6 + {at}) = 1"),
            false => put!(self, "r1 = *({size} *)(r6 + {at})"),
        }
    }

    /// A loop by a helper.
    fn repeat(&mut self) {
        let rounds = self.source.pick(&[0, 1, 4, 8, 16]);
        let end = self.counted(rounds, None);
        put!(self, "r4 = 0\nr3 = r10\nr3 += -256\nr2 = func[cb{}] ll\nr1 = {rounds}\ncall 181", self.number);
        self.count_used(end);
    }

    /// A call for each element of the map in `r7`.
    fn for_each(&mut self, def: &MapDef) {
        let end = self.counted(def.max_entries.min(64), Some(def));
        put!(self, "r4 = 0\nr3 = r10\nr3 += -256\nr2 = func[cb{}] ll\nr1 = r7\ncall 164", self.number);
        self.count_used(end);
    }

    /// A counter of 0, 120 bytes behind it, and a function that counts; one more than it counts to. `elements`: those
    /// that it is called for.
    fn counted(&mut self, rounds: u32, elements: Option<&MapDef>) -> u32 {
        for at in (136..257).step_by(8).rev() {
            put!(self, "*(u64 *)(r10 - {at}) = 0");
        }
        let (number, context) = (self.number, if elements.is_some() { "r4" } else { "r2" });
        let outer = std::mem::take(&mut self.body);
        put!(self, "cb{number}:");
        let mut counted = 1;
        match self.source.below(8) {
            // The counter says where to write, in what is as long as the rounds take, or nearly.
            0..=3 => {
                let step = self.source.pick(&[1, 1, 8, 16]);
                let end = (rounds.saturating_mul(step)).min(120);
                let first = 128 - end + self.source.pick(&[0, 0, 0, 8]);
                put!(self, "r7 = *(u64 *)({context} + 0)\nr8 = {context}\nr8 += {}\nr8 += r7", first.max(8));
                counted += rounds.saturating_mul(step);
                put!(self, "*(u8 *)(r8 + 0) = 1\nr7 += {step}\n*(u64 *)({context} + 0) = r7");
            }
            4 => put!(self, "r7 = {context}\nr1 = {number}\ncall {ACT}"),
            5 if elements.is_some() => {
                put!(self, "r8 = r3");
                let def = elements.cloned().expect("there are some");
                self.number += 1000;
                self.use_value(&def);
                put!(self, "end{}:", self.number);
                self.number -= 1000;
            }
            6 if elements.is_some() => put!(self, "call 3"),
            _ => {
                counted += rounds;
                put!(self, "r7 = *(u64 *)({context} + 0)\nr7 += 1\n*(u64 *)({context} + 0) = r7");
            }
        }
        put!(self, "r0 = {}\nexit", self.source.pick(&[0, 0, 0, 1]));
        self.functions += &std::mem::replace(&mut self.body, outer);
        counted
    }

    /// What was counted says where to go.
    fn count_used(&mut self, end: u32) {
        put!(self, "r1 = *(u64 *)(r10 - 256)");
        if end <= 128 && self.source.chance(60) {
            self.index_by_r1(end);
        }
    }
}

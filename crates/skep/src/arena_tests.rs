//! Arenas in checking mode, in the interpreter and in the processor's JIT. A model of a few lines is the oracle: pages
//! of bytes by number, where those that are not there read as zero and swallow stores.

use crate::{Arena, Engine, Map, Object, Program, Runtime};
use skep_abi::{ArenaLink, MapDef, MapFlags, MapKind, RAW, own_kfunc_number};
use skep_interp::Regions;
use skep_testkit::fewer_if_emulated;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

const PAGES: u32 = 6;
/// The arena begins in the middle of its window.
const START: u64 = (7 << 32) | 0x5000_0000;
const WINDOW: i64 = 1 << 32;

fn def(pages: u32, extra: u64) -> MapDef {
    MapDef { flags: MapFlags::MMAPABLE, extra, ..MapDef::new("heap", MapKind::Arena, 0, 0, pages) }
}

/// Replaces `@name` by the call of that kernel function.
fn with_calls(text: &str) -> String {
    let call = |name: &str| format!("call kfunc[{}]", own_kfunc_number(name).expect("a function"));
    text.lines().fold(String::new(), |mut out, line| {
        let line = line.trim();
        writeln!(out, "{}", line.strip_prefix('@').map_or(line.to_owned(), call)).unwrap();
        out
    })
}

fn load_with(def: MapDef, text: &str) -> (Program, Arc<Map>) {
    let insns = skep_isa::assemble(&with_calls(text)).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let bytes = skep_isa::encode_bytes(&insns).unwrap();
    let object = Object::from_bytecode_and_maps("main", &RAW, &bytes, vec![def]).unwrap();
    let module = Runtime::new().unwrap().linker(&object).sleepable(true).load();
    let module = module.unwrap_or_else(|error| panic!("{error}\n{text}"));
    (module.programs()[0].clone(), Arc::clone(&module.maps()[0]))
}

/// How a program is run.
#[derive(Clone, Copy, Debug)]
enum Way {
    Checked,
    With(Engine),
}

const WAYS: [Way; 3] = [Way::Checked, Way::With(Engine::Interpreter), Way::With(Engine::Jit)];

fn run(program: &Program, way: Way) -> u64 {
    run_on(program, way, &mut [])
}

fn run_on(program: &Program, way: Way, buffer: &mut [u8]) -> u64 {
    match way {
        Way::With(engine) => program.run_raw_with(engine, buffer).unwrap(),
        Way::Checked => {
            let mut packet = crate::Packet::new(&[]);
            // At a multiple of 8.
            let mut room = vec![0; buffer.len() + 8];
            let start = room.as_ptr().align_offset(8);
            let aligned = &mut room[start..start + buffer.len()];
            aligned.copy_from_slice(buffer);
            let result = program.run_checked(&mut packet, aligned, Regions::DEFAULT_FUEL).unwrap();
            buffer.copy_from_slice(aligned);
            result.unwrap_or_else(|violation| panic!("{violation}"))
        }
    }
}

/// The result of a program in every engine, each with an arena of its own.
fn result(def: &MapDef, text: &str) -> u64 {
    let results = WAYS.map(|way| run(&load_with(def.clone(), text).0, way));
    assert_eq!(results, [results[0]; 3], "{text}");
    results[0]
}

const NAMED: &str = "r9 = map[0] ll\n";

#[test]
fn casts_keep_the_lower_half_and_null_is_null_in_both_spaces() {
    let cast = |value: u64, to: u8, from: u8| {
        let text =
            format!("{NAMED}r3 = {value:#x} ll\nr1 = addr_space_cast(r3, {to:#x}, {from:#x})\nr0 = r1\nexit");
        result(&def(PAGES, START), &text)
    };
    for value in [0, 1, 0x5000_0010, 0xffff_ffff, 0x1_0000_0000, 0xdead_beef_0000_0000, u64::MAX, 1 << 31] {
        let low = value & 0xffff_ffff;
        assert_eq!(cast(value, 0, 1), low, "{value:#x}");
        assert_eq!(cast(value, 1, 0), if low == 0 { 0 } else { 7 << 32 | low }, "{value:#x}");
    }
    let flags = MapFlags::MMAPABLE.union(MapFlags::NO_USER_CONV);
    let text = format!("{NAMED}r3 = 0x1234567890 ll\nr0 = addr_space_cast(r3, 0x1, 0x0)\nexit");
    assert_eq!(result(&MapDef { flags, ..def(PAGES, START) }, &text), 0x3456_7890);
}

#[test]
fn pages_that_are_not_there_read_as_zero_and_swallow_stores() {
    let text = format!(
        "{NAMED}r2 = 0x50000ff8 ll
         r1 = addr_space_cast(r2, 0x0, 0x1)
         *(u64 *)(r1 + 0) = -1
         *(u8 *)(r1 + 1) = 7
         r3 = -1
         lock *(u64 *)(r1 + 0) |= r3
         r4 = 5
         r4 = atomic_fetch_add((u64 *)(r1 + 0), r4)
         r0 = *(u64 *)(r1 + 0)
         r0 |= r4
         exit"
    );
    assert_eq!(result(&def(PAGES, START), &text), 0);
}

#[test]
fn the_guards_at_both_ends_read_as_zero_and_swallow_stores() {
    // All of the window, so that its first and last pages are there.
    let mut text = format!("{NAMED}r0 = 0\n");
    for (address, offset) in [(0, -32768), (0, -1), (0, -8), (0xffff_ffff_u64, 32767), (0xffff_ffff, 1)] {
        for size in ["u8", "u16", "u32", "u64"] {
            write!(
                text,
                "r2 = {address:#x} ll
                 r1 = addr_space_cast(r2, 0x0, 0x1)
                 *({size} *)(r1 {offset:+}) = -1
                 r2 = *({size} *)(r1 {offset:+})\nr0 |= r2\n"
            )
            .unwrap();
        }
    }
    // They cross the ends of the window: the page inside is there, the guard is not.
    text += "r2 = 0\nr1 = addr_space_cast(r2, 0x0, 0x1)\n*(u64 *)(r1 - 4) = -1\nr2 = *(u64 *)(r1 - 4)\nr0 |= r2\n";
    text += "r2 = 0xfffffffc ll\nr1 = addr_space_cast(r2, 0x0, 0x1)\n*(u64 *)(r1 + 0) = -1\nr2 = *(u64 *)(r1 + 0)\n";
    text += "r0 |= r2\nr3 = 1\nr3 = atomic_fetch_add((u64 *)(r1 + 4), r3)\nr0 |= r3\nexit";
    for way in WAYS {
        let (program, map) = load_with(def(1 << 20, 0), &text);
        let arena = map.arena().unwrap();
        arena.allocate(Some(arena.start()), 1).unwrap();
        arena.allocate(Some(arena.start() + arena.len() - Arena::PAGE), 1).unwrap();
        assert_eq!(run(&program, way), 0, "{way:?}");
    }
}

#[test]
fn sixty_four_bits_of_garbage_stay_in_the_window() {
    let text = format!(
        "r6 = *(u64 *)(r1 + 0)
         {NAMED}r1 = addr_space_cast(r6, 0x0, 0x1)
         r1 += r6
         *(u64 *)(r1 + 32767) = r6
         *(u32 *)(r1 - 32768) = 7
         r2 = *(u64 *)(r1 + 32767)
         r1 *= r6
         r3 = r6
         r3 = xchg_64(r1 + 0, r3)
         r0 = *(s16 *)(r1 - 1)
         exit"
    );
    for way in WAYS {
        let insns = skep_isa::assemble(&text).unwrap();
        let bytes = skep_isa::encode_bytes(&insns).unwrap();
        let object = Object::from_bytecode_and_maps("main", &RAW, &bytes, vec![def(1 << 20, 0)]).unwrap();
        let module = Runtime::new().unwrap().linker(&object).buffer_len(8).load().unwrap();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..1000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1442695040888963407);
            run_on(&module.programs()[0], way, &mut random.to_ne_bytes());
        }
    }
}

#[test]
fn programs_allocate_free_and_allocate_again() {
    let alloc = |address: &str, pages: i64| {
        format!(
            "r1 = map[0] ll\nr2 = {address} ll\nr3 = {pages} ll\nr4 = -1\nr5 = 0\n@bpf_arena_alloc_pages\n"
        )
    };
    let free = |address: &str, pages: u32| {
        format!("r1 = map[0] ll\nr2 = {address}\nr3 = {pages}\n@bpf_arena_free_pages\n")
    };
    let at = |page: u64| START + page * Arena::PAGE;
    let first = |text: &str| result(&def(PAGES, START), &format!("{text}exit"));
    assert_eq!(first(&alloc("0", 1)), at(0));
    assert_eq!(first(&(alloc("0", 2) + &alloc("0", 1))), at(2));
    assert_eq!(first(&alloc(&format!("{:#x}", at(4)), 2)), at(4));
    assert_eq!(first(&alloc(&format!("{:#x}", at(5)), 2)), 0, "beyond the end");
    assert_eq!(first(&alloc("0", i64::from(PAGES) + 1)), 0);
    assert_eq!(first(&alloc("0", 0)), 0);
    assert_eq!(first(&alloc("0", (1 << 32) + 1)), at(0), "the number has 32 bits");
    assert_eq!(first(&(alloc("0", 6) + &alloc("0", 1))), 0, "exhausted");
    let used = format!(
        "{}r6 = r0\nr1 = addr_space_cast(r6, 0x0, 0x1)\n*(u64 *)(r1 + 8) = 77\nr7 = *(u64 *)(r1 + 8)\n{}\
         r1 = addr_space_cast(r6, 0x0, 0x1)\nr0 = *(u64 *)(r1 + 8)\nr7 <<= 8\nr7 |= r0\n*(u64 *)(r1 + 8) = 5\n{}\
         r1 = addr_space_cast(r0, 0x0, 0x1)\nr2 = *(u64 *)(r1 + 8)\nr7 |= r2\nr0 ^= r6\nr0 |= r7\n",
        alloc("0", 1),
        free("r6", 1),
        alloc("0", 1)
    );
    assert_eq!(first(&used), 77 << 8, "zero after the free, the same page again, and zero");
}

#[test]
fn variables_addresses_are_the_hosts() {
    let text = "r0 = map_value[0]+24 ll\nr1 = addr_space_cast(r0, 0x0, 0x1)\n*(u32 *)(r1 + 0) = 9\nexit";
    for way in WAYS {
        let (program, map) = load_with(def(PAGES, START), text);
        let arena = map.arena().unwrap();
        arena.allocate(Some(START), 1).unwrap();
        assert_eq!(run(&program, way), START + 24, "{way:?}");
        let mut bytes = [0; 4];
        arena.read(START + 24, &mut bytes).unwrap();
        assert_eq!(bytes, 9u32.to_ne_bytes());
    }
}

/// What a window holds.
#[derive(Clone, Default)]
struct Model(BTreeMap<i64, [u8; 4096]>);

impl Model {
    fn load(&self, at: i64, bytes: i64) -> u64 {
        (0..bytes).rev().fold(0, |value, i| {
            let (page, offset) = ((at + i).div_euclid(4096), (at + i).rem_euclid(4096));
            value << 8 | u64::from(self.0.get(&page).map_or(0, |page| page[offset as usize]))
        })
    }

    fn is_there(&self, at: i64, bytes: i64) -> bool {
        [at, at + bytes - 1].iter().all(|at| self.0.contains_key(&at.div_euclid(4096)))
    }

    fn store(&mut self, at: i64, bytes: i64, value: u64) {
        let there = self.is_there(at, bytes);
        for i in (0..bytes).filter(|_| there) {
            let page = self.0.get_mut(&(at + i).div_euclid(4096)).unwrap();
            page[(at + i).rem_euclid(4096) as usize] = (value >> (8 * i)) as u8;
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Random accesses through one base as text, and what they do to the model and the registers `r0` to `r8`. The base is
/// cast and then moved as compilers do it, which the compiler fuses for other memory.
fn accesses(random: &mut Random, text: &mut String, model: &mut Model, regs: &mut [u64; 9]) {
    let base = random.below(9) as usize;
    let [other, third] = [1, 2].map(|step| (base + step + random.below(3) as usize * 2) % 9);
    let edges = [0, 0, 1, 2, 2, 4, 5, 6].map(|page| 0x5000_0000 + page * 4096);
    let edge = random.one_of(&[&edges[..], &[0, WINDOW - 1]].concat());
    let near = edge + random.below(24) as i64 - 12;
    let offset = random.one_of(&[0, 0, 8, -8, 1, -1, 3, 5, 7, 16, 4096, 32767, -32768, 300]);
    let (moved, how) = match random.below(6) {
        0 => {
            let imm = i64::from(random.below(1 << 32) as i32);
            (imm.cast_unsigned(), format!("r{base} += {imm}"))
        }
        1 => (regs[other], format!("r{base} += r{other}")),
        2 => {
            regs[third] = regs[other] << 3;
            (regs[third], format!("r{third} = r{other}\nr{third} <<= 3\nr{base} += r{third}"))
        }
        3 => (16, format!("r{other} = r{base}\nr{base} = r{other}\nr{base} += 16")),
        _ => (0, String::new()),
    };
    let start = u64::from((near - offset).cast_unsigned().wrapping_sub(moved) as u32);
    let garbage = random.below(1 << 32) << 32;
    writeln!(
        text,
        "r{base} = {:#x} ll\nr{base} = addr_space_cast(r{base}, 0x0, 0x1)\n{how}",
        garbage | start
    )
    .unwrap();
    if how.starts_with(&format!("r{other} = r{base}")) {
        regs[other] = start;
    }
    regs[base] = start.wrapping_add(moved);
    let mut place = (base, offset);
    for _ in 0..1 + random.below(3) {
        let Some(bytes) = access(random, text, model, regs, place) else { return };
        place.1 = (place.1 + random.one_of(&[bytes, -bytes, 1])).clamp(-32768, 32767);
    }
}

/// One access through that base. Returns how many bytes it takes, unless it may have changed the base.
fn access(
    random: &mut Random,
    text: &mut String,
    model: &mut Model,
    regs: &mut [u64; 9],
    (base, offset): (usize, i64),
) -> Option<i64> {
    let at = i64::from(regs[base] as u32) + offset;
    let (size, bits) = random.one_of(&[("u8", 8), ("u16", 16), ("u32", 32), ("u64", 64)]);
    let bytes = bits / 8;
    let aligned = at.rem_euclid(bytes) == 0;
    let reg = (base + 1 + random.below(8) as usize) % 9;
    let place = format!("({size} *)(r{base} {offset:+})");
    match random.below(9) {
        0 | 1 => {
            writeln!(text, "r{reg} = *{place}").unwrap();
            regs[reg] = model.load(at, bytes);
        }
        2 if bits < 64 => {
            writeln!(text, "r{reg} = *(s{bits} *)(r{base} {offset:+})").unwrap();
            regs[reg] = ((model.load(at, bytes) << (64 - bits)).cast_signed() >> (64 - bits)).cast_unsigned();
        }
        3 | 2 => {
            writeln!(text, "*{place} = r{reg}").unwrap();
            model.store(at, bytes, regs[reg]);
        }
        4 => {
            let imm = random.below(1 << 32) as i32;
            writeln!(text, "*{place} = {imm}").unwrap();
            model.store(at, bytes, i64::from(imm).cast_unsigned());
        }
        5 => {
            writeln!(text, "r{reg} = load_acquire({place})").unwrap();
            regs[reg] = if aligned { model.load(at, bytes) } else { 0 };
        }
        6 => {
            writeln!(text, "store_release({place}, r{reg})").unwrap();
            if aligned {
                model.store(at, bytes, regs[reg]);
            }
        }
        _ => {
            let (size, bits) = random.one_of(&[("u32", 32), ("u64", 64)]);
            let (bytes, mask) = (bits / 8, u64::MAX >> (64 - bits));
            let there = at.rem_euclid(bytes) == 0 && model.is_there(at, bytes);
            let old = if there { model.load(at, bytes) } else { 0 };
            let place = format!("(r{base} {offset:+}");
            let operand = regs[reg];
            let kind = random.below(7);
            let new = match kind {
                0 | 1 => old.wrapping_add(operand),
                2 => old & operand,
                3 => old | operand,
                4 => old ^ operand,
                5 => operand,
                _ if old == regs[0] & mask => operand,
                _ => old,
            };
            let value = format!("{}{reg}", if bits == 32 { 'w' } else { 'r' });
            let name = ["", "add", "and", "or", "xor"];
            match kind {
                0 => writeln!(text, "lock *({size} *){place}) += r{reg}").unwrap(),
                1..5 => {
                    writeln!(
                        text,
                        "{value} = atomic_fetch_{}(({size} *){place}), {value})",
                        name[kind as usize]
                    )
                    .unwrap();
                    regs[reg] = old;
                }
                5 => {
                    let name = if bits == 32 { "xchg32_32" } else { "xchg_64" };
                    writeln!(text, "{value} = {name}{place}, {value})").unwrap();
                    regs[reg] = old;
                }
                _ => {
                    let (name, r) = if bits == 32 { ("cmpxchg32_32", 'w') } else { ("cmpxchg_64", 'r') };
                    writeln!(text, "{r}0 = {name}{place}, {r}0, {r}{reg})").unwrap();
                    regs[0] = old;
                }
            }
            if there {
                model.store(at, bytes, new & mask);
            }
        }
    }
    (base != 0).then_some(bytes)
}

/// Pages 0, 1, 3 and 5 are there at first.
fn fill(arena: Arena<'_>) -> Model {
    let mut model = Model::default();
    for page in [0, 1, 3, 5] {
        let bytes: [u8; 4096] = std::array::from_fn(|at| (at as u64 * 7 + page * 31) as u8);
        arena.write(START + page * Arena::PAGE, &bytes).unwrap();
        model.0.insert((START + page * Arena::PAGE) as u32 as i64 / 4096, bytes);
    }
    model
}

#[test]
fn an_arena_that_a_client_has_mapped_across_a_multiple_of_4_gib_is_one_piece() {
    let runtime = Runtime::builder().share_maps(true).build().unwrap();
    let start = (9 << 32) - 2 * 4096;
    let cast = |value: u64, way: Way| {
        let alone = Object::from_sources(Vec::new(), [def(4, 0)], None);
        let map = Arc::clone(&runtime.load(&alone).unwrap().maps()[0]);
        assert_eq!(map.arena().unwrap().known_start(), None);
        assert!(map.arena().unwrap().set_start(start));
        let text = format!("{NAMED}r3 = {value:#x} ll\nr1 = addr_space_cast(r3, 0x1, 0x0)\nr0 = r1\nexit");
        let bytes = skep_isa::encode_bytes(&skep_isa::assemble(&text).unwrap()).unwrap();
        let object = Object::from_bytecode_and_maps("main", &RAW, &bytes, vec![def(4, 0)]).unwrap();
        let module = runtime.linker(&object).map("heap", map).load().unwrap();
        run(&module.programs()[0], way)
    };
    for way in WAYS {
        assert_eq!(cast(0xffff_e008, way), start + 8, "{way:?}");
        assert_eq!(cast(0x12_ffff_fff8, way), (9 << 32) - 8, "{way:?}");
        assert_eq!(cast(0x1010, way), (9 << 32) + 0x1010, "{way:?}");
        assert_eq!(cast(5 << 32, way), 0, "{way:?}");
    }
}

#[test]
fn random_accesses_are_those_of_the_model() {
    let first: u64 = std::env::var("SKEP_SEED").map_or(1, |seed| seed.parse().unwrap());
    let cases = std::env::var("SKEP_CASES").map_or(fewer_if_emulated(600), |cases| cases.parse().unwrap());
    for seed in first..first + cases as u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (_, map) = load_with(def(PAGES, START), &format!("{NAMED}r0 = 0\nexit"));
        let mut model = fill(map.arena().unwrap());
        let mut regs = std::array::from_fn(|reg| 0x0101_0101_0101_0101 * reg as u64);
        let mut text = String::from("r9 = r1\n*(u64 *)(r10 - 8) = r9\nr9 = map[0] ll\n");
        (0..9).for_each(|reg| writeln!(text, "r{reg} = {:#x} ll", regs[reg]).unwrap());
        for _ in 0..1 + random.below(8) {
            accesses(&mut random, &mut text, &mut model, &mut regs);
        }
        // Some registers are dead, so that shorter forms are used.
        let kept: Vec<usize> = (0..9).filter(|_| random.below(2) == 0).collect();
        text += "r9 = *(u64 *)(r10 - 8)\n";
        kept.iter().for_each(|reg| writeln!(text, "*(u64 *)(r9 + {}) = r{reg}", 8 * reg).unwrap());
        text += "r0 = 0\nexit\n";
        for way in WAYS {
            let insns = skep_isa::assemble(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let bytes = skep_isa::encode_bytes(&insns).unwrap();
            let object =
                Object::from_bytecode_and_maps("main", &RAW, &bytes, vec![def(PAGES, START)]).unwrap();
            let module = Runtime::new().unwrap().linker(&object).buffer_len(72).load();
            let module = module.unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
            let arena = module.maps()[0].arena().unwrap();
            fill(arena);
            let mut buffer = [0; 72];
            run_on(&module.programs()[0], way, &mut buffer);
            for &reg in &kept {
                let found = u64::from_ne_bytes(buffer[8 * reg..8 * reg + 8].try_into().unwrap());
                assert_eq!(found, regs[reg], "r{reg}, {way:?}, seed {seed}\n{text}");
            }
            let mut found = vec![0; PAGES as usize * 4096];
            arena.read(START, &mut found).unwrap();
            for (page, bytes) in (0x5_0000..).zip(found.chunks(4096)) {
                let expected = model.0.get(&page).copied().unwrap_or([0; 4096]);
                assert!(bytes == expected, "page {page:#x}, {way:?}, seed {seed}\n{text}");
            }
        }
    }
}

#[test]
fn the_table_reaches_as_far_as_accesses_do() {
    let pages = (ArenaLink::GUARD / u64::from(ArenaLink::PAGE)) as i64;
    assert!(pages * 4096 > 32768 + 8);
}

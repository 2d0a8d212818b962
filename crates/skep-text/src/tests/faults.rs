//! Every system call of every operation fails in turn: the error names the call, nothing is lost, and the arena
//! works.

use rustix::io::Errno;

use super::*;
use crate::error::SystemCall;
use crate::sys::inject;
use crate::{CHUNK_BYTES, Draft, Occupancy, SpanState, arch};

/// Calls whose failure an operation may overcome, whatever the error.
const TOLERABLE: [SystemCall; 3] =
    [SystemCall::AdvisePages, SystemCall::SealMapping, SystemCall::ReturnMemory];

const ERRNOS: [Errno; 3] = [Errno::NOMEM, Errno::PERM, Errno::INVAL];

/// The resources of a process that an arena could leak.
#[derive(Debug, PartialEq)]
struct Belongings {
    mappings: Vec<String>,
    descriptors: usize,
}

impl Belongings {
    fn now() -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        // The allocator's own mappings come and go with strings and vectors; those of code have a name, are executable,
        // or are inaccessible and at least as long as a pack.
        let ours = |line: &&str| {
            let mut words = line.split_whitespace();
            let (range, permissions) = (words.next().unwrap(), words.next().unwrap());
            let (start, end) = range.split_once('-').unwrap();
            let number = |digits| usize::from_str_radix(digits, 16).unwrap();
            // While another thread makes one, only its start is where it will be.
            let arena_of_malloc =
                number(end).is_multiple_of(64 << 20) || number(start).is_multiple_of(64 << 20);
            let reserved =
                permissions == "---p" && number(end) - number(start) >= PACK_BYTES && !arena_of_malloc;
            line.contains("skep-text") || permissions.contains('x') || reserved
        };
        let mappings = maps.lines().filter(ours).map(str::to_owned).collect();
        Self { mappings, descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count() }
    }

    /// Without inaccessible addresses: if `munmap` fails, their memory is all that can be released.
    fn without_addresses(mut self) -> Self {
        self.mappings.retain(|mapping| !mapping.contains("---p"));
        self
    }
}

fn call_of(error: &Error) -> Option<SystemCall> {
    match error {
        Error::System { call, .. } => Some(*call),
        Error::NoBacking { refused } => refused.iter().find_map(|(_, error)| call_of(error)),
        _ => None,
    }
}

/// The values that must be equal before and after, whatever memory is kept in reserve.
fn settled(arena: &Arena) -> Occupancy {
    arena.flush().unwrap();
    let mut occupancy = arena.occupancy();
    assert_eq!((occupancy.waiting_bytes, occupancy.chunks_waiting), (0, 0));
    (occupancy.packs, occupancy.empty_packs, occupancy.mapped_bytes) = (0, 0, 0);
    (occupancy.chunks_free, occupancy.largest_free_run) = (0, 0);
    (occupancy.huge_packs, occupancy.huge_bytes, occupancy.huge_refused) = (0, None, None);
    occupancy
}

/// The bookkeeping agrees with the kernel, and free memory is traps.
fn check(arena: &Arena, when: &str) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut accessible = 0;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (start, end) = words.next().unwrap().split_once('-').unwrap();
        let permissions = words.next().unwrap();
        assert!(!(permissions.contains('w') && permissions.contains('x')), "{when}: {line}");
        let number = |digits| usize::from_str_radix(digits, 16).unwrap();
        if arena.range().contains(&number(start)) && permissions.contains('x') {
            accessible += number(end) - number(start);
        }
    }
    assert_eq!(accessible, arena.occupancy().mapped_bytes, "{when}");
    for span in arena.map() {
        if matches!(span.state, SpanState::Free | SpanState::Draft) {
            let bytes = peek(span.address, span.len);
            let traps = bytes.chunks(arch::TRAP.len()).all(|bytes| bytes == arch::TRAP);
            assert!(traps, "{when}: {span:x?} is not traps");
        }
    }
}

/// All operations of an arena, in short.
fn check_that_it_works(arena: &Arena, when: &str) {
    let before = settled(arena);
    let sizes = [40, 4000, 300_000, PACK_BYTES, PACK_BYTES + 1];
    let texts: Vec<Text> = sizes
        .iter()
        .zip(0..)
        .map(|(&len, value)| place(arena, value, len).unwrap_or_else(|error| panic!("{when}: {error}")))
        .collect();
    assert!(texts.iter().zip(0..).all(|(text, value)| call(text) == value), "{when}");
    poke(arena, &texts[0], 77).unwrap_or_else(|error| panic!("{when}: {error}"));
    assert_eq!(call(&texts[0]), 77, "{when}");
    drop(texts);
    assert_eq!(settled(arena), before, "{when}");
    check(arena, when);
}

fn poke(arena: &Arena, text: &Text, value: u32) -> Result<(), Error> {
    let mut pokes = arena.pokes()?;
    // SAFETY: the instructions that differ, one at most, are in one word.
    unsafe { pokes.copy(text, 0, &returns(value)) }?;
    pokes.finish()
}

/// The input of an operation, made before calls fail.
#[derive(Default)]
struct Setup {
    texts: Vec<Text>,
    drafts: Vec<Draft>,
}

/// All operations; fewer under an emulator, where all of them take minutes.
fn errnos() -> &'static [Errno] {
    if is_emulated() { &ERRNOS[..1] } else { &ERRNOS }
}

struct Operation {
    name: &'static str,
    prepare: fn(&Arena) -> Setup,
    /// Everything that it made and that remains is in the setup.
    run: fn(&Arena, &mut Setup) -> Result<(), Error>,
}

fn nothing(_: &Arena) -> Setup {
    Setup::default()
}

fn full_pack(arena: &Arena) -> Setup {
    Setup { texts: vec![place(arena, 1, PACK_BYTES).unwrap()], ..Setup::default() }
}

fn drafts(arena: &Arena) -> Setup {
    let draft = |(len, value): (usize, u32)| {
        let mut draft = arena.draft(len).unwrap();
        let code = returns(value);
        draft.bytes_mut()[..code.len()].copy_from_slice(&code);
        draft
    };
    let sizes = [(17, 0), (20_001, 1), (33, 2), (PACK_BYTES + 777, 3)];
    Setup { drafts: sizes.map(draft).into(), ..Setup::default() }
}

fn much(arena: &Arena) -> Setup {
    let sizes = [50, 400_000, PACK_BYTES, 33, 2 * PACK_BYTES + 1, PACK_BYTES];
    Setup { texts: sizes.map(|len| place(arena, 5, len).unwrap()).into(), ..Setup::default() }
}

const OPERATIONS: [Operation; 11] = [
    Operation {
        name: "a draft that grows a pack",
        prepare: nothing,
        run: |arena, setup| arena.draft(300_000).map(|draft| setup.drafts.push(draft)),
    },
    Operation {
        name: "a draft that adds a pack",
        prepare: full_pack,
        run: |arena, setup| arena.draft(1000).map(|draft| setup.drafts.push(draft)),
    },
    Operation {
        name: "a long draft",
        prepare: full_pack,
        run: |arena, setup| arena.draft(2 * PACK_BYTES + 5000).map(|draft| setup.drafts.push(draft)),
    },
    Operation {
        name: "a text from draft to drop",
        prepare: nothing,
        run: |arena, _| place(arena, 9, 333).map(drop),
    },
    Operation {
        name: "a long text from draft to drop",
        prepare: nothing,
        run: |arena, _| place(arena, 9, 2 * PACK_BYTES).map(drop),
    },
    Operation {
        name: "cutting and finalizing",
        prepare: drafts,
        run: |_, setup| {
            let mut draft = setup.drafts.remove(1);
            draft.truncate(16_001)?;
            setup.texts.push(draft.finalize()?);
            Ok(())
        },
    },
    Operation {
        name: "finalizing several",
        prepare: drafts,
        run: |_, setup| {
            setup.texts = Draft::finalize_all(setup.drafts.drain(..))?;
            Ok(())
        },
    },
    Operation {
        name: "a stub",
        prepare: full_pack,
        run: |arena, setup| {
            let target = setup.texts[0].address();
            setup.texts.push(arena.stub(&[], &[target])?);
            Ok(())
        },
    },
    Operation {
        name: "a poke",
        prepare: |arena| Setup { texts: vec![place(arena, 1, 100).unwrap()], ..Setup::default() },
        run: |arena, setup| poke(arena, &setup.texts[0], 2),
    },
    Operation { name: "promotion", prepare: much, run: |arena, _| arena.promote().map(drop) },
    Operation {
        name: "dropping and flushing",
        prepare: much,
        run: |arena, setup| {
            setup.texts.clear();
            arena.flush()
        },
    },
];

/// Which calls to fail, for an operation that makes these calls; and one number past the end. Of a pack's many
/// writes of traps, the first two, one in the middle and the last.
fn worth_failing(made: &[SystemCall]) -> Vec<usize> {
    let mut worth = Vec::new();
    let mut first = 0;
    for run in made.chunk_by(|one, other| one == other) {
        let last = first + run.len() - 1;
        let mut some = vec![first, (first + 1).min(last), usize::midpoint(first, last), last];
        some.dedup();
        worth.extend(some);
        first = last + 1;
    }
    worth.push(made.len());
    worth
}

/// Runs the operation once with its first call failing, once with its second, and so on; returns the number of
/// calls.
fn each_call(config: &dyn Fn() -> Config, operation: &Operation, errno: Errno) -> usize {
    let arena = Arena::new(config()).unwrap();
    let mut setup = (operation.prepare)(&arena);
    let plan = inject::record();
    (operation.run)(&arena, &mut setup).unwrap();
    let made = plan.made();
    drop(plan);
    let packs = arena.occupancy().packs;
    drop((setup, arena));
    for nth in worth_failing(&made) {
        let before = Belongings::now();
        let arena = Arena::new(config()).unwrap();
        let empty = settled(&arena);
        let mut setup = (operation.prepare)(&arena);
        let values: Vec<u32> = setup.texts.iter().map(call).collect();
        let plan = inject::fail_nth(nth, errno);
        let result = (operation.run)(&arena, &mut setup);
        let failed = plan.failed();
        drop(plan);
        let when =
            format!("{}, {}, call {nth}, {failed:?} {errno}", arena.occupancy().backing, operation.name);

        match (&result, failed) {
            (Ok(()), None) => {}
            (Err(error), None) => panic!("{when}: {error}"),
            (Err(error), Some(call)) => {
                // Missing room because a neighbour could not be returned is a consequence, not the cause.
                let room = matches!(error, Error::Limit { .. } | Error::RangeFull { .. });
                assert!(call_of(error) == Some(call) || room, "{when}: {error}");
                assert!(!error.to_string().is_empty());
            }
            (Ok(()), Some(call)) => {
                let detour = TOLERABLE.contains(&call)
                    || errno == Errno::INVAL && matches!(call, SystemCall::CreateFile | SystemCall::AllocateFile)
                    || errno == Errno::PERM && call == SystemCall::MakeExecutable
                    // The kernel is asked again for a huge page if it may only have been busy.
                    || errno != Errno::INVAL && matches!(call, SystemCall::Collapse | SystemCall::CheckHuge)
                    // Filling a freed place with traps is retried until it works.
                    || call == SystemCall::WriteCode && operation.name.contains("drop");
                assert!(detour, "{when}: nobody was told");
            }
        }
        if result.is_err() && operation.name == "finalizing several" {
            assert!(setup.texts.is_empty() && setup.drafts.is_empty());
            assert_eq!(settled(&arena), empty, "{when}: not all or nothing");
        }
        for (text, value) in setup.texts.iter().zip(&values) {
            let poked = operation.name == "a poke" && call(text) == 2;
            assert!(call(text) == *value || poked, "{when}: other code was disturbed");
        }
        arena.flush().unwrap();
        check(&arena, &when);
        if result.is_err() && operation.name.contains("draft that") {
            // The second time it finds the same room.
            (operation.run)(&arena, &mut setup).unwrap_or_else(|error| panic!("{when}: {error}"));
            assert_eq!(arena.occupancy().packs, packs, "{when}: room was lost");
        }
        drop(setup);
        assert_eq!(settled(&arena), empty, "{when}: something was lost");
        check_that_it_works(&arena, &when);
        drop(arena);
        let after = Belongings::now();
        if failed == Some(SystemCall::ReturnMemory) {
            assert_eq!(after.without_addresses(), before.without_addresses(), "{when}");
        } else {
            assert_eq!(after, before, "{when}");
        }
        assert_eq!(failed, made.get(nth).copied(), "{when}: the calls were others the first time");
    }
    made.len()
}

#[test]
fn any_failure_to_make_an_arena_is_named_and_leaks_nothing() {
    alone(|| {
        for backing in BACKINGS.map(Some).into_iter().chain([None]) {
            let config = || Config { backing, ..keeperless(Backing::Memfd) };
            drop(Arena::new(config()).unwrap());
            let before = Belongings::now();
            for errno in ERRNOS {
                let mut calls = 0;
                loop {
                    let plan = inject::fail_nth(calls, errno);
                    let result = Arena::new(config());
                    let failed = plan.failed();
                    drop(plan);
                    let when = format!("{backing:?}, call {calls}, {failed:?} {errno}");
                    let Some(call) = failed else {
                        check_that_it_works(&result.unwrap(), &when);
                        break;
                    };
                    match result {
                        Err(error) => assert_eq!(call_of(&error), Some(call), "{when}: {error}"),
                        Ok(arena) => check_that_it_works(&arena, &when),
                    }
                    assert_eq!(Belongings::now(), before, "{when}");
                    calls += 1;
                }
                assert!(calls > 3, "{backing:?}: {calls}");
            }
        }
    });
}

#[test]
fn any_failing_call_loses_nothing_and_the_arena_works() {
    alone(|| {
        for backing in BACKINGS {
            let config = || keeperless(backing);
            drop(Arena::new(config()).unwrap());
            let huge = packs_can_be_huge("whatever call of a promotion fails");
            let operations = OPERATIONS.iter().filter(|operation| huge || operation.name != "promotion");
            for operation in operations {
                for &errno in errnos() {
                    let calls = each_call(&config, operation, errno);
                    // Through an alias, code is written without any call.
                    let none = backing == Backing::Memfd
                        && matches!(
                            operation.name,
                            "a text from draft to drop" | "cutting and finalizing" | "finalizing several"
                        );
                    assert!(calls > 0 || none, "{backing}: {} makes no calls", operation.name);
                }
            }
        }
    });
}

#[test]
fn a_call_that_fails_every_time_loses_nothing() {
    alone(|| {
        let whole_life = |arena: &Arena, refused: &mut usize| {
            for operation in &OPERATIONS {
                let mut setup = Setup::default();
                let lens = [50, 20_000, PACK_BYTES, PACK_BYTES + 777];
                // Under an emulator the long operations take minutes; there only one runs.
                let few = is_emulated() && operation.name != OPERATIONS[0].name;
                for &len in if few { &lens[..2] } else { &lens } {
                    match place(arena, 1, len) {
                        Ok(text) => setup.texts.push(text),
                        Err(_) => *refused += 1,
                    }
                    setup.drafts.extend(arena.draft(len));
                }
                if setup.texts.is_empty() || setup.drafts.len() < 2 {
                    continue;
                }
                *refused += usize::from((operation.run)(arena, &mut setup).is_err());
                if matches!(operation.name, "a poke" | "promotion") {
                    assert!(setup.texts.iter().all(|text| matches!(call(text), 1 | 2)));
                }
            }
        };
        for backing in BACKINGS {
            let config = || keeperless(backing).reserve(32 * PACK_BYTES);
            let arena = Arena::new(config()).unwrap();
            let plan = inject::record();
            whole_life(&arena, &mut 0);
            let mut made = plan.made();
            drop((plan, arena));
            made.sort_by_key(|call| *call as usize);
            made.dedup();
            assert!(made.len() >= 6, "{backing}: {made:?}");
            let before = Belongings::now().without_addresses();
            for call in made {
                for &errno in errnos() {
                    let when = format!("{backing}, every {call:?} {errno}");
                    let arena = Arena::new(config()).unwrap();
                    let empty = settled(&arena);
                    let mut refused = 0;
                    let plan = inject::fail_every(call, errno);
                    whole_life(&arena, &mut refused);
                    assert_eq!(plan.failed(), Some(call), "{when}");
                    drop(plan);
                    assert_eq!(settled(&arena), empty, "{when}");
                    check_that_it_works(&arena, &when);
                    let after = arena.occupancy();
                    assert_eq!(after.chunks_used * CHUNK_BYTES + after.own_mappings, 0, "{when}");
                    drop(arena);
                    assert_eq!(Belongings::now().without_addresses(), before, "{when}");
                }
            }
        }
    });
}

//! Probes: loads that yield 0 if they fault; and the host's view of the handler behind them. Tests that change the
//! process's signals run in children.

mod common;

use std::ffi::c_void;
use std::mem::{transmute, zeroed};
use std::os::unix::process::ExitStatusExt;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;

use common::*;
use libc::{SIGBUS, SIGSEGV, SIGUSR1, SIGUSR2, c_int, siginfo_t};
use skep_text::{Arena, BadProbe, Config, Error, Probe, Text};

/// Not canonical on x86-64 with any number of levels; mapped nowhere on aarch64.
const NOT_CANONICAL: usize = 0x4000_0000_0000_0000;

fn arena() -> Arena {
    Arena::new(Config::new()).unwrap()
}

fn try_load(arena: &Arena, code: &Code) -> Result<Text, Error> {
    let mut draft = arena.draft(code.bytes.len())?;
    draft.bytes_mut().copy_from_slice(&code.bytes);
    for &Load { at, resume, register } in &code.probes {
        draft.probe(Probe { at, resume, register })?;
    }
    draft.finalize()
}

fn load(arena: &Arena, code: &Code) -> Text {
    try_load(arena, code).unwrap()
}

/// Calls a text that takes up to two addresses.
fn run(text: &Text, first: usize, second: usize) -> u64 {
    // SAFETY: the tests' own code, which keeps the calling convention.
    let function = unsafe { transmute::<*const u8, extern "C" fn(usize, usize) -> u64>(text.as_ptr()) };
    function(first, second)
}

fn read<T>(text: &Text, place: *const T) -> u64 {
    run(text, place.addr(), 0)
}

fn action(signal: c_int) -> libc::sigaction {
    // SAFETY: zeros are a valid action, and a null one only asks.
    unsafe {
        let mut action = zeroed();
        assert_eq!(libc::sigaction(signal, null(), &mut action), 0);
        action
    }
}

/// Installs an action and returns the one before.
fn install(signal: c_int, handler: usize, flags: c_int, blocked: &[c_int]) -> libc::sigaction {
    // SAFETY: valid actions.
    unsafe {
        let (mut new, mut old): (libc::sigaction, libc::sigaction) = (zeroed(), zeroed());
        new.sa_sigaction = handler;
        new.sa_flags = flags;
        for &signal in blocked {
            libc::sigaddset(&mut new.sa_mask, signal);
        }
        assert_eq!(libc::sigaction(signal, &new, &mut old), 0);
        old
    }
}

fn exit(code: c_int) -> ! {
    // SAFETY: always.
    unsafe { libc::_exit(code) }
}

fn raise(signal: c_int) {
    // SAFETY: always; to this thread.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

/// Sends a signal to this thread with the code of kill(2). kill(2) itself may choose any thread of the process, and
/// under an emulator one of the emulator's own, which dies of it.
fn send_as_kill_does(signal: c_int) {
    // SAFETY: zeros are a valid siginfo_t; the kernel lets a process make one up for itself.
    unsafe {
        let mut info: siginfo_t = zeroed();
        (info.si_signo, info.si_code) = (signal, libc::SI_USER);
        let (process, thread) = (libc::getpid(), libc::gettid());
        assert_eq!(libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, &raw const info), 0);
    }
}

/// Runs this test in a child. Returns `None` in the child, which runs the code under test.
fn child() -> Option<std::process::ExitStatus> {
    if is_child() {
        dump_no_core();
        return None;
    }
    Some(run_as_child())
}

/// The exit status of every child that must survive.
const SURVIVED: c_int = 17;
/// The exit status from a host's handler.
const HANDLED: c_int = 42;

static CALLS: AtomicU32 = AtomicU32::new(0);
static LATER_CALLS: AtomicU32 = AtomicU32::new(0);
static BELOW: AtomicUsize = AtomicUsize::new(0);
static EXPECTED_ADDRESS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn counts(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
}

/// Ends the process, successfully if all the kernel's signal information has arrived.
extern "C" fn ends(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: from the kernel, by way of the handler under test.
    let (address, number) = unsafe { ((*info).si_addr().addr(), (*info).si_signo) };
    let good = signal == SIGSEGV
        && number == signal
        && address == EXPECTED_ADDRESS.load(Ordering::SeqCst)
        && !context.is_null();
    exit(if good { HANDLED } else { 1 });
}

/// A handler with one argument.
extern "C" fn plain_ends(signal: c_int) {
    exit(if signal == SIGSEGV { HANDLED } else { 1 });
}

/// A handler that chains to the handler that it replaced.
extern "C" fn passes_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    LATER_CALLS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: stored by the test: a handler with three arguments.
    let below = unsafe {
        transmute::<usize, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)>(BELOW.load(Ordering::SeqCst))
    };
    below(signal, info, context);
}

#[test]
fn a_probe_of_good_memory_gives_the_value() {
    let text = load(&arena(), &reads());
    assert_eq!(read(&text, &0x1234_5678_9abc_def0_u64), 0x1234_5678_9abc_def0);
}

#[test]
fn a_probe_of_bad_memory_gives_0_and_resumes() {
    let text = load(&arena(), &reads());
    // SAFETY: new mappings, used only here; a file of one byte.
    let (closed, file) = unsafe {
        let closed =
            libc::mmap(null_mut(), 4096, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        let fd = libc::memfd_create(c"short".as_ptr(), libc::MFD_CLOEXEC);
        assert_eq!(libc::ftruncate(fd, 1), 0);
        (closed, libc::mmap(null_mut(), 1 << 17, libc::PROT_READ, libc::MAP_SHARED, fd, 0))
    };
    assert!(closed != libc::MAP_FAILED && file != libc::MAP_FAILED);
    let bad = [
        ("null", 0),
        ("the last word", usize::MAX - 7),
        ("no access", closed.addr()),
        ("not canonical", NOT_CANONICAL),
        ("past the end of a file", file.addr() + (1 << 16)),
        ("the kernel's", 0xffff_ffff_8100_0000),
    ];
    for round in 0..100 {
        for (what, address) in bad {
            assert_eq!(run(&text, address, 0), 0, "{what}, round {round}");
        }
    }
    assert_eq!(read(&text, file.cast::<u8>()), 0, "which is in the file");
    assert_eq!(read(&text, &7_u64), 7);
}

#[test]
fn a_probe_through_the_frame_pointer_works() {
    let text = load(&arena(), &reads_by_frame_pointer());
    assert_eq!((read(&text, &5_u64), run(&text, 0, 0), run(&text, NOT_CANONICAL, 0)), (5, 0, 0));
}

#[test]
fn a_misaligned_probe_under_alignment_checks_gives_0() {
    let text = load(&arena(), &reads_aligned());
    #[repr(align(64))]
    struct Line([u64; 8]);

    // Across a multiple of 16 bytes: within one, some CPUs see to it that it is one access nevertheless.
    let memory = Line([!0; 8]);
    let at = memory.0.as_ptr().addr();
    assert_eq!((run(&text, at, 0), run(&text, at + 9, 0)), (!0, 0));
}

#[test]
fn a_fault_zeroes_its_register_only_and_keeps_flags() {
    for &target in DUMPED {
        let text = load(&arena(), &dumps_registers(target));
        for (address, expected) in [(&7_u64 as *const u64, 7), (null(), 0)] {
            let mut found = [0_u64; 17];
            run(&text, address.addr(), found.as_mut_ptr().expose_provenance());
            for &number in DUMPED {
                let value = if number == target { expected } else { u64::from(number) + 100 };
                assert_eq!(found[usize::from(number)], value, "register {number} at a probe into {target}");
            }
            assert_eq!(found[16] & FLAGS, FLAGS, "flags at a probe into {target}");
        }
    }
}

#[test]
fn a_probe_without_a_register_resumes_anywhere_in_its_text() {
    let text = load(&arena(), &tells_whether_it_can_read());
    assert_eq!((read(&text, &1_u64), run(&text, 0, 0)), (1, 2));
}

#[test]
fn probes_are_found_in_every_chunk_of_any_text() {
    let arena = arena();
    let one = reads();
    for functions in [1, 2, 16, 17, 1000, 600_000] {
        // All functions are equal; the last ones' probes are many chunks further, or in another pack.
        let size = one.bytes.len();
        let mut draft = arena.draft(functions * size).unwrap();
        draft.bytes_mut().copy_from_slice(&one.bytes.repeat(functions));
        let Load { resume, register, .. } = one.probes[0];
        for at in (0..functions).rev().map(|number| number * size) {
            draft.probe(Probe { at, resume: at + resume, register }).unwrap();
        }
        let text = draft.finalize().unwrap();
        for number in [0, functions / 3, functions / 2, functions - 1] {
            let start = std::ptr::with_exposed_provenance::<u8>(text.address() + number * size);
            // SAFETY: one of the functions.
            let function = unsafe { transmute::<*const u8, extern "C" fn(usize) -> u64>(start) };
            assert_eq!(function(0), 0, "function {number} of {functions}");
        }
    }
}

#[test]
fn invalid_probes_are_refused_and_leak_nothing() {
    let arena = arena();
    let mut draft = arena.draft(64).unwrap();
    let mut reason = |at, resume, register| match draft.probe(Probe { at, resume, register }) {
        Err(Error::Probe { reason, .. }) => Some(reason),
        Err(other) => panic!("{other}"),
        Ok(()) => None,
    };
    assert_eq!(reason(64, 0, None), Some(BadProbe::Outside { len: 64 }));
    assert_eq!(reason(0, 64, None), Some(BadProbe::ResumesOutside { resume: 64, len: 64 }));
    assert_eq!(reason(0, 4, Some(STACK_POINTER)), Some(BadProbe::Register { register: STACK_POINTER }));
    assert_eq!(reason(32, 36, Some(0)), None);
    assert_eq!(reason(32, 40, Some(0)), None, "only finalize sees them all");
    let error = draft.finalize().unwrap_err();
    assert!(matches!(error, Error::Probe { at: 32, reason: BadProbe::Twice }), "{error}");

    let mut draft = arena.draft(640).unwrap();
    draft.probe(Probe { at: 320, resume: 324, register: None }).unwrap();
    draft.truncate(64).unwrap();
    let error = draft.finalize().unwrap_err();
    assert!(matches!(error, Error::Probe { at: 320, reason: BadProbe::Outside { len: 64 } }), "{error}");
    assert_eq!(arena.occupancy().chunks_used, 0);
}

#[test]
fn a_fault_outside_probes_dies_of_sigsegv_by_default() {
    let Some(status) = child() else {
        install(SIGSEGV, libc::SIG_DFL, 0, &[]);
        let text = load(&arena(), &reads_two());
        assert_eq!(run(&text, 0, (&5_u64 as *const u64).addr()), 5);
        exit(run(&text, 0, 0) as c_int)
    };
    assert_eq!(status.signal(), Some(SIGSEGV), "{status}");
}

#[test]
fn a_fault_outside_probes_dies_with_rust_s_handler_too() {
    let Some(status) = child() else {
        assert_ne!(action(SIGSEGV).sa_sigaction, libc::SIG_DFL, "which is there before main");
        let text = load(&arena(), &reads_two());
        exit(run(&text, 0, 0) as c_int)
    };
    assert_eq!(status.signal(), Some(SIGSEGV), "{status}");
}

#[test]
fn a_replaced_text_has_no_probes_any_more() {
    let Some(status) = child() else {
        install(SIGSEGV, libc::SIG_DFL, 0, &[]);
        let arena = arena();
        let text = load(&arena, &reads());
        assert_eq!(run(&text, 0, 0), 0);
        let address = text.address();
        drop(text);
        arena.flush().unwrap();
        let text = load(&arena, &Code { probes: Vec::new(), ..reads() });
        if text.address() != address {
            exit(1);
        }
        exit(run(&text, 0, 0) as c_int)
    };
    assert_eq!(status.signal(), Some(SIGSEGV), "{status}");
}

#[test]
fn a_fault_outside_probes_reaches_the_previous_handler() {
    let Some(status) = child() else {
        install(SIGSEGV, ends as *const () as usize, libc::SA_SIGINFO, &[]);
        let text = load(&arena(), &reads_two());
        assert_eq!(run(&text, 0, (&5_u64 as *const u64).addr()), 5);
        EXPECTED_ADDRESS.store(0x1230, Ordering::SeqCst);
        exit(run(&text, 0, 0x1230) as c_int)
    };
    assert_eq!(status.code(), Some(HANDLED), "{status}");
}

#[test]
fn a_handler_with_one_argument_is_called_with_one() {
    let Some(status) = child() else {
        install(SIGSEGV, plain_ends as *const () as usize, 0, &[]);
        let text = load(&arena(), &reads_two());
        exit(run(&text, 0, 0) as c_int)
    };
    assert_eq!(status.code(), Some(HANDLED), "{status}");
}

#[test]
fn a_jump_to_unmapped_memory_is_the_host_s_fault() {
    let Some(status) = child() else {
        EXPECTED_ADDRESS.store(0x1230, Ordering::SeqCst);
        install(SIGSEGV, ends as *const () as usize, libc::SA_SIGINFO, &[]);
        let _text = load(&arena(), &reads());
        exit(call_at(0x1230) as c_int)
    };
    assert_eq!(status.code(), Some(HANDLED), "{status}");
}

#[test]
fn a_later_chaining_handler_sees_each_fault_once() {
    let Some(status) = child() else {
        install(SIGSEGV, ends as *const () as usize, libc::SA_SIGINFO, &[]);
        let arena = arena();
        let text = load(&arena, &reads_two());
        let old = install(SIGSEGV, passes_on as *const () as usize, libc::SA_SIGINFO, &[]);
        BELOW.store(old.sa_sigaction, Ordering::SeqCst);
        let good = (&5_u64 as *const u64).addr();
        for calls in 1..=3 {
            assert_eq!(run(&text, 0, good), 5);
            assert_eq!(LATER_CALLS.load(Ordering::SeqCst), calls);
        }
        // Another text: our handler cannot know whether the host's chains, and installs itself again. The two must
        // not loop.
        let another = load(&arena, &reads_two());
        assert_eq!((run(&another, 0, good), run(&text, 0, good)), (5, 5));
        assert_eq!(LATER_CALLS.load(Ordering::SeqCst), 3);
        EXPECTED_ADDRESS.store(0x1230, Ordering::SeqCst);
        exit(run(&another, 0, 0x1230) as c_int)
    };
    assert_eq!(status.code(), Some(HANDLED), "{status}");
}

#[test]
fn a_later_handler_without_chaining_disables_only_probes() {
    let Some(status) = child() else {
        let arena = arena();
        let text = load(&arena, &reads_two());
        install(SIGSEGV, ends as *const () as usize, libc::SA_SIGINFO, &[]);
        let _another = load(&arena, &reads());
        assert_eq!(run(&text, 0, (&5_u64 as *const u64).addr()), 5);
        EXPECTED_ADDRESS.store(0x1230, Ordering::SeqCst);
        exit(run(&text, 0, 0x1230) as c_int)
    };
    assert_eq!(status.code(), Some(HANDLED), "{status}");
}

#[test]
fn a_host_that_retakes_the_signal_repeatedly_keeps_it() {
    let Some(status) = child() else {
        install(SIGSEGV, ends as *const () as usize, libc::SA_SIGINFO, &[]);
        let arena = arena();
        let text = load(&arena, &reads_two());
        for _ in 0..20 {
            // It chains to ours whenever it replaces ours.
            let old = install(SIGSEGV, passes_on as *const () as usize, libc::SA_SIGINFO, &[]);
            if old.sa_sigaction != passes_on as *const () as usize && BELOW.load(Ordering::SeqCst) == 0 {
                BELOW.store(old.sa_sigaction, Ordering::SeqCst);
            }
            let another = load(&arena, &reads());
            assert_eq!(run(&another, 0, 0), 0);
            assert_eq!(run(&text, 0, (&5_u64 as *const u64).addr()), 5);
        }
        assert_eq!(action(SIGSEGV).sa_sigaction, passes_on as *const () as usize);
        EXPECTED_ADDRESS.store(0x1230, Ordering::SeqCst);
        exit(run(&text, 0, 0x1230) as c_int)
    };
    assert_eq!(status.code(), Some(HANDLED), "{status}");
}

#[test]
fn a_sent_signal_goes_to_the_host_even_at_a_probe() {
    let Some(status) = child() else {
        install(SIGSEGV, counts as *const () as usize, libc::SA_SIGINFO, &[]);
        install(SIGBUS, counts as *const () as usize, libc::SA_SIGINFO, &[]);
        // At a probe most of the time.
        let text = load(&arena(), &reads_until_it_is_not_zero());
        raise(SIGSEGV);
        raise(SIGBUS);
        assert_eq!(CALLS.load(Ordering::SeqCst), 2);

        let word = AtomicUsize::new(0);
        let thread = AtomicUsize::new(0);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                // SAFETY: always.
                thread.store(unsafe { libc::pthread_self() } as usize, Ordering::SeqCst);
                read(&text, word.as_ptr())
            });
            while thread.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            for sent in 0..2000 {
                // One at a time: two that wait are one.
                while CALLS.load(Ordering::SeqCst) != sent + 2 {
                    thread::yield_now();
                }
                // SAFETY: the thread runs until the word is set.
                unsafe { libc::pthread_kill(thread.load(Ordering::SeqCst) as libc::pthread_t, SIGSEGV) };
            }
            while CALLS.load(Ordering::SeqCst) != 2002 {
                thread::yield_now();
            }
            word.store(9, Ordering::SeqCst);
            assert_eq!(reader.join().unwrap(), 9, "no signal has made up a value");
        });
        exit(SURVIVED)
    };
    assert_eq!(status.code(), Some(SURVIVED), "{status}");
}

#[test]
fn a_sent_signal_has_its_default_action_without_a_host_handler() {
    let Some(status) = child() else {
        install(SIGBUS, libc::SIG_DFL, 0, &[]);
        let _text = load(&arena(), &reads());
        raise(SIGBUS);
        exit(SURVIVED)
    };
    assert_eq!(status.signal(), Some(SIGBUS), "{status}");
}

#[test]
fn a_sent_signal_that_the_host_ignores_stays_ignored() {
    let Some(status) = child() else {
        install(SIGSEGV, libc::SIG_IGN, 0, &[]);
        let text = load(&arena(), &reads_two());
        for _ in 0..3 {
            raise(SIGSEGV);
            send_as_kill_does(SIGSEGV);
        }
        assert_eq!(run(&text, 0, (&5_u64 as *const u64).addr()), 5, "probes work");
        raise(SIGSEGV);
        exit(SURVIVED)
    };
    assert_eq!(status.code(), Some(SURVIVED), "{status}");
}

#[test]
fn a_fault_kills_even_if_the_host_ignores_the_signal() {
    let Some(status) = child() else {
        install(SIGSEGV, libc::SIG_IGN, 0, &[]);
        let text = load(&arena(), &reads_two());
        exit(run(&text, 0, 0) as c_int)
    };
    assert_eq!(status.signal(), Some(SIGSEGV), "{status}");
}

#[test]
fn a_one_shot_handler_is_called_once() {
    let Some(status) = child() else {
        install(SIGSEGV, counts as *const () as usize, libc::SA_SIGINFO | libc::SA_RESETHAND, &[]);
        let text = load(&arena(), &reads());
        for _ in 0..10 {
            assert_eq!(run(&text, 0, 0), 0, "a probe does not use it up");
        }
        raise(SIGSEGV);
        assert_eq!(CALLS.load(Ordering::SeqCst), 1);
        assert_eq!(run(&text, 0, 0), 0);
        raise(SIGSEGV);
        exit(SURVIVED)
    };
    assert_eq!(status.signal(), Some(SIGSEGV), "{status}");
}

static BLOCKED: AtomicU32 = AtomicU32::new(0);

/// Records which of three signals are blocked in a handler.
extern "C" fn notes_blocked(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: a null set only asks.
    unsafe {
        let mut set = zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, null(), &mut set);
        let bits = [SIGSEGV, SIGUSR1, SIGUSR2].map(|signal| libc::sigismember(&set, signal) as u32);
        BLOCKED.store(bits[0] | bits[1] << 1 | bits[2] << 2, Ordering::SeqCst);
    }
}

#[test]
fn a_host_s_handler_runs_with_its_signal_mask() {
    let Some(status) = child() else {
        let handler = notes_blocked as *const () as usize;
        install(SIGSEGV, handler, libc::SA_SIGINFO, &[SIGUSR2]);
        let arena = arena();
        let _first = load(&arena, &reads());
        raise(SIGSEGV);
        assert_eq!(BLOCKED.load(Ordering::SeqCst), 0b101);
        install(SIGSEGV, handler, libc::SA_SIGINFO | libc::SA_NODEFER, &[SIGUSR1]);
        let _second = load(&arena, &reads());
        raise(SIGSEGV);
        assert_eq!(BLOCKED.load(Ordering::SeqCst), 0b010);
        exit(SURVIVED)
    };
    assert_eq!(status.code(), Some(SURVIVED), "{status}");
}

static TEXT: AtomicUsize = AtomicUsize::new(0);

/// A host's handler that runs a text with a probe.
extern "C" fn probes(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    let address = std::ptr::with_exposed_provenance::<u8>(TEXT.load(Ordering::SeqCst));
    // SAFETY: stored by the test.
    let function = unsafe { transmute::<*const u8, extern "C" fn(usize) -> u64>(address) };
    assert_eq!((function(0), function(NOT_CANONICAL)), (0, 0));
    CALLS.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_probe_may_fault_inside_a_host_s_signal_handler() {
    let Some(status) = child() else {
        // For another signal, and for this one if the host does not block it.
        install(SIGUSR1, probes as *const () as usize, libc::SA_SIGINFO, &[]);
        install(SIGSEGV, probes as *const () as usize, libc::SA_SIGINFO | libc::SA_NODEFER, &[]);
        let text = load(&arena(), &reads());
        TEXT.store(text.address(), Ordering::SeqCst);
        for _ in 0..10 {
            raise(SIGUSR1);
            raise(SIGSEGV);
            assert_eq!(run(&text, 0, 0), 0);
        }
        assert_eq!(CALLS.load(Ordering::SeqCst), 20);
        exit(SURVIVED)
    };
    assert_eq!(status.code(), Some(SURVIVED), "{status}");
}

#[test]
fn a_probe_may_fault_on_an_alternate_signal_stack() {
    let Some(status) = child() else {
        let text = load(&arena(), &reads_without_a_stack());
        let stack = vec![0_u8; 1 << 16].leak();
        let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
        // SAFETY: leaked for this.
        assert_eq!(unsafe { libc::sigaltstack(&stack, null_mut()) }, 0);
        for _ in 0..100 {
            assert_eq!(run(&text, 0, 0), 0);
        }
        exit(SURVIVED)
    };
    assert_eq!(status.code(), Some(SURVIVED), "{status}");
}

#[test]
fn errno_survives_a_fault() {
    let text = load(&arena(), &reads());
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = 77 };
    assert_eq!(run(&text, 0, 0), 0);
    // SAFETY: as above.
    assert_eq!(unsafe { *libc::__errno_location() }, 77);
}

#[test]
fn threads_probe_while_texts_and_arenas_change() {
    let arena = arena();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..4_u64 {
            let (arena, stop) = (&arena, &stop);
            scope.spawn(move || {
                let mut text = load(arena, &reads());
                let mut faults = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!((run(&text, 0, 0), read(&text, &number)), (0, number));
                    faults += 1;
                    if faults.is_multiple_of(1000) {
                        text = load(arena, &reads());
                    }
                }
                assert!(faults > 0);
            });
        }
        let mut texts = Vec::new();
        for round in 0..4000_usize {
            // Of changing sizes, so that chunks change owners, with and without probes.
            let mut code = reads();
            code.bytes.resize(40 * (round % 9 + 1), 0);
            if round % 3 == 0 {
                code.probes.clear();
            }
            texts.push(load(&arena, &code));
            if texts.len() > 50 {
                texts.swap_remove(round * 7 % 50);
            }
            if round.is_multiple_of(100) {
                let own = self::arena();
                assert_eq!(run(&load(&own, &reads()), NOT_CANONICAL, 0), 0);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(arena.occupancy().texts, 0);
}

#[test]
fn a_forked_child_probes_with_its_parent_s_texts_and_with_its_own() {
    let Some(status) = child() else {
        let text = load(&arena(), &reads_two());
        let probes = || {
            let good = (&5_u64 as *const u64).addr();
            let own = load(&arena(), &reads());
            if (run(&text, 0, good), run(&own, 0, 0)) == (5, 0) { SURVIVED } else { 1 }
        };
        // SAFETY: the other thread of this process only waits for this one.
        let status = unsafe { skep_testkit::in_a_child(probes) };
        exit(status.code().unwrap_or(1))
    };
    assert_eq!(status.code(), Some(SURVIVED), "{status}");
}

#[test]
fn no_handler_is_installed_before_the_first_text_with_probes() {
    let Some(status) = child() else {
        let actions = || [SIGSEGV, SIGBUS].map(|signal| action(signal).sa_sigaction);
        let before = actions();
        let arena = arena();
        let _text = place_returns(&arena, 1);
        let mut draft = arena.draft(64).unwrap();
        draft.probe(Probe { at: 0, resume: 4, register: None }).unwrap();
        drop(draft);
        assert_eq!(actions(), before);
        let _text = load(&arena, &reads());
        let after = actions();
        assert!(after[0] != before[0] && after[1] != before[1]);
        let _text = load(&arena, &reads());
        assert_eq!(actions(), after, "once is enough");
        exit(SURVIVED)
    };
    assert_eq!(status.code(), Some(SURVIVED), "{status}");
}

#[test]
fn without_the_fault_handler_probes_are_refused() {
    let Some(status) = child() else {
        let actions = || [SIGSEGV, SIGBUS].map(|signal| action(signal).sa_sigaction);
        let before = actions();
        let arena = Arena::new(Config::new().fault_handler(false)).unwrap();
        let error = try_load(&arena, &reads()).unwrap_err();
        assert!(matches!(error, Error::ProbesForbidden), "{error}");
        assert!(error.to_string().contains("Config::fault_handler(false)"), "{error}");
        let text = load(&arena, &Code { probes: Vec::new(), ..reads() });
        assert_eq!(read(&text, &3_u64), 3, "the arena is as good as any");
        assert_eq!(actions(), before);
        exit(SURVIVED)
    };
    assert_eq!(status.code(), Some(SURVIVED), "{status}");
}

/// Two pages; the second is unreadable.
fn page_with_an_end() -> *mut u8 {
    let bytes = 2 * 65536;
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory.
    let start = unsafe { libc::mmap(null_mut(), bytes, rights, kind, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: the second half of it.
    assert_eq!(unsafe { libc::mprotect(start.byte_add(bytes / 2), bytes / 2, libc::PROT_NONE) }, 0);
    start.cast()
}

#[test]
fn loads_for_interpreters_give_the_value_or_0() {
    for config in [Config::new(), Config::new().landing_pads(true), Config::new().random(true)] {
        let loads = Arena::new(config).unwrap().loads().unwrap();
        let page = page_with_an_end();
        let number = 0xf1e2_d3c4_b5a6_9788_u64;
        let end = page.addr() as u64 + 65536;
        // SAFETY: the last readable bytes.
        unsafe { page.add(65536 - 8).cast::<u64>().write(number) };
        for bytes in [1u32, 2, 4, 8] {
            // SAFETY: ordinary memory or none, and signals are as they were.
            let load = |address| unsafe { loads.load(address, bytes) };
            let kept = u64::MAX >> (64 - 8 * bytes);
            assert_eq!(load(end - 8), number & kept, "{bytes}");
            assert_eq!(load(end - u64::from(bytes)), number >> (64 - 8 * bytes) & kept, "{bytes}");
            let not_canonical = NOT_CANONICAL as u64;
            for address in
                [0, 1, end, end - 1 + u64::from(bytes == 1), u64::MAX - 7, u64::MAX, 1 << 63, not_canonical]
            {
                assert_eq!(load(address), 0, "{bytes} at {address:#x}");
            }
        }
        // SAFETY: as above. Unsupported lengths count as shorter ones.
        let odd = unsafe { [0, 3, 7, 9, u32::MAX].map(|bytes| loads.load(end - 8, bytes)) };
        assert_eq!(odd, [0x88, 0x9788, 0xb5a6_9788, number, number]);
    }
}

#[test]
fn loads_for_interpreters_need_the_handler() {
    let arena = Arena::new(Config::new().fault_handler(false)).unwrap();
    assert!(matches!(arena.loads(), Err(Error::ProbesForbidden)));
    assert_eq!(arena.occupancy().chunks_used, 0, "nothing is left");
}

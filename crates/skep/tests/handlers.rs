//! Programs in signal handlers that change the map which their own thread is changing: they are refused, and
//! nothing deadlocks.

use skep::{Engine, Map, Object, Program, Runtime, UpdateFlags};
use skep_testkit::while_interrupted;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const OBJECT: &[u8] = include_bytes!("objects/sections/locks.bpf.o");
/// The element that the program replaces.
const KEY: [u8; 4] = 1u32.to_ne_bytes();
const BUSY: i32 = 16;

static INTERRUPTING: OnceLock<Program> = OnceLock::new();
static DONE: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

fn replace(program: &Program, engine: Engine) -> i32 {
    program.run_raw_with(engine, &mut [0; 8]).unwrap() as i32
}

extern "C" fn handler(_: libc::c_int) {
    let Some(program) = INTERRUPTING.get() else { return };
    for engine in ENGINES {
        match replace(program, engine) {
            0 => DONE.fetch_add(1, Ordering::Relaxed),
            status => {
                assert_eq!(status, -BUSY);
                REFUSED.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
}

#[test]
fn programs_in_handlers_cannot_change_a_map_they_interrupted() {
    let object = Object::parse(OBJECT).unwrap();
    let module = Runtime::new().unwrap().linker(&object).buffer_len(8).load().unwrap();
    let table: &Map = module.map("table").unwrap();
    table.update(&KEY, &[0; 24], UpdateFlags::Any).unwrap();
    let program = module.program("replace_table").unwrap();
    // Created outside of the handler.
    assert!(ENGINES.iter().all(|engine| replace(program, *engine) == 0));
    INTERRUPTING.set(program.clone()).unwrap();
    // SAFETY: the handler does only what handlers may do.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
    let enough = || REFUSED.load(Ordering::Relaxed) >= 20;
    while_interrupted(libc::SIGUSR1, enough, || {
        for engine in ENGINES {
            assert_eq!(replace(program, engine), 0, "it interrupts no change");
        }
    });
    let (done, refused) = (DONE.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed));
    assert!(refused > 0, "none of {done} came in the middle of a change");
    table.delete(&KEY).unwrap();
    assert_eq!((table.len(), table.stats().in_use), (0, 0));
}

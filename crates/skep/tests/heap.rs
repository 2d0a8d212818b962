//! What a loaded program keeps beside its code: at most [`PROGRAM`] bytes, and four for each of its instructions.
//!
//! Instructions, facts and the places of the code are packed once a program is compiled, and a question unpacks them.
//! What stays is counted here, in a process of its own: bytes that were allocated and not freed, over many programs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use skep::abi::RAW;
use skep::isa::{assemble, encode_bytes};
use skep::{Object, Program, Runtime};

/// The promise, in bytes: for each program, and for each of its instructions.
const PROGRAM: usize = 2048;
const INSTRUCTION: usize = 4;
/// How many are loaded.
const PROGRAMS: usize = 200;

/// Bytes that are allocated. Relaxed: read while nothing else runs.
static LIVE: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// About so many instructions in blocks of eight: arithmetic, accesses to the stack, and branches over two of them.
fn blocks(insns: usize) -> String {
    let block = |n: usize| {
        let (depth, most) = (8 * (n % 8 + 1), 1000 * n);
        format!(
            "r6 += {n}\n*(u64 *)(r10 - {depth}) = r6\nr7 ^= r6\nif r7 > {most} goto over{n}\nr0 += r7\nw0 *= 31\n\
             over{n}:\nr8 = *(u64 *)(r10 - {depth})\nr0 ^= r8\n"
        )
    };
    let blocks: String = (0..insns / 8).map(block).collect();
    format!("r6 = *(u64 *)(r1 + 0)\nr7 = *(u32 *)(r1 + 8)\nr0 = 0\n{blocks}r0 += r6\nr0 ^= r7\nexit\n")
}

/// A loop that becomes four copies of itself: its code is in pieces.
fn unrolled(_: usize) -> String {
    "r0 = 0\nr2 = 0\nround:\nr3 = *(u64 *)(r1 + 0)\nr0 += r3\nr0 ^= r2\nr2 += 1\nif r2 < 1000 goto round\nexit".into()
}

/// Its name, its text for so many instructions, and how many.
type Case = (&'static str, fn(usize) -> String, usize);

#[test]
fn a_loaded_program_keeps_little_beside_its_code() {
    let cases: [Case; 4] =
        [("small", blocks, 48), ("medium", blocks, 512), ("large", blocks, 4204), ("in pieces", unrolled, 0)];
    for (what, text, size) in cases {
        let runtime = Runtime::new().expect("a runtime");
        let code = encode_bytes(&assemble(&text(size)).expect("text")).expect("instructions");
        let slots = code.len() / 8;
        let load = || -> Program {
            let object = Object::from_bytecode("kept", &RAW, &code).expect("an object");
            let module = runtime.linker(&object).buffer_len(64).load().expect("a module");
            module.programs()[0].clone()
        };
        let mut kept = Vec::with_capacity(PROGRAMS + 1);
        // The first takes what all of them share.
        kept.push(load());
        let before = LIVE.load(Ordering::Relaxed);
        kept.extend((0..PROGRAMS).map(|_| load()));
        let grown = LIVE.load(Ordering::Relaxed) - before;
        let each = usize::try_from(grown).expect("they take memory") / PROGRAMS;
        let most = PROGRAM + INSTRUCTION * slots;
        assert!(each <= most, "{what}: {each} bytes are kept of {slots} instructions, {most} are promised");
        println!("{what}: {slots} instructions, {each} bytes kept");

        // What is packed is still there: the code runs, and dumps find the instructions and their code.
        let (program, mut buffer) = (&kept[PROGRAMS], [0; 64]);
        program.run_raw(&mut buffer).expect("a run");
        let compiled = program.compiled();
        assert_eq!(program.verified().encoded().len(), code.len());
        assert_eq!(compiled.offsets().len(), slots + 1);
        assert_eq!(compiled.offsets()[slots] as usize, compiled.code_bytes());
        assert_eq!(compiled.pieces().is_empty(), what != "in pieces");
    }
}

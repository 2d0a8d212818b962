//! Two compilers in one executable with GDB's JIT interface: ours, and one that defines the interface's global
//! symbols, as LLVM does. Successful linking is half of the test.

use std::ptr;

use skep_text::{Arena, Config};

#[repr(C)]
struct Descriptor {
    version: u32,
    action: u32,
    relevant: *const u8,
    first: *const u8,
}

#[unsafe(no_mangle)]
static mut __jit_debug_descriptor: Descriptor =
    Descriptor { version: 1, action: 0, relevant: ptr::null(), first: ptr::null() };

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn __jit_debug_register_code() {
    std::hint::black_box(());
}

#[test]
fn another_definition_of_the_interface_keeps_its_list() {
    __jit_debug_register_code();
    let arena = Arena::new(Config::new().gdb(true)).unwrap();
    let mut draft = arena.draft(64).unwrap();
    draft.set_name("skep_prog_0_two");
    let text = draft.finalize().unwrap();
    // SAFETY: it is never written; it is read through a pointer.
    let (version, action, relevant, first) = unsafe {
        let other = (&raw const __jit_debug_descriptor).read_volatile();
        (other.version, other.action, other.relevant, other.first)
    };
    assert_eq!((version, action, relevant, first), (1, 0, ptr::null(), ptr::null()));
    drop(text);
}

//! The two symbols that GDB looks for in a process that compiles code ("JIT Compilation Interface" in its manual).
//!
//! They are local to these assembler blocks, so that they cannot clash with another compiler's in the process.

// A naked function is emitted once. The lint of Rust 1.88 does not know this yet; later ones do.
#![allow(named_asm_labels)]

use std::arch::naked_asm;
use std::ffi::c_void;

use super::machine::load_gdb_descriptor;

/// The address of `__jit_debug_descriptor`, the head of the list that GDB reads (24 bytes: 1 as a version, and zeros).
#[unsafe(naked)]
pub(crate) extern "C" fn gdb_descriptor() -> *mut c_void {
    naked_asm!(
        ".pushsection .data.skep_text_gdb, \"aw\", @progbits",
        ".balign 8",
        ".type __jit_debug_descriptor, @object",
        ".size __jit_debug_descriptor, 24",
        "__jit_debug_descriptor:",
        ".long 1, 0",
        ".quad 0, 0",
        ".popsection",
        load_gdb_descriptor!(),
        "ret",
    )
}

/// `__jit_debug_register_code`, in which GDB has a breakpoint. Does nothing.
#[unsafe(naked)]
pub(crate) extern "C" fn gdb_notify() {
    naked_asm!(
        ".type __jit_debug_register_code, @function",
        "__jit_debug_register_code:",
        "nop",
        "ret",
        ".size __jit_debug_register_code, . - __jit_debug_register_code",
    )
}

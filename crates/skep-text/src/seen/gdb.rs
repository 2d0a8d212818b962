//! GDB's JIT interface: a linked list of small ELF objects, and a function that GDB has a breakpoint in.
//!
//! ```text
//!   __jit_debug_descriptor                entry (in a node of ours)
//!   | version 1 | action |                | next | prev | object | size |
//!   | relevant entry     | -------------> what the action is about
//!   | first entry        | -------------> the newest ---> ... ---> the oldest
//! ```
//!
//! Protocol ("JIT Compilation Interface" in the GDB manual): change the list, write down what changed, call
//! `__jit_debug_register_code`. GDB stops there and reads. One that attaches later reads the whole list.
//!
//! Invariants: the list is changed under one lock for the whole process, and can be walked forwards at any moment; a
//! node is freed only after it was unlinked and GDB was notified.
//!
//! **Other compilers in the process.** The interface has one pair of symbols, and others (LLVM's) define it as well.
//! Two global definitions would not link, or the dynamic linker would merge them, and then two locks would guard one
//! list. Ours are local symbols of an assembler block ([`arch::gdb_descriptor`], [`arch::gdb_notify`]): they
//! conflict with no others, and GDB finds them, because it searches the symbol table of each file. It takes one pair
//! in each file and prefers a global one: if LLVM is linked into the same executable *statically*, GDB shows LLVM's
//! code and not ours. Local symbols are in `.symtab`; `strip` removes that, and with it this interface. One case
//! does not link: a program that has another *Rust* definition of the symbols and is compiled with `lto = "fat"`,
//! which merges everything into one assembler file (`lto = "thin"` does link).
//!
//! After `fork` the child has a copy of the list and the nodes, which is correct: the child has the code, too. Its
//! handles do nothing.
//!
//! What would break it: a second lock; an entry that moves.

use std::collections::HashMap;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use super::{elf, file};
use crate::arch;

/// The texts of one arena that GDB has been notified of, by address.
pub(super) struct Gdb {
    nodes: Mutex<HashMap<usize, NonNull<Node>>>,
    process: u32,
}

// SAFETY: only this owns the nodes, and they are accessed only under `LIST`; so they may move between threads.
unsafe impl Send for Gdb {}
// SAFETY: as above.
unsafe impl Sync for Gdb {}

/// Guards the list of the process: the descriptor and the links of every node in it.
static LIST: Mutex<()> = Mutex::new(());

/// `struct jit_descriptor`.
#[repr(C)]
struct Descriptor {
    version: u32,
    action: u32,
    relevant: *mut Node,
    first: *mut Node,
}

const NO_ACTION: u32 = 0;
const REGISTER: u32 = 1;
const UNREGISTER: u32 = 2;

/// `struct jit_code_entry`, followed by the data it refers to.
#[repr(C)]
struct Node {
    next: *mut Node,
    prev: *mut Node,
    object: *const u8,
    object_len: u64,
    bytes: Vec<u8>,
}

impl Gdb {
    pub(super) fn new() -> Self {
        Self { nodes: Mutex::default(), process: std::process::id() }
    }

    pub(super) fn add(&self, name: &str, address: usize, len: usize) {
        let bytes = elf::object(name, address, len);
        let node = Box::new(Node {
            next: ptr::null_mut(),
            prev: ptr::null_mut(),
            object: bytes.as_ptr(),
            object_len: bytes.len() as u64,
            bytes,
        });
        let node = NonNull::from(Box::leak(node));
        let old = file::lock(&self.nodes).insert(address, node);
        // A place is reused only after its removal here; otherwise the newer name would win.
        if let Some(old) = old {
            unlink(old);
        }
        link(node);
    }

    pub(super) fn remove(&self, address: usize) {
        let node = file::lock(&self.nodes).remove(&address);
        if let Some(node) = node {
            unlink(node);
        }
    }
}

impl Drop for Gdb {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist there may hold the locks. The copies stay.
        if self.process == std::process::id() {
            std::mem::take(&mut *file::lock(&self.nodes)).into_values().for_each(unlink);
        }
    }
}

/// Inserts the node at the head of the list.
fn link(node: NonNull<Node>) {
    let _list = file::lock(&LIST);
    let descriptor = arch::gdb_descriptor().cast::<Descriptor>();
    let node = node.as_ptr();
    // SAFETY: the descriptor is a static of that layout, and `LIST` is held, which guards it and all nodes in the list;
    // the new node is ours. GDB reads while this thread stands in `gdb_notify`, or after it has stopped all threads.
    unsafe {
        let first = (*descriptor).first;
        (*node).next = first;
        if !first.is_null() {
            (*first).prev = node;
        }
        (*descriptor).first = node;
        notify(descriptor, REGISTER, node);
    }
}

/// Unlinks the node, and frees it.
fn unlink(node: NonNull<Node>) {
    let _list = file::lock(&LIST);
    let descriptor = arch::gdb_descriptor().cast::<Descriptor>();
    let node = node.as_ptr();
    // SAFETY: as in `link`; the node is in the list, since `link` put it there and only its owner calls this, once.
    unsafe {
        let Node { next, prev, .. } = *node;
        if prev.is_null() {
            (*descriptor).first = next;
        } else {
            (*prev).next = next;
        }
        if !next.is_null() {
            (*next).prev = prev;
        }
        notify(descriptor, UNREGISTER, node);
        drop(Box::from_raw(node));
    }
}

/// # Safety
///
/// `LIST` is held, and `descriptor` is the process's.
unsafe fn notify(descriptor: *mut Descriptor, action: u32, node: *mut Node) {
    // SAFETY: the caller's. The compiler knows nothing about the function between the stores, so it does them all.
    unsafe {
        debug_assert_eq!((*descriptor).version, 1);
        (*descriptor).relevant = node;
        (*descriptor).action = action;
        arch::gdb_notify();
        (*descriptor).action = NO_ACTION;
        (*descriptor).relevant = ptr::null_mut();
    }
}

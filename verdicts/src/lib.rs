//! Small programs with the verdicts of Linux's verifier, as data to compare skep's verifier with.
//!
//! ```text
//!   *.verdicts --parse--> Entry --Program--> instructions, functions --> skep's verifier, in its tests
//!      ^                  |
//!      |                  +--request--> a kernel in a virtual machine --answer--> Answer
//!      +------------------------------- linux: accept | refuse: why <-------------'
//! ```
//!
//! The tests need no kernel, because the files contain the verdicts. After adding programs, ask a kernel once with
//! `cargo xtask verdicts`.
//!
//! # The files
//!
//! ```text
//! # a comment
//! # types: file inode             structures of the kernel that the programs reach beyond their arguments
//! == a-name-that-no-other-entry-of-the-file-has
//! type: xdp                       libbpf's section name: tc, kprobe, fentry.s/vfs_read, iter/task, ...
//! map: m1 array 4 8 16            name, kind, sizes of key and value, elements; in any number, then
//!                                   flags (0x80, rdonly_prog, wronly_prog, no_prealloc, mmapable),
//!                                   inner=m2, extra=N, data=HEX (the value at key 0, and the map is frozen),
//!                                   lock@0, timer@16, wq@16, kptr@8=task_struct (fields of the value)
//!                                   list@8=node:lnode0, tree@8=node:rnode0, pkptr@8=node,
//!                                   ukptr@8=node
//! struct: node 40 lnode@0         a structure of the program's own, before those that name it: name, size, fields as
//!                                   of a map's value, and lnode, rnode, refcount, ptr; the member lnode@0 is `lnode0`
//! func: sum static int(int, u64)  a function's prototype, for callbacks and global functions; main needs none.
//!                                   Types: int, u32, s64, ..., void, `u64 *`, `mem16 *` (a structure of 16 bytes),
//!                                   `struct task_struct *`, `ctx`; before an argument: nonnull, nullable, trusted
//! tag: main exception_callback:cb a declaration tag of a function, in any number; main is the program
//! license: GPL                    GPL if absent
//! flags: strict_alignment         of the load: a number or names
//! attach: 24                      expected attach type, if the section does not determine it
//! caps: bpf                       loaded without the capabilities CAP_PERFMON and CAP_SYS_ADMIN
//! linux: accept                   or `refuse: ` and the log's reason, or `none` for types that Linux does not have
//! skep: refuse: pointer-leak      accept, or refuse with its class, if skep differs or the class matters
//! privileged: accept              the same for privileged programs (root's rules), if that is another verdict
//! why: One sentence.              the reason, if skep and Linux differ
//! packet: udp4 20              the program is run too (*.answers), with maps of its own: on these bytes in hexadecimal, on
//!                                   udp4, udp6, vlan4 with so many bytes of payload, or on - where the type has no packet
//! context: mark=3 cb0=7        fields of `__sk_buff` before the run; for other types all bytes of the context in hexadecimal
//! answer: 2 mark=4 packet=HEX  Linux's result, the fields and the packet if changed; or `errno N`
//! differs: 1                   skep's answer, if another; a line `why:` says why
//! insns:
//!   r1 = map[m1] ll               skep-isa's assembler; maps by name in map[..] and map_value[..]+4, functions of
//!   r1 = type[node]               the number of a structure of the program's own
//!   call bpf_ktime_get_ns         the kernel in kfunc[..], its variables in var[..], helpers by name or number
//!   exit
//! ```
#![forbid(unsafe_code)]

mod answer;
mod btf;
pub mod calls;
mod entry;
mod file;
mod function;
mod lifetimes;
mod map;
mod operations;
pub mod probe;
mod program;
mod request;
mod run;
mod section;
pub mod types;
pub mod vm;

pub use answer::{Answer, answers};
pub use btf::{Described, describe};
pub use entry::{Entry, Trouble, Verdict, entries};
pub use file::{with_answers, with_verdicts};
pub use function::{Argument, FunctionLine};
pub use lifetimes::{lifetimes, sample};
pub use map::{Field, MapLine, StructLine};
pub use operations::{Operated, Operation, operation_requests, operations, with_operation_answers};
pub use program::{Program, kernel_names};
pub use request::request;
pub use run::{FIELDS, Fields, Run, RunAnswer};
pub use section::{Section, Target};

//! What the tests of all crates share: how a test says that it cannot show something here, and how it runs itself
//! again in a process of its own, or forks one.
//!
//! The rule of skipping: a test that cannot be made prints one line, `SKIPPED: what: why`, straight to standard error,
//! and passes; where `SKEP_REQUIRE_ALL` is 1 it fails instead. Whether it can be made is found out by trying, never by
//! asking what machine this is.
//!
//! Under an emulator of user programs (`qemu-aarch64`) some things cannot be shown by anybody: a few system calls are
//! accepted and do nothing, or are not passed on at all. They are [`Hidden`], a closed list. Where `SKEP_EMULATED` is 1
//! these and no others may be missing although all is required; such a test says so in a line that begins with
//! `HIDDEN BY EMULATION:`. The variable makes nothing pass: a test still tries first.

mod again;
pub mod bpf;
mod forked;
mod interrupt;
mod linux;
mod refusal;
mod skip;
mod tool;
mod wrong;

pub use again::{itself, other, runner, test_name, this_test};
pub use forked::in_a_child;
pub use interrupt::{interrupt, while_interrupted};
pub use linux::{
    Batch, LinuxDef, LinuxMap, LinuxProgram, MOST_MAPS, MOST_PROGRAMS, SharedMemory, Waiter, ask_linux,
    possible_cpus, turn_to_ask,
};
pub use refusal::Refusal;
pub use skip::{Hidden, fewer_if_emulated, hidden, is_emulated, say, skip};
pub use tool::answer;
pub use wrong::must_panic;

//! Shared code of the tests of all crates: how a test reports that it cannot run here, and how it runs itself again
//! in a process of its own, or forks one.
//!
//! The rule of skipping: a test that cannot run prints one line, `SKIPPED: what: why`, directly to standard error,
//! and passes; with `SKEP_REQUIRE_ALL=1` it fails instead. A test finds out by trying whether it can run, never from
//! the kind of machine.
//!
//! Under an emulator of user programs (`qemu-aarch64`) some effects cannot be tested: a few system calls are accepted
//! without effect, or not supported at all. [`Hidden`] is the complete list. With `SKEP_EMULATED=1` these and no
//! others may be missing even if `SKEP_REQUIRE_ALL` is set; such a test prints a line that begins with `HIDDEN BY
//! EMULATION:`. The variable does not skip anything by itself: a test still tries first.

mod again;
pub mod bpf;
mod forked;
mod interrupt;
mod linux;
mod network;
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
pub use network::{AF_XDP, Caught, Raw, has_sockets, in_network, ip, wait_for_link};
pub use refusal::Refusal;
pub use skip::{Hidden, fewer_if_emulated, hidden, is_emulated, say, skip};
pub use tool::answer;
pub use wrong::must_panic;

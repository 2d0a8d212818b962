//! An eBPF runtime for Linux user space.
//!
//! A host opens an object file that clang compiled, loads it into a [`Runtime`], and runs its programs in its
//! own process at native speed, from any number of threads. A program runs only if the verifier has proved
//! it safe, and no page of code is ever writable and executable.
//!
//! ```
//! use skep::{Object, Packet, Runtime};
//!
//! # fn main() -> Result<(), skep::Error> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/flows.bpf.o");
//! let object = Object::open(path)?;
//! let runtime = Runtime::new()?;
//! let module = runtime.load(&object)?;
//! let program = &module.programs()[0];
//!
//! // An Ethernet frame with an IPv4 UDP datagram, 10.0.0.1:1000 to 10.0.0.2:53.
//! let mut frame = [0u8; 42];
//! frame[12..14].copy_from_slice(&[0x08, 0x00]);
//! frame[14..34].copy_from_slice(&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
//! frame[34..42].copy_from_slice(&[0x03, 0xe8, 0, 53, 0, 8, 0, 0]);
//!
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| {
//!             let mut packet = Packet::new(&frame);
//!             for _ in 0..100 {
//!                 program.run(&mut packet).expect("there is a virtual CPU for each of these threads");
//!             }
//!         });
//!     }
//! });
//!
//! // The host reads what the program counted; all four threads saw one flow.
//! let flows = module.map("flows").expect("the object defines it");
//! assert_eq!(flows.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # From object file to program
//!
//! ```text
//!   object bytes --Object--> (maps linked) --verifier--> Verified --jit--> text in a pack --> Program
//! ```
//!
//! Each stage has its own type, which only the stage before can make: only a [`Verified`] program can be compiled, and
//! only installed code can be called.
//!
//! # Virtual CPUs
//!
//! A kernel gives a program the number of the processor it runs on and keeps it there. User space cannot. Instead, each
//! run has a *virtual CPU*: a number that `bpf_get_smp_processor_id` returns and that indexes per-CPU maps. No two runs
//! have the same one at the same time, so per-CPU counters never lose an update. [`RuntimeBuilder::cpus`] says how many
//! there are, and how any number of threads share them. A run begins and ends on one thread and keeps nothing there, so
//! tasks of an async executor may run programs from any of its threads; a program that may run for long or sleep
//! belongs on a thread that may block.

// The derives write paths that begin with the crate's name.
#[cfg(all(test, feature = "derive"))]
extern crate self as skep;

#[cfg(test)]
mod answers_tests;
#[cfg(test)]
mod arena_tests;
mod arrays;
mod audit;
#[cfg(test)]
mod bare_tests;
mod budget;
mod charging;
#[cfg(test)]
mod checking;
mod context;
mod contract;
mod dispatch;
mod ending;
mod error;
mod expiry;
mod extension;
#[cfg(feature = "derive")]
pub mod fixture;
pub mod function;
#[cfg(test)]
mod growth_tests;
mod helpers;
mod holders;
mod hook;
pub mod host;
mod image;
mod iterate;
#[cfg(feature = "json")]
pub mod json;
#[cfg(test)]
mod kfunc_tests;
mod linker;
mod machine_objects;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod mask_tests;
mod metrics;
mod migrate;
mod module;
mod netfilter;
#[cfg(test)]
mod netfilter_tests;
mod object;
mod observe;
mod ops;
mod packet;
mod program;
mod provides;
mod registry;
mod run_state;
mod runtime;
#[cfg(test)]
mod slices_tests;
/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod sequences;
mod shared;
mod shown;
#[cfg(feature = "signatures")]
pub mod signature;
mod slot;
mod socket;
#[cfg(test)]
mod socket_header_tests;
#[cfg(test)]
mod socket_map_tests;
#[cfg(test)]
mod socket_tests;
mod stats;
mod steps;
#[cfg(feature = "tokio")]
pub mod stream;
mod surroundings;
#[cfg(feature = "sys")]
pub mod sys;
mod targets;
mod tenant;
mod timers;
#[cfg(feature = "typed")]
pub mod typed;
mod typed_program;
pub mod world;

pub use arrays::{MapArray, MapHash, ProgramArray};
#[cfg(feature = "audit")]
pub use audit::JsonLines;
pub use audit::{AuditEvent, AuditFailure, AuditRecord, AuditSink, AuditedMap, AuditedProgram};
pub use budget::Budget;
pub use context::Context;
pub use error::{Error, Exhausted, IterateFault};
pub use extension::Attachment;
pub use hook::{Hook, Link};
pub use host::{HostContext, HostType, Verdict};
pub use image::{Engine, LoadTimes};
pub use iterate::{Iterate, ShownLink, ShownMap, ShownProgram};
pub use linker::Linker;
pub use metrics::Metrics;
pub use migrate::Migration;
pub use module::{Module, UnusedMap};
pub use object::{Object, ProgramOptions, Variable, VerifyOptions};
pub use ops::{OpsArg, OpsMember, OpsTable};
pub use packet::{Checksum, Copied, Event, Outcome, Packet, PacketInfo, Redirect, Sysctl, Tunnel, Vlan};
pub use program::{Coverage, CoveredLine, Program, WithState};
pub use runtime::{Runtime, RuntimeBuilder, escaped};
pub use skep_abi as abi;
pub use skep_btf::Btf;
#[cfg(feature = "derive")]
pub use skep_derive::{Context, Verdict, test};
#[cfg(feature = "guard")]
pub use skep_guard as guard;
pub use skep_interp as interp;
pub use skep_isa as isa;
pub use skep_jit as jit;
pub use skep_maps::{
    Arena, BatchCursor, BatchError, Map, MapError, MapStats, Member, Options as MapOptions, PerfEvent,
    PerfMapError, PerfReader, PerfSettings, PerfWakeup, Policy, Reclamation, Record, RingBuffer, Sample,
    SampleFields, SharedTable, SharedValues, Unfrozen, UpdateFlags, UserRingBuffer, UserSample,
};
pub use skep_text::{self as text, Occupancy};
pub use skep_verifier::{Abilities, FunctionFacts, Refusal, Step, Verified, Why};
pub use slot::OpsSlot;
pub use socket::{socket_member, socket_of};
pub use stats::{Bucket, Histogram, RunStats};
pub use targets::TargetMap;
pub use tenant::{Quota, Resource, Tenant, Usage};
#[cfg(feature = "typed")]
pub use typed::{PerCpu, PerCpuMap, Prefix, TypedMap, TypedQueue};
pub use typed_program::TypedProgram;
pub use world::World;

//! The semantics of Linux's system call bpf(2), without I/O.
//!
//! Clients such as libbpf, bpftool, aya and cilium/ebpf reach BPF through one system call. [`System::call`] answers it:
//! the attributes come as bytes of a [`Caller`], and results go back the same way. What a map or a program *is*, an
//! [`Engine`] says. This library has the rest: commands and their checks in Linux's order, errors, identifiers, names,
//! descriptors' rights, the forms of information that clients ask for.
//!
//! ```text
//!   a client --bpf(2)--> a front --System::call--> commands --Engine--> maps, verifier, programs
//!                          ^                           |
//!                          +---- Caller: its memory, descriptors, files
//! ```
//!
//! It has no dependency on an operating system: a kernel, an emulator or a supervisor can use it. `skep exec` is one.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attach;
mod attr;
mod btf;
mod caller;
mod command;
mod description;
mod devices;
mod engine;
mod errno;
mod from_program;
mod functions;
mod groups;
mod ids;
mod info;
mod iterators;
mod links;
mod log;
mod maps;
mod name;
mod object;
mod ordered;
mod place;
mod probes;
mod programs;
mod query;
mod run;
mod signed;
mod sockets;
mod stats;
mod system;

pub use attr::ATTRIBUTE_SIZE;
pub use btf::BtfObject;
pub use caller::{Caller, ControlGroup};
pub use command::Command;
pub use devices::XdpProgram;
pub use engine::{
    Batch, Client, CoreRelocation, Engine, FunctionInfo, LineInfo, MachineCode, MapRequest, Memory, Netkit,
    Place, ProbedFunctions, ProgramFacts, ProgramRequest, RunAnswer, RunRequest, RunsOn, Signature, Value,
};
pub use errno::Errno;
pub use iterators::Shown;
pub use links::LinkObject;
pub use maps::MapObject;
pub use name::NAME_SIZE;
pub use object::{Access, Handle, Object};
pub use probes::{BinaryPlaces, Functions, ProbeInfo, ProbeKind, When};
pub use programs::ProgramObject;
pub use sockets::{ClientSocket, ClientState};
pub use stats::StatsObject;
pub use system::System;

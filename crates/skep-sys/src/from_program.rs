//! Calls that a running program makes for its client: `bpf_sys_bpf` and `bpf_sys_close`, by which light skeletons load
//! everything in one test run.
//!
//! Attributes, and what they point to, are memory of the program. Where Linux takes an address for one of the client's
//! in any case (logs, the name of a tracepoint), so does this library. What a program writes into its attributes by way
//! of an answer is dropped: none of its commands has one that matters.
//!
//! Nobody can close a descriptor of another process. So a descriptor that a program makes is a number at first, which
//! the client does not use; those that the program has not closed are installed when the run has ended.

use crate::caller::{Caller, ControlGroup};
use crate::command::Command;
use crate::engine::{Client, Engine, Memory};
use crate::errno::Errno;
use crate::object::Handle;
use crate::sockets::ClientSocket;
use crate::system::System;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Commands that programs may give.
const ALLOWED: [Command; 9] = [
    Command::MapCreate,
    Command::MapDeleteElem,
    Command::MapUpdateElem,
    Command::MapFreeze,
    Command::MapGetFdById,
    Command::ProgLoad,
    Command::BtfLoad,
    Command::LinkCreate,
    Command::RawTracepointOpen,
];

/// The client of a run, and the descriptors that the program has made for it.
pub(crate) struct RunClient<'a, E: Engine> {
    system: System<E>,
    caller: &'a mut dyn Caller<E>,
    made: BTreeMap<i32, Handle<E>>,
}

impl<'a, E: Engine> RunClient<'a, E> {
    pub(crate) fn new(system: &System<E>, caller: &'a mut dyn Caller<E>) -> Self {
        Self { system: system.clone(), caller, made: BTreeMap::new() }
    }

    /// Gives the client what the program has left open.
    pub(crate) fn finish(self) -> Result<(), Errno> {
        self.made.into_iter().try_for_each(|(number, handle)| self.caller.install_at(number, handle))
    }
}

impl<E: Engine> Client for RunClient<'_, E> {
    fn interrupted(&mut self) -> bool {
        self.caller.interrupted()
    }

    fn task(&mut self) -> Option<(u32, u32)> {
        self.caller.task()
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.caller.read(address, into)
    }

    fn call(&mut self, command: u32, attributes: &[u8], memory: &Memory<'_>) -> Result<i64, Errno> {
        let command = Command::from_number(command).filter(|command| ALLOWED.contains(command));
        let command = command.ok_or(Errno::EINVAL)?;
        let size = u32::try_from(attributes.len()).map_err(|_| Errno::E2BIG)?;
        let of_client = command == Command::RawTracepointOpen;
        let system = self.system.clone();
        let mut call = Call { client: self, attributes, memory, of_client };
        system.call(&mut call, command as u32, ATTRIBUTES, size)
    }

    fn close(&mut self, descriptor: i32) -> Result<(), Errno> {
        self.made.remove(&descriptor).map(drop).ok_or(Errno::EBADF)
    }
}

/// Where attributes are for the system call: at the end of all addresses, where nothing else is.
const ATTRIBUTES: u64 = u64::MAX << 16;

/// A call of a program.
struct Call<'a, 'c, E: Engine> {
    client: &'a mut RunClient<'c, E>,
    attributes: &'a [u8],
    memory: &'a Memory<'a>,
    /// Whether what the attributes point to is the client's.
    of_client: bool,
}

impl<E: Engine> Caller<E> for Call<'_, '_, E> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        if address >= ATTRIBUTES {
            let from = (address - ATTRIBUTES) as usize;
            let bytes = self.attributes.get(from..).and_then(|bytes| bytes.get(..into.len()));
            into.copy_from_slice(bytes.ok_or(Errno::EFAULT)?);
            return Ok(());
        }
        if self.of_client { self.client.caller.read(address, into) } else { (self.memory)(address, into) }
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Errno> {
        if address >= ATTRIBUTES { Ok(()) } else { self.client.caller.write(address, from) }
    }

    fn handle(&mut self, descriptor: i32) -> Result<Handle<E>, Errno> {
        match self.client.made.get(&descriptor) {
            Some(handle) => Ok(handle.clone()),
            None => self.client.caller.handle(descriptor),
        }
    }

    fn install(&mut self, handle: Handle<E>) -> Result<i32, Errno> {
        let taken: Vec<i32> = self.client.made.keys().copied().collect();
        let number = self.client.caller.reserve(&taken)?;
        self.client.made.insert(number, handle);
        Ok(number)
    }

    /// Nobody could read it.
    fn output(&mut self, _: &[u8]) -> Result<i32, Errno> {
        Err(Errno::EPERM)
    }

    fn socket(&mut self, descriptor: i32) -> Result<ClientSocket, Errno> {
        self.client.caller.socket(descriptor)
    }

    fn closed_sockets(&mut self) -> Vec<u64> {
        self.client.caller.closed_sockets()
    }

    fn pin(&mut self, _: Option<i32>, _: &[u8], _: Handle<E>) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }

    fn pinned(&mut self, _: Option<i32>, _: &[u8]) -> Result<Handle<E>, Errno> {
        Err(Errno::EPERM)
    }

    fn control_group(&mut self, descriptor: i32) -> Result<ControlGroup, Errno> {
        self.client.caller.control_group(descriptor)
    }

    fn network(&mut self, descriptor: Option<i32>) -> Result<u64, Errno> {
        self.client.caller.network(descriptor)
    }

    fn handle_of(&mut self, process: u32, descriptor: i32) -> Result<Handle<E>, Errno> {
        self.client.caller.handle_of(process, descriptor)
    }

    fn is_mapped_for_writing(&mut self, descriptor: i32) -> bool {
        self.client.caller.is_mapped_for_writing(descriptor)
    }

    fn user(&mut self) -> u32 {
        self.client.caller.user()
    }

    fn sees_addresses(&mut self) -> bool {
        self.client.caller.sees_addresses()
    }

    fn interrupted(&mut self) -> bool {
        self.client.caller.interrupted()
    }

    fn perf_event(&mut self, descriptor: i32) -> Result<E::PerfEvent, Errno> {
        self.client.caller.perf_event(descriptor)
    }
}

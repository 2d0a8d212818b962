//! The process that makes a call, as the call sees it.

use crate::engine::Engine;
use crate::errno::Errno;
use crate::object::Handle;
use crate::sockets::ClientSocket;
use alloc::string::String;
use alloc::vec::Vec;

/// A control group: its number, and those of the groups that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    path: Vec<u64>,
    id: u64,
}

impl ControlGroup {
    /// The group of that number. `outer`: the groups that it is in, from the root on.
    pub fn new(outer: &[u64], id: u64) -> Self {
        Self { path: [outer, &[id]].concat(), id }
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The numbers from the root to itself.
    pub fn path(&self) -> &[u64] {
        &self.path
    }
}

/// A process that makes a call: its memory, its descriptors, the files that it names.
///
/// Nothing that it gives is trusted. An implementation answers for the process alone: an address that the process
/// cannot access is [`Errno::EFAULT`].
pub trait Caller<E: Engine> {
    /// Copies bytes from the process.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`] if not all of them can be read.
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Errno>;

    /// Copies bytes to the process.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`] if not all of them can be written.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Errno>;

    /// What one of its descriptors refers to.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`] if it is not open; [`Errno::EINVAL`] if it refers to something else.
    fn handle(&mut self, descriptor: i32) -> Result<Handle<E>, Errno>;

    /// Gives it a descriptor, which is closed on exec. The process holds the object until it has closed all copies.
    ///
    /// # Errors
    ///
    /// [`Errno::EMFILE`] and what else opening a file can fail with.
    fn install(&mut self, handle: Handle<E>) -> Result<i32, Errno>;

    /// Gives it a descriptor of a file with these bytes, at its beginning, which is closed on exec.
    ///
    /// # Errors
    ///
    /// [`Errno::EMFILE`] and what else opening a file can fail with.
    fn output(&mut self, bytes: &[u8]) -> Result<i32, Errno>;

    /// A number for a descriptor that [`Caller::install_at`] will install: not open, not soon another file's, none of
    /// those that are `taken`. Default: there is none.
    ///
    /// # Errors
    ///
    /// [`Errno::EMFILE`].
    fn reserve(&mut self, taken: &[i32]) -> Result<i32, Errno> {
        let _none_is_free = taken;
        Err(Errno::EMFILE)
    }

    /// The same as [`Caller::install`], with a reserved number.
    ///
    /// # Errors
    ///
    /// [`Errno::EMFILE`] if the number is open by now.
    fn install_at(&mut self, number: i32, handle: Handle<E>) -> Result<(), Errno> {
        let _nobody_reserved_it = (number, handle);
        Err(Errno::EMFILE)
    }

    /// Makes a file of the BPF file system that holds an object. `directory`: where relative paths begin, if not in the
    /// process's own directory.
    ///
    /// # Errors
    ///
    /// Those of making a file; [`Errno::EPERM`] outside of a BPF file system.
    fn pin(&mut self, directory: Option<i32>, path: &[u8], handle: Handle<E>) -> Result<(), Errno>;

    /// The object that a file of the BPF file system holds.
    ///
    /// # Errors
    ///
    /// Those of opening a file; [`Errno::EACCES`] if it holds no object.
    fn pinned(&mut self, directory: Option<i32>, path: &[u8]) -> Result<Handle<E>, Errno>;

    /// The socket that a descriptor refers to. Its end is told by [`Caller::closed_sockets`], or by the server of the
    /// caller to `System::end_socket`, but not before this call is over. Default: no descriptor refers to one.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`] if it is not open; [`Errno::ENOTSOCK`] if it refers to something else.
    fn socket(&mut self, descriptor: i32) -> Result<ClientSocket, Errno> {
        match self.handle(descriptor) {
            Err(Errno::EBADF) => Err(Errno::EBADF),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    /// The cookies of sockets that [`Caller::socket`] has given to earlier calls, of this caller or others, and that
    /// are closed by now. Asked before elements are looked at. Default: there are none.
    fn closed_sockets(&mut self) -> Vec<u64> {
        Vec::new()
    }

    /// The control group whose directory a descriptor refers to.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`] if it is not open or no such thing.
    fn control_group(&mut self, descriptor: i32) -> Result<ControlGroup, Errno>;

    /// The number of the process that a descriptor of one (`pidfd_open`) refers to. Default: none does.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`] if it is not open or no such thing; [`Errno::ENOENT`] if the process has ended.
    fn process(&mut self, descriptor: i32) -> Result<u32, Errno> {
        let _no_such_thing = descriptor;
        Err(Errno::EBADF)
    }

    /// The number of the network namespace that a descriptor refers to; without one, of its own.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`] if it is not open; [`Errno::EINVAL`] if it refers to something else.
    fn network(&mut self, descriptor: Option<i32>) -> Result<u64, Errno>;

    /// What a descriptor of a process refers to, which may be another process.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`] if there is no such process; otherwise those of [`Caller::handle`].
    fn handle_of(&mut self, process: u32, descriptor: i32) -> Result<Handle<E>, Errno>;

    /// The number of its process, and that of its thread. Default: nobody knows.
    fn task(&mut self) -> Option<(u32, u32)> {
        None
    }

    /// Where the caller has mapped the file of a map's descriptor from its beginning on. Default: nowhere.
    fn mapped_at(&mut self, descriptor: i32) -> Option<u64> {
        let _no_file = descriptor;
        None
    }

    /// Whether a process can write to the memory of a map's descriptor through a mapping of its own. Asked before a map
    /// is frozen that programs may write as well. Default: none can.
    fn is_mapped_for_writing(&mut self, descriptor: i32) -> bool {
        let _no_file = descriptor;
        false
    }

    /// The number of its user, for what programs say of who has loaded them. Default: root's.
    fn user(&mut self) -> u32 {
        0
    }

    /// Whether it may see machine code and its addresses in the engine's memory, as a process that sees the kernel's
    /// (`CAP_SYSLOG`, `kptr_restrict`). Default: it may not.
    fn sees_addresses(&mut self) -> bool {
        false
    }

    /// Whether a signal waits for the thread that calls, or it has gone. Asked while the call takes long. Default: no.
    fn interrupted(&mut self) -> bool {
        false
    }

    /// The probe or tracepoint whose perf event a descriptor refers to. Default: none does.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`] if it is not open or no such thing.
    fn probe(&mut self, descriptor: i32) -> Result<E::Probe, Errno> {
        let _no_such_thing = descriptor;
        Err(Errno::EBADF)
    }

    /// The same of a descriptor of a process, which may be another process, with the identifier of the program that it
    /// has. Asked for what [`Caller::handle_of`] does not know. Default: there is none.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOTSUPP`] for other files.
    fn probe_of(&mut self, process: u32, descriptor: i32) -> Result<E::Probe, Errno> {
        let _no_such_thing = (process, descriptor);
        Err(Errno::ENOTSUPP)
    }

    /// The name under which the engine knows the binary of that path, for probes in it. Default: it knows none.
    ///
    /// # Errors
    ///
    /// Those of a look at the file; [`Errno::EBADF`] if it is no ordinary file; [`Errno::EOPNOTSUPP`] if the engine
    /// does not know it.
    fn binary(&mut self, path: &[u8]) -> Result<String, Errno> {
        let _no_such_thing = path;
        Err(Errno::ENOENT)
    }

    /// Whether there is a process of that number. Default: there is none.
    fn has_process(&mut self, process: u32) -> bool {
        let _there_is_none = process;
        false
    }

    /// The perf event that a descriptor refers to. Without perf events, none does.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`] if it is not open or no such thing.
    fn perf_event(&mut self, descriptor: i32) -> Result<E::PerfEvent, Errno> {
        let _no_such_thing = descriptor;
        Err(Errno::EBADF)
    }
}

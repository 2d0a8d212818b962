//! Maps that other processes map, as they do with a kernel.

use rustix::fd::BorrowedFd;

use skep_abi::MapFlags;

use super::Map;
use crate::hash::SharedTable;
use crate::ring::pages::Pages;
use crate::table::Table;

/// Where the values of an array are in the file that it shares.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SharedValues<'a> {
    /// The file.
    pub file: BorrowedFd<'a>,
    /// Bytes from one value to the next: a multiple of 8. The padding of a value is zero.
    pub stride: usize,
    /// Bytes from the values of one CPU to those of the next; 0 if all CPUs share them.
    pub cpu_stride: usize,
    /// How many CPUs have values of their own; 1 if all share them.
    pub cpus: u32,
}

/// For other processes.
impl Map {
    /// The file with the memory of a map that was made for it ([`create_shared_in`](Self::create_shared_in)): an array
    /// with `BPF_F_MMAPABLE`, a ring buffer, a user ring buffer or an arena.
    ///
    /// Its contents are those that Linux's mmap(2) of such a map shows, from offset 0: values, each at a multiple of 8
    /// bytes, or a page with the consumer's position, one with the producer's, and the ring. Any process that has the
    /// file may write to it, and programs see that as a change by the host. Map it once for each part: the ring is not
    /// there a second time behind its end, but each record is in one piece. An arena's file is its pages; say
    /// [where the process has mapped them](super::Arena::set_start) before programs are loaded.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.table {
            Table::Array(array) if self.def.flags.contains(MapFlags::MMAPABLE) => array.block().file(),
            Table::Array(_) => None,
            Table::Arena(arena) => arena.file(),
            _ => self.pages()?.file(),
        }
    }

    /// The values of an array that was made for other processes ([`create_shared_in`](Self::create_shared_in)), per CPU
    /// or not, unless they have special fields. In contrast to [`file`](Self::file) no flag of the map asks for it: it
    /// is for processes that stand for the host.
    ///
    /// What holds for the host's own changes is up to them: they write whole words, never to a
    /// [frozen](Self::is_frozen) map. Of a map that programs only read they must have no mapping by which they could
    /// write, or it cannot be frozen.
    pub fn shared_values(&self) -> Option<SharedValues<'_>> {
        let Table::Array(array) = &self.table else { return None };
        let values = array.values();
        Some(SharedValues {
            file: array.block().file()?,
            stride: array.stride(),
            cpu_stride: values.cpu_stride(),
            cpus: values.copies(),
        })
    }

    /// Whether other processes can look up in the map by themselves: it has [values](Self::shared_values) or a
    /// [table](Self::shared_table) for them.
    pub fn is_shared(&self) -> bool {
        match &self.table {
            Table::Array(array) => array.block().file().is_some(),
            Table::Hash(table) => table.is_shared(),
            _ => false,
        }
    }

    /// The hash table that was made for other processes ([`create_shared_in`](Self::create_shared_in)), per CPU or not,
    /// LRU or not, unless values have special fields or the host's descriptors were used up.
    ///
    /// They only read: the files give nobody a mapping for writing. From the first call on, memory of free elements is
    /// kept rather than returned to the system. Readers see addresses of this process.
    pub fn shared_table(&self) -> Option<SharedTable<'_>> {
        let Table::Hash(table) = &self.table else { return None };
        table.shared()
    }

    /// The event descriptor (eventfd(2)) that becomes readable when there are records in the ring buffer's
    /// [file](Self::file), or room in a user ring buffer's. It is written as often as a kernel would wake a process
    /// that waits for the map: by `BPF_RB_NO_WAKEUP`, never; by `BPF_RB_FORCE_WAKEUP`, always; otherwise when the
    /// process has read all records before.
    ///
    /// It is for epoll(7) with `EPOLLET`: nobody reads it, and each write is an event.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.pages().map(Pages::bell)
    }

    /// Rings the [bell](Self::bell) again if the other process has not read all records that it was rung for. Returns
    /// whether that is so.
    ///
    /// A process may look for records just before one becomes visible to it, and sleep just after; with a kernel, the
    /// next look of epoll_wait(2) would find the record. So do this every now and then.
    pub fn remind(&self) -> bool {
        self.ring().and_then(|ring| ring.mirror()).is_some_and(|mirror| mirror.pages().remind())
    }

    fn pages(&self) -> Option<&Pages> {
        match &self.table {
            Table::Ring(ring) => Some(ring.mirror()?.pages()),
            Table::UserRing(user) => user.pages(),
            _ => None,
        }
    }
}

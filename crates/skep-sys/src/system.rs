//! The system call: which command does what.

use crate::attach::Places;
use crate::attr::{Attr, ById, MapById, NextId, ObjectPath, TokenCreate};
use crate::btf::BtfObject;
use crate::caller::Caller;
use crate::command::Command;
use crate::engine::Engine;
use crate::errno::Errno;
use crate::ids::Ids;
use crate::links::LinkObject;
use crate::maps::{BatchOf, MapObject, access_of};
use crate::object::{Handle, Object};
use crate::programs::{ProgramObject, read_text};
use crate::sockets::Taken;
use crate::stats::Statistics;
use alloc::sync::Arc;
use core::mem::offset_of;
use lock_api::Mutex;

/// The most bytes of a path, with its end.
const PATH: usize = 4096;
/// `BPF_F_PATH_FD`.
const F_PATH_FD: u32 = 1 << 14;
/// `BPF_F_RDONLY` and `BPF_F_WRONLY`.
const F_ACCESS: u32 = 1 << 3 | 1 << 4;

/// A system that answers bpf(2): an engine, and the objects that processes have made. Cheap to clone; clones are the
/// same system.
pub struct System<E: Engine> {
    shared: Arc<Shared<E>>,
}

/// What handles share with the system.
pub(crate) struct Shared<E: Engine> {
    pub(crate) engine: E,
    pub(crate) registry: Mutex<E::Lock, Registry<E>>,
    /// What is attached. Whoever locks a link or the registry as well locks this first.
    pub(crate) places: Mutex<E::Lock, Places<E>>,
    pub(crate) stats: Statistics,
    /// The programs that callers' sockets have of maps. Locked last.
    pub(crate) taken: Mutex<E::Lock, Taken>,
    /// The kernel's types, the first of all types.
    pub(crate) kernel_types: Option<Arc<BtfObject<E>>>,
}

/// All objects by their identifiers.
pub(crate) struct Registry<E: Engine> {
    pub(crate) maps: Ids<MapObject<E>>,
    pub(crate) programs: Ids<ProgramObject<E>>,
    pub(crate) types: Ids<BtfObject<E>>,
    pub(crate) links: Ids<LinkObject<E>>,
}

impl<E: Engine> Clone for System<E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<E: Engine> System<E> {
    /// A system without objects but the kernel's types, if the engine has some.
    pub fn new(engine: E) -> Self {
        let mut registry =
            Registry { maps: Ids::new(), programs: Ids::new(), types: Ids::new(), links: Ids::new() };
        let kernel_types = engine.kernel_types().map(|types| {
            let id = registry.types.reserve();
            let object = Arc::new(BtfObject::of_kernel(id, types));
            registry.types.insert(id, &object);
            object
        });
        let (registry, places) = (Mutex::new(registry), Mutex::new(Places::new()));
        let (stats, taken) = (Statistics::default(), Mutex::new(Taken::new()));
        Self { shared: Arc::new(Shared { engine, registry, places, stats, taken, kernel_types }) }
    }

    /// Its engine.
    pub fn engine(&self) -> &E {
        &self.shared.engine
    }

    pub(crate) fn shared(&self) -> Arc<Shared<E>> {
        Arc::clone(&self.shared)
    }

    /// Changes the tables of identifiers, for a moment.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Registry<E>) -> T) -> T {
        change(&mut self.shared.registry.lock())
    }

    /// Does what `bpf(command, attributes, size)` asks. Any number of threads may call it at the same time.
    ///
    /// # Errors
    ///
    /// What Linux 6.12 answers to the same call, for callers with all capabilities.
    pub fn call(
        &self,
        caller: &mut impl Caller<E>,
        command: u32,
        attributes: u64,
        size: u32,
    ) -> Result<i64, Errno> {
        let attr = Attr::read(caller, attributes, size)?;
        match Command::from_number(command).ok_or(Errno::EINVAL)? {
            Command::MapCreate => self.map_create(caller, &attr),
            Command::MapLookupElem => self.map_lookup(caller, &attr),
            Command::MapUpdateElem => self.map_update(caller, &attr),
            Command::MapDeleteElem => self.map_delete(caller, &attr),
            Command::MapGetNextKey => self.map_next_key(caller, &attr),
            Command::MapLookupAndDeleteElem => self.map_take(caller, &attr),
            Command::MapFreeze => self.map_freeze(caller, &attr),
            Command::MapLookupBatch => self.map_batch(caller, &attr, BatchOf::Lookup),
            Command::MapLookupAndDeleteBatch => self.map_batch(caller, &attr, BatchOf::Take),
            Command::MapUpdateBatch => self.map_batch(caller, &attr, BatchOf::Update),
            Command::MapDeleteBatch => self.map_batch(caller, &attr, BatchOf::Delete),
            Command::ProgLoad => self.prog_load(caller, &attr),
            Command::ProgTestRun => self.test_run(caller, &attr),
            Command::ProgBindMap => self.prog_bind_map(caller, &attr),
            Command::BtfLoad => self.btf_load(caller, &attr),
            Command::ObjPin => self.pin(caller, &attr),
            Command::ObjGet => self.get(caller, &attr),
            Command::ObjGetInfoByFd => self.info_by_fd(caller, &attr),
            Command::ProgGetNextId => self.next_id(caller, &attr, |all, id| all.programs.after(id)),
            Command::MapGetNextId => self.next_id(caller, &attr, |all, id| all.maps.after(id)),
            Command::BtfGetNextId => self.next_id(caller, &attr, |all, id| all.types.after(id)),
            Command::LinkGetNextId => self.next_id(caller, &attr, |all, id| all.links.after(id)),
            Command::ProgGetFdById => {
                self.by_id(caller, &attr, |all, id| all.programs.get(id).map(Object::Program))
            }
            Command::BtfGetFdById => self.by_id(caller, &attr, |all, id| all.types.get(id).map(Object::Btf)),
            Command::LinkGetFdById => {
                self.by_id(caller, &attr, |all, id| all.links.get(id).map(Object::Link))
            }
            Command::MapGetFdById => self.map_by_id(caller, &attr),
            Command::RawTracepointOpen => self.raw_tracepoint_open(caller, &attr),
            Command::LinkCreate => self.link_create(caller, &attr),
            Command::LinkUpdate => self.link_update(caller, &attr),
            Command::LinkDetach => self.link_detach(caller, &attr),
            Command::EnableStats => self.enable_stats(caller, &attr),
            Command::TokenCreate => {
                let create: TokenCreate = attr.get()?;
                if create.flags != 0 {
                    return Err(Errno::EINVAL);
                }
                match caller.handle(create.bpffs_fd) {
                    Err(Errno::EBADF) => Err(Errno::EBADF),
                    // As for a caller without capabilities over the file system's user namespace.
                    _ => Err(Errno::EPERM),
                }
            }
            Command::IterCreate => self.iter_create(caller, &attr),
            Command::ProgAttach => self.prog_attach(caller, &attr),
            Command::ProgDetach => self.prog_detach(caller, &attr),
            Command::ProgQuery => self.prog_query(caller, &attr),
            Command::TaskFdQuery => self.task_fd_query(caller, &attr),
        }
    }

    fn pin(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let (fields, directory) = path_fields(attr, F_PATH_FD)?;
        // Linux tries it as each kind of object, and says of none why it is not one.
        let handle = caller.handle(fields.bpf_fd).or(Err(Errno::EINVAL))?;
        if matches!(handle.object(), Object::Btf(_) | Object::Stats(_)) {
            return Err(Errno::EINVAL);
        }
        let path = read_path(caller, fields.pathname)?;
        caller.pin(directory, &path, handle)?;
        Ok(0)
    }

    fn get(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let (fields, directory) = path_fields(attr, F_PATH_FD | F_ACCESS)?;
        if fields.bpf_fd != 0 {
            return Err(Errno::EINVAL);
        }
        let access = access_of(fields.file_flags)?;
        let path = read_path(caller, fields.pathname)?;
        let handle = caller.pinned(directory, &path)?;
        // A pin lets its reader do everything; a request may ask for less.
        let handle = handle.with_access(access);
        caller.install(handle).map(i64::from)
    }

    fn next_id(
        &self,
        caller: &mut impl Caller<E>,
        attr: &Attr,
        after: fn(&Registry<E>, u32) -> Option<u32>,
    ) -> Result<i64, Errno> {
        let fields: NextId = attr.get()?;
        if fields.start_id >= i32::MAX as u32 {
            return Err(Errno::EINVAL);
        }
        let next = self.with(|all| after(all, fields.start_id)).ok_or(Errno::ENOENT)?;
        attr.put(caller, offset_of!(NextId, next_id), &next.to_ne_bytes())?;
        Ok(0)
    }

    fn by_id(
        &self,
        caller: &mut impl Caller<E>,
        attr: &Attr,
        find: fn(&Registry<E>, u32) -> Option<Object<E>>,
    ) -> Result<i64, Errno> {
        let fields: ById = attr.get()?;
        let object = self.with(|all| find(all, fields.id)).ok_or(Errno::ENOENT)?;
        caller.install(Handle::new(self.shared(), object)).map(i64::from)
    }

    fn map_by_id(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let fields: MapById = attr.get()?;
        if fields.open_flags & !F_ACCESS != 0 {
            return Err(Errno::EINVAL);
        }
        let access = access_of(fields.open_flags)?;
        let map = self.with(|all| all.maps.get(fields.map_id)).ok_or(Errno::ENOENT)?;
        caller.install(Handle::with(self.shared(), Object::Map(map), access)).map(i64::from)
    }
}

/// The fields of a command about a path, and the directory in which it begins.
fn path_fields(attr: &Attr, flags: u32) -> Result<(ObjectPath, Option<i32>), Errno> {
    let fields: ObjectPath = attr.get_padded(offset_of!(ObjectPath, unused))?;
    if fields.file_flags & !flags != 0 {
        return Err(Errno::EINVAL);
    }
    match fields.file_flags & F_PATH_FD {
        0 if fields.path_fd != 0 => Err(Errno::EINVAL),
        0 => Ok((fields, None)),
        _ => Ok((fields, Some(fields.path_fd))),
    }
}

fn read_path<E: Engine>(caller: &mut impl Caller<E>, address: u64) -> Result<alloc::vec::Vec<u8>, Errno> {
    let path = read_text(caller, address, PATH)?;
    match path.len() {
        0 => Err(Errno::ENOENT),
        PATH.. => Err(Errno::ENAMETOOLONG),
        _ => Ok(path),
    }
}

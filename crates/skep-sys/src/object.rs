//! Objects: what descriptors refer to.

use crate::btf::BtfObject;
use crate::engine::Engine;
use crate::errno::Errno;
use crate::links::LinkObject;
use crate::maps::MapObject;
use crate::programs::ProgramObject;
use crate::stats::StatsObject;
use crate::system::Shared;
use alloc::sync::Arc;

/// An object of the system call. It lives as long as somebody holds it: a descriptor, a file, another object.
pub enum Object<E: Engine> {
    /// A map.
    Map(Arc<MapObject<E>>),
    /// A program.
    Program(Arc<ProgramObject<E>>),
    /// Types.
    Btf(Arc<BtfObject<E>>),
    /// The attachment of a program.
    Link(Arc<LinkObject<E>>),
    /// Statistics that are collected as long as somebody holds it.
    Stats(Arc<StatsObject<E>>),
}

/// What may be done through a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Elements can be read.
    pub read: bool,
    /// Elements can be written.
    pub write: bool,
}

/// An object, and what may be done with it. Whoever lets processes reach an object holds it by one: a descriptor, a
/// file.
pub struct Handle<E: Engine> {
    object: Object<E>,
    access: Access,
    shared: Arc<Shared<E>>,
}

impl Access {
    /// Everything.
    pub const ALL: Self = Self { read: true, write: true };
}

impl<E: Engine> Object<E> {
    /// The name that Linux gives the file of such an object, which clients read in `/proc/self/fd`.
    pub const fn file_name(&self) -> &'static str {
        match self {
            Self::Map(_) => "bpf-map",
            Self::Program(_) => "bpf-prog",
            Self::Btf(_) => "btf",
            Self::Link(_) => "bpf_link",
            Self::Stats(_) => "bpf-stats",
        }
    }

    /// Its number among objects of its kind.
    pub fn id(&self) -> u32 {
        match self {
            Self::Map(map) => map.id(),
            Self::Program(program) => program.id(),
            Self::Btf(btf) => btf.id(),
            Self::Link(link) => link.id(),
            Self::Stats(stats) => stats.id(),
        }
    }
}

impl<E: Engine> Clone for Object<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Map(map) => Self::Map(Arc::clone(map)),
            Self::Program(program) => Self::Program(Arc::clone(program)),
            Self::Btf(btf) => Self::Btf(Arc::clone(btf)),
            Self::Link(link) => Self::Link(Arc::clone(link)),
            Self::Stats(stats) => Self::Stats(Arc::clone(stats)),
        }
    }
}

impl<E: Engine> Clone for Handle<E> {
    fn clone(&self) -> Self {
        Self::with(Arc::clone(&self.shared), self.object.clone(), self.access)
    }
}

impl<E: Engine> Drop for Handle<E> {
    fn drop(&mut self) {
        let Object::Map(map) = &self.object else { return };
        if !map.end_use() {
            return;
        }
        // Nobody can reach it but programs, which may be those that it holds.
        self.shared.end_sockets(map.id());
        for key in map.take_programs() {
            // It may be empty already: another process may have found the array by its identifier.
            let _emptied = self.shared.engine.delete(map.map(), &key);
        }
    }
}

impl<E: Engine> Handle<E> {
    pub(crate) fn new(shared: Arc<Shared<E>>, object: Object<E>) -> Self {
        Self::with(shared, object, Access::ALL)
    }

    pub(crate) fn with(shared: Arc<Shared<E>>, object: Object<E>, access: Access) -> Self {
        if let Object::Map(map) = &object {
            map.begin_use();
        }
        Self { object, access, shared }
    }

    /// The object.
    pub const fn object(&self) -> &Object<E> {
        &self.object
    }

    /// What may be done. Only maps distinguish that.
    pub const fn access(&self) -> Access {
        self.access
    }

    /// The same object with another access, for a descriptor that a process has opened again.
    #[must_use]
    pub fn with_access(&self, access: Access) -> Self {
        Self::with(Arc::clone(&self.shared), self.object.clone(), access)
    }

    /// The map; [`Errno::EINVAL`] for other objects.
    pub(crate) fn map(self) -> Result<(Arc<MapObject<E>>, Access), Errno> {
        match &self.object {
            Object::Map(map) => Ok((Arc::clone(map), self.access)),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn program(self) -> Result<Arc<ProgramObject<E>>, Errno> {
        match &self.object {
            Object::Program(program) => Ok(Arc::clone(program)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Types of a program; [`Errno::EACCES`] for the kernel's.
    pub(crate) fn btf(self) -> Result<Arc<BtfObject<E>>, Errno> {
        match &self.object {
            Object::Btf(btf) if btf.is_kernel() => Err(Errno::EACCES),
            Object::Btf(btf) => Ok(Arc::clone(btf)),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn link(self) -> Result<Arc<LinkObject<E>>, Errno> {
        match &self.object {
            Object::Link(link) => Ok(Arc::clone(link)),
            _ => Err(Errno::EINVAL),
        }
    }
}

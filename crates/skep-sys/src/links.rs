//! Links: attachments of programs as objects.

use crate::attr::{Attr, LinkCreate, LinkDetach, LinkUpdate, RawTracepoint};
use crate::caller::Caller;
use crate::engine::{Attachment, Engine};
use crate::errno::Errno;
use crate::object::{Handle, Object};
use crate::programs::{ProgramObject, read_text};
use crate::system::System;
use alloc::string::String;
use alloc::sync::Arc;
use lock_api::Mutex;

/// Numbers of types of attachment.
mod attach {
    pub(super) const FLOW_DISSECTOR: u32 = 17;
    pub(super) const SK_LOOKUP: u32 = 36;
    pub(super) const XDP: u32 = 37;
    pub(super) const NETFILTER: u32 = 45;
    pub(super) const TCX_INGRESS: u32 = 46;
    pub(super) const TCX_EGRESS: u32 = 47;
    /// Of control groups.
    pub(super) const CGROUP: &[u32] = &[
        0, 1, 2, 3, 6, 8, 9, 10, 11, 12, 13, 14, 15, 18, 19, 20, 21, 22, 29, 30, 31, 32, 34, 49, 50, 51, 52,
        53,
    ];
}

/// Numbers of types of programs.
const SCHED_CLS_TYPE: u32 = 3;
const XDP_TYPE: u32 = 6;
/// `BPF_F_REPLACE`.
const F_REPLACE: u32 = 1 << 2;
/// The most bytes of the name of a tracepoint.
const TRACEPOINT: usize = 127;

/// An attachment of a program. It ends when nobody holds it.
pub struct LinkObject<E: Engine> {
    id: u32,
    attachment: Attachment,
    state: Mutex<E::Lock, State<E>>,
}

struct State<E: Engine> {
    /// `None` after it was detached.
    link: Option<E::Link>,
    program: Arc<ProgramObject<E>>,
}

impl<E: Engine> LinkObject<E> {
    /// Its identifier.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Where it is.
    pub fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    pub(crate) fn program_id(&self) -> u32 {
        self.state.lock().program.id()
    }

    /// Whether it has not been detached.
    pub(crate) fn is_attached(&self) -> bool {
        self.state.lock().link.is_some()
    }

    /// Its number in Linux's `enum bpf_link_type`.
    pub(crate) fn kind(&self) -> u32 {
        match &self.attachment {
            Attachment::RawTracepoint(_) => 1,
            Attachment::ControlGroup { .. } => 3,
            Attachment::Namespace { .. } => 5,
            Attachment::Device { attach_type: attach::XDP, .. } => 6,
            Attachment::Netfilter { .. } => 10,
            Attachment::Device { .. } => 11,
        }
    }
}

impl<E: Engine> System<E> {
    pub(crate) fn link_create(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let create: LinkCreate = attr.get()?;
        let program = caller.handle(create.prog_fd)?.program()?;
        let attachment = match create.attach_type {
            attach_type @ (attach::XDP | attach::TCX_INGRESS | attach::TCX_EGRESS) => {
                let wanted = if attach_type == attach::XDP { XDP_TYPE } else { SCHED_CLS_TYPE };
                if program.program_type() != wanted {
                    return Err(Errno::EINVAL);
                }
                if attach_type != attach::XDP && (create.more[0] != 0 || create.flags != 0) {
                    // A place relative to others.
                    return Err(Errno::EINVAL);
                }
                Attachment::Device { index: create.target as u32, attach_type, flags: create.flags }
            }
            attach_type @ (attach::FLOW_DISSECTOR | attach::SK_LOOKUP) => {
                if create.flags != 0 {
                    return Err(Errno::EINVAL);
                }
                Attachment::Namespace { attach_type }
            }
            attach::NETFILTER => {
                if create.flags != 0 || create.more[3] != 0 {
                    return Err(Errno::EINVAL);
                }
                let [family, hook, priority, ..] = create.more;
                Attachment::Netfilter { family, hook, priority: priority as i32 }
            }
            attach_type if attach::CGROUP.contains(&attach_type) => {
                if create.flags != 0 {
                    return Err(Errno::EINVAL);
                }
                Attachment::ControlGroup { id: caller.control_group(create.target)?, attach_type }
            }
            _ => return Err(Errno::EINVAL),
        };
        self.link(caller, program, attachment)
    }

    pub(crate) fn raw_tracepoint_open(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let open: RawTracepoint = attr.get()?;
        let program = caller.handle(open.prog_fd)?.program()?;
        if open.name == 0 {
            return Err(Errno::EINVAL);
        }
        let name = String::from_utf8(read_text(caller, open.name, TRACEPOINT)?).map_err(|_| Errno::ENOENT)?;
        self.link(caller, program, Attachment::RawTracepoint(name))
    }

    fn link(
        &self,
        caller: &mut impl Caller<E>,
        program: Arc<ProgramObject<E>>,
        attachment: Attachment,
    ) -> Result<i64, Errno> {
        let link = self.engine().attach(program.program(), &attachment)?;
        let id = self.with(|registry| registry.links.reserve());
        let state = Mutex::new(State { link: Some(link), program });
        let object = Arc::new(LinkObject { id, attachment, state });
        self.with(|registry| registry.links.insert(id, &object));
        caller.install(Handle::new(self.shared(), Object::Link(object))).map(i64::from)
    }

    pub(crate) fn link_update(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let update: LinkUpdate = attr.get()?;
        if update.flags & !F_REPLACE != 0 {
            return Err(Errno::EINVAL);
        }
        let link = caller.handle(update.link_fd)?.link()?;
        let new = caller.handle(update.new_fd)?.program()?;
        let old = match (update.flags & F_REPLACE, update.old_fd) {
            (0, 0) => None,
            (0, _) => return Err(Errno::EINVAL),
            (_, descriptor) => Some(caller.handle(descriptor)?.program()?),
        };
        let mut state = link.state.lock();
        if old.is_some_and(|old| !Arc::ptr_eq(&old, &state.program)) {
            return Err(Errno::EPERM);
        }
        let attached = state.link.as_ref().ok_or(Errno::ENOLINK)?;
        self.engine().replace(attached, new.program())?;
        let before = core::mem::replace(&mut state.program, new);
        drop(state);
        drop(before);
        Ok(0)
    }

    pub(crate) fn link_detach(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let detach: LinkDetach = attr.get()?;
        let link = caller.handle(detach.link_fd)?.link()?;
        let ended = link.state.lock().link.take();
        drop(ended);
        Ok(0)
    }
}

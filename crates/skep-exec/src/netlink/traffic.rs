//! Traffic control, as far as it is about programs: the queueing discipline `clsact`, and filters of kind `bpf` in it
//! that decide themselves (direct action).
//!
//! Filters of a direction run by priority, then in the order in which they came. The system runs them behind programs
//! of tcx.

use super::link::visible;
use super::message::{self, Answer, Attributes, Request, u32_at};
use super::{Caller, Network, State};
use skep::sys::SysEngine;
use skep_sys::{Engine, Errno, Handle, Object};

const NEWQDISC: u16 = 36;
const NEWTFILTER: u16 = 44;
const DELTFILTER: u16 = 45;
/// The size of `struct tcmsg`.
const INFO: usize = 20;
/// `TC_H_CLSACT`, which is the parent of `clsact`, whose own handle has the same upper half.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// The parents of filters, and the types of attachment.
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;
/// `TCA_KIND`, `TCA_OPTIONS`, `TCA_BPF_*`
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const BPF_FD: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_FLAGS: u16 = 8;
const BPF_TAG: u16 = 10;
const BPF_ID: u16 = 11;
/// `TCA_BPF_FLAG_ACT_DIRECT`
const DIRECT: u32 = 1;
/// `BPF_PROG_TYPE_SCHED_CLS`
const SCHED_CLS: u32 = 3;
/// What a filter without a priority gets, if it is the first.
const FIRST_PRIORITY: u16 = 0xc000;
/// The longest name of a filter, with the zero.
const NAME: usize = 256;

/// A filter.
#[derive(Clone)]
pub(super) struct Filter {
    device: u32,
    parent: u32,
    priority: u16,
    /// As in the message: of the network's byte order.
    protocol: u16,
    handle: u32,
    name: Option<String>,
    program: Handle<SysEngine>,
}

/// What a request is about.
#[derive(Clone, Copy)]
struct About<'a> {
    device: u32,
    handle: u32,
    parent: u32,
    priority: u16,
    protocol: u16,
    attributes: Attributes<'a>,
}

impl<'a> About<'a> {
    fn of(request: &Request<'a>) -> Result<Self, Errno> {
        let number = |at| u32_at(request.body, at).ok_or(Errno::EINVAL);
        let info = number(16)?;
        Ok(Self {
            device: number(4)?,
            handle: number(8)?,
            parent: number(12)?,
            priority: (info >> 16) as u16,
            protocol: info as u16,
            attributes: Attributes::behind(request.body, INFO),
        })
    }

    fn is_of_kind(&self, kind: &[u8]) -> bool {
        self.attributes.text(KIND) == Some(kind)
    }
}

fn info(device: u32, handle: u32, parent: u32, more: u32) -> [u8; INFO] {
    let mut info = [0; INFO];
    for (at, number) in [(4, device), (8, handle), (12, parent), (16, more)] {
        info[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    info
}

impl Network {
    fn has_device(&self, index: u32) -> Result<(), Errno> {
        visible(&self.world.machine()).find(|device| device.index == index).map(drop).ok_or(Errno::ENODEV)
    }

    /// A queueing discipline is added.
    pub(super) fn new_discipline(&self, request: &Request<'_>) -> Result<(), Errno> {
        let about = About::of(request)?;
        self.has_device(about.device)?;
        if !about.is_of_kind(b"clsact") || about.parent != CLSACT {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut state = self.state.lock();
        if state.clsact.contains(&about.device) {
            let exclusive = request.flags & message::EXCLUSIVE != 0;
            return if exclusive { Err(Errno::EEXIST) } else { Ok(()) };
        }
        if request.flags & message::CREATE == 0 {
            return Err(Errno::ENOENT);
        }
        state.clsact.insert(about.device);
        Ok(())
    }

    /// A queueing discipline is removed, with its filters.
    pub(super) fn delete_discipline(
        &self,
        caller: &Caller<'_, '_>,
        request: &Request<'_>,
    ) -> Result<(), Errno> {
        let about = About::of(request)?;
        self.has_device(about.device)?;
        let mut state = self.state.lock();
        if about.parent != CLSACT || !state.clsact.remove(&about.device) {
            return Err(Errno::ENOENT);
        }
        let ended = take(&mut state, caller, about.device, |filter| filter.device == about.device)?;
        drop(state);
        drop(ended);
        Ok(())
    }

    /// Tells of disciplines.
    pub(super) fn disciplines(&self, request: &Request<'_>, answer: &mut Answer) -> Result<(), Errno> {
        let about = About::of(request)?;
        let state = self.state.lock();
        for device in state.clsact.iter().filter(|device| about.device == 0 || **device == about.device) {
            let message = answer.begin(request, NEWQDISC, &info(*device, CLSACT_HANDLE, CLSACT, 1));
            answer.text(KIND, "clsact");
            answer.end(message);
        }
        Ok(())
    }

    /// A filter is added or replaced.
    pub(super) fn new_filter(
        &self,
        caller: &mut Caller<'_, '_>,
        request: &Request<'_>,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let about = About::of(request)?;
        self.has_device(about.device)?;
        if !about.is_of_kind(b"bpf") {
            return Err(Errno::EOPNOTSUPP);
        }
        let options = about.attributes.nested(OPTIONS).ok_or(Errno::EINVAL)?;
        let (flags, descriptor) = (options.number(BPF_FLAGS).unwrap_or(0), options.number(BPF_FD));
        if flags & !DIRECT != 0 {
            return Err(Errno::EINVAL);
        }
        // Classic filters, and those that name a class, have no place in the world.
        let descriptor = descriptor.filter(|_| flags & DIRECT != 0).ok_or(Errno::EOPNOTSUPP)?;
        let name = options.text(BPF_NAME).map(|name| String::from_utf8_lossy(name).into_owned());
        if name.as_ref().is_some_and(|name| name.len() >= NAME) {
            return Err(Errno::EINVAL);
        }
        let program = caller.program(descriptor as i32, SCHED_CLS)?;
        let mut state = self.state.lock();
        check_parent(&state, &about)?;
        let priority = match about.priority {
            0 if request.flags & message::CREATE == 0 => return Err(Errno::ENOENT),
            0 => free_priority(&state, &about),
            priority => priority,
        };
        let about = About { priority, ..about };
        let found = state.filters.iter().position(|filter| about.handle != 0 && is_it(filter, &about));
        let at = match found {
            Some(_) if request.flags & message::EXCLUSIVE != 0 => return Err(Errno::EEXIST),
            None if request.flags & message::CREATE == 0 => return Err(Errno::ENOENT),
            Some(at) => {
                let mut filters = state.filters.clone();
                (filters[at].name, filters[at].program) = (name, program);
                set(&mut state, caller, filters, (about.device, about.parent))?;
                at
            }
            None => insert(&mut state, caller, &about, (name, program))?,
        };
        if request.flags & message::ECHO != 0 {
            tell(caller, &state.filters[at], request, NEWTFILTER, answer);
        }
        Ok(())
    }

    /// One filter is removed, all of a priority, or all of a direction.
    pub(super) fn delete_filter(
        &self,
        caller: &Caller<'_, '_>,
        request: &Request<'_>,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let about = About::of(request)?;
        self.has_device(about.device)?;
        let mut state = self.state.lock();
        check_parent(&state, &about)?;
        let all = about.priority == 0;
        if all && about.handle != 0 {
            return Err(Errno::ENOENT);
        }
        let of_direction = |filter: &Filter| filter.device == about.device && filter.parent == about.parent;
        let ended = take(&mut state, caller, about.device, |filter| {
            of_direction(filter)
                && (all || (about.handle == 0 && is_of_priority(filter, &about)) || is_it(filter, &about))
        })?;
        drop(state);
        if ended.is_empty() && !all {
            return Err(Errno::ENOENT);
        }
        if request.flags & message::ECHO != 0 {
            ended.iter().for_each(|filter| tell(caller, filter, request, DELTFILTER, answer));
        }
        Ok(())
    }

    /// Tells of filters.
    pub(super) fn filters(
        &self,
        caller: &Caller<'_, '_>,
        request: &Request<'_>,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let about = About::of(request)?;
        self.has_device(about.device)?;
        let state = self.state.lock();
        if request.flags & message::DUMP == message::DUMP {
            let asked = |filter: &&Filter| {
                let parent = about.parent == 0 || filter.parent == about.parent;
                filter.device == about.device
                    && parent
                    && (about.priority == 0 || filter.priority == about.priority)
            };
            state
                .filters
                .iter()
                .filter(asked)
                .for_each(|filter| tell(caller, filter, request, NEWTFILTER, answer));
            return Ok(());
        }
        check_parent(&state, &about)?;
        let filter = state.filters.iter().find(|filter| is_it(filter, &about)).ok_or(Errno::ENOENT)?;
        tell(caller, filter, request, NEWTFILTER, answer);
        Ok(())
    }
}

/// Filters are in one of the directions of a `clsact` that is there.
fn check_parent(state: &State, about: &About<'_>) -> Result<(), Errno> {
    let known = matches!(about.parent, INGRESS | EGRESS);
    if known && state.clsact.contains(&about.device) { Ok(()) } else { Err(Errno::EINVAL) }
}

fn is_of_priority(filter: &Filter, about: &About<'_>) -> bool {
    (filter.device, filter.parent, filter.priority) == (about.device, about.parent, about.priority)
}

fn is_it(filter: &Filter, about: &About<'_>) -> bool {
    is_of_priority(filter, about) && filter.handle == about.handle
}

/// A priority before all that are there.
fn free_priority(state: &State, about: &About<'_>) -> u16 {
    let of_direction = |filter: &&Filter| filter.device == about.device && filter.parent == about.parent;
    let least = state.filters.iter().filter(of_direction).map(|filter| filter.priority).min();
    least.map_or(FIRST_PRIORITY, |least| least.saturating_sub(1).max(1))
}

/// Adds a filter at its place. Returns where.
fn insert(
    state: &mut State,
    caller: &Caller<'_, '_>,
    about: &About<'_>,
    (name, program): (Option<String>, Handle<SysEngine>),
) -> Result<usize, Errno> {
    let same = |filter: &&Filter| is_of_priority(filter, about);
    if state.filters.iter().find(same).is_some_and(|filter| filter.protocol != about.protocol) {
        // A priority is of one protocol.
        return Err(Errno::EINVAL);
    }
    let used = |handle: u32| state.filters.iter().any(|filter| same(&filter) && filter.handle == handle);
    let handle = match about.handle {
        0 => (1..).find(|handle| !used(*handle)).ok_or(Errno::ENOSPC)?,
        handle => handle,
    };
    let key = |filter: &Filter| (filter.device, filter.parent, filter.priority);
    let at =
        state.filters.partition_point(|filter| key(filter) <= (about.device, about.parent, about.priority));
    let filter = Filter {
        device: about.device,
        parent: about.parent,
        priority: about.priority,
        protocol: about.protocol,
        handle,
        name,
        program,
    };
    let mut filters = state.filters.clone();
    filters.insert(at, filter);
    set(state, caller, filters, (about.device, about.parent))?;
    Ok(at)
}

/// Lets the filters of a direction be those that are among these, and remembers all of them.
fn set(
    state: &mut State,
    caller: &Caller<'_, '_>,
    filters: Vec<Filter>,
    (device, parent): (u32, u32),
) -> Result<(), Errno> {
    let attach_type = if parent == INGRESS { TCX_INGRESS } else { TCX_EGRESS };
    let here = filters.iter().filter(|filter| (filter.device, filter.parent) == (device, parent));
    let run: Vec<_> = here.map(|filter| &filter.program).collect();
    caller.system.set_filters(device, attach_type, &run)?;
    state.filters = filters;
    Ok(())
}

/// Ends filters of a device, in both directions, and returns them.
fn take(
    state: &mut State,
    caller: &Caller<'_, '_>,
    device: u32,
    which: impl Fn(&Filter) -> bool,
) -> Result<Vec<Filter>, Errno> {
    let (ended, kept): (Vec<_>, Vec<_>) = state.filters.iter().cloned().partition(which);
    for parent in [INGRESS, EGRESS] {
        if ended.iter().any(|filter| filter.parent == parent) {
            set(state, caller, kept.clone(), (device, parent))?;
        }
    }
    Ok(ended)
}

fn tell(caller: &Caller<'_, '_>, filter: &Filter, request: &Request<'_>, kind: u16, answer: &mut Answer) {
    let more = u32::from(filter.priority) << 16 | u32::from(filter.protocol);
    let message = answer.begin(request, kind, &info(filter.device, filter.handle, filter.parent, more));
    answer.text(KIND, "bpf");
    let nest = answer.nest(OPTIONS);
    if let Some(name) = &filter.name {
        answer.text(BPF_NAME, name);
    }
    answer.number(BPF_ID, filter.program.object().id());
    if let Object::Program(object) = filter.program.object() {
        answer.attribute(BPF_TAG, &caller.system.engine().facts(object.program()).tag);
    }
    answer.number(BPF_FLAGS, DIRECT);
    answer.end_nest(nest);
    answer.end(message);
}

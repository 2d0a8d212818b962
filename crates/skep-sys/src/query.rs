//! What is attached where: `BPF_PROG_QUERY`, `BPF_TASK_FD_QUERY`.

use crate::attach::{check_verdicts, sockets_map};
use crate::attr::{Attr, ProgQuery, TaskFdQuery};
use crate::caller::Caller;
use crate::engine::{Engine, Place};
use crate::errno::Errno;
use crate::ordered::Entry;
use crate::place::{Kind, attach_type, use_of};
use crate::system::System;
use alloc::vec::Vec;
use core::mem::offset_of;

/// `BPF_F_QUERY_EFFECTIVE`.
const F_EFFECTIVE: u32 = 1;
/// The most identifiers that a query of a network namespace makes room for.
const MOST_ROOM: u32 = 1 << 20;
/// `BPF_FD_TYPE_RAW_TRACEPOINT`.
const RAW_TRACEPOINT: u32 = 0;

/// What a query found.
struct Found<E: Engine> {
    entries: Vec<Entry<E>>,
    /// The flags of the place; `None` where it has none to answer.
    flags: Option<u32>,
    /// Those of each program, if the caller wants them.
    each: Option<u32>,
    /// Of places with an order.
    revision: Option<u64>,
    /// Whether all of the caller's room is written.
    fills: bool,
}

impl<E: Engine> System<E> {
    pub(crate) fn prog_query(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let query: ProgQuery = attr.get()?;
        let kind = use_of(query.attach_type).ok_or(Errno::EINVAL)?.kind;
        let effective = query.query_flags & F_EFFECTIVE != 0;
        if query.query_flags & !F_EFFECTIVE != 0 || (effective && kind != Kind::Group) {
            return Err(Errno::EINVAL);
        }
        let at = query.attach_type;
        let found = match kind {
            Kind::Group => {
                let group = caller.control_group(query.target)?;
                if effective && query.prog_attach_flags != 0 {
                    return Err(Errno::EINVAL);
                }
                let shared = self.shared();
                let places = shared.places.lock();
                let (entries, flags) = match effective {
                    true => (places.groups.effective(&group, at), 0),
                    // Programs of security hooks are asked for by what they are attached to: there is nothing.
                    false if at == attach_type::LSM_CGROUP => return Err(Errno::EINVAL),
                    false => places.groups.own(&group, at),
                };
                let each = (!effective).then_some(flags);
                Found { entries, flags: Some(flags), each, revision: None, fills: false }
            }
            Kind::Network => {
                let network = caller.network(Some(query.target))?;
                let shared = self.shared();
                let places = shared.places.lock();
                let entries = places.networks.get(&(network, at)).cloned().unwrap_or_default();
                Found { entries, flags: Some(0), each: None, revision: None, fills: true }
            }
            Kind::Sockets => {
                let map = sockets_map(caller, query.target)?;
                let shared = self.shared();
                let places = shared.places.lock();
                if let Err(busy) = check_verdicts(&places, map.id(), at) {
                    drop(places);
                    attr.put(caller, offset_of!(ProgQuery, count), &[0; 4])?;
                    return Err(busy);
                }
                let entries = places.sockets.get(&(map.id(), at)).cloned().into_iter().collect();
                Found { entries, flags: Some(0), each: None, revision: None, fills: false }
            }
            Kind::Device => {
                if query.attach_flags != 0 {
                    return Err(Errno::EINVAL);
                }
                let index = self.device(query.target, at)?;
                let shared = self.shared();
                let places = shared.places.lock();
                let list = places.devices.get(&(index, at)).cloned().unwrap_or_default();
                let revision = Some(list.revision);
                Found { entries: list.entries, flags: Some(0), each: Some(0), revision, fills: false }
            }
            Kind::Xdp | Kind::Netfilter | Kind::Iterator => return Err(Errno::EINVAL),
        };
        answer(caller, attr, &query, &found)
    }

    pub(crate) fn task_fd_query(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let query: TaskFdQuery = attr.get()?;
        if query.flags != 0 {
            return Err(Errno::EINVAL);
        }
        let handle = match caller.handle_of(query.pid, query.fd) {
            Err(Errno::ENOTSUPP) => {
                let probe = caller.probe_of(query.pid, query.fd)?;
                let program = self.engine().program_at(&probe).ok_or(Errno::ENOENT)?;
                let info = self.engine().describe(&probe);
                let (kind, places) = (info.kind.descriptor_type(), [info.offset, info.address]);
                return fd_answer(caller, attr, &query, &info.name, (program, kind, places));
            }
            handle => handle?,
        };
        let link = handle.link().or(Err(Errno::ENOTSUPP))?;
        let Place::RawTracepoint(name) = link.place() else { return Err(Errno::ENOTSUPP) };
        fd_answer(caller, attr, &query, name, (link.program_id(), RAW_TRACEPOINT, [0; 2]))
    }
}

/// Answers what a descriptor is: the name of what it is attached to, the program, the kind, offset and address.
fn fd_answer<E: Engine>(
    caller: &mut impl Caller<E>,
    attr: &Attr,
    query: &TaskFdQuery,
    name: &str,
    (program, kind, places): (u32, u32, [u64; 2]),
) -> Result<i64, Errno> {
    let room = query.buf_len as usize;
    let fits = room > name.len();
    if query.buf != 0 && room != 0 {
        let now = if fits { name.len() } else { room - 1 };
        caller.write(query.buf, &[&name.as_bytes()[..now], &[0]].concat())?;
    }
    let mut put = |at: usize, number: u32| attr.put(caller, at, &number.to_ne_bytes());
    put(offset_of!(TaskFdQuery, buf_len), name.len() as u32)?;
    put(offset_of!(TaskFdQuery, prog_id), program)?;
    put(offset_of!(TaskFdQuery, fd_type), kind)?;
    attr.put(caller, offset_of!(TaskFdQuery, probe_offset), &places[0].to_ne_bytes())?;
    attr.put(caller, offset_of!(TaskFdQuery, probe_addr), &places[1].to_ne_bytes())?;
    if query.buf == 0 || room == 0 || fits { Ok(0) } else { Err(Errno::ENOSPC) }
}

/// Answers a query: numbers first, then as much of the lists as the caller has room for.
fn answer<E: Engine>(
    caller: &mut impl Caller<E>,
    attr: &Attr,
    query: &ProgQuery,
    found: &Found<E>,
) -> Result<i64, Errno> {
    let total = found.entries.len();
    if let Some(flags) = found.flags {
        attr.put(caller, offset_of!(ProgQuery, attach_flags), &flags.to_ne_bytes())?;
    }
    if let Some(revision) = found.revision {
        attr.put(caller, offset_of!(ProgQuery, revision), &revision.to_ne_bytes())?;
    }
    attr.put(caller, offset_of!(ProgQuery, count), &(total as u32).to_ne_bytes())?;
    if query.count == 0 || query.prog_ids == 0 || total == 0 {
        return Ok(0);
    }
    let now = total.min(query.count as usize);
    if found.fills {
        // The rest of the caller's room is zero.
        if query.count > MOST_ROOM {
            return Err(Errno::ENOMEM);
        }
        let rest = alloc::vec![0; 4 * (query.count as usize - now)];
        caller.write(query.prog_ids.wrapping_add(4 * now as u64), &rest)?;
    }
    let mut list = |address: u64, number: &dyn Fn(&Entry<E>) -> u32| {
        if address == 0 {
            return Ok(());
        }
        let bytes: Vec<u8> =
            found.entries[..now].iter().flat_map(|entry| number(entry).to_ne_bytes()).collect();
        caller.write(address, &bytes)
    };
    list(query.prog_ids, &|entry| entry.program.id())?;
    if let Some(flags) = found.each {
        list(query.prog_attach_flags, &|_| flags)?;
    }
    if found.revision.is_some() {
        list(query.link_ids, &|entry| entry.link.unwrap_or(0))?;
        list(query.link_attach_flags, &|_| 0)?;
    }
    if now < total { Err(Errno::ENOSPC) } else { Ok(0) }
}

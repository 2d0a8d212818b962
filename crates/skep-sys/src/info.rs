//! What is known about objects: `BPF_OBJ_GET_INFO_BY_FD`.

use crate::attr::{Attr, InfoByFd, check_tail, double};
use crate::btf::BtfObject;
use crate::caller::Caller;
use crate::engine::{Engine, Place};
use crate::errno::Errno;
use crate::links::LinkObject;
use crate::maps::MapObject;
use crate::name;
use crate::object::Object;
use crate::probes::ProbeKind;
use crate::programs::{LOAD_IMM64, MAP_FD, MAP_IDX, MAP_IDX_VALUE, MAP_VALUE, ProgramObject};
use crate::system::System;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The most bytes of information that a caller may ask for.
const MOST: u32 = 4096;

macro_rules! information {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            struct $name {
                $($field: $type,)*
            }
        )*
    };
}

information! {
    /// `struct bpf_prog_info`.
    ProgInfo {
        kind: u32,
        id: u32,
        tag: [u8; 8],
        jited_prog_len: u32,
        xlated_prog_len: u32,
        jited_prog_insns: u64,
        xlated_prog_insns: u64,
        load_time: u64,
        created_by_uid: u32,
        nr_map_ids: u32,
        map_ids: u64,
        name: [u8; 16],
        ifindex: u32,
        gpl_compatible: u32,
        netns_dev: u64,
        netns_ino: u64,
        nr_jited_ksyms: u32,
        nr_jited_func_lens: u32,
        jited_ksyms: u64,
        jited_func_lens: u64,
        btf_id: u32,
        func_info_rec_size: u32,
        func_info: u64,
        nr_func_info: u32,
        nr_line_info: u32,
        line_info: u64,
        jited_line_info: u64,
        nr_jited_line_info: u32,
        line_info_rec_size: u32,
        jited_line_info_rec_size: u32,
        nr_prog_tags: u32,
        prog_tags: u64,
        run_time_ns: u64,
        run_cnt: u64,
        recursion_misses: u64,
        verified_insns: u32,
        attach_btf_obj_id: u32,
        attach_btf_id: u32,
        padding: u32,
    }
    /// `struct bpf_map_info`.
    MapInfo {
        kind: u32,
        id: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
        name: [u8; 16],
        ifindex: u32,
        btf_vmlinux_value_type_id: u32,
        netns_dev: u64,
        netns_ino: u64,
        btf_id: u32,
        btf_key_type_id: u32,
        btf_value_type_id: u32,
        btf_vmlinux_id: u32,
        map_extra: u64,
    }
    /// `struct bpf_btf_info`.
    BtfInfo {
        btf: u64,
        btf_size: u32,
        id: u32,
        name: u64,
        name_len: u32,
        kernel_btf: u32,
    }
    /// `struct bpf_link_info`, with the union's bytes as numbers.
    LinkInfo {
        kind: u32,
        id: u32,
        prog_id: u32,
        padding: u32,
        union: [u32; 12],
    }
}

/// A caller's structure: where it is, and how much of it there is.
struct Room {
    address: u64,
    bytes: usize,
}

impl<E: Engine> System<E> {
    pub(crate) fn info_by_fd(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        const LEN: usize = offset_of!(InfoByFd, info_len);
        let request: InfoByFd = attr.get()?;
        let handle = caller.handle(request.bpf_fd).map_err(|error| match error {
            Errno::EBADF => Errno::EBADFD,
            other => other,
        })?;
        let known = match handle.object() {
            Object::Map(_) => size_of::<MapInfo>(),
            Object::Program(_) => size_of::<ProgInfo>(),
            Object::Btf(_) => size_of::<BtfInfo>(),
            Object::Link(_) => size_of::<LinkInfo>(),
            Object::Stats(_) => return Err(Errno::EINVAL),
        };
        check_tail(caller, request.info, request.info_len, known as u32, MOST)?;
        let room = Room { address: request.info, bytes: known.min(request.info_len as usize) };
        let len = (room.bytes as u32).to_ne_bytes();
        match handle.object() {
            Object::Map(map) => put(caller, &room, &map_info(map))?,
            Object::Program(program) => self.program_info(caller, &room, program)?,
            Object::Btf(btf) => self.btf_info(caller, &room, btf)?,
            Object::Link(link) => link_info(caller, &room, link)?,
            Object::Stats(_) => {}
        }
        attr.put(caller, LEN, &len)?;
        Ok(0)
    }

    fn program_info(
        &self,
        caller: &mut impl Caller<E>,
        room: &Room,
        program: &ProgramObject<E>,
    ) -> Result<(), Errno> {
        let asked: ProgInfo = get(caller, room)?;
        let facts = self.engine().facts(program.program());
        let mut info = ProgInfo::new_zeroed();
        let (mut attach_btf_obj_id, attach_btf_id) = program.attached_to();
        if attach_btf_obj_id == 0 && attach_btf_id != 0 {
            attach_btf_obj_id = self.shared().kernel_types.as_ref().map_or(0, |types| types.id());
        }
        info.kind = program.program_type();
        info.id = program.id();
        info.tag = facts.tag;
        info.load_time = program.created();
        info.created_by_uid = program.created_by();
        info.name = name::field(program.name());
        info.gpl_compatible = facts.gpl_compatible.into();
        info.btf_id = program.btf().map_or(0, |btf| btf.id());
        (info.run_time_ns, info.run_cnt) = (facts.run_time, facts.run_count);
        info.recursion_misses = facts.misses;
        info.verified_insns = facts.verified;
        (info.attach_btf_obj_id, info.attach_btf_id) = (attach_btf_obj_id, attach_btf_id);

        let maps: Vec<u8> = program.map_ids().into_iter().flat_map(u32::to_ne_bytes).collect();
        let functions = program.functions().iter();
        let functions: Vec<u8> =
            functions.flat_map(|info| [info.slot, info.ty]).flat_map(u32::to_ne_bytes).collect();
        let lines = program.lines().iter();
        let lines: Vec<u8> = lines
            .flat_map(|line| [line.slot, line.file, line.text, line.line_and_column])
            .flat_map(u32::to_ne_bytes)
            .collect();
        let tags: Vec<u8> = (0..facts.functions.max(1)).flat_map(|_| facts.tag).collect();
        info.nr_map_ids = list(caller, asked.nr_map_ids, asked.map_ids, 4, &maps)?;
        let translated = with_map_ids(facts.translated, &program.map_ids());
        info.xlated_prog_len = list(caller, asked.xlated_prog_len, asked.xlated_prog_insns, 1, &translated)?;
        info.nr_func_info = list(caller, asked.nr_func_info, asked.func_info, 8, &functions)?;
        info.nr_line_info = list(caller, asked.nr_line_info, asked.line_info, 16, &lines)?;
        info.nr_prog_tags = list(caller, asked.nr_prog_tags, asked.prog_tags, 8, &tags)?;
        (info.func_info_rec_size, info.line_info_rec_size) = (8, 16);
        self.machine_code(caller, program, &asked, &mut info)?;
        // The caller's other addresses stay where they are.
        (info.map_ids, info.xlated_prog_insns) = (asked.map_ids, asked.xlated_prog_insns);
        (info.func_info, info.line_info) = (asked.func_info, asked.line_info);
        info.prog_tags = asked.prog_tags;
        put(caller, room, &info)
    }

    /// What `info` says of machine code. Who may not see it learns how much there is, and that none was copied by the
    /// address 0 in place of the one that was given.
    fn machine_code(
        &self,
        caller: &mut impl Caller<E>,
        program: &ProgramObject<E>,
        asked: &ProgInfo,
        info: &mut ProgInfo,
    ) -> Result<(), Errno> {
        let code = self.engine().machine_code(program.program());
        let (len, parts) = (code.bytes.len() as u32, code.functions.len() as u32);
        info.jited_line_info_rec_size = 8;
        (info.jited_prog_len, info.nr_jited_ksyms, info.nr_jited_func_lens) = (len, parts, parts);
        if !caller.sees_addresses() {
            let kept = |count: u32, address: u64| if count == 0 { address } else { 0 };
            info.jited_prog_insns = kept(asked.jited_prog_len, asked.jited_prog_insns);
            info.jited_ksyms = kept(asked.nr_jited_ksyms, asked.jited_ksyms);
            info.jited_func_lens = kept(asked.nr_jited_func_lens, asked.jited_func_lens);
            info.jited_line_info = asked.jited_line_info;
            return Ok(());
        }
        let ends = code.functions.iter().skip(1).chain([&len]);
        let lens = code.functions.iter().zip(ends).map(|(start, end)| end.saturating_sub(*start));
        let address = |offset: &u32| code.address + u64::from(*offset);
        let lines = program.lines().iter().map(|line| code.slots.get(line.slot as usize).map_or(0, address));
        let lens: Vec<u8> = lens.flat_map(u32::to_ne_bytes).collect();
        let starts: Vec<u8> = code.functions.iter().map(address).flat_map(u64::to_ne_bytes).collect();
        let lines: Vec<u8> = lines.flat_map(u64::to_ne_bytes).collect();
        list(caller, asked.jited_prog_len, asked.jited_prog_insns, 1, &code.bytes)?;
        list(caller, asked.nr_jited_ksyms, asked.jited_ksyms, 8, &starts)?;
        list(caller, asked.nr_jited_func_lens, asked.jited_func_lens, 4, &lens)?;
        info.nr_jited_line_info = list(caller, asked.nr_jited_line_info, asked.jited_line_info, 8, &lines)?;
        (info.jited_prog_insns, info.jited_ksyms) = (asked.jited_prog_insns, asked.jited_ksyms);
        (info.jited_func_lens, info.jited_line_info) = (asked.jited_func_lens, asked.jited_line_info);
        Ok(())
    }

    fn btf_info(&self, caller: &mut impl Caller<E>, room: &Room, btf: &BtfObject<E>) -> Result<(), Errno> {
        let asked: BtfInfo = get(caller, room)?;
        let bytes = self.engine().bytes_of_types(btf.types());
        list(caller, asked.btf_size, asked.btf, 1, bytes)?;
        if (asked.name_len == 0) != (asked.name == 0) {
            return Err(Errno::EINVAL);
        }
        let name = btf.name().as_bytes();
        let fits = asked.name == 0 || name.len() < asked.name_len as usize;
        if asked.name != 0 {
            let now = name.len().min(asked.name_len as usize - 1);
            caller.write(asked.name, &[&name[..now], &[0]].concat())?;
        }
        let info = BtfInfo {
            btf_size: bytes.len() as u32,
            id: btf.id(),
            name_len: name.len() as u32,
            kernel_btf: btf.is_kernel().into(),
            ..asked
        };
        put(caller, room, &info)?;
        if fits { Ok(()) } else { Err(Errno::ENOSPC) }
    }
}

/// Writes a list of records of that size to a caller who has room for `count`. Returns how many there are.
fn list<E: Engine>(
    caller: &mut impl Caller<E>,
    count: u32,
    address: u64,
    record: usize,
    all: &[u8],
) -> Result<u32, Errno> {
    let records = all.len() / record;
    let now = records.min(count as usize);
    if now > 0 {
        caller.write(address, &all[..now * record])?;
    }
    Ok(records as u32)
}

/// Instructions in which loads of map addresses name maps by identifiers in place of indices, as Linux shows them.
fn with_map_ids(mut insns: Vec<u8>, ids: &[u32]) -> Vec<u8> {
    for insn in insns.chunks_exact_mut(8) {
        let by_id = match (insn[0], insn[1] >> 4) {
            (LOAD_IMM64, MAP_IDX) => MAP_FD,
            (LOAD_IMM64, MAP_IDX_VALUE) => MAP_VALUE,
            _ => continue,
        };
        let index = u32::from_le_bytes([insn[4], insn[5], insn[6], insn[7]]);
        let id = ids.get(index as usize).copied().unwrap_or(0);
        insn[1] = insn[1] & 0xf | by_id << 4;
        insn[4..8].copy_from_slice(&id.to_le_bytes());
    }
    insns
}

fn map_info<E: Engine>(map: &MapObject<E>) -> MapInfo {
    let create = map.create();
    MapInfo {
        kind: create.map_type,
        id: map.id(),
        key_size: create.key_size,
        value_size: create.value_size,
        max_entries: create.max_entries,
        map_flags: create.map_flags,
        name: name::field(map.name()),
        btf_id: map.btf().map_or(0, |btf| btf.id()),
        btf_key_type_id: create.btf_key_type_id,
        btf_value_type_id: create.btf_value_type_id,
        map_extra: create.map_extra,
        ..MapInfo::new_zeroed()
    }
}

fn link_info<E: Engine>(caller: &mut impl Caller<E>, room: &Room, link: &LinkObject<E>) -> Result<(), Errno> {
    let asked: LinkInfo = get(caller, room)?;
    let mut union = [0; 12];
    let mut short = false;
    let attached = |number: u32| if link.is_attached() { number } else { 0 };
    match link.place() {
        Place::Xdp { device, .. } => union[0] = attached(*device),
        Place::Device { index, attach_type } => {
            (union[0], union[1]) = (attached(link.end(*index, *attach_type)), *attach_type);
        }
        Place::ControlGroup { id, attach_type } => {
            if link.is_attached() {
                (union[0], union[1], union[2]) = (*id as u32, (*id >> 32) as u32, *attach_type);
            }
        }
        Place::Network { id, attach_type } => {
            (union[0], union[1]) = (attached(*id as u32), *attach_type);
        }
        Place::Sockets { map, attach_type } => (union[0], union[1]) = (attached(*map), *attach_type),
        Place::Netfilter { family, hook, priority, .. } => {
            (union[0], union[1], union[2]) = (*family, *hook, *priority as u32);
        }
        Place::Function { program, function, attach_type } => {
            (union[0], union[1], union[2]) = (*attach_type, *program, *function);
        }
        Place::RawTracepoint(name) => {
            (union[0], union[1], union[2]) = (asked.union[0], asked.union[1], name.len() as u32 + 1);
            text(caller, &asked, name)?;
        }
        Place::PerfEvent { info, cookie } => {
            union[0] = info.kind.event_type();
            (union[2], union[3], union[4]) = (asked.union[2], asked.union[3], info.name.len() as u32 + 1);
            union[5] = if info.kind == ProbeKind::Tracepoint { 0 } else { info.offset as u32 };
            let at = match info.kind {
                ProbeKind::Function | ProbeKind::FunctionReturn => {
                    set_double(&mut union, 6, if caller.sees_addresses() { info.address } else { 0 });
                    10
                }
                _ => 6,
            };
            set_double(&mut union, at, *cookie);
            text_at(caller, &asked, 2, &info.name)?;
        }
        Place::Functions { addresses, cookies, flags } => {
            let count = asked.union[2];
            let ([to, cookies_to], seen) =
                ([double(&asked.union, 0), double(&asked.union, 6)], caller.sees_addresses());
            union = asked.union;
            (union[2], union[3]) = (addresses.len() as u32, *flags);
            set_double(&mut union, 4, 0);
            if (to == 0) != (count == 0) || (cookies_to != 0 && count == 0) {
                return Err(Errno::EINVAL);
            }
            let shown: Vec<u64> = addresses.iter().map(|at| if seen { *at } else { 0 }).collect();
            numbers(caller, to, count, &shown)?;
            numbers(caller, cookies_to, count, cookies)?;
            short = to != 0 && (count as usize) < addresses.len();
        }
        Place::Binary { path, offsets, counters, cookies, flags, process } => {
            let [path_to, to, counters_to, cookies_to] = [0, 2, 4, 6].map(|at| double(&asked.union, at));
            let (room, count) = (asked.union[8], asked.union[9]);
            union = asked.union;
            union[8..].copy_from_slice(&[path.len() as u32 + 1, offsets.len() as u32, *flags, *process]);
            let lists = to != 0 || counters_to != 0 || cookies_to != 0;
            if (path_to == 0) != (room == 0) || (count == 0 && lists) {
                return Err(Errno::EINVAL);
            }
            if path_to != 0 {
                let now = path.len().min(room as usize - 1);
                caller.write(path_to, &[&path.as_bytes()[..now], &[0]].concat())?;
                short = now < path.len();
            }
            let none = alloc::vec![0; offsets.len()];
            numbers(caller, to, count, offsets)?;
            numbers(caller, counters_to, count, if counters.is_empty() { &none } else { counters })?;
            numbers(caller, cookies_to, count, if cookies.is_empty() { &none } else { cookies })?;
            short |= lists && (count as usize) < offsets.len();
        }
        Place::Iterator { target, map } => {
            (union[0], union[1], union[2]) = (asked.union[0], asked.union[1], target.len() as u32 + 1);
            union[3] = *map;
            text(caller, &asked, target)?;
        }
    }
    let info = LinkInfo { kind: link.kind(), id: link.id(), prog_id: link.program_id(), padding: 0, union };
    put(caller, room, &info)?;
    if short { Err(Errno::ENOSPC) } else { Ok(()) }
}

/// Sets two words of the answer.
fn set_double(union: &mut [u32; 12], at: usize, number: u64) {
    (union[at], union[at + 1]) = (number as u32, (number >> 32) as u32);
}

/// Writes as many of the numbers as there is room for, if the caller has any.
fn numbers<E: Engine>(
    caller: &mut impl Caller<E>,
    address: u64,
    count: u32,
    all: &[u64],
) -> Result<(), Errno> {
    if address == 0 {
        return Ok(());
    }
    let now = all.len().min(count as usize);
    let bytes: Vec<u8> = all[..now].iter().flat_map(|number| number.to_ne_bytes()).collect();
    caller.write(address, &bytes)
}

/// Gives the caller's buffer the name that its structure begins with, cut if need be.
fn text<E: Engine>(caller: &mut impl Caller<E>, asked: &LinkInfo, name: &str) -> Result<(), Errno> {
    text_at(caller, asked, 0, name)
}

/// The same for a name whose address and size are at that word.
fn text_at<E: Engine>(
    caller: &mut impl Caller<E>,
    asked: &LinkInfo,
    at: usize,
    name: &str,
) -> Result<(), Errno> {
    let (address, size) = (double(&asked.union, at), asked.union[at + 2] as usize);
    if (address == 0) != (size == 0) {
        return Err(Errno::EINVAL);
    }
    if address == 0 {
        return Ok(());
    }
    let now = name.len().min(size - 1);
    caller.write(address, &[&name.as_bytes()[..now], &[0]].concat())?;
    if now < name.len() { Err(Errno::ENOSPC) } else { Ok(()) }
}

/// The caller's structure, with zeroes for what it does not know.
fn get<E: Engine, T: FromZeros + FromBytes + IntoBytes>(
    caller: &mut impl Caller<E>,
    room: &Room,
) -> Result<T, Errno> {
    let mut info = T::new_zeroed();
    caller.read(room.address, &mut info.as_mut_bytes()[..room.bytes])?;
    Ok(info)
}

fn put<E: Engine, T: IntoBytes + Immutable>(
    caller: &mut impl Caller<E>,
    room: &Room,
    info: &T,
) -> Result<(), Errno> {
    caller.write(room.address, &info.as_bytes()[..room.bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_header_of_linux() {
        assert_eq!(size_of::<ProgInfo>(), 232);
        assert_eq!(offset_of!(ProgInfo, name), 64);
        assert_eq!(offset_of!(ProgInfo, btf_id), 128);
        assert_eq!(offset_of!(ProgInfo, verified_insns), 216);
        assert_eq!(size_of::<MapInfo>(), 88);
        assert_eq!(size_of::<BtfInfo>(), 32);
        assert_eq!(size_of::<LinkInfo>(), 64);
    }
}

//! Attributes: the structure that each command takes, as bytes of the caller.
//!
//! A caller may pass fewer bytes than this library knows, and the rest is zero; or more, if those are zero. So programs
//! and kernels of different ages understand each other.

use crate::caller::Caller;
use crate::engine::Engine;
use crate::errno::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The bytes of Linux 6.18's `union bpf_attr`.
pub const ATTRIBUTE_SIZE: usize = 168;
/// A caller may pass at most this many.
const MOST: u32 = 4096;

/// The attributes of a call.
pub(crate) struct Attr {
    bytes: [u8; ATTRIBUTE_SIZE],
    /// Where they are at the caller.
    address: u64,
    /// How many bytes the caller passed.
    pub(crate) size: u32,
}

/// What all structures of attributes can do.
pub(crate) trait Fields: FromBytes + KnownLayout + Immutable {}
impl<T: FromBytes + KnownLayout + Immutable> Fields for T {}

impl Attr {
    pub(crate) fn read<E: Engine>(
        caller: &mut impl Caller<E>,
        address: u64,
        size: u32,
    ) -> Result<Self, Errno> {
        let mut bytes = [0; ATTRIBUTE_SIZE];
        check_tail(caller, address, size, ATTRIBUTE_SIZE as u32, MOST)?;
        let known = (size as usize).min(ATTRIBUTE_SIZE);
        caller.read(address, &mut bytes[..known])?;
        Ok(Self { bytes, address, size })
    }

    /// The fields of a command, of which all bytes after `T` must be zero.
    pub(crate) fn get<T: Fields>(&self) -> Result<T, Errno> {
        let (fields, rest) = T::read_from_prefix(&self.bytes).map_err(|_| Errno::EINVAL)?;
        if rest.iter().any(|byte| *byte != 0) { Err(Errno::EINVAL) } else { Ok(fields) }
    }

    /// Answers in a field.
    pub(crate) fn put<E: Engine>(
        &self,
        caller: &mut impl Caller<E>,
        offset: usize,
        value: &[u8],
    ) -> Result<(), Errno> {
        caller.write(self.address.wrapping_add(offset as u64), value)
    }

    /// Whether the caller knows a field.
    pub(crate) fn has(&self, offset: usize, bytes: usize) -> bool {
        self.size as usize >= offset + bytes
    }
}

/// Checks that a structure of `size` bytes has zeroes behind the `known` ones.
/// Two words of a caller's structure as a number.
pub(crate) fn double(words: &[u32], at: usize) -> u64 {
    u64::from(words[at]) | u64::from(words[at + 1]) << 32
}

pub(crate) fn check_tail<E: Engine>(
    caller: &mut impl Caller<E>,
    address: u64,
    size: u32,
    known: u32,
    most: u32,
) -> Result<(), Errno> {
    if size > most {
        return Err(Errno::E2BIG);
    }
    let mut chunk = [0; 64];
    let mut at = known;
    while at < size {
        let now = ((size - at) as usize).min(chunk.len());
        caller.read(address.wrapping_add(at.into()), &mut chunk[..now])?;
        if chunk[..now].iter().any(|byte| *byte != 0) {
            return Err(Errno::E2BIG);
        }
        at += now as u32;
    }
    Ok(())
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name {
                $(pub(crate) $field: $type,)*
            }
        )*
    };
}

attributes! {
    MapCreate {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
        inner_map_fd: i32,
        numa_node: u32,
        map_name: [u8; 16],
        map_ifindex: u32,
        btf_fd: i32,
        btf_key_type_id: u32,
        btf_value_type_id: u32,
        btf_vmlinux_value_type_id: u32,
        map_extra: u64,
        value_type_btf_obj_fd: i32,
        map_token_fd: i32,
    }
    /// Look-up, update, look-up and delete.
    Element {
        map_fd: i32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    /// Delete.
    Key {
        map_fd: i32,
        padding: u32,
        key: u64,
    }
    NextKey {
        map_fd: i32,
        padding: u32,
        key: u64,
        next_key: u64,
    }
    Batches {
        in_batch: u64,
        out_batch: u64,
        keys: u64,
        values: u64,
        count: u32,
        map_fd: i32,
        elem_flags: u64,
        flags: u64,
    }
    ProgLoad {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
        prog_ifindex: u32,
        expected_attach_type: u32,
        prog_btf_fd: i32,
        func_info_rec_size: u32,
        func_info: u64,
        func_info_cnt: u32,
        line_info_rec_size: u32,
        line_info: u64,
        line_info_cnt: u32,
        attach_btf_id: u32,
        attach_prog_fd: i32,
        core_relo_cnt: u32,
        fd_array: u64,
        core_relos: u64,
        core_relo_rec_size: u32,
        log_true_size: u32,
        prog_token_fd: i32,
        fd_array_cnt: u32,
        signature: u64,
        signature_size: u32,
        keyring_id: i32,
    }
    ObjectPath {
        pathname: u64,
        bpf_fd: i32,
        file_flags: u32,
        path_fd: i32,
        unused: u32,
    }
    TestRun {
        prog_fd: i32,
        retval: u32,
        data_size_in: u32,
        data_size_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
        ctx_size_in: u32,
        ctx_size_out: u32,
        ctx_in: u64,
        ctx_out: u64,
        flags: u32,
        cpu: u32,
        batch_size: u32,
        unused: u32,
    }
    NextId {
        start_id: u32,
        next_id: u32,
    }
    /// Of programs, types and links.
    ById {
        id: u32,
    }
    MapById {
        map_id: u32,
        next_id: u32,
        open_flags: u32,
    }
    InfoByFd {
        bpf_fd: i32,
        info_len: u32,
        info: u64,
    }
    RawTracepoint {
        name: u64,
        prog_fd: i32,
        padding: u32,
        cookie: u64,
    }
    BtfLoad {
        btf: u64,
        btf_log_buf: u64,
        btf_size: u32,
        btf_log_size: u32,
        btf_log_level: u32,
        btf_log_true_size: u32,
        btf_flags: u32,
        btf_token_fd: i32,
    }
    LinkCreate {
        prog_fd: i32,
        target: i32,
        attach_type: u32,
        flags: u32,
        // By the type of attachment.
        more: [u32; 11],
    }
    ProgAttach {
        target: i32,
        prog_fd: i32,
        attach_type: u32,
        flags: u32,
        replace_fd: i32,
        relative: u32,
        expected_revision: u64,
    }
    ProgQuery {
        target: i32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        prog_ids: u64,
        count: u32,
        padding: u32,
        prog_attach_flags: u64,
        link_ids: u64,
        link_attach_flags: u64,
        revision: u64,
    }
    TaskFdQuery {
        pid: u32,
        fd: i32,
        flags: u32,
        buf_len: u32,
        buf: u64,
        prog_id: u32,
        fd_type: u32,
        probe_offset: u64,
        probe_addr: u64,
    }
    LinkUpdate {
        link_fd: i32,
        new_fd: i32,
        flags: u32,
        old_fd: i32,
    }
    LinkDetach {
        link_fd: i32,
    }
    EnableStats {
        kind: u32,
    }
    IterCreate {
        link_fd: i32,
        flags: u32,
    }
    TokenCreate {
        flags: u32,
        bpffs_fd: i32,
    }
    BindMap {
        prog_fd: i32,
        map_fd: i32,
        flags: u32,
    }
}

impl Attr {
    /// The fields of a command whose structure is padded at its end.
    pub(crate) fn get_padded<T: Fields>(&self, last: usize) -> Result<T, Errno> {
        if self.bytes[last..].iter().any(|byte| *byte != 0) {
            return Err(Errno::EINVAL);
        }
        T::read_from_prefix(&self.bytes).map(|(fields, _)| fields).map_err(|_| Errno::EINVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::{offset_of, size_of};

    #[test]
    fn fields_are_where_the_header_of_linux_has_them() {
        assert_eq!(size_of::<MapCreate>(), 80);
        assert_eq!(offset_of!(MapCreate, map_extra), 64);
        assert_eq!(size_of::<Element>(), 32);
        assert_eq!(size_of::<Batches>(), 56);
        assert_eq!(offset_of!(ProgLoad, prog_name), 48);
        assert_eq!(offset_of!(ProgLoad, func_info), 80);
        assert_eq!(offset_of!(ProgLoad, line_info), 96);
        assert_eq!(offset_of!(ProgLoad, fd_array), 120);
        assert_eq!(offset_of!(ProgLoad, prog_token_fd), 144);
        assert_eq!(size_of::<ProgLoad>(), ATTRIBUTE_SIZE);
        assert_eq!(offset_of!(TestRun, ctx_in), 48);
        assert_eq!(offset_of!(TestRun, batch_size), 72);
        assert_eq!(offset_of!(BtfLoad, btf_token_fd), 36);
        assert_eq!(size_of::<LinkCreate>(), 60);
        assert_eq!(offset_of!(ProgAttach, expected_revision), 24);
        assert_eq!(offset_of!(ProgQuery, revision), 56);
        assert_eq!(offset_of!(TaskFdQuery, fd_type), 28);
    }
}

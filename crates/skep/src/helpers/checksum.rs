//! Internet checksums (RFC 1071) and their incremental update (RFC 1624).

use super::buffer::{len, skb};
use super::errno::{EACCES, EFAULT, EINVAL, ENOTSUPP};
use super::packet::packet_range;
use skep_abi::{RunEnv, SkbContext};

/// `BPF_F_HDR_FIELD_MASK`: the size of the changed field.
const FIELD_SIZE: u64 = 0xf;
/// `BPF_F_PSEUDO_HDR`: the changed field is part of the pseudo header.
const PSEUDO_HEADER: u64 = 1 << 4;
/// `BPF_F_MARK_MANGLED_0`: a checksum of 0 means none and is kept; a result of 0 is written as 0xffff.
const MANGLED_0: u64 = 1 << 5;
/// `BPF_F_MARK_ENFORCE`: with the above, update even if the field is 0.
const ENFORCE: u64 = 1 << 6;
/// `BPF_F_IPV6`: the changed field is an IPv6 address. No checksum of the header makes up for its change.
const IPV6: u64 = 1 << 7;

/// The checksum of `to` minus that of `from`, plus `seed`, folded to 16 bits.
#[inline]
pub(super) unsafe fn csum_diff(
    from: u64,
    from_size: u64,
    to: u64,
    to_size: u64,
    seed: u64,
    _: *mut RunEnv,
) -> u64 {
    let (from_size, to_size) = (from_size as u32 as usize, to_size as u32 as usize);
    if (from_size | to_size) % 4 != 0 {
        return EINVAL;
    }
    // SAFETY: the verifier proved that each pointer is readable for its size, or null with size 0.
    let sum = u64::from(seed as u32)
        + unsafe { words(from, from_size) }.map(|word| u64::from(!word)).sum::<u64>()
        + unsafe { words(to, to_size) }.map(u64::from).sum::<u64>();
    u64::from(fold(sum))
}

#[inline]
pub(super) unsafe fn l3_csum_replace(
    context: u64,
    offset: u64,
    from: u64,
    to: u64,
    flags: u64,
    _: *mut RunEnv,
) -> u64 {
    if flags & !FIELD_SIZE != 0 {
        return EINVAL;
    }
    // SAFETY: the verifier proved that `context` is the run's own.
    unsafe { replace(context, offset, from, to, flags, false) }
}

#[inline]
pub(super) unsafe fn l4_csum_replace(
    context: u64,
    offset: u64,
    from: u64,
    to: u64,
    flags: u64,
    _: *mut RunEnv,
) -> u64 {
    if flags & !(FIELD_SIZE | PSEUDO_HEADER | MANGLED_0 | ENFORCE | IPV6) != 0 {
        return EINVAL;
    }
    // SAFETY: as above.
    unsafe { replace(context, offset, from, to, flags, true) }
}

/// Updates the checksum field at `offset` for a field that changed from `from` to `to`; with size 0, for a
/// difference in `to` that [`csum_diff`] computed. `transport` is the kind of checksum that devices compute.
///
/// # Safety
///
/// `context` is the address of the run's [`SkbContext`].
unsafe fn replace(context: u64, offset: u64, from: u64, to: u64, flags: u64, transport: bool) -> u64 {
    // SAFETY: the caller's promise.
    let skb = unsafe { skb(context) };
    let offset = u64::from(offset as u32);
    if offset > 0xffff || offset % 2 != 0 {
        return EFAULT;
    }
    let Some(field) = packet_range(skb, offset, 2) else { return EFAULT };
    let field = field as *mut [u8; 2];
    // SAFETY: two bytes of the packet; byte arrays have no alignment.
    let old = u16::from_ne_bytes(unsafe { *field });
    if flags & MANGLED_0 != 0 && flags & ENFORCE == 0 && old == 0 {
        return 0;
    }
    let size = flags & FIELD_SIZE;
    // What the field sums to more than before, as a one's-complement number of 32 bits.
    let more = match size {
        0 if from == 0 => to as u32,
        2 => add(!u32::from(from as u16), u32::from(to as u16)),
        4 => add(!(from as u32), to as u32),
        _ => return EINVAL,
    };
    let pseudo = flags & PSEUDO_HEADER != 0;
    let mut new = match skb.summed {
        // The field is the sum of the pseudo header, not inverted; the device adds the rest.
        SkbContext::PARTIAL if pseudo => fold(add(old.into(), more).into()),
        SkbContext::PARTIAL if transport => old,
        // Sixteen bits, so that a sum of nothing stays 0.
        _ if size == 2 && !transport => replaced(old, from as u16, to as u16),
        // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
        _ => !fold(add(!u32::from(old), more).into()),
    };
    if pseudo && skb.summed == SkbContext::COMPLETE && (size != 0 || flags & IPV6 == 0) {
        // The sum of the packet lacks the pseudo header, for which the field makes up.
        skb.sum = add(skb.sum, !more);
    }
    if flags & MANGLED_0 != 0 && new == 0 {
        new = 0xffff;
    }
    // SAFETY: as above.
    unsafe { *field = new.to_ne_bytes() };
    0
}

/// Adds to the sum of the packet's bytes.
#[inline]
pub(super) unsafe fn csum_update(context: u64, difference: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    if skb.summed != SkbContext::COMPLETE {
        return ENOTSUPP;
    }
    skb.sum = add(skb.sum, difference as u32);
    skb.sum.into()
}

/// Says how many checksums are right.
#[inline]
pub(super) unsafe fn csum_level(context: u64, what: u64, _: *mut RunEnv) -> u64 {
    /// `BPF_CSUM_LEVEL_QUERY` and the like.
    const QUERY: u64 = 0;
    const INC: u64 = 1;
    const DEC: u64 = 2;
    const RESET: u64 = 3;
    /// `SKB_MAX_CSUM_LEVEL`.
    const MOST: u8 = 3;
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    let correct = skb.summed == SkbContext::CORRECT;
    match what {
        QUERY if correct => return skb.sum_level.into(),
        QUERY => return EACCES,
        INC if correct => skb.sum_level = (skb.sum_level + 1).min(MOST),
        INC if skb.summed == SkbContext::UNSUMMED => (skb.summed, skb.sum_level) = (SkbContext::CORRECT, 0),
        DEC if correct && skb.sum_level > 0 => skb.sum_level -= 1,
        DEC | RESET if correct => (skb.summed, skb.sum_level) = (SkbContext::UNSUMMED, 0),
        INC | DEC | RESET => {}
        _ => return EINVAL,
    }
    0
}

/// Changes the packet's bytes or where its network header is, and its sum with them if that is known. A change within
/// the change is part of it.
///
/// # Safety
///
/// The context is the run's own.
pub(super) unsafe fn tracked<T>(skb: &mut SkbContext, change: impl FnOnce(&mut SkbContext) -> T) -> T {
    if skb.summed != SkbContext::COMPLETE {
        return change(skb);
    }
    // SAFETY: the caller's promise.
    let before = unsafe { sum_of(skb) };
    skb.summed = SkbContext::UNSUMMED;
    let changed = change(skb);
    skb.summed = SkbContext::COMPLETE;
    // SAFETY: the caller's promise.
    let after = unsafe { sum_of(skb) };
    skb.sum = add(add(skb.sum, !u32::from(before)), after.into());
    changed
}

/// The sum of the bytes from the network header on.
///
/// # Safety
///
/// The context is the run's own.
unsafe fn sum_of(skb: &SkbContext) -> u16 {
    let start = u64::from(skb.network).min(len(skb));
    let byte = |at: u64| {
        // SAFETY: the byte is in the packet.
        u64::from(unsafe { *((skb.data + at) as *const u8) })
    };
    let sum = (start..len(skb)).map(|at| byte(at) << if (at - start) % 2 == 0 { 0 } else { 8 }).sum();
    fold(sum)
}

/// The one's-complement sum of bytes, in the order of the machine.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u64::from(u16::from_ne_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    fold(bytes.chunks(2).map(word).sum())
}

/// The checksum `old` after one of the words that it sums has changed.
pub(super) fn replaced(old: u16, from: u16, to: u16) -> u16 {
    !fold(u64::from(!old) + u64::from(!from) + u64::from(to))
}

/// One's-complement addition.
fn add(a: u32, b: u32) -> u32 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u32::from(carry)
}

/// The 32-bit words of memory whose size is a multiple of 4.
///
/// # Safety
///
/// `address` is readable for `size` bytes, or `size` is 0.
unsafe fn words(address: u64, size: usize) -> impl Iterator<Item = u32> {
    (0..size / 4).map(move |i| {
        // SAFETY: word `i` is within `size` bytes, by the caller's promise.
        unsafe { (address as *const u32).add(i).read_unaligned() }
    })
}

/// Folds the carries until 16 bits are left.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(from: &[u8], to: &[u8], seed: u32) -> u64 {
        let (f, t) = (from.as_ptr() as u64, to.as_ptr() as u64);
        // SAFETY: both slices are readable for their lengths.
        unsafe { csum_diff(f, from.len() as u64, t, to.len() as u64, seed.into(), std::ptr::null_mut()) }
    }

    #[test]
    fn the_example_of_rfc_1071() {
        // Section 3: the words 0001 f203 f4f5 f6f7 sum to ddf2 with the carries added back.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!((diff(&[], &bytes, 0) as u16).to_ne_bytes(), [0xdd, 0xf2]);
        assert_eq!(diff(&bytes, &bytes, 0), 0xffff, "a difference of nothing is one's-complement zero");
    }

    #[test]
    fn sizes_that_are_no_multiple_of_four_are_refused() {
        assert_eq!(diff(&[1, 2, 3], &[], 0), EINVAL);
        assert_eq!(diff(&[], &[1, 2], 0), EINVAL);
    }

    #[test]
    fn replacing_a_field_gives_the_checksum_of_the_new_header() {
        let checksum = |bytes: &[u8]| !(diff(&[], bytes, 0) as u16);
        let mut header: [u8; 20] =
            [0x45, 0, 0, 60, 0x1c, 0x46, 0x40, 0, 64, 6, 0, 0, 172, 16, 10, 99, 172, 16, 10, 12];
        let sum = checksum(&header).to_ne_bytes();
        header[10..12].copy_from_slice(&sum);

        let skb = SkbContext {
            data: header.as_mut_ptr() as u64,
            data_end: header.as_mut_ptr() as u64 + 20,
            ..SkbContext::default()
        };
        let (old, new) = (u32::from_ne_bytes([172, 16, 10, 12]), u32::from_ne_bytes([10, 0, 0, 1]));
        // SAFETY: the context describes `header`.
        let status = unsafe {
            l3_csum_replace(&raw const skb as u64, 10, old.into(), new.into(), 4, std::ptr::null_mut())
        };
        assert_eq!(status, 0);
        header[16..20].copy_from_slice(&[10, 0, 0, 1]);
        assert_eq!(checksum(&header), 0, "a valid header sums to zero");
    }

    #[test]
    fn a_udp_checksum_of_zero_is_kept_and_never_computed() {
        let mut packet = [0u8; 8];
        let skb = SkbContext {
            data: packet.as_mut_ptr() as u64,
            data_end: packet.as_mut_ptr() as u64 + 8,
            ..SkbContext::default()
        };
        let context = &raw const skb as u64;
        let replace = |from: u64, to: u64, flags: u64| {
            // SAFETY: the context describes `packet`.
            unsafe { l4_csum_replace(context, 6, from, to, flags, std::ptr::null_mut()) }
        };
        assert_eq!(replace(1, 2, 2 | MANGLED_0), 0);
        assert_eq!(packet, [0; 8], "no checksum: nothing to update");
        assert_eq!(replace(0, 0, 2 | 0x100), EINVAL);
        assert_eq!(replace(0, 0, 3), EINVAL);
        packet[6..8].copy_from_slice(&1u16.to_ne_bytes());
        assert_eq!(replace(0, 1, 2 | MANGLED_0), 0);
        assert_eq!(u16::from_ne_bytes([packet[6], packet[7]]), 0xffff);
    }
}

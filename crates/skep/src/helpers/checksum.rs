//! Internet checksums (RFC 1071) and their incremental update (RFC 1624).

use super::errno::{EFAULT, EINVAL};
use super::packet::packet_range;
use skep_abi::{RunEnv, SkbContext};

/// `BPF_F_HDR_FIELD_MASK`: the size of the changed field.
const FIELD_SIZE: u64 = 0xf;
/// `BPF_F_PSEUDO_HDR`: the field is in the pseudo header. It has no effect here, since no checksum of the whole
/// packet is kept.
const PSEUDO_HEADER: u64 = 1 << 4;
/// `BPF_F_MARK_MANGLED_0`: a checksum of 0 means none and is kept; a result of 0 is written as 0xffff.
const MANGLED_0: u64 = 1 << 5;
/// `BPF_F_MARK_ENFORCE`: with the above, update even if the field is 0.
const ENFORCE: u64 = 1 << 6;
/// `BPF_F_IPV6`: the field is an IPv6 address.
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
    unsafe { replace(context, offset, from, to, flags) }
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
    unsafe { replace(context, offset, from, to, flags) }
}

/// Updates the checksum field at `offset` for a field that changed from `from` to `to`; with size 0, for a
/// difference in `to` that [`csum_diff`] computed.
///
/// # Safety
///
/// `context` is the address of the run's [`SkbContext`].
unsafe fn replace(context: u64, offset: u64, from: u64, to: u64, flags: u64) -> u64 {
    // SAFETY: the caller's promise.
    let skb = unsafe { &*(context as *const SkbContext) };
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
    let difference = match flags & FIELD_SIZE {
        0 if from == 0 => u64::from(to as u32),
        2 => u64::from(!(from as u16)) + u64::from(to as u16),
        4 => u64::from(!(from as u32)) + u64::from(to as u32),
        _ => return EINVAL,
    };
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
    let mut new = !fold(u64::from(!old) + difference);
    if flags & MANGLED_0 != 0 && new == 0 {
        new = 0xffff;
    }
    // SAFETY: as above.
    unsafe { *field = new.to_ne_bytes() };
    0
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

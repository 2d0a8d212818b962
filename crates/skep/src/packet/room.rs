//! More room for a packet while a program runs.

use super::{HEADROOM, Packet, TAILROOM};
use skep_abi::{SkbContext, XdpContext};

/// The longest packet that helpers make, in bytes: with more they fail. Linux's allocator has a limit too.
const LONGEST: u64 = 1 << 20;

impl Packet {
    /// Begins a run: the addresses of the packet for its context, and of its effects for its environment. They are
    /// valid until the packet is used otherwise.
    #[inline]
    pub(crate) fn begin(&mut self) -> (u64, u64) {
        self.effects.begin();
        let packet = (&raw mut *self).expose_provenance() as u64;
        (packet, packet + std::mem::offset_of!(Self, effects) as u64)
    }

    /// The packet of a run, if the context has one.
    ///
    /// # Safety
    ///
    /// `address` is what a context of the run in progress has, and the run's caller does not use the packet meanwhile.
    pub(crate) unsafe fn of_run<'a>(address: u64) -> Option<&'a mut Self> {
        let packet = std::ptr::with_exposed_provenance_mut::<Self>(address as usize);
        // SAFETY: the caller's promise; null is none.
        unsafe { packet.as_mut() }
    }

    /// Moves the bytes from `meta` to `end` into a buffer with that much room on both sides. Returns the distance
    /// from the old addresses to the new ones, or `None` where the packet would be too long.
    fn grow(&mut self, meta: u64, end: u64, head: u64, tail: u64) -> Option<u64> {
        let old = self.buffer.as_ptr() as u64;
        let (meta, end) = ((meta - old) as usize, (end - old) as usize);
        if (end - meta) as u64 + head + tail > LONGEST {
            return None;
        }
        let (head, tail) = (head as usize + HEADROOM, tail as usize + TAILROOM);
        let mut buffer = vec![0; head + (end - meta) + tail];
        buffer[head..head + (end - meta)].copy_from_slice(&self.buffer[meta..end]);
        self.buffer = buffer;
        // Also the part of the room that was left is new.
        self.room = head - HEADROOM;
        let new = self.buffer.as_mut_ptr() as u64;
        Some((new + head as u64).wrapping_sub(old + meta as u64))
    }

    /// Makes room for `head` bytes before the packet's metadata and `tail` after its end. False where that is too much.
    pub(crate) fn grow_skb(&mut self, skb: &mut SkbContext, head: u64, tail: u64) -> bool {
        // The first byte to keep: that of the metadata, or of a link-layer header that the program does not see.
        let first = skb.data_meta.min(skb.data - u64::from(skb.link));
        let Some(by) = self.grow(first, skb.data_end, head, tail) else { return false };
        for address in [&mut skb.data_meta, &mut skb.data, &mut skb.data_end] {
            *address = address.wrapping_add(by);
        }
        skb.buffer_start = self.buffer.as_ptr() as u64;
        skb.buffer_end = skb.buffer_start + self.buffer.len() as u64;
        true
    }

    /// Makes room for `tail` bytes after the packet's end. The start of the room stays as far from the packet.
    pub(crate) fn grow_xdp(&mut self, xdp: &mut XdpContext, tail: u64) -> bool {
        let head = xdp.data_meta - xdp.buffer_start;
        let Some(by) = self.grow(xdp.data_meta, xdp.data_end, head, tail) else { return false };
        for address in [&mut xdp.buffer_start, &mut xdp.data_meta, &mut xdp.data, &mut xdp.data_end] {
            *address = address.wrapping_add(by);
        }
        self.room = (xdp.buffer_start - self.buffer.as_ptr() as u64) as usize;
        xdp.buffer_end = self.buffer.as_ptr() as u64 + self.buffer.len() as u64;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_buffer_has_the_same_bytes_and_the_context_describes_it() {
        let mut packet = Packet::new(b"0123456789abcdefghij");
        let mut xdp = packet.xdp();
        xdp.data_meta -= 4;
        packet.take_xdp(&xdp);
        let metadata = packet.metadata().to_vec();
        let mut skb = packet.skb(false);
        assert!(packet.grow_skb(&mut skb, 1000, 2000));
        assert!(skb.data_meta - skb.buffer_start >= 1000 && skb.buffer_end - skb.data_end >= 2000);
        packet.take_skb(&skb);
        assert_eq!((packet.bytes(), packet.metadata()), (&b"0123456789abcdefghij"[..], &metadata[..]));

        let mut xdp = packet.xdp();
        let room = xdp.data - xdp.buffer_start;
        assert!(packet.grow_xdp(&mut xdp, 5000));
        assert_eq!(xdp.data - xdp.buffer_start, room);
        assert!(xdp.buffer_end - xdp.data_end >= 5000);
        packet.take_xdp(&xdp);
        assert_eq!((packet.bytes(), packet.metadata()), (&b"0123456789abcdefghij"[..], &metadata[..]));
        assert!(!packet.grow_xdp(&mut xdp, LONGEST));
    }
}

//! A buffer behind which no memory is, and before which every byte is known.

/// A page, or more.
const PAGE: usize = 1 << 16;
const KNOWN: u8 = 0xa5;

/// A buffer that ends where memory ends, but for up to seven bytes that align its start.
pub(super) struct Guarded {
    base: *mut u8,
    start: usize,
    len: usize,
}

impl Guarded {
    /// One of that length, at most [`PAGE`].
    pub(super) fn new(len: usize) -> Self {
        assert!(len <= PAGE);
        // SAFETY: new memory, and access taken from its second half.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(std::ptr::null_mut(), 2 * PAGE, rights, flags, -1, 0);
            assert!(base != libc::MAP_FAILED && libc::mprotect(base.add(PAGE), PAGE, libc::PROT_NONE) == 0);
            base.cast::<u8>()
        };
        Self { base, start: PAGE - len.next_multiple_of(8), len }
    }

    /// Makes every byte of the buffer this one.
    pub(super) fn fill(&mut self, byte: u8) {
        let start = self.start;
        let memory = self.memory();
        // What is looked at later; all of the first half would take its time.
        memory[start.saturating_sub(LOOKED_AT)..].fill(KNOWN);
        self.bytes().fill(byte);
    }

    /// The buffer.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        let range = self.start..self.start + self.len;
        &mut self.memory()[range]
    }

    /// Whether nothing was written before it, nor between its end and the memory's.
    pub(super) fn is_whole(&mut self) -> bool {
        let (start, end) = (self.start, self.start + self.len);
        let memory = self.memory();
        memory[start.saturating_sub(LOOKED_AT)..start].iter().chain(&memory[end..]).all(|byte| *byte == KNOWN)
    }

    fn memory(&mut self) -> &mut [u8] {
        // SAFETY: the first half of what was mapped, readable and writable, zeroed, and borrowed as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.base, PAGE) }
    }
}

/// Bytes before a buffer that are looked at.
const LOOKED_AT: usize = 512;

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: what was mapped, and nobody else has.
        unsafe { libc::munmap(self.base.cast(), 2 * PAGE) };
    }
}

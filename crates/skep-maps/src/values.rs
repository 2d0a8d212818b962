//! The value of an element: one, or one for each CPU.
//!
//! ```text
//!   in the map     | CPU 0 ....pad | CPU 1 ....pad | ...      `cpu_stride` bytes apart, in whole words
//!   at the host    | CPU 0 .pad8   | CPU 1 .pad8   | ...      as Linux's system call wants it
//! ```

use crate::racy;

/// Where a value comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// The host: the values of all CPUs, each padded to 8 bytes, where there are several; else the value.
    All(*const u8),
    /// A program that runs as that virtual CPU: the value for this CPU.
    Cpu(*const u8, u32),
}

/// How the values of a map are laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    /// Bytes in the value of one CPU, as the map's definition says.
    size: usize,
    /// How many values an element has: 1 where all CPUs share it.
    copies: u32,
    /// Bytes from one CPU's value to the next CPU's; 0 where there is one value.
    cpu_stride: usize,
}

impl Values {
    pub(crate) fn shared(size: u32) -> Self {
        Self { size: size as usize, copies: 1, cpu_stride: 0 }
    }

    /// `cpu_stride` is a multiple of 8 and at least `size`.
    pub(crate) fn per_cpu(size: u32, cpus: u32, cpu_stride: usize) -> Self {
        debug_assert!(cpu_stride.is_multiple_of(8) && cpu_stride >= size as usize);
        Self { size: size as usize, copies: cpus, cpu_stride }
    }

    pub(crate) fn is_per_cpu(&self) -> bool {
        self.cpu_stride != 0
    }

    pub(crate) fn cpu_stride(&self) -> usize {
        self.cpu_stride
    }

    /// Bytes of an element's values as the host gives and takes them.
    pub(crate) fn host_size(&self) -> usize {
        if self.is_per_cpu() { self.padded() * self.copies as usize } else { self.size }
    }

    /// Address of one CPU's value.
    ///
    /// # Safety
    ///
    /// `at` is where an element's values begin; `cpu` is below the number of CPUs.
    #[inline(always)]
    pub(crate) unsafe fn of_cpu(&self, at: *mut u8, cpu: u32) -> *mut u8 {
        debug_assert!(cpu < self.copies || !self.is_per_cpu());
        // SAFETY: the caller's element has a value for each CPU; without per-CPU values the stride is 0.
        unsafe { at.add(cpu as usize * self.cpu_stride) }
    }

    /// Copies an element's values out for the host.
    ///
    /// # Safety
    ///
    /// `at` is where an element's values begin; `out` is writable for `host_size` bytes and the caller's own.
    pub(crate) unsafe fn read(&self, at: *mut u8, out: *mut u8) {
        for cpu in 0..self.copies {
            let to = cpu as usize * self.padded();
            // SAFETY: the element has `copies` values, and `out` room for as many; a per-CPU value takes whole
            // words on both sides.
            unsafe {
                let len = if self.is_per_cpu() { self.padded() } else { self.size };
                racy::read(self.of_cpu(at, cpu), out.add(to), len);
            }
        }
    }

    /// Overwrites an element's values: all of them, or the one of the program's CPU.
    ///
    /// # Safety
    ///
    /// `at` is where an element's values begin; `source` is readable for `host_size` bytes ([`Source::All`]) or
    /// the size of one value ([`Source::Cpu`]), and its CPU number is below the number of CPUs.
    pub(crate) unsafe fn write(&self, at: *mut u8, source: Source) {
        match source {
            // SAFETY: by contract; `of_cpu` is inside the element.
            Source::Cpu(from, cpu) => unsafe { racy::write(from, self.of_cpu(at, cpu), self.size) },
            Source::All(from) => {
                for cpu in 0..self.copies {
                    // SAFETY: the values of the source follow each other, padded; `write` clears the padding.
                    unsafe {
                        let from = from.add(cpu as usize * self.padded());
                        racy::write(from, self.of_cpu(at, cpu), self.size);
                    }
                }
            }
        }
    }

    /// Fills a new element's values: what the source does not give is zero.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    pub(crate) unsafe fn fill(&self, at: *mut u8, source: Source) {
        if let (Source::Cpu(_, own), true) = (source, self.is_per_cpu()) {
            for cpu in (0..self.copies).filter(|&cpu| cpu != own) {
                // SAFETY: the element has a value for each CPU.
                unsafe { racy::zero(self.of_cpu(at, cpu), self.size) };
            }
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { self.write(at, source) };
    }

    /// Bytes in the value of one CPU, in whole words.
    fn padded(&self) -> usize {
        self.size.next_multiple_of(8)
    }
}

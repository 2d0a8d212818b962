//! The log that a caller asks for: of the verifier, or about types.

use crate::caller::Caller;
use crate::engine::Engine;
use crate::errno::Errno;
use alloc::collections::VecDeque;

/// Levels of the log: branches, all instructions, statistics; and whether its beginning is kept instead of its end.
const LEVELS: u32 = 0b1111;
const FIXED: u32 = 0b1000;
/// The most bytes that a caller may offer.
const MOST: u32 = u32::MAX >> 2;

/// A log in a buffer of the caller's. If it is longer, its end is kept; with the level's bit for that its beginning.
pub(crate) struct Log {
    level: u32,
    address: u64,
    room: usize,
    /// The text that fits.
    text: VecDeque<u8>,
    /// The bytes of all of it.
    total: u64,
}

impl Log {
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if level, address and size do not fit each other.
    pub(crate) fn new(level: u32, address: u64, size: u32) -> Result<Self, Errno> {
        let contradictory = (address == 0) != (size == 0) || address != 0 && level == 0;
        if contradictory || level & !LEVELS != 0 || size > MOST {
            return Err(Errno::EINVAL);
        }
        let room = (size as usize).saturating_sub(1);
        Ok(Self { level, address, room, text: VecDeque::new(), total: 0 })
    }

    pub(crate) fn line(&mut self, line: &str) {
        if self.level == 0 {
            return;
        }
        for byte in line.bytes().chain([b'\n']) {
            self.total += 1;
            if self.text.len() < self.room {
                self.text.push_back(byte);
            } else if self.level & FIXED == 0 && self.room > 0 {
                self.text.pop_front();
                self.text.push_back(byte);
            }
        }
    }

    /// Bytes of the whole text with the zero at its end; 0 without a log.
    pub(crate) fn true_size(&self) -> u32 {
        if self.level == 0 { 0 } else { u32::try_from(self.total + 1).unwrap_or(u32::MAX) }
    }

    /// Writes it to the caller.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`]; [`Errno::ENOSPC`] if it is longer than the caller's buffer.
    pub(crate) fn finish<E: Engine>(&mut self, caller: &mut impl Caller<E>) -> Result<(), Errno> {
        if self.address == 0 {
            return Ok(());
        }
        self.text.push_back(0);
        caller.write(self.address, self.text.make_contiguous())?;
        if self.total > self.room as u64 { Err(Errno::ENOSPC) } else { Ok(()) }
    }
}

//! `struct perf_event_attr`, as far as events for the samples of programs need it.

use skep::{PerfSettings, PerfWakeup, SampleFields};
use skep_sys::Errno;

/// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_BPF_OUTPUT`.
const SOFTWARE: u32 = 1;
const BPF_OUTPUT: u64 = 10;
/// `PERF_ATTR_SIZE_VER0`, and what the kernel takes at most.
pub(super) const FIRST_SIZE: u32 = 64;
pub(super) const LARGEST: u32 = 4096;
/// `PERF_SAMPLE_TIME`, `_CPU`, `_PERIOD`, `_RAW`.
const TIME: u64 = 1 << 2;
const CPU: u64 = 1 << 7;
const PERIOD: u64 = 1 << 8;
const RAW: u64 = 1 << 10;
/// Bits behind `read_format`.
const DISABLED: u64 = 1;
const WATERMARK: u64 = 1 << 14;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCKID: u64 = 1 << 25;
const WRITE_BACKWARD: u64 = 1 << 27;

/// The attributes; missing bytes are 0.
pub(crate) struct Attr([u8; Attr::SIZE]);

impl Attr {
    /// Up to the last field that is looked at, in whole words.
    pub(super) const SIZE: usize = 96;

    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut all = [0; Self::SIZE];
        let known = bytes.len().min(Self::SIZE);
        all[..known].copy_from_slice(&bytes[..known]);
        Self(all)
    }

    /// The number of four bytes there.
    pub(crate) fn half(&self, at: usize) -> u32 {
        self.0[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// The number of eight bytes there.
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.0[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    /// Whether it shall begin switched off.
    pub(crate) fn is_disabled(&self) -> bool {
        self.word(40) & DISABLED != 0
    }

    /// Whether it is an event for samples of programs.
    pub(super) fn is_bpf_output(&self) -> bool {
        self.half(0) == SOFTWARE && self.word(8) == BPF_OUTPUT
    }

    /// What such an event is asked for.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] for fields of samples and clocks that there are not.
    pub(super) fn settings(&self, cpu: u32, id: u64) -> Result<PerfSettings, Errno> {
        let (samples, bits, wakeup) = (self.word(24), self.word(40), self.half(48));
        let other_clock = bits & USE_CLOCKID != 0 && self.half(92) != libc::CLOCK_MONOTONIC as u32;
        if samples & !(TIME | CPU | PERIOD | RAW) != 0 || other_clock {
            return Err(Errno::EINVAL);
        }
        let wakeup = match bits & WATERMARK {
            0 => PerfWakeup::Samples(wakeup),
            _ => PerfWakeup::Bytes(wakeup),
        };
        let has = |field| samples & field != 0;
        Ok(PerfSettings {
            cpu,
            id,
            fields: SampleFields { time: has(TIME), cpu: has(CPU), period: has(PERIOD), raw: has(RAW) },
            fields_of_all: bits & SAMPLE_ID_ALL != 0,
            wakeup,
            backward: bits & WRITE_BACKWARD != 0,
            enabled: bits & DISABLED == 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(fields: &[(usize, u64)]) -> Attr {
        let mut bytes = [0; 112];
        for (at, number) in fields {
            let number = number.to_ne_bytes();
            let width = if *at == 48 || *at == 92 { 4 } else { 8 };
            bytes[*at..at + width].copy_from_slice(&number[..width]);
        }
        bytes[0] = 1;
        bytes[4] = 112;
        bytes[8] = 10;
        Attr::new(&bytes)
    }

    #[test]
    fn what_clients_ask_for_is_understood() {
        let libbpf = attr(&[(16, 1), (24, RAW), (48, 1)]);
        assert!(libbpf.is_bpf_output());
        let settings = libbpf.settings(3, 9).unwrap();
        assert_eq!((settings.cpu, settings.id, settings.wakeup), (3, 9, PerfWakeup::Samples(1)));
        assert!(settings.enabled && settings.fields.raw && !settings.fields.time);
        let overwritten = attr(&[(24, RAW), (40, WATERMARK | WRITE_BACKWARD | DISABLED), (48, 100)]);
        let settings = overwritten.settings(0, 1).unwrap();
        assert_eq!(settings.wakeup, PerfWakeup::Bytes(100));
        assert!(settings.backward && !settings.enabled);
    }

    #[test]
    fn what_there_is_not_is_refused() {
        assert_eq!(attr(&[(24, RAW | 1 << 5)]).settings(0, 1), Err(Errno::EINVAL), "call chains");
        assert_eq!(attr(&[(40, USE_CLOCKID), (92, 7)]).settings(0, 1), Err(Errno::EINVAL));
        assert!(attr(&[(40, USE_CLOCKID), (92, 1)]).settings(0, 1).is_ok());
        assert!(!Attr::new(&[1, 0, 0, 0, 64, 0, 0, 0, 9]).is_bpf_output());
    }
}

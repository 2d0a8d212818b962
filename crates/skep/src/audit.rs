//! The audit log: a record of each load, refused ones included, and of each attachment.
//!
//! A record is passed to the host's sink before what it tells takes effect: before a load returns its programs, and
//! before a program is attached, replaced or detached. If an attachment then fails, a second record says why. So with
//! [`AuditFailure::Refuse`] nothing runs that the sink did not take. Records never wait in memory, so none is lost with
//! it.
//!
//! What would break it: a way to make a program run that passes by [`Observed`](crate::observe).

use std::io;
use std::time::SystemTime;

/// What happened to programs of a runtime. Serialisable with the feature `audit`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "audit", derive(serde::Serialize))]
#[non_exhaustive]
pub struct AuditRecord {
    /// When. In JSON as RFC 3339 has it, in UTC.
    #[cfg_attr(feature = "audit", serde(serialize_with = "json::time"))]
    pub time: SystemTime,
    /// The name of the tenant, if there is one.
    pub tenant: Option<String>,
    /// What.
    #[cfg_attr(feature = "audit", serde(flatten))]
    pub event: AuditEvent,
    /// Why it was refused, if it was: the text of the [`Error`](crate::Error).
    pub refusal: Option<String>,
}

/// The events of an audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "audit", derive(serde::Serialize))]
#[cfg_attr(feature = "audit", serde(tag = "event", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum AuditEvent {
    /// A load.
    Load {
        /// The SHA-256 of the object file, or of the instructions of an object that is none; in hexadecimal. Only with
        /// the feature `audit`.
        sha256: Option<String>,
        /// The programs that were to be loaded. If one was refused, those behind it may be missing.
        programs: Vec<AuditedProgram>,
        /// The maps that were created or given. None if the load was refused.
        maps: Vec<AuditedMap>,
    },
    /// A program is to be attached.
    Attach {
        /// The program.
        program: AuditedProgram,
        /// Where.
        target: String,
    },
    /// The program of a link is to be replaced.
    Replace {
        /// The new program.
        program: AuditedProgram,
        /// Where.
        target: String,
    },
    /// A program was detached.
    Detach {
        /// The name of the program.
        program: String,
        /// Where.
        target: String,
    },
}

/// A program in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "audit", derive(serde::Serialize))]
#[non_exhaustive]
pub struct AuditedProgram {
    /// Its name.
    pub name: String,
    /// Its type's name, if it was found out.
    pub program_type: Option<String>,
    /// Its tag, as Linux computes it, in hexadecimal. `None` if it was not verified, or refused.
    pub tag: Option<String>,
}

/// A map in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "audit", derive(serde::Serialize))]
#[non_exhaustive]
pub struct AuditedMap {
    /// Its name.
    pub name: String,
    /// Its kind's name.
    pub kind: String,
    /// Its capacity.
    pub max_entries: u32,
    /// Bytes of memory that it has.
    pub bytes: u64,
}

/// Receives records: a closure, `JsonLines` (feature `audit`), or a type of the host's. Called on the thread that loads
/// or attaches, by several at a time, and while a program is detached on the thread that drops its link. It must not
/// use the runtime.
pub trait AuditSink: Send + Sync {
    /// Keeps a record. It is kept when this returns: a sink that buffers flushes.
    ///
    /// # Errors
    ///
    /// If it is not kept; see [`AuditFailure`].
    fn keep(&self, record: &AuditRecord) -> io::Result<()>;
}

impl<F: Fn(&AuditRecord) -> io::Result<()> + Send + Sync> AuditSink for F {
    fn keep(&self, record: &AuditRecord) -> io::Result<()> {
        self(record)
    }
}

/// What happens if the sink does not keep a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuditFailure {
    /// The load, attachment or replacement is refused, with [`Error::Audit`](crate::Error::Audit). A program is
    /// detached all the same: what is not recorded must not go on.
    Refuse,
    /// It takes place. [`Runtime::audit_failures`](crate::Runtime::audit_failures) counts the records that were lost.
    Count,
}

#[cfg(feature = "audit")]
pub use json::JsonLines;

#[cfg(feature = "audit")]
mod json {
    use super::{AuditRecord, AuditSink};
    use std::io::{self, Write};
    use std::sync::{Mutex, PoisonError};
    use std::time::SystemTime;

    /// An [`AuditSink`] that writes each record as a line of JSON, and flushes it. Needs the feature `audit`.
    ///
    /// ```
    /// use skep::{AuditFailure, JsonLines, Object, Runtime};
    ///
    /// let log = JsonLines::new(std::io::stderr());
    /// let runtime = Runtime::builder().audit(log, AuditFailure::Refuse).build()?;
    /// let insns = skep::isa::assemble("r0 = 0\nexit").expect("the text is right");
    /// runtime.load(&Object::from_insns("nothing", &skep::abi::RAW, insns))?;
    /// # Ok::<(), skep::Error>(())
    /// ```
    #[derive(Debug)]
    pub struct JsonLines<W>(Mutex<W>);

    impl<W: Write + Send> JsonLines<W> {
        /// Writes to a file that was opened for appending, or to anything else.
        pub fn new(to: W) -> Self {
            Self(Mutex::new(to))
        }

        /// What it writes to.
        pub fn into_inner(self) -> W {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl<W: Write + Send> AuditSink for JsonLines<W> {
        fn keep(&self, record: &AuditRecord) -> io::Result<()> {
            let mut line = serde_json::to_vec(record)?;
            line.push(b'\n');
            let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // One call, so that lines of several processes do not mix in a file that is opened for appending.
            to.write_all(&line)?;
            to.flush()
        }
    }

    pub(super) fn time<S: serde::Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        to.serialize_str(&utc(since.as_secs(), since.subsec_nanos()))
    }

    /// Seconds since 1970 in RFC 3339's form.
    fn utc(seconds: u64, nanoseconds: u32) -> String {
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Years begin in March here, so that leap days come last: eras of 400 years have 146,097 days.
        let shifted = days + 719_468;
        let (era, day) = (shifted / 146_097, shifted % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let of_year = day - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let date = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year + era * 400 + u64::from(month <= 2);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        // From date(1).
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000000000Z"),
            (1_709_251_200, "2024-03-01T00:00:00.000000000Z"),
            (1_798_761_599, "2026-12-31T23:59:59.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(utc(seconds, 0), expected);
        }
    }
}

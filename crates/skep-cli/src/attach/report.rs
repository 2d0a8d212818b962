//! What `skep attach` prints: that it is attached, counts while it runs, and totals with the maps.

use crate::failure::Failure;
use crate::output;
use crate::report::{Loaded, MapReport, write_maps};
use crate::run::verdicts;
use serde::Serialize;
use skep::Program;
use skep_attach::{Counts, Live};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Duration;

/// That frames come in from now on.
#[derive(Serialize)]
pub(super) struct Attached {
    event: &'static str,
    program: String,
    #[serde(rename = "type")]
    program_type: &'static str,
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Device {
    name: String,
    ifindex: u32,
}

/// What was done so far.
#[derive(Serialize)]
pub(super) struct Counted {
    seconds: f64,
    packets: u64,
    sent: u64,
    verdicts: BTreeMap<String, u64>,
    #[serde(skip)]
    by_frequency: Vec<(String, u64)>,
    /// Frames that were to be sent and were not, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    not_sent: BTreeMap<&'static str, u64>,
    devices: Vec<Passage>,
}

#[derive(Serialize)]
struct Passage {
    name: String,
    received: u64,
    received_bytes: u64,
    sent: u64,
    sent_bytes: u64,
    /// Frames that came in while there was no room.
    dropped: u64,
    unreadable: u64,
}

/// The report at the end.
#[derive(Serialize)]
pub(super) struct Totals {
    #[serde(flatten)]
    pub(super) loaded: Loaded,
    #[serde(flatten)]
    pub(super) counted: Counted,
    pub(super) maps: Vec<MapReport>,
}

#[derive(Serialize)]
pub(super) struct Event<'a, T> {
    event: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

impl Attached {
    pub(super) fn new(live: &Live) -> Self {
        let device = |port: &skep_attach::Port| {
            let interface = port.interface();
            Device { name: interface.name.clone(), ifindex: interface.index }
        };
        Self {
            event: "attached",
            program: live.program().name().to_owned(),
            program_type: live.program().program_type().name,
            devices: live.ports().iter().map(device).collect(),
        }
    }

    /// Says it. Returns `false` if nobody reads the output.
    pub(super) fn print(&self, json: bool) -> Result<bool, Failure> {
        if json {
            return output::line(self);
        }
        let devices: Vec<&str> = self.devices.iter().map(|device| &*device.name).collect();
        output::complaint(&format!(
            "skep: {} runs on frames of {}; Ctrl-C ends it\n",
            self.program,
            devices.join(", ")
        ));
        Ok(true)
    }
}

impl Counted {
    pub(super) fn new(program: &Program, counts: &Counts, time: Duration) -> Self {
        let by_frequency = verdicts(program, &counts.verdicts);
        let passage = |port: &skep_attach::Passage| Passage {
            name: port.name.clone(),
            received: port.received,
            received_bytes: port.received_bytes,
            sent: port.sent,
            sent_bytes: port.sent_bytes,
            dropped: port.dropped,
            unreadable: port.unreadable,
        };
        Self {
            seconds: time.as_millis() as f64 / 1e3,
            packets: counts.frames,
            sent: counts.sent(),
            verdicts: by_frequency.iter().cloned().collect(),
            by_frequency,
            not_sent: counts.lost.iter().map(|(lost, count)| (lost.name(), *count)).collect(),
            devices: counts.ports.iter().map(passage).collect(),
        }
    }

    /// As one line of text.
    pub(super) fn line(&self) -> String {
        let mut line = format!("{} packets", self.packets);
        for (name, count) in &self.by_frequency {
            let _ = write!(line, ", {name} {count}");
        }
        let _ = write!(line, "; {} sent", self.sent);
        line
    }

    /// As a line of JSON.
    pub(super) fn event(&self) -> Event<'_, Self> {
        Event { event: "counts", body: self }
    }
}

impl Totals {
    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        if json {
            return output::line(&Event { event: "totals", body: self }).map(drop);
        }
        let mut out = String::new();
        self.write_text(&mut out).map_err(|error| Failure::Refused(error.to_string()))?;
        output::text(&out)
    }

    fn write_text(&self, out: &mut String) -> fmt::Result {
        self.loaded.write_text(out)?;
        let Counted { seconds, packets, by_frequency, not_sent, devices, .. } = &self.counted;
        writeln!(out, "\n  {:<16}{:>12}{:>9}", "verdict", "packets", "share")?;
        for (name, count) in by_frequency {
            let share = 100.0 * *count as f64 / (*packets).max(1) as f64;
            writeln!(out, "  {name:<16}{count:>12}{share:>7.1} %")?;
        }
        writeln!(out, "  {:<16}{packets:>12}  in {seconds:.1} s", "all")?;
        writeln!(out, "\n  {:<16}{:>12}{:>12}{:>12}", "interface", "received", "sent", "dropped")?;
        for Passage { name, received, sent, dropped, .. } in devices {
            writeln!(out, "  {name:<16}{received:>12}{sent:>12}{dropped:>12}")?;
        }
        for Passage { name, unreadable, .. } in devices.iter().filter(|device| device.unreadable > 0) {
            writeln!(out, "  {unreadable} packets of {name} could not be read")?;
        }
        if !not_sent.is_empty() {
            writeln!(out, "\n  {:<56}{:>12}", "not sent", "packets")?;
        }
        for (why, count) in not_sent {
            writeln!(out, "  {why:<56}{count:>12}")?;
        }
        write_maps(out, &self.maps)
    }
}

//! The state of the packs at one moment: figures, and an account of every byte of every pack.
//!
//! It is the JSON document, and the only input of the text and the picture. The spans of a pack cover it without
//! gaps. A span of a text, live or waiting, has the name of its program if it is known.

use serde::Serialize;
use skep::Occupancy;
use skep::text::{self, PACK_BYTES, SpanState};
use std::collections::BTreeMap;

/// Everything that is shown.
#[derive(Serialize)]
pub(crate) struct Snapshot {
    pub(crate) example: Example,
    pub(crate) backing: &'static str,
    pub(crate) backing_refused: Option<String>,
    pub(crate) pack_count: usize,
    pub(crate) empty_packs: usize,
    pub(crate) huge_packs: usize,
    pub(crate) huge_refused: Option<String>,
    /// As reported by the kernel.
    pub(crate) huge_bytes: Option<u64>,
    pub(crate) sealed_packs: usize,
    pub(crate) mapped_bytes: usize,
    pub(crate) used_bytes: usize,
    pub(crate) code_bytes: usize,
    pub(crate) free_bytes: usize,
    pub(crate) waiting_bytes: usize,
    pub(crate) largest_free_run: usize,
    /// 0 if all free memory is in one piece, near 1 if it is scattered.
    pub(crate) fragmentation: f64,
    /// Code bytes divided by mapped bytes.
    pub(crate) utilisation: f64,
    pub(crate) texts: usize,
    pub(crate) drafts: usize,
    /// Mapped bytes divided by texts.
    pub(crate) bytes_per_program: Option<f64>,
    pub(crate) programs: Vec<Copies>,
    pub(crate) packs: Vec<PackMap>,
    pub(crate) long_texts: Vec<LongText>,
}

/// What the host did before the snapshot.
#[derive(Clone, Default, Serialize)]
pub(crate) struct Example {
    pub(crate) objects: Vec<String>,
    pub(crate) copies: u32,
    pub(crate) churn: u32,
    pub(crate) threads: usize,
    pub(crate) runs: u64,
    /// Programs freed, and their memory is free again.
    pub(crate) freed: usize,
    /// Programs freed under a reader: these wait.
    pub(crate) waiting: usize,
    /// Whether promotion succeeded, if it was requested.
    pub(crate) promoted: Option<bool>,
}

/// A program with one or more copies in the packs.
#[derive(Serialize)]
pub(crate) struct Copies {
    pub(crate) program: String,
    pub(crate) tag: String,
    pub(crate) copies: usize,
    pub(crate) code_bytes: usize,
    /// Copies that wait for readers to leave.
    pub(crate) waiting: usize,
}

/// A pack.
#[derive(Serialize)]
pub(crate) struct PackMap {
    #[serde(serialize_with = "hexadecimal")]
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    /// Bytes with memory behind them.
    pub(crate) mapped_bytes: usize,
    pub(crate) spans: Vec<Span>,
}

/// A run of bytes of a pack with the same state and owner.
#[derive(Serialize)]
pub(crate) struct Span {
    /// Offset in the pack.
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) state: State,
    #[serde(flatten)]
    pub(crate) name: Option<Name>,
}

/// The state of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Free,
    Text,
    Waiting,
    Draft,
    NoMemory,
}

/// The program that a text belongs to.
#[derive(Clone, Serialize)]
pub(crate) struct Name {
    pub(crate) program: String,
    pub(crate) tag: String,
    /// Size without rounding to chunks.
    pub(crate) code_bytes: usize,
    /// Whether it was freed.
    #[serde(skip)]
    pub(crate) freed: bool,
}

/// A text longer than a pack, in a mapping of its own.
#[derive(Serialize)]
pub(crate) struct LongText {
    #[serde(serialize_with = "hexadecimal")]
    pub(crate) address: usize,
    #[serde(flatten)]
    pub(crate) name: Name,
    /// Whether it waits for readers.
    pub(crate) waiting: bool,
}

impl LongText {
    /// Its description, one line.
    pub(crate) fn describe(&self) -> String {
        let (Name { program, tag, code_bytes, .. }, at) = (&self.name, self.address);
        let bytes = super::text::grouped(*code_bytes);
        let waits = if self.waiting { " (freed, waits for readers)" } else { "" };
        format!("in memory of its own at {at:#x}: {program}{waits}, tag {tag}, {bytes} bytes")
    }
}

impl Snapshot {
    /// Joins what the arena reports with the names of texts by address, including freed texts that may still wait.
    pub(crate) fn new(
        example: Example,
        occupancy: &Occupancy,
        spans: &[text::Span],
        names: &BTreeMap<usize, Name>,
    ) -> Self {
        let packs = packs(spans, names);
        let per_text = |bytes: usize| (occupancy.texts > 0).then(|| bytes as f64 / occupancy.texts as f64);
        Self {
            example,
            backing: occupancy.backing.name(),
            backing_refused: occupancy.backing_refused.clone(),
            pack_count: occupancy.packs,
            empty_packs: occupancy.empty_packs,
            huge_packs: occupancy.huge_packs,
            huge_refused: occupancy.huge_refused.clone(),
            huge_bytes: occupancy.huge_bytes,
            sealed_packs: occupancy.sealed_packs,
            mapped_bytes: occupancy.mapped_bytes,
            used_bytes: occupancy.used_bytes,
            code_bytes: occupancy.code_bytes,
            free_bytes: occupancy.chunks_free * text::CHUNK_BYTES,
            waiting_bytes: occupancy.waiting_bytes,
            largest_free_run: occupancy.largest_free_run,
            fragmentation: occupancy.fragmentation(),
            utilisation: occupancy.code_bytes as f64 / occupancy.mapped_bytes.max(1) as f64,
            texts: occupancy.texts,
            drafts: occupancy.drafts,
            bytes_per_program: per_text(occupancy.mapped_bytes),
            programs: copies(&packs),
            long_texts: long_texts(&packs, names),
            packs,
        }
    }
}

impl PackMap {
    /// Bytes of the pack in this state.
    pub(crate) fn bytes_of(&self, state: State) -> usize {
        self.spans.iter().filter(|span| span.state == state).map(|span| span.bytes).sum()
    }
}

impl State {
    /// All states, in the order of legends.
    pub(crate) const ALL: [Self; 5] = [Self::Text, Self::Free, Self::Waiting, Self::Draft, Self::NoMemory];

    /// The state as text.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Text => "program",
            Self::Waiting => "freed, waits for readers",
            Self::Draft => "draft",
            Self::NoMemory => "no memory yet",
        }
    }
}

impl From<SpanState> for State {
    fn from(state: SpanState) -> Self {
        match state {
            SpanState::Free => Self::Free,
            SpanState::Text => Self::Text,
            SpanState::Waiting => Self::Waiting,
            SpanState::Draft => Self::Draft,
            _ => Self::NoMemory,
        }
    }
}

fn packs(spans: &[text::Span], names: &BTreeMap<usize, Name>) -> Vec<PackMap> {
    let mut packs: Vec<PackMap> = Vec::new();
    for span in spans {
        // A pack is a huge page and aligned as one.
        let address = span.address - span.address % PACK_BYTES;
        if packs.last().is_none_or(|pack| pack.address != address) {
            packs.push(PackMap { address, bytes: PACK_BYTES, mapped_bytes: 0, spans: Vec::new() });
        }
        let Some(pack) = packs.last_mut() else { continue };
        let state = State::from(span.state);
        if state != State::NoMemory {
            pack.mapped_bytes += span.len;
        }
        let named = matches!(state, State::Text | State::Waiting);
        let name = names.get(&span.address).filter(|_| named).cloned();
        pack.spans.push(Span { offset: span.address - address, bytes: span.len, state, name });
    }
    packs
}

fn copies(packs: &[PackMap]) -> Vec<Copies> {
    let mut found = BTreeMap::new();
    for span in packs.iter().flat_map(|pack| &pack.spans) {
        let Some(name) = &span.name else { continue };
        let Name { program, tag, code_bytes, .. } = name;
        let copies = found.entry((program, tag)).or_insert_with(|| Copies {
            program: program.clone(),
            tag: tag.clone(),
            copies: 0,
            code_bytes: 0,
            waiting: 0,
        });
        if span.state == State::Waiting {
            copies.waiting += 1;
        } else {
            copies.copies += 1;
            copies.code_bytes += code_bytes;
        }
    }
    found.into_values().collect()
}

/// Texts outside of the packs.
fn long_texts(packs: &[PackMap], names: &BTreeMap<usize, Name>) -> Vec<LongText> {
    let in_pack = |address: usize| {
        packs.iter().any(|pack| (pack.address..pack.address + pack.bytes).contains(&address))
    };
    names
        .iter()
        .filter(|(address, _)| !in_pack(**address))
        .map(|(address, name)| LongText { address: *address, name: name.clone(), waiting: name.freed })
        .collect()
}

fn hexadecimal<S: serde::Serializer>(address: &usize, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{address:#x}"))
}

//! The dissector as it is loaded, in its four variants.

use super::packets::{Case, Flow};
use crate::programs::EXAMPLES;
use skep::{Engine, Map, Object, Packet, Program, Runtime, UpdateFlags};
use std::sync::Arc;

/// `TC_ACT_OK`: a flow was found.
pub(super) const DISSECTED: u32 = 0;

/// Bytes of `struct found`.
const FOUND: usize = 48;

/// One way to build the dissector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    /// Parsers that jump to each other, or a loop that calls them.
    pub(super) tail_calls: bool,
    /// Whether flows are stored in a hash map.
    pub(super) map_update: bool,
}

/// All of them.
pub(super) const VARIANTS: [Variant; 4] = [
    Variant { tail_calls: true, map_update: true },
    Variant { tail_calls: true, map_update: false },
    Variant { tail_calls: false, map_update: true },
    Variant { tail_calls: false, map_update: false },
];

impl Variant {
    /// The object with these parsers.
    pub(super) fn object(self) -> Result<Object, String> {
        let name = if self.tail_calls { "dissector" } else { "dissector_calls" };
        let (_, bytes) =
            EXAMPLES.iter().find(|(known, _)| *known == name).ok_or("the dissector is missing")?;
        Object::parse(bytes).map_err(|error| format!("{name}: {error}"))
    }

    /// The program that packets are given to.
    pub(super) fn entry(self) -> &'static str {
        if self.tail_calls { "dissect" } else { "dissect_by_calls" }
    }

    /// The constant `store` of the source.
    pub(super) fn store(self) -> [u8; 4] {
        u32::from(self.map_update).to_ne_bytes()
    }
}

/// A dissector in skep, with its own maps and its own place.
pub(super) struct Loaded {
    pub(super) entry: Program,
    flows: Arc<Map>,
    found: Arc<Map>,
    variant: Variant,
    /// The other parsers, and what keeps them reachable.
    _module: skep::Module,
}

impl Loaded {
    pub(super) fn new(runtime: &Runtime, variant: Variant) -> Result<Self, String> {
        let object = variant.object()?;
        let linker = runtime.linker(&object).variable("store", &variant.store());
        let module = linker.load().map_err(|error| error.to_string())?;
        let entry = module.program(variant.entry()).ok_or("the dissector has another name")?.clone();
        let map = |name| module.map(name).cloned().ok_or("the dissector has other maps");
        Ok(Self { entry, flows: map("flows")?, found: map("found")?, variant, _module: module })
    }

    /// Expects it to find in a packet what is to be found, and nothing else.
    pub(super) fn check(&self, engine: Engine, case: &Case) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}, {:?}: {error}", case.name, self.variant);
        let wrong = |what: String| Err(failed(&format!("the {engine:?} {what}")));
        let known: Vec<_> = self.flows.entries().collect();
        for (key, _) in known {
            self.flows.delete(&key).map_err(|error| failed(&error))?;
        }
        // What an earlier packet left must not matter.
        let junk = vec![0xff; self.found.host_value_size()];
        self.found.update(&[0; 4], &junk, UpdateFlags::Any).map_err(|error| failed(&error))?;

        let result = self.entry.run_with(engine, &mut Packet::new(&case.frame));
        let result = result.map_err(|error| failed(&error))? as u32;
        if (result == DISSECTED) != case.flow.is_some() {
            return wrong(format!("returns {}", result.cast_signed()));
        }
        let stored: Vec<_> = self.flows.entries().collect();
        let wanted = case.flow.filter(|_| self.variant.map_update);
        let wanted: Vec<_> = wanted.iter().map(|flow| (flow.key.to_vec(), flow.value.to_vec())).collect();
        if stored != wanted {
            return wrong(format!("stores {stored:?}, not {wanted:?}"));
        }
        let Some(Flow { key, value }) = case.flow else { return Ok(()) };
        // It has a value for each CPU, of which one has been written.
        let left = self.found.lookup(&[0; 4]).map_err(|error| failed(&error))?.unwrap_or_default();
        let found = left.chunks(FOUND).any(|one| *one == [&key[..], &value].concat());
        if found { Ok(()) } else { wrong(format!("leaves {left:x?}, not {:x?}", case.flow)) }
    }
}
